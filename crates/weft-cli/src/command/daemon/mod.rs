//! `weft daemon`: serves all volumes of a file, each by a server of its own.

mod checks;
mod file;
mod log;
mod members;
mod record;
mod schedule;
mod server;
mod service;
mod tuning;
mod watch;

use std::ffi::OsString;
use std::fs::{File, TryLockError};
use std::hash::{Hash, Hasher};
use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::sync::mpsc::Sender;

use clap::Args;
use serde_json::json;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use weft_terminal::outcome::{Exit, Failure, Outcome};
use weft_terminal::terminal::{print_json, quoted, stdout};

use crate::configuration::default_volumes;
use crate::target::directory_for_sockets;
use file::Entry;
use members::is_pattern;
use schedule::{Schedule, exact};
use server::Message;
use service::Service;

/// Serves all volumes of a file, weft.toml, and starts their servers again when they fail
///
/// The file has a table [volume.NAME] for each volume. The keys of a table are the long options of
/// weft serve; the key members lists its arguments, and the key set its knobs. Without members, the
/// keys uuid or array select an array, and its members are searched among all block devices. The
/// files in the folder weft.d beside the file are read too. The key check has a volume checked
/// again and again (daily, weekly, monthly, 90d), and check-for limits that to a part of each day
/// (6h); outside of tables both count for all volumes. On SIGHUP the files are read again: new
/// volumes are started, removed volumes are stopped, and changed knobs are set. If a file is
/// invalid, nothing is changed. On SIGTERM all servers finish their requests and end. Under a
/// watchdog of systemd, a server that does not answer for that time is killed and started again.
///
/// For each volume that becomes ready, a line with ready, its name and its addresses is printed on
/// standard output. Messages of the servers are printed on standard error, each after the name of
/// its volume.
#[derive(Debug, Args)]
pub(crate) struct Daemon {
    /// File of the volumes [default: /etc/weft.toml for root, else ~/.config/weft.toml]; of an
    /// mdadm.conf, each ARRAY line is a volume
    #[arg(short, long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// Only check the file: print the command of each volume, and start nothing
    #[arg(long, conflicts_with = "volume")]
    check: bool,
    /// With --check: print one JSON object
    #[arg(long, requires = "check")]
    json: bool,
    /// Serve this volume of the file and no other, in this process, which becomes weft serve
    volume: Option<String>,
    /// Options of weft serve for this start alone
    #[arg(last = true, value_name = "OPTION", requires = "volume")]
    options: Vec<OsString>,
}

/// Runs the command. `serve` is the clap command of `weft serve`, which checks the options of the
/// file.
pub(crate) fn run(arguments: &Daemon, serve: clap::Command) -> Outcome {
    let file = arguments.config.clone().map_or_else(default_volumes, Ok)?;
    let entries = file::read(&file, &serve)?;
    if arguments.check {
        return check(&entries, arguments.json);
    }
    let program = std::env::current_exe()
        .map_err(|error| Failure::failed(format!("the program's own path: {error}")))?;
    if let Some(name) = &arguments.volume {
        let entry = entries.iter().find(|entry| entry.name == *name).ok_or_else(|| {
            let names: Vec<&str> = entries.iter().map(|entry| entry.name.as_str()).collect();
            let (file, names) = (file.display(), names.join(", "));
            Failure::usage(format!("{name}: {file} has no such volume; it has {names}"))
        })?;
        return Err(become_server(&program, entry, &arguments.options));
    }
    let _lock = lock(&file)?;
    let service = Service::new(program, &file, serve);
    watch_signals(&service.sender())?;
    service.run(entries)
}

/// Replaces this process by `weft serve` for one volume. Returns only if that fails, with the
/// reason.
fn become_server(program: &Path, entry: &Entry, options: &[OsString]) -> Failure {
    match members::find(entry) {
        Err(why) => Failure::failed(format!("{}: {why}", entry.name)),
        Ok(members) => {
            let words = entry.command(options, &members);
            let error = std::process::Command::new(program).args(words).exec();
            Failure::failed(format!("{}: {error}", program.display()))
        }
    }
}

