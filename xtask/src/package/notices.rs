//! File THIRD-PARTY: the licences of everything that is linked into the program, with their texts.

use super::bill::linked;
use anyhow::{Context, ensure};
use serde_json::Value;
use std::collections::BTreeMap;
use std::fmt::Write;
use std::path::Path;

const HEAD: &str = "\
Works of others in weft, and their licences
===========================================

weft itself is under MIT or Apache-2.0, at your choice. The program is linked statically with the
packages below, with the standard library of Rust, and with parts of glibc and libgcc.

The GNU Lesser General Public License, at the end, is that of glibc. It lets you link the program
with a changed glibc: the source of weft is available under the terms above, and `cargo xtask
package` in it does so. libgcc has an exception for programs that are compiled with GCC or LLVM.
";

/// Text of the file: a list of the packages, followed by each licence text with the packages that
/// have it.
pub(super) fn third_party(metadata: &Value) -> anyhow::Result<String> {
    let packages = crate::product::built_of(metadata, "weft-cli")?;
    let mut list = String::new();
    // Names of the packages, by licence text.
    let mut texts: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for package in super::packages(metadata) {
        let field = |name: &str| package[name].as_str().unwrap_or_default();
        if !packages.contains(field("id")) || package["source"].is_null() {
            continue;
        }
        let title = format!("{} {}", field("name"), field("version"));
        writeln!(list, "{title}: {}", field("license").replace('/', " OR "))?;
        let folder = Path::new(field("manifest_path")).parent().context("manifest_path")?;
        let found = license_texts(folder)?;
        ensure!(
            !found.is_empty()
                || ["Apache-2.0", "MIT"].iter().any(|it| field("license").contains(it)),
            "{title}: no text of its licence {}, expected LICENSE* or COPYING* in the package",
            field("license")
        );
        for text in found {
            texts.entry(text).or_default().push(title.clone());
        }
    }
    for (name, version, license) in linked()? {
        writeln!(list, "{name} {version}: {license}")?;
    }
    let mut notices = format!("{HEAD}\nPackages\n--------\n\n{list}");
    let root = crate::tree::root();
    let lesser = std::fs::read_to_string(root.join("packaging/LGPL-2.1"))?;
    let ours =
        ["LICENSE-MIT", "LICENSE-APACHE"].map(|name| std::fs::read_to_string(root.join(name)));
    let [mit, apache] = ours;
    let general = "every package that has it as a choice";
    texts.entry(tidied(&apache?)).or_default().push(general.to_owned());
    let without = "rust-std, and packages above that carry no text of their own";
    texts.entry(tidied(&mit?)).or_default().push(without.to_owned());
    let mut ordered: Vec<(&String, &Vec<String>)> = texts.iter().collect();
    ordered.sort_by_key(|(_, of)| &of[0]);
    for (text, of) in ordered {
        writeln!(notices, "\n{}\n{}\n\n{text}", of.join(", "), "-".repeat(72))?;
    }
    writeln!(notices, "\nglibc\n{}\n\n{}", "-".repeat(72), tidied(&lesser))?;
    Ok(notices)
}

/// Texts of licences in the folder of a package, by the names that they usually have.
fn license_texts(folder: &Path) -> anyhow::Result<Vec<String>> {
    let mut names = Vec::new();
    for entry in std::fs::read_dir(folder)? {
        names.push(entry?.path());
    }
    names.sort();
    let is_license = |path: &&std::path::PathBuf| {
        let name = path.file_name().unwrap_or_default().to_string_lossy().to_uppercase();
        ["COPYING", "COPYRIGHT", "LICENCE", "LICENSE", "NOTICE"]
            .iter()
            .any(|it| name.starts_with(it))
            && path.is_file()
    };
    let read = |path: &std::path::PathBuf| Ok(tidied(&std::fs::read_to_string(path)?));
    names.iter().filter(is_license).map(read).collect()
}

/// A text without spaces at the ends of its lines, so that equal licences are equal texts.
fn tidied(text: &str) -> String {
    let lines: Vec<&str> = text.lines().map(str::trim_end).collect();
    lines.join("\n").trim_matches('\n').to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_package_is_named_and_equal_texts_stand_once() {
        let metadata = crate::product::resolved().unwrap();
        let notices = third_party(&metadata).unwrap();
        for package in ["clap 4.", "rustix 1.", "zerocopy 0.8", "glibc 2.", "rust-std 1."] {
            assert!(notices.contains(&format!("\n{package}")), "{package}");
        }
        assert!(!notices.contains("\nweft-engine "), "weft is no third party");
        assert_eq!(notices.matches("Version 2.1, February 1999\n").count(), 1);
        assert!(notices.matches("Permission is hereby granted").count() >= 10);
        assert_eq!(tidied("a  \r\nb\n\n"), tidied("a\nb"));
    }
}
