//! Parts of commands that stay in the foreground: the log, and messages to systemd.

use std::io::Write;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};

/// Starts the log on standard error, from this level on.
pub(crate) fn start_log(level: tracing::Level) {
    let log = tracing_subscriber::fmt()
        .with_writer(|| BestEffort)
        .with_target(false)
        .with_ansi(false)
        .without_time()
        .with_max_level(level);
    // An error means that the process already has a subscriber.
    let _ = log.try_init();
}

/// Standard error for the log; a line that cannot be written is dropped. The subscriber would
/// report the error with `eprintln!`, which panics if that write fails too, and would take the
/// volume down.
struct BestEffort;

impl Write for BestEffort {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        let _ = std::io::stderr().write_all(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

/// Tells systemd about the state of the service, if systemd asked for that.
///
/// Source   sd_notify(3): a datagram to `$NOTIFY_SOCKET`, where `@` begins an abstract address
pub(crate) fn notify(state: &str) {
    let Some(path) = std::env::var_os("NOTIFY_SOCKET") else { return };
    let address = match path.as_bytes() {
        [b'@', name @ ..] => SocketAddr::from_abstract_name(name),
        _ => SocketAddr::from_pathname(&path),
    };
    let sent = address
        .and_then(|address| UnixDatagram::unbound()?.send_to_addr(state.as_bytes(), &address));
    if let Err(error) = sent {
        tracing::warn!("NOTIFY_SOCKET {}: {error}", path.to_string_lossy());
    }
}
