//! `weft explain`: shows what a read or write of a range does, member by member.
//!
//! It shows the members and sectors of the range, where parity is, and which plan the engine would
//! follow. The places are the engine's geometry, the plans its planner, asked step by step for a
//! stripe of which nothing is cached.

use std::fmt;
use std::io::Write;
use std::path::PathBuf;

use clap::Args;
use serde_json::{Value, json};
use weft_engine::assemble::{Options, SlotState, assemble};
use weft_engine::knobs::{Knobs, PlanRule, RmwLevel};
use weft_engine::raid::geometry::Geometry;
use weft_engine::raid::parity::plan::{Facts, Mode, StripeStep};
use weft_engine::raid::slot_set::SlotSet;
use weft_export::control::Command;
use weft_ondisk::{Level, layout_id};
use weft_units::{Bytes, FullStripe, Sectors, Slot};

use crate::assembly::{Selection, refusal, tell_dropped};
use crate::knobs;
use crate::look::{self, superblock_at};
use crate::member::{self, MemberArg};
use crate::outcome::{Exit, Failure, Outcome};
use crate::size;
use crate::target::{Target, only_volume};
use crate::terminal::{print_json, stdout};

/// Says which members a range of an array is on, and how it would be read and written, and why
///
/// As in: weft explain TARGET 1M 64K, or weft explain 1M 64K --members a.img b.img c.img. OFFSET
/// and LENGTH are in bytes, or take K, M, G, T (binary) or sectors with s; LENGTH is 4K if it is
/// left out. Nothing is assumed to be cached.
#[derive(Debug, Args)]
#[command(override_usage = "weft explain [OPTIONS] TARGET OFFSET [LENGTH]\n       \
                            weft explain [OPTIONS] OFFSET [LENGTH] --members MEMBER...")]
