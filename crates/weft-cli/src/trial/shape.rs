//! Shapes: level, layout and chunk of a hypothesis, and where they place the bytes of an array.

use weft_engine::layout::Layout;
use weft_ondisk::Level;
use weft_units::{Bytes, Sectors};

/// Level, layout number and chunk of a hypothesis.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct GuessedShape {
    pub(super) level: Level,
    pub(super) layout: u32,
    pub(super) chunk: Sectors,
    slots: u32,
}

/// Shapes of arrays that have this number of slots and can be read with this number of members
/// missing.
pub(super) fn shapes(slots: usize, missing: usize) -> Vec<GuessedShape> {
    let of = |level: Level, layouts: &[u32]| -> Vec<GuessedShape> {
        let chunks: &[u64] = if level.is_striped() { &CHUNKS } else { &[0] };
        let pairs = layouts.iter().flat_map(|layout| chunks.iter().map(move |it| (*layout, *it)));
        let slots = u32::try_from(slots).unwrap_or(u32::MAX);
        pairs
            .map(|(layout, chunk)| GuessedShape { level, layout, chunk: Sectors(chunk), slots })
            .collect()
    };
    let mut all = Vec::new();
    if missing == 0 {
        all.extend(of(Level::Raid0, &[1]));
    }
    if missing < slots {
        all.extend(of(Level::Raid1, &[0]));
        all.extend(of(Level::Raid10, &[0x102, 0x201, 0x1_0201]));
    }
    if missing <= 1 && slots >= 3 {
        all.extend(of(Level::Raid5, &[2, 0, 1, 3, 4, 5]));
    }
    if missing <= 2 && slots >= 4 {
        all.extend(of(Level::Raid6, &[2, 0, 1, 3]));
    }
    all
}

impl GuessedShape {
    /// Layout of an array of this shape with `size` bytes of data on each member; `None` if no such
    /// array exists.
    pub(super) fn map(self, size: u64) -> Option<Layout> {
        let size = Bytes(size).sectors_floor();
        let size = if self.chunk == Sectors::ZERO { size } else { size.round_down(self.chunk) };
        let sizes = vec![size; self.slots as usize];
        Layout::new(self.level, self.layout, self.slots, self.chunk, size, &sizes).ok()
    }

    /// Byte offset in a member's data of the first copy of byte `byte` of the array. `size` is the
    /// number of bytes of data of each member. `None` if no such array exists or it is too small.
    pub(super) fn first_place(self, byte: u64, size: u64) -> Option<u64> {
        let map = self.map(size)?;
        places(&map, byte).first().map(|(_, at)| *at)
    }

    /// Number of bytes from byte `byte` of the array to the end of its chunk; `u64::MAX` without
    /// chunks.
    pub(super) fn left_in_chunk(self, byte: u64) -> u64 {
        match self.chunk.bytes().0 {
            0 => u64::MAX,
            chunk => chunk - byte % chunk,
        }
    }

    pub(super) fn slots(self) -> usize {
        self.slots as usize
    }

    /// Number of parities of a full stripe.
    pub(super) fn parities(self) -> u32 {
        self.level.parity_count()
    }
}

/// Copies of a byte of the array, each as slot and byte offset in that member's data; empty beyond
/// the end of the array.
pub(super) fn places(map: &Layout, byte: u64) -> Vec<(usize, u64)> {
    let (sector, within) = (Sectors(byte / 512), byte % 512);
    if sector >= map.array_size() {
        return Vec::new();
    }
    let one = |slot: weft_units::Slot, at: Sectors| (usize::from(slot.0), at.bytes().0 + within);
    match map {
        Layout::Mirrors(mirrors) => {
            mirrors.copies(sector).iter().map(|copy| one(copy.slot, copy.sector)).collect()
        }
        Layout::Parity(geometry) => {
            let at = geometry.locate(sector);
            vec![one(at.slot, at.sector)]
        }
        Layout::Striped(striped) => {
            let at = striped.locate(sector);
            vec![one(at.slot, at.sector)]
        }
    }
}

/// Chunks that are tried, in sectors: 4 KiB to 2 MiB, the usual ones first.
const CHUNKS: [u64; 10] = [1024, 128, 8, 16, 32, 64, 256, 512, 2048, 4096];
