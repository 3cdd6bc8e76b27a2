//! `weft monitor`: watches running volumes, and reports events as mdadm --monitor does.
//!
//! Every server is asked for its status at regular intervals. An event that comes and goes within
//! an interval is not reported.

mod events;
mod moving;
mod spare_groups;

use std::collections::{BTreeMap, BTreeSet};
use std::io::Write;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use clap::Args;
use weft_export::control::VolumeStatus;
use weft_terminal::outcome::{Exit, Failure, Outcome};
use weft_terminal::terminal::{complain, json_line, stdout};

use crate::mdadm_conf::{Config, address};
use crate::states;
use crate::target;
use events::{Event, Seen, compare};
use moving::{Moved, Targets};
use spare_groups::Move;

/// Tells of events of running volumes: failed members, rebuilds, volumes that come and go
///
/// Events have mdadm's names: DegradedArray, DeviceDisappeared, Fail, FailSpare, MoveSpare,
/// NewArray, RebuildStarted, RebuildNN, RebuildFinished, SpareActive, SparesMissing, TestMessage.
/// Each is a line on standard output. DegradedArray, DeviceDisappeared, Fail, FailSpare,
/// SparesMissing and TestMessage are mailed.
///
/// With --config, arrays of one spare-group share their spares: one that misses a member and has no
/// spare gets one of an array that is whole.
///
/// Exit status of --oneshot: 0, 1 when a named volume does not run, or 4 when one is degraded.
#[derive(Debug, Args)]
pub(crate) struct Monitor {
    /// Run PROGRAM for each event, with the event, the volume and, if there is one, the member
    #[arg(short, long, alias = "alert", value_name = "PROGRAM")]
    program: Option<PathBuf>,
    /// Mail alarms to ADDRESS, by sendmail
    #[arg(short, long, value_name = "ADDRESS", value_parser = address)]
    mail: Option<String>,
    /// Read ARRAY lines (spares=, spare-group=), MAILADDR and PROGRAM of an mdadm.conf
    #[arg(short, long, value_name = "FILE")]
    config: Option<PathBuf>,
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
    let config = match &arguments.config {
        Some(path) => Config::read(path).map_err(Failure::usage)?,
        None => Config::default(),
    };
    for remark in &config.remarks {
        complain(&format!("{remark}; the line is left out"));
    }
    let (seen, stuck, homeless) = (BTreeMap::new(), BTreeSet::new(), BTreeMap::new());
    let mut watch = Watch { arguments, config, seen, stuck, homeless };
    let mut is_first = true;
    loop {
        let (mut targets, volumes) = watch.running();
        for volume in &volumes {
            watch.look(volume, is_first)?;
        }
        // A volume that is named and does not run is missing from the start.
        if is_first {
            let named = arguments.volumes.iter().cloned();
            named.for_each(|name| _ = watch.seen.entry(name).or_default());
        }
        let absent: Vec<String> = watch
            .seen
            .keys()
            .filter(|name| volumes.iter().all(|volume| volume.name != **name))
            .cloned()
            .collect();
        for name in &absent {
            watch.seen.remove(name);
            watch.tell(&Event::new("DeviceDisappeared", name, ""), &[])?;
        }
        watch.share_spares(&mut targets, &volumes)?;
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

/// State of the watch: the volumes as they were last seen, and the spares that could not be moved.
struct Watch<'a> {
    arguments: &'a Monitor,
    config: Config,
    /// State of each volume at its last status, by the name of the volume; `None` for a volume that
    /// is named and has not run yet.
    seen: BTreeMap<String, Option<Seen>>,
    /// Spares that are not offered again to a volume with a missing member, because that volume has
    /// refused them: label of the spare, and name of the volume.
    stuck: BTreeSet<(String, String)>,
    /// Spares that belong to no volume, because the new volume refused them and the former one did
    /// not take them back: name of the former volume, by label of the spare.
    homeless: BTreeMap<String, String>,
}

impl Watch<'_> {
    /// Servers and statuses of the running volumes that are watched.
    fn running(&self) -> (Targets, Vec<VolumeStatus>) {
        let wanted = |volume: &VolumeStatus| {
            self.arguments.volumes.is_empty() || self.arguments.volumes.contains(&volume.name)
        };
        let (mut targets, mut volumes) = (Targets::new(), Vec::new());
        for (target, status) in target::running() {
            let Some(volume) = status.volumes.into_iter().next().filter(wanted) else { continue };
            targets.insert(volume.name.clone(), target);
            volumes.push(volume);
        }
        (targets, volumes)
    }

