//! `weft serve --listen fuse:PATH`: a volume as a file, by a real FUSE of the kernel.

mod common;

use std::fs::{self, File};
use std::io::Write;
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use common::client::Client;
use common::disks::bytes;
use common::{Served, array, exits, has_fuse, json, weft};
use rustix::fs::{FallocateFlags, fallocate};
use rustix::io::Errno;
use rustix::process::{Signal, kill_process};
use tempfile::TempDir;
use weft_nbd::Op;
use weft_units::rng::Rng;

/// Size of the volume: two data members of 8 MiB, without their superblocks.
const SIZE: u64 = 14 << 20;

/// The file `vol.img` of a server of a RAID 5, in a folder.
struct Export {
    server: Option<Served>,
    dir: TempDir,
    path: PathBuf,
}

impl Export {
    /// Starts it with further options; `None` for a skip.
    fn start(options: &[&str]) -> Option<Self> {
        if !has_fuse() {
            return None;
        }
        let dir = array();
        let mut export = Self { server: None, path: dir.path().join("vol.img"), dir };
        export.serve(options);
        Some(export)
    }

    fn serve(&mut self, options: &[&str]) {
        let at = format!("fuse:{}", self.path.display());
        let words = [&["--name", "vol", "--listen", "fuse:vol.img", "a", "b", "c"], options];
        let server = Served::start(self.dir.path(), &words.concat());
        let said = fs::read_to_string(&server.log).unwrap();
        assert!(server.uri == at || server.uri.starts_with("nbd"), "{}: {said}", server.uri);
        self.server = Some(server);
    }

    fn dir(&self) -> &Path {
        self.dir.path()
    }

    fn open(&self) -> File {
        File::options().read(true).write(true).open(&self.path).unwrap()
    }

    fn signal(&self, signal: Signal) {
        kill_process(self.server.as_ref().unwrap().pid(), signal).unwrap();
    }

    fn log(&self) -> String {
        fs::read_to_string(&self.server.as_ref().unwrap().log).unwrap()
    }

    /// Ends the server in good order. Other tests may start programs, which have all open files for
    /// a moment: the stop is refused then.
    fn stop(&mut self) {
        let deadline = Instant::now() + Duration::from_secs(30);
        while !weft(self.dir(), &["stop", "vol"]).status.success() {
            assert!(Instant::now() < deadline, "{}", self.log());
        }
        assert_eq!(self.server.take().unwrap().wait(), Some(0));
    }

    /// Ends the server, and expects the file to be gone.
    fn end(mut self) {
        self.stop();
        assert!(!self.path.exists());
    }
}

impl Drop for Export {
    fn drop(&mut self) {
        drop(self.server.take());
        let words = ["-u", "-q", "-z"];
        drop(Command::new("fusermount3").args(words).arg(&self.path).status());
    }
}

fn errno(result: std::io::Result<impl Sized>) -> Errno {
    Errno::from_io_error(&result.err().unwrap()).unwrap()
}

/// Reads, writes, holes and zeroes at any byte have the effect that they have on a plain file.
#[test]
fn ranges_at_any_byte_are_read_written_and_zeroed_as_in_a_plain_file() {
    let Some(mut export) = Export::start(&[]) else { return };
    let file = export.open();
    let size = file.metadata().unwrap().size();
    let reach = 3 << 20;
    let mut model = vec![0; reach];
    let mut rng = Rng::new(7);
    let mut below = |bound: usize| usize::try_from(rng.below(bound as u64)).unwrap();
    let mut counts = [0; 5];
    for step in 0..600 {
        // Lengths of all magnitudes, at the end of the file as well.
        let magnitude = 1 + below(18);
        let len = 1 + below(1 << magnitude);
        let start = below(reach - len + 1);
        let at = size - reach as u64 + start as u64;
        let kind = below(5);
        counts[kind] += 1;
        match kind {
            0 | 1 => {
                let data = bytes(step, len);
                file.write_all_at(&data, at).unwrap();
                model[start..start + len].copy_from_slice(&data);
            }
            2 | 3 => {
                let mode = [FallocateFlags::PUNCH_HOLE, FallocateFlags::ZERO_RANGE][kind - 2];
                fallocate(&file, mode | FallocateFlags::KEEP_SIZE, at, len as u64).unwrap();
                model[start..start + len].fill(0);
            }
            _ => {
                let mut found = vec![0; len];
                file.read_exact_at(&mut found, at).unwrap();
                assert!(found == model[start..start + len], "step {step}: {start}+{len}");
                file.sync_data().unwrap();
            }
        }
    }
    assert!(counts.iter().all(|count| *count > 60), "{counts:?}");
    let mut found = vec![0; reach];
    file.read_exact_at(&mut found, size - reach as u64).unwrap();
    assert!(found == model);
    drop(file);
    // What was written is on the members.
    export.stop();
    let read = weft(export.dir(), &["cat", "a", "b", "c"]);
    assert!(read.status.success());
    assert!(read.stdout[read.stdout.len() - reach..] == model);
}

