//! Volumes of a simulated world: the array, and the bare volume beside it.

use weft_units::VolumeId;

/// The volume of the array.
pub const ARRAY: VolumeId = VolumeId(0);

/// The bare volume.
pub const BARE: VolumeId = VolumeId(1);
