//! Durable superblocks: members in sync, and the clean state, as the next restart would read them.
//!
//! Checkers take this record from the media and never ask the engine for it.

use std::sync::Arc;

use weft_ondisk::{
    BITMAP_HEADER_BYTES, BadBlocks, Bitmap, BitmapContext, ChunkState, Features, Role, Superblock,
    Version,
};
use weft_units::{SECTOR_BYTES, SectorRange, Sectors, Slot};

use super::Array;
use crate::disk::Disk;

/// The durable superblock and bitmap of every disk.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Record {
    supers: Vec<Option<Arc<Parsed>>>,
    /// Bitmap of each disk; `None` where no readable superblock announces a bitmap, or it does not
    /// parse.
    bitmaps: Vec<Option<Bitmap>>,
    /// Bad blocks of each disk, from its bad-block log; empty without a log.
    bad: Vec<BadBlocks>,
    gone: Vec<bool>,
    freshest: Option<usize>,
    /// Slot at which the freshest superblock counts each disk as in sync.
    in_sync: Vec<Option<Slot>>,
}

/// A superblock, with the bytes and the disk size from which it was parsed.
#[derive(Debug, PartialEq)]
struct Parsed {
    superblock: Superblock,
    bytes: Vec<u8>,
    /// Size of the disk when it was parsed.
    size: Sectors,
}

/// The superblock of a disk, even if a fault makes its sectors unreadable; `None` if it does not
/// parse. If `known` was parsed from the same bytes, a copy of `known` is returned.
fn parsed(disk: &Disk, version: Version, known: Option<&Arc<Parsed>>) -> Option<Arc<Parsed>> {
    let size = disk.size();
    let at = version.position(size).filter(|at| at.0 + 8 <= size.0)?;
    let bytes = disk.peek_stable(at.0, 8);
    if let Some(known) = known
        && known.size == size
        && known.bytes == bytes
    {
        return Some(known.clone());
    }
    // A member that joined after its disk shrank has a superblock for the short size. A disk that
    // shrank later, to an end behind its superblock, has a superblock for the original size.
    let of_size = |size| Superblock::parse(&bytes, version, size).ok();
    let superblock = of_size(size).or_else(|| of_size(disk.whole_size()))?;
    Some(Arc::new(Parsed { superblock, bytes, size }))
}

/// Whether the sectors of a disk's superblock hold only zeros, or lie beyond the end of the disk.
fn is_wiped(disk: &Disk, version: Version) -> bool {
    let at = version.position(disk.size()).filter(|at| at.0 + 8 <= disk.size().0);
    at.is_none_or(|at| disk.peek_stable(at.0, 8).iter().all(|byte| *byte == 0))
}

/// Sectors of a disk that its superblock reserves for the bitmap; `None` without a bitmap.
fn bitmap_room(disk: &Disk, sb: &Superblock) -> Option<SectorRange> {
    sb.bitmap_room(disk.whole_size()).ok().flatten()
}

/// Bitmap of a disk with the given superblock; `None` if there is none, or it does not parse.
fn bitmap_of(disk: &Disk, sb: &Superblock) -> Option<Bitmap> {
    let room = bitmap_room(disk, sb)?;
    let context = BitmapContext {
        uuid: sb.bitmap_uuid(),
        events: sb.events(),
        sync_size: sb.sync_size(),
        room: room.len,
        origin: sb.as_v0_90().map(|old| old.order),
    };
    let count = room.len.0.min(8).min(disk.size().0.saturating_sub(room.start.0));
    let bytes = (count > 0).then(|| disk.peek_stable(room.start.0, count))?;
    Bitmap::parse(&bytes, &context).ok()
}

/// Bad blocks in the log of a disk with the given superblock; `None` if there is no log, or it does
/// not parse.
fn bad_blocks_of(disk: &Disk, sb: &Superblock) -> Option<BadBlocks> {
    let area = sb.badblocks_area()?;
    let bytes = disk.peek_stable(area.start.0, area.len.0);
    BadBlocks::parse(&bytes, &sb.badblocks_context(disk.whole_size())).ok()
}

