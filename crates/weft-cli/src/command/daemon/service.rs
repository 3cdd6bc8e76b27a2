//! The service: which servers run, when one is started again, and what a new file changes.
//!
//! A server that fails is started again, after a second at first, then after twice as long each
//! time, up to a minute, or when a block device comes or goes: a member may come later, and a crash
//! must not keep clients waiting. A server that ended in good order (`weft stop`) stays stopped
//! until the file is read again.

use std::collections::BTreeMap;
use std::io::Write;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::{Duration, Instant};

use rustix::process::{Signal, pidfd_send_signal};
use weft_engine::knobs::Knobs;
use weft_export::control::Command;
use weft_terminal::outcome::{Exit, Failure, Outcome};
use weft_terminal::terminal::{complain, printable};

use super::file::{self, Entry};
use super::members;
use super::server::{self, Message, News};
use crate::foreground::notify;
use crate::target::Target;

/// Servers of all volumes of a file.
pub(super) struct Service {
    /// Program that the servers run.
    program: PathBuf,
    /// File of the volumes, and the command that takes their options.
    file: PathBuf,
    serve: clap::Command,
    volumes: BTreeMap<String, Volume>,
    messages: (Sender<Message>, Receiver<Message>),
    /// Block devices of this machine at the last look for a member that has come.
    devices: Option<String>,
    /// Whether the service ends: no server is started any more.
    is_ending: bool,
    /// Volumes whose servers did not end in good order when the service ended.
    unclean: Vec<String>,
    /// Last state that systemd was told; empty before READY.
    told: String,
}

/// A volume and its server.
struct Volume {
    entry: Entry,
    /// Entry that the server was started with.
    started: Entry,
    state: State,
    /// Time from a failure of the server to its next start.
    delay: Duration,
    /// Lines of a server that is not ready yet: they are printed if it gets ready, or if they
    /// differ from those of the start before.
    lines: Vec<String>,
    printed: Vec<String>,
    then: Then,
}

/// State of a server. `process` is its pidfd.
enum State {
    /// The server looks for its members, or assembles the array.
    Starting { process: Option<OwnedFd> },
    /// Clients may connect.
    Serving { process: OwnedFd, since: Instant },
    /// The server has failed, and is started again at this time.
    Failed { again: Instant },
    /// The server has ended in good order.
    Stopped,
}

/// Fate of a volume whose server ends in good order.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Then {
    /// The volume stays stopped.
    Stay,
    /// The volume is forgotten: the file no longer has it.
    Leave,
    /// The volume is started: it was taken out of the file, and put into it again meanwhile.
    Start,
}

impl Volume {
    fn process(&self) -> Option<&OwnedFd> {
        match &self.state {
            State::Starting { process } => process.as_ref(),
            State::Serving { process, .. } => Some(process),
            State::Failed { .. } | State::Stopped => None,
        }
    }

    /// Asks the server, if there is one, to end in good order.
    fn end(&self) {
        if let Some(process) = self.process() {
            // An error means that the process has ended.
            let _ = pidfd_send_signal(process, Signal::TERM);
        }
    }

    /// Prints the lines of a server's start.
    fn print_lines(&mut self) {
        for line in std::mem::take(&mut self.lines) {
            print_line(&self.entry.name, &line);
        }
    }
}

impl Service {
    /// A service for the volumes of a file, before any server is started.
    pub(super) fn new(program: PathBuf, file: &Path, serve: clap::Command) -> Self {
        Self {
            program,
            file: file.to_owned(),
            serve,
            volumes: BTreeMap::new(),
            messages: channel(),
            devices: None,
            is_ending: false,
            unclean: Vec::new(),
            told: String::new(),
        }
    }

    /// Sender of messages to the service.
    pub(super) fn sender(&self) -> Sender<Message> {
        self.messages.0.clone()
    }

    /// Serves volumes until the service is told to end.
    ///
    /// # Errors
    /// A server did not end in good order.
    pub(super) fn run(mut self, entries: Vec<Entry>) -> Outcome {
        self.take(entries);
        while !(self.is_ending && self.volumes.values().all(|it| it.process().is_none())) {
            self.tell_systemd();
            match self.next() {
                Some(Message::Reload) if !self.is_ending => self.reload(),
                Some(Message::Reload) | None => {}
                Some(Message::Stop) => {
                    self.is_ending = true;
                    notify("STOPPING=1");
                    self.volumes.values().for_each(Volume::end);
                }
                Some(Message::Of(name, news)) => self.hear(&name, news),
            }
            self.start_due();
        }
        if self.unclean.is_empty() {
            return Ok(Exit::Done);
        }
        Err(Failure::failed(format!("did not stop in good order: {}", self.unclean.join(", "))))
    }

