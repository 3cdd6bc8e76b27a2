//! Looks at members: how many a worker's round may take for block status, and for which client.
//!
//! A request for block status is answered on the thread that serves the clients of a worker, by
//! asking the members where their holes are, and no other client is served meanwhile. So all
//! clients of a worker together have [`LOOKS_MAX`] looks a round, however many of them ask, and a
//! last request may take as many again. A client that finds none left stands in line; the looks of
//! a round go to the first in line, until it asks for nothing more or has used them up, and then it
//! stands at the end.
//!
//! `weft-runtime/src/turns.rs` cannot do this: a look ends before the next one begins, so that the
//! time of a worker's round has to be bounded, and not what is under way.

use std::collections::VecDeque;

use weft_units::ClientId;

/// Looks at members that are left in a round, and the clients that wait for one.
#[derive(Debug, Default)]
pub(crate) struct Looks {
    left: usize,
    /// Client whose turn it is in this round.
    turn: Option<ClientId>,
    line: VecDeque<ClientId>,
}

impl Looks {
    /// A round begins.
    pub(crate) fn begin_round(&mut self) {
        self.left = LOOKS_MAX;
        self.turn = None;
    }

    /// Whether a request of this client may look at members now. Else the client stands in line.
    pub(crate) fn may_look(&mut self, client: ClientId) -> bool {
        let is_next = self.line.front().is_none_or(|next| *next == client);
        if self.left > 0 && (is_next || self.turn == Some(client)) {
            if self.turn != Some(client) {
                self.turn = Some(client);
                self.line.pop_front();
            }
            return true;
        }
        if !self.line.contains(&client) {
            self.line.push_back(client);
        }
        false
    }

    /// So many looks were taken.
    pub(crate) fn take(&mut self, count: usize) {
        self.left = self.left.saturating_sub(count);
    }

    /// Forgets a client that is gone.
    pub(crate) fn leave(&mut self, client: ClientId) {
        self.line.retain(|other| *other != client);
    }
}

/// Looks at members before others are served: some 0.2 ms.
pub(crate) const LOOKS_MAX: usize = 256;

#[cfg(test)]
mod tests {
    use super::*;

    /// Clients that ask without end, in the same order every round, and one that asks now and then:
    /// rounds have a bound, and nobody waits longer than for one round of each other.
    #[test]
    fn clients_that_ask_without_end_take_turns() {
        let mut looks = Looks::default();
        let clients: Vec<_> = (0..16).map(ClientId).collect();
        let mut had = [0; 16];
        for round in 0..160 {
            looks.begin_round();
            let mut taken = 0;
            for client in &clients {
                while looks.may_look(*client) {
                    looks.take(100);
                    taken += 100;
                    had[client.0 as usize] += 1;
                }
            }
            assert_eq!(taken, 300, "round {round}");
        }
        // The first had a turn before the line was there, and the last one has none yet.
        let (least, most) = (had.iter().min().unwrap(), had.iter().max().unwrap());
        assert!(*least >= 27 && most - least <= 6, "{had:?}");
        // One that comes now is behind each of the others once, and then has a round.
        let late = ClientId(99);
        let mut rounds = 0;
        loop {
            looks.begin_round();
            clients.iter().for_each(|client| {
                while looks.may_look(*client) {
                    looks.take(100);
                }
            });
            rounds += 1;
            if looks.may_look(late) {
                break;
            }
        }
        assert!(rounds <= 1 + 16 + 1, "{rounds}");
    }

    #[test]
    fn who_leaves_the_line_is_before_nobody() {
        let [a, b, c] = [ClientId(1), ClientId(2), ClientId(3)];
        let mut looks = Looks::default();
        looks.begin_round();
        assert!(looks.may_look(a));
        looks.take(LOOKS_MAX + 50);
        assert!(!looks.may_look(b) && !looks.may_look(c) && !looks.may_look(a));
        looks.begin_round();
        assert!(!looks.may_look(a) && !looks.may_look(c), "b is before them");
        looks.leave(b);
        assert!(looks.may_look(c) && looks.may_look(c), "as much as there is");
        assert!(looks.may_look(a), "c asks for nothing more");
        looks.take(LOOKS_MAX);
        assert!(!looks.may_look(a));
    }
}
