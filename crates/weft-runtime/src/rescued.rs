//! Maps of GNU ddrescue: ranges of an image that were never read from its disk.
//!
//! Decides   which map belongs to an image: the one that was named for it, else `IMAGE.map`,
//!           `IMAGE.mapfile` or `IMAGE.log`, or a file with one of these endings in place of the
//!           image's extension, if the file begins like a map. Two such maps are refused.
//! Why       where a disk could not be read, ddrescue leaves zeros or the former content. These
//!           bytes must not count as data: an array would prefer them to the copy or parity that
//!           has the right ones.
//!
//! Only `+` counts as read. For a block device only a map that was named is used.
//!
//! Source   GNU ddrescue manual, "Mapfile structure"

use std::ops::Range;
use std::path::{Path, PathBuf};

use weft_engine::assemble::Candidate;
use weft_units::{Bytes, SectorRange, Sectors};

use crate::mapfile::{Mapfile, Status};

/// Ranges of a member that GNU ddrescue did not read, according to the map that it wrote.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rescued {
    map: PathBuf,
    /// Byte ranges of the member that were not read, in ascending order and disjoint.
    unread: Vec<Range<u64>>,
}

impl Rescued {
    /// Finds the map of a member that is the range `bytes` of the file or device at `path`: the map
    /// that was `named`, or the one beside the file; `None` if there is no map.
    ///
    /// # Errors
    /// Fails when a map is damaged, two are beside the file, or the named file is no map. The text
    /// does not name the member.
    pub fn of(
        path: &Path,
        named: Option<&Path>,
        bytes: &Range<u64>,
        is_block: bool,
    ) -> Result<Option<Self>, String> {
        match named {
            Some(map) => Self::named(map, bytes).map(Some),
            None if is_block => Ok(None),
            None => Self::beside(path, bytes),
        }
    }

    /// Reads the map that was named, which need not begin with ddrescue's title.
    fn named(map: &Path, bytes: &Range<u64>) -> Result<Self, String> {
        let name = map.display();
        if Mapfile::title(map).starts_with(TITLE_OF_ARRAYS) {
            return Err(format!(
                "{name}: line 1: found a map of weft cat, which counts in bytes of an array, \
                 expected one that GNU ddrescue or weft image wrote of the disk"
            ));
        }
        let read = Mapfile::read(map).map_err(|why| {
            format!("{name}: {why}; name the map that GNU ddrescue or weft image wrote of the disk")
        })?;
        Ok(Self { map: map.to_owned(), unread: unread(&read, bytes) })
    }

    /// Reads the map beside the image at `path`; `None` if there is none. Fails if there are two.
    fn beside(path: &Path, bytes: &Range<u64>) -> Result<Option<Self>, String> {
        let mut found = names(path).into_iter().filter(|map| is_map(map));
        let Some(map) = found.next() else { return Ok(None) };
        if let Some(second) = found.next() {
            return Err(format!(
                "found two maps of ddrescue beside it, {} and {}, expected one; move the other away",
                map.display(),
                second.display()
            ));
        }
        let name = map.display();
        let read = Mapfile::read(&map).map_err(|why| {
            format!("{name}: {why}; mend the map, or move it away to take all for data")
        })?;
        let unread = unread(&read, bytes);
        Ok(Some(Self { map, unread }))
    }

    /// Number of bytes of the member that were not read.
    #[must_use]
    pub fn unread_bytes(&self) -> u64 {
        self.unread.iter().map(|range| range.end - range.start).sum()
    }

    /// Sentence about the map: its name and how many bytes were not read. It does not name the
    /// member.
    #[must_use]
    pub fn says(&self) -> String {
        let map = self.map.display();
        match (self.unread_bytes(), self.unread.len()) {
            (0, _) => format!("map of ddrescue {map}: all of it was rescued"),
            (bytes, count) => format!(
                "map of ddrescue {map}: {bytes} bytes in {count} areas were not rescued and are not \
                 taken for data"
            ),
        }
    }

    /// Reason why the member must not be opened for writing, with advice: after a write the map
    /// would not record which bytes of the image are good. `None` where all of the member was
    /// rescued. The text does not name the member.
    #[must_use]
    pub fn refuses_writes(&self) -> Option<String> {
        (self.unread_bytes() > 0).then(|| {
            format!(
                "{}; found it to be written, of which the map would not know; name another file or \
                 device, or move the map away: all of the image counts as data then",
                self.says()
            )
        })
    }

