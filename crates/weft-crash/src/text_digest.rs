//! Digest of texts and bytes, for fingerprints of a state.

use std::fmt::{self, Write};

use weft_units::digest::Digest;

/// Digest of everything that was written to it.
#[derive(Default)]
pub(crate) struct TextDigest(Digest);

impl TextDigest {
    /// The digest as a number.
    pub(crate) fn value(&self) -> u64 {
        self.0.0
    }

    /// Adds bytes, followed by their number.
    pub(crate) fn bytes(&mut self, bytes: &[u8]) {
        let (words, rest) = bytes.as_chunks::<8>();
        words.iter().for_each(|word| self.0.add_word(u64::from_le_bytes(*word)));
        let mut last = [0; 8];
        last[..rest.len()].copy_from_slice(rest);
        self.0.add_word(u64::from_le_bytes(last));
        self.0.add_word(bytes.len() as u64);
    }

    /// Adds the `Debug` text of a value.
    pub(crate) fn debug(&mut self, of: &dyn fmt::Debug) {
        let _ = write!(self, "{of:?}");
    }
}

impl Write for TextDigest {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        self.bytes(text.as_bytes());
        Ok(())
    }
}
