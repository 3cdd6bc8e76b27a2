//! Tests of assembly with superblocks of version 0.90.

use weft_ondisk::Super090;

use super::outcomes::outcome;
use super::*;

/// The four members of `raid5-4-v090` as Linux wrote them, with each superblock modified by
/// `change`.
fn old_set(change: impl Fn(usize, &mut Super090)) -> Vec<Candidate> {
    const SUPERBLOCKS: [&[u8]; 4] = [
        include_bytes!("../../../../../fixtures/md-meta/raid5-4-v090/m0.super090.bin"),
        include_bytes!("../../../../../fixtures/md-meta/raid5-4-v090/m1.super090.bin"),
        include_bytes!("../../../../../fixtures/md-meta/raid5-4-v090/m2.super090.bin"),
        include_bytes!("../../../../../fixtures/md-meta/raid5-4-v090/m3.super090.bin"),
    ];
    let size = Sectors(4096);
    let candidates = set(Level::Raid5, 4).into_iter().zip(SUPERBLOCKS).enumerate();
    candidates
        .map(|(index, (candidate, bytes))| {
            let mut superblock = Super090::parse(bytes, size).unwrap();
            change(index, &mut superblock);
            Candidate::with_superblock(MemberInfo { size, ..candidate.member }, superblock)
        })
        .collect()
}

#[test]
fn old_superblocks_are_told_apart_by_their_own_fields() {
    type Change = fn(usize, &mut Super090);
    let cases: [(Change, &str); 8] = [
        (|_, _| {}, "UUUU []"),
        (
            |index, it| it.this_disk.number = [0, 0, 2, 3][index],
            "copies: m1: superblock this_disk.number at byte 3968: found device number 0",
        ),
        (
            |index, it| it.ctime += index as u32,
            "members-disagree: m1: superblock ctime at byte 24:",
        ),
        (
            |index, it| it.chunk_bytes <<= index,
            "members-disagree: m1: superblock chunksize at byte 260:",
        ),
        (
            |index, it| it.layout = [2, 2, 2, 0][index],
            "members-disagree: m3: superblock layout at byte 256:",
        ),
        (
            |index, it| it.size_kib -= [0, 0, 8, 0][index],
            "members-disagree: m2: superblock size at byte 32:",
        ),
        (|_, it| it.order = weft_ondisk::ByteOrder::Big, "write-foreign: m0: superblock magic"),
        (|index, it| it.events += [1, 1, 1, 0][index], "UUUU []"),
    ];
    for (change, expected) in cases {
        let found = outcome(&old_set(change), &run());
        assert!(found.starts_with(expected), "{found}\n{expected}");
    }
}

/// Adds spares to `old_set`. Each has the given number, and a table with the given number of
/// spares.
fn with_spares(spares: &[(u32, u32)]) -> Vec<Candidate> {
    let mut set = old_set(|_, _| {});
    for (number, in_table) in spares {
        let Ok(Superblock::V0_90(first)) = set[0].superblock.as_deref().cloned() else { panic!() };
        let mut superblock = *first;
        for spare in 4..4 + in_table {
            superblock.set_role(spare, weft_ondisk::Role::Spare);
        }
        let index = set.len() as u16;
        let (label, size) = (format!("m{index}"), Sectors(4096));
        let member = MemberInfo { index: MemberIndex(index), label, size, ..set[0].member.clone() };
        let superblock = superblock.of_member(*number).unwrap();
        set.push(Candidate::with_superblock(member, superblock));
    }
    set
}

fn numbers(set: &[Candidate]) -> Vec<u32> {
    let assembly = assemble(set, &Options::default()).unwrap();
    assert!(assembly.dropped.is_empty(), "{:?}", assembly.dropped);
    assembly.spares.iter().map(|spare| spare.superblock.dev_number()).collect()
}

// Regression: after a crash between two superblock writes, assembly took one spare for a copy of
// the other and refused the array.
#[test]
fn spares_of_one_number_are_two_unless_they_say_the_same() {
    assert_eq!(numbers(&with_spares(&[(4, 2), (5, 2)])), [4, 5]);
    assert_eq!(numbers(&with_spares(&[(4, 2), (4, 1)])), [4, 5]);
    assert_eq!(numbers(&with_spares(&[(5, 2), (4, 2), (5, 3), (4, 3)])), [5, 4, 6, 7]);
    let found = outcome(&with_spares(&[(4, 2), (4, 2)]), &run());
    assert!(found.starts_with("copies: m5: superblock this_disk.number at byte 3968"), "{found}");
    // The fresher spare keeps its number.
    let mut set = with_spares(&[(4, 2), (4, 1)]);
    let Ok(Superblock::V0_90(stale)) = set[4].superblock.as_deref_mut() else { panic!() };
    stale.events -= 1;
    assert_eq!(numbers(&set), [5, 4]);
}

// Regression: a member failed while superblocks were written, and a spare got the member's slot and
// number before the next superblocks were written. Assembly refused the array.
#[test]
fn of_two_members_at_a_slot_the_fresher_one_is_believed() {
    let successor = |lag: u64| {
        let mut set = old_set(|_, _| {});
        let Ok(Superblock::V0_90(first)) = set[2].superblock.as_deref().cloned() else { panic!() };
        let (label, size) = ("m4".to_owned(), Sectors(4096));
        let index = MemberIndex(4);
        let member = MemberInfo { index, label, size, ..set[0].member.clone() };
        let mut superblock = *first;
        superblock.this_disk.minor += 7;
        set.push(Candidate::with_superblock(member, superblock));
        let Ok(Superblock::V0_90(failed)) = set[2].superblock.as_deref_mut() else { panic!() };
        failed.events -= lag;
        set
    };
    let assembly = assemble(&successor(1), &Options::default()).unwrap();
    let mut slots =
        assembly.members().filter_map(|(slot, member)| Some((slot?, member.info.index)));
    assert!(slots.any(|it| it == (Slot(2), MemberIndex(4))));
    let [dropped] = &assembly.dropped[..] else { panic!("{:?}", assembly.dropped) };
    assert_eq!(dropped.member.index, MemberIndex(2));
    assert!(dropped.reason.contains("m4 is at its slot"), "{}", dropped.reason);
    let found = outcome(&successor(0), &run());
    assert!(!found.starts_with("UUUU"), "{found}");
}
