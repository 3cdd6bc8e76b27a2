//! Files that make up a `weft.toml`, and the knobs of a volume that are kept in them.
//!
//! A `weft.toml` and the files `*.toml` in the folder beside it (`weft.d`) count as one file. A
//! change replaces one of these files by a new one, in which the values of the changed knobs
//! differ. Comments and other values stay as they are written.

use std::fs;
use std::io::{self, Write};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use tempfile::NamedTempFile;
use toml_edit::{DocumentMut, InlineTable, Item, TableLike, Value};
use weft_engine::knobs::Knobs;
use weft_terminal::outcome::Failure;
use weft_terminal::terminal::{label, remove_when_interrupted};

use crate::knobs::{plain, set_live};

/// Whether a file is an mdadm.conf, by its name. All other ones are a `weft.toml`.
pub(crate) fn is_mdadm_conf(path: &Path) -> bool {
    path.extension().is_some_and(|extension| extension == "conf")
}

/// Paths of a file and of the files `*.toml` in the folder beside it (`weft.d` for `weft.toml`), in
/// the order of their names.
///
/// # Errors
/// The folder cannot be read.
pub(crate) fn paths(path: &Path) -> Result<Vec<PathBuf>, Failure> {
    let folder = path.with_extension("d");
    let failed = |error| Failure::failed(format!("{}: {error}", label(&folder)));
    let mut paths = match fs::read_dir(&folder) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Vec::new(),
        entries => {
            let paths = entries.map_err(failed)?.map(|entry| Ok(entry?.path()));
            paths.collect::<io::Result<Vec<_>>>().map_err(failed)?
        }
    };
    // Hidden files are left out: editors make them there.
    let is_hidden = |path: &Path| path.file_name().is_some_and(|it| it.as_bytes()[0] == b'.');
    paths.retain(|path| path.extension().is_some_and(|it| it == "toml") && !is_hidden(path));
    paths.sort();
    paths.insert(0, path.to_owned());
    Ok(paths)
}

/// Text of one file.
///
/// # Errors
/// The file cannot be read, is no regular file, is too large or no UTF-8, or root would obey what
/// others may write.
pub(crate) fn text(path: &Path) -> Result<String, Failure> {
    let failed = |error: io::Error| Failure::failed(format!("{}: {error}", label(path)));
    let facts = fs::metadata(path).map_err(failed)?;
    if !facts.is_file() || facts.len() > BYTES_MAX {
        return Err(Failure::usage(format!(
            "{}: found {}, expected a file of at most {} KiB",
            label(path),
            if facts.is_file() { "a larger one" } else { "no regular file" },
            BYTES_MAX >> 10
        )));
    }
    if rustix::process::geteuid().is_root() && facts.mode() & 0o022 != 0 {
        return Err(Failure::refused(format!(
            "{}: found mode {:04o}, which lets others say what root runs; expected 0644 or less",
            label(path),
            facts.mode() & 0o7777
        )));
    }
    String::from_utf8(fs::read(path).map_err(failed)?).map_err(|error| {
        let at = error.utf8_error().valid_up_to();
        Failure::usage(format!("{}: byte {at}: found no UTF-8, expected text", label(path)))
    })
}

/// The file that has the table of a volume, with the volume's knobs as they will be.
pub(crate) struct KeptKnobs {
    /// Path of the file, without symbolic links.
    path: PathBuf,
    /// Text of the file when it was read.
    text: String,
    document: DocumentMut,
    volume: String,
}

