//! Run of a script: its steps carried out in a world, and the conditions that hold at its end.

use std::collections::BTreeSet;

use weft_engine::assemble;
use weft_engine::{Flags, MemberState, Replace, ReplyError, RequestOp, SyncAction, Verb};
use weft_ondisk::{NewBitmap, Superblock};
use weft_units::{ByteRange, ClientId, Sectors, Slot, Span};

use super::{Plant, Report, Script, ScriptStep, space};
use crate::checker::parity::Bytes;
use crate::crash::{Coverage, CutMode};
use crate::faults::Planned;
use crate::model::Payload;
use crate::violation::Violation;
use crate::volumes::BARE;
use crate::world::Order;
use crate::world::{PROBER, Ticket, World};

/// A script in progress.
pub(super) struct Course<'a> {
    script: &'a Script,
    plant: Plant<'a>,
    world: World,
    report: Report,
    /// Ticket of the command that stops the array, from its issue until the stop is completed;
    /// `None` at all other times.
    stop: Option<Ticket>,
    /// Disks that are absent at the next start.
    away: Vec<usize>,
    /// Disks that were absent at the last start.
    absent: Vec<usize>,
    /// Disks of the array that have had a planted fault.
    hurt: BTreeSet<usize>,
    /// Disks that were re-added.
    re_added: BTreeSet<usize>,
}

impl<'a> Course<'a> {
    /// A script in a new world, before its first step. [`Self::perform`] calls `plant` after each
    /// start of an engine.
    pub(super) fn new(script: &'a Script, plant: Plant<'a>) -> Self {
        let (world, report) = (World::new(script.options.clone()), Report::default());
        let (away, absent, hurt) = (Vec::new(), Vec::new(), BTreeSet::new());
        let re_added = BTreeSet::new();
        Self { script, plant, world, report, stop: None, away, absent, hurt, re_added }
    }

    /// Carries out all steps and checks the end of the run. Returns the counts of the run, or the
    /// first violation. `at` receives the index of the step that is carried out, or the number of
    /// steps at the end.
    pub(super) fn perform(mut self, at: &mut usize) -> Result<Report, Violation> {
        (self.plant)(&mut self.world);
        // Current number of each client. The number of a closed connection is not used again.
        let mut names = [1, 2, 3];
        for (index, step) in self.script.steps.iter().enumerate() {
            *at = index;
            let step = match *step {
                ScriptStep::Ask { volume, client, op, start, len, flags } => {
                    let client = names[client as usize - 1];
                    ScriptStep::Ask { volume, client, op, start, len, flags }
                }
                ScriptStep::Disconnect(client) => {
                    names[client as usize - 1] += 3;
                    ScriptStep::Disconnect(names[client as usize - 1] - 3)
                }
                other => other,
            };
            self.step(step)?;
            if let Some(violation) = self.world.failure() {
                return Err(violation.clone());
            }
            let member = step.hurts().filter(|disk| !self.world.is_beside(*disk));
            self.hurt.extend(member);
            self.give_up();
            self.count_rebuilds();
            // The assembly was refused. A refusal is allowed if more members were hurt than the
            // level survives.
            if !self.world.is_running() {
                break;
            }
        }
        *at = self.script.steps.len();
        if let Some(ticket) = self.stop.take().filter(|_| self.world.is_running()) {
            self.stopped(ticket)?;
        }
        self.end()?;
        let Self { world, mut report, .. } = self;
        world.disks.iter().for_each(|disk| report.io_errors.merge(disk.stats.io_errors));
        report.coverage = world.coverage;
        report.excuses = world.excuses();
        report.requests = world.requests_answered();
        report.bare_requests = world.bare_requests_answered();
        report.digest = world.digest;
        report.partly_written = world.partly_written();
        Ok(report)
    }

