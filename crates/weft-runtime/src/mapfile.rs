//! Mapfile of GNU ddrescue: a status for each byte of a disk that is being copied.
//!
//! weft writes this format for `weft image` and `weft cat --map`, each with a title of its own, and
//! reads maps of every program that writes this format. Bytes that no line mentions were not tried.
//!
//! Source   GNU ddrescue manual, "Mapfile structure"

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs::File;
use std::io::{self, BufRead, BufReader, Read};
use std::ops::Range;
use std::path::Path;

/// Status of a byte of the disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Status {
    /// Bad sector: a read of this sector alone failed.
    Bad,
    /// Rescued: the byte was read and is in the image.
    Finished,
    /// Inside an area that failed, between its two bad ends, and not yet read sector by sector.
    NonScraped,
    /// No read of the byte was tried.
    NonTried,
    /// Part of a larger read that failed; the bad sectors at its ends are not located yet.
    NonTrimmed,
}

impl Status {
    /// Every status, each with its sign in a mapfile.
    const SIGNS: [(Self, char); 5] = [
        (Self::Bad, '-'),
        (Self::Finished, '+'),
        (Self::NonScraped, '/'),
        (Self::NonTried, '?'),
        (Self::NonTrimmed, '*'),
    ];

    /// Sign of the status in a mapfile.
    #[must_use]
    pub fn sign(self) -> char {
        Self::SIGNS[self as usize].1
    }

    fn of(text: &str) -> Option<Self> {
        let mut rows = Self::SIGNS.iter();
        rows.find(|(_, sign)| text.chars().eq([*sign])).map(|(status, _)| *status)
    }
}

/// Position and phase of a copy: the status line of a mapfile.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Current {
    /// Byte of the disk at which the copy goes on.
    pub position: u64,
    /// Phase: `?` copying, `*` trimming, `/` scraping, `-` retrying, `+` finished, and others of
    /// ddrescue.
    pub phase: char,
    /// Number of the pass within its phase, from 1 on.
    pub pass: u32,
}

/// A mapfile, parsed: a status for each byte up to the end of the disk.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mapfile {
    /// Position and phase of the copy, from the status line.
    pub current: Current,
    /// Areas by their first bytes; neighbours differ in their status.
    areas: BTreeMap<u64, Status>,
    /// Size of the disk in bytes.
    size: u64,
    /// Number of bytes of each status, in the order of `Status::SIGNS`.
    sums: [u64; Status::SIGNS.len()],
}

impl Mapfile {
    /// Map of a disk of `size` bytes in which no read was tried yet.
    #[must_use]
    pub fn new(size: u64) -> Self {
        let current = Current { position: 0, phase: '?', pass: 1 };
        let mut map = Self { current, areas: BTreeMap::new(), size, sums: [0; 5] };
        if size > 0 {
            map.areas.insert(0, Status::NonTried);
            map.sums[Status::NonTried as usize] = size;
        }
        map
    }

    /// Reads the map at `path`, which must be a regular file.
    ///
    /// # Errors
    /// A text that says what is wrong with the file; it does not name the file.
    pub fn read(path: &Path) -> Result<Self, String> {
        let says = |error: io::Error| error.to_string();
        if !path.metadata().map_err(says)?.is_file() {
            return Err("found no regular file, expected a map of GNU ddrescue".into());
        }
        Self::parse(BufReader::new(File::open(path).map_err(says)?))
    }

    /// First line of the file at `path`, cut off after the first 64 bytes of the file; empty if the
    /// file cannot be read.
    #[must_use]
    pub fn title(path: &Path) -> String {
        line_of(path, 64, 0)
    }

    /// Second line of the file at `path`, cut off after the first 1000 bytes of the file; empty if
    /// there is no such line, or the file cannot be read. Programs state the origin of a copy
    /// there, as a comment.
    #[must_use]
    pub fn subtitle(path: &Path) -> String {
        line_of(path, 1000, 1)
    }

