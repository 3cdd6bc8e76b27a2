//! Grid: defaults of weft beside md's, on loads and arrays that were not selected to favour weft.
//!
//! The text `experiments/grid.toml` lists arrays and loads; each pair is a [`Cell`] that is
//! simulated under several [`Setting`]s with the same seed. A cell has a [`Line`] for each job of
//! its load: rate, 99th percentile and longest wait under each setting. A job that loses beyond the
//! bound of the text is in [`Found::losses`], worst first. The text lists the jobs that are known
//! to lose, each with its reason ([`Open`]): any other losing job fails the grid, and so does a
//! listed job that no longer loses.
//!
//! The default chunk size of an array may differ between weft and md. A cell on such an array is
//! also run under weft with md's chunk size. These runs give a second mean, over equal arrays: the
//! gain on an array that mdadm created ([`Line::to_md_with_equal_chunks`]).
//!
//! The rate alone would hide two regressions, so both are tested as well: a stream that starves
//! beside another load (each job has its own line), and latency at an equal rate (open loops).

mod text;

use weft_engine::knobs::Knobs;
use weft_engine::page_cache::Kernel;
use weft_ondisk::Level;
use weft_units::{Bytes, Span};

pub use text::{Array, Bound, Change, GridError, Load, Open};

use crate::experiment::deal;
use crate::job::{Job, ParseOptions, parse_text};
use crate::simulate::{CostTable, Figures, SimulateError, Stop, Volume, faults, jobs, sync_action};
use crate::statistics::geometric_mean;
use text::Text;

/// A way to tune a volume.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Setting {
    /// Defaults of weft.
    Weft,
    /// Defaults of md.
    Md,
    /// Defaults of md with stripes of this many bytes, as on a kernel with pages of this size.
    Fixed(u32),
    /// Defaults of weft on an array with a chunk size of this many KiB.
    Chunk(u64),
}

impl Setting {
    /// Settings under which a cell is run, of the group `settings`. md's other stripe sizes are
    /// included for levels with parity only; weft with md's chunk size is included if weft's
    /// default chunk size differs.
    fn of_cell(cell: &Cell, settings: Settings) -> Vec<Self> {
        let has_parity = cell.volume.level.is_some_and(Level::has_parity);
        let mut all = match settings {
            Settings::All if has_parity => {
                vec![Self::Weft, Self::Md, Self::Fixed(16 << 10), Self::Fixed(64 << 10)]
            }
            Settings::All | Settings::Few => vec![Self::Weft, Self::Md],
            Settings::Chunks => {
                let chunks = CHUNKS_KIB.iter().map(|kib| Self::Chunk(*kib));
                return chunks.chain([Self::Md]).collect();
            }
        };
        all.extend(cell.equal_chunks.filter(|equal| *equal != Self::Weft));
        all
    }

    fn knobs(self) -> Knobs {
        match self {
            Self::Weft | Self::Chunk(_) => Knobs::default(),
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

/// An array under a load.
#[derive(Clone, Debug)]
pub struct Cell {
    /// Name of the array.
    pub array: String,
    /// Name of the load.
    pub load: String,
    volume: Volume,
    /// Chunk size that mdadm gives the array by default.
    mdadms_chunk: Bytes,
    /// Setting of weft with md's chunk size. `None` for loads of reads alone, which give the same
    /// run under weft and md if the chunk sizes are equal.
    equal_chunks: Option<Setting>,
    jobs: Vec<Job>,
}

/// Results of a job of a cell, under each setting.
#[derive(Clone, Debug)]
pub struct Line {
    /// Name of the array.
    pub array: String,
    /// Name of the load, and of the job if the load has several.
    pub load: String,
    /// Figures of the job, by setting.
    pub figures: Vec<(Setting, Figures)>,
    /// Setting of weft with md's chunk size; `None` if the cell is not compared with it.
    equal_chunks: Option<Setting>,
}

/// All cells, with their bounds and known losses.
#[derive(Clone, Debug)]
pub struct Grid {
    /// Bound beyond which a job counts as a loss, and bounds of the means.
    pub bound: Bound,
    /// Cells, array by array.
    pub cells: Vec<Cell>,
    /// Jobs that are known to lose.
    pub open: Vec<Open>,
    /// History of the bounds, oldest first.
    pub history: Vec<Change>,
    settings: Settings,
}

/// Geometric means of weft's rates as multiples of md's.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Means {
    /// Mean over all jobs of the rate with weft's defaults relative to md's defaults.
    pub to_md: f64,
    /// Mean over all jobs of the rate with weft's defaults relative to md's best stripe size.
    pub to_fixed: f64,
    /// Mean of the rate with md's chunk size under both, and the number of jobs in this mean. Loads
    /// of reads alone do not count.
    pub equal_chunks: (f64, usize),
}

/// Group of settings under which every cell is run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Settings {
    /// Defaults of weft and md.
    Few,
    /// Defaults of weft and md, and md's other stripe sizes.
    All,
    /// Defaults of weft at each chunk size, and defaults of md at its own.
    Chunks,
}

/// Results of all cells.
#[derive(Clone, Debug)]
pub struct Found {
    /// Results of the jobs, cell by cell.
    pub lines: Vec<Line>,
    bound: Bound,
    open: Vec<Open>,
}

/// Way in which a job loses against md, with the figure.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Loss {
    /// The rate is too low; the number is the rate as a multiple of md's.
    Rate(f64),
    /// The 99th percentile is too high at the same rate; the number is the percentile as a multiple
    /// of md's.
    P99(f64),
    /// The longest wait of a request, this value, exceeds the bound, and md's longest wait does
    /// not.
    Wait(Span),
}

