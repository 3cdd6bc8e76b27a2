//! Files that a simulation was read from, for pages that say how to repeat it.
//!
//! Only regular files are read: a pipe cannot be read twice, and a device is no such file.

use std::fs::File;
use std::path::Path;

use sha2::{Digest, Sha256};
use weft_lab::text::hex;

/// Name and text of a job file or of a drive's model; `None` if it is no file, or no text.
pub(crate) fn text(path: &Path) -> Option<(String, String)> {
    let text = path.is_file().then(|| std::fs::read_to_string(path)).and_then(Result::ok)?;
    Some((path.display().to_string(), text))
}

/// Name of a trace's file, with its size and hash in words; `None` if it is no file.
pub(crate) fn hash(path: &Path) -> Option<(String, String)> {
    let mut file = path.is_file().then(|| File::open(path)).and_then(Result::ok)?;
    let mut hash = Sha256::new();
    let bytes = std::io::copy(&mut file, &mut hash).ok()?;
    let hash = hex(&hash.finalize());
    Some((path.display().to_string(), format!("{bytes} bytes, SHA-256 {hash}")))
}
