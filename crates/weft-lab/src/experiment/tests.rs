//! Tests of experiments: texts and their errors, and controls that isolate the patch.

use std::path::Path;

use super::*;
use crate::fit::Fitted;
use crate::statistics::{Band, VERDICT_RUNS, Verdict};

/// The experiment of a patch, with only the rows of these indices.
fn only(patch: &str, rows: &[usize]) -> Experiment {
    let mut known = Experiment::named(patch).unwrap();
    known.text.row = rows.iter().map(|row| known.text.row[*row].clone()).collect();
    known.text.beside.clear();
    known
}

fn quick(runs: u64, seed: u64) -> Effort {
    Effort { runs, seed, size: Size::Quick }
}

#[test]
fn all_texts_are_understood_and_name_each_other_apart() {
    let all = Experiment::all().unwrap();
    for known in &all {
        assert_eq!(Experiment::named(known.name()).unwrap().hash, known.hash);
    }
    let error = Experiment::named("oo1").unwrap_err().to_string();
    assert_eq!(
        error,
        "oo1: no such experiment; expected one of 000 (priority), 001 (io-less), 002 (flush-batch), 003 (queue-merge), 004 (stripe-size)"
    );
}

#[test]
fn a_text_with_a_mistake_is_refused_by_name() {
    let table = [
        ("priority=fifo", "priority=lifo", "priority: found lifo, expected"),
        ("[machine]", "[machines]", "`machines`"),
        (
            "level = \"raid5\"",
            "level = \"raid3\"",
            "machine.level: found \"raid3\", expected one of",
        ),
        ("costs = \"frozen*4\"", "costs = \"free\"", "costs: found \"free\", expected zero,"),
        ("of = \"dd-512\"", "of = \"dd-513\"", "row.of: found \"dd-513\", expected one of dd-256,"),
        ("kind = \"dd\"", "kind = \"cp\"", "unknown variant `cp`"),
        ("placebo = { turn_ns", "placebo = { turns", "unknown field `turns`"),
        ("metric = \"prereads\"", "metric = \"flush_average\"", "does not measure flush_average"),
    ];
    for (text, mistake, told) in table {
        assert!(TEXTS[0].contains(text), "{text}");
        let error = Experiment::of(&TEXTS[0].replace(text, mistake)).unwrap_err().to_string();
        assert!(error.contains(told), "{mistake}: {error}");
    }
}

/// Result of reading a file with this text.
fn from_file(text: &str) -> Result<Experiment, ExperimentError> {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("mine.toml");
    std::fs::write(&path, text).unwrap();
    Experiment::from_file(&path)
}

#[test]
fn a_printed_text_is_read_again_as_what_it_was() {
    for known in Experiment::all().unwrap() {
        let again = from_file(known.source()).unwrap();
        assert_eq!(again.hash, known.hash);
        assert_eq!(known.origin(), format!("experiments/{}.toml", known.patch()));
        assert!(again.origin().ends_with("/mine.toml"), "{}", again.origin());
    }
}

#[test]
fn every_text_of_the_folder_is_understood_and_has_its_file_s_name() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../experiments");
    let paths = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    // The list of the grid's loads has another format.
    let is_text = |path: &Path| path.extension().is_some_and(|it| it == "toml");
    let texts: Vec<_> =
        paths.filter(|path| is_text(path) && !path.ends_with("grid.toml")).collect();
    assert!(texts.len() >= 8, "{texts:?}");
    for path in texts {
        let known = Experiment::from_file(&path).unwrap();
        assert!(path.ends_with(format!("{}.toml", known.patch())), "{}", path.display());
    }
}

