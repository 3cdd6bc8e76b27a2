//! Tests of shares through parity, and of a resync beside clients, on members with a fixed time per
//! command.
//!
//! Clients keep a number of requests of 4 KiB outstanding, at random places. A member serves one
//! command at a time, in the order of arrival, so the queue before it decides.

use std::collections::{BTreeMap, BinaryHeap, VecDeque};

use weft_engine::assemble::{Candidate, Options, assemble};
use weft_engine::knobs::Knobs;
use weft_engine::{
    Attr, ClientRequest, Command, Config, Engine, Flags, Input, MemberOp, Origin, Output, Party,
    RequestOp, Run, SyncAction, Tag, Token, Value, Verb, frames_needed,
};
use weft_ondisk::{Level, MdTime, Minor, NewArray, NewMember, Uuid};
use weft_units::rng::Rng;
use weft_units::{ByteRange, Bytes, ClientId, Group, Sectors, Span, Time, VolumeId};

const MEMBERS: u8 = 5;
const BLOCK: u64 = 4096;

/// A client: its weight and group, requests outstanding, the percentage of reads, and its mean
/// pause after an answer.
#[derive(Clone, Copy)]
struct Load {
    weight: u16,
    group: Group,
    depth: u32,
    reads: u64,
    thinks: Span,
}

const READERS: Load = Load { weight: 0, group: Group::ROOT, depth: 4, reads: 100, thinks: Span(0) };

struct Bench {
    engine: Engine,
    now: Time,
    rng: Rng,
    loads: Vec<Load>,
    tag: u64,
    /// Client and arrival time of each outstanding request.
    asked: BTreeMap<u64, (u32, Time)>,
    /// Time at which each member is free.
    free: [Time; MEMBERS as usize],
    /// Completions, soonest first.
    ends: BinaryHeap<std::cmp::Reverse<(Time, u64)>>,
    /// Next requests of clients, soonest first.
    asks: BinaryHeap<std::cmp::Reverse<(Time, u32)>>,
    /// Latencies of reads of the first client.
    latencies: Vec<Span>,
    working: bool,
}

impl Bench {
    fn new(loads: &[Load], settings: &[(&str, &str)]) -> Self {
        let member =
            |number: u8| NewMember { size: Sectors(1 << 21), device_uuid: Uuid([number + 1; 16]) };
        let array = NewArray {
            minor: Minor::V1_2,
            level: Level::Raid5,
            layout: Some(2),
            chunk: Some(Sectors(128)),
            size: None,
            data_offset: Some(Sectors(2048)),
            set_uuid: Uuid([9; 16]),
            name: "array".to_owned(),
            ctime: MdTime::default(),
            slots: (0..MEMBERS).map(|number| Some(member(number))).collect(),
            spares: Vec::new(),
            assume_clean: true,
            force: false,
            bitmap: None,
        };
        let candidates = Candidate::of_new(&array).unwrap();
        let assembly = assemble(&candidates, &Options::default()).unwrap();
        let mut knobs = Knobs { stripe_cache_size: 4096, ..Knobs::md() };
        for (name, value) in settings {
            knobs.set(knobs.parse(name, value).unwrap());
        }
        let mut bench = Self {
            engine: Engine::new(Config::for_volume(assembly, knobs), Time(0)).unwrap(),
            now: Time(0),
            rng: Rng::new(13),
            loads: loads.to_vec(),
            tag: 0,
            asked: BTreeMap::new(),
            free: [Time(0); MEMBERS as usize],
            ends: BinaryHeap::new(),
            asks: BinaryHeap::new(),
            latencies: Vec::new(),
            working: true,
        };
        for (client, load) in (0..).zip(loads) {
            (0..load.depth).for_each(|_| bench.ask(client));
        }
        bench
    }

