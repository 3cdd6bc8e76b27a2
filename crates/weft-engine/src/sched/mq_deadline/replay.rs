//! Replay of the dispatch decisions of Linux's mq-deadline, call by call (`fixtures/sched`).

use super::*;
use crate::contract::input::{Attr, Class};
use crate::knobs::Knobs;

/// Dispatch calls in which weft picks another request than Linux did: script, number of calls, and
/// reason.
///
/// In `rnd2` the last real-time request completed 114 us before a call to which Linux still
/// returned nothing, as for a class with a request in flight. The trace records a completion before
/// the scheduler counts it. In the two calls after that, Linux picks the requests that weft picked
/// one call earlier.
const DIFFERENT: [(&str, usize, &str); 1] =
    [("rnd2", 3, "a completion that was recorded before the scheduler counted it")];

struct Script<'a> {
    name: &'a str,
    knobs: MqDeadlineKnobs,
    events: Vec<Vec<&'a str>>,
}

fn scripts(text: &str) -> Vec<Script<'_>> {
    let mut scripts: Vec<Script<'_>> = Vec::new();
    for line in text.lines().skip(1) {
        let fields: Vec<&str> = line.split(',').collect();
        if fields[0] != "script" {
            scripts.last_mut().expect("a script comes first").events.push(fields);
            continue;
        }
        let mut words = fields[1].split(' ');
        let name = words.next().expect("a script has a name");
        let mut all = Knobs::md();
        for setting in words {
            let (knob, value) = setting.split_once('=').expect("a knob is set");
            all.set(all.parse(knob, value).expect("Linux took it"));
        }
        scripts.push(Script { name, knobs: all.mq_deadline, events: Vec::new() });
    }
    scripts
}

/// Replays a script. Returns the number of dispatch calls, and the number of calls that differ from
/// Linux.
fn replay(script: &Script<'_>, phase: u64) -> (usize, usize) {
    let mut queue = MqDeadline::new(script.knobs, Sectors(1024), NoMerges::Never);
    let mut receipts: Vec<(u64, Receipt)> = Vec::new();
    let (mut calls, mut different) = (0, 0);
    for event in &script.events {
        let sector = event[2].parse::<u64>().ok();
        // Linux counts in ticks.
        let now = Time((event[1].parse::<u64>().unwrap() + phase) / 4000 * 4_000_000);
        match event[0] {
            "insert" => {
                let class = match event[4] {
                    "rt" => Class::RealTime(4),
                    "be" => Class::BestEffort(4),
                    "idle" => Class::Idle,
                    other => panic!("{other}: no class"),
                };
                let direction = if event[3] == "R" { Direction::Read } else { Direction::Write };
                let attr = Attr { class, ..Attr::NONE };
                let (id, first, len) = (sector.unwrap(), Sectors(sector.unwrap()), Sectors(8));
                let request = QueuedRequest {
                    id,
                    direction,
                    attr,
                    first,
                    len,
                    discard: false,
                    merges: false,
                };
                queue.insert(&request, now);
                receipts.push((id, Receipt(IoPriority::of(class) as u32)));
            }
            "complete" => {
                let done = receipts.iter().position(|(id, _)| Some(*id) == sector).unwrap();
                queue.completed(receipts.swap_remove(done).1);
            }
            _ => {
                calls += 1;
                let picked = queue.dispatch(now).map(|next| next.first.0);
                different += usize::from(picked != sector);
            }
        }
    }
    (calls, different)
}

fn replay_all(text: &str, damage: impl Fn(&mut Script<'_>)) -> (usize, Vec<(String, usize)>) {
    let (mut calls, mut different) = (0, Vec::new());
    for mut script in scripts(text) {
        damage(&mut script);
        let phases = (0..4000).step_by(200).map(|phase| replay(&script, phase));
        let (asked, wrong) = phases.min_by_key(|(_, different)| *different).unwrap();
        calls += asked;
        if wrong > 0 {
            different.push((script.name.to_owned(), wrong));
        }
    }
    (calls, different)
}

const TRACES: &str = include_str!("../../../../../fixtures/sched/mq-deadline.csv");

#[test]
fn every_call_but_three_picks_what_linux_picked() {
    let (calls, different) = replay_all(TRACES, |_| ());
    assert_eq!(calls, 1421);
    let expected = DIFFERENT.map(|(script, calls, _)| (script.to_owned(), calls));
    assert_eq!(different, expected);
}

/// Control: the replay detects that a knob has another value than in Linux. In no script does a
/// write expire.
#[test]
fn a_replay_with_another_knob_is_seen() {
    let wrong = |damage: fn(&mut Script<'_>)| {
        let (_, different) = replay_all(TRACES, damage);
        different.iter().map(|(_, calls)| calls).sum::<usize>()
    };
    let seen = [
        wrong(|script| script.knobs.fifo_batch += 1),
        wrong(|script| script.knobs.writes_starved += 1),
        wrong(|script| script.knobs.read_expire = Span::secs(5)),
        wrong(|script| script.knobs.prio_aging_expire = Span::secs(10)),
    ];
    assert!(seen.iter().all(|wrong| *wrong > 20), "{seen:?}");
}
