//! Planted bugs: which scripts show them, and which checkers must see each.
//!
//! A bug that one checker stops seeing may be covered for by another. So the table says who must see it,
//! and each is asked alone, with the others off ([`crate::Options::only`]).
//!
//! Source   spec reliability.md §6.4

use weft_engine::mutant::Mutant;

use crate::script::{Plant, Profile, Script};

/// The checkers that a script can run with alone, by the beginning of their names.
pub const CHECKERS: [&str; 12] =
    ["I1 ", "I2 ", "I4 ", "I5 ", "I6 ", "I7 ", "I8 ", "I9 ", "I10", "I11", "I12", "I13"];

const PROFILES: [Profile; 3] = [Profile::CUTS, Profile::FAULTS, Profile::FAULTS_AND_CUTS];

const FIRST_SEED: u64 = 20_000;

/// The script with this number in which a bug may show.
#[must_use]
pub fn script(mutant: Mutant, number: u64) -> Script {
    let profile = match mutant {
        Mutant::BrokenAcknowledges => Profile::BEYOND_POWERED,
        _ => PROFILES[number as usize % PROFILES.len()],
    };
    let script = Script::generate(FIRST_SEED + number, profile);
    if mutant.is_of_queues() { script.on_shards(1 + (number / 3 % 3) as u16) } else { script }
}

/// The first of so many scripts that shows a bug to this checker, or to any.
#[must_use]
pub fn hunt(
    mutant: Mutant,
    only: Option<&'static str>,
    scripts: u64,
    plant: Plant<'_>,
) -> Option<u64> {
    (0..scripts).find(|number| {
        let mut script = script(mutant, *number);
        script.options.only = only;
        // An assertion of the engine is welcome, and not what is tested here.
        script.run_with(plant).is_err_and(|failure| failure.violation.checker != "panic")
    })
}
