//! `weft monitor`: watches running volumes, and tells of events as mdadm --monitor does.
//!
//! Each look asks every server for its status, so an event that comes and goes between two looks is
//! not told.

mod events;

use std::collections::BTreeMap;
use std::io::Write;
use std::process::{Command, Stdio};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use clap::Args;
use weft_export::control::VolumeStatus;
use weft_terminal::outcome::{Exit, Failure, Outcome};
use weft_terminal::terminal::{complain, json_line, stdout};

use crate::states;
use crate::target;
use events::{Event, Seen, compare};

/// Tells of events of running volumes: failed members, rebuilds, volumes that come and go
///
/// Events have mdadm's names: DegradedArray, DeviceDisappeared, Fail, FailSpare, NewArray,
/// RebuildStarted, RebuildNN, RebuildFinished, SpareActive, TestMessage. Each is a line on standard
/// output. DegradedArray, DeviceDisappeared, Fail, FailSpare and TestMessage are mailed.
///
/// Exit status of --oneshot: 0, 1 when a named volume does not run, or 4 when one is degraded.
#[derive(Debug, Args)]
pub(crate) struct Monitor {
    /// Run PROGRAM for each event, with the event, the volume and, if there is one, the member
    #[arg(short, long, alias = "alert", value_name = "PROGRAM")]
    program: Option<std::path::PathBuf>,
    /// Mail alarms to ADDRESS, by sendmail
    #[arg(short, long, value_name = "ADDRESS", value_parser = address)]
    mail: Option<String>,
    /// Look every SECONDS
    #[arg(
        short,
        long,
        value_name = "SECONDS",
        default_value_t = 1,
        value_parser = clap::value_parser!(u32).range(1..=3600)
    )]
    delay: u32,
    /// Tell of a sync every PERCENT
    #[arg(
        short = 'r',
        long,
        value_name = "PERCENT",
        default_value_t = 20,
        value_parser = clap::value_parser!(u64).range(1..=99)
    )]
    increment: u64,
    /// Look once: tell which volumes are degraded, and end
    #[arg(short = '1', long)]
    oneshot: bool,
    /// Tell of TestMessage for every volume first, to see that mail and program work
    #[arg(short, long)]
    test: bool,
    /// Print one JSON object a line
    #[arg(long)]
    json: bool,
    /// Names of volumes [default: all that run, now or later]
    volumes: Vec<String>,
}

pub(crate) fn run(arguments: &Monitor) -> Outcome {
    let mut seen: BTreeMap<String, Option<Seen>> = BTreeMap::new();
    let mut is_first = true;
    loop {
        let running = target::running().into_iter().flat_map(|(_, status)| status.volumes);
        let wanted = |volume: &VolumeStatus| {
            arguments.volumes.is_empty() || arguments.volumes.contains(&volume.name)
        };
        let volumes: Vec<VolumeStatus> = running.filter(wanted).collect();
        for volume in &volumes {
            look(arguments, &mut seen, volume, is_first)?;
        }
        // A volume that is named and does not run is missing from the start.
        if is_first {
            let named = arguments.volumes.iter().cloned();
            named.for_each(|name| _ = seen.entry(name).or_default());
        }
        let absent: Vec<String> = seen
            .keys()
            .filter(|name| volumes.iter().all(|volume| volume.name != **name))
            .cloned()
            .collect();
        for name in &absent {
            seen.remove(name);
            tell(arguments, &Event::new("DeviceDisappeared", name, ""), &[])?;
        }
        if arguments.oneshot {
            if let Some(name) = absent.first() {
                return Err(Failure::failed(format!("{name}: no running volume has this name")));
            }
            let degraded = volumes.iter().any(|volume| volume.degraded > 0);
            return Ok(if degraded { Exit::Degraded } else { Exit::Done });
        }
        is_first = false;
        std::thread::sleep(Duration::from_secs(arguments.delay.into()));
    }
}

/// Tells what has happened to a volume since the last look at it.
fn look(
    arguments: &Monitor,
    seen: &mut BTreeMap<String, Option<Seen>>,
    volume: &VolumeStatus,
    is_first: bool,
) -> Result<(), Failure> {
    let name = volume.name.as_str();
    let advice = states::lines(&states::of_running(volume));
    if is_first && arguments.test {
        tell(arguments, &Event::new("TestMessage", name, ""), &advice)?;
    } else if !is_first && !seen.contains_key(name) {
        tell(arguments, &Event::new("NewArray", name, ""), &advice)?;
    }
    let before = seen.entry(name.to_owned()).or_default();
    for event in compare(before, volume, arguments.increment) {
        tell(arguments, &event, &advice)?;
    }
    Ok(())
}

/// Prints an event, runs the program for it, and mails it if it is an alarm. `advice` are lines
/// about the state of the volume.
fn tell(arguments: &Monitor, event: &Event, advice: &[String]) -> Result<(), Failure> {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
    let mut out = stdout();
    match arguments.json {
        true => write!(out, "{}", json_line(&event.to_json(now).to_string()))?,
        false => writeln!(out, "{}", event.text())?,
    }
    out.flush()?;
    if let Some(program) = &arguments.program {
        let mut command = Command::new(program);
        command.args([&event.name, &event.volume]);
        if !event.component.is_empty() {
            command.arg(&event.component);
        }
        // A program that fails must not end the watch.
        match command.stdin(Stdio::null()).stdout(Stdio::null()).status() {
            Ok(status) if status.success() => {}
            Ok(status) => complain(&format!("{}: {}: {status}", program.display(), event.name)),
            Err(error) => complain(&format!("{}: {error}", program.display())),
        }
    }
    let address = arguments.mail.as_ref().filter(|_| event.is_alarm());
    if let Some(Err(why)) = address.map(|address| mail(address, event, advice)) {
        complain(&format!("sendmail: {}: {why}", event.name));
    }
    Ok(())
}

/// Mails an event by sendmail.
fn mail(address: &str, event: &Event, advice: &[String]) -> Result<(), String> {
    let host = rustix::system::uname().nodename().to_string_lossy().into_owned();
    let mut text = format!(
        "To: {address}\nSubject: {} on {}:{host}\nAuto-Submitted: auto-generated\n\n{}.\n",
        event.name,
        event.volume,
        event.text()
    );
    for line in advice {
        text.push_str(&format!("{line}\n"));
    }
    text.push_str(&format!("\nThis mail is by weft monitor, on {host}.\n"));
    let mut child = Command::new(SENDMAIL)
        .arg("-t")
        .env("PATH", path())
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .spawn()
        .map_err(|error| format!("{error}; --program runs another one"))?;
    let written = child.stdin.take().expect("it is a pipe").write_all(text.as_bytes());
    let status = child.wait().map_err(|error| error.to_string())?;
    match written {
        Ok(()) if status.success() => Ok(()),
        Ok(()) => Err(status.to_string()),
        Err(error) => Err(format!("{error}, {status}")),
    }
}

/// Folders of programs, with those of administrators, where sendmail is.
fn path() -> std::ffi::OsString {
    let mut path = std::env::var_os("PATH").unwrap_or_default();
    path.push(":/usr/sbin:/usr/lib");
    path
}

/// Parses an address of mail, which becomes a line of its header.
fn address(text: &str) -> Result<String, String> {
    let is_plain = !text.is_empty() && !text.contains(|letter: char| letter.is_control());
    is_plain.then(|| text.to_owned()).ok_or_else(|| "expected an address of mail".to_owned())
}

const SENDMAIL: &str = "sendmail";
