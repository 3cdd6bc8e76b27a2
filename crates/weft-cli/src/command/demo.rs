//! `weft demo`: a guided tour of an array on files, with a failure, a rebuild and a repair.
//!
//! A RAID 5 volume on files lives through a bad day: served over NBD, written and verified, a
//! member failing in the middle of the writes, rebuilt on a fifth file while writes go on, a check
//! that reads every stripe, a flipped byte found and repaired. Every byte goes through the same
//! server, engine and protocol as with `weft serve`. Each step is measured and asserted; the first
//! that fails ends it. Then the same engine runs on simulated disks, before and with the patches
//! that `weft reproduce` knows.

use std::collections::VecDeque;
use std::io::Write;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use clap::Args;
use indicatif::ProgressBar;
use serde_json::{Map, Value, json};
use weft_engine::knobs::Knobs;
use weft_engine::raid::geometry::Geometry;
use weft_export::client::NbdClient;
use weft_export::control::{Command, VolumeStatus};
use weft_units::{Bytes, FullStripe};

use super::create::make_files_of_array;
use super::reproduce::Reproduced;
use crate::inside::Inside;
use crate::look::Looked;
use crate::outcome::{Exit, Failure, Outcome};
use crate::pattern::{self, BLOCK, Expected};
use crate::sync_action::{self, STRIPE_SECTORS};
use crate::target::{Target, only_volume};
use crate::terminal::{self, print_json, progress, quoted, stdout, style, took};
use crate::volume::Opening;
use crate::{member, size};

