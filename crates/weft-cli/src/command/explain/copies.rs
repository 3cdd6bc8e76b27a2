//! Copies of `explain`: position of a range in an array without parity, and the members of its
//! reads and writes.
//!
//! The range is explained in parts, each of which lies in one chunk. A part of RAID 1 or linear,
//! which have no chunks, extends as far as the members stay the same.

use std::io::Write;

use serde_json::{Value, json};
use weft_engine::layout::Layout;
use weft_engine::layout::mirrors::{Copies, Copy};
use weft_engine::layout::slot_set::SlotSet;
use weft_terminal::outcome::Failure;
use weft_terminal::terminal::stdout;
use weft_units::{Sectors, Slot};

use super::model::{Array, PIECES_MAX, Range, print_left_out};

/// Explanation of a range of an array without parity.
pub(super) struct ExplainedCopies {
    range: Range,
    parts: Vec<Part>,
    /// Bytes at the end of the range that are left out, because there are too many parts.
    left_out: u64,
}

/// Part of the range that lies on the same members from end to end.
struct Part {
    /// Byte range of the part in the array.
    bytes: std::ops::Range<u64>,
    /// Zone of a RAID 0, counted from 0, and the slots of the members in the zone; `None` without
    /// zones.
    zone: Option<(usize, Vec<Slot>)>,
    copies: Copies,
    len: Sectors,
    /// Slots of the members from which the engine selects one for the read.
    reads: SlotSet,
    why_read: &'static str,
    writes: SlotSet,
}

impl Array {
    /// Explains a range of an array without parity.
    pub(super) fn copies(&self, range: Range) -> ExplainedCopies {
        let mut parts = Vec::new();
        let mut at = range.sectors.start;
        while at < range.sectors.end && parts.len() < PIECES_MAX {
            let (copies, len, zone) = self.places(Sectors(at));
            let len = len.0.min(range.sectors.end - at);
            let end = at + len;
            let (reads, why_read) = self.readable(&copies, Sectors(len), Sectors(end));
            let is_here = |copy: &&Copy| {
                self.slots.get(copy.slot.index()).is_some_and(|held| held.label.is_some())
            };
            parts.push(Part {
                bytes: (at * 512).max(range.bytes.start)..(end * 512).min(range.bytes.end),
                zone,
                writes: copies.iter().filter(is_here).map(|copy| copy.slot).collect(),
                copies,
                len: Sectors(len),
                reads,
                why_read,
            });
            at = end;
        }
        ExplainedCopies { left_out: range.bytes.end.saturating_sub(at * 512), range, parts }
    }

    /// Copies of the data at an array sector, number of sectors from there on that are on the same
    /// members, and zone of a RAID 0.
    fn places(&self, sector: Sectors) -> (Copies, Sectors, Option<(usize, Vec<Slot>)>) {
        match &self.layout {
            Layout::Mirrors(mirrors) => {
                (mirrors.copies(sector), mirrors.left_in_chunk(sector), None)
            }
            Layout::Striped(striped) => {
                let extent = striped.locate(sector);
                let copy = Copy { slot: extent.slot, sector: extent.sector };
                (Copies::from_iter([copy]), extent.len, striped.zone_of(sector))
            }
            Layout::Parity(_) => (Copies::new(), Sectors(u64::MAX), None),
        }
    }

    /// Slots from which the engine selects one to read from, and the reason why it is limited to
    /// these.
    ///
    /// Source   md-raid.md §5.4 and §5.5 (md: `read_balance`)
    fn readable(&self, copies: &Copies, len: Sectors, end: Sectors) -> (SlotSet, &'static str) {
        let good = |copy: &Copy| {
            let held = self.slots.get(copy.slot.index());
            held.filter(|held| held.label.is_some())
                .is_some_and(|held| held.recovery_offset.0 >= copy.sector.0 + len.0)
        };
        let mostly = |slot: Slot| self.slots.get(slot.index()).is_some_and(|it| it.write_mostly);
        let good: Vec<Slot> =
            copies.iter().filter(|copy| good(copy)).map(|copy| copy.slot).collect();
        let preferred: Vec<Slot> = good.iter().copied().filter(|slot| !mostly(*slot)).collect();
        match (good.as_slice(), preferred.as_slice()) {
            ([], _) => (SlotSet::EMPTY, "no member with a copy is here"),
            ([only], _) if copies.len() == 1 => (SlotSet::only(*only), "the level keeps one copy"),
            ([only], _) => (SlotSet::only(*only), "the only copy that is here"),
            ([first, ..], _) if self.resync_from.is_some_and(|from| from < end) => (
                SlotSet::only(*first),
                "the first copy, since resync has not been here and copies may differ",
            ),
            ([first, ..], []) => {
                (SlotSet::only(*first), "the first of them, since all are write-mostly")
            }
            (_, [only]) => (SlotSet::only(*only), "the others are write-mostly"),
            _ => (preferred.into_iter().collect(), "one of them, the least busy or the nearest"),
        }
    }
}

