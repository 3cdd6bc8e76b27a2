//! Tests of single decisions about turns and credit.

use super::*;

const BDI: BdiId = BdiId(0);
const ONE: WriterId = WriterId(0);
const OTHER: WriterId = WriterId(1);

fn at(millis: u64) -> Time {
    Time(0) + Span::millis(millis)
}

fn dirty(dirty: u64) -> Counts {
    Counts { dirty, writeback: 0 }
}

/// Turns of two writers with a limit of `limit` pages.
fn turns(limit: u64, devices: u32) -> Turns {
    let mut turns = Turns::new(Thresholds { background: limit / 2, dirty: limit });
    (0..devices).for_each(|_| turns.add_bdi());
    (0..2).for_each(|_| turns.add_writer());
    turns
}

/// A device with a share of `share` pages.
fn device(share: u64, counts: Counts) -> Device {
    let mut device = turns(share, 1).devices.remove(0);
    (device.share, device.counts) = (share, counts);
    device
}

/// Measurements of a device that writes 1,000 pages per second.
fn slow() -> Speed {
    let mut speed = Speed::default();
    for run in 0..10 {
        speed.completed(at(run * 10), InodeId(0), &(run * 10..run * 10 + 10), true);
    }
    speed
}

#[test]
fn credit_is_revoked_by_a_lower_limit_and_not_by_the_same() {
    let mut turns = turns(8_000, 1);
    let credit = turns.credit(at(0), ONE, BDI);
    assert!(credit > 0);
    for (limit, left) in [(9_000, credit), (9_000, credit), (8_000, 0)] {
        turns.set_limits(Thresholds { background: limit / 2, dirty: limit });
        assert_eq!((turns.devices[0].granted, turns.used), (left, left), "{limit}");
    }
}

#[test]
fn a_device_that_is_within_its_part_is_flushed_if_all_together_are_above_the_background_limit() {
    let mut turns = turns(2_000, 2);
    turns.set_counts(BDI, dirty(300));
    turns.set_counts(BdiId(1), dirty(700));
    assert!(!turns.wants_flush(BDI) && turns.wants_flush(BdiId(1)), "of 1,000, half is its part");
    turns.set_counts(BdiId(1), dirty(701));
    assert!(turns.wants_flush(BDI));
}

#[test]
fn a_flusher_is_called_if_it_is_wanted_and_not_held() {
    let mut turns = turns(4_000, 1);
    turns.set_counts(BDI, dirty(100));
    assert!(!turns.calls_flusher(BDI) && !turns.holds_flusher(BDI), "it is not wanted");
    turns.set_counts(BDI, dirty(3_000));
    assert!(turns.calls_flusher(BDI) && !turns.holds_flusher(BDI));
    turns.set_counts(BDI, Counts { dirty: 1_000, writeback: 2_500 });
    assert!(!turns.calls_flusher(BDI), "enough is in flight");
    assert!(turns.holds_flusher(BDI) && !turns.lets_flusher_go(BDI));
    turns.set_counts(BDI, dirty(1_000));
    assert!(turns.lets_flusher_go(BDI) && !turns.lets_flusher_go(BDI), "once");
}

#[test]
fn a_flusher_is_held_while_pages_gather_for_which_credit_is_granted() {
    let held = |granted, dirty| {
        let mut turns = turns(40_000, 1);
        turns.set_counts(BDI, Counts { dirty, writeback: 1 });
        (turns.devices[0].granted, turns.devices[0].share) = (granted, 40_000);
        turns.is_held(BDI)
    };
    let enough = device(40_000, dirty(0)).in_flight_enough();
    assert_eq!(enough, 1_025, "40 ms at 100 MiB/s");
    assert!(held(1, enough - 1));
    assert!(!held(0, enough - 1) && !held(1, enough));
    assert!(!held(0, enough), "neither");
}

#[test]
fn a_device_is_pressed_above_the_free_run_even_if_no_writer_waits() {
    for (pages, pressed) in [(1_500, false), (1_501, true)] {
        let mut turns = turns(2_000, 1);
        turns.set_counts(BDI, dirty(pages));
        assert_eq!(turns.is_pressed(&turns.devices[0]), pressed);
    }
}

