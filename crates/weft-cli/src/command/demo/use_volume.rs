//! The load of the demo: writes, verification, a failure and a rebuild in the middle of writes.

use std::collections::VecDeque;
use std::path::Path;
use std::time::{Duration, Instant};

use weft_export::client::NbdClient;
use weft_export::control::{Command, VolumeStatus};
use weft_runtime::devices::FreshFile;
use weft_terminal::outcome::Failure;
use weft_terminal::terminal::{progress, took};
use weft_units::Bytes;

use super::tour::Measured;
use super::{NAME, ensure, label, name};
use crate::inside::Inside;
use crate::pattern::{self, BLOCK, Expected};
use crate::size;
use crate::sync_action::{self, Part, STRIPE_SECTORS};
use crate::target::{Target, only_volume};

/// Volume that the demo uses: its server, a client, and the content that is expected.
pub(super) struct Used {
    pub(super) inside: Inside,
    pub(super) client: NbdClient,
    pub(super) target: Target,
    pub(super) expected: Expected,
    /// Number of bytes that the load writes and verifies, from the start of the volume on.
    pub(super) all: u64,
    /// Number of the last write, from 1 on. The data of each write contains its number
    /// (`pattern.rs`).
    pub(super) write: u32,
    pub(super) seed: u64,
}

/// Writes in flight, oldest first: cookie and byte range of each.
struct Flight(VecDeque<(u64, std::ops::Range<u64>)>);

impl Used {
    /// Writes the whole volume once, from start to end.
    pub(super) fn write_all(&mut self) -> Result<((), Measured), Failure> {
        let bar = progress("write", self.all);
        let mut flight = Flight(VecDeque::new());
        let start = Instant::now();
        let mut at = 0;
        while at < self.all {
            let len = PIECE.min(self.all - at);
            self.send(&mut flight, at, len)?;
            bar.inc(len);
            at += len;
        }
        self.land(&mut flight, 0)?;
        self.flush()?;
        bar.finish_and_clear();
        let text = "written and flushed; every 8 bytes name their address and their write".into();
        Ok(((), Measured::new(text).bytes(self.all, start.elapsed())))
    }

    /// Reads the whole volume, and compares every word with its expected content. `what` describes
    /// the step in the report.
    pub(super) fn verify(&mut self, what: &str) -> Result<((), Measured), Failure> {
        let bar = progress("verify", self.all);
        let start = Instant::now();
        let mut waiting: VecDeque<(u64, u64)> = VecDeque::new();
        let mut next = 0;
        while next < self.all || !waiting.is_empty() {
            while next < self.all && waiting.len() < DEPTH {
                let len = PIECE.min(self.all - next);
                let cookie = self
                    .client
                    .read(next, u32::try_from(len).unwrap_or(u32::MAX))
                    .map_err(Failure::Failed)?;
                waiting.push_back((cookie, next));
                next += len;
            }
            let answer = self.client.answer().map_err(Failure::Failed)?;
            let found = waiting.iter().position(|(cookie, _)| *cookie == answer.cookie);
            let Some((_, at)) = found.and_then(|index| waiting.remove(index)) else {
                return Err(Failure::failed("an answer to nothing"));
            };
            let data = answer
                .result
                .map_err(|error| Failure::failed(format!("read at byte {at}: {error}")))?;
            self.expected.verify(at, &data).map_err(Failure::Failed)?;
            bar.inc(data.len() as u64);
        }
        bar.finish_and_clear();
        Ok(((), Measured::new(what.to_owned()).bytes(self.all, start.elapsed())))
    }

    /// Writes at random offsets, and declares a member failed in the middle of the writes.
    pub(super) fn fail_amid_writes(&mut self, member: &Path) -> Result<((), Measured), Failure> {
        let start = Instant::now();
        let mut flight = Flight(VecDeque::new());
        let (mut bytes, mut before) = (0, 0);
        for count in 0..RANDOM_WRITES {
            bytes += self.send_random(&mut flight)?;
            if count == RANDOM_WRITES / 2 {
                before = flight.0.len();
                let members = vec![label(member)];
                self.target.ask(Command::Fail { members })?;
            }
        }
        self.land(&mut flight, 0)?;
        self.flush()?;
        let volume = self.volume()?;
        ensure(volume.degraded == 1, || format!("degraded: found {}", volume.degraded))?;
        let text = format!(
            "{} failed amid {RANDOM_WRITES} random writes, {before} of them on their way; none \
             was lost",
            name(member)
        );
        Ok(((), Measured::new(text).bytes(bytes, start.elapsed())))
    }

    /// Rebuilds a member on a new file while random writes go on.
    pub(super) fn rebuild_amid_writes(
        &mut self,
        fresh: &Path,
        bytes: Bytes,
    ) -> Result<((), Measured), Failure> {
        let at = |error: std::io::Error| Failure::failed(format!("{}: {error}", label(fresh)));
        let file = FreshFile::create_new(fresh).map_err(at)?;
        file.set_len(bytes).map_err(at)?;
        drop(file);
        let start = Instant::now();
        self.target.ask(Command::Add { members: vec![label(fresh)] })?;
        let bar = progress("rebuild", 0);
        let mut flight = Flight(VecDeque::new());
        let (mut count, mut written) = (0, 0);
        loop {
            // A few writes are submitted between two polls and stay in flight.
            for _ in 0..BURST {
                written += self.send_random(&mut flight)?;
                count += 1;
            }
            let volume = self.volume()?;
            if let Some((done, total)) = volume.sync_completed {
                bar.set_length(total * 512);
                bar.set_position(done * 512);
            }
            if volume.degraded == 0 {
                break;
            }
            ensure(start.elapsed() < REBUILD_MAX, || {
                format!("not rebuilt after {}: {}", took(REBUILD_MAX), volume.sync_action)
            })?;
        }
        bar.finish_and_clear();
        let elapsed = start.elapsed();
        self.land(&mut flight, 0)?;
        self.flush()?;
        let volume = self.volume()?;
        let (done, total) = volume.sync_completed.unwrap_or((0, 0));
        ensure(total > 0 && done == total, || format!("rebuilt {done} of {total} sectors"))?;
        let text = format!(
            "{} rebuilt while {count} writes ({}) went on",
            name(fresh),
            size::human(Bytes(written))
        );
        Ok(((), Measured::new(text).bytes(total * 512, elapsed).stripes(total / STRIPE_SECTORS)))
    }

