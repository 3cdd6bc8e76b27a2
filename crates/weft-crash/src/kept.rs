//! Scripts stored as text: known failures and regressions.
//!
//! `scripts/open/` has the scripts that fail today, `scripts/regressions/` those that failed once,
//! one file each. A file begins with its *story*, a description of the failure, in lines that begin
//! with `#`. Each line `fails TEXT` gives a part of the checker's message for a known failure. When
//! the failure is fixed, the script moves from `open/` to the regressions. The text alone
//! determines the script, independently of the generator.

use std::path::{Path, PathBuf};

use thiserror::Error;

use crate::script::{Failure, Plant, Script, ScriptError};

/// Checkers of promises about clients' data. The failure of such a checker must be fixed at once:
/// its script must not stay in `scripts/open/`, and a sweep of fresh seeds does not pass with it.
pub(crate) const OF_DATA: [&str; 5] = ["I1 ", "I2 ", "I4 ", "I8 ", "I20 "];

/// First words of the description of a failure that was not investigated yet.
const NOT_LOOKED_INTO: &str = "Not looked into.";

/// A script in a file, with the description of its failure.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Kept {
    /// Name of the file, without `.script`.
    pub name: String,
    /// Description of the script and of its past or present failure.
    pub story: String,
    /// Parts of the checker's message; empty if the script is not known to fail.
    pub fails: Vec<String>,
    /// The script itself.
    pub script: Script,
}

/// Reason why a file is not a valid stored script.
#[derive(Debug, Error)]
pub enum KeptError {
    /// The file or folder cannot be read.
    #[error("{path}: {error}")]
    File {
        /// Path of the file or folder.
        path: PathBuf,
        /// Error of the operating system.
        error: std::io::Error,
    },
    /// The file name does not end in `.script`.
    #[error("{0}: found among scripts, expected NAME.script")]
    Name(PathBuf),
    /// The text is not a valid script.
    #[error("{path}: {error}")]
    Text {
        /// Path of the script's file.
        path: PathBuf,
        /// Error of the first invalid line.
        error: ScriptError,
    },
    /// The file does not begin with a description of the failure.
    #[error("{0}: found no line that begins with #, expected its story at the head")]
    Story(PathBuf),
}

/// Scripts that fail today.
///
/// # Errors
/// A file cannot be read or is not a valid script.
pub fn open() -> Result<Vec<Kept>, KeptError> {
    of_folder(&scripts().join("open"))
}

/// Scripts that failed once.
///
/// # Errors
/// A file cannot be read or is not a valid script.
pub fn regressions() -> Result<Vec<Kept>, KeptError> {
    of_folder(&scripts().join("regressions"))
}

/// Folder that has the folders of open failures and of regressions.
fn scripts() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("scripts")
}

/// All scripts of a folder, ordered by name, or the first error. A missing folder counts as empty,
/// because git stores no empty folders.
fn of_folder(folder: &Path) -> Result<Vec<Kept>, KeptError> {
    let failed = |error| KeptError::File { path: folder.to_owned(), error };
    let mut kept = Vec::new();
    if folder.exists() {
        for entry in std::fs::read_dir(folder).map_err(failed)? {
            kept.push(Kept::read(&entry.map_err(failed)?.path())?);
        }
    }
    kept.sort_by(|a: &Kept, b| a.name.cmp(&b.name));
    Ok(kept)
}

/// Parses the script in the text of a file, which need not describe a failure.
///
/// # Errors
/// The text is not a script.
pub fn script_of(text: &str) -> Result<Script, ScriptError> {
    // No line is removed, so that errors have the right line number.
    let line = |line: &str| match line.starts_with("fails ") {
        true => "\n".to_owned(),
        false => format!("{line}\n"),
    };
    text.lines().map(line).collect::<String>().parse()
}

impl Kept {
    /// Reads a script from a file.
    ///
    /// # Errors
    /// The file cannot be read, is not named `NAME.script`, is not a script, or does not begin with
    /// a description of the failure.
    pub fn read(path: &Path) -> Result<Self, KeptError> {
        let name = path.file_name().and_then(|name| name.to_str()?.strip_suffix(".script"));
        let name = name.ok_or_else(|| KeptError::Name(path.to_owned()))?;
        let text = std::fs::read_to_string(path)
            .map_err(|error| KeptError::File { path: path.to_owned(), error })?;
        let kept = Self::parse(name, &text)
            .map_err(|error| KeptError::Text { path: path.to_owned(), error })?;
        if kept.story.is_empty() { Err(KeptError::Story(path.to_owned())) } else { Ok(kept) }
    }

    fn parse(name: &str, text: &str) -> Result<Self, ScriptError> {
        let head = text.lines().map_while(|line| line.strip_prefix('#'));
        let story: Vec<&str> = head.map(str::trim).collect();
        let fails = text.lines().filter_map(|line| line.strip_prefix("fails "));
        let fails = fails.map(|part| part.trim().to_owned()).collect();
        let script = script_of(text)?;
        Ok(Self { name: name.to_owned(), story: story.join(" "), fails, script })
    }

