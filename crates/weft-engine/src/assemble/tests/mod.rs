//! Tests of assembly: sets of members, and the decision on each.

use weft_ondisk::{Bitmap, BitmapContext, BitmapHeader, Level, NewArray, ResyncOffset, Super1};
use weft_units::MemberIndex;

use weft_ondisk::{Features, Logs};

use super::*;

mod journal;
mod logs;
mod old;
mod outcomes;
mod reshape;
mod resize;

const SIZE: Sectors = Sectors(20_480);

fn set(level: Level, members: u8) -> Vec<Candidate> {
    let mut array = NewArray::in_sync(level, members.into(), SIZE);
    array.set_uuid = Uuid([99; 16]);
    let mut set = Candidate::of_new(&array).unwrap();
    set.iter_mut().zip(0..).for_each(|(member, n): (_, u8)| member.member.label = format!("m{n}"));
    set
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
    assert!(refused.state.next().contains("--run"));
    assert_eq!(slots(&assemble(&candidates, &run()).unwrap()), "U_UU");
    candidates.remove(1);
    let refused = assemble(&candidates, &run()).unwrap_err();
    assert_eq!(
        refused.reason,
        "need 3 of 4 members in sync, have 2: slot 1 missing, slot 2 missing"
    );
}

/// A member that is an old image of itself (F7) is stale if it is two updates behind, not if it is
/// one behind.
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

/// Two halves of an array, each used without the other, have different histories (F24).
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

/// First m0 failed, then m2; m0 was removed, and m4 took its slot with its number. m2 records m4 as
/// faulty, and m4 records m2, although they were never two halves of an array. The result must not
/// depend on which of the current members is the freshest.
#[test]
fn a_member_that_failed_before_a_number_was_given_away_again_is_stale() {
    let mut candidates = set(Level::Raid6, 4);
    let mut returned = candidates[0].clone();
    returned.member.label = "m4".to_owned();
    edit(&mut returned, |superblock| superblock.device_uuid = Uuid([5; 16]));
    candidates.push(returned);
    candidates.remove(0);
    for candidate in &mut candidates {
        let is_m2 = candidate.member.label == "m2";
        edit(candidate, |superblock| {
            superblock.events = if is_m2 { 5 } else { 10 };
            superblock.roles[if is_m2 { 0 } else { 2 }] = 0xfffe;
        });
    }
    for _ in 0..candidates.len() {
        candidates.rotate_left(1);
        let assembly = assemble(&candidates, &run()).unwrap();
        assert_eq!(slots(&assembly), "UU_U");
        let dropped = &assembly.dropped[0];
        assert_eq!(dropped.member.label, "m2");
        assert!(
            dropped.reason.starts_with("stale: events 5, the array is at 10"),
            "{}",
            dropped.reason
        );
    }
}

/// A crash in the middle of the update that gives a new member its slot may leave this member's
/// update count ahead of all others.
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

/// A set with a member of another array, with a copy of a member, or with members that disagree
/// about the chunk (F24).
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
    assert_eq!(refused.state, AssemblyState::MembersDisagree);
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
    assert!(refused.state.next().contains("--read-only"));
    let read_only = Options { read_only: true, ..Options::default() };
    assert!(assemble(&candidates, &read_only).unwrap().read_only);
    edit(&mut candidates[0], |superblock| superblock.feature_map.insert(Features::RESHAPE));
    assert!(assemble(&candidates, &read_only).is_err());
}

/// A set of members with equal bitmaps; `change` modifies their header. The superblocks have the
/// update count `events`.
fn with_bitmaps(events: u64, change: impl Fn(&mut BitmapHeader)) -> Vec<Candidate> {
    with_bits(events, change, 0)
}

