//! Requests of protocols with data in memory of the client, which is copied to and from frames, and
//! of a client that reads the frames in place.

use smallvec::SmallVec;
use weft_engine::{ReplyError, Run};
use weft_runtime::buffers::Buffer;
use weft_runtime::serve::reactor::Held;

use super::Requests;

/// Reply, or a part of one, with frames that are lent to the client.
pub(crate) struct Lent<R> {
    /// The request.
    pub(crate) request: R,
    /// Error that ended the request.
    pub(crate) error: Option<ReplyError>,
    /// Data of a read: what follows the data that was lent before. `None` for a failed request.
    pub(crate) frames: Option<Buffer>,
    /// Frames of the data, which the client has to give back ([`Requests::take_back`]).
    pub(crate) runs: SmallVec<[Run; 1]>,
    /// Whether nothing of the request follows.
    pub(crate) is_over: bool,
}

impl<R: Copy> Requests<R, ()> {
    /// Copies data of the write that receives its payload, into the frames that were taken for it
    /// so far. `copy` gets the request, the offset of the frames in the request's data, and the
    /// frames. It returns false if the client's memory cannot be read.
    pub(crate) fn fill(
        &mut self,
        driver: &mut Held<'_>,
        copy: impl Fn(R, u64, &mut Buffer) -> bool,
    ) {
        while let Some((request, offset, has_failed)) = self.receiving() {
            if has_failed {
                self.payload_lost(driver);
                return;
            }
            self.reserve(driver);
            let segments = self.payload_segments();
            if segments.is_empty() {
                return;
            }
            let mut frames = Buffer::Frames(driver.slab_mut().lease_exclusive(segments));
            let is_copied = driver.unlocked(|| copy(request, offset, &mut frames));
            let count = frames.len();
            drop(frames);
            match is_copied {
                true => self.on_payload(driver, count),
                false => self.payload_lost(driver),
            }
        }
    }

    /// Answers the requests that have ended. `copy` copies data of a read to the client: it gets
    /// the request, the offset of the frames in the request's data, and the frames, and returns
    /// false if the client's memory cannot be written. `answer` gets each request and its error, if
    /// it failed. A request that a stopping volume has refused gets no answer: it stays with the
    /// client for the next server.
    pub(crate) fn answer_ended(
        &mut self,
        driver: &mut Held<'_>,
        copy: impl Fn(R, u64, &Buffer) -> bool,
        mut answer: impl FnMut(R, Option<ReplyError>),
    ) {
        while self.take_ended().is_some() {}
        while let Some(slot) = self.first_reply() {
            let reply = self.reply(slot);
            let (request, mut error) = (reply.request, reply.error.cloned());
            if let Some((offset, segments)) = reply.data {
                let frames = Buffer::Frames(driver.slab().lease_shared(segments));
                let is_copied = driver.unlocked(|| copy(request, offset, &frames));
                if !is_copied {
                    error = Some(ReplyError::Io);
                    // With this error, no further request part of the read is submitted.
                    self.at_mut(slot).error = Some(ReplyError::Io);
                }
            }
            if self.part_sent(driver, slot) && error != Some(ReplyError::Stopping) {
                answer(request, error);
            }
        }
    }

    /// Takes the next reply that is ready, or the part of it that is, with a lease on its frames.
    /// `None` if no reply is ready.
    pub(crate) fn lend_reply(&mut self, driver: &mut Held<'_>) -> Option<Lent<R>> {
        while self.take_ended().is_some() {}
        let slot = self.first_reply()?;
        let reply = self.reply(slot);
        let (request, error) = (reply.request, reply.error.cloned());
        let lease = |segments| Buffer::Frames(driver.slab().lease_shared(segments));
        let frames = reply.data.map(|(_, segments)| lease(segments));
        let runs = self.frames_of(slot);
        let is_over = self.part_over(driver, slot);
        Some(Lent { request, error, frames, runs, is_over })
    }
}
