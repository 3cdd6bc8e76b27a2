//! Queues of a device's dirty files: the lists from which writeback passes take files.
//!
//! Each device has three lists, all first in, first out. *dirty* contains files in the order in
//! which they became dirty. *io* contains the files that passes take. *more* contains files that
//! were not finished, or that another pass was writing. When *io* is filled, files that have been
//! dirty for long enough move from *dirty* to *io*, oldest first:
//!
//! - 3.1 fills *io* only when it is empty, first from *more*, then from *dirty*;
//! - 2.6.24 fills *io* at each pass: *more* goes in front of the remaining files, *dirty* behind.
//!
//! Source   writeback.md §3; for 2.6.24 fs/fs-writeback.c, January 2008

use super::id::{BdiId, InodeId};
use super::index::Pages;
use std::collections::BTreeMap;

/// File with its dirty pages, and its place on a list of its device.
#[derive(Clone, Debug)]
pub(crate) struct Inode {
    pub bdi: BdiId,
    pub pages: Pages,
    /// Page at which the next turn of the file starts: the kernel's `writeback_index`.
    pub cursor: u64,
    /// Tick in which the file became dirty, or to which its age was reset.
    pub dirtied_when: u64,
    /// Whether the file was written to since its last turn began: the kernel's `I_DIRTY_PAGES`.
    pub touched: bool,
    /// Whether a pass has its turn on the file: the kernel's `I_SYNC`.
    pub busy: bool,
    /// Number of passes that work on the file, including those that do not have the turn.
    pub passes: u32,
    /// Whether the file was removed. It is freed once no write of it is in flight.
    pub removed: bool,
    /// Whether a process waits for writes of the file to complete.
    pub watched: bool,
    place: Option<(List, i64)>,
}

/// One of the lists of a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum List {
    Dirty,
    Io,
    More,
}

/// The files of all devices.
#[derive(Clone, Debug, Default)]
pub(crate) struct Inodes {
    slots: Vec<Option<Inode>>,
    free: Vec<u32>,
}

impl Inodes {
    /// Adds a file without dirty pages. Returns its identifier.
    pub(crate) fn add(&mut self, bdi: BdiId) -> InodeId {
        let inode = Inode {
            bdi,
            pages: Pages::default(),
            cursor: 0,
            dirtied_when: 0,
            touched: false,
            busy: false,
            passes: 0,
            removed: false,
            watched: false,
            place: None,
        };
        if let Some(slot) = self.free.pop() {
            self.slots[slot as usize] = Some(inode);
            return InodeId(slot);
        }
        self.slots.push(Some(inode));
        InodeId(u32::try_from(self.slots.len() - 1).expect("fewer files than pages"))
    }

    /// The file with this identifier.
    ///
    /// # Panics
    /// Panics if the file does not exist.
    pub(crate) fn of(&self, id: InodeId) -> &Inode {
        self.slots.get(id.0 as usize).and_then(Option::as_ref).expect("no such file")
    }

    /// The file with this identifier, to be changed.
    ///
    /// # Panics
    /// Panics if the file does not exist.
    pub(crate) fn of_mut(&mut self, id: InodeId) -> &mut Inode {
        self.slots.get_mut(id.0 as usize).and_then(Option::as_mut).expect("no such file")
    }

    /// Whether a pass has its turn on a file. `false` if the file does not exist.
    pub(crate) fn is_busy(&self, id: InodeId) -> bool {
        self.slots.get(id.0 as usize).and_then(Option::as_ref).is_some_and(|inode| inode.busy)
    }

