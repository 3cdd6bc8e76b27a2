//! Bytes that a client sends: headers to the codec, long payloads straight into their frames.
//!
//! Everything except long payloads goes through the receive buffer, and is parsed until the buffer
//! is empty or the connection has to wait.

use std::io::IoSliceMut;

use rustix::io::Errno;
use weft_engine::{ReplyError, RequestOp, Segments};
use weft_runtime::buffers::Buffer;
use weft_runtime::serve::driver::Driver;
use weft_runtime::serve::reactor::Held;

use super::codec::{Codec, Heard, Work};
use super::{CHOSEN, Connection, ConnectionStep, REQUESTS_MAX, Served};
use crate::hole_probes::HoleProbeBudget;
use crate::record::VolumeRequest;

impl<C: Codec> Connection<C> {
    /// Receives into the frames of a long payload, then into the buffer. The driver is unlocked
    /// meanwhile. Returns the number of bytes received into frames, the number received into the
    /// buffer, and the number that there was room for.
    pub(super) fn receive_bytes(
        &mut self,
        driver: &mut Held<'_>,
        buffer: &mut [u8],
    ) -> Result<(usize, usize, usize), Errno> {
        self.requests.reserve(driver);
        let segments = match self.codec.payload_remaining() {
            DIRECT_BYTES.. => self.requests.payload_segments(),
            _ => Segments::new(),
        };
        let transport = &mut self.transport;
        if segments.is_empty() {
            let mut room = [IoSliceMut::new(buffer)];
            let count = driver.unlocked(|| transport.recv(&mut room))?;
            return Ok((0, count, buffer.len()));
        }
        let mut frames = Buffer::Frames(driver.slab_mut().lease_exclusive(segments));
        let wanted = frames.len();
        let asked = wanted + buffer.len();
        let count = driver.unlocked(|| {
            let mut slices = frames.slices_mut(0, wanted);
            slices.push(IoSliceMut::new(buffer));
            transport.recv(&mut slices)
        })?;
        let direct = count.min(wanted);
        Ok((direct, count - direct, asked))
    }

    /// Parses bytes until they are used up or the connection has to wait. Returns the state of the
    /// connection, and the number of bytes left.
    pub(super) fn parse(
        &mut self,
        driver: &mut Driver,
        exports: &[Served],
        looks: &mut HoleProbeBudget,
        bytes: &[u8],
    ) -> (ConnectionStep, usize) {
        let mut rest = bytes;
        self.yielded = false;
        // Bytes that reads of this pass ask for.
        let mut asked = 0;
        loop {
            if let Some(request) = self.pending.take() {
                if !self.begin(driver, request, looks) {
                    self.pending = Some(request);
                    break;
                }
                if let Work::Volume(VolumeRequest { op: RequestOp::Read, len, .. }) =
                    self.codec.work(&request)
                {
                    asked += len;
                }
                if asked >= READ_BYTES_MAX && !rest.is_empty() {
                    self.yielded = true;
                    break;
                }
            }
            let payload = self.codec.payload_remaining();
            if payload > 0 {
                let count = self.requests.copy_payload(driver, &rest[..rest.len().min(payload)]);
                if count == 0 {
                    break;
                }
                rest = &rest[count..];
                self.on_payload(driver, count);
                continue;
            }
            if self.leaving {
                return (ConnectionStep::Open, 0);
            }
            if self.requests.open() >= REQUESTS_MAX || self.is_flooded() {
                break;
            }
            let (count, event) = self.codec.input(rest);
            rest = &rest[count..];
            match event {
                None if count == 0 => break,
                None => {}
                Some(Heard::Confused(reason)) => {
                    tracing::debug!(client = self.client().0, %reason, "client hung up on");
                    self.leaving = true;
                }
                Some(Heard::Goodbye) => self.leaving = true,
                Some(Heard::Chosen(export)) => {
                    if let Some(served) = exports.get(export) {
                        let share = self.share.unwrap_or(served.share);
                        self.requests.choose(driver, served.clone(), share);
                    }
                }
                // Bytes may follow the option that asks for TLS. The codec then ends the session.
                Some(Heard::StartTls) if rest.is_empty() => self.start_tls(),
                Some(Heard::StartTls) => {}
                Some(Heard::Request(request)) => {
                    if let Work::Volume(asked) = self.codec.work(&request) {
                        self.requests.note(asked);
                    }
                    self.pending = Some(request);
                }
            }
        }
        (ConnectionStep::Open, rest.len())
    }

    /// Starts a request. Returns false if the request has to wait.
    fn begin(
        &mut self,
        driver: &mut Driver,
        request: C::Request,
        looks: &mut HoleProbeBudget,
    ) -> bool {
        let work = self.codec.work(&request);
        let Work::Volume(asked) = work else {
            let looks_for_holes = matches!(work, Work::Extents { .. });
            if looks_for_holes && !self.requests.poisoned && !looks.may_look(self.client()) {
                self.yielded = true;
                return false;
            }
            looks.take(self.answer_here(driver, &request, work));
            return true;
        };
        if self.is_hole(driver, &request, &asked) {
            self.codec.reply_hole(&request);
            return true;
        }
        self.requests.begin(driver, request, &asked)
    }

    /// Answers a request that needs no engine: a query for holes, or a hint about a later read,
    /// which needs no work. Returns the cost of the answer, as a number of looks (queries of a
    /// member for its holes); 0 for a hint or an error.
    fn answer_here(&mut self, driver: &mut Driver, request: &C::Request, work: Work) -> usize {
        let Served { volume, allocation, .. } = self.requests.served.as_ref().expect(CHOSEN);
        match work {
            _ if self.requests.poisoned => self.codec.reply(request, Err(&ReplyError::Io)),
            Work::Extents { offset, len, most } => {
                let told = allocation.extents(driver, *volume, offset, len, most);
                self.codec.reply_extents(request, told.extents());
                return LOOKS_OF_REQUEST + told.looks();
            }
            _ => self.codec.reply(request, Ok(())),
        }
        0
    }

    /// Whether a read is long and covers only a hole, and the client accepts a reply that says so.
    fn is_hole(&self, driver: &mut Driver, request: &C::Request, asked: &VolumeRequest) -> bool {
        if asked.op != RequestOp::Read || self.requests.poisoned || !self.codec.tells_hole(request)
        {
            return false;
        }
        let Served { volume, allocation, .. } = self.requests.served.as_ref().expect(CHOSEN);
        allocation.is_hole(driver, *volume, asked.start, asked.len)
    }

    /// Records that `count` bytes of payload have arrived in their frames.
    pub(super) fn on_payload(&mut self, driver: &mut Driver, count: usize) {
        self.codec.payload_consumed(count);
        self.requests.on_payload(driver, count);
    }
}

/// Least number of missing payload bytes that are received into their frames directly, without a
/// copy.
const DIRECT_BYTES: usize = 64 << 10;
/// Largest number of bytes for which reads of one client are submitted before the data of the first
/// one is sent. With more bytes, that data would no longer be in the CPU's cache when it is sent.
const READ_BYTES_MAX: u64 = 512 << 10;
/// Cost of a request for block status apart from its looks (queries of a member for its holes), as
/// a number of looks.
const LOOKS_OF_REQUEST: usize = 8;
