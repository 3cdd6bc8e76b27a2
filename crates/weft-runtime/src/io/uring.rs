//! Ring over io_uring: registered memory and files, submission, completion.
//!
//! Each `submit` enters the kernel once, however many operations were pushed. Files are registered.
//! So is the slab, with the first file that is read and written with `O_DIRECT` (in regions of 1
//! GiB, without the frame of zeros, which is mapped read-only and cannot be registered): requests
//! to other files copy from and to it, which registered memory makes no faster, and registration
//! allocates and pins the whole slab. A request of one segment inside a region uses `READ_FIXED` or
//! `WRITE_FIXED`; the others pass addresses. Where the kernel refuses to register memory
//! (RLIMIT_MEMLOCK), all requests pass addresses.
//!
//! # Why no completion is lost
//!
//! At most `capacity` operations are outstanding, and the completion queue has more entries than
//! `capacity` plus the allowed cancellations, so it never overflows. If it did, the kernel would
//! keep what does not fit (`IORING_FEAT_NODROP`, required) until the next enter.
//!
//! # Files of FUSE and of the network
//!
//! Operations on files of FUSE or of a network file system can block the submitting thread until
//! their server answers, whatever flags are set. Such operations begin in kernel workers
//! (`IOSQE_ASYNC`), and the ring then allows as many workers as operations. The kernel's default is
//! a few workers: one server that does not answer could occupy all of them, and no flush of any
//! file would run.
//!
//! Source   io_uring(7), io_uring_enter(2), io_uring_register(2)

use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd};
use std::sync::Arc;

use io_uring::{IoUring, opcode, squeue, types};
use rustix::io::Errno;
use smallvec::SmallVec;

use super::ring::{Action, FileKind, Ring, RingDone, RingOp};
use crate::buffers::{Address, Memory, Slab};

/// io_uring with the interface of a ring.
pub struct UringRing {
    ring: IoUring,
    /// Slots of outstanding operations; the index of a slot is the user data of its submission
    /// queue entry. The array never grows, so that the addresses of the `iovec`s stay valid.
    slots: Box<[Slot]>,
    free: Vec<u16>,
    files: Vec<Option<Arc<OwnedFd>>>,
    files_registered: bool,
    /// Whether kernel workers begin the operations of each file, by its index.
    blocking: Vec<bool>,
    /// Indexes of files to remove from the kernel's table once no operation uses them: an operation
    /// that the kernel has deferred looks its file up only when it begins.
    leaving: Vec<u16>,
    cancels: usize,
    cancels_max: usize,
    memory: Arc<Memory>,
    /// Registered regions of the memory; empty before the registration and after a refused one.
    regions: Vec<Address>,
    /// Whether the kernel has refused to register the memory.
    is_refused: bool,
}

#[derive(Default)]
struct Slot {
    op: Option<RingOp>,
    /// Handle that keeps the file open while the kernel may use its descriptor; `None` in a free
    /// slot.
    file: Option<Arc<OwnedFd>>,
    iovecs: SmallVec<[libc::iovec; 4]>,
}

// SAFETY: the fields that are not `Send` are addresses: of the slab's memory, which belongs to no
// thread (`buffers.rs`), and of `iovec`s in the ring's own slots. The kernel takes entries from any
// thread.
unsafe impl Send for UringRing {}

impl UringRing {
    /// Sets up a ring for `capacity` outstanding operations.
    ///
    /// # Errors
    /// Fails when the kernel refuses (`ENOSYS`, `EPERM`, `ENOMEM`), or is older than 5.6.
    pub fn new(slab: &Slab, capacity: u16) -> std::io::Result<Self> {
        let entries = u32::from(capacity).next_power_of_two();
        let ring: IoUring = IoUring::builder().setup_cqsize(entries * 2).build(entries)?;
        if !ring.params().is_feature_nodrop() || !ring.params().is_feature_rw_cur_pos() {
            return Err(std::io::ErrorKind::Unsupported.into());
        }
        Ok(Self {
            slots: (0..capacity).map(|_| Slot::default()).collect(),
            free: (0..capacity).rev().collect(),
            files: Vec::new(),
            files_registered: ring.submitter().register_files_sparse(FILES_MAX).is_ok(),
            blocking: Vec::new(),
            leaving: Vec::new(),
            cancels: 0,
            cancels_max: (ring.params().cq_entries() as usize) - usize::from(capacity) - 1,
            memory: slab.memory(),
            regions: Vec::new(),
            is_refused: false,
            ring,
        })
    }

