//! Tests of overlays: against a model, after crashes, with changed members and hostile files.

use super::*;
use crate::buffers::AlignedBytes;
use crate::commit::{Commit, discard};
use crate::devices::{MemberSpec, OpenMember, OpenOptions};
use std::collections::BTreeMap;
use std::panic::AssertUnwindSafe;
use weft_units::MemberIndex;
use weft_units::rng::Rng;

const SIZE: u64 = (1 << 20) + 3 * 512;

/// A member with different content in each 8 bytes, in a file with other bytes around it.
struct Bench {
    dir: tempfile::TempDir,
    spec: MemberSpec,
}

impl Bench {
    fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("base");
        let bytes: Vec<u8> = (0..(SIZE + 8192) / 8).flat_map(u64::to_le_bytes).collect();
        std::fs::write(&path, bytes).unwrap();
        let spec = MemberSpec::parse(&format!("{}@4096+{SIZE}", path.display())).unwrap();
        Self { dir, spec }
    }

    fn base(&self) -> Vec<u8> {
        std::fs::read(self.dir.path().join("base")).unwrap()
    }

    fn member(&self, access: Access) -> Result<OpenMember, DeviceError> {
        let options = OpenOptions {
            buffered: true,
            lock_wait: std::time::Duration::ZERO,
            ..OpenOptions::new(Access::ReadOnly)
        };
        let member = options.open(&self.spec, MemberIndex(0), []).unwrap();
        member.with_overlay(&self.overlays(), access)
    }

    fn overlays(&self) -> PathBuf {
        self.dir.path().join("overlays")
    }

    fn overlay_file(&self) -> PathBuf {
        let mut files = std::fs::read_dir(self.overlays()).unwrap();
        files.next().unwrap().unwrap().path()
    }
}

fn content(member: &OpenMember) -> Vec<u8> {
    let mut all = vec![0; usize::try_from(SIZE).unwrap()];
    member.overlay().unwrap().read_at(&mut all, 0).unwrap();
    all
}

fn write(member: &OpenMember, at: u64, bytes: &[u8], durable: bool) {
    let buffer = Buffer::Owned(AlignedBytes::copy_of(bytes));
    let action = Action::Write { buffer, durable };
    let mut op = RingOp { id: 0, file: 0, action, offset: 4096 + at, skip: 0, limit: bytes.len() };
    assert_eq!(member.overlay().unwrap().perform(&mut op), Ok(bytes.len()));
}

/// Discards a range. Returns 1, the number of changes for the caller's count.
fn discard_at(member: &OpenMember, at: u64, len: u64) -> u32 {
    let action = Action::Discard { len };
    let mut op = RingOp { id: 0, file: 0, action, offset: 4096 + at, skip: 0, limit: 0 };
    assert_eq!(member.overlay().unwrap().perform(&mut op), Ok(0));
    1
}

fn read(member: &OpenMember, at: u64, len: usize) -> Vec<u8> {
    let action = Action::Read(Buffer::Owned(AlignedBytes::zeroed(len)));
    let mut op = RingOp { id: 0, file: 0, action, offset: 4096 + at, skip: 0, limit: len };
    assert_eq!(member.overlay().unwrap().perform(&mut op), Ok(len));
    let Action::Read(buffer) = op.action else { panic!() };
    buffer.into_owned().unwrap().as_ref().to_vec()
}

