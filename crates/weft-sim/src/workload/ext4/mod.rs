//! Reduced ext4: the blocks that an fsync, the flusher and the journal write, and the waits of
//! processes.
//!
//! The model has the blocks that an fsync, the flusher and a commit of the journal write, the order
//! of these writes, and the waits of processes. The model has no names, permissions or bytes of
//! metadata. It has the *blocks* of metadata that an operation changes: one of the inode table for
//! each 16 files, one for each directory, and the bitmaps and descriptors of the block groups from
//! which space is taken.
//!
//! * Delayed allocation: a page gets its block when it is written back, behind the file's last
//!   block if that is free, otherwise at the first place with room (`space.rs`). Blocks of an
//!   unlinked file become free when the transaction that unlinked it is on disk.
//! * fsync ([`FileSync`]) writes the file's pages and waits for them. If the transaction that last
//!   changed the file is on disk, it then sends an empty flush; otherwise it requests the commit of
//!   this transaction and waits.
//! * jbd2 (`journal.rs`) is a process of its own. With [`Log::Xfs`] an fsync goes through the log
//!   of a reduced XFS instead (`log_buffers.rs`); names, blocks and layout stay the same.
//!
//! Not modelled: handles and their credits, revoke records, copies of blocks that change while they
//! are committed, extent trees, checksums, the fast commits of 5.10. Metadata lies before the data
//! and not in each group.
//!
//! Source   experiments.md §1.7; Linux `fs/ext4/fsync.c`, `fs/jbd2/commit.c`

mod journal;
mod log_buffers;
mod space;

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;

use weft_engine::page_cache::{Fsync, InodeId, PAGE_BYTES, PoolConfig, SyncStep};
use weft_engine::{Class, Flags, RequestOp};
use weft_units::{ByteRange, Bytes, Time};

use self::journal::{Jbd2, Journal};
use self::log_buffers::{LogBuffers, LogWriter};
use self::space::Space;
use crate::machine::{Host, Machine, PageAllocator, Pid, Process, Thread};

/// Largest request with which pages are written back: a bio of 256 pages.
const BIO: Bytes = Bytes::mib(1);
/// First block of the area for group descriptors, in blocks of 4 KiB. The constants after it are
/// those of the other areas of metadata, and of the files' data.
const DESCRIPTORS: u64 = 1;
const BITMAPS: u64 = 1 << 13;
const INODES: u64 = 1 << 16;
const DIRECTORIES: u64 = 1 << 17;
const DATA: u64 = 1 << 18;
/// Distance in blocks from the start of files' data to a journal that lies among the files.
const NEAR: u64 = 1 << 14;
/// Number of blocks of a block group.
const GROUP: u64 = 1 << 15;
/// Number of blocks of the smallest volume: metadata, journal, and as much space for files.
const BLOCKS_MIN: u64 = 1 << 19;

/// Number of a file in the inode table.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Inode(pub u32);

/// Number of a directory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Directory(pub u32);

/// Counts of commits and checkpoints, and of fsyncs that needed no commit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Commits {
    /// Number of transactions that were committed.
    pub transactions: u64,
    /// Number of metadata blocks in these transactions, without descriptors and commit blocks; 0
    /// with [`Log::Xfs`].
    pub metadata_blocks: u64,
    /// Number of checkpoints that were made because the journal was too full for another commit.
    pub checkpoints: u64,
    /// Number of empty flushes by fsyncs of files that had their transaction on disk already and,
    /// with [`Log::Xfs`], by fsyncs that waited for a buffer which another process requested.
    pub empty_flushes: u64,
}

/// Kind of the log for metadata.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Log {
    /// ext4's log: one transaction is committed at a time.
    Jbd2,
    /// XFS's log: several buffers are written at a time.
    Xfs {
        /// Number of in-core log buffers; XFS has 8 by default.
        buffers: u32,
    },
}

/// Mount options of a file system.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Mount {
    /// Kind of the log for metadata.
    pub log: Log,
    /// Level of jbd2's requests in the best-effort class, 0 (high) to 7 (`journal_ioprio`).
    pub journal_level: u8,
    /// Whether the journal lies among the files, 64 MiB after the start of their data, instead of
    /// in the middle of the volume.
    pub journal_near: bool,
}

impl Default for Mount {
    /// The options of an ext4 that is mounted without options.
    ///
    /// Source   experiments.md R9, `DEFAULT_JOURNAL_IOPRIO`
    fn default() -> Self {
        Self { log: Log::Jbd2, journal_level: 3, journal_near: false }
    }
}

/// A mounted file system. Clones are handles of the same file system.
#[derive(Clone, Debug)]
pub struct Ext4 {
    state: Rc<RefCell<State>>,
}

