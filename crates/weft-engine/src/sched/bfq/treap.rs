//! Ordered sets with members in one slab: treaps that allocate only when the slab grows.
//!
//! A member occupies a slot of the slab and is in at most one set at a time. The shape of a tree
//! depends on a hash of the slot number, so the same calls build the same trees. A set can be
//! searched by its order and, if its members have a second value, by the lowest such value
//! ([`Member::low`]): each node stores the lowest second value of its subtree. Every operation
//! takes logarithmic time.

/// Value that can be a member of sets.
pub(super) trait Member {
    /// Whether members have a second value by which sets can be searched.
    const LOW: bool;

    /// Whether this member sorts before `other`. Members that compare equal keep their order of
    /// insertion.
    fn before(&self, other: &Self) -> bool;

    /// Second value of the member.
    fn low(&self) -> u64 {
        0
    }
}

/// Slab of members, with the links of all sets.
#[derive(Clone, Debug)]
pub(super) struct Treaps<M> {
    nodes: Vec<Node<M>>,
}

/// A set: the root of its tree.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Set(u32);

#[derive(Clone, Debug)]
struct Node<M> {
    member: M,
    /// Lowest second value in the subtree of this node.
    low: u64,
    parent: u32,
    left: u32,
    right: u32,
    rank: u32,
}

/// Insertion position of a member in a set, with the neighbours at that position.
#[derive(Clone, Copy, Debug)]
pub(super) struct Spot {
    parent: u32,
    left: bool,
    pub(super) previous: Option<u32>,
    pub(super) next: Option<u32>,
}

impl Set {
    pub(super) const EMPTY: Self = Self(NIL);

    pub(super) fn is_empty(self) -> bool {
        self.0 == NIL
    }
}

impl<M: Member> Treaps<M> {
    pub(super) fn new() -> Self {
        Self { nodes: Vec::new() }
    }

    /// Adds a member to the slab, but to no set. Returns its slot.
    pub(super) fn push(&mut self, member: M) -> u32 {
        let place = self.nodes.len() as u32;
        assert!(place < NIL, "slab indices fit in 32 bits");
        let rank = mixed(place);
        let low = member.low();
        self.nodes.push(Node { member, low, parent: NIL, left: NIL, right: NIL, rank });
        place
    }

    #[inline]
    pub(super) fn at(&self, place: u32) -> &M {
        &self.nodes[place as usize].member
    }

    /// Mutable access to a member. Its order and its second value may change only while it is in no
    /// set.
    #[inline]
    pub(super) fn at_mut(&mut self, place: u32) -> &mut M {
        &mut self.nodes[place as usize].member
    }

    /// Position at which a member would be inserted in a set.
    pub(super) fn locate(&self, set: Set, member: &M) -> Spot {
        let mut spot = Spot { parent: NIL, left: false, previous: None, next: None };
        let mut at = set.0;
        while at != NIL {
            let node = &self.nodes[at as usize];
            spot.parent = at;
            spot.left = member.before(&node.member);
            if spot.left {
                spot.next = Some(at);
                at = node.left;
            } else {
                spot.previous = Some(at);
                at = node.right;
            }
        }
        spot
    }

    /// Inserts the member at slot `place`, which is in no set, into a set.
    pub(super) fn insert(&mut self, set: &mut Set, place: u32) {
        let spot = self.locate(*set, self.at(place));
        self.insert_at(set, place, spot);
    }

    /// Inserts the value in slot `place` of the slab, which is in no set, into a set, at the
    /// position that [`Treaps::locate`] returned for it. The set must not have changed since then.
    pub(super) fn insert_at(&mut self, set: &mut Set, place: u32, spot: Spot) {
        let node = &mut self.nodes[place as usize];
        assert!(node.parent == NIL && node.left == NIL && node.right == NIL, "one set at a time");
        (node.parent, node.low) = (spot.parent, node.member.low());
        let (rank, low) = (node.rank, node.low);
        if spot.parent == NIL {
            assert!(set.is_empty(), "only a root has no parent");
            set.0 = place;
            return;
        }
        let parent = &mut self.nodes[spot.parent as usize];
        *(if spot.left { &mut parent.left } else { &mut parent.right }) = place;
        if M::LOW {
            let mut above = spot.parent;
            while above != NIL && precedes(low, self.nodes[above as usize].low) {
                self.nodes[above as usize].low = low;
                above = self.nodes[above as usize].parent;
            }
        }
        loop {
            let parent = self.nodes[place as usize].parent;
            if parent == NIL || self.nodes[parent as usize].rank >= rank {
                break;
            }
            self.rotate_up(set, place);
        }
    }

    /// Removes a member from its set, but not from the slab.
    pub(super) fn remove(&mut self, set: &mut Set, place: u32) {
        loop {
            let Node { left, right, .. } = self.nodes[place as usize];
            if left == NIL || right == NIL {
                break;
            }
            let higher = self.nodes[left as usize].rank > self.nodes[right as usize].rank;
            self.rotate_up(set, if higher { left } else { right });
        }
        let Node { left, right, parent, .. } = self.nodes[place as usize];
        let child = if left == NIL { right } else { left };
        if child != NIL {
            self.nodes[child as usize].parent = parent;
        }
        self.relink(set, parent, place, child);
        let node = &mut self.nodes[place as usize];
        (node.parent, node.left, node.right) = (NIL, NIL, NIL);
        if M::LOW {
            let mut above = parent;
            while above != NIL && self.sum_up(above) {
                above = self.nodes[above as usize].parent;
            }
        }
    }