#[test]
fn the_run_of_a_flusher_is_128_switches_long_but_at_most_half_of_the_share() {
    let mut turns = turns(100_000, 1);
    turns.devices[0].share = 100_000;
    turns.devices[0].speed = speed::tests::device(16, Span::millis(8));
    let switch = turns.devices[0].speed.switch_pages();
    assert!((78..=81).contains(&switch));
    assert_eq!(turns.chunk(BDI), 128 * switch);
    turns.devices[0].share = 8_000;
    assert_eq!(turns.chunk(BDI), 4_000);
}

#[test]
fn a_turn_is_the_shorter_the_more_can_gather_between_a_quarter_of_a_run_and_half_of_it() {
    let mut device = device(100_000, dirty(0));
    device.speed = speed::tests::device(16, Span::millis(8));
    let (burst, smooth) = (device.burst(1), device.speed.pages_in(SMOOTH));
    assert!(burst > smooth, "{burst} {smooth}");
    let in_flight = device.in_flight_enough();
    for (gathered, expected) in
        [(burst / 4, burst), (burst / 2 - 1, smooth + 3), (burst / 2, smooth), (burst, smooth)]
    {
        // At most three quarters of the share are in flight.
        device.share = (4 * gathered).min(in_flight + gathered);
        assert_eq!(device.quantum(1), expected, "{gathered} of {burst}");
    }
}

#[test]
fn a_turn_lasts_at_most_twice_its_part_of_the_wait_and_a_switch() {
    let mut device = device(8_000, dirty(0));
    device.speed = speed::tests::device(16, Span::millis(8));
    let switch = device.speed.switch();
    assert!((Span(7_800_000)..=Span(8_200_000)).contains(&switch), "{switch:?}");
    let limit = Span(2 * (Span::millis(200).0 + switch.0) + Span::millis(10).0);
    assert_eq!(device.turn_limit(4), limit);
}

/// One writer has the turn and credit, and another waits; the device is not about to run dry.
fn one_has_the_turn() -> Turns {
    let mut turns = turns(8_000, 1);
    turns.set_counts(BDI, dirty(2_000));
    turns.devices[0].share = 8_000;
    turns.devices[0].owner = Some(ONE);
    turns.devices[0].turn_ends = at(1_000);
    turns.devices[0].holders = vec![ONE];
    (turns.writers[0].credit, turns.writers[0].left) = (300, 100);
    (turns.devices[0].granted, turns.used) = (300, turns.used + 300);
    turns.writers[1].waits = true;
    turns.enqueue(0, OTHER);
    turns
}

#[test]
fn a_turn_is_over_early_if_its_writer_has_credit_and_there_is_room_for_more() {
    for (room, next) in [(1_000, None), (1_001, Some(OTHER))] {
        let mut turns = one_has_the_turn();
        assert!(turns.devices[0].batch() < 300);
        assert_eq!(turns.next_in_turn(0, room), next, "an eighth of the share is 1,000");
    }
}

#[test]
fn a_light_writer_gets_a_few_pages_beside_the_turn_of_another() {
    // Pages by which the writer is behind (a lump is 8), room in the pool, pages that the writer
    // gets.
    for (behind, room, got) in [(8, 100, 8), (7, 100, 0), (100, 3, 3), (100, 0, 0)] {
        let mut turns = one_has_the_turn();
        turns.leave(OTHER);
        turns.devices[0].service = 1_000;
        turns.writers[1].got = 1_000 - behind;
        let kept = turns.kept();
        turns.used = turns.limit - kept - room;
        assert_eq!(turns.credit(at(1), OTHER, BDI), got, "{behind} {room}");
        assert_eq!(turns.devices[0].owner, Some(ONE), "the turn goes on");
        assert_eq!(turns.devices[0].waiting.is_empty(), got > 0, "or it queues");
    }
}

