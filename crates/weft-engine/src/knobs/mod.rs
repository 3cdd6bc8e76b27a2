//! Knobs: every setting that can be tuned, as values of a volume and in text form.
//!
//! [`TABLE`] has a row for each knob; `table.rs` describes the parts of an entry.

mod absent;
mod dirty_pool;
mod form;
mod table;
mod value;

use thiserror::Error;
use weft_units::{Bytes, FRAME_BYTES, Span};

use crate::page_cache::BdiRatios;

pub use self::dirty_pool::{PoolKnobs, throttle_name};
pub use self::table::{Draws, Knob, KnobRow, TABLE};
pub use self::value::{
    Activation, BfqKnobs, CacheForm, CheckReads, Fairness, FlushRule, GroupWeights, KyberKnobs,
    MergeKnobs, MergePosition, MergeRule, MergeWeight, MqDeadlineKnobs, NoMerges, PlanRule,
    PriorityRule, RmwLevel, SchedulerKind, StripeSize, SyncPace, Writes,
};

/// Values of all knobs of a volume.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Knobs {
    /// Time at which delayed stripes move to the hold list, from which they are preread (patch
    /// 000).
    pub activation: Activation,
    /// Knobs of the scheduler BFQ.
    pub bfq: BfqKnobs,
    /// Whether a check reads stripes from members even if they are cached.
    pub check_reads: CheckReads,
    /// Whether a mirror may fail a member that has the last copy of some data. The array is broken
    /// then.
    pub fail_last_dev: bool,
    /// Rule by which member flushes serve flush requests (patch 002).
    pub flush_batch: FlushRule,
    /// Knobs of the scheduler kyber.
    pub kyber: KyberKnobs,
    /// Largest member request that merging may produce. Zero disables merging.
    pub max_sectors: Bytes,
    /// Time without an answer after which a member is failed, if the array can run without it.
    /// Zero: never.
    pub member_timeout: Span,
    /// Knobs of the scheduler mq-deadline.
    pub mq_deadline: MqDeadlineKnobs,
    /// Time without space after which a member is failed, if the array can run without it. Zero:
    /// never.
    pub no_space_wait: Span,
    /// Rule for merging the requests of a member.
    pub nomerges: NoMerges,
    /// Largest number of requests in a member's scheduler and in flight at the member together;
    /// further requests wait in order of arrival. Zero: with mq-deadline and kyber twice the
    /// member's queue depth, at most 256; with BFQ no limit; without a scheduler the member's queue
    /// depth.
    pub nr_requests: u32,
    /// Knobs of the write-back cache, if there is one. They are common to all volumes of an engine.
    pub pool: PoolKnobs,
    /// Bounds of the volume's share of the limits of the write-back cache.
    pub ratios: BdiRatios,
    /// Rule by which a stripe obtains the strips that it needs for a read or write: md's choice
    /// between read-modify-write and reconstruct-write, or the fewest reads.
    pub plan_rule: PlanRule,
    /// Number of times that ready stripes, which need no preread, may be handled before a held
    /// stripe that needs one (patch 000).
    pub preread_bypass_threshold: u32,
    /// Longest time that a stripe waits to be filled, under any rule. [`WAITS_WITHOUT_BOUND`] is
    /// md's rule: a stripe waits for as long as other stripes are preread, or filled stripes are
    /// written.
    pub preread_wait_max: Span,
    /// Rule that chooses the stripe that is handled next (patch 000).
    pub priority: PriorityRule,
    /// Time without an answer after which a read is answered from the other members, if their
    /// parity can be trusted. Zero: never.
    pub read_around: Span,
    /// Largest number of commands in flight at a member. Zero: as many as its device accepts.
    pub queue_depth: u32,
    /// Cases in which read-modify-write is preferred to reconstruct-write.
    pub rmw_level: RmwLevel,
    /// Whether members are rotational. `None`: as their devices report.
    pub rotational: Option<bool>,
    /// Time that an array stays dirty after its last write. Zero: until it is stopped.
    pub safe_mode_delay: Span,
    /// I/O scheduler of the members.
    pub scheduler: SchedulerKind,
    /// Whether a strip that is overwritten completely is written from the client's memory instead
    /// of being copied to the cache.
    pub skip_copy: bool,
    /// Memory of the stripe cache with [`StripeSize::AUTO`]. Zero: as much as `stripe_cache_size`
    /// stripes take.
    pub stripe_cache_bytes: Bytes,
    /// Form of the stripe cache: the form of md in 2008, or the form of md today.
    pub stripe_cache_form: CacheForm,
    /// Size of the stripe cache, in stripes.
    pub stripe_cache_size: u32,
    /// Size of a stripe on each member, in bytes (patch 004).
    pub stripe_size: StripeSize,
    /// Rule for the speed of a sync while clients send requests.
    pub sync_pace: SyncPace,
    /// Upper limit on the speed of a sync, in bytes per second.
    pub sync_speed_max: Bytes,
    /// Speed that a sync keeps beside client requests, in bytes per second.
    pub sync_speed_min: Bytes,
    /// Rule that selects the client writes that wait for more data of their stripe.
    pub writes: Writes,
}