    /// The next message; `None` when a server may be due.
    fn next(&self) -> Option<Message> {
        let is_failed = |volume: &Volume| matches!(volume.state, State::Failed { .. });
        let wait = match self.volumes.values().any(is_failed) && !self.is_ending {
            true => LOOK_AGAIN,
            false => LONGEST_WAIT,
        };
        self.messages.1.recv_timeout(wait).ok()
    }

    /// Starts the servers whose time has come, or all that have failed if there are other block
    /// devices now.
    fn start_due(&mut self) {
        let is_failed = |volume: &Volume| matches!(volume.state, State::Failed { .. });
        if self.is_ending || !self.volumes.values().any(is_failed) {
            self.devices = None;
            return;
        }
        let devices = members::listed().ok();
        let are_others = self.devices.is_some() && self.devices != devices;
        self.devices = devices;
        let now = Instant::now();
        for volume in self.volumes.values_mut() {
            if let State::Failed { again } = volume.state
                && (are_others || again <= now)
            {
                begin(volume, &self.program, &self.messages.0);
            }
        }
    }

    fn hear(&mut self, name: &str, news: News) {
        let Some(volume) = self.volumes.get_mut(name) else { return };
        match news {
            News::Started(process) => {
                volume.state = State::Starting { process: Some(process) };
                if self.is_ending || volume.then != Then::Stay {
                    volume.end();
                }
            }
            News::Line(line) if matches!(volume.state, State::Starting { .. }) => {
                volume.lines.push(line);
            }
            News::Line(line) => print_line(name, &line),
            News::Ready(addresses) => {
                volume.print_lines();
                volume.printed.clear();
                if let State::Starting { process: Some(process) } =
                    std::mem::replace(&mut volume.state, State::Stopped)
                {
                    volume.state = State::Serving { process, since: Instant::now() };
                }
                let mut out = std::io::stdout().lock();
                // An error is ignored: the parent process may have closed the pipe.
                let _ = writeln!(out, "ready {name} {addresses}");
                let _ = out.flush();
            }
            News::Stopped => {
                volume.print_lines();
                volume.state = State::Stopped;
                match volume.then {
                    Then::Stay => {}
                    Then::Leave => _ = self.volumes.remove(name),
                    Then::Start => begin(volume, &self.program, &self.messages.0),
                }
            }
            News::Failed(how) => self.failed(name, &how),
        }
    }

    /// Plans the next start of a server that has failed.
    fn failed(&mut self, name: &str, how: &str) {
        let Some(volume) = self.volumes.get_mut(name) else { return };
        match volume.state {
            State::Serving { since, .. } => {
                if since.elapsed() > DELAY_MAX {
                    volume.delay = DELAY_MIN;
                }
                print_line(name, &format!("the server has ended: {how}"));
            }
            _ => {
                volume.lines.push(format!("not served: {how}"));
                if volume.lines == volume.printed {
                    volume.lines.clear();
                } else {
                    volume.printed = volume.lines.clone();
                    volume.print_lines();
                }
            }
        }
        if self.is_ending {
            self.unclean.push(name.to_owned());
        }
        if volume.then == Then::Leave {
            self.volumes.remove(name);
            return;
        }
        volume.then = Then::Stay;
        volume.state = State::Failed { again: Instant::now() + volume.delay };
        volume.delay = (volume.delay * 2).min(DELAY_MAX);
    }

    /// Reads the file again. One that makes no sense changes nothing.
    fn reload(&mut self) {
        match file::read(&self.file, &self.serve) {
            Ok(entries) => {
                self.take(entries);
                complain(&format!("{}: read again", self.file.display()));
            }
            Err(error) => complain(&format!("{}; all volumes stay as they are", error.message())),
        }
    }

