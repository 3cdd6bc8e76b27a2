//! Disk of one simulated member: a drive behind the engine's queue, its command tags and traffic.
//!
//! Merging, sorting, the plug of 2008 and the limit on commands at the disk are part of the engine
//! (`weft_engine::sched`). A disk without a volatile cache never receives a flush, as in the
//! kernel.

use weft_engine::{DeviceTraits, MemberOp, Segments, Token};
use weft_units::{Bytes, Sectors, Time};

use crate::drive::{Access, Command, Done, Drive};

/// Counts of the commands that a member's disk received, after merging.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Traffic {
    /// Number of read commands.
    pub reads: u64,
    /// Number of write commands.
    pub writes: u64,
    /// Number of flush commands.
    pub flushes: u64,
    /// Number of sectors read.
    pub sectors_read: u64,
    /// Number of sectors written.
    pub sectors_written: u64,
    /// Number of reads and writes that do not begin where the one before them ended.
    pub jumps: u64,
    /// Histogram of the sizes of read commands.
    pub read_sizes: Sizes,
    /// Histogram of the sizes of write commands.
    pub write_sizes: Sizes,
}

/// Histogram of command sizes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Sizes([u64; SIZES]);

/// Number of size classes: up to 4 KiB, 8 KiB, … 4 MiB, and larger.
const SIZES: usize = 12;

/// A disk and the commands that it received. Any host may have such disks: a [`Machine`] of this
/// crate, or the world of weft-crash, in which disks have contents beside their service time.
///
/// [`Machine`]: super::Machine
#[derive(Clone, Debug)]
pub struct Member {
    drive: Drive,
    /// By tag: token of the command at the disk; `None` for a free tag.
    at_disk: Vec<Option<Token>>,
    /// Tags that are free.
    tags: Vec<usize>,
    done: Vec<Done>,
    /// Whether the disk executes a flush or FUA write during which it accepts no other command.
    flushing: bool,
    /// Sector after the last command that reads or writes.
    position: Sectors,
    /// Commands that the disk received.
    pub(super) traffic: Traffic,
}

/// Traits of a disk on which decisions of the engine's queue depend.
#[must_use]
pub fn device_traits(drive: &Drive) -> DeviceTraits {
    let depth = Some(drive.depth().min(TAGS_MAX));
    let (write_cache, rotational) = (drive.volatile_cache(), drive.rotational());
    let flush_queueable = drive.flush_queueable();
    DeviceTraits { depth, host_queue: false, write_cache, rotational, flush_queueable }
}

/// Kind of the disk command for a member request, and its range: first sector and length.
#[must_use]
pub fn command_of(op: &MemberOp) -> (Access, (Sectors, Sectors)) {
    let sum =
        |parts: &Segments| Bytes(parts.iter().map(|part| u64::from(part.len)).sum()).sectors_ceil();
    match op {
        MemberOp::Discard { at, len, .. } => (Access::Discard, (*at, *len)),
        MemberOp::Flush => (Access::Flush, (Sectors::ZERO, Sectors::ZERO)),
        MemberOp::Read { at, into } => (Access::Read, (*at, sum(into))),
        MemberOp::Write { at, from, fua } => (Access::Write { fua: *fua }, (*at, sum(from))),
        MemberOp::WriteMetadata { at, bytes } => {
            let length = Bytes(bytes.len() as u64).sectors_ceil();
            (Access::Write { fua: true }, (*at, length))
        }
    }
}

impl Member {
    /// A member on an idle drive.
    #[must_use]
    pub fn new(drive: Drive) -> Self {
        let depth = drive.depth().min(TAGS_MAX) as usize;
        Self {
            drive,
            at_disk: vec![None; depth],
            tags: (0..depth).rev().collect(),
            done: Vec::new(),
            flushing: false,
            position: Sectors::ZERO,
            traffic: Traffic::default(),
        }
    }

    /// The drive of the member.
    #[must_use]
    pub fn drive(&self) -> &Drive {
        &self.drive
    }

    /// Number of commands at the disk.
    #[must_use]
    pub fn commands(&self) -> u32 {
        (self.at_disk.len() - self.tags.len()) as u32
    }

    /// Whether the disk takes a command of this kind now. A queue that keeps to the traits of the
    /// disk ([`device_traits`]) sends no other command, but a host may find the disk still busy
    /// with one that its engine has given up.
    #[must_use]
    pub fn has_room_for(&self, access: Access) -> bool {
        let beside = self.flushing || self.goes_alone(access) && self.commands() > 0;
        !beside && !self.tags.is_empty()
    }

