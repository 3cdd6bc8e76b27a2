//! State of the screen: the last statuses of each server, and the choices of the user.
//!
//! The state has no socket, no clock and no terminal: statuses of the servers and keys are passed
//! to it.

use std::cmp::Reverse;

use weft_export::control::{Command, MemberStatus, Status, VolumeStatus};
use weft_terminal::terminal::quoted;

use super::difference::{Interval, Latency, Traffic};

/// Name of a server, and its status or the reason why it did not answer.
pub(super) type Looked = (String, Result<Status, String>);

/// State of the screen of `weft top`.
#[derive(Debug)]
pub(super) struct TopState {
    /// Servers that have answered at least once, in the order of their names.
    pub(super) servers: Vec<SeenServer>,
    /// Seconds between two requests for the statuses.
    pub(super) seconds: u32,
    /// Whether the screen has colours.
    pub(super) has_colour: bool,
    /// List in which the arrow keys move the choice.
    pub(super) pane: Pane,
    /// Sort order of both lists, volumes and members.
    pub(super) sort: SortKey,
    /// Mode of the screen, which determines the meaning of the keys.
    pub(super) mode: Mode,
    /// Message at the bottom until the next key; `None` for none.
    pub(super) message: Option<String>,
    /// Reason why a server did not answer the last request, shown at the bottom; `None` if all
    /// answered.
    pub(super) silence: Option<String>,
    /// Name of the server of the chosen volume. If it is `None` or names no server, the first
    /// volume is chosen.
    volume: Option<String>,
    /// Index that the server gives to the chosen member. If it is `None` or no member has it, the
    /// first member is chosen.
    member: Option<u16>,
}

/// A server that has answered at least once.
#[derive(Debug)]
pub(super) struct SeenServer {
    /// Name by which commands find the server.
    pub(super) name: String,
    /// Last status of the server.
    pub(super) last: Status,
    /// Earlier status, from which rates are computed; `None` if only one status is known.
    before: Option<Status>,
    /// Answer of the server to the last request.
    pub(super) presence: Presence,
}

/// Answer of a server to the last request for its status.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Presence {
    /// The server no longer accepts connections.
    Gone,
    /// The server has sent its status.
    Here,
    /// The server accepts connections, but did not answer.
    Silent,
}

/// Lists on the screen in which one line is chosen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Pane {
    Members,
    Volumes,
}

/// Sort orders of the lists.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum SortKey {
    /// Most bytes per second first.
    Bytes,
    /// Volumes by name, members by slot.
    Name,
    /// Most requests per second first.
    Requests,
}

/// Modes of the screen, in which keys have different meanings.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Mode {
    /// The user is asked whether a command is to be carried out.
    Confirm(TopAction),
    /// The list of keys is shown.
    Help,
    /// Figures are shown, and keys choose, sort and change: the usual screen.
    Watch,
}

/// A change of a volume that the user has asked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct TopAction {
    /// Name by which commands find the server.
    pub(super) server: String,
    /// Kind of the change.
    pub(super) kind: ActionKind,
}

/// Changes of a volume that have a key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum ActionKind {
    /// Start a check.
    Check,
    /// Declare a member failed.
    Fail {
        /// Index that the server gives to the member.
        index: u16,
        /// Name for the command line, which no other member of the volume has.
        name: String,
    },
    /// Stop the sync that runs.
    Idle,
}

impl TopAction {
    /// Command line of `weft` that makes the same change.
    pub(super) fn command_line(&self) -> String {
        let server = quoted(self.server.as_ref());
        match &self.kind {
            ActionKind::Check => format!("weft check --no-wait {server}"),
            ActionKind::Fail { name, .. } => {
                format!("weft fail {server} {}", quoted(name.as_ref()))
            }
            ActionKind::Idle => format!("weft idle {server}"),
        }
    }

    /// Command that asks the server for the change.
    pub(super) fn command(&self) -> Command {
        match &self.kind {
            ActionKind::Check => Command::sync_action("check"),
            ActionKind::Fail { index, .. } => Command::Fail { members: vec![index.to_string()] },
            ActionKind::Idle => Command::sync_action("idle"),
        }
    }
}

