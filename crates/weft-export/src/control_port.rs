//! Port of the control socket: the server's side of the control protocol.
//!
//! One command of a connection runs at a time; its members or
//! knobs are done one after the other, and the first that fails ends it. Members to be failed are
//! the exception: all of them are, or none. Opening a member to be added is the one thing here that
//! can block the loop, for the time of an `open` and three reads.
//!
//! An administrator that does not read its answers waits: with [`OUTPUT_BYTES_HIGH`] unsent nothing
//! more is read from it. So a connection holds at most that, one answer and one line, and there are
//! at most [`ADMINISTRATORS_MAX`]. One that sends command after command is heard [`COMMANDS_MAX`]
//! at a time.
//!
//! Source   reliability.md §8 "Control socket"

use std::collections::VecDeque;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;

use rustix::event::epoll::EventFlags;
use rustix::io::Errno;
use rustix::net::{RecvFlags, SendFlags};
use weft_engine::knobs::TABLE;
use weft_engine::{
    Command as AdminCommand, MemberState, Mismatch, Mismatches, ReplyError, Snapshot, SyncAction,
    Tag, Verb, VolumeSnapshot,
};
use weft_ondisk::Uuid;
use weft_runtime::devices::{Access, DeviceError, MemberSpec, OpenOptions, read_metadata};
use weft_runtime::driver::{Driver, Event};
use weft_runtime::reactor::{Context, Exit, Port};
use weft_units::{MemberIndex, Time, VolumeId};

use crate::control::{
    Command, ControlRequest, FailureKind, LINE_BYTES_MAX, MemberStatus, MismatchStatus,
    MismatchesStatus, Response, Status, VERSION, VolumeStatus, WrongMember,
};
use crate::serve::Shared;
use crate::socket::Listener;

/// The control socket.
pub(crate) struct ControlPort {
    listener: Listener,
    clients: Vec<Option<Administrator>>,
    generation: u32,
    shared: Arc<Shared>,
}

/// One connection.
struct Administrator {
    socket: OwnedFd,
    number: u32,
    input: Vec<u8>,
    output: Vec<u8>,
    work: Option<Work>,
    eof: bool,
}

/// A command that is being carried out.
struct Work {
    volume: VolumeId,
    steps: VecDeque<Step>,
    /// The step that the engine has.
    now: Step,
}

#[derive(Clone, Debug)]
enum Step {
    Add(String),
    Adding(MemberIndex),
    Fail(Vec<String>),
    Remove(String),
    Removing(MemberIndex),
    Set(String, String),
    /// Answered when everything has stopped.
    Stop,
    /// Kept until it is answered, since an answer of busy is explained.
    Sync(SyncAction),
    /// The engine has it, and nothing is left to do with the answer.
    Waiting,
}

impl ControlPort {
    pub(crate) fn new(listener: Listener, shared: Arc<Shared>) -> Self {
        let clients = (0..ADMINISTRATORS_MAX).map(|_| None).collect();
        Self { listener, clients, generation: 0, shared }
    }

    fn accept(&mut self, cx: &mut Context<'_, '_>) {
        loop {
            let socket = match self.listener.accept() {
                Ok(socket) => socket,
                Err(Errno::INTR | Errno::CONNABORTED) => continue,
                Err(_) => return,
            };
            let Some(place) = self.clients.iter().position(Option::is_none) else {
                // Hanging up says it; the kernel would let them wait without end.
                continue;
            };
            let key = u32::try_from(place).expect("at most ADMINISTRATORS_MAX");
            if !is_allowed(&socket)
                || cx.watch(socket.as_fd(), KEY_CLIENTS + key, EventFlags::IN).is_err()
            {
                continue;
            }
            self.generation = (self.generation + 1) % GENERATIONS;
            self.clients[place] = Some(Administrator {
                socket,
                number: self.generation * ADMINISTRATORS_MAX + key,
                input: Vec::new(),
                output: Vec::new(),
                work: None,
                eof: false,
            });
        }
    }

