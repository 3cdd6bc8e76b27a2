//! Observers of a simulated machine: logs of requests, history of samples, counters.

use weft_engine::sched::bfq::BfqStats;
use weft_engine::{Notice, Snapshot};
use weft_units::{ByteRange, Bytes, Span, Time, VolumeId};

use super::super::member::{Member, Traffic};
use super::super::probe::{History, Sums, View};
use super::{FlushOrderCounts, Host, Seen};
use crate::drive::Drive;

impl Host {
    /// What the members' disks were asked for, after merging.
    pub fn traffic(&self) -> impl Iterator<Item = Traffic> + '_ {
        self.members.iter().map(|member| member.traffic)
    }

    /// The disks.
    pub fn drives(&self) -> impl Iterator<Item = &Drive> {
        self.members.iter().map(Member::drive)
    }

    /// Keeps what the volume is asked for from now on.
    pub fn watch_requests(&mut self) {
        self.seen.get_or_insert((self.next_tag, Vec::new()));
    }

    /// What the volume was asked for since somebody watches, how, and when it was answered.
    #[must_use]
    pub fn watched(&self) -> &[Seen] {
        self.seen.as_ref().map_or(&[], |(_, seen)| seen)
    }

    /// Byte ranges of the requests since [`Host::watch_requests`], in order.
    #[must_use]
    pub fn requests_seen(&self) -> Vec<ByteRange> {
        self.watched().iter().map(|seen| seen.range).collect()
    }

    /// Looks at the machine every so often from now on.
    ///
    /// # Panics
    /// No time passes between two looks.
    pub fn watch_over_time(&mut self, every: Span) {
        let history = History::new(every, self.now, self.view().sums);
        self.history = Some(Box::new(history));
    }

    /// Samples since observation began.
    #[must_use]
    pub fn history(&self) -> Option<&History> {
        self.history.as_deref()
    }

    pub(super) fn view(&self) -> View {
        let sums = Sums { engine: self.engine_work, answered: self.bytes_done, ..Sums::default() };
        View {
            stripes: self.engine.stripes_in_use(VolumeId(0)),
            at_disks: self.members.iter().map(Member::commands).sum(),
            sums: self.members.iter().fold(sums, |sums, member| sums.with(&member.traffic)),
        }
    }

    /// The engine's own counters.
    #[must_use]
    pub fn snapshot(&self) -> Snapshot {
        self.engine.snapshot()
    }

    /// Reasons of the decisions of the members' `bfq`, where that is the scheduler.
    pub fn bfq_stats(&self) -> impl Iterator<Item = &BfqStats> {
        self.engine.bfq_stats(VolumeId(0))
    }

    /// Most pages of 4 KiB that were dirty in the write-back cache or being written at one time; 0
    /// without such a cache. What else it did is in [`Host::snapshot`].
    #[must_use]
    pub fn dirty_pages_max(&self) -> u64 {
        self.dirty_pages_max
    }

    /// CPU time that the engine's thread has used.
    #[must_use]
    pub fn engine_work(&self) -> Span {
        self.engine_work
    }

    /// Requests that were answered, and those of them with an error.
    #[must_use]
    pub fn answered(&self) -> (u64, u64) {
        (self.requests_done, self.failed)
    }

    /// Flushes that the volume was asked for: empty ones, and those before a write.
    #[must_use]
    pub fn flushes_asked(&self) -> u64 {
        self.flushes_asked
    }

    /// Flush requests that were answered, and whether what they promised was durable. Counts say
    /// nothing of machines with planned faults.
    #[must_use]
    pub fn flush_order(&self) -> FlushOrderCounts {
        self.flush_order.counts()
    }

    /// Bytes that the volume was asked for, read and written; what the page cache wrote is among
    /// them.
    #[must_use]
    pub fn asked_bytes(&self) -> (Bytes, Bytes) {
        (Bytes(self.asked_bytes.0), Bytes(self.asked_bytes.1))
    }

    /// What the engine said of its members, and when; the first thousand.
    #[must_use]
    pub fn notices(&self) -> &[(Time, Notice)] {
        &self.notices
    }

    /// Bytes that were computed because they could not be read.
    #[must_use]
    pub fn recovered(&self) -> Bytes {
        Bytes(self.recovered)
    }

    /// Reads of members that failed.
    #[must_use]
    pub fn unreadable(&self) -> u64 {
        self.faults.as_ref().map_or(0, |faults| faults.unreadable)
    }
}