/// Reason for which a knob was not set.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
#[non_exhaustive]
pub enum KnobError {
    /// The value is not one of the allowed values.
    #[error("{name}: found {found}, expected {expected}")]
    Value {
        /// Name of the knob.
        name: &'static str,
        /// Text of the value that the user gave.
        found: String,
        /// Values that are allowed.
        expected: String,
    },
    /// The knob exists in Linux's block layer, but not in weft.
    #[error("{name}: no knob of weft: {reason}")]
    Absent {
        /// Name of the absent knob.
        name: String,
        /// Reason for its absence, and what to use instead.
        reason: &'static str,
    },
    /// The value only serves to reproduce a former kernel.
    #[error(
        "{name}: found {found}, which only simulations take (weft reproduce {experiment}), \
         expected {expected}"
    )]
    Historic {
        /// Name of the knob.
        name: &'static str,
        /// Value that the user gave.
        found: &'static str,
        /// Experiment that uses the value.
        experiment: &'static str,
        /// Values that are allowed.
        expected: String,
    },
    /// No knob has this name.
    #[error("{0}: no such knob; {meant}", meant = meant(.0))]
    Unknown(String),
}

impl Knobs {
    /// Text of the value of a knob, which [`Knobs::parse`] accepts; `None` if no knob has this
    /// name.
    #[must_use]
    pub fn show(&self, name: &str) -> Option<String> {
        TABLE.iter().find(|row| row.name == name).map(|row| (row.show)(self))
    }

    /// Parses a new value of a knob.
    ///
    /// # Errors
    /// The knob is unknown, or the value is out of range; the message names both.
    pub fn parse(&self, name: &str, value: &str) -> Result<Knob, KnobError> {
        self.parse_in(row(name)?, value, KnobRow::range)
    }

    fn parse_in(
        &self,
        row: &KnobRow,
        value: &str,
        range: fn(&KnobRow) -> String,
    ) -> Result<Knob, KnobError> {
        (row.parse)(value, self).ok_or_else(|| KnobError::Value {
            name: row.name,
            found: value.to_owned(),
            expected: range(row),
        })
    }

    /// Parses a new value of a knob of a live volume, which refuses historic values.
    ///
    /// # Errors
    /// The knob is unknown, the value is out of range, or it is one of [`KnobRow::historic`].
    pub fn parse_live(&self, name: &str, value: &str) -> Result<Knob, KnobError> {
        let row = row(name)?;
        let knob = self.parse_in(row, value, KnobRow::range_live)?;
        match row.historic.iter().find(|(found, _)| *found == value) {
            Some((found, experiment)) => Err(KnobError::Historic {
                name: row.name,
                found,
                experiment,
                expected: row.range_live(),
            }),
            None => Ok(knob),
        }
    }

    /// Number of stripes that the stripe cache has with these knobs, if each stripe takes
    /// `stripe_frames` frames.
    #[must_use]
    pub fn cache_stripes(&self, stripe_frames: u32) -> u32 {
        if self.stripe_size != StripeSize::AUTO || self.stripe_cache_bytes == Bytes::ZERO {
            return self.stripe_cache_size;
        }
        let stripe_bytes = u64::from(stripe_frames.max(1)) * FRAME_BYTES;
        u32::try_from(self.stripe_cache_bytes.0 / stripe_bytes)
            .map_or(u32::MAX, |stripes| stripes.max(STRIPES_MIN))
    }
}

