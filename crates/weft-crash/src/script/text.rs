//! Text form of a script: printed with every failure, stored in files and parsed for replay.
//!
//! ```text
//! profile cuts
//! order random
//! level raid5
//! members 4
//! chunk 8
//! seed 17
//! knob writes=gather
//! steps
//!   ask 1 write 4096+8192 sync fua
//!   steps 3
//!   cut subset
//! ```
//!
//! A line is a name and its value. Options and knobs that differ from those of [`Options::new`]
//! come before `steps`, and the steps follow, one per line. A line that begins with `#` is a
//! comment. A stored text always gives the same script, while a later version of the generator may
//! draw another script from the same seed.

mod options;
mod step;

use std::collections::BTreeSet;
use std::fmt;
use std::str::FromStr;
use std::sync::Mutex;

use thiserror::Error;
use weft_engine::knobs::{Knobs, TABLE};
use weft_units::Sectors;

use super::{Script, ScriptStep};
use crate::options::Options;
use crate::world::Order;

/// Error of a line that is not valid in a script.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
#[error("line {line}: found {found:?}, expected {expected}")]
pub struct ScriptError {
    /// Number of the line, from 1; the number after the last line if a line is missing.
    pub line: usize,
    /// Text of the line; empty if a line is missing.
    pub found: String,
    /// Description of what is valid in place of the line.
    pub expected: String,
}

impl fmt::Display for Script {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { profile, options, order, steps, within_promises, assembles } = self;
        writeln!(f, "profile {profile}")?;
        writeln!(f, "order {}", name_of(&ORDERS, *order))?;
        for (name, kept) in [("within-promises", within_promises), ("assembles", assembles)] {
            if !kept {
                writeln!(f, "{name} no")?;
            }
        }
        for (name, value) in options::changed(options) {
            writeln!(f, "{name} {value}")?;
        }
        for (name, value) in knobs(&Options::new(options.level, 2, Sectors(8)).knobs, options) {
            writeln!(f, "knob {name}={value}")?;
        }
        writeln!(f, "steps")?;
        steps.iter().try_for_each(|step| writeln!(f, "  {step}"))
    }
}

/// Settings that turn the knobs `reached` into the knobs of the options, in an order in which the
/// engine accepts them: the value of one knob may bound or change another.
fn knobs(reached: &Knobs, options: &Options) -> Vec<(&'static str, String)> {
    let (mut reached, mut lines) = (*reached, Vec::new());
    for _ in 0..3 {
        for row in TABLE {
            let wanted = options.knobs.show(row.name).unwrap_or_default();
            if reached.show(row.name).as_ref() == Some(&wanted) {
                continue;
            }
            if let Ok(knob) = reached.parse(row.name, &wanted) {
                reached.set(knob);
                lines.push((row.name, wanted));
            }
        }
    }
    lines
}

impl FromStr for Script {
    type Err = ScriptError;

    fn from_str(text: &str) -> Result<Self, ScriptError> {
        let mut reader = Reader { head: Vec::new(), steps: Vec::new() };
        let mut lines = text.lines().zip(1..).filter(|(line, _)| says_something(line));
        let mut in_steps = false;
        for (line, number) in &mut lines {
            let line = line.trim();
            let wrong = |expected| ScriptError { line: number, found: line.to_owned(), expected };
            if in_steps {
                reader.steps.push(line.parse().map_err(wrong)?);
            } else if line == "steps" {
                in_steps = true;
            } else {
                let (name, value) = line.split_once(' ').unwrap_or((line, ""));
                reader.head.push((number, name, value.trim()));
            }
        }
        let missing = |expected: &str| ScriptError {
            line: text.lines().count() + 1,
            found: String::new(),
            expected: expected.to_owned(),
        };
        if !in_steps {
            return Err(missing("a line \"steps\" before the steps"));
        }
        reader.script(&missing)
    }
}

/// Whether a line is neither empty nor a comment.
fn says_something(line: &str) -> bool {
    let line = line.trim();
    !line.is_empty() && !line.starts_with('#')
}

/// Contents of a text: line number, name and value of each line before the steps, and the steps.
struct Reader<'a> {
    head: Vec<(usize, &'a str, &'a str)>,
    steps: Vec<ScriptStep>,
}

impl Reader<'_> {
    fn script(self, missing: &dyn Fn(&str) -> ScriptError) -> Result<Script, ScriptError> {
        let options = self.first_options(missing)?;
        let mut script = Script {
            profile: "by-hand",
            options,
            order: Order::default(),
            steps: Vec::new(),
            within_promises: true,
            assembles: true,
        };
        for (line, name, value) in &self.head {
            let found = match *value {
                "" => (*name).to_owned(),
                value => format!("{name} {value}"),
            };
            let wrong = |expected| ScriptError { line: *line, found, expected };
            script.set(name, value).map_err(wrong)?;
        }
        script.steps = self.steps;
        Ok(script)
    }

    /// Options with the level, members and chunk of the text, and with the defaults of
    /// [`Options::new`] for everything else. Returns an error if one of the three lines is missing.
    fn first_options(&self, missing: &dyn Fn(&str) -> ScriptError) -> Result<Options, ScriptError> {
        let value = |wanted: &str| {
            let line = self.head.iter().find(|(_, name, _)| *name == wanted);
            line.map(|(.., value)| *value)
                .ok_or_else(|| missing(&format!("a line \"{wanted} VALUE\" before the steps")))
        };
        // An invalid value is reported when its line is applied.
        let level = value("level")?.parse().unwrap_or(weft_ondisk::Level::Raid5);
        let members = value("members")?.parse().unwrap_or(3);
        let chunk = value("chunk")?.parse().unwrap_or(8);
        Ok(Options::new(level, members, Sectors(chunk)))
    }
}

