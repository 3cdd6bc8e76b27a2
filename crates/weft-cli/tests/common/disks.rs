//! Disks with files on them: an ext4 image, half of a RAID 1 around it, sectors that are lost.

use std::path::{Path, PathBuf};
use std::process::Command;

use tempfile::{TempDir, tempdir};
use weft_nbd::Op;

use super::client::Client;
use super::{Served, exits};

/// Paths below a folder, with contents.
pub(crate) type Files = Vec<(PathBuf, Vec<u8>)>;

/// Bytes that do not repeat soon.
pub(crate) fn bytes(seed: usize, len: usize) -> Vec<u8> {
    let byte = |at: usize| (at * 31 + at / 251 * 7 + at / 65_536 * seed) % 255 + 1;
    (0..len).map(|at| u8::try_from(byte(at)).unwrap()).collect()
}

/// Files below a folder, with their contents.
pub(crate) fn files(at: &Path) -> Files {
    let (mut all, mut waiting) = (Vec::new(), vec![at.to_owned()]);
    while let Some(folder) = waiting.pop() {
        for entry in std::fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            match path.is_dir() {
                true if path.ends_with("lost+found") => {}
                true => waiting.push(path),
                false => {
                    let name = path.strip_prefix(at).unwrap().to_owned();
                    all.push((name, std::fs::read(&path).unwrap()));
                }
            }
        }
    }
    all.sort();
    all
}

/// An ext4 image of `mib` MiB with files and a label, and these files. `None` for a skip.
pub(crate) fn image(dir: &Path, mib: u64, label: &str, make: fn(&Path)) -> Option<Files> {
    let from = dir.join("from");
    make(&from);
    let at = dir.join("image");
    std::fs::File::create(&at).unwrap().set_len(mib << 20).unwrap();
    let path = format!("{}:/usr/sbin:/sbin", std::env::var("PATH").unwrap());
    let mut command = Command::new("mke2fs");
    command.args(["-q", "-F", "-t", "ext4", "-L", label, "-d"]).args([&from, &at]);
    match command.env("PATH", path).status() {
        Ok(status) => assert!(status.success()),
        Err(error) => {
            weft_testing::skip(&format!("mke2fs: {error}"));
            return None;
        }
    }
    Some(files(&from))
}

/// Makes the image the content of a RAID 1 with one of its two members left: `a.img`.
pub(crate) fn into_raid1(dir: &Path) {
    let half = std::fs::read(dir.join("image")).unwrap();
    for name in ["a.img", "b.img"] {
        std::fs::write(dir.join(name), &half).unwrap();
        let file = std::fs::File::options().write(true).open(dir.join(name)).unwrap();
        file.set_len(half.len() as u64 + (2 << 20)).unwrap();
    }
    let create = ["create", "-l1", "-n2", "-e1.0", "--assume-clean", "--force", "--name=nas"];
    exits(dir, 0, &[&create[..], &["a.img", "b.img"]].concat());
    for name in ["b.img", "image"] {
        std::fs::remove_file(dir.join(name)).unwrap();
    }
}

/// Half of a RAID 1 of 16 MiB with the files that `make` makes: `a.img` in a folder, with its file
/// system in the folder `nas`, and the files in the folder `from`. `None` for a skip.
pub(crate) fn half_of_raid1(make: fn(&Path)) -> Option<TempDir> {
    let dir = tempdir().unwrap();
    image(dir.path(), 16, "family", make)?;
    into_raid1(dir.path());
    Some(dir)
}

/// Writes the content of the new array of these members, which holds zeros.
pub(crate) fn fill(dir: &Path, members: &[&str], content: &[u8]) {
    let parts = content.chunks(1 << 20).zip((0..).step_by(1 << 20));
    let parts = parts.filter(|(part, _)| part.iter().any(|byte| *byte != 0));
    fill_parts(dir, members, parts.map(|(part, offset)| (offset, part.to_vec())));
}

/// Writes parts of the content of the array of these members, each with its first byte.
pub(crate) fn fill_parts(
    dir: &Path,
    members: &[&str],
    parts: impl Iterator<Item = (u64, Vec<u8>)>,
) {
    let server = Served::start(dir, members);
    let mut client = Client::connect(&server.uri);
    for (offset, part) in parts {
        let len = u32::try_from(part.len()).unwrap();
        client.request(Op::Write { offset, len, fua: false }, &part).unwrap();
    }
    drop(client);
    rustix::process::kill_process(server.pid(), rustix::process::Signal::TERM).unwrap();
    assert_eq!(server.wait(), Some(0));
}

/// Makes sectors of a disk unreadable: zeros, and a map of ddrescue that says so.
pub(crate) fn lose(disk: &Path, mut starts: Vec<usize>) {
    let mut bytes = std::fs::read(disk).unwrap();
    let mut map = "# Mapfile. Created by GNU ddrescue version 1.27\n0x0 + 1\n".to_owned();
    let mut next = 0;
    starts.sort_unstable();
    for start in starts {
        bytes[start..start + 512].fill(0);
        map += &format!("{next:#x} {:#x} +\n{start:#x} 0x200 -\n", start - next);
        next = start + 512;
    }
    map += &format!("{next:#x} {:#x} +\n", bytes.len() - next);
    std::fs::write(disk, bytes).unwrap();
    std::fs::write(disk.with_extension("img.map"), map).unwrap();
}
