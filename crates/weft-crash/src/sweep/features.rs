//! Features of scripts, and counts of the scripts that combine two of them.
//!
//! A sweep that draws two features often but never together does not test their combination, where
//! bugs often are. Scripts are therefore counted by the pairs of features that they combine, and
//! `sweep fresh` requires a minimum for each of [`PAIRS`].

use weft_engine::knobs::{FlushRule, SchedulerKind};
use weft_ondisk::Redundancy;

use crate::script::{Script, ScriptStep};

/// A feature of a script.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Feature {
    /// A member is absent at one start and is there again at the next.
    Absence,
    /// A bare volume, which is a disk served unchanged, is beside the array.
    Bare,
    /// bfq orders the requests of members.
    Bfq,
    /// The array has a write-intent bitmap.
    Bitmap,
    /// A bitmap is added or removed at run time.
    BitmapChange,
    /// A write-back cache lies above the array.
    Cache,
    /// Knobs of the write-back cache change at run time.
    CacheKnobs,
    /// Clients differ in class, weight and group.
    Classes,
    /// The power is cut or the process crashes.
    Cuts,
    /// The write-back cache is drained.
    Drains,
    /// Drive models determine when requests are done.
    Drives,
    /// The array is RAID 10 with far or offset copies.
    Far,
    /// The array is RAID 10 with far or offset copies in sets of members.
    FarSets,
    /// The flush rule is another than `batch`.
    FlushRule,
    /// kyber orders the requests of members.
    Kyber,
    /// mq-deadline orders the requests of members.
    MqDeadline,
    /// The array is a mirror with more recovery units than may be in flight at once, so that a cut
    /// can hit the middle of a recovery.
    Middle,
    /// A knob of a single member's queue is set at run time.
    OneQueue,
    /// The level has parity.
    Parity,
    /// The pace of a resync changes at run time.
    Pace,
    /// Members leave and are re-added.
    ReAdd,
    /// The knob `read_around`, the time after which reads avoid a member that stalls, changes at
    /// run time.
    ReadAround,
    /// A second array, with members of its own, is beside the array.
    TwoArrays,
    /// Drives of different models are in one array.
    UnlikeDrives,
}

use Feature as F;

/// Pairs of features that `sweep fresh` counts, each with the smallest number of scripts required.
pub const PAIRS: [(Feature, Feature, u64); 49] = [
    (F::Bitmap, F::MqDeadline, 50),
    (F::Bitmap, F::Bfq, 50),
    (F::Bitmap, F::Kyber, 50),
    (F::Bitmap, F::Cache, 150),
    (F::Bitmap, F::FlushRule, 100),
    (F::Bitmap, F::Classes, 100),
    (F::Bitmap, F::Far, 50),
    (F::Bitmap, F::FarSets, 10),
    (F::Bitmap, F::OneQueue, 100),
    (F::BitmapChange, F::Cache, 50),
    (F::BitmapChange, F::Bfq, 25),
    (F::BitmapChange, F::Cuts, 100),
    (F::BitmapChange, F::ReAdd, 50),
    (F::Cache, F::Bfq, 50),
    (F::Cache, F::MqDeadline, 50),
    (F::Cache, F::Kyber, 50),
    (F::Cache, F::Far, 30),
    (F::Cache, F::FarSets, 5),
    (F::Cache, F::FlushRule, 100),
    (F::CacheKnobs, F::Parity, 50),
    (F::CacheKnobs, F::Cuts, 100),
    (F::Pace, F::ReAdd, 25),
    (F::ReadAround, F::Cache, 25),
    (F::Middle, F::ReAdd, 5),
    (F::Middle, F::Cache, 5),
    (F::FarSets, F::Cuts, 20),
    (F::Drains, F::Cuts, 300),
    (F::Drains, F::Parity, 300),
    (F::Drains, F::Bitmap, 100),
    (F::Bare, F::Cache, 100),
    (F::Bare, F::Cuts, 100),
    (F::Bare, F::Bfq, 20),
    (F::Bare, F::FlushRule, 100),
    (F::Absence, F::Bitmap, 50),
    (F::Absence, F::Parity, 50),
    (F::Drives, F::Bfq, 25),
    (F::Drives, F::Bitmap, 50),
    (F::Drives, F::Cache, 50),
    (F::Drives, F::Classes, 50),
    (F::Drives, F::FlushRule, 100),
    (F::Drives, F::Kyber, 25),
    (F::Drives, F::MqDeadline, 25),
    (F::Drives, F::Parity, 50),
    (F::UnlikeDrives, F::Cuts, 100),
    (F::UnlikeDrives, F::Parity, 25),
    (F::TwoArrays, F::Cache, 100),
    (F::TwoArrays, F::Cuts, 100),
    (F::TwoArrays, F::Drains, 50),
    (F::TwoArrays, F::Parity, 50),
];

/// Number of scripts that combine each of [`PAIRS`], in their order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Met(pub [u64; PAIRS.len()]);

impl Default for Met {
    fn default() -> Self {
        Self([0; PAIRS.len()])
    }
}

impl Met {
    /// A count of 1 for each pair that a script combines.
    #[must_use]
    pub fn of(script: &Script) -> Self {
        let met =
            |(a, b, _): (Feature, Feature, u64)| u64::from(a.is_in(script) && b.is_in(script));
        Self(PAIRS.map(met))
    }