/// Programs that write parts of the same blocks at once keep what the others have written: a write
/// of a part of a block is alone from its read to its end.
#[test]
fn writers_of_parts_of_the_same_blocks_do_not_undo_each_other() {
    let Some(export) = Export::start(&[]) else { return };
    let (writers, rounds, part) = (8_u8, 120, 100);
    std::thread::scope(|scope| {
        for writer in 0..writers {
            let file = export.open();
            scope.spawn(move || {
                for round in 0..rounds {
                    let at = (round * u64::from(writers) + u64::from(writer)) * part as u64;
                    file.write_all_at(&vec![writer + 1; part], at).unwrap();
                }
            });
        }
    });
    let parts = u64::from(writers) * rounds;
    let mut found = vec![0; usize::try_from(parts).unwrap() * part];
    export.open().read_exact_at(&mut found, 0).unwrap();
    let lost = found.chunks(part).zip((0..writers).cycle());
    let lost = lost.filter(|(bytes, writer)| bytes.iter().any(|byte| *byte != writer + 1));
    assert_eq!(lost.count(), 0, "parts of {parts}");
    export.end();
}

#[test]
fn the_file_has_the_size_of_the_volume_whatever_is_asked() {
    let Some(export) = Export::start(&[]) else { return };
    let found = fs::metadata(&export.path).unwrap();
    let size = found.size();
    assert_eq!((size, found.mode()), (SIZE, 0o100_600));
    let file = export.open();
    assert_eq!(errno(file.write_at(&[1], size)), Errno::NOSPC);
    assert_eq!(file.write_at(&[1; 100], size - 40).unwrap(), 40);
    assert_eq!(file.read_at(&mut [0; 100], size - 40).unwrap(), 40);
    assert_eq!(file.read_at(&mut [0; 100], size + 40).unwrap(), 0);
    assert_eq!(errno(file.set_len(size - 1)), Errno::INVAL);
    file.set_len(size).unwrap();
    let keep = FallocateFlags::KEEP_SIZE;
    let zeroes = fallocate(&file, FallocateFlags::ZERO_RANGE, size - 10, 20);
    assert_eq!(zeroes, Err(Errno::NOSPC));
    fallocate(&file, FallocateFlags::PUNCH_HOLE | keep, size - 10, 20).unwrap();
    assert_eq!(fallocate(&file, keep, 0, 4096), Err(Errno::OPNOTSUPP));
    assert_eq!(
        errno(fs::set_permissions(&export.path, fs::Permissions::from_mode(0o644))),
        Errno::PERM
    );
    // An open that truncates changes nothing, as with a block device.
    let mut all = File::create(&export.path).unwrap();
    assert_eq!(all.metadata().unwrap().size(), size);
    // A program that fills the file finds its end.
    let chunk = bytes(3, 1 << 20);
    let filled = (0..).find_map(|_| all.write_all(&chunk).err()).unwrap();
    assert_eq!(filled.raw_os_error(), Some(Errno::NOSPC.raw_os_error()));
    drop((file, all));
    let direct = rustix::fs::OFlags::DIRECT.bits().cast_signed();
    let sync = rustix::fs::OFlags::DSYNC.bits().cast_signed();
    for flags in [direct, sync, direct | sync] {
        let file = File::options().write(true).custom_flags(flags).open(&export.path).unwrap();
        file.write_all_at(&chunk, 4096).unwrap();
    }
    export.end();
}

#[test]
fn a_volume_that_is_served_read_only_is_a_file_to_read() {
    let Some(export) = Export::start(&["--read-only"]) else { return };
    assert_eq!(fs::metadata(&export.path).unwrap().mode(), 0o100_400);
    assert_eq!(errno(File::options().write(true).open(&export.path)), Errno::ROFS);
    assert_eq!(fs::read(&export.path).unwrap().len() as u64, SIZE);
    export.end();
}

