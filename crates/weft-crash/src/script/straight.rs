//! Generator of arrays without parity: RAID 0, 1, 10 and linear, with all layouts and numbers of
//! members.
//!
//! The options drawn for an array with parity are kept, knobs included; only its shape is replaced,
//! from a random stream of its own. RAID 0 and linear have members of unequal size and no
//! redundancy, so any fault of a member exceeds the promises. RAID 0 and linear are drawn only for
//! profiles without faults, or with more faults than the level survives.

use weft_engine::layout::mirrors::Mirrors;
use weft_ondisk::layout_id::{self, Layouts};
use weft_ondisk::{Redundancy, Version};
use weft_units::Sectors;
use weft_units::rng::Rng;

use super::levels;
use crate::options::Options;

/// Replaces the drawn array by one without parity. With `mirrors` the array has redundancy, because
/// members will fail.
pub(crate) fn draw(seed: u64, mirrors: bool, options: &mut Options) {
    let mut rng = Rng::new(seed ^ 0x57a1);
    options.level = rng.pick(if mirrors { &levels::MIRRORS } else { &levels::STRAIGHT });
    (options.layout, options.more_data) = (None, Vec::new());
    match options.level.row().redundancy {
        Redundancy::Mirror => {
            options.members = rng.pick(&[2, 2, 2, 3, 4]);
            let mut balance = Rng::new(seed ^ 0xba1a);
            options.write_mostly = some_members(&mut balance, options.members);
        }
        Redundancy::Copies => {
            options.members = rng.pick(&[2, 3, 3, 4, 4, 5, 6]);
            options.layout = Some(draw_mirrors(&mut rng, options));
        }
        Redundancy::None | Redundancy::Parity(_) => draw_striped(&mut rng, options),
    }
    options.rotational = some_members(&mut Rng::new(seed ^ 0x707a), options.members);
}

/// A RAID 10 layout that is possible with this number of members and chunk.
pub(super) fn draw_mirrors(rng: &mut Rng, options: &Options) -> u32 {
    let layouts = LAYOUTS.into_iter().filter(|it| is_possible(*it, options));
    let layouts: Vec<u32> = layouts.collect();
    rng.pick(&layouts)
}

/// A random set of members: empty in half of the cases, otherwise each member with a probability of
/// one half.
pub(super) fn some_members(rng: &mut Rng, members: usize) -> Vec<usize> {
    let draws = rng.percent(50);
    (0..members).filter(|_| draws && rng.percent(50)).collect()
}

/// RAID 10 layouts of two and three copies: near, far, offset, and near and far together.
const LAYOUTS: [u32; 8] = [0x102, 0x102, 0x201, 0x1_0201, 0x103, 0x301, 0x1_0301, 0x202];

/// Whether members of this number and size can have a RAID 10 layout.
pub(super) fn is_possible(layout: u32, options: &Options) -> bool {
    let members = options.members;
    Layouts::Copies.allows(layout, members as u32)
        && Mirrors::raid10(layout, members as u16, options.chunk, options.data_of(0)).is_some()
}

/// Draws the members and the layout of a RAID 0 or linear array, with members of unequal sizes.
/// Superblocks of version 0.90 become 1.0, because 0.90 cannot record a data size that is smaller
/// than the device. There are no spares.
fn draw_striped(rng: &mut Rng, options: &mut Options) {
    options.members = rng.pick(&[2, 2, 3, 4, 5]);
    options.spares = 0;
    if options.version == Version::V0_90 {
        options.version = Version::V1_0;
    }
    if options.level.row().layouts == Layouts::Zones && rng.percent(60) {
        options.layout = Some(layout_id::RAID0_ALTERNATE);
    }
    let chunk = options.chunk;
    // The remainder of a member below one chunk is not used.
    let more = |rng: &mut Rng| Sectors(rng.pick(&[0, 0, 0, 1, 2, 5]) * chunk.0 + rng.below(2) * 8);
    options.more_data = (0..options.members).map(|_| more(rng)).collect();
}