#[test]
fn a_file_with_a_mistake_is_refused_by_its_name_and_the_field() {
    let table = [
        ("members = 4", "members = 1", "machine.members: found 1, expected 2..=64"),
        ("members = 4", "members = 2.5", ", column 11"),
        ("level = \"raid5\"", "level = \"raid6\"", "0 0"),
        (
            "chunk_kib = 64",
            "chunk_kib = 6",
            "machine.chunk_kib: found 6, expected a multiple of 4,",
        ),
        ("memory_mib = 1024", "memory_mib = 9223372036854775807", "machine.memory_mib: found"),
        ("cpus = 4", "cpus = 0", "machine.cpus: found 0, expected 1..=1024"),
        ("turn_ns = 100 ", "turn_ns = -1 ", "invalid value"),
        (
            "block_kib = 1024",
            "block_kib = 0",
            "case[0].load.block_kib: found 0, expected a multiple",
        ),
        ("quick = 512", "quick = 0", "case[0].load.count.quick: found 0, expected 1..="),
        ("full = 2048", "full = 1000000000", "case[0].load: found one that needs a volume of"),
        (
            "threads = [1, 2, 4, 8]",
            "threads = []",
            "case[2].load: found no threads or no block_kib",
        ),
        ("threads = [1, 2", "threads = [0, 2", "case[2].load.threads: found 0, expected 1..="),
        ("name = \"dd-512\"", "name = \"dd-256\"", "case[1].name: found \"dd-256\" again"),
        ("name = \"dd-512\"", "name = \"../dd\"", "case.name: found \"../dd\", expected 1 to 64"),
        ("gain_pct = 33.0", "gain_pct = nan", "row[0].published.gain_pct: found NaN"),
        ("gain_pct = 33.0", "gain_pct = -100.0", "row[0]: found dd stripe_cache_size=256"),
        ("band = [1.15, 1.55]", "band = [1.55, 1.15]", "row[0]: found dd stripe_cache_size=256"),
        ("band = [1.15, 1.55]", "", "row[0]: found dd stripe_cache_size=256"),
        ("threshold 1\"", "thres\\u001bhold\"", "column.patched.about: found"),
        ("destage_piece_kib = 256", "destage_piece_kib = 0", "destage_piece_kib"),
    ];
    for (text, mistake, told) in table {
        assert!(TEXTS[0].contains(text), "{text}");
        let found = from_file(&TEXTS[0].replacen(text, mistake, 1));
        if told == "0 0" {
            // Four members are enough for RAID 6.
            assert!(found.is_ok(), "{found:?}");
            continue;
        }
        let error = found.unwrap_err().to_string();
        assert!(
            error.contains("/mine.toml: experiment") && error.contains(told),
            "{mistake}: {error}"
        );
        assert!(error.contains("; correct it, or begin with what weft reproduce"), "{error}");
    }
    let error = Experiment::from_file(std::path::Path::new("/")).unwrap_err().to_string();
    assert_eq!(
        error,
        "/: found no regular file, expected a file of 1 MiB at most; name a file with an \
         experiment, as weft reproduce 000 --print-experiment prints one"
    );
    let error = from_file(&"#".repeat(2 << 20)).unwrap_err().to_string();
    assert!(error.contains("found a larger one"), "{error}");
}

/// Each number of the texts is replaced, one at a time, by values that make no sense. Among lines
/// that differ only in their numbers, as in cases and rows, three are tested.
#[test]
fn numbers_that_make_no_sense_are_refused_or_run_and_never_panic() {
    let (mut refused, mut taken) = (0, 0);
    for text in TEXTS {
        let mut seen = BTreeMap::<String, u32>::new();
        let starts = text
            .char_indices()
            .zip(text.chars().skip(1))
            .filter(|((_, before), first)| matches!(before, ' ' | '[') && first.is_ascii_digit());
        for ((at, _), _) in starts {
            let (before, rest) = text.split_at(at + 1);
            let line = before.rsplit('\n').next().unwrap_or_default();
            if line.starts_with('#') || line.matches('"').count() % 2 == 1 {
                continue;
            }
            let count = seen.entry(line.replace(|it: char| it.is_ascii_digit(), "")).or_default();
            *count += 1;
            if *count > 3 {
                continue;
            }
            let len = rest.find(|it: char| !it.is_ascii_digit() && it != '.').unwrap_or(rest.len());
            for other in ["0", "1", "-1", "7", "65536", "9223372036854775807", "1e300", "nan"] {
                match Experiment::of(&format!("{before}{other}{}", &rest[len..])) {
                    Ok(_) => taken += 1,
                    Err(_) => refused += 1,
                }
            }
        }
    }
    assert!(refused > 300 && taken > 100, "{refused} refused, {taken} taken");
}

#[test]
fn the_least_of_everything_runs() {
    let least = |text: &str| {
        let mut table: toml::Table = text.parse().unwrap();
        let single = table["machine"]["level"].as_str() == Some("single");
        table["machine"]["members"] = if single { 1 } else { 3 }.into();
        table["machine"]["chunk_kib"] = 4.into();
        table["machine"]["memory_mib"] = 64.into();
        table["machine"]["cpus"] = 1.into();
        for case in table["case"].as_array_mut().unwrap() {
            for (key, value) in case["load"].as_table_mut().unwrap() {
                match value {
                    toml::Value::Integer(number) => {
                        *number = if key == "block_kib" { 4 } else { 1 }
                    }
                    toml::Value::Array(items) => {
                        *items = vec![(if key == "block_kib" { 4 } else { 1 }).into()];
                    }
                    toml::Value::Table(amount) => {
                        amount.iter_mut().for_each(|(_, value)| *value = 1.into());
                    }
                    _ => {}
                }
            }
        }
        // Fitted parameters belong to another machine.
        table.remove("fit");
        toml::to_string(&table).unwrap()
    };
    for text in TEXTS {
        let known = from_file(&least(text)).unwrap();
        let found = known.run(quick(2, 1), &|_, _| ());
        assert!(found.is_ok() || matches!(found, Err(ExperimentError::Statistics(_))), "{found:?}");
    }
}

