//! What do random runs do, and how is one replayed?
//!
//! A seed becomes a [`Script`]: a shape and a list of steps, both printable. Running it depends on
//! nothing else, so a failure is its seed, and what [`crate::shrink`] leaves of the list is a test to
//! paste.
//!
//! Faults are drawn so that no more members are hurt than the level survives; whatever a script does
//! beyond that, it does on purpose ([`Profile::beyond`]).

use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};

use weft_engine::assemble;
use weft_engine::{Fault, Flags, RequestOp, SyncAction, Verb};
use weft_ondisk::Level;
use weft_units::{ByteRange, ClientId, Sectors, Span};

use crate::checker::Violation;
use crate::checker::parity::Bytes;
use crate::crash::{Coverage, CutMode};
use crate::driver::Order;
use crate::faults::Planned;
use crate::model::Payload;
use crate::options::Options;
use crate::rng::{Digest, Rng};
use crate::world::World;

/// One step of a script.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// A blank disk joins.
    Add,
    /// A client asks for something, in bytes.
    Ask {
        /// Which client.
        client: u32,
        /// What.
        op: RequestOp,
        /// Where.
        start: u64,
        /// How much.
        len: u64,
        /// How.
        flags: Flags,
    },
    /// The power goes; restart; read everything.
    Cut(CutMode),
    /// A client leaves.
    Disconnect(u32),
    /// An operation of a disk fails, this many operations from now.
    FailOperation {
        /// Which disk.
        disk: usize,
        /// How far ahead.
        after: u64,
        /// How.
        how: Planned,
    },
    /// An administrator declares a disk failed.
    FailDisk(usize),
    /// A sector cannot be read until it is written.
    BadRead {
        /// Which disk.
        disk: usize,
        /// Which data sector.
        column: u64,
    },
    /// Runs until all is answered.
    Finish,
    /// Forgets a failed disk.
    Remove(usize),
    /// Sets a knob.
    Set(&'static str, &'static str),
    /// Time passes.
    Sleep(u64),
    /// This many requests complete.
    Steps(u32),
    /// A disk completes nothing until it is released by the same step.
    Stall(usize),
    /// An administrator starts or stops row sync.
    Sync(SyncAction),
}

/// What to draw from.
#[derive(Clone, Copy, Debug)]
pub struct Profile {
    /// By which a failure names it.
    pub name: &'static str,
    /// Steps per script.
    pub steps: usize,
    /// Per cent of steps that cut the power.
    pub cuts: u64,
    /// Whether disks fail.
    pub faults: bool,
    /// Whether administrators act.
    pub admin: bool,
    /// Whether more disks may be hurt than the level survives. Then only bounds, single flight and
    /// exactly once are promised.
    pub beyond: bool,
}

impl Profile {
    /// Clients and nothing else.
    pub const CALM: Self =
        Self { name: "calm", steps: 60, cuts: 0, faults: false, admin: false, beyond: false };
    /// Power cuts.
    pub const CUTS: Self = Self { name: "cuts", cuts: 6, ..Self::CALM };
    /// Power cuts all the time.
    pub const MANY_CUTS: Self = Self { name: "many-cuts", steps: 40, cuts: 15, ..Self::CALM };
    /// Faults and administrators.
    pub const FAULTS: Self = Self { name: "faults", faults: true, admin: true, ..Self::CALM };
    /// All of these.
    pub const FAULTS_AND_CUTS: Self = Self { name: "faults-and-cuts", cuts: 5, ..Self::FAULTS };
    /// More than the level survives.
    pub const BEYOND: Self = Self { name: "beyond", cuts: 3, beyond: true, ..Self::FAULTS };

    /// All of them.
    pub const ALL: [Self; 6] = [
        Self::CALM,
        Self::CUTS,
        Self::MANY_CUTS,
        Self::FAULTS,
        Self::FAULTS_AND_CUTS,
        Self::BEYOND,
    ];
}

