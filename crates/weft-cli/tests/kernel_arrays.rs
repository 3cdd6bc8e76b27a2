//! Arrays that the kernel wrote: read without any member that the level can do without, refused
//! without one more.

mod common;

use std::path::Path;

use common::{Fixture, contents, exits, weft};
use tempfile::tempdir;

/// What `weft cat` must do with a set of members.
#[derive(Debug, PartialEq, Eq)]
enum Expected {
    /// The content that the kernel read back.
    Content,
    /// Something else, with success: nobody can know that a block was overwritten silently.
    OtherContent,
    /// Exit status 3, nothing on standard output, this on standard error.
    Refused(&'static str),
}

use Expected::{Content, OtherContent, Refused};

/// Members whose images must not be believed, or are not needed.
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
    let needed = absent.iter().filter(|member| !useless.contains(member)).count();
    match fixture.scenario.as_str() {
        "mismatch" if absent == [1] => Content,
        "mismatch" => OtherContent,
        "plain" | "spare" | "badblock" if needed <= fixture.parities() => Content,
        "stale1" | "stale2" | "failedmark" if needed == 0 => Content,
        // Slot 1 is good below the recovery offset, and not there at all without its new member.
        "rebuild" if absent.iter().all(|member| [1, 4].contains(member)) => Content,
        "unclean" | "resync" if needed == 0 => Content,
        "unclean" | "resync" if needed <= fixture.parities() => Refused("--force-dirty"),
        "journal" => Refused("journal"),
        _ => Refused("need "),
    }
}

/// All sets of at most so many of the members.
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
        for absent in sets(members.len(), fixture.parities() + 1) {
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
    let mut read: Vec<&str> = [&RAID4_RAID5[..], &RAID5_STATES, &RAID6_A, &RAID6_B].concat();
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

/// The lines of mdadm --examine about each member; what follows is of its bitmap.
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
            // The names of devices are of the machine that ran mdadm.
            let name_of = |line: &&str| line.find("   /dev/").unwrap_or(line.len());
            let expected: Vec<&str> = expected.iter().map(|line| &line[..name_of(line)]).collect();
            assert_eq!(lines, expected, "{name} {member}");
        }
    }
}