impl Grid {
    /// The grid of the project, limited to cells with names that contain `words`. `few` limits it
    /// to the few loads that every array has, without md's other stripe sizes.
    ///
    /// # Errors
    /// The text is invalid.
    pub fn new(words: &str, few: bool) -> Result<Self, GridError> {
        let text = Text::of(include_str!("../../../../experiments/grid.toml"))?;
        let settings = if few { Settings::Few } else { Settings::All };
        Self::of(text, words, few, settings)
    }

    /// Cells that compare chunk sizes ([`Setting::Chunk`]), selected as for [`Grid::new`]: arrays
    /// that have chunks, each array once, also under loads of reads, which small chunks may harm.
    ///
    /// # Errors
    /// The text is invalid.
    pub fn of_chunks(words: &str, few: bool) -> Result<Self, GridError> {
        let mut text = Text::of(include_str!("../../../../experiments/grid.toml"))?;
        text.array.iter_mut().for_each(|array| array.chunk_kib = Some(CHUNKS_KIB[0]));
        let all = std::mem::take(&mut text.array);
        for array in all {
            let same = |other: &Array| array.is_like(other);
            if array.level != "1" && !text.array.iter().any(same) {
                text.array.push(array);
            }
        }
        text.open.clear();
        Self::of(text, words, few, Settings::Chunks)
    }

    fn of(text: Text, words: &str, few: bool, settings: Settings) -> Result<Self, GridError> {
        let costs = CostTable::named("frozen").map_err(|error| GridError(error.to_string()))?;
        let mut cells = Vec::new();
        for array in &text.array {
            let volume = volume(array, &costs)?;
            let mdadms_chunk = array.chunk_kib.map_or(Volume::MDADMS_CHUNK, Bytes::kib);
            // Loads of reads alone are left out if weft and md have equal chunk sizes, because
            // their runs would be the same.
            let by_chunk = volume.chunk != mdadms_chunk || settings == Settings::Chunks;
            let by_chunk = text.load_of_chunks.iter().filter(|_| by_chunk);
            let equal = match volume.chunk == mdadms_chunk {
                true => Setting::Weft,
                false => Setting::Chunk(mdadms_chunk.0 >> 10),
            };
            let loads = text.load.iter().map(|load| (load, Some(equal)));
            let loads = loads.chain(by_chunk.map(|load| (load, None)));
            let loads = loads
                .flat_map(|(load, equal)| load.each().into_iter().map(move |load| (load, equal)));
            for (load, equal_chunks) in loads {
                let Load { name, few: is_few, .. } = &load;
                let wanted = !few && array.all_loads || *is_few;
                if !wanted || !format!("{} {name}", array.name).contains(words) {
                    continue;
                }
                cells.push(Cell {
                    array: array.name.clone(),
                    load: name.clone(),
                    volume: volume.clone(),
                    mdadms_chunk,
                    equal_chunks,
                    jobs: parsed(&load, &text, array)?,
                });
            }
        }
        Ok(Self { bound: text.bound, cells, open: text.open, history: text.history, settings })
    }

