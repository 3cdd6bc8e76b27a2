//! Tests of assembly with bitmaps, bad-block logs and partial parity logs.

use weft_ondisk::{PplEntry, PplHeader};

use super::outcomes::{ask, bad_blocks, each, outcome, read};
use super::*;

/// A RAID 5 that was not stopped cleanly and lacks its first member; the other members have partial
/// parity logs. Slot 2 has the parity of full stripe 1, and was writing 8 sectors of it.
fn with_parity_logs(change: impl FnOnce(&mut Vec<Candidate>)) -> Vec<Candidate> {
    let mut set = set(Level::Raid5, 4);
    each(&mut set, |superblock| {
        superblock.feature_map.insert(Features::PPL);
        superblock.bitmap_offset_raw = [8, 0, 16, 0];
        superblock.resync_offset = ResyncOffset::At(Sectors(0));
    });
    for candidate in &mut set {
        candidate.logs.ppl = Some(Ok(PplHeader::empty(7)));
    }
    let write = PplEntry {
        data_sector: Sectors(3 * 1024),
        pp_size: 4096,
        data_size: 4096,
        parity_disk: 2,
        checksum: 0,
    };
    set[2].logs.ppl = Some(Ok(PplHeader { entries: vec![write], ..PplHeader::empty(7) }));
    set.remove(0);
    change(&mut set);
    set
}

#[test]
fn partial_parity_logs_say_which_stripes_are_not_to_be_believed() {
    let candidates = with_parity_logs(|_| {});
    assert!(outcome(&candidates, &read()).starts_with(
        "_UUU [degraded resync-pending] dirty and degraded: partial parity logs name 8 sectors"
    ));
    let assembly = assemble(&candidates, &read()).unwrap();
    let suspect: Vec<_> = assembly
        .members()
        .map(|(slot, member)| (slot.unwrap().0, member.bad_blocks().ranges().to_vec()))
        .collect();
    assert_eq!(suspect, [(1, vec![]), (2, vec![SectorRange::new(1024, 8)]), (3, vec![])]);

    // A log that is missing, damaged or of another layout gives no information.
    let missing = with_parity_logs(|set| set[0].logs.ppl = None);
    assert!(outcome(&missing, &read()).ends_with("suspect ranges: all |"));
    let damaged = with_parity_logs(|set| set[0].logs.ppl = Some(Err("a wrong sum".to_owned())));
    assert!(outcome(&damaged, &read()).ends_with("suspect ranges: all; m1: a wrong sum |"));
    let moved = with_parity_logs(|set| {
        set[0].logs.ppl = set[1].logs.ppl.take();
        set[1].logs.ppl = Some(Ok(PplHeader::empty(7)));
    });
    assert!(outcome(&moved, &read()).contains("all; m1: partial parity log entries.parity_disk"));
    let taken = Options { force_dirty: true, ..read() };
    assert!(outcome(&moved, &taken).contains("suspect-data"));
}

#[test]
fn bad_blocks_of_a_member_are_those_of_its_log_and_those_that_are_suspect() {
    let (logged, suspect) = (SectorRange::new(16, 8), SectorRange::new(64, 8));
    let assembly = assemble(&set(Level::Raid5, 4), &ask()).unwrap();
    let mut member = assembly.members().next().unwrap().1.clone();
    assert!(member.bad_blocks().is_empty());
    member.logs.bad_blocks = Some(Ok(bad_blocks(&[logged])));
    assert_eq!(member.bad_blocks().ranges(), [logged]);
    member.suspect.push(suspect);
    assert_eq!(member.bad_blocks().ranges(), [logged, suspect]);
    member.logs.bad_blocks = Some(Err("a wrong entry".to_owned()));
    assert_eq!(member.bad_blocks().ranges(), [suspect]);
}

#[test]
fn a_bitmap_says_how_much_may_be_wrong() {
    // Bits 0, 1 and 3 of 128 sectors each.
    let mut candidates = with_bits(7, |_| {}, 0b1011);
    each(&mut candidates, |superblock| superblock.resync_offset = ResyncOffset::At(Sectors(0)));
    candidates.remove(1);
    let found = outcome(&candidates, &read());
    assert!(
        found.ends_with("suspect ranges: 384 sectors of each member, by the bitmap |"),
        "{found}"
    );
}

#[test]
fn a_bit_that_one_member_in_sync_has_counts_for_all() {
    // Bits of three members, and events of the last; if these differ from 7, its bits are out of
    // date.
    for (bits, events, sectors, differ) in [
        ([0, 0, 0], 7, 0, 0),
        ([0b1011, 0b1011, 0b1011], 7, 384, 0),
        ([0, 0b1011, 0], 7, 384, 3),
        ([0b1011, 0, 0b100], 7, 512, 4),
        ([0b10, 0b10, 0b1101], 6, 128, 0),
    ] {
        let mut candidates = set(Level::Raid5, 3);
        for (nth, bits) in bits.into_iter().enumerate() {
            let of = if nth == 2 { events } else { 7 };
            candidates[nth] = with_bits(of, |_| {}, bits).swap_remove(nth);
        }
        let write = Options { run: true, force_dirty: true, ..Options::default() };
        let assembly = assemble(&candidates, &write).unwrap();
        let (united, found) = assembly.united_bitmap().unwrap();
        let dirty: u64 = united.dirty_ranges().map(|range| range.len.0).sum();
        assert_eq!(dirty, sectors, "{bits:?} {events}: {found}");
        assert_eq!(found, differ, "{bits:?} {events}");
        let noted = assembly.notes.iter().any(|note| note.contains("differ in"));
        assert_eq!(noted, differ > 0, "{:?}", assembly.notes);
    }
}

#[test]
fn bitmaps_that_differ_are_noted() {
    for (change, differs) in [
        (Box::new(|_: &mut BitmapHeader| {}) as Box<dyn Fn(&mut BitmapHeader)>, false),
        (Box::new(|bitmap| bitmap.chunksize = 1 << 17), true),
        (Box::new(|bitmap| bitmap.sync_size = Sectors(1024)), true),
    ] {
        let mut candidates = with_bitmaps(7, |_| {});
        candidates[1].logs.bitmap = with_bitmaps(7, change)[1].logs.bitmap.clone();
        let found = outcome(&candidates, &read());
        assert_eq!(found.contains("m1: bitmap chunksize at byte 52"), differs, "{found}");
        assert!(!found.contains("m0: bitmap"), "{found}");
    }
}
