//! Scheduled checks of one volume: requests to its server, for its status and to start or stop a
//! check.
//!
//! A server that does not answer must not block the daemon. Each request is therefore made in a
//! thread of its own, which sends the answer as a message.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::mpsc::Sender;
use std::time::{Duration, Instant};

use weft_export::control::{Command, Status, VolumeStatus};
use weft_ondisk::Level;
use weft_terminal::outcome::Failure;

use super::log::Log;
use super::record;
use super::schedule::{CheckNews, Record, Running, Schedule, Seen, Step, about, delay};
use super::server::{Message, News};
use crate::target::Target;
use crate::when::epoch_secs;
use crate::{configuration, disks};

/// State of the scheduled checks of one volume.
#[derive(Default)]
pub(super) struct Checks {
    /// UUID of the array, and the record of its checks; `None` before the first status of the
    /// server.
    record: Option<(String, Record)>,
    /// Record as it was last read from its file, or last written, even if the write failed. `None`
    /// if no record was read or written.
    saved: Option<Record>,
    /// Time at which the server is next asked for its status; `None` for at once.
    look_at: Option<Instant>,
    /// Whether a request to the server is not answered yet.
    is_asked: bool,
    /// News about the start of a check, logged once the server has confirmed the start; `None` if
    /// no start waits for an answer.
    pending: Option<CheckNews>,
    /// Disks below the members of the volume, at the last status of its server.
    disks: BTreeSet<PathBuf>,
    /// Lines about checks that cannot proceed, each of which is logged only once. The list is
    /// emptied when a check proceeds, or when it is full.
    lines: Vec<String>,
}

/// Answer of a server to a status request.
pub(super) struct Looked {
    status: Status,
    /// Disks below the members of its volume.
    disks: BTreeSet<PathBuf>,
}

/// Server of a volume, with the channels for its news and for log lines about it.
pub(super) struct Link<'a> {
    pub(super) name: &'a str,
    /// Number of the server's start, counted over all volumes of the daemon.
    pub(super) number: u64,
    pub(super) messages: &'a Sender<Message>,
    pub(super) log: &'a Log,
}

impl Checks {
    /// Forgets any outstanding request, so that the server is asked for its status at once. Called
    /// when a server starts. The record stays.
    pub(super) fn server_starts(&mut self) {
        (self.look_at, self.is_asked, self.pending) = (None, false, None);
    }

    /// Plans a status request for now, because the file of volumes was read again.
    pub(super) fn settings_come(&mut self) {
        self.look_at = None;
    }

    /// Time from `now` until the server is to be asked for its status; `None` while a request is
    /// outstanding.
    pub(super) fn wait(&self, now: Instant) -> Option<Duration> {
        let until = self.look_at.map_or(Duration::ZERO, |at| at.saturating_duration_since(now));
        (!self.is_asked).then_some(until)
    }

    /// Asks the server for its status. The answer arrives as [`News::Looked`].
    pub(super) fn look(&mut self, link: &Link<'_>) {
        self.ask(link, |target| {
            let status = target.and_then(|mut target| target.status());
            let looked = status.map(|status| {
                let volume = status.volumes.first();
                let disks = volume.map(|it| disks::of_volume(Path::new(disks::DEVICES), it));
                Box::new(Looked { status, disks: disks.unwrap_or_default() })
            });
            News::Looked(looked.map_err(|error| error.message().to_owned()))
        });
    }

    /// The check of the volume `name` that runs, or was asked to; `None` if there is none.
    pub(super) fn running(&self, name: &str) -> Option<Running> {
        let (_, record) = self.record.as_ref()?;
        record.pass.as_ref()?.segment?;
        Some(Running { volume: name.to_owned(), disks: self.disks.clone() })
    }

