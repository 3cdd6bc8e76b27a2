//! Tests of payload modes: a run makes the same decisions with tags as with bytes (I15).
//!
//! The compared results include a digest of all outputs with their times, the results of power
//! cuts, the content found, and the errors of the write hole. Tags and bytes must give the same
//! results for each seed. A planted disagreement, tags that lose some of the content, must be
//! noticed.
#![allow(clippy::cast_possible_truncation, reason = "numbers of a test are small")]

use crate::script::{Profile, Report, Script};
use crate::{BLOCK, NeedsPayload, Options, PayloadMode, Rig, World, chunk_kib};
use weft_engine::{ReplyError, SyncAction, Verb};
use weft_ondisk::{Features, Level, Minor, Super1};

/// Results that must not depend on the mode. The number of columns with data at the end is not
/// among them: zeros over a part of a sector may clear neighbouring bytes of its tag.
fn decisions(report: &Report) -> impl PartialEq + std::fmt::Debug + use<> {
    let Report { coverage, kills, looks, stops, requests, verified, digest, .. } = *report;
    (coverage, kills, looks, stops, requests, verified, digest)
}

fn with(seed: u64, profile: Profile, payload: PayloadMode) -> Script {
    let mut script = Script::generate(seed, profile);
    script.options.payload = payload;
    script
}

/// Seeds on which a run with bytes and a run with tags, in which `plant` is called at each start,
/// do not give the same results.
fn disagreements(
    profile: Profile,
    seeds: std::ops::Range<u64>,
    plant: &dyn Fn(&mut World),
) -> Vec<u64> {
    let agree = |seed: &u64| {
        let bytes = with(*seed, profile, PayloadMode::Bytes).run();
        let bytes = bytes.unwrap_or_else(|failure| panic!("{failure}"));
        let tags = with(*seed, profile, PayloadMode::Tags).run_with(plant);
        tags.is_ok_and(|tags| decisions(&tags) == decisions(&bytes))
    };
    seeds.filter(|seed| !agree(seed)).collect()
}

/// Asserts that runs with bytes and with tags give the same results for 80 seeds of a profile.
fn agree(profile: Profile, first: u64) {
    assert_eq!(disagreements(profile, first..first + 80, &|_| ()), [0; 0], "{}", profile.name);
}

/// Generates a test for each profile, so that they run in parallel.
macro_rules! agree {
    ($($name:ident: $profile:ident from $first:literal;)*) => {$(
        #[test]
        fn $name() {
            agree(Profile::$profile, $first);
        }
    )*};
}

agree! {
    tags_and_bytes_agree_on_clients_alone: CALM from 40_000;
    tags_and_bytes_agree_on_power_cuts: CUTS from 41_000;
    tags_and_bytes_agree_on_many_power_cuts: MANY_CUTS from 42_000;
    tags_and_bytes_agree_on_knobs: KNOBS from 43_000;
    tags_and_bytes_agree_on_faults: FAULTS from 44_000;
    tags_and_bytes_agree_on_faults_with_power_cuts: FAULTS_AND_CUTS from 45_000;
    tags_and_bytes_agree_beyond_the_level: BEYOND from 46_000;
}

/// A bit of one tag flips at each start, so that a resync finds wrong parity, rewrites and reports
/// it.
#[test]
fn tags_that_differ_where_bytes_do_not_are_seen() {
    let plant = |world: &mut World| {
        let sector = world.array.data_offset[0].0;
        world.disks[0].flip_bit(sector, 3).unwrap();
    };
    let found = disagreements(Profile::MANY_CUTS, 42_000..42_020, &plant);
    assert!(found.len() >= 10, "only {found:?}");
}

#[test]
fn the_same_seed_of_another_profile_is_another_run() {
    let digest = |profile| with(41_000, profile, PayloadMode::Tags).run().unwrap().digest;
    assert_ne!(digest(Profile::CUTS), digest(Profile::FAULTS));
}

