//! Tests of bounded waits: no request starves, under any rule.
//!
//! I19 is checked in small worlds, with stripes that would wait as long as the load lasts; a
//! planted bug shows that the checker works. `tests/starved_loads.rs` of weft-sim has loads on
//! drives.

use crate::{BLOCK, Order, Payload, Rig, Ticket, chunk_kib};
use weft_engine::knobs::{
    Activation, CACHES_PASSED_MAX, Knobs, PlanRule, PriorityRule, StripeSize, WAITS_WITHOUT_BOUND,
    Writes,
};
use weft_engine::mutant::Mutant;
use weft_engine::{Flags, RequestOp};
use weft_units::Span;

/// Longest time that stripes may wait in these tests.
const WAIT_MAX: Span = Span::millis(20);

/// Duration of a load, which exceeds the longest wait that I19 allows.
const LOAD: Span = Span::millis(1300);

/// Result of a load that writes one block of a stripe without the sync flag, while the stripes
/// beside it are read and written without a pause. `found` is the checker of the violation, if any;
/// `waited` is the time until the block was answered, `None` if it was not; `others` is the number
/// of other requests answered.
struct Starved {
    found: Option<&'static str>,
    waited: Option<Span>,
    others: u64,
    /// Bytes of other requests that were answered before this block; of all other requests if the
    /// block was not answered.
    passed: u64,
}

/// Whether, and when, a write overlaps the block that waits: while its stripe is in the cache, or
/// while it waits for a free stripe.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Overlapped {
    Never,
    InTheCache,
    BeforeTheCache,
}

fn starve(knobs: Knobs, planted: Option<Mutant>, overlapped: Overlapped) -> Starved {
    starve_for(LOAD, Span::millis(1), knobs, planted, overlapped)
}

/// Variant of [`starve`] for a load of this duration, on members with this latency.
fn starve_for(
    load: Span,
    latency: Span,
    knobs: Knobs,
    planted: Option<Mutant>,
    overlapped: Overlapped,
) -> Starved {
    // Data of a stripe is contiguous: 8 KiB. RAID 5 of three.
    let mut rig = Rig::raid5(3, chunk_kib(4)).with(|o| {
        o.knobs = knobs;
        o.latency = latency;
        o.full_stripes = 104;
    });
    rig.plant(planted);
    // The array is already dirty, so that no request waits for a superblock update.
    rig.store(0, BLOCK).expect("the array works");
    let (stripes, stripe) = (60, 2 * BLOCK);
    let begun = rig.now;
    if overlapped == Overlapped::BeforeTheCache {
        // More writes than the cache has stripes.
        for number in 64..104 {
            rig.put_nosync(number * stripe, stripe);
        }
    }
    let waits = rig.put_nosync(stripe, BLOCK);
    if overlapped != Overlapped::Never {
        rig.put_nosync(stripe + 512, 512);
    }
    let (mut next, mut others): (u64, Vec<(Ticket, u64)>) = (0, Vec::new());
    let (mut waited, mut answered, mut passed) = (None, 0, 0);
    while rig.now.since(begun) < load && rig.failure().is_none() {
        while others.len() < 6 {
            // Each write fills a stripe, or is one block of a stripe that must be preread at once.
            let place = (2 + next % stripes) * stripe;
            let len = if next.is_multiple_of(3) { BLOCK } else { stripe };
            let flags = Flags { sync: true, ..Flags::NONE };
            let ticket = rig.issue(RequestOp::Write, place, len, Payload::Tags, flags);
            others.push((ticket, len));
            next += 1;
        }
        assert!(rig.step(Order::Fifo), "a request is outstanding");
        others.retain(|(ticket, len)| {
            let answered = rig.is_answered(*ticket);
            passed += if answered && waited.is_none() { *len } else { 0 };
            !answered
        });
        answered = next - others.len() as u64;
        if waited.is_none() && rig.is_answered(waits) {
            waited = Some(rig.now.since(begun));
        }
    }
    let found = rig.failure().map(|violation| violation.checker);
    Starved { found, waited, others: answered, passed }
}

