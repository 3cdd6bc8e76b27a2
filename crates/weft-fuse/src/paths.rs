//! Paths of inodes that the kernel knows: FUSE asks by number, and a message names a path.
//!
//! A name is kept from the first lookup until the kernel forgets the inode. For a file with several
//! names it is the one that was looked up last.

use std::collections::HashMap;

/// Names and parents of inodes, by inode number.
#[derive(Default)]
pub(crate) struct Paths {
    known: HashMap<u64, Known>,
}

struct Known {
    parent: u64,
    name: Box<[u8]>,
    lookups: u64,
}

impl Paths {
    /// Counts a lookup of inode `number`, and records its name and its directory `parent`.
    pub(crate) fn looked_up(&mut self, number: u64, parent: u64, name: &[u8]) {
        if let Some(known) = self.known.get_mut(&number) {
            known.lookups += 1;
            if known.parent == parent && *known.name == *name {
                return;
            }
            (known.parent, known.name) = (parent, name.into());
            return;
        }
        self.known.insert(number, Known { parent, name: name.into(), lookups: 1 });
    }

    /// Subtracts lookups of an inode that the kernel has forgotten. The name is dropped with the
    /// last one.
    pub(crate) fn forget(&mut self, number: u64, lookups: u64) {
        if let Some(known) = self.known.get_mut(&number) {
            known.lookups = known.lookups.saturating_sub(lookups);
            if known.lookups == 0 {
                self.known.remove(&number);
            }
        }
    }

    /// Path of an inode below the mount, from the names that are known; `inode N` if none is known.
    pub(crate) fn path(&self, number: u64) -> Vec<u8> {
        let (mut parts, mut at) = (Vec::new(), number);
        while let Some(known) = self.known.get(&at).filter(|_| parts.len() < PARTS_MAX) {
            parts.push(&*known.name);
            at = known.parent;
        }
        match parts.is_empty() {
            true => format!("inode {number}").into_bytes(),
            false => {
                parts.reverse();
                parts.join(&b'/')
            }
        }
    }
}

/// Largest number of names in a path: a limit for damaged directories that contain themselves.
const PARTS_MAX: usize = 1000;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_is_known_until_its_lookups_are_forgotten() {
        let mut paths = Paths::default();
        paths.looked_up(10, 1, b"home");
        paths.looked_up(11, 10, b"a\xff");
        paths.looked_up(11, 10, b"b");
        assert_eq!(paths.path(11), b"home/b");
        paths.forget(11, 1);
        assert_eq!(paths.path(11), b"home/b");
        paths.forget(11, 1);
        assert_eq!(paths.path(11), b"inode 11");
        paths.forget(11, 5);
        assert_eq!(paths.known.len(), 1);
    }

    #[test]
    fn a_directory_within_itself_has_a_path_with_an_end() {
        let mut paths = Paths::default();
        paths.looked_up(10, 11, b"x");
        paths.looked_up(11, 10, b"y");
        assert_eq!(paths.path(10).len(), 2 * PARTS_MAX - 1);
    }
}