    fn ask(&mut self, number: u32) {
        let load = self.loads[number as usize];
        self.tag += 1;
        self.asked.insert(self.tag, (number, self.now));
        let client = ClientId(number + 1);
        let op = match self.rng.below(100) < load.reads {
            true => RequestOp::Read,
            false => RequestOp::Write,
        };
        let range = ByteRange::new(self.rng.below(900_000) * BLOCK, BLOCK);
        let request = ClientRequest {
            client,
            tag: Tag(self.tag),
            volume: VolumeId(0),
            op,
            range,
            frames: Run::new(
                (1 << 24) + u32::try_from(self.tag % (1 << 20)).unwrap(),
                frames_needed(range.start.0, BLOCK),
            ),
            flags: Flags { sync: true, ..Flags::NONE },
            attr: Attr {
                weight: load.weight,
                origin: Origin::Client(client, load.group),
                ..Attr::default()
            },
        };
        self.engine.handle(self.now, Input::Client(request));
    }

    fn check(&mut self) {
        let (client, tag, volume) = (ClientId(99), Tag(u64::MAX), VolumeId(0));
        let verb = Verb::SyncAction(SyncAction::Check);
        self.engine.handle(self.now, Input::Admin(Box::new(Command { client, tag, volume, verb })));
    }

    /// Runs for some time.
    fn run(&mut self, span: Span) {
        let until = self.now + span;
        let mut outputs = VecDeque::new();
        loop {
            while self.engine.run(self.now, 64, &mut outputs).more {}
            let answered = !outputs.is_empty();
            while let Some(output) = outputs.pop_front() {
                self.take(output);
            }
            if answered {
                continue;
            }
            let end = self.ends.peek().map(|end| end.0.0);
            let asks = self.asks.peek().map(|ask| ask.0.0);
            let others = asks.into_iter().chain(self.engine.next_wake());
            let Some(next) = end.into_iter().chain(others).min() else { break };
            if next > until {
                break;
            }
            self.now = self.now.max(next);
            self.engine.handle(self.now, Input::Wake);
            while let Some(ask) = self.asks.peek().filter(|ask| ask.0.0 <= self.now).copied() {
                self.asks.pop();
                self.ask(ask.0.1);
            }
            while let Some(end) = self.ends.peek().filter(|end| end.0.0 <= self.now).copied() {
                self.ends.pop();
                let (token, result) = (Token(end.0.1), Ok(Value::Nothing));
                self.engine.handle(self.now, Input::Done { token, result });
            }
        }
        self.now = until;
    }

    fn take(&mut self, output: Output) {
        match output {
            Output::Submit { token, member, op, .. } => {
                let free = &mut self.free[usize::from(member.0)];
                let takes = match op {
                    MemberOp::Read { into: parts, .. } | MemberOp::Write { from: parts, .. } => {
                        let bytes: u64 = parts.iter().map(|part| u64::from(part.len)).sum();
                        Span(80_000 + bytes * 5 / 2)
                    }
                    _ => Span(50_000),
                };
                *free = (*free).max(self.now) + takes;
                self.ends.push(std::cmp::Reverse((*free, token.0)));
            }
            Output::Compute { token, .. } => {
                self.ends.push(std::cmp::Reverse((self.now, token.0)));
            }
            Output::Reply { tag, result, .. } => {
                let Some((client, at)) = self.asked.remove(&tag.0) else { return };
                assert_eq!(result, Ok(()));
                if client == 0 {
                    self.latencies.push(self.now.since(at));
                }
                let thinks = self.loads[client as usize].thinks;
                match self.working {
                    true if thinks > Span(0) => {
                        let thinks = Span(thinks.0 / 2 + self.rng.below(thinks.0));
                        self.asks.push(std::cmp::Reverse((self.now + thinks, client)));
                    }
                    true => self.ask(client),
                    false => {}
                }
            }
            _ => {}
        }
    }

    /// Sectors that members have moved for a party.
    fn sectors(&self, party: Party) -> u64 {
        let volume = self.engine.snapshot().volumes.remove(0);
        let account = volume.accounts.iter().find(|account| account.party == party);
        account.map_or(0, |account| account.sectors.0)
    }
}

