//! Moving of a spare from one running volume to another.
//!
//! The spare is removed from the first volume and added to the second. If the second one refuses
//! it, the first one gets it back.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::{Duration, Instant};

use weft_export::control::Command;
use weft_terminal::outcome::Failure;

use super::spare_groups::Move;
use crate::target::Target;

/// Servers by the name of their volume.
pub(super) type Targets = BTreeMap<String, Target>;

/// Outcome of a move, with the reason if the spare was not moved.
pub(super) enum Moved {
    Done,
    /// The spare stays where it was, because it could not be removed now.
    Stays(String),
    /// The second volume refused the spare, and the first one has it again.
    Refused(String),
    /// The second volume refused the spare, and the first one did not take it back.
    Homeless(String),
}

impl Moved {
    pub(super) fn why(&self) -> Option<&str> {
        match self {
            Self::Done => None,
            Self::Stays(why) | Self::Refused(why) | Self::Homeless(why) => Some(why),
        }
    }
}

/// Removes a spare from its volume and adds it to the other one.
pub(super) fn moved(targets: &mut Targets, chosen: &Move<'_>) -> Moved {
    let (from, to, label) = (&chosen.from.name, &chosen.to.name, &chosen.spare.label);
    if !Path::new(label).is_absolute() {
        let why = "its server knows it by a relative path; serve it by an absolute one";
        return Moved::Refused(why.into());
    }
    if let Err(failure) = ask(targets, from, Command::Remove { members: vec![label.clone()] })
        && is_member(targets, from, label)
    {
        return Moved::Stays(failure.message().to_owned());
    }
    let Err(failure) = add(targets, to, label) else { return Moved::Done };
    // A server that did not answer in time may have added the spare all the same.
    if is_member(targets, to, label) {
        return Moved::Done;
    }
    let why = failure.message();
    match add(targets, from, label) {
        Ok(()) => Moved::Refused(why.to_owned()),
        Err(again) => {
            let again = again.message();
            Moved::Homeless(format!("{why}; and it is a spare of neither now: {again}"))
        }
    }
}

/// Adds a spare to a volume. The server that had it before may close it a moment after the answer,
/// so a failure is tried again for a while, and a refusal is not.
pub(super) fn add(targets: &mut Targets, volume: &str, label: &str) -> Result<(), Failure> {
    let deadline = Instant::now() + CLOSES_WITHIN;
    loop {
        match ask(targets, volume, Command::Add { members: vec![label.to_owned()] }) {
            Err(Failure::Failed(_)) if Instant::now() < deadline => std::thread::sleep(PAUSE),
            result => return result,
        }
    }
}

fn is_member(targets: &mut Targets, volume: &str, label: &str) -> bool {
    let Some(target) = targets.get_mut(volume) else { return false };
    let Ok(status) = target.status() else { return false };
    status.volumes.iter().flat_map(|it| &it.members).any(|member| member.label == label)
}

fn ask(targets: &mut Targets, volume: &str, command: Command) -> Result<(), Failure> {
    let target = targets.get_mut(volume);
    let target = target.ok_or_else(|| Failure::refused(format!("{volume}: it does not run")))?;
    target.ask(command).map(drop)
}

/// Longest time until a server has closed a member that it has removed.
const CLOSES_WITHIN: Duration = Duration::from_secs(3);
/// Time between two attempts to add a spare.
const PAUSE: Duration = Duration::from_millis(100);
