//! Tests of the accounting of stripe I/O: to which client member requests are charged, and for
//! which purpose.

use std::collections::VecDeque;

use weft_ondisk::Level;
use weft_units::{ByteRange, ClientId, Group, Time, VolumeId};

use crate::assemble::{Candidate, Options};
use crate::contract::frame::{Run, frames_needed};
use crate::knobs::Knobs;
use crate::raid::tests::{CHUNK, assembled};
use crate::{
    Attr, ClientRequest, Command, Config, Engine, Flags, Input, MemberOp, Origin, Output, Party,
    Purpose, RequestOp, SyncAction, Tag, Value, Verb,
};

/// A member request: its member, whether it writes, and its attributes.
type Seen = (u16, bool, Attr);

/// A RAID 5 of five members, where the parity of the first full stripe is on the last member.
struct Rig {
    engine: Engine,
    seen: Vec<Seen>,
    tag: u64,
}

impl Rig {
    fn new(change: impl Fn(&mut Vec<Candidate>)) -> Self {
        let options = Options { run: true, ..Options::default() };
        let array = assembled(Level::Raid5, Some(2), 5, change, &options);
        let engine = Engine::new(Config::for_volume(array, Knobs::md()), Time(0)).unwrap();
        Self { engine, seen: Vec::new(), tag: 0 }
    }

    /// Passes a client request to the engine, without running a turn.
    fn ask(&mut self, op: RequestOp, start: u64, len: u64, attr: Attr) {
        self.tag += 1;
        let Origin::Client(client, _) = attr.origin else { panic!("a client asks") };
        let frames = Run::new(1 << 20 | (self.tag as u32) << 8, frames_needed(start, len));
        let (tag, volume, range) = (Tag(self.tag), VolumeId(0), ByteRange::new(start, len));
        let flags = Flags { sync: true, ..Flags::NONE };
        let request = ClientRequest { client, tag, volume, op, range, frames, flags, attr };
        self.engine.handle(Time(0), Input::Client(request));
    }

    /// Runs the engine until it has no more work, with members that do everything at once. Returns
    /// the member requests for data.
    fn run(&mut self) -> Vec<Seen> {
        let mut outputs = VecDeque::new();
        loop {
            while self.engine.run(Time(0), 64, &mut outputs).more {}
            let Some(output) = outputs.pop_front() else { break };
            let token = match output {
                Output::Submit { token, member, op, attr } => {
                    match op {
                        MemberOp::Read { .. } => self.seen.push((member.0, false, attr)),
                        MemberOp::Write { .. } => self.seen.push((member.0, true, attr)),
                        _ => assert_eq!(attr, Attr::NONE, "the array's own"),
                    }
                    token
                }
                Output::Compute { token, .. } => token,
                Output::Reply { result, .. } => {
                    assert_eq!(result, Ok(()));
                    continue;
                }
                _ => continue,
            };
            self.engine.handle(Time(0), Input::Done { token, result: Ok(Value::Nothing) });
        }
        std::mem::take(&mut self.seen)
    }
}

fn client(number: u32, weight: u16) -> Attr {
    Attr { weight, origin: Origin::Client(ClientId(number), Group::ROOT), ..Attr::NONE }
}

fn purposes(seen: &[Seen]) -> Vec<(u16, bool, Purpose)> {
    let mut list: Vec<_> =
        seen.iter().map(|(at, write, attr)| (*at, *write, attr.purpose)).collect();
    list.sort_unstable();
    list
}

const WRITE: RequestOp = RequestOp::Write;
const READ: RequestOp = RequestOp::Read;

#[test]
fn a_small_write_is_charged_with_what_it_reads_and_with_its_parity() {
    let mut rig = Rig::new(|_| ());
    let attr = client(1, 300);
    rig.ask(WRITE, 0, 4096, attr);
    let seen = rig.run();
    let expected = [
        (0, false, Purpose::RmwRead),
        (0, true, Purpose::User),
        (4, false, Purpose::RmwRead),
        (4, true, Purpose::Parity),
    ];
    assert_eq!(purposes(&seen), expected);
    assert!(seen.iter().all(|(_, _, of)| (of.origin, of.weight) == (attr.origin, 300)), "{seen:?}");
}

#[test]
fn a_reconstruct_write_and_a_degraded_read_say_what_they_read_the_others_for() {
    let mut rig = Rig::new(|_| ());
    rig.ask(WRITE, 0, 4096, client(1, 0));
    rig.ask(WRITE, CHUNK, 4096, client(1, 0));
    let expected = [
        (0, true, Purpose::User),
        (1, true, Purpose::User),
        (2, false, Purpose::Reconstruct),
        (3, false, Purpose::Reconstruct),
        (4, true, Purpose::Parity),
    ];
    assert_eq!(purposes(&rig.run()), expected);
    let mut rig = Rig::new(|set| drop(set.remove(0)));
    rig.ask(READ, 0, 4096, client(1, 0));
    let seen = rig.run();
    assert_eq!(seen.len(), 4, "{seen:?}");
    assert!(seen.iter().all(|(_, _, of)| of.purpose == Purpose::Reconstruct), "{seen:?}");
}

#[test]
fn of_several_clients_in_one_stripe_the_strongest_is_charged_in_any_order() {
    for order in [[1, 2], [2, 1]] {
        let mut rig = Rig::new(|_| ());
        for number in order {
            let start = u64::from(number - 1) * CHUNK;
            rig.ask(WRITE, start, 4096, client(number, number as u16 * 100));
        }
        let seen = rig.run();
        let heavy = Origin::Client(ClientId(2), Group::ROOT);
        assert!(seen.iter().all(|(_, _, of)| of.origin == heavy), "{order:?}: {seen:?}");
        // Later requests for the stripe are charged to the client that sends them.
        rig.ask(WRITE, 0, 4096, client(1, 100));
        let light = Origin::Client(ClientId(1), Group::ROOT);
        assert!(rig.run().iter().all(|(_, _, of)| of.origin == light), "{order:?}");
    }
}

