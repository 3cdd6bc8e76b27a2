//! Anchors: superblocks and labels found on the disks, and the hypotheses under which each of them
//! lies where its format requires.

use std::collections::BTreeSet;
use std::rc::Rc;

use weft_ondisk::{Superblock, data_offset_default};
use weft_units::Sectors;

use super::columns::Columns;
use super::inside::{Inside, LABEL_AT, SUPER_BYTES, SUPER_PLACES, is_label};
use super::judge::Hypothesis;
use super::lvm;
use super::shape::{GuessedShape, places, shapes};
use crate::look::Looked;

/// Likely data offsets of the members, in bytes: mdadm's defaults, and those in superblocks of md
/// that are on the disks.
pub(super) struct Hints {
    offsets: Vec<u64>,
    /// Offsets from which fewer than [`FAR`] bytes lie within the first [`SEARCH`] bytes of a disk,
    /// so that the bytes behind them are searched separately.
    far: Vec<u64>,
}

impl Hints {
    /// Likely data offsets: mdadm's usual ones, its defaults for the sizes of these disks, and the
    /// data offsets in superblocks of version 1 on the disks.
    pub(super) fn of(disks: &[Looked]) -> Self {
        let mut offsets = USUAL.to_vec();
        for disk in disks {
            let size = disk.probe.size();
            let chunks = [0, 128, 1024].map(Sectors);
            let each = chunks.map(|chunk| data_offset_default(size, chunk, false).bytes().0);
            offsets.extend(each);
            for (superblock, _) in disk.superblocks().readable {
                if let Superblock::V1(superblock) = superblock {
                    offsets.push(superblock.data_offset.bytes().0);
                }
            }
        }
        offsets.sort_unstable();
        offsets.dedup();
        let far = offsets.iter().copied().filter(|it| it.saturating_add(FAR) > SEARCH).collect();
        Self { offsets, far }
    }

    /// Sort key for hypotheses of equal score: usual data offsets, chunks and starts come first.
    pub(super) fn rank(&self, it: &Hypothesis) -> (bool, bool, bool, u64, GuessedShape) {
        let is_unusual = !self.offsets.contains(&it.offset);
        let chunk = it.shape.chunk;
        // mdadm's default chunk of 512 KiB and RAID 1, which has none, come first; then 64 KiB,
        // which NAS devices use.
        let is_default = chunk == Sectors(1024) || chunk == Sectors::ZERO;
        (is_unusual, !is_default, chunk != Sectors(128), it.start, it.shape)
    }
}

/// Structure found on a disk, or in the data computed for a missing member.
enum Found {
    Label,
    Super(Inside),
}

/// Hypotheses under which a superblock or label found on the disks lies where its format requires,
/// the usual ones first.
pub(super) fn hypotheses(columns: &Rc<Columns>, missing: usize, hints: &Hints) -> Vec<Hypothesis> {
    let slots = columns.slots();
    let mut tried = BTreeSet::new();
    let mut all = Vec::new();
    let shapes = shapes(slots, missing);
    for (byte, found) in find(columns, hints) {
        for (shape, start) in shapes.iter().flat_map(|it| STARTS.map(|start| (*it, start))) {
            let place = match &found {
                Found::Label => LABEL_AT,
                Found::Super(inside) => inside.place(),
            };
            let at = shape.first_place(start + place, columns.smallest());
            let offset = at.and_then(|at| byte.checked_sub(at));
            let Some(offset) = offset.filter(|it| it.is_multiple_of(4096)) else { continue };
            let uuid = match &found {
                Found::Label => None,
                Found::Super(inside) => Some((inside.uuid(), inside.place())),
            };
            if !tried.insert((uuid, shape, start, offset)) {
                continue;
            }
            match &found {
                Found::Label => all.extend(in_volumes(columns, shape, offset, start)),
                Found::Super(inside) => {
                    let size = columns.smallest().checked_sub(offset);
                    let map = size.and_then(|size| shape.map(size));
                    let end = map.map_or(0, |map| map.array_size().bytes().0);
                    let (inside, volume) = (inside.clone(), None);
                    if inside.bytes().saturating_add(start) <= end {
                        all.push(Hypothesis { shape, offset, start, end, volume, inside });
                    }
                }
            }
        }
    }
    all.sort_by_key(|it| hints.rank(it));
    all
}

