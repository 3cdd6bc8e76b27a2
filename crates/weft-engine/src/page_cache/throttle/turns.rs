//! Turns, weft's own throttling: which writer of a device may dirty how many pages, and when.
//!
//! Every page that becomes dirty is paid for with *credit*, so dirty pages, pages under writeback
//! and credit that is not spent yet never exceed the limit together. Credit comes back when writes
//! are completed, and goes to one writer of the device until its *turn* is over; the others sleep.
//! No pause is computed and no tick is waited for: a completion wakes the writer whose turn it is.
//!
//! ```text
//! credit   pages completed make room for as many new ones, whose writer is woken at once
//! turn     so many pages that the switch to the next file costs 3 % (one part in 33), no more than
//!          keeps everyone's wait near a second, no less than costs half of the disk; a smooth
//!          20 ms of all writers together where the pool holds a turn's worth for each of them
//! speed    pages per second of busy time, of completions that follow each other; what the others
//!          take longer is the cost of a switch                                       speed.rs
//! shares   pages of the limit by device: those who ask share by speed what those who do not ask
//!          leave, and each has a reserve of 20 ms
//! flusher  while a writer waits it keeps a disk busy, but no busier than needed, so that pages
//!          gather into long runs in memory and not in the disk's queue
//! ```
//!
//! IO-less throttling loses where a small pool has many writers: each trickles, so that a file has
//! a few pages to write when its turn comes, and the disk only seeks. And where the pool lasts for
//! less than a tick, pauses drain it.
//!
//! Measured in the simulator, MiB/s of all disks under 3.1, patch 001 and turns, and the longest
//! wait with turns (`cargo run --release -p weft-sim --example throttles -- single small jbod`).
//! No cell is more than 0.5 % below the better of the two (one disk, 400M, 2 dd):
//!
//! ```text
//! one disk      3.1  001 turns   wait | disks              3.1  001 turns   wait
//! 1M    1 dd   31.3 57.2  57.8  38 ms | 2, 10M     1 dd    167  233   233  44 ms
//!       2 dd   28.7 28.2  56.0 388 ms |           10 dd     89   61   215  1.2 s
//!      10 dd   35.9  8.9  53.4  1.2 s |          100 dd     17   24   128  1.7 s
//! 8M    2 dd   40.0 50.0  56.0 400 ms | 10, 100M   1 dd    700  697   700  47 ms
//!      10 dd   35.2 31.1  53.4  1.0 s |           10 dd    468  485   700  1.1 s
//! 100M  2 dd   57.5 57.2  57.3  58 ms |          100 dd    135  143   627  1.7 s
//!      10 dd   55.5 55.3  56.8  62 ms | 10, 800M  10 dd    700  700   700 151 ms
//!     100 dd   41.8 41.5  48.9 104 ms |          100 dd    596  580   700 738 ms
//! ```
//!
//! A wait is over a second where the switches alone take longer: half of a disk's time at most is
//! spent on them. Equal writers get equal parts, up to a turn. Writers that come without credit
//! dirty one page before they wait, for which an eighth of the limit is kept free at most.
//!
//! The ratios that a device may have of the limits do not count here.
//!
//! Inputs   credit asked for and spent, counts of pages, completions
//! Answer   credit, wakes; whether a flusher has to write, and for how long one file
//! Source   writeback.md §7.3
//! Compare  `dirty_throttle.rs`, `baseline_3_1.rs`

mod speed;

use super::super::id::{BdiId, InodeId, WriterId};
use super::super::pool::{Counts, Thresholds};
use speed::Speed;
use std::collections::{BTreeMap, VecDeque};
use std::ops::Range;
use weft_units::{Span, Time};

/// Credit of all writers, and the turns of each device.
#[derive(Clone, Debug)]
pub(crate) struct Turns {
    thresholds: Thresholds,
    /// Dirty pages, pages under writeback and credit may be so many together.
    limit: u64,
    /// All of those now.
    used: u64,
    now: Time,
    devices: Vec<Device>,
    writers: Vec<Account>,
    /// When shares were computed.
    shares_at: Time,
    woken: VecDeque<WriterId>,
}

