//! Write-intent bitmap: which chunks may differ between members, and when a bit is set and cleared.
//!
//! A chunk's bit is durable on every member before a lease on the chunk is granted. It is cleared
//! after two runs, `daemon_sleep` apart, have found no lease on the chunk, and after a flush has
//! made the chunk's writes durable on every member. No bit is cleared while a slot lacks an in-sync
//! member, because the bits record what that slot's member misses. Pages are written in *rounds*,
//! one round at a time, so that one page write serves all leases that wait.
//!
//! ```text
//!          lease                round done             give back, run
//! clear ──────────▶ unwritten ────────────▶ set, used ────────────────▶ old ──run, flush──▶ clear
//!                                               ▲                        │
//!                                               └───────── lease ────────┘
//! ```
//!
//! `events_cleared` is the update count of a superblock update at which no member was missing, and
//! is durable before a bit is cleared. A member that left before that update is copied completely;
//! a member that left later misses only chunks with their bit set.
//!
//! Source   md-raid.md §6.4, md-ondisk.md §3.5 (md: `md_bitmap_startwrite`,
//!          `md_bitmap_daemon_work`)
//! Unlike md: all members are flushed before a bit is cleared, and the pages for a first write are
//!          written in the round of the header, before the superblocks and not after them

use std::collections::BTreeSet;
use std::ops::Range;

use weft_ondisk::{BITMAP_HEADER_BYTES, Bitmap, BitmapHeader, Trust};
use weft_units::{Bytes, MemberIndex, SECTOR_BYTES, SectorRange, Sectors, Span, Time};

use crate::array::Array;
use crate::array::member::Member;
use crate::array::outbox::{Outbox, Owner};
use crate::array::superblock_update::FlushFor;
use crate::contract::input::Fault;
use crate::contract::member::MemberState;
use crate::contract::output::MemberOp;
use crate::contract::snapshot::BitmapSnapshot;
use crate::knobs::Knobs;
use crate::layout::Layout;
use crate::mutant::Mutant;

/// Unit in which the bitmap is written, in bytes, as in md. The header is in the first page.
const PAGE: usize = 4096;

/// Number of chunks per page of md's in-memory bitmap; `mdstat` shows the number of these pages.
const CHUNKS_OF_PAGE: usize = 2048;

// Word of a chunk: the number of leases on it, and these flags.

/// The chunk's bit is set.
const SET: u32 = 1 << 31;
/// The bit is set in memory, and no finished write of bitmap pages has made it durable.
const UNWRITTEN: u32 = 1 << 30;
/// The chunk has to be resynced, unless the resync in progress has already covered it.
const NEEDED: u32 = 1 << 29;
/// The chunk is in the list [`Runs::listed`], so that the next run checks it.
const LISTED: u32 = 1 << 28;
/// The last run found no lease on the chunk, and none was taken since then, so that the next run
/// may clear the bit.
const OLD: u32 = 1 << 27;
const LEASES: u32 = OLD - 1;

/// Chunks of the bitmap that a lease (a permission to write a range of the array) covers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Chunks {
    first: u32,
    count: u32,
}

impl Chunks {
    /// Whether the lease covers no chunk, because a sync holds it or the array has no bitmap.
    pub(super) fn is_empty(self) -> bool {
        self.count == 0
    }
}

/// Progress of the removal of the bitmap.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Leaving {
    No,
    /// The superblock update with this number removes the bitmap from superblocks. Until the update
    /// is done, a crash may leave the bitmap named in a superblock, so its bits must be complete.
    With(u64),
    /// No superblock names the bitmap. The bitmap remains in memory until nothing is in flight and
    /// no lease is on its chunks.
    Gone,
}

/// Write-intent bitmap of an array in use.
#[derive(Clone, Debug)]
pub(in crate::array) struct IntentBitmap {
    layout: Layout,
    /// Binary logarithm of the number of sectors per chunk.
    shift: u32,
    header: BitmapHeader,
    /// Header and bits as the members should have them, padded to whole pages.
    image: Vec<u8>,
    /// Number of bytes of the image that header and bits fill; the rest is padding.
    len: usize,
    /// For each chunk, its number of leases and its flags.
    chunks: Vec<u32>,
    /// Pages of the image that changed and have not been written to the members yet.
    changed: BTreeSet<usize>,
    /// Chunks with a bit that was set since the last round (write of changed pages) began.
    unwritten: Vec<u32>,
    round: Option<Round>,
    runs: Runs,
    /// Update count of the last finished superblock update. Every in-sync member has recorded it.
    recorded_events: u64,
    /// Number of leases that the bitmap does not count on any chunk, because their writes began
    /// while the bitmap was not in use: before it existed or after it was removed. No bit is
    /// cleared while there are any.
    uncounted: u32,
    leaving: Leaving,
}

