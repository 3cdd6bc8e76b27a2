//! Thread of a process: CPU time, sleeps, and requests that block while no stripe is free.
//!
//! A thread's work takes CPU time. A sleep ends at its time, or when another process ends it. A
//! thread submits requests to the volume one at a time, and is blocked while the volume has no free
//! stripe, as md's callers are. Each time a process is woken it asks its [`Thread`] whether it can
//! continue.

use weft_engine::page_cache::WriteOut;
use weft_engine::{Flags, RequestOp};
use weft_units::{ByteRange, Span, Time, VolumeId};

use super::host::TokenWait;
use super::{Host, Pid};

/// The thread of a process.
#[derive(Debug)]
pub struct Thread {
    pid: Pid,
    /// Time at which the thread's CPU work ends.
    busy: Time,
    /// Time at which the thread's sleep ends.
    asleep: Time,
    /// Pages that the thread is submitting to the volume, and whether a process waits for them
    /// (sync); `None` if it is submitting no pages.
    out: Option<(WriteOut, bool)>,
    /// Wait of the thread's last request for a token of a disk's queue; `None` if it does not wait.
    token: Option<TokenWait>,
    blocked: bool,
    timer: Time,
}

impl Thread {
    /// Creates the thread of the process with this number.
    #[must_use]
    pub fn new(pid: Pid) -> Self {
        Self {
            pid,
            busy: Time(0),
            asleep: Time(0),
            out: None,
            token: None,
            blocked: false,
            timer: Time(0),
        }
    }

    /// Number of the thread's process.
    #[must_use]
    pub fn pid(&self) -> Pid {
        self.pid
    }

    /// Occupies the thread for this CPU time, after the work that it already has.
    pub fn work(&mut self, host: &mut Host, span: Span) {
        self.busy = self.busy.max(host.now()) + span;
    }

    /// Sleeps until a time, or until [`Thread::stop_sleeping`] is called.
    pub fn sleep(&mut self, host: &mut Host, until: Time) {
        self.asleep = until.max(host.now());
    }

    /// Ends a sleep early.
    pub fn stop_sleeping(&mut self) {
        self.asleep = Time(0);
    }

    /// Submits pages to the volume before the thread continues. `sync` says that a process waits
    /// for them.
    ///
    /// # Panics
    /// Panics if the thread is still submitting other pages.
    pub fn write_out(&mut self, out: WriteOut, sync: bool) {
        assert!(self.out.is_none(), "one write-out at a time");
        self.out = Some((out, sync));
    }

    /// Submits a single request to the volume. The process is woken with `name` when it is
    /// answered.
    pub fn submit(
        &mut self,
        host: &mut Host,
        name: u64,
        op: RequestOp,
        range: ByteRange,
        flags: Flags,
    ) {
        host.submit(self.pid, name, op, range, flags);
        let bio = Span(host.costs().bio);
        self.work(host, bio);
        self.blocked = host.congestion() == weft_engine::Congestion::Blocked;
    }

    /// Whether the thread can continue. If not, its process is woken when the thread can.
    pub fn goes_on(&mut self, host: &mut Host) -> bool {
        loop {
            if self.blocked {
                self.blocked = host.blocks(self.pid);
                if self.blocked {
                    return false;
                }
            }
            self.token = self.token.filter(|wait| host.waits_for_token(*wait));
            if self.token.is_some() {
                return false;
            }
            let until = self.busy.max(self.asleep);
            if host.now() < until {
                // No second timer is set for the same time.
                if self.timer != until {
                    self.timer = until;
                    host.wake_at(self.pid, until);
                }
                return false;
            }
            let Some((out, sync)) = &mut self.out else { return true };
            if out.pages.is_empty() {
                self.out = None;
                return true;
            }
            let (volume, pages) = (VolumeId(out.bdi.0), out.pages.end - out.pages.start);
            let waits = host.token_waits(volume);
            host.send_pages(self.pid, out, *sync);
            // Pages that were submitted together are one plug.
            let left = out.pages.end - out.pages.start;
            let work = Span(host.costs().bio + (pages - left) * host.files().page.0);
            self.work(host, work);
            if left == 0 {
                host.settle();
                self.token = host.wait_for_token(self.pid, volume, waits);
            }
            self.blocked = host.congestion() == weft_engine::Congestion::Blocked;
        }
    }
}
