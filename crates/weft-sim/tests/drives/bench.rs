//! Bench of a bare drive for these tests.

use std::collections::{BTreeMap, VecDeque};
use weft_sim::drive::{Access, Command, Done, Drive, Model};
use weft_units::digest::Digest;
use weft_units::rng::Rng;
use weft_units::{Sectors, Span, Time};

/// 4 KiB.
pub(crate) const BLOCK: u64 = 8;
/// A write that may stay in a cache.
pub(crate) const WRITE: Access = Access::Write { fua: false };

/// A drive with a host that keeps it busy.
///
/// Every run asserts laws that hold for any drive and load: no more commands in flight than the
/// queue depth, every command ends exactly once (statement 14), Little's law and the utilisation
/// law (statement 16).
pub(crate) struct Bench {
    pub(crate) drive: Drive,
    pub(crate) now: Time,
    pub(crate) rng: Rng,
    /// Digest of every command's tag and end.
    pub(crate) trace: Digest,
    /// Number of arms or dies.
    servers: u64,
    tag: u64,
    ended: Vec<Done>,
    /// Time at which the host issued each command that has not ended.
    wanted: BTreeMap<u64, Time>,
    in_drive: u32,
}

/// Results of a run after its warm-up.
#[derive(Debug)]
pub(crate) struct Run {
    pub(crate) operations: u64,
    pub(crate) elapsed: Span,
    latencies: Vec<u64>,
    bytes: u64,
}

impl Run {
    pub(crate) fn iops(&self) -> f64 {
        self.operations as f64 * 1e9 / self.elapsed.0 as f64
    }

    pub(crate) fn mb_s(&self) -> f64 {
        self.bytes as f64 * 1e3 / self.elapsed.0 as f64
    }

    /// Mean latency.
    pub(crate) fn mean_us(&self) -> f64 {
        self.latencies.iter().sum::<u64>() as f64 / self.latencies.len() as f64 / 1e3
    }

    /// Latency that `per_mille` of a thousand commands do not exceed.
    pub(crate) fn per_mille_us(&self, per_mille: usize) -> f64 {
        let mut sorted = self.latencies.clone();
        sorted.sort_unstable();
        sorted[(sorted.len() - 1) * per_mille / 1_000] as f64 / 1e3
    }

    pub(crate) fn longest(&self) -> Span {
        Span(self.latencies.iter().copied().max().unwrap_or(0))
    }
}

impl Bench {
    pub(crate) fn of(model: &str, changes: &str, seed: u64) -> Self {
        let model = Drive::model(model).and_then(|model| model.with(changes));
        Self::with(&model.unwrap_or_else(|error| panic!("{error}")), seed)
    }

    /// Bench of any model.
    pub(crate) fn with(model: &Model, seed: u64) -> Self {
        let drive = Drive::new(model, seed);
        let text = model.to_toml();
        let dies = text.lines().find_map(|line| line.strip_prefix("dies = "));
        Self {
            drive,
            now: Time(0),
            rng: Rng::new(seed ^ 0x5eed),
            trace: Digest::default(),
            servers: dies.map_or(1, |dies| dies.parse().expect("a number")),
            tag: 0,
            ended: Vec::new(),
            wanted: BTreeMap::new(),
            in_drive: 0,
        }
    }

    pub(crate) fn sectors(&self) -> u64 {
        self.drive.capacity().0
    }

    /// Number of commands submitted.
    pub(crate) fn given(&self) -> u64 {
        self.tag
    }

    /// Submits a command to the drive. Returns its tag.
    pub(crate) fn submit(&mut self, access: Access, first: u64, length: u64) -> u64 {
        self.tag += 1;
        self.wanted.insert(self.tag, self.now);
        self.give(Command {
            tag: self.tag,
            access,
            first: Sectors(first),
            length: Sectors(length),
        });
        self.tag
    }

    fn give(&mut self, command: Command) {
        self.in_drive += 1;
        assert!(self.in_drive <= self.drive.depth(), "{} in flight", self.in_drive);
        self.drive.submit(self.now, command);
    }

    /// Advances to the next event. Returns the commands that ended, or `None` if no event is left.
    pub(crate) fn step(&mut self) -> Option<Vec<(u64, Span)>> {
        self.now = self.drive.next_event()?;
        self.drive.advance(self.now, &mut self.ended);
        assert!(self.drive.next_event().is_none_or(|next| next > self.now), "time advances");
        let ended = std::mem::take(&mut self.ended);
        Some(ended.into_iter().map(|done| self.end(done.tag)).collect())
    }

    fn end(&mut self, tag: u64) -> (u64, Span) {
        let wanted = self.wanted.remove(&tag);
        let wanted = wanted.unwrap_or_else(|| panic!("command {tag} ended twice"));
        self.in_drive -= 1;
        self.trace.add(&tag.to_le_bytes());
        self.trace.add(&self.now.0.to_le_bytes());
        (tag, self.now - wanted)
    }

    /// Lets time pass until the drive is idle.
    pub(crate) fn rest(&mut self) {
        while self.step().is_some() {}
        assert!(self.wanted.is_empty(), "commands that never end: {:?}", self.wanted);
    }

    /// Waits for one command. Returns how long it took.
    pub(crate) fn wait(&mut self, tag: u64) -> Span {
        loop {
            let ended = self.step().expect("the command ends");
            if let Some((_, took)) = ended.into_iter().find(|(of, _)| *of == tag) {
                return took;
            }
        }
    }

