//! Bare volume beside the array: one disk that is exported unchanged, with clients of its own.
//!
//! One engine serves both volumes: they share clients, credit, frames, tags, runs of the engine,
//! and the write-back cache with its limits. Data of one volume must never appear in the other.
//!
//! Instead of the bare volume there may be a second array ([`Options::beside`]), a RAID 1 with
//! members of its own, one of which may fail. As for a bare volume, a separate model checks the
//! data that clients read. The checkers of members' contents, superblocks and bitmaps watch the
//! first array only. Copies that a crash left different are not read until a resync has made them
//! equal, because the loss of a member may change the result of a read. A power cut does not tear
//! superblocks of the second array: a torn superblock loses its member, and if the other member has
//! failed before, only its older data is left, for which nothing is promised. Torn superblocks are
//! drawn for the first array only, where the world knows whether too many members are lost.
//!
//! Clients use the sectors between [`FIRST`] and [`END`] of the disk, so the disk has no superblock
//! at any position where one is searched for. If the disk fails, requests of the volume may fail
//! too.

use std::ops::Range;

use weft_engine::{MemberState, ReplyError, Verb, VolumeConfig, VolumeSource, assemble};
use weft_ondisk::Level;
use weft_units::{ByteRange, MemberIndex, Sectors, Span, VolumeId};

use super::{BARE, Order, World, create};
use crate::disk::Disk;
use crate::model::Model;
use crate::options::Options;
use crate::violation::Violation;

/// Bytes of the bare volume that clients use, as a range of offsets.
pub(crate) const BARE_BYTES: Range<u64> = FIRST * 512..END * 512;

/// Number of the first sector that clients use.
const FIRST: u64 = 8192;

/// Number of the sector after the last one that clients use.
const END: u64 = FIRST + 1024;

/// Longest time that a resync of the second array may take while the first array resyncs too.
const SYNCED_WITHIN: Span = Span::secs(20);

/// Volume beside the array of a world: a bare volume, or a second array.
#[derive(Clone, Debug)]
pub(super) struct Bare {
    /// Disk numbers of the volume: number of its first disk, and one past the number of its last.
    pub(super) disks: (usize, usize),
    /// Values that the volume's clients may read.
    pub(super) model: Model,
    /// Number of requests answered so far.
    pub(super) answered: u64,
}

/// The disks for the volume beside the array, from number `first` on.
pub(super) fn new_disks(options: &Options, first: usize) -> Vec<Disk> {
    if options.bare {
        return vec![new_disk(options)];
    }
    let mut of_second = Options::new(Level::Raid1, options.beside, Sectors(128));
    of_second.full_stripes = END.div_ceil(128);
    (of_second.version, of_second.payload) = (options.version, options.payload);
    of_second.logical_block = options.logical_block;
    of_second.seed = options.seed ^ 0xba2e;
    let mut disks = create::disks(&of_second, &create::superblocks(&of_second, first));
    disks.iter_mut().for_each(|disk| disk.whole_superblocks = true);
    disks
}

fn new_disk(options: &Options) -> Disk {
    Disk::new(Sectors(END + 256), options.logical_block)
        .carrying(FIRST..END, options.payload)
        .failing_by_chance(options.seed ^ 0xba2e)
}

impl World {
    /// Disks of the volume beside the array: number of the first, and one past the number of the
    /// last; both are equal without such a volume.
    #[must_use]
    pub fn beside(&self) -> (usize, usize) {
        self.bare.as_ref().map_or((0, 0), |bare| bare.disks)
    }

    /// Whether a disk belongs to the volume beside the array.
    #[must_use]
    pub fn is_beside(&self, disk: usize) -> bool {
        let (first, end) = self.beside();
        (first..end).contains(&disk)
    }

    /// The first block that clients use of the volume beside the array; `None` without such a
    /// volume.
    #[must_use]
    pub fn first_of_bare(&self) -> Option<ByteRange> {
        self.bare.as_ref().map(|_| ByteRange::new(BARE_BYTES.start, 4096))
    }

    /// Number of requests of the volume beside the array answered so far.
    #[must_use]
    pub fn bare_requests_answered(&self) -> u64 {
        self.bare.as_ref().map_or(0, |bare| bare.answered)
    }

