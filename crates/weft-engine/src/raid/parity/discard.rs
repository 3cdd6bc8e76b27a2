//! Discarded full stripes, as the stripe cache and a resync see them.
//!
//! A discard goes past the cache: each member is told to store nothing for a run of full stripes,
//! parity included, for the parity of zeros is zero. Meanwhile nobody may look at these stripes or
//! write them. Clients wait for each other anyway ([`crate::ranges`]); a sync, and what the cache
//! does on its own account, have to be kept away.
//!
//! Source   drivers/md/raid5.c, `make_discard_request`: whole stripes only, for the same reason. md
//!          sends them stripe by stripe, through its cache

use std::ops::Range;

use weft_units::StripeId;

use super::stripes::Stripes;
use super::sync::Resync;
use crate::raid::parity::stripe::Batch;
use crate::raid::slot_set::SlotSet;

/// Full stripes that are being discarded, or about to be.
#[derive(Clone, Debug, Default)]
pub(crate) struct Discarded {
    full_stripes: Vec<Range<u64>>,
}

impl Discarded {
    /// Keeps others away from these full stripes.
    pub(crate) fn enter(&mut self, full_stripes: Range<u64>) {
        self.full_stripes.push(full_stripes);
    }

    /// Lets others come back.
    pub(crate) fn leave(&mut self, full_stripes: &Range<u64>) {
        let place = self.full_stripes.iter().position(|entered| entered == full_stripes);
        self.full_stripes.swap_remove(place.expect("it entered"));
    }

    /// Whether the stripes of a full stripe have to be left alone.
    pub(crate) fn has(&self, full_stripe: u64) -> bool {
        self.full_stripes.iter().any(|range| range.contains(&full_stripe))
    }
}

impl Stripes {
    /// The stripes of these full stripes.
    pub(crate) fn keys_of(&self, full_stripes: &Range<u64>) -> Range<u64> {
        let stripes = self.stripes_per_chunk();
        full_stripes.start * stripes..full_stripes.end * stripes
    }

    /// Whether nothing goes on in any of these stripes: no sync, no correction, no second attempt
    /// at what a member had no space for.
    pub(crate) fn are_quiet(&self, keys: &Range<u64>, sync: Option<&Resync>) -> bool {
        let is_quiet = |id: &StripeId| {
            let stripe = self.cache.stripe(*id);
            let untouched = !stripe.handle && !stripe.plugged && stripe.batch == Batch::None;
            stripe.in_flight == 0 && untouched && !stripe.has_work()
        };
        // What a sync asked for may wait for a stripe as well.
        sync.is_none_or(|sync| !sync.waits_for(keys))
            && self.cache.stripes_of(keys).iter().all(is_quiet)
    }

    /// Forgets what is known of these stripes, which are quiet.
    pub(crate) fn forget(&mut self, keys: &Range<u64>) {
        for id in self.cache.stripes_of(keys) {
            let stripe = self.cache.stripe_mut(id);
            if !stripe.deferred.is_empty() {
                // Its member needs no space for nothing.
                stripe.deferred = SlotSet::EMPTY;
                self.forget_deferred(id);
            }
            self.cache.forget(id);
        }
    }
}

#[cfg(test)]
mod tests {
    use weft_ondisk::Level;
    use weft_units::{Sectors, Slot, VolumeId};

    use super::*;
    use crate::SyncAction;
    use crate::frame::Frame;
    use crate::knobs::CacheForm;
    use crate::raid::geometry::Geometry;
    use crate::raid::parity::cache::{Acquired, Cache};
    use crate::raid::parity::stripe::{ResyncState, Stripe};

    /// Stripes of three members, 8 of them in a full stripe; one is in use, stripe 5.
    fn stripes(change: fn(&mut Stripe)) -> Stripes {
        let geometry = Geometry::new(Level::Raid5, 2, 3, Sectors(64), Sectors(512)).unwrap();
        let mut cache = Cache::new(16, Frame(0), 3, Sectors(8), None, CacheForm::Today);
        let Acquired::Stripe(id) = cache.acquire(5, &geometry) else { panic!("all are free") };
        change(cache.stripe_mut(id));
        Stripes::new(VolumeId(0), cache, Sectors(64))
    }

    #[test]
    fn full_stripe_is_quiet_unless_something_goes_on_in_one_of_its_stripes() {
        let goes_on: [fn(&mut Stripe); 6] = [
            |stripe| stripe.handle = true,
            |stripe| stripe.plugged = true,
            |stripe| stripe.batch = Batch::Head(vec![StripeId(9)]),
            |stripe| stripe.batch = Batch::Follower(StripeId(9)),
            |stripe| stripe.in_flight = 1,
            |stripe| stripe.sync = Some((SyncAction::Check, ResyncState::Requested)),
        ];
        for (change, number) in goes_on.into_iter().zip(0..) {
            assert!(!stripes(change).are_quiet(&(0..8), None), "change {number}");
            assert!(stripes(change).are_quiet(&(8..16), None), "change {number}");
        }
        assert!(stripes(|_| {}).are_quiet(&(0..8), None));
    }

    #[test]
    fn stripes_of_a_full_stripe_that_is_discarded_are_forgotten_and_defer_nothing() {
        for keys in [0..5, 0..8, 0..64] {
            let mut stripes = stripes(|stripe| stripe.deferred = SlotSet::only(Slot(1)));
            let id = stripes.cache.find(5).unwrap();
            stripes.forget(&keys);
            let forgotten = keys.contains(&5);
            assert_eq!(stripes.cache.find(5).is_none(), forgotten, "{keys:?}");
            assert_eq!(stripes.cache.stripe(id).deferred.is_empty(), forgotten, "{keys:?}");
        }
    }
}
