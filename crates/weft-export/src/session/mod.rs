//! Session: the requests of one client, their frames and sub-requests, and the replies.
//!
//! A session is the life of requests of any protocol; what a protocol puts into bytes is its
//! [`Codec`]. A test of xtask holds that no file here names a protocol's crate.
//!
//! Replies are sent in the order in which requests end. Bytes take one of these ways:
//!
//! ```text
//! write    socket ──► receive buffer ──► frames         short payloads, one copy
//!          socket ─────────────────────► frames         the rest of long ones
//! read     frames ─────────────────────► socket         header and payload in one `sendmsg`
//! ```
//!
//! # Sub-requests
//!
//! A request is cut at multiples of a MiB. In the common case it is *whole*: nothing reaches the
//! engine before the payload is complete, and a read is answered when all of it is there, so that
//! an error can still be told. A read takes its frames at once, a write one sub-request at a time
//! as its payload comes: what a client only announces costs one sub-request. A request that does
//! not fit what its client may have is *streamed*: one sub-request at a time, in order, answered
//! once; a read that fails after its first sub-request can only be told by hanging up. A whole
//! write that finds no more frames half-way is streamed from there.
//!
//! # Bounds
//!
//! Nothing more is read from the socket while the client has too many requests open, too little
//! credit, or more frames than its share (`pool.rs`). Its floor of frames is a client's own,
//! whatever others do, and a streamed request needs one frame to go on: so a client that is slow,
//! or has stopped, holds up no other client, for however long, and is not hung up on for that.
//!
//! Trims and zeroes bring no payload; they are carried out in slices, by turns (`turns.rs`).
//! Requests for block status are answered here, by turns too (`looks.rs`).

pub(crate) mod codec;
mod incoming;
mod outgoing;
mod requests;

use std::collections::VecDeque;
use std::os::fd::OwnedFd;
use std::sync::Arc;

use rustix::io::Errno;
use weft_engine::{Attr, Origin, ReplyError, RequestOp, Run, Tag};
use weft_runtime::driver::Driver;
use weft_runtime::reactor::Held;
use weft_units::{Bytes, ClientId, VolumeId};

use crate::allocation::Allocation;
use crate::looks::Looks;
use crate::record::Recorder;
use crate::share::{ClientShare, Roll};
use codec::Codec;
use requests::{At, Open, SubRequest, is_long};

/// Volume behind an export.
#[derive(Clone, Debug)]
pub(crate) struct Served {
    pub(crate) volume: VolumeId,
    /// Name of the export.
    pub(crate) name: Arc<str>,
    pub(crate) share: ClientShare,
    pub(crate) allocation: Arc<Allocation>,
    /// Whether a trim does something, as far as was known at the start.
    pub(crate) discards: bool,
    pub(crate) recorder: Option<Arc<Recorder>>,
    pub(crate) roll: Arc<Roll>,
}

/// One client.
pub(crate) struct Connection<C: Codec> {
    pub(crate) socket: OwnedFd,
    pub(crate) client: ClientId,
    /// On whose behalf its requests are, once it has chosen an export.
    attr: Attr,
    /// Share of those who come by its socket, if it has one.
    share: Option<ClientShare>,
    codec: C,
    /// Export that the client has chosen.
    served: Option<Served>,
    /// Received and not looked at, from `stash_at` on: the client has to wait.
    stash: Vec<u8>,
    stash_at: usize,
    /// Parsed, and waiting for credit or frames.
    pending: Option<C::Request>,
    /// The write whose payload comes next.
    receiving: Option<u32>,
    slots: Vec<Option<Open<C>>>,
    free: Vec<u32>,
    /// Ended, in the order in which they are answered.
    replies: VecDeque<u32>,
    /// Bytes of the first reply that were sent (of a streamed read: of its present sub-request).
    sent: usize,
    /// Frames taken for it and not back yet.
    held: u32,
    /// Trims and zeroes that are not answered.
    long: usize,
    /// Bytes asked of the engine and not credited yet.
    charged: u64,
    credit: u64,
    /// Sub-requests that wait for frames: the member stalled, or the next sub-request of a streamed
    /// request.
    starved: VecDeque<u32>,
    /// The rest of what was received is for the next pass.
    yielded: bool,
    readable: bool,
    writable: bool,
    /// The other side has closed; what it sent before is still to be read.
    hung_up: bool,
    /// Nothing sensible can be sent any more.
    broken: bool,
    /// The client said goodbye, or cannot be followed: send what is owed, then hang up.
    leaving: bool,
    poisoned: bool,
}

/// Outcome of a connection's latest step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ConnectionStep {
    /// Hang up.
    Closed,
    /// It goes on.
    Open,
}

