//! Tests of timed power cuts: tiobench on disk models, with contents, checkers and power cuts.
//!
//! The threads of `tiobench` run on a machine of weft-sim, above its page cache. Their requests go
//! to a world with the same array on the same drives, at the same times. The world answers each
//! request when the machine did, so that the run of the machine is repeated with contents and
//! checkers.

use std::collections::BTreeMap;

use crate::checker::parity as scrubbed;
use crate::{CutMode, Options, Order, Payload, PayloadMode, Ticket, Violation, World};
use weft_engine::assemble;
use weft_engine::knobs::Knobs;
use weft_engine::mutant::Mutant;
use weft_engine::page_cache::{Amount, InodeId, Kernel, PAGE_BYTES, PoolConfig};
use weft_ondisk::Level;
use weft_sim::drive::Drive;
use weft_sim::machine::{Host, Machine, MachineParts, PageAllocator, Pid, Process, Seen, Woken};
use weft_sim::workload::tiobench::{Phase, Run, Tiobench};
use weft_units::{ByteRange, Bytes, ClientId, Span, Time};

/// Bytes of the files of one thread.
const FILE: Bytes = Bytes::kib(1024);
const THREADS: u32 = 4;
/// Number of members of the array. With five, a write of one strip reads the old data and parity.
const MEMBERS: usize = 5;
const CHUNK: Bytes = Bytes::kib(64);
const SEED: u64 = 7;

/// Time at which the threads of tiobench and the world begin.
const BEGIN: Time = Time(1_000_000_000);

/// File layout that puts files one after the other, behind the log of the file system.
#[derive(Debug)]
struct InARow;

const LOG: ByteRange = ByteRange { start: Bytes::ZERO, len: Bytes::kib(256) };

impl PageAllocator for InARow {
    fn place(&mut self, inode: InodeId, page: u64, count: u64) -> (Bytes, u64) {
        (Bytes(LOG.len.0 + u64::from(inode.0) * FILE.0 + page * PAGE_BYTES), count)
    }
}

/// A process that sleeps until [`BEGIN`] and ends.
#[derive(Debug)]
struct Sleeper(Pid, bool);

impl Process for Sleeper {
    fn run(&mut self, host: &mut Host, woken: Woken) {
        match woken {
            Woken::Started => host.wake_at(self.0, BEGIN),
            _ => self.1 = true,
        }
    }

    fn is_done(&self) -> bool {
        self.1
    }
}

fn options(drives: &[&'static str]) -> Options {
    let mut options = Options::new(Level::Raid5, MEMBERS, CHUNK.sectors_floor());
    options.full_stripes = 20;
    options.seed = SEED;
    options.drives = drives.to_vec();
    options.payload = PayloadMode::Tags;
    options.knobs = Knobs { stripe_cache_size: 512, ..Knobs::md() };
    options
}

/// Requests that tiobench sends to the array of a machine with the drives and knobs of the world,
/// each with the time of its answer.
fn requests(world: &World) -> Vec<Seen> {
    let options = &world.options;
    let model = |name: &&str| Drive::model(name).unwrap();
    let models: Vec<_> = options.drives.iter().cycle().take(MEMBERS).map(model).collect();
    let raid5 = MachineParts::raid5(options.drives[0], CHUNK, options.knobs);
    let member_size = Some(world.disks[0].whole_size());
    let parts = MachineParts { member_size, seed: SEED, knobs: options.knobs, ..raid5 };
    let mut machine = Machine::of_models(&parts, &models).unwrap();
    machine.add_with(|pid| Box::new(Sleeper(pid, false)));
    machine.run(BEGIN);
    let pool = PoolConfig {
        dirty: Amount::Bytes(512 << 10),
        background: Amount::Bytes(256 << 10),
        ..PoolConfig::new(Kernel::V3_1, 4, 4096, 4096)
    };
    machine.add_page_cache(pool, Box::new(InARow), Bytes::kib(256));
    let mut tiobench = Tiobench::published(THREADS, Bytes::kib(16), LOG, SEED);
    (tiobench.size, tiobench.random) = (Bytes(FILE.0 * u64::from(THREADS)), 256);
    let pid = tiobench.add_to(&mut machine);
    machine.host.watch_requests();
    machine.run(BEGIN + Span::secs(600));
    assert_eq!(machine.process::<Run>(pid).timed().len(), Phase::ALL.len());
    machine.host.watched().to_vec()
}

/// Replay of the requests of a machine in a world, at the same times.
struct Replay<'a> {
    world: World,
    left: &'a [Seen],
    /// Requests without an answer, with the time at which the machine answered them.
    asked: BTreeMap<Ticket, Time>,
    /// Difference of each answer's time from the machine's, in nanoseconds.
    late: Vec<i64>,
}

impl<'a> Replay<'a> {
    fn new(world: World, requests: &'a [Seen]) -> Self {
        Self { world, left: requests, asked: BTreeMap::new(), late: Vec::new() }
    }

    /// Runs the world until the time `until`, and issues the requests of the machine when they are
    /// due.
    fn run_to(&mut self, until: Time) {
        while self.world.failure().is_none() {
            let due = self.left.first().map(|seen| seen.at);
            let next = self.world.next_event();
            let Some(at) = [due, next].into_iter().flatten().min().filter(|at| *at <= until) else {
                break;
            };
            self.world.idle(at.since(self.world.now));
            self.answers();
            while let Some((seen, rest)) = self.left.split_first()
                && seen.at <= self.world.now
            {
                self.left = rest;
                let weft_engine::Origin::Client(client, _) = seen.attr.origin else {
                    unreachable!("a process sent it")
                };
                let client = ClientId(1 + client.0);
                let (op, range, flags) = (seen.op, seen.range, seen.flags);
                let ticket =
                    self.world.request_as((client, seen.attr), op, range, Payload::Tags, flags);
                self.asked.insert(ticket, seen.answered.unwrap());
            }
            self.world.settle();
            self.answers();
        }
        if self.world.now < until {
            self.world.idle(until.since(self.world.now));
        }
    }

