//! Devices: opening members, their locks, `O_DIRECT` and block sizes.
//!
//! A member is part of a file or block device (`spec.rs`), or memory (`ram:SIZE`). Opening it takes
//! a lock that lives as long as anything of this process can still reach it: an OFD lock of the
//! window for files (also held by requests that io_uring still has in flight after a kill -9),
//! `O_EXCL` for block devices, which the kernel and other users of `O_EXCL` respect; a loop device
//! takes the lock of its file too. Mounted and claimed devices are refused by name. `O_DIRECT` is
//! used where the file system has it; where not, as on tmpfs, the page cache is in between and a
//! flush is `fdatasync`, which is reported.
//!
//! Source   open(2) `O_EXCL`, `O_DIRECT`; fcntl(2) "Open file description locks"; statx(2)
//!          `STATX_DIOALIGN`

use std::fmt;
use std::ops::Range;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use rustix::fs::{AtFlags, FileType, Mode, OFlags, StatxFlags};
use rustix::io::Errno;
use thiserror::Error;
use weft_engine::MemberInfo;
use weft_engine::assemble::Candidate;
use weft_ondisk::Metadata;
use weft_units::{Bytes, MemberIndex, SECTOR_BYTES, Sectors};

use crate::buffers::AlignedBytes;
use crate::overlay::Overlay;
use crate::spec::{Located, Place, window_within};

pub use crate::spec::{MemberSpec, parse_size};

/// Use that a member is opened for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    /// Reading. Others may read as well.
    ReadOnly,
    /// Reading and writing, by nobody else.
    ReadWrite,
}

/// Options for opening members.
#[derive(Clone, Copy, Debug)]
pub struct OpenOptions {
    /// For what.
    pub access: Access,
    /// Through the page cache even where `O_DIRECT` works.
    pub buffered: bool,
    /// How long to wait for a lock: a killed process holds its lock until its last I/O has ended.
    pub lock_wait: Duration,
}

/// Whether the page cache is in between.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum IoMode {
    /// The page cache is in between; a flush is `fdatasync`.
    Buffered,
    /// `O_DIRECT`.
    Direct,
}

/// A member that is open and locked.
#[derive(Debug)]
pub struct OpenMember {
    file: Arc<OwnedFd>,
    info: MemberInfo,
    spec: MemberSpec,
    mode: IoMode,
    access: Access,
    start: u64,
    identity: Identity,
    extent: Extent,
    /// What it is on: a block device, a file that may be cut short, or memory.
    medium: Medium,
    /// Another process or host answers for it.
    may_block: bool,
    /// Holds the lock of the file behind a loop device.
    backing: Option<OwnedFd>,
    /// Takes what is written; the file is open for reading then.
    overlay: Option<Arc<Overlay>>,
}

/// Medium of a member.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Medium {
    /// A block device. What it has no space for it will never take.
    BlockDevice,
    /// A regular file, which others may cut short, and whose file system may run full.
    File,
    /// Memory of this process, sealed at its size.
    Memory,
}

/// What a file is, whatever path leads to it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Identity {
    Block { major: u32, minor: u32 },
    File { major: u32, minor: u32, inode: u64 },
}

impl Identity {
    /// The file system that it takes its space from. A device has its own.
    fn space(self) -> Option<u64> {
        match self {
            Self::Block { .. } => None,
            Self::File { major, minor, .. } => Some(u64::from(major) << 32 | u64::from(minor)),
        }
    }
}

/// Which bytes of which file or whole disk.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Extent {
    of: Identity,
    bytes: Range<u64>,
}

impl Extent {
    /// Bytes of a device are counted on the disk that it is a partition of.
    ///
    /// Source   Documentation/ABI/stable/sysfs-block, `partition` and `start` (in sectors)
    fn of(identity: Identity, bytes: &Range<u64>) -> Self {
        let whole = Self { of: identity, bytes: bytes.clone() };
        let Identity::Block { major, minor } = identity else { return whole };
        let folder = PathBuf::from(format!("/sys/dev/block/{major}:{minor}"));
        let number = |name: &str| std::fs::read_to_string(folder.join(name)).ok();
        if number("partition").is_none() {
            return whole;
        }
        let disk = number("../dev").and_then(|text| device_numbers(&text));
        let start = number("start").and_then(|text| text.trim().parse::<u64>().ok());
        let start = start.and_then(|start| start.checked_mul(SECTOR_BYTES));
        let (Some((major, minor)), Some(start)) = (disk, start) else { return whole };
        let bytes = start.saturating_add(bytes.start)..start.saturating_add(bytes.end);
        Self { of: Identity::Block { major, minor }, bytes }
    }

    fn overlaps(&self, other: &Self) -> bool {
        let apart = self.bytes.end <= other.bytes.start || other.bytes.end <= self.bytes.start;
        self.of == other.of && !apart
    }
}

