//! Power cuts at every point of short scripts, in every order, and what is there afterwards.
//!
//! Small scope: all scripts of one or two operations on the smallest array of each level. The world is
//! copied at each choice of what completes next, depth first, and the power is cut once at each state on
//! the way; the kinds of cut take turns. A script has a budget of states: single operations are mostly
//! exhausted, most pairs are cut short, and the test prints how many of each. Some cuts lose a member as
//! well, some are followed by another during recovery.
//!
//! The same with each policy that is not what md does untuned, on chunks of more than a row.
//!
//! Wider: random scripts on larger shapes, cut often.
#![allow(
    clippy::cast_possible_truncation,
    clippy::cast_possible_wrap,
    clippy::cast_sign_loss,
    reason = "numbers of a test are small"
)]

use weft_engine::assemble;
use weft_engine::knobs::Knobs;
use weft_engine::{Flags, RequestOp};
use weft_ondisk::Level;
use weft_sim::checker::parity::Bytes;
use weft_sim::rng::Rng;
use weft_sim::script::{Profile, Script};
use weft_sim::{Coverage, CutMode, Options, Order, Payload, World, chunk_kib};
use weft_units::{ByteRange, ClientId, Span};

const SYNC: Flags =
    Flags { sync: true, fua: false, preflush: false, meta: false, discard: false, ahead: false };
const FUA: Flags =
    Flags { sync: true, fua: true, preflush: false, meta: false, discard: false, ahead: false };

#[derive(Clone, Copy, Debug)]
struct Op(RequestOp, u64, u64, Flags);

/// The smallest thing of each kind: a sector, a block, a row, two rows across, zeros, FUA, flush.
fn alphabet(row: u64) -> Vec<Op> {
    vec![
        Op(RequestOp::Write, 512, 512, SYNC),
        Op(RequestOp::Write, 0, 4096, SYNC),
        Op(RequestOp::Write, 0, row, SYNC),
        Op(RequestOp::Write, row - 2048, 4096, SYNC),
        Op(RequestOp::WriteZeroes, 0, 4096, SYNC),
        Op(RequestOp::Write, 4096, 4096, FUA),
        Op(RequestOp::Flush, 0, 0, SYNC),
    ]
}

fn smallest(level: Level, members: usize, clean: bool) -> World {
    let mut options = Options::new(level, members, chunk_kib(4));
    options.rows_max = Some(4);
    begin(options, clean)
}

fn begin(mut options: Options, clean: bool) -> World {
    options.chunk_rows = 4;
    options.client_frames = 24 * (options.chunk.0 / 8) as u32;
    let mut world = World::new(options);
    if !clean {
        // Something old everywhere, flushed; and the array is dirty.
        let size = world.size();
        let client = ClientId(9);
        let all = ByteRange::new(0, size);
        world.request(client, RequestOp::Write, all, Payload::Tags, SYNC);
        world.run(Order::Fifo);
        world.request(client, RequestOp::Flush, ByteRange::default(), Payload::Zeros, SYNC);
        world.run(Order::Fifo);
    }
    world
}

#[derive(Default)]
struct Search {
    coverage: Coverage,
    states: u64,
    kills: u64,
    exhausted: u64,
    cut_short: u64,
    verified: u64,
    scrubbed: u64,
    refused: u64,
}

const MODES: [CutMode; 6] = [
    CutMode::Subset,
    CutMode::Subset,
    CutMode::Ordered,
    CutMode::Subset,
    CutMode::Nothing,
    CutMode::Everything,
];

impl Search {
    /// All orders of what may complete, depth first, the power cut at each state.
    fn explore(&mut self, world: &World, left: &mut u64, note: &str) {
        if *left == 0 {
            return;
        }
        *left -= 1;
        self.states += 1;
        self.cut(world.clone(), note);
        for token in world.pending() {
            let mut next = world.clone();
            next.complete(token);
            self.must(&next, note);
            self.explore(&next, left, note);
        }
    }