#[test]
fn what_was_flushed_stays_and_what_was_not_is_old_or_new() {
    let bench = Bench::new();
    let base = bench.base();
    let mut model = base[4096..4096 + usize::try_from(SIZE).unwrap()].to_vec();
    let mut rng = Rng::new(4711);
    let mut discarded = 0;
    for round in 0..12_u64 {
        let member = bench.member(Access::ReadWrite).unwrap();
        assert_eq!(content(&member), model, "round {round}");
        // Values that each sector may have: the flushed one and those written since.
        let mut since: BTreeMap<usize, Vec<Vec<u8>>> = BTreeMap::new();
        for step in 0..40 {
            let sectors = SIZE / 512;
            let at = rng.below(sectors);
            let len = (1 + rng.below(40)).min(sectors - at);
            let kind = rng.below(8);
            if kind == 0 {
                let mut op =
                    RingOp { id: 0, file: 0, action: Action::Flush, offset: 0, skip: 0, limit: 0 };
                assert_eq!(member.overlay().unwrap().perform(&mut op), Ok(0));
                since.clear();
                continue;
            }
            let (from, bytes) =
                (usize::try_from(at * 512).unwrap(), usize::try_from(len * 512).unwrap());
            if kind < 2 {
                assert_eq!(read(&member, at * 512, bytes), model[from..from + bytes]);
                continue;
            }
            let fill = u8::try_from((round * 40 + step) % 251).unwrap();
            let is_discard = kind == 2;
            let data = vec![if is_discard { 0 } else { fill }; bytes];
            for sector in (from..from + bytes).step_by(512) {
                let old = model[sector..sector + 512].to_vec();
                since.entry(sector).or_default().push(old);
            }
            if is_discard {
                discarded += discard_at(&member, at * 512, bytes as u64);
            } else {
                write(&member, at * 512, &data, kind == 7);
            }
            model[from..from + bytes].copy_from_slice(&data);
            if kind == 7 {
                // Earlier writes may have become durable with this one, or not: both are allowed.
                for sector in (from..from + bytes).step_by(512) {
                    since.remove(&sector);
                }
            }
            assert!(!member.overlay().unwrap().is_untouched(4096 + at * 512, 512));
        }
        drop(member); // as kill -9: nothing is flushed
        let member = bench.member(Access::ReadOnly).unwrap();
        let after = content(&member);
        for sector in (0..after.len()).step_by(512) {
            let found = &after[sector..sector + 512];
            let old = since.get(&sector).is_some_and(|old| old.iter().any(|old| old == found));
            assert!(old || found == &model[sector..sector + 512], "round {round}, byte {sector}");
        }
        model = after;
    }
    assert_eq!(bench.base(), base, "the member was never written");
    assert!(discarded > 30, "{discarded} discards");
    assert!(bench.member(Access::ReadOnly).unwrap().overlay().unwrap().bytes().0 > 100_000);
}

#[test]
fn what_was_discarded_is_a_hole_of_the_overlay_and_then_of_the_member() {
    // Ranges that begin and end in a granule, within one, on granules, and at the end of the
    // member.
    for (at, len) in [
        (512, 256 << 10),
        (4096 + 1024, 1024),
        (3584, 1024),
        (8192, 512 << 10),
        (SIZE - 1536 - 8192, 8192 + 1536),
        (0, SIZE),
    ] {
        let bench = Bench::new();
        let base = bench.base();
        let member = bench.member(Access::ReadWrite).unwrap();
        assert!(member.info().discards);
        let mut expected = content(&member);
        write(&member, 12_288, &[9; 8192], false);
        expected[12_288..20_480].fill(9);
        discard_at(&member, at, len);
        let (from, to) = (usize::try_from(at).unwrap(), usize::try_from(at + len).unwrap());
        expected[from..to].fill(0);
        assert!(content(&member) == expected, "{at} {len}");
        let blocks = std::fs::metadata(bench.overlay_file()).unwrap().blocks();
        assert!(blocks * 512 < 64 << 10, "{at} {len}: the overlay has {blocks} blocks");
        assert_eq!(bench.base(), base);
        let mut flush =
            RingOp { id: 0, file: 0, action: Action::Flush, offset: 0, skip: 0, limit: 0 };
        assert_eq!(member.overlay().unwrap().perform(&mut flush), Ok(0));
        drop(member);
        let blocks = |path: &str| std::fs::metadata(bench.dir.path().join(path)).unwrap().blocks();
        let stored = blocks("base") * 512;
        let specs = std::slice::from_ref(&bench.spec);
        let commit = Commit::open(&bench.overlays(), specs, Access::ReadWrite).unwrap();
        let (planned, mut told) = (commit.plans()[0].bytes, 0);
        commit.run(&mut |bytes| told += bytes.0).unwrap();
        assert!(planned.0 - told < 4096, "{planned:?} {told}");
        let after = bench.base();
        assert!(after[4096..4096 + expected.len()] == expected, "{at} {len}");
        assert_eq!(after[4096 + expected.len()..], base[4096 + expected.len()..]);
        let saved = stored - blocks("base") * 512;
        assert!(saved + 4 * 4096 >= len, "{at} {len}: the member stores {saved} bytes less");
        assert!(saved <= len, "{at} {len}: the member stores {saved} bytes less");
    }
}

