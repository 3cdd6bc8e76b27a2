//! Tests of the model: writes, flushes, cuts, failures, parts of sectors.

use super::*;

const SECTOR: ByteRange = ByteRange::new(512 * 7, 512);

fn read(model: &mut Model, range: ByteRange, bytes: &[u8]) -> Result<(), Violation> {
    let mark = model.read_issued(range);
    model.read_done(&mark, bytes, |_| Vec::new(), &mut ExcuseCounts::default())
}

#[test]
fn a_read_sees_the_acknowledged_write_or_a_newer_one() {
    let mut model = Model::default();
    let (first, one) = model.write_issued(SECTOR, Payload::Tags);
    assert_eq!(one[8..16], tag(first, 7));
    assert!(read(&mut model, SECTOR, &[0; 512]).is_ok());
    assert!(read(&mut model, SECTOR, &one).is_ok());
    // A version that a read has returned stays.
    assert!(read(&mut model, SECTOR, &[0; 512]).is_err());
    model.write_acknowledged(first, false);
    assert!(read(&mut model, SECTOR, &one).is_ok());
    let (second, two) = model.write_issued(SECTOR, Payload::Tags);
    let early = model.read_issued(SECTOR);
    model.write_acknowledged(second, false);
    assert!(
        model.read_done(&early, &one, |_| Vec::new(), &mut ExcuseCounts::default()).is_ok(),
        "the read was issued before the acknowledgement"
    );
    assert_eq!(read(&mut model, SECTOR, &one).unwrap_err().checker, "I1 durability");
    assert!(read(&mut model, SECTOR, &two).is_ok());
    let mut mixed = one.clone();
    mixed[256..].copy_from_slice(&two[256..]);
    assert_eq!(read(&mut model, SECTOR, &mixed).unwrap_err().checker, "I2 old or new");
}

#[test]
fn a_cut_may_take_what_was_not_flushed_and_nothing_else() {
    let mut model = Model::default();
    let (first, one) = model.write_issued(SECTOR, Payload::Tags);
    model.write_acknowledged(first, false);
    let flush = model.flush_issued();
    let (second, two) = model.write_issued(SECTOR, Payload::Tags);
    model.write_acknowledged(second, false);
    model.flush_acknowledged(flush);
    model.power_cut();
    assert!(read(&mut model.clone(), SECTOR, &two).is_ok());
    assert!(read(&mut model, SECTOR, &one).is_ok());
    assert!(read(&mut model, SECTOR, &[0; 512]).is_err());
    let issued = model.reconstructed();
    model.settle(7, &one, issued);
    assert!(read(&mut model, SECTOR, &two).is_err(), "I3: two reads agree");
    assert!(model.media_allows(7, &one) && !model.media_allows(7, &two));
}

/// One copy of a mirror may have a write that another copy lacks when the process crashes.
#[test]
fn a_crash_may_take_a_write_that_was_read_but_not_acknowledged() {
    for disconnects in [false, true] {
        let mut model = Model::default();
        let (first, one) = model.write_issued(SECTOR, Payload::Fill(1));
        model.write_acknowledged(first, false);
        let (second, two) = model.write_issued(SECTOR, Payload::Fill(2));
        assert!(read(&mut model, SECTOR, &two).is_ok());
        if disconnects {
            model.write_failed(second);
        }
        assert!(read(&mut model.clone(), SECTOR, &one).is_err(), "the process goes on");
        model.process_died();
        assert!(read(&mut model.clone(), SECTOR, &two).is_ok());
        assert!(read(&mut model.clone(), SECTOR, &one).is_ok());
        assert!(read(&mut model, SECTOR, &[0; 512]).is_err(), "the first was acknowledged");
    }
}

