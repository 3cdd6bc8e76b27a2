//! Time limits for members that do not respond while their metadata is read.
//!
//! A disk that hangs does not fail a read; the read never ends. Each member is read by a thread of
//! its own, so responding members do not wait behind a hung one; the thread of a hung member is
//! abandoned.

use std::sync::mpsc::{self, RecvTimeoutError};
use std::time::{Duration, Instant};

use weft_engine::MemberInfo;
use weft_engine::assemble::Candidate;

/// Time limits for reading metadata.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Patience {
    /// Time after which a member that does not respond is named on standard error, and time between
    /// two such notices.
    pub(crate) notice: Duration,
    /// Longest wait for a member; `None` waits forever.
    pub(crate) bound: Option<Duration>,
}

impl Patience {
    /// Limits with the default time between notices. After `bound`, the command goes on without
    /// members that have not responded; `None` waits for them forever.
    pub(crate) fn new(bound: Option<Duration>) -> Self {
        Self { notice: NOTICE, bound }
    }

    /// Reads the metadata of all members in parallel. Returns the members that responded in time,
    /// and a candidate for each member, both in order. A member that did not respond is a candidate
    /// without a superblock.
    pub(crate) fn candidates<M: Send + 'static>(
        self,
        members: impl Iterator<Item = (MemberInfo, M)>,
        read: fn(&M) -> Candidate,
        say: &mut dyn FnMut(&str),
    ) -> (Vec<M>, Vec<Candidate>) {
        let (mut silent, mut asked) = (Vec::new(), Vec::new());
        for (info, member) in members {
            asked.push((info.label.clone(), (member, read)));
            silent.push(Candidate::silent(info, self.reason()));
        }
        let act = |(member, read): (M, fn(&M) -> Candidate)| {
            let candidate = read(&member);
            (member, candidate)
        };
        let mut answered = Vec::new();
        let candidates =
            self.each(asked, act, say).into_iter().zip(silent).map(|(found, silent)| {
                let Some((member, candidate)) = found else { return silent };
                answered.push(member);
                candidate
            });
        let candidates = candidates.collect();
        (answered, candidates)
    }

    /// Applies `act` to all members in parallel. Returns `None` for members that did not respond in
    /// time; later results are discarded. Passes the names of unresponsive members to `say`.
    fn each<M: Send + 'static, T: Send + 'static>(
        self,
        members: Vec<(String, M)>,
        act: fn(M) -> T,
        say: &mut dyn FnMut(&str),
    ) -> Vec<Option<T>> {
        let start = Instant::now();
        let mut answers: Vec<Option<T>> = Vec::new();
        let (tell, told) = mpsc::channel();
        let mut labels = Vec::new();
        for ((label, member), index) in members.into_iter().zip(0..) {
            let tell = tell.clone();
            labels.push(label);
            answers.push(None);
            std::thread::spawn(move || {
                let answer = act(member);
                // An error is ignored: the receiver is gone after the bound.
                let _ = tell.send((index, answer));
            });
        }
        drop(tell);
        let mut next = self.notice;
        while answers.iter().any(Option::is_none) {
            let until = self.bound.map_or(next, |bound| bound.min(next));
            match told.recv_timeout(until.saturating_sub(start.elapsed())) {
                Ok((index, answer)) => {
                    let place: &mut Option<T> = &mut answers[index];
                    *place = Some(answer);
                }
                // A thread panicked, which has been reported.
                Err(RecvTimeoutError::Disconnected) => break,
                Err(RecvTimeoutError::Timeout) if self.bound.is_some_and(|it| it <= next) => break,
                Err(RecvTimeoutError::Timeout) => {
                    let after = match self.bound {
                        Some(bound) => format!("; going on without it after {} s", bound.as_secs()),
                        None => "; serve and assemble go on without it with --member-wait SECONDS"
                            .to_owned(),
                    };
                    for (label, answer) in labels.iter().zip(&answers) {
                        if answer.is_none() {
                            let waited = next.as_secs();
                            say(&format!(
                                "{label}: no answer for {waited} s while its metadata is read; \
                                 waiting{after}"
                            ));
                        }
                    }
                    next += self.notice;
                }
            }
        }
        answers
    }

    /// Reason why an unresponsive member is not used.
    fn reason(self) -> String {
        let bound = self.bound.unwrap_or_default().as_secs();
        format!("did not answer in {bound} s while its metadata was read (--member-wait)")
    }
}

