//! Knobs of the stripe cache that can only be set while no stripe is in use: the size of the cache,
//! its form, and the stripe size.

use weft_units::{Bytes, FRAME_BYTES};

use super::ParityRaid;
use super::stripe_size;
use crate::contract::error::ReplyError;
use crate::knobs::{Knob, Knobs, StripeSize};
use crate::layout::Layout;
use crate::mutant::Mutant;
use crate::raid::ArrayView;
use crate::raid::io::Busy;
use crate::raid::personality::{RaidLevel, Requests, Settings};

impl Settings for ParityRaid {
    fn resize(&mut self, layout: &Layout) {
        let geometry = layout.parity().expect("parity stays parity");
        self.geometry = geometry.clone();
    }

    fn sets_when_quiet(&self, knob: Knob) -> bool {
        matches!(
            knob,
            Knob::StripeCacheBytes(_)
                | Knob::StripeCacheForm(_)
                | Knob::StripeCacheSize(_)
                | Knob::StripeSize(_)
        )
    }

    fn check(&self, knob: Knob, knobs: &Knobs, busy: Busy) -> Result<(), ReplyError> {
        let geometry = &self.geometry;
        if busy.syncs {
            return Err(ReplyError::Busy("a sync is running"));
        }
        if busy.quiesces {
            return Err(ReplyError::Busy("the stripe cache is being resized"));
        }
        if busy.unanswered || self.has_deferred() {
            return Err(ReplyError::Busy(
                "stripes are in use for as long as a member does not answer",
            ));
        }
        let frames = self.memory.frames;
        let stripe_frames = stripe_size::stripe_frames(knobs, geometry);
        let room = frames / stripe_frames;
        let too_large = |name: &str, found: u64, room: u64| {
            Err(ReplyError::Refused(format!(
                "{name}: found {found}, expected at most {room}, for which memory was set aside at the \
                 start; start with a larger one"
            )))
        };
        match knob {
            Knob::StripeCacheBytes(bytes) => {
                // As at the start, a size in bytes counts in whole stripes of `auto`, so that the
                // size with which the volume was started is always accepted.
                let auto = Knobs { stripe_size: StripeSize::AUTO, ..*knobs };
                let stripe_frames = stripe_size::stripe_frames(&auto, geometry);
                let room = frames / stripe_frames;
                if bytes > Bytes::ZERO && auto.cache_stripes(stripe_frames) > room {
                    let bytes_max =
                        u64::from(room + 1) * u64::from(stripe_frames) * FRAME_BYTES - 1;
                    return too_large("stripe_cache_bytes", bytes.0, bytes_max);
                }
            }
            Knob::StripeCacheSize(stripes) if stripes > room => {
                return too_large("stripe_cache_size", u64::from(stripes), u64::from(room));
            }
            _ => {}
        }
        if room == 0 {
            return Err(ReplyError::Refused(format!(
                "stripe_size: a stripe of {stripe_frames} frames does not fit into the {frames} of the cache"
            )));
        }
        Ok(())
    }

    /// Replaces the stripe cache by one with the values of `knobs`. No stripe may be in use.
    fn apply(&mut self, knob: Knob, array: ArrayView<'_>, knobs: &Knobs) {
        if matches!(knob, Knob::StripeCacheSize(_)) && array.is_planted(Mutant::CacheNotResized) {
            return;
        }
        assert!(self.is_quiet(), "the cache is resized when no stripe is in use");
        let waits = std::mem::take(&mut self.stripes.waits);
        self.stripes = self.memory.stripes(&self.geometry, knobs);
        self.stripes.waits = waits;
    }
}