/// A shape and what is done to it.
#[derive(Clone, Debug)]
pub struct Script {
    /// What it was drawn from.
    pub profile: &'static str,
    /// The shape.
    pub options: Options,
    /// Which request completes next.
    pub order: Order,
    /// What is done.
    pub steps: Vec<Step>,
    /// Whether what is left at the end has to be whole.
    pub within_promises: bool,
}

/// What a run did.
#[derive(Clone, Copy, Debug, Default)]
pub struct Report {
    /// Its power cuts.
    pub coverage: Coverage,
    /// Client requests answered.
    pub requests: u64,
    /// Sectors read by verification.
    pub verified: u64,
    /// Columns whose parity was recomputed at the end and that held something.
    pub scrubbed: u64,
    /// Of every output.
    pub digest: Digest,
}

/// A run in which a promise was not kept.
#[derive(Clone, Debug)]
pub struct Failure {
    /// The promise.
    pub violation: Violation,
    /// The step at which it showed.
    pub step: usize,
    /// The whole run.
    pub script: Script,
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let seed = self.script.options.seed;
        writeln!(f, "{}", self.violation)?;
        writeln!(f, "seed {seed}, step {} of {}", self.step, self.script.steps.len())?;
        writeln!(f, "{:?}", self.script.options)?;
        writeln!(f, "order {:?}, steps:", self.script.order)?;
        for step in &self.script.steps {
            writeln!(f, "    Step::{step:?},")?;
        }
        write!(
            f,
            "replay: WEFT_SIM_PROFILE={} WEFT_SIM_SEED={seed} cargo test -p weft-sim --test \
             contract_fuzz replay -- --nocapture",
            self.script.profile
        )
    }
}

/// Done to a world after each start of an engine: planting a bug.
pub type Plant<'a> = &'a dyn Fn(&mut World);