    /// Handles a status of the server, or the reason why there is none: logs news, asks the server
    /// to start or stop a check if that is the next step, and plans the next status request.
    /// `running` are the scheduled checks of other volumes that run.
    pub(super) fn looked(
        &mut self,
        link: &Link<'_>,
        schedule: Schedule,
        looked: Result<Box<Looked>, String>,
        running: &[Running],
    ) {
        self.is_asked = false;
        self.look_at = Some(Instant::now() + LOOK_AGAIN);
        let status = match looked {
            Ok(looked) => {
                let Looked { status, disks } = *looked;
                self.disks = disks;
                status
            }
            Err(why) => return self.tell_once(link, &format!("check: not known: {why}")),
        };
        let Some(volume) = status.volumes.first() else { return };
        let level = volume.level.parse().ok().filter(|level: &Level| level.uses_size());
        let (Some(array), Some(_)) = (&volume.array, level) else {
            let why = format!("check: {} has neither parity nor copies to compare", volume.level);
            return self.tell_once(link, &why);
        };
        let now = epoch_secs();
        if self.record.as_ref().is_none_or(|(uuid, _)| *uuid != array.uuid) {
            self.load(link, &array.uuid, now);
        }
        let Some((_, record)) = &mut self.record else { return };
        let delay = delay(&self.disks, running);
        let seen = Seen { delay, ..seen(status.pid, volume) };
        let (step, told) = record.decide(schedule, &seen, now);
        self.look_at = Some(Instant::now() + record.next_look(schedule, now));
        self.save(link);
        match (told, step) {
            (Some(CheckNews::Waits(why)), _) => {
                self.tell_once(link, &format!("check: {}", CheckNews::Waits(why)));
            }
            (told @ Some(_), Step::Start(_)) => self.pending = told,
            (Some(told), _) => self.tell(link, &told),
            (None, _) => {}
        }
        let command = match step {
            Step::Nothing => return,
            Step::Start(from) => Command::SyncAction {
                action: "check".into(),
                from: Some(from).filter(|from| *from > 0),
                to: None,
            },
            Step::Stop => Command::sync_action("idle"),
        };
        self.ask(link, move |target| {
            let asked = target.and_then(|mut target| target.ask(command));
            News::Checked(step, asked.map(|_| ()))
        });
    }

    /// Handles the answer of the server to `step`, and plans the next status request.
    pub(super) fn checked(
        &mut self,
        link: &Link<'_>,
        schedule: Schedule,
        step: Step,
        answer: Result<(), Failure>,
    ) {
        self.is_asked = false;
        let pending = self.pending.take();
        match answer {
            Ok(()) => {
                if let Some(told) = pending {
                    self.tell(link, &told);
                }
            }
            Err(error) => {
                if let (Step::Start(from), Some((_, record))) = (step, &mut self.record) {
                    // The position is the only value of the request.
                    record.refused(from > 0 && matches!(error, Failure::Usage(_)));
                }
                let what = if step == Step::Stop { "stopped" } else { "started" };
                self.tell_once(link, &format!("check: not {what}: {}", error.message()));
                self.save(link);
            }
        }
        if let Some((_, record)) = &self.record {
            self.look_at = Some(Instant::now() + record.next_look(schedule, epoch_secs()));
        }
    }

    /// Loads the record of the array `uuid`, and logs when its last check ended. A record that
    /// cannot be read is logged, and counts as none.
    fn load(&mut self, link: &Link<'_>, uuid: &str, now: u64) {
        let found = match configuration::state() {
            Some(folder) => record::read(&folder, uuid),
            None => Ok(None),
        };
        let record = found.unwrap_or_else(|why| {
            link.log.of(link.name, &format!("check: {why}; it counts as none"));
            None
        });
        self.saved.clone_from(&record);
        let record = record.unwrap_or_default();
        if let Some(last) = record.last {
            let (ago, count) = (about(now.saturating_sub(last.at)), last.mismatches);
            let text = format!("check: the last one ended {ago} ago, mismatch_cnt {count}");
            link.log.of(link.name, &text);
        }
        self.record = Some((uuid.to_owned(), record));
    }

    /// Writes the record to its file if the record has changed. A failed write is logged.
    fn save(&mut self, link: &Link<'_>) {
        let Some((uuid, record)) = &self.record else { return };
        if self.saved.as_ref() == Some(record) {
            return;
        }
        let written = match configuration::state() {
            Some(folder) => record::write(&folder, uuid, record),
            None => Err("HOME is not set".to_owned()),
        };
        self.saved = Some(record.clone());
        if let Err(why) = written {
            self.tell_once(link, &format!("check: not recorded: {why}"));
        }
    }

    fn tell(&mut self, link: &Link<'_>, told: &CheckNews) {
        self.lines.clear();
        link.log.of(link.name, &format!("check: {told}"));
    }

