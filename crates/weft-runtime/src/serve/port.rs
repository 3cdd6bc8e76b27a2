//! Port: an interface to the outside, such as a server, and its view of the loop while it is
//! called.

use std::os::fd::{BorrowedFd, OwnedFd};

use rustix::event::epoll::{self, EventData, EventFlags};
use weft_engine::Snapshot;
use weft_units::{Time, VolumeId};

use super::driver::Event;
use super::ending::{Ending, Exit};
use super::hub::{Accepted, Held, Hub, Message};
use crate::figures::Figures;

/// An interface to the outside: a server or a control socket.
pub trait Port {
    /// Starts the port. Called once, before all other methods.
    ///
    /// # Errors
    /// Fails when the port cannot work; the reactor does not start then.
    fn on_start(&mut self, cx: &mut Context<'_, '_>) -> std::io::Result<()>;
    /// Handles a descriptor that is ready; `key` is the one that [`Context::watch`] got for it.
    fn on_ready(&mut self, cx: &mut Context<'_, '_>, key: u32, ready: EventFlags);
    /// Handles an event for a client of the port.
    fn on_event(&mut self, cx: &mut Context<'_, '_>, event: Event);
    /// Takes a client that a port of another worker has accepted: see [`Context::hand_over`]. Only
    /// the first port of a worker is called.
    fn on_accepted(&mut self, cx: &mut Context<'_, '_>, client: Accepted) {
        let _ = (cx, client);
    }
    /// Called at the end of a pass, which is one round of the worker's loop (`reactor.rs`): the
    /// port sends what is ready, and may record inputs.
    fn on_pass(&mut self, cx: &mut Context<'_, '_>);
    /// Called after the engine or a worker has panicked: the port answers everything with an I/O
    /// error from now on.
    fn on_poison(&mut self, cx: &mut Context<'_, '_>);
    /// Called when the server is asked to end, while clients are served as before. A port with a
    /// block device begins to remove the device from the kernel, which may need requests to be
    /// served. Only ports of the first worker are called.
    fn on_closing(&mut self, cx: &mut Context<'_, '_>) {
        let _ = cx;
    }
    /// Whether the port allows the server to stop: its block device, if any, was removed.
    ///
    /// # Errors
    /// The device is in use; the text says so. The stop is cancelled.
    fn is_closed(&self) -> Result<bool, String> {
        Ok(true)
    }
    /// Called when the server is to stop: the port refuses new work from now on.
    fn on_stop(&mut self, cx: &mut Context<'_, '_>);
    /// Called when a stop is cancelled, because a volume could not write its clients' data or a
    /// block device is in use; `text` is the reason. Clients are served as before. Only ports of
    /// the first worker are called.
    fn on_stop_refused(&mut self, cx: &mut Context<'_, '_>, text: &str) {
        let _ = (cx, text);
    }
    /// Called after the volumes have stopped. The port can send its clients a last message.
    fn on_stopped(&mut self, cx: &mut Context<'_, '_>, exit: &Exit) {
        let _ = (cx, exit);
    }
    /// Whether the port has sent its clients everything that was due to them.
    fn drained(&self) -> bool;
    /// Whether the port has to be called when frames have come back to the pool.
    fn is_waiting(&self) -> bool {
        false
    }
    /// Time at which the port has to be called even without an event; `None` for no such time.
    fn next_wake(&self) -> Option<Time> {
        None
    }
}

/// Context of a call to a port: the driver and the loop.
pub struct Context<'a, 'h> {
    /// The driver, with the engine and its memory, locked by this worker.
    pub driver: &'a mut Held<'h>,
    pub(crate) hub: &'a Hub,
    pub(crate) epoll: &'a OwnedFd,
    pub(crate) port: u8,
    pub(crate) stop: &'a mut Option<Ending>,
}

impl Context<'_, '_> {
    /// Counters and states of all drivers, `None` after a panic. Only for ports of the first
    /// worker.
    pub fn snapshot(&mut self) -> Option<Snapshot> {
        let mut whole = self.driver.snapshot()?;
        for mut driver in self.hub.others() {
            absorb(&mut whole, driver.snapshot()?);
        }
        Some(whole)
    }

    /// Requests of clients of a volume that were answered, over all drivers. Only for ports of the
    /// first worker.
    #[must_use]
    pub fn answered(&self, volume: VolumeId) -> Figures {
        let mut all = self.driver.answered(volume).cloned().unwrap_or_default();
        for driver in self.hub.others() {
            driver.answered(volume).into_iter().for_each(|it| all.add(it));
        }
        all
    }

    /// Number of frames that clients hold, over all pools. Only for ports of the first worker.
    #[must_use]
    pub fn frames_held(&self) -> u32 {
        let others: u32 = self.hub.others().map(|driver| driver.pool().held()).sum();
        self.driver.pool().held() + others
    }

    /// Number of the port, for [`client_of`](super::clients::client_of).
    #[must_use]
    pub fn port(&self) -> u8 {
        self.port
    }

    /// Hands a client to the first port of a worker.
    pub fn hand_over(&self, worker: usize, client: Accepted) {
        self.hub.tell(worker, &mut vec![Message::Accepted(client)]);
    }

    /// Wakes a worker, which then makes a pass of its loop.
    pub fn wake_worker(&self, worker: usize) {
        self.hub.ring(worker);
    }

    /// Watches a descriptor. `on_ready` gets `key` when it is ready.
    ///
    /// # Errors
    /// Fails when the kernel has no room for it.
    pub fn watch(&self, fd: BorrowedFd<'_>, key: u32, flags: EventFlags) -> std::io::Result<()> {
        Ok(epoll::add(self.epoll, fd, data(self.port, key), flags)?)
    }

    /// Changes the events that a descriptor is watched for.
    ///
    /// # Errors
    /// Fails when the descriptor was not watched.
    pub fn rewatch(&self, fd: BorrowedFd<'_>, key: u32, flags: EventFlags) -> std::io::Result<()> {
        Ok(epoll::modify(self.epoll, fd, data(self.port, key), flags)?)
    }

    /// Ends the watch of a descriptor. Closing does not end the watch if another process has the
    /// descriptor open too.
    pub fn unwatch(&self, fd: BorrowedFd<'_>) {
        // An error is ignored: it was not watched.
        let _ = epoll::delete(self.epoll, fd);
    }

    /// Requests the end of the loop in good order, in the way `how`. Only for ports of the first
    /// worker.
    pub fn stop(&mut self, how: Ending) {
        *self.stop = Some(how).max(*self.stop);
    }
}

/// Adds the counters of another driver of the same volumes, `part`, to the snapshot `whole`.
fn absorb(whole: &mut Snapshot, part: Snapshot) {
    for (volume, other) in whole.volumes.iter_mut().zip(part.volumes) {
        volume.requests_active += other.requests_active;
        for (member, other) in volume.members.iter_mut().zip(other.members) {
            member.reads += other.reads;
            member.writes += other.writes;
            member.flushes += other.flushes;
            member.sectors_read += other.sectors_read;
            member.sectors_written += other.sectors_written;
            member.in_flight += other.in_flight;
        }
    }
    whole.clients.extend(part.clients);
    whole.tokens_outstanding += part.tokens_outstanding;
    whole.frames_held += part.frames_held;
}

pub(crate) fn data(port: u8, key: u32) -> EventData {
    EventData::new_u64(u64::from(port) << 56 | u64::from(key))
}