/// Shows what weft does, on files made on the spot: the guided tour
///
/// Makes four sparse files, a RAID 5 array of them, and takes it through a bad day; then measures
/// two published patches again, as weft reproduce does in its shortest runs. Needs neither root nor
/// anything installed, and less than a minute and a half on two CPUs. Exit status: 0, or 1 when a
/// step failed.
#[derive(Debug, Args)]
pub(crate) struct Demo {
    /// Where to make the files [default: a temporary directory]
    #[arg(long)]
    dir: Option<PathBuf>,
    /// Keep the files
    #[arg(long)]
    keep: bool,
    /// How large each file is
    #[arg(long, value_name = "SIZE", default_value = "64M", value_parser = size::with_unit)]
    member_size: Bytes,
    /// End after the bad day, without the patches
    #[arg(long)]
    skip_patches: bool,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

pub(crate) fn run(arguments: &Demo) -> Outcome {
    if !(Bytes::mib(8)..=Bytes::mib(16 << 10)).contains(&arguments.member_size) {
        return Err(Failure::usage("--member-size: expected 8M to 16G"));
    }
    // For sockets, and for files where no directory was named. Paths of sockets must be short.
    let scratch = terminal::scratch()?;
    let directory = match &arguments.dir {
        Some(directory) => {
            std::fs::create_dir_all(directory).map_err(|error| {
                Failure::failed(format!("{}: {error}", member::label(directory)))
            })?;
            directory.clone()
        }
        None => scratch.path().to_owned(),
    };
    let files: Vec<PathBuf> =
        (0..FILES).map(|number| directory.join(format!("weft-demo-{number}.img"))).collect();
    for file in &files {
        if file.symlink_metadata().is_ok() {
            return Err(Failure::refused(format!(
                "{}: exists; nothing was written; remove it, or name another --dir",
                member::label(file)
            )));
        }
    }
    let mut passing = if arguments.keep { Vec::new() } else { files.clone() };
    if !(arguments.keep && arguments.dir.is_none()) {
        passing.push(scratch.path().to_owned());
    }
    terminal::remove_when_interrupted(&passing)?;
    let mut tour = Tour { json: arguments.json, start: Instant::now(), steps: Vec::new() };
    let result = day(arguments, &mut tour, &files, scratch.path());
    let kept = arguments.keep;
    if !kept {
        for file in &files {
            // One that was not made yet, or is in a directory that goes as a whole.
            let _ = std::fs::remove_file(file);
        }
    }
    if kept && arguments.dir.is_none() {
        let _ = scratch.keep();
    }
    tour.tell_of_files(&result, &files, kept)?;
    let result = result.and_then(|()| match arguments.skip_patches {
        true => Ok(None),
        false => tour.patches().map(Some),
    });
    tour.end(&result, &files, kept)?;
    result.map(|_| Exit::Done)
}

/// The bad day, step by step.
fn day(
    arguments: &Demo,
    tour: &mut Tour,
    files: &[PathBuf],
    sockets: &Path,
) -> Result<(), Failure> {
    let (four, fifth) = files.split_at(FILES - 1);
    let geometry = tour.step("create", || {
        let geometry = make_files_of_array("5", CHUNK, arguments.member_size, NAME, four)?;
        let text = format!(
            "RAID 5 on 4 sparse files of {}: {} for data; all holes, so parity is right already",
            size::human(arguments.member_size),
            size::human(geometry.array_size().bytes())
        );
        Ok((geometry, Measured::new(text)))
    })?;
    let mut volume = tour.step("serve", || {
        let inside = serve(four, sockets)?;
        let client = connect(&inside)?;
        let text = format!("over NBD at {}, through {}", inside.uri, inside.ready.backend);
        let target = Target::connect(&inside.control.to_string_lossy())?;
        let expected = Expected::zeros(client.size());
        let all = client.size() / BLOCK * BLOCK;
        Ok((
            Used { inside, client, target, expected, all, write: 0, seed: SEED },
            Measured::new(text),
        ))
    })?;
    tour.step("write", || volume.write_all())?;
    tour.step("verify", || volume.verify("read back, every word of it right"))?;
    let failing = four.get(1).ok_or_else(|| Failure::failed("no file to fail"))?;
    tour.step("fail", || volume.fail_amid_writes(failing))?;
    tour.step("degraded", || volume.verify("read without it, reconstructed from the other three"))?;
    let fresh = fifth.first().ok_or_else(|| Failure::failed("no fifth file"))?;
    tour.step("rebuild", || volume.rebuild_amid_writes(fresh, arguments.member_size))?;
    tour.step("verify-rebuilt", || volume.verify("read back after the rebuild"))?;
    let stripes = geometry.member_size().0 / STRIPE_SECTORS;
    tour.step("check", || {
        volume.check("check", stripes, 0..=0, "every stripe read, parity right")
    })?;
    tour.step("flip", || {
        let (text, member) = flip_a_byte(&geometry, files, &mut volume)?;
        let _ = member;
        Ok(((), Measured::new(text)))
    })?;
    tour.step("find", || {
        volume.check("check", stripes, 1..=u64::MAX, "the flipped byte is found")
    })?;
    tour.step("repair", || volume.check("repair", stripes, 1..=u64::MAX, "parity written again"))?;
    tour.step("check-again", || volume.check("check", stripes, 0..=0, "nothing differs any more"))?;
    let Used { mut inside, client, target, expected, all, .. } = volume;
    tour.step("stop", || {
        drop((client, target));
        inside.stop()?;
        Ok(((), Measured::new("flushed, marked clean, members closed".into())))
    })?;
    tour.step("again", || {
        // The file that failed is named as well, and is not to be believed.
        let (inside, refused) = reopen(files, failing, sockets)?;
        let client = connect(&inside)?;
        let target = Target::connect(&inside.control.to_string_lossy())?;
        let mut volume = Used { inside, client, target, expected, all, write: 0, seed: SEED };
        let ((), mut measured) = volume.verify("read after assembling the files again")?;
        volume.inside.stop()?;
        measured.text = format!("{}; {refused}", measured.text);
        Ok(((), measured))
    })?;
    Ok(())
}

/// The volume of the demo, in use.
struct Used {
    inside: Inside,
    client: NbdClient,
    target: Target,
    expected: Expected,
    /// Bytes that are written and verified.
    all: u64,
    /// The last write.
    write: u32,
    seed: u64,
}

/// Requests on their way, with their range.
struct Flight(VecDeque<(u64, std::ops::Range<u64>)>);

impl Used {
    /// Everything once, in order.
    fn write_all(&mut self) -> Result<((), Measured), Failure> {
        let bar = progress("write", self.all);
        let mut flight = Flight(VecDeque::new());
        let start = Instant::now();
        let mut at = 0;
        while at < self.all {
            let len = PIECE.min(self.all - at);
            self.send(&mut flight, at, len)?;
            bar.inc(len);
            at += len;
        }
        self.land(&mut flight, 0)?;
        self.flush()?;
        bar.finish_and_clear();
        let text = "written and flushed; every 8 bytes name their address and their write".into();
        Ok(((), Measured::new(text).bytes(self.all, start.elapsed())))
    }

