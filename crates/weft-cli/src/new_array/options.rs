//! The options of a new array, and their check before any member is looked at.

use clap::Args;
use weft_engine::layout::level::{LevelRow, listed};
use weft_ondisk::{Level, MdTime, Minor, NewArray, Uuid, layout_id};
use weft_units::{Bytes, Sectors};

use crate::member::MemberArg;
use crate::outcome::Failure;
use crate::{size, when};

/// What an array is to be like.
#[derive(Debug, Args)]
pub(crate) struct NewArrayOptions {
    /// RAID level: 4, 5 or 6
    #[arg(short, long)]
    pub(crate) level: String,
    /// Slots of the array, parity included
    #[arg(short = 'n', long, value_name = "COUNT")]
    pub(crate) raid_devices: usize,
    /// Bytes on one member before data goes on to the next; a plain number is KiB
    #[arg(short, long, value_name = "SIZE", default_value = "512K", value_parser = size::kib)]
    pub(crate) chunk: Bytes,
    /// Where parity goes, by mdadm's name, as in left-symmetric or ls [default: left-symmetric]
    #[arg(short = 'p', long)]
    pub(crate) layout: Option<String>,
    /// Version of the superblocks: 1.0 (at the end), 1.1 (at the start) or 1.2 (at 4 KiB)
    #[arg(short = 'e', long, value_name = "VERSION", default_value = "1.2")]
    pub(crate) metadata: String,
    /// Bytes of each member to use [default: all of the smallest]; a plain number is KiB
    #[arg(short = 'z', long, value_parser = size::kib)]
    pub(crate) size: Option<Bytes>,
    /// Members without a slot, the last ones named
    #[arg(short = 'x', long, value_name = "COUNT", default_value_t = 0)]
    pub(crate) spare_devices: usize,
    /// Name of the array [default: weft- and a part of its uuid]
    #[arg(short = 'N', long)]
    pub(crate) name: Option<String>,
    /// Identity of the array [default: random]
    #[arg(long)]
    pub(crate) uuid: Option<String>,
    /// Trust that parity on the members is right already
    #[arg(long)]
    pub(crate) assume_clean: bool,
    /// Make members that do not exist, as sparse files of this size
    #[arg(long, value_name = "SIZE", value_parser = size::with_unit)]
    pub(crate) member_size: Option<Bytes>,
    /// Overwrite what is found on the members, and do not rebuild the last one as a spare
    #[arg(short, long)]
    pub(crate) force: bool,
    /// Only none: bitmaps come with a later release.
    #[arg(short, long, hide = true)]
    pub(crate) bitmap: Option<String>,
    /// Only resync.
    #[arg(short = 'k', long, hide = true)]
    pub(crate) consistency_policy: Option<String>,
    /// PATH, PATH#N (partition N) or PATH@OFFSET[+LENGTH], slot after slot, then spares; 'missing'
    /// leaves a slot empty
    #[arg(value_name = "MEMBER", required = true, value_parser = MemberArg::parser())]
    pub(crate) members: Vec<MemberArg>,
}

/// The new array that the options describe, without members.
pub(super) fn described(arguments: &NewArrayOptions) -> Result<NewArray, Failure> {
    let row = arguments.level.parse().ok().map(LevelRow::of).filter(|row| row.writes);
    let Some(row) = row else {
        return Err(Failure::usage(format!(
            "--level: found {}, expected {}; this release creates no others",
            arguments.level,
            listed(Level::code, "or")
        )));
    };
    let level = row.level;
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
        Some(_) if row.layouts.is_empty() => {
            return Err(Failure::usage(format!(
                "--layout: {level} has none; leave the option out"
            )));
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

pub(super) fn whole_sectors(option: &str, bytes: Bytes) -> Result<Sectors, Failure> {
    let sectors = bytes.sectors_floor();
    if sectors == Sectors::ZERO || sectors.bytes() != bytes {
        return Err(Failure::usage(format!(
            "{option}: found {bytes}, expected a multiple of 512 and more than none"
        )));
    }
    Ok(sectors)
}

pub(super) fn random_uuid() -> Result<Uuid, Failure> {
    let mut bytes = [0; 16];
    getrandom::fill(&mut bytes)
        .map_err(|error| Failure::failed(format!("random numbers: {error}")))?;
    Ok(Uuid(bytes))
}
