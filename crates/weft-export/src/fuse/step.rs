//! Steps of a request: requests to the volume in whole blocks, one after another, and the reply.
//!
//! Ranges of a file begin and end at any byte, those of a volume at blocks. A read reads the blocks
//! around its range. A write of a part of a block reads the blocks around its range and writes them
//! back, and nothing else of the file is in flight meanwhile: another write of the same block could
//! otherwise be undone. Zeroes are stored so at both ends of their range, and as zeroes between.

use fuser::{ReplyData, ReplyEmpty, ReplyWrite};
use rustix::io::Errno;
use weft_engine::{ReplyError, RequestOp};
use weft_fuse::FileRequest;

use crate::record::VolumeRequest;

/// A step of a request for data: one request to the volume, and the continuation after it.
pub(super) struct Step {
    pub(super) asked: VolumeRequest,
    /// Data to write, or room for the data that is read, once the step has begun.
    pub(super) data: Vec<u8>,
    pub(super) turn: Turn,
    pub(super) then: Then,
}

/// Rule for the steps of other requests that may be in flight beside a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Turn {
    /// Other steps may be in flight, except those that have to be alone.
    Shared,
    /// No other step may be in flight, from the start of this step until the step after it has
    /// ended.
    FirstAlone,
    /// No other step may be in flight: the step follows one with [`Turn::FirstAlone`].
    LastAlone,
}

/// Continuation of a request after a step that has succeeded.
pub(super) enum Then {
    /// Reply with a part of the data that was read.
    Data { skip: usize, len: usize, reply: ReplyData },
    /// Reply with the number of bytes that were written.
    Written { len: u32, reply: ReplyWrite },
    /// Reply without data.
    Done(ReplyEmpty),
    /// Write back the blocks that were read, with `data` copied into them at byte `skip`.
    Patch { skip: usize, data: Vec<u8>, fua: bool, then: Box<Self> },
    /// Store the rest of a range of zeroes.
    Zeroes { start: u64, len: u64, discard: bool, reply: ReplyEmpty },
}

/// Size of the file and of its blocks, in bytes. The size is a multiple of the block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Extent {
    pub(super) size: u64,
    pub(super) block: u64,
}

impl Step {
    /// First step of a request for data. `None` if no step is needed because no byte of its range
    /// lies in the file; the request was then answered.
    pub(super) fn first(request: FileRequest, extent: Extent) -> Option<Self> {
        match request {
            FileRequest::Read { start, len, reply } => {
                let len = extent.clip(start, len.into());
                if len == 0 {
                    reply.data(&[]);
                    return None;
                }
                let (first, whole) = extent.around(start, len);
                let (skip, len) = (index(start - first), index(len));
                let asked = asked(RequestOp::Read, first, whole);
                Some(Self::shared(asked, Vec::new(), Then::Data { skip, len, reply }))
            }
            FileRequest::Write { start, mut data, fua, reply } => {
                let len = extent.clip(start, data.len() as u64);
                if len == 0 && !data.is_empty() {
                    reply.error(number_of(Errno::NOSPC));
                    return None;
                }
                data.truncate(index(len));
                let then = Then::Written { len: u32::try_from(len).unwrap_or(u32::MAX), reply };
                match data.is_empty() {
                    true => {
                        then.end(Ok(&[]));
                        None
                    }
                    false => Some(Self::write(start, data, fua, then, extent)),
                }
            }
            FileRequest::Flush(reply) => {
                let asked = asked(RequestOp::Flush, 0, 0);
                Some(Self::shared(asked, Vec::new(), Then::Done(reply)))
            }
            FileRequest::Zeroes { start, len, discard, reply } => {
                let inside = extent.clip(start, len);
                // A hole may be punched beyond the end, where there is nothing to do.
                if inside < len && !discard {
                    reply.error(number_of(Errno::NOSPC));
                    return None;
                }
                Self::zeroes(start, inside, discard, reply, extent)
            }
            FileRequest::Attributes(_) | FileRequest::Resize { .. } | FileRequest::End => None,
        }
    }

    /// Next step of the request, after this one has succeeded and read its data. `None` if this was
    /// the last step; the request was then answered.
    pub(super) fn next(self, extent: Extent) -> Option<Self> {
        let Self { asked: VolumeRequest { start, .. }, data: mut around, then, .. } = self;
        match then {
            Then::Patch { skip, data, fua, then } => {
                around[skip..skip + data.len()].copy_from_slice(&data);
                let len = around.len() as u64;
                let asked = VolumeRequest { fua, ..asked(RequestOp::Write, start, len) };
                Some(Self { asked, data: around, turn: Turn::LastAlone, then: *then })
            }
            Then::Zeroes { start, len, discard, reply } => {
                Self::zeroes(start, len, discard, reply, extent)
            }
            then => {
                then.end(Ok(&around));
                None
            }
        }
    }

    fn shared(asked: VolumeRequest, data: Vec<u8>, then: Then) -> Self {
        Self { asked, data, turn: Turn::Shared, then }
    }