    /// Reads, works and writes for one connection.
    fn attend(&mut self, cx: &mut Context<'_, '_>, place: usize) {
        let Some(mut administrator) = self.clients[place].take() else { return };
        let mut alive = administrator.send();
        let mut commands = 0;
        while alive && commands < COMMANDS_MAX && administrator.listens() {
            let Some(line) = administrator.next_line() else { break };
            self.begin(cx, &mut administrator, &line);
            commands += 1;
        }
        alive &= administrator.send() && !administrator.is_over();
        let key = KEY_CLIENTS + u32::try_from(place).expect("at most ADMINISTRATORS_MAX");
        if alive {
            let listens = administrator.listens();
            // A line that is here already brings no event; a socket that takes bytes does.
            let more = listens && administrator.has_line();
            let mut flags = EventFlags::empty();
            flags.set(EventFlags::IN, !administrator.eof && listens);
            flags.set(EventFlags::OUT, more || !administrator.output.is_empty());
            if cx.rewatch(administrator.socket.as_fd(), key, flags).is_ok() {
                self.clients[place] = Some(administrator);
            }
        }
    }

    fn begin(&mut self, cx: &mut Context<'_, '_>, administrator: &mut Administrator, line: &[u8]) {
        let response = match serde_json::from_slice::<ControlRequest>(line) {
            Err(error) => Err(refusal(FailureKind::Usage, format!("request: {error}"))),
            Ok(request) if request.v != VERSION => Err(refusal(
                FailureKind::Usage,
                format!("request v: found {}, expected {VERSION}", request.v),
            )),
            Ok(request) => self.plan(cx, request),
        };
        match response {
            Err(response) => administrator.answer(&response),
            Ok((volume, steps)) => {
                let (steps, now) = (steps.into(), Step::Waiting);
                administrator.work = Some(Work { volume, steps, now });
                self.advance(cx, administrator);
            }
        }
    }

    /// What a command comes to: an answer at once, or steps.
    fn plan(
        &mut self,
        cx: &mut Context<'_, '_>,
        request: ControlRequest,
    ) -> Result<(VolumeId, Vec<Step>), Box<Response>> {
        let volume = self.volume_of(request.volume.as_deref())?;
        if matches!(request.command, Command::Status) {
            return Err(self.status(cx).into());
        }
        if let (Some(poison), false) =
            (cx.driver.poison(), matches!(request.command, Command::Stop))
        {
            return Err(refusal(FailureKind::Failed, format!("poisoned by a panic: {poison}")));
        }
        let each = |members: Vec<String>, step: fn(String) -> Step| {
            members.into_iter().map(step).collect::<Vec<_>>()
        };
        let steps = match request.command {
            Command::Add { members } => each(members, Step::Add),
            Command::Fail { members } => vec![Step::Fail(members)],
            Command::Get { knobs } => return Err(get(cx, volume, &knobs).into()),
            Command::Remove { members } => each(members, Step::Remove),
            Command::Set { knobs } => {
                knobs.into_iter().map(|(name, value)| Step::Set(name, value)).collect()
            }
            Command::Status => Vec::new(),
            Command::Stop => vec![Step::Stop],
            Command::SyncAction { action } => vec![Step::Sync(sync_action(&action)?)],
        };
        Ok((volume, steps))
    }

    fn volume_of(&self, name: Option<&str>) -> Result<VolumeId, Box<Response>> {
        let names = &self.shared.names;
        let position = match name {
            None if names.len() == 1 => Some(0),
            None => None,
            Some(name) => names.iter().position(|other| other == name),
        };
        let list = names.join(", ");
        let usage = || {
            let found = name.unwrap_or("none");
            refusal(FailureKind::Usage, format!("volume: found {found}, expected one of {list}"))
        };
        let index = position.ok_or_else(usage)?;
        Ok(VolumeId(u16::try_from(index).expect("volumes are numbered with 16 bits")))
    }

    /// Starts the next step, or answers.
    fn advance(&self, cx: &mut Context<'_, '_>, administrator: &mut Administrator) {
        let work = administrator.work.as_mut().expect("the caller looked");
        let started = match work.steps.pop_front() {
            None => Err(Box::new(Response::done())),
            Some(Step::Stop) => {
                work.now = Step::Stop;
                cx.stop();
                return;
            }
            Some(step) => start(cx, step),
        };
        match started {
            Ok((verb, now)) => {
                work.now = now;
                let client = Driver::client(cx.port(), administrator.number);
                let (tag, volume) = (Tag(0), work.volume);
                cx.driver.admin(AdminCommand { client, tag, volume, verb });
            }
            Err(response) => {
                administrator.work = None;
                administrator.answer(&response);
            }
        }
    }

