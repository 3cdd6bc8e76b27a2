//! Report section: mechanism of a patch.
//!
//! Charts of the mechanism instead of the figure: bytes read per byte written, lists on which
//! stripes wait and how long they wait, sizes of the requests that reach the disks.

use weft_engine::{StripeWaits, Waits};
use weft_sim::machine::{Count, Sample, Sizes, Traffic};

use super::super::{Axis, Bars, Block, Cell, Group, Lines, Mark, Series, Table, Value, number};
use super::{Found, runs, words};
use crate::experiment::{CaseRuns, Metric, Side};
use crate::statistics::ratio;

/// Largest number of samples of a line. Samples fluctuate, so a line with more of them would be
/// unreadable on a page.
const SAMPLES_MAX: usize = 48;

/// A list of stripes with a chart of its length: the name of the list, its description, and the
/// function that reads its length from a sample.
type ListOf = (&'static str, &'static str, fn(&Sample) -> Count);

const LISTS: [ListOf; 2] = [
    (
        "delayed list",
        "Stripes that lack blocks and wait for a permission to read them. Meanwhile writes may fill them.",
        |sample| sample.delayed,
    ),
    (
        "hold list",
        "Stripes that may read what they lack, and that stripes which are ready go before. Before patch 000 there was \
         no such list.",
        |sample| sample.held,
    ),
];