/// Reasons why a member cannot be used.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum DeviceError {
    /// It is part of something else.
    #[error("{label}: in use: found {by}, expected none; stop that first")]
    Claimed {
        /// Name of the member.
        label: String,
        /// Program or device that uses it.
        by: String,
    },
    /// The same device was given twice.
    #[error("{label}: found the device of {other} again, expected each device once; leave one out")]
    Duplicate {
        /// Name of the member.
        label: String,
        /// Name that was given first.
        other: String,
    },
    /// Two members have bytes in common.
    #[error(
        "{label}: overlaps {other}, expected members that have no byte in common; leave one out"
    )]
    Overlap {
        /// Name of the member.
        label: String,
        /// Name of the other member.
        other: String,
    },
    /// The kernel said no.
    #[error("{label}: {what}: {source}")]
    Io {
        /// Name of the member.
        label: String,
        /// Operation that failed.
        what: &'static str,
        /// Error of the operating system.
        source: std::io::Error,
    },
    /// Something else than a file or block device.
    #[error("{label}: file type: found {found}, expected a regular file or a block device")]
    Kind {
        /// Name of the member.
        label: String,
        /// Kind of file that was found.
        found: &'static str,
    },
    /// Another process has it.
    #[error(
        "{label}: lock: found it held by another process, expected it free; stop that process, \
         or wait until its last I/O has ended"
    )]
    Locked {
        /// Name of the member.
        label: String,
    },
    /// Too many files are open.
    #[error("{label}: open files: limit RLIMIT_NOFILE reached; raise it (ulimit -n)")]
    NoFiles {
        /// Name of the member.
        label: String,
    },
    /// Its overlay cannot be used.
    #[error("{label}: {why}")]
    Overlay {
        /// Name of the member.
        label: String,
        /// Reason, and the way out.
        why: String,
    },
    /// The partition that was named is not there, or cannot be used.
    #[error("{label}: {why}")]
    Partition {
        /// Name of the member.
        label: String,
        /// Reason, with the partitions that are there.
        why: String,
    },
    /// Its size or place does not fit.
    #[error("{label}: {what}: found {found}, expected {expected}")]
    Size {
        /// Name of the member.
        label: String,
        /// Property that does not fit.
        what: &'static str,
        /// Bytes.
        found: u64,
        /// Range in bytes, in words.
        expected: String,
    },
    /// The text does not name a member.
    #[error("{label}: found {found}, expected PATH, PATH#N, PATH@OFFSET[+LENGTH] or ram:SIZE")]
    Spec {
        /// The text.
        label: String,
        /// Form that was found.
        found: String,
    },
}

impl OpenOptions {
    /// Defaults: `O_DIRECT` where it works, two seconds for the lock.
    #[must_use]
    pub fn new(access: Access) -> Self {
        Self { access, buffered: false, lock_wait: Duration::from_secs(2) }
    }

    /// Opens members, in order, with indices from `first`.
    ///
    /// # Errors
    /// The first that cannot be used; none stays open.
    pub fn open_all(
        &self,
        specs: &[MemberSpec],
        first: MemberIndex,
    ) -> Result<Vec<OpenMember>, DeviceError> {
        let mut members = Vec::with_capacity(specs.len());
        for (spec, index) in specs.iter().zip(first.0..) {
            let member = self.open(spec, MemberIndex(index), members.iter())?;
            members.push(member);
        }
        Ok(members)
    }