impl ExplainedCopies {
    /// Prints where the range lies, and which members are read and written.
    pub(super) fn print(&self, array: &Array) -> Result<(), Failure> {
        let mut out = stdout();
        writeln!(out, "{}", array.heading(&self.range))?;
        for part in &self.parts {
            writeln!(out, "\nbytes {}..{}{}", part.bytes.start, part.bytes.end, part.zone_text())?;
            for (copy, number) in part.copies.iter().zip(1..) {
                let name = match part.copies.len() {
                    1 => String::new(),
                    all => format!("copy {number} of {all}: "),
                };
                let place = array.sectors_text(copy.slot, copy.sector, part.len);
                writeln!(out, "  {name}{}, {place}", array.title(copy.slot))?;
            }
            let reads = match part.reads.is_empty() {
                true => "nothing".to_owned(),
                false => array.list(part.reads),
            };
            writeln!(out, "  read:  {reads}; {}", part.why_read)?;
            let all: SlotSet = part.copies.iter().map(|copy| copy.slot).collect();
            let absent = all.without(part.writes);
            let lacks = match absent.is_empty() {
                true => String::new(),
                false => format!("; not {}", array.list(absent)),
            };
            writeln!(out, "  write: {}{lacks}", array.list(part.writes))?;
        }
        print_left_out(&mut out, self.left_out)?;
        out.flush()?;
        Ok(())
    }

    /// JSON of the explanation in the schema `weft.explain/2`, with `parts` in place of `stripes`.
    pub(super) fn to_json(&self, array: &Array) -> Value {
        let slots = |set: SlotSet| set.ascending().map(|slot| slot.0).collect::<Vec<_>>();
        let pieces: Vec<Value> = self
            .parts
            .iter()
            .flat_map(|part| {
                part.copies.iter().zip(0..).map(move |(copy, number)| (part, copy, number))
            })
            .map(|(part, copy, number)| {
                let held = array.slots.get(copy.slot.index());
                json!({
                    "offset": part.bytes.start,
                    "length": part.bytes.end - part.bytes.start,
                    "copy": number,
                    "slot": copy.slot.0,
                    "member": held.and_then(|held| held.label.clone()),
                    "sector": array.sector_on_member(copy.slot, copy.sector),
                    "data_sector": copy.sector.0,
                })
            })
            .collect();
        let parts: Vec<Value> = self
            .parts
            .iter()
            .map(|part| {
                json!({
                    "offset": part.bytes.start,
                    "length": part.bytes.end - part.bytes.start,
                    "zone": part.zone.as_ref().map(|(zone, _)| zone),
                    "read": {"one_of": slots(part.reads), "why": part.why_read},
                    "write": {"writes": slots(part.writes)},
                })
            })
            .collect();
        json!({
            "schema": "weft.explain/2",
            "name": array.name,
            "level": array.layout.level().name(),
            "offset": self.range.bytes.start,
            "length": self.range.bytes.end - self.range.bytes.start,
            "left_out_bytes": self.left_out,
            "pieces": pieces,
            "parts": parts,
        })
    }
}

impl Part {
    /// Text about the zone, `, zone 1 (slots 0, 2)`; empty if the array has only one zone.
    fn zone_text(&self) -> String {
        let Some((zone, slots)) = &self.zone else { return String::new() };
        let slots: Vec<String> = slots.iter().map(|slot| slot.0.to_string()).collect();
        format!(", zone {zone} (slots {})", slots.join(", "))
    }
}