    /// Runs one command alone. Returns how long it took.
    pub(crate) fn one(&mut self, access: Access, first: u64, length: u64) -> Span {
        let tag = self.submit(access, first, length);
        self.wait(tag)
    }

    /// Keeps `depth` commands outstanding (commands beyond the queue depth wait in the host, in
    /// order): `warm_up` unmeasured ones, then `count` measured ones.
    pub(crate) fn closed(
        &mut self,
        depth: u32,
        warm_up: u64,
        count: u64,
        mut next: impl FnMut(&mut Rng) -> (Access, u64, u64),
    ) -> Run {
        let mut queue: VecDeque<Command> = VecDeque::new();
        let mut outstanding = 0_u64;
        let mut finished = 0;
        let mut run = Run { operations: 0, elapsed: Span(0), latencies: Vec::new(), bytes: 0 };
        let mut begun = self.now;
        // Integral over time of the number of outstanding commands, computed without the latencies.
        let (mut area, mut last) = (0_u128, self.now);
        let mut lengths: BTreeMap<u64, u64> = BTreeMap::new();
        let busy_before = self.busy();
        let started = self.now;
        loop {
            while outstanding < u64::from(depth) && finished < warm_up + count {
                let (access, first, length) = next(&mut self.rng);
                self.tag += 1;
                let (first, length) = (Sectors(first), Sectors(length));
                self.wanted.insert(self.tag, self.now);
                lengths.insert(self.tag, length.bytes().0);
                queue.push_back(Command { tag: self.tag, access, first, length });
                outstanding += 1;
            }
            while self.in_drive < self.drive.depth()
                && let Some(command) = queue.pop_front()
            {
                self.give(command);
            }
            if finished >= warm_up + count {
                break;
            }
            let ended = self.step().expect("a drive with commands has a next event");
            area += u128::from(outstanding) * u128::from(self.now.0 - last.0);
            last = self.now;
            for (tag, took) in ended {
                outstanding -= 1;
                finished += 1;
                let bytes = lengths.remove(&tag).expect("the command was submitted here");
                if finished == warm_up {
                    (begun, area) = (self.now, 0);
                } else if finished > warm_up && finished <= warm_up + count {
                    run.operations += 1;
                    run.latencies.push(took.0);
                    run.bytes += bytes;
                    run.elapsed = self.now - begun;
                }
            }
        }
        self.assert_laws(&run, depth, area, started, busy_before);
        while outstanding > 0 {
            while self.in_drive < self.drive.depth()
                && let Some(command) = queue.pop_front()
            {
                self.give(command);
            }
            outstanding -= self.step().expect("the commands end").len() as u64;
        }
        run
    }

    /// Returns the busy time of link and medium so far.
    fn busy(&self) -> (u64, u64) {
        let counters = self.drive.counters();
        (counters.link_busy.0, counters.media_busy.0)
    }

    fn assert_laws(
        &self,
        run: &Run,
        depth: u32,
        area: u128,
        started: Time,
        busy_before: (u64, u64),
    ) {
        let elapsed = (self.now - started).0;
        let (link, media) = self.busy();
        let (link, media) = (link - busy_before.0, media - busy_before.1);
        // Reservations of the link, and accesses that arm and dies have begun, count as busy until
        // their end.
        assert!(link <= elapsed + elapsed / 100 + 10_000_000, "link busy {link} of {elapsed} ns");
        let most = (elapsed + 100_000_000) * self.servers;
        assert!(media <= most, "media busy {media} of {elapsed} ns, {} servers", self.servers);
        let waited = u128::from(run.latencies.iter().sum::<u64>());
        // Latencies that begin before the first or end after the last measurement are edge errors.
        let edges = u128::from(depth) * u128::from(run.longest().0);
        let off = area.abs_diff(waited);
        assert!(off * 200 < area || off <= edges, "Little's law: {area} is not {waited}");
        if run.operations >= 1_000 * u64::from(depth) && edges * 200 < area {
            let (in_system, by_law) =
                (area as f64 / run.elapsed.0 as f64, run.iops() * run.mean_us() / 1e6);
            assert!((by_law / in_system - 1.0).abs() < 0.005, "{in_system} outstanding, {by_law}");
        }
    }

    /// Random blocks of 4 KiB.
    pub(crate) fn random(
        &self,
        access: Access,
    ) -> impl FnMut(&mut Rng) -> (Access, u64, u64) + use<> {
        let blocks = self.sectors() / BLOCK;
        move |rng| (access, rng.below(blocks) * BLOCK, BLOCK)
    }

    /// Consecutive commands of `length` sectors from `first`.
    pub(crate) fn sequential(
        &self,
        access: Access,
        first: u64,
        length: u64,
    ) -> impl FnMut(&mut Rng) -> (Access, u64, u64) + use<> {
        let mut at = first;
        move |_| {
            at += length;
            (access, at - length, length)
        }
    }
}

/// Asserts that a number lies within `percent` of its target.
pub(crate) fn near(what: &str, measured: f64, target: f64, percent: f64) {
    let off = (measured / target - 1.0) * 100.0;
    println!("{what}: measured {measured:.4}, target {target} ± {percent} %, off {off:+.2} %");
    assert!(
        off.abs() <= percent,
        "{what}: measured {measured:.4}, target {target} ± {percent} %, off {off:+.2} %"
    );
}

/// Asserts that a number lies within a band.
pub(crate) fn within(what: &str, measured: f64, low: f64, high: f64) {
    println!("{what}: measured {measured:.4}, target {low} to {high}");
    assert!((low..=high).contains(&measured), "{what}: {measured:.4}, target {low} to {high}");
}
