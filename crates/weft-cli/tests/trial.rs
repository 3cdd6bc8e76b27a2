//! Geometry by hand and by trial: arrays with superblocks that are gone or were overwritten by a
//! mistaken create are found by `weft rescue --try`, and read by the line that it prints.

mod common;
#[path = "../../weft-files/tests/common/volumes.rs"]
#[allow(dead_code, reason = "each test uses a part of it")]
mod volumes;

use std::path::Path;
use std::process::Command;

use common::disks::{fill, fill_parts};
use common::{bytes_of, command};
use tempfile::tempdir;
use volumes::{EXTENT, FIRST, group, physical, uuid, volume};
use weft_units::rng::Rng;

/// Levels, layouts, numbers of disks and how many of them may be missing.
const LEVELS: [(&str, &str, usize, usize); 12] = [
    ("0", "original", 3, 0),
    ("0", "original", 8, 0),
    ("1", "", 2, 1),
    ("5", "left-symmetric", 3, 1),
    ("5", "left-symmetric", 4, 1),
    ("5", "right-asymmetric", 8, 1),
    ("5", "left-asymmetric", 5, 1),
    ("6", "left-symmetric", 5, 1),
    ("6", "left-symmetric", 8, 1),
    ("6", "right-asymmetric", 6, 1),
    ("10", "n2", 4, 1),
    ("10", "n2", 6, 1),
];

/// Content of an array.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Inside {
    Btrfs,
    Ext4,
    /// ext4 in the second volume of a group.
    Lvm,
    Random,
    Xfs,
}

fn run(dir: &Path, words: &[String]) -> (bool, String) {
    let output = command(dir, words).output().unwrap();
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    (output.status.success(), text(&output.stdout) + &text(&output.stderr))
}

fn words(text: &str) -> Vec<String> {
    text.split_whitespace().map(str::to_owned).collect()
}

fn random(rng: &mut Rng, len: u64) -> Vec<u8> {
    bytes_of((0..len.div_ceil(8)).map(|_| rng.next_u64()))
}

/// Runs a line of a shell with the tools of file systems; false for a skip.
fn made(at: &Path, line: &str) -> bool {
    let path = format!("{}:/usr/sbin:/sbin", std::env::var("PATH").unwrap());
    let program = line.split_whitespace().next().unwrap();
    let output = Command::new("sh").args(["-c", line]).current_dir(at).env("PATH", path).output();
    let output = output.unwrap();
    if output.status.code() == Some(127) {
        weft_testing::skip(&format!("{program}: not found"));
        return false;
    }
    assert!(output.status.success(), "{line}: {output:?}");
    true
}

/// Content with the files of the folder `tree`, which this makes; `None` for a skip.
fn content(rng: &mut Rng, at: &Path, inside: Inside) -> Option<Vec<u8>> {
    std::fs::create_dir(at.join("tree")).unwrap();
    let mut list = String::new();
    for number in 0..60 {
        let len = rng.below(60_000) + 1;
        std::fs::write(at.join(format!("tree/{number}")), random(rng, len)).unwrap();
        list += &format!("{number} ---644 0 0 tree/{number}\n");
    }
    let (mib, line) = match inside {
        Inside::Random => return Some(random(rng, 24 << 20)),
        Inside::Ext4 | Inside::Lvm => (40, "mke2fs -q -F -t ext4 -d tree fs"),
        Inside::Btrfs => (128, "mkfs.btrfs -q --rootdir tree fs"),
        // Its usual form for small devices is refused by recent releases of mkfs.xfs.
        Inside::Xfs => (320, "mkfs.xfs -q -p list fs"),
    };
    std::fs::write(at.join("list"), format!("/\n0 0\nd--755 0 0\n{list}$\n")).unwrap();
    std::fs::File::create(at.join("fs")).unwrap().set_len(mib << 20).unwrap();
    if !made(at, line) {
        return None;
    }
    let image = std::fs::read(at.join("fs")).unwrap();
    std::fs::remove_file(at.join("fs")).unwrap();
    if inside != Inside::Lvm {
        return Some(image);
    }
    let extents = u32::try_from(image.len() / EXTENT).unwrap();
    let first = u32::try_from(1 + rng.below(40)).unwrap();
    let linear = |first: u32| format!("stripe_count = 1\nstripes = [\"pv0\", {first}]");
    let text = group(
        3,
        &(volume("reserved", &[(0, 1, "striped", &linear(0))])
            + &volume("data", &[(0, extents, "striped", &linear(first))])),
    );
    let mut device = physical(&uuid('a'), text.as_bytes(), 2048, (extents + first) as usize);
    let start = FIRST + first as usize * EXTENT;
    device[start..start + image.len()].copy_from_slice(&image);
    Some(device)
}

