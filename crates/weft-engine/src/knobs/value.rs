//! Values of knobs that are words, and the size of a stripe.
//!
//! Each policy says in its own file what follows from its values.

use weft_units::{Bytes, FRAME_BYTES, Group, Sectors, Span};

use super::KnobError;

/// Moment at which delayed stripes become held ones.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Activation {
    /// At the end of the plug, 3 ms after its begin, as in 2008.
    AtUnplug,
    /// At the next turn, as md does today.
    #[default]
    EachTurn,
}

/// Source of a check's or repair's strips for a stripe that is in the cache.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum CheckReads {
    /// The cache, as md.
    Cache,
    /// Only the members.
    #[default]
    Media,
}

/// The stripe cache around the policies (md-raid.md §1.10).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum CacheForm {
    /// As in 2.6.25: the stripes of a full stripe are written one by one, and inactive stripes are
    /// one list.
    Of2008,
    /// As in 6.12: filled stripes of a chunk are written as a batch, and inactive stripes are in
    /// eight classes.
    #[default]
    Today,
}

/// Member flushes that serve a flush request (patch 002).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum FlushRule {
    /// One round of the array at a time, for every request that waits (Linux 5.2 to 6.11).
    #[default]
    Batch,
    /// One flush of each member at a time, for every request that waits (Linux since 6.12).
    Md612,
    /// As [`Self::Md612`], and none of a member whose writes are durable.
    Needed,
    /// A round for each request, several at a time (Linux 4.18 to 5.1).
    Parallel,
    /// A round for each request, one at a time (Linux before).
    Serial,
}

/// How the queues of BFQ share a member.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Fairness {
    /// Each request is a turn, and none is ahead of a queue that keeps asking (weft's own).
    Requests,
    /// One queue at a time has the member, which is kept for it when its share depends on that.
    #[default]
    Slots,
}

/// Rule by which a stripe gets the strips that it needs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum PlanRule {
    /// With the fewest reads.
    Least,
    /// md's choice of rmw or rcw, with the same reads.
    #[default]
    Md,
}

/// The two rules of patch 000, and weft's own.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum PriorityRule {
    /// Held stripes may be bypassed `preread_bypass_threshold` times (Linux since 2.6.26).
    #[default]
    Bypass,
    /// Held stripes go first come, first served (Linux before).
    Fifo,
    /// Each stripe waits for as long as it pays, and `preread_wait_max` at most (weft's own).
    Stream,
}

/// Preference for read-modify-write, md's `rmw_level`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum RmwLevel {
    /// Always reconstruct-write.
    Never,
    /// Read-modify-write when it needs strictly fewer reads.
    #[default]
    Fewer,
    /// Read-modify-write also when both need as many reads.
    Tie,
}

/// Pace of a resync beside clients that work.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum SyncPace {
    /// Its floor, and the pauses of clients.
    Idle,
    /// A step at a time, and its floor at least (Linux since 4.1).
    Md,
}

/// Client writes that wait for more of their stripe.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Writes {
    /// A write waits when something else was recorded for its stripe in the same turn.
    #[default]
    Auto,
    /// Every write without the `sync` flag.
    Gather,
    /// None.
    Sync,
}

/// Bytes of a stripe on one member.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct StripeSize {
    bytes: u32,
    auto: bool,
}

impl StripeSize {
    /// Strips of 4 KiB, handled by full stripes.
    pub const AUTO: Self = Self { bytes: MIN, auto: true };

    /// Checks a size.
    ///
    /// # Errors
    /// Not a power of two in 4096..=65536.
    pub fn new(bytes: u64) -> Result<Self, KnobError> {
        match u32::try_from(bytes) {
            Ok(bytes) if (MIN..=MAX).contains(&bytes) && bytes.is_power_of_two() => {
                Ok(Self { bytes, auto: false })
            }
            _ => Err(KnobError::Value {
                name: "stripe_size",
                found: bytes.to_string(),
                expected: format!("a power of two, {MIN}..={MAX}"),
            }),
        }
    }

    /// Size of a stripe-cache entry's strip in bytes: the unit of look-ups, and the least that is
    /// moved.
    #[must_use]
    pub const fn bytes(self) -> Bytes {
        Bytes(self.bytes as u64)
    }

