//! Tests of the rules of `flush_batch` against a model of volatile caches, and with planted bugs.
//!
//! Members complete writes into a cache that a power cut empties. Flush requests arrive, and
//! flushes start, end in random order, and fail. A request that is served must find durable, on
//! each remaining member, all writes that completed before it arrived, or receive an error.

use std::collections::BTreeMap;

use weft_engine::Fault;
use weft_engine::flush::flush_batch::{FlightId, FlushBatch, FlushCounts, Unflushed};
use weft_engine::knobs::FlushRule;
use weft_engine::mutant::Mutant;
use weft_units::MemberIndex;
use weft_units::rng::Rng;

const RULES: [FlushRule; 5] =
    [FlushRule::Batch, FlushRule::Md612, FlushRule::Needed, FlushRule::Parallel, FlushRule::Serial];

const MEMBERS: u16 = 3;

/// A member. Its writes are numbered from 1; number 1 is the content at the start.
struct Disk {
    unflushed: Unflushed,
    completed: u64,
    durable: u64,
    /// Number of flushes started so far. `ended` is the number of the last flush that ended.
    started: u64,
    ended: u64,
}

/// A flush request, with the promises that were made when it arrived.
struct Asked {
    number: usize,
    /// By member: the last write that must be durable.
    promised: BTreeMap<u16, u64>,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Wrote {
    Data,
    Discard,
    Metadata,
}

/// A flush in flight.
struct Flight {
    number: u16,
    id: FlightId,
    /// Number of the last write that was complete when the flush started. `started` is the number
    /// of flushes started so far, including this one.
    completed: u64,
    started: u64,
}

struct Bench {
    flushes: FlushBatch<Asked>,
    rule: FlushRule,
    redundant: bool,
    planted: Option<Mutant>,
    disks: BTreeMap<u16, Disk>,
    flights: Vec<Flight>,
    /// Unserved requests, by number. Each has, by member, the number of flushes that had been
    /// started when the request arrived.
    unserved: BTreeMap<usize, BTreeMap<u16, u64>>,
    asked: usize,
    served: usize,
    failed: usize,
}

impl Bench {
    fn new(rule: FlushRule, redundant: bool, planted: Option<Mutant>) -> Self {
        let mut flushes = FlushBatch::default();
        planted.into_iter().for_each(|mutant| flushes.plant(mutant));
        let disk = |number| {
            let unflushed = Unflushed::new(true);
            (number, Disk { unflushed, completed: 1, durable: 0, started: 0, ended: 0 })
        };
        let disks = (0..MEMBERS).map(disk).collect();
        let (asked, served, failed) = (0, 0, 0);
        let (flights, unserved) = (Vec::new(), BTreeMap::new());
        Self { flushes, rule, redundant, planted, disks, flights, unserved, asked, served, failed }
    }

    fn write(&mut self, number: u16, wrote: Wrote) {
        let Some(disk) = self.disks.get_mut(&number) else { return };
        disk.completed += 1;
        let forgets = self.planted == Some(Mutant::FlushSkipForgetsMetadata);
        if !(forgets && wrote != Wrote::Data) {
            disk.unflushed.wrote();
        }
    }

    fn ask(&mut self) {
        let promised = self.disks.iter().map(|(number, disk)| (*number, disk.completed));
        self.flushes.arrive(Asked { number: self.asked, promised: promised.collect() });
        let started = self.disks.iter().map(|(number, disk)| (*number, disk.started));
        self.unserved.insert(self.asked, started.collect());
        self.asked += 1;
    }

    fn start(&mut self) {
        let facts = |(number, disk): (&u16, &Disk)| (MemberIndex(*number), disk.unflushed);
        let members: Vec<_> = self.disks.iter().map(facts).collect();
        for (member, id) in self.flushes.start(self.rule, &members) {
            let disk = self.disks.get_mut(&member.0).expect("the member takes part");
            disk.started += 1;
            let (completed, started) = (disk.completed, disk.started);
            self.flights.push(Flight { number: member.0, id, completed, started });
        }
        for number in 0..MEMBERS {
            let flights = self.flights.iter().filter(|flight| flight.number == number).count();
            assert!(flights <= 1 || self.rule == FlushRule::Parallel, "{:?}", self.rule);
        }
    }

    /// Ends the flush at index `place` of `flights`. With redundancy, a member is lost when its
    /// flush fails. Returns an error if a request is then served without its promises.
    fn end(&mut self, place: usize, ok: bool) -> Result<(), String> {
        let Flight { number, id, completed, started } = self.flights.swap_remove(place);
        let result = if ok { Ok(()) } else { Err(Fault::Io) };
        let told = if self.redundant { Ok(()) } else { result };
        let disk = self.disks.get_mut(&number).expect("a failed member has no flush left");
        disk.ended = disk.ended.max(started);
        if ok {
            disk.durable = disk.durable.max(completed);
        }
        self.flushes.ended(id, Some(&mut disk.unflushed), result, told);
        if !ok {
            assert!(!disk.unflushed.is_clean(), "a failed flush leaves the member dirty");
            self.failed += 1;
            if self.redundant {
                self.disks.remove(&number);
                let left = |flight: &Flight| flight.number == number;
                while let Some(place) = self.flights.iter().position(left) {
                    let flight = self.flights.swap_remove(place);
                    self.flushes.ended(flight.id, None, Err(Fault::Gone), told);
                }
            }
        }
        self.check()
    }

