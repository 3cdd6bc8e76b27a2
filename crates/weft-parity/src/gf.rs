//! Arithmetic of GF(2⁸), the field of the Q syndrome: products, quotients, powers.
//!
//! GF(2⁸) is the set of bytes with XOR as addition and polynomial multiplication modulo
//! x⁸+x⁴+x³+x²+1 (0x11d) as multiplication. The generator is {02}: its powers g⁰, g¹, …, g²⁵⁴ are
//! all 255 non-zero bytes, so every non-zero byte has a logarithm and division is a subtraction.
//!
//! Source: H. P. Anvin, "The mathematics of RAID-6", §2 and §3.

/// The generator of the multiplicative group, g.
///
/// Source   H. P. Anvin, "The mathematics of RAID-6", §2
pub const GENERATOR: u8 = 2;

/// The order of the multiplicative group: g^`ORDER` = g⁰ = 1.
///
/// Exponents run from 0 to `ORDER - 1` = 254, which limits an array to 255 data strips.
///
/// Source   H. P. Anvin, "The mathematics of RAID-6", §2
pub const ORDER: u8 = 255;

/// Multiplies two field elements.
///
/// Shape    any two bytes; zero times anything is zero
/// Source   H. P. Anvin, "The mathematics of RAID-6", §2
#[inline]
#[must_use]
pub const fn mul(a: u8, b: u8) -> u8 {
    let [low, high] = &NIBBLES[a as usize];
    low[(b & 15) as usize] ^ high[(b >> 4) as usize]
}

/// Multiplies by the generator: a shift, reduced by the polynomial when the top bit is shifted out.
///
/// Source   H. P. Anvin, "The mathematics of RAID-6", §2, multiplication by {02}
#[inline]
#[must_use]
pub const fn double(a: u8) -> u8 {
    (a << 1) ^ (REDUCTION * (a >> 7))
}

/// Returns g^k, the coefficient of the data strip with exponent `k`.
///
/// Shape    any `k`; 255 gives g⁰ again
/// Source   H. P. Anvin, "The mathematics of RAID-6", §2
#[inline]
#[must_use]
pub const fn pow2(k: u8) -> u8 {
    POWERS[k as usize]
}

/// Returns the `k` in 0..=254 for which g^k = `a`.
///
/// Shape    `a` is not zero, which is asserted: zero is no power of g
/// Source   H. P. Anvin, "The mathematics of RAID-6", §2
#[inline]
#[must_use]
pub const fn log2(a: u8) -> u8 {
    assert!(a != 0, "zero has no logarithm");
    LOGARITHMS[a as usize]
}

/// Returns the element that gives 1 when multiplied by `a`.
///
/// Shape    `a` is not zero, which is asserted
/// Source   H. P. Anvin, "The mathematics of RAID-6", §2: a⁻¹ = g^(255 − log a)
#[inline]
#[must_use]
pub const fn inverse(a: u8) -> u8 {
    pow2(ORDER - log2(a))
}

/// Divides `a` by `b`.
///
/// Shape    `b` is not zero, which is asserted
/// Source   H. P. Anvin, "The mathematics of RAID-6", §2
#[inline]
#[must_use]
pub const fn div(a: u8, b: u8) -> u8 {
    mul(a, inverse(b))
}

/// Returns `a - b` modulo the order of the group: the exponent of g^a / g^b.
///
/// Shape    `a` and `b` at most 254
#[inline]
pub(crate) const fn exponent_difference(a: u8, b: u8) -> u8 {
    if a >= b { a - b } else { ORDER - (b - a) }
}

/// Reduction of a doubling that shifts out the top bit: 0x11d without its own top bit.
///
/// Source   md-raid.md §5.2, the polynomial 0x11d
pub(crate) const REDUCTION: u8 = 0x1d;

/// Products of each coefficient c with 0..=15 (low nibbles) and with 16·(0..=15) (high nibbles),
/// indexed by c, then 0 or 1, then nibble.
///
/// Multiplication distributes over XOR, so c·x is the XOR of two lookups of 16 entries each. The
/// tables have the form that a byte shuffle needs. 256 × 2 × 16 bytes = 8 KiB.
pub(crate) static NIBBLES: [[[u8; 16]; 2]; 256] = nibbles();

const fn nibbles() -> [[[u8; 16]; 2]; 256] {
    let mut tables = [[[0; 16]; 2]; 256];
    let mut coefficient: u8 = 0;
    loop {
        let mut high_unit = coefficient; // coefficient · 2⁴
        let mut doublings = 0;
        while doublings < 4 {
            high_unit = double(high_unit);
            doublings += 1;
        }
        tables[coefficient as usize] = [multiples(coefficient), multiples(high_unit)];
        if coefficient == u8::MAX {
            return tables;
        }
        coefficient += 1;
    }
}

/// Products of `unit` with 0..=15. Each is computed from the product at half its index.
const fn multiples(unit: u8) -> [u8; 16] {
    let mut table = [0; 16];
    let mut index = 1;
    while index < 16 {
        let even = double(table[index / 2]);
        table[index] = if index % 2 == 0 { even } else { even ^ unit };
        index += 1;
    }
    table
}

static POWERS: [u8; 256] = powers();

const fn powers() -> [u8; 256] {
    let mut table = [0; 256];
    let mut power = 1;
    let mut k = 0;
    while k < 256 {
        table[k] = power;
        power = double(power);
        k += 1;
    }
    table
}

static LOGARITHMS: [u8; 256] = logarithms();

const fn logarithms() -> [u8; 256] {
    let mut table = [0; 256];
    let mut power = 1;
    let mut k: u8 = 0;
    while k < ORDER {
        table[power as usize] = k;
        power = double(power);
        k += 1;
    }
    table
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Schoolbook multiplication: one shifted copy for each set bit, reduced from the top bit down.
    fn schoolbook(a: u8, b: u8) -> u8 {
        let product = (0..8)
            .filter(|bit| b >> bit & 1 == 1)
            .fold(0u16, |sum, bit| sum ^ (u16::from(a) << bit));
        let reduced = (8..15).rev().fold(product, |value, bit| {
            if value >> bit & 1 == 1 { value ^ (0x11d << (bit - 8)) } else { value }
        });
        u8::try_from(reduced).unwrap()
    }

    #[test]
    fn every_product_equals_schoolbook_multiplication() {
        for a in 0..=u8::MAX {
            for b in 0..=u8::MAX {
                assert_eq!(mul(a, b), schoolbook(a, b), "{a:#04x} times {b:#04x}");
            }
        }
    }

    #[test]
    fn powers_and_logarithms_are_inverse_and_cover_the_group() {
        for k in 0..ORDER {
            assert_eq!(log2(pow2(k)), k);
        }
        assert_eq!(pow2(ORDER), 1);
        assert_eq!(pow2(8), REDUCTION);
    }

    #[test]
    fn division_undoes_multiplication() {
        for a in 0..=u8::MAX {
            for b in 1..=u8::MAX {
                assert_eq!(div(mul(a, b), b), a);
            }
        }
        assert!((1..=u8::MAX).all(|a| mul(a, inverse(a)) == 1));
    }

    #[test]
    fn exponent_difference_is_division_of_powers() {
        for a in 0..ORDER {
            for b in 0..ORDER {
                assert_eq!(pow2(exponent_difference(a, b)), div(pow2(a), pow2(b)));
            }
        }
    }

    #[test]
    #[should_panic(expected = "zero has no logarithm")]
    fn zero_has_no_inverse() {
        let _ = inverse(0);
    }
}
