//! Turns, weft's own throttling: decides which writer of a device may dirty how many pages, and
//! when.
//!
//! A writer pays for every page that becomes dirty with *credit*: dirty pages, pages under
//! writeback and unspent credit together never exceed the limit. Credit becomes available when
//! writes complete, and goes to one writer of the device until that writer's *turn* is over; the
//! other writers sleep. No pause is computed and no tick is waited for: a completion wakes the
//! writer that has the turn.
//!
//! ```text
//! credit   completed pages make room for as many new ones, and their writer is woken at once
//! turn     if a file gathers at least as many pages between its turns as could be written in the
//!          time of a switch to it: the pages of 10 ms, divided by the number of writers. Otherwise
//!          twice the pages of a switch, so that a third of the time is lost; fewer if waits would
//!          grow beyond a second, but never fewer than the pages of one switch, which costs half
//!          of the disk's time
//! light    a writer that has received fewer pages than the writers that have turns gets a few at
//!          once, without a turn; a sixteenth of the limit, at most 64 pages, is kept for such
//!          writers while there are any
//! speed    pages per second of busy time, over completions that continue the previous one; the
//!          additional time of the other completions is the cost of a switch          speed.rs
//! shares   pages of the limit by device: each device has a reserve of 20 ms of its bandwidth.
//!          Devices that ask for more divide by bandwidth what the other devices leave
//! flusher  keeps a disk busy while a writer waits, with no more pages in flight than that needs,
//!          so that pages gather into long runs in memory and not in the disk's queue
//! ```
//!
//! IO-less throttling loses throughput if a small pool has many writers: each of them dirties its
//! pages slowly, so a file has only a few pages to write when its turn comes, and the disk mostly
//! seeks. If the pool lasts for less than a tick, the pauses drain it as well.
//!
//! Measured in the simulator, MiB/s of all disks under 3.1, patch 001 and turns, and the longest
//! wait of a writer under each (`cargo run --release -p weft-sim --example throttles -- single
//! small jbod`). No cell is more than 0.5 % below the better of the two (one disk, 1G, 2 dd):
//!
//! ```text
//! one disk      3.1  001 turns  waits, ms      | disks              3.1  001 turns  waits, ms
//! 1M    1 dd   31.3 57.2  57.8   123   46   39 | 2, 10M     1 dd    166  228   233   324   30   38
//!       2 dd   28.9 28.2  38.2   323   47   55 |           10 dd     83   61   154  3125   76  290
//!      10 dd   35.0  9.0  38.7  5525  304  207 |          100 dd     18   23   127  3225 1288 1885
//! 8M    2 dd   41.6 50.1  53.0   324   47   41 | 10, 100M   1 dd    700  697   700   423   59   75
//!      10 dd   33.7 30.7  45.7  1724   59   55 |           10 dd    487  486   700  4325   63   86
//! 100M  2 dd   57.5 57.3  57.3    59   47   42 |          100 dd    135  144   621  2224 1344 1695
//!      10 dd   55.5 55.3  56.8   223   47   53 | 10, 800M  10 dd    700  700   700  1124   91  109
//!     100 dd   41.9 41.6  48.9   824  319  104 |          100 dd    599  578   700  1524  332  300
//! ```
//!
//! Until November 2026 a turn was worth 32 switches: 56, 53 and 53 MiB/s with 2 and 10 dd at 1 MiB
//! and 10 dd at 8 MiB, and waits of 0.4, 1.2 and 1.0 s. Waits are still much longer than under
//! patch 001 where each disk has ten writers and a pool of 5 MiB, or a hundred writers and a pool
//! of 10 MiB: a round of all writers has as many switches as there are writers, and 2 to 5 times as
//! much is written as under patch 001.
//!
//! A wait exceeds a second if the switches alone take longer, because at most half of a disk's time
//! is spent on them. Equal writers get equal parts, up to a difference of one turn. A writer that
//! arrives without credit dirties one page before it waits; at most an eighth of the limit is kept
//! free for such pages.
//!
//! The ratios that bound a device's share of the limits (`min_ratio`, `max_ratio`) have no effect
//! here.
//!
//! Inputs   credit requested and spent, page counts, completions
//! Answer   credit, wake-ups; whether a flusher must write, and how many pages of one file
//! Source   writeback.md §7.3
//! Compare  `dirty_throttle.rs`, `baseline_3_1.rs`

