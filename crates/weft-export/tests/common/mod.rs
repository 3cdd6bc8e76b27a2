//! Helpers of these tests: a server on a thread, and a blocking NBD client.
#![allow(dead_code, unreachable_pub, reason = "each test file uses its part")]

use std::collections::VecDeque;
use std::io::{Read, Write};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::sync::mpsc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use weft_engine::assemble::{Options, assemble};
use weft_engine::knobs::Knobs;
use weft_engine::{Config, Engine, Input, Output, Snapshot, Turn};
use weft_export::client::shake_hands;
use weft_export::control::{self, Command, Status};
use weft_export::{
    ClientShare, ExitState, ExportOptions, Listen, NbdAddress, NbdListen, Protection, Ready,
    ServeOptions, Source, TimeLimits, serve,
};
use weft_nbd::wire::RequestHeader;
use weft_nbd::{ClientConnection, ClientEvent, ClientHandshake, Extent, Goal, NbdError, Op};
use weft_ondisk::{Level, NewArray};
use weft_runtime::Backend;
use weft_runtime::devices::{Access, MemberSpec, OpenMember, OpenOptions, read_metadata};
use weft_runtime::serve::poison::Core;
use weft_units::rng::Rng;
use weft_units::{MemberIndex, Sectors, Time};

/// Limit of clients of the server.
pub const CLIENTS_MAX: usize = 32;

/// A running server.
pub struct Server {
    pub dir: tempfile::TempDir,
    pub ready: Ready,
    pub thread_id: u32,
    stop: Option<OwnedFd>,
    thread: Option<JoinHandle<ExitState>>,
}

impl Server {
    pub fn start(source: impl FnOnce(&Path) -> Source + Send + 'static, backend: Backend) -> Self {
        Self::start_with(source, backend, false)
    }

    pub fn start_with(
        source: impl FnOnce(&Path) -> Source + Send + 'static,
        backend: Backend,
        read_only: bool,
    ) -> Self {
        Self::start_limited(source, backend, read_only, TimeLimits::default())
    }

    /// Starts a server with these time limits.
    pub fn start_limited(
        source: impl FnOnce(&Path) -> Source + Send + 'static,
        backend: Backend,
        read_only: bool,
        limits: TimeLimits,
    ) -> Self {
        let nbd = |path: &Path| {
            let address = NbdAddress::Tcp("127.0.0.1:0".parse().unwrap());
            let tcp = NbdListen { address, protection: Protection::Local };
            vec![Listen::Nbd(NbdListen::unix(path.join("nbd"))), Listen::Nbd(tcp)]
        };
        Self::start_on(source, backend, read_only, limits, nbd)
    }

    /// Starts a server that clients reach in these ways.
    pub fn start_on(
        source: impl FnOnce(&Path) -> Source + Send + 'static,
        backend: Backend,
        read_only: bool,
        limits: TimeLimits,
        listen: impl FnOnce(&Path) -> Vec<Listen> + Send + 'static,
    ) -> Self {
        Self::start_changed(source, listen, move |options| {
            options.exports[0].read_only = read_only;
            (options.backend, options.limits) = (backend, limits);
        })
    }

