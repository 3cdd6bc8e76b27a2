//! Lines of a ledger: common fields, and JSON fields with errors that name them.
//!
//! A ledger records runs with their date and commit: sweeps (`sweep`) and mutants
//! (`mutants/ledger`).

use crate::tree::root;
use anyhow::{Context, ensure};
use serde_json::Value;
use std::process::Command;

/// Text in a field of a ledger's line.
pub(crate) fn text(line: &Value, field: &str) -> anyhow::Result<String> {
    let text = line[field].as_str().map(str::to_owned);
    text.with_context(|| format!("{field}: found {}, expected a text", line[field]))
}

/// List of texts in a field of a ledger's line.
pub(crate) fn texts(line: &Value, field: &str) -> anyhow::Result<Vec<String>> {
    let all = line[field].as_array();
    let texts = all.and_then(|all| all.iter().map(|it| Some(it.as_str()?.to_owned())).collect());
    texts.with_context(|| format!("{field}: found {}, expected texts", line[field]))
}

/// Number in a field of a ledger's line.
pub(crate) fn count(line: &Value, field: &str) -> anyhow::Result<u64> {
    let count = line[field].as_u64();
    count.with_context(|| format!("{field}: found {}, expected a count", line[field]))
}

/// Today's date in UTC.
pub(crate) fn date() -> anyhow::Result<String> {
    Ok(printed("date", &["-u", "+%F"])?.trim().to_owned())
}

/// Full hash of the current commit.
pub(crate) fn commit() -> anyhow::Result<String> {
    Ok(printed("git", &["rev-parse", "HEAD"])?.trim().to_owned())
}

/// Output of a command that runs in the project's root.
pub(crate) fn printed(program: &str, words: &[&str]) -> anyhow::Result<String> {
    let output = Command::new(program).args(words).current_dir(root()).output();
    let output = output.with_context(|| program.to_owned())?;
    ensure!(output.status.success(), "{program}: {}", String::from_utf8_lossy(&output.stderr));
    Ok(String::from_utf8(output.stdout)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_field_that_is_wrong_is_named_with_what_was_found() {
        let line =
            serde_json::json!({"word": "w", "names": ["a", "b"], "count": 7, "mixed": ["a", 1]});
        assert_eq!(text(&line, "word").unwrap(), "w");
        assert_eq!(texts(&line, "names").unwrap(), ["a", "b"]);
        assert_eq!(count(&line, "count").unwrap(), 7);
        let wrong = [
            text(&line, "count").map(drop),
            texts(&line, "mixed").map(drop),
            count(&line, "word").map(drop),
            count(&line, "absent").map(drop),
        ];
        let expected = [
            "count: found 7, expected a text",
            "mixed: found [\"a\",1], expected texts",
            "word: found \"w\", expected a count",
            "absent: found null, expected a count",
        ];
        assert_eq!(wrong.map(|it| it.unwrap_err().to_string()), expected);
    }
}
