//! The service: which servers run, when one is started again, and what changes when the file is
//! read again.
//!
//! A server that fails is started again, because a missing member may come later, and because a
//! crash must not keep clients waiting. The delay is a second at first, then twice as long each
//! time, up to a minute; when a block device comes or goes, the server is started sooner. A server
//! that ended in good order (`weft stop`) stays stopped until the file is read again.
//!
//! Servers are told to end through their control sockets, as by `weft stop`, and not by signals: a
//! second signal makes a server give up data that it cannot write, whereas a repeated request does
//! not. Only a second signal to the daemon itself makes the servers give up such data.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use rustix::process::{Signal, pidfd_send_signal};
use weft_export::control::Command;
use weft_terminal::outcome::{Exit, Failure, Outcome};

use super::checks::{Checks, Link};
use super::file::{self, Entry};
use super::log::Log;
use super::members;
use super::schedule::Running;
use super::server::{Message, News, Start};
use super::tuning::{self, Tuning};
use super::watch::{ServerWatch, Watch, monotonic_usec};
use crate::foreground::notify;
use crate::target::Target;
use crate::volumes_file::is_mdadm_conf;

/// Servers of all volumes of a file.
pub(super) struct Service {
    /// Path of the program `weft`, which every server runs.
    program: PathBuf,
    /// File of the volumes; `serve` is the clap command that checks its options.
    file: PathBuf,
    serve: clap::Command,
    volumes: BTreeMap<String, Volume>,
    messages: (Sender<Message>, Receiver<Message>),
    log: Log,
    /// Number of the last start of a server, counted over all volumes.
    starts: u64,
    /// Block devices of this machine when they were last listed, to find out whether a missing
    /// member has come; `None` while no server has failed.
    devices: Option<Vec<PathBuf>>,
    /// Times of the requests so far that the service end, each at least [`REQUESTS_APART`] after
    /// the one before.
    requests: Vec<Instant>,
    /// Names of volumes with a server that failed, instead of ending in good order, after it was
    /// told to end.
    unclean: Vec<String>,
    began: Instant,
    watch: Option<Watch>,
    /// Last status that was sent to systemd; empty before READY.
    told: String,
}

/// A volume and its server.
struct Volume {
    entry: Entry,
    /// Entry with which the server was started.
    started: Entry,
    state: State,
    /// Number of the start to which `state` belongs.
    number: u64,
    /// Flag that calls off a start that has no process yet.
    is_off: Arc<Mutex<bool>>,
    /// Time from a failed start to the next start; `crash_delay` is the time from the failure of a
    /// ready server to the next start.
    start_delay: Duration,
    crash_delay: Duration,
    /// Log lines of a server that is not ready yet. They are printed when the server becomes ready,
    /// when it is not ready after [`SILENT_MAX`], or when it fails and they differ from `printed`,
    /// the lines of the failed start before.
    lines: Vec<String>,
    printed: Vec<String>,
    /// Whether the server was asked to end, and has neither ended nor refused.
    is_ending: bool,
    tuning: Tuning,
    checks: Checks,
    watch: ServerWatch,
    then: Then,
}

/// State of a server. `process` is its pidfd.
enum State {
    /// The members are searched. `is_told`: whether the log says that this takes long.
    Searching { since: Instant, is_told: bool },
    /// The server runs, and assembles the array.
    Starting { process: OwnedFd, since: Instant },
    /// Clients may connect.
    Serving { process: OwnedFd, since: Instant },
    /// The server has failed at `since`, and is started again at `again`.
    Failed { since: Instant, again: Instant },
    /// The server has ended in good order.
    Stopped,
}

/// Action that follows when the server of a volume has ended in good order.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Then {
    /// The volume stays stopped.
    Stay,
    /// The volume is removed from the service, because the file no longer has it.
    Leave,
    /// The volume is started: it was removed from the file, and added again before its server had
    /// ended.
    Start,
}

impl Volume {
    fn new(entry: Entry) -> Self {
        Self {
            started: entry.clone(),
            entry,
            state: State::Stopped,
            number: 0,
            is_off: Arc::default(),
            start_delay: DELAY_MIN,
            crash_delay: DELAY_MIN,
            lines: Vec::new(),
            printed: Vec::new(),
            is_ending: false,
            tuning: Tuning::default(),
            checks: Checks::default(),
            watch: ServerWatch::default(),
            then: Then::Stay,
        }
    }

