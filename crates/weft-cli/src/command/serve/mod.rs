//! `weft serve`: assembles an array and serves it in the foreground.
//!
//! One line `ready URI…` goes to standard output once clients may connect. SIGTERM, SIGINT, SIGHUP,
//! `weft stop`, or the end of the command of `--exec` stops the server in order: it accepts nothing
//! new, completes outstanding requests, flushes the members and marks the array clean.

use std::ffi::OsString;
use std::io::{Read, Write};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::os::unix::process::ExitStatusExt;
use std::path::PathBuf;
use std::process::{Child, ExitStatus};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use clap::{Args, FromArgMatches, ValueEnum};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use weft_engine::knobs::{Knob, Knobs};
use weft_engine::{Class, WriteBackConfig};
use weft_export::{
    ExportOptions, Listen, NbdAddress, NbdListen, Ready, ServeOptions, Source, TimeLimits, serve,
};
use weft_nbd::{NbdAddress as ServerAddress, NbdUri};
use weft_runtime::Backend;
use weft_runtime::devices::{IoMode, OpenMember};
use weft_runtime::serve::reactor::TOLD_LAST;
use weft_runtime::unwritten::UnwrittenMark;
use weft_units::Bytes;

use crate::assembly::{AssemblyOptions, Selection, title};
use crate::built::Built;
use crate::foreground::{Manager, notify, start_log};
use crate::inside::{ended, not_served};
use crate::knobs::{set_live, split};
use crate::member::{self, MemberArg};
use crate::reading::ReadingOptions;
use crate::size;
use crate::target::directory_for_sockets;
use crate::volume::{NAME_RULE, Opening, Volume, is_name, short_name};

use listen::{ListenArg, Listeners, listeners, plain_text};
use overlay::Overlay;
use record::Recording;
use shares::{GroupArg, Shares, SharesArg};
use weft_terminal::outcome::{Exit, Failure, Outcome};
use weft_terminal::terminal::{complain, is_ignored};

mod bare;
pub(crate) mod build;
mod listen;
mod overlay;
mod passed;
mod record;
mod shares;
mod unwritten;

