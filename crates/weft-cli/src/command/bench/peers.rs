//! Volumes that weft creates and serves for its own benchmarks.

use std::path::{Path, PathBuf};
use std::process::Command;

use tempfile::TempDir;
use weft_bench::BenchError;
use weft_bench::engine::{CHUNK, FILE_BYTES, FileVolume};
use weft_bench::nbd::{EXPORT_BYTES, ServerKind};
use weft_engine::knobs::Knobs;
use weft_terminal::outcome::Failure;
use weft_terminal::terminal;

use crate::inside::Inside;
use crate::new_array::make_files_of_array;
use crate::volume::Opening;

const NAME: &str = "bench";

/// A directory for member files and sockets, removed when the value is dropped or the process is
/// told to end.
pub(super) struct Files {
    place: TempDir,
    sockets: TempDir,
}

impl Files {
    /// Creates a directory in `dir`, or in the directory for temporary files.
    pub(super) fn below(dir: Option<&Path>) -> Result<Self, Failure> {
        let sockets = terminal::scratch()?;
        let place = match dir {
            None => terminal::scratch()?,
            Some(dir) => {
                let made = tempfile::Builder::new().prefix("weft-bench-").tempdir_in(dir);
                made.map_err(|error| Failure::failed(format!("{}: {error}", dir.display())))?
            }
        };
        let directories = [place.path().to_owned(), sockets.path().to_owned()];
        terminal::remove_when_interrupted(&directories)?;
        Ok(Self { place, sockets })
    }

    /// Path of the directory.
    pub(super) fn directory(&self) -> &Path {
        self.place.path()
    }

    fn serve_array(
        &self,
        files: &[PathBuf],
        knobs: Knobs,
        client: &mut dyn FnMut(&str, &Path) -> Result<(), BenchError>,
    ) -> Result<(), Failure> {
        let volume = Opening::default().open(files)?;
        let mut inside = Inside::start(volume, knobs, NAME, self.sockets.path())?;
        client(&inside.uri, &inside.control)?;
        inside.stop()
    }
}

impl FileVolume for Files {
    fn make(&self, files: &[PathBuf]) -> Result<(), BenchError> {
        make_files_of_array("5", CHUNK, FILE_BYTES, NAME, files).map(drop).map_err(told)
    }

    fn serve(
        &self,
        files: &[PathBuf],
        knobs: Knobs,
        client: &mut dyn FnMut(&str, &Path) -> Result<(), BenchError>,
    ) -> Result<(), BenchError> {
        self.serve_array(files, knobs, client).map_err(told)
    }
}

/// Converts a failure to an error of a benchmark, which converts back to the same exit status.
fn told(failure: Failure) -> BenchError {
    match failure {
        Failure::Failed(text) => BenchError::Failed(text),
        Failure::Usage(text) => BenchError::Usage(text),
        Failure::Refused(text) => BenchError::Refused(text),
        Failure::BrokenPipe => BenchError::Failed("its output is gone".into()),
    }
}

/// The command that starts weft as a server of this kind.
pub(super) fn start_weft(kind: ServerKind, socket: &Path) -> std::io::Result<Option<Command>> {
    let mut weft = Command::new(std::env::current_exe()?);
    match kind {
        ServerKind::Array(stripe_size) => {
            weft.args(["bench", "nbd", "--stripe-size", stripe_size]);
            weft.arg("--serve-array").arg(socket);
        }
        ServerKind::Bare | ServerKind::Recorded => {
            let uri = format!("nbd+unix:///?socket={}", socket.display());
            let word = socket.file_stem().unwrap_or_default().to_string_lossy();
            let name = format!("bench-{word}-{}", std::process::id());
            weft.args(["serve", "--bare", "--name", &name, "--listen", &uri]);
            weft.arg(format!("ram:{}M", EXPORT_BYTES >> 20));
            weft.env("XDG_RUNTIME_DIR", socket.parent().unwrap_or(Path::new("/")));
            if let ServerKind::Recorded = kind {
                weft.arg("--record").arg(socket.with_extension("iolog"));
            }
        }
        ServerKind::Least => {
            weft.args(["bench", "nbd", "--serve-least"]).arg(socket);
        }
        ServerKind::Nbdkit => return Ok(None),
    }
    Ok(Some(weft))
}