/// Like [`with_bitmaps`], with `bits` as the bits of the first eight regions.
fn with_bits(events: u64, change: impl Fn(&mut BitmapHeader), bits: u8) -> Vec<Candidate> {
    let mut candidates = set(Level::Raid5, 3);
    for candidate in &mut candidates {
        edit(candidate, |superblock| {
            superblock.feature_map.insert(Features::BITMAP);
            superblock.bitmap_offset_raw = 8i32.to_le_bytes();
            superblock.events = events;
        });
        let superblock = candidate.superblock.as_ref().unwrap();
        let mut header = BitmapHeader {
            version: 4,
            uuid: superblock.bitmap_uuid(),
            events,
            events_cleared: events,
            sync_size: superblock.size(),
            state: 0,
            chunksize: 65536,
            daemon_sleep: 5,
            write_behind: 0,
            sectors_reserved: 0,
            nodes: 0,
            cluster_name: [0; 64],
        };
        change(&mut header);
        let context = BitmapContext {
            uuid: superblock.bitmap_uuid(),
            events,
            sync_size: superblock.size(),
            room: Sectors(256),
            origin: None,
        };
        let mut bytes = header.encode().to_vec();
        bytes.push(bits);
        bytes.resize(4096, 0);
        let bitmap = Bitmap::parse(&bytes, &context).map_err(|error| error.to_string());
        candidate.logs.bitmap = Some(bitmap.map(Box::new));
    }
    candidates
}

#[test]
fn a_plain_bitmap_is_kept_and_others_are_not_written_beside() {
    let assembly = assemble(&with_bitmaps(7, |_| {}), &run()).unwrap();
    assert_eq!((assembly.events, &assembly.states[..]), (7, &[][..]));
    assert!(assembly.bitmap().is_some_and(|bitmap| !bitmap.is_stale()));
    // All bits of an old bitmap count as set.
    let old = assemble(&with_bitmaps(7, |bitmap| bitmap.events = 3), &run()).unwrap();
    assert_eq!((old.events, &old.states[..]), (7, &[AssemblyState::BitmapStale][..]));
    // If the bitmaps of members differ, the bitmap with the freshest superblock counts.
    let mut mixed = with_bitmaps(7, |bitmap| bitmap.events = 3);
    let mut last = with_bitmaps(8, |_| {}).remove(2);
    std::mem::swap(&mut mixed[2], &mut last);
    assert!(!assemble(&mixed, &run()).unwrap().bitmap().unwrap().is_stale());
    // A crash may leave the bitmap's update count ahead by one.
    let ahead = with_bitmaps(7, |bitmap| bitmap.events = 8);
    assert_eq!(assemble(&ahead, &run()).unwrap().events, 8);

    let read_only = Options { read_only: true, ..Options::default() };
    let assembly = assemble(&ahead, &read_only).unwrap();
    assert_eq!((assembly.events, assembly.states.is_empty()), (7, true));
    assert!(assembly.bitmap().is_none());
    for (change, says) in [
        (
            Box::new(|bitmap: &mut BitmapHeader| bitmap.events = 9)
                as Box<dyn Fn(&mut BitmapHeader)>,
            "bitmap events at byte 24: found 9, expected at most 8",
        ),
        (
            Box::new(|bitmap| bitmap.version = 5),
            "bitmap version at byte 4: found 5, the bitmaps of a cluster's nodes, expected 3 or 4",
        ),
        (
            Box::new(|bitmap| (bitmap.version, bitmap.chunksize) = (6, 128)),
            "bitmap version at byte 4: found 6, a lockless bitmap, expected 3 or 4",
        ),
        (Box::new(|bitmap| bitmap.uuid = Uuid([1; 16])), "bitmap uuid"),
        (Box::new(|bitmap| bitmap.chunksize = 300), "bitmap chunksize"),
    ] {
        let spoiled = with_bitmaps(7, change);
        let refused = assemble(&spoiled, &run()).unwrap_err();
        assert_eq!(refused.state, AssemblyState::WriteBitmap);
        assert!(refused.reason.starts_with("m0: ") && refused.reason.contains(says), "{refused}");
        assert!(assemble(&spoiled, &read_only).is_ok());
    }
}

#[test]
fn a_bitmap_that_cannot_be_read_costs_its_member_for_writing_only() {
    for bad in [0, 1] {
        let mut candidates = with_bitmaps(7, |_| {});
        candidates[bad].logs.bitmap = Some(Err("bitmap at sector 16: bad sector".into()));
        candidates[bad].logs.is_bitmap_unreadable = true;
        let read_only = Options { read_only: true, ..Options::default() };
        let assembly = assemble(&candidates, &read_only).unwrap();
        assert_eq!((assembly.degraded(), assembly.dropped.len()), (0, 0));
        let assembly = assemble(&candidates, &run()).unwrap();
        assert_eq!((assembly.degraded(), assembly.dropped.len()), (1, 1));
        assert_eq!(assembly.dropped[0].reason, "bitmap at sector 16: bad sector");
        assert!(assembly.bitmap().is_some(), "the others have theirs");
    }
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

/// A row of the table of malformed metadata, for a case that needs a whole set of members.
struct Malformed {
    /// Number of the case in the table of md-ondisk.md §11.
    row: u32,
    level: Level,
    spoil: fn(&mut Vec<Candidate>),
    /// State with which the set is refused; `None` if the set assembles without the malformed
    /// member.
    state: Option<AssemblyState>,
    /// Texts that occur in the message, or in the reason why the member is not used.
    says: &'static [&'static str],
}