impl Found<'_> {
    pub(super) fn why(&self) -> Vec<Block> {
        let mut blocks: Vec<Block> = self.exact().into_iter().collect();
        for cases in self.loads() {
            blocks.extend(self.of_columns(&cases, Metric::Prereads).map(|bars| {
                Block::Bars(Bars {
                    title: bars.title.replace("Prereads", "Read for each MiB written"),
                    description:
                        "What members read because a stripe was handled before it was full."
                            .to_owned(),
                    ..bars
                })
            }));
            blocks.extend(self.of_columns(&cases, Metric::PrereadWaitP999).map(|bars| {
                Block::Bars(Bars {
                    title: bars
                        .title
                        .replace("Preread wait p999", "99.9 % of prereads waited up to"),
                    description:
                        "How long stripes that were read for in the end had waited to be filled."
                            .to_owned(),
                    ..bars
                })
            }));
        }
        blocks.extend(self.curves());
        for cases in self.loads() {
            let Some(case) = fullest(&cases) else { continue };
            blocks.extend(LISTS.iter().filter_map(|list| self.length(case, list)));
            blocks.extend(self.waits(case));
            blocks.extend(self.sizes(case, "reads", |disk| disk.read_sizes));
            blocks.extend(self.sizes(case, "writes", |disk| disk.write_sizes));
        }
        blocks.extend(self.dirty());
        blocks
    }

    /// Chart of the comparisons that must equal the published figures to the last digit; `None` if
    /// there are none.
    fn exact(&self) -> Option<Block> {
        let rows: Vec<_> = self.rows().iter().filter(|row| row.row.exact).collect();
        let first = rows.first()?;
        let unit = first.row.metric.unit().to_owned();
        let groups = rows.iter().flat_map(|row| {
            let of = |side: &Side, published: Option<f64>| Group {
                label: format!("{}, {}", row.row, words(&side.name)),
                values: vec![published.map(Value::exact), Some(side.mean.into())],
                band: None,
                runs: Vec::new(),
            };
            let published = &row.row.published;
            let beyond = row.beyond.as_ref().map(|beyond| of(&beyond.side, None));
            [of(&row.baseline, published.baseline), of(&row.patched, published.patched)]
                .into_iter()
                .chain(beyond)
        });
        Some(Block::Bars(Bars {
            title: format!("Exactly: {}", words(first.row.metric.name())),
            description: "These follow from the layout alone and are the same in every run."
                .to_owned(),
            unit,
            series: vec!["published".to_owned(), "measured".to_owned()],
            reference: None,
            groups: groups.collect(),
        }))
    }

    /// Charts of ratios over CPU costs, one for each curve that a comparison of the experiment
    /// names. A chart has a point for each case with the load of the comparison, at the case's
    /// multiple of the CPU costs.
    fn curves(&self) -> Vec<Block> {
        let mut names: Vec<&str> = Vec::new();
        for name in self.compared().filter_map(|row| row.row.curve.as_deref()) {
            if !names.contains(&name) {
                names.push(name);
            }
        }
        names.into_iter().filter_map(|name| self.curve(name)).collect()
    }

    fn curve(&self, name: &str) -> Option<Block> {
        let row = &self.compared().find(|row| row.row.curve.as_deref() == Some(name))?.row;
        let loads = self.loads();
        let cases = loads.iter().find(|cases| cases.iter().any(|case| case.name == row.of))?;
        let line = |column: &str| -> Vec<(f64, Value)> {
            let point = |case: &&CaseRuns| {
                let [baseline, other] =
                    [&row.baseline, column].map(|name| runs(case, name, row.metric));
                let ratio = ratio(&baseline, &other).ok()?;
                Some((case.costs_times as f64, Value::from(ratio)))
            };
            let mut points: Vec<(f64, Value)> = cases.iter().filter_map(point).collect();
            points.sort_by(|one, other| one.0.total_cmp(&other.0));
            points
        };
        let measured = line(&row.patched);
        let published = row.published.gain_percent().map(|gain| 1.0 + gain / 100.0);
        let mut marks = vec![Mark { value: 1.0, label: "no difference".to_owned() }];
        marks.extend(
            published.map(|value| Mark { value, label: format!("published: {}", number(value)) }),
        );
        let description = format!(
            "How slow the published CPU was is not known, so nothing is fitted to it: the whole curve is what is \
             predicted. {}",
            where_below_one(&measured)
        );
        let named = |column: &str| format!("{} / {}", words(column), words(&row.baseline));
        let mut series = vec![Series { name: named(&row.patched), points: measured }];
        series.extend(row.beyond.as_deref().map(|of| Series { name: named(of), points: line(of) }));
        Some(Block::Lines(Lines {
            title: name.to_owned(),
            description,
            across: format!("times the table of CPU costs ({})", self.experiment.costs()),
            up: "ratio".to_owned(),
            axis: Axis::Linear,
            marks,
            series,
            ..Lines::default()
        }))
    }

    /// Chart of the length of a list of stripes over time, in the first run of each column; `None`
    /// if the list is always empty.
    fn length(&self, case: &CaseRuns, (name, about, of): &ListOf) -> Option<Block> {
        let series: Vec<Series> = self
            .columns()
            .into_iter()
            .map(|column| {
                // The first part of the first run is shown; a column that was not run keeps its
                // colour.
                let part = case.column(column).first().and_then(|sample| sample.parts.first());
                let history = part.and_then(|part| part.inside.history.as_ref());
                let samples = history.map_or(Vec::new(), |history| history.joined(SAMPLES_MAX));
                let points = samples.iter().map(|sample| {
                    (sample.at.0 as f64 / 1e9, Value::exact(sample.mean(of(sample))))
                });
                Series { name: words(column), points: points.collect() }
            })
            .collect();
        let waits = series.iter().any(|line| line.points.iter().any(|point| point.1.value > 0.0));
        waits.then(|| {
            Block::Lines(Lines {
                title: format!("Length of the {name}: {}", case_of(case)),
                description: format!("{about} One run of each column."),
                across: "seconds".to_owned(),
                up: "stripes".to_owned(),
                baseline: true,
                series,
                ..Lines::default()
            })
        })
    }

    /// Chart and table of the time for which stripes waited for a preread or to be filled. Empty if
    /// no stripe waited.
    fn waits(&self, case: &CaseRuns) -> Vec<Block> {
        let all: Vec<(&str, StripeWaits)> =
            self.columns().into_iter().map(|column| (column, waits(case, column))).collect();
        if all.iter().all(|(_, waits)| waits.preread.count() + waits.filled.count() == 0) {
            return Vec::new();
        }
        let ends: [(&str, u64); 4] =
            [("50 %", 500), ("99 %", 990), ("99.9 %", 999), ("longest", 1000)];
        let ms = |waits: &Waits, permille| waits.permille(permille).0 as f64 / 1e6;
        let series =
            all.iter().filter(|(_, waits)| waits.preread.count() > 0).map(|(name, waits)| {
                let points = ends.iter().enumerate();
                let points =
                    points.map(|(at, (_, permille))| (at as f64, ms(&waits.preread, *permille)));
                // A logarithmic scale has no 0.
                let points = points.filter(|point| point.1 > 0.0);
                let points = points.map(|(at, wait)| (at, Value::exact(wait)));
                Series { name: words(name), points: points.collect() }
            });
        let chart = Lines {
            title: format!("How long stripes waited before they were read: {}", case_of(case)),
            description: "Of all runs together. Each line is a column: so many of a hundred stripes that had to be read \
                          after all waited no longer. Where that is not at all, nothing is drawn."
                .to_owned(),
            across: "of stripes that were read".to_owned(),
            up: "milliseconds".to_owned(),
            axis: Axis::Names(ends.iter().map(|(name, _)| (*name).to_owned()).collect()),
            logarithmic: true,
            baseline: true,
            series: series.collect(),
            ..Lines::default()
        };
        let mut columns = vec![String::new()];
        columns.extend(
            ["filled", "read after all", "filled, 99.9 % ms", "read, 99.9 % ms", "longest ms"]
                .map(str::to_owned),
        );
        let rows = all.iter().map(|(name, StripeWaits { preread, filled })| {
            let longest = ms(preread, 1000).max(ms(filled, 1000));
            let cells = [
                number(filled.count() as f64),
                number(preread.count() as f64),
                number(ms(filled, 999)),
                number(ms(preread, 999)),
                number(longest),
            ];
            std::iter::once(Cell::Text(words(name))).chain(cells.map(Cell::Number)).collect()
        });
        let caption = format!("Did waiting pay off? Stripes that waited: {}", case_of(case));
        vec![Block::Lines(chart), Block::Table(Table { caption, columns, rows: rows.collect() })]
    }

    /// Chart of the sizes of the commands to the disks, over all runs; `None` without commands.
    fn sizes(&self, case: &CaseRuns, what: &str, of: fn(&Traffic) -> Sizes) -> Option<Block> {
        let all: Vec<(&str, Sizes)> = self
            .columns()
            .into_iter()
            .map(|column| {
                let parts = case.column(column).iter().flat_map(|sample| &sample.parts);
                let disks = parts.flat_map(|part| &part.inside.members);
                let sizes = disks.fold(Sizes::default(), |sum, disk| sum.and(&of(disk)));
                (column, sizes)
            })
            .collect();
        let count = |sizes: &Sizes| sizes.iter().map(|size| size.1).sum::<u64>();
        if all.iter().all(|(_, sizes)| count(sizes) == 0) {
            return None;
        }
        // From the smallest to the largest size that occurs.
        let used: Vec<usize> = all
            .iter()
            .flat_map(|(_, sizes)| sizes.iter().enumerate().filter(|(_, size)| size.1 > 0))
            .map(|(at, _)| at)
            .collect();
        let (first, last) = (*used.iter().min()?, *used.iter().max()?);
        let names: Vec<String> =
            Sizes::default().iter().map(|(size, _)| size_name(size.0)).collect();
        let series = all.iter().filter(|(_, sizes)| count(sizes) > 0).map(|(name, sizes)| {
            let all = count(sizes) as f64;
            let points = sizes.iter().skip(first).take(last - first + 1).enumerate();
            let points = points
                .map(|(at, (_, count))| (at as f64, Value::exact(count as f64 / all * 100.0)));
            Series { name: format!("{} ({})", words(name), number(all)), points: points.collect() }
        });
        Some(Block::Lines(Lines {
            title: format!("Size of {what} that reach the disks: {}", case_of(case)),
            description: "After merging, of all runs; in brackets how many there were. Each point counts what is at \
             most so large, and larger than the size before."
                .to_owned(),
            across: format!("size of {what}"),
            up: "% of requests".to_owned(),
            axis: Axis::Names(names[first..=last].to_vec()),
            baseline: true,
            series: series.collect(),
            ..Lines::default()
        }))
    }
}

