//! Member benchmark: reads and writes of files through the runtime, compared with fio, and the
//! backends compared with each other.
//!
//! Random blocks of 4 KiB go through the parts of the runtime that carry out member requests:
//! leases of payload memory, and the ring with its registered buffers. fio (Debian package fio)
//! does the same, 32 at a time, alternately on the same file. Then `--backend auto` is compared
//! with io_uring alone and with threads alone, on a file with `O_DIRECT`, one in the page cache,
//! and one on tmpfs. `auto` must reach 95 % of the rate of the faster of the two.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, poll};
use weft_engine::{Frame, MemberOp, Segment, Segments, Token};
use weft_runtime::Backend;
use weft_runtime::buffers::Slab;
use weft_runtime::devices::{Access, MemberSpec, OpenOptions, is_tmpfs};
use weft_runtime::member_io::MemberIo;
use weft_runtime::overlay::MemberRing;
use weft_units::rng::Rng;
use weft_units::{MemberIndex, Sectors};

use crate::BenchError;
use crate::rounds::{Effort, in_turns, median};
use crate::sheet::{Sheet, SheetRow};

/// Parameters of the member benchmark: directories and length of its files, and the time for each
/// measurement.
#[derive(Clone, Debug)]
pub struct MemberLoad {
    /// Directory for the temporary file of all benchmark rows but those that measure tmpfs. Only
    /// the file is removed at the end.
    pub dir: PathBuf,
    /// Directory on tmpfs for the temporary file of the benchmark rows that measure tmpfs. Only
    /// the file is removed at the end. If the directory is not on tmpfs, these rows are left
    /// out.
    pub memory_dir: PathBuf,
    /// Length of the files in MiB, at least 1.
    pub mib: u64,
    /// Seconds for each measurement.
    pub seconds: f64,
}

impl MemberLoad {
    /// Fills rows for reads and writes, in thousands of requests a second.
    ///
    /// # Errors
    /// A file cannot be created, read or written; fio is installed but fails; `seconds` is not a
    /// valid time.
    pub fn measure(&self, effort: Effort, sheet: &mut Sheet) -> Result<(), BenchError> {
        let seconds = if effort.quick { self.seconds / 4.0 } else { self.seconds };
        let span = Duration::try_from_secs_f64(seconds)
            .map_err(|error| BenchError::usage(format!("--seconds: {error}")))?;
        let rounds = effort.rounds(7, 2);
        let file = self.file_in(&self.dir)?;
        sheet.expect(2 + 3 * WAYS.len());
        self.against_fio(file.path(), rounds, span, sheet)?;
        let work = |buffered, write, depth| Work { backend: Backend::Auto, buffered, write, depth };
        for (place, buffered) in [("O_DIRECT", false), ("page cache", true)] {
            for (write, depth) in WAYS {
                let work = work(buffered, write, depth);
                each_way(place, file.path(), work, rounds, span, sheet)?;
            }
        }
        drop(file);
        if !std::fs::File::open(&self.memory_dir).is_ok_and(is_tmpfs) {
            let dir = self.memory_dir.display();
            sheet.absent(&format!("{dir} is no tmpfs; --memory-dir names a directory on one"));
            return Ok(());
        }
        let file = self.file_in(&self.memory_dir)?;
        for (write, depth) in WAYS {
            each_way("tmpfs", file.path(), work(false, write, depth), rounds, span, sheet)?;
        }
        Ok(())
    }

    fn file_in(&self, dir: &Path) -> Result<tempfile::NamedTempFile, BenchError> {
        let said =
            |error: std::io::Error| BenchError::failed(format!("{}: {error}", dir.display()));
        let file = tempfile::NamedTempFile::new_in(dir).map_err(said)?;
        fill(file.as_file(), self.mib << 20).map_err(said)?;
        Ok(file)
    }

    fn against_fio(
        &self,
        path: &Path,
        rounds: u32,
        span: Duration,
        sheet: &mut Sheet,
    ) -> Result<(), BenchError> {
        let has_fio = Command::new("fio").arg("--version").output().is_ok();
        if !has_fio {
            sheet.absent("fio is not installed; for it install the package fio");
        }
        for write in [false, true] {
            let case = if write { "4K write QD32" } else { "4K read QD32" };
            sheet.now(case);
            let work = Work { backend: Backend::Auto, buffered: false, write, depth: DEPTH };
            let mut ours = || weft(path, work, span);
            let mut other = || fio(path, write, span, self.mib);
            if has_fio {
                let figures = in_turns(rounds, &mut [&mut ours, &mut other])?;
                let baseline = Some(("fio io_uring", &figures[1][..]));
                sheet.push(SheetRow::faster(case, "kIOPS", &figures[0], baseline).mark(MARK));
            } else {
                let figures = in_turns(rounds, &mut [&mut ours])?;
                sheet.push(SheetRow::faster(case, "kIOPS", &figures[0], None));
            }
        }
        Ok(())
    }
}

/// Way in which a file is read or written: backend, page cache or `O_DIRECT`, direction and depth.
#[derive(Clone, Copy)]
struct Work {
    backend: Backend,
    buffered: bool,
    write: bool,
    depth: u32,
}

