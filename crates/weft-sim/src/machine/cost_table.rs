//! Tables of CPU costs as TOML texts: the named tables, their keys and units.
//!
//! A table is TOML without sections. It names the CPU and the date of the measurement, and gives
//! every cost as a whole number of nanoseconds or picoseconds, as the end of the cost's name says.
//! `weft-bench costs --write FILE` makes such a file. A factor may follow the name of a table:
//! `frozen*4` is the same work on a CPU that is four times slower.
//!
//! ```
//! use weft_sim::machine::CostTable;
//!
//! let slow = CostTable::named("frozen*4")?;
//! assert_eq!(slow.costs, CostTable::named("frozen")?.costs.times(4));
//! let wrong = CostTable::parse("mine", "cpu = 'A CPU'\ndate = '2026-01-31'\nturn_ns = 'fast'").unwrap_err();
//! assert_eq!(wrong.to_string(), "costs: turn_ns: found \"fast\", expected a whole number, 0..=1000000000");
//! # Ok::<(), weft_sim::machine::CostsError>(())
//! ```
//!
//! Source   experiments.md §3.1

use std::fmt::Write as _;

use thiserror::Error;
use toml::{Table, Value};

use super::Costs;

/// CPU costs, and their origin.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CostTable {
    /// Name of the table, or path of its file, followed by `*` and the factor if that is not 1.
    pub source: String,
    /// CPU on which the costs were measured; `None` if they were not measured.
    pub cpu: Option<String>,
    /// Date of the measurement, as `2026-01-31`; `None` if the costs were not measured.
    pub date: Option<String>,
    /// CPU cost of each kind of work.
    pub costs: Costs,
}

/// Error of a name or text that is not a valid table of costs.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
#[non_exhaustive]
pub enum CostsError {
    /// No table of weft has this name.
    #[error("costs: found {found:?}, expected {NAMES}, or a file of `weft-bench costs --write`")]
    Name {
        /// The name that was given.
        found: String,
    },
    /// The argument names a file that cannot be read.
    #[error("costs: {path}: {why}")]
    File {
        /// Path of the file that was named as cost table.
        path: String,
        /// Message of the operating system.
        why: String,
    },
    /// The suffix of the name is not a factor.
    #[error("costs: {name}*{found}: expected a whole number after the asterisk, 0..={FACTOR_MAX}")]
    Factor {
        /// Name before the asterisk.
        name: String,
        /// Text behind the asterisk.
        found: String,
    },
    /// The text is not TOML. The value is the message of the parser.
    #[error("costs: not TOML: {0}")]
    Syntax(String),
    /// A key is missing, is unknown, or has a value out of its range.
    #[error("costs: {key}: found {found}, expected {expected}")]
    Key {
        /// Name of the key.
        key: String,
        /// Value that the key has, or `nothing`.
        found: String,
        /// Range or form of a valid value.
        expected: String,
    },
}

impl CostTable {
    /// A table that weft contains, such as `frozen`, with a factor if one follows the name.
    ///
    /// # Errors
    /// No table has this name, or its suffix is not a factor.
    pub fn named(name: &str) -> Result<Self, CostsError> {
        let (name, factor) = factor_of(name)?;
        let table = match name {
            "zero" => Self { source: name.into(), cpu: None, date: None, costs: Costs::ZERO },
            "published" => Self { source: name.into(), cpu: None, date: None, costs: PUBLISHED },
            "frozen" => Self::parse(name, FROZEN)?,
            "md-2020-arm64" => Self::parse(name, MD_2020_ARM64)?,
            found => return Err(CostsError::Name { found: found.into() }),
        };
        Ok(table.times(factor))
    }

    /// The table of an argument `--costs NAME` or `--costs FILE`, with a factor if one follows.
    ///
    /// # Errors
    /// The argument is neither the name of a table nor a file with a valid one, or its suffix is
    /// not a factor.
    pub fn of_argument(argument: &str) -> Result<Self, CostsError> {
        let (name, factor) = factor_of(argument)?;
        match Self::named(name) {
            Err(unknown @ CostsError::Name { .. }) => match std::fs::read_to_string(name) {
                Ok(text) => Ok(Self::parse(name, &text)?.times(factor)),
                Err(error) if error.kind() == std::io::ErrorKind::NotFound => Err(unknown),
                Err(error) => Err(CostsError::File { path: name.into(), why: error.to_string() }),
            },
            table => Ok(table?.times(factor)),
        }
    }

