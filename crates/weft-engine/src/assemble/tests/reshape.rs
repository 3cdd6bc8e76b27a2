//! Arrays in the middle of a reshape, at its beginning and at its end.

use weft_ondisk::{Features, Reshape, Role};
use weft_units::rng::Rng;
use weft_units::{Slot, Time};

use super::*;
use crate::config::{Config, VolumeConfig, VolumeSource};
use crate::knobs::Knobs;

/// A RAID 5 of three members and a spare that takes slot 3, with `position` recorded by all.
fn growing(position: u64) -> Vec<Candidate> {
    let mut set = before();
    for candidate in &mut set {
        begin(candidate, position);
    }
    set
}

/// The array before it grows, with its spare.
fn before() -> Vec<Candidate> {
    let mut array = NewArray::in_sync(Level::Raid5, 3, Sectors(1 << 20));
    array.set_uuid = Uuid([98; 16]);
    array.chunk = Some(CHUNK);
    array.spares = array.slots.iter().flatten().take(1).cloned().collect();
    array.spares[0].device_uuid = Uuid([97; 16]);
    let mut set = Candidate::of_new(&array).unwrap();
    set.iter_mut().zip(0..).for_each(|(member, n): (_, u8)| member.member.label = format!("m{n}"));
    each(&mut set, |superblock| superblock.events = 10);
    set
}

fn begin(candidate: &mut Candidate, position: u64) {
    let superblock = &mut **candidate.superblock.as_mut().unwrap();
    superblock.begin_reshape(Reshape {
        new_level: superblock.level().code(),
        delta_disks: 1,
        new_layout: superblock.layout(),
        new_chunk: superblock.chunk(),
        new_offset: -(DOWN.0 as i32),
        ..Reshape::default()
    });
    superblock.set_reshape_position(Sectors(position));
    edit(candidate, |superblock| {
        superblock.events = 11;
        superblock.set_role(3, Role::Active(Slot(3)));
    });
}

fn each(set: &mut [Candidate], change: impl Fn(&mut Super1)) {
    set.iter_mut().for_each(|candidate| edit(candidate, &change));
}

const CHUNK: Sectors = Sectors(128);
const DOWN: Sectors = Sectors(384);
/// Array sectors that one step of the reshape copies: one full stripe of the geometry after.
const UNIT: u64 = 384;

#[test]
fn the_two_geometries_meet_at_the_position() {
    for position in [0, UNIT, 100 * UNIT] {
        let assembly = assemble(&growing(position), &Options::default()).unwrap();
        let reshape = assembly.reshape.as_ref().unwrap();
        assert_eq!((slots(&assembly).as_str(), assembly.layout.members()), ("UUUU", 3));
        assert_eq!((reshape.after.members(), reshape.position.0), (4, position));
        assert!(assembly.states == [AssemblyState::ReshapePending]);
    }
}

#[test]
fn a_beginning_that_not_all_members_record_is_forgotten() {
    for recording in 1_u8..15 {
        let mut set = before();
        for (number, candidate) in set.iter_mut().enumerate() {
            if recording & 1 << number != 0 {
                begin(candidate, 0);
            }
        }
        let assembly = assemble(&set, &Options::default()).unwrap();
        assert_eq!(slots(&assembly), "UUU", "{recording:04b}");
        assert!(assembly.reshape.is_none() && assembly.layout.members() == 3);
        assert_eq!(assembly.spares.len(), 1, "{recording:04b}: {:?}", assembly.dropped);
        let reverted = |member: &Member| member.superblock.reshape().is_none();
        assert!(assembly.members().all(|(_, member)| reverted(member)));
    }
    let mut set = growing(0);
    set.remove(3);
    let assembly = assemble(&set, &run()).unwrap();
    assert_eq!((slots(&assembly).as_str(), assembly.reshape), ("UUU", None));
}

