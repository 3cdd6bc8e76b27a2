//! Server of a volume from start to end: memory, members, engine, listeners, loop, clean stop.
//!
//! [`serve`] calls `on_ready` once clients may connect, and runs the loop of the runtime until a
//! signal or an administrator stops it. A failure before `on_ready` is returned as an error, and no
//! client was served.

use std::collections::VecDeque;
use std::ops::Range;
use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::sync::Arc;

use weft_engine::knobs::Knobs;
use weft_engine::{Config, Engine, VolumeSnapshot, WriteBackConfig};
use weft_nbd::{BlockSizes, ExportInfo, TransmissionFlags};
use weft_runtime::buffers::Slab;
use weft_runtime::devices::{Access, OpenMember};
use weft_runtime::io::ring::NoRing;
use weft_runtime::overlay::MemberRing;
use weft_runtime::serve::clients::WORKER_PORTS;
use weft_runtime::serve::driver::{Driver, DriverParts};
use weft_runtime::serve::poison::Core;
use weft_runtime::serve::pool::Pool;
use weft_runtime::serve::reactor::{Exit, Reactor};
use weft_runtime::ublk::{Device, Params};
use weft_runtime::unwritten::UnwrittenMark;
use weft_runtime::{Backend, RuntimeError};
use weft_units::{Bytes, SECTOR_BYTES, Sectors, Time, VolumeId};

use crate::allocation::Allocation;
use crate::connection_limit::{ConnectionLimit, TimeLimits};
use crate::control_port::{ControlPort, Supervisor};
use crate::error::ServeError;
use crate::fuse::{Exported, FusePort};
use crate::in_process::{InProcessEnd, InProcessPort};
use crate::nbd::{Entrance, NbdPort};
use crate::record::Recorder;
use crate::session::Served;
use crate::share::{ChosenExports, ClientShare};
use crate::shared::{Shared, VolumeFacts};
use crate::socket::{Listen, Listener, NbdListen};
use crate::ublk;
use crate::vhost_user::{Disk, VhostUserPort};

/// Name and limits of an export, as clients see them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ExportOptions {
    /// Name of the export, as clients give it. The first volume also answers to the empty name.
    pub name: String,
    /// Size of the export, at most that of the volume; `None` for all of the volume.
    pub size: Option<Bytes>,
    /// Whether the server refuses writes, before they reach the engine.
    pub read_only: bool,
    /// Description of the export, for people.
    pub description: String,
    /// Share of the clients of this export; the share of a socket takes precedence.
    pub share: ClientShare,
    /// Further names of the same volume, each with the share of the clients that choose it.
    pub also: Vec<(String, ClientShare)>,
}

/// Origin of the volumes that are served.
pub enum Source {
    /// Arrays, assembled by the engine.
    Arrays {
        /// Configuration of the engine.
        config: Box<Config>,
        /// All members that the configuration names, by index.
        members: Vec<OpenMember>,
    },
    /// One member as it is, without metadata (`--bare`).
    Bare {
        /// The member, opened.
        member: Box<OpenMember>,
        /// Whether writes are refused.
        read_only: bool,
        /// Initial knobs; only those of the member's queue have an effect.
        knobs: Box<Knobs>,
        /// Write-back cache in front of the member, if there is one.
        write_back: Option<WriteBackConfig>,
    },
    /// A stand-in for the engine, for tests and experiments.
    Core {
        /// Core that handles requests in place of the engine.
        core: Box<dyn Core>,
        /// Open members of the volume.
        members: Vec<OpenMember>,
        /// Number of frames that belong to the core.
        cache_frames: u32,
        /// Number of frames for the payload of clients.
        client_frames: u32,
        /// Credit: the bytes that one client may have outstanding.
        client_credit: Bytes,
        /// Smallest unit of requests in bytes.
        block: u32,
    },
}

