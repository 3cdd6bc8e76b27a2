//! Tests of help, man pages and completions, which come from one table.

mod common;

use common::{Served, array, command, exits};
use tempfile::tempdir;

const COMMANDS: [&str; 35] = [
    "create",
    "examine",
    "detail",
    "assemble",
    "rescue",
    "image",
    "cat",
    "serve",
    "keys",
    "status",
    "top",
    "monitor",
    "metrics",
    "fail",
    "remove",
    "add",
    "re-add",
    "replace",
    "grow",
    "check",
    "repair",
    "idle",
    "wait",
    "get",
    "set",
    "explain",
    "stop",
    "sim",
    "replay",
    "merge",
    "compare",
    "reproduce",
    "demo",
    "completions",
    "man",
];

/// Words of a text that look like long options.
fn options(text: &str) -> Vec<&str> {
    text.split(|char: char| !(char.is_ascii_alphanumeric() || char == '-'))
        .filter(|word| word.len() > 3 && word.starts_with("--"))
        .collect()
}

#[test]
fn help_of_every_command_names_its_options_and_members_in_short_and_long() {
    let dir = tempdir().unwrap();
    let all = exits(dir.path(), 0, &["--help"]).out;
    for command in COMMANDS {
        assert!(all.contains(&format!("  {command} ")), "{command} in {all}");
        let long = exits(dir.path(), 0, &[command, "--help"]).out;
        let short = exits(dir.path(), 0, &[command, "-h"]).out;
        let mut defined: Vec<&str> = short
            .lines()
            .filter(|line| line.trim_start().starts_with('-'))
            .filter_map(|line| options(line).first().copied())
            .collect();
        assert!(defined.contains(&"--help"), "{command}: {short}");
        defined.retain(|option| *option != "--help");
        for option in &defined {
            assert!(long.contains(option), "{command} {option}: {long}");
        }
        if command != "completions" && command != "man" {
            assert!(long.contains("Usage: weft"), "{command}: {long}");
        }
        // An option named in a help text exists in this command, in another command, or in mdadm.
        let foreign = [
            "--costs",
            "--examine",
            "--detail",
            "--read-only",
            "--run",
            "--force-dirty",
            // An option of serve, named with the knob that it sets.
            "--group",
            "--members",
            "--wait",
            "--write",
            // Options of sim and replay; merge joins their results.
            "--list",
            "--part",
            "--sweep",
        ];
        // The table of states mentions options of all commands.
        let (own, _) = long.split_once("Refused states:").unwrap_or((&long, ""));
        for option in options(own) {
            let known =
                defined.contains(&option) || option == "--help" || foreign.contains(&option);
            assert!(known, "{command} speaks of {option}, which it does not have: {long}");
        }
    }
}

#[test]
fn help_has_help_too() {
    let dir = tempdir().unwrap();
    for option in ["--help", "-h", "help"] {
        let text = exits(dir.path(), 0, &["help", option]);
        assert!(text.out.contains("Usage: weft help [COMMAND]..."), "{option}: {}", text.out);
        assert_eq!(text.err, "", "{option}");
    }
    let serve = exits(dir.path(), 0, &["serve", "--help"]).out;
    for words in [["help", "serve", "--help"], ["help", "serve", "-h"], ["help", "--help", "serve"]]
    {
        assert_eq!(exits(dir.path(), 0, &words).out, serve, "{words:?}");
    }
    // Other options are refused as before.
    for words in [&["help", "--members"][..], &["help", "absent", "--help"]] {
        let text = exits(dir.path(), 2, words).err;
        assert!(text.contains("unrecognized subcommand"), "{words:?}: {text}");
    }
}

#[test]
fn commands_print_json_unless_their_output_has_another_form() {
    let dir = tempdir().unwrap();
    // The standard output of these commands has another format.
    let speechless = ["cat", "serve", "top", "metrics", "completions", "man"];
    for command in COMMANDS {
        let short = exits(dir.path(), 0, &[command, "-h"]).out;
        assert_eq!(short.contains("--json"), !speechless.contains(&command), "{command}");
    }
}

