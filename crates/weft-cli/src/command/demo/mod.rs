//! `weft demo`: a guided tour of an array on files, with a failure, a rebuild and a repair.
//!
//! A RAID 5 volume on files goes through a bad day: it is served over NBD, written and verified, a
//! member fails in the middle of the writes and is rebuilt on a fifth file while writes go on, a
//! check reads every stripe, and a flipped byte is found and repaired. Every byte goes through the
//! same server, engine and protocol as with `weft serve`. Each step is measured and asserted; the
//! first failure ends the demo. `--patches` then runs the same engine on simulated disks, before
//! and with the patches that `weft reproduce` knows.

mod tour;
mod use_volume;

use weft_terminal::outcome::{Exit, Failure, Outcome};
use weft_terminal::terminal;

use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::time::Instant;

use clap::Args;
use weft_engine::knobs::Knobs;
use weft_engine::layout::geometry::Geometry;
use weft_export::client::NbdClient;
use weft_units::{Bytes, FullStripe};

use crate::inside::Inside;
use crate::look::Looked;
use crate::new_array::make_files_of_array;
use crate::pattern::{BLOCK, Expected};
use crate::size;
use crate::sync_action::STRIPE_SECTORS;
use crate::target::Target;
use crate::volume::Opening;
use tour::{Measured, Tour};
use use_volume::Used;

/// Shows what weft does, on files made on the spot: the guided tour
///
/// Makes four sparse files, a RAID 5 array of them, and takes it through a bad day, in less than a
/// minute. Needs neither root nor anything installed. Exit status: 0, or 1 when a step failed.
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
    /// Then measure published patches again, as a quick weft reproduce does: two minutes more
    #[arg(long)]
    patches: bool,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

pub(crate) fn run(arguments: &Demo) -> Outcome {
    if !(Bytes::mib(8)..=Bytes::mib(16 << 10)).contains(&arguments.member_size) {
        return Err(Failure::usage("--member-size: expected 8M to 16G"));
    }
    // Directory for sockets, and for files unless --dir names one. Paths of sockets must be short.
    let scratch = terminal::scratch()?;
    let directory = match &arguments.dir {
        Some(directory) => {
            std::fs::create_dir_all(directory).map_err(|error| {
                Failure::failed(format!("{}: {error}", terminal::label(directory)))
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
                terminal::label(file)
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
            // An error is ignored: the file may not exist yet, or its directory is removed as a
            // whole.
            let _ = std::fs::remove_file(file);
        }
    }
    if kept && arguments.dir.is_none() {
        let _ = scratch.keep();
    }
    tour.tell_of_files(&result, &files, kept)?;
    let result = result.and_then(|()| match arguments.patches {
        true => tour.patches().map(Some),
        false => Ok(None),
    });
    tour.end(&result, &files, kept)?;
    result.map(|_| Exit::Done)
}

/// Runs the steps of the demo on `files`.
fn day(
    arguments: &Demo,
    tour: &mut Tour,
    files: &[PathBuf],
    sockets: &Path,
) -> Result<(), Failure> {
    let (four, fifth) = files.split_at(FILES - 1);
    let geometry = tour.step("create", || {
        let made = make_files_of_array("5", CHUNK, arguments.member_size, NAME, four)?;
        let geometry = made.parity().cloned().ok_or_else(|| Failure::failed("no parity"))?;
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
        // The failed file is named as well, and must not be used.
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

/// Changes one byte of parity in a file without the server's knowledge. Returns a text about the
/// change, and the file. Parity is changed and not data, because a repair trusts data, as md does,
/// and would keep the error.
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

/// Opens all five files read-only and serves the array. Also returns the reason why the assembly
/// does not use the failed file.
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

/// Label of a file: its path as the server reports it.
fn label(path: &Path) -> String {
    crate::volume::spec(path).label
}

fn name(path: &Path) -> String {
    path.file_name().map(|name| terminal::label(Path::new(name))).unwrap_or_default()
}

fn ensure(holds: bool, otherwise: impl FnOnce() -> String) -> Result<(), Failure> {
    if holds { Ok(()) } else { Err(Failure::Failed(otherwise())) }
}

/// Name of the demo's array.
const NAME: &str = "weft-demo";
/// Number of files: four members and a replacement.
const FILES: usize = 5;
/// Chunk size of the array: so small that most writes cover several chunks.
const CHUNK: Bytes = Bytes::kib(64);
const SEED: u64 = 0x7765_6674_2d64_656d;
