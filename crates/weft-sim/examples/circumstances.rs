//! Sensitivity of patch 000 to its circumstances: drive, cache, costs, threads, chunk.
//!
//! Runs `dd`, the sequential writes of `tiobench`, or `dd` beside writers of single blocks on the
//! machine of `experiments/000.toml` without the patch, with it, and with weft's own rule, with
//! whatever is said otherwise:
//!
//! ```text
//! cargo run --release -p weft-sim --example circumstances -- [WORD=VALUE…]
//!   workload=dd | tiobench | mixed   runs=2   mib=2048   cache=256   chunk=64 (KiB)
//!   threads=1   block=4096   of tiobench
//!   writers=8   writes=160   sync=0   of mixed, each, and the flag
//!   activation=at_unplug     or each_turn, as today
//!   model=hdd-2007-7200
//!   variant=before           only this one; seed=N of the first run
//!   drive:KEY=VALUE          of the drive's model
//!   knob:NAME=VALUE          of the volume
//!   costs=frozen*4           a table of costs; cost:NAME=NS of it, ps for xor and copy
//! ```
//!
//! One line for each variant: MB/s, the gain over the first (mean of the runs' log ratios, and in
//! brackets half its 95 % interval), how long 99.9 % of prereads waited at most, what members read
//! for each MiB written, in how many commands, and what the arms of the first run did. Of `mixed`
//! the rate until all are done as well.

use weft_engine::knobs::Knobs;
use weft_engine::knobs::SchedulerKind;
use weft_engine::page_cache::{Kernel, PoolConfig};
use weft_sim::drive::Drive;
use weft_sim::machine::{CostTable, Costs, Machine, MachineParts};
use weft_sim::workload::dd::Device;
use weft_sim::workload::mixed::Mixed;
use weft_sim::workload::tiobench::{Phase, Run, Tiobench};
use weft_sim::workload::xfs::Xfs;
use weft_units::{Bytes, Span, Time};

/// What was around the patch, then what distinguishes the variants.
const AROUND: [&str; 2] = ["stripe_cache_form=2008", "writes=gather"];
const VARIANTS: [(&str, &[&str]); 4] = [
    ("before", &["priority=fifo"]),
    ("threshold 1", &["priority=bypass", "preread_bypass_threshold=1"]),
    ("threshold 0", &["priority=bypass", "preread_bypass_threshold=0"]),
    ("stream", &["priority=stream"]),
];

const KNOWN: &[&str] = &[
    "costs",
    "workload",
    "runs",
    "seed",
    "mib",
    "cache",
    "chunk",
    "threads",
    "block",
    "writers",
    "writes",
    "sync",
    "activation",
    "model",
    "variant",
];

/// `WORD=VALUE` as it was given.
struct Words(Vec<(String, String)>);

impl Words {
    fn given() -> Self {
        let split = |word: String| match word.split_once('=') {
            Some((name, value)) => (name.to_owned(), value.to_owned()),
            None => {
                panic!("{word}: expected WORD=VALUE; the first lines of this example say which")
            }
        };
        let words: Vec<_> = std::env::args().skip(1).map(split).collect();
        let is_known = |name: &str| {
            KNOWN.contains(&name)
                || ["drive:", "knob:", "cost:"].iter().any(|p| name.starts_with(p))
        };
        if let Some((name, _)) = words.iter().find(|(name, _)| !is_known(name)) {
            panic!("{name}: no such word; expected {} or drive:, knob:, cost:", KNOWN.join(", "));
        }
        Self(words)
    }

    fn text(&self, name: &str) -> Option<&str> {
        self.0.iter().find(|(of, _)| of == name).map(|(_, value)| value.as_str())
    }

    fn number(&self, name: &str, default: u64) -> u64 {
        let parse = |text: &str| text.parse().unwrap_or_else(|_| panic!("{name}={text}: a number"));
        self.text(name).map_or(default, parse)
    }

