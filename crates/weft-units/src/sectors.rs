//! Sectors and bytes: sizes and positions.

use std::fmt;
use std::ops::{Add, AddAssign, Sub, SubAssign};

/// Bytes in a sector, the unit of every md offset, independent of the device's logical block.
pub const SECTOR_BYTES: u64 = 512;

/// Bytes in a frame, the unit of memory that the engine names and the driver owns.
pub const FRAME_BYTES: u64 = 4096;

/// A count or position in sectors of 512 bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Sectors(pub u64);

/// A count or position in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Bytes(pub u64);

impl Sectors {
    /// The value 0: an empty length, or the position of the first sector.
    pub const ZERO: Self = Self(0);

    /// Converts a length or a position to bytes. The result is `u64::MAX` if it would be larger,
    /// which no real device reaches.
    #[must_use]
    pub const fn bytes(self) -> Bytes {
        Bytes(self.0.saturating_mul(SECTOR_BYTES))
    }

    /// Sum, or `None` on overflow, for values read from a device.
    #[must_use]
    pub const fn checked_add(self, other: Self) -> Option<Self> {
        match self.0.checked_add(other.0) {
            Some(sum) => Some(Self(sum)),
            None => None,
        }
    }

    /// Rounds down to a multiple of `unit`, which must not be zero.
    #[must_use]
    pub const fn round_down(self, unit: Self) -> Self {
        Self(self.0 - self.0 % unit.0)
    }
}

impl Bytes {
    /// The value 0: an empty length, or the position of the first byte.
    pub const ZERO: Self = Self(0);

    /// Creates a size of `count` KiB.
    #[must_use]
    pub const fn kib(count: u64) -> Self {
        Self(count << 10)
    }

    /// Creates a size of `count` MiB.
    #[must_use]
    pub const fn mib(count: u64) -> Self {
        Self(count << 20)
    }

    /// Number of whole sectors in this length.
    #[must_use]
    pub const fn sectors_floor(self) -> Sectors {
        Sectors(self.0 / SECTOR_BYTES)
    }

    /// Number of sectors that hold this many bytes, rounded up.
    #[must_use]
    pub const fn sectors_ceil(self) -> Sectors {
        Sectors(self.0.div_ceil(SECTOR_BYTES))
    }
}

macro_rules! arithmetic {
    ($name:ident, $unit:literal) => {
        impl Add for $name {
            type Output = Self;
            fn add(self, other: Self) -> Self {
                Self(self.0 + other.0)
            }
        }
        impl AddAssign for $name {
            fn add_assign(&mut self, other: Self) {
                self.0 += other.0;
            }
        }
        impl Sub for $name {
            type Output = Self;
            fn sub(self, other: Self) -> Self {
                Self(self.0 - other.0)
            }
        }
        impl SubAssign for $name {
            fn sub_assign(&mut self, other: Self) {
                self.0 -= other.0;
            }
        }
        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, concat!("{} ", $unit), self.0)
            }
        }
    };
}
arithmetic!(Sectors, "sectors");
arithmetic!(Bytes, "bytes");

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn conversions_round_as_named() {
        assert_eq!(Sectors(3).bytes(), Bytes(1536));
        assert_eq!(Bytes(1535).sectors_floor(), Sectors(2));
        assert_eq!(Bytes(1025).sectors_ceil(), Sectors(3));
        assert_eq!(Sectors(17).round_down(Sectors(8)), Sectors(16));
        assert_eq!(Sectors(u64::MAX).checked_add(Sectors(1)), None);
    }
}
