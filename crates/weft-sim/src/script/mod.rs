//! Scripts: printable random runs, drawn from a seed, that can be replayed and shortened.
//!
//! A seed becomes a [`Script`]: a shape and a list of steps, both printable. Running it depends on
//! nothing else, so a failure is its seed, and what [`crate::shrink`] leaves of the list is a test
//! to paste.
//!
//! Faults are drawn so that no more members are hurt than the level survives; whatever a script
//! does beyond that, it does on purpose ([`Profile::beyond`]).

mod draw;
mod steps;

use std::collections::BTreeSet;
use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};

use weft_engine::assemble;
use weft_engine::{Flags, ReplyError, RequestOp, SyncAction, Verb};
use weft_units::{ByteRange, ClientId, Span};

use crate::checker::Violation;
use crate::checker::parity::Bytes;
use crate::crash::{Coverage, CutMode};
use crate::disk::IoErrors;
use crate::driver::Order;
use crate::excuses::Excuses;
use crate::faults::Planned;
use crate::model::Payload;
use crate::options::Options;
use crate::rng::Digest;
use crate::world::{Ticket, World};

pub use steps::{Profile, ScriptStep};

/// A shape and what is done to it.
#[derive(Clone, Debug)]
pub struct Script {
    /// Name of the profile.
    pub profile: &'static str,
    /// The shape.
    pub options: Options,
    /// Order of completions.
    pub order: Order,
    /// Steps, in order.
    pub steps: Vec<ScriptStep>,
    /// Whether what is left at the end has to be whole.
    pub within_promises: bool,
    /// Whether the array has to assemble whenever enough superblocks can be read.
    pub assembles: bool,
}

/// Outcome of a run.
#[derive(Clone, Copy, Debug, Default)]
pub struct Report {
    /// Its power cuts.
    pub coverage: Coverage,
    /// Counts of what passed with an excuse.
    pub excuses: Excuses,
    /// Deaths of the process.
    pub kills: u64,
    /// Restarts that were promised to write nothing.
    pub looks: u64,
    /// Arrays that an administrator stopped.
    pub stops: u64,
    /// Requests of members that failed with an I/O error.
    pub io_errors: IoErrors,
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

/// What a run remembers from step to step.
#[derive(Default)]
struct Course {
    /// A stop that was asked for.
    stop: Option<Ticket>,
    /// Disks that something went wrong with.
    hurt: BTreeSet<usize>,
}

/// Done to a world after each start of an engine: planting a bug.
pub type Plant<'a> = &'a dyn Fn(&mut World);

impl Script {
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
        let mut course = Course::default();
        for (index, step) in self.steps.iter().enumerate() {
            *at = index;
            let step = match *step {
                ScriptStep::Ask { client, op, start, len, flags } => {
                    ScriptStep::Ask { client: names[client as usize - 1], op, start, len, flags }
                }
                ScriptStep::Disconnect(client) => {
                    names[client as usize - 1] += 3;
                    ScriptStep::Disconnect(names[client as usize - 1] - 3)
                }
                other => other,
            };
            self.step(&mut world, step, &mut course, plant, &mut report)?;
            if let Some(violation) = world.failure() {
                return Err(violation.clone());
            }
            course.hurt.extend(step.hurts());
            self.give_up(&mut world, &mut course);
            // Refused, as it may be beyond the promises.
            if !world.is_running() {
                break;
            }
        }
        *at = self.steps.len();
        if let Some(ticket) = course.stop.take().filter(|_| world.is_running()) {
            self.stopped(&mut world, ticket, &mut course, plant, &mut report)?;
        }
        self.end(&mut world, &mut report)?;
        world.disks.iter().for_each(|disk| report.io_errors.merge(disk.stats.io_errors));
        report.coverage = world.coverage;
        report.excuses = world.excuses();
        report.requests = world.requests_answered();
        report.digest = world.digest;
        Ok(report)
    }