impl Record {
    /// Reads the superblocks of all disks, each at the position that `version` defines.
    #[must_use]
    pub fn read(disks: &[Disk], version: impl Into<Version>) -> Self {
        Self::default().read_again(disks, version)
    }

    /// Reads the superblocks of all disks again, as [`Record::read`] does. `self` is an earlier
    /// record of the same disks; superblocks that have not changed since are not parsed again.
    #[must_use]
    pub fn read_again(&self, disks: &[Disk], version: impl Into<Version>) -> Self {
        let version = version.into();
        let read = |(number, disk): (usize, &Disk)| {
            let at = version.position(disk.size())?;
            // An unreadable superblock does not exist until it is written anew.
            if !disk.is_readable(at.0, 8) {
                return None;
            }
            parsed(disk, version, self.known(number))
        };
        let gone = disks.iter().map(|disk| disk.faults.gone).collect();
        let mut record = Self::new(disks.iter().enumerate().map(read).collect(), gone);
        let bitmap = |(number, disk)| bitmap_of(disk, record.of(number)?);
        record.bitmaps = disks.iter().enumerate().map(bitmap).collect();
        record.with_bad(disks)
    }

    fn with_bad(mut self, disks: &[Disk]) -> Self {
        let bad = |(number, disk)| bad_blocks_of(disk, self.of(number)?);
        self.bad = disks.iter().enumerate().map(|it| bad(it).unwrap_or_default()).collect();
        self
    }

    fn known(&self, disk: usize) -> Option<&Arc<Parsed>> {
        self.supers.get(disk)?.as_ref()
    }

    /// Forgets the superblocks of the given disks, which belong to another array.
    pub fn leave_out(&mut self, disks: std::ops::Range<usize>) {
        let supers = self.supers.iter().enumerate();
        let kept = |(disk, sb): (usize, &Option<Arc<Parsed>>)| {
            sb.clone().filter(|_| !disks.contains(&disk))
        };
        if !disks.is_empty() {
            let (bitmaps, bad) = (std::mem::take(&mut self.bitmaps), std::mem::take(&mut self.bad));
            *self = Self::new(supers.map(kept).collect(), self.gone.clone());
            (self.bitmaps, self.bad) = (bitmaps, bad);
        }
    }

    /// Content of the superblocks as they were last written whole, including those that have since
    /// become unreadable or that a failed write tore, because the engine cannot know of such a
    /// loss. `self` was read from the same disks; `before` is the record as the engine read or
    /// wrote it until then. `None` if the result would equal `self`.
    #[must_use]
    pub fn written(
        &self,
        disks: &[Disk],
        version: impl Into<Version>,
        before: Option<&Self>,
    ) -> Option<Self> {
        let version = version.into();
        let before = |disk: usize| before.and_then(|before| before.known(disk));
        let whole = |disk: usize| {
            let state = &disks[disk];
            let torn = || before(disk).filter(|_| !is_wiped(state, version)).cloned();
            parsed(state, version, before(disk)).or_else(torn)
        };
        let known = |disk: usize| self.known(disk).cloned().or_else(|| whole(disk));
        let supers: Vec<_> = (0..disks.len()).map(known).collect();
        (supers != self.supers).then(|| Self::new(supers, self.gone.clone()).with_bad(disks))
    }

    /// The superblock of a disk, even if it is unreadable or lies beyond the end of a disk that
    /// shrank; `None` if it does not parse.
    #[must_use]
    pub fn on_media(disk: &Disk, version: impl Into<Version>) -> Option<Superblock> {
        let (version, size) = (version.into(), disk.whole_size());
        let beyond = || {
            let bytes = disk.peek_stable(version.position(size)?.0, 8);
            Superblock::parse(&bytes, version, size).ok()
        };
        let here = parsed(disk, version, None).map(|it| it.superblock.clone());
        here.or_else(beyond)
    }

