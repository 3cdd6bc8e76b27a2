//! Budget of hole probes: queries of members for their holes, limited per round of a worker.
//!
//! A *look* is one query of a member for its holes. A request for block status takes looks on the
//! thread that serves the clients of a worker; no other client is served meanwhile. All clients of
//! a worker together therefore have [`LOOKS_MAX`] looks per round of its event loop, however many
//! of them ask; the last request of a round may take as many again. A client that finds none left
//! is queued. The looks of a round go to the first client of the queue, until it has no more
//! requests or has used them up; a client that wants more is then queued at the end.
//!
//! `weft-runtime/src/serve/turns.rs` cannot do this: a look ends before the next one begins, so the
//! limit has to be on the time of a worker's round and not on requests in flight.

use std::collections::VecDeque;

use weft_units::ClientId;

/// Number of looks (queries of a member for its holes) that are left in a round of the event loop,
/// and the clients that wait for looks.
#[derive(Debug, Default)]
pub(crate) struct HoleProbeBudget {
    left: usize,
    /// Client that may take looks (queries of members for holes) in this round; `None` while no
    /// client has taken any.
    turn: Option<ClientId>,
    line: VecDeque<ClientId>,
}

impl HoleProbeBudget {
    /// Begins a round of the event loop: all [`LOOKS_MAX`] looks are available again, and no client
    /// has taken any.
    pub(crate) fn begin_round(&mut self) {
        self.left = LOOKS_MAX;
        self.turn = None;
    }

    /// Whether a request of this client may query members for holes now. If not, the client is
    /// queued.
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

    /// Subtracts the `count` looks (queries of a member for its holes) that a request has taken.
    pub(crate) fn take(&mut self, count: usize) {
        self.left = self.left.saturating_sub(count);
    }

    /// Removes a client that has disconnected.
    pub(crate) fn leave(&mut self, client: ClientId) {
        self.line.retain(|other| *other != client);
    }
}

/// Number of looks (queries of a member for its holes) in a round of a worker's event loop: some
/// 0.2 ms, after which other requests are served.
pub(crate) const LOOKS_MAX: usize = 256;

#[cfg(test)]
mod tests {
    use super::*;

    /// Floods of clients ask all the time, in the same order in every round; another client asks
    /// occasionally. Rounds stay bounded, and no client waits for more than one round of each other
    /// client.
    #[test]
    fn clients_that_ask_without_end_take_turns() {
        let mut looks = HoleProbeBudget::default();
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
        // The counts differ by at most two rounds of three requests: the first client had a turn
        // before any client was queued, and the last client in the queue is still to have its turn.
        let (least, most) = (had.iter().min().unwrap(), had.iter().max().unwrap());
        assert!(*least >= 27 && most - least <= 6, "{had:?}");
        // A client that asks now waits for one round of each other client, and then has a round.
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
    fn a_client_that_left_the_line_is_ahead_of_no_other() {
        let [a, b, c] = [ClientId(1), ClientId(2), ClientId(3)];
        let mut looks = HoleProbeBudget::default();
        looks.begin_round();
        assert!(looks.may_look(a));
        looks.take(LOOKS_MAX + 50);
        assert!(!looks.may_look(b) && !looks.may_look(c) && !looks.may_look(a));
        looks.begin_round();
        assert!(!looks.may_look(a) && !looks.may_look(c), "b is ahead of a and c");
        looks.leave(b);
        assert!(looks.may_look(c) && looks.may_look(c), "until no looks are left");
        assert!(looks.may_look(a), "c has no more requests");
        looks.take(LOOKS_MAX);
        assert!(!looks.may_look(a));
    }
}
