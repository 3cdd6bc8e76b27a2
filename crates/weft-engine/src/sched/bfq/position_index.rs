//! Position index: finds the queue that has its next request near a given sector.
//!
//! Zones of 4 MiB are hashed to lists of the queues that have their next request in the zone. A
//! nearby request is in the zone of the sector or in an adjacent one, so a lookup reads three
//! lists, and a change of position relinks one entry. Neither cost grows with the number of queues
//! elsewhere, and nothing is allocated once every queue has been in the index. (Linux has a tree
//! per group.)
//!
//! Queues of different classes or groups are never merged. Each class of a group therefore has an
//! index of its own.
//!
//! Source   io-schedulers.md §2.12, "Position index"

use weft_units::Sectors;

use super::QueueId;

/// Index of queues by the first sector of their next request.
#[derive(Clone, Debug, Default)]
pub(super) struct PositionIndex {
    /// First entry of each list. The vector is empty until the first insertion.
    heads: Vec<u32>,
    /// Entries, by queue number.
    entries: Vec<Entry>,
    len: usize,
}

/// Class and group of a queue, encoded. Only queues with equal values may be merged.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Peers(pub(crate) u32);

#[derive(Clone, Copy, Debug)]
struct Entry {
    /// List that contains the queue; [`NONE`] if it is not in the index.
    list: u32,
    prev: u32,
    next: u32,
    peers: Peers,
    at: Sectors,
}

impl PositionIndex {
    /// Number of queues in the index.
    pub(super) fn len(&self) -> usize {
        self.len
    }

    /// Inserts a queue that has its next request at sector `at`, or moves it to that sector.
    pub(super) fn put(&mut self, queue: QueueId, peers: Peers, at: Sectors) {
        if self.heads.is_empty() {
            self.heads = vec![NONE; LISTS];
        }
        let index = queue.0 as usize;
        if index >= self.entries.len() {
            self.entries.resize(index + 1, Entry::OUT);
        }
        let list = list_of(zone_of(at), peers);
        if self.entries[index].list != list {
            self.remove(queue);
            let next = std::mem::replace(&mut self.heads[list as usize], queue.0);
            if next != NONE {
                self.entries[next as usize].prev = queue.0;
            }
            self.entries[index] = Entry { list, prev: NONE, next, peers, at };
            self.len += 1;
        }
        (self.entries[index].peers, self.entries[index].at) = (peers, at);
    }

    /// Whether the index contains the queue, with its next request at sector `at`.
    #[inline]
    pub(super) fn is_at(&self, queue: QueueId, at: Sectors) -> bool {
        self.entries.get(queue.0 as usize).is_some_and(|entry| entry.at == at && entry.list != NONE)
    }

    /// Removes a queue from the index, if the index contains it.
    pub(super) fn remove(&mut self, queue: QueueId) {
        let Some(&Entry { list, prev, next, .. }) = self.entries.get(queue.0 as usize) else {
            return;
        };
        if list == NONE {
            return;
        }
        match prev {
            NONE => self.heads[list as usize] = next,
            prev => self.entries[prev as usize].next = next,
        }
        if next != NONE {
            self.entries[next as usize].prev = prev;
        }
        self.entries[queue.0 as usize] = Entry::OUT;
        self.len -= 1;
    }

    /// Removes all queues.
    pub(super) fn clear(&mut self) {
        self.heads.fill(NONE);
        self.entries.fill(Entry::OUT);
        self.len = 0;
    }

    /// Queue other than `except` that has its next request nearest to sector `at`, if it is within
    /// [`CLOSE`]; otherwise `None`. At equal distance, a queue below the sector is preferred, then
    /// the queue with the lower number.
    pub(super) fn nearest(&self, except: QueueId, peers: Peers, at: Sectors) -> Option<QueueId> {
        if self.len == 0 {
            return None;
        }
        let zone = zone_of(at);
        let mut best = (u64::MAX, u64::MAX, NONE);
        for zone in zone.saturating_sub(1)..=zone + 1 {
            let mut queue = self.heads[list_of(zone, peers) as usize];
            while queue != NONE {
                let entry = &self.entries[queue as usize];
                let found = (entry.at.0.abs_diff(at.0), entry.at.0, queue);
                if queue != except.0 && entry.peers == peers && found < best {
                    best = found;
                }
                queue = entry.next;
            }
        }
        let (distance, _, queue) = best;
        (queue != NONE && distance <= CLOSE.0).then_some(QueueId(queue))
    }
}

impl Entry {
    /// Entry of a queue that is not in the index: the entry is on no list.
    const OUT: Self =
        Self { list: NONE, prev: NONE, next: NONE, peers: Peers(0), at: Sectors::ZERO };
}