    /// Everything, compared word by word.
    fn verify(&mut self, what: &str) -> Result<((), Measured), Failure> {
        let bar = progress("verify", self.all);
        let start = Instant::now();
        let mut waiting: VecDeque<(u64, u64)> = VecDeque::new();
        let mut next = 0;
        while next < self.all || !waiting.is_empty() {
            while next < self.all && waiting.len() < DEPTH {
                let len = PIECE.min(self.all - next);
                let cookie = self
                    .client
                    .read(next, u32::try_from(len).unwrap_or(u32::MAX))
                    .map_err(Failure::Failed)?;
                waiting.push_back((cookie, next));
                next += len;
            }
            let answer = self.client.answer().map_err(Failure::Failed)?;
            let found = waiting.iter().position(|(cookie, _)| *cookie == answer.cookie);
            let Some((_, at)) = found.and_then(|index| waiting.remove(index)) else {
                return Err(Failure::failed("an answer to nothing"));
            };
            let data = answer
                .result
                .map_err(|error| Failure::failed(format!("read at byte {at}: {error}")))?;
            self.expected.verify(at, &data).map_err(Failure::Failed)?;
            bar.inc(data.len() as u64);
        }
        bar.finish_and_clear();
        Ok(((), Measured::new(what.to_owned()).bytes(self.all, start.elapsed())))
    }

    /// Random writes; in the middle of them a member fails.
    fn fail_amid_writes(&mut self, member: &Path) -> Result<((), Measured), Failure> {
        let start = Instant::now();
        let mut flight = Flight(VecDeque::new());
        let (mut bytes, mut before) = (0, 0);
        for count in 0..RANDOM_WRITES {
            bytes += self.send_random(&mut flight)?;
            if count == RANDOM_WRITES / 2 {
                before = flight.0.len();
                let members = vec![label(member)];
                self.target.ask(Command::Fail { members })?;
            }
        }
        self.land(&mut flight, 0)?;
        self.flush()?;
        let volume = self.volume()?;
        ensure(volume.degraded == 1, || format!("degraded: found {}", volume.degraded))?;
        let text = format!(
            "{} failed amid {RANDOM_WRITES} random writes, {before} of them on their way; none \
             was lost",
            name(member)
        );
        Ok(((), Measured::new(text).bytes(bytes, start.elapsed())))
    }