#[derive(Debug)]
struct State {
    files: BTreeMap<Inode, File>,
    by_pages: BTreeMap<InodeId, Inode>,
    /// Free inode numbers below `next_inode`.
    free_inodes: BTreeSet<Inode>,
    next_inode: u32,
    directories: u32,
    space: Space,
    journal: Journal,
    log: LogBuffers,
    /// The block device as a file of the page cache, the dirty pages of which are metadata that was
    /// committed. `None` only while the file system is being mounted.
    device: Option<InodeId>,
    /// Time of the last operation.
    now: Time,
    empty_flushes: u64,
}

#[derive(Debug)]
struct File {
    pages: InodeId,
    /// Number of blocks and first block of each extent, by its first page in the file.
    extents: BTreeMap<u64, (u64, u64)>,
    /// Number of the transaction that changed the file last.
    transaction: u64,
    /// Length in bytes.
    size: u64,
}

impl Mount {
    /// Mounts a new file system with these options on a machine.
    ///
    /// # Panics
    /// Panics if the volume has less than 2 GiB.
    #[must_use]
    pub fn on(self, machine: &mut Machine, pool: PoolConfig) -> Ext4 {
        Ext4::mount_with(machine, pool, self)
    }
}

impl Ext4 {
    /// Mounts a new file system on a machine, with default options: adds a page cache, its flusher
    /// and jbd2.
    ///
    /// # Panics
    /// Panics if the volume has less than 2 GiB.
    #[must_use]
    pub fn mount(machine: &mut Machine, pool: PoolConfig) -> Self {
        Mount::default().on(machine, pool)
    }

    fn mount_with(machine: &mut Machine, pool: PoolConfig, mount: Mount) -> Self {
        let Mount { log, journal_level, journal_near } = mount;
        let blocks = machine.host.size().0 / PAGE_BYTES;
        assert!(
            blocks >= BLOCKS_MIN,
            "the volume has {blocks} blocks of 4 KiB, ext4 here wants {BLOCKS_MIN} at least"
        );
        let journal = match journal_near {
            true => Journal::new(DATA + NEAR),
            false => Journal::in_the_middle_of(blocks),
        };
        let data = [DATA..journal.area().start, journal.area().end..blocks];
        let state = State {
            files: BTreeMap::new(),
            by_pages: BTreeMap::new(),
            free_inodes: BTreeSet::new(),
            next_inode: 11,
            directories: 0,
            space: Space::new(data),
            journal,
            log: LogBuffers::new(log),
            device: None,
            now: Time(0),
            empty_flushes: 0,
        };
        let fs = Self { state: Rc::new(RefCell::new(state)) };
        machine.add_page_cache(pool, Box::new(Extents(fs.clone())), BIO);
        let thread = machine.add_with(|pid| match log {
            Log::Jbd2 => Box::new(Jbd2::new(pid, fs.clone())) as Box<dyn Process>,
            Log::Xfs { buffers } => Box::new(LogWriter::new(pid, fs.clone(), buffers)),
        });
        if log == Log::Jbd2 {
            machine.host.set_class(thread, Class::BestEffort(journal_level));
        }
        let mut state = fs.state.borrow_mut();
        state.device = Some(machine.host.add_file());
        state.journal.thread = Some(thread);
        drop(state);
        fs
    }

    /// Counts of commits so far.
    #[must_use]
    pub fn commits(&self) -> Commits {
        let state = self.state.borrow();
        Commits { empty_flushes: state.empty_flushes, ..state.journal.commits }
    }

    /// Byte range of the journal on the volume.
    #[must_use]
    pub fn journal_area(&self) -> ByteRange {
        let area = self.state.borrow().journal.area();
        ByteRange::new(area.start * PAGE_BYTES, (area.end - area.start) * PAGE_BYTES)
    }

    /// First byte of the area for the data of files. The area lies behind the metadata, and the
    /// journal lies within it.
    #[must_use]
    pub fn data_start(&self) -> Bytes {
        Bytes(DATA * PAGE_BYTES)
    }

    /// Creates a directory in `parent`, or at the top for `None`.
    pub fn make_directory(&self, host: &mut Host, parent: Option<Directory>) -> Directory {
        let directory = self.change(host, |state| {
            let directory = Directory(state.directories);
            state.directories += 1;
            let inode = state.take_inode();
            state.touch_inode(inode);
            state.touch_directory(directory);
            state.touch_directory(parent.unwrap_or(directory));
            directory
        });
        assert!(u64::from(directory.0) < DATA - DIRECTORIES, "the directories fit into their area");
        directory
    }

