//! Metadata of members, read without changing anything.
//!
//! Files and devices are opened read-only, and only their metadata is read: enough for `examine`,
//! `detail`, `assemble`, `explain` and the checks of `create`.

use std::borrow::Borrow;
use std::fs::{File, OpenOptions};
use std::io;
use std::ops::Range;
use std::os::unix::fs::{FileExt, FileTypeExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use rustix::fs::OFlags;
use weft_engine::MemberInfo;
use weft_engine::assemble::{Candidate, Options, journal};
use weft_ondisk::probe::{self, Foreign, Misplaced};
use weft_ondisk::{
    Features, Metadata, MetadataError, SUPER_BYTES, Super1, Superblock, SuperblockBlocks,
    SuperblockError, Unreadable, Version, csum_v1, read_superblock_blocks,
};
use weft_runtime::devices::is_rotational;
use weft_runtime::partition::{self, Table, TableError};
use weft_runtime::rescued::Rescued;
use weft_runtime::spec::{Located, MemberSpec};
use weft_units::{Bytes, MemberIndex, Sectors};

use crate::member;
use crate::outcome::Failure;
use crate::patience::Patience;
use crate::terminal::complain;
use crate::unreadable::Maps;
use crate::volume;

/// A file or device, opened read-only.
#[derive(Clone, Debug)]
pub(crate) struct Looked {
    /// Name of the member.
    pub(crate) label: String,
    /// Size of the member.
    pub(crate) size: Sectors,
    /// Logical block size, in bytes.
    pub(crate) logical_block: u32,
    /// Device and inode of the file, the same for every path to it.
    pub(crate) identity: (u64, u64),
    /// Whether the member is on a block device rather than in a file.
    pub(crate) is_device: bool,
    /// Whether the device is known to be non-rotational.
    pub(crate) is_ssd: bool,
    /// First byte of the member in its file or device.
    start: u64,
    file: Arc<File>,
    /// Map of ddrescue of the file or device.
    rescued: Option<Rescued>,
}

impl Looked {
    /// Opens a file or block device, or part of one, by its name; read-only.
    ///
    /// # Errors
    /// The path cannot be opened, or is neither a file nor a block device.
    pub(crate) fn open(name: &Path) -> Result<Self, Failure> {
        Self::open_with(name, &Maps::default())
    }

    /// Opens a member as [`Self::open`] does, with the maps of ddrescue from the command line.
    pub(crate) fn open_with(name: &Path, maps: &Maps) -> Result<Self, Failure> {
        let label = member::label(name);
        let mut spec = maps.with_map(MemberSpec::path(name));
        spec.label.clone_from(&label);
        let path = spec.file().unwrap_or(name).to_owned();
        let failed = |error: io::Error| Failure::failed(format!("{label}: {error}"));
        // O_NONBLOCK: opening a FIFO must not wait for a writer.
        let flags = OFlags::NONBLOCK | OFlags::CLOEXEC;
        let file = OpenOptions::new()
            .read(true)
            .custom_flags(i32::try_from(flags.bits()).unwrap_or_default())
            .open(&path)
            .map_err(|error| {
                let of = if spec.is_part() { member::label(&path) + ": " } else { String::new() };
                Failure::failed(format!("{label}: {of}{error}"))
            })?;
        let metadata = file.metadata().map_err(failed)?;
        let kind = metadata.file_type();
        let is_device = kind.is_block_device();
        let (bytes, logical_block) = if is_device {
            let end = rustix::fs::seek(&file, rustix::fs::SeekFrom::End(0));
            let bytes = end.map_err(|error| failed(error.into()))?;
            (bytes, rustix::fs::ioctl_blksszget(&file).unwrap_or(512))
        } else if kind.is_file() {
            (metadata.len(), 512)
        } else {
            return Err(Failure::failed(format!(
                "{label}: found neither a file nor a block device, expected one of them"
            )));
        };
        let identity =
            if is_device { (u64::MAX, metadata.rdev()) } else { (metadata.dev(), metadata.ino()) };
        let (start, size) = if spec.is_part() {
            let block = is_device.then_some(logical_block);
            let located = spec.locate(&file, bytes, block);
            let Located { bytes, notices } = located.map_err(|error| volume::device(&error))?;
            for notice in notices {
                complain(&format!("{label}: note: {notice}"));
            }
            (bytes.start, Bytes(bytes.end - bytes.start).sectors_floor())
        } else {
            (0, Bytes(bytes).sectors_floor())
        };
        let within = start..start + size.bytes().0;
        let rescued = Rescued::of(&path, spec.map(), &within, is_device)
            .map_err(|why| Failure::usage(format!("{label}: {why}")))?;
        if let Some(map) = &rescued {
            complain(&format!("{label}: {}", map.says()));
        }
        let is_ssd = is_rotational(&file) == Some(false);
        let file = Arc::new(file);
        Ok(Self { label, size, logical_block, identity, is_device, is_ssd, start, file, rescued })
    }

    /// Refuses a future member that lacks data of its disk: its map of ddrescue would not record
    /// new writes.
    ///
    /// # Errors
    /// The map marks a part of the member as not rescued.
    pub(crate) fn refuse_unrescued(&self) -> Result<(), Failure> {
        match self.rescued.as_ref().and_then(Rescued::refuses_writes) {
            Some(why) => Err(Failure::refused(format!("{}: {why}", self.label))),
            None => Ok(()),
        }
    }

    /// A part of the member; `name` is the argument that names the part.
    pub(crate) fn part(&self, name: &Path, bytes: std::ops::Range<u64>) -> Self {
        let label = member::label(name);
        let size = Bytes(bytes.end - bytes.start).sectors_floor();
        let within = bytes.start - self.start..bytes.end - self.start;
        let rescued = self.rescued.as_ref().map(|map| map.part(&within));
        Self { label, size, start: bytes.start, rescued, ..self.clone() }
    }

    /// Partition table of the file or device.
    ///
    /// # Errors
    /// There is no valid partition table.
    pub(crate) fn partitions(&self) -> Result<Table, TableError> {
        let block = self.is_device.then_some(self.logical_block);
        let mut read = |at: u64, into: &mut [u8]| self.read_exact_at(into, at);
        partition::read(&mut read, self.size.bytes().0, block)
    }

    /// First byte of the member in its file or device.
    pub(crate) fn start(&self) -> u64 {
        self.start
    }

    /// Reads bytes of the member from `at` on until `into` is full.
    pub(crate) fn read_exact_at(&self, into: &mut [u8], at: u64) -> io::Result<()> {
        self.file.read_exact_at(into, self.start + at)
    }

    /// Whether two members share bytes.
    pub(crate) fn overlaps(&self, other: &Self) -> bool {
        let end = |looked: &Self| looked.start + looked.size.bytes().0;
        let apart = end(self) <= other.start || end(other) <= self.start;
        // Two arguments for the same empty file overlap as well.
        let same = (self.start, self.size) == (other.start, other.size);
        self.identity == other.identity && (same || !apart)
    }

    fn read(&self, sector: Sectors, len: usize) -> io::Result<Vec<u8>> {
        let mut bytes = vec![0; len];
        self.read_exact_at(&mut bytes, sector.bytes().0)?;
        Ok(bytes)
    }

    /// Reads the member. A range that its map of ddrescue does not mark as rescued is an I/O error,
    /// as it was on the disk.
    fn read_rescued(&self, sector: Sectors, len: usize) -> io::Result<Vec<u8>> {
        let range = sector.bytes().0..sector.bytes().0 + len as u64;
        match self.rescued.as_ref().is_some_and(|map| map.misses(&range)) {
            true => Err(rustix::io::Errno::IO.into()),
            false => self.read(sector, len),
        }
    }

    /// Metadata of the member.
    ///
    /// # Errors
    /// The metadata cannot be read, or no superblock is valid; the error does not name the member.
    pub(crate) fn metadata(&self) -> Result<Metadata, MetadataError> {
        Metadata::read(self.size, |sector, len| self.read_rescued(sector, len))
    }

    /// The one valid superblock.
    ///
    /// # Errors
    /// Reason why there is none, in a sentence that does not name the member.
    pub(crate) fn superblock(&self) -> Result<Box<Superblock>, String> {
        let metadata = self.metadata().map_err(|error| error.to_string())?;
        Ok(Box::new(metadata.superblock))
    }

    /// Every superblock that can be decoded, with its error if it is invalid, and the errors of
    /// those that cannot be decoded.
    pub(crate) fn superblocks(&self) -> Shown {
        let blocks =
            read_superblock_blocks(self.size, |sector, len| self.read_rescued(sector, len));
        let SuperblockBlocks { read, unreadable } = blocks;
        let mut shown = Shown { readable: Vec::new(), damaged: Vec::new(), unreadable };
        for (version, mut block) in read {
            match Superblock::decode(&block, version, self.size) {
                Ok(superblock) => {
                    let wrong = superblock.validate(self.size).err();
                    shown.readable.push((superblock, wrong));
                }
                Err(SuperblockError::Magic { .. }) => {}
                // A bad checksum may mean one wrong bit or garbage throughout: the superblock is
                // shown, so the user can judge.
                Err(error @ SuperblockError::Checksum { .. }) => {
                    mend_sum(&mut block, version, &error);
                    match Superblock::decode(&block, version, self.size) {
                        Ok(superblock) => shown.readable.push((superblock, Some(error))),
                        Err(_) => shown.damaged.push(error),
                    }
                }
                // The known part of a newer superblock is shown; its newer features are reported.
                Err(error @ SuperblockError::Newer { .. }) => {
                    match without_newer(&block, version) {
                        Some(superblock) => shown.readable.push((superblock.into(), Some(error))),
                        None => shown.damaged.push(error),
                    }
                }
                Err(error) => shown.damaged.push(error),
            }
        }
        shown
    }

    /// Superblocks at any sector; reads the whole member.
    ///
    /// # Errors
    /// The member cannot be read.
    pub(crate) fn superblocks_anywhere(&self) -> Result<Vec<Misplaced>, Failure> {
        let mut found = Vec::new();
        for (piece, superblocks) in self.superblocks_within(0..self.size.0) {
            found.extend(superblocks.map_err(|error| {
                Failure::failed(format!("{}: sector {}: {error}", self.label, piece.start))
            })?);
        }
        Ok(found)
    }

    /// Reads a range of sectors piece by piece. Calls back with the sectors of each piece and the
    /// superblocks that begin in it.
    pub(crate) fn superblocks_within(
        &self,
        sectors: Range<u64>,
    ) -> impl Iterator<Item = (Range<u64>, io::Result<Vec<Misplaced>>)> {
        let Range { start, end } = sectors;
        (start..end).step_by(PIECE_SECTORS).map(move |first| {
            let piece = first..end.min(first + PIECE_SECTORS as u64);
            // A superblock that begins in the last sector of a piece ends in the next piece.
            let last = (piece.end + SUPER_SECTORS - 1).min(self.size.0);
            let first = Sectors(first);
            let len = usize::try_from(Sectors(last - first.0).bytes().0).unwrap_or(usize::MAX);
            let bytes = self.read(first, len);
            (piece, bytes.map(|bytes| probe::superblocks_anywhere(&bytes, first)))
        })
    }

    /// Sectors that look like the start of a superblock.
    ///
    /// # Errors
    /// The member cannot be read.
    pub(crate) fn superblock_places(&self) -> Result<Vec<Sectors>, Failure> {
        let mut places = Vec::new();
        for sector in Version::ALL.iter().filter_map(|version| version.position(self.size)) {
            let mut magic = [0; 4];
            self.read_exact_at(&mut magic, sector.bytes().0)
                .map_err(|error| Failure::failed(format!("{}: {error}", self.label)))?;
            let is_magic = [u32::from_le_bytes(magic), u32::from_be_bytes(magic)].contains(&MAGIC);
            if is_magic && !places.contains(&sector) {
                places.push(sector);
            }
        }
        Ok(places)
    }

    /// Signature of another user of the member.
    ///
    /// # Errors
    /// The member cannot be read.
    pub(crate) fn foreign(&self) -> Result<Option<Foreign>, Failure> {
        Ok(self.every_foreign()?.into_iter().next())
    }

    /// Every foreign signature on the member. After each one its block is treated as zeros, which
    /// may reveal another signature.
    ///
    /// # Errors
    /// The member cannot be read.
    pub(crate) fn every_foreign(&self) -> Result<Vec<Foreign>, Failure> {
        let bytes = self.size.bytes().0;
        let part = |from: u64, len: usize| -> Result<Vec<u8>, Failure> {
            let len = usize::try_from(bytes - from).unwrap_or(usize::MAX).min(len);
            let mut part = vec![0; len];
            self.read_exact_at(&mut part, from).map_err(|error| {
                Failure::failed(format!("{}: byte {from}: {error}", self.label))
            })?;
            Ok(part)
        };
        let mut head = part(0, probe::HEAD_BYTES)?;
        let tail_start = bytes.saturating_sub(probe::TAIL_BYTES as u64);
        let mut tail = part(tail_start, probe::TAIL_BYTES)?;
        let mut all: Vec<Foreign> = Vec::new();
        while let Some(foreign) = probe::foreign_signature(self.size, &head, &tail) {
            let block = foreign.byte / SUPER_BYTES as u64 * SUPER_BYTES as u64;
            all.push(foreign);
            // A signature may extend into another block, which is not cleared, so it would be found
            // again forever.
            if all.len() > FOREIGN_MAX {
                break;
            }
            for (part, start) in [(&mut head, 0), (&mut tail, tail_start)] {
                for (byte, place) in part.iter_mut().zip(start..) {
                    if (block..block + SUPER_BYTES as u64).contains(&place) {
                        *byte = 0;
                    }
                }
            }
        }
        all.dedup();
        Ok(all)
    }

    /// Whether a range of a file is a hole, which reads as zeros.
    pub(crate) fn is_hole(&self, from: Sectors, len: Sectors) -> bool {
        if self.is_device {
            return false;
        }
        let from = self.start + from.bytes().0;
        let end = from + len.bytes().0;
        match rustix::fs::seek(&self.file, rustix::fs::SeekFrom::Data(from)) {
            Ok(data) => data >= end,
            // There is no data up to the end of the file.
            Err(rustix::io::Errno::NXIO) => true,
            Err(_) => false,
        }
    }

    /// Major and minor number of a device.
    pub(crate) fn device_number(&self) -> Option<(u32, u32)> {
        let (_, number) = self.identity;
        self.is_device.then(|| (rustix::fs::major(number), rustix::fs::minor(number)))
    }

    fn info(&self, index: u16) -> MemberInfo {
        MemberInfo {
            logical_block: self.logical_block,
            ..MemberInfo::of_size(MemberIndex(index), self.label.clone(), self.size)
        }
    }

    /// The member as a candidate of [`weft_engine::assemble::assemble`], under this index.
    pub(crate) fn candidate(&self, index: u16) -> Candidate {
        Candidate::new(self.info(index), self.metadata())
    }
}

/// Stores the correct checksum in the block, so the rest of it can be decoded.
fn mend_sum(block: &mut [u8], version: Version, error: &SuperblockError) {
    let SuperblockError::Checksum { at, computed, .. } = error else { return };
    let big = version == Version::V0_90 && block.starts_with(&MAGIC.to_be_bytes());
    let sum = if big { computed.to_be_bytes() } else { computed.to_le_bytes() };
    if let Some(stored) = block.get_mut(at.byte..at.byte + 4) {
        stored.copy_from_slice(&sum);
    }
}

/// Source   md-ondisk.md §1, `magic`
const MAGIC: u32 = 0xa92b_4efc;

/// A superblock reduced to this release; the names of newer features are kept.
fn without_newer(block: &[u8], version: Version) -> Option<Super1> {
    let minor = version.minor()?;
    let mut block = block.to_vec();
    let features = u32::from_le_bytes(*block.get(8..)?.first_chunk()?);
    let known = features & !Features(features).unknown().0;
    block.get_mut(8..12)?.copy_from_slice(&known.to_le_bytes());
    block.get_mut(12..16)?.fill(0);
    block.get_mut(228..256)?.fill(0);
    let sum = csum_v1(&block)?;
    block.get_mut(216..220)?.copy_from_slice(&sum.to_le_bytes());
    let mut superblock = Super1::decode(&block, minor).ok()?;
    superblock.feature_map = Features(features);
    Some(superblock)
}

/// Sectors that a search for superblocks reads at a time: 1 MiB.
const PIECE_SECTORS: usize = 2048;
const SUPER_SECTORS: u64 = SUPER_BYTES as u64 / 512;

/// Limit of signatures, more than a member has; only ZFS has a signature, its uberblock, in many
/// blocks.
const FOREIGN_MAX: usize = 256;

/// Superblocks of a member.
#[derive(Debug)]
pub(crate) struct Shown {
    /// Superblocks that were decoded, each with its error if it is invalid.
    pub(crate) readable: Vec<(Superblock, Option<SuperblockError>)>,
    /// Errors of superblocks that could not be decoded.
    pub(crate) damaged: Vec<SuperblockError>,
    /// Positions of possible superblocks that cannot be read.
    pub(crate) unreadable: Vec<Unreadable>,
}

/// Opens members, and refuses duplicates.
///
/// # Errors
/// A member cannot be opened, or two arguments name the same bytes.
pub(crate) fn open_all(paths: &[PathBuf]) -> Result<Vec<Looked>, Failure> {
    open_all_with(paths, &Maps::default())
}

/// Opens members as [`open_all`] does, with the maps of ddrescue from the command line.
pub(crate) fn open_all_with(paths: &[PathBuf], maps: &Maps) -> Result<Vec<Looked>, Failure> {
    let mut opened: Vec<Looked> = Vec::with_capacity(paths.len());
    for path in paths {
        let looked = Looked::open_with(path, maps)?;
        if let Some(first) = opened.iter().find(|first| first.overlaps(&looked)) {
            return Err(Failure::usage(twice(&looked, first)));
        }
        opened.push(looked);
    }
    Ok(opened)
}

/// Error text for two arguments with bytes in common.
pub(crate) fn twice(looked: &Looked, first: &Looked) -> String {
    let Looked { label, start, size, .. } = looked;
    if (*start, *size) == (first.start, first.size) {
        format!("{label}: named twice, also as {}; name each member once", first.label)
    } else {
        format!(
            "{label}: overlaps {}, expected members that have no byte in common; leave one out",
            first.label
        )
    }
}

/// Candidates of an assembly, in the order of the arguments.
pub(crate) fn candidates<L: Borrow<Looked>>(opened: &[L], options: &Options) -> Vec<Candidate> {
    candidates_within(opened, options, None)
}

/// Candidates as from [`candidates`], without members that do not answer within `wait`.
pub(crate) fn candidates_within<L: Borrow<Looked>>(
    opened: &[L],
    options: &Options,
    wait: Option<Duration>,
) -> Vec<Candidate> {
    let members = opened.iter().map(Borrow::borrow).zip(0..).map(|(looked, index)| {
        let info = looked.info(index);
        (info, (looked.clone(), index))
    });
    let read = |(looked, index): &(Looked, u16)| looked.candidate(*index);
    let (_, mut candidates) = Patience::new(wait).candidates(members, read, &mut complain);
    journal::settle(&mut candidates, options, |member, sector, len| {
        opened.get(usize::from(member.index.0))?.borrow().read(sector, len).ok()
    });
    let rescued = candidates.into_iter().map(|candidate| {
        let looked = opened.get(usize::from(candidate.member.index.0)).map(Borrow::borrow);
        match looked.and_then(|looked| looked.rescued.as_ref()) {
            Some(map) => map.apply(candidate, options.read_only),
            None => candidate,
        }
    });
    rescued.collect()
}
