//! Scripts that are kept as text: failures that are known, and regressions.
//!
//! `scripts/open/` has what fails today, `scripts/regressions/` what failed once, a file each. At
//! the head of a file stands its story, in lines that begin with `#`; `fails TEXT` is a part of
//! what the checker says of a known failure. A failure leaves `open/` by a mend, and its script
//! becomes a regression. A script is its text: it does not depend on what a seed draws.

use std::path::{Path, PathBuf};

use thiserror::Error;

use crate::script::{Failure, Plant, Script, ScriptError};

/// A script in a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Kept {
    /// Name of its file, without `.script`.
    pub name: String,
    /// What it does, and what was wrong or is.
    pub story: String,
    /// Parts of what the checker says, if it is known to fail.
    pub fails: Vec<String>,
    /// The script.
    pub script: Script,
}

/// Reasons why a file is no script that is kept.
#[derive(Debug, Error)]
pub enum KeptError {
    /// It cannot be read.
    #[error("{path}: {error}")]
    File {
        /// The file or folder.
        path: PathBuf,
        /// What the system says.
        error: std::io::Error,
    },
    /// It is not called so.
    #[error("{0}: found among scripts, expected NAME.script")]
    Name(PathBuf),
    /// Its text is not one.
    #[error("{path}: {error}")]
    Text {
        /// The file.
        path: PathBuf,
        /// The line.
        error: ScriptError,
    },
    /// It does not say what it is.
    #[error("{0}: found no line that begins with #, expected its story at the head")]
    Story(PathBuf),
}

/// What fails today.
///
/// # Errors
/// A file is no script.
pub fn open() -> Result<Vec<Kept>, KeptError> {
    of_folder(&scripts().join("open"))
}

/// What failed once.
///
/// # Errors
/// A file is no script.
pub fn regressions() -> Result<Vec<Kept>, KeptError> {
    of_folder(&scripts().join("regressions"))
}

/// The folder of both.
fn scripts() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("scripts")
}

/// All scripts of a folder by their names. One that is not there is empty, as git has none that is.
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

/// The script of a file's text, which may be without a story.
///
/// # Errors
/// It is none.
pub fn script_of(text: &str) -> Result<Script, ScriptError> {
    // A line stays a line, for errors that name it.
    let line = |line: &str| match line.starts_with("fails ") {
        true => "\n".to_owned(),
        false => format!("{line}\n"),
    };
    text.lines().map(line).collect::<String>().parse()
}

impl Kept {
    /// The script of a file.
    ///
    /// # Errors
    /// It cannot be read, or is none.
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

    /// A failure that was drawn, of which nothing is known yet.
    #[must_use]
    pub fn of_failure(failure: &Failure) -> Self {
        let Failure { violation, script, .. } = failure;
        let (profile, seed) = (script.profile, script.options.seed);
        Self {
            name: format!("{profile}-{seed}"),
            story: format!("Not looked into. Drawn as {profile} {seed}, and shrunk. {violation}"),
            fails: vec![violation.checker.to_owned()],
            script: script.clone(),
        }
    }

    /// Text of its file.
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

    /// Whether it still fails, and as it says.
    ///
    /// # Errors
    /// It does not, or otherwise.
    pub fn still_fails(&self) -> Result<(), String> {
        self.still_fails_with(&|_| ())
    }

    /// The same with something done to each engine that starts.
    ///
    /// # Errors
    /// As [`Kept::still_fails`].
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