/// Hypotheses of file systems at the starts of logical volumes. The volumes are those in LVM's
/// metadata text of the physical volume at byte `volume` of the array; none if no such text is
/// found under this shape and data offset.
fn in_volumes(
    columns: &Rc<Columns>,
    shape: GuessedShape,
    offset: u64,
    volume: u64,
) -> Vec<Hypothesis> {
    let mut all = Vec::new();
    let size = columns.smallest().checked_sub(offset);
    let Some(map) = size.and_then(|size| shape.map(size)) else { return all };
    for part in lvm::volumes(columns, shape, offset, volume) {
        for (_, at) in SUPER_PLACES.iter().flat_map(|it| places(&map, part.start + it)) {
            let read = |source| columns.read(source, offset + at, SUPER_BYTES, shape.parities());
            let found = (0..columns.sources(shape.parities()))
                .filter_map(read)
                .find_map(|it| Inside::of(&it));
            all.extend(found.map(|inside| Hypothesis {
                shape,
                offset,
                start: part.start,
                end: part.end,
                volume: Some(volume),
                inside,
            }));
        }
    }
    all
}

/// Superblocks and LVM labels on the disks, each with its byte offset on the disk or missing
/// member. Searches the first [`SEARCH`] bytes, and [`FAR`] bytes behind far data offsets. Backup
/// superblocks are left out if the primary one of the same file system was found.
fn find(columns: &Columns, hints: &Hints) -> Vec<(u64, Found)> {
    let mut found = Vec::new();
    let mut visit = |at: u64, piece: &[u8]| {
        for within in (0..piece.len()).step_by(512) {
            let bytes = &piece[within..piece.len().min(within + SUPER_BYTES)];
            let it = match is_label(bytes) {
                true => Some(Found::Label),
                false => Inside::of(bytes).map(Found::Super),
            };
            found.extend(it.map(|it| (at + within as u64, it)));
        }
    };
    columns.scan(0..SEARCH, &mut visit);
    for start in &hints.far {
        columns.scan(SEARCH.max(*start)..start.saturating_add(FAR), &mut visit);
    }
    let first = |it: &(u64, Found)| match &it.1 {
        Found::Super(inside) if inside.is_first() => Some(inside.uuid()),
        Found::Label | Found::Super(_) => None,
    };
    let whole: BTreeSet<[u8; 16]> = found.iter().filter_map(first).collect();
    found.retain(|(_, it)| match it {
        Found::Super(inside) => inside.is_first() || !whole.contains(&inside.uuid()),
        Found::Label => true,
    });
    found.truncate(FOUND_MAX);
    found
}

/// Bytes of an array at which a file system or a physical volume may begin: 0 without a partition
/// table, 1 MiB as LVM and partition tables align, and the older starts of 63 sectors and 192 KiB.
const STARTS: [u64; 4] = [0, 1 << 20, 63 * 512, 192 << 10];
/// The bytes of [`STARTS`] that are not 0, for messages.
pub(crate) const STARTS_TEXT: &str = "31.5 KiB, 192 KiB or 1 MiB";
/// Number of bytes from the start of a disk that are searched for superblocks: more than mdadm's
/// largest usual data offset.
pub(crate) const SEARCH: u64 = 160 << 20;
/// Number of bytes from a far data offset on that are searched for superblocks.
const FAR: u64 = 8 << 20;
/// Largest number of superblocks and labels that are tried: copies of images, or a journal, may
/// have many.
const FOUND_MAX: usize = 512;
/// Data offsets that releases of mdadm have used by default, in bytes.
const USUAL: [u64; 4] = [1 << 20, 128 << 20, 0, 64 << 10];