    /// Carries out one step; returns a violation that its check finds. Steps that plant faults and
    /// steps that end an engine have functions of their own.
    fn step(&mut self, step: ScriptStep) -> Result<(), Violation> {
        let (script, world) = (self.script, &mut self.world);
        match step {
            ScriptStep::Add => {
                world.add_blank();
                world.settle();
            }
            ScriptStep::Ask { volume, client, op, start, len, flags } => {
                let range = ByteRange::new(start, len);
                world.request_of(volume, ClientId(client), op, range, Payload::Tags, flags);
                // About half of the requests reach the engine together with those of the next step.
                if start / 4096 % 2 == 0 {
                    world.settle();
                }
            }
            ScriptStep::Away(disk) => self.away.push(disk),
            ScriptStep::Disconnect(client) => {
                world.disconnect(ClientId(client));
                world.settle();
            }
            // A shrunk script may lack the step that added the disk.
            ScriptStep::FailDisk(disk) | ScriptStep::Remove(disk) | ScriptStep::Replace(disk)
                if disk >= world.disks.len() => {}
            ScriptStep::FailDisk(disk) => administer(world, Verb::Fail(world.member_of(disk))),
            ScriptStep::Finish => finish(world, script.order),
            // An array that is being stopped accepts no writes.
            ScriptStep::LackSpace { .. } if self.stop.is_some() => {}
            ScriptStep::LackSpace { first, count, seconds } => {
                self.report.lacks += 1;
                space::lack(world, first, count, seconds);
            }
            ScriptStep::Return(disk) => {
                if world.is_out(disk) && !world.disks[disk].faults.gone {
                    // With a bitmap and a readable superblock, the disk keeps its content, and only
                    // the columns that it missed are copied.
                    let with_bitmap = world.options.bitmap.is_some();
                    let own = if with_bitmap { world.record.of(disk).cloned() } else { None };
                    world.add(disk, own.map(Box::new));
                    world.settle();
                }
            }
            ScriptStep::ReAdd(disk) => {
                let there = world.is_out(disk) && !world.disks[disk].faults.gone;
                let own = world.record.of(disk).filter(|_| there).cloned();
                let reads = |own: &Superblock| world.former(disk, own.clone()).is_some();
                if let Some(own) = own.filter(reads) {
                    world.re_add(disk, own);
                    world.settle();
                    if !world.is_out(disk) {
                        world.coverage.re_added += 1;
                        self.re_added.insert(disk);
                    }
                }
            }
            ScriptStep::Remove(disk) => administer(world, Verb::Remove(world.member_of(disk))),
            ScriptStep::Replace(disk) => {
                let member = world.member_of(disk);
                administer(world, Verb::Replace(Replace { member, with: None }));
            }
            ScriptStep::Set(name, value) => {
                world.set(name, value);
                world.settle();
            }
            ScriptStep::SetQueue(..) | ScriptStep::Bitmap(_) => change(world, step),
            ScriptStep::Sleep(millis) => world.idle(Span::millis(millis)),
            ScriptStep::Steps(count) => {
                world.settle();
                complete(world, script.order, count);
            }
            ScriptStep::Drain(volume) => {
                world.command(volume, Verb::Drain);
                world.settle();
            }
            ScriptStep::Sync(action) => administer(world, Verb::SyncAction(action)),
            ScriptStep::SyncRange { action, from, to } => sync_range(world, action, from, to),
            ScriptStep::Wait(millis) => world.pass_time(Span::millis(millis)),
            ScriptStep::Cut(_)
            | ScriptStep::CutAgain { .. }
            | ScriptStep::Kill
            | ScriptStep::Look(_)
            | ScriptStep::Stop
            | ScriptStep::Stopped => return self.ending(step),
            _ => fault(world, step),
        }
        Ok(())
    }

