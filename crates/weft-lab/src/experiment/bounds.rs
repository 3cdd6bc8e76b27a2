//! Bounds of an experiment's text: the legal values of each field.
//!
//! A text may come from a file written by hand. A value that no machine or load can be built from
//! is refused here by the name of its field before a run begins; after this check a run has no
//! error.

use std::path::Path;

use toml::Value;
use weft_sim::machine::Machine;
use weft_units::Bytes;

use super::error::ExperimentError;
use super::load::Load;
use super::testbed::{SINGLE, Testbed};
use super::text::{Case, PublishedRow, Text};
use super::{Amount, Experiment};

/// A whole number in an experiment's text, and its legal range.
pub(super) struct Bound {
    /// Key of the number, such as `load.block_kib`.
    pub(super) field: String,
    /// The number that the text has.
    pub(super) found: u64,
    /// Smallest and largest legal value.
    pub(super) range: [u64; 2],
    /// Step of the legal values: the number must be a multiple of it.
    pub(super) step: u64,
}

impl Bound {
    /// Bound of a number that may have any value in the range.
    pub(super) fn of(field: &str, found: u64, least: u64, most: u64) -> Self {
        Self { field: field.to_owned(), found, range: [least, most], step: 1 }
    }

    /// Bound of a size in KiB: whole pages, up to 1 GiB.
    pub(super) fn pages_kib(field: &str, found: u64) -> Self {
        Self { step: 4, ..Self::of(field, found, 4, 1 << 20) }
    }

    /// Bounds of the three numbers of an amount, for quick, default and full runs: each is at least
    /// 1 and at most `most`.
    pub(super) fn amounts(field: &str, amount: Amount, most: u64) -> [Self; 3] {
        let Amount { quick, default, full } = amount;
        [("quick", quick), ("default", default), ("full", full)]
            .map(|(size, found)| Self::of(&format!("{field}.{size}"), found, 1, most))
    }

    fn holds(&self) -> bool {
        let [least, most] = self.range;
        (least..=most).contains(&self.found) && self.found.is_multiple_of(self.step)
    }

    fn expected(&self) -> String {
        let [least, most] = self.range;
        match self.step {
            1 => format!("{least}..={most}"),
            step => format!("a multiple of {step}, {least}..={most}"),
        }
    }
}

impl Experiment {
    /// Reads an experiment from a file. The text has the form that [`Experiment::source`] returns.
    ///
    /// # Errors
    /// The file cannot be read, is larger than 1 MiB, or its text is invalid or cannot be run as
    /// written; the error names the file.
    pub fn from_file(path: &Path) -> Result<Self, ExperimentError> {
        let named = path.display().to_string();
        let unread = |why: String| ExperimentError::Unread { path: named.clone(), why };
        let metadata = std::fs::metadata(path).map_err(|error| unread(error.to_string()))?;
        if !metadata.is_file() || metadata.len() > TEXT_BYTES_MAX {
            let found = if metadata.is_file() { "a larger one" } else { "no regular file" };
            return Err(unread(format!("found {found}, expected a file of 1 MiB at most")));
        }
        let text = std::fs::read_to_string(path).map_err(|error| unread(error.to_string()))?;
        let known = Self::of(&text).and_then(|known| known.tried());
        let mut known = known.map_err(|source| ExperimentError::File {
            path: named.clone(),
            source: source.into(),
        })?;
        known.origin = named;
        Ok(known)
    }

    /// Returns the experiment if it can be run. For this check, builds a machine for each column,
    /// and one under each circumstance for the baseline of the controls; the volume of each machine
    /// must have room for the loads of all cases.
    pub(super) fn tried(self) -> Result<Self, ExperimentError> {
        let Some(case) = self.text.case.first() else { return Ok(self) };
        for column in self.text.column.keys() {
            self.try_column(case, column)?;
        }
        for other in &self.text.circumstance {
            self.under(other)?.try_column(case, &self.control.baseline)?;
        }
        Ok(self)
    }

    fn try_column(&self, case: &Case, name: &str) -> Result<(), ExperimentError> {
        let text = &self.text;
        let testbed = Testbed::new(text, &self.hardware()?, case, &text.column[name], &[])?;
        let models = vec![testbed.parts.model.clone(); usize::from(testbed.parts.members)];
        let machine = Machine::of_models(&testbed.parts, &models).map_err(|source| {
            let (patch, column) = (text.patch.clone(), name.to_owned());
            ExperimentError::Machine { patch, column, source: source.into() }
        })?;
        let has = machine.host.size().0;
        let needs = |case: &Case| case.load.bytes(text.array());
        match text.case.iter().position(|case| needs(case) > u128::from(has)) {
            None => Ok(()),
            Some(number) => Err(wrong(
                text,
                format!("case[{number}].load"),
                format!("one that needs a volume of {} bytes", needs(&text.case[number])),
                format!("{has} at most, which the volume has"),
            )),
        }
    }
}

/// Largest size in bytes of an experiment's file; larger files are refused unread.
const TEXT_BYTES_MAX: u64 = 1 << 20;

/// Parts of the array's geometry that determine how much space a load needs.
#[derive(Clone, Copy, Debug)]
pub(super) struct ArrayText {
    pub(super) chunk: Bytes,
    pub(super) members: u16,
}

impl Text {
    fn array(&self) -> ArrayText {
        ArrayText { chunk: Bytes::kib(self.machine.chunk_kib), members: self.machine.members }
    }
}

/// Error for a field with an illegal value.
fn wrong(text: &Text, field: String, found: String, expected: String) -> ExperimentError {
    ExperimentError::Value { patch: text.patch.clone(), field, found, expected }
}

