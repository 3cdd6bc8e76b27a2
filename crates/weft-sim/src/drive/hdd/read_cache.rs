//! Read cache of a hard disk: segments of sectors that were read, or read ahead under the head.
//!
//! The memory is divided into segments, each with one range of sectors; the least recently used
//! segment is replaced first. After a read the head stays and continues to read into the read's
//! segment, until another command moves the arm or a whole segment has been read ahead. This
//! readahead is the *stream*. Its progress is computed when it is needed.
//!
//! Source   `experiments.md` §2.1 (4)

use super::arm::Target;
use super::geometry::Geometry;

/// Segments of the read cache, and the stream that fills one of them.
#[derive(Clone, Debug)]
pub(super) struct ReadCache {
    segments: Vec<Segment>,
    /// Number of sectors of a segment; zero without a read cache.
    segment_sectors: u64,
    used: u64,
    stream: Option<Stream>,
}

#[derive(Clone, Copy, Debug, Default)]
struct Segment {
    start: u64,
    end: u64,
    used: u64,
}

/// State of the stream, the readahead behind a read.
#[derive(Clone, Copy, Debug)]
struct Stream {
    segment: usize,
    /// First sector of the read with which the stream began.
    began: u64,
    /// Sector that the stream had reached at the time `since`.
    from: Target,
    since: u64,
    /// Sector at which the stream ends.
    limit: u64,
}

impl ReadCache {
    pub(super) fn new(segments: u32, segment_sectors: u64) -> Self {
        let count = if segment_sectors == 0 { 0 } else { segments as usize };
        let segments = vec![Segment::default(); count];
        Self { segments, segment_sectors, used: 0, stream: None }
    }

    /// Whether a segment has all sectors of a range. If so, it counts as used.
    pub(super) fn has(&mut self, start: u64, end: u64) -> bool {
        let found = self.segments.iter_mut().find(|s| s.start <= start && end <= s.end);
        if let Some(segment) = found {
            self.used += 1;
            segment.used = self.used;
            return true;
        }
        false
    }

    /// First sector of the range that is missing, if a segment has the sectors of the range before
    /// it; otherwise the start of the range.
    pub(super) fn missing_from(&self, start: u64, end: u64) -> u64 {
        let holds = |s: &&Segment| s.start <= start && start < s.end && s.end < end;
        self.segments.iter().filter(holds).map(|s| s.end).max().unwrap_or(start)
    }

    /// Adds the sectors that the stream has read by `now` to its segment. If the stream has ended,
    /// returns its end as the position of the arm; otherwise `None`.
    pub(super) fn catch_up(&mut self, geometry: &Geometry, now: u64) -> Option<u64> {
        let stream = self.stream?;
        let elapsed = now.saturating_sub(stream.since);
        let limit = stream.limit - stream.from.sector;
        let reached = stream.from.sector + geometry.passed(&stream.from.place, elapsed, limit);
        let segment = &mut self.segments[stream.segment];
        segment.end = segment.end.max(reached);
        segment.start = segment.start.max(segment.end.saturating_sub(self.segment_sectors));
        if reached == stream.limit {
            self.stream = None;
            return Some(reached);
        }
        None
    }

    /// Time in ns at which the stream will have read this range; `None` without a stream, or if the
    /// range does not continue the content of the stream's segment.
    pub(super) fn read_by(&self, geometry: &Geometry, start: u64, end: u64) -> Option<u64> {
        let stream = self.stream?;
        let segment = &self.segments[stream.segment];
        if start < segment.start || start > segment.end || end <= stream.from.sector {
            return None;
        }
        let length = end - stream.from.sector;
        Some(stream.since + geometry.transfer(&stream.from.place, length))
    }

    /// Whether the head has passed the start of this range a short time ago: the stream began after
    /// the start of the range, and at most one segment after its end.
    pub(super) fn passed(&self, start: u64, end: u64) -> bool {
        let before =
            |stream: Stream| start < stream.began && stream.began <= end + self.segment_sectors;
        self.stream.is_some_and(before)
    }

    /// Whether the stream's segment has all sectors of a range; false without a stream.
    pub(super) fn stream_has(&self, start: u64, end: u64) -> bool {
        let segment = self.stream.map(|stream| self.segments[stream.segment]);
        segment.is_some_and(|segment| segment.start <= start && end <= segment.end)
    }

    /// Sector that the stream has reached, valid after [`ReadCache::catch_up`]; `None` without a
    /// stream.
    pub(super) fn stands_at(&self) -> Option<u64> {
        self.stream.map(|stream| self.segments[stream.segment].end)
    }