/// Options of [`serve`].
pub struct ServeOptions {
    /// Volume to serve.
    pub source: Source,
    /// Exports, one for each volume.
    pub exports: Vec<ExportOptions>,
    /// Ways in which clients reach the volumes. Block devices, disks of virtual machines, and files
    /// serve the first volume only.
    pub listen: Vec<Listen>,
    /// Path of the control socket; `None` for no control socket.
    pub control: Option<PathBuf>,
    /// Service manager that watches the server, through the port of the control socket.
    pub supervisor: Option<Supervisor>,
    /// Way in which members are read and written.
    pub backend: Backend,
    /// Largest number of connected clients; further ones wait to be accepted.
    pub clients_max: usize,
    /// Time limits for clients that are not served yet.
    pub limits: TimeLimits,
    /// Shares of clients by the socket that they connect to, which is named by its path, or by
    /// address and port. They take precedence over the shares of exports.
    pub sockets: Vec<(String, ClientShare)>,
    /// Names of the groups of clients, from group 1 on.
    pub groups: Vec<String>,
    /// Mark that tells the next server whether this one ended with acknowledged writes in memory
    /// only; `None` for no mark.
    pub mark: Option<UnwrittenMark>,
    /// Recorder of client requests, for all volumes; `None` if requests are not recorded.
    pub recorder: Option<Arc<Recorder>>,
    /// Descriptor that ends the server in good order when it becomes readable: a signalfd or the
    /// end of a pipe. The byte [`TOLD_LAST`](weft_runtime::serve::reactor::TOLD_LAST), or the end
    /// of the pipe, gives up data that cannot be written.
    pub shutdown: OwnedFd,
    /// Function that is called once clients may connect and block devices exist.
    pub on_ready: Box<dyn FnOnce(&Ready) + Send>,
}

/// Facts about a server once clients may connect.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ready {
    /// NBD URIs: one for each pair of listener and volume.
    pub uris: Vec<String>,
    /// Paths of the block devices.
    pub devices: Vec<PathBuf>,
    /// Paths of the sockets of vhost-user.
    pub vhost_user: Vec<PathBuf>,
    /// Paths of the files that are mounted by FUSE.
    pub files: Vec<PathBuf>,
    /// Description of the I/O backend: `io_uring` or `threads`, with details.
    pub backend: String,
}

impl Ready {
    fn of(opened: &Opened, exports: &[ExportOptions], backend: String) -> Self {
        let Opened { listeners, devices, machines, files, ends: _ } = opened;
        Self {
            uris: uris_of(listeners, exports),
            devices: devices.iter().map(Device::path).collect(),
            vhost_user: machines.iter().map(|listener| listener.describe().into()).collect(),
            files: files.iter().map(|file| file.path().to_owned()).collect(),
            backend,
        }
    }

    /// Everything by which clients reach the volumes: NBD URIs, block devices, `vhost-user:PATH`,
    /// and `fuse:PATH`.
    #[must_use]
    pub fn addresses(&self) -> Vec<String> {
        let devices = self.devices.iter().map(|path| path.display().to_string());
        let sockets = self.vhost_user.iter().map(|path| format!("vhost-user:{}", path.display()));
        let files = self.files.iter().map(|path| format!("fuse:{}", path.display()));
        self.uris.iter().cloned().chain(devices).chain(sockets).chain(files).collect()
    }
}

/// Outcome of a server that has ended.
#[derive(Clone, Debug, PartialEq, Eq)]
#[must_use]
pub enum ExitState {
    /// Everything was finished, flushed and marked clean.
    Clean,
    /// The engine or a worker panicked. Nothing was acknowledged afterwards, and arrays stay marked
    /// dirty.
    Poisoned(String),
    /// A volume did not stop in good order; its array may stay marked dirty.
    StopFailed(String),
}

impl From<Exit> for ExitState {
    fn from(exit: Exit) -> Self {
        match exit {
            // The log names the members that hang.
            Exit::Clean | Exit::Hanging(_) => Self::Clean,
            Exit::Poisoned(text) => Self::Poisoned(text),
            Exit::StopFailed(text) => Self::StopFailed(text),
        }
    }
}