    /// Creates an empty file in a directory. Returns the file's inode number.
    pub fn create(&self, host: &mut Host, directory: Directory) -> Inode {
        let pages = host.add_file();
        self.change(host, |state| {
            let inode = state.take_inode();
            let file = File { pages, extents: BTreeMap::new(), transaction: 0, size: 0 };
            state.files.insert(inode, file);
            state.by_pages.insert(pages, inode);
            state.touch_inode(inode);
            state.touch_directory(directory);
            inode
        })
    }

    /// Number under which the page cache has the file's pages.
    #[must_use]
    pub fn pages(&self, inode: Inode) -> InodeId {
        self.state.borrow().files[&inode].pages
    }

    /// Length of a file in bytes.
    #[must_use]
    pub fn size(&self, inode: Inode) -> Bytes {
        Bytes(self.state.borrow().files[&inode].size)
    }

    /// Records a write to a file up to the byte `end`: its times change, and its length may grow.
    pub fn wrote(&self, host: &mut Host, inode: Inode, end: Bytes) {
        self.change(host, |state| {
            state.touch_inode(inode);
            let file = state.files.get_mut(&inode).expect("the file exists");
            file.size = file.size.max(end.0);
        });
    }

    /// Records that a file's times were set.
    pub fn set_times(&self, host: &mut Host, inode: Inode) {
        self.change(host, |state| state.touch_inode(inode));
    }

    /// Moves a file to another directory, or renames it.
    pub fn rename(&self, host: &mut Host, inode: Inode, from: Directory, to: Directory) {
        self.change(host, |state| {
            state.touch_inode(inode);
            state.touch_directory(from);
            state.touch_directory(to);
        });
    }

    /// Removes a file's name from a directory. The file itself exists until [`Ext4::remove`].
    pub fn unlink(&self, host: &mut Host, inode: Inode, directory: Directory) {
        self.change(host, |state| {
            state.touch_inode(inode);
            state.touch_directory(directory);
        });
    }

    /// Removes a file that has no name and is not open. Returns false if its pages are under
    /// writeback: the process is then woken when they have been written, and has to call again.
    pub fn remove(&self, host: &mut Host, pid: Pid, inode: Inode) -> bool {
        let pages = self.pages(inode);
        if host.awaits_pages(pid, pages) {
            return false;
        }
        host.remove_file(pages);
        self.change(host, |state| {
            state.free_extents(inode);
            state.touch_inode(inode);
            state.files.remove(&inode);
            state.by_pages.remove(&pages);
            state.journal.running().ordered.remove(&pages);
            state.journal.forget(pages);
            state.free_inodes.insert(inode);
        });
        true
    }

    /// Truncates a file to length zero. Returns false under the same condition as [`Ext4::remove`].
    pub fn truncate(&self, host: &mut Host, pid: Pid, inode: Inode) -> bool {
        let pages = self.pages(inode);
        if host.awaits_pages(pid, pages) {
            return false;
        }
        host.truncate(pages, 0);
        self.change(host, |state| {
            state.free_extents(inode);
            state.touch_inode(inode);
            state.files.get_mut(&inode).expect("the file exists").size = 0;
        });
        true
    }

    /// Changes metadata in the running transaction, by calling `change`.
    fn change<T>(&self, host: &mut Host, change: impl FnOnce(&mut State) -> T) -> T {
        let mut state = self.state.borrow_mut();
        state.now = host.now();
        let changed = change(&mut state);
        if let Some(jbd2) = state.journal.news() {
            host.tell(jbd2, 0);
        }
        changed
    }
}

impl State {
    fn take_inode(&mut self) -> Inode {
        if let Some(inode) = self.free_inodes.pop_first() {
            return inode;
        }
        self.next_inode += 1;
        assert!(
            u64::from(self.next_inode) < 16 * (DIRECTORIES - INODES),
            "the inode table is full"
        );
        Inode(self.next_inode - 1)
    }

    /// Number of the last transaction that is on disk together with all before it.
    fn committed(&self) -> u64 {
        self.journal.committed() - self.log.len()
    }

    /// Records a change to the inode of a file or directory.
    fn touch_inode(&mut self, inode: Inode) {
        let transaction = self.journal.touch(self.now, INODES + u64::from(inode.0 / 16));
        if let Some(file) = self.files.get_mut(&inode) {
            file.transaction = transaction;
        }
    }

    fn touch_directory(&mut self, directory: Directory) {
        self.journal.touch(self.now, DIRECTORIES + u64::from(directory.0));
    }

    /// Records a change to the bitmap and descriptor of the group of a block.
    fn touch_group(&mut self, block: u64) {
        let group = block / GROUP;
        self.journal.touch(self.now, BITMAPS + group);
        self.journal.touch(self.now, DESCRIPTORS + group / 64);
    }

    /// Frees a file's blocks, which can be used again when the running transaction is on disk.
    fn free_extents(&mut self, inode: Inode) {
        let file = self.files.get_mut(&inode).expect("the file exists");
        for (blocks, start) in std::mem::take(&mut file.extents).into_values() {
            self.touch_group(start);
            self.journal.running().freed.push(start..start + blocks);
        }
    }

