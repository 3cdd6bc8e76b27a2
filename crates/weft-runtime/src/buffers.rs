//! Slab of payload memory, and the leases on its bytes while a request uses them.
//!
//! All payload lives in one anonymous mapping, the [`Slab`]. Three parties touch it: this process
//! through references, worker threads through references, and the kernel through addresses given to
//! io_uring. The rules are those of a reader-writer lock per sector of memory, kept in
//! `Memory::states`:
//!
//! - A member request holds a [`Lease`] on its segments from before it is submitted until its last
//!   completion is reaped. A shared lease says "will be read" (a member write), an exclusive one
//!   "will be written" (a member read). The lease also keeps the mapping alive.
//! - References come from [`Slab::bytes`] (`&self`), [`Slab::bytes_mut`] and [`Frames::split`]
//!   (`&mut self`). Taking an exclusive lease needs `&mut self` too.
//!
//! # Why the memory is valid for the whole operation
//!
//! 1. *The memory exists.* A lease owns a share of the mapping. A ring that gives an address of the
//!    mapping to the kernel keeps the lease in its table of outstanding operations, and waits for
//!    that table to become empty before it is dropped (`io/uring.rs`, `Drop`).
//! 2. *Nothing else changes the memory.* A shared lease makes `bytes_mut`, `split` and exclusive
//!    leases of the same sectors panic; an exclusive one makes `bytes` and shared leases panic as
//!    well.
//! 3. *No reference outlives a change of the leases.* A reference borrows the slab, so the borrow
//!    checker rejects a contradicting lease while the reference lives: an exclusive lease needs
//!    `&mut Slab`, and a shared lease is contradicted only by a reference from `bytes_mut`, which
//!    holds `&mut Slab`.
//!
//! These panics are assertions about the engine (a frame does not change while it is leased). No
//! client and no member can trigger them.
//!
//! Source   CONTRIBUTING.md (unsafe code); `contract/frame.rs` of `weft-engine`

use std::io::{IoSlice, IoSliceMut};
use std::ops::Range;
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use rustix::fd::AsFd;
use rustix::mm::{
    Advice, MapFlags, MprotectFlags, ProtFlags, madvise, mmap, mmap_anonymous, mprotect, munmap,
};
use smallvec::SmallVec;
use weft_compute::{Frames, Split};
use weft_engine::{Segment, Segments, ZERO_FRAME};
use weft_units::{FRAME_BYTES, SECTOR_BYTES};

/// All payload memory of an engine.
#[derive(Debug)]
pub struct Slab {
    memory: Arc<Memory>,
}

/// The mapping, and the leases on each of its sectors.
#[derive(Debug)]
pub(crate) struct Memory {
    base: NonNull<u8>,
    bytes: usize,
    /// Byte range of the frames that no device reads or writes; see [`Slab::with_private`].
    private: Range<usize>,
    /// Lease state of every sector: one word per frame, with one byte per sector. The byte is 0 for
    /// a free sector, 0x80 (`EXCLUSIVE`) under an exclusive lease, else the number of shared
    /// leases.
    states: Box<[AtomicU64]>,
}

// SAFETY: the mapping is plain memory that belongs to no thread; `states`, which is atomic, decides
// which bytes a thread may touch.
unsafe impl Send for Memory {}
// SAFETY: as above; no method gives out references without the checks described at the top.
unsafe impl Sync for Memory {}

/// Access that a lease allows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    /// The holder reads the bytes; others may read them too.
    Shared,
    /// The holder writes the bytes; nothing else may touch them.
    Exclusive,
}

/// Right to read or write some segments of a slab. A request holds the lease from its submission to
/// its completion.
#[derive(Debug)]
#[must_use = "a lease that is dropped is over"]
pub struct Lease {
    memory: Arc<Memory>,
    segments: Segments,
    access: Access,
}

/// Memory of one member request.
#[derive(Debug)]
pub enum Buffer {
    /// Leased frames of the slab.
    Frames(Lease),
    /// Bytes that belong to the request itself, for metadata.
    Owned(AlignedBytes),
}

/// Zero-filled or copied bytes on the heap, aligned for `O_DIRECT`.
#[derive(Debug)]
pub struct AlignedBytes {
    storage: Vec<u8>,
    skip: usize,
    len: usize,
}