/// Serves until a signal or an administrator stops the server.
///
/// Runs on the calling thread. When it returns, sockets are removed and members are closed, except
/// those that do not answer.
///
/// # Errors
/// Returns a [`ServeError`] with the cause if no client was served.
pub fn serve(options: ServeOptions) -> Result<ExitState, ServeError> {
    let ServeOptions { source, exports, listen, control, backend, clients_max, .. } = options;
    let doors = Doors::of(listen)?;
    let workers = std::thread::available_parallelism().map_or(1, usize::from).min(WORKERS_MAX);
    let UnbuiltServer { unbuilt_drivers, credit, facts, allocations, trims } =
        make(source, workers)?;
    let engines = unbuilt_drivers.len();
    let mut drivers = VecDeque::with_capacity(engines);
    for driver in unbuilt_drivers {
        drivers.push_back(driver.driver(backend, clients_max + doors.others())?);
    }
    let driver = drivers.pop_front().expect("a source makes at least one driver");
    let mut driver = driver.with_mark(options.mark);
    let backend = driver.members().ring().describe();

    let snapshot = driver.snapshot().ok_or_else(|| {
        ServeError::Refused(format!("the engine panicked: {}", driver.poison().unwrap_or("")))
    })?;
    let infos: Arc<[_]> = describe_all(&exports, &snapshot.volumes, &facts, trims)?.into();

    let params = params_of(&exports[0], &snapshot.volumes[0], &facts[0], trims);
    let uuid = facts[0].array.as_ref().map_or(exports[0].name.as_str(), |array| &array.uuid);
    let opened = doors.open(uuid, &params)?;
    let ready = Ready::of(&opened, &exports, backend);
    let Opened { listeners, devices, machines, files, ends } = opened;
    options.sockets.iter().try_for_each(|(socket, _)| is_listened_on(socket, &listeners))?;
    let entrances = entrances_of(&listeners, &options.sockets);
    let chosen = Arc::new(ChosenExports::default());
    let clients_max = clients_max.min(room_for_clients(workers));
    let connections = Arc::new(ConnectionLimit::new(workers, clients_max, options.limits));
    let shared = Arc::new(Shared {
        names: exports.iter().map(|export| export.name.clone()).collect(),
        engines,
        facts,
        listen: ready.addresses(),
        backend: ready.backend.clone(),
        connections: Arc::clone(&connections),
        chosen: Arc::clone(&chosen),
        groups: options.groups,
    });

    let volumes = u16::try_from(exports.len())
        .map_err(|_| ServeError::Refused("more than 65,535 volumes".into()))?;
    let mut reactor = Reactor::new(driver, volumes, options.shutdown);
    drivers.into_iter().for_each(|driver| reactor.add_driver(driver));
    for listener in &listeners {
        tracing::info!(at = listener.describe(), "listening");
    }
    let served = (0..volumes).map(VolumeId).zip(allocations).zip(&exports);
    let served = served.map(|((volume, allocation), export)| Served {
        volume,
        name: export.name.as_str().into(),
        whole: export.size.is_none(),
        share: export.share,
        allocation: Arc::new(allocation),
        discards: trims,
        recorder: options.recorder.clone(),
        chosen: Arc::clone(&chosen),
    });
    let served = with_other_names(served.collect(), &exports);
    let nbd = |worker, listeners| {
        let (infos, connections) = (Arc::clone(&infos), Arc::clone(&connections));
        let (served, entrances) = (served.clone(), Arc::clone(&entrances));
        Box::new(NbdPort::new(worker, infos, served, listeners, credit, connections, entrances))
    };
    reactor.add_port(nbd(0, listeners));
    if let Some(path) = control {
        reactor.add_port(Box::new(ControlPort::open(&path, shared, options.supervisor)?));
    }
    add_machines(&mut reactor, machines, &served[0], credit, params);
    add_files(&mut reactor, files, &served[0], credit, &params)?;
    add_ends(&mut reactor, ends, &served[0], credit, &params);
    for worker in 1..workers {
        reactor.add_worker(nbd(worker, Vec::new()));
    }
    let on_ready = options.on_ready;
    let devices = ublk::add(&mut reactor, devices, &served[0], credit, move || on_ready(&ready))?;
    let exit = reactor.run(|| devices.end_part())?;
    if let Some(text) = devices.take_failure() {
        return Err(ServeError::Refused(text));
    }
    Ok(exit.into())
}

