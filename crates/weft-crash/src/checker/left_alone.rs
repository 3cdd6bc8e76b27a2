//! Checker I21, left alone: a member that has left the array gets no request.
//!
//! A member leaves when it fails, when its replacement takes its slot, and when it is removed. The
//! member's queue may still send requests that waited in it until the engine has no more work at
//! that time, and requests that were sent may end later. A member that returns has another index.

use std::collections::{BTreeMap, BTreeSet};

use weft_engine::{Input, Notice, Output, Tag, Verb};
use weft_units::{ClientId, MemberIndex};

use super::Violation;

const NAME: &str = "I21 left alone";

/// Checker I21: the members that have left the array.
#[derive(Clone, Debug, Default)]
pub struct LeftAlone {
    left: BTreeSet<MemberIndex>,
    /// Members that have left since the engine last had no more work.
    leaving: Vec<MemberIndex>,
    /// Unanswered commands that remove a member.
    removals: BTreeMap<(ClientId, Tag), MemberIndex>,
}

impl LeftAlone {
    /// Records commands that remove a member.
    pub fn input(&mut self, input: &Input) {
        if let Input::Admin(command) = input
            && let Verb::Remove(member) = command.verb
        {
            self.removals.insert((command.client, command.tag), member);
        }
    }

    /// Records members that leave, and checks that a request goes to none of them.
    pub fn output(&mut self, output: &Output, found: &mut Vec<Violation>) {
        match output {
            Output::Notice(
                Notice::MemberFailed { member, .. } | Notice::MemberReplaced { member, .. },
            ) => {
                self.leaving.push(*member);
            }
            Output::Reply { client, tag, result } => {
                let removed = self.removals.remove(&(*client, *tag));
                self.leaving.extend(removed.filter(|_| result.is_ok()));
            }
            Output::Submit { member, op, .. } if self.left.contains(member) => {
                let message = format!("{member:?} has left the array and gets {op:?}");
                found.push(Violation::new(NAME, message));
            }
            _ => {}
        }
    }

    /// Records that the engine has no more work at this time.
    pub fn settled(&mut self) {
        self.left.extend(self.leaving.drain(..));
    }
}
