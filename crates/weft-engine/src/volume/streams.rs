//! Will more of this write's row follow by itself?
//!
//! A write that goes on where another one ended belongs to a stream. A client that sends the next write
//! before the last one is answered keeps a pipeline full: the rest of the row is on its way, and waiting
//! for it costs less than reading what it will overwrite. A client that waits for each answer would only
//! be kept waiting, so its stream does not count.
//!
//! The ends of 16 writes are remembered; a write that goes on at one of them moves it. One that was moved
//! since the hand last passed is not forgotten, so that single writes between those of a stream do not
//! hide it. Each write that comes before an answer speaks for its stream four times as loud as one that
//! does not speaks against it.
//!
//! Inputs   where a write lies, and whether a write that is not answered yet ends where it begins
//! Answer   whether its row may wait ([`super::super::raid::parity::priority`] says how long)
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
    /// How sure it is that the client does not wait for answers.
    score: u8,
}

impl Streams {
    /// Remembers where a write ends. Whether more of its stream is on its way.
    pub(super) fn flows(&mut self, range: ByteRange, before_answer: bool) -> bool {
        let (start, end) = (range.start.0, range.end().0);
        if start > 0
            && let Some(stream) = self.ends.iter_mut().find(|stream| stream.at == start)
        {
            let score = if before_answer {
                (stream.score + 4).min(SCORE_MAX)
            } else {
                stream.score.saturating_sub(1)
            };
            *stream = End { at: end, moved: true, score };
            return score > 0;
        }
        while std::mem::take(&mut self.ends[self.hand].moved) {
            self.hand = (self.hand + 1) % ENDS;
        }
        self.ends[self.hand] = End { at: end, moved: false, score: 0 };
        self.hand = (self.hand + 1) % ENDS;
        false
    }
}

const ENDS: usize = 16;
const SCORE_MAX: u8 = 64;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stream_is_seen_among_single_writes() {
        let mut streams = Streams::default();
        let write = |start, len| ByteRange::new(start, len);
        assert!(!streams.flows(write(0, 4096), false));
        let mut seen = 0;
        for number in 1..100 {
            // Single writes, none of which goes on.
            for other in 0..8 {
                let start = (1 << 30) + (number * 8 + other) * 65_536;
                assert!(!streams.flows(write(start, 512), true));
            }
            seen += u32::from(streams.flows(write(number * 4096, 4096), true));
        }
        assert_eq!(seen, 99);
        assert!(!streams.flows(write(0, 4096), true), "nothing ends at the first byte");
    }

    #[test]
    fn a_client_that_waits_for_answers_is_not_kept_waiting() {
        let mut streams = Streams::default();
        let mut write = |number: u64, before_answer| {
            streams.flows(ByteRange::new(number * 4096, 4096), before_answer)
        };
        assert!((0..50).all(|number| !write(number, false)));
        assert!((50..60).all(|number| write(number, true)));
        let patience = (60..200).take_while(|number| write(*number, false)).count();
        assert!((30..64).contains(&patience), "{patience}");
    }
}
