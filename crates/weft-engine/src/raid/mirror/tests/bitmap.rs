//! Tests of the bitmap of a mirror, also with more bits than one page holds.

use weft_ondisk::BITMAP_HEADER_BYTES;

use super::*;

/// Number of chunks, which is more than the page of the header has bits.
const CHUNKS: u64 = 32_000;

/// Sectors of a chunk.
const CHUNK: u64 = 8;

/// Number of bits in the page of the header.
const IN_FIRST_PAGE: u64 = (4096 - BITMAP_HEADER_BYTES as u64) * 8;

/// A mirror with a bitmap of two pages without set bits.
fn of_two_pages() -> Machine {
    const { assert!(CHUNKS > IN_FIRST_PAGE) };
    let size = Sectors(CHUNK * CHUNKS);
    let large = |set: &mut Vec<Candidate>| {
        for candidate in set {
            candidate.member.size = Sectors(DATA_OFFSET) + size;
            let Ok(Superblock::V1(superblock)) = candidate.superblock.as_deref_mut() else {
                panic!("of version 1")
            };
            (superblock.size, superblock.data_size) = (size, size);
            // The log of bad blocks leaves room for one page.
            superblock.bblog_size = 0;
        }
    };
    let mut machine = Machine::new(assembled(Level::Raid1, None, 2, large, &Options::default()));
    machine.members.fill_with(|| vec![0; size.0 as usize]);
    machine.command(chunks_of(CHUNK));
    assert_eq!(machine.replies.get(&machine.tag), Some(&Ok(())));
    assert_eq!(machine.volume().bitmap.map(|it| (it.chunks, it.dirty)), Some((CHUNKS, 0)));
    machine
}

/// Answers the writes of metadata that were held back, and holds back those that follow. Returns
/// the first sector and the number of bytes of each that was answered.
fn answer_metadata(machine: &mut Machine) -> Vec<(u64, usize)> {
    let round = machine.held_metadata.replace(Vec::new()).unwrap_or_default();
    let written = round.iter().map(|(_, at, len)| (at.0, *len)).collect();
    for (token, ..) in round {
        machine.tell(Input::Done { token, result: Ok(Value::Nothing) });
    }
    machine.settle();
    written
}

/// Regression test for mutation 44 of a review. A cut may keep either of two pages that are written
/// together, so no bit is cleared in the write that stores `events_cleared` on the members.
#[test]
fn no_bit_is_cleared_before_the_page_of_the_header_has_the_update_since_when() {
    let mut machine = of_two_pages();
    let in_second = IN_FIRST_PAGE + 100;
    machine.ask(RequestOp::Write, in_second * CHUNK, 8, 1);
    // The round of pages for the next write lasts until `events_cleared` is due, and beyond.
    machine.held_metadata = Some(Vec::new());
    machine.ask(RequestOp::Write, (in_second + 200) * CHUNK, 8, 2);
    machine.pass(10);
    assert_eq!(machine.bits(), Some(2), "events_cleared is on no member");
    let [second, other] = answer_metadata(&mut machine)[..] else {
        panic!("a page of each member")
    };
    assert_eq!(second, other);
    assert_eq!(answer_metadata(&mut machine), [(second.0 - 8, 4096); 2], "the page of the header");
    machine.held_metadata = None;
    machine.pass(10);
    assert_eq!(machine.bits(), Some(0));
}

#[test]
fn a_resync_that_has_ended_holds_no_bit_of_a_bitmap_that_is_added() {
    let mut assembly = array(Level::Raid1, None, 2);
    assembly.resync_from = Some(Sectors::ZERO);
    let mut machine = Machine::new(assembly);
    machine.settle();
    assert_eq!(machine.volume().resync_from, None);
    machine.command(Verb::SetBitmap(Some(NewBitmap { chunk: None, daemon_sleep: 1 })));
    machine.ask(RequestOp::Write, 0, 8, 1);
    assert_eq!(machine.bits(), Some(1));
    machine.pass(20);
    assert_eq!(machine.bits(), Some(0));
}

