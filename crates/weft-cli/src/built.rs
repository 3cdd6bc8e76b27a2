//! Array with its geometry given by hand, which `weft build` uses in place of superblocks.
//!
//! Each member gets a superblock in memory with the given geometry, so that the assembly and
//! everything after it are the same as for any other array. These superblocks are never written.

use clap::Args;
use weft_engine::assemble::Candidate;
use weft_ondisk::layout_id::Layouts;
use weft_ondisk::{Level, Minor, NewArray, NewMember, Redundancy, Super1, Uuid};
use weft_terminal::outcome::Failure;
use weft_units::{Bytes, Sectors};

use crate::size;

/// Options that describe the geometry of an array.
#[derive(Clone, Debug, Args)]
pub(crate) struct GeometryOptions {
    /// RAID level: linear, 0, 1, 4, 5, 6 or 10
    #[arg(short, long)]
    pub(crate) level: String,
    /// Slots of the array, as many as members and missing ones are named
    #[arg(short = 'n', long, value_name = "COUNT")]
    pub(crate) raid_devices: Option<usize>,
    /// Bytes on one member before data goes on to the next; a plain number is KiB. RAID 1 and
    /// linear have none, all others need it
    #[arg(short, long, value_name = "SIZE", value_parser = size::kib)]
    pub(crate) chunk: Option<Bytes>,
    /// Where parity or copies go, as for create: left-symmetric or ls and others for RAID 5 and 6;
    /// n2, f2 or o2 and others for RAID 10; original or alternate for RAID 0 [default:
    /// left-symmetric, n2, original]
    #[arg(short = 'p', long)]
    pub(crate) layout: Option<String>,
    /// Bytes of each member to use [default: all of the smallest]; a plain number is KiB. RAID 0
    /// and linear use all of each member
    #[arg(short = 'z', long, value_parser = size::kib)]
    pub(crate) size: Option<Bytes>,
    /// First byte of the data on each member; a plain number is KiB
    #[arg(long, value_name = "SIZE", default_value = "0", value_parser = size::kib)]
    pub(crate) data_offset: Bytes,
}

/// Geometry of an array, and which of its slots have a member.
#[derive(Clone, Debug)]
pub(crate) struct Built {
    level: Level,
    layout: u32,
    chunk: Sectors,
    size: Option<Sectors>,
    data_offset: Sectors,
    /// Whether each slot has a member, by slot. Members are named in the order of their slots.
    slots: Vec<bool>,
}

impl Built {
    /// Checks the options, and returns the geometry that they describe. `slots` says of each slot
    /// whether it has a member.
    ///
    /// # Errors
    /// An option has an invalid value, or a value that does not fit the level.
    pub(crate) fn of(options: &GeometryOptions, slots: Vec<bool>) -> Result<Self, Failure> {
        let level: Level = options.level.parse().map_err(|_| {
            let (found, expected) = (&options.level, Level::listed());
            Failure::usage(format!("--level: found {found}, expected {expected}"))
        })?;
        if let Some(expected) = options.raid_devices.filter(|count| *count != slots.len()) {
            let found = slots.len();
            return Err(Failure::usage(format!(
                "members: found {found}, expected {expected} (--raid-devices); 'missing' stands \
                 for one that is not here"
            )));
        }
        let layouts = level.row().layouts;
        let layout = match options.layout.as_deref() {
            None => layouts.default_number(),
            Some(text) => layouts
                .parse(text)
                .filter(|number| layouts != Layouts::Zones || *number > 0)
                .ok_or_else(|| {
                    Failure::usage(format!(
                        "--layout: found {text}, expected a layout of {level}, as for create"
                    ))
                })?,
        };
        let whole = |option: &str, bytes: Bytes| match bytes.sectors_floor() {
            sectors if sectors.bytes() == bytes => Ok(sectors),
            _ => Err(Failure::usage(format!(
                "{option}: found {bytes}, expected a multiple of 512 bytes"
            ))),
        };
        let chunk = match options.chunk {
            None if level.is_striped() => {
                return Err(Failure::usage(format!(
                    "--chunk: found none, expected the chunk of the {level}, such as 64K or 512K; \
                     weft rescue --try finds it"
                )));
            }
            chunk => whole("--chunk", chunk.unwrap_or(Bytes::ZERO))?,
        };
        let size = options.size.map(|size| whole("--size", size)).transpose()?;
        let data_offset = whole("--data-offset", options.data_offset)?;
        Ok(Self { level, layout, chunk, size, data_offset, slots })
    }

