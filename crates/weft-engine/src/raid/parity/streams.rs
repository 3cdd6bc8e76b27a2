//! Sequential write streams: a prediction of whether a client's next writes will fill a stripe.
//!
//! A write that starts where another one ended continues the stream of that write. A client that
//! sends the next write before the last one is answered keeps a pipeline full: the rest of the
//! stripe is on its way, and waiting for it costs less than reading data that it will overwrite. A
//! client that waits for each answer gains nothing from the wait, so its stream does not count.
//!
//! The ends of the last writes of 16 streams are kept in a list with CLOCK replacement. A write
//! that starts at one of these ends moves the end forward. An end that has moved since the clock
//! hand last passed it is kept, so that single writes between those of a stream do not displace the
//! stream. A write that arrives before the last one is answered raises the score of its stream, by
//! four times as much as a write after the answer lowers it.
//!
//! Each entry also records up to which byte the writes of its stream have been attached to stripes,
//! because the client may have sent far more than is attached. The stream will bring the bytes from
//! there to a bounded distance beyond its end.
//!
//! A client may set md's `sync` flag on a write and then send no more: a journal writes some blocks
//! in sequence and then waits. Therefore each entry records how much of its stream came without a
//! pause.
//!
//! The number of bytes that a client sends without waiting for an answer is bounded too. The bound
//! is taken to be the largest number of bytes of the stream that were unanswered at one time, and
//! is known from the first answer on. A stripe does not wait for bytes beyond that bound, because
//! the client will not send them before the stripe is written.
//!
//! Inputs   range of a write, whether an unanswered write ends where it begins, and when writes
//!          reach their stripes
//! Answer   whether its stripe may wait ([`super::priority`] says how long);
//!          which bytes a stream will bring
//! Source   weft's own. md gathers whatever does not carry `REQ_SYNC` (md-raid.md §8, rows 7 and 8)

use std::ops::Range;

use weft_units::{ByteRange, Bytes, Time};

/// Recent sequential write streams, each with the end of its last write.
#[derive(Clone, Debug, Default)]
pub(crate) struct Streams {
    ends: [End; ENDS],
    hand: usize,
    /// Number of streams seen.
    count: u32,
}

#[derive(Clone, Copy, Debug, Default)]
struct End {
    /// First byte after the stream's last write. Zero marks an unused entry, because no write ends
    /// at byte zero.
    at: u64,
    moved: bool,
    /// Confidence that the client sends its next write without waiting for an answer; zero if it
    /// waits.
    score: u8,
    stream: u32,
    /// Number of bytes that came without a pause, that is, in writes that each came before the
    /// answer to the last one.
    run: u64,
    /// End of the data that was attached to stripes. Writes between this byte and `at` still wait
    /// for stripes.
    attached: u64,
    /// Time at which a write of the stream last arrived or was attached.
    seen: Time,
    /// Number of bytes of the stream that are not answered.
    in_flight: u64,
    /// Recent maximum of `in_flight`; zero until the first answer.
    window: u64,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct StreamId {
    place: u8,
    /// Number of the stream; zero if the write belongs to no stream.
    stream: u32,
}

/// Stream of a write, with predictions about it; the default if the settings use no streams.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct WriteStream {
    pub(crate) id: StreamId,
    /// Whether later writes of the stream will bring the rest of the write's stripe.
    pub(crate) fills: bool,
    /// Whether the stream has brought at least a full stripe of data without a pause.
    pub(crate) saturates: bool,
}

impl Streams {
    /// Registers a write; `before_answer` is true if it begins where an unanswered write ends.
    /// Returns the stream of the write, and whether the stream will bring more data.
    pub(crate) fn arrive(
        &mut self,
        range: ByteRange,
        before_answer: bool,
        now: Time,
    ) -> (StreamId, bool) {
        let (start, end) = (range.start.0, range.end().0);
        if start > 0
            && let Some(place) = self.ends.iter().position(|stream| stream.at == start)
        {
            let stream = &mut self.ends[place];
            stream.score = if before_answer {
                (stream.score + 4).min(SCORE_MAX)
            } else {
                stream.score.saturating_sub(1)
            };
            stream.run = range.len.0 + if before_answer { stream.run } else { 0 };
            (stream.at, stream.moved, stream.seen) = (end, true, now);
            stream.in_flight += range.len.0;
            if stream.window > 0 {
                let window = stream.window - stream.window / WINDOW_FADES;
                stream.window = window.max(stream.in_flight);
            }
            let id = StreamId { place: place as u8, stream: stream.stream };
            return (id, stream.score > 0);
        }
        while std::mem::take(&mut self.ends[self.hand].moved) {
            self.hand = (self.hand + 1) % ENDS;
        }
        self.count = self.count.wrapping_add(1).max(1);
        let (stream, place) = (self.count, self.hand);
        let (run, attached, seen, in_flight) = (range.len.0, start, now, range.len.0);
        self.ends[place] =
            End { at: end, stream, run, attached, seen, in_flight, ..End::default() };
        self.hand = (self.hand + 1) % ENDS;
        (StreamId { place: place as u8, stream }, false)
    }

