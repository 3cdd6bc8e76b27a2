//! Superblocks of a new array, of each version.
//!
//! `weft-ondisk` makes those of 1.0 to 1.2; 0.90 is made here from 1.0, since weft serves such
//! arrays and creates none.

use weft_ondisk::{
    DISKS_090_MAX, Disk090, NewArray, NewMember, ROLES_MAX, ResyncOffset, Role, Super1, Super090,
    Superblock, Uuid, Version,
};
use weft_units::Sectors;

use super::device_uuid;
use crate::options::Options;

/// One of each member and spare, of members of this size with so much data.
pub(super) fn superblocks(
    options: &Options,
    member_size: Sectors,
    data: Sectors,
) -> Vec<Superblock> {
    let count = options.members + options.spares;
    let member = |number: usize| NewMember { size: member_size, device_uuid: device_uuid(number) };
    let mut array = NewArray::new(options.level, (0..options.members).map(member).collect());
    array.spares = (options.members..count).map(member).collect();
    // Data begins where it does under 0.90, and ends before either superblock.
    array.minor = options.version.minor().unwrap_or(weft_ondisk::Minor::V1_0);
    array.layout = options.layout;
    array.chunk = Some(options.chunk);
    array.size = Some(data);
    array.set_uuid = Uuid([7; 16]);
    array.name = "sim".to_owned();
    array.assume_clean = options.assume_clean;
    array.force = true;
    let mut supers = array.plan().unwrap_or_else(|error| panic!("{options:?}: {error}"));
    if options.version == Version::V0_90 {
        return supers.iter().map(|sb| old(sb, &supers, member_size).into()).collect();
    }
    for sb in &mut supers {
        number_from(sb, options.first_number);
    }
    supers.into_iter().map(Superblock::from).collect()
}

/// Gives members their numbers from `first` on, as after so many others were added and removed.
/// Numbers above 127 make a superblock longer than a sector.
fn number_from(sb: &mut Super1, first: u16) {
    let vacant = Role::Faulty.code();
    sb.roles.splice(0..0, (0..first).map(|_| vacant));
    sb.roles.truncate(ROLES_MAX as usize);
    sb.dev_number += u32::from(first);
}

/// The same member of the same array, as 0.90 says it.
fn old(sb: &Super1, all: &[Super1], member_size: Sectors) -> Super090 {
    let mut disks = [Disk090::default(); DISKS_090_MAX as usize];
    for (other, disk) in all.iter().zip(&mut disks) {
        let number = other.dev_number;
        let state = match other.own_role() {
            Ok(Role::Active(_)) => Disk090::ACTIVE | Disk090::SYNC,
            _ => 0,
        };
        *disk = Disk090 { number, raid_disk: number, state, ..Disk090::default() };
    }
    let count = |role: fn(&Super1) -> bool| all.iter().filter(|sb| role(sb)).count() as u32;
    let active = count(|sb| matches!(sb.own_role(), Ok(Role::Active(_))));
    let mut made = Super090 {
        order: weft_ondisk::ByteOrder::Little,
        super_offset: Super090::position(member_size).expect("the member has room for it"),
        minor_version: 90,
        patch_version: 0,
        gvalid_words: 0,
        set_uuid: sb.set_uuid,
        ctime: sb.ctime.secs as u32,
        level: sb.level,
        size_kib: (sb.size.0 / 2) as u32,
        nr_disks: all.len() as u32,
        raid_disks: sb.raid_disks,
        md_minor: 0,
        not_persistent: 0,
        utime: sb.utime.secs as u32,
        state: 0,
        active_disks: active,
        working_disks: all.len() as u32,
        failed_disks: 0,
        spare_disks: all.len() as u32 - active,
        events: sb.events,
        cp_events: 0,
        recovery_cp: 0,
        reshape: weft_ondisk::Reshape090::default(),
        layout: sb.layout,
        chunk_bytes: (sb.chunk.0 * 512) as u32,
        root_pv: 0,
        root_block: 0,
        disks,
        this_disk: disks[sb.dev_number as usize],
    };
    made.set_resync_offset(sb.dirty_from().map_or(ResyncOffset::Clean, ResyncOffset::At));
    made
}