impl<C: Codec> Connection<C> {
    pub(crate) fn new(socket: OwnedFd, client: ClientId, codec: C, credit: Bytes) -> Self {
        Self {
            socket,
            client,
            attr: Attr::default(),
            share: None,
            codec,
            served: None,
            stash: Vec::new(),
            stash_at: 0,
            pending: None,
            receiving: None,
            slots: Vec::new(),
            free: Vec::new(),
            replies: VecDeque::new(),
            sent: 0,
            held: 0,
            long: 0,
            charged: 0,
            credit: credit.0,
            starved: VecDeque::new(),
            yielded: false,
            readable: true,
            writable: true,
            hung_up: false,
            broken: false,
            leaving: false,
            poisoned: false,
        }
    }

    /// The same with the share of those who come by its socket.
    pub(crate) fn with_share(self, share: Option<ClientShare>) -> Self {
        Self { share, ..self }
    }

    /// It has chosen an export.
    fn choose(&mut self, served: Served) {
        let ClientShare { class, weight, group } = self.share.unwrap_or(served.share);
        let origin = Origin::Client(self.client, group);
        self.attr = Attr { class, weight, origin, ..Attr::default() };
        served.roll.enter(self.client, Arc::clone(&served.name));
        self.served = Some(served);
    }

    /// The socket has something to say.
    pub(crate) fn on_ready(&mut self, readable: bool, writable: bool, hung_up: bool) {
        self.hung_up |= hung_up;
        self.readable |= readable || hung_up;
        self.writable |= writable || hung_up;
    }

    /// Whether it has chosen an export.
    pub(crate) fn is_ready(&self) -> bool {
        self.served.is_some()
    }

    /// Whether it waits for something that the engine or the pool may give back.
    pub(crate) fn is_waiting(&self) -> bool {
        self.pending.is_some() || !self.starved.is_empty() || !self.stash.is_empty()
    }

    /// Whether a `receive` would do something.
    pub(crate) fn may_receive(&self) -> bool {
        let parsed = self.stash.is_empty() && self.pending.is_none();
        self.readable && parsed && !self.leaving && self.open() < REQUESTS_MAX && !self.is_flooded()
    }

    /// Whether it can go on without anybody giving back anything.
    pub(crate) fn has_yielded(&self) -> bool {
        self.yielded
    }

    /// Whether everything it is owed has been sent.
    pub(crate) fn is_drained(&self) -> bool {
        self.open() == 0 && self.codec.output().is_empty()
    }

    /// Refuses what comes from here on.
    pub(crate) fn begin_shutdown(&mut self) {
        self.codec.begin_shutdown();
    }

    /// Gives every open request an I/O error. The engine is never heard of again.
    pub(crate) fn poison(&mut self, driver: &mut Driver) {
        self.poisoned = true;
        for slot in 0..self.slots.len() {
            let slot = u32::try_from(slot).expect("at most REQUESTS_MAX");
            if let Some(open) = &mut self.slots[slot as usize] {
                if open.queued && open.error.is_none() && !open.streamed {
                    continue;
                }
                open.error = Some(ReplyError::Io);
                open.outstanding = 0;
                self.end_if_over(driver, slot);
            }
        }
        self.starved.clear();
    }

    /// Receives once and looks at it.
    pub(crate) fn receive(
        &mut self,
        driver: &mut Held<'_>,
        exports: &[Served],
        looks: &mut Looks,
        buffer: &mut [u8],
    ) -> ConnectionStep {
        if !self.may_receive() {
            // Nobody is there for whom the rest could be worth waiting for.
            return if self.hung_up { ConnectionStep::Closed } else { ConnectionStep::Open };
        }
        let (direct, extra, asked) = match self.receive_bytes(driver, buffer) {
            Ok(counts) => counts,
            Err(Errno::AGAIN) => {
                self.readable = false;
                return ConnectionStep::Open;
            }
            Err(Errno::INTR) => return ConnectionStep::Open,
            Err(_) => return ConnectionStep::Closed,
        };
        if direct + extra == 0 {
            return ConnectionStep::Closed;
        }
        // The edge comes again when more arrives, but not for an end that came together with this.
        self.readable = direct + extra == asked || self.hung_up;
        if direct > 0 {
            self.on_payload(driver, direct);
        }
        let (step, left) = self.parse(driver, exports, looks, &buffer[..extra]);
        self.stash.extend_from_slice(&buffer[extra - left..extra]);
        step
    }

    /// Goes on with what had to wait.
    pub(crate) fn resume(
        &mut self,
        driver: &mut Driver,
        exports: &[Served],
        looks: &mut Looks,
    ) -> ConnectionStep {
        for _ in 0..self.starved.len() {
            let slot = self.starved.pop_front().expect("counted");
            self.next_sub_requests(driver, slot);
        }
        if self.pending.is_none() && self.stash.is_empty() {
            return ConnectionStep::Open;
        }
        let stash = std::mem::take(&mut self.stash);
        let (step, left) = self.parse(driver, exports, looks, &stash[self.stash_at..]);
        // Where it is, not copied: a client may be looked at often before all of it is used up.
        if left > 0 {
            (self.stash_at, self.stash) = (stash.len() - left, stash);
        } else {
            self.stash_at = 0;
        }
        step
    }