/// One device.
#[derive(Clone, Debug)]
struct Device {
    counts: Counts,
    /// Credit of its writers that is not spent.
    granted: u64,
    /// Pages of the limit that are its own.
    share: u64,
    speed: Speed,
    /// Whose turn it is.
    owner: Option<WriterId>,
    /// When the owner's turn ends, however few pages it was.
    turn_ends: Time,
    /// Who waits for a turn: by what each has got, and among equals who asked first.
    waiting: BTreeMap<(u64, u64), WriterId>,
    /// The same in the order of asking: since when, and what each has got.
    asked: BTreeMap<u64, (Time, u64)>,
    /// How often somebody began to wait.
    asks: u64,
    /// What the writer whose turn it is had got when it began. Who comes from elsewhere, or comes
    /// back, starts from [`BEHIND`] that.
    service: u64,
    /// Who has credit that is not spent.
    holders: Vec<WriterId>,
    /// Holders are not looked through again before then.
    next_reclaim: Time,
    /// Its flusher has stopped until it is called.
    flusher_held: bool,
    /// When a writer last had to wait, if one ever had.
    asked_at: Option<Time>,
}

/// What one writer has.
#[derive(Clone, Debug)]
struct Account {
    /// Where its credit is from.
    bdi: BdiId,
    credit: u64,
    /// Pages of its turn that it has not got yet.
    left: u64,
    /// Pages that it has got, or has taken without credit.
    got: u64,
    last_used: Time,
    /// It has asked and got nothing.
    waits: bool,
    /// It sleeps until it is woken.
    asleep: bool,
}

impl Turns {
    pub(crate) fn new(thresholds: Thresholds) -> Self {
        Self {
            thresholds,
            limit: thresholds.dirty.max(1),
            used: 0,
            now: Time(0),
            devices: Vec::new(),
            writers: Vec::new(),
            shares_at: Time(0),
            woken: VecDeque::new(),
        }
    }

    /// One device more.
    pub(crate) fn add_bdi(&mut self) {
        self.devices.push(Device {
            counts: Counts::default(),
            granted: 0,
            share: 0,
            speed: Speed::default(),
            owner: None,
            turn_ends: Time(0),
            waiting: BTreeMap::new(),
            asked: BTreeMap::new(),
            asks: 0,
            service: 0,
            holders: Vec::new(),
            next_reclaim: Time(0),
            flusher_held: false,
            asked_at: None,
        });
        self.share_out();
    }

    /// One writer more.
    pub(crate) fn add_writer(&mut self) {
        self.writers.push(Account {
            bdi: BdiId(0),
            credit: 0,
            left: 0,
            got: 0,
            last_used: Time(0),
            waits: false,
            asleep: false,
        });
    }

    /// A writer is gone, and what it had goes to others. Its name is used again for the next one.
    pub(crate) fn remove_writer(&mut self, now: Time, writer: WriterId) {
        self.now = self.now.max(now);
        self.leave(writer);
        self.refresh();
    }

    /// Other rules hold now: nobody has credit, and nobody waits for it.
    pub(crate) fn clear(&mut self) {
        for id in (0..).map(WriterId).take(self.writers.len()) {
            if self.writers[id.index()].asleep {
                self.woken.push_back(id);
            }
            self.leave(id);
        }
        self.devices.iter_mut().for_each(|device| device.flusher_held = false);
    }

    /// New limits: they hold at once, and credit that is not spent is taken back if they are lower.
    pub(crate) fn set_limits(&mut self, thresholds: Thresholds) {
        let lower = thresholds.dirty < self.limit;
        (self.thresholds, self.limit) = (thresholds, thresholds.dirty.max(1));
        for at in 0..self.devices.len() {
            let holders = &mut self.devices[at].holders;
            for writer in if lower { std::mem::take(holders) } else { Vec::new() } {
                self.take_back(at, writer);
            }
        }
        self.share_out();
        self.refresh();
    }

    /// The counts of a device have changed.
    pub(crate) fn set_counts(&mut self, bdi: BdiId, counts: Counts) {
        let device = &mut self.devices[bdi.index()];
        self.used = self.used + counts.total() - device.counts.total();
        device.counts = counts;
    }

