//! Opening a member: file type, size, overlap with other members, lock, and mode of I/O.

use std::ops::Range;
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use rustix::fs::{AtFlags, FileType, Mode, OFlags, StatxFlags};
use rustix::io::Errno;
use weft_engine::MemberInfo;
use weft_units::{Bytes, MemberIndex, SECTOR_BYTES, Sectors};

use super::extent::{Extent, kernel_partition, refuse_claimed};
use super::lock::LOCK_POLL;
use super::sysfs::traits_of;
use super::{Access, DeviceError, IoMode, Medium, MemberSpec, OpenMember, OpenOptions};
use crate::device_error::error_of;
use crate::identity::Identity;
use crate::io::ring::FileKind;
use crate::rescued::Rescued;
use crate::spec::{Located, MemberBacking, window_within};
use crate::timed::{TimedFile, read_exact_at};

impl OpenOptions {
    /// Options that use `O_DIRECT` where it works, and wait two seconds for the lock.
    #[must_use]
    pub fn new(access: Access) -> Self {
        Self { access, buffered: false, lock_wait: Duration::from_secs(2) }
    }

    /// Opens members in the order of `specs`. The first one gets the index `first`, and the others
    /// get the indexes after it.
    ///
    /// # Errors
    /// The error of the first member that cannot be used; none stays open.
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

    /// Opens one member. Nothing is written, except that a `ram:` member is created.
    ///
    /// # Errors
    /// Fails when the spec names neither a file nor a block device, when the device is in use, or
    /// when the member overlaps one of `others`.
    pub fn open<'a>(
        &self,
        spec: &MemberSpec,
        index: MemberIndex,
        others: impl IntoIterator<Item = &'a OpenMember>,
    ) -> Result<OpenMember, DeviceError> {
        let path = match &spec.place {
            MemberBacking::Ram { bytes } => return open_ram(spec, index, *bytes),
            MemberBacking::File { path, .. } => path,
        };
        let label = &spec.label;
        let mut stat = rustix::fs::stat(path).map_err(|errno| error_of(label, "stat", errno))?;
        let is_block = is_block(label, &stat)?;
        let (mut spec, mut path) = (spec.clone(), path.clone());
        // The offsets in a map that was named count from the start of the whole disk, so such a
        // member is opened as a part of the disk.
        if is_block
            && spec.map().is_none()
            && let Some((node, rdev)) =
                spec.partition_number().and_then(|number| kernel_partition(stat.st_rdev, number))
        {
            // The kernel has a device for the partition. Opening it leaves the other partitions
            // usable.
            (path, stat.st_rdev) = (node, rdev);
            spec = spec.of_whole(&path);
        }
        if is_block && self.access == Access::ReadWrite {
            refuse_claimed(&spec.label, stat.st_rdev)?;
        }
        let others: Vec<&OpenMember> = others.into_iter().collect();
        let (file, is_ours) = self.open_file(&spec.label, &path, is_block, &others, &stat)?;
        self.member(spec, index, Opened { file, is_ours, is_block, rdev: stat.st_rdev }, &others)
    }

    /// Creates the member from an open file: finds its range of bytes, refuses an overlap with
    /// other members, locks the range, and chooses the mode of I/O.
    fn member(
        &self,
        spec: MemberSpec,
        index: MemberIndex,
        opened: Opened<'_>,
        others: &[&OpenMember],
    ) -> Result<OpenMember, DeviceError> {
        let Opened { file, is_ours, is_block, rdev } = opened;
        let label = spec.label.clone();
        let io = |what| move |errno: Errno| (what, errno);
        let failed = |(what, errno)| error_of(&label, what, errno);
        let identity = Identity::of(&file).map_err(io("statx")).map_err(failed)?;
        let timed = spec.timed(&file).map_err(|source| DeviceError::Io {
            label: spec.label.clone(),
            what: "its time limit for reads",
            source,
        })?;
        let bytes = locate(&spec, (&file, timed.as_ref()), is_block)?;
        let rescued = self.rescued(&spec, &bytes, is_block)?;
        let (start, size) = (bytes.start, bytes.end - bytes.start);
        let extent = Extent::of(identity, &bytes);
        refuse_overlap(&label, &extent, others)?;
        let backing = if is_block {
            self.lock_backing(&label, rdev, start, size)?
        } else {
            self.lock(&label, &file, start, size)?;
            None
        };
        let (mode, logical_block) = match is_ours {
            // The mode was chosen when the device was opened.
            Some(first) => (first.mode, first.info.logical_block),
            None => {
                self.choose_mode(&file, is_block, start).map_err(io("O_DIRECT")).map_err(failed)?
            }
        };
        let block = u64::from(logical_block);
        if start % block != 0 {
            return Err(DeviceError::Size {
                label,
                what: "offset",
                found: start,
                expected: format!("a multiple of its block, {block}"),
            });
        }
        let sectors = Sectors(size / block * (block / SECTOR_BYTES));
        let info = MemberInfo {
            logical_block,
            space: identity.space(),
            ..MemberInfo::of_size(index, label, sectors)
        };
        let access = self.access;
        let file_kind = if is_block { kind_of_device(mode) } else { kind_of_file(&file, mode) };
        let mut member = OpenMember {
            file,
            timed,
            info,
            spec,
            mode,
            access,
            start,
            identity,
            extent,
            medium: if is_block { Medium::BlockDevice } else { Medium::File },
            file_kind,
            backing,
            overlay: None,
            rescued,
        };
        member.info.discards = member.can_discard();
        member.info.device = traits_of(member.identity);
        Ok(member)
    }

    /// Finds the ddrescue map of the member; `None` if there is no map. Fails if the map is not
    /// valid, or if a member to be written was not rescued completely.
    fn rescued(
        &self,
        spec: &MemberSpec,
        bytes: &Range<u64>,
        is_block: bool,
    ) -> Result<Option<Rescued>, DeviceError> {
        let Some(path) = spec.file() else { return Ok(None) };
        let rescued = Rescued::of(path, spec.map(), bytes, is_block)
            .map_err(|why| DeviceError::Map { label: spec.label.clone(), why })?;
        match rescued.as_ref().and_then(Rescued::refuses_writes) {
            Some(why) if self.access == Access::ReadWrite => {
                Err(DeviceError::NotRescued { label: spec.label.clone(), why })
            }
            _ => Ok(rescued),
        }
    }

    /// Opens a file or device. A device that another member has open exclusively (`O_EXCL`) cannot
    /// be opened again; its descriptor is shared then. Returns the descriptor, and the member with
    /// which it is shared, if any.
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

    /// Enables `O_DIRECT` if it works. Returns the mode, and the unit of I/O in bytes.
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
        // Partitions of old images begin at any sector.
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