    /// Parses a map.
    ///
    /// # Errors
    /// A text that names the line, what was found there and what was expected.
    pub fn parse(mut text: impl BufRead) -> Result<Self, String> {
        let (mut current, mut areas) = (None, Vec::new());
        let mut last = 0;
        for number in 1_u64.. {
            let Some(line) = next_line(&mut text, number)? else { break };
            let text = line.split('#').next().unwrap_or_default().trim();
            if text.is_empty() {
                continue;
            }
            let fields: Vec<&str> = text.split_whitespace().collect();
            if current.is_none() {
                current = Some(status_line(&fields).ok_or_else(|| {
                    wrong(number, "status line", text, "current_pos current_status [current_pass]")
                })?);
                continue;
            }
            let (area, status) = area(&fields, text, last, number)?;
            last = area.end;
            areas.push((area, status));
        }
        if areas.is_empty() {
            return Err("found no area, expected lines of pos size status".into());
        }
        let mut map = Self::new(last);
        areas.into_iter().for_each(|(area, status)| map.set(area, status));
        map.current = current.unwrap_or(map.current);
        Ok(map)
    }

    /// Size of the disk in bytes: the end of the last area.
    #[must_use]
    pub fn size(&self) -> u64 {
        self.size
    }

    /// Sets the status of a range, which may be empty.
    ///
    /// # Panics
    /// Panics when the range ends behind the disk.
    pub fn set(&mut self, range: Range<u64>, status: Status) {
        assert!(range.end <= self.size, "{range:?} is within the disk of {} bytes", self.size);
        if range.is_empty() {
            return;
        }
        for (part, old) in self.areas_in(range.clone()).collect::<Vec<_>>() {
            self.sums[old as usize] -= part.end - part.start;
        }
        self.sums[status as usize] += range.end - range.start;
        if range.end < self.size {
            let (_, behind) = self.area_at(range.end);
            self.areas.insert(range.end, behind);
        }
        let covered: Vec<u64> = self.areas.range(range.clone()).map(|(start, _)| *start).collect();
        for start in covered {
            self.areas.remove(&start);
        }
        self.areas.insert(range.start, status);
        // Areas of one status are one area.
        for border in [range.end, range.start] {
            let before = self.areas.range(..border).next_back().map(|(_, status)| *status);
            if before.is_some() && before == self.areas.get(&border).copied() {
                self.areas.remove(&border);
            }
        }
    }

    /// Area that contains the byte `at`, and its status.
    ///
    /// # Panics
    /// Panics when the disk has no such byte.
    #[must_use]
    pub fn area_at(&self, at: u64) -> (Range<u64>, Status) {
        assert!(at < self.size, "byte {at} is within the disk of {} bytes", self.size);
        let (start, status) = self.areas.range(..=at).next_back().expect("areas cover the disk");
        let next = self.areas.range(at + 1..).next();
        (*start..next.map_or(self.size, |(next, _)| *next), *status)
    }

    /// Status of the byte `at`; `None` behind the end of the disk.
    #[must_use]
    pub fn status(&self, at: u64) -> Option<Status> {
        (at < self.size).then(|| self.area_at(at).1)
    }

    /// Areas within a range, in ascending order. The first and the last are cut at the range's
    /// ends.
    pub fn areas_in(
        &self,
        range: Range<u64>,
    ) -> impl DoubleEndedIterator<Item = (Range<u64>, Status)> {
        let end = range.end.min(self.size);
        let start = range.start.min(end);
        let first = if start < end { self.area_at(start).0.start } else { end };
        self.areas.range(first..end).map(move |(at, status)| {
            let next = self.areas.range(at + 1..).next().map_or(end, |(next, _)| *next);
            ((*at).max(start)..next.min(end), *status)
        })
    }

    /// All areas in ascending order.
    pub fn areas(&self) -> impl DoubleEndedIterator<Item = (Range<u64>, Status)> {
        self.areas_in(0..self.size)
    }

    /// Number of bytes with this status.
    #[must_use]
    pub fn bytes(&self, status: Status) -> u64 {
        self.sums[status as usize]
    }

    /// Map in the format of a mapfile. The text begins with `title`: comment lines, each with its
    /// newline.
    #[must_use]
    pub fn to_text(&self, title: &str) -> String {
        let Current { position, phase, pass } = self.current;
        let mut text = format!(
            "{title}# current_pos  current_status  current_pass\n\
             {position:#010x}     {phase}               {pass}\n#      pos        size  status\n"
        );
        for (area, status) in self.areas() {
            let (start, len, sign) = (area.start, area.end - area.start, status.sign());
            // Writing to a text does not fail.
            let _ = writeln!(text, "{start:#010x}  {len:#010x}  {sign}");
        }
        text
    }
}

