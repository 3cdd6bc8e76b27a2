//! Tests of the NBD server over a bare member and over an array, with clients of all kinds.

#![allow(clippy::cast_possible_truncation, reason = "small numbers of a test")]

mod common;

use std::collections::{BTreeMap, VecDeque};
use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::{Duration, Instant};

use common::{
    Client, Server, array_files, assembled_with, bare, core, descriptors, engine_of,
    panics_after_20_submits, pattern, raid5,
};
use weft_engine::assemble::Options;
use weft_engine::{Engine, Input, Output, ReplyError, Run, Snapshot, Tag, Turn};
use weft_export::control::{Command, FailureKind};
use weft_export::{ExitState, Listen, NbdListen, TimeLimits};
use weft_nbd::{NbdError, Op};
use weft_ondisk::Level;
use weft_runtime::Backend;
use weft_runtime::devices::{Access, DeviceError, OpenMember, OpenOptions};
use weft_runtime::serve::poison::Core;
use weft_units::rng::Rng;
use weft_units::{Bytes, ClientId, MemberIndex, Span, Time};

#[test]
fn what_is_written_is_read_over_both_backends() {
    for backend in [Backend::Threads, Backend::Auto] {
        let server = Server::start(bare("8M"), backend);
        let mut client = server.client();
        let bytes = pattern(1, 3 << 20);
        client.write(512, &bytes).unwrap();
        client.flush().unwrap();
        assert_eq!(client.read(512, 3 << 20).unwrap(), bytes);
        client.zero(4096, 1 << 20).unwrap();
        let mut expected = bytes.clone();
        expected[4096 - 512..4096 - 512 + (1 << 20)].fill(0);
        assert!(client.read(512, 3 << 20).unwrap() == expected);
        let fua = Op::Write { offset: 0, len: 512, fua: true };
        client.call(fua, &bytes[..512]).unwrap();
        assert_eq!(server.client().read(0, 512).unwrap(), &bytes[..512]);
        drop(client);
        server.settled();
        assert_eq!(server.stop(), ExitState::Clean);
    }
}

/// Preferred block sizes with chunks of 64 KiB.
#[test]
fn block_sizes_are_those_of_the_level() {
    for (level, members, row_kib) in [
        (Level::Raid0, 2, 128),
        (Level::Raid0, 3, 64),
        (Level::Raid1, 2, 4),
        (Level::Raid10, 4, 128),
        (Level::Raid10, 3, 64),
        (Level::Raid5, 5, 256),
        (Level::Raid6, 4, 128),
    ] {
        let make = move |dir: &Path| {
            let options = Options { read_only: true, ..Options::default() };
            assembled_with(&options, &array_files(dir, level, members), 64, 1 << 20)
        };
        let server = Server::start(make, Backend::Threads);
        let client = server.client();
        let sizes = client.connection.export().block_sizes();
        assert_eq!(sizes.preferred(), row_kib << 10, "{level:?} on {members}");
        drop(client);
        assert_eq!(server.stop(), ExitState::Clean);
    }
    let server = Server::start(bare("8M"), Backend::Threads);
    let client = server.client();
    let sizes = client.connection.export().block_sizes();
    assert_eq!((sizes.minimum(), sizes.preferred()), (512, 4096));
    drop(client);
    assert_eq!(server.stop(), ExitState::Clean);
}

#[test]
fn an_array_takes_requests_of_any_size_and_place() {
    let server = Server::start(raid5(2048, 4 << 20), Backend::Auto);
    let mut client = server.client();
    let size = usize::try_from(client.size()).unwrap();
    let mut image = vec![0; size];
    let mut random = Rng::new(5);
    for round in 0..400 {
        let len = 1 + random.below([1, 600, 5000, 300_000][round % 4]) as usize;
        let offset = random.below((size - len) as u64) as usize;
        match round % 5 {
            0 => {
                let found = client.read(offset as u64, len as u32).unwrap();
                assert!(found == image[offset..offset + len], "round {round}");
            }
            1 => {
                client.zero(offset as u64, len as u64).unwrap();
                image[offset..offset + len].fill(0);
            }
            _ => {
                let bytes = pattern(round as u64, len);
                client.write(offset as u64, &bytes).unwrap();
                image[offset..offset + len].copy_from_slice(&bytes);
            }
        }
        if round % 50 == 0 {
            client.flush().unwrap();
        }
    }
    for (index, chunk) in image.chunks(4 << 20).enumerate() {
        let found = client.read((index * (4 << 20)) as u64, chunk.len() as u32).unwrap();
        assert!(found == chunk, "piece {index}");
    }
    drop(client);
    server.settled();
    assert_eq!(server.stop(), ExitState::Clean);
}