/// Adds a port for the disk of each virtual machine.
fn add_machines(
    reactor: &mut Reactor,
    machines: Vec<Listener>,
    served: &Served,
    credit: Bytes,
    params: Params,
) {
    for listener in machines {
        let disk = Disk::new(params, &served.name);
        let port = VhostUserPort::new(listener, served.clone(), credit, disk);
        reactor.add_port(Box::new(port));
    }
}

/// Adds a port for each file.
fn add_files(
    reactor: &mut Reactor,
    files: Vec<Exported>,
    served: &Served,
    credit: Bytes,
    params: &Params,
) -> Result<(), ServeError> {
    for file in files {
        let port = FusePort::new(file, served.clone(), credit, params);
        let port = port.map_err(|error| ServeError::Refused(format!("eventfd: {error}")))?;
        reactor.add_port(Box::new(port));
    }
    Ok(())
}

/// Adds a port for each client in this process.
fn add_ends(
    reactor: &mut Reactor,
    ends: Vec<InProcessEnd>,
    served: &Served,
    credit: Bytes,
    params: &Params,
) {
    for end in ends {
        let size = params.size.0 * SECTOR_BYTES;
        let port = InProcessPort::new(end, served.clone(), credit, size);
        reactor.add_port(Box::new(port));
    }
}

/// Ways in which clients reach the volumes, by kind.
#[derive(Default)]
struct Doors {
    nbd: Vec<NbdListen>,
    /// Numbers of the block devices to create; `None` lets the kernel choose the number of a
    /// device.
    numbers: Vec<Option<u32>>,
    /// Paths of the sockets to which virtual machines connect.
    machines: Vec<PathBuf>,
    /// Paths of the files to mount by FUSE.
    files: Vec<PathBuf>,
    /// Clients in this process.
    ends: Vec<InProcessEnd>,
}

/// Sockets, block devices, files and clients in this process.
struct Opened {
    listeners: Vec<Listener>,
    devices: Vec<Device>,
    machines: Vec<Listener>,
    files: Vec<Exported>,
    ends: Vec<InProcessEnd>,
}

impl Doors {
    fn of(listen: Vec<Listen>) -> Result<Self, ServeError> {
        let mut doors = Self::default();
        for at in listen {
            match at {
                Listen::Nbd(at) => doors.nbd.push(at),
                Listen::Ublk { number } => doors.numbers.push(number),
                Listen::VhostUser { path } => doors.machines.push(path),
                Listen::Fuse { path } => doors.files.push(path),
                Listen::InProcess(end) => doors.ends.push(end),
            }
        }
        if doors.others() > OTHERS_MAX {
            return Err(ServeError::Refused(format!(
                "found {} block devices, disks of machines and files to listen on, expected at \
                 most {OTHERS_MAX} for one volume",
                doors.others()
            )));
        }
        Ok(doors)
    }

    /// Number of block devices, disks of virtual machines, files and clients in this process, each
    /// of which is one client.
    fn others(&self) -> usize {
        self.numbers.len() + self.machines.len() + self.files.len() + self.ends.len()
    }

    /// Creates sockets, block devices and files. `volume` is the name by which a later server of
    /// the same volume recognises its block devices.
    fn open(self, volume: &str, params: &Params) -> Result<Opened, ServeError> {
        Ok(Opened {
            listeners: self.nbd.into_iter().map(Listener::open).collect::<Result<_, _>>()?,
            machines: self
                .machines
                .iter()
                .map(|it| Listener::unix(it))
                .collect::<Result<_, _>>()?,
            files: self
                .files
                .iter()
                .map(|path| Exported::open(path, params.read_only))
                .collect::<Result<_, _>>()?,
            devices: ublk::open(&self.numbers, volume, params).map_err(ServeError::Refused)?,
            ends: self.ends,
        })
    }
}

/// Properties of the clients of each listener. `shares` has the shares of sockets, by the names of
/// the sockets.
fn entrances_of(listeners: &[Listener], shares: &[(String, ClientShare)]) -> Arc<[Entrance]> {
    let entrance = |listener: &Listener| {
        let name = listener.describe();
        let share = shares.iter().find(|(socket, _)| *socket == name).map(|(_, share)| *share);
        Entrance { share, keys: listener.keys() }
    };
    listeners.iter().map(entrance).collect()
}