    /// Starts a server that clients reach in these ways, with options that `change` has changed.
    pub fn start_changed(
        source: impl FnOnce(&Path) -> Source + Send + 'static,
        listen: impl FnOnce(&Path) -> Vec<Listen> + Send + 'static,
        change: impl FnOnce(&mut ServeOptions) + Send + 'static,
    ) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().to_owned();
        let (shutdown, stop) = rustix::pipe::pipe().unwrap();
        let (sender, receiver) = mpsc::channel();
        let thread = std::thread::spawn(move || {
            let mut options = options(source(&path), listen(&path), shutdown);
            options.control = Some(path.join("control"));
            change(&mut options);
            options.on_ready = Box::new(move |ready| {
                let thread = rustix::thread::gettid().as_raw_nonzero().get();
                sender.send((ready.clone(), thread.unsigned_abs())).unwrap();
            });
            serve(options).unwrap()
        });
        let (ready, thread_id) = receiver.recv().expect("the server starts");
        Self { dir, ready, thread_id, stop: Some(stop), thread: Some(thread) }
    }

    pub fn socket(&self) -> PathBuf {
        self.dir.path().join("nbd")
    }

    pub fn client(&self) -> Client {
        Client::connect(&self.socket())
    }

    pub fn control(&self) -> control::Client {
        control::Client::connect(&self.dir.path().join("control")).unwrap()
    }

    pub fn status(&self) -> Status {
        self.control().command(Command::Status).unwrap().status.unwrap()
    }

    /// Waits until the server holds nothing for any client, and members have answered all requests.
    /// The array itself writes superblocks a moment after the last client.
    pub fn settled(&self) -> Status {
        let deadline = Instant::now() + Duration::from_secs(10);
        loop {
            let status = self.status();
            let idle = status.volumes.iter().all(|volume| volume.requests_active == 0);
            let answered = status.tokens_outstanding == 0;
            if status.clients == 0 && status.frames_held == 0 && idle && answered {
                return status;
            }
            assert!(Instant::now() < deadline, "something is still held: {status:?}");
            std::thread::sleep(Duration::from_millis(2));
        }
    }

    pub fn stop(mut self) -> ExitState {
        drop(self.stop.take());
        let exit = self.thread.take().unwrap().join().unwrap();
        assert!(!self.socket().exists() && !self.dir.path().join("control").exists());
        exit
    }

    /// Waits for the end, after the server was told to stop in another way.
    pub fn join(mut self) -> ExitState {
        self.thread.take().unwrap().join().unwrap()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        drop(self.stop.take());
        if let Some(thread) = self.thread.take() {
            let ended = thread.join();
            assert!(ended.is_ok() || std::thread::panicking());
        }
    }
}

/// Options of a server of one volume, without a control socket.
fn options(source: Source, listen: Vec<Listen>, shutdown: OwnedFd) -> ServeOptions {
    ServeOptions {
        source,
        exports: vec![ExportOptions {
            name: "v".into(),
            size: None,
            read_only: false,
            description: String::new(),
            share: ClientShare::default(),
            also: Vec::new(),
        }],
        listen,
        control: None,
        supervisor: None,
        backend: Backend::Threads,
        clients_max: CLIENTS_MAX,
        limits: TimeLimits::default(),
        sockets: Vec::new(),
        groups: Vec::new(),
        mark: None,
        recorder: None,
        shutdown,
        on_ready: Box::new(|_| ()),
    }
}

/// A bare member in memory.
pub fn bare(size: &'static str) -> impl FnOnce(&Path) -> Source + Send {
    move |_| Source::Bare {
        member: Box::new(ram(size)),
        read_only: false,
        knobs: Box::default(),
        write_back: None,
    }
}

pub fn ram(size: &str) -> OpenMember {
    let spec = MemberSpec::parse(&format!("ram:{size}")).unwrap();
    OpenOptions::new(Access::ReadWrite).open(&spec, MemberIndex(0), []).unwrap()
}

/// An engine for one bare member.
pub fn engine_of(member: &OpenMember) -> Engine {
    Engine::new(Config::for_single(member.info().clone(), false), Time(0)).unwrap()
}

/// A stand-in for the engine.
pub fn core(
    make: impl FnOnce(&OpenMember) -> Box<dyn Core> + Send + 'static,
    client_frames: u32,
    client_credit: u64,
) -> impl FnOnce(&Path) -> Source + Send + 'static {
    move |_| {
        let member = ram("64M");
        Source::Core {
            core: make(&member),
            members: vec![member],
            cache_frames: 0,
            client_frames,
            client_credit: weft_units::Bytes(client_credit),
            block: 512,
        }
    }
}

/// Creates files with a new array on them.
pub fn array_files(dir: &Path, level: Level, count: u8) -> Vec<MemberSpec> {
    array_files_of(dir, level, count, Sectors(32 << 11))
}

/// Creates files with a new array of members of this size.
pub fn array_files_of(dir: &Path, level: Level, count: u8, size: Sectors) -> Vec<MemberSpec> {
    let mut array = NewArray::in_sync(level, count.into(), size);
    array.name = "v".into();
    array.chunk = level.is_striped().then_some(Sectors(128));
    let supers = array.plan().unwrap();
    supers
        .iter()
        .zip(0..)
        .map(|(superblock, index)| {
            let path = dir.join(format!("m{index}"));
            let mut file = std::fs::File::create(&path).unwrap();
            file.set_len(size.bytes().0).unwrap();
            let at = superblock.minor.position(size).unwrap().bytes().0;
            std::io::Seek::seek(&mut file, std::io::SeekFrom::Start(at)).unwrap();
            file.write_all(&superblock.encode()).unwrap();
            MemberSpec::path(&path)
        })
        .collect()
}

