//! Tests of the numbered statements on md's behaviour (docs/statements.md). Each test cites its
//! number. (21-24 and 42 are tested beside the priority policy, 26 beside the knobs, 36 beside the
//! geometry.)
#![allow(
    clippy::cast_possible_truncation,
    clippy::cast_possible_wrap,
    clippy::cast_sign_loss,
    reason = "numbers of a test are small"
)]

use crate::{Logged, Options, Payload, Rig, chunk_kib};
use weft_engine::knobs::Knobs;
use weft_engine::{Flags, Notice, Origin, RequestOp, SyncAction, Verb};
use weft_ondisk::Level;
use weft_units::Span;

const K: u64 = 1024;
const SYNC: Flags = Flags { sync: true, ..Flags::NONE };
const NOSYNC: Flags = Flags::NONE;

/// A dirty array with a chunk of 64 KiB under md's conditions. Only one stripe, at the end of the
/// array, is cached.
fn raid(level: Level, members: usize) -> Rig {
    let mut rig = Rig::of(options(level, members));
    // The stripe is far from the offsets that the tests write, so that its content in the cache
    // does not matter.
    rig.store(rig.size() - 4096, 4096).unwrap();
    rig.log.clear();
    rig
}

fn options(level: Level, members: usize) -> Options {
    let mut options = Options::new(level, members, chunk_kib(64));
    options.full_stripes = 64;
    options.logged = true;
    options.client_frames = 2048;
    options.knobs = Knobs::md();
    let set =
        |knobs: &mut Knobs, name: &str, value: &str| knobs.set(knobs.parse(name, value).unwrap());
    set(&mut options.knobs, "max_sectors_kb", "0");
    set(&mut options.knobs, "writes", "gather");
    set(&mut options.knobs, "safe_mode_delay", "0");
    options
}

fn set(rig: &mut Rig, name: &str, value: &str) {
    let ticket = rig.set(name, value);
    rig.wait(ticket).unwrap();
    rig.log.clear();
}

/// Completes all outstanding requests, round after round. Returns the log of each round as text.
fn rounds(rig: &mut Rig) -> Vec<String> {
    rig.settle();
    for _ in 0..100_000 {
        if !rig.round() && (rig.unanswered() == 0 || !rig.wake()) {
            break;
        }
    }
    rig.must();
    let text = show(rig);
    rig.log.clear();
    text
}

/// Log as text: `W3@0+4!f` is a FUA write to member 3 at 0 KiB of its data, 4 KiB long.
fn show(rig: &Rig) -> Vec<String> {
    let mut groups = vec![String::new()];
    let kib = |sectors: i64| {
        if sectors % 2 == 0 { format!("{}", sectors / 2) } else { format!("{}.5", sectors / 2) }
    };
    let place = |disk: usize, at: u64, count: u64| {
        let first = rig.array.data_offset[disk].0;
        if at < first {
            format!("{disk}@meta{at}+{}", kib(count as i64))
        } else {
            format!("{disk}@{}+{}", kib((at - first) as i64), kib(count as i64))
        }
    };
    for logged in &rig.log {
        let word = match *logged {
            Logged::Round => {
                groups.push(String::new());
                continue;
            }
            Logged::Done { .. } => continue,
            Logged::Answer(_, true) => "ack".to_owned(),
            Logged::Answer(_, false) => "error".to_owned(),
            Logged::Flush { disk } => format!("F{disk}"),
            Logged::Read { disk, at, count, .. } => format!("R{}", place(disk, at, count)),
            Logged::Write { disk, at, count, fua, .. } => {
                format!("W{}{}", place(disk, at, count), if fua { "!f" } else { "" })
            }
        };
        let group = groups.last_mut().unwrap();
        if !group.is_empty() {
            group.push(' ');
        }
        *group += &word;
    }
    groups.retain(|group| !group.is_empty());
    groups
}

fn put(rig: &mut Rig, start: u64, len: u64) -> Vec<String> {
    rig.put(start, len);
    rounds(rig)
}

fn get(rig: &mut Rig, start: u64, len: u64) -> Vec<String> {
    rig.get(start, len);
    rounds(rig)
}