/// The patch saves prereads even in runs that are too short to measure its gain.
#[test]
fn patch_000_saves_prereads_and_two_runs_are_the_same() {
    let known = only("000", &[0]);
    let measured = known.run(quick(3, 7), &|_, _| ()).unwrap();
    let prereads = |column| measured.cases[0].mean(column, Metric::Prereads).unwrap();
    let (before, after) = (prereads("baseline"), prereads("patched"));
    assert!(after < before * 0.75, "{after} KiB instead of {before}");
    // A repetition of the runs gives results that are equal to the bit.
    let again = known.run(quick(3, 7), &|_, _| ()).unwrap();
    assert_eq!(again.cases[0].columns, measured.cases[0].columns);
}

#[test]
fn experiments_31_controls_hold_and_the_same_judgement_tells_the_patch() {
    for (patch, runs) in [("000", 4), ("001", 2), ("004", 2)] {
        let mut known = Experiment::named(patch).unwrap();
        shorten(&mut known);
        let of = known.control.of.clone();
        known.text.row.retain(|row| row.of == of && row.against.is_none());
        let controls = known.controls(quick(runs, 1), &|_, _| ()).unwrap();
        let names: Vec<&str> = controls.iter().map(|control| control.name).collect();
        assert_eq!(names[..4], ["mechanism off", "placebo", "the patch itself", "inverted"]);
        assert!(names.len() > 4 && names[4..].iter().all(|name| *name == "no-op patch"));
        // The runs of 001 hardly scatter, so even a difference of 0.3 % between seeds is
        // significant: the no-op patch is judged by the other two experiments only.
        let judged = if patch == "001" { &controls[..4] } else { &controls };
        for control in judged {
            assert!(control.is_met(), "{patch}: {control:?}");
        }
        // Counterpart: the judgement that finds two columns equal does not find the patch equal to
        // the baseline, with the same number of runs.
        let itself = Control { must_be: MustBe::Same { equal: false }, ..controls[2].clone() };
        assert!(!itself.is_met(), "{patch}: {itself:?}");
    }
}

#[test]
fn a_placebo_changes_the_order_of_events() {
    let known = Experiment::named("000").unwrap();
    let case = known.case_of(&known.control);
    let hardware = known.hardware().unwrap();
    let column = &known.text.column[&known.control.baseline];
    let testbed = Testbed::new(&known.text, &hardware, case, column, &[]).unwrap();
    let commands = |testbed: &Testbed| {
        let sample = control::sample(case, &testbed.with_seed(1), quick(1, 1));
        let totals = *sample.parts[0].series.points.last().unwrap();
        (totals.reads, totals.writes)
    };
    let plain = commands(&testbed);
    assert_ne!(commands(&known.placebo(&testbed)), plain, "as many member requests");
    assert_eq!(commands(&testbed), plain, "the same again is the same");
}

#[test]
fn controls_hold_by_what_they_must_show() {
    let of = |low: f64, high: f64, must_be| {
        let ratio = Estimate { value: (low + high) / 2.0, low, high, count: VERDICT_RUNS };
        Control { name: "made up", about: String::new(), ratio, must_be }
    };
    let same = |equal| MustBe::Same { equal };
    let holds = |low, high, must_be| of(low, high, must_be).holds().unwrap();
    let says = |low, high, must_be| of(low, high, must_be).verdict().unwrap();
    assert!(holds(0.99, 1.01, same(false)) && !holds(1.03, 1.05, same(false)));
    assert!(says(0.97, 1.1, same(false)).contains("scatter"));
    assert!(!holds(1.0, 1.0, same(true)), "equal runs compare nothing");
    assert!(says(1.0, 1.0, same(true)).contains("nothing was compared"));
    // Runs that scatter so widely that they cover 1 do not detect the patch, so the controls show
    // nothing.
    assert!(!holds(0.97, 1.4, MustBe::Apart) && holds(1.1, 1.2, MustBe::Apart));
    assert!(!holds(1.01, 1.2, MustBe::Apart));
    let kind = control::NoOpRows::Sized;
    assert!(holds(1.0, 1.0, MustBe::Rows { kind, right: 2, of: 2 }));
    assert!(!holds(1.0, 1.0, MustBe::Rows { kind, right: 1, of: 2 }));
    let kind = control::NoOpRows::Claims;
    assert!(holds(1.0, 1.0, MustBe::Rows { kind, right: 38, of: 39 }));
    assert!(!holds(1.0, 1.0, MustBe::Rows { kind, right: 18, of: 19 }));
    assert!(says(0.97, 1.4, MustBe::Apart).contains("say nothing"));
    let [more, less] = [Band::Above(1.0), Band::Below(1.0)].map(MustBe::In);
    assert!(holds(0.8, 0.9, less) && !holds(0.8, 1.0, less));
    assert!(holds(1.1, 1.2, more) && !holds(1.0, 1.2, more));
    // Nine runs are not judged.
    let mut few = of(0.99, 1.01, same(false));
    few.ratio.count = VERDICT_RUNS - 1;
    assert_eq!((few.holds(), few.verdict()), (None, None));
}

/// Makes loads of fio run for a second.
fn shorten(known: &mut Experiment) {
    for case in &mut known.text.case {
        if let Load::Fio(load) = &mut case.load {
            load.shorten();
        }
    }
}

