//! Table of knobs: name, unit, range, default and meaning of each, with its text form.
//!
//! Names, units and ranges are those of `/sys/block/mdX/md/`, `/sys/block/X/queue/`,
//! `/proc/sys/vm/` and `/sys/class/bdi/` if the kernel has the knob; the other knobs are weft's own
//! and say so.
//!
//! Source   spec of md: Documentation/admin-guide/md.rst; ranges checked against Linux 6.12

use weft_units::{Bytes, Span};

use super::dirty_pool;
use super::{
    Activation, CacheForm, CheckReads, Fairness, FlushRule, GroupWeights, Knob, Knobs,
    MergePosition, MergeRule, MergeWeight, NoMerges, PlanRule, PriorityRule, RmwLevel,
    SYNC_SPEED_MAX, SYNC_SPEED_MIN, SchedulerKind, StripeSize, SyncPace, WAITS_WITHOUT_BOUND,
    Writes,
};
use crate::page_cache::PAGE_BYTES;

/// Row of a knob in the table, for users.
pub struct KnobRow {
    /// Name of the knob, as in md if md has it.
    pub name: &'static str,
    /// Unit of the knob's values, or the words that it accepts.
    pub unit: &'static str,
    /// Range of allowed values, as text.
    pub range: &'static str,
    /// Origin of the name: md, the block layer, `vm` or `bdi` (for the write-back cache), or weft.
    pub origin: &'static str,
    /// Effect of the knob.
    pub doc: &'static str,
    pub(super) parse: fn(&str, &Knobs) -> Option<Knob>,
    pub(super) show: fn(&Knobs) -> String,
}

