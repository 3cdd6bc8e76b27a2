//! Table of knobs: one entry per knob, from which everything is generated except the knob's field
//! in [`Knobs`].
//!
//! Names, units and ranges are those of `/sys/block/mdX/md/`, `/sys/block/X/queue/`,
//! `/proc/sys/vm/` and `/sys/class/bdi/` if the kernel has the knob; the other knobs are weft's own
//! and say so.
//!
//! An entry consists of the following parts, of which `note`, `then` and `historic` may be missing:
//!
//! ```text
//! name => Variant(Value) at field.of.Knobs of Scope {
//!     form: how values are written, and which are allowed,
//!     note: "what follows the form's range",
//!     origin: "of the name",
//!     doc: "effect",
//!     then: |knobs| what setting it changes beside its field,
//!     historic: [value, and the experiment that reproduces a former kernel with it],
//!     draws: { lists of the simulator, with values },
//! }
//! ```
//!
//! Source   spec of md: Documentation/admin-guide/md.rst; ranges checked against Linux 6.12

use weft_units::{Bytes, Span};

use super::dirty_pool::{DIRTY_BYTES_MIN, limit_bytes, limit_ratio, throttle};
use super::form::{
    Form, INT_MAX, bypass_threshold, cache_bytes, flag, flag_or_auto, kib, micros, millis, nanos,
    number, percent, preread_wait, seconds, speed, tokens,
};
use super::{
    Activation, CacheForm, CheckReads, Fairness, FlushRule, GroupWeights, Knobs, MergePosition,
    MergeRule, MergeWeight, NoMerges, PlanRule, PriorityRule, RmwLevel, SYNC_SPEED_MAX,
    SYNC_SPEED_MIN, SchedulerKind, StripeSize, SyncPace, Writes,
};
use crate::page_cache::{Amount, Kernel, PAGE_BYTES};

/// Row of [`TABLE`]: name, unit, allowed values and effect of a knob.
pub struct KnobRow {
    /// Name of the knob, as in md if md has it.
    pub name: &'static str,
    /// Unit of the knob's values, or the words that it accepts.
    pub unit: &'static str,
    /// Origin of the name: md, the block layer, `vm` or `bdi` (for the write-back cache), or weft.
    pub origin: &'static str,
    /// Effect of the knob.
    pub doc: &'static str,
    /// Values that only serve to reproduce a former kernel, each with the experiment that uses it
    /// and that `weft reproduce` runs. A live volume refuses these values.
    pub historic: &'static [(&'static str, &'static str)],
    /// Values that the random scripts of `weft-crash` draw for the knob.
    pub draws: Draws,
    range: fn() -> String,
    pub(super) parse: fn(&str, &Knobs) -> Option<Knob>,
    pub(super) show: fn(&Knobs) -> String,
}

impl KnobRow {
    /// Range of allowed values, as text.
    #[must_use]
    pub fn range(&self) -> String {
        (self.range)()
    }

    /// Range of the values that a live volume accepts, as text.
    #[must_use]
    pub fn range_live(&self) -> String {
        let range = self.range();
        let is_live = |word: &&str| !self.historic.iter().any(|(value, _)| value == word);
        range.split(" | ").filter(is_live).collect::<Vec<_>>().join(" | ")
    }
}

/// Values of a knob that the random scripts of `weft-crash` draw, in one list for each occasion. A
/// value may be repeated, which makes it more likely. A profile is a kind of script.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Draws {
    /// Values with which a run may start, under any profile.
    pub start: &'static [&'static str],
    /// Values that are set while a run goes on, under any profile that sets knobs.
    pub steps: &'static [&'static str],
    /// Values for the start and for later, under the profiles that test member queues.
    pub queues: &'static [&'static str],
    /// Values that are set while a run goes on, under the profiles of mixed events.
    pub mixed: &'static [&'static str],
    /// Values that are set for the queue of a single member while a run goes on, under the profiles
    /// of mixed events.
    pub one_queue: &'static [&'static str],
    /// Reason for which scripts never draw the knob; empty if a list contains it.
    pub unlisted: &'static str,
}

impl Draws {
    /// Neither values nor a reason, which no knob in the table may have.
    pub const NONE: Self =
        Self { start: &[], steps: &[], queues: &[], mixed: &[], one_queue: &[], unlisted: "" };
}

