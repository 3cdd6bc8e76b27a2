//! Scheduler `none`: first come, first served.
//!
//! What one turn staged side by side was merged before it came here (`merge.rs`); nothing else is.
//! Without a bound on the depth requests do not come here at all.

use std::collections::VecDeque;

use smallvec::smallvec;

use super::request::{Dispatched, QueuedRequest, Receipt};

/// Requests in the order in which they came.
#[derive(Clone, Debug, Default)]
pub(crate) struct Fifo(VecDeque<QueuedRequest>);

impl Fifo {
    pub(crate) fn insert(&mut self, request: &QueuedRequest) {
        self.0.push_back(*request);
    }

    pub(crate) fn dispatch(&mut self) -> Option<Dispatched> {
        let QueuedRequest { id, direction, first, len, .. } = self.0.pop_front()?;
        Some(Dispatched { direction, receipt: Receipt(0), first, len, ids: smallvec![id] })
    }

    pub(crate) fn waiting(&self) -> usize {
        self.0.len()
    }

    pub(crate) fn clear(&mut self) {
        self.0.clear();
    }
}
