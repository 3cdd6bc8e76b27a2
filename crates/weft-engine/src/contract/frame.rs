//! Memory: the frames and segments that the engine names and the driver owns.
//!
//! A *frame* is [`FRAME_BYTES`] bytes of one slab. The slab is laid out as
//!
//! ```text
//! frame 0          always zeros; shared by all writes of zeros
//! 1 ..= cache      the engine's: stripes of the stripe cache, scratch
//! then             the engine's: pages of the write-back cache, if there is one
//! then             the driver's: payload of client requests
//! ```
//!
//! A *run* is a sequence of adjacent frames, which are adjacent in memory too. The engine never
//! sees the bytes of frames: its outputs name [`Segment`]s, and the driver moves or computes the
//! data in them.

use smallvec::SmallVec;
use weft_units::FRAME_BYTES;

/// One frame of the slab.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Frame(pub u32);

/// A run of adjacent frames, `first .. first + count`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Run {
    /// First frame of the run.
    pub first: Frame,
    /// Number of frames; zero for a request without payload.
    pub count: u32,
}

/// Range of memory: `len` bytes that begin `offset` bytes into `frame` and may continue into the
/// frames that follow.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Segment {
    /// Frame from which the offset counts.
    pub frame: Frame,
    /// Offset in bytes from the start of `frame`; less than [`FRAME_BYTES`].
    pub offset: u32,
    /// Length in bytes; more than zero.
    pub len: u32,
}

/// Memory of a member request, in the order of its sectors; usually one segment.
pub type Segments = SmallVec<[Segment; 2]>;

/// Frame that always holds zeros.
pub const ZERO_FRAME: Frame = Frame(0);

impl Run {
    /// The empty run, for a request without payload.
    pub const EMPTY: Self = Self { first: Frame(0), count: 0 };

    /// Creates the run of `count` frames from frame number `first` on.
    #[must_use]
    pub const fn new(first: u32, count: u32) -> Self {
        Self { first: Frame(first), count }
    }

    /// The segment of bytes `offset .. offset + len` of the run.
    #[must_use]
    pub fn part(self, offset: u64, len: u64) -> Segment {
        assert!(len > 0);
        assert!(offset + len <= u64::from(self.count) * FRAME_BYTES);
        Segment::at(self.first, offset, len)
    }
}

impl Segment {
    /// The segment of `len` bytes that begins `offset` bytes after the start of `frame`. If
    /// `offset` is larger than a frame, the segment names the later frame in which it begins.
    #[must_use]
    pub fn at(frame: Frame, offset: u64, len: u64) -> Self {
        let skipped =
            u32::try_from(offset / FRAME_BYTES).expect("a slab has fewer than 2^32 frames");
        Self {
            frame: Frame(frame.0 + skipped),
            offset: (offset % FRAME_BYTES) as u32,
            len: u32::try_from(len).expect("a part is at most one request long"),
        }
    }

    /// Position of the segment's first byte in the slab.
    #[must_use]
    pub fn slab_start(self) -> u64 {
        u64::from(self.frame.0) * FRAME_BYTES + u64::from(self.offset)
    }

    /// Position in the slab just after the segment's last byte.
    #[must_use]
    pub fn slab_end(self) -> u64 {
        self.slab_start() + u64::from(self.len)
    }

    /// Whether two segments have a byte of memory in common.
    #[must_use]
    pub fn overlaps(self, other: Self) -> bool {
        self.slab_start() < other.slab_end() && other.slab_start() < self.slab_end()
    }

    /// Whether the segment lies in the frame of zeros.
    #[must_use]
    pub fn is_zero(self) -> bool {
        self.frame == ZERO_FRAME
    }
}

/// Number of frames that a request of `len` bytes at byte `start` of a volume needs.
///
/// The payload is placed in its frames as in the volume's 4 KiB blocks: the first byte is `start
/// mod 4096` bytes into the first frame. A whole block is therefore a whole frame, and a member can
/// read or write it without a copy.
#[must_use]
pub const fn frames_needed(start: u64, len: u64) -> u32 {
    if len == 0 {
        return 0;
    }
    (start % FRAME_BYTES + len).div_ceil(FRAME_BYTES) as u32
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn payload_sits_as_it_does_in_the_volume() {
        let cases = [(0, 0, 0), (0, 1, 1), (4095, 2, 2), (1024, 4096, 2), (8192, 8192, 2)];
        for (start, len, frames) in cases {
            assert_eq!(frames_needed(start, len), frames, "{start}+{len}");
        }
        let part = Run::new(10, 4).part(5000, 100);
        assert_eq!(part, Segment { frame: Frame(11), offset: 904, len: 100 });
        assert_eq!(part.slab_start(), 11 * 4096 + 904);
    }
}