#[test]
fn a_stop_is_refused_while_the_file_is_in_use_and_an_unmount_leaves_the_rest() {
    let Some(export) = Export::start(&["--listen", "nbd+unix:///?socket=s"]) else { return };
    let file = export.open();
    let said = exits(export.dir(), 1, &["stop", "vol"]);
    assert!(said.err.contains("vol.img: Device or resource busy"), "{said:?}");
    file.write_all_at(b"still served", 7).unwrap();
    drop(file);
    // Others may unmount it; the volume is served as before.
    let unmount = || Command::new("fusermount3").arg("-u").arg(&export.path).status().unwrap();
    let deadline = Instant::now() + Duration::from_secs(30);
    while !unmount().success() {
        assert!(Instant::now() < deadline, "{}", export.log());
    }
    let mut client = Client::connect(&export.server.as_ref().unwrap().uri);
    let read = client.request(Op::Read { offset: 0, len: 512, df: false }, &[]).unwrap();
    assert_eq!(&read[7..19], b"still served");
    drop(client);
    while !export.log().contains("unmounted by another program") {
        assert!(Instant::now() < deadline, "{}", export.log());
    }
    assert_eq!(fs::metadata(&export.path).unwrap().size(), 0, "the file below");
    export.end();
}

/// systemd asks by `weft stop`, by one signal, and kills the server in the end.
#[test]
fn a_signal_after_a_refused_stop_ends_the_server_in_good_order() {
    let Some(mut export) = Export::start(&[]) else { return };
    let file = export.open();
    file.write_all_at(b"kept", 1_000_001).unwrap();
    exits(export.dir(), 1, &["stop", "vol"]);
    export.signal(Signal::TERM);
    assert_eq!(export.server.take().unwrap().wait(), Some(0));
    assert!(file.read_at(&mut [0; 4], 0).is_err());
    drop(file);
    let found = json(export.dir(), &["examine", "a", "--json"]);
    assert_eq!(found["members"][0]["superblock"]["state"], "clean", "{found}");
}

#[test]
fn the_mount_of_a_dead_server_gives_errors_and_goes_when_the_next_one_comes() {
    let Some(mut export) = Export::start(&[]) else { return };
    let file = export.open();
    file.write_all_at(b"kept", 1_000_001).unwrap();
    file.sync_all().unwrap();
    export.signal(Signal::KILL);
    assert_eq!(export.server.take().unwrap().wait(), None);
    assert_eq!(errno(file.read_at(&mut [0; 4], 0)), Errno::NOTCONN);
    assert_eq!(errno(fs::metadata(&export.path)), Errno::NOTCONN);
    drop(file);
    export.serve(&[]);
    assert!(export.log().contains("the mount of a dead server is taken away"), "{}", export.log());
    let mut found = [0; 4];
    export.open().read_exact_at(&mut found, 1_000_001).unwrap();
    assert_eq!(&found, b"kept");
    // The file below was there before this server, which leaves it.
    export.stop();
    assert_eq!(fs::metadata(&export.path).unwrap().size(), 0);
}

#[test]
fn what_cannot_be_mounted_on_is_refused_and_left_alone() {
    if !has_fuse() {
        return;
    }
    let dir = array();
    fs::write(dir.path().join("full"), "text").unwrap();
    for (path, reason) in [
        ("full", "full: found a file of 4 bytes, expected an empty one, or none"),
        (".", "found no regular file, expected an empty one"),
        ("none/file", "the file cannot be created"),
        ("a", "found a file of"),
    ] {
        let listen = format!("fuse:{path}");
        let said = exits(dir.path(), 3, &["serve", "a", "b", "c", "--listen", listen.as_str()]);
        assert!(said.err.contains(reason), "{path}: {said:?}");
    }
    let many: Vec<String> = (0..7).map(|number| format!("--listen=fuse:{number}")).collect();
    let many = many.iter().map(String::as_str);
    let words: Vec<&str> = ["serve", "a", "b", "c"].into_iter().chain(many).collect();
    let said = exits(dir.path(), 3, &words);
    assert!(said.err.contains("found 7 block devices, disks of machines and files"), "{said:?}");
    assert!(!dir.path().join("0").exists());
    assert_eq!(fs::read(dir.path().join("full")).unwrap(), b"text");
}

/// A volume that grows makes its file longer, also for a program that has it open.
#[test]
fn the_file_grows_with_its_volume() {
    let Some(export) = Export::start(&[]) else { return };
    let file = export.open();
    assert_eq!(file.metadata().unwrap().size(), SIZE);
    File::create(export.dir().join("d")).unwrap().set_len(64 << 20).unwrap();
    exits(export.dir(), 0, &["add", "vol", "d"]);
    exits(export.dir(), 0, &["grow", "vol", "--raid-devices", "4"]);
    exits(export.dir(), 0, &["wait", "vol"]);
    let deadline = Instant::now() + Duration::from_secs(30);
    while file.metadata().unwrap().size() == SIZE {
        assert!(Instant::now() < deadline, "{}", export.log());
        std::thread::sleep(Duration::from_millis(20));
    }
    assert_eq!(file.metadata().unwrap().size(), SIZE / 2 * 3);
    file.write_all_at(b"beyond", SIZE / 2 * 3 - 6).unwrap();
    drop(file);
}
