//! Machine of a run: drives, costs, array and knobs of a column in a case.
//!
//! Knobs are set in this order, and later ones override earlier ones: the column's base, the case's
//! knobs, the machine's, the column's own.

use weft_engine::knobs::SchedulerKind;
use weft_engine::knobs::{self, Knobs};
use weft_engine::page_cache::{Kernel, PoolConfig};
use weft_ondisk::Level;
use weft_sim::drive::{Drive, Model};
use weft_sim::machine::{Costs, Machine, MachineParts};
use weft_units::{Bytes, Span};

use super::error::ExperimentError;
use super::text::{Base, Case, Column, MachineText, Text};

/// Word for a single member without RAID, in place of the name of a level.
pub(super) const SINGLE: &str = "single";

/// Interval between two samples of a machine's internal state.
const LOOK: Span = Span::millis(1);

/// Drives and CPU costs for all columns; a column may have costs of its own.
#[derive(Clone, Debug)]
pub(super) struct Hardware {
    pub(super) model: Model,
    pub(super) costs: Costs,
    /// Time of a hop of a flush between threads.
    pub(super) flush_hop: Span,
    /// Lines of TOML that replace keys of the drive's model in some cases: the prefix of the names
    /// of these cases, and the line.
    pub(super) lines: Vec<(String, String)>,
}

/// Machine and page cache of a run: everything that the run needs apart from its load.
#[derive(Clone, Debug)]
pub(super) struct Testbed {
    pub(super) parts: MachineParts,
    pub(super) pool: PoolConfig,
    pub(super) host: HostSettings,
}

/// Settings of a text that belong to the host, not to its volume.
#[derive(Clone, Copy, Debug)]
pub(super) struct HostSettings {
    /// `kernel=NAME`: kernel that is simulated; `None` for the kernel of the text's machine.
    kernel: Option<Kernel>,
    /// `hz=N`: timer frequency of the kernel (`HZ`).
    pub(super) hz: u32,
    /// `link_mib_s=N`: bandwidth that disks behind one adapter share; 0 if they do not share.
    link_mib_s: u64,
    /// `link_percent=N`: usable share of the link's bandwidth, in percent.
    link_percent: u64,
}

impl HostSettings {
    const NONE: Self = Self { kernel: None, hz: 250, link_mib_s: 0, link_percent: 100 };

    /// Applies a setting. Returns false if it is not a setting of the host, and an error with the
    /// legal values if the value is wrong.
    fn take(&mut self, name: &str, value: &str) -> Result<bool, String> {
        let number = |least: u64, most: u64| {
            let found = value.parse::<u64>().ok().filter(|of| (least..=most).contains(of));
            found.ok_or_else(|| format!("a number, {least}..={most}"))
        };
        match name {
            "kernel" => {
                let names = || Kernel::NAMES.map(|(name, _)| name).join(", ");
                self.kernel = Some(Kernel::named(value).ok_or_else(names)?);
            }
            "hz" => {
                let hz = [100_u32, 250, 1000].into_iter().find(|hz| hz.to_string() == value);
                self.hz = hz.ok_or("100, 250, 1000")?;
            }
            "link_mib_s" => self.link_mib_s = number(0, 100_000)?,
            "link_percent" => self.link_percent = number(1, 10_000)?,
            _ => return Ok(false),
        }
        Ok(true)
    }

    /// Bytes per second of the link that disks share; `None` if they do not share one.
    pub(super) fn link(&self) -> Option<Bytes> {
        let link = Bytes(Bytes::mib(self.link_mib_s).0 / 100 * self.link_percent);
        (link.0 > 0).then_some(link)
    }
}