impl KeptKnobs {
    /// Finds the table of a volume in the file `config` and those beside it.
    ///
    /// # Errors
    /// A file cannot be read, or not exactly one has the table.
    pub(crate) fn of(config: &Path, volume: &str) -> Result<Self, Failure> {
        if is_mdadm_conf(config) {
            return Err(Failure::usage(format!(
                "{}: found an mdadm.conf, which has no knobs, expected a weft.toml",
                label(config)
            )));
        }
        let mut found: Option<Self> = None;
        for path in paths(config)? {
            let text = text(&path)?;
            let document: DocumentMut = text.parse().map_err(|error: toml_edit::TomlError| {
                let at = error.span().map_or(0, |span| span.start);
                let line = 1 + text[..at].matches('\n').count();
                Failure::usage(format!("{}:{line}: {}", label(&path), error.message()))
            })?;
            let volumes = document.get("volume").and_then(Item::as_table_like);
            if !volumes.is_some_and(|volumes| volumes.contains_key(volume)) {
                continue;
            }
            let failed = |error| Failure::failed(format!("{}: {error}", label(&path)));
            let path = fs::canonicalize(&path).map_err(failed)?;
            if let Some(other) = &found {
                let (path, other) = (label(&path), label(&other.path));
                return Err(Failure::usage(format!("{path}: volume.{volume} is in {other} too")));
            }
            found = Some(Self { path, text, document, volume: volume.to_owned() });
        }
        found.ok_or_else(|| {
            Failure::usage(format!(
                "{}: found no table [volume.{volume}] there or in the folder beside it; describe \
                 the volume there, for weft daemon, or name another file by --config",
                label(config)
            ))
        })
    }

    /// Sets a knob. `value` may be a size with a unit; an integer becomes a number in the file, any
    /// other value a string. A limit of the write-back cache in bytes takes the place of that in
    /// percent, and the reverse; 0 changes nothing; both are as in a live volume.
    ///
    /// # Errors
    /// A live volume has no such knob or does not take this value, the volume has no write-back
    /// cache for it at its next start, or the file has something else where the volume's knobs
    /// belong.
    pub(crate) fn set(&mut self, name: &str, value: &str) -> Result<(), Failure> {
        if name == "bitmap" {
            return Err(Failure::usage("bitmap: the array keeps it; set it without --save"));
        }
        if IN_BYTES_OR_PERCENT.as_flattened().contains(&name) && plain(name, value) == "0" {
            return Ok(());
        }
        let knob = set_live(&mut Knobs::default(), name, value)
            .map_err(|error| Failure::usage(error.to_string()))?;
        let file = label(&self.path);
        let refused = |key: &str, found: &str, expected: &str| {
            let key = format!("volume.{}{key}", self.volume);
            Failure::usage(format!("{file}: {key}: found {found}, expected {expected}"))
        };
        let volume = self.document["volume"].get_mut(&self.volume).expect("it was found there");
        let found = volume.type_name();
        let Some(volume) = volume.as_table_like_mut() else {
            return Err(refused("", found, "a table"));
        };
        if knob.is_of_cache() && !volume.contains_key("write-back") {
            let expected = format!("one, as {name} is a knob of the write-back cache");
            return Err(refused("", "no key write-back", &expected));
        }
        let home = volume.entry("set").or_insert(InlineTable::new().into());
        let found = home.type_name();
        let Some(table) = home.as_table_like_mut() else {
            return Err(refused(".set", found, "a table of names and values"));
        };
        for [bytes, ratio] in IN_BYTES_OR_PERCENT {
            match name {
                name if name == bytes => _ = table.remove(ratio),
                name if name == ratio => _ = table.remove(bytes),
                _ => {}
            }
        }
        let is_new = put(table, name, value);
        if let Some(table) = home.as_inline_table_mut()
            && is_new
            && !table.to_string().contains('\n')
        {
            table.fmt();
        }
        Ok(())
    }

    /// Writes the new file beside the old one, which [`NewFile::replace`] replaces.
    ///
    /// # Errors
    /// The file cannot be written.
    pub(crate) fn write(self) -> Result<NewFile, Failure> {
        let written = || {
            let facts = fs::metadata(&self.path)?;
            let folder = self.path.parent().expect("a file is in a folder");
            let mut new = tempfile::Builder::new().prefix(".weft.toml.").tempfile_in(folder)?;
            new.write_all(self.document.to_string().as_bytes())?;
            let made = new.as_file().metadata()?;
            if (made.uid(), made.gid()) != (facts.uid(), facts.gid()) {
                std::os::unix::fs::fchown(new.as_file(), Some(facts.uid()), Some(facts.gid()))?;
            }
            new.as_file().set_permissions(facts.permissions())?;
            new.as_file().sync_all()?;
            Ok(new)
        };
        let new = written().map_err(|error: io::Error| {
            let path = label(&self.path);
            Failure::failed(format!("{path}: a new file cannot be written beside it: {error}"))
        })?;
        remove_when_interrupted(&[new.path().to_owned()])?;
        Ok(NewFile { path: self.path, before: self.text, new })
    }
}