#[test]
fn a_part_of_the_limit_is_kept_for_light_writers_while_there_are_any() {
    for (limit, kept) in [(8_000, 64), (320, 20)] {
        let mut turns = turns(limit, 1);
        let without = turns.room_of_all();
        (turns.now, turns.devices[0].light_at) = (at(1_000), Some(at(801)));
        assert_eq!(turns.room_of_all(), without - kept, "{limit}");
        turns.devices[0].light_at = Some(at(800));
        assert_eq!(turns.room_of_all(), without);
    }
}

#[test]
fn a_turn_begins_when_there_is_room_for_a_batch() {
    let mut turns = one_has_the_turn();
    turns.devices[0].owner = None;
    let least = turns.devices[0].quantum(2).min(turns.devices[0].batch());
    assert!(least > 1);
    assert_eq!(turns.next_in_turn(0, least - 1), None);
    assert_eq!(turns.next_in_turn(0, least), Some(OTHER));
}

#[test]
fn unused_credit_is_revoked_only_while_another_waits_and_not_at_every_look() {
    for (waits, next_reclaim, granted) in [(true, 50, 0), (true, 51, 300), (false, 50, 300)] {
        let mut turns = one_has_the_turn();
        (turns.now, turns.devices[0].next_reclaim) = (at(50), at(next_reclaim));
        if !waits {
            turns.leave(OTHER);
        }
        turns.reclaim(0);
        assert_eq!(turns.devices[0].granted, granted, "{waits} {next_reclaim}");
    }
}

#[test]
fn credit_of_another_device_is_revoked_only_if_the_pool_is_full() {
    for (pages, granted) in [(7_000, 300), (8_000, 0)] {
        let mut turns = turns(8_000, 2);
        turns.now = at(50);
        turns.set_counts(BDI, dirty(pages));
        let other = &mut turns.devices[1];
        (other.granted, other.holders) = (300, vec![OTHER]);
        turns.used += 300;
        (turns.writers[1].bdi, turns.writers[1].credit) = (BdiId(1), 300);
        turns.writers[0].waits = true;
        turns.enqueue(0, ONE);
        turns.reclaim(0);
        assert_eq!(turns.devices[1].granted, granted, "{pages}");
    }
}

#[test]
fn a_device_that_does_not_ask_keeps_its_reserve_and_what_it_uses() {
    for (limit, reserve) in [(8_000, 513), (800, 100)] {
        let mut turns = turns(limit, 2);
        turns.now = at(1_000);
        turns.set_counts(BDI, dirty(70));
        turns.devices[0].asked_at = Some(at(1_000 - 200));
        turns.devices[1].asked_at = Some(at(1_000 - 199));
        turns.share_out();
        let shares = [0, 1].map(|at: usize| turns.devices[at].share);
        assert_eq!(shares, [reserve + 70, limit - reserve - 70], "20 ms, or a quarter of a half");
    }
}

#[test]
fn the_writer_that_received_least_is_next_unless_another_waited_for_four_rounds() {
    for (nanos, next) in [(90_000_000, OTHER), (90_000_001, ONE)] {
        let mut turns = turns(8_000, 1);
        turns.devices[0].service = 1_000;
        turns.writers[0].got = 1_000;
        turns.enqueue(0, ONE);
        turns.enqueue(0, OTHER);
        // Two turns of 256 pages take 20 ms; the tolerance is 10 ms.
        assert_eq!(turns.devices[0].take_next(Time(nanos), 2, 256), Some(next));
    }
}

#[test]
fn a_device_is_starving_up_to_a_sixteenth_of_its_share() {
    assert!(device(1_600, dirty(100)).is_starving());
    assert!(!device(1_600, dirty(101)).is_starving());
}

#[test]
fn two_large_requests_are_enough_in_flight_or_three_quarters_of_a_small_share() {
    let mut device = device(100, dirty(0));
    assert_eq!(device.in_flight_enough(), 75);
    (device.share, device.speed) = (8_000, slow());
    assert_eq!(device.speed.pages_in(IN_FLIGHT), 41);
    assert_eq!(device.in_flight_enough(), 256);
}
