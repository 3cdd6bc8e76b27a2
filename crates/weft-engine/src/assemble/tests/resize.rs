//! Arrays with a change of the size or of the number of mirrors that a crash has cut off.

use weft_ondisk::Role;
use weft_units::Slot;

use super::*;

/// Members of a new array with a spare, and the sectors of data on each.
fn before(level: Level, slots: usize) -> (Vec<Candidate>, Sectors) {
    let mut array = NewArray::in_sync(level, slots, Sectors(1 << 20));
    array.set_uuid = Uuid([98; 16]);
    array.size = Some(Sectors(1 << 18));
    array.force = true;
    array.spares = array.slots.iter().flatten().take(1).cloned().collect();
    array.spares[0].device_uuid = Uuid([97; 16]);
    let mut set = Candidate::of_new(&array).unwrap();
    set.iter_mut().zip(0..).for_each(|(member, n): (_, u8)| member.member.label = format!("m{n}"));
    set.iter_mut().for_each(|candidate| edit(candidate, |superblock| superblock.events = 10));
    let size = set[0].superblock.as_ref().unwrap().size();
    (set, size)
}

/// Every set of members that have recorded a larger size. The size recorded by members with a slot
/// counts.
#[test]
fn a_size_that_not_all_members_record_is_that_of_those_which_do() {
    for (level, slots) in [(Level::Raid1, 2), (Level::Raid5, 3), (Level::Raid10, 4)] {
        for recording in 1_u8..1 << (slots + 1) {
            let (mut set, size) = before(level, slots);
            let larger = Sectors(size.0 * 2);
            for (number, candidate) in set.iter_mut().enumerate() {
                if recording & 1 << number != 0 {
                    let member_size = candidate.member.size;
                    let superblock = candidate.superblock.as_mut().unwrap();
                    superblock.set_size(larger, member_size);
                    edit(candidate, |superblock| superblock.events = 11);
                }
            }
            let assembly = assemble(&set, &Options::default()).unwrap();
            let counts = recording & ((1 << slots) - 1) != 0;
            let expected = if counts { larger } else { size };
            assert_eq!(assembly.layout.member_size(), expected, "{level} {recording:05b}");
            assert_eq!(slots_in_sync(&assembly), slots, "{level} {recording:05b}");
            assert_eq!(assembly.spares.len(), 1, "{:?}", assembly.dropped);
        }
    }
}

/// The first of three mirrors was removed. Every set of the remaining members has recorded the new
/// number of two mirrors.
#[test]
fn mirrors_move_up_although_not_all_members_record_it() {
    for recording in 0_u8..8 {
        let (mut set, size) = before(Level::Raid1, 3);
        set.remove(0);
        for (number, candidate) in set.iter_mut().enumerate() {
            edit(candidate, |superblock| superblock.set_role(0, Role::Faulty));
            if recording & 1 << number != 0 {
                candidate.superblock.as_mut().unwrap().set_raid_disks(2);
                edit(candidate, |superblock| {
                    superblock.events = 11;
                    superblock.set_role(1, Role::Active(Slot(0)));
                    superblock.set_role(2, Role::Active(Slot(1)));
                });
            }
        }
        let assembly = assemble(&set, &Options::default()).unwrap();
        let members = if recording & 3 == 0 { 3 } else { 2 };
        assert_eq!(assembly.layout.members(), members, "{recording:03b}");
        assert_eq!(slots_in_sync(&assembly), 2, "{recording:03b}: {:?}", assembly.dropped);
        assert_eq!(assembly.layout.member_size(), size);
    }
}

/// A member that lags by more than the update, or has another chunk, is not made to agree.
#[test]
fn a_member_that_differs_otherwise_is_not_resized() {
    let grown = |events: u64, chunk: u64| {
        let (mut set, size) = before(Level::Raid5, 3);
        for candidate in &mut set[..2] {
            let member_size = candidate.member.size;
            candidate.superblock.as_mut().unwrap().set_size(Sectors(size.0 * 2), member_size);
            edit(candidate, |superblock| superblock.events = 11);
        }
        edit(&mut set[2], |superblock| {
            superblock.events = events;
            superblock.chunk = Sectors(superblock.chunk.0 * chunk);
        });
        let options = Options { run: true, ..Options::default() };
        assemble(&set, &options).map(|assembly| slots_in_sync(&assembly)).map_err(|it| it.state)
    };
    assert_eq!(grown(10, 1), Ok(3));
    assert_eq!(grown(9, 1), Ok(2));
    assert_eq!(grown(10, 2), Err(AssemblyState::MembersDisagree));
}

#[test]
fn a_spare_that_is_too_small_for_the_new_size_is_dropped() {
    let (mut set, size) = before(Level::Raid5, 3);
    for candidate in &mut set[..3] {
        let member_size = candidate.member.size;
        candidate.superblock.as_mut().unwrap().set_size(Sectors(size.0 * 2), member_size);
        edit(candidate, |superblock| superblock.events = 20);
    }
    set[3].member.size = Sectors(size.0 * 3 / 2);
    let assembly = assemble(&set, &Options::default()).unwrap();
    assert_eq!((slots_in_sync(&assembly), assembly.spares.len()), (3, 0));
    assert!(assembly.dropped[0].reason.contains("found room for"), "{:?}", assembly.dropped);
}

fn slots_in_sync(assembly: &Assembly) -> usize {
    slots(assembly).chars().filter(|state| *state == 'U').count()
}
