//! Session: the requests of one client, their frames and sub-requests, and the replies.
//!
//! A session carries out the requests of any protocol; the encoding of a protocol is its [`Codec`].
//! A test of xtask checks that no file here names a protocol's crate.
//!
//! Replies are sent in the order in which requests end. Bytes take one of these paths:
//!
//! ```text
//! write    socket ──► receive buffer ──► frames         short payloads, one copy
//!          socket ─────────────────────► frames         the rest of long ones
//! read     frames ─────────────────────► socket         header and payload in one `sendmsg`
//! ```
//!
//! # Sub-requests
//!
//! A request is cut at multiples of a MiB. Normally it is *whole*: the engine gets nothing before
//! the payload is complete, and a read is answered when all of its data is there, so that an error
//! can still be reported. A read takes its frames at once, a write one sub-request at a time as its
//! payload arrives, so that an announced payload costs only one sub-request. A request that exceeds
//! its client's share is *streamed*: one sub-request at a time, in order, with one answer. If a
//! streamed read fails after its first sub-request, the only way to report it is to disconnect the
//! client. A whole write that finds no more frames half-way is streamed from there.
//!
//! # Bounds
//!
//! No more is read from the socket while the client has too many open requests, too little credit,
//! or more frames than its share (`pool.rs`). Its floor of frames is always its own, and a streamed
//! request needs only one frame to proceed. A client that is slow or has stopped therefore holds up
//! no other client, for however long, and is not disconnected for that.
//!
//! Trims and zeroes bring no payload. They are carried out in slices, and for each slice the client
//! needs a turn, which it gets in order with the other clients (`turns.rs`). Requests for block
//! status are answered here, also with a limit that clients share in order (`hole_probes.rs`).

pub(crate) mod codec;
mod incoming;
mod outgoing;
mod requests;

use std::collections::VecDeque;
use std::os::fd::OwnedFd;
use std::sync::Arc;

use rustix::io::Errno;
use weft_engine::{Attr, Origin, ReplyError, RequestOp, Run, Tag};
use weft_runtime::serve::driver::Driver;
use weft_runtime::serve::reactor::Held;
use weft_units::{Bytes, ClientId, VolumeId};

use crate::allocation::Allocation;
use crate::hole_probes::HoleProbeBudget;
use crate::record::Recorder;
use crate::share::{ChosenExports, ClientShare};
use codec::Codec;
use requests::{At, Open, SubRequest, is_long};

/// Volume that an export serves.
#[derive(Clone, Debug)]
pub(crate) struct Served {
    pub(crate) volume: VolumeId,
    pub(crate) name: Arc<str>,
    pub(crate) share: ClientShare,
    pub(crate) allocation: Arc<Allocation>,
    /// Whether trims deallocate data, as found when the server started.
    pub(crate) discards: bool,
    pub(crate) recorder: Option<Arc<Recorder>>,
    pub(crate) chosen: Arc<ChosenExports>,
}

/// Connection of one client.
pub(crate) struct Connection<C: Codec> {
    pub(crate) socket: OwnedFd,
    pub(crate) client: ClientId,
    /// Attributes of the client's requests, once it has chosen an export.
    attr: Attr,
    /// Share of all clients of the connection's socket; `None` if only the share of the export
    /// counts.
    share: Option<ClientShare>,
    codec: C,
    /// Export that the client has chosen; `None` before.
    served: Option<Served>,
    /// Received bytes. Those from `stash_at` on are not parsed yet, because the client has to wait.
    stash: Vec<u8>,
    stash_at: usize,
    /// Request that was parsed and cannot begin yet, because it waits for credit or frames.
    pending: Option<C::Request>,
    /// Index in `slots` of the write that receives its payload now.
    receiving: Option<u32>,
    slots: Vec<Option<Open<C>>>,
    free: Vec<u32>,
    /// Indexes in `slots` of the requests that have ended, in the order in which they are answered.
    replies: VecDeque<u32>,
    /// Number of bytes of the first reply that were sent; for a streamed read, of its present
    /// sub-request.
    sent: usize,
    /// Number of frames that were taken for the client and have not come back.
    held: u32,
    /// Number of trims and writes of zeroes without an answer.
    long: usize,
    /// Number of bytes that were submitted to the engine and not credited yet.
    charged: u64,
    credit: u64,
    /// Indexes in `slots` of requests that wait for frames: for a repetition after a member
    /// stalled, or for the next sub-request of a streamed request.
    starved: VecDeque<u32>,
    /// Set when received bytes were left for the next pass although the client could go on.
    yielded: bool,
    readable: bool,
    writable: bool,
    /// Set when the other side has closed; bytes that it sent before are still to be read.
    hung_up: bool,
    /// Set when the stream of replies cannot be continued correctly: the client is then
    /// disconnected.
    broken: bool,
    /// Set when the client has ended the session or violated the protocol: all replies are sent,
    /// then it is disconnected.
    leaving: bool,
    poisoned: bool,
}

