//! Volumes that weft serves for its own benchmarks.

use std::path::Path;
use std::process::Command;

use weft_bench::nbd::{EXPORT_BYTES, ServerKind};

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