/// Locks the file of volumes, so that no other daemon serves them while the returned file is open.
/// Another daemon's lock is a refusal.
fn lock(file: &Path) -> Result<File, Failure> {
    let failed = |path: &Path, error: &dyn std::fmt::Display| {
        Failure::failed(format!("{}: {error}", path.display()))
    };
    let file = std::fs::canonicalize(file).map_err(|error| failed(file, &error))?;
    let mut name = std::hash::DefaultHasher::new();
    file.hash(&mut name);
    let path = directory_for_sockets()?.join(format!("daemon-{:016x}.lock", name.finish()));
    let options = File::options().write(true).create(true).truncate(false).open(&path);
    let lock = options.map_err(|error| failed(&path, &error))?;
    match lock.try_lock() {
        Ok(()) => Ok(lock),
        Err(TryLockError::WouldBlock) => Err(Failure::refused(format!(
            "{}: another weft daemon serves its volumes; SIGHUP has it read the file again",
            file.display()
        ))),
        Err(TryLockError::Error(error)) => Err(failed(&path, &error)),
    }
}

/// Prints the command of each volume, one on each line or as JSON.
fn check(entries: &[Entry], json: bool) -> Outcome {
    let commands = entries.iter().map(|entry| {
        let words = entry.command(&[], &[]);
        let words = words.iter().map(|word| quoted(word)).collect::<Vec<_>>().join(" ");
        (entry, format!("weft {words}"))
    });
    if json {
        let members = |it: &Entry| (!it.members.is_empty()).then(|| it.members.clone());
        let check =
            |it: &Entry| it.check.map(|it| json!({"every_s": it.every, "for_s": it.per_day}));
        let volume = |(it, line): (&Entry, String)| {
            json!({
                "name": it.name, "command": line, "members": members(it), "check": check(it),
            })
        };
        let volumes: Vec<_> = commands.map(volume).collect();
        print_json(&json!({"schema": "weft.daemon/1", "volumes": volumes}))?;
        return Ok(Exit::Done);
    }
    let mut out = stdout();
    for (entry, line) in commands {
        // A shell finds what a pattern matches, as the daemon does.
        let shown = |member: &String| match is_pattern(member) {
            true => member.clone(),
            false => quoted(member.as_ref()),
        };
        let members: Vec<String> = entry.members.iter().map(shown).collect();
        let is_searched = members.is_empty().then(|| SEARCHED.to_owned());
        let members = if members.is_empty() { "…".to_owned() } else { members.join(" ") };
        let comments: Vec<String> = is_searched.into_iter().chain(checked(entry)).collect();
        let comments = match comments.is_empty() {
            true => String::new(),
            false => format!("  # {}", comments.join("; ")),
        };
        writeln!(out, "{line} {members}{comments}")?;
    }
    out.flush()?;
    Ok(Exit::Done)
}

/// Remark about the checks of a volume, in the output of `--check`; `None` if it is never checked.
fn checked(entry: &Entry) -> Option<String> {
    let Schedule { every, per_day } = entry.check?;
    let per_day = per_day.map(|per_day| format!(", for {} a day", exact(per_day)));
    Some(format!("checked every {}{}", exact(every), per_day.unwrap_or_default()))
}

/// Remark, in the output of `--check`, about a volume that searches its members.
const SEARCHED: &str = "members are found among all block devices";

/// Installs handlers of SIGHUP, SIGTERM and SIGINT, each of which sends the service a message.
fn watch_signals(messages: &Sender<Message>) -> Result<(), Failure> {
    let failed = |error: std::io::Error| Failure::failed(format!("signals: {error}"));
    for signal in [SIGHUP, SIGTERM, SIGINT] {
        let (mut told, tell) = UnixStream::pair().map_err(failed)?;
        signal_hook::low_level::pipe::register(signal, tell).map_err(failed)?;
        let messages = messages.clone();
        std::thread::spawn(move || {
            while told.read_exact(&mut [0]).is_ok() {
                let message = if signal == SIGHUP { Message::Reload } else { Message::Stop };
                if messages.send(message).is_err() {
                    break;
                }
            }
        });
    }
    Ok(())
}
