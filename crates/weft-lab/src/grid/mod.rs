//! Grid: defaults of weft beside md's, on loads and arrays that nobody chose for it.
//!
//! The text `experiments/grid.toml` has arrays and loads; each pair is a [`Cell`] that is simulated
//! under several [`Setting`]s with the same seed. A cell has a [`Line`] for each job of its load:
//! rate, 99th percentile and longest wait under each. A job that loses beyond the bound of the text
//! is in [`Found::losses`], worst first. The text lists those that are known to, each with its
//! reason ([`Open`]): any other that loses fails the grid, and so does a listed one that no longer
//! does.
//!
//! The rate alone would hide two things, so both are held as well: a stream that starves beside
//! another load (each job has its own line), and latency at an equal rate (open loops).

mod text;

use weft_engine::knobs::Knobs;
use weft_engine::page_cache::Kernel;
use weft_ondisk::Level;
use weft_units::{Bytes, Span};

pub use text::{Array, Bound, GridError, Load, Open};

use crate::experiment::deal;
use crate::fio_json::JobResult;
use crate::job::{Job, ParseOptions, parse_text};
use crate::simulate::{CostTable, SimulateError, Stop, Volume, faults, jobs};
use text::Text;

/// A way to tune a volume.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Setting {
    /// What weft does when nobody tunes it.
    Weft,
    /// What md does when nobody tunes it.
    Md,
    /// md with stripes of so many bytes, which is a kernel of other pages.
    Fixed(u32),
}

impl Setting {
    /// Every setting that a level knows: stripes are those of parity. Of a few, what nobody tunes.
    fn of_level(has_parity: bool, few: bool) -> Vec<Self> {
        let fixed: &[u32] = if has_parity && !few { &[16 << 10, 64 << 10] } else { &[] };
        [Self::Weft, Self::Md]
            .into_iter()
            .chain(fixed.iter().map(|size| Self::Fixed(*size)))
            .collect()
    }

    fn knobs(self) -> Knobs {
        match self {
            Self::Weft => Knobs::default(),
            Self::Md => Knobs::md(),
            Self::Fixed(size) => {
                let mut knobs = Knobs::md();
                let knob = knobs.parse("stripe_size", &size.to_string());
                knobs.set(knob.expect("a size of stripes that weft has"));
                knobs
            }
        }
    }
}

/// Figures of one job under one setting.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Figures {
    /// MB/s, of 10^6 bytes.
    pub rate: f64,
    /// 99th percentile of latencies.
    pub p99: Span,
    /// The longest latency.
    pub longest: Span,
    /// Requests that were answered.
    pub requests: u64,
}

/// An array under a load.
#[derive(Clone, Debug)]
pub struct Cell {
    /// Name of the array.
    pub array: String,
    /// Name of the load.
    pub load: String,
    volume: Volume,
    jobs: Vec<Job>,
}

/// A job of a cell, under each setting.
#[derive(Clone, Debug)]
pub struct Line {
    /// Name of the array.
    pub array: String,
    /// Name of the load; and of its job, if it has several.
    pub load: String,
    /// Figures by setting.
    pub figures: Vec<(Setting, Figures)>,
}

/// All cells, and what is asked of them.
#[derive(Clone, Debug)]
pub struct Grid {
    /// Bound of a loss.
    pub bound: Bound,
    /// Cells, array by array.
    pub cells: Vec<Cell>,
    /// Jobs that are known to lose.
    pub open: Vec<Open>,
    few: bool,
}

/// What was found of all cells.
#[derive(Clone, Debug)]
pub struct Found {
    /// Jobs, cell by cell.
    pub lines: Vec<Line>,
    bound: Bound,
    open: Vec<Open>,
}

/// Reason why a line loses.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Loss {
    /// Its rate is so many times md's.
    Rate(f64),
    /// Its 99th percentile is so many times md's, at the same rate.
    P99(f64),
    /// A request waited so long, and none of md's did.
    Wait(Span),
}

impl Grid {
    /// The grid of the project, with the cells whose names have these words; `few` loads on every
    /// array alone, and without md's other sizes of stripes.
    ///
    /// # Errors
    /// The text is not understood.
    pub fn new(words: &str, few: bool) -> Result<Self, GridError> {
        let text = Text::of(include_str!("../../../../experiments/grid.toml"))?;
        let costs = CostTable::named("frozen").map_err(|error| GridError(error.to_string()))?;
        let mut cells = Vec::new();
        for (place, array) in text.array.iter().enumerate() {
            for load in text.load.iter().flat_map(Load::each) {
                let Load { name, few: is_few, .. } = &load;
                let wanted = if few || place > 0 { *is_few } else { true };
                if !wanted || !format!("{} {name}", array.name).contains(words) {
                    continue;
                }
                cells.push(Cell {
                    array: array.name.clone(),
                    load: name.clone(),
                    volume: volume(array, &costs)?,
                    jobs: parsed(&load, &text, array)?,
                });
            }
        }
        Ok(Self { bound: text.bound, cells, open: text.open, few })
    }