mod speed;

use super::super::id::{BdiId, InodeId, WriterId};
use super::super::pool::{Counts, Thresholds};
use speed::Speed;
use std::collections::{BTreeMap, VecDeque};
use std::ops::Range;
use weft_units::{Span, Time};

/// Credit of all writers, and the turns on each device.
#[derive(Clone, Debug)]
pub(crate) struct Turns {
    thresholds: Thresholds,
    /// Upper bound, in pages, of the sum of dirty pages, pages under writeback and unspent credit
    /// (pages that writers may still dirty).
    limit: u64,
    /// Current value of the sum that `limit` bounds, in pages.
    used: u64,
    now: Time,
    devices: Vec<Device>,
    writers: Vec<Account>,
    /// Time at which shares were last computed.
    shares_at: Time,
    woken: VecDeque<WriterId>,
}

/// Turns and credit of the writers of one device.
#[derive(Clone, Debug)]
struct Device {
    counts: Counts,
    /// Unspent credit of the device's writers: the pages that they may still dirty.
    granted: u64,
    /// The device's share of the limit, in pages.
    share: u64,
    speed: Speed,
    /// Writer that has the turn, so that it gets all credit of the device; `None` between turns.
    owner: Option<WriterId>,
    /// Latest end of the turn of `owner`, however few pages it has received.
    turn_ends: Time,
    /// Writers that wait for a turn, ordered by the number of pages that they have received, then
    /// by arrival.
    waiting: BTreeMap<(u64, u64), WriterId>,
    /// Waiting writers by arrival number, each with its time of arrival and the number of pages it
    /// had received.
    asked: BTreeMap<u64, (Time, u64)>,
    /// Number of times that a writer began to wait for a turn. The arrival number of a wait is the
    /// value of this counter at its beginning.
    asks: u64,
    /// Number of pages that the writer with the turn had received when its turn began. A writer
    /// that joins or returns starts at most [`BEHIND`] below this number.
    service: u64,
    /// Writers that have unspent credit, that is, pages that they may still dirty.
    holders: Vec<WriterId>,
    /// Earliest time at which to search for unused credit again.
    next_reclaim: Time,
    /// Whether the device's flusher waits until it is woken by [`Turns::lets_flusher_go`].
    flusher_held: bool,
    /// Last time at which a writer of the device had to wait; `None` if none had to.
    asked_at: Option<Time>,
    /// Last time at which a light writer asked for credit; `None` if none did.
    light_at: Option<Time>,
}

