//! Helpers of the command-line tests: the binary, scratch directories, the kernel's arrays, a
//! served volume.
#![allow(dead_code, reason = "each test program uses a part of it")]

pub(crate) mod client;
pub(crate) mod disks;
pub(crate) mod faulty;
pub(crate) mod table;

use std::ffi::OsStr;
use std::io::{BufRead, BufReader, Read};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use serde_json::Value;
use sha2::{Digest, Sha256};
use tempfile::{TempDir, tempdir};
use weft_units::rng::Rng;

/// Runs weft in a directory.
pub(crate) fn weft<S: AsRef<OsStr>>(dir: &Path, arguments: &[S]) -> Output {
    command(dir, arguments).output().expect("weft was built for this test")
}

pub(crate) fn command<S: AsRef<OsStr>>(dir: &Path, arguments: &[S]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_weft"));
    command
        .args(arguments)
        .current_dir(dir)
        .stdin(Stdio::null())
        .env("XDG_RUNTIME_DIR", dir)
        .env("TMPDIR", dir)
        .env_remove("NOTIFY_SOCKET");
    command
}

/// Runs weft and expects an exit status. Returns the output.
pub(crate) fn exits<S: AsRef<OsStr> + std::fmt::Debug>(
    dir: &Path,
    status: i32,
    arguments: &[S],
) -> Text {
    let output = weft(dir, arguments);
    let text = Text::of(&output);
    assert_eq!(output.status.code(), Some(status), "weft {arguments:?}: {text:?}");
    text
}

/// Expects success, and JSON on standard output.
pub(crate) fn json<S: AsRef<OsStr> + std::fmt::Debug>(dir: &Path, arguments: &[S]) -> Value {
    serde_json::from_str(&exits(dir, 0, arguments).out).expect("one JSON value on standard output")
}

/// Creates a RAID 5 of three members of 8 MiB named a, b and c, in a folder of its own.
pub(crate) fn array() -> TempDir {
    let dir = tempdir().unwrap();
    let words = ["create", "-l5", "-n3", "-c64K", "--member-size=8M", "--name=vol", "a", "b", "c"];
    exits(dir.path(), 0, &words);
    dir
}

#[derive(Debug)]
pub(crate) struct Text {
    pub(crate) out: String,
    pub(crate) err: String,
}

impl Text {
    fn of(output: &Output) -> Self {
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        Self { out: text(&output.stdout), err: text(&output.stderr) }
    }
}

/// Every file of a directory, with its content.
pub(crate) fn contents(dir: &Path) -> Vec<(PathBuf, Vec<u8>)> {
    let mut files: Vec<PathBuf> = std::fs::read_dir(dir)
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .filter(|path| path.is_file())
        .collect();
    files.sort();
    files.into_iter().map(|path| (path.clone(), std::fs::read(&path).unwrap())).collect()
}

/// Words as bytes. Tests are not optimised, and those that compare the content of arrays took half
/// as long again with an iterator over bytes.
pub(crate) fn bytes_of(words: impl Iterator<Item = u64>) -> Vec<u8> {
    let mut bytes = Vec::new();
    for word in words {
        bytes.extend_from_slice(&word.to_le_bytes());
    }
    bytes
}

/// A fixture: an array that the kernel wrote.
pub(crate) struct Fixture {
    pub(crate) name: String,
    pub(crate) level: u64,
    /// Number of images of members, spares and journal included.
    pub(crate) images: usize,
    pub(crate) scenario: String,
    /// Sectors `..half` were rewritten with another seed.
    half: u64,
    sectors: u64,
    seed: u64,
    sha256: String,
    pub(crate) mismatch_cnt: Option<u64>,
}

fn fixtures() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fixtures/md")
}

impl Fixture {
    /// Names of all fixtures, in order.
    pub(crate) fn names() -> Vec<String> {
        let Value::Object(all) = Self::manifest() else { panic!("a manifest is an object") };
        let mut names: Vec<String> = all.keys().cloned().collect();
        names.sort();
        names
    }

    fn manifest() -> Value {
        let text = std::fs::read_to_string(fixtures().join("manifest.json")).unwrap();
        serde_json::from_str(&text).unwrap()
    }

    pub(crate) fn of(name: &str) -> Self {
        let manifest = Self::manifest();
        let entry = &manifest[name];
        let number = |field: &str| entry[field].as_u64().unwrap();
        let text = |field: &str| entry[field].as_str().unwrap().to_owned();
        Self {
            name: name.to_owned(),
            level: number("level"),
            images: entry["images"].as_array().unwrap().len(),
            scenario: text("scenario"),
            half: number("half"),
            sectors: number("sectors"),
            seed: number("seed"),
            sha256: text("sha256"),
            mismatch_cnt: entry["mismatch_cnt"].as_u64(),
        }
    }

    /// Number of members that may be missing.
    pub(crate) fn parities(&self) -> usize {
        if self.level == 6 { 2 } else { 1 }
    }

    /// Largest number of members that the array can do without in any combination.
    pub(crate) fn survives_at_most(&self) -> usize {
        match self.level {
            0 => 0,
            1 | 10 => self.images - 1,
            _ => self.parities(),
        }
    }