    /// Runs a check or repair (`action`), which must read `stripes` stripes and find a mismatch
    /// count within `count`. `what` describes the step in the report.
    pub(super) fn check(
        &mut self,
        action: &'static str,
        stripes: u64,
        count: std::ops::RangeInclusive<u64>,
        what: &str,
    ) -> Result<((), Measured), Failure> {
        let before = self.volume()?;
        let report = sync_action::perform(&mut self.target, action, Part::default())?;
        let after = self.volume()?;
        ensure(report.stripes == stripes, || {
            format!("{action} passed {} stripes of {stripes}", report.stripes)
        })?;
        // The bytes are those that members report, not those that the action reports.
        let mut bytes = 0;
        for member in after.members.iter().filter(|member| member.state == "in_sync") {
            let earlier = before.members.iter().find(|other| other.index == member.index);
            let read = member.sectors_read - earlier.map_or(0, |earlier| earlier.sectors_read);
            bytes += read * 512;
            ensure(read >= stripes * STRIPE_SECTORS, || {
                format!("{action} read {read} sectors of {}, expected all", member.label)
            })?;
        }
        ensure(count.contains(&report.volume.mismatch_cnt), || {
            format!(
                "{action}: mismatch_cnt: found {}, expected {count:?}",
                report.volume.mismatch_cnt
            )
        })?;
        let text = format!("{what}; mismatch_cnt {}", report.volume.mismatch_cnt);
        Ok(((), Measured::new(text).bytes(bytes, report.took).stripes(stripes)))
    }

    /// Submits a write of one to 64 blocks at a random offset, which does not overlap with writes
    /// in flight. Returns the number of its bytes.
    fn send_random(&mut self, flight: &mut Flight) -> Result<u64, Failure> {
        loop {
            let blocks = self.all / BLOCK;
            // Most writes are small.
            let len = if self.random(4) == 0 { 1 + self.random(64) } else { 1 + self.random(4) };
            let len = len.min(blocks);
            let at = self.random(blocks - len + 1) * BLOCK;
            let len = len * BLOCK;
            let apart = |(_, other): &(u64, std::ops::Range<u64>)| {
                at + len <= other.start || other.end <= at
            };
            if flight.0.iter().all(apart) {
                self.send(flight, at, len)?;
                return Ok(len);
            }
        }
    }

    fn send(&mut self, flight: &mut Flight, at: u64, len: u64) -> Result<(), Failure> {
        self.land(flight, DEPTH - 1)?;
        self.write += 1;
        let data = pattern::fill(self.write, at, len);
        let cookie = self.client.write(at, &data).map_err(Failure::Failed)?;
        self.expected.written(self.write, at, len);
        flight.0.push_back((cookie, at..at + len));
        Ok(())
    }

    /// Waits until at most `count` writes are in flight.
    fn land(&mut self, flight: &mut Flight, count: usize) -> Result<(), Failure> {
        while flight.0.len() > count {
            let answer = self.client.answer().map_err(Failure::Failed)?;
            let index = flight.0.iter().position(|(cookie, _)| *cookie == answer.cookie);
            let range = index.and_then(|index| flight.0.remove(index)).map(|(_, range)| range);
            if let Err(error) = answer.result {
                return Err(Failure::failed(format!("write of bytes {range:?}: {error}")));
            }
        }
        Ok(())
    }

    fn flush(&mut self) -> Result<(), Failure> {
        let cookie = self.client.flush().map_err(Failure::Failed)?;
        self.client.finish(cookie).map(drop).map_err(Failure::Failed)
    }

    pub(super) fn volume(&mut self) -> Result<VolumeStatus, Failure> {
        let status = self.target.status()?;
        only_volume(NAME, &status).cloned()
    }

    /// Pseudorandom number below `bound`. The sequence is the same in every run.
    ///
    /// Source   G. Marsaglia, "Xorshift RNGs", the triple 13, 7, 17
    fn random(&mut self, bound: u64) -> u64 {
        self.seed ^= self.seed << 13;
        self.seed ^= self.seed >> 7;
        self.seed ^= self.seed << 17;
        self.seed % bound.max(1)
    }
}

/// Size of a large request in bytes.
const PIECE: u64 = 1 << 20;
/// Largest number of requests in flight.
const DEPTH: usize = 16;
/// Number of random writes: enough to reach every state of the stripe cache, and done in a second
/// or two.
const RANDOM_WRITES: usize = 2000;
/// Number of random writes that are submitted between two polls of a rebuild's status.
const BURST: usize = 16;
/// Longest wait for a rebuild, far above what any machine needs.
const REBUILD_MAX: Duration = Duration::from_secs(300);