/// Assembles the array on these files.
pub fn assembled(specs: &[MemberSpec], client_frames: u32, credit: u64) -> Source {
    let options = Options { run: true, ..Options::default() };
    assembled_with(&options, specs, client_frames, credit)
}

/// Assembles the array on these files with these options.
pub fn assembled_with(
    options: &Options,
    specs: &[MemberSpec],
    client_frames: u32,
    credit: u64,
) -> Source {
    let access = if options.read_only { Access::ReadOnly } else { Access::ReadWrite };
    let members = OpenOptions::new(access).open_all(specs, MemberIndex(0)).unwrap();
    let candidates: Vec<_> = members.iter().map(read_metadata).collect();
    let assembly = assemble(&candidates, options).unwrap();
    let mut config = Config::for_volume(assembly, Knobs::default());
    config.client_frames = client_frames;
    config.client_credit = weft_units::Bytes(credit);
    Source::Arrays { config: Box::new(config), members }
}

/// A RAID5 of three files.
pub fn raid5(client_frames: u32, credit: u64) -> impl FnOnce(&Path) -> Source + Send + 'static {
    move |dir| assembled(&array_files(dir, Level::Raid5, 3), client_frames, credit)
}

/// A blocking client.
pub struct Client<S = UnixStream> {
    pub stream: S,
    pub connection: ClientConnection,
    next: u64,
    unread: Vec<u8>,
    /// Extents of the last request for block status.
    pub extents: Vec<Extent>,
}

impl Client {
    pub fn connect(path: &Path) -> Self {
        let handshake = ClientHandshake::new(Goal::Open("v".into())).unwrap();
        Self::after(path, handshake.with_allocation())
    }

    /// Connects with extended headers.
    pub fn extended(path: &Path) -> Self {
        let handshake = ClientHandshake::new(Goal::Open("v".into())).unwrap();
        Self::after(path, handshake.with_extended_headers().with_allocation())
    }

    fn after(path: &Path, handshake: ClientHandshake) -> Self {
        let stream = UnixStream::connect(path).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
        stream.set_write_timeout(Some(Duration::from_secs(20))).unwrap();
        Self::over(stream, handshake).unwrap()
    }
}

impl<S: Read + Write> Client<S> {
    /// Opens an export over a stream that is connected.
    pub fn over(mut stream: S, handshake: ClientHandshake) -> Result<Self, String> {
        let (connection, unread) = shake_hands(&mut stream, handshake)?;
        Ok(Self { stream, connection, next: 0, unread, extents: Vec::new() })
    }

    pub fn size(&self) -> u64 {
        self.connection.export().size()
    }

    /// Sends a request and returns its cookie.
    pub fn send(&mut self, op: Op, payload: &[u8]) -> u64 {
        self.next += 1;
        let header = self.connection.request(self.next, op).unwrap();
        self.stream.write_all(&header).unwrap();
        self.stream.write_all(payload).unwrap();
        self.next
    }

    /// Waits for the end of any request. Returns its cookie, its result and its data.
    pub fn receive(&mut self) -> (u64, Result<Vec<u8>, NbdError>) {
        let mut data = Vec::new();
        let mut buffer = vec![0; 1 << 16];
        loop {
            let payload = self.connection.payload_remaining();
            if payload > 0 && !self.unread.is_empty() {
                let count = payload.min(self.unread.len());
                data.extend(self.unread.drain(..count));
                self.connection.payload_consumed(count);
                continue;
            }
            if payload == 0 {
                let (count, event) = self.connection.input(&self.unread);
                self.unread.drain(..count);
                match event {
                    Some(ClientEvent::Done { cookie, result }) => {
                        return (cookie, result.map(|()| data));
                    }
                    Some(ClientEvent::Data { .. }) => continue,
                    Some(ClientEvent::Hole { len, .. }) => {
                        data.resize(data.len() + len as usize, 0);
                        continue;
                    }
                    Some(ClientEvent::Extents { extents, .. }) => {
                        self.extents = extents;
                        continue;
                    }
                    Some(other) => panic!("{other:?}"),
                    None if count > 0 => continue,
                    None => {}
                }
            }
            let count = self.stream.read(&mut buffer).unwrap();
            assert!(count > 0, "the server hung up");
            self.unread.extend_from_slice(&buffer[..count]);
        }
    }