    /// Size of a stripe-cache entry's strip in sectors.
    #[must_use]
    pub const fn sectors(self) -> Sectors {
        Bytes(self.bytes as u64).sectors_floor()
    }

    /// Frames of one strip of a stripe.
    #[must_use]
    pub const fn frames(self) -> u32 {
        self.bytes / FRAME_BYTES as u32
    }

    /// Frames of a whole stripe of an array, parity included.
    #[must_use]
    pub fn stripe_frames(self, members: u16, chunk: Bytes) -> u32 {
        u32::from(members) * self.at_most(chunk).frames()
    }

    /// The largest size not above this one that divides a chunk.
    #[must_use]
    pub fn at_most(self, chunk: Bytes) -> Self {
        let mut bytes = self.bytes;
        while bytes > MIN && !chunk.0.is_multiple_of(u64::from(bytes)) {
            bytes /= 2;
        }
        Self { bytes, ..self }
    }
}

impl Default for StripeSize {
    fn default() -> Self {
        Self { bytes: MIN, auto: false }
    }
}

const MIN: u32 = 4096;
const MAX: u32 = 65_536;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_powers_of_two_from_4k_to_64k() {
        for good in [4096, 8192, 16_384, 32_768, 65_536] {
            assert_eq!(StripeSize::new(good).unwrap().bytes(), Bytes(good));
        }
        for bad in [0, 2048, 6144, 131_072, u64::MAX] {
            assert!(StripeSize::new(bad).is_err(), "{bad}");
        }
        assert_eq!(StripeSize::AUTO.bytes(), Bytes(4096));
    }

    #[test]
    fn a_stripe_is_never_higher_than_the_chunk() {
        let size = StripeSize::new(65_536).unwrap();
        assert_eq!(size.at_most(Bytes::kib(16)).bytes(), Bytes::kib(16));
        assert_eq!(size.at_most(Bytes::kib(512)), size);
        assert_eq!(StripeSize::AUTO.at_most(Bytes::kib(16)), StripeSize::AUTO);
    }
}

/// Names a scheduler.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum SchedulerKind {
    /// Shares by weight among those who ask: budget fair queueing.
    Bfq,
    /// First come, first served.
    #[default]
    None,
    /// Sorted by place, with a bound on the wait.
    MqDeadline,
}

impl SchedulerKind {
    /// Every scheduler, by name.
    pub const ALL: [Self; 3] = [Self::Bfq, Self::MqDeadline, Self::None];

    /// Its name, as in `/sys/block/X/queue/scheduler`.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Bfq => "bfq",
            Self::MqDeadline => "mq-deadline",
            Self::None => "none",
        }
    }

    /// Scheduler of a name.
    #[must_use]
    pub fn of_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| kind.name() == name)
    }
}

/// Knobs of BFQ, named as in `/sys/block/X/queue/iosched/`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct BfqKnobs {
    /// How queues share a member.
    pub fairness: Fairness,
    /// Time for which a member is kept for a queue that may soon have more. Zero: never.
    pub slice_idle: Span,
    /// Whether a member gets one request at a time, and is kept for whoever is in service.
    pub strict_guarantees: bool,
    /// Whether queues that look interactive or like players get more weight for a while.
    pub low_latency: bool,
    /// Whether a member is kept for queues of the smallest weight too, as before Linux 5.2.
    pub idle_lowest: bool,
    /// Longest time that a queue is in service.
    pub timeout_sync: Span,
    /// Largest budget in sectors. Zero: what the member moves in `timeout_sync`.
    pub max_budget: u32,
    /// Time from the arrival of a request that somebody waits for to its deadline.
    pub fifo_expire_sync: Span,
    /// Time from the arrival of a background write to its deadline.
    pub fifo_expire_async: Span,
    /// Longest way back to a request of the same queue, in KiB.
    pub back_seek_max: u32,
    /// Cost of a way back, as a multiple of the same way forward.
    pub back_seek_penalty: u32,
    /// Merging of queues.
    pub merge: MergeKnobs,
    /// Weights of groups of clients.
    pub groups: GroupWeights,
    /// Whether queues that wait for one another are looked for, as Linux does since 2019.
    pub waker: bool,
}

