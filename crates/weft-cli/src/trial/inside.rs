//! What lies in an array, as evidence: which bytes have to be what, at which byte of it.
//!
//! Each kind of file system has a module that decides this from bytes alone. A check that succeeds
//! may give further ones, so that evidence begins with one superblock and spreads over the array.

use super::{btrfs, ext4, xfs};

/// Something that bytes have to be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Check<W> {
    /// First byte, from the start of the file system on.
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

/// Content that the bytes of a check must have, by the kind of the file system.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum What {
    Btrfs(btrfs::What),
    Ext(ext4::What),
    /// Label of a physical volume of LVM.
    Label,
    Xfs(xfs::What),
}

/// A file system of which a superblock was found.
#[derive(Clone, Debug)]
pub(super) enum Inside {
    Btrfs(Box<btrfs::Super>),
    Ext(ext4::Super),
    Xfs(xfs::Super),
}

impl Inside {
    /// The file system whose superblock these bytes are, or a copy of it.
    pub(super) fn of(bytes: &[u8]) -> Option<Self> {
        ext4::Super::of(bytes)
            .map(Self::Ext)
            .or_else(|| xfs::Super::of(bytes).map(Self::Xfs))
            .or_else(|| btrfs::Super::of(bytes).map(|it| Self::Btrfs(Box::new(it))))
    }

    /// Kind for people, with its article.
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

    /// Byte of the superblock in the file system.
    pub(super) fn place(&self) -> u64 {
        match self {
            Self::Btrfs(it) => it.points.place(),
            Self::Ext(it) => it.place(),
            Self::Xfs(it) => it.place(),
        }
    }

    /// Whether it was found by its first superblock, not by a copy.
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

    /// Checks that the superblock gives.
    pub(super) fn checks(&mut self) -> Vec<Check<What>> {
        match self {
            Self::Btrfs(it) => all(it.checks(), What::Btrfs),
            Self::Ext(it) => all(it.checks(), What::Ext),
            Self::Xfs(it) => all(it.checks(), What::Xfs),
        }
    }

    /// Whether the first bytes of those of a check do not exclude it.
    pub(super) fn begins(&self, what: &What, bytes: &[u8]) -> bool {
        match (self, what) {
            (Self::Btrfs(it), What::Btrfs(what)) => it.begins(what, bytes),
            _ => true,
        }
    }

    /// Whether the bytes are what the check says.
    pub(super) fn holds(&self, what: &What, bytes: &[u8]) -> bool {
        match (self, what) {
            (Self::Btrfs(it), What::Btrfs(what)) => it.holds(what, bytes),
            (Self::Ext(it), What::Ext(what)) => it.holds(what, bytes),
            (Self::Xfs(it), What::Xfs(what)) => it.holds(what, bytes),
            (_, What::Label) => is_label(bytes),
            _ => false,
        }
    }

    /// Checks that bytes give which are what their own check says.
    pub(super) fn further(&mut self, what: &What, bytes: &[u8]) -> Vec<Check<What>> {
        match (self, what) {
            (Self::Btrfs(it), What::Btrfs(what)) => all(it.further(what, bytes), What::Btrfs),
            (Self::Ext(it), What::Ext(what)) => all(it.further(what, bytes), What::Ext),
            (Self::Xfs(it), What::Xfs(what)) => all(it.further(what, bytes), What::Xfs),
            _ => Vec::new(),
        }
    }
}

fn all<W>(checks: Vec<Check<W>>, what: impl Fn(W) -> What) -> Vec<Check<What>> {
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
/// Bytes of a file system at which its first superblock may begin.
pub(super) const SUPER_PLACES: [u64; 3] = [1024, 0, 64 << 10];
/// Check of the label.
pub(super) const LABEL: Check<What> =
    Check { at: LABEL_AT, len: 512, weight: 4, what: What::Label };