    /// Runs every cell under every setting, on as many threads as there are CPUs, and says after
    /// each run how many of how many are done.
    ///
    /// # Errors
    /// A cell cannot be run.
    pub fn run(&self, progress: &(dyn Fn(usize, usize) + Sync)) -> Result<Found, SimulateError> {
        let runs: Vec<(&Cell, Setting)> = self
            .cells
            .iter()
            .flat_map(|cell| {
                let has_parity = cell.volume.level.is_some_and(has_parity);
                let settings = Setting::of_level(has_parity, self.few);
                settings.into_iter().map(move |setting| (cell, setting))
            })
            .collect();
        let found = deal(&runs, progress, |(cell, setting)| cell.run(*setting));
        let mut lines: Vec<Line> = Vec::new();
        let mut of = None;
        for ((cell, setting), figures) in runs.into_iter().zip(found) {
            let figures = figures?;
            if of.replace(std::ptr::from_ref(cell)) != Some(std::ptr::from_ref(cell)) {
                lines.extend(figures.iter().map(|(job, _)| cell.line(job, figures.len() > 1)));
            }
            let first = lines.len() - figures.len();
            for (line, (_, figures)) in lines[first..].iter_mut().zip(figures) {
                line.figures.push((setting, figures));
            }
        }
        Ok(Found { lines, bound: self.bound, open: self.open.clone() })
    }
}

impl Cell {
    fn line(&self, job: &str, several: bool) -> Line {
        let load = if several { format!("{}: {job}", self.load) } else { self.load.clone() };
        Line { array: self.array.clone(), load, figures: Vec::new() }
    }

    /// Figures of each job.
    fn run(&self, setting: Setting) -> Result<Vec<(String, Figures)>, SimulateError> {
        let volume = Volume { knobs: setting.knobs(), ..self.volume.clone() };
        let outcome = jobs::run(&volume, &self.jobs, &mut |_| true)?;
        match outcome.stop {
            Stop::Done => {
                Ok(outcome.results.iter().map(|job| (job.name.clone(), of(job))).collect())
            }
            stop => Err(SimulateError::Unfinished { stop }),
        }
    }
}

fn of(job: &JobResult) -> Figures {
    let mut all = crate::latency::Latencies::default();
    let mut bytes = 0;
    for way in &job.directions {
        all.merge(&way.total);
        bytes += way.bytes.0;
    }
    let seconds = job.runtime.0.max(1) as f64 / 1e9;
    Figures {
        rate: bytes as f64 / 1e6 / seconds,
        p99: all.percentile(99.0),
        longest: all.max(),
        requests: all.count(),
    }
}

impl Line {
    /// The figures of a setting.
    #[must_use]
    pub fn under(&self, setting: Setting) -> Option<Figures> {
        self.figures.iter().find(|(of, _)| *of == setting).map(|(_, figures)| *figures)
    }

    /// weft's rate as a multiple of md's.
    #[must_use]
    pub fn to_md(&self) -> f64 {
        ratio(self.under(Setting::Weft), self.under(Setting::Md))
    }

    /// weft's rate as a multiple of the best that md has with any size of stripes.
    #[must_use]
    pub fn to_fixed(&self) -> f64 {
        let others = self.figures.iter().filter(|(of, _)| *of != Setting::Weft);
        let best = others.map(|(_, it)| *it).max_by(|one, other| one.rate.total_cmp(&other.rate));
        ratio(self.under(Setting::Weft), best)
    }

    fn losses(&self, bound: &Bound) -> Vec<Loss> {
        let (Some(weft), Some(md)) = (self.under(Setting::Weft), self.under(Setting::Md)) else {
            return Vec::new();
        };
        let mut losses = Vec::new();
        let rate = self.to_md();
        if rate < bound.rate {
            losses.push(Loss::Rate(rate));
        }
        let p99 = weft.p99.0 as f64 / (md.p99.0 as f64).max(1.0);
        if (bound.rate..=1.0 / bound.rate).contains(&rate) && p99 > bound.p99 {
            losses.push(Loss::P99(p99));
        }
        let longest = Span::millis(bound.wait_ms);
        if weft.longest > longest && md.longest <= longest {
            losses.push(Loss::Wait(weft.longest));
        }
        losses
    }
}