#[test]
fn requests_in_flight_are_answered_in_whatever_order() {
    let server = Server::start(raid5(2048, 4 << 20), Backend::Auto);
    let mut client = server.client();
    let bytes = pattern(3, 64 << 10);
    let cookies: Vec<_> = (0..200_u64)
        .map(|index| {
            let op = Op::Write { offset: index * 4096, len: 4096, fua: index % 9 == 0 };
            client.send(op, &bytes[(index % 16 * 4096) as usize..][..4096])
        })
        .collect();
    let mut answered: Vec<_> = (0..200)
        .map(|_| {
            let (cookie, result) = client.receive();
            result.unwrap();
            cookie
        })
        .collect();
    answered.sort_unstable();
    assert_eq!(answered, cookies);
    for index in 0..200_u64 {
        let found = client.read(index * 4096, 4096).unwrap();
        assert!(found == bytes[(index % 16 * 4096) as usize..][..4096]);
    }
}

#[test]
fn requests_that_do_not_fit_are_worked_through_in_pieces() {
    // 8 frames and 16 KiB of credit: no request of more than four frames is whole.
    for frames in [2, 3, 8] {
        let make = |member: &OpenMember| -> Box<dyn Core> { Box::new(engine_of(member)) };
        let server = Server::start(core(make, frames, 16_384), Backend::Auto);
        let bytes = pattern(9, 3 << 20);
        let mut clients: Vec<_> = (0..3).map(|_| server.client()).collect();
        let mut waiting = Vec::new();
        for (client, index) in clients.iter_mut().zip(0..) {
            let offset = (index << 22) + 1024;
            let cookie = client.send(Op::Write { offset, len: 3 << 20, fua: false }, &bytes);
            waiting.push((cookie, offset));
        }
        for (client, (cookie, offset)) in clients.iter_mut().zip(waiting) {
            let (answered, result) = client.receive();
            assert_eq!((answered, result), (cookie, Ok(Vec::new())));
            assert!(client.read(offset, 3 << 20).unwrap() == bytes, "{frames} frames");
            assert!(client.read(offset, 512).unwrap() == bytes[..512]);
        }
        drop(clients);
        let status = server.settled();
        assert_eq!(status.tokens_outstanding, 0);
    }
}

/// Clients that disconnect within a header, a payload or a reply (F16).
#[test]
fn rude_clients_leave_nothing_behind() {
    for source in [0, 1] {
        let server = match source {
            0 => Server::start(bare("8M"), Backend::Auto),
            _ => Server::start(raid5(1024, 1 << 20), Backend::Auto),
        };
        drop(server.client());
        server.settled();
        let before = descriptors();
        let mut random = Rng::new(17 + source);
        for round in 0..2000 {
            be_rude(&server, &mut random, round);
        }
        let status = server.settled();
        assert_eq!(status.tokens_outstanding, 0);
        // Other test threads open and close descriptors, too.
        let deadline = Instant::now() + Duration::from_secs(10);
        while descriptors() > before + 200 {
            assert!(Instant::now() < deadline, "{} descriptors, {before} before", descriptors());
        }
        let mut client = server.client();
        let bytes = pattern(1, 4096);
        client.write(0, &bytes).unwrap();
        assert_eq!(client.read(0, 4096).unwrap(), bytes);
        drop(client);
        assert_eq!(server.stop(), ExitState::Clean);
    }
}

