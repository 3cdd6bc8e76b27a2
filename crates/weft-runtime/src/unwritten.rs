//! Mark of acknowledged writes that are in memory only: a small file that outlives the process.
//!
//! When a server with a write-back cache is killed, its clients may live on and read old data from
//! the next server: a client takes acknowledged data for present, and does not write it again
//! before it flushes. The mark tells the next server that such data may be lost. Each change of the
//! mark is one `pwrite` of three bytes into the page cache, before the replies of the turn go out.
//! A kill does not undo the change; a crash of the machine may, so the file belongs in a directory
//! that is emptied by a restart of the machine.

use std::fs::File;
use std::io::Write;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

/// Open file of this server with the mark which says whether acknowledged data is in memory only.
#[derive(Debug)]
pub struct UnwrittenMark {
    file: File,
    path: PathBuf,
    says: bool,
}

impl UnwrittenMark {
    /// Creates the file, with a mark that nothing is unwritten; `server` is a line about the
    /// server, for people.
    ///
    /// # Errors
    /// Fails when the file cannot be created.
    pub fn create(path: PathBuf, server: &str) -> std::io::Result<Self> {
        match std::fs::remove_file(&path) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
        let mut options = File::options();
        let mut file = options.write(true).create_new(true).mode(0o600).open(&path)?;
        write!(file, "{KEY}{NO}\n{server}\n")?;
        Ok(Self { file, path, says: false })
    }

    /// Text about the server that left the mark at `path` while acknowledged data was in memory
    /// only. `None` if everything was written, or if there is no mark.
    ///
    /// # Errors
    /// Fails when there is a file that cannot be read.
    pub fn left_by(path: &Path) -> std::io::Result<Option<String>> {
        let text = match std::fs::read_to_string(path) {
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
            text => text?,
        };
        let server = text.strip_prefix(KEY).and_then(|rest| rest.strip_prefix(YES));
        Ok(server.map(|server| server.trim().to_owned()))
    }

    /// Updates the mark: `unwritten` says whether acknowledged data is in memory only. Called
    /// before replies are sent.
    pub(crate) fn tell(&mut self, unwritten: bool) {
        if unwritten == self.says {
            return;
        }
        self.says = unwritten;
        let word = if unwritten { YES } else { NO };
        if let Err(error) = self.file.write_all_at(word.as_bytes(), KEY.len() as u64) {
            let path = self.path.display();
            tracing::error!("{path}: {error}; the next server will not know what is unwritten");
        }
    }
}

impl Drop for UnwrittenMark {
    fn drop(&mut self) {
        if !self.says {
            let _ = std::fs::remove_file(&self.path);
        }
    }
}

/// First bytes of the file; `YES` or `NO` follows.
const KEY: &str = "unwritten: ";
/// Value of the mark for unwritten data, of the same length as `NO`.
const YES: &str = "yes";
const NO: &str = "no ";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mark_is_left_where_something_is_unwritten_and_goes_where_nothing_is() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("vol.unwritten");
        assert_eq!(UnwrittenMark::left_by(&path).unwrap(), None);
        for last in [true, false] {
            let mut mark = UnwrittenMark::create(path.clone(), "process 1").unwrap();
            for says in [true, false, last] {
                mark.tell(says);
                let left = UnwrittenMark::left_by(&path).unwrap();
                assert_eq!(left.as_deref(), says.then_some("process 1"));
            }
            drop(mark);
            assert_eq!(path.exists(), last);
        }
        // The mark is created anew over one that was left.
        std::fs::write(&path, "something else").unwrap();
        assert_eq!(UnwrittenMark::left_by(&path).unwrap(), None);
    }
}