const MALFORMED: &[Malformed] = &[
    Malformed {
        row: 27,
        level: Level::Raid5,
        spoil: |set| {
            for (candidate, size) in set.iter_mut().zip([10_000, 10_000, 18_000, 18_000]) {
                edit(candidate, |superblock| {
                    superblock.level = Level::Raid0;
                    superblock.layout = 0;
                    superblock.size = Sectors(0);
                    superblock.data_size = Sectors(size);
                });
            }
        },
        state: Some(AssemblyState::Unsupported),
        says: &["layout at byte 76", "expected 1 or 2"],
    },
    Malformed {
        row: 33,
        level: Level::Raid5,
        spoil: |set| edit(&mut set[1], |superblock| superblock.roles[1] = 0),
        state: None,
        says: &["m0 says of it: slot 1", "its own superblock says slot 0"],
    },
    Malformed {
        row: 33,
        level: Level::Raid5,
        spoil: |set| {
            for candidate in set {
                edit(candidate, |superblock| superblock.roles[1] = 0);
            }
        },
        state: Some(AssemblyState::SlotTwice),
        says: &["m1", "second member at slot 0", "m0"],
    },
    Malformed {
        row: 34,
        level: Level::Raid5,
        spoil: |set| edit(&mut set[1], |superblock| superblock.dev_number = 0),
        state: Some(AssemblyState::Copies),
        says: &["m1: superblock dev_number at byte 160: found device number 0", "m0"],
    },
    Malformed {
        row: 34,
        level: Level::Raid5,
        spoil: |set| edit(&mut set[1], |superblock| superblock.device_uuid = Uuid([1; 16])),
        state: Some(AssemblyState::Copies),
        says: &["m1: superblock device_uuid at byte 168", "m0", "copy"],
    },
    Malformed {
        row: 35,
        level: Level::Raid5,
        spoil: |set| edit(&mut set[2], |superblock| superblock.set_uuid = Uuid([7; 16])),
        state: Some(AssemblyState::SeveralArrays),
        says: &["members of 2 arrays", "raid5 of 4"],
    },
    Malformed {
        row: 36,
        level: Level::Raid5,
        spoil: |set| edit(&mut set[2], |superblock| superblock.level = Level::Raid4),
        state: Some(AssemblyState::MembersDisagree),
        says: &["m2: superblock level at byte 72: found raid4, expected raid5 as on m0"],
    },
    Malformed {
        row: 36,
        level: Level::Raid5,
        spoil: |set| edit(&mut set[2], |superblock| superblock.layout = 0),
        state: Some(AssemblyState::MembersDisagree),
        says: &["m2: superblock layout at byte 76: found 0, expected 2 as on m0"],
    },
    Malformed {
        row: 36,
        level: Level::Raid5,
        spoil: |set| edit(&mut set[2], |superblock| superblock.size = Sectors(8192)),
        state: Some(AssemblyState::MembersDisagree),
        says: &["m2: superblock size at byte 80: found 8192", "as on m0"],
    },
    Malformed {
        row: 36,
        level: Level::Raid5,
        spoil: |set| edit(&mut set[2], |superblock| superblock.raid_disks = 5),
        state: Some(AssemblyState::MembersDisagree),
        says: &["m2: superblock raid_disks at byte 92: found 5, expected 4 as on m0"],
    },
    Malformed {
        row: 36,
        level: Level::Raid5,
        spoil: |set| edit(&mut set[2], |superblock| superblock.ctime.secs += 1),
        state: Some(AssemblyState::MembersDisagree),
        says: &["m2: superblock ctime at byte 64", "as on m0"],
    },
    Malformed {
        row: 37,
        level: Level::Raid5,
        spoil: |set| edit(&mut set[2], |superblock| superblock.minor = weft_ondisk::Minor::V1_1),
        state: Some(AssemblyState::MembersDisagree),
        says: &["m2: superblock version", "found 1.1, expected 1.2 as on m0"],
    },
    Malformed {
        row: 38,
        level: Level::Raid5,
        spoil: |set| {
            for candidate in &mut set[1..] {
                edit(candidate, |superblock| superblock.events = 2);
            }
        },
        state: None,
        says: &["stale: events 0, the array is at 2"],
    },
    Malformed {
        row: 38,
        level: Level::Raid5,
        spoil: |set| {
            for candidate in &mut set[2..] {
                edit(candidate, |superblock| superblock.events = 2);
            }
        },
        state: Some(AssemblyState::TooFewMembers),
        says: &["need 3 of 4 members in sync, have 2: slot 0 missing, slot 1 missing"],
    },
    Malformed {
        row: 39,
        level: Level::Raid5,
        spoil: |set| {
            for candidate in &mut set[1..] {
                edit(candidate, |superblock| {
                    superblock.events = 1;
                    superblock.roles[0] = 0xfffe;
                });
            }
        },
        state: None,
        says: &["m1 says of it: faulty"],
    },
    Malformed {
        row: 40,
        level: Level::Raid6,
        spoil: |set| {
            for (candidate, index) in set.iter_mut().zip(0..) {
                let gone: [usize; 2] = if index < 2 { [2, 3] } else { [0, 1] };
                edit(candidate, |superblock| {
                    for one in gone {
                        superblock.roles[one] = 0xfffe;
                    }
                });
            }
        },
        state: Some(AssemblyState::SplitBrain),
        says: &["m2 and m0 each say that the other failed"],
    },
    Malformed {
        row: 41,
        level: Level::Raid5,
        spoil: |set| {
            edit(&mut set[2], |superblock| {
                superblock.feature_map.insert(Features::BITMAP);
                superblock.bitmap_offset_raw = 8i32.to_le_bytes();
            });
        },
        state: Some(AssemblyState::MembersDisagree),
        says: &["m2: superblock feature_map at byte 8: found 0x1 (BITMAP)", "as on m0, 0x0"],
    },
    Malformed {
        row: 59,
        level: Level::Raid5,
        spoil: |set| {
            for candidate in set {
                edit(candidate, |superblock| superblock.feature_map.insert(Features::JOURNAL));
            }
        },
        state: Some(AssemblyState::WriteLogged),
        says: &["m0: superblock JOURNAL"],
    },
    Malformed {
        row: 70,
        level: Level::Raid5,
        spoil: |set| {
            let sector = Sectors(8);
            let source = std::io::Error::other("the device does not answer");
            let structure = "superblock";
            let error = MetadataError::Read { structure, sector, source };
            set[3] = Candidate::new(set[3].member.clone(), Err(error));
        },
        state: None,
        says: &["superblock at sector 8: the device does not answer; leave the member out"],
    },
];

