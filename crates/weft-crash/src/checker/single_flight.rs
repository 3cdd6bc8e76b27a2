//! Checker I10, single flight: outstanding writes to a member do not overlap, and no frame of an
//! outstanding operation is written by another one.
//!
//! A frame that an outstanding operation reads or writes is neither written by another operation
//! nor given back to the driver. The frame of zeros is never written.

use std::collections::BTreeMap;

use weft_compute::Footprint;
use weft_engine::{Input, MemberOp, Output, RequestOp, Run, Segment, Tag, Token};
use weft_units::ClientId;

use super::{View, Violation};

const NAME: &str = "I10 single flight";

/// Checker I10: all outstanding member requests and computations.
#[derive(Clone, Debug, Default)]
pub struct SingleFlight {
    flights: BTreeMap<Token, Flight>,
    /// Frames of outstanding client reads, which come back to the client with the reply.
    reads: BTreeMap<(ClientId, Tag), Run>,
}

#[derive(Clone, Debug)]
struct Flight {
    /// Sectors that the operation writes: disk, first sector, and the sector after the last. `None`
    /// if it writes no disk.
    sectors: Option<(usize, u64, u64)>,
    reads: Vec<Segment>,
    writes: Vec<Segment>,
}

impl SingleFlight {
    /// Records completions, and the frames of client reads.
    pub fn input(&mut self, input: &Input) {
        match input {
            Input::Done { token, .. } => {
                self.flights.remove(token);
            }
            Input::Client(request) if request.op == RequestOp::Read => {
                self.reads.insert((request.client, request.tag), request.frames);
            }
            _ => {}
        }
    }

    /// Whether a token is outstanding.
    #[must_use]
    pub fn knows(&self, token: Token) -> bool {
        self.flights.contains_key(&token)
    }

    /// Checks a new operation against all outstanding ones, and that frames that are given back are
    /// not in use.
    pub fn output(&mut self, view: View<'_>, output: &Output, found: &mut Vec<Violation>) {
        let (token, flight) = match output {
            Output::Submit { token, member, op, .. } => {
                let disk = view.disk(*member);
                let mut flight = Flight { sectors: None, reads: Vec::new(), writes: Vec::new() };
                match op {
                    MemberOp::Read { into, .. } => flight.writes = into.to_vec(),
                    MemberOp::Write { at, from, .. } => {
                        let bytes: u64 = from.iter().map(|part| u64::from(part.len)).sum();
                        flight.sectors = Some((disk, at.0, at.0 + bytes / 512));
                        flight.reads = from.to_vec();
                    }
                    MemberOp::WriteMetadata { at, bytes } => {
                        flight.sectors = Some((disk, at.0, at.0 + bytes.len() as u64 / 512));
                    }
                    MemberOp::Discard { at, len, .. } => {
                        flight.sectors = Some((disk, at.0, at.0 + len.0));
                    }
                    MemberOp::Flush => {}
                }
                (*token, flight)
            }
            Output::Compute { token, ops } => {
                let mut used = Footprint::default();
                ops.iter().for_each(|op| used.add(op));
                let (reads, writes) = (used.read.into_vec(), used.write.into_vec());
                (*token, Flight { sectors: None, reads, writes })
            }
            Output::Release(run) => {
                self.given_back(*run, "released", found);
                return;
            }
            Output::Reply { client, tag, result } => {
                if let Some(run) = self.reads.remove(&(*client, *tag))
                    && result.is_ok()
                {
                    self.given_back(run, "answered", found);
                }
                return;
            }
            _ => return,
        };
        for (other, flying) in &self.flights {
            if let (Some((disk, from, to)), Some((other_disk, other_from, other_to))) =
                (flight.sectors, flying.sectors)
                && disk == other_disk
                && from < other_to
                && other_from < to
            {
                found.push(Violation::new(
                    NAME,
                    format!("{token:?} and {other:?} write sectors {from}..{to} of disk {disk}"),
                ));
            }
            let clash = clash(&flight.writes, &flying.reads)
                .or_else(|| clash(&flight.writes, &flying.writes))
                .or_else(|| clash(&flight.reads, &flying.writes));
            if let Some(part) = clash {
                found.push(Violation::new(
                    NAME,
                    format!("{token:?} and {other:?} both use {part:?} and one changes it"),
                ));
            }
        }
        if flight.writes.iter().any(|part| part.is_zero()) {
            found.push(Violation::new(NAME, format!("{token:?} writes the frame of zeros")));
        }
        self.flights.insert(token, flight);
    }

    fn given_back(&self, run: Run, how: &str, found: &mut Vec<Violation>) {
        if run.count == 0 {
            return;
        }
        let whole = run.part(0, u64::from(run.count) * 4096);
        for (token, flight) in &self.flights {
            // An operation that still reads the frame would read its next content.
            let used = flight.writes.iter().chain(&flight.reads).any(|part| part.overlaps(whole));
            if used {
                found.push(Violation::new(
                    NAME,
                    format!("{run:?} is {how} while {token:?} still uses it"),
                ));
            }
        }
    }
}

fn clash(a: &[Segment], b: &[Segment]) -> Option<Segment> {
    a.iter().find(|x| b.iter().any(|y| x.overlaps(*y))).copied()
}