/// Number of requests of a kind.
fn count(groups: &[String], kind: char) -> usize {
    groups.iter().flat_map(|group| group.split(' ')).filter(|word| word.starts_with(kind)).count()
}

#[test]
fn statement_1_2_3_4k_writes_reconstruct_then_hit_the_cache() {
    let mut rig = raid(Level::Raid5, 4);
    assert_eq!(put(&mut rig, 0, 4 * K), ["R2@0+4 R1@0+4", "W3@0+4 W0@0+4", "ack"]);
    assert_eq!(put(&mut rig, 0, 4 * K), ["W3@0+4 W0@0+4", "ack"]);
    assert_eq!(put(&mut rig, 64 * K, 4 * K), ["W3@0+4 W1@0+4", "ack"]);
}

#[test]
fn statement_4_five_members_read_modify_write() {
    let mut rig = raid(Level::Raid5, 5);
    assert_eq!(put(&mut rig, 0, 4 * K), ["R4@0+4 R0@0+4", "W4@0+4 W0@0+4", "ack"]);
}

#[test]
fn statement_5_three_members_read_one_block() {
    let mut rig = raid(Level::Raid5, 3);
    assert_eq!(put(&mut rig, 0, 4 * K), ["R1@0+4", "W2@0+4 W0@0+4", "ack"]);
}

#[test]
fn statement_6_rmw_level_moves_the_tie() {
    let mut rig = raid(Level::Raid5, 4);
    set(&mut rig, "rmw_level", "2");
    assert_eq!(put(&mut rig, 0, 4 * K)[0], "R3@0+4 R0@0+4");
    let mut rig = raid(Level::Raid5, 5);
    set(&mut rig, "rmw_level", "0");
    assert_eq!(put(&mut rig, 0, 4 * K)[0], "R3@0+4 R2@0+4 R1@0+4");
}

#[test]
fn statement_7_a_filled_stripe_is_one_batch_member_by_member() {
    let mut rig = raid(Level::Raid5, 4);
    let groups = put(&mut rig, 0, 192 * K);
    let run = |member: u64| (0..16).map(move |stripe| format!("W{member}@{}+4", stripe * 4));
    let expected: Vec<String> = [3, 2, 1, 0].into_iter().flat_map(run).collect();
    assert_eq!(groups, [expected.join(" "), "ack".to_owned()]);
}

#[test]
fn statement_8_9_chunks_of_a_stripe() {
    let mut rig = raid(Level::Raid5, 4);
    let one = put(&mut rig, 0, 64 * K);
    assert_eq!((count(&one, 'R'), count(&one, 'W')), (32, 32));
    let mut rig = raid(Level::Raid5, 4);
    let two = put(&mut rig, 0, 128 * K);
    assert_eq!((count(&two, 'R'), count(&two, 'W')), (16, 48));
    assert!(two[0].split(' ').all(|word| word.starts_with("R2@")));
}

#[test]
fn statement_10_a_partial_block_reads_and_writes_whole_blocks() {
    let mut rig = raid(Level::Raid5, 4);
    assert_eq!(put(&mut rig, 0, K), ["R3@0+4 R0@0+4", "W3@0+4 W0@0+4", "ack"]);
}

#[test]
fn statement_11_without_sync_a_partial_block_reads_in_two_phases() {
    let mut rig = raid(Level::Raid5, 4);
    for half in 0..2 {
        rig.plug(RequestOp::Write, half * 512, 512, Payload::Tags, NOSYNC);
    }
    assert_eq!(rounds(&mut rig), ["R0@0+4", "R3@0+4", "W3@0+4 W0@0+4", "ack ack"]);
}

#[test]
fn statement_12_healthy_reads_bypass_the_cache_at_exact_length() {
    let mut rig = raid(Level::Raid5, 4);
    rig.get(K, 512);
    assert_eq!(rig.volume().raid.stripe_cache_active, 0);
    assert_eq!(rounds(&mut rig), ["R0@1+0.5", "ack"]);
    let groups = get(&mut rig, 0, 1024 * K);
    let reads: Vec<&str> = groups[0].split(' ').collect();
    assert_eq!(reads.len(), 16);
    assert_eq!(reads[..5], ["R0@0+64", "R1@0+64", "R2@0+64", "R3@64+64", "R0@64+64"]);
}

