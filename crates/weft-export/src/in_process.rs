//! Client in the process of the server, which reads the frames of its replies in place.
//!
//! `weft cat` and `weft rescue` read an array that they serve themselves. Over a socket each byte
//! would be copied into it and out of it, into memory that is new for each read, and the server
//! could not go on while the client writes what it has read (`docs/rescue.md` has the figures).
//! Here requests and replies go through channels. A reply brings a lease on its frames, and the
//! frames return to the pool when the client drops the reply.
//!
//! Bound    left to the caller, as for `client.rs`: each request begins as soon as frames are free,
//!          and frames of replies that are kept are missing for further requests.

use std::collections::{BTreeMap, VecDeque};
use std::io::IoSlice;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::{Arc, OnceLock, mpsc};

use rustix::event::EventfdFlags;
use rustix::event::epoll::EventFlags;
use smallvec::SmallVec;
use weft_engine::{ReplyError, RequestOp, Run};
use weft_runtime::buffers::Buffer;
use weft_runtime::serve::driver::Event;
use weft_runtime::serve::reactor::{Context, Port};
use weft_units::Bytes;

use crate::record::VolumeRequest;
use crate::session::{Lent, Served, SoleClient};

/// Client that reads a volume which is served in the same process.
#[derive(Debug)]
pub struct InProcessClient {
    way: Arc<Way>,
    answers: mpsc::Receiver<Answered>,
    size: Arc<OnceLock<u64>>,
    next: u32,
    /// Data of reads that have not ended, by cookie.
    parts: BTreeMap<u32, SmallVec<[Part; 1]>>,
}

/// Reply to a read.
#[derive(Debug)]
pub struct InProcessReply {
    /// Cookie that [`InProcessClient::read`] returned.
    pub cookie: u32,
    /// Data of the read, or its error.
    pub result: Result<ReadData, ReplyError>,
}

/// Data of a read, in frames of the server.
#[derive(Debug)]
pub struct ReadData {
    parts: SmallVec<[Part; 1]>,
}

/// Server's end of a client in its process, for [`Listen::InProcess`](crate::Listen).
#[derive(Debug)]
pub struct InProcessEnd {
    commands: mpsc::Receiver<Command>,
    /// The client's way to the server, on which lent frames return.
    way: Arc<Way>,
    answers: mpsc::Sender<Answered>,
    size: Arc<OnceLock<u64>>,
}

/// Creates a client, and the end of it with which the server is started.
///
/// # Errors
/// The process has no descriptor left.
pub fn client() -> std::io::Result<(InProcessEnd, InProcessClient)> {
    let flags = EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK;
    let eventfd = rustix::event::eventfd(0, flags)?;
    let (sender, commands) = mpsc::channel();
    let (answers, receiver) = mpsc::channel();
    let size = Arc::new(OnceLock::new());
    let way = Arc::new(Way { commands: sender, eventfd });
    let client = InProcessClient {
        way: Arc::clone(&way),
        answers: receiver,
        size: Arc::clone(&size),
        next: 0,
        parts: BTreeMap::new(),
    };
    Ok((InProcessEnd { commands, way, answers, size }, client))
}

/// Way from the client to the server.
#[derive(Debug)]
struct Way {
    commands: mpsc::Sender<Command>,
    /// Eventfd that wakes the server.
    eventfd: OwnedFd,
}

/// Message to the server.
#[derive(Clone, Copy, Debug)]
enum Command {
    Read {
        cookie: u32,
        start: u64,
        len: u64,
    },
    /// The frames that were lent under this number are not read any more.
    Returned(u64),
}

/// Message to the client.
#[derive(Debug)]
enum Answered {
    /// Data of a read, in the order of its bytes.
    Part(u32, Part),
    /// The read is over.
    End(u32, Option<ReplyError>),
}

/// Data of a read.
#[derive(Debug)]
enum Part {
    Lent(LentFrames),
    Copied(Vec<u8>),
}

/// Frames that are lent to the client.
#[derive(Debug)]
struct LentFrames {
    /// Lease on the frames; `None` only while it is dropped.
    frames: Option<Buffer>,
    number: u64,
    way: Arc<Way>,
}

