//! A virtqueue: chains that the driver has made available, and their answers.
//!
//! The driver may write anything into its rings. An invalid ring (an index beyond its end, a chain
//! that is in flight already, a chain without room for a status) counts as broken: none of its
//! chains is taken until it is set up again. Other rings go on.
//!
//! Source   Virtual I/O Device 1.2, 2.7; `virtio-queue`

use std::fs::File;

use smallvec::SmallVec;
use virtio_queue::desc::split::Descriptor;
use virtio_queue::{Queue, QueueOwnedT, QueueT};
use vm_memory::{Bytes, GuestAddress, GuestMemoryMmap};

use super::block::{DATA_SEGMENTS_MAX, HEADER_BYTES, Status};
use super::inflight::Inflight;

/// Memory of a virtual machine.
pub(super) type Memory = GuestMemoryMmap<()>;

/// One virtqueue.
#[derive(Debug)]
pub(super) struct Ring {
    index: u16,
    pub(super) queue: Queue,
    /// Descriptor that is readable when there are new chains; `None` while the ring is not served.
    pub(super) kick: Option<File>,
    /// Descriptor that is written when there are new answers; `None` for a driver that polls.
    pub(super) call: Option<File>,
    /// Descriptor that is written when the ring is broken; `None` if the front end gave none.
    pub(super) err: Option<File>,
    pub(super) is_enabled: bool,
    /// Chains in flight, by head.
    chains: Vec<Option<Chain>>,
    /// Heads of chains that the last server took and did not answer, in order.
    left: Vec<u16>,
    /// Reason why the ring is broken and not served; `None` if it is served.
    broken: Option<&'static str>,
    /// Number of chains that were taken.
    taken: u64,
    /// Whether there are answers of which the driver was not notified yet.
    answered: bool,
}

/// Segments of a chain: those that the device reads, and those that it writes.
#[derive(Clone, Debug, Default)]
pub(super) struct Chain {
    readable: Segments,
    writable: Segments,
}

type Segments = SmallVec<[(GuestAddress, u32); 4]>;

impl Ring {
    pub(super) fn new(index: u16) -> Self {
        Self {
            index,
            queue: Queue::new(ENTRIES_MAX).expect("a power of two"),
            kick: None,
            call: None,
            err: None,
            is_enabled: false,
            chains: Vec::new(),
            left: Vec::new(),
            broken: None,
            taken: 0,
            answered: false,
        }
    }

