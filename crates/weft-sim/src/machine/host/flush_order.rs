//! Flush order checker: writes that must be durable on each member when a flush is answered.
//!
//! A flush request promises that all writes which had completed when it arrived are durable when it
//! is answered. So each member must have received a flush after the last of these writes completed,
//! and the member flush must have completed before the answer. This is checked for members with a
//! volatile cache and without one, because md sends flushes to both; under the rule `needed`, a
//! member without a cache needs none. Machines with faults are not checked: a failed member
//! promises nothing.
//!
//! Whether a request's own data comes after its PREFLUSH is checked in weft-crash, not here.
//!
//! Source   md-raid.md §4.1; the rules are those of `flush_batch.rs`, checked by other means

use std::collections::{BTreeMap, BTreeSet};

use weft_engine::knobs::FlushRule;
use weft_engine::{Input, MemberOp, RequestOp, Token};
use weft_units::MemberIndex;

/// State of each member's writes and flushes, and the promises of unanswered flush requests.
#[derive(Debug)]
pub(super) struct FlushOrder {
    members: Vec<Written>,
    /// Number of members of each volume.
    width: usize,
    /// Outstanding discards and writes without FUA, each with the index of its member.
    writes: BTreeMap<Token, usize>,
    /// Outstanding member flushes, each with the index of its member and the number of writes that
    /// it makes durable.
    flushes: BTreeMap<Token, (usize, u64)>,
    /// By tag of a flush request: the first member of its volume, and the number of writes that had
    /// completed on each member of the volume when the request arrived.
    promises: BTreeMap<u64, (usize, Vec<u64>)>,
    /// Members that failed a flush. They are not checked from then on.
    failed: BTreeSet<usize>,
    counts: FlushOrderCounts,
}

/// Counts of the flush order checker.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FlushOrderCounts {
    /// Number of flush requests that were answered and checked.
    pub answers: u64,
    /// Number of completed member writes that the checked requests promised to make durable, added
    /// up over requests and members. The initial content of a member counts as one write.
    pub writes: u64,
    /// Number of requests that were answered although a write that they promised to make durable
    /// was not durable yet. Any number but 0 is a bug of the engine.
    pub early: u64,
}

/// Numbers of completed and of durable writes of one member. The initial content counts as one
/// completed write that is not durable yet.
#[derive(Clone, Copy, Debug)]
struct Written {
    completed: u64,
    durable: u64,
    owes: bool,
}

impl FlushOrder {
    /// Creates the checker. `caches` says of each member whether it has a volatile cache. The
    /// members belong to `volumes` volumes with equal numbers of members, one volume after the
    /// other.
    pub(super) fn new(rule: FlushRule, caches: impl Iterator<Item = bool>, volumes: usize) -> Self {
        let member = |cache| {
            let owes = cache || rule != FlushRule::Needed;
            Written { completed: 1, durable: 0, owes }
        };
        let members: Vec<Written> = caches.map(member).collect();
        Self {
            width: members.len() / volumes,
            members,
            writes: BTreeMap::new(),
            flushes: BTreeMap::new(),
            promises: BTreeMap::new(),
            counts: FlushOrderCounts::default(),
            failed: BTreeSet::new(),
        }
    }

    pub(super) fn counts(&self) -> FlushOrderCounts {
        self.counts
    }

    /// Records a request that the engine submits to a member.
    pub(super) fn sends(&mut self, member: MemberIndex, token: Token, op: &MemberOp) {
        let index = usize::from(member.0);
        match op {
            MemberOp::Flush => {
                self.flushes.insert(token, (index, self.members[index].completed));
            }
            MemberOp::Discard { .. } | MemberOp::Write { fua: false, .. } => {
                self.writes.insert(token, index);
            }
            MemberOp::Read { .. } | MemberOp::Write { .. } | MemberOp::WriteMetadata { .. } => {}
        }
    }

    /// Records an input of the engine: a flush request that arrives, or a member request that
    /// completes.
    pub(super) fn told(&mut self, input: &Input) {
        match input {
            Input::Client(request) if request.op == RequestOp::Flush || request.flags.preflush => {
                let first = request.volume.index() * self.width;
                let members = &self.members[first..first + self.width];
                let completed = members.iter().map(|member| member.completed).collect();
                self.promises.insert(request.tag.0, (first, completed));
            }
            Input::Done { token, result } => {
                if let Some(index) = self.writes.remove(token) {
                    self.members[index].completed += 1;
                } else if let Some((index, covers)) = self.flushes.remove(token) {
                    let member = &mut self.members[index];
                    match result {
                        Ok(_) => member.durable = member.durable.max(covers),
                        Err(_) => _ = self.failed.insert(index),
                    }
                }
            }
            _ => {}
        }
    }

