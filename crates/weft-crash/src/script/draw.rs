//! Generator of scripts: array, knobs and steps of a seed under a profile.
//!
//! The profile determines how frequent each kind of step is. Faults are drawn so that no more
//! members are hurt than the level survives, unless the profile exceeds that on purpose.

use weft_engine::knobs::{CacheForm, Knobs};
use weft_engine::layout::Layout;
use weft_engine::{Fault, Flags, RequestOp, SyncAction};
use weft_ondisk::{Level, Version};
use weft_units::rng::Rng;
use weft_units::{Bytes, Sectors};

use super::{Profile, Script, ScriptStep, cache, levels, lists, ranges, rebuilds, straight};
use crate::array::Array;
use crate::crash::CutMode;
use crate::faults::Planned;
use crate::options::Options;
use crate::payload::PayloadMode;
use crate::volumes::ARRAY;
use crate::world::Order;

/// One seed in this many uses complete payload instead of tags.
const BYTES_EVERY: u64 = 8;

/// Generator of the steps of a script.
pub(super) struct Draw {
    rng: Rng,
    /// Separate random stream for [`Profile::more`], so that `rng` draws the same values with and
    /// without these features.
    more: Rng,
    /// Separate random stream for [`Self::before_a_cut`].
    around: Rng,
    /// Separate random stream for [`Profile::queues`].
    queues: Rng,
    /// Separate random stream for [`Profile::bitmaps`].
    bits: Rng,
    /// Separate random stream for [`Profile::lacks`].
    lacks: Rng,
    /// Separate random stream for [`Profile::rebuilds`].
    pub(super) rebuilds: Rng,
    /// Separate random stream for [`Profile::joins`].
    pub(super) joins: Rng,
    /// Separate random stream for [`Profile::absences`].
    pub(super) absences: Rng,
    /// Separate random stream for [`Profile::replaces`].
    pub(super) replaces: Rng,
    /// Separate random stream for [`Profile::bad_blocks`].
    pub(super) bad: Rng,
    /// Separate random stream for [`Profile::trims_fail`].
    trims: Rng,
    /// Separate random stream for [`Profile::last_copy`].
    last: Rng,
    /// Separate random stream for [`Profile::drains`].
    pub(super) drains: Rng,
    /// Separate random stream for [`Profile::parts`].
    pub(super) parts: Rng,
    /// Separate random stream for [`Profile::bare`].
    pub(super) bare: Rng,
    /// Separate random stream for [`Profile::mixed`].
    pub(super) mixed: Rng,
    pub(super) profile: Profile,
    /// Options of the array, which determine the losses that it survives.
    pub(super) options: Options,
    array: Array,
    pub(super) members: usize,
    /// Largest number of members that the array can lose; for a mirror, the number of copies less
    /// one.
    pub(super) parities: usize,
    chunk: Sectors,
    /// Bytes of a full stripe; without parity, of two chunks.
    full_stripe: u64,
    /// Number of data sectors that every member has; some members may have more.
    pub(super) columns: u64,
    /// Bytes of the array.
    pub(super) size: u64,
    /// Byte offsets near which most requests are, so that requests overlap.
    hot: Vec<u64>,
    /// Disks for which faults were drawn.
    hurt: Vec<usize>,
    pub(super) spares: usize,
    /// Steps until a stop that was requested is completed; `None` if no stop was requested.
    stops_in: Option<u64>,
    /// Number of blank disks that were added.
    pub(super) added: usize,
}

