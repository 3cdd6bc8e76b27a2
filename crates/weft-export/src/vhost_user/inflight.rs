//! Requests in flight, in memory that the front end keeps when the server dies.
//!
//! The memory tells the next server which chains were taken and not answered, and in which order;
//! it serves them first. Each queue has a header and an entry for each descriptor:
//!
//! ```text
//! header   features u64, version u16, number of entries u16, last answered u16, used index u16
//! entry    in flight u8, unused 5 bytes, entry answered before u16, order u64
//! ```
//!
//! An answer is recorded in three steps: the entry as the last answered one, the used ring, the
//! entry as free with the used index. If the server dies between the last two steps, the used index
//! here differs from that of the ring, which shows that the last answered entry was indeed
//! answered.
//!
//! Source   vhost-user protocol, "Inflight I/O tracking", split virtqueues

use std::fs::File;

use vhost::vhost_user::message::VhostUserInflight;
use vm_memory::{Bytes, FileOffset, GuestAddress, GuestMemoryMmap};

/// Shared memory with the requests in flight, mapped into this process.
#[derive(Debug)]
pub(super) struct Inflight {
    area: GuestMemoryMmap<()>,
    /// Number of entries of a queue.
    entries: u16,
    queues: u16,
}

impl Inflight {
    /// Makes the memory for `queues` queues of `entries` entries. Returns its description and its
    /// file.
    pub(super) fn create(queues: u16, entries: u16) -> std::io::Result<(VhostUserInflight, File)> {
        let bytes = u64::from(queues) * queue_bytes(entries);
        let flags = rustix::fs::MemfdFlags::CLOEXEC | rustix::fs::MemfdFlags::ALLOW_SEALING;
        let file = File::from(rustix::fs::memfd_create("weft-inflight", flags)?);
        file.set_len(bytes)?;
        rustix::fs::fcntl_add_seals(&file, rustix::fs::SealFlags::SHRINK)?;
        Ok((VhostUserInflight::new(bytes, 0, queues, entries), file))
    }

    /// Maps the memory that the front end has kept, as `told` describes it. `None` if it is too
    /// short for its queues, or if they have no entries or more than `entries_max`.
    pub(super) fn map(told: &VhostUserInflight, file: File, entries_max: u16) -> Option<Self> {
        let (queues, entries) = (told.num_queues, told.queue_size);
        let bytes = u64::from(queues) * queue_bytes(entries);
        let end = told.mmap_offset.checked_add(bytes)?;
        let fits = bytes <= told.mmap_size && end <= file.metadata().ok()?.len();
        if bytes == 0 || entries > entries_max || !fits {
            return None;
        }
        let place = FileOffset::new(file, told.mmap_offset);
        let range = (GuestAddress(0), usize::try_from(bytes).ok()?, Some(place));
        let area = GuestMemoryMmap::from_ranges_with_files([range]).ok()?;
        Some(Self { area, entries, queues })
    }

    /// Chains of a queue that were taken and not answered, in the order in which they were taken.
    /// `used` is the used index of its ring. `None` if there is no such queue.
    pub(super) fn left(&self, queue: u16, size: u16, used: u16) -> Option<Vec<u16>> {
        if queue >= self.queues || size > self.entries {
            return None;
        }
        let header = self.header(queue);
        self.put(header + VERSION, 1_u16);
        self.put(header + ENTRIES, self.entries);
        if self.get::<u16>(header + USED) != used {
            let last = self.get::<u16>(header + LAST);
            if last < self.entries {
                self.put(self.entry(queue, last), 0_u8);
            }
            self.put(header + USED, used);
        }
        let taken = (0..size).filter(|head| self.get::<u8>(self.entry(queue, *head)) == 1);
        let mut taken: Vec<u16> = taken.collect();
        taken.sort_by_key(|head| self.get::<u64>(self.entry(queue, *head) + ORDER));
        Some(taken)
    }

    /// Records that a chain was taken, as number `order`.
    pub(super) fn taken(&self, queue: u16, head: u16, order: u64) {
        self.put(self.entry(queue, head) + ORDER, order);
        self.put(self.entry(queue, head), 1_u8);
    }

