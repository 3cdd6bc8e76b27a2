//! Cases of the parity benchmark, and their measurement.

use std::time::Duration;

use weft_parity::{Level, Maker, Parity, Strategy, gf};

use crate::BenchError;
use crate::rounds::{Effort, in_turns, per_cpu_second};
use crate::sheet::{Sheet, SheetRow};

use super::arena::Arena;
use super::isal::IsaL;

/// Parameters of the parity benchmark: kernels and cases to measure.
#[derive(Clone, Debug, Default)]
pub struct ParityLoad {
    /// Kernels to use; `None` for the best that the CPU has.
    pub level: Option<Level>,
    /// Strategy of the kernels; `None` if weft chooses it for each case.
    pub strategy: Option<Strategy>,
    /// Text that the names of the measured cases contain; empty for all cases.
    pub only: String,
}

impl ParityLoad {
    /// Fills a row for each case, in GB of source data per second of CPU time.
    ///
    /// # Errors
    /// This CPU lacks the kernels, no case has the name, or the two results of a case differ.
    pub fn measure(&self, effort: Effort, sheet: &mut Sheet) -> Result<(), BenchError> {
        let parity = match self.level {
            None => Parity::detect(),
            Some(level) => Parity::with_level(level)
                .ok_or_else(|| BenchError::usage(format!("--level: this CPU has no {level}")))?,
        };
        let other = match IsaL::load() {
            Ok(library) => Other::IsaL(library),
            Err(why) => {
                sheet.absent(&format!(
                    "{why}; compared with weft's scalar kernels; for ISA-L install libisal2"
                ));
                Other::Scalar
            }
        };
        let in_l2 = self.strategy.unwrap_or_else(|| Strategy::for_cached(Maker::detect()));
        let from_dram = self.strategy.map_or("by size", Strategy::name);
        sheet.note("kernels", format!("{}; L2: {in_l2}, DRAM: {from_dram}", parity.level()));
        let mut cases = cases(effort.quick);
        cases.retain(|case| case.name().contains(&self.only));
        if cases.is_empty() {
            return Err(BenchError::usage("--only: no case has this in its name"));
        }
        let span = if cases.iter().any(|case| case.place == StripLocation::Dram) {
            if effort.quick { DRAM_QUICK } else { DRAM }
        } else {
            L2
        };
        let mut arena = Arena::new(span);
        let rounds = effort.rounds(7, 3);
        let turn = Duration::from_millis(if effort.quick { 6 } else { 25 });
        sheet.expect(cases.len());
        for case in cases {
            sheet.now(&case.name());
            let parity = parity.with_strategy(self.strategy.unwrap_or_else(|| case.strategy()));
            let row = case.compare(parity, &other, &mut arena, rounds, turn)?;
            sheet.push(row);
        }
        Ok(())
    }
}

/// Size in bytes of the stripes that fit into a second-level cache of 1 MiB beside other data.
const L2: usize = 640 << 10;

/// Size in bytes of stripes that no last-level cache holds, so strips come from DRAM.
const DRAM: usize = 768 << 20;

/// Size in bytes of stripes that most last-level caches do not hold, for a quick run.
const DRAM_QUICK: usize = 256 << 20;

/// A case of the benchmark, which is one row of its table.
#[derive(Clone, Copy, Debug)]
struct Case {
    work: Work,
    /// Number of data strips, including lost ones.
    sources: usize,
    strip: usize,
    place: StripLocation,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Work {
    Xor,
    Pq,
    /// Recovery of two data strips from the others, P and Q.
    RebuildTwo,
}

/// Memory that the strips of a case are read from: a second-level cache or DRAM.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum StripLocation {
    L2,
    Dram,
}

fn cases(quick: bool) -> Vec<Case> {
    let shapes: &[(Work, &[usize])] = if quick {
        &[(Work::Xor, &[4, 8]), (Work::Pq, &[6, 10]), (Work::RebuildTwo, &[10])]
    } else {
        &[(Work::Xor, &[4, 8]), (Work::Pq, &[4, 6, 8, 10, 16]), (Work::RebuildTwo, &[6, 10])]
    };
    let mut cases = Vec::new();
    for (work, widths) in shapes {
        for place in [StripLocation::L2, StripLocation::Dram] {
            for sources in *widths {
                for strip in [4 << 10, 64 << 10] {
                    cases.push(Case { work: *work, sources: *sources, strip, place });
                }
            }
        }
    }
    cases
}

