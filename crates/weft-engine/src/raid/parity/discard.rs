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

#[cfg(test)]
mod tests {
    use weft_ondisk::Level;
    use weft_units::{Sectors, Slot, VolumeId};

    use super::*;
    use crate::SyncAction;
    use crate::frame::Frame;
    use crate::knobs::CacheForm;
    use crate::raid::geometry::Geometry;
    use crate::raid::parity::cache::{Acquired, Cache};
    use crate::raid::parity::row::{Row, RowSyncState};

    /// Rows of three members, 8 of them in a chunk row; one is in use, row 5.
    fn rows(change: fn(&mut Row)) -> Rows {
        let geometry = Geometry::new(Level::Raid5, 2, 3, Sectors(64), Sectors(512)).unwrap();
        let mut cache = Cache::new(16, Frame(0), 3, Sectors(8), None, CacheForm::Today);
        let Acquired::Row(id) = cache.acquire(5, &geometry) else { panic!("all are free") };
        change(cache.row_mut(id));
        Rows::new(VolumeId(0), cache, Sectors(64))
    }

    #[test]
    fn chunk_row_is_quiet_unless_something_goes_on_in_one_of_its_rows() {
        let goes_on: [fn(&mut Row); 6] = [
            |row| row.handle = true,
            |row| row.plugged = true,
            |row| row.batch = Batch::Head(vec![RowId(9)]),
            |row| row.batch = Batch::Follower(RowId(9)),
            |row| row.in_flight = 1,
            |row| row.sync = Some((SyncAction::Check, RowSyncState::Requested)),
        ];
        for (change, number) in goes_on.into_iter().zip(0..) {
            assert!(!rows(change).are_quiet(&(0..8), None), "change {number}");
            assert!(rows(change).are_quiet(&(8..16), None), "change {number}");
        }
        assert!(rows(|_| {}).are_quiet(&(0..8), None));
    }

    #[test]
    fn rows_of_a_chunk_row_that_is_discarded_are_forgotten_and_owe_nothing() {
        for keys in [0..5, 0..8, 0..64] {
            let mut rows = rows(|row| row.owed = SlotSet::only(Slot(1)));
            let id = rows.cache.find(5).unwrap();
            rows.forget(&keys);
            let forgotten = keys.contains(&5);
            assert_eq!(rows.cache.find(5).is_none(), forgotten, "{keys:?}");
            assert_eq!(rows.cache.row(id).owed.is_empty(), forgotten, "{keys:?}");
        }
    }
}