    /// Whether the volume has a server, or one is being started.
    fn has_server(&self) -> bool {
        !matches!(self.state, State::Failed { .. } | State::Stopped)
    }

    fn is_failed(&self) -> bool {
        matches!(self.state, State::Failed { .. })
    }

    fn is_served(&self) -> bool {
        matches!(self.state, State::Serving { .. })
    }

    /// Whether the volume has scheduled checks and a ready server, which was not asked to end.
    fn has_checks(&self) -> bool {
        self.entry.check.is_some() && self.is_served() && !self.is_ending
    }

    /// Logs the lines of a server's start that were held back.
    fn print_lines(&mut self, log: &Log) {
        for line in std::mem::take(&mut self.lines) {
            log.of(&self.entry.name, &line);
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
            log: Log::start(),
            starts: 0,
            devices: None,
            requests: Vec::new(),
            unclean: Vec::new(),
            began: Instant::now(),
            watch: Watch::of_environment(),
            told: String::new(),
        }
    }

    /// Sender of messages to the service.
    pub(super) fn sender(&self) -> Sender<Message> {
        self.messages.0.clone()
    }

    /// Serves the volumes of `entries` until the service is told to end.
    ///
    /// # Errors
    /// A server did not end in good order.
    pub(super) fn run(mut self, entries: Vec<Entry>) -> Outcome {
        self.take(entries);
        while !self.has_ended() {
            self.tell_systemd();
            let is_quiet = self.volumes.values().all(|it| it.is_served() || !it.has_server())
                && !self.volumes.values().any(Volume::is_failed);
            let wait = if is_quiet { LONGEST_WAIT } else { LOOK_AGAIN };
            let next = [self.until_check(), self.until_tune(), self.watch_servers()];
            let next = next.into_iter().flatten().min();
            let wait = next.map_or(wait, |until| until.min(wait));
            match self.messages.1.recv_timeout(wait) {
                Ok(Message::Reload) if self.requests.is_empty() => self.reload(),
                Ok(Message::Stop) => self.end(),
                Ok(Message::Of(name, number, news)) => self.hear(&name, number, news),
                Ok(Message::Reload) | Err(_) => {}
            }
            self.look();
            self.look_at_checks();
        }
        self.log.flush();
        if self.unclean.is_empty() {
            return Ok(Exit::Done);
        }
        Err(Failure::failed(format!("did not stop in good order: {}", self.unclean.join(", "))))
    }

    /// Whether the service was told to end and no server is left. Messages that have arrived
    /// meanwhile are handled first.
    fn has_ended(&mut self) -> bool {
        if self.requests.is_empty() {
            return false;
        }
        // A start that was called off may have made a process just before.
        while let Ok(message) = self.messages.1.try_recv() {
            match message {
                Message::Of(name, number, news) => self.hear(&name, number, news),
                Message::Stop => self.end(),
                Message::Reload => {}
            }
        }
        !self.volumes.values().any(Volume::has_server)
    }

    /// Asks all servers to end. The first call asks for an end in good order, the second makes
    /// servers give up data that cannot be written, and the third kills them, which leaves arrays
    /// dirty. A call within [`REQUESTS_APART`] of the last one is ignored.
    fn end(&mut self) {
        let now = Instant::now();
        if self.requests.last().is_some_and(|last| now.duration_since(*last) < REQUESTS_APART) {
            return;
        }
        self.requests.push(now);
        notify("STOPPING=1");
        for volume in self.volumes.values_mut() {
            match (self.requests.len(), &volume.state) {
                (1, state) => {
                    let is_searching = matches!(state, State::Searching { .. });
                    ask_to_end(volume, false, &self.messages.0);
                    if is_searching {
                        volume.state = State::Stopped;
                    }
                }
                (2, _) => {
                    volume.is_ending = false;
                    ask_to_end(volume, true, &self.messages.0);
                }
                (_, State::Starting { process, .. } | State::Serving { process, .. }) => {
                    // An error means that the process has ended.
                    let _ = pidfd_send_signal(process, Signal::KILL);
                }
                _ => {}
            }
        }
    }