    fn check(&mut self) -> Result<(), String> {
        for (asked, result) in self.flushes.take_served() {
            self.served += 1;
            self.unserved.remove(&asked.number);
            for (number, promised) in &asked.promised {
                let Some(disk) = self.disks.get(number) else { continue };
                if result.is_ok() && disk.durable < *promised {
                    let durable = disk.durable;
                    return Err(format!("{}: {promised} on {number}, {durable}", asked.number));
                }
            }
        }
        Ok(())
    }

    /// Returns an error if an unserved request has waited too long: under all rules but `Parallel`
    /// and `Serial`, a request is served once a flush that started after its arrival has ended on
    /// each member.
    fn late(&self) -> Result<(), String> {
        let late = self
            .unserved
            .iter()
            .find(|(_, came)| self.disks.iter().all(|(number, disk)| disk.ended > came[number]));
        match late {
            Some((number, _)) if !matches!(self.rule, FlushRule::Parallel | FlushRule::Serial) => {
                Err(format!("{number} waits though a flush that it came before has ended on each"))
            }
            _ => Ok(()),
        }
    }

    /// Runs random events, then ends all flushes. Returns the counts of flushes, or a description
    /// of the first promise that was broken.
    fn run(mut self, seed: u64, failures: bool) -> Result<FlushCounts, String> {
        let mut rng = Rng::new(seed);
        for _ in 0..120 {
            match rng.below(10) {
                0..=2 => {
                    let wrote = rng.pick(&[Wrote::Data, Wrote::Discard, Wrote::Metadata]);
                    let member = (0..MEMBERS).nth(rng.index(MEMBERS.into()));
                    self.write(member.expect("a member is left"), wrote);
                }
                3..=4 => self.ask(),
                5..=6 => {
                    self.start();
                    self.check()?;
                    self.late()?;
                }
                _ if self.flights.is_empty() => {}
                _ => {
                    let place = rng.index(self.flights.len());
                    let lasts = self.disks.len() > 1 || !self.redundant;
                    self.end(place, !(failures && lasts && rng.percent(8)))?;
                }
            }
            self.check()?;
        }
        loop {
            self.start();
            self.check()?;
            if self.flights.is_empty() {
                break;
            }
            self.end(0, true)?;
        }
        assert!(self.flushes.is_idle(), "{:?}, seed {seed}", self.rule);
        assert_eq!(self.served, self.asked, "{:?}, seed {seed}", self.rule);
        Ok(self.flushes.counts())
    }
}

#[test]
fn a_served_flush_finds_durable_all_writes_that_were_completed_before_it() {
    for rule in RULES {
        let (mut sum, mut most) = (FlushCounts::default(), 0);
        for seed in 0..2000 {
            for (redundant, failures) in [(true, false), (true, true), (false, true)] {
                let counts = Bench::new(rule, redundant, None).run(seed, failures);
                let counts = counts.unwrap_or_else(|why| panic!("{rule:?}, seed {seed}: {why}"));
                sum.requests += counts.requests;
                sum.sent += counts.sent;
                sum.skipped += counts.skipped;
                sum.rounds += counts.rounds;
                most = most.max(counts.sent);
            }
        }
        println!("{rule:?}: {sum:?}, at most {most} in a run");
        assert!(sum.requests > 100_000 && sum.sent > 50_000, "{rule:?}: {sum:?}");
        assert_eq!(sum.skipped > 0, rule == FlushRule::Needed, "{rule:?}: {sum:?}");
    }
}

#[test]
fn each_planted_bug_of_the_rules_is_found() {
    let planted = [
        (Mutant::FlushServedByEarlier, FlushRule::Batch),
        (Mutant::FlushServedByEarlier, FlushRule::Needed),
        (Mutant::FlushSkipForgetsMetadata, FlushRule::Needed),
        (Mutant::FlushSkipForgetsStartUp, FlushRule::Needed),
    ];
    for (mutant, rule) in planted {
        let found =
            (0..100).find(|seed| Bench::new(rule, true, Some(mutant)).run(*seed, false).is_err());
        println!("{mutant:?} with {rule:?}: seed {found:?}");
        assert!(found.is_some(), "{mutant:?} with {rule:?} is not found");
    }
}

/// Requests to flush one member. A request with durable writes starts no flush; a request with
/// writes that a flush in flight covers shares this flush; a request after a further write waits
/// for the next flush.
#[test]
fn a_member_is_flushed_when_it_was_written_since() {
    let mut bench = Bench::new(FlushRule::Needed, true, None);
    let sent = |bench: &Bench| bench.flushes.counts().sent;
    let all = u64::from(MEMBERS);
    bench.ask();
    bench.start();
    assert_eq!(sent(&bench), all, "content from before the start");
    bench.ask();
    bench.start();
    assert_eq!(sent(&bench), all, "no write was completed since the first flushes");
    bench.write(1, Wrote::Metadata);
    bench.ask();
    bench.start();
    assert_eq!(sent(&bench), all, "one flush per member at a time");
    while !bench.flights.is_empty() {
        bench.end(0, true).unwrap();
    }
    assert_eq!(bench.served, 2);
    bench.start();
    assert_eq!(sent(&bench), all + 1, "a flush of the written member");
    bench.end(0, true).unwrap();
    assert_eq!(bench.served, 3);
    bench.ask();
    bench.start();
    bench.check().unwrap();
    assert_eq!((sent(&bench), bench.served), (all + 1, 4), "no data is left to flush");
}

/// A member without a volatile cache has nothing to lose.
#[test]
fn a_member_without_a_cache_is_never_dirty() {
    let mut unflushed = Unflushed::new(false);
    unflushed.wrote();
    assert!(unflushed.is_clean());
    assert!(!Unflushed::new(true).is_clean());
}