/// Credit of one writer: the pages that it may dirty without waiting.
#[derive(Clone, Debug)]
struct Account {
    /// Device on which the writer may dirty the pages of its credit.
    bdi: BdiId,
    credit: u64,
    /// Number of pages that the writer has still to receive in its turn.
    left: u64,
    /// Number of pages that the writer has received as credit, or has dirtied without credit.
    got: u64,
    last_used: Time,
    /// Whether the writer asked for credit and has got none since.
    waits: bool,
    /// Whether the writer sleeps until it is woken.
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
            light_at: None,
        });
        self.share_out();
    }

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

    /// Removes a writer, and gives its credit to others. Its identifier is reused.
    pub(crate) fn remove_writer(&mut self, now: Time, writer: WriterId) {
        self.now = self.now.max(now);
        self.leave(writer);
        self.refresh();
    }

    /// Cancels all credit and all waits, because other rules apply from now on.
    pub(crate) fn clear(&mut self) {
        for id in (0..).map(WriterId).take(self.writers.len()) {
            if self.writers[id.index()].asleep {
                self.woken.push_back(id);
            }
            self.leave(id);
        }
        self.devices.iter_mut().for_each(|device| device.flusher_held = false);
    }

    /// Changes the limits at once. Unspent credit is revoked if the limit is lower than before.
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

    /// Updates the page counts of a device.
    pub(crate) fn set_counts(&mut self, bdi: BdiId, counts: Counts) {
        let device = &mut self.devices[bdi.index()];
        self.used = self.used + counts.total() - device.counts.total();
        device.counts = counts;
    }

    /// Returns the credit of a writer on a device, in pages. A writer without credit requests
    /// credit by this call, and is queued if it gets none.
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
                let has_turn = self.devices[bdi.index()].owner == Some(writer);
                if !has_turn && !self.admit_light(bdi.index(), writer) {
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

    /// Deducts `pages` dirtied pages from a writer's credit. Pages beyond the credit count against
    /// the writer's next turns.
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

    /// Records that a writer without credit sleeps. Returns the latest time at which it wakes up.
    pub(crate) fn sleep(&mut self, now: Time, writer: WriterId) -> Time {
        self.writers[writer.index()].asleep = true;
        now + LOOK_AGAIN
    }

    /// Handles the completion of writes. The page counts must have been updated before.
    pub(crate) fn completed(&mut self, now: Time, bdi: BdiId, inode: InodeId, pages: &Range<u64>) {
        self.now = self.now.max(now);
        let device = &mut self.devices[bdi.index()];
        let goes_on = device.counts.writeback > 0;
        device.speed.completed(self.now, inode, pages, goes_on);
        self.refresh();
    }

    /// Gives pages that may be dirtied, as credit, to the writer that has the turn, on every device
    /// with a waiting writer.
    pub(crate) fn refresh(&mut self) {
        for at in 0..self.devices.len() {
            if self.devices[at].is_wanted(&self.writers) {
                self.admit(BdiId(u16::try_from(at).expect("few devices")));
            }
        }
    }

    /// Returns the next writer to wake, because it has credit again; `None` if there is no other.
    pub(crate) fn woken(&mut self) -> Option<WriterId> {
        self.woken.pop_front()
    }

    /// Whether the device's flusher has to write.
    pub(crate) fn wants_flush(&self, bdi: BdiId) -> bool {
        let device = &self.devices[bdi.index()];
        let background = self.thresholds.background;
        // `own` is the number of dirty pages that may gather on the device while none of its
        // writers waits: the device's part of the background threshold, which is divided by
        // bandwidth among all devices in use.
        let (mut all, mut speeds) = (0, 0);
        for other in self.devices.iter().filter(|other| other.counts.total() > 0) {
            all += other.counts.dirty;
            speeds += other.speed.bandwidth();
        }
        let own = background * device.speed.bandwidth() / speeds.max(1);
        let pressed = self.is_pressed(device) && device.counts.dirty > 0;
        pressed || all > background || device.counts.dirty > own
    }

    /// Whether the device's flusher has to write now, and need not wait until more is dirty or less
    /// is in flight.
    pub(crate) fn calls_flusher(&self, bdi: BdiId) -> bool {
        self.wants_flush(bdi) && !self.is_held(bdi)
    }

    /// Whether a flusher with work should wait until more is dirty or less is in flight. The answer
    /// is recorded for [`Turns::lets_flusher_go`].
    pub(crate) fn holds_flusher(&mut self, bdi: BdiId) -> bool {
        let held = self.is_held(bdi);
        self.devices[bdi.index()].flusher_held = held;
        held
    }

    /// Whether a flusher that [`Turns::holds_flusher`] held back may continue now. If so, it is no
    /// longer recorded as held back.
    pub(crate) fn lets_flusher_go(&mut self, bdi: BdiId) -> bool {
        let goes = self.devices[bdi.index()].flusher_held && !self.is_held(bdi);
        self.devices[bdi.index()].flusher_held &= !goes;
        goes
    }

    /// Lower bound of the number of pages of one file that a flusher may write before it goes on to
    /// the next file. It may exceed the pages of a writer's turn, because no writer waits for these
    /// pages.
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

    /// Whether a writer of the device waits for credit, or will have to soon because the pool
    /// fills.
    fn is_pressed(&self, device: &Device) -> bool {
        device.is_wanted(&self.writers) || self.used > self.thresholds.free_run()
    }

    /// Gives the pages that may be dirtied on a device to the writer that has the turn, as credit.
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
            let most = account.left.min(device.batch() * 2 - account.credit);
            // Credit is granted in lumps rather than single pages, unless the device may run out of
            // work.
            let least = if device.is_starving() { 1 } else { device.batch().min(most) };
            if room < least {
                return;
            }
            self.grant(at, writer, most.min(room));
        }
    }

    /// Gives a few pages as credit, without a turn, to a *light* writer: one that has received
    /// fewer pages than the writers that have turns. Returns whether the writer got any.
    fn admit_light(&mut self, at: usize, writer: WriterId) -> bool {
        let lump = LIGHT_LUMP.min(self.light_pages());
        let room = (self.limit - self.kept()).saturating_sub(self.used);
        let device = &mut self.devices[at];
        let account = &mut self.writers[writer.index()];
        let behind = device.speed.pages_in(BEHIND);
        let got = account.got.max(device.service.saturating_sub(behind));
        if lump == 0 || got + lump > device.service {
            return false;
        }
        device.light_at = Some(self.now);
        let pages = lump.min(room);
        if pages == 0 {
            return false;
        }
        (account.got, account.left) = (got, pages);
        self.grant(at, writer, pages);
        true
    }

    /// Number of pages that are kept free for light writers while there are any. A light writer
    /// gets no more than these at once.
    fn light_pages(&self) -> u64 {
        LIGHT_PAGES.min(self.limit / 16)
    }

    /// Writer that gets the next pages of a device, of which `room` may be given: the writer that
    /// has the turn or, if its turn is over, the next one. `None` if no writer waits, if the room
    /// is too small to begin a turn, or if the writer that has the turn has enough credit.
    fn next_in_turn(&mut self, at: usize, room: u64) -> Option<WriterId> {
        let now = self.now;
        let device = &mut self.devices[at];
        if let Some(owner) = device.owner {
            let account = &self.writers[owner.index()];
            let over = account.left == 0 || now >= device.turn_ends;
            let fed = account.credit >= device.batch();
            let plenty = room > (device.share / 8).max(2 * device.batch());
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
        // A turn begins only when there is room for it; otherwise the first writer to ask would get
        // the turn, and not the writer that has received least.
        if room < quantum.min(device.batch()) && !device.is_starving() {
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

    /// Queues a writer on a device. If the writer has received more pages than others, at most two
    /// turns of the excess count against it; otherwise a writer that filled the pool before others
    /// arrived would have to wait for long.
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

    /// Number of pages that may be given to writers of a device as credit now.
    fn room(&self, at: usize) -> u64 {
        let device = &self.devices[at];
        let own = device.share.saturating_sub(device.used());
        let alone = u64::from(device.used() == 0);
        own.max(alone).min(self.room_of_all())
    }

    /// Number of pages that may be given to writers of all devices together as credit now.
    fn room_of_all(&self) -> u64 {
        let is_light = |at: Time| self.now.since(at) < ASKED;
        let light = self.devices.iter().any(|device| device.light_at.is_some_and(is_light));
        let kept = self.kept() + if light { self.light_pages() } else { 0 };
        (self.limit - kept).saturating_sub(self.used)
    }

    /// Number of pages that are kept free for writers that arrive without credit, each of which
    /// dirties one page before it waits.
    fn kept(&self) -> u64 {
        (self.writers.len() as u64).min(self.limit / 8)
    }

    /// Revokes credit that writers of device `at` do not spend, if other writers wait there. If the
    /// pool has no room left, credit on devices without waiting writers is revoked too.
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

    /// Revokes the credit of those writers of a device that have not used it for `patience`.
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

    /// Removes a writer from the queue of its device, and ends its turn and its credit there.
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

    /// Computes the shares of all devices in the limit: each gets a reserve, and the rest is
    /// divided by bandwidth among the devices that need more than they use.
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
    /// Takes the next writer from the queue: the writer that has received the fewest pages, unless
    /// the writer that has waited longest has waited for more than four rounds of all writers.
    /// `engaged` is the number of active writers, `quantum` the number of pages in a turn. `None`
    /// if no writer waits.
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

    /// Whether a writer of the device waits for credit.
    fn is_wanted(&self, writers: &[Account]) -> bool {
        !self.waiting.is_empty() || self.owner.is_some_and(|owner| writers[owner.index()].waits)
    }

    /// Number of writers that wait, have credit or have the turn; at least 1.
    fn engaged(&self, writers: &[Account]) -> u64 {
        let owner = self.owner.is_some_and(|owner| writers[owner.index()].waits);
        ((self.waiting.len() + self.holders.len()) as u64 + u64::from(owner)).max(1)
    }

    /// Whether the device has so few pages left to write that it may soon become idle.
    const fn is_starving(&self) -> bool {
        self.counts.total() <= self.share / 16
    }

    /// Number of pages of credit that are enough for a writer at present. A grant raises its credit
    /// to at most twice this number.
    fn batch(&self) -> u64 {
        (self.share / 4).min(self.speed.pages_in(LUMP)).max(1)
    }

    /// Number of pages under writeback that suffice to keep the disk busy.
    fn in_flight_enough(&self) -> u64 {
        self.speed.pages_in(IN_FLIGHT).max(2 * REQUEST_PAGES).min(self.share * 3 / 4).max(1)
    }

    /// Lower bound of the length, in pages, of the run that a writer's turn should produce, so that
    /// the switch to the writer's file pays off. `engaged` is the number of active writers.
    fn burst(&self, engaged: u64) -> u64 {
        let switch = self.speed.switch_pages();
        let each = self.speed.run_in(Span(WAIT.0 / engaged));
        (switch * SWITCH_WORTH).min(each).max(switch)
    }

    /// Number of pages that a writer may dirty in one turn, with `engaged` active writers on the
    /// device.
    fn quantum(&self, engaged: u64) -> u64 {
        let smooth = self.speed.pages_in(Span(SMOOTH.0 / engaged)).max(SMOOTH_PAGES_MIN);
        let burst = self.burst(engaged);
        let gathered = self.share.saturating_sub(self.in_flight_enough()) / engaged;
        let enough = burst / 2;
        if smooth >= burst || gathered >= enough {
            smooth
        } else if gathered <= enough / 2 {
            burst
        } else {
            burst - (burst - smooth) * (2 * gathered - enough) / enough
        }
    }

    /// Longest duration of a turn, even if its writer has not received all pages of the turn by
    /// then. `engaged` is the number of active writers.
    fn turn_limit(&self, engaged: u64) -> Span {
        Span(2 * (WAIT.0 / engaged + self.speed.switch().0) + IDLE.0)
    }
}

/// Longest time that a writer should wait for its turn, if all other writers use their turns fully.
const WAIT: Span = Span::millis(800);

/// Time that each writer waits for its turn, if the pool is so large that files are written in long
/// runs even without turns.
const SMOOTH: Span = Span::millis(10);

/// Smallest number of pages in a turn, because waking a writer for fewer does not pay off.
const SMOOTH_PAGES_MIN: u64 = 8;

/// Number of pages that a writer should dirty in one turn, as a multiple of the pages that could be
/// written in the time of a switch to its file: a third of the time is lost. With 32, 3 % would be
/// lost, and ten writers would wait four times as long.
const SWITCH_WORTH: u64 = 2;

/// Number of pages of a file that a flusher writes at a time, as a multiple of the pages that could
/// be written in the time of a switch to the file: about 1 % is lost.
const CHUNK_WORTH: u64 = 128;

/// Time that determines the reserve of each device, the pages that it may always use: as many as it
/// writes in this time. The time is several times the few milliseconds that pass until a writer is
/// woken and the flusher runs.
const RESERVE: Span = Span::millis(20);

/// Number of pages of credit that a light writer gets at a time, without a turn. A writer is light
/// if it has received at least this number of pages less than the writers that have turns.
const LIGHT_LUMP: u64 = 8;

/// Number of pages that are kept free for light writers while there are any; a sixteenth of the
/// limit if that is less.
const LIGHT_PAGES: u64 = 64;

/// Time that bounds the deficit, relative to other writers, that a writer can make up for later: at
/// most as many pages as the device writes in this time.
const BEHIND: Span = Span::millis(100);

/// Time that determines how much credit is granted at once: as many pages as the device writes in
/// this time.
const LUMP: Span = Span::millis(3);

/// Time that determines how many pages are kept in flight on a device: as many as it writes in this
/// time. These suffice to keep the device's own queue from running dry before the flusher is woken
/// again.
const IN_FLIGHT: Span = Span::millis(40);

/// 512 KiB in pages, a common size of the largest request.
const REQUEST_PAGES: u64 = 128;

/// Time after which unused credit is revoked, and the turn of its writer ends, while other writers
/// wait.
const IDLE: Span = Span::millis(10);

/// Time after which unused credit is revoked if the device may soon be idle.
const IDLE_STARVING: Span = Span::millis(1);

/// Length of the period after a wait of a writer in which the writer's device counts as needing a
/// larger share of the dirty limit. Also the period after a light writer's request for credit in
/// which pages are kept free for light writers.
const ASKED: Span = Span::millis(200);

/// Interval at which the devices' shares in the limit are computed.
const SHARES: Span = Span::millis(10);

/// Longest sleep of a waiting writer, in case its wake-up was lost.
const LOOK_AGAIN: Span = Span::millis(200);

#[cfg(test)]
mod tests;
