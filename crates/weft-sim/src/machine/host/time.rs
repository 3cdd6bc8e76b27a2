//! Event loop of a simulated host: the next event and its effects.

use std::cmp::Reverse;
use std::collections::VecDeque;

use weft_engine::{
    ClientRequest, ComputeOp, Congestion, Differs, Flags, Input, Located, MemberOp, Output,
    ReplyError, Run, Token, Value, frames_needed,
};
use weft_units::{ByteRange, Bytes, MemberIndex, Span, Time};

use super::super::Woken;
use super::super::member::{Member, command_of};
use super::{ADMIN, AnswerReceiver, Host};
use crate::drive::Access;

impl Host {
    pub(in crate::machine) fn next_event(&self) -> Option<Time> {
        let disks = self.members.iter().filter_map(Member::next_event).min();
        let queues = self.engine.queue_wake().map(|at| at.max(self.now));
        let timer = self.timers.peek().map(|Reverse((at, ..))| *at);
        let leaving = self.leaving.front().map(|(at, ..)| *at);
        let engine = if self.inbox.is_empty() { self.engine_woken } else { Some(self.now) };
        let engine = engine.map(|at| at.max(self.engine_free));
        let late = self.faults.as_ref().and_then(|faults| faults.next_event());
        let hops = self.hops.next_event();
        let link = self.link.as_ref().and_then(|link| link.next_event());
        [disks, queues, timer, leaving, engine, late, hops, link].into_iter().flatten().min()
    }

    pub(in crate::machine) fn advance(&mut self, at: Time) {
        assert!(at >= self.now, "virtual time does not go backward");
        if self.history.as_ref().is_some_and(|history| history.is_due(at)) {
            let view = self.view();
            self.history.as_mut().expect("is_due was checked").look(at, &view);
        }
        self.now = at;
        for (index, member) in (0..).zip(&mut self.members) {
            if member.next_event().is_some_and(|next| next <= at) {
                let (inbox, faults, engine) = (&mut self.inbox, &mut self.faults, &mut self.engine);
                member.advance(at, |token| {
                    engine.ended(token);
                    let result = match faults {
                        Some(faults) => faults.on_done(at, MemberIndex(index), token),
                        None => Some(Ok(Value::Nothing)),
                    };
                    inbox.extend(result.map(|result| Input::Done { token, result }));
                });
            }
        }
        if let Some(link) = &mut self.link {
            while let Some((member, command)) = link.arrived(at) {
                self.members[usize::from(member.0)].begin(at, command);
            }
        }
        self.end_hops();
        // Queues dispatch while the engine works: in the kernel, an interrupt does this.
        let mut dispatched = VecDeque::new();
        self.engine.run_queues(at, &mut dispatched);
        self.submit_dispatched(dispatched);
        self.wake_with_tokens();
        if let Some(faults) = &mut self.faults {
            while let Some((token, result)) = faults.ended(at) {
                self.inbox.push(Input::Done { token, result });
            }
        }
        while self.leaving.front().is_some_and(|(due, ..)| *due <= at) {
            let (_, outputs, more) = self.leaving.pop_front().expect("front was checked");
            self.carry_out(outputs, more);
        }
        while let Some(Reverse((due, _, pid))) = self.timers.peek().copied() {
            if due > at {
                break;
            }
            self.timers.pop();
            self.ready.push_back((pid, Woken::Timer));
        }
    }

    /// Runs the engine now, instead of after all processes that can run. Requests that are
    /// submitted later thus belong to another plug.
    pub fn settle(&mut self) {
        while self.engine_turn() {}
    }