#[test]
fn a_cache_s_writes_and_a_resync_are_told_apart_from_what_a_client_waits_for() {
    let mut rig = Rig::new(|_| ());
    rig.ask(WRITE, 0, 4096, Attr { background: true, ..client(1, 0) });
    let seen = rig.run();
    assert!(seen.iter().all(|(_, _, of)| of.background), "{seen:?}");
    assert!(purposes(&seen).contains(&(0, true, Purpose::WriteBack)));
    assert!(purposes(&seen).contains(&(4, true, Purpose::Parity)));
    let verb = Verb::SyncAction(SyncAction::Repair);
    let (client, tag, volume) = (ClientId(9), Tag(99), VolumeId(0));
    rig.engine.handle(Time(0), Input::Admin(Box::new(Command { client, tag, volume, verb })));
    let mut outputs = VecDeque::new();
    rig.engine.run(Time(0), 4, &mut outputs);
    let synced: Vec<_> = outputs
        .iter()
        .filter_map(|output| match output {
            Output::Submit { op: MemberOp::Read { .. }, attr, .. } => Some(*attr),
            _ => None,
        })
        .collect();
    assert!(!synced.is_empty());
    assert!(synced.iter().all(|of| (of.origin, of.purpose) == (Origin::Sync, Purpose::Resync)));
}

/// Number of sectors that members read and wrote for the client `number`, by purpose.
fn moved(rig: &Rig, number: u32) -> Vec<(Purpose, u64, u64)> {
    let snapshot = rig.engine.snapshot();
    let party = Party::Client(ClientId(number));
    let account = snapshot.volumes[0].accounts.iter().find(|it| it.party == party);
    let account = account.expect("the client has an account");
    account.by_purpose.iter().map(|it| (it.purpose, it.read.0, it.written.0)).collect()
}

#[test]
fn members_count_what_each_client_causes() {
    let mut rig = Rig::new(|_| ());
    rig.ask(WRITE, 0, 4096, client(1, 300));
    rig.run();
    rig.ask(READ, 8 * CHUNK, 8192, client(2, 0));
    rig.run();
    let rmw = [(Purpose::Parity, 0, 8), (Purpose::RmwRead, 16, 0), (Purpose::User, 0, 8)];
    assert_eq!(moved(&rig, 1), rmw);
    assert_eq!(moved(&rig, 2), [(Purpose::User, 16, 0)]);
    let volume = rig.engine.snapshot().volumes.remove(0);
    let first = volume.accounts.iter().find(|it| it.party == Party::Client(ClientId(1))).unwrap();
    assert_eq!((first.weight, first.writes, first.bytes_written.0), (300, 1, 4096));
    assert_eq!((first.sectors.0, first.sectors_recently.0), (32, 32));
    // The sums over the members and over the accounts are equal.
    let members = volume.members.iter().map(|it| it.sectors_read + it.sectors_written);
    let accounts = volume.accounts.iter().map(|it| it.sectors);
    assert_eq!(members.sum::<u64>(), accounts.map(|it| it.0).sum::<u64>());
    let served = volume.members.iter().flat_map(|it| &it.served);
    let of_first = served.filter(|(party, _)| *party == Party::Client(ClientId(1)));
    assert_eq!(of_first.map(|(_, sectors)| sectors.0).sum::<u64>(), 32);
}

#[test]
fn a_thousand_clients_one_after_the_other_are_all_counted() {
    let mut rig = Rig::new(|_| ());
    for number in 1..=1000 {
        rig.ask(READ, 0, 4096, client(number, 0));
        rig.run();
        rig.engine.handle(Time(0), Input::ClientGone(ClientId(number)));
    }
    // Most of the clients that stay have no account of their own.
    for number in 2001..=2100 {
        rig.ask(READ, 0, 4096, client(number, 0));
        rig.run();
    }
    let accounts = rig.engine.snapshot().volumes.remove(0).accounts;
    assert!(accounts.len() < 70, "{}", accounts.len());
    assert_eq!(accounts.iter().map(|it| it.reads).sum::<u64>(), 1100);
    let of_clients = accounts.iter().filter(|it| it.party != Party::Metadata);
    assert_eq!(of_clients.map(|it| it.sectors.0).sum::<u64>(), 1100 * 8);
    assert!(accounts.iter().any(|it| it.party == Party::Others && it.reads > 900));
}

/// A client that returns is counted as present again, even if no other client was active in the
/// meantime.
#[test]
fn a_client_that_comes_again_is_there() {
    let mut rig = Rig::new(|_| ());
    let is_gone = |rig: &Rig| {
        let accounts = rig.engine.snapshot().volumes.remove(0).accounts;
        let first = accounts.iter().find(|it| it.party == Party::Client(ClientId(1))).unwrap();
        (first.gone, first.reads)
    };
    let mut found = Vec::new();
    for _ in 0..2 {
        rig.ask(READ, 0, 4096, client(1, 0));
        rig.run();
        found.push(is_gone(&rig));
        rig.engine.handle(Time(0), Input::ClientGone(ClientId(1)));
        rig.run();
        found.push(is_gone(&rig));
    }
    assert_eq!(found, [(false, 1), (true, 1), (false, 2), (true, 2)]);
}
