//! Images that e2fsprogs or the kernel make, and lists of the content of folders.
#![allow(dead_code, reason = "each test uses a part of it")]

pub(crate) mod kernel;
pub(crate) mod volumes;

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::fs::{self, File};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileExt, MetadataExt, PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::rc::Rc;
use std::time::{Duration, UNIX_EPOCH};

use sha2::{Digest, Sha256};
use weft_files::source::{ReadError, Shared, Source};

/// Runs a program; `None` if it is not installed, which is a skip.
pub(crate) fn tool(program: &str, arguments: &[&str], input: &str) -> Option<String> {
    let path = format!("/usr/sbin:/sbin:{}", std::env::var("PATH").unwrap());
    let mut command = Command::new(program);
    command.args(arguments).env("PATH", path).env("E2FSPROGS_FAKE_TIME", "1700000000");
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = match command.spawn() {
        Ok(child) => child,
        Err(error) => {
            weft_testing::skip(&format!("{program}: {error}"));
            return None;
        }
    };
    std::io::Write::write_all(&mut child.stdin.take().unwrap(), input.as_bytes()).unwrap();
    let output = child.wait_with_output().unwrap();
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    let errors = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success(), "{program} {arguments:?}: {said}{errors}");
    Some(said + &errors)
}

/// Bytes without a pattern that repeats.
pub(crate) fn bytes(seed: u64, len: usize) -> Vec<u8> {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let mut next = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state.to_le_bytes()
    };
    let mut all: Vec<u8> = std::iter::repeat_with(&mut next).take(len / 8 + 1).flatten().collect();
    all.truncate(len);
    all
}

/// A folder with files of many kinds.
pub(crate) fn make_folder(at: &Path) {
    fs::create_dir_all(at.join("photos/2026")).unwrap();
    fs::create_dir(at.join("empty")).unwrap();
    for (len, seed) in [0, 1, 59, 60, 61, 1023, 4096, 4097, 300_000, 3_000_001].iter().zip(1..) {
        fs::write(at.join(format!("photos/{len}.bin")), bytes(seed, *len)).unwrap();
    }
    for number in 0..300 {
        let name = format!("photos/2026/a rather long name of a picture, number {number:05}.jpeg");
        fs::write(at.join(name), bytes(1000 + number, 100)).unwrap();
    }
    let sparse = File::create(at.join("sparse")).unwrap();
    sparse.write_all_at(&bytes(7, 5000), 1 << 20).unwrap();
    sparse.write_all_at(b"the end", 40 << 20).unwrap();
    fs::write(at.join(OsStr::from_bytes(b"not utf-8 \xff\xfe")), "name").unwrap();
    fs::write(at.join("program"), "#!/bin/sh\n").unwrap();
    fs::set_permissions(at.join("program"), fs::Permissions::from_mode(0o751)).unwrap();
    fs::set_permissions(at.join("empty"), fs::Permissions::from_mode(0o500)).unwrap();
    fs::hard_link(at.join("photos/4097.bin"), at.join("one more name")).unwrap();
    symlink("photos/1.bin", at.join("short link")).unwrap();
    symlink(format!("/nowhere/{}", "x".repeat(200)), at.join("long link")).unwrap();
    let old = UNIX_EPOCH + Duration::new(1_234_567_890, 123_456_789);
    for name in ["sparse", "program", "photos/4097.bin"] {
        File::options().write(true).open(at.join(name)).unwrap().set_modified(old).unwrap();
    }
    File::open(at.join("photos")).unwrap().set_modified(old).unwrap();
}

/// Properties of a file or folder that are compared.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Seen {
    pub(crate) what: String,
    pub(crate) mode: u32,
    pub(crate) seconds: i64,
    pub(crate) links: u64,
}

/// Everything below a folder, by its path.
pub(crate) fn list(at: &Path) -> BTreeMap<PathBuf, Seen> {
    let mut all = BTreeMap::new();
    let mut waiting = vec![at.to_owned()];
    while let Some(folder) = waiting.pop() {
        for entry in fs::read_dir(&folder).unwrap() {
            let path = entry.unwrap().path();
            let meta = fs::symlink_metadata(&path).unwrap();
            let name = path.strip_prefix(at).unwrap().to_owned();
            if name == Path::new("lost+found") {
                continue;
            }
            let is_link = meta.is_symlink();
            let what = if is_link {
                format!("link to {:?}", fs::read_link(&path).unwrap())
            } else if meta.is_dir() {
                waiting.push(path.clone());
                "folder".to_owned()
            } else {
                let mut sum = Sha256::new();
                sum.update(fs::read(&path).unwrap());
                format!("{} bytes, {:x}", meta.len(), sum.finalize())
            };
            let seen = Seen {
                what,
                mode: if is_link { 0 } else { meta.mode() & 0o7777 },
                seconds: if is_link { 0 } else { meta.mtime() },
                links: if meta.is_dir() { 0 } else { meta.nlink() },
            };
            all.insert(name, seen);
        }
    }
    all
}

/// An image of `mib` MiB with the content of a folder; `None` for a skip.
pub(crate) fn image(of: &Path, at: &Path, mib: u64, options: &[&str]) -> Option<()> {
    File::create(at).unwrap().set_len(mib << 20).unwrap();
    let mut arguments = vec!["-q", "-F", "-d", of.to_str().unwrap()];
    arguments.extend(options);
    arguments.push(at.to_str().unwrap());
    tool("mke2fs", &arguments, "").map(|_| ())
}

/// A large image as a source that reads the file.
pub(crate) fn file_source(at: &Path) -> Shared {
    struct OnFile(File, u64);
    impl Source for OnFile {
        fn size(&self) -> u64 {
            self.1
        }

        fn read_at(&self, offset: u64, into: &mut [u8]) -> Result<(), ReadError> {
            let range = offset..offset + into.len() as u64;
            self.0
                .read_exact_at(into, offset)
                .map_err(|error| ReadError { range, why: error.to_string() })
        }
    }
    let size = fs::metadata(at).unwrap().len();
    Rc::new(OnFile(File::options().read(true).write(true).open(at).unwrap(), size))
}

/// The image as a source.
pub(crate) fn source(at: &Path) -> Shared {
    Rc::new(fs::read(at).unwrap())
}
