//! Dirty pool: counts of dirty pages and of pages under writeback, and their limits.
//!
//! One pool serves the whole process. It keeps the counts in total and per device, the limits that
//! follow from memory, the share of each writer, and the bandwidth of each device. The pool does
//! not decide about throttling: [`throttle`](super::throttle) does, based on the [`Facts`] that the
//! pool provides.
//!
//! All counts are in pages of 4 KiB and exact. The kernel's counts lag by the pages that each CPU
//! has not added yet (250 pages with eight CPUs, as much as a whole limit of 1 MiB).
//!
//! Source   writeback.md §1.1, §1.2, §1.4, §3

use super::bandwidth::{Bandwidth, interval};
use super::id::BdiId;
use super::proportion::{Fraction, Proportion, Share};
use super::throttle::{DirtyThrottle, Facts, Pace, Position, Ratelimit, Rules, Turns, Window};
use super::ticks::TickRate;
use weft_units::Time;

/// Kernel version, or rule of weft, that writers and flushers follow.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Kernel {
    /// Linux 2.6.24 of early 2008; patch 000 was measured on its release candidate 7. The rules
    /// were read in 2.6.24 itself; whether rc7 had the same is not checked. weft has one flusher
    /// per device, where 2.6.24 had a pool of threads for all devices.
    V2_6_24,
    /// Linux 3.1, the baseline of patch 001. The rules were read in 3.1.10; whether rc4, which was
    /// measured, had the same is not checked.
    #[default]
    V3_1,
    /// Linux 3.1 with a variant of patch 001: writers sleep and never write back. Shares are still
    /// counted in completions as in 3.1; kernels from 3.7 on count seconds.
    IoLess(DirtyThrottle),
    /// weft's own rules: the flushers of 3.1, and writers that sleep until their turn
    /// (`throttle/turns.rs`).
    Weft,
}

/// Rules of flushers and limits. Patch 001 leaves them as they are in 3.1.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Generation {
    V2_6_24,
    V3_1,
}

impl Kernel {
    /// All kernels, each with its name in experiment files.
    pub const NAMES: [(&'static str, Self); 7] = [
        ("2.6.24", Self::V2_6_24),
        ("3.1", Self::V3_1),
        ("v11", Self::IoLess(DirtyThrottle::V11)),
        ("patch-001", Self::IoLess(DirtyThrottle::Patch001)),
        ("mainline-3.2", Self::IoLess(DirtyThrottle::Mainline3_2)),
        ("mainline-6.12", Self::IoLess(DirtyThrottle::Mainline6_12)),
        ("weft", Self::Weft),
    ];

    /// Kernel with the given name in [`NAMES`](Self::NAMES); `None` if no kernel has that name.
    #[must_use]
    pub fn named(name: &str) -> Option<Self> {
        Self::NAMES.iter().find(|(known, _)| *known == name).map(|(_, kernel)| *kernel)
    }

    /// Name of the kernel in [`NAMES`](Self::NAMES).
    #[must_use]
    pub fn name(self) -> &'static str {
        let row = Self::NAMES.iter().find(|(_, kernel)| *kernel == self);
        row.expect("every kernel has a name").0
    }

    /// Whether a writer over its limit writes back pages itself, as before patch 001.
    #[must_use]
    pub const fn writers_write_back(self) -> bool {
        matches!(self, Self::V2_6_24 | Self::V3_1)
    }

    pub(crate) const fn generation(self) -> Generation {
        match self {
            Self::V2_6_24 => Generation::V2_6_24,
            Self::V3_1 | Self::IoLess(_) | Self::Weft => Generation::V3_1,
        }
    }

    /// Rules of IO-less throttling; `None` for kernels without it.
    pub(crate) const fn io_less(self) -> Option<&'static Rules> {
        match self {
            Self::V2_6_24 | Self::V3_1 | Self::Weft => None,
            Self::IoLess(variant) => Some(variant.rules()),
        }
    }
}

/// Limit, in bytes or as a percentage of dirtyable memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Amount {
    /// `vm.dirty_bytes`, `vm.dirty_background_bytes`.
    Bytes(u64),
    /// `vm.dirty_ratio`, `vm.dirty_background_ratio`: percent of dirtyable memory.
    Percent(u64),
}

/// Configuration of a dirty pool.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PoolConfig {
    /// The kernel that writers and flushers follow.
    pub kernel: Kernel,
    /// Timer tick rate, `HZ`.
    pub ticks: TickRate,
    /// Number of CPUs on which writers run. Each CPU counts the pages that are dirtied on it until
    /// it next checks the limits.
    pub cpus: u32,
    /// Size of memory, in pages.
    pub memory_pages: u64,
    /// Dirtyable memory, in pages: free memory and reclaimable file pages. Percentages refer to it.
    pub dirtyable_pages: u64,
    /// Dirty threshold, above which writers are throttled.
    pub dirty: Amount,
    /// Background threshold, above which flushers write.
    pub background: Amount,
    /// `vm.dirty_expire_centisecs`: age in 1/100 s from which periodic writeback writes a file.
    pub expire_centisecs: u64,
    /// `vm.dirty_writeback_centisecs`: interval of periodic writeback in 1/100 s; 0 disables it.
    pub writeback_centisecs: u64,
}

