//! Array of `explain`: its layout, the members in its slots, and ranges of it.

use std::fmt;
use std::io::Write;
use std::path::PathBuf;

use weft_engine::assemble::{Options, SlotState, assemble};
use weft_engine::knobs::{Knobs, TABLE};
use weft_engine::layout::Layout;
use weft_engine::layout::slot_set::SlotSet;
use weft_export::control::Command;
use weft_ondisk::{Level, Superblock};
use weft_terminal::outcome::Failure;
use weft_units::{Bytes, Sectors, Slot};

use crate::assembly::{refusal, tell_dropped};
use crate::look;
use crate::size;
use crate::target::{Target, only_volume};

/// Layout and members of the array that is explained.
pub(super) struct Array {
    pub(super) name: String,
    pub(super) layout: Layout,
    pub(super) slots: Vec<Held>,
    /// Sector from which on redundancy may be wrong: a sector of each member's data or, for
    /// mirrors, of the array. `None` if redundancy is right everywhere.
    pub(super) resync_from: Option<Sectors>,
    pub(super) knobs: Knobs,
}

/// Slot of the array: its member, and the area of the member with the data of the slot.
pub(super) struct Held {
    pub(super) label: Option<String>,
    /// First data sector on the member; `None` if unknown.
    pub(super) data_offset: Option<Sectors>,
    /// Data sectors that the array may use; `None` if unknown.
    used_size: Option<Sectors>,
    /// Number of data sectors, from the first one on, that hold valid data; the largest number for
    /// a member that is in sync.
    pub(super) recovery_offset: Sectors,
    /// Whether the member is write-mostly: data is read from it only if no other member with the
    /// data can be read.
    pub(super) write_mostly: bool,
}

/// Range of sectors of the array. A range in bytes is extended to whole sectors, which are what a
/// request reads or writes.
pub(super) struct Range {
    /// Byte range of the array, as requested.
    pub(super) bytes: std::ops::Range<u64>,
    pub(super) sectors: std::ops::Range<u64>,
}

/// Reason why an array that is being reshaped is not explained.
const RESHAPED: &str = "found an array that is being reshaped, expected one with a single \
                        geometry; weft wait ends when it is done";

impl Array {
    pub(super) fn of_members(paths: &[PathBuf], chosen: Options) -> Result<Self, Failure> {
        let options =
            Options { read_only: true, force_dirty: true, without_journal: true, ..chosen };
        let candidates = look::candidates(&look::open_all(paths)?, &options);
        let assembly = assemble(&candidates, &options)
            .map_err(|refused| refusal(&refused, candidates.len()))?;
        tell_dropped(&assembly.dropped);
        if assembly.reshape.is_some() {
            return Err(Failure::refused(format!("{}: {RESHAPED}", assembly.name)));
        }
        let slots = assembly
            .slots
            .iter()
            .map(|state| match state {
                SlotState::InSync(member) => {
                    let label = member.info.label.clone();
                    Held::of(label, &member.superblock, Sectors(u64::MAX))
                }
                SlotState::Missing => Held::missing(),
                SlotState::Rebuilding { member, recovery_offset } => {
                    let label = member.info.label.clone();
                    Held::of(label, &member.superblock, *recovery_offset)
                }
            })
            .collect();
        Ok(Self {
            name: assembly.name.clone(),
            layout: assembly.layout,
            slots,
            resync_from: assembly.resync_from,
            knobs: Knobs::default(),
        })
    }

    pub(super) fn of_target(name: &str) -> Result<Self, Failure> {
        let mut target = Target::connect(name)?;
        let status = target.status()?;
        let volume = only_volume(name, &status)?;
        let mut knobs = Knobs::default();
        let names = TABLE.iter().map(|row| row.name.to_owned()).collect();
        for (knob, value) in target.ask(Command::Get { knobs: names })?.knobs {
            knobs.set(knobs.parse(&knob, &value).map_err(Failure::failed)?);
        }
        let Some(array) = &volume.array else {
            return Err(Failure::failed(format!("{name}: a bare member, which has no stripes")));
        };
        if volume.reshape.is_some() {
            return Err(Failure::refused(format!("{name}: {RESHAPED}")));
        }
        let mut slots: Vec<Held> = (0..volume.slots).map(|_| Held::missing()).collect();
        for member in &volume.members {
            let held = member.slot.and_then(|slot| slots.get_mut(usize::from(slot)));
            let (Some(held), "in_sync" | "rebuilding") = (held, member.state.as_str()) else {
                continue;
            };
            *held = Held {
                label: Some(member.label.clone()),
                data_offset: member.data_offset.map(Sectors),
                used_size: member.data_sectors.map(Sectors),
                recovery_offset: member.recovery_offset.map_or(Sectors(u64::MAX), Sectors),
                write_mostly: member.write_mostly,
            };
        }
        let failed = |error: &dyn fmt::Display| Failure::failed(format!("{name}: {error}"));
        let level = Level::from_code(array.level).ok_or_else(|| failed(&"a level unknown here"))?;
        let members = u32::try_from(volume.slots).map_err(|error| failed(&error))?;
        let (chunk, size) = (Bytes(array.chunk), Bytes(array.member_size));
        let sizes: Vec<Sectors> = slots.iter().filter_map(|held| held.used_size).collect();
        let layout = Layout::new(
            level,
            array.layout,
            members,
            chunk.sectors_floor(),
            size.sectors_floor(),
            &sizes,
        )
        .map_err(|error| failed(&error))?;
        let resync_from = volume.resync_from.map(Sectors);
        Ok(Self { name: volume.name.clone(), layout, slots, resync_from, knobs })
    }