    /// Registers the slab, unless that was tried already.
    fn register_slab(&mut self) {
        if self.is_refused || !self.regions.is_empty() {
            return;
        }
        let regions = self.memory.for_devices(REGION_BYTES);
        self.memory.want_huge_pages(&regions);
        let iovecs: Vec<_> = regions.iter().map(|region| iovec(*region)).collect();
        // SAFETY: the regions are inside the mapping, which `self.memory` keeps in place until
        // `Drop` has waited for every operation and the ring is gone (fields drop in order, `ring`
        // first).
        let registered = unsafe { self.ring.submitter().register_buffers(&iovecs) };
        match registered {
            Ok(()) => self.regions = regions,
            Err(error) => {
                self.is_refused = true;
                tracing::info!(
                    %error,
                    "io_uring: payload memory not registered (RLIMIT_MEMLOCK); \
                     requests name addresses"
                );
            }
        }
    }

    fn register_file(&self, index: u16, fd: i32) -> std::io::Result<()> {
        self.ring.submitter().register_files_update(u32::from(index), &[fd]).map(|_| ())
    }

    /// Unregisters the files in `leaving` that no operation uses.
    fn unregister_files(&mut self) {
        let mut leaving = std::mem::take(&mut self.leaving);
        leaving.retain(|index| {
            let uses = |slot: &Slot| slot.op.as_ref().is_some_and(|op| op.file == *index);
            let used = self.slots.iter().any(uses);
            if !used && let Err(error) = self.register_file(*index, -1) {
                tracing::warn!(file = index, %error, "io_uring: file stays registered");
            }
            used
        });
        self.leaving = leaving;
    }

    /// Index of the registered region that contains all bytes at `address`; `None` if no region
    /// does.
    fn region_of(&self, address: Address) -> Option<u16> {
        let position = self.regions.iter().position(|region| {
            let offset = address.start.addr().wrapping_sub(region.start.addr());
            offset < region.len && address.len <= region.len - offset
        })?;
        u16::try_from(position).ok()
    }

    fn entry_of(&mut self, index: u16) -> squeue::Entry {
        let slot = &self.slots[usize::from(index)];
        let op = slot.op.as_ref().expect("filled by push");
        let file = slot.file.as_ref().expect("filled by push").as_raw_fd();
        let fixed = self.files_registered.then_some(types::Fixed(u32::from(op.file)));
        // Registered and plain files have different types; the macro writes each builder once for
        // both.
        macro_rules! build {
            ($opcode:ident, ($($argument:expr),*) $(, $method:ident($value:expr))*) => {
                match fixed {
                    Some(file) => opcode::$opcode::new(file $(, $argument)*)
                        $(.$method($value))*.build(),
                    None => opcode::$opcode::new(types::Fd(file) $(, $argument)*)
                        $(.$method($value))*.build(),
                }
            };
        }
        if let Action::Discard { len } = op.action {
            let mode = libc::FALLOC_FL_PUNCH_HOLE | libc::FALLOC_FL_KEEP_SIZE;
            return build!(Fallocate, (len), offset(op.offset), mode(mode));
        }
        let Some(buffer) = op.buffer() else {
            return build!(Fsync, (), flags(types::FsyncFlags::DATASYNC));
        };
        let durable = match op.action {
            Action::Write { durable: true, .. } => libc::RWF_DSYNC,
            Action::Discard { .. }
            | Action::Flush
            | Action::Read(_)
            | Action::Write { durable: false, .. } => 0,
        };
        let is_read = matches!(op.action, Action::Read(_));
        let at = op.offset;
        let addresses = buffer.addresses(op.skip, op.limit);
        if let [address] = addresses[..] {
            let len = u32::try_from(address.len).expect("a request is shorter than 4 GiB");
            let start = address.start;
            return match (self.region_of(address), is_read) {
                (Some(region), true) => build!(ReadFixed, (start, len, region), offset(at)),
                (Some(region), false) => {
                    build!(WriteFixed, (start, len, region), offset(at), rw_flags(durable))
                }
                (None, true) => build!(Read, (start, len), offset(at)),
                (None, false) => build!(Write, (start, len), offset(at), rw_flags(durable)),
            };
        }
        let slot = &mut self.slots[usize::from(index)];
        slot.iovecs = addresses.into_iter().map(iovec).collect();
        let count = u32::try_from(slot.iovecs.len()).expect("at most IOV_MAX");
        let start = slot.iovecs.as_ptr();
        if is_read {
            build!(Readv, (start, count), offset(at))
        } else {
            build!(Writev, (start, count), offset(at), rw_flags(durable))
        }
    }

