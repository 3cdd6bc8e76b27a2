//! Memory of the minimal server.
//!
//! One mapping that all connections read and write without synchronisation. Clients that access the
//! same bytes at the same time get undefined contents; the benchmark has no such clients.

use std::io::{IoSlice, Read};
use std::os::unix::net::UnixStream;
use std::ptr::NonNull;

use rustix::mm::{MapFlags, ProtFlags, mmap_anonymous};

/// Memory that the minimal server exports. It is never unmapped: the server runs until a signal
/// kills it.
pub(super) struct Memory {
    base: NonNull<u8>,
    len: usize,
}

// SAFETY: `base` points to plain memory, which belongs to no thread.
unsafe impl Send for Memory {}
// SAFETY: as above. Bytes are read and written without order; see the top of this file.
unsafe impl Sync for Memory {}

impl Memory {
    pub(super) fn new(len: usize) -> Result<Self, String> {
        let protection = ProtFlags::READ | ProtFlags::WRITE;
        let (at, flags) = (std::ptr::null_mut(), MapFlags::PRIVATE);
        // SAFETY: a new mapping at an address of the kernel's choice touches nothing that exists.
        let mapped = unsafe { mmap_anonymous(at, len, protection, flags) };
        let mapped = mapped.map_err(|errno| format!("memory to serve: {errno}"))?;
        let base = NonNull::new(mapped.cast()).expect("mmap gives an address or an error");
        Ok(Self { base, len })
    }

    pub(super) fn len(&self) -> usize {
        self.len
    }

    pub(super) fn copy_in(&self, offset: usize, bytes: &[u8]) {
        let start = self.start(offset, bytes.len());
        // SAFETY: `start` asserts that the range is inside the mapping, and `bytes` is not part of
        // it.
        unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), start, bytes.len()) }
    }

    /// Fills the `len` bytes from `offset` on with data from a socket.
    pub(super) fn receive(
        &self,
        stream: &mut UnixStream,
        offset: usize,
        len: usize,
    ) -> std::io::Result<()> {
        let start = self.start(offset, len);
        // SAFETY: `start` asserts that the range is inside the mapping, and anonymous memory is
        // initialised with zeros.
        let bytes = unsafe { std::slice::from_raw_parts_mut(start, len) };
        stream.read_exact(bytes)
    }

    /// The `len` bytes from `offset` on, as a buffer to send.
    pub(super) fn slice(&self, offset: usize, len: usize) -> IoSlice<'_> {
        let start = self.start(offset, len);
        // SAFETY: `start` asserts that the range is inside the mapping, which is initialised and is
        // never unmapped.
        IoSlice::new(unsafe { std::slice::from_raw_parts(start, len) })
    }

    fn start(&self, offset: usize, len: usize) -> *mut u8 {
        assert!(offset <= self.len && len <= self.len - offset);
        // SAFETY: the result is inside the mapping or at its end, as asserted above.
        unsafe { self.base.as_ptr().add(offset) }
    }
}
