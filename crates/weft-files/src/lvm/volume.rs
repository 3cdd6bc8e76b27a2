//! Logical volume as bytes: segments, each on one physical volume or striped over several.

use crate::source::{ReadError, Shared, Source, inside, moved};

/// Part of a physical volume that a segment uses.
pub(super) struct Leg {
    /// Physical volume; `None` if it was not found.
    pub(super) source: Option<Shared>,
    /// Name of the physical volume for messages: its UUID if it was not found.
    pub(super) name: String,
    /// Byte offset on the physical volume at which the part begins.
    pub(super) start: u64,
}

/// Segment of a logical volume.
pub(super) struct Segment {
    /// Byte offset in the logical volume at which the segment begins.
    pub(super) start: u64,
    pub(super) len: u64,
    /// Bytes on one leg before the next leg follows; without meaning for a single leg.
    pub(super) stripe_bytes: u64,
    pub(super) legs: Vec<Leg>,
}

/// Bytes of a logical volume.
pub(super) struct Mapped {
    /// Segments without gaps between them, in ascending order.
    pub(super) segments: Vec<Segment>,
    pub(super) size: u64,
}

impl Segment {
    /// Leg for byte `within` of the segment, the byte from the start of that leg, and the number of
    /// bytes that are contiguous from there on.
    fn place(&self, within: u64) -> (&Leg, u64, u64) {
        let left = self.len - within;
        if self.legs.len() == 1 {
            return (&self.legs[0], within, left);
        }
        let count = self.legs.len() as u64;
        let (stripe, offset) = (within / self.stripe_bytes, within % self.stripe_bytes);
        let leg = usize::try_from(stripe % count).unwrap_or(0);
        let at = stripe / count * self.stripe_bytes + offset;
        (&self.legs[leg], at, left.min(self.stripe_bytes - offset))
    }
}

impl Source for Mapped {
    fn size(&self) -> u64 {
        self.size
    }

    fn read_at(&self, offset: u64, into: &mut [u8]) -> Result<(), ReadError> {
        inside(self.size, offset, into.len() as u64)?;
        let mut done = 0;
        while done < into.len() {
            let at = offset + done as u64;
            let index = self.segments.partition_point(|segment| segment.start <= at) - 1;
            let segment = &self.segments[index];
            let (leg, on_leg, len) = segment.place(at - segment.start);
            let len = usize::try_from(len).unwrap_or(usize::MAX).min(into.len() - done);
            let Some(source) = &leg.source else {
                let why = format!("physical volume {} was not found", leg.name);
                return Err(ReadError { range: at..at + len as u64, why });
            };
            let below = leg.start.saturating_add(on_leg);
            source
                .read_at(below, &mut into[done..done + len])
                .map_err(|error| moved(error, below, at))?;
            done += len;
        }
        Ok(())
    }
}