impl Default for BfqKnobs {
    fn default() -> Self {
        Self {
            fairness: Fairness::default(),
            slice_idle: Span::millis(8),
            strict_guarantees: false,
            low_latency: true,
            idle_lowest: false,
            timeout_sync: Span::millis(125),
            max_budget: 0,
            fifo_expire_sync: Span::millis(125),
            fifo_expire_async: Span::millis(250),
            back_seek_max: 16_384,
            back_seek_penalty: 2,
            merge: MergeKnobs::default(),
            groups: GroupWeights::NONE,
            waker: false,
        }
    }
}

/// Weights of groups of clients, by number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct GroupWeights([u16; Group::MAX as usize]);

impl GroupWeights {
    /// None given: each group has the kernel's default of 100.
    pub const NONE: Self = Self([0; Group::MAX as usize]);

    /// Those of the first groups, 1 to 1000 each, in order.
    #[must_use]
    pub fn of(weights: &[u16]) -> Option<Self> {
        let mut of = Self::NONE;
        let fits = weights.len() <= of.0.len() && weights.iter().all(|it| (1..=1000).contains(it));
        fits.then(|| {
            of.0[..weights.len()].copy_from_slice(weights);
            of
        })
    }

    /// Those that are given, in order.
    #[must_use]
    pub fn given(&self) -> &[u16] {
        let count = self.0.iter().position(|weight| *weight == 0);
        &self.0[..count.unwrap_or(self.0.len())]
    }

    /// Weight of a group; that of the root is not asked for.
    #[must_use]
    pub fn weight(&self, group: Group) -> u32 {
        assert!(group != Group::ROOT, "a group with a number");
        match self.0[usize::from(group.number()) - 1] {
            0 => GROUP_WEIGHT_DEFAULT,
            weight => weight.into(),
        }
    }
}

/// `io.bfq.weight` of a cgroup that nobody has set.
const GROUP_WEIGHT_DEFAULT: u32 = 100;

/// Knobs of bfq's queue merging (patch 003).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct MergeKnobs {
    /// Members on which queues are merged.
    pub queues: MergeRule,
    /// Position of a queue in service from which nothing was dispatched yet.
    pub position: MergePosition,
    /// Weight of a queue into which another one was merged.
    pub weight: MergeWeight,
    /// Whether queues that were created together are merged for good, as Linux does since 2021.
    pub stable: bool,
}

/// Members on which bfq merges queues (patch 003).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum MergeRule {
    /// All (Linux before 5.2).
    Always,
    /// Those where processes go on where others have just ended (weft's own).
    Gain,
    /// None.
    Never,
    /// Those that rotate or do not queue internally (Linux since 5.2).
    #[default]
    Patch,
}

/// Position of a queue in service from which nothing was dispatched yet.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum MergePosition {
    /// None.
    #[default]
    Own,
    /// That of the queue before it, which merges queues that are far apart (Linux until 2021).
    Stale,
}

/// Weight of a queue into which another one was merged.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum MergeWeight {
    /// The larger one of both.
    Max,
    /// Its own, as in Linux.
    #[default]
    Target,
}

/// Merging of the requests of a member, as `/sys/block/X/queue/nomerges` has it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum NoMerges {
    /// 0: all merging.
    #[default]
    Allowed,
    /// 1: within a turn, and with the request that was inserted or merged into last. No look-up.
    LastOnly,
    /// 2: none.
    Never,
}

/// Knobs of mq-deadline, named as in `/sys/block/X/queue/iosched/`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct MqDeadlineKnobs {
    /// Time from the arrival of a read to its deadline.
    pub read_expire: Span,
    /// Time from the arrival of a write to its deadline.
    pub write_expire: Span,
    /// Batches of reads that go before a batch of writes that waits.
    pub writes_starved: u32,
    /// Requests in a batch.
    pub fifo_batch: u32,
    /// Whether a request is looked for that begins where the new one ends.
    pub front_merges: bool,
    /// After which time a lower class goes before a higher one.
    pub prio_aging_expire: Span,
    /// Requests in the scheduler and at the member that are no reads. Zero: as many as
    /// [`Knobs::nr_requests`](super::Knobs::nr_requests).
    pub async_depth: u32,
}

impl Default for MqDeadlineKnobs {
    fn default() -> Self {
        Self {
            read_expire: Span::millis(500),
            write_expire: Span::secs(5),
            writes_starved: 2,
            fifo_batch: 16,
            front_merges: true,
            prio_aging_expire: Span::secs(10),
            async_depth: 0,
        }
    }
}