fn ratio(one: Option<Figures>, other: Option<Figures>) -> f64 {
    match (one, other) {
        (Some(one), Some(other)) if other.rate > 0.0 => one.rate / other.rate,
        _ => 1.0,
    }
}

impl Found {
    /// Lines that lose beyond the bound, the worst first.
    #[must_use]
    pub fn losses(&self) -> Vec<(&Line, Vec<Loss>)> {
        let lines = self.lines.iter().map(|line| (line, line.losses(&self.bound)));
        let mut losses: Vec<_> = lines.filter(|(_, losses)| !losses.is_empty()).collect();
        losses.sort_by(|(one, _), (other, _)| one.to_md().total_cmp(&other.to_md()));
        losses
    }

    /// Why a line is known to lose.
    #[must_use]
    pub fn known(&self, line: &Line) -> Option<&Open> {
        self.open.iter().find(|open| (&open.array, &open.load) == (&line.array, &line.load))
    }

    /// Those that are known to lose and were run and do not: they are to be taken off the list.
    #[must_use]
    pub fn mended(&self) -> Vec<&Open> {
        let wins = |line: &&Line| line.losses(&self.bound).is_empty();
        self.lines.iter().filter(wins).filter_map(|line| self.known(line)).collect()
    }

    /// Geometric means of weft's rates: to md's, and to the best of md with any size of stripes.
    #[must_use]
    pub fn means(&self) -> (f64, f64) {
        let mean = |of: fn(&Line) -> f64| {
            let logs: f64 = self.lines.iter().map(|line| libm::log(of(line).max(1e-9))).sum();
            libm::exp(logs / self.lines.len().max(1) as f64)
        };
        (mean(Line::to_md), mean(Line::to_fixed))
    }
}

fn volume(array: &Array, costs: &CostTable) -> Result<Volume, GridError> {
    let wrong = |error: &dyn std::fmt::Display| GridError(format!("{}: {error}", array.name));
    let faults = match &array.faults {
        Some(text) => faults::parse(text, array.members).map_err(|error| wrong(&error))?,
        None => Vec::new(),
    };
    let members = Volume::members(std::slice::from_ref(&array.device), array.members);
    Ok(Volume {
        level: Some(array.level.parse().map_err(|error| wrong(&error))?),
        members: members.map_err(|error| wrong(&error))?,
        chunk: Bytes::kib(array.chunk_kib),
        member_size: None,
        knobs: Knobs::default(),
        write_back: None,
        kernel: Kernel::default(),
        costs: costs.clone(),
        memory: Bytes::mib(4096),
        cpus: 4,
        faults,
        seed: 1,
    })
}

fn parsed(load: &Load, text: &Text, array: &Array) -> Result<Vec<Job>, GridError> {
    let is_hdd = array.device.starts_with("hdd");
    let (run, ramp) = (text.run_ms.of(is_hdd), text.ramp_ms.of(is_hdd));
    let global = format!(
        "[global]\ndirect=1\nioengine=io_uring\nnorandommap\ntime_based\nruntime={run}ms\nramp_time={ramp}ms\n"
    );
    let options = ParseOptions {
        environment: &|_| None,
        include: &|name, _| Err(format!("{name}: loads include nothing")),
        extensions: &[],
    };
    let parsed = parse_text("grid.toml", &(global + &load.job + "\n"), &options);
    parsed.map_err(|error| GridError(format!("{}: {error}", load.name)))
}

