//! Steps as lines of a script's text.

use std::fmt;
use std::str::{FromStr, SplitWhitespace};

use weft_engine::knobs::TABLE;
use weft_engine::{Fault, Flags, RequestOp, SyncAction};
use weft_units::VolumeId;

use super::{interned, name_of, named, number};
use crate::crash::CutMode;
use crate::faults::Planned;
use crate::script::ScriptStep;
use crate::volumes::{ARRAY, BARE};

const MODES: [(&str, CutMode); 5] = [
    ("everything", CutMode::Everything),
    ("nothing", CutMode::Nothing),
    ("ordered", CutMode::Ordered),
    ("subset", CutMode::Subset),
    ("torn", CutMode::Torn),
];

const OPERATIONS: [(&str, RequestOp); 5] = [
    ("flush", RequestOp::Flush),
    ("read", RequestOp::Read),
    ("write", RequestOp::Write),
    ("trim", RequestOp::Trim),
    ("write-zeroes", RequestOp::WriteZeroes),
];

const FAILURES: [(&str, Planned); 6] = [
    ("gone", Planned::Gone),
    ("silent", Planned::Silent),
    ("once-aborted", Planned::Once(Fault::Aborted)),
    ("once-gone", Planned::Once(Fault::Gone)),
    ("once-io", Planned::Once(Fault::Io)),
    ("once-no-space", Planned::Once(Fault::NoSpace)),
];

const ACTIONS: [(&str, SyncAction); 7] = [
    ("check", SyncAction::Check),
    ("correct", SyncAction::Correct),
    ("frozen", SyncAction::Frozen),
    ("idle", SyncAction::Idle),
    ("recover", SyncAction::Recover),
    ("repair", SyncAction::Repair),
    ("resync", SyncAction::Resync),
];

impl fmt::Display for ScriptStep {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mode = |mode| name_of(&MODES, mode);
        let dead = |dead| if dead { " dead" } else { "" };
        match *self {
            Self::Add => write!(f, "add"),
            Self::Ask { volume, client, op, start, len, flags } => {
                let name = if volume == BARE { "ask-bare" } else { "ask" };
                write!(f, "{name} {client} {} {start}+{len}", name_of(&OPERATIONS, op))?;
                let set = flags_of(flags).into_iter().filter(|(_, set)| *set);
                set.into_iter().try_for_each(|(name, _)| write!(f, " {name}"))
            }
            Self::Cut(how) => write!(f, "cut {}", mode(how)),
            Self::CutAgain { mode: how, after, stop } => {
                let stop = if stop { " stop" } else { "" };
                write!(f, "cut-again {} after={after}{stop}", mode(how))
            }
            Self::Disconnect(client) => write!(f, "disconnect {client}"),
            Self::Drain(BARE) => write!(f, "drain-bare"),
            Self::Drain(_) => write!(f, "drain"),
            Self::FailOperation { disk, after, how } => {
                write!(f, "fail-operation {disk} after={after} {}", name_of(&FAILURES, how))
            }
            Self::FailDisk(disk) => write!(f, "fail-disk {disk}"),
            Self::ReAdd(disk) => write!(f, "re-add {disk}"),
            Self::BadRead { disk, column, dead: it } => {
                write!(f, "bad-read {disk} column={column}{}", dead(it))
            }
            Self::Away(disk) => write!(f, "away {disk}"),
            Self::BadSuperblock { disk, dead: it } => {
                write!(f, "bad-superblock {disk}{}", dead(it))
            }
            Self::BadWrite { disk, column } => write!(f, "bad-write {disk} column={column}"),
            Self::Finish => write!(f, "finish"),
            Self::FailDiscards { disk, count } => write!(f, "fail-discards {disk} {count}"),
            Self::FlushError(disk) => write!(f, "flush-error {disk}"),
            Self::Kill => write!(f, "kill"),
            Self::LyingFlush(disk) => write!(f, "lying-flush {disk}"),
            Self::LackSpace { first, count, seconds } => {
                write!(f, "lack-space {first} count={count} seconds={seconds}")
            }
            Self::Look(how) => write!(f, "look {}", mode(how)),
            Self::NoSpace(disk) => write!(f, "no-space {disk}"),
            Self::Remove(disk) => write!(f, "remove {disk}"),
            Self::Replace(disk) => write!(f, "replace {disk}"),
            Self::Return(disk) => write!(f, "return {disk}"),
            Self::Set(name, value) => write!(f, "set {name}={value}"),
            Self::SetQueue(disk, name, value) => write!(f, "set-queue {disk} {name}={value}"),
            Self::Bitmap(None) => write!(f, "bitmap none"),
            Self::Bitmap(Some(bytes)) => write!(f, "bitmap {bytes}"),
            Self::Shrink { disk, sectors } => write!(f, "shrink {disk} sectors={sectors}"),
            Self::Sleep(millis) => write!(f, "sleep {millis}"),
            Self::Steps(count) => write!(f, "steps {count}"),
            Self::Stall(disk) => write!(f, "stall {disk}"),
            Self::Stop => write!(f, "stop"),
            Self::Stopped => write!(f, "stopped"),
            Self::Sync(action) => write!(f, "sync {}", name_of(&ACTIONS, action)),
            Self::SyncRange { action, from, to } => {
                write!(f, "sync-range {} from={from}", name_of(&ACTIONS, action))?;
                to.map_or(Ok(()), |to| write!(f, " to={to}"))
            }
            Self::Wait(millis) => write!(f, "wait {millis}"),
        }
    }
}