/// Runs one client that violates the protocol.
fn be_rude(server: &Server, random: &mut Rng, round: u64) {
    if round.is_multiple_of(10) {
        let mut stream = UnixStream::connect(server.socket()).unwrap();
        let junk = pattern(round, random.below(64) as usize);
        let _ = stream.write_all(&junk);
        return;
    }
    let mut client = server.client();
    let size = client.size();
    for _ in 0..random.below(6) {
        let len = random.below(200_000) as u32;
        let offset = random.below(size + 5000);
        let command = random.below(9) as u16;
        let flags = random.below(4) as u16;
        let len = u64::from(len);
        let header = weft_nbd::wire::RequestHeader { flags, command, cookie: 1, offset, len };
        let mut bytes = header.encode().to_vec();
        if command == 1 {
            // The full payload, none, half, or too much.
            let payload = [len, 0, len / 2, len + 3][random.below(4) as usize];
            bytes.extend(pattern(round, payload as usize));
        }
        bytes.truncate(bytes.len() - random.below(2) as usize * random.below(27) as usize);
        client.stream.set_write_timeout(Some(Duration::from_millis(20))).unwrap();
        if client.stream.write_all(&bytes).is_err() {
            return;
        }
        if random.below(3) == 0 {
            client.stream.set_nonblocking(true).unwrap();
            let mut buffer = [0; 1000];
            let _ = client.stream.read(&mut buffer);
            client.stream.set_nonblocking(false).unwrap();
        }
    }
}

/// Several clients at a time are on different workers: replies of a client are on their way from
/// another worker when it disconnects.
#[test]
fn rude_clients_of_several_workers_leave_nothing_behind() {
    let server = Server::start(raid5(1024, 1 << 20), Backend::Auto);
    std::thread::scope(|scope| {
        for seed in 0..6 {
            let server = &server;
            scope.spawn(move || {
                let mut random = Rng::new(91 + seed);
                (0..500).for_each(|round| be_rude(server, &mut random, round));
            });
        }
    });
    let status = server.settled();
    assert_eq!((status.tokens_outstanding, status.poisoned), (0, false));
    let mut client = server.client();
    client.write(0, &pattern(1, 100_000)).unwrap();
    assert!(client.read(0, 100_000).unwrap() == pattern(1, 100_000));
    drop(client);
    assert_eq!(server.stop(), ExitState::Clean);
}

#[test]
fn refusals_name_the_reason_and_the_session_goes_on() {
    let server = Server::start(bare("1M"), Backend::Auto);
    let mut client = server.client();
    let mut ask = |command, offset, len: u32, payload: usize| {
        client.send_raw(command, 0, offset, len);
        client.stream.write_all(&vec![1; payload]).unwrap();
        let mut reply = [0; 20];
        client.stream.read_exact(&mut reply).unwrap();
        let mut rest = vec![0; u32::from_be_bytes(reply[16..].try_into().unwrap()) as usize];
        client.stream.read_exact(&mut rest).unwrap();
        u32::from_be_bytes(rest[..4].try_into().unwrap())
    };
    let cases = [
        (0, 1 << 20, 512, 0, NbdError::Invalid),
        (1, 1 << 20, 512, 512, NbdError::NoSpace),
        (0, 1, 512, 0, NbdError::Invalid),
        (1, 0, 513, 513, NbdError::Invalid),
        (4, 1, 512, 0, NbdError::Invalid),
        (99, 0, 512, 0, NbdError::Invalid),
    ];
    for (command, offset, len, payload, error) in cases {
        assert_eq!(ask(command, offset, len, payload), error.code(), "{command} {offset} {len}");
    }
    drop(server);

    let server = Server::start_with(bare("1M"), Backend::Auto, true);
    let mut client = server.client();
    client.read(0, 512).unwrap();
    client.send_raw(1, 0, 0, 512);
    client.stream.write_all(&[1; 512]).unwrap();
    let mut reply = [0; 26];
    client.stream.read_exact(&mut reply).unwrap();
    assert_eq!(reply[20..24], NbdError::Permission.code().to_be_bytes());
}

#[test]
fn an_export_that_is_shorter_than_its_volume_ends_where_it_says() {
    let listen = |path: &Path| vec![Listen::Nbd(NbdListen::unix(path.join("nbd")))];
    let size = 512 << 10;
    let server = Server::start_changed(bare("1M"), listen, move |options| {
        options.exports[0].size = Some(Bytes(size));
    });
    let mut client = server.client();
    assert_eq!(client.size(), size);
    let bytes = pattern(5, 512);
    client.write(size - 512, &bytes).unwrap();
    // The volume goes on behind the export. A codec that compared with the volume would answer.
    for (offset, len) in [(size, 512), (size - 512, 1024), ((1 << 20) - 512, 512)] {
        for (command, error) in [(0, NbdError::Invalid), (1, NbdError::NoSpace)] {
            client.send_raw(command, 0, offset, len);
            let payload = if command == 1 { len as usize } else { 0 };
            client.stream.write_all(&vec![1; payload]).unwrap();
            let mut reply = [0; 20];
            client.stream.read_exact(&mut reply).unwrap();
            let len_of_error = u32::from_be_bytes(reply[16..].try_into().unwrap());
            let mut rest = vec![0; len_of_error as usize];
            client.stream.read_exact(&mut rest).unwrap();
            assert_eq!(rest[..4], error.code().to_be_bytes(), "{command} at {offset}");
        }
    }
    assert_eq!(client.read(size - 512, 512).unwrap(), bytes);
    drop(client);
    server.settled();
    assert_eq!(server.stop(), ExitState::Clean);
}

