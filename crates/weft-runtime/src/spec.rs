//! Names of members: a path, a part of a file, a partition or memory, and the bytes that each name
//! stands for.
//!
//! | name | means |
//! |---|---|
//! | `PATH` | all of a file or block device |
//! | `PATH@OFFSET[+LENGTH]` | LENGTH bytes from OFFSET on, or all up to the end |
//! | `PATH#N` | partition N, as the kernel numbers it |
//! | `ram:SIZE` | fresh memory |
//!
//! A path that exists exactly as written means that file, whatever characters it has. A name can
//! thus be printed, stored and read again: the same text means the same bytes everywhere in weft.

use std::ffi::OsStr;
use std::io;
use std::ops::Range;
use std::os::fd::AsFd;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use weft_units::SECTOR_BYTES;

use crate::device_error::DeviceError;
use crate::timed::{ReadTimeout, TimedFile};
use weft_ondisk::partition::{self, TableError};

/// Name of a member, parsed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MemberSpec {
    /// Name as it was given, which labels the member in messages.
    pub label: String,
    pub(crate) place: MemberBacking,
    /// Map of ddrescue that was named for the file or device; `None` if none was named.
    map: Option<PathBuf>,
    /// Time limit for reads of the file or device; `None` for no limit.
    timeout: Option<Arc<ReadTimeout>>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum MemberBacking {
    File { path: PathBuf, window: Window },
    Ram { bytes: u64 },
}

/// Part of a file, before it is resolved to a byte range.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Window {
    Area { offset: u64, len: Option<u64> },
    Partition(u32),
    Whole,
}

/// Byte range of a member in its file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Located {
    /// Byte range of the member, whole sectors.
    pub bytes: Range<u64>,
    /// Sentences for people about oddities found while locating the member.
    pub notices: Vec<String>,
}

impl MemberSpec {
    /// Parses the name of a member. Sizes take K, M, G, T (binary) or `s` for sectors; without a
    /// unit they are bytes.
    ///
    /// # Errors
    /// [`DeviceError::Spec`] for `ram:` with an invalid size.
    pub fn parse(text: &str) -> Result<Self, DeviceError> {
        if let Some(size) = text.strip_prefix("ram:") {
            let found = || "a size that is none".to_owned();
            let bytes = parse_size(size)
                .ok_or_else(|| DeviceError::Spec { label: text.to_owned(), found: found() })?;
            let place = MemberBacking::Ram { bytes };
            return Ok(Self { label: text.to_owned(), place, map: None, timeout: None });
        }
        Ok(Self::path(Path::new(text)))
    }

    /// Parses the name of a file or device, or of a part of one. The name need not be UTF-8, and
    /// `ram:SIZE` has no special meaning.
    #[must_use]
    pub fn path(name: &Path) -> Self {
        let label = name.display().to_string();
        let (path, window) = match split(name) {
            Some((path, window)) if !name.exists() => (path, window),
            _ => (name, Window::Whole),
        };
        let place = MemberBacking::File { path: path.to_owned(), window };
        Self { label, place, map: None, timeout: None }
    }

    /// Sets the map of ddrescue for the file or device, which is then used instead of a map beside
    /// the file.
    #[must_use]
    pub fn with_map(self, map: &Path) -> Self {
        Self { map: Some(map.to_owned()), ..self }
    }

    /// Sets the time limit for reads of the file or device.
    #[must_use]
    pub fn with_read_timeout(self, timeout: Arc<ReadTimeout>) -> Self {
        Self { timeout: Some(timeout), ..self }
    }

    /// Path of the file or device that the member is in; `None` for memory.
    #[must_use]
    pub fn file(&self) -> Option<&Path> {
        match &self.place {
            MemberBacking::File { path, .. } => Some(path),
            MemberBacking::Ram { .. } => None,
        }
    }

    /// Map of ddrescue that was named for the file or device; `None` if none was named.
    #[must_use]
    pub fn map(&self) -> Option<&Path> {
        self.map.as_deref()
    }

    /// Whether the member is a part of a file or device.
    #[must_use]
    pub fn is_part(&self) -> bool {
        matches!(&self.place, MemberBacking::File { window, .. } if *window != Window::Whole)
    }

    /// Number of the partition; `None` if the name has none.
    pub(crate) fn partition_number(&self) -> Option<u32> {
        match &self.place {
            MemberBacking::File { window: Window::Partition(number), .. } => Some(*number),
            _ => None,
        }
    }

    /// Spec of all of the file or device at `path`, with the label and time limit of this spec, and
    /// without a map.
    pub(crate) fn of_whole(&self, path: &Path) -> Self {
        let place = MemberBacking::File { path: path.to_owned(), window: Window::Whole };
        Self { place, map: None, ..self.clone() }
    }

