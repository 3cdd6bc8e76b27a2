//! vhost-user port: a volume as the disk of a virtual machine (virtio-blk), through a socket.
//!
//! One front end at a time, the program that runs the machine, connects to the socket, and shares
//! the machine's memory with this process. Requests are carried out as those of any client
//! (`session/requests.rs`); their data is copied between the machine's memory and frames. Requests
//! that have to wait for frames or credit wait here, at most as many as the rings have entries.
//!
//! A request in flight is recorded in memory that the front end keeps (`inflight.rs`). After the
//! death of the server, or its stop, a front end that connects again hands that memory to the next
//! server of the volume, which repeats the requests without an answer. To the machine, these
//! requests only take long.
//!
//! Source   vhost-user protocol, QEMU's `docs/interop/vhost-user.rst`

mod block;
mod device;
mod inflight;
mod ring;

use std::collections::VecDeque;
use std::fs::File;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use rustix::event::epoll::EventFlags;
use rustix::event::{PollFd, PollFlags};
use rustix::io::Errno;
use rustix::net::RecvFlags;
use rustix::time::Timespec;
use vhost::vhost_user::BackendReqHandler;
use weft_engine::RequestOp;
use weft_runtime::buffers::Buffer;
use weft_runtime::serve::clients::{CLIENTS_MAX, client_of};
use weft_runtime::serve::driver::Event;
use weft_runtime::serve::reactor::{Context, Port};
use weft_units::{Bytes, Span, Time};

pub(crate) use block::Disk;

use crate::record::VolumeRequest;
use crate::session::{Requests, Served};
use crate::socket::Listener;
use block::{Status, Verb};
use device::Device;

/// vhost-user port: the disk of a virtual machine.
pub(crate) struct VhostUserPort {
    served: Served,
    credit: Bytes,
    disk: Disk,
    listener: Listener,
    /// Whether a front end may have connected that was not accepted yet.
    connects: bool,
    /// Time of the next `accept`, after the process ran out of descriptors; `None` otherwise.
    accept_again: Option<Time>,
    /// Number of front ends that were accepted, to tell clients apart.
    accepted: u32,
    front_end: Option<FrontEnd>,
    /// Whether the volume stops, or cannot go on: requests without an answer stay with the front
    /// end for another server.
    stops: bool,
    poisoned: bool,
}

/// A connected front end.
struct FrontEnd {
    socket: UnixStream,
    messages: BackendReqHandler<Mutex<Device>>,
    device: Arc<Mutex<Device>>,
    requests: Requests<Chained, ()>,
    /// Requests that have arrived and not begun, in order.
    waiting: VecDeque<Chained>,
    /// Whether a message may have come. No new request is taken until it was handled.
    has_message: bool,
    /// Whether the front end is gone, or is to be disconnected: no more requests are taken.
    leaves: bool,
}

/// Position of a request: its ring, and the head of its chain.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Head {
    ring: u16,
    head: u16,
}

/// A request of the machine's driver: the position of its chain, and the action that it asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Chained {
    head: Head,
    verb: Verb,
}

impl VhostUserPort {
    pub(crate) fn new(listener: Listener, served: Served, credit: Bytes, disk: Disk) -> Self {
        Self {
            served,
            credit,
            disk,
            listener,
            connects: false,
            accept_again: None,
            accepted: 0,
            front_end: None,
            stops: false,
            poisoned: false,
        }
    }

    /// Accepts a front end. Further ones are disconnected at once: two machines that write one disk
    /// would destroy its file system.
    fn accept(&mut self, cx: &mut Context<'_, '_>) {
        self.connects |= self.accept_again.take_if(|at| *at <= cx.driver.now()).is_some();
        while self.connects && self.front_end.as_mut().is_none_or(|it| !it.is_leaving()) {
            match self.listener.accept() {
                Ok(_) if self.stops => {}
                Ok(_) if self.front_end.is_some() => {
                    let at = self.listener.describe();
                    tracing::warn!(at, "another virtual machine has the disk; not accepted");
                }
                Ok(socket) => match self.front_end(cx, socket) {
                    Ok(front_end) => self.front_end = Some(front_end),
                    Err(error) => tracing::warn!(%error, "a front end cannot be served"),
                },
                Err(Errno::INTR | Errno::CONNABORTED) => {}
                Err(errno) => {
                    self.connects = false;
                    if errno != Errno::AGAIN {
                        tracing::warn!(%errno, "no front end is accepted for a while");
                        self.accept_again = Some(cx.driver.now() + ACCEPT_PAUSE);
                    }
                }
            }
        }
    }