    pub fn call(&mut self, op: Op, payload: &[u8]) -> Result<Vec<u8>, NbdError> {
        let cookie = self.send(op, payload);
        let (answered, result) = self.receive();
        assert_eq!(answered, cookie);
        result
    }

    pub fn write(&mut self, offset: u64, bytes: &[u8]) -> Result<(), NbdError> {
        let len = u32::try_from(bytes.len()).unwrap();
        self.call(Op::Write { offset, len, fua: false }, bytes).map(|_| ())
    }

    pub fn read(&mut self, offset: u64, len: u32) -> Result<Vec<u8>, NbdError> {
        self.call(Op::Read { offset, len, df: false }, &[])
    }

    pub fn flush(&mut self) -> Result<(), NbdError> {
        self.call(Op::Flush, &[]).map(|_| ())
    }

    pub fn zero(&mut self, offset: u64, len: u64) -> Result<(), NbdError> {
        let op = Op::WriteZeroes { offset, len, fua: false, no_hole: false, fast: false };
        self.call(op, &[]).map(|_| ())
    }

    /// Extents from `offset` on.
    pub fn map(&mut self, offset: u64, len: u64) -> Vec<Extent> {
        self.call(Op::BlockStatus { offset, len, one: false }, &[]).unwrap();
        std::mem::take(&mut self.extents)
    }

    /// Sends the header of a request that the client half would refuse to encode.
    pub fn send_raw(&mut self, command: u16, flags: u16, offset: u64, len: u32) {
        let header = RequestHeader { flags, command, cookie: 7, offset, len: len.into() };
        self.stream.write_all(&header.encode()).unwrap();
    }
}

/// Bytes without repetition, different for each seed.
pub fn pattern(seed: u64, len: usize) -> Vec<u8> {
    let mut rng = Rng::new(seed);
    (0..len.div_ceil(8)).flat_map(|_| rng.next_u64().to_le_bytes()).take(len).collect()
}

/// Number of descriptors of this process.
pub fn descriptors() -> usize {
    std::fs::read_dir("/proc/self/fd").unwrap().count()
}

/// A core with a filter of the test on its outputs.
pub struct Meddled<F> {
    pub inner: Engine,
    pub meddle: F,
}

impl<F: FnMut(Output) -> Option<Output> + Send> Core for Meddled<F> {
    fn handle(&mut self, now: Time, input: Input) {
        self.inner.handle(now, input);
    }

    fn run(&mut self, now: Time, turns_max: u32, outputs: &mut VecDeque<Output>) -> Turn {
        let mut made = VecDeque::new();
        let turns = self.inner.run(now, turns_max, &mut made);
        outputs.extend(made.into_iter().filter_map(&mut self.meddle));
        turns
    }

    fn next_wake(&self) -> Option<Time> {
        self.inner.next_wake()
    }

    fn snapshot(&self) -> Snapshot {
        self.inner.snapshot()
    }
}

/// A source of one bare member, for a server that panics when its core submits the 21st request.
pub fn panics_after_20_submits(path: &Path) -> Source {
    let make = |member: &OpenMember| -> Box<dyn Core> {
        let mut submits = 0;
        Box::new(Meddled {
            inner: engine_of(member),
            meddle: move |output| {
                submits += u32::from(matches!(output, Output::Submit { .. }));
                assert!(submits <= 20, "planted panic");
                Some(output)
            },
        })
    };
    core(make, 1024, 1 << 20)(path)
}

/// Error of a server that refuses to start with this source and these ways for clients to reach it.
pub fn refused(
    source: impl FnOnce(&Path) -> Source + Send + 'static,
    listen: impl FnOnce(&Path) -> Vec<Listen> + Send + 'static,
) -> String {
    let dir = tempfile::tempdir().unwrap();
    let (shutdown, _stop) = rustix::pipe::pipe().unwrap();
    let options = options(source(dir.path()), listen(dir.path()), shutdown);
    serve(options).expect_err("the server is refused").to_string()
}
