//! How is a member opened, and is it ours alone?
//!
//! A member is a window of a file or block device, or memory (`ram:SIZE`). Opening it takes a lock
//! that lives as long as anything of this process can still reach it: an OFD lock of the window for
//! files (also held by requests that io_uring still has in flight after a kill -9), `O_EXCL` for
//! block devices, which the kernel and other users of `O_EXCL` respect; a loop device takes the lock
//! of its file too. Mounted and claimed devices
//! are refused by name. `O_DIRECT` is used where the file system has it; where not, as on tmpfs, the
//! page cache is in between and a flush is `fdatasync`, which is reported.
//!
//! Source   open(2) `O_EXCL`, `O_DIRECT`; fcntl(2) "Open file description locks"; statx(2) `STATX_DIOALIGN`

use std::fmt;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use rustix::fs::{AtFlags, FileType, Mode, OFlags, StatxFlags};
use rustix::io::Errno;
use thiserror::Error;
use weft_engine::MemberInfo;
use weft_engine::assemble::Candidate;
use weft_ondisk::{Minor, SUPER_BYTES, Super1};
use weft_units::{Bytes, MemberIndex, SECTOR_BYTES, Sectors};

use crate::buffers::AlignedBytes;

/// Which window of which file is a member: `PATH[@OFFSET[+LENGTH]]` or `ram:SIZE`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MemberSpec {
    /// As it was given; names the member in messages.
    pub label: String,
    place: Place,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Place {
    File { path: PathBuf, offset: u64, len: Option<u64> },
    Ram { bytes: u64 },
}

/// What a member may be used for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    /// Reading. Others may read as well.
    ReadOnly,
    /// Reading and writing, by nobody else.
    ReadWrite,
}

/// How to open members.
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
    /// Holds the lock of the file behind a loop device.
    backing: Option<OwnedFd>,
}

/// What a file is, whatever path leads to it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Identity {
    Block { major: u32, minor: u32 },
    File { major: u32, minor: u32, inode: u64 },
}

/// Why a member cannot be used.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum DeviceError {
    /// It is part of something else.
    #[error("{label}: in use: found {by}, expected none; stop that first")]
    Claimed {
        /// Which.
        label: String,
        /// Whose.
        by: String,
    },
    /// The same device was given twice.
    #[error("{label}: found the device of {other} again, expected each device once; leave one out")]
    Duplicate {
        /// Which.
        label: String,
        /// First given as.
        other: String,
    },
    /// The kernel said no.
    #[error("{label}: {what}: {source}")]
    Io {
        /// Which.
        label: String,
        /// Doing what.
        what: &'static str,
        /// Why.
        source: std::io::Error,
    },
    /// Something else than a file or block device.
    #[error("{label}: file type: found {found}, expected a regular file or a block device")]
    Kind {
        /// Which.
        label: String,
        /// What it is.
        found: &'static str,
    },
    /// Another process has it.
    #[error(
        "{label}: lock: found it held by another process, expected it free; stop that process, \
         or wait until its last I/O has ended"
    )]
    Locked {
        /// Which.
        label: String,
    },
    /// Too many files are open.
    #[error("{label}: open files: limit RLIMIT_NOFILE reached; raise it (ulimit -n)")]
    NoFiles {
        /// Which.
        label: String,
    },
    /// Its size or place does not fit.
    #[error("{label}: {what}: found {found}, expected {expected}")]
    Size {
        /// Which.
        label: String,
        /// Of what.
        what: &'static str,
        /// Bytes.
        found: u64,
        /// Bytes, in words.
        expected: String,
    },
    /// The text does not name a member.
    #[error("{label}: found {found}, expected PATH[@OFFSET[+LENGTH]] or ram:SIZE")]
    Spec {
        /// The text.
        label: String,
        /// What is wrong with it.
        found: String,
    },
}

impl MemberSpec {
    /// Reads what people write. Sizes take K, M, G, T (binary) or `s` for sectors.
    ///
    /// A path that exists as it stands is one, whatever characters it has.
    ///
    /// # Errors
    /// [`DeviceError::Spec`] for a size that is none.
    pub fn parse(text: &str) -> Result<Self, DeviceError> {
        let label = text.to_owned();
        let malformed =
            |found: &str| DeviceError::Spec { label: text.to_owned(), found: found.to_owned() };
        if let Some(size) = text.strip_prefix("ram:") {
            let bytes = parse_size(size).ok_or_else(|| malformed("a size that is none"))?;
            return Ok(Self { label, place: Place::Ram { bytes } });
        }
        let whole = Place::File { path: text.into(), offset: 0, len: None };
        if Path::new(text).exists() {
            return Ok(Self { label, place: whole });
        }
        let Some((path, window)) = text.rsplit_once('@') else {
            return Ok(Self { label, place: whole });
        };
        let (offset, len) = match window.split_once('+') {
            Some((offset, len)) => {
                let len = parse_size(len).ok_or_else(|| malformed("a length that is none"))?;
                (offset, Some(len))
            }
            None => (window, None),
        };
        let offset = parse_size(offset).ok_or_else(|| malformed("an offset that is none"))?;
        Ok(Self { label, place: Place::File { path: path.into(), offset, len } })
    }

