//! Parts of a sweep: each setting is run by itself, on any machine, and the parts are joined into
//! the result of the whole sweep.
//!
//! A part has the samples of its setting, facts about the setting for the output, and a description
//! of the whole sweep. The output of a sweep needs nothing else: no volume and no load. Parts are
//! joined only if they describe the same sweep and none is missing. Figures keep every bit on their
//! way through JSON (serde_json's `float_roundtrip`), so that intervals and verdicts are the same.

use serde::{Deserialize, Serialize};
use serde_json::Value;
use thiserror::Error;

use super::StripeCache;
use super::sweep::Swept;
use crate::text::shortened;

/// Result of one setting of a sweep.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Part {
    /// Schema of the part: [`SCHEMA`].
    pub schema: String,
    /// Number of the setting, from 1, and number of settings.
    pub part: [usize; 2],
    /// Setting that ran.
    pub setting: Setting,
    /// Sweep that the part belongs to.
    pub sweep: Description,
    /// Jobs, each with the samples of this setting alone.
    pub jobs: Vec<Swept>,
}

/// Schema of a [`Part`].
pub const SCHEMA: &str = "weft.part/1";

/// Setting of a sweep: the facts that the output of the sweep has beside the figures.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Setting {
    /// Values of the swept knobs; empty if no knob is swept.
    pub values: Vec<String>,
    /// Fingerprint of each run: equal for two runs if their results are.
    pub fingerprints: Vec<String>,
    /// Stripe cache of the volume; `None` for a level without one.
    pub stripe_cache: Option<StripeCache>,
    /// Source of the size of the stripe cache.
    pub cache_size: CacheSize,
    /// For each swept knob, the reason why it cannot have an effect on this volume; `None` if it
    /// can have one.
    pub reasons: Vec<Option<String>>,
    /// Facts about the volume, as name and value.
    pub facts: Vec<(String, String)>,
    /// Texts of drives that are no models of weft, by the names of their files.
    pub drives: Vec<(String, String)>,
}

/// Source of the size of a setting's stripe cache.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum CacheSize {
    /// The knobs of the volume alone.
    Knobs,
    /// Memory that all settings of the sweep have in common.
    Memory,
    /// Smallest size that the knobs allow, because it already exceeds the common memory.
    Least,
}

impl Setting {
    /// Name of the setting: its values, joined by a comma, or `as given` if no knob is swept.
    #[must_use]
    pub fn name(&self) -> String {
        if self.values.is_empty() { "as given".to_owned() } else { self.values.join(", ") }
    }
}

/// Description of a sweep, which all its parts share.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Description {
    /// Version of weft.
    pub weft: String,
    /// Command line without the program, and without options that differ between parts or choose
    /// the form of the output.
    pub arguments: Vec<String>,
    /// Name of the load for output.
    pub load: String,
    /// Text that precedes the comparison.
    pub head: String,
    /// Further facts for the output, as name and value.
    pub facts: Vec<(String, String)>,
    /// Texts that the load was read from, by the names of their files.
    pub sources: Vec<(String, String)>,
    /// Names of the swept knobs.
    pub knobs: Vec<String>,
    /// Rule, in words, for the sizes of stripe caches that do not follow from the knobs alone.
    pub cache_rule: String,
    /// Number of runs of each setting.
    pub runs: u64,
    /// Seed of the first run.
    pub seed: u64,
    /// Table of CPU costs, as the argument of `--costs` names it.
    pub costs: String,
}

/// Results of all settings, whether they ran together or alone.
#[derive(Clone, Debug, PartialEq)]
pub struct Joined {
    /// Description of the sweep.
    pub sweep: Description,
    /// Settings, in the order of the sweep.
    pub settings: Vec<Setting>,
    /// Jobs, each with the samples of all settings.
    pub swept: Vec<Swept>,
}

