//! Sets of members, and what is decided of each.

use weft_ondisk::{Level, NewArray, NewMember, ResyncOffset, Super1};
use weft_units::MemberIndex;

use weft_ondisk::{Features, Logs};

use super::*;

const SIZE: Sectors = Sectors(20_480);

fn set(level: Level, members: u8) -> Vec<Candidate> {
    let new =
        (1..=members).map(|byte| NewMember { size: SIZE, device_uuid: Uuid([byte; 16]) }).collect();
    let mut array = NewArray::new(level, new);
    array.set_uuid = Uuid([99; 16]);
    array.assume_clean = true;
    let supers = array.plan().unwrap();
    (0u16..)
        .zip(supers)
        .map(|(index, superblock)| Candidate {
            member: MemberInfo {
                index: MemberIndex(index),
                label: format!("m{index}"),
                size: SIZE,
                logical_block: 512,
            },
            superblock: Ok(Box::new(superblock.into())),
            logs: Logs::default(),
        })
        .collect()
}

fn edit(candidate: &mut Candidate, change: impl FnOnce(&mut Super1)) {
    match &mut **candidate.superblock.as_mut().unwrap() {
        Superblock::V1(superblock) => change(superblock),
        Superblock::V0_90(_) => panic!("the sets here are of version 1"),
    }
}

fn run() -> Options {
    Options { run: true, ..Options::default() }
}

fn slots(assembly: &Assembly) -> String {
    let letter = |state: &SlotState| match state {
        SlotState::InSync(_) => 'U',
        SlotState::Missing => '_',
        SlotState::Rebuilding { .. } => 'r',
    };
    assembly.slots.iter().map(letter).collect()
}

#[test]
fn a_whole_set_assembles_in_any_order() {
    let mut candidates = set(Level::Raid5, 4);
    candidates.reverse();
    let assembly = assemble(&candidates, &Options::default()).unwrap();
    assert_eq!(slots(&assembly), "UUUU");
    assert_eq!(assembly.resync_from, None);
    let labels: Vec<_> = assembly.members().map(|(_, m)| m.info.label.clone()).collect();
    assert_eq!(labels, ["m0", "m1", "m2", "m3"]);
}

#[test]
fn an_absent_member_needs_consent_and_two_are_too_many() {
    let mut candidates = set(Level::Raid5, 4);
    candidates.remove(1);
    let refused = assemble(&candidates, &Options::default()).unwrap_err();
    assert!(refused.reason.contains("slot 1"), "{refused}");
    assert!(refused.way_out.unwrap().contains("--run"));
    assert_eq!(slots(&assemble(&candidates, &run()).unwrap()), "U_UU");
    candidates.remove(1);
    let refused = assemble(&candidates, &run()).unwrap_err();
    assert_eq!(
        refused.reason,
        "need 3 of 4 members in sync, have 2: slot 1 missing, slot 2 missing"
    );
}

#[test]
fn a_member_two_behind_is_stale_and_one_behind_is_not() {
    let mut candidates = set(Level::Raid5, 4);
    for candidate in &mut candidates {
        edit(candidate, |superblock| superblock.events = 10);
    }
    edit(&mut candidates[2], |superblock| superblock.events = 9);
    assert_eq!(slots(&assemble(&candidates, &run()).unwrap()), "UUUU");
    edit(&mut candidates[2], |superblock| superblock.events = 8);
    let assembly = assemble(&candidates, &run()).unwrap();
    assert_eq!(slots(&assembly), "UU_U");
    assert!(assembly.dropped[0].reason.starts_with("stale: events 8, the array is at 10"));
}

#[test]
fn what_the_others_say_of_a_member_counts() {
    for events in [10, 9] {
        let mut candidates = set(Level::Raid5, 4);
        for candidate in &mut candidates {
            edit(candidate, |superblock| {
                superblock.events = 10;
                superblock.roles[3] = 0xfffe;
            });
        }
        edit(&mut candidates[3], |superblock| {
            superblock.events = events;
            superblock.roles[3] = 3;
        });
        let assembly = assemble(&candidates, &run()).unwrap();
        assert_eq!(slots(&assembly), "UUU_", "events {events}");
        assert!(assembly.dropped[0].reason.contains("faulty"));
    }
}