/// Settings of the rules that decide how long a stripe waits. Under each of them the stripe of
/// [`starve`] may be held back.
fn rules() -> Vec<Knobs> {
    let mut all = Vec::new();
    let base = Knobs { stripe_cache_size: 32, writes: Writes::Gather, ..Knobs::md() };
    let priorities = [
        (PriorityRule::Bypass, 0),
        (PriorityRule::Bypass, 1),
        (PriorityRule::Bypass, 17),
        (PriorityRule::Fifo, 1),
        (PriorityRule::Stream, 1),
    ];
    for (priority, preread_bypass_threshold) in priorities {
        for activation in [Activation::AtUnplug, Activation::EachTurn] {
            for stripe_size in [StripeSize::default(), StripeSize::AUTO] {
                let writes = [(Writes::Gather, PlanRule::Md), (Writes::Auto, PlanRule::Least)];
                for (writes, plan_rule) in writes {
                    all.push(Knobs {
                        priority,
                        preread_bypass_threshold,
                        activation,
                        stripe_size,
                        plan_rule,
                        writes,
                        ..base
                    });
                }
            }
        }
    }
    all
}

#[test]
fn under_every_rule_a_stripe_goes_when_it_has_waited_for_as_long_as_it_may() {
    let mut starved = 0;
    for knobs in rules() {
        let found = starve(Knobs { preread_wait_max: WAIT_MAX, ..knobs }, None, Overlapped::Never);
        assert_eq!(found.found, None, "{knobs:?}");
        let waited = found.waited.unwrap_or(LOAD);
        // After the bound, each step of the stripe is handled in turn with other stripes.
        assert!(waited.0 < WAIT_MAX.0 + 100_000_000, "{waited:?} with {knobs:?}");
        assert!(found.others > 200, "{}: the load is too light", found.others);
        // Without a bound, as in md, some rules let the same stripe wait as long as the load lasts,
        // and I19 promises nothing.
        let unbounded = starve(
            Knobs { preread_wait_max: WAITS_WITHOUT_BOUND, ..knobs },
            None,
            Overlapped::Never,
        );
        assert_eq!(unbounded.found, None, "{knobs:?}");
        starved += u32::from(unbounded.waited.is_none());
    }
    println!("{starved} of {} rules starve it where there is no bound", rules().len());
    assert!(starved >= 4, "{starved}: the load has to be one that starves");
}

/// An engine with a planted bug, which does not bound the wait of a stripe, is reported by I19
/// under each rule that starves the stripe, and by no other checker.
#[test]
fn a_wait_without_an_end_is_found_by_i19_and_by_no_other_checker() {
    let mut seen = 0;
    for knobs in rules() {
        let bounded = Knobs { preread_wait_max: WAIT_MAX, ..knobs };
        let found = starve(bounded, Some(Mutant::WaitWithoutEnd), Overlapped::Never);
        assert!(matches!(found.found, None | Some("I19 bounded wait")), "{:?}", found.found);
        let starves = found.waited.is_none();
        assert_eq!(found.found.is_some(), starves, "{knobs:?}");
        seen += u32::from(starves);
    }
    println!("seen with {seen} of {} rules", rules().len());
    assert!(seen >= 3, "{seen}");
}

/// Number of stripes of 12 KiB in a small cache. `PASSED_MAX` is the number of bytes of other
/// requests that may be written before a waiting stripe is handled.
const FEW: u32 = 17;
const PASSED_MAX: u64 = CACHES_PASSED_MAX * FEW as u64 * 12 * 1024;

/// Rules under which the stripe of [`starve`] waits until the end of the load if its wait is not
/// bounded.
fn patient() -> Vec<Knobs> {
    let starves = |knobs: &Knobs| {
        starve(Knobs { preread_wait_max: WAITS_WITHOUT_BOUND, ..*knobs }, None, Overlapped::Never)
            .waited
            .is_none()
    };
    let few = |knobs: Knobs| Knobs { stripe_cache_size: FEW, ..knobs };
    rules().into_iter().map(few).filter(starves).collect()
}

/// Duration of a load that writes, in a third of this time, the bytes that may be written before a
/// waiting stripe, and in the whole time the bytes that I19 allows. The bound in time is far
/// longer.
const MUCH: Span = Span::millis(1200);

fn write_much(load: Span, knobs: Knobs, planted: Option<Mutant>) -> Starved {
    let knobs = Knobs { preread_wait_max: Span::secs(60), ..knobs };
    starve_for(load, Span(20_000), knobs, planted, Overlapped::Never)
}

