//! Arrays that the kernel wrote: readable without any members that the level can do without,
//! refused without one more.

#![allow(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "places in images of a few MiB"
)]

mod common;

use std::path::Path;

use common::{Fixture, Served, contents, exits, json, weft};
use tempfile::tempdir;
use weft_ondisk::{ByteOrder, Features, Metadata, Minor, Role, Super1, Super090, Trust};
use weft_units::Sectors;

/// Required result of `weft cat` for a set of members.
#[derive(Debug, PartialEq, Eq)]
enum Expected {
    /// The content that the kernel read back.
    Content,
    /// Other content, with success: a silently overwritten block is not detectable.
    OtherContent,
    /// Exit status 3, empty standard output, and this text on standard error.
    Refused(&'static str),
}

use Expected::{Content, OtherContent, Refused};

/// Members with images that must not be used, or are not needed.
fn useless(fixture: &Fixture) -> Vec<usize> {
    match fixture.scenario.as_str() {
        "stale1" | "rebuild" => vec![1],
        "stale2" => vec![1, 3],
        "failedmark" => vec![2],
        "spare" => vec![4],
        _ => vec![],
    }
}

fn expected(fixture: &Fixture, absent: &[usize]) -> Expected {
    let useless = useless(fixture);
    let lost: Vec<usize> =
        absent.iter().copied().filter(|member| !useless.contains(member)).collect();
    let needed = lost.len();
    let unused = [useless, lost.clone()].concat();
    match fixture.scenario.as_str() {
        "mismatch" if absent == [1] => Content,
        "mismatch" => OtherContent,
        "plain" | "spare" | "badblock" if fixture.tolerates(&lost) => Content,
        "stale1" | "stale2" | "failedmark" if fixture.tolerates(&unused) => Content,
        // Slot 1 is valid below the recovery offset, and missing without its new member.
        "rebuild" if absent.iter().all(|member| [1, 4].contains(member)) => Content,
        "unclean" | "resync" if needed == 0 => Content,
        "unclean" | "resync" if needed <= fixture.parities() => Refused("--force-dirty"),
        // One member may be missing, but the journal may not.
        "journal" if absent.is_empty() || absent.len() == 1 && absent != [4] => Content,
        "journal" if absent.contains(&4) && absent.len() <= 2 => Refused("journal"),
        _ => Refused("need "),
    }
}

/// All sets of at most `most` of the members.
fn sets(members: usize, most: usize) -> Vec<Vec<usize>> {
    let all = (0..1_usize << members).filter(|set| set.count_ones() as usize <= most);
    all.map(|set| (0..members).filter(|member| set >> member & 1 == 1).collect()).collect()
}

fn check(names: &[&str]) {
    for fixture in names.iter().map(|name| Fixture::of(name)) {
        let dir = tempdir().unwrap();
        let members = fixture.unpack(dir.path());
        let before = contents(dir.path());
        let content = fixture.content();
        let most = (fixture.survives_at_most() + 1).min(members.len() - 1);
        for absent in sets(members.len(), most) {
            cat_without(dir.path(), &fixture, &members, &absent, &content);
        }
        assert_eq!(contents(dir.path()), before, "{}: cat writes nothing", fixture.name);
    }
}

fn cat_without(
    dir: &Path,
    fixture: &Fixture,
    members: &[String],
    absent: &[usize],
    content: &[u8],
) {
    let mut arguments = vec!["cat"];
    let present = members.iter().enumerate().filter(|(index, _)| !absent.contains(index));
    arguments.extend(present.map(|(_, name)| name.as_str()));
    let output = weft(dir, &arguments);
    let error = String::from_utf8_lossy(&output.stderr);
    let what = format!("{} without {absent:?}: {:?}: {error}", fixture.name, output.status);
    match expected(fixture, absent) {
        Content => {
            assert!(output.status.success(), "{what}");
            assert!(output.stdout == content, "{what}");
        }
        OtherContent if absent.len() <= fixture.parities() => {
            assert!(output.status.success(), "{what}");
            assert_eq!(output.stdout.len(), content.len(), "{what}");
            assert!(output.stdout != content, "{what}");
        }
        OtherContent => assert_eq!(output.status.code(), Some(3), "{what}"),
        Refused(text) => {
            assert_eq!(output.status.code(), Some(3), "{what}");
            assert!(output.stdout.is_empty(), "{what}");
            assert!(error.contains(text), "{what}");
        }
    }
}

#[test]
fn every_fixture_is_read_by_one_of_these_tests() {
    let mut read: Vec<&str> =
        [&RAID4_RAID5[..], &RAID5_STATES, &RAID6_A, &RAID6_B, &STRIPED, &MIRRORS].concat();
    read.sort_unstable();
    assert_eq!(read, Fixture::names());
}

const RAID4_RAID5: [&str; 12] = [
    "raid4-4x32k",
    "raid5-3x4k",
    "raid5-3x512k",
    "raid5-4-ppl",
    "raid5-4-v090",
    "raid5-4-v11-bitmap",
    "raid5-4x64k-la",
    "raid5-4x64k-ls",
    "raid5-4x64k-pf",
    "raid5-4x64k-pl",
    "raid5-4x64k-ra",
    "raid5-4x64k-rs",
];

#[test]
fn raid4_and_raid5_read_as_the_kernel_read_them() {
    check(&RAID4_RAID5);
}

const RAID5_STATES: [&str; 10] = [
    "raid5-4-badblock",
    "raid5-4-bitmap-stale",
    "raid5-4-failedmark",
    "raid5-4-journal",
    "raid5-4-mismatch",
    "raid5-4-rebuild",
    "raid5-4-resync",
    "raid5-4-spare",
    "raid5-4-stale",
    "raid5-4-unclean",
];

#[test]
fn raid5_in_any_state_reads_as_the_kernel_read_it() {
    check(&RAID5_STATES);
}

const RAID6_A: [&str; 5] = [
    "raid6-4x16k",
    "raid6-5-stale2",
    "raid6-5x64k-ddf-nc",
    "raid6-5x64k-ddf-nr",
    "raid6-5x64k-ddf-zr",
];

#[test]
fn raid6_reads_as_the_kernel_read_it() {
    check(&RAID6_A);
}

const RAID6_B: [&str; 5] =
    ["raid6-5x64k-la", "raid6-5x64k-ls", "raid6-5x64k-ls6", "raid6-5x64k-ra", "raid6-5x64k-rs"];

#[test]
fn raid6_in_other_layouts_reads_as_the_kernel_read_it() {
    check(&RAID6_B);
}

const STRIPED: [&str; 2] = ["raid0-3x64k", "raid0-uneven"];

#[test]
fn raid0_reads_as_the_kernel_read_it() {
    check(&STRIPED);
}

const MIRRORS: [&str; 8] = [
    "raid1-2",
    "raid1-3-v10-bitmap",
    "raid10-3-n2",
    "raid10-4-f2",
    "raid10-4-n2",
    "raid10-4-o2",
    "raid10-4-stale",
    "raid10-5-n3",
];

#[test]
fn raid1_and_raid10_read_as_the_kernel_read_them_without_any_members_that_hold_no_chunk_alone() {
    check(&MIRRORS);
}

#[test]
fn rescue_finds_arrays_without_parity_and_its_first_command_reads_them() {
    let mut read = 0;
    for fixture in STRIPED.iter().chain(&MIRRORS).map(|name| Fixture::of(name)) {
        let dir = tempdir().unwrap();
        let members = fixture.unpack(dir.path());
        let before = contents(dir.path());
        let level = format!("raid{}", fixture.level);
        for absent in [None, Some(0)] {
            let here = members.iter().enumerate().filter(|(index, _)| Some(*index) != absent);
            let here: Vec<&str> = here.map(|(_, name)| name.as_str()).collect();
            let line = [&["rescue", "--json"], &here[..]].concat();
            // In some fixtures slot 0 holds the last copy of its chunks.
            let lost = [useless(&fixture), absent.into_iter().collect()].concat();
            if !fixture.tolerates(&lost) {
                let said = exits(dir.path(), 1, &line).out;
                assert!(said.contains("too-few-members"), "{}: {said}", fixture.name);
                continue;
            }
            let found = json(dir.path(), &line);
            assert_eq!(found["arrays"].as_array().unwrap().len(), 1, "{found}");
            let array = &found["arrays"][0];
            assert_eq!(
                (array["decision"].as_str(), array["level"].as_str()),
                (Some("serve"), Some(level.as_str()))
            );
            let command = array["commands"][0].as_str().unwrap();
            let words: Vec<&str> = command.split_whitespace().collect();
            let [first, words @ .., ">array.img"] = words.as_slice() else { panic!("{command}") };
            let read_back = weft(dir.path(), words);
            assert_eq!(*first, "weft");
            assert!(read_back.stdout == fixture.content(), "{}: {command}", fixture.name);
            read += 1;
        }
        assert_eq!(contents(dir.path()), before, "{}: nothing is written", fixture.name);
    }
    assert!(read > 15, "{read} were read");
}

#[test]
fn cat_gives_any_part_and_refuses_too_few_members() {
    let fixture = Fixture::of("raid5-4x64k-ls");
    let dir = tempdir().unwrap();
    let members = fixture.unpack(dir.path());
    let all = fixture.content();
    for (offset, length) in [(0, 1), (511, 2), (65_535, 65_538), (3_145_000, 728), (1000, 0)] {
        let (offset_text, length_text) = (offset.to_string(), length.to_string());
        let mut arguments = vec!["cat", "--offset", &offset_text, "--length", &length_text];
        arguments.extend(members[1..].iter().map(String::as_str));
        let output = weft(dir.path(), &arguments);
        assert!(output.status.success(), "{output:?}");
        assert!(output.stdout == all[offset..offset + length], "{offset} {length}");
    }
    let text = exits(dir.path(), 3, &["cat", &members[0], &members[1]]).err;
    assert!(text.contains("slot 2 missing"), "{text}");
}

/// Lines of mdadm --examine about each member; the lines after them describe its bitmap.
fn examined(text: &str) -> Vec<Vec<&str>> {
    let mut members: Vec<Vec<&str>> = Vec::new();
    let mut of_member = false;
    for line in text.lines() {
        if line.ends_with(".img:") {
            members.push(Vec::new());
            of_member = true;
        } else if line.trim_start().starts_with("Filename : ") {
            of_member = false;
        } else if let (true, Some(lines)) = (of_member, members.last_mut()) {
            lines.push(line);
        }
    }
    members
}

#[test]
fn examine_reads_as_mdadm_printed_it() {
    for name in Fixture::names() {
        let fixture = Fixture::of(&name);
        let dir = tempdir().unwrap();
        let members = fixture.unpack(dir.path());
        let theirs = fixture.text("examine.txt");
        let theirs = examined(&theirs);
        assert_eq!(theirs.len(), members.len(), "{name}");
        for (member, expected) in members.iter().zip(theirs) {
            let text = exits(dir.path(), 0, &["examine", member]).out;
            let lines: Vec<&str> = text.lines().skip(1).collect();
            // Device names belong to the machine that ran mdadm.
            let name_of = |line: &&str| line.find("   /dev/").unwrap_or(line.len());
            let expected: Vec<&str> = expected.iter().map(|line| &line[..name_of(line)]).collect();
            // mdadm counts partial chunks, the kernel does not.
            let own = |line: &&str| {
                if name == "raid10-5-n3" { !line.contains("Array Size") } else { true }
            };
            let [lines, expected] =
                [lines, expected].map(|all| all.into_iter().filter(own).collect::<Vec<_>>());
            assert_eq!(lines, expected, "{name} {member}");
        }
    }
}

/// Device names and numbers belong to the machine that ran mdadm.
#[test]
fn detail_of_levels_without_parity_reads_as_mdadm_printed_it() {
    let mut compared = 0;
    // mdadm prints the bitmap, which weft leaves out.
    let names = STRIPED.iter().chain(&MIRRORS).filter(|name| !name.contains("bitmap"));
    for fixture in names.map(|name| Fixture::of(name)) {
        let dir = tempdir().unwrap();
        let members = fixture.unpack(dir.path());
        let arguments = [&["detail"], &members.iter().map(String::as_str).collect::<Vec<_>>()[..]];
        let ours = exits(dir.path(), 0, &arguments.concat()).out;
        let theirs = fixture.text("detail.txt");
        let lines = |text: &str| -> Vec<String> {
            let of_member = |line: &str| {
                let from = line.find("active sync").or_else(|| line.find("removed"))?;
                Some(line[from..].split("   ").next()?.trim_end().to_owned())
            };
            let kept = |line: &str| of_member(line).unwrap_or_else(|| line.to_owned());
            text.lines().skip(1).map(kept).collect()
        };
        compared += lines(&theirs).len();
        assert_eq!(lines(&ours), lines(&theirs), "{}", fixture.name);
    }
    assert!(compared > 200, "{compared} lines were compared");
}

/// Device names and the read-only state belong to the machine that ran it.
#[test]
fn status_of_levels_without_parity_reads_as_mdstat_did() {
    let mut compared = 0;
    for fixture in STRIPED.iter().chain(&MIRRORS).map(|name| Fixture::of(name)) {
        let dir = tempdir().unwrap();
        let members = fixture.unpack(dir.path());
        let mut line = vec!["--read-only", "--name", "md7"];
        line.extend(members.iter().map(String::as_str));
        let served = Served::start(dir.path(), &line);
        let ours = weft(dir.path(), &["status", "md7"]).stdout;
        let ours = String::from_utf8(ours).unwrap().replace(" (read-only)", "");
        let theirs = fixture.text("mdstat.txt");
        let theirs = (0..8).fold(theirs, |text, number| {
            text.replace(&format!("loop{number}["), &format!("m{number}.img["))
        });
        // Only the lines of the array and its shape are compared; a bitmap may follow.
        let lines =
            |text: &str| text.lines().skip(1).take(2).map(str::to_owned).collect::<Vec<_>>();
        assert_eq!(lines(&ours), lines(&theirs), "{}", fixture.name);
        compared += lines(&theirs).len();
        drop(served);
    }
    assert_eq!(compared, 2 * (STRIPED.len() + MIRRORS.len()));
}

/// Writes other bytes to sectors of a member's data; `marked` also marks them as bad.
fn spoil(path: &Path, sector: u64, sectors: u64, marked: bool) {
    let mut image = std::fs::read(path).unwrap();
    let size = Sectors(image.len() as u64 / 512);
    let mut superblock = Super1::parse(&image[4096..8192], Minor::V1_2, size).unwrap();
    let absolute = superblock.data_offset.0 + sector;
    let at = absolute as usize * 512;
    image[at..at + sectors as usize * 512].fill(0xa5);
    if marked {
        superblock.feature_map.insert(Features::BADBLOCKS);
        let log = (superblock.super_offset.0 as i64 + i64::from(superblock.bblog_offset)) as usize;
        let entry = absolute << 10 | sectors;
        image[log * 512..log * 512 + 4096].fill(0xff);
        image[log * 512..log * 512 + 8].copy_from_slice(&entry.to_le_bytes());
        image[4096..8192].copy_from_slice(&superblock.encode());
    }
    std::fs::write(path, image).unwrap();
}

#[test]
fn a_bad_block_is_a_missing_block() {
    let fixture = Fixture::of("raid5-4x64k-ls");
    let content = fixture.content();
    for marked in [true, false] {
        let dir = tempdir().unwrap();
        let members = fixture.unpack(dir.path());
        spoil(&dir.path().join(&members[1]), 16, 8, marked);
        spoil(&dir.path().join(&members[2]), 512, 40, marked);
        let cat = |members: &[String]| {
            let mut arguments = vec!["cat"];
            arguments.extend(members.iter().map(String::as_str));
            weft(dir.path(), &arguments)
        };
        let whole = cat(&members);
        assert!(whole.status.success(), "{whole:?}");
        // Unmarked wrong data is returned as data.
        assert_eq!(whole.stdout == content, marked);
        // With another member missing, those stripes are unrecoverable: an error, not zeros.
        let degraded = cat(&members[1..]);
        assert_eq!(degraded.status.success(), !marked, "{degraded:?}");
        if marked {
            assert!(log_of(dir.path(), &members[1]).contains("2064 for 8 sectors"));
            // A check writes them anew, and clears the logs.
            let weft = env!("CARGO_BIN_EXE_weft");
            let script = format!("{weft} status a >status && {weft} check a");
            let mut serve = vec!["serve", "--name", "a", "--exec", &script];
            serve.extend(members.iter().map(String::as_str));
            exits(dir.path(), 0, &serve);
            let status = std::fs::read_to_string(dir.path().join("status")).unwrap();
            let line = "m2.img in 1 ranges, from sector 2560 on";
            assert!(status.contains(line), "{status}");
            for member in &members[1..=2] {
                assert!(!log_of(dir.path(), member).contains("Bad-blocks"), "{member}");
            }
            assert!(cat(&members[1..]).stdout == content, "nothing is lost without m0.img");
        }
    }
}

fn log_of(dir: &Path, member: &str) -> String {
    exits(dir, 0, &["examine", member]).out
}

#[test]
fn a_journal_that_holds_more_than_the_members_is_refused() {
    let fixture = Fixture::of("raid5-4-journal");
    // A byte of the last stripe in the journal is changed on each member in turn: two of the
    // members hold blocks of that stripe.
    let at = (2048 + 9592) * 512;
    let mut refused = 0;
    for spoilt in 0..4 {
        let dir = tempdir().unwrap();
        let members = fixture.unpack(dir.path());
        let path = dir.path().join(&members[spoilt]);
        let mut image = std::fs::read(&path).unwrap();
        image[at] ^= 1;
        std::fs::write(&path, image).unwrap();
        let mut arguments = vec!["cat"];
        arguments.extend(members.iter().map(String::as_str));
        let output = weft(dir.path(), &arguments);
        let error = String::from_utf8_lossy(&output.stderr);
        if output.status.code() == Some(3) {
            assert!(output.stdout.is_empty());
            assert!(error.contains("m4.img: found 1 meta blocks in the journal"), "{error}");
            assert!(error.contains("--without-journal"), "{error}");
            refused += 1;
            arguments.insert(1, "--without-journal");
            assert!(weft(dir.path(), &arguments).status.success());
        }
    }
    assert_eq!(refused, 2, "data and parity of that stripe");
}

/// The kernel's count is in the fixture.
#[test]
fn check_counts_the_mismatches_that_the_kernel_counted() {
    let fixture = Fixture::of("raid5-4-mismatch");
    let dir = tempdir().unwrap();
    let members = fixture.unpack(dir.path());
    let mut arguments: Vec<&str> = members.iter().map(String::as_str).collect();
    arguments.extend(["--name", "mismatch"]);
    let served = Served::start(dir.path(), &arguments);
    let text = exits(dir.path(), 5, &["check", "mismatch"]);
    let counted = json(dir.path(), &["status", "--json"]);
    assert_eq!(
        counted["servers"][0]["volumes"][0]["mismatch_cnt"].as_u64(),
        fixture.mismatch_cnt,
        "{text:?} {counted}"
    );
    exits(dir.path(), 0, &["stop", "mismatch"]);
    assert_eq!(served.wait(), Some(0));
}

/// The array is written and read by weft: dirty while it is served, clean afterwards.
#[test]
fn an_array_of_version_0_90_is_written_in_its_own_way() {
    let fixture = Fixture::of("raid5-4-v090");
    let dir = tempdir().unwrap();
    let members = fixture.unpack(dir.path());
    let paths: Vec<_> = members.iter().map(|member| dir.path().join(member)).collect();
    let read = |path: &std::path::PathBuf| {
        let image = std::fs::read(path).unwrap();
        let size = Sectors(image.len() as u64 / 512);
        let at = Super090::position(size).unwrap().bytes().0 as usize;
        Super090::parse(&image[at..], size).unwrap()
    };
    let before = read(&paths[0]);
    let mut arguments: Vec<&str> = members.iter().map(String::as_str).collect();
    arguments.extend(["--name", "old"]);
    let served = Served::start(dir.path(), &arguments);
    exits(dir.path(), 0, &["fail", "old", &members[1]]);
    exits(dir.path(), 0, &["stop", "old"]);
    assert_eq!(served.wait(), Some(0));
    for survivor in [0, 2, 3] {
        let after = read(&paths[survivor]);
        assert!(after.events > before.events);
        assert_eq!(after.state & Super090::CLEAN, Super090::CLEAN);
        assert_eq!(after.set_uuid, before.set_uuid);
        assert_eq!((after.active_disks, after.raid_disks), (3, 4));
        assert_eq!(after.own_role(), before.role(survivor as u32));
        assert_eq!(after.role(1), Ok(Role::Faulty));
        assert_eq!(after.disks[survivor], before.disks[survivor]);
    }
    assert_eq!(read(&paths[1]).events, before.events, "nothing is written to a failed member");
    let refused = exits(dir.path(), 3, &["cat", &members[0], &members[1], &members[2]]).err;
    assert!(refused.contains("m1.img"), "{refused}");
    let output = weft(dir.path(), &["cat", &members[0], &members[2], &members[3]]);
    assert!(output.status.success() && output.stdout == fixture.content(), "{output:?}");
}

/// A former member receives the blocks that the bitmap names: none, if nothing was written in the
/// meantime.
#[test]
fn a_member_comes_back_by_the_bitmap() {
    let fixture = Fixture::of("raid5-4-v11-bitmap");
    let dir = tempdir().unwrap();
    let members = fixture.unpack(dir.path());
    let mut arguments: Vec<&str> = members.iter().map(String::as_str).collect();
    arguments.extend(["--name", "back"]);
    let served = Served::start(dir.path(), &arguments);
    for command in [["fail", "back", &members[1]], ["remove", "back", &members[1]]] {
        exits(dir.path(), 0, &command);
    }
    let refused = exits(dir.path(), 1, &["re-add", "back", "absent"]).err;
    assert!(refused.contains("absent"), "{refused}");
    exits(dir.path(), 0, &["re-add", "back", &members[1]]);
    exits(dir.path(), 0, &["wait", "back"]);
    let status = json(dir.path(), &["status", "back", "--json"]);
    let volume = &status["servers"][0]["volumes"][0];
    assert_eq!(volume["degraded"], 0, "{status}");
    assert_eq!(volume["sync_stripes"], 0, "{status}");
    assert_eq!(volume["bitmap"]["dirty"], 0, "{status}");
    let text = exits(dir.path(), 0, &["status", "back"]).out;
    assert!(text.contains("      bitmap: 0/1 pages [0KB], 64KB chunk\n"), "{text}");
    let detail = exits(dir.path(), 0, &["detail", "back"]).out;
    assert!(detail.contains("     Intent Bitmap : Internal\n"), "{detail}");
    assert!(detail.contains("Consistency Policy : bitmap\n"), "{detail}");
    exits(dir.path(), 0, &["stop", "back"]);
    assert_eq!(served.wait(), Some(0));
    let output = weft(dir.path(), &["cat", &members[1], &members[2], &members[3]]);
    assert!(output.status.success() && output.stdout == fixture.content(), "{output:?}");
}

/// The bitmaps must be current for the next reader, also on a new member with other data in its
/// area.
#[test]
fn an_array_with_a_bitmap_is_written_and_keeps_the_bitmap() {
    let fixture = Fixture::of("raid5-4-v11-bitmap");
    let dir = tempdir().unwrap();
    let members = fixture.unpack(dir.path());
    let metadata = |name: &str| {
        let image = std::fs::read(dir.path().join(name)).unwrap();
        Metadata::read(Sectors(image.len() as u64 / 512), |sector, len| {
            let at = sector.bytes().0 as usize;
            Ok(image[at..at + len].to_vec())
        })
        .unwrap()
    };
    let before: Vec<_> = members.iter().map(|name| metadata(name)).collect();
    let size = std::fs::metadata(dir.path().join(&members[0])).unwrap().len() as usize;
    std::fs::write(dir.path().join("new"), vec![0xaa; size]).unwrap();
    let mut arguments: Vec<&str> = members.iter().map(String::as_str).collect();
    let assembled = json(dir.path(), &[&["assemble", "--json"], &arguments[..]].concat());
    assert_eq!(assembled["states"], serde_json::json!([]), "{assembled}");
    arguments.extend(["--name", "bits"]);
    let served = Served::start(dir.path(), &arguments);
    for command in [["fail", "bits", &members[1]], ["remove", "bits", &members[1]]] {
        exits(dir.path(), 0, &command);
    }
    exits(dir.path(), 0, &["add", "bits", "new"]);
    exits(dir.path(), 0, &["wait", "bits"]);
    exits(dir.path(), 0, &["stop", "bits"]);
    assert_eq!(served.wait(), Some(0));
    let names = [&members[0], "new", &members[2], &members[3]];
    for (name, old) in names.into_iter().zip(&before) {
        let new = metadata(name);
        assert_eq!(new.superblock.own_role(), old.superblock.own_role());
        assert!(new.superblock.events() > old.superblock.events(), "{name}");
        assert!(new.superblock.features().contains(Features::BITMAP));
        let bitmap = new.logs.bitmap.unwrap().unwrap();
        assert!(matches!(bitmap.trust, Trust::Full), "{name}: {}", bitmap.trust);
        assert_eq!(bitmap.header.events, new.superblock.events(), "{name}");
        assert_eq!(bitmap.dirty_ranges().count(), 0, "{name}");
    }
    let output = weft(dir.path(), &["cat", "new", &members[0], &members[2]]);
    assert!(output.status.success() && output.stdout == fixture.content(), "{output:?}");
}

#[test]
fn a_superblock_in_foreign_byte_order_is_read_and_not_written() {
    let fixture = Fixture::of("raid5-4-v090");
    let dir = tempdir().unwrap();
    let members = fixture.unpack(dir.path());
    for member in &members {
        let path = dir.path().join(member);
        let mut image = std::fs::read(&path).unwrap();
        let size = Sectors(image.len() as u64 / 512);
        let at = Super090::position(size).unwrap().bytes().0 as usize;
        let mut superblock = Super090::parse(&image[at..], size).unwrap();
        superblock.order = ByteOrder::Big;
        image[at..at + 4096].copy_from_slice(&superblock.encode());
        std::fs::write(&path, image).unwrap();
    }
    let before = contents(dir.path());
    let mut arguments = vec!["cat"];
    arguments.extend(members[1..].iter().map(String::as_str));
    let output = weft(dir.path(), &arguments);
    assert!(output.status.success() && output.stdout == fixture.content(), "{output:?}");
    arguments[0] = "serve";
    let refused = exits(dir.path(), 3, &arguments).err;
    assert!(refused.contains("--update=byteorder"), "{refused}");
    assert_eq!(contents(dir.path()), before);
}

#[test]
fn examine_deep_finds_a_member_inside_of_something_and_names_it() {
    let fixture = Fixture::of("raid5-4x64k-ls");
    let dir = tempdir().unwrap();
    let members = fixture.unpack(dir.path());
    let mut disk = vec![0; 3 << 20];
    disk.extend(std::fs::read(dir.path().join(&members[1])).unwrap());
    disk.resize(disk.len() + (1 << 20), 0);
    std::fs::write(dir.path().join("disk.img"), &disk).unwrap();
    let text = exits(dir.path(), 1, &["examine", "--deep", "disk.img"]).out;
    assert!(text.contains("disk.img: 1 superblocks in all of it"), "{text}");
    assert!(text.contains("  sector 6152: version 1.2"), "{text}");
    let name = text.split("try ").nth(1).expect("a name to try").trim();
    assert_eq!(name, "disk.img@6144s");
    let output = weft(dir.path(), &["cat", &members[0], name, &members[2]]);
    assert!(output.status.success() && output.stdout == fixture.content(), "{output:?}");
    let usual = exits(dir.path(), 0, &["examine", "--deep", &members[0]]).out;
    assert!(usual.contains("where it is looked for"), "{usual}");
    let output = weft(dir.path(), &["examine", "--deep", "--json", "disk.img"]);
    let found: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(found["members"][0]["deep"][0]["member"], "disk.img@6144s", "{found}");
}

#[test]
fn examine_shows_what_it_can_of_a_newer_superblock() {
    let fixture = Fixture::of("raid5-4x64k-ls");
    let dir = tempdir().unwrap();
    let members = fixture.unpack(dir.path());
    let path = dir.path().join(&members[0]);
    let mut image = std::fs::read(&path).unwrap();
    image[4096 + 9] |= 0x40;
    let sum = weft_ondisk::csum_v1(&image[4096..8192]).unwrap();
    image[4096 + 216..4096 + 220].copy_from_slice(&sum.to_le_bytes());
    std::fs::write(&path, &image).unwrap();
    let text = exits(dir.path(), 1, &["examine", &members[0]]);
    assert!(text.out.contains("    Feature Map : 0x4000"), "{text:?}");
    assert!(text.out.contains("     Raid Level : raid5"), "{text:?}");
    assert!(text.err.contains("unknown features 0x4000"), "{text:?}");
    let refused = exits(dir.path(), 3, &["assemble", &members[0]]).err;
    assert!(refused.contains("unknown features 0x4000"), "{refused}");
}

#[test]
fn refusals_and_degraded_arrays_have_a_state_and_a_next_command() {
    let fixture = Fixture::of("raid5-4x64k-ls");
    let dir = tempdir().unwrap();
    let members = fixture.unpack(dir.path());
    let output = weft(dir.path(), &["assemble", "--json", &members[0], &members[1]]);
    assert_eq!(output.status.code(), Some(3));
    let refused: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(refused["state"], "too-few-members");
    assert!(refused["next"].as_str().unwrap().contains("weft examine --deep"), "{refused}");
    let three = [&members[0], &members[1], &members[2]].map(String::as_str);
    let detail = json(dir.path(), &[&["detail", "--json"], &three[..]].concat());
    assert_eq!(detail["states"][0]["state"], "degraded", "{detail}");
    let served = Served::start(dir.path(), &[&["--run", "--name", "three"], &three[..]].concat());
    let output = weft(dir.path(), &["status", "--json"]);
    assert_eq!(output.status.code(), Some(4));
    let status: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    let state = &status["servers"][0]["volumes"][0]["states"][0];
    assert_eq!(state["state"], "degraded", "{status}");
    assert!(state["next"].as_str().unwrap().contains("weft add"), "{status}");
    exits(dir.path(), 0, &["stop", "three"]);
    assert_eq!(served.wait(), Some(0));
}
