//! Alignment of reads: rounding out to a member's logical blocks.
//!
//! Clients may read any byte range, while members transfer whole logical blocks, so a read is
//! rounded out. Rounding out needs no extra memory: the payload starts at the same offset in its
//! first frame as in the volume's block, so the frames have room for the rest of the first and last
//! block. A write of part of a block needs the rest of the block and goes through the stripe cache,
//! which reads and writes whole blocks anyway.

use weft_units::ByteRange;

/// The smallest range of whole blocks of `block` bytes that contains `range`.
pub(crate) fn whole_blocks(range: ByteRange, block: u64) -> ByteRange {
    debug_assert!(block.is_power_of_two());
    let start = range.start.0 & !(block - 1);
    let end = (range.end().0 + block - 1) & !(block - 1);
    ByteRange::new(start, end - start)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_grow_to_whole_blocks() {
        let cases = [
            ((0, 512), 512, (0, 512)),
            ((1, 1), 512, (0, 512)),
            ((511, 2), 512, (0, 1024)),
            ((4095, 2), 4096, (0, 8192)),
            ((8192, 4096), 4096, (8192, 4096)),
        ];
        for ((start, len), block, (to_start, to_len)) in cases {
            let grown = whole_blocks(ByteRange::new(start, len), block);
            assert_eq!(grown, ByteRange::new(to_start, to_len));
        }
    }
}