    /// A new member is filled while random writes go on.
    fn rebuild_amid_writes(
        &mut self,
        fresh: &Path,
        bytes: Bytes,
    ) -> Result<((), Measured), Failure> {
        let at = |error: std::io::Error| Failure::failed(format!("{}: {error}", label(fresh)));
        let file = std::fs::File::create_new(fresh).map_err(at)?;
        file.set_len(bytes.0).map_err(at)?;
        drop(file);
        let start = Instant::now();
        self.target.ask(Command::Add { members: vec![label(fresh)] })?;
        let bar = progress("rebuild", 0);
        let mut flight = Flight(VecDeque::new());
        let (mut count, mut written) = (0, 0);
        loop {
            // A few writes between two looks; they go on while we look.
            for _ in 0..BURST {
                written += self.send_random(&mut flight)?;
                count += 1;
            }
            let volume = self.volume()?;
            if let Some((done, total)) = volume.sync_completed {
                bar.set_length(total * 512);
                bar.set_position(done * 512);
            }
            if volume.degraded == 0 {
                break;
            }
            ensure(start.elapsed() < REBUILD_MAX, || {
                format!("not rebuilt after {}: {}", took(REBUILD_MAX), volume.sync_action)
            })?;
        }
        bar.finish_and_clear();
        let elapsed = start.elapsed();
        self.land(&mut flight, 0)?;
        self.flush()?;
        let volume = self.volume()?;
        let (done, total) = volume.sync_completed.unwrap_or((0, 0));
        ensure(total > 0 && done == total, || format!("rebuilt {done} of {total} sectors"))?;
        let text = format!(
            "{} rebuilt while {count} writes ({}) went on",
            name(fresh),
            size::human(Bytes(written))
        );
        Ok(((), Measured::new(text).bytes(total * 512, elapsed).stripes(total / STRIPE_SECTORS)))
    }

    /// A check or repair that must read `stripes` stripes and count within the range.
    fn check(
        &mut self,
        action: &'static str,
        stripes: u64,
        count: std::ops::RangeInclusive<u64>,
        what: &str,
    ) -> Result<((), Measured), Failure> {
        let before = self.volume()?;
        let report = sync_action::perform(&mut self.target, action)?;
        let after = self.volume()?;
        ensure(report.stripes == stripes, || {
            format!("{action} passed {} stripes of {stripes}", report.stripes)
        })?;
        // What the members were asked for, not what the action says of itself.
        let mut bytes = 0;
        for member in after.members.iter().filter(|member| member.state == "in_sync") {
            let earlier = before.members.iter().find(|other| other.index == member.index);
            let read = member.sectors_read - earlier.map_or(0, |earlier| earlier.sectors_read);
            bytes += read * 512;
            ensure(read >= stripes * STRIPE_SECTORS, || {
                format!("{action} read {read} sectors of {}, expected all", member.label)
            })?;
        }
        ensure(count.contains(&report.mismatch_cnt), || {
            format!("{action}: mismatch_cnt: found {}, expected {count:?}", report.mismatch_cnt)
        })?;
        let text = format!("{what}; mismatch_cnt {}", report.mismatch_cnt);
        Ok(((), Measured::new(text).bytes(bytes, report.took).stripes(stripes)))
    }

    /// A write of one to 64 blocks somewhere, apart from those on their way.
    fn send_random(&mut self, flight: &mut Flight) -> Result<u64, Failure> {
        loop {
            let blocks = self.all / BLOCK;
            // Mostly small ones, as a busy day has them.
            let len = if self.random(4) == 0 { 1 + self.random(64) } else { 1 + self.random(4) };
            let len = len.min(blocks);
            let at = self.random(blocks - len + 1) * BLOCK;
            let len = len * BLOCK;
            let apart = |(_, other): &(u64, std::ops::Range<u64>)| {
                at + len <= other.start || other.end <= at
            };
            if flight.0.iter().all(apart) {
                self.send(flight, at, len)?;
                return Ok(len);
            }
        }
    }

    fn send(&mut self, flight: &mut Flight, at: u64, len: u64) -> Result<(), Failure> {
        self.land(flight, DEPTH - 1)?;
        self.write += 1;
        let data = pattern::fill(self.write, at, len);
        let cookie = self.client.write(at, &data).map_err(Failure::Failed)?;
        self.expected.written(self.write, at, len);
        flight.0.push_back((cookie, at..at + len));
        Ok(())
    }