/// Shares of the clients, in thousandths of what members move for all of them, with short turns by
/// slots (32 KiB).
fn shares_of(loads: &[Load], settings: &[(&str, &str)]) -> Vec<u64> {
    let short_turns =
        [("queue_depth", "4"), ("low_latency", "0"), ("slice_idle", "0"), ("max_budget", "64")];
    let mut bench = Bench::new(loads, &[&short_turns, settings].concat());
    let clients = (1..).take(loads.len()).map(|number| Party::Client(ClientId(number)));
    let moved =
        |bench: &Bench| -> Vec<u64> { clients.clone().map(|party| bench.sectors(party)).collect() };
    bench.run(Span::secs(1));
    let before = moved(&bench);
    bench.run(Span::secs(4));
    let each = moved(&bench).into_iter().zip(before).map(|(after, before)| after - before);
    let sum: u64 = each.clone().sum();
    each.map(|it| it * 1000 / sum).collect()
}

/// Share of the second client of two, in thousandths of what members move for both.
///
/// Turns are short for this reason: with BFQ's automatic budget the lighter client, with requests
/// spread over the members, has no more requests at a member before its turn is over, and the
/// heavier one gets 827 to 843 of 1000.
/// heavier one gets 827 to 843 of 1000.
fn share_of_the_heavy(scheduler: &str, fairness: &str, reads: u64) -> u64 {
    let load = |weight| Load { weight, depth: 128, reads, ..READERS };
    shares_of(&[load(100), load(400)], &[("scheduler", scheduler), ("fairness", fairness)])[1]
}

#[test]
fn two_clients_of_weights_one_to_four_get_their_shares_of_a_raid_5_through_parity() {
    for reads in [100, 50, 0] {
        for fairness in ["requests", "slots"] {
            let heavy = share_of_the_heavy("bfq", fairness, reads);
            let text = format!("{fairness}, {reads} % reads: {heavy} of 1000");
            assert!(heavy.abs_diff(800) <= 40, "{text}, expected 800");
        }
        // Counterpart: without a scheduler clients get what they request.
        let heavy = share_of_the_heavy("none", "slots", reads);
        assert!(heavy.abs_diff(500) <= 40, "{reads} % reads: {heavy} of 1000, expected 500");
    }
}

/// Shares of four clients of weight 100, in thousandths: one in the first group, three in the
/// second one.
fn shares_of_groups(scheduler: &str, fairness: &str, weights: &str) -> Vec<u64> {
    let load = |number| {
        let group = Group::new(number).unwrap();
        Load { weight: 100, group, depth: 64, reads: 50, ..READERS }
    };
    let settings = [("scheduler", scheduler), ("fairness", fairness), ("group_weights", weights)];
    shares_of(&[1, 2, 2, 2].map(load), &settings)
}

#[test]
fn groups_of_clients_have_their_shares_of_a_raid_5_however_many_clients_each_has() {
    for fairness in ["requests", "slots"] {
        for (weights, first) in [("100,100", 500), ("100,300", 250)] {
            let shares = shares_of_groups("bfq", fairness, weights);
            let text = format!("{fairness}, groups of {weights}: {shares:?} of 1000");
            assert!(shares[0].abs_diff(first) <= 25, "{text}, expected {first} of the first");
            let others = (1000 - shares[0]) / 3;
            assert!(shares[1..].iter().all(|it| it.abs_diff(others) <= 25), "{text}");
        }
    }
    // Counterpart: without a scheduler each client has a quarter.
    let shares = shares_of_groups("none", "slots", "100,300");
    assert!(shares.iter().all(|it| it.abs_diff(250) <= 25), "{shares:?}");
}