    /// Runs every cell under every setting, on as many threads as there are CPUs. Calls the
    /// progress function after each run with the number of runs done and the number of all runs.
    ///
    /// # Errors
    /// A cell cannot be run.
    pub fn run(&self, progress: &(dyn Fn(usize, usize) + Sync)) -> Result<Found, SimulateError> {
        let runs: Vec<(&Cell, Setting)> = self
            .cells
            .iter()
            .flat_map(|cell| {
                let settings = Setting::of_cell(cell, self.settings);
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
        let equal_chunks = self.equal_chunks;
        Line { array: self.array.clone(), load, figures: Vec::new(), equal_chunks }
    }

    /// Simulates the cell under a setting. Returns the figures of each job, by its name.
    fn run(&self, setting: Setting) -> Result<Vec<(String, Figures)>, SimulateError> {
        let chunk = match setting {
            Setting::Chunk(kib) => Bytes::kib(kib),
            Setting::Weft => self.volume.chunk,
            Setting::Md | Setting::Fixed(_) => self.mdadms_chunk,
        };
        let volume = Volume { knobs: setting.knobs(), chunk, ..self.volume.clone() };
        let outcome = jobs::run(&volume, &self.jobs, &mut |_| true)?;
        match outcome.stop {
            Stop::Done => {
                Ok(outcome.results.iter().map(|job| (job.name.clone(), Figures::of(job))).collect())
            }
            stop => Err(SimulateError::Unfinished { stop }),
        }
    }
}

impl Line {
    /// Figures of the job under a setting; `None` if the job was not run under it.
    #[must_use]
    pub fn under(&self, setting: Setting) -> Option<Figures> {
        self.figures.iter().find(|(of, _)| *of == setting).map(|(_, figures)| *figures)
    }

    /// Rate with weft's defaults as a multiple of the rate with md's; 1 if one of the rates is
    /// missing.
    #[must_use]
    pub fn to_md(&self) -> f64 {
        ratio(self.under(Setting::Weft), self.under(Setting::Md))
    }

    /// Rate with weft's defaults and md's chunk size as a multiple of the rate with md's defaults;
    /// `None` if the job was not run with these settings.
    #[must_use]
    pub fn to_md_with_equal_chunks(&self) -> Option<f64> {
        let weft = self.under(self.equal_chunks?)?;
        Some(ratio(Some(weft), self.under(Setting::Md)))
    }

    /// Rate with weft's defaults as a multiple of md's best rate over all stripe sizes; 1 if one of
    /// the rates is missing.
    #[must_use]
    pub fn to_fixed(&self) -> f64 {
        let others = self.figures.iter();
        let others = others.filter(|(of, _)| matches!(of, Setting::Md | Setting::Fixed(_)));
        let best = others.map(|(_, it)| *it).max_by(|one, other| one.rate.total_cmp(&other.rate));
        ratio(self.under(Setting::Weft), best)
    }

    fn losses(&self, bound: &Bound) -> Vec<Loss> {
        self.losses_of(Setting::Weft, Setting::Md, bound)
    }

    fn losses_of(&self, ours: Setting, theirs: Setting, bound: &Bound) -> Vec<Loss> {
        let (Some(weft), Some(md)) = (self.under(ours), self.under(theirs)) else {
            return Vec::new();
        };
        let mut losses = Vec::new();
        let rate = ratio(Some(weft), Some(md));
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
    /// Lines with jobs that lose beyond the bound, each with its losses, the worst first.
    #[must_use]
    pub fn losses(&self) -> Vec<(&Line, Vec<Loss>)> {
        let lines = self.lines.iter().map(|line| (line, line.losses(&self.bound)));
        let mut losses: Vec<_> = lines.filter(|(_, losses)| !losses.is_empty()).collect();
        losses.sort_by(|(one, _), (other, _)| one.to_md().total_cmp(&other.to_md()));
        losses
    }

    /// Entry of a job in the list of known losses; `None` if the job is not listed.
    #[must_use]
    pub fn known(&self, line: &Line) -> Option<&Open> {
        self.open.iter().find(|open| (&open.array, &open.load) == (&line.array, &line.load))
    }

    /// Whether a job is listed, and loses no more than the list says, within the tolerance.
    #[must_use]
    pub fn loses_as_known(&self, line: &Line) -> bool {
        let Some(open) = self.known(line) else { return false };
        let tolerance = self.bound.open_tolerance;
        line.losses(&self.bound).into_iter().all(|loss| match loss {
            Loss::Rate(rate) => rate >= open.to_md * (1.0 - tolerance),
            Loss::P99(p99) => open.p99.is_some_and(|known| p99 <= known * (1.0 + tolerance)),
            Loss::Wait(_) => false,
        })
    }

    /// Listed losses that were run and no longer lose: they must be removed from the list.
    #[must_use]
    pub fn mended(&self) -> Vec<&Open> {
        let wins = |line: &&Line| line.losses(&self.bound).is_empty();
        self.lines.iter().filter(wins).filter_map(|line| self.known(line)).collect()
    }

    /// Geometric means of weft's rates.
    #[must_use]
    pub fn means(&self) -> Means {
        let equal = || self.lines.iter().filter_map(Line::to_md_with_equal_chunks);
        Means {
            to_md: mean(self.lines.iter().map(Line::to_md)),
            to_fixed: mean(self.lines.iter().map(Line::to_fixed)),
            equal_chunks: (mean(equal()), equal().count()),
        }
    }

    /// Comparison of each chunk size of [`CHUNKS_KIB`] with the first one.
    #[must_use]
    pub fn chunks(&self) -> Vec<OfChunk<'_>> {
        let first = Setting::Chunk(CHUNKS_KIB[0]);
        let of = |kib: &u64| {
            let setting = Setting::Chunk(*kib);
            let rate = |line: &Line| ratio(line.under(setting), line.under(first));
            let mut ratios: Vec<(f64, &Line)> =
                self.lines.iter().map(|line| (rate(line), line)).collect();
            ratios.sort_by(|(one, _), (other, _)| one.total_cmp(other));
            let loses = |other: Setting| {
                let lost = |line: &&Line| !line.losses_of(setting, other, &self.bound).is_empty();
                self.lines.iter().filter(lost).count()
            };
            OfChunk {
                kib: *kib,
                to_md: mean(
                    self.lines
                        .iter()
                        .map(|line| ratio(line.under(setting), line.under(Setting::Md))),
                ),
                lose_to_first: loses(first),
                lose_to_md: loses(Setting::Md),
                ratios,
            }
        };
        CHUNKS_KIB.iter().map(of).collect()
    }
}

/// Results of a chunk size, compared with the first chunk size of [`CHUNKS_KIB`] and with md.
#[derive(Clone, Debug)]
pub struct OfChunk<'a> {
    /// Chunk size in KiB.
    pub kib: u64,
    /// Rate of every job as a multiple of its rate with the first chunk size, the worst first.
    pub ratios: Vec<(f64, &'a Line)>,
    /// Geometric mean of the rates as multiples of the rates of untuned md, which has the first
    /// chunk size.
    pub to_md: f64,
    /// Number of jobs that lose against the first chunk size by more than the bound.
    pub lose_to_first: usize,
    /// Number of jobs that lose against md by more than the bound.
    pub lose_to_md: usize,
}

impl OfChunk<'_> {
    /// Geometric mean of the rates as multiples of the rates with the first chunk size, over the
    /// jobs of one array, or over all jobs for `None`.
    #[must_use]
    pub fn to_first(&self, array: Option<&str>) -> f64 {
        let of = self.ratios.iter().filter(|(_, line)| array.is_none_or(|it| it == line.array));
        mean(of.map(|(ratio, _)| *ratio))
    }
}

/// Geometric mean; 1 if there are no ratios.
fn mean(ratios: impl Iterator<Item = f64>) -> f64 {
    let ratios: Vec<f64> = ratios.map(|ratio| ratio.max(1e-9)).collect();
    geometric_mean(&ratios).unwrap_or(1.0)
}

/// Chunk sizes that are compared, in KiB; the first is the default of mdadm and of `weft create`.
pub const CHUNKS_KIB: [u64; 4] = [512, 256, 128, 64];

fn volume(array: &Array, costs: &CostTable) -> Result<Volume, GridError> {
    let wrong = |error: &dyn std::fmt::Display| GridError(format!("{}: {error}", array.name));
    let faults = match &array.faults {
        Some(text) => faults::parse(text, array.members).map_err(|error| wrong(&error))?,
        None => Vec::new(),
    };
    let sync = array.sync.as_deref().map(sync_action);
    let level = Some(array.level.parse().map_err(|error| wrong(&error))?);
    let members = Volume::members(std::slice::from_ref(&array.device), array.members);
    let members = members.map_err(|error| wrong(&error))?;
    let chunk = array.chunk_kib.map(Bytes::kib);
    Ok(Volume {
        level,
        chunk: chunk.unwrap_or_else(|| Volume::own_chunk(level, &members)),
        members,
        member_size: None,
        knobs: Knobs::default(),
        write_back: None,
        sync: sync.transpose().map_err(|error| wrong(&error))?,
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
            equal_chunks: Some(Setting::Weft),
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
        assert_eq!(losses[3], [], "a higher rate excuses the latency");
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
        assert!((all.means().to_md - libm::cbrt(0.9 * 0.1 * 9.0)).abs() < 1e-9);
        assert_eq!(all.means().equal_chunks, (all.means().to_md, 3));
    }

    #[test]
    fn a_loss_is_known_by_its_array_and_load_until_it_no_longer_loses() {
        let md = figures(100.0, 10, 100);
        let mut all = found(&[(figures(90.0, 1, 1), md)]);
        all.open = vec![open("another", 0.9, None)];
        assert!(all.known(&all.lines[0]).is_none() && all.mended().is_empty());
        all.open = vec![open("l", 0.9, None)];
        assert!(all.known(&all.lines[0]).is_some() && all.mended().is_empty());
        let mut all = found(&[(figures(96.0, 1, 1), md)]);
        all.open = vec![open("l", 0.9, None)];
        assert_eq!(all.mended(), [&open("l", 0.9, None)]);
    }

    fn open(load: &str, to_md: f64, p99: Option<f64>) -> Open {
        Open { array: "a".into(), load: load.into(), to_md, p99, why: "so".into() }
    }

    #[test]
    fn what_is_known_to_lose_may_lose_by_its_own_figures_and_no_more() {
        let md = figures(100.0, 10, 100);
        let as_known = |weft, to_md, p99| {
            let mut all = found(&[(weft, md)]);
            all.open = vec![open("l", to_md, p99)];
            all.loses_as_known(&all.lines[0])
        };
        assert!(as_known(figures(59.0, 1, 1), 0.6, None));
        assert!(!as_known(figures(58.0, 1, 1), 0.6, None), "beyond the tolerance");
        assert!(as_known(figures(100.0, 21, 100), 1.0, Some(2.1)));
        assert!(!as_known(figures(100.0, 22, 100), 1.0, Some(2.1)));
        assert!(!as_known(figures(100.0, 21, 100), 1.0, None), "that is another loss");
        assert!(!as_known(figures(59.0, 10, 2001), 0.6, None), "so is that");
        assert!(!found(&[(figures(59.0, 1, 1), md)]).loses_as_known(&Line {
            array: "b".into(),
            load: "l".into(),
            figures: Vec::new(),
            equal_chunks: None,
        }));
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
    fn every_load_is_on_two_arrays_and_a_few_are_on_all() {
        let grid = Grid::new("", false).unwrap();
        let few = Grid::new("", true).unwrap();
        let arrays =
            Text::of(include_str!("../../../../experiments/grid.toml")).unwrap().array.len();
        let on =
            |grid: &Grid, array: &str| grid.cells.iter().filter(|it| it.array == array).count();
        // Loads of reads alone are left out of an array with a given chunk size, where weft and md
        // do the same.
        let few_of_each = on(&few, "raid5 4 sata 512K");
        let few_with_reads = on(&few, "raid5 4 sata");
        assert!(few_of_each >= 20 && few_with_reads >= few_of_each + 8, "{few_with_reads}");
        let made_by_defaults = ["sata", "nvme", "sata degraded", "sata, one slow", "sata, resync"]
            .map(|drives| format!("raid5 4 {drives}"));
        let with_reads = made_by_defaults.iter().map(String::as_str).chain(["raid6 6 sata"]);
        assert!(with_reads.clone().all(|array| on(&few, array) == few_with_reads));
        let with_reads = with_reads.count();
        assert_eq!(
            few.cells.len(),
            with_reads * few_with_reads + (arrays - with_reads) * few_of_each
        );
        for (array, least) in [("raid5 4 sata", 100), ("raid5 4 sata 512K", 88)] {
            assert!(on(&grid, array) >= least, "{array}: {}", on(&grid, array));
        }
        assert_eq!(on(&grid, "raid6 6 sata"), few_with_reads);
        let mut names: Vec<_> = grid.cells.iter().map(|it| (&it.array, &it.load)).collect();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), grid.cells.len(), "no name twice");
    }

    #[test]
    fn sizes_of_chunks_are_compared_on_each_array_that_has_chunks_once() {
        let grid = Grid::of_chunks("", false).unwrap();
        let mut arrays: Vec<_> = grid.cells.iter().map(|it| it.array.as_str()).collect();
        arrays.dedup();
        assert_eq!(arrays.len(), 10, "{arrays:?}");
        assert!(!arrays.contains(&"raid1 2 sata") && !arrays.contains(&"raid5 4 sata 64K"));
        assert!(grid.cells.iter().any(|it| it.load.starts_with("random reads")));
        let found = Grid::of_chunks("raid0 4 nvme sequential 64k QD8", true).unwrap();
        let found = found.run(&|_, _| ()).unwrap();
        let chunks = found.chunks();
        assert_eq!(chunks.iter().map(|it| it.kib).collect::<Vec<_>>(), CHUNKS_KIB);
        assert!((chunks[0].to_first(None) - 1.0).abs() < 1e-9 && chunks[0].lose_to_first == 0);
        // The eight requests in flight lie in one chunk of 512 KiB, or in eight chunks of 64 KiB.
        assert!(chunks[3].to_first(None) > 1.2, "{chunks:?}");
        assert_eq!(chunks[3].ratios.len(), found.lines.len());
    }

    #[test]
    fn a_mean_is_by_defaults_and_another_one_with_equal_chunks() {
        let md = figures(100.0, 10, 100);
        let mut all = found(&[(figures(400.0, 1, 1), md), (figures(100.0, 1, 1), md)]);
        // The first line is of an array with another chunk size under weft; the second is a load of
        // reads alone.
        all.lines[0].equal_chunks = Some(Setting::Chunk(512));
        all.lines[0].figures.push((Setting::Chunk(512), figures(150.0, 1, 1)));
        all.lines[1].equal_chunks = None;
        let means = all.means();
        assert!((means.to_md - 2.0).abs() < 1e-9 && (means.to_fixed - 2.0).abs() < 1e-9);
        assert!((means.equal_chunks.0 - 1.5).abs() < 1e-9 && means.equal_chunks.1 == 1);
        // weft's chunks of 64K on SSDs are compared with md's of 512K, and 512K with 512K.
        let run = |words: &str| Grid::new(words, true).unwrap().run(&|_, _| ()).unwrap();
        let by_defaults = run("raid5 4 nvme sequential 64k QD8");
        let line = &by_defaults.lines[0];
        let equal = line.to_md_with_equal_chunks().unwrap();
        assert!((line.to_md() - equal).abs() > 0.05, "{} and {equal}", line.to_md());
        assert_eq!(run("raid5 4 nvme random reads 4k QD8").means().equal_chunks.1, 0);
        let made_by_mdadm = run("raid0 4 nvme sequential 64k QD8");
        let line = &made_by_mdadm.lines[0];
        assert_eq!(line.to_md_with_equal_chunks(), Some(line.to_md()));
    }

    #[test]
    fn the_bounds_are_those_of_the_last_line_of_their_history() {
        let Grid { bound, history, .. } = Grid::new("no such cell", false).unwrap();
        let last = history.last().unwrap();
        let of_last = (last.mean_to_md, last.mean_to_fixed);
        assert_eq!(of_last, (bound.mean_to_md, bound.mean_to_fixed), "write down a change");
        assert_eq!((history[0].mean_to_md, history[0].commit.as_str()), (1.25, "160f1a5c"));
        let days: Vec<&str> = history.iter().map(|change| change.date.as_str()).collect();
        assert!(days.is_sorted(), "{days:?}");
        let page = include_str!("../../../../docs/grid.md");
        for Change { commit, mean_to_md, .. } in &history {
            assert!(page.contains(commit) && page.contains(&mean_to_md.to_string()), "{commit}");
        }
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
