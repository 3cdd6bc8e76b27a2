//! Hops between threads in md's flushes: the times from waking a thread until it runs.
//!
//! The engine has no work queues, but md's rounds of flushes use them. One hop lies between the
//! start of a round and the flushes of the members, and a second one between the last answer and
//! the requests that the round was for. Hops are not CPU work: any number may be in progress at
//! once.
//!
//! | `flush_batch` | hops |
//! |---|---|
//! | `serial`, `batch` | two for each round (md 4.x, 5.2 to 6.11) |
//! | `parallel` | one before data that follows its flush (md 5.0) |
//! | `md612` | none: bios are submitted and completed without a change of thread |
//! | `needed` | as `batch` if a member is flushed, so that it is not cheaper by its hops alone |
//!
//! Source   experiments.md §1.3 and §3; seed 002; md-raid.md §4.1

use std::collections::{BTreeMap, BTreeSet};

use weft_engine::knobs::FlushRule;
use weft_engine::{Input, MemberOp, RequestOp, Token};
use weft_units::{MemberIndex, Span, Time};

use super::Host;

/// Inputs and member flushes that are delayed by a hop.
#[derive(Debug, Default)]
pub(super) struct Hops {
    span: Span,
    /// Hops in progress, by their end and the order in which they began.
    waiting: BTreeMap<(Time, u64), Hop>,
    count: u64,
    /// Outstanding member flushes that will complete one hop late.
    flushes: BTreeSet<Token>,
}

#[derive(Debug)]
enum Hop {
    Tell(Input),
    Flush(MemberIndex, Token),
}

impl Hops {
    pub(super) fn new(span: Span) -> Self {
        Self { span, ..Self::default() }
    }

    pub(super) fn next_event(&self) -> Option<Time> {
        self.waiting.first_key_value().map(|((at, _), _)| *at)
    }

    fn wait(&mut self, now: Time, hop: Hop) {
        self.count += 1;
        self.waiting.insert((now + self.span, self.count), hop);
    }
}

impl Host {
    /// Passes an input to the engine, after the hop that precedes it, if there is one.
    pub(super) fn tell_engine(&mut self, input: Input) {
        let hops = self.hops.span > Span::ZERO && self.flush_rule == FlushRule::Parallel;
        match input {
            Input::Client(request)
                if hops && request.flags.preflush && request.op == RequestOp::Write =>
            {
                // The position of this hop does not matter to the client, because no other request
                // waits for it.
                self.hops.wait(self.now, Hop::Tell(input));
            }
            input => self.inbox.push(input),
        }
    }

    /// Whether a member request is a flush that is delayed by hops. If so, the first hop starts
    /// now.
    pub(super) fn takes_hop(&mut self, member: MemberIndex, token: Token, op: &MemberOp) -> bool {
        let rounds =
            matches!(self.flush_rule, FlushRule::Batch | FlushRule::Needed | FlushRule::Serial);
        let hops = rounds && self.hops.span > Span::ZERO && *op == MemberOp::Flush;
        if hops {
            self.hops.wait(self.now, Hop::Flush(member, token));
        }
        hops
    }

    /// Continues with all inputs and flushes that were delayed by hops which have ended.
    pub(super) fn end_hops(&mut self) {
        while self.hops.next_event().is_some_and(|at| at <= self.now) {
            let (_, hop) = self.hops.waiting.pop_first().expect("next_event found an entry");
            match hop {
                Hop::Tell(input) => self.inbox.push(input),
                Hop::Flush(member, token) => {
                    self.hops.flushes.insert(token);
                    self.submit_now(member, token, &MemberOp::Flush);
                }
            }
        }
    }

    /// Delays completions of member flushes by a hop before the engine receives them.
    pub(super) fn delay_answers(&mut self) {
        if self.hops.flushes.is_empty() {
            return;
        }
        for input in std::mem::take(&mut self.inbox) {
            match input {
                Input::Done { token, .. } if self.hops.flushes.remove(&token) => {
                    self.hops.wait(self.now, Hop::Tell(input));
                }
                input => self.inbox.push(input),
            }
        }
    }
}
