//! Identifiers of the requests merged into one request, stored without an allocation per request.
//!
//! The first identifier is stored in the record of the request. The identifiers of requests merged
//! into it form a chain through a table that all requests of a scheduler share. Links of the table
//! are reused, so a scheduler allocates nothing until it holds more merged requests than ever
//! before.

/// Identifiers of the requests merged into one request, in order of sectors: the first identifier,
/// and the chain of the others.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Names {
    pub(crate) first: u64,
    others: u32,
    last: u32,
}

/// Table with the identifier chains of all requests of a scheduler.
#[derive(Clone, Debug)]
pub(crate) struct NameTable {
    /// Identifiers, each with the index of the next link in its chain, or of the next free link.
    links: Vec<(u64, u32)>,
    free: u32,
}

impl Names {
    /// Identifiers of a request into which no other is merged.
    #[inline]
    pub(crate) const fn of(id: u64) -> Self {
        Self { first: id, others: END, last: END }
    }
}

impl NameTable {
    pub(crate) const fn new() -> Self {
        Self { links: Vec::new(), free: END }
    }

    /// Appends an identifier to the identifiers of a request.
    pub(crate) fn append(&mut self, names: &mut Names, id: u64) {
        self.join(names, Names::of(id));
    }

    /// Prepends an identifier to the identifiers of a request.
    pub(crate) fn prepend(&mut self, names: &mut Names, id: u64) {
        let rest = std::mem::replace(names, Names::of(id));
        self.join(names, rest);
    }

    /// Appends the identifiers `next` of another request.
    pub(crate) fn join(&mut self, names: &mut Names, next: Names) {
        let link = self.link(next.first, next.others);
        match names.last {
            END => names.others = link,
            last => self.links[last as usize].1 = link,
        }
        names.last = if next.last == END { link } else { next.last };
    }

    fn link(&mut self, id: u64, next: u32) -> u32 {
        if self.free == END {
            self.links.push((id, next));
            return self.links.len() as u32 - 1;
        }
        let link = self.free;
        self.free = std::mem::replace(&mut self.links[link as usize], (id, next)).1;
        link
    }

    /// Replaces the contents of `ids` with the identifiers in `names`, and frees their links.
    #[inline]
    pub(crate) fn take(&mut self, names: Names, ids: &mut Vec<u64>) {
        ids.clear();
        ids.push(names.first);
        let mut link = names.others;
        while link != END {
            let (id, next) = self.links[link as usize];
            ids.push(id);
            self.links[link as usize].1 = std::mem::replace(&mut self.free, link);
            link = next;
        }
    }

    /// Drops the chains of all requests.
    pub(crate) fn clear(&mut self) {
        self.links.clear();
        self.free = END;
    }
}

/// End of a chain.
const END: u32 = u32::MAX;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_come_in_the_order_of_their_merges_and_their_links_are_used_again() {
        let (mut table, mut ids) = (NameTable::new(), vec![9]);
        for _ in 0..3 {
            let (mut low, mut high) = (Names::of(3), Names::of(5));
            table.append(&mut low, 4);
            table.prepend(&mut low, 2);
            table.prepend(&mut low, 1);
            table.append(&mut high, 6);
            table.join(&mut low, high);
            table.append(&mut low, 7);
            table.take(low, &mut ids);
            assert_eq!(ids, [1, 2, 3, 4, 5, 6, 7]);
            assert_eq!(table.links.len(), 6);
        }
        table.take(Names::of(8), &mut ids);
        assert_eq!(ids, [8]);
        table.clear();
        assert!(table.links.is_empty());
    }
}
