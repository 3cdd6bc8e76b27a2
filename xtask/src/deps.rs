//! Order of the crates: dependencies point downwards only.
//!
//! [`ALLOWED`] has the same edges as the drawing in ARCHITECTURE.md. A commit that adds an edge
//! changes both, and nothing else. Development dependencies obey the order as well, because a test
//! belongs above the code that it tests.

use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};

/// Each crate with the crates of this workspace that it may name, the latter without the prefix
/// `weft-`.
const ALLOWED: &[(&str, &str)] = &[
    ("weft-bench", "engine export lab nbd ondisk parity runtime sim terminal testing units"),
    (
        "weft-cli",
        "engine export files fuse lab nbd ondisk parity runtime sim terminal testing units",
    ),
    ("weft-compute", "engine parity units"),
    // No crate may name weft-crash, because no product contains the crash simulator.
    ("weft-crash", "compute engine ondisk parity sim units"),
    ("weft-engine", "ondisk units"),
    ("weft-export", "engine fuse nbd ondisk runtime testing units"),
    ("weft-files", "ondisk testing units"),
    ("weft-fuse", "files"),
    ("weft-lab", "engine ondisk sim testing units"),
    ("weft-nbd", "testing units"),
    ("weft-ondisk", "testing units"),
    ("weft-parity", "units"),
    ("weft-runtime", "compute engine ondisk parity testing units"),
    ("weft-sim", "engine ondisk testing units"),
    ("weft-terminal", ""),
    // weft-testing is for development only, as
    // `products_are_without_test_code_and_a_planted_one_is_found` checks.
    ("weft-testing", ""),
    ("weft-units", ""),
    ("xtask", "testing units"),
];

/// Each crate in `metadata` (from `cargo metadata --no-deps`) with the crates of the workspace that
/// it depends on.
fn edges(metadata: &Value) -> BTreeMap<&str, BTreeSet<&str>> {
    fn names(list: &Value) -> impl Iterator<Item = &str> {
        list.as_array().into_iter().flatten().filter_map(|item| item["name"].as_str())
    }
    let ours: BTreeSet<&str> = names(&metadata["packages"]).collect();
    let packages = metadata["packages"].as_array().into_iter().flatten();
    let of_package = packages.filter_map(|package| {
        let from = package["name"].as_str()?;
        let to = names(&package["dependencies"]).filter(|to| ours.contains(to) && *to != from);
        Some((from, to.collect()))
    });
    of_package.collect()
}

/// Whether the list `may` of [`ALLOWED`] has a crate.
fn has(may: &str, to: &str) -> bool {
    may.split(' ').any(|it| it == to.strip_prefix("weft-").unwrap_or(to))
}

/// Dependencies in `metadata` that the table does not allow.
pub(crate) fn edges_forbidden(metadata: &Value) -> Vec<String> {
    let allowed: BTreeMap<&str, &str> = ALLOWED.iter().copied().collect();
    let mut forbidden = Vec::new();
    for (from, named) in edges(metadata) {
        let Some(may) = allowed.get(from) else {
            forbidden.push(format!("{from} is not in the table of xtask/src/deps.rs"));
            continue;
        };
        let wrong = named.into_iter().filter(|to| !has(may, to));
        forbidden.extend(wrong.map(|to| format!("{from} → {to}")));
    }
    forbidden
}

/// Crates and edges of the table that `metadata` does not have.
pub(crate) fn edges_unused(metadata: &Value) -> Vec<String> {
    let edges = edges(metadata);
    let mut unused = Vec::new();
    for (from, may) in ALLOWED {
        let Some(named) = edges.get(from) else {
            unused.push(format!("{from} is in the table, and there is no such crate"));
            continue;
        };
        let is_used = |short: &&str| named.iter().any(|to| has(short, to));
        let wrong = may.split(' ').filter(|short| !short.is_empty() && !is_used(short));
        unused.extend(wrong.map(|short| format!("{from} → {short} is allowed and not used")));
    }
    unused
}

