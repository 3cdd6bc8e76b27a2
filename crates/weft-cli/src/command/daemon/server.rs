//! Server of one volume: a process of `weft serve`, its output, and its end.
//!
//! Each volume has a process of its own, so that a fault in one does not end the others. A server
//! goes on if the daemon is killed; the next daemon takes it over.

use std::ffi::{OsStr, OsString};
use std::io::{BufRead, BufReader, Read};
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::mpsc::Sender;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::Errno;
use rustix::process::{Pid, PidfdFlags, geteuid, pidfd_open};
use weft_terminal::outcome::Failure;

use super::checks::Looked;
use super::file::Entry;
use super::members;
use super::schedule::Step;
use super::tuning::KnobAnswer;
use super::watch::Look;
use crate::target::Target;

/// Message to the service: from a handler of signals, or from a thread of a server.
pub(super) enum Message {
    /// The file of volumes is to be read again (SIGHUP).
    Reload,
    /// All servers are to end (SIGTERM, SIGINT).
    Stop,
    /// News of a server: name of its volume, number of its start, and the news.
    Of(String, u64, News),
}

/// News of one server.
pub(super) enum News {
    /// The server's process has been started or taken over; the descriptor is its pidfd.
    Started(OwnedFd),
    /// The server ran before this daemon, and is taken over. The words are its command line without
    /// the program.
    Adopted(Vec<OsString>),
    /// A line for the log: one that the server has printed, or one about the server.
    Line(String),
    /// Clients may connect to the server, at these addresses.
    Ready(String),
    /// The request that the server end has failed or was refused, for this reason.
    NotStopped(String),
    /// The server has answered changes of knobs.
    Tuned(Vec<KnobAnswer>),
    /// The server has answered with its state, from which the next step of scheduled checks
    /// follows.
    Looked(Result<Box<Looked>, String>),
    /// The server was asked whether it lives.
    Watched(Look),
    /// The server has answered the request of this step, to start or stop a check, or the request
    /// has failed.
    Checked(Step, Result<(), Failure>),
    /// The server has ended in good order, after a request to end, or its start was called off.
    Stopped,
    /// The server has failed or was refused, or did not start; the reason is in its log. The text
    /// tells how the process ended.
    Failed(String),
}

/// Start of a server, carried out by a thread. The daemon can call it off.
pub(super) struct Start {
    pub(super) program: PathBuf,
    pub(super) entry: Entry,
    /// Number of the start. It distinguishes the news of this server from those of an earlier
    /// server of the volume.
    pub(super) number: u64,
    pub(super) messages: Sender<Message>,
    /// Whether the start is called off. The thread holds the lock while it makes the process. Once
    /// the daemon has set the flag, either [`News::Started`] is on its way, or no process will be
    /// made.
    pub(super) is_off: Arc<Mutex<bool>>,
}

impl Start {
    /// Starts a thread that takes over the volume's server, if it runs, or else starts one, and
    /// sends its news. The thread also searches the members, because a device may not answer.
    pub(super) fn begin(self) {
        std::thread::spawn(move || {
            let adopted = self.adopt();
            let last = adopted.unwrap_or_else(|| self.serve());
            self.tell(last.unwrap_or_else(News::Failed));
        });
    }

    fn tell(&self, news: News) {
        // An error means that the daemon ends.
        let _ = self.messages.send(Message::Of(self.entry.name.clone(), self.number, news));
    }

    /// Takes over a server of the volume that runs already, and waits for its end. Returns the last
    /// news of the server, or the reason why it cannot be taken over; `None` if none runs.
    fn adopt(&self) -> Option<Result<News, String>> {
        let name = &self.entry.name;
        let mut target = Target::connect(name).ok()?;
        Some(self.adopt_from(&mut target))
    }

    fn adopt_from(&self, target: &mut Target) -> Result<News, String> {
        let (pid, uid) = target.peer().map_err(|error| format!("its control socket: {error}"))?;
        let is_ours = uid == geteuid().as_raw();
        let process = i32::try_from(pid).ok().and_then(Pid::from_raw).filter(|_| is_ours);
        let other =
            || format!("process {pid} serves a volume of this name, and is no server of this file");
        let process = pidfd_open(process.ok_or_else(other)?, PidfdFlags::empty());
        let process = process.map_err(|error| format!("process {pid}: {error}"))?;
        // If the process answers after this, it lived when the descriptor was opened, so the
        // descriptor names it and not a later process with its number.
        target.set_timeout(ANSWER_MAX);
        let status = target.status().map_err(|error| error.message().to_owned())?;
        let words = std::fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        let words = words.split(|byte| *byte == 0).map(|it| OsStr::from_bytes(it).to_owned());
        let words: Vec<OsString> = words.skip(1).collect();
        if !words.starts_with(&self.entry.command(&[], &[])[..2]) {
            return Err(other());
        }
        let ended = process.try_clone().map_err(|error| format!("pidfd: {error}"))?;
        self.tell(News::Started(process));
        self.tell(News::Line(format!("process {pid} serves it already")));
        self.tell(News::Adopted(words));
        self.tell(News::Ready(status.listen.join(" ")));
        loop {
            match poll(&mut [PollFd::new(&ended, PollFlags::IN)], None) {
                Err(Errno::INTR) => {}
                Err(error) => return Err(format!("poll: {error}")),
                // Only a server that ends in good order removes its socket.
                Ok(_) if target.has_socket() => return Err("without a stop".to_owned()),
                Ok(_) => return Ok(News::Stopped),
            }
        }
    }