    /// Reports the events of a volume since its last status. `is_first` is true for the first
    /// statuses after the start of the command.
    fn look(&mut self, volume: &VolumeStatus, is_first: bool) -> Result<(), Failure> {
        let name = volume.name.as_str();
        let advice = states::lines(&states::of_running(volume));
        let is_new = !self.seen.contains_key(name);
        if is_first && self.arguments.test {
            self.tell(&Event::new("TestMessage", name, ""), &advice)?;
        } else if !is_first && is_new {
            self.tell(&Event::new("NewArray", name, ""), &advice)?;
        }
        let expected = self.config.line_of(volume).map_or(0, |line| line.spares);
        if is_new && spare_groups::count(volume) < expected {
            self.tell(&Event::new("SparesMissing", name, ""), &advice)?;
        }
        let before = self.seen.entry(name.to_owned()).or_default();
        for event in compare(before, volume, self.arguments.increment) {
            self.tell(&event, &advice)?;
        }
        Ok(())
    }

    /// Moves one spare to a volume that lacks a member, from another volume of its spare group.
    /// Does nothing if there is no such pair of volumes. Spares that belong to no volume are first
    /// given back.
    fn share_spares(
        &mut self,
        targets: &mut Targets,
        volumes: &[VolumeStatus],
    ) -> Result<(), Failure> {
        let is_member = |label: &String| {
            volumes.iter().flat_map(|it| &it.members).any(|member| member.label == *label)
        };
        self.homeless
            .retain(|label, from| !is_member(label) && moving::add(targets, from, label).is_err());
        let needs = |name: &String| {
            volumes.iter().any(|it| it.name == *name && spare_groups::needs_spare(it))
        };
        self.stuck.retain(|(_, to)| needs(to));
        let group = |volume: &VolumeStatus| self.config.line_of(volume)?.spare_group.as_deref();
        let may = |it: &Move<'_>| !self.stuck.contains(&key(it));
        let Some(chosen) = spare_groups::choose(volumes, group, may) else { return Ok(()) };
        let Move { from, to, spare } = chosen;
        let outcome = moving::moved(targets, &chosen);
        if let Some(why) = outcome.why() {
            let label = &spare.label;
            complain(&format!("{label}: not moved from {} to {}: {why}", from.name, to.name));
        }
        match outcome {
            Moved::Done => self.tell(&Event::new("MoveSpare", &to.name, &from.name), &[])?,
            // The next look tries again.
            Moved::Stays(_) => {}
            Moved::Refused(_) => _ = self.stuck.insert(key(&chosen)),
            Moved::Homeless(_) => {
                self.stuck.insert(key(&chosen));
                self.homeless.insert(spare.label.clone(), from.name.clone());
                self.tell(&Event::new("FailSpare", &from.name, &spare.label), &[])?;
            }
        }
        Ok(())
    }

    /// Prints an event, runs the program for it and, if it is an alarm, mails it. `advice` are
    /// lines about the state of the volume, for the mail.
    fn tell(&self, event: &Event, advice: &[String]) -> Result<(), Failure> {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
        let mut out = stdout();
        match self.arguments.json {
            true => write!(out, "{}", json_line(&event.to_json(now).to_string()))?,
            false => writeln!(out, "{}", event.text())?,
        }
        out.flush()?;
        if let Some(program) = self.arguments.program.as_ref().or(self.config.program.as_ref()) {
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
        let address = self.arguments.mail.as_ref().or(self.config.mail.as_ref());
        let address = address.filter(|_| event.is_alarm());
        if let Some(Err(why)) = address.map(|address| mail(address, event, advice)) {
            complain(&format!("sendmail: {}: {why}", event.name));
        }
        Ok(())
    }
}

fn key(it: &Move<'_>) -> (String, String) {
    (it.spare.label.clone(), it.to.name.clone())
}

/// Mails an event through sendmail. The error is the reason why it was not mailed.
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

/// Folders in which sendmail is searched: those of `PATH`, then `/usr/sbin` and `/usr/lib`.
fn path() -> std::ffi::OsString {
    let mut path = std::env::var_os("PATH").unwrap_or_default();
    path.push(":/usr/sbin:/usr/lib");
    path
}

const SENDMAIL: &str = "sendmail";