    /// Puts an entry into the submission queue, and enters the kernel if there is no room.
    fn enqueue(&mut self, entry: &squeue::Entry) -> std::io::Result<()> {
        loop {
            // SAFETY: the entry names memory of an operation in `slots` (or none), which stays
            // there until its completion is reaped; `Drop` waits for that. The memory itself is the
            // lease's (see `buffers.rs`) or on the heap, and an `iovec` array is in the slot, which
            // does not move.
            let pushed = unsafe { self.ring.submission().push(entry) };
            if pushed.is_ok() {
                return Ok(());
            }
            self.enter()?;
        }
    }

    /// Enters the kernel once. Entries that the kernel does not take stay in the queue.
    fn enter(&mut self) -> std::io::Result<()> {
        match self.ring.submit() {
            Ok(_) => Ok(()),
            Err(error) => match Errno::from_io_error(&error) {
                Some(Errno::INTR | Errno::AGAIN | Errno::BUSY) => Ok(()),
                _ => Err(error),
            },
        }
    }
}

impl Ring for UringRing {
    fn set_file(&mut self, index: u16, file: Option<Arc<OwnedFd>>) -> std::io::Result<()> {
        let at = usize::from(index);
        if self.files.len() <= at {
            self.files.resize_with(at + 1, || None);
        }
        if self.files_registered {
            match &file {
                Some(file) => self.register_file(index, file.as_raw_fd())?,
                None => self.leaving.push(index),
            }
        }
        self.files[at] = file;
        if let Some(blocking) = self.blocking.get_mut(at) {
            *blocking = false;
        }
        self.unregister_files();
        Ok(())
    }

    fn set_kind(&mut self, index: u16, kind: FileKind) {
        match kind {
            FileKind::Device => return self.register_slab(),
            FileKind::Memory | FileKind::PageCache => return,
            FileKind::Server => {}
        }
        if self.blocking.is_empty() {
            let mut most = [u32::try_from(self.slots.len()).expect("16 bits"), 0];
            if let Err(error) = self.ring.submitter().register_iowq_max_workers(&mut most) {
                tracing::warn!(
                    %error,
                    "io_uring: few workers; \
                     a member that does not answer may keep the others waiting"
                );
            }
        }
        let at = usize::from(index);
        if self.blocking.len() <= at {
            self.blocking.resize(at + 1, false);
        }
        self.blocking[at] = true;
    }

    fn capacity(&self) -> usize {
        self.slots.len()
    }

    fn push(&mut self, op: RingOp) {
        let index = self.free.pop().expect("the caller keeps outstanding < capacity");
        let file = self.files[usize::from(op.file)].clone();
        assert!(file.is_some(), "the caller put the file in");
        let is_blocking = self.blocking.get(usize::from(op.file)).is_some_and(|blocks| *blocks);
        let slot = &mut self.slots[usize::from(index)];
        slot.op = Some(op);
        slot.file = file;
        let mut entry = self.entry_of(index).user_data(u64::from(index));
        if is_blocking {
            entry = entry.flags(squeue::Flags::ASYNC);
        }
        // The queue is as long as `slots`, so there is room after at most one enter. If even that
        // fails the ring is dead, and `submit` will report it.
        if let Err(error) = self.enqueue(&entry) {
            tracing::error!(%error, "io_uring: submission failed");
        }
    }