    fn answers(&mut self) {
        let (world, late) = (&mut self.world, &mut self.late);
        self.asked.retain(|ticket, at| {
            let answer = world.take_answer(*ticket);
            if let Some(answer) = &answer {
                assert!(answer.is_ok(), "{answer:?}");
                late.push(world.now.0 as i64 - at.0 as i64);
            }
            answer.is_none()
        });
    }
}

const HDD: [&str; 1] = ["hdd-2007-7200"];
const UNLIKE: [&str; 3] = ["hdd-2011-7200", "ssd-sata-2020-slowflush", "ssd-nvme-2019-consumer"];

/// Returns a world with the array, the requests of tiobench to the array, and the time of their
/// last answer.
fn load(drives: &[&'static str]) -> (World, Vec<Seen>, Time) {
    let mut world = World::new(options(drives));
    world.run(Order::Fifo);
    let requests = requests(&world);
    let end = requests.iter().filter_map(|seen| seen.answered).max().unwrap();
    (world, requests, end)
}

/// Most requests are answered at the same nanosecond. The others follow closely after requests that
/// a process sent while the engine was still busy at the same instant; the world receives such
/// requests later.
#[test]
fn a_world_with_drives_answers_when_a_machine_does() {
    for drives in [&HDD[..], &UNLIKE] {
        let (world, requests, end) = load(drives);
        let mut replay = Replay::new(world, &requests);
        replay.run_to(end + Span::secs(1));
        assert_eq!(replay.world.failure(), None);
        let late = &replay.late;
        let same = late.iter().filter(|late| **late == 0).count();
        let mean = late.iter().sum::<i64>() / late.len() as i64;
        let took = end.since(BEGIN).0 as i64;
        println!(
            "{drives:?}: {} requests in {took} ns, {same} at the same time, {mean} ns later",
            late.len()
        );
        assert_eq!(late.len(), requests.len());
        assert!(late.len() > 200 && same * 2 > late.len(), "{same} of {}", late.len());
        assert!(mean.abs() * 100 < took, "{mean} of {took} ns");
    }
}

/// Cuts the power, or crashes the process. Then starts the array again, reads everything and
/// compares all parity. Returns the number of sectors read, or the violation.
fn cut(mut world: World, number: usize) -> Result<u64, Violation> {
    const MODES: [CutMode; 5] =
        [CutMode::Subset, CutMode::Nothing, CutMode::Subset, CutMode::Ordered, CutMode::Everything];
    if number % 10 == 9 {
        world.kill();
    } else {
        world.power_cut(MODES[number % MODES.len()]);
    }
    let how = assemble::Options { run: true, force_dirty: true, ..Default::default() };
    world.start(&how).unwrap_or_else(|refused| panic!("cut {number}: {refused}"));
    world.run(Order::Fifo);
    let read = world.verify(Order::Fifo);
    world.idle(Span::secs(2));
    let scrub = world.scrub(scrubbed::Bytes::Visible);
    if world.failure().is_none() && !scrub.wrong.is_empty() {
        return Err(Violation::new("I6 parity or dirty", format!("{:?} at rest", scrub.wrong)));
    }
    world.failure().map_or(Ok(read), |violation| Err(violation.clone()))
}

/// Cuts the power at `points` equidistant times of the load, each in a world of its own. Returns
/// the number of sectors read, or the number of the cut that led to a violation, with this
/// violation.
fn cut_everywhere(
    drives: &[&'static str],
    points: usize,
    plant: Option<Mutant>,
) -> Result<u64, (usize, Violation)> {
    let (mut world, requests, end) = load(drives);
    world.plant(plant);
    let took = end.since(BEGIN).0;
    let mut replay = Replay::new(world, &requests);
    let mut read = 0;
    for number in 0..points {
        replay.run_to(BEGIN + Span(took * (number as u64 + 1) / points as u64));
        if let Some(violation) = replay.world.failure() {
            return Err((number, violation.clone()));
        }
        read += cut(replay.world.clone(), number).map_err(|violation| (number, violation))?;
    }
    assert_eq!(replay.left.len(), 0, "all was sent");
    Ok(read)
}

#[test]
fn tiobench_on_disks_survives_power_cuts_at_a_thousand_points() {
    let read = cut_everywhere(&HDD, 1000, None);
    let read = read.unwrap_or_else(|(number, violation)| panic!("cut {number}: {violation}"));
    assert!(read > 2_000_000, "{read} sectors");
}

#[test]
fn tiobench_on_a_disk_and_two_ssds_survives_power_cuts() {
    let read = cut_everywhere(&UNLIKE, 50, None);
    let read = read.unwrap_or_else(|(number, violation)| panic!("cut {number}: {violation}"));
    assert!(read > 100_000, "{read} sectors");
}

/// Each bug is found by the checker of the promise that it breaks, either before a power cut or
/// from the content that a cut leaves.
#[test]
fn planted_bugs_are_found_under_tiobench() {
    for (mutant, checker) in [
        (Mutant::AckBeforeSuperblock, "I5 "),
        (Mutant::RmwNewAsOld, "I6 "),
        (Mutant::AckBeforeParity, "I4 "),
    ] {
        let (number, violation) = cut_everywhere(&HDD, 100, Some(mutant)).unwrap_err();
        println!("{mutant:?}: cut {number}: {violation}");
        assert!(violation.checker.starts_with(checker), "{mutant:?}: cut {number}: {violation}");
    }
}