    fn step(
        &self,
        world: &mut World,
        step: ScriptStep,
        course: &mut Course,
        plant: Plant<'_>,
        report: &mut Report,
    ) -> Result<(), Violation> {
        match step {
            ScriptStep::Add => {
                world.add_blank();
                world.settle();
            }
            ScriptStep::Ask { client, op, start, len, flags } => {
                let range = ByteRange::new(start, len);
                world.request(ClientId(client), op, range, Payload::Tags, flags);
                // One in two is seen together with what comes next.
                if start / 4096 % 2 == 0 {
                    world.settle();
                }
            }
            ScriptStep::Cut(mode) => {
                course.stop = None;
                world.power_cut(mode);
                self.restart(world, false, course, plant, report)?;
            }
            ScriptStep::CutAgain { mode, after, stop } => {
                course.stop = None;
                world.power_cut(mode);
                self.begin(world, false, course, plant)?;
                if !world.is_running() {
                    return Ok(());
                }
                for _ in 0..after {
                    if world.failure().is_some() || !world.step(self.order) {
                        break;
                    }
                }
                if stop && world.failure().is_none() {
                    let ticket = world.admin(Verb::Stop);
                    world.settle();
                    self.stopped(world, ticket, course, plant, report)?;
                } else if world.failure().is_none() {
                    world.power_cut(mode);
                    self.restart(world, false, course, plant, report)?;
                }
            }
            ScriptStep::Kill => {
                course.stop = None;
                world.kill();
                report.kills += 1;
                self.restart(world, false, course, plant, report)?;
            }
            ScriptStep::Look(mode) => {
                course.stop = None;
                world.power_cut(mode);
                world.disks.iter_mut().for_each(|disk| disk.read_only = true);
                self.restart(world, true, course, plant, report)?;
                if world.is_running() {
                    report.looks += 1;
                    self.try_to_write(world)?;
                    world.stopped();
                }
                world.disks.iter_mut().for_each(|disk| disk.read_only = false);
                if world.failure().is_none() {
                    self.restart(world, false, course, plant, report)?;
                }
            }
            ScriptStep::Disconnect(client) => {
                world.disconnect(ClientId(client));
                world.settle();
            }
            ScriptStep::FailOperation { disk, after, how } => {
                if let Some(disk) = world.disks.get_mut(disk) {
                    let number = disk.operations() + after;
                    disk.faults.schedule.insert(number, how);
                }
            }
            ScriptStep::FailDisk(disk) => {
                let member = world.member_of(disk);
                world.admin(Verb::Fail(member));
                world.settle();
            }
            ScriptStep::BadRead { disk, column, dead } => {
                let sector = column + world.array.data_offset[disk].0;
                let faults = &mut world.disks[disk].faults;
                let set = if dead { &mut faults.dead_reads } else { &mut faults.bad_reads };
                set.insert(sector);
            }
            ScriptStep::BadSuperblock { disk, dead } => {
                let state = &mut world.disks[disk];
                if let Some(at) = self.options.version.position(state.size()) {
                    let faults = &mut state.faults;
                    let set = if dead { &mut faults.dead_reads } else { &mut faults.bad_reads };
                    set.insert(at.0);
                }
            }
            ScriptStep::BadWrite { disk, column } => {
                let sector = column + world.array.data_offset[disk].0;
                world.disks[disk].faults.bad_writes.insert(sector);
            }
            ScriptStep::FlushError(disk) => world.disks[disk].faults.flush_error = true,
            ScriptStep::LyingFlush(disk) => world.disks[disk].faults.lying_flush = true,
            ScriptStep::Shrink { disk, sectors } => {
                let ends_at = &mut world.disks[disk].faults.ends_at;
                *ends_at = Some(ends_at.map_or(sectors, |before| before.min(sectors)));
            }
            ScriptStep::Finish => {
                // What can be done without a disk that stalls is done, and then the stall goes on.
                if stalls(world) {
                    world.idle(STALL);
                }
                if !stalls(world) || world.unanswered() > 0 {
                    answer_again(world);
                    world.run(self.order);
                }
            }
            ScriptStep::NoSpace(disk) => {
                if let Some(disk) = world.disks.get_mut(disk) {
                    disk.faults.no_space = !disk.faults.no_space;
                }
            }
            ScriptStep::Return(disk) => {
                if world.is_out(disk) && !world.disks[disk].faults.gone {
                    world.add(disk, None);
                    world.settle();
                }
            }
            ScriptStep::Remove(disk) => {
                let member = world.member_of(disk);
                world.admin(Verb::Remove(member));
                world.settle();
            }
            ScriptStep::Set(name, value) => {
                world.set(name, value);
                world.settle();
            }
            ScriptStep::Sleep(millis) => world.idle(Span::millis(millis)),
            ScriptStep::Steps(count) => {
                world.settle();
                for _ in 0..count {
                    if world.failure().is_some() || !world.step(self.order) {
                        break;
                    }
                }
            }
            ScriptStep::Stall(disk) => {
                let faults = &mut world.disks[disk].faults;
                faults.stalled = !faults.stalled;
            }
            ScriptStep::Stop => {
                let ticket = world.admin(Verb::Stop);
                course.stop.get_or_insert(ticket);
                world.settle();
            }
            ScriptStep::Stopped => {
                if let Some(ticket) = course.stop.take() {
                    self.stopped(world, ticket, course, plant, report)?;
                }
            }
            ScriptStep::Sync(action) => {
                world.admin(Verb::SyncAction(action));
                world.settle();
            }
            ScriptStep::Wait(millis) => world.pass_time(Span::millis(millis)),
        }
        Ok(())
    }

