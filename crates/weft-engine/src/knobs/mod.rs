//! Table of knobs: name, unit, range, default and meaning of everything that can be tuned.
//!
//! Names, units and ranges are those of `/sys/block/mdX/md/` and `/sys/block/X/queue/` where the
//! kernel has the knob; the others are weft's own and say so.
//!
//! Source   spec of md: Documentation/admin-guide/md.rst; ranges checked against Linux 6.12

mod value;

use thiserror::Error;
use weft_units::{Bytes, FRAME_BYTES, Span};

pub use self::value::{
    Activation, CacheForm, CheckReads, FlushRule, MqDeadlineKnobs, PlanRule, PriorityRule,
    RmwLevel, SchedulerKind, StripeSize, Writes,
};

/// Every knob's present value.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Knobs {
    /// When delayed stripes become held ones (patch 000).
    pub activation: Activation,
    /// Whether a check reads stripes again that are in the cache.
    pub check_reads: CheckReads,
    /// Whom a round of member flushes serves (patch 002).
    pub flush_batch: FlushRule,
    /// Largest member request that merging makes. Zero merges nothing.
    pub max_sectors: Bytes,
    /// How long a member may stall before it is failed. Zero: never.
    pub member_timeout: Span,
    /// The knobs of the scheduler of that name.
    pub mq_deadline: MqDeadlineKnobs,
    /// How long a member may have no space before it is failed, if the others suffice. Zero: never.
    pub no_space_wait: Span,
    /// How a stripe comes by the strips that it needs.
    pub plan_rule: PlanRule,
    /// How many stripes that are ready may pass a held one (patch 000).
    pub preread_bypass_threshold: u32,
    /// How long a stripe waits at most to be filled, by whatever rule. [`WAITS_WITHOUT_BOUND`] is
    /// md's: for as long as other stripes are preread, or filled stripes are written.
    pub preread_wait_max: Span,
    /// Which rule picks the next stripe (patch 000).
    pub priority: PriorityRule,
    /// How long a read may stall before it is answered from the other members, where their parity
    /// is to be trusted. Zero: never.
    pub read_around: Span,
    /// Requests that a member has at once. Zero: as many as its device takes.
    pub queue_depth: u32,
    /// Rule by which read-modify-write may be chosen.
    pub rmw_level: RmwLevel,
    /// How long an array stays dirty after its last write. Zero: until it is stopped.
    pub safe_mode_delay: Span,
    /// What is done with requests that wait for a member.
    pub scheduler: SchedulerKind,
    /// Whether a strip that is written from end to end is written from the client's memory, and not
    /// kept in the cache.
    pub skip_copy: bool,
    /// Memory of the stripe cache with [`StripeSize::AUTO`]; zero for that of `stripe_cache_size`
    /// stripes.
    pub stripe_cache_bytes: Bytes,
    /// What the stripe cache does around the policies.
    pub stripe_cache_form: CacheForm,
    /// Stripes in the stripe cache.
    pub stripe_cache_size: u32,
    /// Bytes of a stripe on one member (patch 004).
    pub stripe_size: StripeSize,
    /// Which client writes wait for more of their stripe.
    pub writes: Writes,
}

/// One knob with a new value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Knob {
    /// See [`Knobs::activation`].
    Activation(Activation),
    /// See [`Knobs::check_reads`].
    CheckReads(CheckReads),
    /// See [`MqDeadlineKnobs::fifo_batch`].
    FifoBatch(u32),
    /// See [`Knobs::flush_batch`].
    FlushBatch(FlushRule),
    /// See [`MqDeadlineKnobs::front_merges`].
    FrontMerges(bool),
    /// See [`Knobs::max_sectors`].
    MaxSectors(Bytes),
    /// See [`Knobs::member_timeout`].
    MemberTimeout(Span),
    /// See [`Knobs::no_space_wait`].
    NoSpaceWait(Span),
    /// See [`Knobs::plan_rule`].
    PlanRule(PlanRule),
    /// See [`Knobs::preread_bypass_threshold`].
    PrereadBypassThreshold(u32),
    /// See [`Knobs::preread_wait_max`].
    PrereadWaitMax(Span),
    /// See [`MqDeadlineKnobs::prio_aging_expire`].
    PrioAgingExpire(Span),
    /// See [`Knobs::priority`].
    Priority(PriorityRule),
    /// See [`Knobs::queue_depth`].
    QueueDepth(u32),
    /// See [`Knobs::read_around`].
    ReadAround(Span),
    /// See [`MqDeadlineKnobs::read_expire`].
    ReadExpire(Span),
    /// See [`Knobs::rmw_level`].
    RmwLevel(RmwLevel),
    /// See [`Knobs::safe_mode_delay`].
    SafeModeDelay(Span),
    /// See [`Knobs::scheduler`].
    Scheduler(SchedulerKind),
    /// See [`Knobs::skip_copy`].
    SkipCopy(bool),
    /// See [`Knobs::stripe_cache_bytes`].
    StripeCacheBytes(Bytes),
    /// See [`Knobs::stripe_cache_form`].
    StripeCacheForm(CacheForm),
    /// See [`Knobs::stripe_cache_size`].
    StripeCacheSize(u32),
    /// See [`Knobs::stripe_size`].
    StripeSize(StripeSize),
    /// See [`MqDeadlineKnobs::write_expire`].
    WriteExpire(Span),
    /// See [`Knobs::writes`].
    Writes(Writes),
    /// See [`MqDeadlineKnobs::writes_starved`].
    WritesStarved(u32),
}