#[test]
fn malformed_sets_are_refused_by_member_field_found_and_expected() {
    let mut rows: Vec<u32> = MALFORMED.iter().map(|case| case.row).collect();
    rows.dedup();
    // Row 42 is about bitmaps, row 69 about devices: those are read before a set is made.
    assert_eq!(rows, [27, 33, 34, 35, 36, 37, 38, 39, 40, 41, 59, 70]);
    for case in MALFORMED {
        let mut candidates = set(case.level, 4);
        assert!(assemble(&candidates, &run()).is_ok(), "row {}: a good set", case.row);
        (case.spoil)(&mut candidates);
        let said = match (assemble(&candidates, &run()), case.state) {
            (Err(refused), Some(state)) => {
                assert_eq!(refused.state, state, "row {}: {refused}", case.row);
                refused.reason
            }
            (Ok(assembly), None) => {
                assert_eq!(assembly.dropped.len(), 1, "row {}", case.row);
                assert!(assembly.states.contains(&AssemblyState::MembersNotUsed));
                assembly.dropped[0].reason.clone()
            }
            (other, _) => panic!("row {}: {other:?}", case.row),
        };
        for part in case.says {
            assert!(said.contains(part), "row {}: {said:?} has no {part:?}", case.row);
        }
    }
}

#[test]
fn a_journal_that_is_not_there_is_named_for_reading() {
    let mut candidates = set(Level::Raid5, 4);
    for candidate in &mut candidates {
        edit(candidate, |superblock| superblock.feature_map.insert(Features::JOURNAL));
    }
    let reading = Options { read_only: true, ..Options::default() };
    assert_eq!(assemble(&candidates, &reading).unwrap_err().state, AssemblyState::JournalMissing);
    let without = Options { without_journal: true, ..reading };
    let assembly = assemble(&candidates, &without).unwrap();
    assert!(assembly.states.contains(&AssemblyState::WithoutJournal));
}