/// Mapping of a memfd: the memory of a `ram:` member.
///
/// There are no references into the mapping, only copies in and out, so the file may also be read
/// and written in other ways. A shorter file would make accesses to the mapping fault (`SIGBUS`); a
/// seal prevents that (`devices/open.rs`).
#[derive(Debug)]
pub(crate) struct Mapping {
    base: NonNull<u8>,
    bytes: usize,
}

// SAFETY: the mapping is plain memory that belongs to no thread.
unsafe impl Send for Mapping {}

/// Address and length of memory that is given to the kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Address {
    pub(crate) start: *mut u8,
    pub(crate) len: usize,
}

impl Slab {
    /// Maps `frames` frames of zeros. The first one, the frame of zeros, is read-only.
    ///
    /// # Errors
    /// Fails when the kernel has no memory for the mapping.
    pub fn new(frames: u32) -> std::io::Result<Self> {
        Self::with_private(frames, 0..0)
    }

    /// Maps memory like [`Slab::new`], with a range of frames that no device reads or writes. Those
    /// frames are never registered with the kernel, so they count towards no limit of locked memory
    /// and take no memory before they are used.
    ///
    /// # Errors
    /// The errors of [`Slab::new`].
    pub fn with_private(frames: u32, private: Range<u32>) -> std::io::Result<Self> {
        assert!(frames > 0 && private.start <= private.end && private.end <= frames);
        let bytes = frames as usize * FRAME_LEN;
        let protection = ProtFlags::READ | ProtFlags::WRITE;
        let flags = MapFlags::PRIVATE | MapFlags::NORESERVE;
        // SAFETY: a new mapping at an address of the kernel's choice touches nothing that exists.
        let mapped = unsafe { mmap_anonymous(std::ptr::null_mut(), bytes, protection, flags) }?;
        let base = NonNull::new(mapped.cast()).expect("mmap gives an address or an error");
        let states = (0..frames).map(|_| AtomicU64::new(0)).collect();
        let private = private.start as usize * FRAME_LEN..private.end as usize * FRAME_LEN;
        let slab = Self { memory: Arc::new(Memory { base, bytes, private, states }) };
        // SAFETY: the first frame is ours, mapped just now, and there is no reference to it.
        unsafe { mprotect(mapped, FRAME_LEN, MprotectFlags::READ) }?;
        Ok(slab)
    }

    /// Number of frames.
    #[must_use]
    pub fn frames(&self) -> usize {
        self.memory.states.len()
    }

    /// The bytes of a segment, to read.
    ///
    /// # Panics
    /// Panics while an exclusive lease on them is held.
    #[must_use]
    pub fn bytes(&self, segment: Segment) -> &[u8] {
        let memory = &*self.memory;
        memory.check(segment, Access::Shared);
        let start = memory.start(segment);
        // SAFETY: in the mapping (`start`), initialised (anonymous memory is zeros), and not
        // written while the reference lives: no exclusive lease is held (`check`), taking one needs
        // `&mut self`, and so does `bytes_mut`.
        unsafe { std::slice::from_raw_parts(start, segment.len as usize) }
    }

    /// The bytes of a segment, to write.
    ///
    /// # Panics
    /// Panics while a lease on them is held, and for the frame of zeros.
    #[must_use]
    pub fn bytes_mut(&mut self, segment: Segment) -> &mut [u8] {
        let memory = &*self.memory;
        memory.check(segment, Access::Exclusive);
        let start = memory.start(segment);
        // SAFETY: in the mapping (`start`), initialised, and nothing else touches it while the
        // reference lives: no lease is held (`check`) and taking one borrows the slab.
        unsafe { std::slice::from_raw_parts_mut(start, segment.len as usize) }
    }

    /// Leases segments for reading, until the lease is dropped.
    ///
    /// # Panics
    /// Panics while an exclusive lease on them is held.
    pub fn lease_shared(&self, segments: Segments) -> Lease {
        self.lease(segments, Access::Shared)
    }

    /// Leases segments for writing, until the lease is dropped.
    ///
    /// # Panics
    /// Panics while any lease on them is held, and for the frame of zeros.
    pub fn lease_exclusive(&mut self, segments: Segments) -> Lease {
        self.lease(segments, Access::Exclusive)
    }

    /// Number of leased sectors of memory. For tests.
    #[must_use]
    pub fn leased_sectors(&self) -> usize {
        let words = self.memory.states.iter().map(|state| state.load(Ordering::Acquire));
        words.map(|word| word.to_le_bytes().iter().filter(|byte| **byte != 0).count()).sum()
    }

