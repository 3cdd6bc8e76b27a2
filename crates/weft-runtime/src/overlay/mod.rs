//! Overlay: a sparse file that takes the writes to a member that must not be written.
//!
//! Reads return the data that the overlay has; the member itself is open for reading only. The file
//! name of the overlay is derived from the member, so a later run finds the overlay. The overlay
//! records the state of the member at its creation; a member that was written since then is
//! refused.
//!
//! An overlay gives the durability that the member itself would give. A write stores data in the
//! overlay and sets a bit of the map in memory. A flush makes the data durable, then writes the
//! map, then makes the map durable. After a crash a granule is therefore present as a whole or not
//! at all, flushed data is present, and data that was not flushed is old or new as on a disk. A
//! write of less than a granule first copies the rest of the granule from the member. A discard
//! makes a hole in the overlay's file and sets its bits of the map: the range reads as zeroes, and
//! the commit makes the same hole in the member.
//!
//! `format.rs` defines the file, `map.rs` records which granules it has, `found.rs` finds overlays
//! in a directory, `ring.rs` brings requests here, and [`crate::commit`] writes an overlay into its
//! member.

mod format;
pub(crate) mod found;
mod map;
mod ring;

use std::fs::File;
use std::io;
use std::ops::Range;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use rustix::fs::{FallocateFlags, Mode, OFlags, RenameFlags, SeekFrom};
use rustix::io::Errno;
use weft_ondisk::{
    DeviceIdentity, Superblock, SuperblockBlocks, Unreadable, Version, crc, read_superblock_blocks,
};
use weft_units::{Bytes, Sectors};

use crate::buffers::Buffer;
use crate::device_error::DeviceError;
use crate::file_lock::{Access, lock_file, unlock_file};
use crate::holes::{Stretch, can_punch, punch, stretch_of};
use crate::io::ring::{Action, RingOp};
use crate::timed::{TimedFile, read_exact_at};

pub use ring::{MemberRing, OverlayRing};

pub(crate) use format::GRANULE;

use format::{GRANULE_LEN, HEADER, Header, MAP_AT, OverlayState, PAGE, PAGE_GRANULES};
use map::Map;

/// Member below an overlay, with all that the overlay needs of it: label, size, position and file.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Underlay<'a> {
    pub(crate) label: &'a str,
    pub(crate) size: Sectors,
    /// First byte of the member in its file.
    pub(crate) start: Bytes,
    pub(crate) file: &'a Arc<OwnedFd>,
    /// Handle that reads the member's file within a time limit; `None` if reads have no limit.
    pub(crate) timed: Option<&'a Arc<TimedFile>>,
}

/// Overlay of one member: a file with its changes.
#[derive(Debug)]
pub struct Overlay {
    path: PathBuf,
    file: File,
    base: Arc<OwnedFd>,
    /// Handle that reads the member's file within a time limit; `None` if reads have no limit.
    timed: Option<Arc<TimedFile>>,
    /// First byte of the member in its file.
    base_start: u64,
    header: Header,
    map: Mutex<Map>,
    /// Lock that each write and flush holds, because several rings may share an overlay. Without
    /// the lock, two writes could both complete the same granule, and a flush could return before
    /// the pages of the map that another flush took are durable.
    order: Mutex<()>,
    access: Access,
}

impl Overlay {
    /// Opens the overlay of a member in a directory. If there is no overlay, [`Access::ReadWrite`]
    /// creates it (and the directory), and [`Access::ReadOnly`] returns `None`.
    ///
    /// # Errors
    /// Fails when the overlay cannot be opened, when its file is not an overlay of the member, when
    /// its commit was begun, or when the member was written since the overlay was made.
    pub(crate) fn open(
        member: Underlay<'_>,
        dir: &Path,
        access: Access,
    ) -> Result<Option<Self>, DeviceError> {
        let overlay = Self::open_any(member, dir, access)?;
        if let Some(Overlay {
            header: Header { state: OverlayState::Committing, .. }, path, ..
        }) = &overlay
        {
            return Err(refused(
                member.label,
                format!(
                    "{}: its commit was begun and not finished, so that the member is neither old \
                     nor new; finish it with --commit-overlay",
                    path.display()
                ),
            ));
        }
        Ok(overlay)
    }

