//! `weft mount`: volumes and files in a folder, by a real FUSE of the kernel.

mod common;

use std::ffi::OsStr;
use std::fs::{self, File};
use std::io::{BufRead, BufReader};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileExt, MetadataExt, PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use common::client::Client;
use common::disks::{Files, bytes, files, image, into_raid1, lose};
use common::{Served, command, contents, exits, has_fuse, names};
use rustix::io::Errno;
use rustix::process::{Pid, Signal, kill_process};
use tempfile::{TempDir, tempdir};
use weft_nbd::Op;

/// A `weft mount` that runs; killed and unmounted if the test fails.
struct Mount {
    child: Child,
    dir: PathBuf,
    log: PathBuf,
}

impl Mount {
    /// Mounts on the folder `mnt`, and waits until it is there.
    fn start(dir: &Path, words: &[&str]) -> Self {
        let (at, log) = (dir.join("mnt"), dir.join("mount.log"));
        fs::create_dir_all(&at).unwrap();
        let mut child = command(dir, &[&["mount"], words, &["mnt"]].concat())
            .stdout(Stdio::piped())
            .stderr(File::create(&log).unwrap())
            .spawn()
            .unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.as_mut().unwrap()).read_line(&mut line).unwrap();
        let mount = Self { child, dir: at, log };
        assert_eq!(line, "ready mnt\n", "{}", mount.log());
        mount
    }

    fn log(&self) -> String {
        fs::read_to_string(&self.log).unwrap()
    }

    fn at(&self, name: &str) -> PathBuf {
        self.dir.join(name)
    }

    fn kill(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.child), signal).unwrap();
    }

    /// Waits for the end. Returns the exit status.
    fn end(&mut self) -> Option<i32> {
        let start = Instant::now();
        while start.elapsed() < Duration::from_secs(30) {
            if let Some(status) = self.child.try_wait().unwrap() {
                return status.code();
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        panic!("mount does not end: {}", self.log());
    }

    /// Ends it by a signal, and expects a free folder.
    fn stop(mut self, signal: Signal) {
        self.kill(signal);
        assert_eq!(self.end(), Some(0), "{}", self.log());
        assert!(names(&self.dir).is_empty());
    }
}

impl Drop for Mount {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
        let unmount = Command::new("fusermount3").args(["-u", "-q", "-z"]).arg(&self.dir).status();
        drop(unmount);
    }
}

/// Runs a program of e2fsprogs or util-linux.
fn tool(program: &str, words: &[&OsStr]) -> std::process::Output {
    let path = format!("{}:/usr/sbin:/sbin", std::env::var("PATH").unwrap());
    Command::new(program).args(words).env("PATH", path).output().unwrap()
}

const SPARSE: u64 = 40 << 20;

/// Files of every kind that needs no root.
fn make_files(from: &Path) {
    fs::create_dir_all(from.join("deep/er")).unwrap();
    fs::create_dir(from.join("many")).unwrap();
    for (len, number) in [0, 10, 5000, 70_000, 3_000_000].into_iter().zip(1..) {
        fs::write(from.join(format!("deep/{len}")), bytes(number, len)).unwrap();
    }
    for number in 0..1500 {
        fs::write(from.join(format!("many/file-{number}")), format!("{number}")).unwrap();
    }
    fs::write(from.join(OsStr::from_bytes(b"no text \xff\n")), "odd").unwrap();
    fs::hard_link(from.join("deep/5000"), from.join("deep/er/again")).unwrap();
    symlink("../10", from.join("deep/er/link")).unwrap();
    let sparse = File::create(from.join("deep/sparse")).unwrap();
    sparse.write_all_at(&[7; 4096], 20 << 20).unwrap();
    sparse.set_len(SPARSE).unwrap();
    let old = from.join("deep/10");
    fs::set_permissions(&old, fs::Permissions::from_mode(0o4751)).unwrap();
    let time = std::time::UNIX_EPOCH - Duration::from_secs(86_400);
    File::options().write(true).open(old).unwrap().set_modified(time).unwrap();
}

fn make_one(from: &Path) {
    fs::create_dir(from).unwrap();
    fs::write(from.join("x"), "x").unwrap();
}