impl PoolConfig {
    /// Configuration with the defaults of `kernel`, on a machine with `memory_pages` pages of
    /// memory, of which `dirtyable_pages` are dirtyable.
    #[must_use]
    pub fn new(kernel: Kernel, cpus: u32, memory_pages: u64, dirtyable_pages: u64) -> Self {
        let (dirty, background) = match kernel.generation() {
            Generation::V2_6_24 => (10, 5),
            Generation::V3_1 => (20, 10),
        };
        Self {
            kernel,
            ticks: TickRate::default(),
            cpus,
            memory_pages,
            dirtyable_pages,
            dirty: Amount::Percent(dirty),
            background: Amount::Percent(background),
            expire_centisecs: 3000,
            writeback_centisecs: 500,
        }
    }

    /// Thresholds in pages, computed from the configuration.
    #[must_use]
    pub fn thresholds(&self) -> Thresholds {
        let percent = |percent: u64| percent * self.dirtyable_pages / 100;
        let mut dirty_percent = None;
        let dirty = match self.dirty {
            Amount::Bytes(bytes) => bytes.div_ceil(PAGE_BYTES),
            Amount::Percent(ratio) => {
                // 2.6.24 enforces a minimum of 5 %.
                let least = if self.kernel == Kernel::V2_6_24 { 5 } else { 0 };
                dirty_percent = Some(ratio.max(least));
                percent(ratio.max(least))
            }
        };
        let background = match (self.background, self.kernel, dirty_percent) {
            // 2.6.24 halves the ratio, 3.1 halves the pages.
            (Amount::Percent(ratio), Kernel::V2_6_24, Some(limit)) if ratio >= limit => {
                percent(limit / 2)
            }
            (Amount::Percent(ratio), ..) => percent(ratio),
            (Amount::Bytes(bytes), ..) => bytes.div_ceil(PAGE_BYTES),
        };
        let background = if background >= dirty { dirty / 2 } else { background };
        Thresholds { background, dirty }
    }
}

/// Bounds of a device's share of the limits, as in `/sys/class/bdi/*`.
///
/// Source   writeback.md §1.4, §2.7
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct BdiRatios {
    /// `min_ratio`: percent of the limits that are reserved for the device. The sum over all
    /// devices is less than 100.
    pub min: u8,
    /// `max_ratio`: largest share of the limits in percent.
    pub max: u8,
    /// `strictlimit`: throttles writers by the dirty pages of the device even while few pages are
    /// dirty in total. Only effective with the rules of 6.12.
    pub strict: bool,
}

impl Default for BdiRatios {
    /// Ratios with no reserve and no upper bound.
    fn default() -> Self {
        Self { min: 0, max: 100, strict: false }
    }
}

/// Background and dirty threshold, in pages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Thresholds {
    /// Background threshold: number of dirty pages above which flushers write.
    pub background: u64,
    /// Dirty threshold: number of pages, dirty or under writeback, above which writers are
    /// throttled.
    pub dirty: u64,
}

impl Thresholds {
    /// Free-run ceiling: the mean of the two thresholds. Up to this number of dirty pages no writer
    /// is throttled.
    #[must_use]
    pub const fn free_run(self) -> u64 {
        u64::midpoint(self.background, self.dirty)
    }
}

/// Number of pages in each state.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Number of dirty pages, including those that are under writeback too. The kernel's
    /// `NR_FILE_DIRTY`.
    pub dirty: u64,
    /// Number of pages under writeback, including those that are dirty too. The kernel's
    /// `NR_WRITEBACK`.
    pub writeback: u64,
}

impl Counts {
    /// Sum of both counts, which is compared with the limits. A page that is dirty and under
    /// writeback counts twice.
    #[must_use]
    pub const fn total(self) -> u64 {
        self.dirty + self.writeback
    }
}

/// The dirty pool of one process.
#[derive(Clone, Debug)]
pub struct Pool {
    config: PoolConfig,
    thresholds: Thresholds,
    counts: Counts,
    bdis: Vec<Bdi>,
    /// Counter of completed page writes, from which each device's share is computed.
    completions: Proportion,
    /// Counter of dirtied pages, from which each writer's share is computed.
    dirtied: Proportion,
    /// The kernel's `limit`, in pages: it follows the dirty threshold upwards at once, and
    /// downwards slowly.
    limit: u64,
    limit_tick: u64,
    /// Number of pages dirtied on each CPU since it last checked the limits.
    unchecked: Vec<u64>,
    /// Credit and turns of writers, used with [`Kernel::Weft`].
    pub(crate) turns: Turns,
}