impl Script {
    /// Applies a line that stands before the steps. The error describes what was expected.
    fn set(&mut self, name: &str, value: &str) -> Result<(), String> {
        match name {
            "profile" => self.profile = interned(value),
            "order" => self.order = named(&ORDERS, value)?,
            "within-promises" => self.within_promises = yes(value)?,
            "assembles" => self.assembles = yes(value)?,
            "knob" => {
                let (name, value) = value.split_once('=').ok_or("knob NAME=VALUE")?;
                let knobs = &mut self.options.knobs;
                knobs.set(knobs.parse(name, value).map_err(|error| error.to_string())?);
            }
            _ => options::set(&mut self.options, name, value)?,
        }
        Ok(())
    }
}

const ORDERS: [(&str, Order); 3] =
    [("fifo", Order::Fifo), ("lifo", Order::Lifo), ("random", Order::Random)];

/// Name of a value in a list of names and values.
fn name_of<T: Copy + PartialEq>(list: &[(&'static str, T)], value: T) -> &'static str {
    let (name, _) = list.iter().find(|(_, it)| *it == value).expect("every value has a name");
    name
}

/// Value of a name in a list of names and values. The error lists the valid names.
fn named<T: Copy>(list: &[(&'static str, T)], name: &str) -> Result<T, String> {
    let found = list.iter().find(|(it, _)| *it == name);
    found.map(|(_, value)| *value).ok_or_else(|| {
        let names: Vec<&str> = list.iter().map(|(name, _)| *name).collect();
        format!("one of {}", names.join(", "))
    })
}

fn yes(value: &str) -> Result<bool, String> {
    named(&[("yes", true), ("no", false)], value)
}

fn number<T: FromStr>(value: &str, of: &str) -> Result<T, String> {
    value.parse().map_err(|_| format!("{of}, a number"))
}

/// Returns a copy of the text with static lifetime. Steps are `Copy`, and there are few names and
/// values.
fn interned(text: &str) -> &'static str {
    static TEXTS: Mutex<BTreeSet<&'static str>> = Mutex::new(BTreeSet::new());
    let mut texts = TEXTS.lock().expect("nothing panics while the lock is held");
    if let Some(kept) = texts.get(text) {
        return kept;
    }
    let kept: &'static str = Box::leak(text.to_owned().into_boxed_str());
    texts.insert(kept);
    kept
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::script::Profile;

    #[test]
    fn every_drawn_script_comes_back_from_its_text() {
        let (mut scripts, mut steps) = (0, 0);
        for profile in Profile::every() {
            for seed in (0..20).chain(1_000_000..1_000_020) {
                let script = Script::generate(seed, profile);
                let text = script.to_string();
                let again: Script = text.parse().unwrap_or_else(|error| panic!("{error}\n{text}"));
                assert_eq!(again, script, "{text}");
                assert_eq!(again.to_string(), text);
                scripts += 1;
                steps += script.steps.len();
            }
        }
        assert!(scripts > 1_000 && steps > 50_000, "{scripts} scripts, {steps} steps");
    }

    #[test]
    fn a_text_that_is_no_script_is_refused_with_its_line_and_what_was_expected() {
        let good = Script::generate(3, Profile::FAULTS_AND_CUTS).to_string();
        let says = |text: &str| text.parse::<Script>().unwrap_err().to_string();
        let with =
            |line: &str| says(&good.replace("order random", line).replace("order fifo", line));
        for (line, expected) in [
            ("order any", "line 2: found \"order any\", expected one of fifo, lifo, random"),
            ("no-such 3", "line 2: found \"no-such 3\", expected the name of an option"),
            ("spares many", "line 2: found \"spares many\", expected disks, a number"),
            ("version 3", "version: found \"3\", expected 0.90, 1.0, 1.1 or 1.2"),
            ("knob writes", "expected knob NAME=VALUE"),
            ("knob writes=never", "expected writes: found never, expected auto | gather | sync"),
            ("level raid7", "line 2: found \"level raid7\""),
        ] {
            let found = with(line);
            assert!(found.contains(expected), "{line}: {found}");
        }
        assert!(says("profile cuts\n").contains("line 2: found \"\", expected a line \"steps\""));
        assert!(says("steps\n").contains("expected a line \"level VALUE\""));
        let step = says(&format!("{good}  jump 3\n"));
        let line = good.lines().count() + 1;
        assert!(
            step.contains(&format!("line {line}: found \"jump 3\", expected a step: ")),
            "{step}"
        );
        let ask = says(&format!("{good}ask 1 write 4096 sync\n"));
        assert!(ask.contains("expected START+LENGTH"), "{ask}");
        let more = says(&format!("{good}finish now\n"));
        assert!(more.contains("expected nothing after \"finish\""), "{more}");
    }

    #[test]
    fn readers_lines_and_empty_ones_say_nothing() {
        let script = Script::generate(5, Profile::CUTS);
        let text = format!("# A story.\n\n{}# And its end.\n", script);
        assert_eq!(text.parse::<Script>().unwrap(), script);
    }
}