/// No bit is cleared while a write is outstanding that began before there was a bitmap, or that
/// needs a bit of a bitmap that is being removed.
#[test]
fn writes_that_outlast_a_change_of_the_bitmap() {
    let mut machine = Machine::with_knobs(
        array(Level::Raid1, None, 2),
        Knobs { read_around: weft_units::Span::ZERO, ..Knobs::default() },
    );
    let internal =
        || Verb::SetBitmap(Some(NewBitmap { chunk: Some(Bytes(65536)), daemon_sleep: 1 }));
    machine.held = Some(Vec::new());
    machine.ask(RequestOp::Write, 0, 8, 1);
    machine.command(internal());
    assert!(machine.replies[&machine.tag].is_ok(), "it does not wait for the write");
    let all = machine.bits().unwrap();
    machine.pass(20);
    assert_eq!((all, machine.bits()), (SIZE / 128, Some(all)), "the write may be anywhere");
    machine.release();
    machine.pass(20);
    assert_eq!(machine.bits(), Some(0));

    // A write with a bit outlasts the bitmap; the next write sets a bit of the next bitmap.
    machine.held = Some(Vec::new());
    machine.ask(RequestOp::Write, 500, 8, 2);
    assert_eq!(machine.bits(), Some(1));
    machine.command(Verb::SetBitmap(None));
    let removal = machine.tag;
    machine.pass(3);
    assert_eq!((machine.bits(), machine.replies.get(&removal)), (None, None));
    machine.ask(RequestOp::Write, 900, 8, 3);
    machine.command(internal());
    let busy = machine.replies.get(&machine.tag);
    assert!(matches!(busy, Some(Err(ReplyError::Busy(_)))), "{busy:?}");
    machine.release();
    assert_eq!(machine.replies.get(&removal), Some(&Ok(())));
    machine.command(internal());
    assert!(machine.replies[&machine.tag].is_ok());
    machine.pass(20);
    machine.ask(RequestOp::Write, 500, 8, 4);
    assert_eq!(machine.bits(), Some(1));
}

#[test]
fn a_chunk_keeps_its_bit_until_the_resync_has_passed_its_end() {
    for chunk in [128, 8192] {
        let mut assembly = array(Level::Raid1, None, 2);
        assembly.resync_from = Some(Sectors::ZERO);
        let mut machine = Machine::new(assembly);
        machine.slow = Some((MemberIndex(0), Vec::new()));
        machine.settle();
        machine.command(Verb::SyncAction(SyncAction::Frozen));
        machine.answer_reads();
        let from = machine.volume().resync_from.expect("it was stopped").0;
        assert!(from > 0 && from.is_multiple_of(128) && from < SIZE, "{from}");
        machine.command(chunks_of(chunk));
        machine.pass(20);
        assert_eq!(
            machine.bits(),
            Some(SIZE.div_ceil(chunk) - from / chunk),
            "{chunk}, from {from}"
        );
        machine.command(Verb::SyncAction(SyncAction::Idle));
        machine.pass(20);
        assert_eq!((machine.volume().resync_from, machine.bits()), (None, Some(0)));
    }
}

/// A bit is cleared after a flush of all members, but not if its chunk is written or a member fails
/// during the flush.
#[test]
fn a_bit_stays_if_its_chunk_is_written_or_a_member_fails_during_the_flush() {
    for (writes, fails, left) in [(false, false, 0), (true, false, 1), (false, true, 1)] {
        let mut machine = Machine::new(array(Level::Raid1, None, 2));
        machine.command(chunks_of(128));
        machine.ask(RequestOp::Write, 0, 8, 1);
        machine.held_flushes = Some(Vec::new());
        machine.pass(5);
        assert!(machine.held_flushes.as_ref().is_some_and(|held| !held.is_empty()));
        assert_eq!(machine.bits(), Some(1));
        if writes {
            machine.held = Some(Vec::new());
            machine.ask(RequestOp::Write, 8, 8, 2);
        }
        if fails {
            machine.command(Verb::Fail(MemberIndex(1)));
        }
        let held = machine.held_flushes.take().unwrap_or_default();
        for token in held {
            machine.tell(Input::Done { token, result: Ok(Value::Nothing) });
        }
        machine.settle();
        assert_eq!(machine.bits(), Some(left), "{writes} {fails}");
    }
}