    /// Adds the counts of another run.
    pub fn merge(&mut self, other: Self) {
        self.0.iter_mut().zip(other.0).for_each(|(count, more)| *count += more);
    }
}

impl Feature {
    /// Feature of scripts that use this scheduler; `None` for the scheduler `none`, which counts as
    /// no feature.
    #[must_use]
    pub const fn of_scheduler(kind: SchedulerKind) -> Option<Self> {
        match kind {
            SchedulerKind::None => None,
            SchedulerKind::MqDeadline => Some(Self::MqDeadline),
            SchedulerKind::Kyber => Some(Self::Kyber),
            SchedulerKind::Bfq => Some(Self::Bfq),
        }
    }

    /// Whether a script has the feature.
    #[must_use]
    pub fn is_in(self, script: &Script) -> bool {
        let (options, knobs) = (&script.options, &script.options.knobs);
        let some = |matches: &dyn Fn(&ScriptStep) -> bool| script.steps.iter().any(matches);
        let sets = |names: &[&str]| {
            some(&|step| matches!(step, ScriptStep::Set(name, _) if names.contains(name)))
        };
        let layout =
            options.layout.filter(|_| options.level.row().redundancy == Redundancy::Copies);
        match self {
            Self::Absence => some(&|step| matches!(step, ScriptStep::Away(_))),
            Self::Bare => options.bare,
            Self::Bfq | Self::Kyber | Self::MqDeadline => {
                Self::of_scheduler(knobs.scheduler) == Some(self)
            }
            Self::Bitmap => options.bitmap.is_some(),
            Self::BitmapChange => some(&|step| matches!(step, ScriptStep::Bitmap(_))),
            Self::Cache => options.write_back.is_some(),
            Self::CacheKnobs => Self::Cache.is_in(script) && sets(&CACHE_KNOBS),
            Self::Classes => options.classes,
            Self::Cuts => some(&|step| {
                matches!(step, ScriptStep::Cut(_) | ScriptStep::CutAgain { .. } | ScriptStep::Kill)
            }),
            Self::Drains => some(&|step| matches!(step, ScriptStep::Drain(_))),
            Self::Drives => !options.drives.is_empty(),
            Self::Far => layout.is_some_and(|layout| layout >> 8 & 0xff > 1),
            Self::FarSets => layout.is_some_and(|layout| layout & 0x6_0000 != 0),
            Self::FlushRule => knobs.flush_batch != FlushRule::Batch,
            Self::Middle => {
                let unit = match options.level.row().redundancy {
                    Redundancy::Mirror => 128,
                    Redundancy::Copies => options.chunk.0.min(128),
                    Redundancy::None | Redundancy::Parity(_) => return false,
                };
                options.data_of(0).0 / unit > 32
            }
            Self::OneQueue => some(&|step| matches!(step, ScriptStep::SetQueue(..))),
            Self::Parity => options.parities() > 0,
            Self::Pace => sets(&["sync_pace", "sync_speed_min", "sync_speed_max"]),
            Self::ReAdd => some(&|step| matches!(step, ScriptStep::ReAdd(_))),
            Self::ReadAround => sets(&["read_around"]),
            Self::TwoArrays => options.beside > 0,
            Self::UnlikeDrives => options.drives.iter().any(|name| *name != options.drives[0]),
        }
    }
}

const CACHE_KNOBS: [&str; 9] = [
    "dirty_background_bytes",
    "dirty_background_ratio",
    "dirty_bytes",
    "dirty_expire_centisecs",
    "dirty_ratio",
    "dirty_throttle",
    "dirty_writeback_centisecs",
    "max_ratio",
    "strictlimit",
];

#[cfg(test)]
mod tests {
    use super::*;
    use crate::script::Profile;

    #[test]
    fn every_scheduler_is_counted_beside_a_bitmap_and_a_cache() {
        for scheduler in SchedulerKind::ALL.into_iter().filter_map(Feature::of_scheduler) {
            for other in [F::Bitmap, F::Cache] {
                let counted = PAIRS.iter().any(|pair| (pair.0, pair.1) == (other, scheduler));
                assert!(counted, "{other:?} and {scheduler:?}");
            }
        }
    }

    /// The older profiles never combine a bitmap with a scheduler. Every pair of [`PAIRS`] is drawn
    /// by at least one of the mixed profiles and the profiles with drains, a bare volume, absences,
    /// drives or two arrays.
    #[test]
    fn what_never_met_before_meets_in_mixed_scripts() {
        let count = |profiles: &[Profile]| {
            let mut met = Met::default();
            for profile in profiles {
                (0..100).for_each(|seed| met.merge(Met::of(&Script::generate(seed, *profile))));
            }
            met
        };
        let before: Vec<Profile> = Profile::ALL.into_iter().chain(Profile::BITMAPS).collect();
        let since = Profile::DRAINS.into_iter().chain(Profile::MIXED).chain(Profile::BARES);
        let since = since.chain(Profile::ABSENCES).chain(Profile::DRIVES);
        let since: Vec<Profile> = since.chain(Profile::TWO_ARRAYS).collect();
        let (before, mixed) = (count(&before), count(&since));
        assert_eq!(before.0[..3], [0; 3], "a bitmap beside a scheduler");
        for ((a, b, _), met) in PAIRS.into_iter().zip(mixed.0) {
            assert!(met > 0, "{a:?} and {b:?} never meet in 2,400 scripts");
        }
    }
}