impl SortKey {
    /// Sort order to which the key `s` changes from this one.
    pub(super) fn next(self) -> Self {
        match self {
            Self::Name => Self::Bytes,
            Self::Bytes => Self::Requests,
            Self::Requests => Self::Name,
        }
    }

    /// Name of the sort order on the screen.
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Bytes => "bytes",
            Self::Name => "name",
            Self::Requests => "requests",
        }
    }

    /// Sorts rows by their traffic, largest first; by name, they stay as they are. Equal rows keep
    /// their order, and rows without traffic come last.
    fn sort<T>(self, rows: &mut [T], traffic: impl Fn(&T) -> Option<Traffic>) {
        match self {
            Self::Name => {}
            Self::Bytes => rows.sort_by_key(|row| Reverse(traffic(row).map(Traffic::bytes))),
            Self::Requests => rows.sort_by_key(|row| Reverse(traffic(row).map(Traffic::requests))),
        }
    }
}

/// A volume with the figures that the screen shows.
#[derive(Clone, Copy, Debug)]
pub(super) struct VolumeRow<'a> {
    pub(super) server: &'a SeenServer,
    pub(super) volume: &'a VolumeStatus,
    /// Time since an earlier status of the volume, and that status; `None` before the second
    /// status, and while the server does not answer.
    pub(super) since: Option<(Interval, &'a VolumeStatus)>,
}

/// A member with the figures that the screen shows.
#[derive(Clone, Copy, Debug)]
pub(super) struct MemberRow<'a> {
    pub(super) member: &'a MemberStatus,
    /// Traffic since the earlier status; `None` if that status does not exist or lacks the member.
    pub(super) traffic: Option<Traffic>,
    /// Latency of the requests since the earlier status; `None` if none was answered.
    pub(super) latency: Option<Latency>,
}

impl<'a> VolumeRow<'a> {
    /// Traffic of all clients of the volume; `None` without an earlier status.
    pub(super) fn traffic(&self) -> Option<Traffic> {
        self.since.map(|(interval, before)| interval.volume(before, self.volume))
    }

    /// Latency of the clients' requests; `None` without an earlier status, and if no request was
    /// answered since.
    pub(super) fn latency(&self) -> Option<Latency> {
        let (_, before) = self.since?;
        Latency::between(&before.answered, &self.volume.answered)
    }

    /// Members in this order; by name they are in the order of their slots, and those without a
    /// slot come last.
    fn members(&self, sort: SortKey) -> Vec<MemberRow<'a>> {
        let row = |member: &'a MemberStatus| {
            // An index that was given to another file is another member.
            let same = |it: &&MemberStatus| it.index == member.index && it.label == member.label;
            let before = self
                .since
                .and_then(|(interval, volume)| Some((interval, volume.members.iter().find(same)?)));
            MemberRow {
                member,
                traffic: before.map(|(interval, before)| interval.member(before, member)),
                latency: before
                    .and_then(|(_, before)| Latency::between(&before.answered, &member.answered)),
            }
        };
        let mut rows: Vec<MemberRow<'a>> = self.volume.members.iter().map(row).collect();
        rows.sort_by_key(|row| (row.member.slot.unwrap_or(u16::MAX), row.member.index));
        sort.sort(&mut rows, |row| row.traffic);
        rows
    }
}

impl TopState {
    /// State before the first statuses.
    pub(super) fn new(seconds: u32, has_colour: bool) -> Self {
        Self {
            servers: Vec::new(),
            seconds,
            has_colour,
            pane: Pane::Volumes,
            sort: SortKey::Name,
            mode: Mode::Watch,
            message: None,
            silence: None,
            volume: None,
            member: None,
        }
    }