    fn on_reply(
        &self,
        cx: &mut Context<'_, '_>,
        administrator: &mut Administrator,
        result: Result<(), ReplyError>,
    ) {
        let Some(work) = &administrator.work else { return };
        match (&work.now, &result) {
            (Step::Removing(index), Ok(())) | (Step::Adding(index), Err(_)) => {
                cx.driver.remove_member(*index);
            }
            _ => {}
        }
        match result {
            Ok(()) => self.advance(cx, administrator),
            Err(error) => {
                let text = match (&work.now, &error) {
                    (Step::Sync(_), ReplyError::Busy(_)) => what_runs(cx, work.volume),
                    _ => None,
                };
                let text = text.unwrap_or_else(|| error.to_string());
                administrator.work = None;
                administrator.answer(&refusal(kind_of(&error), text));
            }
        }
    }

    fn status(&self, cx: &mut Context<'_, '_>) -> Response {
        let shared = &self.shared;
        let snapshot = cx.snapshot();
        let volumes = snapshot.as_ref().map(|snapshot| self.volumes(cx, snapshot));
        let status = Status {
            pid: std::process::id(),
            uptime_ms: cx.driver.now().0 / 1_000_000,
            backend: shared.backend.clone(),
            poisoned: cx.driver.poison().is_some(),
            listen: shared.listen.clone(),
            clients: shared.clients(),
            frames_held: cx.frames_held(),
            tokens_outstanding: snapshot.map_or(0, |snapshot| snapshot.tokens_outstanding),
            volumes: volumes.unwrap_or_default(),
        };
        Response { status: Some(status), ..Response::done() }
    }

    fn volumes(&self, cx: &Context<'_, '_>, snapshot: &Snapshot) -> Vec<VolumeStatus> {
        let mode = |index: MemberIndex| {
            let mut open = cx.driver.members().members();
            let found = open.find(|member| member.info().index == index);
            found.map_or_else(String::new, |member| member.mode().to_string())
        };
        let volumes = snapshot.volumes.iter().zip(&self.shared.names).zip(&self.shared.shapes);
        volumes
            .map(|((volume, name), shape)| VolumeStatus {
                name: name.clone(),
                array_state: volume.array_state.to_owned(),
                level: shape.level.clone(),
                size: volume.size.0,
                slots: shape.slots,
                array: shape.array.clone(),
                degraded: volume.degraded,
                events: volume.events,
                sync_action: sync_word(volume.sync_action).to_owned(),
                sync_completed: volume.sync_completed.map(|(done, all)| (done.0, all.0)),
                sync_stripes: volume.sync_stripes,
                mismatch_cnt: volume.mismatch_cnt,
                mismatches: mismatches_of(volume),
                resync_from: volume.resync_from.map(|sectors| sectors.0),
                no_space: volume.no_space,
                stripe_cache_active: volume.raid.stripe_cache_active,
                requests_active: volume.requests_active,
                members: volume
                    .members
                    .iter()
                    .map(|member| MemberStatus {
                        index: member.member.0,
                        label: member.label.clone(),
                        slot: member.slot.map(|slot| slot.0),
                        dev_number: member.dev_number,
                        state: match member.state {
                            MemberState::Faulty => "faulty",
                            MemberState::InSync => "in_sync",
                            MemberState::Rebuilding { .. } => "rebuilding",
                            MemberState::Spare => "spare",
                        }
                        .to_owned(),
                        recovery_offset: match member.state {
                            MemberState::Rebuilding { recovery_offset } => Some(recovery_offset.0),
                            MemberState::Faulty | MemberState::InSync | MemberState::Spare => None,
                        },
                        mode: mode(member.member),
                        reads: member.reads,
                        writes: member.writes,
                        flushes: member.flushes,
                        sectors_read: member.sectors_read,
                        sectors_written: member.sectors_written,
                        corrected: member.corrected,
                        in_flight: member.in_flight,
                    })
                    .collect(),
            })
            .collect()
    }
}

impl Port for ControlPort {
    fn on_start(&mut self, cx: &mut Context<'_, '_>) -> std::io::Result<()> {
        cx.watch(self.listener.as_fd(), 0, EventFlags::IN)
    }

    fn on_ready(&mut self, cx: &mut Context<'_, '_>, key: u32, _ready: EventFlags) {
        match key.checked_sub(KEY_CLIENTS) {
            None => self.accept(cx),
            Some(place) => self.attend(cx, place as usize),
        }
    }

    fn on_event(&mut self, cx: &mut Context<'_, '_>, event: Event) {
        let Event::Reply { client, result, .. } = event else { return };
        let number = client.0 % weft_runtime::driver::CLIENTS_MAX;
        let place = (number % ADMINISTRATORS_MAX) as usize;
        match self.clients[place].take() {
            Some(mut administrator) if administrator.number == number => {
                self.on_reply(cx, &mut administrator, result);
                self.clients[place] = Some(administrator);
                self.attend(cx, place);
            }
            other => self.clients[place] = other,
        }
    }

