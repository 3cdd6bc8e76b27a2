//! Writing of a new array, and restoring of the previous contents after a failure.

use std::io::ErrorKind;
use std::path::PathBuf;
use std::time::Duration;

use weft_ondisk::SUPER_BYTES;
use weft_runtime::devices::{Access, FreshFile, OpenMember, OpenOptions, sync_name};
use weft_terminal::outcome::Failure;
use weft_terminal::terminal::complain;
use weft_units::{MemberIndex, Sectors};

use super::MemberWrite;
use crate::volume;

/// Member that is open for writing, with its previous contents.
struct Opened<'a> {
    member: OpenMember,
    write: &'a MemberWrite,
    /// Previous contents of the blocks that are overwritten, each with its sector.
    before: Vec<(Sectors, Vec<u8>)>,
}

pub(super) fn write_all(writes: &[MemberWrite]) -> Result<(), Failure> {
    let mut made = Vec::new();
    let mut opened = Vec::with_capacity(writes.len());
    let result = make_files(writes, &mut made)
        .and_then(|()| open_for_writing(writes, &mut opened))
        .and_then(|()| put(&opened));
    if result.is_err() {
        put_back(&opened, &made);
    }
    result
}

/// Creates the files of the plan, and records in `made` those that have to be removed after a
/// failure.
fn make_files(writes: &[MemberWrite], made: &mut Vec<PathBuf>) -> Result<(), Failure> {
    for write in writes {
        let failed = |error: std::io::Error| Failure::failed(format!("{}: {error}", write.label));
        let Some(bytes) = write.make else { continue };
        let file = FreshFile::create_or_open(&write.path).map_err(|error| match error.kind() {
            ErrorKind::AlreadyExists => Failure::refused(format!(
                "{}: was made by another process meanwhile; nothing was written; try again",
                write.label
            )),
            _ => failed(error),
        })?;
        if file.is_new() {
            made.push(write.path.clone());
        }
        file.set_len(bytes).map_err(failed)?;
    }
    Ok(())
}

fn open_for_writing<'a>(
    writes: &'a [MemberWrite],
    opened: &mut Vec<Opened<'a>>,
) -> Result<(), Failure> {
    let options = OpenOptions {
        buffered: true,
        lock_wait: Duration::ZERO,
        ..OpenOptions::new(Access::ReadWrite)
    };
    for (write, index) in writes.iter().zip(0..) {
        let others = opened.iter().map(|opened| &opened.member);
        let member = options
            .open(&volume::spec(&write.path), MemberIndex(index), others)
            .map_err(|error| volume::device(&error))?;
        let mut before = Vec::new();
        if write.make.is_none() {
            let own = write.superblock.super_offset;
            let superblocks = std::iter::once(&own).chain(&write.erase);
            let places = superblocks.map(|place| (place, SUPER_BYTES));
            let bitmap = write.bitmap.iter().map(|(place, bytes)| (place, bytes.len()));
            for (place, len) in places.chain(bitmap) {
                let block = member.read(*place, len);
                let block =
                    block.map_err(|error| Failure::failed(format!("{}: {error}", write.label)))?;
                before.push((*place, block.as_ref().to_vec()));
            }
        }
        opened.push(Opened { member, write, before });
    }
    Ok(())
}

fn put(opened: &[Opened<'_>]) -> Result<(), Failure> {
    for Opened { member, write, .. } in opened {
        let failed = |error: std::io::Error| Failure::failed(format!("{}: {error}", write.label));
        for place in &write.erase {
            member.write_all_at(&[0; SUPER_BYTES], place.bytes()).map_err(failed)?;
        }
        if let Some((place, bitmap)) = &write.bitmap {
            member.write_all_at(bitmap, place.bytes()).map_err(failed)?;
        }
        let superblock = &write.superblock;
        member
            .write_all_at(&superblock.encode(), superblock.super_offset.bytes())
            .map_err(failed)?;
    }
    for Opened { member, write, .. } in opened {
        member.sync().map_err(|error| Failure::failed(format!("{}: {error}", write.label)))?;
        if write.make.is_some() {
            sync_name(&write.path);
        }
    }
    Ok(())
}

/// Undoes all writes after a failure, so that no partial array remains.
fn put_back(opened: &[Opened<'_>], made: &[PathBuf]) {
    for Opened { member, write, before } in opened {
        for (place, block) in before {
            if let Err(error) = member.write_all_at(block, place.bytes()) {
                complain(&format!("{}: putting back what was there: {error}", write.label));
            }
        }
        let _ = member.sync();
    }
    for path in made {
        let _ = std::fs::remove_file(path);
    }
}
