//! File system for the crate `fuser`, which passes each request on to the thread of the view.

use std::ffi::OsStr;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::sync::mpsc::SyncSender;

use fuser::{
    Errno, FileHandle, Filesystem, FopenFlags, INodeNo, InitFlags, KernelConfig, LockOwner,
    OpenFlags, ReplyAttr, ReplyData, ReplyDirectory, ReplyDirectoryPlus, ReplyEntry, ReplyLseek,
    ReplyOpen, ReplyStatfs, ReplyXattr,
};

use crate::request::{Request, extended};
use crate::view::{Latest, latest};

/// File system that sends each request of the kernel to the thread of the view.
pub(crate) struct Forward {
    pub(crate) to: SyncSender<Request>,
    /// Whether the kernel may open files without a request: the bytes of no file can change, and
    /// it may cache them.
    pub(crate) opens_alike: bool,
    /// Copy of the extended attributes that were read last, with the number of their inode.
    pub(crate) latest: Latest,
    /// Whether `open` is answered with `ENOSYS`, after which the kernel opens files without a
    /// request: all are opened alike, and the kernel supports this.
    pub(crate) without_open: bool,
}

impl Forward {
    fn send(&self, request: Request) {
        // Sending fails only if the thread of the view has ended. The answer is dropped with the
        // request, which is an error for the kernel.
        let _ = self.to.send(request);
    }

    /// Answers a request for extended attributes from the copy of those that were read last; passes
    /// it on to the thread of the view if these belong to another inode.
    fn extended(&self, number: INodeNo, name: Option<&[u8]>, size: u32, reply: ReplyXattr) {
        match latest(&self.latest, number.0) {
            Some(all) => extended(&all, name, size, reply),
            None => {
                let name = name.map(<[u8]>::to_vec);
                self.send(Request::Extended { number: number.0, name, size, reply });
            }
        }
    }
}

impl Filesystem for Forward {
    fn init(&mut self, _: &fuser::Request, config: &mut KernelConfig) -> io::Result<()> {
        let kernel = config.capabilities();
        // Lists always have attributes, because the kinds of nodes have to be read for them anyway.
        let wanted = InitFlags::FUSE_DO_READDIRPLUS
            | InitFlags::FUSE_CACHE_SYMLINKS
            | InitFlags::FUSE_PARALLEL_DIROPS;
        // Features that the kernel lacks are left out; they only save time.
        let _ = config.add_capabilities(wanted & kernel);
        self.without_open = self.opens_alike && kernel.contains(InitFlags::FUSE_NO_OPEN_SUPPORT);
        let _ = config.set_max_write(REQUEST_BYTES);
        let _ =
            config.set_max_readahead(REQUEST_BYTES).or_else(|most| config.set_max_readahead(most));
        let _ = config.set_max_background(BACKGROUND_MAX);
        Ok(())
    }

    /// Ends the thread of the view: the kernel has ended the session.
    fn destroy(&mut self) {
        self.send(Request::End);
    }

    fn lookup(&self, _: &fuser::Request, parent: INodeNo, name: &OsStr, reply: ReplyEntry) {
        let name = name.as_bytes().to_vec();
        self.send(Request::Lookup { parent: parent.0, name, reply });
    }

    fn forget(&self, _: &fuser::Request, number: INodeNo, lookups: u64) {
        self.send(Request::Forget(vec![(number.0, lookups)]));
    }

    fn getattr(
        &self,
        _: &fuser::Request,
        number: INodeNo,
        _: Option<FileHandle>,
        reply: ReplyAttr,
    ) {
        self.send(Request::Attributes { number: number.0, reply });
    }

    fn readlink(&self, _: &fuser::Request, number: INodeNo, reply: ReplyData) {
        self.send(Request::Target { number: number.0, reply });
    }

    fn open(&self, _: &fuser::Request, number: INodeNo, _: OpenFlags, reply: ReplyOpen) {
        match self.without_open {
            true => reply.error(Errno::ENOSYS),
            false => self.send(Request::Open { number: number.0, reply }),
        }
    }

    fn opendir(&self, _: &fuser::Request, _: INodeNo, _: OpenFlags, reply: ReplyOpen) {
        // The kernel could do without `opendir`. It would then still list a directory from its
        // cache after the end of this process.
        let flags = FopenFlags::FOPEN_KEEP_CACHE | FopenFlags::FOPEN_CACHE_DIR;
        reply.opened(FileHandle(0), flags);
    }

    fn read(
        &self,
        _: &fuser::Request,
        number: INodeNo,
        _: FileHandle,
        offset: u64,
        len: u32,
        _: OpenFlags,
        _: Option<LockOwner>,
        reply: ReplyData,
    ) {
        self.send(Request::Read { number: number.0, offset, len, reply });
    }

    fn lseek(
        &self,
        _: &fuser::Request,
        number: INodeNo,
        _: FileHandle,
        offset: i64,
        whence: i32,
        reply: ReplyLseek,
    ) {
        let is_data = match whence {
            SEEK_DATA => true,
            SEEK_HOLE => false,
            _ => return reply.error(Errno::EINVAL),
        };
        match u64::try_from(offset) {
            Ok(offset) => self.send(Request::Seek { number: number.0, offset, is_data, reply }),
            Err(_) => reply.error(Errno::ENXIO),
        }
    }

    fn readdir(
        &self,
        _: &fuser::Request,
        number: INodeNo,
        _: FileHandle,
        from: u64,
        reply: ReplyDirectory,
    ) {
        self.send(Request::List { number: number.0, from, reply });
    }

    fn readdirplus(
        &self,
        _: &fuser::Request,
        number: INodeNo,
        _: FileHandle,
        from: u64,
        reply: ReplyDirectoryPlus,
    ) {
        self.send(Request::ListPlus { number: number.0, from, reply });
    }

    fn statfs(&self, _: &fuser::Request, number: INodeNo, reply: ReplyStatfs) {
        self.send(Request::Space { number: number.0, reply });
    }

    fn getxattr(
        &self,
        _: &fuser::Request,
        number: INodeNo,
        name: &OsStr,
        size: u32,
        reply: ReplyXattr,
    ) {
        self.extended(number, Some(name.as_bytes()), size, reply);
    }

    fn listxattr(&self, _: &fuser::Request, number: INodeNo, size: u32, reply: ReplyXattr) {
        self.extended(number, None, size, reply);
    }
}

/// Largest size of a read or write, in bytes: the kernel's default limit of 256 pages, which only
/// root can raise (`fs.fuse.max_pages_limit`).
const REQUEST_BYTES: u32 = 1 << 20;
/// Largest number of requests that the kernel sends in the background, as for readahead.
const BACKGROUND_MAX: u16 = 64;
/// Values of `whence` in lseek(2).
const SEEK_DATA: i32 = 3;
const SEEK_HOLE: i32 = 4;
