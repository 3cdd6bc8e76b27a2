//! `weft create`: makes a new array on its members.
//!
//! Everything is planned before anything is written: geometry, places, contents of every
//! superblock. Then files are made, superblocks written, and all of it flushed; when that fails
//! half way, what was there before is put back.
//!
//! Redundancy must be right before the array is served. Three ways lead there. Members whose data
//! area is all holes read as zeros, and the parity of zeros is zero, so nothing needs to be done.
//! `--assume-clean` says that the user knows. Else the array is created as mdadm does: RAID 4 and 5
//! with their last member as a spare, which `serve` rebuilds, RAID 6 dirty, which `serve` resyncs.

use std::fs::File;
use std::io::{ErrorKind, Write};
use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::Args;
use rustix::io::Errno;
use serde_json::{Value, json};
use weft_engine::raid::geometry::Geometry;
use weft_ondisk::probe::Foreign;
use weft_ondisk::{
    Level, MdTime, Minor, NewArray, NewMember, ResyncOffset, Role, SUPER_BYTES, Super1, Uuid,
    layout_id,
};
use weft_runtime::devices::{Access, OpenMember, OpenOptions};
use weft_runtime::spec::MemberSpec;
use weft_units::{Bytes, MemberIndex, Sectors};

use crate::look::{self, Looked};
use crate::member::{self, MemberArg};
use crate::outcome::{Exit, Failure, Outcome};
use crate::terminal::{complain, print_json, stdout};
use crate::{size, volume, when};

/// Makes a new array on files or block devices
///
/// Refuses members that hold an array, a file system, a partition table or an encrypted volume
/// (exit status 3), unless --force is given. Members that are freshly made sparse files need no
/// initial sync. Sizes take K, M, G, T (binary) or sectors with s.
#[derive(Debug, Args)]
pub(crate) struct Create {
    /// RAID level: 4, 5 or 6
    #[arg(short, long)]
    level: String,
    /// Slots of the array, parity included
    #[arg(short = 'n', long, value_name = "COUNT")]
    raid_devices: usize,
    /// Bytes on one member before data goes on to the next; a plain number is KiB
    #[arg(short, long, value_name = "SIZE", default_value = "512K", value_parser = size::kib)]
    chunk: Bytes,
    /// Where parity goes, by mdadm's name, as in left-symmetric or ls [default: left-symmetric]
    #[arg(short = 'p', long)]
    layout: Option<String>,
    /// Version of the superblocks: 1.0 (at the end), 1.1 (at the start) or 1.2 (at 4 KiB)
    #[arg(short = 'e', long, value_name = "VERSION", default_value = "1.2")]
    metadata: String,
    /// Bytes of each member to use [default: all of the smallest]; a plain number is KiB
    #[arg(short = 'z', long, value_parser = size::kib)]
    size: Option<Bytes>,
    /// Members without a slot, the last ones named
    #[arg(short = 'x', long, value_name = "COUNT", default_value_t = 0)]
    spare_devices: usize,
    /// Name of the array [default: weft- and a part of its uuid]
    #[arg(short = 'N', long)]
    name: Option<String>,
    /// Identity of the array [default: random]
    #[arg(long)]
    uuid: Option<String>,
    /// Trust that parity on the members is right already
    #[arg(long)]
    assume_clean: bool,
    /// Make members that do not exist, as sparse files of this size
    #[arg(long, value_name = "SIZE", value_parser = size::with_unit)]
    member_size: Option<Bytes>,
    /// Overwrite what is found on the members, and do not rebuild the last one as a spare
    #[arg(short, long)]
    force: bool,
    /// Print what would be written and where; write nothing
    #[arg(long)]
    dry_run: bool,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
    /// Only none: bitmaps come with a later release.
    #[arg(short, long, hide = true)]
    bitmap: Option<String>,
    /// Only resync.
    #[arg(short = 'k', long, hide = true)]
    consistency_policy: Option<String>,
    /// PATH, PATH#N (partition N) or PATH@OFFSET[+LENGTH], slot after slot, then spares; 'missing'
    /// leaves a slot empty
    #[arg(value_name = "MEMBER", required = true, value_parser = MemberArg::parser())]
    members: Vec<MemberArg>,
}

