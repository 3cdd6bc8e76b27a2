//! Pool of payload frames: allocation to requests, and the share of each client.
//!
//! Frames are allocated first fit over a bitmap, in runs of adjacent frames, lowest first. Small
//! requests thus stay together at the bottom, and long runs stay free above them. Each worker has
//! its own start of the search, its *home*, so that it gets the frames which it used last and which
//! its CPU still has in the cache. `low` keeps the search short: no frame between a home and its
//! `low` is free.
//!
//! # Shares
//!
//! Half of the pool is *floors*: an equal part is reserved for each client that may ever connect,
//! whether it has connected or not. The other half is shared: beyond its floor a client may hold
//! three quarters of S, the number of frames of the shared half that are free or held by this
//! client. Therefore n greedy clients that give nothing back leave (1/4)^n of the shared half, and
//! every floor.
//!
//! Source   A. K. Choudhury, E. L. Hahne, "Dynamic queue length thresholds", 1998 (the shared half)

use std::collections::BTreeMap;

use weft_engine::{Frame, Run};
use weft_units::ClientId;

use super::clients::{WORKER_PORTS, port_of};

/// Pool of the frames for clients' payload.
#[derive(Debug)]
pub struct Pool {
    first: u32,
    /// Bitmap of frames; a set bit is a free frame.
    free: Vec<u64>,
    free_count: u32,
    /// Number of runs that were given back so far.
    returns: u64,
    /// For each home (where the search for a worker's frames starts), the first word of the bitmap
    /// that may have a free frame; not below the first word of the home.
    low: [usize; HOMES],
    /// Client that holds each frame, or held it last.
    owners: Vec<ClientId>,
    /// Number of frames reserved for each client, its floor.
    floor: u32,
    /// Frames held by each client that has joined.
    shares: BTreeMap<ClientId, u32>,
    /// Frames of all floors that are not held, including the floors of clients that have not
    /// connected.
    kept: u64,
}

impl Pool {
    /// Creates a pool of the frames `first .. first + count`, all free, with no frames reserved for
    /// clients.
    #[must_use]
    pub fn new(first: u32, count: u32) -> Self {
        let mut free = vec![u64::MAX; (count as usize).div_ceil(64)];
        if let Some(last) = free.last_mut()
            && !count.is_multiple_of(64)
        {
            *last = (1 << (count % 64)) - 1;
        }
        let owners = vec![ClientId(0); count as usize];
        let low = std::array::from_fn(|home| home * free.len() / HOMES);
        Self {
            first,
            free,
            free_count: count,
            returns: 0,
            low,
            owners,
            floor: 0,
            shares: BTreeMap::new(),
            kept: 0,
        }
    }

    /// Adds a floor for each of at most `clients_max` clients: frames that no other client can
    /// take. All floors together are half of all frames, rounded down to equal floors.
    ///
    /// # Panics
    /// Panics when a client has joined already, or when `clients_max` is 0.
    #[must_use]
    pub fn with_floors(mut self, clients_max: usize) -> Self {
        assert!(self.shares.is_empty() && clients_max > 0);
        let count = u32::try_from(clients_max).unwrap_or(u32::MAX);
        self.floor = self.frames() / 2 / count;
        self.kept = u64::from(self.floor) * u64::from(count);
        self
    }

    /// Adds a client and assigns it one of the floors, the frames that are reserved for one client.
    pub fn join(&mut self, client: ClientId) {
        self.shares.entry(client).or_default();
    }

    /// Takes back the floor of a client that leaves. The client still has to give back the frames
    /// that it holds.
    pub fn leave(&mut self, client: ClientId) {
        if let Some(held) = self.shares.remove(&client) {
            self.kept += u64::from(held.min(self.floor));
            self.returns += 1;
        }
    }

    /// Whether a client may have `count` more frames. They need not be adjacent.
    #[must_use]
    pub fn may_take(&self, client: ClientId, count: u32) -> bool {
        let share = self.shares.get(&client).copied();
        let held = share.unwrap_or(0);
        let own = share.map_or(0, |held| self.floor.saturating_sub(held));
        if count <= own {
            return count <= self.free_count;
        }
        let others = self.kept - u64::from(own);
        let (count, free) = (u64::from(count), u64::from(self.free_count).saturating_sub(others));
        // Frames of the shared half that the client holds, before and after the request.
        let before = u64::from(held.saturating_sub(self.floor));
        let after = (u64::from(held) + count).saturating_sub(u64::from(self.floor));
        let most = match share {
            Some(_) => (3 * (free - free.min(u64::from(own)) + before)).div_ceil(4),
            None => u64::MAX,
        };
        count <= free && after <= most
    }

    /// Applies `change` to the number of frames that a client holds, and updates the count of
    /// reserved frames.
    fn account(&mut self, client: ClientId, change: impl FnOnce(u32) -> u32) {
        if let Some(held) = self.shares.get_mut(&client) {
            let before = self.floor.saturating_sub(*held);
            *held = change(*held);
            let after = self.floor.saturating_sub(*held);
            self.kept = self.kept + u64::from(after) - u64::from(before);
        }
    }

