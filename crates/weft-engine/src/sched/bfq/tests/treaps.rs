//! Sorted sets in a slab, compared with sorted lists.

use std::collections::BTreeSet;

use weft_units::rng::Rng;

use super::super::treap::{Member, Set, Treaps, precedes};

#[derive(Clone, Debug, PartialEq)]
struct Pair(u64, u64);

impl Member for Pair {
    const LOW: bool = true;

    fn before(&self, other: &Self) -> bool {
        precedes(self.0, other.0)
    }

    fn low(&self) -> u64 {
        self.1
    }
}

fn listed(treaps: &Treaps<Pair>, set: Set) -> Vec<u32> {
    std::iter::successors(treaps.first(set), |at| treaps.next(*at)).collect()
}

#[test]
fn sets_are_as_sorted_lists_and_find_the_first_within_a_bound() {
    let mut rng = Rng::new(7);
    let mut treaps = Treaps::new();
    (0..200).for_each(|_| {
        treaps.push(Pair(0, 0));
    });
    let (mut set, mut list): (Set, Vec<u32>) = (Set::EMPTY, Vec::new());
    let mut found = 0;
    for _ in 0..20_000 {
        let place = rng.below(200) as u32;
        if let Some(at) = list.iter().position(|other| *other == place) {
            treaps.remove(&mut set, place);
            list.remove(at);
        } else {
            // Stamps that wrap around.
            let from = u64::MAX - 40;
            *treaps.at_mut(place) =
                Pair(from.wrapping_add(rng.below(60)), from.wrapping_add(rng.below(80)));
            treaps.insert(&mut set, place);
            let at = list.partition_point(|other| !treaps.at(place).before(treaps.at(*other)));
            list.insert(at, place);
        }
        assert_eq!(listed(&treaps, set), list);
        assert!(list.iter().all(|at| treaps.ranks_above_its_children(*at)), "no heap");
        let bound = (u64::MAX - 40).wrapping_add(rng.below(80));
        let expected = list.iter().find(|at| !precedes(bound, treaps.at(**at).1));
        assert_eq!(treaps.first_within(set, bound), expected.copied());
        found += usize::from(expected.is_some());
        if let Some(at) = list.get(rng.below(1 + list.len() as u64) as usize) {
            let back = treaps.previous(*at);
            assert_eq!(back.map_or(treaps.first(set), |back| treaps.next(back)), Some(*at));
        }
    }
    assert!(found > 10_000, "{found} were found");
}

/// Depth of a set after its members were inserted in order.
#[test]
fn members_that_come_in_order_make_no_deep_trees() {
    let mut treaps = Treaps::new();
    let mut set = Set::EMPTY;
    for value in 0..4096 {
        let place = treaps.push(Pair(value, value));
        treaps.insert(&mut set, place);
    }
    let ranks: BTreeSet<u32> = (0..4096).map(|place| treaps.rank(place)).collect();
    assert_eq!(ranks.len(), 4096, "no two members have the same rank");
    let deepest = (0..4096).map(|place| treaps.depth(place)).max();
    assert!(deepest < Some(40), "{deepest:?}");
}