/// A folder with an ext4 image that has such files, and the files. `None` for a skip.
fn disk(make: fn(&Path)) -> Option<(TempDir, Files)> {
    let dir = tempdir().unwrap();
    if !has_fuse() {
        return None;
    }
    let expected = image(dir.path(), 40, "family", make)?;
    Some((dir, expected))
}

#[test]
fn the_files_of_a_mount_are_those_of_the_disk_with_all_that_stat_says() {
    let Some((dir, expected)) = disk(make_files) else { return };
    let script = "ea_set /deep/10 user.colour blue\ncd /deep\nmknod sda b 8 1\nmknod pipe p\n";
    fs::write(dir.path().join("script"), script).unwrap();
    let words = ["-w", "-f"].map(OsStr::new);
    let (script, at) = (dir.path().join("script"), dir.path().join("image"));
    let made = tool("debugfs", &[words[0], words[1], script.as_os_str(), at.as_os_str()]);
    assert!(made.status.success(), "{made:?}");
    into_raid1(dir.path());
    let before = contents(dir.path());
    let mount = Mount::start(dir.path(), &["a.img", "--files"]);
    let top = mount.at("nas");
    let special = |files: Files| -> Files {
        files
            .into_iter()
            .filter(|(name, _)| !name.ends_with("sda") && !name.ends_with("pipe"))
            .collect()
    };
    // A pipe would wait for a writer.
    let regular = |path: &Path| fs::symlink_metadata(path).unwrap();
    let device = regular(&top.join("deep/sda"));
    assert_eq!((device.mode() & 0o170_000, device.rdev()), (0o060_000, rustix::fs::makedev(8, 1)));
    assert_eq!(regular(&top.join("deep/pipe")).mode() & 0o170_000, 0o010_000);
    let old = regular(&top.join("deep/10"));
    assert_eq!((old.mode() & 0o7777, old.mtime(), old.size()), (0o4751, -86_400, 10));
    let own = regular(&dir.path().join("from/deep/10"));
    assert_eq!((old.uid(), old.gid()), (own.uid(), own.gid()));
    let (one, other) = (regular(&top.join("deep/5000")), regular(&top.join("deep/er/again")));
    assert_eq!((one.ino(), one.nlink()), (other.ino(), 2));
    let link = top.join("deep/er/link");
    assert_eq!(fs::read_link(&link).unwrap(), Path::new("../10"));
    assert_eq!(fs::read(&link).unwrap(), bytes(2, 10));
    let mut value = [0; 16];
    let path = top.join("deep/10");
    let len = rustix::fs::getxattr(&path, "user.colour", &mut value).unwrap();
    assert_eq!(&value[..len], b"blue");
    assert_eq!(rustix::fs::getxattr(&path, "user.none", &mut value), Err(Errno::NODATA));
    let mut list = [0; 64];
    let len = rustix::fs::listxattr(&path, &mut list).unwrap();
    assert_eq!(&list[..len], b"user.colour\0");
    let space = rustix::fs::statvfs(&top).unwrap();
    assert!(space.f_blocks * space.f_frsize > 35 << 20 && space.f_bfree < space.f_blocks);

    // cp keeps links, holes and times, and reads each byte.
    let copy = dir.path().join("copy");
    let words = [OsStr::new("-a"), top.as_os_str(), copy.as_os_str()];
    let copied = tool("cp", &words);
    // Without root, cp makes no device.
    let is_root = rustix::process::geteuid().is_root();
    assert_eq!(copied.status.success(), is_root, "{copied:?}");
    fs::remove_file(copy.join("deep/pipe")).unwrap();
    let _ = fs::remove_file(copy.join("deep/sda"));
    assert!(special(files(&copy)) == expected, "contents and names");
    let (one, other) = (regular(&copy.join("deep/5000")), regular(&copy.join("deep/er/again")));
    assert_eq!((one.ino(), one.nlink()), (other.ino(), 2));
    let sparse = regular(&copy.join("deep/sparse"));
    assert!(sparse.size() == SPARSE && sparse.blocks() * 512 < 1 << 20, "{}", sparse.blocks());
    assert_eq!(regular(&copy.join("deep/10")).mtime(), -86_400);

    for error in [
        fs::write(top.join("new"), "x").unwrap_err(),
        fs::remove_file(top.join("deep/10")).unwrap_err(),
        File::options().write(true).open(top.join("deep/10")).unwrap_err(),
    ] {
        assert_eq!(Errno::from_io_error(&error), Some(Errno::ROFS));
    }
    assert_eq!(fs::read(top.join("none")).unwrap_err().kind(), std::io::ErrorKind::NotFound);
    mount.stop(Signal::INT);
    assert!(contents(dir.path()).iter().filter(|it| !it.0.ends_with("mount.log")).eq(&before));
}