/// Pages that are being written to the members.
#[derive(Clone, Debug, Default)]
struct Round {
    pages: Vec<usize>,
    /// Chunks with a bit that becomes durable when the pages in `pages` are written.
    chunks: Vec<u32>,
    /// Whether the pages are written for a superblock update, which continues after it.
    update: bool,
    /// Whether the pages include a header with an `events_cleared` that was set since a member last
    /// joined or left.
    events_cleared: bool,
    outstanding: u32,
    /// Members to which the pages are being written a second time, after an error.
    again: Vec<MemberIndex>,
    second: bool,
    /// Whether a member had no space for its pages.
    no_space: bool,
}

/// State of the runs: the periodic searches for bits that can be cleared, `daemon_sleep` apart.
#[derive(Clone, Debug)]
struct Runs {
    sleep: Span,
    last: Time,
    /// Chunks that have a set bit and no lease, to be examined by the next search for bits to
    /// clear.
    listed: Vec<u32>,
    /// Chunks with a bit that is to be cleared once the flush of the members for this run is done.
    clearing: Vec<u32>,
    flush: u64,
    flushing: bool,
    /// Whether `events_cleared` was updated in the header (`marked`), and whether it is durable on
    /// the members (`recorded`). Both become false when a member joins or leaves.
    marked: bool,
    recorded: bool,
    /// The sector up to which the array is resynced, if the last run found only chunks that wait
    /// for the resync; no run is needed until the resync has got further. `None` if the run found
    /// other chunks.
    waits_for_resync: Option<Sectors>,
}

impl IntentBitmap {
    /// Creates the bitmap of an assembled array.
    ///
    /// Shape    `needed`: ranges to be resynced; `recorded_events`: the least update count of the
    ///          in-sync members
    pub(in crate::array) fn new(
        bitmap: &Bitmap,
        layout: Layout,
        needed: impl Iterator<Item = SectorRange>,
        recorded_events: u64,
        now: Time,
    ) -> Self {
        let shift = bitmap.chunk.0.trailing_zeros();
        let mut image = bitmap.encode();
        let len = image.len();
        image.resize(len.next_multiple_of(PAGE), 0);
        let count = bitmap.chunk_count() as usize;
        let mut chunks = vec![0; count];
        let mut listed = Vec::new();
        for (chunk, word) in (0u32..).zip(&mut chunks) {
            if image[bit_of(chunk).0] & bit_of(chunk).1 != 0 {
                *word = SET | LISTED;
                listed.push(chunk);
            }
        }
        let mut header = bitmap.header.clone();
        header.sync_size = bitmap.sync_size;
        if matches!(bitmap.trust, Trust::Stale(_)) {
            // Every bit is set now, so no bit is out of date.
            header = header.as_current();
            header.events_cleared = recorded_events;
        }
        let runs = Runs {
            sleep: Span::secs(header.daemon_sleep.into()),
            last: now,
            listed,
            clearing: Vec::new(),
            flush: 0,
            flushing: false,
            marked: false,
            recorded: false,
            waits_for_resync: None,
        };
        let mut bitmap = Self {
            layout,
            shift,
            header,
            changed: BTreeSet::new(),
            image,
            len,
            chunks,
            unwritten: Vec::new(),
            round: None,
            runs,
            recorded_events,
            uncounted: 0,
            leaving: Leaving::No,
        };
        for range in needed {
            bitmap.need(range);
        }
        bitmap
    }

    /// Chunks that a range of the resync space ([`Layout::resync_size`]) touches.
    #[inline]
    fn chunks_of(&self, range: SectorRange) -> Range<u32> {
        if range.len == Sectors::ZERO {
            return 0..0;
        }
        let end = ((range.end().0 - 1) >> self.shift) as u32 + 1;
        (range.start.0 >> self.shift) as u32..end
    }

    /// Takes a lease on (begins a write to) a range of the resync space, and returns the chunks
    /// that the lease covers. Bits that are clear are set, and have to be written to the members
    /// before the write.
    #[inline]
    pub(super) fn take(&mut self, range: SectorRange) -> Chunks {
        if self.leaving == Leaving::Gone {
            self.uncounted += 1;
            return Chunks::default();
        }
        let Range { start, end } = self.chunks_of(range);
        if start == end {
            self.uncounted += 1;
        }
        for chunk in start..end {
            let word = &mut self.chunks[chunk as usize];
            *word = (*word & !OLD) + 1;
            if *word & SET == 0 {
                self.set(chunk);
            }
        }
        Chunks { first: start, count: end - start }
    }