    /// Checks a request that was answered without an error, if it is a flush or has PREFLUSH: the
    /// writes that had completed when it arrived must be durable. Otherwise it counts as `early`.
    pub(super) fn answered(&mut self, tag: u64) {
        let Some((first, promised)) = self.promises.remove(&tag) else { return };
        let members = self.members.iter().enumerate().skip(first).zip(&promised);
        let owing =
            members.filter(|((index, member), _)| member.owes && !self.failed.contains(index));
        let (mut early, mut writes) = (false, 0);
        for ((_, member), promised) in owing {
            early |= member.durable < *promised;
            writes += promised;
        }
        self.counts.answers += 1;
        self.counts.writes += writes;
        self.counts.early += u64::from(early);
    }
}

#[cfg(test)]
mod tests {
    use weft_engine::knobs::Knobs;
    use weft_engine::mutant::Mutant;
    use weft_engine::page_cache::{Kernel, PoolConfig};
    use weft_engine::{Attr, ClientRequest, Flags, Run, Segments, Tag, Value};
    use weft_ondisk::Level;
    use weft_units::{ByteRange, Bytes, ClientId, Sectors, Span, VolumeId};

    use super::*;
    use crate::machine::{Machine, MachineParts};
    use crate::workload::dbench::Settings;
    use crate::workload::ext4::{Log, Mount};

    const RULES: [FlushRule; 5] = [
        FlushRule::Batch,
        FlushRule::Md612,
        FlushRule::Needed,
        FlushRule::Parallel,
        FlushRule::Serial,
    ];

    /// Runs clients that write with `O_SYNC` on a RAID 10 of members with caches. Returns the
    /// checker's counts.
    fn run(rule: FlushRule, planted: Option<Mutant>) -> FlushOrderCounts {
        let knobs = Knobs { flush_batch: rule, ..Knobs::md() };
        let parts = MachineParts::raid5("ssd-sata-dc-2019", Bytes::kib(512), knobs);
        let member_size = Some(Sectors(1 << 22));
        let flush_hop = Span(50_000);
        let parts = MachineParts { level: Some(Level::Raid10), member_size, flush_hop, ..parts };
        let mut machine = Machine::new(&parts);
        if let Some(planted) = planted {
            machine.host.engine.plant(planted);
        }
        let pool = PoolConfig::new(Kernel::V3_1, 8, 1 << 22, 1 << 22);
        let fs = Mount { log: Log::Xfs { buffers: 8 }, ..Mount::default() }.on(&mut machine, pool);
        let settings = Settings { sync_open: true, ..Settings::new(8, Span::millis(100)) };
        let run = settings.start(&mut machine, &fs);
        machine.run(run.until());
        machine.host.flush_order()
    }

    #[test]
    fn no_rule_answers_before_what_it_promised_is_durable() {
        for rule in RULES {
            let found = run(rule, None);
            assert_eq!(found.early, 0, "{rule:?}: {found:?}");
            assert!(found.answers > 100 && found.writes > 1000, "{rule:?}: {found:?}");
        }
    }

    /// Counts after a write to one disk and a flush of another. The two are members of one volume,
    /// or each is a volume of its own.
    fn flush_beside_a_write(volumes: usize) -> FlushOrderCounts {
        let mut order = FlushOrder::new(FlushRule::Batch, [true, true].into_iter(), volumes);
        let op = MemberOp::Write { at: Sectors(0), from: Segments::new(), fua: false };
        let done = |token| Input::Done { token, result: Ok(Value::Nothing) };
        order.sends(MemberIndex(0), Token(1), &op);
        order.told(&done(Token(1)));
        let flush = ClientRequest {
            client: ClientId(1),
            tag: Tag(1),
            volume: VolumeId(volumes as u16 - 1),
            op: RequestOp::Flush,
            range: ByteRange::new(0, 0),
            frames: Run::EMPTY,
            flags: Flags::NONE,
            attr: Attr::default(),
        };
        order.told(&Input::Client(flush));
        order.sends(MemberIndex(1), Token(2), &MemberOp::Flush);
        order.told(&done(Token(2)));
        order.answered(1);
        order.counts()
    }

    #[test]
    fn a_flush_promises_the_writes_of_its_own_volume() {
        let alone = FlushOrderCounts { answers: 1, writes: 1, early: 0 };
        assert_eq!(flush_beside_a_write(2), alone);
        assert_eq!(flush_beside_a_write(1), FlushOrderCounts { writes: 3, early: 1, ..alone });
    }

    #[test]
    fn a_flush_that_is_served_by_one_that_started_before_is_found() {
        for rule in [FlushRule::Batch, FlushRule::Serial] {
            let found = run(rule, Some(Mutant::FlushServedByEarlier));
            assert!(found.early > 0, "{rule:?}: {found:?}");
        }
    }
}