    /// Opens the overlay like [`Self::open`], even if its commit was begun.
    pub(crate) fn open_any(
        member: Underlay<'_>,
        dir: &Path,
        access: Access,
    ) -> Result<Option<Self>, DeviceError> {
        let base = Base::of(member).map_err(|source| io_error(member.label, "reading", source))?;
        let found = found::find(member, &base, dir);
        match (found, access) {
            (Some(path), _) => Self::open_file(member, &base, &path, access).map(Some),
            (None, Access::ReadOnly) => Ok(None),
            (None, Access::ReadWrite) => {
                let path = dir.join(&base.names[0]);
                make(member, &base, dir, &path)?;
                Self::open_file(member, &base, &path, access).map(Some)
            }
        }
    }

    fn open_file(
        member: Underlay<'_>,
        base: &Base,
        path: &Path,
        access: Access,
    ) -> Result<Self, DeviceError> {
        let failed = |what| move |source| io_error(member.label, what, source);
        let wrong = |why: String| {
            refused(
                member.label,
                format!("overlay {}: {why}; --discard-overlay removes it", path.display()),
            )
        };
        let mut options = File::options();
        let file = options.read(true).write(access == Access::ReadWrite).open(path);
        let file = file.map_err(failed("opening its overlay"))?;
        if !file.metadata().map_err(failed("its overlay"))?.is_file() {
            return Err(wrong("found no regular file, expected one".into()));
        }
        lock_file(&path.display().to_string(), file.as_fd(), access)?;
        let mut bytes = [0; HEADER];
        file.read_exact_at(&mut bytes, 0).map_err(|error| match error.kind() {
            io::ErrorKind::UnexpectedEof => wrong("found less than a header".into()),
            _ => io_error(member.label, "reading its overlay", error),
        })?;
        let header = Header::decode(&bytes).map_err(wrong)?;
        let size = member.size.bytes().0;
        if header.size != size {
            return Err(wrong(format!(
                "header size at byte 24: found {}, expected that of the member, {size}",
                header.size
            )));
        }
        let (found, expected) =
            (file.metadata().map_err(failed("its overlay"))?.len(), format::file_bytes(size));
        if found != expected {
            return Err(wrong(format!("size: found {found}, expected {expected}")));
        }
        if header.state == OverlayState::Open && header.base_sum != base.sum {
            return Err(wrong(format!(
                "the member was written since: found its superblock at {} events with sum {:#010x}, \
                 expected {} events and {:#010x}, as when the overlay was made; what is in the \
                 overlay does not fit it any more",
                base.events, base.sum, header.events, header.base_sum
            )));
        }
        if header.written != 0
            && header.written != base.written
            && header.state == OverlayState::Open
        {
            tracing::warn!(
                "{}: its file was touched since its overlay was made; its superblock is the same, so \
                 it is taken to be unchanged",
                member.label
            );
        }
        let map = load(&file, size).map_err(|error| match error {
            LoadError::Io(source) => {
                io_error(member.label, "reading the map of its overlay", source)
            }
            LoadError::Beyond { granule } => wrong(format!(
                "map at byte {}: found granule {granule}, expected less than {}",
                MAP_AT + granule / 8,
                size.div_ceil(GRANULE)
            )),
        })?;
        Ok(Self {
            path: path.to_owned(),
            file,
            base: Arc::clone(member.file),
            timed: member.timed.cloned(),
            base_start: member.start.0,
            header,
            map: Mutex::new(map),
            order: Mutex::default(),
            access,
        })
    }

    /// Path of the overlay's file.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Directory of the overlay's file.
    #[must_use]
    pub fn dir(&self) -> &Path {
        self.path.parent().unwrap_or(Path::new("."))
    }

    /// Number of bytes of the member that are stored in the overlay, in whole granules.
    #[must_use]
    pub fn bytes(&self) -> Bytes {
        Bytes(self.map().granules() * GRANULE)
    }

    /// Whether a commit of the overlay was begun.
    pub(crate) fn is_committing(&self) -> bool {
        self.header.state == OverlayState::Committing
    }

    /// Records durably that a commit begins.
    pub(crate) fn begin_commit(&mut self) -> io::Result<()> {
        self.header.state = OverlayState::Committing;
        self.file.write_all_at(&self.header.encode(), 0)?;
        self.file.sync_data()
    }

