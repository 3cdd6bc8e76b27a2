//! Search for members on a disk: the whole disk, its partitions, and superblocks in unusual places.
//!
//! One superblock may be at the standard position of several candidates: with metadata at the end,
//! the last partition and the disk may end at the same byte. The smallest candidate is taken as the
//! member.

use std::ffi::OsString;
use std::io::Write;
use std::path::{Path, PathBuf};

use serde_json::{Value, json};
use weft_ondisk::partition::TableError;
use weft_ondisk::probe::Misplaced;
use weft_ondisk::{
    CUT_HAS_NONE, MetadataError, RESERVED_090, Superblock, SuperblockError, Uuid, Version,
};
use weft_runtime::spec::MemberSpec;
use weft_terminal::outcome::Failure;
use weft_terminal::terminal::{complain, progress};
use weft_units::{Bytes, Sectors};

use crate::look::Looked;
use crate::size;

/// Disk that was searched, and the members found on it.
pub(crate) struct Disk {
    label: String,
    bytes: u64,
    table: String,
    has_table: bool,
    notices: Vec<String>,
    /// Members found on the disk, in the order of the search.
    pub(crate) found: Vec<Found>,
    members: usize,
    /// Whether the disk is an image without a partition table and without a member. The superblock
    /// of such an image may have been cut off.
    may_be_cut: bool,
    /// Whether members may lie in areas that were not searched: the disk has no partition table
    /// that says how it is divided, and only its ends were read.
    may_have_more: bool,
}

/// A member found on a disk.
pub(crate) struct Found {
    /// Name of the member as a MEMBER argument.
    pub(crate) name: PathBuf,
    /// Label of the disk on which it was found.
    pub(crate) disk: String,
    pub(crate) looked: Looked,
    pub(crate) set_uuid: Uuid,
    pub(crate) kind: FoundKind,
    /// Sector of the superblock on the disk.
    super_sector: Sectors,
}

/// Array with superblocks at the end of its members, and the smallest size that a member may have.
pub(crate) struct End {
    array: Uuid,
    version: Version,
    /// Size of the smallest member in bytes: its data and the space of its superblock.
    bytes: u64,
}

impl End {
    /// Array and size of its smallest member, from a superblock at the end of a member; `None` if
    /// superblocks of this version are at the start.
    pub(crate) fn of(superblock: &Superblock) -> Option<Self> {
        let version = superblock.version();
        let behind = match version {
            Version::V0_90 => RESERVED_090,
            Version::V1_0 => V1_0_BEHIND,
            Version::V1_1 | Version::V1_2 => return None,
        };
        let data = superblock.data_offset().0.checked_add(superblock.used_size().0)?;
        let bytes = Sectors(data.checked_add(behind.0)?).bytes().0;
        Some(Self { array: superblock.set_uuid(), version, bytes })
    }
}

/// Way in which a member was found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FoundKind {
    Cut,
    OddPlace,
    Partition,
    WholeDisk,
}

impl FoundKind {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Cut => "cut off",
            Self::OddPlace => "in no partition",
            Self::Partition => "partition",
            Self::WholeDisk => "whole disk",
        }
    }
}

/// Searches a disk for members. `name` is the argument that named the disk; `deep` reads every
/// sector.
pub(crate) fn search(name: &Path, disk: &Looked, deep: bool) -> Result<Disk, Failure> {
    let mut seen = Disk {
        label: disk.label.clone(),
        bytes: disk.probe.size().bytes().0,
        table: "no partition table".into(),
        has_table: true,
        notices: Vec::new(),
        found: Vec::new(),
        members: 0,
        may_be_cut: false,
        may_have_more: false,
    };
    match disk.probe.partitions() {
        Ok(table) => {
            seen.table = format!("{}: {}", table.scheme, table.summary());
            seen.notices = table.notices;
            for partition in table.partitions.iter().filter(|partition| !partition.is_extended) {
                let mut part = OsString::from(name);
                part.push(format!("#{}", partition.number));
                // A partition that extends beyond the end of an image is examined up to the end.
                let end = partition.start.saturating_add(partition.len);
                let bytes = partition.start..end.min(seen.bytes);
                if bytes.start >= bytes.end {
                    seen.notices.push(format!(
                        "partition {}: begins at byte {}, expected it before the end of the disk, {}; \
                         if the image was cut, copy the rest too",
                        partition.number, bytes.start, seen.bytes
                    ));
                } else if end <= seen.bytes {
                    seen.look(disk, part.into(), bytes, FoundKind::Partition)?;
                } else {
                    seen.look_at_cut(
                        disk,
                        name,
                        &format!("partition {}", partition.number),
                        bytes.start..end,
                    )?;
                }
            }
        }
        Err(error) => {
            seen.has_table = false;
            if !matches!(error, TableError::Nothing) {
                seen.notices.push(error.to_string());
            }
        }
    }
    seen.look(disk, name.to_owned(), 0..seen.bytes, FoundKind::WholeDisk)?;
    for misplaced in odd_places(disk, deep) {
        seen.place(disk, name, &misplaced)?;
    }
    seen.members = seen.found.len();
    let is_whole = seen.found.iter().any(|found| found.kind == FoundKind::WholeDisk);
    seen.may_have_more =
        !seen.has_table && !is_whole && !deep && disk.probe.size().0 > 2 * NEAR_SECTORS;
    seen.may_be_cut =
        !seen.has_table && !disk.probe.is_device() && seen.members == 0 && seen.notices.is_empty();
    Ok(seen)
}