impl Script {
    /// Draws the script of a seed under a profile.
    #[must_use]
    pub fn generate(seed: u64, profile: Profile) -> Self {
        let mut draw = Draw::new(seed, profile);
        let mut steps = Vec::with_capacity(profile.steps);
        if profile.rebuilds {
            draw.rebuilds(&mut steps);
        }
        if profile.last_copy {
            draw.lose_all_but_the_last(&mut steps);
        }
        if profile.joins {
            draw.joins(&mut steps);
        }
        if profile.absences {
            draw.absences(&mut steps);
        }
        if profile.bad_blocks {
            draw.bad_blocks(&mut steps);
        }
        if profile.replaces {
            draw.replaces(&mut steps);
        }
        for _ in 0..profile.steps {
            let step = draw.step();
            draw.before(step, &mut steps);
            steps.push(step);
        }
        let order = draw.rng.pick(&[Order::Random, Order::Random, Order::Fifo, Order::Lifo]);
        if profile.more {
            ranges::draw(seed, draw.columns, &mut steps);
        }
        Self {
            profile: profile.name,
            options: draw.options,
            order,
            steps,
            within_promises: !profile.beyond && !profile.lies,
            assembles: !profile.beyond,
        }
    }
}

impl Draw {
    /// A generator for the array of a script, before its first step.
    fn new(seed: u64, profile: Profile) -> Self {
        let mut rng = Rng::new(seed ^ 0x5eed);
        let mut options = draw_options(&mut rng, seed, profile);
        let mut more = Rng::new(seed ^ 0x0a0e);
        if profile.more {
            draw_media(&mut more, &mut options);
        }
        let mut queues = Rng::new(seed ^ 0x5c4e);
        if profile.queues {
            draw_queues(&mut queues, &mut options.knobs);
        }
        if profile.straight && !profile.rebuilds {
            straight::draw(seed, profile.needs_redundancy(), &mut options);
        }
        let mut two = Rng::new(seed ^ 0x2eb1);
        if profile.rebuilds {
            rebuilds::draw(&mut two, seed, &mut options);
        }
        let replaces = super::replaces::draw(seed, profile, &mut options);
        let mut bits = Rng::new(seed ^ 0xb175);
        if profile.bitmaps {
            draw_bitmap(&mut bits, &mut options);
        }
        let mut lacks = Rng::new(seed ^ 0x1ac5);
        if profile.lacks > 0 {
            options.write_back = cache::draw_in(50, &mut lacks);
        }
        let mut drains = Rng::new(seed ^ 0xd7a1);
        if profile.drains {
            super::drains::draw(&mut drains, &mut options);
        }
        let parts = super::parts::draw(seed, profile, &mut options);
        let mut mixed = Rng::new(seed ^ 0x3175);
        if profile.mixed {
            super::mixed::draw(&mut mixed, &mut options);
        }
        let mut bare = Rng::new(seed ^ 0xba2e);
        if profile.bare || profile.two_arrays {
            super::bare::draw(&mut bare, profile, &mut options);
        }
        if profile.drives {
            super::drives::draw(&mut Rng::new(seed ^ 0xd21e), &mut options);
        }
        let array = Array::new(options.array_layout(), Vec::new());
        let (spares, members, chunk) = (options.spares, options.members, options.chunk);
        let parities = losses_max(&array);
        // Members of unequal size have at least this many data sectors each.
        let columns = chunk.0 * options.full_stripes;
        let size = array.layout.array_size().bytes().0;
        Self {
            hot: (0..4).map(|_| rng.below(size)).collect(),
            full_stripe: array.row_bytes(chunk),
            rng,
            more,
            around: Rng::new(seed ^ 0xa20d),
            queues,
            bits,
            lacks,
            rebuilds: two,
            joins: Rng::new(seed ^ 0x7015),
            absences: Rng::new(seed ^ 0xab5e),
            replaces,
            bad: Rng::new(seed ^ 0xbadb),
            trims: Rng::new(seed ^ 0x7121),
            last: Rng::new(seed ^ 0x1a57),
            drains,
            parts,
            bare,
            mixed,
            profile,
            options,
            array,
            members,
            parities,
            chunk,
            columns,
            size,
            hurt: Vec::new(),
            spares,
            stops_in: None,
            added: 0,
        }
    }