    /// Records that a write of `len` bytes in a stream was answered.
    #[inline]
    pub(crate) fn answered(&mut self, id: StreamId, len: Bytes) {
        let stream = &mut self.ends[usize::from(id.place)];
        if id.stream != 0 && stream.stream == id.stream {
            if stream.window == 0 {
                stream.window = stream.in_flight;
            }
            stream.in_flight = stream.in_flight.saturating_sub(len.0);
        }
    }

    /// Whether the client of a stream keeps enough in flight that the `bytes` bytes from the start
    /// of a write arrive before that write is answered. A quarter more than `bytes` has to be in
    /// flight, so that some requests can be on their way to members. True until the stream's first
    /// answer. If the client keeps less in flight, waiting for the bytes leaves the members idle.
    pub(crate) fn reaches(&self, id: StreamId, bytes: u64) -> bool {
        let stream = &self.ends[usize::from(id.place)];
        stream.window == 0 || stream.window >= bytes + bytes / 4
    }

    /// Number of bytes of a stream that came without a pause.
    pub(crate) fn run(&self, id: StreamId) -> Bytes {
        let stream = &self.ends[usize::from(id.place)];
        Bytes(if id.stream != 0 && stream.stream == id.stream { stream.run } else { 0 })
    }

    /// Records that a write of a stream was attached to stripes up to byte `end`.
    pub(crate) fn attached(&mut self, id: StreamId, end: u64, now: Time) {
        let stream = &mut self.ends[usize::from(id.place)];
        if id.stream != 0 && stream.stream == id.stream {
            stream.attached = stream.attached.max(end);
            stream.seen = now;
        }
    }

    /// Time at which the stream that will bring `bytes` was last seen; `now` if some of its writes
    /// still wait for stripes. Such a stream is still running, has not yet attached these bytes,
    /// and ends at most `reach` before their end. `None` if there is none.
    pub(crate) fn moved(&self, bytes: &Range<u64>, reach: u64, now: Time) -> Option<Time> {
        let brings = |stream: &&End| {
            let ahead = stream.attached <= bytes.start && bytes.end <= stream.at + reach;
            stream.score > 0 && ahead
        };
        let seen = |stream: &End| if stream.attached < stream.at { now } else { stream.seen };
        self.ends.iter().filter(brings).map(seen).max()
    }
}

const ENDS: usize = 16;
const SCORE_MAX: u8 = 64;