/// Geometry and loss of a drawn array.
#[derive(Debug)]
struct Drawn {
    inside: Inside,
    level: &'static str,
    layout: &'static str,
    chunk: &'static str,
    /// Version of the superblocks.
    version: &'static str,
    /// Whether the disks are so large that mdadm's data offset is its largest one.
    is_large: bool,
    loss: u64,
    /// Names in the order of the slots.
    slots: Vec<String>,
    /// Arguments of `rescue --try`.
    disks: Vec<String>,
}

impl Drawn {
    fn new(rng: &mut Rng, inside: Inside) -> Self {
        let (level, layout, count, missing_max) = rng.pick(&LEVELS);
        let slots: Vec<String> = (0..count).map(|slot| format!("d{slot}")).collect();
        let mut disks = slots.clone();
        rng.shuffle(&mut disks);
        if missing_max > 0 && rng.below(2) == 0 {
            disks[0] = "missing".to_owned();
        }
        Self {
            inside,
            level,
            layout,
            chunk: rng.pick(&["4K", "16K", "64K", "128K", "512K"]),
            version: rng.pick(&["1.2", "1.2", "1.2", "1.0", "1.0"]),
            is_large: rng.below(4) == 0,
            loss: rng.below(3),
            slots,
            disks,
        }
    }

    /// Options of `create` and `build` that give the geometry.
    fn shape(&self, chunk: &str) -> String {
        match self.level {
            "1" => "--level 1".to_owned(),
            level => format!("--level {level} --layout {} --chunk {chunk}", self.layout),
        }
    }

    /// Makes the array with this content.
    fn make(&self, at: &Path, content: &[u8]) {
        let (count, data) = match (self.level, self.slots.len()) {
            ("0", count) => (count, count),
            ("1", count) => (count, 1),
            ("5", count) => (count, count - 1),
            ("6", count) => (count, count - 2),
            (_, count) => (count, count / 2),
        };
        let mib = if self.is_large { 140 << 10 } else { (content.len() >> 20) / data + 6 };
        let (shape, version, names) = (self.shape(self.chunk), self.version, self.slots.join(" "));
        let line = format!(
            "create {shape} -e {version} -n {count} --assume-clean --member-size {mib}M {names}"
        );
        let (done, text) = run(at, &words(&line));
        assert!(done, "{text}");
        let members: Vec<&str> = self.slots.iter().map(String::as_str).collect();
        fill(at, &members, content);
    }

    /// Destroys the superblocks.
    fn lose(&self, rng: &mut Rng, at: &Path) {
        let mut names = self.slots.clone();
        rng.shuffle(&mut names);
        // A create by mistake, with the disks in another order, and for some not the level. With
        // its own superblocks at another place, it would overwrite data.
        if self.loss > 0 {
            let level = if self.loss == 1 { self.shape("256K") } else { "--level 0 -c 32K".into() };
            let (version, names) = (self.version, names.join(" "));
            let count = self.slots.len();
            let assume = if level.contains("--level 0") { "" } else { "--assume-clean" };
            let line = format!("create {level} -e {version} -n {count} --force {assume} {names}");
            let (done, text) = run(at, &words(&line));
            assert!(done, "{text}");
        }
        // Zeros, on all or on one of them.
        let zeroed = if self.loss > 0 { &names[..1] } else { &names[..] };
        for name in zeroed {
            let file = std::fs::File::options().write(true).open(at.join(name)).unwrap();
            let end = file.metadata().unwrap().len();
            let (from, len) = match self.version {
                "1.2" => (4096, 4096),
                _ => (end - (128 << 10), 128 << 10),
            };
            std::os::unix::fs::FileExt::write_all_at(&file, &vec![0; len], from).unwrap();
        }
    }

