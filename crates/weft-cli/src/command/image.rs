//! `weft image`: copies a dying disk into an image, the parts that are easy to read first.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use clap::Args;
use serde_json::{Value, json};
use weft_runtime::mapfile::{Mapfile, Status};
use weft_terminal::outcome::{Exit, Failure, Outcome};
use weft_terminal::result_file::{Output, ResultFile};
use weft_terminal::terminal::{complain, label, print_json, printable_stdout, quoted};
use weft_units::Bytes;

use crate::image::{Counts, Disk, DiskCopy, Ended, Session, Settings, copy};
use crate::image_file::{MappedImage, Origin, SparseImage, is_beside, map_beside, map_of};
use crate::size;

/// Copies a dying disk into an image
///
/// Reads what is easy to read first, as GNU ddrescue does: large blocks, away from bad areas (after
/// an error 64 KiB are skipped, twice as much after each further error, up to 1 GiB or a hundredth
/// of the disk); then the skipped blocks; then single sectors at both ends of each area that
/// failed; the sectors in between last. The map says what was read, in the format of GNU ddrescue,
/// and either program goes on with the map of the other. It is saved every 30 s, at the end and
/// when the command is interrupted: the same command then goes on. Never writes to DISK. Sizes are
/// in bytes, or take K, M, G, T (binary) or sectors with s. Exit status: 0 when everything was
/// read, 1 otherwise.
#[derive(Debug, Args)]
pub(crate) struct Image {
    /// Map of what was read [default: the map beside FILE, or FILE.map]
    #[arg(long, value_name = "FILE")]
    map: Option<PathBuf>,
    /// Read bad sectors again when everything else is done, N times
    #[arg(long, value_name = "N", default_value = "0")]
    retries: u32,
    /// Do not read the sectors between the ends of bad areas
    #[arg(long)]
    no_scrape: bool,
    /// Begin at the end of the disk
    #[arg(long)]
    reverse: bool,
    /// Time after which a read counts as failed [default: that of the kernel and the disk]
    #[arg(long, value_name = "SECONDS", value_parser = clap::value_parser!(u64).range(1..=86_400))]
    read_timeout: Option<u64>,
    /// First byte to copy; it has the same place in FILE
    #[arg(long, value_name = "SIZE", default_value = "0", value_parser = size::bytes)]
    offset: Bytes,
    /// Number of bytes to copy [default: up to the end]
    #[arg(long, value_name = "SIZE", value_parser = size::bytes)]
    length: Option<Bytes>,
    /// Size of a read while no error is near, a multiple of the sector
    #[arg(long, value_name = "SIZE", default_value = "64K", value_parser = size::bytes)]
    block_size: Bytes,
    /// Size of the smallest read [default: the logical block of the disk, 512 for a file]
    #[arg(long, value_name = "SIZE", value_parser = size::bytes)]
    sector_size: Option<Bytes>,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
    /// Disk, partition or image to copy
    #[arg(value_name = "DISK")]
    disk: PathBuf,
    /// Image to write: as large as the disk, with holes for zeros. An existing file is refused,
    /// unless its map says what was read of this disk
    #[arg(value_name = "FILE")]
    file: PathBuf,
}

pub(crate) fn run(arguments: &Image) -> Outcome {
    let begun = Instant::now();
    let limit = arguments.read_timeout.map(Duration::from_secs);
    let mut disk = Disk::open(&arguments.disk, limit)?;
    let settings = settings(arguments, &disk)?;
    let map_path = arguments.map.clone().unwrap_or_else(|| map_beside(&arguments.file));
    let (map, kind) = map_of(&arguments.file, &map_path, &Origin::disk(disk.label(), disk.size()))?;
    let inputs = [arguments.disk.clone(), arguments.file.clone()];
    let asked = Output { option: "--map", path: &map_path, kind, force: true, members: &inputs };
    let map_file = ResultFile::at(&asked)?;
    let image = SparseImage::open("image", &arguments.file, disk.size(), &inputs[..1], false)?;
    let title = format!(
        "{}\n# Copy of {} in {}\n",
        crate::result_kinds::IMAGE_MAP.begin,
        disk.label(),
        label(&arguments.file)
    );
    let block = settings.block;
    let session =
        Session::new(DiskCopy::new(map, settings), MappedImage::new(image, map_file, title));
    session.compare(&mut disk, block)?;
    if let Some(note) = session.short_of_space() {
        complain(&format!("note: {note}"));
    }
    let ended = copy(session, &mut disk)?;
    let result = Copied::of(arguments, &map_path, &ended, begun.elapsed());
    if arguments.json {
        print_json(&result.to_json(disk.label()))?;
    } else {
        result.print()?;
    }
    if result.is_complete() {
        return Ok(Exit::Done);
    }
    complain(&result.verdict());
    Ok(Exit::Of(1))
}