    /// Makes the volumes those of the file: new and stopped ones are started, others are told of
    /// changes, and those that are gone are stopped.
    fn take(&mut self, entries: Vec<Entry>) {
        let is_left = |name: &String| entries.iter().all(|entry| entry.name != *name);
        for volume in self.volumes.values_mut().filter(|it| is_left(&it.entry.name)) {
            volume.then = Then::Leave;
            volume.end();
        }
        self.volumes.retain(|_, volume| {
            volume.then != Then::Leave
                || matches!(volume.state, State::Starting { .. } | State::Serving { .. })
        });
        for entry in entries {
            let volume = self.volumes.entry(entry.name.clone()).or_insert_with(|| Volume {
                entry: entry.clone(),
                started: entry.clone(),
                state: State::Stopped,
                delay: DELAY_MIN,
                lines: Vec::new(),
                printed: Vec::new(),
                then: Then::Stay,
            });
            volume.entry = entry;
            if volume.then == Then::Leave {
                volume.then = Then::Start;
            }
            match volume.state {
                State::Stopped | State::Failed { .. } => {
                    volume.delay = DELAY_MIN;
                    volume.printed.clear();
                    begin(volume, &self.program, &self.messages.0);
                }
                State::Starting { .. } | State::Serving { .. } => change(volume),
            }
        }
    }

    /// Tells systemd that the service is ready, when each server has once been started, and how
    /// many volumes are served.
    fn tell_systemd(&mut self) {
        let is_new = |it: &Volume| matches!(it.state, State::Starting { .. });
        let is_served = |it: &Volume| matches!(it.state, State::Serving { .. });
        if self.told.is_empty() && self.volumes.values().any(is_new) {
            return;
        }
        let count = self.volumes.values().filter(|it| is_served(it)).count();
        let others = self.volumes.iter().filter(|(_, it)| !is_served(it));
        let others: Vec<&str> = others.map(|(name, _)| name.as_str()).collect();
        let mut status = format!("STATUS=serving {count} of {} volumes", self.volumes.len());
        if !others.is_empty() {
            status.push_str(&format!("; not {}", others.join(", ")));
        }
        if status != self.told {
            let ready = if self.told.is_empty() { "READY=1\n" } else { "" };
            notify(&format!("{ready}{status}"));
            self.told = status;
        }
    }
}

/// Starts the server of a volume.
fn begin(volume: &mut Volume, program: &Path, messages: &Sender<Message>) {
    volume.state = State::Starting { process: None };
    volume.then = Then::Stay;
    volume.started = volume.entry.clone();
    volume.lines.clear();
    server::start(program.to_owned(), volume.entry.clone(), messages.clone());
}

/// Gives a running server the knobs of a new entry, and says what else has changed.
fn change(volume: &mut Volume) {
    let Volume { entry, started, .. } = volume;
    let name = entry.name.clone();
    let knobs = changed(&started.knobs, &entry.knobs);
    started.knobs.clone_from(&entry.knobs);
    if *started != *entry {
        complain(&format!(
            "{name}: has other settings in the file, which it gets when it starts: weft stop {name}, \
             then read the file again"
        ));
    }
    if knobs.is_empty() {
        return;
    }
    let told: Vec<String> = knobs.iter().map(|(knob, value)| format!("{knob}={value}")).collect();
    let told = told.join(" ");
    // A server that does not answer must not hold up the others.
    std::thread::spawn(move || {
        let asked = Target::connect(&name).and_then(|mut it| it.ask(Command::Set { knobs }));
        match asked {
            Ok(_) => complain(&format!("{name}: set {told}")),
            Err(error) => complain(&format!("{name}: not set: {told}: {}", error.message())),
        }
    });
}

/// Knobs that differ, with their new values in the form that servers take; the default for one that
/// the file no longer has.
fn changed(
    before: &BTreeMap<String, String>,
    after: &BTreeMap<String, String>,
) -> Vec<(String, String)> {
    let gone = before.keys().filter(|knob| !after.contains_key(*knob)).filter_map(|knob| {
        let default = Knobs::default().show(knob)?;
        Some((knob.clone(), default))
    });
    let new = after.iter().filter(|(knob, value)| before.get(*knob) != Some(*value));
    let new = new.map(|(knob, value)| (knob.clone(), crate::knobs::plain(knob, value)));
    gone.chain(new).collect()
}

/// Prints a line of a server's log, with the name of the volume.
fn print_line(name: &str, line: &str) {
    // An error is ignored: the service goes on without its log.
    let _ = writeln!(std::io::stderr().lock(), "{name}: {}", printable(line));
}

/// Shortest and longest time from a failure of a server to its next start.
const DELAY_MIN: Duration = Duration::from_secs(1);
const DELAY_MAX: Duration = Duration::from_secs(60);

/// Time between two looks at volumes that are not served.
const LOOK_AGAIN: Duration = Duration::from_millis(500);

/// Longest wait for a message while all volumes are served.
const LONGEST_WAIT: Duration = Duration::from_secs(3600);