    /// Credit of a writer on a device; some is asked for if it has none. With none at all it is in
    /// the queue.
    pub(crate) fn credit(&mut self, now: Time, writer: WriterId, bdi: BdiId) -> u64 {
        self.now = self.now.max(now);
        let account = &mut self.writers[writer.index()];
        if account.bdi != bdi {
            self.leave(writer);
            self.writers[writer.index()].bdi = bdi;
        }
        let account = &mut self.writers[writer.index()];
        if account.credit == 0 {
            account.last_used = self.now;
            if !account.waits {
                account.waits = true;
                if self.devices[bdi.index()].owner != Some(writer) {
                    self.enqueue(bdi.index(), writer);
                }
            }
            self.admit(bdi);
            if self.writers[writer.index()].credit == 0 {
                let device = &mut self.devices[bdi.index()];
                let before = device.asked_at.replace(now);
                if before.is_none_or(|before| now.since(before) >= ASKED) {
                    self.share_out();
                    self.admit(bdi);
                }
            }
        }
        self.writers[writer.index()].credit
    }

    /// A writer made clean pages dirty. More than its credit is set against its next turns.
    pub(crate) fn spend(&mut self, now: Time, writer: WriterId, bdi: BdiId, pages: u64) {
        self.now = self.now.max(now);
        let account = &mut self.writers[writer.index()];
        let paid = if account.bdi == bdi { pages.min(account.credit) } else { 0 };
        account.got += pages - paid;
        account.credit -= paid;
        account.last_used = self.now;
        let empty = account.credit == 0;
        let device = &mut self.devices[bdi.index()];
        device.granted -= paid;
        self.used -= paid;
        if empty && paid > 0 {
            device.holders.retain(|holder| *holder != writer);
        }
    }

    /// A writer without credit sleeps: until it is woken, or then.
    pub(crate) fn sleep(&mut self, now: Time, writer: WriterId) -> Time {
        self.writers[writer.index()].asleep = true;
        now + LOOK_AGAIN
    }

    /// Writes of pages are done; the counts have been set.
    pub(crate) fn completed(&mut self, now: Time, bdi: BdiId, inode: InodeId, pages: &Range<u64>) {
        self.now = self.now.max(now);
        let device = &mut self.devices[bdi.index()];
        let goes_on = device.counts.writeback > 0;
        device.speed.completed(self.now, inode, pages, goes_on);
        self.refresh();
    }

    /// Room may have come: gives it to whoever is next, on every device where somebody waits.
    pub(crate) fn refresh(&mut self) {
        for at in 0..self.devices.len() {
            if self.devices[at].is_wanted(&self.writers) {
                self.admit(BdiId(u16::try_from(at).expect("few devices")));
            }
        }
    }

    /// The next writer that has credit again.
    pub(crate) fn woken(&mut self) -> Option<WriterId> {
        self.woken.pop_front()
    }

    /// Whether a flusher has to write.
    pub(crate) fn wants_flush(&self, bdi: BdiId) -> bool {
        let device = &self.devices[bdi.index()];
        let background = self.thresholds.background;
        // What a device that asks for nothing may gather: its part by speed among those in use.
        let (mut all, mut speeds) = (0, 0);
        for other in self.devices.iter().filter(|other| other.counts.total() > 0) {
            all += other.counts.dirty;
            speeds += other.speed.bandwidth();
        }
        let own = background * device.speed.bandwidth() / speeds.max(1);
        let pressed = self.is_pressed(device) && device.counts.dirty > 0;
        pressed || all > background || device.counts.dirty > own
    }

    /// Whether a flusher that sleeps has to come.
    pub(crate) fn calls_flusher(&self, bdi: BdiId) -> bool {
        self.wants_flush(bdi) && !self.is_held(bdi)
    }

    /// Whether a flusher, which has work, had better wait until more is dirty or less is in flight.
    pub(crate) fn holds_flusher(&mut self, bdi: BdiId) -> bool {
        let held = self.is_held(bdi);
        self.devices[bdi.index()].flusher_held = held;
        held
    }

    /// Whether a flusher that was held may go on now.
    pub(crate) fn lets_flusher_go(&mut self, bdi: BdiId) -> bool {
        let goes = self.devices[bdi.index()].flusher_held && !self.is_held(bdi);
        self.devices[bdi.index()].flusher_held &= !goes;
        goes
    }

    /// Pages of one file that a flusher writes before the next file's turn, at least: nobody waits
    /// for that, so they are more than in a writer's turn.
    pub(crate) fn chunk(&self, bdi: BdiId) -> u64 {
        let device = &self.devices[bdi.index()];
        let long = (device.speed.switch_pages() * CHUNK_WORTH).min(device.share / 2);
        long.max(device.burst(device.engaged(&self.writers)))
    }