    /// Configuration of the volume beside the array for an engine; `None` without such a volume.
    /// Adds the frames of a second array to `cache_frames`. A refusal of a second array is a
    /// violation (I1), because only one of its members may fail and its superblocks do not tear.
    pub(super) fn volume_beside(
        &mut self,
        how: &assemble::Options,
        stripes: u32,
        cache_frames: &mut u32,
    ) -> Option<VolumeConfig> {
        let (first, end) = self.beside();
        if first == end {
            return None;
        }
        let knobs = self.options.knobs;
        let source = if self.options.bare {
            let member = self.member_info(first, MemberIndex(first as u16));
            VolumeSource::Single { member, read_only: how.read_only }
        } else {
            let there = (first..end).filter(|disk| !self.disks[*disk].faults.gone);
            let candidates: Vec<_> = there.map(|disk| self.candidate(disk)).collect();
            let assembly = match assemble::assemble(&candidates, how) {
                Ok(assembly) => assembly,
                Err(refused) => {
                    let message = format!("the second array is refused: {refused}");
                    self.fail(Violation::new("I1 durability", message));
                    return None;
                }
            };
            // A resync of the second array needs four stripes, even if the first array has memory
            // for fewer.
            *cache_frames += assembly.cache_frames(knobs.stripe_size, stripes.max(4));
            VolumeSource::Array(Box::new(assembly))
        };
        Some(VolumeConfig { source, knobs, stripes_max: None })
    }

    /// Model of the values that clients of `volume` may read.
    pub(super) fn model_of(&mut self, volume: VolumeId) -> &mut Model {
        match &mut self.bare {
            Some(bare) if volume == BARE => &mut bare.model,
            _ => &mut self.model,
        }
    }

    pub(super) fn models(&mut self) -> impl Iterator<Item = &mut Model> {
        [&mut self.model].into_iter().chain(self.bare.as_mut().map(|bare| &mut bare.model))
    }

    /// Ranges of a volume that disconnected clients were writing when they left.
    pub(super) fn orphans_of(&self, volume: VolumeId) -> impl Iterator<Item = ByteRange> {
        let of_volume = self.orphans.iter().filter(move |(of, _)| *of == volume);
        of_volume.map(|(_, range)| *range)
    }

    /// Whether a request of the volume beside the array may fail, because each of its disks has
    /// failed a request, is gone or shrank.
    fn bare_failed(&self) -> bool {
        let (first, end) = self.beside();
        (first..end).all(|disk| {
            let Disk { faults, stats, .. } = &self.disks[disk];
            stats.failed > 0 || faults.gone || faults.ends_at.is_some()
        })
    }

    /// Reports a violation if the volume beside the array answers an I/O error although not all of
    /// its disks have failed a request.
    pub(super) fn judge_bare(&mut self, error: &ReplyError) {
        if *error == ReplyError::Io && !self.bare_failed() {
            let message =
                "the volume beside the array answers an I/O error, and not all of its disks failed";
            self.fail(Violation::new("I13 liveness", message));
        }
    }

    /// Stops the volume beside the array, if there is one. From then on all its acknowledged data
    /// counts as durable.
    pub fn stop_bare(&mut self, order: Order) {
        if self.bare.is_none() {
            return;
        }
        let ticket = self.command(BARE, Verb::Stop);
        self.run(order);
        match self.take_answer(ticket) {
            _ if self.failure.is_some() => {}
            Some(Ok(_)) => self.model_of(BARE).stop_answered(&[]),
            Some(Err(_)) if self.bare_failed() => {}
            other => {
                let message = format!("stop of the bare volume is answered {other:?}");
                self.fail(Violation::new("I11 exactly once", message));
            }
        }
    }

    /// Waits until a resync of the second array has made its copies equal, so that every member has
    /// the content that is read. Returns false if the array is read-only and cannot resync, or if a
    /// violation was found.
    fn copies_beside_agree(&mut self) -> bool {
        let begun = self.now;
        while self.options.beside > 0 && self.failure.is_none() {
            let volume = &self.snapshot().volumes[1];
            let in_sync =
                volume.members.iter().filter(|member| member.state == MemberState::InSync).count();
            if volume.resync_from.is_none() || in_sync < 2 {
                break;
            }
            if volume.array_state == "readonly" {
                return false;
            }
            if self.now.since(begun) > SYNCED_WITHIN {
                let message = "the second array is not in sync, long after its start";
                self.fail(Violation::new("I13 liveness", message));
            }
            self.idle(Span::millis(500));
        }
        self.failure.is_none()
    }

    /// Reads everything that was ever written to the volume beside the array, block by block.
    /// Returns the number of sectors read: 0 also without such a volume, and if the copies of a
    /// second array disagree.
    pub(super) fn verify_bare(&mut self, order: Order) -> u64 {
        if !self.copies_beside_agree() {
            return 0;
        }
        let Some(bare) = &self.bare else { return 0 };
        let block = u64::from(self.options.logical_block) / 512;
        let mut blocks: Vec<u64> = bare.model.touched().map(|sector| sector / block).collect();
        blocks.dedup();
        let mut read = 0;
        for at in blocks.into_iter().map(|it| it * block) {
            let answer = self.read_for_good(BARE, at, block, order);
            if self.failure.is_some() {
                return 0;
            }
            match answer {
                Some(Ok(())) => read += block,
                Some(Err(_)) if self.bare_failed() => {}
                other => {
                    let message =
                        format!("verification of the bare volume's sector {at} got {other:?}");
                    self.fail(Violation::new("I1 durability", message));
                    return 0;
                }
            }
        }
        read
    }
}
