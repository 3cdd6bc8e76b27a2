//! Another machine than that of an experiment's text: other members, level, chunk and knobs, as
//! `weft reproduce -n 8 --set stripe_cache_size=1024` asks for.
//!
//! Columns, cases, rows and bands stay, so claims about one array are tested on another. Fitted
//! parameters stay as well, although they were fitted to the text's machine; a row has no
//! magnitude if its baseline then misses its published figure.

use weft_ondisk::Level;
use weft_units::Bytes;

use super::Experiment;
use super::error::ExperimentError;
use super::testbed::SINGLE;

/// Changes to the machine of the text; `None` and an empty list leave it unchanged.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct OtherMachine {
    /// Level of the array; `Some(None)` is a single member without a level.
    pub level: Option<Option<Level>>,
    /// Number of members.
    pub members: Option<u16>,
    /// Size of a chunk.
    pub chunk: Option<Bytes>,
    /// Knobs as `NAME=VALUE`, for every column and case.
    pub knobs: Vec<String>,
}

impl Experiment {
    /// Returns the experiment with `other` applied to its machine. The changes are added to the
    /// assumptions.
    ///
    /// # Errors
    /// No such machine exists, its volume is too small for a load, or a column sets one of the
    /// knobs itself and would override it.
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
        // The knobs come after those of the case and the machine, and override them.
        self.text.machine.knobs.extend(other.knobs.iter().cloned());
        self.text.assumptions.push(format!(
            "The machine is not the text's: {}; what is published, the bands and what was fitted are of the text's.",
            told.join(", ")
        ));
        super::bounds::check(&self.text)?;
        self.check()?;
        self.tried()
    }

    /// Returns an error if a column itself sets the knob of this setting (`NAME=VALUE`).
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
