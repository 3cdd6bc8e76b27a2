//! Values of knobs: enumerations, scheduler settings, and the stripe size.
//!
//! The effects of the values are explained in the file of each policy.

use weft_units::{Bytes, FRAME_BYTES, Group, Sectors, Span};

use super::KnobError;
use super::form::{Form, words};

words! {
    /// Time at which delayed stripes move to the hold list, from which they are preread.
    #[derive(Default)]
    pub enum Activation {
        /// Delayed stripes move when the plug is pulled, 3 ms after it was set, as in 2008.
        AtUnplug = "at_unplug",
        /// Delayed stripes move at the next turn of the engine, as in md's thread today.
        #[default]
        EachTurn = "each_turn",
    }

    /// Source from which a check or repair takes the strips of a cached stripe.
    #[derive(Default)]
    pub enum CheckReads {
        /// Strips that are in the stripe cache are taken from there, as in md.
        Cache = "cache",
        /// All strips are read from the members.
        #[default]
        Media = "media",
    }

    /// Form of the stripe cache: how filled stripes are written and inactive ones are kept
    /// (md-raid.md §1.10).
    #[derive(Default)]
    pub enum CacheForm {
        /// The form of 2.6.25: the stripes of a chunk are written one by one, and inactive stripes
        /// are in one list.
        Of2008 = "2008",
        /// The form of 6.12: filled stripes of a chunk are written as a batch, and inactive stripes
        /// are in eight lists.
        #[default]
        Today = "today",
    }

    /// Rule by which member flushes serve flush requests (patch 002).
    #[derive(Default)]
    pub enum FlushRule {
        /// One round of member flushes at a time, for all waiting requests (Linux 5.2 to 6.11).
        #[default]
        Batch = "batch",
        /// One flush per member at a time, for all waiting requests (Linux since 6.12).
        Md612 = "md612",
        /// Like [`Self::Md612`], but a member is not flushed if all of its writes are durable.
        Needed = "needed",
        /// One round per request, several at a time (Linux 4.18 to 5.1).
        Parallel = "parallel",
        /// One round per request, one at a time (Linux before 4.18).
        Serial = "serial",
    }

    /// Method by which BFQ queues share a member.
    #[derive(Default)]
    pub enum Fairness {
        /// Each request is scheduled on its own, and no queue overtakes one that stays active
        /// (weft's own).
        Requests = "requests",
        /// One queue at a time is in service, and the member is kept idle for it if its share
        /// depends on it.
        #[default]
        Slots = "slots",
    }

    /// Rule by which a stripe obtains the strips that it needs for a read or write.
    #[derive(Default)]
    pub enum PlanRule {
        /// md's choice between read-modify-write and reconstruct-write, with the same reads as md.
        #[default]
        Md = "md",
        /// The plan that needs the fewest reads (weft's own).
        Least = "least",
    }

    /// Rule that chooses the stripe that is handled next: one of the two rules of patch 000, or
    /// weft's own.
    #[derive(Default)]
    pub enum PriorityRule {
        /// Held stripes may be bypassed `preread_bypass_threshold` times (Linux since 2.6.26).
        #[default]
        Bypass = "bypass",
        /// Held stripes are handled in order of arrival, behind ready stripes (Linux before
        /// 2.6.26).
        Fifo = "fifo",
        /// Each stripe waits for as long as waiting pays off, at most `preread_wait_max` (weft's
        /// own).
        Stream = "stream",
    }

    /// Cases in which read-modify-write is preferred to reconstruct-write: md's `rmw_level`.
    #[derive(Default)]
    pub enum RmwLevel {
        /// Always reconstruct-write.
        Never = "0",
        /// Read-modify-write if it needs strictly fewer reads than reconstruct-write.
        #[default]
        Fewer = "1",
        /// Read-modify-write also if both methods need equally many reads.
        Tie = "2",
    }

    /// Rule for the speed of a sync while clients send requests.
    pub enum SyncPace {
        /// A sync keeps its lower limit (`sync_speed_min`) while clients send requests, and runs
        /// faster in their pauses (weft's own).
        Idle = "idle",
        /// While clients send requests, a sync has one step of 128 KiB in flight at a time, or more
        /// if it needs that to keep its lower limit (Linux since 4.1).
        Md = "md",
    }

    /// Client writes that wait for more data of their stripe, so that less has to be preread.
    #[derive(Default)]
    pub enum Writes {
        /// A write waits if other writes to its stripe arrived in the same turn of the engine. With
        /// `stripe_size=auto` it waits if a sequential stream will bring the rest of its stripe.
        #[default]
        Auto = "auto",
        /// Every write without the `sync` flag waits.
        Gather = "gather",
        /// No write waits.
        Sync = "sync",
    }

    /// Name of an I/O scheduler.
    #[derive(Default)]
    pub enum SchedulerKind {
        /// Requests are dispatched first in, first out.
        #[default]
        None = "none",
        /// Requests are sorted by sector, and each has a deadline.
        MqDeadline = "mq-deadline",
        /// The number of reads, writes and discards at the member is limited so that latencies stay
        /// within their targets.
        Kyber = "kyber",
        /// Budget fair queueing: shares by weight among active clients.
        Bfq = "bfq",
    }

    /// Members on which BFQ merges the queues of cooperating processes (patch 003).
    #[derive(Default)]
    pub enum MergeRule {
        /// BFQ merges queues on all members (Linux before 5.2).
        Always = "always",
        /// BFQ merges queues on members on which requests of one process begin where those of
        /// another have just ended (weft's own).
        Gain = "gain",
        /// BFQ merges no queues.
        Never = "never",
        /// BFQ merges queues on members that are rotational or do not queue internally (Linux since
        /// 5.2).
        #[default]
        Patch = "patch",
    }

    /// Position from which BFQ measures whether another queue is nearby, while the queue in service
    /// has not dispatched a request yet.
    #[derive(Default)]
    pub enum MergePosition {
        /// No position: no other queue counts as nearby before the first dispatch.
        #[default]
        Own = "own",
        /// The position of the queue that was in service before, so that queues that are far apart
        /// are merged (Linux until 2021).
        Stale = "stale",
    }

    /// Weight of a queue after another queue was merged into it.
    #[derive(Default)]
    pub enum MergeWeight {
        /// The larger one of the weights of both queues.
        Max = "max",
        /// The weight of the queue into which the other one is merged, as in Linux.
        #[default]
        Target = "target",
    }

    /// Merging of member requests, as in `/sys/block/X/queue/nomerges`.
    #[derive(Default)]
    pub enum NoMerges {
        /// 0: all merging.
        #[default]
        Allowed = "0",
        /// 1: merging within a turn of the engine, and with the request that was last inserted or
        /// merged into, but without a lookup.
        LastOnly = "1",
        /// 2: no merging.
        Never = "2",
    }
}

