//! Tests of very large arrays: every sector is at its place.
//!
//! Members have 3 TiB, 17 TiB, more than 2^32 sectors and nearly the largest size of an array. The
//! simulated disk stores only what was written.
#![allow(clippy::cast_possible_truncation, reason = "numbers of a test are small")]

use crate::checker::Record;
use crate::checker::parity::{self, Bytes};
use crate::{BLOCK, CutMode, Options, Rig, chunk_kib};
use weft_engine::{MemberState, SyncAction};
use weft_ondisk::{Level, Minor, NewArray, Super1};
use weft_units::Sectors;

const TIB: u64 = 1 << 40;
const CHUNK: u64 = 64 << 10;

/// Bytes of each member: small sizes, sizes around 2^32 sectors, and 2^60 bytes.
const SIZES: [u64; 5] = [3 * TIB, 17 * TIB, (512 << 32) - CHUNK, (512 << 32) + CHUNK, 1 << 60];

fn rig(level: Level, members: usize, minor: Minor, size: u64) -> Rig {
    Rig::of(Options {
        full_stripes: size / CHUNK,
        version: minor.into(),
        ..Options::new(level, members, chunk_kib(CHUNK >> 10))
    })
}

/// Byte offsets at which arithmetic in too narrow integers would give wrong results: around the
/// powers of two of bytes, sectors and blocks, counted on a member and over the whole array, as far
/// as they lie in the array.
fn places(rig: &Rig) -> Vec<u64> {
    let data = u64::from(rig.array.geometry().data_members());
    let size = rig.size();
    let mut places = vec![0, CHUNK * data - BLOCK, size / 2, size - 4 * BLOCK];
    for power in [31, 32, 40, 41, 43, 44, 52, 59] {
        let at: u64 = 1 << power;
        // An offset is taken as one on every member, and as one in the array.
        places.extend([at, at - BLOCK, at.saturating_mul(data), at.saturating_mul(data) - BLOCK]);
    }
    places.retain(|at| *at + 4 * BLOCK <= size);
    places.sort_unstable();
    places.dedup();
    places
}

/// Asserts that the parity of everything that was written is right.
fn assert_parity(rig: &Rig) {
    let columns = rig.columns_of_interest();
    let columns = columns.iter().copied();
    let scrub = parity::scrub(&rig.disks, &rig.array, &rig.record, columns, Bytes::Visible);
    assert!(scrub.wrong.is_empty() && scrub.written > 20, "{scrub:?}");
}

fn fill(rig: &mut Rig) -> Vec<u64> {
    let places = places(rig);
    assert!(places.len() > 8, "{places:?}");
    for at in &places {
        rig.put(*at, 3 * BLOCK);
        rig.finish();
        rig.put(*at + 512, 1024);
        rig.finish();
    }
    let flush = rig.flush();
    rig.wait(flush).unwrap();
    places
}

#[test]
fn what_is_written_far_out_is_read_there_degraded_and_after_a_cut() {
    for size in SIZES {
        for (level, members) in [(Level::Raid4, 3), (Level::Raid5, 4), (Level::Raid6, 5)] {
            for minor in [Minor::V1_0, Minor::V1_2] {
                let mut rig = rig(level, members, minor, size);
                assert_eq!(rig.array.layout.member_size().bytes().0, size);
                let places = fill(&mut rig);
                rig.verify();
                assert_parity(&rig);
                let held: usize = rig.disks.iter().map(|disk| disk.pages().count()).sum();
                assert!(held < places.len() * 40, "{held} pages for {} places", places.len());
                rig.cut(CutMode::Subset);
                rig.recover();
                rig.sync(SyncAction::Frozen).unwrap();
                rig.verify();
                rig.fail_disk(1);
                rig.verify();
                for at in &places {
                    rig.store(*at + BLOCK, 700).unwrap();
                }
                rig.verify();
                rig.stop();
            }
        }
    }
}

/// A member that was rebuilt up to an offset shortly before its end is rebuilt only from this
/// offset on.
#[test]
fn the_last_part_of_a_rebuild_is_done_and_no_other() {
    for size in SIZES {
        for (level, members) in [(Level::Raid5, 4), (Level::Raid6, 5)] {
            for minor in [Minor::V1_0, Minor::V1_2] {
                let mut rig = rig(level, members, minor, size);
                fill(&mut rig);
                rig.stop();
                let from = Sectors(size / 512 - 4 * CHUNK / 512);
                let (disk, device) = (1, &mut rig.disks[1]);
                let at = minor.position(device.size()).expect("there is room for a superblock");
                let mut sb = Super1::parse(&device.peek(at.0, 8), minor, device.size()).unwrap();
                sb.set_recovery_offset(Some(from));
                device.poke(at.0, &sb.encode());
                // Content from the offset on is garbage; below it is right.
                for sector in from.0..size / 512 {
                    device.poke(sb.data_offset.0 + sector, &[0xbd; 512]);
                }
                rig.record = Record::read(&rig.disks, minor);
                rig.recover();
                rig.until_idle();
                let volume = rig.volume();
                assert_eq!(volume.members[disk].state, MemberState::InSync);
                assert_eq!(volume.degraded, 0);
                let read = volume.members[0].sectors_read;
                assert!(read <= 2 * (size / 512 - from.0), "{read} sectors read for the rest");
                rig.verify();
                assert_parity(&rig);
            }
        }
    }
}

fn plan(level: Level, members: u8, sectors: u64) -> Result<Vec<Super1>, String> {
    let array = NewArray::in_sync(level, members.into(), Sectors(sectors));
    array.plan().map_err(|error| error.to_string())
}

/// The largest possible array can be created; a larger one is refused with a message, and nothing
/// overflows.
#[test]
fn sizes_beyond_all_numbers_are_refused() {
    // 2^63 bytes over all data members, and sizes around that.
    let most = (1u64 << 54) - (1 << 30);
    assert!(plan(Level::Raid5, 3, most / 2).is_ok());
    for (members, sectors) in
        [(3, u64::MAX), (3, u64::MAX / 2), (3, 1 << 56), (3, 1 << 55), (8, 1 << 53), (200, 1 << 50)]
    {
        match plan(Level::Raid5, members, sectors) {
            Ok(made) => panic!("{members} members of {sectors} sectors: {:?}", made[0].size),
            Err(error) => assert!(error.len() > 20, "{error}"),
        }
    }
}