#[test]
fn every_stripe_of_a_batch_counts_among_what_passes() {
    // A full stripe is a batch of 16 stripes. With `skip_copy`, the memory of each stripe but the
    // first follows that of the stripe before, and these stripes are drained by another code path
    // than the first.
    let (chunk, passed_max) = (16 * BLOCK, CACHES_PASSED_MAX * 128 * 12 * 1024);
    let mut rig = Rig::raid5(3, chunk_kib(64)).with(|o| {
        o.knobs = Knobs {
            stripe_cache_size: 128,
            preread_bypass_threshold: 0,
            preread_wait_max: Span::secs(60),
            writes: Writes::Gather,
            skip_copy: true,
            ..Knobs::md()
        };
        o.latency = Span(20_000);
        o.full_stripes = 104;
    });
    rig.store(0, BLOCK).expect("the array works");
    let (mut waits, mut begun, mut under_way) = (None, 0, Vec::new());
    while waits.is_none_or(|ticket| !rig.is_answered(ticket)) && begun < 2 * passed_max {
        while under_way.len() < 3 {
            let place = 2 + begun / (2 * chunk) % 60;
            under_way.push(rig.put(place * 2 * chunk, 2 * chunk));
            begun += 2 * chunk;
        }
        waits = waits.or_else(|| Some(rig.put_nosync(2 * chunk, BLOCK)));
        assert!(rig.step(Order::Fifo), "a request is outstanding");
        under_way.retain(|ticket| !rig.is_answered(*ticket));
    }
    let passed = begun - 2 * chunk * under_way.len() as u64;
    println!("{passed} of {passed_max} bytes have passed it");
    assert!(passed > passed_max && passed < passed_max + (2 << 20), "{passed}: {passed_max}");
}

#[test]
fn a_stripe_goes_when_as_much_has_passed_as_may_though_its_time_is_not_up() {
    let (mut bounded, rules) = (0, patient());
    for knobs in &rules {
        let found = write_much(Span(MUCH.0 / 3), *knobs, None);
        assert_eq!(found.found, None, "{knobs:?}");
        assert!(found.waited.is_some(), "{knobs:?}");
        // 1 MiB allows for writes that were already in flight when the stripe reached the bound.
        assert!(found.passed < PASSED_MAX + (1 << 20), "{} with {knobs:?}", found.passed);
        bounded += u32::from(found.passed > PASSED_MAX);
    }
    println!("{bounded} of {} rules come to the bound", rules.len());
    assert!(bounded >= 4, "{bounded} of {}", rules.len());
}

/// An engine with a planted bug, which does not bound the bytes that other requests write before a
/// waiting stripe, is reported by I19.
#[test]
fn a_stripe_that_lets_more_pass_than_may_is_found_by_i19() {
    let mut seen = 0;
    for knobs in patient() {
        let found = write_much(MUCH, knobs, Some(Mutant::WaitWithoutEnd));
        assert!(matches!(found.found, None | Some("I19 bounded wait")), "{:?}", found.found);
        assert_eq!(found.found.is_some(), found.waited.is_none(), "{knobs:?}");
        seen += u32::from(found.found.is_some());
    }
    println!("seen with {seen} rules");
    assert!(seen >= 3, "{seen}");
}

/// The stripe waits for its stream of writes, the stream waits for an overlapping write, and the
/// overlapping write waits for the stripe. A stripe that other requests wait for therefore must not
/// wait for the full time.
#[test]
fn a_stripe_that_other_requests_wait_for_does_not_wait_for_long() {
    let mut long = 0;
    for knobs in rules() {
        let knobs = Knobs { preread_wait_max: Span::secs(1), ..knobs };
        let alone = starve(knobs, None, Overlapped::Never).waited.unwrap_or(LOAD);
        long += u32::from(alone >= Span::millis(900));
        for (overlapped, limit) in
            [(Overlapped::InTheCache, 120), (Overlapped::BeforeTheCache, 200)]
        {
            let waited = starve(knobs, None, overlapped).waited.unwrap_or(LOAD);
            assert!(waited < Span::millis(limit), "{overlapped:?} {waited:?} with {knobs:?}");
        }
    }
    assert!(long >= 4, "{long}");
}
