//! NBD codec: [`Codec`], the interface between a session and its protocol, for the server half of
//! `weft_nbd`.
//!
//! Source   NBD `proto.md`, "Request types", "Error values"

use weft_engine::{ReplyError, RequestOp};
use weft_nbd::{
    EXTENTS_MAX, NbdError, NbdRequest, OUTPUT_BYTES_HIGH, Op, ReplyHeader, ServerConnection,
    ServerEvent,
};

use crate::allocation::Extent;
use crate::record::VolumeRequest;
use crate::session::codec::{Codec, Heard, Work};

impl Codec for ServerConnection {
    type Request = NbdRequest;
    type Header = ReplyHeader;

    fn input(&mut self, bytes: &[u8]) -> (usize, Option<Heard<NbdRequest>>) {
        let (count, event) = self.input(bytes);
        let heard = event.map(|event| match event {
            ServerEvent::Close(reason) => Heard::Confused(reason.to_string()),
            ServerEvent::Disconnect => Heard::Goodbye,
            ServerEvent::Ready { export } => Heard::Chosen(export),
            ServerEvent::Request(request) => Heard::Request(request),
            ServerEvent::StartTls => Heard::StartTls,
        });
        (count, heard)
    }

    fn output(&self) -> &[u8] {
        self.output()
    }

    fn advance_output(&mut self, count: usize) {
        self.advance_output(count);
    }

    fn is_flooded(&self) -> bool {
        self.output().len() >= OUTPUT_BYTES_HIGH
    }

    fn payload_remaining(&self) -> usize {
        self.payload_remaining()
    }

    fn payload_consumed(&mut self, count: usize) {
        self.payload_consumed(count);
    }

    fn tls_started(&mut self) {
        self.tls_started();
    }

    fn begin_shutdown(&mut self) {
        self.begin_shutdown();
    }

    fn work(&self, request: &NbdRequest) -> Work {
        work_of(request.op)
    }

    fn tells_hole(&self, request: &NbdRequest) -> bool {
        self.is_structured() && matches!(request.op, Op::Read { df: false, .. })
    }

    fn reply_header(&self, request: &NbdRequest, result: Result<(), &ReplyError>) -> ReplyHeader {
        self.reply_header(request, result.map_err(|error| errno_of(error, request.op)))
    }

    fn reply(&mut self, request: &NbdRequest, result: Result<(), &ReplyError>) {
        self.reply(request, result.map_err(|error| errno_of(error, request.op)));
    }

    fn reply_extents(&mut self, request: &NbdRequest, extents: &[Extent]) {
        let extent = |extent: &Extent| match extent.hole {
            true => weft_nbd::Extent::hole(extent.len),
            false => weft_nbd::Extent::data(extent.len),
        };
        let extents: Vec<_> = extents.iter().map(extent).collect();
        self.reply_extents(request, &extents);
    }

    fn reply_hole(&mut self, request: &NbdRequest) {
        self.reply_hole(request);
    }
}

/// Work that an NBD request asks for.
fn work_of(op: Op) -> Work {
    let volume = |op, start, len, fua| VolumeRequest { op, start, len, fua, discard: false };
    Work::Volume(match op {
        Op::BlockStatus { offset, len, one } => {
            let most = if one { 1 } else { EXTENTS_MAX };
            return Work::Extents { offset, len, most };
        }
        Op::Cache { .. } => return Work::Hint,
        Op::Flush => volume(RequestOp::Flush, 0, 0, false),
        Op::Read { offset, len, .. } => volume(RequestOp::Read, offset, len.into(), false),
        Op::Write { offset, len, fua } => volume(RequestOp::Write, offset, len.into(), fua),
        Op::Trim { offset, len, fua } => volume(RequestOp::Trim, offset, len, fua),
        Op::WriteZeroes { offset, len, fua, no_hole, .. } => {
            let zeroes = volume(RequestOp::WriteZeroes, offset, len, fua);
            VolumeRequest { discard: !no_hole, ..zeroes }
        }
    })
}

/// NBD error code for an error of the engine.
fn errno_of(error: &ReplyError, op: Op) -> NbdError {
    let writes = !matches!(op, Op::Flush | Op::Read { .. });
    match error {
        ReplyError::NoSpace => NbdError::NoSpace,
        ReplyError::OutOfRange if writes => NbdError::NoSpace,
        ReplyError::Invalid(_) | ReplyError::OutOfRange => NbdError::Invalid,
        ReplyError::ReadOnly | ReplyError::Refused(_) => NbdError::Permission,
        ReplyError::Stopping => NbdError::Shutdown,
        _ => NbdError::Io,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn zeroes_that_need_not_be_stored_are_a_discard_and_hints_are_no_work_of_the_volume() {
        let (offset, len, fua) = (4096, 8192, true);
        for no_hole in [false, true] {
            let zeroes = Op::WriteZeroes { offset, len, fua, no_hole, fast: false };
            let op = RequestOp::WriteZeroes;
            let asked = VolumeRequest { op, start: offset, len, fua, discard: !no_hole };
            assert_eq!(work_of(zeroes), Work::Volume(asked));
        }
        assert_eq!(work_of(Op::Cache { offset, len }), Work::Hint);
        let status = |one| work_of(Op::BlockStatus { offset, len, one });
        assert_eq!(status(true), Work::Extents { offset, len, most: 1 });
        assert_eq!(status(false), Work::Extents { offset, len, most: EXTENTS_MAX });
    }

    #[test]
    fn a_range_outside_is_no_space_for_writes_and_invalid_for_reads() {
        let read = Op::Read { offset: 0, len: 512, df: false };
        let write = Op::Write { offset: 0, len: 512, fua: false };
        assert_eq!(errno_of(&ReplyError::OutOfRange, read), NbdError::Invalid);
        assert_eq!(errno_of(&ReplyError::OutOfRange, write), NbdError::NoSpace);
        assert_eq!(errno_of(&ReplyError::Io, write), NbdError::Io);
    }
}