    /// A record of superblocks that are already parsed, by disk, without bitmaps. Disks for which
    /// `gone` is true are absent.
    fn new(supers: Vec<Option<Arc<Parsed>>>, gone: Vec<bool>) -> Self {
        let present = (0..supers.len()).filter(|disk| !gone[*disk]);
        // Only a superblock with a slot can be the freshest: a spare may lag or lead. Among
        // superblocks with the same events, one that no other of them records as failed is
        // preferred.
        let has_slot = |sb: &&Superblock| matches!(sb.own_role(), Ok(Role::Active(_)));
        let with_slot: Vec<(usize, &Superblock)> = present
            .filter_map(|disk| {
                let superblock = &supers[disk].as_ref()?.superblock;
                Some((disk, Some(superblock).filter(has_slot)?))
            })
            .collect();
        let most = with_slot.iter().map(|(_, sb)| sb.events()).max();
        let equals = || with_slot.iter().filter(|(_, sb)| Some(sb.events()) == most);
        let has_failed =
            |of: &Superblock| equals().any(|(_, by)| by.role(of.dev_number()) == Ok(Role::Faulty));
        let freshest = equals().min_by_key(|(disk, sb)| (has_failed(sb), *disk));
        let freshest = freshest.map(|(disk, _)| *disk);
        let disks = 0..supers.len();
        let mut record = Self { supers, gone, freshest, ..Self::default() };
        let counted = |disk: usize| freshest.and_then(|freshest| record.slot_by(freshest, disk));
        record.in_sync = disks.map(counted).collect();
        record
    }

    /// Copy of this record for an engine that started without some disks: the disks for which
    /// `left_out` is true count as gone.
    #[must_use]
    pub fn without(&self, left_out: impl Fn(usize) -> bool) -> Self {
        let gone = self.gone.iter().zip(0..).map(|(gone, disk)| *gone || left_out(disk));
        Self::new(self.supers.clone(), gone.collect())
    }

    /// Whether any disk has a bitmap.
    #[must_use]
    pub fn has_bitmaps(&self) -> bool {
        self.bitmaps.iter().any(Option::is_some)
    }

    /// First disk that is present, in sync and has a clear bit for this column in its bitmap;
    /// `None` if there is none. A clear bit promises that members agree in the column.
    #[must_use]
    pub fn clear_bit(&self, column: u64) -> Option<usize> {
        let clear = |bitmap: &Bitmap| bitmap.state(column / bitmap.chunk.0) == ChunkState::Clean;
        let says = |disk: &usize| self.bitmaps[*disk].as_ref().is_some_and(clear);
        (0..self.bitmaps.len())
            .find(|disk| says(disk) && !self.gone[*disk] && self.is_in_sync(*disk))
    }

    /// Bitmap chunks that a metadata write of `bytes` to sector `at` of a disk marks as clean: the
    /// first column of each chunk, and its length in columns. Empty if the write is not to the
    /// bitmap of a disk in sync.
    #[must_use]
    pub fn cleared_by(&self, state: &Disk, disk: usize, at: u64, bytes: &[u8]) -> Vec<(u64, u64)> {
        let Some(Some(bitmap)) = self.bitmaps.get(disk) else { return Vec::new() };
        let Some(room) = self.of(disk).and_then(|sb| bitmap_room(state, sb)) else {
            return Vec::new();
        };
        let inside = (room.start.0..room.end().0).contains(&at);
        if !inside || !self.is_in_sync(disk) {
            return Vec::new();
        }
        let before = state.peek_stable(at, bytes.len() as u64 / SECTOR_BYTES);
        let first = (at - room.start.0) * SECTOR_BYTES;
        let clears = |(before, after): (&u8, &u8)| before & !after;
        let bytes = (first..).zip(before.iter().zip(bytes).map(clears));
        let cleared =
            bytes.filter(|(byte, bits)| *bits != 0 && *byte >= BITMAP_HEADER_BYTES as u64);
        let cleared = cleared.flat_map(|(byte, bits)| {
            let number = (byte - BITMAP_HEADER_BYTES as u64) * 8;
            (0..8).filter(move |bit| bits >> bit & 1 == 1).map(move |bit| number + bit)
        });
        let chunk = bitmap.chunk.0;
        cleared.map(|number| (number * chunk, chunk)).collect()
    }

    /// Whether the log of a disk lists a data sector as bad.
    #[must_use]
    pub fn is_bad(&self, disk: usize, sector: u64) -> bool {
        let bad = self.bad.get(disk);
        bad.is_some_and(|bad| bad.first_in(SectorRange::new(sector, 1)).is_some())
    }