impl Way {
    fn give(&self, command: Command) {
        // Errors are ignored: the server has ended, and takes no frames back.
        let _ = self.commands.send(command);
        let _ = rustix::io::write(&self.eventfd, &1_u64.to_ne_bytes());
    }
}

impl Drop for LentFrames {
    fn drop(&mut self) {
        self.frames = None;
        self.way.give(Command::Returned(self.number));
    }
}

impl LentFrames {
    fn slices(&self) -> SmallVec<[IoSlice<'_>; 4]> {
        self.frames.iter().flat_map(|frames| frames.slices(0, usize::MAX)).collect()
    }

    fn to_vec(&self) -> Vec<u8> {
        let mut bytes = Vec::new();
        self.slices().iter().for_each(|slice| bytes.extend_from_slice(slice));
        bytes
    }
}

impl InProcessClient {
    /// Size of the volume in bytes; 0 before the server is ready.
    #[must_use]
    pub fn size(&self) -> u64 {
        self.size.get().copied().unwrap_or(0)
    }

    /// Reads `len` bytes at `start`. Returns the cookie of the request.
    pub fn read(&mut self, start: u64, len: u64) -> u32 {
        let cookie = self.next;
        // After 4 billion reads the first ones have ended.
        self.next = cookie.wrapping_add(1);
        self.parts.insert(cookie, SmallVec::new());
        self.way.give(Command::Read { cookie, start, len });
        cookie
    }

    /// Waits for the next reply. The server determines the order of replies.
    ///
    /// # Errors
    /// Fails when the server has ended, and when no read is open. An error that the server reports
    /// is part of the [`InProcessReply`].
    pub fn reply(&mut self) -> Result<InProcessReply, String> {
        if self.parts.is_empty() {
            return Err("no read is open".into());
        }
        loop {
            match self.answers.recv() {
                Ok(Answered::Part(cookie, part)) => {
                    self.parts.entry(cookie).or_default().push(part);
                }
                Ok(Answered::End(cookie, error)) => {
                    let parts = self.parts.remove(&cookie).unwrap_or_default();
                    let result = error.map_or(Ok(ReadData { parts }), Err);
                    return Ok(InProcessReply { cookie, result });
                }
                Err(mpsc::RecvError) => return Err("the server has ended".into()),
            }
        }
    }
}

impl ReadData {
    /// Length of the data in bytes.
    #[must_use]
    pub fn len(&self) -> usize {
        let len = |part: &Part| match part {
            Part::Lent(lent) => lent.frames.as_ref().map_or(0, Buffer::len),
            Part::Copied(bytes) => bytes.len(),
        };
        self.parts.iter().map(len).sum()
    }

    /// Whether there is no data.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Calls `take` with the data, in slices and in order, until it fails.
    ///
    /// # Errors
    /// The error of `take`.
    pub fn try_for_each<E>(&self, mut take: impl FnMut(&[u8]) -> Result<(), E>) -> Result<(), E> {
        self.parts.iter().try_for_each(|part| match part {
            Part::Lent(lent) => lent.slices().iter().try_for_each(|slice| take(slice)),
            Part::Copied(bytes) => take(bytes),
        })
    }

    /// Copies the data to the start of `into`. Returns false if `into` is longer than the data.
    #[must_use]
    pub fn fill(&self, into: &mut [u8]) -> bool {
        let mut rest = into;
        let filled = self.try_for_each(|slice| {
            let len = slice.len().min(rest.len());
            let (part, after) = std::mem::take(&mut rest).split_at_mut(len);
            part.copy_from_slice(&slice[..len]);
            rest = after;
            Ok::<(), std::convert::Infallible>(())
        });
        filled.is_ok() && rest.is_empty()
    }
}

/// Port of a client in this process.
pub(crate) struct InProcessPort {
    client: SoleClient<u32>,
    end: InProcessEnd,
    /// Reads that have not begun, in order, each with its cookie.
    waiting: VecDeque<(u32, VolumeRequest)>,
    /// Frames that the client reads, by the number under which they were lent.
    lent: BTreeMap<u64, SmallVec<[Run; 1]>>,
    next: u64,
    stops: bool,
}