/// Whether two sectors are near enough for one queue to serve both.
pub(super) fn is_close(one: Sectors, other: Sectors) -> bool {
    one.0.abs_diff(other.0) <= CLOSE.0
}

fn zone_of(at: Sectors) -> u64 {
    at.0 / CLOSE.0
}

/// Number of the list for a zone and the class and group `peers`, by a multiplicative hash (Knuth).
fn list_of(zone: u64, peers: Peers) -> u32 {
    let key = zone ^ (u64::from(peers.0) << 40);
    (key.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> (64 - LISTS.trailing_zeros())) as u32
}

/// Largest distance in sectors between two requests for their queues to be merged: 4 MiB
/// (`BFQQ_CLOSE_THR`).
const CLOSE: Sectors = Sectors(8192);
/// Number of lists: they take four pages of memory, and with 256 queues a list has a quarter of an
/// entry on average.
const LISTS: usize = 1024;
/// Value that stands for no queue and for no list.
const NONE: u32 = u32::MAX;

#[cfg(test)]
mod tests {
    use super::*;

    const PEERS: Peers = Peers(1);
    /// Queue that is not in the index.
    const ABSENT: QueueId = QueueId(99);

    fn index(places: &[u64]) -> PositionIndex {
        let mut index = PositionIndex::default();
        for (queue, at) in (0..).zip(places) {
            index.put(QueueId(queue), PEERS, Sectors(*at));
        }
        index
    }

    fn nearest(places: &[u64], at: u64) -> Option<u32> {
        index(places).nearest(ABSENT, PEERS, Sectors(at)).map(|queue| queue.0)
    }

    #[test]
    fn the_nearest_within_4_mib_is_found_on_either_side() {
        assert_eq!(nearest(&[], 0), None);
        assert_eq!(nearest(&[100_000], 108_192), Some(0));
        assert_eq!(nearest(&[100_000], 108_193), None);
        assert_eq!(nearest(&[100_000], 91_808), Some(0));
        assert_eq!(nearest(&[100_000], 91_807), None);
        assert_eq!(nearest(&[0, 5_000, 9_000], 6_000), Some(1));
        assert_eq!(nearest(&[9_000, 5_000], 7_000), Some(1), "the one below");
        assert_eq!(nearest(&[7, 7, 7], 7), Some(0));
    }

    #[test]
    fn other_peers_and_the_queue_itself_are_not_near() {
        let mut index = index(&[500]);
        assert_eq!(index.nearest(QueueId(0), PEERS, Sectors(500)), None);
        assert_eq!(index.nearest(ABSENT, Peers(2), Sectors(500)), None);
        index.put(QueueId(1), Peers(2), Sectors(600));
        assert_eq!(index.nearest(ABSENT, Peers(2), Sectors(500)), Some(QueueId(1)));
        index.clear();
        assert_eq!((index.len(), index.nearest(ABSENT, PEERS, Sectors(500))), (0, None));
    }

    /// Compares the index with a search of all queues.
    #[test]
    fn random_moves_agree_with_a_search_of_everything() {
        let mut state = 3u64;
        let mut below = |bound: u64| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            (state >> 33) % bound
        };
        let mut index = PositionIndex::default();
        let mut all: Vec<Option<(Peers, u64)>> = vec![None; 40];
        for _ in 0..20_000 {
            let queue = below(all.len() as u64) as usize;
            let id = QueueId(queue as u32);
            if below(5) == 0 {
                index.remove(id);
                all[queue] = None;
            } else {
                let place = (Peers(below(2) as u32), below(200_000));
                index.put(id, place.0, Sectors(place.1));
                all[queue] = Some(place);
            }
            let (peers, at) = (Peers(below(2) as u32), below(200_000));
            let expected = (0..)
                .zip(&all)
                .filter_map(|(queue, place)| Some((queue, (*place)?)))
                .filter(|(queue, (of, _))| *queue != id.0 && *of == peers)
                .map(|(queue, (_, place))| (place.abs_diff(at), place, queue))
                .min()
                .filter(|(distance, ..)| *distance <= 8192)
                .map(|(_, _, queue)| QueueId(queue));
            assert_eq!(index.nearest(id, peers, Sectors(at)), expected);
            assert_eq!(index.len(), all.iter().flatten().count());
        }
    }

    #[test]
    fn a_queue_is_at_the_sector_where_it_was_put_until_it_is_removed() {
        let mut index = index(&[500]);
        let is_at =
            |index: &PositionIndex| [0, 500, 600].map(|at| index.is_at(QueueId(0), Sectors(at)));
        assert_eq!(is_at(&index), [false, true, false]);
        index.remove(QueueId(0));
        assert_eq!(is_at(&index), [false; 3]);
        assert!(!index.is_at(ABSENT, Sectors(0)));
    }
}