    /// Starts volumes that have failed when their delay is over, or sooner if the block devices
    /// have changed. Has servers set knobs that had to wait. Logs that a search for
    /// members takes long, and the lines of starts that take long.
    fn look(&mut self) {
        let now = Instant::now();
        for volume in self.volumes.values_mut() {
            match &mut volume.state {
                State::Searching { since, is_told: is_told @ false }
                    if now.duration_since(*since) > SILENT_MAX =>
                {
                    *is_told = true;
                    self.log.of(&volume.entry.name, "still looks for its members");
                }
                State::Starting { since, .. }
                    if now.duration_since(*since) > SILENT_MAX
                        || volume.lines.len() > LINES_MAX =>
                {
                    volume.print_lines(&self.log);
                }
                State::Serving { .. } => tune(volume, &self.messages.0),
                _ => {}
            }
        }
        if !self.requests.is_empty() || !self.volumes.values().any(Volume::is_failed) {
            self.devices = None;
            return;
        }
        let devices = members::devices().ok();
        let are_others = self.devices.is_some() && self.devices != devices;
        self.devices = devices;
        let mut saved = None;
        for volume in self.volumes.values_mut() {
            let State::Failed { since, again } = volume.state else { continue };
            if again <= now || are_others && since + DELAY_MIN <= now {
                // `weft set --save` may have changed knobs since the file was read. A file with a
                // mistake changes nothing, and an mdadm.conf has no knobs.
                let entries = saved.get_or_insert_with(|| match is_mdadm_conf(&self.file) {
                    true => Vec::new(),
                    false => file::read(&self.file, &self.serve).unwrap_or_default(),
                });
                if let Some(entry) = entries.iter().find(|it| it.name == volume.entry.name) {
                    volume.entry.knobs.clone_from(&entry.knobs);
                }
                begin(volume, &self.program, &self.messages.0, &mut self.starts);
            } else if are_others {
                volume.state = State::Failed { since, again: since + DELAY_MIN };
            }
        }
    }

    /// Time until the server of some volume is to be asked again to set knobs; `None` if none is.
    fn until_tune(&self) -> Option<Duration> {
        let now = Instant::now();
        let served = self.volumes.values().filter(|it| it.is_served() && !it.is_ending);
        served.filter_map(|it| it.tuning.wait(now)).min()
    }

    /// Time until the server of some volume is to be asked for its status for scheduled checks;
    /// `None` if none is.
    fn until_check(&self) -> Option<Duration> {
        let now = Instant::now();
        let waits = self.volumes.values().filter(|it| self.requests.is_empty() && it.has_checks());
        waits.filter_map(|volume| volume.checks.wait(now)).min()
    }

    /// Asks servers for their status for scheduled checks, if the time for that has come.
    fn look_at_checks(&mut self) {
        if !self.requests.is_empty() {
            return;
        }
        let now = Instant::now();
        for volume in self.volumes.values_mut().filter(|it| it.has_checks()) {
            if volume.checks.wait(now) == Some(Duration::ZERO) {
                let Volume { entry, number, checks, .. } = volume;
                let (messages, log) = (&self.messages.0, &self.log);
                checks.look(&Link { name: &entry.name, number: *number, messages, log });
            }
        }
    }

    /// Passes the answer of a server about scheduled checks on to the checks of its volume. The
    /// answer is dropped if the volume has no schedule now, or its server is to end.
    fn hear_of_check(&mut self, name: &str, news: News) {
        let others = self.volumes.iter().filter(|(other, it)| *other != name && it.has_checks());
        let running = others.filter_map(|(other, it)| it.checks.running(other));
        let running: Vec<Running> = running.collect();
        let Some(volume) = self.volumes.get_mut(name) else { return };
        let is_quiet = self.requests.is_empty() && !volume.is_ending;
        let Some(schedule) = volume.entry.check.filter(|_| is_quiet) else {
            volume.checks.server_starts();
            return;
        };
        let (messages, log) = (&self.messages.0, &self.log);
        let link = Link { name, number: volume.number, messages, log };
        match news {
            News::Looked(looked) => volume.checks.looked(&link, schedule, looked, &running),
            News::Checked(step, answer) => volume.checks.checked(&link, schedule, step, answer),
            _ => {}
        }
    }