#[test]
fn statement_13_degraded_reads_go_through_the_cache() {
    let mut rig = raid(Level::Raid5, 4);
    rig.fail_disk(0);
    rig.log.clear();
    assert_eq!(get(&mut rig, 0, 4 * K), ["R3@0+4 R2@0+4 R1@0+4", "ack"]);
    assert_eq!(get(&mut rig, 256 * K, 4 * K).len(), 2);
    let mut rig = raid(Level::Raid5, 4);
    rig.fail_disk(0);
    rig.log.clear();
    assert_eq!(get(&mut rig, 64 * K, 4 * K), ["R1@0+4", "ack"]);
    assert_eq!(get(&mut rig, 64 * K, 4 * K), ["ack"]);
}

/// Full stripe 0 of RAID 5 on four members is d0 d1 d2 P.
#[test]
fn statement_14_degraded_writes_of_raid5() {
    let cases = [
        (0, 4096, ["R2@0+4 R1@0+4", "W3@0+4"]),
        (1, 4096, ["R3@0+4 R0@0+4", "W3@0+4 W0@0+4"]),
        (3, 4096, ["R2@0+4 R1@0+4", "W0@0+4"]),
        (0, 512, ["R3@0+4 R2@0+4 R1@0+4", "W3@0+4"]),
        (1, 512, ["R3@0+4 R0@0+4", "W3@0+4 W0@0+4"]),
        (3, 512, ["R2@0+4 R1@0+4 R0@0+4", "W0@0+4"]),
    ];
    for (failed, len, [reads, writes]) in cases {
        let mut rig = raid(Level::Raid5, 4);
        rig.fail_disk(failed);
        rig.log.clear();
        assert_eq!(put(&mut rig, 0, len), [reads, writes, "ack"], "{failed} {len}");
    }
}

/// Full stripe 0 of RAID 6 on six members is Q d0 d1 d2 d3 P.
#[test]
fn statement_14_degraded_writes_of_raid6() {
    let cases: [(&[usize], &str, &str); 8] = [
        (&[1], "R4 R3 R2", "W5 W0"),
        (&[2], "R5 R1 R0", "W5 W1 W0"),
        (&[5], "R4 R3 R2", "W1 W0"),
        (&[0], "R4 R3 R2", "W5 W1"),
        (&[1, 2], "R5 R4 R3 R0", "W5 W0"),
        (&[2, 3], "R5 R1 R0", "W5 W1 W0"),
        (&[2, 5], "R4 R3 R1 R0", "W1 W0"),
        (&[0, 5], "R4 R3 R2", "W1"),
    ];
    for (failed, reads, writes) in cases {
        let mut rig = raid(Level::Raid6, 6);
        for disk in failed {
            rig.fail_disk(*disk);
        }
        rig.log.clear();
        let found: Vec<String> =
            put(&mut rig, 0, 4 * K).into_iter().map(|group| group.replace("@0+4", "")).collect();
        assert_eq!(found, [reads, writes, "ack"], "{failed:?}");
    }
}

#[test]
fn statement_15_raid6_ties_and_turns_at_seven_members() {
    let mut rig = raid(Level::Raid6, 6);
    let six = put(&mut rig, 0, 4 * K);
    assert_eq!(six, ["R4@0+4 R3@0+4 R2@0+4", "W5@0+4 W1@0+4 W0@0+4", "ack"]);
    let mut rig = raid(Level::Raid6, 7);
    let seven = put(&mut rig, 0, 4 * K);
    assert_eq!(seven, ["R6@0+4 R1@0+4 R0@0+4", "W6@0+4 W1@0+4 W0@0+4", "ack"]);
}

#[test]
fn statement_16_raid6_reads_of_lost_blocks() {
    let mut rig = raid(Level::Raid6, 6);
    rig.fail_disk(1);
    rig.log.clear();
    assert_eq!(count(&get(&mut rig, 0, 4 * K), 'R'), 5);
    rig.fail_disk(2);
    rig.log.clear();
    assert_eq!(count(&get(&mut rig, 8 * K, 4 * K), 'R'), 4);
}

