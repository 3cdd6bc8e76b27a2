//! Translation of mdadm's command lines: the line of weft that does the same.
//!
//! weft has subcommands where mdadm has options for modes. A command line that begins as one of
//! mdadm's is not run, because weft names arrays in another way; the message gives the line to run.
//!
//! Source   mdadm(8)

use std::ffi::OsString;
use std::path::Path;

use weft_terminal::terminal::quoted;

/// Options of mdadm for one action, with the command of weft for that.
struct Row {
    options: &'static [&'static str],
    /// Command line of weft for the same action, with words such as `TARGET` or `MEMBER…` to be
    /// replaced.
    weft: &'static str,
}

const fn row(options: &'static [&'static str], weft: &'static str) -> Row {
    Row { options, weft }
}

/// Actions of mdadm by precedence. The first row with an option of the command line is used: modes
/// come before actions on an array, and both before options that accompany a mode.
const TABLE: &[Row] = &[
    row(&["--assemble", "-A"], "weft serve MEMBER…"),
    row(&["--create", "-C"], "weft create --level LEVEL --raid-devices COUNT MEMBER…"),
    row(&["--detail", "-D"], "weft detail TARGET"),
    row(&["--examine", "-E"], "weft examine MEMBER…"),
    row(&["--examine-bitmap", "-X"], "weft examine MEMBER…"),
    row(
        &["--raid-devices", "-n"],
        "weft grow TARGET --raid-devices COUNT (of an array that exists)",
    ),
    row(&["--grow", "-G"], "weft grow TARGET; weft set TARGET bitmap=internal, or none"),
    row(&["--monitor", "--follow", "-F"], "weft monitor"),
    row(&["--stop", "-S"], "weft stop TARGET"),
    row(&["--wait", "-W"], "weft wait TARGET"),
    row(&["--zero-superblock"], "weft create --force MEMBER… (a new array; nothing only erases)"),
    row(&["--add", "--add-spare", "-a"], "weft add TARGET MEMBER…"),
    row(&["--replace"], "weft replace TARGET MEMBER…"),
    row(&["--re-add"], "weft re-add TARGET MEMBER…"),
    row(&["--fail", "--set-faulty", "-f"], "weft fail TARGET MEMBER…"),
    row(&["--remove", "-r"], "weft remove TARGET MEMBER…"),
    row(&["--run", "-R"], "weft serve --run MEMBER…"),
    row(&["--scan", "-s"], "weft rescue DISK… (arrays on disks), weft status (running volumes)"),
];

/// Message about a command line of mdadm, with the line of weft for the same action; `None` if
/// `words`, the command line without the program, are not one of mdadm's.
pub(crate) fn told(words: &[OsString]) -> Option<String> {
    let texts: Vec<&str> = words.iter().map(|word| word.to_str().unwrap_or_default()).collect();
    // A mode stands first, or after the device of the array.
    let first = texts.first().copied()?;
    if !(first.starts_with('-') || first.starts_with("/dev/")) {
        return None;
    }
    let given = |row: &&Row| row.options.iter().any(|option| texts.contains(option));
    let found = TABLE.iter().find(given)?;
    let option = found.options.iter().find(|option| texts.contains(option))?;
    let devices: Vec<&OsString> = words
        .iter()
        .filter(|word| word.to_str().is_none_or(|text| !text.starts_with('-') && text != "missing"))
        .collect();
    let is_array = |word: &OsString| {
        let name = Path::new(word).file_name().unwrap_or_default().to_string_lossy();
        Path::new(word).starts_with("/dev/md") || name.starts_with("md")
    };
    let name_of = |word: &&OsString| quoted(Path::new(word).file_name().unwrap_or_default());
    let (arrays, members): (Vec<_>, Vec<_>) = devices.iter().partition(|word| is_array(word));
    let mut line = found.weft.to_owned();
    if let Some(array) = arrays.first() {
        line = line.replace("TARGET", &name_of(array));
    }
    if !members.is_empty() {
        let members: Vec<String> = members.iter().map(|word| quoted(word)).collect();
        line = line.replace("MEMBER…", &members.join(" "));
    }
    Some(format!("{option} is an option of mdadm; here: {line}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_line_of_mdadm_has_one_of_weft() {
        for (mdadm, weft) in [
            (
                "--assemble /dev/md0 /dev/sda1 /dev/sdb1",
                "--assemble: weft serve /dev/sda1 /dev/sdb1",
            ),
            ("--assemble --scan", "--assemble: weft serve MEMBER…"),
            ("-E /dev/sda1", "-E: weft examine /dev/sda1"),
            ("--detail --export /dev/md/home", "--detail: weft detail home"),
            ("-D /dev/md127", "-D: weft detail md127"),
            ("--stop /dev/md0", "--stop: weft stop md0"),
            ("/dev/md0 --fail /dev/sdb1", "--fail: weft fail md0 /dev/sdb1"),
            ("/dev/md0 --remove failed", "--remove: weft remove md0 failed"),
            ("--examine --scan", "--examine: weft examine MEMBER…"),
            (
                "--detail-platform --scan",
                "--scan: weft rescue DISK… (arrays on disks), weft status (running volumes)",
            ),
            (
                "--create /dev/md0 --level=1 --raid-devices=2 a b",
                "--create: weft create --level LEVEL --raid-devices COUNT a b",
            ),
        ] {
            let words: Vec<OsString> = mdadm.split(' ').map(OsString::from).collect();
            let expected = weft.replacen(": ", " is an option of mdadm; here: ", 1);
            assert_eq!(told(&words), Some(expected), "{mdadm}");
        }
        for own in ["--help", "-V", "status", "add vol --add", "serve --run a", ""] {
            let words: Vec<OsString> = own.split(' ').map(OsString::from).collect();
            assert_eq!(told(&words), None, "{own}");
        }
    }

    /// Every line begins with a command of weft, and its options are those of the command.
    #[test]
    fn the_lines_are_those_of_commands_that_exist() {
        use clap::CommandFactory;
        let commands = crate::Cli::command();
        for row in TABLE {
            let words: Vec<&str> = row.weft.split(' ').collect();
            let command = commands.find_subcommand(words[1]);
            let command = command.unwrap_or_else(|| panic!("{}: no such command", row.weft));
            for option in words.iter().filter_map(|word| word.strip_prefix("--")) {
                let known = command.get_arguments().any(|it| it.get_long() == Some(option));
                assert!(known, "{}: no option {option}", row.weft);
            }
        }
    }
}