fn rig(payload: PayloadMode) -> Rig {
    Rig::of(Options { payload, ..Options::new(Level::Raid5, 4, chunk_kib(64)) })
}

/// Writes ranges of nine lengths, 1.5 to 13.5 KiB, reads each range while an overlapping write is
/// in flight, fails a member, and writes once more. Returns the digest of the engine's outputs.
fn some_work(rig: &mut Rig) -> u64 {
    for n in 0..40 {
        let (start, len) = (n * 13 * BLOCK + n % 5 * 512, (1 + n % 9) * 1536);
        rig.store(start, len).unwrap();
        rig.put(start + BLOCK, len);
        rig.get(start, len);
    }
    rig.finish();
    rig.fail_disk(1);
    rig.store(0, 64 * BLOCK).unwrap();
    rig.digest.0
}

#[test]
fn without_payload_the_engine_decides_the_same_too() {
    let digests = [PayloadMode::None, PayloadMode::Tags, PayloadMode::Bytes].map(|payload| {
        let mut rig = rig(payload);
        let read = some_work(&mut rig);
        let len = rig.read_bytes(0, BLOCK).unwrap().0.len();
        assert_eq!(len, payload.bytes_of(8));
        read
    });
    assert_eq!(digests[0], digests[1]);
    assert_eq!(digests[1], digests[2]);
}

#[test]
fn without_payload_what_looks_at_it_is_refused_by_name() {
    let mut none = rig(PayloadMode::None);
    some_work(&mut none);
    let check = none.try_admin(Verb::SyncAction(SyncAction::Check)).unwrap_err();
    assert_eq!(check, NeedsPayload::Check);
    let repair = none.try_admin(Verb::SyncAction(SyncAction::Repair)).unwrap_err();
    assert_eq!(repair, NeedsPayload::Repair);
    let sector = none.array.data_offset[2].0;
    assert_eq!(none.disks[2].flip_bit(sector, 1), Err(NeedsPayload::BitRot));
    // The engine still accepts commands. Worlds with payload accept the refused commands too.
    assert_eq!(none.command(Verb::SyncAction(SyncAction::Idle)), Ok(()));
    for payload in [PayloadMode::Tags, PayloadMode::Bytes] {
        let mut rig = rig(payload);
        assert_eq!(rig.check().0, 0);
        let sector = rig.array.data_offset[2].0;
        rig.disks[2].flip_bit(sector, 1).unwrap();
        assert_eq!(rig.repair().0, 8, "{payload:?}");
        assert_eq!(rig.check().0, 0);
    }
}

#[test]
fn without_payload_a_partial_parity_log_is_refused_by_name() {
    for (payload, refused) in [(PayloadMode::None, true), (PayloadMode::Tags, false)] {
        let mut rig = rig(payload);
        rig.stop();
        for disk in 0..4 {
            let size = rig.disks[disk].size();
            let at = Minor::V1_2.position(size).unwrap();
            let mut sb = Super1::parse(&rig.disks[disk].peek(at.0, 8), Minor::V1_2, size).unwrap();
            sb.feature_map = sb.feature_map.with(Features::PPL);
            // 64 sectors, 128 after the superblock.
            sb.bitmap_offset_raw = [128, 0, 64, 0];
            rig.disks[disk].poke(at.0, &sb.encode());
        }
        rig.stopped();
        let error = rig.try_recover().err().map(|refused| refused.reason);
        let expected = NeedsPayload::Ppl.to_string();
        assert_eq!(error.as_deref() == Some(&*expected), refused, "{payload:?}: {error:?}");
    }
}

#[test]
fn reads_of_nothing_say_so_and_not_that_all_is_well() {
    let mut none = rig(PayloadMode::None);
    some_work(&mut none);
    assert_eq!(none.verify(), 0, "no sector was verified");
    let ticket = none.put(none.size(), 512);
    assert_eq!(none.wait(ticket), Err(ReplyError::OutOfRange));
}