#[test]
fn a_run_that_is_too_short_to_have_settled_goes_on() {
    let mut known = only("004", &[2]);
    shorten(&mut known);
    let row = &mut known.text.row[0];
    (row.patched, row.beyond) = (row.baseline.clone(), None);
    let found = known.run(quick(2, 1), &|_, _| ()).unwrap();
    for sample in found.cases[0].column("md_64k") {
        let part = &sample.parts[0];
        assert!(part.seconds >= 2.0, "{}", part.seconds);
        // A warm-up of a fifth of a second, and a tick for each tenth.
        assert_eq!(part.series.points.len() as f64, 2.0 + part.seconds * 10.0);
    }
}

#[test]
fn experiments_30_a_fit_does_not_see_what_is_to_be_predicted() {
    let mut known = Experiment::named("004").unwrap();
    shorten(&mut known);
    known.text.fit.truncate(1);
    known.text.fit[0].loosen();
    let find = |known: &Experiment| {
        let (fit, figures) = (&known.text.fit[0], known.figures());
        let hardware = known.plain_hardware().unwrap();
        known
            .find(fit, &hardware, figures.baseline(), quick(1, 1), &|_, _, _| ())
            .unwrap()
            .parameter
    };
    let seen = find(&known);
    for row in &mut known.text.row {
        row.blind();
    }
    assert_eq!(find(&known).to_bits(), seen.to_bits());
    // Counterpart: another baseline gives another parameter.
    let row = known.text.row.iter_mut().find(|row| row.of == "fio-4k").unwrap();
    row.published.baseline = Some(13.0);
    assert!(find(&known) > seen, "slower programming than {seen}");
}

/// With the committed values the baseline reproduces its published figure, in runs with other seeds
/// than those of the fit; `interop/reproduce` repeats the test with more runs.
#[test]
fn what_was_fitted_makes_the_baseline_come_out() {
    for known in Experiment::all().unwrap() {
        let hardware = known.hardware().unwrap();
        for fit in known.fits() {
            let figure = known.row_of(fit).unwrap().published.baseline.unwrap();
            // Three runs: one run in six lies 5 % from the others, which is too much for a mean
            // over two.
            let says = known.says(fit, &hardware, fit.value, quick(3, 11)).unwrap();
            assert!((says / figure - 1.0).abs() < 0.03, "{}: {says}, published {figure}", fit.row);
        }
    }
}

#[test]
fn a_fit_holds_within_the_scatter_of_what_is_found() {
    let fit = Experiment::named("004").unwrap().text.fit.remove(1);
    let found = |parameter| Fitted { parameter, model: 307.8, figure: 307.8, steps: 9 };
    let of = |all: [f64; 3]| Calibrated::of(fit.clone(), all.map(found).to_vec()).unwrap();
    let value = fit.value;
    assert!(of([value - 10.0, value + 8.0, value + 5.0]).holds());
    assert!(of([value; 3]).holds(), "equal fits without scatter hold");
    assert!(!of([value + 10.0, value + 11.0, value + 12.0]).holds());
    assert!(!of([value - 10.0, value - 11.0, value - 12.0]).holds());
}

#[test]
fn a_row_with_a_baseline_other_than_the_published_one_has_no_magnitude() {
    let known = Experiment::named("004").unwrap();
    let case = |baseline: &[f64]| {
        let patched: Vec<f64> = baseline.iter().map(|run| run * 1.2).collect();
        let columns = [("md_64k", baseline), ("md_4k", &patched)];
        made_up("dbench", &columns)
    };
    let row = &known.text.row[0];
    assert_eq!((row.of.as_str(), row.published.baseline), ("dbench", Some(307.799)));
    let of = |baseline: &[f64]| {
        let cases = [case(baseline)];
        let not_met = known.not_met(row, &cases).unwrap();
        not_met.iter().fold(Measured::of(row, &cases).unwrap(), |row, why| row.not_calibrated(why))
    };
    // The baseline is within the scatter of its runs, or within 2 %.
    for baseline in [[300.0, 310.0, 306.0], [312.0, 312.1, 312.2]] {
        let met = of(&baseline);
        assert_eq!((met.judged, met.no_magnitude.as_str()), (Verdict::Agrees, ""));
    }
    let not_met = of(&[330.0, 330.1, 330.2]);
    assert_eq!(not_met.judged, Verdict::Direction);
    assert!(
        not_met.reason().contains("fitted to 307.8 MB/s, and is 330.1 (330.0…330.2) in these runs"),
        "{}",
        not_met.reason()
    );
}