/// Assembles an array and serves it over NBD, in the foreground
///
/// Prints one line, ready and the URIs, on standard output once clients may connect, and tells
/// systemd. SIGTERM, SIGINT, SIGHUP and weft stop end it in good order: it finishes, flushes and
/// marks the array clean; a second signal, two seconds later or more, ends it at once and leaves
/// the array marked dirty. A slot that the array knows filled needs --run if its member is not
/// named, an array that is dirty and degraded --force-dirty (exit status 3 without).
///
/// Sockets that systemd passes (a .socket unit with ListenStream= and Accept=no) are listened on,
/// beside those of --listen.
///
/// With --overlay DIR members are only read: changes go to sparse files in DIR, one per member, and
/// are found there by the next serve or cat with the same DIR. They may be written into the members
/// later (--commit-overlay) or dropped (--discard-overlay).
#[derive(Debug, Args)]
pub(crate) struct Serve {
    #[command(flatten)]
    assembly: AssemblyOptions,
    /// Serve one member as it is, without metadata: a file, a block device or ram:SIZE
    #[arg(
        long,
        conflicts_with_all = [
            "run", "force_dirty", "without_journal", "member_wait", "Selection",
        ]
    )]
    bare: bool,
    /// Name of the volume [default: that of the array, or of the bare file]
    #[arg(short = 'N', long)]
    name: Option<String>,
    /// Where clients connect: nbd+unix:///NAME?socket=PATH or nbd://HOST:PORT/NAME, with nbds in
    /// place of nbd for TLS by the keys of ?tls-certificates=DIR (weft keys); ublk: or ublk:N for a
    /// block device of this machine, /dev/ublkbN; vhost-user:PATH for a disk of a virtual machine;
    /// fuse:PATH for a file; several times if wanted [default: the sockets that systemd passes,
    /// else a unix socket beside the control socket]
    #[arg(long, value_name = "URI", value_parser = ListenArg::parse)]
    listen: Vec<ListenArg>,
    /// Accept a listener that other machines can reach, in plain text
    #[arg(long)]
    insecure_tcp: bool,
    /// Run this command with sh, with $uri and $unixsocket set, $device or $file; stop when the
    /// command has ended, with its exit status
    #[arg(long, value_name = "COMMAND")]
    exec: Option<String>,
    /// I/O backend for the members
    #[arg(long, value_enum, default_value = "auto")]
    backend: BackendArg,
    /// Go through the page cache even where O_DIRECT works
    #[arg(long)]
    buffered: bool,
    /// Keep in memory up to SIZE of the data that clients write, and write it to the members later,
    /// in order. A crash or kill -9 of this process then loses the data that a client has not
    /// flushed, and nothing else. Clients wait when SIZE is dirty; from half of SIZE on, or after
    /// 30 s, dirty data is written
    #[arg(long, value_name = "SIZE", value_parser = size::write_back)]
    write_back: Option<Bytes>,
    /// Serve a volume though its last server ended with writes in memory only (--write-back): they
    /// are lost, and no client that was connected then may go on
    #[arg(long)]
    accept_lost_writes: bool,
    #[command(flatten)]
    reading: ReadingOptions,
    #[command(flatten)]
    overlay: Overlay,
    /// Write every request of clients with its time to FILE, an fio iolog of version 3 that fio and
    /// weft replay. The volume never waits for the log; requests for which the log was too slow are
    /// counted in the log
    #[arg(long, value_name = "FILE", conflicts_with_all = ["commit_overlay", "discard_overlay"])]
    record: Option<PathBuf>,
    /// Overwrite the log that --record names
    #[arg(long, requires = "record")]
    force: bool,
    /// Weight of clients, 1 to 1000: their share of members under scheduler=bfq
    #[arg(long, value_name = "WEIGHT", value_parser = shares::weight)]
    weight: Option<u16>,
    /// I/O class of clients: none, idle, be or be:LEVEL, rt or rt:LEVEL, where LEVEL is 0 (high)
    /// to 7 and 4 if not given
    #[arg(long, value_name = "CLASS[:LEVEL]", value_parser = shares::class)]
    class: Option<Class>,
    /// Weight, class and group of some clients: CLIENTS=weight:W,class:CLASS,group:NAME or some of
    /// these, with CLASS as --class takes it and a NAME of --group. CLIENTS is a socket that is
    /// listened on (the path of a unix socket, or ADDRESS:PORT), else the name of an export; a new
    /// name becomes another export of the same volume. The share of a socket takes precedence over
    /// that of an export. Several times if wanted
    #[arg(long = "client", value_name = "CLIENTS=SHARE", value_parser = SharesArg::parse)]
    clients: Vec<SharesArg>,
    /// Group of clients and its weight, 1 to 1000, beside those of other groups and of clients in
    /// none: NAME=weight:W. Under scheduler=bfq members are shared between groups first, then among
    /// the clients of each. Up to 15 times
    #[arg(long = "group", value_name = "NAME=weight:W", value_parser = GroupArg::parse)]
    groups: Vec<GroupArg>,
    /// Start with a knob changed; weft get lists them. Several times if wanted
    #[arg(long = "set", value_name = "KNOB=VALUE")]
    knobs: Vec<String>,
    #[arg(skip)]
    built: Option<Built>,
    #[command(flatten)]
    selection: Selection,
    /// Files, block devices, or parts of them: PATH, PATH#N (partition N), PATH@OFFSET[+LENGTH]
    #[arg(value_name = "MEMBER", required = true, value_parser = MemberArg::parser())]
    members: Vec<MemberArg>,
}

impl Serve {
    /// The arguments for an array with its geometry given by hand; `words` are those of a command
    /// line of `serve`.
    ///
    /// # Errors
    /// The words are not a valid command line of `serve`.
    pub(crate) fn of_built(built: Built, words: Vec<OsString>) -> Result<Self, Failure> {
        let command = Self::augment_args(clap::Command::new("build").no_binary_name(true));
        let matches = command.try_get_matches_from(words);
        let found = matches.and_then(|matches| Self::from_arg_matches(&matches));
        let found = found.map_err(|error| Failure::usage(error.to_string()))?;
        Ok(Self { built: Some(built), ..found })
    }

    /// Configuration of the write-back cache; `None` if no option asks for a cache.
    fn write_back(&self) -> Option<WriteBackConfig> {
        self.write_back.map(WriteBackConfig::of)
    }
}

/// Values of `--backend`.
#[derive(Clone, Copy, Debug, ValueEnum)]
enum BackendArg {
    /// The fastest way for each member: io_uring, or threads where it is refused; a plain copy for
    /// members on tmpfs; threads for writes to the page cache if they would hold up io_uring
    Auto,
    /// A pool of threads
    Threads,
    /// io_uring or nothing
    Uring,
}

