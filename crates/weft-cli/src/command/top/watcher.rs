//! Thread that makes requests to the servers: for their statuses in each interval, and for
//! confirmed changes.
//!
//! A server that does not answer blocks this thread, but not the screen, which still handles keys.

use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender};
use std::time::{Duration, Instant};

use weft_terminal::outcome::Failure;

use super::TopEvent;
use super::known::{Looked, TopAction};
use crate::target::{STATUS_WAIT, Target, answering};

/// Starts the thread, which carries out `actions` and sends `events`. The thread ends when the
/// other end of either channel is gone.
pub(super) fn start(
    target: Option<String>,
    interval: Duration,
    actions: Receiver<TopAction>,
    events: Sender<TopEvent>,
) {
    std::thread::spawn(move || {
        let mut next = Instant::now() + interval;
        loop {
            match actions.recv_timeout(next.saturating_duration_since(Instant::now())) {
                Ok(action) => {
                    let sentence = carried_out(&action);
                    if events.send(TopEvent::Acted(sentence)).is_err() {
                        return;
                    }
                }
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => return,
            }
            // A change is shown at once.
            if events.send(TopEvent::Looked(look(target.as_deref()))).is_err() {
                return;
            }
            next = (next + interval).max(Instant::now());
        }
    });
}

/// Statuses of the server that `target` names, or of all servers that run; empty if the named
/// server does not run.
pub(super) fn look(target: Option<&str>) -> Vec<Looked> {
    let found = match target {
        None => answering(),
        Some(name) => match Target::connect(name) {
            Ok(mut target) => {
                target.set_timeout(STATUS_WAIT);
                let status = target.status();
                vec![(target, status)]
            }
            Err(_) => Vec::new(),
        },
    };
    let told = |why: Failure| why.message().to_owned();
    found.into_iter().map(|(target, status)| (target.name, status.map_err(told))).collect()
}

/// Asks the server for a confirmed change. Returns a sentence about the outcome.
fn carried_out(action: &TopAction) -> String {
    let done = Target::connect(&action.server).and_then(|mut it| it.ask(action.command()));
    match done {
        Ok(response) => {
            let note = response.note.map_or(String::new(), |note| format!("; {note}"));
            format!("Done: {}{note}", action.command_line())
        }
        Err(why) => format!("Not done: {}", why.message()),
    }
}
