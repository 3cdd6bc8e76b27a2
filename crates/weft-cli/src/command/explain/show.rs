//! Output of the stripes of `explain`, as text and as JSON.

use std::io::Write;

use serde_json::{Value, json};
use weft_engine::layout::slot_set::SlotSet;
use weft_engine::raid::parity::plan::Mode;
use weft_terminal::outcome::Failure;
use weft_terminal::terminal::stdout;
use weft_units::Slot;

use super::stripes::{Explained, ParityArray, ReadPlan, Stripes};

use super::model::print_left_out;

impl ParityArray<'_> {
    /// Prints the position of the range and the plans for it.
    pub(super) fn print(&self, explained: &Explained) -> Result<(), Failure> {
        let mut out = stdout();
        self.print_pieces(&mut out, explained)?;
        for stripes in &explained.stripes {
            self.print_stripes(&mut out, stripes)?;
        }
        out.flush()?;
        Ok(())
    }

    /// Prints the parts of the range, and their positions on the members.
    fn print_pieces(&self, out: &mut impl Write, explained: &Explained) -> Result<(), Failure> {
        let geometry = &self.geometry;
        writeln!(out, "{}", self.array.heading(&explained.range))?;
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
            writeln!(
                out,
                "  bytes {}..{}: {} of {}, {}",
                piece.bytes.start,
                piece.bytes.end,
                self.role(piece.full_stripe, piece.slot),
                self.array.title(piece.slot),
                self.array.sectors_text(piece.slot, piece.sector, piece.len),
            )?;
        }
        print_left_out(out, explained.left_out)?;
        Ok(())
    }

    /// Prints the reads and writes of stripes with equal plans.
    fn print_stripes(&self, out: &mut impl Write, stripes: &Stripes) -> Result<(), Failure> {
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
            format!("reads {}", self.array.list(write.reads))
        };
        let recovers = if write.recovered.is_empty() {
            String::new()
        } else {
            format!(", computes {}", self.array.list(write.recovered))
        };
        writeln!(
            out,
            "  write: {mode}: {reads}{recovers}; writes {}",
            self.array.list(write.writes)
        )?;
        writeln!(out, "         because {}", write.why)?;
        Ok(())
    }

    fn read_text(&self, read: &ReadPlan) -> String {
        if read.chunk_aligned {
            return format!(
                "{}, just the sectors wanted, past the cache",
                self.array.list(read.reads)
            );
        }
        let reads = format!(
            "{}, through the cache because the array is degraded",
            self.array.list(read.reads)
        );
        if read.recovered.is_empty() {
            reads
        } else {
            format!("{reads}; computes {}", self.array.list(read.recovered))
        }
    }

    /// JSON of the explanation in the schema `weft.explain/2`.
    pub(super) fn to_json(&self, explained: &Explained) -> Value {
        let slots = |set: SlotSet| set.ascending().map(|slot| slot.0).collect::<Vec<_>>();
        let pieces: Vec<Value> = explained
            .pieces
            .iter()
            .map(|piece| {
                let held = self.array.slots.get(piece.slot.index());
                json!({
                    "offset": piece.bytes.start,
                    "length": piece.bytes.end - piece.bytes.start,
                    "full_stripe": piece.full_stripe.0,
                    "slot": piece.slot.0,
                    "member": held.and_then(|held| held.label.clone()),
                    "sector": self.array.sector_on_member(piece.slot, piece.sector),
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
            "name": self.array.name,
            "level": self.geometry.level().name(),
            "offset": explained.range.bytes.start,
            "length": explained.range.bytes.end - explained.range.bytes.start,
            "left_out_bytes": explained.left_out,
            "pieces": pieces,
            "stripes": stripes,
        })
    }
}

fn mode_text(mode: Mode) -> &'static str {
    match mode {
        Mode::ReadModifyWrite => "read-modify-write",
        Mode::Reconstruct => "reconstruct-write",
    }
}