/// What will stand at a position of the command line.
enum Place {
    /// Nobody.
    Missing,
    /// A file to be made.
    New { path: PathBuf, label: String, size: Sectors },
    /// Something that exists.
    Old { path: PathBuf, looked: Looked },
}

/// What is to be written to one member.
struct Write1 {
    path: PathBuf,
    label: String,
    /// Length of a file to be made.
    make: Option<Bytes>,
    superblock: Super1,
    /// Blocks with signatures of others, other superblocks too, which would make it unclear who the
    /// member belongs to.
    erase: Vec<Sectors>,
    /// Signatures of others that stay, since they are where data is.
    kept: Vec<Foreign>,
}

/// Way in which redundancy becomes right.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Sync {
    AssumedClean,
    Degraded,
    Holes,
    Recovery,
    Resync,
}

pub(crate) fn run(arguments: &Create) -> Outcome {
    let planned = plan_all(arguments)?;
    if !arguments.dry_run {
        write_all(&planned.writes)?;
    }
    let Planned { writes, geometry, sync } = &planned;
    if arguments.json {
        print_json(&to_json(arguments, writes, geometry, *sync))?;
    } else {
        print_text(arguments, writes, geometry, *sync)?;
    }
    Ok(Exit::Done)
}

/// Makes an array of files that do not exist yet, and says nothing.
///
/// # Errors
/// As the command.
pub(crate) fn make_files_of_array(
    level: &str,
    chunk: Bytes,
    member_size: Bytes,
    name: &str,
    paths: &[PathBuf],
) -> Result<Geometry, Failure> {
    let planned = plan_all(&Create {
        level: level.to_owned(),
        raid_devices: paths.len(),
        chunk,
        layout: None,
        metadata: "1.2".into(),
        size: None,
        spare_devices: 0,
        name: Some(name.to_owned()),
        uuid: None,
        assume_clean: false,
        member_size: Some(member_size),
        force: false,
        dry_run: false,
        json: false,
        bitmap: None,
        consistency_policy: None,
        members: paths.iter().cloned().map(MemberArg::Path).collect(),
    })?;
    write_all(&planned.writes)?;
    Ok(planned.geometry)
}

/// Everything that is to be written, and why.
struct Planned {
    writes: Vec<Write1>,
    geometry: Geometry,
    sync: Sync,
}

fn plan_all(arguments: &Create) -> Result<Planned, Failure> {
    let mut array = described(arguments)?;
    let places = places(arguments)?;
    if !arguments.force {
        refuse_foreign(&places)?;
    }
    let (slots, spares) = members_of(&places, arguments.raid_devices)?;
    (array.slots, array.spares) = (slots, spares);
    let mut supers = plan(&array, &places)?;
    let mut sync = if arguments.assume_clean { Sync::AssumedClean } else { Sync::Recovery };
    if all_holes(&places, arguments.raid_devices, &supers) {
        array.assume_clean = true;
        sync = Sync::Holes;
        supers = plan(&array, &places)?;
    }
    let first = supers.first().ok_or_else(|| Failure::usage("no member given"))?;
    if sync == Sync::Recovery {
        let spare = supers.iter().any(|superblock| superblock.own_role() == Ok(Role::Spare));
        let missing = array.slots.iter().any(Option::is_none);
        sync = match first.resync_offset {
            ResyncOffset::At(_) => Sync::Resync,
            ResyncOffset::Clean if spare => Sync::Recovery,
            ResyncOffset::Clean if missing => Sync::Degraded,
            ResyncOffset::Clean => Sync::AssumedClean,
        };
    }
    // What this release creates it must be able to serve.
    let geometry =
        Geometry::new(first.level, first.layout, first.raid_disks, first.chunk, first.size)
            .map_err(Failure::usage)?;

    Ok(Planned { writes: writes(places, &supers)?, geometry, sync })
}

