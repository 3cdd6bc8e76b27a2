//! State of the screen: the last statuses of each server, and the choices of the user.
//!
//! The state sees neither a socket nor a clock nor a terminal: a look at the servers and a key are
//! its inputs.

use std::cmp::Reverse;

use weft_export::control::{Command, MemberStatus, Status, VolumeStatus};
use weft_terminal::terminal::quoted;

use super::difference::{Interval, Latency, Traffic};

/// Result of a look at one server: its status, or the reason why it did not answer.
pub(super) type Looked = (String, Result<Status, String>);

/// State of `weft top`.
#[derive(Debug)]
pub(super) struct TopState {
    /// Servers that have answered at least once, in the order of their names.
    pub(super) servers: Vec<SeenServer>,
    /// Seconds between two looks.
    pub(super) seconds: u32,
    /// Whether colours are wanted.
    pub(super) has_colour: bool,
    /// List that the arrow keys move in.
    pub(super) pane: Pane,
    /// Order of both lists.
    pub(super) sort: SortKey,
    /// Meaning of the keys.
    pub(super) mode: Mode,
    /// Sentence at the bottom, until the next key.
    pub(super) message: Option<String>,
    /// Reason why a server did not answer at the last look, for the bottom.
    pub(super) silence: Option<String>,
    /// Server of the chosen volume; the first one if that is none.
    volume: Option<String>,
    /// Index of the chosen member within its server; the first one if that is none.
    member: Option<u16>,
}

/// A server that has answered.
#[derive(Debug)]
pub(super) struct SeenServer {
    /// Name by which commands find the server.
    pub(super) name: String,
    /// Last status of the server.
    pub(super) last: Status,
    /// Status from which rates are counted.
    before: Option<Status>,
    /// Whether the server answers now.
    pub(super) presence: Presence,
}

/// Answer of a server at the last look.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Presence {
    /// The server no longer listens.
    Gone,
    /// The server has answered.
    Here,
    /// The server listens, and did not answer.
    Silent,
}

/// Lists on the screen in which one line is chosen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Pane {
    Members,
    Volumes,
}

/// Orders of the lists.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum SortKey {
    /// Most bytes per second first.
    Bytes,
    /// Volumes by name, members by slot.
    Name,
    /// Most requests per second first.
    Requests,
}

/// Meanings of the keys.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Mode {
    /// The user is asked whether a command is to be carried out.
    Confirm(TopAction),
    /// The list of keys is shown.
    Help,
    /// Figures are shown, and keys choose, sort and change: the usual screen.
    Watch,
}

/// A change that the user asks for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct TopAction {
    /// Name of the server.
    pub(super) server: String,
    /// Kind of the change.
    pub(super) kind: ActionKind,
}

/// Changes that have a key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum ActionKind {
    /// Start a check.
    Check,
    /// Declare a member failed.
    Fail {
        /// Index of the member, for the server.
        index: u16,
        /// Name of the member that no other member has, for the command line.
        name: String,
    },
    /// Stop the sync that runs.
    Idle,
}

impl TopAction {
    /// Command line of weft that does the same.
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

    /// Command for the server.
    pub(super) fn command(&self) -> Command {
        match &self.kind {
            ActionKind::Check => Command::sync_action("check"),
            ActionKind::Fail { index, .. } => Command::Fail { members: vec![index.to_string()] },
            ActionKind::Idle => Command::sync_action("idle"),
        }
    }
}

impl SortKey {
    /// The order that follows this one when the user changes it.
    pub(super) fn next(self) -> Self {
        match self {
            Self::Name => Self::Bytes,
            Self::Bytes => Self::Requests,
            Self::Requests => Self::Name,
        }
    }

    /// Name of the order on the screen.
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Bytes => "bytes",
            Self::Name => "name",
            Self::Requests => "requests",
        }
    }

    /// Sorts rows; equal ones keep their order, and those without figures come last.
    fn sort<T>(self, rows: &mut [T], traffic: impl Fn(&T) -> Option<Traffic>) {
        match self {
            Self::Name => {}
            Self::Bytes => rows.sort_by_key(|row| Reverse(traffic(row).map(Traffic::bytes))),
            Self::Requests => rows.sort_by_key(|row| Reverse(traffic(row).map(Traffic::requests))),
        }
    }
}

/// A volume as the screen shows it.
#[derive(Clone, Copy, Debug)]
pub(super) struct VolumeRow<'a> {
    pub(super) server: &'a SeenServer,
    pub(super) volume: &'a VolumeStatus,
    /// Earlier status of the volume, with the time since then; `None` before the second look, and
    /// while the server does not answer.
    pub(super) since: Option<(Interval, &'a VolumeStatus)>,
}

/// A member as the screen shows it.
#[derive(Clone, Copy, Debug)]
pub(super) struct MemberRow<'a> {
    pub(super) member: &'a MemberStatus,
    /// Traffic since the earlier status, if there is one.
    pub(super) traffic: Option<Traffic>,
    /// Latency since the earlier status, if requests were answered.
    pub(super) latency: Option<Latency>,
}

impl<'a> VolumeRow<'a> {
    /// Traffic of the volume's clients.
    pub(super) fn traffic(&self) -> Option<Traffic> {
        self.since.map(|(interval, before)| interval.volume(before, self.volume))
    }

    /// Members in the order of their slots; those without one come last.
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
                latency: before.and_then(|(_, before)| Latency::between(before, member)),
            }
        };
        let mut rows: Vec<MemberRow<'a>> = self.volume.members.iter().map(row).collect();
        rows.sort_by_key(|row| (row.member.slot.unwrap_or(u16::MAX), row.member.index));
        sort.sort(&mut rows, |row| row.traffic);
        rows
    }
}

impl TopState {
    /// State before the first look.
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

    /// Takes in a look at all servers. Servers that were there and are not in it are gone; they
    /// stay on the screen.
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

    /// The chosen volume, and its place in the order of the screen; `None` if there is no volume.
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

    /// Place of the chosen member among the members of the chosen volume.
    pub(super) fn member_place(&self, rows: &[MemberRow<'_>]) -> usize {
        rows.iter().position(|row| Some(row.member.index) == self.member).unwrap_or(0)
    }

    /// Moves the choice in the list of the pane by some lines, not past its ends.
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

    /// Keeps the chosen volume and member chosen when the order changes.
    pub(super) fn hold_choice(&mut self) {
        let Some((_, row)) = self.chosen() else { return };
        let members = self.members(&row);
        let member = members.get(self.member_place(&members)).map(|it| it.member.index);
        let name = row.server.name.clone();
        (self.volume, self.member) = (Some(name), member);
    }
}

impl SeenServer {
    /// Takes in a new status. Rates are counted from the last but one, unless that is too short a
    /// time ago: a look that follows a key at once would show rates of a few milliseconds.
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

    /// The server's volume; `None` if it has none.
    fn row(&self) -> Option<VolumeRow<'_>> {
        let volume = self.last.volumes.first()?;
        let before = self.before.as_ref().filter(|_| self.presence == Presence::Here);
        let since = before.and_then(|before| {
            Some((Interval::between(before, &self.last)?, before.volumes.first()?))
        });
        Some(VolumeRow { server: self, volume, since })
    }
}

/// Shortest time that rates are counted over, once there were two looks.
const SPAN_MIN_MS: u64 = 500;