    /// Number of nodes from the root of its set to a member, both included.
    #[cfg(test)]
    pub(super) fn depth(&self, place: u32) -> usize {
        let above = |at: &u32| Some(self.nodes[*at as usize].parent).filter(|at| *at != NIL);
        std::iter::successors(Some(place), above).count()
    }

    #[cfg(test)]
    pub(super) fn rank(&self, place: u32) -> u32 {
        self.nodes[place as usize].rank
    }

    /// Whether the rank of a member is at least that of each of its children: this keeps the tree
    /// balanced.
    #[cfg(test)]
    pub(super) fn ranks_above_its_children(&self, place: u32) -> bool {
        let Node { left, right, rank, .. } = self.nodes[place as usize];
        [left, right].into_iter().all(|child| child == NIL || self.rank(child) <= rank)
    }

    /// First member of a set; `None` if it is empty.
    #[inline]
    pub(super) fn first(&self, set: Set) -> Option<u32> {
        (set.0 != NIL).then(|| self.leftmost(set.0))
    }

    /// Next member of the same set; `None` at the end.
    pub(super) fn next(&self, place: u32) -> Option<u32> {
        let right = self.nodes[place as usize].right;
        if right != NIL {
            return Some(self.leftmost(right));
        }
        let mut below = place;
        loop {
            let above = self.nodes[below as usize].parent;
            if above == NIL {
                return None;
            }
            if self.nodes[above as usize].left == below {
                return Some(above);
            }
            below = above;
        }
    }

    /// Previous member of the same set; `None` at the start.
    pub(super) fn previous(&self, place: u32) -> Option<u32> {
        let mut below = self.nodes[place as usize].left;
        if below != NIL {
            while self.nodes[below as usize].right != NIL {
                below = self.nodes[below as usize].right;
            }
            return Some(below);
        }
        below = place;
        loop {
            let above = self.nodes[below as usize].parent;
            if above == NIL {
                return None;
            }
            if self.nodes[above as usize].right == below {
                return Some(above);
            }
            below = above;
        }
    }

    /// Lowest second value in a set; `None` if it is empty.
    pub(super) fn lowest(&self, set: Set) -> Option<u64> {
        (set.0 != NIL).then(|| self.nodes[set.0 as usize].low)
    }

    /// First member of a set with a second value that does not exceed `bound`; `None` if there is
    /// none.
    pub(super) fn first_within(&self, set: Set, bound: u64) -> Option<u32> {
        let within = |place: u32| place != NIL && !precedes(bound, self.nodes[place as usize].low);
        let mut at = set.0;
        if !within(at) {
            return None;
        }
        loop {
            let node = &self.nodes[at as usize];
            if within(node.left) {
                at = node.left;
            } else if !precedes(bound, node.member.low()) {
                return Some(at);
            } else {
                at = node.right;
            }
        }
    }

    fn leftmost(&self, mut at: u32) -> u32 {
        while self.nodes[at as usize].left != NIL {
            at = self.nodes[at as usize].left;
        }
        at
    }

    /// Recomputes the lowest second value of the subtree at `place`. Returns whether it has
    /// changed.
    fn sum_up(&mut self, place: u32) -> bool {
        let Node { member, left, right, low, .. } = &self.nodes[place as usize];
        let mut lowest = member.low();
        for child in [*left, *right] {
            if child != NIL && precedes(self.nodes[child as usize].low, lowest) {
                lowest = self.nodes[child as usize].low;
            }
        }
        let changed = lowest != *low;
        self.nodes[place as usize].low = lowest;
        changed
    }

    fn relink(&mut self, set: &mut Set, parent: u32, old: u32, new: u32) {
        if parent == NIL {
            set.0 = new;
            return;
        }
        let parent = &mut self.nodes[parent as usize];
        *(if parent.left == old { &mut parent.left } else { &mut parent.right }) = new;
    }

    /// Exchanges a member with its parent, to keep the tree balanced.
    fn rotate_up(&mut self, set: &mut Set, place: u32) {
        let parent = self.nodes[place as usize].parent;
        let above = self.nodes[parent as usize].parent;
        let moved = if self.nodes[parent as usize].left == place {
            let moved = self.nodes[place as usize].right;
            self.nodes[parent as usize].left = moved;
            self.nodes[place as usize].right = parent;
            moved
        } else {
            let moved = self.nodes[place as usize].left;
            self.nodes[parent as usize].right = moved;
            self.nodes[place as usize].left = parent;
            moved
        };
        if moved != NIL {
            self.nodes[moved as usize].parent = parent;
        }
        self.nodes[parent as usize].parent = place;
        self.nodes[place as usize].parent = above;
        self.relink(set, above, parent, place);
        if M::LOW {
            self.nodes[place as usize].low = self.nodes[parent as usize].low;
            self.sum_up(parent);
        }
    }
}

/// Whether stamp `a` is before stamp `b`. Stamps wrap around; stamps that are compared are never
/// far apart.
#[inline]
pub(super) fn precedes(a: u64, b: u64) -> bool {
    (a.wrapping_sub(b) as i64) < 0
}

/// Hash of a slot number, used as the priority that balances the tree.
fn mixed(place: u32) -> u32 {
    let mut x = place.wrapping_mul(0x9e37_79b1);
    x ^= x >> 15;
    x = x.wrapping_mul(0x85eb_ca77);
    x ^ (x >> 13)
}

const NIL: u32 = u32::MAX;