/// Slow client (F22).
#[test]
fn a_client_that_does_not_read_holds_up_no_other_client() {
    let server = Server::start(bare("64M"), Backend::Auto);
    // Holes would be answered without data.
    let mut writer = server.client();
    (0..60).for_each(|index| writer.write(index << 20, &pattern(7, 1 << 20)).unwrap());
    drop(writer);
    let mut lazy: Vec<_> = (0..4).map(|_| server.client()).collect();
    for client in &mut lazy {
        client.stream.set_nonblocking(true).unwrap();
        for index in 0..200 {
            let op = Op::Read { offset: (index % 60) << 20, len: 1 << 20, df: false };
            let header = op.header(index);
            if client.stream.write_all(&header.encode()).is_err() {
                break;
            }
        }
    }
    std::thread::sleep(Duration::from_millis(100));
    let status = server.status();
    assert!(status.frames_held < 16_384, "{}", status.frames_held);
    let mut client = server.client();
    let bytes = pattern(4, 1 << 20);
    let start = Instant::now();
    for index in 0..32 {
        client.write(index << 20, &bytes).unwrap();
        assert!(client.read(index << 20, 1 << 20).unwrap() == bytes);
    }
    assert!(start.elapsed() < Duration::from_secs(5), "{:?}", start.elapsed());
    drop((client, lazy));
    server.settled();
}

#[test]
fn an_idle_server_does_not_run() {
    let server = Server::start(raid5(1024, 1 << 20), Backend::Auto);
    let mut client = server.client();
    client.write(0, &[1; 4096]).unwrap();
    client.flush().unwrap();
    // The array is marked clean after a while, which takes work. On busy CPUs the last polls are
    // slow.
    std::thread::sleep(Duration::from_millis(1600));
    let path = format!("/proc/self/task/{}", server.thread_id);
    let usage = || {
        let status = std::fs::read_to_string(format!("{path}/status")).unwrap();
        let line = status.lines().find(|line| line.starts_with("voluntary_ctxt")).unwrap();
        let switches: u64 = line.split_whitespace().last().unwrap().parse().unwrap();
        let schedule = std::fs::read_to_string(format!("{path}/schedstat")).unwrap();
        let nanos: u64 = schedule.split_whitespace().next().unwrap().parse().unwrap();
        (switches, nanos)
    };
    let before = usage();
    std::thread::sleep(Duration::from_secs(1));
    assert_eq!(usage(), before, "context switches and nanoseconds of CPU");
}

/// The first write marks the array dirty: flush, then superblock, then data, each started by the
/// completion of the one before.
#[test]
fn the_first_write_after_a_rest_does_not_wait_for_a_timer() {
    for backend in [Backend::Auto, Backend::Threads] {
        let server = Server::start(raid5(1024, 1 << 20), backend);
        let mut client = server.client();
        for round in 0..4 {
            let start = Instant::now();
            client.write(round * 4096, &[1; 4096]).unwrap();
            client.flush().unwrap();
            assert!(start.elapsed() < Duration::from_millis(900), "{:?}", start.elapsed());
            std::thread::sleep(Duration::from_millis(300));
        }
        let start = Instant::now();
        assert_eq!(server.stop(), ExitState::Clean);
        assert!(start.elapsed() < Duration::from_millis(900), "{:?}", start.elapsed());
    }
}

/// Panic in a worker (F27).
#[test]
fn after_a_panic_nothing_is_acknowledged() {
    let server = Server::start(panics_after_20_submits, Backend::Auto);
    let mut client = server.client();
    let mut other = server.client();
    let mut good = 0;
    for index in 0..40 {
        match client.write(index * 4096, &[1; 4096]) {
            Ok(()) => good += 1,
            Err(error) => assert_eq!(error, NbdError::Io),
        }
    }
    assert_eq!(good, 20);
    assert_eq!(client.read(0, 4096), Err(NbdError::Io));
    assert_eq!(other.flush(), Err(NbdError::Io));
    assert_eq!(server.client().read(0, 4096), Err(NbdError::Io));
    assert!(server.status().poisoned);
    let mut control = server.control();
    let refused = control.command(Command::Get { knobs: Vec::new() }).unwrap();
    assert_eq!(refused.kind, Some(FailureKind::Failed));
    match server.stop() {
        ExitState::Poisoned(text) => assert!(text.contains("planted panic"), "{text}"),
        other => panic!("{other:?}"),
    }
}

