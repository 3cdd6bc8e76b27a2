//! The measured program `weft`, and a volume on files that it creates and serves.

use std::io::{BufRead, BufReader, ErrorKind};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use rustix::process::{Pid, Signal, kill_process};
use tempfile::TempDir;
use weft_engine::knobs::{Knobs, TABLE};
use weft_terminal::terminal;
use weft_units::Bytes;

use crate::BenchError;

/// Number of member files of a [`FileVolume`].
pub(crate) const FILES: usize = 4;
/// Size of each member file.
const FILE_BYTES: Bytes = Bytes(256 << 20);
/// Chunk size of a [`FileVolume`].
const CHUNK: Bytes = Bytes(64 << 10);
/// Name of the benchmark's array and of its volume.
const NAME: &str = "bench";

/// Command that runs `weft`: the program beside this one, or else the one on `PATH`.
pub(crate) fn weft() -> std::io::Result<Command> {
    let beside = std::env::current_exe()?.with_file_name("weft");
    Ok(Command::new(if beside.is_file() { beside } else { "weft".into() }))
}

/// Error for a `weft` that could not be started.
pub(crate) fn not_started(error: &std::io::Error) -> BenchError {
    match error.kind() {
        ErrorKind::NotFound => BenchError::failed(
            "weft is not beside weft-bench, and not on PATH; for it: \
             cargo install --path crates/weft-cli",
        ),
        _ => BenchError::failed(format!("weft: {error}")),
    }
}

/// A RAID 5 over files, created and served by weft. Its files are removed when the value is dropped
/// or the process is told to end.
pub(crate) struct FileVolume {
    files: Vec<PathBuf>,
    sockets: TempDir,
    _place: TempDir,
    /// Process id of the server; `None` while no server runs.
    server: Arc<Mutex<Option<Pid>>>,
}

impl FileVolume {
    /// Creates the array on new files in `dir`, or in the directory for temporary files.
    pub(crate) fn make(dir: Option<&Path>) -> Result<Self, BenchError> {
        let sockets = terminal::scratch()?;
        let place = match dir {
            None => terminal::scratch()?,
            Some(dir) => {
                let made = tempfile::Builder::new().prefix("weft-bench-").tempdir_in(dir);
                made.map_err(|error| BenchError::failed(format!("{}: {error}", dir.display())))?
            }
        };
        let server = Arc::new(Mutex::new(None));
        let running = Arc::clone(&server);
        terminal::when_interrupted(move || {
            if let Some(server) = *locked(&running) {
                // An error is ignored: the server has ended.
                let _ = kill_process(server, Signal::TERM);
            }
        });
        let directories = [place.path().to_owned(), sockets.path().to_owned()];
        terminal::remove_when_interrupted(&directories)?;
        let files: Vec<PathBuf> = (0..FILES)
            .map(|number| place.path().join(format!("weft-bench-{number}.img")))
            .collect();
        let mut create = weft().map_err(BenchError::failed)?;
        create.args(["create", "--level", "5", "--name", NAME]);
        create.args(["--raid-devices", &FILES.to_string()]);
        create.args(["--chunk", &format!("{}B", CHUNK.0)]);
        create.args(["--member-size", &format!("{}B", FILE_BYTES.0)]).args(&files);
        let made = create.output().map_err(|error| not_started(&error))?;
        if !made.status.success() {
            return Err(ended(made.status, &String::from_utf8_lossy(&made.stderr)));
        }
        Ok(Self { files, sockets, _place: place, server })
    }

    /// Serves the array with these knobs while `client` runs. `client` receives the NBD URI and the
    /// path of the control socket.
    ///
    /// # Errors
    /// The array cannot be served, `client` fails, or the server does not stop cleanly.
    pub(crate) fn serve(
        &self,
        knobs: &Knobs,
        client: &mut dyn FnMut(&str, &Path) -> Result<(), BenchError>,
    ) -> Result<(), BenchError> {
        let directory = self.sockets.path();
        let (socket, log) = (directory.join("bench.nbd"), directory.join("serve.log"));
        let mut serve = weft().map_err(BenchError::failed)?;
        serve.args(["serve", "--name", NAME]).args(&self.files).args(settings(knobs));
        serve.args(["--listen", &format!("nbd+unix:///{NAME}?socket={}", socket.display())]);
        serve.env("XDG_RUNTIME_DIR", directory).stdin(Stdio::null()).stdout(Stdio::piped());
        serve.stderr(std::fs::File::create(&log).map_err(BenchError::failed)?);
        let mut server = Running {
            child: serve.spawn().map_err(|error| not_started(&error))?,
            known: Arc::clone(&self.server),
        };
        *locked(&self.server) = Some(Pid::from_child(&server.child));
        let mut line = String::new();
        if let Some(printed) = &mut server.child.stdout {
            BufReader::new(printed).read_line(&mut line).map_err(BenchError::failed)?;
        }
        let uri = line.strip_prefix("ready ").and_then(|uris| uris.split_whitespace().next());
        if let Some(uri) = uri {
            client(uri, &directory.join("weft").join(format!("{NAME}.sock")))?;
        }
        let status = server.stop()?;
        if uri.is_none() || !status.success() {
            return Err(ended(status, &std::fs::read_to_string(&log).unwrap_or_default()));
        }
        Ok(())
    }
}

/// Options of `weft serve` that set the knobs which differ from their defaults.
fn settings(knobs: &Knobs) -> Vec<String> {
    let defaults = Knobs::default();
    let shown = TABLE.iter().filter_map(|row| Some((row.name, knobs.show(row.name)?)));
    let changed = shown.filter(|(name, value)| defaults.show(name).as_ref() != Some(value));
    changed.map(|(name, value)| format!("--set={name}={value}")).collect()
}

/// Error for a `weft` that ended with this status; `printed` is the text that it printed.
fn ended(status: ExitStatus, printed: &str) -> BenchError {
    let text = format!("weft: {status}: {}", printed.trim());
    match status.code() {
        Some(2) => BenchError::Usage(text),
        Some(3) => BenchError::Refused(text),
        _ => BenchError::Failed(text),
    }
}

/// A server that is killed when the value is dropped.
struct Running {
    child: Child,
    known: Arc<Mutex<Option<Pid>>>,
}

impl Running {
    /// Stops the server, which completes outstanding requests, flushes the members and marks the
    /// array clean. Returns the server's exit status.
    fn stop(&mut self) -> Result<ExitStatus, BenchError> {
        // An error is ignored: the server has ended, and its status says why.
        let _ = kill_process(Pid::from_child(&self.child), Signal::TERM);
        self.child.wait().map_err(BenchError::failed)
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        *locked(&self.known) = None;
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn locked<T>(shared: &Mutex<T>) -> MutexGuard<'_, T> {
    shared.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn knobs_are_told_to_the_server_and_give_the_same_again() {
        assert_eq!(settings(&Knobs::default()), Vec::<String>::new());
        let asked = Knobs { stripe_cache_size: 1024, ..Knobs::md() };
        let settings = settings(&asked);
        assert!(settings.contains(&"--set=stripe_cache_size=1024".to_owned()), "{settings:?}");
        let mut knobs = Knobs::default();
        for setting in settings {
            let (name, value) = setting.trim_start_matches("--set=").split_once('=').unwrap();
            let knob = knobs.parse(name, value).unwrap();
            knobs.set(knob);
        }
        assert_eq!(knobs, asked);
    }
}