    /// Shared handle of the slab's memory, for registering it with the kernel.
    pub(crate) fn memory(&self) -> Arc<Memory> {
        Arc::clone(&self.memory)
    }

    fn lease(&self, segments: Segments, access: Access) -> Lease {
        for (index, segment) in segments.iter().enumerate() {
            if let Err(error) = self.memory.acquire(*segment, access) {
                for segment in &segments[..index] {
                    self.memory.release(*segment, access);
                }
                panic!("{segment:?}: {error}");
            }
        }
        Lease { memory: self.memory(), segments, access }
    }
}

impl Frames for Slab {
    /// Borrows some segments shared and others exclusively, see [`Frames::split`]. Panics if a
    /// lease forbids the access.
    fn split(&mut self, shared: &[Segment], exclusive: &[Segment]) -> Split<'_> {
        let memory = &*self.memory;
        for (index, target) in exclusive.iter().enumerate() {
            assert!(exclusive[..index].iter().all(|other| !target.overlaps(*other)));
            assert!(shared.iter().all(|source| !target.overlaps(*source)));
            memory.check(*target, Access::Exclusive);
        }
        let mut split = Split::default();
        for segment in shared {
            memory.check(*segment, Access::Shared);
            let start = memory.start(*segment).cast_const();
            // SAFETY: as in `bytes`, and no segment to write overlaps it (asserted above).
            split.read.push(unsafe { std::slice::from_raw_parts(start, segment.len as usize) });
        }
        for segment in exclusive {
            let start = memory.start(*segment);
            // SAFETY: as in `bytes_mut`, and no other segment overlaps it (asserted above).
            split
                .write
                .push(unsafe { std::slice::from_raw_parts_mut(start, segment.len as usize) });
        }
        split
    }
}

impl Memory {
    /// Memory that devices may read and write, in ranges of at most `piece` bytes: all of it except
    /// the frame of zeros, which cannot be written, and the private frames.
    pub(crate) fn for_devices(&self, piece: usize) -> Vec<Address> {
        let mut pieces = Vec::new();
        for part in [FRAME_LEN..self.private.start, self.private.end.max(FRAME_LEN)..self.bytes] {
            for start in part.clone().step_by(piece) {
                let len = (part.end - start).min(piece);
                // Arithmetic on the address only; it is inside the mapping.
                pieces.push(Address { start: self.base.as_ptr().wrapping_add(start), len });
            }
        }
        pieces
    }

    /// Asks the kernel for huge pages in these ranges ([`Memory::for_devices`]), which are about to
    /// be registered. Registration allocates all of their memory at once, page by page without huge
    /// pages. A kernel without huge pages refuses, and registration takes longer; the error is
    /// ignored.
    pub(crate) fn want_huge_pages(&self, pieces: &[Address]) {
        for piece in pieces {
            // SAFETY: the range is inside the mapping, and the advice changes no content.
            let _ = unsafe { madvise(piece.start.cast(), piece.len, Advice::LinuxHugepage) };
        }
    }

    fn start(&self, segment: Segment) -> *mut u8 {
        let start = usize::try_from(segment.slab_start()).expect("a slab fits the address space");
        let end = usize::try_from(segment.slab_end()).expect("a slab fits the address space");
        assert!(end <= self.bytes, "{segment:?} is outside the slab");
        assert!(segment.frame != ZERO_FRAME || end <= FRAME_LEN, "{segment:?} begins in the zeros");
        // SAFETY: `start < end <= bytes`, so it stays inside the one mapping.
        unsafe { self.base.as_ptr().add(start) }
    }

    /// Asserts that no lease forbids a reference with this access to the segment.
    fn check(&self, segment: Segment, access: Access) {
        assert!(segment.slab_end() <= self.bytes as u64, "{segment:?} is outside the slab");
        if segment.is_zero() {
            assert!(access == Access::Shared, "the frame of zeros cannot be written");
            return;
        }
        for (frame, mask) in masks(segment) {
            let state = self.states[frame].load(Ordering::Acquire);
            let contradicting = match access {
                Access::Exclusive => mask,
                Access::Shared => mask & EXCLUSIVE,
            };
            assert!(state & contradicting == 0, "{segment:?}: leased ({state:#018x})");
        }
    }