    /// Opens one member. Nothing is written, except that a `ram:` member is made.
    ///
    /// # Errors
    /// It is not a file or block device, is in use, or is one of `others`.
    pub fn open<'a>(
        &self,
        spec: &MemberSpec,
        index: MemberIndex,
        others: impl IntoIterator<Item = &'a OpenMember>,
    ) -> Result<OpenMember, DeviceError> {
        let path = match &spec.place {
            Place::Ram { bytes } => return open_ram(spec, index, *bytes),
            Place::File { path, .. } => path,
        };
        let label = &spec.label;
        let io = |what| move |errno: Errno| error_of(label, what, errno);
        let mut stat = rustix::fs::stat(path).map_err(io("stat"))?;
        let kind = FileType::from_raw_mode(stat.st_mode);
        let is_block = match kind {
            FileType::BlockDevice => true,
            FileType::RegularFile => false,
            FileType::CharacterDevice
            | FileType::Directory
            | FileType::Fifo
            | FileType::Socket
            | FileType::Symlink
            | FileType::Unknown => {
                let found = if kind == FileType::Directory { "a directory" } else { "neither" };
                return Err(DeviceError::Kind { label: label.clone(), found });
            }
        };
        let (mut spec, mut path) = (spec.clone(), path.clone());
        if is_block
            && let Some((node, rdev)) =
                spec.partition_number().and_then(|number| kernel_partition(stat.st_rdev, number))
        {
            // The kernel has a device for it, which leaves the other partitions to others.
            (path, stat.st_rdev) = (node, rdev);
            spec = spec.of_whole(&path);
        }
        if is_block && self.access == Access::ReadWrite {
            refuse_claimed(label, stat.st_rdev)?;
        }
        let others: Vec<&OpenMember> = others.into_iter().collect();
        let (file, is_ours) = self.open_file(label, &path, is_block, &others, &stat)?;
        let identity = identity_of(&file).map_err(io("statx"))?;
        let end = if is_block {
            rustix::fs::seek(&file, rustix::fs::SeekFrom::End(0)).map_err(io("seek"))?
        } else {
            // Files of /proc cannot all be sought.
            let stat = rustix::fs::fstat(&file).map_err(io("stat"))?;
            u64::try_from(stat.st_size).unwrap_or(0)
        };
        let block = match is_block {
            true => Some(rustix::fs::ioctl_blksszget(&file).map_err(io("block size"))?),
            false => None,
        };
        let Located { bytes, notices } = spec.locate(&file, end, block)?;
        for notice in notices {
            tracing::warn!("{label}: {notice}");
        }
        let (offset, size) = (bytes.start, bytes.end - bytes.start);
        let extent = Extent::of(identity, &bytes);
        for other in others {
            if extent.overlaps(&other.extent) {
                let same = extent == other.extent;
                let (label, other) = (label.clone(), other.info.label.clone());
                return Err(match same {
                    true => DeviceError::Duplicate { label, other },
                    false => DeviceError::Overlap { label, other },
                });
            }
        }
        let backing = if is_block {
            self.lock_backing(label, stat.st_rdev, offset, size)?
        } else {
            self.lock(label, &file, offset, size)?;
            None
        };
        let (mode, logical_block) = match is_ours {
            // It is in the mode that was chosen when it was opened.
            Some(first) => (first.mode, first.info.logical_block),
            None => self.choose_mode(&file, is_block, offset).map_err(io("O_DIRECT"))?,
        };
        let block = u64::from(logical_block);
        if offset % block != 0 {
            return Err(DeviceError::Size {
                label: label.clone(),
                what: "offset",
                found: offset,
                expected: format!("a multiple of its block, {block}"),
            });
        }
        let info = MemberInfo {
            logical_block,
            space: identity.space(),
            ..MemberInfo::of_size(
                index,
                label.clone(),
                Sectors(size / block * (block / SECTOR_BYTES)),
            )
        };
        let access = self.access;
        let (start, overlay) = (offset, None);
        let mut member = OpenMember {
            file,
            info,
            spec,
            mode,
            access,
            start,
            identity,
            extent,
            medium: if is_block { Medium::BlockDevice } else { Medium::File },
            may_block: false,
            backing,
            overlay,
        };
        member.may_block = !is_block && may_block(&member.file);
        member.info.discards = access == Access::ReadWrite && member.can_discard();
        Ok(member)
    }

    /// Opens it, or takes the descriptor of another member that is on the same device: who has a
    /// device for itself (`O_EXCL`) cannot have it twice.
    fn open_file<'a>(
        &self,
        label: &str,
        path: &Path,
        is_block: bool,
        others: &[&'a OpenMember],
        stat: &rustix::fs::Stat,
    ) -> Result<(Arc<OwnedFd>, Option<&'a OpenMember>), DeviceError> {
        let exclusive = is_block && self.access == Access::ReadWrite;
        if exclusive {
            let (major, minor) = (rustix::fs::major, rustix::fs::minor);
            let device = Identity::Block { major: major(stat.st_rdev), minor: minor(stat.st_rdev) };
            let ours = others
                .iter()
                .find(|other| other.identity == device && other.access == Access::ReadWrite);
            if let Some(ours) = ours {
                return Ok((Arc::clone(&ours.file), Some(ours)));
            }
        }
        let mut flags = OFlags::CLOEXEC
            | match self.access {
                Access::ReadOnly => OFlags::RDONLY,
                Access::ReadWrite => OFlags::RDWR,
            };
        if exclusive {
            flags |= OFlags::EXCL;
        }
        let deadline = Instant::now() + self.lock_wait;
        loop {
            match rustix::fs::open(path, flags, Mode::empty()) {
                Err(Errno::BUSY) if Instant::now() < deadline => std::thread::sleep(LOCK_POLL),
                Err(Errno::BUSY) => return Err(DeviceError::Locked { label: label.to_owned() }),
                result => {
                    let file = result.map_err(|errno| error_of(label, "open", errno))?;
                    return Ok((Arc::new(file), None));
                }
            }
        }
    }

    /// Takes the lock of the file behind a loop device, so that the two are one member also for
    /// those who open the file. One that cannot be opened from here, or is no loop device, has
    /// none.
    ///
    /// Source   Documentation/ABI/testing/sysfs-block-loop
    fn lock_backing(
        &self,
        label: &str,
        rdev: rustix::fs::Dev,
        offset: u64,
        len: u64,
    ) -> Result<Option<OwnedFd>, DeviceError> {
        let (major, minor) = (rustix::fs::major(rdev), rustix::fs::minor(rdev));
        let read = |name: &str| {
            std::fs::read_to_string(format!("/sys/dev/block/{major}:{minor}/loop/{name}")).ok()
        };
        let (Some(path), Some(start)) = (read("backing_file"), read("offset")) else {
            return Ok(None);
        };
        let start: u64 = start.trim().parse().unwrap_or(0);
        let flags = match self.access {
            Access::ReadOnly => OFlags::RDONLY,
            Access::ReadWrite => OFlags::RDWR,
        };
        let path = path.trim_end_matches('\n');
        let Ok(file) =
            rustix::fs::open(path, flags | OFlags::CLOEXEC | OFlags::NONBLOCK, Mode::empty())
        else {
            return Ok(None);
        };
        self.lock(label, &file, start + offset, len)?;
        Ok(Some(file))
    }

    fn lock(&self, label: &str, file: &OwnedFd, start: u64, len: u64) -> Result<(), DeviceError> {
        let deadline = Instant::now() + self.lock_wait;
        let mut quiet_until = Some(Instant::now() + LOCK_QUIET);
        loop {
            match ofd_lock(file.as_fd(), self.access, start, len) {
                Err(Errno::AGAIN | Errno::ACCESS) if Instant::now() < deadline => {
                    if quiet_until.take_if(|until| Instant::now() >= *until).is_some() {
                        tracing::info!("{label}: waiting for its lock");
                    }
                    std::thread::sleep(LOCK_POLL);
                }
                Err(Errno::AGAIN | Errno::ACCESS) => {
                    return Err(DeviceError::Locked { label: label.to_owned() });
                }
                result => return result.map_err(|errno| error_of(label, "lock", errno)),
            }
        }
    }

    /// Turns `O_DIRECT` on if that works, and finds the unit of I/O.
    fn choose_mode(
        &self,
        file: &OwnedFd,
        is_block: bool,
        offset: u64,
    ) -> Result<(IoMode, u32), Errno> {
        let block = if is_block { rustix::fs::ioctl_blksszget(file)? } else { 512 };
        if self.buffered {
            return Ok((IoMode::Buffered, block));
        }
        // Partitions of old images begin anywhere.
        let fits = |unit: &u32| offset.is_multiple_of(u64::from(*unit));
        let Some(direct) = direct_unit(file, is_block, block)?.filter(fits) else {
            return Ok((IoMode::Buffered, block));
        };
        let flags = rustix::fs::fcntl_getfl(file)?;
        match rustix::fs::fcntl_setfl(file, flags | OFlags::DIRECT) {
            Ok(()) => Ok((IoMode::Direct, direct)),
            Err(Errno::INVAL) => Ok((IoMode::Buffered, block)),
            Err(errno) => Err(errno),
        }
    }
}