    /// Whether any byte of a range of the member was not read.
    #[must_use]
    pub fn misses(&self, bytes: &Range<u64>) -> bool {
        self.next(bytes.start).is_some_and(|range| range.start < bytes.end)
    }

    /// Number of bytes from `at` up to the first one that was not read; `u64::MAX` if all bytes
    /// from `at` on were read.
    #[must_use]
    pub fn rescued_from(&self, at: u64) -> u64 {
        self.next(at).map_or(u64::MAX, |range| range.start.saturating_sub(at))
    }

    /// Number of bytes from `at` up to the first one that was read; 0 if the byte at `at` was read.
    #[must_use]
    pub fn unread_from(&self, at: u64) -> u64 {
        self.next(at).filter(|range| range.start <= at).map_or(0, |range| range.end - at)
    }

    /// First unread range that ends after `at`; `None` if there is none.
    fn next(&self, at: u64) -> Option<&Range<u64>> {
        let before = self.unread.partition_point(|range| range.end <= at);
        self.unread.get(before)
    }

    /// Part of the map for a byte range of the member, counted from the start of the range.
    #[must_use]
    pub fn part(&self, bytes: &Range<u64>) -> Self {
        let within = self.unread.iter().filter_map(|range| {
            let (start, end) = (range.start.max(bytes.start), range.end.min(bytes.end));
            (start < end).then(|| start - bytes.start..end - bytes.start)
        });
        Self { map: self.map.clone(), unread: within.collect() }
    }

    /// Applies the map to the member as a candidate for an assembly. For reading, the ranges that
    /// were not rescued count as bad blocks, so that they are computed from the other members. For
    /// writing, the member is left out: data written to these ranges would be good in the image and
    /// not in its map.
    #[must_use]
    pub fn apply(&self, mut candidate: Candidate, read_only: bool) -> Candidate {
        let Ok(superblock) = &candidate.superblock else { return candidate };
        if self.unread.is_empty() {
            return candidate;
        }
        if !read_only {
            let reason = format!("{}; {READS}", self.says());
            return Candidate::silent(candidate.member, reason);
        }
        let (data, used) = (superblock.data_offset().0, superblock.used_size().0);
        let log = candidate.logs.bad_blocks.get_or_insert_with(|| Ok(Default::default()));
        if let Ok(log) = log {
            for range in &self.unread {
                let start = Bytes(range.start).sectors_floor().0.max(data);
                let end = range.end.div_ceil(weft_units::SECTOR_BYTES);
                let end = end.min(data.saturating_add(used));
                if start < end {
                    let start = Sectors(start - data);
                    log.insert(SectorRange { start, len: Sectors(end - data) - start });
                }
            }
        }
        candidate
    }
}

/// Advice in the error for a member of an array that was not rescued completely.
const READS: &str = "weft cat and serve --read-only compute that from the others; for \
                                writing, give the slot a new member";

/// First bytes of a map of `weft cat --skip-unreadable`, which counts in bytes of an array.
const TITLE_OF_ARRAYS: &str = "# Mapfile of weft cat --skip-unreadable";

/// First bytes of a map of `weft cat --output`, which counts in bytes of the image beside it.
pub const TITLE_OF_COPIES: &str = "# Mapfile of weft cat --output";

/// First bytes of maps of disks: of ddrescue or ddrescuelog, of their older versions, and of `weft
/// image`.
pub const TITLES: [&str; 3] = [
    "# Mapfile. Created by GNU ddrescue",
    "# Rescue Logfile. Created by GNU ddrescue",
    "# Mapfile of weft image",
];

/// Possible names of a map beside an image; the first one is the image's name with `.map` appended.
#[must_use]
pub fn names(image: &Path) -> Vec<PathBuf> {
    let endings = ["map", "mapfile", "log"];
    let mut names: Vec<PathBuf> = Vec::new();
    for ending in endings {
        let mut whole = image.as_os_str().to_owned();
        whole.push(".");
        whole.push(ending);
        names.push(whole.into());
        // Members that differ in the extension alone (`a.1`, `a.2`) must not share a map.
        let extension = image.extension().and_then(|it| it.to_str()).unwrap_or_default();
        if ["bin", "dd", "image", "img", "raw"].contains(&extension) {
            names.push(image.with_extension(ending));
        }
    }
    names
}