    fn acquire(&self, segment: Segment, access: Access) -> Result<(), &'static str> {
        if segment.slab_end() > self.bytes as u64 {
            return Err("outside the slab");
        }
        if segment.is_zero() {
            let shared = access == Access::Shared;
            return shared.then_some(()).ok_or("the frame of zeros cannot be written");
        }
        for (index, (frame, mask)) in masks(segment).enumerate() {
            let update = |state: u64| match access {
                Access::Exclusive => (state & mask == 0).then_some(state | mask & EXCLUSIVE),
                Access::Shared if state & mask & EXCLUSIVE != 0 => None,
                Access::Shared => {
                    // One more lease on a byte of 0x7f would read as `EXCLUSIVE`: 127 shared leases
                    // of one sector are a leak.
                    let next = state.wrapping_add(mask & ONES);
                    (next & mask & EXCLUSIVE == 0).then_some(next)
                }
            };
            let order = Ordering::Acquire;
            if self.states[frame].fetch_update(order, order, update).is_err() {
                for (frame, mask) in masks(segment).take(index) {
                    self.release_frame(frame, mask, access);
                }
                return Err("leased already");
            }
        }
        Ok(())
    }

    fn release(&self, segment: Segment, access: Access) {
        if segment.is_zero() {
            return;
        }
        for (frame, mask) in masks(segment) {
            self.release_frame(frame, mask, access);
        }
    }

    fn release_frame(&self, frame: usize, mask: u64, access: Access) {
        match access {
            Access::Exclusive => self.states[frame].fetch_and(!mask, Ordering::Release),
            Access::Shared => self.states[frame].fetch_sub(mask & ONES, Ordering::Release),
        };
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        // SAFETY: the mapping was made in `new` with this address and length. References borrow the
        // slab and leases own a share of this value, so nothing can touch the mapping any more.
        let unmapped = unsafe { munmap(self.base.as_ptr().cast(), self.bytes) };
        debug_assert!(unmapped.is_ok());
    }
}

impl Mapping {
    /// Maps the first `bytes` of a file that is at least as long and sealed against becoming
    /// shorter.
    ///
    /// # Errors
    /// Fails when the kernel has no room for the mapping, when the file is too short or not sealed,
    /// or when `bytes` is 0.
    pub(crate) fn new(file: impl AsFd, bytes: u64) -> std::io::Result<Self> {
        let file = file.as_fd();
        let sealed = rustix::fs::fcntl_get_seals(file)?.contains(rustix::fs::SealFlags::SHRINK);
        let stat = rustix::fs::fstat(file)?;
        let long = u64::try_from(stat.st_size).is_ok_and(|len| len >= bytes);
        let full = u64::try_from(stat.st_blocks).is_ok_and(|blocks| blocks * 512 >= bytes);
        if !sealed || !long || bytes == 0 {
            return Err(std::io::ErrorKind::Unsupported.into());
        }
        let bytes = usize::try_from(bytes).map_err(|_| std::io::ErrorKind::OutOfMemory)?;
        let protection = ProtFlags::READ | ProtFlags::WRITE;
        let at = std::ptr::null_mut();
        // Allocated pages are mapped at once, so that the first use of each costs no fault; holes
        // stay holes.
        let flags = if full { MapFlags::SHARED | MapFlags::POPULATE } else { MapFlags::SHARED };
        // SAFETY: a new mapping at an address of the kernel's choice touches nothing that exists.
        let mapped = unsafe { mmap(at, bytes, protection, flags, file, 0) }?;
        let base = NonNull::new(mapped.cast()).expect("mmap gives an address or an error");
        Ok(Self { base, bytes })
    }

    /// Fills `into` from the bytes at `at`.
    ///
    /// # Panics
    /// Panics for a range outside the mapping.
    pub(crate) fn copy_out(&self, at: u64, into: &mut [u8]) {
        let from = self.start(at, into.len());
        // SAFETY: `into.len()` bytes from `from` are inside the mapping (`start`). No reference
        // points into the mapping, so source and destination do not overlap. The seal keeps the
        // file long enough.
        unsafe { std::ptr::copy_nonoverlapping(from.cast_const(), into.as_mut_ptr(), into.len()) }
    }

    /// Copies `from` to byte `at` of the mapping.
    ///
    /// # Panics
    /// Panics for a range outside the mapping.
    pub(crate) fn copy_in(&self, at: u64, from: &[u8]) {
        let into = self.start(at, from.len());
        // SAFETY: as in `copy_out`; there is no reference to the bytes that change.
        unsafe { std::ptr::copy_nonoverlapping(from.as_ptr(), into, from.len()) }
    }

