//! Turns of long requests: the order in which clients' trims and writes of zeroes go on.
//!
//! A trim or a write of zeroes brings no payload, so frames do not limit how much of it reaches the
//! members. Such a request is carried out in slices, and each slice needs a turn. At most
//! [`TURNS_MAX`] slices of all clients are in flight. Clients that wait stand in one line, and a
//! client goes to the end of it when its slice ends. A request of another client therefore never
//! finds more than [`TURNS_MAX`] slices ahead of it.
//!
//! A limit on each round, as in `weft-export/src/hole_probes.rs`, would not do: a slice lasts many
//! rounds, and the clients of all workers share the members, so slices in flight are limited.

use std::collections::VecDeque;

use weft_engine::Tag;
use weft_units::ClientId;

/// Slices in flight, and the line of clients that wait for a turn.
#[derive(Debug, Default)]
pub struct Turns {
    under_way: Vec<(ClientId, Tag)>,
    line: VecDeque<ClientId>,
    /// Number of changes to `under_way` and `line` that may let another client go on.
    moves: u64,
}

impl Turns {
    /// Begins a slice of a request, or puts the client at the end of the line unless it stands in
    /// it already. Returns whether the slice has begun.
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

    /// Ends a slice. Returns whether there was such a slice.
    pub fn end(&mut self, client: ClientId, tag: Tag) -> bool {
        let found = self.under_way.iter().position(|slice| *slice == (client, tag));
        if let Some(index) = found {
            self.under_way.swap_remove(index);
            self.moves += 1;
        }
        found.is_some()
    }

    /// Whether a slice of this client's requests is in flight.
    #[must_use]
    pub fn has(&self, client: ClientId) -> bool {
        self.under_way.iter().any(|(other, _)| *other == client)
    }

    /// Removes a client from the line. Its slices in flight end as usual.
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

/// Largest number of slices in flight: one that the members work on, and the next one.
pub const TURNS_MAX: usize = 2;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clients_take_turns_and_one_that_leaves_holds_up_no_other() {
        let [a, b, c] = [ClientId(1), ClientId(2), ClientId(3)];
        let mut turns = Turns::default();
        assert!(turns.begin(a, Tag(1)) && turns.begin(a, Tag(2)));
        assert!(!turns.begin(a, Tag(3)) && !turns.begin(b, Tag(1)) && !turns.begin(c, Tag(1)));
        assert!(!turns.end(b, Tag(1)), "the slice has not begun");
        let moves = turns.moves();
        assert!(turns.end(a, Tag(1)));
        assert_ne!(turns.moves(), moves);
        assert!(!turns.begin(b, Tag(1)), "a is ahead of b");
        assert!(turns.begin(a, Tag(3)) && !turns.begin(a, Tag(4)));
        assert!(turns.end(a, Tag(2)) && turns.end(a, Tag(3)));
        assert!(!turns.begin(a, Tag(4)) && !turns.begin(c, Tag(1)));
        assert!(turns.begin(b, Tag(1)) && turns.has(b));
        turns.leave(c);
        assert!(turns.begin(a, Tag(4)), "a client that left is not ahead of the others");
        turns.leave(b);
        assert!(turns.has(b), "the slice of b goes on");
        assert!(turns.end(b, Tag(1)) && !turns.has(b));
    }
}
