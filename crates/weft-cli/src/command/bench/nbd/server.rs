//! How does a server come to run beside the benchmark, and what does it cost?

use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use rustix::process::Pid;
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

use super::EXPORT_BYTES;
use super::load::{Job, Result as Loaded, load};
use crate::outcome::Failure;

/// What serves.
#[derive(Clone, Copy, Debug)]
pub(super) enum ServerKind {
    /// Weft, a RAID 5 on memory, with this stripe size.
    Array(&'static str),
    /// Weft, memory as it is.
    Bare,
    /// `least.rs`.
    Least,
    /// nbdkit's memory plugin.
    Nbdkit,
    /// Weft, memory as it is, with `--record`.
    Recorded,
}

impl ServerKind {
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Array(stripe_size) => stripe_size,
            Self::Bare => "bare",
            Self::Least => "the least server",
            Self::Nbdkit => "nbdkit memory",
            Self::Recorded => "recorded",
        }
    }
}

/// A server that runs until the value is dropped.
pub(super) struct Server {
    pub(super) kind: ServerKind,
    child: Child,
    socket: PathBuf,
}

impl Server {
    /// Starts it and waits until clients may connect.
    pub(super) fn start(kind: ServerKind, dir: &Path) -> std::result::Result<Self, Failure> {
        let word = kind.name().replace(' ', "-");
        let socket = dir.join(format!("{word}.nbd"));
        let _ = std::fs::remove_file(&socket);
        let failed = |error: std::io::Error| Failure::failed(format!("{}: {error}", kind.name()));
        let mut weft = Command::new(std::env::current_exe().map_err(failed)?);
        let mut command = match kind {
            ServerKind::Array(stripe_size) => {
                weft.args(["bench", "nbd", "--stripe-size", stripe_size]);
                weft.arg("--serve-array").arg(&socket);
                weft
            }
            ServerKind::Bare | ServerKind::Recorded => {
                let uri = format!("nbd+unix:///?socket={}", socket.display());
                let name = format!("bench-{word}-{}", std::process::id());
                weft.args(["serve", "--bare", "--name", &name, "--listen", &uri]);
                weft.arg(format!("ram:{}M", EXPORT_BYTES >> 20));
                weft.env("XDG_RUNTIME_DIR", dir);
                if let ServerKind::Recorded = kind {
                    weft.arg("--record").arg(socket.with_extension("iolog"));
                }
                weft
            }
            ServerKind::Least => {
                weft.args(["bench", "nbd", "--serve-least"]).arg(&socket);
                weft
            }
            ServerKind::Nbdkit => {
                let mut nbdkit = Command::new("nbdkit");
                nbdkit.args(["-f", "-U"]).arg(&socket).args(["memory", &EXPORT_BYTES.to_string()]);
                nbdkit
            }
        };
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        let child = command.spawn().map_err(|error| match (kind, error.kind()) {
            (ServerKind::Nbdkit, ErrorKind::NotFound) => {
                Failure::failed("nbdkit is not installed; for it install the package nbdkit")
            }
            _ => failed(error),
        })?;
        let mut server = Self { kind, child, socket };
        let deadline = Instant::now() + START_SPAN;
        while std::os::unix::net::UnixStream::connect(&server.socket).is_err() {
            let over = server.child.try_wait().map_err(failed)?.is_some();
            if over || Instant::now() > deadline {
                return Err(Failure::failed(format!("{}: it does not serve", kind.name())));
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        Ok(server)
    }

    /// Writes everything once, so that all memory is there.
    pub(super) fn fill(&self) -> std::result::Result<(), Failure> {
        let fill = super::job(true, 1 << 20, 4, 1);
        let start = Instant::now();
        let mut written = 0;
        while written < EXPORT_BYTES && start.elapsed() < START_SPAN {
            written += self.load(&fill, Duration::from_millis(200))?.bytes;
        }
        Ok(())
    }

    /// What it does under a load.
    pub(super) fn load(&self, job: &Job, span: Duration) -> std::result::Result<Loaded, Failure> {
        let said = |what: String| Failure::failed(format!("{}: {what}", self.kind.name()));
        let all = sched_getaffinity(None).map_err(|errno| said(errno.to_string()))?;
        if job.pinned {
            let mut first = CpuSet::new();
            first.set(0);
            self.pin(&first).map_err(said)?;
        }
        let before = self.cpu_seconds().map_err(said)?;
        let loaded = load(&self.socket, "", job, span).map_err(said);
        let after = self.cpu_seconds().map_err(said)?;
        if job.pinned {
            self.pin(&all).map_err(said)?;
        }
        Ok(Loaded { server_seconds: after - before, ..loaded? })
    }

    /// Lets all of its threads run on these CPUs.
    fn pin(&self, cpus: &CpuSet) -> std::result::Result<(), String> {
        let tasks = format!("/proc/{}/task", self.child.id());
        let tasks = std::fs::read_dir(&tasks).map_err(|error| format!("{tasks}: {error}"))?;
        for task in tasks.flatten() {
            let number = task.file_name().to_string_lossy().parse().ok();
            // One that has ended meanwhile needs no CPU.
            let _ = sched_setaffinity(number.and_then(Pid::from_raw), cpus);
        }
        Ok(())
    }

    /// CPU time of all its threads, also those that have ended.
    ///
    /// Source   proc_pid_stat(5): fields 14 and 15, in clock ticks
    fn cpu_seconds(&self) -> std::result::Result<f64, String> {
        let path = format!("/proc/{}/stat", self.child.id());
        let text = std::fs::read_to_string(&path).map_err(|error| format!("{path}: {error}"))?;
        let fields = text.rsplit_once(')').map_or("", |(_, fields)| fields);
        let ticks: Vec<u64> =
            fields.split_whitespace().skip(11).take(2).filter_map(|n| n.parse().ok()).collect();
        if ticks.len() < 2 {
            return Err(format!("{path}: found {fields:?}, expected two times"));
        }
        let per_second = rustix::param::clock_ticks_per_second();
        Ok(ticks.iter().sum::<u64>() as f64 / per_second as f64)
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Why a server is not there, for people.
pub(super) fn absent(failure: &Failure) -> String {
    match failure {
        Failure::Failed(text) | Failure::Refused(text) | Failure::Usage(text) => text.clone(),
        Failure::BrokenPipe => "its output is gone".into(),
    }
}

/// How long a server may take to start, and to be filled.
const START_SPAN: Duration = Duration::from_secs(20);
