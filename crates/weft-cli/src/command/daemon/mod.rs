//! `weft daemon`: serves all volumes of a file, each by a server of its own.

mod file;
mod members;
mod server;
mod service;

use std::ffi::OsString;
use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::sync::mpsc::Sender;

use clap::Args;
use serde_json::json;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use weft_terminal::outcome::{Exit, Failure, Outcome};
use weft_terminal::terminal::{print_json, quoted, stdout};

use crate::configuration::default_volumes;
use file::Entry;
use server::Message;
use service::Service;

/// Serves all volumes of a file, weft.toml, and starts their servers again when they fail
///
/// The file has a table [volume.NAME] for each volume. Keys are the long options of weft serve,
/// with members for its arguments and set for its knobs; with uuid or array and no members, these
/// are found among all block devices. Files of the folder weft.d beside it count too. SIGHUP has
/// the file read again: new volumes are started, those that are gone are stopped, and changed knobs
/// are set. A file that makes no sense changes nothing. SIGTERM ends all servers in good order.
///
/// Each volume that is ready is a line, ready NAME and its addresses, on standard output; what
/// servers say goes to standard error, behind the names of their volumes.
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

/// Runs the command. `serve` describes `weft serve`, which takes the options of the file.
pub(crate) fn run(arguments: &Daemon, serve: clap::Command) -> Outcome {
    let file = arguments.config.clone().map_or_else(default_volumes, Ok)?;
    let entries = file::read(&file, &serve)?;
    if arguments.check {
        return check(&entries, arguments.json);
    }
    let program = std::env::current_exe()
        .map_err(|error| Failure::failed(format!("the program's own path: {error}")))?;
    if let Some(name) = &arguments.volume {
        let entry = entries.iter().find(|entry| entry.name == *name);
        let names: Vec<&str> = entries.iter().map(|entry| entry.name.as_str()).collect();
        let entry = entry.ok_or_else(|| {
            let file = file.display();
            Failure::usage(format!(
                "{name}: {file} has no such volume; it has {}",
                names.join(", ")
            ))
        })?;
        let members = members::find(entry).map_err(Failure::failed)?;
        let words = entry.command(&arguments.options, &members);
        let error = std::process::Command::new(&program).args(words).exec();
        return Err(Failure::failed(format!("{}: {error}", program.display())));
    }
    if entries.is_empty() {
        return Err(Failure::usage(format!(
            "{}: found no volume, expected tables [volume.NAME]",
            file.display()
        )));
    }
    let service = Service::new(program, &file, serve);
    watch_signals(&service.sender())?;
    service.run(entries)
}

/// Prints what would be run.
fn check(entries: &[Entry], json: bool) -> Outcome {
    let commands = entries.iter().map(|entry| {
        let members: Vec<PathBuf> = entry.members.iter().map(PathBuf::from).collect();
        let words = entry.command(&[], &members);
        let words = words.iter().map(|word| quoted(word)).collect::<Vec<_>>().join(" ");
        (entry, format!("weft {words}"))
    });
    if json {
        let volumes = commands.map(|(it, line)| json!({"name": it.name, "command": line}));
        let volumes: Vec<_> = volumes.collect();
        print_json(&json!({"schema": "weft.daemon/1", "volumes": volumes}))?;
        return Ok(Exit::Done);
    }
    let mut out = stdout();
    for (entry, line) in commands {
        let found = if entry.members.is_empty() { " (members found when it starts)" } else { "" };
        writeln!(out, "{line}{found}")?;
    }
    out.flush()?;
    Ok(Exit::Done)
}

/// Turns signals into messages to the service, from now on.
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