    #[cold]
    fn set(&mut self, chunk: u32) {
        let (byte, bit) = bit_of(chunk);
        self.chunks[chunk as usize] |= SET | UNWRITTEN;
        self.image[byte] |= bit;
        self.changed.insert(byte / PAGE);
        self.unwritten.push(chunk);
    }

    /// Whether the bits of a lease's chunks are durable on every member.
    #[inline]
    pub(super) fn holds(&self, chunks: Chunks) -> bool {
        let waits = !self.unwritten.is_empty() || self.round.is_some();
        !waits
            || self.words(chunks).iter().all(|word| word & UNWRITTEN == 0)
            || self.leaving == Leaving::Gone
    }

    fn words(&self, chunks: Chunks) -> &[u32] {
        &self.chunks[chunks.first as usize..][..chunks.count as usize]
    }

    #[inline]
    pub(super) fn give_back(&mut self, chunks: Chunks, now: Time) {
        if chunks.is_empty() {
            assert!(self.uncounted > 0, "an uncounted lease is given back once");
            self.uncounted -= 1;
        }
        for chunk in chunks.first..chunks.first + chunks.count {
            let word = &mut self.chunks[chunk as usize];
            assert!(*word & LEASES > 0, "a chunk is left as often as it was taken");
            *word -= 1;
            if *word & (LEASES | LISTED) == 0 {
                self.list(chunk, now);
            }
        }
    }

    #[cold]
    fn list(&mut self, chunk: u32, now: Time) {
        if self.runs.listed.is_empty() {
            self.runs.last = now;
        }
        self.chunks[chunk as usize] |= LISTED;
        self.runs.listed.push(chunk);
        self.runs.waits_for_resync = None;
    }

    /// Marks the chunks of a range that have their bit set as chunks to be resynced.
    fn need(&mut self, range: SectorRange) {
        let Range { start, end } = self.chunks_of(range);
        for word in &mut self.chunks[start as usize..end as usize] {
            if *word & SET != 0 {
                *word |= NEEDED;
            }
        }
    }

    /// Ranges of chunks that have all flags of the mask `all`, in order, with adjacent chunks
    /// joined.
    fn ranges(&self, all: u32) -> Vec<SectorRange> {
        let size = self.layout.resync_size().0;
        let mut ranges: Vec<SectorRange> = Vec::new();
        for (chunk, word) in (0u64..).zip(&self.chunks) {
            let start = chunk << self.shift;
            if word & all != all || start >= size {
                continue;
            }
            let len = (1 << self.shift).min(size - start);
            match ranges.last_mut() {
                Some(last) if last.end().0 == start => last.len.0 += len,
                _ => ranges.push(SectorRange::new(start, len)),
            }
        }
        ranges
    }

    /// Whether no bitmap page is being written, and no flush of the members for bits to be cleared
    /// is in flight.
    pub(in crate::array) fn is_quiet(&self) -> bool {
        self.round.is_none() && !self.runs.flushing
    }

    /// Records that a member joined or left. A member that left before the present change counts as
    /// too old for the bitmap once bits are cleared after the change.
    pub(in crate::array) fn members_changed(&mut self) {
        (self.runs.marked, self.runs.recorded) = (false, false);
        if let Some(round) = &mut self.round {
            round.events_cleared = false;
        }
    }

    /// Gets chunks for the part of the resync space that the array has with `layout` and did not
    /// have before. They have to be resynced.
    pub(in crate::array) fn grow(&mut self, layout: Layout) {
        let before = self.layout.resync_size();
        let size = layout.resync_size();
        self.layout = layout;
        self.header.sync_size = size;
        if size <= before {
            return;
        }
        self.len = Self::bytes_for(size, self.shift).0 as usize;
        self.image.resize(self.len.next_multiple_of(PAGE), 0);
        self.chunks.resize(size.0.div_ceil(1 << self.shift) as usize, 0);
        let added = SectorRange::new(before.0, size.0 - before.0);
        for chunk in self.chunks_of(added) {
            let word = self.chunks[chunk as usize];
            if word & SET == 0 {
                self.set(chunk);
            }
            if word & (LEASES | LISTED) == 0 {
                self.chunks[chunk as usize] |= LISTED;
                self.runs.listed.push(chunk);
            }
        }
        self.runs.waits_for_resync = None;
        self.need(added);
    }