    fn on_pass(&mut self, _cx: &mut Context<'_, '_>) {}

    fn on_poison(&mut self, cx: &mut Context<'_, '_>) {
        let text = "poisoned by a panic: nothing is acknowledged any more";
        self.finish(cx, |step| match step {
            Step::Stop => None,
            _ => Some(refusal(FailureKind::Failed, text)),
        });
    }

    fn on_stop(&mut self, _cx: &mut Context<'_, '_>) {}

    fn on_stopped(&mut self, cx: &mut Context<'_, '_>, exit: &Exit) {
        let response = match exit {
            Exit::Clean => Box::new(Response::done()),
            Exit::Poisoned(text) => {
                refusal(FailureKind::Failed, format!("poisoned by a panic: {text}"))
            }
            Exit::StopFailed(text) => refusal(FailureKind::Failed, text.clone()),
        };
        self.finish(cx, |_| Some(response.clone()));
    }

    fn drained(&self) -> bool {
        self.clients.iter().flatten().all(|administrator| administrator.output.is_empty())
    }

    fn next_wake(&self) -> Option<Time> {
        None
    }
}

impl ControlPort {
    /// Answers commands that are under way.
    fn finish(
        &mut self,
        cx: &mut Context<'_, '_>,
        answer: impl Fn(&Step) -> Option<Box<Response>>,
    ) {
        for place in 0..self.clients.len() {
            if let Some(administrator) = &mut self.clients[place]
                && let Some(response) =
                    administrator.work.as_ref().and_then(|work| answer(&work.now))
            {
                administrator.work = None;
                administrator.answer(&response);
                self.attend(cx, place);
            }
        }
    }
}

impl Administrator {
    /// Whether another command may be looked at.
    fn listens(&self) -> bool {
        self.work.is_none() && self.output.len() < OUTPUT_BYTES_HIGH
    }

    fn has_line(&self) -> bool {
        self.input.contains(&b'\n')
    }

    /// Receives up to the end of a line, and not much more.
    fn receive(&mut self) {
        let mut buffer = [0; 4096];
        while self.input.len() < LINE_BYTES_MAX && !self.eof {
            match rustix::net::recv(&self.socket, &mut buffer, RecvFlags::empty()) {
                Ok((0, _)) => self.eof = true,
                Ok((count, _)) => {
                    self.input.extend_from_slice(&buffer[..count]);
                    if buffer[..count].contains(&b'\n') {
                        return;
                    }
                    continue;
                }
                Err(Errno::INTR) => continue,
                Err(Errno::AGAIN) => {}
                Err(_) => self.eof = true,
            }
            return;
        }
    }

    fn next_line(&mut self) -> Option<Vec<u8>> {
        if !self.has_line() {
            self.receive();
        }
        let Some(end) = self.input.iter().position(|byte| *byte == b'\n') else {
            if self.input.len() >= LINE_BYTES_MAX {
                self.input.clear();
                self.eof = true;
                self.answer(&refusal(FailureKind::Usage, "request: longer than 1 MiB"));
            }
            return None;
        };
        let mut line: Vec<u8> = self.input.drain(..=end).collect();
        line.pop();
        Some(line)
    }

    fn answer(&mut self, response: &Response) {
        // Strings, numbers and lists: nothing that JSON cannot say.
        if let Ok(mut line) = serde_json::to_vec(response) {
            line.push(b'\n');
            self.output.append(&mut line);
        }
    }

    /// Sends what it can; whether the other side is there.
    fn send(&mut self) -> bool {
        while !self.output.is_empty() {
            match rustix::net::send(&self.socket, &self.output, SendFlags::NOSIGNAL) {
                Ok(count) => drop(self.output.drain(..count)),
                Err(Errno::INTR) => {}
                Err(Errno::AGAIN) => return true,
                Err(_) => return false,
            }
        }
        true
    }

    fn is_over(&self) -> bool {
        self.eof && self.output.is_empty() && self.work.is_none() && !self.has_line()
    }
}