/// Time between two notices about an unresponsive member, longer than disks need to spin up or to
/// repeat a read.
const NOTICE: Duration = Duration::from_secs(10);

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc::{Receiver, Sender, channel};
    use weft_ondisk::Metadata;
    use weft_units::{MemberIndex, Sectors};

    /// Work of a test on a member: responds with the value that is sent through its gate.
    fn act(gate: Receiver<u8>) -> u8 {
        gate.into_iter().next().unwrap_or(0)
    }

    type Gates = (Vec<Sender<u8>>, Vec<(String, Receiver<u8>)>);

    fn members(count: usize) -> Gates {
        let gates = (0..count).map(|_| channel());
        gates.enumerate().map(|(index, (open, gate))| (open, (format!("m{index}"), gate))).unzip()
    }

    /// Limits for tests: a silent member is named three times, and the threads of a busy machine
    /// have time to respond.
    fn short() -> Patience {
        Patience { notice: Duration::from_millis(600), bound: Some(Duration::from_secs(2)) }
    }

    #[test]
    fn those_that_answer_are_used_and_one_that_does_not_is_named_and_left_out() {
        let (gates, members) = members(3);
        gates[0].send(10).unwrap();
        gates[2].send(12).unwrap();
        let patience = short();
        let mut said = Vec::new();
        let found = patience.each(members, act, &mut |line| said.push(line.to_owned()));
        assert_eq!(found, [Some(10), None, Some(12)]);
        // On a busy machine the others may be late: they are then named as well, and used.
        let of_m1: Vec<&String> = said.iter().filter(|line| line.starts_with("m1: ")).collect();
        assert_eq!(of_m1.len(), 3, "{said:?}");
        for (line, waited) in of_m1.into_iter().zip([0, 1, 1]) {
            assert!(line.contains(&format!("no answer for {waited} s while its")), "{line}");
            assert!(line.ends_with("going on without it after 2 s"), "{line}");
        }
    }

    #[test]
    fn without_a_bound_every_member_is_waited_for_and_named_meanwhile() {
        let (gates, members) = members(2);
        gates[1].send(11).unwrap();
        let mut patience = Patience::new(None);
        patience.notice = Duration::from_millis(5);
        let mut said = 0_u32;
        let found = patience.each(members, act, &mut |line| {
            assert!(line.contains("--member-wait"), "{line}");
            // On a busy machine the other one may be late, and is then named as well.
            said += u32::from(line.starts_with("m0: "));
            if said == 3 {
                gates[0].send(10).unwrap();
            }
        });
        assert_eq!(found, [Some(10), Some(11)]);
        assert!(said >= 3);
    }

    #[test]
    fn a_member_that_does_not_answer_is_a_candidate_without_a_superblock_in_its_place() {
        let (gates, members) = members(3);
        gates[0].send(10).unwrap();
        gates[2].send(12).unwrap();
        let info =
            |index: u16, label: String| MemberInfo::of_size(MemberIndex(index), label, Sectors(8));
        let members = members.into_iter().zip(0..).map(|((label, gate), index)| {
            let of = info(index, label);
            (of.clone(), (of, gate))
        });
        // A member that responds gives the reason: its superblock cannot be read.
        let read = |(info, gate): &(MemberInfo, Receiver<u8>)| {
            gate.iter().next();
            let nothing = Metadata::read(info.size, |_, _| Err(std::io::ErrorKind::Other.into()));
            Candidate::new(info.clone(), nothing)
        };
        let patience = short();
        let (answered, candidates) = patience.candidates(members, read, &mut |_| ());
        let answered: Vec<_> = answered.iter().map(|(info, _)| info.label.as_str()).collect();
        assert_eq!(answered, ["m0", "m2"]);
        let labels = candidates.iter().map(|candidate| candidate.member.label.as_str());
        assert_eq!(labels.collect::<Vec<_>>(), ["m0", "m1", "m2"]);
        let silent = |candidate: &Candidate| {
            let error = candidate.superblock.as_ref().unwrap_err().to_string();
            error.contains("--member-wait")
        };
        assert_eq!(candidates.iter().map(silent).collect::<Vec<_>>(), [false, true, false]);
        drop(gates);
    }

    #[test]
    fn no_member_is_named_when_all_answer() {
        let (gates, members) = members(4);
        gates.iter().zip(0..).for_each(|(gate, value)| gate.send(value).unwrap());
        let found = Patience::new(None).each(members, act, &mut |line| panic!("{line}"));
        assert_eq!(found, [Some(0), Some(1), Some(2), Some(3)]);
        let none: Vec<Option<u8>> = Patience::new(None).each(Vec::new(), act, &mut |_| ());
        assert!(none.is_empty());
    }
}