    /// Cuts, recovers, looks at everything.
    fn cut(&mut self, mut world: World, note: &str) {
        let number = self.states;
        world.rng = Rng::new(number);
        world.coverage = Coverage::default();
        // One in seven is the end of the process alone.
        if number % 7 == 6 {
            world.kill();
            self.kills += 1;
        } else {
            world.power_cut(MODES[number as usize % MODES.len()]);
        }
        self.must(&world, note);
        // One in four loses a member with the power, one in three loses the power again.
        if number % 4 == 1 {
            let lost = number as usize / 4 % world.options.members;
            world.disks[lost].faults.gone = true;
        }
        let how =
            assemble::Options { run: true, force_dirty: true, ..assemble::Options::default() };
        let plain = world.start(&assemble::Options::default());
        if plain.is_err() {
            self.refused += 1;
            world.start(&how).unwrap_or_else(|refused| panic!("{note}: {refused}"));
        }
        if number.is_multiple_of(3) {
            for _ in 0..number / 3 % 9 {
                world.step(Order::Random);
            }
            world.power_cut(CutMode::Subset);
            self.must(&world, note);
            world.start(&how).unwrap_or_else(|refused| panic!("{note}: {refused}"));
        }
        self.verified += world.verify(Order::Fifo);
        self.must(&world, note);
        world.idle(Span::secs(60));
        self.must(&world, note);
        let scrub = world.scrub(Bytes::Visible);
        assert!(scrub.wrong.is_empty(), "{note}: {:?} wrong after recovery", scrub.wrong);
        self.scrubbed += scrub.written;
        world.verify(Order::Fifo);
        self.must(&world, note);
        self.coverage.merge(world.coverage);
    }

    fn must(&self, world: &World, note: &str) {
        if let Some(violation) = world.failure() {
            panic!("{violation}\nstate {} of {note}\n{:?}", self.states, world.options);
        }
    }
}

fn run_scope(level: Level, members: usize, per_script: u64) -> Search {
    let mut search = Search::default();
    for clean in [true, false] {
        let start = smallest(level, members, clean);
        let note = format!("{level} x {members}, clean {clean}");
        run_scripts(&mut search, &start, per_script, &note);
    }
    println!(
        "{level}x{members}: {} states, {} scripts exhausted, {} cut short, {:?}",
        search.states, search.exhausted, search.cut_short, search.coverage
    );
    assert!(search.verified > search.states && search.scrubbed > search.states);
    search
}

fn run_scripts(search: &mut Search, start: &World, per_script: u64, shape: &str) {
    let row = start.array.geometry.data_members();
    let row_bytes = u64::from(row) * start.array.geometry.chunk().bytes().0;
    let alphabet = alphabet(row_bytes);
    let singles = alphabet.iter().map(|op| vec![*op]);
    let pairs = alphabet.iter().flat_map(|a| alphabet.iter().map(|b| vec![*a, *b]));
    for script in singles.chain(pairs) {
        let mut world = start.clone();
        for (client, Op(op, at, len, flags)) in (1..).zip(&script) {
            let range = ByteRange::new(*at, *len);
            world.request(ClientId(client), *op, range, Payload::Tags, *flags);
            world.settle();
        }
        let mut left = per_script;
        let note = format!("{shape}, {script:?}");
        search.explore(&world, &mut left, &note);
        if left > 0 {
            search.exhausted += 1;
        } else {
            search.cut_short += 1;
        }
    }
}

fn assert_covered(coverage: Coverage) {
    let Coverage { points, half_written_row, strict_subset, inside_metadata, during_sync, .. } =
        coverage;
    assert!(points >= 1000, "{coverage:?}");
    let percent = |count| coverage.percent(count);
    assert!(percent(half_written_row) >= 30, "half-written rows: {coverage:?}");
    assert!(percent(strict_subset) >= 20, "strict subsets: {coverage:?}");
    assert!(percent(inside_metadata) >= 10, "inside metadata: {coverage:?}");
    assert!(percent(during_sync) >= 5, "during row sync: {coverage:?}");
    assert!(coverage.hole_predicted > 0, "no write hole was looked at: {coverage:?}");
    assert!(coverage.hole_wrong > 0, "blind: no predicted row was ever wrong: {coverage:?}");
}

#[test]
fn every_order_and_cut_of_short_scripts_on_raid4() {
    let search = run_scope(Level::Raid4, 3, 20);
    assert_covered(search.coverage);
}

#[test]
fn every_order_and_cut_of_short_scripts_on_raid5() {
    let search = run_scope(Level::Raid5, 3, 36);
    assert!(search.exhausted >= 20, "{}", search.exhausted);
    assert_covered(search.coverage);
}

