//! Result files (`--report`, `--write`): checked beforehand, replaced only when complete.
//!
//! Whether the file can be written is known before anything runs for half an hour. The old content
//! stays until the new one is complete: it is written beside the file and renamed. Ctrl-C leaves
//! nothing beside it.

use std::fs;
use std::path::{Path, PathBuf};

use tempfile::NamedTempFile;

use crate::outcome::Failure;
use crate::terminal::remove_when_interrupted;

/// A file that a result is written to.
#[derive(Debug)]
pub(crate) struct ResultFile {
    path: PathBuf,
    /// New content, which takes the file's place when it is complete; `None` for a device or a
    /// pipe.
    beside: Option<NamedTempFile>,
}

impl ResultFile {
    /// Makes sure that there can be one at `path`.
    pub(crate) fn at(path: &Path) -> Result<Self, Failure> {
        let told = |what: &dyn std::fmt::Display| {
            Failure::usage(format!("{}: {what}; name a file that can be written", path.display()))
        };
        if path.is_dir() {
            return Err(told(&"it is a folder"));
        }
        // A link stays one, and what it leads to is replaced.
        let path = fs::canonicalize(path).unwrap_or_else(|_| path.to_owned());
        if path.exists() && !path.is_file() {
            return Ok(Self { path, beside: None });
        }
        let folder = match path.parent() {
            Some(folder) if folder != Path::new("") => folder,
            _ => Path::new("."),
        };
        if !folder.is_dir() {
            return Err(told(&format!("there is no folder {}", folder.display())));
        }
        let beside = tempfile::Builder::new()
            .prefix(".weft-")
            .permissions(permissions())
            .tempfile_in(folder)
            // Only the kind: its text would speak of the file beside it.
            .map_err(|error| told(&error.kind()))?;
        remove_when_interrupted(&[beside.path().to_owned()])?;
        Ok(Self { path, beside: Some(beside) })
    }

    /// Writes the text to the file and makes it durable.
    pub(crate) fn write(self, text: &str) -> Result<(), Failure> {
        let told =
            |error: std::io::Error| Failure::failed(format!("{}: {error}", self.path.display()));
        let written = self.beside.as_ref().map_or(self.path.as_path(), NamedTempFile::path);
        fs::write(written, text).map_err(told)?;
        if let Some(beside) = self.beside {
            beside.persist(&self.path).map_err(|error| told(error.error))?;
        }
        Ok(())
    }
}

/// A result is for everybody to read, as far as the umask allows.
fn permissions() -> fs::Permissions {
    std::os::unix::fs::PermissionsExt::from_mode(0o666)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_old_page_stays_until_the_new_one_is_whole() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("page.html");
        fs::write(&path, "old").unwrap();
        let page = ResultFile::at(&path).unwrap();
        assert_eq!(fs::read_to_string(&path).unwrap(), "old");
        drop(page);
        assert_eq!(fs::read_to_string(&path).unwrap(), "old");
        ResultFile::at(&path).unwrap().write("new").unwrap();
        assert_eq!(fs::read_to_string(&path).unwrap(), "new");
        let names: Vec<_> = fs::read_dir(folder.path()).unwrap().collect();
        assert_eq!(names.len(), 1, "nothing else stays: {names:?}");
    }

    #[test]
    fn a_device_stays_one_and_a_link_too() {
        let null = Path::new("/dev/null");
        ResultFile::at(null).unwrap().write("new").unwrap();
        assert!(!null.is_file() && null.exists());
        let folder = tempfile::tempdir().unwrap();
        let (page, link) = (folder.path().join("page.html"), folder.path().join("link.html"));
        fs::write(&page, "old").unwrap();
        std::os::unix::fs::symlink(&page, &link).unwrap();
        ResultFile::at(&link).unwrap().write("new").unwrap();
        assert!(link.is_symlink() && fs::read_to_string(&page).unwrap() == "new");
    }

    #[test]
    fn what_cannot_be_written_is_told_before_anything_runs() {
        let folder = tempfile::tempdir().unwrap();
        for (path, told) in [
            (folder.path().to_owned(), "it is a folder"),
            (folder.path().join("none/page.html"), "there is no folder"),
        ] {
            let Failure::Usage(message) = ResultFile::at(&path).unwrap_err() else {
                panic!("usage")
            };
            assert!(
                message.contains(told) && message.contains(path.to_str().unwrap()),
                "{message}"
            );
        }
    }
}