    /// Those that begin with this, without it.
    fn under(&self, prefix: &str) -> impl Iterator<Item = (&str, &str)> {
        self.0.iter().filter_map(move |(name, value)| {
            name.strip_prefix(prefix).map(|name| (name, value.as_str()))
        })
    }

    fn costs(&self) -> Costs {
        let table = CostTable::named(self.text("costs").unwrap_or("frozen*4"));
        let mut costs = table.unwrap_or_else(|error| panic!("{error}")).costs;
        for (name, value) in self.under("cost:") {
            let cost = match name {
                "turn" => &mut costs.turn,
                "input" => &mut costs.input,
                "stripe" => &mut costs.stripe,
                "submit" => &mut costs.submit,
                "xor" => &mut costs.xor,
                "copy" => &mut costs.copy,
                "syscall" => &mut costs.syscall,
                "bio" => &mut costs.bio,
                _ => panic!("cost:{name}: no such cost"),
            };
            *cost = value.parse().unwrap_or_else(|_| panic!("cost:{name}={value}: a number"));
        }
        costs
    }

    fn parts(&self, variant: &[&str], seed: u64) -> MachineParts {
        let mut knobs = Knobs { scheduler: SchedulerKind::MqDeadline, ..Knobs::md() };
        let size = format!("stripe_cache_size={}", self.number("cache", 256));
        let activation = format!("activation={}", self.text("activation").unwrap_or("at_unplug"));
        let fixed = AROUND.iter().copied().chain([size.as_str(), &activation]);
        let fixed = fixed.chain(variant.iter().copied());
        let fixed = fixed.map(|setting| setting.split_once('=').expect("they are written so"));
        for (name, value) in fixed.chain(self.under("knob:")) {
            let knob = knobs.parse(name, value).unwrap_or_else(|error| panic!("{error}"));
            knobs.set(knob);
        }
        let drive: String =
            self.under("drive:").map(|(key, value)| format!("{key} = {value}\n")).collect();
        let model = Drive::model(self.text("model").unwrap_or("hdd-2007-7200"))
            .and_then(|model| model.with(&drive));
        let chunk = Bytes::kib(self.number("chunk", 64));
        MachineParts {
            model: model.unwrap_or_else(|error| panic!("{error}")),
            costs: self.costs(),
            seed,
            ..MachineParts::raid5("null", chunk, knobs)
        }
    }
}

/// What a run found: MB/s, the same until all are done, and the machine to look at.
fn run(words: &Words, parts: &MachineParts) -> (f64, f64, Machine) {
    let mut machine = Machine::new(parts);
    let pages = 262_144;
    let pool = PoolConfig::new(Kernel::V2_6_24, 4, pages, pages / 8 * 7);
    let mib = words.number("mib", 2048);
    let until = Time(0) + Span::secs(36_000);
    if words.text("workload") == Some("tiobench") {
        let xfs = Xfs::new(machine.host.size(), Bytes::kib(64), Bytes::kib(192), Bytes::mib(mib));
        machine.add_page_cache(pool, Box::new(xfs), Bytes::kib(256));
        let threads = u32::try_from(words.number("threads", 1)).expect("a few threads");
        let block = words.number("block", 4096);
        let mut of = Tiobench::published(threads, Bytes(block), xfs.log(), parts.seed);
        (of.size, of.phases) = (Bytes::mib(mib), vec![Phase::Write]);
        let pid = of.add_to(&mut machine);
        machine.run(until);
        let rate = machine.process::<Run>(pid).timed()[0].rate() / 1e6;
        return (rate, rate, machine);
    }
    machine.add_page_cache(pool, Box::new(Device), Bytes::kib(4));
    let mixed = words.text("workload") == Some("mixed");
    let writers = if mixed { words.number("writers", 8) } else { 0 };
    let (writes, sync_flag) = (words.number("writes", 160), words.number("sync", 0) != 0);
    let all = Mixed { mib, writers, writes, sync_flag, seed: parts.seed };
    let all = all.add_to(&mut machine);
    machine.run(until);
    let closed = all.dd(&machine).closed.expect("it ended in time");
    let ended = all.ended(&machine).expect("all ended in time");
    let rate = |bytes: u64, until: Time| bytes as f64 * 1e3 / until.0 as f64;
    (rate(mib << 20, closed), rate(all.done(&machine).0, ended), machine)
}

