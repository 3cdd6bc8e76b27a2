//! Session: the requests of one client, their frames and request parts, and the replies.
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
//! With TLS each path has one more copy, made by the cipher (`transport.rs`).
//!
//! # Request parts
//!
//! A request is cut into parts at multiples of a MiB. Normally it is *whole*: the engine gets
//! nothing before the payload is complete, and a read is answered when all of its data is there, so
//! that an error can still be reported. A read takes its frames at once, a write one part at a time
//! as its payload arrives, so that an announced payload costs only one part. A request that exceeds
//! its client's share is *streamed*: one part at a time, in order, with one answer. If a streamed
//! read fails after its first part, the only way to report it is to disconnect the client. A whole
//! write that finds no more frames half-way is streamed from there.
//!
//! # Bounds
//!
//! No more is read from the socket while the client has too many open requests, too little credit,
//! or more frames than its share (`pool.rs`). A minimum of frames, its floor, is reserved for each
//! client, and a streamed request needs only one frame to proceed. A client that is slow or has
//! stopped therefore holds up no other client, for however long, and is not disconnected for that.
//!
//! Trims and zeroes bring no payload. They are carried out in slices, and for each slice the client
//! needs a turn, which it gets in order with the other clients (`turns.rs`). Requests for block
//! status are answered here, also with a limit that clients share in order (`hole_probes.rs`).

pub(crate) mod codec;
mod copies;
mod incoming;
mod outgoing;
mod requests;
mod sole_client;

use std::os::fd::OwnedFd;
use std::sync::Arc;

use rustix::io::Errno;
use weft_engine::{Run, Tag};
use weft_runtime::serve::driver::Driver;
use weft_runtime::serve::reactor::Held;
use weft_units::{Bytes, ClientId, VolumeId};

use crate::allocation::Allocation;
use crate::hole_probes::HoleProbeBudget;
use crate::keys::Keys;
use crate::record::Recorder;
use crate::share::{ChosenExports, ClientShare};
use crate::transport::Transport;
use codec::Codec;
pub(crate) use copies::Lent;
pub(crate) use requests::{Requests, end_turn_of_gone};
pub(crate) use sole_client::SoleClient;

/// Volume that an export serves.
#[derive(Clone, Debug)]
pub(crate) struct Served {
    pub(crate) volume: VolumeId,
    pub(crate) name: Arc<str>,
    /// Whether the export covers the whole volume, and grows when the volume grows.
    pub(crate) whole: bool,
    pub(crate) share: ClientShare,
    pub(crate) allocation: Arc<Allocation>,
    /// Whether trims deallocate data, as found when the server started.
    pub(crate) discards: bool,
    pub(crate) recorder: Option<Arc<Recorder>>,
    pub(crate) chosen: Arc<ChosenExports>,
}