    /// Tells systemd that the service lives, looks at the servers for which it is time, and kills
    /// those that have not answered for the time of the watchdog. Returns the time until the next
    /// of these.
    fn watch_servers(&mut self) -> Option<Duration> {
        let watch = self.watch.as_mut()?;
        let now = Instant::now();
        let mut next = watch.ping(now);
        for (name, volume) in &mut self.volumes {
            let State::Serving { process, .. } = &volume.state else { continue };
            if volume.is_ending {
                continue;
            }
            if let Some(limit) = watch.limit().filter(|limit| volume.watch.is_silent(now, *limit)) {
                self.log.of(name, &format!("has not answered for {} s: killed", limit.as_secs()));
                // An error means that the process has ended.
                let _ = pidfd_send_signal(process, Signal::KILL);
                volume.watch = ServerWatch::default();
            } else if volume.watch.wait(now) == Some(Duration::ZERO) {
                volume.watch.look(name, volume.number, &self.messages.0);
            }
            let waits = volume.watch.wait(now).unwrap_or(watch.looks_apart());
            next = Some(next.map_or(waits, |next| next.min(waits)));
        }
        next
    }

    fn hear(&mut self, name: &str, number: u64, news: News) {
        let Some(volume) = self.volumes.get_mut(name) else { return };
        if volume.number != number {
            // The news are of a former server of the volume: only its lines are of interest.
            if let News::Line(line) = news {
                self.log.of(name, &line);
            }
            return;
        }
        match news {
            News::Started(process) => {
                volume.state = State::Starting { process, since: Instant::now() };
                if !self.requests.is_empty() || volume.then != Then::Stay {
                    volume.is_ending = false;
                    ask_to_end(volume, false, &self.messages.0);
                }
            }
            News::Adopted(words) => adopted(volume, &words, &self.log),
            News::Line(line) if matches!(volume.state, State::Starting { .. }) => {
                volume.lines.push(line);
            }
            News::Line(line) => self.log.of(name, &line),
            News::Ready(addresses) => self.ready(name, &addresses),
            News::NotStopped(why) => {
                volume.is_ending = false;
                let next = match volume.then {
                    _ if !self.requests.is_empty() => "a second SIGTERM gives up what is unwritten",
                    Then::Leave => "it is no longer in the file, and goes on until weft stop",
                    Then::Stay | Then::Start => "it goes on",
                };
                self.log.of(name, &format!("not stopped: {why}; {next}"));
                if volume.then == Then::Start {
                    volume.then = Then::Stay;
                }
            }
            News::Tuned(answers) => {
                let lines = volume.tuning.answered(answers, Instant::now());
                lines.iter().for_each(|line| self.log.of(name, line));
                tune(volume, &self.messages.0);
            }
            News::Watched(look) => {
                let again = self.watch.as_ref().map_or(LONGEST_WAIT, Watch::looks_apart);
                volume.watch.looked(look, again);
            }
            news @ (News::Looked(_) | News::Checked(..)) => self.hear_of_check(name, news),
            News::Stopped => self.stopped(name),
            News::Failed(how) => self.failed(name, &how),
        }
    }

    /// Handles the news that clients of a volume may connect, at `addresses`.
    fn ready(&mut self, name: &str, addresses: &str) {
        let Some(volume) = self.volumes.get_mut(name) else { return };
        volume.print_lines(&self.log);
        volume.printed.clear();
        volume.start_delay = DELAY_MIN;
        volume.state = match std::mem::replace(&mut volume.state, State::Stopped) {
            State::Starting { process, .. } => State::Serving { process, since: Instant::now() },
            other => other,
        };
        self.log.out(format!("ready {name} {addresses}"));
        if volume.is_ending {
            // The request came before there was a control socket.
            volume.is_ending = false;
            ask_to_end(volume, false, &self.messages.0);
        }
        tune(volume, &self.messages.0);
    }

    /// Handles the news that a server has ended in good order: starts the volume again, removes it,
    /// or leaves it stopped.
    fn stopped(&mut self, name: &str) {
        let Some(volume) = self.volumes.get_mut(name) else { return };
        volume.print_lines(&self.log);
        volume.state = State::Stopped;
        match volume.then {
            Then::Start if self.requests.is_empty() => {
                begin(volume, &self.program, &self.messages.0, &mut self.starts);
            }
            Then::Leave => _ = self.volumes.remove(name),
            Then::Stay | Then::Start => {}
        }
    }

