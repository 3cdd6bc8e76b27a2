//! Faults of a machine: members that fail, are slow or have unreadable sectors from some time on.
//!
//! A machine with faults shows how long requests take under them. Whether the data is right is
//! tested by weft-crash, the crash simulator.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, BinaryHeap};

use weft_engine::{Fault, Token, Value};
use weft_units::rng::Rng;
use weft_units::{MemberIndex, Sectors, Span, Time};

/// A fault that a member has from some time on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PlannedFault {
    /// Member with the fault.
    pub member: MemberIndex,
    /// Time from which the fault is active.
    pub from: Time,
    /// Kind of the fault: the member is gone, slow, or has unreadable sectors.
    pub kind: FaultKind,
}

/// Kind of a fault of a member.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FaultKind {
    /// The member is gone: all its requests fail.
    Gone,
    /// One in this many reads finds a sector that stays unreadable until it is written.
    Media {
        /// Mean number of reads per unreadable sector, at least 1.
        one_in: u64,
    },
    /// Every request takes `factor` times as long.
    Slow {
        /// Factor, at least 1.
        factor: u32,
    },
}

/// The faults of a machine.
#[derive(Debug)]
pub(super) struct Faults {
    planned: Vec<PlannedFault>,
    /// Time of submission of each outstanding request to a slow member.
    submitted: BTreeMap<Token, Time>,
    /// Requests that the simulated disk has completed but that take longer because the member is
    /// slow: time of completion, and token.
    late: BinaryHeap<Reverse<(Time, Token)>>,
    /// Outstanding requests that will fail when they complete.
    failing: BTreeMap<Token, Fault>,
    /// By member: first sector and end of each range that cannot be read.
    bad: BTreeMap<u16, Vec<(u64, u64)>>,
    /// By member: blocks of 4 KiB that were unreadable and were written since. The drive has
    /// remapped them, so they never fail again.
    healed: BTreeSet<(u16, u64)>,
    rng: Rng,
    /// Number of reads that have found an unreadable sector.
    pub(super) unreadable: u64,
}

impl Faults {
    pub(super) fn new(planned: Vec<PlannedFault>, seed: u64) -> Self {
        Self {
            planned,
            submitted: BTreeMap::new(),
            late: BinaryHeap::new(),
            failing: BTreeMap::new(),
            bad: BTreeMap::new(),
            healed: BTreeSet::new(),
            rng: Rng::new(seed),
            unreadable: 0,
        }
    }

    fn active(&self, member: MemberIndex, now: Time) -> impl Iterator<Item = FaultKind> + '_ {
        let of = move |fault: &&PlannedFault| fault.member == member && fault.from <= now;
        self.planned.iter().filter(of).map(|fault| fault.kind)
    }

    fn gone(&self, member: MemberIndex, now: Time) -> bool {
        self.active(member, now).any(|kind| kind == FaultKind::Gone)
    }

    fn factor(&self, member: MemberIndex, now: Time) -> Option<u32> {
        self.active(member, now).find_map(|kind| match kind {
            FaultKind::Slow { factor } => Some(factor),
            FaultKind::Gone | FaultKind::Media { .. } => None,
        })
    }

    /// Records a request to a member.
    ///
    /// # Errors
    /// The fault with which the request fails at once, because the member is gone.
    pub(super) fn on_submit(
        &mut self,
        now: Time,
        member: MemberIndex,
        token: Token,
    ) -> Result<(), Fault> {
        if self.gone(member, now) {
            return Err(Fault::Gone);
        }
        if self.factor(member, now).is_some() {
            self.submitted.insert(token, now);
        }
        Ok(())
    }

    /// Decides whether a read that was just submitted will fail.
    pub(super) fn on_read(
        &mut self,
        now: Time,
        member: MemberIndex,
        token: Token,
        (first, len): (Sectors, Sectors),
    ) {
        let one_in = self.active(member, now).find_map(|kind| match kind {
            FaultKind::Media { one_in } => Some(one_in),
            FaultKind::Gone | FaultKind::Slow { .. } => None,
        });
        let mut blocks = first.0 / 8..(first.0 + len.0).div_ceil(8);
        let healed = blocks.any(|block| self.healed.contains(&(member.0, block)));
        let one_in = one_in.filter(|_| !healed);
        let bad = self.bad.entry(member.0).or_default();
        if one_in.is_some_and(|one_in| self.rng.below(one_in.max(1)) == 0) {
            bad.push((first.0, first.0 + len.0.min(8)));
        }
        let hit = |(from, to): &(u64, u64)| *from < first.0 + len.0 && first.0 < *to;
        if bad.iter().any(hit) {
            self.failing.insert(token, Fault::Io);
            self.unreadable += 1;
        }
    }

    /// Makes the sectors that a write covers readable again.
    pub(super) fn on_write(&mut self, member: MemberIndex, (first, len): (Sectors, Sectors)) {
        let Some(bad) = self.bad.get_mut(&member.0) else { return };
        let (start, end) = (first.0, first.0 + len.0);
        let mut left = Vec::new();
        for (from, to) in bad.drain(..) {
            if to <= start || end <= from {
                left.push((from, to));
                continue;
            }
            self.healed.extend((from / 8..to.div_ceil(8)).map(|block| (member.0, block)));
            left.extend((from < start).then_some((from, start)));
            left.extend((end < to).then_some((end, to)));
        }
        *bad = left;
    }

    /// Result of a request that the simulated disk has completed; `None` if it takes longer because
    /// the member is slow.
    pub(super) fn on_done(
        &mut self,
        now: Time,
        member: MemberIndex,
        token: Token,
    ) -> Option<Result<Value, Fault>> {
        if let (Some(begun), Some(factor)) =
            (self.submitted.remove(&token), self.factor(member, now))
        {
            let took = now.since(begun).0.saturating_mul(u64::from(factor));
            self.late.push(Reverse((begun + Span(took), token)));
            return None;
        }
        Some(self.result(now, member, token))
    }

    fn result(&mut self, now: Time, member: MemberIndex, token: Token) -> Result<Value, Fault> {
        let fault = self.failing.remove(&token);
        let fault = if self.gone(member, now) { Some(Fault::Gone) } else { fault };
        fault.map_or(Ok(Value::Nothing), Err)
    }

    /// Time of the next completion by a slow member; `None` if none is planned.
    pub(super) fn next_event(&self) -> Option<Time> {
        self.late.peek().map(|Reverse((at, _))| *at)
    }

    /// Takes the next request that a slow member has completed by now, with its result; `None` if
    /// there is none.
    pub(super) fn ended(&mut self, now: Time) -> Option<(Token, Result<Value, Fault>)> {
        self.late.peek().filter(|Reverse((at, _))| *at <= now)?;
        let Reverse((_, token)) = self.late.pop().expect("peek found an entry");
        let fault = self.failing.remove(&token);
        Some((token, fault.map_or(Ok(Value::Nothing), Err)))
    }
}
