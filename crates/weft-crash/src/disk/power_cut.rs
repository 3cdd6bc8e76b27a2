//! Power cut and process crash of a simulated member: the choice of the requests that take effect.

use std::collections::BTreeMap;

use weft_units::SECTOR_BYTES;
use weft_units::rng::Rng;

use super::{Disk, DiskOp, Sector, nth};
use crate::crash::{CutMode, CutReport};

/// Sectors that survive or are lost together: number of their write, first sector, contents.
type Piece = (u64, u64, Vec<Sector>);

impl Disk {
    /// Cuts the power. `mode` and `rng` choose the volatile and outstanding content that survives.
    /// No request is outstanding afterwards. Returns the sectors that were kept and lost.
    pub fn power_cut(&mut self, mode: CutMode, rng: &mut Rng) -> CutReport {
        let atom = u64::from(self.logical_block) / SECTOR_BYTES;
        let mut report = CutReport::default();
        let outstanding = std::mem::take(&mut self.outstanding);
        let mut in_flight = Vec::new();
        for entry in outstanding.into_values() {
            let DiskOp::Write { at, count, bytes, preflush, .. } = entry.op else { continue };
            if self.faults.gone || self.read_only {
                continue;
            }
            report.metadata_in_flight |= preflush;
            report.writes_in_flight += 1;
            in_flight.push((at, count, bytes, preflush, entry.before));
        }
        // A metadata write starts with a flush, and no part of it is stored before that flush is
        // done.
        for (_, count, _, preflush, before) in &mut in_flight {
            if *preflush && rng.percent(50) {
                report.settled.extend(self.settle(*before));
            } else if *preflush {
                *count = 0;
            }
        }
        // Old and new content of outstanding superblock writes: first sector, both contents.
        let superblocks: Vec<(u64, Vec<u8>, Vec<u8>)> = in_flight
            .iter()
            .filter(|(_, count, _, preflush, _)| *preflush && *count > 0)
            .map(|(at, count, bytes, ..)| (*at, self.peek_stable(*at, *count), bytes.clone()))
            .collect();
        let mut pieces = self.pieces_of_cache(atom);
        for (order, (at, count, bytes, preflush, _)) in in_flight.into_iter().enumerate() {
            let sequence = self.sequence + order as u64;
            let len = self.sector_bytes(at);
            let content = |index: u64| Sector::from_slice(nth(&bytes, index, len));
            let is_whole = preflush && self.whole_superblocks;
            let together = if is_whole { count.max(atom) } else { atom };
            for first in (0..count).step_by(together as usize) {
                let contents = (first..count.min(first + together)).map(content).collect();
                pieces.push((sequence, at + first, contents));
            }
        }
        pieces.sort_by_key(|(sequence, sector, _)| (*sequence, *sector));
        let keep_all_before = match mode {
            CutMode::Ordered => rng.index(pieces.len() + 1),
            CutMode::Everything => pieces.len(),
            CutMode::Nothing | CutMode::Subset | CutMode::Torn => 0,
        };
        // The chance is chosen for each cut, so that cuts that keep nearly all or nearly nothing
        // are as frequent as others.
        let chance = rng.pick(&[10, 50, 50, 90]);
        for (index, (_, sector, contents)) in pieces.into_iter().enumerate() {
            let any = matches!(mode, CutMode::Subset | CutMode::Torn);
            let keep = index < keep_all_before || any && rng.percent(chance);
            for (at, from) in (sector..).zip(&contents) {
                if keep {
                    self.harden(at, from);
                    report.kept.insert(at);
                } else {
                    report.lost.insert(at);
                }
            }
        }
        if mode == CutMode::Torn && !self.whole_superblocks {
            for (at, _, new) in &superblocks {
                self.tear_a_sector(*at, new, rng);
            }
        }
        report.metadata_torn = superblocks.iter().any(|(at, old, new)| {
            let found = self.peek_stable(*at, new.len() as u64 / SECTOR_BYTES);
            found != *old && found != *new
        });
        self.sequence += 1_000_000;
        self.faults.stalled = false;
        report
    }

    /// Sectors that were lost: they read differently than before the cut, and no version of them
    /// became durable by the flush of an outstanding metadata write.
    ///
    /// A sector is not lost if the lost write had the content that the sector already had. The
    /// correction of a read error is such a write.
    pub fn lost_since<'a>(
        &'a self,
        before: &'a Self,
        report: &'a CutReport,
    ) -> impl Iterator<Item = u64> + 'a {
        let lost = report.lost.difference(&report.settled).copied();
        lost.filter(|at| before.peek(*at, 1) != self.peek(*at, 1))
    }

    /// Takes the content of the cache, in runs of up to `atom` sectors of one write, which a cut
    /// keeps or loses as a whole.
    fn pieces_of_cache(&mut self, atom: u64) -> Vec<Piece> {
        let mut atoms: BTreeMap<(u64, u64), Vec<Sector>> = BTreeMap::new();
        for (sector, versions) in self.cache.take() {
            for version in versions {
                let whole = atoms.entry((version.sequence, sector / atom)).or_default();
                whole.push(version.bytes);
            }
        }
        let pieces = atoms.into_iter();
        pieces.map(|((sequence, number), contents)| (sequence, number * atom, contents)).collect()
    }

    /// Tears one sector of an outstanding superblock: the sector holds only the first part of its
    /// new content.
    fn tear_a_sector(&mut self, at: u64, new: &[u8], rng: &mut Rng) {
        let sector = rng.below(new.len() as u64 / SECTOR_BYTES);
        let content = nth(new, sector, SECTOR_BYTES as usize);
        let mut torn = self.peek_stable(at + sector, 1);
        let differs = |place: &usize| torn[*place] != content[*place];
        let first = (0..torn.len()).find(differs).unwrap_or(0);
        let last = (0..torn.len()).rfind(differs).unwrap_or(0);
        // The tear is usually at the end of a 4-byte word of the superblock, sometimes at any byte.
        let end = first + rng.index(last - first + 1);
        let end = if rng.percent(80) { end.next_multiple_of(4) } else { end };
        torn[..end].copy_from_slice(&content[..end]);
        self.stable.put(at + sector, &torn);
    }

    /// Crashes the process while the power stays on: completed writes are kept, and outstanding
    /// ones may or may not take effect.
    pub fn process_killed(&mut self, rng: &mut Rng) {
        for entry in std::mem::take(&mut self.outstanding).into_values() {
            if rng.percent(50) {
                let _ = self.perform(entry.op, entry.before, entry.number);
            } else if !matches!(entry.op, DiskOp::Write { preflush: true, .. }) {
                // A superblock write is one request, which the kernel completes even if its
                // submitter has died.
                self.leave(entry.op, entry.before);
            }
        }
    }
}
