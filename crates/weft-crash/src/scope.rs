//! Search of a small scope: power cuts in a sample of the states that a short script can reach.
//!
//! A small scope has scripts of one or two operations on a small array. The next event is a choice:
//! an outstanding request or computation completes, the next operation is issued, or time passes
//! until the engine asks to be woken. A *walk* makes one choice after the other until no event is
//! left. Each further walk starts at a random state of an earlier walk in which a choice is left,
//! so the order of events differs in every walk. From the states on the walks, some with distinct
//! fingerprints ([`World::cut_fingerprints`]) are picked. The power is cut several times in copies
//! of each picked state, with a different part of the non-durable content surviving each time. Some
//! cuts also lose a member, some are followed by another cut during recovery (I18), and some only
//! crash the process.
//!
//! All random choices come from [`Search::seed`]. A script is *exhausted* if its walks made every
//! choice. Most scripts are only sampled; [`Search`] counts all scripts and the exhausted ones. A
//! violation stops the search with a panic that describes the state.

use std::collections::BTreeMap;

use weft_engine::assemble;
use weft_engine::knobs::Knobs;
use weft_engine::{Flags, RequestOp, Token, Verb};
use weft_ondisk::Level;
use weft_units::digest::Digest;
use weft_units::rng::Rng;
use weft_units::{ByteRange, ClientId, Span};

use crate::checker::parity::Bytes;
use crate::chunk_kib;
use crate::crash::{Coverage, CutMode};
use crate::model::Payload;
use crate::options::Options;
use crate::payload::PayloadMode;
use crate::world::Order;
use crate::world::World;

/// Limits on the search of the scripts of one array.
#[derive(Clone, Copy, Debug)]
pub struct Budget {
    /// Largest number of operations of a script: one or two.
    pub operations: usize,
    /// Largest number of scripts; if there are more, they are chosen at random.
    pub scripts: usize,
    /// Largest number of walks per script; each has a different order of events.
    pub walks: u64,
    /// Largest number of states per script in which the power is cut.
    pub states: usize,
    /// Number of power cuts in each state in which the power is cut.
    pub cuts: u64,
}

/// A search, and its counts so far.
#[derive(Debug, Default)]
pub struct Search {
    /// Counts of power cuts, by their circumstances.
    pub coverage: Coverage,
    /// Scripts tried.
    pub scripts: u64,
    /// Scripts with at least two walks.
    pub two_orders: u64,
    /// Walks made, over all scripts; each has a different order of events.
    pub orders: u64,
    /// States on all walks, over all scripts.
    pub reached: u64,
    /// Picked states with the fingerprint of an earlier picked state of the same script, in which a
    /// power cut would leave the same state.
    pub alike: u64,
    /// Distinct states in which the power was cut.
    pub states: u64,
    /// Cut states in which a client had already received an answer.
    pub answered: u64,
    /// Cut states in which a write of data or parity was outstanding at a member.
    pub data_outstanding: u64,
    /// Scripts with a cut state in which a write of data or parity was outstanding at a member.
    pub scripts_with_data: u64,
    /// Number of process crashes while the power stayed on.
    pub kills: u64,
    /// Scripts for which every order of events was tried.
    pub exhausted: u64,
    /// Sectors read by verification.
    pub verified: u64,
    /// Columns with data in which parity or copies were checked.
    pub scrubbed: u64,
    /// Restarts that needed consent, because the array was dirty and degraded.
    pub refused: u64,
    /// Seed of the search.
    pub seed: u64,
    /// Function that plants a bug in every engine, to show that the search finds it; `None` to
    /// plant none.
    pub planted: Option<fn(&mut World)>,
    /// Whether the power is also cut in states with equal fingerprints and the results compared
    /// ([`same_after_cuts`]), instead of skipping such states.
    pub compared: bool,
    /// Name of a part of the fingerprint that is left out, to show that the comparison then fails;
    /// `None` to leave none out.
    pub left_out: Option<&'static str>,
    /// Number of states that had the fingerprint of an earlier state but a different result of the
    /// power cuts.
    pub wrongly_alike: u64,
}

