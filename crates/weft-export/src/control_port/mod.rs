//! Port of the control socket: the server's side of the control protocol.
//!
//! One command of a connection runs at a time. Its members or knobs are handled one after the
//! other, and the command ends at the first of them that fails. `fail` is the exception: it
//! declares all of its members failed, or none. Opening a member that is added is the only
//! operation here that can block the loop, for the time of an `open` and three reads.
//!
//! An administrator that does not read its answers waits: with [`OUTPUT_BYTES_HIGH`] unsent bytes,
//! no more of its input is read. A connection therefore holds at most that much, plus one answer
//! and one line, and there are at most [`ADMINISTRATORS_MAX`] connections. An administrator that
//! sends many commands gets [`COMMANDS_MAX`] of them carried out at a time.
//!
//! Source   reliability.md §8 "Control socket"

mod administrator;
mod commands;
mod members;
mod shares;
mod supervision;

use std::collections::VecDeque;
use std::os::fd::AsFd;
use std::path::Path;
use std::sync::Arc;

use rustix::event::epoll::EventFlags;
use rustix::io::Errno;
use weft_engine::{
    ArrayShape, Command as AdminCommand, Growth, ReplyError, Snapshot, SyncAction, Tag,
};
use weft_runtime::serve::clients::{CLIENTS_MAX, client_of};
use weft_runtime::serve::driver::Event;
use weft_runtime::serve::reactor::{Context, Ending, Exit, Port};
use weft_units::{Bytes, MemberIndex, SECTOR_BYTES, Sectors, Time, VolumeId};

use crate::control::{
    Command, ControlRequest, FailureKind, Response, Status, VERSION, VolumeStatus,
};
use crate::error::ServeError;
use crate::shared::Shared;
use crate::socket::Listener;
use administrator::Administrator;
use commands::{
    beyond_the_end, bitmap_of, get, is_allowed, kind_of, last_sync_of, layout_named, mismatches_of,
    refusal, reshape_of, sectors_of, start, sync_action, sync_word, what_runs, write_back_of,
};
use members::{answered_of, status_of};
use shares::shares_of;
use supervision::Supervision;

pub use supervision::Supervisor;

/// Server's side of the control socket: its listener and its connections.
pub(crate) struct ControlPort {
    listener: Listener,
    clients: Vec<Option<Administrator>>,
    generation: u32,
    shared: Arc<Shared>,
    supervision: Option<Supervision>,
}

/// A command that is being carried out.
struct Work {
    volume: VolumeId,
    steps: VecDeque<Step>,
    /// The step that the engine is carrying out.
    now: Step,
}

#[derive(Clone, Debug)]
enum Step {
    Add(String),
    Adding(MemberIndex),
    Fail(Vec<String>),
    Grow(Growth),
    ReAdd(String),
    Remove(String),
    Replace(String, Option<String>),
    Removing(MemberIndex),
    Set(String, String),
    SetQueues(Vec<String>, String, String),
    /// The engine is setting the bitmap. If it answers that it is busy, the response names the
    /// running sync, as for [`Step::Sync`].
    SetBitmap,
    /// The server is stopping; the command is answered when everything has stopped.
    Stop(Ending),
    /// The engine is changing the sync action. If it answers that it is busy, the response names
    /// the running sync.
    Sync(SyncAction, Option<Sectors>, Option<Sectors>),
    /// The engine is carrying out a step; its answer completes the step.
    Waiting,
}

impl ControlPort {
    /// Listens on the control socket at `path`.
    pub(crate) fn open(
        path: &Path,
        shared: Arc<Shared>,
        supervisor: Option<Supervisor>,
    ) -> Result<Self, ServeError> {
        let listener = Listener::unix(path)?;
        let clients = (0..ADMINISTRATORS_MAX).map(|_| None).collect();
        let supervision = supervisor.map(Supervision::new);
        Ok(Self { listener, clients, generation: 0, shared, supervision })
    }

