//! Which frames of the slab hold the payload of requests?
//!
//! First fit over a bitmap: runs of frames side by side, lowest first, so that small requests stay
//! together at the bottom and long runs stay free above them. Each lane has a bottom of its own, its
//! *home*, where it looks first: frames that it has used lately are in the cache of its CPU, and those
//! of another lane in another's. `low` keeps the search short: no frame from home to there is free.

use weft_engine::{Frame, Run};
use weft_units::ClientId;

use crate::driver::Driver;
use crate::lane::LANE_PORTS;

/// The driver's part of the slab.
#[derive(Debug)]
pub struct Pool {
    first: u32,
    /// A set bit is a free frame.
    free: Vec<u64>,
    free_count: u32,
    /// Runs given back so far.
    returns: u64,
    /// Of each home: the first word that may have a free frame, not below the home.
    low: [usize; HOMES],
    /// Who a frame was lent to.
    owners: Vec<ClientId>,
}

impl Pool {
    /// Frames `first .. first + count`, all free.
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
        Self { first, free, free_count: count, returns: 0, low, owners }
    }

    /// Frames in it.
    #[must_use]
    pub fn frames(&self) -> u32 {
        u32::try_from(self.owners.len()).expect("made from a u32")
    }

    /// Frames that nobody has.
    #[must_use]
    pub fn free(&self) -> u32 {
        self.free_count
    }

    /// Frames that somebody has.
    #[must_use]
    pub fn held(&self) -> u32 {
        self.frames() - self.free_count
    }

    /// Runs given back so far; when it moves, who waits for frames may try again.
    #[must_use]
    pub fn returns(&self) -> u64 {
        self.returns
    }

    /// Lends `count` frames side by side, or says that there is no such run now.
    pub fn take(&mut self, owner: ClientId, count: u32) -> Option<Run> {
        if count == 0 {
            return Some(Run::EMPTY);
        }
        if count > self.free_count {
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
        while self.free.get(self.low[home]) == Some(&0) {
            self.low[home] += 1;
        }
        Some(Run::new(self.first + start, count))
    }

    /// Takes a run back, or some of its frames. Says who had it.
    ///
    /// # Panics
    /// When it was not lent.
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
        self.owners[start as usize]
    }

    /// Who has a frame.
    #[must_use]
    pub fn owner(&self, frame: Frame) -> ClientId {
        self.owners[(frame.0 - self.first) as usize]
    }

    /// The first run at or above a word.
    fn find(&self, low: usize, count: u32) -> Option<u32> {
        let mut run = 0;
        let mut start = 0;
        for (index, word) in self.free.iter().enumerate().skip(low) {
            let base = u32::try_from(index * 64).expect("made from a u32");
            let mut word = *word;
            let mut bit = 0;
            while bit < 64 {
                // `word` is the rest of the bits, shifted down.
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

/// Where a client's lane looks first.
fn home_of(client: ClientId) -> usize {
    usize::from(Driver::port_of(client) / LANE_PORTS) % HOMES
}

/// As many as there are lanes, mostly.
const HOMES: usize = 4;

#[cfg(test)]
mod tests {
    use super::*;

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
        let mut random = 1_u64;
        for _ in 0..20_000 {
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            let dice = (random >> 33) as u32;
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
    fn lanes_keep_to_their_homes_until_these_are_full() {
        let mut pool = Pool::new(1, 1024);
        let lanes = [Driver::client(0, 5), Driver::client(LANE_PORTS, 5)];
        let runs = lanes.map(|client| pool.take(client, 3).unwrap());
        assert_eq!(runs, [Run::new(1, 3), Run::new(257, 3)]);
        assert_eq!(pool.give_back(runs[1]), lanes[1]);
        assert_eq!(pool.take(lanes[1], 2), Some(Run::new(257, 2)));
        assert_eq!(pool.take(lanes[1], 766), Some(Run::new(259, 766)));
        assert_eq!(pool.take(lanes[1], 1), Some(Run::new(4, 1)));
        assert_eq!(pool.take(lanes[0], 252), Some(Run::new(5, 252)));
        assert_eq!(pool.take(lanes[0], 1), None);
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
