//! Bare volume beside the array: one disk that is exported unchanged, with clients of its own.
//!
//! One engine serves both volumes: they share clients, credit, frames, tags, runs of the engine,
//! and the write-back cache with its limits. Data of one volume must never appear in the other.
//!
//! Clients use the sectors between [`FIRST`] and [`END`] of the disk, so the disk has no superblock
//! at any position where one is searched for. If the disk fails, requests of the volume may fail
//! too.

use std::ops::Range;

use weft_engine::{ReplyError, Verb, VolumeConfig, VolumeSource};
use weft_units::{ByteRange, MemberIndex, Sectors, VolumeId};

use super::{BARE, Order, World};
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

/// The bare volume of a world.
#[derive(Clone, Debug)]
pub(super) struct Bare {
    /// Number of the volume's disk.
    pub(super) disk: usize,
    /// Values that the volume's clients may read.
    pub(super) model: Model,
    /// Number of requests answered so far.
    pub(super) answered: u64,
}

/// A disk for the bare volume.
pub(super) fn new_disk(options: &Options) -> Disk {
    Disk::new(Sectors(END + 256), options.logical_block)
        .carrying(FIRST..END, options.payload)
        .failing_by_chance(options.seed ^ 0xba2e)
}

impl World {
    /// Number of the bare volume's disk; `None` without a bare volume.
    #[must_use]
    pub fn bare_disk(&self) -> Option<usize> {
        self.bare.as_ref().map(|bare| bare.disk)
    }

    /// The first block of the bare volume that clients use; `None` without a bare volume.
    #[must_use]
    pub fn first_of_bare(&self) -> Option<ByteRange> {
        self.bare.as_ref().map(|_| ByteRange::new(BARE_BYTES.start, 4096))
    }

    /// Number of requests of the bare volume answered so far.
    #[must_use]
    pub fn bare_requests_answered(&self) -> u64 {
        self.bare.as_ref().map_or(0, |bare| bare.answered)
    }

    /// Configuration of the bare volume for an engine; `None` without a bare volume.
    pub(super) fn bare_config(&self, read_only: bool) -> Option<VolumeConfig> {
        let disk = self.bare_disk()?;
        let member = self.member_info(disk, MemberIndex(disk as u16));
        let source = VolumeSource::Single { member, read_only };
        Some(VolumeConfig { source, knobs: self.options.knobs, stripes_max: None })
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

    /// Whether a request of the bare volume may fail, because its disk has failed one.
    fn bare_failed(&self) -> bool {
        self.bare_disk().is_some_and(|disk| {
            let Disk { faults, stats, .. } = &self.disks[disk];
            stats.failed > 0 || faults.gone || faults.ends_at.is_some()
        })
    }

    /// Reports a violation if the bare volume answers an I/O error although its disk failed no
    /// request.
    pub(super) fn judge_bare(&mut self, error: &ReplyError) {
        if *error == ReplyError::Io && !self.bare_failed() {
            let message = "the bare volume answers an I/O error, and its disk failed nothing";
            self.fail(Violation::new("I13 liveness", message));
        }
    }

    /// Stops the bare volume. Afterwards all its acknowledged data must be durable on its disk.
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

    /// Reads everything that was ever written to the bare volume, block by block. Returns the
    /// number of sectors read.
    pub(super) fn verify_bare(&mut self, order: Order) -> u64 {
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
