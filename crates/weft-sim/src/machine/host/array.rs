//! Volumes of a simulated machine, and the stripes that byte ranges of an array take.

use weft_engine::assemble::{Assembly, Candidate, Options, assemble};
use weft_engine::layout::geometry::Geometry;
use weft_engine::{Config, MemberInfo, SyncAction};
use weft_ondisk::{Level, NewArray};
use weft_units::{ByteRange, MemberIndex, Sectors};

use super::super::member::device_traits;
use super::super::{MachineParts, PartsError};
use crate::drive::Drive;

/// Size of the stripe cache in stripes, and lengths in bytes of a stripe, a chunk and a full
/// stripe.
#[derive(Clone, Copy, Debug)]
pub(super) struct Stripes {
    pub(super) stripes: u64,
    stripe: u64,
    chunk: u64,
    full_stripe: u64,
}

impl Stripes {
    pub(super) fn new(parts: &MachineParts, assembly: Option<&Assembly>) -> Self {
        let chunk = parts.chunk.bytes().0.max(1);
        let frames = assembly.map_or(1, |of| of.stripe_frames(parts.knobs.stripe_size));
        let parity = assembly.and_then(|of| of.layout.parity());
        Self {
            stripes: u64::from(parts.knobs.cache_stripes(frames)),
            stripe: parts.knobs.stripe_size.bytes().0,
            chunk,
            full_stripe: parity.map_or(chunk, Geometry::full_stripe_bytes),
        }
    }

    /// Upper bound of the number of stripes that a write takes.
    pub(super) fn stripes_of(&self, range: ByteRange) -> u64 {
        let (mut at, end) = (range.start.0, range.start.0 + range.len.0);
        let mut stripes = 0;
        while at < end {
            let piece = end.min((at / self.full_stripe + 1) * self.full_stripe) - at;
            stripes += piece.min(self.chunk).div_ceil(self.stripe);
            at += piece;
        }
        stripes
    }
}

/// Configuration of an engine for a new array or, without a level, for a volume on each of the
/// drives. The array is in sync unless `sync` of the parts asks for a resync or recovery.
pub(super) fn new_volumes(
    parts: &MachineParts,
    drives: &[Drive],
    size: Sectors,
) -> Result<Config, PartsError> {
    let level = parts.level.filter(|level| parts.sync.is_none() || level.uses_size());
    if let (None, Some(_)) = (level, parts.sync) {
        let volume = parts.level.map_or("a single member".to_owned(), |level| level.to_string());
        return Err(PartsError::Sync { volume });
    }
    if let Some(level) = level {
        let config = Config::for_volume(new_array(level, parts, drives, size)?, parts.knobs);
        return Ok(Config { write_back: parts.write_back, ..config });
    }
    let singles = drives.iter().zip(0..).map(|(drive, index)| {
        let mut member = MemberInfo::of_size(MemberIndex(index), "disk", size);
        (member.discards, member.device) = (true, device_traits(drive));
        Config::for_single(member, false)
    });
    let together = |mut all: Config, next: Config| {
        all.volumes.extend(next.volumes);
        all
    };
    let mut config = singles.reduce(together).ok_or(PartsError::Single { members: 0 })?;
    config.volumes.iter_mut().for_each(|volume| volume.knobs = parts.knobs);
    config.write_back = parts.write_back;
    Ok(config)
}

fn new_array(
    level: Level,
    parts: &MachineParts,
    drives: &[Drive],
    size: Sectors,
) -> Result<Assembly, PartsError> {
    let mut array = NewArray::in_sync(level, drives.len(), size);
    match parts.sync {
        Some(SyncAction::Resync) => (array.assume_clean, array.force) = (false, true),
        // The last slot is empty, and its member becomes a spare that is recovered into it.
        Some(SyncAction::Recover) => {
            array.spares.extend(array.slots.last_mut().and_then(Option::take));
        }
        _ => {}
    }
    array.chunk = level.is_striped().then_some(parts.chunk);
    let mut candidates = Candidate::of_new(&array)?;
    for (candidate, drive) in candidates.iter_mut().zip(drives) {
        (candidate.member.discards, candidate.member.device) = (true, device_traits(drive));
    }
    let assembly = assemble(&candidates, &Options::default());
    assembly.map_err(|refusal| PartsError::Assembly(refusal.to_string()))
}