/// A file that was read is read again: from the kernel's cache, or with `--direct-io` from the
/// server, which sends all of it once more.
#[test]
fn a_file_that_the_kernel_does_not_cache_comes_from_the_server_each_time() {
    let Some((dir, _)) = disk(make_files) else { return };
    into_raid1(dir.path());
    for (words, again) in [(&["a.img"][..], false), (&["a.img", "--direct-io"], true)] {
        let mount = Mount::start(dir.path(), words);
        let sent = || {
            let text = fs::read_to_string(format!("/proc/{}/io", mount.child.id())).unwrap();
            let line = text.lines().find_map(|line| line.strip_prefix("wchar: "));
            line.unwrap().parse::<u64>().unwrap()
        };
        let first = fs::read(mount.at("nas.img")).unwrap();
        let before = sent();
        assert!(before >= first.len() as u64, "{before}");
        assert!(fs::read(mount.at("nas.img")).unwrap() == first);
        assert_eq!(sent() - before >= first.len() as u64, again, "{words:?}");
        mount.stop(Signal::INT);
    }
}

/// Sequential reads by a new open each: bytes that a client writes between two of them are in the
/// later one, although they would have been read ahead in a file that stays open.
#[test]
fn what_is_read_after_an_open_is_not_from_before_it() {
    let Some((dir, _)) = disk(make_one) else { return };
    into_raid1(dir.path());
    let server = Served::start(dir.path(), &["--overlay", "changes", "a.img"]);
    let mount = Mount::start(dir.path(), &["nas", "--direct-io"]);
    let mut client = Client::connect(&server.uri);
    // Only a buffer of whole pages is read by one request.
    let mut buffer = vec![0; (1 << 20) + 4096];
    let start = buffer.as_ptr().align_offset(4096);
    let found = &mut buffer[start..][..1 << 20];
    for at in 0..6 {
        let data = [at + 1; 4096];
        let (offset, len) = (u64::from(at) << 20, data.len());
        client.request(Op::Write { offset, len: 4096, fua: false }, &data).unwrap();
        File::open(mount.at("nas.img")).unwrap().read_exact_at(found, offset).unwrap();
        assert!(found[..len] == data, "{at}: found {:?}", &found[..8]);
    }
    drop(client);
    mount.stop(Signal::INT);
    kill_process(server.pid(), Signal::TERM).unwrap();
    assert_eq!(server.wait(), Some(0));
}

#[test]
fn programs_use_the_file_of_a_volume_and_an_unmount_by_others_ends_it() {
    let Some((dir, _)) = disk(make_files) else { return };
    let content = fs::read(dir.path().join("image")).unwrap();
    into_raid1(dir.path());
    let mut mount = Mount::start(dir.path(), &["a.img"]);
    assert_eq!(names(&mount.dir), ["nas.img"]);
    let at = mount.at("nas.img");
    let found = fs::read(&at).unwrap();
    assert!(
        found[..content.len()] == content
            && found.len() as u64 == fs::metadata(&at).unwrap().size()
    );
    let [n, f] = ["-n", "-f"].map(OsStr::new);
    let checked = tool("e2fsck", &[n, f, at.as_os_str()]);
    assert!(checked.status.success(), "{checked:?}");
    let listed = tool("debugfs", &["-R".as_ref(), "ls /deep".as_ref(), at.as_os_str()]);
    assert!(String::from_utf8_lossy(&listed.stdout).contains("sparse"), "{listed:?}");
    // A part of the volume by O_DIRECT, and reads at its end.
    let len = found.len() as u64;
    let file = File::open(&at).unwrap();
    let mut end = [0; 100];
    assert_eq!(file.read_at(&mut end, len - 40).unwrap(), 40);
    assert_eq!(file.read_at(&mut end, len + 40).unwrap(), 0);
    drop(file);
    let loops = dir.path().join("loop");
    fs::create_dir(&loops).unwrap();
    let words = ["-o".as_ref(), "loop,ro".as_ref(), at.as_os_str(), loops.as_os_str()];
    let mounted = tool("mount", &words);
    // Few containers have loop devices.
    if mounted.status.success() {
        assert_eq!(fs::read(loops.join("deep/70000")).unwrap(), bytes(4, 70_000));
        assert!(tool("umount", &[loops.as_os_str()]).status.success());
    }
    let out = tool("fusermount3", &["-u".as_ref(), mount.dir.as_os_str()]);
    assert!(out.status.success(), "{out:?}");
    assert_eq!(mount.end(), Some(0), "{}", mount.log());
    assert!(names(&mount.dir).is_empty());
}