    /// Runs one turn of the engine (a bounded amount of its work) if the engine has work and its
    /// thread is free. Returns whether a turn was run.
    pub(in crate::machine) fn engine_turn(&mut self) -> bool {
        self.delay_answers();
        let woken = self.engine_woken.is_some_and(|at| at <= self.now);
        if (self.inbox.is_empty() && !woken) || self.engine_free > self.now {
            return false;
        }
        if woken && self.inbox.is_empty() {
            self.engine.handle(self.now, Input::Wake);
        }
        for input in self.inbox.drain(..) {
            self.flush_order.told(&input);
            self.engine.handle(self.now, input);
        }
        let mut outputs = VecDeque::new();
        let turn = self.engine.decide(self.now, &mut outputs);
        self.dirty_pages_max = self.dirty_pages_max.max(self.engine.write_back_pages());
        let mut cost = self.costs.of_turn(turn.work);
        for output in &outputs {
            if let Output::Compute { ops, .. } = output {
                cost = Span(cost.0 + self.costs.of_compute(ops).0);
            }
        }
        // The CPU work of a turn takes its time, then its outputs take effect, then the next turn
        // starts.
        self.engine_free = self.now + cost;
        self.engine_work = Span(self.engine_work.0 + cost.0);
        self.engine_woken =
            if turn.more { Some(self.engine_free) } else { self.engine.turn_wake() };
        if cost == Span::ZERO {
            self.carry_out(outputs, turn.more);
        } else {
            self.leaving.push_back((self.engine_free, outputs, turn.more));
        }
        self.tell_page_cache();
        self.wake_with_tokens();
        if self.congestion() < Congestion::Blocked {
            self.wake_blocked();
        }
        true
    }

    /// Carries out the outputs of a turn of the engine. `more` says whether the engine has more to
    /// do.
    fn carry_out(&mut self, outputs: VecDeque<Output>, more: bool) {
        for output in outputs {
            match output {
                Output::Submit { token, member, op, .. } => self.submit_to(member, token, &op),
                Output::Compute { token, ops } => {
                    for op in &ops {
                        if let ComputeOp::Recover { lost, .. } = op {
                            let bytes = lost.iter().map(|lost| u64::from(lost.part.len));
                            self.recovered += bytes.sum::<u64>();
                        }
                    }
                    let value = without_payload(&ops);
                    self.engine.recycle(ops);
                    self.inbox.push(Input::Done { token, result: Ok(value) });
                }
                Output::Reply { client: ADMIN, result, .. } => {
                    result.expect("an array with redundancy can be checked");
                }
                Output::Reply { tag, result, .. } => {
                    let (asked, request) =
                        self.requests.remove(&tag.0).expect("an answered request is known");
                    if result == Err(ReplyError::Stalled) {
                        // The stalled member may still write its data into the old frames.
                        let flags = Flags { again: true, ..request.flags };
                        let frames = self.take_frames(request.range);
                        let request = ClientRequest { frames, flags, ..request };
                        self.requests.insert(tag.0, (asked, request));
                        self.inbox.push(Input::Client(request));
                        continue;
                    }
                    self.volumes[request.volume.index()].answered(self.now);
                    self.requests_done += 1;
                    self.bytes_done = Bytes(self.bytes_done.0 + request.range.len.0);
                    self.failed += u64::from(result.is_err());
                    if result.is_ok() {
                        self.flush_order.answered(tag.0);
                    }
                    if let Some((first, seen)) = &mut self.seen
                        && let Some(place) = tag.0.checked_sub(*first)
                    {
                        seen[place as usize].answered = Some(self.now);
                    }
                    match asked {
                        AnswerReceiver::Process { pid, name } => {
                            self.ready.push_back((pid, Woken::Done(name)));
                        }
                        AnswerReceiver::Pages { inode, pages, .. } => {
                            self.pages_written(inode, pages);
                        }
                    }
                }
                Output::Notice(notice) => {
                    if self.notices.len() < NOTICES_MAX {
                        self.notices.push((self.now, notice));
                    }
                }
                Output::Abort(_) | Output::Credit { .. } | Output::Release(_) => {}
            }
        }
        let pass_is_over = !more && self.inbox.is_empty();
        let mut dispatched = VecDeque::new();
        self.engine.unplug_queues(self.now, pass_is_over, &mut dispatched);
        self.submit_dispatched(dispatched);
    }

