//! Opening of devices: only `devices/` of weft-runtime opens paths that may be devices.
//!
//! Every other line of product code that opens a file by its path must be in a file of [`ALLOWED`],
//! which tells the kind of file that is opened instead. Tests do not count.

use crate::tree;

/// Files and folders below `crates/` that open paths, each with the kind of file that they open.
const ALLOWED: &[(&str, &str)] = &[
    ("weft-bench/src/costs/measure.rs", "/proc"),
    ("weft-bench/src/driven.rs", "files that it makes, in a new folder"),
    ("weft-bench/src/member.rs", "a folder, to ask for its file system"),
    ("weft-bench/src/nbd/server.rs", "/proc"),
    ("weft-bench/src/weft.rs", "the log of the weft that it starts"),
    ("weft-cli/src/command/daemon/members.rs", "/proc"),
    ("weft-cli/src/command/daemon/mod.rs", "the lock beside the control sockets"),
    (
        "weft-cli/src/command/daemon/record.rs",
        "records of checks, in a folder of their own; anything but a file is refused",
    ),
    ("weft-cli/src/command/daemon/server.rs", "/proc"),
    ("weft-cli/src/command/demo/mod.rs", "a file that demo has made, to damage it"),
    ("weft-cli/src/command/doctor/machine.rs", "/proc"),
    ("weft-cli/src/command/merge.rs", "results of --part"),
    ("weft-cli/src/mdadm_conf.rs", "mdadm.conf; anything but a file is refused"),
    ("weft-cli/src/simulated/source.rs", "what a page repeats; anything but a file is left out"),
    ("weft-cli/src/volumes_file.rs", "weft.toml and its folder; anything but a file is refused"),
    ("weft-crash/src/kept.rs", "scripts of failures"),
    ("weft-export/src/fuse/mount_point.rs", "a new file, to mount on"),
    ("weft-export/src/keys.rs", "certificates and keys; anything but a file is refused"),
    ("weft-files/src/copy/folder.rs", "a folder that is copied to, and new files in it"),
    ("weft-lab/src/compare/formats.rs", "results of fio and others"),
    ("weft-lab/src/experiment/bounds.rs", "results"),
    ("weft-lab/src/experiment/results.rs", "results"),
    ("weft-lab/src/job/parse.rs", "job files; anything but a file is refused"),
    ("weft-lab/src/replay/trace.rs", "traces"),
    ("weft-runtime/src/devices/", "members"),
    ("weft-runtime/src/overlay/", "overlays; anything but a file is refused"),
    ("weft-runtime/src/mapfile.rs", "maps of ddrescue"),
    ("weft-runtime/src/ublk/", "devices that it has made, and those that make them"),
    ("weft-runtime/src/unwritten.rs", "the mark beside a control socket"),
    ("weft-sim/src/drive/model.rs", "models of drives"),
    ("weft-sim/src/machine/cost_table.rs", "tables of costs"),
    ("weft-terminal/src/result_file.rs", "result files; a block device is refused"),
    ("weft-terminal/src/terminal.rs", "/proc"),
];

/// Calls that open a path. `OpenOptions::new()` without an argument is the type of std; that of the
/// runtime has an argument.
const CALLS: &[&str] = &[
    "File::create",
    "File::open",
    "File::options",
    "OpenOptions::new()",
    "fs::OpenOptions",
    "fs::copy(",
    "fs::open(",
    "fs::openat",
    "fs::read(",
    "fs::read_to_string(",
    "fs::write(",
];

/// Lines of a source text, up to its tests, that open a path: (1-based number, call).
fn opens(source: &str) -> Vec<(usize, &'static str)> {
    let is_word = |c: char| c.is_alphanumeric() || c == '_';
    let has = |code: &str, call: &str| {
        code.match_indices(call).any(|(at, _)| !code[..at].ends_with(is_word))
    };
    let lines = (1..).zip(source.lines()).take_while(|(_, line)| *line != "#[cfg(test)]");
    lines
        .filter_map(|(number, line)| {
            let code = line.split("//").next().unwrap_or_default();
            CALLS.iter().find(|call| has(code, call)).map(|call| (number, *call))
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    /// Source files of the product below `crates/`, each with its text.
    fn products() -> Vec<(String, String)> {
        let mut found = Vec::new();
        for path in tree::rust_files("crates") {
            let shown = tree::shown(&path);
            let name = shown.trim_start_matches("crates/").to_owned();
            let is_test = name.split('/').any(|part| ["tests", "tests.rs"].contains(&part));
            if name.contains("/src/") && !is_test && !name.starts_with("weft-testing/") {
                found.push((name, std::fs::read_to_string(&path).unwrap()));
            }
        }
        found
    }

    /// Messages about calls in files that are not in [`ALLOWED`], and about entries of [`ALLOWED`]
    /// for files that no longer open anything.
    fn wrong(files: &[(String, String)]) -> Vec<String> {
        let mut wrong = Vec::new();
        let mut used = BTreeSet::new();
        for (name, text) in files {
            let entry = ALLOWED.iter().find(|(of, _)| name.starts_with(of));
            for (line, call) in opens(text) {
                match entry {
                    Some((of, _)) => {
                        used.insert(*of);
                    }
                    None => wrong.push(format!(
                        "{name}:{line}: {call}: devices are opened by weft-runtime's devices/; if \
                         the path is no device, xtask/src/opens.rs says why"
                    )),
                }
            }
        }
        let gone = ALLOWED.iter().filter(|(of, _)| !used.contains(of));
        wrong.extend(gone.map(|(of, _)| format!("{of} opens nothing: xtask/src/opens.rs")));
        wrong
    }

    #[test]
    fn only_the_runtime_opens_devices_and_a_planted_call_is_found() {
        let mut files = products();
        assert!(files.len() >= 500, "{} files were read", files.len());
        assert_eq!(wrong(&files), Vec::<String>::new());
        for (of, planted, line) in [
            ("weft-cli/src/look.rs", "let it = std::fs::File::open(path)?;", 1),
            ("weft-cli/src/new_array/write.rs", "use std::fs::OpenOptions;", 1),
            ("weft-export/src/serve.rs", "\nlet it = rustix::fs::open(path, flags, mode)?;", 2),
            ("weft-runtime/src/serve/worker.rs", "OpenOptions::new().read(true).open(path)", 1),
        ] {
            let file = files.iter_mut().find(|(name, _)| name == of).unwrap();
            let before = std::mem::replace(&mut file.1, format!("{planted}\n"));
            let found = wrong(&files);
            assert_eq!(found.len(), 1, "{found:?}");
            assert!(found[0].starts_with(&format!("{of}:{line}: ")), "{found:?}");
            files.iter_mut().find(|(name, _)| name == of).unwrap().1 = before;
        }
        files.retain(|(name, _)| name != "weft-terminal/src/result_file.rs");
        let found = wrong(&files);
        assert_eq!(found, ["weft-terminal/src/result_file.rs opens nothing: xtask/src/opens.rs"]);
    }

    #[test]
    fn comments_tests_and_the_options_of_the_runtime_do_not_count() {
        let source = "// File::open\nOpenOptions::new(access)\nFreshFile::create_new(path)\n\
                      #[cfg(test)]\nmod tests { File::open }\n";
        assert_eq!(opens(source), []);
    }
}