#[test]
fn an_overlay_is_sparse_has_one_writer_and_is_not_made_for_reading() {
    let bench = Bench::new();
    assert!(bench.member(Access::ReadOnly).unwrap().overlay().is_none());
    assert!(!bench.overlays().exists());
    let member = bench.member(Access::ReadWrite).unwrap();
    assert_eq!(member.access(), Access::ReadWrite);
    write(&member, 512, &[7; 512], true);
    let file = std::fs::metadata(bench.overlay_file()).unwrap();
    assert_eq!(file.mode() & 0o777, 0o600, "it has data of the member");
    assert!(file.len() > SIZE && file.blocks() * 512 < 64 << 10, "{} blocks", file.blocks());
    let error = bench.member(Access::ReadWrite).unwrap_err();
    assert!(matches!(error, DeviceError::Locked { .. }), "{error}");
    drop(member);
    let member = bench.member(Access::ReadOnly).unwrap();
    assert_eq!(member.access(), Access::ReadOnly);
    assert_eq!(content(&member)[512..1024], [7; 512]);
    assert_eq!(member.read(weft_units::Sectors(1), 512).unwrap().as_ref(), [7; 512]);
}

#[test]
fn a_member_that_was_written_since_is_refused() {
    let bench = Bench::new();
    write(&bench.member(Access::ReadWrite).unwrap(), 0, &[7; 4096], true);
    let path = bench.dir.path().join("base");
    let file = File::options().write(true).open(&path).unwrap();
    // A write elsewhere than to a superblock goes unnoticed, except for the modification time.
    file.write_all_at(&[1], 4096 + 100_000).unwrap();
    bench.member(Access::ReadWrite).unwrap();
    file.write_all_at(&[1], 4096 + 4096).unwrap();
    let error = bench.member(Access::ReadWrite).unwrap_err().to_string();
    assert!(error.contains("was written since") && error.contains("--discard-overlay"), "{error}");
    discard(&bench.overlays(), std::slice::from_ref(&bench.spec)).unwrap();
    bench.member(Access::ReadWrite).unwrap();
}

#[test]
fn a_commit_gives_what_the_overlay_showed_whenever_it_is_cut_short() {
    for cut in 0..5 {
        let bench = Bench::new();
        let before = bench.base();
        let member = bench.member(Access::ReadWrite).unwrap();
        for at in [0, 4096, 40_960, 300_000 / 512 * 512, SIZE - 512] {
            write(&member, at, &[u8::try_from(at % 250).unwrap() + 1; 512], true);
        }
        write(&member, 500 * 512, &[9; 100 * 512], true);
        let expected = content(&member);
        let shown = member.overlay().unwrap().bytes();
        drop(member);
        let specs = std::slice::from_ref(&bench.spec);
        let plan = Commit::open(&bench.overlays(), specs, Access::ReadOnly).unwrap().plans();
        assert_eq!((plan[0].bytes, plan[0].begun), (shown, false));
        assert_eq!(bench.base(), before);
        if cut > 0 {
            let commit = Commit::open(&bench.overlays(), specs, Access::ReadWrite).unwrap();
            let mut left = cut;
            let stopped = std::panic::catch_unwind(AssertUnwindSafe(|| {
                commit.run(&mut |_| {
                    left -= 1;
                    assert!(left > 0, "the power goes");
                })
            }));
            assert!(stopped.is_err());
            let error = bench.member(Access::ReadWrite).unwrap_err().to_string();
            assert!(error.contains("finish it with --commit-overlay"), "{error}");
            let error = discard(&bench.overlays(), specs).unwrap_err().to_string();
            assert!(error.contains("half new"), "{error}");
        }
        let commit = Commit::open(&bench.overlays(), specs, Access::ReadWrite).unwrap();
        assert_eq!(commit.plans()[0].begun, cut > 0);
        commit.run(&mut |_| {}).unwrap();
        let after = bench.base();
        assert_eq!(after[4096..4096 + expected.len()], expected);
        assert_eq!(after[..4096], before[..4096]);
        assert_eq!(after[4096 + expected.len()..], before[4096 + expected.len()..]);
        // Only the `.committed` file, which says that the overlay was committed, is left.
        let left = std::fs::read_dir(bench.overlays()).unwrap().map(|entry| entry.unwrap().path());
        let left: Vec<_> = left.collect();
        assert_eq!(left.len(), 1, "{left:?}");
        assert_eq!(left[0].extension().unwrap(), "committed");
        let commit = Commit::open(&bench.overlays(), specs, Access::ReadWrite).unwrap();
        assert!(commit.plans().is_empty());
        assert_eq!((commit.unchanged().len(), commit.committed().len()), (1, 1));
    }
}