    /// Parses the text of a table. `source` becomes its name.
    ///
    /// # Errors
    /// The text is not TOML, or its keys are not those of a table of costs.
    pub fn parse(source: &str, text: &str) -> Result<Self, CostsError> {
        let table: Table =
            text.parse().map_err(|error: toml::de::Error| CostsError::Syntax(error.to_string()))?;
        let word = |key: &str| match table.get(key) {
            Some(Value::String(word)) => Ok(word.clone()),
            value => Err(wrong(key, value, "a text")),
        };
        let (cpu, date) = (word("cpu")?, word("date")?);
        let mut costs = Costs::ZERO;
        for (key, of) in Costs::FIELDS {
            let value = table.get(*key);
            let number = value.and_then(Value::as_integer).and_then(|it| u64::try_from(it).ok());
            let number = number.filter(|number| *number <= COST_MAX);
            let expected = format!("a whole number, 0..={COST_MAX}");
            *of(&mut costs) = number.ok_or_else(|| wrong(key, value, &expected))?;
        }
        let known = |key: &str| {
            ["cpu", "date"].contains(&key) || Costs::FIELDS.iter().any(|(name, _)| *name == key)
        };
        if let Some((key, value)) = table.iter().find(|(key, _)| !known(key)) {
            return Err(wrong(key, Some(value), "no such key"));
        }
        Ok(Self { source: source.into(), cpu: Some(cpu), date: Some(date), costs })
    }

    /// Table for a CPU that is `factor` times slower.
    #[must_use]
    pub fn times(self, factor: u64) -> Self {
        if factor == 1 {
            return self;
        }
        let source = format!("{}*{factor}", self.source);
        Self { source, costs: self.costs.times(factor), ..self }
    }

    /// Text of the table, for [`CostTable::parse`].
    #[must_use]
    pub fn to_toml(&self) -> String {
        let word =
            |word: &Option<String>| Value::from(word.clone().unwrap_or_default()).to_string();
        let mut text = format!("cpu = {}\ndate = {}\n", word(&self.cpu), word(&self.date));
        for (name, cost) in self.costs.named() {
            let _ = writeln!(text, "{name} = {cost}");
        }
        text
    }
}

/// Splits a name from the factor that follows it; the factor is 1 if none does.
fn factor_of(name: &str) -> Result<(&str, u64), CostsError> {
    let Some((name, found)) = name.rsplit_once('*') else { return Ok((name, 1)) };
    let factor = found.parse().ok().filter(|factor| *factor <= FACTOR_MAX);
    let wrong = || CostsError::Factor { name: name.into(), found: found.into() };
    Ok((name, factor.ok_or_else(wrong)?))
}

fn wrong(key: &str, value: Option<&Value>, expected: &str) -> CostsError {
    let found = value.map_or_else(|| "nothing".to_owned(), Value::to_string);
    CostsError::Key { key: key.into(), found, expected: expected.into() }
}

/// CPU costs that the text of a patch states: mq-deadline takes 0.7 µs per request (patch 003, on a
/// core of 2011 at 3.5 GHz). The other figures of that patch are those of BFQ.
const PUBLISHED: Costs = Costs { submit: 700, ..Costs::ZERO };

const FROZEN: &str = include_str!("../../../../experiments/costs/frozen.toml");

/// Costs of Linux md from figures that its authors published; the file names the sources.
const MD_2020_ARM64: &str = include_str!("../../../../experiments/costs/md-2020-arm64.toml");

const NAMES: &str = "zero, published, frozen or md-2020-arm64";