    /// Bytes of header and bits for a resync space of `size`.
    fn bytes_for(size: Sectors, shift: u32) -> Bytes {
        let chunks = size.0.div_ceil(1 << shift);
        Bytes(BITMAP_HEADER_BYTES as u64 + chunks.div_ceil(8))
    }

    /// Bytes of header and bits with `layout`; `None` if they are more than the header reserves.
    pub(super) fn bytes_with(&self, layout: &Layout) -> Option<Bytes> {
        let bytes = Self::bytes_for(layout.resync_size(), self.shift);
        let reserved = Sectors(self.header.sectors_reserved.into());
        (reserved == Sectors::ZERO || bytes.sectors_ceil() <= reserved).then_some(bytes)
    }

    /// Sets the layout of the array after a reshape. The resync space keeps its size.
    pub(in crate::array) fn set_layout(&mut self, layout: Layout) {
        assert_eq!(layout.resync_size(), self.layout.resync_size(), "a bit stands for the same");
        self.layout = layout;
    }

    /// First sector after the bitmap on a member, if the bitmap begins at `start` there.
    pub(in crate::array) fn end_from(&self, start: Sectors) -> Sectors {
        start + Bytes(self.image.len() as u64).sectors_floor()
    }

    /// Notes that the superblock update with update count `events` is done.
    pub(in crate::array) fn update_done(&mut self, events: u64) {
        self.recorded_events = events;
    }

    /// Lowest update count that a returning member may have: a member with this count or a higher
    /// one misses only chunks with their bit set.
    pub(in crate::array) fn events_cleared(&self) -> u64 {
        self.header.events_cleared
    }

    /// Size of the header and the bits in bytes.
    pub(super) fn bytes(&self) -> Bytes {
        Bytes(self.len as u64)
    }

    /// Sets the number of outstanding leases that hold none of the bitmap's chunks, because they
    /// were taken before the bitmap was added.
    pub(super) fn begun_with(self, leases: u32) -> Self {
        Self { uncounted: leases, ..self }
    }

    /// Begins the removal of the bitmap: superblock update number `update` is the first without it.
    pub(super) fn leave_with(&mut self, update: u64) {
        self.leaving = Leaving::With(update);
    }

    /// Whether the bitmap is being removed, or is removed and is kept only until its last page
    /// writes and leases have ended.
    pub(super) fn is_leaving(&self) -> bool {
        self.leaving != Leaving::No
    }

    /// Records that superblock update number `update` is done. If the removal of the bitmap waited
    /// for this update, no superblock names the bitmap any more.
    pub(in crate::array) fn leaves_with(&mut self, update: u64) {
        if matches!(self.leaving, Leaving::With(number) if number <= update) {
            self.leaving = Leaving::Gone;
        }
    }

    /// Whether nothing needs the removed bitmap any more: no write of its pages is in flight, and
    /// no lease is on its chunks.
    fn is_left(&self) -> bool {
        self.leaving == Leaving::Gone
            && self.is_quiet()
            && self.chunks.iter().all(|word| word & LEASES == 0)
    }

    /// Content of the bitmap area of a member without a slot: every bit is set, so that no recovery
    /// can skip a chunk because of it.
    fn of_spare(&self) -> Vec<u8> {
        let mut bytes = vec![0xff; self.image.len()];
        bytes[..BITMAP_HEADER_BYTES].copy_from_slice(&self.header.of_new_member().encode());
        bytes
    }

    /// Counters of the bitmap, for the status report and for tests.
    fn snapshot(&self) -> BitmapSnapshot {
        let is_set = |word: &u32| word & SET != 0;
        let pages = self.chunks.chunks(CHUNKS_OF_PAGE);
        BitmapSnapshot {
            chunk: Bytes(SECTOR_BYTES << self.shift),
            chunks: self.chunks.len() as u64,
            dirty: self.chunks.iter().filter(|word| is_set(word)).count() as u64,
            pages: pages.len() as u64,
            pages_dirty: pages.filter(|page| page.iter().any(is_set)).count() as u64,
            events_cleared: self.header.events_cleared,
        }
    }
}

impl Array {
    /// State of the bitmap; `None` without one.
    pub(crate) fn bitmap_snapshot(&self) -> Option<BitmapSnapshot> {
        self.bitmap_in_use().map(IntentBitmap::snapshot)
    }

    /// The bitmap; `None` if the array has none, or no superblock names it any more.
    fn bitmap_in_use(&self) -> Option<&IntentBitmap> {
        self.bitmap.as_deref().filter(|bitmap| bitmap.leaving != Leaving::Gone)
    }

