//! Check of the folder that a view is to be mounted on.

use std::io;
use std::path::{Path, PathBuf};

use rustix::io::Errno;
use thiserror::Error;

/// Reason why a view cannot be mounted on a folder.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum FolderError {
    /// No file or folder has this name.
    #[error("{0}: found nothing, expected an empty folder; mkdir makes it")]
    Missing(String),
    /// The name belongs to a file that is not a folder.
    #[error("{0}: found no folder, expected an empty one")]
    NoFolder(String),
    /// The folder is not empty.
    #[error(
        "{dir}: found {name:?} in it, expected an empty folder: a mount would hide what is there"
    )]
    NotEmpty {
        /// Path of the folder, for the message.
        dir: String,
        /// Name of an entry of the folder.
        name: String,
    },
    /// A FUSE file system is mounted on the folder, and the process that served it has ended.
    #[error(
        "{dir}: found a mount of a process that has ended, expected an empty folder; \
         `fusermount3 -u {dir}` (as root also `umount {dir}`) clears it"
    )]
    Stale {
        /// Path of the folder, for the message.
        dir: String,
    },
    /// The folder cannot be read.
    #[error("{dir}: {error}")]
    Io {
        /// Path of the folder, for the message.
        dir: String,
        /// Error of the operating system.
        error: io::Error,
    },
}

/// Checks that `dir` is an existing empty folder. Returns its absolute path without symbolic links.
///
/// # Errors
/// There is no empty folder of this name, or it cannot be read.
pub fn check(dir: &Path) -> Result<PathBuf, FolderError> {
    let name = dir.display().to_string();
    let failed = |error: io::Error| {
        let dir = name.clone();
        match Errno::from_io_error(&error) {
            Some(Errno::NOTCONN) => FolderError::Stale { dir },
            Some(Errno::NOENT) => FolderError::Missing(dir),
            Some(Errno::NOTDIR) => FolderError::NoFolder(dir),
            _ => FolderError::Io { dir, error },
        }
    };
    if !std::fs::metadata(dir).map_err(failed)?.is_dir() {
        return Err(FolderError::NoFolder(name));
    }
    let path = dir.canonicalize().map_err(failed)?;
    match std::fs::read_dir(&path).map_err(failed)?.next() {
        None => Ok(path),
        Some(Err(error)) => Err(failed(error)),
        Some(Ok(entry)) => {
            let found = entry.file_name().to_string_lossy().into_owned();
            Err(FolderError::NotEmpty { dir: name, name: found })
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_an_empty_folder_is_accepted() {
        let dir = tempfile::tempdir().unwrap();
        let at = |name: &str| dir.path().join(name);
        std::fs::create_dir(at("empty")).unwrap();
        std::fs::create_dir(at("full")).unwrap();
        std::fs::write(at("full/x"), "").unwrap();
        std::os::unix::fs::symlink("empty", at("link")).unwrap();
        assert_eq!(check(&at("link")).unwrap(), at("empty").canonicalize().unwrap());
        assert!(matches!(check(&at("none")), Err(FolderError::Missing(_))));
        assert!(matches!(check(&at("full/x")), Err(FolderError::NoFolder(_))));
        assert!(matches!(check(&at("full/x/y")), Err(FolderError::NoFolder(_))));
        let error = check(&at("full")).unwrap_err();
        assert!(matches!(&error, FolderError::NotEmpty { name, .. } if name == "x"), "{error}");
        assert!(error.to_string().contains("expected an empty folder"));
    }
}
