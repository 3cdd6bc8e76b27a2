//! Engine costs: CPU time of each kind of work, fitted to loads that mix them.
//!
//! Each load has a different mixture: reads handle no stripes, large writes attach many stripes to
//! one input, stripes of 4 KiB merge many parts into one member request. The counts and the time of
//! a load form an observation; [`weft_lab::least_squares`] finds the costs that explain all of
//! them.

use std::time::Duration;

use weft_engine::knobs::{Knobs, StripeSize};
use weft_lab::least_squares::{self, Observation};
use weft_sim::machine::Costs;

use crate::BenchError;
use crate::alone::{Alone, FULL_STRIPE, RequestKind, Worked};
use crate::rounds::thread_cpu;

/// Loads that go through engines without members, with their observations (counts of work and
/// measured time).
pub(super) struct Loads(Vec<Load>);

struct Load {
    name: &'static str,
    asked: RequestKind,
    alone: Alone,
    /// Number of requests between two readings of the clock, large enough to make the cost of a
    /// reading negligible.
    batch: u64,
    observed: Vec<Observation>,
}

/// Number of kinds of the engine's work.
const KINDS: usize = 7;

impl Loads {
    pub(super) fn new() -> Result<Self, BenchError> {
        let stripes = |kib: u64| -> Result<Knobs, BenchError> {
            let stripe_size = StripeSize::new(kib << 10).map_err(BenchError::failed)?;
            Ok(Knobs { stripe_size, ..Knobs::md() })
        };
        let (small, large, auto) = (stripes(4)?, stripes(64)?, Knobs::default());
        let (read, random, onwards) =
            (RequestKind::RandomRead, RequestKind::RandomWrite, RequestKind::SequentialWrite);
        let all = [
            ("4 KiB reads, depth 64", small, read, 4096, 64),
            ("4 KiB reads, depth 1", small, read, 4096, 1),
            ("64 KiB reads, depth 8", small, read, 65_536, 8),
            ("4 KiB random writes, depth 64", small, random, 4096, 64),
            ("4 KiB random writes, depth 1", small, random, 4096, 1),
            ("4 KiB random writes, stripes of 64K", large, random, 4096, 64),
            ("4 KiB random writes, auto", auto, random, 4096, 64),
            ("4 KiB sequential writes, depth 64", small, onwards, 4096, 64),
            ("4 KiB sequential writes, auto", auto, onwards, 4096, 64),
            ("64 KiB random writes, depth 8", small, random, 65_536, 8),
            ("64 KiB random writes, auto", auto, random, 65_536, 8),
            ("full stripes, depth 4", small, onwards, FULL_STRIPE, 4),
            ("full stripes, depth 1", small, onwards, FULL_STRIPE, 1),
            ("full stripes, stripes of 64K", large, onwards, FULL_STRIPE, 4),
            ("full stripes, auto", auto, onwards, FULL_STRIPE, 4),
            ("1 MiB writes, depth 2", small, onwards, 1 << 20, 2),
            ("1 MiB writes, stripes of 64K", large, onwards, 1 << 20, 8),
            ("1 MiB writes, auto", auto, onwards, 1 << 20, 8),
        ];
        let loads = all.into_iter().map(|(name, knobs, asked, bytes, depth)| {
            let batch = 4 * u64::from(depth) + (256 << 10) / bytes;
            let mut alone = Alone::new(knobs, bytes, depth)?;
            // Warm-up until the cache is full.
            alone.carry_out(asked, (8 << 20) / bytes + 2 * u64::from(depth))?;
            Ok(Load { name, asked, alone, batch, observed: Vec::new() })
        });
        loads.collect::<Result<_, BenchError>>().map(Self)
    }

    /// Runs each load for the time `turn`. Returns the cost in ns of each kind of work; together
    /// these costs explain the measured times best.
    pub(super) fn costs(&mut self, turn: Duration) -> Result<Vec<f64>, BenchError> {
        let mut observations = Vec::new();
        for load in &mut self.0 {
            let observation = load.observe(turn)?;
            load.observed.push(observation.clone());
            observations.push(observation);
        }
        Ok(least_squares::costs(&observations))
    }

    /// Name of each load, with the ratio of the time that `costs` predict to the measured time,
    /// round by round.
    pub(super) fn explained(&self, costs: &Costs) -> Vec<(&'static str, Vec<f64>)> {
        let Costs { turn, input, attach, stripe, follower, merge, operation, .. } = *costs;
        let costs: [u64; KINDS] = [turn, input, attach, stripe, follower, merge, operation];
        let costs = costs.map(|cost| cost as f64);
        let of = |load: &Load| {
            let parts = load.observed.iter().map(|it| least_squares::explained(&costs, it));
            (load.name, parts.collect())
        };
        self.0.iter().map(of).collect()
    }
}

impl Load {
    fn observe(&mut self, turn: Duration) -> Result<Observation, BenchError> {
        let (before, start) = (self.alone.worked(), thread_cpu());
        loop {
            self.alone.carry_out(self.asked, self.batch)?;
            let took = thread_cpu().saturating_sub(start);
            if took >= turn {
                let counts = counts(self.alone.worked());
                let counts = counts.iter().zip(self::counts(before)).map(|(now, then)| now - then);
                let (counts, took) = (counts.collect(), took.as_secs_f64() * 1e9);
                return Ok(Observation { counts, took });
            }
        }
    }
}

fn counts(worked: Worked) -> [f64; KINDS] {
    let Worked { turns, inputs, attaches, stripes, followers, merges, operations, .. } = worked;
    [turns, inputs, attaches, stripes, followers, merges, operations].map(|count| count as f64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_kind_of_work_is_done_by_some_load_and_explained() {
        let mut loads = Loads::new().unwrap();
        let costs = loads.costs(Duration::from_micros(200)).unwrap();
        assert_eq!(costs.len(), KINDS);
        for kind in 0..KINDS {
            let done = |load: &Load| load.observed[0].counts[kind] > 0.0;
            assert!(loads.0.iter().any(done), "kind {kind}");
        }
        // A table of zeros predicts no time, and the fitted one predicts nearly all.
        let explained = |costs: &Costs| {
            let all = loads.explained(costs);
            all.iter().map(|(_, parts)| parts[0]).sum::<f64>() / all.len() as f64
        };
        assert!(explained(&Costs::ZERO) == 0.0);
        let mut measured = Costs::ZERO;
        let fields = crate::costs::measure::fields(&mut measured);
        fields
            .into_iter()
            .zip(&costs)
            .for_each(|(field, cost)| *field = crate::costs::measure::whole(*cost));
        let ratio = explained(&measured);
        assert!((0.5..2.0).contains(&ratio), "{ratio}: {costs:?}");
    }
}
