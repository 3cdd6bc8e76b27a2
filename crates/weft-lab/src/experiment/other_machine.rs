//! Another machine than an experiment's text has: members, level, chunk and knobs that are asked
//! for, as `weft reproduce -n 8 --set stripe_cache_size=1024` does.
//!
//! Columns, cases, rows and bands stay, so that what was claimed of one array is tried on another.
//! What was fitted stays as well, and was fitted to the text's machine; a row whose baseline is
//! then not what it was fitted to has no magnitude.

use weft_ondisk::Level;
use weft_units::Bytes;

use super::Experiment;
use super::error::ExperimentError;
use super::testbed::SINGLE;

/// What is to be other than the text has it; `None` and no knobs for what stays.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct OtherMachine {
    /// Level of the array, or none: one member as it is.
    pub level: Option<Option<Level>>,
    /// Number of members.
    pub members: Option<u16>,
    /// Size of a chunk.
    pub chunk: Option<Bytes>,
    /// `NAME=VALUE`, in every column and case.
    pub knobs: Vec<String>,
}

impl Experiment {
    /// The same on another machine. What differs is one of the assumptions from then on.
    ///
    /// # Errors
    /// There is no such machine, its volume is too small for a load, or a column sets one of the
    /// knobs itself, so that it would not hold there.
    pub fn on(mut self, other: &OtherMachine) -> Result<Self, ExperimentError> {
        if *other == OtherMachine::default() {
            return Ok(self);
        }
        let machine = &mut self.text.machine;
        let mut told = Vec::new();
        if let Some(level) = other.level {
            let level = level.map_or(SINGLE.to_owned(), |level| level.name().to_owned());
            told.push(format!("level {level} for {}", machine.level));
            machine.level = level;
        }
        if let Some(members) = other.members {
            told.push(format!("{members} members for {}", machine.members));
            machine.members = members;
        }
        if let Some(Bytes(bytes)) = other.chunk {
            told.push(format!("chunk {} KiB for {}", bytes / 1024, machine.chunk_kib));
            machine.chunk_kib = bytes / 1024;
        }
        for setting in &other.knobs {
            self.sets(setting)?;
            told.push(setting.clone());
        }
        // Behind the case's own and the machine's, which it replaces.
        self.text.machine.knobs.extend(other.knobs.iter().cloned());
        self.text.assumptions.push(format!(
            "The machine is not the text's: {}; what is published, the bands and what was fitted are of the text's.",
            told.join(", ")
        ));
        super::bounds::check(&self.text)?;
        self.check()?;
        self.tried()
    }

    /// Refuses a knob that a column sets itself.
    fn sets(&self, setting: &str) -> Result<(), ExperimentError> {
        let name = |setting: &str| setting.split('=').next().unwrap_or_default().to_owned();
        let asked = name(setting);
        let own = |knobs: &[String]| knobs.iter().find(|own| name(own) == asked).cloned();
        let found =
            self.text.column.iter().find_map(|(column, of)| Some((column, own(&of.knobs)?)));
        match found {
            None => Ok(()),
            Some((column, own)) => Err(ExperimentError::Value {
                patch: self.patch().to_owned(),
                field: format!("--set {asked}"),
                found: format!("{setting}, where column {column} has {own}"),
                expected: "a knob that no column sets, or a text with other columns: \
                           --print-experiment prints this one"
                    .to_owned(),
            }),
        }
    }
}