    /// Submits the member requests that the engine's queues dispatched.
    fn submit_dispatched(&mut self, mut dispatched: VecDeque<Output>) {
        while let Some(output) = dispatched.pop_front() {
            let Output::Submit { token, member, op, .. } = output else {
                unreachable!("queues dispatch only member requests")
            };
            self.submit_to(member, token, &op);
            self.engine.run_queues(self.now, &mut dispatched);
        }
    }

    fn submit_to(&mut self, index: MemberIndex, token: Token, op: &MemberOp) {
        self.flush_order.sends(index, token, op);
        if !self.takes_hop(index, token, op) {
            self.submit_now(index, token, op);
        }
    }

    pub(super) fn submit_now(&mut self, index: MemberIndex, token: Token, op: &MemberOp) {
        if let Some(faults) = &mut self.faults
            && let Err(fault) = faults.on_submit(self.now, index, token)
        {
            self.engine.ended(token);
            self.inbox.push(Input::Done { token, result: Err(fault) });
            return;
        }
        if let MemberOp::Discard { .. } = op {
            self.engine.ended(token);
            self.inbox.push(Input::Done { token, result: Ok(Value::Nothing) });
            return;
        }
        let (access, range) = command_of(op);
        match (&mut self.faults, access) {
            (Some(faults), Access::Read) => faults.on_read(self.now, index, token, range),
            (Some(faults), Access::Write { .. }) => faults.on_write(index, range),
            (Some(_), Access::Flush | Access::Discard) | (None, _) => {}
        }
        let member = &mut self.members[usize::from(index.0)];
        match (member.take(token, access, range), &mut self.link) {
            (Some(command), Some(link)) => link.send(self.now, index, command),
            (Some(command), None) => member.begin(self.now, command),
            (None, _) => {
                self.engine.ended(token);
                let result = match &mut self.faults {
                    Some(faults) => faults.on_done(self.now, index, token),
                    None => Some(Ok(Value::Nothing)),
                };
                self.inbox.extend(result.map(|result| Input::Done { token, result }));
            }
        }
    }

    pub(super) fn take_frames(&mut self, range: ByteRange) -> Run {
        let count = frames_needed(range.start.0, range.len.0);
        if self.next_frame + count > self.frames.1 {
            self.next_frame = self.frames.0;
        }
        let run = Run::new(self.next_frame, count);
        self.next_frame += count;
        run
    }
}

/// Result of a computation, for a host that stores no payload: parity always agrees with the data.
fn without_payload(ops: &[ComputeOp]) -> Value {
    match ops.last() {
        Some(ComputeOp::Compare { .. }) => Value::Differs(Differs::default()),
        Some(ComputeOp::Locate { .. }) => Value::Located(Located::Clean),
        _ => Value::Nothing,
    }
}

/// Largest number of notices that are kept. Each is about a member or a block, and a report shows
/// no more.
const NOTICES_MAX: usize = 1000;

#[cfg(test)]
mod tests {
    use super::*;
    use weft_engine::{Frame, Segment, Source, Sources};

    #[test]
    fn without_payload_everything_agrees() {
        let part = |frame| Segment::at(Frame(frame), 0, 4096);
        let source = |exponent: u8| Source { exponent, part: part(u32::from(exponent) + 1) };
        let data: Sources = (0..3).map(source).collect();
        let (p, q) = (part(4), part(5));
        let value = |op| without_payload(&[op]);
        let compare = ComputeOp::Compare { data: data.clone(), p: Some(p), q: Some(q) };
        assert_eq!(value(compare), Value::Differs(Differs::default()));
        assert_eq!(value(ComputeOp::Locate { data, p, q }), Value::Located(Located::Clean));
        let (left, lost) = ([source(1)].into_iter().collect(), [source(0), source(2)].into());
        let recover = ComputeOp::Recover { data: left, p: Some(p), q: Some(q), lost };
        assert_eq!(value(recover), Value::Nothing);
    }
}
