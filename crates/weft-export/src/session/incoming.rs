//! Bytes that a client sends: headers to the codec, long payloads straight into their frames.
//!
//! Everything except long payloads goes through the receive buffer, and is parsed until the buffer
//! is empty or the connection has to wait.

use std::io::IoSliceMut;
use std::os::fd::OwnedFd;

use rustix::io::Errno;
use rustix::net::{RecvAncillaryBuffer, RecvFlags};
use weft_engine::{RequestOp, Segments};
use weft_runtime::buffers::Buffer;
use weft_runtime::serve::driver::Driver;
use weft_runtime::serve::reactor::Held;
use weft_units::FRAME_BYTES;

use super::codec::{Codec, Heard, Work};
use super::requests::At;
use super::{Connection, ConnectionStep, REQUESTS_MAX, Served};
use crate::hole_probes::HoleProbeBudget;
use crate::record::Asked;

impl<C: Codec> Connection<C> {
    /// Receives into the frames of a long payload, then into the buffer. The driver is unlocked
    /// meanwhile. Returns the number of bytes received into frames, the number received into the
    /// buffer, and the number that there was room for.
    pub(super) fn receive_bytes(
        &mut self,
        driver: &mut Held<'_>,
        buffer: &mut [u8],
    ) -> Result<(usize, usize, usize), Errno> {
        let mut segments = Segments::new();
        self.reserve(driver);
        if self.codec.payload_remaining() >= DIRECT_BYTES
            && let Some(slot) = self.receiving
            && let Some(open) = &self.slots[slot as usize]
        {
            let mut rest = open.received - open.done_before();
            for sub_request in &open.sub_requests {
                let skip = rest.min(sub_request.len);
                rest -= skip;
                if sub_request.at == At::Ours && skip < sub_request.len {
                    segments.push(
                        sub_request
                            .run
                            .part(sub_request.start % FRAME_BYTES + skip, sub_request.len - skip),
                    );
                }
            }
        }
        let socket = &self.socket;
        if segments.is_empty() {
            let count = driver.unlocked(|| recv(socket, buffer))?;
            return Ok((0, count, buffer.len()));
        }
        let mut frames = Buffer::Frames(driver.slab_mut().lease_exclusive(segments));
        let wanted = frames.len();
        let asked = wanted + buffer.len();
        let received = driver.unlocked(|| {
            let mut slices = frames.slices_mut(0, wanted);
            slices.push(IoSliceMut::new(buffer));
            let mut control = RecvAncillaryBuffer::default();
            rustix::net::recvmsg(socket, &mut slices, &mut control, RecvFlags::empty())
        });
        let count = received?.bytes;
        let direct = count.min(wanted);
        Ok((direct, count - direct, asked))
    }

    /// Parses bytes until they are used up or the connection has to wait. Returns how the
    /// connection goes on, and the number of bytes left.
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
                if let Work::Volume(Asked { op: RequestOp::Read, len, .. }) =
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
                let count = self.copy_payload(driver, &rest[..rest.len().min(payload)]);
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
            if self.open() >= REQUESTS_MAX || self.is_flooded() {
                break;
            }
            let (count, event) = self.codec.input(rest);
            rest = &rest[count..];
            match event {
                None if count == 0 => break,
                None => {}
                Some(Heard::Confused(reason)) => {
                    tracing::debug!(client = self.client.0, %reason, "client hung up on");
                    self.leaving = true;
                }
                Some(Heard::Goodbye) => self.leaving = true,
                Some(Heard::Chosen(export)) => {
                    if let Some(served) = exports.get(export) {
                        self.choose(served.clone());
                    }
                    driver.pool_mut().join(self.client);
                }
                Some(Heard::Request(request)) => {
                    let recorder = self.served.as_ref().and_then(|it| it.recorder.as_ref());
                    if let (Some(recorder), Work::Volume(asked)) =
                        (recorder, self.codec.work(&request))
                    {
                        recorder.note(asked);
                    }
                    self.pending = Some(request);
                }
            }
        }
        (ConnectionStep::Open, rest.len())
    }

    /// Takes frames for the next sub-requests of a long write before its payload arrives, as far as
    /// frames are free.
    pub(super) fn reserve(&mut self, driver: &mut Driver) {
        let Some(slot) = self.receiving else { return };
        let open = self.slots[slot as usize].as_mut().expect("open while its payload comes");
        if open.streamed || open.error.is_some() {
            return;
        }
        while open.room() < AHEAD_BYTES
            && let Some(sub_request) = open.take_next(driver, self.client)
        {
            self.held += sub_request.run.count;
        }
    }

    /// Copies payload into its frames. Returns the number of bytes copied.
    fn copy_payload(&mut self, driver: &mut Driver, bytes: &[u8]) -> usize {
        let slot = self.receiving.expect("set when a write begins");
        let open = self.slots[slot as usize].as_ref().expect("open while its payload comes");
        if open.error.is_some() {
            return bytes.len();
        }
        let mut skip = open.received - open.done_before();
        let mut copied = 0;
        for sub_request in &open.sub_requests {
            let offset = skip.min(sub_request.len);
            skip -= offset;
            let room =
                usize::try_from(sub_request.len - offset).expect("at most SUB_REQUEST_BYTES");
            let count = room.min(bytes.len() - copied);
            if sub_request.at != At::Ours || count == 0 {
                continue;
            }
            let segment =
                sub_request.run.part(sub_request.start % FRAME_BYTES + offset, count as u64);
            driver.slab_mut().bytes_mut(segment).copy_from_slice(&bytes[copied..copied + count]);
            copied += count;
        }
        copied
    }

    /// Records that `count` bytes of payload have arrived in their frames.
    pub(super) fn on_payload(&mut self, driver: &mut Driver, count: usize) {
        self.codec.payload_consumed(count);
        let slot = self.receiving.expect("set when a write begins");
        let open = self.slots[slot as usize].as_mut().expect("open while its payload comes");
        open.received += count as u64;
        let complete = open.received == open.len;
        if complete {
            self.receiving = None;
        } else if open.room() == 0 {
            self.reserve(driver);
        }
        let open = self.slots[slot as usize].as_mut().expect("looked at just now");
        if open.error.is_some() {
            self.end_if_over(driver, slot);
        } else if open.room() == 0 {
            // Frames for the rest come back when the engine has finished this part.
            open.streamed |= !complete;
            self.submit(driver, slot);
        }
    }
}

fn recv(socket: &OwnedFd, buffer: &mut [u8]) -> Result<usize, Errno> {
    rustix::net::recv(socket, buffer, RecvFlags::empty()).map(|(_, count)| count)
}
/// Least number of missing payload bytes that are received into their frames directly, without a
/// copy.
const DIRECT_BYTES: usize = 64 << 10;
/// Largest number of bytes for which reads of one client are submitted before the first of their
/// data is sent. The first data of more would no longer be in the CPU's cache when it is sent.
const READ_BYTES_MAX: u64 = 512 << 10;
/// Least number of payload bytes of a write that get frames before they arrive, if enough frames
/// are free: as many as one receive takes.
const AHEAD_BYTES: u64 = 256 << 10;