    /// Records that a chain is about to be answered.
    pub(super) fn answering(&self, queue: u16, head: u16) {
        let header = self.header(queue);
        self.put(self.entry(queue, head) + BEFORE, self.get::<u16>(header + LAST));
        self.put(header + LAST, head);
    }

    /// Records that a chain was answered. `used` is the used index of its ring after the answer.
    pub(super) fn answered(&self, queue: u16, head: u16, used: u16) {
        self.put(self.entry(queue, head), 0_u8);
        self.put(self.header(queue) + USED, used);
    }

    fn header(&self, queue: u16) -> u64 {
        u64::from(queue) * queue_bytes(self.entries)
    }

    fn entry(&self, queue: u16, head: u16) -> u64 {
        self.header(queue) + HEADER_BYTES + u64::from(head) * ENTRY_BYTES
    }

    fn get<T: vm_memory::AtomicAccess>(&self, at: u64) -> T {
        let order = std::sync::atomic::Ordering::Acquire;
        self.area.load(GuestAddress(at), order).expect("within the memory")
    }

    fn put<T: vm_memory::AtomicAccess>(&self, at: u64, value: T) {
        let order = std::sync::atomic::Ordering::Release;
        self.area.store(value, GuestAddress(at), order).expect("within the memory");
    }
}

/// Length in bytes of a queue's part of the memory, in whole cache lines.
fn queue_bytes(entries: u16) -> u64 {
    (HEADER_BYTES + u64::from(entries) * ENTRY_BYTES).next_multiple_of(64)
}

const HEADER_BYTES: u64 = 16;
const ENTRY_BYTES: u64 = 16;
// Offsets within a header.
const VERSION: u64 = 8;
const ENTRIES: u64 = 10;
const LAST: u64 = 12;
const USED: u64 = 14;
// Offsets within an entry, which begins with the mark that it is in flight.
const BEFORE: u64 = 6;
const ORDER: u64 = 8;

#[cfg(test)]
mod tests {
    use super::*;

    fn made(entries: u16) -> Inflight {
        let (told, file) = Inflight::create(2, entries).unwrap();
        Inflight::map(&told, file, 64).unwrap()
    }

    #[test]
    fn chains_without_an_answer_are_left_in_the_order_in_which_they_were_taken() {
        let inflight = made(8);
        for (order, head) in [(1, 5), (2, 0), (3, 7), (4, 2)] {
            inflight.taken(1, head, order);
        }
        inflight.answering(1, 0);
        inflight.answered(1, 0, 1);
        assert_eq!(inflight.left(1, 8, 1), Some(vec![5, 7, 2]));
        assert_eq!(inflight.left(0, 8, 0), Some(vec![]));
        assert_eq!(inflight.left(2, 8, 0), None);
        assert_eq!(inflight.left(1, 16, 1), None);
    }

    /// A server died after the used ring had the answer, or before.
    #[test]
    fn an_answer_that_the_ring_has_is_not_given_twice() {
        for (used, left) in [(1, vec![3]), (0, vec![6, 3])] {
            let inflight = made(8);
            inflight.taken(0, 6, 1);
            inflight.taken(0, 3, 2);
            inflight.answering(0, 6);
            assert_eq!(inflight.left(0, 8, used), Some(left));
        }
    }

    #[test]
    fn memory_that_does_not_hold_the_queues_is_refused() {
        let (told, file) = Inflight::create(2, 8).unwrap();
        let map = |change: &dyn Fn(&mut VhostUserInflight)| {
            let mut told = told;
            change(&mut told);
            Inflight::map(&told, file.try_clone().unwrap(), 64).is_some()
        };
        assert!(map(&|_| {}));
        assert!(!map(&|told| told.queue_size = 128));
        assert!(!map(&|told| told.queue_size = 64));
        assert!(!map(&|told| told.num_queues = 3));
        assert!(!map(&|told| told.num_queues = 0));
        assert!(!map(&|told| told.mmap_size -= 1));
        assert!(!map(&|told| told.mmap_offset = 4096));
        assert!(!map(&|told| told.mmap_offset = u64::MAX));
    }
}