/// NBD URIs, one for each listener and each name of a volume, in the order of the listeners.
fn uris_of(listeners: &[Listener], exports: &[ExportOptions]) -> Vec<String> {
    let main = exports.iter().map(|export| &export.name);
    let also = exports.iter().flat_map(|export| export.also.iter().map(|(name, _)| name));
    let all: Vec<&String> = main.chain(also).collect();
    listeners.iter().flat_map(|listener| all.iter().map(|name| listener.uri(name))).collect()
}

/// Size and limits of a volume as a block device, as a virtual machine's disk and as a file.
fn params_of(
    export: &ExportOptions,
    volume: &VolumeSnapshot,
    facts: &VolumeFacts,
    trims: bool,
) -> Params {
    let size = export.size.map_or(volume.size, |wanted| wanted.min(volume.size));
    let block = facts.block.max(u32::try_from(volume.request_unit.0).unwrap_or(u32::MAX)).max(512);
    let io_min = block.max(PREFERRED_BYTES);
    Params {
        size: Sectors(size.0 / u64::from(block) * u64::from(block) / SECTOR_BYTES),
        logical_block: block,
        io_min,
        io_opt: preferred(facts.io_opt).max(io_min),
        read_only: export.read_only,
        discards: trims,
    }
}

/// Number of clients for which descriptors are left, besides those for administrators and for files
/// that the server opens later.
fn room_for_clients(workers: usize) -> usize {
    let limit = rustix::process::getrlimit(rustix::process::Resource::Nofile).current;
    let open = std::fs::read_dir("/proc/self/fd").map_or(0, Iterator::count);
    let limit = limit.map_or(usize::MAX, |limit| usize::try_from(limit).unwrap_or(usize::MAX));
    // The client that waits for a place uses one of the descriptors that are kept.
    let room = limit.saturating_sub(open + workers * DESCRIPTORS_OF_WORKER + DESCRIPTORS_KEPT);
    room.max(1)
}

/// Number of descriptors that a worker opens when it starts.
const DESCRIPTORS_OF_WORKER: usize = 2;
/// Number of descriptors that clients cannot use: they are kept for administrators, and for members
/// that are added.
const DESCRIPTORS_KEPT: usize = 16;

/// Descriptions of all exports for clients: first those under the main name of each volume, then
/// those under the other names.
fn describe_all(
    exports: &[ExportOptions],
    volumes: &[VolumeSnapshot],
    facts: &[VolumeFacts],
    trims: bool,
) -> Result<Vec<ExportInfo>, ServeError> {
    if volumes.len() != exports.len() {
        let (found, expected) = (exports.len(), volumes.len());
        return Err(ServeError::Refused(format!("exports: found {found}, expected {expected}")));
    }
    let others = exports.iter().enumerate().flat_map(|(place, export)| {
        let other = |name: &String| ExportOptions { name: name.clone(), ..export.clone() };
        export.also.iter().map(move |(name, _)| (place, other(name)))
    });
    let all = exports.iter().cloned().enumerate().chain(others);
    all.map(|(place, export)| describe(&export, &volumes[place], &facts[place], trims)).collect()
}

/// Volumes by index of the export: first those under their main names, then those under the other
/// names, in the order of [`describe_all`].
fn with_other_names(served: Vec<Served>, exports: &[ExportOptions]) -> Vec<Served> {
    let others = served.iter().zip(exports).flat_map(|(main, export)| {
        let other = |(name, share): &(String, ClientShare)| Served {
            name: name.as_str().into(),
            share: *share,
            ..main.clone()
        };
        export.also.iter().map(other)
    });
    let others: Vec<Served> = others.collect();
    served.into_iter().chain(others).collect()
}

fn is_listened_on(socket: &str, listeners: &[Listener]) -> Result<(), ServeError> {
    let found: Vec<_> = listeners.iter().map(Listener::describe).collect();
    if found.iter().any(|listener| *listener == socket) {
        return Ok(());
    }
    let found = found.join(", ");
    Err(ServeError::Refused(format!(
        "socket of clients: found {socket}, expected one that is listened on: {found}"
    )))
}