    /// Candidates for the members in `found`, each with a superblock in memory that has this
    /// geometry, in place of any superblock on it.
    ///
    /// # Errors
    /// The geometry does not fit the members.
    pub(crate) fn candidates(&self, found: Vec<Candidate>) -> Result<Vec<Candidate>, Failure> {
        let mut members = Vec::new();
        for candidate in found {
            let mut member = candidate.member;
            member.size = candidate.cut_at.unwrap_or(member.size);
            if member.size <= self.data_offset {
                return Err(Failure::usage(format!(
                    "{}: found {}, expected more than --data-offset, {}",
                    member.label,
                    size::human(member.size.bytes()),
                    size::human(self.data_offset.bytes())
                )));
            }
            members.push(member);
        }
        let rest: Vec<Sectors> =
            members.iter().map(|member| Sectors(member.size.0 - self.data_offset.0)).collect();
        let superblocks = self.superblocks(&rest)?;
        let pairs = members.into_iter().zip(superblocks);
        Ok(pairs.map(|(member, it)| Candidate::with_superblock(member, it)).collect())
    }

    /// Superblocks for the members that are present. `rest` is the number of sectors of each of
    /// them from the data offset on.
    fn superblocks(&self, rest: &[Sectors]) -> Result<Vec<Super1>, Failure> {
        let smallest = rest.iter().copied().min().unwrap_or_default();
        if let Some(found) = self.size.filter(|size| *size > smallest) {
            return Err(Failure::usage(format!(
                "--size: found {}, expected at most {}, what the smallest member has behind \
                 --data-offset",
                size::human(found.bytes()),
                size::human(smallest.bytes())
            )));
        }
        let used = match self.level.row().redundancy {
            Redundancy::None => None,
            Redundancy::Mirror => Some(self.size.unwrap_or(smallest)),
            Redundancy::Copies | Redundancy::Parity(_) => {
                Some(self.size.unwrap_or(smallest).round_down(self.chunk))
            }
        };
        // The plan asks for room behind the data, for a superblock. The room is never used.
        let mut numbered = rest.iter().zip(1_u8..).map(|(size, number)| NewMember {
            size: Sectors(size.0 + ROOM.0),
            device_uuid: Uuid([number; 16]),
        });
        let slots = self.slots.iter().map(|is_here| is_here.then(|| numbered.next()).flatten());
        let array = NewArray {
            minor: Minor::V1_0,
            layout: Some(self.layout),
            chunk: self.level.is_striped().then_some(self.chunk),
            size: if self.level.uses_size() { used.or(self.size) } else { self.size },
            set_uuid: UUID,
            name: "built".to_owned(),
            slots: slots.collect(),
            assume_clean: true,
            ..NewArray::new(self.level, Vec::new())
        };
        let plan = array.plan().map_err(|error| Failure::usage(error.to_string()))?;
        let own = |(planned, rest): (Super1, &Sectors)| Super1 {
            data_offset: self.data_offset,
            data_size: *rest,
            bblog_offset: 0,
            bblog_size: 0,
            ..planned
        };
        Ok(plan.into_iter().zip(rest).map(own).collect())
    }
}

/// Number of sectors that the plan of the array assumes behind the data of each member, as room for
/// a superblock: 1 GiB.
const ROOM: Sectors = Sectors(1 << 21);

/// UUID of every array that has its geometry given by hand.
const UUID: Uuid = Uuid(*b"weft built array");