/// Bytes a second of each member that a check moves beside readers, the 99th percentile of the
/// reads, and the bytes of the check without readers.
fn check_beside_readers(pace: &str, scheduler: &str, readers: Load) -> (u64, Span, u64) {
    let settings = [("sync_pace", pace), ("scheduler", scheduler), ("sync_speed_min", "2000")];
    let mut bench = Bench::new(&[readers], &settings);
    bench.run(Span::millis(200));
    bench.check();
    bench.run(Span::millis(500));
    bench.latencies.clear();
    let before = bench.sectors(Party::Resync);
    bench.run(Span::secs(4));
    let busy = (bench.sectors(Party::Resync) - before) * 512 / u64::from(MEMBERS) / 4;
    bench.latencies.sort_unstable();
    let high = bench.latencies[bench.latencies.len() * 99 / 100];
    bench.working = false;
    bench.run(Span::millis(500));
    let before = bench.sectors(Party::Resync);
    bench.run(Span::secs(1));
    let idle = (bench.sectors(Party::Resync) - before) * 512 / u64::from(MEMBERS);
    (busy, high, idle)
}

#[test]
fn a_resync_has_its_floor_beside_clients_and_everything_when_they_rest() {
    let floor = Bytes::kib(2000).0;
    for scheduler in ["none", "mq-deadline", "bfq"] {
        let (busy, high, idle) = check_beside_readers("idle", scheduler, READERS);
        let (of_md, high_of_md, idle_of_md) = check_beside_readers("md", scheduler, READERS);
        println!(
            "{scheduler}: {busy} B/s, p99 {high:?}, alone {idle} B/s; \
             md's pace {of_md} B/s, p99 {high_of_md:?}, alone {idle_of_md} B/s"
        );
        assert!(busy.abs_diff(floor) <= floor / 10, "{scheduler}: {busy}, expected {floor}");
        assert!(idle > 30 * floor, "{scheduler}: {idle} without a reader");
        assert!(idle * 10 > idle_of_md * 9, "{scheduler}: {idle} beside {idle_of_md}");
        // Counterpart: md's pace takes more than its floor, and readers pay for it.
        assert!(of_md > 2 * floor, "{scheduler}: {of_md}");
        assert!(high < high_of_md, "{scheduler}: {high:?} beside {high_of_md:?}");
    }
}

/// Tests one reader that pauses for 10 ms after each read. A check at md's pace is nearly as fast
/// as without the reader. A check that waited until all clients rest would take weeks where md
/// takes hours, so it uses the reader's pauses. Under BFQ it is slower, because BFQ takes the
/// reader for an interactive one and idles the member for 8 ms of each pause.
#[test]
fn a_resync_has_the_pauses_of_a_client_that_is_mostly_idle() {
    let reader = Load { depth: 1, thinks: Span::millis(10), ..READERS };
    for (scheduler, percent) in [("none", 75), ("mq-deadline", 75), ("bfq", 40)] {
        let (in_pauses, high, _) = check_beside_readers("idle", scheduler, reader);
        let (of_md, high_of_md, _) = check_beside_readers("md", scheduler, reader);
        let text = format!(
            "{scheduler}: {in_pauses} B/s, p99 {high:?}; md's pace {of_md} B/s, p99 {high_of_md:?}"
        );
        println!("{text}");
        assert!(in_pauses * 100 > of_md * percent, "{text}");
        assert!(high.0 * 10 <= high_of_md.0 * 11, "{text}");
    }
}

/// One reader at a time without pauses: the gaps between its requests are shorter than a resync
/// step, and the resync does not use them.
#[test]
fn a_resync_does_not_step_between_two_requests_of_a_client_that_goes_on_at_once() {
    let reader = Load { depth: 1, thinks: Span(100_000), ..READERS };
    let floor = Bytes::kib(2000).0;
    let (busy, high, _) = check_beside_readers("idle", "none", reader);
    let (of_md, high_of_md, _) = check_beside_readers("md", "none", reader);
    let text = format!("{busy} B/s, p99 {high:?}; md's pace {of_md} B/s, p99 {high_of_md:?}");
    assert!(busy.abs_diff(floor) <= floor / 10, "{text}");
    assert!(of_md > 10 * floor && high < high_of_md, "{text}");
}