#[test]
fn every_run_is_kept_and_nothing_is_written_over() {
    let known = Experiment::named("004").unwrap().only("isolated");
    let effort = quick(2, 5);
    let found = known.run(effort, &|_, _| ()).unwrap();
    let dir = tempfile::tempdir().unwrap();
    let at = dir.path().join("runs");
    Results::at(&at).unwrap().write(&known, &found, effort).unwrap();
    let read = |path: &str| std::fs::read_to_string(at.join(path)).unwrap();
    for column in ["auto", "baseline", "patched"] {
        for run in 0..2 {
            let of = format!("004-isolated/{column}/{run}");
            let json = |name: &str| -> serde_json::Value {
                serde_json::from_str(&read(&format!("{of}/{name}"))).unwrap()
            };
            let parameters = json("params.json");
            assert_eq!(parameters["seed"], 5 + run);
            assert_eq!(parameters["experiment_sha256"], known.hash);
            let machine = &parameters["machine"];
            let size = if column == "baseline" { "65536" } else { "4096" };
            assert!(column == "auto" || machine["knobs"]["stripe_size"] == size, "{machine}");
            assert!(machine["costs"]["input_ns"].is_u64(), "{machine}");
            let value = json("summary.json")["values"]["member_kib_per_write"].as_f64().unwrap();
            assert_eq!(value, if column == "baseline" { 256.0 } else { 16.0 });
            let samples = read(&format!("{of}/samples.csv"));
            let rows: Vec<Vec<&str>> =
                samples.lines().map(|line| line.split(',').collect()).collect();
            assert!(rows.len() > 10 && rows.iter().all(|row| row.len() == rows[0].len()));
            let mib: f64 = rows[1..].iter().map(|row| row[4].parse::<f64>().unwrap() / 10.0).sum();
            let written = found.cases[0].column(column)[run].parts[0].series.points.last().unwrap();
            assert!((mib - written.written as f64 / 1e6).abs() < 0.1, "{mib}");
        }
    }
    let taken = Results::at(&at).unwrap_err().to_string();
    assert!(taken.ends_with("expected an empty or a new directory; name another one"), "{taken}");
}

/// Synthetic runs of a case: throughputs by column, repeated to as many runs as a verdict needs.
pub(super) fn made_up(name: &str, columns: &[(&str, &[f64])]) -> CaseRuns {
    let sample = |value: &f64| Sample {
        values: BTreeMap::from([(Metric::Throughput, *value)]),
        parts: Vec::new(),
    };
    let columns = columns
        .iter()
        .map(|(name, runs)| {
            ((*name).to_owned(), runs.iter().cycle().take(VERDICT_RUNS).map(sample))
        })
        .map(|(name, runs)| (name, runs.collect::<Vec<_>>()));
    CaseRuns { name: name.into(), costs_times: 1, columns: columns.collect() }
}

#[test]
fn a_row_of_several_cases_is_their_geometric_mean_or_counts_those_that_rise() {
    let text = Experiment::named("001").unwrap().text;
    let of = |words: &str| text.row.iter().find(|row| row.case.contains(words)).unwrap().clone();
    let cases: Vec<CaseRuns> = (0..16_u8)
        .map(|nth| {
            // The first case doubles, the others lose a tenth.
            let ratio = if nth == 0 { 2.0 } else { 0.9 };
            let columns: [(&str, &[f64]); 2] =
                [("baseline", &[50.0, 100.0]), ("patched", &[50.0 * ratio, 100.0 * ratio])];
            made_up(&format!("case-{nth}"), &columns)
        })
        .collect();
    let row = |words: &str, count: usize| {
        let names = (0..count).map(|nth| format!("case-{nth}"));
        let mut row = of(words);
        (row.of, row.and, row.beyond) = ("case-0".into(), names.skip(1).collect(), None);
        row
    };
    let mean = Measured::of(&row("geometric mean, 8M", 2), &cases).unwrap();
    assert!((mean.ratio.value - 1.8_f64.sqrt()).abs() < 1e-12, "{:?}", mean.ratio);
    assert!((mean.baseline.mean.value - 75.0).abs() < 1e-9, "{:?}", mean.baseline);
    let rises = Measured::of(&row("of 16", 16), &cases).unwrap();
    assert_eq!(
        (rises.baseline.runs, rises.patched.runs),
        (vec![16.0; VERDICT_RUNS], vec![1.0; VERDICT_RUNS])
    );
    assert_ne!(rises.judged, Verdict::Agrees, "14 of 16 were asked for");
}

/// In both tables of patch 001's mail, the published gains follow from the published page counts.
#[test]
fn writeback_statement_56_the_text_of_001_has_the_rows_of_the_mail() {
    let text = Experiment::named("001").unwrap().text;
    let rows: Vec<&PublishedRow> =
        text.row.iter().filter(|row| row.note.contains("mail has")).collect();
    let count = |of: &str| rows.iter().filter(|row| row.experiment == of).count();
    assert_eq!((count("JBOD-10HDD"), count("one disk"), rows.len()), (10, 28, 38));
    let mut sums = [0; 2];
    for row in &rows {
        let (_, pages) = row.note.split_once("mail has ").unwrap();
        let [before, after] =
            pages.split(' ').filter_map(|word| word.parse::<u64>().ok()).collect::<Vec<_>>()[..2]
                .try_into()
                .unwrap();
        let gain = (after as f64 / before as f64 - 1.0) * 100.0;
        assert!((gain - row.published.gain_percent().unwrap()).abs() < 0.0501, "{row}: {gain}");
        sums = [sums[0] + before, sums[1] + after];
    }
    assert_eq!(sums, [497_088_846 + 106_778_879, 586_664_483 + 114_570_803]);
    let rises = text.row.iter().find(|row| row.case.ends_with("of 16")).unwrap();
    assert_eq!(rises.cases().count(), 16);
}