/// The table, in alphabetical order.
pub const TABLE: &[KnobRow] = &[
    KnobRow {
        name: "activation",
        unit: "word",
        range: "at_unplug | each_turn",
        origin: "weft",
        doc: "When stripes that wait for a preread may be read: each turn, as md does, or after 3 ms, as in 2008. \
              With stripe_size=auto stripes of a stream wait 500 µs for the rest of it.",
        parse: |text, _| {
            Some(Knob::Activation(match text {
                "at_unplug" => Activation::AtUnplug,
                "each_turn" => Activation::EachTurn,
                _ => return None,
            }))
        },
        show: |knobs| match knobs.activation {
            Activation::AtUnplug => "at_unplug".into(),
            Activation::EachTurn => "each_turn".into(),
        },
    },
    KnobRow {
        name: "async_depth",
        unit: "requests",
        range: "0..=2147483647",
        origin: "block queue (mq-deadline)",
        doc: "Writes and discards of one member that mq-deadline takes at once; 0 for as many as nr_requests. Reads may use the rest.",
        parse: |text, _| Some(Knob::AsyncDepth(number(text, 0, INT_MAX)?)),
        show: |knobs| knobs.mq_deadline.async_depth.to_string(),
    },
    KnobRow {
        name: "back_seek_max",
        unit: "KiB",
        range: "0..=2147483647",
        origin: "block queue (bfq)",
        doc: "Longest way back to a request of the same queue that does not count as beginning anew.",
        parse: |text, _| Some(Knob::BackSeekMax(number(text, 0, INT_MAX)?)),
        show: |knobs| knobs.bfq.back_seek_max.to_string(),
    },
    KnobRow {
        name: "back_seek_penalty",
        unit: "factor",
        range: "1..=2147483647",
        origin: "block queue (bfq)",
        doc: "Cost of a way back to a request of the same queue, as a multiple of the way forward.",
        parse: |text, _| Some(Knob::BackSeekPenalty(number(text, 1, INT_MAX)?)),
        show: |knobs| knobs.bfq.back_seek_penalty.to_string(),
    },
    KnobRow {
        name: "check_reads",
        unit: "word",
        range: "cache | media",
        origin: "weft",
        doc: "Whether check and repair believe stripes that are in the cache, as md does, or read them.",
        parse: |text, _| {
            Some(Knob::CheckReads(match text {
                "cache" => CheckReads::Cache,
                "media" => CheckReads::Media,
                _ => return None,
            }))
        },
        show: |knobs| match knobs.check_reads {
            CheckReads::Cache => "cache".into(),
            CheckReads::Media => "media".into(),
        },
    },
    KnobRow {
        name: "dirty_background_bytes",
        unit: "bytes",
        range: "4096.., or 0 while dirty_background_ratio holds",
        origin: "vm",
        doc: "Dirty data of all volumes above which the write-back cache is written at once; from dirty_bytes on half \
              of that. Set on any volume it holds for all.",
        parse: |text, knobs| {
            let least = Bytes(PAGE_BYTES);
            Some(Knob::DirtyBackground(dirty_pool::bytes(text, least.0, knobs.pool.background)?))
        },
        show: |knobs| dirty_pool::show_bytes(knobs.pool.background),
    },
    KnobRow {
        name: "dirty_background_ratio",
        unit: "percent",
        range: "1..=100, or 0 while dirty_background_bytes holds",
        origin: "vm",
        doc: "The same as part of the size of the write-back cache.",
        parse: |text, knobs| {
            Some(Knob::DirtyBackground(dirty_pool::percent(text, knobs.pool.background)?))
        },
        show: |knobs| dirty_pool::show_percent(knobs.pool.background),
    },
    KnobRow {
        name: "dirty_bytes",
        unit: "bytes",
        range: "8192..=the size of the write-back cache, or 0 while dirty_ratio holds",
        origin: "vm",
        doc: "Most that is dirty or being written of all volumes; clients are slowed down from half-way between \
              dirty_background_bytes and this on. Set on any volume it holds for all.",
        parse: |text, knobs| {
            Some(Knob::Dirty(dirty_pool::bytes(
                text,
                dirty_pool::DIRTY_BYTES_MIN.0,
                knobs.pool.dirty,
            )?))
        },
        show: |knobs| dirty_pool::show_bytes(knobs.pool.dirty),
    },
    KnobRow {
        name: "dirty_expire_centisecs",
        unit: "1/100 seconds",
        range: "0..=2147483647",
        origin: "vm",
        doc: "Age at which dirty data is written though nobody asks for it. Of all volumes.",
        parse: |text, _| Some(Knob::DirtyExpire(number(text, 0, INT_MAX)?)),
        show: |knobs| knobs.pool.expire_centisecs.to_string(),
    },
    KnobRow {
        name: "dirty_ratio",
        unit: "percent",
        range: "1..=100, or 0 while dirty_bytes holds",
        origin: "vm",
        doc: "The same as dirty_bytes, as part of the size of the write-back cache.",
        parse: |text, knobs| Some(Knob::Dirty(dirty_pool::percent(text, knobs.pool.dirty)?)),
        show: |knobs| dirty_pool::show_percent(knobs.pool.dirty),
    },
    KnobRow {
        name: "dirty_throttle",
        unit: "word",
        range: "2.6.24 | 3.1 | v11 | patch-001 | mainline-3.2 | mainline-6.12 | weft | none",
        origin: "weft",
        doc: "Rule by which clients that write faster than the members pause (patch 001), by the kernel that has it. \
              With 2.6.24 and 3.1 they write back themselves; with weft, its own, each goes on in its turn, as members' \
              writes are done. none: they go on until dirty_bytes is reached, and \
              then wait for room. Of all volumes.",
        parse: |text, _| Some(Knob::DirtyThrottle(dirty_pool::throttle(text)?)),
        show: |knobs| dirty_pool::throttle_name(knobs.pool.throttle).into(),
    },
    KnobRow {
        name: "dirty_writeback_centisecs",
        unit: "1/100 seconds",
        range: "0..=2147483647",
        origin: "vm",
        doc: "Time between two looks for dirty data that is old enough; 0 never looks. Of all volumes.",
        parse: |text, _| Some(Knob::DirtyWriteback(number(text, 0, INT_MAX)?)),
        show: |knobs| knobs.pool.writeback_centisecs.to_string(),
    },
    KnobRow {
        name: "fairness",
        unit: "word",
        range: "requests | slots",
        origin: "weft (bfq)",
        doc: "How bfq shares a member: one queue at a time, as the kernel, or request by request, by which weights hold \
              on a member that takes many requests at once and nothing is kept idle.",
        parse: |text, _| {
            Some(Knob::Fairness(match text {
                "requests" => Fairness::Requests,
                "slots" => Fairness::Slots,
                _ => return None,
            }))
        },
        show: |knobs| match knobs.bfq.fairness {
            Fairness::Requests => "requests".into(),
            Fairness::Slots => "slots".into(),
        },
    },
    KnobRow {
        name: "fifo_batch",
        unit: "requests",
        range: "0..=2147483647",
        origin: "block queue (mq-deadline)",
        doc: "Requests of one direction that go in a row before the direction is chosen anew.",
        parse: |text, _| Some(Knob::FifoBatch(number(text, 0, INT_MAX)?)),
        show: |knobs| knobs.mq_deadline.fifo_batch.to_string(),
    },
    KnobRow {
        name: "fifo_expire_async",
        unit: "milliseconds",
        range: "1..=2147483647",
        origin: "block queue (bfq)",
        doc: "How long a background write waits until its queue is served from there.",
        parse: |text, _| {
            Some(Knob::FifoExpireAsync(Span::millis(number(text, 1, INT_MAX)?.into())))
        },
        show: |knobs| (knobs.bfq.fifo_expire_async.0 / 1_000_000).to_string(),
    },
    KnobRow {
        name: "fifo_expire_sync",
        unit: "milliseconds",
        range: "1..=2147483647",
        origin: "block queue (bfq)",
        doc: "How long a read or a write that somebody waits for waits until its queue is served from there.",
        parse: |text, _| Some(Knob::FifoExpireSync(Span::millis(number(text, 1, INT_MAX)?.into()))),
        show: |knobs| (knobs.bfq.fifo_expire_sync.0 / 1_000_000).to_string(),
    },
    KnobRow {
        name: "flush_batch",
        unit: "word",
        range: "batch | md612 | needed | parallel | serial",
        origin: "weft",
        doc: "Member flushes that serve a flush request. One round of the array at a time: batch, for every request that waits (patch 002), or serial, for one. \
              parallel: a round for each request. md612: at most one flush of each member at a time, shared by those that wait, as today's kernel. \
              needed: as md612, without flushes of members whose writes are durable.",
        parse: |text, _| {
            Some(Knob::FlushBatch(match text {
                "batch" => FlushRule::Batch,
                "md612" => FlushRule::Md612,
                "needed" => FlushRule::Needed,
                "parallel" => FlushRule::Parallel,
                "serial" => FlushRule::Serial,
                _ => return None,
            }))
        },
        show: |knobs| {
            match knobs.flush_batch {
                FlushRule::Batch => "batch",
                FlushRule::Md612 => "md612",
                FlushRule::Needed => "needed",
                FlushRule::Parallel => "parallel",
                FlushRule::Serial => "serial",
            }
            .into()
        },
    },
    KnobRow {
        name: "front_merges",
        unit: "flag",
        range: "0 | 1",
        origin: "block queue (mq-deadline)",
        doc: "Whether a request is merged with a queued one that begins where it ends.",
        parse: |text, _| {
            Some(Knob::FrontMerges(match text {
                "0" => false,
                "1" => true,
                _ => return None,
            }))
        },
        show: |knobs| u8::from(knobs.mq_deadline.front_merges).to_string(),
    },
    KnobRow {
        name: "group_weights",
        unit: "weights",
        range: "1..=1000 each, at most 15, or none",
        origin: "weft (bfq)",
        doc: "Weights of the groups of clients that weft serve --group names, in its order, separated by commas; none \
              gives each of them 100, as io.bfq.weight of cgroups. bfq shares a member between groups first, and by their own weights among the \
              clients of a group.",
        parse: |text, _| {
            let weights: Option<Vec<u16>> = match text {
                "none" => Some(Vec::new()),
                _ => text.split(',').map(|weight| weight.parse().ok()).collect(),
            };
            Some(Knob::GroupWeights(GroupWeights::of(&weights?)?))
        },
        show: |knobs| match knobs.bfq.groups.given() {
            [] => "none".into(),
            given => given.iter().map(u16::to_string).collect::<Vec<_>>().join(","),
        },
    },
    KnobRow {
        name: "idle_lowest",
        unit: "flag",
        range: "0 | 1",
        origin: "weft (bfq)",
        doc: "Whether bfq keeps a member for queues of the smallest weight too where weights differ, as before \
              Linux 5.2; they lose nothing without it.",
        parse: |text, _| Some(Knob::IdleLowest(flag(text)?)),
        show: |knobs| u8::from(knobs.bfq.idle_lowest).to_string(),
    },
    KnobRow {
        name: "low_latency",
        unit: "flag",
        range: "0 | 1",
        origin: "block queue (bfq)",
        doc: "Whether queues that look interactive or like players get 30 or 3000 times their weight for a while. \
              Clients that were given a weight never do, \
              nor anybody with fairness=requests.",
        parse: |text, _| Some(Knob::LowLatency(flag(text)?)),
        show: |knobs| u8::from(knobs.bfq.low_latency).to_string(),
    },
    KnobRow {
        name: "max_budget",
        unit: "sectors",
        range: "0..=2147483647",
        origin: "block queue (bfq)",
        doc: "Largest budget of a queue in service; 0 for what the member moves in timeout_sync.",
        parse: |text, _| Some(Knob::MaxBudget(number(text, 0, INT_MAX)?)),
        show: |knobs| knobs.bfq.max_budget.to_string(),
    },
    KnobRow {
        name: "max_ratio",
        unit: "percent",
        range: "1..=100, at least min_ratio",
        origin: "bdi",
        doc: "Most of the limits of the write-back cache that this volume may have.",
        parse: |text, _| Some(Knob::MaxRatio(number(text, 1, 100)? as u8)),
        show: |knobs| knobs.ratios.max.to_string(),
    },
    KnobRow {
        name: "max_sectors_kb",
        unit: "KiB",
        range: "0..=32768",
        origin: "block queue",
        doc: "Largest member request that merging makes; 0 merges nothing.",
        parse: |text, _| {
            let kib = number(text, 0, 32_768)?;
            Some(Knob::MaxSectors(Bytes::kib(u64::from(kib))))
        },
        show: |knobs| (knobs.max_sectors.0 >> 10).to_string(),
    },
    KnobRow {
        name: "member_timeout",
        unit: "seconds",
        range: "0..=86400",
        origin: "weft",
        doc: "Fails a member that has not answered for this long; 0 never does.",
        parse: |text, _| Some(Knob::MemberTimeout(seconds(text)?)),
        show: |knobs| show_seconds(knobs.member_timeout),
    },
    KnobRow {
        name: "merge_position",
        unit: "word",
        range: "own | stale",
        origin: "weft (bfq)",
        doc: "Position of a queue that has just been put in service, for merging (bfq): its own, or, as in Linux until \
              2021, that of the queue before it, by which queues are merged that are far apart. stale is there to \
              reproduce 2019.",
        parse: |text, _| {
            Some(Knob::MergePosition(match text {
                "own" => MergePosition::Own,
                "stale" => MergePosition::Stale,
                _ => return None,
            }))
        },
        show: |knobs| match knobs.bfq.merge.position {
            MergePosition::Own => "own".into(),
            MergePosition::Stale => "stale".into(),
        },
    },
    KnobRow {
        name: "merge_queues",
        unit: "word",
        range: "always | gain | never | patch",
        origin: "weft (bfq)",
        doc: "Members on which bfq merges the queues of processes that read nearby (patch 003): all, as Linux before \
              5.2; those where processes go on where others have just ended; none; or those that rotate or do not \
              queue internally, as Linux since 5.2.",
        parse: |text, _| {
            Some(Knob::MergeQueues(match text {
                "always" => MergeRule::Always,
                "gain" => MergeRule::Gain,
                "never" => MergeRule::Never,
                "patch" => MergeRule::Patch,
                _ => return None,
            }))
        },
        show: |knobs| match knobs.bfq.merge.queues {
            MergeRule::Always => "always".into(),
            MergeRule::Gain => "gain".into(),
            MergeRule::Never => "never".into(),
            MergeRule::Patch => "patch".into(),
        },
    },
    KnobRow {
        name: "merge_weight",
        unit: "word",
        range: "max | target",
        origin: "weft (bfq)",
        doc: "Weight of a queue into which another one was merged (bfq): the larger one of both, or its own, as in \
              Linux.",
        parse: |text, _| {
            Some(Knob::MergeWeight(match text {
                "max" => MergeWeight::Max,
                "target" => MergeWeight::Target,
                _ => return None,
            }))
        },
        show: |knobs| match knobs.bfq.merge.weight {
            MergeWeight::Max => "max".into(),
            MergeWeight::Target => "target".into(),
        },
    },
    KnobRow {
        name: "min_ratio",
        unit: "percent",
        range: "0..=99, at most max_ratio, of all volumes together less than 100",
        origin: "bdi",
        doc: "Part of the limits of the write-back cache that is this volume's however little it wrote lately.",
        parse: |text, _| Some(Knob::MinRatio(number(text, 0, 99)? as u8)),
        show: |knobs| knobs.ratios.min.to_string(),
    },
    KnobRow {
        name: "no_space_wait",
        unit: "seconds",
        range: "0..=86400",
        origin: "weft",
        doc: "Fails a member that had no space for this long, if those that have some suffice; 0 never does. \
              Until then no writes are taken.",
        parse: |text, _| Some(Knob::NoSpaceWait(seconds(text)?)),
        show: |knobs| show_seconds(knobs.no_space_wait),
    },
    KnobRow {
        name: "nomerges",
        unit: "word",
        range: "0 | 1 | 2",
        origin: "block queue",
        doc: "Which requests of a member are merged: 0, any that lie side by side; 1, those of one turn, and with the last one queued; 2, none.",
        parse: |text, _| {
            Some(Knob::NoMerges(match text {
                "0" => NoMerges::Allowed,
                "1" => NoMerges::LastOnly,
                "2" => NoMerges::Never,
                _ => return None,
            }))
        },
        show: |knobs| {
            match knobs.nomerges {
                NoMerges::Allowed => "0",
                NoMerges::LastOnly => "1",
                NoMerges::Never => "2",
            }
            .into()
        },
    },
    KnobRow {
        name: "nr_requests",
        unit: "requests",
        range: "0 | 4..=2048",
        origin: "block queue",
        doc: "Requests of one member in its scheduler and at the member at once; what is beyond waits in order of arrival. \
              0: with mq-deadline twice the member's depth, at most 256; with bfq no bound; without a scheduler its depth.",
        parse: |text, _| {
            let count = number(text, 0, 2048)?;
            (!(1..4).contains(&count)).then_some(Knob::NrRequests(count))
        },
        show: |knobs| knobs.nr_requests.to_string(),
    },
    KnobRow {
        name: "plan_rule",
        unit: "word",
        range: "md | least",
        origin: "weft",
        doc: "How a stripe comes by the strips that it needs: read for read as md, or with the fewest reads. \
              With least, strips of healthy members are read straight from them though others are missing.",
        parse: |text, _| {
            Some(Knob::PlanRule(match text {
                "least" => PlanRule::Least,
                "md" => PlanRule::Md,
                _ => return None,
            }))
        },
        show: |knobs| match knobs.plan_rule {
            PlanRule::Least => "least".into(),
            PlanRule::Md => "md".into(),
        },
    },
    KnobRow {
        name: "preread_bypass_threshold",
        unit: "stripes",
        range: "0..=stripe_cache_size",
        origin: "md",
        doc: "How many ready stripes may pass a held one; 0 holds it until no full-stripe write is in flight. \
              With stripe_size=auto 64 at least.",
        parse: |text, knobs| {
            Some(Knob::PrereadBypassThreshold(number(text, 0, knobs.stripe_cache_size)?))
        },
        show: |knobs| knobs.preread_bypass_threshold.to_string(),
    },
    KnobRow {
        name: "preread_wait_max",
        unit: "seconds",
        range: "0..=60, or none",
        origin: "weft",
        doc: "How long a stripe waits at most to be filled before it is preread, and a request for a stripe; \
              less where 64 times what the stripe cache holds is written before that. \
              none, as md: while other stripes are preread or filled stripes are written.",
        parse: |text, _| {
            let span = match text {
                "none" => WAITS_WITHOUT_BOUND,
                _ => seconds(text).filter(|span| *span <= Span::secs(60))?,
            };
            Some(Knob::PrereadWaitMax(span))
        },
        show: |knobs| match knobs.preread_wait_max {
            WAITS_WITHOUT_BOUND => "none".into(),
            span => show_seconds(span),
        },
    },
    KnobRow {
        name: "prio_aging_expire",
        unit: "milliseconds",
        range: "0..=2147483647",
        origin: "block queue (mq-deadline)",
        doc: "How long a request of a lower class waits at most for those of higher ones.",
        parse: |text, _| {
            Some(Knob::PrioAgingExpire(Span::millis(number(text, 0, INT_MAX)?.into())))
        },
        show: |knobs| (knobs.mq_deadline.prio_aging_expire.0 / 1_000_000).to_string(),
    },
    KnobRow {
        name: "priority",
        unit: "word",
        range: "bypass | fifo | stream",
        origin: "weft",
        doc: "Which rule picks the next stripe: patch 000's, the one before it, or weft's own, by which a stripe \
              waits for the stream that will fill it, and none longer than preread_wait_max.",
        parse: |text, _| {
            Some(Knob::Priority(match text {
                "bypass" => PriorityRule::Bypass,
                "fifo" => PriorityRule::Fifo,
                "stream" => PriorityRule::Stream,
                _ => return None,
            }))
        },
        show: |knobs| match knobs.priority {
            PriorityRule::Bypass => "bypass".into(),
            PriorityRule::Fifo => "fifo".into(),
            PriorityRule::Stream => "stream".into(),
        },
    },
    KnobRow {
        name: "queue_depth",
        unit: "requests",
        range: "0..=1024",
        origin: "SCSI device",
        doc: "Requests that a member has at once; 0 for as many as it takes, or 32 with a scheduler if that is not known.",
        parse: |text, _| Some(Knob::QueueDepth(number(text, 0, 1024)?)),
        show: |knobs| knobs.queue_depth.to_string(),
    },
    KnobRow {
        name: "read_around",
        unit: "seconds",
        range: "0..=86400",
        origin: "weft",
        doc: "Answers a read from the other members when its own has stalled this long, and parity is not \
              to be resynced there; 0 never does.",
        parse: |text, _| Some(Knob::ReadAround(seconds(text)?)),
        show: |knobs| show_seconds(knobs.read_around),
    },
    KnobRow {
        name: "read_expire",
        unit: "milliseconds",
        range: "0..=2147483647",
        origin: "block queue (mq-deadline)",
        doc: "How long a read waits until the next batch begins with it.",
        parse: |text, _| Some(Knob::ReadExpire(Span::millis(number(text, 0, INT_MAX)?.into()))),
        show: |knobs| (knobs.mq_deadline.read_expire.0 / 1_000_000).to_string(),
    },
    KnobRow {
        name: "rmw_level",
        unit: "level",
        range: "0 | 1 | 2",
        origin: "md",
        doc: "Read-modify-write: 0 never, 1 when it reads less than reconstruct-write, 2 also on a tie.",
        parse: |text, _| {
            Some(Knob::RmwLevel(match text {
                "0" => RmwLevel::Never,
                "1" => RmwLevel::Fewer,
                "2" => RmwLevel::Tie,
                _ => return None,
            }))
        },
        show: |knobs| match knobs.rmw_level {
            RmwLevel::Never => "0".into(),
            RmwLevel::Fewer => "1".into(),
            RmwLevel::Tie => "2".into(),
        },
    },
    KnobRow {
        name: "rotational",
        unit: "word",
        range: "auto | 0 | 1",
        origin: "block queue",
        doc: "Whether members are disks that turn, for which nearby requests are cheap: auto, what the device says.",
        parse: |text, _| {
            Some(Knob::Rotational(match text {
                "auto" => None,
                "0" => Some(false),
                "1" => Some(true),
                _ => return None,
            }))
        },
        show: |knobs| knobs.rotational.map_or("auto".into(), |it| u8::from(it).to_string()),
    },
    KnobRow {
        name: "safe_mode_delay",
        unit: "seconds",
        range: "0..=86400",
        origin: "md",
        doc: "How long after the last write the array is marked clean; 0 only when it is stopped.",
        parse: |text, _| Some(Knob::SafeModeDelay(seconds(text)?)),
        show: |knobs| show_seconds(knobs.safe_mode_delay),
    },
    KnobRow {
        name: "scheduler",
        unit: "word",
        range: "none | mq-deadline | bfq",
        origin: "block queue",
        doc: "What is done with requests that wait for a member: first come, first served; \
              sorted and merged; or shared by weight among those who ask.",
        parse: |text, _| Some(Knob::Scheduler(SchedulerKind::of_name(text)?)),
        show: |knobs| knobs.scheduler.name().into(),
    },
    KnobRow {
        name: "skip_copy",
        unit: "flag",
        range: "0 | 1",
        origin: "md",
        doc: "Writes whole strips from the client's memory, and does not keep them in the cache. \
              stripe_size=auto does so for filled stripes.",
        parse: |text, _| {
            Some(Knob::SkipCopy(match text {
                "0" => false,
                "1" => true,
                _ => return None,
            }))
        },
        show: |knobs| u8::from(knobs.skip_copy).to_string(),
    },
    KnobRow {
        name: "slice_idle",
        unit: "milliseconds",
        range: "0..=2147483647",
        origin: "block queue (bfq)",
        doc: "How long a member is kept for a queue that may soon have more; 0 never.",
        parse: |text, _| Some(Knob::SliceIdle(Span::millis(number(text, 0, INT_MAX)?.into()))),
        show: |knobs| (knobs.bfq.slice_idle.0 / 1_000_000).to_string(),
    },
    KnobRow {
        name: "slice_idle_us",
        unit: "microseconds",
        range: "0..=4294967295",
        origin: "block queue (bfq)",
        doc: "The same as slice_idle, in microseconds.",
        parse: |text, _| {
            Some(Knob::SliceIdleUs(Span(u64::from(number(text, 0, u32::MAX)?) * 1000)))
        },
        show: |knobs| (knobs.bfq.slice_idle.0 / 1000).to_string(),
    },
    KnobRow {
        name: "stable_merge",
        unit: "flag",
        range: "0 | 1",
        origin: "weft (bfq)",
        doc: "Whether bfq merges queues for good that were created within 180 ms of each other, as Linux always does since \
              2021. It costs fairness: of two equal readers that share a queue, one may get twice what the other gets.",
        parse: |text, _| Some(Knob::StableMerge(flag(text)?)),
        show: |knobs| u8::from(knobs.bfq.merge.stable).to_string(),
    },
    KnobRow {
        name: "strict_guarantees",
        unit: "flag",
        range: "0 | 1",
        origin: "block queue (bfq)",
        doc: "Whether a member gets one request at a time, and is kept for whoever is in service; setting it raises slice_idle to 8 ms.",
        parse: |text, _| Some(Knob::StrictGuarantees(flag(text)?)),
        show: |knobs| u8::from(knobs.bfq.strict_guarantees).to_string(),
    },
    KnobRow {
        name: "strictlimit",
        unit: "flag",
        range: "0 | 1",
        origin: "bdi",
        doc: "Whether clients of this volume are slowed down by what is dirty of it, though little is dirty in all. \
              With dirty_throttle=mainline-6.12 alone.",
        parse: |text, _| Some(Knob::StrictLimit(flag(text)?)),
        show: |knobs| u8::from(knobs.ratios.strict).to_string(),
    },
    KnobRow {
        name: "stripe_cache_bytes",
        unit: "bytes",
        range: "0, or 1048576..=68719476736",
        origin: "weft",
        doc: "Memory of the stripe cache with stripe_size=auto; 0 for that of stripe_cache_size stripes of \
              4 KiB.",
        parse: |text, _| {
            let bytes = text.parse().ok().filter(|b| *b == 0 || (1 << 20..=1 << 36).contains(b))?;
            Some(Knob::StripeCacheBytes(Bytes(bytes)))
        },
        show: |knobs| knobs.stripe_cache_bytes.0.to_string(),
    },
    KnobRow {
        name: "stripe_cache_form",
        unit: "word",
        range: "2008 | today",
        origin: "weft",
        doc: "What is around the policies: with 2008 the stripes of a full stripe are written one by one, every free \
              stripe fits everywhere, and without patch 000 whoever brings a request takes the first step of its \
              stripe, as when patch 000 was written.",
        parse: |text, _| {
            Some(Knob::StripeCacheForm(match text {
                "2008" => CacheForm::Of2008,
                "today" => CacheForm::Today,
                _ => return None,
            }))
        },
        show: |knobs| match knobs.stripe_cache_form {
            CacheForm::Of2008 => "2008".into(),
            CacheForm::Today => "today".into(),
        },
    },
    KnobRow {
        name: "stripe_cache_size",
        unit: "stripes",
        range: "17..=32768",
        origin: "md",
        doc: "Stripes in the stripe cache, per volume.",
        parse: |text, _| Some(Knob::StripeCacheSize(number(text, 17, 32_768)?)),
        show: |knobs| knobs.stripe_cache_size.to_string(),
    },
    KnobRow {
        name: "stripe_size",
        unit: "bytes",
        range: "a power of two, 4096..=65536, or auto",
        origin: "md",
        doc: "Bytes of a stripe on one member: what the cache looks up, reads and writes. auto moves 4 KiB \
              for small writes and whole chunks for large ones.",
        parse: |text, _| {
            let size = match text {
                "auto" => StripeSize::AUTO,
                _ => StripeSize::new(u64::from(number(text, 1, u32::MAX)?)).ok()?,
            };
            Some(Knob::StripeSize(size))
        },
        show: |knobs| match knobs.stripe_size {
            StripeSize::AUTO => "auto".into(),
            size => size.bytes().0.to_string(),
        },
    },
    KnobRow {
        name: "sync_pace",
        unit: "word",
        range: "idle | md",
        origin: "weft",
        doc: "What a resync, recovery or check has beside clients. With idle: sync_speed_min, and pauses of theirs that are \
              longer than a step of 128 KiB takes, in the idle class of the scheduler. With md: sync_speed_min, and a step at a \
              time whatever the speed, as Linux since 4.1.",
        parse: |text, _| {
            Some(Knob::SyncPace(match text {
                "idle" => SyncPace::Idle,
                "md" => SyncPace::Md,
                _ => return None,
            }))
        },
        show: |knobs| match knobs.sync_pace {
            SyncPace::Idle => "idle".into(),
            SyncPace::Md => "md".into(),
        },
    },
    KnobRow {
        name: "sync_speed_max",
        unit: "KiB/s",
        range: "1..=2147483647 | system",
        origin: "md",
        doc: "Speed of each member that a resync, recovery or check does not exceed for long. \
              system is what a Linux has that nobody has tuned, 200000; weft's own is no bound.",
        parse: |text, _| Some(Knob::SyncSpeedMax(speed(text, SYNC_SPEED_MAX)?)),
        show: |knobs| (knobs.sync_speed_max.0 / 1024).to_string(),
    },
    KnobRow {
        name: "sync_speed_min",
        unit: "KiB/s",
        range: "1..=2147483647 | system",
        origin: "md",
        doc: "Speed of each member that a resync, recovery or check has also while clients work, if the members can. \
              system is what a Linux has that nobody has tuned, 1000; weft's own is 20000.",
        parse: |text, _| Some(Knob::SyncSpeedMin(speed(text, SYNC_SPEED_MIN)?)),
        show: |knobs| (knobs.sync_speed_min.0 / 1024).to_string(),
    },
    KnobRow {
        name: "timeout_sync",
        unit: "milliseconds",
        range: "1..=2147483647",
        origin: "block queue (bfq)",
        doc: "How long a queue is in service at most.",
        parse: |text, _| Some(Knob::TimeoutSync(Span::millis(number(text, 1, INT_MAX)?.into()))),
        show: |knobs| (knobs.bfq.timeout_sync.0 / 1_000_000).to_string(),
    },
    KnobRow {
        name: "waker",
        unit: "flag",
        range: "0 | 1",
        origin: "weft (bfq)",
        doc: "Whether bfq looks for clients that wait for one another, as a journal and a client in fsync, and serves one \
              while it keeps a member for the other, as Linux always does since 2019.",
        parse: |text, _| Some(Knob::Waker(flag(text)?)),
        show: |knobs| u8::from(knobs.bfq.waker).to_string(),
    },
    KnobRow {
        name: "write_expire",
        unit: "milliseconds",
        range: "0..=2147483647",
        origin: "block queue (mq-deadline)",
        doc: "How long a write waits until the next batch of writes begins with it.",
        parse: |text, _| Some(Knob::WriteExpire(Span::millis(number(text, 0, INT_MAX)?.into()))),
        show: |knobs| (knobs.mq_deadline.write_expire.0 / 1_000_000).to_string(),
    },
    KnobRow {
        name: "writes",
        unit: "word",
        range: "auto | gather | sync",
        origin: "weft",
        doc: "Which client writes wait for more of their stripe: those that came with company, all, none.",
        parse: |text, _| {
            Some(Knob::Writes(match text {
                "auto" => Writes::Auto,
                "gather" => Writes::Gather,
                "sync" => Writes::Sync,
                _ => return None,
            }))
        },
        show: |knobs| match knobs.writes {
            Writes::Auto => "auto".into(),
            Writes::Gather => "gather".into(),
            Writes::Sync => "sync".into(),
        },
    },
    KnobRow {
        name: "writes_starved",
        unit: "batches",
        range: "0..=2147483647",
        origin: "block queue (mq-deadline)",
        doc: "Batches of reads that go before a batch of writes that waits.",
        parse: |text, _| Some(Knob::WritesStarved(number(text, 0, INT_MAX)?)),
        show: |knobs| knobs.mq_deadline.writes_starved.to_string(),
    },
];

