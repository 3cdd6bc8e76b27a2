//! Remarks below the table of a comparison: the meaning of its marks, the smallest change that the
//! runs could detect, duplicate runs, and missing cells.

use weft_lab::compare::{Change, Comparison, Copies, Row, Sets};

/// Remarks about a comparison, one line each.
pub(super) fn of(sets: &Sets, comparison: &Comparison) -> Vec<String> {
    let mut remarks = Vec::new();
    remarks.extend(marks(comparison));
    remarks.extend(would_see(comparison));
    let changes = || changes(comparison).map(|(_, change)| change);
    if changes().any(|change| change.interval.is_none()) {
        remarks.push(
            "a change of single runs has no interval: nothing says whether it is more than chance"
                .to_owned(),
        );
    }
    remarks.extend(zeros(comparison));
    remarks.extend(copies(&comparison.copies));
    match comparison.missing_count() {
        0 => {}
        1 => remarks.push("1 cell is missing (-)".to_owned()),
        count => remarks.push(format!("{count} cells are missing (-)")),
    }
    let metric = &comparison.metric;
    if sets.counts_since_boot(metric) {
        let grew = format!("{metric}.run");
        let instead = if sets.metrics().contains(grew.as_str()) {
            format!("; --metric {grew} is what it grew by from vmstat-begin to vmstat-end")
        } else {
            String::new()
        };
        remarks.push(format!(
            "{metric} counts since boot, whatever the time that a run took{instead}"
        ));
    }
    remarks
}

fn changes(comparison: &Comparison) -> impl Iterator<Item = (&Row, Change)> {
    let rows = comparison.rows.iter();
    rows.flat_map(|row| row.changes.iter().flatten().map(move |change| (row, *change)))
}

/// Remark on the asterisk: its meaning, and the number of changes that have it. `None` if no change
/// has an interval.
fn marks(comparison: &Comparison) -> Option<String> {
    let sure: Vec<bool> = changes(comparison).filter_map(|(_, change)| change.is_sure()).collect();
    if sure.is_empty() {
        return None;
    }
    let marked = sure.iter().filter(|sure| **sure).count();
    let has_pairs = changes(comparison).any(|(_, change)| change.is_paired);
    let pairs = if has_pairs { " (pairs by seed)" } else { "" };
    Some(format!(
        "* at {marked} of {} changes: the 95 % interval{pairs} leaves 0 out, as it does by chance at \
         one in 20",
        sure.len()
    ))
}

/// Remark on the smallest change that runs of this number and scatter would detect. `None` if there
/// are no repeats, or no scatter.
fn would_see(comparison: &Comparison) -> Option<String> {
    let percents = changes(comparison).filter_map(|(row, change)| {
        change.percent?;
        // Runs without scatter do not tell which change they would detect.
        Some((row, change.would_see.filter(|least| *least > 0.0)?))
    });
    let mut percents: Vec<(&Row, f64)> = percents.collect();
    percents.sort_by(|a, b| a.1.total_cmp(&b.1));
    let ([(first, least), ..], Some((last, most))) = (&percents[..], percents.last()) else {
        return None;
    };
    let runs = "runs of this number and this scatter would see a change of";
    if percents.len() == 1 {
        return Some(format!("{runs} {least:.1} %"));
    }
    let middle = percents[percents.len() / 2].1;
    Some(format!(
        "{runs} {middle:.1} % in the middle of the cases, from {least:.1} % ({}) to {most:.1} % ({})",
        first.case, last.case
    ))
}

/// Remark on changes for which the difference of means is given, because some runs have values of 0
/// or less. `None` if there are none.
fn zeros(comparison: &Comparison) -> Option<String> {
    let having: Vec<Change> =
        changes(comparison).map(|(_, change)| change).filter(|change| change.has_zeros).collect();
    let with_ratio = having.iter().filter(|change| change.ratio().is_some()).count();
    let what = match having.len() {
        0 => return None,
        1 => "1 change is of runs with 0 or less: the difference of their means".to_owned(),
        count => format!("{count} changes are of runs with 0 or less: differences of their means"),
    };
    let left_out = match having.len() - with_ratio {
        0 => "",
        _ => "; from or to 0 it is in no geometric mean",
    };
    Some(format!("{what}{left_out}"))
}

/// Remarks on runs that do not count because they are copies of other runs, for each set that has
/// some.
fn copies(copies: &[Copies]) -> Vec<String> {
    let mut remarks = Vec::new();
    let mut sets: Vec<&str> = copies.iter().map(|of| of.set.as_str()).collect();
    sets.dedup();
    for set in sets {
        let mut of_set: Vec<&Copies> = copies.iter().filter(|of| of.set == set).collect();
        // A file with several jobs gives one run of each job, and is counted once here.
        of_set.dedup_by_key(|of| &of.copy);
        let Some(first) = of_set.first() else { continue };
        let [copy, counts] = [&first.copy, &first.counts].map(|path| path.display());
        let why = first.seed.map_or("equal bytes".to_owned(), |seed| format!("seed {seed}"));
        let example = format!("{copy} as {counts}, {why}");
        remarks.push(match of_set.len() {
            1 => format!("{set}: 1 run is a copy of another one and does not count ({example})"),
            count => {
                format!("{set}: {count} runs are copies of others and do not count ({example}, …)")
            }
        });
        if let Some(Copies { copy, counts, .. }) = of_set.iter().find(|of| !of.is_same) {
            remarks.push(format!(
                "{}: other results than {} with the same seed, so that it is no repeat of it",
                copy.display(),
                counts.display()
            ));
        }
    }
    remarks
}