impl Script {
    /// What a seed means under a profile.
    #[must_use]
    pub fn generate(seed: u64, profile: Profile) -> Self {
        let mut rng = Rng::new(seed ^ 0x5eed);
        let (level, members) = rng.pick(&[
            (Level::Raid4, 3),
            (Level::Raid5, 3),
            (Level::Raid5, 4),
            (Level::Raid5, 5),
            (Level::Raid6, 4),
            (Level::Raid6, 5),
            (Level::Raid6, 7),
        ]);
        let chunk = Sectors(rng.pick(&[8, 8, 16, 32, 128]));
        let mut options = Options::new(level, members, chunk);
        options.seed = seed;
        options.data_promised = !profile.beyond;
        options.chunk_rows = if chunk.0 > 32 { 4 } else { 12 };
        options.defer_computes = rng.percent(50);
        options.assume_clean = rng.percent(80);
        options.logical_block = if rng.percent(80) { 512 } else { 4096 };
        options.knobs.stripe_cache_size = rng.pick(&[17, 32, 64]);
        options.rows_max = rng.percent(25).then(|| rng.pick(&[2, 3, 5]));
        if rng.percent(25) && options.rows_max.is_some() {
            options.cache_rows = Some(1);
        }
        options.client_frames = rng.pick(&[80, 256, 1024]);
        options.knobs = draw_knobs(&mut rng, options.knobs, chunk);
        let parities = if level == Level::Raid6 { 2 } else { 1 };
        let mut hurt: Vec<usize> = Vec::new();
        let mut removed = 0;
        let mut steps = Vec::new();
        let size = chunk.0 * options.chunk_rows * (members - parities) as u64 * 512;
        // Requests crowd in a few places, so that they meet.
        let hot: Vec<u64> = (0..4).map(|_| rng.below(size)).collect();
        for _ in 0..profile.steps {
            if rng.percent(profile.cuts) {
                steps.push(Step::Cut(rng.pick(&[
                    CutMode::Subset,
                    CutMode::Subset,
                    CutMode::Subset,
                    CutMode::Ordered,
                    CutMode::Nothing,
                    CutMode::Everything,
                ])));
                continue;
            }
            let mut victim = |rng: &mut Rng| {
                let disk = rng.index(members);
                let may = profile.beyond || hurt.contains(&disk) || hurt.len() < parities;
                if may && !hurt.contains(&disk) {
                    hurt.push(disk);
                }
                may.then_some(disk)
            };
            let choice = rng.below(100);
            let step = match choice {
                0..=57 => ask(&mut rng, size, &hot),
                58..=79 => Step::Steps(1 + rng.below(12) as u32),
                80..=84 => Step::Finish,
                85..=86 => Step::Sleep(rng.pick(&[1, 100, 300, 3000])),
                87 if profile.faults => match victim(&mut rng) {
                    Some(disk) => Step::FailOperation {
                        disk,
                        after: rng.below(12),
                        how: rng.pick(&[
                            Planned::Gone,
                            Planned::Once(Fault::Io),
                            Planned::Once(Fault::NoSpace),
                        ]),
                    },
                    None => Step::Steps(1),
                },
                88 if profile.faults => match victim(&mut rng) {
                    Some(disk) => {
                        Step::BadRead { disk, column: rng.below(chunk.0 * options.chunk_rows) }
                    }
                    None => Step::Steps(2),
                },
                89 if profile.faults => match victim(&mut rng) {
                    Some(disk) => Step::Stall(disk),
                    None => Step::Steps(2),
                },
                90 if profile.admin => match victim(&mut rng) {
                    Some(disk) => Step::FailDisk(disk),
                    None => Step::Steps(1),
                },
                91 if profile.admin && !hurt.is_empty() => Step::Remove(rng.pick(&hurt)),
                92 if profile.admin && removed < 2 && !hurt.is_empty() => {
                    removed += 1;
                    Step::Add
                }
                93 if profile.admin => Step::Sync(rng.pick(&[
                    SyncAction::Check,
                    SyncAction::Repair,
                    SyncAction::Idle,
                    SyncAction::Resync,
                    SyncAction::Recover,
                ])),
                94 if profile.admin => draw_set(&mut rng),
                95 => Step::Disconnect(1 + rng.below(3) as u32),
                _ => ask(&mut rng, size, &hot),
            };
            steps.push(step);
        }
        Self {
            profile: profile.name,
            options,
            order: rng.pick(&[Order::Random, Order::Random, Order::Fifo, Order::Lifo]),
            steps,
            within_promises: !profile.beyond,
        }
    }

    /// Runs it, checkers on.
    ///
    /// # Errors
    /// The first promise that was not kept. A panic of the engine is one too.
    pub fn run(&self) -> Result<Report, Box<Failure>> {
        self.run_with(&|_| ())
    }

    /// Runs it with something done to each engine that starts.
    ///
    /// # Errors
    /// The first promise that was not kept.
    pub fn run_with(&self, plant: Plant<'_>) -> Result<Report, Box<Failure>> {
        let mut at = 0;
        let outcome = catch_unwind(AssertUnwindSafe(|| self.perform(plant, &mut at)));
        let violation = match outcome {
            Ok(Ok(report)) => return Ok(report),
            Ok(Err(violation)) => violation,
            Err(panic) => {
                let text = panic
                    .downcast_ref::<String>()
                    .cloned()
                    .or_else(|| panic.downcast_ref::<&str>().map(|text| (*text).to_owned()));
                Violation::new("panic", text.unwrap_or_default())
            }
        };
        Err(Box::new(Failure { violation, step: at, script: self.clone() }))
    }

    fn perform(&self, plant: Plant<'_>, at: &mut usize) -> Result<Report, Violation> {
        let mut world = World::new(self.options.clone());

        plant(&mut world);
        let mut report = Report::default();
        // A connection's name is not used again.
        let mut names = [1, 2, 3];
        for (index, step) in self.steps.iter().enumerate() {
            *at = index;
            let step = match *step {
                Step::Ask { client, op, start, len, flags } => {
                    Step::Ask { client: names[client as usize - 1], op, start, len, flags }
                }
                Step::Disconnect(client) => {
                    names[client as usize - 1] += 3;
                    Step::Disconnect(names[client as usize - 1] - 3)
                }
                other => other,
            };
            self.step(&mut world, step, plant, &mut report)?;
            if let Some(violation) = world.failure() {
                return Err(violation.clone());
            }
            // Refused, as it may be beyond the promises.
            if !world.is_running() {
                break;
            }
        }
        *at = self.steps.len();
        self.end(&mut world, &mut report)?;
        report.coverage = world.coverage;
        report.requests = world.requests_answered();
        report.digest = world.digest;
        Ok(report)
    }