    /// Whether the disk takes a command of this kind only while it holds no other command.
    fn goes_alone(&self, access: Access) -> bool {
        let flushes = matches!(access, Access::Flush | Access::Write { fua: true });
        flushes && self.drive.volatile_cache() && !self.drive.flush_queueable()
    }

    /// Takes a command for the disk. The caller then passes it to [begin](Self::begin). Returns
    /// `None` if the disk need not do anything, so that the command is complete.
    ///
    /// # Panics
    /// Panics if the disk has [no room](Self::has_room_for) for the command.
    #[must_use]
    pub fn take(
        &mut self,
        token: Token,
        access: Access,
        (first, length): (Sectors, Sectors),
    ) -> Option<Command> {
        let access = self.drive.wanted(access)?;
        assert!(self.has_room_for(access), "{access:?}: the queue keeps to the traits of the disk");
        self.flushing = self.goes_alone(access);
        let tag = self.tags.pop().expect("the disk has room");
        self.traffic.count(access, length);
        if matches!(access, Access::Read | Access::Write { .. }) {
            self.traffic.jumps += u64::from(first != self.position);
            self.position = first + length;
        }
        self.at_disk[tag] = Some(token);
        Some(Command { tag: tag as u64, access, first, length })
    }

    /// Begins a command that was taken, once its data has arrived at the disk.
    pub fn begin(&mut self, now: Time, command: Command) {
        self.drive.submit(now, command);
    }

    /// Time of the disk's next event, at which [`Self::advance`] must be called; `None` if it is
    /// idle.
    #[must_use]
    pub fn next_event(&self) -> Option<Time> {
        self.drive.next_event()
    }

    /// Calls `ended` for every command that the disk has completed by now.
    ///
    /// # Panics
    /// Panics if the drive completes a command that it was not given.
    pub fn advance(&mut self, now: Time, mut ended: impl FnMut(Token)) {
        let mut done = std::mem::take(&mut self.done);
        self.drive.advance(now, &mut done);
        for Done { tag } in done.drain(..) {
            let tag = tag as usize;
            let token = self.at_disk[tag].take().expect("a completed command was submitted");
            self.tags.push(tag);
            self.flushing = false;
            ended(token);
        }
        self.done = done;
    }
}

impl Traffic {
    fn count(&mut self, access: Access, length: Sectors) {
        match access {
            Access::Read => {
                self.reads += 1;
                self.sectors_read += length.0;
                self.read_sizes.count(length);
            }
            Access::Write { .. } => {
                self.writes += 1;
                self.sectors_written += length.0;
                self.write_sizes.count(length);
            }
            Access::Flush => self.flushes += 1,
            Access::Discard => {}
        }
    }
}

impl Sizes {
    fn count(&mut self, length: Sectors) {
        let pages = length.0.div_ceil(8).max(1);
        let size = pages.next_power_of_two().trailing_zeros() as usize;
        self.0[size.min(SIZES - 1)] += 1;
    }

    /// Sizes, each with the number of commands up to that size and above the preceding one. The
    /// first entry counts all commands up to 4 KiB, and the last one has no upper limit.
    pub fn iter(&self) -> impl Iterator<Item = (Bytes, u64)> + '_ {
        self.0.iter().enumerate().map(|(size, count)| (Bytes::kib(4 << size), *count))
    }

    /// Sum of two histograms, size by size.
    #[must_use]
    pub fn and(&self, other: &Self) -> Self {
        Self(std::array::from_fn(|size| self.0[size] + other.0[size]))
    }
}

/// Largest number of commands at a disk that itself has no limit.
const TAGS_MAX: u32 = 1024;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_counted_up_to_powers_of_two() {
        let mut sizes = Sizes::default();
        for sectors in [1, 8, 9, 16, 17, 512, 8192, 8193, 100_000] {
            sizes.count(Sectors(sectors));
        }
        let found: Vec<(u64, u64)> = sizes
            .iter()
            .filter(|size| size.1 > 0)
            .map(|(size, count)| (size.0 >> 10, count))
            .collect();
        assert_eq!(found, [(4, 2), (8, 2), (16, 1), (256, 1), (4096, 1), (8192, 2)]);
        assert_eq!(sizes.and(&sizes).iter().map(|size| size.1).sum::<u64>(), 18);
    }
}