#[test]
fn statement_17_fua_is_on_every_write_of_the_stripe_and_on_no_read() {
    let mut rig = raid(Level::Raid5, 4);
    rig.fua(0, 4 * K);
    assert_eq!(rounds(&mut rig), ["R2@0+4 R1@0+4", "W3@0+4!f W0@0+4!f", "ack"]);
    rig.fua(192 * 4 * K, 192 * K);
    let stripe = rounds(&mut rig);
    assert_eq!((count(&stripe, 'W'), count(&stripe, 'R')), (64, 0));
    assert!(stripe[0].split(' ').all(|word| word.ends_with("!f")));
}

#[test]
fn statement_18_a_flush_goes_to_every_member_that_is_not_faulty() {
    let mut rig = raid(Level::Raid5, 4);
    rig.flush();
    assert_eq!(rounds(&mut rig), ["F3 F2 F1 F0", "ack"]);
    rig.fail_disk(2);
    rig.log.clear();
    rig.flush();
    assert_eq!(rounds(&mut rig), ["F3 F1 F0", "ack"]);
}

#[test]
fn statement_19_flushes_that_arrive_during_a_round_share_the_next() {
    let mut rig = raid(Level::Raid5, 4);
    rig.flush();
    for _ in 0..7 {
        rig.flush();
    }
    assert_eq!(rounds(&mut rig), ["F3 F2 F1 F0", "ack F3 F2 F1 F0", "ack ack ack ack ack ack ack"]);
}

#[test]
fn statement_20_data_waits_for_its_preflush() {
    let mut rig = raid(Level::Raid5, 4);
    let flags = Flags { preflush: true, ..SYNC };
    rig.issue(RequestOp::Write, 0, 4 * K, Payload::Tags, flags);
    let groups = rounds(&mut rig);
    assert_eq!(groups[0], "F3 F2 F1 F0");
    assert_eq!(groups[1..], ["R2@0+4 R1@0+4", "W3@0+4 W0@0+4", "ack"]);
}

#[test]
fn statement_25_ten_delayed_stripes_go_eight_and_two() {
    let mut rig = raid(Level::Raid5, 4);
    for stripe in 0..10 {
        rig.plug(RequestOp::Write, stripe * 4 * K, 4 * K, Payload::Tags, NOSYNC);
    }
    let groups = rounds(&mut rig);
    let numbers: Vec<(usize, usize)> = groups
        .iter()
        .map(|group| (group.matches('R').count(), group.matches('W').count()))
        .collect();
    assert_eq!(numbers, [(16, 0), (4, 16), (0, 4), (0, 0)], "{groups:?}");
}

#[test]
fn statement_27_stripe_size_is_the_unit_of_stripe_io() {
    let mut options = options(Level::Raid5, 4);
    let knob = options.knobs.parse("stripe_size", "16384").unwrap();
    options.knobs.set(knob);
    let mut rig = Rig::of(options);
    rig.store(rig.size() - 4096, 4096).unwrap();
    rig.log.clear();
    assert_eq!(put(&mut rig, 0, 4 * K), ["R3@0+16 R0@0+16", "W3@0+16 W0@0+16", "ack"]);
}

fn small(level: Level, members: usize, stripes: u64) -> Rig {
    let mut options = options(level, members);
    options.chunk = chunk_kib(4);
    options.full_stripes = stripes;
    // The test changes parity directly on the media.
    options.checked = false;
    Rig::of(options)
}

#[test]
fn statement_28_check_counts_and_repair_mends() {
    let mut rig = small(Level::Raid5, 4, 3);
    let mut stripes_read = 0;
    // Full stripe 1 of four members has its parity on member 2.
    let at = rig.array.data_offset[2].0 + 8;
    rig.disks[2].poke(at, &[0x5a; 512]);
    rig.log.clear();
    assert_eq!(rig.check(), (8, 3));
    let groups = show(&rig);
    assert_eq!((count(&groups, 'R'), count(&groups, 'W')), (12, 0), "{groups:?}");
    rig.stop().recover();
    rig.log.clear();
    assert_eq!(rig.repair(), (8, 3));
    let data =
        rig.log.iter().filter(|logged| matches!(logged, Logged::Write { metadata: false, .. }));
    assert_eq!(data.count(), 1);
    let (mismatches, stripes) = rig.check();
    stripes_read += stripes;
    assert_eq!((mismatches, stripes_read), (0, 3));
    assert_eq!(rig.scrub_clean(), 0, "the array is all zeros again");
}

