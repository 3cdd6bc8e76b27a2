//! Engines of fio: the meaning of each on a simulated volume, or the reason why it is refused.
//!
//! weft's own engine replaces all of them. The name of an engine only determines whether requests
//! of a job overlap, and whether they go through the page cache in spite of `direct`.
//!
//! Source   fio HOWTO, I/O engine; fio(1), 3.33 and 3.42

use Engine::{Overlapping, Synchronous};

/// Concurrency of a job's requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Engine {
    /// Up to `iodepth` requests at once.
    Overlapping,
    /// One request at a time, whatever `iodepth` says.
    Synchronous,
}

/// Engine of fio, with its meaning on a simulated volume.
#[derive(Debug)]
pub struct EngineRow {
    /// Name of the engine in fio.
    pub name: &'static str,
    /// Concurrency of requests under the engine.
    pub engine: Engine,
    /// Whether requests bypass the page cache; `None` if the options `direct` and `buffered`
    /// decide.
    pub direct: Option<bool>,
}

/// Makes a row of [`ENGINES`].
const fn row(name: &'static str, engine: Engine, direct: Option<bool>) -> EngineRow {
    EngineRow { name, engine, direct }
}

/// Engines that read and write blocks, in alphabetical order.
pub const ENGINES: &[EngineRow] = &[
    row("io_uring", Overlapping, None),
    row("io_uring_cmd", Overlapping, Some(true)),
    row("libaio", Overlapping, None),
    row("libblkio", Overlapping, None),
    row("libiscsi", Overlapping, Some(true)),
    // The mapped memory is the page cache, even if the file is opened with O_DIRECT.
    row("mmap", Synchronous, Some(false)),
    row("nbd", Overlapping, Some(true)),
    row("posixaio", Overlapping, None),
    row("psync", Synchronous, None),
    row("pvsync", Synchronous, None),
    row("pvsync2", Synchronous, None),
    row("rbd", Overlapping, Some(true)),
    row("sg", Overlapping, Some(true)),
    row("solarisaio", Overlapping, None),
    row("splice", Synchronous, None),
    row("sync", Synchronous, None),
    row("windowsaio", Overlapping, None),
    row("xnvme", Overlapping, None),
];

/// Engines that have no meaning on a simulated volume, by reason.
pub const ENGINES_REFUSED: &[(&str, &[&str])] = &[
    ("it has no I/O: it moves no bytes", &["cpp_null", "null"]),
    ("it has no I/O: it keeps a CPU busy", &["cpuio"]),
    ("it has no I/O: it runs a program", &["exec"]),
    ("no I/O of blocks, but memory of a process", &["dev-dax", "libpmem", "page_fault", "pmemblk"]),
    ("no I/O of blocks, but memory of a GPU", &["libcufile", "libhipfile"]),
    (
        "no I/O of blocks, but messages on a network",
        &[
            "librpma_apm_client",
            "librpma_apm_server",
            "librpma_gpspm_client",
            "librpma_gpspm_server",
            "net",
            "netsplice",
            "rdma",
        ],
    ),
    ("no I/O of blocks, but objects on a server", &["http", "rados"]),
    (
        "no I/O of blocks, but files on a server",
        &["dfs", "gfapi", "gfapi_async", "ime_aio", "ime_psync", "ime_psyncv", "libhdfs", "nfs"],
    ),
    (
        "no I/O of blocks, but changes of files that a file system makes",
        &[
            "dircreate",
            "dirdelete",
            "dirstat",
            "e4defrag",
            "falloc",
            "filecreate",
            "filedelete",
            "filestat",
            "ftruncate",
        ],
    ),
    ("raw flash, which has to be erased: no array is made of it", &["mtd"]),
    ("a zoned device: no array is made of it", &["libzbc"]),
    ("it joins requests of its queue: name psync, and bs= of what is joined", &["vsync"]),
    ("an engine that fio loads: what it does is not known", &["external"]),
];

/// Finds the row of an engine of fio. The error is the reason why the engine has no meaning on a
/// simulated volume, or `None` for an engine that fio does not have.
pub(super) fn find(name: &str) -> Result<&'static EngineRow, Option<&'static str>> {
    // `external:PATH` names a library.
    let name = name.split_once(':').map_or(name, |(name, _)| name);
    ENGINES.iter().find(|row| row.name == name).ok_or_else(|| {
        let refused = ENGINES_REFUSED.iter().find(|(_, names)| names.contains(&name));
        refused.map(|(reason, _)| *reason)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_engine_of_fio_has_one_meaning_or_one_reason() {
        assert!(ENGINES.is_sorted_by_key(|row| row.name));
        let refused: Vec<&str> =
            ENGINES_REFUSED.iter().flat_map(|(_, names)| names.iter().copied()).collect();
        assert!(refused.iter().all(|name| ENGINES.iter().all(|row| row.name != *name)));
        let mut unique = refused.clone();
        unique.sort_unstable();
        unique.dedup();
        assert_eq!(unique.len(), refused.len());
        assert!(ENGINES_REFUSED.iter().all(|(_, names)| names.is_sorted()));
    }

    #[test]
    fn which_engines_overlap_requests() {
        let of = |name| find(name).map(|row| (row.engine, row.direct));
        assert_eq!(of("libaio"), Ok((Overlapping, None)));
        assert_eq!(of("posixaio"), Ok((Overlapping, None)));
        assert_eq!(of("pvsync2"), Ok((Synchronous, None)));
        assert_eq!(of("mmap"), Ok((Synchronous, Some(false))));
        assert_eq!(of("io_uring_cmd"), Ok((Overlapping, Some(true))));
        assert!(of("external:/lib/e.so").unwrap_err().unwrap().contains("fio loads"));
        assert!(of("net").unwrap_err().unwrap().contains("network"));
        assert_eq!(of("libaoi"), Err(None));
    }
}
