//! Server of one volume: a process of `weft serve`, what it says, and its end.
//!
//! Each volume has a process of its own, so that a fault in one takes no other down. A server
//! outlives a daemon that is killed, and belongs to the next daemon.

use std::io::{BufRead, BufReader, Read};
use std::os::fd::OwnedFd;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::Sender;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::Errno;
use rustix::process::{Pid, PidfdFlags, pidfd_open};

use super::file::Entry;
use super::members;
use crate::target::Target;

/// News for the daemon.
pub(super) enum Message {
    /// The file of volumes is to be read again (SIGHUP).
    Reload,
    /// All servers are to end (SIGTERM, SIGINT).
    Stop,
    /// News of the server of one volume.
    Of(String, News),
}

/// News of a server.
pub(super) enum News {
    /// The process runs; the descriptor is its pidfd.
    Started(OwnedFd),
    /// A line of its log.
    Line(String),
    /// Clients may connect, at these addresses.
    Ready(String),
    /// The server has ended in good order: it was told to.
    Stopped,
    /// The server has failed or was refused, or did not start; the reason is in its log. Here it is
    /// said how the process ended.
    Failed(String),
}

/// Starts the server of a volume, and threads that send its news. Members are looked for in such a
/// thread, because a device may not answer.
pub(super) fn start(program: PathBuf, entry: Entry, messages: Sender<Message>) {
    let volume = entry.name.clone();
    let tell = move |news| {
        // An error means that the daemon ends.
        let _ = messages.send(Message::Of(volume.clone(), news));
    };
    std::thread::spawn(move || {
        let adopted = adopt(&entry.name, &tell);
        let last = adopted.unwrap_or_else(|| serve(&program, &entry, &tell));
        tell(last.unwrap_or_else(News::Failed));
    });
}

/// Waits for the end of a server that runs already, and returns its last news; `None` if none runs.
fn adopt(name: &str, tell: &impl Fn(News)) -> Option<Result<News, String>> {
    let mut target = Target::connect(name).ok()?;
    let status = target.status().ok()?;
    let process = Pid::from_raw(i32::try_from(status.pid).ok()?)?;
    let process = pidfd_open(process, PidfdFlags::empty()).ok()?;
    let ended = process.try_clone().map_err(|error| format!("pidfd: {error}"));
    tell(News::Started(process));
    tell(News::Line(format!("process {} serves it already", status.pid)));
    tell(News::Ready(status.listen.join(" ")));
    let wait = |process: OwnedFd| loop {
        match poll(&mut [PollFd::new(&process, PollFlags::IN)], None) {
            Err(Errno::INTR) => {}
            Err(error) => break Err(format!("poll: {error}")),
            // Only a server that ends in good order removes its socket.
            Ok(_) if target.has_socket() => break Err("it has left its socket behind".into()),
            Ok(_) => break Ok(News::Stopped),
        }
    };
    Some(ended.and_then(wait))
}

/// Runs a server to its end. Returns the last news of it.
///
/// # Errors
/// The server could not be started, in a sentence.
fn serve(
    program: &PathBuf,
    entry: &Entry,
    tell: &(impl Fn(News) + Clone + Send + 'static),
) -> Result<News, String> {
    let members = members::find(entry)?;
    let failed = |error: std::io::Error| format!("{}: {error}", program.display());
    let mut child = Command::new(program)
        .args(entry.command(&[], &members))
        // These are for the daemon.
        .env_remove("NOTIFY_SOCKET")
        .env_remove("LISTEN_FDS")
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        // Ctrl-C is for the daemon, which then ends its servers.
        .process_group(0)
        .spawn()
        .map_err(failed)?;
    let process = pidfd_open(Pid::from_child(&child), PidfdFlags::empty());
    match process {
        Ok(process) => tell(News::Started(process)),
        Err(error) => {
            let _ = child.kill();
            let _ = child.wait();
            return Err(format!("pidfd_open: {error}"));
        }
    }
    let readers = [
        child.stdout.take().map(|out| each_line(out, tell.clone(), ready)),
        child
            .stderr
            .take()
            .map(|err| each_line(err, tell.clone(), |line| Some(News::Line(line.to_owned())))),
    ];
    let status = ended(&mut child, readers.into_iter().flatten())?;
    Ok(if status.success() { News::Stopped } else { News::Failed(status.to_string()) })
}

/// Waits for the end of a server, and a while for its last lines: another process may have its
/// pipes open.
fn ended(
    child: &mut Child,
    readers: impl Iterator<Item = JoinHandle<()>>,
) -> Result<std::process::ExitStatus, String> {
    let status = child.wait().map_err(|error| format!("wait: {error}"))?;
    let until = Instant::now() + LAST_LINES;
    for reader in readers {
        while !reader.is_finished() && Instant::now() < until {
            std::thread::sleep(Duration::from_millis(5));
        }
    }
    Ok(status)
}

/// News in a line of a server's standard output: the addresses behind `ready`.
fn ready(line: &str) -> Option<News> {
    line.strip_prefix("ready ").map(|addresses| News::Ready(addresses.to_owned()))
}

/// Starts a thread that makes news of the lines of a pipe.
fn each_line(
    pipe: impl Read + Send + 'static,
    tell: impl Fn(News) + Send + 'static,
    news: impl Fn(&str) -> Option<News> + Send + 'static,
) -> JoinHandle<()> {
    std::thread::spawn(move || {
        let lines = BufReader::new(pipe).split(b'\n');
        for line in lines.map_while(Result::ok) {
            if let Some(news) = news(String::from_utf8_lossy(&line).trim()) {
                tell(news);
            }
        }
    })
}

/// Longest wait for the last lines of a process that has ended.
const LAST_LINES: Duration = Duration::from_secs(1);