/// Line `number`, counted from 0, of the first `len` bytes of the file at `path`; empty if these
/// bytes have no such line, or the file cannot be read.
fn line_of(path: &Path, len: u64, number: usize) -> String {
    let mut begin = Vec::new();
    let is_file = path.metadata().is_ok_and(|found| found.is_file());
    if let Some(file) = is_file.then(|| File::open(path).ok()).flatten()
        && file.take(len).read_to_end(&mut begin).is_err()
    {
        begin.clear();
    }
    String::from_utf8_lossy(&begin).lines().nth(number).unwrap_or_default().to_owned()
}

/// Parses the status line: position and phase of the copy, and in newer maps its pass; `None` if
/// the line is not valid.
fn status_line(fields: &[&str]) -> Option<Current> {
    let position = integer(fields.first()?)?;
    if fields.len() > 3 {
        return None;
    }
    let phase = fields.get(1)?.chars().next()?;
    let pass = fields.get(2).and_then(|pass| pass.parse().ok()).unwrap_or(1);
    Some(Current { position, phase, pass })
}

/// Parses the line of an area. `last` is the end of the area before; `text` is the line and
/// `number` its number, for errors.
fn area(
    fields: &[&str],
    text: &str,
    last: u64,
    number: u64,
) -> Result<(Range<u64>, Status), String> {
    let &[pos, size, status] = fields else {
        return Err(wrong(number, "area", text, "pos size status"));
    };
    let start = integer(pos).ok_or_else(|| wrong(number, "pos", pos, "a number"))?;
    let len = integer(size).ok_or_else(|| wrong(number, "size", size, "a number"))?;
    if start < last {
        let expected = format!("at least {last:#x}, the end of the area before");
        return Err(wrong(number, "pos", pos, &expected));
    }
    let end = start.checked_add(len);
    let end = end.ok_or_else(|| wrong(number, "size", size, "an end below 2^64"))?;
    let expected = "one of ? * / - +";
    let known = Status::of(status).ok_or_else(|| wrong(number, "status", status, expected))?;
    Ok((start..end, known))
}

fn wrong(number: u64, field: &str, found: &str, expected: &str) -> String {
    let found: String = found.chars().take(40).flat_map(char::escape_debug).collect();
    format!("line {number}: {field}: found {found}, expected {expected}")
}

/// Reads the next line of a map; `None` at the end. The length is limited, because the file may be
/// a disk without any line.
fn next_line(map: &mut impl BufRead, number: u64) -> Result<Option<String>, String> {
    let mut line = Vec::new();
    let mut limited = map.by_ref().take(LINE_MAX);
    limited.read_until(b'\n', &mut line).map_err(|error| format!("line {number}: {error}"))?;
    let wrong = |found: &str| {
        Err(format!("line {number}: found {found}, expected a line of a map of GNU ddrescue"))
    };
    match String::from_utf8(line) {
        Ok(text) if text.is_empty() => Ok(None),
        Ok(text) if text.contains('\0') => wrong("a byte of zero"),
        Ok(text) if text.len() as u64 == LINE_MAX => wrong(&format!("{LINE_MAX} bytes or more")),
        Ok(text) => Ok(Some(text)),
        Err(_) => wrong("bytes that are no text"),
    }
}

/// Length in bytes at which a line is refused: more than any line that ddrescue writes, including
/// the command line at the start of a map.
const LINE_MAX: u64 = 64 << 10;

