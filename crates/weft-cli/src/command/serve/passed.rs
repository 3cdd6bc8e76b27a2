//! Sockets passed by systemd: those of `LISTEN_FDS` become listeners of the volume.
//!
//! A `.socket` unit creates the socket, and starts `weft serve` with it as descriptor 3 (4, 5, …).
//! `LISTEN_PID` names the process that the sockets are meant for: sockets for another process are
//! not touched. `LISTEN_FDNAMES` is used in error messages only.
//!
//! Source   sd_listen_fds(3)

use std::os::fd::OwnedFd;

use listenfd::ListenFd;
use weft_terminal::outcome::Failure;

/// Sockets passed to this process, usually none. Removes the variables from the environment, so
/// that a child process does not use the sockets.
pub(super) fn sockets() -> Result<Vec<OwnedFd>, Failure> {
    let count = std::env::var("LISTEN_FDS").ok().and_then(|text| text.parse::<usize>().ok());
    if let Some(count) = count.filter(|count| *count > SOCKETS_MAX) {
        return Err(Failure::usage(format!(
            "LISTEN_FDS: found {count}, expected at most {SOCKETS_MAX}"
        )));
    }
    let names = std::env::var("LISTEN_FDNAMES").unwrap_or_default();
    let mut passed = ListenFd::from_env();
    (0..passed.len())
        .map(|index| {
            let socket = match passed.take_unix_listener(index) {
                Ok(socket) => socket.map(OwnedFd::from),
                Err(_) => passed.take_tcp_listener(index).ok().flatten().map(OwnedFd::from),
            };
            socket.ok_or_else(|| {
                let name = names.split(':').nth(index).unwrap_or_default();
                Failure::refused(format!(
                    "LISTEN_FDS: descriptor {} {name}: found no stream socket, expected a unix or TCP \
                     socket that listens (in the .socket unit: ListenStream=, Accept=no)",
                    index + 3
                ))
            })
        })
        .collect()
}

/// Largest number of sockets that are accepted. It is more than a unit of systemd passes.
const SOCKETS_MAX: usize = 64;