    /// Logs a line that is not in `lines`, and adds it to them.
    fn tell_once(&mut self, link: &Link<'_>, line: &str) {
        if self.lines.iter().any(|other| other == line) {
            return;
        }
        link.log.of(link.name, line);
        if self.lines.len() == LINES_MAX {
            self.lines.clear();
        }
        self.lines.push(line.to_owned());
    }

    /// Makes a request in a new thread: `act` gets the connection to the server or the error, and
    /// the news that it returns are sent to the daemon.
    fn ask(
        &mut self,
        link: &Link<'_>,
        act: impl FnOnce(Result<Target, Failure>) -> News + Send + 'static,
    ) {
        self.is_asked = true;
        let (name, number, messages) = (link.name.to_owned(), link.number, link.messages.clone());
        std::thread::spawn(move || {
            let mut target = Target::connect(&name);
            if let Ok(target) = &mut target {
                target.set_timeout(ANSWER_MAX);
            }
            let _ = messages.send(Message::Of(name, number, act(target)));
        });
    }
}

/// State of a volume from its status, as far as checks depend on it. `server` is the process id of
/// its server.
fn seen(server: u32, volume: &VolumeStatus) -> Seen {
    let last = volume.last_sync.as_ref();
    let (done, total) = volume.sync_completed.unwrap_or((0, 0));
    Seen {
        server,
        size: volume.size,
        number: last.map_or(0, |last| last.number),
        is_check: last.is_some_and(|last| last.action == "check"),
        is_checking: volume.sync_action == "check",
        done,
        total,
        mismatches: volume.mismatch_cnt,
        obstacle: obstacle(volume),
        delay: None,
    }
}

/// Reason why a volume cannot be checked now; `None` if it can be checked.
fn obstacle(volume: &VolumeStatus) -> Option<String> {
    let why = match volume.sync_action.as_str() {
        _ if volume.array_state == "readonly" => "it is read-only",
        _ if volume.array_state == "broken" => "the array is broken",
        _ if volume.reshape.is_some() => "it is being reshaped",
        _ if volume.degraded > 0 => "it is degraded",
        _ if volume.resync_from.is_some() => "a resync is needed",
        "check" | "idle" => return None,
        "frozen" => "syncs are frozen",
        action => return Some(format!("a {action} runs")),
    };
    Some(why.to_owned())
}

/// Time until the next status request after the server gave no status, or a volume that cannot be
/// checked.
const LOOK_AGAIN: Duration = Duration::from_secs(60);

/// Largest number of lines that are remembered, to be logged only once.
const LINES_MAX: usize = 8;

/// Longest wait for the answer of a server to one request.
const ANSWER_MAX: Duration = Duration::from_secs(10);

#[cfg(test)]
mod tests {
    use super::*;
    use weft_export::control::{LastSyncStatus, ReshapeStatus};

    #[test]
    fn a_volume_that_must_not_be_checked_says_why() {
        let whole = || VolumeStatus { sync_action: "idle".into(), ..VolumeStatus::default() };
        assert_eq!(obstacle(&whole()), None);
        assert_eq!(obstacle(&VolumeStatus { sync_action: "check".into(), ..whole() }), None);
        let words = |word: &str| word.to_owned();
        for (volume, expected) in [
            (VolumeStatus { array_state: words("readonly"), ..whole() }, "read-only"),
            (VolumeStatus { array_state: words("broken"), ..whole() }, "broken"),
            (VolumeStatus { degraded: 1, ..whole() }, "degraded"),
            (VolumeStatus { resync_from: Some(0), ..whole() }, "resync"),
            (VolumeStatus { reshape: Some(ReshapeStatus::default()), ..whole() }, "reshaped"),
            (VolumeStatus { sync_action: words("recover"), ..whole() }, "a recover runs"),
            (VolumeStatus { sync_action: words("frozen"), ..whole() }, "frozen"),
        ] {
            let found = obstacle(&volume).unwrap();
            assert!(found.contains(expected), "{found}");
        }
        let last = LastSyncStatus { number: 4, action: "check".into(), ..Default::default() };
        let volume = VolumeStatus {
            last_sync: Some(last),
            sync_completed: Some((8, 16)),
            mismatch_cnt: 8,
            size: 7,
            ..whole()
        };
        let expected = Seen {
            server: 5,
            size: 7,
            number: 4,
            is_check: true,
            is_checking: false,
            done: 8,
            total: 16,
            mismatches: 8,
            obstacle: None,
            delay: None,
        };
        assert_eq!(seen(5, &volume), expected);
    }
}