#[test]
fn statement_29_recovery_reads_the_others_and_writes_the_new_member() {
    for stripes in [1, 7, 24] {
        let mut rig = small(Level::Raid5, 4, stripes);
        rig.put(0, stripes * 3 * 4 * K);
        rig.finish();
        rig.fail_disk(1).remove(1);
        // A restart empties the stripe cache, because cached data would not be read.
        rig.stop().recover();
        rig.sync(SyncAction::Frozen).unwrap();
        rig.log.clear();
        let disk = rig.add();
        rig.sync(SyncAction::Idle).unwrap();
        rig.until_idle();
        let recovery = |write: bool| {
            rig.log
                .iter()
                .filter(|logged| match logged {
                    Logged::Read { origin, .. } => !write && *origin == Origin::Sync,
                    Logged::Write { disk: to, origin, .. } => {
                        write && *origin == Origin::Sync && *to == disk
                    }
                    _ => false,
                })
                .count() as u64
        };
        assert_eq!((recovery(false), recovery(true)), (3 * stripes, stripes));
        assert_eq!(rig.volume().degraded, 0);
        assert_eq!(rig.scrub_clean(), stripes * 8);
    }
}

#[test]
fn statement_30_beyond_the_resync_point_writes_reconstruct() {
    let mut options = options(Level::Raid5, 5);
    options.assume_clean = false;
    let mut rig = Rig::of(options);
    rig.sync(SyncAction::Frozen).unwrap();
    rig.log.clear();
    let start = rig.size() / 2 / (256 * 5 * K) * (256 * 5 * K);
    assert_eq!(count(&put(&mut rig, start, 4 * K), 'R'), 3);
    rig.sync(SyncAction::Idle).unwrap();
    rig.until_idle();
    rig.stop().recover();
    rig.log.clear();
    let groups = put(&mut rig, start, 4 * K);
    let reads = groups.iter().find(|group| group.contains('R')).unwrap();
    assert_eq!(reads.matches('R').count(), 2, "{groups:?}");
}

/// weft never decreases the event count; md does after a pure clean-dirty pair.
#[test]
fn statement_32_superblocks_precede_data_and_follow_idleness() {
    let mut options = options(Level::Raid5, 4);
    options.knobs.set(options.knobs.parse("safe_mode_delay", "0.200").unwrap());
    let mut rig = Rig::of(options);
    rig.pass(Span::secs(2));
    let mut events = rig.volume().events;
    for round in 0..3 {
        rig.log.clear();
        let groups = put(&mut rig, round * 8 * K, 4 * K);
        let meta = "W3@meta8+0.5!f W2@meta8+0.5!f W1@meta8+0.5!f W0@meta8+0.5!f";
        assert_eq!(groups[0], meta, "dirty before anything else");
        assert!(rig.volume().events >= events);
        events = rig.volume().events;
        let before = rig.now;
        rig.pass(Span::secs(2));
        let clean: Vec<String> = show(&rig);
        assert_eq!(clean.join(" ").matches("meta8").count(), 4, "one clean round: {clean:?}");
        let marked =
            rig.notices.iter().rfind(|(_, notice)| matches!(notice, Notice::ArrayClean(_)));
        let delay = marked.unwrap().0.since(before);
        assert!(delay >= Span::millis(190) && delay <= Span::millis(500), "{delay:?}");
        assert!(rig.volume().events >= events);
        events = rig.volume().events;
        assert_eq!(rig.volume().array_state, "clean");
    }
}

#[test]
fn statement_33_a_read_error_is_computed_written_and_read_again() {
    let mut rig = raid(Level::Raid5, 4);
    let sector = rig.array.data_offset[0].0;
    rig.disks[0].faults.bad_reads.insert(sector);
    let groups = get(&mut rig, 0, 4 * K);
    assert_eq!(
        groups,
        ["R0@0+4", "R0@0+4", "R3@0+4 R2@0+4 R1@0+4", "ack W0@0+4", "R0@0+4"],
        "answered before the rewrite"
    );
    let member = &rig.volume().members[0];
    assert_eq!(member.corrected, 8);
    assert_eq!(rig.volume().degraded, 0);
}

