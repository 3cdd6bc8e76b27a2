//! Search of a folder for runs of any format.
//!
//! A folder with `vmstat-end` is a run, and so is a folder with `params.json` and `summary.json`.
//! Each job in an output of fio is a run of its own. The path of a run below the argument names its
//! case, and a folder named `run` and a number is a repeat of the same case.

use std::fs;
use std::path::{Path, PathBuf};

use super::error::CompareError;
use super::formats::{self, Hash, Values};
use crate::run_name::RunName;

/// Run of a load, read from files: its metrics, and the identity that assigns it to a case.
#[derive(Clone, Debug)]
pub struct Run {
    /// Folder or file that the run was read from.
    pub path: PathBuf,
    /// Metrics of the run, by name.
    pub values: Values,
    /// Remark for a reader of the comparison, that the run had an error or had not settled; `None`
    /// otherwise.
    pub remark: Option<&'static str>,
    pub(super) kind: Kind,
    /// Names of the folders on the path from the argument to the run, without folders such as
    /// `run1` that number repeats.
    pub(super) below: Vec<String>,
    pub(super) seed: Option<u64>,
    /// Hash of the bytes that the run was read from.
    pub(super) hash: Hash,
}

impl Run {
    /// Whether this run is a copy of `other`: it has the same seed, or was read from the same
    /// bytes.
    pub(super) fn is_copy_of(&self, other: &Self) -> bool {
        self.hash == other.hash || (self.seed.is_some() && self.seed == other.seed)
    }
}

/// Identity of a run, from which the names of its set and its case are made. Each format of results
/// has a variant.
#[derive(Clone, Debug)]
pub(super) enum Kind {
    /// A job of fio. `file` is the name of its file without `.json`; `None` if the argument named
    /// the file, or if the name only numbers a repeat or equals the job's.
    Fio { job: String, file: Option<String> },
    /// A folder with snapshots of `/proc/vmstat`. `folder` is its name, or its parent's if the
    /// folder is a numbered repeat; `name` is this name split into fields, `None` if it has no
    /// fields.
    Vmstat { folder: String, name: Option<RunName> },
    /// A run of an experiment, with the names of its case and of its column.
    Weft { case: String, column: String },
}

/// Runs found below an argument, and the number of files that were examined.
#[derive(Debug, Default)]
pub struct Found {
    /// The runs, in the order of their paths.
    pub runs: Vec<Run>,
    /// Number of files of any kind that were examined; a folder that is a run counts as one file.
    pub looked_at: usize,
}

/// Deepest nesting of folders that is searched; deeper nesting is taken for a loop of links.
const DEPTH_MAX: usize = 24;

impl Found {
    /// Reads the runs of a folder and of the folders in it, or of one file.
    ///
    /// # Errors
    /// A file or folder cannot be read, or a file of results does not have the format of its name.
    pub fn below(path: &Path) -> Result<Self, CompareError> {
        let mut found = Self::default();
        let kind = fs::metadata(path).map_err(|source| unreadable(path, source))?;
        if kind.is_dir() {
            found.folder(path, &mut Vec::new(), 0)?;
        } else if path.file_name().is_some_and(|name| name == formats::VMSTAT_END) {
            let folder = path.parent().filter(|folder| *folder != Path::new(""));
            found.vmstat(folder.unwrap_or(Path::new(".")), &[])?;
        } else {
            found.looked_at = 1;
            if !found.fio(path, &[], None)? {
                return Err(CompareError::Field {
                    path: path.into(),
                    field: "jobs".to_owned(),
                    found: "none".to_owned(),
                    expected: "fio's output in JSON",
                    advice: "run fio with --output-format=json, or name a folder of runs",
                });
            }
        }
        Ok(found)
    }

    fn folder(
        &mut self,
        path: &Path,
        below: &mut Vec<String>,
        depth: usize,
    ) -> Result<(), CompareError> {
        let has = |name: &str| path.join(name).is_file();
        if has(formats::VMSTAT_END) {
            return self.vmstat(path, below);
        }
        if has(formats::PARAMS) && has(formats::SUMMARY) {
            return self.weft(path, below);
        }
        let entries = fs::read_dir(path).map_err(|source| unreadable(path, source))?;
        let entries: Result<Vec<_>, _> = entries.map(|entry| Ok(entry?.path())).collect();
        let mut entries = entries.map_err(|source| unreadable(path, source))?;
        entries.sort();
        for entry in entries {
            let name = entry.file_name().unwrap_or_default().to_string_lossy().into_owned();
            if entry.is_dir() {
                if depth < DEPTH_MAX && !name.starts_with('.') {
                    below.push(name);
                    self.folder(&entry, below, depth + 1)?;
                    below.pop();
                }
            } else {
                self.looked_at += 1;
                if let Some(stem) = name.strip_suffix(".json") {
                    // The file may be JSON of another program.
                    self.fio(&entry, below, Some(stem))?;
                }
            }
        }
        Ok(())
    }

