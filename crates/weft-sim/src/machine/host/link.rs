//! Link that all disks of a host share: it transfers the data of one command after the other.

use std::collections::VecDeque;

use weft_units::{Bytes, MemberIndex, Span, Time};

use super::Host;
use crate::drive::Command;
use crate::drive::link::Link;

/// A link and the commands on it.
#[derive(Debug)]
pub(super) struct SharedLink {
    link: Link,
    /// Commands under way to their disks, each with the time at which all its data has arrived.
    under_way: VecDeque<(Time, MemberIndex, Command)>,
}

impl SharedLink {
    /// Sends a command with its data to a disk.
    pub(super) fn send(&mut self, now: Time, member: MemberIndex, command: Command) {
        let at = self.link.pass(now, command.length.bytes(), Span::ZERO);
        self.under_way.push_back((at, member, command));
    }

    /// Time at which the next command arrives at its disk; `None` if no command is under way.
    pub(super) fn next_event(&self) -> Option<Time> {
        self.under_way.front().map(|(at, ..)| *at)
    }

    /// Takes the next command that has arrived by now, with the index of its disk's member; `None`
    /// if none has.
    pub(super) fn arrived(&mut self, now: Time) -> Option<(MemberIndex, Command)> {
        self.next_event().filter(|at| *at <= now)?;
        self.under_way.pop_front().map(|(_, member, command)| (member, command))
    }
}

impl Host {
    /// Connects all disks to one link of this many bytes per second. Reads occupy the link like
    /// writes, before they begin.
    pub fn share_link(&mut self, per_second: Bytes) {
        let link = Link::new(per_second.0);
        self.link = Some(Box::new(SharedLink { link, under_way: VecDeque::new() }));
    }
}
