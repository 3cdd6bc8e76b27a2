//! Geometry by hand and by trial: arrays whose superblocks are gone or were overwritten by a
//! mistaken create are found by `weft rescue --try`, and read by the line that it prints.

mod common;

use std::path::Path;
use std::process::Command;

use common::command;
use common::disks::fill;
use tempfile::tempdir;
use weft_units::rng::Rng;

/// Levels, layouts and numbers of disks that are drawn.
const LEVELS: [(&str, &str, usize); 6] = [
    ("0", "original", 3),
    ("5", "left-symmetric", 4),
    ("5", "right-asymmetric", 8),
    ("6", "left-symmetric", 6),
    ("10", "n2", 4),
    ("5", "left-asymmetric", 5),
];

fn run(dir: &Path, words: &[String]) -> (bool, String) {
    let output = command(dir, words).output().unwrap();
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    (output.status.success(), text(&output.stdout) + &text(&output.stderr))
}

fn words(text: &str) -> Vec<String> {
    text.split(' ').map(str::to_owned).collect()
}

fn below(rng: &mut Rng, bound: usize) -> usize {
    usize::try_from(rng.below(bound as u64)).unwrap()
}

fn one_of<'a, T>(rng: &mut Rng, all: &'a [T]) -> &'a T {
    &all[below(rng, all.len())]
}

fn random(rng: &mut Rng, len: u64) -> Vec<u8> {
    (0..len).map(|_| u8::try_from(rng.below(256)).unwrap()).collect()
}

/// Draws an array with an ext4, destroys its superblocks, and says whether the best geometry gives
/// the files.
fn is_found(rng: &mut Rng) -> Result<(), String> {
    let dir = tempdir().unwrap();
    let at = dir.path();
    std::fs::create_dir(at.join("tree")).unwrap();
    for number in 0..60 {
        let len = rng.below(60_000) + 1;
        std::fs::write(at.join(format!("tree/{number}")), random(rng, len)).unwrap();
    }
    let made = Command::new("sh")
        .args(["-c", "truncate -s 40M fs && mke2fs -q -t ext4 -d tree fs"])
        .current_dir(at)
        .status();
    assert!(made.unwrap().success());
    let (level, layout, slots) = *one_of(rng, &LEVELS);
    let chunk = one_of(rng, &["16K", "64K", "128K"]);
    let mut disks: Vec<String> = (0..slots).map(|slot| format!("d{slot}")).collect();
    let create = |disks: &[String], chunk: &str, more: &str| {
        words(&format!(
            "create --level {level} --layout {layout} --chunk {chunk} -n {slots} {more} {}",
            disks.join(" ")
        ))
    };
    let (done, text) = run(at, &create(&disks, chunk, "--member-size 32M"));
    assert!(done, "{text}");
    let members: Vec<&str> = disks.iter().map(String::as_str).collect();
    fill(at, &members, &std::fs::read(at.join("fs")).unwrap());
    for index in (1..disks.len()).rev() {
        disks.swap(index, below(rng, index + 1));
    }
    if below(rng, 2) == 0 {
        // A create by mistake, with the disks in another order.
        let (done, text) = run(at, &create(&disks, "256K", "--force --assume-clean"));
        assert!(done, "{text}");
    } else {
        let file = |disk: &String| std::fs::OpenOptions::new().write(true).open(at.join(disk));
        for disk in &disks {
            std::os::unix::fs::FileExt::write_all_at(&file(disk).unwrap(), &[0; 8192], 0).unwrap();
        }
    }
    if level == "5" && below(rng, 2) == 0 {
        disks[0] = "missing".to_owned();
    }
    let sums = || {
        let read = |disk: &String| std::fs::read(at.join(disk)).unwrap_or_default();
        disks.iter().map(read).collect::<Vec<_>>()
    };
    let before = sums();
    let case = format!("{level} {layout} {chunk} {disks:?}");
    let (_, text) = run(at, &words(&format!("rescue --try {}", disks.join(" "))));
    let next = text.lines().find_map(|line| line.strip_prefix("next: weft "));
    let next = next.and_then(|line| line.strip_suffix(" --list"));
    let next = next.ok_or_else(|| format!("{case}: {text}"))?;
    let (_, said) = run(at, &words(&format!("{next} --to out")));
    assert!(before == sums(), "{case}: a disk was written");
    let mut same = Command::new("diff");
    same.args(["-r", "-x", "lost+found", "tree", "out/built"]);
    same.current_dir(at);
    if same.status().unwrap().success() { Ok(()) } else { Err(format!("{case}: {text}{said}")) }
}

