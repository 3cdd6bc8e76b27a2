//! Files that a program writes for its user: `--map`, `--record`, `--report`, `--write`, man pages.
//!
//! Decides   which file may be written: a new or an empty one, or with `--force` one of the same
//!           kind, identified by its first bytes. A member of the volume (by any of its paths), a
//!           block device and a file with other data are never written. Character devices and pipes
//!           are written as they are.
//! Why       `weft cat --map MEMBER` once truncated a member of 120 MiB to 174 bytes. A user may
//!           also give weft's map the name of a map that GNU ddrescue took days to make.
//!
//! The check precedes everything else, so it fails before a long run. The old content stays until
//! the new content is complete, which is written to a file beside it and renamed. Ctrl-C removes
//! the file beside it.

use std::fs::{self, File, Metadata};
use std::io::{self, Read, Write};
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};

use tempfile::NamedTempFile;

use crate::outcome::Failure;
use crate::terminal::{label, remove_when_interrupted};

/// Kind of files that a program writes for its user.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Kind {
    /// First bytes of every file of the kind.
    pub begin: &'static str,
    /// Name of the kind in messages.
    pub name: &'static str,
}

/// Output file requested by the user.
#[derive(Clone, Copy, Debug)]
pub struct Output<'a> {
    /// Option with which the user names the file, for messages. If the file is an argument, the
    /// name of the command stands here instead.
    pub option: &'static str,
    /// Path of the file to write.
    pub path: &'a Path,
    /// Kind of file to write. An existing file of another kind is never overwritten.
    pub kind: Kind,
    /// Whether a file of the same kind may be overwritten.
    pub force: bool,
    /// Files of the members of the volume that the command works on.
    pub members: &'a [PathBuf],
}

/// Result of [`Output::check`] for a path that may be written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OutputTarget {
    /// Nothing exists at the path.
    New,
    /// A file exists that may be overwritten.
    Old,
    /// A character device or a pipe exists.
    Stream,
}

impl Output<'_> {
    fn told(&self, what: impl std::fmt::Display) -> String {
        format!("{} {}: {what}", self.option, label(self.path))
    }

    fn refused(&self, what: impl std::fmt::Display) -> Failure {
        Failure::Refused(self.told(what))
    }

    fn failed(&self, error: &io::Error) -> Failure {
        Failure::Failed(self.told(error))
    }

    fn unwritable(&self, what: impl std::fmt::Display) -> Failure {
        Failure::Usage(self.told(format_args!("{what}; name a file that can be written")))
    }

    /// Checks whether the path may be written, without changing anything. Returns whether a new
    /// file, an old file or a stream would be written.
    ///
    /// # Errors
    /// The path must not be overwritten, is a folder, or cannot be examined.
    pub fn check(&self) -> Result<OutputTarget, Failure> {
        let found = match fs::metadata(self.path) {
            Ok(found) => found,
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                return match self.path.is_symlink() {
                    true => Err(self.refused("is a link to nothing; remove it, or name a file")),
                    false => Ok(OutputTarget::New),
                };
            }
            Err(error) => return Err(self.failed(&error)),
        };
        if is_member(&found, self.members) {
            return Err(self.refused("is a member of the volume; name another file"));
        }
        let kind = found.file_type();
        if kind.is_dir() {
            return Err(self.unwritable("it is a folder"));
        }
        if kind.is_char_device() || kind.is_fifo() {
            return Ok(OutputTarget::Stream);
        }
        if !kind.is_file() {
            let what = if kind.is_block_device() { "a block device" } else { "a socket" };
            return Err(
                self.refused(format_args!("found {what}, expected a file or none; name another"))
            );
        }
        if found.len() == 0 {
            return Ok(OutputTarget::Old);
        }
        let begin = self.kind.begin.as_bytes();
        let mut first = Vec::new();
        File::open(self.path)
            .and_then(|file| file.take(begin.len() as u64).read_to_end(&mut first))
            .map_err(|error| self.failed(&error))?;
        if first != begin {
            let name = self.kind.name;
            return Err(self.refused(format_args!(
                "exists and holds something that is no {name}, which weft does not overwrite; \
                 name another file"
            )));
        }
        if !self.force {
            return Err(self.refused("exists and stays as it is; --force overwrites it"));
        }
        Ok(OutputTarget::Old)
    }

    /// Opens the file, or creates it, for reading and for writing from its first byte; existing
    /// content stays. Returns the file, and whether it is new. For output that grows line by line.
    ///
    /// # Errors
    /// See [`check`](Self::check); a device or pipe is refused too.
    pub fn open(&self) -> Result<(File, bool), Failure> {
        let place = self.check()?;
        if place == OutputTarget::Stream {
            return Err(self.refused(
                "found something that is no file, expected a file or none; name another",
            ));
        }
        let mut options = File::options();
        options.read(true).write(true).create_new(place == OutputTarget::New);
        match options.open(self.path) {
            Ok(file) => Ok((file, place == OutputTarget::New)),
            Err(error) => Err(Failure::Failed(
                self.told(format_args!("{error}; name a file that can be written")),
            )),
        }
    }
}

