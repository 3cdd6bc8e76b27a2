//! Are sets with superblocks of version 0.90 decided by their own fields?

use weft_ondisk::Super090;

use super::outcomes::outcome;
use super::*;

/// The four members of `raid5-4-v090`, as Linux wrote them.
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