    /// Handle that reads the opened file or device within the spec's time limit; `None` if there is
    /// no limit.
    pub(crate) fn timed(&self, file: impl AsFd) -> io::Result<Option<Arc<TimedFile>>> {
        let (Some(timeout), Some(path)) = (&self.timeout, self.file()) else { return Ok(None) };
        let name = path.display().to_string();
        TimedFile::new(timeout, file, &name).map(Arc::new).map(Some)
    }

    /// Determines the byte range of the member in its file. `end` is the size of the file in bytes,
    /// and `block` the logical block size of a device. Reads the partition table with `read` if a
    /// partition is named.
    ///
    /// # Errors
    /// Fails when the bytes are not within the file or are not whole sectors, or when there is no
    /// such partition.
    pub fn locate(
        &self,
        read: &mut dyn FnMut(u64, &mut [u8]) -> io::Result<()>,
        end: u64,
        block: Option<u32>,
    ) -> Result<Located, DeviceError> {
        let (offset, len, notices) = match &self.place {
            MemberBacking::Ram { .. } | MemberBacking::File { window: Window::Whole, .. } => {
                (0, None, Vec::new())
            }
            MemberBacking::File { window: Window::Area { offset, len }, .. } => {
                (*offset, *len, Vec::new())
            }
            MemberBacking::File { window: Window::Partition(number), .. } => {
                let (start, len, notices) = self.partition(read, end, block, *number)?;
                (start, Some(len), notices)
            }
        };
        let bytes = window_within(&self.label, end, offset, len)?;
        Ok(Located { bytes, notices })
    }

    fn partition(
        &self,
        mut read: &mut dyn FnMut(u64, &mut [u8]) -> io::Result<()>,
        end: u64,
        block: Option<u32>,
        number: u32,
    ) -> Result<(u64, u64, Vec<String>), DeviceError> {
        let label = || self.label.clone();
        let table = partition::read(&mut read, end, block).map_err(|error| match error {
            TableError::Io(source) => {
                DeviceError::Io { label: label(), what: "reading its partition table", source }
            }
            error => DeviceError::Partition { label: label(), why: error.to_string() },
        })?;
        let Some(found) = table.find(number) else {
            return Err(DeviceError::Partition {
                label: label(),
                why: format!(
                    "partition {number}: found none in the {}, expected one of {}",
                    table.scheme,
                    table.summary()
                ),
            });
        };
        if found.is_extended {
            return Err(DeviceError::Partition {
                label: label(),
                why: format!(
                    "partition {number}: found one that only holds others, expected one with data: {}",
                    table.summary()
                ),
            });
        }
        if found.start.checked_add(found.len).is_none_or(|last| last > end) {
            return Err(DeviceError::Partition {
                label: label(),
                why: format!(
                    "partition {found}: ends beyond the end of the disk, {end} bytes; if the image \
                     was cut, PATH@{} names what is left of it",
                    found.start
                ),
            });
        }
        Ok((found.start, found.len, table.notices))
    }
}

/// Splits a name into path and part, if it has the form of a part; `None` otherwise.
fn split(name: &Path) -> Option<(&Path, Window)> {
    let bytes = name.as_os_str().as_bytes();
    let at = bytes.iter().rposition(|byte| matches!(byte, b'#' | b'@'))?;
    let path = Path::new(OsStr::from_bytes(&bytes[..at]));
    let rest = std::str::from_utf8(&bytes[at + 1..]).ok()?;
    if path.as_os_str().is_empty() {
        return None;
    }
    let window = if bytes[at] == b'#' {
        let digits = !rest.is_empty() && rest.bytes().all(|byte| byte.is_ascii_digit());
        Window::Partition(rest.parse().ok().filter(|_| digits)?)
    } else {
        match rest.split_once('+') {
            Some((offset, len)) => {
                Window::Area { offset: parse_size(offset)?, len: Some(parse_size(len)?) }
            }
            None => Window::Area { offset: parse_size(rest)?, len: None },
        }
    };
    Some((path, window))
}

/// Parses a size: a number with K, M, G, T (binary), `s` for sectors, or no unit for bytes. Returns
/// bytes; `None` for any other text, or above the largest offset in a file.
#[must_use]
pub fn parse_size(text: &str) -> Option<u64> {
    let digits = text.trim_end_matches(|unit: char| !unit.is_ascii_digit());
    let unit = match &text[digits.len()..] {
        "" | "B" | "b" => 1,
        "s" => SECTOR_BYTES,
        "K" | "k" | "KiB" => 1 << 10,
        "M" | "m" | "MiB" => 1 << 20,
        "G" | "g" | "GiB" => 1 << 30,
        "T" | "t" | "TiB" => 1 << 40,
        _ => return None,
    };
    let bytes = digits.parse::<u64>().ok()?.checked_mul(unit)?;
    // Offsets in files are signed.
    (bytes <= i64::MAX.unsigned_abs()).then_some(bytes)
}