/// Whether there is or may be the superblock of a member, which cannot be used.
fn is_of_member(error: &MetadataError) -> bool {
    match error {
        MetadataError::Read { .. } => true,
        MetadataError::Superblock(error) => matches!(
            error,
            SuperblockError::Ambiguous { .. }
                | SuperblockError::Checksum { .. }
                | SuperblockError::Newer { .. }
                | SuperblockError::Truncated { .. }
        ),
        _ => false,
    }
}

impl Disk {
    /// Adds a part of the disk as a member, if the part has a superblock at a position that its
    /// version prescribes; or a notice, if the superblock is damaged or cannot be read.
    fn look(
        &mut self,
        disk: &Looked,
        name: PathBuf,
        bytes: std::ops::Range<u64>,
        kind: FoundKind,
    ) -> Result<(), Failure> {
        let start = bytes.start;
        let place = disk.probe.start() + bytes.start..disk.probe.start() + bytes.end;
        let looked = disk.part(&name, place);
        let superblock = match looked.metadata() {
            Ok(metadata) => metadata.superblock,
            Err(error) => {
                // The end of a disk with partitions may be that of its last partition.
                let is_whole = kind == FoundKind::WholeDisk && self.has_table;
                if !is_whole && is_of_member(&error) {
                    self.notices.push(format!("{}: not used: {error}", looked.label));
                }
                return Ok(());
            }
        };
        let super_sector = Bytes(start).sectors_floor() + superblock.super_offset();
        if self.found.iter().any(|found| found.super_sector == super_sector) {
            return Ok(());
        }
        let set_uuid = superblock.set_uuid();
        let disk = self.label.clone();
        self.found.push(Found { name, disk, looked, set_uuid, kind, super_sector });
        Ok(())
    }

    /// Adds a notice that an image without a superblock may have been cut off. The notice names one
    /// of the arrays `ends` with members larger than the image, and the size of its smallest
    /// member.
    pub(crate) fn tell_cut(&mut self, ends: &[End]) {
        if !self.may_be_cut {
            return;
        }
        let told = ends.iter().find(|end| end.bytes > self.bytes).map(|end| {
            format!(
                "no superblock: found its end at byte {}, expected it at byte {} or behind that if \
                 it is of array {}, the superblocks of which, version {}, lie at the end; if the \
                 image was cut, copy the rest too",
                self.bytes, end.bytes, end.array, end.version
            )
        });
        self.notices.push(told.unwrap_or_else(|| format!("no superblock: {CUT_HAS_NONE}")));
    }

    /// Searches the beginning of a part that extends beyond the end of the disk. The array's other
    /// members may hold the data that is missing.
    fn look_at_cut(
        &mut self,
        disk: &Looked,
        name: &Path,
        what: &str,
        bytes: std::ops::Range<u64>,
    ) -> Result<(), Failure> {
        let spec = MemberSpec::path(name);
        let mut part = OsString::from(spec.file().unwrap_or(name));
        part.push(format!("@{}", disk.probe.start() + bytes.start));
        let before = self.found.len();
        self.look(disk, part.into(), bytes.start..self.bytes, FoundKind::Cut)?;
        let left = match self.found.len() > before {
            true => "what is there is used",
            false => "no superblock is in what is there",
        };
        self.notices.push(format!(
            "{what}: cut off: found {} of its bytes {}..{}, expected all {}; {left}; if the image was \
             cut, copy the rest too",
            self.bytes - bytes.start,
            bytes.start,
            bytes.end,
            bytes.end - bytes.start
        ));
        Ok(())
    }