/// Parses a number in C's notation: decimal, octal after `0`, or hexadecimal after `0x`. `None` for
/// any other text.
fn integer(text: &str) -> Option<u64> {
    match text.strip_prefix("0x").or_else(|| text.strip_prefix("0X")) {
        Some(digits) => u64::from_str_radix(digits, 16).ok(),
        None if text.len() > 1 && text.starts_with('0') => u64::from_str_radix(&text[1..], 8).ok(),
        None => text.parse().ok(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use weft_units::rng::Rng;

    const HEAD: &str = "# Mapfile. Created by GNU ddrescue version 1.27\n\
                        # current_pos  current_status  current_pass\n0x0  +  1\n";

    fn parsed(areas: &str) -> Result<Mapfile, String> {
        Mapfile::parse(format!("{HEAD}{areas}").as_bytes())
    }

    #[test]
    fn each_status_has_its_sign() {
        for (status, sign) in Status::SIGNS {
            assert_eq!((status.sign(), Status::of(&sign.to_string())), (sign, Some(status)));
        }
        assert_eq!((Status::of(""), Status::of("+-")), (None, None));
    }

    #[test]
    fn a_map_is_read_as_it_was_written() {
        let map = parsed("0 0x1000 +\n0x1000 512 -\n4608 01000 *\n0x1400 1024 +\n").unwrap();
        assert_eq!(map.size(), 6144);
        assert_eq!(map.current, Current { position: 0, phase: '+', pass: 1 });
        assert_eq!((map.bytes(Status::Finished), map.bytes(Status::Bad)), (5120, 512));
        assert_eq!(Mapfile::parse(map.to_text("# title\n").as_bytes()), Ok(map.clone()));
        assert_eq!(map.area_at(4600), (4096..4608, Status::Bad));
        // No line covers the bytes between the two areas.
        let gap = parsed("0 512 +\n1024 512 +\n").unwrap();
        assert_eq!(gap.status(600), Some(Status::NonTried));
        assert_eq!(gap.status(1536), None);
    }

    #[test]
    fn a_broken_map_names_line_and_field() {
        for (areas, says) in [
            ("0 512\n", "line 4: area: found 0 512, expected pos size status"),
            ("0 512 +\n512 x +\n", "line 5: size: found x, expected a number"),
            ("y 512 +\n", "line 4: pos: found y, expected a number"),
            ("0 512 !\n", "line 4: status: found !, expected one of ? * / - +"),
            ("0 1024 +\n512 512 +\n", "line 5: pos: found 512, expected at least 0x400"),
            ("1 0xffffffffffffffff +\n", "line 4: size: found 0xffffffffffffffff, expected an end"),
            ("", "found no area"),
        ] {
            let error = parsed(areas).unwrap_err();
            assert!(error.starts_with(says), "{error}");
        }
        let long = vec![b'#'; 70_000];
        for (bytes, says) in [
            (&long[..], "line 1: found 65536 bytes or more, expected a line of a map"),
            (&[0; 70_000], "line 1: found a byte of zero, expected a line of a map"),
            (b"# a\n\xff\n", "line 2: found bytes that are no text, expected a line of a map"),
        ] {
            let error = Mapfile::parse(bytes).unwrap_err();
            assert!(error.starts_with(says), "{error}");
        }
        let error = Mapfile::parse(&b"# Mapfile\nnonsense\n"[..]).unwrap_err();
        assert!(error.starts_with("line 2: status line: found nonsense"), "{error}");
    }

    /// Random changes have the same effect on a map and on a plain list of statuses.
    #[test]
    fn changes_are_those_of_a_list() {
        let mut rng = Rng::new(27);
        for _ in 0..300 {
            let size = 1 + rng.below(40);
            let mut map = Mapfile::new(size);
            let mut list = vec![Status::NonTried; usize::try_from(size).unwrap()];
            for _ in 0..30 {
                let (a, b) = (rng.below(size + 1), rng.below(size + 1));
                let status = rng.pick(&Status::SIGNS).0;
                map.set(a.min(b)..a.max(b), status);
                (a.min(b)..a.max(b)).for_each(|at| list[usize::try_from(at).unwrap()] = status);
                let mut next = 0;
                for (area, status) in map.areas() {
                    assert_eq!(area.start, next, "areas cover the disk: {map:?}");
                    assert!(area.start == 0 || map.status(area.start - 1) != Some(status));
                    next = area.end;
                    for at in area {
                        assert_eq!(status, list[usize::try_from(at).unwrap()], "{map:?}");
                    }
                }
                assert_eq!(next, size);
                for (status, _) in Status::SIGNS {
                    let count = list.iter().filter(|other| **other == status).count();
                    assert_eq!(map.bytes(status), count as u64);
                }
            }
        }
    }
}