#[derive(Clone, Debug)]
struct Bdi {
    counts: Counts,
    completions: Share,
    /// Number of the device's pages that were written since the device was added.
    written: u64,
    /// Number of the device's pages that were dirtied since the device was added.
    dirtied: u64,
    bandwidth: Bandwidth,
    ratelimit: Ratelimit,
    exceeded: bool,
    ratios: BdiRatios,
}

impl Pool {
    /// Creates a pool without dirty pages.
    ///
    /// # Panics
    /// Panics if `config` has no CPU.
    pub(crate) fn new(config: PoolConfig) -> Self {
        assert!(config.cpus > 0, "a pool has at least one CPU");
        let thresholds = config.thresholds();
        let proportion = Proportion::for_limit(thresholds.dirty);
        Self {
            config,
            thresholds,
            counts: Counts::default(),
            bdis: Vec::new(),
            completions: proportion,
            dirtied: proportion,
            limit: thresholds.dirty,
            limit_tick: 0,
            unchecked: vec![0; config.cpus as usize],
            turns: Turns::new(thresholds),
        }
    }

    pub(crate) fn add_bdi(&mut self, now: Time) -> BdiId {
        let id = BdiId(u16::try_from(self.bdis.len()).expect("few devices"));
        self.bdis.push(Bdi {
            counts: Counts::default(),
            completions: self.completions.share(),
            written: 0,
            dirtied: 0,
            bandwidth: Bandwidth::new(self.config.ticks.tick(now)),
            ratelimit: Ratelimit::INITIAL,
            exceeded: false,
            ratios: BdiRatios::default(),
        });
        self.turns.add_bdi();
        id
    }

    /// Sets the bounds of a device's share of the limits.
    ///
    /// # Panics
    /// Panics if the device does not exist, or if all devices together reserve 100 %.
    pub(crate) fn set_ratios(&mut self, bdi: BdiId, ratios: BdiRatios) {
        self.bdis[bdi.index()].ratios = ratios;
        assert!(self.min_ratios() < 100, "the reserves of all devices are below 100 %");
    }

    /// Sum over all devices of the percentage of the limits reserved for a device.
    fn min_ratios(&self) -> u64 {
        self.bdis.iter().map(|bdi| u64::from(bdi.ratios.min)).sum()
    }

    /// Changes the kernel, the age at which files expire, and the interval of periodic writeback,
    /// from the next decision on.
    pub(crate) fn set_rules(&mut self, kernel: Kernel, expire: u64, writeback: u64) {
        self.config.kernel = kernel;
        self.config.expire_centisecs = expire;
        self.config.writeback_centisecs = writeback;
    }

    /// Creates the counter of a new writer, for its share of the dirtied pages.
    #[must_use]
    pub(crate) const fn writer_share(&self) -> Share {
        self.dirtied.share()
    }

    /// Configuration of the pool, with all changes since its creation.
    #[must_use]
    pub const fn config(&self) -> &PoolConfig {
        &self.config
    }

    /// Timer tick rate.
    #[must_use]
    pub const fn ticks(&self) -> TickRate {
        self.config.ticks
    }

    /// The background and dirty thresholds that apply now.
    #[must_use]
    pub const fn thresholds(&self) -> Thresholds {
        self.thresholds
    }

    /// Changes the limits at once, as `sysctl` does.
    pub(crate) fn set_limits(&mut self, dirty: Amount, background: Amount) {
        (self.config.dirty, self.config.background) = (dirty, background);
        self.thresholds = self.config.thresholds();
        self.limit = self.thresholds.dirty;
        self.completions.set_limit(self.thresholds.dirty);
        self.dirtied.set_limit(self.thresholds.dirty);
        self.turns.set_limits(self.thresholds);
    }

    /// Changes the amount of dirtyable memory. Thresholds given as percentages change at once,
    /// `limit` slowly.
    pub(crate) fn set_dirtyable(&mut self, pages: u64) {
        self.config.dirtyable_pages = pages;
        self.thresholds = self.config.thresholds();
        self.turns.set_limits(self.thresholds);
    }

    /// Page counts of all devices together.
    #[must_use]
    pub const fn counts(&self) -> Counts {
        self.counts
    }

    /// Page counts of one device.
    #[must_use]
    pub fn bdi_counts(&self, bdi: BdiId) -> Counts {
        self.bdis[bdi.index()].counts
    }

    /// Write-bandwidth estimate of one device.
    #[must_use]
    pub fn bandwidth(&self, bdi: BdiId) -> Bandwidth {
        self.bdis[bdi.index()].bandwidth
    }

    /// The kernel's `limit`, in pages: it follows the dirty threshold upwards at once and downwards
    /// slowly.
    #[must_use]
    pub const fn limit(&self) -> u64 {
        self.limit
    }