/// Whether a file begins like a map of an image: a log of another program may have the same name.
#[must_use]
pub fn is_map(path: &Path) -> bool {
    let found = Mapfile::title(path);
    TITLES.iter().chain([&TITLE_OF_COPIES]).any(|title| found.starts_with(title))
}

/// Ranges of a member that were not read, counted from its start.
fn unread(map: &Mapfile, member: &Range<u64>) -> Vec<Range<u64>> {
    let mut unread = Vec::new();
    let mut next = member.start;
    let read = map.areas().filter(|(_, status)| *status == Status::Finished);
    for (range, _) in read {
        let start = range.start.min(member.end);
        if next < start {
            unread.push(next - member.start..start - member.start);
        }
        next = next.max(range.end);
    }
    if next < member.end {
        unread.push(next - member.start..member.end - member.start);
    }
    unread
}

#[cfg(test)]
mod tests {
    use super::*;

    const HEAD: &str = "# Mapfile. Created by GNU ddrescue version 1.27\n\
                        # current_pos  current_status  current_pass\n0x0  +  1\n";

    fn pairs(ranges: &[Range<u64>]) -> Vec<(u64, u64)> {
        ranges.iter().map(|range| (range.start, range.end)).collect()
    }

    fn parsed(areas: &str) -> Mapfile {
        Mapfile::parse(format!("{HEAD}{areas}").as_bytes()).unwrap()
    }

    #[test]
    fn only_what_is_marked_as_read_is_read() {
        let read = parsed("0 0x1000 +\n0x1000 512 -\n4608 01000 *\n0x1400 1024 +\n6144 2 +\n");
        assert_eq!(unread(&read, &(0..8192)), [4096..5120, 6146..8192]);
        assert_eq!(pairs(&unread(&read, &(512..5120))), [(3584, 4608)]);
        assert_eq!(unread(&read, &(5120..6144)), []);
        assert_eq!(pairs(&unread(&Mapfile::new(5), &(10..20))), [(0, 10)]);
        // No line covers the bytes between the two areas.
        let gap = parsed("0 512 +\n1024 512 +\n");
        assert_eq!(pairs(&unread(&gap, &(0..1536))), [(512, 1024)]);
    }

    #[test]
    fn one_map_is_found_beside_an_image() {
        let dir = tempfile::tempdir().unwrap();
        let image = dir.path().join("disk.img");
        let beside = || Rescued::beside(&image, &(0..4096));
        let write = |name: &str, text: &str| std::fs::write(dir.path().join(name), text).unwrap();
        // The log of a server is not a map.
        write("disk.log", "started\n");
        // The map of an array is not a map of a member either.
        write("disk.map", "# Mapfile of weft cat --skip-unreadable\n0 ? 1\n0 512 ?\n");
        assert_eq!(beside().unwrap(), None);
        std::fs::remove_file(dir.path().join("disk.map")).unwrap();
        for name in ["disk.img.map", "disk.map", "disk.img.log", "disk.log", "disk.mapfile"] {
            write(name, &format!("{HEAD}0 1024 +\n1024 512 -\n1536 4096 +\n"));
            let found = beside().unwrap().unwrap();
            assert_eq!((found.unread_bytes(), found.map.file_name()), (512, Some(name.as_ref())));
            assert!(found.misses(&(0..1025)) && found.misses(&(1535..9999)));
            assert!(!found.misses(&(0..1024)) && !found.misses(&(1536..4096)));
            assert_eq!(pairs(&found.part(&(1100..1200)).unread), [(0, 100)]);
            std::fs::remove_file(dir.path().join(name)).unwrap();
        }
        let slot = dir.path().join("disk.0");
        write("disk.map", &format!("{HEAD}0 1024 +\n"));
        assert_eq!(Rescued::beside(&slot, &(0..4096)), Ok(None), "of several members");
        for name in ["disk.map", "disk.img.map"] {
            write(name, &format!("{HEAD}0 4096 +\n"));
        }
        let error = beside().unwrap_err();
        assert!(error.contains("found two maps"), "{error}");
    }
}