    /// Number of frames in the pool.
    #[must_use]
    pub fn frames(&self) -> u32 {
        u32::try_from(self.owners.len()).expect("made from a u32")
    }

    /// Number of free frames.
    #[must_use]
    pub fn free(&self) -> u32 {
        self.free_count
    }

    /// Number of frames that clients hold.
    #[must_use]
    pub fn held(&self) -> u32 {
        self.frames() - self.free_count
    }

    /// Number of runs given back so far. When it changes, clients that wait for frames may try
    /// again.
    #[must_use]
    pub fn returns(&self) -> u64 {
        self.returns
    }

    /// Lends `count` adjacent frames to a client. Returns `None` if the client may not have that
    /// many, or no such run is free.
    pub fn take(&mut self, owner: ClientId, count: u32) -> Option<Run> {
        if count == 0 {
            return Some(Run::EMPTY);
        }
        if !self.may_take(owner, count) {
            return None;
        }
        let home = home_of(owner);
        let start = self.find(self.low[home], count).or_else(|| self.find(0, count))?;
        for index in start..start + count {
            let (word, bit) = (index as usize / 64, index % 64);
            assert!(self.free[word] & (1 << bit) != 0);
            self.free[word] &= !(1 << bit);
            self.owners[index as usize] = owner;
        }
        self.free_count -= count;
        self.account(owner, |held| held + count);
        while self.free.get(self.low[home]) == Some(&0) {
            self.low[home] += 1;
        }
        Some(Run::new(self.first + start, count))
    }

    /// Takes back a run, or a part of one. Returns the client that held it.
    ///
    /// # Panics
    /// Panics when the frames are not on loan.
    pub fn give_back(&mut self, run: Run) -> ClientId {
        assert!(run.count > 0 && run.first.0 >= self.first, "{run:?} is not of the pool");
        let start = run.first.0 - self.first;
        assert!(start + run.count <= self.frames(), "{run:?} is not of the pool");
        for index in start..start + run.count {
            let (word, bit) = (index as usize / 64, index % 64);
            assert!(self.free[word] & (1 << bit) == 0, "{run:?} was given back twice");
            self.free[word] |= 1 << bit;
        }
        self.free_count += run.count;
        self.returns += 1;
        let word = start as usize / 64;
        for (home, low) in self.low.iter_mut().enumerate() {
            if word >= home * self.free.len() / HOMES {
                *low = word.min(*low);
            }
        }
        let owner = self.owners[start as usize];
        self.account(owner, |held| held - run.count);
        owner
    }

    /// Takes back a run that a request cannot use, because another run that it needs was not free.
    /// `returns` does not change: the waiting clients have no more frames than before.
    ///
    /// # Panics
    /// Panics when the frames are not on loan.
    pub fn undo_take(&mut self, run: Run) {
        self.give_back(run);
        self.returns -= 1;
    }

    /// Client that holds a frame, or held it last.
    #[must_use]
    pub fn owner(&self, frame: Frame) -> ClientId {
        self.owners[(frame.0 - self.first) as usize]
    }

    /// Finds the first free run of `count` frames. Returns its first frame, counted from the start
    /// of the pool; `None` if no run is long enough. `low` is the word of the bitmap where the
    /// search begins.
    fn find(&self, low: usize, count: u32) -> Option<u32> {
        let mut run = 0;
        let mut start = 0;
        for (index, word) in self.free.iter().enumerate().skip(low) {
            let base = u32::try_from(index * 64).expect("made from a u32");
            let mut word = *word;
            let mut bit = 0;
            while bit < 64 {
                // `word` holds the rest of the bits, shifted down.
                let ones = word.trailing_ones().min(64 - bit);
                if ones > 0 {
                    if run == 0 {
                        start = base + bit;
                    }
                    run += ones;
                    if run >= count {
                        return Some(start);
                    }
                    bit += ones;
                    if bit == 64 {
                        break;
                    }
                    word >>= ones;
                }
                run = 0;
                let zeros = word.trailing_zeros().min(64 - bit);
                bit += zeros;
                word = word.checked_shr(zeros).unwrap_or(0);
            }
        }
        None
    }
}

/// Home (start of the search for free frames) of the worker to which a client belongs.
fn home_of(client: ClientId) -> usize {
    usize::from(port_of(client) / WORKER_PORTS) % HOMES
}