    /// Whether the words of a line are those of this geometry. Mirrors may be exchanged.
    fn is_in(&self, next: &str) -> bool {
        let all = words(next);
        let shape = self.shape(self.chunk).replace("--level ", "--level raid");
        let own = words(&shape.replace(" n2 ", " near=2 "));
        let names = &all[all.len() - self.slots.len()..];
        let right = |index: usize, name: &String| match self.level {
            "1" => true,
            "10" => self.slots[index / 2 * 2..index / 2 * 2 + 2].contains(name),
            _ => self.slots[index] == *name,
        };
        own.iter().all(|word| all.contains(word))
            && names.iter().enumerate().all(|(it, name)| name == "missing" || right(it, name))
    }
}

/// Draws an array with a file system, destroys its superblocks, and says whether the best geometry
/// is that of the array, or gives the files.
fn is_found(rng: &mut Rng, inside: Inside) -> Result<(), String> {
    let dir = tempdir().unwrap();
    let at = dir.path();
    let Some(content) = content(rng, at, inside) else { return Ok(()) };
    let drawn = Drawn::new(rng, inside);
    drawn.make(at, &content);
    drawn.lose(rng, at);
    let times = || {
        let time = |name: &String| std::fs::metadata(at.join(name)).unwrap().modified().unwrap();
        drawn.slots.iter().map(time).collect::<Vec<_>>()
    };
    let before = times();
    let (done, text) = run(at, &words(&format!("rescue --try {}", drawn.disks.join(" "))));
    let next = text.lines().find_map(|line| line.strip_prefix("next: weft "));
    let next = next.and_then(|line| line.strip_suffix(" --list"));
    if drawn.inside == Inside::Random {
        let is_none = !done && next.is_none() && text.contains("found no geometry under which");
        return if is_none { Ok(()) } else { Err(format!("{drawn:?}: {text}")) };
    }
    let next = next.ok_or_else(|| format!("{drawn:?}: {text}"))?;
    // weft reads no files out of XFS.
    if drawn.inside == Inside::Xfs {
        assert!(before == times(), "{drawn:?}: a disk was written");
        return if drawn.is_in(next) { Ok(()) } else { Err(format!("{drawn:?}: {text}")) };
    }
    let (_, said) = run(at, &words(&format!("{next} --to out")));
    assert!(before == times(), "{drawn:?}: a disk was written");
    let place = if drawn.inside == Inside::Lvm { "out/vg1000-data" } else { "out/built" };
    let mut same = Command::new("diff");
    same.args(["-r", "-q", "-x", "lost+found", "tree", place]);
    same.current_dir(at);
    if same.status().unwrap().success() { Ok(()) } else { Err(format!("{drawn:?}: {text}{said}")) }
}

fn number_of(variable: &str) -> Option<u64> {
    std::env::var(variable).ok().and_then(|text| text.parse().ok())
}

/// Draws an array of each kind, and finds the geometry of all of them. With `WEFT_TRIALS=100`, 100
/// arrays are drawn, and at least 95 must be found. `WEFT_TRIALS_SEED` draws others.
#[test]
fn the_geometry_of_drawn_arrays_is_found_first_in_95_of_100() {
    let count = number_of("WEFT_TRIALS").unwrap_or(4);
    let mut rng = Rng::new(number_of("WEFT_TRIALS_SEED").unwrap_or(27));
    let kinds = [Inside::Ext4, Inside::Btrfs, Inside::Lvm, Inside::Xfs];
    let inside = |number: u64| kinds[usize::try_from(number % 4).unwrap()];
    let results: Vec<_> =
        (0..count).map(|number| is_found(&mut rng.fork(), inside(number))).collect();
    let wrong: Vec<&String> = results.iter().filter_map(|it| it.as_ref().err()).collect();
    eprintln!("{} of {count} found", count - wrong.len() as u64);
    wrong.iter().for_each(|it| eprintln!("{it}"));
    assert!(wrong.len() as u64 * 20 <= count, "{} were not found first", wrong.len());
}