#[test]
fn every_order_and_cut_of_short_scripts_on_raid6() {
    let search = run_scope(Level::Raid6, 4, 20);
    assert_covered(search.coverage);
}

/// What is not as md does untuned, one at a time, then what weft does untuned.
fn policies() -> Vec<(&'static str, Knobs)> {
    let with = |settings: &[(&str, &str)]| {
        let mut knobs = Options::new(Level::Raid5, 3, chunk_kib(4)).knobs;
        for (name, value) in settings {
            knobs.set(knobs.parse(name, value).expect("the knob takes the value"));
        }
        knobs
    };
    vec![
        ("8K rows", with(&[("stripe_size", "8192")])),
        ("auto", with(&[("stripe_size", "auto")])),
        ("least", with(&[("plan_rule", "least")])),
        ("skip_copy", with(&[("skip_copy", "1")])),
        ("fifo", with(&[("priority", "fifo"), ("writes", "gather")])),
        ("threshold 0", with(&[("preread_bypass_threshold", "0"), ("writes", "gather")])),
        ("at_unplug", with(&[("activation", "at_unplug"), ("writes", "gather")])),
        (
            "2008",
            with(&[
                ("stripe_cache_form", "2008"),
                ("activation", "at_unplug"),
                ("priority", "fifo"),
                ("writes", "gather"),
            ]),
        ),
        ("reconstruct only", with(&[("rmw_level", "0")])),
        ("modify at a tie", with(&[("rmw_level", "2")])),
        ("weft's own", with(&[("stripe_size", "auto"), ("plan_rule", "least")])),
    ]
}

#[test]
fn every_policy_on_every_level_survives_cuts_of_short_scripts() {
    let policies = policies();
    let mut coverage = Coverage::default();
    let (mut states, mut shapes) = (0, 0);
    for (number, (name, knobs)) in policies.iter().enumerate() {
        for (level, members) in [(Level::Raid4, 3), (Level::Raid5, 4), (Level::Raid6, 5)] {
            let mut search = Search { states: number as u64 * 1000, ..Search::default() };
            let first = search.states;
            let mut options = Options::new(level, members, chunk_kib(8));
            options.knobs = *knobs;
            options.discards = number % 2 == 0;
            let start = begin(options, number % 3 == 0);
            run_scripts(&mut search, &start, 6, &format!("{name}, {level} x {members}"));
            assert!(search.verified > search.states - first, "{name}: nothing was read back");
            states += search.states - first;
            shapes += 1;
            coverage.merge(search.coverage);
        }
    }
    println!("{shapes} policies and levels, {states} states, {coverage:?}");
    assert_eq!(shapes, policies.len() * 3);
    assert!(states > 4000, "{states}");
    assert_covered(coverage);
}

/// Dirty and degraded is refused unless it is consented to, and then only predicted rows are wrong.
#[test]
fn dirty_and_degraded_needs_consent() {
    let mut world = smallest(Level::Raid5, 3, false);
    let range = ByteRange::new(0, 4096);
    world.request(ClientId(1), RequestOp::Write, range, Payload::Tags, SYNC);
    world.step(Order::Fifo);
    world.power_cut(CutMode::Subset);
    world.disks[1].faults.gone = true;
    let refused = world.start(&assemble::Options::default()).unwrap_err();
    assert!(refused.way_out.is_some(), "{refused}");
    let how = assemble::Options { run: true, force_dirty: true, ..assemble::Options::default() };
    world.start(&how).unwrap();
    assert!(world.verify(Order::Fifo) > 0);
    assert_eq!(world.failure(), None);
}

#[test]
fn random_scripts_on_wider_shapes_survive_many_cuts() {
    let mut coverage = Coverage::default();
    let mut scrubbed = 0;
    for seed in 10_000..10_120 {
        match Script::generate(seed, Profile::MANY_CUTS).run() {
            Ok(report) => {
                coverage.merge(report.coverage);
                scrubbed += report.scrubbed;
            }
            Err(failure) => panic!("{failure}"),
        }
    }
    println!("{coverage:?}");
    assert!(coverage.points > 500 && scrubbed > 1000, "{coverage:?} {scrubbed}");
    assert!(coverage.during_sync > 10, "{coverage:?}");
}