    /// Ends the run if more members are hurt than was drawn, as a cut tore superblocks: it is
    /// beyond the promises.
    fn give_up(&self, world: &mut World, course: &mut Course) {
        let torn = world.torn_out();
        let beyond = || course.hurt.union(&torn).count() > self.options.parities();
        if self.assembles && !torn.is_empty() && world.is_running() && beyond() {
            world.coverage.given_up += 1;
            world.stopped();
        }
    }

    /// A stop is answered; then members may be closed, and nothing of the array is in their caches.
    /// The power goes to see to it.
    fn stopped(
        &self,
        world: &mut World,
        ticket: Ticket,
        course: &mut Course,
        plant: Plant<'_>,
        report: &mut Report,
    ) -> Result<(), Violation> {
        answer_again(world);
        world.run(self.order);
        if world.failure().is_some() {
            return Ok(());
        }
        let answer = world.take_answer(ticket);
        // It may be that it cannot be recorded: without space, or beyond the promises.
        let refused = matches!(answer, Some(Err(ReplyError::NoSpace)))
            || matches!(answer, Some(Err(_))) && !self.within_promises;
        if !refused && !matches!(answer, Some(Ok(_))) {
            let message = format!("stop is answered {answer:?}");
            return fail(world, Violation::new("I11 exactly once", message));
        }
        if self.within_promises && !refused {
            let volume = &world.snapshot().volumes[0];
            if volume.resync_from != world.record.dirty_from() {
                let (knows, says) = (volume.resync_from, world.record.dirty_from());
                let message =
                    format!("stopped; parity is right but for {knows:?}, superblocks say {says:?}");
                return fail(world, Violation::new("I5 dirty before data", message));
            }
            let mark = world.model.flush_issued();
            world.model.flush_acknowledged(mark);
        }
        report.stops += u64::from(!refused);
        // At rest: not one of the cuts that are counted.
        let (coverage, was_cut) = (world.coverage, world.was_cut);
        world.power_cut(CutMode::Nothing);
        world.was_cut = was_cut;
        let judged_partly = world.coverage.judged_partly;
        world.coverage = Coverage { judged_partly, ..coverage };
        self.restart(world, false, course, plant, report)
    }

    /// A new engine from what is on the media.
    fn begin(
        &self,
        world: &mut World,
        read_only: bool,
        course: &mut Course,
        plant: Plant<'_>,
    ) -> Result<(), Violation> {
        if world.failure().is_some() {
            return Ok(());
        }
        have_space(world);
        let how =
            assemble::Options { read_only, run: true, force_dirty: true, ..Default::default() };
        if let Err(refused) = world.start(&how) {
            if self.assembles && world.must_assemble() {
                let message = format!("refused: {refused}");
                return fail(world, Violation::new("I1 durability", message));
            }
            world.coverage.refused += u64::from(self.assembles);
            return Ok(());
        }
        plant(world);
        self.give_up(world, course);
        Ok(())
    }

