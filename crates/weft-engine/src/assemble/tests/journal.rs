//! Tests of journals with content that the members already hold.

use std::collections::BTreeMap;

use weft_ondisk::{
    JOURNAL_BLOCK_BYTES, JournalState, MetaBlock, Payload, Role, journal_block_checksum,
    journal_seed,
};

use super::outcomes::add;
use super::*;
use crate::assemble::journal::settle;

/// Blocks on the members: slot, data sector, and the byte that fills the block.
type Held = &'static [(u16, u64, u8)];

struct Case {
    what: &'static str,
    level: Level,
    /// Slots without a member.
    missing: &'static [u16],
    payloads: fn() -> Vec<Payload>,
    held: Held,
    empty: bool,
}

fn sum(fill: u8) -> u32 {
    journal_block_checksum(journal_seed(Uuid([99; 16])), &[fill; JOURNAL_BLOCK_BYTES])
}

fn data(sector: u64, fills: &[u8]) -> Payload {
    let checksums = fills.iter().map(|fill| sum(*fill)).collect();
    Payload::Data { flags: 0, sector: Sectors(sector), checksums }
}

fn parity(sector: u64, fills: &[u8]) -> Payload {
    let checksums = fills.iter().map(|fill| sum(*fill)).collect();
    Payload::Parity { flags: 0, sector: Sectors(sector), checksums }
}

fn flush(stripes: &[u64]) -> Payload {
    Payload::Flush { flags: 0, stripes: stripes.to_vec() }
}

/// Arrays are left-symmetric with chunks of 1024 sectors. In full stripe 0 of four members, P is on
/// slot 3; with RAID 6, Q is on slot 0.
const CASES: &[Case] = &[
    Case {
        what: "data is on its member",
        level: Level::Raid5,
        missing: &[],
        payloads: || vec![data(1024 + 16, &[1])],
        held: &[(1, 16, 1)],
        empty: true,
    },
    Case {
        what: "data is not on its member",
        level: Level::Raid5,
        missing: &[],
        payloads: || vec![data(1024 + 16, &[1])],
        held: &[(1, 16, 2)],
        empty: false,
    },
    Case {
        what: "the second block of data is 8 sectors on",
        level: Level::Raid5,
        missing: &[],
        payloads: || vec![data(1024 + 16, &[1, 2])],
        held: &[(1, 16, 1), (1, 24, 2)],
        empty: true,
    },
    Case {
        what: "the second block of data is not on its member",
        level: Level::Raid5,
        missing: &[],
        payloads: || vec![data(1024 + 16, &[1, 2])],
        held: &[(1, 16, 1), (1, 24, 1)],
        empty: false,
    },
    Case {
        what: "the member does not give the block",
        level: Level::Raid5,
        missing: &[],
        payloads: || vec![data(1024 + 16, &[1])],
        held: &[],
        empty: false,
    },
    Case {
        what: "the later of two writes is on the member",
        level: Level::Raid5,
        missing: &[],
        payloads: || vec![data(16, &[1]), data(16, &[2])],
        held: &[(0, 16, 2)],
        empty: true,
    },
    Case {
        what: "the earlier of two writes is on the member",
        level: Level::Raid5,
        missing: &[],
        payloads: || vec![data(16, &[1]), data(16, &[2])],
        held: &[(0, 16, 1)],
        empty: false,
    },
    Case {
        what: "data and parity are on the members",
        level: Level::Raid5,
        missing: &[],
        payloads: || vec![data(16, &[1]), parity(16, &[3])],
        held: &[(0, 16, 1), (3, 16, 3)],
        empty: true,
    },
    Case {
        what: "parity is not on its member",
        level: Level::Raid5,
        missing: &[],
        payloads: || vec![data(16, &[1]), parity(16, &[3])],
        held: &[(0, 16, 1), (3, 16, 4)],
        empty: false,
    },
    Case {
        what: "P and Q are on the members",
        level: Level::Raid6,
        missing: &[],
        payloads: || vec![parity(16, &[3, 4])],
        held: &[(3, 16, 3), (0, 16, 4)],
        empty: true,
    },
    Case {
        what: "Q is not on its member",
        level: Level::Raid6,
        missing: &[],
        payloads: || vec![parity(16, &[3, 4])],
        held: &[(3, 16, 3), (0, 16, 3)],
        empty: false,
    },
    Case {
        what: "parity of a later full stripe is where the layout has it",
        level: Level::Raid5,
        missing: &[],
        payloads: || vec![parity(1024, &[3])],
        held: &[(2, 1024, 3)],
        empty: true,
    },
    Case {
        what: "parity is on its member, and gives the block of the one that is missing",
        level: Level::Raid5,
        missing: &[0],
        payloads: || vec![data(16, &[1]), parity(16, &[3])],
        held: &[(3, 16, 3)],
        empty: true,
    },
    Case {
        what: "the member is missing, and the stripe has no parity",
        level: Level::Raid5,
        missing: &[0],
        payloads: || vec![data(16, &[1])],
        held: &[],
        empty: false,
    },
    Case {
        what: "the member is missing, and its data is later than the parity",
        level: Level::Raid5,
        missing: &[0],
        payloads: || vec![parity(16, &[3]), data(16, &[1])],
        held: &[(3, 16, 3)],
        empty: false,
    },
    Case {
        what: "the stripe was flushed",
        level: Level::Raid5,
        missing: &[],
        payloads: || vec![data(16, &[1]), flush(&[16])],
        held: &[(0, 16, 2)],
        empty: true,
    },
    Case {
        what: "another stripe was flushed",
        level: Level::Raid5,
        missing: &[],
        payloads: || vec![data(16, &[1]), flush(&[24])],
        held: &[(0, 16, 2)],
        empty: false,
    },
    Case {
        what: "data beyond the array",
        level: Level::Raid5,
        missing: &[],
        payloads: || vec![data(3 * 16_384, &[1]), flush(&[16_384])],
        held: &[(0, 16_384, 1), (1, 16_384, 1), (2, 16_384, 1), (3, 16_384, 1)],
        empty: false,
    },
    Case {
        what: "the last data of the array",
        level: Level::Raid5,
        missing: &[],
        payloads: || vec![data(3 * 16_384 - 8, &[1])],
        held: &[(3, 16_376, 1)],
        empty: true,
    },
    Case {
        what: "data at the end of all sectors",
        level: Level::Raid5,
        missing: &[],
        payloads: || vec![data(u64::MAX - 7, &[1, 2])],
        held: &[],
        empty: false,
    },
    Case {
        what: "parity beyond the members",
        level: Level::Raid5,
        missing: &[],
        payloads: || vec![parity(16_384, &[1]), flush(&[16_384])],
        held: &[],
        empty: false,
    },
    Case {
        what: "the last parity of the members",
        level: Level::Raid5,
        missing: &[],
        payloads: || vec![parity(16_376, &[1])],
        held: &[(0, 16_376, 1)],
        empty: true,
    },
    Case {
        what: "data that was discarded",
        level: Level::Raid5,
        missing: &[],
        payloads: || vec![Payload::Data { flags: 1, sector: Sectors(16), checksums: vec![sum(1)] }],
        held: &[(0, 16, 1)],
        empty: false,
    },
    Case {
        what: "parity of a reshape",
        level: Level::Raid5,
        missing: &[],
        payloads: || vec![Payload::Parity { flags: 2, sector: Sectors(16), checksums: vec![] }],
        held: &[],
        empty: false,
    },
];

