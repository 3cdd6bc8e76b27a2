//! Test pattern of the demo: blocks that record their address and their write.
//!
//! Every word of 8 bytes records its address and the write that stored it, so a lost, old,
//! misplaced or mixed block is detected, and the message names the kind of error.

/// Unit of writes, in bytes: a write covers whole blocks.
pub(crate) const BLOCK: u64 = 4096;

/// Word that the write with the number `write` stores at a byte address. No two words are equal
/// while addresses are below 8 TiB and numbers of writes below 2^24.
pub(crate) fn word(write: u32, address: u64) -> u64 {
    u64::from(write) << 40 | address >> 3
}

/// Content that the write with the number `write` stores in `len` bytes from `start` on.
pub(crate) fn fill(write: u32, start: u64, len: u64) -> Vec<u8> {
    (start..start + len).step_by(8).flat_map(|address| word(write, address).to_le_bytes()).collect()
}

/// Expected content of every block of a volume.
#[derive(Clone, Debug)]
pub(crate) struct Expected {
    /// Number of the last write to each block; 0 for a block that was never written and holds
    /// zeros.
    writes: Vec<u32>,
}

impl Expected {
    /// A volume of `bytes` bytes, all zeros.
    pub(crate) fn zeros(bytes: u64) -> Self {
        Self { writes: vec![0; usize::try_from(bytes / BLOCK).unwrap_or(0)] }
    }

    /// Records that the write with the number `write` has stored whole blocks.
    pub(crate) fn written(&mut self, write: u32, start: u64, len: u64) {
        for block in start / BLOCK..(start + len) / BLOCK {
            if let Some(last) = usize::try_from(block).ok().and_then(|it| self.writes.get_mut(it)) {
                *last = write;
            }
        }
    }

    /// Compares whole blocks with their expected content.
    ///
    /// # Errors
    /// A word differs; the text says where, and the kind of error.
    pub(crate) fn verify(&self, start: u64, data: &[u8]) -> Result<(), String> {
        let words = data.as_chunks::<8>().0;
        for (found, address) in words.iter().zip((start..).step_by(8)) {
            let found = u64::from_le_bytes(*found);
            let block = usize::try_from(address / BLOCK).unwrap_or(usize::MAX);
            let write = self.writes.get(block).copied().unwrap_or(0);
            let expected = if write == 0 { 0 } else { word(write, address) };
            if found != expected {
                let (id, at) = (found >> 40, (found & ((1 << 40) - 1)) << 3);
                return Err(format!(
                    "byte {address}: found write {id} of byte {at} ({found:#018x}), expected write \
                     {write} of byte {address}"
                ));
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_word_is_compared_with_the_last_write_to_its_block() {
        let mut expected = Expected::zeros(4 * BLOCK);
        expected.written(1, 0, 3 * BLOCK);
        expected.written(2, BLOCK, BLOCK);
        let mut data = fill(1, 0, BLOCK);
        data.extend(fill(2, BLOCK, BLOCK));
        data.extend(fill(1, 2 * BLOCK, BLOCK));
        data.extend([0; 4096]);
        assert_eq!(expected.verify(0, &data), Ok(()));
        for byte in [0, 7, 4095, 4096, 8191, 12_288, 16_383] {
            let mut flipped = data.clone();
            flipped[byte] ^= 1;
            assert!(expected.verify(0, &flipped).is_err(), "{byte}");
        }
        let stale = fill(1, BLOCK, BLOCK);
        let message = expected.verify(BLOCK, &stale).unwrap_err();
        assert!(message.contains("found write 1 of byte 4096"), "{message}");
        assert!(expected.verify(0, &fill(1, 8, BLOCK)).is_err());
    }
}