/// Sentence for readers that gives the CPU costs at which the ratios of a curve are below 1; empty
/// without points.
fn where_below_one(points: &[(f64, Value)]) -> String {
    let Some(first) = points.first() else { return String::new() };
    if points.iter().all(|point| point.1.value >= 1.0) {
        return "It does not fall below 1.".to_owned();
    }
    if first.1.value < 1.0 {
        return format!("It lies below 1 from the first point on, × {}.", number(first.0));
    }
    let mut pairs = points.windows(2).map(|pair| (pair[0], pair[1]));
    let crossing = pairs.find(|(_, after)| after.1.value < 1.0);
    crossing.map_or(String::new(), |((x0, y0), (x1, y1))| {
        let fraction = (y0.value - 1.0) / (y0.value - y1.value);
        format!("It falls below 1 at about × {}.", number(x0 + fraction * (x1 - x0)))
    })
}

/// Waits of stripes in all runs of a column.
fn waits(case: &CaseRuns, column: &str) -> StripeWaits {
    let mut sum = StripeWaits::default();
    for part in case.column(column).iter().flat_map(|sample| &sample.parts) {
        sum.preread.merge(&part.inside.waits.preread);
        sum.filled.merge(&part.inside.waits.filled);
    }
    sum
}

/// The case in which the largest number of columns was run, the first of several; `None` without
/// cases.
fn fullest<'a>(cases: &[&'a CaseRuns]) -> Option<&'a CaseRuns> {
    let mut fullest: Option<&CaseRuns> = None;
    for case in cases {
        if fullest.is_none_or(|other| other.columns.len() < case.columns.len()) {
            fullest = Some(case);
        }
    }
    fullest
}

/// Name of a case, with the name of its first part if it has several.
fn case_of(case: &CaseRuns) -> String {
    let parts = case.columns.values().flatten().next().map_or(&[][..], |sample| &sample.parts);
    match parts {
        [first, _, ..] if !first.name.is_empty() => format!("{}, {}", case.name, first.name),
        _ => case.name.clone(),
    }
}

fn size_name(bytes: u64) -> String {
    if bytes >= 1 << 20 { format!("{}M", bytes >> 20) } else { format!("{}K", bytes >> 10) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_curve_says_where_it_falls_below_one() {
        let told = |points: &[(f64, f64)]| {
            let points: Vec<_> = points.iter().map(|(x, y)| (*x, Value::exact(*y))).collect();
            where_below_one(&points)
        };
        assert_eq!(
            told(&[(0.0, 1.5), (1.0, 1.25), (2.0, 0.75)]),
            "It falls below 1 at about × 1.5."
        );
        assert!(told(&[(0.0, 0.9), (1.0, 0.8)]).contains("from the first point on, × 0"));
        assert!(told(&[(0.0, 1.0), (4.0, 1.2)]).contains("does not fall"));
        assert_eq!(told(&[]), "");
    }
}
