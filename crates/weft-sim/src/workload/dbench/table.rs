//! Result table of dbench: count, mean and maximum latency of each operation.

use weft_units::Span;

use super::op::{Op, OperationKind};

/// A kind of operation.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct OperationRow {
    /// Number of operations that ended.
    pub count: u64,
    /// Sum of their latencies.
    pub total: Span,
    /// The longest.
    pub max: Span,
}

impl OperationRow {
    /// Mean latency, ms.
    #[must_use]
    pub fn mean_ms(&self) -> f64 {
        if self.count == 0 { 0.0 } else { self.total.0 as f64 / self.count as f64 / 1e6 }
    }
}

/// Operations that ended within the measured time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Table {
    rows: [OperationRow; OperationKind::ALL.len()],
    /// Bytes of `WriteX` and `ReadX`.
    pub bytes: u64,
    /// Operations that a load says succeed, and here there was nothing for them to work on.
    pub missed: u64,
}

impl Table {
    /// A row.
    #[must_use]
    pub fn row(&self, kind: OperationKind) -> OperationRow {
        self.rows[kind as usize]
    }

    /// All rows that have operations.
    pub fn rows(&self) -> impl Iterator<Item = (OperationKind, OperationRow)> + '_ {
        let all = OperationKind::ALL.into_iter().map(|kind| (kind, self.row(kind)));
        all.filter(|(_, row)| row.count > 0)
    }

    /// 10^6 bytes of reads and writes a second, if all this took so long.
    #[must_use]
    pub fn throughput(&self, measured: Span) -> f64 {
        self.bytes as f64 * 1e3 / measured.0 as f64
    }

    pub(super) fn count(&mut self, op: &Op, took: Span) {
        let row = &mut self.rows[op.kind() as usize];
        row.count += 1;
        row.total = Span(row.total.0 + took.0);
        row.max = row.max.max(took);
        self.bytes += op.bytes();
    }

    /// Takes in what another client did.
    pub fn add(&mut self, other: &Self) {
        for (row, other) in self.rows.iter_mut().zip(&other.rows) {
            row.count += other.count;
            row.total = Span(row.total.0 + other.total.0);
            row.max = row.max.max(other.max);
        }
        self.bytes += other.bytes;
        self.missed += other.missed;
    }
}