impl OpenMember {
    /// Description of the member for the engine.
    #[must_use]
    pub fn info(&self) -> &MemberInfo {
        &self.info
    }

    /// Whether the page cache is in between.
    #[must_use]
    pub fn mode(&self) -> IoMode {
        self.mode
    }

    /// Medium of the member.
    #[must_use]
    pub fn medium(&self) -> Medium {
        self.medium
    }

    /// Whether it is memory, of which I/O never waits.
    #[must_use]
    pub fn is_memory(&self) -> bool {
        self.medium == Medium::Memory
    }

    /// Whether its file ends before the member does: somebody has cut it short since it was opened.
    /// Never waits: of a network file system it is told what this machine knows.
    #[must_use]
    pub fn is_cut(&self) -> bool {
        self.damage().is_cut
    }

    /// What somebody did to its file since it was opened. Never waits, like [`Self::is_cut`].
    ///
    /// Source   statx(2) `AT_STATX_DONT_SYNC`
    pub(crate) fn damage(&self) -> Damage {
        if self.medium != Medium::File {
            return Damage::default();
        }
        let flags = AtFlags::EMPTY_PATH | AtFlags::STATX_DONT_SYNC;
        let wanted = StatxFlags::SIZE | StatxFlags::NLINK;
        let Ok(found) = rustix::fs::statx(&self.file, c"", flags, wanted) else {
            return Damage::default();
        };
        Damage { is_cut: found.stx_size < self.end(), is_deleted: found.stx_nlink == 0 }
    }

    /// Whether the kernel may have to wait for another process or host to begin a request to it.
    pub(crate) fn may_block(&self) -> bool {
        self.may_block
    }

    /// End of the member in its file, in bytes.
    pub(crate) fn end(&self) -> u64 {
        self.start + self.info.size.bytes().0
    }