/// A file or device that was opened for a member.
struct Opened<'a> {
    file: Arc<OwnedFd>,
    /// Member with which the descriptor is shared; `None` if this process had not opened the device
    /// before.
    is_ours: Option<&'a OpenMember>,
    is_block: bool,
    rdev: rustix::fs::Dev,
}

/// Whether a file is a block device. Fails for a file that is neither a block device nor a regular
/// file.
fn is_block(label: &str, stat: &rustix::fs::Stat) -> Result<bool, DeviceError> {
    let found = match FileType::from_raw_mode(stat.st_mode) {
        FileType::BlockDevice => return Ok(true),
        FileType::RegularFile => return Ok(false),
        FileType::Directory => "a directory",
        FileType::CharacterDevice
        | FileType::Fifo
        | FileType::Socket
        | FileType::Symlink
        | FileType::Unknown => "neither",
    };
    Err(DeviceError::Kind { label: label.to_owned(), found })
}

/// Byte range of the member in its file or device.
fn locate(
    spec: &MemberSpec,
    (file, timed): (&OwnedFd, Option<&Arc<TimedFile>>),
    is_block: bool,
) -> Result<Range<u64>, DeviceError> {
    let label = &spec.label;
    let failed = |what| move |errno: Errno| error_of(label, what, errno);
    let (end, block) = if is_block {
        let end = rustix::fs::seek(file, rustix::fs::SeekFrom::End(0)).map_err(failed("seek"))?;
        let block = rustix::fs::ioctl_blksszget(file).map_err(failed("block size"))?;
        (end, Some(block))
    } else {
        // `seek` to the end fails on some files of /proc.
        let stat = rustix::fs::fstat(file).map_err(failed("stat"))?;
        (u64::try_from(stat.st_size).unwrap_or(0), None)
    };
    let mut read = |at: u64, into: &mut [u8]| read_exact_at(file, timed, into, at);
    let Located { bytes, notices } = spec.locate(&mut read, end, block)?;
    for notice in notices {
        tracing::warn!("{label}: {notice}");
    }
    Ok(bytes)
}