#[test]
fn two_halves_used_on_their_own_are_refused() {
    let mut candidates = set(Level::Raid6, 4);
    for (index, candidate) in candidates.iter_mut().enumerate() {
        edit(candidate, |superblock| {
            superblock.events = 10 + u64::from(index < 2);
            let gone = if index < 2 { [2, 3] } else { [0, 1] };
            for dev in gone {
                superblock.roles[dev] = 0xfffe;
            }
        });
    }
    let refused = assemble(&candidates, &run()).unwrap_err();
    assert!(refused.reason.contains("both halves"), "{refused}");
    assert_eq!(slots(&assemble(&candidates[..2], &run()).unwrap()), "UU__");
}

/// A crash in the middle of the round that gives a new member its slot leaves it ahead of all.
#[test]
fn a_member_that_just_took_its_slot_is_not_another_half() {
    let mut candidates = set(Level::Raid6, 5);
    for (index, candidate) in candidates.iter_mut().enumerate() {
        edit(candidate, |superblock| {
            superblock.events = 10 + u64::from(index == 0);
            superblock.roles[0] = if index == 0 { 0 } else { 0xffff };
        });
    }
    assert_eq!(slots(&assemble(&candidates, &run()).unwrap()), "UUUUU");
}

#[test]
fn dirty_and_degraded_is_the_write_hole() {
    let mut candidates = set(Level::Raid5, 4);
    for candidate in &mut candidates {
        edit(candidate, |superblock| superblock.resync_offset = ResyncOffset::At(Sectors(0)));
    }
    assert_eq!(assemble(&candidates, &run()).unwrap().resync_from, Some(Sectors(0)));
    candidates.remove(0);
    let refused = assemble(&candidates, &run()).unwrap_err();
    assert!(refused.reason.contains("dirty and degraded"), "{refused}");
    let forced = Options { force_dirty: true, ..run() };
    assert_eq!(assemble(&candidates, &forced).unwrap().notes.len(), 2);
    // RAID 4 without its parity member has every byte of data.
    let mut candidates = set(Level::Raid4, 4);
    for candidate in &mut candidates {
        edit(candidate, |superblock| superblock.resync_offset = ResyncOffset::At(Sectors(0)));
    }
    candidates.remove(3);
    assert_eq!(slots(&assemble(&candidates, &run()).unwrap()), "UUU_");
}

#[test]
fn members_of_two_arrays_or_copies_are_not_mixed() {
    let mut candidates = set(Level::Raid5, 3);
    let mut other = set(Level::Raid5, 3).remove(0);
    edit(&mut other, |superblock| superblock.set_uuid = Uuid([7; 16]));
    candidates.push(other);
    let refused = assemble(&candidates, &run()).unwrap_err();
    assert!(refused.reason.starts_with("members of 2 arrays"), "{refused}");
    let chosen = Options { uuid: Some(Uuid([99; 16])), ..Options::default() };
    assert_eq!(slots(&assemble(&candidates, &chosen).unwrap()), "UUU");

    let mut candidates = set(Level::Raid5, 3);
    let copy = candidates[0].clone();
    candidates.push(copy);
    assert!(assemble(&candidates, &run()).unwrap_err().reason.contains("copy"));

    let mut candidates = set(Level::Raid5, 3);
    edit(&mut candidates[1], |superblock| superblock.chunk = Sectors(64));
    let refused = assemble(&candidates, &run()).unwrap_err();
    assert_eq!(refused.state, State::MembersDisagree);
    assert!(refused.reason.starts_with("m1: superblock chunksize at byte 88"), "{refused}");
}

#[test]
fn what_this_release_does_not_keep_up_is_read_only() {
    let mut candidates = set(Level::Raid5, 3);
    for candidate in &mut candidates {
        edit(candidate, |superblock| {
            superblock.feature_map.insert(Features::BITMAP);
            superblock.bitmap_offset_raw = 8i32.to_le_bytes();
        });
    }
    let refused = assemble(&candidates, &Options::default()).unwrap_err();
    assert!(refused.way_out.unwrap().contains("--read-only"));
    let read_only = Options { read_only: true, ..Options::default() };
    assert!(assemble(&candidates, &read_only).unwrap().read_only);
    edit(&mut candidates[0], |superblock| superblock.feature_map.insert(Features::RESHAPE));
    assert!(assemble(&candidates, &read_only).is_err());
}

#[test]
fn nothing_to_assemble_says_so() {
    assert_eq!(assemble(&[], &run()).unwrap_err().reason, "no member was given");
    let mut candidates = set(Level::Raid5, 3);
    candidates[0].superblock = Err("no md superblock found".to_owned());
    let assembly = assemble(&candidates, &run()).unwrap();
    assert_eq!(slots(&assembly), "_UU");
    assert_eq!(assembly.dropped[0].reason, "no md superblock found");
}