    /// Frees a file that was removed, if no pass works on it and no write of it is in flight;
    /// otherwise does nothing.
    pub(crate) fn free_if_over(&mut self, id: InodeId) {
        let inode = self.of(id);
        if inode.removed && inode.passes == 0 && inode.pages.writeback() == 0 {
            debug_assert!(inode.place.is_none() && inode.pages.dirty() == 0);
            self.slots[id.0 as usize] = None;
            self.free.push(id.0);
        }
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &Inode> {
        self.slots.iter().flatten()
    }
}

/// Lists of one device. The keys only define the order within a list.
#[derive(Clone, Debug, Default)]
pub(crate) struct Queues {
    dirty: BTreeMap<i64, InodeId>,
    io: BTreeMap<i64, InodeId>,
    more: BTreeMap<i64, InodeId>,
}

impl Queues {
    pub(crate) fn len(&self) -> u64 {
        (self.dirty.len() + self.io.len() + self.more.len()) as u64
    }

    pub(crate) fn is_empty(&self, list: List) -> bool {
        self.list(list).is_empty()
    }

    pub(crate) fn first(&self, list: List) -> Option<InodeId> {
        self.list(list).first_key_value().map(|(_, &id)| id)
    }

    /// Moves a file to the end of a list, from the list that it is on.
    pub(crate) fn append(&mut self, list: List, id: InodeId, inode: &mut Inode) {
        self.remove(id, inode);
        let key = self.list(list).last_key_value().map_or(0, |(key, _)| key + 1);
        self.list_mut(list).insert(key, id);
        inode.place = Some((list, key));
    }

    /// Removes a file from its list, if it is on one.
    pub(crate) fn remove(&mut self, id: InodeId, inode: &mut Inode) {
        if let Some((list, key)) = inode.place.take() {
            let was = self.list_mut(list).remove(&key);
            debug_assert_eq!(was, Some(id));
        }
    }

    /// Appends a file that is still dirty to *dirty*. Its age restarts if the list would otherwise
    /// no longer be in order of age.
    pub(crate) fn redirty(&mut self, id: InodeId, inodes: &mut Inodes, tick: u64) {
        let newest = self.list(List::Dirty).last_key_value().map(|(_, &id)| id);
        let newest = newest.filter(|&newest| newest != id).map(|id| inodes.of(id).dirtied_when);
        let inode = inodes.of_mut(id);
        if newest.is_some_and(|newest| inode.dirtied_when < newest) {
            inode.dirtied_when = tick;
        }
        self.append(List::Dirty, id, inode);
    }

    /// Fills *io* as 3.1 does: from *more*, then from *dirty* with the files that became dirty at
    /// tick `older_than` or before; `None`: with all files.
    pub(crate) fn fill(&mut self, inodes: &mut Inodes, older_than: Option<u64>) {
        while let Some(id) = self.first(List::More) {
            self.append(List::Io, id, inodes.of_mut(id));
        }
        self.fill_expired(inodes, older_than);
    }

    /// Fills *io* as 2.6.24 does: *more* goes in front of the files that are there, and the files
    /// of *dirty* that became dirty at tick `older_than` or before go behind them; `None`: all
    /// files.
    pub(crate) fn fill_2_6_24(&mut self, inodes: &mut Inodes, older_than: Option<u64>) {
        while let Some((&key, &id)) = self.more.last_key_value() {
            self.more.remove(&key);
            let key = self.io.first_key_value().map_or(0, |(key, _)| key - 1);
            self.io.insert(key, id);
            inodes.of_mut(id).place = Some((List::Io, key));
        }
        self.fill_expired(inodes, older_than);
    }

    fn fill_expired(&mut self, inodes: &mut Inodes, older_than: Option<u64>) {
        while let Some(id) = self.first(List::Dirty) {
            let inode = inodes.of_mut(id);
            if older_than.is_some_and(|older_than| inode.dirtied_when > older_than) {
                break;
            }
            self.append(List::Io, id, inode);
        }
    }

    const fn list(&self, list: List) -> &BTreeMap<i64, InodeId> {
        match list {
            List::Dirty => &self.dirty,
            List::Io => &self.io,
            List::More => &self.more,
        }
    }