/// What the options say, before any member is looked at.
fn described(arguments: &Create) -> Result<NewArray, Failure> {
    let level = match arguments.level.parse() {
        Ok(level @ (Level::Raid4 | Level::Raid5 | Level::Raid6)) => level,
        _ => {
            return Err(Failure::usage(format!(
                "--level: found {}, expected 4, 5 or 6; this release creates no others",
                arguments.level
            )));
        }
    };
    let minor = match arguments.metadata.as_str() {
        "1.0" => Minor::V1_0,
        "1.1" => Minor::V1_1,
        "1" | "1.2" | "default" => Minor::V1_2,
        other => {
            return Err(Failure::usage(format!(
                "--metadata: found {other}, expected 1.0, 1.1 or 1.2; this release writes no others"
            )));
        }
    };
    let layout = match &arguments.layout {
        None => None,
        Some(_) if level == Level::Raid4 => {
            return Err(Failure::usage("--layout: raid4 has none; leave the option out"));
        }
        Some(text) => Some(layout_id::parse(level, text).ok_or_else(|| {
            Failure::usage(format!(
                "--layout: found {text}, expected one of {level} by mdadm's name or number, as in \
                 left-symmetric or ls"
            ))
        })?),
    };
    if let Some(bitmap) = arguments.bitmap.as_deref().filter(|bitmap| *bitmap != "none") {
        return Err(Failure::usage(format!(
            "--bitmap: found {bitmap}, expected none; this release keeps no bitmap"
        )));
    }
    if let Some(policy) = arguments.consistency_policy.as_deref().filter(|it| *it != "resync") {
        return Err(Failure::usage(format!(
            "--consistency-policy: found {policy}, expected resync; this release has no other"
        )));
    }
    let (slots, spares) = (arguments.raid_devices, arguments.spare_devices);
    let (found, expected) = (arguments.members.len(), slots.saturating_add(spares));
    if found != expected {
        return Err(Failure::usage(format!(
            "members: found {found}, expected {expected} (--raid-devices {slots} and \
             --spare-devices {spares}); 'missing' stands for a slot to leave empty"
        )));
    }
    let set_uuid = match &arguments.uuid {
        None => random_uuid()?,
        Some(text) => text.parse().map_err(|error| Failure::usage(format!("--uuid: {error}")))?,
    };
    if set_uuid.is_nil() {
        return Err(Failure::usage("--uuid: found all zeros, which names no array"));
    }
    let name = match &arguments.name {
        None => format!("weft-{}", &set_uuid.to_string()[..8]),
        Some(name) => legal_name(name)?,
    };
    Ok(NewArray {
        minor,
        layout,
        chunk: Some(legal_chunk(arguments.chunk)?),
        size: arguments.size.map(|size| whole_sectors("--size", size)).transpose()?,
        set_uuid,
        name: with_host(&name),
        ctime: MdTime::from_secs(when::epoch_secs()),
        assume_clean: arguments.assume_clean,
        force: arguments.force,
        ..NewArray::new(level, Vec::new())
    })
}

fn legal_name(name: &str) -> Result<String, Failure> {
    let printable = name.bytes().all(|byte| byte.is_ascii_graphic() && byte != b'/');
    if printable && !name.is_empty() && name.len() <= 32 {
        return Ok(name.to_owned());
    }
    Err(Failure::usage(format!(
        "--name: found {name:?}, expected 1 to 32 printable ASCII characters without '/' and spaces"
    )))
}

/// mdadm's homehost: it opens arrays of this host by their short name.
fn with_host(name: &str) -> String {
    let host = when::hostname();
    if name.contains(':') || host.is_empty() || !host.is_ascii() || host.len() + name.len() > 30 {
        name.to_owned()
    } else {
        format!("{host}:{name}")
    }
}