/// Reasons why parts cannot be joined.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum JoinError {
    /// There is no part at all.
    #[error("found no part, expected what weft sim --part prints")]
    Nothing,
    /// The part belongs to another sweep than the first part.
    #[error(
        "{file}: {field}: found {found}, expected {expected}, as in {first}; join the parts of \
             one sweep"
    )]
    Other {
        /// File of the part.
        file: String,
        /// Name of the field that differs.
        field: String,
        /// Value of the field in this part.
        found: String,
        /// Value of the field in the first part.
        expected: String,
        /// File of the first part.
        first: String,
    },
    /// The part has other jobs than the first part, or another number of runs than its sweep
    /// requires.
    #[error("{file}: jobs: found {found}, expected {expected}; run this part again")]
    Jobs {
        /// File of the part.
        file: String,
        /// Jobs of this part, each with its number of runs.
        found: String,
        /// Jobs of the first part, each with the sweep's number of runs.
        expected: String,
    },
    /// A list of the part's setting does not have as many values as the sweep requires.
    #[error("{file}: {field}: found {found}, expected {expected}; run this part again")]
    Setting {
        /// File of the part.
        file: String,
        /// Field of the setting.
        field: &'static str,
        /// Number of values of the field in this part.
        found: usize,
        /// Number of values that the sweep requires.
        expected: u64,
    },
    /// Two parts have the same number and different results.
    #[error(
        "{file}: part: found {number} of {count} again, with another result than {first} has; \
             leave one of the two out"
    )]
    Twice {
        /// File of the part.
        file: String,
        /// Number of the part.
        number: usize,
        /// Number of settings.
        count: usize,
        /// File of the other part with this number.
        first: String,
    },
    /// Parts are missing.
    #[error("found {found} of {count} parts, expected all; run what is missing: {missing}")]
    Missing {
        /// Number of different parts.
        found: usize,
        /// Number of settings.
        count: usize,
        /// Numbers of the missing parts.
        missing: String,
    },
}

/// Joins the parts of a sweep, each with the name of its file, in any order. Further copies of a
/// part are ignored.
///
/// # Errors
/// There is no part, a part is missing, belongs to another sweep than the first part, has other
/// jobs or lists of another length than its sweep requires, or is there twice with different
/// results.
pub fn join(mut parts: Vec<(String, Part)>) -> Result<Joined, JoinError> {
    let Some((first, pattern)) = parts.first().cloned() else { return Err(JoinError::Nothing) };
    for (file, part) in &parts {
        same_sweep(file, part, &first, &pattern)?;
        whole_setting(file, part)?;
        let expected: Vec<(String, u64)> =
            pattern.jobs.iter().map(|job| (job.job.clone(), pattern.sweep.runs)).collect();
        let found = jobs_of(part);
        if found != expected {
            let [found, expected] = [found, expected].map(|jobs| told(&jobs));
            return Err(JoinError::Jobs { file: file.clone(), found, expected });
        }
    }
    parts.sort_by_key(|(_, part)| part.part[0]);
    let count = pattern.part[1];
    for pair in parts.windows(2) {
        let [(first, one), (file, other)] = pair else { continue };
        let number = one.part[0];
        if number == other.part[0] && one != other {
            let [file, first] = [file, first].map(Clone::clone);
            return Err(JoinError::Twice { file, number, count, first });
        }
    }
    parts.dedup_by_key(|(_, part)| part.part[0]);
    let there = |number: &usize| parts.iter().any(|(_, part)| part.part[0] == *number);
    let missing: Vec<String> =
        (1..=count).filter(|number| !there(number)).map(|number| number.to_string()).collect();
    if !missing.is_empty() {
        let missing = match missing.len() {
            ..=MISSING_TOLD => missing.join(", "),
            more => format!("{}, … ({more})", missing[..MISSING_TOLD].join(", ")),
        };
        return Err(JoinError::Missing { found: parts.len(), count, missing });
    }
    let mut swept: Vec<Swept> = Vec::new();
    let mut settings = Vec::new();
    for (_, part) in parts {
        settings.push(part.setting);
        for (place, job) in part.jobs.into_iter().enumerate() {
            match swept.get_mut(place) {
                Some(of) => {
                    of.samples.extend(job.samples);
                    of.courses.extend(job.courses);
                }
                None => swept.push(job),
            }
        }
    }
    Ok(Joined { sweep: pattern.sweep, settings, swept })
}

