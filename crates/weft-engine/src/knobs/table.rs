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
//! Source   Documentation/admin-guide/md.rst of Linux; ranges checked against Linux 6.12

use weft_units::{Bytes, Span};

use super::dirty_pool::{DIRTY_BYTES_MIN, limit_bytes, limit_ratio, throttle};
use super::form::{
    Form, INT_MAX, bypass_threshold, cache_bytes, flag, flag_or_auto, kib, micros, millis, nanos,
    number, percent, preread_wait, seconds, speed, tokens,
};
use super::{
    Activation, CacheForm, CheckReads, Fairness, FlushRule, GroupWeights, Knobs, MergePosition,
    MergeRule, MergeWeight, NoMerges, PlanRule, PriorityRule, RmwLevel, STRIPES_MAX, STRIPES_MIN,
    SYNC_SPEED_MAX, SYNC_SPEED_MIN, SchedulerKind, StripeSize, SyncPace, Writes,
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
    /// No values and no reason: the start from which the table fills in the draws of a knob. No
    /// knob may keep it unchanged.
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
        doc: "Time at which delayed stripes, which still need a preread, move on: to be preread, \
              or with priority=stream to wait as that rule says. each_turn: at the next turn of \
              the engine, as in md; with stripe_size=auto and writes=auto 500 µs later, so that \
              their stream can fill them. at_unplug: 3 ms after the plug was set, as in 2008.",
        historic: [("at_unplug", "000")],
        draws: {
            start: &["each_turn", "each_turn", "at_unplug"],
            steps: &["each_turn", "at_unplug"],
        },
    }
    async_depth => AsyncDepth(u32) at mq_deadline.async_depth of Queues {
        form: number::<0, INT_MAX>("requests"),
        origin: "block queue (mq-deadline)",
        doc: "Largest number of writes and discards of one member in mq-deadline and at the \
              member together. Reads may use the rest of nr_requests. 0: as many as nr_requests.",
        draws: { mixed: &["0", "1"] },
    }
    back_seek_max => BackSeekMax(u32) at bfq.back_seek_max of Queues {
        form: number::<0, INT_MAX>("KiB"),
        origin: "block queue (bfq)",
        doc: "Longest backward seek of bfq to a request of the same queue. Requests farther back \
              are served after all others of the queue, lowest sector first.",
        draws: { unlisted: "orders requests within a queue of bfq alone, which is tested there" },
    }
    back_seek_penalty => BackSeekPenalty(u32) at bfq.back_seek_penalty of Queues {
        form: number::<1, INT_MAX>("factor"),
        origin: "block queue (bfq)",
        doc: "Cost of a backward seek of bfq to a request of the same queue, as a multiple of \
              that of a forward seek of the same distance.",
        draws: { unlisted: "as back_seek_max" },
    }
    check_reads => CheckReads(CheckReads) at check_reads of Volume {
        form: CheckReads::FORM,
        origin: "weft",
        doc: "Source of cached strips in a check or repair. cache: the stripe cache, as in md. \
              media: the members.",
        draws: { mixed: &["cache", "media"] },
    }
    dirty_background_bytes => DirtyBackgroundBytes(Amount) at pool.background of Pool {
        form: limit_bytes::<PAGE_BYTES>(),
        note: ", or 0 while dirty_background_ratio holds",
        origin: "vm",
        doc: "Amount of dirty data of all volumes above which background writeback starts. A \
              value that is not below dirty_bytes counts as half of dirty_bytes. Setting it on \
              one volume sets it for all.",
        draws: { mixed: &["4096", "16384"] },
    }
    dirty_background_ratio => DirtyBackgroundRatio(Amount) at pool.background of Pool {
        form: limit_ratio(),
        note: ", or 0 while dirty_background_bytes holds",
        origin: "vm",
        doc: "dirty_background_bytes as a percentage of the size of the write-back cache. Setting \
              it on one volume sets it for all.",
        draws: { mixed: &["1", "50"] },
    }
    dirty_bytes => DirtyBytes(Amount) at pool.dirty of Pool {
        form: limit_bytes::<DIRTY_BYTES_MIN>(),
        note: "=the size of the write-back cache, or 0 while dirty_ratio holds",
        origin: "vm",
        doc: "Largest amount of data of all volumes that may be dirty or under writeback. With \
              the throttles of Linux, clients are slowed down from half-way between \
              dirty_background_bytes and dirty_bytes. Setting it on one volume sets it for all.",
        draws: { mixed: &["8192", "32768"] },
    }
    dirty_expire_centisecs => DirtyExpire(u32) at pool.expire_centisecs of Pool {
        form: number::<0, INT_MAX>("1/100 seconds"),
        origin: "vm",
        doc: "Age from which dirty data is written even if no limit is exceeded and no client \
              flushes. Applies to all volumes.",
        draws: { mixed: &["0", "10", "3000"] },
    }
    dirty_ratio => DirtyRatio(Amount) at pool.dirty of Pool {
        form: limit_ratio(),
        note: ", or 0 while dirty_bytes holds",
        origin: "vm",
        doc: "dirty_bytes as a percentage of the size of the write-back cache. Setting it on one \
              volume sets it for all.",
        draws: { mixed: &["50", "100"] },
    }
    dirty_throttle => DirtyThrottle(Option<Kernel>) at pool.throttle of Pool {
        form: throttle(),
        origin: "weft",
        doc: "Rule that slows down clients which write faster than the members (patch 001), named \
              after the kernel that has it. 2.6.24 and 3.1: clients write back dirty data \
              themselves. v11, patch-001, mainline-3.2 and mainline-6.12: clients pause for a \
              computed time. weft: clients take turns, and the one that has the turn continues as \
              member writes complete. none: clients write at full speed until dirty_bytes is \
              reached, and then wait for room. Applies to all volumes.",
        historic: [("2.6.24", "000"), ("3.1", "001"), ("v11", "001")],
        draws: {
            mixed: &["2.6.24", "3.1", "v11", "patch-001", "mainline-3.2", "mainline-6.12", "weft", "none"],
        },
    }
    dirty_writeback_centisecs => DirtyWriteback(u32) at pool.writeback_centisecs of Pool {
        form: number::<0, INT_MAX>("1/100 seconds"),
        origin: "vm",
        doc: "Interval between two searches for dirty data older than dirty_expire_centisecs; 0 \
              disables them. Applies to all volumes.",
        draws: { mixed: &["0", "10", "500"] },
    }
    fail_last_dev => FailLastDev(bool) at fail_last_dev of Volume {
        form: flag(),
        origin: "md",
        doc: "Whether RAID 1 and 10 fail a member that has the last copy of some data, by weft \
              fail or because it fails a write, a flush or its superblock; the array is then \
              broken. 0: weft fail refuses it, and clients get its errors.",
        draws: { unlisted: "a run without a last copy has no data to be judged" },
    }
    fairness => Fairness(Fairness) at bfq.fairness of Queues {
        form: Fairness::FORM,
        origin: "weft (bfq)",
        doc: "How bfq shares a member. slots: one queue at a time is in service, as in Linux. \
              requests: each request is scheduled on its own, so that weights also hold on a \
              member that accepts many requests at once.",
        draws: { mixed: &["requests", "slots"] },
    }
    fifo_batch => FifoBatch(u32) at mq_deadline.fifo_batch of Queues {
        form: number::<0, INT_MAX>("requests"),
        origin: "block queue (mq-deadline)",
        doc: "Largest number of requests of one direction that mq-deadline dispatches before the \
              direction is chosen again.",
        draws: { queues: &["1", "4", "16"] },
    }
    fifo_expire_async => FifoExpireAsync(Span) at bfq.fifo_expire_async of Queues {
        form: millis::<1>(),
        origin: "block queue (bfq)",
        doc: "Time after which bfq serves the oldest background write of a queue before nearer \
              requests.",
        draws: { unlisted: "orders requests within a queue of bfq alone, which is tested there" },
    }
    fifo_expire_sync => FifoExpireSync(Span) at bfq.fifo_expire_sync of Queues {
        form: millis::<1>(),
        origin: "block queue (bfq)",
        doc: "Time after which bfq serves the oldest read or sync write of a queue before nearer \
              requests.",
        draws: { unlisted: "as fifo_expire_async" },
    }
    flush_batch => FlushBatch(FlushRule) at flush_batch of Volume {
        form: FlushRule::FORM,
        origin: "weft",
        doc: "Rule by which member flushes serve flush requests (patch 002). A round flushes \
              every member. batch: one round at a time, for all waiting requests. serial: one \
              round at a time, for one request. parallel: a round for each request, several at a \
              time. md612: one flush of each member at a time, for all waiting requests, as in \
              Linux since 6.12. needed: like md612, but a member of which all writes are durable \
              is not flushed.",
        historic: [("parallel", "002"), ("serial", "002")],
        draws: {
            queues: &["batch", "serial"],
            mixed: &["batch", "md612", "needed", "parallel", "serial"],
        },
    }
    front_merges => FrontMerges(bool) at mq_deadline.front_merges of Queues {
        form: flag(),
        origin: "block queue (mq-deadline)",
        doc: "Whether mq-deadline merges a request in front of a queued request that begins where \
              the new one ends. (The request that was queued last is merged regardless.)",
        draws: { queues: &["0", "1"] },
    }
    group_weights => GroupWeights(GroupWeights) at bfq.groups of Queues {
        form: GroupWeights::FORM,
        origin: "weft (bfq)",
        doc: "Weights of the groups of clients, in the order of the options --group of weft \
              serve, separated by commas. none: 100 each, the default of io.bfq.weight in \
              cgroups. bfq shares a member between groups by these weights, and within a group \
              between its clients by their own weights.",
        draws: { mixed: &["none", "100,900", "1,1000,10"] },
    }
    idle_lowest => IdleLowest(bool) at bfq.idle_lowest of Queues {
        form: flag(),
        origin: "weft (bfq)",
        doc: "Whether bfq keeps a member idle also for a queue of the smallest weight if weights \
              differ, as in Linux before 5.2. Such a queue gets its share without this.",
        historic: [("1", "003")],
        draws: { mixed: &["0", "1"] },
    }
    low_latency => LowLatency(bool) at bfq.low_latency of Queues {
        form: flag(),
        origin: "block queue (bfq)",
        doc: "Whether bfq temporarily raises the weight of queues that appear to be interactive \
              (30-fold) or soft real-time (3000-fold). The weight of a client that was given one \
              is never raised, and no weight is with fairness=requests.",
        draws: { queues: &["0", "1"] },
    }
    max_budget => MaxBudget(u32) at bfq.max_budget of Queues {
        form: number::<0, INT_MAX>("sectors"),
        origin: "block queue (bfq)",
        doc: "Largest number of sectors that a queue of bfq may be served in one slot; 0: as many \
              as the member transfers in timeout_sync.",
        draws: { unlisted: "timeout_sync is drawn, which bounds budgets too" },
    }
    max_ratio => MaxRatio(u8) at ratios.max of Share {
        form: percent::<1, 100>(),
        note: ", at least min_ratio",
        origin: "bdi",
        doc: "Largest percentage of the limits of the write-back cache that this volume may use. \
              Has no effect with dirty_throttle=weft.",
        draws: { mixed: &["1", "50", "100"] },
    }
    max_sectors_kb => MaxSectors(Bytes) at max_sectors of Queues {
        form: kib::<32_768>(),
        origin: "block queue",
        doc: "Largest member request that merging may produce; 0 disables merging.",
        draws: { start: &["0", "64", "512"], steps: &["0"] },
    }
    member_timeout => MemberTimeout(Span) at member_timeout of Volume {
        form: seconds(),
        origin: "weft",
        doc: "Time without an answer after which a member is failed, if the array can run without \
              it; 0: never.",
        draws: { unlisted: "fails members that the script does not count as hurt; tests/regressions.rs sets it" },
    }
    merge_position => MergePosition(MergePosition) at bfq.merge.position of Queues {
        form: MergePosition::FORM,
        origin: "weft (bfq)",
        doc: "Position from which bfq decides that another queue is nearby, while the queue in \
              service has not dispatched a request yet. own: none, so that no queue is nearby \
              before the first dispatch. stale: the position of the queue that was in service \
              before, as in Linux until 2021, so that queues that are far apart are merged.",
        historic: [("stale", "003")],
        draws: { queues: &["own", "stale"] },
    }
    merge_queues => MergeQueues(MergeRule) at bfq.merge.queues of Queues {
        form: MergeRule::FORM,
        origin: "weft (bfq)",
        doc: "Members on which bfq merges the queues of processes that read nearby sectors (patch \
              003). always: all, as in Linux before 5.2. gain: those on which requests of one \
              process often begin where those of another have just ended. never: none. patch: \
              those that are rotational or do not queue commands internally, as in Linux since \
              5.2.",
        historic: [("always", "003")],
        draws: { queues: &["always", "always", "gain", "never", "patch"] },
    }
    merge_weight => MergeWeight(MergeWeight) at bfq.merge.weight of Queues {
        form: MergeWeight::FORM,
        origin: "weft (bfq)",
        doc: "Weight of a queue of bfq after another queue was merged into it. max: the larger \
              weight of the two. target: the weight that it had before, as in Linux.",
        draws: { queues: &["max", "target"] },
    }
    min_ratio => MinRatio(u8) at ratios.min of Share {
        form: percent::<0, 99>(),
        note: ", at most max_ratio, of all volumes together less than 100",
        origin: "bdi",
        doc: "Percentage of the limits of the write-back cache that is reserved for this volume, \
              even if it wrote little recently. Has no effect with dirty_throttle=weft.",
        draws: { unlisted: "a script has one volume, which shares the cache with no other" },
    }
    no_space_wait => NoSpaceWait(Span) at no_space_wait of Volume {
        form: seconds(),
        origin: "weft",
        doc: "Time without space after which a member is failed, if the members that have space \
              suffice; 0: never. Meanwhile client writes fail for lack of space, except discards \
              and one write per second.",
        draws: { unlisted: "the checker of full members knows the default alone (script/space.rs)" },
    }
    nomerges => NoMerges(NoMerges) at nomerges of Queues {
        form: NoMerges::FORM,
        origin: "block queue",
        doc: "Merging of the requests of a member. 0: any adjacent requests. 1: requests of one \
              turn of the engine, and a new request with the one that was last queued or merged \
              into. 2: none.",
        draws: { mixed: &["0", "1", "2"], one_queue: &["0", "2"] },
    }
    nr_requests => NrRequests(u32) at nr_requests of Queues {
        form: tokens(),
        origin: "block queue",
        doc: "Largest number of requests of one member in its scheduler and at the member \
              together; further requests wait in order of arrival. 0: with mq-deadline and kyber \
              twice the member's queue depth, at most 256; with bfq no limit; without a scheduler \
              the member's queue depth.",
        draws: { mixed: &["0", "4", "64"], one_queue: &["0", "4"] },
    }
    plan_rule => PlanRule(PlanRule) at plan_rule of Volume {
        form: PlanRule::FORM,
        origin: "weft",
        doc: "Rule by which a stripe obtains the strips that it needs. md: with the same reads as \
              md. least: with the fewest reads; client reads then also go past the stripe cache \
              to healthy members while other members are missing.",
        draws: { start: &["md", "least"], steps: &["md", "least"] },
    }
    preread_bypass_threshold => PrereadBypassThreshold(u32) at preread_bypass_threshold of Volume {
        form: bypass_threshold(),
        origin: "md",
        doc: "Number of times that ready stripes may bypass a held stripe before it may be \
              preread beside full-stripe writes. 0: it waits until no full-stripe write is in \
              flight. Has an effect only with priority=bypass. With stripe_size=auto values other \
              than 0 count as 64 at least.",
        draws: { start: &["0", "1", "17"], steps: &["0", "1", "17"] },
    }
    preread_wait_max => PrereadWaitMax(Span) at preread_wait_max of Volume {
        form: preread_wait(),
        origin: "weft",
        doc: "Longest time that a stripe waits to be filled before it is preread; less if 64 \
              times the content of the stripe cache is written meanwhile. A request that has \
              waited this long for a free stripe takes precedence over later ones. none: as in \
              md, a stripe waits for as long as other stripes are preread or filled stripes are \
              written.",
        draws: { steps: &["0", "0.002"] },
    }
    prio_aging_expire => PrioAgingExpire(Span) at mq_deadline.prio_aging_expire of Queues {
        form: millis::<0>(),
        origin: "block queue (mq-deadline)",
        doc: "Time after which mq-deadline dispatches a request of a lower class despite requests \
              of higher classes.",
        draws: { unlisted: "its least useful value is longer than most scripts" },
    }
    priority => Priority(PriorityRule) at priority of Volume {
        form: PriorityRule::FORM,
        origin: "weft",
        doc: "Rule that picks the stripe to handle next. bypass: ready stripes before held ones, \
              with preread_bypass_threshold, as in md since patch 000. fifo: in order of arrival, \
              as in md before it. stream: each stripe waits for as long as that pays off, at most \
              preread_wait_max (weft's own).",
        draws: { steps: &["bypass", "fifo", "stream"] },
    }
    queue_depth => QueueDepth(u32) at queue_depth of Queues {
        form: number::<0, 1024>("requests"),
        origin: "SCSI device",
        doc: "Largest number of requests at a member at once; 0: as many as its device accepts, \
              or 32 with a scheduler if that is not known.",
        draws: { queues: &["0", "1", "1", "2", "7"], one_queue: &["0", "1", "3"] },
    }
    read_around => ReadAround(Span) at read_around of Volume {
        form: seconds(),
        origin: "weft",
        doc: "Time without an answer after which a read is answered from the other members, if \
              their parity can be trusted; 0: never.",
        draws: { mixed: &["0", "0.010", "2"] },
    }
    read_expire => ReadExpire(Span) at mq_deadline.read_expire of Queues {
        form: millis::<0>(),
        origin: "block queue (mq-deadline)",
        doc: "Time after which the oldest read begins the next batch of reads of mq-deadline.",
        draws: { queues: &["0", "1", "500"] },
    }
    read_lat_nsec => ReadLat(Span) at kyber.read_lat of Queues {
        form: nanos(),
        origin: "block queue (kyber)",
        doc: "Target latency of reads. While a member is slower than a target, kyber sends it \
              fewer requests of the kinds that are well within their own target.",
        draws: { queues: &["1", "2000000"] },
    }
    rmw_level => RmwLevel(RmwLevel) at rmw_level of Volume {
        form: Form { unit: "level", ..RmwLevel::FORM },
        origin: "md",
        doc: "Cases in which a stripe is written by read-modify-write instead of \
              reconstruct-write. 0: never. 1: if it needs fewer reads. 2: also if both need \
              equally many.",
        draws: { start: &["0", "1", "1", "2"], steps: &["0", "1", "2"] },
    }
    rotational => Rotational(Option<bool>) at rotational of Queues {
        form: flag_or_auto(),
        origin: "block queue",
        doc: "Whether bfq treats members as rotational disks, on which requests to nearby sectors \
              are cheap. auto: as the device reports.",
        draws: { one_queue: &["auto", "0", "1"] },
    }
    safe_mode_delay => SafeModeDelay(Span) at safe_mode_delay of Volume {
        form: seconds(),
        origin: "md",
        doc: "Time from the last write until the array is marked clean; 0: only when it is \
              stopped.",
        draws: { steps: &["0.050"], mixed: &["0", "0.050", "0.200"] },
    }
    scheduler => Scheduler(SchedulerKind) at scheduler of Queues {
        form: SchedulerKind::FORM,
        origin: "block queue",
        doc: "Scheduler of the requests that wait for a member. none: first in, first out. \
              mq-deadline: sorted by sector, and each with a deadline. kyber: the number of \
              reads, writes and discards at the member is limited so that latencies stay within \
              their targets. bfq: shares by weight among active clients.",
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
        doc: "Whether strips that are overwritten completely are written from the client's memory \
              and are not kept in the stripe cache. With stripe_size=auto filled stripes are \
              written so in any case.",
        draws: { start: &["0", "0", "1"], steps: &["0", "1"] },
    }
    slice_idle => SliceIdle(Span) at bfq.slice_idle of Queues {
        form: millis::<0>(),
        origin: "block queue (bfq)",
        doc: "Longest time that bfq keeps a member idle for a queue that may soon have a request; \
              0: never.",
        draws: { queues: &["0", "8", "8"], one_queue: &["0", "8"] },
    }
    slice_idle_us => SliceIdleUs(Span) at bfq.slice_idle of Queues {
        form: micros(),
        origin: "block queue (bfq)",
        doc: "slice_idle in microseconds.",
        draws: { unlisted: "slice_idle is drawn" },
    }
    stable_merge => StableMerge(bool) at bfq.merge.stable of Queues {
        form: flag(),
        origin: "weft (bfq)",
        doc: "Whether bfq permanently merges queues that were created within 180 ms of each \
              other, as Linux always does since 2021. This costs fairness: of two equal readers \
              that share a queue, one may get twice what the other gets.",
        draws: { queues: &["0", "1"] },
    }
    strict_guarantees => StrictGuarantees(bool) at bfq.strict_guarantees of Queues {
        form: flag(),
        origin: "block queue (bfq)",
        doc: "Whether bfq sends a member one request at a time, and always keeps it idle for the \
              queue in service. Setting it to 1 raises slice_idle to at least 8 ms.",
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
        doc: "Whether clients of this volume are slowed down by the dirty data of the volume even \
              while little is dirty in total. Has an effect only with \
              dirty_throttle=mainline-6.12.",
        draws: { mixed: &["0", "1"] },
    }
    stripe_cache_bytes => StripeCacheBytes(Bytes) at stripe_cache_bytes of Volume {
        form: cache_bytes(),
        origin: "weft",
        doc: "Memory of the stripe cache with stripe_size=auto. 0: as much as stripe_cache_size \
              stripes of 4 KiB on each member take.",
        draws: { unlisted: "a script draws its stripes as stripe_cache_size, stripes_max and cache_stripes" },
    }
    stripe_cache_form => StripeCacheForm(CacheForm) at stripe_cache_form of Volume {
        form: CacheForm::FORM,
        origin: "weft",
        doc: "Form of the stripe cache and of member queues. today: that of Linux 6.12. 2008: \
              that of the time when patch 000 was written. The stripes of a full stripe are \
              written one by one, inactive stripes are in one list, empty queues with a scheduler \
              hold back their first requests, and with priority=fifo a stripe takes its first \
              step as soon as a request for it arrives.",
        historic: [("2008", "000")],
        draws: { unlisted: "one seed in five has 2008" },
    }
    stripe_cache_size => StripeCacheSize(u32) at stripe_cache_size of Volume {
        form: number::<STRIPES_MIN, STRIPES_MAX>("stripes"),
        origin: "md",
        doc: "Number of stripes in the stripe cache of the volume. With stripe_size=auto it \
              applies only if stripe_cache_bytes is 0.",
        then: |knobs| {
            let threshold = &mut knobs.preread_bypass_threshold;
            *threshold = (*threshold).min(knobs.stripe_cache_size);
        },
        draws: { steps: &["17", "40"] },
    }
    stripe_size => StripeSize(StripeSize) at stripe_size of Volume {
        form: StripeSize::FORM,
        origin: "md",
        doc: "Size of a stripe on one member, the unit in which the stripe cache looks up, reads \
              and writes. auto: 4 KiB, but the stripes of one full stripe are handled together \
              where that is possible.",
        draws: { steps: &["4096", "8192", "16384", "auto"] },
    }
    sync_pace => SyncPace(SyncPace) at sync_pace of Volume {
        form: SyncPace::FORM,
        origin: "weft",
        doc: "Speed of a resync, recovery or check beside clients. idle: sync_speed_min, and more \
              in pauses of the clients that are longer than a step of 128 KiB takes; it uses the \
              idle class of the scheduler unless it is behind sync_speed_min. md: sync_speed_min, \
              or one step at a time if that is faster, as in Linux since 4.1.",
        draws: { mixed: &["idle", "md"] },
    }
    sync_speed_max => SyncSpeedMax(Bytes) at sync_speed_max of Volume {
        form: speed::<SYNC_SPEED_MAX>(),
        origin: "md",
        doc: "Limit on the average speed of a resync, recovery or check on each member. system: \
              200000, the value of an untuned Linux. The default is no limit.",
        draws: { mixed: &["10000", "system"] },
    }
    sync_speed_min => SyncSpeedMin(Bytes) at sync_speed_min of Volume {
        form: speed::<SYNC_SPEED_MIN>(),
        origin: "md",
        doc: "Speed on each member that a resync, recovery or check keeps while clients send \
              requests, if the members can. system: 1000, the value of an untuned Linux.",
        draws: { mixed: &["1", "1000", "system"] },
    }
    timeout_sync => TimeoutSync(Span) at bfq.timeout_sync of Queues {
        form: millis::<1>(),
        origin: "block queue (bfq)",
        doc: "Longest time that bfq keeps a queue in service; 30 times as long for a queue that \
              low_latency takes for interactive.",
        draws: { queues: &["1", "125"] },
    }
    waker => Waker(bool) at bfq.waker of Queues {
        form: flag(),
        origin: "weft (bfq)",
        doc: "Whether bfq detects clients that wait for one another, such as a journal and a \
              client in fsync, and serves one of them while it keeps a member idle for the other, \
              as Linux always does since 2019.",
        draws: { mixed: &["0", "1"] },
    }
    write_expire => WriteExpire(Span) at mq_deadline.write_expire of Queues {
        form: millis::<0>(),
        origin: "block queue (mq-deadline)",
        doc: "Time after which the oldest write begins the next batch of writes of mq-deadline.",
        draws: { unlisted: "the code of read_expire, which is drawn" },
    }
    write_lat_nsec => WriteLat(Span) at kyber.write_lat of Queues {
        form: nanos(),
        origin: "block queue (kyber)",
        doc: "Target latency of writes, with the effect that read_lat_nsec has for reads.",
        draws: { queues: &["1", "10000000"] },
    }
    writes => Writes(Writes) at writes of Volume {
        form: Writes::FORM,
        origin: "weft",
        doc: "Client writes that wait for more data of their stripe. auto: those that do not \
              arrive alone in their stripe; with stripe_size=auto, those of a sequential stream \
              that will bring the rest of the stripe. gather: all without the sync flag. sync: \
              none.",
        draws: { start: &["auto", "gather", "sync"], steps: &["auto", "gather", "sync"] },
    }
    writes_starved => WritesStarved(u32) at mq_deadline.writes_starved of Queues {
        form: number::<0, INT_MAX>("batches"),
        origin: "block queue (mq-deadline)",
        doc: "Number of batches of reads that mq-deadline dispatches before a batch of writes \
              that waits.",
        draws: { queues: &["0", "2"] },
    }
}