    fn front_end(
        &mut self,
        cx: &mut Context<'_, '_>,
        socket: OwnedFd,
    ) -> std::io::Result<FrontEnd> {
        let socket = UnixStream::from(socket);
        let flags = EventFlags::IN | EventFlags::RDHUP | EventFlags::ET;
        cx.watch(socket.as_fd(), KEY_SOCKET, flags)?;
        let device = Arc::new(Mutex::new(Device::new(self.disk.clone())));
        let messages = BackendReqHandler::from_stream(socket.try_clone()?, Arc::clone(&device));
        let client = client_of(cx.port(), self.accepted % CLIENTS_MAX);
        self.accepted += 1;
        let mut requests = Requests::new(client, self.credit);
        requests.choose(cx.driver, self.served.clone(), self.served.share);
        tracing::info!(at = self.listener.describe(), "a front end has connected");
        Ok(FrontEnd {
            socket,
            messages,
            device,
            requests,
            waiting: VecDeque::new(),
            has_message: true,
            leaves: false,
        })
    }

    /// Releases a front end that is gone, once none of its requests is in flight.
    fn part(&mut self, cx: &mut Context<'_, '_>) {
        let Some(front_end) = self.front_end.take_if(|it| it.leaves && it.requests.open() == 0)
        else {
            return;
        };
        let FrontEnd { socket, device, requests, .. } = front_end;
        let mut device = lock(&device);
        device.stop_all();
        unwatch(&mut device, cx);
        cx.unwatch(socket.as_fd());
        let reads = requests.close(cx.driver);
        assert!(reads.is_empty(), "nothing is in flight");
        tracing::info!(at = self.listener.describe(), "the front end is gone");
    }
}

impl FrontEnd {
    /// Whether the front end is gone, or is to be disconnected.
    fn is_leaving(&mut self) -> bool {
        let mut fd = [PollFd::new(&self.socket, PollFlags::RDHUP)];
        let polled = rustix::event::poll(&mut fd, Some(&Timespec::default()));
        self.leaves |= polled.is_ok_and(|ready| ready > 0);
        self.leaves
    }

    fn is_at_rest(&self) -> bool {
        self.requests.open() == 0 && self.waiting.is_empty()
    }

    /// Handles the messages that have arrived, if no request is in flight.
    fn handle_messages(&mut self, cx: &mut Context<'_, '_>) {
        while self.has_message && !self.leaves && self.is_at_rest() {
            let handled = match message(&self.socket) {
                Ok(Arrived::Nothing) => {
                    self.has_message = false;
                    return;
                }
                Ok(Arrived::Whole) => self.messages.handle_request().map_err(|it| it.to_string()),
                Ok(Arrived::End) => Err(String::new()),
                Err(why) => Err(why),
            };
            let handled = handled.and_then(|()| {
                let mut device = lock(&self.device);
                unwatch(&mut device, cx);
                for (ring, kick) in device.take_unseen() {
                    let flags = EventFlags::IN | EventFlags::ET;
                    let watched = cx.watch(kick.as_fd(), KEY_RINGS + u32::from(ring), flags);
                    watched.map_err(|error| format!("queue {ring}: {error}"))?;
                }
                Ok(())
            });
            if let Err(why) = handled {
                if !why.is_empty() {
                    tracing::warn!(why, "the front end is disconnected");
                }
                self.leaves = true;
            }
        }
    }

    /// Takes the requests that have arrived, unless a message waits until none is in flight.
    fn receive(&mut self) {
        if self.leaves || self.has_message {
            return;
        }
        lock(&self.device).take(|request| {
            if let Verb::Ask(asked) = request.verb {
                self.requests.note(asked);
            }
            self.waiting.push_back(request);
        });
    }

    /// Begins requests that have arrived, in order, until one has to wait.
    fn begin(&mut self, cx: &mut Context<'_, '_>) {
        loop {
            let device = &self.device;
            self.requests.fill(cx.driver, |request, offset, frames| {
                let (device, mut at, count) = (lock(device), offset, frames.len());
                frames.slices_mut(0, count).iter_mut().all(|slice| {
                    let is_copied = device.read(request.head, at, slice).is_some();
                    at += slice.len() as u64;
                    is_copied
                })
            });
            if self.requests.receiving().is_some() {
                return;
            }
            let Some(request) = self.waiting.front().copied() else { return };
            match request.verb {
                Verb::Ask(asked) if !self.requests.begin(cx.driver, request, &asked) => return,
                Verb::Ask(_) => {}
                Verb::Identify => lock(&self.device).identify(request.head),
                Verb::Refuse(status) => lock(&self.device).answer(request.head, status, 0),
            }
            self.waiting.pop_front();
        }
    }

    /// Answers requests that have ended. With `poisoned` (after a panic) none of them is answered:
    /// they stay in flight at the front end, which hands them to the next server.
    fn answer(&mut self, cx: &mut Context<'_, '_>, poisoned: bool) {
        let device = &self.device;
        let copy = |request: Chained, offset, frames: &Buffer| {
            let (device, mut at) = (lock(device), offset);
            frames.slices(0, frames.len()).iter().all(|slice| {
                let is_copied = device.write(request.head, at, slice).is_some();
                at += slice.len() as u64;
                is_copied
            })
        };
        self.requests.answer_ended(cx.driver, copy, |Chained { head, verb }, error| {
            if poisoned {
                return;
            }
            let status = if error.is_none() { Status::Ok } else { Status::Error };
            let len = match verb {
                Verb::Ask(VolumeRequest { op: RequestOp::Read, len, .. }) if error.is_none() => len,
                _ => 0,
            };
            lock(device).answer(head, status, len);
        });
        lock(device).signal();
    }
}