/// Byte range in a file of size `end`: `len` bytes from `offset` on, or all up to the end, in whole
/// sectors. `label` names the member in errors.
pub(crate) fn window_within(
    label: &str,
    end: u64,
    offset: u64,
    len: Option<u64>,
) -> Result<Range<u64>, DeviceError> {
    let size_error = |what, found, expected| {
        Err(DeviceError::Size { label: label.to_owned(), what, found, expected })
    };
    if end < SECTOR_BYTES {
        return size_error("size", end, format!("at least {SECTOR_BYTES}"));
    }
    for (what, bytes) in [("offset", offset), ("length", len.unwrap_or(0))] {
        if bytes % SECTOR_BYTES != 0 {
            return size_error(what, bytes, format!("a multiple of {SECTOR_BYTES}"));
        }
    }
    if offset >= end {
        return size_error("offset", offset, format!("less than the size, {end}"));
    }
    let rest = end - offset;
    let len = len.unwrap_or(rest);
    if len > rest {
        return size_error("length", len, format!("at most what follows the offset, {rest}"));
    }
    if len < SECTOR_BYTES {
        return size_error("length", len, format!("at least {SECTOR_BYTES}"));
    }
    Ok(offset..offset + len / SECTOR_BYTES * SECTOR_BYTES)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_mean_what_they_look_like_unless_a_file_has_them() {
        let area = |offset, len| Window::Area { offset, len };
        for (name, path, window) in [
            ("/no/a.img", "/no/a.img", Window::Whole),
            ("/no/a.img#1", "/no/a.img", Window::Partition(1)),
            ("/no/a.img#15", "/no/a.img", Window::Partition(15)),
            ("/no/a#b#3", "/no/a#b", Window::Partition(3)),
            ("/no/a.img@1M", "/no/a.img", area(1 << 20, None)),
            ("/no/a.img@8s+2G", "/no/a.img", area(4096, Some(2 << 30))),
            ("/no/a.img@12+512", "/no/a.img", area(12, Some(512))),
            ("/no/user@host", "/no/user@host", Window::Whole),
            ("/no/x@", "/no/x@", Window::Whole),
            ("/no/C#", "/no/C#", Window::Whole),
            ("/no/a#+1", "/no/a#+1", Window::Whole),
            ("/no/a#99999999999", "/no/a#99999999999", Window::Whole),
            ("/no/a@b+c", "/no/a@b+c", Window::Whole),
            ("/no/a@99999999T", "/no/a@99999999T", Window::Whole),
            ("#1", "#1", Window::Whole),
        ] {
            let spec = MemberSpec::parse(name).unwrap();
            assert_eq!(spec.place, MemberBacking::File { path: path.into(), window }, "{name}");
            assert_eq!(spec.is_part(), window != Window::Whole);
        }
        let dir = tempfile::tempdir().unwrap();
        for name in ["a#1", "a@1M", "a"] {
            let path = dir.path().join(name);
            std::fs::write(&path, "").unwrap();
            assert!(!MemberSpec::path(&path).is_part(), "{name}");
        }
        let bytes = Path::new(OsStr::from_bytes(b"/no/\xff#2"));
        let file = Path::new(OsStr::from_bytes(b"/no/\xff"));
        assert_eq!(MemberSpec::path(bytes).file(), Some(file));
        assert!(MemberSpec::parse("ram:much").is_err());
    }

    #[test]
    fn sizes_are_binary() {
        let cases = [("8s", 4096), ("4K", 4096), ("1M", 1 << 20), ("12", 12), ("2T", 2 << 40)];
        for (text, bytes) in cases {
            assert_eq!(parse_size(text), Some(bytes), "{text}");
        }
        for text in ["", "K", "-1", "1X", "18446744073709551615K", "8388608T", "é"] {
            assert_eq!(parse_size(text), None, "{text}");
        }
    }

    #[test]
    fn windows_are_whole_sectors_within_the_file() {
        let window = |offset, len| window_within("a", 1 << 20, offset, len);
        assert_eq!(window(0, None).unwrap(), 0..1 << 20);
        assert_eq!(window(512, Some(1024)).unwrap(), 512..1536);
        assert_eq!(window_within("a", 1000, 0, None).unwrap(), 0..512);
        for (offset, len, says) in [
            (1, None, "offset: found 1, expected a multiple of 512"),
            (0, Some(513), "length: found 513, expected a multiple of 512"),
            (0, Some(0), "length: found 0, expected at least 512"),
            (1 << 20, None, "expected less than the size"),
            (512, Some(1 << 20), "expected at most what follows the offset"),
        ] {
            let error = window(offset, len).unwrap_err().to_string();
            assert!(error.contains(says), "{error}");
        }
    }
}