#[test]
fn a_row_of_two_cases_compares_their_ratios() {
    let row = only("000", &[2]).text.row.remove(0);
    let cases = |first: f64, second: f64| {
        let patched: &[f64] = &[100.0 * first, 200.0 * second];
        [
            made_up("dd-256", &[("baseline", &[100.0, 200.0]), ("patched", patched)]),
            made_up("dd-512", &[("baseline", &[100.0, 300.0]), ("patched", &[120.0, 360.0])]),
        ]
    };
    let more = Measured::of(&row, &cases(1.5, 1.5)).unwrap();
    assert!((more.ratio.value - 1.25).abs() < 1e-12 && more.judged == Verdict::Agrees);
    assert_eq!((more.baseline.runs[0], more.patched.runs[1]), (1.2, 1.5));
    assert_eq!(more.reason(), "");
    let less = Measured::of(&row, &cases(1.1, 1.1)).unwrap();
    assert_eq!(less.judged, Verdict::Differs);
    assert_eq!(less.reason(), "not known", "a row that differs has a reason");
    let apart = Measured::of(&row, &cases(1.6, 1.1)).unwrap();
    assert!(apart.ratio.value > 1.0 && apart.judged == Verdict::Undecided);
    assert!(apart.reason().contains("not told apart"), "{}", apart.reason());
    assert!(apart.reason().contains("more runs"), "{}", apart.reason());
}

#[test]
fn a_published_cell_counts_once_with_the_worst_of_its_rows() {
    let mut row = only("000", &[0]).text.row.remove(0);
    row.beyond = None;
    let columns: [(&str, &[f64]); 2] =
        [("baseline", &[100.0, 101.0, 99.0]), ("patched", &[130.0, 131.0, 129.0])];
    let case = [made_up("dd-256", &columns)];
    let one = Measured::of(&row, &case).unwrap();
    assert_eq!(one.judged, Verdict::Agrees);
    // The same figures by another mechanism are no agreement, and the reason is reported; without a
    // magnitude, the row agrees in direction.
    let mut otherwise = row.clone();
    (otherwise.otherwise, otherwise.reason) = (true, "the cache".into());
    let otherwise = Measured::of(&otherwise, &case).unwrap();
    assert_eq!(
        (otherwise.judged, otherwise.reason().as_str()),
        (Verdict::AgreesOtherwise, "the cache")
    );
    let mut no_magnitude = row.clone();
    no_magnitude.no_magnitude = "not calibrated".into();
    let no_magnitude = Measured::of(&no_magnitude, &case).unwrap();
    assert_eq!(no_magnitude.judged, Verdict::Direction);
    assert!(no_magnitude.reason().contains("no magnitude: not calibrated"));

    let all = |patch: &str, of: &dyn Fn(&PublishedRow) -> Verdict| -> Vec<Measured> {
        let rows = Experiment::named(patch).unwrap().text.row;
        rows.into_iter().map(|row| Measured { judged: of(&row), row, ..one.clone() }).collect()
    };
    let as_texts = |row: &PublishedRow| match row.otherwise {
        true => Verdict::AgreesOtherwise,
        false => Verdict::Agrees,
    };
    let (first, second) = (all("000", &as_texts), all("004", &as_texts));
    let tally = Tally::of([&first[..], &second[..]]).unwrap();
    // Both experiments together: 4 + 5 published cells, 4 claims of an order or a mechanism, and
    // one row that is not counted.
    let figures = Counts { agree: 8, otherwise: 1, ..Counts::default() };
    let claims = Counts { agree: 4, ..Counts::default() };
    assert_eq!(tally, Tally { figures, claims, uncounted: 1 });
    assert!(
        tally.to_string().starts_with("of 9 published figures 8 agree, 1 by another"),
        "{tally}"
    );
    // One differing row of five makes its own cell differ, and no other cell.
    let spoilt = all("004", &|row| match row.case.as_str() {
        "1 MiB write, costs x 2" => Verdict::Differs,
        _ => as_texts(row),
    });
    let figures = Tally::of([&spoilt[..]]).unwrap().figures;
    assert_eq!(figures, Counts { agree: 4, differ: 1, ..Counts::default() });
}