    /// Waits until at most `count` writes are on their way.
    fn land(&mut self, flight: &mut Flight, count: usize) -> Result<(), Failure> {
        while flight.0.len() > count {
            let answer = self.client.answer().map_err(Failure::Failed)?;
            let index = flight.0.iter().position(|(cookie, _)| *cookie == answer.cookie);
            let range = index.and_then(|index| flight.0.remove(index)).map(|(_, range)| range);
            if let Err(error) = answer.result {
                return Err(Failure::failed(format!("write of bytes {range:?}: {error}")));
            }
        }
        Ok(())
    }

    fn flush(&mut self) -> Result<(), Failure> {
        let cookie = self.client.flush().map_err(Failure::Failed)?;
        self.client.finish(cookie).map(drop).map_err(Failure::Failed)
    }

    fn volume(&mut self) -> Result<VolumeStatus, Failure> {
        let status = self.target.status()?;
        only_volume(NAME, &status).cloned()
    }

    /// Below `bound`. The same numbers every day.
    ///
    /// Source   G. Marsaglia, "Xorshift RNGs", the triple 13, 7, 17
    fn random(&mut self, bound: u64) -> u64 {
        self.seed ^= self.seed << 13;
        self.seed ^= self.seed >> 7;
        self.seed ^= self.seed << 17;
        self.seed % bound.max(1)
    }
}

/// Changes one byte of parity in a file, behind the server's back: on data, repair would have to
/// guess which of data and parity is right, and takes data, as md does.
fn flip_a_byte(
    geometry: &Geometry,
    files: &[PathBuf],
    volume: &mut Used,
) -> Result<(String, PathBuf), Failure> {
    let full_stripe = FullStripe(geometry.member_size().0 / geometry.chunk().0 / 3);
    let slot = geometry.placement(full_stripe).p;
    let status = volume.volume()?;
    let held = status.members.iter().find(|member| member.slot == Some(slot.0));
    let path = held
        .and_then(|member| files.iter().find(|file| label(file) == member.label))
        .ok_or_else(|| Failure::failed(format!("no file holds slot {}", slot.0)))?;
    let superblock = Looked::open(path)?.superblock().map_err(Failure::Failed)?;
    let sector = superblock.data_offset().0 + full_stripe.0 * geometry.chunk().0;
    let byte = sector * 512 + 1234;
    let at = |error: std::io::Error| Failure::failed(format!("{}: {error}", label(path)));
    let file = std::fs::File::options().read(true).write(true).open(path).map_err(at)?;
    let mut old = [0];
    file.read_exact_at(&mut old, byte).map_err(at)?;
    file.write_all_at(&[old[0] ^ 0x10], byte).map_err(at)?;
    file.sync_all().map_err(at)?;
    let text = format!("one bit of byte {byte} of {}, in the parity of a stripe", name(path));
    Ok((text, path.clone()))
}

/// All five files, read-only; what was said of the one that had failed.
fn reopen(files: &[PathBuf], failed: &Path, sockets: &Path) -> Result<(Inside, String), Failure> {
    let volume = Opening::read_only().open(files)?;
    let assembly = &volume.assembly;
    ensure(assembly.degraded() == 0, || "the array is degraded".into())?;
    ensure(assembly.resync_from.is_none(), || "the array is dirty".into())?;
    let dropped = assembly.dropped.iter().find(|dropped| dropped.member.label == label(failed));
    let dropped =
        dropped.ok_or_else(|| Failure::failed("the file that had failed is believed again"))?;
    let text = format!("{} is not believed: {}", name(failed), dropped.reason);
    Ok((Inside::start(volume, Knobs::default(), NAME, sockets)?, text))
}

fn serve(files: &[PathBuf], sockets: &Path) -> Result<Inside, Failure> {
    Inside::start(Opening::default().open(files)?, Knobs::default(), NAME, sockets)
}

fn connect(inside: &Inside) -> Result<NbdClient, Failure> {
    NbdClient::connect(&inside.uri).map_err(Failure::Failed)
}

/// A file as the server calls it.
fn label(path: &Path) -> String {
    crate::volume::spec(path).label
}

fn name(path: &Path) -> String {
    path.file_name().map(|name| member::label(Path::new(name))).unwrap_or_default()
}

fn ensure(holds: bool, otherwise: impl FnOnce() -> String) -> Result<(), Failure> {
    if holds { Ok(()) } else { Err(Failure::Failed(otherwise())) }
}

/// Measurements of a step.
struct Measured {
    text: String,
    numbers: Map<String, Value>,
}

impl Measured {
    fn new(text: String) -> Self {
        Self { text, numbers: Map::new() }
    }

