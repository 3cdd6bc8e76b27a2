//! Knobs of the write-back cache: limits of its pool, which all volumes share, and its throttle.
//!
//! Names, units and defaults are those of `vm.dirty_*`, except that ratios refer to the size of the
//! cache and not of memory: the whole pool may be dirty, because it holds only dirty pages. As in
//! Linux, a limit is set in bytes or as a ratio; the last setting applies, and the other one reads
//! as 0.
//!
//! Source   writeback.md §1.1, §2.6

use super::form::Form;
use crate::page_cache::{Amount, DirtyThrottle, Kernel, PAGE_BYTES};

/// Knobs of the pool of a write-back cache.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct PoolKnobs {
    /// Dirty limit: largest number of pages of the pool that may be dirty or under writeback.
    pub dirty: Amount,
    /// Background threshold: number of dirty pages above which write-back starts at once.
    pub background: Amount,
    /// Age in 1/100 s from which dirty pages are written in any case.
    pub expire_centisecs: u32,
    /// Interval in 1/100 s of the search for pages that have been dirty for `expire_centisecs`.
    /// Zero disables the search.
    pub writeback_centisecs: u32,
    /// Rule that throttles clients which write faster than the members. `None`: clients write at
    /// the speed of memory up to the limit, and then wait for room.
    pub throttle: Option<Kernel>,
}

impl Default for PoolKnobs {
    /// Default knobs: the whole cache may be dirty, and write-back starts above one half, or after
    /// 30 s.
    fn default() -> Self {
        Self {
            dirty: Amount::Percent(100),
            background: Amount::Percent(50),
            expire_centisecs: 3000,
            writeback_centisecs: 500,
            throttle: Some(THROTTLE),
        }
    }
}

impl PoolKnobs {
    /// Kernel with the rules that the pool follows. Without a throttle only the rules for flushers
    /// apply.
    #[must_use]
    pub fn kernel(&self) -> Kernel {
        self.throttle.unwrap_or(UNTHROTTLED)
    }
}

/// Throttle of the pool if none is set.
const THROTTLE: Kernel = Kernel::Weft;

/// Kernel with the rules for flushers that apply if no client is throttled. [`Kernel::Weft`] is not
/// suitable, because its turns depend on waiting writers.
const UNTHROTTLED: Kernel = Kernel::IoLess(DirtyThrottle::Mainline6_12);

/// Form of a limit in bytes, at least `LEAST`. A limit that was set as a ratio reads as 0 in bytes,
/// so setting 0 leaves it unchanged.
pub(super) const fn limit_bytes<const LEAST: u64>() -> Form<Amount> {
    Form {
        unit: "bytes",
        range: || format!("{LEAST}.."),
        parse: |text, present, _| match (text.parse().ok()?, present) {
            (0, Amount::Percent(_)) => Some(present),
            (bytes, _) if bytes >= LEAST => Some(Amount::Bytes(bytes)),
            _ => None,
        },
        show: |amount| match amount {
            Amount::Bytes(bytes) => bytes.to_string(),
            Amount::Percent(_) => "0".into(),
        },
    }
}

/// Form of a limit in percent. A limit that was set in bytes reads as 0 percent, so setting 0
/// leaves it unchanged.
pub(super) const fn limit_ratio() -> Form<Amount> {
    Form {
        unit: "percent",
        range: || "1..=100".into(),
        parse: |text, present, _| match (text.parse().ok()?, present) {
            (0, Amount::Bytes(_)) => Some(present),
            (percent @ 1..=100, _) => Some(Amount::Percent(percent)),
            _ => None,
        },
        show: |amount| match amount {
            Amount::Bytes(_) => "0".into(),
            Amount::Percent(percent) => percent.to_string(),
        },
    }
}

/// Form of a throttle: the name of the kernel that has this throttle, or `none`.
pub(super) const fn throttle() -> Form<Option<Kernel>> {
    Form {
        unit: "word",
        range: || Kernel::NAMES.map(|(name, _)| name).join(" | ") + " | none",
        parse: |text, _, _| {
            if text == "none" { Some(None) } else { Kernel::named(text).map(Some) }
        },
        show: |throttle| throttle_name(throttle).to_owned(),
    }
}

/// Text form of the throttle `throttle`; `none` for `None`.
#[must_use]
pub fn throttle_name(throttle: Option<Kernel>) -> &'static str {
    throttle.map_or("none", Kernel::name)
}

/// The smallest `dirty_bytes`, as in Linux: two pages.
pub(super) const DIRTY_BYTES_MIN: u64 = 2 * PAGE_BYTES;

#[cfg(test)]
mod tests {
    use super::super::{Knob, Knobs};
    use super::*;

    #[test]
    fn a_limit_is_bytes_or_a_ratio_whichever_was_set_last() {
        let mut knobs = Knobs::default();
        let set = |knobs: &mut Knobs, name: &str, value: &str| {
            knobs.parse(name, value).map(|knob| knobs.set(knob)).is_ok()
        };
        assert!(set(&mut knobs, "dirty_bytes", "1048576"));
        let shown = |knobs: &Knobs, name: &str| knobs.show(name).unwrap();
        assert_eq!(shown(&knobs, "dirty_bytes"), "1048576");
        assert_eq!(shown(&knobs, "dirty_ratio"), "0");
        assert!(set(&mut knobs, "dirty_ratio", "0"), "the present value");
        assert_eq!(shown(&knobs, "dirty_bytes"), "1048576");
        assert!(!set(&mut knobs, "dirty_bytes", "0") && !set(&mut knobs, "dirty_bytes", "8191"));
        assert!(set(&mut knobs, "dirty_ratio", "40"));
        assert_eq!(shown(&knobs, "dirty_bytes"), "0");
        assert!(!set(&mut knobs, "dirty_ratio", "0") && !set(&mut knobs, "dirty_ratio", "101"));
        assert_eq!(shown(&knobs, "dirty_background_ratio"), "50", "each limit for itself");
    }

    #[test]
    fn a_throttle_has_the_name_of_its_kernel() {
        let knobs = Knobs::default();
        for (name, kernel) in Kernel::NAMES {
            let knob = knobs.parse("dirty_throttle", name).unwrap();
            assert_eq!(knob, Knob::DirtyThrottle(Some(kernel)));
        }
        assert_eq!(knobs.parse("dirty_throttle", "none"), Ok(Knob::DirtyThrottle(None)));
        let error = knobs.parse("dirty_throttle", "3.2").unwrap_err().to_string();
        for (name, _) in Kernel::NAMES {
            assert!(error.contains(name), "{error} lacks {name}");
        }
    }
}