/// Source   md-raid.md §2.1: a power of two of at least a page, in 32 bits of sectors
fn legal_chunk(bytes: Bytes) -> Result<Sectors, Failure> {
    if bytes.0.is_power_of_two() && (4096..2 << 30).contains(&bytes.0) {
        return Ok(bytes.sectors_floor());
    }
    Err(Failure::usage(format!(
        "--chunk: found {}, expected a power of two, at least 4 KiB and less than 2 GiB",
        size::human(bytes)
    )))
}

fn whole_sectors(option: &str, bytes: Bytes) -> Result<Sectors, Failure> {
    let sectors = bytes.sectors_floor();
    if sectors == Sectors::ZERO || sectors.bytes() != bytes {
        return Err(Failure::usage(format!(
            "{option}: found {bytes}, expected a multiple of 512 and more than none"
        )));
    }
    Ok(sectors)
}

fn random_uuid() -> Result<Uuid, Failure> {
    let mut bytes = [0; 16];
    getrandom::fill(&mut bytes)
        .map_err(|error| Failure::failed(format!("random numbers: {error}")))?;
    Ok(Uuid(bytes))
}

/// Devices and their present content, by position. Nothing is changed.
fn places(arguments: &Create) -> Result<Vec<Place>, Failure> {
    let mut places: Vec<Place> = Vec::with_capacity(arguments.members.len());
    for argument in &arguments.members {
        let place = match argument {
            MemberArg::Missing => Place::Missing,
            MemberArg::Ram(..) => {
                return Err(Failure::usage(format!(
                    "{argument}: memory would be gone when create ends; name a file or device"
                )));
            }
            MemberArg::Path(path) => place(path, arguments.member_size)?,
        };
        for other in &places {
            let same = match (other, &place) {
                (Place::Old { looked: a, .. }, Place::Old { looked: b, .. }) if a.overlaps(b) => {
                    return Err(Failure::usage(look::twice(b, a)));
                }
                (Place::New { path: a, .. }, Place::New { path: b, .. }) => {
                    std::path::absolute(a).ok() == std::path::absolute(b).ok()
                }
                _ => false,
            };
            if same {
                return Err(Failure::usage(format!(
                    "{argument}: named twice; name each member once"
                )));
            }
        }
        places.push(place);
    }
    Ok(places)
}

fn place(path: &Path, member_size: Option<Bytes>) -> Result<Place, Failure> {
    let label = member::label(path);
    // Nothing is lost when an empty file is made larger.
    let is_part = MemberSpec::path(path).is_part();
    let absent = !is_part
        && match std::fs::metadata(path) {
            Ok(metadata) => metadata.is_file() && metadata.len() == 0,
            Err(error) => {
                if error.kind() == std::io::ErrorKind::NotFound && path.is_symlink() {
                    return Err(Failure::failed(format!("{label}: a symbolic link to nothing")));
                }
                error.kind() == std::io::ErrorKind::NotFound
            }
        };
    if !absent {
        let looked = Looked::open(path)?;
        if let Some(asked) = member_size.filter(|asked| *asked != looked.size.bytes()) {
            let found = size::human(looked.size.bytes());
            complain(&format!(
                "{label}: exists with {found} and stays so; --member-size {} is for members to be \
                 made",
                size::human(asked)
            ));
        }
        return Ok(Place::Old { path: path.to_owned(), looked });
    }
    let Some(bytes) = member_size else {
        return Err(Failure::failed(format!(
            "{label}: no such file, or an empty one; --member-size SIZE makes it"
        )));
    };
    let size = whole_sectors("--member-size", bytes)?;
    Ok(Place::New { path: path.to_owned(), label, size })
}

