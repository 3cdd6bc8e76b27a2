//! Under which circumstances is patch 000 worth how much?
//!
//! Runs `dd` or the sequential writes of `tiobench` on the machine of `experiments/000.toml` without the patch
//! and with it, with whatever is said otherwise:
//!
//! ```text
//! cargo run --release -p weft-sim --example circumstances -- [WORD=VALUE…]
//!   workload=dd | tiobench   runs=2   mib=2048   cache=256   chunk=64 (KiB)
//!   threads=1   block=4096   of tiobench
//!   variant=before           only this one; seed=N of the first run
//!   drive:KEY=VALUE          of drives/hdd-2007-7200.toml
//!   knob:NAME=VALUE          of the volume
//!   costs=frozen*4           a table of costs; cost:NAME=NS of it, ps for xor and copy
//!   queue:max_kib=512        of the members' queues
//! ```
//!
//! One line for each variant: MB/s, the gain over the first (mean of the runs' log ratios), what members read for
//! each MiB written, in how many commands, and what the arms of the first run did.

use weft_engine::knobs::Knobs;
use weft_engine::sched::mq_deadline::Settings;
use weft_engine::writeback::{Kernel, PoolConfig};
use weft_ondisk::Level;
use weft_sim::drive::Drive;
use weft_sim::machine::{CostTable, Costs, Machine, Parts};
use weft_sim::workload::dd::{Dd, Device};
use weft_sim::workload::tiobench::{Phase, Run, Tiobench};
use weft_sim::workload::xfs::Xfs;
use weft_units::{Bytes, Sectors, Span, Time};

/// What was around the patch, then what distinguishes the variants.
const AROUND: [&str; 3] = ["activation=at_unplug", "stripe_cache_form=2008", "writes=gather"];
const VARIANTS: [(&str, &[&str]); 3] = [
    ("before", &["priority=fifo"]),
    ("threshold 1", &["priority=bypass", "preread_bypass_threshold=1"]),
    ("threshold 0", &["priority=bypass", "preread_bypass_threshold=0"]),
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
    "variant",
    "queue:max_kib",
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
                "row" => &mut costs.row,
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

    fn parts(&self, variant: &[&str], seed: u64) -> Parts {
        let mut knobs = Knobs::md();
        let size = format!("stripe_cache_size={}", self.number("cache", 256));
        let fixed = AROUND.iter().copied().chain([size.as_str()]).chain(variant.iter().copied());
        let fixed = fixed.map(|setting| setting.split_once('=').expect("they are written so"));
        for (name, value) in fixed.chain(self.under("knob:")) {
            let knob = knobs.parse(name, value).unwrap_or_else(|error| panic!("{error}"));
            knobs.set(knob);
        }
        let drive: String =
            self.under("drive:").map(|(key, value)| format!("{key} = {value}\n")).collect();
        let model = Drive::model("hdd-2007-7200").and_then(|model| model.with(&drive));
        Parts {
            level: Level::Raid5,
            model: model.unwrap_or_else(|error| panic!("{error}")),
            members: 4,
            chunk: Bytes::kib(self.number("chunk", 64)).sectors_floor(),
            member_size: None,
            knobs,
            queue: Settings {
                max: Sectors(self.number("queue:max_kib", 512) * 2),
                ..Settings::default()
            },
            costs: self.costs(),
            seed,
        }
    }
}

/// What a run found: MB/s, and the machine to look at.
fn run(words: &Words, parts: &Parts) -> (f64, Machine) {
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
        return (rate, machine);
    }
    machine.add_page_cache(pool, Box::new(Device), Bytes::kib(4));
    let pid = machine.add_with(|pid| Box::new(Dd::new(pid, Bytes::mib(1), mib)));
    machine.run(until);
    let closed = machine.process::<Dd>(pid).closed.expect("it ended in time");
    (mib as f64 * 1_048_576.0 / (closed.0 as f64 / 1e3), machine)
}

fn main() {
    let words = Words::given();
    let runs = words.number("runs", 2);
    let mib = words.number("mib", 2048) as f64;
    let mut before = Vec::new();
    for (name, variant) in VARIANTS {
        if words.text("variant").is_some_and(|only| only != name) {
            continue;
        }
        let (mut rates, mut kib, mut commands) = (Vec::new(), 0.0, 0);
        let mut arms = String::new();
        for seed in (0..runs).map(|run| words.number("seed", 0x7765_6674) + run) {
            let (rate, machine) = run(&words, &words.parts(variant, seed));
            rates.push(rate);
            for member in machine.host.traffic() {
                kib += member.sectors_read as f64 / 2.0 / mib / runs as f64;
                commands += member.reads;
            }
            if arms.is_empty() {
                arms = arms_of(&machine);
            }
        }
        let logs =
            rates.iter().zip(&before).map(|(with, without): (&f64, &f64)| (with / without).ln());
        let gain = (logs.sum::<f64>() / runs as f64).exp();
        let mean = rates.iter().sum::<f64>() / runs as f64;
        println!(
            "{name:12} {mean:6.1} MB/s {:+6.1} %  read {kib:5.1} KiB/MiB in {:5} commands;{arms}",
            (gain - 1.0) * 100.0,
            commands / runs
        );
        if before.is_empty() {
            before = rates;
        }
    }
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