/// Settings of the copy of a disk, from the options. Options that do not fit the disk are refused.
fn settings(arguments: &Image, disk: &Disk) -> Result<Settings, Failure> {
    let (size, logical) = (disk.size(), disk.logical_block());
    let Bytes(sector) = arguments.sector_size.unwrap_or(Bytes(logical));
    if sector == 0 || !sector.is_multiple_of(logical) || sector > BLOCK_MAX {
        return Err(Failure::usage(format!(
            "--sector-size: found {sector}, expected a multiple of {logical}, the block of {}",
            disk.label()
        )));
    }
    let Bytes(block) = arguments.block_size;
    if block == 0 || !block.is_multiple_of(sector) || block > BLOCK_MAX {
        return Err(Failure::usage(format!(
            "--block-size: found {block}, expected a multiple of the sector, {sector}, up to \
             {BLOCK_MAX}"
        )));
    }
    let Bytes(start) = arguments.offset;
    if start > size {
        return Err(Failure::usage(format!("--offset: found {start}, expected at most {size}")));
    }
    let len = arguments.length.map_or(size - start, |Bytes(len)| len);
    let Some(end) = start.checked_add(len).filter(|end| *end <= size) else {
        return Err(Failure::usage(format!(
            "--length: found {len}, expected at most {} after --offset {start}",
            size - start
        )));
    };
    Ok(Settings {
        domain: start..end,
        block,
        sector,
        is_reversed: arguments.reverse,
        scrapes: !arguments.no_scrape,
        retries: arguments.retries,
    })
}

/// Result of a copy, to be printed as text or as JSON.
struct Copied<'a> {
    file: &'a Path,
    map_path: &'a Path,
    size: u64,
    wanted: u64,
    counts: Counts,
    took: Duration,
    read: Sum,
    bad: Sum,
    /// Areas that were not read, and of which it is not known that they are bad.
    left: Sum,
}

/// Number and size of all areas with certain statuses in the map.
#[derive(Clone, Copy, Debug, Default)]
struct Sum {
    count: u64,
    bytes: u64,
    /// First byte of the first area; 0 if there is no area.
    first: u64,
}

impl Sum {
    fn of(map: &Mapfile, ended: &Ended, statuses: &[Status]) -> Self {
        let mut sum = Self::default();
        let mut end = None;
        for (area, status) in map.areas_in(ended.domain.clone()) {
            if !statuses.contains(&status) {
                continue;
            }
            if sum.bytes == 0 {
                sum.first = area.start;
            }
            sum.count += u64::from(end != Some(area.start));
            sum.bytes += area.end - area.start;
            end = Some(area.end);
        }
        sum
    }

    fn areas(self) -> String {
        format!("{} area{}", self.count, if self.count == 1 { "" } else { "s" })
    }
}

impl<'a> Copied<'a> {
    fn of(arguments: &'a Image, map_path: &'a Path, ended: &Ended, took: Duration) -> Self {
        let sum = |statuses: &[Status]| Sum::of(&ended.map, ended, statuses);
        Self {
            file: &arguments.file,
            map_path,
            size: ended.map.size(),
            wanted: ended.domain.end - ended.domain.start,
            counts: ended.counts,
            took,
            read: sum(&[Status::Finished]),
            bad: sum(&[Status::Bad]),
            left: sum(&[Status::NonScraped, Status::NonTried, Status::NonTrimmed]),
        }
    }

    fn is_complete(&self) -> bool {
        self.read.bytes == self.wanted
    }

    /// Command that the user is advised to run next.
    fn next(&self) -> String {
        let file = quoted(self.file.as_os_str());
        if is_beside(self.file, self.map_path) {
            return format!("weft rescue {file}");
        }
        let mut named = self.file.as_os_str().to_owned();
        named.push("=");
        named.push(self.map_path);
        format!("weft rescue --unreadable {} {file}", quoted(&named))
    }

    /// Sentence about the bytes that were not read.
    fn verdict(&self) -> String {
        let mut says = Vec::new();
        for (sum, what) in [
            (self.bad, "cannot be read"),
            (self.left, "lie between bad sectors and were not tried one by one"),
        ] {
            if sum.bytes > 0 {
                let (bytes, areas, first) = (sum.bytes, sum.areas(), sum.first);
                says.push(format!("{bytes} bytes in {areas} {what}, the first at byte {first}"));
            }
        }
        format!("not everything was read: {}; --retries N tries again", says.join("; "))
    }

    fn print(&self) -> Result<(), Failure> {
        let mut out = printable_stdout();
        let human = |bytes| size::human(Bytes(bytes));
        let mut line = format!(
            "{}: {} of {} read",
            label(self.file),
            human(self.read.bytes),
            human(self.wanted)
        );
        for (sum, what) in [(self.bad, "bad"), (self.left, "not tried one by one")] {
            if sum.bytes > 0 {
                line += &format!(", {} {what} in {}", human(sum.bytes), sum.areas());
            }
        }
        writeln!(out, "{line}; map {}", label(self.map_path))?;
        writeln!(out, "next, with the images of the other disks: {}", self.next())?;
        out.flush()?;
        Ok(())
    }

    fn to_json(&self, disk: &str) -> Value {
        json!({
            "schema": "weft.image/1", "disk": disk, "file": label(self.file),
            "map": label(self.map_path), "size_bytes": self.size, "wanted_bytes": self.wanted,
            "read_bytes": self.read.bytes, "bad_bytes": self.bad.bytes,
            "bad_areas": self.bad.count, "left_bytes": self.left.bytes,
            "left_areas": self.left.count, "complete": self.is_complete(),
            "reads": self.counts.reads, "errors": self.counts.errors,
            "timeouts": self.counts.timeouts, "seconds": self.took.as_secs_f64(),
            "next": self.next(),
        })
    }
}

/// Largest size of a read in bytes: that of one reply of the reading process.
const BLOCK_MAX: u64 = 64 << 20;
