//! A file that is mounted by itself: its operations become requests in a queue.
//!
//! The crate `fuser` calls the file from a thread of its own. Each operation becomes a
//! [`FileRequest`] in a bounded queue, and the reader of the queue is woken by an eventfd. If the
//! queue is full, that thread waits, and the kernel's requests with it.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::time::SystemTime;

use fuser::{
    BsdFileFlags, Errno, FileHandle, Filesystem, FopenFlags, INodeNo, InitFlags, KernelConfig,
    LockOwner, OpenFlags, ReplyAttr, ReplyData, ReplyEmpty, ReplyOpen, ReplyStatfs, ReplyWrite,
    TimeOrNow, WriteFlags,
};
use rustix::event::EventfdFlags;
use rustix::fs::{FallocateFlags, OFlags};

use crate::mount::{Mount, MountError, Options};

/// Request of the kernel for a mounted file. Ranges in bytes may begin and end anywhere.
pub enum FileRequest {
    /// Request for the attributes of the file.
    Attributes(ReplyAttr),
    /// Request to set the size, which is answered with the attributes.
    Resize {
        /// Requested size in bytes.
        size: u64,
        /// Whether the size is set through an open file, as by ftruncate(2), and not by path.
        by_file: bool,
        /// Object by which the request is answered.
        reply: ReplyAttr,
    },
    /// Request for the data of a range.
    Read {
        /// Offset in the file of the first byte.
        start: u64,
        /// Length in bytes.
        len: u32,
        /// Object by which the request is answered.
        reply: ReplyData,
    },
    /// Request to store data.
    Write {
        /// Offset in the file of the first byte.
        start: u64,
        /// The data to store.
        data: Vec<u8>,
        /// Whether the data has to be durable before the reply.
        fua: bool,
        /// Object by which the request is answered.
        reply: ReplyWrite,
    },
    /// Request to make all writes durable that were answered before.
    Flush(ReplyEmpty),
    /// Request to write zeroes to a range.
    Zeroes {
        /// Offset in the file of the first byte.
        start: u64,
        /// Length in bytes.
        len: u64,
        /// Whether the range may be deallocated.
        discard: bool,
        /// Object by which the request is answered.
        reply: ReplyEmpty,
    },
    /// The session has ended: the file is not mounted any more.
    End,
}

/// A mounted file, and the queue of its requests. The file is unmounted when the value is dropped.
pub struct MountedFile {
    mount: Mount,
    requests: Receiver<FileRequest>,
    eventfd: Arc<OwnedFd>,
}

impl MountedFile {
    /// Mounts a file on the existing file `path`. Requests wait in the queue until [`Self::take`]
    /// removes them.
    ///
    /// # Errors
    /// FUSE is missing or not permitted here, the mount was refused, or no descriptor is left.
    pub fn new(path: &Path, options: Options) -> Result<Self, MountError> {
        let flags = EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK;
        let eventfd = rustix::event::eventfd(0, flags);
        let eventfd = eventfd.map_err(|error| MountError::refused(path, &error.to_string()))?;
        let eventfd = Arc::new(eventfd);
        let (to, requests) = sync_channel(QUEUED_MAX);
        let file = Forward { to, eventfd: Arc::clone(&eventfd) };
        Ok(Self { mount: Mount::new(file, path, options)?, requests, eventfd })
    }

    /// The mount of the file, by which the file can be unmounted.
    #[must_use]
    pub fn mount(&self) -> &Mount {
        &self.mount
    }

    /// The next request; `None` if there is none now.
    #[must_use]
    pub fn take(&self) -> Option<FileRequest> {
        self.requests.try_recv().ok()
    }

    /// Resets the eventfd after it has woken the reader of the queue: the descriptor is not
    /// readable again until the next request.
    pub fn woken(&self) {
        // An error is ignored: another call has read it.
        let _ = rustix::io::read(&*self.eventfd, &mut [0; 8]);
    }
}

/// Descriptor that becomes readable when a request arrives, until [`MountedFile::woken`] resets it.
impl AsFd for MountedFile {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.eventfd.as_fd()
    }
}

/// Implementation of `fuser`'s file system that sends the operations to a [`MountedFile`] as
/// requests.
struct Forward {
    to: SyncSender<FileRequest>,
    eventfd: Arc<OwnedFd>,
}

impl Forward {
    fn send(&self, request: FileRequest) {
        // Sending fails only if the reader has ended. The reply is dropped with the request, which
        // is an error for the kernel.
        if self.to.send(request).is_ok() {
            let _ = rustix::io::write(&*self.eventfd, &1_u64.to_ne_bytes());
        }
    }
}

/// Sends [`FileRequest::End`] when `fuser` drops the file at the end of the session. The kernel
/// sends a `destroy` only for file systems on block devices.
impl Drop for Forward {
    fn drop(&mut self) {
        self.send(FileRequest::End);
    }
}

