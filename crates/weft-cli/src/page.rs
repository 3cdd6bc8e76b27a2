//! Where does a page go?
//!
//! `--report FILE.html` names a file. Whether it can be written is seen before anything runs for half an hour,
//! and what was in it stays there until the new page is whole: that is written beside it, and takes its place.

use std::fs;
use std::path::{Path, PathBuf};

use tempfile::NamedTempFile;
use weft_lab::report::Report;

use crate::outcome::Failure;

/// A file that becomes a page.
#[derive(Debug)]
pub(crate) struct Page {
    path: PathBuf,
    /// What is to take its place; nothing takes the place of a device or a pipe.
    beside: Option<NamedTempFile>,
}

impl Page {
    /// Makes sure that there can be a page at `path`.
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
        let beside = tempfile::Builder::new()
            .prefix(".weft-")
            .suffix(".html")
            .permissions(permissions())
            .tempfile_in(folder)
            .map_err(|error| told(&error))?;
        Ok(Self { path, beside: Some(beside) })
    }

    /// Writes it.
    pub(crate) fn write(self, report: &Report) -> Result<(), Failure> {
        let told =
            |error: std::io::Error| Failure::failed(format!("{}: {error}", self.path.display()));
        let written = self.beside.as_ref().map_or(self.path.as_path(), NamedTempFile::path);
        fs::write(written, report.html()).map_err(told)?;
        if let Some(beside) = self.beside {
            beside.persist(&self.path).map_err(|error| told(error.error))?;
        }
        Ok(())
    }
}

/// A page is for everybody to read, as far as the umask allows.
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
        let page = Page::at(&path).unwrap();
        assert_eq!(fs::read_to_string(&path).unwrap(), "old");
        drop(page);
        assert_eq!(fs::read_to_string(&path).unwrap(), "old");
        let report = Report { title: "new".to_owned(), ..Report::default() };
        Page::at(&path).unwrap().write(&report).unwrap();
        assert_eq!(fs::read_to_string(&path).unwrap(), report.html());
        let names: Vec<_> = fs::read_dir(folder.path()).unwrap().collect();
        assert_eq!(names.len(), 1, "nothing else stays: {names:?}");
    }

    #[test]
    fn a_device_stays_one_and_a_link_too() {
        let null = Path::new("/dev/null");
        Page::at(null).unwrap().write(&Report::default()).unwrap();
        assert!(!null.is_file() && null.exists());
        let folder = tempfile::tempdir().unwrap();
        let (page, link) = (folder.path().join("page.html"), folder.path().join("link.html"));
        fs::write(&page, "old").unwrap();
        std::os::unix::fs::symlink(&page, &link).unwrap();
        Page::at(&link).unwrap().write(&Report::default()).unwrap();
        assert!(
            link.is_symlink() && fs::read_to_string(&page).unwrap() == Report::default().html()
        );
    }

    #[test]
    fn what_cannot_be_written_is_told_before_anything_runs() {
        let folder = tempfile::tempdir().unwrap();
        for (path, told) in [
            (folder.path().to_owned(), "it is a folder"),
            (folder.path().join("none/page.html"), "No such file"),
        ] {
            let Failure::Usage(message) = Page::at(&path).unwrap_err() else { panic!("usage") };
            assert!(
                message.contains(told) && message.contains(path.to_str().unwrap()),
                "{message}"
            );
        }
    }
}
