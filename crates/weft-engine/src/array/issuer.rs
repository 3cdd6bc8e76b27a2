//! Issuer of a request or command to a volume: where its answer and its frames go.
//!
//! Answers and frames of a client's request go to the engine's outputs. Answers and frames for the
//! write-back cache are collected instead, and the cache takes them once per turn
//! ([`Outbox::take_returned`]). A part of a resync is notified when its range is locked, and gets
//! no answer.

use weft_units::ClientId;

use super::outbox::Outbox;
use crate::contract::error::ReplyError;
use crate::contract::frame::Run;
use crate::contract::output::Output;
use crate::contract::token::Tag;

/// Issuer of a request or command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Issuer {
    Client {
        client: ClientId,
        tag: Tag,
    },
    /// The array itself: a part of a sync or correction of a mirror, which holds the lock of its
    /// range.
    Resync {
        part: u32,
    },
    /// The write-back cache: its operation number `op`.
    WriteBack {
        op: u32,
    },
}

/// Answer or frames that a volume returns to an operation of the write-back cache.
#[derive(Clone, Debug)]
pub(crate) enum Returned {
    /// Answer to a request of the write-back cache's operation with this number.
    Answer(u32, Result<(), ReplyError>),
    /// Frames of a request of the operation with this number, which no member uses any longer. The
    /// frames of a successful read return with the answer of the read instead.
    Frames(u32, Run),
}

impl Issuer {
    pub(crate) fn is(self, client: ClientId) -> bool {
        matches!(self, Self::Client { client: other, .. } if other == client)
    }

    /// Whether the issuer is a client, so that the request's frames are client frames. For an
    /// operation of the write-back cache this is false, because the cache itself records which
    /// frames belong to a client.
    pub(crate) const fn is_client(self) -> bool {
        matches!(self, Self::Client { .. })
    }
}

impl Outbox {
    /// Sends the result of a request or command to its issuer, a client or the write-back cache.
    pub(crate) fn answer(&mut self, issuer: Issuer, result: Result<(), ReplyError>) {
        match issuer {
            Issuer::Client { client, tag } => self.reply(client, tag, result),
            Issuer::WriteBack { op } => self.return_answer(op, result),
            Issuer::Resync { .. } => unreachable!("a part of a resync is not answered"),
        }
    }

    #[inline]
    pub(crate) fn release(&mut self, issuer: Issuer, frames: Run) {
        match issuer {
            Issuer::WriteBack { op } => self.return_frames(op, frames),
            Issuer::Client { .. } | Issuer::Resync { .. } => self.push(Output::Release(frames)),
        }
    }

    /// Answers an operation of the write-back cache.
    #[cold]
    pub(crate) fn return_answer(&mut self, op: u32, result: Result<(), ReplyError>) {
        self.returned.push(Returned::Answer(op, result));
    }

    /// Returns frames to an operation of the write-back cache.
    #[cold]
    pub(crate) fn return_frames(&mut self, op: u32, frames: Run) {
        self.returned.push(Returned::Frames(op, frames));
    }

    /// Takes everything that volumes have returned to the write-back cache since the last call.
    pub(crate) fn take_returned(&mut self) -> Vec<Returned> {
        std::mem::take(&mut self.returned)
    }
}