/// Largest number of missing parts that an error lists.
const MISSING_TOLD: usize = 12;

/// Fails if a part has another description of the sweep than the first part, another schema than
/// [`SCHEMA`], or a number that the sweep does not have.
fn same_sweep(file: &str, part: &Part, first: &str, pattern: &Part) -> Result<(), JoinError> {
    let other = |field: &str, found: String, expected: String| JoinError::Other {
        file: file.to_owned(),
        field: field.to_owned(),
        found,
        expected,
        first: first.to_owned(),
    };
    let [number, count] = part.part;
    if part.schema != SCHEMA {
        return Err(other("schema", part.schema.clone(), SCHEMA.to_owned()));
    }
    if count != pattern.part[1] || !(1..=count).contains(&number) {
        let expected = format!("a part of {}", pattern.part[1]);
        return Err(other("part", format!("{number} of {count}"), expected));
    }
    if part.sweep == pattern.sweep {
        return Ok(());
    }
    let [found, expected] =
        [&part.sweep, &pattern.sweep].map(|sweep| serde_json::to_value(sweep).unwrap_or_default());
    let fields = found.as_object().into_iter().flatten();
    let mut differing = fields.filter(|(name, value)| expected.get(name) != Some(value));
    let (name, value) = differing.next().map_or(("sweep", &Value::Null), |(n, v)| (n.as_str(), v));
    // A whole job file may be in a value.
    let [found, expected] = [value, &expected[name]].map(|value| shortened(&value.to_string(), 80));
    Err(other(name, found, expected))
}

/// Fails if a list of a part's setting does not have a value for each knob, or for each run, of its
/// sweep.
fn whole_setting(file: &str, part: &Part) -> Result<(), JoinError> {
    let (setting, knobs) = (&part.setting, part.sweep.knobs.len() as u64);
    let lists = [
        ("values", setting.values.len(), knobs),
        ("reasons", setting.reasons.len(), knobs),
        ("fingerprints", setting.fingerprints.len(), part.sweep.runs),
    ];
    match lists.into_iter().find(|(_, found, expected)| *found as u64 != *expected) {
        None => Ok(()),
        Some((field, found, expected)) => {
            Err(JoinError::Setting { file: file.to_owned(), field, found, expected })
        }
    }
}

/// Names of a part's jobs with their numbers of runs. A job has exactly one setting; any other
/// number of settings counts as no run.
fn jobs_of(part: &Part) -> Vec<(String, u64)> {
    let runs = |job: &Swept| match (&job.samples[..], &job.courses[..]) {
        ([samples], [_]) => samples.len() as u64,
        _ => 0,
    };
    part.jobs.iter().map(|job| (job.job.clone(), runs(job))).collect()
}

fn told(jobs: &[(String, u64)]) -> String {
    let jobs: Vec<String> =
        jobs.iter().map(|(job, runs)| format!("{job} with {runs} runs")).collect();
    if jobs.is_empty() { "none".to_owned() } else { jobs.join(", ") }
}

#[cfg(test)]
mod tests {
    use super::super::sweep::Sample;
    use super::*;
    use weft_units::Bytes;

    /// Parts with the names of their files.
    type Parts = Vec<(String, Part)>;

    fn parts() -> Parts {
        let sweep = Description {
            weft: "1".to_owned(),
            arguments: vec!["sim".to_owned(), "j.fio".to_owned()],
            load: "j.fio".to_owned(),
            head: String::new(),
            facts: Vec::new(),
            sources: vec![("j.fio".to_owned(), "[j]\nrw=randwrite\n".to_owned())],
            knobs: vec!["stripe_size".to_owned()],
            cache_rule: String::new(),
            runs: 2,
            seed: 1,
            costs: "frozen".to_owned(),
        };
        let part = |number: usize, value: &str| {
            let figure = number as f64 + 0.1;
            let sample = Sample { throughput: figure, mean: 1e9 / figure, ..Sample::default() };
            let job = Swept {
                job: "j".to_owned(),
                samples: vec![vec![sample; 2]],
                courses: vec![vec![figure]],
            };
            let setting = Setting {
                values: vec![value.to_owned()],
                fingerprints: vec![value.to_owned(); 2],
                stripe_cache: Some(StripeCache { stripes: 512, bytes: Bytes::mib(8) }),
                cache_size: CacheSize::Memory,
                reasons: vec![None],
                facts: vec![("Level".to_owned(), "raid5".to_owned())],
                drives: Vec::new(),
            };
            let part = Part {
                schema: SCHEMA.to_owned(),
                part: [number, 3],
                setting,
                sweep: sweep.clone(),
                jobs: vec![job],
            };
            (format!("{number}.json"), part)
        };
        vec![part(2, "16K"), part(1, "4K"), part(3, "auto")]
    }