/// Event that may happen next on a walk.
#[derive(Clone, Copy, Debug)]
enum Choice {
    /// The next operation of the script is issued.
    Ask,
    /// An outstanding request or computation completes.
    Complete(Token),
    /// Time passes, without completions, until the engine asks to be woken.
    Wake,
}

/// A state that the search has reached, from which it may go on with any of the choices in `left`.
struct Node {
    world: World,
    /// Number of operations of the script that were issued before this state.
    asked: usize,
    wakes: u32,
    /// Choices that no walk has made yet. The last one is made next.
    left: Vec<Choice>,
}

/// Times at which the operations of a script are issued, relative to runs of the engine.
#[derive(Clone, Copy, Debug)]
enum Arrival {
    /// All operations before the engine runs.
    Together,
    /// The engine runs after each operation is issued, before the next one is; nothing completes in
    /// between.
    Turns,
    /// The first operation at once, the second in any later state.
    AnyTime,
}

impl Search {
    /// Searches scripts of one or two operations on the array of `start`. `shape` names the array
    /// in messages and changes the random choices.
    pub fn run_scripts(&mut self, start: &World, budget: Budget, shape: &str) {
        let mut start = start.clone();
        self.plant(&mut start);
        let mut text = Digest::default();
        text.add(shape.as_bytes());
        let mut rng = Rng::new(self.seed.rotate_left(32) ^ text.0);
        let degraded = is_degraded(&start);
        let alphabet = alphabet(&start, degraded);
        let singles = alphabet.iter().map(|op| vec![*op]);
        let pairs = alphabet.iter().flat_map(|a| alphabet.iter().map(|b| vec![*a, *b]));
        let mut scripts: Vec<Vec<Op>> = singles.chain(pairs).collect();
        scripts.retain(|script| script.len() <= budget.operations);
        rng.shuffle(&mut scripts);
        for script in scripts.into_iter().take(budget.scripts) {
            self.run_script(&start, &script, budget, rng.fork(), shape);
        }
    }

    fn run_script(&mut self, start: &World, script: &[Op], b: Budget, mut rng: Rng, shape: &str) {
        let arrival = rng.pick(&[Arrival::Together, Arrival::Turns, Arrival::AnyTime]);
        let note = format!("{shape}, {script:?} {arrival:?}, seed {}", self.seed);
        let mut world = start.clone();
        let first = if matches!(arrival, Arrival::AnyTime) { 1 } else { script.len() };
        for (number, op) in script[..first].iter().enumerate() {
            op.ask(&mut world, number);
            if !matches!(arrival, Arrival::Together) {
                world.settle();
            }
        }
        world.settle();
        self.must(&world, &note);
        let (nodes, orders) = self.walk(world, first, script, b.walks, &mut rng, &note);
        self.scripts += 1;
        self.orders += orders;
        self.two_orders += u64::from(orders > 1);
        self.exhausted += u64::from(nodes.iter().all(|node| node.left.is_empty()));
        self.reached += nodes.len() as u64;
        // Half of the picked states have an outstanding write of data, if there are enough such
        // states.
        let mut picked: Vec<usize> = (0..nodes.len()).collect();
        rng.shuffle(&mut picked);
        let (with, without): (Vec<usize>, Vec<usize>) =
            picked.into_iter().partition(|index| has_data_outstanding(&nodes[*index].world));
        let (mut with, mut without) = (with.into_iter(), without.into_iter());
        let picked = std::iter::from_fn(|| Some([with.next(), without.next()]))
            .take(nodes.len())
            .flatten()
            .flatten();
        // No second member is lost if one may already be missing.
        let may_lose = !is_degraded(start)
            && start.array.has_redundancy(|_| true)
            && !script.iter().any(|op| matches!(op, Op::Fail));
        let data_before = self.data_outstanding;
        let mut known: BTreeMap<u64, usize> = BTreeMap::new();
        for index in picked {
            let world = &nodes[index].world;
            if known.len() == b.states && !self.compared {
                break;
            }
            let fingerprint = self.fingerprint(world);
            if let Some(same) = known.get(&fingerprint) {
                self.alike += 1;
                if self.compared {
                    let alike = same_after_cuts(&nodes[*same].world, world, &mut rng);
                    self.wrongly_alike += u64::from(!alike);
                }
                continue;
            }
            if known.len() == b.states {
                continue;
            }
            known.insert(fingerprint, index);
            self.states += 1;
            self.answered += u64::from(world.requests_answered() > start.requests_answered());
            self.data_outstanding += u64::from(has_data_outstanding(world));
            for _ in 0..b.cuts {
                self.cut(world.clone(), rng.fork(), may_lose, &note);
            }
        }
        self.scripts_with_data += u64::from(self.data_outstanding > data_before);
    }

