//! Exported file, as the kernel asks for it: its operations, passed on to the port.
//!
//! The crate `fuser` calls the file from a thread of its own. Each operation becomes a [`Request`]
//! in a bounded queue, and the port is woken by an eventfd. If the queue is full, that thread
//! waits, and the kernel's requests with it.

use std::io;
use std::os::fd::OwnedFd;
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

/// Request of the kernel for the exported file. Ranges in bytes may begin and end anywhere.
pub(super) enum Request {
    /// Attributes of the file.
    Attributes(ReplyAttr),
    /// Attributes after a new size was asked for; `by_file` says whether through an open file.
    Resize { size: u64, by_file: bool, reply: ReplyAttr },
    /// Data of a range.
    Read { start: u64, len: u32, reply: ReplyData },
    /// Data to store; with `fua` it is durable before the reply.
    Write { start: u64, data: Vec<u8>, fua: bool, reply: ReplyWrite },
    /// Makes what was written durable.
    Flush(ReplyEmpty),
    /// Zeroes for a range; with `discard` the range may be deallocated.
    Zeroes { start: u64, len: u64, discard: bool, reply: ReplyEmpty },
    /// The session has ended: the file is not mounted any more.
    End,
}

/// The exported file, which sends its operations to an [`Inbox`].
pub(super) struct ExportedFile {
    to: SyncSender<Request>,
    /// Readable when there is a request.
    eventfd: Arc<OwnedFd>,
}

/// Port's end of the queue of requests.
pub(super) struct Inbox {
    pub(super) requests: Receiver<Request>,
    /// Readable when there is a request.
    pub(super) eventfd: Arc<OwnedFd>,
}

/// Makes the file, and the queue of its requests.
pub(super) fn file() -> io::Result<(ExportedFile, Inbox)> {
    let flags = EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK;
    let eventfd = Arc::new(rustix::event::eventfd(0, flags)?);
    let (to, requests) = sync_channel(QUEUED_MAX);
    let file = ExportedFile { to, eventfd: Arc::clone(&eventfd) };
    Ok((file, Inbox { requests, eventfd }))
}

impl ExportedFile {
    fn send(&self, request: Request) {
        // Sending fails only if the port has ended. The reply is dropped with the request, which is
        // an error for the kernel.
        if self.to.send(request).is_ok() {
            let _ = rustix::io::write(&*self.eventfd, &1_u64.to_ne_bytes());
        }
    }
}

/// `fuser` drops the file when the session ends. The kernel sends no `destroy`, which it does only
/// for file systems on block devices.
impl Drop for ExportedFile {
    fn drop(&mut self) {
        self.send(Request::End);
    }
}

impl Filesystem for ExportedFile {
    fn init(&mut self, _: &fuser::Request, config: &mut KernelConfig) -> io::Result<()> {
        // Features that the kernel lacks are left out; they only save time.
        let wanted = InitFlags::FUSE_ASYNC_DIO | InitFlags::FUSE_DIRECT_IO_ALLOW_MMAP;
        let _ = config.add_capabilities(wanted & config.capabilities());
        let _ = config.set_max_write(REQUEST_BYTES);
        let _ = config.set_max_background(BACKGROUND_MAX);
        Ok(())
    }

    fn getattr(&self, _: &fuser::Request, _: INodeNo, _: Option<FileHandle>, reply: ReplyAttr) {
        self.send(Request::Attributes(reply));
    }

    /// Changes of the mode, the owner or times are ignored, as if they were set and lost: the file
    /// has none of its own.
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
                Request::Resize { size, by_file: file.is_some(), reply }
            }
            (None, None, None, None) => Request::Attributes(reply),
            _ => return reply.error(Errno::EPERM),
        });
    }

    /// Opens the file without the kernel's page cache, because clients of other exports may write
    /// the volume too.
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
        self.send(Request::Read { start, len, reply });
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
        self.send(Request::Write { start, data: data.to_vec(), fua, reply });
    }

    fn fsync(&self, _: &fuser::Request, _: INodeNo, _: FileHandle, _: bool, reply: ReplyEmpty) {
        self.send(Request::Flush(reply));
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
                self.send(Request::Zeroes { start, len, discard, reply });
            }
            _ => reply.error(Errno::EOPNOTSUPP),
        }
    }

    fn statfs(&self, _: &fuser::Request, _: INodeNo, reply: ReplyStatfs) {
        reply.statfs(0, 0, 0, 1, 0, 4096, 0, 4096);
    }

    /// Closing the file flushes nothing, as with a block device.
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

/// Largest number of requests that wait for the port in the queue.
const QUEUED_MAX: usize = 8;
/// Largest number of requests of the kernel that are in flight without a program waiting for each.
const BACKGROUND_MAX: u16 = 64;
/// Largest read or write of the kernel, in bytes.
const REQUEST_BYTES: u32 = 1 << 20;
