//! Array of a simulated machine, and how byte ranges lie in its stripes.

use weft_engine::assemble::{Assembly, Candidate, Options, assemble};
use weft_engine::layout::geometry::Geometry;
use weft_ondisk::NewArray;
use weft_units::{ByteRange, Sectors};

use super::super::member::device_traits;
use super::super::{MachineParts, PartsError};
use crate::drive::Drive;

/// Of the stripe cache: how many stripes it has, and how long what is.
#[derive(Clone, Copy, Debug)]
pub(super) struct Stripes {
    pub(super) stripes: u64,
    stripe: u64,
    chunk: u64,
    full_stripe: u64,
}

impl Stripes {
    pub(super) fn new(parts: &MachineParts, assembly: &Assembly) -> Self {
        let chunk = parts.chunk.bytes().0.max(1);
        let stripe_frames = assembly.stripe_frames(parts.knobs.stripe_size);
        Self {
            stripes: u64::from(parts.knobs.cache_stripes(stripe_frames)),
            stripe: parts.knobs.stripe_size.bytes().0,
            chunk,
            full_stripe: assembly.layout.parity().map_or(chunk, Geometry::full_stripe_bytes),
        }
    }

    /// How many stripes a write takes, at most.
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

/// A new array in sync.
pub(super) fn new_array(
    parts: &MachineParts,
    drives: &[Drive],
    size: Sectors,
) -> Result<Assembly, PartsError> {
    let mut array = NewArray::in_sync(parts.level, drives.len(), size);
    array.chunk = parts.level.is_striped().then_some(parts.chunk);
    let mut candidates = Candidate::of_new(&array)?;
    for (candidate, drive) in candidates.iter_mut().zip(drives) {
        (candidate.member.discards, candidate.member.device) = (true, device_traits(drive));
    }
    let assembly = assemble(&candidates, &Options::default());
    assembly.map_err(|refusal| PartsError::Assembly(refusal.to_string()))
}