    /// Adds the member to which a superblock in an unusual place belongs, or a notice if it does
    /// not fit there.
    fn place(&mut self, disk: &Looked, name: &Path, found: &Misplaced) -> Result<(), Failure> {
        if self.found.iter().any(|known| known.super_sector == found.sector) {
            return Ok(());
        }
        let what = format!(
            "a superblock {} of array {} at sector {}",
            found.superblock.version(),
            found.superblock.set_uuid(),
            found.sector.0
        );
        let Some((start, len)) = extent(found) else {
            self.notices.push(format!("{what}, which does not say where its member begins"));
            return Ok(());
        };
        let (start, end) = (start.bytes().0, start.bytes().0.saturating_add(len.bytes().0));
        if end > self.bytes {
            return self.look_at_cut(disk, name, &what, start..end);
        }
        // A part of a part is named as a part of the whole.
        let spec = MemberSpec::path(name);
        let mut part = OsString::from(spec.file().unwrap_or(name));
        part.push(format!("@{}+{}", disk.probe.start() + start, end - start));
        let before = self.found.len();
        self.look(disk, part.into(), start..end, FoundKind::OddPlace)?;
        if self.found.len() == before {
            self.notices.push(format!("{what}, which does not fit what is around it"));
        }
        Ok(())
    }

    /// Label of the disk if it may have members in areas that were not searched; otherwise `None`.
    pub(crate) fn unsearched(&self) -> Option<&str> {
        self.may_have_more.then_some(self.label.as_str())
    }

    pub(crate) fn to_json(&self) -> Value {
        json!({
            "disk": self.label, "size_bytes": self.bytes, "table": self.table,
            "members": self.members, "notices": self.notices,
        })
    }

    pub(crate) fn print(&self, out: &mut dyn Write) -> Result<(), Failure> {
        let (bytes, members) = (size::human(Bytes(self.bytes)), self.members);
        let plural = if members == 1 { "" } else { "s" };
        writeln!(out, "{}: {bytes}, {}; {members} member{plural}", self.label, self.table)?;
        for notice in &self.notices {
            writeln!(out, "  note: {notice}")?;
        }
        Ok(())
    }
}

/// First sector and length of the member to which a misplaced superblock belongs. The length is the
/// least that the data and the superblock take. `None` if the superblock does not say where the
/// member begins or how long it is.
fn extent(found: &Misplaced) -> Option<(Sectors, Sectors)> {
    let start = found.member_start?;
    let superblock = found.superblock.as_v1()?;
    let data_end = superblock.data_offset.0.checked_add(superblock.data_size.0)?;
    let super_end = match found.superblock.version() {
        // The superblock is the last thing on the member.
        Version::V1_0 => superblock.super_offset.0.checked_add(V1_0_BEHIND.0)?,
        _ => superblock.super_offset.0.checked_add(8)?,
    };
    Some((start, Sectors(data_end.max(super_end))))
}

/// Superblocks near the ends of a disk, or anywhere on it if `deep`.
fn odd_places(disk: &Looked, deep: bool) -> Vec<Misplaced> {
    let size = disk.probe.size().0;
    let near = if deep || size <= 2 * NEAR_SECTORS { size } else { NEAR_SECTORS };
    let ranges = [0..near, size.saturating_sub(NEAR_SECTORS).max(near)..size];
    let sectors = ranges.iter().map(|range| range.end - range.start).sum();
    let bar = progress("rescue", Sectors(sectors).bytes().0);
    let mut found = Vec::new();
    for (piece, superblocks) in ranges.into_iter().flat_map(|range| disk.superblocks_within(range))
    {
        let (first, end) = (Sectors(piece.start).bytes().0, Sectors(piece.end).bytes().0);
        match superblocks {
            Ok(superblocks) => found.extend(superblocks),
            Err(error) => {
                complain(&format!("{}: bytes {first}..{end}: {error}; left out", disk.label));
            }
        }
        bar.inc(end - first);
    }
    bar.finish_and_clear();
    found.retain(|misplaced: &Misplaced| has_array(&misplaced.superblock));
    found
}

/// Whether the superblock belongs to an array. One with only zeros after the magic number does not.
fn has_array(superblock: &Superblock) -> bool {
    superblock.set_uuid().0 != [0; 16]
}

/// Least distance from the superblock of a 1.0 member to the end of the member.
const V1_0_BEHIND: Sectors = Sectors(16);

/// Distance from either end of the disk that is searched, 8 MiB: partitioning programs leave less
/// before the first partition and after the last.
const NEAR_SECTORS: u64 = (8 << 20) / 512;
