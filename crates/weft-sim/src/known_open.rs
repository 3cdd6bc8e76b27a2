//! Known failures that are not mended: each with the seed that shows it.
//!
//! A test runs the list and demands that each still fails in the same way. What is mended is taken off the
//! list, and what is drawn anew gets another seed: so the list stays true, and is seen.

use weft_engine::Shards;

use crate::script::{Profile, Script};

/// A script that fails today.
#[derive(Clone, Copy, Debug)]
pub struct KnownOpen {
    /// What it is drawn from.
    pub profile: Profile,
    /// Its seed.
    pub seed: u64,
    /// Spares that the array has, whatever was drawn.
    pub spares: usize,
    /// To whom rows are dealt.
    pub shards: Shards,
    /// What is wrong, and why it is left.
    pub reason: &'static str,
    /// Parts of what the checker says.
    pub violation: &'static [&'static str],
}

/// All that is known.
pub const KNOWN_OPEN: [KnownOpen; 2] = [
    KnownOpen {
        profile: Profile::FAULTS_AND_CUTS,
        seed: 1_004_253,
        spares: 2,
        shards: Shards { count: 1, queues: false },
        reason: "0.90 numbers spares by their place behind the slots, so that after a cut between two \
             superblocks two spares have one number at the same events; the array is refused, one of them \
             taken for a copy of the other",
        violation: &["I1 durability", "one looks like a copy of the other"],
    },
    KnownOpen {
        profile: Profile::FAULTS_AND_CUTS,
        seed: 1_002_672,
        spares: 0,
        shards: Shards { count: 1, queues: false },
        reason: "a member without space fails while the array is being stopped: the resync that was asked \
                 for is taken back, superblocks are not told, and the next start is dirty and degraded",
        violation: &["I5 dirty before data", "stopped; parity is right but for None"],
    },
];

impl KnownOpen {
    /// What fails.
    #[must_use]
    pub fn script(&self) -> Script {
        let mut script = Script::generate(self.seed, self.profile).on(self.shards);
        script.options.spares = self.spares;
        script
    }

    /// Whether it still fails, and as the list says.
    ///
    /// # Errors
    /// It does not, or otherwise.
    pub fn still_fails(&self) -> Result<(), String> {
        let found = match self.script().run() {
            Ok(_) => "no violation".to_owned(),
            Err(failure) => failure.violation.to_string(),
        };
        if self.violation.iter().all(|part| found.contains(part)) {
            return Ok(());
        }
        Err(format!(
            "{} {}: found {found}, expected {:?}; if it is mended take it off KNOWN_OPEN, if scripts are \
             drawn anew find another seed",
            self.profile.name, self.seed, self.violation
        ))
    }
}