    fn step(
        &self,
        world: &mut World,
        step: Step,
        plant: Plant<'_>,
        report: &mut Report,
    ) -> Result<(), Violation> {
        match step {
            Step::Add => {
                world.add_blank();
                world.settle();
            }
            Step::Ask { client, op, start, len, flags } => {
                let range = ByteRange::new(start, len);
                world.request(ClientId(client), op, range, Payload::Tags, flags);
                // One in two is seen together with what comes next.
                if start / 4096 % 2 == 0 {
                    world.settle();
                }
            }
            Step::Cut(mode) => {
                world.power_cut(mode);
                if world.failure().is_some() {
                    return Ok(());
                }
                let how = assemble::Options { run: true, force_dirty: true, ..Default::default() };
                if let Err(refused) = world.start(&how) {
                    if self.within_promises {
                        return Err(Violation::new("I1 durability", format!("refused: {refused}")));
                    }
                    return Ok(());
                }
                plant(world);
                if self.within_promises {
                    report.verified += world.verify(self.order);
                }
            }
            Step::Disconnect(client) => {
                world.disconnect(ClientId(client));
                world.settle();
            }
            Step::FailOperation { disk, after, how } => {
                let number = world.disks[disk].operations() + after;
                world.disks[disk].faults.schedule.insert(number, how);
            }
            Step::FailDisk(disk) => {
                let member = world.member_of(disk);
                world.admin(Verb::Fail(member));
                world.settle();
            }
            Step::BadRead { disk, column } => {
                let sector = column + world.array.data_offset[disk].0;
                world.disks[disk].faults.bad_reads.insert(sector);
            }
            // Nothing finishes while a disk stalls, unless a knob says so.
            Step::Finish => {
                world.disks.iter_mut().for_each(|disk| disk.faults.stalled = false);
                world.run(self.order);
            }
            Step::Remove(disk) => {
                let member = world.member_of(disk);
                world.admin(Verb::Remove(member));
                world.settle();
            }
            Step::Set(name, value) => {
                world.set(name, value);
                world.settle();
            }
            Step::Sleep(millis) => world.idle(Span::millis(millis)),
            Step::Steps(count) => {
                world.settle();
                for _ in 0..count {
                    if world.failure().is_some() || !world.step(self.order) {
                        break;
                    }
                }
            }
            Step::Stall(disk) => {
                let faults = &mut world.disks[disk].faults;
                faults.stalled = !faults.stalled;
            }
            Step::Sync(action) => {
                world.admin(Verb::SyncAction(action));
                world.settle();
            }
        }
        Ok(())
    }

    /// Faults cease; everything finishes; what is there is right.
    fn end(&self, world: &mut World, report: &mut Report) -> Result<(), Violation> {
        if !world.is_running() {
            return Ok(());
        }
        for disk in &mut world.disks {
            disk.faults.stalled = false;
            disk.faults.no_space = false;
            disk.faults.schedule.clear();
        }
        world.run(self.order);
        for _ in 0..200 {
            if world.failure().is_some() {
                break;
            }
            let idle =
                world.snapshot().volumes.iter().all(|volume| {
                    matches!(volume.sync_action, SyncAction::Idle | SyncAction::Frozen)
                });
            if idle {
                break;
            }
            world.idle(Span::millis(500));
        }
        if let Some(violation) = world.failure() {
            return Err(violation.clone());
        }
        if !self.within_promises {
            return Ok(());
        }
        report.verified += world.verify(self.order);
        if let Some(violation) = world.failure() {
            return Err(violation.clone());
        }
        let scrub = world.scrub(Bytes::Visible);
        report.scrubbed += scrub.written;
        let dirty = world.snapshot().volumes[0].resync_from;
        let wrong: Vec<u64> = scrub
            .wrong
            .iter()
            .copied()
            .filter(|column| dirty.is_none_or(|from| *column < from.0))
            .collect();
        if let Some(column) = wrong.first() {
            return Err(Violation::new(
                "I6 parity or dirty",
                format!("at rest the parity of {} columns is wrong, first {column}", wrong.len()),
            ));
        }
        Ok(())
    }
}