    fn is_held(&self, bdi: BdiId) -> bool {
        let device = &self.devices[bdi.index()];
        let Counts { dirty, writeback } = device.counts;
        let enough = device.in_flight_enough();
        let gathers = device.granted > 0 && dirty < (device.share / 4).min(enough);
        dirty > 0 && writeback > 0 && (writeback >= enough || gathers)
    }

    /// Whether somebody waits, or will soon.
    fn is_pressed(&self, device: &Device) -> bool {
        device.is_wanted(&self.writers) || self.used > self.thresholds.free_run()
    }

    /// Gives room of a device to whoever's turn it is.
    fn admit(&mut self, bdi: BdiId) {
        let at = bdi.index();
        if self.now.since(self.shares_at) >= SHARES {
            self.share_out();
        }
        self.reclaim(at);
        loop {
            let room = self.room(at);
            if room == 0 {
                return;
            }
            let Some(writer) = self.next_in_turn(at, room) else { return };
            let device = &self.devices[at];
            let account = &self.writers[writer.index()];
            let most = account.left.min(device.lump() * 2 - account.credit);
            // Not a page at a time, unless nothing else is going on.
            let least = if device.is_starving() { 1 } else { device.lump().min(most) };
            if room < least {
                return;
            }
            self.grant(at, writer, most.min(room));
        }
    }

    /// The writer that gets the next pages of a device: the owner of the turn, or the next one.
    /// None if nobody waits, or the owner has enough.
    fn next_in_turn(&mut self, at: usize, room: u64) -> Option<WriterId> {
        let now = self.now;
        let device = &mut self.devices[at];
        if let Some(owner) = device.owner {
            let account = &self.writers[owner.index()];
            let over = account.left == 0 || now >= device.turn_ends;
            let fed = account.credit >= device.lump();
            let plenty = room > (device.share / 8).max(2 * device.lump());
            let idle = account.credit > 0
                && (device.is_starving() || now.since(account.last_used) >= IDLE);
            let over = over || (fed && plenty);
            if !over && !idle {
                return (!fed).then_some(owner);
            }
            device.owner = None;
            if account.waits {
                self.enqueue(at, owner);
            }
        }
        let device = &mut self.devices[at];
        let engaged = device.engaged(&self.writers);
        let quantum = device.quantum(engaged);
        // Whoever asks first must not be next before there is something to get.
        if room < quantum.min(device.lump()) && !device.is_starving() {
            return None;
        }
        let writer = device.take_next(now, engaged, quantum)?;
        let account = &mut self.writers[writer.index()];
        account.left = quantum;
        account.got = account.got.min(device.service);
        device.owner = Some(writer);
        device.turn_ends = now + device.turn_limit(engaged);
        Some(writer)
    }

    /// Puts a writer in the queue of a device. What it has got more than others counts for two
    /// turns at most, else who filled the pool before anybody waited would now wait for long.
    fn enqueue(&mut self, at: usize, writer: WriterId) {
        let device = &mut self.devices[at];
        let behind = device.speed.pages_in(BEHIND);
        let ahead = 2 * device.quantum(device.engaged(&self.writers));
        let account = &mut self.writers[writer.index()];
        let least = device.service.saturating_sub(behind);
        account.got = account.got.clamp(least, device.service + ahead);
        device.asks += 1;
        device.waiting.insert((account.got, device.asks), writer);
        device.asked.insert(device.asks, (self.now, account.got));
    }

    fn grant(&mut self, at: usize, writer: WriterId, pages: u64) {
        let device = &mut self.devices[at];
        let account = &mut self.writers[writer.index()];
        if account.credit == 0 {
            device.holders.push(writer);
        }
        account.credit += pages;
        debug_assert!(account.left >= pages);
        account.left -= pages;
        account.got += pages;
        device.granted += pages;
        self.used += pages;
        account.last_used = self.now;
        account.waits = false;
        if std::mem::take(&mut account.asleep) {
            self.woken.push_back(writer);
        }
    }