#[test]
fn an_end_that_not_all_members_record_is_one() {
    for recording in 1_u8..16 {
        let set = growing(0);
        let size = assemble(&set, &run()).unwrap().reshape.unwrap().after.array_size();
        let mut set = growing(size.0);
        for (number, candidate) in set.iter_mut().enumerate() {
            if recording & 1 << number != 0 {
                candidate.superblock.as_mut().unwrap().end_reshape();
                edit(candidate, |superblock| superblock.events = 12);
            }
        }
        let assembly = assemble(&set, &Options::default()).unwrap();
        assert_eq!((slots(&assembly).as_str(), &assembly.reshape), ("UUUU", &None));
        assert_eq!(assembly.layout.array_size(), size);
        let mut members = assembly.members().map(|(_, member)| &member.superblock);
        let offset = |superblock: &Superblock| superblock.data_offset();
        let first = members.next().map(offset);
        assert!(members.all(|it| Some(offset(it)) == first && it.reshape().is_none()));
    }
}

/// A reshape to another chunk and layout on the same members: every set of members that have
/// recorded its beginning, and every set of members that have recorded its end.
#[test]
fn another_chunk_begins_and_ends_as_more_members_do() {
    let to = |superblock: &Superblock| Reshape {
        new_level: superblock.level().code(),
        new_layout: 0,
        new_chunk: Sectors(CHUNK.0 * 2),
        new_offset: -(DOWN.0 as i32),
        ..Reshape::default()
    };
    let begun = |recording: u8, position: Option<Sectors>| {
        let mut set = before();
        for (number, candidate) in set.iter_mut().enumerate() {
            if recording & 1 << number != 0 {
                let superblock = &mut **candidate.superblock.as_mut().unwrap();
                superblock.begin_reshape(to(superblock));
                let end = superblock.array_size_after().unwrap();
                superblock.set_reshape_position(position.unwrap_or(end));
                edit(candidate, |superblock| superblock.events = 11);
            }
        }
        set
    };
    let shape = |assembly: &Assembly| (assembly.layout.number(), assembly.layout.chunk());
    for recording in 1_u8..7 {
        let assembly = assemble(&begun(recording, Some(Sectors(0))), &Options::default()).unwrap();
        assert_eq!(
            (slots(&assembly).as_str(), &assembly.reshape),
            ("UUU", &None),
            "{recording:04b}"
        );
        assert_eq!(shape(&assembly), (2, CHUNK));
    }
    let assembly = assemble(&begun(15, Some(Sectors(0))), &Options::default()).unwrap();
    let reshape = assembly.reshape.as_ref().unwrap();
    assert_eq!((reshape.after.members(), reshape.after.chunk()), (3, Sectors(CHUNK.0 * 2)));
    for recording in 1_u8..16 {
        // The kernel records the end of a reshape without having recorded the position there.
        for position in [None, Some(Sectors(0))].into_iter().take(1 + usize::from(recording == 3)) {
            let mut set = begun(15, position);
            for (number, candidate) in set.iter_mut().enumerate() {
                if recording & 1 << number != 0 {
                    candidate.superblock.as_mut().unwrap().end_reshape();
                    edit(candidate, |superblock| superblock.events = 12);
                }
            }
            let assembly = assemble(&set, &Options::default()).unwrap();
            assert_eq!((slots(&assembly).as_str(), &assembly.reshape), ("UUU", &None));
            assert_eq!(shape(&assembly), (0, Sectors(CHUNK.0 * 2)), "{recording:04b}");
        }
    }
}

/// A crash cut off the beginning of one reshape; another reshape was begun, and a crash cut off its
/// beginning too.
#[test]
fn reshapes_that_differ_are_forgotten_at_the_beginning_and_refused_later() {
    for (position, expected) in [(0, Ok(128)), (UNIT, Err(AssemblyState::MembersDisagree))] {
        let mut set = before();
        for (candidate, chunk) in set.iter_mut().zip([64, 32, 32, 32]) {
            let superblock = &mut **candidate.superblock.as_mut().unwrap();
            superblock.begin_reshape(Reshape {
                new_level: superblock.level().code(),
                new_layout: superblock.layout(),
                new_chunk: Sectors(chunk),
                new_offset: -(DOWN.0 as i32),
                ..Reshape::default()
            });
            superblock.set_reshape_position(Sectors(position));
        }
        let found = assemble(&set, &Options::default());
        let found = found.map(|it| it.layout.chunk().0).map_err(|it| it.state);
        assert_eq!(found, expected, "{position}");
    }
}