#[test]
fn a_block_that_no_member_has_is_an_error_of_its_file_alone() {
    let Some((dir, expected)) = disk(make_files) else { return };
    into_raid1(dir.path());
    let path = dir.path().join("a.img");
    let (_, large) = expected.iter().find(|(name, _)| name.ends_with("3000000")).unwrap();
    let disk = fs::read(&path).unwrap();
    let place = disk.windows(4096).position(|part| part == &large[..4096]).unwrap();
    lose(&path, vec![place + 1_228_800]);
    // The block of the array with the lost sector, in the file.
    let start = (place + 1_228_800) / 4096 * 4096 - place;
    let bad = start as u64..start as u64 + 4096;
    let mount = Mount::start(dir.path(), &["a.img", "--files"]);
    let file = File::open(mount.at("nas/deep/3000000")).unwrap();
    for _ in 0..2 {
        let (mut lost, mut expected) = (Vec::new(), Vec::new());
        for (part, at) in large.chunks(4096).zip((0..).step_by(4096)) {
            let mut found = vec![0; part.len()];
            if at < bad.end && bad.start < at + 4096 {
                expected.push(at);
            }
            match file.read_exact_at(&mut found, at) {
                Ok(()) => assert!(found == part, "{at}"),
                Err(error) => {
                    assert_eq!(Errno::from_io_error(&error), Some(Errno::IO));
                    lost.push(at);
                }
            }
        }
        assert_eq!(lost, expected);
        assert!(!lost.is_empty());
    }
    for (name, content) in expected.iter().filter(|(name, _)| !name.ends_with("3000000")) {
        assert!(fs::read(mount.at("nas").join(name)).unwrap() == *content, "{}", name.display());
    }
    let log = mount.log();
    assert_eq!(log.matches("3000000").count(), 1, "{log}");
    assert!(log.contains(&format!("nas/deep/3000000: bytes {}..", bad.start)), "{log}");
    drop(file);
    mount.stop(Signal::TERM);
}

#[test]
fn a_mount_in_use_ends_by_a_signal_and_that_of_a_dead_process_gives_errors() {
    let Some((dir, _)) = disk(make_files) else { return };
    into_raid1(dir.path());
    let mut mount = Mount::start(dir.path(), &["a.img", "--files"]);
    let file = File::open(mount.at("nas/deep/3000000")).unwrap();
    mount.kill(Signal::TERM);
    assert_eq!(mount.end(), Some(0), "{}", mount.log());
    assert!(mount.log().contains("the mount is in use"), "{}", mount.log());
    assert!(names(&mount.dir).is_empty(), "the folder is free");
    let error = file.read_at(&mut [0; 10], 2_000_000).unwrap_err();
    assert_eq!(Errno::from_io_error(&error), Some(Errno::NOTCONN));
    drop((file, mount));

    let mut mount = Mount::start(dir.path(), &["a.img", "--files"]);
    let file = File::open(mount.at("nas/deep/3000000")).unwrap();
    mount.kill(Signal::KILL);
    assert_eq!(mount.end(), None);
    for error in [
        file.read_at(&mut [0; 10], 2_000_000).unwrap_err(),
        fs::read_dir(&mount.dir).unwrap_err(),
        fs::read(mount.at("nas/deep/70000")).unwrap_err(),
    ] {
        assert_eq!(Errno::from_io_error(&error), Some(Errno::NOTCONN), "{error}");
    }
    let said = exits(dir.path(), 3, &["mount", "a.img", "mnt"]);
    assert!(said.err.contains("a mount of a process that has ended"), "{said:?}");
    let line = said.err.split('`').nth(1).unwrap();
    assert_eq!(line, "fusermount3 -u mnt");
    let mut words = line.split(' ');
    let mut clear = Command::new(words.next().unwrap());
    // An open file keeps the mount busy.
    drop(file);
    assert!(clear.args(words).current_dir(dir.path()).status().unwrap().success());
    Mount::start(dir.path(), &["a.img"]).stop(Signal::INT);
}