    /// The same memory once more, for another driver; `None` for what is not memory.
    #[must_use]
    pub fn share_memory(&self) -> Option<Self> {
        self.is_memory().then(|| Self {
            file: Arc::clone(&self.file),
            info: self.info.clone(),
            spec: self.spec.clone(),
            extent: self.extent.clone(),
            backing: None,
            overlay: None,
            ..*self
        })
    }

    /// Use that the member was opened for.
    #[must_use]
    pub fn access(&self) -> Access {
        self.access
    }

    /// First byte of the member in its file.
    #[must_use]
    pub fn start(&self) -> Bytes {
        Bytes(self.start)
    }

    /// Where its changes are, if they are not on the member.
    #[must_use]
    pub fn overlay(&self) -> Option<&Arc<Overlay>> {
        self.overlay.as_ref()
    }

    /// Takes writes in an overlay in `dir`, and shows what is there. For reading, a member without
    /// an overlay stays as it is; for writing, one is made. Memory needs none.
    ///
    /// # Errors
    /// The overlay cannot be made, is in use or damaged, or the member was written since.
    ///
    /// # Panics
    /// The member is not open for reading alone, through the page cache.
    pub fn with_overlay(mut self, dir: &Path, access: Access) -> Result<Self, DeviceError> {
        if self.is_memory() {
            return Ok(self);
        }
        assert_eq!(self.access, Access::ReadOnly, "a member with an overlay is never written");
        assert_eq!(self.mode, IoMode::Buffered, "parts of blocks are read");
        let overlay = Overlay::open(&self, dir, access)?;
        if overlay.is_some() {
            self.access = access;
            // The member has what is below.
            self.info.discards = false;
            // Of one directory as a rule, and so of one file system.
            self.info.space = Some(0);
        }
        self.overlay = overlay.map(Arc::new);
        Ok(self)
    }

    /// Gives it another name within the engine, before the engine has seen it.
    pub fn set_index(&mut self, index: MemberIndex) {
        self.info.index = index;
    }

    /// Opens the same device again for writing: read-only first, writing after the array has been
    /// accepted. Superblocks have to be read again then; somebody may have written in between.
    ///
    /// # Errors
    /// As [`OpenOptions::open`]; or something else is at the path now.
    pub fn into_writable<'a>(
        self,
        others: impl IntoIterator<Item = &'a Self>,
    ) -> Result<Self, DeviceError> {
        if self.access == Access::ReadWrite || matches!(self.spec.place, Place::Ram { .. }) {
            return Ok(self);
        }
        let Self { file, info, spec, mode, identity, backing, .. } = self;
        // Its shared lock would keep ours out.
        drop((file, backing));
        let options = OpenOptions {
            buffered: mode == IoMode::Buffered,
            ..OpenOptions::new(Access::ReadWrite)
        };
        let member = options.open(&spec, info.index, others)?;
        if member.identity != identity || member.info.size != info.size {
            return Err(DeviceError::Size {
                label: info.label,
                what: "size or device at this path",
                found: member.info.size.bytes().0,
                expected: format!("the one that was read, {}", info.size.bytes().0),
            });
        }
        Ok(member)
    }

    /// Reads metadata: `len` bytes at a sector of the member.
    ///
    /// # Errors
    /// The device does not answer, or ends before.
    pub fn read(&self, at: Sectors, len: usize) -> std::io::Result<AlignedBytes> {
        let mut bytes = AlignedBytes::zeroed(len);
        if let Some(overlay) = &self.overlay {
            overlay.read_at(bytes.as_mut(), at.bytes().0)?;
            return Ok(bytes);
        }
        let mut filled = 0;
        while filled < len {
            let offset = self.start + at.bytes().0 + filled as u64;
            match rustix::io::pread(&self.file, &mut bytes.as_mut()[filled..], offset) {
                Ok(0) => return Err(std::io::ErrorKind::UnexpectedEof.into()),
                Ok(count) => filled += count,
                Err(Errno::INTR | Errno::AGAIN) => {}
                Err(errno) => return Err(errno.into()),
            }
        }
        Ok(bytes)
    }

    /// Reads metadata that need not begin or end with a logical block.
    fn read_any(&self, at: Sectors, len: usize) -> std::io::Result<Vec<u8>> {
        let block = u64::from(self.info.logical_block);
        let end = at.bytes().0 + len as u64;
        let first = at.bytes().0 / block * block;
        let whole = (end - first).next_multiple_of(block);
        let whole = usize::try_from(whole).map_err(std::io::Error::other)?;
        let bytes = self.read(Bytes(first).sectors_floor(), whole)?;
        let skip = usize::try_from(at.bytes().0 - first).map_err(std::io::Error::other)?;
        Ok(bytes.as_ref()[skip..skip + len].to_vec())
    }

    pub(crate) fn file(&self) -> &Arc<OwnedFd> {
        &self.file
    }

    /// Lets go of its locks before it is closed: the kernel may take a moment to close what a ring
    /// had.
    pub(crate) fn unlock(&self) {
        let files = [Some(self.file.as_fd()), self.backing.as_ref().map(AsFd::as_fd)];
        files.into_iter().flatten().for_each(unlock_file);
        if let Some(overlay) = &self.overlay {
            overlay.unlock();
        }
    }
}