    /// Byte ranges of the member that are stored in the overlay, each at most `bytes_max` long.
    pub(crate) fn granules(&self, bytes_max: u64) -> Vec<Range<u64>> {
        self.map().all(bytes_max)
    }

    /// Fills `into` from byte `at` of the member on.
    ///
    /// # Errors
    /// Fails when the overlay or the member reports an error.
    pub(crate) fn read_at(&self, into: &mut [u8], at: u64) -> io::Result<()> {
        let range = at..at + into.len() as u64;
        for (run, here) in self.runs(&range) {
            let part = &mut into[index(run.start - at)..index(run.end - at)];
            if here {
                self.file.read_exact_at(part, self.data_at() + run.start)?;
            } else {
                read_exact_at(&self.base, self.timed.as_ref(), part, self.base_start + run.start)?;
            }
        }
        Ok(())
    }

    /// Releases the lock of the overlay's file at once, before the file is closed.
    pub(crate) fn unlock(&self) {
        unlock_file(self.file.as_fd());
    }

    /// Whether the overlay has no granule of a range of the member's file.
    pub(crate) fn is_untouched(&self, offset: u64, len: u64) -> bool {
        let start = offset - self.base_start;
        self.runs(&(start..start + len)).iter().all(|(_, here)| !here)
    }

    /// Carries out an operation of a ring in this thread. Its offset counts from the start of the
    /// member's file. Returns the number of bytes moved, 0 for a flush or a discard.
    pub(crate) fn perform(&self, op: &mut RingOp) -> Result<usize, Errno> {
        let _order = match &op.action {
            Action::Read(_) => None,
            Action::Discard { .. } | Action::Flush | Action::Write { .. } => {
                Some(self.order.lock().unwrap_or_else(PoisonError::into_inner))
            }
        };
        let at = op.offset - self.base_start.min(op.offset);
        let (skip, limit) = (op.skip, op.limit);
        // A write would make the file longer again, and the missing bytes would read as zeros.
        self.refuse_cut()?;
        let moved = match &mut op.action {
            Action::Discard { len } => self.discard(&(at..at + *len)).map(|()| 0),
            Action::Flush => self.flush().map(|()| 0),
            Action::Read(buffer) => {
                let len = limit.min(buffer.len() - skip);
                self.fill(buffer, skip, len, at).map(|()| len)
            }
            Action::Write { buffer, durable } => {
                let len = limit.min(buffer.len() - skip);
                self.store(buffer, skip, len, at)?;
                if *durable {
                    self.make_durable(&(at..at + len as u64))?;
                }
                Ok(len)
            }
        };
        self.refuse_cut()?;
        moved
    }

    /// Returns an error if the overlay file has become shorter and has therefore lost data. The
    /// member is then gone, as in `member_io/`.
    fn refuse_cut(&self) -> Result<(), Errno> {
        let found = rustix::fs::fstat(&self.file)?.st_size;
        let is_cut =
            u64::try_from(found).is_ok_and(|len| len < format::file_bytes(self.header.size));
        if is_cut { Err(Errno::NODEV) } else { Ok(()) }
    }

    fn fill(&self, buffer: &mut Buffer, skip: usize, len: usize, at: u64) -> Result<(), Errno> {
        for (run, here) in self.runs(&(at..at + len as u64)) {
            let (file, start) = match here {
                true => (self.file.as_fd(), self.data_at()),
                false => (self.base.as_fd(), self.base_start),
            };
            let mut next = run.start;
            if let Some(timed) = self.timed.as_ref().filter(|_| !here) {
                let mut bytes = vec![0; index(run.end - next)];
                read_exact_at(file, Some(timed), &mut bytes, start + next)
                    .map_err(|error| Errno::from_io_error(&error).unwrap_or(Errno::NODEV))?;
                buffer.fill(skip + index(next - at), &bytes);
                continue;
            }
            while next < run.end {
                let from = skip + index(next - at);
                let mut slices = buffer.slices_mut(from, index(run.end - next));
                match rustix::io::preadv(file, &mut slices, start + next) {
                    // The file ends here now.
                    Ok(0) => return Err(Errno::NODEV),
                    Ok(count) => next += count as u64,
                    Err(Errno::INTR | Errno::AGAIN) => {}
                    Err(errno) => return Err(errno),
                }
            }
        }
        Ok(())
    }