    /// Pages that may be granted on a device.
    fn room(&self, at: usize) -> u64 {
        let device = &self.devices[at];
        let own = device.share.saturating_sub(device.used());
        let alone = u64::from(device.used() == 0);
        own.max(alone).min(self.room_of_all())
    }

    /// Pages that may be granted on all devices together.
    fn room_of_all(&self) -> u64 {
        // A writer that comes without credit takes a page before it waits.
        let kept = (self.writers.len() as u64).min(self.limit / 8);
        (self.limit - kept).saturating_sub(self.used)
    }

    /// Takes credit back that is not being spent while others wait: on their device, and where no
    /// room is left in the pool, on those on which no writer waits.
    fn reclaim(&mut self, at: usize) {
        let device = &mut self.devices[at];
        if !device.is_wanted(&self.writers) || self.now < device.next_reclaim {
            return;
        }
        let patience = if device.is_starving() { IDLE_STARVING } else { IDLE };
        device.next_reclaim = self.now + Span(patience.0 / 2);
        self.take_back_idle(at, patience);
        if self.room_of_all() == 0 {
            for other in 0..self.devices.len() {
                if !self.devices[other].is_wanted(&self.writers) {
                    self.take_back_idle(other, IDLE);
                }
            }
        }
    }

    /// Takes back the credit on a device of writers that have not used it for so long.
    fn take_back_idle(&mut self, at: usize, patience: Span) {
        let device = &mut self.devices[at];
        let (now, writers) = (self.now, &self.writers);
        let idle = |writer: &WriterId| now.since(writers[writer.index()].last_used) >= patience;
        let (idle, busy) = device.holders.iter().partition(|writer| idle(writer));
        let idle: Vec<WriterId> = idle;
        device.holders = busy;
        for writer in idle {
            self.take_back(at, writer);
        }
    }

    fn take_back(&mut self, at: usize, writer: WriterId) {
        let account = &mut self.writers[writer.index()];
        let credit = std::mem::take(&mut account.credit);
        account.got = account.got.saturating_sub(credit);
        self.devices[at].granted -= credit;
        self.used -= credit;
    }

    /// A writer goes to another device.
    fn leave(&mut self, writer: WriterId) {
        let at = self.writers[writer.index()].bdi.index();
        if at >= self.devices.len() {
            return;
        }
        self.take_back(at, writer);
        let device = &mut self.devices[at];
        device.holders.retain(|holder| *holder != writer);
        device.waiting.retain(|_, waiting| *waiting != writer);
        let waiting = &device.waiting;
        device.asked.retain(|asks, (_, got)| waiting.contains_key(&(*got, *asks)));
        device.owner = device.owner.filter(|owner| *owner != writer);
        let account = &mut self.writers[writer.index()];
        (account.left, account.got, account.waits, account.asleep) = (0, 0, false, false);
    }

    /// Shares of the limit: a reserve for each device; what devices that do not ask for more leave
    /// goes to the others, by speed.
    fn share_out(&mut self) {
        self.shares_at = self.now;
        let reserve_max = self.limit / (4 * self.devices.len().max(1) as u64);
        let mut rest = self.limit;
        for device in &mut self.devices {
            device.share = device.speed.pages_in(RESERVE).min(reserve_max);
            rest -= device.share;
        }
        let (now, mut open): (Time, Vec<usize>) = (self.now, (0..self.devices.len()).collect());
        loop {
            let speeds: u64 = open.iter().map(|at| self.devices[*at].speed.bandwidth()).sum();
            let offer = |rest: u64, device: &Device| {
                (u128::from(rest) * u128::from(device.speed.bandwidth()) / u128::from(speeds))
                    as u64
            };
            let (before, all) = (open.len(), rest);
            open.retain(|at| {
                let device = &mut self.devices[*at];
                let asks = device.asked_at.is_some_and(|at| now.since(at) < ASKED);
                let more = device.used();
                if asks || more > offer(all, device) {
                    return true;
                }
                device.share += more;
                rest -= more;
                false
            });
            if open.len() == before {
                for at in open {
                    let offer = offer(rest, &self.devices[at]);
                    self.devices[at].share += offer;
                }
                return;
            }
        }
    }
}

