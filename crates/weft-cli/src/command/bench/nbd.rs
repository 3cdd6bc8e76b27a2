//! `weft bench nbd`: how fast is a volume over NBD, against nbdkit and against the least server?
//!
//! Every server is a process of its own on a unix socket, and they take turns under one lean client
//! (`load.rs`), so that the server is the limit. The least server (`least.rs`) is what a socket
//! carries: memory, one receive and one send for many requests, and no engine. A client and a
//! server between which data crosses from one CPU to the other are two or three times slower than
//! both on one, and the kernel decides that; hence many short rounds and the median.

mod array;
mod least;
mod load;
#[allow(unsafe_code, reason = "memory that connections share without asking each other")]
mod memory;
mod server;

use std::path::PathBuf;
use std::time::Duration;

use clap::Args;
use tempfile::TempDir;

use super::rounds::Effort;
use super::sheet::{Sheet, SheetRow};
use crate::outcome::Failure;
use load::{Job, Result as Loaded};
use server::{Server, ServerKind};

/// Measures volumes over NBD
///
/// A bare member of memory against nbdkit's memory plugin (Debian package nbdkit) and against the
/// least server there can be; the same member with serve --record against without; then RAID 5 on
/// four members of memory with several stripe sizes, and its full-stripe writes against the bare
/// member. All on unix sockets.
#[derive(Debug, Args)]
pub(crate) struct OfNbd {
    /// Seconds for each measurement
    #[arg(long, default_value_t = 0.5, value_name = "SECONDS")]
    seconds: f64,
    /// Measure only cases whose name contains this text, as in 'QD32' or 'RAID 5'
    #[arg(long, value_name = "TEXT")]
    only: Option<String>,
    /// Serve memory on this socket in the least way, until killed: what this benchmark starts
    #[arg(long, hide = true, value_name = "SOCKET")]
    serve_least: Option<PathBuf>,
    /// Serve a RAID 5 on memory on this socket, until killed: what this benchmark starts
    #[arg(long, hide = true, value_name = "SOCKET")]
    serve_array: Option<PathBuf>,
    /// Stripe size of that array
    #[arg(long, hide = true, default_value = "4096", value_name = "SIZE")]
    stripe_size: String,
}

impl OfNbd {
    pub(super) fn measure(&self, effort: Effort, sheet: &mut Sheet) -> Result<(), Failure> {
        if let Some(socket) = &self.serve_least {
            return least::serve(socket, EXPORT_BYTES).map_err(Failure::failed);
        }
        if let Some(socket) = &self.serve_array {
            return array::serve(socket, &self.stripe_size, EXPORT_BYTES);
        }
        let dir = tempfile::tempdir()
            .map_err(|error| Failure::failed(format!("a directory for sockets: {error}")))?;
        let seconds = if effort.quick { self.seconds / 4.0 } else { self.seconds };
        let bench = Bench {
            dir,
            rounds: effort.rounds(9, 2),
            span: Duration::try_from_secs_f64(seconds)
                .map_err(|error| Failure::usage(format!("--seconds: {error}")))?,
            only: self.only.clone().unwrap_or_default(),
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

/// A load, and what it has to reach: against nbdkit, against the least server.
struct Case {
    name: &'static str,
    job: Job,
    figure: Figure,
    nbdkit: Option<f64>,
    least: Option<f64>,
}

/// What of a result is told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Figure {
    /// Requests a second.
    Rate,
    /// Bytes a second.
    Bytes,
    /// The median latency.
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
    fn wants(&self, case: &str) -> bool {
        case.contains(&self.only)
    }

    /// A bare member of memory, nbdkit and the least server.
    fn bare(&self, sheet: &mut Sheet) -> Result<(), Failure> {
        let cases: Vec<&Case> = CASES.iter().filter(|case| self.wants(case.name)).collect();
        if cases.is_empty() {
            return Ok(());
        }
        let dir = self.dir.path();
        let mut servers =
            vec![Server::start(ServerKind::Bare, dir)?, Server::start(ServerKind::Least, dir)?];
        match Server::start(ServerKind::Nbdkit, dir) {
            Ok(server) => servers.push(server),
            Err(failure) => sheet.absent(&server::absent(&failure)),
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

    /// What `serve --record` costs, where requests cost the least beside it: on memory, and the
    /// thread that keeps the log on the same CPU.
    fn recorded(&self, sheet: &mut Sheet) -> Result<(), Failure> {
        let cases: Vec<&Case> = RECORD_CASES.iter().filter(|case| self.wants(case.name)).collect();
        if cases.is_empty() {
            return Ok(());
        }
        let dir = self.dir.path();
        let servers =
            [Server::start(ServerKind::Bare, dir)?, Server::start(ServerKind::Recorded, dir)?];
        servers.iter().try_for_each(Server::fill)?;
        for case in cases {
            sheet.now(case.name);
            let [bare, recorded] = &self.in_turns(&servers, &case.job)?[..] else {
                return Err(Failure::failed("expected the results of two servers"));
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

    /// RAID 5 on four members of memory.
    fn arrays(&self, sheet: &mut Sheet) -> Result<(), Failure> {
        if !self.wants("RAID 5") && !ARRAY_CASES.iter().any(|case| self.wants(case.name)) {
            return Ok(());
        }
        let dir = self.dir.path();
        let mut servers = vec![Server::start(ServerKind::Bare, dir)?];
        for stripe_size in STRIPE_SIZES {
            match Server::start(ServerKind::Array(stripe_size), dir) {
                Ok(server) => servers.push(server),
                Err(failure) => sheet.absent(&server::absent(&failure)),
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
                    // Auto has to be at least as good as each fixed size.
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

    /// User bytes of full-stripe writes for each second of the server's CPU.
    fn full_stripes(&self, servers: &[Server], sheet: &mut Sheet) -> Result<(), Failure> {
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

    /// What each server does under a load, round by round.
    fn in_turns(&self, servers: &[Server], job: &Job) -> Result<Vec<Vec<Loaded>>, Failure> {
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

const fn job(write: bool, bytes: u32, depth: usize, connections: usize) -> Job {
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

/// Where weft is compared with itself, client and server are on one CPU: else a server that the
/// kernel happens to have begun on the other one looks half as fast, in every round.
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

/// What volumes are long.
const EXPORT_BYTES: u64 = 512 << 20;
const PINNED: Job = Job { pinned: true, ..job(false, 4096, 1, 1) };
const PINNED_WRITE: Job = Job { pinned: true, ..job(true, 4096, 1, 1) };
/// Latency against the least server: at most 1.3 of it.
const LATENCY: Option<f64> = Some(1.0 / 1.3);
const CPU_RATIO_MAX: f64 = 2.5;
const FULL_STRIPE_RATIO: f64 = 0.6;
/// Source   the marks of issue 3
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
/// A log must not slow down what it is of.
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