    fn store(&self, buffer: &Buffer, skip: usize, len: usize, at: u64) -> Result<(), Errno> {
        assert_eq!(self.access, Access::ReadWrite, "an overlay that was opened read-only");
        let range = at..at + len as u64;
        self.reserve_map(&range)?;
        self.complete_granules(&range)?;
        let mut next = range.start;
        while next < range.end {
            let slices = buffer.slices(skip + index(next - at), index(range.end - next));
            match rustix::io::pwritev(&self.file, &slices, self.data_at() + next) {
                Ok(0) => return Err(Errno::IO),
                Ok(count) => next += count as u64,
                Err(Errno::INTR | Errno::AGAIN) => {}
                Err(errno) => return Err(errno),
            }
        }
        self.map().set(&range);
        Ok(())
    }

    /// Makes a range read as zeroes: granules within the range become a hole of the overlay's file,
    /// and zeroes are written where the range covers only a part of a granule.
    ///
    /// Errors    `EOPNOTSUPP` if the overlay's file system has no holes; the caller writes zeroes
    ///           then
    fn discard(&self, range: &Range<u64>) -> Result<(), Errno> {
        assert_eq!(self.access, Access::ReadWrite, "an overlay that was opened read-only");
        self.reserve_map(range)?;
        self.complete_granules(range)?;
        let start = range.start.next_multiple_of(GRANULE);
        // The last granule may reach beyond the end of the member.
        let end = if range.end == self.header.size {
            range.end.next_multiple_of(GRANULE)
        } else {
            range.end / GRANULE * GRANULE
        };
        let edges = if start < end {
            punch(&self.file, self.data_at() + start, end - start)?;
            [range.start..start, end.min(range.end)..range.end]
        } else {
            let middle = start.min(range.end);
            [range.start..middle, middle..range.end]
        };
        for edge in edges.iter().filter(|edge| !edge.is_empty()) {
            let zeroes = &[0; GRANULE_LEN][..index(edge.end - edge.start)];
            let written = self.file.write_all_at(zeroes, self.data_at() + edge.start);
            written.map_err(|error| Errno::from_io_error(&error).unwrap_or(Errno::IO))?;
        }
        self.map().set(range);
        Ok(())
    }

    /// Whether a discard can make a hole in the overlay's file.
    pub(crate) fn can_discard(&self) -> bool {
        can_punch(&self.file)
    }

    /// Hole or data in the overlay's file at the start of a byte range of the member, at most as
    /// long as the range. The overlay must have all of the range.
    pub(crate) fn stretch(&self, range: &Range<u64>) -> Stretch {
        stretch_of(&self.file, self.data_at() + range.start, Bytes(range.end - range.start))
    }

    /// Allocates those pages of the map in which a range will set the first bit. If there is no
    /// space, the write fails and can be repeated; a flush that finds no space for the map could
    /// not.
    fn reserve_map(&self, range: &Range<u64>) -> Result<(), Errno> {
        let new_pages = self.map().pages_new(range);
        for page in new_pages {
            let place = MAP_AT + page * PAGE as u64;
            match rustix::fs::fallocate(&self.file, FallocateFlags::empty(), place, PAGE as u64) {
                Ok(()) | Err(Errno::OPNOTSUPP | Errno::NOSYS) => {}
                Err(errno) => return Err(errno),
            }
        }
        Ok(())
    }

    /// Completes granules before a write: copies from the member those that the write covers only
    /// in part and that the overlay does not have yet.
    fn complete_granules(&self, range: &Range<u64>) -> Result<(), Errno> {
        let edges =
            [range.start, range.end].map(|edge| (edge % GRANULE != 0).then_some(edge / GRANULE));
        let mut copied = None;
        for granule in edges.into_iter().flatten() {
            let start = granule * GRANULE;
            let end = (start + GRANULE).min(self.header.size);
            let covered = range.start <= start && end <= range.end;
            if covered || copied == Some(granule) || self.map().has(granule) {
                continue;
            }
            let mut bytes = [0; GRANULE_LEN];
            let bytes = &mut bytes[..index(end - start)];
            let errno = |error: io::Error| match error.kind() {
                io::ErrorKind::UnexpectedEof => Errno::NODEV,
                _ => Errno::from_io_error(&error).unwrap_or(Errno::IO),
            };
            let place = self.base_start + start;
            read_exact_at(&self.base, self.timed.as_ref(), bytes, place).map_err(errno)?;
            self.file.write_all_at(bytes, self.data_at() + start).map_err(errno)?;
            copied = Some(granule);
        }
        Ok(())
    }