/// State of a connection after a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ConnectionStep {
    /// The client has to be disconnected.
    Closed,
    /// The connection goes on.
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

    /// Sets the share that all clients of the connection's socket have.
    pub(crate) fn with_share(self, share: Option<ClientShare>) -> Self {
        Self { share, ..self }
    }

    /// Records the export that the client has chosen.
    fn choose(&mut self, served: Served) {
        let ClientShare { class, weight, group } = self.share.unwrap_or(served.share);
        let origin = Origin::Client(self.client, group);
        self.attr = Attr { class, weight, origin, ..Attr::default() };
        served.chosen.enter(self.client, Arc::clone(&served.name));
        self.served = Some(served);
    }

    /// Records the readiness of the socket.
    pub(crate) fn on_ready(&mut self, readable: bool, writable: bool, hung_up: bool) {
        self.hung_up |= hung_up;
        self.readable |= readable || hung_up;
        self.writable |= writable || hung_up;
    }

    /// Whether the client has chosen an export.
    pub(crate) fn is_ready(&self) -> bool {
        self.served.is_some()
    }

    /// Whether the client waits for credit, for frames, for a turn of a long request or for looks
    /// (queries of members for holes), so that it has to be resumed later.
    pub(crate) fn is_waiting(&self) -> bool {
        self.pending.is_some() || !self.starved.is_empty() || !self.stash.is_empty()
    }

    /// Whether a call of [`Self::receive`] would have work to do.
    pub(crate) fn may_receive(&self) -> bool {
        let parsed = self.stash.is_empty() && self.pending.is_none();
        self.readable && parsed && !self.leaving && self.open() < REQUESTS_MAX && !self.is_flooded()
    }

    /// Whether received bytes were left for the next pass: the client can go on although nothing
    /// has been returned to it.
    pub(crate) fn has_yielded(&self) -> bool {
        self.yielded
    }

    /// Whether everything that is due to the client has been sent.
    pub(crate) fn is_drained(&self) -> bool {
        self.open() == 0 && self.codec.output().is_empty()
    }

    /// Makes the session refuse requests from now on, because the server stops.
    pub(crate) fn begin_shutdown(&mut self) {
        self.codec.begin_shutdown();
    }

    /// Ends every open request with an I/O error, because the engine gives no answers after a
    /// panic.
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

    /// Receives once from the socket, and parses the bytes.
    pub(crate) fn receive(
        &mut self,
        driver: &mut Held<'_>,
        exports: &[Served],
        looks: &mut HoleProbeBudget,
        buffer: &mut [u8],
    ) -> ConnectionStep {
        if !self.may_receive() {
            // Nothing can be received now; if the client has closed, no later step is worth waiting
            // for.
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
        // A new edge comes when more bytes arrive, but not for a close that came together with
        // these.
        self.readable = direct + extra == asked || self.hung_up;
        if direct > 0 {
            self.on_payload(driver, direct);
        }
        let (step, left) = self.parse(driver, exports, looks, &buffer[..extra]);
        self.stash.extend_from_slice(&buffer[extra - left..extra]);
        step
    }

    /// Resumes requests and input that had to wait and can go on now.
    pub(crate) fn resume(
        &mut self,
        driver: &mut Driver,
        exports: &[Served],
        looks: &mut HoleProbeBudget,
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
        // The stash stays in place, uncopied: it may take many passes to use it up.
        if left > 0 {
            (self.stash_at, self.stash) = (stash.len() - left, stash);
        } else {
            self.stash_at = 0;
        }
        step
    }

    /// Handles the engine's answer to a sub-request.
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
            // The old frames may still be filled; the engine releases them by itself.
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

    /// Records that frames came back from the engine, which now belong to the session again.
    pub(crate) fn on_released(&mut self, run: Run) {
        self.held = self.held.saturating_sub(run.count);
    }

    /// Handles credit that the engine returned: fewer bytes are charged, so that more requests may
    /// be submitted.
    pub(crate) fn on_credit(&mut self, bytes: Bytes) {
        self.charged = self.charged.saturating_sub(bytes.0);
    }

    /// Sends replies that are ready.
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

    /// Gives back the frames of the session and returns the frames of reads that the engine still
    /// has. If a slice of the client is in flight, the engine learns of the disconnection when the
    /// slice ends ([`end_turn_of_gone`]).
    pub(crate) fn close(
        mut self,
        driver: &mut Driver,
        looks: &mut HoleProbeBudget,
    ) -> Vec<(Tag, Run)> {
        if let Some(served) = &self.served {
            served.chosen.leave(self.client);
        }
        let mut reads = Vec::new();
        for (slot, open) in self.slots.iter_mut().enumerate() {
            let Some(open) = open else { continue };
            for (index, sub_request) in open.sub_requests.iter().enumerate() {
                match sub_request.at {
                    At::Ours => driver.give_back_frames(sub_request.run),
                    // The frames of a write come back by themselves, whether its reply has been
                    // sent or not.
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

    /// Whether so many replies of the codec are unsent that no more input is parsed.
    fn is_flooded(&self) -> bool {
        self.codec.is_flooded()
    }
}

/// Handles an answer to a request of a disconnected client. After the last slice that the client
/// had in flight, the engine is told that the client is gone.
pub(crate) fn end_turn_of_gone(driver: &mut Driver, client: ClientId, tag: Tag) {
    if driver.turns_mut().end(client, tag) && !driver.turns_mut().has(client) {
        driver.client_gone(client);
    }
}

fn tag_of(slot: u32, sub_request: usize) -> Tag {
    Tag(u64::from(slot) << TAG_INDEX_BITS | sub_request as u64)
}
/// Largest number of unanswered requests of one client: 32 times as many as Linux' nbd keeps in
/// flight by default.
const REQUESTS_MAX: usize = 4096;
/// Bits of a tag that hold the index of a sub-request within its request. A sub-request has at most
/// 1 MiB, and 2^16 of them, 64 GiB, are more than the longest request of any protocol.
const TAG_INDEX_BITS: u32 = 16;