fn main() {
    let words = Words::given();
    let runs = words.number("runs", 2);
    let mib = words.number("mib", 2048) as f64;
    let (mut before, mut before_all) = (Vec::new(), Vec::new());
    for (name, variant) in VARIANTS {
        if words.text("variant").is_some_and(|only| only != name) {
            continue;
        }
        let (mut rates, mut until_all, mut kib, mut commands) = (Vec::new(), Vec::new(), 0.0, 0);
        let (mut arms, mut waits) = (String::new(), 0.0);
        for seed in (0..runs).map(|run| words.number("seed", 0x7765_6674) + run) {
            let (rate, all, machine) = run(&words, &words.parts(variant, seed));
            rates.push(rate);
            until_all.push(all);
            for member in machine.host.traffic() {
                kib += member.sectors_read as f64 / 2.0 / mib / runs as f64;
                commands += member.reads;
            }
            let of = &machine.host.snapshot().volumes[0].raid.stripe_waits.preread;
            waits += of.permille(999).0 as f64 / 1e6 / runs as f64;
            if arms.is_empty() {
                arms = arms_of(&machine);
            }
        }
        let mean = |of: &[f64]| of.iter().sum::<f64>() / of.len() as f64;
        let all = match words.text("workload") {
            Some("mixed") => {
                format!(" all done {:6.1} MB/s {}", mean(&until_all), gain(&until_all, &before_all))
            }
            _ => String::new(),
        };
        println!(
            "{name:12} {:6.1} MB/s {}{all}  waits {waits:6.1} ms  read {kib:5.1} KiB/MiB in {:5} commands;{arms}",
            mean(&rates),
            gain(&rates, &before),
            commands / runs
        );
        if before.is_empty() {
            (before, before_all) = (rates, until_all);
        }
    }
}

/// By so much, in the mean of log ratios, and half its 95 % interval for few runs.
fn gain(with: &[f64], without: &[f64]) -> String {
    let logs: Vec<f64> =
        with.iter().zip(without).map(|(with, without)| (with / without).ln()).collect();
    let count = logs.len() as f64;
    let mean = logs.iter().sum::<f64>() / count;
    let spread = logs.iter().map(|log| (log - mean).powi(2)).sum::<f64>() / (count - 1.0).max(1.0);
    let student = [0.0, 12.7, 4.3, 3.18, 2.78, 2.57, 2.45, 2.36, 2.31];
    let student = student.get(logs.len().saturating_sub(1)).copied().unwrap_or(2.2);
    let percent = |log: f64| (log.exp() - 1.0) * 100.0;
    format!("{:+6.1} % ({:3.1})", percent(mean), student * (spread / count).sqrt() * 100.0)
}

fn arms_of(machine: &Machine) -> String {
    let mut sums = [0; 3];
    for drive in machine.host.drives() {
        let counters = drive.counters();
        let of = [counters.media_busy, counters.seek_time, counters.rotational_wait];
        sums.iter_mut().zip(of).for_each(|(sum, span)| *sum += span.0);
    }
    let elapsed = machine.host.now().0 as f64 * machine.host.drives().count() as f64;
    let [busy, seek, rotation] = sums.map(|sum| sum as f64 / elapsed * 100.0);
    let (writes, sectors) = machine.host.traffic().fold((0, 0), |(writes, sectors), member| {
        (writes + member.writes, sectors + member.sectors_written)
    });
    let size = sectors as f64 / 2.0 / writes.max(1) as f64;
    format!(
        " arms busy {busy:.1} %, moving {seek:.1} %, turning {rotation:.1} %; writes of {size:.0} KiB"
    )
}