    /// Ranges that a resync has to cover; `None` if it has to cover everything.
    ///
    /// Units    sectors of [`Layout::resync_size`]
    pub(crate) fn to_resync(&self) -> Option<Vec<SectorRange>> {
        Some(self.bitmap_in_use()?.ranges(SET | NEEDED))
    }

    /// Ranges that a recovery has to cover; `None` if it has to cover everything.
    ///
    /// Units    sectors of [`crate::layout::Layout::resync_size`]
    pub(crate) fn to_recover(&self) -> Option<Vec<SectorRange>> {
        let rebuilding = |member: &&Member| matches!(member.state, MemberState::Rebuilding { .. });
        let mut members = self.members.iter().filter(rebuilding);
        let bitmap = self.bitmap_in_use()?;
        members.all(|member| member.follows_bitmap).then(|| bitmap.ranges(SET))
    }

    /// Marks the chunks with set bits from data sector `sector` on, so that they are resynced; all
    /// such chunks if the bits stand for sectors of the array (RAID 10). Their bits stay set until
    /// then.
    pub(in crate::array) fn need_resync_from(&mut self, sector: Sectors) {
        if let Some(bitmap) = &mut self.bitmap {
            let size = bitmap.layout.resync_size();
            let by_member = size == bitmap.layout.member_size();
            let from = if by_member { sector } else { Sectors::ZERO };
            bitmap.need(SectorRange::new(from.0, size.0 - from.0));
        }
    }

    // Runs.

    /// Whether bits may be cleared with the present members: every slot must have an in-sync
    /// member, and superblocks must record every failed member, because the flush before the
    /// clearing does not cover a failed member.
    fn may_clear(&self) -> bool {
        let membership = &self.membership;
        let is_whole = membership.is_whole() && self.failures_recorded();
        is_whole && !membership.read_only && !membership.broken
    }

    /// Time at which [`Array::run_bitmap`] next has something to do; `None` if it has nothing.
    pub(crate) fn bitmap_wake(&self) -> Option<Time> {
        let bitmap = self.bitmap.as_ref()?;
        let runs = &bitmap.runs;
        let resync_from = self.resync_to_record();
        let waits = runs.flushing
            || bitmap.uncounted > 0
            || bitmap.leaving != Leaving::No
            || runs.listed.is_empty()
            || !self.may_clear()
            || (resync_from.is_some() && runs.waits_for_resync == resync_from);
        (!waits).then(|| runs.last + runs.sleep)
    }

    /// Searches for bits that can be cleared, at most once per `daemon_sleep`. With `stops` the
    /// array is being stopped, so that bits are cleared at once and in a single run.
    #[inline]
    pub(crate) fn run_bitmap(&mut self, stops: bool, now: Time) {
        let is_due = |runs: &Runs| stops || runs.last + runs.sleep <= now;
        let is_due = self.bitmap.as_ref().is_some_and(|bitmap| is_due(&bitmap.runs));
        if is_due && self.bitmap_wake().is_some() {
            self.run_bitmap_now(stops, now);
        }
    }

    #[cold]
    fn run_bitmap_now(&mut self, stops: bool, now: Time) {
        let early = self.is_planted(Mutant::BitClearedEarly);
        let resync_from = self.resync_to_record();
        let Some(bitmap) = &mut self.bitmap else { return };
        bitmap.runs.last = now;
        let mut waits_for_resync = true;
        for chunk in std::mem::take(&mut bitmap.runs.listed) {
            let word = &mut bitmap.chunks[chunk as usize];
            if *word & NEEDED != 0 {
                let end = (u64::from(chunk) + 1) << bitmap.shift;
                if resync_from.is_some_and(|from| from.0 < end) {
                    bitmap.runs.listed.push(chunk);
                    continue;
                }
                *word &= !NEEDED;
            }
            if *word & LEASES != 0 && !early {
                *word &= !LISTED;
                continue;
            }
            waits_for_resync = false;
            let is_old = (*word & OLD != 0 || stops || early) && bitmap.runs.recorded;
            if is_old && *word & UNWRITTEN == 0 {
                *word |= OLD;
                bitmap.runs.clearing.push(chunk);
            } else {
                *word |= OLD;
                bitmap.runs.listed.push(chunk);
            }
        }
        bitmap.runs.waits_for_resync = resync_from.filter(|_| waits_for_resync);
        if !bitmap.runs.marked && !waits_for_resync {
            let cleared = &mut bitmap.header.events_cleared;
            *cleared = bitmap.recorded_events.max(*cleared);
            bitmap.runs.marked = true;
            bitmap.changed.insert(0);
        }
        if bitmap.runs.clearing.is_empty() {
            return;
        }
        bitmap.runs.flush += 1;
        bitmap.runs.flushing = true;
        let flush = bitmap.runs.flush;
        if early {
            self.clear_bits(flush);
        } else {
            self.flushes.arrive(FlushFor::Bitmap(flush));
        }
    }