    /// Whether the device exceeds its limits, so that its writers check them every 8 pages.
    #[must_use]
    pub fn exceeded(&self, bdi: BdiId) -> bool {
        self.bdis[bdi.index()].exceeded
    }

    pub(crate) fn set_exceeded(&mut self, bdi: BdiId, exceeded: bool) {
        self.bdis[bdi.index()].exceeded = exceeded;
    }

    /// Number of pages that a CPU may dirty before it checks the limits, while they are not
    /// exceeded: a 32nd of memory divided by the number of CPUs, at least 16 pages and at most 4
    /// MiB. With IO-less throttling it is a 32nd of the dirty threshold divided by the number of
    /// CPUs, at least 16 pages, and each writer has its own count in addition.
    #[must_use]
    pub fn ratelimit_pages(&self) -> u64 {
        let of_all = |pages: u64| pages / (32 * u64::from(self.config.cpus));
        match self.config.kernel {
            Kernel::V2_6_24 | Kernel::V3_1 | Kernel::Weft => {
                of_all(self.config.memory_pages).clamp(16, 1024)
            }
            Kernel::IoLess(_) => of_all(self.thresholds.dirty).max(16),
        }
    }

    /// Number of pages that a writer with counters `pace` may write on `cpu` before it must check
    /// the limits; at least one.
    #[must_use]
    pub fn pages_until_check(&self, cpu: u32, bdi: BdiId, pace: &Pace) -> u64 {
        let by_cpu = self.check_after(bdi).saturating_sub(self.unchecked[cpu as usize]);
        let by_writer = match self.config.kernel {
            Kernel::V2_6_24 | Kernel::V3_1 | Kernel::Weft => u64::MAX,
            Kernel::IoLess(_) => self.check_of(bdi, pace).saturating_sub(pace.nr_dirtied),
        };
        by_cpu.min(by_writer).max(1)
    }

    /// Counts pages written on `cpu`, at most [`pages_until_check`](Self::pages_until_check), of
    /// which `new` were clean. Returns `None` if the limits need not be checked. Otherwise returns
    /// the number of pages that the kernel makes the writer write back; this number does not depend
    /// on how many pages were counted. With IO-less throttling, returns the number of pages that
    /// the writer has dirtied since its last check instead. IO-less throttling counts only pages
    /// that became dirty, the other rules count every page.
    pub(crate) fn count_writes(
        &mut self,
        cpu: u32,
        bdi: BdiId,
        pace: &mut Pace,
        pages: u64,
        new: u64,
    ) -> Option<u64> {
        let check_after = self.check_after(bdi);
        let unchecked = &mut self.unchecked[cpu as usize];
        match self.config.kernel {
            Kernel::V2_6_24 | Kernel::V3_1 | Kernel::Weft => {
                *unchecked += pages;
                if *unchecked < check_after {
                    return None;
                }
                *unchecked = 0;
                Some(self.ratelimit_pages() * 3 / 2)
            }
            Kernel::IoLess(_) => {
                *unchecked += new;
                pace.nr_dirtied += new;
                let by_cpu = *unchecked >= check_after;
                if new == 0 || !(by_cpu || pace.nr_dirtied >= self.check_of(bdi, pace)) {
                    return None;
                }
                self.unchecked[cpu as usize] = 0;
                Some(pace.nr_dirtied)
            }
        }
    }

    /// Number of pages that a CPU may dirty before it checks the limits. It is smaller while the
    /// device exceeds its limits, except with IO-less throttling.
    fn check_after(&self, bdi: BdiId) -> u64 {
        let each_writer_counts = self.config.kernel.io_less().is_some();
        if self.exceeded(bdi) && !each_writer_counts {
            CHECK_WHILE_EXCEEDED
        } else {
            self.ratelimit_pages()
        }
    }

    /// Number of pages that a writer may dirty before it checks the limits (IO-less throttling).
    fn check_of(&self, bdi: BdiId, pace: &Pace) -> u64 {
        let most = if self.exceeded(bdi) { CHECK_WHILE_EXCEEDED } else { u64::MAX };
        pace.nr_dirtied_pause.min(most)
    }

    /// Counts clean pages that became dirty.
    pub(crate) fn dirtied(&mut self, id: BdiId, writer: &mut Share, pages: u64) {
        self.counts.dirty += pages;
        let bdi = &mut self.bdis[id.index()];
        bdi.counts.dirty += pages;
        bdi.dirtied += pages;
        self.turns.set_counts(id, bdi.counts);
        self.dirtied.count(writer, pages);
    }

    /// Counts dirty pages that went under writeback.
    pub(crate) fn started(&mut self, bdi: BdiId, pages: u64) {
        for counts in [&mut self.counts, &mut self.bdis[bdi.index()].counts] {
            counts.dirty -= pages;
            counts.writeback += pages;
        }
        self.turns.set_counts(bdi, self.bdis[bdi.index()].counts);
    }

