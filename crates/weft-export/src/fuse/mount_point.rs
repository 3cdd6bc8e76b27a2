//! Mount points of exported files: created or accepted, mounted, and left as they were found.
//!
//! A file that is missing is created with mode 0600 and removed at the end, like a socket. An
//! existing file has to be empty, because the mount hides it. The mount of a server that has died
//! is taken away first.

use std::fs::OpenOptions;
use std::io;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use rustix::io::Errno;
use weft_fuse::{InUse, MountedFile, Options};

use crate::error::ServeError;

/// A mounted file that no port serves yet. Requests of the kernel wait in its queue.
pub(crate) struct Exported {
    pub(super) file: MountedFile,
    pub(super) path: PathBuf,
    pub(super) read_only: bool,
    /// File that was created for the mount and is removed after it.
    pub(super) _created: Option<Created>,
}

/// File that is removed when the value is dropped.
pub(super) struct Created(PathBuf);

impl Drop for Created {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}

impl Exported {
    /// Mounts a file at `path`.
    ///
    /// # Errors
    /// There is no FUSE here, `path` is something else than an empty file, or the mount was
    /// refused.
    pub(crate) fn open(path: &Path, read_only: bool) -> Result<Self, ServeError> {
        let refused = |why: String| ServeError::Refused(format!("fuse:{}: {why}", path.display()));
        weft_fuse::permitted().map_err(|error| refused(error.to_string()))?;
        let created = prepare(path).map_err(refused)?;
        let failed = |error: io::Error| refused(error.to_string());
        let at = path.canonicalize().map_err(failed)?;
        let options = Options { allow_other: false, read_only };
        let file = MountedFile::new(&at, options);
        let file = file.map_err(|error| refused(error.to_string()))?;
        Ok(Self { file, path: path.to_owned(), read_only, _created: created })
    }

    /// Path as the user gave it.
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }
}

/// Makes `path` an empty file that can be mounted on. Returns the file if this call created it, and
/// `None` if an empty file existed. The error says why `path` cannot be mounted on.
fn prepare(path: &Path) -> Result<Option<Created>, String> {
    let found = match std::fs::metadata(path) {
        Err(error) if Errno::from_io_error(&error) == Some(Errno::NOTCONN) => {
            tracing::info!(file = %path.display(), "the mount of a dead server is taken away");
            weft_fuse::unmount(path, InUse::Detach).map_err(|why| {
                format!("found the mount of a process that has ended, which stays: {why}")
            })?;
            std::fs::metadata(path)
        }
        found => found,
    };
    match found {
        Ok(found) if !found.is_file() => {
            Err("found no regular file, expected an empty one, or none".to_owned())
        }
        Ok(found) if found.len() > 0 => Err(format!(
            "found a file of {} bytes, expected an empty one, or none: the mount would hide it",
            found.len()
        )),
        Ok(_) => Ok(None),
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            let made = OpenOptions::new().write(true).create_new(true).mode(0o600).open(path);
            made.map_err(|error| format!("the file cannot be created: {error}"))?;
            Ok(Some(Created(path.to_owned())))
        }
        Err(error) => Err(error.to_string()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_empty_file_is_accepted_a_missing_one_is_made_and_others_are_left_alone() {
        let dir = tempfile::tempdir().unwrap();
        let at = |name: &str| dir.path().join(name);
        std::fs::write(at("empty"), "").unwrap();
        std::fs::write(at("full"), "text").unwrap();
        assert!(prepare(&at("empty")).unwrap().is_none());
        let created = prepare(&at("none")).unwrap();
        assert!(created.is_some() && at("none").is_file());
        drop(created);
        assert!(!at("none").exists());
        for (name, reason) in [
            ("full", "found a file of 4 bytes"),
            (".", "found no regular file"),
            ("no/such", "cannot be created"),
            ("full/x", "Not a directory"),
        ] {
            let error = prepare(&at(name)).err().unwrap();
            assert!(error.contains(reason), "{name}: {error}");
        }
        assert_eq!(std::fs::read(at("full")).unwrap(), b"text");
    }
}
