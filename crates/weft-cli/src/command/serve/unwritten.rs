//! Refusal to serve a volume after its last server ended with writes in memory only.
//!
//! The mark of such writes is the file `NAME.unwritten` beside the control socket, because it
//! concerns clients that know the volume by that name. The volume is refused whatever the options
//! are, also without a cache: a client that was connected to the last server would read old data in
//! any case.

use std::path::Path;

use weft_runtime::unwritten::UnwrittenMark;
use weft_terminal::outcome::Failure;

use super::Serve;

/// Refuses to serve if the last server has left its mark and the user has not accepted that.
/// Otherwise creates the mark of this server, and returns it; `None` if the server has no
/// write-back cache.
pub(super) fn begin(
    arguments: &Serve,
    control: &Path,
    name: &str,
) -> Result<Option<UnwrittenMark>, Failure> {
    let path = control.with_extension("unwritten");
    let failed = |error| Failure::failed(format!("{}: {error}", path.display()));
    let left = UnwrittenMark::left_by(&path).map_err(failed)?;
    if let Some(server) = &left
        && !arguments.accept_lost_writes
    {
        return Err(Failure::refused(format!(
            "{name}: its last server ({server}) ended with writes of clients in memory only, which \
             are lost; a client that goes on would mix old and new data. End all clients that were \
             connected (unmount, shut down the VM), then serve it with --accept-lost-writes and \
             check what is on it (fsck)"
        )));
    }
    if arguments.write_back.is_some() {
        let server = format!("process {}", std::process::id());
        return UnwrittenMark::create(path.clone(), &server).map_err(failed).map(Some);
    }
    if left.is_some() {
        std::fs::remove_file(&path).map_err(failed)?;
    }
    Ok(None)
}