impl AsFd for OpenMember {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }
}

impl fmt::Display for IoMode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Buffered => "buffered",
            Self::Direct => "direct",
        })
    }
}

/// What somebody did to the file of a member that is open.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Damage {
    /// The file ends before the member does.
    pub(crate) is_cut: bool,
    /// The file has no name any more: it is there until its last descriptor is closed.
    pub(crate) is_deleted: bool,
}

/// Reads the metadata of a member: every place where a superblock may be, and what it points to.
/// Never writes.
#[must_use]
pub fn read_metadata(member: &OpenMember) -> Candidate {
    let metadata = Metadata::read(member.info.size, |sector, len| member.read_any(sector, len));
    Candidate::new(member.info.clone(), metadata)
}

fn open_ram(spec: &MemberSpec, index: MemberIndex, bytes: u64) -> Result<OpenMember, DeviceError> {
    let label = &spec.label;
    let io = |what| move |errno: Errno| error_of(label, what, errno);
    let size = window_within(label, bytes, 0, None)?.end;
    let flags = rustix::fs::MemfdFlags::CLOEXEC | rustix::fs::MemfdFlags::ALLOW_SEALING;
    let file = rustix::fs::memfd_create("weft-ram", flags).map_err(io("memfd_create"))?;
    rustix::fs::ftruncate(&file, size).map_err(io("ftruncate"))?;
    // It will be mapped, and stays as long as it is.
    let seals = rustix::fs::SealFlags::SHRINK | rustix::fs::SealFlags::GROW;
    rustix::fs::fcntl_add_seals(&file, seals).map_err(io("fcntl_add_seals"))?;
    let identity = identity_of(&file).map_err(io("statx"))?;
    Ok(OpenMember {
        file: Arc::new(file),
        info: MemberInfo {
            space: identity.space(),
            discards: true,
            ..MemberInfo::of_size(index, label.clone(), Bytes(size).sectors_floor())
        },
        spec: spec.clone(),
        mode: IoMode::Buffered,
        access: Access::ReadWrite,
        start: 0,
        identity,
        extent: Extent::of(identity, &(0..size)),
        medium: Medium::Memory,
        may_block: false,
        backing: None,
        overlay: None,
    })
}

/// Whether the server of its file system is a process (FUSE) or another host. One that does not say
/// what it is may be.
fn may_block(file: &OwnedFd) -> bool {
    rustix::fs::fstatfs(file).map_or(true, |found| SERVED_MAGICS.contains(&found.f_type))
}

fn error_of(label: &str, what: &'static str, errno: Errno) -> DeviceError {
    let label = label.to_owned();
    match errno {
        Errno::MFILE | Errno::NFILE => DeviceError::NoFiles { label },
        _ => DeviceError::Io { label, what, source: errno.into() },
    }
}

fn identity_of(file: &OwnedFd) -> Result<Identity, Errno> {
    let stat = rustix::fs::fstat(file)?;
    let (major, minor) = (rustix::fs::major, rustix::fs::minor);
    Ok(match FileType::from_raw_mode(stat.st_mode) {
        FileType::BlockDevice => {
            Identity::Block { major: major(stat.st_rdev), minor: minor(stat.st_rdev) }
        }
        _ => Identity::File {
            major: major(stat.st_dev),
            minor: minor(stat.st_dev),
            inode: stat.st_ino,
        },
    })
}

/// The unit of `O_DIRECT`, or `None` where there is none worth its name.
fn direct_unit(file: &OwnedFd, is_block: bool, block: u32) -> Result<Option<u32>, Errno> {
    if rustix::fs::fstatfs(file)?.f_type == TMPFS_MAGIC && !is_block {
        return Ok(None);
    }
    let statx = rustix::fs::statx(file, c"", AtFlags::EMPTY_PATH, StatxFlags::DIOALIGN)?;
    if statx.stx_mask & StatxFlags::DIOALIGN.bits() != 0 {
        let (offset, memory) = (statx.stx_dio_offset_align, statx.stx_dio_mem_align);
        let unit = offset.max(memory).max(block);
        let usable = offset != 0 && unit.is_power_of_two() && unit <= 4096;
        return Ok(usable.then_some(unit));
    }
    // Before Linux 6.1 the kernel does not say. Devices take their logical block; so do files, but
    // which device theirs is on is not known, and 4096 bytes fit all.
    Ok(Some(if is_block { block } else { 4096 }))
}

