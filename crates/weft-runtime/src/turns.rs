//! Turns of long requests: which client's trim or write of zeroes goes on next.
//!
//! A trim or a write of zeroes brings no payload, so that no frames bound how much of it reaches
//! the members. Such a request is carried out in slices, and a slice needs a turn. At most
//! [`TURNS_MAX`] slices of all clients are under way; the clients that wait stand in one line, and
//! a client whose slice has ended goes to the end of the line. So another client's request never
//! finds more than [`TURNS_MAX`] slices before it.
//!
//! `weft-export/src/looks.rs` cannot do this: a slice goes on for many rounds, and clients of all
//! workers share the members, so that what is under way has to be bounded, and not a round.

use std::collections::VecDeque;

use weft_engine::Tag;
use weft_units::ClientId;

/// The slices under way, and the line.
#[derive(Debug, Default)]
pub struct Turns {
    under_way: Vec<(ClientId, Tag)>,
    line: VecDeque<ClientId>,
    /// Changes of either that may let somebody else go on.
    moves: u64,
}

impl Turns {
    /// Begins a slice, or puts the client at the end of the line.
    pub fn begin(&mut self, client: ClientId, tag: Tag) -> bool {
        let is_next = self.line.front().is_none_or(|next| *next == client);
        if !is_next || self.under_way.len() >= TURNS_MAX {
            if !self.line.contains(&client) {
                self.line.push_back(client);
            }
            return false;
        }
        if self.line.pop_front().is_some() {
            self.moves += 1;
        }
        self.under_way.push((client, tag));
        true
    }

    /// A slice has ended; whether there was such a slice.
    pub fn end(&mut self, client: ClientId, tag: Tag) -> bool {
        let found = self.under_way.iter().position(|slice| *slice == (client, tag));
        if let Some(index) = found {
            self.under_way.swap_remove(index);
            self.moves += 1;
        }
        found.is_some()
    }

    /// Whether a slice of this client is under way.
    #[must_use]
    pub fn has(&self, client: ClientId) -> bool {
        self.under_way.iter().any(|(other, _)| *other == client)
    }

    /// A client stands in line no more. Its slices end as they would have.
    pub fn leave(&mut self, client: ClientId) {
        self.line.retain(|other| *other != client);
        self.moves += 1;
    }

    /// Counter that changes when clients that stand in line may ask again.
    #[must_use]
    pub fn moves(&self) -> u64 {
        self.moves
    }
}

/// Slices under way: one that the members work on, and one that is there when it ends.
pub const TURNS_MAX: usize = 2;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clients_take_turns_and_those_who_leave_hold_up_nobody() {
        let [a, b, c] = [ClientId(1), ClientId(2), ClientId(3)];
        let mut turns = Turns::default();
        assert!(turns.begin(a, Tag(1)) && turns.begin(a, Tag(2)));
        assert!(!turns.begin(a, Tag(3)) && !turns.begin(b, Tag(1)) && !turns.begin(c, Tag(1)));
        assert!(!turns.end(b, Tag(1)), "it has not begun");
        let moves = turns.moves();
        assert!(turns.end(a, Tag(1)));
        assert_ne!(turns.moves(), moves);
        assert!(!turns.begin(b, Tag(1)), "a is before it");
        assert!(turns.begin(a, Tag(3)) && !turns.begin(a, Tag(4)));
        assert!(turns.end(a, Tag(2)) && turns.end(a, Tag(3)));
        assert!(!turns.begin(a, Tag(4)) && !turns.begin(c, Tag(1)));
        assert!(turns.begin(b, Tag(1)) && turns.has(b));
        turns.leave(c);
        assert!(turns.begin(a, Tag(4)), "who left is before nobody");
        turns.leave(b);
        assert!(turns.has(b), "its slice goes on");
        assert!(turns.end(b, Tag(1)) && !turns.has(b));
    }
}
