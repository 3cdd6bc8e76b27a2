//! Files of the packages, by path below `/usr`, and the description of the package.

use super::notices;
use super::tarball::gzip;
use crate::tree::root;
use anyhow::{Context, ensure};
use serde_json::Value;
use std::collections::BTreeSet;
use std::path::Path;
use std::process::Command;

/// A file of a package.
pub(super) struct File {
    /// Path below the prefix, without a slash in front.
    pub(super) path: String,
    /// Permissions.
    pub(super) mode: u32,
    pub(super) bytes: Vec<u8>,
}

/// Content of a package: description and files of the product.
pub(super) struct Product {
    pub(super) version: String,
    pub(super) description: String,
    pub(super) license: String,
    /// Files in ascending order of their paths.
    pub(super) files: Vec<File>,
}

/// Completion scripts: the shell, and the path at which the shell searches its script.
const COMPLETIONS: [(&str, &str); 3] = [
    ("bash", "share/bash-completion/completions/weft"),
    ("fish", "share/fish/vendor_completions.d/weft.fish"),
    ("zsh", "share/zsh/site-functions/_weft"),
];

/// Files of the project and their paths in a package.
const COPIES: [(&str, &str); 19] = [
    ("CHANGELOG.md", "share/doc/weft/CHANGELOG.md"),
    ("LICENSE-APACHE", "share/doc/weft/LICENSE-APACHE"),
    ("LICENSE-MIT", "share/doc/weft/LICENSE-MIT"),
    ("README.md", "share/doc/weft/README.md"),
    ("packaging/grafana.json", "share/doc/weft/grafana.json"),
    ("packaging/protection.conf", "lib/systemd/system/weft.service.d/protection.conf"),
    ("packaging/protection.conf", "lib/systemd/system/weft@.service.d/protection.conf"),
    ("packaging/protection.conf", "lib/systemd/user/weft.service.d/protection.conf"),
    ("packaging/protection.conf", "lib/systemd/user/weft@.service.d/protection.conf"),
    ("packaging/system.conf", "lib/systemd/system/weft.service.d/system.conf"),
    ("packaging/system.conf", "lib/systemd/system/weft@.service.d/system.conf"),
    ("packaging/weft-metrics.service", "lib/systemd/system/weft-metrics.service"),
    ("packaging/weft-metrics.service", "lib/systemd/user/weft-metrics.service"),
    ("packaging/weft-monitor.service", "lib/systemd/system/weft-monitor.service"),
    ("packaging/weft-monitor.service", "lib/systemd/user/weft-monitor.service"),
    ("packaging/weft.service", "lib/systemd/system/weft.service"),
    ("packaging/weft.service", "lib/systemd/user/weft.service"),
    ("packaging/weft@.service", "lib/systemd/system/weft@.service"),
    ("packaging/weft@.service", "lib/systemd/user/weft@.service"),
];

impl Product {
    /// Gathers the files: the program, its own output (man pages and completions), and texts of the
    /// project. `metadata` is the output of `cargo metadata`; man pages are written below `folder`.
    pub(super) fn gather(program: &Path, metadata: &Value, folder: &Path) -> anyhow::Result<Self> {
        let weft = super::package_of(metadata, "weft-cli")?;
        let text = |field: &str| {
            let text = weft[field].as_str().map(str::to_owned);
            text.with_context(|| format!("weft-cli: no {field} in its manifest"))
        };
        let mut files = Vec::new();
        let mut add = |path: &str, mode: u32, bytes: Vec<u8>| {
            files.push(File { path: path.to_owned(), mode, bytes });
        };
        let read = |path: &Path| {
            std::fs::read(path).with_context(|| format!("{}: cannot be read", path.display()))
        };
        add("bin/weft", 0o755, read(program)?);
        for (shell, path) in COMPLETIONS {
            add(path, 0o644, printed(program, &["completions", shell])?);
        }
        for (from, path) in COPIES {
            add(path, 0o644, read(&root().join(from))?);
        }
        for page in crate::tree::files("docs", |path| path.is_file()) {
            let shown = crate::tree::shown(&page);
            add(&format!("share/doc/weft/{shown}"), 0o644, read(&page)?);
        }
        let pages = folder.join("man1");
        let _ = std::fs::remove_dir_all(&pages);
        printed(program, &["man", &pages.to_string_lossy()])?;
        for entry in std::fs::read_dir(&pages)? {
            let path = entry?.path();
            let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
            add(&format!("share/man/man1/{name}.gz"), 0o644, gzip(&read(&path)?)?);
        }
        std::fs::remove_dir_all(&pages)?;
        add("share/doc/weft/THIRD-PARTY", 0o644, notices::third_party(metadata)?.into_bytes());
        files.sort_by(|a, b| a.path.cmp(&b.path));
        let description = text("description")?;
        let description =
            description.strip_prefix("weft: ").map_or(description.clone(), str::to_owned);
        Ok(Self { version: text("version")?, description, license: text("license")?, files })
    }
}

/// Standard output of the program.
fn printed(program: &Path, words: &[&str]) -> anyhow::Result<Vec<u8>> {
    let output = Command::new(program).args(words).output();
    let output = output.with_context(|| format!("{}: does not start", program.display()))?;
    let said = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "weft {}: {said}", words.join(" "));
    Ok(output.stdout)
}

/// All folders that `paths` lie in, in ascending order, without `.` and the root.
pub(super) fn folders<'a>(paths: impl Iterator<Item = &'a str>) -> BTreeSet<String> {
    let of = |path: &'a str| path.match_indices('/').map(move |(at, _)| path[..at].to_owned());
    let mut found: BTreeSet<String> = paths.flat_map(of).collect();
    found.retain(|folder| !folder.is_empty() && folder != ".");
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn folders_come_once_and_before_what_is_in_them() {
        let paths = ["./usr/bin/weft", "./usr/share/man/weft.1", "./control", "/etc/x"];
        let found: Vec<String> = folders(paths.into_iter()).into_iter().collect();
        assert_eq!(found, ["./usr", "./usr/bin", "./usr/share", "./usr/share/man", "/etc"]);
    }
}
