//! `weft cat`: what does an array contain?
//!
//! Reads through the engine, read-only, so that missing members are reconstructed and stale ones are
//! not believed. Writes nothing to any member.

use std::collections::VecDeque;
use std::io::{self, Write};
use std::path::PathBuf;

use clap::Args;
use weft_engine::assemble::Options;
use weft_engine::knobs::Knobs;
use weft_units::Bytes;

use crate::inside::Inside;
use crate::member::{self, MemberArg};
use crate::nbd::NbdClient;
use crate::outcome::{Exit, Failure, Outcome};
use crate::terminal::{complain, progress};
use crate::volume::Opening;
use crate::{size, terminal};

use super::assemble::{Selection, tell_dropped};

/// Writes the content of an array to standard output
///
/// Never writes to a member. Members that are missing are reconstructed from the others. Sizes are in bytes, or take K, M, G, T
/// (binary) or sectors with s.
#[derive(Debug, Args)]
pub(crate) struct Cat {
    /// First byte
    #[arg(long, value_name = "SIZE", default_value = "0", value_parser = size::bytes)]
    offset: Bytes,
    /// How much [default: up to the end]
    #[arg(long, value_name = "SIZE", value_parser = size::bytes)]
    length: Option<Bytes>,
    /// Read an array that is dirty and degraded: what is reconstructed may be wrong
    #[arg(long)]
    force_dirty: bool,
    /// Read an array without its journal: data may be old or wrong
    #[arg(long)]
    without_journal: bool,
    /// With the changes of serve --overlay DIR
    #[arg(long, value_name = "DIR")]
    overlay: Option<PathBuf>,
    #[command(flatten)]
    selection: Selection,
    /// Files, block devices, or parts of them: PATH, PATH#N (partition N), PATH@OFFSET[+LENGTH]
    #[arg(value_name = "MEMBER", required = true, value_parser = MemberArg::parser())]
    members: Vec<MemberArg>,
}

pub(crate) fn run(arguments: &Cat) -> Outcome {
    let paths = member::paths(&arguments.members).map_err(Failure::Usage)?;
    let mut opening = Opening::read_only();
    opening.options = Options {
        read_only: true,
        force_dirty: arguments.force_dirty,
        without_journal: arguments.without_journal,
        ..arguments.selection.options()?
    };
    opening.overlay.clone_from(&arguments.overlay);
    let volume = opening.open(&paths)?;
    let assembly = &volume.assembly;
    tell_dropped(&volume.not_used);
    for note in &assembly.notes {
        complain(&format!("note: {note}"));
    }
    let all = assembly.geometry.array_size().bytes().0;
    let range = range(arguments, all)?;
    let directory = terminal::scratch()?;
    terminal::remove_when_interrupted(&[directory.path().to_owned()])?;
    let mut inside = Inside::start(volume, Knobs::default(), "cat", directory.path())?;
    let mut client = NbdClient::connect(&inside.uri).map_err(Failure::Failed)?;
    let result = copy(&mut client, range);
    drop(client);
    // An error of the server explains one of the connection.
    inside.stop()?;
    result.map(|()| Exit::Done)
}

/// From where to where.
fn range(arguments: &Cat, all: u64) -> Result<std::ops::Range<u64>, Failure> {
    let Bytes(start) = arguments.offset;
    if start > all {
        return Err(Failure::usage(format!("--offset: found {start}, expected at most {all}")));
    }
    let rest = all - start;
    let len = arguments.length.map_or(rest, |length| length.0);
    if len > rest {
        return Err(Failure::usage(format!(
            "--length: found {len}, expected at most {rest} after --offset {start}"
        )));
    }
    Ok(start..start + len)
}

/// In order, with several reads on their way.
fn copy(client: &mut NbdClient, range: std::ops::Range<u64>) -> Result<(), Failure> {
    let bar = progress("cat", range.end - range.start);
    let mut out = io::stdout().lock();
    let mut next = range.start;
    let mut waiting: VecDeque<(u64, u64)> = VecDeque::new();
    let mut here = std::collections::BTreeMap::new();
    loop {
        while next < range.end && waiting.len() < READS_MAX {
            let len = (range.end - next).min(READ_BYTES);
            let cookie = client
                .read(next, u32::try_from(len).unwrap_or(u32::MAX))
                .map_err(Failure::Failed)?;
            waiting.push_back((cookie, next));
            next += len;
        }
        let Some((first, offset)) = waiting.front().copied() else { break };
        if let Some(data) = here.remove(&first) {
            waiting.pop_front();
            let data: Vec<u8> = data;
            out.write_all(&data)?;
            bar.inc(data.len() as u64);
            continue;
        }
        let answer = client.answer().map_err(Failure::Failed)?;
        match answer.result {
            Ok(data) => {
                here.insert(answer.cookie, data);
            }
            Err(error) => {
                let place = waiting.iter().find(|(cookie, _)| *cookie == answer.cookie);
                let place = place.map_or(offset, |(_, offset)| *offset);
                return Err(Failure::failed(format!(
                    "read of {READ_BYTES} bytes at byte {place}: {error}; what came before it was \
                     written"
                )));
            }
        }
    }
    out.flush()?;
    bar.finish_and_clear();
    Ok(())
}

/// A few chunk rows of common arrays, so that every member is busy.
const READ_BYTES: u64 = 1 << 20;

/// Reads on their way: enough to keep members busy, 8 MiB of memory.
const READS_MAX: usize = 8;