impl Case {
    fn name(&self) -> String {
        let work = match self.work {
            Work::Xor => "XOR",
            Work::Pq => "P+Q",
            Work::RebuildTwo => "rebuild two of",
        };
        let place = match self.place {
            StripLocation::L2 => "in L2",
            StripLocation::Dram => "from DRAM",
        };
        let strip = self.strip >> 10;
        format!("{work} {}+{} {strip}K {place}", self.sources, self.results())
    }

    /// Number of strips that are written.
    fn results(&self) -> usize {
        if self.work == Work::Xor { 1 } else { 2 }
    }

    /// Least acceptable ratio to ISA-L, the higher of those in issues 3 and 15 of weft. `None`: the
    /// case is reported for comparison only.
    fn mark(&self) -> Option<f64> {
        let wide = self.strip == 64 << 10;
        match (self.work, self.place, self.sources) {
            (Work::Xor, _, _) => Some(1.0),
            (Work::Pq, StripLocation::L2, 6) => Some(if wide { 1.55 } else { 1.3 }),
            (Work::Pq, StripLocation::L2, 10) => Some(if wide { 1.9 } else { 1.4 }),
            (Work::Pq, StripLocation::L2, _) => Some(1.2),
            (Work::Pq, StripLocation::Dram, 6 | 10) if wide => Some(1.15),
            (Work::RebuildTwo, _, _) => Some(1.5),
            _ => None,
        }
    }

    /// Strategy that a caller chooses if it knows whether its strips are in a cache or in DRAM.
    fn strategy(&self) -> Strategy {
        let maker = Maker::detect();
        match self.place {
            StripLocation::L2 => Strategy::for_cached(maker),
            StripLocation::Dram => {
                Strategy::for_cold(maker, self.sources, self.results(), self.strip)
            }
        }
    }

    fn compare(
        &self,
        parity: Parity,
        other: &Other,
        arena: &mut Arena,
        rounds: u32,
        turn: Duration,
    ) -> Result<SheetRow, BenchError> {
        let span = if self.place == StripLocation::L2 { L2 } else { arena.bytes().len() };
        let stripe_bytes = (self.sources + self.results()) * self.strip;
        let stripes = (span / stripe_bytes).max(1);
        let tables = other.prepare(self);
        let ours = |stripe: &mut [u8]| self.by_weft(parity, stripe);
        let others = |stripe: &mut [u8]| match (other, &tables) {
            (Other::IsaL(library), tables) => self.by_isal(library, tables.as_deref(), stripe),
            (Other::Scalar, _) => {
                self.by_weft(Parity::with_level(Level::Scalar).expect("always there"), stripe);
            }
        };
        let first = &mut arena.bytes()[..stripe_bytes];
        if !self.agree(first, &ours, &others) {
            let name = self.name();
            return Err(BenchError::failed(format!("{name}: weft and {} differ", other.name())));
        }
        let arena = std::cell::RefCell::new(arena);
        let work = |fill: &dyn Fn(&mut [u8])| {
            let mut arena = arena.borrow_mut();
            let bytes = &mut arena.bytes()[..stripes * stripe_bytes];
            let mut around = (0..stripes).cycle();
            let mut next = || {
                let at = around.next().unwrap_or(0) * stripe_bytes;
                fill(&mut bytes[at..at + stripe_bytes]);
            };
            // Warm-up: the whole data for a cache, and for DRAM enough for the prefetchers.
            (0..stripes.min((16 << 20) / stripe_bytes)).for_each(|_| next());
            // Number of repetitions between two clock readings, large enough to make their cost
            // negligible.
            let batch = (1 << 20) / stripe_bytes + 1;
            let rate = per_cpu_second(turn, || (0..batch).for_each(|_| next()));
            rate * (batch * self.sources * self.strip) as f64 / 1e9
        };
        let figures = in_turns(rounds, &mut [&mut || Ok(work(&ours)), &mut || Ok(work(&others))])?;
        let mark = self.mark().filter(|_| matches!(other, Other::IsaL(_)));
        let baseline = Some((other.name(), &figures[1][..]));
        Ok(SheetRow::faster(self.name(), "GB/s", &figures[0], baseline).mark(mark))
    }