    /// Carries out a step that ends the engine: a power cut, a process crash or a stop. Returns a
    /// violation that the checks after it find.
    fn ending(&mut self, step: ScriptStep) -> Result<(), Violation> {
        if !matches!(step, ScriptStep::Stop | ScriptStep::Stopped) {
            self.stop = None;
        }
        match step {
            ScriptStep::Cut(mode) => {
                self.world.power_cut(mode);
                self.restart(false)?;
            }
            ScriptStep::CutAgain { mode, after, stop } => {
                self.world.power_cut(mode);
                self.begin(false)?;
                if !self.world.is_running() {
                    return Ok(());
                }
                complete(&mut self.world, self.script.order, after);
                if stop && self.world.failure().is_none() {
                    let ticket = self.world.admin(Verb::Stop);
                    self.world.settle();
                    self.stopped(ticket)?;
                } else if self.world.failure().is_none() {
                    self.world.power_cut(mode);
                    self.restart(false)?;
                }
            }
            ScriptStep::Kill => {
                self.world.kill();
                self.report.kills += 1;
                self.restart(false)?;
            }
            ScriptStep::Look(mode) => {
                self.world.power_cut(mode);
                self.world.disks.iter_mut().for_each(|disk| disk.read_only = true);
                self.restart(true)?;
                if self.world.is_running() {
                    self.report.looks += 1;
                    self.try_to_write()?;
                    self.world.looked();
                }
                self.world.disks.iter_mut().for_each(|disk| disk.read_only = false);
                if self.world.failure().is_none() {
                    self.restart(false)?;
                }
            }
            ScriptStep::Stop => {
                let ticket = self.world.admin(Verb::Stop);
                self.stop.get_or_insert(ticket);
                self.world.settle();
            }
            _ => {
                if let Some(ticket) = self.stop.take() {
                    self.stopped(ticket)?;
                }
            }
        }
        Ok(())
    }

    /// Counts the script if it has a recovery in which a re-added member and a fresh one are
    /// rebuilt together.
    fn count_rebuilds(&mut self) {
        if self.re_added.is_empty() || self.report.rebuilt_beside > 0 || !self.world.is_running() {
            return;
        }
        let options = &self.script.options;
        let first_added = options.members + options.spares + options.disks_beside();
        let fresh = |disk: usize| disk >= first_added;
        let volume = &self.world.snapshot().volumes[0];
        let rebuilding = volume.members.iter().filter(|member| {
            matches!(member.state, MemberState::Rebuilding { .. }) && member.slot.is_some()
        });
        let disks: Vec<usize> =
            rebuilding.map(|member| self.world.disk_known_as(member.member)).collect();
        let both = disks.iter().any(|disk| self.re_added.contains(disk))
            && disks.iter().any(|disk| fresh(*disk));
        self.report.rebuilt_beside = u64::from(both && volume.sync_action == SyncAction::Recover);
    }

    /// Ends the run if torn superblocks made the array lose more members than the level survives,
    /// because nothing is promised for such an array.
    fn give_up(&mut self) {
        if self.script.assembles && self.world.is_running() && self.lost_too_many() {
            self.world.coverage.given_up += 1;
            self.world.looked();
        }
    }

    /// Whether a power cut tore superblocks of so many members that these, together with the
    /// members that had faults, are more than the array can lose.
    fn lost_too_many(&self) -> bool {
        let torn = self.world.torn_out();
        let lost = || self.hurt.union(&torn).copied().collect();
        !torn.is_empty() && !self.script.options.survives(&self.world.array, &lost())
    }

    /// Completes a stop, and restarts the array. Members may be closed after a stop, so their
    /// caches must hold no data of the array that is not durable: a power cut verifies this.
    /// Returns a violation if the answer or the superblocks are wrong.
    fn stopped(&mut self, ticket: Ticket) -> Result<(), Violation> {
        answer_again(&mut self.world);
        self.world.run(self.script.order);
        if self.world.failure().is_some() {
            return Ok(());
        }
        let answer = self.world.take_answer(ticket);
        // A stop may fail to record the clean state or to write pages of the cache, if members lack
        // space or faults exceed the promises.
        let refused = match &answer {
            Some(Err(ReplyError::NoSpace)) => true,
            Some(Err(ReplyError::Unwritten(it))) if it.error == ReplyError::NoSpace => true,
            Some(Err(_)) => !self.script.within_promises,
            _ => false,
        };
        if !refused && !matches!(answer, Some(Ok(_))) {
            let message = format!("stop is answered {answer:?}");
            return fail(&mut self.world, Violation::new("I11 exactly once", message));
        }
        if self.script.within_promises && !refused {
            // Disks that are not members of the engine do not count: their superblocks keep an
            // older state.
            let of_members = self.world.record.without(|disk| self.world.is_out(disk));
            let knows = self.world.snapshot().volumes[0].resync_from;
            let says = of_members.dirty_from();
            if knows != says {
                let message =
                    format!("stopped; parity is right but for {knows:?}, superblocks say {says:?}");
                return fail(&mut self.world, Violation::new("I5 dirty before data", message));
            }
            self.world.model.stop_answered(&[]);
        }
        self.report.stops += u64::from(!refused);
        self.world.stop_bare(self.script.order);
        if self.world.failure().is_some() {
            return Ok(());
        }
        // The array is at rest, so this cut is not counted.
        let (coverage, was_cut) = (self.world.coverage, self.world.was_cut);
        self.world.power_cut(CutMode::Nothing);
        self.world.was_cut = was_cut;
        let judged_partly = self.world.coverage.judged_partly;
        self.world.coverage = Coverage { judged_partly, ..coverage };
        self.restart(false)
    }

