//! The array of `explain`: where a range lies, and which plan the engine would follow there.

use std::fmt;
use std::path::PathBuf;

use weft_engine::assemble::{Options, SlotState, assemble};
use weft_engine::knobs::{Knobs, PlanRule, RmwLevel};
use weft_engine::layout::geometry::Geometry;
use weft_engine::layout::slot_set::SlotSet;
use weft_engine::raid::parity::plan::{Facts, Mode, StripeStep};
use weft_export::control::Command;
use weft_ondisk::Level;
use weft_units::{Bytes, FullStripe, Sectors, Slot};

use crate::assembly::{refusal, tell_dropped};
use crate::look::{self, superblock_at};
use crate::outcome::Failure;
use crate::size;
use crate::target::{Target, only_volume};

/// Geometry and members of the array that is explained.
pub(super) struct Array {
    pub(super) name: String,
    pub(super) geometry: Geometry,
    pub(super) slots: Vec<Held>,
    /// Parity may be wrong from here on.
    pub(super) resync_from: Option<Sectors>,
    pub(super) knobs: Knobs,
}

/// Content of a slot.
pub(super) struct Held {
    pub(super) label: Option<String>,
    /// `None` where it is not known.
    pub(super) data_offset: Option<Sectors>,
    /// Data sectors that are good.
    pub(super) recovery_offset: Sectors,
}

/// A range of sectors of the array. What is smaller than a sector is read and written with it.
pub(super) struct Range {
    /// Byte range of the array, as it was asked for.
    pub(super) bytes: std::ops::Range<u64>,
    pub(super) sectors: std::ops::Range<u64>,
}

/// A part of the range that is on one member, side by side.
pub(super) struct Piece {
    pub(super) bytes: std::ops::Range<u64>,
    pub(super) full_stripe: FullStripe,
    pub(super) slot: Slot,
    /// On the member, counted from its data offset.
    pub(super) sector: Sectors,
    pub(super) len: Sectors,
}

/// Stripes that are treated alike.
pub(super) struct Stripes {
    pub(super) full_stripe: FullStripe,
    /// Sectors of each member's data.
    pub(super) sectors: std::ops::Range<u64>,
    pub(super) count: u64,
    pub(super) read: ReadPlan,
    pub(super) write: WritePlan,
}

#[derive(Clone, PartialEq, Eq)]
pub(super) struct ReadPlan {
    /// Members asked for exactly what is wanted, past the stripe cache.
    pub(super) chunk_aligned: bool,
    pub(super) reads: SlotSet,
    pub(super) recovered: SlotSet,
}

#[derive(Clone, PartialEq, Eq)]
pub(super) struct WritePlan {
    pub(super) mode: Option<Mode>,
    pub(super) reads: SlotSet,
    pub(super) recovered: SlotSet,
    pub(super) writes: SlotSet,
    pub(super) why: String,
}

pub(super) struct Explained {
    pub(super) range: Range,
    pub(super) pieces: Vec<Piece>,
    pub(super) stripes: Vec<Stripes>,
    /// Bytes at the end of the range that are left out, because there are too many.
    pub(super) left_out: u64,
}