pub(crate) fn run(arguments: &Serve) -> Outcome {
    // This runs before any thread starts, because it changes the environment.
    let passed = passed::sockets()?;
    start_log(tracing::Level::INFO);
    if let Some(name) = arguments.name.as_ref().filter(|name| !is_name(name)) {
        return Err(Failure::usage(format!("--name: found {name:?}, expected {NAME_RULE}")));
    }
    arguments.reading.refuse_writes(match arguments.overlay.dir {
        Some(_) => arguments.overlay.commit_overlay,
        None => !arguments.assembly.read_only,
    })?;
    if arguments.overlay.dir.is_some() {
        let paths = member::paths(&arguments.members).map_err(Failure::Usage)?;
        let reading = arguments.reading.of(&paths)?;
        if let Some(outcome) = arguments.overlay.end(&paths, &reading) {
            return outcome;
        }
    }
    shares::refuse_twice(&arguments.clients)?;
    let is_shared = arguments.weight.is_some() || !arguments.clients.is_empty();
    if is_shared && !shares::heeded(&arguments.knobs) {
        let name = arguments.name.as_deref().unwrap_or("VOLUME");
        tracing::warn!(
            "weights are those of scheduler=bfq, and members have another scheduler: \
             weft set {name} scheduler=bfq"
        );
    }
    let listen = listeners(arguments)?;
    let plan = if arguments.bare { bare::plan(arguments)? } else { plan(arguments)? };
    let name = plan.name.clone();
    let sockets = directory_for_sockets()?;
    let control = sockets.join(format!("{name}.sock"));
    if UnixStream::connect(&control).is_ok() {
        return Err(Failure::refused(format!(
            "{name}: a volume of this name is running; stop it, or give another --name"
        )));
    }
    let mark = unwritten::begin(arguments, &control, &name)?;
    let Listeners { mut listen, export } = listen;
    let passed = passed.into_iter().map(|socket| NbdListen {
        address: NbdAddress::Passed(socket),
        protection: plain_text(arguments),
    });
    listen.extend(passed.map(Listen::Nbd));
    if listen.is_empty() {
        listen.push(Listen::Nbd(NbdListen::unix(sockets.join(format!("{name}.nbd")))));
    }
    serve_plan(arguments, plan, (listen, &export.unwrap_or(name)), control, mark)
}

/// Volume to be served, with its name.
struct Plan {
    source: Source,
    name: String,
    read_only: bool,
    description: String,
    /// Text about the state of the volume that is printed after an orderly stop.
    stopped: &'static str,
}

/// Opens the members that the arguments name, assembles the array, and returns it as the volume to
/// be served.
fn plan(arguments: &Serve) -> Result<Plan, Failure> {
    let paths = member::paths(&arguments.members).map_err(Failure::Usage)?;
    let paths = member::present(paths, arguments.assembly.run);
    let knobs = knobs(arguments, |_| true)?;
    let mut options = arguments.assembly.options(&arguments.selection)?;
    options.run |= arguments.overlay.dir.is_some();
    let opening = Opening {
        options,
        buffered: arguments.buffered,
        overlay: arguments.overlay.dir.clone(),
        member_wait: arguments.assembly.member_wait(),
        reading: arguments.reading.of(&paths)?,
        built: arguments.built.clone(),
    };
    let volume = opening.open(&paths)?;
    log_decision(&volume);
    let name = arguments.name.clone().unwrap_or_else(|| short_name(&volume.assembly));
    if arguments.name.is_none() && !volume.assembly.name.ends_with(&name) {
        tracing::info!(
            "the volume is called {name}, for {:?} cannot be part of a path; --name gives another",
            volume.assembly.name
        );
    }
    let read_only = volume.assembly.read_only;
    let mut config = volume.config(knobs);
    config.write_back = arguments.write_back();
    Ok(Plan {
        name,
        read_only,
        description: title(&volume.assembly),
        source: Source::Arrays { config: Box::new(config), members: volume.members },
        stopped: "all finished, flushed and marked",
    })
}