/// The largest value that the kernel accepts for most scheduler knobs.
const INT_MAX: u32 = i32::MAX as u32;

fn number(text: &str, min: u32, max: u32) -> Option<u32> {
    text.parse().ok().filter(|value| (min..=max).contains(value))
}

fn flag(text: &str) -> Option<bool> {
    match text {
        "0" => Some(false),
        "1" => Some(true),
        _ => None,
    }
}

/// Parses KiB per second, as md's `sync_speed_min`.
fn speed(text: &str, system: Bytes) -> Option<Bytes> {
    if text == "system" {
        return Some(system);
    }
    number(text, 1, INT_MAX).map(|rate| Bytes::kib(rate.into()))
}

/// Parses seconds with up to three decimals, as md's `safe_mode_delay`.
fn seconds(text: &str) -> Option<Span> {
    let (whole, fraction) = text.split_once('.').unwrap_or((text, ""));
    if fraction.len() > 3 || !fraction.bytes().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    let millis: u64 = format!("{fraction:0<3}").parse().ok()?;
    let whole = u64::from(number(whole, 0, 86_400)?);
    Some(Span::millis(whole * 1000 + millis))
}

fn show_seconds(span: Span) -> String {
    let millis = span.0 / 1_000_000;
    format!("{}.{:03}", millis / 1000, millis % 1000)
}
