//! Operations of a dbench client: those of the SMB protocol, as a file server sees them.
//!
//! Each operation becomes a few system calls. Paths are numbers: a table of the load has their
//! names.
//!
//! Source   experiments.md §1.6

use std::collections::BTreeMap;

use weft_units::Span;

/// A path of a load, by its place in [`Names`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Path(pub u32);

/// An open file, as a load calls it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Handle(pub i64);

/// Effect of an `NTCreateX` that succeeds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Open {
    /// Makes the file if there is none.
    Create,
    /// Makes a directory.
    Directory,
    /// Opens what is there.
    Existing,
    /// Opens it, or makes it, and drops what is in it.
    Truncate,
}

/// An operation. What is said to fail has no effect.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Op {
    /// `Close`.
    Close(Handle),
    /// `Deltree`: everything below a path, and itself.
    Deltree(Path),
    /// `Flush`: an fsync.
    Flush(Handle),
    /// `Mkdir`.
    Mkdir(Path),
    /// `NTCreateX`; `None` finds nothing.
    Open(Path, Option<(Handle, Open)>),
    /// An operation that reads names or attributes only, or that failed.
    Other(OperationKind),
    /// `ReadX`.
    Read {
        /// File that is written.
        handle: Handle,
        /// Offset in bytes.
        offset: u64,
        /// Length in bytes.
        len: u32,
    },
    /// `Rename`: from, to.
    Rename(Path, Path),
    /// `SET_FILE_INFORMATION`: sets times.
    SetFile(Handle),
    /// `Unlink`.
    Unlink(Path),
    /// `WriteX`.
    Write {
        /// To which file.
        handle: Handle,
        /// To where.
        offset: u64,
        /// Length in bytes.
        len: u32,
    },
}

/// What a table of latencies has a row for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[allow(missing_docs, reason = "they are the names of the operations")]
pub enum OperationKind {
    Close,
    Deltree,
    FindFirst,
    Flush,
    LockX,
    Mkdir,
    NtCreateX,
    QueryFile,
    QueryFs,
    QueryPath,
    ReadX,
    Rename,
    SetFile,
    Unlink,
    UnlockX,
    WriteX,
}

impl OperationKind {
    /// All of them, in order.
    pub const ALL: [Self; 16] = [
        Self::Close,
        Self::Deltree,
        Self::FindFirst,
        Self::Flush,
        Self::LockX,
        Self::Mkdir,
        Self::NtCreateX,
        Self::QueryFile,
        Self::QueryFs,
        Self::QueryPath,
        Self::ReadX,
        Self::Rename,
        Self::SetFile,
        Self::Unlink,
        Self::UnlockX,
        Self::WriteX,
    ];

    /// As a load file and dbench's table call it.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Close => "Close",
            Self::Deltree => "Deltree",
            Self::FindFirst => "FIND_FIRST",
            Self::Flush => "Flush",
            Self::LockX => "LockX",
            Self::Mkdir => "Mkdir",
            Self::NtCreateX => "NTCreateX",
            Self::QueryFile => "QUERY_FILE_INFORMATION",
            Self::QueryFs => "QUERY_FS_INFORMATION",
            Self::QueryPath => "QUERY_PATH_INFORMATION",
            Self::ReadX => "ReadX",
            Self::Rename => "Rename",
            Self::SetFile => "SET_FILE_INFORMATION",
            Self::Unlink => "Unlink",
            Self::UnlockX => "UnlockX",
            Self::WriteX => "WriteX",
        }
    }

    /// CPU time of one that waits for no device, as a published table of the same load has its
    /// mean: ten clients on ext4, an arm64 server of 2020. Of two columns the smaller, since some
    /// waits of others' commits are in it; none of `Flush`, which is all wait.
    ///
    /// Source   patch 004's mail, the table of dbench with stripes of 4 and 64 KiB
    pub(super) fn measured(self) -> Span {
        let micros = match self {
            Self::Flush => 0,
            Self::Close | Self::QueryFile | Self::UnlockX => 1,
            Self::LockX => 3,
            Self::Mkdir | Self::ReadX => 4,
            Self::QueryPath => 7,
            Self::QueryFs => 12,
            Self::FindFirst | Self::WriteX => 19,
            Self::NtCreateX => 21,
            Self::SetFile => 29,
            Self::Rename => 51,
            Self::Unlink => 70,
            Self::Deltree => 1793,
        };
        Span(micros * 1000)
    }

    /// The system calls that it is made of, about.
    pub(super) fn calls(self) -> u64 {
        match self {
            Self::NtCreateX | Self::QueryPath => 3,
            Self::FindFirst | Self::Deltree => 4,
            Self::Rename | Self::Unlink => 2,
            _ => 1,
        }
    }
}

impl Op {
    /// The row of a table that it belongs to.
    #[must_use]
    pub fn kind(&self) -> OperationKind {
        match self {
            Self::Close(_) => OperationKind::Close,
            Self::Deltree(_) => OperationKind::Deltree,
            Self::Flush(_) => OperationKind::Flush,
            Self::Mkdir(_) => OperationKind::Mkdir,
            Self::Open(..) => OperationKind::NtCreateX,
            Self::Other(kind) => *kind,
            Self::Read { .. } => OperationKind::ReadX,
            Self::Rename(..) => OperationKind::Rename,
            Self::SetFile(_) => OperationKind::SetFile,
            Self::Unlink(_) => OperationKind::Unlink,
            Self::Write { .. } => OperationKind::WriteX,
        }
    }

    /// What it counts for in the throughput, bytes.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        match self {
            Self::Read { len, .. } | Self::Write { len, .. } => u64::from(*len),
            _ => 0,
        }
    }
}

/// The names of a load's paths. Case does not matter, as dbench looks for a name in any case.
#[derive(Clone, Debug, Default)]
pub struct Names {
    /// By path: its name, and the directory that it is in.
    paths: Vec<(String, Option<Path>)>,
    known: BTreeMap<String, Path>,
}

impl Names {
    /// A name's path; parts are separated by `\`.
    pub fn path(&mut self, name: &str) -> Path {
        let name = name.trim_end_matches('\\').to_ascii_lowercase();
        if let Some(path) = self.known.get(&name) {
            return *path;
        }
        let directory = name.rfind('\\').filter(|at| *at > 0).map(|at| self.path(&name[..at]));
        let path = Path(u32::try_from(self.paths.len()).expect("a load has few paths"));
        self.paths.push((name.clone(), directory));
        self.known.insert(name, path);
        path
    }

    /// Number of operations.
    #[must_use]
    pub fn count(&self) -> usize {
        self.paths.len()
    }

    /// The directory that it is in; the top is in none.
    #[must_use]
    pub fn directory(&self, path: Path) -> Option<Path> {
        self.paths[path.0 as usize].1
    }

    /// Whether a path is `top` or below it.
    #[must_use]
    pub fn is_below(&self, path: Path, top: Path) -> bool {
        std::iter::successors(Some(path), |path| self.directory(*path)).any(|path| path == top)
    }
}