/// A core in which every other read stalls, with frames that come back a millisecond later.
struct Stalling {
    inner: Engine,
    runs: BTreeMap<(ClientId, Tag), Run>,
    late: VecDeque<(Time, Run)>,
    replies: u32,
}

impl Core for Stalling {
    fn handle(&mut self, now: Time, input: Input) {
        if let Input::Client(request) = &input {
            self.runs.insert((request.client, request.tag), request.frames);
        }
        self.inner.handle(now, input);
    }

    fn run(&mut self, now: Time, turns_max: u32, outputs: &mut VecDeque<Output>) -> Turn {
        while self.late.front().is_some_and(|(at, _)| *at <= now) {
            outputs.extend(self.late.pop_front().map(|(_, run)| Output::Release(run)));
        }
        let first = outputs.len();
        let turns = self.inner.run(now, turns_max, outputs);
        for output in outputs.iter_mut().skip(first) {
            let Output::Reply { client, tag, result: result @ Ok(()) } = output else { continue };
            let Some(run) = self.runs.remove(&(*client, *tag)) else { continue };
            self.replies += 1;
            if self.replies.is_multiple_of(2) {
                self.late.push_back((Time(now.0 + 1_000_000), run));
                *result = Err(ReplyError::Stalled);
            }
        }
        turns
    }

    fn next_wake(&self) -> Option<Time> {
        self.late.front().map(|(at, _)| *at)
    }

    fn snapshot(&self) -> Snapshot {
        self.inner.snapshot()
    }
}

#[test]
fn a_read_that_stalled_is_asked_again_with_other_frames() {
    // The last size has room for one request part and a half, so the repetition has to wait.
    for frames in [16_384, 4096, 400] {
        let make = |member: &OpenMember| -> Box<dyn Core> {
            let inner = engine_of(member);
            let (runs, late) = (BTreeMap::new(), VecDeque::new());
            Box::new(Stalling { inner, runs, late, replies: 0 })
        };
        let server = Server::start(core(make, frames, 8 << 20), Backend::Auto);
        let mut client = server.client();
        for _ in 0..20 {
            assert_eq!(client.read(512, 4096).unwrap(), vec![0; 4096]);
            assert_eq!(client.read(1 << 20, 3 << 20).unwrap(), vec![0; 3 << 20]);
        }
    }
}

#[test]
fn administrators_are_answered() {
    let server = Server::start(raid5(1024, 1 << 20), Backend::Auto);
    let mut control = server.control();
    let status = control.command(Command::Status).unwrap().status.unwrap();
    assert_eq!((status.volumes[0].name.as_str(), status.volumes[0].slots), ("v", 3));
    assert_eq!(status.volumes[0].members.len(), 3);
    let set = |name: &str, value: &str| Command::Set { knobs: vec![(name.into(), value.into())] };
    assert!(control.command(set("rmw_level", "2")).unwrap().ok);
    let level = control.command(Command::Get { knobs: vec!["rmw_level".into()] }).unwrap();
    assert_eq!(level.knobs, [("rmw_level".to_owned(), "2".to_owned())]);
    assert_eq!(control.command(set("rmw_level", "9")).unwrap().kind, Some(FailureKind::Usage));
    let none = Command::Fail { members: vec!["/no/such".into()] };
    assert_eq!(control.command(none).unwrap().kind, Some(FailureKind::Usage));

    let label = status.volumes[0].members[1].label.clone();
    let mut client = server.client();
    client.write(0, &pattern(8, 1 << 20)).unwrap();
    assert!(control.command(Command::Fail { members: vec![label.clone()] }).unwrap().ok);
    assert_eq!(server.status().volumes[0].degraded, 1);
    assert!(client.read(0, 1 << 20).unwrap() == pattern(8, 1 << 20));
    assert!(control.command(Command::Remove { members: vec![label] }).unwrap().ok);
    assert!(client.read(0, 1 << 20).unwrap() == pattern(8, 1 << 20));
    let stopped = control.command(Command::Stop { discard: false }).unwrap();
    assert!(stopped.ok, "{stopped:?}");
    assert_eq!(server.join(), ExitState::Clean);
}