    /// Adds the steps that come before `step` because of the profile's additional features.
    fn before(&mut self, step: ScriptStep, steps: &mut Vec<ScriptStep>) {
        if self.profile.queues && self.queues.percent(5) {
            let (name, values) = self.queues.pick(&lists::QUEUES);
            steps.push(ScriptStep::Set(name, self.queues.pick(values)));
        }
        if self.profile.bitmaps {
            self.before_with_bits(steps);
        }
        if self.profile.last_copy {
            self.before_on_the_last_copy(steps);
        }
        if self.profile.drains {
            self.before_with_drains(step, steps);
        }
        if self.profile.parts {
            self.before_with_parts(steps);
        }
        if self.profile.mixed {
            self.before_mixed(steps);
        }
        if self.profile.bare || self.profile.two_arrays {
            self.before_with_bare(steps);
        }
        if self.profile.absences && matches!(step, ScriptStep::Cut(_) | ScriptStep::Kill) {
            self.may_be_absent(steps);
        }
        let discards = matches!(step, ScriptStep::Ask { op: RequestOp::Trim, .. })
            || matches!(step, ScriptStep::Ask { flags: Flags { discard: true, .. }, .. });
        if self.profile.trims_fail && discards && self.trims.percent(50) {
            let (disk, count) = (self.trims.index(self.members), self.trims.pick(&[1, 1, 2]));
            steps.push(ScriptStep::FailDiscards { disk, count });
        }
        if !self.profile.more {
            return;
        }
        let asks =
            matches!(step, ScriptStep::Ask { op: RequestOp::Write | RequestOp::WriteZeroes, .. });
        if asks && self.more.percent(10) {
            // After a step `finish` nothing is outstanding, and the request may arrive while the
            // array is being marked clean.
            if self.more.percent(70) {
                steps.push(ScriptStep::Finish);
            }
            steps.push(ScriptStep::Wait(self.more.pick(&[1, 5, 100, 210, 210, 400, 1100])));
            if self.more.percent(60) {
                steps.push(self.flushes());
            }
        }
        // With these steps the cut comes while superblocks are being written.
        if matches!(step, ScriptStep::Cut(_) | ScriptStep::Look(_)) && self.more.percent(4) {
            steps.extend([ScriptStep::Finish, ScriptStep::Wait(400), self.flushes()]);
        }
        if matches!(step, ScriptStep::Cut(_) | ScriptStep::Look(_) | ScriptStep::Kill) {
            self.before_a_cut(steps);
        }
        if self.profile.faults && self.more.percent(4) {
            let disk = self.more.index(self.members);
            if self.may_hurt(disk) {
                steps.push(self.failing(disk));
            }
        }
        if self.profile.lies && self.more.percent(5) {
            let disk = self.more.index(self.members);
            if self.may_hurt(disk) {
                steps.push(ScriptStep::LyingFlush(disk));
            }
        }
        match &mut self.stops_in {
            Some(0) => {
                self.stops_in = None;
                steps.push(ScriptStep::Stopped);
            }
            Some(rest) => *rest -= 1,
            None if self.more.percent(2) => {
                self.stops_in = Some(self.more.pick(&[0, 0, 1, 4]));
                steps.push(ScriptStep::Stop);
            }
            None => {}
        }
    }

    /// Adds steps that fail members, in random order. Members that the array cannot lose are
    /// skipped, and so is one in ten of the others.
    fn lose_all_but_the_last(&mut self, steps: &mut Vec<ScriptStep>) {
        let mut disks: Vec<usize> = (0..self.members).collect();
        while !disks.is_empty() {
            let disk = disks.swap_remove(self.last.index(disks.len()));
            let lost = self.hurt.iter().copied().chain([disk]).collect();
            if self.options.survives(&self.array, &lost) && !self.last.percent(10) {
                self.hurt.push(disk);
                steps.push(ScriptStep::FailDisk(disk));
            }
        }
        steps.push(ScriptStep::Finish);
        if self.last.percent(50) {
            steps.push(ScriptStep::Sleep(400));
        }
    }