    /// Takes the answers of all servers. A known server that is not among them is gone, and stays
    /// on the screen.
    pub(super) fn look(&mut self, looked: Vec<Looked>) {
        for server in &mut self.servers {
            if looked.iter().all(|(name, _)| *name != server.name) {
                server.presence = Presence::Gone;
            }
        }
        self.silence = None;
        for (name, answer) in looked {
            let place = self.servers.iter().position(|server| server.name == name);
            match (answer, place) {
                (Ok(status), Some(place)) => self.servers[place].answered(status),
                (Ok(last), None) => {
                    let presence = Presence::Here;
                    self.servers.push(SeenServer { name, last, before: None, presence });
                    self.servers.sort_by(|one, other| one.name.cmp(&other.name));
                }
                (Err(why), place) => {
                    if let Some(place) = place {
                        self.servers[place].presence = Presence::Silent;
                    }
                    self.silence = Some(why);
                }
            }
        }
    }

    /// Volumes in the order of the screen.
    pub(super) fn volumes(&self) -> Vec<VolumeRow<'_>> {
        let mut rows: Vec<_> = self.servers.iter().filter_map(SeenServer::row).collect();
        self.sort.sort(&mut rows, VolumeRow::traffic);
        rows
    }

    /// The chosen volume with its index in the list of volumes; `None` if the list is empty.
    pub(super) fn chosen(&self) -> Option<(usize, VolumeRow<'_>)> {
        let rows = self.volumes();
        let place = rows.iter().position(|row| Some(&row.server.name) == self.volume.as_ref());
        let place = place.unwrap_or(0);
        rows.get(place).map(|row| (place, *row))
    }

    /// Members of a volume in the order of the screen.
    pub(super) fn members<'a>(&self, row: &VolumeRow<'a>) -> Vec<MemberRow<'a>> {
        row.members(self.sort)
    }

    /// Index of the chosen member in `rows`, the members of the chosen volume; 0 if it is not among
    /// them.
    pub(super) fn member_place(&self, rows: &[MemberRow<'_>]) -> usize {
        rows.iter().position(|row| Some(row.member.index) == self.member).unwrap_or(0)
    }

    /// Moves the choice in the current list by this number of lines, up to either end of the list.
    pub(super) fn move_by(&mut self, lines: isize) {
        let Some((place, chosen)) = self.chosen() else { return };
        match self.pane {
            Pane::Volumes => {
                let rows = self.volumes();
                let to = place.saturating_add_signed(lines).min(rows.len() - 1);
                let name = rows[to].server.name.clone();
                self.member = self.member.filter(|_| to == place);
                self.volume = Some(name);
            }
            Pane::Members => {
                let rows = self.members(&chosen);
                let Some(last) = rows.len().checked_sub(1) else { return };
                let to = self.member_place(&rows).saturating_add_signed(lines).min(last);
                self.member = Some(rows[to].member.index);
            }
        }
    }

    /// Records the volume and member that are chosen now, so that they stay chosen when the order
    /// changes.
    pub(super) fn hold_choice(&mut self) {
        let Some((_, row)) = self.chosen() else { return };
        let members = self.members(&row);
        let member = members.get(self.member_place(&members)).map(|it| it.member.index);
        let name = row.server.name.clone();
        (self.volume, self.member) = (Some(name), member);
    }
}

impl SeenServer {
    /// Takes a new status. Rates are computed from the status before it, or from an earlier one if
    /// less than [`SPAN_MIN_MS`] have passed since then: a key can make two statuses follow each
    /// other within milliseconds.
    fn answered(&mut self, status: Status) {
        let span = Interval::between(&self.last, &status).map(Interval::millis);
        let last = std::mem::replace(&mut self.last, status);
        let is_restarted = self.last.pid != last.pid;
        if is_restarted {
            self.before = None;
        } else if self.before.is_none() || span.is_some_and(|span| span >= SPAN_MIN_MS) {
            self.before = Some(last);
        }
        self.presence = Presence::Here;
    }

    /// The server's volume with its earlier status; `None` if the server has no volume.
    fn row(&self) -> Option<VolumeRow<'_>> {
        let volume = self.last.volumes.first()?;
        let before = self.before.as_ref().filter(|_| self.presence == Presence::Here);
        let since = before.and_then(|before| {
            Some((Interval::between(before, &self.last)?, before.volumes.first()?))
        });
        Some(VolumeRow { server: self, volume, since })
    }
}

/// Shortest time over which rates are computed, in milliseconds, unless there are only two
/// statuses.
const SPAN_MIN_MS: u64 = 500;
