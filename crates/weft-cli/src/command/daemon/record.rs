//! File with the record of an array's checks, in the folder for state.
//!
//! The file is replaced as a whole: a new one is written, and renamed once it is durable, so that a
//! crash leaves the old one or the new one. A file that cannot be read, or that is of another
//! array, is logged and ignored: the next check begins anew.

use std::fs::{DirBuilder, File};
use std::io::{ErrorKind, Read, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use serde_json::{Value, json};

use super::schedule::{Ended, Pass, Record, Segment};

/// Reads the record of the array `uuid`; `None` if there is none.
///
/// # Errors
/// The file cannot be read, or is no record of the array; the text names the file.
pub(super) fn read(folder: &Path, uuid: &str) -> Result<Option<Record>, String> {
    let path = path(folder, uuid);
    let failed = |why: &dyn std::fmt::Display| format!("{}: {why}", path.display());
    // A pipe is opened without a wait, and refused.
    let nonblock = i32::try_from(rustix::fs::OFlags::NONBLOCK.bits()).unwrap_or_default();
    let file = match File::options().read(true).custom_flags(nonblock).open(&path) {
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
        file => file.map_err(|error| failed(&error))?,
    };
    if !file.metadata().map_err(|error| failed(&error))?.is_file() {
        return Err(failed(&"found no regular file"));
    }
    let mut text = String::new();
    file.take(BYTES_MAX + 1).read_to_string(&mut text).map_err(|error| failed(&error))?;
    if text.len() as u64 > BYTES_MAX {
        return Err(failed(&"found a larger file, expected a record of checks"));
    }
    Record::from_text(&text, uuid).map(Some).map_err(|why| failed(&why))
}

/// Writes the record of the array `uuid`.
///
/// # Errors
/// The file cannot be written; the text names it.
pub(super) fn write(folder: &Path, uuid: &str, record: &Record) -> Result<(), String> {
    let path = path(folder, uuid);
    let new = path.with_extension("new");
    let written = || -> std::io::Result<()> {
        DirBuilder::new().recursive(true).mode(0o700).create(folder)?;
        // A crash may have left a file there, which is not written through.
        match std::fs::remove_file(&new) {
            Err(error) if error.kind() != ErrorKind::NotFound => return Err(error),
            _ => {}
        }
        let mut file = File::options().write(true).create_new(true).mode(0o600).open(&new)?;
        file.write_all(record.to_text(uuid).as_bytes())?;
        file.sync_all()?;
        std::fs::rename(&new, &path)?;
        File::open(folder)?.sync_all()
    };
    written().map_err(|error| format!("{}: {error}", path.display()))
}

/// Path of the file with the record of the array `uuid`.
fn path(folder: &Path, uuid: &str) -> PathBuf {
    let hex: String = uuid.chars().filter(char::is_ascii_hexdigit).collect();
    folder.join(format!("check-{hex}.json"))
}

impl Record {
    /// Text of the file for this record, the one of the array `uuid`, as JSON.
    pub(super) fn to_text(&self, uuid: &str) -> String {
        let segment = |it: &Segment| {
            json!({
                "server": it.server,
                "number": it.number,
                "before": it.before,
                "asked": it.asked,
                "is_stopping": it.is_stopping,
            })
        };
        let pass = |it: &Pass| {
            json!({
                "position": it.position,
                "size": it.size,
                "mismatches": it.mismatches,
                "window": it.window,
                "is_halted": it.is_halted,
                "segment": it.segment.as_ref().map(segment),
            })
        };
        let record = json!({
            "version": VERSION,
            "array_uuid": uuid,
            "began": self.began,
            "behind": self.behind,
            "pass": self.pass.as_ref().map(pass),
            "last": self.last.map(|it| json!({"at": it.at, "mismatches": it.mismatches})),
        });
        format!("{record:#}\n")
    }

    /// Parses the content of the file of the array `uuid`.
    ///
    /// # Errors
    /// The text is no record of this array; the error says what is wrong.
    pub(super) fn from_text(text: &str, uuid: &str) -> Result<Self, String> {
        let record: Value = serde_json::from_str(text).map_err(|error| error.to_string())?;
        let version = number(&record, "version")?;
        if version != VERSION {
            return Err(format!("version: found {version}, expected {VERSION}"));
        }
        if record["array_uuid"] != uuid {
            let found = &record["array_uuid"];
            return Err(format!("array_uuid: found {found}, expected {uuid}"));
        }
        let segment = |it: &Value| {
            let server = number(it, "server")?;
            Ok(Segment {
                server: u32::try_from(server).map_err(|_| not_a("server", "process"))?,
                number: number(it, "number")?,
                before: number(it, "before")?,
                asked: number(it, "asked")?,
                is_stopping: truth(it, "is_stopping")?,
            })
        };
        let pass = |it: &Value| {
            Ok(Pass {
                position: number(it, "position")?,
                size: number(it, "size")?,
                mismatches: number(it, "mismatches")?,
                window: number(it, "window")?,
                is_halted: truth(it, "is_halted")?,
                segment: optional(it, "segment", segment)?,
            })
        };
        let ended =
            |it: &Value| Ok(Ended { at: number(it, "at")?, mismatches: number(it, "mismatches")? });
        let time = |it: &Value| it.as_u64().filter(|it| *it <= MAX).ok_or(not_a("time", "number"));
        Ok(Self {
            began: optional(&record, "began", time)?,
            behind: optional(&record, "behind", time)?,
            pass: optional(&record, "pass", pass)?,
            last: optional(&record, "last", ended)?,
        })
    }
}

/// Value of the field `name`, which `parse` reads; `None` if the field is null. A missing field is
/// an error.
fn optional<T>(
    value: &Value,
    name: &str,
    parse: impl Fn(&Value) -> Result<T, String>,
) -> Result<Option<T>, String> {
    match value.get(name) {
        None => Err(format!("{name}: found none")),
        Some(Value::Null) => Ok(None),
        Some(value) => parse(value).map(Some).map_err(|why| format!("{name}: {why}")),
    }
}

/// Value of the field `name`, a number of at most [`MAX`]; any other value is an error.
fn number(value: &Value, name: &str) -> Result<u64, String> {
    let number = value.get(name).and_then(Value::as_u64).filter(|it| *it <= MAX);
    number.ok_or_else(|| not_a(name, "number"))
}

/// Value of the field `name`, true or false; any other value is an error.
fn truth(value: &Value, name: &str) -> Result<bool, String> {
    value.get(name).and_then(Value::as_bool).ok_or_else(|| not_a(name, "true or false"))
}

fn not_a(name: &str, what: &str) -> String {
    format!("{name}: expected a {what}")
}

/// Version of the file's format.
const VERSION: u64 = 1;

/// Largest size in bytes of a file that is read.
const BYTES_MAX: u64 = 1 << 16;

/// Largest number in a file, so that the sum of two does not overflow.
const MAX: u64 = 1 << 62;

#[cfg(test)]
mod tests {
    use super::*;
    use weft_testing::fuzz;
    use weft_units::rng::{Rng, mix};

    const UUID: &str = "3aaa0122:29827cfa:5331ad66:ca767371";

    fn full() -> Record {
        let segment =
            Segment { server: 7, number: 3, before: 8, asked: 1_800_000_000, is_stopping: true };
        Record {
            began: Some(1_800_000_000),
            behind: Some(1_700_000_000),
            pass: Some(Pass {
                position: 4096,
                size: 1 << 40,
                mismatches: 16,
                window: 1_800_000_001,
                is_halted: true,
                segment: Some(segment),
            }),
            last: Some(Ended { at: 1_790_000_000, mismatches: 24 }),
        }
    }

    #[test]
    fn a_record_is_read_as_it_was_written() {
        let dir = tempfile::tempdir().unwrap();
        let folder = dir.path().join("new/folder");
        assert_eq!(read(&folder, UUID), Ok(None));
        for record in [Record::default(), full()] {
            write(&folder, UUID, &record).unwrap();
            assert_eq!(read(&folder, UUID), Ok(Some(record)));
        }
        let names: Vec<_> =
            std::fs::read_dir(&folder).unwrap().map(|it| it.unwrap().file_name()).collect();
        assert_eq!(names, ["check-3aaa012229827cfa5331ad66ca767371.json"]);
    }

    #[test]
    fn damaged_and_foreign_records_are_refused_and_replaced() {
        let dir = tempfile::tempdir().unwrap();
        let path = path(dir.path(), UUID);
        let good = full().to_text(UUID);
        for (text, expected) in [
            (String::new(), "EOF"),
            ("[]".into(), "version: expected a number"),
            (good.replace("\"version\": 1", "\"version\": 2"), "version: found 2, expected 1"),
            (good.replace("3aaa", "3aab"), "array_uuid: found \"3aab"),
            (good.replace("4096", "-1"), "pass: position: expected a number"),
            (good.replace("4096", "18446744073709551615"), "pass: position: expected a number"),
            (good.replace("\"server\": 7", "\"server\": 4294967296"), "server: expected a process"),
            (good.replace("\"behind\"", "\"other\""), "behind: found none"),
            (" ".repeat(1 << 17), "found a larger file"),
        ] {
            std::fs::write(&path, &text).unwrap();
            let why = read(dir.path(), UUID).unwrap_err();
            assert!(why.contains(expected) && why.contains("check-3aaa"), "{why}");
        }
        write(dir.path(), UUID, &full()).unwrap();
        assert_eq!(read(dir.path(), UUID), Ok(Some(full())));
        std::fs::remove_file(&path).unwrap();
        std::fs::create_dir(&path).unwrap();
        assert!(read(dir.path(), UUID).unwrap_err().contains("found no regular file"));
        assert!(write(dir.path(), UUID, &full()).is_err());
        // A pipe in place of the file, or of the new one, holds nothing up.
        std::fs::remove_dir(&path).unwrap();
        rustix::fs::mkfifoat(rustix::fs::CWD, &path, rustix::fs::Mode::RWXU).unwrap();
        assert!(read(dir.path(), UUID).unwrap_err().contains("found no regular file"));
        let new = path.with_extension("new");
        std::fs::remove_file(&new).unwrap();
        rustix::fs::mkfifoat(rustix::fs::CWD, &new, rustix::fs::Mode::RWXU).unwrap();
        write(dir.path(), UUID, &full()).unwrap();
        assert_eq!(read(dir.path(), UUID), Ok(Some(full())));
    }

    /// Damaged records are read or refused. `WEFT_FUZZ_SEED=n` sets another seed.
    #[test]
    fn damaged_bytes_never_panic() {
        let good = full().to_text(UUID);
        let (mut read, mut refused) = (0, 0);
        for case in 0..fuzz::cases(2000) as u64 {
            let mut rng = Rng::new(mix(fuzz::seed()) ^ mix(case));
            let mut text = good.clone().into_bytes();
            for _ in 0..=rng.below(3) {
                let at = usize::try_from(rng.below(text.len() as u64)).unwrap();
                match rng.below(3) {
                    0 => text[at] = b"0123456789{}\"-e.:,"[usize::try_from(rng.below(18)).unwrap()],
                    1 => _ = text.remove(at),
                    _ => text.truncate(at.max(1)),
                }
            }
            match Record::from_text(&String::from_utf8_lossy(&text), UUID) {
                Ok(_) => read += 1,
                Err(why) => {
                    assert!(!why.is_empty());
                    refused += 1;
                }
            }
        }
        assert!(read > 0 && refused > read, "{read} read, {refused} refused");
    }
}