    /// Adds, at random, a fault of a member that is left: either all of its flushes fail from then
    /// on, or a read and the operation that follows it fail.
    fn before_on_the_last_copy(&mut self, steps: &mut Vec<ScriptStep>) {
        let left: Vec<usize> = (0..self.members).filter(|disk| !self.hurt.contains(disk)).collect();
        let disk = self.last.pick(&left);
        match self.last.below(100) {
            0..=1 => {
                // The array may be clean; the next write then needs superblock writes.
                if self.last.percent(50) {
                    steps.extend([ScriptStep::Finish, ScriptStep::Sleep(400)]);
                }
                steps.push(ScriptStep::FlushError(disk));
            }
            // The read fails, and so does the next operation.
            2..=7 => {
                steps.push(ScriptStep::Finish);
                let how = Planned::Once(Fault::Io);
                let fails = |after| ScriptStep::FailOperation { disk, after, how };
                steps.extend((0..2).map(fails));
                let start = self.last.pick(&self.hot) / 4096 * 4096;
                let (op, flags) = (RequestOp::Read, Flags::NONE);
                let client = 1 + self.last.below(3) as u32;
                steps.push(ScriptStep::Ask { volume: ARRAY, client, op, start, len: 4096, flags });
                steps.push(ScriptStep::Finish);
            }
            _ => {}
        }
    }

    /// Adds, at random, steps in which bits of the bitmap are cleared, or in which a member leaves
    /// and is re-added.
    fn before_with_bits(&mut self, steps: &mut Vec<ScriptStep>) {
        match self.bits.below(100) {
            // Two runs of the bitmap's daemon, a second apart. All requests of the first run
            // complete, and some of the second.
            0..=5 => {
                steps.extend([ScriptStep::Finish, ScriptStep::Sleep(1100), ScriptStep::Wait(1100)]);
                let after = self.bits.below(3 * self.members as u64) as u32;
                steps.push(ScriptStep::Steps(after));
            }
            6..=9 => steps.extend([ScriptStep::Finish, ScriptStep::Sleep(3500)]),
            10..=13 if self.profile.faults => {
                let disk = self.bits.index(self.members);
                if self.may_hurt(disk) {
                    self.leaves(disk, steps);
                    if self.added < 2 && self.bits.percent(25) {
                        self.is_replaced_for_a_while(steps);
                    }
                    steps.push(ScriptStep::ReAdd(disk));
                }
            }
            _ => {}
        }
    }

    /// Adds steps that fail and remove a member, and writes that it misses.
    fn leaves(&mut self, disk: usize, steps: &mut Vec<ScriptStep>) {
        if self.bits.percent(70) {
            steps.extend([ScriptStep::Finish, ScriptStep::Sleep(self.bits.pick(&[1, 3500]))]);
        }
        steps.extend([ScriptStep::FailDisk(disk), ScriptStep::Finish, ScriptStep::Remove(disk)]);
        for _ in 0..self.bits.below(4) {
            steps.push(self.write_near());
        }
        if self.bits.percent(50) {
            steps.push(ScriptStep::Finish);
        }
    }

    /// Adds steps in which a blank disk takes the slot of the member that was removed last, bits of
    /// the bitmap are cleared, and the disk leaves again.
    fn is_replaced_for_a_while(&mut self, steps: &mut Vec<ScriptStep>) {
        let added = steps.iter().filter(|step| **step == ScriptStep::Add).count();
        let disk = self.first_added() + added;
        self.added += 1;
        steps.extend([ScriptStep::Add, ScriptStep::Finish, ScriptStep::Sleep(3500)]);
        steps.extend([self.write_near(), ScriptStep::Finish, ScriptStep::Sleep(3500)]);
        steps.extend([ScriptStep::FailDisk(disk), ScriptStep::Finish, ScriptStep::Remove(disk)]);
    }

