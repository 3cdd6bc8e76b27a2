//! Checker I20, bits before data: before a chunk changes on any member, its bit is durable on every
//! member that a restart would count as in sync. The bit is cleared only once members agree.
//!
//! The checker is the counterpart of I5 for the write-intent bitmap. Bits are read from the media,
//! as the next start would read them; all bits of an out-of-date bitmap count as set.
//! [`super::Dirty`] decides which writes count as a change, and calls this checker.

use weft_engine::Token;
use weft_ondisk::Features;
use weft_units::{Sectors, Slot};

use super::parity::{Bytes, Media};
use super::{View, Violation};

pub(super) const NAME: &str = "I20 bits before data";

/// A run of sectors on a disk: disk number, first sector, count.
pub(super) type DiskRange = (usize, u64, u64);

/// Sectors of a disk that a write would change. Sectors that keep their content are left out.
fn changed(view: View<'_>, (disk, at, count): DiskRange, bytes: &[u8]) -> Vec<u64> {
    let before = view.disks[disk].peek(at, count);
    let len = bytes.len() / count as usize;
    let contents = before.chunks_exact(len).zip(bytes.chunks_exact(len));
    let changed = (at..).zip(contents).filter(|(_, (before, after))| before != after);
    changed.map(|(at, _)| at).collect()
}

/// Checks that bits are set before a write of data changes the content of a member: no disk in sync
/// may have a clear bit for a column that changes. Sectors that keep their content do not count. On
/// a member that is being rebuilt, sectors from its recovery offset on do not count either, because
/// the rebuild writes whole stripes. A member that was re-added by its bitmap counts as in sync
/// wherever no bit is set.
pub(super) fn before_data(
    view: View<'_>,
    (disk, at, count): DiskRange,
    bytes: &[u8],
    found: &mut Vec<Violation>,
) {
    if !view.record.has_bitmaps() {
        return;
    }
    let end = believed_to(view, disk);
    let first = view.array.data_offset[disk].0;
    let believed = |at: &u64| end.is_none_or(|end| *at < first + end.0);
    let believed = |at: &u64| believed(at) && !is_bad(view, disk, *at);
    let changed = changed(view, (disk, at, count), bytes).into_iter().filter(believed);
    let mut columns = changed.filter_map(|at| view.column_at(disk, at));
    let clear = columns.find_map(|column| Some((column, view.record.clear_bit(column)?)));
    if let Some((column, other)) = clear {
        let message = format!(
            "data of column {column} goes to disk {disk} and its bit is not set on disk {other}"
        );
        found.push(Violation::new(NAME, message));
    }
}

/// End of the data sectors of a member that a restart would use; `None` if a restart would use all
/// data sectors.
fn believed_to(view: View<'_>, disk: usize) -> Option<Sectors> {
    if view.record.is_in_sync(disk) {
        return None;
    }
    let Some(slotted) = view.record.of(disk).filter(|_| view.record.own_slot(disk).is_some())
    else {
        return Some(Sectors::ZERO);
    };
    let by_bitmap = slotted.features().contains(Features::RECOVERY_BITMAP);
    slotted.recovery_offset().filter(|_| !by_bitmap)
}