#[test]
fn a_crash_takes_no_acknowledged_write() {
    let mut model = Model::default();
    let (first, one) = model.write_issued(SECTOR, Payload::Fill(1));
    assert!(read(&mut model, SECTOR, &one).is_ok());
    model.write_acknowledged(first, false);
    let (_, two) = model.write_issued(SECTOR, Payload::Fill(2));
    model.process_died();
    assert!(read(&mut model.clone(), SECTOR, &two).is_ok());
    assert!(read(&mut model.clone(), SECTOR, &one).is_ok());
    assert!(read(&mut model, SECTOR, &[0; 512]).is_err());
}

/// A member returns its part of a read and fails before the read is answered. Reconstruction from
/// then on gives other content. Found by faults-and-cuts, seeds 2000116, 2001438 and 2001915.
#[test]
fn a_read_that_saw_a_member_that_failed_since_does_not_settle_what_is_reconstructed() {
    for reconstructed in [[1; 512], [5; 512]] {
        let mut model = Model::default();
        let (first, one) = model.write_issued(SECTOR, Payload::Fill(1));
        model.write_acknowledged(first, true);
        let (_, two) = model.write_issued(SECTOR, Payload::Fill(2));
        model.power_cut();
        let (early, before) = (model.read_issued(SECTOR), model.reconstructed());
        model.is_reconstructed(7, &reconstructed);
        let mut done = |mark: &ReadMark, found: &[u8]| {
            model.read_done(mark, found, |_| Vec::new(), &mut ExcuseCounts::default()).unwrap();
            model.settle(7, found, before);
            model.clone()
        };
        let mut model = done(&early, &two);
        assert!(model.media_allows(7, &two));
        assert!(read(&mut model, SECTOR, &reconstructed).is_ok());
        // A write of a part may be based on either content.
        let mut after = model.clone();
        after.write_issued(ByteRange::new(512 * 7, 100), Payload::Fill(3));
        for mut sector in [[2; 512], reconstructed] {
            sector[..100].fill(3);
            assert!(after.media_allows(7, &sector));
        }
        // A read that was issued after the failure settles the content.
        let now = model.reconstructed();
        model.settle(7, &reconstructed, now);
        assert!(!model.media_allows(7, &two));
        assert_eq!(model.media_allows(7, &one), reconstructed == [1; 512]);
    }
}

#[test]
fn fua_is_durable_when_acknowledged_and_an_error_leaves_both() {
    let mut model = Model::default();
    let (first, one) = model.write_issued(SECTOR, Payload::Fill(1));
    model.write_acknowledged(first, true);
    let (second, two) = model.write_issued(SECTOR, Payload::Fill(2));
    model.write_failed(second);
    model.power_cut();
    assert!(read(&mut model.clone(), SECTOR, &two).is_ok());
    assert!(read(&mut model, SECTOR, &one).is_ok());
    assert!(read(&mut model, SECTOR, &[0; 512]).is_err());
}

#[test]
fn what_failed_settles_and_does_not_come_back() {
    let late = |model: &mut Model, mark: &ReadMark, found: &[u8]| {
        model.read_done(mark, found, |_| Vec::new(), &mut ExcuseCounts::default())
    };
    let mut model = Model::default();
    let (first, one) = model.write_issued(SECTOR, Payload::Fill(1));
    model.write_acknowledged(first, false);
    let (second, two) = model.write_issued(SECTOR, Payload::Fill(2));
    model.write_failed(second);
    assert!(read(&mut model, SECTOR, &one).is_ok(), "not there yet");
    let early = model.read_issued(SECTOR);
    assert!(read(&mut model, SECTOR, &two).is_ok());
    assert!(read(&mut model, SECTOR, &two).is_ok());
    assert!(late(&mut model, &early, &one).is_ok(), "the read was issued before");
    assert!(read(&mut model, SECTOR, &two).is_ok(), "so the second write did not go away");
    let early = model.read_issued(SECTOR);
    assert!(read(&mut model, SECTOR, &one).is_ok(), "gone");
    assert!(late(&mut model, &early, &two).is_ok(), "the read was issued before");
    assert!(read(&mut model, SECTOR, &one).is_ok());
    assert_eq!(read(&mut model, SECTOR, &two).unwrap_err().checker, "I3 stable reads");
    model.power_cut();
    assert!(read(&mut model, SECTOR, &two).is_ok(), "the cut decides anew");
}