    fn vmstat(&mut self, path: &Path, below: &[String]) -> Result<(), CompareError> {
        let folder = name_of(named(path));
        let name = RunName::parse(&folder);
        self.looked_at += 1;
        let (values, hash) = formats::vmstat(path)?;
        self.runs.push(Run {
            path: path.into(),
            values,
            remark: None,
            kind: Kind::Vmstat { folder, name },
            below: without_numbers(below),
            seed: None,
            hash,
        });
        Ok(())
    }

    fn weft(&mut self, path: &Path, below: &[String]) -> Result<(), CompareError> {
        let formats::WeftRun { case, column, seed, settled, values, hash } = formats::weft(path)?;
        self.looked_at += 1;
        // The last folder is the number of the run, by the layout of the results.
        let below = &below[..below.len().saturating_sub(1)];
        self.runs.push(Run {
            path: path.into(),
            values,
            remark: (!settled).then_some("it had not settled"),
            kind: Kind::Weft { case, column },
            below: without_numbers(below),
            seed: Some(seed),
            hash,
        });
        Ok(())
    }

    /// Reads a file that may be an output of fio, and adds its jobs. `stem` is the name of the file
    /// without its extension; `None` if the argument named the file. Returns false if the file is
    /// no output of fio.
    fn fio(
        &mut self,
        path: &Path,
        below: &[String],
        stem: Option<&str>,
    ) -> Result<bool, CompareError> {
        let text = formats::text(path)?;
        let Some(formats::FioRun { jobs, seed }) = formats::fio(path, &text)? else {
            return Ok(false);
        };
        for formats::FioJob { name, values, error } in jobs {
            let file = stem.filter(|stem| !is_repeat(stem) && *stem != name).map(str::to_owned);
            self.runs.push(Run {
                path: path.into(),
                values,
                remark: (error != 0).then_some("fio reports an error"),
                kind: Kind::Fio { job: name, file },
                below: without_numbers(below),
                seed,
                hash: formats::hash([&*text]),
            });
        }
        Ok(true)
    }
}

fn unreadable(path: &Path, source: std::io::Error) -> CompareError {
    CompareError::Read { path: path.into(), source }
}

/// Folder that a run takes its name from: the parent of `path` if the last folder of `path` is a
/// numbered repeat, otherwise `path`.
pub(super) fn named(path: &Path) -> &Path {
    let last = path.file_name().is_some_and(|name| is_repeat(&name.to_string_lossy()));
    match path.parent() {
        Some(above) if last && above != Path::new("") => above,
        _ => path,
    }
}

/// The last component of a path. A path without a name at its end, such as `.` or `..`, is resolved
/// first.
fn name_of(path: &Path) -> String {
    let full = fs::canonicalize(path).unwrap_or_else(|_| path.into());
    let name = path.file_name().or(full.file_name());
    name.unwrap_or_default().to_string_lossy().into_owned()
}

fn without_numbers(below: &[String]) -> Vec<String> {
    below.iter().filter(|name| !is_repeat(name)).cloned().collect()
}

/// Whether a name consists of `run` and a number, as `run1`, `run-2` or `run_3`.
fn is_repeat(name: &str) -> bool {
    let number = name.strip_prefix("run").map(|rest| rest.trim_start_matches(['-', '_', '.']));
    number.is_some_and(|number| !number.is_empty() && number.chars().all(|c| c.is_ascii_digit()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_repeat_is_run_and_a_number() {
        for (name, repeat) in
            [("run1", true), ("run-02", true), ("run_3", true), ("run.4", true), ("run", false)]
        {
            assert_eq!(is_repeat(name), repeat, "{name}");
        }
        for name in ["1", "run-a", "runs", "rerun1", "run1b", ""] {
            assert!(!is_repeat(name), "{name}");
        }
    }

    #[test]
    fn a_circle_of_links_ends() {
        let folder = tempfile::tempdir().unwrap();
        std::os::unix::fs::symlink(folder.path(), folder.path().join("again")).unwrap();
        fs::write(folder.path().join("notes.txt"), "").unwrap();
        let found = Found::below(folder.path()).unwrap();
        assert!(found.runs.is_empty());
        assert_eq!(found.looked_at, DEPTH_MAX + 1);
    }
}
