//! Scheduler `none`: first in, first out.
//!
//! Adjacent requests staged in one turn were merged before they reach this scheduler (`merge.rs`);
//! it merges nothing else. Without a limit on the depth, requests bypass it altogether.

use std::collections::VecDeque;

use super::request::{Dispatched, QueuedRequest, Receipt};

/// Requests in order of arrival.
#[derive(Clone, Debug, Default)]
pub(crate) struct Fifo {
    queued: VecDeque<QueuedRequest>,
    /// Identifier of the request that was dispatched last.
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