    /// Starts a new engine from the media. No engine runs afterwards if the assembly is refused and
    /// the script allows a refusal; a refusal that it does not allow is returned as a violation.
    fn begin(&mut self, read_only: bool) -> Result<(), Violation> {
        if self.world.failure().is_some() {
            return Ok(());
        }
        have_space(&mut self.world);
        self.come_and_go();
        // A mirror assembles from a single member, however old its content; only the torn
        // superblocks of the other members show that newer content is missing.
        if self.script.assembles && !self.world.array.has_parity() && self.lost_too_many() {
            self.world.coverage.given_up += 1;
            return Ok(());
        }
        let how =
            assemble::Options { read_only, run: true, force_dirty: true, ..Default::default() };
        if let Err(refused) = self.world.start(&how) {
            if self.script.assembles && self.world.must_assemble() {
                let message = format!("refused: {refused}");
                return fail(&mut self.world, Violation::new("I1 durability", message));
            }
            self.world.coverage.refused += u64::from(self.script.assembles);
            return Ok(());
        }
        (self.plant)(&mut self.world);
        self.give_up();
        Ok(())
    }

    /// Makes the disks present again that were absent at the last start, and takes away the disks
    /// that are to be absent at this start.
    fn come_and_go(&mut self) {
        if self.absent.is_empty() && self.away.is_empty() {
            return;
        }
        for disk in self.absent.drain(..) {
            self.world.disks[disk].faults.gone = false;
        }
        for disk in self.away.drain(..) {
            let gone = &mut self.world.disks[disk].faults.gone;
            if !std::mem::replace(gone, true) {
                self.absent.push(disk);
            }
        }
        self.world.read_record();
    }

    /// Starts a new engine from the media, and reads everything. Returns a violation if the start
    /// is refused without need.
    fn restart(&mut self, read_only: bool) -> Result<(), Violation> {
        self.begin(read_only)?;
        if self.world.is_running() && self.world.failure().is_none() {
            // A disk that stalled under the last engine still stalls.
            if stalls(&self.world) {
                self.world.idle(STALL);
            }
            answer_again(&mut self.world);
            self.report.verified += self.verify();
        }
        Ok(())
    }

    /// Reads all content, or all that can be read; nothing if disks lie about flushes. Returns the
    /// number of sectors read.
    fn verify(&mut self) -> u64 {
        match (self.script.within_promises, self.script.assembles) {
            (true, _) => self.world.verify(self.script.order),
            (false, false) => self.world.verify_readable(self.script.order),
            // The content of disks that lie about flushes is unknown.
            (false, true) => 0,
        }
    }

    fn try_to_write(&mut self) -> Result<(), Violation> {
        let range = ByteRange::new(0, 4096);
        let sync = Flags { sync: true, ..Flags::NONE };
        let world = &mut self.world;
        let mut tickets = vec![world.request(PROBER, RequestOp::Write, range, Payload::Tags, sync)];
        if let Some(range) = world.first_of_bare() {
            let (op, tags) = (RequestOp::Write, Payload::Tags);
            tickets.push(world.request_of(BARE, PROBER, op, range, tags, sync));
        }
        world.run(self.script.order);
        if tickets.into_iter().any(|ticket| matches!(world.take_answer(ticket), Some(Ok(_)))) {
            return fail(world, Violation::new("I9 read-only", "a write is acknowledged"));
        }
        Ok(())
    }

