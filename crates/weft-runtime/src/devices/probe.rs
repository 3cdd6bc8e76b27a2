//! Probe: a file or device that is opened read-only, to examine its content.
//!
//! A probe takes no lock, so that a member which is in use can be looked at as well; for the same
//! reason the data that it reads may change meanwhile. Members that are to be served are opened
//! with [`OpenOptions`](super::OpenOptions).

use std::fs::File;
use std::io;
use std::ops::Range;
use std::os::fd::AsFd;
use std::sync::Arc;

use rustix::fs::{FileType, Mode, OFlags, SeekFrom, seek};
use rustix::io::Errno;
use thiserror::Error;
use weft_units::{Bytes, Sectors};

use super::sysfs::is_rotational;
use crate::device_error::DeviceError;
use crate::identity::Identity;
use crate::rescued::Rescued;
use crate::spec::{Located, MemberSpec};
use crate::timed::{TimedFile, read_exact_at};
use weft_ondisk::partition::{self, Table, TableError};

/// A file or device, or part of one, opened read-only and not locked.
#[derive(Clone, Debug)]
pub struct Probe {
    file: Arc<File>,
    /// Handle that reads the file within a time limit; `None` if reads have no limit.
    timed: Option<Arc<TimedFile>>,
    identity: Identity,
    logical_block: u32,
    is_ssd: bool,
    /// First byte of the probed part in the file or device.
    start: u64,
    size: Sectors,
    /// Map that ddrescue wrote for the file or device; `None` if no map is used.
    rescued: Option<Rescued>,
}

/// Reasons why a file or device cannot be probed. Only the text of [`ProbeError::Part`] names the
/// file or device.
#[derive(Debug, Error)]
pub enum ProbeError {
    /// The path is neither a regular file nor a block device.
    #[error("found neither a file nor a block device, expected one of them")]
    Kind,
    /// The file or device cannot be opened.
    #[error(transparent)]
    Open(io::Error),
    /// The part or the map of ddrescue cannot be used. This text names the file or device.
    #[error(transparent)]
    Part(DeviceError),
    /// The size cannot be determined.
    #[error(transparent)]
    Size(io::Error),
}

impl Probe {
    /// Opens a file or block device, or part of one. Calls `notice` with a sentence for each oddity
    /// found on the way.
    ///
    /// # Errors
    /// Fails when the path cannot be opened, is neither a file nor a block device, or has no such
    /// part, and when its map of ddrescue cannot be used.
    pub fn open(spec: &MemberSpec, notice: &mut dyn FnMut(&str)) -> Result<Self, ProbeError> {
        let Some(path) = spec.file() else { return Err(ProbeError::Kind) };
        // O_NONBLOCK: opening a FIFO must not wait for a writer.
        let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::CLOEXEC;
        let opened = rustix::io::retry_on_intr(|| rustix::fs::open(path, flags, Mode::empty()));
        let file = File::from(opened.map_err(|errno| ProbeError::Open(errno.into()))?);
        let failed = |errno: Errno| ProbeError::Size(errno.into());
        let stat = rustix::fs::fstat(&file).map_err(failed)?;
        let (bytes, block) = match FileType::from_raw_mode(stat.st_mode) {
            FileType::BlockDevice => {
                let bytes = seek(&file, SeekFrom::End(0)).map_err(failed)?;
                (bytes, Some(rustix::fs::ioctl_blksszget(&file).unwrap_or(512)))
            }
            FileType::RegularFile => (u64::try_from(stat.st_size).unwrap_or(0), None),
            _ => return Err(ProbeError::Kind),
        };
        let timed = spec.timed(&file).map_err(ProbeError::Open)?;
        let (start, size) = if spec.is_part() {
            let mut read =
                |at: u64, into: &mut [u8]| read_exact_at(&file, timed.as_ref(), into, at);
            let located = spec.locate(&mut read, bytes, block).map_err(ProbeError::Part)?;
            let Located { bytes, notices } = located;
            notices.iter().for_each(|text| notice(text));
            (bytes.start, Bytes(bytes.end - bytes.start).sectors_floor())
        } else {
            (0, Bytes(bytes).sectors_floor())
        };
        let within = start..start + size.bytes().0;
        let rescued = Rescued::of(path, spec.map(), &within, block.is_some())
            .map_err(|why| ProbeError::Part(DeviceError::Map { label: spec.label.clone(), why }))?;
        Ok(Self {
            identity: Identity::of(&file).map_err(failed)?,
            logical_block: block.unwrap_or(512),
            is_ssd: is_rotational(&file) == Some(false),
            file: Arc::new(file),
            timed,
            start,
            size,
            rescued,
        })
    }

