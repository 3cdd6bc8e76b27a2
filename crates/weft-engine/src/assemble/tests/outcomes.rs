//! Tests of assembly as one table, from sets of members and options to outcomes.
//!
//! An outcome is either the content of the slots with the states and the notes, or the state for
//! which the set is refused with the reason. A case states how its outcome begins; further texts
//! that must occur are in `says`.

use super::*;
use weft_ondisk::{JournalState, MetaBlock, Role};

struct Case {
    what: &'static str,
    level: Level,
    spoil: fn(&mut Vec<Candidate>),
    options: fn() -> Options,
    is: &'static str,
    says: &'static [&'static str],
}

pub(super) fn ask() -> Options {
    Options::default()
}

pub(super) fn read() -> Options {
    Options { read_only: true, ..ask() }
}

fn named(name: &str) -> Options {
    Options { name: Some(name.to_owned()), ..ask() }
}

/// Outcome of an assembly as one text.
pub(super) fn outcome(candidates: &[Candidate], options: &Options) -> String {
    match assemble(candidates, options) {
        Ok(assembly) => {
            let states: Vec<_> = assembly.states.iter().map(|state| state.id()).collect();
            let notes = assembly.notes.join("; ");
            let dropped: Vec<_> = assembly
                .dropped
                .iter()
                .map(|it| format!("{} {}", it.member.label, it.reason))
                .collect();
            format!("{} [{}] {notes} | {}", slots(&assembly), states.join(" "), dropped.join("; "))
        }
        Err(refused) => {
            format!("{}: {} |", refused.state.id(), refused.reason)
        }
    }
}

pub(super) fn each(set: &mut [Candidate], change: impl Fn(&mut Super1)) {
    set.iter_mut().for_each(|candidate| edit(candidate, &change));
}

/// Adds a member that all superblocks record in the role `role`.
pub(super) fn add(set: &mut Vec<Candidate>, role: Role) {
    let number = set.len() as u32;
    let mut one = set[0].clone();
    one.member.label = format!("m{number}");
    one.member.index = MemberIndex(number as u16);
    edit(&mut one, |superblock| {
        superblock.dev_number = number;
        superblock.device_uuid = Uuid([50 + number as u8; 16]);
    });
    set.push(one);
    each(set, |superblock| superblock.set_role(number, role));
}

/// Adds a member that is being filled to replace the member at slot 1; `recovery_offset` is the
/// recovery offset in its superblock.
fn replacing(set: &mut Vec<Candidate>, recovery_offset: Option<Sectors>) {
    add(set, Role::Active(Slot(1)));
    edit(set.last_mut().unwrap(), |superblock| {
        superblock.set_recovery_offset(recovery_offset);
        superblock.feature_map.insert(Features::REPLACEMENT);
    });
}

/// Adds a journal with the content `holds`.
fn journal(set: &mut Vec<Candidate>, holds: Option<Result<JournalState, String>>) {
    add(set, Role::Journal);
    each(set, |superblock| superblock.feature_map.insert(Features::JOURNAL));
    set.last_mut().unwrap().logs.journal = holds;
}

pub(super) fn bad_blocks(ranges: &[SectorRange]) -> BadBlocks {
    let mut bad = BadBlocks::default();
    ranges.iter().for_each(|range| bad.insert(*range));
    bad
}