    /// Clears the bits that waited for flush number `flush`, except where a lease was taken in the
    /// meantime or a member failed.
    pub(in crate::array) fn clear_bits(&mut self, flush: u64) {
        let (may, early) = (self.may_clear(), self.is_planted(Mutant::BitClearedEarly));
        let Some(bitmap) = &mut self.bitmap else { return };
        if !bitmap.runs.flushing || bitmap.runs.flush != flush {
            return;
        }
        bitmap.runs.flushing = false;
        for chunk in std::mem::take(&mut bitmap.runs.clearing) {
            let word = &mut bitmap.chunks[chunk as usize];
            let clear = *word & OLD != 0 && *word & NEEDED == 0 && may && bitmap.runs.recorded;
            let clear = clear && bitmap.leaving == Leaving::No;
            if clear {
                assert!(*word & LEASES == 0 || early, "an old chunk has no lease");
                let (byte, bit) = bit_of(chunk);
                *word &= LEASES;
                bitmap.image[byte] &= !bit;
                bitmap.changed.insert(byte / PAGE);
            } else {
                bitmap.runs.listed.push(chunk);
            }
        }
    }

    /// Whether the bitmap is up to date on the members, with no bit left to clear, so that a stop
    /// of the array need not wait for it.
    pub(in crate::array) fn bitmap_is_settled(&self) -> bool {
        let waits = |bitmap: &IntentBitmap| !bitmap.changed.is_empty() && !self.is_sealed();
        self.bitmap_in_use().is_none_or(|bitmap| !waits(bitmap)) && self.bitmap_wake().is_none()
    }

    fn is_sealed(&self) -> bool {
        self.membership.read_only || self.membership.broken
    }

    // Rounds.

    pub(in crate::array) fn has_bitmap_round(&self) -> bool {
        self.bitmap.as_ref().is_some_and(|bitmap| bitmap.round.is_some())
    }

    /// Writes the bitmap pages that changed to the members, if there are any and no earlier write
    /// of pages is in progress.
    pub(in crate::array) fn write_bitmap_pages(&mut self, out: &mut Outbox) {
        if self.bitmap.as_ref().is_some_and(|bitmap| bitmap.is_left()) {
            self.bitmap = None;
        }
        let Some(bitmap) = &self.bitmap else { return };
        let waits = self.updates.not_before.is_some_and(|time| out.now < time);
        let due = !bitmap.changed.is_empty() && bitmap.leaving != Leaving::Gone;
        if bitmap.round.is_none() && due && !self.is_sealed() && !waits {
            self.updates.not_before = None;
            self.start_bitmap_round(false, out);
        }
    }

    /// Writes the changed bitmap pages, and the header with the update count of the superblock
    /// update that continues after these writes. Returns whether writes are in progress.
    pub(in crate::array) fn write_bitmap_header(&mut self, out: &mut Outbox) -> bool {
        let events = self.events;
        let Some(bitmap) = &mut self.bitmap else { return false };
        if bitmap.leaving != Leaving::No {
            // The superblocks of this update name no bitmap.
            return false;
        }
        bitmap.header.events = events;
        // If the update count went back, no member may have a higher `events_cleared`.
        bitmap.header.events_cleared = bitmap.header.events_cleared.min(events);
        bitmap.changed.insert(0);
        self.start_bitmap_round(true, out);
        self.has_bitmap_round()
    }

    /// Writes the header and the changed pages again for the same superblock update, because
    /// members joined during the last write.
    pub(in crate::array) fn write_bitmap_again(&mut self, out: &mut Outbox) {
        self.start_bitmap_round(true, out);
    }

    /// Whether a member has to get the whole bitmap before its superblock may be written.
    pub(in crate::array) fn is_without_bitmap(&self, member: &Member) -> bool {
        let stays = |bitmap: &IntentBitmap| bitmap.leaving == Leaving::No;
        member.lacks_bitmap && !member.is_faulty() && self.bitmap.as_deref().is_some_and(stays)
    }