fn refuse_foreign(places: &[Place]) -> Result<(), Failure> {
    let mut found = Vec::new();
    for place in places {
        if let Place::Old { looked, .. } = place
            && let Some(foreign) = looked.foreign()?
        {
            found.push(format!(
                "{}: signature at byte {}: found {}, expected an empty member",
                looked.label, foreign.byte, foreign.name
            ));
        }
    }
    match found.as_slice() {
        [] => Ok(()),
        found => Err(Failure::refused(format!(
            "{}; nothing was written; --force overwrites what is there",
            found.join("\nweft: ")
        ))),
    }
}

/// Slots and spares, as the plan takes them.
fn members_of(
    places: &[Place],
    slots: usize,
) -> Result<(Vec<Option<NewMember>>, Vec<NewMember>), Failure> {
    let mut members = Vec::with_capacity(places.len());
    for place in places {
        members.push(match place {
            Place::Missing => None,
            Place::New { size, .. } => Some(NewMember { size: *size, device_uuid: random_uuid()? }),
            Place::Old { looked, .. } => {
                Some(NewMember { size: looked.size, device_uuid: random_uuid()? })
            }
        });
    }
    let spares: Option<Vec<NewMember>> =
        members.split_off(slots.min(members.len())).into_iter().collect();
    let spares = spares
        .ok_or_else(|| Failure::usage("missing: found among the spares, expected in a slot"))?;
    if members.iter().all(Option::is_none) {
        return Err(Failure::usage("missing: found in every slot, expected a member in some"));
    }
    Ok((members, spares))
}

fn plan(array: &NewArray, places: &[Place]) -> Result<Vec<Super1>, Failure> {
    array.plan().map_err(|error| match error {
        weft_ondisk::CreateError::TooSmall { member, found, expected } => {
            let present = places.iter().filter_map(Place::label).nth(member);
            Failure::failed(format!(
                "{}: size: found {}, expected at least {} for data and metadata; use larger \
                 members, or a smaller --chunk or --size",
                present.unwrap_or("member"),
                size::human(found.bytes()),
                size::human(expected.bytes()),
            ))
        }
        other => Failure::usage(other),
    })
}

impl Place {
    fn label(&self) -> Option<&str> {
        match self {
            Self::Missing => None,
            Self::New { label, .. } => Some(label),
            Self::Old { looked, .. } => Some(&looked.label),
        }
    }
}

/// Whether the data of every slot reads as zeros because nothing was ever written there.
fn all_holes(places: &[Place], slots: usize, supers: &[Super1]) -> bool {
    let slotted = places.iter().take(slots).filter(|place| !matches!(place, Place::Missing));
    slotted.zip(supers).all(|(place, superblock)| match place {
        Place::Missing | Place::New { .. } => true,
        Place::Old { looked, .. } => looked.is_hole(superblock.data_offset, superblock.size),
    })
}

fn writes(places: Vec<Place>, supers: &[Super1]) -> Result<Vec<Write1>, Failure> {
    let present = places.into_iter().filter(|place| !matches!(place, Place::Missing));
    let mut writes = Vec::with_capacity(supers.len());
    for (place, superblock) in present.zip(supers) {
        let superblock = superblock.clone();
        writes.push(match place {
            Place::Missing => continue,
            Place::New { path, label, size } => {
                let (erase, kept) = (Vec::new(), Vec::new());
                Write1 { path, label, make: Some(size.bytes()), superblock, erase, kept }
            }
            Place::Old { path, looked } => {
                let own = superblock.super_offset;
                let mut erase = looked.superblock_places()?;
                let mut kept = Vec::new();
                for foreign in looked.every_foreign()? {
                    let block = block_of(foreign.byte, looked.size);
                    if block == own || erase.contains(&block) {
                        continue;
                    }
                    if overlaps_data(block, &superblock) {
                        kept.push(foreign);
                    } else {
                        erase.push(block);
                    }
                }
                erase.retain(|place| *place != own);
                Write1 { path, label: looked.label, make: None, superblock, erase, kept }
            }
        });
    }
    Ok(writes)
}