    #[test]
    fn parts_in_any_order_and_more_than_once_become_the_sweep() {
        let joined = join(parts()).unwrap();
        let names: Vec<String> = joined.settings.iter().map(Setting::name).collect();
        assert_eq!(names, ["4K", "16K", "auto"]);
        let throughput: Vec<f64> =
            joined.swept[0].samples.iter().map(|samples| samples[1].throughput).collect();
        assert_eq!(throughput, [1.1, 2.1, 3.1]);
        assert_eq!(joined.swept[0].courses, [[1.1], [2.1], [3.1]]);
        let twice = [parts(), parts()].concat();
        assert_eq!(join(twice), Ok(joined));
    }

    #[test]
    fn a_part_keeps_every_bit_of_its_figures_in_json() {
        for bits in (0..2000_u64).map(|n| n.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 2) {
            let figure = f64::from_bits(bits);
            let (_, mut part) = parts().remove(0);
            part.jobs[0].samples[0][0].mean = figure;
            let text = serde_json::to_string(&part).unwrap();
            let read: Part = serde_json::from_str(&text).unwrap();
            assert_eq!(read.jobs[0].samples[0][0].mean.to_bits(), bits, "{text}");
            assert_eq!((read.setting, read.sweep), (part.setting, part.sweep), "{text}");
        }
    }

    #[test]
    fn parts_that_do_not_belong_together_are_refused_by_name() {
        let refused = |change: &dyn Fn(&mut Parts)| {
            let mut parts = parts();
            change(&mut parts);
            join(parts).unwrap_err().to_string()
        };
        for (told, expected) in [
            (refused(&|of| of.clear()), "found no part"),
            (
                refused(&|of| of.truncate(1)),
                "found 1 of 3 parts, expected all; run what is missing: 1, 3",
            ),
            (
                refused(&|of| of[1].1.sweep.seed = 7),
                "1.json: seed: found 7, expected 1, as in 2.json",
            ),
            (
                refused(&|of| of[2].1.sweep.arguments[1] = "k.fio".to_owned()),
                "3.json: arguments: found [\"sim\",\"k.fio\"]",
            ),
            (
                refused(&|of| of[1].1.part[1] = 4),
                "1.json: part: found 1 of 4, expected a part of 3",
            ),
            (refused(&|of| of[1].1.part[0] = 0), "part: found 0 of 3"),
            (refused(&|of| of[1].1.schema.push('0')), "1.json: schema: found weft.part"),
            (
                refused(&|of| of[1].1.jobs[0].job = "k".to_owned()),
                "1.json: jobs: found k with 2 runs, expected j with 2 runs",
            ),
            (refused(&|of| of[0].1.jobs[0].samples[0].truncate(1)), "found j with 1 runs"),
            (refused(&|of| of[1].1.jobs.clear()), "jobs: found none"),
            (
                refused(&|of| of[1].1.setting.values.clear()),
                "1.json: values: found 0, expected 1; run",
            ),
            (refused(&|of| of[0].1.setting.reasons.push(None)), "reasons: found 2, expected 1"),
            (
                refused(&|of| of[2].1.setting.fingerprints.truncate(1)),
                "3.json: fingerprints: found 1, expected 2",
            ),
            (refused(&|of| of[2].1.part[0] = 1), "part: found 1 of 3 again"),
        ] {
            assert!(told.contains(expected), "{expected:?} in {told}");
        }
    }
}
