//! Parts of commands that stay in the foreground: the log, and messages to systemd.

use std::io::Write;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::time::Duration;

use weft_export::Supervisor;

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
    if let Some(manager) = Manager::of_environment() {
        manager.tell(state);
    }
}

/// systemd, or another service manager that started this process.
pub(crate) struct Manager {
    address: SocketAddr,
    /// Time within which systemd expects a sign of life (`WatchdogSec=`), if it expects one.
    watchdog: Option<Duration>,
}

impl Manager {
    /// The manager that the environment names; `None` if it names none.
    pub(crate) fn of_environment() -> Option<Self> {
        let path = std::env::var_os("NOTIFY_SOCKET")?;
        let address = match path.as_bytes() {
            [b'@', name @ ..] => SocketAddr::from_abstract_name(name),
            _ => SocketAddr::from_pathname(&path),
        };
        let text = |name| std::env::var(name).ok();
        let (usec, pid) = (text("WATCHDOG_USEC"), text("WATCHDOG_PID"));
        let watchdog = watchdog(usec.as_deref(), pid.as_deref(), std::process::id());
        match address {
            Ok(address) => Some(Self { address, watchdog }),
            Err(error) => {
                tracing::warn!("NOTIFY_SOCKET {}: {error}", path.to_string_lossy());
                None
            }
        }
    }

    /// Sends a message, and waits until the manager has room for it.
    fn tell(&self, state: &str) {
        let sent = UnixDatagram::unbound()
            .and_then(|socket| socket.send_to_addr(state.as_bytes(), &self.address));
        if let Err(error) = sent {
            tracing::warn!("NOTIFY_SOCKET: {error}");
        }
    }

    /// The manager, for messages of a loop that must not wait.
    pub(crate) fn supervisor(self) -> Supervisor {
        let watchdog = self.watchdog;
        Supervisor { tell: Box::new(move |text| self.tell_now(text)), watchdog }
    }

    /// Sends a message, unless the manager has no room for it now. Returns whether it was sent.
    fn tell_now(&self, state: &str) -> bool {
        let sent = UnixDatagram::unbound().and_then(|socket| {
            socket.set_nonblocking(true)?;
            socket.send_to_addr(state.as_bytes(), &self.address)
        });
        sent.is_ok()
    }
}

/// Interval of the watchdog, by the values of `$WATCHDOG_USEC` and `$WATCHDOG_PID`.
///
/// Source   sd_watchdog_enabled(3): microseconds, for the process that is named, or for any
fn watchdog(usec: Option<&str>, pid: Option<&str>, own: u32) -> Option<Duration> {
    let usec: u64 = usec?.parse().ok().filter(|usec| *usec > 0)?;
    let is_ours = pid.is_none_or(|pid| pid.parse() == Ok(own));
    is_ours.then_some(Duration::from_micros(usec))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_watchdog_is_for_the_process_that_it_names() {
        let half_a_minute = Some(Duration::from_secs(30));
        assert_eq!(watchdog(Some("30000000"), Some("7"), 7), half_a_minute);
        assert_eq!(watchdog(Some("30000000"), None, 7), half_a_minute);
        for (usec, pid) in [
            (None, None),
            (None, Some("7")),
            (Some("30000000"), Some("8")),
            (Some("30000000"), Some("x")),
            (Some("0"), None),
            (Some("-1"), None),
            (Some(""), Some("7")),
        ] {
            assert_eq!(watchdog(usec, pid, 7), None, "{usec:?} {pid:?}");
        }
    }

    #[test]
    fn a_manager_without_room_holds_nothing_up() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("notify");
        let socket = UnixDatagram::bind(&path).unwrap();
        let address = SocketAddr::from_pathname(&path).unwrap();
        let manager = Manager { address, watchdog: None };
        let sent = (0..100_000).take_while(|_| manager.tell_now("WATCHDOG=1")).count();
        assert!((1..100_000).contains(&sent), "{sent}");
        let mut buffer = [0; 64];
        let count = socket.recv(&mut buffer).unwrap();
        assert_eq!(&buffer[..count], b"WATCHDOG=1");
        assert!(manager.tell_now("WATCHDOG=1"));
    }
}