    fn bytes(mut self, bytes: u64, span: Duration) -> Self {
        self.numbers.insert("bytes".into(), json!(bytes));
        let rate = bytes as f64 / 1e6 / span.as_secs_f64().max(1e-9);
        self.numbers.insert("mb_per_s".into(), json!((rate * 10.0).round() / 10.0));
        self
    }

    fn stripes(mut self, stripes: u64) -> Self {
        self.numbers.insert("stripes".into(), json!(stripes));
        self
    }

    /// `189 MiB, 512 MB/s, 16128 stripes`.
    fn numbers_text(&self) -> String {
        let number = |name: &str| self.numbers.get(name).and_then(Value::as_u64);
        let mut parts = Vec::new();
        if let Some(stripes) = number("stripes") {
            parts.push(format!("{stripes} stripes"));
        }
        if let Some(bytes) = number("bytes") {
            parts.push(size::human(Bytes(bytes)));
        }
        if let Some(rate) = self.numbers.get("mb_per_s").and_then(Value::as_f64) {
            parts.push(format!("{rate:.0} MB/s"));
        }
        parts.join(", ")
    }
}

/// State of the tour.
struct Tour {
    json: bool,
    start: Instant,
    steps: Vec<Value>,
}

impl Tour {
    /// Does a step, measures it, tells how it went.
    fn step<T>(
        &mut self,
        name: &'static str,
        work: impl FnOnce() -> Result<(T, Measured), Failure>,
    ) -> Result<T, Failure> {
        let waiting = self.waiting(name);
        let start = Instant::now();
        let result = work();
        let span = start.elapsed();
        waiting.finish_and_clear();
        let millis = u64::try_from(span.as_millis()).unwrap_or(u64::MAX);
        match result {
            Ok((value, measured)) => {
                if !self.json {
                    let mut out = stdout();
                    let (green, bold, plain) = (style::GREEN, style::BOLD, style::PLAIN);
                    let numbers = measured.numbers_text();
                    let open =
                        if numbers.is_empty() { String::new() } else { format!("{numbers}, ") };
                    writeln!(
                        out,
                        "{green}✓{plain} {bold}{name:<14}{plain} {} ({open}{})",
                        measured.text,
                        took(span)
                    )?;
                    out.flush()?;
                }
                let mut step = measured.numbers;
                step.insert("name".into(), json!(name));
                step.insert("ok".into(), json!(true));
                step.insert("text".into(), json!(measured.text));
                step.insert("duration_ms".into(), json!(millis));
                self.steps.push(Value::Object(step));
                Ok(value)
            }
            Err(failure) => {
                if !self.json {
                    let mut out = stdout();
                    let (red, bold, plain) = (style::RED, style::BOLD, style::PLAIN);
                    writeln!(out, "{red}✗{plain} {bold}{name:<14}{plain} ({})", took(span))?;
                    out.flush()?;
                }
                let text = match &failure {
                    Failure::Failed(text) | Failure::Usage(text) | Failure::Refused(text) => text,
                    Failure::BrokenPipe => "standard output is closed",
                };
                self.steps
                    .push(json!({"name": name, "ok": false, "text": text, "duration_ms": millis}));
                Err(failure)
            }
        }
    }