    fn write_near(&mut self) -> ScriptStep {
        let near = self.bits.pick(&self.hot);
        let start = ((near + self.bits.below(8) * 4096) % self.size) / 4096 * 4096;
        let len = (4096 * (1 + self.bits.below(4))).min(self.size - start);
        let flags = Flags { sync: true, fua: self.bits.percent(15), ..Flags::NONE };
        ScriptStep::Ask { volume: ARRAY, client: 1, op: RequestOp::Write, start, len, flags }
    }

    /// Adds, at random, steps before a power cut: writes that are in flight at the cut, a pause
    /// after which the array is about to be clean, or a second cut during recovery.
    fn before_a_cut(&mut self, steps: &mut Vec<ScriptStep>) {
        match self.around.below(100) {
            0..=29 => {
                for _ in 0..2 {
                    let near = self.around.pick(&self.hot);
                    let len = 4096 * (1 + self.around.below(10));
                    let start = ((near + self.around.below(8) * 4096) % self.size) / 4096 * 4096;
                    let len = len.min(self.size - start);
                    let client = 1 + self.around.below(3) as u32;
                    let flags = Flags { sync: true, ..Flags::NONE };
                    steps.push(ScriptStep::Ask {
                        volume: ARRAY,
                        client,
                        op: RequestOp::Write,
                        start,
                        len,
                        flags,
                    });
                }
                steps.push(ScriptStep::Steps(4 + self.around.below(16) as u32));
            }
            30..=33 => steps.extend([ScriptStep::Finish, ScriptStep::Sleep(400)]),
            // Parts of a resync complete before the cut.
            34..=49 => {
                let after = self.around.below(80) as u32;
                let stop = self.around.percent(50);
                steps.push(ScriptStep::CutAgain { mode: CutMode::Subset, after, stop });
            }
            _ => {}
        }
    }

    /// A step that completes about as many requests as there are members, so that at the next step
    /// the last flushes or superblock writes before the clean state are outstanding.
    fn flushes(&mut self) -> ScriptStep {
        let (from, to) = (self.members - self.parities, self.members + self.spares);
        ScriptStep::Steps((from + self.more.index(to - from + 1)) as u32)
    }

    /// A step with a random fault of a disk: one that stays, or one that fails a single operation.
    fn failing(&mut self, disk: usize) -> ScriptStep {
        let rng = &mut self.more;
        match rng.below(12) {
            0..=2 => ScriptStep::BadWrite { disk, column: rng.below(self.columns) },
            3 | 4 => ScriptStep::FlushError(disk),
            5 | 6 => {
                let how = rng.pick(&[Fault::Io, Fault::Io, Fault::NoSpace]);
                ScriptStep::FailOperation { disk, after: rng.below(6), how: Planned::Once(how) }
            }
            7..=9 => ScriptStep::BadSuperblock { disk, dead: rng.percent(30) },
            _ => {
                // The new end of the disk is in the data, in the metadata, or at 0.
                let left = rng.pick(&[16_384, 4096, 0]);
                let data = if left > 4096 { rng.below(self.columns) } else { 0 };
                ScriptStep::Shrink { disk, sectors: left / 2 + data }
            }
        }
    }

    /// Number of the first blank disk that is added.
    fn first_added(&self) -> usize {
        self.members + self.spares + self.options.disks_beside()
    }

    /// Whether a fault may be drawn for a disk. If so, the disk counts as hurt from now on.
    pub(super) fn may_hurt(&mut self, disk: usize) -> bool {
        let hurt = self.hurt.contains(&disk);
        let with_it = || self.hurt.iter().copied().chain([disk]).collect();
        let may = self.profile.beyond || hurt || self.options.survives(&self.array, &with_it());
        if may && !hurt {
            self.hurt.push(disk);
        }
        may
    }

