//! Identifiers of devices, files and writers within one page cache.

/// A backing device, served by one flusher.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct BdiId(pub u16);

/// A file or a whole block device; its pages are numbered from 0.
///
/// Identifiers are reused after [`remove`](super::PageCache::remove), once no write of the old file
/// is in flight.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct InodeId(pub u32);

/// A process or client that writes to files.
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