/// Connection of one client.
pub(crate) struct Connection<C: Codec> {
    transport: Transport,
    /// Keys with which the client has to start TLS; `None` for plain text.
    keys: Option<Arc<Keys>>,
    requests: Requests<C::Request, C::Header>,
    /// Share of all clients of the connection's socket; `None` if only the share of the export
    /// counts.
    share: Option<ClientShare>,
    codec: C,
    /// Received bytes. Those from `stash_at` on are not parsed yet, because the client has to wait.
    stash: Vec<u8>,
    stash_at: usize,
    /// Request that was parsed and cannot begin yet, because it waits, for example for credit,
    /// frames or a turn.
    pending: Option<C::Request>,
    /// Number of bytes of the first reply that were sent; for a streamed read, of its present
    /// request part.
    sent: usize,
    /// Set when received bytes were left for the next pass although the client could go on.
    yielded: bool,
    readable: bool,
    writable: bool,
    /// Set when the other side has closed; bytes that it sent before are still to be read.
    hung_up: bool,
    /// Set when the client has ended the session or violated the protocol: all replies are sent,
    /// then it is disconnected.
    leaving: bool,
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
            transport: Transport::new(socket),
            keys: None,
            requests: Requests::new(client, credit),
            share: None,
            codec,
            stash: Vec::new(),
            stash_at: 0,
            pending: None,
            sent: 0,
            yielded: false,
            readable: true,
            writable: true,
            hung_up: false,
            leaving: false,
        }
    }

    /// Number of the client.
    pub(crate) fn client(&self) -> ClientId {
        self.requests.client
    }

    /// Requests of the client, for the answers of the engine.
    pub(crate) fn requests_mut(&mut self) -> &mut Requests<C::Request, C::Header> {
        &mut self.requests
    }

    /// Sets the share and the keys that all clients of the connection's listener have.
    pub(crate) fn with(self, share: Option<ClientShare>, keys: Option<Arc<Keys>>) -> Self {
        Self { share, keys, ..self }
    }

    /// Reason why TLS has failed; `None` if it has not.
    pub(crate) fn tls_failure(&self) -> Option<&str> {
        self.transport.failure()
    }

    /// Starts TLS, after the codec's remaining output has been sent in plain text.
    fn start_tls(&mut self) {
        let output = self.codec.output().to_vec();
        self.codec.advance_output(output.len());
        let keys = self.keys.as_ref().expect("the codec offers TLS only with keys");
        self.transport.start_tls(keys.config(), output);
        self.codec.tls_started();
    }

    /// Records the readiness of the socket.
    pub(crate) fn on_ready(&mut self, readable: bool, writable: bool, hung_up: bool) {
        self.hung_up |= hung_up;
        self.readable |= readable || hung_up;
        self.writable |= writable || hung_up;
    }

    /// Whether the client has chosen an export.
    pub(crate) fn is_ready(&self) -> bool {
        self.requests.served.is_some()
    }

    /// Whether the client waits for credit, for frames, for a turn of a long request or for looks
    /// (queries of members for holes), so that it has to be resumed later.
    pub(crate) fn is_waiting(&self) -> bool {
        self.pending.is_some() || self.requests.is_starved() || !self.stash.is_empty()
    }

    /// Whether a call of [`Self::receive`] would have work to do.
    pub(crate) fn may_receive(&self) -> bool {
        let parsed = self.stash.is_empty() && self.pending.is_none();
        let room = self.requests.open() < REQUESTS_MAX;
        self.readable && parsed && !self.leaving && room && !self.is_flooded()
    }

    /// Whether received bytes were left for the next pass: the client can go on although nothing
    /// has been returned to it.
    pub(crate) fn has_yielded(&self) -> bool {
        self.yielded
    }

    /// Whether everything that is due to the client has been sent.
    pub(crate) fn is_drained(&self) -> bool {
        self.requests.open() == 0 && self.codec.output().is_empty() && !self.transport.has_unsent()
    }

    /// Makes the session refuse requests from now on, because the server stops.
    pub(crate) fn begin_shutdown(&mut self) {
        self.codec.begin_shutdown();
    }

    /// Receives once from the socket, and parses the bytes. Returns the state of the connection.
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

    /// Resumes requests and input that had to wait and can go on now. Returns the state of the
    /// connection.
    pub(crate) fn resume(
        &mut self,
        driver: &mut Driver,
        exports: &[Served],
        looks: &mut HoleProbeBudget,
    ) -> ConnectionStep {
        self.requests.resume(driver);
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

    /// Sends replies that are ready, as far as the socket takes them. Returns the state of the
    /// connection.
    pub(crate) fn send(&mut self, driver: &mut Held<'_>) -> ConnectionStep {
        while self.writable && !self.requests.broken {
            self.make_headers();
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
        if self.requests.broken || (self.leaving && self.is_drained()) {
            ConnectionStep::Closed
        } else {
            ConnectionStep::Open
        }
    }

    /// Ends the session. Returns the frames of reads that the engine still has; see
    /// [`Requests::close`].
    pub(crate) fn close(self, driver: &mut Driver, looks: &mut HoleProbeBudget) -> Vec<(Tag, Run)> {
        looks.leave(self.client());
        self.requests.close(driver)
    }

    /// Whether so many replies of the codec are unsent that no more input is parsed.
    fn is_flooded(&self) -> bool {
        self.codec.is_flooded()
    }
}

/// Largest number of unanswered requests of one client: 32 times as many as Linux' nbd keeps in
/// flight by default.
const REQUESTS_MAX: usize = 4096;
const CHOSEN: &str = "requests come after the choice of an export";
