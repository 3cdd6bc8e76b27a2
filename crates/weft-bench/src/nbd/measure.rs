//! Cases of the NBD benchmark, and the servers that are compared in each.

use std::time::Duration;

use tempfile::TempDir;

use crate::BenchError;
use crate::rounds::Effort;
use crate::sheet::{Sheet, SheetRow};

use super::load::{Job, Result as Loaded};
use super::server::{Server, ServerKind};

/// Parameters of the NBD benchmark: time for each measurement, and the cases.
#[derive(Clone, Debug)]
pub struct NbdLoad {
    /// Seconds for each measurement.
    pub seconds: f64,
    /// Text that the names of the measured cases contain; empty for all cases.
    pub only: String,
}

impl NbdLoad {
    /// Fills a row for each case and each server that weft is compared with.
    ///
    /// # Errors
    /// A server other than nbdkit does not start, or answers incorrectly; `seconds` is not a valid
    /// time.
    pub fn measure(&self, effort: Effort, sheet: &mut Sheet) -> Result<(), BenchError> {
        let dir = tempfile::tempdir()
            .map_err(|error| BenchError::failed(format!("a directory for sockets: {error}")))?;
        let seconds = if effort.quick { self.seconds / 4.0 } else { self.seconds };
        let bench = Bench {
            dir,
            rounds: effort.rounds(9, 2),
            span: Duration::try_from_secs_f64(seconds)
                .map_err(|error| BenchError::usage(format!("--seconds: {error}")))?,
            only: self.only.clone(),
        };
        let arrays = ARRAY_CASES.len() * STRIPE_SIZES.len() + 1;
        sheet.expect(CASES.len() * 2 + 2 + RECORD_CASES.len() * 2 + arrays);
        bench.bare(sheet)?;
        bench.recorded(sheet)?;
        bench.arrays(sheet)
    }
}

struct Bench {
    dir: TempDir,
    rounds: u32,
    span: Duration,
    only: String,
}

/// A load, with the least acceptable ratios to nbdkit and to the minimal server. Without a ratio
/// weft is not compared with that server.
struct Case {
    name: &'static str,
    job: Job,
    figure: Figure,
    nbdkit: Option<f64>,
    least: Option<f64>,
}

/// Figure of a load's result that a case reports.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Figure {
    /// Thousands of requests per second.
    Rate,
    /// Megabytes per second.
    Bytes,
    /// Median latency in microseconds.
    Latency,
}

impl Figure {
    fn of(self, loaded: &Loaded) -> f64 {
        match self {
            Self::Rate => loaded.requests as f64 / loaded.seconds / 1e3,
            Self::Bytes => loaded.bytes as f64 / loaded.seconds / 1e6,
            Self::Latency => loaded.latency_us,
        }
    }

    fn unit(self) -> &'static str {
        match self {
            Self::Rate => "kIOPS",
            Self::Bytes => "MB/s",
            Self::Latency => "us",
        }
    }

    fn row(self, case: String, ours: &[f64], baseline: Option<(&str, &[f64])>) -> SheetRow {
        match self {
            Self::Rate | Self::Bytes => SheetRow::faster(case, self.unit(), ours, baseline),
            Self::Latency => SheetRow::fewer(case, self.unit(), ours, baseline),
        }
    }
}

impl Bench {
    fn start(&self, kind: ServerKind) -> Result<Server, BenchError> {
        Server::start(kind, self.dir.path())
    }

    fn wants(&self, case: &str) -> bool {
        case.contains(&self.only)
    }

    /// Fills the rows that compare weft, serving a bare member in memory, with nbdkit and with the
    /// minimal server.
    fn bare(&self, sheet: &mut Sheet) -> Result<(), BenchError> {
        let cases: Vec<&Case> = CASES.iter().filter(|case| self.wants(case.name)).collect();
        if cases.is_empty() {
            return Ok(());
        }
        let mut servers = vec![self.start(ServerKind::Bare)?, self.start(ServerKind::Least)?];
        match self.start(ServerKind::Nbdkit) {
            Ok(server) => servers.push(server),
            Err(error) => sheet.absent(&error.to_string()),
        }
        servers.iter().try_for_each(Server::fill)?;
        for case in cases {
            sheet.now(case.name);
            let results = self.in_turns(&servers, &case.job)?;
            let figures: Vec<Vec<f64>> =
                results.iter().map(|loaded| each(loaded, |one| case.figure.of(one))).collect();
            let name = |index: usize| servers[index].kind.name();
            if let Some(mark) = case.least {
                let baseline = Some((name(1), &figures[1][..]));
                sheet.push(case.figure.row(case.name.into(), &figures[0], baseline).mark(mark));
            }
            if let (Some(mark), Some(other)) = (case.nbdkit, figures.get(2)) {
                let baseline = Some((name(2), &other[..]));
                sheet.push(case.figure.row(case.name.into(), &figures[0], baseline).mark(mark));
            }
            if case.job.connections > 1 {
                let cpu = |index: usize| each(&results[index], Loaded::cpu_us_per_request);
                let name = format!("{}, server CPU per request", case.name);
                let baseline = Some((servers[1].kind.name(), &cpu(1)[..]));
                let row = SheetRow::fewer(name, "us", &cpu(0), baseline);
                sheet.push(row.mark(1.0 / CPU_RATIO_MAX));
            }
        }
        Ok(())
    }