/// Largest cost: one second in ns.
const COST_MAX: u64 = 1_000_000_000;
const FACTOR_MAX: u64 = 1_000_000;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_table_reads_what_it_writes() {
        let frozen = CostTable::named("frozen").unwrap();
        assert_eq!(CostTable::parse("frozen", &frozen.to_toml()), Ok(frozen.clone()));
        assert!(frozen.costs.input > 0 && frozen.costs.xor > 0 && frozen.costs.syscall > 0);
        assert!(frozen.cpu.is_some_and(|cpu| !cpu.is_empty()));
        // Every cost is in the table once.
        let names: std::collections::BTreeSet<_> =
            Costs::FIELDS.iter().map(|(name, _)| *name).collect();
        assert_eq!(names.len(), Costs::FIELDS.len());
        let mut each = Costs::ZERO;
        for (number, (_, of)) in (1..).zip(Costs::FIELDS) {
            *of(&mut each) += number;
        }
        let values: Vec<u64> = each.named().map(|(_, cost)| cost).collect();
        assert_eq!(values, (1..=Costs::FIELDS.len() as u64).collect::<Vec<_>>());
    }

    #[test]
    fn a_name_may_have_a_factor() {
        for (name, source) in [("frozen*1", "frozen"), ("frozen*3", "frozen*3"), ("zero", "zero")] {
            assert_eq!(CostTable::named(name).unwrap().source, source);
        }
        assert_eq!(CostTable::of_argument("frozen*0").unwrap().costs, Costs::ZERO);
        assert_eq!(CostTable::named("published*2").unwrap().costs.submit, 1400);
    }

    #[test]
    fn an_argument_may_be_a_file() {
        let path = std::env::temp_dir().join(format!("weft-costs-{}.toml", std::process::id()));
        let frozen = CostTable::named("frozen").unwrap();
        std::fs::write(&path, frozen.to_toml()).unwrap();
        let argument = format!("{}*2", path.display());
        let read = CostTable::of_argument(&argument);
        std::fs::remove_file(&path).unwrap();
        let read = read.unwrap();
        assert_eq!((read.source, read.costs), (argument, frozen.costs.times(2)));
        let directory = std::env::temp_dir().display().to_string();
        let error = CostTable::of_argument(&directory).unwrap_err();
        assert!(matches!(error, CostsError::File { .. }), "{error}");
    }

    /// Checks the arithmetic that the file states: its fixed costs are those of `frozen` times one
    /// factor, and the rest of a full stripe of 3+1, 17.55 µs, is 12 KiB copied and read for XOR.
    #[test]
    fn md_s_costs_are_what_their_file_says_they_are_made_of() {
        let md = CostTable::named("md-2020-arm64").unwrap().costs;
        let frozen = CostTable::named("frozen").unwrap().costs;
        let fixed = |costs: &Costs| {
            [costs.turn, costs.input, costs.attach, costs.stripe, costs.follower]
                .into_iter()
                .chain([costs.submit, costs.merge, costs.operation])
                .collect::<Vec<_>>()
        };
        for (md, frozen) in fixed(&md).into_iter().zip(fixed(&frozen)) {
            assert!((md as f64 - frozen as f64 * 21.2).abs() <= 0.5, "{md}, {frozen}");
        }
        let bytes = 12_288.0 * (md.copy + md.xor) as f64 / 1e6;
        assert!((bytes + 0.571 * 21.2 - 17.55).abs() < 0.01, "{bytes}");
        assert_eq!((md.syscall, md.bio, md.hop), (frozen.syscall, frozen.bio, frozen.hop));
    }

    #[test]
    fn what_is_wrong_is_said() {
        let frozen = CostTable::named("frozen").unwrap().to_toml();
        let row = format!("stripe_ns = {}\n", CostTable::named("frozen").unwrap().costs.stripe);
        for (text, expected) in [
            (frozen.replace(&row, ""), "costs: stripe_ns: found nothing, expected a whole number"),
            (frozen.replace(&row, "stripe_ns = -1\n"), "costs: stripe_ns: found -1, expected"),
            (frozen.replace(&row, "stripe_ns = 1.5\n"), "costs: stripe_ns: found 1.5, expected"),
            (frozen.clone() + "rwo_ns = 1\n", "costs: rwo_ns: found 1, expected no such key"),
            (frozen.replace("cpu = ", "# "), "costs: cpu: found nothing, expected a text"),
            ("=".to_owned(), "costs: not TOML: "),
        ] {
            let error = CostTable::parse("mine", &text).unwrap_err().to_string();
            assert!(error.starts_with(expected), "{error}");
        }
        for (name, expected) in [
            ("frosen", "costs: found \"frosen\", expected zero, published, frozen or "),
            ("zero*x", "costs: zero*x: expected a whole number after the asterisk, 0..=1000000"),
        ] {
            let error = CostTable::of_argument(name).unwrap_err().to_string();
            assert!(error.starts_with(expected), "{error}");
        }
    }
}
