//! Commit messages: form of the subject, and a body, in all commits since the rule is kept.

use crate::lines::printed;
use crate::part::Ending;
use anyhow::ensure;
use std::path::Path;

/// Newest commit with a message of another form: its body is empty. Commits after it are read, and
/// none before it, because published commits cannot be changed. If one that breaks the rule is
/// published nevertheless, its hash takes this place.
const LAST_UNREAD: &str = "a9d36b580d27020be7d93ac9efe596c0447dbd34";

/// Largest number of columns in a subject.
const SUBJECT_MAX: usize = 72;

/// Largest number of words in the name of one area, such as "tests of runtime".
const AREA_WORDS_MAX: usize = 3;

/// Begin of a line at the end of a message that is no body.
const TRAILERS: [&str; 4] =
    ["Signed-off-by:", "Co-authored-by:", "Reviewed-by:", "(cherry picked from commit "];

/// Outcome of reading messages.
#[derive(Debug, PartialEq, Eq)]
enum Messages {
    /// Messages were read: how many, and what is wrong in them.
    Read { count: usize, wrong: Vec<String> },
    /// The clone lacks the first commits, or has none, for this reason.
    Absent(String),
}

/// Part of the lints that reads the messages of this clone.
pub(crate) fn look() -> Ending {
    match messages(&crate::tree::root(), LAST_UNREAD) {
        Ok(Messages::Read { wrong, .. }) if wrong.is_empty() => Ending::Passed,
        Ok(Messages::Read { wrong, .. }) => Ending::Failed(wrong.join("\n")),
        Ok(Messages::Absent(reason)) => Ending::Skipped(reason),
        Err(error) => Ending::Failed(format!("{error:#}")),
    }
}

/// Reads the messages of the commits in `folder` after `last_unread`.
fn messages(folder: &Path, last_unread: &str) -> anyhow::Result<Messages> {
    let folder = folder.to_string_lossy();
    let git = |words: &[&str]| printed("git", &[&["-C", &folder], words].concat());
    if git(&["merge-base", "--is-ancestor", last_unread, "HEAD"]).is_err() {
        let reason = format!("commit messages: this clone has no history back to {last_unread}");
        return Ok(Messages::Absent(format!("{reason}; run: git fetch --unshallow")));
    }
    // Merges have git's own subject.
    let format = "--format=%h%x00%B%x00";
    let log = git(&["log", "--no-merges", format, &format!("{last_unread}..HEAD")])?;
    let fields: Vec<&str> = log.split('\0').collect();
    let commits = fields.chunks_exact(2);
    ensure!(commits.remainder().iter().all(|rest| rest.trim().is_empty()), "git log: {log:?}");
    let count = commits.len();
    let of_commit = |pair: &[&str]| -> Vec<String> {
        let hash = pair[0].trim();
        wrong(pair[1]).into_iter().map(|wrong| format!("{hash}: {wrong}")).collect()
    };
    Ok(Messages::Read { count, wrong: commits.flat_map(of_commit).collect() })
}

/// Every fault in a message, with its subject.
fn wrong(message: &str) -> Vec<String> {
    let mut lines = message.trim_start().lines();
    let subject = lines.next().unwrap_or_default();
    let columns = subject.chars().count();
    let is_body = |line: &str| {
        let line = line.trim();
        !line.is_empty() && !TRAILERS.iter().any(|trailer| line.starts_with(trailer))
    };
    let mut found = Vec::new();
    if columns > SUBJECT_MAX {
        found.push(format!("found {columns} columns, expected {SUBJECT_MAX} at most"));
    }
    if !has_area(subject) {
        found.push("found no area, expected `area: what changed`".to_owned());
    }
    if subject.ends_with('.') {
        found.push("found a full stop, expected none".to_owned());
    }
    if !lines.any(is_body) {
        found.push("found no body, expected why and how it was checked".to_owned());
    }
    found.into_iter().map(|found| format!("{subject:?}: {found}")).collect()
}