    /// Starts to serve the ring. Chains that an earlier server has taken and not answered come
    /// first. Fails with the reason if the ring does not lie within the machine's memory.
    pub(super) fn start(
        &mut self,
        memory: &Memory,
        inflight: Option<&Inflight>,
        event_idx: bool,
    ) -> Result<(), &'static str> {
        self.queue.set_event_idx(event_idx);
        self.queue.set_ready(true);
        if !self.queue.is_valid(memory) {
            self.queue.set_ready(false);
            return Err("the ring is not in the memory");
        }
        let used = self.queue.used_idx(memory, std::sync::atomic::Ordering::Acquire);
        let used = used.map_err(|_| "the used ring cannot be read")?.0;
        self.queue.set_next_used(used);
        if let Some(inflight) = inflight {
            let left = inflight.left(self.index, self.queue.size(), used);
            self.left = left.ok_or("no record of requests in flight for the ring")?;
            let left = u16::try_from(self.left.len()).expect("at most all entries");
            self.queue.set_next_avail(used.wrapping_add(left));
        }
        self.chains = vec![None; usize::from(self.queue.size())];
        (self.broken, self.answered) = (None, false);
        Ok(())
    }

    /// Stops serving the ring, in which nothing may be in flight. Returns the descriptor that
    /// announced new chains.
    pub(super) fn stop(&mut self) -> Option<File> {
        self.queue.set_ready(false);
        self.left.clear();
        self.chains.clear();
        self.kick.take()
    }

    /// Takes the next chain. Returns its head; `None` if there is none, or the ring is not served.
    pub(super) fn take(&mut self, memory: &Memory, inflight: Option<&Inflight>) -> Option<u16> {
        if !self.is_enabled || self.kick.is_none() || self.broken.is_some() {
            return None;
        }
        let (head, chain) = match self.next(memory) {
            Ok(next) => next?,
            Err(why) => {
                self.break_off(why);
                return None;
            }
        };
        self.taken += 1;
        if let Some(inflight) = inflight {
            inflight.taken(self.index, head, self.taken);
        }
        self.chains[usize::from(head)] = Some(chain);
        Some(head)
    }

    /// Next chain, and its head; `None` if there is none, and the driver is then asked to announce
    /// new chains. The error says why the ring is broken.
    fn next(&mut self, memory: &Memory) -> Result<Option<(u16, Chain)>, &'static str> {
        let mut head = match self.left.is_empty() {
            true => self.available(memory)?,
            false => Some(self.left.remove(0)),
        };
        if head.is_none() {
            let has_more = self.queue.enable_notification(memory);
            if !has_more.map_err(|_| "the used ring cannot be written")? {
                return Ok(None);
            }
            // The driver has made a chain available since the last look, so there is a head, unless
            // the ring is not in the memory.
            head = self.available(memory)?;
        }
        let head = head.ok_or("the available ring cannot be read")?;
        match self.chains.get(usize::from(head)) {
            None => return Err("a head is beyond the ring"),
            Some(Some(_)) => return Err("a chain is available that is in flight"),
            Some(None) => {}
        }
        let table = (GuestAddress(self.queue.desc_table()), self.queue.size());
        Ok(Some((head, Chain::at(memory, table, head)?)))
    }

    /// Head of the next chain that the driver has made available; `None` if there is none.
    fn available(&mut self, memory: &Memory) -> Result<Option<u16>, &'static str> {
        let mut available = self.queue.iter(memory).map_err(|_| "the available index is wrong")?;
        Ok(available.next().map(|chain| chain.head_index()))
    }

    /// Chain in flight with this head; `None` if no such chain is in flight.
    pub(super) fn chain(&self, head: u16) -> Option<&Chain> {
        self.chains.get(usize::from(head))?.as_ref()
    }

    /// Answers a chain. `len` is the number of data bytes that were written into it.
    pub(super) fn answer(
        &mut self,
        memory: &Memory,
        inflight: Option<&Inflight>,
        (head, status, len): (u16, Status, u64),
    ) {
        let place = self.chains.get_mut(usize::from(head));
        let Some(chain) = place.and_then(Option::take) else { return };
        if self.broken.is_some() {
            return;
        }
        let written = chain.write(memory, chain.writable_len() - 1, &[status as u8]);
        if let Some(inflight) = inflight {
            inflight.answering(self.index, head);
        }
        let len = u32::try_from(len + 1).unwrap_or(u32::MAX);
        if written.is_none() || self.queue.add_used(memory, head, len).is_err() {
            self.break_off("an answer cannot be written");
            return;
        }
        if let Some(inflight) = inflight {
            inflight.answered(self.index, head, self.queue.next_used());
        }
        self.answered = true;
    }

    /// Notifies the driver of new answers, unless it has asked not to be notified.
    pub(super) fn signal(&mut self, memory: &Memory) {
        if !std::mem::take(&mut self.answered) {
            return;
        }
        if self.queue.needs_notification(memory).unwrap_or(true)
            && let Some(call) = &self.call
        {
            tell(call);
        }
    }

    /// Marks the ring as broken, for the reason `why`, and logs that.
    fn break_off(&mut self, why: &'static str) {
        tracing::warn!(queue = self.index, why, "the queue is not served any more");
        self.broken = Some(why);
        if let Some(err) = &self.err {
            tell(err);
        }
    }
}

