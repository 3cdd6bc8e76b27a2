//! Evidence for a geometry: structures of file systems and LVM that must lie at known bytes of the
//! array.
//!
//! Each kind of file system has a module that says, from bytes alone, which structures to expect
//! and whether bytes are such a structure. A check that succeeds may give further checks, so that
//! the evidence begins with one superblock and spreads over the array.

use super::{btrfs, ext4, xfs};

/// Check: a structure that is expected at a place, with its weight in the score.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Check<W> {
    /// Byte offset of the structure from the start of the file system; for a label, from the start
    /// of the physical volume.
    pub(super) at: u64,
    pub(super) len: usize,
    pub(super) weight: u64,
    pub(super) what: W,
}

impl<W> Check<W> {
    fn map<V>(self, what: impl Fn(W) -> V) -> Check<V> {
        Check { at: self.at, len: self.len, weight: self.weight, what: what(self.what) }
    }
}

/// Structure that a check expects at its place, by the kind of the file system.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Landmark {
    Btrfs(btrfs::Landmark),
    Ext(ext4::Landmark),
    /// Label of a physical volume of LVM.
    Label,
    Xfs(xfs::Landmark),
}

/// A file system, known by one of its superblocks.
#[derive(Clone, Debug)]
pub(super) enum Inside {
    Btrfs(Box<btrfs::Super>),
    Ext(ext4::Super),
    Xfs(xfs::Super),
}

impl Inside {
    /// Parses a superblock, primary or backup, of any known file system; `None` if the bytes are
    /// not a superblock.
    pub(super) fn of(bytes: &[u8]) -> Option<Self> {
        ext4::Super::of(bytes)
            .map(Self::Ext)
            .or_else(|| xfs::Super::of(bytes).map(Self::Xfs))
            .or_else(|| btrfs::Super::of(bytes).map(|it| Self::Btrfs(Box::new(it))))
    }

    /// Name of the kind of file system for messages, with its article.
    pub(super) fn name(&self) -> &'static str {
        match self {
            Self::Btrfs(_) => "a btrfs",
            Self::Ext(_) => "an ext2, ext3 or ext4",
            Self::Xfs(_) => "an XFS",
        }
    }

    pub(super) fn uuid(&self) -> [u8; 16] {
        match self {
            Self::Btrfs(it) => it.points.uuid(),
            Self::Ext(it) => it.uuid,
            Self::Xfs(it) => it.uuid,
        }
    }

    /// Byte offset in the file system of the superblock that was found.
    pub(super) fn place(&self) -> u64 {
        match self {
            Self::Btrfs(it) => it.points.place(),
            Self::Ext(it) => it.place(),
            Self::Xfs(it) => it.place(),
        }
    }

    /// Whether the superblock that was found is the primary one and not a backup.
    pub(super) fn is_first(&self) -> bool {
        SUPER_PLACES.contains(&self.place())
    }

    /// Size of the file system in bytes.
    pub(super) fn bytes(&self) -> u64 {
        match self {
            Self::Btrfs(it) => it.points.size(),
            Self::Ext(it) => it.bytes(),
            Self::Xfs(it) => it.bytes(),
        }
    }

    /// Checks that follow from the superblock alone.
    pub(super) fn checks(&mut self) -> Vec<Check<Landmark>> {
        match self {
            Self::Btrfs(it) => all(it.checks(), Landmark::Btrfs),
            Self::Ext(it) => all(it.checks(), Landmark::Ext),
            Self::Xfs(it) => all(it.checks(), Landmark::Xfs),
        }
    }

    /// Whether `bytes`, the first part of a structure, may be the beginning of `what`. Only btrfs
    /// can exclude a structure by its beginning; for the other file systems the answer is always
    /// true.
    pub(super) fn begins(&self, what: &Landmark, bytes: &[u8]) -> bool {
        match (self, what) {
            (Self::Btrfs(it), Landmark::Btrfs(what)) => it.begins(what, bytes),
            _ => true,
        }
    }

    /// Whether `bytes` are the structure that the check expects.
    pub(super) fn holds(&self, what: &Landmark, bytes: &[u8]) -> bool {
        match (self, what) {
            (Self::Btrfs(it), Landmark::Btrfs(what)) => it.holds(what, bytes),
            (Self::Ext(it), Landmark::Ext(what)) => it.holds(what, bytes),
            (Self::Xfs(it), Landmark::Xfs(what)) => it.holds(what, bytes),
            (_, Landmark::Label) => is_label(bytes),
            _ => false,
        }
    }

    /// Checks that follow from a structure that was found: `bytes` have passed the check of `what`.
    pub(super) fn further(&mut self, what: &Landmark, bytes: &[u8]) -> Vec<Check<Landmark>> {
        match (self, what) {
            (Self::Btrfs(it), Landmark::Btrfs(what)) => {
                all(it.further(what, bytes), Landmark::Btrfs)
            }
            (Self::Ext(it), Landmark::Ext(what)) => all(it.further(what, bytes), Landmark::Ext),
            (Self::Xfs(it), Landmark::Xfs(what)) => all(it.further(what, bytes), Landmark::Xfs),
            _ => Vec::new(),
        }
    }
}

fn all<W>(checks: Vec<Check<W>>, what: impl Fn(W) -> Landmark) -> Vec<Check<Landmark>> {
    checks.into_iter().map(|check| check.map(&what)).collect()
}

/// Whether a sector is the label of a physical volume of LVM.
pub(super) fn is_label(sector: &[u8]) -> bool {
    sector.starts_with(b"LABELONE") && sector.get(24..32) == Some(b"LVM2 001")
}

/// Byte of the label in a physical volume, where LVM's tools write it.
pub(super) const LABEL_AT: u64 = 512;
/// Length of the longest superblock.
pub(super) const SUPER_BYTES: usize = 4096;
/// Byte offsets in a file system at which its primary superblock may begin: ext4's, XFS's, btrfs's.
pub(super) const SUPER_PLACES: [u64; 3] = [1024, 0, 64 << 10];
/// Check of the label of a physical volume.
pub(super) const LABEL: Check<Landmark> =
    Check { at: LABEL_AT, len: 512, weight: 4, what: Landmark::Label };
