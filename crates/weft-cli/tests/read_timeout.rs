//! `--read-timeout`: disks with reads that never end, through a file system (FUSE) that lets them
//! hang.

mod common;

use std::path::{Path, PathBuf};

use common::disks::{Files, files, fill, image};
use common::faulty::{Faulty, random};
use common::{exits, weft};
use serde_json::Value;

/// An array with ext4 on it, below a folder where its members can hang.
struct Disks {
    faulty: Faulty,
    members: &'static [&'static str],
    content: Vec<u8>,
    files: Files,
}

impl Disks {
    /// An array of these members; `None` for a skip.
    fn create(level: &str, members: &'static [&'static str]) -> Option<Self> {
        let faulty = Faulty::mount(None)?;
        let under = faulty.path().join("under");
        let files = image(&under, 16, "data", |from| {
            std::fs::create_dir(from).unwrap();
            std::fs::write(from.join("one"), random(1_000_001)).unwrap();
            std::fs::write(from.join("two"), random(1_000_002)).unwrap();
        })?;
        let content = std::fs::read(under.join("image")).unwrap();
        let create = ["create", level, "--assume-clean", "--member-size=20M", "--name=vol"];
        let count = format!("-n{}", members.len());
        exits(&under, 0, &[&create[..], &[count.as_str()], members].concat());
        fill(&under, members, &content);
        Some(Self { faulty, members, content, files })
    }

    fn path(&self) -> &Path {
        self.faulty.path()
    }

    /// First byte on the first member of a sector that is in the middle of the first file.
    fn sector(&self) -> u64 {
        let member = std::fs::read(self.path().join("under").join(self.members[0])).unwrap();
        let (name, content) = &self.files[0];
        assert_eq!(name, &PathBuf::from("one"));
        let sectors: Vec<&[u8]> = content.chunks_exact(512).skip(600).collect();
        let found = member.chunks_exact(512).position(|sector| sectors.contains(&sector));
        found.expect("a part of each file is on each member") as u64 * 512
    }

    /// Runs a command on the disks, with a limit of a second. Returns its exit status and output.
    fn run(&self, words: &[&str]) -> (Option<i32>, Vec<u8>, String) {
        let mut all: Vec<String> = words.iter().map(|&word| word.to_owned()).collect();
        all.extend(["--read-timeout".to_owned(), "1".to_owned()]);
        all.extend(self.members.iter().map(|name| format!("mnt/{name}")));
        let output = weft(self.path(), &all);
        let says = String::from_utf8_lossy(&output.stderr).into_owned();
        (output.status.code(), output.stdout, says)
    }

    /// Copies the files out. Returns the exit status, the report, and the files.
    fn rescue(&self) -> (Option<i32>, Value, Files) {
        let (status, out, says) = self.run(&["rescue", "--json", "--to", "files"]);
        let report = serde_json::from_slice(&out).unwrap_or_else(|error| panic!("{error}: {says}"));
        (status, report, files(&self.path().join("files/vol")))
    }
}

/// Disks with reads that timed out, by the report of `rescue`.
fn timed_out(report: &Value) -> Vec<&str> {
    let disks = report["timed_out"].as_array().unwrap();
    disks.iter().map(|disk| disk["disk"].as_str().unwrap()).collect()
}

#[test]
fn cat_reads_the_copy_of_what_hangs() {
    let Some(disks) = Disks::create("-l1", &["a", "b"]) else { return };
    disks.faulty.hang("a", &[(disks.sector(), 512)]);
    let (status, out, says) = disks.run(&["cat"]);
    assert_eq!(status, Some(0), "{says}");
    assert!(out.starts_with(&disks.content), "{says}");
    assert!(says.contains("mnt/a: read of ") && says.contains("no answer in 1 s"), "{says}");
    assert!(!says.contains("mnt/b"), "{says}");
}

#[test]
fn a_disk_that_never_answers_is_left_out_and_the_command_ends() {
    let Some(disks) = Disks::create("-l1", &["a", "b"]) else { return };
    disks.faulty.fault("a", "read hang");
    let (status, out, says) = disks.run(&["cat"]);
    assert_eq!(status, Some(0), "{says}");
    assert!(out.starts_with(&disks.content), "{says}");
    assert!(says.contains("mnt/a: not used: "), "{says}");
}

#[test]
fn a_disk_with_eight_places_that_hang_is_not_read_any_more() {
    // No other disk has the strips of this one, so that they are asked for.
    let Some(disks) = Disks::create("-l5", &["a", "b", "c"]) else { return };
    // All but its superblock.
    disks.faulty.hang("a", &[(1 << 20, 19 << 20)]);
    let (status, out, says) = disks.run(&["cat"]);
    assert_eq!(status, Some(0), "{says}");
    assert!(out.starts_with(&disks.content), "{says}");
    assert_eq!(says.matches("no answer in 1 s; taken for unreadable").count(), 8, "{says}");
    assert_eq!(says.matches("it is not read any more").count(), 1, "{says}");
}

