//! LVM2 in an array with an unknown order of disks: the starts of its logical volumes.

use std::cell::RefCell;
use std::ops::Range;
use std::rc::Rc;

use weft_engine::layout::Layout;
use weft_files::lvm::{PhysicalVolume, beginnings};
use weft_files::source::{ReadError, Shared, Source};

use super::columns::Columns;
use super::shape::{GuessedShape, places};

/// Byte ranges of the array with the first segments of logical volumes, for a physical volume that
/// begins at byte `start` of the array. Empty if no order of the disks gives a metadata text with a
/// right checksum.
pub(super) fn volumes(
    columns: &Rc<Columns>,
    shape: GuessedShape,
    offset: u64,
    start: u64,
) -> Vec<Range<u64>> {
    let size = columns.smallest().checked_sub(offset);
    let Some(map) = size.and_then(|size| shape.map(size)) else { return Vec::new() };
    let columns = Rc::clone(columns);
    let chosen =
        Rc::new(Chosen { columns, shape, map, offset, start, choices: RefCell::default() });
    let source: Shared = chosen.clone();
    for _ in 0..CHOICES_MAX {
        if let Ok(volume) = PhysicalVolume::read("", &source)
            && volume.text.is_ok()
        {
            let moved = |it: Range<u64>| it.start + start..it.end.saturating_add(start);
            return beginnings(&volume).into_iter().map(moved).collect();
        }
        if !chosen.next() {
            break;
        }
    }
    Vec::new()
}

/// A physical volume in an array with an unknown order of disks. A source is chosen for each chunk
/// that is read. Choices are tried like the digits of a counter: the source of the chunk that was
/// read last changes first, then that of the chunk before it.
struct Chosen {
    columns: Rc<Columns>,
    shape: GuessedShape,
    map: Layout,
    offset: u64,
    start: u64,
    /// Number of the source chosen for each chunk, with the chunk's first byte in the array, in the
    /// order of first reads.
    choices: RefCell<Vec<(u64, usize)>>,
}

impl Chosen {
    /// Goes on to the next choice of sources. Returns false after the last one.
    fn next(&self) -> bool {
        let mut choices = self.choices.borrow_mut();
        while let Some((chunk, source)) = choices.pop() {
            if source + 1 < self.columns.sources(self.shape.parities()) {
                choices.push((chunk, source + 1));
                return true;
            }
        }
        false
    }

    fn source(&self, chunk: u64) -> usize {
        let mut choices = self.choices.borrow_mut();
        let known = choices.iter().find(|(its, _)| *its == chunk).map(|(_, source)| *source);
        known.unwrap_or_else(|| {
            choices.push((chunk, 0));
            0
        })
    }

    /// Bytes of the array from `byte` on, which lie in one chunk; `None` if the chosen source
    /// cannot be read.
    fn piece(&self, byte: u64, len: usize) -> Option<Vec<u8>> {
        let (_, at) = *places(&self.map, byte).first()?;
        let chunk = match self.shape.chunk.bytes().0 {
            0 => 0,
            chunk => byte / chunk * chunk,
        };
        self.columns.read(self.source(chunk), self.offset + at, len, self.shape.parities())
    }
}

impl Source for Chosen {
    fn size(&self) -> u64 {
        self.map.array_size().bytes().0.saturating_sub(self.start)
    }

    fn read_at(&self, offset: u64, into: &mut [u8]) -> Result<(), ReadError> {
        let mut done = 0;
        while done < into.len() {
            let byte = self.start + offset + done as u64;
            let left = usize::try_from(self.shape.left_in_chunk(byte)).unwrap_or(usize::MAX);
            let len = left.min(into.len() - done);
            let Some(bytes) = self.piece(byte, len) else {
                let range = offset..offset + into.len() as u64;
                return Err(ReadError { range, why: "its chunk cannot be read".into() });
            };
            into[done..done + len].copy_from_slice(&bytes);
            done += len;
        }
        Ok(())
    }
}

/// Largest number of choices of sources for one hypothesis: enough for three chunks of 16 disks.
const CHOICES_MAX: usize = 5000;