    /// Fills `len` bytes of the mapping, from byte `at` on, with zeros.
    ///
    /// # Panics
    /// Panics for a range outside the mapping.
    pub(crate) fn zero(&self, at: u64, len: u64) {
        let len = usize::try_from(len).expect("inside the mapping");
        let into = self.start(at, len);
        // SAFETY: as in `copy_in`.
        unsafe { std::ptr::write_bytes(into, 0, len) }
    }

    fn start(&self, at: u64, len: usize) -> *mut u8 {
        let at = usize::try_from(at).expect("inside the mapping");
        assert!(at <= self.bytes && len <= self.bytes - at, "{at} + {len} is outside the mapping");
        // SAFETY: at most the end of the one mapping (asserted above).
        unsafe { self.base.as_ptr().add(at) }
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: made in `new` with this address and length; there is no reference into it.
        let unmapped = unsafe { munmap(self.base.as_ptr().cast(), self.bytes) };
        debug_assert!(unmapped.is_ok());
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        for segment in &self.segments {
            self.memory.release(*segment, self.access);
        }
    }
}

impl Lease {
    /// Length of all segments of the lease together, in bytes.
    #[must_use]
    pub fn len(&self) -> usize {
        self.segments.iter().map(|segment| segment.len as usize).sum()
    }

    /// Whether the lease has no segments. A segment has at least one byte.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.segments.is_empty()
    }
}

impl Buffer {
    /// Length of the buffer in bytes.
    #[must_use]
    pub fn len(&self) -> usize {
        match self {
            Self::Frames(lease) => lease.len(),
            Self::Owned(bytes) => bytes.len,
        }
    }

    /// Whether the buffer has no bytes.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Addresses for the kernel of up to `limit` bytes of the buffer, after its first `skip` bytes.
    /// They are valid while this buffer lives, even when it is moved.
    pub(crate) fn addresses(&self, skip: usize, limit: usize) -> SmallVec<[Address; 4]> {
        let mut window = Window { skip, limit };
        let mut addresses = SmallVec::new();
        match self {
            Self::Frames(lease) => {
                // More segments than the kernel takes make a short request; the rest is submitted
                // again.
                for segment in &lease.segments {
                    if addresses.len() == IOV_MAX {
                        break;
                    }
                    if let Some((offset, len)) = window.take(segment.len as usize) {
                        let start = lease.memory.start(*segment);
                        // SAFETY: `offset < segment.len` and the segment is inside the mapping.
                        let start = unsafe { start.add(offset) };
                        addresses.push(Address { start, len });
                    }
                }
            }
            Self::Owned(bytes) => {
                if let Some((offset, len)) = window.take(bytes.len) {
                    let start = bytes.storage[bytes.skip + offset..].as_ptr().cast_mut();
                    addresses.push(Address { start, len });
                }
            }
        }
        addresses
    }

    /// Bytes of the buffer after its first `skip`, at most `limit` in all, as slices to be written
    /// to a member.
    #[must_use]
    pub fn slices(&self, skip: usize, limit: usize) -> SmallVec<[IoSlice<'_>; 4]> {
        let slice = |address: &Address| {
            // SAFETY: the bytes are inside a buffer that lives as long as `self`, and nothing
            // writes them: the lease is ours, and an exclusive one is written only through `&mut
            // self`.
            let bytes = unsafe { std::slice::from_raw_parts(address.start, address.len) };
            IoSlice::new(bytes)
        };
        self.addresses(skip, limit).iter().map(slice).collect()
    }

    /// Mutable slices of up to `limit` bytes of the buffer, after its first `skip` bytes, to be
    /// filled from a member.
    ///
    /// # Panics
    /// Panics for a shared lease.
    #[must_use]
    pub fn slices_mut(&mut self, skip: usize, limit: usize) -> SmallVec<[IoSliceMut<'_>; 4]> {
        match self {
            Self::Frames(lease) => {
                assert!(lease.access == Access::Exclusive, "filled through a shared lease");
                let slice = |address: &Address| {
                    // SAFETY: inside the mapping for as long as `self` lives; the lease is
                    // exclusive and its segments do not overlap, or it could not have been taken.
                    let bytes =
                        unsafe { std::slice::from_raw_parts_mut(address.start, address.len) };
                    IoSliceMut::new(bytes)
                };
                self.addresses(skip, limit).iter().map(slice).collect()
            }
            Self::Owned(bytes) => {
                let mut window = Window { skip, limit };
                let range = window.take(bytes.len);
                let piece = range.map(|(offset, len)| &mut bytes.as_mut()[offset..offset + len]);
                piece.map(IoSliceMut::new).into_iter().collect()
            }
        }
    }

