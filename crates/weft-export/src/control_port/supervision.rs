//! Messages to a service manager: signs of life of the loop, and a line about the volumes.

use std::time::Duration;

use weft_units::{Span, Time};

/// A service manager that watches the server, such as systemd.
pub struct Supervisor {
    /// Sends a message without waiting, and returns whether the manager has got it. The messages
    /// are those of sd_notify(3): `WATCHDOG=1` and `STATUS=` with a line.
    pub tell: Box<dyn FnMut(&str) -> bool + Send>,
    /// Time within which the manager expects a sign of life; `None` if it expects none.
    pub watchdog: Option<Duration>,
}

impl Supervisor {
    /// Sends a sign of life. Returns the time until the next one is due: half of the watchdog's
    /// time, or less if the manager has not got this one. `None` if no sign of life is expected.
    pub fn ping(&mut self) -> Option<Duration> {
        let half = self.watchdog? / 2;
        Some(if (self.tell)("WATCHDOG=1") { half } else { half.min(TRY_AGAIN) })
    }
}

/// Times of the messages to a supervisor.
///
/// The loop of the first worker calls [`Supervision::on_pass`] while it holds the driver. A server
/// sends no sign of life when that loop hangs, or when another worker keeps the driver.
pub(super) struct Supervision {
    supervisor: Supervisor,
    /// Time of the next sign of life.
    next_ping: Option<Time>,
    /// Time of the next look at the volumes at the earliest.
    next_look: Time,
    /// Whether there was a pass since the last look, so that a look may find something new.
    has_passed: bool,
    /// Line that was sent last.
    told: String,
}

impl Supervision {
    pub(super) fn new(supervisor: Supervisor) -> Self {
        let next_ping = supervisor.watchdog.map(|_| Time(0));
        let next_look = Time(0);
        Self { supervisor, next_ping, next_look, has_passed: true, told: String::new() }
    }

    /// Sends what is due. `line` returns the state of the volumes, if it is to be told.
    pub(super) fn on_pass(&mut self, now: Time, line: impl FnOnce() -> Option<String>) {
        if self.next_ping.is_some_and(|at| at <= now) {
            self.next_ping = self.supervisor.ping().map(|wait| now + span(wait));
        }
        if now < self.next_look {
            self.has_passed = true;
            return;
        }
        self.has_passed = false;
        self.next_look = now + LOOKS_APART;
        let Some(line) = line() else { return };
        if line != self.told && (self.supervisor.tell)(&format!("STATUS={line}")) {
            self.told = line;
        }
    }

    /// Time of the next message, or of the next look that may find something new. An idle server
    /// is woken for signs of life alone.
    pub(super) fn next_wake(&self) -> Option<Time> {
        let look = self.has_passed.then_some(self.next_look);
        [self.next_ping, look].into_iter().flatten().min()
    }
}

fn span(duration: Duration) -> Span {
    Span(u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX / 2))
}

/// Shortest time between two looks at the volumes.
const LOOKS_APART: Span = Span(5_000_000_000);

/// Time after which a sign of life that could not be sent is sent again.
const TRY_AGAIN: Duration = Duration::from_secs(1);

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Mutex};

    use super::*;

    fn secs(count: u64) -> Time {
        Time(count * 1_000_000_000)
    }

    /// A supervision, and the messages that it has sent. With `is_full` none of them arrives.
    fn kept(watchdog: Option<u64>, is_full: bool) -> (Supervision, Arc<Mutex<Vec<String>>>) {
        let told: Arc<Mutex<Vec<String>>> = Arc::default();
        let keeps = Arc::clone(&told);
        let tell = Box::new(move |text: &str| {
            keeps.lock().unwrap().push(text.to_owned());
            !is_full
        });
        let watchdog = watchdog.map(Duration::from_secs);
        (Supervision::new(Supervisor { tell, watchdog }), told)
    }

    #[test]
    fn a_sign_of_life_is_sent_twice_in_the_interval() {
        let (mut watched, told) = kept(Some(30), false);
        for second in 0..60 {
            watched.on_pass(secs(second), || None);
        }
        assert_eq!(*told.lock().unwrap(), ["WATCHDOG=1"; 4]);
        // Without an event the loop wakes in time for the next one.
        watched.on_pass(secs(60), || None);
        watched.on_pass(secs(65), || None);
        assert_eq!(watched.next_wake(), Some(secs(75)));
    }

    #[test]
    fn a_sign_of_life_that_was_not_sent_is_sent_again_soon() {
        let (mut watched, told) = kept(Some(30), true);
        watched.on_pass(secs(0), || None);
        assert_eq!(watched.next_wake(), Some(secs(1)));
        watched.on_pass(secs(1), || None);
        assert_eq!(told.lock().unwrap().len(), 2);
    }

    #[test]
    fn a_line_is_sent_when_it_has_changed_and_an_idle_server_sleeps() {
        let (mut watched, told) = kept(None, false);
        watched.on_pass(secs(0), || Some("a".into()));
        assert_eq!(watched.next_wake(), None, "nothing has happened since");
        watched.on_pass(secs(1), || panic!("the last look was a moment ago"));
        assert_eq!(watched.next_wake(), Some(secs(5)));
        watched.on_pass(secs(5), || Some("a".into()));
        watched.on_pass(secs(10), || Some("b".into()));
        assert_eq!(*told.lock().unwrap(), ["STATUS=a", "STATUS=b"]);
    }
}