#[test]
fn a_stopped_array_is_found_clean_and_whole() {
    let dir = tempfile::tempdir().unwrap();
    let specs = common::array_files(dir.path(), weft_ondisk::Level::Raid6, 5);
    let bytes = pattern(6, 5 << 20);
    for round in 0..2 {
        let specs = specs.clone();
        let server =
            Server::start(move |_| common::assembled(&specs, 4096, 8 << 20), Backend::Auto);
        let mut client: Client = server.client();
        if round == 0 {
            client.write(12_345, &bytes).unwrap();
        } else {
            assert!(client.read(12_345, 5 << 20).unwrap() == bytes);
            let status = server.status();
            assert_eq!(status.volumes[0].resync_from, None);
        }
        assert_eq!(server.stop(), ExitState::Clean);
    }
}

/// A client has a limited time to choose an export, however it delays, and unlimited time
/// afterwards.
#[test]
fn a_handshake_that_takes_too_long_is_ended() {
    let limits = TimeLimits { handshake: Span::millis(300), ..TimeLimits::default() };
    let server = Server::start_limited(bare("8M"), Backend::Auto, false, limits);
    let begun = std::time::Instant::now();
    let mut ready = server.client();
    let greeting = b"NBDMAGICIHAVEOPT\0\x03";
    // One client sends nothing, one sends half an option, one sends options without end.
    let mut dawdlers: Vec<_> =
        (0..3).map(|_| UnixStream::connect(server.socket()).unwrap()).collect();
    for dawdler in &mut dawdlers {
        dawdler.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
        let mut found = [0; 18];
        dawdler.read_exact(&mut found).unwrap();
        assert_eq!(&found, greeting);
    }
    dawdlers[1].write_all(&[0, 0, 0, 3, b'I', b'H']).unwrap();
    dawdlers[2].write_all(&[0, 0, 0, 3]).unwrap();
    let mut talker = dawdlers[2].try_clone().unwrap();
    let talk = std::thread::spawn(move || {
        let list = b"IHAVEOPT\0\0\0\x03\0\0\0\0";
        let mut asked = 0;
        while talker.write_all(list).is_ok() && begun.elapsed() < Duration::from_secs(20) {
            asked += 1;
            std::thread::sleep(Duration::from_millis(20));
        }
        asked
    });
    for mut dawdler in dawdlers {
        let mut rest = Vec::new();
        // End of file, or a reset if the server had not read everything.
        let _ = dawdler.read_to_end(&mut rest);
    }
    assert!(begun.elapsed() >= Duration::from_millis(300), "{:?}", begun.elapsed());
    assert!(begun.elapsed() < Duration::from_secs(10), "{:?}", begun.elapsed());
    assert!(talk.join().unwrap() > 1);
    assert!(ready.read(0, 4096).unwrap() == vec![0; 4096], "a client after the handshake may stay");
    drop(ready);
    server.settled();
    assert_eq!(server.stop(), ExitState::Clean);
}

/// The members of a volume can be opened as soon as the answer to its stop has come.
#[test]
fn members_are_free_when_stop_is_answered() {
    let dir = tempfile::tempdir().unwrap();
    let specs = common::array_files(dir.path(), weft_ondisk::Level::Raid5, 3);
    for backend in [Backend::Auto, Backend::Threads].into_iter().cycle().take(10) {
        let own = specs.clone();
        let server = Server::start(move |_| common::assembled(&own, 2048, 4 << 20), backend);
        let mut client = server.client();
        client.write(0, &common::pattern(1, 100_000)).unwrap();
        let taken =
            OpenOptions { lock_wait: Duration::ZERO, ..OpenOptions::new(Access::ReadWrite) };
        let refused = taken.open_all(&specs, MemberIndex(0));
        assert!(matches!(refused, Err(DeviceError::Locked { .. })), "{refused:?}");
        assert!(server.control().command(Command::Stop { discard: false }).unwrap().ok);
        let members = taken.open_all(&specs, MemberIndex(0)).unwrap();
        assert_eq!(members.len(), 3);
        drop((members, client));
        assert_eq!(server.join(), ExitState::Clean);
    }
}