#[test]
fn members_that_are_lost_in_the_middle_are_lost_from_both_geometries() {
    for lost in 0..4 {
        let mut set = growing(100 * UNIT);
        set.remove(lost);
        let refused = assemble(&set, &Options::default()).unwrap_err();
        assert_eq!(refused.state, AssemblyState::NewlyDegraded, "{refused}");
        assert_eq!(assemble(&set, &run()).unwrap().degraded(), 1);
        set.remove(0);
        let refused = assemble(&set, &run()).unwrap_err();
        assert_eq!(refused.state, AssemblyState::TooFewMembers, "{refused}");
    }
}

/// The kernel records the end of a reshape without having recorded the position there.
#[test]
fn a_member_that_missed_the_end_has_the_geometry_after() {
    let mut set = growing(100 * UNIT);
    for candidate in &mut set[..3] {
        candidate.superblock.as_mut().unwrap().end_reshape();
        edit(candidate, |superblock| superblock.events = 12);
    }
    let assembly = assemble(&set, &Options::default()).unwrap();
    assert_eq!((slots(&assembly).as_str(), &assembly.reshape), ("UUUU", &None));
    let mut members = assembly.members().map(|(_, member)| &member.superblock);
    assert!(members.all(|it| it.data_offset() == members_offset(&set) && it.reshape().is_none()));
}

fn members_offset(set: &[Candidate]) -> Sectors {
    set[0].superblock.as_ref().unwrap().data_offset()
}

/// With a backup, the kernel may have overwritten the beginning of the array although the recorded
/// position is still 0.
#[test]
fn a_reshape_with_a_backup_is_not_forgotten() {
    for lost in 0..4 {
        let mut set = growing(0);
        each(&mut set, |superblock| superblock.feature_map.remove(Features::NEW_OFFSET));
        set.remove(lost);
        for read_only in [true, false] {
            let refused = assemble(&set, &Options { read_only, ..run() }).unwrap_err();
            assert_eq!(refused.state, AssemblyState::Reshaping, "{refused}");
        }
    }
}

#[test]
fn a_spare_that_missed_the_beginning_stays_a_spare() {
    let mut set = growing(UNIT);
    let mut spare = before().swap_remove(3);
    spare.member.index = MemberIndex(4);
    edit(&mut spare, |superblock| {
        superblock.dev_number = 4;
        superblock.device_uuid = Uuid([96; 16]);
        superblock.set_role(4, Role::Spare);
    });
    set.push(spare);
    each(&mut set, |superblock| superblock.set_role(4, Role::Spare));
    let assembly = assemble(&set, &Options::default()).unwrap();
    assert_eq!((slots(&assembly).as_str(), assembly.spares.len()), ("UUUU", 1));
    assert!(assembly.spares[0].superblock.reshape().is_some());
}

type Spoil = fn(&mut Super1);