    fn list_mut(&mut self, list: List) -> &mut BTreeMap<i64, InodeId> {
        match list {
            List::Dirty => &mut self.dirty,
            List::Io => &mut self.io,
            List::More => &mut self.more,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn three() -> (Queues, Inodes, [InodeId; 3]) {
        let (mut queues, mut inodes) = (Queues::default(), Inodes::default());
        let ids = [(); 3].map(|()| inodes.add(BdiId(0)));
        for (&id, when) in ids.iter().zip([10, 20, 30]) {
            inodes.of_mut(id).dirtied_when = when;
            queues.append(List::Dirty, id, inodes.of_mut(id));
        }
        (queues, inodes, ids)
    }

    fn drain(queues: &mut Queues, inodes: &mut Inodes) -> Vec<InodeId> {
        std::iter::from_fn(|| {
            let id = queues.first(List::Io)?;
            queues.remove(id, inodes.of_mut(id));
            Some(id)
        })
        .collect()
    }

    #[test]
    fn oldest_first_and_only_those_old_enough() {
        let (mut queues, mut inodes, [a, b, c]) = three();
        queues.fill(&mut inodes, Some(20));
        assert_eq!(drain(&mut queues, &mut inodes), [a, b]);
        queues.fill(&mut inodes, None);
        assert_eq!(drain(&mut queues, &mut inodes), [c]);
    }

    #[test]
    fn unfinished_files_come_before_new_ones() {
        let (mut queues, mut inodes, [a, b, c]) = three();
        for id in [b, a] {
            queues.append(List::More, id, inodes.of_mut(id));
        }
        let mut older = (queues.clone(), inodes.clone());
        queues.fill(&mut inodes, None);
        assert_eq!(drain(&mut queues, &mut inodes), [b, a, c]);
        // 2.6.24 also fills a list that is not empty, in the order unfinished, remaining, new.
        older.0.append(List::Io, a, older.1.of_mut(a));
        older.0.fill_2_6_24(&mut older.1, None);
        assert_eq!(drain(&mut older.0, &mut older.1), [b, a, c]);
        let (mut queues, mut inodes, [a, b, c]) = three();
        queues.append(List::Io, a, inodes.of_mut(a));
        queues.append(List::More, c, inodes.of_mut(c));
        queues.append(List::More, b, inodes.of_mut(b));
        queues.fill_2_6_24(&mut inodes, None);
        assert_eq!(drain(&mut queues, &mut inodes), [c, b, a]);
    }

    #[test]
    fn a_file_that_is_still_dirty_gets_a_new_age_only_to_keep_the_order() {
        let (mut queues, mut inodes, [a, _, c]) = three();
        queues.redirty(c, &mut inodes, 99);
        assert_eq!(inodes.of(c).dirtied_when, 30);
        queues.redirty(a, &mut inodes, 99);
        assert_eq!(inodes.of(a).dirtied_when, 99);
        inodes.of_mut(c).dirtied_when = 99;
        queues.redirty(c, &mut inodes, 100);
        assert_eq!(inodes.of(c).dirtied_when, 99, "as new as the newest");
        assert_eq!(queues.len(), 3);
        assert!(queues.is_empty(List::More));
    }

    #[test]
    fn a_removed_file_is_let_go_when_nothing_is_under_way() {
        let (mut queues, mut inodes, [a, ..]) = three();
        inodes.of_mut(a).pages.write(0..1);
        inodes.of_mut(a).pages.take(0..9, 9);
        inodes.of_mut(a).removed = true;
        queues.remove(a, inodes.of_mut(a));
        inodes.free_if_over(a);
        assert!(inodes.of(a).removed, "a write is in flight");
        inodes.of_mut(a).pages.written(0..1);
        inodes.free_if_over(a);
        assert_eq!(inodes.iter().count(), 2);
        assert_eq!(inodes.add(BdiId(0)), a, "its identifier is reused");
    }
}