/// What a step asks of the engine, and what is to be done with the answer.
fn start(cx: &mut Context<'_, '_>, step: Step) -> Result<(Verb, Step), Box<Response>> {
    match step {
        Step::Add(member) => add(cx, &member),
        Step::Fail(members) => {
            let members = members.iter().map(|member| member_of(cx, member));
            Ok((Verb::FailAll(members.collect::<Result<_, _>>()?), Step::Waiting))
        }
        Step::Remove(member) => {
            let index = member_of(cx, &member)?;
            Ok((Verb::Remove(index), Step::Removing(index)))
        }
        Step::Set(name, value) => {
            // The volume's present knobs; ranges depend on them. All volumes share their names.
            let snapshot = cx.driver.snapshot();
            let knobs = snapshot.and_then(|snapshot| snapshot.volumes.first().map(|v| v.knobs));
            let knob = knobs.unwrap_or_default().parse(&name, &value);
            let knob = knob.map_err(|error| refusal(FailureKind::Usage, error.to_string()))?;
            Ok((Verb::Set(knob), Step::Waiting))
        }
        Step::Sync(action) => Ok((Verb::SyncAction(action), Step::Sync(action))),
        Step::Adding(_) | Step::Removing(_) | Step::Stop | Step::Waiting => {
            Err(refusal(FailureKind::Failed, "internal: not a first step"))
        }
    }
}

fn add(cx: &mut Context<'_, '_>, member: &str) -> Result<(Verb, Step), Box<Response>> {
    let unusable = |error: DeviceError| {
        let kind = match error {
            DeviceError::Claimed { .. }
            | DeviceError::Locked { .. }
            | DeviceError::Overlay { .. } => FailureKind::Refused,
            DeviceError::Duplicate { .. }
            | DeviceError::Overlap { .. }
            | DeviceError::Partition { .. }
            | DeviceError::Spec { .. } => FailureKind::Usage,
            _ => FailureKind::Failed,
        };
        refusal(kind, error.to_string())
    };
    let failed = |error: &dyn std::fmt::Display| refusal(FailureKind::Failed, error.to_string());
    let spec = MemberSpec::parse(member).map_err(unusable)?;
    let lasts = cx.driver.members().members().any(|other| !other.is_memory());
    if lasts && member.starts_with("ram:") {
        let text = format!(
            "{member}: found memory, expected a file or a block device: the other members are still there \
             at the next start, and it would be lost"
        );
        return Err(refusal(FailureKind::Refused, text));
    }
    // What keeps its changes in overlays does so for a new member too.
    let overlays = cx.driver.members().members().find_map(|member| member.overlay().cloned());
    let overlays = overlays.map(|overlay| overlay.dir().to_owned());
    let access = if overlays.is_some() { Access::ReadOnly } else { Access::ReadWrite };
    let options = OpenOptions {
        buffered: overlays.is_some(),
        lock_wait: std::time::Duration::ZERO,
        ..OpenOptions::new(access)
    };
    let index = cx.driver.members().next_index();
    let others: Vec<_> = cx.driver.members().members().collect();
    let mut open = options.open(&spec, index, others).map_err(unusable)?;
    if let Some(dir) = overlays {
        open = open.with_overlay(&dir, Access::ReadWrite).map_err(unusable)?;
    }
    let superblock = read_metadata(&open).superblock.ok();
    let info = open.info().clone();
    let mut uuid = [0; 16];
    getrandom::fill(&mut uuid).map_err(|error| failed(&error))?;
    cx.driver.add_member(open).map_err(|error| failed(&error))?;
    let device_uuid = Uuid(uuid);
    Ok((Verb::Add { member: info, superblock, device_uuid }, Step::Adding(index)))
}

fn member_of(cx: &mut Context<'_, '_>, name: &str) -> Result<MemberIndex, Box<Response>> {
    let by_index = name.parse::<u16>().ok().map(MemberIndex);
    // Of two with one label, one was opened after the other had failed; the open one is meant.
    let found = cx.driver.members().members().find_map(|member| {
        let info = member.info();
        let named = info.label == name || by_index == Some(info.index);
        named.then_some(info.index)
    });
    found.ok_or_else(|| {
        let labels: Vec<_> =
            cx.driver.members().members().map(|member| member.info().label.clone()).collect();
        let text = format!("{name}: found no such member, expected one of {}", labels.join(", "));
        refusal(FailureKind::Usage, text)
    })
}

fn get(cx: &mut Context<'_, '_>, volume: VolumeId, names: &[String]) -> Response {
    let knobs = cx
        .driver
        .snapshot()
        .and_then(|snapshot| snapshot.volumes.get(volume.index()).map(|volume| volume.knobs));
    let knobs = knobs.unwrap_or_default();
    let mut found = Vec::new();
    let all: Vec<String> = TABLE.iter().map(|row| row.name.to_owned()).collect();
    for name in if names.is_empty() { &all } else { names } {
        match knobs.show(name) {
            Some(value) => found.push((name.clone(), value)),
            None => {
                let text = format!("{name}: no such knob; expected one of {}", all.join(", "));
                return *refusal(FailureKind::Usage, text);
            }
        }
    }
    Response { knobs: found, ..Response::done() }
}