#[test]
fn drawn_arrays_of_random_bytes_have_no_geometry() {
    let mut rng = Rng::new(number_of("WEFT_TRIALS_SEED").unwrap_or(28));
    for _ in 0..3 {
        is_found(&mut rng.fork(), Inside::Random).unwrap();
    }
}

/// Parts of a sparse file that are no holes, of at most 1 MiB.
fn parts(file: &std::fs::File) -> Vec<(u64, Vec<u8>)> {
    use rustix::fs::{SeekFrom, seek};
    let mut parts = Vec::new();
    let mut at = 0;
    while let Ok(start) = seek(file, SeekFrom::Data(at)) {
        let end = seek(file, SeekFrom::Hole(start)).unwrap();
        at = end.min(start + (1 << 20));
        let mut part = vec![0; usize::try_from(at - start).unwrap()];
        std::os::unix::fs::FileExt::read_exact_at(file, &mut part, start).unwrap();
        if part.iter().any(|byte| *byte != 0) {
            parts.push((start, part));
        }
    }
    parts
}

/// Eight disks of 4 TB, in sparse files: what is read of each, and the time, are printed.
#[test]
#[ignore = "takes minutes, and a file system with files of 15 TiB"]
fn eight_disks_of_4_tb_take_1_gib_of_reads_and_5_minutes_at_most() {
    let levels = [("6", "left-symmetric"), ("5", "left-symmetric"), ("10", "n2")];
    let lines = ["mke2fs -q -F -t ext4 -E nodiscard -d tree fs", "mkfs.btrfs -q -K -r tree fs"];
    for ((level, layout), line) in levels.iter().flat_map(|it| lines.map(|line| (*it, line))) {
        let dir = tempdir().unwrap();
        let at = dir.path();
        let mut rng = Rng::new(4);
        std::fs::create_dir(at.join("tree")).unwrap();
        for number in 0..400 {
            let len = rng.below(300_000);
            std::fs::write(at.join(format!("tree/{number}")), random(&mut rng, len)).unwrap();
        }
        let mut options = std::fs::File::options();
        let fs = options.read(true).write(true).create_new(true).open(at.join("fs")).unwrap();
        fs.set_len(14 << 40).unwrap();
        if !made(at, line) {
            return;
        }
        let slots: Vec<String> = (0..8).map(|slot| format!("d{slot}")).collect();
        let all = slots.join(" ");
        let shape = format!("--level {level} --layout {layout}");
        let create = format!("create {shape} -n 8 --assume-clean --member-size 4000G {all}");
        let (done, text) = run(at, &words(&create));
        assert!(done, "{text}");
        let members: Vec<&str> = slots.iter().map(String::as_str).collect();
        fill_parts(at, &members, parts(&fs).into_iter());
        for name in &slots {
            let file = std::fs::File::options().write(true).open(at.join(name)).unwrap();
            std::os::unix::fs::FileExt::write_all_at(&file, &[0; 4096], 4096).unwrap();
        }
        let start = std::time::Instant::now();
        let (done, text) = run(at, &words("rescue --try --json missing d5 d2 d7 d1 d6 d3 d4"));
        assert!(done, "{text}");
        let said: serde_json::Value = serde_json::from_str(&text).unwrap();
        let read = said["read_bytes"].as_u64().unwrap() >> 20;
        let best = said["geometries"][0]["command"].as_str().unwrap();
        let seconds = start.elapsed().as_secs();
        eprintln!("raid{level} {line}: {read} MiB of all disks, {seconds} s: {best}");
        assert!(read <= 7 << 10 && seconds < 300, "{read} MiB, {seconds} s");
        assert!(best.contains(&format!("--level raid{level} --chunk 512K ")), "{text}");
        assert!(best.ends_with("missing d1 d2 d3 d4 d5 d6 d7") || level == "10", "{text}");
    }
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