/// Object to which a knob belongs.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Scope {
    /// The pool of the write-back cache, which all volumes share.
    Pool,
    /// Member queues, which every volume has.
    Queues,
    /// A volume's share of the write-back cache.
    Share,
    /// The volume.
    Volume,
}

macro_rules! knobs {
    ($($name:ident => $variant:ident($value:ty) at $($field:ident).+ of $scope:ident {
        form: $form:expr,
        $(note: $note:literal,)?
        origin: $origin:literal,
        doc: $doc:literal,
        $(then: $then:expr,)?
        $(historic: [$($of_history:expr),+],)?
        draws: { $($list:ident: $values:expr),+ $(,)? },
    })+) => {
        /// A knob, together with a new value for it.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum Knob {
            $(
                #[doc = concat!("`", stringify!($name), "`: ", $doc)]
                $variant($value),
            )+
        }

        impl Knob {
            const fn scope(self) -> Scope {
                match self {
                    $(Self::$variant(_) => Scope::$scope,)+
                }
            }
        }

        impl Knobs {
            /// Sets one knob. The value was checked when it was parsed.
            pub fn set(&mut self, knob: Knob) {
                match knob {
                    $(Knob::$variant(value) => {
                        self.$($field).+ = value;
                        $(let then: fn(&mut Self) = $then; then(self);)?
                    })+
                }
            }
        }

        /// The table of all knobs, in alphabetical order.
        pub const TABLE: &[KnobRow] = &[$(KnobRow {
            name: stringify!($name),
            unit: $form.unit,
            origin: $origin,
            doc: $doc,
            historic: &[$($($of_history),+)?],
            draws: Draws { $($list: $values,)+ ..Draws::NONE },
            range: || ($form.range)() $(+ $note)?,
            parse: |text, knobs| {
                ($form.parse)(text, knobs.$($field).+, knobs).map(Knob::$variant)
            },
            show: |knobs| ($form.show)(knobs.$($field).+),
        }),+];
    };
}

impl Knob {
    /// Whether the knob belongs to the pool of the write-back cache, which all volumes share.
    #[must_use]
    pub fn is_of_pool(self) -> bool {
        self.scope() == Scope::Pool
    }

    /// Whether the knob belongs to the write-back cache: to its pool, or to a volume's share of it.
    #[must_use]
    pub fn is_of_cache(self) -> bool {
        matches!(self.scope(), Scope::Pool | Scope::Share)
    }

    /// Whether the knob belongs to member queues, which every volume has.
    #[must_use]
    pub fn is_of_queues(self) -> bool {
        self.scope() == Scope::Queues
    }
}