    fn start_bitmap_round(&mut self, update: bool, out: &mut Outbox) {
        let Some(bitmap) = &mut self.bitmap else { return };
        assert!(bitmap.round.is_none(), "one round at a time");
        let header = bitmap.header.encode();
        bitmap.image[..BITMAP_HEADER_BYTES].copy_from_slice(&header);
        let pages: Vec<usize> = std::mem::take(&mut bitmap.changed).into_iter().collect();
        bitmap.round = Some(Round {
            events_cleared: bitmap.runs.marked && pages.first() == Some(&0),
            chunks: std::mem::take(&mut bitmap.unwritten),
            pages,
            update,
            ..Round::default()
        });
        for position in 0..self.members.len() {
            let member = &self.members[position];
            if !member.is_faulty()
                && (member.written_slot().is_some() || (update && member.lacks_bitmap))
            {
                self.send_bitmap(position, out);
            }
        }
        self.end_round_if_done(out);
    }

    /// Sends the pages that are being written to a member, or all pages if the member lacks the
    /// bitmap.
    fn send_bitmap(&mut self, position: usize, out: &mut Outbox) {
        let member = &mut self.members[position];
        let (label, block) = (&member.info.label, member.info.logical_block);
        let Some(start) = member.bitmap_start else {
            panic!("{label}: the place of its bitmap was checked when it came")
        };
        let Some(bitmap) = &self.bitmap else { return };
        let Some(round) = &bitmap.round else { return };
        let all = std::mem::take(&mut member.lacks_bitmap);
        let every = (0..bitmap.image.len() / PAGE).collect::<Vec<usize>>();
        let runs = side_by_side(if all { &every } else { &round.pages });
        let spare = if member.written_slot().is_none() { Some(bitmap.of_spare()) } else { None };
        let image = spare.as_ref().unwrap_or(&bitmap.image);
        let last = bitmap.len.next_multiple_of(block as usize);
        let mut ops = Vec::new();
        for run in runs {
            let bytes = run.start * PAGE..(run.end * PAGE).min(last);
            let at = start + Bytes(bytes.start as u64).sectors_floor();
            ops.push(MemberOp::WriteMetadata { at, bytes: image[bytes].into() });
        }
        if let Some(round) = self.bitmap.as_mut().and_then(|bitmap| bitmap.round.as_mut()) {
            round.outstanding += ops.len() as u32;
        }
        for op in ops {
            self.submit(position, op, Owner::Bitmap { all }, out);
        }
    }

    /// Handles a member's answer to a write of bitmap pages. `all` is true if all pages were
    /// written.
    pub(crate) fn bitmap_done(
        &mut self,
        position: Option<usize>,
        all: bool,
        result: Result<(), Fault>,
        knobs: &Knobs,
        out: &mut Outbox,
    ) {
        let member = position.map(|position| &mut self.members[position]);
        let round = self.bitmap.as_mut().and_then(|bitmap| bitmap.round.as_mut());
        let Some(round) = round else { panic!("pages are answered within their round") };
        round.outstanding -= 1;
        match (member, result) {
            (Some(member), Err(Fault::NoSpace)) if !member.is_faulty() => {
                round.no_space = true;
                member.lacks_bitmap |= all;
                member.superblock_full_since.get_or_insert(out.now);
            }
            // The write is retried once, because the error may be temporary.
            (Some(member), Err(Fault::Io)) if !member.is_faulty() && !round.second => {
                member.lacks_bitmap |= all;
                round.again.push(member.info.index);
            }
            (Some(_), Err(fault)) => {
                if let Some(position) = position {
                    self.fail_for(position, fault, knobs, out);
                }
            }
            // While a superblock update is due, a bitmap write that succeeds does not show that
            // there is space for the superblock.
            (Some(member), Ok(())) if !round.update && self.updates.done == self.updates.wanted => {
                member.superblock_full_since = None;
            }
            (None, _) | (_, Ok(())) => {}
        }
        self.end_round_if_done(out);
    }

    fn put_round(&mut self, round: Round) {
        if let Some(bitmap) = &mut self.bitmap {
            bitmap.round = Some(round);
        }
    }