    /// A whole file or device.
    #[must_use]
    pub fn path(path: &Path) -> Self {
        let place = Place::File { path: path.to_owned(), offset: 0, len: None };
        Self { label: path.display().to_string(), place }
    }
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
        let (path, offset, len) = match &spec.place {
            Place::Ram { bytes } => return open_ram(spec, index, *bytes),
            Place::File { path, offset, len } => (path, *offset, *len),
        };
        let label = &spec.label;
        let io = |what| move |errno: Errno| error_of(label, what, errno);
        let stat = rustix::fs::stat(path).map_err(io("stat"))?;
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
        if is_block && self.access == Access::ReadWrite {
            refuse_claimed(label, stat.st_rdev)?;
        }
        let file = self.open_file(label, path, is_block)?;
        let identity = identity_of(&file).map_err(io("statx"))?;
        let end = if is_block {
            rustix::fs::seek(&file, rustix::fs::SeekFrom::End(0)).map_err(io("seek"))?
        } else {
            // Files of /proc cannot all be sought.
            let stat = rustix::fs::fstat(&file).map_err(io("stat"))?;
            u64::try_from(stat.st_size).unwrap_or(0)
        };
        let size = window_size(label, end, offset, len)?;
        for other in others {
            let apart = offset + size <= other.start || other.end() <= offset;
            if other.identity == identity && !apart {
                let other = other.info.label.clone();
                return Err(DeviceError::Duplicate { label: label.clone(), other });
            }
        }
        let backing = if is_block {
            self.lock_backing(label, stat.st_rdev, offset, size)?
        } else {
            self.lock(label, &file, offset, size)?;
            None
        };
        let (mode, logical_block) = self.choose_mode(&file, is_block).map_err(io("O_DIRECT"))?;
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
            index,
            label: label.clone(),
            size: Sectors(size / block * (block / SECTOR_BYTES)),
            logical_block,
        };
        let (spec, access) = (spec.clone(), self.access);
        let (file, start) = (Arc::new(file), offset);
        Ok(OpenMember { file, info, spec, mode, access, start, identity, backing })
    }

    fn open_file(&self, label: &str, path: &Path, is_block: bool) -> Result<OwnedFd, DeviceError> {
        let mut flags = OFlags::CLOEXEC
            | match self.access {
                Access::ReadOnly => OFlags::RDONLY,
                Access::ReadWrite => OFlags::RDWR,
            };
        if is_block && self.access == Access::ReadWrite {
            flags |= OFlags::EXCL;
        }
        let deadline = Instant::now() + self.lock_wait;
        loop {
            match rustix::fs::open(path, flags, Mode::empty()) {
                Err(Errno::BUSY) if Instant::now() < deadline => std::thread::sleep(LOCK_POLL),
                Err(Errno::BUSY) => return Err(DeviceError::Locked { label: label.to_owned() }),
                result => return result.map_err(|errno| error_of(label, "open", errno)),
            }
        }
    }

    /// Takes the lock of the file behind a loop device, so that the two are one member also for those
    /// who open the file. One that cannot be opened from here, or is no loop device, has none.
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
    fn choose_mode(&self, file: &OwnedFd, is_block: bool) -> Result<(IoMode, u32), Errno> {
        let block = if is_block { rustix::fs::ioctl_blksszget(file)? } else { 512 };
        if self.buffered {
            return Ok((IoMode::Buffered, block));
        }
        let Some(direct) = direct_unit(file, is_block, block)? else {
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
    /// What the engine needs to know.
    #[must_use]
    pub fn info(&self) -> &MemberInfo {
        &self.info
    }

    /// Whether the page cache is in between.
    #[must_use]
    pub fn mode(&self) -> IoMode {
        self.mode
    }

    /// Whether it is memory, of which I/O never waits.
    #[must_use]
    pub fn is_memory(&self) -> bool {
        matches!(self.spec.place, Place::Ram { .. })
    }

    /// What it may be used for.
    #[must_use]
    pub fn access(&self) -> Access {
        self.access
    }

    /// First byte of the member in its file.
    #[must_use]
    pub fn start(&self) -> Bytes {
        Bytes(self.start)
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

    pub(crate) fn file(&self) -> &Arc<OwnedFd> {
        &self.file
    }

    fn end(&self) -> u64 {
        self.start + self.info.size.bytes().0
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

/// Reads every place where a version 1 superblock may be. Never writes.
#[must_use]
pub fn read_superblocks(member: &OpenMember) -> Candidate {
    let size = member.info.size;
    let read = |minor: Minor| -> Option<std::io::Result<(Minor, AlignedBytes)>> {
        let position = minor.position(size)?;
        Some(member.read(position, SUPER_BYTES).map(|bytes| (minor, bytes)))
    };
    let blocks: std::io::Result<Vec<_>> = Minor::ALL.into_iter().filter_map(read).collect();
    let superblock = match blocks {
        Ok(blocks) => {
            let borrowed: Vec<_> =
                blocks.iter().map(|(minor, bytes)| (*minor, bytes.as_ref())).collect();
            Super1::find(&borrowed, size).map(Box::new).map_err(|error| error.to_string())
        }
        Err(error) => Err(format!("reading superblocks: {error}")),
    };
    Candidate { member: member.info.clone(), superblock }
}

/// A size as people write it: a number with K, M, G, T (binary), `s` for sectors, or none for bytes.
#[must_use]
pub fn parse_size(text: &str) -> Option<u64> {
    let digits = text.trim_end_matches(|unit: char| !unit.is_ascii_digit());
    let unit = match &text[digits.len()..] {
        "" | "B" => 1,
        "s" => SECTOR_BYTES,
        "K" | "k" | "KiB" => 1 << 10,
        "M" | "m" | "MiB" => 1 << 20,
        "G" | "g" | "GiB" => 1 << 30,
        "T" | "t" | "TiB" => 1 << 40,
        _ => return None,
    };
    digits.parse::<u64>().ok()?.checked_mul(unit)
}

fn open_ram(spec: &MemberSpec, index: MemberIndex, bytes: u64) -> Result<OpenMember, DeviceError> {
    let label = &spec.label;
    let io = |what| move |errno: Errno| error_of(label, what, errno);
    let size = window_size(label, bytes, 0, None)?;
    let file = rustix::fs::memfd_create("weft-ram", rustix::fs::MemfdFlags::CLOEXEC)
        .map_err(io("memfd_create"))?;
    rustix::fs::ftruncate(&file, size).map_err(io("ftruncate"))?;
    let identity = identity_of(&file).map_err(io("statx"))?;
    Ok(OpenMember {
        file: Arc::new(file),
        info: MemberInfo {
            index,
            label: label.clone(),
            size: Bytes(size).sectors_floor(),
            logical_block: 512,
        },
        spec: spec.clone(),
        mode: IoMode::Buffered,
        access: Access::ReadWrite,
        start: 0,
        identity,
        backing: None,
    })
}

/// Bytes of the window, whole sectors.
fn window_size(label: &str, end: u64, offset: u64, len: Option<u64>) -> Result<u64, DeviceError> {
    let size_error = |what, found, expected| {
        Err(DeviceError::Size { label: label.to_owned(), what, found, expected })
    };
    if end < SECTOR_BYTES {
        return size_error("size", end, format!("at least {SECTOR_BYTES}"));
    }
    if offset >= end {
        return size_error("offset", offset, format!("less than the size, {end}"));
    }
    let rest = end - offset;
    let len = len.unwrap_or(rest);
    if len > rest {
        return size_error("length", len, format!("at most what follows the offset, {rest}"));
    }
    if len < SECTOR_BYTES {
        return size_error("size", len, format!("at least {SECTOR_BYTES}"));
    }
    Ok(len / SECTOR_BYTES * SECTOR_BYTES)
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
fn ofd_lock(file: BorrowedFd<'_>, access: Access, start: u64, len: u64) -> Result<(), Errno> {
    let kind = match access {
        Access::ReadOnly => libc::F_RDLCK,
        Access::ReadWrite => libc::F_WRLCK,
    };
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

/// How often a lock is tried again.
const LOCK_POLL: Duration = Duration::from_millis(50);
/// Longer than a process that ends needs to let go.
const LOCK_QUIET: Duration = Duration::from_millis(300);
/// Source   statfs(2), `TMPFS_MAGIC`
const TMPFS_MAGIC: rustix::fs::FsWord = 0x0102_1994;

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
        assert!(matches!(error, DeviceError::Duplicate { .. }), "{error}");
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
        let none = read_superblocks(&members[0]).superblock.unwrap_err();
        assert!(none.contains("no md superblock found"), "{none}");
    }

    #[test]
    fn other_things_are_refused() {
        for path in ["/", "/dev/null", "/no/such/file"] {
            let spec = MemberSpec::path(Path::new(path));
            assert!(options(Access::ReadOnly).open(&spec, MemberIndex(0), []).is_err(), "{path}");
        }
        assert!(MemberSpec::parse("ram:much").is_err());
        assert!(MemberSpec::parse("/x@y").is_err());
    }

    #[test]
    fn sizes_are_binary() {
        let cases = [("8s", 4096), ("4K", 4096), ("1M", 1 << 20), ("12", 12), ("2T", 2 << 40)];
        for (text, bytes) in cases {
            assert_eq!(parse_size(text), Some(bytes), "{text}");
        }
        for text in ["", "K", "-1", "1X", "18446744073709551615K"] {
            assert_eq!(parse_size(text), None, "{text}");
        }
    }

    #[test]
    fn mounted_devices_are_found_by_number() {
        let mounts = "22 27 0:21 / /proc rw - proc proc rw\n27 1 254:0 / / rw - ext4 /dev/vda rw\n";
        assert_eq!(mounted_at(mounts, "254:0"), Some("/"));
        assert_eq!(mounted_at(mounts, "254:1"), None);
    }
}