#[test]
fn other_reshapes_are_read_or_refused_by_name() {
    let back = Some("goes forward");
    let cases: [(&str, Spoil, Option<&str>, Option<&str>); 11] = [
        ("level", |it| it.reshape.new_level = 6, Some("keeps the level"), Some("keeps the level")),
        (
            "in place, critical",
            |it| it.feature_map.remove(Features::NEW_OFFSET),
            Some("a backup"),
            Some("a backup"),
        ),
        (
            "in place, past that",
            |it| {
                it.feature_map.remove(Features::NEW_OFFSET);
                it.reshape.position = 1000 * UNIT;
            },
            None,
            Some("moves the data down"),
        ),
        ("data moves up", |it| it.reshape.new_offset = 384, Some("far enough"), Some("far enough")),
        ("too little", |it| it.reshape.new_offset = -8, Some("far enough"), Some("far enough")),
        ("layout", |it| it.reshape.new_layout = 0, None, None),
        ("smaller chunk", |it| it.reshape.new_chunk = Sectors(64), None, None),
        // A unit has the height of the larger chunk.
        ("larger chunk", |it| it.reshape.new_chunk = Sectors(1024), Some("far"), Some("far")),
        ("backward", |it| it.feature_map.insert(Features::RESHAPE_BACK), back, back),
        ("fewer members", |it| it.reshape.delta_disks = -1, back, back),
        (
            "rebuilt",
            |it| it.set_recovery_offset(Some(Sectors(8))),
            Some("need 2 of 3 members"),
            Some("rebuilt meanwhile"),
        ),
    ];
    for (what, spoil, reading, writing) in cases {
        let mut set = growing(UNIT);
        each(&mut set, spoil);
        for (read_only, expected) in [(true, reading), (false, writing)] {
            let found = assemble(&set, &Options { read_only, ..run() });
            match (found, expected) {
                (Ok(assembly), None) => assert!(assembly.reshape.is_some(), "{what}"),
                (Err(refused), Some(text)) => {
                    assert!(refused.reason.contains(text), "{what}: {refused}");
                }
                (found, _) => panic!("{what}, read-only {read_only}: {found:?}"),
            }
        }
    }
}

/// Odd values of the fields, one or several at a time, cause neither a panic nor an endless loop:
/// neither in the assembly, nor in an engine made from it.
#[test]
fn odd_fields_of_a_reshape_do_no_harm() {
    let mut rng = Rng::new(30);
    let (mut served, mut refused) = (0, 0);
    for _ in 0..4000 {
        let mut set = growing(UNIT * rng.below(20));
        for _ in 0..1 + rng.below(3) {
            let (field, of) = (rng.below(9), rng.below(5) as usize);
            let value: u64 =
                rng.pick(&[0, 1, 2, 3, 4, 5, 8, 63, 64, 127, 128, 384, 1 << 20, 1 << 31, !0]);
            let spoil = |superblock: &mut Super1| match field {
                0 => superblock.reshape.position = value.wrapping_mul(UNIT),
                1 => superblock.reshape.delta_disks = (value as i32).wrapping_sub(2),
                2 => superblock.reshape.new_offset = value as i32,
                3 => superblock.reshape.new_chunk = Sectors(value / 8 * 8),
                4 => superblock.reshape.new_layout = value as u32,
                5 => superblock.raid_disks = value as u32,
                6 => superblock.feature_map.remove(Features::NEW_OFFSET),
                7 => superblock.feature_map.insert(Features::RESHAPE_BACK),
                _ => superblock.events = 9 + value % 4,
            };
            match of {
                4 => each(&mut set, spoil),
                of => edit(&mut set[of], spoil),
            }
        }
        // A superblock with invalid fields is dropped when it is read.
        set.retain(|candidate| {
            let superblock = candidate.superblock.as_ref().unwrap();
            superblock.validate(candidate.member.size).is_ok()
        });
        let options = Options { read_only: rng.percent(50), ..run() };
        let Ok(assembly) = assemble(&set, &options) else {
            refused += 1;
            continue;
        };
        served += 1;
        let knobs = Knobs::default();
        let cache_frames = assembly.cache_frames(knobs.stripe_size, 16).min(1 << 24);
        let source = VolumeSource::Array(Box::new(assembly));
        let volume = VolumeConfig { source, knobs, stripes_max: Some(16) };
        let mut config = Config::for_single(set[0].member.clone(), true);
        (config.cache_frames, config.volumes) = (cache_frames, vec![volume]);
        drop(crate::Engine::new(config, Time(0)));
    }
    assert!(served > 500 && refused > 500, "{served} {refused}");
}