impl Filesystem for Forward {
    fn init(&mut self, _: &fuser::Request, config: &mut KernelConfig) -> io::Result<()> {
        // Features that the kernel lacks are left out; they only save time.
        let wanted = InitFlags::FUSE_ASYNC_DIO | InitFlags::FUSE_DIRECT_IO_ALLOW_MMAP;
        let _ = config.add_capabilities(wanted & config.capabilities());
        let _ = config.set_max_write(REQUEST_BYTES);
        let _ = config.set_max_background(BACKGROUND_MAX);
        Ok(())
    }

    fn getattr(&self, _: &fuser::Request, _: INodeNo, _: Option<FileHandle>, reply: ReplyAttr) {
        self.send(FileRequest::Attributes(reply));
    }

    /// Passes on a request to set the size; the size of the file stays as it is. New times are
    /// ignored, because the file has no times of its own. Changes of the mode or the owner are
    /// refused with `EPERM`.
    fn setattr(
        &self,
        _: &fuser::Request,
        _: INodeNo,
        mode: Option<u32>,
        uid: Option<u32>,
        gid: Option<u32>,
        size: Option<u64>,
        _: Option<TimeOrNow>,
        _: Option<TimeOrNow>,
        _: Option<SystemTime>,
        file: Option<FileHandle>,
        _: Option<SystemTime>,
        _: Option<SystemTime>,
        _: Option<SystemTime>,
        _: Option<BsdFileFlags>,
        reply: ReplyAttr,
    ) {
        self.send(match (mode, uid, gid, size) {
            (None, None, None, Some(size)) => {
                FileRequest::Resize { size, by_file: file.is_some(), reply }
            }
            (None, None, None, None) => FileRequest::Attributes(reply),
            _ => return reply.error(Errno::EPERM),
        });
    }

    /// Opens the file so that reads and writes bypass the kernel's page cache, because the data may
    /// also be changed by other means than this file.
    fn open(&self, _: &fuser::Request, _: INodeNo, _: OpenFlags, reply: ReplyOpen) {
        let flags = FopenFlags::FOPEN_DIRECT_IO | FopenFlags::FOPEN_PARALLEL_DIRECT_WRITES;
        reply.opened(FileHandle(0), flags);
    }

    fn read(
        &self,
        _: &fuser::Request,
        _: INodeNo,
        _: FileHandle,
        start: u64,
        len: u32,
        _: OpenFlags,
        _: Option<LockOwner>,
        reply: ReplyData,
    ) {
        self.send(FileRequest::Read { start, len, reply });
    }

    fn write(
        &self,
        _: &fuser::Request,
        _: INodeNo,
        _: FileHandle,
        start: u64,
        data: &[u8],
        _: WriteFlags,
        flags: OpenFlags,
        _: Option<LockOwner>,
        reply: ReplyWrite,
    ) {
        // O_SYNC contains the bit of O_DSYNC.
        let fua = OFlags::from_bits_retain(flags.0.cast_unsigned()).contains(OFlags::DSYNC);
        self.send(FileRequest::Write { start, data: data.to_vec(), fua, reply });
    }

    fn fsync(&self, _: &fuser::Request, _: INodeNo, _: FileHandle, _: bool, reply: ReplyEmpty) {
        self.send(FileRequest::Flush(reply));
    }

    fn fallocate(
        &self,
        _: &fuser::Request,
        _: INodeNo,
        _: FileHandle,
        start: u64,
        len: u64,
        mode: i32,
        reply: ReplyEmpty,
    ) {
        let mode = FallocateFlags::from_bits_retain(mode.cast_unsigned());
        let kind = mode.difference(FallocateFlags::KEEP_SIZE);
        match kind {
            FallocateFlags::PUNCH_HOLE | FallocateFlags::ZERO_RANGE => {
                let discard = kind == FallocateFlags::PUNCH_HOLE;
                self.send(FileRequest::Zeroes { start, len, discard, reply });
            }
            _ => reply.error(Errno::EOPNOTSUPP),
        }
    }

    fn statfs(&self, _: &fuser::Request, _: INodeNo, reply: ReplyStatfs) {
        reply.statfs(0, 0, 0, 1, 0, 4096, 0, 4096);
    }

    /// Refuses the flush at a close with `ENOSYS`: closing the file makes nothing durable, as with
    /// a block device.
    fn flush(
        &self,
        _: &fuser::Request,
        _: INodeNo,
        _: FileHandle,
        _: LockOwner,
        reply: ReplyEmpty,
    ) {
        reply.error(Errno::ENOSYS);
    }

    fn release(
        &self,
        _: &fuser::Request,
        _: INodeNo,
        _: FileHandle,
        _: OpenFlags,
        _: Option<LockOwner>,
        _: bool,
        reply: ReplyEmpty,
    ) {
        reply.ok();
    }
}

/// Largest number of requests in the queue.
const QUEUED_MAX: usize = 8;
/// Largest number of background requests of the kernel in flight: requests for which no program
/// waits, such as those of asynchronous I/O.
const BACKGROUND_MAX: u16 = 64;
/// Largest read or write of the kernel, in bytes.
const REQUEST_BYTES: u32 = 1 << 20;