/// Whether a subject is `area: what changed`, or git's own for the revert of such a commit. Areas
/// are crates by their short name, folders, modules and pages, several with commas between them.
fn has_area(subject: &str) -> bool {
    let subject = subject.strip_prefix("Revert \"").unwrap_or(subject);
    let Some((areas, change)) = subject.split_once(": ") else { return false };
    let is_letter = |letter: char| letter.is_alphanumeric() || "_-/.".contains(letter);
    let is_area = |area: &str| {
        let words: Vec<&str> = area.split(' ').collect();
        let is_word = |word: &&str| !word.is_empty() && word.chars().all(is_letter);
        words.len() <= AREA_WORDS_MAX && words.iter().all(is_word)
    };
    areas.split(", ").all(is_area) && !change.trim().is_empty()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::Command;

    #[test]
    fn every_commit_has_an_area_and_a_body() {
        match messages(&crate::tree::root(), LAST_UNREAD).unwrap() {
            Messages::Absent(reason) => weft_testing::skip(&reason),
            Messages::Read { count, wrong } => {
                assert_eq!(wrong, Vec::<String>::new());
                assert!(count >= 6, "{count} commits were read");
            }
        }
    }

    #[test]
    fn planted_messages_are_found_and_those_of_the_history_are_not() {
        let body = "\n\nIt was wrong.\n";
        for good in [
            "sim: doc of the consumer drive's test is a noun phrase",
            "weft-cli, weft-fuse: types named Landmark and Findings",
            "sched/bfq: inject requests",
            "stripe cache: one list",
            "tests of runtime, export: comments name their subject",
            "CONTRIBUTING.md: commits",
            "serve --bare: take the knobs of a queue",
            "docs: extend: a level, as it was tried",
            "Revert \"engine: a copy missed\"",
            &format!("sim: {}", "x".repeat(67)),
        ] {
            assert_eq!(wrong(&format!("{good}{body}")), [""; 0], "{good}");
        }
        for bad in [
            "Sweep 8",
            "Merge branch 'turns'",
            "wrap six comments of these files: at 100 columns",
            ": nothing",
            "sim:",
            "sim: ",
            "sim,: two",
            "sim: it is done.",
            &format!("sim: {}", "x".repeat(68)),
        ] {
            assert_eq!(wrong(&format!("{bad}{body}")).len(), 1, "{bad}");
        }
        for without in ["", "\n", "\n\n", "\n\nSigned-off-by: A <a@example.org>\n"] {
            assert_eq!(wrong(&format!("serve: rustfmt{without}")).len(), 1, "{without:?}");
        }
    }

    /// Runs git in `folder`, as a fixed author and without the settings of this user or of a hook.
    fn git(folder: &Path, words: &[&str]) {
        let mut command = Command::new("git");
        for person in ["AUTHOR", "COMMITTER"] {
            command.env(format!("GIT_{person}_NAME"), "a");
            command.env(format!("GIT_{person}_EMAIL"), "a@example.org");
        }
        for place in ["GIT_DIR", "GIT_INDEX_FILE", "GIT_WORK_TREE"] {
            command.env_remove(place);
        }
        let settings = ["-c", "commit.gpgSign=false", "-c", "core.hooksPath=/dev/null"];
        command.env("GIT_CONFIG_GLOBAL", "/dev/null").args(settings).current_dir(folder);
        let output = command.args(words).output().unwrap();
        assert!(output.status.success(), "{words:?}: {}", String::from_utf8_lossy(&output.stderr));
    }

    #[test]
    fn a_planted_commit_is_found_in_a_full_clone_and_a_shallow_one_says_that_it_is() {
        let folder = crate::interop::target_folder().join("tmp/commits");
        let _ = std::fs::remove_dir_all(&folder);
        let full = folder.join("full");
        std::fs::create_dir_all(&full).unwrap();
        git(&full, &["init", "-q"]);
        let commit = |message: &str| {
            git(&full, &["commit", "-q", "--allow-empty", "--cleanup=verbatim", "-m", message]);
        };
        commit("Old ways\n");
        let full_name = full.to_string_lossy().into_owned();
        let first = printed("git", &["-C", &full_name, "rev-parse", "HEAD"]).unwrap();
        let first = first.trim();
        let read = |folder: &Path| messages(folder, first).unwrap();
        assert_eq!(read(&full), Messages::Read { count: 0, wrong: vec![] });
        commit("sim: one\n\nWhy.\n");
        assert_eq!(read(&full), Messages::Read { count: 1, wrong: vec![] });
        commit("sim: two\n");
        commit("Three\n\nWhy.\n");
        let Messages::Read { count: 3, wrong } = read(&full) else { panic!("{:?}", read(&full)) };
        assert_eq!(wrong.len(), 2, "{wrong:?}");
        assert!(wrong[0].contains("\"Three\": found no area"), "{wrong:?}");
        assert!(wrong[1].contains("\"sim: two\": found no body"), "{wrong:?}");

        let of = format!("file://{full_name}");
        git(&folder, &["clone", "-q", "--depth", "2", &of, "shallow"]);
        let Messages::Absent(reason) = read(&folder.join("shallow")) else {
            panic!("a shallow clone was read");
        };
        assert!(reason.ends_with("run: git fetch --unshallow"), "{reason}");
        let unpacked = folder.join("unpacked");
        std::fs::create_dir(&unpacked).unwrap();
        assert!(matches!(read(&unpacked), Messages::Absent(_)), "an archive has no history");
        std::fs::remove_dir_all(&folder).unwrap();
    }
}