    /// Counts completed page writes.
    pub(crate) fn written(&mut self, id: BdiId, pages: u64) {
        let bdi = &mut self.bdis[id.index()];
        self.counts.writeback -= pages;
        bdi.counts.writeback -= pages;
        bdi.written += pages;
        self.turns.set_counts(id, bdi.counts);
        // A device at its `max_ratio` gains no further share by writing more.
        let part = self.completions.fraction(&mut bdi.completions);
        let most = u64::from(bdi.ratios.max);
        if most == 100 || part.of(100) < most {
            self.completions.count(&mut bdi.completions, pages);
        }
    }

    /// Counts dirty pages that will never be written.
    pub(crate) fn discarded(&mut self, bdi: BdiId, pages: u64) {
        self.counts.dirty -= pages;
        self.bdis[bdi.index()].counts.dirty -= pages;
        self.turns.set_counts(bdi, self.bdis[bdi.index()].counts);
    }

    /// Collects the facts from which a policy decides about a throttled writer.
    pub(crate) fn facts(
        &mut self,
        bdi: BdiId,
        writer: &mut Share,
        pace: Pace,
        flusher_busy: bool,
    ) -> Facts {
        let bdi_share = self.bdi_share(bdi);
        let bdi = &mut self.bdis[bdi.index()];
        Facts {
            thresholds: self.thresholds,
            limit: self.limit,
            all: self.counts,
            bdi: bdi.counts,
            bdi_share,
            strictlimit: bdi.ratios.strict,
            writer_share: self.dirtied.fraction(writer),
            bandwidth: bdi.bandwidth.average(),
            ratelimit: bdi.ratelimit.rate,
            pace,
            flusher_busy,
        }
    }

    /// Whether the device's flusher must write. The flusher must write if the number of all dirty
    /// pages exceeds the background threshold or, since patch 001, if the number of the device's
    /// dirty pages exceeds the device's share of that threshold. With [`Kernel::Weft`],
    /// `Turns::wants_flush` decides.
    ///
    /// Source   writeback.md §2.5
    #[must_use]
    pub fn over_background(&self, bdi: BdiId) -> bool {
        if self.config.kernel == Kernel::Weft {
            return self.turns.wants_flush(bdi);
        }
        let background = self.thresholds.background;
        let by_share = self.config.kernel.io_less().is_some_and(|rules| rules.bdi_background);
        self.counts.dirty > background
            || (by_share && self.bdi_counts(bdi).dirty > self.bdi_share(bdi).of(background))
    }

    /// The device's share of the limits: its own reserve, plus a part of the unreserved limits that
    /// corresponds to its share of recent completions; at most its `max_ratio`.
    fn bdi_share(&self, bdi: BdiId) -> Fraction {
        let bdi = &self.bdis[bdi.index()];
        let mut share = bdi.completions;
        let part = self.completions.fraction(&mut share);
        let BdiRatios { min, max, .. } = bdi.ratios;
        let (min, max, given) = (u64::from(min), u64::from(max), self.min_ratios());
        if given == 0 && max == 100 {
            return part;
        }
        let denominator = 100 * part.denominator.max(1);
        let numerator = (100 - given) * part.numerator + min * part.denominator.max(1);
        Fraction { numerator: numerator.min(max * part.denominator.max(1)), denominator }
    }

    /// Numbers of pages that are dirty or under writeback, in total and of a device, with the
    /// limits for both.
    fn position(&self, bdi: BdiId) -> Position {
        Position {
            thresholds: self.thresholds,
            limit: self.limit,
            dirty: self.counts.total(),
            bdi_thresh: self.bdi_share(bdi).of(self.thresholds.dirty),
            bdi_background: self.bdi_share(bdi).of(self.thresholds.background),
            strictlimit: self.bdis[bdi.index()].ratios.strict,
            bdi_dirty: self.bdi_counts(bdi).total(),
            bandwidth: self.bandwidth(bdi).average(),
        }
    }

    /// Updates the rate limit and the bandwidth of the device before a decision of IO-less
    /// throttling, unless so few pages are dirty that no writer has to wait. `start` is the tick in
    /// which the writer's throttling began.
    pub(crate) fn before_judgement(&mut self, now: Time, bdi: BdiId, start: u64) {
        let strict = self.bdis[bdi.index()].ratios.strict;
        if strict || self.counts.total() > self.thresholds.free_run() {
            self.update_bandwidth(now, bdi, start, true);
        }
    }

    /// Updates the bandwidth of a device, at most every 200 ms. `start` is the tick in which the
    /// caller's work began. With `throttled`, the call is for a throttled writer, and `limit` is
    /// updated too.
    pub(crate) fn update_bandwidth(&mut self, now: Time, bdi: BdiId, start: u64, throttled: bool) {
        let ticks = self.config.ticks;
        let tick = ticks.tick(now);
        if throttled && let Some(rules) = self.config.kernel.io_less() {
            self.update_ratelimit(rules, tick, start, bdi);
        }
        let bdi = &mut self.bdis[bdi.index()];
        let done = (bdi.written, bdi.dirtied);
        let new = bdi.bandwidth.update(ticks, tick, start, done, throttled);
        if new && throttled && tick.saturating_sub(self.limit_tick) >= interval(ticks) {
            self.limit_tick = tick;
            let total = self.counts.total();
            self.limit = next_limit(self.limit, self.thresholds.dirty, total);
        }
    }