/// The kernel's own device for a partition of a disk, if it has one that is the same.
fn kernel_partition(rdev: rustix::fs::Dev, number: u32) -> Option<(PathBuf, rustix::fs::Dev)> {
    let (major, minor) = (rustix::fs::major(rdev), rustix::fs::minor(rdev));
    let children = std::fs::read_dir(format!("/sys/dev/block/{major}:{minor}")).ok()?;
    for child in children.flatten() {
        let child = child.path();
        let read = |name: &str| std::fs::read_to_string(child.join(name)).ok();
        if read("partition").and_then(|text| text.trim().parse().ok()) != Some(number) {
            continue;
        }
        let (major, minor) = device_numbers(&read("dev")?)?;
        let node = Path::new("/dev").join(child.file_name()?);
        let stat = rustix::fs::stat(&node).ok()?;
        let same = FileType::from_raw_mode(stat.st_mode) == FileType::BlockDevice
            && stat.st_rdev == rustix::fs::makedev(major, minor);
        return same.then_some((node, stat.st_rdev));
    }
    None
}

/// `MAJOR:MINOR`, as sysfs has it.
fn device_numbers(text: &str) -> Option<(u32, u32)> {
    let (major, minor) = text.trim().split_once(':')?;
    Some((major.parse().ok()?, minor.parse().ok()?))
}

/// Refuses a device that is mounted or that another device (md, dm, bcache) is made of.
fn refuse_claimed(label: &str, rdev: rustix::fs::Dev) -> Result<(), DeviceError> {
    let number = format!("{}:{}", rustix::fs::major(rdev), rustix::fs::minor(rdev));
    let claimed = |by: String| Err(DeviceError::Claimed { label: label.to_owned(), by });
    let mounts = std::fs::read_to_string("/proc/self/mountinfo").unwrap_or_default();
    if let Some(place) = mounted_at(&mounts, &number) {
        return claimed(format!("mounted at {place}"));
    }
    let Ok(holders) = std::fs::read_dir(format!("/sys/dev/block/{number}/holders")) else {
        return Ok(());
    };
    match holders.flatten().next() {
        Some(holder) => claimed(format!("part of {}", holder.file_name().to_string_lossy())),
        None => Ok(()),
    }
}

/// Where a device is mounted, by a `mountinfo` table.
fn mounted_at<'a>(mounts: &'a str, number: &str) -> Option<&'a str> {
    mounts.lines().find_map(|line| {
        let mut fields = line.split(' ');
        (fields.nth(2) == Some(number)).then(|| fields.nth(1)).flatten()
    })
}

/// Locks a range for the open file description, without waiting.
/// Locks all of a file for this process, at once or not at all.
pub(crate) fn lock_file(
    label: &str,
    file: BorrowedFd<'_>,
    access: Access,
) -> Result<(), DeviceError> {
    ofd_lock(file, access, 0, 0).map_err(|errno| match errno {
        Errno::AGAIN | Errno::ACCESS => DeviceError::Locked { label: label.to_owned() },
        _ => error_of(label, "lock", errno),
    })
}

/// Lets go of every lock of an open file description.
pub(crate) fn unlock_file(file: BorrowedFd<'_>) {
    if let Err(errno) = ofd_set(file, libc::F_UNLCK, 0, 0) {
        tracing::warn!(%errno, "a lock stays until its file is closed");
    }
}

fn ofd_lock(file: BorrowedFd<'_>, access: Access, start: u64, len: u64) -> Result<(), Errno> {
    let kind = match access {
        Access::ReadOnly => libc::F_RDLCK,
        Access::ReadWrite => libc::F_WRLCK,
    };
    ofd_set(file, kind, start, len)
}

fn ofd_set(file: BorrowedFd<'_>, kind: i32, start: u64, len: u64) -> Result<(), Errno> {
    // `l_pid` has to be zero.
    let lock = libc::flock {
        l_type: libc::c_short::try_from(kind).expect("lock types are 0 to 2"),
        l_whence: 0,
        l_start: libc::off_t::try_from(start).map_err(|_| Errno::OVERFLOW)?,
        l_len: libc::off_t::try_from(len).map_err(|_| Errno::OVERFLOW)?,
        l_pid: 0,
    };
    // SAFETY: the descriptor is open (borrowed) and the kernel only reads the structure.
    let result = unsafe { libc::fcntl(file.as_raw_fd(), libc::F_OFD_SETLK, &raw const lock) };
    if result == 0 {
        return Ok(());
    }
    let errno = std::io::Error::last_os_error().raw_os_error().unwrap_or(libc::EIO);
    Err(Errno::from_raw_os_error(errno))
}