impl Array {
    pub(super) fn of_members(paths: &[PathBuf], chosen: Options) -> Result<Self, Failure> {
        let options =
            Options { read_only: true, force_dirty: true, without_journal: true, ..chosen };
        let candidates = look::candidates(&look::open_all(paths)?, &options);
        let assembly = assemble(&candidates, &options)
            .map_err(|refused| refusal(&refused, candidates.len()))?;
        tell_dropped(&assembly.dropped);
        let geometry = assembly.layout.parity().cloned().ok_or_else(|| {
            let level = assembly.layout.level();
            Failure::failed(format!("{}: {level} has no stripes to explain", assembly.name))
        })?;
        let slots = assembly
            .slots
            .iter()
            .map(|state| match state {
                SlotState::InSync(member) => Held {
                    label: Some(member.info.label.clone()),
                    data_offset: Some(member.superblock.data_offset()),
                    recovery_offset: geometry.member_size(),
                },
                SlotState::Missing => Held::nobody(),
                SlotState::Rebuilding { member, recovery_offset } => Held {
                    label: Some(member.info.label.clone()),
                    data_offset: Some(member.superblock.data_offset()),
                    recovery_offset: *recovery_offset,
                },
            })
            .collect();
        Ok(Self {
            name: assembly.name.clone(),
            geometry,
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
        for (knob, value) in target.ask(Command::Get { knobs: Vec::new() })?.knobs {
            knobs.set(knobs.parse(&knob, &value).map_err(Failure::failed)?);
        }
        let Some(array) = &volume.array else {
            return Err(Failure::failed(format!("{name}: a bare member, which has no stripes")));
        };
        let mut slots: Vec<Held> = (0..volume.slots).map(|_| Held::nobody()).collect();
        for member in &volume.members {
            let held = member.slot.and_then(|slot| slots.get_mut(usize::from(slot)));
            let (Some(held), "in_sync" | "rebuilding") = (held, member.state.as_str()) else {
                continue;
            };
            let superblock = superblock_at(volume, &member.label);
            *held = Held {
                label: Some(member.label.clone()),
                // That of a member in memory is not to be seen from here.
                data_offset: superblock.as_ref().map(|superblock| superblock.data_offset()),
                recovery_offset: member.recovery_offset.map_or(Sectors(u64::MAX), Sectors),
            };
        }
        let failed = |error: &dyn fmt::Display| Failure::failed(format!("{name}: {error}"));
        let level = Level::from_code(array.level).ok_or_else(|| failed(&"a level unknown here"))?;
        let slots_count = u32::try_from(volume.slots).map_err(|error| failed(&error))?;
        let (chunk, size) = (Bytes(array.chunk), Bytes(array.member_size));
        let geometry = Geometry::new(
            level,
            array.layout,
            slots_count,
            chunk.sectors_floor(),
            size.sectors_floor(),
        )
        .map_err(|error| failed(&error))?;
        let resync_from = volume.resync_from.map(Sectors);
        Ok(Self { name: volume.name.clone(), geometry, slots, resync_from, knobs })
    }

    pub(super) fn range(&self, texts: &[String]) -> Result<Range, Failure> {
        let parse = |text: &String| size::bytes(text).map(|bytes| bytes.0).map_err(Failure::Usage);
        let offset = texts.first().map_or(Ok(0), parse)?;
        let length = texts.get(1).map_or(Ok(4096), parse)?;
        let all = self.geometry.array_size().bytes().0;
        if offset >= all || length == 0 || length > all - offset {
            return Err(Failure::usage(format!(
                "bytes {offset}..{}: expected a range inside the array, bytes 0..{all}",
                offset.saturating_add(length)
            )));
        }
        let end = offset + length;
        Ok(Range { bytes: offset..end, sectors: offset / 512..end.div_ceil(512) })
    }

    pub(super) fn explain(&self, range: Range) -> Explained {
        let chunk = self.geometry.chunk().0;
        let mut pieces = Vec::new();
        let mut at = range.sectors.start;
        while at < range.sectors.end && pieces.len() < PIECES_MAX {
            let position = self.geometry.locate(Sectors(at));
            let len = (chunk - at % chunk).min(range.sectors.end - at);
            pieces.push(Piece {
                // What is not whole sectors at either end is read and written with its sector.
                bytes: (at * 512).max(range.bytes.start)..((at + len) * 512).min(range.bytes.end),
                full_stripe: position.full_stripe,
                slot: position.slot,
                sector: position.sector,
                len: Sectors(len),
            });
            at += len;
        }
        let stripes = self.stripes(&pieces);
        Explained { left_out: range.bytes.end.saturating_sub(at * 512), range, pieces, stripes }
    }

    /// The stripes that the pieces are on, those alike together.
    fn stripes(&self, pieces: &[Piece]) -> Vec<Stripes> {
        let stripe_sectors =
            self.knobs.stripe_size.at_most(self.geometry.chunk().bytes()).bytes().0 / 512;
        let mut found: Vec<Stripes> = Vec::new();
        let mut rest = pieces;
        while let Some(first) = rest.first() {
            let full_stripe = first.full_stripe;
            let count = rest.iter().take_while(|piece| piece.full_stripe == full_stripe).count();
            let (together, others) = rest.split_at(count);
            rest = others;
            let start = together.iter().map(|piece| piece.sector.0).min().unwrap_or(0);
            let end = together.iter().map(|piece| piece.sector.0 + piece.len.0).max().unwrap_or(0);
            let mut stripe = start / stripe_sectors * stripe_sectors;
            while stripe < end {
                let sectors = stripe..stripe + stripe_sectors;
                stripe += stripe_sectors;
                let Some((touched, whole)) = touched(together, &sectors) else { continue };
                let (read, write) =
                    (self.plan_read(&sectors, touched), self.plan_write(&sectors, touched, whole));
                match found.last_mut() {
                    Some(last)
                        if last.full_stripe == full_stripe
                            && last.sectors.end == sectors.start
                            && (&last.read, &last.write) == (&read, &write) =>
                    {
                        last.sectors.end = sectors.end;
                        last.count += 1;
                    }
                    _ => found.push(Stripes { full_stripe, sectors, count: 1, read, write }),
                }
            }
        }
        found
    }

    /// Facts of a stripe that is not in the cache, for a write of these sectors.
    fn facts(&self, sectors: &std::ops::Range<u64>) -> Facts {
        let placement =
            self.geometry.placement(self.geometry.full_stripe_of(Sectors(sectors.start)));
        let slots = self.slots.iter().zip(0_u16..);
        Facts {
            all: SlotSet::first(self.geometry.members()),
            p: placement.p,
            q: placement.q,
            uptodate: SlotSet::EMPTY,
            insync: slots
                .filter(|(held, _)| held.label.is_some() && held.recovery_offset.0 >= sectors.end)
                .map(|(_, slot)| Slot(slot))
                .collect(),
            writable: (0_u16..)
                .zip(self.slots.iter())
                .filter(|(_, held)| held.label.is_some())
                .map(|(slot, _)| Slot(slot))
                .collect(),
            to_read: SlotSet::EMPTY,
            to_write: SlotSet::EMPTY,
            overwrite: SlotSet::EMPTY,
            syncing: false,
            preread: true,
            resync_pending: self.resync_from.is_some_and(|from| from.0 < sectors.end),
            rmw_level: self.knobs.rmw_level,
            rule: self.knobs.plan_rule,
        }
    }

    fn plan_read(&self, sectors: &std::ops::Range<u64>, touched: SlotSet) -> ReadPlan {
        let mut facts = self.facts(sectors);
        let degraded =
            self.slots.iter().any(|held| held.recovery_offset < self.geometry.member_size());
        let healthy =
            self.knobs.plan_rule == PlanRule::Least && touched.without(facts.insync).is_empty();
        if !degraded || healthy {
            return ReadPlan { chunk_aligned: true, reads: touched, recovered: SlotSet::EMPTY };
        }
        facts.to_read = touched;
        let (reads, recovered, _) =
            follow(facts, |facts| facts.to_read.without(facts.uptodate).is_empty());
        ReadPlan { chunk_aligned: false, reads, recovered }
    }

    fn plan_write(
        &self,
        sectors: &std::ops::Range<u64>,
        touched: SlotSet,
        whole: SlotSet,
    ) -> WritePlan {
        let mut facts = self.facts(sectors);
        (facts.to_write, facts.overwrite) = (touched, whole);
        let (reads, recovered, mode) = follow(facts, |_| false);
        let writes = touched.or(facts.parity()).and(facts.insync);
        WritePlan { mode, reads, recovered, writes, why: self.why(&facts, mode) }
    }

    /// Why a stripe is written the way it is.
    fn why(&self, facts: &Facts, mode: Option<Mode>) -> String {
        let rmw = facts.to_write.or(facts.parity());
        let rcw = facts.data().without(facts.overwrite);
        let lost = facts.failed();
        if rcw.is_empty() {
            return "every data strip is overwritten, so nothing has to be read".into();
        }
        if facts.rmw_level == RmwLevel::Never {
            return "rmw_level 0 forbids read-modify-write".into();
        }
        if facts.resync_pending {
            return "resync has not been here, so the old parity is not to be trusted".into();
        }
        if !lost.and(rmw).is_empty() && mode == Some(Mode::Reconstruct) {
            return format!("read-modify-write would need what {} held", self.list(lost.and(rmw)));
        }
        if !lost.and(rcw).is_empty() && mode == Some(Mode::ReadModifyWrite) {
            return format!("reconstruct-write would need what {} held", self.list(lost.and(rcw)));
        }
        let (rmw, rcw) = (rmw.count(), rcw.count());
        let level = match facts.rmw_level {
            RmwLevel::Never => 0,
            RmwLevel::Fewer => 1,
            RmwLevel::Tie => 2,
        };
        let tie =
            if rmw == rcw { format!("; rmw_level {level} decides the tie") } else { String::new() };
        format!("read-modify-write would read {rmw} strips, reconstruct-write {rcw}{tie}")
    }

    /// `slot 1 (b.img), slot 3 (d.img)`.
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

    /// First sector of a piece on its member; `None` when the slot has no member.
    pub(super) fn sector_on_member(&self, piece: &Piece) -> Option<u64> {
        let held = self.slots.get(piece.slot.index())?;
        held.data_offset.map(|offset| offset.0 + piece.sector.0)
    }

    /// `D7`, `P`, `Q`: what a slot holds in a full stripe.
    pub(super) fn role(&self, full_stripe: FullStripe, slot: Slot) -> String {
        let placement = self.geometry.placement(full_stripe);
        match placement.data_index(slot) {
            Some(index) => {
                let first = full_stripe.0 * u64::from(self.geometry.data_members());
                format!("D{}", first + u64::from(index))
            }
            None if slot == placement.p => "P".into(),
            None => "Q".into(),
        }
    }
}

impl Held {
    fn nobody() -> Self {
        Self { label: None, data_offset: None, recovery_offset: Sectors::ZERO }
    }
}

impl fmt::Debug for Held {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.label.as_deref().unwrap_or("missing"))
    }
}

