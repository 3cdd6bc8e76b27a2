//! Tests of the bitmap of a mirror, with more bits than one page holds.

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
