//! Identifiers inside one page cache: device, file, process.

/// A backing device: what one flusher writes to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct BdiId(pub u16);

/// A file, or a block device as a whole: pages numbered from 0.
///
/// Names are used again after [`remove`](super::PageCache::remove), once nothing of the old file is
/// under way.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct InodeId(pub u32);

/// A process that writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct WriterId(pub u32);

impl BdiId {
    pub(crate) const fn index(self) -> usize {
        self.0 as usize
    }
}

impl WriterId {
    pub(crate) const fn index(self) -> usize {
        self.0 as usize
    }
}