/// Refuses NaN, numbers beyond ±1e12 and texts with control characters, anywhere in `value`, which
/// has the key `field`. A line feed is not refused.
pub(super) fn check_values(value: &Value, field: &str) -> Result<(), ExperimentError> {
    let wrong = |found: String, expected: &str| ExperimentError::Value {
        patch: String::new(),
        field: field.to_owned(),
        found,
        expected: expected.to_owned(),
    };
    let below =
        |name: &str| if field.is_empty() { name.to_owned() } else { format!("{field}.{name}") };
    match value {
        Value::Float(number) if number.is_nan() || number.abs() > 1e12 => {
            Err(wrong(number.to_string(), "a number, at most 1e12 apart from 0"))
        }
        Value::String(text) if text.chars().any(|it| it.is_control() && it != '\n') => {
            Err(wrong(format!("{text:?}"), "printable characters"))
        }
        Value::Array(items) => items
            .iter()
            .enumerate()
            .try_for_each(|(nth, item)| check_values(item, &format!("{field}[{nth}]"))),
        Value::Table(items) => {
            items.iter().try_for_each(|(name, item)| check_values(item, &below(name)))
        }
        _ => Ok(()),
    }
}

/// Refuses an experiment's text from which no machine or load can be built. The error names the
/// first field with an illegal value.
pub(super) fn check(text: &Text) -> Result<(), ExperimentError> {
    names(text)?;
    let machine = &text.machine;
    let [least, most] = if machine.level == SINGLE { [1, 1] } else { [2, 64] };
    let bounds = [
        Bound::of("machine.members", machine.members.into(), least, most),
        Bound::pages_kib("machine.chunk_kib", machine.chunk_kib),
        Bound::of("machine.memory_mib", machine.memory_mib, 64, 1 << 24),
        Bound::of("machine.cpus", machine.cpus.into(), 1, 1024),
        Bound::of("control.placebo.turn_ns", text.control.placebo.turn_ns, 0, 1_000_000_000),
    ];
    let out = |bound: &Bound, before: &str| {
        let field = format!("{before}{}", bound.field);
        wrong(text, field, bound.found.to_string(), bound.expected())
    };
    if let Some(bound) = bounds.iter().find(|bound| !bound.holds()) {
        return Err(out(bound, ""));
    }
    for (number, case) in text.case.iter().enumerate() {
        let times = [
            Bound::of("costs_times", case.costs_times, 0, 1000),
            Bound::of("hops_times", case.hops_times, 0, 1000),
        ];
        let of_load = case.load.bounds();
        if let Some(bound) = of_load.iter().chain(&times).find(|bound| !bound.holds()) {
            return Err(out(bound, &format!("case[{number}].")));
        }
        if let Load::Tiobench(load) = &case.load
            && load.is_empty()
        {
            let (field, expected) = (format!("case[{number}].load"), "one of each at least".into());
            return Err(wrong(text, field, "no threads or no block_kib".into(), expected));
        }
    }
    for (number, fit) in text.fit.iter().enumerate() {
        if !fit.is_possible() {
            let expected = "low < high, value between them, tolerance above 0".to_owned();
            return Err(wrong(text, format!("fit[{number}]"), format!("{fit:?}"), expected));
        }
    }
    let rows = [("row", &text.row), ("beside", &text.beside)];
    for (of, rows) in rows {
        if let Some(number) = rows.iter().position(|row| !row.is_possible()) {
            let found = rows.get(number).map_or(String::new(), ToString::to_string);
            let expected =
                "published figures above 0, gains above -100 %, claims with bands as [low, high]";
            return Err(wrong(text, format!("{of}[{number}]"), found, expected.into()));
        }
    }
    Ok(())
}

/// Refuses names of the experiment, its patch, cases and columns that cannot be names of result
/// folders, and a second case of one name.
fn names(text: &Text) -> Result<(), ExperimentError> {
    let legal = |name: &str| {
        let plain = |it: u8| it.is_ascii_alphanumeric() || b"-_.".contains(&it);
        (1..=64).contains(&name.len()) && !name.starts_with('.') && name.bytes().all(plain)
    };
    let cases = text.case.iter().map(|case| ("case.name", &case.name));
    let columns = text.column.keys().map(|name| ("column", name));
    let all = [("patch", &text.patch), ("name", &text.name)];
    for (field, name) in all.into_iter().chain(columns).chain(cases) {
        if !legal(name) {
            let expected = "1 to 64 letters, digits, '-', '_' and '.', no '.' first";
            return Err(wrong(text, field.into(), format!("{name:?}"), expected.into()));
        }
    }
    for (number, case) in text.case.iter().enumerate() {
        if text.case.iter().take(number).any(|other| other.name == case.name) {
            let (found, expected) = (format!("{:?} again", case.name), "another name".into());
            return Err(wrong(text, format!("case[{number}].name"), found, expected));
        }
    }
    Ok(())
}

impl PublishedRow {
    /// Whether the row can be compared with measured values: figures above 0, gains above -100 %,
    /// and claims with possible bands.
    fn is_possible(&self) -> bool {
        let above = |least: f64| move |figure: f64| figure > least && figure < 1e12;
        let published = [self.published.baseline, self.published.patched];
        let assumed = self.assumed.iter().flat_map(|of| of.gain_pct);
        published.into_iter().flatten().all(above(1e-9))
            && self.published.gain_percent().into_iter().chain(assumed).all(above(-100.0))
            && self.has_band()
    }
}