    /// Whether weft's kernels (`ours`) and the implementation they are compared with (`others`)
    /// give the same results for a stripe.
    fn agree(
        &self,
        stripe: &mut [u8],
        ours: &dyn Fn(&mut [u8]),
        others: &dyn Fn(&mut [u8]),
    ) -> bool {
        let results = self.sources * self.strip;
        ours(stripe);
        let expected = stripe[results..].to_vec();
        stripe[results..].fill(0x5a);
        others(stripe);
        stripe[results..] == expected
    }

    fn by_weft(&self, parity: Parity, stripe: &mut [u8]) {
        let (sources, results) = stripe.split_at_mut(self.sources * self.strip);
        let sources = sources.chunks_exact(self.strip);
        if self.work == Work::Xor {
            let mut strips = [&[][..]; SOURCES_MAX];
            strips.iter_mut().zip(sources).for_each(|(strip, source)| *strip = source);
            return parity.xor(&strips[..self.sources], results);
        }
        let mut strips = [(0, &[][..]); SOURCES_MAX];
        for ((strip, source), exponent) in strips.iter_mut().zip(sources).zip(0..) {
            *strip = (exponent, source);
        }
        let (first, second) = results.split_at_mut(self.strip);
        if self.work == Work::Pq {
            return parity.pq(&strips[..self.sources], first, second);
        }
        let others = self.sources - 2;
        for (strip, exponent) in strips.iter_mut().zip(self.left()) {
            strip.0 = exponent;
        }
        let (p, q) = (strips[others].1, strips[others + 1].1);
        let [a, b] = self.lost();
        parity.recover_two(&strips[..others], p, q, a, b, first, second);
    }

    /// Positions of the two lost data strips, which are also their exponents in the sum that gives
    /// Q.
    fn lost(&self) -> [u8; 2] {
        [1, u8::try_from(self.sources - 2).expect("few strips")]
    }

    /// Exponents of the data strips that are not lost, which are also their positions.
    fn left(&self) -> impl Iterator<Item = u8> {
        let lost = self.lost();
        (0..=u8::MAX).filter(move |exponent| !lost.contains(exponent)).take(self.sources - 2)
    }

    fn by_isal(&self, library: &IsaL, tables: Option<&[u8]>, stripe: &mut [u8]) {
        match (self.work, tables) {
            (Work::Xor, _) => library.xor_gen(self.sources, self.strip, stripe),
            (Work::Pq, _) => library.pq_gen(self.sources, self.strip, stripe),
            (Work::RebuildTwo, tables) => {
                let tables = tables.expect("prepared for rebuilding");
                library.ec_encode_data(self.sources, self.strip, tables, stripe);
            }
        }
    }

    /// Rows of coefficients that yield the two lost strips from the remaining data, P and Q.
    ///
    /// With r = g^(b−a): Dₐ = (r·(P ⊕ P′) ⊕ g⁻ᵃ·(Q ⊕ Q′)) / (r ⊕ 1), and D_b = P ⊕ P′ ⊕ Dₐ, where
    /// P′ and Q′ are the parity of the remaining data.
    ///
    /// Source   H. P. Anvin, "The mathematics of RAID-6", §4
    fn coefficients(&self) -> Vec<u8> {
        let [a, b] = self.lost();
        let ratio = gf::pow2(b - a);
        let of_p = gf::div(ratio, ratio ^ 1);
        let of_q = gf::div(gf::inverse(gf::pow2(a)), ratio ^ 1);
        let data = self.left().map(|exponent| of_p ^ gf::mul(of_q, gf::pow2(exponent)));
        let first: Vec<u8> = data.chain([of_p, of_q]).collect();
        let mut second: Vec<u8> = first.iter().map(|coefficient| coefficient ^ 1).collect();
        // D_b also includes P ⊕ P′, but not Q.
        if let Some(last) = second.last_mut() {
            *last = of_q;
        }
        [first, second].concat()
    }
}