    fn step(&mut self) -> ScriptStep {
        if self.profile.lacks > 0 && self.lacks.percent(self.profile.lacks) {
            let (first, seconds) = (self.lacks.index(self.members), 1 + self.lacks.below(20));
            let count = self.lacks.pick(&[1, 1, 1, 2, self.members]);
            return ScriptStep::LackSpace { first, count, seconds };
        }
        let Profile { cuts, knobs, faults, admin, discards, .. } = self.profile;
        if self.rng.percent(cuts) {
            return self.ending();
        }
        if self.rng.percent(knobs) {
            return self.knob();
        }
        if discards > 0 && self.rng.percent(discards) {
            return self.discard();
        }
        let choice = self.rng.below(100);
        match choice {
            0..=50 => self.ask(),
            51..=75 => ScriptStep::Steps(1 + self.rng.below(12) as u32),
            76..=80 => ScriptStep::Finish,
            81..=82 => ScriptStep::Sleep(self.rng.pick(&[1, 100, 300, 3000])),
            83..=88 if faults => self.fault(choice),
            89..=94 if admin => self.command(choice),
            95 => ScriptStep::Disconnect(1 + self.rng.below(3) as u32),
            _ => self.ask(),
        }
    }

    fn ending(&mut self) -> ScriptStep {
        let mode = self.rng.pick(&[
            CutMode::Subset,
            CutMode::Subset,
            CutMode::Subset,
            CutMode::Ordered,
            CutMode::Nothing,
            CutMode::Everything,
        ]);
        let tears = self.profile.more && self.more.percent(20);
        let mode = if tears { CutMode::Torn } else { mode };
        match self.rng.below(8) {
            0 => ScriptStep::Kill,
            1 => ScriptStep::Look(mode),
            _ => ScriptStep::Cut(mode),
        }
    }

    /// Draws a member for a fault; `None` if the array cannot lose the member that is drawn.
    fn victim(&mut self) -> Option<usize> {
        let disk = self.rng.index(self.members);
        self.may_hurt(disk).then_some(disk)
    }

    fn fault(&mut self, choice: u64) -> ScriptStep {
        // A disk that was added takes a slot that already counts as hurt.
        if self.added > 0 && self.rng.percent(20) {
            let disk = self.first_added() + self.rng.index(self.added);
            let how = Planned::Once(Fault::NoSpace);
            return ScriptStep::FailOperation { disk, after: self.rng.below(12), how };
        }
        let Some(disk) = self.victim() else { return ScriptStep::Steps(1) };
        match choice {
            83..=84 => {
                let how = self.rng.pick(&[
                    Planned::Gone,
                    Planned::Once(Fault::Io),
                    Planned::Once(Fault::NoSpace),
                    Planned::Silent,
                ]);
                ScriptStep::FailOperation { disk, after: self.rng.below(12), how }
            }
            85..=86 => {
                let column = self.rng.below(self.columns);
                ScriptStep::BadRead { disk, column, dead: self.rng.percent(30) }
            }
            87 => ScriptStep::NoSpace(disk),
            _ => ScriptStep::Stall(disk),
        }
    }

    fn command(&mut self, choice: u64) -> ScriptStep {
        match choice {
            89 => match self.victim() {
                Some(disk) => ScriptStep::FailDisk(disk),
                None => ScriptStep::Steps(1),
            },
            90 if !self.hurt.is_empty() => ScriptStep::Remove(self.rng.pick(&self.hurt)),
            91 if self.added < 2 && !self.hurt.is_empty() => {
                self.added += 1;
                ScriptStep::Add
            }
            92 if !self.hurt.is_empty() => ScriptStep::Return(self.rng.pick(&self.hurt)),
            93 => ScriptStep::Sync(self.rng.pick(&[
                SyncAction::Check,
                SyncAction::Repair,
                SyncAction::Idle,
                SyncAction::Resync,
                SyncAction::Recover,
            ])),
            94 => self.knob(),
            _ => ScriptStep::Steps(2),
        }
    }