fn serve_plan(
    arguments: &Serve,
    plan: Plan,
    (listen, export): (Vec<Listen>, &str),
    control: PathBuf,
    mark: Option<UnwrittenMark>,
) -> Outcome {
    let record =
        |path: &PathBuf| Recording::begin(path, arguments.force, &arguments.members, &plan.name);
    let recording = arguments.record.as_ref().map(record).transpose()?;
    let (shutdown, stop) = stop_pipe(arguments.write_back.is_some())?;
    let running: Arc<Mutex<Option<Running>>> = Arc::default();
    let exec = arguments.exec.clone();
    let (slot, ending) = (Arc::clone(&running), stop);
    let write_back = arguments.write_back;
    let on_ready = move |ready: &Ready| {
        tracing::info!("members are reached through {}", ready.backend);
        if let Some(size) = write_back {
            tracing::warn!(
                "write-back: up to {} of what clients write stay in memory; a crash or kill -9 \
                 loses what was not flushed, and a client that connects again then reads old data",
                size::human(size)
            );
        }
        notify("READY=1");
        match exec {
            None => announce(ready),
            Some(command) => {
                let started = Running::start(&command, ready, ending);
                *slot.lock().unwrap_or_else(std::sync::PoisonError::into_inner) = Some(started);
            }
        }
    };
    let Plan { source, read_only, description, stopped, .. } = plan;
    let Shares { main, also, sockets } = Shares::of(arguments, export).map_err(Failure::Usage)?;
    let (name, share) = (export.to_owned(), main);
    let export = ExportOptions { name, size: None, read_only, description, share, also };
    let state = serve(ServeOptions {
        source,
        exports: vec![export],
        listen,
        control: Some(control),
        supervisor: Manager::of_environment().map(Manager::supervisor),
        backend: match arguments.backend {
            BackendArg::Auto => Backend::Auto,
            BackendArg::Threads => Backend::Threads,
            BackendArg::Uring => Backend::Uring,
        },
        clients_max: CLIENTS_MAX,
        limits: TimeLimits::default(),
        sockets,
        groups: arguments.groups.iter().map(|group| group.name.clone()).collect(),
        mark,
        recorder: recording.as_ref().map(Recording::recorder),
        shutdown,
        on_ready: Box::new(on_ready),
    });
    notify("STOPPING=1");
    if let Some(recording) = recording {
        recording.end(state.is_ok());
    }
    let running = running.lock().unwrap_or_else(std::sync::PoisonError::into_inner).take();
    let status = running.map(Running::finish).transpose()?;
    ended(state.map_err(|error| not_served(&error))?)?;
    let how = if read_only { "nothing was written" } else { stopped };
    tracing::info!("stopped: {how}");
    Ok(status.map_or(Exit::Done, Exit::Of))
}

/// The running command of `--exec`.
struct Running {
    thread: std::thread::JoinHandle<std::io::Result<ExitStatus>>,
    process: Option<rustix::process::Pid>,
    error: Option<std::io::Error>,
}

impl Running {
    /// Starts the command, and a thread that waits for its end and then stops the server.
    fn start(command: &str, ready: &Ready, stop: UnixStream) -> Self {
        let uri = ready.uris.first().cloned().unwrap_or_default();
        let socket = ready.uris.iter().find_map(|uri| match uri.parse::<NbdUri>().ok()?.address {
            ServerAddress::Unix { socket } => Some(socket),
            ServerAddress::Tcp { .. } => None,
        });
        let mut shell = std::process::Command::new("sh");
        shell.arg("-c").arg(command).env("uri", uri);
        if let Some(device) = ready.devices.first() {
            shell.env("device", device);
        }
        if let Some(file) = ready.files.first() {
            shell.env("file", file);
        }
        if let Some(socket) = socket {
            shell.env("unixsocket", socket);
        }
        let (child, error) = match shell.spawn() {
            Ok(child) => (Some(child), None),
            Err(error) => (None, Some(error)),
        };
        let process = child.as_ref().map(rustix::process::Pid::from_child);
        let thread = std::thread::spawn(move || {
            let status =
                child.map_or(Ok(ExitStatus::from_raw(127 << 8)), |mut child: Child| child.wait());
            let _ = (&stop).write_all(&[TOLD_LAST]);
            status
        });
        Self { thread, process, error }
    }

    /// Waits for the end of the command, and returns its exit status. A command that still runs is
    /// first told to end.
    fn finish(self) -> Result<u8, Failure> {
        if let Some(error) = self.error {
            return Err(Failure::failed(format!("--exec: sh: {error}")));
        }
        if let Some(process) = self.process.filter(|_| !self.thread.is_finished()) {
            let _ = rustix::process::kill_process(process, rustix::process::Signal::TERM);
        }
        let status = self.thread.join().unwrap_or_else(|_| Err(std::io::ErrorKind::Other.into()));
        let status = status.map_err(|error| Failure::failed(format!("--exec: {error}")))?;
        // Exit status as a shell reports it.
        let code = status.code().unwrap_or_else(|| 128 + status.signal().unwrap_or(0));
        Ok(u8::try_from(code).unwrap_or(1))
    }
}

fn announce(ready: &Ready) {
    let mut out = std::io::stdout().lock();
    // An error is ignored: the parent process may have closed the pipe.
    let _ = writeln!(out, "ready {}", ready.addresses().join(" "));
    let _ = out.flush();
}