/// Parts of a server that were made from a [`Source`]: drivers before they are built, and facts of
/// the volumes.
struct UnbuiltServer {
    /// Parts of the drivers: one driver, or one for each worker.
    unbuilt_drivers: Vec<UnbuiltDriver>,
    credit: Bytes,
    facts: Vec<VolumeFacts>,
    allocations: Vec<Allocation>,
    /// Whether discards are offered to clients.
    trims: bool,
}

/// Parts of one driver: core, members, and numbers of frames.
struct UnbuiltDriver {
    core: Box<dyn Core>,
    members: Vec<OpenMember>,
    /// Number of frames of the stripe caches; the write-back cache has its own.
    cache_frames: u32,
    write_back_frames: u32,
    /// Range of the frames with pages of the write-back cache, which members never read or write
    /// directly.
    private_frames: Range<u32>,
    client_frames: u32,
}

impl UnbuiltDriver {
    fn of_engine(config: Config, members: Vec<OpenMember>) -> Result<Self, ServeError> {
        let Config { cache_frames, client_frames, .. } = config;
        let write_back_frames = config.write_back_frames();
        let private_frames = config.write_back_page_frames();
        let core = Box::new(Engine::new(config, Time(0))?);
        Ok(Self { core, members, cache_frames, write_back_frames, private_frames, client_frames })
    }

    fn driver(self, backend: Backend, clients_max: usize) -> Result<Driver, ServeError> {
        let Self { core, members, cache_frames, write_back_frames, private_frames, client_frames } =
            self;
        let io = |what| move |source| RuntimeError::Io { what, source };
        let all = [1, cache_frames, write_back_frames, client_frames];
        let frames = all.into_iter().try_fold(0_u32, u32::checked_add);
        let frames =
            frames.ok_or_else(|| ServeError::Refused("more than 16 TiB of frames".into()))?;
        let first = frames - client_frames;
        let slab = Slab::with_private(frames, private_frames);
        let slab = slab.map_err(io("mapping payload memory (mmap)"))?;
        // A member without a stripe cache is bare, and no member can be added to it.
        let is_memory = cache_frames == 0 && members.iter().all(OpenMember::is_memory);
        let ring: Box<dyn MemberRing> = if is_memory {
            Box::new(NoRing::new().map_err(io("eventfd"))?)
        } else {
            backend.open_for(&slab, &members)?
        };
        let pool = Pool::new(first, client_frames).with_floors(clients_max.max(1));
        Ok(Driver::new(DriverParts { core, slab, pool, ring, members })?)
    }
}

fn make(source: Source, workers: usize) -> Result<UnbuiltServer, ServeError> {
    Ok(match source {
        Source::Arrays { mut config, members } => {
            if members.iter().any(|member| member.overlay().is_some()) {
                // A reshape would copy all of the array into the overlays.
                config.volumes.iter_mut().for_each(|volume| volume.source.hold_reshape());
            }
            let arrays = || config.volumes.iter().filter_map(|volume| volume.source.assembly());
            let allocation = |assembly| match config.write_back {
                Some(_) => Allocation::of_array(assembly).behind_cache(),
                None => Allocation::of_array(assembly),
            };
            let (facts, allocations) = (arrays(), arrays().map(allocation).collect());
            let facts = facts.map(VolumeFacts::of_array);
            let discards = |member: &OpenMember| member.info().discards;
            UnbuiltServer {
                allocations,
                trims: members.iter().all(discards),
                credit: config.client_credit,
                facts: facts.collect(),
                unbuilt_drivers: vec![UnbuiltDriver::of_engine(*config, members)?],
            }
        }
        Source::Bare { member, read_only, knobs, write_back } => {
            let read_only = read_only || member.access() == Access::ReadOnly;
            let block = member.info().logical_block;
            let trims = !read_only && member.info().discards;
            // Scheduling and caching need all requests in one engine.
            let alone = *knobs == Knobs::default() && write_back.is_none();
            let workers = if alone { workers } else { 1 };
            let mut members: Vec<OpenMember> =
                (1..workers).filter_map(|_| member.share_memory()).collect();
            members.push(*member);
            let count = u32::try_from(members.len()).expect("at most WORKERS_MAX");
            let share = |member: &OpenMember| {
                let mut config = Config::for_single(member.info().clone(), read_only);
                config.volumes[0].knobs = *knobs;
                config.write_back = write_back;
                config.client_frames /= count;
                config.client_credit.0 /= u64::from(count);
                config
            };
            UnbuiltServer {
                allocations: vec![match write_back {
                    Some(_) => Allocation::Bare.behind_cache(),
                    None => Allocation::Bare,
                }],
                trims,
                credit: share(&members[0]).client_credit,
                facts: vec![VolumeFacts::bare(block)],
                unbuilt_drivers: members
                    .into_iter()
                    .map(|member| UnbuiltDriver::of_engine(share(&member), vec![member]))
                    .collect::<Result<_, _>>()?,
            }
        }
        Source::Core { core, members, cache_frames, client_frames, client_credit, block } => {
            UnbuiltServer {
                credit: client_credit,
                facts: vec![VolumeFacts::bare(block)],
                allocations: vec![Allocation::Unknown { full_stripe: 1 }],
                trims: false,
                unbuilt_drivers: vec![UnbuiltDriver {
                    core,
                    members,
                    cache_frames,
                    write_back_frames: 0,
                    private_frames: 0..0,
                    client_frames,
                }],
            }
        }
    })
}

