//! Files that fail for real, through a file system (FUSE) that fails on demand; maps of ddrescue.

use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use tempfile::{TempDir, tempdir};
use weft_units::rng::Rng;

/// Files of a folder, seen through a file system that fails on demand.
pub(crate) struct Faulty {
    dir: TempDir,
    server: Child,
}

impl Faulty {
    /// The file system in its folders; `None`, after a skip, where there is no FUSE or compiler.
    pub(crate) fn mount(service: Option<&str>) -> Option<Self> {
        let source =
            Path::new(env!("CARGO_MANIFEST_DIR")).join("../../interop/faulty_members/faultfs.c");
        let dir = tempdir().unwrap();
        let program = dir.path().join("faultfs");
        let built = Command::new("cc")
            .args(["-O1", "-D_FILE_OFFSET_BITS=64", "-I/usr/include/fuse3", "-o"])
            .args([&program, &source])
            .arg("-lfuse3")
            .output();
        if !built.is_ok_and(|built| built.status.success()) || !Path::new("/dev/fuse").exists() {
            weft_testing::skip("no FUSE, or cc with its headers");
            return None;
        }
        let at = |name: &str| dir.path().join(name);
        std::fs::create_dir(at("under")).unwrap();
        std::fs::create_dir(at("mnt")).unwrap();
        std::fs::write(at("under/ready"), "").unwrap();
        let mut server = Command::new(&program);
        server.args([at("under"), at("mnt")]).stderr(Stdio::null());
        if let Some(service) = service {
            server.env("SERVICE", service);
        }
        let server = server.spawn().unwrap();
        let faulty = Self { dir, server };
        let begun = Instant::now();
        while !faulty.path().join("mnt/ready").exists() {
            if begun.elapsed() > Duration::from_secs(20) {
                weft_testing::skip("FUSE does not mount");
                return None;
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        Some(faulty)
    }

    pub(crate) fn path(&self) -> &Path {
        self.dir.path()
    }

    /// Makes a disk with random content and these unreadable ranges of bytes.
    pub(crate) fn disk(&self, name: &str, size: u64, bad: &[(u64, u64)]) -> Vec<u8> {
        let content = random(size);
        std::fs::write(self.path().join("under").join(name), &content).unwrap();
        self.spoil(name, bad);
        content
    }

    pub(crate) fn spoil(&self, name: &str, bad: &[(u64, u64)]) {
        self.list(&format!("{name}.bad"), bad);
    }

    /// Lets reads of these ranges of bytes hang.
    pub(crate) fn hang(&self, name: &str, ranges: &[(u64, u64)]) {
        self.list(&format!("{name}.hang"), ranges);
    }

    fn list(&self, file: &str, ranges: &[(u64, u64)]) {
        let lines: String = ranges.iter().map(|(at, len)| format!("{at} {len}\n")).collect();
        std::fs::write(self.path().join("under").join(file), lines).unwrap();
    }

    pub(crate) fn fault(&self, name: &str, text: &str) {
        std::fs::write(self.path().join(format!("under/{name}.fault")), text).unwrap();
    }

    pub(crate) fn mend(&self, name: &str) {
        for ending in ["bad", "fault", "hang"] {
            let _ = std::fs::remove_file(self.path().join(format!("under/{name}.{ending}")));
        }
    }
}

impl Drop for Faulty {
    fn drop(&mut self) {
        // Reads that hang end, so that it can be unmounted.
        for entry in std::fs::read_dir(self.path().join("under")).unwrap().flatten() {
            if entry.path().extension().is_some_and(|it| it == "fault" || it == "hang") {
                let _ = std::fs::remove_file(entry.path());
            }
        }
        let mount = self.path().join("mnt");
        let _ = Command::new("fusermount3").args(["-u", "-z"]).arg(mount).status();
        let _ = self.server.kill();
        let _ = self.server.wait();
    }
}

/// Bytes without a pattern.
pub(crate) fn random(size: u64) -> Vec<u8> {
    let mut rng = Rng::new(size);
    let mut bytes = Vec::new();
    while (bytes.len() as u64) < size {
        bytes.extend(rng.next_u64().to_le_bytes());
    }
    bytes.truncate(usize::try_from(size).unwrap());
    bytes
}

/// Areas of a map: start, length, status.
pub(crate) fn areas(map: &Path) -> Vec<(u64, u64, String)> {
    let text = std::fs::read_to_string(map).unwrap();
    let number = |text: &str| u64::from_str_radix(&text[2..], 16).unwrap();
    let lines = text.lines().filter(|line| !line.starts_with('#')).skip(1);
    lines
        .map(|line| {
            let fields: Vec<&str> = line.split_whitespace().collect();
            (number(fields[0]), number(fields[1]), fields[2].to_owned())
        })
        .collect()
}
