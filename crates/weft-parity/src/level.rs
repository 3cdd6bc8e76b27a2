//! Levels of SIMD, and their names for users.

use std::fmt;

/// Level of SIMD of the kernels, chosen once at run time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Level {
    /// Portable code, one byte at a time: the reference for all other levels.
    Scalar,
    /// aarch64: 16 bytes at a time, products by two table look-ups.
    Neon,
    /// x86-64: 16 bytes at a time, products by two byte shuffles.
    Ssse3,
    /// x86-64: 32 bytes at a time, products by two byte shuffles.
    Avx2,
    /// x86-64: 64 bytes at a time, products by one 8×8 bit matrix.
    Avx512Gfni,
}

impl Level {
    /// Every level, slowest first, including those that this CPU lacks.
    pub const ALL: [Self; 5] =
        [Self::Scalar, Self::Neon, Self::Ssse3, Self::Avx2, Self::Avx512Gfni];

    /// Name of the level for users: `scalar`, `neon`, `ssse3`, `avx2` or `avx512-gfni`.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Scalar => "scalar",
            Self::Neon => "neon",
            Self::Ssse3 => "ssse3",
            Self::Avx2 => "avx2",
            Self::Avx512Gfni => "avx512-gfni",
        }
    }

    /// The level with this [`name`](Self::name), `None` for any other text.
    #[must_use]
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|level| level.name() == name)
    }
}

impl fmt::Display for Level {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}
