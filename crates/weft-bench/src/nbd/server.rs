//! Servers that run beside the benchmark, and their CPU time.

use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use rustix::process::Pid;
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

use super::load::{Job, Result as Loaded, load};
use super::measure::{EXPORT_BYTES, job};
use crate::BenchError;
use crate::weft::{not_started, weft};

/// Kind of NBD server; each serves [`EXPORT_BYTES`] of memory.
#[derive(Clone, Copy, Debug)]
pub(super) enum ServerKind {
    /// A RAID 5 in memory with this stripe size, served by weft:
    /// [`serve_array`](super::serve_array).
    Array(&'static str),
    /// `weft serve --bare` of memory (one member as it is, without metadata).
    Bare,
    /// Minimal server, without an engine: [`serve_least`](super::serve_least).
    Least,
    /// nbdkit's memory plugin.
    Nbdkit,
    /// Like [`Self::Bare`], with a log of all requests in a file beside the socket (`--record`).
    Recorded,
}

impl ServerKind {
    /// Name of the server in rows of the result.
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Array(stripe_size) => stripe_size,
            Self::Bare => "bare",
            Self::Least => "the least server",
            Self::Nbdkit => "nbdkit memory",
            Self::Recorded => "recorded",
        }
    }

    /// The command that starts the server on a unix socket, in a private directory.
    fn command(self, socket: &Path) -> std::io::Result<Command> {
        let mut command = match self {
            Self::Array(_) | Self::Least => Command::new(std::env::current_exe()?),
            Self::Bare | Self::Recorded => weft()?,
            Self::Nbdkit => Command::new("nbdkit"),
        };
        match self {
            Self::Array(stripe_size) => {
                command.args(["nbd", "--stripe-size", stripe_size, "--serve-array"]).arg(socket);
            }
            Self::Bare | Self::Recorded => {
                let uri = format!("nbd+unix:///?socket={}", socket.display());
                let name = format!("bench-{}-{}", self.name(), std::process::id());
                command.args(["serve", "--bare", "--name", &name, "--listen", &uri]);
                command.arg(format!("ram:{}M", EXPORT_BYTES >> 20));
                command.env("XDG_RUNTIME_DIR", socket.parent().unwrap_or(Path::new("/")));
                if let Self::Recorded = self {
                    command.arg("--record").arg(socket.with_extension("iolog"));
                }
            }
            Self::Least => {
                command.args(["nbd", "--serve-least"]).arg(socket);
            }
            Self::Nbdkit => {
                command.args(["-f", "-U"]).arg(socket).args(["memory", &EXPORT_BYTES.to_string()]);
            }
        }
        Ok(command)
    }
}

/// A server that runs until it is dropped.
pub(super) struct Server {
    pub(super) kind: ServerKind,
    child: Child,
    socket: PathBuf,
}

impl Server {
    /// Starts the server and waits until clients may connect.
    pub(super) fn start(kind: ServerKind, dir: &Path) -> std::result::Result<Self, BenchError> {
        let word = kind.name().replace(' ', "-");
        let socket = dir.join(format!("{word}.nbd"));
        let _ = std::fs::remove_file(&socket);
        let failed =
            |error: std::io::Error| BenchError::failed(format!("{}: {error}", kind.name()));
        let mut command = kind.command(&socket).map_err(failed)?;
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        let child = command.spawn().map_err(|error| match (kind, error.kind()) {
            (ServerKind::Nbdkit, ErrorKind::NotFound) => {
                BenchError::failed("nbdkit is not installed; for it install the package nbdkit")
            }
            (ServerKind::Bare | ServerKind::Recorded, _) => not_started(&error),
            _ => failed(error),
        })?;
        let mut server = Self { kind, child, socket };
        let deadline = Instant::now() + START_SPAN;
        while std::os::unix::net::UnixStream::connect(&server.socket).is_err() {
            let over = server.child.try_wait().map_err(failed)?.is_some();
            if over || Instant::now() > deadline {
                return Err(BenchError::failed(format!("{}: it does not serve", kind.name())));
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        Ok(server)
    }

    /// Writes the whole export once, so all memory is allocated.
    pub(super) fn fill(&self) -> std::result::Result<(), BenchError> {
        let fill = job(true, 1 << 20, 4, 1);
        let start = Instant::now();
        let mut written = 0;
        while written < EXPORT_BYTES && start.elapsed() < START_SPAN {
            written += self.load(&fill, Duration::from_millis(200))?.bytes;
        }
        Ok(())
    }

    /// Runs a load on the server for `span`. The result includes the CPU time that the server used.
    pub(super) fn load(
        &self,
        job: &Job,
        span: Duration,
    ) -> std::result::Result<Loaded, BenchError> {
        let said = |what: String| BenchError::failed(format!("{}: {what}", self.kind.name()));
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

    /// Allows all threads of the server to run on these CPUs.
    fn pin(&self, cpus: &CpuSet) -> std::result::Result<(), String> {
        let tasks = format!("/proc/{}/task", self.child.id());
        let tasks = std::fs::read_dir(&tasks).map_err(|error| format!("{tasks}: {error}"))?;
        for task in tasks.flatten() {
            let number = task.file_name().to_string_lossy().parse().ok();
            // An error is ignored: the thread may have ended.
            let _ = sched_setaffinity(number.and_then(Pid::from_raw), cpus);
        }
        Ok(())
    }

    /// CPU time of all threads of the server, including those that have ended.
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

/// Time limit for starting a server and for filling it.
const START_SPAN: Duration = Duration::from_secs(20);