    /// Continues the stream after a read that the head reached by reading on. The read ended at
    /// `now`, before sector `end`.
    pub(super) fn extend(&mut self, geometry: &Geometry, end: u64, now: u64) {
        let Some(stream) = &mut self.stream else { return };
        let segment = &mut self.segments[stream.segment];
        segment.end = segment.end.max(end);
        segment.start = segment.start.max(segment.end.saturating_sub(self.segment_sectors));
        self.used += 1;
        segment.used = self.used;
        stream.from = Target::new(geometry, end);
        stream.since = now;
        stream.limit = (end + self.segment_sectors).min(geometry.capacity().0);
        if end == stream.limit {
            self.stream = None;
        }
    }

    /// Moves the end of the stream further, if its segment contains the range that the host has
    /// read.
    pub(super) fn follow(&mut self, geometry: &Geometry, start: u64, end: u64) {
        let Some(stream) = &mut self.stream else { return };
        let segment = &self.segments[stream.segment];
        if segment.start <= start && end <= segment.end {
            let limit = (end + self.segment_sectors).min(geometry.capacity().0);
            stream.limit = stream.limit.max(limit);
        }
    }

    /// Starts a stream behind a read that ended at `now`, and stores the read's sectors in the
    /// least recently used segment.
    pub(super) fn begin(&mut self, geometry: &Geometry, start: u64, end: u64, now: u64) {
        let oldest = self.segments.iter().enumerate().min_by_key(|(_, segment)| segment.used);
        let Some((segment, _)) = oldest else { return };
        self.used += 1;
        let kept = start.max(end.saturating_sub(self.segment_sectors));
        self.segments[segment] = Segment { start: kept, end, used: self.used };
        let limit = (end + self.segment_sectors).min(geometry.capacity().0);
        self.stream = (end < limit).then(|| {
            let from = Target::new(geometry, end);
            Stream { segment, began: start, from, since: now, limit }
        });
    }

    /// Ends the stream because the arm moves. Returns the sector that the stream had reached, valid
    /// after [`ReadCache::catch_up`]; `None` without a stream.
    pub(super) fn stop(&mut self) -> Option<u64> {
        let stream = self.stream.take()?;
        Some(self.segments[stream.segment].end.max(stream.from.sector))
    }

    /// Drops overwritten sectors from the segments, and ends the stream if it is in them or would
    /// reach them. Returns the sector that the ended stream had reached, valid after
    /// [`ReadCache::catch_up`]; `None` if no stream was ended.
    pub(super) fn forget(&mut self, start: u64, end: u64) -> Option<u64> {
        let stream = self
            .stream
            .filter(|stream| self.segments[stream.segment].start < end && start < stream.limit);
        let stood = stream.and_then(|_| self.stop());
        for segment in &mut self.segments {
            if start < segment.end && segment.start < end {
                let before = start.saturating_sub(segment.start);
                let after = segment.end.saturating_sub(end);
                if before >= after {
                    segment.end = segment.start + before;
                } else {
                    segment.start = end;
                }
            }
        }
        stood
    }
}

#[cfg(test)]
mod tests {
    use super::super::geometry::small as geometry;
    use super::*;

    #[test]
    fn the_stream_reads_on_until_its_segment_is_full() {
        let geometry = geometry();
        let mut cache = ReadCache::new(4, 1_000);
        cache.begin(&geometry, 100, 108, 0);
        assert!(cache.has(100, 108) && !cache.has(100, 109));
        let time = geometry.transfer(&geometry.place(108), 500);
        assert_eq!(cache.catch_up(&geometry, time), None);
        assert!(cache.has(100, 608) && !cache.has(100, 609));
        assert_eq!(cache.read_by(&geometry, 500, 700), {
            Some(geometry.transfer(&geometry.place(108), 592))
        });
        assert_eq!(cache.catch_up(&geometry, 1_000_000_000), Some(1_108));
        assert!(cache.has(108, 1_108) && !cache.has(107, 108), "the oldest sectors made room");
        assert_eq!(cache.read_by(&geometry, 1_000, 1_200), None, "the stream has stopped");
        assert!(!cache.passed(50, 90));
        assert_eq!(cache.missing_from(1_000, 1_200), 1_108);
    }

    #[test]
    fn a_stream_has_passed_what_ends_less_than_a_segment_before_it_began() {
        let geometry = geometry();
        let mut cache = ReadCache::new(4, 1_000);
        cache.begin(&geometry, 5_000, 5_100, 0);
        assert!(cache.passed(4_900, 5_000) && cache.passed(3_900, 4_000));
        assert!(!cache.passed(3_900, 3_999), "too far behind");
        assert!(!cache.passed(5_000, 5_100) && !cache.passed(5_100, 5_200), "not behind");
    }

    #[test]
    fn a_write_takes_what_it_overwrites_and_stops_a_stream_before_it() {
        let geometry = geometry();
        let mut cache = ReadCache::new(4, 1_000);
        cache.begin(&geometry, 100, 200, 0);
        assert_eq!(cache.forget(1_150, 1_300), Some(200), "the stream would reach it");
        assert!(cache.has(100, 200));
        assert_eq!(cache.forget(150, 160), None);
        assert!(cache.has(100, 150) && !cache.has(150, 151));
    }
}