    /// Walks from `first`, a state in which the first `asked` operations of the script were already
    /// issued, at most `walks` times. Returns all states on the walks, and the number of walks.
    /// Panics at the first violation.
    fn walk(
        &self,
        first: World,
        asked: usize,
        script: &[Op],
        walks: u64,
        rng: &mut Rng,
        note: &str,
    ) -> (Vec<Node>, u64) {
        let mut nodes = vec![Node::new(first, asked, 0, script, rng)];
        let mut orders = 0;
        while orders < walks {
            // The first walk starts at the first state, later ones at a random state.
            let open: Vec<usize> =
                (0..nodes.len()).filter(|index| !nodes[*index].left.is_empty()).collect();
            if open.is_empty() {
                break;
            }
            let mut at = open[rng.index(open.len())];
            orders += 1;
            while let Some(choice) = nodes[at].left.pop() {
                let Node { mut asked, mut wakes, .. } = nodes[at];
                let mut world = nodes[at].world.clone();
                match choice {
                    Choice::Ask => {
                        script[asked].ask(&mut world, asked);
                        asked += 1;
                        world.settle();
                    }
                    Choice::Complete(token) => world.complete(token),
                    Choice::Wake => {
                        wakes += 1;
                        world.wake();
                    }
                }
                self.must(&world, note);
                at = nodes.len();
                nodes.push(Node::new(world, asked, wakes, script, rng));
            }
            if nodes[at].is_end(script) {
                // A request that is still unanswered must be answered when time passes.
                let mut end = nodes[at].world.clone();
                end.run(Order::Fifo);
                self.must(&end, note);
            }
        }
        (nodes, orders)
    }

    fn fingerprint(&self, world: &World) -> u64 {
        let mut sum = Digest::default();
        for (part, number) in world.cut_fingerprints() {
            if self.left_out != Some(part) {
                sum.add_word(number);
            }
        }
        sum.0
    }