    /// Plans the next start of a server that has failed, or removes its volume if the file no
    /// longer has it. `how` says how the server ended, or why it did not start.
    fn failed(&mut self, name: &str, how: &str) {
        let Some(volume) = self.volumes.get_mut(name) else { return };
        let now = Instant::now();
        let delay = if let State::Serving { since, .. } = volume.state {
            if now.duration_since(since) > DELAY_MAX {
                volume.crash_delay = DELAY_MIN;
            }
            self.log.of(name, &format!("the server has ended: {how}"));
            if !self.requests.is_empty() || volume.then == Then::Leave {
                self.unclean.push(name.to_owned());
            }
            &mut volume.crash_delay
        } else {
            volume.lines.push(format!("not served: {how}"));
            if volume.lines == volume.printed {
                volume.lines.clear();
            } else {
                volume.printed.clone_from(&volume.lines);
                volume.print_lines(&self.log);
            }
            &mut volume.start_delay
        };
        volume.state = State::Failed { since: now, again: now + *delay };
        *delay = (*delay * 2).min(DELAY_MAX);
        match volume.then {
            Then::Leave => _ = self.volumes.remove(name),
            Then::Stay | Then::Start => volume.then = Then::Stay,
        }
    }

    /// Reads the file again. If the file is invalid, nothing changes.
    fn reload(&mut self) {
        // Before the service is ready, systemd waits for that.
        let is_told = !self.told.is_empty();
        if is_told {
            notify(&format!("RELOADING=1\nMONOTONIC_USEC={}", monotonic_usec()));
        }
        match file::read(&self.file, &self.serve) {
            Ok(entries) => {
                self.take(entries);
                self.log.service(&format!("{}: read again", self.file.display()));
            }
            Err(error) => {
                self.log.service(&format!("{}; all volumes stay as they are", error.message()));
            }
        }
        if is_told {
            notify("READY=1");
        }
    }

    /// Makes the service serve the volumes of the file: starts volumes that are new or stopped,
    /// gives running servers their changed knobs, and stops servers of volumes that the file no
    /// longer has.
    fn take(&mut self, entries: Vec<Entry>) {
        let is_left = |name: &String| entries.iter().all(|entry| entry.name != *name);
        for volume in self.volumes.values_mut().filter(|it| is_left(&it.entry.name)) {
            if volume.then != Then::Leave {
                volume.then = Then::Leave;
                ask_to_end(volume, false, &self.messages.0);
            }
        }
        self.volumes.retain(|_, volume| volume.then != Then::Leave || volume.has_server());
        for entry in entries {
            let name = entry.name.clone();
            let volume = self.volumes.entry(name).or_insert_with(|| Volume::new(entry.clone()));
            volume.entry = entry;
            if volume.then == Then::Leave {
                volume.then = if volume.is_ending { Then::Start } else { Then::Stay };
            }
            if !volume.has_server() {
                (volume.start_delay, volume.crash_delay) = (DELAY_MIN, DELAY_MIN);
                volume.printed.clear();
                begin(volume, &self.program, &self.messages.0, &mut self.starts);
                continue;
            }
            volume.checks.settings_come();
            volume.tuning.settings_come();
            let (knobs, check) = (volume.entry.knobs.clone(), volume.entry.check);
            if (Entry { knobs, check, ..volume.started.clone() }) != volume.entry {
                self.log.of(&volume.entry.name, NEW_SETTINGS);
            }
            tune(volume, &self.messages.0);
        }
    }