/// Size of a stripe on each member: the height of a stripe-cache entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct StripeSize {
    bytes: u32,
    auto: bool,
}

impl StripeSize {
    /// Stripes of 4 KiB per member, which are handled together as full stripes where that is
    /// possible.
    pub const AUTO: Self = Self { bytes: MIN, auto: true };

    pub(super) const FORM: Form<Self> = Form {
        unit: "bytes",
        range: || format!("{POWERS}, or auto"),
        parse: |text, _, _| match text {
            "auto" => Some(Self::AUTO),
            _ => Self::new(text.parse().ok()?).ok(),
        },
        show: |size| match size {
            Self::AUTO => "auto".into(),
            size => size.bytes().0.to_string(),
        },
    };

    /// Creates a fixed stripe size of `bytes`.
    ///
    /// # Errors
    /// The size is not a power of two in 4096..=65536.
    pub fn new(bytes: u64) -> Result<Self, KnobError> {
        match u32::try_from(bytes) {
            Ok(bytes) if (MIN..=MAX).contains(&bytes) && bytes.is_power_of_two() => {
                Ok(Self { bytes, auto: false })
            }
            _ => Err(KnobError::Value {
                name: "stripe_size",
                found: bytes.to_string(),
                expected: POWERS.to_owned(),
            }),
        }
    }

    /// Size in bytes of a strip of a stripe-cache entry, the unit of lookups and the smallest unit
    /// of I/O.
    #[must_use]
    pub const fn bytes(self) -> Bytes {
        Bytes(self.bytes as u64)
    }

    /// Size in sectors of a strip of a stripe-cache entry.
    #[must_use]
    pub const fn sectors(self) -> Sectors {
        Bytes(self.bytes as u64).sectors_floor()
    }

    /// Number of frames for one strip of a stripe.
    #[must_use]
    pub const fn frames(self) -> u32 {
        self.bytes / FRAME_BYTES as u32
    }

    /// Number of frames for a whole stripe of an array with `members` slots, parity included.
    #[must_use]
    pub fn stripe_frames(self, members: u16, chunk: Bytes) -> u32 {
        u32::from(members) * self.at_most(chunk).frames()
    }