/// Number of data strips of the widest case.
pub(super) const SOURCES_MAX: usize = 16;

/// Baseline that weft is compared with.
enum Other {
    IsaL(IsaL),
    Scalar,
}

impl Other {
    fn name(&self) -> &'static str {
        match self {
            Self::IsaL(_) => "isa-l",
            Self::Scalar => "weft scalar",
        }
    }

    /// Prepares the tables that ISA-L needs for a case; `None` if it needs none.
    fn prepare(&self, case: &Case) -> Option<Vec<u8>> {
        match self {
            Self::IsaL(library) if case.work == Work::RebuildTwo => {
                Some(library.tables(case.sources, 2, &case.coefficients()))
            }
            Self::IsaL(_) | Self::Scalar => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn coefficients_give_the_lost_strips() {
        let case = Case { work: Work::RebuildTwo, sources: 8, strip: 1, place: StripLocation::L2 };
        let data: Vec<u8> = (0..8).map(|number| number * 31 + 5).collect();
        let p = data.iter().fold(0, |sum, byte| sum ^ byte);
        let q = (0..).zip(&data).fold(0, |sum, (k, byte)| sum ^ gf::mul(gf::pow2(k), *byte));
        let left = case.left().map(|exponent| data[usize::from(exponent)]);
        let there: Vec<u8> = left.chain([p, q]).collect();
        let found: Vec<u8> = case
            .coefficients()
            .chunks(8)
            .map(|row| row.iter().zip(&there).fold(0, |sum, (c, byte)| sum ^ gf::mul(*c, *byte)))
            .collect();
        assert_eq!(found, [data[1], data[6]]);
    }

    #[test]
    fn every_mark_of_the_issues_has_its_case() {
        let cases = cases(false);
        let marked = cases.iter().filter(|case| case.mark().is_some()).count();
        // XOR: 8; P+Q: 10 in L2, 2 from DRAM; rebuilding: 2 widths, 2 strips, 2 places.
        assert_eq!((cases.len(), marked), (36, 28));
        assert!(cases.iter().all(|case| case.sources <= SOURCES_MAX));
    }

    #[test]
    fn each_case_gives_the_same_with_every_kernel_and_with_isal_where_it_is_there() {
        let mut arena = Arena::new(1 << 21);
        let library = IsaL::load().ok();
        for case in cases(false) {
            let stripe = &mut arena.bytes()[..(case.sources + case.results()) * case.strip];
            let results = case.sources * case.strip;
            case.by_weft(Parity::with_level(Level::Scalar).unwrap(), stripe);
            let expected = stripe[results..].to_vec();
            for strategy in Strategy::ALL {
                stripe[results..].fill(0);
                case.by_weft(Parity::detect().with_strategy(strategy), stripe);
                assert!(stripe[results..] == expected, "{} {strategy}", case.name());
            }
            if let Some(library) = &library {
                stripe[results..].fill(0);
                let tables = library.tables(case.sources, 2, &case.coefficients());
                case.by_isal(library, Some(&tables), stripe);
                assert!(stripe[results..] == expected, "{} by ISA-L", case.name());
            }
        }
    }

    #[test]
    fn one_wrong_bit_is_a_disagreement() {
        let case = Case { work: Work::Pq, sources: 4, strip: 4096, place: StripLocation::L2 };
        let mut arena = Arena::new(L2);
        let stripe = &mut arena.bytes()[..6 * 4096];
        let right = |stripe: &mut [u8]| case.by_weft(Parity::detect(), stripe);
        let wrong = |stripe: &mut [u8]| {
            right(stripe);
            stripe[5 * 4096 + 17] ^= 4;
        };
        assert!(case.agree(stripe, &right, &right));
        assert!(!case.agree(stripe, &right, &wrong));
    }
}
