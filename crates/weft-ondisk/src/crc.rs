//! CRC-32C, finished or as the bare register: the checksums of the logs.
//!
//! Both forms use the same register over the same polynomial, 0x1edc6f41, bits reflected. The usual
//! CRC-32C starts with ones and inverts the result; the partial parity log stores this form. The
//! journal stores the register itself, so that one checksum can be the start of the next.
//!
//! Source: RFC 3720, appendix B.4, for the polynomial and its check value; md for the use of each
//! form.

/// CRC-32C (Castagnoli), as in iSCSI and SSE 4.2.
///
/// ```
/// assert_eq!(weft_ondisk::crc::crc32c(b"123456789"), 0xe306_9283);
/// ```
#[must_use]
pub fn crc32c(bytes: &[u8]) -> u32 {
    crc32c::crc32c(bytes)
}

/// CRC-32C of the concatenated slices.
#[must_use]
pub fn crc32c_of(pieces: &[&[u8]]) -> u32 {
    pieces.iter().fold(0, |sum, piece| crc32c::crc32c_append(sum, piece))
}

/// CRC-32C register after `bytes`, if the register was `seed` before. Neither value is inverted,
/// unlike in a finished CRC-32C.
#[must_use]
pub fn crc32c_raw(seed: u32, bytes: &[u8]) -> u32 {
    !crc32c::crc32c_append(!seed, bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_bare_register_is_the_sum_without_its_inversions() {
        assert_eq!(crc32c(b"123456789"), 0xe306_9283);
        assert_eq!(crc32c_of(&[b"1234", b"", b"56789"]), 0xe306_9283);
        assert_eq!(crc32c_raw(u32::MAX, b"123456789"), !0xe306_9283);
        let half = crc32c_raw(u32::MAX, b"1234");
        assert_eq!(crc32c_raw(half, b"56789"), !0xe306_9283);
        assert_eq!(crc32c_raw(0x1234_5678, b""), 0x1234_5678);
    }
}