    /// Stored script for a new failure that was not investigated yet.
    #[must_use]
    pub fn of_failure(failure: &Failure) -> Self {
        let Failure { violation, script, .. } = failure;
        let (profile, seed) = (script.profile, script.options.seed);
        Self {
            name: format!("{profile}-{seed}"),
            story: format!("{NOT_LOOKED_INTO} Drawn as {profile} {seed}, and shrunk. {violation}"),
            fails: vec![violation.checker.to_owned()],
            script: script.clone(),
        }
    }

    /// Whether the script breaks a promise about data: I1, I2, I4, I8 or I20 fails.
    #[must_use]
    pub fn breaks_data(&self) -> bool {
        self.fails.iter().any(|part| OF_DATA.iter().any(|checker| part.starts_with(checker)))
    }

    /// Checks that the script may stay in `scripts/open/`: its failure was investigated, and breaks
    /// no promise about data.
    ///
    /// # Errors
    /// The reason why the script must not stay in `scripts/open/`.
    pub fn may_be_open(&self) -> Result<(), String> {
        let name = &self.name;
        if self.breaks_data() {
            return Err(format!("{name}: found {:?}, which is mended, never open", self.fails));
        }
        if self.story.starts_with(NOT_LOOKED_INTO) {
            return Err(format!("{name}: found \"{NOT_LOOKED_INTO}\", expected what is wrong"));
        }
        Ok(())
    }

    /// Text of the file: description of the failure, expected messages and script.
    #[must_use]
    pub fn to_text(&self) -> String {
        let mut text = String::new();
        let mut line = "#".to_owned();
        for word in self.story.split_whitespace() {
            if line.len() + 1 + word.len() > 100 {
                text += &(std::mem::replace(&mut line, "#".to_owned()) + "\n");
            }
            line = line + " " + word;
        }
        text += &(line + "\n");
        self.fails.iter().for_each(|part| text += &format!("fails {part}\n"));
        text + &self.script.to_string()
    }

    /// Checks that a known failure still occurs, with the expected message.
    ///
    /// # Errors
    /// A description of what happened instead: no violation, or another message.
    pub fn still_fails(&self) -> Result<(), String> {
        self.still_fails_with(&|_| ())
    }

    /// Variant of [`Self::still_fails`] that calls `plant` for each engine that starts.
    ///
    /// # Errors
    /// See [`Kept::still_fails`].
    pub fn still_fails_with(&self, plant: Plant<'_>) -> Result<(), String> {
        let found = match self.script.run_with(plant) {
            Ok(_) => "no violation".to_owned(),
            Err(failure) => failure.violation.to_string(),
        };
        let as_told = self.fails.iter().all(|part| found.contains(part));
        if as_told && !self.fails.is_empty() {
            return Ok(());
        }
        Err(format!(
            "{}: found {found}, expected {:?}; if it is mended move it from scripts/open to \
             scripts/regressions, without its lines \"fails\"",
            self.name, self.fails
        ))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::script::Profile;

    #[test]
    fn a_kept_script_comes_back_from_its_text_with_its_story() {
        let kept = Kept {
            name: "a-name".to_owned(),
            story: "A story of many words. ".repeat(20).trim().to_owned(),
            fails: vec!["I13 liveness".to_owned(), "a wake-up is lost".to_owned()],
            script: Script::generate(7, Profile::QUEUES),
        };
        let text = kept.to_text();
        assert_eq!(Kept::parse("a-name", &text).unwrap(), kept);
        assert!(text.lines().all(|line| line.len() <= 100), "{text}");
        let wrong = text.replace("steps\n", "steps\n  jump\n");
        let line = wrong.lines().position(|line| line == "  jump").unwrap() + 1;
        assert_eq!(Kept::parse("a-name", &wrong).unwrap_err().line, line);
    }

    #[test]
    fn what_is_no_script_with_a_story_is_refused_by_name() {
        let folder = std::env::temp_dir().join(format!("weft-kept-{}", std::process::id()));
        std::fs::create_dir(&folder).unwrap();
        let refused = |name: &str, text: &str| {
            let path = folder.join(name);
            std::fs::write(&path, text).unwrap();
            let error = of_folder(&folder).unwrap_err().to_string();
            std::fs::remove_file(&path).unwrap();
            error
        };
        let script = Script::generate(7, Profile::CALM).to_string();
        assert!(refused("story.script", &script).contains("expected its story at the head"));
        assert!(refused("story.txt", &script).contains("expected NAME.script"));
        assert!(refused("bad.script", "# So.\nlevel 5\n").contains("bad.script: line 3: found"));
        assert_eq!(of_folder(&folder).unwrap(), []);
        std::fs::remove_dir(&folder).unwrap();
    }
}
