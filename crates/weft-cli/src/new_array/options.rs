//! Options of a new array, and their check before any member is opened.

use clap::Args;
use rustix::rand::{GetRandomFlags, getrandom};
use weft_ondisk::layout_id::Layouts;
use weft_ondisk::{Level, MdTime, Minor, NewArray, NewBitmap, Uuid};
use weft_terminal::outcome::Failure;
use weft_units::{Bytes, Sectors};

use crate::member::MemberArg;
use crate::{size, when};

/// Options that describe a new array.
#[derive(Debug, Args)]
pub(crate) struct NewArrayOptions {
    /// RAID level: linear, 0, 1, 4, 5, 6 or 10
    #[arg(short, long)]
    pub(crate) level: String,
    /// Slots of the array, copies and parity included
    #[arg(short = 'n', long, value_name = "COUNT")]
    pub(crate) raid_devices: usize,
    /// Bytes on one member before data goes on to the next; a plain number is KiB. RAID 1 and
    /// linear have none [default: 64K for RAID 4, 5 and 6 of block devices that are all SSDs, else
    /// 512K as mdadm]
    #[arg(short, long, value_name = "SIZE", value_parser = size::kib)]
    pub(crate) chunk: Option<Bytes>,
    /// Where parity or copies go, by mdadm's name: left-symmetric or ls and others for RAID 5 and
    /// 6; n2, f2 or o2 (near, far, offset) and other counts of copies for RAID 10; original or
    /// alternate for RAID 0 [default: left-symmetric, n2, original]
    #[arg(short = 'p', long)]
    pub(crate) layout: Option<String>,
    /// Version of the superblocks: 1.0 (at the end), 1.1 (at the start) or 1.2 (at 4 KiB)
    #[arg(short = 'e', long, value_name = "VERSION", default_value = "1.2")]
    pub(crate) metadata: String,
    /// Bytes of each member to use [default: all of the smallest]; a plain number is KiB. RAID 0
    /// and linear use all of each member
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
    /// Trust that copies, or parity, on the members are right already
    #[arg(long)]
    pub(crate) assume_clean: bool,
    /// Make members that do not exist, as sparse files of this size
    #[arg(long, value_name = "SIZE", value_parser = size::with_unit)]
    pub(crate) member_size: Option<Bytes>,
    /// Overwrite what is found on the members, do not rebuild the last one as a spare, and allow
    /// one member
    #[arg(short, long)]
    pub(crate) force: bool,
    /// Write-intent bitmap: internal or none [default: internal where members have more than 100
    /// GiB of data and the level has redundancy]
    #[arg(short, long)]
    pub(crate) bitmap: Option<String>,
    /// Data for which one bit of the bitmap stands [default: 64 MiB, or what fits]
    #[arg(long, value_name = "SIZE", value_parser = size::with_unit)]
    pub(crate) bitmap_chunk: Option<Bytes>,
    /// Consistency policy, as for mdadm: resync, or bitmap with --bitmap internal
    #[arg(short = 'k', long, hide = true)]
    pub(crate) consistency_policy: Option<String>,
    /// Members of RAID 1 that are read only when no other can be: those named behind this option,
    /// which take the slots after the others
    #[arg(short = 'W', long, value_name = "MEMBER", num_args = 1.., value_parser = MemberArg::parser())]
    pub(crate) write_mostly: Vec<MemberArg>,
    /// Answer writes before write-mostly members have them: weft never does
    #[arg(long, value_name = "COUNT", hide = true, num_args = 0..=1, default_missing_value = "256")]
    pub(crate) write_behind: Option<String>,
    /// PATH, PATH#N (partition N) or PATH@OFFSET[+LENGTH], slot after slot, then spares; 'missing'
    /// leaves a slot empty
    #[arg(value_name = "MEMBER", required = true, value_parser = MemberArg::parser())]
    pub(crate) members: Vec<MemberArg>,
}

impl NewArrayOptions {
    /// Members in order of slots, then spares; each with its write-mostly flag.
    pub(crate) fn members(&self) -> impl Iterator<Item = (&MemberArg, bool)> {
        let plain = self.members.iter().map(|member| (member, false));
        plain.chain(self.write_mostly.iter().map(|member| (member, true)))
    }
}