/// The block of the size of a superblock that holds a signature.
fn block_of(byte: u64, member_size: Sectors) -> Sectors {
    let blocks = SUPER_BYTES as u64;
    let last = member_size.0.saturating_sub(Bytes(blocks).sectors_floor().0);
    Sectors(Bytes(byte / blocks * blocks).sectors_floor().0.min(last))
}

/// Whether it would be data of the array, which no superblock says anything about: with metadata at
/// the end, the first block of a file system on the array is the first block of a member.
fn overlaps_data(block: Sectors, superblock: &Super1) -> bool {
    let end = block.0 + Bytes(SUPER_BYTES as u64).sectors_floor().0;
    let data = superblock.data_offset.0;
    end > data && block.0 < data + superblock.data_size.0
}

/// A member that is open for writing, and what was on it before.
struct Opened<'a> {
    member: OpenMember,
    write: &'a Write1,
    /// Contents of every block to be overwritten.
    before: Vec<(Sectors, Vec<u8>)>,
}

fn write_all(writes: &[Write1]) -> Result<(), Failure> {
    let mut made = Vec::new();
    let mut opened = Vec::with_capacity(writes.len());
    let result = make_files(writes, &mut made)
        .and_then(|()| open_for_writing(writes, &mut opened))
        .and_then(|()| put(&opened));
    if result.is_err() {
        put_back(&opened, &made);
    }
    result
}

/// Makes the files that are to be made, and notes which to remove again.
fn make_files(writes: &[Write1], made: &mut Vec<PathBuf>) -> Result<(), Failure> {
    for write in writes {
        let failed = |error: std::io::Error| Failure::failed(format!("{}: {error}", write.label));
        let Some(bytes) = write.make else { continue };
        let file = match File::create_new(&write.path) {
            Ok(file) => {
                made.push(write.path.clone());
                file
            }
            // One that is there and empty.
            Err(error) if error.kind() == ErrorKind::AlreadyExists => {
                let file = File::options().write(true).open(&write.path).map_err(failed)?;
                if file.metadata().map_err(failed)?.len() != 0 {
                    return Err(Failure::refused(format!(
                        "{}: was made by somebody else meanwhile; nothing was written; try again",
                        write.label
                    )));
                }
                file
            }
            Err(error) => return Err(failed(error)),
        };
        file.set_len(bytes.0).map_err(failed)?;
    }
    Ok(())
}

fn open_for_writing<'a>(writes: &'a [Write1], opened: &mut Vec<Opened<'a>>) -> Result<(), Failure> {
    let options = OpenOptions {
        buffered: true,
        lock_wait: Duration::ZERO,
        ..OpenOptions::new(Access::ReadWrite)
    };
    for (write, index) in writes.iter().zip(0..) {
        let others = opened.iter().map(|opened| &opened.member);
        let member = options
            .open(&volume::spec(&write.path), MemberIndex(index), others)
            .map_err(|error| volume::device(&error))?;
        let mut before = Vec::new();
        if write.make.is_none() {
            let own = write.superblock.super_offset;
            for place in std::iter::once(&own).chain(&write.erase) {
                let block = member.read(*place, SUPER_BYTES);
                let block =
                    block.map_err(|error| Failure::failed(format!("{}: {error}", write.label)))?;
                before.push((*place, block.as_ref().to_vec()));
            }
        }
        opened.push(Opened { member, write, before });
    }
    Ok(())
}