/// Knobs with which the server starts: the defaults with the changes of `--set`. `may_be` decides
/// whether a knob may be set.
fn knobs(arguments: &Serve, may_be: impl Fn(Knob) -> bool) -> Result<Knobs, Failure> {
    let mut knobs = Knobs::default();
    knobs.bfq.groups = GroupArg::weights(&arguments.groups).map_err(Failure::Usage)?;
    for setting in &arguments.knobs {
        let (name, value) = split(setting)?;
        let usage =
            |what: &dyn std::fmt::Display| Failure::usage(format!("--set {setting}: {what}"));
        let knob = set_live(&mut knobs, name, value).map_err(|error| usage(&error))?;
        if knob.is_of_cache() {
            if arguments.write_back.is_none() {
                return Err(usage(&weft_engine::NO_WRITE_BACK));
            }
        } else if !may_be(knob) {
            return Err(usage(&"a bare member has only the knobs of its queue"));
        }
    }
    Ok(knobs)
}

/// Makes a pipe for the stop of the server. Its reading end, which is returned first, becomes
/// readable on SIGTERM, SIGINT and SIGHUP. Signals often come in pairs, to the process and to its
/// group, so a second one within [`SIGNALS_APART`] is ignored; a later one ends the process at
/// once. With a write-back cache (`keeps`) the first signal requests that everything is written,
/// which may be refused, the second that unwritable data is given up, and the third ends the
/// process at once.
fn stop_pipe(keeps: bool) -> Result<(OwnedFd, UnixStream), Failure> {
    let failed = |error: std::io::Error| Failure::failed(format!("signals: {error}"));
    let (end, stop) = UnixStream::pair().map_err(failed)?;
    let (mut told, tell) = UnixStream::pair().map_err(failed)?;
    // A shell that exits sends SIGHUP; nohup sets the signal to be ignored, and it stays ignored.
    let hangup = (!is_ignored(SIGHUP)).then_some(SIGHUP);
    for signal in [SIGTERM, SIGINT].into_iter().chain(hangup) {
        let tell = tell.try_clone().map_err(failed)?;
        signal_hook::low_level::pipe::register(signal, tell).map_err(failed)?;
    }
    let first = stop.try_clone().map_err(failed)?;
    std::thread::Builder::new()
        .name("weft-signals".into())
        .spawn(move || {
            let mut since: Option<Instant> = None;
            let mut told_twice = !keeps;
            while told.read_exact(&mut [0]).is_ok() {
                match since {
                    None => {
                        since = Some(Instant::now());
                        let _ = (&first).write_all(b"s");
                    }
                    Some(since) if since.elapsed() < SIGNALS_APART => {}
                    Some(_) if !told_twice => {
                        told_twice = true;
                        since = Some(Instant::now());
                        let _ = (&first).write_all(&[TOLD_LAST]);
                    }
                    Some(_) => {
                        complain(
                            "a second signal to end: ending at once; arrays may stay marked dirty",
                        );
                        std::process::exit(1);
                    }
                }
            }
        })
        .map_err(failed)?;
    Ok((OwnedFd::from(end), stop))
}

fn log_decision(volume: &Volume) {
    let assembly = &volume.assembly;
    tracing::info!("{}", title(assembly));
    for dropped in &volume.not_used {
        tracing::warn!("{}: not used: {}", dropped.member.label, dropped.reason);
    }
    for note in &assembly.notes {
        tracing::warn!("{note}");
    }
    for member in &volume.members {
        if let Some(overlay) = member.overlay() {
            let (label, path) = (&member.info().label, overlay.path().display());
            tracing::info!("{label}: is not written to; what changes goes to {path}");
        }
    }
    log_modes(&volume.members);
}

/// Logs the I/O mode of the members.
fn log_modes(members: &[OpenMember]) {
    for mode in [IoMode::Direct, IoMode::Buffered] {
        let labels: Vec<&str> = members
            .iter()
            .filter(|member| member.mode() == mode)
            .map(|member| member.info().label.as_str())
            .collect();
        let how = match mode {
            IoMode::Direct => "O_DIRECT",
            IoMode::Buffered => "buffered: the page cache is in between, a flush is fdatasync",
        };
        if !labels.is_empty() {
            tracing::info!("{}: {how}", labels.join(", "));
        }
    }
}

/// Signals that arrive within this time after a signal that counted are ignored.
const SIGNALS_APART: Duration = Duration::from_secs(2);

/// Largest number of connected clients; further clients wait to be accepted.
const CLIENTS_MAX: usize = 64;