    /// Copies bytes into the buffer, after its first `skip` bytes.
    ///
    /// # Panics
    /// Panics for a shared lease, and if the bytes do not fit behind the skipped ones.
    pub(crate) fn fill(&mut self, skip: usize, mut bytes: &[u8]) {
        for slice in &mut self.slices_mut(skip, bytes.len()) {
            let (part, rest) = bytes.split_at(slice.len());
            slice.copy_from_slice(part);
            bytes = rest;
        }
        assert!(bytes.is_empty(), "more bytes than the buffer has");
    }

    /// Fills the buffer with the first of `bytes`. Returns false, without copying, if `bytes` is
    /// shorter than the buffer.
    ///
    /// # Panics
    /// Panics for a shared lease.
    #[must_use]
    pub fn copy_from(&mut self, bytes: &[u8]) -> bool {
        let first = bytes.get(..self.len());
        first.inspect(|bytes| self.fill(0, bytes)).is_some()
    }

    /// Copies the whole buffer to the start of `bytes`. Returns false, without copying, if `bytes`
    /// is shorter than the buffer.
    #[must_use]
    pub fn copy_to(&self, bytes: &mut [u8]) -> bool {
        let Some(mut rest) = bytes.get_mut(..self.len()) else { return false };
        for slice in &self.slices(0, self.len()) {
            let (part, after) = rest.split_at_mut(slice.len());
            part.copy_from_slice(slice);
            rest = after;
        }
        true
    }

    /// The bytes of a metadata buffer; `None` if the buffer consists of segments of the slab.
    #[must_use]
    pub fn into_owned(self) -> Option<AlignedBytes> {
        match self {
            Self::Frames(_) => None,
            Self::Owned(bytes) => Some(bytes),
        }
    }
}

impl AlignedBytes {
    /// Aligned memory of `len` zeros.
    #[must_use]
    pub fn zeroed(len: usize) -> Self {
        let storage = vec![0; len + FRAME_LEN];
        let address = storage.as_ptr().addr();
        let skip = address.next_multiple_of(FRAME_LEN) - address;
        Self { storage, skip, len }
    }

    /// Aligned memory with a copy of these bytes.
    #[must_use]
    pub fn copy_of(bytes: &[u8]) -> Self {
        let mut aligned = Self::zeroed(bytes.len());
        aligned.as_mut().copy_from_slice(bytes);
        aligned
    }
}

impl AsRef<[u8]> for AlignedBytes {
    fn as_ref(&self) -> &[u8] {
        &self.storage[self.skip..self.skip + self.len]
    }
}

impl AsMut<[u8]> for AlignedBytes {
    fn as_mut(&mut self) -> &mut [u8] {
        &mut self.storage[self.skip..self.skip + self.len]
    }
}

/// Part of a list of segments that is still to be moved: `limit` bytes after the first `skip`.
struct Window {
    skip: usize,
    limit: usize,
}

impl Window {
    /// Advances past the next segment, of `len` bytes. Returns the range to move within this
    /// segment, as offset and length; `None` if no byte of it is to be moved.
    fn take(&mut self, len: usize) -> Option<(usize, usize)> {
        let offset = self.skip.min(len);
        self.skip -= offset;
        let taken = (len - offset).min(self.limit);
        self.limit -= taken;
        (taken > 0).then_some((offset, taken))
    }
}

/// The frames that a segment touches, each with a mask for its word of leases: 0xff in the byte of
/// each touched sector.
#[inline]
fn masks(segment: Segment) -> impl Iterator<Item = (usize, u64)> {
    let per_frame = FRAME_BYTES / SECTOR_BYTES;
    let mut sector = segment.slab_start() / SECTOR_BYTES;
    let end = (segment.slab_end() - 1) / SECTOR_BYTES + 1;
    std::iter::from_fn(move || {
        if sector >= end {
            return None;
        }
        let (frame, from) = (sector / per_frame, sector % per_frame);
        let count = (end - sector).min(per_frame - from);
        sector += count;
        let mask = (u64::MAX >> (8 * (per_frame - count))) << (8 * from);
        Some((usize::try_from(frame).expect("a slab fits the address space"), mask))
    })
}