impl InProcessPort {
    /// Port of the client at the other side of `end`. `size` is the size of the volume in bytes.
    pub(crate) fn new(end: InProcessEnd, served: Served, credit: Bytes, size: u64) -> Self {
        // An error is ignored: an end belongs to one server.
        let _ = end.size.set(size);
        Self {
            client: SoleClient::new(served, credit),
            end,
            waiting: VecDeque::new(),
            lent: BTreeMap::new(),
            next: 0,
            stops: false,
        }
    }

    /// Takes the client's messages, and the frames that it returns.
    fn receive(&mut self, cx: &mut Context<'_, '_>) {
        let _ = rustix::io::read(&self.end.way.eventfd, &mut [0; 8]);
        while let Ok(command) = self.end.commands.try_recv() {
            match command {
                Command::Read { cookie, start, len } => {
                    let op = RequestOp::Read;
                    let asked = VolumeRequest { op, start, len, fua: false, discard: false };
                    self.waiting.push_back((cookie, asked));
                }
                Command::Returned(number) => {
                    let runs = self.lent.remove(&number).unwrap_or_default();
                    if let Some(requests) = self.client.requests_mut() {
                        runs.into_iter().for_each(|run| requests.take_back(cx.driver, run));
                    }
                }
            }
        }
        if self.stops {
            for (cookie, _) in self.waiting.drain(..) {
                self.end.answer(Answered::End(cookie, Some(ReplyError::Stopping)));
            }
        }
    }

    /// Begins reads that wait, in order, until one has to wait longer.
    fn begin(&mut self, cx: &mut Context<'_, '_>) {
        let Some(requests) = self.client.requests_mut() else { return };
        while let Some((cookie, asked)) = self.waiting.front() {
            if !requests.begin(cx.driver, *cookie, asked) {
                return;
            }
            requests.note(*asked);
            self.waiting.pop_front();
        }
    }

    /// Sends replies that are ready. Returns whether there were any.
    fn send(&mut self, cx: &mut Context<'_, '_>) -> bool {
        let Self { client, end, lent, next, .. } = self;
        let Some(requests) = client.requests_mut() else { return false };
        let mut has_sent = false;
        while let Some(Lent { request: cookie, error, frames, runs, is_over }) =
            requests.lend_reply(cx.driver)
        {
            if let Some(frames) = frames {
                lent.insert(*next, runs);
                let (frames, number) = (Some(frames), *next);
                let data = LentFrames { frames, number, way: Arc::clone(&end.way) };
                *next += 1;
                // The rest of a read that comes in parts may need the frames of this part.
                let part = match is_over {
                    true => Part::Lent(data),
                    false => Part::Copied(data.to_vec()),
                };
                end.answer(Answered::Part(cookie, part));
            }
            if is_over {
                end.answer(Answered::End(cookie, error));
            }
            has_sent = true;
        }
        has_sent
    }
}

impl InProcessEnd {
    fn answer(&self, answered: Answered) {
        // An error is ignored: the client was dropped, and with it go the frames of the answer.
        let _ = self.answers.send(answered);
    }
}

impl Port for InProcessPort {
    fn on_start(&mut self, cx: &mut Context<'_, '_>) -> std::io::Result<()> {
        self.client.start(cx);
        cx.watch(self.end.way.eventfd.as_fd(), KEY_EVENTFD, EventFlags::IN)
    }

    fn on_ready(&mut self, cx: &mut Context<'_, '_>, _: u32, _: EventFlags) {
        self.receive(cx);
    }

    fn on_event(&mut self, cx: &mut Context<'_, '_>, event: Event) {
        self.client.on_event(cx, event);
    }

    fn on_pass(&mut self, cx: &mut Context<'_, '_>) {
        self.client.resume(cx);
        // After a panic of the engine reads end when they begin, and no event calls the port.
        loop {
            self.begin(cx);
            if !self.send(cx) {
                return;
            }
        }
    }

    fn on_poison(&mut self, cx: &mut Context<'_, '_>) {
        self.client.poison(cx);
    }

    fn on_stop(&mut self, cx: &mut Context<'_, '_>) {
        self.stops = true;
        self.receive(cx);
    }

    fn drained(&self) -> bool {
        self.client.is_drained()
    }

    fn is_waiting(&self) -> bool {
        self.client.is_starved() || !self.waiting.is_empty()
    }
}

const KEY_EVENTFD: u32 = 0;