    fn submit(&mut self) -> std::io::Result<()> {
        if self.ring.submission().is_empty() {
            return Ok(());
        }
        self.enter()
    }

    fn reap(&mut self, done: &mut Vec<RingDone>) {
        loop {
            for cqe in self.ring.completion() {
                let Ok(index) = u16::try_from(cqe.user_data()) else {
                    self.cancels -= 1;
                    continue;
                };
                let slot = &mut self.slots[usize::from(index)];
                let op = slot.op.take().expect("the kernel completes each operation once");
                slot.file = None;
                slot.iovecs.clear();
                self.free.push(index);
                let result = match usize::try_from(cqe.result()) {
                    Ok(count) => Ok(count),
                    Err(_) => Err(Errno::from_raw_os_error(-cqe.result())),
                };
                done.push(RingDone { op, result, panicked: false });
            }
            if !self.leaving.is_empty() {
                self.unregister_files();
            }
            if !self.ring.submission().cq_overflow() {
                return;
            }
            // The kernel now moves the completions that did not fit before into the queue. If
            // entering fails, `submit` meets the error again and reports it.
            if self.ring.submitter().submit_and_wait(0).is_err() {
                return;
            }
        }
    }

    fn cancel(&mut self, id: u32) {
        let named = |slot: &Slot| slot.op.as_ref().is_some_and(|op| op.id == id);
        let Some(index) = self.slots.iter().position(named) else { return };
        if self.cancels == self.cancels_max {
            return;
        }
        let entry = opcode::AsyncCancel::new(index as u64).build().user_data(CANCEL);
        if self.enqueue(&entry).is_ok() {
            self.cancels += 1;
        }
    }

    fn wait_fd(&self) -> BorrowedFd<'_> {
        // SAFETY: the descriptor is the ring's, which the result borrows.
        unsafe { BorrowedFd::borrow_raw(self.ring.as_raw_fd()) }
    }

    fn outstanding(&self) -> usize {
        self.slots.len() - self.free.len()
    }

    fn busy(&self) -> bool {
        // SAFETY: no other view of the submission queue is alive; `self` is borrowed.
        !unsafe { self.ring.submission_shared() }.is_empty()
    }

    fn describe(&self) -> String {
        let buffers = if self.is_refused { ", buffers not registered" } else { "" };
        let files = if self.files_registered { "" } else { ", files not registered" };
        format!("io_uring{buffers}{files}")
    }
}

impl Drop for UringRing {
    /// Cancels all outstanding operations and waits for their end: until then the kernel may write
    /// to their memory.
    fn drop(&mut self) {
        let ids: Vec<u32> =
            self.slots.iter().filter_map(|slot| slot.op.as_ref().map(|op| op.id)).collect();
        for id in ids {
            self.cancel(id);
        }
        let mut done = Vec::new();
        while self.outstanding() > 0 {
            let waited = self.ring.submit_and_wait(1);
            let passing = |error: &std::io::Error| {
                matches!(
                    Errno::from_io_error(error),
                    Some(Errno::INTR | Errno::AGAIN | Errno::BUSY)
                )
            };
            if waited.as_ref().is_err_and(|error| !passing(error)) {
                // The ring is dead and cannot be waited for, so its memory is leaked.
                for slot in &mut self.slots {
                    std::mem::forget(slot.op.take());
                }
                std::mem::forget(Arc::clone(&self.memory));
                return;
            }
            self.reap(&mut done);
            done.clear();
        }
    }
}

fn iovec(address: Address) -> libc::iovec {
    libc::iovec { iov_base: address.start.cast(), iov_len: address.len }
}

/// Size in bytes of the largest memory that the kernel registers as one buffer.
const REGION_BYTES: usize = 1 << 30;
/// Number of entries in the kernel's table of registered files: the largest number of members in
/// use at one time.
const FILES_MAX: u32 = 1024;
/// User data of submission queue entries that cancel an operation.
const CANCEL: u64 = u64::MAX;