    /// A new engine from what is on the media, and a look at everything.
    fn restart(
        &self,
        world: &mut World,
        read_only: bool,
        course: &mut Course,
        plant: Plant<'_>,
        report: &mut Report,
    ) -> Result<(), Violation> {
        self.begin(world, read_only, course, plant)?;
        if world.is_running() && world.failure().is_none() {
            // A disk that stalls does so for the next engine too.
            if stalls(world) {
                world.idle(STALL);
            }
            answer_again(world);
            report.verified += self.verify(world);
        }
        Ok(())
    }

    /// Reads all there is, or all that is left.
    fn verify(&self, world: &mut World) -> u64 {
        match (self.within_promises, self.assembles) {
            (true, _) => world.verify(self.order),
            (false, false) => world.verify_readable(self.order),
            // Disks lie: nothing is known of what they hold.
            (false, true) => 0,
        }
    }

    fn try_to_write(&self, world: &mut World) -> Result<(), Violation> {
        let range = ByteRange::new(0, 4096);
        let sync = Flags { sync: true, ..Flags::NONE };
        let ticket = world.request(ClientId(9), RequestOp::Write, range, Payload::Tags, sync);
        world.run(self.order);
        match world.take_answer(ticket) {
            Some(Ok(_)) => fail(world, Violation::new("I9 read-only", "a write is acknowledged")),
            Some(Err(_)) | None => Ok(()),
        }
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
        self.run_syncs(world);
        if let Some(violation) = world.failure() {
            return Err(violation.clone());
        }
        report.verified += self.verify(world);
        if let Some(violation) = world.failure() {
            return Err(violation.clone());
        }
        if !self.within_promises {
            return Ok(());
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
            let count = wrong.len();
            let message = format!("at rest the parity of {count} columns is wrong, first {column}");
            return fail(world, Violation::new("I6 parity or dirty", message));
        }
        Ok(())
    }

    /// Once members answer, resync that is needed begins and ends (I13).
    fn run_syncs(&self, world: &mut World) {
        let begun = world.now;
        while world.failure().is_none() {
            let volume = &world.snapshot().volumes[0];
            let action = volume.sync_action;
            let runs = !matches!(action, SyncAction::Idle | SyncAction::Frozen);
            let waits = volume.resync_from.is_some()
                && action != SyncAction::Frozen
                && volume.degraded < self.options.parities()
                && self.within_promises;
            if !runs && !waits {
                break;
            }
            let took = world.now.since(begun);
            if took > SYNCED_WITHIN {
                let from = volume.resync_from;
                let message =
                    format!("{action:?}, parity to check from {from:?}, {took:?} after the end");
                world.fail(Violation::new("I13 liveness", message));
                break;
            }
            world.idle(Span::millis(500));
        }
        world.coverage.longest_sync = world.coverage.longest_sync.max(world.now.since(begun));
    }
}

/// For how long a disk stalls at least, where something could be done without it: longer than
/// `read_around`.
const STALL: Span = Span::secs(5);

/// How long resync takes at most once members answer, on arrays as small as scripts have.
const SYNCED_WITHIN: Span = Span::secs(10);

/// Ends the run, if what the checker says counts.
fn fail(world: &mut World, violation: Violation) -> Result<(), Violation> {
    world.fail(violation);
    world.failure().map_or(Ok(()), |violation| Err(violation.clone()))
}

/// Whether a disk does not answer.
fn stalls(world: &World) -> bool {
    world.disks.iter().any(|disk| !disk.can_complete())
}

/// Everybody answers, and has space.
fn answer_again(world: &mut World) {
    have_space(world);
    world.disks.iter_mut().for_each(|disk| disk.faults.stalled = false);
}

/// Everybody has space, and nobody begins to stall.
fn have_space(world: &mut World) {
    for disk in &mut world.disks {
        disk.faults.no_space = false;
        disk.faults.schedule.retain(|_, planned| *planned != Planned::Silent);
    }
}