/// A file with changed knobs that has not replaced the old one yet. It is removed if it does not.
pub(crate) struct NewFile {
    path: PathBuf,
    /// Text of the old file when it was read.
    before: String,
    new: NamedTempFile,
}

impl NewFile {
    /// Replaces the old file, after the volume has taken the knobs. Returns its path.
    ///
    /// # Errors
    /// The old file was changed meanwhile, or cannot be replaced.
    pub(crate) fn replace(self) -> Result<PathBuf, Failure> {
        let told = |why: &dyn std::fmt::Display| {
            let path = label(&self.path);
            Failure::failed(format!("{path}: the knobs are set until the volume stops, {why}"))
        };
        let now = text(&self.path)
            .map_err(|error| told(&format_args!("and not saved: {}", error.message())))?;
        if now != self.before {
            return Err(told(&"and not saved: the file was changed meanwhile; repeat the command"));
        }
        let folder = self.path.parent().expect("a file is in a folder").to_owned();
        if let Err(error) = self.new.persist(&self.path) {
            return Err(told(&format_args!("and not saved: {}", error.error)));
        }
        let synced = fs::File::open(folder).and_then(|folder| folder.sync_all());
        synced.map_err(|error| told(&format_args!("and saved, but may be lost: {error}")))?;
        Ok(self.path)
    }
}

/// Sets a key of a table; comments stay. Returns whether the key is new.
fn put(table: &mut dyn TableLike, key: &str, value: &str) -> bool {
    let mut value: Value = match value.parse::<i64>() {
        Ok(number) => number.into(),
        Err(_) => value.into(),
    };
    if let Some(old) = table.get_mut(key).and_then(Item::as_value_mut) {
        *value.decor_mut() = old.decor().clone();
        *old = value;
        return false;
    }
    table.insert(key, value.into());
    true
}

/// Limits of the write-back cache, in bytes and in percent. In a live volume the one that is set
/// last applies.
const IN_BYTES_OR_PERCENT: [[&str; 2]; 2] =
    [["dirty_bytes", "dirty_ratio"], ["dirty_background_bytes", "dirty_background_ratio"]];

/// Largest size in bytes of a file that is read: room for thousands of volumes.
const BYTES_MAX: u64 = 1 << 20;

#[cfg(test)]
mod tests {
    use super::*;