/// Refuses a member that has bytes in common with another member.
fn refuse_overlap(label: &str, extent: &Extent, others: &[&OpenMember]) -> Result<(), DeviceError> {
    let Some(other) = others.iter().find(|other| extent.overlaps(&other.extent)) else {
        return Ok(());
    };
    let same = *extent == other.extent;
    let (label, other) = (label.to_owned(), other.info.label.clone());
    Err(match same {
        true => DeviceError::Duplicate { label, other },
        false => DeviceError::Overlap { label, other },
    })
}

fn open_ram(spec: &MemberSpec, index: MemberIndex, bytes: u64) -> Result<OpenMember, DeviceError> {
    let label = &spec.label;
    let io = |what| move |errno: Errno| error_of(label, what, errno);
    let size = window_within(label, bytes, 0, None)?.end;
    let flags = rustix::fs::MemfdFlags::CLOEXEC | rustix::fs::MemfdFlags::ALLOW_SEALING;
    let file = rustix::fs::memfd_create("weft-ram", flags).map_err(io("memfd_create"))?;
    rustix::fs::ftruncate(&file, size).map_err(io("ftruncate"))?;
    // The file will be mapped, so its size is sealed.
    let seals = rustix::fs::SealFlags::SHRINK | rustix::fs::SealFlags::GROW;
    rustix::fs::fcntl_add_seals(&file, seals).map_err(io("fcntl_add_seals"))?;
    let identity = Identity::of(&file).map_err(io("statx"))?;
    Ok(OpenMember {
        file: Arc::new(file),
        timed: None,
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
        file_kind: FileKind::Memory,
        backing: None,
        overlay: None,
        rescued: None,
    })
}

fn kind_of_device(mode: IoMode) -> FileKind {
    match mode {
        IoMode::Buffered => FileKind::PageCache,
        IoMode::Direct => FileKind::Device,
    }
}

/// Kind of a file, by its file system. If the file system cannot be determined, it is assumed to be
/// served by a process or another host.
fn kind_of_file(file: &OwnedFd, mode: IoMode) -> FileKind {
    match rustix::fs::fstatfs(file).map(|found| found.f_type) {
        Ok(_) if is_tmpfs(file) => FileKind::Memory,
        Ok(magic) if !SERVED_MAGICS.contains(&magic) => kind_of_device(mode),
        _ => FileKind::Server,
    }
}

/// Unit of I/O with `O_DIRECT` in bytes, at most 4096. `None` if the file system does not support
/// `O_DIRECT`, needs a larger unit, or has no medium below its page cache (tmpfs).
fn direct_unit(file: &OwnedFd, is_block: bool, block: u32) -> Result<Option<u32>, Errno> {
    if is_tmpfs(file) && !is_block {
        return Ok(None);
    }
    let statx = rustix::fs::statx(file, c"", AtFlags::EMPTY_PATH, StatxFlags::DIOALIGN)?;
    if statx.stx_mask & StatxFlags::DIOALIGN.bits() != 0 {
        let (offset, memory) = (statx.stx_dio_offset_align, statx.stx_dio_mem_align);
        let unit = offset.max(memory).max(block);
        let usable = offset != 0 && unit.is_power_of_two() && unit <= 4096;
        return Ok(usable.then_some(unit));
    }
    // Before Linux 6.1 the kernel does not report the unit. For a device the unit is its logical
    // block. For a file it is the logical block of the device below, which is not known; 4096 bytes
    // suit every device.
    Ok(Some(if is_block { block } else { 4096 }))
}

/// Whether a file or directory is on tmpfs, in memory.
///
/// Source   statfs(2), `TMPFS_MAGIC`
pub fn is_tmpfs(file: impl AsFd) -> bool {
    rustix::fs::fstatfs(file).is_ok_and(|found| found.f_type == 0x0102_1994)
}

/// Magic numbers of FUSE, NFS, CIFS, SMB 2, 9p, Ceph and AFS.
///
/// Source   statfs(2), linux/magic.h
const SERVED_MAGICS: [rustix::fs::FsWord; 7] =
    [0x6573_5546, 0x6969, 0xff53_4d42, 0xfe53_4d42, 0x0102_1997, 0x00c3_6400, 0x6b41_4653];