/// NBD description of an export, as clients receive it.
fn describe(
    export: &ExportOptions,
    volume: &VolumeSnapshot,
    facts: &VolumeFacts,
    trims: bool,
) -> Result<ExportInfo, ServeError> {
    let mut flags = ExportInfo::DEFAULT_FLAGS
        | TransmissionFlags::CAN_MULTI_CONN
        | TransmissionFlags::SEND_CACHE;
    if trims {
        flags = flags | TransmissionFlags::SEND_TRIM;
    }
    if export.read_only {
        flags = flags | TransmissionFlags::READ_ONLY;
    }
    let size = export.size.map_or(volume.size, |wanted| wanted.min(volume.size));
    let block = facts.block.max(u32::try_from(volume.request_unit.0).unwrap_or(u32::MAX));
    let sizes = BlockSizes::new(block, preferred(facts.io_opt).max(block), PAYLOAD_BYTES_MAX)?;
    Ok(ExportInfo::new(export.name.as_str(), size.0)?
        .with_description(export.description.as_str())?
        .with_flags(flags)
        .with_block_sizes(sizes)
        .with_allocation())
}

/// Preferred block size of a volume. NBD allows only powers of two, so it is the largest one that
/// divides the volume's `io_opt` (64 KiB for 192 KiB), within the limits of the largest payload and
/// a page of the cache.
fn preferred(io_opt: Option<Bytes>) -> u32 {
    let divides = |bytes: &u32| io_opt.is_some_and(|row| row.0.is_multiple_of((*bytes).into()));
    let powers = std::iter::successors(Some(PAYLOAD_BYTES_MAX), |bytes| Some(bytes / 2));
    let mut powers = powers.take_while(|bytes| *bytes > PREFERRED_BYTES);
    powers.find(divides).unwrap_or(PREFERRED_BYTES)
}

/// Largest number of threads that serve clients. One thread at a time uses their shared state, so
/// more threads would wait for each other.
const WORKERS_MAX: usize = 4;
/// Largest number of block devices, disks of machines and files: a worker has room for as many
/// ports, beside those of NBD and of the control socket.
const OTHERS_MAX: usize = WORKER_PORTS as usize - 2;
/// Smallest preferred block size in bytes: a page of the cache.
const PREFERRED_BYTES: u32 = 4096;
/// Largest payload of a request in bytes: the limit that clients assume when a server announces
/// none. Longer requests are cut into parts in any case.
const PAYLOAD_BYTES_MAX: u32 = 32 << 20;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_preferred_block_is_the_largest_power_of_two_that_divides_a_row() {
        for (kib, expected) in [
            (192, 64 << 10),
            (2048, 2 << 20),
            (3 * 512, 512 << 10),
            (20, 4096),
            (2, 4096),
            (1 << 20, PAYLOAD_BYTES_MAX),
        ] {
            assert_eq!(preferred(Some(Bytes::kib(kib))), expected, "{kib} KiB");
        }
        assert_eq!(preferred(None), 4096);
    }
}
