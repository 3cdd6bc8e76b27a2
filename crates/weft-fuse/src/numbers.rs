//! Inode numbers: computed from the tree and the number of the node in it, and back.
//!
//! The lowest bits are the tree, counted from 1, or 0 for files of the top folder; the others are
//! the number in the tree. The top folder itself has 1, FUSE's number of the root.

/// Folder, file or node that an inode number stands for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Named {
    /// The top folder.
    Root,
    /// A file of the top folder, by its index among these files.
    File(usize),
    /// A node of a tree: index of the tree, number in it.
    Node(usize, u64),
}

/// Rule for the inode numbers of a view with a certain number of trees.
pub(crate) struct Numbers {
    bits: u32,
}

impl Numbers {
    /// The rule for a view with `trees` trees.
    pub(crate) fn new(trees: usize) -> Self {
        Self { bits: (usize::BITS - trees.leading_zeros()).max(1) }
    }

    /// Inode number of the file of the top folder with this index.
    pub(crate) fn file(&self, index: usize) -> u64 {
        (index as u64 + 1) << self.bits
    }

    /// FUSE inode number of node `id` of a tree; `None` if `id` has too many bits to be combined
    /// with the index of the tree, or if the result is the number of the root.
    pub(crate) fn node(&self, tree: usize, id: u64) -> Option<u64> {
        let high = id.checked_shl(self.bits).filter(|high| high >> self.bits == id)?;
        let number = high | (tree as u64 + 1);
        (number != ROOT).then_some(number)
    }

    /// Folder, file or node that an inode number stands for; `None` for 0, which is no inode
    /// number. The view may have no file or tree of this index.
    pub(crate) fn named(&self, number: u64) -> Option<Named> {
        let (low, high) = (number & ((1 << self.bits) - 1), number >> self.bits);
        Some(match (low, high) {
            _ if number == ROOT => Named::Root,
            (0, 0) => return None,
            (0, high) => Named::File(usize::try_from(high - 1).ok()?),
            (low, id) => Named::Node(usize::try_from(low - 1).ok()?, id),
        })
    }
}

/// FUSE's number of the root.
pub(crate) const ROOT: u64 = 1;

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn every_number_leads_back_and_no_two_are_the_same() {
        for trees in [0_usize, 1, 2, 3, 4, 255, 256, 4096] {
            let numbers = Numbers::new(trees);
            let mut seen = BTreeSet::from([ROOT]);
            for file in [0, 1, 2, 4096] {
                let number = numbers.file(file);
                assert_eq!(numbers.named(number), Some(Named::File(file)), "{trees}");
                assert!(seen.insert(number));
            }
            for tree in [0, 1, trees / 2, trees.saturating_sub(1)] {
                if tree >= trees || seen.contains(&numbers.node(tree, 2).unwrap()) {
                    continue;
                }
                for id in [2, 11, 256, u64::from(u32::MAX), 3 << 44 | 256, (1 << 51) - 1] {
                    let number = numbers.node(tree, id).unwrap();
                    assert_eq!(numbers.named(number), Some(Named::Node(tree, id)), "{trees}");
                    assert!(seen.insert(number), "{trees} {tree} {id}");
                }
            }
            assert_eq!((numbers.named(ROOT), numbers.named(0)), (Some(Named::Root), None));
        }
    }

    #[test]
    fn a_number_without_room_is_none_and_never_that_of_another_node() {
        let numbers = Numbers::new(4000);
        assert_eq!(numbers.node(0, 1 << 52), None);
        assert_eq!(numbers.node(0, u64::MAX), None);
        assert!(numbers.node(0, (1 << 52) - 1).is_some());
        // The first tree's node 0 would have the number of the root.
        assert_eq!(numbers.node(0, 0), None);
    }
}