/// Slots of a stripe that the pieces touch, and those that they cover from end to end.
fn touched(pieces: &[Piece], stripe: &std::ops::Range<u64>) -> Option<(SlotSet, SlotSet)> {
    let (mut touched, mut whole) = (SlotSet::EMPTY, SlotSet::EMPTY);
    for piece in pieces {
        let (start, end) = (piece.sector.0, piece.sector.0 + piece.len.0);
        if start < stripe.end && stripe.start < end {
            touched.insert(piece.slot);
            whole.set(piece.slot, start <= stripe.start && stripe.end <= end);
        }
    }
    (!touched.is_empty()).then_some((touched, whole))
}

/// Follows a stripe from step to step as the engine does: what is read, what is computed, and how
/// parity is made.
fn follow(mut facts: Facts, done: impl Fn(&Facts) -> bool) -> (SlotSet, SlotSet, Option<Mode>) {
    let (mut reads, mut recovered) = (SlotSet::EMPTY, SlotSet::EMPTY);
    // A stripe needs a few steps; the bound is for a planner that goes in circles.
    for _ in 0..STEPS_MAX {
        if done(&facts) {
            break;
        }
        match facts.plan() {
            StripeStep::Read { strips, .. } => {
                reads = reads.or(strips);
                facts.uptodate = facts.uptodate.or(strips);
            }
            StripeStep::Recover(strips) => {
                recovered = recovered.or(strips);
                facts.uptodate = facts.uptodate.or(strips);
            }
            StripeStep::Write(mode) => return (reads, recovered, Some(mode)),
            StripeStep::Rest => break,
        }
    }
    (reads, recovered, None)
}

/// More pieces than this are not shown.
const PIECES_MAX: usize = 64;
const STEPS_MAX: usize = 8;