/// Number of homes, the places where the search for free frames starts. Workers beyond this number
/// share homes with the first ones.
const HOMES: usize = 4;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::serve::clients::client_of;

    const OWNER: ClientId = ClientId(7);

    #[test]
    fn runs_are_side_by_side_and_come_back() {
        let mut pool = Pool::new(100, 200);
        let a = pool.take(OWNER, 60).unwrap();
        let b = pool.take(OWNER, 70).unwrap();
        let c = pool.take(OWNER, 70).unwrap();
        assert_eq!((a.first.0, b.first.0, c.first.0), (100, 160, 230));
        assert_eq!(pool.take(OWNER, 1), None);
        assert_eq!(pool.give_back(b), OWNER);
        assert_eq!(pool.take(OWNER, 71), None);
        assert_eq!(pool.take(OWNER, 69), Some(Run::new(160, 69)));
        assert_eq!(pool.take(OWNER, 1), Some(Run::new(229, 1)));
        assert_eq!(pool.held(), 200);
    }

    #[test]
    fn nothing_is_lent_twice() {
        let mut pool = Pool::new(1, 333);
        let mut held: Vec<Run> = Vec::new();
        let mut rng = weft_units::rng::Rng::new(1);
        for _ in 0..20_000 {
            let dice = (rng.next_u64() >> 33) as u32;
            if dice.is_multiple_of(3) && !held.is_empty() {
                let run = held.swap_remove(dice as usize / 3 % held.len());
                pool.give_back(run);
            } else if let Some(run) = pool.take(OWNER, 1 + dice / 3 % 40) {
                let apart = |other: &Run| {
                    run.first.0 + run.count <= other.first.0
                        || other.first.0 + other.count <= run.first.0
                };
                assert!(held.iter().all(apart));
                assert!(run.first.0 >= 1 && run.first.0 + run.count <= 334);
                held.push(run);
            }
        }
        for run in held.drain(..) {
            pool.give_back(run);
        }
        assert_eq!(pool.free(), 333);
        assert_eq!(pool.take(OWNER, 333), Some(Run::new(1, 333)));
    }

    #[test]
    fn workers_keep_to_their_homes_until_these_are_full() {
        let mut pool = Pool::new(1, 1024);
        let workers = [client_of(0, 5), client_of(WORKER_PORTS, 5)];
        let runs = workers.map(|client| pool.take(client, 3).unwrap());
        assert_eq!(runs, [Run::new(1, 3), Run::new(257, 3)]);
        assert_eq!(pool.give_back(runs[1]), workers[1]);
        assert_eq!(pool.take(workers[1], 2), Some(Run::new(257, 2)));
        assert_eq!(pool.take(workers[1], 766), Some(Run::new(259, 766)));
        assert_eq!(pool.take(workers[1], 1), Some(Run::new(4, 1)));
        assert_eq!(pool.take(workers[0], 252), Some(Run::new(5, 252)));
        assert_eq!(pool.take(workers[0], 1), None);
    }

    /// Takes single frames for a client until it gets no more.
    fn greedy(pool: &mut Pool, client: ClientId) -> Vec<Run> {
        std::iter::from_fn(|| pool.take(client, 1)).collect()
    }

    #[test]
    fn greedy_clients_leave_a_quarter_of_the_shared_half() {
        let mut pool = Pool::new(1, 2048).with_floors(64);
        let mut taken = Vec::new();
        for client in (7..71).map(ClientId) {
            pool.join(client);
            taken.push(greedy(&mut pool, client).len());
        }
        assert_eq!(taken[..5], [16 + 768, 16 + 192, 16 + 48, 16 + 12, 16 + 3]);
        assert!(taken[6..].iter().all(|count| *count == 16), "{taken:?}");
        assert_eq!(pool.free(), 0);
    }

    #[test]
    fn a_floor_is_there_for_a_new_client_and_for_the_next_one() {
        let [a, b, c] = [ClientId(7), ClientId(8), ClientId(9)];
        let mut pool = Pool::new(1, 64).with_floors(2);
        pool.join(a);
        let mut held = greedy(&mut pool, a);
        assert_eq!(held.len(), 16 + 24);
        pool.join(b);
        assert!(!pool.may_take(b, 16 + 7) && pool.may_take(b, 16 + 6));
        let first = pool.take(b, 16).unwrap();
        let returns = pool.returns();
        pool.leave(b);
        assert_ne!(pool.returns(), returns, "clients that wait may try again");
        // A new client gets the same floor once the former client has given back its frames.
        pool.join(c);
        assert!(pool.may_take(c, 8) && !pool.may_take(c, 17));
        pool.give_back(first);
        assert!(pool.may_take(c, 16));
        // Frames that the client gives back are reserved for it again, up to its floor.
        for run in held.drain(..30) {
            pool.give_back(run);
        }
        assert_eq!(greedy(&mut pool, c).len(), 16 + 24);
        assert_eq!(greedy(&mut pool, a).len(), 6 + 6);
    }

    #[test]
    #[should_panic(expected = "given back twice")]
    fn frames_come_back_once() {
        let mut pool = Pool::new(1, 8);
        let run = pool.take(OWNER, 2).unwrap();
        pool.give_back(run);
        pool.give_back(run);
    }
}