/// Measures `--backend auto` against the faster of io_uring and threads, for one way of reading or
/// writing a file, and adds the row to the sheet.
fn each_way(
    place: &str,
    path: &Path,
    work: Work,
    rounds: u32,
    span: Duration,
    sheet: &mut Sheet,
) -> Result<(), BenchError> {
    let verb = if work.write { "write" } else { "read" };
    let case = format!("4K {verb} QD{}, {place}", work.depth);
    sheet.now(&case);
    let by = |backend| move || weft(path, Work { backend, ..work }, span);
    let (mut auto, mut threads) = (by(Backend::Auto), by(Backend::Threads));
    let mut uring = by(Backend::Uring);
    let figures = in_turns(rounds, &mut [&mut auto, &mut uring, &mut threads])?;
    let better = if median(&figures[1]) >= median(&figures[2]) {
        ("io_uring", &figures[1][..])
    } else {
        ("threads", &figures[2][..])
    };
    sheet.push(SheetRow::faster(case, "kIOPS", &figures[0], Some(better)).mark(MARK));
    Ok(())
}

/// Writes the whole file, so that no read hits a hole.
fn fill(file: &std::fs::File, bytes: u64) -> std::io::Result<()> {
    let mib: Vec<u8> =
        (0..1_u32 << 18).flat_map(|n| n.wrapping_mul(0x9e37_79b9).to_le_bytes()).collect();
    for at in (0..bytes).step_by(mib.len()) {
        std::os::unix::fs::FileExt::write_all_at(file, &mib, at)?;
    }
    file.sync_all()
}

/// Rate of weft's ring, in thousands of requests per second.
fn weft(path: &Path, work: Work, span: Duration) -> Result<f64, BenchError> {
    let Work { backend, buffered, write, depth } = work;
    let said = |error: &dyn std::fmt::Display| BenchError::failed(format!("member: {error}"));
    let slab = &mut Slab::new(1 + depth).map_err(|error| said(&error))?;
    let ring = backend.open(slab).map_err(|error| said(&error))?;
    let spec = MemberSpec::path(path);
    let options = OpenOptions { buffered, ..OpenOptions::new(Access::ReadWrite) };
    let member = options.open(&spec, MemberIndex(0), []).map_err(|error| said(&error))?;
    let blocks = member.info().size.0 / 8;
    let mut io = MemberIo::new(ring);
    io.add(member).map_err(|error| said(&error))?;
    let mut rng = Rng::new(1);
    let mut start = |io: &mut MemberIo<Box<dyn MemberRing>>, slab: &mut Slab, frame: u32| {
        let at = Sectors(rng.below(blocks) * 8);
        let payload =
            Segments::from_slice(&[Segment { frame: Frame(1 + frame), offset: 0, len: 4096 }]);
        let op = match write {
            true => MemberOp::Write { at, from: payload, fua: false },
            false => MemberOp::Read { at, into: payload },
        };
        io.start(slab, Token(frame.into()), MemberIndex(0), op);
    };
    (0..depth).for_each(|frame| start(&mut io, slab, frame));
    let begin = Instant::now();
    let mut count = 0_u64;
    let mut more = true;
    while io.outstanding() > 0 {
        io.submit().map_err(|error| said(&error))?;
        io.reap();
        if !io.busy() {
            let wait = PollFd::from_borrowed_fd(io.ring().wait_fd(), PollFlags::IN);
            poll(&mut [wait], None).map_err(|error| said(&error))?;
            io.reap();
        }
        more &= begin.elapsed() < span;
        while let Some((token, result)) = io.answer() {
            result.map_err(|fault| said(&format!("{fault:?}")))?;
            count += 1;
            if more {
                start(&mut io, slab, u32::try_from(token.0).expect("a frame"));
            }
        }
    }
    Ok(count as f64 / begin.elapsed().as_secs_f64() / 1e3)
}

/// Rate of fio, in thousands of requests per second.
fn fio(path: &Path, write: bool, span: Duration, mib: u64) -> Result<f64, BenchError> {
    let kind = if write { "write" } else { "read" };
    let output = Command::new("fio")
        .args(["--name=weft", "--ioengine=io_uring", "--direct=1", "--bs=4k", "--time_based"])
        .args(["--norandommap", "--random_generator=tausworthe64", "--output-format=json"])
        .arg(format!("--iodepth={DEPTH}"))
        .arg(format!("--rw=rand{kind}"))
        .arg(format!("--size={mib}M"))
        .arg(format!("--runtime={}ms", span.as_millis()))
        .arg(format!("--filename={}", path.display()))
        .output()
        .map_err(|error| BenchError::failed(format!("fio: {error}")))?;
    let text = String::from_utf8_lossy(&output.stdout);
    let json = text.find('{').and_then(|from| serde_json::from_str(&text[from..]).ok());
    let json: serde_json::Value = json.unwrap_or_default();
    let rate = json["jobs"][0][kind]["iops"].as_f64().filter(|rate| *rate > 0.0);
    rate.map(|rate| rate / 1e3).ok_or_else(|| {
        let text = String::from_utf8_lossy(&output.stderr);
        BenchError::failed(format!("fio: found {:?}", text.lines().next().unwrap_or("no result")))
    })
}

const DEPTH: u32 = 32;
/// Combinations of direction (true for writes) and number of requests in flight.
const WAYS: [(bool, u32); 4] = [(false, 1), (false, DEPTH), (true, 1), (true, DEPTH)];
/// Least acceptable ratio of weft's rate to that of fio or, where backends are compared, of
/// `--backend auto` to the faster of io_uring and threads.
const MARK: f64 = 0.95;