/// Whether a file is the file or device that a member is on. The member may be only a part of it.
fn is_member(found: &Metadata, members: &[PathBuf]) -> bool {
    let same = |path: &PathBuf| {
        let member = fs::metadata(path);
        member.is_ok_and(|member| (member.dev(), member.ino()) == (found.dev(), found.ino()))
    };
    members.iter().any(same)
}

/// A file that is written as a whole, once or repeatedly.
#[derive(Debug)]
pub struct ResultFile {
    path: PathBuf,
    /// Option and path for errors: the path as the user wrote it, escaped for the terminal.
    label: String,
    place: OutputTarget,
    /// File beside the result file that receives the new content and then replaces the result file.
    /// `None` for a device or pipe, and after each write.
    beside: Option<NamedTempFile>,
}

impl ResultFile {
    /// Checks that the file may be written, and creates the file beside it that receives the
    /// content.
    ///
    /// # Errors
    /// Fails as [`Output::check`] does, and when the file's folder does not exist, no file can be
    /// made in the folder, or signals cannot be handled.
    pub fn at(asked: &Output<'_>) -> Result<Self, Failure> {
        let place = asked.check()?;
        // A symbolic link stays, and its target is replaced.
        let path = fs::canonicalize(asked.path).unwrap_or_else(|_| asked.path.to_owned());
        let mut file = Self { path, label: asked.told(""), place, beside: None };
        if place == OutputTarget::Stream {
            return Ok(file);
        }
        let folder = file.folder();
        if !folder.is_dir() {
            let what = format!("there is no folder {}", folder.display());
            return Err(asked.unwritable(what));
        }
        // The error is reduced to its kind, because its text would name the temporary file.
        let beside = file.new_beside().map_err(|error| asked.unwritable(error.kind()))?;
        remove_when_interrupted(&[beside.path().to_owned()])?;
        file.beside = Some(beside);
        Ok(file)
    }

    /// Makes the file that the next call writes accessible to its owner only (mode 0600). Does
    /// nothing for a device or pipe.
    ///
    /// # Errors
    /// The permissions of the new file cannot be changed.
    pub fn private(self) -> Result<Self, Failure> {
        if let Some(beside) = &self.beside {
            let private = std::os::unix::fs::PermissionsExt::from_mode(0o600);
            let changed = beside.as_file().set_permissions(private);
            changed.map_err(|error| Failure::failed(format!("{}{error}", self.label)))?;
        }
        Ok(self)
    }

    fn folder(&self) -> &Path {
        match self.path.parent() {
            Some(folder) if folder != Path::new("") => folder,
            _ => Path::new("."),
        }
    }

    fn new_beside(&self) -> io::Result<NamedTempFile> {
        tempfile::Builder::new()
            .prefix(".weft-")
            .permissions(permissions())
            .tempfile_in(self.folder())
    }

    /// Replaces the file with this text, or writes the text to the device or pipe.
    ///
    /// # Errors
    /// The file cannot be written.
    pub fn write(mut self, text: impl AsRef<[u8]>) -> Result<(), Failure> {
        self.put(text.as_ref()).map_err(|error| Failure::failed(format!("{}{error}", self.label)))
    }

    /// Replaces the file with this text; further calls may follow. Does nothing for a device or
    /// pipe, which gets only the text of the final [`write`](Self::write).
    ///
    /// # Errors
    /// The file cannot be written.
    pub fn save(&mut self, text: &str) -> io::Result<()> {
        if self.place == OutputTarget::Stream { Ok(()) } else { self.put(text.as_bytes()) }
    }

    fn put(&mut self, text: &[u8]) -> io::Result<()> {
        if self.place == OutputTarget::Stream {
            return File::options().write(true).open(&self.path)?.write_all(text);
        }
        let mut beside = match self.beside.take() {
            Some(beside) => beside,
            None => self.new_beside()?,
        };
        beside.write_all(text)?;
        beside.as_file().sync_data()?;
        if self.place == OutputTarget::New {
            beside = match beside.persist_noclobber(&self.path) {
                Ok(_) => {
                    self.place = OutputTarget::Old;
                    return Ok(());
                }
                Err(error) if error.error.kind() == io::ErrorKind::AlreadyExists => {
                    return Err(error.error);
                }
                // On some file systems only a rename that may replace a file works.
                Err(error) => error.file,
            };
        }
        beside.persist(&self.path).map_err(|error| error.error)?;
        self.place = OutputTarget::Old;
        Ok(())
    }
}