    fn accept(&mut self, cx: &mut Context<'_, '_>) {
        loop {
            let socket = match self.listener.accept() {
                Ok(socket) => socket,
                Err(Errno::INTR | Errno::CONNABORTED) => continue,
                Err(_) => return,
            };
            let Some(place) = self.clients.iter().position(Option::is_none) else {
                // The socket is closed, which the client notices. In the kernel's queue the client
                // would wait without end.
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

    /// Sends the waiting responses of one connection, then reads and carries out its commands, and
    /// sends their responses.
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
            // A line that was received already raises no event. The socket is therefore watched for
            // being writable, which raises one.
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

    /// Splits a command into steps for a volume. The error is the response to a command that is
    /// answered at once.
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
            (cx.driver.poison(), matches!(request.command, Command::Stop { .. }))
        {
            return Err(refusal(FailureKind::Failed, format!("poisoned by a panic: {poison}")));
        }
        let each = |members: Vec<String>, step: fn(String) -> Step| {
            members.into_iter().map(step).collect::<Vec<_>>()
        };
        let steps = match request.command {
            Command::Add { members } => each(members, Step::Add),
            Command::Fail { members } => vec![Step::Fail(members)],
            Command::Grow { raid_devices: None, layout: None, chunk: None, size: None } => {
                let text = "grow: found nothing to change, expected a shape or a size";
                return Err(refusal(FailureKind::Usage, text));
            }
            Command::Grow { chunk: Some(found), .. } if !found.is_multiple_of(SECTOR_BYTES) => {
                let text = format!("chunk: found {found} bytes, expected whole sectors");
                return Err(refusal(FailureKind::Usage, text));
            }
            Command::Grow { raid_devices, layout, chunk, size: None } => {
                let layout = layout.as_deref();
                let layout = layout.map(|name| layout_named(cx, volume, name)).transpose()?;
                let chunk = chunk.map(|bytes| Bytes(bytes).sectors_floor());
                vec![Step::Grow(Growth::Shape(ArrayShape {
                    raid_disks: raid_devices,
                    layout,
                    chunk,
                }))]
            }
            Command::Grow { raid_devices: None, layout: None, chunk: None, size: Some(size) } => {
                vec![Step::Grow(Growth::Size(sectors_of(size)))]
            }
            Command::Grow { .. } => {
                let text = "grow: found a size and a shape, expected one of them";
                return Err(refusal(FailureKind::Usage, text));
            }
            Command::Get { knobs } => return Err(get(cx, volume, &knobs).into()),
            Command::ReAdd { members } => each(members, Step::ReAdd),
            Command::Remove { members } => each(members, Step::Remove),
            Command::Replace { members, with } => {
                let with = with.into_iter().map(Some).chain(std::iter::repeat(None));
                members.into_iter().zip(with).map(|(of, by)| Step::Replace(of, by)).collect()
            }
            Command::Set { .. } | Command::SetQueues { .. } if self.shared.engines > 1 => {
                let engines = self.shared.engines;
                return Err(refusal(
                    FailureKind::Refused,
                    format!(
                        "this bare member in memory is served by {engines} threads, each with a \
                         queue of its own, which have no common scheduler; stop it, and serve it \
                         again with --set"
                    ),
                ));
            }
            Command::Set { knobs } => {
                knobs.into_iter().map(|(name, value)| Step::Set(name, value)).collect()
            }
            Command::SetQueues { members, knobs } => knobs
                .into_iter()
                .map(|(name, value)| Step::SetQueues(members.clone(), name, value))
                .collect(),
            Command::Status => Vec::new(),
            Command::Stop { discard } => {
                vec![Step::Stop(if discard { Ending::GiveUp } else { Ending::Write })]
            }
            Command::SyncAction { action, from, to } => {
                vec![Step::Sync(sync_action(&action)?, from.map(Sectors), to.map(Sectors))]
            }
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
        Ok(volume_id(index))
    }

    /// Starts the next step of a command, or answers the command after its last step.
    fn advance(&self, cx: &mut Context<'_, '_>, administrator: &mut Administrator) {
        let work = administrator.work.as_mut().expect("the caller looked");
        let started = match work.steps.pop_front() {
            None => Err(Box::new(Response::done())),
            Some(Step::Stop(how)) => {
                work.now = Step::Stop(how);
                cx.stop(how);
                return;
            }
            Some(step) => start(cx, &self.shared.facts[usize::from(work.volume.0)], step),
        };
        match started {
            Ok((verb, now)) => {
                work.now = now;
                let client = client_of(cx.port(), administrator.number);
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
                    (Step::Sync(..) | Step::SetBitmap, ReplyError::Busy(_)) => {
                        what_runs(cx, work.volume)
                    }
                    (Step::Sync(_, Some(from), _), ReplyError::OutOfRange) => {
                        beyond_the_end(cx, work.volume, *from)
                    }
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

    /// State of the volumes in a line, for a supervisor.
    fn line(&self, cx: &mut Context<'_, '_>) -> Option<String> {
        if cx.driver.poison().is_some() {
            return Some("poisoned by a panic: nothing is acknowledged any more".into());
        }
        let snapshot = cx.snapshot()?;
        let volumes = self.volumes(cx, &snapshot);
        let lines = volumes.iter().map(|volume| {
            let remarks = volume.remarks();
            let remarks = if remarks.is_empty() { "all in order" } else { &remarks };
            format!("{}: {}, {remarks}", volume.name, volume.level)
        });
        Some(lines.collect::<Vec<_>>().join("; "))
    }

    fn volumes(&self, cx: &Context<'_, '_>, snapshot: &Snapshot) -> Vec<VolumeStatus> {
        let open = |index: MemberIndex| {
            cx.driver.members().members().find(|member| member.info().index == index)
        };
        let volumes = snapshot.volumes.iter().zip(&self.shared.names).zip(&self.shared.facts);
        volumes
            .zip(0..)
            .map(|(((volume, name), facts), place)| VolumeStatus {
                write_back: snapshot.write_back.as_ref().map(|it| write_back_of(it, place)),
                name: name.clone(),
                array_state: volume.array_state.to_owned(),
                level: facts.level.clone(),
                size: volume.size.0,
                slots: volume.slots,
                array: facts.array.clone().map(|array| array.with_layout(volume.layout)),
                degraded: volume.degraded,
                events: volume.events,
                updated_secs: volume.updated_secs,
                bitmap: volume.bitmap.as_ref().map(bitmap_of),
                sync_action: sync_word(volume.sync_action).to_owned(),
                last_sync: volume.last_sync.map(|sync| last_sync_of(sync, cx.driver.now())),
                sync_completed: volume.sync_completed.map(|(done, all)| (done.0, all.0)),
                sync_stripes: volume.sync_stripes,
                sync_speed: volume.sync_speed.map(|speed| speed.0),
                mismatch_cnt: volume.mismatch_cnt,
                mismatches: mismatches_of(volume),
                resync_from: volume.resync_from.map(|sectors| sectors.0),
                reshape: volume.reshape.as_ref().map(reshape_of),
                no_space: volume.no_space,
                stripe_cache_active: volume.raid.stripe_cache_active,
                requests_active: volume.requests_active,
                answered: answered_of(cx.answered(volume_id(place)).all()),
                shares: shares_of(
                    volume,
                    |client| self.shared.chosen.export_of(client),
                    &self.shared.groups,
                ),
                members: volume
                    .members
                    .iter()
                    .map(|member| {
                        let answered = cx.driver.members().answered(member.member);
                        status_of(member, volume, open(member.member), answered)
                    })
                    .collect(),
            })
            .collect()
    }
}

/// Number of the volume at this place of the list of names.
fn volume_id(place: usize) -> VolumeId {
    VolumeId(u16::try_from(place).expect("volumes are numbered with 16 bits"))
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
        let number = client.0 % CLIENTS_MAX;
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

    fn on_pass(&mut self, cx: &mut Context<'_, '_>) {
        let Some(mut supervision) = self.supervision.take() else { return };
        supervision.on_pass(cx.driver.now(), || self.line(cx));
        self.supervision = Some(supervision);
    }

    fn on_poison(&mut self, cx: &mut Context<'_, '_>) {
        let text = "poisoned by a panic: nothing is acknowledged any more";
        self.finish(cx, |step| match step {
            Step::Stop(_) => None,
            _ => Some(refusal(FailureKind::Failed, text)),
        });
    }

    fn on_stop(&mut self, _cx: &mut Context<'_, '_>) {}

    fn on_stop_refused(&mut self, cx: &mut Context<'_, '_>, text: &str) {
        self.finish(cx, |step| match step {
            Step::Stop(_) => Some(refusal(FailureKind::Failed, text)),
            _ => None,
        });
    }

    fn on_stopped(&mut self, cx: &mut Context<'_, '_>, exit: &Exit) {
        let response = match exit {
            Exit::Clean => Box::new(Response::done()),
            Exit::Hanging(text) => {
                Box::new(Response { note: Some(text.clone()), ..Response::done() })
            }
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
        self.supervision.as_ref().and_then(Supervision::next_wake)
    }
}

impl ControlPort {
    /// Answers those commands in progress for which `answer` returns a response to the current
    /// step.
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

/// Number of unsent bytes of answers at which no further command is read.
const OUTPUT_BYTES_HIGH: usize = 64 << 10;
/// Largest number of commands of one connection that are carried out before others are served. A
/// `status` takes some 0.1 ms, so that others wait for less than 2 ms.
const COMMANDS_MAX: usize = 16;
/// Largest number of connections to the control socket at the same time.
const ADMINISTRATORS_MAX: u32 = 16;
/// Number of accepted connections after which the numbers of clients repeat.
const GENERATIONS: u32 = 1 << 16;
/// Event key of the first connection. The key below it, 0, is that of the listener.
const KEY_CLIENTS: u32 = 1;