impl Knobs {
    /// Knobs of an untuned md. With these, member requests are the same as the kernel's.
    #[must_use]
    pub fn md() -> Self {
        Self {
            activation: Activation::default(),
            bfq: BfqKnobs::default(),
            check_reads: CheckReads::default(),
            fail_last_dev: false,
            flush_batch: FlushRule::Batch,
            kyber: KyberKnobs::default(),
            max_sectors: Bytes::kib(512),
            member_timeout: Span::ZERO,
            mq_deadline: MqDeadlineKnobs::default(),
            no_space_wait: Span::secs(30),
            nomerges: NoMerges::Allowed,
            nr_requests: 0,
            plan_rule: PlanRule::default(),
            pool: PoolKnobs::default(),
            ratios: BdiRatios::default(),
            preread_bypass_threshold: 1,
            preread_wait_max: WAITS_WITHOUT_BOUND,
            priority: PriorityRule::default(),
            queue_depth: 0,
            read_around: Span::secs(2),
            rmw_level: RmwLevel::default(),
            rotational: None,
            safe_mode_delay: Span::millis(200),
            scheduler: SchedulerKind::None,
            skip_copy: false,
            stripe_cache_bytes: Bytes::ZERO,
            stripe_cache_form: CacheForm::default(),
            stripe_cache_size: 256,
            stripe_size: StripeSize::default(),
            sync_pace: SyncPace::Md,
            sync_speed_max: Bytes::kib(SYNC_SPEED_MAX as u64),
            sync_speed_min: Bytes::kib(SYNC_SPEED_MIN as u64),
            writes: Writes::default(),
        }
    }
}

impl Default for Knobs {
    /// Default values of weft.
    fn default() -> Self {
        Self {
            plan_rule: PlanRule::Least,
            preread_wait_max: Span::secs(1),
            priority: PriorityRule::Stream,
            stripe_cache_bytes: Bytes::mib(8),
            stripe_size: StripeSize::AUTO,
            sync_pace: SyncPace::Idle,
            sync_speed_max: Bytes::kib(i32::MAX as u64),
            sync_speed_min: Bytes::kib(20_000),
            ..Self::md()
        }
    }
}

/// Value of [`Knobs::preread_wait_max`] with which stripes wait for others without limit, as in md.
pub const WAITS_WITHOUT_BOUND: Span = Span(u64::MAX);

/// Additional limit with any other value of [`Knobs::preread_wait_max`]: a stripe waits no longer
/// than it takes to write this many times the content of the stripe cache. On disks the time limit
/// is reached first; on the fastest drives, gigabytes would be written past a waiting stripe within
/// a second.
pub const CACHES_PASSED_MAX: u64 = 64;

/// Least number of stripes of a stripe cache (`stripe_cache_size`), as in md.
pub const STRIPES_MIN: u32 = 17;
/// Largest number of stripes of a stripe cache, as in md.
pub const STRIPES_MAX: u32 = 32_768;

/// md's default `speed_limit_min` and `speed_limit_max`, in KiB per second.
const SYNC_SPEED_MIN: u32 = 1000;
const SYNC_SPEED_MAX: u32 = 200_000;

/// Row of the knob named `name`; an error if there is none.
fn row(name: &str) -> Result<&'static KnobRow, KnobError> {
    TABLE.iter().find(|row| row.name == name).ok_or_else(|| match absent::reason(name) {
        Some(reason) => KnobError::Absent { name: name.to_owned(), reason },
        None => KnobError::Unknown(name.to_owned()),
    })
}

/// Last sentence of the error for the unknown knob `wrong`: a similar name, or the command that
/// lists all knobs.
fn meant(wrong: &str) -> String {
    match nearest(wrong, TABLE.iter().map(|row| row.name)) {
        Some(near) => format!("did you mean {near}?"),
        None => "weft set --help lists all".to_owned(),
    }
}

