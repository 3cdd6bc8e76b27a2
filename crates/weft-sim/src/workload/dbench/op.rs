//! Operations of a dbench client: those of the SMB protocol, as a file server receives them.
//!
//! Each operation becomes a few system calls. Paths are numbers; the load has a table of their
//! names.
//!
//! Source   experiments.md §1.6

use std::collections::BTreeMap;

use weft_units::Span;

/// Number of a path in the [`Names`] of a load.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Path(pub u32);

/// Number under which the load refers to an open file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Handle(pub i64);

/// Effect of an `NTCreateX` that has succeeded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Open {
    /// Opens the file, and creates it if it does not exist.
    Create,
    /// Creates and opens a directory.
    Directory,
    /// Opens an existing file.
    Existing,
    /// Opens the file and truncates it, or creates it if it does not exist.
    Truncate,
}

/// An operation of a load. An operation that failed when the load was recorded has no effect,
/// except for `Deltree`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Op {
    /// `Close`: closes the file that the handle refers to.
    Close(Handle),
    /// `Deltree`: removes a path and everything below it.
    Deltree(Path),
    /// `Flush`: fsyncs an open file.
    Flush(Handle),
    /// `Mkdir`: makes a directory.
    Mkdir(Path),
    /// `NTCreateX`: opens a path as a handle; `None` if it failed when the load was recorded.
    Open(Path, Option<(Handle, Open)>),
    /// An operation that only reads names or attributes, or that failed.
    Other(OperationKind),
    /// `ReadX`: reads from an open file.
    Read {
        /// Handle of the file.
        handle: Handle,
        /// Offset in bytes.
        offset: u64,
        /// Length in bytes.
        len: u32,
    },
    /// `Rename`: renames the first path to the second.
    Rename(Path, Path),
    /// `SET_FILE_INFORMATION`: sets the times of an open file.
    SetFile(Handle),
    /// `Unlink`: removes the name of a file.
    Unlink(Path),
    /// `WriteX`: writes to an open file.
    Write {
        /// Handle of the file.
        handle: Handle,
        /// Offset in bytes.
        offset: u64,
        /// Length in bytes.
        len: u32,
    },
}

/// Kind of an operation: one row in the table of latencies.
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
    /// All kinds, in the order of their declaration.
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

    /// Name of the operation in load files and in dbench's table.
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

    /// CPU time of an operation that waits for no device: its mean latency in a published table of
    /// the same load, with ten clients on ext4 on an arm64 server of 2020. The smaller of the
    /// table's two columns is used, because the latencies include waits for the commits of other
    /// clients. `Flush` has none, because all of it is waiting.
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

    /// Approximate number of system calls of the operation.
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
    /// Kind of the operation, and so its row in the table.
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

    /// Number of bytes that count for the throughput: the length of a read or write, 0 for others.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        match self {
            Self::Read { len, .. } | Self::Write { len, .. } => u64::from(*len),
            _ => 0,
        }
    }
}

/// Names of the paths of a load. Case is ignored, because dbench finds names in any case.
#[derive(Clone, Debug, Default)]
pub struct Names {
    /// Name of each path, and the path of its directory.
    paths: Vec<(String, Option<Path>)>,
    known: BTreeMap<String, Path>,
}

impl Names {
    /// Path with this name, in which `\` separates the components. A new path is added, with its
    /// directories.
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

    /// Number of paths.
    #[must_use]
    pub fn count(&self) -> usize {
        self.paths.len()
    }

    /// Directory of a path; `None` for a path at the top.
    #[must_use]
    pub fn directory(&self, path: Path) -> Option<Path> {
        self.paths[path.0 as usize].1
    }

    /// Whether a path is `top` itself or below it.
    #[must_use]
    pub fn is_below(&self, path: Path, top: Path) -> bool {
        std::iter::successors(Some(path), |path| self.directory(*path)).any(|path| path == top)
    }
}
