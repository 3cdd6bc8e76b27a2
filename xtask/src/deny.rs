//! Licences, bans and sources of every crate that is built, as `deny.toml` has them.
//!
//! `cargo deny check licenses bans sources` reads the same file. This module is the gate, because
//! it runs on every machine. cargo-deny itself is not part of `check`: a part that runs only on
//! machines with cargo-deny proves nothing about CI, and building cargo-deny takes three to five
//! minutes on two cores. Run by hand, cargo-deny also finds licence files that differ from a
//! manifest.

use anyhow::Context;
use serde_json::Value;

/// Rules in deny.toml that are checked here.
struct Rules {
    licenses: Vec<String>,
    banned: Vec<String>,
}

/// Texts in double quotes that `text` contains.
fn quoted(text: &str) -> Vec<String> {
    text.split('"').skip(1).step_by(2).map(str::to_owned).collect()
}

impl Rules {
    /// Reads the needed parts of deny.toml: one `allow = […]` line, and `{ crate = "…"` lines.
    fn parse(text: &str) -> anyhow::Result<Rules> {
        let allow = text.lines().find_map(|line| line.strip_prefix("allow = ["));
        let licenses = quoted(allow.context("deny.toml has no line `allow = [`")?);
        let banned = text.lines().filter_map(|line| line.trim().strip_prefix("{ crate = "));
        let banned = banned.filter_map(|line| quoted(line).into_iter().next()).collect();
        Ok(Rules { licenses, banned })
    }

    /// Whether an SPDX expression can be met: one of the alternatives in each part joined by `AND`.
    /// Stricter than SPDX if `OR` and `AND` are mixed without parentheses.
    fn allows(&self, expression: &str) -> bool {
        expression.split(" AND ").all(|part| {
            let part = part.trim_matches(['(', ')', ' ']);
            part.replace('/', " OR ")
                .split(" OR ")
                .any(|license| self.licenses.iter().any(|allowed| allowed == license.trim()))
        })
    }

    /// Violations of the rules by the packages in the output of `cargo metadata`.
    fn violations(&self, metadata: &Value) -> Vec<String> {
        let mut found = Vec::new();
        for package in metadata["packages"].as_array().map_or(&[][..], Vec::as_slice) {
            let name = package["name"].as_str().unwrap_or_default();
            let license = package["license"].as_str().unwrap_or("none");
            if !self.allows(license) {
                found.push(format!("{name}: licence {license}"));
            }
            if package["source"].as_str().is_some_and(|source| !source.starts_with("registry+")) {
                found.push(format!("{name}: source {}", package["source"]));
            }
            if self.banned.iter().any(|banned| banned == name) {
                found.push(format!("{name}: banned in deny.toml"));
            }
        }
        found
    }
}

/// Violations of deny.toml by the crates that are built on this platform.
pub(crate) fn violations() -> anyhow::Result<Vec<String>> {
    let platform = format!("{}-unknown-linux-gnu", std::env::consts::ARCH);
    let words = ["metadata", "--format-version", "1", "--locked", "--filter-platform", &platform];
    let output = crate::part::cargo(&words).output()?;
    anyhow::ensure!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let rules = Rules::parse(&std::fs::read_to_string(crate::tree::root().join("deny.toml"))?)?;
    Ok(rules.violations(&serde_json::from_slice(&output.stdout)?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn expressions_are_met_or_not() {
        let rules = Rules { licenses: vec!["MIT".into(), "Apache-2.0".into()], banned: vec![] };
        for (expression, met) in [
            ("MIT", true),
            ("MIT/Apache-2.0", true),
            ("Unlicense OR MIT", true),
            ("(MIT OR Apache-2.0) AND Unicode-3.0", false),
            ("GPL-2.0-only", false),
            ("none", false),
            ("Apache-2.0 WITH LLVM-exception OR MIT", true),
        ] {
            assert_eq!(rules.allows(expression), met, "{expression}");
        }
    }

    #[test]
    fn planted_violations_are_found() {
        let text = "allow = [\"MIT\"]\ndeny = [\n    { crate = \"tokio\", reason = \"x\" },\n]\n";
        let planted = serde_json::json!({"packages": [
            {"name": "good", "license": "MIT", "source": "registry+https://example"},
            {"name": "ours", "license": "MIT", "source": null},
            {"name": "copyleft", "license": "GPL-3.0", "source": null},
            {"name": "tokio", "license": "MIT", "source": "git+https://example"},
        ]});
        let found = Rules::parse(text).unwrap().violations(&planted);
        assert_eq!(found.len(), 3, "{found:?}");
    }
}