/// Number of writes of a stream after which its `window` has shrunk by two thirds, if the client
/// sends less than before.
const WINDOW_FADES: u64 = 256;

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Time = Time(0);

    #[test]
    fn a_stream_is_seen_among_single_writes() {
        let mut streams = Streams::default();
        let write = |start, len| ByteRange::new(start, len);
        assert!(!streams.arrive(write(0, 4096), false, NOW).1);
        let mut seen = 0;
        for number in 1..100 {
            // Single writes, none of which continues another.
            for other in 0..8 {
                let start = (1 << 30) + (number * 8 + other) * 65_536;
                assert!(!streams.arrive(write(start, 512), true, NOW).1);
            }
            seen += u32::from(streams.arrive(write(number * 4096, 4096), true, NOW).1);
        }
        assert_eq!(seen, 99);
        assert!(!streams.arrive(write(0, 4096), true, NOW).1, "nothing ends at the first byte");
    }

    #[test]
    fn a_pause_ends_what_came_without_one() {
        let mut streams = Streams::default();
        let mut run_after = |number: u64, before_answer| {
            let write = ByteRange::new(number * 4096, 4096);
            let (stream, _) = streams.arrive(write, before_answer, NOW);
            streams.run(stream).0 / 4096
        };
        let runs = [false, true, true, false, true].into_iter().zip(0..);
        let runs: Vec<u64> = runs.map(|(before, number)| run_after(number, before)).collect();
        assert_eq!(runs, [1, 2, 3, 1, 2]);
        assert_eq!(streams.run(StreamId::default()), Bytes(0));
    }

    #[test]
    fn a_stream_brings_what_is_in_front_of_it_until_it_has_passed() {
        let mut streams = Streams::default();
        let write = |number: u64| ByteRange::new((1 << 20) + number * 4096, 4096);
        let block = |number: u64| (1 << 20) + number * 4096..(1 << 20) + (number + 1) * 4096;
        let (reach, at) = (16 * 4096, |micros: u64| Time(micros * 1000));
        let (first, _) = streams.arrive(write(0), false, at(1));
        assert_eq!(streams.moved(&block(1), reach, at(1)), None, "this may be a single write");
        let (id, flows) = streams.arrive(write(1), true, at(2));
        assert!(flows && id == first);
        // Neither write is attached to stripes yet, so the stream counts as seen now.
        assert_eq!(streams.moved(&block(0), reach, at(9)), Some(at(9)));
        streams.attached(id, write(0).end().0, at(10));
        streams.attached(id, write(1).end().0, at(11));
        assert_eq!(streams.moved(&block(1), reach, at(12)), None, "the stream has passed");
        assert_eq!(streams.moved(&block(2), reach, at(12)), Some(at(11)), "as last seen");
        assert_eq!(streams.moved(&(block(2).start..block(17).end), reach, at(12)), Some(at(11)));
        assert_eq!(streams.moved(&(block(2).start..block(18).end), reach, at(12)), None, "far off");
        assert_eq!(streams.moved(&(block(1).start..block(3).end), reach, at(12)), None);
        // Other streams take the entry. Late records of the old stream do not change the new
        // entries.
        for other in 0..40 {
            streams.arrive(ByteRange::new((1 << 30) + other * 8192, 512), true, at(20));
        }
        streams.attached(id, 1 << 40, at(30));
        assert_eq!(streams.moved(&block(2), reach, at(31)), None);
        assert!(streams.ends.iter().all(|stream| stream.attached < 1 << 40));
    }

    #[test]
    fn a_stream_reaches_no_further_than_its_client_goes_without_an_answer() {
        const BLOCK: u64 = 4096;
        let mut streams = Streams::default();
        let mut sent = 0;
        let mut send = |streams: &mut Streams| {
            let write = ByteRange::new((1 << 20) + sent * BLOCK, BLOCK);
            sent += 1;
            streams.arrive(write, true, NOW).0
        };
        let first = send(&mut streams);
        for _ in 1..20 {
            send(&mut streams);
        }
        assert!(streams.reaches(first, 1 << 30), "nothing was answered: no bound is known");
        streams.answered(first, Bytes(BLOCK));
        // 20 were in flight; some of them have to be on their way to members meanwhile.
        assert!(streams.reaches(first, 16 * BLOCK) && !streams.reaches(first, 17 * BLOCK));
        for _ in 0..300 {
            send(&mut streams);
            streams.answered(first, Bytes(BLOCK));
        }
        assert!(streams.reaches(first, 16 * BLOCK) && !streams.reaches(first, 17 * BLOCK));
        // The client sends more before an answer.
        for _ in 0..5 {
            send(&mut streams);
        }
        assert!(streams.reaches(first, 19 * BLOCK));
        // From now on two writes are in flight at a time: the old window fades slowly.
        for _ in 0..22 {
            streams.answered(first, Bytes(BLOCK));
        }
        let holds = (0..).take_while(|_| {
            send(&mut streams);
            streams.answered(first, Bytes(BLOCK));
            streams.reaches(first, 16 * BLOCK)
        });
        let holds = holds.count();
        assert!((20..200).contains(&holds), "{holds}");
        for _ in 0..2000 {
            send(&mut streams);
            streams.answered(first, Bytes(BLOCK));
        }
        assert!(streams.reaches(first, 2 * BLOCK) && !streams.reaches(first, 4 * BLOCK));
    }

    #[test]
    fn a_client_that_waits_for_answers_is_not_kept_waiting() {
        let mut streams = Streams::default();
        let mut write = |number: u64, before_answer| {
            streams.arrive(ByteRange::new(number * 4096, 4096), before_answer, NOW).1
        };
        assert!((0..50).all(|number| !write(number, false)));
        assert!((50..60).all(|number| write(number, true)));
        let patience = (60..200).take_while(|number| write(*number, false)).count();
        assert!((30..64).contains(&patience), "{patience}");
    }
}
