//! Knobs of the write-back cache: limits of its pool, which all volumes share, and its throttle.
//!
//! Names, units and defaults are those of `vm.dirty_*`, but that ratios are of the cache's size and
//! not of memory: the pool may be full of dirty pages, since it holds nothing else. As there, a
//! limit is bytes or a ratio, whichever was set last, and the other one reads as 0.
//!
//! Source   writeback.md §1.1, §2.6

use weft_units::Bytes;

use super::Knob;
use crate::page_cache::{Amount, DirtyThrottle, Kernel, PAGE_BYTES};

/// Knobs of the pool of a write-back cache.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct PoolKnobs {
    /// Most that is dirty or being written.
    pub dirty: Amount,
    /// Dirty pages above which they are written at once.
    pub background: Amount,
    /// Age in 1/100 s at which pages are written though nothing asks for room.
    pub expire_centisecs: u32,
    /// Time in 1/100 s between two looks for such pages. Zero: nobody looks.
    pub writeback_centisecs: u32,
    /// Rule by which clients that write faster than members are made to pause. Without one they
    /// write at the speed of memory up to the limit, and then wait for room.
    pub throttle: Option<Kernel>,
}

impl Default for PoolKnobs {
    /// All of the cache may be dirty, and is written from half of it on, or after 30 s.
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
    /// Puts one knob's new value in. Others than those of the pool change nothing.
    pub fn set(&mut self, knob: Knob) {
        match knob {
            Knob::Dirty(amount) => self.dirty = amount,
            Knob::DirtyBackground(amount) => self.background = amount,
            Knob::DirtyExpire(time) => self.expire_centisecs = time,
            Knob::DirtyThrottle(throttle) => self.throttle = throttle,
            Knob::DirtyWriteback(time) => self.writeback_centisecs = time,
            _ => {}
        }
    }

    /// The rules of the pool: flushers have some also where nobody is throttled.
    #[must_use]
    pub fn kernel(&self) -> Kernel {
        self.throttle.unwrap_or(UNTHROTTLED)
    }
}

/// Throttle of a cache that nobody has tuned.
const THROTTLE: Kernel = Kernel::Weft;

/// Rules of flushers where nobody is throttled: those of turns look at who waits.
const UNTHROTTLED: Kernel = Kernel::IoLess(DirtyThrottle::Mainline6_12);

/// A limit in bytes. Zero is what it reads as while a ratio holds, and no new value.
pub(super) fn bytes(text: &str, least: u64, present: Amount) -> Option<Amount> {
    match (text.parse().ok()?, present) {
        (0, Amount::Percent(_)) => Some(present),
        (bytes, _) if bytes >= least => Some(Amount::Bytes(bytes)),
        _ => None,
    }
}

/// A limit in percent. Zero is what it reads as while bytes hold, and no new value.
pub(super) fn percent(text: &str, present: Amount) -> Option<Amount> {
    match (text.parse().ok()?, present) {
        (0, Amount::Bytes(_)) => Some(present),
        (percent @ 1..=100, _) => Some(Amount::Percent(percent)),
        _ => None,
    }
}

pub(super) fn show_bytes(amount: Amount) -> String {
    match amount {
        Amount::Bytes(bytes) => bytes.to_string(),
        Amount::Percent(_) => "0".into(),
    }
}

pub(super) fn show_percent(amount: Amount) -> String {
    match amount {
        Amount::Bytes(_) => "0".into(),
        Amount::Percent(percent) => percent.to_string(),
    }
}

/// The name of a throttle in texts.
#[must_use]
pub fn throttle_name(throttle: Option<Kernel>) -> &'static str {
    throttle.map_or("none", Kernel::name)
}

/// A throttle by its name.
pub(super) fn throttle(text: &str) -> Option<Option<Kernel>> {
    if text == "none" { Some(None) } else { Kernel::named(text).map(Some) }
}

/// The smallest `dirty_bytes`, as Linux': two pages.
pub(super) const DIRTY_BYTES_MIN: Bytes = Bytes(2 * PAGE_BYTES);

#[cfg(test)]
mod tests {
    use super::super::Knobs;
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