/// Output of `cargo metadata` for this workspace.
pub(crate) fn metadata() -> anyhow::Result<Value> {
    let arguments = ["metadata", "--no-deps", "--format-version", "1", "--offline"];
    let output = crate::part::cargo(&arguments).output()?;
    anyhow::ensure!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    Ok(serde_json::from_slice(&output.stdout)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_direct_dependency_has_a_reason_in_deny_toml() {
        let metadata = metadata().unwrap();
        let names = |value: &Value| -> Vec<String> {
            let items = value.as_array().unwrap().iter();
            items.map(|item| item["name"].as_str().unwrap().to_owned()).collect()
        };
        let ours = names(&metadata["packages"]);
        let packages = metadata["packages"].as_array().unwrap();
        let direct: BTreeSet<String> =
            packages.iter().flat_map(|p| names(&p["dependencies"])).collect();
        let deny = std::fs::read_to_string(crate::tree::root().join("deny.toml")).unwrap();
        let reasons: BTreeSet<&str> = deny
            .lines()
            .filter_map(|line| {
                line.strip_prefix("# dependency ")?.split_once(": ").map(|pair| pair.0)
            })
            .collect();
        let without: Vec<_> =
            direct.iter().filter(|d| !ours.contains(d) && !reasons.contains(d.as_str())).collect();
        assert!(without.is_empty(), "no reason in deny.toml for {without:?}");
    }

    #[test]
    fn crates_depend_only_downwards() {
        let metadata = metadata().unwrap();
        assert_eq!(edges_forbidden(&metadata), Vec::<String>::new());
        assert_eq!(edges_unused(&metadata), Vec::<String>::new());
    }

    /// Crates that depend on weft-testing otherwise than as a development dependency.
    fn products_with_test_code(metadata: &Value) -> Vec<String> {
        let packages = metadata["packages"].as_array().unwrap().iter();
        let named = packages.flat_map(|package| {
            let of = package["name"].as_str().unwrap();
            let dependencies = package["dependencies"].as_array().unwrap().iter();
            dependencies.map(move |dependency| (of, dependency))
        });
        named
            .filter(|(of, to)| {
                *of != "xtask" && to["name"] == "weft-testing" && to["kind"] != "dev"
            })
            .map(|(of, _)| of.to_owned())
            .collect()
    }

    #[test]
    fn products_are_without_test_code_and_a_planted_one_is_found() {
        let metadata = metadata().unwrap();
        assert_eq!(products_with_test_code(&metadata), Vec::<String>::new());
        let mut planted = metadata;
        let packages = planted["packages"].as_array_mut().unwrap().iter_mut();
        let dependencies = packages.flat_map(|it| it["dependencies"].as_array_mut().unwrap());
        let mut count = 0;
        for dependency in dependencies.filter(|it| it["name"] == "weft-testing") {
            dependency["kind"] = Value::Null;
            count += 1;
        }
        assert!(count >= 4, "{count} crates name weft-testing");
        assert_eq!(products_with_test_code(&planted).len(), count - 1, "all but xtask");
    }

    /// Files of weft-export that must not name a protocol, because every protocol is to use them.
    const WITHOUT_PROTOCOL: [&str; 6] = [
        "allocation.rs",
        "connection_limit.rs",
        "hole_probes.rs",
        "record.rs",
        "session/",
        "share.rs",
    ];

    /// Folders of weft-export that are neither of the life of a request nor of a protocol.
    const OF_ALL: [&str; 1] = ["control_port"];

    /// Protocols by which clients reach volumes: modules of weft-export, and crates of parsers with
    /// the prefix `weft_`.
    const PROTOCOLS: [&str; 4] = ["fuse", "nbd", "ublk", "vhost_user"];

    /// Lines of a file that name the module or the crate of a protocol.
    fn protocols_named(file: &str, text: &str) -> Vec<String> {
        let is_name = |letter: char| letter.is_ascii_alphanumeric() || letter == '_';
        let mut found = Vec::new();
        for (line, text) in (1..).zip(text.lines()) {
            let code = text.split("//").next().unwrap_or_default();
            for word in code.split(|letter| !is_name(letter)) {
                if PROTOCOLS.contains(&word.strip_prefix("weft_").unwrap_or(word)) {
                    found.push(format!("{file}:{line} names {word}: its place is the protocol's"));
                }
            }
        }
        found
    }

    /// Folders of weft-export, of which `files` are the files, that no list here has.
    fn folders_unknown(files: &[String]) -> Vec<&str> {
        let folders: BTreeSet<&str> =
            files.iter().filter_map(|file| Some(file.split_once('/')?.0)).collect();
        let is_known = |folder: &&str| {
            let request = |it: &&str| it.strip_suffix('/') == Some(folder);
            WITHOUT_PROTOCOL.iter().any(request)
                || PROTOCOLS.contains(folder)
                || OF_ALL.contains(folder)
        };
        folders.into_iter().filter(|folder| !is_known(folder)).collect()
    }

    #[test]
    fn the_life_of_a_request_has_no_protocol_and_a_planted_one_is_found() {
        let source = "crates/weft-export/src/";
        let (mut read, mut wrong, mut files) = (0, Vec::new(), Vec::new());
        for path in crate::tree::rust_files(source) {
            let file = crate::tree::shown(&path);
            let below = file.strip_prefix(source).unwrap();
            if WITHOUT_PROTOCOL.iter().any(|of| below.starts_with(of)) {
                let text = std::fs::read_to_string(&path).unwrap();
                read += 1;
                wrong.extend(protocols_named(&file, &text));
                for planted in [
                    "use weft_nbd::Op;",
                    "use crate::ublk;",
                    "fn f(of: &super::vhost_user::Ring) {}",
                    "use weft_fuse::Mount;",
                ] {
                    let planted = format!("{text}\n{planted}\n");
                    assert_eq!(protocols_named(&file, &planted).len(), 1, "{file}");
                }
            }
            files.push(below.to_owned());
        }
        assert!(read >= WITHOUT_PROTOCOL.len() + 4, "{read} files were read");
        assert_eq!(wrong, Vec::<String>::new());
        assert_eq!(folders_unknown(&files), [""; 0]);
        files.push("raw/mod.rs".to_owned());
        assert_eq!(folders_unknown(&files), ["raw"], "a planted protocol");
        for good in ["// weft_nbd is elsewhere", "let nbd_like = Confused;", "fn refused() {}"] {
            assert_eq!(protocols_named("x", good), Vec::<String>::new());
        }
    }

    #[test]
    fn a_planted_edge_that_is_unused_is_found() {
        let mut planted = metadata().unwrap();
        let packages = planted["packages"].as_array_mut().unwrap();
        let lab = packages.iter_mut().find(|it| it["name"] == "weft-lab").unwrap();
        lab["dependencies"].as_array_mut().unwrap().retain(|it| it["name"] != "weft-sim");
        packages.retain(|it| it["name"] != "weft-terminal");
        let found = edges_unused(&planted);
        for unused in [
            "weft-lab → sim is allowed and not used",
            "weft-terminal is in the table, and there is no such crate",
            "weft-cli → terminal is allowed and not used",
        ] {
            assert!(found.iter().any(|it| it == unused), "{unused}: {found:?}");
        }
    }

    #[test]
    fn an_edge_upwards_and_an_unknown_crate_are_found() {
        let planted = serde_json::json!({"packages": [
            {"name": "weft-engine", "dependencies": [{"name": "weft-parity"}, {"name": "serde"}]},
            {"name": "weft-parity", "dependencies": []},
            {"name": "weft-new", "dependencies": []},
            {"name": "weft-bench", "dependencies": [{"name": "weft-crash"}, {"name": "weft-sim"}]},
            {"name": "weft-cli", "dependencies": [{"name": "weft-crash"}, {"name": "weft-sim"}]},
            {"name": "weft-lab", "dependencies": [{"name": "weft-crash"}, {"name": "weft-sim"}]},
            {"name": "weft-crash", "dependencies": [{"name": "weft-engine"}]},
            {"name": "weft-sim", "dependencies": [{"name": "weft-engine"}]},
        ]});
        let expected = [
            "weft-bench → weft-crash",
            "weft-cli → weft-crash",
            "weft-engine → weft-parity",
            "weft-lab → weft-crash",
            "weft-new is not in the table of xtask/src/deps.rs",
        ];
        assert_eq!(edges_forbidden(&planted), expected);
    }
}