/// One byte of one superblock of a set is changed and its checksum corrected: assembly never
/// panics, and it never permits writing to a set if its members disagree.
#[test]
fn mutated_sets_never_panic_and_never_assemble_for_writing_if_they_disagree() {
    let mut random = 0x9e37_79b9_7f4a_7c15_u64;
    let mut next = move |below: u64| {
        random ^= random << 13;
        random ^= random >> 7;
        random ^= random << 17;
        random % below
    };
    let (mut accepted, mut refused) = (0, 0);
    for round in 0..40_000 {
        use Level::{Raid0, Raid1, Raid4, Raid5, Raid6, Raid10};
        let level = [Raid4, Raid5, Raid6, Raid0, Raid1, Raid10][round % 6];
        let mut candidates = set(level, 4);
        for _ in 0..=next(3) {
            let index = next(4) as usize;
            let candidate = &mut candidates[index];
            let Ok(superblock) = &candidate.superblock else { continue };
            let mut block = superblock.encode_for(4096);
            let byte = if next(4) == 0 { 256 + next(20) } else { next(256) } as usize;
            let value = [0, 1, 0xff, 0xfe, 0x80, next(256) as u8][next(6) as usize];
            block[byte] = value;
            let sum = weft_ondisk::csum_v1(&block).unwrap_or_default();
            block[216..220].copy_from_slice(&sum.to_le_bytes());
            let parsed = Superblock::parse(&block, weft_ondisk::Version::V1_2, SIZE)
                .map_err(MetadataError::from)
                .map(|superblock| Metadata {
                    superblock,
                    logs: Logs::default(),
                    uncut: None,
                    unreadable: Vec::new(),
                });
            *candidate = Candidate::new(candidate.member.clone(), parsed);
        }
        let options = Options {
            read_only: next(2) == 0,
            run: next(2) == 0,
            force_dirty: next(2) == 0,
            ..Options::default()
        };
        match assemble(&candidates, &options) {
            Ok(assembly) if !options.read_only => {
                accepted += 1;
                let used: Vec<_> =
                    assembly.members().map(|(_, member)| &member.superblock).collect();
                for superblock in &used {
                    let told = |of: &Superblock| {
                        let shape = (of.level(), of.layout(), of.size(), of.chunk());
                        (of.set_uuid(), shape, of.raid_disks(), of.version())
                    };
                    assert_eq!(told(superblock), told(used[0]), "round {round}");
                    assert!(superblock.refuses_writing().is_empty(), "round {round}");
                }
                let slots = assembly.slots.iter().zip(0..);
                let in_sync = slots.filter(|(slot, _)| matches!(slot, SlotState::InSync(_)));
                let in_sync = in_sync.map(|(_, slot)| Slot(slot)).collect();
                assert!(assembly.layout.tolerance().suffices(in_sync), "round {round}");
                lies_on_members(&assembly);
            }
            Ok(assembly) => {
                accepted += 1;
                lies_on_members(&assembly);
            }
            Err(_) => refused += 1,
        }
    }
    assert!(accepted > 1000 && refused > 1000, "{accepted} accepted, {refused} refused");
}

/// Asserts that the first, last and other sectors of an array lie within the data of its members.
fn lies_on_members(assembly: &Assembly) {
    let last = assembly.layout.array_size().0 - 1;
    for sector in [0, last / 3, last / 2, last].map(Sectors) {
        let places = match &assembly.layout {
            Layout::Mirrors(mirrors) => {
                mirrors.copies(sector).iter().map(|copy| (copy.slot, copy.sector)).collect()
            }
            Layout::Parity(geometry) => {
                let position = geometry.locate(sector);
                vec![(position.slot, position.sector)]
            }
            Layout::Striped(striped) => {
                let extent = striped.locate(sector);
                vec![(extent.slot, extent.sector)]
            }
        };
        for (slot, at) in places {
            let Some(member) = assembly.slots[slot.index()].member() else { continue };
            let used = member.superblock.used_size();
            assert!(at < used, "{:?}: {at} of {used} at {slot:?}", assembly.layout);
        }
    }
}