    /// Ends stalls, lacks of space and planned faults, completes all requests, and checks the
    /// content. Returns the first violation.
    fn end(&mut self) -> Result<(), Violation> {
        if !self.world.is_running() {
            return Ok(());
        }
        for disk in &mut self.world.disks {
            disk.faults.stalled = false;
            disk.faults.no_space = false;
            disk.faults.schedule.clear();
        }
        self.world.run(self.script.order);
        self.run_syncs();
        if let Some(violation) = self.world.failure() {
            return Err(violation.clone());
        }
        self.report.verified += self.verify();
        if let Some(violation) = self.world.failure() {
            return Err(violation.clone());
        }
        if !self.script.within_promises {
            if !self.world.options.disks_lie {
                self.report.written_again += self.world.write_again(self.script.order);
            }
            return self.world.failure().cloned().map_or(Ok(()), Err);
        }
        let scrub = self.world.scrub(Bytes::Visible);
        self.report.scrubbed += scrub.written;
        let dirty = self.world.snapshot().volumes[0].resync_from;
        let wrong: Vec<u64> = scrub
            .wrong
            .iter()
            .copied()
            .filter(|column| dirty.is_none_or(|from| *column < from.0))
            .collect();
        if let Some(column) = wrong.first() {
            let count = wrong.len();
            let message = format!(
                "at rest the parity or copies of {count} columns are wrong, first {column}"
            );
            return fail(&mut self.world, Violation::new("I6 parity or dirty", message));
        }
        Ok(())
    }

    /// Checks that a necessary resync starts and ends within [`SYNCED_WITHIN`] (I13). Also waits
    /// for the superblock of a member that had no space for it when its rebuild ended.
    fn run_syncs(&mut self) {
        let begun = self.world.now;
        while self.world.failure().is_none() {
            let volume = &self.world.snapshot().volumes[0];
            let action = volume.sync_action;
            let runs = !matches!(action, SyncAction::Idle | SyncAction::Frozen);
            let in_sync = |slot: Slot| {
                let mut members = volume.members.iter();
                members.any(|it| it.slot == Some(slot) && it.state == MemberState::InSync)
            };
            let waits = volume.resync_from.is_some()
                && action != SyncAction::Frozen
                && self.world.array.has_redundancy(in_sync)
                && self.script.within_promises;
            let took = self.world.now.since(begun);
            let is_update_due = took < UPDATED_WITHIN && self.world.is_update_due();
            if !runs && !waits && !is_update_due {
                break;
            }
            if took > SYNCED_WITHIN {
                let from = volume.resync_from;
                let message =
                    format!("{action:?}, parity to check from {from:?}, {took:?} after the end");
                self.world.fail(Violation::new("I13 liveness", message));
                break;
            }
            self.world.idle(Span::millis(500));
        }
        self.world.coverage.longest_sync =
            self.world.coverage.longest_sync.max(self.world.now.since(begun));
    }
}

/// Time for which stalled disks stay silent at a step `finish` before their stall may end: longer
/// than the knob `read_around`, so that reads avoid these disks.
const STALL: Span = Span::secs(5);

/// Longest time that a resync may take once members answer, on arrays as small as those of scripts.
const SYNCED_WITHIN: Span = Span::secs(10);

/// Time after which a superblock update that failed has been repeated.
const UPDATED_WITHIN: Span = Span::secs(2);

/// Reports a violation. Returns it as an error if violations of its checker count.
fn fail(world: &mut World, violation: Violation) -> Result<(), Violation> {
    world.fail(violation);
    world.failure().map_or(Ok(()), |violation| Err(violation.clone()))
}

/// Issues an administrator's command to the array.
fn administer(world: &mut World, verb: Verb) {
    world.admin(verb);
    world.settle();
}

