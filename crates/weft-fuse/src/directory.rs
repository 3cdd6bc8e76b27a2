//! Directory of a tree: its entries in the order of a list, and by name.

use weft_files::tree::{Entries, Entry};

/// Entries of a directory that can be shown, and messages about the rest.
pub(crate) struct Directory {
    /// Entries in the order in which they are listed.
    pub(crate) entries: Vec<Entry>,
    /// Indices into `entries`, sorted by the names of the entries.
    by_name: Vec<u32>,
    /// Whether a part of the directory cannot be read.
    pub(crate) is_damaged: bool,
    /// Messages about parts that are lost or may be wrong, and about names that are left out.
    pub(crate) faults: Vec<String>,
}

impl Directory {
    /// Directory with these entries. A name that is not valid for a file, and the second of two
    /// equal names, are left out, because the kernel would refuse the whole directory on account of
    /// such a name.
    pub(crate) fn of(entries: Entries) -> Self {
        let Entries { list, mut faults, doubts } = entries;
        let is_damaged = !faults.is_empty();
        faults.extend(doubts.into_iter().map(|doubt| format!("may be wrong: {doubt}")));
        let mut order: Vec<usize> = (0..list.len()).collect();
        order.sort_by(|one, other| list[*one].name.cmp(&list[*other].name).then(one.cmp(other)));
        let mut is_shown = vec![false; list.len()];
        let mut last: Option<&[u8]> = None;
        for at in order {
            let name = list[at].name.as_slice();
            let why = match () {
                () if !is_name(name) => Some("is no name of a file"),
                () if last == Some(name) => Some("is there twice"),
                () => None,
            };
            match why {
                Some(why) => faults.push(format!("{} {why}; left out", name.escape_ascii())),
                None => is_shown[at] = true,
            }
            last = Some(name);
        }
        let shown = list.into_iter().zip(is_shown).filter(|(_, is_shown)| *is_shown);
        let entries: Vec<Entry> = shown.map(|(entry, _)| entry).take(ENTRIES_MAX).collect();
        let mut by_name: Vec<u32> = (0..).take(entries.len()).collect();
        by_name.sort_by_key(|at| &entries[*at as usize].name);
        Self { entries, by_name, is_damaged, faults }
    }

    /// Number in the tree of the node with this name; `None` if no entry has the name.
    pub(crate) fn find(&self, name: &[u8]) -> Option<u64> {
        let of = |at: &u32| &self.entries[*at as usize];
        let found = self.by_name.binary_search_by(|at| of(at).name.as_slice().cmp(name));
        found.ok().map(|at| of(&self.by_name[at]).id)
    }
}

fn is_name(name: &[u8]) -> bool {
    let is_plain = !name.iter().any(|byte| matches!(byte, 0 | b'/'));
    is_plain && !matches!(name, b"" | b"." | b"..") && name.len() <= NAME_MAX
}

/// Longest name that FUSE passes on, in bytes.
const NAME_MAX: usize = 1024;
/// Largest number of entries that are kept: more than the largest directory that can be read has
/// room for.
const ENTRIES_MAX: usize = 1 << 26;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_name_is_found_and_impossible_ones_are_left_out_with_a_message() {
        let names: [&[u8]; 9] = [b"b", b"a/b", b"", b".", b"..", b"b", b"a\xff", b"A", b"n\0"];
        let list = names.iter().zip(10..).map(|(name, id)| Entry { name: name.to_vec(), id });
        let entries = Entries { list: list.collect(), ..Entries::default() };
        let directory = Directory::of(entries);
        let shown: Vec<(&[u8], u64)> =
            directory.entries.iter().map(|entry| (entry.name.as_slice(), entry.id)).collect();
        assert_eq!(shown, [(&b"b"[..], 10), (b"a\xff", 16), (b"A", 17)]);
        assert_eq!(directory.find(b"b"), Some(10), "the first of two");
        assert_eq!(directory.find(b"a\xff"), Some(16));
        assert_eq!(directory.find(b"c"), None);
        assert_eq!((directory.faults.len(), directory.is_damaged), (6, false));
        assert!(directory.faults.iter().any(|fault| fault == "b is there twice; left out"));
    }

    #[test]
    fn a_large_directory_is_searched_by_name() {
        let name = |id: u64| format!("file-{}", id * 7919 % 200_000).into_bytes();
        let list = (0..200_000).map(|id| Entry { name: name(id), id }).collect();
        let directory = Directory::of(Entries { list, ..Entries::default() });
        assert_eq!(directory.entries.len(), 200_000);
        for id in (0..200_000).step_by(997) {
            assert_eq!(directory.find(&name(id)), Some(id));
        }
    }
}
