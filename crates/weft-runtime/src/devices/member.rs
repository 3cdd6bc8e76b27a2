//! Open member: its properties, its metadata and its overlay.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;
use std::sync::Arc;

use rustix::fs::{AtFlags, StatxFlags};
use rustix::io::Errno;
use weft_engine::MemberInfo;
use weft_engine::assemble::Candidate;
use weft_ondisk::{Metadata, Superblock, read_superblock_blocks};
use weft_units::{Bytes, Sectors};

use super::sysfs::zeroes_and_unmaps;
use super::{Access, DeviceError, IoMode, Medium, OpenMember};
use crate::buffers::AlignedBytes;
use crate::file_lock::unlock_file;
use crate::identity::Identity;
use crate::io::ring::FileKind;
use crate::overlay::{Overlay, Underlay};
use crate::rescued::Rescued;
use crate::timed::{TimedFile, read_exact_at};

impl OpenMember {
    /// Description of the member, as the engine takes it.
    #[must_use]
    pub fn info(&self) -> &MemberInfo {
        &self.info
    }

    /// Whether I/O goes through the page cache, or past it (`O_DIRECT`).
    #[must_use]
    pub fn mode(&self) -> IoMode {
        self.mode
    }

    /// Major and minor number of the member's block device, as found at opening; `None` for a file.
    #[must_use]
    pub fn device_number(&self) -> Option<(u32, u32)> {
        match self.identity {
            Identity::Block { major, minor } => Some((major, minor)),
            Identity::File { .. } => None,
        }
    }

    /// Medium of the member: a block device, a file or memory.
    #[must_use]
    pub fn medium(&self) -> Medium {
        self.medium
    }

    /// Whether the member is memory of this process, so that I/O never blocks.
    #[must_use]
    pub fn is_memory(&self) -> bool {
        self.medium == Medium::Memory
    }

    /// Whether the member's file has been cut short since it was opened, so that it ends before the
    /// member does. Never blocks: on a network file system the answer comes from the attributes
    /// that this machine has cached.
    #[must_use]
    pub fn is_cut(&self) -> bool {
        self.damage().is_cut
    }

    /// Damage to the member's file since it was opened. Never blocks, like [`Self::is_cut`].
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

    /// Whether the member's block device zeroes and unmaps a range on demand; false for files.
    pub(crate) fn device_discards(&self) -> bool {
        zeroes_and_unmaps(self.identity)
    }

    /// Kind of the member's file, which determines the resource that its requests may block on.
    pub(crate) fn file_kind(&self) -> FileKind {
        self.file_kind
    }

    /// Offset in the member's file of the first byte behind the member.
    pub(crate) fn end(&self) -> u64 {
        self.start + self.info.size.bytes().0
    }

    /// Second handle of a member in memory, for the driver of another worker; `None` for files and
    /// devices.
    #[must_use]
    pub fn share_memory(&self) -> Option<Self> {
        self.is_memory().then(|| Self {
            file: Arc::clone(&self.file),
            timed: None,
            info: self.info.clone(),
            spec: self.spec.clone(),
            extent: self.extent.clone(),
            backing: None,
            overlay: None,
            rescued: None,
            ..*self
        })
    }

    /// Map that ddrescue wrote for the member's file or device; `None` if there is no map.
    #[must_use]
    pub fn rescued(&self) -> Option<&Rescued> {
        self.rescued.as_ref()
    }

    /// Access that the member was opened for.
    #[must_use]
    pub fn access(&self) -> Access {
        self.access
    }

    /// First byte of the member in its file.
    #[must_use]
    pub fn start(&self) -> Bytes {
        Bytes(self.start)
    }

    /// Overlay of the member, which holds its changes; `None` if writes go to the member itself.
    #[must_use]
    pub fn overlay(&self) -> Option<&Arc<Overlay>> {
        self.overlay.as_ref()
    }