/// Starts a check, repair or correction of a range of sectors.
fn sync_range(world: &mut World, action: SyncAction, from: u64, to: Option<u64>) {
    let (from, to) = (Sectors(from), to.map(Sectors));
    administer(world, Verb::SyncRange { action, from, to });
}

/// Carries out a step that changes a knob of one disk's queue, or that adds or removes the bitmap.
fn change(world: &mut World, step: ScriptStep) {
    match step {
        ScriptStep::SetQueue(disk, name, value) if disk < world.disks.len() => {
            world.set_queue(disk, name, value);
        }
        ScriptStep::Bitmap(chunk) => {
            let chunk = chunk.map(weft_units::Bytes);
            let new = chunk.map(|chunk| NewBitmap { chunk: Some(chunk), daemon_sleep: 1 });
            world.admin(Verb::SetBitmap(new));
        }
        _ => {}
    }
    world.settle();
}

/// Carries out a step that plants a fault of a disk. A step that toggles a fault ends it if the
/// disk already has it.
fn fault(world: &mut World, step: ScriptStep) {
    let first = |disk: usize| world.array.data_offset[disk].0;
    match step {
        ScriptStep::FailOperation { disk, after, how } => {
            if let Some(disk) = world.disks.get_mut(disk) {
                let number = disk.operations() + after;
                disk.faults.schedule.insert(number, how);
            }
        }
        ScriptStep::BadRead { disk, column, dead } => {
            let sector = column + first(disk);
            world.disks[disk].faults.unreadable(dead).insert(sector);
        }
        ScriptStep::BadSuperblock { disk, dead } => {
            let disk = &mut world.disks[disk];
            if let Some(at) = world.options.version.position(disk.size()) {
                disk.faults.unreadable(dead).insert(at.0);
            }
        }
        ScriptStep::BadWrite { disk, column } => {
            let sector = column + first(disk);
            world.disks[disk].faults.bad_writes.insert(sector);
        }
        ScriptStep::FailDiscards { disk, count } => {
            world.disks[disk].faults.discards_fail += count;
        }
        ScriptStep::FlushError(disk) => world.disks[disk].faults.flush_error = true,
        ScriptStep::LyingFlush(disk) => world.disks[disk].faults.lying_flush = true,
        ScriptStep::Shrink { disk, sectors } => {
            let ends_at = &mut world.disks[disk].faults.ends_at;
            *ends_at = Some(ends_at.map_or(sectors, |before| before.min(sectors)));
        }
        ScriptStep::NoSpace(disk) => {
            if let Some(disk) = world.disks.get_mut(disk) {
                disk.faults.no_space = !disk.faults.no_space;
            }
        }
        ScriptStep::Stall(disk) => {
            let faults = &mut world.disks[disk].faults;
            faults.stalled = !faults.stalled;
        }
        other => unreachable!("{other:?} is not a fault"),
    }
}

/// Completes up to `count` member requests or computations.
fn complete(world: &mut World, order: Order, count: u32) {
    for _ in 0..count {
        if world.failure().is_some() || !world.step(order) {
            break;
        }
    }
}

fn stalls(world: &World) -> bool {
    world.disks.iter().any(|disk| !disk.can_complete())
}

/// Completes all requests that do not need a stalled disk. If client requests are still unanswered
/// afterwards, ends the stalls and completes the rest.
fn finish(world: &mut World, order: Order) {
    if stalls(world) {
        world.idle(STALL);
    }
    if !stalls(world) || world.unanswered() > 0 {
        answer_again(world);
        world.run(order);
    }
}

/// Makes stalled disks answer again, and gives space to disks that lack it.
fn answer_again(world: &mut World) {
    have_space(world);
    world.disks.iter_mut().for_each(|disk| disk.faults.stalled = false);
}

/// Gives all disks space, and removes planned stalls.
fn have_space(world: &mut World) {
    for disk in &mut world.disks {
        disk.faults.no_space = false;
        disk.faults.schedule.retain(|_, planned| *planned != Planned::Silent);
    }
}
