//! Reads of a dying disk, each with a time limit (`weft_runtime::timed`).

use std::io::{self, ErrorKind};
use std::ops::Range;
use std::os::fd::AsFd;
use std::path::Path;
use std::time::Duration;

use rustix::fs::Advice;
use rustix::io::Errno;
use weft_runtime::devices::{Access, IoMode, MemberSpec, OpenMember, OpenOptions};
use weft_runtime::timed::{ChildReads, ReadFault};
use weft_terminal::outcome::Failure;
use weft_terminal::terminal::label;
use weft_units::MemberIndex;

use crate::volume;

/// A disk that is copied.
pub(crate) struct Disk {
    member: OpenMember,
    label: String,
    size: u64,
    /// Longest time that a read may take; `None` for no limit.
    limit: Option<Duration>,
    reads: ChildReads,
}

/// Result of a read.
#[derive(Debug)]
pub(crate) enum Got {
    /// Bytes from the start of the range on; fewer than were asked for if the rest failed.
    Bytes(Vec<u8>),
    /// The read failed, without any bytes.
    Failed,
    /// The read took longer than the limit.
    TimedOut,
}

impl Disk {
    /// Opens a whole disk or image for reading. Block devices are read past the page cache, so that
    /// a bad sector does not fail those around it.
    ///
    /// # Errors
    /// The path cannot be opened, is only a part of a disk, or is empty.
    pub(crate) fn open(path: &Path, limit: Option<Duration>) -> Result<Self, Failure> {
        let label = label(path);
        let mut spec = MemberSpec::path(path);
        spec.label.clone_from(&label);
        if spec.is_part() {
            return Err(Failure::usage(format!(
                "{label}: found a part of a disk, expected a disk, a partition's device or an image"
            )));
        }
        // A file is read through the page cache, which has the data that is not yet on its disk; a
        // file has no sectors that can fail alone.
        let is_file = path.metadata().is_ok_and(|found| found.is_file());
        let options = OpenOptions { buffered: is_file, ..OpenOptions::new(Access::ReadOnly) };
        let member =
            options.open(&spec, MemberIndex(0), []).map_err(|error| volume::device(&error))?;
        let size = match is_file {
            true => path.metadata()?.len(),
            false => member.info().size.bytes().0,
        };
        if member.mode() == IoMode::Buffered {
            // An error is ignored: without the advice more is read ahead.
            let _ = rustix::fs::fadvise(&member, 0, None, Advice::Random);
        }
        Ok(Self { member, label, size, limit, reads: ChildReads::default() })
    }

    pub(crate) fn label(&self) -> &str {
        &self.label
    }

    /// Size in bytes; that of a file may not be a multiple of the sector.
    pub(crate) fn size(&self) -> u64 {
        self.size
    }

    /// Logical block size in bytes; 512 for a file.
    pub(crate) fn logical_block(&self) -> u64 {
        self.member.info().logical_block.into()
    }

    /// Reads a range, which may take long. Calls `wait` about once a second while the disk does not
    /// answer.
    ///
    /// # Errors
    /// The disk is gone, so that further reads are pointless.
    pub(crate) fn read(
        &mut self,
        range: &Range<u64>,
        wait: &mut dyn FnMut(),
    ) -> Result<Got, Failure> {
        // If the disk is an image with a map beside it, bytes that the map does not have fail.
        if self.member.rescued().is_some_and(|map| map.misses(range)) {
            return Ok(Got::Failed);
        }
        // Maps of other programs may have areas that are not whole blocks.
        let block = self.logical_block();
        let start = range.start / block * block;
        let end = range.end.next_multiple_of(block);
        let skip = usize::try_from(range.start - start).map_err(Failure::failed)?;
        let most = usize::try_from(range.end - range.start).map_err(Failure::failed)?;
        let result = self.ask(start, end - start, wait)?;
        match result {
            Ok(mut bytes) => {
                bytes.drain(..skip.min(bytes.len()));
                bytes.truncate(most);
                let is_cut = bytes.len() < most && self.member.is_cut();
                if is_cut {
                    Err(self.gone("is shorter than it was"))
                } else {
                    Ok(Got::Bytes(bytes))
                }
            }
            Err(ErrorKind::TimedOut) => Ok(Got::TimedOut),
            Err(_) => Ok(Got::Failed),
        }
    }

    /// Asks the reading process for `len` bytes from byte `start` on, and waits for its answer. The
    /// inner error is that of the read.
    fn ask(
        &mut self,
        start: u64,
        len: u64,
        wait: &mut dyn FnMut(),
    ) -> Result<Result<Vec<u8>, ErrorKind>, Failure> {
        let len = usize::try_from(len).map_err(Failure::failed)?;
        match self.reads.read(self.member.as_fd(), (start, len), self.limit, wait) {
            Ok(bytes) => Ok(Ok(bytes)),
            Err(ReadFault::Child(error)) => {
                Err(Failure::failed(format!("the reading process: {error}")))
            }
            Err(ReadFault::Disk(error)) => {
                self.still_there(&error)?;
                Ok(Err(ErrorKind::Other))
            }
            Err(ReadFault::TimedOut) if self.reads.hanging() < HANGING_MAX => {
                Ok(Err(ErrorKind::TimedOut))
            }
            Err(ReadFault::TimedOut) => {
                Err(self.gone(&format!("has not ended {HANGING_MAX} reads, some of them for long")))
            }
        }
    }

    /// Fails if an error of a read means that the disk is gone.
    fn still_there(&self, error: &io::Error) -> Result<(), Failure> {
        let gone = [Errno::NODEV, Errno::NXIO, Errno::NOTCONN, Errno::STALE, Errno::BADF];
        let code = error.raw_os_error().unwrap_or_default();
        if gone.iter().any(|errno| errno.raw_os_error() == code) {
            return Err(self.gone(&format!("cannot be read any more: {error}")));
        }
        let is_device = self.member.device_number().is_some();
        // A device that was unplugged has the size 0.
        if is_device && rustix::fs::seek(&self.member, rustix::fs::SeekFrom::End(0)) == Ok(0) {
            return Err(self.gone("was unplugged or has stopped"));
        }
        Ok(())
    }

    fn gone(&self, what: &str) -> Failure {
        Failure::failed(format!("{}: {what}; switch it off and on", self.label))
    }
}

/// Number of hanging reads from which on a disk counts as gone: while it is busy with them, it
/// answers no others.
const HANGING_MAX: usize = 8;