#[test]
fn ls_and_cp_take_the_other_copy_of_what_hangs() {
    let Some(disks) = Disks::create("-l1", &["a", "b"]) else { return };
    disks.faulty.hang("a", &[(disks.sector(), 512)]);
    let (status, out, says) = disks.run(&["ls", "-R"]);
    assert_eq!(status, Some(0), "{says}");
    let out = String::from_utf8_lossy(&out).into_owned();
    assert!(out.contains("one") && out.contains("two"), "{out}");
    let words = ["cp", "--json", "--read-timeout=1", "mnt/a", "mnt/b", ":vol/one", "."];
    let output = weft(disks.path(), &words);
    let says = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(0), "{says}");
    assert!(says.contains("mnt/a: read of ") && says.contains("no answer in 1 s"), "{says}");
    assert_eq!(timed_out(&serde_json::from_slice(&output.stdout).unwrap()), ["mnt/a"], "{says}");
    let (name, content) = &disks.files[0];
    assert!(std::fs::read(disks.path().join(name)).unwrap() == *content);
}

#[test]
fn reads_of_a_running_volume_have_no_time_limit() {
    let dir = tempfile::tempdir().unwrap();
    for words in [&["ls", "--read-timeout=1", "vol"][..], &["cp", "--read-timeout=1", "vol:x", "."]]
    {
        let says = exits(dir.path(), 2, words).err;
        assert!(says.contains("--read-timeout: found vol, which is not a disk"), "{says}");
    }
}

#[test]
fn rescue_gives_every_file_and_names_the_disk_that_hangs() {
    for (level, members) in [("-l1", &["a", "b"][..]), ("-l5", &["a", "b", "c"])] {
        let Some(disks) = Disks::create(level, members) else { return };
        let sector = disks.sector();
        disks.faulty.hang("a", &[(sector, 512)]);
        let (status, report, copied) = disks.rescue();
        assert_eq!((status, &report["complete"]), (Some(0), &true.into()), "{level}: {report}");
        assert!(copied == disks.files, "{level}");
        assert_eq!(timed_out(&report), ["mnt/a"], "{level}: {report}");
        let range = &report["timed_out"][0]["ranges"][0];
        let (start, len) = (range["start"].as_u64().unwrap(), range["length"].as_u64().unwrap());
        assert!((start..start + len).contains(&sector), "{level}: {report}");
    }
}

/// The counterpart: no other disk has the data.
#[test]
fn what_hangs_on_every_disk_is_reported_with_its_file() {
    for (level, members) in [("-l1", &["a", "b"][..]), ("-l5", &["a", "b", "c"])] {
        let Some(disks) = Disks::create(level, members) else { return };
        let sector = disks.sector();
        disks.faulty.hang("a", &[(sector, 512)]);
        disks.faulty.hang("b", &[(sector, 512)]);
        let (status, report, copied) = disks.rescue();
        assert_eq!((status, &report["complete"]), (Some(1), &false.into()), "{level}: {report}");
        assert_eq!(timed_out(&report), ["mnt/a", "mnt/b"], "{level}: {report}");
        let damaged = &report["places"][0]["copied"]["damaged"];
        assert_eq!(damaged.as_array().unwrap().len(), 1, "{level}: {report}");
        let path = damaged[0]["path"].as_str().unwrap();
        let is_hit = |name: &Path| Path::new(path).ends_with(name);
        for ((name, found), (_, expected)) in copied.iter().zip(&disks.files) {
            let differ = found.iter().zip(expected).filter(|(a, b)| a != b).count();
            match is_hit(name) {
                true => assert!((1..=4096).contains(&differ), "{level}: {differ} of {path}"),
                false => assert_eq!(differ, 0, "{level}: {}", name.display()),
            }
        }
    }
}

#[test]
fn what_is_written_has_no_time_limit() {
    let Some(disks) = Disks::create("-l1", &["a", "b"]) else { return };
    let (status, _, says) = disks.run(&["serve", "--exec=true"]);
    assert_eq!(status, Some(2), "{says}");
    assert!(says.contains("--read-timeout: found 1 s for disks that are written"), "{says}");
    disks.faulty.hang("a", &[(disks.sector(), 512)]);
    for words in [&["serve", "--read-only"][..], &["serve", "--overlay", "changes"]] {
        let (status, _, says) = disks.run(&[words, &["--exec=true", "--name=t"]].concat());
        assert_eq!(status, Some(0), "{words:?}: {says}");
    }
}
