//! Which rows are being discarded?
//!
//! A discard goes past the cache: each member is told to store nothing for a run of chunk rows, parity
//! included, for the parity of zeros is zero. Meanwhile nobody may look at these rows or write them.
//! Clients wait for each other anyway ([`crate::ranges`]); a sync, and what the cache does on its own
//! account, have to be kept away.
//!
//! Source   drivers/md/raid5.c, `make_discard_request`: whole stripes only, for the same reason. md
//!          sends them row by row, through its cache

use std::ops::Range;

use weft_units::RowId;

use super::rows::Rows;
use super::sync::RowSync;
use crate::raid::parity::row::Batch;
use crate::raid::slot_set::SlotSet;

/// Chunk rows that are being discarded, or about to be.
#[derive(Clone, Debug, Default)]
pub(crate) struct Discarded {
    chunk_rows: Vec<Range<u64>>,
}

impl Discarded {
    /// Keeps others away from these chunk rows.
    pub(crate) fn enter(&mut self, chunk_rows: Range<u64>) {
        self.chunk_rows.push(chunk_rows);
    }

    /// Lets others come back.
    pub(crate) fn leave(&mut self, chunk_rows: &Range<u64>) {
        let place = self.chunk_rows.iter().position(|entered| entered == chunk_rows);
        self.chunk_rows.swap_remove(place.expect("it entered"));
    }

    /// Whether the rows of a chunk row have to be left alone.
    pub(crate) fn has(&self, chunk_row: u64) -> bool {
        self.chunk_rows.iter().any(|range| range.contains(&chunk_row))
    }
}

impl Rows {
    /// The rows of these chunk rows.
    pub(crate) fn keys_of(&self, chunk_rows: &Range<u64>) -> Range<u64> {
        let rows = self.rows_per_chunk();
        chunk_rows.start * rows..chunk_rows.end * rows
    }

    /// Whether nothing goes on in any of these rows: no sync, no correction, no second attempt at what a
    /// member had no space for.
    pub(crate) fn are_quiet(&self, keys: &Range<u64>, sync: Option<&RowSync>) -> bool {
        let is_quiet = |id: &RowId| {
            let row = self.cache.row(*id);
            let untouched = !row.handle && !row.plugged && row.batch == Batch::None;
            row.in_flight == 0 && untouched && !row.has_work()
        };
        // What a sync asked for may wait for a row as well.
        sync.is_none_or(|sync| !sync.waits_for(keys))
            && self.cache.rows_of(keys).iter().all(is_quiet)
    }

    /// Forgets what is known of these rows, which are quiet.
    pub(crate) fn forget(&mut self, keys: &Range<u64>) {
        for id in self.cache.rows_of(keys) {
            let row = self.cache.row_mut(id);
            if !row.owed.is_empty() {
                // Its member needs no space for nothing.
                row.owed = SlotSet::EMPTY;
                self.no_longer_owing(id);
            }
            self.cache.forget(id);
        }
    }
}