/// Permissions of a result file: everyone may read and write it, as far as the umask allows.
fn permissions() -> fs::Permissions {
    std::os::unix::fs::PermissionsExt::from_mode(0o666)
}

#[cfg(test)]
mod tests {
    use super::*;

    const MAP: Kind = Kind { begin: "# Mapfile of weft\n", name: "map of weft" };

    fn asked(path: &Path) -> Output<'_> {
        Output { option: "--map", path, kind: MAP, force: false, members: &[] }
    }

    fn forced(path: &Path) -> Output<'_> {
        Output { force: true, ..asked(path) }
    }

    fn map(text: &str) -> String {
        format!("{}{text}", MAP.begin)
    }

    #[test]
    fn the_old_page_stays_until_the_new_one_is_whole() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("map");
        fs::write(&path, map("old")).unwrap();
        let page = ResultFile::at(&forced(&path)).unwrap();
        assert_eq!(fs::read_to_string(&path).unwrap(), map("old"));
        drop(page);
        assert_eq!(fs::read_to_string(&path).unwrap(), map("old"));
        let mut page = ResultFile::at(&forced(&path)).unwrap();
        for turn in ["1", "2", "3"] {
            page.save(turn).unwrap();
            assert_eq!(fs::read_to_string(&path).unwrap(), turn);
        }
        page.write("new").unwrap();
        assert_eq!(fs::read_to_string(&path).unwrap(), "new");
        let names: Vec<_> = fs::read_dir(folder.path()).unwrap().collect();
        assert_eq!(names.len(), 1, "nothing else stays: {names:?}");
    }

    #[test]
    fn a_character_device_stays_one_and_a_link_too() {
        let null = Path::new("/dev/null");
        ResultFile::at(&asked(null)).unwrap().write("new").unwrap();
        assert!(!null.is_file() && null.exists());
        let folder = tempfile::tempdir().unwrap();
        let (page, link) = (folder.path().join("map"), folder.path().join("link"));
        fs::write(&page, map("old")).unwrap();
        std::os::unix::fs::symlink(&page, &link).unwrap();
        ResultFile::at(&forced(&link)).unwrap().write("new").unwrap();
        assert!(link.is_symlink() && fs::read_to_string(&page).unwrap() == "new");
    }

    /// Files of another kind, members and links to members are refused, and keep every byte.
    #[test]
    fn nothing_of_another_kind_is_overwritten() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        let member = at("member");
        fs::write(&member, map("a member, and yet it begins as a map")).unwrap();
        fs::hard_link(&member, at("linked")).unwrap();
        std::os::unix::fs::symlink(&member, at("symlink")).unwrap();
        std::os::unix::fs::symlink(at("none"), at("nothing")).unwrap();
        fs::write(at("ddrescue"), "# Mapfile. Created by GNU ddrescue version 1.27\n").unwrap();
        fs::write(at("map"), map("")).unwrap();
        fs::write(at("short"), "# Mapf").unwrap();
        let members = [member.clone()];
        for (name, force, told) in [
            ("member", true, "is a member of the volume"),
            ("linked", true, "is a member of the volume"),
            ("symlink", true, "is a member of the volume"),
            ("nothing", true, "is a link to nothing"),
            ("ddrescue", true, "is no map of weft"),
            ("short", true, "is no map of weft"),
            ("map", false, "--force overwrites it"),
        ] {
            let path = at(name);
            let before = fs::read(&path).ok();
            let asked = Output { force, members: &members, ..asked(&path) };
            for found in [ResultFile::at(&asked).map(drop), asked.open().map(drop)] {
                let Err(Failure::Refused(message)) = found else { panic!("{name}: refused") };
                assert!(message.contains(told) && message.contains(name), "{message}");
            }
            assert_eq!(fs::read(&path).ok(), before, "{name}");
        }
    }

    #[test]
    fn a_file_that_came_meanwhile_stays() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("map");
        let file = ResultFile::at(&asked(&path)).unwrap();
        fs::write(&path, "of another process").unwrap();
        assert!(file.write("new").is_err());
        assert_eq!(fs::read_to_string(&path).unwrap(), "of another process");
    }

    #[test]
    fn what_cannot_be_written_is_told_before_anything_runs() {
        let folder = tempfile::tempdir().unwrap();
        for (path, told) in [
            (folder.path().to_owned(), "it is a folder"),
            (folder.path().join("none/page.html"), "there is no folder"),
        ] {
            let Failure::Usage(message) = ResultFile::at(&asked(&path)).unwrap_err() else {
                panic!("usage")
            };
            assert!(
                message.contains(told) && message.contains(path.to_str().unwrap()),
                "{message}"
            );
        }
    }
}
