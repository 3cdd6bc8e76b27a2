//! Resizes that a crash has cut off: some members record a new size or number of slots, and others
//! do not yet.
//!
//! Only the update that records a resize changes the size or the number of slots, and the added
//! space holds no data before all members have recorded the resize. A member that lags by one
//! update is therefore resized as the others are.

use weft_ondisk::{Role, Superblock};

use super::Member;
use super::decision::Decision;

impl Decision<'_> {
    /// Makes members agree about a resize if a crash has cut off the update that records the
    /// resize. Drops spares that are too small for the size which the freshest superblock records.
    pub(super) fn settle_resizes(&mut self, pool: &mut Vec<Member>, freshest: &Superblock) {
        pool.retain_mut(|Member { superblock, info, .. }| {
            let lags = superblock.events().saturating_add(1) == freshest.events();
            let is_spare = superblock.own_role() == Ok(Role::Spare);
            // A spare may have been written before the members with a slot, which decide.
            let is_ahead = is_spare && is_resized(freshest, superblock);
            if is_ahead || (lags || is_spare) && is_resized(superblock, freshest) {
                let (found, expected) = (superblock.data_room(info.size), freshest.size());
                if found < expected && is_spare {
                    let reason = format!("found room for {found} of data, expected {expected}");
                    self.drop(info.clone(), reason);
                    return false;
                }
                superblock.follow_resize(freshest, info.size);
            }
            true
        });
    }
}

/// Whether `after` differs from `before` by a resize: a larger size, or another number of mirrors.
fn is_resized(before: &Superblock, after: &Superblock) -> bool {
    let kept = |it: &Superblock| (it.version(), it.level(), it.layout(), it.chunk());
    let slots_differ = before.raid_disks() != after.raid_disks();
    let grows = before.size() < after.size();
    kept(before) == kept(after)
        && [before, after].iter().all(|it| it.reshape().is_none())
        && before.size() <= after.size()
        && (slots_differ || grows)
        && (!slots_differ || (after.level().is_mirror() && after.as_v1().is_some()))
}