    /// Updates the rate limit, if a throttled writer ends an interval. Must be called before the
    /// bandwidth is updated, because it uses the previous bandwidth.
    fn update_ratelimit(&mut self, rules: &Rules, tick: u64, start: u64, bdi: BdiId) {
        let position = self.position(bdi);
        let bdi = &mut self.bdis[bdi.index()];
        let (ticks, bandwidth) = (self.config.ticks, &bdi.bandwidth);
        if let Some(elapsed) = bandwidth.counted(ticks, tick, start, true) {
            bdi.ratelimit.step(
                rules,
                &Window {
                    setpoint: position.setpoint(),
                    dirty: position.dirty,
                    ratio: position.ratio(rules),
                    bandwidth: position.bandwidth,
                    dirtied: bandwidth.dirtied_since(bdi.dirtied),
                    elapsed,
                    hz: ticks.hz(),
                },
            );
        }
    }

    /// Number of pages of one file that a flusher writes before it goes on to the next file: about
    /// `budget` at most, but with weft's own throttling at least as many as `Turns::chunk` returns.
    ///
    /// Source   writeback.md §3, `writeback_chunk_size`; 2.6.24 has no such limit except the budget
    #[must_use]
    pub fn chunk_pages(&self, bdi: BdiId, budget: u64) -> u64 {
        let by_speed = self.bdis[bdi.index()].bandwidth.average() / 2;
        let by_limit = self.limit.max(1) / 8;
        let pages = by_speed.min(by_limit).min(budget).saturating_add(CHUNK_PAGES_MIN);
        let pages = pages / CHUNK_PAGES_MIN * CHUNK_PAGES_MIN;
        let takes_turns = self.config.kernel == Kernel::Weft;
        if takes_turns { pages.max(self.turns.chunk(bdi)) } else { pages }
    }
}

/// Next value of `limit`. It rises to the threshold at once, and falls by a 32nd of its excess over
/// the threshold or, if that is larger, over the number of pages in use.
fn next_limit(limit: u64, threshold: u64, total: u64) -> u64 {
    if limit < threshold {
        return threshold;
    }
    limit - (limit.saturating_sub(threshold.max(total)) >> 5)
}

/// Size of a page in bytes.
pub const PAGE_BYTES: u64 = 4096;

/// Number of pages after which a writer checks the limits while its device exceeds them.
const CHECK_WHILE_EXCEEDED: u64 = 8;

