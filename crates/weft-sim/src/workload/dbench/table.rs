//! Result table of dbench: count, mean and maximum latency of each operation.

use weft_units::Span;

use super::op::{Op, OperationKind};

/// Latencies of one kind of operation.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct OperationRow {
    /// Number of operations that were counted.
    pub count: u64,
    /// Sum of the latencies.
    pub total: Span,
    /// Longest latency.
    pub max: Span,
}

impl OperationRow {
    /// Mean latency in milliseconds; 0 without operations.
    #[must_use]
    pub fn mean_ms(&self) -> f64 {
        if self.count == 0 { 0.0 } else { self.total.0 as f64 / self.count as f64 / 1e6 }
    }
}

/// Latencies and bytes of the operations that ended in the measured time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Table {
    rows: [OperationRow; OperationKind::ALL.len()],
    /// Number of bytes that `WriteX` and `ReadX` moved.
    pub bytes: u64,
    /// Number of operations that succeeded when the load was recorded, but have no file or handle
    /// to work on here.
    pub missed: u64,
}

impl Table {
    /// Latencies of the operations of one kind.
    #[must_use]
    pub fn row(&self, kind: OperationKind) -> OperationRow {
        self.rows[kind as usize]
    }

    /// Rows of all kinds that have operations.
    pub fn rows(&self) -> impl Iterator<Item = (OperationKind, OperationRow)> + '_ {
        let all = OperationKind::ALL.into_iter().map(|kind| (kind, self.row(kind)));
        all.filter(|(_, row)| row.count > 0)
    }

    /// Throughput in 10^6 bytes per second, where `measured` is the measured time.
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

    /// Adds the results of another client.
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