#[test]
fn every_command_that_has_json_prints_it_when_it_fails() {
    let dir = tempdir().unwrap();
    std::fs::write(dir.path().join("small"), [0; 512]).unwrap();
    // Calls that fail inside of the command, with their exit status.
    let failing: [(&str, &[&str], i32); 29] = [
        ("create", &["-l", "7", "-n", "2", "a", "b"], 2),
        ("examine", &["absent"], 1),
        ("detail", &["absent"], 1),
        ("assemble", &["absent"], 1),
        ("rescue", &["absent"], 1),
        ("image", &["absent", "absent2"], 1),
        ("keys", &["absent"], 1),
        ("status", &["absent"], 1),
        ("monitor", &["--delay", "0"], 2),
        ("fail", &["absent", "m"], 1),
        ("remove", &["absent", "m"], 1),
        ("add", &["absent", "m"], 1),
        ("re-add", &["absent", "m"], 1),
        ("replace", &["absent", "m"], 1),
        ("grow", &["absent", "--raid-devices", "5"], 1),
        ("check", &["absent"], 1),
        ("repair", &["absent"], 1),
        ("idle", &["absent"], 1),
        ("wait", &["absent"], 1),
        ("get", &["absent"], 1),
        ("set", &["absent", "a=b"], 1),
        ("explain", &["0", "--members", "absent"], 1),
        ("stop", &["absent"], 1),
        ("sim", &["absent"], 1),
        ("replay", &["absent"], 1),
        ("merge", &["absent"], 1),
        ("compare", &["absent", "absent"], 1),
        ("reproduce", &["absent"], 2),
        ("demo", &["absent"], 2),
    ];
    let speechless = ["cat", "serve", "top", "metrics", "completions", "man"];
    for command in COMMANDS.iter().filter(|command| !speechless.contains(command)) {
        let (_, arguments, status) = failing
            .iter()
            .find(|row| row.0 == *command)
            .unwrap_or_else(|| panic!("{command}: no call that fails"));
        // The failing call itself, and with an option unknown to clap.
        let none: &[&str] = &[];
        for (more, status) in [(none, *status), (&["--no-such-option"], 2)] {
            let line = [&[*command, "--json"][..], arguments, more].concat();
            let text = exits(dir.path(), status, &line);
            let value: serde_json::Value = serde_json::from_str(&text.out)
                .unwrap_or_else(|error| panic!("{line:?}: {error}: {:?}", text.out));
            let schema = value["schema"].as_str().unwrap();
            if schema == "weft.error/1" {
                assert_eq!(value["exit"], status, "{line:?}");
                let message = value["error"].as_str().unwrap();
                assert!(text.err.contains(message), "{line:?}: {message}: {}", text.err);
            } else {
                // A report that contains the error.
                assert!(text.out.contains("absent"), "{line:?}: {}", text.out);
            }
        }
        // Without --json, standard output is empty: messages go to standard error.
        let plain = exits(dir.path(), *status, &[&[*command][..], arguments].concat());
        assert!(!plain.out.contains("weft.error"), "{command}: {}", plain.out);
    }
}

#[test]
fn every_knob_is_in_the_help_of_get_and_set() {
    let dir = tempdir().unwrap();
    for command in ["get", "set"] {
        let text = exits(dir.path(), 0, &[command, "--help"]).out;
        let text = text.split_whitespace().collect::<Vec<_>>().join(" ");
        for knob in weft_engine::knobs::TABLE {
            assert!(text.contains(knob.name) && text.contains(knob.doc), "{}", knob.name);
        }
    }
}

/// Candidates that weft offers a shell for the last of `words`.
fn offered(dir: &std::path::Path, shell: &str, words: &[&str]) -> Vec<String> {
    let mut weft = command(dir, &[&["--"], words].concat());
    weft.env("_WEFT_COMPLETE", shell).env("_CLAP_IFS", "\n");
    weft.env("_CLAP_COMPLETE_INDEX", (words.len() - 1).to_string());
    let output = weft.output().unwrap();
    assert!(output.status.success(), "{words:?}: {}", String::from_utf8_lossy(&output.stderr));
    let out = String::from_utf8(output.stdout).unwrap();
    // fish and zsh get a description behind each candidate.
    out.lines().map(|line| line.split(['\t', ':']).next().unwrap().to_owned()).collect()
}