    /// Probe of a part of this probe. `bytes` counts from the start of the file or device.
    #[must_use]
    pub fn part(&self, bytes: Range<u64>) -> Self {
        let size = Bytes(bytes.end - bytes.start).sectors_floor();
        let within = bytes.start - self.start..bytes.end - self.start;
        let rescued = self.rescued.as_ref().map(|map| map.part(&within));
        Self { size, start: bytes.start, rescued, ..self.clone() }
    }

    /// Size in whole sectors; an incomplete last sector does not count.
    #[must_use]
    pub fn size(&self) -> Sectors {
        self.size
    }

    /// First byte of the probed part in the file or device.
    #[must_use]
    pub fn start(&self) -> u64 {
        self.start
    }

    /// Logical block size in bytes; 512 for files.
    #[must_use]
    pub fn logical_block(&self) -> u32 {
        self.logical_block
    }

    /// Whether the probe is of a block device and not of a file.
    #[must_use]
    pub fn is_device(&self) -> bool {
        self.device_number().is_some()
    }

    /// Major and minor number of the device; `None` for a file.
    #[must_use]
    pub fn device_number(&self) -> Option<(u32, u32)> {
        match self.identity {
            Identity::Block { major, minor } => Some((major, minor)),
            Identity::File { .. } => None,
        }
    }

    /// Whether the device is known to be non-rotational; false for a file.
    #[must_use]
    pub fn is_ssd(&self) -> bool {
        self.is_ssd
    }

    /// Map that ddrescue wrote for the file or device; `None` if no map is used.
    #[must_use]
    pub fn rescued(&self) -> Option<&Rescued> {
        self.rescued.as_ref()
    }

    /// Reads the partition table of the probed part.
    ///
    /// # Errors
    /// Reading fails, or there is no valid partition table.
    pub fn partitions(&self) -> Result<Table, TableError> {
        let block = self.is_device().then_some(self.logical_block);
        let mut read = |at: u64, into: &mut [u8]| self.read_exact_at(into, at);
        partition::read(&mut read, self.size.bytes().0, block)
    }

    /// Reads from byte `at` of the probed part on until `into` is full.
    ///
    /// # Errors
    /// Fails when reading fails, or when the file ends first.
    pub fn read_exact_at(&self, into: &mut [u8], at: u64) -> io::Result<()> {
        read_exact_at(&self.file, self.timed.as_ref(), into, self.start + at)
    }

    /// Reads `len` bytes from a sector of the probed part on.
    ///
    /// # Errors
    /// Fails when reading fails, or when the file ends first.
    pub fn read(&self, sector: Sectors, len: usize) -> io::Result<Vec<u8>> {
        let mut bytes = vec![0; len];
        self.read_exact_at(&mut bytes, sector.bytes().0)?;
        Ok(bytes)
    }

    /// Reads like [`Self::read`]. A range that the map of ddrescue does not mark as rescued is an
    /// I/O error, as it was on the disk.
    ///
    /// # Errors
    /// Fails when reading fails, when the file ends first, or when the range was not rescued.
    pub fn read_rescued(&self, sector: Sectors, len: usize) -> io::Result<Vec<u8>> {
        let range = sector.bytes().0..sector.bytes().0 + len as u64;
        match self.rescued.as_ref().is_some_and(|map| map.misses(&range)) {
            true => Err(Errno::IO.into()),
            false => self.read(sector, len),
        }
    }