pub(crate) const FRAME_LEN: usize = 4096;
const _: () = assert!(FRAME_LEN as u64 == FRAME_BYTES);
/// Largest number of buffers in one vectored read or write.
///
/// Source   limits.h, `IOV_MAX`
const IOV_MAX: usize = 1024;
/// Lease states of a frame with all of its sectors under an exclusive lease: 0x80 in each byte.
const EXCLUSIVE: u64 = 0x8080_8080_8080_8080;
/// Lease states of a frame with one shared lease on each of its sectors: 1 in each byte.
const ONES: u64 = 0x0101_0101_0101_0101;
const _: () = assert!(FRAME_BYTES / SECTOR_BYTES == 8, "a frame's word has a byte per sector");

#[cfg(test)]
mod tests {
    use super::*;
    use smallvec::smallvec;
    use weft_compute::conformance;
    use weft_engine::Frame;

    fn segment(frame: u32, offset: u32, len: u32) -> Segment {
        Segment { frame: Frame(frame), offset, len }
    }

    fn panics(action: impl FnOnce()) -> bool {
        std::panic::catch_unwind(std::panic::AssertUnwindSafe(action)).is_err()
    }

    #[test]
    fn masks_cover_the_sectors_touched() {
        let cases: [(Segment, &[(usize, u64)]); 4] = [
            (segment(1, 0, 4096), &[(1, u64::MAX)]),
            (segment(1, 512, 512), &[(1, 0xff00)]),
            (segment(1, 511, 2), &[(1, 0xffff)]),
            (segment(1, 3584, 1024), &[(1, 0xff << 56), (2, 0xff)]),
        ];
        for (segment, expected) in cases {
            assert_eq!(masks(segment).collect::<Vec<_>>(), expected, "{segment:?}");
        }
    }

    #[test]
    fn devices_see_all_but_the_zeros_and_what_is_private() {
        let seen = |slab: &Slab, frames| -> Vec<(usize, usize)> {
            let base = slab.memory.base.as_ptr().addr();
            let pieces = slab.memory.for_devices(frames * FRAME_LEN);
            let in_frames =
                |it: &Address| ((it.start.addr() - base) / FRAME_LEN, it.len / FRAME_LEN);
            pieces.iter().map(in_frames).collect()
        };
        assert_eq!(seen(&Slab::new(8).unwrap(), 100), [(1, 7)]);
        assert_eq!(seen(&Slab::new(1).unwrap(), 100), []);
        let slab = Slab::with_private(10, 3..6).unwrap();
        assert_eq!(seen(&slab, 100), [(1, 2), (6, 4)]);
        assert_eq!(seen(&slab, 3), [(1, 2), (6, 3), (9, 1)]);
        assert_eq!(seen(&Slab::with_private(10, 1..10).unwrap(), 3), []);
    }

    #[test]
    fn a_lease_keeps_others_out_until_it_is_dropped() {
        let mut slab = Slab::new(8).unwrap();
        let shared = slab.lease_shared(smallvec![segment(2, 0, 8192)]);
        let again = slab.lease_shared(smallvec![segment(3, 0, 512)]);
        assert_eq!(slab.bytes(segment(3, 0, 4096)), [0; 4096]);
        assert!(panics(|| _ = slab.bytes_mut(segment(3, 4095, 1))));
        assert!(panics(
            || _ = slab.lease_exclusive(smallvec![segment(4, 0, 512), segment(2, 0, 512)])
        ));
        drop(shared);
        assert!(panics(|| _ = slab.bytes_mut(segment(3, 0, 1))));
        slab.bytes_mut(segment(3, 512, 3584)).fill(7);
        drop(again);
        let exclusive = slab.lease_exclusive(smallvec![segment(3, 0, 512), segment(3, 1024, 512)]);
        assert!(panics(|| _ = slab.bytes(segment(3, 1024, 1))));
        assert!(panics(|| _ = slab.lease_shared(smallvec![segment(3, 1024, 1)])));
        assert_eq!(slab.bytes(segment(3, 512, 512)), [7; 512]);
        assert_eq!(slab.leased_sectors(), 2);
        drop(exclusive);
        assert_eq!(slab.leased_sectors(), 0);
    }