#[test]
fn only_what_may_be_reconstructed_may_be_wrong_and_only_so() {
    let mut model = Model::default();
    let (first, right) = model.write_issued(SECTOR, Payload::Tags);
    model.write_acknowledged(first, true);
    let wrong: Vec<u8> = right.iter().map(|byte| byte ^ 9).collect();
    let mark = model.read_issued(SECTOR);
    let mut excuses = ExcuseCounts::default();
    let mut done = |model: &mut Model, found: &[u8], errors: &[Vec<u8>]| {
        model.read_done(&mark, found, |_| errors.to_vec(), &mut excuses)
    };
    assert!(done(&mut model.clone(), &wrong, &[]).is_err(), "its member is present");
    assert!(done(&mut model.clone(), &wrong, &[vec![8; 512]]).is_err(), "another error");
    assert!(done(&mut model.clone(), &[7; 512], &[vec![9; 512]]).is_err(), "something else");
    assert!(done(&mut model.clone(), &right, &[vec![9; 512]]).is_ok());
    assert!(done(&mut model, &wrong, &[vec![8; 512], vec![9; 512]]).is_ok());
    assert_eq!((excuses.read, excuses.read_unsure, excuses.read_wrong), (5, 4, 1));
    assert!(read(&mut model, SECTOR, &wrong).is_ok());
    assert!(read(&mut model, SECTOR, &right).is_err(), "the content that was read stays");
}

#[test]
fn what_may_be_reconstructed_is_told_from_what_was_written() {
    let mut model = Model::default();
    let (first, right) = model.write_issued(SECTOR, Payload::Tags);
    model.write_acknowledged(first, true);
    model.add_possible(7, &[5; 512]);
    assert_eq!(model.why(7, &right), Some(Why::Written));
    assert_eq!(model.why(7, &[5; 512]), Some(Why::Reconstructed));
    assert_eq!(model.why(7, &[6; 512]), None);
    // A write of a part may be based on either content.
    let (_, part) = model.write_issued(ByteRange::new(512 * 7, 100), Payload::Fill(3));
    let mut sector = [5; 512];
    sector[..100].copy_from_slice(&part);
    assert!(model.media_allows(7, &sector));
    sector[100] = 6;
    assert!(!model.media_allows(7, &sector));
    // A write of the whole sector replaces both.
    let (all, _) = model.write_issued(SECTOR, Payload::Fill(4));
    model.write_acknowledged(all, true);
    assert_eq!((model.why(7, &[5; 512]), model.why(7, &[4; 512])), (None, Some(Why::Written)));
}

#[test]
fn part_of_a_sector_may_stand_on_what_was_there_before_a_failure() {
    let mut model = Model::default();
    let (a, _) = model.write_issued(SECTOR, Payload::Fill(1));
    let (b, _) = model.write_issued(ByteRange::new(512 * 7, 100), Payload::Fill(2));
    model.write_failed(a);
    model.write_acknowledged(b, false);
    let (c, _) = model.write_issued(SECTOR, Payload::Fill(3));
    model.write_failed(c);
    let (d, _) = model.write_issued(ByteRange::new(512 * 7, 50), Payload::Fill(2));
    model.write_acknowledged(d, false);
    for base in [0, 1, 3] {
        let mut sector = [base; 512];
        sector[..if base == 3 { 50 } else { 100 }].fill(2);
        assert!(read(&mut model.clone(), SECTOR, &sector).is_ok(), "{base}");
    }
    assert!(read(&mut model, SECTOR, &[1; 512]).is_err());
}