    /// Whether two probes have bytes in common. Two probes of the same empty file count as well.
    #[must_use]
    pub fn overlaps(&self, other: &Self) -> bool {
        let end = |probe: &Self| probe.start + probe.size.bytes().0;
        let apart = end(self) <= other.start || end(other) <= self.start;
        self.identity == other.identity && (self.has_same_place(other) || !apart)
    }

    /// Whether two probes have the same start and size; the files or devices may differ.
    #[must_use]
    pub fn has_same_place(&self, other: &Self) -> bool {
        (self.start, self.size) == (other.start, other.size)
    }

    /// Whether a range of the probed part is a hole of the file, so that it reads as zeros. False
    /// for a device.
    #[must_use]
    pub fn is_hole(&self, from: Sectors, len: Sectors) -> bool {
        if self.is_device() {
            return false;
        }
        let from = self.start + from.bytes().0;
        match seek(self.file.as_fd(), SeekFrom::Data(from)) {
            Ok(data) => data >= from + len.bytes().0,
            // There is no data up to the end of the file.
            Err(Errno::NXIO) => true,
            Err(_) => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::devices::{Access, OpenOptions};
    use rustix::fs::CWD;
    use std::path::Path;
    use weft_units::MemberIndex;

    fn probe(path: &Path) -> Result<Probe, ProbeError> {
        Probe::open(&MemberSpec::path(path), &mut |_| ())
    }

    #[test]
    fn what_is_no_file_and_no_device_is_refused_and_a_fifo_is_not_waited_for() {
        let dir = tempfile::tempdir().unwrap();
        let fifo = dir.path().join("fifo");
        rustix::fs::mknodat(CWD, &fifo, FileType::Fifo, Mode::RUSR, 0).unwrap();
        for path in [dir.path(), Path::new("/dev/null"), &fifo] {
            assert!(matches!(probe(path), Err(ProbeError::Kind)), "{}", path.display());
        }
        assert!(matches!(probe(&dir.path().join("none")), Err(ProbeError::Open(_))));
        assert!(matches!(probe(Path::new("/none#1")), Err(ProbeError::Open(_))));
        std::fs::write(dir.path().join("short"), [1; 100]).unwrap();
        assert!(matches!(probe(&dir.path().join("short@512")), Err(ProbeError::Part(_))));
    }

    #[test]
    fn a_member_in_use_is_looked_at_and_its_parts_are_told_apart() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("disk");
        std::fs::File::create(&path).unwrap().set_len(1 << 20).unwrap();
        let spec = MemberSpec::path(&path);
        let open = OpenOptions { buffered: true, ..OpenOptions::new(Access::ReadWrite) };
        let member = open.open(&spec, MemberIndex(0), []).unwrap();
        member.write_all_at(b"content", Bytes(512)).unwrap();
        member.sync().unwrap();
        let whole = probe(&path).unwrap();
        assert_eq!(
            (whole.size(), whole.is_device(), whole.is_ssd()),
            (Sectors(2048), false, false)
        );
        assert_eq!(whole.read(Sectors(1), 7).unwrap(), b"content");
        assert!(
            whole.is_hole(Sectors(1024), Sectors(1024)) && !whole.is_hole(Sectors(0), Sectors(8))
        );
        let link = dir.path().join("link");
        std::os::unix::fs::symlink(&path, &link).unwrap();
        assert!(whole.overlaps(&probe(&link).unwrap()));
        let [first, second] = [whole.part(0..512 << 10), whole.part(512 << 10..1 << 20)];
        assert!(whole.overlaps(&first) && !first.overlaps(&second));
        assert_eq!((second.start(), second.size()), (512 << 10, Sectors(1024)));
        assert!(second.read(Sectors(1023), 512).is_ok());
        assert!(second.read(Sectors(1023), 1024).is_err(), "beyond the end of the file");
    }
}