#[test]
fn statement_39_a_write_across_chunks_begins_at_the_lower_stripe() {
    let mut rig = raid(Level::Raid5, 4);
    let groups = put(&mut rig, 60 * K, 8 * K);
    assert_eq!(groups[0], "R2@0+4 R0@0+4 R2@60+4 R1@60+4");
    assert_eq!(groups[1], "W3@0+4 W1@0+4 W3@60+4 W0@60+4");
}

#[test]
fn statement_41_a_full_cache_makes_misses_wait_and_hits_proceed() {
    let mut rig = raid(Level::Raid5, 4);
    set(&mut rig, "stripe_cache_size", "17");
    for stripe in 0..40 {
        let start = stripe / 16 * 192 * K + stripe % 16 * 4 * K;
        rig.plug(RequestOp::Write, start, 4 * K, Payload::Tags, SYNC);
    }
    rig.settle();
    let active = rig.volume().raid.stripe_cache_active;
    assert!(active <= 17, "{active}");
    let groups = rounds(&mut rig);
    assert_eq!(count(&groups, 'W'), 80);
    assert_eq!(rig.volume().raid.stripe_cache_active, 0);
    assert!(groups[0].matches('R').count() <= 34);
}

#[test]
fn statement_47_batches_stop_at_the_chunk() {
    let mut rig = raid(Level::Raid5, 4);
    let groups = put(&mut rig, 0, 384 * K);
    let words: Vec<&str> = groups[0].split(' ').collect();
    assert_eq!(words.len(), 128);
    let run = |index: usize| {
        let words = &words[index * 16..(index + 1) * 16];
        let member = words[0].as_bytes()[1];
        assert!(words.iter().all(|word| word.as_bytes()[1] == member));
        (char::from(member), words[0].split_once('@').unwrap().1.to_owned())
    };
    let runs: Vec<(char, String)> = (0..8).map(run).collect();
    let expected: Vec<(char, String)> = ["0+4", "64+4"]
        .into_iter()
        .flat_map(|at| ['3', '2', '1', '0'].map(|member| (member, at.to_owned())))
        .collect();
    assert_eq!(runs, expected);
}

#[test]
fn statement_48_a_write_to_a_running_batch_waits_and_then_hits_the_cache() {
    let mut rig = raid(Level::Raid5, 4);
    rig.put(0, 192 * K);
    rig.put(0, 4 * K);
    let groups = rounds(&mut rig);
    assert_eq!(groups.len(), 3, "{groups:?}");
    assert_eq!(groups[0].matches('W').count(), 64);
    assert_eq!(groups[1], "ack W3@0+4 W0@0+4");
}

#[test]
fn statement_50_a_sequential_stream_of_1_mib_writes() {
    for (stripe_size, expected) in
        [("4096", [(32, 352), (16, 352), (0, 352)]), ("65536", [(2, 22), (1, 22), (0, 22)])]
    {
        let mut options = options(Level::Raid5, 4);
        options.knobs.set(options.knobs.parse("stripe_size", stripe_size).unwrap());
        let mut rig = Rig::of(options);
        rig.store(rig.size() - 4096, 4096).unwrap();
        rig.log.clear();
        for (index, expected) in expected.into_iter().enumerate() {
            let groups = put(&mut rig, index as u64 * 1024 * K, 1024 * K);
            assert_eq!((count(&groups, 'R'), count(&groups, 'W')), expected, "{stripe_size}");
        }
    }
}

#[test]
fn a_command_beyond_the_level_is_refused_and_changes_nothing() {
    let mut rig = raid(Level::Raid5, 4);
    rig.fail_disk(0);
    let events = rig.volume().events;
    let member = rig.member_of(1);
    assert!(rig.command(Verb::Fail(member)).is_err());
    assert_eq!(rig.volume().events, events);
    assert_eq!(rig.volume().degraded, 1);
}