#[test]
fn completions_know_every_command_and_knob() {
    let dir = tempdir().unwrap();
    for shell in ["bash", "zsh", "fish"] {
        let script = exits(dir.path(), 0, &["completions", shell]).out;
        let asks = script.replace('"', "").contains(&format!("_WEFT_COMPLETE={shell} "));
        assert!(asks, "{script}");
        let commands = offered(dir.path(), shell, &["weft", ""]);
        for command in COMMANDS {
            assert!(commands.contains(&command.to_owned()), "{command} in {shell}");
        }
        for (words, option) in [
            (["weft", "create", "--raid"], "--raid-devices"),
            (["weft", "serve", "--force-d"], "--force-dirty"),
            (["weft", "check", "--no"], "--no-wait"),
        ] {
            assert_eq!(offered(dir.path(), shell, &words), [option], "{shell}");
        }
        for row in weft_engine::knobs::TABLE {
            let knob = offered(dir.path(), shell, &["weft", "set", "tour", row.name]);
            assert!(knob.contains(&format!("{}=", row.name)), "{} in {shell}: {knob:?}", row.name);
        }
    }
    let values = offered(dir.path(), "bash", &["weft", "serve", "--set", "scheduler=m"]);
    assert_eq!(values, ["scheduler=mq-deadline"]);
    assert_eq!(offered(dir.path(), "bash", &["weft", "stop", "t"]), Vec::<String>::new());
    exits(dir.path(), 2, &["completions", "tcsh"]);
}

#[test]
fn completions_know_running_volumes_and_their_members() {
    let dir = array();
    let path = dir.path();
    let served = Served::start(path, &["a", "b", "c"]);
    for shell in ["bash", "zsh", "fish"] {
        assert_eq!(offered(path, shell, &["weft", "stop", "v"]), ["vol"], "{shell}");
        let members = offered(path, shell, &["weft", "fail", "vol", ""]);
        let labels: Vec<String> =
            ["a", "b", "c"].iter().map(|name| path.join(name).display().to_string()).collect();
        let members: Vec<&String> = members.iter().filter(|it| !it.starts_with('-')).collect();
        assert_eq!(members, labels.iter().collect::<Vec<_>>(), "{shell}");
    }
    drop(served);
}

#[test]
fn man_writes_a_page_for_every_command() {
    let dir = tempdir().unwrap();
    let page = exits(dir.path(), 0, &["man"]).out;
    assert!(page.contains(".TH weft 1"), "{page}");
    exits(dir.path(), 0, &["man", "pages/man1"]);
    for command in COMMANDS {
        let path = dir.path().join(format!("pages/man1/weft-{command}.1"));
        let page = std::fs::read_to_string(&path).unwrap();
        // roff escapes a hyphen like this.
        let name = command.replace('-', "\\-");
        assert!(page.contains(&format!("weft\\-{name}")), "{command}: {page}");
        assert!(page.contains(&format!("\\&weft {name}")), "{command}: {page}");
        assert!(!page.contains("EXTRA"), "{command}: {page}");
        assert!(page.contains(".SH \"EXAMPLES\"\n.TP\n\\fB\\&weft "), "{command}: {page}");
        assert!(page.is_ascii(), "{command}: {page}");
        let talks = page.contains("control socket of a running volume");
        assert!(!talks || page.contains(".SH \"ENVIRONMENT\""), "{command}: {page}");
    }
    std::fs::write(dir.path().join("file"), "").unwrap();
    let text = exits(dir.path(), 1, &["man", "file"]).err;
    assert!(text.contains("no directory"), "{text}");
    let text = exits(dir.path(), 1, &["man", "/dev/null/x"]).err;
    assert!(text.starts_with("weft: /dev/null/x: "), "{text}");
}