    fn make_durable(&self, range: &Range<u64>) -> Result<(), Errno> {
        if self.map().is_pending(range) {
            return self.flush();
        }
        rustix::fs::fdatasync(&self.file)
    }

    /// Makes the data durable first, then the map that refers to the data. If a page of the map
    /// cannot be written, its pending state is lost. This is harmless, because the member is not
    /// flushed again after a failure (see `member_io/`).
    fn flush(&self) -> Result<(), Errno> {
        // The pages are taken before the data is made durable, so they name no data that is written
        // in the meantime.
        let pages = self.map().take_pending();
        rustix::fs::fdatasync(&self.file)?;
        if pages.is_empty() {
            return Ok(());
        }
        for (page, bytes) in &pages {
            let place = MAP_AT + page * PAGE as u64;
            self.file
                .write_all_at(&bytes[..], place)
                .map_err(|error| Errno::from_io_error(&error).unwrap_or(Errno::IO))?;
        }
        rustix::fs::fdatasync(&self.file)
    }

    fn runs(&self, range: &Range<u64>) -> Vec<(Range<u64>, bool)> {
        self.map().runs(range)
    }

    fn data_at(&self) -> u64 {
        format::data_at(self.header.size)
    }

    /// Locks the map. The lock is held for moments only, never across I/O.
    fn map(&self) -> MutexGuard<'_, Map> {
        self.map.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// State of a member that its overlay records when it is made and compares when it is opened: the
/// superblock, and the modification time of the file.
struct Base {
    /// Possible file names of the member's overlay; a new overlay gets the first.
    names: Vec<String>,
    sum: u32,
    events: u64,
    array: [u8; 16],
    written: i64,
}

impl Base {
    fn of(member: Underlay<'_>) -> io::Result<Self> {
        let size = member.size;
        let blocks = read_superblock_blocks(size, |sector, len| {
            let mut block = vec![0; len];
            let place = member.start.0 + sector.bytes().0;
            read_exact_at(member.file, member.timed, &mut block, place)?;
            Ok(block)
        });
        // A superblock place that cannot be read is left out: members on failing disks get overlays
        // too.
        let blocks = match blocks {
            SuperblockBlocks { read, unreadable } if read.is_empty() => {
                match unreadable.into_iter().next() {
                    Some(Unreadable { source, .. }) => return Err(source),
                    None => read,
                }
            }
            SuperblockBlocks { read, .. } => read,
        };
        let sum =
            blocks.iter().fold(0, |sum: u32, (_, block)| sum.rotate_left(1) ^ crc::crc32c(block));
        let borrowed: Vec<(Version, &[u8])> =
            blocks.iter().map(|(version, block)| (*version, block.as_slice())).collect();
        let superblock = Superblock::find(&borrowed, size).ok();
        let mut names = Vec::new();
        if let Some(superblock) = &superblock {
            let array = plain(superblock.set_uuid());
            names.push(match superblock.identity() {
                DeviceIdentity::Uuid(uuid) => format!("md-{array}-{}.overlay", plain(uuid)),
                DeviceIdentity::Number(number) => format!("md-{array}-{number}.overlay"),
            });
        }
        names.push(name_by_label(member.label));
        let metadata = File::from(member.file.try_clone()?).metadata()?;
        let written = match metadata.is_file() {
            true => metadata.mtime().saturating_mul(1_000_000_000) + metadata.mtime_nsec(),
            false => 0,
        };
        let array = superblock.as_ref().map_or([0; 16], |superblock| superblock.set_uuid().0);
        let events = superblock.as_ref().map_or(0, Superblock::events);
        Ok(Self { names, sum, events, array, written })
    }
}

fn plain(uuid: weft_ondisk::Uuid) -> String {
    uuid.to_string().replace(':', "")
}

/// File name of the overlay of a member without a superblock. It contains the member's file name,
/// for readability, and a checksum of the whole label, for uniqueness.
fn name_by_label(label: &str) -> String {
    let last = label.rsplit('/').next().unwrap_or_default();
    let safe = |c: char| if c.is_ascii_alphanumeric() || "-_.".contains(c) { c } else { '_' };
    let shown: String = last.chars().map(safe).take(64).collect();
    format!("member-{shown}-{:08x}.overlay", crc::crc32c(label.as_bytes()))
}

/// Creates an empty overlay at `path` atomically, and the directory if it is missing. An overlay
/// that another process has created first is kept.
fn make(member: Underlay<'_>, base: &Base, dir: &Path, path: &Path) -> Result<(), DeviceError> {
    let failed = |what| move |source| io_error(member.label, what, source);
    let made = std::fs::create_dir_all(dir);
    made.map_err(failed("making the directory of its overlay (--overlay)"))?;
    let size = member.size.bytes().0;
    let header = Header {
        state: OverlayState::Open,
        size,
        base_sum: base.sum,
        events: base.events,
        array: base.array,
        written: base.written,
        label: member.label.to_owned(),
    };
    let new = path.with_extension(format!("new-{}", std::process::id()));
    // Readable by its owner only, because it contains data of the member.
    let file = File::options().write(true).create_new(true).mode(0o600).open(&new);
    let file = file.map_err(failed("making its overlay (--overlay)"))?;
    let result = (|| {
        found::forget(path)?;
        file.write_all_at(&header.encode(), 0)?;
        file.set_len(format::file_bytes(size))?;
        file.sync_all()?;
        let here = rustix::fs::CWD;
        match rustix::fs::renameat_with(here, &new, here, path, RenameFlags::NOREPLACE) {
            // Another process created the overlay first. The lock decides which of the two uses it.
            Err(Errno::EXIST) => std::fs::remove_file(&new)?,
            Err(Errno::INVAL | Errno::NOSYS) => std::fs::rename(&new, path)?,
            other => other?,
        }
        sync_dir(dir)
    })();
    result.map_err(|source: io::Error| {
        let _ = std::fs::remove_file(&new);
        io_error(member.label, "making its overlay", source)
    })
}

/// Makes the names in a directory durable, where the file system can flush directories.
pub(crate) fn sync_dir(dir: &Path) -> io::Result<()> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let dir = rustix::fs::open(dir, flags, Mode::empty())?;
    match rustix::fs::fsync(&dir) {
        Err(Errno::INVAL | Errno::NOTSUP) => Ok(()),
        other => Ok(other?),
    }
}