    /// Measures the cost of `serve --record` where the cost is largest: requests go to a member in
    /// memory, and the client, the server and the thread that writes the log share one CPU.
    fn recorded(&self, sheet: &mut Sheet) -> Result<(), BenchError> {
        let cases: Vec<&Case> = RECORD_CASES.iter().filter(|case| self.wants(case.name)).collect();
        if cases.is_empty() {
            return Ok(());
        }
        let servers = [self.start(ServerKind::Bare)?, self.start(ServerKind::Recorded)?];
        servers.iter().try_for_each(Server::fill)?;
        for case in cases {
            sheet.now(case.name);
            let [bare, recorded] = &self.in_turns(&servers, &case.job)?[..] else {
                return Err(BenchError::failed("expected the results of two servers"));
            };
            let [rate, baseline] =
                [recorded, bare].map(|loaded| each(loaded, |one| case.figure.of(one)));
            let baseline = Some((NOT_RECORDED, &baseline[..]));
            sheet.push(case.figure.row(case.name.into(), &rate, baseline).mark(RECORD_RATIO));
            let [cpu, baseline] =
                [recorded, bare].map(|loaded| each(loaded, Loaded::cpu_us_per_request));
            let name = format!("{}, server CPU per request", case.name);
            sheet.push(SheetRow::fewer(name, "us", &cpu, Some((NOT_RECORDED, &baseline[..]))));
        }
        Ok(())
    }

    /// Fills the rows for RAID 5 on four members in memory, for each stripe size.
    fn arrays(&self, sheet: &mut Sheet) -> Result<(), BenchError> {
        if !self.wants("RAID 5") && !ARRAY_CASES.iter().any(|case| self.wants(case.name)) {
            return Ok(());
        }
        let mut servers = vec![self.start(ServerKind::Bare)?];
        for stripe_size in STRIPE_SIZES {
            match self.start(ServerKind::Array(stripe_size)) {
                Ok(server) => servers.push(server),
                Err(error) => sheet.absent(&error.to_string()),
            }
        }
        servers.iter().try_for_each(Server::fill)?;
        for case in ARRAY_CASES {
            sheet.now(case.name);
            let results = self.in_turns(&servers[1..], &case.job)?;
            let figures: Vec<Vec<f64>> =
                results.iter().map(|loaded| each(loaded, |one| case.figure.of(one))).collect();
            let is_auto = |server: &&Server| matches!(server.kind, ServerKind::Array("auto"));
            let auto = servers[1..].iter().position(|server| is_auto(&server));
            for (index, server) in servers[1..].iter().enumerate() {
                let name = format!("{}, {}", case.name, server.kind.name());
                let row = match auto.filter(|auto| *auto != index) {
                    // Auto must be at least as good as each fixed size.
                    Some(auto) => {
                        let baseline = Some((server.kind.name(), &figures[index][..]));
                        let name = format!("{}, auto", case.name);
                        case.figure.row(name, &figures[auto], baseline).mark(1.0)
                    }
                    None => case.figure.row(name, &figures[index], None),
                };
                sheet.push(row);
            }
        }
        self.full_stripes(&servers, sheet)
    }

    /// Fills the rows that compare each array with a bare member: user bytes of full-stripe writes
    /// per second of the server's CPU time.
    fn full_stripes(&self, servers: &[Server], sheet: &mut Sheet) -> Result<(), BenchError> {
        sheet.now(FULL_STRIPES.0);
        let results = self.in_turns(servers, &FULL_STRIPES.1)?;
        let figures: Vec<Vec<f64>> =
            results.iter().map(|loaded| each(loaded, Loaded::mb_per_cpu_second)).collect();
        for (index, server) in servers.iter().enumerate().skip(1) {
            let case = format!("{}, {}", FULL_STRIPES.0, server.kind.name());
            let baseline = Some((servers[0].kind.name(), &figures[0][..]));
            let row = SheetRow::faster(case, "MB/CPU s", &figures[index], baseline);
            sheet.push(row.mark(FULL_STRIPE_RATIO));
        }
        Ok(())
    }

