//! Volumes of a simulated world: the array, and the bare volume beside it.

use weft_units::VolumeId;

/// Number of the volume that is the array.
pub const ARRAY: VolumeId = VolumeId(0);

/// Number of the volume beside the array: a bare volume, which is a disk served unchanged, or a
/// second array.
pub const BARE: VolumeId = VolumeId(1);