/// Reasons why a knob was not set.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
#[non_exhaustive]
pub enum KnobError {
    /// The value is not one of those allowed.
    #[error("{name}: found {found}, expected {expected}")]
    Value {
        /// The knob.
        name: &'static str,
        /// Text that was given.
        found: String,
        /// Values that are allowed.
        expected: String,
    },
    /// There is no such knob.
    #[error("{0}: no such knob; expected one of {list}", list = names())]
    Unknown(String),
}

/// A knob's row in the table: what people need to know.
pub struct KnobRow {
    /// Its name.
    pub name: &'static str,
    /// Its unit, or the words it takes.
    pub unit: &'static str,
    /// Range that is allowed, as text.
    pub range: &'static str,
    /// Origin of the name: md's, the block layer's or weft's.
    pub origin: &'static str,
    /// Effect of the knob.
    pub doc: &'static str,
    parse: fn(&str, &Knobs) -> Option<Knob>,
    show: fn(&Knobs) -> String,
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
        name: "fifo_batch",
        unit: "requests",
        range: "0..=2147483647",
        origin: "block queue (mq-deadline)",
        doc: "Requests of one direction that go in a row before the direction is chosen anew.",
        parse: |text, _| Some(Knob::FifoBatch(number(text, 0, INT_MAX)?)),
        show: |knobs| knobs.mq_deadline.fifo_batch.to_string(),
    },
    KnobRow {
        name: "flush_batch",
        unit: "word",
        range: "batch | serial",
        origin: "weft",
        doc: "Whom a round of member flushes serves: every request that waits (patch 002), or one, as before the patch.",
        parse: |text, _| {
            Some(Knob::FlushBatch(match text {
                "batch" => FlushRule::Batch,
                "serial" => FlushRule::Serial,
                _ => return None,
            }))
        },
        show: |knobs| {
            match knobs.flush_batch {
                FlushRule::Batch => "batch",
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
              none, as md, while other stripes are preread or filled stripes are written.",
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
        range: "none | mq-deadline",
        origin: "block queue",
        doc: "What is done with requests that wait for a member: first come, first served, or sorted and merged.",
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

impl Knobs {
    /// Puts one knob's new value in. The value was checked when it was parsed.
    pub fn set(&mut self, knob: Knob) {
        match knob {
            Knob::Activation(activation) => self.activation = activation,
            Knob::CheckReads(from) => self.check_reads = from,
            Knob::FifoBatch(count) => self.mq_deadline.fifo_batch = count,
            Knob::FlushBatch(rule) => self.flush_batch = rule,
            Knob::FrontMerges(merges) => self.mq_deadline.front_merges = merges,
            Knob::MaxSectors(bytes) => self.max_sectors = bytes,
            Knob::MemberTimeout(span) => self.member_timeout = span,
            Knob::NoSpaceWait(span) => self.no_space_wait = span,
            Knob::PlanRule(rule) => self.plan_rule = rule,
            Knob::PrereadBypassThreshold(count) => self.preread_bypass_threshold = count,
            Knob::PrereadWaitMax(span) => self.preread_wait_max = span,
            Knob::PrioAgingExpire(span) => self.mq_deadline.prio_aging_expire = span,
            Knob::Priority(rule) => self.priority = rule,
            Knob::QueueDepth(count) => self.queue_depth = count,
            Knob::ReadAround(span) => self.read_around = span,
            Knob::ReadExpire(span) => self.mq_deadline.read_expire = span,
            Knob::RmwLevel(level) => self.rmw_level = level,
            Knob::SafeModeDelay(span) => self.safe_mode_delay = span,
            Knob::Scheduler(kind) => self.scheduler = kind,
            Knob::SkipCopy(skip) => self.skip_copy = skip,
            Knob::StripeCacheBytes(bytes) => self.stripe_cache_bytes = bytes,
            Knob::StripeCacheForm(form) => self.stripe_cache_form = form,
            Knob::StripeCacheSize(count) => {
                self.stripe_cache_size = count;
                self.preread_bypass_threshold = self.preread_bypass_threshold.min(count);
            }
            Knob::StripeSize(size) => self.stripe_size = size,
            Knob::WriteExpire(span) => self.mq_deadline.write_expire = span,
            Knob::Writes(writes) => self.writes = writes,
            Knob::WritesStarved(count) => self.mq_deadline.writes_starved = count,
        }
    }

    /// A knob's present value, as [`Knobs::parse`] takes it.
    #[must_use]
    pub fn show(&self, name: &str) -> Option<String> {
        TABLE.iter().find(|row| row.name == name).map(|row| (row.show)(self))
    }

    /// Reads a knob's new value.
    ///
    /// # Errors
    /// The knob is unknown, or the value is outside its range; the text names both.
    pub fn parse(&self, name: &str, value: &str) -> Result<Knob, KnobError> {
        let row = TABLE
            .iter()
            .find(|row| row.name == name)
            .ok_or_else(|| KnobError::Unknown(name.to_owned()))?;
        (row.parse)(value, self).ok_or_else(|| KnobError::Value {
            name: row.name,
            found: value.to_owned(),
            expected: row.range.to_owned(),
        })
    }

    /// Stripes of a stripe cache whose stripes have so many frames.
    #[must_use]
    pub fn cache_stripes(&self, stripe_frames: u32) -> u32 {
        if self.stripe_size != StripeSize::AUTO || self.stripe_cache_bytes == Bytes::ZERO {
            return self.stripe_cache_size;
        }
        u32::try_from(self.stripe_cache_bytes.0 / (u64::from(stripe_frames) * FRAME_BYTES))
            .map_or(u32::MAX, |stripes| stripes.max(17))
    }
}

impl Knobs {
    /// What md does when nobody tunes it, request for request.
    #[must_use]
    pub fn md() -> Self {
        Self {
            activation: Activation::default(),
            check_reads: CheckReads::default(),
            flush_batch: FlushRule::Batch,
            max_sectors: Bytes::kib(512),
            member_timeout: Span::ZERO,
            mq_deadline: MqDeadlineKnobs::default(),
            no_space_wait: Span::secs(30),
            plan_rule: PlanRule::default(),
            preread_bypass_threshold: 1,
            preread_wait_max: WAITS_WITHOUT_BOUND,
            priority: PriorityRule::default(),
            queue_depth: 0,
            read_around: Span::secs(2),
            rmw_level: RmwLevel::default(),
            safe_mode_delay: Span::millis(200),
            scheduler: SchedulerKind::None,
            skip_copy: false,
            stripe_cache_bytes: Bytes::ZERO,
            stripe_cache_form: CacheForm::default(),
            stripe_cache_size: 256,
            stripe_size: StripeSize::default(),
            writes: Writes::default(),
        }
    }
}

impl Default for Knobs {
    /// Weft's own choices, for volumes that nobody has tuned.
    fn default() -> Self {
        Self {
            plan_rule: PlanRule::Least,
            preread_wait_max: Span::secs(1),
            priority: PriorityRule::Stream,
            stripe_cache_bytes: Bytes::mib(8),
            stripe_size: StripeSize::AUTO,
            ..Self::md()
        }
    }
}

/// [`Knobs::preread_wait_max`] of md: its stripes wait for others without a bound.
pub const WAITS_WITHOUT_BOUND: Span = Span(u64::MAX);

/// The largest value that the kernel takes for most knobs of a scheduler.
const INT_MAX: u32 = i32::MAX as u32;

fn names() -> String {
    TABLE.iter().map(|row| row.name).collect::<Vec<_>>().join(", ")
}

fn number(text: &str, min: u32, max: u32) -> Option<u32> {
    text.parse().ok().filter(|value| (min..=max).contains(value))
}

/// Seconds with up to three decimals, as md's `safe_mode_delay`.
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

#[cfg(test)]
mod tests {
    use super::*;

    /// md-raid.md §9, statement 26.
    #[test]
    fn statement_26_ranges_are_those_of_md() {
        let knobs = Knobs::md();
        let refused = [
            ("stripe_cache_size", "16"),
            ("stripe_cache_size", "32769"),
            ("preread_bypass_threshold", "257"),
            ("stripe_size", "6144"),
            ("stripe_size", "2048"),
            ("stripe_size", "0"),
            ("stripe_size", "131072"),
            ("rmw_level", "3"),
            ("safe_mode_delay", "-1"),
            ("safe_mode_delay", "0.2001"),
        ];
        for (name, value) in refused {
            let error = knobs.parse(name, value).unwrap_err();
            assert!(matches!(error, KnobError::Value { .. }), "{name}={value}: {error}");
        }
        for (name, value) in [("stripe_cache_size", "17"), ("stripe_cache_size", "32768")] {
            assert!(knobs.parse(name, value).is_ok(), "{name}={value}");
        }
        assert!(matches!(knobs.parse("stripe_cash", "1"), Err(KnobError::Unknown(_))));
    }

    #[test]
    fn every_knob_shows_what_it_parses() {
        let knobs = Knobs::default();
        for row in TABLE {
            let shown = knobs.show(row.name).unwrap();
            let mut again = knobs;
            again.set(knobs.parse(row.name, &shown).unwrap());
            assert_eq!(again, knobs, "{}", row.name);
        }
        assert!(TABLE.windows(2).all(|pair| pair[0].name < pair[1].name));
    }

    #[test]
    fn a_smaller_cache_lowers_the_threshold_with_it() {
        let mut knobs = Knobs::default();
        knobs.set(knobs.parse("preread_bypass_threshold", "200").unwrap());
        knobs.set(knobs.parse("stripe_cache_size", "64").unwrap());
        assert_eq!(knobs.preread_bypass_threshold, 64);
    }
}
