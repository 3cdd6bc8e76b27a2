//! Watch over the service: messages to systemd, and servers that do not answer.
//!
//! systemd learns from the daemon's loop that the daemon lives, and in a line how volumes are. The
//! servers are processes of their own, so the daemon asks each for its state. One that has not
//! answered for the time of the watchdog is killed and started again, as systemd would do with the
//! daemon itself.

use std::sync::mpsc::Sender;
use std::time::{Duration, Instant};

use weft_export::Supervisor;
use weft_export::control::Status;

use super::server::{Message, News};
use crate::foreground::Manager;
use crate::target::Target;

/// Messages to systemd.
pub(super) struct Watch {
    supervisor: Supervisor,
    /// Time of the next sign of life; `None` before the first one.
    next_ping: Option<Instant>,
}

impl Watch {
    /// The watch for the systemd that has started this process; `None` without one.
    pub(super) fn of_environment() -> Option<Self> {
        Some(Self { supervisor: Manager::of_environment()?.supervisor(), next_ping: None })
    }

    /// Time within which a sign of life is expected, of the daemon and of each server.
    pub(super) fn limit(&self) -> Option<Duration> {
        self.supervisor.watchdog
    }

    /// Sends a sign of life if one is due. Returns the time until the next one.
    pub(super) fn ping(&mut self, now: Instant) -> Option<Duration> {
        if let Some(at) = self.next_ping.filter(|at| *at > now) {
            return Some(at - now);
        }
        let wait = self.supervisor.ping()?;
        self.next_ping = Some(now + wait);
        Some(wait)
    }

    /// Time between two looks at a server.
    pub(super) fn looks_apart(&self) -> Duration {
        self.limit().map_or(LOOKS_APART, |limit| (limit / 2).min(LOOKS_APART))
    }
}

/// Looks at one server.
#[derive(Default)]
pub(super) struct ServerWatch {
    /// Time of the next look; `None` for the present.
    look_at: Option<Instant>,
    /// Whether the server is being asked.
    is_asked: bool,
    /// Time of the first question that the server has not answered.
    unanswered: Option<Instant>,
    /// Remarks about the volume, as of the last answer.
    remarks: String,
}

/// Answer of a server to a look.
pub(super) enum Look {
    Answered(Box<Status>),
    /// The server has the connection, and has not answered in time.
    Silent,
    /// The server cannot be asked. It may be ending.
    NotAsked,
}

impl ServerWatch {
    /// Time until the next look; `None` while the server is asked.
    pub(super) fn wait(&self, now: Instant) -> Option<Duration> {
        let until = self.look_at.map_or(Duration::ZERO, |at| at.saturating_duration_since(now));
        (!self.is_asked).then_some(until)
    }

    /// Has a thread ask the server, because the server may not answer.
    pub(super) fn look(&mut self, name: &str, number: u64, messages: &Sender<Message>) {
        self.is_asked = true;
        self.unanswered.get_or_insert_with(Instant::now);
        let (name, messages) = (name.to_owned(), messages.clone());
        std::thread::spawn(move || {
            let look = asked(&name);
            // An error means that the daemon ends.
            let _ = messages.send(Message::Of(name, number, News::Watched(look)));
        });
    }

    /// Takes note of the answer.
    pub(super) fn looked(&mut self, look: Look, again: Duration) {
        self.is_asked = false;
        self.look_at = Some(Instant::now() + again);
        match look {
            Look::Answered(status) => {
                self.unanswered = None;
                self.remarks = match status.volumes.first() {
                    _ if status.poisoned => "poisoned by a panic".into(),
                    Some(volume) => volume.remarks(),
                    None => String::new(),
                };
            }
            Look::Silent => {}
            Look::NotAsked => self.unanswered = None,
        }
    }

    /// Whether the server has not answered for longer than `limit`.
    pub(super) fn is_silent(&self, now: Instant, limit: Duration) -> bool {
        self.unanswered.is_some_and(|since| now.saturating_duration_since(since) > limit)
    }

    /// Remarks about the volume, for a line; empty for one in order.
    pub(super) fn remarks(&self, now: Instant) -> String {
        if self.is_silent(now, ANSWER_MAX) {
            return "does not answer".into();
        }
        self.remarks.clone()
    }
}

/// Asks a server for its state.
fn asked(name: &str) -> Look {
    let Ok(mut target) = Target::connect(name) else { return Look::NotAsked };
    let begin = Instant::now();
    target.set_timeout(ANSWER_MAX);
    match target.status() {
        Ok(status) => Look::Answered(Box::new(status)),
        Err(_) if begin.elapsed() >= ANSWER_MAX => Look::Silent,
        Err(_) => Look::NotAsked,
    }
}

/// Value of `$MONOTONIC_USEC` in the message that the file is read again.
pub(super) fn monotonic_usec() -> u64 {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
    let (seconds, nanos) = (u64::try_from(now.tv_sec), u64::try_from(now.tv_nsec));
    seconds.unwrap_or(0) * 1_000_000 + nanos.unwrap_or(0) / 1000
}

/// Time between two looks at a server.
const LOOKS_APART: Duration = Duration::from_secs(5);

/// Longest wait for the answer of a server before it counts as silent.
const ANSWER_MAX: Duration = Duration::from_secs(10);

#[cfg(test)]
mod tests {
    use super::*;
    use weft_export::control::VolumeStatus;

    fn degraded() -> Box<Status> {
        let volume = VolumeStatus { slots: 3, degraded: 1, ..VolumeStatus::default() };
        Box::new(Status { volumes: vec![volume], ..Status::default() })
    }

    #[test]
    fn a_server_that_is_silent_counts_as_dead_after_the_limit() {
        let limit = Duration::from_secs(60);
        let begin = Instant::now();
        let mut watch = ServerWatch { unanswered: Some(begin), ..ServerWatch::default() };
        let after = |seconds| begin + Duration::from_secs(seconds);
        assert_eq!(watch.remarks(after(5)), "");
        assert_eq!(watch.remarks(after(30)), "does not answer");
        assert!(!watch.is_silent(after(60), limit) && watch.is_silent(after(61), limit));
        // Silence goes on; only an answer ends it.
        watch.looked(Look::Silent, limit);
        assert!(watch.is_silent(after(61), limit));
        watch.looked(Look::Answered(degraded()), limit);
        assert!(!watch.is_silent(after(61), limit));
        assert_eq!(watch.remarks(after(61)), "degraded (2 of 3 members in sync)");
    }

    #[test]
    fn a_server_that_cannot_be_asked_is_not_killed() {
        let begin = Instant::now();
        let mut watch = ServerWatch { unanswered: Some(begin), ..ServerWatch::default() };
        watch.looked(Look::NotAsked, Duration::from_secs(1));
        assert!(!watch.is_silent(begin + Duration::from_secs(600), Duration::from_secs(60)));
        let poisoned = Box::new(Status { poisoned: true, ..Status::default() });
        watch.looked(Look::Answered(poisoned), Duration::from_secs(1));
        assert_eq!(watch.remarks(begin), "poisoned by a panic");
    }
}
