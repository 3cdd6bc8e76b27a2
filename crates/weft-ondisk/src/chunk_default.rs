//! Default chunk: the chunk size of a new array when the user gives none.
//!
//! mdadm has made chunks of 512 KiB since 2010, for rotating disks. On these each chunk of a
//! request may cost a seek: with chunks of 64 KiB, four streams of reads on four disks have less
//! than half the throughput. An SSD has no seeks. With parity, a small chunk lets a request, or
//! several in flight together, fill a stripe: on four members that takes 192 KiB with chunks of 64
//! KiB, and 1.5 MiB with chunks of 512 KiB. A stripe that is not filled has to be read before it is
//! written. Therefore RAID 4, 5 and 6 of SSDs only get chunks of 64 KiB here. RAID 0 and 10 have no
//! such stripes and get mdadm's default.
//!
//! Measured  docs/grid.md, "The size of chunks": rates of every array of SSDs with 64 KiB as a
//!           multiple of those with 512 KiB, and the loads that lose
//! Source    `mdadm.h` of mdadm 4.3, 512 KiB for every level

use weft_units::Sectors;

use crate::Level;

/// Chunk of a new array; 0 sectors for a level without chunks. `only_ssds` says that every member
/// is a block device known to be an SSD.
#[must_use]
pub const fn chunk_default(level: Level, only_ssds: bool) -> Sectors {
    if !level.is_striped() {
        Sectors::ZERO
    } else if level.has_parity() && only_ssds {
        OF_SSDS
    } else {
        MDADMS
    }
}

/// mdadm's default, 512 KiB.
const MDADMS: Sectors = Sectors(1024);
/// Chunk for levels with parity, if all members are SSDs: 64 KiB.
const OF_SSDS: Sectors = Sectors(128);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arrays_with_parity_of_ssds_alone_have_64_kib_and_others_what_mdadm_gives_them() {
        for level in [Level::Raid4, Level::Raid5, Level::Raid6] {
            assert_eq!(chunk_default(level, true), Sectors(128));
            assert_eq!(chunk_default(level, false), Sectors(1024));
        }
        for only_ssds in [false, true] {
            assert_eq!(chunk_default(Level::Raid0, only_ssds), Sectors(1024));
            assert_eq!(chunk_default(Level::Raid10, only_ssds), Sectors(1024));
            assert_eq!(chunk_default(Level::Raid1, only_ssds), Sectors(0));
            assert_eq!(chunk_default(Level::Linear, only_ssds), Sectors(0));
        }
    }
}