    fn knob(&mut self) -> ScriptStep {
        let (name, value) = self.rng.pick(&lists::STEPS);
        let too_high = name == "stripe_size"
            && value.parse::<u64>().is_ok_and(|bytes| bytes > self.chunk.bytes().0);
        if too_high { ScriptStep::Set("stripe_size", "4096") } else { ScriptStep::Set(name, value) }
    }

    /// A discard of up to a few full stripes, with ends that need not be aligned.
    fn discard(&mut self) -> ScriptStep {
        let (rng, size) = (&mut self.rng, self.size);
        let full_stripe = self.full_stripe;
        let edge = |rng: &mut Rng| {
            rng.pick(&[0, 0, 512, 4096, full_stripe - 512, full_stripe / 2 / 512 * 512])
        };
        let near = if rng.percent(60) { rng.pick(&self.hot) } else { rng.below(size) };
        let start = (near / full_stripe * full_stripe + edge(rng)).min(size - 512);
        let len = full_stripe * rng.below(4) + edge(rng);
        let len = len.clamp(512, size - start);
        let op = if rng.percent(70) { RequestOp::Trim } else { RequestOp::WriteZeroes };
        let flags = Flags {
            fua: rng.percent(15),
            preflush: rng.percent(8),
            discard: op == RequestOp::WriteZeroes,
            ..Flags::NONE
        };
        let client = 1 + rng.below(3) as u32;
        let (start, len) = self.in_blocks(start, len);
        ScriptStep::Ask { volume: ARRAY, client, op, start, len, flags }
    }

    /// Extends a range to whole logical blocks, as arrays without parity require; occasionally
    /// leaves it as it is.
    fn in_blocks(&mut self, start: u64, len: u64) -> (u64, u64) {
        if !self.profile.straight || self.queues.percent(4) {
            return (start, len);
        }
        let block = u64::from(self.options.logical_block);
        let start = start / block * block;
        (start, len.next_multiple_of(block).min(self.size - start))
    }

    fn ask(&mut self) -> ScriptStep {
        let rng = &mut self.rng;
        let size = self.size;
        let near = if rng.percent(80) { rng.pick(&self.hot) } else { rng.below(size) };
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
            discard: op == RequestOp::WriteZeroes && rng.percent(30),
            ahead: op == RequestOp::Read && rng.percent(5),
            ..Flags::NONE
        };
        let (start, len) = if op == RequestOp::Flush { (0, 0) } else { (start, len) };
        let client = 1 + rng.below(3) as u32;
        let (start, len) = self.in_blocks(start, len);
        ScriptStep::Ask { volume: ARRAY, client, op, start, len, flags }
    }
}

/// Largest number of members that an array can lose; for a mirror, the number of copies less one.
fn losses_max(array: &Array) -> usize {
    match &array.layout {
        Layout::Parity(geometry) => geometry.parities().into(),
        Layout::Mirrors(_) => array.column(0).places.len() - 1,
        Layout::Striped(_) => 0,
    }
}

/// Draws the options of a script, except for options that the additional features of a [`Profile`]
/// draw.
fn draw_options(rng: &mut Rng, seed: u64, profile: Profile) -> Options {
    let mut options = draw_shape(rng);
    let chunk = options.chunk;
    options.seed = seed;
    options.data_promised = !profile.beyond && !profile.lies;
    options.disks_lie = profile.lies;
    options.full_stripes = if chunk.0 > 32 { 4 } else { 12 };
    options.defer_computes = rng.percent(50);
    options.assume_clean = rng.percent(80);
    // The seed itself decides, without a draw, so that older seeds keep their meaning.
    if seed % 5 == 3 {
        options.knobs.stripe_cache_form = CacheForm::Of2008;
    }
    // The seed decides here too. A sample of the seeds has complete payload; with tags the results
    // are the same (`tests/all/payload.rs`).
    let bytes = seed.is_multiple_of(BYTES_EVERY);
    options.payload = if bytes { PayloadMode::Bytes } else { PayloadMode::Tags };
    options.logical_block = if rng.percent(80) { 512 } else { 4096 };
    options.discards = profile.discards > 0 && rng.percent(80);
    options.knobs.stripe_cache_size = rng.pick(&[17, 32, 64]);
    options.stripes_max = rng.percent(25).then(|| rng.pick(&[2, 3, 5]));
    if rng.percent(25) && options.stripes_max.is_some() {
        options.cache_stripes = Some(1);
    }
    options.client_frames = rng.pick(&[80, 256, 1024]);
    options.knobs = draw_knobs(rng, options.knobs, chunk);
    cache::add_to_some(&mut options);
    options
}