/// Why another sync cannot start, and what to do: the engine knows that one runs, people want to
/// know which.
fn what_runs(cx: &mut Context<'_, '_>, volume: VolumeId) -> Option<String> {
    let snapshot = cx.driver.snapshot()?;
    let what = match snapshot.volumes.get(volume.index())?.sync_action {
        SyncAction::Check => "check",
        SyncAction::Frozen | SyncAction::Idle => return None,
        SyncAction::Recover => "rebuild",
        SyncAction::Repair => "repair",
        SyncAction::Resync => "resync",
    };
    let way_out = match what {
        "check" | "repair" => "weft wait returns when it has ended, weft idle stops it",
        // What the array needs would start again by itself.
        _ => "weft wait returns when it has ended",
    };
    Some(format!("busy: a {what} is running; {way_out}"))
}

/// An answer that says no. Boxed, as the rare case.
fn refusal(kind: FailureKind, text: impl Into<String>) -> Box<Response> {
    Box::new(Response::error(kind, text))
}

/// Whether who connected may administer: the same user, or root.
fn is_allowed(socket: &OwnedFd) -> bool {
    let own = rustix::process::geteuid();
    rustix::net::sockopt::socket_peercred(socket)
        .is_ok_and(|peer| peer.uid == own || peer.uid.is_root())
}

fn kind_of(error: &ReplyError) -> FailureKind {
    match error {
        ReplyError::ReadOnly | ReplyError::Refused(_) => FailureKind::Refused,
        ReplyError::Invalid(_) | ReplyError::OutOfRange => FailureKind::Usage,
        _ => FailureKind::Failed,
    }
}

fn sync_action(word: &str) -> Result<SyncAction, Box<Response>> {
    let all = [
        SyncAction::Check,
        SyncAction::Frozen,
        SyncAction::Idle,
        SyncAction::Recover,
        SyncAction::Repair,
        SyncAction::Resync,
    ];
    all.into_iter().find(|action| sync_word(*action) == word).ok_or_else(|| {
        let words: Vec<_> = all.into_iter().map(sync_word).collect();
        let text = format!("sync_action: found {word}, expected one of {}", words.join(", "));
        refusal(FailureKind::Usage, text)
    })
}

/// Members by what they are called; one that was removed since by its number.
fn mismatches_of(volume: &VolumeSnapshot) -> Option<MismatchesStatus> {
    let Mismatches { by_member, not_located, first } = &volume.mismatches;
    if first.is_empty() {
        return None;
    }
    let label = |index: MemberIndex| {
        let found = volume.members.iter().find(|member| member.member == index);
        found.map_or_else(|| format!("member {}", index.0), |member| member.label.clone())
    };
    let wrong = |(index, stripes): &(MemberIndex, u64)| WrongMember {
        label: label(*index),
        stripes: *stripes,
    };
    let mismatch = |found: &Mismatch| MismatchStatus {
        sector: found.sector.0,
        member: found.wrong.map(|wrong| label(wrong.member)),
        slot: found.wrong.map(|wrong| wrong.slot.0),
        member_sector: found.wrong.map(|wrong| wrong.at.0),
    };
    Some(MismatchesStatus {
        members: by_member.iter().map(wrong).collect(),
        not_located: *not_located,
        first: first.iter().map(mismatch).collect(),
    })
}

/// md's word.
fn sync_word(action: SyncAction) -> &'static str {
    match action {
        SyncAction::Check => "check",
        SyncAction::Frozen => "frozen",
        SyncAction::Idle => "idle",
        SyncAction::Recover => "recover",
        SyncAction::Repair => "repair",
        SyncAction::Resync => "resync",
    }
}

/// Answers that wait to be sent, beyond which no command is looked at.
const OUTPUT_BYTES_HIGH: usize = 64 << 10;
/// Commands of one connection before others are served: statuses of some 0.1 ms each.
const COMMANDS_MAX: usize = 16;
/// Connections at one time.
const ADMINISTRATORS_MAX: u32 = 16;
/// Uses of a place before a name returns.
const GENERATIONS: u32 = 1 << 16;
/// The key below is the listener.
const KEY_CLIENTS: u32 = 1;