    #[test]
    fn zeros_stay_zeros() {
        let mut slab = Slab::new(2).unwrap();
        assert!(panics(|| _ = slab.bytes_mut(segment(0, 0, 1))));
        assert!(panics(|| _ = slab.lease_exclusive(smallvec![segment(0, 0, 512)])));
        assert!(panics(|| _ = slab.bytes(segment(0, 4095, 2))));
        assert!(panics(|| _ = slab.bytes(segment(1, 4095, 2))));
        let leases: Vec<_> =
            (0..1000).map(|_| slab.lease_shared(smallvec![segment(0, 0, 4096)])).collect();
        assert_eq!(slab.leased_sectors(), 0);
        drop(leases);
    }

    #[test]
    fn split_gives_parts_that_do_not_overlap() {
        let mut slab = Slab::new(4).unwrap();
        slab.bytes_mut(segment(1, 0, 4096)).fill(3);
        let mut split = slab.split(&[segment(1, 0, 16), segment(1, 8, 16)], &[segment(1, 24, 16)]);
        split.write[0].copy_from_slice(&[5; 16]);
        assert_eq!(split.read[1], [3; 16]);
        drop(split);
        assert!(panics(|| _ = slab.split(&[segment(1, 0, 16)], &[segment(1, 15, 16)])));
        assert!(panics(|| _ = slab.split(&[], &[segment(1, 0, 16), segment(1, 15, 16)])));
    }

    #[test]
    fn computations_give_what_their_definition_says() {
        let tried = conformance::check(|| Slab::new(conformance::FRAMES).unwrap());
        assert!(tried.operations > 100 && tried.refusals > 30, "{tried:?}");
    }

    #[test]
    fn a_mapping_is_its_file_and_stays_inside_it() {
        use rustix::fs::{MemfdFlags, SealFlags, fcntl_add_seals, ftruncate, memfd_create};
        let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
        let file = memfd_create("weft-test", flags).unwrap();
        ftruncate(&file, 8192).unwrap();
        assert!(Mapping::new(&file, 8192).is_err(), "the file is not sealed");
        fcntl_add_seals(&file, SealFlags::SHRINK).unwrap();
        assert!(Mapping::new(&file, 8193).is_err(), "the file is too short");
        let mapping = Mapping::new(&file, 8192).unwrap();
        mapping.copy_in(8190, &[1, 2]);
        let mut bytes = [0; 4];
        assert_eq!(rustix::io::pread(&file, &mut bytes, 8188), Ok(4));
        assert_eq!(bytes, [0, 0, 1, 2]);
        assert_eq!(rustix::io::pwrite(&file, &[3], 8191), Ok(1));
        mapping.copy_out(8189, &mut bytes[..3]);
        assert_eq!(bytes[..3], [0, 1, 3]);
        assert!(panics(|| mapping.copy_in(8191, &[1, 2])));
        assert!(panics(|| mapping.copy_out(u64::MAX, &mut [0])));
    }

    #[test]
    fn slices_resume_in_the_middle_of_a_part() {
        let mut slab = Slab::new(4).unwrap();
        let lease = slab.lease_exclusive(smallvec![segment(1, 0, 1024), segment(3, 0, 512)]);
        let mut buffer = Buffer::Frames(lease);
        assert_eq!(buffer.len(), 1536);
        for slice in &mut buffer.slices_mut(1000, 100) {
            slice.fill(9);
        }
        let lens: Vec<_> = buffer.slices(1000, 100).iter().map(|slice| slice.len()).collect();
        assert_eq!(lens, [24, 76]);
        let mut all = vec![1; 1537];
        assert!(!buffer.copy_to(&mut all[..1535]) && all[..1535].iter().all(|byte| *byte == 1));
        assert!(buffer.copy_to(&mut all));
        assert_eq!((&all[..1000], &all[1000..1100]), (&[0; 1000][..], &[9; 100][..]));
        assert_eq!((&all[1100..1536], all[1536]), (&[0; 436][..], 1));
        let numbers: Vec<u8> = (0..=250).cycle().take(1537).collect();
        assert!(!buffer.copy_from(&numbers[..1535]) && buffer.copy_from(&numbers));
        assert!(buffer.copy_to(&mut all) && all[..1536] == numbers[..1536] && all[1536] == 1);
        drop(buffer);
        assert_eq!(slab.bytes(segment(1, 1000, 24)), &numbers[1000..1024]);
        assert_eq!(slab.bytes(segment(3, 76, 1)), &numbers[1100..1101]);
        let owned = Buffer::Owned(AlignedBytes::copy_of(&[1, 2, 3]));
        assert_eq!(&*owned.slices(1, 10)[0], [2, 3]);
    }
}