    fn end_round_if_done(&mut self, out: &mut Outbox) {
        let Some(bitmap) = &mut self.bitmap else { return };
        let Some(mut round) = bitmap.round.take_if(|round| round.outstanding == 0) else { return };
        let mut again = std::mem::take(&mut round.again);
        again.sort_unstable();
        again.dedup();
        let position_of = |index| self.position_of(index);
        let mut again: Vec<usize> = again.into_iter().filter_map(position_of).collect();
        again.retain(|position| !self.members[*position].is_faulty());
        if !again.is_empty() {
            round.second = true;
            self.put_round(round);
            again.into_iter().for_each(|position| self.send_bitmap(position, out));
            return;
        }
        let Some(bitmap) = &mut self.bitmap else { return };
        if round.no_space {
            // The whole round is repeated later, and leases that wait for it keep waiting.
            bitmap.changed.extend(&round.pages);
            bitmap.unwritten.extend(round.chunks);
            self.retry_update_after(out.now);
        } else {
            for chunk in round.chunks {
                bitmap.chunks[chunk as usize] &= !UNWRITTEN;
            }
            bitmap.runs.recorded |= round.events_cleared;
        }
        if round.update {
            self.bitmap_header_written(out);
        }
    }
}

/// Byte in which a chunk's bit lies, counted from the start of the header, and the mask of the bit.
fn bit_of(chunk: u32) -> (usize, u8) {
    (BITMAP_HEADER_BYTES + chunk as usize / 8, 1 << (chunk % 8))
}

/// Ranges of consecutive numbers in a sorted list.
fn side_by_side(numbers: &[usize]) -> Vec<Range<usize>> {
    let mut ranges: Vec<Range<usize>> = Vec::new();
    for number in numbers {
        match ranges.last_mut() {
            Some(last) if last.end == *number => last.end += 1,
            _ => ranges.push(*number..number + 1),
        }
    }
    ranges
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::layout::mirrors::Mirrors;
    use weft_ondisk::{BitmapContext, Uuid};

    /// A bitmap of 20 chunks of 8 sectors without set bits; the last chunk has 5 sectors.
    fn empty() -> IntentBitmap {
        let (uuid, events, sync_size) = (Uuid([7; 16]), 1, Sectors(157));
        let header = BitmapHeader {
            version: 4,
            uuid,
            events,
            events_cleared: events,
            sync_size,
            state: 0,
            chunksize: 4096,
            daemon_sleep: 5,
            write_behind: 0,
            sectors_reserved: 0,
            nodes: 0,
            cluster_name: [0; 64],
        };
        let bytes = [&header.encode()[..], &[0; 512]].concat();
        let context = BitmapContext { uuid, events, sync_size, room: Sectors(8), origin: None };
        let bitmap = Bitmap::parse(&bytes, &context).unwrap();
        let layout = Layout::Mirrors(Mirrors::raid1(2, sync_size).unwrap());
        IntentBitmap::new(&bitmap, layout, std::iter::empty(), events, Time(0))
    }

    #[test]
    fn chunks_hold_a_lease_once_written_and_ranges_join_those_side_by_side() {
        let mut bitmap = empty();
        let lease = |first, count| Chunks { first, count };
        assert_eq!(bitmap.take(SectorRange::new(0, 24)), lease(0, 3));
        for chunk in [5, 19] {
            assert_eq!(bitmap.take(SectorRange::new(chunk * 8, 1)), lease(chunk as u32, 1));
        }
        let ranges = |those: &[(u64, u64)]| -> Vec<SectorRange> {
            those.iter().map(|(start, len)| SectorRange::new(*start, *len)).collect()
        };
        assert_eq!(bitmap.ranges(SET), ranges(&[(0, 24), (40, 8), (152, 5)]));
        bitmap.need(SectorRange::new(8, 149));
        assert_eq!(bitmap.ranges(NEEDED), ranges(&[(8, 16), (40, 8), (152, 5)]));
        assert!(!bitmap.holds(lease(0, 1)), "it is not written");
        // A round is under way, and the round before it has written chunk 0.
        (bitmap.unwritten, bitmap.round) = (Vec::new(), Some(Round::default()));
        bitmap.chunks[0] &= !UNWRITTEN;
        assert!(bitmap.holds(lease(0, 1)) && !bitmap.holds(lease(0, 2)));
        bitmap.leaving = Leaving::Gone;
        assert!(bitmap.holds(lease(0, 2)));
    }

    #[test]
    fn it_is_quiet_without_a_round_and_a_flush() {
        for (round, flushing) in [(false, false), (false, true), (true, false), (true, true)] {
            let mut bitmap = empty();
            bitmap.round = round.then(Round::default);
            bitmap.runs.flushing = flushing;
            assert_eq!(bitmap.is_quiet(), !round && !flushing, "{round} {flushing}");
        }
    }

    #[test]
    fn pages_side_by_side_are_written_at_once() {
        assert_eq!(side_by_side(&[0, 1, 2, 5]), [0..3, 5..6]);
    }
}