knobs! {
    activation => Activation(Activation) at activation of Volume {
        form: Activation::FORM,
        origin: "weft",
        doc: "When stripes that wait for a preread may be read: each turn, as md does, or after 3 ms, as in 2008. \
              With stripe_size=auto stripes of a stream wait 500 µs for the rest of it.",
        historic: [("at_unplug", "000")],
        draws: {
            start: &["each_turn", "each_turn", "at_unplug"],
            steps: &["each_turn", "at_unplug"],
        },
    }
    async_depth => AsyncDepth(u32) at mq_deadline.async_depth of Queues {
        form: number::<0, INT_MAX>("requests"),
        origin: "block queue (mq-deadline)",
        doc: "Writes and discards of one member that mq-deadline takes at once; 0 for as many as nr_requests. Reads may use the rest.",
        draws: { mixed: &["0", "1"] },
    }
    back_seek_max => BackSeekMax(u32) at bfq.back_seek_max of Queues {
        form: number::<0, INT_MAX>("KiB"),
        origin: "block queue (bfq)",
        doc: "Longest way back to a request of the same queue that does not count as beginning anew.",
        draws: { unlisted: "orders requests within a queue of bfq alone, which is tested there" },
    }
    back_seek_penalty => BackSeekPenalty(u32) at bfq.back_seek_penalty of Queues {
        form: number::<1, INT_MAX>("factor"),
        origin: "block queue (bfq)",
        doc: "Cost of a way back to a request of the same queue, as a multiple of the way forward.",
        draws: { unlisted: "as back_seek_max" },
    }
    check_reads => CheckReads(CheckReads) at check_reads of Volume {
        form: CheckReads::FORM,
        origin: "weft",
        doc: "Whether check and repair believe stripes that are in the cache, as md does, or read them.",
        draws: { mixed: &["cache", "media"] },
    }
    dirty_background_bytes => DirtyBackgroundBytes(Amount) at pool.background of Pool {
        form: limit_bytes::<PAGE_BYTES>(),
        note: ", or 0 while dirty_background_ratio holds",
        origin: "vm",
        doc: "Dirty data of all volumes above which the write-back cache is written at once; from dirty_bytes on half \
              of that. Set on any volume it holds for all.",
        draws: { mixed: &["4096", "16384"] },
    }
    dirty_background_ratio => DirtyBackgroundRatio(Amount) at pool.background of Pool {
        form: limit_ratio(),
        note: ", or 0 while dirty_background_bytes holds",
        origin: "vm",
        doc: "The same as part of the size of the write-back cache.",
        draws: { mixed: &["1", "50"] },
    }
    dirty_bytes => DirtyBytes(Amount) at pool.dirty of Pool {
        form: limit_bytes::<DIRTY_BYTES_MIN>(),
        note: "=the size of the write-back cache, or 0 while dirty_ratio holds",
        origin: "vm",
        doc: "Most that is dirty or being written of all volumes; clients are slowed down from half-way between \
              dirty_background_bytes and this on. Set on any volume it holds for all.",
        draws: { mixed: &["8192", "32768"] },
    }
    dirty_expire_centisecs => DirtyExpire(u32) at pool.expire_centisecs of Pool {
        form: number::<0, INT_MAX>("1/100 seconds"),
        origin: "vm",
        doc: "Age at which dirty data is written though nobody asks for it. Of all volumes.",
        draws: { mixed: &["0", "10", "3000"] },
    }
    dirty_ratio => DirtyRatio(Amount) at pool.dirty of Pool {
        form: limit_ratio(),
        note: ", or 0 while dirty_bytes holds",
        origin: "vm",
        doc: "The same as dirty_bytes, as part of the size of the write-back cache.",
        draws: { mixed: &["50", "100"] },
    }
    dirty_throttle => DirtyThrottle(Option<Kernel>) at pool.throttle of Pool {
        form: throttle(),
        origin: "weft",
        doc: "Rule by which clients that write faster than the members pause (patch 001), by the kernel that has it. \
              With 2.6.24 and 3.1 they write back themselves; with weft, its own, each goes on in its turn, as members' \
              writes are done. none: they go on until dirty_bytes is reached, and \
              then wait for room. Of all volumes.",
        historic: [("2.6.24", "000"), ("3.1", "001"), ("v11", "001")],
        draws: {
            mixed: &["2.6.24", "3.1", "v11", "patch-001", "mainline-3.2", "mainline-6.12", "weft", "none"],
        },
    }
    dirty_writeback_centisecs => DirtyWriteback(u32) at pool.writeback_centisecs of Pool {
        form: number::<0, INT_MAX>("1/100 seconds"),
        origin: "vm",
        doc: "Time between two looks for dirty data that is old enough; 0 never looks. Of all volumes.",
        draws: { mixed: &["0", "10", "500"] },
    }
    fairness => Fairness(Fairness) at bfq.fairness of Queues {
        form: Fairness::FORM,
        origin: "weft (bfq)",
        doc: "How bfq shares a member: one queue at a time, as the kernel, or request by request, by which weights hold \
              on a member that takes many requests at once and nothing is kept idle.",
        draws: { mixed: &["requests", "slots"] },
    }
    fifo_batch => FifoBatch(u32) at mq_deadline.fifo_batch of Queues {
        form: number::<0, INT_MAX>("requests"),
        origin: "block queue (mq-deadline)",
        doc: "Requests of one direction that go in a row before the direction is chosen anew.",
        draws: { queues: &["1", "4", "16"] },
    }
    fifo_expire_async => FifoExpireAsync(Span) at bfq.fifo_expire_async of Queues {
        form: millis::<1>(),
        origin: "block queue (bfq)",
        doc: "How long a background write waits until its queue is served from there.",
        draws: { unlisted: "orders requests within a queue of bfq alone, which is tested there" },
    }
    fifo_expire_sync => FifoExpireSync(Span) at bfq.fifo_expire_sync of Queues {
        form: millis::<1>(),
        origin: "block queue (bfq)",
        doc: "How long a read or a write that somebody waits for waits until its queue is served from there.",
        draws: { unlisted: "as fifo_expire_async" },
    }
    flush_batch => FlushBatch(FlushRule) at flush_batch of Volume {
        form: FlushRule::FORM,
        origin: "weft",
        doc: "Member flushes that serve a flush request. One round of the array at a time: batch, for every request that waits (patch 002), or serial, for one. \
              parallel: a round for each request. md612: at most one flush of each member at a time, shared by those that wait, as today's kernel. \
              needed: as md612, without flushes of members whose writes are durable.",
        historic: [("serial", "002")],
        draws: {
            queues: &["batch", "serial"],
            mixed: &["batch", "md612", "needed", "parallel", "serial"],
        },
    }
    front_merges => FrontMerges(bool) at mq_deadline.front_merges of Queues {
        form: flag(),
        origin: "block queue (mq-deadline)",
        doc: "Whether a request is merged with a queued one that begins where it ends.",
        draws: { queues: &["0", "1"] },
    }
    group_weights => GroupWeights(GroupWeights) at bfq.groups of Queues {
        form: GroupWeights::FORM,
        origin: "weft (bfq)",
        doc: "Weights of the groups of clients that weft serve --group names, in its order, separated by commas; none \
              gives each of them 100, as io.bfq.weight of cgroups. bfq shares a member between groups first, and by their own weights among the \
              clients of a group.",
        draws: { mixed: &["none", "100,900", "1,1000,10"] },
    }
    idle_lowest => IdleLowest(bool) at bfq.idle_lowest of Queues {
        form: flag(),
        origin: "weft (bfq)",
        doc: "Whether bfq keeps a member for queues of the smallest weight too where weights differ, as before \
              Linux 5.2; they lose nothing without it.",
        historic: [("1", "003")],
        draws: { mixed: &["0", "1"] },
    }
    low_latency => LowLatency(bool) at bfq.low_latency of Queues {
        form: flag(),
        origin: "block queue (bfq)",
        doc: "Whether queues that look interactive or like players get 30 or 3000 times their weight for a while. \
              Clients that were given a weight never do, \
              nor anybody with fairness=requests.",
        draws: { queues: &["0", "1"] },
    }
    max_budget => MaxBudget(u32) at bfq.max_budget of Queues {
        form: number::<0, INT_MAX>("sectors"),
        origin: "block queue (bfq)",
        doc: "Largest budget of a queue in service; 0 for what the member moves in timeout_sync.",
        draws: { unlisted: "timeout_sync is drawn, which bounds budgets too" },
    }
    max_ratio => MaxRatio(u8) at ratios.max of Share {
        form: percent::<1, 100>(),
        note: ", at least min_ratio",
        origin: "bdi",
        doc: "Most of the limits of the write-back cache that this volume may have.",
        draws: { mixed: &["1", "50", "100"] },
    }
    max_sectors_kb => MaxSectors(Bytes) at max_sectors of Queues {
        form: kib::<32_768>(),
        origin: "block queue",
        doc: "Largest member request that merging makes; 0 merges nothing.",
        draws: { start: &["0", "64", "512"], steps: &["0"] },
    }
    member_timeout => MemberTimeout(Span) at member_timeout of Volume {
        form: seconds(),
        origin: "weft",
        doc: "Fails a member that has not answered for this long; 0 never does.",
        draws: { unlisted: "fails members that the script does not count as hurt; tests/regressions.rs sets it" },
    }
    merge_position => MergePosition(MergePosition) at bfq.merge.position of Queues {
        form: MergePosition::FORM,
        origin: "weft (bfq)",
        doc: "Position of a queue that has just been put in service, for merging (bfq): its own, or, as in Linux until \
              2021, that of the queue before it, by which queues are merged that are far apart. stale is there to \
              reproduce 2019.",
        historic: [("stale", "003")],
        draws: { queues: &["own", "stale"] },
    }
    merge_queues => MergeQueues(MergeRule) at bfq.merge.queues of Queues {
        form: MergeRule::FORM,
        origin: "weft (bfq)",
        doc: "Members on which bfq merges the queues of processes that read nearby (patch 003): all, as Linux before \
              5.2; those where processes go on where others have just ended; none; or those that rotate or do not \
              queue internally, as Linux since 5.2.",
        draws: { queues: &["always", "always", "gain", "never", "patch"] },
    }
    merge_weight => MergeWeight(MergeWeight) at bfq.merge.weight of Queues {
        form: MergeWeight::FORM,
        origin: "weft (bfq)",
        doc: "Weight of a queue into which another one was merged (bfq): the larger one of both, or its own, as in \
              Linux.",
        draws: { queues: &["max", "target"] },
    }
    min_ratio => MinRatio(u8) at ratios.min of Share {
        form: percent::<0, 99>(),
        note: ", at most max_ratio, of all volumes together less than 100",
        origin: "bdi",
        doc: "Part of the limits of the write-back cache that is this volume's however little it wrote lately.",
        draws: { unlisted: "a script has one volume, which shares the cache with no other" },
    }
    no_space_wait => NoSpaceWait(Span) at no_space_wait of Volume {
        form: seconds(),
        origin: "weft",
        doc: "Fails a member that had no space for this long, if those that have some suffice; 0 never does. \
              Until then no writes are taken.",
        draws: { unlisted: "the checker of full members knows the default alone (script/space.rs)" },
    }
    nomerges => NoMerges(NoMerges) at nomerges of Queues {
        form: NoMerges::FORM,
        origin: "block queue",
        doc: "Which requests of a member are merged: 0, any that lie side by side; 1, those of one turn, and with the last one queued; 2, none.",
        draws: { mixed: &["0", "1", "2"], one_queue: &["0", "2"] },
    }
    nr_requests => NrRequests(u32) at nr_requests of Queues {
        form: tokens(),
        origin: "block queue",
        doc: "Requests of one member in its scheduler and at the member at once; what is beyond waits in order of arrival. \
              0: with mq-deadline and kyber twice the member's depth, at most 256; with bfq no bound; without a scheduler its depth.",
        draws: { mixed: &["0", "4", "64"], one_queue: &["0", "4"] },
    }
    plan_rule => PlanRule(PlanRule) at plan_rule of Volume {
        form: PlanRule::FORM,
        origin: "weft",
        doc: "How a stripe comes by the strips that it needs: read for read as md, or with the fewest reads. \
              With least, strips of healthy members are read straight from them though others are missing.",
        draws: { start: &["md", "least"], steps: &["md", "least"] },
    }
    preread_bypass_threshold => PrereadBypassThreshold(u32) at preread_bypass_threshold of Volume {
        form: bypass_threshold(),
        origin: "md",
        doc: "How many ready stripes may pass a held one; 0 holds it until no full-stripe write is in flight. \
              With stripe_size=auto 64 at least.",
        draws: { start: &["0", "1", "17"], steps: &["0", "1", "17"] },
    }
    preread_wait_max => PrereadWaitMax(Span) at preread_wait_max of Volume {
        form: preread_wait(),
        origin: "weft",
        doc: "How long a stripe waits at most to be filled before it is preread, and a request for a stripe; \
              less where 64 times what the stripe cache holds is written before that. \
              none, as md: while other stripes are preread or filled stripes are written.",
        draws: { steps: &["0", "0.002"] },
    }
    prio_aging_expire => PrioAgingExpire(Span) at mq_deadline.prio_aging_expire of Queues {
        form: millis::<0>(),
        origin: "block queue (mq-deadline)",
        doc: "How long a request of a lower class waits at most for those of higher ones.",
        draws: { unlisted: "its least useful value is longer than most scripts" },
    }
    priority => Priority(PriorityRule) at priority of Volume {
        form: PriorityRule::FORM,
        origin: "weft",
        doc: "Which rule picks the next stripe: patch 000's, the one before it, or weft's own, by which a stripe \
              waits for the stream that will fill it, and none longer than preread_wait_max.",
        draws: { steps: &["bypass", "fifo", "stream"] },
    }
    queue_depth => QueueDepth(u32) at queue_depth of Queues {
        form: number::<0, 1024>("requests"),
        origin: "SCSI device",
        doc: "Requests that a member has at once; 0 for as many as it takes, or 32 with a scheduler if that is not known.",
        draws: { queues: &["0", "1", "1", "2", "7"], one_queue: &["0", "1", "3"] },
    }
    read_around => ReadAround(Span) at read_around of Volume {
        form: seconds(),
        origin: "weft",
        doc: "Answers a read from the other members when its own has stalled this long, and parity is not \
              to be resynced there; 0 never does.",
        draws: { mixed: &["0", "0.010", "2"] },
    }
    read_expire => ReadExpire(Span) at mq_deadline.read_expire of Queues {
        form: millis::<0>(),
        origin: "block queue (mq-deadline)",
        doc: "How long a read waits until the next batch begins with it.",
        draws: { queues: &["0", "1", "500"] },
    }
    read_lat_nsec => ReadLat(Span) at kyber.read_lat of Queues {
        form: nanos(),
        origin: "block queue (kyber)",
        doc: "How long a read should take. Where members take longer, kyber gives them fewer requests of those kinds that \
              are well within their own target.",
        draws: { queues: &["1", "2000000"] },
    }
    rmw_level => RmwLevel(RmwLevel) at rmw_level of Volume {
        form: Form { unit: "level", ..RmwLevel::FORM },
        origin: "md",
        doc: "Read-modify-write: 0 never, 1 when it reads less than reconstruct-write, 2 also on a tie.",
        draws: { start: &["0", "1", "1", "2"], steps: &["0", "1", "2"] },
    }
    rotational => Rotational(Option<bool>) at rotational of Queues {
        form: flag_or_auto(),
        origin: "block queue",
        doc: "Whether members are disks that turn, for which nearby requests are cheap: auto, what the device says.",
        draws: { one_queue: &["auto", "0", "1"] },
    }
    safe_mode_delay => SafeModeDelay(Span) at safe_mode_delay of Volume {
        form: seconds(),
        origin: "md",
        doc: "How long after the last write the array is marked clean; 0 only when it is stopped.",
        draws: { steps: &["0.050"], mixed: &["0", "0.050", "0.200"] },
    }
    scheduler => Scheduler(SchedulerKind) at scheduler of Queues {
        form: SchedulerKind::FORM,
        origin: "block queue",
        doc: "What is done with requests that wait for a member: first come, first served; \
              sorted and merged; held back by kind where latencies grow; or shared by weight among those who ask.",
        draws: {
            queues: &[
                "none", "mq-deadline", "mq-deadline", "mq-deadline", "bfq", "bfq", "bfq", "kyber", "kyber",
            ],
            mixed: &["none", "mq-deadline", "bfq", "kyber"],
            one_queue: &["none", "mq-deadline", "bfq", "kyber"],
        },
    }
    skip_copy => SkipCopy(bool) at skip_copy of Volume {
        form: flag(),
        origin: "md",
        doc: "Writes whole strips from the client's memory, and does not keep them in the cache. \
              stripe_size=auto does so for filled stripes.",
        draws: { start: &["0", "0", "1"], steps: &["0", "1"] },
    }
    slice_idle => SliceIdle(Span) at bfq.slice_idle of Queues {
        form: millis::<0>(),
        origin: "block queue (bfq)",
        doc: "How long a member is kept for a queue that may soon have more; 0 never.",
        draws: { queues: &["0", "8", "8"], one_queue: &["0", "8"] },
    }
    slice_idle_us => SliceIdleUs(Span) at bfq.slice_idle of Queues {
        form: micros(),
        origin: "block queue (bfq)",
        doc: "The same as slice_idle, in microseconds.",
        draws: { unlisted: "slice_idle is drawn" },
    }
    stable_merge => StableMerge(bool) at bfq.merge.stable of Queues {
        form: flag(),
        origin: "weft (bfq)",
        doc: "Whether bfq merges queues for good that were created within 180 ms of each other, as Linux always does since \
              2021. It costs fairness: of two equal readers that share a queue, one may get twice what the other gets.",
        draws: { queues: &["0", "1"] },
    }
    strict_guarantees => StrictGuarantees(bool) at bfq.strict_guarantees of Queues {
        form: flag(),
        origin: "block queue (bfq)",
        doc: "Whether a member gets one request at a time, and is kept for whoever is in service; setting it raises slice_idle to 8 ms.",
        then: |knobs| {
            if knobs.bfq.strict_guarantees {
                knobs.bfq.slice_idle = knobs.bfq.slice_idle.max(Span::millis(8));
            }
        },
        draws: { queues: &["0", "0", "1"] },
    }
    strictlimit => StrictLimit(bool) at ratios.strict of Share {
        form: flag(),
        origin: "bdi",
        doc: "Whether clients of this volume are slowed down by what is dirty of it, though little is dirty in all. \
              With dirty_throttle=mainline-6.12 alone.",
        draws: { mixed: &["0", "1"] },
    }
    stripe_cache_bytes => StripeCacheBytes(Bytes) at stripe_cache_bytes of Volume {
        form: cache_bytes(),
        origin: "weft",
        doc: "Memory of the stripe cache with stripe_size=auto; 0 for that of stripe_cache_size stripes of \
              4 KiB.",
        draws: { unlisted: "a script draws its stripes as stripe_cache_size, stripes_max and cache_stripes" },
    }
    stripe_cache_form => StripeCacheForm(CacheForm) at stripe_cache_form of Volume {
        form: CacheForm::FORM,
        origin: "weft",
        doc: "What is around the policies: with 2008 the stripes of a full stripe are written one by one, every free \
              stripe fits everywhere, and without patch 000 whoever brings a request takes the first step of its \
              stripe, as when patch 000 was written.",
        historic: [("2008", "000")],
        draws: { unlisted: "one seed in five has 2008" },
    }
    stripe_cache_size => StripeCacheSize(u32) at stripe_cache_size of Volume {
        form: number::<17, 32_768>("stripes"),
        origin: "md",
        doc: "Stripes in the stripe cache, per volume.",
        then: |knobs| {
            let threshold = &mut knobs.preread_bypass_threshold;
            *threshold = (*threshold).min(knobs.stripe_cache_size);
        },
        draws: { steps: &["17", "40"] },
    }
    stripe_size => StripeSize(StripeSize) at stripe_size of Volume {
        form: StripeSize::FORM,
        origin: "md",
        doc: "Bytes of a stripe on one member: what the cache looks up, reads and writes. auto moves 4 KiB \
              for small writes and whole chunks for large ones.",
        draws: { steps: &["4096", "8192", "16384", "auto"] },
    }
    sync_pace => SyncPace(SyncPace) at sync_pace of Volume {
        form: SyncPace::FORM,
        origin: "weft",
        doc: "What a resync, recovery or check has beside clients. With idle: sync_speed_min, and pauses of theirs that are \
              longer than a step of 128 KiB takes, in the idle class of the scheduler. With md: sync_speed_min, and a step at a \
              time whatever the speed, as Linux since 4.1.",
        draws: { mixed: &["idle", "md"] },
    }
    sync_speed_max => SyncSpeedMax(Bytes) at sync_speed_max of Volume {
        form: speed::<SYNC_SPEED_MAX>(),
        origin: "md",
        doc: "Speed of each member that a resync, recovery or check does not exceed for long. \
              system is what a Linux has that nobody has tuned, 200000; weft's own is no bound.",
        draws: { mixed: &["10000", "system"] },
    }
    sync_speed_min => SyncSpeedMin(Bytes) at sync_speed_min of Volume {
        form: speed::<SYNC_SPEED_MIN>(),
        origin: "md",
        doc: "Speed of each member that a resync, recovery or check has also while clients work, if the members can. \
              system is what a Linux has that nobody has tuned, 1000; weft's own is 20000.",
        draws: { mixed: &["1", "1000", "system"] },
    }
    timeout_sync => TimeoutSync(Span) at bfq.timeout_sync of Queues {
        form: millis::<1>(),
        origin: "block queue (bfq)",
        doc: "How long a queue is in service at most.",
        draws: { queues: &["1", "125"] },
    }
    waker => Waker(bool) at bfq.waker of Queues {
        form: flag(),
        origin: "weft (bfq)",
        doc: "Whether bfq looks for clients that wait for one another, as a journal and a client in fsync, and serves one \
              while it keeps a member for the other, as Linux always does since 2019.",
        draws: { mixed: &["0", "1"] },
    }
    write_expire => WriteExpire(Span) at mq_deadline.write_expire of Queues {
        form: millis::<0>(),
        origin: "block queue (mq-deadline)",
        doc: "How long a write waits until the next batch of writes begins with it.",
        draws: { unlisted: "the code of read_expire, which is drawn" },
    }
    write_lat_nsec => WriteLat(Span) at kyber.write_lat of Queues {
        form: nanos(),
        origin: "block queue (kyber)",
        doc: "How long a write should take, as read_lat_nsec.",
        draws: { queues: &["1", "10000000"] },
    }
    writes => Writes(Writes) at writes of Volume {
        form: Writes::FORM,
        origin: "weft",
        doc: "Which client writes wait for more of their stripe: those that came with company, all, none.",
        draws: { start: &["auto", "gather", "sync"], steps: &["auto", "gather", "sync"] },
    }
    writes_starved => WritesStarved(u32) at mq_deadline.writes_starved of Queues {
        form: number::<0, INT_MAX>("batches"),
        origin: "block queue (mq-deadline)",
        doc: "Batches of reads that go before a batch of writes that waits.",
        draws: { queues: &["0", "2"] },
    }
}
