//! Move of a spare from one running volume to another.
//!
//! The spare is removed from the first volume and added to the second. If the second refuses the
//! spare, it is added to the first again.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::{Duration, Instant};

use weft_export::control::Command;
use weft_terminal::outcome::Failure;

use super::spare_groups::Move;
use crate::target::Target;

/// Connections to servers, by the name of their volume.
pub(super) type Targets = BTreeMap<String, Target>;

/// Outcome of the move of a spare; if it was not moved, with the reason.
pub(super) enum Moved {
    Done,
    /// The spare could not be removed from its volume, and stays there.
    Stays(String),
    /// The spare was not moved, because the second volume refused it; the first volume has it.
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

/// Removes a spare from its volume and adds it to the other one. A spare that its server knows by a
/// relative path is not moved.
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

/// Adds a spare to a volume. The server of the former volume may close the spare a moment after it
/// has answered; a failure is therefore tried again for a while, a refusal is not.
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

/// Longest time after a server's answer until it has closed the member that it removed.
const CLOSES_WITHIN: Duration = Duration::from_secs(3);
/// Time between two attempts to add a spare.
const PAUSE: Duration = Duration::from_millis(100);