/// Forms of all steps, for error messages.
const STEPS: &str = "add, ask|ask-bare CLIENT OPERATION START+LENGTH [FLAG]..., away DISK, \
                     bad-read DISK column=N [dead], bad-superblock DISK [dead], bad-write DISK column=N, cut MODE, \
                     cut-again MODE after=N [stop], disconnect CLIENT, drain, drain-bare, \
                     fail-disk DISK, fail-operation DISK after=N HOW, finish, flush-error DISK, \
                     kill, lack-space DISK count=N seconds=N, look MODE, lying-flush DISK, \
                     no-space DISK, re-add DISK, remove DISK, replace DISK, bitmap BYTES|none, \
                     set-queue DISK KNOB=VALUE, return DISK, set KNOB=VALUE, shrink DISK sectors=N, sleep MILLISECONDS, \
                     stall DISK, steps COUNT, stop, stopped, sync ACTION, sync-range ACTION from=N [to=N], \
                     wait MILLISECONDS";

impl FromStr for ScriptStep {
    /// A description of what was expected.
    type Err = String;

    fn from_str(line: &str) -> Result<Self, String> {
        let mut words = Words { name: line, rest: line.split_whitespace() };
        let name = words.rest.next().unwrap_or_default();
        words.name = name;
        let step = match name {
            "add" => Self::Add,
            "ask" => words.ask(ARRAY)?,
            "ask-bare" => words.ask(BARE)?,
            "away" => Self::Away(words.disk()?),
            "cut" => Self::Cut(words.one_of(&MODES)?),
            "cut-again" => {
                let (mode, after) = (words.one_of(&MODES)?, words.with("after")?);
                Self::CutAgain { mode, after, stop: words.flag("stop") }
            }
            "disconnect" => Self::Disconnect(words.number("CLIENT")?),
            "drain" => Self::Drain(ARRAY),
            "drain-bare" => Self::Drain(BARE),
            "fail-operation" => {
                let (disk, after) = (words.disk()?, words.with("after")?);
                Self::FailOperation { disk, after, how: words.one_of(&FAILURES)? }
            }
            "fail-disk" => Self::FailDisk(words.disk()?),
            "re-add" => Self::ReAdd(words.disk()?),
            "bad-read" => {
                let (disk, column) = (words.disk()?, words.with("column")?);
                Self::BadRead { disk, column, dead: words.flag("dead") }
            }
            "bad-superblock" => {
                Self::BadSuperblock { disk: words.disk()?, dead: words.flag("dead") }
            }
            "bad-write" => Self::BadWrite { disk: words.disk()?, column: words.with("column")? },
            "finish" => Self::Finish,
            "fail-discards" => {
                Self::FailDiscards { disk: words.disk()?, count: words.number("COUNT")? }
            }
            "flush-error" => Self::FlushError(words.disk()?),
            "kill" => Self::Kill,
            "lying-flush" => Self::LyingFlush(words.disk()?),
            "lack-space" => {
                let (first, count) = (words.disk()?, words.with("count")?);
                Self::LackSpace { first, count, seconds: words.with("seconds")? }
            }
            "look" => Self::Look(words.one_of(&MODES)?),
            "no-space" => Self::NoSpace(words.disk()?),
            "remove" => Self::Remove(words.disk()?),
            "replace" => Self::Replace(words.disk()?),
            "return" => Self::Return(words.disk()?),
            "set" => {
                let (name, value) = words.set(line)?;
                Self::Set(name, value)
            }
            "set-queue" => {
                let disk = words.disk()?;
                let (name, value) = words.set(line)?;
                Self::SetQueue(disk, name, value)
            }
            "bitmap" => match words.rest.next() {
                Some("none") => Self::Bitmap(None),
                bytes => Self::Bitmap(Some(number(bytes.unwrap_or_default(), "none or bytes")?)),
            },
            "shrink" => Self::Shrink { disk: words.disk()?, sectors: words.with("sectors")? },
            "sleep" => Self::Sleep(words.number("MILLISECONDS")?),
            "steps" => Self::Steps(words.number("COUNT")?),
            "stall" => Self::Stall(words.disk()?),
            "stop" => Self::Stop,
            "stopped" => Self::Stopped,
            "sync" => Self::Sync(words.one_of(&ACTIONS)?),
            "sync-range" => {
                let (action, from) = (words.one_of(&ACTIONS)?, words.with("from")?);
                let is_last = words.rest.clone().next().is_none();
                let to = if is_last { None } else { Some(words.with("to")?) };
                Self::SyncRange { action, from, to }
            }
            "wait" => Self::Wait(words.number("MILLISECONDS")?),
            _ => return Err(format!("a step: {STEPS}")),
        };
        match words.rest.next() {
            Some(_) => Err(format!("nothing after {:?}", step.to_string())),
            None => Ok(step),
        }
    }
}