    /// The member without its overlay, as the overlay reads it.
    pub(crate) fn underlay(&self) -> Underlay<'_> {
        let info = &self.info;
        Underlay {
            label: &info.label,
            size: info.size,
            start: self.start(),
            file: &self.file,
            timed: self.timed.as_ref(),
        }
    }

    /// Adds the overlay of this member in `dir`: writes go to it, and reads return its data where
    /// it has any. With [`Access::ReadWrite`] an overlay is created if there is none, and the
    /// member becomes writable; with [`Access::ReadOnly`] a member without an overlay stays as it
    /// is. Memory needs no overlay.
    ///
    /// # Errors
    /// Fails when the overlay cannot be created, is in use or damaged, or has a commit that was
    /// begun; when the member was written since the overlay was made; or when a member to be
    /// written was not rescued completely, according to its map of ddrescue.
    ///
    /// # Panics
    /// Panics when the member is open for writing, or not through the page cache.
    pub fn with_overlay(mut self, dir: &Path, access: Access) -> Result<Self, DeviceError> {
        if self.is_memory() {
            return Ok(self);
        }
        assert_eq!(self.access, Access::ReadOnly, "a member with an overlay is never written");
        assert_eq!(self.mode, IoMode::Buffered, "parts of blocks are read");
        // A write of a part of a granule copies the rest of the granule from the image. Bytes that
        // were not rescued would then count as good in the overlay.
        if access == Access::ReadWrite
            && let Some(why) = self.rescued.as_ref().and_then(Rescued::refuses_writes)
        {
            return Err(DeviceError::NotRescued { label: self.info.label, why });
        }
        let overlay = Overlay::open(self.underlay(), dir, access)?;
        if overlay.is_some() {
            self.access = access;
            // All overlays are usually in one directory, hence on one file system with one free
            // space.
            self.info.space = Some(0);
        }
        self.overlay = overlay.map(Arc::new);
        self.info.discards = self.can_discard();
        Ok(self)
    }

    /// Reads metadata: `len` bytes at a sector of the member.
    ///
    /// # Errors
    /// Fails when the device reports an error or ends before the range does, when part of the range
    /// was not rescued, according to the member's map of ddrescue, or with `ETIMEDOUT` when the
    /// read exceeds the member's time limit or is refused because of earlier ones that did.
    pub fn read(&self, at: Sectors, len: usize) -> std::io::Result<AlignedBytes> {
        let range = at.bytes().0..at.bytes().0 + len as u64;
        if self.rescued.as_ref().is_some_and(|map| map.misses(&range)) {
            return Err(Errno::IO.into());
        }
        let mut bytes = AlignedBytes::zeroed(len);
        if let Some(overlay) = &self.overlay {
            overlay.read_at(bytes.as_mut(), at.bytes().0)?;
            return Ok(bytes);
        }
        let offset = self.start + at.bytes().0;
        read_exact_at(&self.file, self.timed.as_ref(), bytes.as_mut(), offset)?;
        Ok(bytes)
    }

    /// Writes all of `bytes` to the member, from byte `at` on.
    ///
    /// # Errors
    /// Fails when the device reports an error.
    ///
    /// # Panics
    /// Panics when the member has an overlay, which takes its writes.
    pub fn write_all_at(&self, bytes: &[u8], at: Bytes) -> std::io::Result<()> {
        assert!(self.overlay.is_none(), "a member with an overlay is never written");
        let mut written = 0;
        while written < bytes.len() {
            let offset = self.start + at.0 + written as u64;
            match rustix::io::pwrite(&self.file, &bytes[written..], offset) {
                Ok(0) => return Err(std::io::ErrorKind::WriteZero.into()),
                Ok(count) => written += count,
                Err(Errno::INTR) => {}
                Err(errno) => return Err(errno.into()),
            }
        }
        Ok(())
    }

    /// Makes everything that was written to the member durable.
    ///
    /// # Errors
    /// Fails when the device reports an error.
    pub fn sync(&self) -> std::io::Result<()> {
        Ok(rustix::fs::fsync(&self.file)?)
    }

    /// Reads metadata from any sector on and of any length; neither needs to be a multiple of the
    /// logical block.
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

    /// Handle that reads the member's file within a time limit; `None` if its reads have no limit.
    pub(crate) fn timed(&self) -> Option<&Arc<TimedFile>> {
        self.timed.as_ref()
    }

    /// Releases the locks of the member at once. Otherwise they would last until the file is
    /// closed, which may take the kernel a moment if a ring had registered the file.
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

/// Damage to the file of an open member.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Damage {
    /// The file ends before the member does.
    pub(crate) is_cut: bool,
    /// The file has no name any more; it exists until its last descriptor is closed.
    pub(crate) is_deleted: bool,
}

/// Reads a member's metadata: every place where a superblock may be, and the areas that the
/// superblock points to. Returns the member with this metadata, as a candidate for an assembly.
/// Never writes.
#[must_use]
pub fn read_metadata(member: &OpenMember) -> Candidate {
    let metadata = Metadata::read(member.info.size, |sector, len| member.read_any(sector, len));
    Candidate::new(member.info.clone(), metadata)
}

/// Superblock of a member that is legal and has another version than `own`. The superblock of an
/// array with the version `own` would not overwrite it.
#[must_use]
pub fn other_superblock(member: &OpenMember, own: &str) -> Option<Superblock> {
    let size = member.info.size;
    let read = |sector, len| member.read_any(sector, len);
    let blocks = read_superblock_blocks(size, read).read.into_iter();
    let others = blocks.filter(|(version, _)| version.to_string() != own);
    let mut legal = others.filter_map(|(version, block)| {
        let superblock = Superblock::decode(&block, version, size).ok()?;
        superblock.validate(size).is_ok().then_some(superblock)
    });
    legal.next()
}