/// Checks the number of members, and that the level supports the flags.
fn check_members(arguments: &NewArrayOptions, level: Level) -> Result<(), Failure> {
    if arguments.write_behind.is_some() {
        return Err(Failure::usage(
            "--write-behind: weft answers a write when every member has it; leave the option out",
        ));
    }
    if !level.is_mirror() && !arguments.write_mostly.is_empty() {
        return Err(Failure::usage(format!(
            "--write-mostly: found {level}, expected raid1, which has a choice of members to read"
        )));
    }
    let (slots, spares) = (arguments.raid_devices, arguments.spare_devices);
    if slots == 1 && !arguments.force {
        return Err(Failure::usage(
            "--raid-devices: found 1, expected 2 or more; --force makes an array of one member",
        ));
    }
    let (found, expected) = (arguments.members().count(), slots.saturating_add(spares));
    if found != expected {
        // mdadm names the device of the array first, so the user may have named it here too.
        let device = arguments.members().next().map(|(member, _)| member.to_string());
        let device = device.filter(|name| name.starts_with("/dev/md"));
        let hint = device.map_or_else(
            || "'missing' stands for a slot to leave empty".to_owned(),
            |device| format!("{device} is no member: --name names the array"),
        );
        return Err(Failure::usage(format!(
            "members: found {found}, expected {expected} (--raid-devices {slots} and \
             --spare-devices {spares}); {hint}"
        )));
    }
    Ok(())
}

/// New array as the options describe it, without members.
pub(super) fn described(arguments: &NewArrayOptions) -> Result<NewArray, Failure> {
    let level: Level = arguments.level.parse().map_err(|_| {
        Failure::usage(format!("--level: found {}, expected {}", arguments.level, Level::listed()))
    })?;
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
    let bitmap = match (arguments.bitmap.as_deref(), arguments.consistency_policy.as_deref()) {
        (Some("internal"), None | Some("bitmap")) | (None, Some("bitmap")) => true,
        (Some("none") | None, None | Some("resync")) => false,
        (_, Some(policy)) => {
            return Err(Failure::usage(format!(
                "--consistency-policy: found {policy}, expected resync, or bitmap with --bitmap \
                 internal; this release has no other"
            )));
        }
        (Some(found), None) => {
            return Err(Failure::usage(format!(
                "--bitmap: found {found}, expected internal or none"
            )));
        }
    };
    if arguments.bitmap_chunk.is_some() && !bitmap {
        return Err(Failure::usage("--bitmap-chunk: found no bitmap; add --bitmap internal"));
    }
    check_members(arguments, level)?;
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
        layout: arguments.layout.as_deref().map(|text| legal_layout(level, text)).transpose()?,
        chunk: arguments.chunk.map(|chunk| legal_chunk(level, chunk)).transpose()?,
        size: arguments.size.map(|size| whole_sectors("--size", size)).transpose()?,
        set_uuid,
        name: with_host(&name),
        ctime: MdTime::from_secs(when::epoch_secs()),
        assume_clean: arguments.assume_clean,
        force: arguments.force,
        bitmap: bitmap.then(|| NewBitmap { chunk: arguments.bitmap_chunk, ..NewBitmap::default() }),
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

/// Name of the array with the host before it, as mdadm's homehost has it: mdadm opens arrays of its
/// own host by their short name. A name that has a host, or would be too long, stays as it is.
fn with_host(name: &str) -> String {
    let host = when::hostname();
    if name.contains(':') || host.is_empty() || !host.is_ascii() || host.len() + name.len() > 30 {
        name.to_owned()
    } else {
        format!("{host}:{name}")
    }
}

/// md's number for the layout that the user named. A layout that the level does not have is
/// refused.
fn legal_layout(level: Level, text: &str) -> Result<u32, Failure> {
    let layouts = level.row().layouts;
    let expected = match layouts {
        Layouts::Copies => "nX, fX or oX (near, far, offset) with X copies, as in n2",
        Layouts::Ignored => {
            return Err(Failure::usage(format!(
                "--layout: {level} has none; leave the option out"
            )));
        }
        Layouts::Rotations(_) => {
            "one of the level by mdadm's name or number, as in left-symmetric or ls"
        }
        Layouts::Zones => "original or alternate",
    };
    // An array of RAID 0 with layout 0 runs only if the kernel is told which layout it has.
    let named =
        level.row().layouts.parse(text).filter(|layout| layouts != Layouts::Zones || *layout > 0);
    named.ok_or_else(|| {
        Failure::usage(format!("--layout: found {text}, expected {expected} for {level}"))
    })
}

/// Chunk of the size that the user gave, in sectors. A size that the level does not take is
/// refused.
fn legal_chunk(level: Level, bytes: Bytes) -> Result<Sectors, Failure> {
    let (rule, chunk) = (level.row().chunk, bytes.sectors_floor());
    if rule.is_needed() && chunk.bytes() == bytes && rule.allows_new(chunk) {
        return Ok(chunk);
    }
    let (found, expected) = (size::human(bytes), rule.expected_new());
    let way_out = if rule.is_needed() { "" } else { "; leave the option out" };
    Err(Failure::usage(format!("--chunk: found {found}, expected {expected}{way_out}")))
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
    getrandom(&mut bytes, GetRandomFlags::empty())
        .map_err(|error| Failure::failed(format!("random numbers: {error}")))?;
    Ok(Uuid(bytes))
}
