//! Scheduler `none`: first come, first served.
//!
//! What one turn staged side by side was merged before it came here (`merge.rs`); nothing else is.
//! Without a bound on the depth requests do not come here at all.

use std::collections::VecDeque;

use super::request::{Dispatched, QueuedRequest, Receipt};

/// Requests in the order in which they came.
#[derive(Clone, Debug, Default)]
pub(crate) struct Fifo {
    queued: VecDeque<QueuedRequest>,
    /// The last one that was dispatched.
    sent: [u64; 1],
}

impl Fifo {
    pub(crate) fn insert(&mut self, request: &QueuedRequest) {
        self.queued.push_back(*request);
    }

    pub(crate) fn dispatch(&mut self) -> Option<Dispatched> {
        let QueuedRequest { id, direction, first, len, .. } = self.queued.pop_front()?;
        self.sent = [id];
        Some(Dispatched { direction, receipt: Receipt(0), first, len, id })
    }

    pub(crate) fn sent(&self) -> &[u64] {
        &self.sent
    }

    pub(crate) fn waiting(&self) -> usize {
        self.queued.len()
    }

    pub(crate) fn clear(&mut self) {
        self.queued.clear();
    }
}