/// Minimum and granularity of the number of pages of one file that are written before the next file
/// has its turn: 4 MiB.
const CHUNK_PAGES_MIN: u64 = 1024;

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;

    fn config(dirty: Amount) -> PoolConfig {
        PoolConfig { dirty, ..PoolConfig::new(Kernel::V3_1, 8, 1 << 20, 1 << 20) }
    }

    #[test]
    fn writeback_statement_1_a_background_ratio_above_the_bytes_is_halved() {
        let thresholds = config(Amount::Bytes(100 * MIB)).thresholds();
        assert_eq!(thresholds, Thresholds { background: 12_800, dirty: 25_600 });
    }

    #[test]
    fn thresholds_of_both_kernels() {
        let gib = |kernel| PoolConfig::new(kernel, 4, 262_144, 250_000);
        let of = |config: PoolConfig| (config.thresholds().background, config.thresholds().dirty);
        assert_eq!(of(gib(Kernel::V3_1)), (25_000, 50_000));
        assert_eq!(of(gib(Kernel::V2_6_24)), (12_500, 25_000));
        // 2.6.24 enforces a minimum of 5 %, and halves the background ratio as an integer (5 / 2 =
        // 2 %).
        let low = PoolConfig { dirty: Amount::Percent(1), ..gib(Kernel::V2_6_24) };
        assert_eq!(of(low), (5_000, 12_500));
        let low = PoolConfig { dirty: Amount::Percent(1), ..gib(Kernel::V3_1) };
        assert_eq!(of(low), (1_250, 2_500));
    }

    #[test]
    fn writeback_statement_50_bursts_between_checks() {
        let mut pool = Pool::new(PoolConfig::new(Kernel::V3_1, 8, 2942 * 256, 700_000));
        let bdi = pool.add_bdi(Time(0));
        assert_eq!(pool.ratelimit_pages(), 1024);
        let pace = &mut Pace::default();
        assert_eq!(pool.pages_until_check(0, bdi, pace), 1024);
        assert_eq!(pool.count_writes(0, bdi, pace, 1000, 0), None);
        assert_eq!(pool.pages_until_check(0, bdi, pace), 24);
        assert_eq!(pool.pages_until_check(1, bdi, pace), 1024, "CPUs count apart");
        assert_eq!(pool.count_writes(0, bdi, pace, 24, 0), Some(1536));
        pool.set_exceeded(bdi, true);
        assert_eq!(pool.pages_until_check(0, bdi, pace), 8);
        assert_eq!(
            pool.count_writes(0, bdi, pace, 8, 0),
            Some(1536),
            "the cap, though 8 pages triggered it"
        );
    }

    #[test]
    fn a_writer_that_only_sleeps_counts_its_own_pages_and_a_cpu_bounds_them() {
        let kernel = Kernel::IoLess(DirtyThrottle::Mainline6_12);
        let dirty = Amount::Bytes(8 * MIB);
        let mut pool =
            Pool::new(PoolConfig { dirty, ..PoolConfig::new(kernel, 2, 1 << 20, 1 << 20) });
        let bdi = pool.add_bdi(Time(0));
        assert_eq!(pool.ratelimit_pages(), 32, "2048 pages, 2 CPUs");
        let (one, other) = (&mut Pace::default(), &mut Pace::default());
        assert_eq!(pool.count_writes(0, bdi, one, 40, 31), None, "9 were dirty already");
        assert_eq!(pool.pages_until_check(0, bdi, one), 1);
        assert_eq!(pool.count_writes(0, bdi, other, 1, 1), Some(1), "the CPU has 32");
        assert_eq!(pool.count_writes(0, bdi, one, 9, 0), None, "nothing new");
        assert_eq!(pool.count_writes(0, bdi, one, 1, 1), Some(32), "the writer has 32");
        pool.set_exceeded(bdi, true);
        let fresh = &mut Pace::default();
        assert_eq!(pool.pages_until_check(1, bdi, fresh), 8);
        let each = &mut Pace { nr_dirtied_pause: 0, ..Pace::default() };
        assert_eq!(pool.pages_until_check(1, bdi, each), 1);
    }

    #[test]
    fn every_kernel_has_a_name_of_its_own() {
        for (name, kernel) in Kernel::NAMES {
            assert_eq!(Kernel::named(name), Some(kernel));
            assert_eq!(kernel.name(), name);
        }
        assert_eq!(Kernel::named("3.2"), None);
    }

    #[test]
    fn writeback_statement_54_a_device_over_its_share_of_the_background_threshold_is_flushed() {
        let at = |variant| {
            let kernel = Kernel::IoLess(variant);
            let dirty = Amount::Bytes(MIB);
            let mut pool =
                Pool::new(PoolConfig { dirty, ..PoolConfig::new(kernel, 2, 1 << 20, 1 << 20) });
            let (busy, other) = (pool.add_bdi(Time(0)), pool.add_bdi(Time(0)));
            let mut share = pool.writer_share();
            for bdi in [busy, other] {
                pool.dirtied(bdi, &mut share, 512);
                pool.started(bdi, 512);
                pool.written(bdi, 512);
            }
            // The second device has all of the last 512 completions, the first hardly any.
            pool.dirtied(busy, &mut share, 60);
            (pool.over_background(busy), pool.over_background(other), {
                pool.dirtied(other, &mut share, 69);
                pool.over_background(other)
            })
        };
        assert_eq!(at(DirtyThrottle::V11), (false, false, true), "129 of 256 in all");
        assert_eq!(at(DirtyThrottle::Patch001), (true, false, true));
    }

    /// Dirties pages of a device and writes them back.
    fn write(pool: &mut Pool, bdi: BdiId, share: &mut Share, pages: u64) {
        pool.dirtied(bdi, share, pages);
        pool.started(bdi, pages);
        pool.written(bdi, pages);
    }

    #[test]
    fn a_device_has_its_least_part_without_writing_and_never_more_than_its_most() {
        let mut pool = Pool::new(config(Amount::Bytes(4000 * PAGE_BYTES)));
        let [idle, busy] = [0; 2].map(|_| pool.add_bdi(Time(0)));
        let thresh = |pool: &Pool, bdi| pool.bdi_share(bdi).of(pool.thresholds().dirty);
        let mut share = pool.writer_share();
        for _ in 0..8 {
            write(&mut pool, busy, &mut share, 4096);
        }
        let alone = thresh(&pool, busy);
        assert_eq!(thresh(&pool, idle), 0);
        pool.set_ratios(idle, BdiRatios { min: 20, ..BdiRatios::default() });
        assert_eq!(thresh(&pool, idle), 800, "a fifth");
        assert_eq!(thresh(&pool, busy), alone * 80 / 100, "of the rest");
        pool.set_ratios(busy, BdiRatios { max: 10, ..BdiRatios::default() });
        assert_eq!(thresh(&pool, busy), 400);
        let counted = pool.completions;
        write(&mut pool, busy, &mut share, 10);
        assert_eq!(pool.completions, counted, "it has its most");
    }

    #[test]
    fn writeback_statement_52_the_limit_follows_slowly_when_memory_shrinks() {
        let steps = |count| (0..count).fold(262_144, |limit, _| next_limit(limit, 25_600, 0));
        assert_eq!(steps(5), 227_424);
        assert!(steps(216) > 25_856);
        assert!(steps(217) <= 25_856);
        assert_eq!(next_limit(1000, 25_600, 0), 25_600, "up at once");
        let mut pool = Pool::new(config(Amount::Bytes(1024 * MIB)));
        pool.set_limits(Amount::Bytes(100 * MIB), Amount::Percent(10));
        assert_eq!(pool.limit(), 25_600, "by sysctl at once");
    }

    #[test]
    fn the_limit_follows_only_with_a_new_estimate_of_a_throttled_writer() {
        let mut pool = Pool::new(config(Amount::Percent(20)));
        let bdi = pool.add_bdi(Time(0));
        let high = pool.limit();
        pool.set_dirtyable(1000);
        pool.update_bandwidth(Time(300_000_000), bdi, 0, false);
        assert_eq!(pool.limit(), high, "a flusher");
        // 2 s later, in a call that has just begun: the device was idle.
        pool.update_bandwidth(Time(2_300_000_000), bdi, 570, true);
        assert_eq!(pool.limit(), high, "idle");
        pool.update_bandwidth(Time(2_504_000_000), bdi, 570, true);
        assert_eq!(pool.limit(), next_limit(high, 200, 0));
    }

    #[test]
    fn writeback_statement_53_chunks() {
        // Limit in MiB, pages per second, budget, and expected pages.
        let table = [
            (1, 14_848, u64::MAX, 1024),
            (8, 14_848, u64::MAX, 1024),
            (32, 14_848, 1023, 1024),
            (100, 14_848, u64::MAX, 4096),
            (400, 14_848, u64::MAX, 8192),
            (1024, 14_848, u64::MAX, 8192),
            (800, 16_896, u64::MAX, 9216),
            (1, 14_848, 1536, 1024),
            (8, 14_848, 1536, 1024),
            (100, 14_848, 1536, 2048),
            (400, 14_848, 1536, 2048),
        ];
        for (limit, speed, budget, pages) in table {
            let mut pool = Pool::new(config(Amount::Bytes(limit * MIB)));
            let bdi = pool.add_bdi(Time(0));
            // An hour at this speed, so that the estimate has converged.
            pool.bdis[0].written = speed * 3600;
            pool.update_bandwidth(Time(3_600_000_000_000), bdi, 0, false);
            assert_eq!(pool.bandwidth(bdi).average(), speed);
            assert_eq!(pool.chunk_pages(bdi, budget), pages, "{limit} MiB, {budget}");
        }
    }

    #[test]
    fn a_device_below_its_largest_share_gains_by_completions() {
        for max in [50, 100] {
            let mut pool = Pool::new(config(Amount::Bytes(16 * MIB)));
            let (bdi, mut share) = (pool.add_bdi(Time(0)), pool.writer_share());
            pool.set_ratios(bdi, BdiRatios { max, ..BdiRatios::default() });
            let counted = pool.completions;
            write(&mut pool, bdi, &mut share, 10);
            assert_ne!(pool.completions, counted, "{max}");
        }
    }

    #[test]
    fn a_device_without_dirty_pages_is_not_above_its_share_of_nothing() {
        let kernel = Kernel::IoLess(DirtyThrottle::Mainline6_12);
        let mut pool = Pool::new(PoolConfig { kernel, ..config(Amount::Bytes(16 * MIB)) });
        let (bdi, mut share) = (pool.add_bdi(Time(0)), pool.writer_share());
        assert!(!pool.over_background(bdi));
        pool.dirtied(bdi, &mut share, 1);
        assert!(pool.over_background(bdi));
    }

    #[test]
    fn a_bandwidth_is_judged_above_the_free_run_or_under_limits_of_the_device() {
        let free_run = config(Amount::Bytes(16 * MIB)).thresholds().free_run();
        for (pages, strict, judged) in
            [(free_run, false, false), (free_run + 1, false, true), (1, true, true)]
        {
            let mut pool = Pool::new(config(Amount::Bytes(16 * MIB)));
            let (bdi, mut share) = (pool.add_bdi(Time(0)), pool.writer_share());
            pool.set_ratios(bdi, BdiRatios { strict, ..BdiRatios::default() });
            pool.dirtied(bdi, &mut share, pages);
            let before = pool.bandwidth(bdi);
            pool.before_judgement(Time(0) + weft_units::Span::millis(500), bdi, 0);
            assert_eq!(pool.bandwidth(bdi) != before, judged, "{pages} {strict}");
        }
    }
}