    /// Starts a server, and waits for its end. Returns the last news of the server.
    ///
    /// # Errors
    /// The server could not be started, or the wait for its end failed; the text is a sentence.
    fn serve(&self) -> Result<News, String> {
        let members = members::find(&self.entry)?;
        let mut child = {
            let is_off = self.is_off.lock().unwrap_or_else(PoisonError::into_inner);
            if *is_off {
                return Ok(News::Stopped);
            }
            let mut child = self.spawn(&members)?;
            match pidfd_open(Pid::from_child(&child), PidfdFlags::empty()) {
                Ok(process) => self.tell(News::Started(process)),
                Err(error) => {
                    let _ = child.kill();
                    let _ = child.wait();
                    return Err(format!("pidfd_open: {error}"));
                }
            }
            child
        };
        let readers = [
            child.stdout.take().map(|out| self.each_line(out, ready)),
            child.stderr.take().map(|err| self.each_line(err, |it| Some(News::Line(it.into())))),
        ];
        let status = ended(&mut child, readers.into_iter().flatten())?;
        Ok(if status.success() { News::Stopped } else { News::Failed(status.to_string()) })
    }

    fn spawn(&self, members: &[PathBuf]) -> Result<Child, String> {
        let mut command = Command::new(&self.program);
        // These variables are meant for the daemon, not for its servers.
        FOR_DAEMON.iter().for_each(|name| _ = command.env_remove(name));
        command
            .args(self.entry.command(&[], members))
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            // Ctrl-C is for the daemon, which then ends its servers.
            .process_group(0)
            .spawn()
            .map_err(|error| format!("{}: {error}", self.program.display()))
    }

    /// Starts a thread that sends the news that `news` finds in the lines of a pipe. Returns the
    /// thread.
    fn each_line(
        &self,
        pipe: impl Read + Send + 'static,
        news: impl Fn(&str) -> Option<News> + Send + 'static,
    ) -> JoinHandle<()> {
        let (volume, number) = (self.entry.name.clone(), self.number);
        let messages = self.messages.clone();
        std::thread::spawn(move || {
            let lines = BufReader::new(pipe).split(b'\n');
            for line in lines.map_while(Result::ok) {
                if let Some(news) = news(String::from_utf8_lossy(&line).trim()) {
                    let _ = messages.send(Message::Of(volume.clone(), number, news));
                }
            }
        })
    }
}

/// Waits for the end of a server, and then up to [`LAST_LINES`] for its last lines: another process
/// may keep its pipes open. Returns the exit status of the server.
fn ended(
    child: &mut Child,
    readers: impl Iterator<Item = JoinHandle<()>>,
) -> Result<ExitStatus, String> {
    let status = child.wait().map_err(|error| format!("wait: {error}"))?;
    let until = Instant::now() + LAST_LINES;
    for reader in readers {
        while !reader.is_finished() && Instant::now() < until {
            std::thread::sleep(Duration::from_millis(5));
        }
    }
    Ok(status)
}

/// News in a line of a server's standard output: the addresses after `ready`; `None` for any other
/// line.
fn ready(line: &str) -> Option<News> {
    line.strip_prefix("ready ").map(|addresses| News::Ready(addresses.to_owned()))
}

/// Environment variables that systemd sets for the daemon alone; its servers do not get them.
const FOR_DAEMON: [&str; 6] = [
    "LISTEN_FDNAMES",
    "LISTEN_FDS",
    "LISTEN_PID",
    "NOTIFY_SOCKET",
    "WATCHDOG_PID",
    "WATCHDOG_USEC",
];

/// Longest wait for the answer of a server that is to be taken over.
const ANSWER_MAX: Duration = Duration::from_secs(10);

/// Longest wait for the last lines of a process that has ended.
const LAST_LINES: Duration = Duration::from_secs(1);