    /// Cuts the power or crashes the process, recovers, and verifies everything. `may_lose` allows
    /// the loss of a member. Panics at the first violation.
    fn cut(&mut self, mut world: World, mut rng: Rng, may_lose: bool, note: &str) {
        world.rng = rng.fork();
        world.coverage = Coverage::default();
        // One cut in seven only crashes the process.
        if rng.below(7) == 0 {
            world.kill();
            self.kills += 1;
        } else {
            world.power_cut(rng.pick(&MODES));
        }
        self.must(&world, note);
        // One cut in four also loses a member, and one in three is followed by another cut.
        if may_lose && rng.percent(25) {
            let lost = rng.index(world.options.members);
            world.disks[lost].faults.gone = true;
        }
        let how =
            assemble::Options { run: true, force_dirty: true, ..assemble::Options::default() };
        if world.start(&assemble::Options::default()).is_err() {
            self.refused += 1;
            world.start(&how).unwrap_or_else(|refused| panic!("{note}: {refused}"));
        }
        self.plant(&mut world);
        if rng.below(3) == 0 {
            for _ in 0..rng.below(9) {
                world.step(Order::Random);
            }
            world.power_cut(CutMode::Subset);
            self.must(&world, note);
            world.start(&how).unwrap_or_else(|refused| panic!("{note}: {refused}"));
            self.plant(&mut world);
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

    fn plant(&self, world: &mut World) {
        if let Some(plant) = self.planted {
            plant(world);
        }
    }

    fn must(&self, world: &World, note: &str) {
        if let Some(violation) = world.failure() {
            panic!("{violation}\nstate {} of {note}\n{:?}", self.reached, world.options);
        }
    }
}

impl Node {
    fn new(world: World, asked: usize, wakes: u32, script: &[Op], rng: &mut Rng) -> Self {
        let mut left: Vec<Choice> = world.pending().into_iter().map(Choice::Complete).collect();
        if asked < script.len() {
            left.push(Choice::Ask);
        }
        if wakes < WAKES && world.next_wake().is_some() {
            left.push(Choice::Wake);
        }
        rng.shuffle(&mut left);
        Self { world, asked, wakes, left }
    }

    /// Whether the walk may end in this state: all operations of the script were issued, and no
    /// request or computation is outstanding.
    fn is_end(&self, script: &[Op]) -> bool {
        self.asked == script.len() && self.world.outstanding().next().is_none()
    }
}

/// Whether every kind of power cut, and a process crash, has the same result in two worlds: with
/// the same random choices, an engine that starts afterwards has the same outputs and reads the
/// same content.
#[must_use]
pub fn same_after_cuts(a: &World, b: &World, rng: &mut Rng) -> bool {
    let how = assemble::Options { run: true, force_dirty: true, ..assemble::Options::default() };
    let after = |world: &World, mut rng: Rng| {
        let modes = MODES.iter().map(|mode| Some(*mode)).chain([None]);
        let ends = modes.map(|mode| {
            let mut world = world.clone();
            (world.rng, world.digest) = (rng.fork(), Digest::default());
            match mode {
                Some(mode) => drop(world.power_cut(mode)),
                None => world.kill(),
            }
            let starts = world.start(&how).is_ok();
            if starts && world.failure().is_none() {
                world.verify(Order::Fifo);
                world.idle(Span::secs(60));
            }
            (starts, world.digest, world.cut_fingerprints(), world.failure().cloned())
        });
        ends.collect::<Vec<_>>()
    };
    let rng = rng.fork();
    after(a, rng.clone()) == after(b, rng)
}

fn is_degraded(world: &World) -> bool {
    world.snapshot().volumes[0].degraded > 0
}

fn has_data_outstanding(world: &World) -> bool {
    let array = &world.array;
    world.disks.iter().enumerate().any(|(disk, state)| {
        let mut writes = state.outstanding_writes();
        writes.any(|(at, _)| array.data_sector(disk, at).is_some())
    })
}

/// State of an array before the first operation of a script.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Start {
    /// Every sector has been written and is durable. The array is clean and the stripe cache empty.
    Clean,
    /// The array is as in `Dirty`, but one member has failed.
    Degraded,
    /// Every sector has been written and flushed. The array is dirty.
    Dirty,
}

impl Start {
    /// All states in which a search may start.
    pub const ALL: [Self; 3] = [Self::Clean, Self::Degraded, Self::Dirty];
}

/// Creates a small array with these options, and brings it into the state `start`.
#[must_use]
pub fn begin(mut options: Options, start: Start) -> World {
    options.full_stripes = 4;
    // Only RAID 4 has complete payload, as a sample.
    if options.level != Level::Raid4 {
        options.payload = PayloadMode::Tags;
    }
    options.client_frames = 24 * (options.chunk.0 / 8) as u32;
    let mut world = World::new(options);
    let all = ByteRange::new(0, world.size());
    let client = ClientId(9);
    world.request(client, RequestOp::Write, all, Payload::Tags, SYNC);
    world.run(Order::Fifo);
    world.request(client, RequestOp::Flush, ByteRange::default(), Payload::Zeros, SYNC);
    world.run(Order::Fifo);
    match start {
        Start::Clean => {
            world.idle(Span::secs(60));
            world.power_cut(CutMode::Everything);
            let clean = world.start(&assemble::Options::default());
            assert!(clean.is_ok() && world.snapshot().volumes[0].resync_from.is_none());
        }
        Start::Degraded => {
            let last = world.options.members - 1;
            world.admin(Verb::Fail(world.member_of(last)));
            world.run(Order::Fifo);
        }
        Start::Dirty => {}
    }
    world
}

/// Settings of knobs, each with a name: most settings change one of md's defaults, and the last one
/// has weft's own defaults.
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
        ("8K stripes", with(&[("stripe_size", "8192")])),
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

const SYNC: Flags = Flags { sync: true, ..Flags::NONE };
const FUA: Flags = Flags { sync: true, fua: true, ..Flags::NONE };

const NO_SYNC: Flags = Flags::NONE;
const UNMAP: Flags = Flags { discard: true, ..SYNC };

/// An operation of a script.
#[derive(Clone, Copy, Debug)]
enum Op {
    /// A client issues a request: operation, first byte, length in bytes, flags.
    Ask(RequestOp, u64, u64, Flags),
    /// An administrator adds a blank disk.
    Add,
    /// An administrator declares the first disk failed.
    Fail,
}

impl Op {
    fn ask(self, world: &mut World, number: usize) {
        match self {
            Self::Ask(op, at, len, flags) => {
                let range = ByteRange::new(at, len);
                world.request(ClientId(1 + number as u32), op, range, Payload::Tags, flags);
            }
            Self::Add => {
                world.add_blank();
            }
            Self::Fail => {
                world.admin(Verb::Fail(world.member_of(0)));
            }
        }
    }
}

/// Operations that scripts consist of: writes of a sector, of a block, of a full stripe and across
/// two full stripes; zeros, with and without permission to discard; a trim, a FUA write, a flush
/// and a read; the addition of a disk; and the failure of the first disk, if the level survives it.
fn alphabet(world: &World, degraded: bool) -> Vec<Op> {
    let stripe = world.array.row_bytes(world.options.chunk);
    let mut ops = vec![
        Op::Ask(RequestOp::Write, 512, 512, SYNC),
        Op::Ask(RequestOp::Write, 0, 4096, SYNC),
        Op::Ask(RequestOp::Write, 0, stripe, NO_SYNC),
        Op::Ask(RequestOp::Write, stripe - 2048, 4096, SYNC),
        Op::Ask(RequestOp::WriteZeroes, 0, 4096, SYNC),
        Op::Ask(RequestOp::WriteZeroes, 0, stripe, UNMAP),
        Op::Ask(RequestOp::Trim, 0, stripe, SYNC),
        Op::Ask(RequestOp::Write, 4096, 4096, FUA),
        Op::Ask(RequestOp::Flush, 0, 0, SYNC),
        Op::Ask(RequestOp::Read, 0, 4096, SYNC),
        Op::Add,
    ];
    if !degraded && world.array.has_redundancy(|_| true) {
        ops.push(Op::Fail);
    }
    ops
}

/// Largest number of times that a walk lets time pass.
const WAKES: u32 = 3;
const MODES: [CutMode; 9] = [
    CutMode::Subset,
    CutMode::Subset,
    CutMode::Subset,
    CutMode::Subset,
    CutMode::Subset,
    CutMode::Subset,
    CutMode::Ordered,
    CutMode::Nothing,
    CutMode::Everything,
];
