//! Metadata of members, read without changing anything.
//!
//! A [`Probe`] opens files and devices, read-only, and only their metadata is read: enough for
//! `examine`, `detail`, `assemble`, `explain` and the checks of `create`.

use std::borrow::Borrow;
use std::io;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::time::Duration;

use weft_engine::MemberInfo;
use weft_engine::assemble::{Candidate, Options, journal};
use weft_ondisk::probe::{self, Foreign, Misplaced};
use weft_ondisk::{
    Features, Metadata, MetadataError, SUPER_BYTES, Super1, Superblock, SuperblockBlocks,
    SuperblockError, Unreadable, Version, csum_v1, read_superblock_blocks,
};
use weft_runtime::devices::{Probe, ProbeError};
use weft_runtime::rescued::Rescued;
use weft_runtime::spec::MemberSpec;
use weft_terminal::outcome::Failure;
use weft_terminal::terminal::{self, complain};
use weft_units::{MemberIndex, Sectors};

use crate::patience::Patience;
use crate::reading::Reading;
use crate::volume;

/// Member that is examined without changing it.
#[derive(Clone, Debug)]
pub(crate) struct Looked {
    /// Name of the member in messages.
    pub(crate) label: String,
    /// Read-only access to the file or device, or to the part of it that is the member.
    pub(crate) probe: Probe,
}

impl Looked {
    /// Opens a file or block device, or part of one, by its name, for reading only.
    ///
    /// # Errors
    /// The path cannot be opened, or is neither a file nor a block device.
    pub(crate) fn open(name: &Path) -> Result<Self, Failure> {
        Self::open_with(name, &Reading::default())
    }

    /// Opens a member as [`Self::open`] does, read as the command line says.
    pub(crate) fn open_with(name: &Path, reading: &Reading) -> Result<Self, Failure> {
        let label = terminal::label(name);
        let mut spec = reading.apply(MemberSpec::path(name));
        spec.label.clone_from(&label);
        let mut notice = |text: &str| complain(&format!("{label}: note: {text}"));
        let probe = Probe::open(&spec, &mut notice).map_err(|error| match error {
            ProbeError::Open(error) if spec.is_part() => {
                let path = spec.file().unwrap_or(name);
                Failure::failed(format!("{label}: {}: {error}", terminal::label(path)))
            }
            ProbeError::Part(error) => volume::device(&error),
            error => Failure::failed(format!("{label}: {error}")),
        })?;
        if let Some(map) = probe.rescued() {
            complain(&format!("{label}: {}", map.says()));
        }
        Ok(Self { label, probe })
    }

    /// Refuses a member for a new array if its map of ddrescue says that data was not rescued: the
    /// map would not record new writes.
    ///
    /// # Errors
    /// The map marks a part of the member as not rescued.
    pub(crate) fn refuse_unrescued(&self) -> Result<(), Failure> {
        match self.probe.rescued().and_then(Rescued::refuses_writes) {
            Some(why) => Err(Failure::refused(format!("{}: {why}", self.label))),
            None => Ok(()),
        }
    }

    /// Part of the member, as a member of its own. `bytes` counts in the file or device; `name` is
    /// the argument that names the part.
    pub(crate) fn part(&self, name: &Path, bytes: Range<u64>) -> Self {
        Self { label: terminal::label(name), probe: self.probe.part(bytes) }
    }

    /// Metadata of the member.
    ///
    /// # Errors
    /// The metadata cannot be read, or no superblock is valid; the error does not name the member.
    pub(crate) fn metadata(&self) -> Result<Metadata, MetadataError> {
        Metadata::read(self.probe.size(), |sector, len| self.probe.read_rescued(sector, len))
    }

    /// Content of the bad-block log that a superblock of the member points to; `None` if there are
    /// no bad blocks.
    ///
    /// The log cannot be read; the text is a sentence that does not name the member.
    pub(crate) fn bad_block_log(&self, superblock: &Superblock) -> Result<Option<Vec<u8>>, String> {
        let Some(area) = superblock.badblocks_area() else { return Ok(None) };
        let len = usize::try_from(area.len.bytes().0).unwrap_or(usize::MAX);
        let bytes = self.probe.read_rescued(area.start, len);
        bytes
            .map(Some)
            .map_err(|error| format!("bad-block log at sector {}: {error}", area.start.0))
    }