const CASES: &[Case] = &[
    Case {
        what: "a member that the others record as failed, with the same update count",
        level: Level::Raid5,
        spoil: |set| each(&mut set[1..], |superblock| superblock.set_role(0, Role::Faulty)),
        options: run,
        is: "_UUU [degraded members-not-used]  | m0 m1 says of it: faulty; its own superblock says slot 0",
        says: &[],
    },
    Case {
        what: "such a member is ahead by one: the others wrote no data since",
        level: Level::Raid5,
        spoil: |set| {
            edit(&mut set[0], |superblock| superblock.events += 1);
        },
        options: run,
        is: "UUUU []  | ",
        says: &[],
    },
    Case {
        what: "devices without superblocks",
        level: Level::Raid5,
        spoil: |set| {
            for candidate in set {
                candidate.superblock = Err("nothing there".to_owned());
            }
        },
        options: run,
        is: "no-member: no md superblock on any of 4 devices",
        says: &[],
    },
    Case {
        what: "another uuid is asked for",
        level: Level::Raid5,
        spoil: |_| {},
        options: || Options { uuid: Some(Uuid([1; 16])), ..run() },
        is: "no-member: no member of the array asked for among 4 devices",
        says: &[],
    },
    Case {
        what: "another name is asked for",
        level: Level::Raid5,
        spoil: |_| {},
        options: || named("other"),
        is: "no-member: no member of the array asked for among 4 devices",
        says: &[],
    },
    Case {
        what: "a name without its host",
        level: Level::Raid5,
        spoil: |set| each(set, |it| it.set_name[..6].copy_from_slice(b"host:a")),
        options: || named("a"),
        is: "UUUU []  | ",
        says: &[],
    },
    Case {
        what: "a name with its host",
        level: Level::Raid5,
        spoil: |set| each(set, |it| it.set_name[..6].copy_from_slice(b"host:a")),
        options: || named("host:a"),
        is: "UUUU []  | ",
        says: &[],
    },
    Case {
        what: "a host is no name",
        level: Level::Raid5,
        spoil: |set| each(set, |it| it.set_name[..6].copy_from_slice(b"host:a")),
        options: || named("host"),
        is: "no-member",
        says: &[],
    },
    Case {
        what: "one is of another array than the one asked for",
        level: Level::Raid5,
        spoil: |set| edit(&mut set[3], |it| it.set_uuid = Uuid([7; 16])),
        options: || Options { uuid: Some(Uuid([99; 16])), ..run() },
        is: "UUU_ [degraded members-not-used] newly degraded: the array knows a member at slot 3, \
             and none of the devices given can be used there",
        says: &[
            "m3 belongs to 07070707:07070707:07070707:07070707 \"\", raid5 of 4, which was not \
                 asked for",
        ],
    },
    Case {
        what: "an array without an identity",
        level: Level::Raid5,
        spoil: |set| each(set, |it| it.set_uuid = Uuid([0; 16])),
        options: run,
        is: "no-identity: set_uuid: found all zeros",
        says: &[],
    },
    Case {
        what: "the same number, of an earlier time",
        level: Level::Raid5,
        spoil: |set| {
            each(set, |it| it.events = 10);
            edit(&mut set[3], |it| {
                it.dev_number = 2;
                it.events = 5;
            });
        },
        options: run,
        is: "UUU_",
        says: &["m3 stale: events 5"],
    },
    Case {
        what: "what is of one member only may differ",
        level: Level::Raid5,
        spoil: |set| edit(&mut set[2], |it| it.set_recovery_offset(Some(Sectors(2048)))),
        options: run,
        is: "UUrU [rebuilding]  | ",
        says: &[],
    },
    Case {
        what: "a member one behind may lack what the array has got since",
        level: Level::Raid5,
        spoil: |set| {
            each(set, |it| it.events = 10);
            edit(&mut set[2], |it| {
                it.events = 9;
                it.feature_map.insert(Features::BITMAP);
                it.bitmap_offset_raw = 8i32.to_le_bytes();
            });
        },
        options: read,
        is: "UUUU []  | ",
        says: &[],
    },
    Case {
        what: "too many are rebuilding",
        level: Level::Raid5,
        spoil: |set| {
            edit(&mut set[2], |it| it.set_recovery_offset(Some(Sectors(2048))));
            set.remove(0);
        },
        options: run,
        is: "too-few-members: need 3 of 4 members in sync, have 2: slot 0 missing, slot 2 (m2) \
             rebuilt only to 2048 sectors",
        says: &[],
    },
    Case {
        what: "a replacement beside its original, which is one update behind",
        level: Level::Raid5,
        spoil: |set| {
            replacing(set, Some(Sectors(2048)));
            set[1..].iter_mut().for_each(|it| edit(it, |superblock| superblock.events += 1));
            edit(&mut set[1], |superblock| superblock.events -= 1);
        },
        options: ask,
        is: "UUUU [replacing]  | ",
        says: &[],
    },
    Case {
        what: "a replacement beside its original, for reading",
        level: Level::Raid5,
        spoil: |set| replacing(set, Some(Sectors(2048))),
        options: read,
        is: "UUUU [replacing members-not-used]  | m4 is being filled to replace m1, which is at its \
             slot",
        says: &[],
    },
    Case {
        what: "two replacements beside their original",
        level: Level::Raid5,
        spoil: |set| {
            replacing(set, Some(Sectors(2048)));
            replacing(set, Some(Sectors(4096)));
        },
        options: ask,
        is: "UUUU [replacing members-not-used]  | m5 is being filled to replace m1, which is at its \
             slot",
        says: &[],
    },
    Case {
        what: "a replacement beside its original, which cannot be used",
        level: Level::Raid5,
        spoil: |set| {
            replacing(set, Some(Sectors(2048)));
            set[1].logs.bad_blocks = Some(Err("bad-block log: damaged".to_owned()));
        },
        options: run,
        is: "UrUU [rebuilding members-not-used] newly degraded: the array knows a member at slot 1",
        says: &["m1 bad-block log: damaged"],
    },
    Case {
        what: "a replacement of a member that is recorded as failed",
        level: Level::Raid5,
        spoil: |set| {
            replacing(set, Some(Sectors(2048)));
            each(set, |superblock| superblock.set_role(1, Role::Faulty));
            set.remove(1);
        },
        options: ask,
        is: "UrUU [rebuilding]  | ",
        says: &[],
    },
    Case {
        what: "a replacement of a member that is not here",
        level: Level::Raid5,
        spoil: |set| {
            replacing(set, Some(Sectors(2048)));
            set.remove(1);
        },
        options: ask,
        is: "newly-degraded: newly degraded: the array knows a member at slot 1",
        says: &[],
    },
    Case {
        what: "a replacement that is complete, before its bit was cleared",
        level: Level::Raid5,
        spoil: |set| {
            replacing(set, None);
            each(set, |superblock| superblock.set_role(1, Role::Faulty));
        },
        options: ask,
        is: "UUUU [members-not-used]  | m1 its own superblock says that it failed",
        says: &[],
    },
    Case {
        what: "two replacements of one member",
        level: Level::Raid5,
        spoil: |set| {
            replacing(set, Some(Sectors(2048)));
            replacing(set, Some(Sectors(4096)));
            set.remove(1);
        },
        options: run,
        is: "slot-twice: m5: found a second member at slot 1, expected one: m4 is at it too",
        says: &[],
    },
    Case {
        what: "a reshape, for reading",
        level: Level::Raid5,
        spoil: |set| each(set, |it| it.feature_map.insert(Features::RESHAPE)),
        options: read,
        is: "reshaping: m0: superblock feature_map at byte 8: found 0x4 (RESHAPE)",
        says: &[],
    },
    Case {
        what: "bad blocks in units of 8 sectors, for writing",
        level: Level::Raid5,
        spoil: |set| {
            edit(&mut set[1], |it| it.feature_map.insert(Features::BADBLOCKS));
            edit(&mut set[1], |it| it.bblog_shift = 3);
        },
        options: run,
        is: "write-bad-blocks: m1: superblock bblog_shift: found a bad-block log in units",
        says: &[],
    },
    Case {
        what: "bad blocks",
        level: Level::Raid5,
        spoil: |set| {
            edit(&mut set[1], |it| it.feature_map.insert(Features::BADBLOCKS));
            set[1].logs.bad_blocks = Some(Ok(bad_blocks(&[SectorRange::new(8, 8)])));
        },
        options: run,
        is: "UUUU [bad-blocks] m1: bad-block log: found 1 ranges",
        says: &[],
    },
    Case {
        what: "an empty bad-block log",
        level: Level::Raid5,
        spoil: |set| set[1].logs.bad_blocks = Some(Ok(bad_blocks(&[]))),
        options: run,
        is: "UUUU []  | ",
        says: &[],
    },
    Case {
        what: "a bad-block log that is not to be believed",
        level: Level::Raid5,
        spoil: |set| set[1].logs.bad_blocks = Some(Err("bad-block log entry 3".to_owned())),
        options: read,
        is: "U_UU [degraded members-not-used]",
        says: &["m1 bad-block log entry 3"],
    },
    Case {
        what: "something that weft does not keep up",
        level: Level::Raid5,
        spoil: |set| edit(&mut set[1], |it| it.feature_map.insert(Features::RECOVERY_BITMAP)),
        options: run,
        is: "write-unknown: m1: superblock RECOVERY_BITMAP",
        says: &[],
    },
    Case {
        what: "partial parity logs, for writing",
        level: Level::Raid5,
        spoil: |set| each(set, |it| it.feature_map.insert(Features::PPL)),
        options: run,
        is: "write-logged: m0: superblock PPL",
        says: &[],
    },
    Case {
        what: "a ring of partial parity logs, for writing",
        level: Level::Raid5,
        spoil: |set| each(set, |it| it.feature_map.insert(Features::MULTI_PPL)),
        options: run,
        is: "write-logged: m0: superblock MULTI_PPL",
        says: &[],
    },
    Case {
        what: "a spare that all know",
        level: Level::Raid5,
        spoil: |set| add(set, Role::Spare),
        options: ask,
        is: "UUUU []  | ",
        says: &[],
    },
    Case {
        what: "a spare that lacks an update, under an update count that is theirs by chance",
        level: Level::Raid5,
        spoil: |set| {
            add(set, Role::Spare);
            edit(&mut set[4], |it| {
                it.feature_map.insert(Features::BITMAP);
                it.bitmap_offset_raw = 8i32.to_le_bytes();
            });
        },
        options: run,
        is: "UUUU []  | ",
        says: &[],
    },
    Case {
        what: "a spare with a number that is another's by now",
        level: Level::Raid5,
        spoil: |set| {
            edit(&mut set[3], |it| it.roles[3] = 0xffff);
        },
        options: run,
        is: "UUU_ [degraded members-not-used]",
        says: &["m3 m0 knows its number as that of slot 3; add it again to use it"],
    },
    Case {
        what: "spares alone",
        level: Level::Raid5,
        spoil: |set| {
            set.truncate(1);
            edit(&mut set[0], |it| it.roles[0] = 0xffff);
        },
        options: run,
        is: "only-spares: only spares: no member has a slot",
        says: &[],
    },
    Case {
        what: "a member that knows that it failed",
        level: Level::Raid5,
        spoil: |set| edit(&mut set[3], |it| it.roles[3] = 0xfffe),
        options: run,
        is: "UUU_ [degraded members-not-used]",
        says: &["m3 its own superblock says that it failed"],
    },
    Case {
        what: "a member that the others have forgotten",
        level: Level::Raid5,
        spoil: |set| {
            for candidate in &mut set[..3] {
                edit(candidate, |it| it.roles.truncate(3));
            }
        },
        options: run,
        is: "UUU_ [degraded members-not-used]  | ",
        says: &["m3 m0 says of it: nothing; its own superblock says slot 3"],
    },
    Case {
        what: "a member that the others know as a spare",
        level: Level::Raid5,
        spoil: |set| {
            for candidate in &mut set[..3] {
                edit(candidate, |it| it.roles[3] = 0xffff);
            }
        },
        options: run,
        is: "UUU_ [degraded members-not-used]  | ",
        says: &["m3 m0 says of it: no slot; its own superblock says slot 3"],
    },
    Case {
        what: "a role that is none",
        level: Level::Raid5,
        spoil: |set| edit(&mut set[3], |it| it.roles[3] = 0xff00),
        options: run,
        is: "UUU_ [degraded members-not-used]",
        says: &["m3 role: superblock dev_roles at byte 262"],
    },
    Case {
        what: "a slot that the array does not have",
        level: Level::Raid5,
        spoil: |set| each(set, |it| it.roles[3] = 7),
        options: run,
        is: "UUU_ [degraded members-not-used]  | ",
        says: &["m3 role 7 of 4"],
    },
    Case {
        what: "RAID 0 of equal members needs no layout",
        level: Level::Raid5,
        spoil: |set| each(set, |it| it.level = Level::Raid0),
        options: run,
        is: "UUUU []  | ",
        says: &[],
    },
    Case {
        what: "RAID 0 of several zones says its layout",
        level: Level::Raid5,
        spoil: |set| {
            each(set, |it| {
                it.level = Level::Raid0;
                it.feature_map.insert(Features::RAID0_LAYOUT);
            });
            edit(&mut set[1], |it| it.data_size = Sectors(10_000));
        },
        options: run,
        is: "UUUU []  | ",
        says: &[],
    },
    Case {
        what: "RAID 0 with one larger member has the same zones by either layout",
        level: Level::Raid5,
        spoil: |set| {
            each(set, |it| (it.level, it.data_size) = (Level::Raid0, Sectors(10_240)));
            edit(&mut set[1], |it| it.data_size.0 += 6000);
        },
        options: run,
        is: "UUUU []  | ",
        says: &[],
    },
    Case {
        what: "RAID 0 with members that differ by less than a chunk",
        level: Level::Raid5,
        spoil: |set| {
            each(set, |it| (it.level, it.data_size) = (Level::Raid0, Sectors(10_240)));
            edit(&mut set[1], |it| it.data_size.0 += 8);
            edit(&mut set[2], |it| it.data_size.0 += 16);
        },
        options: run,
        is: "UUUU []  | ",
        says: &[],
    },
    Case {
        what: "RAID 0 with two larger members says no layout",
        level: Level::Raid5,
        spoil: |set| {
            each(set, |it| (it.level, it.data_size) = (Level::Raid0, Sectors(10_240)));
            edit(&mut set[1], |it| it.data_size.0 += 3000);
            edit(&mut set[2], |it| it.data_size.0 += 6000);
        },
        options: run,
        is: "unsupported: m0: superblock layout at byte 76: found none, expected 1 or 2 for RAID0 on \
             members of different sizes",
        says: &[],
    },
    Case {
        what: "RAID 0 with two larger members says that it has layout 0",
        level: Level::Raid5,
        spoil: |set| {
            each(set, |it| {
                (it.level, it.data_size, it.layout) = (Level::Raid0, Sectors(10_240), 0);
                it.feature_map.insert(Features::RAID0_LAYOUT);
            });
            edit(&mut set[1], |it| it.data_size.0 += 3000);
            edit(&mut set[2], |it| it.data_size.0 += 6000);
        },
        options: run,
        is: "unsupported: m0: superblock layout at byte 76: found 0, expected 1 or 2 for RAID0 on \
             members of different sizes",
        says: &[],
    },
    Case {
        what: "resync goes on from where the first of all was",
        level: Level::Raid5,
        spoil: |set| {
            each(set, |it| it.resync_offset = ResyncOffset::At(Sectors(800)));
            edit(&mut set[2], |it| it.resync_offset = ResyncOffset::At(Sectors(400)));
            set.remove(3);
        },
        options: run,
        is: "dirty-degraded: dirty and degraded: every stripe written shortly before the crash may \
             reconstruct wrong data; suspect ranges: all from sector 400 of each member",
        says: &[],
    },
    Case {
        what: "nothing was in sync yet",
        level: Level::Raid5,
        spoil: |set| {
            each(set, |it| it.resync_offset = ResyncOffset::At(Sectors(0)));
            set.remove(3);
        },
        options: run,
        is: "dirty-degraded",
        says: &["suspect ranges: all |"],
    },
    Case {
        what: "one that was not stopped, and is whole",
        level: Level::Raid5,
        spoil: |set| each(set, |it| it.resync_offset = ResyncOffset::At(Sectors(8))),
        options: ask,
        is: "UUUU [resync-pending]  | ",
        says: &[],
    },
    Case {
        what: "rebuilding counts as missing where it is dirty",
        level: Level::Raid5,
        spoil: |set| {
            each(set, |it| it.resync_offset = ResyncOffset::At(Sectors(8)));
            edit(&mut set[2], |it| it.set_recovery_offset(Some(Sectors(2048))));
        },
        options: run,
        is: "dirty-degraded",
        says: &[],
    },
    Case {
        what: "dirty, degraded, and taken as it is",
        level: Level::Raid5,
        spoil: |set| {
            each(set, |it| it.resync_offset = ResyncOffset::At(Sectors(8)));
            set.remove(0);
        },
        options: || Options { force_dirty: true, ..run() },
        is: "_UUU [degraded resync-pending suspect-data] dirty and degraded",
        says: &["newly degraded: the array knows a member at slot 0, which is not here"],
    },
    Case {
        what: "dirty and degraded is not for reading either",
        level: Level::Raid5,
        spoil: |set| {
            each(set, |it| it.resync_offset = ResyncOffset::At(Sectors(8)));
            set.remove(0);
        },
        options: read,
        is: "dirty-degraded",
        says: &[],
    },
    Case {
        what: "the array knows that a member is missing",
        level: Level::Raid5,
        spoil: |set| {
            each(set, |it| it.roles[3] = 0xfffe);
            set.remove(3);
        },
        options: ask,
        is: "UUU_ [degraded]  | ",
        says: &[],
    },
    Case {
        what: "a member is missing, for reading",
        level: Level::Raid5,
        spoil: |set| drop(set.remove(3)),
        options: read,
        is: "UUU_ [degraded] newly degraded: the array knows a member at slot 3, which is not here",
        says: &[],
    },
    Case {
        what: "two are missing",
        level: Level::Raid6,
        spoil: |set| drop(set.drain(1..3)),
        options: ask,
        is: "newly-degraded: newly degraded: the array knows a member at slot 1, 2, which",
        says: &[],
    },
    Case {
        what: "data that does not begin with a block of the device",
        level: Level::Raid5,
        spoil: |set| {
            each(set, |it| it.data_offset = Sectors(2052));
            set[1].member.logical_block = 4096;
        },
        options: run,
        is: "misaligned: m1: superblock data_offset 2052 sectors: found a member with logical blocks \
             of 4096 bytes",
        says: &[],
    },
    Case {
        what: "a member that ends before its data does",
        level: Level::Raid5,
        spoil: |set| set[2].member.size = Sectors(SIZE.0 - 8),
        options: run,
        is: "truncated: m2: superblock data_offset",
        says: &["found a member of 20472 sectors, expected one that has them all"],
    },
    Case {
        what: "a journal that is not the array's",
        level: Level::Raid5,
        spoil: |set| {
            journal(set, Some(Ok(JournalState::Empty)));
            each(set, |it| it.feature_map.remove(Features::JOURNAL));
        },
        options: read,
        is: "journal-unexpected: m4: found a journal, expected none",
        says: &[],
    },
    Case {
        what: "a journal that has nothing",
        level: Level::Raid5,
        spoil: |set| journal(set, Some(Ok(JournalState::Empty))),
        options: read,
        is: "UUUU []  | ",
        says: &[],
    },
    Case {
        what: "a journal that has something",
        level: Level::Raid5,
        spoil: |set| {
            let block = MetaBlock::empty(1, Sectors(0));
            journal(set, Some(Ok(JournalState::Live(vec![block]))));
        },
        options: read,
        is: "journal-holds-data: m4: found 1 meta blocks in the journal",
        says: &[],
    },
    Case {
        what: "a journal that is damaged",
        level: Level::Raid5,
        spoil: |set| journal(set, Some(Err("journal magic".to_owned()))),
        options: read,
        is: "journal-holds-data: m4: journal magic",
        says: &[],
    },
    Case {
        what: "a journal that was not read, which is left out",
        level: Level::Raid5,
        spoil: |set| journal(set, None),
        options: || Options { without_journal: true, ..read() },
        is: "UUUU [without-journal] m4: the journal was not read; what was in the journal only",
        says: &[],
    },
    Case {
        what: "a journal is left out for reading only",
        level: Level::Raid5,
        spoil: |set| {
            journal(set, None);
            each(set, |it| it.feature_map.remove(Features::JOURNAL));
        },
        options: || Options { without_journal: true, ..run() },
        is: "journal-unexpected: m4",
        says: &[],
    },
    Case {
        what: "two journals",
        level: Level::Raid5,
        spoil: |set| {
            journal(set, Some(Ok(JournalState::Empty)));
            journal(set, Some(Ok(JournalState::Empty)));
        },
        options: read,
        is: "journal-unexpected: found two journals, m4 and m5, expected one",
        says: &[],
    },
];