impl Chain {
    /// Reads the chain that begins at index `head` of a table of descriptors, which is given by its
    /// address and its number of entries. The error says why the chain is not valid.
    fn at(
        memory: &Memory,
        (mut table, mut size): (GuestAddress, u16),
        head: u16,
    ) -> Result<Self, &'static str> {
        let mut chain = Self::default();
        let (mut next, mut is_indirect) = (head, false);
        for _ in 0..=DESCRIPTORS_MAX {
            if next >= size {
                return Err("a descriptor is beyond its table");
            }
            let address = table.0.checked_add(u64::from(next) * DESCRIPTOR_BYTES);
            let address = GuestAddress(address.unwrap_or(u64::MAX));
            let descriptor: Descriptor =
                memory.read_obj(address).map_err(|_| "a descriptor is not in the memory")?;
            let segment = (descriptor.addr(), descriptor.len());
            if descriptor.refers_to_indirect_table() {
                if is_indirect || descriptor.has_next() {
                    return Err("a table of descriptors within another");
                }
                let count = u64::from(descriptor.len()) / DESCRIPTOR_BYTES;
                size = u16::try_from(count).unwrap_or(u16::MAX);
                (table, next, is_indirect) = (descriptor.addr(), 0, true);
                continue;
            }
            match descriptor.is_write_only() {
                true => chain.writable.push(segment),
                false if chain.writable.is_empty() => chain.readable.push(segment),
                false => return Err("a chain is read after it is written"),
            }
            if !descriptor.has_next() {
                let has_status = chain.writable_len() > 0;
                return has_status.then_some(chain).ok_or("a chain has no room for a status");
            }
            next = descriptor.next();
        }
        Err("a chain has too many descriptors")
    }

    fn writable_len(&self) -> u64 {
        length(&self.writable)
    }

    /// Length in bytes of the data that the device writes (`to_driver`), or of the data that it
    /// reads.
    pub(super) fn data_len(&self, to_driver: bool) -> u64 {
        match to_driver {
            true => self.writable_len() - 1,
            false => length(&self.readable).saturating_sub(HEADER_BYTES as u64),
        }
    }

    /// Fills `bytes` from the chain's readable segments, from byte `at` on. `None` if they are too
    /// short, or not in the memory.
    pub(super) fn read(&self, memory: &Memory, at: u64, bytes: &mut [u8]) -> Option<()> {
        let mut rest = bytes;
        for (address, len) in parts(&self.readable, at, rest.len()) {
            let (first, after) = rest.split_at_mut(len);
            memory.read_slice(first, address).ok()?;
            rest = after;
        }
        rest.is_empty().then_some(())
    }

    /// Writes `bytes` into the chain's writable segments, from byte `at` on. `None` if they are too
    /// short, or not in the memory.
    pub(super) fn write(&self, memory: &Memory, at: u64, bytes: &[u8]) -> Option<()> {
        let mut rest = bytes;
        for (address, len) in parts(&self.writable, at, rest.len()) {
            let (first, after) = rest.split_at(len);
            memory.write_slice(first, address).ok()?;
            rest = after;
        }
        rest.is_empty().then_some(())
    }
}

fn length(segments: &Segments) -> u64 {
    segments.iter().map(|(_, len)| u64::from(*len)).sum()
}

/// Addresses and lengths of the `len` bytes from byte `at` of the segments on; fewer bytes if the
/// segments end first.
fn parts(
    segments: &Segments,
    mut at: u64,
    mut len: usize,
) -> impl Iterator<Item = (GuestAddress, usize)> {
    segments.iter().filter_map(move |(address, size)| {
        let skip = at.min(u64::from(*size));
        at -= skip;
        let here = usize::try_from(u64::from(*size) - skip).unwrap_or(usize::MAX).min(len);
        len -= here;
        // An address beyond all memory is cut to one that every access refuses.
        let address = GuestAddress(address.0.saturating_add(skip));
        (here > 0).then_some((address, here))
    })
}

/// Adds one to an eventfd. An error is ignored: its reader was told already, or is gone.
fn tell(eventfd: &File) {
    let _ = rustix::io::write(eventfd, &1_u64.to_ne_bytes());
}

/// Largest number of entries of a ring.
pub(super) const ENTRIES_MAX: u16 = 1024;
/// Largest number of descriptors of a chain. Beside those of the data, the header and the status
/// may have their own, and one may refer to an indirect table.
const DESCRIPTORS_MAX: u32 = DATA_SEGMENTS_MAX + 3;
const DESCRIPTOR_BYTES: u64 = 16;