    /// First step of a write within the file: the write of whole blocks, or a read of the blocks
    /// around a part of them.
    fn write(start: u64, data: Vec<u8>, fua: bool, then: Then, extent: Extent) -> Self {
        let len = data.len() as u64;
        let (first, whole) = extent.around(start, len);
        if whole == len {
            let asked = VolumeRequest { fua, ..asked(RequestOp::Write, start, len) };
            return Self::shared(asked, data, then);
        }
        let then = Then::Patch { skip: index(start - first), data, fua, then: Box::new(then) };
        let asked = asked(RequestOp::Read, first, whole);
        Self { asked, data: Vec::new(), turn: Turn::FirstAlone, then }
    }

    /// Next step of zeroes for a range of the file: up to the end of its first block if it begins
    /// within one, then whole blocks, then its last bytes. `None` for an empty range; the request
    /// was then answered.
    fn zeroes(
        start: u64,
        len: u64,
        discard: bool,
        reply: ReplyEmpty,
        extent: Extent,
    ) -> Option<Self> {
        if len == 0 {
            reply.ok();
            return None;
        }
        let part = extent.first_zeroes(start, len);
        let then = match len - part {
            0 => Then::Done(reply),
            rest => Then::Zeroes { start: start + part, len: rest, discard, reply },
        };
        Some(if extent.around(start, part) == (start, part) {
            let asked = VolumeRequest { discard, ..asked(RequestOp::WriteZeroes, start, part) };
            Self::shared(asked, Vec::new(), then)
        } else {
            Self::write(start, vec![0; index(part)], false, then, extent)
        })
    }
}

impl Then {
    /// Replies to the request: `result` has the data of the last step, or the error that ended it.
    pub(super) fn end(self, result: Result<&[u8], &ReplyError>) {
        match (self, result.map_err(|error| number_of(crate::error::errno_of(error)))) {
            (Self::Data { skip, len, reply }, Ok(data)) => reply.data(&data[skip..skip + len]),
            (Self::Data { reply, .. }, Err(errno)) => reply.error(errno),
            (Self::Written { len, reply }, Ok(_)) => reply.written(len),
            (Self::Written { reply, .. }, Err(errno)) => reply.error(errno),
            (Self::Done(reply) | Self::Zeroes { reply, .. }, Ok(_)) => reply.ok(),
            (Self::Done(reply) | Self::Zeroes { reply, .. }, Err(errno)) => reply.error(errno),
            (Self::Patch { then, .. }, _) => then.end(result),
        }
    }
}

impl Extent {
    /// Number of bytes of a range that lie in the file.
    fn clip(self, start: u64, len: u64) -> u64 {
        len.min(self.size.saturating_sub(start))
    }

    /// Start and length of the blocks around a range of the file.
    fn around(self, start: u64, len: u64) -> (u64, u64) {
        let first = start / self.block * self.block;
        (first, (start + len).next_multiple_of(self.block) - first)
    }

    /// Length of the part of a range of zeroes that is stored first.
    fn first_zeroes(self, start: u64, len: u64) -> u64 {
        let to_block = start.next_multiple_of(self.block) - start;
        match (to_block, len / self.block * self.block) {
            (0, 0) => len,
            (0, whole) => whole,
            (to_block, _) => to_block.min(len),
        }
    }
}

fn asked(op: RequestOp, start: u64, len: u64) -> VolumeRequest {
    VolumeRequest { op, start, len, fua: false, discard: false }
}

/// Error number for the crate `fuser`.
pub(super) fn number_of(errno: Errno) -> fuser::Errno {
    fuser::Errno::from_i32(errno.raw_os_error())
}

/// Number of bytes of a request as an index in memory.
fn index(bytes: u64) -> usize {
    usize::try_from(bytes).expect("a request fits into memory")
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Zeroes are stored in parts that are whole blocks or lie within one, and cover the range.
    #[test]
    fn zeroes_are_cut_at_blocks_and_cover_their_range() {
        let extent = Extent { size: 64, block: 8 };
        let mut parts_seen = 0;
        for start in 0..40 {
            for len in 1..24 {
                let (mut at, end) = (start, start + len);
                while at < end {
                    let part = extent.first_zeroes(at, end - at);
                    assert!(part > 0 && at + part <= end, "{start} {len}");
                    let (first, whole) = extent.around(at, part);
                    assert!((first, whole) == (at, part) || whole == 8, "{start} {len}: {at}");
                    at += part;
                    parts_seen += 1;
                }
            }
        }
        assert!(parts_seen > 1500, "{parts_seen}");
    }

    #[test]
    fn ranges_are_clipped_at_the_end_and_rounded_to_blocks() {
        let extent = Extent { size: 4096, block: 512 };
        assert_eq!(
            [extent.clip(4000, 200), extent.clip(4096, 1), extent.clip(9000, 1)],
            [96, 0, 0]
        );
        assert_eq!(extent.around(512, 512), (512, 512));
        assert_eq!(extent.around(511, 2), (0, 1024));
        assert_eq!(extent.around(4000, 96), (3584, 512));
    }
}
