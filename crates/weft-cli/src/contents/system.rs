//! Recognition of arrays that hold the system of a NAS: its own programs and settings, and its swap
//! space.
//!
//! Synology and QNAP put small partitions at the start of every disk and make RAID 1 arrays of
//! them, with the system and with swap. A user who looks for files needs neither, and copies of the
//! system are never complete because of its device files. An array counts as one of these if
//!
//! - it is a RAID 1 of parts of disks of at most [`SYSTEM_MAX`], and holds swap or an ext file
//!   system;
//! - another array is [`TIMES`] as large or larger, and every disk with a part of the larger array
//!   also has a part of this array. One disk may lack its part, because the superblock of the part
//!   may be damaged, if this array has a slot for each disk: a NAS makes slots for all its bays.
//!
//! An array is therefore no system if it is the only one, if the other arrays are on other disks,
//! or if they are of about the same size. Arrays that are left out are always named, and can be
//! asked for.

use std::collections::BTreeSet;

use weft_files::probe::Kind;
use weft_ondisk::Level;

/// Largest size in bytes of an array of the system: Synology makes them of 2.4 to 8 GiB, QNAP up to
/// 8 GB.
const SYSTEM_MAX: u64 = 16 << 30;

/// Smallest ratio of the size of an array with data to that of an array of the system.
const TIMES: u64 = 4;

/// Properties of an array on which the decision depends.
#[derive(Clone, Debug)]
pub(super) struct FoundArray {
    /// Name of the array's place.
    pub(super) name: String,
    pub(super) level: Level,
    /// Size in bytes.
    pub(super) size: u64,
    /// Number of its members when none is missing.
    pub(super) slots: usize,
    /// Disks on which members of it were found.
    pub(super) disks: BTreeSet<String>,
    /// Whether all its members are parts of disks: partitions, or found where a partition was.
    pub(super) is_of_parts: bool,
}

/// Whether `array`, with this content, holds the system of a NAS, judged by all arrays that were
/// found.
pub(super) fn is_system(array: &FoundArray, holds: &Kind, all: &[FoundArray]) -> bool {
    let is_small = array.level.is_mirror()
        && array.is_of_parts
        && array.size <= SYSTEM_MAX
        && matches!(holds, Kind::Ext(_) | Kind::Swap);
    let has_beside = |data: &FoundArray| {
        let lacks = data.disks.difference(&array.disks).count();
        let is_on_all = lacks == 0 || (lacks == 1 && array.slots >= data.disks.len());
        data.is_of_parts && data.size / TIMES >= array.size && is_on_all
    };
    is_small && all.iter().any(has_beside)
}

#[cfg(test)]
mod tests {
    use super::*;

    const GIB: u64 = 1 << 30;

    fn shape(name: &str, level: Level, size: u64, disks: &[&str]) -> FoundArray {
        let slots = disks.len();
        let disks = disks.iter().map(|disk| (*disk).to_owned()).collect();
        FoundArray { name: name.to_owned(), level, size, slots, disks, is_of_parts: true }
    }

    #[test]
    fn small_mirrors_beside_much_larger_data_on_the_same_disks_are_the_system() {
        let system = shape("0", Level::Raid1, 2 * GIB, &["a", "b", "c"]);
        let swap = shape("1", Level::Raid1, 2 * GIB, &["a", "b", "c"]);
        let data = shape("2", Level::Raid5, 8000 * GIB, &["a", "b", "c"]);
        let more = shape("3", Level::Raid1, 1000 * GIB, &["b", "c"]);
        let all = [system.clone(), swap.clone(), data.clone(), more.clone()];
        assert!(is_system(&swap, &Kind::Swap, &all));
        assert!(!is_system(&data, &Kind::Swap, &all) && !is_system(&more, &Kind::Swap, &all));

        let alone = [system.clone(), swap.clone()];
        assert!(!is_system(&swap, &Kind::Swap, &alone), "nothing else is there");
        let elsewhere = shape("2", Level::Raid5, 8000 * GIB, &["d", "e", "f"]);
        assert!(!is_system(&swap, &Kind::Swap, &[swap.clone(), elsewhere]), "other disks");
        let two = shape("0", Level::Raid1, 2 * GIB, &["b", "c"]);
        let of_data = [data.clone()];
        assert!(!is_system(&two, &Kind::Swap, &of_data), "a mirror of two of three disks");
        let bays = FoundArray { slots: 24, ..two.clone() };
        assert!(is_system(&bays, &Kind::Swap, &of_data), "one superblock of a NAS was not found");
        let one = FoundArray { slots: 24, ..shape("0", Level::Raid1, 2 * GIB, &["c"]) };
        assert!(!is_system(&one, &Kind::Swap, &of_data), "two were not");
        let small = shape("2", Level::Raid5, 6 * GIB, &["a", "b", "c"]);
        assert!(!is_system(&swap, &Kind::Swap, &[swap.clone(), small]), "of like size");
        assert!(!is_system(&swap, &Kind::LvmPhysical, &all), "a volume group");
        let whole = FoundArray { is_of_parts: false, ..swap.clone() };
        assert!(!is_system(&whole, &Kind::Swap, &all), "whole disks");
        let large = shape("1", Level::Raid1, 17 * GIB, &["a", "b", "c"]);
        assert!(!is_system(&large, &Kind::Swap, &all), "a large one");
        let other = shape("1", Level::Raid5, 2 * GIB, &["a", "b", "c"]);
        assert!(!is_system(&other, &Kind::Swap, &all), "no mirror");
    }
}