/// The known name that is most similar to a wrong one; `None` if none is similar enough: at most a
/// quarter of the letters may differ, or the wrong name is the beginning of the known one.
#[must_use]
pub fn nearest<'a>(wrong: &str, names: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let near = names.into_iter().map(|name| (strsim::damerau_levenshtein(wrong, name), name));
    let begins_so = |name: &str| wrong.len() > 2 && name.starts_with(wrong);
    near.min()
        .filter(|(distance, name)| *distance <= wrong.len().div_ceil(4) || begins_so(name))
        .map(|(_, name)| name)
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
            ("sync_speed_min", "0"),
            ("sync_speed_max", "2147483648"),
        ];
        for (name, value) in refused {
            let error = knobs.parse(name, value).unwrap_err();
            assert!(matches!(error, KnobError::Value { .. }), "{name}={value}: {error}");
        }
        for (name, value) in [("stripe_cache_size", "17"), ("stripe_cache_size", "32768")] {
            assert!(knobs.parse(name, value).is_ok(), "{name}={value}");
        }
        assert!(matches!(knobs.parse("stripe_cash", "1"), Err(KnobError::Unknown(_))));
        for (name, system) in [("sync_speed_min", "1000"), ("sync_speed_max", "200000")] {
            let mut tuned = knobs;
            tuned.set(knobs.parse(name, "7").unwrap());
            assert_eq!(tuned.show(name).as_deref(), Some("7"));
            tuned.set(knobs.parse(name, "system").unwrap());
            assert_eq!(tuned.show(name).as_deref(), Some(system), "as of an untuned system");
        }
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

    /// Knobs of queues are those of the block layer, weft's own knob for the scheduler, and the
    /// depth of a member.
    #[test]
    fn knobs_of_queues_are_known_as_such() {
        let knobs = Knobs::default();
        for row in TABLE {
            let knob = knobs.parse(row.name, &knobs.show(row.name).unwrap()).unwrap();
            let of_scheduler = row.origin.starts_with("weft (");
            let of_queue = row.origin.starts_with("block queue") || row.name == "queue_depth";
            let expected = of_scheduler || of_queue;
            assert_eq!(knob.is_of_queues(), expected, "{}", row.name);
        }
    }

    /// Knobs of the write-back cache are those that Linux has in `vm` and `bdi`, and the knob for
    /// the throttle.
    #[test]
    fn knobs_of_the_write_back_cache_are_known_as_such() {
        let knobs = Knobs::default();
        for row in TABLE {
            let knob = knobs.parse(row.name, &knobs.show(row.name).unwrap()).unwrap();
            let (of_pool, of_bdi) = (row.origin == "vm", row.origin == "bdi");
            let is_throttle = row.name == "dirty_throttle";
            assert_eq!(knob.is_of_pool(), of_pool || is_throttle, "{}", row.name);
            assert_eq!(knob.is_of_cache(), of_pool || of_bdi || is_throttle, "{}", row.name);
        }
    }

    #[test]
    fn a_live_volume_takes_all_values_but_historic_ones() {
        let knobs = Knobs::default();
        let mut count = 0;
        for row in TABLE {
            let range = row.range();
            assert_eq!(row.range_live() != range, !row.historic.is_empty(), "{}", row.name);
            // Each historic value has a word of its own in the range, so that no other text means
            // the same.
            for (value, experiment) in row.historic {
                assert!(range.split(" | ").any(|word| word == *value), "{}={value}", row.name);
                assert!(knobs.parse(row.name, value).is_ok(), "{}={value}", row.name);
                let error = knobs.parse_live(row.name, value).unwrap_err();
                let KnobError::Historic { experiment: named, .. } = &error else {
                    panic!("{error}");
                };
                assert_eq!(named, experiment);
                count += 1;
            }
            for word in row.range_live().split(" | ").filter(|_| !row.historic.is_empty()) {
                assert!(knobs.parse_live(row.name, word).is_ok(), "{}={word}", row.name);
            }
            for defaults in [knobs, Knobs::md()] {
                let shown = defaults.show(row.name).unwrap();
                assert!(defaults.parse_live(row.name, &shown).is_ok(), "{}={shown}", row.name);
            }
        }
        assert_eq!(count, 10);
        let error = knobs.parse_live("activation", "at_unplug").unwrap_err().to_string();
        let says = "activation: found at_unplug, which only simulations take \
                    (weft reproduce 000), expected each_turn";
        assert_eq!(error, says);
        assert!(matches!(knobs.parse_live("activation", "x"), Err(KnobError::Value { .. })));
    }

    #[test]
    fn tokens_of_a_queue_have_the_kernels_range() {
        let knobs = Knobs::md();
        for (value, taken) in
            [("0", true), ("1", false), ("3", false), ("4", true), ("2048", true), ("2049", false)]
        {
            assert_eq!(knobs.parse("nr_requests", value).is_ok(), taken, "{value}");
        }
        for (name, value) in [("nomerges", "3"), ("rotational", "2"), ("async_depth", "-1")] {
            assert!(knobs.parse(name, value).is_err(), "{name}={value}");
        }
    }

    #[test]
    fn a_smaller_cache_lowers_the_threshold_with_it() {
        let mut knobs = Knobs::default();
        knobs.set(knobs.parse("preread_bypass_threshold", "200").unwrap());
        knobs.set(knobs.parse("stripe_cache_size", "64").unwrap());
        assert_eq!(knobs.preread_bypass_threshold, 64);
    }
}
