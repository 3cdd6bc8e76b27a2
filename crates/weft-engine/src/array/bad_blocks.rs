//! Bad-block log of a member: the data sectors of the member that hold no valid data.
//!
//! A range is recorded in three cases:
//!
//! - The recovery of a member cannot compute the range, because too many other members cannot be
//!   read there. The recovery goes on, and readers of the range get an error; without the record
//!   the whole member would be missing.
//! - A write of the range fails on a member in sync, also when the range is written on its own. The
//!   other members are read there, and the member stays in use. If the other members cannot supply
//!   the data, the client gets an error.
//! - A range of a member in sync was rewritten after a read error, and cannot be read back. The
//!   consequences are those of a failed write.
//!
//! A range is cleared when it is written, by a client or by a correction.
//!
//! The log is written before the superblocks of the next superblock update. Until that update, no
//! superblock records a recovery offset past a range that was added to the log of a member under
//! recovery; and after a member in sync missed a write, no write is acknowledged. The removal of a
//! range from the log may wait for the next update, which the end of a sync and a stop of the array
//! request: an entry that is still on the member costs only a reconstruction, and the log without
//! the entry is durable only after all earlier writes.
//!
//! A member fails if its log has no room for a range. (Linux 6.12 may then forget part of the
//! range.) The last copy of a mirror is not recorded as bad. A member under recovery, and a
//! replacement, fail at any write error. After a write error of a member, md no longer writes to
//! the member's recorded ranges; weft tries again with each write and each sync, because the drive
//! may have remapped the sectors by then.
//!
//! Source   md-badblocks.md §2 to §5

use weft_ondisk::BadBlocks;
use weft_units::{MemberIndex, SectorRange, Sectors};

use super::Array;
use crate::array::member::Member;
use crate::array::outbox::Outbox;
use crate::contract::member::MemberState;
use crate::contract::output::Notice;
use crate::mutant::Mutant;

/// Bad blocks of a member, and how far the list of them on the member is complete.
#[derive(Clone, Debug, Default)]
pub(crate) struct BadLog {
    blocks: BadBlocks,
    /// Whether the area for the log on the member holds a list.
    is_list: bool,
    /// Whether `blocks` changed after the list was last sent to the member, or that write failed.
    is_stale: bool,
    /// Lowest data sector that was recorded after the list was last sent to the member; `None` if
    /// none was. Only sectors of members under recovery count.
    unsent_from: Option<Sectors>,
    /// Value of `unsent_from` at the time when the list that is being written was sent; `None` if
    /// no write of the list is outstanding, or if the list adds no such sector.
    sent_from: Option<Sectors>,
}

impl BadLog {
    /// Log of a member with these bad blocks. `is_list` tells whether the member has a list on
    /// disk.
    pub(crate) fn new(blocks: BadBlocks, is_list: bool) -> Self {
        Self { blocks, is_list, ..Self::default() }
    }

    pub(crate) fn blocks(&self) -> &BadBlocks {
        &self.blocks
    }

    /// Whether the list has to be written to the member.
    pub(super) fn is_stale(&self) -> bool {
        self.is_stale
    }

    /// Whether the superblock is to record that the member has a list: a list is on the member, and
    /// `blocks` is not empty.
    pub(super) fn is_used(&self) -> bool {
        self.is_list && !self.blocks.is_empty()
    }

    /// Data sector up to which the list on the member is complete; `None` if all of it is.
    pub(super) fn complete_to(&self) -> Option<Sectors> {
        [self.unsent_from, self.sent_from].into_iter().flatten().min()
    }

    fn record(&mut self, range: SectorRange) {
        self.blocks.insert(range);
        self.is_stale = true;
    }

    fn hold_back(&mut self, range: SectorRange) {
        self.unsent_from = Some(self.unsent_from.unwrap_or(range.start).min(range.start));
    }

    /// Removes `range`. Returns whether any of it was bad.
    fn clear(&mut self, range: SectorRange) -> bool {
        let has_some = self.blocks.first_in(range).is_some();
        if has_some {
            self.blocks.remove(range);
            self.is_stale = true;
        }
        has_some
    }

    pub(super) fn sent(&mut self) {
        self.is_stale = false;
        self.sent_from = self.complete_to();
        self.unsent_from = None;
    }

    /// Treats the list as written although it is not, for a planted bug.
    pub(super) fn take_as_written(&mut self) {
        *self = Self::new(std::mem::take(&mut self.blocks), self.is_list);
    }

    /// Handles the answer to the write of the list; `written` tells whether the write succeeded.
    pub(super) fn answered(&mut self, written: bool) {
        let sent_from = self.sent_from.take();
        if written {
            self.is_list = true;
        } else {
            self.is_stale = true;
            self.unsent_from = [self.unsent_from, sent_from].into_iter().flatten().min();
        }
    }
}

impl Array {
    /// Records that `sectors` of the data of the member at `position` hold no valid data. Returns
    /// whether the member's log has room for them. For a member in sync, no write is acknowledged
    /// before the log is written. `lost` tells that the other members cannot supply the data
    /// either.
    pub(crate) fn records_bad(
        &mut self,
        position: usize,
        sectors: SectorRange,
        lost: bool,
        out: &mut Outbox,
    ) -> bool {
        let member = &self.members[position];
        let mut bad = member.bad.blocks().clone();
        bad.insert(sectors);
        if member.encode_bad(&bad).is_none() {
            return false;
        }
        if bad == *member.bad.blocks() {
            return true;
        }
        let (index, at) = (member.info.index, member.data_sector(sectors.start));
        let in_sync = member.state == MemberState::InSync;
        out.notice(Notice::BadBlocks { member: index, at, sectors: sectors.len, lost });
        if self.membership.is_planted(Mutant::BadBlockForgotten) {
            return true;
        }
        let member = &mut self.members[position];
        member.bad.record(sectors);
        if in_sync {
            let number = self.want_update();
            self.updates.records_failures = self.updates.records_failures.max(number);
        } else {
            member.bad.hold_back(sectors);
        }
        self.bad_changed(position);
        true
    }

    /// Records that `sectors` of the data of member `index` were written, and so are not bad any
    /// more.
    pub(crate) fn written_over(&mut self, index: Option<MemberIndex>, sectors: SectorRange) {
        let position = index.and_then(|index| self.position_of(index));
        let Some(position) = position.filter(|it| !self.members[*it].is_faulty()) else { return };
        if self.members[position].bad.clear(sectors) {
            self.bad_changed(position);
        }
    }

    /// Requests a superblock update if a bad-block log changed since the last one: at the end of a
    /// sync, and when the array is stopped.
    pub(crate) fn record_bad_blocks(&mut self) {
        let has_changed = |member: &Member| member.bad.is_stale() && !member.is_faulty();
        let sealed = self.membership.read_only || self.membership.broken;
        if !sealed && self.members.iter().any(has_changed) {
            self.want_update();
        }
    }

    fn bad_changed(&mut self, position: usize) {
        let member = &self.members[position];
        if let Some(slot) = member.slot {
            self.membership.set_bad(slot, member.bad.blocks());
        }
        self.recount_before();
    }
}