    /// Shows on a terminal which step goes on, for those without a bar.
    fn waiting(&self, name: &'static str) -> ProgressBar {
        if self.json || !matches!(name, "create" | "serve" | "stop") {
            return ProgressBar::hidden();
        }
        let bar = progress(name, 0);
        bar.tick();
        bar
    }

    /// Published patches, before and with them.
    fn patches(&mut self) -> Result<Reproduced, Failure> {
        self.step("patches", || {
            let all = Reproduced::quick()?;
            let measured = Measured::new(all.summary());
            Ok((all, measured))
        })
    }

    /// Where the files of the bad day are.
    fn tell_of_files(
        &self,
        result: &Result<(), Failure>,
        files: &[PathBuf],
        kept: bool,
    ) -> Result<(), Failure> {
        if self.json || result.is_err() {
            return Ok(());
        }
        let mut out = stdout();
        writeln!(out, "\nThe day took {}.", took(self.start.elapsed()))?;
        if kept {
            // The second file has failed and the fifth has taken its place.
            let members: Vec<String> = files
                .iter()
                .enumerate()
                .filter(|(index, _)| *index != 1)
                .map(|(_, file)| quoted(label(file).as_ref()))
                .collect();
            let members = members.join(" ");
            writeln!(
                out,
                "The files stay. Read them with\n  weft cat {members} | head -c 64 | xxd"
            )?;
            writeln!(
                out,
                "Linux md takes them as well; as root:\n  mdadm --assemble /dev/md/{NAME} $(for f in \
                 {members}; do losetup --find --show \"$f\"; done)"
            )?;
        } else {
            writeln!(
                out,
                "The files are gone. weft demo --keep --dir DIR leaves them there, and says how \
                 Linux md takes them:\n  mdadm --assemble /dev/md/{NAME} LOOP-DEVICE…"
            )?;
        }
        out.flush()?;
        Ok(())
    }

    /// What was measured of the patches; as JSON everything.
    fn end(
        &self,
        result: &Result<Option<Reproduced>, Failure>,
        files: &[PathBuf],
        kept: bool,
    ) -> Result<(), Failure> {
        let patches = result.as_ref().ok().and_then(Option::as_ref);
        if self.json {
            let names: Vec<String> = files.iter().map(|file| label(file)).collect();
            let mut sheet = json!({
                "schema": "weft.demo/2",
                "ok": result.is_ok(),
                "duration_ms": u64::try_from(self.start.elapsed().as_millis()).unwrap_or(u64::MAX),
                "files": if kept { names } else { Vec::new() },
                "steps": self.steps,
            });
            if let Some(patches) = patches {
                sheet["patches"] = patches.to_json();
            }
            return Ok(print_json(&sheet)?);
        }
        let Some(patches) = patches else { return Ok(()) };
        patches.print_rows()?;
        let mut out = stdout();
        writeln!(
            out,
            "\nAll of it in {}. weft reproduce says why, with more runs; --report FILE.html draws it.",
            took(self.start.elapsed())
        )?;
        out.flush()?;
        Ok(())
    }
}

/// Name of the array.
const NAME: &str = "weft-demo";
/// Four, and one to take the place of another.
const FILES: usize = 5;
/// Small, so that every write meets several chunks.
const CHUNK: Bytes = Bytes::kib(64);
/// Bytes of a large request.
const PIECE: u64 = 1 << 20;
/// Requests on their way.
const DEPTH: usize = 16;
/// Enough to meet every state of the cache, few enough for a second or two.
const RANDOM_WRITES: usize = 2000;
/// Writes between two looks at a rebuild.
const BURST: usize = 16;
/// Far more than any machine needs.
const REBUILD_MAX: Duration = Duration::from_secs(300);
const SEED: u64 = 0x7765_6674_2d64_656d;
