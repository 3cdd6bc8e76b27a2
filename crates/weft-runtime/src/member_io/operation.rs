//! Member requests that have no answer yet: the present stage of each, and the choice of the next.

use rustix::io::Errno;
use weft_engine::{Fault, Token};
use weft_units::{MemberIndex, Time};

use super::entry::Entry;
use crate::buffers::{AlignedBytes, Buffer};
use crate::devices::IoMode;
use crate::figures::RequestKind;

pub(super) struct Operation {
    pub(super) token: Token,
    pub(super) member: MemberIndex,
    pub(super) kind: Kind,
    pub(super) stage: Stage,
    /// Memory of the request; `None` while the ring has it in an operation, or if the request needs
    /// none.
    pub(super) buffer: Option<Buffer>,
    pub(super) offset: u64,
    pub(super) len: usize,
    pub(super) moved: usize,
    pub(super) retries: u32,
    pub(super) aborted: bool,
    /// Time at which the member was given the request.
    pub(super) started: Time,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Discard { durable: bool },
    Flush,
    Read,
    Write { durable: bool },
    WriteMetadata,
}

impl Kind {
    /// Kind under which an operation is counted.
    pub(super) fn counts_as(self) -> RequestKind {
        match self {
            Self::Read => RequestKind::Read,
            Self::Write { .. } | Self::WriteMetadata => RequestKind::Write,
            Self::Flush => RequestKind::Flush,
            Self::Discard { .. } => RequestKind::Discard,
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Stage {
    Discard,
    FlushAfter,
    FlushBefore,
    /// Second attempt of a durable write that failed, without the flush. If this attempt fails too,
    /// the member cannot write these sectors; if it succeeds, the flush had failed.
    Proof,
    Transfer {
        dsync: bool,
    },
}

pub(super) enum Next {
    Finish(Result<(), Fault>),
    Stage(Stage),
}

impl Stage {
    pub(super) fn is_flush(self) -> bool {
        matches!(self, Self::FlushAfter | Self::FlushBefore)
    }
}

impl Operation {
    /// Returns the next step of the request after an operation that succeeded and moved `moved`
    /// bytes.
    pub(super) fn on_success(&mut self, moved: usize, entry: Option<&mut Entry>) -> Next {
        match self.stage {
            Stage::Discard => match self.kind {
                Kind::Discard { durable: true } => Next::Stage(Stage::FlushAfter),
                _ => Next::Finish(Ok(())),
            },
            Stage::FlushAfter => Next::Finish(Ok(())),
            Stage::FlushBefore => Next::Stage(Stage::Transfer { dsync: false }),
            Stage::Proof | Stage::Transfer { .. } => self.on_moved(moved, entry),
        }
    }

    /// Returns the next step of the request after an operation that failed: a retry, another way to
    /// carry out the request, or its end.
    pub(super) fn on_error(&mut self, errno: Errno, entry: Option<&mut Entry>) -> Next {
        let stage = self.stage;
        let dsync = stage == Stage::Transfer { dsync: true };
        match errno {
            Errno::CANCELED if self.aborted => Next::Finish(Err(Fault::Aborted)),
            Errno::INTR | Errno::AGAIN | Errno::CANCELED if self.may_retry() => Next::Stage(stage),
            Errno::OPNOTSUPP | Errno::INVAL if dsync => {
                if let Some(entry) = entry {
                    tracing::warn!(
                        member = %entry.member.info().label,
                        "RWF_DSYNC refused; durable writes are followed by a flush"
                    );
                    entry.dsync = false;
                }
                Next::Stage(Stage::Transfer { dsync: false })
            }
            // Zeros are written instead, because other members may have discarded their part and
            // the volume relies on zeros. After an I/O error the write of zeros shows whether the
            // member still stores data.
            errno
                if stage == Stage::Discard
                    && (cannot_discard(errno) || fault_of(errno, true) == Fault::Io) =>
            {
                if cannot_discard(errno) {
                    tracing::debug!("discard refused; zeros are stored");
                } else {
                    tracing::warn!(
                        member = entry.as_ref().map_or("", |it| it.member.info().label.as_str()),
                        "discard failed, zeros are stored: {errno}"
                    );
                }
                let len = self.len.min(ZEROS_BYTES);
                self.buffer = Some(Buffer::Owned(AlignedBytes::zeroed(len)));
                Next::Stage(Stage::Transfer { dsync: false })
            }
            errno => {
                let fault = match fault_of(errno, !stage.is_flush()) {
                    // The device ends before that sector: it has become smaller, or it was
                    // unplugged.
                    Fault::NoSpace if entry.as_ref().is_some_and(|entry| entry.is_device()) => {
                        Fault::Gone
                    }
                    fault => fault,
                };
                tracing::warn!(
                    member = entry.as_ref().map_or("", |entry| entry.member.info().label.as_str()),
                    ?fault,
                    "member request failed: {errno}"
                );
                if dsync && fault == Fault::Io {
                    self.moved = 0;
                    return Next::Stage(Stage::Proof);
                }
                if (stage.is_flush() || dsync)
                    && fault != Fault::NoSpace
                    && let Some(entry) = entry
                {
                    entry.lost = true;
                }
                Next::Finish(Err(fault))
            }
        }
    }

    /// Returns the next step of the request after a transfer that moved `moved` bytes.
    fn on_moved(&mut self, moved: usize, entry: Option<&mut Entry>) -> Next {
        assert!(moved <= self.len - self.moved, "more was moved than asked for");
        if self.moved + moved == self.len {
            let dsync = self.stage == Stage::Transfer { dsync: true };
            let durable = match self.kind {
                Kind::Discard { durable } | Kind::Write { durable } => durable,
                Kind::Flush | Kind::Read => false,
                Kind::WriteMetadata => true,
            };
            self.moved = self.len;
            if self.stage == Stage::Proof {
                if let Some(entry) = entry {
                    entry.lost = true;
                }
                return Next::Finish(Err(Fault::Io));
            }
            return if durable && !dsync {
                Next::Stage(Stage::FlushAfter)
            } else {
                Next::Finish(Ok(()))
            };
        }
        // `O_DIRECT` continues only at a block; bytes beyond the last whole block are moved again.
        let block = match entry {
            Some(entry) if entry.member.mode() == IoMode::Direct => {
                entry.member.info().logical_block as usize
            }
            _ => 1,
        };
        let rounded = (self.moved + moved) / block * block;
        if rounded == self.moved && !self.may_retry() {
            return Next::Finish(Err(Fault::Io));
        }
        self.moved = rounded;
        Next::Stage(self.stage)
    }

    fn may_retry(&mut self) -> bool {
        self.retries += 1;
        self.retries <= RETRIES_MAX
    }
}

fn fault_of(errno: Errno, is_transfer: bool) -> Fault {
    match errno {
        // A flush that finds no space has lost pages, and it is not known which.
        Errno::NOSPC | Errno::DQUOT | Errno::FBIG if is_transfer => Fault::NoSpace,
        Errno::NODEV | Errno::NXIO | Errno::NOMEDIUM | Errno::SHUTDOWN | Errno::BADFD => {
            Fault::Gone
        }
        _ => Fault::Io,
    }
}

/// Whether an error means that the member supports no discards at all.
fn cannot_discard(errno: Errno) -> bool {
    matches!(errno, Errno::OPNOTSUPP | Errno::NOSYS | Errno::INVAL)
}

/// Largest number of zero bytes in one write. Such writes replace a discard that is not possible.
pub(super) const ZEROS_BYTES: usize = 1 << 20;

/// Largest number of times that one request is restarted because the kernel asks for it. `EAGAIN`
/// comes from queues that are full for microseconds; a thousand of them in a row are a fault.
pub(super) const RETRIES_MAX: u32 = 1000;