    /// Content of a file `weft.toml` with this text after knobs of the volume `tour` were set.
    fn changed(text: &str, knobs: &[(&str, &str)]) -> Result<String, String> {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("weft.toml");
        fs::write(&path, text).unwrap();
        let saved = || {
            let mut kept = KeptKnobs::of(&path, "tour")?;
            knobs.iter().try_for_each(|(knob, value)| kept.set(knob, value))?;
            kept.write()?.replace()
        };
        let saved = saved().map_err(|error| error.message().to_owned());
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1, "no other file stays");
        saved.map(|_| fs::read_to_string(&path).unwrap())
    }

    #[test]
    fn a_knob_is_set_in_each_form_of_the_table_and_the_rest_stays() {
        let knobs = [("stripe_cache_size", "1024"), ("scheduler", "bfq")];
        for (before, after) in [
            (
                "# disks\n[volume.tour] # mine\nuuid = 'a'\n\n\
                 [volume.other]\nset = { scheduler = 'none' }\n",
                "# disks\n[volume.tour] # mine\nuuid = 'a'\n\
                 set = { stripe_cache_size = 1024, scheduler = \"bfq\" }\n\n\
                 [volume.other]\nset = { scheduler = 'none' }\n",
            ),
            (
                "[volume.tour]\nset = { scheduler = 'none', sync_speed_max = 5 } # slow\n\
                 run = true\n",
                "[volume.tour]\nset = { scheduler = \"bfq\", sync_speed_max = 5, \
                 stripe_cache_size = 1024 } # slow\nrun = true\n",
            ),
            (
                "[volume.tour]\nset.scheduler = 'none' # why\n",
                "[volume.tour]\nset.scheduler = \"bfq\" # why\nset.stripe_cache_size = 1024\n",
            ),
            (
                "[volume.tour.set]\n# many\nstripe_cache_size = 256\n",
                "[volume.tour.set]\n# many\nstripe_cache_size = 1024\nscheduler = \"bfq\"\n",
            ),
        ] {
            assert_eq!(changed(before, &knobs).unwrap(), after);
        }
    }

    #[test]
    fn what_cannot_be_kept_changes_nothing() {
        let table = "[volume.tour]\nuuid = 'a'\n";
        for (text, knob, value, why) in [
            ("[volume.other]\n", "scheduler", "bfq", "found no table [volume.tour]"),
            ("volume = 3\n", "scheduler", "bfq", "found no table [volume.tour]"),
            ("[volume]\ntour = 3\n", "scheduler", "bfq", "found integer, expected a table"),
            ("[volume.tour]\nset = 3\n", "scheduler", "bfq", "tour.set: found integer, expected"),
            ("[[volume.tour]]\n", "scheduler", "bfq", "found array of tables, expected a table"),
            ("[volume.tour\n", "scheduler", "bfq", "weft.toml:1: "),
            (table, "dirty_bytes", "64M", "found no key write-back, expected one"),
            (table, "scheduler", "fast", "scheduler"),
            (table, "schedule", "bfq", "schedule"),
            (table, "bitmap", "none", "set it without --save"),
        ] {
            let error = changed(text, &[(knob, value)]).unwrap_err();
            assert!(error.contains(why), "{text}: {error}");
        }
    }

    #[test]
    fn a_limit_in_bytes_takes_the_place_of_that_in_percent_and_the_reverse() {
        let text = "[volume.tour]\nwrite-back = '1G'\nset = { dirty_ratio = 40 }\n";
        let text = changed(text, &[("dirty_bytes", "64M")]).unwrap();
        assert!(text.ends_with("set = { dirty_bytes = \"64M\" }\n"), "{text}");
        let text = changed(&text, &[("dirty_ratio", "30")]).unwrap();
        assert!(text.ends_with("set = { dirty_ratio = 30 }\n"), "{text}");
        let zeros = [("dirty_bytes", "0K"), ("dirty_ratio", "0")];
        assert_eq!(changed(&text, &zeros).unwrap(), text, "0 leaves both, as in a volume");
    }

    #[test]
    fn a_file_that_changes_meanwhile_and_a_volume_in_two_files_are_refused() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("weft.toml");
        fs::write(&path, "[volume.tour]\n").unwrap();
        let mut kept = KeptKnobs::of(&path, "tour").unwrap();
        kept.set("scheduler", "bfq").unwrap();
        let new = kept.write().unwrap();
        fs::write(&path, "[volume.tour]\n# another\n").unwrap();
        let error = new.replace().unwrap_err();
        assert!(error.message().contains("the file was changed meanwhile"), "{error:?}");
        assert_eq!(fs::read_to_string(&path).unwrap(), "[volume.tour]\n# another\n");
        let beside = folder.path().join("weft.d");
        fs::create_dir(&beside).unwrap();
        fs::write(beside.join("a.toml"), "[volume.tour]\n").unwrap();
        let error = KeptKnobs::of(&path, "tour").err().unwrap();
        assert!(error.message().contains("volume.tour is in"), "{error:?}");
    }

    #[test]
    fn a_volume_of_the_folder_beside_the_file_is_changed_there_behind_a_link_too() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("weft.toml");
        let (beside, real) = (folder.path().join("weft.d"), folder.path().join("real"));
        fs::write(&path, "[volume.other]\n").unwrap();
        fs::create_dir(&beside).unwrap();
        fs::write(&real, "[volume.tour]\n").unwrap();
        std::os::unix::fs::symlink(&real, beside.join("tour.toml")).unwrap();
        fs::set_permissions(&real, std::os::unix::fs::PermissionsExt::from_mode(0o640)).unwrap();
        let mut kept = KeptKnobs::of(&path, "tour").unwrap();
        kept.set("stripe_cache_bytes", "64M").unwrap();
        assert_eq!(kept.write().unwrap().replace().unwrap(), fs::canonicalize(&real).unwrap());
        let text = fs::read_to_string(&real).unwrap();
        assert_eq!(text, "[volume.tour]\nset = { stripe_cache_bytes = \"64M\" }\n");
        assert!(beside.join("tour.toml").is_symlink());
        assert_eq!(fs::metadata(&real).unwrap().mode() & 0o777, 0o640);
        assert_eq!(fs::read_to_string(&path).unwrap(), "[volume.other]\n");
    }
}
