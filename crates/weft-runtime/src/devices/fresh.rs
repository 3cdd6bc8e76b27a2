//! Fresh files, which become members: made here, or empty before.

use std::fs::File;
use std::io;
use std::path::Path;

use weft_units::Bytes;

use crate::overlay::sync_dir;

/// A file without content that becomes a member.
#[derive(Debug)]
pub struct FreshFile {
    file: File,
    is_new: bool,
}

impl FreshFile {
    /// Makes a file at `path`.
    ///
    /// # Errors
    /// Fails when there is a file already, or when none can be made.
    pub fn create_new(path: &Path) -> io::Result<Self> {
        Ok(Self { file: File::create_new(path)?, is_new: true })
    }

    /// Makes a file at `path`, or opens the empty file that is there.
    ///
    /// # Errors
    /// [`io::ErrorKind::AlreadyExists`] when there is one that holds something; else as from
    /// [`Self::create_new`].
    pub fn create_or_open(path: &Path) -> io::Result<Self> {
        match Self::create_new(path) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
                let file = File::options().write(true).open(path)?;
                match file.metadata()?.len() {
                    0 => Ok(Self { file, is_new: false }),
                    _ => Err(error),
                }
            }
            made => made,
        }
    }

    /// Whether this value made the file; false if an empty file was there before.
    #[must_use]
    pub fn is_new(&self) -> bool {
        self.is_new
    }

    /// Sets the length of the file, all of which is a hole.
    ///
    /// # Errors
    /// Fails when the file system cannot hold a file of this length.
    pub fn set_len(&self, bytes: Bytes) -> io::Result<()> {
        self.file.set_len(bytes.0)
    }

    /// Makes the length of the file durable.
    ///
    /// # Errors
    /// Fails when the device does.
    pub fn sync(&self) -> io::Result<()> {
        self.file.sync_all()
    }
}

/// Makes the name of a file durable. An error is ignored: some file systems cannot flush
/// directories, and the file itself is safe.
pub fn sync_name(path: &Path) {
    let parent = match path.parent() {
        Some(parent) if parent != Path::new("") => parent,
        _ => Path::new("."),
    };
    let _ = sync_dir(parent);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_made_or_taken_if_it_is_empty() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("m");
        let made = FreshFile::create_or_open(&path).unwrap();
        assert!(made.is_new());
        let empty = FreshFile::create_or_open(&path).unwrap();
        assert!(!empty.is_new());
        empty.set_len(Bytes::mib(1)).unwrap();
        empty.sync().unwrap();
        sync_name(&path);
        let full = FreshFile::create_or_open(&path).unwrap_err();
        assert_eq!(full.kind(), io::ErrorKind::AlreadyExists);
        assert!(FreshFile::create_new(&path).is_err());
    }
}
