//! Writing of a new array, and restoring of the previous contents after a failure.

use std::fs::File;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::io::Errno;
use weft_ondisk::SUPER_BYTES;
use weft_runtime::devices::{Access, OpenMember, OpenOptions};
use weft_units::{MemberIndex, Sectors};

use super::MemberWrite;
use crate::outcome::Failure;
use crate::terminal::complain;
use crate::volume;

/// A member open for writing, with its previous contents.
struct Opened<'a> {
    member: OpenMember,
    write: &'a MemberWrite,
    /// Contents of every block to be overwritten.
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

/// Creates the files of the plan, and records those to remove after a failure.
fn make_files(writes: &[MemberWrite], made: &mut Vec<PathBuf>) -> Result<(), Failure> {
    for write in writes {
        let failed = |error: std::io::Error| Failure::failed(format!("{}: {error}", write.label));
        let Some(bytes) = write.make else { continue };
        let file = match File::create_new(&write.path) {
            Ok(file) => {
                made.push(write.path.clone());
                file
            }
            // The file exists; it must be empty.
            Err(error) if error.kind() == ErrorKind::AlreadyExists => {
                let file = File::options().write(true).open(&write.path).map_err(failed)?;
                if file.metadata().map_err(failed)?.len() != 0 {
                    return Err(Failure::refused(format!(
                        "{}: was made by somebody else meanwhile; nothing was written; try again",
                        write.label
                    )));
                }
                file
            }
            Err(error) => return Err(failed(error)),
        };
        file.set_len(bytes.0).map_err(failed)?;
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
            write_at(member, *place, &[0; SUPER_BYTES]).map_err(failed)?;
        }
        if let Some((place, bitmap)) = &write.bitmap {
            write_at(member, *place, bitmap).map_err(failed)?;
        }
        let superblock = &write.superblock;
        write_at(member, superblock.super_offset, &superblock.encode()).map_err(failed)?;
    }
    for Opened { member, write, .. } in opened {
        let failed = |error: Errno| Failure::failed(format!("{}: {error}", write.label));
        rustix::fs::fsync(member).map_err(failed)?;
        if write.make.is_some() {
            let parent = match write.path.parent() {
                Some(parent) if parent != Path::new("") => parent,
                _ => Path::new("."),
            };
            // An error is ignored: some file systems cannot flush directories, and the file itself
            // is safe.
            let _ = File::open(parent).and_then(|directory| directory.sync_all());
        }
    }
    Ok(())
}

fn write_at(member: &OpenMember, at: Sectors, bytes: &[u8]) -> std::io::Result<()> {
    let mut written = 0;
    while written < bytes.len() {
        let offset = member.start().0 + at.bytes().0 + written as u64;
        match rustix::io::pwrite(member, &bytes[written..], offset) {
            Ok(0) => return Err(ErrorKind::WriteZero.into()),
            Ok(count) => written += count,
            Err(Errno::INTR) => {}
            Err(errno) => return Err(errno.into()),
        }
    }
    Ok(())
}

/// Undoes the writes, so a failure leaves no partial array.
fn put_back(opened: &[Opened<'_>], made: &[PathBuf]) {
    for Opened { member, write, before } in opened {
        for (place, block) in before {
            if let Err(error) = write_at(member, *place, block) {
                complain(&format!("{}: putting back what was there: {error}", write.label));
            }
        }
        let _ = rustix::fs::fsync(member);
    }
    for path in made {
        let _ = std::fs::remove_file(path);
    }
}