    /// A request was answered.
    pub(crate) fn on_reply(
        &mut self,
        driver: &mut Driver,
        tag: Tag,
        result: Result<(), ReplyError>,
    ) {
        let slot = u32::try_from(tag.0 >> TAG_INDEX_BITS).expect("made from a u32");
        let index = usize::try_from(tag.0 & ((1 << TAG_INDEX_BITS) - 1)).expect("16 bits");
        let Some(Some(open)) = self.slots.get_mut(slot as usize) else { return };
        let is_read = open.op == RequestOp::Read;
        if is_long(open.op) {
            driver.turns_mut().end(self.client, tag);
        }
        let sub_request = &mut open.sub_requests[index];
        assert!(sub_request.at == At::Engine, "answered twice");
        if result == Err(ReplyError::Stalled) && !self.poisoned {
            // The old frames may still be filled; they come back by themselves.
            *sub_request = SubRequest { run: Run::EMPTY, at: At::Nobody, ..*sub_request };
            open.outstanding -= 1;
            self.next_sub_requests(driver, slot);
            return;
        }
        sub_request.at = if is_read && result.is_ok() { At::Ours } else { At::Nobody };
        open.outstanding = open.outstanding.saturating_sub(1);
        if let Err(error) = result {
            open.error.get_or_insert(error);
        }
        if open.outstanding == 0 {
            self.next_sub_requests(driver, slot);
        }
    }

    /// Frames came back from the engine.
    pub(crate) fn on_released(&mut self, run: Run) {
        self.held = self.held.saturating_sub(run.count);
    }

    /// The engine takes more.
    pub(crate) fn on_credit(&mut self, bytes: Bytes) {
        self.charged = self.charged.saturating_sub(bytes.0);
    }

    /// Sends what is ready.
    pub(crate) fn send(&mut self, driver: &mut Held<'_>) -> ConnectionStep {
        while self.writable && !self.broken {
            let (wanted, sent) = match self.send_once(driver) {
                Ok(None) => break,
                Ok(Some(counts)) => counts,
                Err(Errno::AGAIN) => {
                    self.writable = false;
                    break;
                }
                Err(Errno::INTR) => continue,
                Err(_) => return ConnectionStep::Closed,
            };
            self.writable = sent == wanted;
            self.on_sent(driver, sent);
        }
        if self.broken || (self.leaving && self.is_drained()) {
            ConnectionStep::Closed
        } else {
            ConnectionStep::Open
        }
    }

    /// Gives back what is ours; says what the engine still has of reads. A client that has a turn
    /// is gone for the engine when its turn ends ([`end_turn_of_gone`]).
    pub(crate) fn close(mut self, driver: &mut Driver, looks: &mut Looks) -> Vec<(Tag, Run)> {
        if let Some(served) = &self.served {
            served.roll.leave(self.client);
        }
        let mut reads = Vec::new();
        for (slot, open) in self.slots.iter_mut().enumerate() {
            let Some(open) = open else { continue };
            for (index, sub_request) in open.sub_requests.iter().enumerate() {
                match sub_request.at {
                    At::Ours => driver.give_back_frames(sub_request.run),
                    // Those of a write come back by themselves, whether its reply is on its way or
                    // not.
                    At::Engine if sub_request.run.count > 0 && open.op == RequestOp::Read => {
                        let slot = u32::try_from(slot).expect("at most REQUESTS_MAX");
                        reads.push((tag_of(slot, index), sub_request.run));
                    }
                    At::Engine | At::Nobody => {}
                }
            }
        }
        driver.pool_mut().leave(self.client);
        driver.turns_mut().leave(self.client);
        looks.leave(self.client);
        if !driver.turns_mut().has(self.client) {
            driver.client_gone(self.client);
        }
        reads
    }

    fn open(&self) -> usize {
        self.slots.len() - self.free.len()
    }

    /// Whether replies of the codec's own pile up.
    fn is_flooded(&self) -> bool {
        self.codec.is_flooded()
    }
}

/// The engine has answered a request of a client that is gone: its turn may have ended.
pub(crate) fn end_turn_of_gone(driver: &mut Driver, client: ClientId, tag: Tag) {
    if driver.turns_mut().end(client, tag) && !driver.turns_mut().has(client) {
        driver.client_gone(client);
    }
}

fn tag_of(slot: u32, sub_request: usize) -> Tag {
    Tag(u64::from(slot) << TAG_INDEX_BITS | sub_request as u64)
}
/// Requests of one client that are not answered: 32 times what Linux' nbd keeps in flight by
/// default.
const REQUESTS_MAX: usize = 4096;
/// Bits of a tag for the sub-request: 2^16 MiB are more than the longest request of a protocol.
const TAG_INDEX_BITS: u32 = 16;