/// Draws level, members, chunk and layout of an array with parity.
fn draw_shape(rng: &mut Rng) -> Options {
    let level = rng.pick(&levels::PARITY);
    let members = rng.pick(&[3, 3, 4, 4, 5, 6, 7, 8]).max(level.parity_count() as usize + 2);
    let chunk = Sectors(rng.pick(&[8, 8, 16, 32, 128]));
    let mut options = Options::new(level, members, chunk);
    options.layout = draw_layout(rng, level);
    options
}

/// Chooses the version and length of superblocks, the number of spares, and whether failed writes
/// tear.
fn draw_media(rng: &mut Rng, options: &mut Options) {
    let versions = [Version::V1_2, Version::V1_2, Version::V1_0, Version::V1_1, Version::V0_90];
    options.version = rng.pick(&versions);
    options.spares = rng.pick(&[0, 0, 0, 1, 2]);
    // With these numbers the table of roles fills one, two or eight sectors, and some changes of
    // roles touch two sectors.
    if options.version != Version::V0_90 {
        options.first_number = rng.pick(&[0, 0, 0, 126, 129, 1900]);
    }
    options.torn_writes = rng.percent(75);
}

/// Chooses a write-intent bitmap of few or many chunks. With members as small as these, versions
/// 0.90 and 1.0 have no room for a bitmap beside the data.
fn draw_bitmap(rng: &mut Rng, options: &mut Options) {
    options.bitmap = Some(Bytes(rng.pick(&[4096, 4096, 8192, 16384, 65536])));
    if matches!(options.version, Version::V0_90 | Version::V1_0) {
        options.version = Version::V1_2;
    }
}

/// The default layout (`None`) in half of the cases, otherwise any layout of the level.
fn draw_layout(rng: &mut Rng, level: Level) -> Option<u32> {
    let layouts: Vec<u32> = level.row().layouts.named().map(|(code, ..)| code).collect();
    (!layouts.is_empty() && rng.percent(50)).then(|| rng.pick(&layouts))
}

fn draw_knobs(rng: &mut Rng, mut knobs: Knobs, chunk: Sectors) -> Knobs {
    let mut set = |name: &str, value: &str| {
        if let Ok(knob) = knobs.parse(name, value) {
            knobs.set(knob);
        }
    };
    for (name, values) in &*lists::START {
        match *name {
            "priority" => {
                let rules = [("bypass", "1"), ("fifo", "1"), ("stream", "1"), ("stream", "0.002")];
                let (priority, wait_max) = rng.pick(&rules);
                set("priority", priority);
                set("preread_wait_max", wait_max);
            }
            "stripe_size" => {
                let sizes: &[&str] = match chunk.0 {
                    0..32 => &["4096", "auto"],
                    32..128 => &["4096", "8192", "16384", "auto", "auto"],
                    _ => &["4096", "16384", "65536", "auto", "auto"],
                };
                set("stripe_size", rng.pick(sizes));
            }
            name => set(name, rng.pick(values)),
        }
    }
    knobs
}

/// Chooses knobs of the queues of members.
fn draw_queues(rng: &mut Rng, knobs: &mut Knobs) {
    for (name, values) in &*lists::QUEUES {
        let knob = knobs.parse(name, rng.pick(values));
        knobs.set(knob.expect("every value is valid"));
    }
}