fn put(opened: &[Opened<'_>]) -> Result<(), Failure> {
    for Opened { member, write, .. } in opened {
        let failed = |error: std::io::Error| Failure::failed(format!("{}: {error}", write.label));
        for place in &write.erase {
            write_at(member, *place, &[0; SUPER_BYTES]).map_err(failed)?;
        }
        let superblock = &write.superblock;
        write_at(member, superblock.super_offset, &superblock.encode()).map_err(failed)?;
    }
    for Opened { member, write, .. } in opened {
        let failed = |error: Errno| Failure::failed(format!("{}: {error}", write.label));
        rustix::fs::fsync(member).map_err(failed)?;
        if write.make.is_some() {
            let parent = match write.path.parent() {
                Some(parent) if parent != Path::new("") => parent,
                _ => Path::new("."),
            };
            // Some file systems do not flush directories; the file itself is safe.
            let _ = File::open(parent).and_then(|directory| directory.sync_all());
        }
    }
    Ok(())
}

fn write_at(member: &OpenMember, at: Sectors, bytes: &[u8]) -> std::io::Result<()> {
    let mut written = 0;
    while written < bytes.len() {
        let offset = member.start().0 + at.bytes().0 + written as u64;
        match rustix::io::pwrite(member, &bytes[written..], offset) {
            Ok(0) => return Err(ErrorKind::WriteZero.into()),
            Ok(count) => written += count,
            Err(Errno::INTR) => {}
            Err(errno) => return Err(errno.into()),
        }
    }
    Ok(())
}

/// Undoes what was done, so that a failure leaves no half of an array.
fn put_back(opened: &[Opened<'_>], made: &[PathBuf]) {
    for Opened { member, write, before } in opened {
        for (place, block) in before {
            if let Err(error) = write_at(member, *place, block) {
                complain(&format!("{}: putting back what was there: {error}", write.label));
            }
        }
        let _ = rustix::fs::fsync(member);
    }
    for path in made {
        let _ = std::fs::remove_file(path);
    }
}

impl Sync {
    fn name(self) -> &'static str {
        match self {
            Self::AssumedClean | Self::Degraded | Self::Holes => "none",
            Self::Recovery => "recovery",
            Self::Resync => "resync",
        }
    }

    fn reason(self) -> &'static str {
        match self {
            Self::AssumedClean => "--assume-clean says that parity is right already",
            Self::Degraded => "slots are missing; parity is made as data is written",
            Self::Holes => {
                "the members are all holes, which read as zeros, and the parity of zeros is zero"
            }
            Self::Recovery => "serve fills the last member from the others",
            Self::Resync => "serve makes parity agree with the data",
        }
    }
}

/// Who a member of the plan is, for people.
fn role_text(superblock: &Super1, sync: Sync) -> String {
    match superblock.own_role() {
        Ok(Role::Active(slot)) => format!("slot {}", slot.0),
        Ok(Role::Spare)
            if sync == Sync::Recovery && superblock.dev_number > superblock.raid_disks - 1 =>
        {
            "spare".to_owned()
        }
        Ok(role) => role.to_string(),
        Err(error) => error.to_string(),
    }
}