    /// The valid superblock of the member; of several superblocks of one array, the newest.
    ///
    /// # Errors
    /// No superblock is valid, or superblocks of two arrays are; the text is a sentence that does
    /// not name the member.
    pub(crate) fn superblock(&self) -> Result<Box<Superblock>, String> {
        let metadata = self.metadata().map_err(|error| error.to_string())?;
        Ok(Box::new(metadata.superblock))
    }

    /// Every superblock that can be decoded, with its error if it is invalid, and the errors of
    /// those that cannot be decoded.
    pub(crate) fn superblocks(&self) -> Shown {
        let blocks = read_superblock_blocks(self.probe.size(), |sector, len| {
            self.probe.read_rescued(sector, len)
        });
        let SuperblockBlocks { read, unreadable } = blocks;
        let mut shown = Shown { readable: Vec::new(), damaged: Vec::new(), unreadable };
        for (version, mut block) in read {
            match Superblock::decode(&block, version, self.probe.size()) {
                Ok(superblock) => {
                    let wrong = superblock.validate(self.probe.size()).err();
                    shown.readable.push((superblock, wrong));
                }
                Err(SuperblockError::Magic { .. }) => {}
                // A bad checksum may mean one wrong bit or garbage throughout: the superblock is
                // shown, so the user can judge.
                Err(error @ SuperblockError::Checksum { .. }) => {
                    mend_sum(&mut block, version, &error);
                    match Superblock::decode(&block, version, self.probe.size()) {
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

    /// Superblocks at any sector of the member, all of which is read.
    ///
    /// # Errors
    /// The member cannot be read.
    pub(crate) fn superblocks_anywhere(&self) -> Result<Vec<Misplaced>, Failure> {
        let mut found = Vec::new();
        for (piece, superblocks) in self.superblocks_within(0..self.probe.size().0) {
            found.extend(superblocks.map_err(|error| {
                Failure::failed(format!("{}: sector {}: {error}", self.label, piece.start))
            })?);
        }
        Ok(found)
    }

    /// Reads a range of sectors part by part. Returns an item for each part: its sectors, and the
    /// superblocks that begin in it.
    pub(crate) fn superblocks_within(
        &self,
        sectors: Range<u64>,
    ) -> impl Iterator<Item = (Range<u64>, io::Result<Vec<Misplaced>>)> {
        let Range { start, end } = sectors;
        (start..end).step_by(PIECE_SECTORS).map(move |first| {
            let piece = first..end.min(first + PIECE_SECTORS as u64);
            // A superblock that begins in the last sector of a piece ends in the next piece.
            let last = (piece.end + SUPER_SECTORS - 1).min(self.probe.size().0);
            let first = Sectors(first);
            let len = usize::try_from(Sectors(last - first.0).bytes().0).unwrap_or(usize::MAX);
            let bytes = self.probe.read(first, len);
            (piece, bytes.map(|bytes| probe::superblocks_anywhere(&bytes, first)))
        })
    }

    /// Sectors with the magic number of a superblock, among those at which a version prescribes
    /// one.
    ///
    /// # Errors
    /// The member cannot be read.
    pub(crate) fn superblock_places(&self) -> Result<Vec<Sectors>, Failure> {
        let mut places = Vec::new();
        for sector in Version::ALL.iter().filter_map(|version| version.position(self.probe.size()))
        {
            let mut magic = [0; 4];
            self.probe
                .read_exact_at(&mut magic, sector.bytes().0)
                .map_err(|error| Failure::failed(format!("{}: {error}", self.label)))?;
            let is_magic = [u32::from_le_bytes(magic), u32::from_be_bytes(magic)].contains(&MAGIC);
            if is_magic && !places.contains(&sector) {
                places.push(sector);
            }
        }
        Ok(places)
    }

    /// First known signature on the member of anything that may use it, such as a file system, a
    /// partition table or an array; `None` if there is none.
    ///
    /// # Errors
    /// The member cannot be read.
    pub(crate) fn foreign(&self) -> Result<Option<Foreign>, Failure> {
        Ok(self.every_foreign()?.into_iter().next())
    }

    /// Every known signature on the member. The block of each signature found is then treated as
    /// zeros, which may reveal another one.
    ///
    /// # Errors
    /// The member cannot be read.
    pub(crate) fn every_foreign(&self) -> Result<Vec<Foreign>, Failure> {
        let bytes = self.probe.size().bytes().0;
        let part = |from: u64, len: usize| -> Result<Vec<u8>, Failure> {
            let len = usize::try_from(bytes - from).unwrap_or(usize::MAX).min(len);
            let mut part = vec![0; len];
            self.probe.read_exact_at(&mut part, from).map_err(|error| {
                Failure::failed(format!("{}: byte {from}: {error}", self.label))
            })?;
            Ok(part)
        };
        let mut head = part(0, probe::HEAD_BYTES)?;
        let tail_start = bytes.saturating_sub(probe::TAIL_BYTES as u64);
        let mut tail = part(tail_start, probe::TAIL_BYTES)?;
        let mut all: Vec<Foreign> = Vec::new();
        while let Some(foreign) = probe::foreign_signature(self.probe.size(), &head, &tail) {
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

    fn info(&self, index: u16) -> MemberInfo {
        MemberInfo {
            logical_block: self.probe.logical_block(),
            ..MemberInfo::of_size(MemberIndex(index), self.label.clone(), self.probe.size())
        }
    }

    /// The member as a candidate of [`weft_engine::assemble::assemble`], under this index.
    pub(crate) fn candidate(&self, index: u16) -> Candidate {
        Candidate::new(self.info(index), self.metadata())
    }
}

/// Stores in the block the checksum that the error expects, so that the rest of the block can be
/// decoded.
fn mend_sum(block: &mut [u8], version: Version, error: &SuperblockError) {
    let SuperblockError::Checksum { at, computed, .. } = error else { return };
    let big = version == Version::V0_90 && block.starts_with(&MAGIC.to_be_bytes());
    let sum = if big { computed.to_be_bytes() } else { computed.to_le_bytes() };
    if let Some(stored) = block.get_mut(at.byte..at.byte + 4) {
        stored.copy_from_slice(&sum);
    }
}

/// Magic number of every superblock of md.
///
/// Source   md-ondisk.md §1, `magic`
const MAGIC: u32 = 0xa92b_4efc;

/// Superblock decoded without the features that this release does not know. Their bits are kept in
/// `feature_map`. `None` if it cannot be decoded even so.
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

/// Number of sectors that a search for superblocks reads at a time: 1 MiB.
const PIECE_SECTORS: usize = 2048;
const SUPER_SECTORS: u64 = SUPER_BYTES as u64 / 512;

/// Largest number of signatures that are reported. It is more than a member has: only ZFS has its
/// signature, the uberblock, in many blocks.
const FOREIGN_MAX: usize = 256;

/// Superblocks of a member, as far as they can be read and decoded.
#[derive(Debug)]
pub(crate) struct Shown {
    /// Superblocks that were decoded, each with its error if it is invalid.
    pub(crate) readable: Vec<(Superblock, Option<SuperblockError>)>,
    /// Errors of those superblocks that could not be decoded.
    pub(crate) damaged: Vec<SuperblockError>,
    /// Positions of possible superblocks that cannot be read.
    pub(crate) unreadable: Vec<Unreadable>,
}

/// Opens members. Two arguments that name the same bytes are refused.
///
/// # Errors
/// A member cannot be opened, or two arguments name the same bytes.
pub(crate) fn open_all(paths: &[PathBuf]) -> Result<Vec<Looked>, Failure> {
    open_all_with(paths, &Reading::default())
}

/// Opens members as [`open_all`] does, read as the command line says.
pub(crate) fn open_all_with(paths: &[PathBuf], reading: &Reading) -> Result<Vec<Looked>, Failure> {
    let mut opened: Vec<Looked> = Vec::with_capacity(paths.len());
    for path in paths {
        let looked = Looked::open_with(path, reading)?;
        if let Some(first) = opened.iter().find(|first| first.probe.overlaps(&looked.probe)) {
            return Err(Failure::usage(twice(&looked, first)));
        }
        opened.push(looked);
    }
    Ok(opened)
}

/// Error text for two arguments with overlapping members.
pub(crate) fn twice(looked: &Looked, first: &Looked) -> String {
    let label = &looked.label;
    if looked.probe.has_same_place(&first.probe) {
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

/// Candidates as [`candidates`] returns them, but members that do not answer within `wait` have no
/// superblock.
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
        opened.get(usize::from(member.index.0))?.borrow().probe.read(sector, len).ok()
    });
    let rescued = candidates.into_iter().map(|candidate| {
        let looked = opened.get(usize::from(candidate.member.index.0)).map(Borrow::borrow);
        match looked.and_then(|looked| looked.probe.rescued()) {
            Some(map) => map.apply(candidate, options.read_only),
            None => candidate,
        }
    });
    rescued.collect()
}