#[test]
fn a_patch_has_a_few_words_and_a_row_that_sums_it_up() {
    let first = |patch: &str| {
        let known = Experiment::named(patch).unwrap();
        let (row, case) = of_dd(&[107.0, 108.0, 106.0]);
        let one = Measured::of(&row, std::slice::from_ref(&case)).unwrap();
        let rows = known.rows().iter().map(|row| Measured { row: row.clone(), ..one.clone() });
        let rows = rows.collect();
        let found =
            Outcome { rows, beside: Vec::new(), own_policies: Vec::new(), cases: Vec::new() };
        found.headline().unwrap().row.to_string()
    };
    for (patch, row) in [
        ("000", "dd stripe_cache_size=256"),
        ("001", "all rows with more than 10 % published that rise, of 16"),
        ("002", "dbench 128 clients"),
        ("003", "dbench 6 clients"),
        ("004", "dbench 10 clients"),
    ] {
        let about = Experiment::named(patch).unwrap().about();
        assert!((20..=28).contains(&about.chars().count()), "{patch}: {about}");
        assert_eq!(first(patch), row);
    }
    let other = TEXTS[0].replacen("patch = \"000\"", "patch = \"900\"", 1);
    assert_eq!(Experiment::of(&other).unwrap().about(), "");
}

/// The first row of experiment 000 without weft's own column, and runs of its case: about 100 in
/// the baseline, and `patched` with the patch.
fn of_dd(patched: &[f64]) -> (PublishedRow, CaseRuns) {
    let mut row = only("000", &[0]).text.row.remove(0);
    row.beyond = None;
    let columns: [(&str, &[f64]); 2] = [("baseline", &[100.0, 101.0, 99.0]), ("patched", patched)];
    (row, made_up("dd-256", &columns))
}

#[test]
fn fewer_runs_than_ten_have_figures_and_no_verdict() {
    let (mut row, mut case) = of_dd(&[107.0, 108.0, 106.0]);
    let of = |case: &CaseRuns, row: &PublishedRow| {
        Measured::of(row, std::slice::from_ref(case)).unwrap()
    };
    let ten = of(&case, &row);
    assert_eq!(ten.verdict(), Some(Verdict::Direction));
    assert!(ten.reason().starts_with("smaller than published"), "{}", ten.reason());
    assert!(Tally::of([std::slice::from_ref(&ten)]).is_some());
    for runs in case.columns.values_mut() {
        runs.truncate(VERDICT_RUNS - 1);
    }
    let nine = of(&case, &row);
    assert_eq!((nine.verdict(), nine.judged), (None, Verdict::Direction));
    assert!((nine.ratio.value - ten.ratio.value).abs() < 0.001, "{:?}", nine.ratio);
    assert_eq!(nine.reason(), "", "what is said of a verdict is not said without one");
    assert!(Tally::of([&[ten, nine.clone()][..]]).is_none());
    // A row without a magnitude gives the reason for that, however few its runs.
    row.no_magnitude = "not calibrated".into();
    assert_eq!(of(&case, &row).reason(), "no magnitude: not calibrated");
    assert_eq!(NO_VERDICTS, format!("verdicts need {VERDICT_RUNS} runs: --runs {VERDICT_RUNS}"));
}

#[test]
fn what_had_not_settled_has_a_direction_and_no_size() {
    let (row, mut case) = of_dd(&[130.0, 131.0, 129.0]);
    let settled = Measured::of(&row, std::slice::from_ref(&case)).unwrap();
    assert_eq!((settled.judged, settled.unsettled), (Verdict::Agrees, 0));
    let part = Part {
        name: String::new(),
        values: BTreeMap::new(),
        seconds: 1.0,
        settled: Some(false),
        series: Series::default(),
        inside: Inside::default(),
        pool: None,
    };
    case.columns.get_mut("patched").unwrap()[1].parts.push(part);
    let found = Measured::of(&row, &[case]).unwrap();
    assert_eq!((found.judged, found.unsettled), (Verdict::Direction, 1));
    let reason = found.reason();
    let end = "1 runs of it had not settled; the interval excludes the published +33.0 %";
    assert!(reason.ends_with(end), "{reason}");
}

#[test]
fn no_preread_at_all_is_fewer_and_nothing_else_may_be_nothing() {
    let [of_rate, row] = [0, 3].map(|row| {
        let mut row = only("000", &[row]).text.row.remove(0);
        row.beyond = None;
        row
    });
    let columns: [(&str, &[f64]); 2] = [("baseline", &[5.0, 5.1]), ("patched", &[0.0, 0.1])];
    let mut case = made_up("dd-256", &columns);
    let refused = Measured::of(&of_rate, std::slice::from_ref(&case)).unwrap_err().to_string();
    assert!(refused.contains("found 0"), "{refused}");
    for sample in case.columns.values_mut().flatten() {
        let value = sample.values.remove(&Metric::Throughput).unwrap();
        sample.values.insert(Metric::Prereads, value);
    }
    let found = Measured::of(&row, &[case]).unwrap();
    assert!(found.ratio.value < 0.02, "{found:?}");
}

#[test]
fn costs_that_were_asked_for_are_what_is_taken_for_granted() {
    let asked =
        Experiment::named("000").unwrap().with_costs(CostTable::of_argument("zero").unwrap());
    let of_costs: Vec<_> =
        asked.assumptions().iter().filter(|assumption| assumption.contains("CPU work")).collect();
    assert!(of_costs.len() == 1 && of_costs[0].contains("the table zero says"), "{of_costs:?}");
}