impl Testbed {
    /// Creates the testbed of a column in a case; `on_top` are knobs that override all others.
    /// Fails if a knob, level, drive, kernel or table of costs is unknown.
    pub(super) fn new(
        text: &Text,
        hardware: &Hardware,
        case: &Case,
        column: &Column,
        on_top: &[String],
    ) -> Result<Self, ExperimentError> {
        let MachineText { level, members, chunk_kib, .. } = &text.machine;
        let mut knobs = match column.base {
            Base::Md => Knobs::md(),
            Base::Weft => Knobs::default(),
        };
        let mut host = HostSettings::NONE;
        // The text assumes this scheduler for the disks unless it sets another.
        knobs.scheduler = SchedulerKind::MqDeadline;
        let settings = case.knobs.iter().chain(&text.machine.knobs);
        for setting in settings.chain(&column.knobs).chain(on_top) {
            let (name, value) = setting.split_once('=').unwrap_or((setting, ""));
            let of_host = host.take(name, value);
            if of_host.map_err(|expected| unknown(text, "knobs", setting, &expected))? {
                continue;
            }
            let knob = knobs
                .parse(name, value)
                .map_err(|source| ExperimentError::Knob { patch: text.patch.clone(), source })?;
            knobs.set(knob);
        }
        let known = Level::all().find(|known| known.name() == level);
        if known.is_none() && level != SINGLE {
            let names: Vec<_> = Level::all().map(Level::name).collect();
            let expected = format!("{SINGLE}, {}", names.join(", "));
            return Err(unknown(text, "machine.level", level, &expected));
        }
        let own = if case.model.is_empty() { None } else { Some(model_of(text, &case.model)?) };
        let lines = hardware.lines.iter().filter(|(of, _)| case.name.starts_with(of.as_str()));
        let mut lines = lines.map(|(_, line)| line.as_str()).chain([case.drive.as_str()]);
        let model = own.as_ref().unwrap_or(&hardware.model);
        let model = lines.try_fold(model.clone(), |model, line| model.with(line));
        let costs = match &column.costs {
            Some(name) => super::costs_of(text, name)?.costs,
            None => hardware.costs,
        };
        let parts = MachineParts {
            level: known,
            model: model
                .map_err(|source| ExperimentError::Model { patch: text.patch.clone(), source })?,
            members: *members,
            chunk: Bytes::kib(*chunk_kib).sectors_floor(),
            member_size: None,
            knobs,
            write_back: None,
            sync: None,
            costs: costs.times(case.costs_times),
            flush_hop: Span(hardware.flush_hop.0 * case.hops_times),
            seed: 0,
        };
        let mut pool = pool(text)?;
        pool.kernel = host.kernel.unwrap_or(pool.kernel);
        Ok(Self { parts, pool, host })
    }

    /// JSON that suffices to repeat the run: the knobs in the form of `--set`, all keys of the
    /// drive's model, and all CPU costs.
    pub(super) fn to_json(&self, case: &Case) -> serde_json::Value {
        let MachineParts { level, model, members, chunk, knobs, costs, flush_hop, .. } =
            &self.parts;
        let of_knob = |row: &knobs::KnobRow| (row.name.to_owned(), knobs.show(row.name).into());
        let knobs: serde_json::Map<_, _> = knobs::TABLE.iter().map(of_knob).collect();
        let costs: serde_json::Map<_, _> =
            costs.named().map(|(name, cost)| (name.to_owned(), cost.into())).collect();
        serde_json::json!({
            "level": level.map_or(SINGLE.to_owned(), |level| level.to_string()),
            "members": members,
            "chunk_bytes": chunk.bytes().0,
            "drive": model.to_toml(),
            "knobs": knobs,
            "costs": costs,
            "flush_hop_ns": flush_hop.0,
            "page_cache": format!("{:?}", self.pool),
            "host": format!("{:?}", self.host),
            "load": format!("{:?}", case.load),
        })
    }

    /// Creates a new machine from these parts. Its internal state is sampled while it runs.
    pub(super) fn machine(&self) -> Machine {
        let mut machine = Machine::new(&self.parts);
        machine.host.watch_over_time(LOOK);
        machine
    }

    /// Copy of the testbed with another seed.
    pub(super) fn with_seed(&self, seed: u64) -> Self {
        let parts = MachineParts { seed, ..self.parts.clone() };
        Self { parts, pool: self.pool, host: self.host }
    }
}

/// The drive of an experiment, without fitted parameters. All runs share one model, so its steady
/// state is computed only once.
pub(super) fn plain_model(text: &Text) -> Result<Model, ExperimentError> {
    model_of(text, &text.machine.model)
}

fn model_of(text: &Text, name: &str) -> Result<Model, ExperimentError> {
    Drive::model(name)
        .map_err(|source| ExperimentError::Model { patch: text.patch.clone(), source })
}

fn pool(text: &Text) -> Result<PoolConfig, ExperimentError> {
    let MachineText { memory_mib, cpus, kernel, .. } = &text.machine;
    let Some(kernel) = Kernel::named(kernel) else {
        let names = Kernel::NAMES.map(|(name, _)| name).join(", ");
        return Err(unknown(text, "machine.kernel", kernel, &names));
    };
    let pages = memory_mib * 256;
    // The kernel and its programs are assumed to take an eighth of the memory.
    Ok(PoolConfig::new(kernel, *cpus, pages, pages / 8 * 7))
}

fn unknown(text: &Text, field: &'static str, found: &str, expected: &str) -> ExperimentError {
    let (patch, found) = (text.patch.clone(), found.to_owned());
    ExperimentError::Unknown { patch, field, found, expected: expected.to_owned() }
}
