//! Fresh files, which become members: created here, or found empty.

use std::fs::File;
use std::io;
use std::path::Path;

use weft_units::Bytes;

use crate::overlay::sync_dir;

/// A file without content that is to become a member.
#[derive(Debug)]
pub struct FreshFile {
    file: File,
    is_new: bool,
}

impl FreshFile {
    /// Creates a file at `path`.
    ///
    /// # Errors
    /// Fails when there is a file already, or when no file can be created.
    pub fn create_new(path: &Path) -> io::Result<Self> {
        Ok(Self { file: File::create_new(path)?, is_new: true })
    }

    /// Creates a file at `path`, or opens the file that is there, which must be empty.
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

    /// Whether this value created the file; false if an empty file was there before.
    #[must_use]
    pub fn is_new(&self) -> bool {
        self.is_new
    }

    /// Sets the length of the file, which then consists of a hole.
    ///
    /// # Errors
    /// Fails when the file system cannot hold a file of this length.
    pub fn set_len(&self, bytes: Bytes) -> io::Result<()> {
        self.file.set_len(bytes.0)
    }

    /// Makes the length of the file durable.
    ///
    /// # Errors
    /// Fails when the device reports an error.
    pub fn sync(&self) -> io::Result<()> {
        self.file.sync_all()
    }
}

/// Makes the name of a file durable. Errors are ignored: some file systems cannot flush
/// directories, and the content of the file is safe in any case.
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