    pub(super) fn range(&self, texts: &[String]) -> Result<Range, Failure> {
        let parse = |text: &String| size::bytes(text).map(|bytes| bytes.0).map_err(Failure::Usage);
        let offset = texts.first().map_or(Ok(0), parse)?;
        let length = texts.get(1).map_or(Ok(4096), parse)?;
        let all = self.layout.array_size().bytes().0;
        if offset >= all || length == 0 || length > all - offset {
            return Err(Failure::usage(format!(
                "bytes {offset}..{}: expected a range inside the array, bytes 0..{all}",
                offset.saturating_add(length)
            )));
        }
        let end = offset + length;
        Ok(Range { bytes: offset..end, sectors: offset / 512..end.div_ceil(512) })
    }

    /// Text that lists members: `slot 1 (b.img), slot 3 (d.img)`.
    pub(super) fn list(&self, slots: SlotSet) -> String {
        slots.ascending().map(|slot| self.title(slot)).collect::<Vec<_>>().join(", ")
    }

    pub(super) fn title(&self, slot: Slot) -> String {
        let held = self.slots.get(slot.index()).and_then(|held| held.label.as_deref());
        let name = held.map(|label| {
            let path = std::path::Path::new(label);
            path.file_name().map_or(label.to_owned(), |name| name.to_string_lossy().into_owned())
        });
        format!("slot {} ({})", slot.0, name.as_deref().unwrap_or("missing"))
    }

    /// Description of the range and the array.
    pub(super) fn heading(&self, range: &Range) -> String {
        let layout = &self.layout;
        let chunk = match layout.chunk() {
            Sectors::ZERO => String::new(),
            chunk => format!(", chunk {}", size::human(chunk.bytes())),
        };
        let name = layout.level().row().layouts.name(layout.number());
        format!(
            "bytes {}..{} of {}: {}, {} members{chunk}{}",
            range.bytes.start,
            range.bytes.end,
            self.name,
            layout.level(),
            layout.members(),
            name.map(|name| format!(", {name}")).unwrap_or_default()
        )
    }

    /// Sector of the member in a slot at which a data sector lies; `None` if the slot has no member
    /// or its data offset is unknown.
    pub(super) fn sector_on_member(&self, slot: Slot, sector: Sectors) -> Option<u64> {
        let held = self.slots.get(slot.index())?;
        held.data_offset.map(|offset| offset.0 + sector.0)
    }

    /// Text for sectors of a member: `sectors 2048..2056 (data sectors 0..8)`, without the first
    /// part if the position on the member is unknown.
    pub(super) fn sectors_text(&self, slot: Slot, sector: Sectors, len: Sectors) -> String {
        let (start, end) = (sector.0, sector.0 + len.0);
        match self.sector_on_member(slot, sector) {
            Some(on) => format!("sectors {on}..{} (data sectors {start}..{end})", on + len.0),
            None => format!("data sectors {start}..{end}"),
        }
    }
}

impl Held {
    fn missing() -> Self {
        Self {
            label: None,
            data_offset: None,
            used_size: None,
            recovery_offset: Sectors::ZERO,
            write_mostly: false,
        }
    }

    fn of(label: String, superblock: &Superblock, recovery_offset: Sectors) -> Self {
        Self {
            label: Some(label),
            data_offset: Some(superblock.data_offset()),
            used_size: Some(superblock.used_size()),
            recovery_offset,
            write_mostly: superblock.is_write_mostly(),
        }
    }
}

impl fmt::Debug for Held {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.label.as_deref().unwrap_or("missing"))
    }
}

/// Prints how many bytes of the range are not shown, if any.
pub(super) fn print_left_out(out: &mut impl Write, left_out: u64) -> Result<(), Failure> {
    if left_out > 0 {
        let left_out = size::human(Bytes(left_out));
        writeln!(out, "  … and {left_out} more, not shown; name a shorter range")?;
    }
    Ok(())
}

/// Largest number of parts of a range that are shown.
pub(super) const PIECES_MAX: usize = 64;