fn print_text(
    arguments: &Create,
    writes: &[Write1],
    geometry: &Geometry,
    sync: Sync,
) -> Result<(), Failure> {
    let mut out = stdout();
    let Some(first) = writes.first().map(|write| &write.superblock) else { return Ok(()) };
    let layout = layout_id::name(first.level, first.layout);
    let would = if arguments.dry_run { "would create" } else { "created" };
    writeln!(
        out,
        "{would} {} ({}): {}, {} of {} each, chunk {}{}; {} for data",
        first.name(),
        first.set_uuid,
        first.level,
        counted(geometry.members().into(), "member"),
        size::human(geometry.member_size().bytes()),
        size::human(first.chunk.bytes()),
        layout.map(|layout| format!(", {layout}")).unwrap_or_default(),
        size::human(geometry.array_size().bytes()),
    )?;
    for write in writes {
        let superblock = &write.superblock;
        let role = role_text(superblock, sync);
        writeln!(out, "  {role:<8} {}", write.label)?;
        for foreign in &write.kept {
            writeln!(
                out,
                "           {} at byte {} stays: it is where data is, and may be taken for content",
                foreign.name, foreign.byte
            )?;
        }
        if !arguments.dry_run {
            continue;
        }
        if let Some(bytes) = write.make {
            writeln!(out, "           make a sparse file of {} bytes", bytes.0)?;
        }
        for place in &write.erase {
            let at = place.bytes().0;
            writeln!(out, "           write zeros, bytes {at}..{}", at + SUPER_BYTES as u64)?;
        }
        let at = superblock.super_offset.bytes().0;
        writeln!(
            out,
            "           write superblock {}, bytes {at}..{}",
            superblock.minor,
            at + SUPER_BYTES as u64
        )?;
        let data = superblock.data_offset.bytes().0;
        let end = data + geometry.member_size().bytes().0;
        writeln!(out, "           data will be at bytes {data}..{end}")?;
    }
    let missing = missing_slots(arguments);
    for slot in &missing {
        writeln!(out, "  slot {slot:<3} missing")?;
    }
    if !missing.is_empty() {
        let all = usize::from(geometry.members());
        writeln!(
            out,
            "degraded: {} of {all} slots are filled; weft add fills more",
            all - missing.len()
        )?;
    }
    writeln!(out, "initial sync: {}; {}", sync.name(), sync.reason())?;
    if arguments.dry_run {
        writeln!(out, "nothing was written")?;
    } else {
        let members: Vec<String> =
            writes.iter().map(|write| crate::terminal::quoted(write.path.as_os_str())).collect();
        writeln!(out, "next: weft serve {}", members.join(" "))?;
    }
    out.flush()?;
    Ok(())
}

/// Slots that are left empty.
fn missing_slots(arguments: &Create) -> Vec<usize> {
    let slotted = arguments.members.iter().take(arguments.raid_devices).enumerate();
    slotted.filter(|(_, it)| matches!(it, MemberArg::Missing)).map(|(slot, _)| slot).collect()
}

/// `1 member`, `2 members`.
fn counted(count: u64, what: &str) -> String {
    if count == 1 { format!("1 {what}") } else { format!("{count} {what}s") }
}

fn to_json(arguments: &Create, writes: &[Write1], geometry: &Geometry, sync: Sync) -> Value {
    let members: Vec<Value> = writes
        .iter()
        .map(|write| {
            let superblock = &write.superblock;
            let role = superblock.own_role();
            let erased: Vec<u64> = write.erase.iter().map(|place| place.bytes().0).collect();
            json!({
                "member": write.label,
                "slot": role.as_ref().ok().and_then(|role| match role {
                    Role::Active(slot) => Some(slot.0),
                    Role::Faulty | Role::Journal | Role::Spare => None,
                }),
                "device_number": superblock.dev_number,
                "device_uuid": superblock.device_uuid.to_string(),
                "make_bytes": write.make.map(|bytes| bytes.0),
                "erase_offsets_bytes": erased,
                "super_offset_bytes": superblock.super_offset.bytes().0,
                "super_bytes": SUPER_BYTES,
                "data_offset_bytes": superblock.data_offset.bytes().0,
                "data_bytes": geometry.member_size().bytes().0,
            })
        })
        .collect();
    let first = writes.first().map(|write| &write.superblock);
    json!({
        "schema": "weft.create/1",
        "dry_run": arguments.dry_run,
        "name": first.map(Super1::name),
        "uuid": first.map(|superblock| superblock.set_uuid.to_string()),
        "level": geometry.level().name(),
        "layout": layout_id::name(geometry.level(), geometry.layout()),
        "metadata": first.map(|superblock| superblock.minor.to_string()),
        "raid_devices": geometry.members(),
        "spare_devices": arguments.spare_devices,
        "chunk_bytes": geometry.chunk().bytes().0,
        "array_bytes": geometry.array_size().bytes().0,
        "initial_sync": sync.name(),
        "initial_sync_reason": sync.reason(),
        "missing_slots": missing_slots(arguments),
        "members": members,
    })
}
