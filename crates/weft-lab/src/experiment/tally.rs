//! Counts of verdicts: each published cell counts once, however many rows are about it.
//!
//! Rows with a published figure are counted apart from claims without one. A cell with several rows
//! counts with the worst of their verdicts. A row for which weft's expectation was not written down
//! before its first run is in no count. Rows without a verdict, which have too few runs, are not
//! counted at all.

use std::collections::BTreeMap;

use super::measured::Measured;
use crate::statistics::Verdict;

/// Line of a report with rows that have fewer runs than a verdict needs.
pub const NO_VERDICTS: &str = "verdicts need 10 runs: --runs 10";

/// Number of published cells or of claims with each verdict. A cell of a published table counts
/// once, however many rows are about it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Number of cells with the whole interval in the band.
    pub agree: usize,
    /// Number of cells in the band, but by another mechanism than the published one.
    pub otherwise: usize,
    /// Number of cells outside of the band, in the published direction.
    pub direction: usize,
    /// Number of cells with an interval across an edge of the band: more runs would decide.
    pub undecided: usize,
    /// Number of cells outside of the band, and not in the published direction.
    pub differ: usize,
}

/// Counts of the verdicts of rows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tally {
    /// Counts of cells with a published figure.
    pub figures: Counts,
    /// Counts of claims without a published figure.
    pub claims: Counts,
    /// Number of rows that are in neither count, because weft's expectation was not written down
    /// before their first run.
    pub uncounted: usize,
}

impl Counts {
    /// Number of cells, over all verdicts.
    #[must_use]
    pub fn all(&self) -> usize {
        self.agree + self.otherwise + self.direction + self.undecided + self.differ
    }

    fn add(&mut self, verdict: Verdict) {
        *match verdict {
            Verdict::Agrees => &mut self.agree,
            Verdict::AgreesOtherwise => &mut self.otherwise,
            Verdict::Direction => &mut self.direction,
            Verdict::Undecided => &mut self.undecided,
            Verdict::Differs => &mut self.differ,
        } += 1;
    }
}

impl std::fmt::Display for Counts {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { agree, otherwise, direction, undecided, differ } = *self;
        write!(f, "{agree} agree")?;
        // Verdicts that no cell has are left out.
        for (count, words) in [
            (otherwise, "by another mechanism than the published one"),
            (direction, "in direction only"),
            (undecided, "undecided"),
            (differ, "not"),
        ] {
            if count > 0 {
                write!(f, ", {count} {words}")?;
            }
        }
        Ok(())
    }
}

impl Tally {
    /// Counts over the rows of several experiments; `None` if a row has no verdict.
    #[must_use]
    pub fn of<'a>(experiments: impl IntoIterator<Item = &'a [Measured]>) -> Option<Self> {
        let mut tally = Self::default();
        for rows in experiments {
            let mut cells: BTreeMap<String, (bool, Verdict)> = BTreeMap::new();
            for measured in rows {
                let (row, verdict) = (&measured.row, measured.verdict()?);
                if !row.uncounted.is_empty() {
                    tally.uncounted += 1;
                    continue;
                }
                let cell = cells.entry(row.counted_as()).or_insert((false, verdict));
                cell.0 |= row.is_figure();
                if rank(verdict) > rank(cell.1) {
                    cell.1 = verdict;
                }
            }
            for (is_figure, verdict) in cells.into_values() {
                let counts = if is_figure { &mut tally.figures } else { &mut tally.claims };
                counts.add(verdict);
            }
        }
        Some(tally)
    }
}

impl std::fmt::Display for Tally {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { figures, claims, uncounted } = self;
        write!(f, "of {} published figures {figures}", figures.all())?;
        if claims.all() > 0 {
            write!(f, "; of {} claims without a figure {claims}", claims.all())?;
        }
        if *uncounted > 0 {
            write!(f, "; {uncounted} not counted")?;
        }
        Ok(())
    }
}

/// Severity of a verdict; the worst verdict has the highest rank.
fn rank(verdict: Verdict) -> u8 {
    match verdict {
        Verdict::Agrees => 0,
        Verdict::AgreesOtherwise => 1,
        Verdict::Direction => 2,
        // More runs may turn an undecided verdict into a differing one.
        Verdict::Undecided => 3,
        Verdict::Differs => 4,
    }
}