#[test]
fn a_row_that_is_exact_is_exact_in_every_run() {
    let mut row = only("004", &[8]).text.row.remove(0);
    assert!(row.exact);
    (row.metric, row.beyond) = (Metric::Throughput, None);
    let of = |runs: &[f64]| {
        let case = made_up("isolated", &[("baseline", &[256.0, 256.0]), ("patched", runs)]);
        Measured::of(&row, &[case]).unwrap().judged
    };
    assert_eq!(of(&[16.0, 16.0]), Verdict::Agrees);
    assert_eq!(of(&[16.0, 16.25]), Verdict::Direction);
    assert_eq!(of(&[256.0, 256.5]), Verdict::Differs);
}

#[test]
fn what_is_beyond_is_compared_with_the_better_column() {
    let mut row = only("000", &[0]).text.row.remove(0);
    row.beyond = Some("own".into());
    let of = |patched: &[f64]| {
        let columns: &[(&str, &[f64])] =
            &[("baseline", &[100.0, 100.0]), ("patched", patched), ("own", &[110.0, 110.0])];
        Measured::of(&row, &[made_up("dd-256", columns)]).unwrap().beyond.unwrap()
    };
    let (won, lost) = (of(&[125.0, 125.0]), of(&[80.0, 80.0]));
    assert_eq!((won.to_better.0.as_str(), lost.to_better.0.as_str()), ("patched", "baseline"));
    assert!((won.to_better.1.value - 0.88).abs() < 1e-12);
    assert!((won.ratio.value - 1.1).abs() < 1e-12);
}

/// Cells of patch 001's tables in which weft's own throttling is nearest to the better of Linux 3.1
/// and the patch, in which one of these two loses most, and the two cells in which the patch lost
/// most in later mails of its author.
const TELLING: [&str; 8] = [
    "one-400M-ext4-2dd",
    "one-100M-ext4-2dd",
    "one-1M-xfs-1dd",
    "one-1M-xfs-10dd",
    "jbod-100M-xfs-1dd",
    "jbod-100M-xfs-10dd",
    "disks2-10M-xfs-100dd",
    "jbod-100M-xfs-100dd",
];

#[test]
fn no_cell_of_001_is_worse_with_weft_s_own_throttling_than_with_the_better_of_both() {
    let mut known = Experiment::named("001").unwrap();
    for rows in [&mut known.text.row, &mut known.text.beside] {
        rows.retain(|row| TELLING.contains(&row.of.as_str()) && row.cases().count() == 1);
        rows.retain(|row| row.metric == Metric::Throughput);
    }
    let found = known.run(quick(4, 1), &|_, _| ()).unwrap();
    assert_eq!(found.cases.len(), TELLING.len());
    let of = |column: &str| {
        let row = |row: &Measured| {
            let mut row = row.row.clone();
            row.beyond = Some(column.into());
            Measured::of(&row, &found.cases).unwrap()
        };
        let beside = found.beside.iter().map(row).collect();
        let rows = found.rows.iter().map(row).collect();
        Outcome { rows, beside, own_policies: Vec::new(), cases: Vec::new() }
    };
    for (column, holds) in [("weft", true), ("baseline", false), ("patched", false)] {
        let judged = of(column);
        let (row, Beyond { to_better: (better, ratio), .. }) = judged.worst_own().unwrap();
        // The whole interval lies above -1 %.
        assert_eq!(ratio.low > 0.99, holds, "{column} to {better}: {ratio:?}, {}", row.row);
    }
    // Writers progress equally. A wait is limited to 1.5 s, or to 6 s with a hundred writers,
    // between which the arm has to jump.
    for case in &found.cases {
        let of = |metric| case.mean("weft", metric).unwrap();
        let longest = if case.name.ends_with("100dd") { 6000.0 } else { 1500.0 };
        assert!(of(Metric::PauseMax) < longest, "{}: {} ms", case.name, of(Metric::PauseMax));
        assert!(of(Metric::Fairness) > 0.98, "{}: {}", case.name, of(Metric::Fairness));
    }
}

#[test]
fn a_curve_says_where_it_falls_below_one() {
    let at = |times, value| (times, Estimate { value, low: value, high: value, count: 2 });
    let curve = Curve::of("c", vec![at(4, 0.5), at(0, 1.5), at(2, 1.25), at(3, 0.75)]);
    assert_eq!((curve.below_one_from, curve.falls), (Some(2.5), true));
    assert_eq!(curve.points.iter().map(|(times, _)| *times).collect::<Vec<_>>(), [0, 2, 3, 4]);
    let below = Curve::of("c", vec![at(0, 0.75), at(1, 0.8)]);
    assert_eq!((below.below_one_from, below.falls), (Some(0.0), false));
    assert_eq!(Curve::of("c", vec![at(1, 1.5), at(2, 1.25)]).below_one_from, None);
}