fn has_parity(level: Level) -> bool {
    matches!(level, Level::Raid4 | Level::Raid5 | Level::Raid6)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn figures(rate: f64, p99_ms: u64, longest_ms: u64) -> Figures {
        let (p99, longest) = (Span::millis(p99_ms), Span::millis(longest_ms));
        Figures { rate, p99, longest, requests: 1 }
    }

    fn found(pairs: &[(Figures, Figures)]) -> Found {
        let line = |(weft, md): &(Figures, Figures)| Line {
            array: "a".into(),
            load: "l".into(),
            figures: vec![(Setting::Weft, *weft), (Setting::Md, *md)],
        };
        let bound = Grid::new("no such cell", false).unwrap().bound;
        Found { lines: pairs.iter().map(line).collect(), bound, open: Vec::new() }
    }

    #[test]
    fn a_line_loses_by_its_rate_by_latency_at_the_same_rate_and_by_a_long_wait() {
        let md = figures(100.0, 10, 100);
        let of = |weft| found(&[(weft, md)]).losses().into_iter().flat_map(|it| it.1).collect();
        let losses: [Vec<Loss>; 6] = [
            of(figures(96.0, 19, 1999)),
            of(figures(94.0, 5, 100)),
            of(figures(100.0, 21, 100)),
            of(figures(120.0, 21, 100)),
            of(figures(100.0, 10, 2001)),
            of(figures(0.0, 0, 0)),
        ];
        assert_eq!(losses[0], []);
        assert_eq!(losses[1], [Loss::Rate(0.94)]);
        assert_eq!(losses[2], [Loss::P99(2.1)]);
        assert_eq!(losses[3], [], "it does more meanwhile");
        assert_eq!(losses[4], [Loss::Wait(Span::millis(2001))]);
        assert_eq!(losses[5], [Loss::Rate(0.0)]);
    }

    #[test]
    fn the_worst_line_is_first_and_means_are_geometric() {
        let md = figures(100.0, 10, 100);
        let all = found(&[
            (figures(90.0, 1, 1), md),
            (figures(10.0, 1, 1), md),
            (figures(900.0, 1, 1), md),
        ]);
        let rates: Vec<f64> = all.losses().iter().map(|(line, _)| line.to_md()).collect();
        assert_eq!(rates, [0.1, 0.9]);
        assert!((all.means().0 - libm::cbrt(0.9 * 0.1 * 9.0)).abs() < 1e-9);
    }

    #[test]
    fn a_loss_is_known_by_its_array_and_load_until_it_no_longer_loses() {
        let md = figures(100.0, 10, 100);
        let mut all = found(&[(figures(90.0, 1, 1), md)]);
        let open = |load: &str| Open { array: "a".into(), load: load.into(), why: "so".into() };
        all.open = vec![open("another")];
        assert!(all.known(&all.lines[0]).is_none() && all.mended().is_empty());
        all.open = vec![open("l")];
        assert!(all.known(&all.lines[0]).is_some() && all.mended().is_empty());
        let mut all = found(&[(figures(96.0, 1, 1), md)]);
        all.open = vec![open("l")];
        assert_eq!(all.mended(), [&open("l")]);
    }

    #[test]
    fn every_known_loss_is_of_a_job_of_the_grid_and_told_to_people() {
        let grid = Grid::new("", false).unwrap();
        let page = include_str!("../../../../docs/grid.md");
        for open in &grid.open {
            let is_of = |cell: &&Cell| {
                let several = cell.jobs.len() > 1;
                let named = |job: &Job| format!("{}: {}", cell.load, job.name) == open.load;
                cell.array == open.array
                    && if several { cell.jobs.iter().any(named) } else { cell.load == open.load }
            };
            assert!(grid.cells.iter().any(|cell| is_of(&cell)), "{open:?}");
            assert!(page.contains(&open.array) && page.contains(&open.load), "{open:?}");
        }
    }

    #[test]
    fn every_load_is_on_the_first_array_and_a_few_are_on_all() {
        let grid = Grid::new("", false).unwrap();
        let few = Grid::new("", true).unwrap();
        let arrays =
            Text::of(include_str!("../../../../experiments/grid.toml")).unwrap().array.len();
        let on =
            |grid: &Grid, array: &str| grid.cells.iter().filter(|it| it.array == array).count();
        let few_of_each = on(&few, "raid5 4 sata");
        assert_eq!(few.cells.len(), arrays * few_of_each);
        assert!(
            few_of_each >= 20 && on(&grid, "raid5 4 sata") >= 88,
            "{}",
            on(&grid, "raid5 4 sata")
        );
        assert_eq!(on(&grid, "raid6 6 sata"), few_of_each);
        let mut names: Vec<_> = grid.cells.iter().map(|it| (&it.array, &it.load)).collect();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), grid.cells.len(), "no name twice");
    }

    #[test]
    fn a_load_has_the_same_figures_again_and_every_job_has_a_line() {
        let grid = Grid::new("raid1 2 sata 64k QD8 stream beside random 4k QD8", true).unwrap();
        let found = || grid.run(&|_, _| ()).unwrap().lines;
        let (lines, again) = (found(), found());
        assert_eq!(lines.len(), 2);
        for (line, again) in lines.iter().zip(&again) {
            assert_eq!(line.figures, again.figures, "{}", line.load);
            assert!(line.under(Setting::Weft).unwrap().requests > 100, "{}", line.load);
        }
    }
}
