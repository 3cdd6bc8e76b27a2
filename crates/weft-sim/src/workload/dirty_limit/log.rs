//! Log of a file system: a commit every 5 s.
//!
//! A commit writes the blocks of the log. ext4 then writes a commit block that confirms them, with
//! PREFLUSH and FUA; XFS is mounted with `nobarrier`.

use weft_engine::{Flags, RequestOp};
use weft_units::{ByteRange, Bytes, Span, Time, VolumeId};

use super::places::FileSystem;
use crate::machine::{Host, Pid, Process, Woken};

/// Size of the log.
const LOG: Bytes = Bytes(128 << 20);
/// Length of the blocks of the log in a commit. `COMMIT` is the length of the commit block that
/// confirms them.
const BLOCKS: Bytes = Bytes(32 << 10);
const COMMIT: Bytes = Bytes(4 << 10);
/// Time between two commits of a log: that of ext4, assumed for XFS too.
pub(super) const LOG_EVERY: Span = Span::secs(5);

/// The thread that commits the log of one file system.
#[derive(Debug)]
pub(super) struct LogThread {
    pid: Pid,
    volume: VolumeId,
    file_system: FileSystem,
    /// First byte of the log on the volume.
    first: u64,
    /// Offset in bytes of the next write within the log.
    at: u64,
    /// Time of the first commit.
    start: Time,
    step: Step,
}

/// Step of the present commit; `Idle` between commits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Step {
    Idle,
    Blocks,
    Commit,
}

impl LogThread {
    /// Creates the thread for a volume of this size. Its first commit is at `start`. The log is in
    /// the middle, where `mkfs` of both file systems places it.
    pub(super) fn new(
        pid: Pid,
        volume: VolumeId,
        file_system: FileSystem,
        size: Bytes,
        start: Time,
    ) -> Self {
        let first = size.0 / 2 / COMMIT.0 * COMMIT.0;
        Self { pid, volume, file_system, first, at: 0, start, step: Step::Idle }
    }

    fn write(&mut self, host: &mut Host, len: Bytes, flags: Flags) {
        let flags = Flags { sync: true, ..flags };
        let range = self.next(len);
        host.submit_to_volume(self.volume, self.pid, 0, RequestOp::Write, range, flags);
    }

    /// Takes the next `len` bytes of the log, and returns their range on the volume.
    fn next(&mut self, len: Bytes) -> ByteRange {
        if self.at + len.0 > LOG.0 {
            self.at = 0;
        }
        let range = ByteRange::new(self.first + self.at, len.0);
        self.at += len.0;
        range
    }
}

impl Process for LogThread {
    fn run(&mut self, host: &mut Host, woken: Woken) {
        match (woken, self.step) {
            (Woken::Done(_), Step::Blocks) if self.file_system == FileSystem::Ext4 => {
                self.step = Step::Commit;
                self.write(host, COMMIT, Flags { preflush: true, fua: true, ..Flags::NONE });
            }
            (Woken::Done(_), _) => self.step = Step::Idle,
            (Woken::Timer, Step::Idle) => {
                self.step = Step::Blocks;
                self.write(host, BLOCKS, Flags::NONE);
            }
            _ => {}
        }
        match woken {
            Woken::Started => host.wake_at(self.pid, self.start),
            Woken::Timer => host.wake_at(self.pid, host.now() + LOG_EVERY),
            _ => {}
        }
    }

    fn is_done(&self) -> bool {
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_log_is_in_the_middle_and_goes_round() {
        let size = Bytes(1 << 40);
        let mut log = LogThread::new(Pid(0), VolumeId(0), FileSystem::Xfs, size, Time(0));
        let middle = 1 << 39;
        assert_eq!(log.next(Bytes(LOG.0 - 4096)), ByteRange::new(middle, LOG.0 - 4096));
        assert_eq!(log.next(Bytes(4096)), ByteRange::new(middle + LOG.0 - 4096, 4096));
        assert_eq!(log.next(Bytes(4096)), ByteRange::new(middle, 4096));
    }
}