impl Port for VhostUserPort {
    fn on_start(&mut self, cx: &mut Context<'_, '_>) -> std::io::Result<()> {
        cx.watch(self.listener.as_fd(), KEY_LISTENER, EventFlags::IN | EventFlags::ET)
    }

    fn on_ready(&mut self, _: &mut Context<'_, '_>, key: u32, _: EventFlags) {
        match (key, &mut self.front_end) {
            (KEY_LISTENER, _) => self.connects = true,
            (KEY_SOCKET, Some(front_end)) => front_end.has_message = true,
            // No note of a ring's event is needed: each pass takes requests from all rings.
            (_, _) => {}
        }
    }

    fn on_event(&mut self, cx: &mut Context<'_, '_>, event: Event) {
        if let Some(front_end) = &mut self.front_end {
            front_end.requests.on_event(cx.driver, event);
        }
    }

    fn on_pass(&mut self, cx: &mut Context<'_, '_>) {
        self.accept(cx);
        let (stops, poisoned) = (self.stops, self.poisoned);
        if let Some(front_end) = &mut self.front_end {
            front_end.requests.resume(cx.driver);
            if stops {
                front_end.waiting.clear();
            } else {
                front_end.receive();
            }
            front_end.begin(cx);
            front_end.answer(cx, poisoned);
            if stops {
                front_end.leaves = true;
            } else if front_end.has_message {
                front_end.handle_messages(cx);
                front_end.receive();
                front_end.begin(cx);
                front_end.answer(cx, poisoned);
            }
        }
        self.part(cx);
        self.accept(cx);
    }

    fn on_poison(&mut self, cx: &mut Context<'_, '_>) {
        (self.stops, self.poisoned) = (true, true);
        if let Some(front_end) = &mut self.front_end {
            front_end.requests.poison(cx.driver);
        }
    }

    fn on_stop(&mut self, _: &mut Context<'_, '_>) {
        self.stops = true;
    }

    fn drained(&self) -> bool {
        self.front_end.as_ref().is_none_or(|front_end| front_end.requests.open() == 0)
    }

    fn is_waiting(&self) -> bool {
        let waits = |it: &FrontEnd| it.requests.is_starved() || !it.waiting.is_empty();
        self.front_end.as_ref().is_some_and(waits)
    }

    fn next_wake(&self) -> Option<Time> {
        self.accept_again
    }
}

/// State of a front end's next message, before it is received.
enum Arrived {
    Nothing,
    Whole,
    End,
}

/// State of the front end's next message. Fails if only a part of it has arrived, or if the socket
/// has no room for a reply: the crate `vhost` would block until that changes.
fn message(socket: &UnixStream) -> Result<Arrived, String> {
    let mut header = [0; MESSAGE_HEADER_BYTES];
    let flags = RecvFlags::PEEK | RecvFlags::DONTWAIT;
    let came = match rustix::net::recv(socket, &mut header, flags) {
        Ok((0, _)) => return Ok(Arrived::End),
        Ok((came, _)) => came,
        Err(Errno::AGAIN | Errno::INTR) => return Ok(Arrived::Nothing),
        Err(Errno::CONNRESET) => return Ok(Arrived::End),
        Err(errno) => return Err(errno.to_string()),
    };
    let waits = rustix::io::ioctl_fionread(socket).map_err(|errno| errno.to_string())?;
    let size = u32::from_le_bytes(*header.last_chunk().expect("12 bytes"));
    // A size beyond the longest message is cut here; `vhost` refuses the message when it is
    // handled.
    let whole = MESSAGE_HEADER_BYTES as u64 + u64::from(size.min(MESSAGE_BYTES_MAX));
    if came < header.len() || waits < whole {
        return Err(format!("found {waits} bytes of a message, expected all of it at once"));
    }
    let mut out = [PollFd::new(socket, PollFlags::OUT)];
    match rustix::event::poll(&mut out, Some(&Timespec::default())) {
        Ok(1) => Ok(Arrived::Whole),
        _ => Err("the front end reads no replies".into()),
    }
}

/// Stops watching the descriptors that rings no longer have. The front end has the same descriptors
/// open, so closing them here would not end the watch.
fn unwatch(device: &mut Device, cx: &Context<'_, '_>) {
    for kick in device.take_unwatched() {
        cx.unwatch(File::as_fd(&kick));
    }
}

fn lock(device: &Mutex<Device>) -> MutexGuard<'_, Device> {
    device.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Time without new front ends after the process ran out of descriptors.
const ACCEPT_PAUSE: Span = Span::secs(1);
const KEY_LISTENER: u32 = 0;
const KEY_SOCKET: u32 = 1;
/// Event key of the first ring; the other rings have the keys after it.
const KEY_RINGS: u32 = 2;
const MESSAGE_HEADER_BYTES: usize = 12;
/// Largest size of a message in bytes, without its header.
const MESSAGE_BYTES_MAX: u32 = 4096;