#[test]
fn what_cannot_be_mounted_or_mounted_on_is_refused_with_a_reason() {
    let Some((dir, _)) = disk(make_one) else { return };
    into_raid1(dir.path());
    fs::create_dir(dir.path().join("empty")).unwrap();
    for (status, words, says) in [
        (
            3,
            &["a.img", "none"][..],
            "none: found nothing, expected an empty folder; mkdir makes it",
        ),
        (3, &["a.img", "a.img"], "a.img: found no folder, expected an empty one"),
        (3, &["a.img", "from"], "from: found \"x\" in it, expected an empty folder"),
        (1, &["volume", "empty"], "volume: no running volume has this name"),
        (2, &["a.img", "empty", "--only", "y"], "--only: found \"y\", expected one of nas"),
        (2, &["a.img"], "found no DIR, expected an empty folder behind the disks"),
    ] {
        let said = exits(dir.path(), status, &[&["mount"], words].concat());
        assert!(said.err.contains(says), "{words:?}: {said:?}");
    }
    assert!(names(&dir.path().join("empty")).is_empty());
}

#[test]
fn what_is_in_a_running_volume_is_read_anew_when_a_file_is_opened() {
    let Some((dir, _)) = disk(make_one) else { return };
    into_raid1(dir.path());
    let server = Served::start(dir.path(), &["--overlay", "changes", "a.img"]);
    let mount = Mount::start(dir.path(), &["nas"]);
    let at = mount.at("nas.img");
    let refused = File::options().write(true).open(&at).unwrap_err();
    assert_eq!(Errno::from_io_error(&refused), Some(Errno::ROFS));
    let mut found = [0; 512];
    File::open(&at).unwrap().read_exact_at(&mut found, 512_000).unwrap();
    assert_ne!(found, [9; 512]);
    let mut client = Client::connect(&server.uri);
    let write = |offset, data: &[u8], client: &mut Client| {
        let len = u32::try_from(data.len()).unwrap();
        client.request(Op::Write { offset, len, fua: false }, data).unwrap();
    };
    write(512_000, &[9; 512], &mut client);
    File::open(&at).unwrap().read_exact_at(&mut found, 512_000).unwrap();
    assert_eq!(found, [9; 512]);
    // A partition table in place of the file system: the partition is a file too.
    let data = bytes(5, 4096 * 70);
    let mut head = vec![0; 4096];
    head[446..462].copy_from_slice(&[0, 0, 0, 0, 0x83, 0, 0, 0, 0, 8, 0, 0, 0, 32, 0, 0]);
    head[510..512].copy_from_slice(&[0x55, 0xaa]);
    write(0, &head, &mut client);
    write(1 << 20, &data, &mut client);
    drop(client);
    mount.stop(Signal::INT);
    let mount = Mount::start(dir.path(), &["nas"]);
    assert_eq!(names(&mount.dir), ["nas-1.img", "nas.img"]);
    let part = fs::read(mount.at("nas-1.img")).unwrap();
    assert!(part.len() == 8192 * 512 && part[..data.len()] == data);
    mount.stop(Signal::INT);
    let mount = Mount::start(dir.path(), &["--only", "nas#1", "nas"]);
    assert_eq!(names(&mount.dir), ["nas-1.img"]);
    mount.stop(Signal::INT);
    kill_process(server.pid(), Signal::TERM).unwrap();
    assert_eq!(server.wait(), Some(0));
}
