//! Does this write go on where another one ended?
//!
//! Then it belongs to a stream, and the rest of its row is likely to follow. The ends of 16 writes are
//! remembered; a write that goes on at one of them moves it. One that was moved since the hand last
//! passed is not forgotten, so that single writes between those of a stream do not hide it.
//!
//! Inputs   where a write lies
//! Answer   whether it goes on
//! Source   weft's own. md gathers whatever does not carry `REQ_SYNC` (md-raid.md §8, rows 7 and 8)

use weft_units::ByteRange;

/// Where writes ended.
#[derive(Clone, Debug, Default)]
pub(super) struct Streams {
    ends: [End; ENDS],
    hand: usize,
}

#[derive(Clone, Copy, Debug, Default)]
struct End {
    /// Zero: none. No write ends there.
    at: u64,
    moved: bool,
}

impl Streams {
    /// Remembers where a write ends. Whether it goes on where another one ended.
    pub(super) fn goes_on(&mut self, range: ByteRange) -> bool {
        let (start, end) = (range.start.0, range.end().0);
        if start > 0
            && let Some(stream) = self.ends.iter_mut().find(|stream| stream.at == start)
        {
            *stream = End { at: end, moved: true };
            return true;
        }
        while std::mem::take(&mut self.ends[self.hand].moved) {
            self.hand = (self.hand + 1) % ENDS;
        }
        self.ends[self.hand] = End { at: end, moved: false };
        self.hand = (self.hand + 1) % ENDS;
        false
    }
}

const ENDS: usize = 16;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stream_is_seen_among_single_writes() {
        let mut streams = Streams::default();
        let write = |start, len| ByteRange::new(start, len);
        assert!(!streams.goes_on(write(0, 4096)));
        let mut seen = 0;
        for number in 1..100 {
            // Single writes, none of which goes on.
            for other in 0..8 {
                assert!(!streams.goes_on(write((1 << 30) + (number * 8 + other) * 65_536, 512)));
            }
            seen += u32::from(streams.goes_on(write(number * 4096, 4096)));
        }
        assert_eq!(seen, 99);
        assert!(!streams.goes_on(write(0, 4096)), "nothing ends at the first byte");
    }
}
