//! What is left after a power cut at every point of a short script, in every order?
//!
//! Small scope: all scripts of one or two operations on a small array. The world is copied at each choice of
//! what completes next, depth first, and the power is cut once at each state on the way; the kinds of cut
//! take turns. A script has a budget of states: single operations are mostly exhausted, most pairs are cut
//! short, and [`Search`] counts how many of each. Some cuts lose a member as well, some are followed by
//! another during recovery. What is wrong stops the search with a panic that says where.

use weft_engine::assemble;
use weft_engine::knobs::Knobs;
use weft_engine::{Flags, RequestOp};
use weft_ondisk::Level;
use weft_units::{ByteRange, ClientId, Span};

use crate::checker::parity::Bytes;
use crate::chunk_kib;
use crate::crash::{Coverage, CutMode};
use crate::driver::Order;
use crate::model::Payload;
use crate::options::Options;
use crate::payload::PayloadMode;
use crate::rng::Rng;
use crate::world::World;

/// A search and what it has seen so far.
#[derive(Debug, Default)]
pub struct Search {
    /// What its cuts were.
    pub coverage: Coverage,
    /// States reached, each of which was cut.
    pub states: u64,
    /// Cuts that were the end of the process alone.
    pub kills: u64,
    /// States that were cut while a queue of a shard had something in it.
    pub undelivered: u64,
    /// Scripts of which every state was reached.
    pub exhausted: u64,
    /// Scripts whose budget was used up before.
    pub cut_short: u64,
    /// Sectors read by verification.
    pub verified: u64,
    /// Columns whose parity was recomputed and that held something.
    pub scrubbed: u64,
    /// Restarts that needed consent.
    pub refused: u64,
    /// Chance of the cuts.
    pub seed: u64,
}

impl Search {
    /// All scripts of one or two operations from `start`, each with a budget of states.
    pub fn run_scripts(&mut self, start: &World, per_script: u64, shape: &str) {
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
            self.explore(&world, &mut left, &note);
            if left > 0 {
                self.exhausted += 1;
            } else {
                self.cut_short += 1;
            }
        }
    }

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
        self.undelivered += u64::from(world.outstanding().any(|(_, pending)| pending.is_queue()));
        world.rng = Rng::new(number ^ self.seed << 32);
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

/// A small array of this shape: clean and empty, or with something old everywhere and dirty.
#[must_use]
pub fn begin(mut options: Options, clean: bool) -> World {
    options.chunk_rows = 4;
    // RAID 4 is the sample with all bytes of the payload.
    if options.level != Level::Raid4 {
        options.payload = PayloadMode::Tags;
    }
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

/// What is not as md does untuned, one at a time, then what weft does untuned.
#[must_use]
pub fn policies() -> Vec<(&'static str, Knobs)> {
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
        ("stream", with(&[("priority", "stream"), ("writes", "gather")])),
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

const MODES: [CutMode; 6] = [
    CutMode::Subset,
    CutMode::Subset,
    CutMode::Ordered,
    CutMode::Subset,
    CutMode::Nothing,
    CutMode::Everything,
];