fn ask(rng: &mut Rng, size: u64, hot: &[u64]) -> Step {
    let near = if rng.percent(80) { rng.pick(hot) } else { rng.below(size) };
    let unit = rng.pick(&[1, 512, 512, 4096, 4096, 4096]);
    let start = (near + rng.below(8) * 4096) % size / unit * unit;
    let most = rng.pick(&[1, 2, 4, 16, 16, 40]);
    let len = ((1 + rng.below(most)) * unit.max(512)).min(size - start).max(1);
    let len = if unit == 1 { 1 + rng.below(len) } else { len };
    let op = match rng.below(100) {
        0..=59 => RequestOp::Write,
        60..=79 => RequestOp::Read,
        80..=89 => RequestOp::Flush,
        _ => RequestOp::WriteZeroes,
    };
    let write = matches!(op, RequestOp::Write | RequestOp::WriteZeroes);
    let flags = Flags {
        sync: rng.percent(60),
        fua: write && rng.percent(15),
        preflush: write && rng.percent(8),
        meta: rng.percent(5),
        discard: false,
        ahead: op == RequestOp::Read && rng.percent(5),
    };
    let (start, len) = if op == RequestOp::Flush { (0, 0) } else { (start, len) };
    Step::Ask { client: 1 + rng.below(3) as u32, op, start, len, flags }
}

fn draw_knobs(
    rng: &mut Rng,
    mut knobs: weft_engine::knobs::Knobs,
    chunk: Sectors,
) -> weft_engine::knobs::Knobs {
    let mut set = |name: &str, value: &str| {
        if let Ok(knob) = knobs.parse(name, value) {
            knobs.set(knob);
        }
    };
    set("writes", rng.pick(&["auto", "gather", "sync"]));
    set("rmw_level", rng.pick(&["0", "1", "1", "2"]));
    set("priority", rng.pick(&["bypass", "fifo"]));
    set("preread_bypass_threshold", rng.pick(&["0", "1", "8"]));
    set("max_sectors_kb", rng.pick(&["0", "64", "512"]));
    if chunk.0 >= 32 {
        set("stripe_size", rng.pick(&["4096", "8192", "16384", "auto", "auto"]));
    } else {
        set("stripe_size", rng.pick(&["4096", "auto"]));
    }
    set("skip_copy", rng.pick(&["0", "0", "1"]));
    set("plan_rule", rng.pick(&["md", "least"]));
    set("activation", rng.pick(&["each_turn", "each_turn", "at_unplug"]));
    knobs
}

fn draw_set(rng: &mut Rng) -> Step {
    let (name, value) = rng.pick(&[
        ("stripe_cache_size", "17"),
        ("stripe_cache_size", "40"),
        ("rmw_level", "0"),
        ("rmw_level", "2"),
        ("writes", "gather"),
        ("writes", "sync"),
        ("priority", "fifo"),
        ("preread_bypass_threshold", "0"),
        ("max_sectors_kb", "0"),
        ("stripe_size", "8192"),
        ("stripe_size", "4096"),
        ("stripe_size", "auto"),
        ("skip_copy", "0"),
        ("plan_rule", "md"),
        ("activation", "at_unplug"),
        ("activation", "each_turn"),
        ("plan_rule", "least"),
        ("skip_copy", "1"),
        ("safe_mode_delay", "0.050"),
    ]);
    Step::Set(name, value)
}