#[test]
fn each_set_is_decided_as_the_table_says() {
    for case in CASES {
        let mut candidates = set(case.level, 4);
        (case.spoil)(&mut candidates);
        let found = outcome(&candidates, &(case.options)());
        assert!(found.starts_with(case.is), "{}:\n{found}\n{}", case.what, case.is);
        for part in case.says {
            assert!(found.contains(part), "{}:\n{found}\nhas no {part:?}", case.what);
        }
    }
}

#[test]
fn features_of_the_array_are_the_same_on_all_members() {
    let mut differ = Vec::new();
    for bit in 0..13 {
        let mut candidates = set(Level::Raid5, 4);
        edit(&mut candidates[2], |superblock| superblock.feature_map.insert(Features(1 << bit)));
        let found = outcome(&candidates, &read());
        if found.starts_with("members-disagree: m2: superblock feature_map at byte 8") {
            differ.push(Features(1 << bit).to_string());
        }
    }
    let expected = "BITMAP RESHAPE CLUSTERED JOURNAL PPL MULTI_PPL RAID0_LAYOUT";
    let names = differ.iter().map(|name| name.split(['(', ')']).nth(1).unwrap());
    assert_eq!(names.collect::<Vec<_>>().join(" "), expected);
}

#[test]
fn a_stripe_of_the_cache_has_frames_for_every_slot() {
    let assembly = assemble(&set(Level::Raid5, 4), &ask()).unwrap();
    for (bytes, frames) in [(4096, 4), (65_536, 64)] {
        assert_eq!(assembly.stripe_frames(StripeSize::new(bytes).unwrap()), frames);
    }
}

// Regression: a spare was removed, and another spare that was added later got its number. When one
// of the two took a slot, both superblocks recorded the slot, and the array was refused from then
// on.
#[test]
fn a_spare_with_a_number_that_another_spare_has_now_gets_one_of_its_own() {
    let mut candidates = set(Level::Raid5, 4);
    add(&mut candidates, Role::Spare);
    each(&mut candidates, |it| {
        it.roles.resize(8, 0xffff);
        it.events = 5;
    });
    let mut removed = candidates[4].clone();
    removed.member.index = MemberIndex(5);
    edit(&mut removed, |it| {
        it.device_uuid = Uuid([77; 16]);
        it.events = 4;
    });
    candidates.insert(4, removed);
    let assembly = assemble(&candidates, &ask()).unwrap();
    let numbers: Vec<_> = assembly.spares.iter().map(|it| it.superblock.dev_number()).collect();
    assert_eq!(numbers, [5, 4]);
    // Without room in the table the spare is not used.
    each(&mut candidates, |it| it.roles.truncate(5));
    let found = outcome(&candidates, &ask());
    assert!(
        found.starts_with("UUUU [members-not-used]  | m4 its number, 4, is another spare's"),
        "{found}"
    );
}
