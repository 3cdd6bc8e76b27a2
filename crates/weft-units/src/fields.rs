//! Integers in the bytes of structures that come from a disk or a socket.
//!
//! A field beyond the end of the bytes is 0, so that no input can end the program; callers check
//! the length where the difference matters.
//!
//! ```
//! use weft_units::fields::{be16, le32};
//!
//! assert_eq!(le32(&[1, 0, 0, 0, 9], 0), 1);
//! assert_eq!(be16(&[1, 0, 0, 0, 9], 3), 9);
//! assert_eq!(le32(&[1, 0, 0], 0), 0);
//! ```

/// Little-endian number in the two bytes at `at`; 0 if `bytes` end before the second one.
#[must_use]
pub fn le16(bytes: &[u8], at: usize) -> u16 {
    u16::from_le_bytes(array(bytes, at))
}

/// Little-endian number in the four bytes at `at`; 0 if `bytes` end before the fourth one.
#[must_use]
pub fn le32(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes(array(bytes, at))
}

/// Little-endian number in the eight bytes at `at`; 0 if `bytes` end before the eighth one.
#[must_use]
pub fn le64(bytes: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(array(bytes, at))
}

/// Big-endian number in the two bytes at `at`; 0 if `bytes` end before the second one.
#[must_use]
pub fn be16(bytes: &[u8], at: usize) -> u16 {
    u16::from_be_bytes(array(bytes, at))
}

/// Big-endian number in the four bytes at `at`; 0 if `bytes` end before the fourth one.
#[must_use]
pub fn be32(bytes: &[u8], at: usize) -> u32 {
    u32::from_be_bytes(array(bytes, at))
}

/// Big-endian number in the eight bytes at `at`; 0 if `bytes` end before the eighth one.
#[must_use]
pub fn be64(bytes: &[u8], at: usize) -> u64 {
    u64::from_be_bytes(array(bytes, at))
}

/// The `N` bytes at `at`; zeros if `bytes` end before the last of them.
#[must_use]
pub fn array<const N: usize>(bytes: &[u8], at: usize) -> [u8; N] {
    bytes.get(at..).and_then(|rest| rest.first_chunk()).copied().unwrap_or([0; N])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn integers_have_their_byte_order_and_end_with_the_bytes() {
        let bytes = [1, 2, 3, 4, 5, 6, 7, 8, 9];
        assert_eq!((le16(&bytes, 1), be16(&bytes, 1)), (0x0302, 0x0203));
        assert_eq!((le32(&bytes, 1), be32(&bytes, 1)), (0x0504_0302, 0x0203_0405));
        assert_eq!(
            (le64(&bytes, 1), be64(&bytes, 1)),
            (0x0908_0706_0504_0302, 0x0203_0405_0607_0809)
        );
        assert_eq!((le64(&bytes, 2), be32(&bytes, 6), le16(&bytes, usize::MAX)), (0, 0, 0));
        assert_eq!(array(&bytes, 7), [8, 9]);
    }
}
