//! Superblocks of a new array, of each version.
//!
//! `weft-ondisk` makes superblocks of versions 1.0 to 1.2. Superblocks of version 0.90 are
//! converted here from version 1.0, because weft serves arrays with such superblocks but creates
//! none.

use weft_ondisk::{
    DISKS_090_MAX, Disk090, NewArray, NewBitmap, NewMember, ROLES_MAX, ResyncOffset, Role, Super1,
    Super090, Superblock, Uuid, Version,
};
use weft_units::Sectors;

use super::device_uuid;
use crate::disk::Disk;
use crate::options::Options;

/// Size of a member: its data, and space before and behind it. md leaves 128 MiB before the data of
/// large members.
pub(super) fn member_size(options: &Options, member: usize) -> Sectors {
    let data = options.data_of(member);
    data + Sectors(if data.0 > 1 << 24 { 1 << 19 } else { 16_384 })
}

/// Disks of a new array, one for each of the superblocks.
pub(super) fn disks(options: &Options, supers: &[Superblock]) -> Vec<Disk> {
    let disk = |(number, sb): (usize, &Superblock)| {
        let first = sb.data_offset().0;
        let mut disk = Disk::new(member_size(options, number), options.logical_block)
            .carrying(first..first + options.data_of(number).0, options.payload)
            .failing_by_chance(options.seed.wrapping_add(number as u64));
        disk.poke(sb.super_offset().0, &sb.encode_for(4096));
        if let Ok(Some(room)) = sb.bitmap_room(disk.whole_size()) {
            let bytes = new_bitmap(options).encode(sb);
            disk.poke(room.start.0, &bytes.unwrap_or_else(|error| panic!("{error}")));
        }
        disk.faults.tears = options.torn_writes;
        disk
    };
    supers.iter().enumerate().map(disk).collect()
}

/// The superblocks of all members and spares, one each. `first` is the number of the first disk.
pub(super) fn superblocks(options: &Options, first: usize) -> Vec<Superblock> {
    let count = options.members + options.spares;
    let member = |number: usize| NewMember {
        size: member_size(options, number),
        device_uuid: device_uuid(first + number),
    };
    let mut array = NewArray::new(options.level, (0..options.members).map(member).collect());
    array.spares = (options.members..count).map(member).collect();
    // Data begins at the same sector in versions 1.0 and 0.90, and ends before the superblock of
    // either version.
    array.minor = options.version.minor().unwrap_or(weft_ondisk::Minor::V1_0);
    array.layout = options.layout;
    array.chunk = options.level.is_striped().then_some(options.chunk);
    array.size = options.level.uses_size().then(|| options.data_of(0));
    array.set_uuid = Uuid([7 + first as u8; 16]);
    array.name = "sim".to_owned();
    array.assume_clean = options.assume_clean;
    array.force = true;
    array.bitmap = options.bitmap.map(|_| new_bitmap(options));
    if options.bitmap.is_some() && options.version == Version::V0_90 {
        // The bitmap lies behind the superblock of 0.90, but before that of 1.0.
        array.bitmap = None;
    }
    let mut supers = array.plan().unwrap_or_else(|error| panic!("{options:?}: {error}"));
    if options.version == Version::V0_90 {
        let bitmap = if options.bitmap.is_some() { Super090::BITMAP_PRESENT } else { 0 };
        let old = |sb: &Super1| {
            let mut old = old(sb, &supers, member_size(options, 0));
            old.state |= bitmap;
            old.into()
        };
        return supers.iter().map(old).collect();
    }
    for (number, sb) in supers.iter_mut().enumerate() {
        if !options.level.uses_size() {
            sb.data_size = options.data_of(number);
        }
        if options.write_mostly.contains(&number) {
            sb.devflags |= Super1::WRITE_MOSTLY;
        }
        number_from(sb, options.first_number);
    }
    supers.into_iter().map(Superblock::from).collect()
}

/// Bitmap of a new array. Its bits are cleared after one second, the shortest delay.
pub(super) fn new_bitmap(options: &Options) -> NewBitmap {
    NewBitmap { chunk: options.bitmap, daemon_sleep: 1 }
}

/// Renumbers members from `first` on, as if `first` other members had been added and removed
/// before. Numbers above 127 make a superblock longer than a sector.
fn number_from(sb: &mut Super1, first: u16) {
    let vacant = Role::Faulty.code();
    sb.roles.splice(0..0, (0..first).map(|_| vacant));
    sb.roles.truncate(ROLES_MAX as usize);
    sb.dev_number += u32::from(first);
}

/// Superblock of version 0.90 for the member that `sb` describes. `all` are the superblocks of all
/// members.
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
        super_offset: Super090::position(member_size).expect("a member has room for it"),
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
