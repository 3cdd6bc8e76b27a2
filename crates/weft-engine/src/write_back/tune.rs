//! Runtime knobs of the write-back cache: limits and rules of its pool, and the ratios of each
//! volume.
//!
//! A new value applies at once. Operations that wait or pause are checked again: a write that has
//! room now continues, and a write that is too long for a smaller pool goes through to the volume.
//! If there are more dirty pages than a new limit permits, write-back reduces them, and no write
//! gets room until they are within the limit.
//!
//! Limits beyond the memory of the cache are refused, and so are minimum ratios of volumes that
//! leave no share for the other volumes.
//!
//! Source   writeback.md §1.1, §1.4, §2.6

use weft_units::{FRAME_BYTES, VolumeId};

use super::op::CachePath;
use super::{Cached, WriteBack};
use crate::array::outbox::Outbox;
use crate::contract::error::ReplyError;
use crate::knobs::{Knob, Knobs, PoolKnobs};
use crate::page_cache::{Amount, BdiRatios};
use crate::volume::Volume;

impl WriteBack {
    /// Sets one knob to a new value. A knob of the pool applies to all volumes, a ratio to
    /// `volume`. Refused if the new value does not fit the cache or the other volumes.
    pub(crate) fn set(
        &mut self,
        volume: VolumeId,
        knob: Knob,
        volumes: &mut [Volume],
        out: &mut Outbox,
    ) -> Result<(), ReplyError> {
        let index = volume.index();
        let ratios = self.volumes.iter().map(|cached| cached.ratios).collect::<Vec<_>>();
        let mut knobs = Knobs { pool: self.knobs, ratios: ratios[index], ..Knobs::default() };
        knobs.set(knob);
        check_pool(&knobs.pool, self.pages).map_err(ReplyError::Refused)?;
        check_ratios(knobs.ratios, &others(&ratios, index)).map_err(ReplyError::Refused)?;
        self.knobs = knobs.pool;
        self.volumes[index].ratios = knobs.ratios;
        self.apply();
        // Waiting operations were checked against the old limits.
        for id in std::mem::take(&mut self.waiting) {
            self.arrive(id, volumes, out);
        }
        (0..self.volumes.len()).for_each(|it| self.writers.wake_all(VolumeId(it as u16)));
        Ok(())
    }

    /// Passes the knobs on to the page cache.
    pub(super) fn apply(&mut self) {
        let PoolKnobs { dirty, background, expire_centisecs, writeback_centisecs, .. } = self.knobs;
        let kernel = self.knobs.kernel();
        self.cache.set_rules(kernel, expire_centisecs.into(), writeback_centisecs.into());
        self.cache.set_limits(dirty, background);
        for Cached { bdi, ratios, .. } in &self.volumes {
            self.cache.set_ratios(*bdi, *ratios);
        }
        self.cache.wake_flushers();
    }

    /// Sets whether a write stays in the cache or is sent to its volume, after the conditions were
    /// checked again; `keeps` is true if it can stay. Returns whether it stays in the cache now and
    /// did not before.
    pub(super) fn way_of_write(&mut self, id: super::OpId, keeps: bool) -> bool {
        let op = self.client_op(id);
        let was_kept = op.path == CachePath::Keep;
        if keeps {
            op.path = CachePath::Keep;
        } else if was_kept {
            op.path = CachePath::Through;
        }
        keeps && !was_kept
    }
}

/// Checks that these knobs fit a cache of `pages` pages. The error text states the reason.
pub(crate) fn check_pool(knobs: &PoolKnobs, pages: u64) -> Result<(), String> {
    let size = pages * FRAME_BYTES;
    match knobs.dirty {
        Amount::Bytes(bytes) if bytes > size => Err(format!(
            "dirty_bytes: found {bytes}, expected at most {size}, the size of the write-back cache \
             (serve --write-back)"
        )),
        Amount::Bytes(_) | Amount::Percent(_) => Ok(()),
    }
}

/// Checks that a volume can have these ratios beside those of the other volumes. The error text
/// states the reason.
pub(crate) fn check_ratios(ratios: BdiRatios, others: &[BdiRatios]) -> Result<(), String> {
    let BdiRatios { min, max, .. } = ratios;
    if min > max {
        return Err(format!(
            "min_ratio: found {min}, expected at most max_ratio, which is {max}; set the other one \
             first"
        ));
    }
    let given: u32 = others.iter().map(|ratios| u32::from(ratios.min)).sum();
    if given + u32::from(min) >= 100 {
        return Err(format!(
            "min_ratio: found {min}, expected at most {}, for other volumes have {given} of 100, \
             and something is for all",
            99_u32.saturating_sub(given)
        ));
    }
    Ok(())
}

/// Ratios of all volumes except number `index`.
fn others(ratios: &[BdiRatios], index: usize) -> Vec<BdiRatios> {
    let but = ratios.iter().zip(0..).filter(|(_, place)| *place != index);
    but.map(|(ratios, _)| *ratios).collect()
}

/// Checks that volumes with these initial knobs can share a cache of `pages` pages. The error text
/// states the reason.
pub(crate) fn check_start(volumes: &[Knobs], pages: u64) -> Result<(), String> {
    let Some(first) = volumes.first() else { return Ok(()) };
    check_pool(&first.pool, pages)?;
    let ratios: Vec<_> = volumes.iter().map(|knobs| knobs.ratios).collect();
    let mut each = ratios.iter().zip(0..);
    each.try_for_each(|(one, index)| check_ratios(*one, &others(&ratios, index)))
}
