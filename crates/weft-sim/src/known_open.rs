//! Known failures that are not mended, each with the seed that shows it.
//!
//! A test runs the list and demands that each still fails in the same way. What is mended is taken
//! off the list, and what is drawn anew gets another seed: so the list stays true, and is seen. It
//! may be empty.

use crate::script::{Plant, Profile, Script};

/// A script that fails today.
#[derive(Clone, Copy, Debug)]
pub struct KnownOpen {
    /// Profile that the script is drawn from.
    pub profile: Profile,
    /// Its seed.
    pub seed: u64,
    /// Spares that the array has, whatever was drawn.
    pub spares: usize,
    /// What is wrong, and why it is left.
    pub reason: &'static str,
    /// Parts of what the checker says.
    pub violation: &'static [&'static str],
}

/// All that is known.
pub const KNOWN_OPEN: &[KnownOpen] = &[
    KnownOpen {
        profile: MIRRORS_WITH_BITMAP,
        seed: 5_003_032,
        spares: 0,
        reason: "with a write-back cache a recovery goes on one turn late; what is outstanding \
                 wakes it; not looked into",
        violation: &["I13 liveness", "a wake-up is lost"],
    },
    KnownOpen {
        profile: WITH_BITMAP,
        seed: 5_003_398,
        spares: 0,
        reason: "a member with a dead sector comes back by the bitmap and the array is stopped; \
                 engine or checker is not decided",
        violation: &["I8 no stale member", "is believed and misses"],
    },
    KnownOpen {
        profile: Profile::STRAIGHT[4],
        seed: 5_001_526,
        spares: 0,
        reason: "a member that was cut short is rebuilt, and two cuts follow; engine or checker is \
                 not decided",
        violation: &["I8 no stale member", "is believed and misses"],
    },
    KnownOpen {
        profile: MIRRORS_WITH_BITMAP,
        seed: 5_001_539,
        spares: 1,
        reason: "a member whose superblock cannot be read comes back while another fails; engine \
                 or checker is not decided",
        violation: &["I20 bits before data", "its bit is not set"],
    },
    KnownOpen {
        profile: Profile::STRAIGHT[4],
        seed: 5_002_611,
        spares: 2,
        reason: "a spare of version 0.90 takes the number of a member that failed, and the checker \
                 takes the one for the other, it seems",
        violation: &["I4 no early acknowledgement", "no survivor records"],
    },
    KnownOpen {
        profile: Profile::STRAIGHT[5],
        seed: 5_004_086,
        spares: 2,
        reason: "of RAID 1 more members fail than may, and a write that failed and was seen is read \
                 again after it was not; engine or checker is not decided",
        violation: &["I3 stable reads", "was not there any more"],
    },
];

const WITH_BITMAP: Profile = Profile::BITMAPS[3];
const MIRRORS_WITH_BITMAP: Profile = Profile::BITMAPS[7];

impl KnownOpen {
    /// The script that fails.
    #[must_use]
    pub fn script(&self) -> Script {
        let mut script = Script::generate(self.seed, self.profile);
        script.options.spares = self.spares;
        script
    }

    /// Whether it still fails, and as the list says.
    ///
    /// # Errors
    /// It does not, or otherwise.
    pub fn still_fails(&self) -> Result<(), String> {
        self.still_fails_with(&|_| ())
    }

    /// The same with something done to each engine that starts.
    ///
    /// # Errors
    /// As [`KnownOpen::still_fails`].
    pub fn still_fails_with(&self, plant: Plant<'_>) -> Result<(), String> {
        let found = match self.script().run_with(plant) {
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