/// Checks a metadata write that is about to be submitted to a disk. If it clears bits, no
/// outstanding write may change their chunks, and the content of these chunks must be durable and
/// agree on all members.
pub(super) fn before_clear(
    view: View<'_>,
    (disk, at): (usize, u64),
    bytes: &[u8],
    outstanding: impl Iterator<Item = (Token, DiskRange)>,
    found: &mut Vec<Violation>,
) {
    let chunks = view.record.cleared_by(&view.disks[disk], disk, at, bytes);
    if chunks.is_empty() {
        return;
    }
    let end = view.array.columns_count();
    let columns = || {
        let chunk = |(first, len): &(u64, u64)| (*first).min(end)..(first + len).min(end);
        chunks.iter().flat_map(chunk)
    };
    let clears = |column: u64| chunks.iter().any(|it| (it.0..it.0 + it.1).contains(&column));
    let mut say = |what: String| {
        found.push(Violation::new(NAME, format!("a bit is cleared on disk {disk} while {what}")));
    };
    for (token, place) in outstanding {
        let (other, at, count) = place;
        // Most sectors of a write of a whole stripe keep their content.
        let written = match view.disks[other].payload_of(token) {
            Some(bytes) if !bytes.is_empty() => changed(view, place, bytes),
            _ => (at..at + count).collect(),
        };
        let written = written.into_iter().filter(|at| !is_bad(view, other, *at));
        let mut written = written.filter_map(|at| view.column_at(other, at));
        if let Some(column) = written.find(|column| clears(*column)) {
            say(format!("a write of column {column} to disk {other} is outstanding"));
        }
    }
    if let Some((other, column)) = columns().find_map(|it| Some((volatile(view, it)?, it))) {
        say(format!("what disk {other} holds of column {column} is not durable"));
    }
    let media = Media::new(view.disks, view.array, view.record, Bytes::Durable);
    let differs = |media: &Media<'_>| columns().find(|it| media.look(*it) == Some(false));
    if let Some(column) = media.as_ref().and_then(differs) {
        say(format!("members do not agree about column {column}"));
    }
}

/// Whether the bad-block log of a disk lists sector `at` of the disk: a restart would not read what
/// the disk holds there.
fn is_bad(view: View<'_>, disk: usize, at: u64) -> bool {
    let first = view.array.data_offset[disk].0;
    at.checked_sub(first).is_some_and(|sector| view.is_bad(disk, sector))
}

/// Number of the first in-sync disk that would lose content of a column in a power cut, because its
/// newest content is only in the volatile cache; `None` if there is none.
fn volatile(view: View<'_>, column: u64) -> Option<usize> {
    let may_lose = |slot: Slot, sector: u64| {
        let disk = view.record.in_sync(slot)?;
        let at = view.array.data_offset[disk].0 + sector;
        let state = &view.disks[disk];
        let loses = state.volatile().newest(at).is_some_and(|it| it != state.peek_stable(at, 1));
        (loses && !is_bad(view, disk, at)).then_some(disk)
    };
    let places = view.array.places(column);
    places.iter().find_map(|place| may_lose(place.slot, place.sector))
}

/// Checks, before a power cut or a process crash, that a bit is set for every column in which a
/// member may lose content.
pub fn before_cut(view: View<'_>, found: &mut Vec<Violation>) {
    if !view.record.has_bitmaps() {
        return;
    }
    for (disk, state) in view.disks.iter().enumerate() {
        if state.faults.gone || !view.record.is_in_sync(disk) {
            continue;
        }
        for (at, versions) in state.volatile().iter() {
            let Some(column) = view.column_at(disk, at) else { continue };
            let differs = versions.iter().any(|it| it.bytes[..] != state.peek_stable(at, 1)[..]);
            let differs = differs && !is_bad(view, disk, at);
            if let Some(other) = view.record.clear_bit(column).filter(|_| differs) {
                let message = format!(
                    "disk {disk} may lose what it holds of column {column}, and its bit is not set \
                     on disk {other}"
                );
                found.push(Violation::new(NAME, message));
                return;
            }
        }
    }
}

/// Checks, after a power cut or a process crash, that members agree in every column for which one
/// of them has a clear bit. Returns the number of columns compared: 0 if no member has a bitmap.
pub fn after_cut(
    view: View<'_>,
    columns: impl Iterator<Item = u64>,
    bytes: Bytes,
    found: &mut Vec<Violation>,
) -> u64 {
    if !view.record.has_bitmaps() {
        return 0;
    }
    let Some(media) = Media::new(view.disks, view.array, view.record, bytes) else { return 0 };
    let mut compared = 0;
    for column in columns {
        let Some(disk) = view.record.clear_bit(column) else { continue };
        let Some(agrees) = media.look(column) else { continue };
        compared += 1;
        if !agrees {
            let message = format!(
                "after the cut members do not agree about column {column}, and its bit is not \
                 set on disk {disk}"
            );
            found.push(Violation::new(NAME, message));
            break;
        }
    }
    compared
}