/// A cut interrupts a write of the whole sector, and a write of a part of it follows before any
/// read. Found by the profile `last-copy`, seed 1001467181.
#[test]
fn part_of_a_sector_may_stand_on_what_was_there_before_a_cut() {
    let mut model = Model::default();
    let (a, _) = model.write_issued(SECTOR, Payload::Fill(1));
    model.write_acknowledged(a, true);
    let (b, _) = model.write_issued(SECTOR, Payload::Fill(2));
    model.write_acknowledged(b, false);
    let (c, _) = model.write_issued(SECTOR, Payload::Fill(3));
    model.write_failed(c);
    model.power_cut();
    let (d, _) = model.write_issued(ByteRange::new(512 * 7, 100), Payload::Fill(4));
    model.write_acknowledged(d, true);
    for base in 0..4 {
        let mut sector = [base; 512];
        sector[..100].fill(4);
        assert_eq!(model.media_allows(7, &sector), base > 0, "{base}");
    }
}

/// A write of a part of a sector follows two writes of the whole sector, which fail in either
/// order. Found by the profile `beyond-powered`, seed 10939.
#[test]
fn part_of_a_sector_may_stand_on_what_was_there_before_two_failures_in_any_order() {
    for first in [0, 1] {
        let mut model = Model::default();
        let (a, _) = model.write_issued(SECTOR, Payload::Fill(1));
        model.write_acknowledged(a, false);
        let (b, _) = model.write_issued(SECTOR, Payload::Fill(2));
        let (c, _) = model.write_issued(SECTOR, Payload::Fill(3));
        model.write_issued(ByteRange::new(512 * 7, 100), Payload::Fill(4));
        let (b, c) = if first == 0 { (b, c) } else { (c, b) };
        model.write_failed(b);
        model.write_failed(c);
        for base in 0..4 {
            let mut sector = [base; 512];
            sector[..100].fill(4);
            assert_eq!(model.media_allows(7, &sector), base > 0, "{base}");
        }
    }
}

#[test]
fn parts_of_a_sector_in_flight_together_happen_in_any_order() {
    let mut model = Model::default();
    let (a, _) = model.write_issued(ByteRange::new(0, 100), Payload::Fill(1));
    let (b, _) = model.write_issued(ByteRange::new(200, 100), Payload::Fill(2));
    model.write_acknowledged(b, false);
    let mut sector = [0; 512];
    sector[200..300].fill(2);
    assert!(model.media_allows(0, &sector), "the second alone");
    sector[..100].fill(1);
    assert!(model.media_allows(0, &sector), "both");
    sector[150] = 2;
    assert!(!model.media_allows(0, &sector), "a byte that was not written there");
    model.write_acknowledged(a, false);
}

/// Parts take effect as a whole or not at all, and acknowledged parts have taken effect.
#[test]
fn parts_do_not_tear_and_do_not_go_away() {
    let mut model = Model::default();
    let (_, _) = model.write_issued(ByteRange::new(0, 100), Payload::Fill(1));
    let (b, _) = model.write_issued(ByteRange::new(200, 100), Payload::Fill(2));
    let (c, _) = model.write_issued(ByteRange::new(250, 100), Payload::Fill(3));
    let whole = ByteRange::new(0, 512);
    let sector = |parts: &[(Range<usize>, u8)]| {
        let mut sector = [0; 512];
        parts.iter().for_each(|(range, byte)| sector[range.clone()].fill(*byte));
        sector
    };
    let before = model.read_issued(whole);
    model.write_acknowledged(b, false);
    let late = model.read_issued(whole);
    let done = |model: &Model, mark: &ReadMark, found: [u8; 512]| {
        let mut excuses = ExcuseCounts::default();
        let done = model.clone().read_done(mark, &found, |_| Vec::new(), &mut excuses);
        (done.is_ok(), excuses.read_mixed)
    };
    let second_alone = sector(&[(200..300, 2)]);
    assert_eq!(done(&model, &late, second_alone), (true, 1));
    let third_alone = sector(&[(250..350, 3)]);
    assert_eq!(done(&model, &before, third_alone), (true, 1));
    assert_eq!(done(&model, &late, third_alone), (false, 0), "the second was acknowledged");
    let both = sector(&[(200..300, 2), (250..350, 3)]);
    assert_eq!(done(&model, &late, both), (true, 1));
    let torn = sector(&[(200..300, 2), (250..351, 3)]);
    assert_eq!(done(&model, &late, torn), (false, 0), "a byte more than was written");
    let torn = sector(&[(0..50, 1), (200..300, 2)]);
    assert_eq!(done(&model, &late, torn), (false, 0), "half of a part");
    model.write_acknowledged(c, false);
}