impl Device {
    /// Takes the next one from the queue: who has got least, unless another has waited for four
    /// rounds of all.
    fn take_next(&mut self, now: Time, engaged: u64, quantum: u64) -> Option<WriterId> {
        let round = engaged * quantum * 1_000_000_000 / self.speed.bandwidth();
        let (&asks, &(since, got)) = self.asked.first_key_value()?;
        let key = if now.since(since) > Span(4 * round + IDLE.0) {
            (got, asks)
        } else {
            let (&key, _) = self.waiting.first_key_value()?;
            self.service = key.0;
            key
        };
        self.asked.remove(&key.1);
        self.waiting.remove(&key)
    }

    const fn used(&self) -> u64 {
        self.counts.total() + self.granted
    }

    /// Whether a writer waits for credit.
    fn is_wanted(&self, writers: &[Account]) -> bool {
        !self.waiting.is_empty() || self.owner.is_some_and(|owner| writers[owner.index()].waits)
    }

    /// Number of writers that are at it.
    fn engaged(&self, writers: &[Account]) -> u64 {
        let owner = self.owner.is_some_and(|owner| writers[owner.index()].waits);
        ((self.waiting.len() + self.holders.len()) as u64 + u64::from(owner)).max(1)
    }

    /// Whether so little is left to write that it may soon be idle.
    const fn is_starving(&self) -> bool {
        self.counts.total() <= self.share / 16
    }

    /// Pages of credit that are given at once.
    fn lump(&self) -> u64 {
        (self.share / 4).min(self.speed.pages_in(LUMP)).max(1)
    }

    /// Pages under writeback that keep the disk busy.
    fn in_flight_enough(&self) -> u64 {
        self.speed.pages_in(IN_FLIGHT).max(2 * REQUEST_PAGES).min(self.share * 3 / 4).max(1)
    }

    /// Pages of a run that is worth the switch.
    fn burst(&self, engaged: u64) -> u64 {
        let switch = self.speed.switch_pages();
        let each = self.speed.run_in(Span(WAIT.0 / engaged));
        (switch * SWITCH_WORTH).min(each).max(switch)
    }

    /// Pages of a turn.
    fn quantum(&self, engaged: u64) -> u64 {
        let smooth = self.speed.pages_in(Span(SMOOTH.0 / engaged)).max(SMOOTH_PAGES_MIN);
        let burst = self.burst(engaged);
        let gathered = self.share.saturating_sub(self.in_flight_enough()) / engaged;
        if smooth >= burst || gathered >= burst {
            smooth
        } else if gathered <= burst / 2 {
            burst
        } else {
            burst - (burst - smooth) * (2 * gathered - burst) / burst
        }
    }

    /// Time after which a turn ends though it had fewer pages.
    fn turn_limit(&self, engaged: u64) -> Span {
        Span(2 * (WAIT.0 / engaged + self.speed.switch().0) + IDLE.0)
    }
}

/// Everyone's wait for a turn, if all the others take theirs.
const WAIT: Span = Span::millis(800);

/// The same where no turn is needed to keep runs long.
const SMOOTH: Span = Span::millis(20);

/// Pages that are worth waking a writer for.
const SMOOTH_PAGES_MIN: u64 = 8;

/// Runs are this many times as long as a switch, if they may: 3 % are lost.
const SWITCH_WORTH: u64 = 32;

/// The same of a flusher's run: 1 % is lost.
const CHUNK_WORTH: u64 = 128;

/// What a device writes while its writer is woken and its flusher comes: a few milliseconds, and
/// many times that.
const RESERVE: Span = Span::millis(20);

/// A writer may have so little less than others, in time of the device, and get it later.
const BEHIND: Span = Span::millis(100);

/// Credit that is given at once, in time of the device.
const LUMP: Span = Span::millis(10);

/// Work that is handed to a device, in time: enough that its own queue does not run dry before the
/// flusher is woken again.
const IN_FLIGHT: Span = Span::millis(40);

/// 512 KiB, a usual largest request.
const REQUEST_PAGES: u64 = 128;

/// Credit unused for so long is taken back while others wait, and ends a turn.
const IDLE: Span = Span::millis(10);

/// The same where the device is about to be idle.
const IDLE_STARVING: Span = Span::millis(1);

/// A device whose writers had to wait so lately wants more than it has.
const ASKED: Span = Span::millis(200);

/// Shares are for so long.
const SHARES: Span = Span::millis(10);

/// A writer that was forgotten would look again by then.
const LOOK_AGAIN: Span = Span::millis(200);