pub(crate) struct Explain {
    /// Name or control socket of a running volume, unless there is --members; then where, how much
    #[arg(value_name = "TARGET OFFSET LENGTH", required = true, num_args = 1..=3)]
    what: Vec<String>,
    /// Explain the array of these members, which does not run
    #[arg(long, value_name = "MEMBER", num_args = 1.., value_parser = MemberArg::parser())]
    members: Vec<MemberArg>,
    /// As if this knob had another value; of those that matter, rmw_level and stripe_size
    #[arg(long = "set", value_name = "KNOB=VALUE")]
    knobs: Vec<String>,
    #[command(flatten)]
    selection: Selection,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

pub(crate) fn run(arguments: &Explain) -> Outcome {
    let (target, range) = match (arguments.what.as_slice(), arguments.members.is_empty()) {
        ([target, range @ ..], true) if !range.is_empty() => (Some(target), range),
        (range, false) if range.len() <= 2 => (None, range),
        _ => {
            return Err(Failure::usage(
                "expected TARGET OFFSET [LENGTH], or OFFSET [LENGTH] --members MEMBER…",
            ));
        }
    };
    let mut array = match target {
        Some(target) => Array::of_target(target)?,
        None => {
            let paths = member::paths(&arguments.members).map_err(Failure::Usage)?;
            Array::of_members(&paths, arguments.selection.options()?)?
        }
    };
    for setting in &arguments.knobs {
        let (name, value) = knobs::split(setting)?;
        knobs::set(&mut array.knobs, name, value).map_err(Failure::usage)?;
    }
    let range = array.range(range)?;
    let explained = array.explain(range);
    if arguments.json {
        print_json(&array.to_json(&explained))?;
    } else {
        array.print(&explained)?;
    }
    Ok(Exit::Done)
}

/// What has to be known of an array.
struct Array {
    name: String,
    geometry: Geometry,
    slots: Vec<Held>,
    /// Parity may be wrong from here on.
    resync_from: Option<Sectors>,
    knobs: Knobs,
}

/// Content of a slot.
struct Held {
    label: Option<String>,
    /// `None` where it is not known.
    data_offset: Option<Sectors>,
    /// Data sectors that are good.
    recovery_offset: Sectors,
}

/// A range of sectors of the array. What is smaller than a sector is read and written with it.
struct Range {
    /// As asked.
    bytes: std::ops::Range<u64>,
    sectors: std::ops::Range<u64>,
}

/// A part of the range that is on one member, side by side.
struct Piece {
    bytes: std::ops::Range<u64>,
    full_stripe: FullStripe,
    slot: Slot,
    /// On the member, counted from its data offset.
    sector: Sectors,
    len: Sectors,
}

/// Stripes that are treated alike.
struct Stripes {
    full_stripe: FullStripe,
    /// Sectors of each member's data.
    sectors: std::ops::Range<u64>,
    count: u64,
    read: ReadPlan,
    write: WritePlan,
}

#[derive(Clone, PartialEq, Eq)]
struct ReadPlan {
    /// Members asked for exactly what is wanted, past the stripe cache.
    chunk_aligned: bool,
    reads: SlotSet,
    recovered: SlotSet,
}

#[derive(Clone, PartialEq, Eq)]
struct WritePlan {
    mode: Option<Mode>,
    reads: SlotSet,
    recovered: SlotSet,
    writes: SlotSet,
    why: String,
}

struct Explained {
    range: Range,
    pieces: Vec<Piece>,
    stripes: Vec<Stripes>,
    /// Bytes at the end of the range that are left out, because there are too many.
    left_out: u64,
}

impl Array {
    fn of_members(paths: &[PathBuf], chosen: Options) -> Result<Self, Failure> {
        let options =
            Options { read_only: true, force_dirty: true, without_journal: true, ..chosen };
        let candidates = look::candidates(&look::open_all(paths)?, &options);
        let assembly = assemble(&candidates, &options)
            .map_err(|refused| refusal(&refused, candidates.len()))?;
        tell_dropped(&assembly.dropped);
        let slots = assembly
            .slots
            .iter()
            .map(|state| match state {
                SlotState::InSync(member) => Held {
                    label: Some(member.info.label.clone()),
                    data_offset: Some(member.superblock.data_offset()),
                    recovery_offset: assembly.geometry.member_size(),
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
            geometry: assembly.geometry.clone(),
            slots,
            resync_from: assembly.resync_from,
            knobs: Knobs::default(),
        })
    }

    fn of_target(name: &str) -> Result<Self, Failure> {
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

    fn range(&self, texts: &[String]) -> Result<Range, Failure> {
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

    fn explain(&self, range: Range) -> Explained {
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
        let height = self.knobs.stripe_size.at_most(self.geometry.chunk().bytes()).bytes().0 / 512;
        let mut found: Vec<Stripes> = Vec::new();
        let mut rest = pieces;
        while let Some(first) = rest.first() {
            let full_stripe = first.full_stripe;
            let count = rest.iter().take_while(|piece| piece.full_stripe == full_stripe).count();
            let (together, others) = rest.split_at(count);
            rest = others;
            let start = together.iter().map(|piece| piece.sector.0).min().unwrap_or(0);
            let end = together.iter().map(|piece| piece.sector.0 + piece.len.0).max().unwrap_or(0);
            let mut stripe = start / height * height;
            while stripe < end {
                let sectors = stripe..stripe + height;
                stripe += height;
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

    /// What is known of a stripe of which nothing is cached.
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
    fn list(&self, slots: SlotSet) -> String {
        slots.ascending().map(|slot| self.title(slot)).collect::<Vec<_>>().join(", ")
    }

    fn title(&self, slot: Slot) -> String {
        let held = self.slots.get(slot.index()).and_then(|held| held.label.as_deref());
        let name = held.map(|label| {
            let path = std::path::Path::new(label);
            path.file_name().map_or(label.to_owned(), |name| name.to_string_lossy().into_owned())
        });
        format!("slot {} ({})", slot.0, name.as_deref().unwrap_or("missing"))
    }

    /// Where a piece begins on its member; `None` when nobody stands there.
    fn sector_on_member(&self, piece: &Piece) -> Option<u64> {
        let held = self.slots.get(piece.slot.index())?;
        held.data_offset.map(|offset| offset.0 + piece.sector.0)
    }

    /// `D7`, `P`, `Q`: what a slot holds in a full stripe.
    fn role(&self, full_stripe: FullStripe, slot: Slot) -> String {
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

    fn print(&self, explained: &Explained) -> Result<(), Failure> {
        let mut out = stdout();
        let geometry = &self.geometry;
        let layout = layout_id::name(geometry.level(), geometry.layout());
        let range = &explained.range.bytes;
        writeln!(
            out,
            "bytes {}..{} of {}: {}, {} members, chunk {}{}",
            range.start,
            range.end,
            self.name,
            geometry.level(),
            geometry.members(),
            size::human(geometry.chunk().bytes()),
            layout.map(|layout| format!(", {layout}")).unwrap_or_default()
        )?;
        let mut shown = None;
        for piece in &explained.pieces {
            if shown != Some(piece.full_stripe) {
                shown = Some(piece.full_stripe);
                let row: Vec<String> = (0..geometry.members())
                    .map(|slot| format!("{:>6}", self.role(piece.full_stripe, Slot(slot))))
                    .collect();
                writeln!(
                    out,
                    "\nfull stripe {}, slots 0 to {}: {}",
                    piece.full_stripe.0,
                    geometry.members() - 1,
                    row.join(" ")
                )?;
            }
            let (start, end) = (piece.sector.0, piece.sector.0 + piece.len.0);
            let place = match self.sector_on_member(piece) {
                Some(on) => {
                    format!("sectors {on}..{} (data sectors {start}..{end})", on + piece.len.0)
                }
                None => format!("data sectors {start}..{end}"),
            };
            writeln!(
                out,
                "  bytes {}..{}: {} of {}, {place}",
                piece.bytes.start,
                piece.bytes.end,
                self.role(piece.full_stripe, piece.slot),
                self.title(piece.slot),
            )?;
        }
        if explained.left_out > 0 {
            let left_out = size::human(weft_units::Bytes(explained.left_out));
            writeln!(out, "  … and {left_out} more, not shown; name a shorter range")?;
        }
        for stripes in &explained.stripes {
            let count = if stripes.count == 1 {
                "1 stripe".into()
            } else {
                format!("{} stripes", stripes.count)
            };
            writeln!(
                out,
                "\n{count} of the stripe cache in full stripe {}, data sectors {}..{}, each:",
                stripes.full_stripe.0, stripes.sectors.start, stripes.sectors.end
            )?;
            writeln!(out, "  read:  {}", self.read_text(&stripes.read))?;
            let write = &stripes.write;
            let mode = write.mode.map_or("no parity to keep", mode_text);
            let reads = if write.reads.is_empty() {
                "reads nothing".into()
            } else {
                format!("reads {}", self.list(write.reads))
            };
            let recovers = if write.recovered.is_empty() {
                String::new()
            } else {
                format!(", computes {}", self.list(write.recovered))
            };
            writeln!(
                out,
                "  write: {mode}: {reads}{recovers}; writes {}",
                self.list(write.writes)
            )?;
            writeln!(out, "         because {}", write.why)?;
        }
        out.flush()?;
        Ok(())
    }

    fn read_text(&self, read: &ReadPlan) -> String {
        if read.chunk_aligned {
            return format!("{}, just the sectors wanted, past the cache", self.list(read.reads));
        }
        let reads =
            format!("{}, through the cache because the array is degraded", self.list(read.reads));
        if read.recovered.is_empty() {
            reads
        } else {
            format!("{reads}; computes {}", self.list(read.recovered))
        }
    }

    fn to_json(&self, explained: &Explained) -> Value {
        let slots = |set: SlotSet| set.ascending().map(|slot| slot.0).collect::<Vec<_>>();
        let pieces: Vec<Value> = explained
            .pieces
            .iter()
            .map(|piece| {
                let held = self.slots.get(piece.slot.index());
                json!({
                    "offset": piece.bytes.start,
                    "length": piece.bytes.end - piece.bytes.start,
                    "full_stripe": piece.full_stripe.0,
                    "slot": piece.slot.0,
                    "member": held.and_then(|held| held.label.clone()),
                    "sector": self.sector_on_member(piece),
                    "data_sector": piece.sector.0,
                })
            })
            .collect();
        let stripes: Vec<Value> = explained
            .stripes
            .iter()
            .map(|stripes| {
                let placement = self.geometry.placement(stripes.full_stripe);
                json!({
                    "full_stripe": stripes.full_stripe.0,
                    "data_sector": stripes.sectors.start,
                    "data_sectors": stripes.sectors.end - stripes.sectors.start,
                    "stripes": stripes.count,
                    "p_slot": placement.p.0,
                    "q_slot": placement.q.map(|slot| slot.0),
                    "read": {
                        "chunk_aligned": stripes.read.chunk_aligned,
                        "reads": slots(stripes.read.reads),
                        "computes": slots(stripes.read.recovered),
                    },
                    "write": {
                        "plan": stripes.write.mode.map(mode_text),
                        "reads": slots(stripes.write.reads),
                        "computes": slots(stripes.write.recovered),
                        "writes": slots(stripes.write.writes),
                        "why": stripes.write.why,
                    },
                })
            })
            .collect();
        json!({
            "schema": "weft.explain/2",
            "name": self.name,
            "level": self.geometry.level().name(),
            "offset": explained.range.bytes.start,
            "length": explained.range.bytes.end - explained.range.bytes.start,
            "left_out_bytes": explained.left_out,
            "pieces": pieces,
            "stripes": stripes,
        })
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

fn mode_text(mode: Mode) -> &'static str {
    match mode {
        Mode::ReadModifyWrite => "read-modify-write",
        Mode::Reconstruct => "reconstruct-write",
    }
}

/// More pieces than this are not shown.
const PIECES_MAX: usize = 64;
const STEPS_MAX: usize = 8;