    /// The largest stripe size that divides `chunk` and is not larger than this one.
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
const POWERS: &str = "a power of two, 4096..=65536";

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

/// Knobs of BFQ, named as in `/sys/block/X/queue/iosched/`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct BfqKnobs {
    /// Method by which queues share a member.
    pub fairness: Fairness,
    /// Time for which a member is kept idle for a queue that may soon have a request. Zero: never.
    pub slice_idle: Span,
    /// Whether a member gets only one request at a time, and is always kept idle for the queue in
    /// service.
    pub strict_guarantees: bool,
    /// Whether weights of interactive and soft real-time queues are raised.
    pub low_latency: bool,
    /// Whether a member is kept idle for queues of the smallest weight too, as before Linux 5.2.
    pub idle_lowest: bool,
    /// Longest time that a queue stays in service.
    pub timeout_sync: Span,
    /// Largest budget in sectors. Zero: the sectors that the member transfers in `timeout_sync`.
    pub max_budget: u32,
    /// Time from the arrival of a read or sync write to its deadline.
    pub fifo_expire_sync: Span,
    /// Time from the arrival of a background write to its deadline.
    pub fifo_expire_async: Span,
    /// Longest backward seek, in KiB, that is compared with forward seeks; requests farther back
    /// are served last.
    pub back_seek_max: u32,
    /// Cost of a backward seek, as a multiple of the cost of a forward seek of the same distance.
    pub back_seek_penalty: u32,
    /// Knobs of queue merging.
    pub merge: MergeKnobs,
    /// Weights of groups of clients.
    pub groups: GroupWeights,
    /// Whether wakers of queues are detected, as in Linux since 2019.
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

/// Weights of groups of clients, by group number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct GroupWeights([u16; Group::MAX as usize]);

impl GroupWeights {
    /// No weight given: each group has the kernel's default weight of 100.
    pub const NONE: Self = Self([0; Group::MAX as usize]);

    pub(super) const FORM: Form<Self> = Form {
        unit: "weights",
        range: || format!("1..=1000 each, at most {}, or none", Group::MAX),
        parse: |text, _, _| {
            let weights: Option<Vec<u16>> = match text {
                "none" => Some(Vec::new()),
                _ => text.split(',').map(|weight| weight.parse().ok()).collect(),
            };
            Self::of(&weights?)
        },
        show: |weights| match weights.given() {
            [] => "none".into(),
            given => given.iter().map(u16::to_string).collect::<Vec<_>>().join(","),
        },
    };

    /// Creates the weights of the first groups, 1 to 1000 each, in order. `None` if there are too
    /// many weights or one is out of range.
    #[must_use]
    pub fn of(weights: &[u16]) -> Option<Self> {
        let mut of = Self::NONE;
        let fits = weights.len() <= of.0.len() && weights.iter().all(|it| (1..=1000).contains(it));
        fits.then(|| {
            of.0[..weights.len()].copy_from_slice(weights);
            of
        })
    }

    /// The weights that were given, in the order of group numbers.
    #[must_use]
    pub fn given(&self) -> &[u16] {
        let count = self.0.iter().position(|weight| *weight == 0);
        &self.0[..count.unwrap_or(self.0.len())]
    }

    /// Weight of a group.
    ///
    /// # Panics
    /// Panics for the root group.
    #[must_use]
    pub fn weight(&self, group: Group) -> u32 {
        assert!(group != Group::ROOT, "the root group has no weight");
        match self.0[usize::from(group.number()) - 1] {
            0 => GROUP_WEIGHT_DEFAULT,
            weight => weight.into(),
        }
    }
}

/// Default of `io.bfq.weight` for a cgroup.
const GROUP_WEIGHT_DEFAULT: u32 = 100;

/// Knobs of BFQ's queue merging (patch 003).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct MergeKnobs {
    /// Members on which queues are merged.
    pub queues: MergeRule,
    /// Position that is used for a queue in service before its first dispatch.
    pub position: MergePosition,
    /// Weight with which a queue is served after another queue was merged into it.
    pub weight: MergeWeight,
    /// Whether queues created together are merged permanently, as in Linux since 2021.
    pub stable: bool,
}

/// Knobs of kyber, named as in `/sys/block/X/queue/iosched/` without the unit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct KyberKnobs {
    /// Target latency of reads.
    pub read_lat: Span,
    /// Target latency of writes.
    pub write_lat: Span,
}

impl Default for KyberKnobs {
    fn default() -> Self {
        Self { read_lat: Span::millis(2), write_lat: Span::millis(10) }
    }
}

/// Knobs of mq-deadline, named as in `/sys/block/X/queue/iosched/`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct MqDeadlineKnobs {
    /// Time from the arrival of a read to its deadline.
    pub read_expire: Span,
    /// Time from the arrival of a write to its deadline.
    pub write_expire: Span,
    /// Number of batches of reads that may be dispatched while writes wait.
    pub writes_starved: u32,
    /// Largest number of requests in a batch.
    pub fifo_batch: u32,
    /// Whether a new request may be merged in front of a queued one.
    pub front_merges: bool,
    /// Time after which a request of a lower class is dispatched despite requests of higher
    /// classes.
    pub prio_aging_expire: Span,
    /// Largest number of requests other than reads in the scheduler and in flight. Zero: as many as
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