    /// Runs a load on the servers alternately. Returns the results of each server, round by round.
    fn in_turns(&self, servers: &[Server], job: &Job) -> Result<Vec<Vec<Loaded>>, BenchError> {
        let mut results: Vec<Vec<Loaded>> = servers.iter().map(|_| Vec::new()).collect();
        for round in 0..self.rounds {
            let mut order: Vec<usize> = (0..servers.len()).collect();
            if round % 2 == 1 {
                order.reverse();
            }
            for index in order {
                results[index].push(servers[index].load(job, self.span)?);
            }
        }
        Ok(results)
    }
}

fn each(results: &[Loaded], figure: impl Fn(&Loaded) -> f64) -> Vec<f64> {
    results.iter().map(figure).collect()
}

pub(super) const fn job(write: bool, bytes: u32, depth: usize, connections: usize) -> Job {
    Job {
        write,
        random: bytes <= 4096,
        bytes,
        depth,
        connections,
        pinned: false,
        span: EXPORT_BYTES,
    }
}

/// Creates a load during which client and server run on the first CPU, to compare servers of weft
/// with each other. Without this, one server may be half as fast as another in every round, only
/// because the kernel started it on a different CPU.
const fn on_one_cpu(write: bool, bytes: u32, depth: usize) -> Job {
    Job { pinned: true, ..job(write, bytes, depth, 1) }
}

const fn case(
    name: &'static str,
    job: Job,
    figure: Figure,
    nbdkit: Option<f64>,
    least: Option<f64>,
) -> Case {
    Case { name, job, figure, nbdkit, least }
}

/// Size of every volume, in bytes.
pub(super) const EXPORT_BYTES: u64 = 512 << 20;
const PINNED: Job = Job { pinned: true, ..job(false, 4096, 1, 1) };
const PINNED_WRITE: Job = Job { pinned: true, ..job(true, 4096, 1, 1) };
/// Least acceptable ratio of the minimal server's latency to weft's: weft may take 1.3 times as
/// long.
const LATENCY: Option<f64> = Some(1.0 / 1.3);
const CPU_RATIO_MAX: f64 = 2.5;
const FULL_STRIPE_RATIO: f64 = 0.6;
/// Cases of a bare member, with their least acceptable ratios to nbdkit and to the minimal server.
const CASES: &[Case] = &[
    case("4K read QD1, one CPU", PINNED, Figure::Latency, None, LATENCY),
    case("4K write QD1, one CPU", PINNED_WRITE, Figure::Latency, None, LATENCY),
    case("4K read QD32", job(false, 4096, 32, 1), Figure::Rate, Some(2.5), Some(0.6)),
    case("4K write QD32", job(true, 4096, 32, 1), Figure::Rate, Some(2.5), Some(0.6)),
    case("4K read QD64 x 2", job(false, 4096, 64, 2), Figure::Rate, Some(4.0), None),
    case("4K write QD64 x 2", job(true, 4096, 64, 2), Figure::Rate, Some(4.0), None),
    case("1M read QD4", job(false, 1 << 20, 4, 1), Figure::Bytes, Some(1.1), None),
    case("1M write QD4", job(true, 1 << 20, 4, 1), Figure::Bytes, Some(1.1), None),
];
const NOT_RECORDED: &str = "not recorded";
/// Least acceptable ratio of the rate with a log to the rate without a log.
const RECORD_RATIO: f64 = 0.8;
const RECORD_CASES: &[Case] = &[
    case("recorded 4K read QD32", on_one_cpu(false, 4096, 32), Figure::Rate, None, None),
    case("recorded 4K write QD32", on_one_cpu(true, 4096, 32), Figure::Rate, None, None),
];
const ARRAY_CASES: &[Case] = &[
    case("RAID 5 4K write QD32", on_one_cpu(true, 4096, 32), Figure::Rate, None, None),
    case("RAID 5 1M write QD4", on_one_cpu(true, 1 << 20, 4), Figure::Bytes, None, None),
];
const FULL_STRIPES: (&str, Job) = ("RAID 5 192K write QD8", on_one_cpu(true, 192 << 10, 8));
const STRIPE_SIZES: [&str; 4] = ["4096", "16384", "65536", "auto"];
