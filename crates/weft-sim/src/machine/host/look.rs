//! Observation of a simulated machine: logs of requests, history of samples, counters.

use weft_engine::sched::bfq::BfqStats;
use weft_engine::{Notice, Snapshot};
use weft_units::{ByteRange, Bytes, Span, Time, VolumeId};

use super::super::member::{Member, Traffic};
use super::super::probe::{History, Sums, View};
use super::{FlushOrderCounts, Host, Seen};
use crate::drive::Drive;

impl Host {
    /// Counts of the commands that each member's disk received, after merging.
    pub fn traffic(&self) -> impl Iterator<Item = Traffic> + '_ {
        self.members.iter().map(|member| member.traffic)
    }

    /// The disks of the members.
    pub fn drives(&self) -> impl Iterator<Item = &Drive> {
        self.members.iter().map(Member::drive)
    }

    /// Number of volumes.
    #[must_use]
    pub fn volumes(&self) -> usize {
        self.volumes.len()
    }

    /// Starts recording the requests to the volume.
    pub fn watch_requests(&mut self) {
        self.seen.get_or_insert((self.next_tag, Vec::new()));
    }

    /// Requests since [`Host::watch_requests`] was called; none if it was not.
    #[must_use]
    pub fn watched(&self) -> &[Seen] {
        self.seen.as_ref().map_or(&[], |(_, seen)| seen)
    }

    /// Byte ranges of the requests since [`Host::watch_requests`] was called, in order.
    #[must_use]
    pub fn requests_seen(&self) -> Vec<ByteRange> {
        self.watched().iter().map(|seen| seen.range).collect()
    }

    /// Starts sampling the state of the machine, once in each interval of length `every`.
    ///
    /// # Panics
    /// Panics if the interval is zero.
    pub fn watch_over_time(&mut self, every: Span) {
        let history = History::new(every, self.now, self.view().sums);
        self.history = Some(Box::new(history));
    }

    /// Samples since [`Host::watch_over_time`] was called; `None` if it was not.
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

    /// The engine's own counters and states.
    #[must_use]
    pub fn snapshot(&self) -> Snapshot {
        self.engine.snapshot()
    }

    /// Decision counters of the members' bfq schedulers; none with another scheduler.
    pub fn bfq_stats(&self) -> impl Iterator<Item = &BfqStats> {
        self.engine.bfq_stats(VolumeId(0))
    }

    /// Largest number of pages of 4 KiB that were dirty or under writeback in weft's write-back
    /// cache at one time; 0 without such a cache. Its other counters are in [`Host::snapshot`].
    #[must_use]
    pub fn dirty_pages_max(&self) -> u64 {
        self.dirty_pages_max
    }

    /// CPU time that the engine's thread has used.
    #[must_use]
    pub fn engine_work(&self) -> Span {
        self.engine_work
    }

    /// Number of answered requests, and the number of these that failed.
    #[must_use]
    pub fn answered(&self) -> (u64, u64) {
        (self.requests_done, self.failed)
    }

    /// Number of flushes that the volume received: empty ones, and those before a write.
    #[must_use]
    pub fn flushes_asked(&self) -> u64 {
        self.flushes_asked
    }

    /// Counts of the flush order checker. They are meaningless for machines with planned faults.
    #[must_use]
    pub fn flush_order(&self) -> FlushOrderCounts {
        self.flush_order.counts()
    }

    /// Bytes that requests asked the volume to read, and to write, including writes of the page
    /// cache.
    #[must_use]
    pub fn asked_bytes(&self) -> (Bytes, Bytes) {
        (Bytes(self.asked_bytes.0), Bytes(self.asked_bytes.1))
    }

    /// The first thousand notices of the engine about its members, each with its time.
    #[must_use]
    pub fn notices(&self) -> &[(Time, Notice)] {
        &self.notices
    }

    /// Bytes that were reconstructed because a member could not return them.
    #[must_use]
    pub fn recovered(&self) -> Bytes {
        Bytes(self.recovered)
    }

    /// Number of member reads that found an unreadable sector.
    #[must_use]
    pub fn unreadable(&self) -> u64 {
        self.faults.as_ref().map_or(0, |faults| faults.unreadable)
    }
}