/// Time between two attempts at a lock.
const LOCK_POLL: Duration = Duration::from_millis(50);
/// Longer than a process that ends needs to let go.
const LOCK_QUIET: Duration = Duration::from_millis(300);
/// Source   statfs(2), `TMPFS_MAGIC`
const TMPFS_MAGIC: rustix::fs::FsWord = 0x0102_1994;
/// FUSE, NFS, CIFS, SMB 2, 9p, Ceph, AFS.
///
/// Source   statfs(2), linux/magic.h
const SERVED_MAGICS: [rustix::fs::FsWord; 7] =
    [0x6573_5546, 0x6969, 0xff53_4d42, 0xfe53_4d42, 0x0102_1997, 0x00c3_6400, 0x6b41_4653];

#[cfg(test)]
mod tests {
    use super::*;

    fn options(access: Access) -> OpenOptions {
        OpenOptions { lock_wait: Duration::ZERO, ..OpenOptions::new(access) }
    }

    fn file(dir: &Path, name: &str, bytes: u64) -> MemberSpec {
        let path = dir.join(name);
        std::fs::File::create(&path).unwrap().set_len(bytes).unwrap();
        MemberSpec::path(&path)
    }

    #[test]
    fn a_file_has_one_writer_or_many_readers() {
        let dir = tempfile::tempdir().unwrap();
        let spec = file(dir.path(), "a", 1 << 20);
        let open = |access| options(access).open(&spec, MemberIndex(0), []);
        let reader = open(Access::ReadOnly).unwrap();
        let second = open(Access::ReadOnly).unwrap();
        let locked = |result| matches!(result, Err(DeviceError::Locked { .. }));
        assert!(locked(open(Access::ReadWrite)));
        drop(second);
        let writer = reader.into_writable([]).unwrap();
        assert!(locked(open(Access::ReadOnly)));
        assert_eq!(writer.info().size, Sectors(2048));
        drop(writer);
        open(Access::ReadWrite).unwrap();
    }

    #[test]
    fn windows_of_one_file_are_members_apart() {
        let dir = tempfile::tempdir().unwrap();
        let spec = file(dir.path(), "disk", 1 << 20);
        let spec = |window: &str| MemberSpec::parse(&format!("{}{window}", spec.label)).unwrap();
        let specs = [spec("@0+512K"), spec("@512K")];
        let members = options(Access::ReadWrite).open_all(&specs, MemberIndex(3)).unwrap();
        assert_eq!(members[1].info().index, MemberIndex(4));
        assert_eq!(members[1].info().size, Sectors(1024));
        drop(members);
        let twice = [spec("@0+512K"), spec("@508K")];
        let error = options(Access::ReadWrite).open_all(&twice, MemberIndex(0)).unwrap_err();
        assert!(matches!(error, DeviceError::Overlap { .. }), "{error}");
        for window in ["@1M", "@0+2M", "@0+1"] {
            let error = options(Access::ReadOnly).open(&spec(window), MemberIndex(0), []);
            assert!(matches!(error, Err(DeviceError::Size { .. })), "{window}: {error:?}");
        }
    }

    #[test]
    fn a_link_to_a_member_is_that_member() {
        let dir = tempfile::tempdir().unwrap();
        let spec = file(dir.path(), "a", 1 << 20);
        let link = dir.path().join("b");
        std::os::unix::fs::symlink(&spec.label, &link).unwrap();
        let specs = [spec, MemberSpec::path(&link)];
        let error = options(Access::ReadOnly).open_all(&specs, MemberIndex(0)).unwrap_err();
        assert!(error.to_string().contains("again, expected each device once"), "{error}");
    }

    #[test]
    fn memory_is_a_member() {
        let spec = MemberSpec::parse("ram:1M").unwrap();
        let specs = [spec.clone(), spec];
        let members = options(Access::ReadWrite).open_all(&specs, MemberIndex(0)).unwrap();
        assert_eq!(members[0].mode(), IoMode::Buffered);
        assert_eq!(members[0].read(Sectors(2040), 4096).unwrap().as_ref(), [0; 4096]);
        let none = read_metadata(&members[0]).superblock.unwrap_err();
        assert!(none.contains("no md superblock found"), "{none}");
    }

    #[test]
    fn other_things_are_refused() {
        for path in ["/", "/dev/null", "/no/such/file"] {
            let spec = MemberSpec::path(Path::new(path));
            assert!(options(Access::ReadOnly).open(&spec, MemberIndex(0), []).is_err(), "{path}");
        }
        assert!(MemberSpec::parse("ram:much").is_err());
    }

    #[test]
    fn mounted_devices_are_found_by_number() {
        let mounts = "22 27 0:21 / /proc rw - proc proc rw\n27 1 254:0 / / rw - ext4 /dev/vda rw\n";
        assert_eq!(mounted_at(mounts, "254:0"), Some("/"));
        assert_eq!(mounted_at(mounts, "254:1"), None);
    }
}