    /// First block of a file's page, and the number of pages, at most `count`, that are contiguous
    /// from there on. Pages without blocks are allocated now.
    fn place(&mut self, inode: Inode, page: u64, count: u64) -> (u64, u64) {
        let file = &self.files[&inode];
        let before = file.extents.range(..=page).next_back();
        if let Some((first, (len, block))) = before
            && page < first + len
        {
            return (block + (page - first), count.min(first + len - page));
        }
        let goal = before.map(|(_, (len, block))| block + len);
        let gap = file.extents.range(page..).next().map_or(count, |(next, _)| next - page);
        let taken = self.space.take(goal, count.min(gap));
        let len = taken.end - taken.start;
        self.touch_group(taken.start);
        self.touch_inode(inode);
        let file = self.files.get_mut(&inode).expect("the file exists");
        // Pages that follow the last extent both in the file and on disk extend it.
        match file.extents.range_mut(..=page).next_back() {
            Some((first, (last, block)))
                if first + *last == page && *block + *last == taken.start =>
            {
                *last += len;
            }
            _ => {
                file.extents.insert(page, (len, taken.start));
            }
        }
        let pages = file.pages;
        self.journal.running().ordered.insert(pages);
        (taken.start, len)
    }
}

/// Positions of the files' pages on the volume, for the page cache of the machine.
#[derive(Debug)]
struct Extents(Ext4);

impl PageAllocator for Extents {
    fn place(&mut self, pages: InodeId, page: u64, count: u64) -> (Bytes, u64) {
        let mut state = self.0.state.borrow_mut();
        if state.device == Some(pages) {
            return (Bytes(page * PAGE_BYTES), count);
        }
        let inode = state.by_pages[&pages];
        let (block, count) = state.place(inode, page, count);
        (Bytes(block * PAGE_BYTES), count)
    }
}

/// Name (a number) of the request with which a process submits the empty flush of a [`FileSync`].
pub const FLUSHED: u64 = u64::MAX;

/// An fsync of a file, in progress.
#[derive(Debug)]
pub struct FileSync {
    inode: Inode,
    stage: Stage,
}

#[derive(Debug)]
enum Stage {
    Data(Fsync),
    /// Waits for a transaction. `first` says whether this process was the first to request its
    /// commit.
    Commit {
        transaction: u64,
        first: bool,
    },
    Flush {
        answered: bool,
    },
}

impl FileSync {
    /// Starts an fsync of a file.
    pub fn new(fs: &Ext4, host: &mut Host, inode: Inode) -> Self {
        Self { inode, stage: Stage::Data(host.fsync(fs.pages(inode))) }
    }

    /// Records that the request with the name [`FLUSHED`] was answered.
    pub fn flushed(&mut self) {
        if let Stage::Flush { answered } = &mut self.stage {
            *answered = true;
        }
    }

    /// Takes the next step of the fsync. If the result is [`SyncStep::Wait`], the process will be
    /// woken.
    pub fn step(&mut self, fs: &Ext4, host: &mut Host, thread: &mut Thread) -> SyncStep {
        loop {
            match &mut self.stage {
                Stage::Data(fsync) => match host.fsync_step(thread.pid(), fsync) {
                    SyncStep::Done => self.stage = fs.commit_or_flush(host, self.inode, thread),
                    step => return step,
                },
                Stage::Commit { transaction, first } => {
                    let state = fs.state.borrow();
                    if state.committed() < *transaction {
                        return SyncStep::Wait;
                    }
                    if *first || !state.log.flushes_for_each() {
                        return SyncStep::Done;
                    }
                    drop(state);
                    self.stage = fs.flush(host, thread);
                }
                Stage::Flush { answered } => {
                    return if *answered { SyncStep::Done } else { SyncStep::Wait };
                }
            }
        }
    }
}

impl Ext4 {
    fn commit_or_flush(&self, host: &mut Host, inode: Inode, thread: &mut Thread) -> Stage {
        let mut state = self.state.borrow_mut();
        let transaction = state.files[&inode].transaction;
        if transaction > state.committed() {
            let (writer, first) = state.journal.ask(transaction, thread.pid());
            host.tell(writer, 0);
            return Stage::Commit { transaction, first };
        }
        drop(state);
        self.flush(host, thread)
    }

    fn flush(&self, host: &mut Host, thread: &mut Thread) -> Stage {
        self.state.borrow_mut().empty_flushes += 1;
        let range = ByteRange::new(0, 0);
        thread.submit(host, FLUSHED, RequestOp::Flush, range, Flags::NONE);
        Stage::Flush { answered: false }
    }
}