    /// Tells systemd in a line how many volumes are served and which are not in order, when that
    /// has changed. The first message, which says that the service is ready, waits until no server
    /// is being started, but at most [`READY_MAX`].
    fn tell_systemd(&mut self) {
        let is_new = |it: &Volume| it.has_server() && !it.is_served();
        let is_early = self.began.elapsed() < READY_MAX;
        if self.told.is_empty() && is_early && self.volumes.values().any(is_new) {
            return;
        }
        let count = self.volumes.values().filter(|it| it.is_served()).count();
        let others = self.volumes.iter().filter(|(_, it)| !it.is_served());
        let others: Vec<&str> = others.map(|(name, _)| name.as_str()).collect();
        let mut status = format!("STATUS=serving {count} of {} volumes", self.volumes.len());
        let now = Instant::now();
        for (name, volume) in self.volumes.iter().filter(|(_, it)| it.is_served()) {
            let remarks = volume.watch.remarks(now);
            if !remarks.is_empty() {
                status.push_str(&format!("; {name}: {remarks}"));
            }
        }
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

/// Starts the server of a volume, with the next number of `starts`.
fn begin(volume: &mut Volume, program: &Path, messages: &Sender<Message>, starts: &mut u64) {
    *starts += 1;
    volume.state = State::Searching { since: Instant::now(), is_told: false };
    volume.then = Then::Stay;
    volume.started = volume.entry.clone();
    volume.number = *starts;
    volume.is_off = Arc::default();
    volume.lines.clear();
    volume.is_ending = false;
    volume.tuning = Tuning::of_start(&volume.entry.knobs);
    volume.checks.server_starts();
    volume.watch = ServerWatch::default();
    let start = Start {
        program: program.to_owned(),
        entry: volume.entry.clone(),
        number: *starts,
        messages: messages.clone(),
        is_off: Arc::clone(&volume.is_off),
    };
    start.begin();
}

/// Asks the server of a volume to end in good order, unless it was asked already; with `discard` it
/// gives up what it cannot write. A start without a process is called off, and a server without a
/// control socket, which has no data of clients, gets a signal.
fn ask_to_end(volume: &mut Volume, discard: bool, messages: &Sender<Message>) {
    if std::mem::replace(&mut volume.is_ending, true) {
        return;
    }
    match &volume.state {
        State::Searching { .. } => {
            *volume.is_off.lock().unwrap_or_else(PoisonError::into_inner) = true;
        }
        State::Starting { process, .. } => {
            // An error means that the process has ended.
            let _ = pidfd_send_signal(process, Signal::TERM);
        }
        State::Serving { .. } => {
            let (name, number) = (volume.entry.name.clone(), volume.number);
            let messages = messages.clone();
            // The answer comes when all is written.
            std::thread::spawn(move || {
                let stop = Command::Stop { discard };
                let asked = Target::connect(&name).and_then(|mut target| target.ask(stop));
                if let Err(error) = asked {
                    let why = News::NotStopped(error.message().to_owned());
                    let _ = messages.send(Message::Of(name, number, why));
                }
            });
        }
        State::Failed { .. } | State::Stopped => volume.is_ending = false,
    }
}

/// Compares the command line `words` of a running server, which is taken over, with the entry of
/// its volume: logs different options, and has all knobs set again.
fn adopted(volume: &mut Volume, words: &[OsString], log: &Log) {
    let is_knob = |word: &&OsString| word.to_str().is_some_and(|it| it.starts_with("--set="));
    let options = |words: &[OsString]| {
        let all = words.iter().take_while(|word| *word != "--");
        all.filter(|word| !is_knob(word)).cloned().collect::<Vec<_>>()
    };
    if options(words) != options(&volume.entry.command(&[], &[])) {
        log.of(&volume.entry.name, NEW_SETTINGS);
    }
    // Knobs may have been set since the server started, so all knobs of the file are set again.
    volume.tuning = Tuning::default();
}

/// Asks a running server to set the knobs of its entry, as far as they differ from its own.
fn tune(volume: &mut Volume, messages: &Sender<Message>) {
    if !volume.is_served() || volume.is_ending {
        return;
    }
    let knobs = volume.tuning.next(&volume.entry.knobs, Instant::now());
    if knobs.is_empty() {
        return;
    }
    let (name, number, messages) = (volume.entry.name.clone(), volume.number, messages.clone());
    // A server that does not answer must not hold up the others.
    std::thread::spawn(move || {
        let news = News::Tuned(tuning::ask(&name, knobs));
        let _ = messages.send(Message::Of(name, number, news));
    });
}

/// Line about a server that runs with other options than those of the file.
const NEW_SETTINGS: &str =
    "has other settings in the file, which it gets when it starts: weft stop, then read it again";

/// Shortest time from a failure of a server to its next start; [`DELAY_MAX`] is the longest.
const DELAY_MIN: Duration = Duration::from_secs(1);
const DELAY_MAX: Duration = Duration::from_secs(60);

/// Longest wait for a message while a volume is being started or has failed.
const LOOK_AGAIN: Duration = Duration::from_millis(500);

/// Longest wait for a message while all volumes are served or stopped.
const LONGEST_WAIT: Duration = Duration::from_secs(3600);

/// Shortest time between two requests that the service end; one that comes sooner is ignored.
const REQUESTS_APART: Duration = Duration::from_secs(2);

/// Longest time from the start of the service until systemd is told that it is ready.
const READY_MAX: Duration = Duration::from_secs(60);

/// Longest time for which the lines of a start are held back; [`LINES_MAX`] is their largest
/// number.
const SILENT_MAX: Duration = Duration::from_secs(5);
const LINES_MAX: usize = 1000;
