//! The one client of a port, from the port's start to its end: the kernel of this machine, or this
//! process.

use weft_runtime::serve::clients::client_of;
use weft_runtime::serve::driver::Event;
use weft_runtime::serve::reactor::Context;
use weft_units::Bytes;

use super::{Requests, Served};

/// Client of a port that has one client. `R` is a request in the form of the port.
pub(crate) struct SoleClient<R> {
    served: Served,
    credit: Bytes,
    /// Requests of the client; `None` before the start.
    requests: Option<Requests<R, ()>>,
}

impl<R: Copy> SoleClient<R> {
    pub(crate) fn new(served: Served, credit: Bytes) -> Self {
        Self { served, credit, requests: None }
    }

    pub(crate) fn served(&self) -> &Served {
        &self.served
    }

    /// Makes the client known to the driver, when the port starts.
    pub(crate) fn start(&mut self, cx: &mut Context<'_, '_>) {
        let mut requests = Requests::new(client_of(cx.port(), 0), self.credit);
        requests.choose(cx.driver, self.served.clone(), self.served.share);
        self.requests = Some(requests);
    }

    /// Requests of the client; `None` before the start.
    pub(crate) fn requests_mut(&mut self) -> Option<&mut Requests<R, ()>> {
        self.requests.as_mut()
    }

    pub(crate) fn on_event(&mut self, cx: &mut Context<'_, '_>, event: Event) {
        if let Some(requests) = &mut self.requests {
            requests.on_event(cx.driver, event);
        }
    }

    pub(crate) fn resume(&mut self, cx: &mut Context<'_, '_>) {
        if let Some(requests) = &mut self.requests {
            requests.resume(cx.driver);
        }
    }

    pub(crate) fn poison(&mut self, cx: &mut Context<'_, '_>) {
        if let Some(requests) = &mut self.requests {
            requests.poison(cx.driver);
        }
    }

    /// Whether no request is open.
    pub(crate) fn is_drained(&self) -> bool {
        self.requests.as_ref().is_none_or(|requests| requests.open() == 0)
    }

    /// Whether a request waits for frames or for a turn.
    pub(crate) fn is_starved(&self) -> bool {
        self.requests.as_ref().is_some_and(Requests::is_starved)
    }
}