#[test]
fn what_ended_a_mixture_may_go_with_the_power_unless_it_was_flushed() {
    for flushed in [false, true] {
        let mut model = Model::default();
        let (a, _) = model.write_issued(ByteRange::new(0, 100), Payload::Fill(1));
        let (b, _) = model.write_issued(ByteRange::new(200, 100), Payload::Fill(2));
        model.write_acknowledged(b, false);
        model.write_acknowledged(a, false);
        let (all, _) = model.write_issued(ByteRange::new(0, 512), Payload::Fill(3));
        model.write_acknowledged(all, false);
        let mut second_alone = [0; 512];
        second_alone[200..300].fill(2);
        let whole = ByteRange::new(0, 512);
        assert!(
            read(&mut model.clone(), whole, &second_alone).is_err(),
            "the block is overwritten"
        );
        if flushed {
            let flush = model.flush_issued();
            model.flush_acknowledged(flush);
        }
        model.power_cut();
        assert_eq!(read(&mut model, whole, &second_alone).is_ok(), !flushed);
    }
}

#[test]
fn a_byte_shows_in_the_tag_of_its_sector() {
    let mut model = Model::new(PayloadMode::Tags);
    let (all, whole) = model.write_issued(SECTOR, Payload::Tags);
    assert_eq!(whole, [tag(all, 7), tag(all, 7)].concat());
    model.write_acknowledged(all, false);
    let (one, byte) = model.write_issued(ByteRange::new(512 * 7 + 100, 1), Payload::Fill(9));
    assert_eq!(byte, [9]);
    model.write_acknowledged(one, false);
    let mut mixed = whole.clone();
    mixed[100 / 32] = 9;
    assert!(read(&mut model, SECTOR, &mixed).is_ok());
    assert_eq!(read(&mut model, SECTOR, &whole).unwrap_err().checker, "I1 durability");
}

#[test]
fn bytes_of_a_sector_mix_in_order_of_issue() {
    let mut model = Model::default();
    let (a, _) = model.write_issued(ByteRange::new(0, 100), Payload::Fill(1));
    let (b, _) = model.write_issued(ByteRange::new(50, 100), Payload::Fill(2));
    model.write_acknowledged(a, false);
    model.write_acknowledged(b, false);
    let mut sector = [0; 512];
    sector[..50].fill(1);
    sector[50..150].fill(2);
    assert!(read(&mut model, ByteRange::new(0, 512), &sector).is_ok());
    assert!(read(&mut model, ByteRange::new(40, 20), &sector[40..60]).is_ok());
    sector[149] = 1;
    assert!(read(&mut model, ByteRange::new(0, 512), &sector).is_err());
}

#[test]
fn zeros_from_before_the_first_write_are_old_data_however_many_writes_followed() {
    for writes in [1, 2, 40] {
        let mut model = Model::new(PayloadMode::Tags);
        let mut last = Vec::new();
        for _ in 0..writes {
            let (write, bytes) = model.write_issued(SECTOR, Payload::Tags);
            model.write_acknowledged(write, false);
            assert!(read(&mut model, SECTOR, &bytes).is_ok());
            last = bytes;
        }
        let mut zeros = vec![0; last.len()];
        assert_eq!(read(&mut model, SECTOR, &zeros).unwrap_err().checker, "I1 durability");
        zeros[0] = 3;
        assert_eq!(read(&mut model, SECTOR, &zeros).unwrap_err().checker, "I2 old or new");
    }
}