/// Words of a line that were not parsed yet, and the name of the step for error messages.
struct Words<'a> {
    name: &'a str,
    rest: SplitWhitespace<'a>,
}

impl Words<'_> {
    fn ask(&mut self, volume: VolumeId) -> Result<ScriptStep, String> {
        let client = self.number("CLIENT")?;
        let op = self.one_of(&OPERATIONS)?;
        let place = self.rest.next().and_then(|word| word.split_once('+'));
        let (start, len) = place.ok_or("START+LENGTH in bytes")?;
        let (start, len) = (number(start, "START")?, number(len, "LENGTH")?);
        let mut flags = Flags::NONE;
        for word in self.rest.by_ref() {
            let flag = match word {
                "sync" => &mut flags.sync,
                "fua" => &mut flags.fua,
                "preflush" => &mut flags.preflush,
                "meta" => &mut flags.meta,
                "discard" => &mut flags.discard,
                "ahead" => &mut flags.ahead,
                "again" => &mut flags.again,
                _ => return Err(format!("flags: {}", flags_of(flags).map(|it| it.0).join(", "))),
            };
            *flag = true;
        }
        Ok(ScriptStep::Ask { volume, client, op, start, len, flags })
    }

    /// Parses NAME=VALUE at the end of a line. Returns name and value; the error describes what was
    /// expected.
    fn set(&mut self, line: &str) -> Result<(&'static str, &'static str), String> {
        self.rest.by_ref().for_each(drop);
        let setting = line.split_once('=').and_then(|(name, value)| {
            let (_, name) = name.trim_end().rsplit_once(' ')?;
            Some((name, value.trim()))
        });
        let (name, value) = setting.ok_or("KNOB=VALUE")?;
        // Whether a value is valid may depend on other knobs, so it is checked when it is set.
        let row = TABLE.iter().find(|row| row.name == name);
        row.map(|row| (row.name, interned(value))).ok_or_else(|| "the name of a knob".to_owned())
    }

    fn disk(&mut self) -> Result<usize, String> {
        self.number("DISK")
    }

    fn number<T: FromStr>(&mut self, of: &str) -> Result<T, String> {
        number(self.rest.next().unwrap_or_default(), &format!("{} {of}", self.name))
    }

    fn with<T: FromStr>(&mut self, name: &str) -> Result<T, String> {
        let word = self.rest.next().and_then(|word| word.split_once('='));
        let (_, value) = word.filter(|it| it.0 == name).ok_or(format!("{name}=N"))?;
        number(value, &format!("{name}=N"))
    }

    fn one_of<T: Copy>(&mut self, list: &[(&'static str, T)]) -> Result<T, String> {
        named(list, self.rest.next().unwrap_or_default())
    }

    fn flag(&mut self, name: &str) -> bool {
        let mut rest = self.rest.clone();
        let there = rest.next() == Some(name);
        if there {
            self.rest = rest;
        }
        there
    }
}

/// Names of all flags, and whether they are set. The struct is destructured so that no new flag is
/// forgotten.
fn flags_of(flags: Flags) -> [(&'static str, bool); 7] {
    let Flags { sync, fua, preflush, meta, discard, ahead, again } = flags;
    [
        ("sync", sync),
        ("fua", fua),
        ("preflush", preflush),
        ("meta", meta),
        ("discard", discard),
        ("ahead", ahead),
        ("again", again),
    ]
}