    /// Whether the other members hold or determine every byte without these.
    pub(crate) fn tolerates(&self, lost: &[usize]) -> bool {
        let members = self.images;
        match (self.level, self.name.as_str()) {
            (0, _) => lost.is_empty(),
            (1, _) => lost.len() < members,
            // Each chunk is on consecutive members; the layout determines the first.
            (10, name) => (0..members).all(|chunk| {
                let (first, copies) = match name.rsplit_once('-').map(|(_, layout)| layout) {
                    Some("f2" | "o2") => (chunk, 2),
                    Some("n3") => (chunk * 3, 3),
                    _ => (chunk * 2, 2),
                };
                (first..first + copies).any(|member| !lost.contains(&(member % members)))
            }),
            _ => lost.len() <= self.parities(),
        }
    }

    /// Output of mdadm or the kernel about the array.
    pub(crate) fn text(&self, file: &str) -> String {
        std::fs::read_to_string(fixtures().join(&self.name).join(file)).unwrap()
    }

    /// Unpacks the members into a directory.
    pub(crate) fn unpack(&self, dir: &Path) -> Vec<String> {
        let packed = fixtures().join(&self.name);
        (0..self.images)
            .map(|member| {
                let file = std::fs::File::open(packed.join(format!("m{member}.img.zst"))).unwrap();
                let mut image = Vec::new();
                ruzstd::decoding::StreamingDecoder::new(file)
                    .unwrap()
                    .read_to_end(&mut image)
                    .unwrap();
                let name = format!("m{member}.img");
                std::fs::write(dir.join(&name), image).unwrap();
                name
            })
            .collect()
    }

    /// The content that the kernel read back: a word per sector, repeated 64 times. Its checksum
    /// equals the kernel's.
    pub(crate) fn content(&self) -> Vec<u8> {
        let rewritten = matches!(self.scenario.as_str(), "stale1" | "stale2" | "failedmark");
        let mut content = Vec::new();
        for sector in 0..self.sectors {
            let seed = self.seed + u64::from(rewritten && sector < self.half);
            let word = Rng::at(seed.wrapping_mul(1_000_003).wrapping_add(sector)).next_u64();
            content.extend_from_slice(&word.to_le_bytes().repeat(64));
        }
        let digest: String =
            Sha256::digest(&content).iter().map(|byte| format!("{byte:02x}")).collect();
        assert_eq!(digest, self.sha256, "{}: the content as the kernel read it", self.name);
        content
    }
}

/// A `weft serve` process, killed if the test fails.
pub(crate) struct Served {
    child: Child,
    pub(crate) uri: String,
    pub(crate) log: PathBuf,
}

impl Served {
    /// Starts a server and waits for its `ready` line.
    pub(crate) fn start(dir: &Path, arguments: &[&str]) -> Self {
        Self::of(dir, command(dir, &[&["serve"], arguments].concat()))
    }

    /// Starts a command that becomes `weft serve`, and waits for its `ready` line.
    pub(crate) fn of(dir: &Path, mut command: Command) -> Self {
        let log = dir.join("serve.log");
        let mut child = command
            .stdout(Stdio::piped())
            .stderr(std::fs::File::create(&log).unwrap())
            .spawn()
            .unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.as_mut().unwrap()).read_line(&mut line).unwrap();
        let log_text = std::fs::read_to_string(&log).unwrap();
        let uris = line.strip_prefix("ready ").unwrap_or_else(|| panic!("{line:?}: {log_text}"));
        let uri = uris.split_whitespace().next().unwrap().to_owned();
        Self { child, uri, log }
    }

    pub(crate) fn pid(&self) -> rustix::process::Pid {
        rustix::process::Pid::from_child(&self.child)
    }

    /// Waits for the end. Returns the exit status.
    pub(crate) fn wait(mut self) -> Option<i32> {
        let start = Instant::now();
        while start.elapsed() < Duration::from_secs(60) {
            if let Some(status) = self.child.try_wait().unwrap() {
                return status.code();
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        panic!("serve does not end: {}", std::fs::read_to_string(&self.log).unwrap());
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Runs a command and interrupts it (SIGINT) once its folder has this many files. Returns its exit
/// status.
pub(crate) fn interrupted(dir: &Path, words: &[&str], files: usize) -> Option<i32> {
    let mut child =
        command(dir, words).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    let deadline = Instant::now() + Duration::from_secs(20);
    while names(dir).len() < files {
        assert!(Instant::now() < deadline && child.try_wait().unwrap().is_none(), "{words:?}");
        std::thread::sleep(Duration::from_millis(5));
    }
    // The command registers the files a moment after it creates them.
    std::thread::sleep(Duration::from_millis(50));
    let process = rustix::process::Pid::from_child(&child);
    rustix::process::kill_process(process, rustix::process::Signal::INT).unwrap();
    child.wait().unwrap().code()
}

/// Names in a folder, sorted.
pub(crate) fn names(dir: &Path) -> Vec<String> {
    let entries = std::fs::read_dir(dir).unwrap();
    let mut names: Vec<String> =
        entries.map(|it| it.unwrap().file_name().to_string_lossy().into_owned()).collect();
    names.sort();
    names
}

/// Whether this machine mounts by FUSE; otherwise a skip.
pub(crate) fn has_fuse() -> bool {
    let helper = Command::new("fusermount3").arg("-V").output();
    let opened = std::fs::File::options().read(true).write(true).open("/dev/fuse").map(drop);
    match opened.and(helper.map(drop)) {
        Ok(()) => true,
        Err(error) => {
            weft_testing::skip(&format!("FUSE: /dev/fuse and fusermount3: {error}"));
            false
        }
    }
}
