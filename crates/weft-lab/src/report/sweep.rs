//! Report of a sweep: throughput and latency by setting.
//!
//! `--sweep` writes one page, with charts and one table.

use super::{Axis, Bars, Block, Cell, Group, Lines, Report, Section, Series, Table, Value, number};

/// Results of a job or a trace under several settings of a volume.
///
/// ```
/// use weft_lab::report::{Setting, Sweep, Value};
/// let setting = |name: &str, throughput| Setting {
///     name: name.to_owned(),
///     throughput: Value::exact(throughput),
///     percentiles: vec![(50.0, Value::exact(0.2)), (99.9, Value::exact(3.5))],
///     ..Setting::default()
/// };
/// let sweep = Sweep {
///     title: "random.fio".to_owned(),
///     knob: "stripe_size".to_owned(),
///     settings: vec![setting("64K", 15.0), setting("4K", 100.0)],
///     ..Sweep::default()
/// };
/// let page = sweep.report().html();
/// assert!(page.contains("Throughput by stripe_size") && page.contains("99.9 %"));
/// ```
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Sweep {
    /// Load and volume, in words.
    pub title: String,
    /// One or two sentences that state the result: the best setting, and whether it is certain.
    pub summary: String,
    /// Facts by name: seed, runs, model, origin of the costs.
    pub facts: Vec<(String, String)>,
    /// Name of the knob that is swept, or several joined by a comma.
    pub knob: String,
    /// Settings that were run, in the order of display.
    pub settings: Vec<Setting>,
    /// Assumptions, in words.
    pub assumptions: Vec<String>,
}

/// Result of a load under one setting.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Setting {
    /// The knob's value, or several joined by a comma.
    pub name: String,
    /// Throughput in MB/s, of 10^6 bytes.
    pub throughput: Value,
    /// Throughput of each run, in MB/s; may be empty.
    pub runs: Vec<f64>,
    /// Operations per second; `None` if they are not shown.
    pub operations: Option<Value>,
    /// Mean latency, in milliseconds; `None` if it is not shown.
    pub mean: Option<Value>,
    /// Percentiles of latency: percent and milliseconds. Every setting has the same percentiles.
    pub percentiles: Vec<(f64, Value)>,
    /// Remark about the setting, such as that it is the best; may be empty.
    pub remark: String,
}

impl Sweep {
    /// The report as a page: a chart and a table of throughput and, if there are percentiles, two
    /// charts of latency.
    #[must_use]
    pub fn report(&self) -> Report {
        let mut sections = vec![Section {
            title: "Throughput".to_owned(),
            blocks: vec![self.throughput(), self.table()],
        }];
        if self.percents().next().is_some() {
            sections.push(Section {
                title: "Latency".to_owned(),
                blocks: vec![self.latency(), self.spread()],
            });
        }
        if !self.assumptions.is_empty() {
            let blocks = vec![Block::List(self.assumptions.clone())];
            sections.push(Section { title: "Taken for granted".to_owned(), blocks });
        }
        Report {
            title: self.title.clone(),
            summary: self.summary.clone(),
            facts: self.facts.clone(),
            sections,
        }
    }

    /// The percentiles that the report shows, in percent.
    fn percents(&self) -> impl Iterator<Item = f64> + '_ {
        self.settings.first().into_iter().flat_map(|first| first.percentiles.iter().map(|p| p.0))
    }

    fn throughput(&self) -> Block {
        let groups = self.settings.iter().map(|setting| Group {
            label: setting.name.clone(),
            values: vec![None, Some(setting.throughput)],
            runs: vec![Vec::new(), setting.runs.clone()],
            band: None,
        });
        Block::Bars(Bars {
            title: format!("Throughput by {}", self.knob),
            description: String::new(),
            unit: "MB/s".to_owned(),
            // The first colour is the grey of published values, and nothing was published here.
            series: vec![String::new(), "measured".to_owned()],
            reference: None,
            groups: groups.collect(),
        })
    }

    /// Chart of latency with a line for each percentile, over the settings.
    fn latency(&self) -> Block {
        let names = self.settings.iter().map(|setting| setting.name.clone()).collect();
        let series = self.percents().map(|percent| {
            let points = (0u32..)
                .zip(&self.settings)
                .filter_map(|(at, setting)| Some((f64::from(at), setting.percentile(percent)?)));
            Series { name: format!("{} %", number(percent)), points: points.collect() }
        });
        Block::Lines(Lines {
            title: format!("Latency by {}", self.knob),
            description: "Each line is a percentile: so many of a hundred requests took no longer."
                .to_owned(),
            across: self.knob.clone(),
            ..self.milliseconds(names, series.collect())
        })
    }

    /// Chart of latency with a line for each setting, over the percentiles.
    fn spread(&self) -> Block {
        let names = self.percents().map(|percent| format!("{} %", number(percent))).collect();
        let series = self.settings.iter().map(|setting| {
            let points = (0u32..).zip(&setting.percentiles);
            Series {
                name: setting.name.clone(),
                points: points.map(|(at, (_, value))| (f64::from(at), *value)).collect(),
            }
        });
        Block::Lines(Lines {
            title: "Latency by percentile".to_owned(),
            description: "Each line is a setting; the lower one answers sooner.".to_owned(),
            across: "of requests".to_owned(),
            ..self.milliseconds(names, series.collect())
        })
    }

    /// Chart in milliseconds with lines over `names`, on a logarithmic scale unless a value is 0.
    fn milliseconds(&self, names: Vec<String>, series: Vec<Series>) -> Lines {
        let mut values = self.settings.iter().flat_map(|setting| &setting.percentiles);
        let logarithmic = values.all(|(_, value)| value.value > 0.0);
        let (up, axis) = ("milliseconds".to_owned(), Axis::Names(names));
        Lines { up, axis, logarithmic, series, ..Lines::default() }
    }

    fn table(&self) -> Block {
        let has_operations = self.settings.iter().any(|setting| setting.operations.is_some());
        let has_mean = self.settings.iter().any(|setting| setting.mean.is_some());
        let mut columns = vec![self.knob.clone(), "MB/s".to_owned()];
        columns.extend(has_operations.then(|| "ops/s".to_owned()));
        columns.extend(has_mean.then(|| "mean ms".to_owned()));
        columns.extend(self.percents().map(|percent| format!("{} % ms", number(percent))));
        let rows = self.settings.iter().map(|setting| {
            let name = Cell::Noted(setting.name.clone(), setting.remark.clone());
            let mut row = vec![name, Cell::Value(Some(setting.throughput))];
            row.extend(has_operations.then_some(Cell::Value(setting.operations)));
            row.extend(has_mean.then_some(Cell::Value(setting.mean)));
            row.extend(self.percents().map(|percent| Cell::Value(setting.percentile(percent))));
            row
        });
        Block::Table(Table { caption: String::new(), columns, rows: rows.collect() })
    }
}

impl Setting {
    fn percentile(&self, percent: f64) -> Option<Value> {
        self.percentiles.iter().find(|known| known.0 == percent).map(|known| known.1)
    }
}
