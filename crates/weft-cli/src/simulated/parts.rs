//! Parts of a sweep, which run alone: the command lines of `--list`, the result of `--part`, and
//! the output of `weft merge`.

use std::ffi::OsString;
use std::io::Write;
use std::path::Path;
use std::str::FromStr;

use weft_lab::simulate::part::{Description, Joined, Part, SCHEMA};
use weft_terminal::outcome::{Exit, Failure, Outcome as Ending};
use weft_terminal::terminal::{print_json, quoted, stdout};

use super::Simulated;
use super::found::Found;
use super::settings::Settings;
use super::sweep::{Compared, Form, print_found};

/// Value `I/N` of `--part`: number of a part, and number of parts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct PartArg([usize; 2]);

impl FromStr for PartArg {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let numbers = text.split_once('/').map(|(number, count)| (number.parse(), count.parse()));
        match numbers {
            Some((Ok(number), Ok(count))) if (1..=count).contains(&number) => {
                Ok(Self([number, count]))
            }
            _ => Err(format!("found {text:?}, expected I/N, with I from 1 to N")),
        }
    }
}

impl PartArg {
    /// Number of the part, and number of parts. A sweep with several settings is refused.
    pub(super) fn of(self, settings: &Settings) -> Result<[usize; 2], Failure> {
        match settings.volumes.len() {
            1 => Ok(self.0),
            count => Err(Failure::usage(format!(
                "--part: found {count} settings, expected one; take a command line of --list"
            ))),
        }
    }
}

/// Prints a command line for each setting, to be run in the folder in which this command runs.
pub(super) fn print_list(settings: &Settings) -> Ending {
    let mut out = stdout();
    let words: Vec<OsString> = std::env::args_os().collect();
    let (begin, rest) = words.split_at(words.len().min(COMMAND_WORDS));
    let count = settings.values.len();
    for (at, values) in settings.values.iter().enumerate() {
        let mut line = begin.to_vec();
        line.push(format!("--part={}/{count}", at + 1).into());
        let swept = settings.knobs.iter().zip(values);
        line.extend(swept.map(|(knob, value)| format!("--sweep={knob}={value}").into()));
        line.extend(in_common(rest));
        let line: Vec<String> = line.iter().map(|word| quoted(word)).collect();
        writeln!(out, "{}", line.join(" "))?;
    }
    Ok(Exit::Done)
}

/// Number of words before the arguments: the program and its subcommand.
const COMMAND_WORDS: usize = 2;

/// Words of a command line that all parts of a sweep have in common, without options for the form
/// in which results are printed and kept.
fn in_common(words: &[OsString]) -> Vec<OsString> {
    let mut kept = Vec::new();
    let mut words = words.iter();
    while let Some(word) = words.next() {
        let text = word.to_string_lossy();
        if text == "--" {
            kept.push(word.clone());
            kept.extend(words.by_ref().cloned());
        } else if WITH_VALUE.contains(&&*text) {
            // The value is a word of its own.
            words.next();
        } else {
            let name = text.split_once('=').map(|(name, _)| name);
            let is_kept = !name.is_some_and(|name| WITH_VALUE.contains(&name));
            kept.extend((is_kept && !WITHOUT_VALUE.contains(&&*text)).then(|| word.clone()));
        }
    }
    kept
}

/// Options with a value that the parts of a sweep do not have in common.
const WITH_VALUE: [&str; 4] = ["--part", "--report", "--results", "--sweep"];

/// Options without a value that the parts of a sweep do not have in common.
const WITHOUT_VALUE: [&str; 4] = ["--csv", "--force", "--json", "--list"];

/// Command line, without the program, that gives the page of a whole sweep: the words that the
/// parts have in common, the swept values, and the path of the page.
pub(super) fn command(words: &[String], sweeps: Vec<String>, page: &Path) -> Vec<OsString> {
    let words: Vec<OsString> = words.iter().map(OsString::from).collect();
    // Options end where arguments that may look like options begin.
    let end = words.iter().position(|word| word == "--").unwrap_or(words.len());
    let (options, arguments) = words.split_at(end);
    let sweeps = sweeps.into_iter().flat_map(|of| ["--sweep".to_owned(), of]);
    let mut command = options.to_vec();
    command.extend(sweeps.map(OsString::from));
    command.extend(["--report".into(), page.into()]);
    command.extend_from_slice(arguments);
    command
}

/// Describes a sweep for its output.
pub(super) fn description(
    simulated: &Simulated,
    what: &Compared,
    settings: &Settings,
) -> Description {
    let words: Vec<OsString> = std::env::args_os().skip(1).collect();
    let text = |word: &OsString| word.to_string_lossy().into_owned();
    Description {
        weft: env!("CARGO_PKG_VERSION").to_owned(),
        arguments: in_common(&words).iter().map(text).collect(),
        load: what.title.clone(),
        head: what.head.clone(),
        facts: what.facts.clone(),
        sources: what.sources.clone(),
        knobs: settings.knobs.clone(),
        cache_rule: settings.cache_rule.clone(),
        runs: simulated.runs.unwrap_or(1),
        seed: simulated.seed,
        costs: simulated.costs.clone(),
    }
}

/// Prints the result of a part, which has one setting.
pub(super) fn print_part(part: [usize; 2], of: Joined) -> Ending {
    let Joined { sweep, mut settings, swept: jobs } = of;
    if let Some(setting) = settings.pop() {
        print_json(&Part { schema: SCHEMA.to_owned(), part, setting, sweep, jobs })?;
    }
    Ok(Exit::Done)
}

/// Prints the output of the whole sweep, from its joined parts.
pub(crate) fn print_joined(form: Form, joined: Joined) -> Ending {
    if form.is_text() {
        stdout().write_all(joined.sweep.head.as_bytes())?;
    }
    print_found(form, &Found::of(joined))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_differs_between_parts_is_left_out() {
        let words = |line: &str| -> Vec<OsString> { line.split(' ').map(OsString::from).collect() };
        for (line, kept) in [
            ("j.fio --sweep a=1,2 -n 6 --list", "j.fio -n 6"),
            ("--part=1/2 --sweep=a=1 j.fio --sweep b=3 -n6", "j.fio -n6"),
            (
                "--part 1/2 --set stripe_size=4K -- --sweep --list",
                "--set stripe_size=4K -- --sweep --list",
            ),
            ("--sweeps --listed --partly", "--sweeps --listed --partly"),
            ("j.fio --json --report a.html --results=d --force -n 6", "j.fio -n 6"),
        ] {
            assert_eq!(in_common(&words(line)), words(kept), "{line}");
        }
    }

    #[test]
    fn options_of_a_page_precede_what_is_no_option() {
        for (words, whole) in [
            ("sim -n 6 j.fio", "sim -n 6 j.fio --sweep a=1,2 --report p"),
            ("sim -n 6 -- --j.fio", "sim -n 6 --sweep a=1,2 --report p -- --j.fio"),
        ] {
            let words: Vec<String> = words.split(' ').map(str::to_owned).collect();
            let command = command(&words, vec!["a=1,2".to_owned()], Path::new("p"));
            assert_eq!(command.join(" ".as_ref()), whole, "{words:?}");
        }
    }

    #[test]
    fn a_part_is_one_of_many() {
        assert_eq!("2/3".parse(), Ok(PartArg([2, 3])));
        for text in ["", "2", "0/3", "4/3", "1/0", "a/3", "-1/3", "1/2/3"] {
            assert!(text.parse::<PartArg>().is_err(), "{text}");
        }
    }
}
