//! Thread of a process: CPU time, sleeps, and requests that block for want of stripes.
//!
//! Work takes CPU time; a sleep ends at its time or when another process ends it. A thread hands
//! requests to the volume one at a time and is blocked while the volume has no free stripe, as md's
//! callers are. A process asks its [`Thread`] whether it goes on each time that it is
//! woken.

use weft_engine::page_cache::WriteOut;
use weft_engine::{Flags, RequestOp};
use weft_units::{ByteRange, Span, Time};

use super::{Host, Pid};

/// The thread of a process.
#[derive(Debug)]
pub struct Thread {
    pid: Pid,
    /// It works until then.
    busy: Time,
    /// It sleeps until then.
    asleep: Time,
    /// What it hands to the volume, and whether somebody waits for it.
    out: Option<(WriteOut, bool)>,
    blocked: bool,
    timer: Time,
}

impl Thread {
    /// Of this process.
    #[must_use]
    pub fn new(pid: Pid) -> Self {
        Self { pid, busy: Time(0), asleep: Time(0), out: None, blocked: false, timer: Time(0) }
    }

    /// Its process.
    #[must_use]
    pub fn pid(&self) -> Pid {
        self.pid
    }

    /// Spends a CPU's time.
    pub fn work(&mut self, host: &mut Host, span: Span) {
        self.busy = self.busy.max(host.now()) + span;
    }

    /// Sleeps until then, or until [`Thread::stop_sleeping`].
    pub fn sleep(&mut self, host: &mut Host, until: Time) {
        self.asleep = until.max(host.now());
    }

    /// Ends a sleep.
    pub fn stop_sleeping(&mut self) {
        self.asleep = Time(0);
    }

    /// Hands these pages to the volume before it goes on.
    ///
    /// # Panics
    /// It still hands others over.
    pub fn write_out(&mut self, out: WriteOut, sync: bool) {
        assert!(self.out.is_none(), "one after the other");
        self.out = Some((out, sync));
    }

    /// Hands a request of its own to the volume; its process is woken with `name` when it is done.
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

    /// Whether nothing holds it up. If something does, its process is woken when that is over.
    pub fn goes_on(&mut self, host: &mut Host) -> bool {
        loop {
            if self.blocked {
                self.blocked = host.blocks(self.pid);
                if self.blocked {
                    return false;
                }
            }
            let until = self.busy.max(self.asleep);
            if host.now() < until {
                // One timer is enough.
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
            host.send_pages(self.pid, out, *sync);
            // What was handed over together is one plug.
            let last = out.pages.is_empty();
            let bio = Span(host.costs().bio);
            self.work(host, bio);
            if last {
                host.settle();
            }
            self.blocked = host.congestion() == weft_engine::Congestion::Blocked;
        }
    }
}