    /// The slot that a disk's own superblock claims; `None` if it claims none or cannot be read.
    #[must_use]
    pub fn own_slot(&self, disk: usize) -> Option<Slot> {
        match self.of(disk)?.own_role() {
            Ok(Role::Active(slot)) => Some(slot),
            _ => None,
        }
    }

    /// Column ([`crate::array`]) that sector `absolute` of a disk belongs to; `None` if the sector
    /// holds no data of the array. Without parity, the column depends on the slot that the disk's
    /// own superblock names, and is `None` if it names none.
    #[must_use]
    pub fn column_at(&self, array: &Array, disk: usize, absolute: u64) -> Option<u64> {
        let sector = array.data_sector(disk, absolute)?;
        if array.has_parity() {
            return Some(sector);
        }
        array.column_of(self.own_slot(disk)?, sector)
    }

    /// The superblock of a disk; `None` if it cannot be read.
    #[must_use]
    pub fn of(&self, disk: usize) -> Option<&Superblock> {
        self.known(disk).map(|known| &known.superblock)
    }

    /// The superblock with the most events among those of present disks that claim a slot; `None`
    /// if there is none.
    #[must_use]
    pub fn freshest(&self) -> Option<&Superblock> {
        self.of(self.freshest?)
    }

    /// Slot at which the superblock of disk `witness` counts `disk` as in sync; `None` if it does
    /// not.
    fn slot_by(&self, witness: usize, disk: usize) -> Option<Slot> {
        let own = self.of(disk)?;
        // A disk that has no slot in its own superblock does not have all of its data.
        let has_slot = matches!(own.own_role(), Ok(Role::Active(_)));
        if own.recovery_offset().is_some() || !has_slot {
            return None;
        }
        let witness = self.of(witness)?;
        // A disk is not in sync if its events lag by more than one, even if its number is listed as
        // active: the number may belong to another disk by now.
        if own.events() + 1 < witness.events() {
            return None;
        }
        match witness.role(own.dev_number()).ok()? {
            Role::Active(slot) => Some(slot),
            _ => None,
        }
    }

    /// Number of the present disk that is in sync at a slot, according to the freshest superblock;
    /// `None` if there is none.
    #[must_use]
    pub fn in_sync(&self, slot: Slot) -> Option<usize> {
        (0..self.supers.len()).find(|disk| !self.gone[*disk] && self.in_sync[*disk] == Some(slot))
    }

    /// Number of the disk that at least one survivor counts as in sync at a slot; `None` if no
    /// survivor counts any. If the other survivors were lost, a restart would count this disk as in
    /// sync. A survivor is another disk that is present and that the freshest superblock counts as
    /// in sync.
    #[must_use]
    pub fn believed(&self, slot: Slot) -> Option<usize> {
        let disks = 0..self.supers.len();
        let witness = |disk: usize, witness: usize| {
            witness != disk && !self.gone[witness] && self.is_in_sync(witness)
        };
        disks.clone().find(|disk| {
            disks
                .clone()
                .any(|other| witness(*disk, other) && self.slot_by(other, *disk) == Some(slot))
        })
    }

    /// Whether the freshest superblock counts a disk as in sync at any slot.
    #[must_use]
    pub fn is_in_sync(&self, disk: usize) -> bool {
        self.in_sync.get(disk).is_some_and(Option::is_some)
    }

    /// Whether the disk is being filled to replace a working member, according to its own
    /// superblock.
    #[must_use]
    pub fn is_replacement(&self, disk: usize) -> bool {
        self.of(disk).is_some_and(|sb| sb.features().contains(Features::REPLACEMENT))
    }

    /// Whether the superblocks of all disks in sync say that the array is dirty.
    #[must_use]
    pub fn all_dirty(&self) -> bool {
        (0..self.supers.len())
            .filter(|disk| !self.gone[*disk] && self.is_in_sync(*disk))
            .all(|disk| self.of(disk).is_some_and(|sb| sb.dirty_from().is_some()))
    }

    /// Data sector of members from which on parity may be wrong, according to the freshest
    /// superblock; `None` if the array is clean.
    #[must_use]
    pub fn dirty_from(&self) -> Option<Sectors> {
        self.freshest()?.dirty_from()
    }
}