/// Draws six arrays, of which each must be found; with `WEFT_TRIALS=100` so many, of which 95 must.
#[test]
fn the_geometry_of_drawn_arrays_is_found_first_in_95_of_100() {
    let count: u64 =
        std::env::var("WEFT_TRIALS").ok().and_then(|text| text.parse().ok()).unwrap_or(6);
    let mut rng = Rng::new(27);
    let results: Vec<_> = (0..count).map(|_| is_found(&mut rng)).collect();
    let wrong: Vec<&String> = results.iter().filter_map(|it| it.as_ref().err()).collect();
    eprintln!("{} of {count} found", count - wrong.len() as u64);
    assert!(wrong.len() as u64 * 20 <= count, "{wrong:#?}");
}

#[test]
fn disks_of_random_bytes_have_no_geometry() {
    let dir = tempdir().unwrap();
    let mut rng = Rng::new(1);
    for name in ["a", "b", "c"] {
        std::fs::write(dir.path().join(name), random(&mut rng, 1 << 20)).unwrap();
    }
    let (done, text) = run(dir.path(), &words("rescue --try a b c"));
    assert!(!done && text.contains("found no geometry under which"), "{text}");
}

#[test]
fn a_geometry_that_cannot_be_is_refused_with_what_it_lacks() {
    let dir = tempdir().unwrap();
    for name in ["a", "b", "c"] {
        std::fs::write(dir.path().join(name), vec![7; 1 << 20]).unwrap();
    }
    for (line, says) in [
        ("build --level 5 a b c", "--chunk: found none, expected the chunk of the raid5"),
        ("build --level 5 -c 64K -n 4 a b c", "members: found 3, expected 4 (--raid-devices)"),
        ("build --level 5 -c 64K --layout n2 a b c", "--layout: found n2, expected a layout of "),
        ("build --level 9 a b", "--level: found 9, expected "),
        ("build --level 1 --data-offset 2M a b", "found 1 MiB, expected more than --data-offset"),
        ("build --level 1 --size 2M a b", "--size: found 2 MiB, expected at most 1 MiB"),
        ("build --level 1 missing missing", "found only missing ones"),
        ("rescue --try a", "--try: found 1 disks, expected 2 to 16"),
    ] {
        let (done, text) = run(dir.path(), &words(line));
        assert!(!done && text.contains(says), "{line}: {text}");
    }
    // Too few members for the level, and never a byte written.
    let (done, text) = run(dir.path(), &words("build --level 5 -c 64K --list a missing missing"));
    assert!(!done && text.contains("missing members: found 2, expected at most 1"), "{text}");
    for name in ["a", "b", "c"] {
        assert_eq!(std::fs::read(dir.path().join(name)).unwrap(), vec![7; 1 << 20]);
    }
}

/// An array over an overlay can be written, and takes no member: a superblock would have to record
/// it. Its disks stay as they are.
#[test]
fn an_array_by_hand_is_written_in_its_overlay_only_and_takes_no_members() {
    let dir = tempdir().unwrap();
    let at = dir.path();
    for name in ["a", "b", "new"] {
        std::fs::write(at.join(name), vec![7; 4 << 20]).unwrap();
    }
    std::fs::write(
        at.join("inside"),
        "\"$WEFT\" add built new && exit 9\n\"$WEFT\" set built bitmap=internal && exit 8\ntrue\n",
    )
    .unwrap();
    let mut line = words("build --level 1 --overlay changes a missing b --exec");
    line.push("sh ./inside".to_owned());
    let mut command = command(at, &line);
    let weft = command.get_program().to_owned();
    let output = command.env("WEFT", weft).output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout) + String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{text}");
    let refused = "found an array with its geometry given by hand, expected one with superblocks";
    assert_eq!(text.matches(refused).count(), 2, "{text}");
    for name in ["a", "b", "new"] {
        assert_eq!(std::fs::read(at.join(name)).unwrap(), vec![7; 4 << 20], "{name}");
    }
}