#[test]
fn hostile_overlays_are_refused_and_nothing_is_written() {
    let bench = Bench::new();
    let base = bench.base();
    write(&bench.member(Access::ReadWrite).unwrap(), 0, &[7; 4096], true);
    let path = bench.overlay_file();
    let good = std::fs::read(&path).unwrap();
    let mut bad: Vec<(Vec<u8>, &str)> = Vec::new();
    let changed = |at: usize, value: u8| {
        let mut bytes = good.clone();
        bytes[at] ^= value;
        bytes
    };
    bad.push((changed(0, 1), "magic"));
    bad.push((changed(30, 1), "checksum"));
    bad.push((changed(4096 + 400, 1), "granule"));
    bad.push((changed(4096 + 4095, 0x80), "granule"));
    bad.push((good[..good.len() - 1].to_vec(), "size: found"));
    bad.push((good[..100].to_vec(), "less than a header"));
    bad.push((Vec::new(), "less than a header"));
    for size in [0, 1, 512, SIZE - 512, SIZE + 512, 1 << 62, u64::MAX] {
        let mut header: [u8; HEADER] = good[..HEADER].try_into().unwrap();
        header = Header { size, ..Header::decode(&header).unwrap() }.encode();
        bad.push(([&header, &good[HEADER..]].concat(), "header size"));
    }
    for (bytes, says) in bad {
        std::fs::write(&path, &bytes).unwrap();
        for access in [Access::ReadOnly, Access::ReadWrite] {
            let error = bench.member(access).unwrap_err().to_string();
            assert!(error.contains(says) && error.contains("--discard-overlay"), "{says}: {error}");
        }
        let specs = std::slice::from_ref(&bench.spec);
        assert!(Commit::open(&bench.overlays(), specs, Access::ReadWrite).is_err(), "{says}");
        assert_eq!(std::fs::read(&path).unwrap(), bytes, "{says}");
    }
    assert_eq!(bench.base(), base);
    std::fs::remove_file(&path).unwrap();
    std::fs::create_dir(&path).unwrap();
    assert!(bench.member(Access::ReadOnly).is_err());
}

/// Checks the rule of `member_io/` that bytes which were cut off are not zeros, even after a later
/// write.
#[test]
fn a_member_or_overlay_that_was_cut_short_is_gone() {
    let perform = |member: &OpenMember, at: u64, write: bool| {
        let buffer = Buffer::Owned(AlignedBytes::copy_of(&[9; 4096]));
        let action =
            if write { Action::Write { buffer, durable: false } } else { Action::Read(buffer) };
        let mut op = RingOp { id: 0, file: 0, action, offset: 4096 + at, skip: 0, limit: 4096 };
        member.overlay().unwrap().perform(&mut op)
    };
    for of_overlay in [false, true] {
        let bench = Bench::new();
        let member = bench.member(Access::ReadWrite).unwrap();
        write(&member, 600_064, &[7; 4096], true);
        let path = if of_overlay { bench.overlay_file() } else { bench.dir.path().join("base") };
        let file = File::options().write(true).open(path).unwrap();
        file.set_len(file.metadata().unwrap().len() / 2).unwrap();
        // A write of part of a granule: the rest of it is read from the member.
        assert_eq!(perform(&member, 900_096, true), Err(Errno::NODEV));
        assert_eq!(perform(&member, 900_096, false), Err(Errno::NODEV));
        let there = perform(&member, 4096, false);
        assert_eq!(there, if of_overlay { Err(Errno::NODEV) } else { Ok(4096) });
    }
}