fn with_journal(case: &Case) -> Vec<Candidate> {
    let mut candidates = set(case.level, 4);
    add(&mut candidates, Role::Journal);
    for candidate in &mut candidates {
        edit(candidate, |superblock| {
            superblock.feature_map.insert(Features::JOURNAL);
            // With a journal, `resync_offset` has no meaning.
            superblock.resync_offset = ResyncOffset::At(Sectors(0));
        });
    }
    let block = MetaBlock { payloads: (case.payloads)(), ..MetaBlock::empty(1, Sectors(0)) };
    candidates[4].logs.journal = Some(Ok(JournalState::Live(vec![block])));
    candidates.retain(|candidate| !case.missing.contains(&candidate.member.index.0));
    candidates
}

#[test]
fn a_journal_counts_as_empty_when_members_have_all_of_it() {
    for case in CASES {
        let mut candidates = with_journal(case);
        let offset = candidates[0].superblock.as_ref().unwrap().data_offset();
        let held: BTreeMap<_, _> =
            case.held.iter().map(|(slot, sector, fill)| ((*slot, *sector), *fill)).collect();
        settle(&mut candidates, &Options::default(), |member, sector, len| {
            let fill = held.get(&(member.index.0, sector.0 - offset.0))?;
            Some(vec![*fill; len])
        });
        let journal = candidates.last().unwrap().logs.journal.as_ref().unwrap();
        assert_eq!(journal == &Ok(JournalState::Empty), case.empty, "{}", case.what);
    }
}

#[test]
fn no_member_is_asked_for_blocks_without_a_journal_that_holds_something() {
    let mut candidates = with_journal(&CASES[0]);
    for holds in [Ok(JournalState::Empty), Err("a wrong magic".to_owned())] {
        candidates[4].logs.journal = Some(holds);
        let before = candidates[4].logs.clone();
        settle(&mut candidates, &Options::default(), |_, _, _| panic!("nothing is to be read"));
        assert_eq!(candidates[4].logs, before);
    }
}