enum LoadError {
    Beyond { granule: u64 },
    Io(io::Error),
}

/// Reads the map of an overlay, skipping holes of the file.
fn load(file: &File, size: u64) -> Result<Map, LoadError> {
    let mut map = Map::default();
    let granules = size.div_ceil(GRANULE);
    let pages = granules.div_ceil(PAGE_GRANULES);
    let mut page = 0;
    while page < pages {
        let place = MAP_AT + page * PAGE as u64;
        match rustix::fs::seek(file, SeekFrom::Data(place)) {
            Ok(data) => page = page.max(data.saturating_sub(MAP_AT) / PAGE as u64),
            // The rest of the file is a hole.
            Err(Errno::NXIO) => break,
            // The file system has no holes.
            Err(_) => {}
        }
        if page >= pages {
            break;
        }
        let mut bytes = [0; PAGE];
        file.read_exact_at(&mut bytes, MAP_AT + page * PAGE as u64).map_err(LoadError::Io)?;
        map.load(page, &bytes, granules).map_err(|granule| LoadError::Beyond { granule })?;
        page += 1;
    }
    Ok(map)
}

pub(crate) fn index(bytes: u64) -> usize {
    usize::try_from(bytes).expect("within a buffer")
}

fn io_error(label: &str, what: &'static str, source: io::Error) -> DeviceError {
    DeviceError::Io { label: label.to_owned(), what, source }
}

fn refused(label: &str, why: String) -> DeviceError {
    DeviceError::Overlay { label: label.to_owned(), why }
}

#[cfg(test)]
mod tests;
