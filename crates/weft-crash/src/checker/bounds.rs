//! Checker I12, bounds: credit, frames, stripes, dirty pages and requests in flight stay within the
//! configuration.

use std::collections::BTreeMap;

use weft_engine::{Input, Load, MemberOp, NO_CREDIT, Output, ReplyError, Snapshot, Tag};
use weft_units::{Bytes, ClientId};

use super::{View, Violation};

const NAME: &str = "I12 bounds";

/// Limits that the configuration sets.
#[derive(Clone, Copy, Debug, Default)]
pub struct Limits {
    /// Number of stripes of the stripe cache.
    pub stripes: u32,
    /// Number of frames that clients may hold together.
    pub client_frames: u32,
    /// Bytes that a client may have outstanding. A single request may exceed it.
    pub client_credit: Bytes,
    /// Largest size of a member request in bytes.
    pub member_bytes: u64,
}

/// Checker I12: compares the engine's counters, and the requests of clients, with the limits.
#[derive(Clone, Debug)]
pub struct Bounds {
    limits: Limits,
    /// Payload bytes of each request that is not answered yet.
    sent: BTreeMap<(ClientId, Tag), u64>,
    /// By client: bytes and number of the requests for which the engine has not returned credit.
    outstanding: BTreeMap<ClientId, (u64, u64)>,
    /// Dirty limit that is checked, in pages: the largest limit since the dirty pages were last
    /// found to be within the limit while nothing was outstanding ([`Self::at_rest`]). A limit that
    /// a knob lowers below the present dirty pages thus applies only once they have been written.
    limit_pages: u64,
}

impl Bounds {
    /// A checker with these limits.
    #[must_use]
    pub fn new(limits: Limits) -> Self {
        Self { limits, sent: BTreeMap::new(), outstanding: BTreeMap::new(), limit_pages: 0 }
    }

    /// Limits that are checked now.
    #[must_use]
    pub fn limits(&self) -> Limits {
        self.limits
    }

    /// Changes the limits after a knob of the engine changed.
    pub fn change(&mut self, change: impl FnOnce(&mut Limits)) {
        change(&mut self.limits);
    }

    /// Charges a client for a request that arrives. The charges of a client that disconnects are
    /// dropped.
    pub fn input(&mut self, input: &Input) {
        match input {
            Input::Client(request) if request.payload() > Bytes::ZERO => {
                let (bytes, requests) = self.outstanding.entry(request.client).or_default();
                *bytes += request.payload().0;
                *requests += 1;
                self.sent.insert((request.client, request.tag), request.payload().0);
            }
            Input::ClientGone(client) => {
                self.outstanding.remove(client);
                self.sent.retain(|(other, _), _| other != client);
            }
            _ => {}
        }
    }

    /// Subtracts credit that the engine returns to a client from the bytes charged to that client,
    /// and checks that member requests are not too large, consist of whole logical blocks and end
    /// within the member.
    pub fn output(&mut self, view: View<'_>, output: &Output, found: &mut Vec<Violation>) {
        let back = match output {
            Output::Credit { client, bytes } => Some((client, bytes.0)),
            Output::Reply { client, tag, result } => {
                let refused = *result == Err(ReplyError::Busy(NO_CREDIT));
                self.sent.remove(&(*client, *tag)).filter(|_| refused).map(|it| (client, it))
            }
            _ => None,
        };
        if let Some((client, bytes)) = back
            && let Some((outstanding, requests)) = self.outstanding.get_mut(client)
        {
            *outstanding = outstanding.saturating_sub(bytes);
            *requests = requests.saturating_sub(1);
        }
        let Output::Submit { member, op, .. } = output else { return };
        let (at, len) = match op {
            MemberOp::Read { at, into: parts } | MemberOp::Write { at, from: parts, .. } => {
                (at.0, parts.iter().map(|part| u64::from(part.len)).sum::<u64>())
            }
            MemberOp::WriteMetadata { at, bytes } => (at.0, bytes.len() as u64),
            MemberOp::Flush => return,
            // A discard transfers no data.
            MemberOp::Discard { at, len, .. } => (at.0, len.bytes().0),
        };
        let disk = &view.disks[view.disk(*member)];
        let block = u64::from(disk.logical_block());
        if len > self.limits.member_bytes && !matches!(op, MemberOp::Discard { .. }) {
            found.push(Violation::new(
                NAME,
                format!("a member request of {len} bytes; at most {}", self.limits.member_bytes),
            ));
        }
        if at * 512 % block != 0 || len % block != 0 || len == 0 {
            found.push(Violation::new(
                NAME,
                format!("a member request of {len} bytes at sector {at}; logical block {block}"),
            ));
        }
        if at + len / 512 > disk.whole_size().0 {
            found.push(Violation::new(
                NAME,
                format!("a member request of {len} bytes at sector {at} of {}", disk.whole_size()),
            ));
        }
    }

    /// Sets the dirty limit that is checked to the present limit, if the dirty pages are within
    /// it. Called when nothing is outstanding.
    pub fn at_rest(&mut self, snapshot: &Snapshot) {
        if let Some(cache) = &snapshot.write_back
            && cache.dirty_pages + cache.writeback_pages <= cache.limit_pages
        {
            self.limit_pages = cache.limit_pages;
        }
    }

    /// Checks stripes, dirty pages, credit and client frames against their limits.
    pub fn settled(&mut self, load: &Load, found: &mut Vec<Violation>) {
        let (stripes, limit) = (load.stripe_cache_active, self.limits.stripes);
        if stripes > limit {
            let text = format!("{stripes} stripes of the cache in use; at most {limit}");
            found.push(Violation::new(NAME, text));
        }
        let (pages, limit) = (load.write_back_pages, load.limit_pages);
        // A knob may lower the limit below the dirty pages and the writes that were already
        // admitted.
        self.limit_pages = self.limit_pages.max(limit);
        if pages > self.limit_pages {
            let text = format!("{pages} pages of the write-back cache dirty; at most {limit}");
            found.push(Violation::new(NAME, text));
        }
        // The engine refuses requests beyond the credit in the round in which they arrive.
        let limit = self.limits.client_credit;
        for (client, (bytes, requests)) in &self.outstanding {
            if *bytes > limit.0 && *requests > 1 {
                let text = format!("{client:?} has {bytes} bytes outstanding; at most {limit}");
                found.push(Violation::new(NAME, text));
            }
        }
        if load.frames_held > self.limits.client_frames {
            found.push(Violation::new(NAME, format!("{} client frames held", load.frames_held)));
        }
    }
}
