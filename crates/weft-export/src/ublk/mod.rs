//! ublk port: a volume as a block device of this machine, `/dev/ublkbN`.
//!
//! The kernel's requests are carried out as those of any client (`session/requests.rs`); their data
//! is copied between the kernel's request and frames. The kernel has at most
//! [`weft_runtime::ublk::DEPTH`] requests in flight and knows no back-pressure: a request that has
//! to wait for frames or credit waits here, and those behind it with it.
//!
//! Commands to the ublk driver block until requests of the device were served: the start of a
//! device reads its partition table, and its stop writes back the page cache. A separate thread
//! (`helper.rs`) therefore gives the commands.
//!
//! A stop of a device that is in use is refused, and the device stays. After the death of the
//! server, or a stop that gives up, the device stays too, and its requests wait until the volume is
//! served again.
//!
//! Source   Documentation/block/ublk.rst

mod devices;

use std::collections::VecDeque;
use std::os::fd::AsFd;
use std::path::PathBuf;
use std::sync::Arc;

use rustix::event::epoll::EventFlags;
use rustix::io::Errno;
use weft_engine::RequestOp;
use weft_runtime::buffers::Buffer;
use weft_runtime::serve::driver::Event;
use weft_runtime::serve::reactor::{Context, Ending, Port};
use weft_runtime::ublk::{Device, Operation, Queue, QueueData, Request};
use weft_units::Bytes;

pub(crate) use devices::{add, open};

use crate::error::errno_of;
use crate::helper::Helper;
use crate::record::VolumeRequest;
use crate::session::{Served, SoleClient};
use devices::Start;

/// ublk port: the block device of one volume.
pub(crate) struct UblkPort {
    client: SoleClient<Request>,
    /// Kernel's side of the device; `None` once the device was stopped.
    kernel: Option<Kernel>,
    /// Requests that have arrived and not begun, in order.
    waiting: VecDeque<Request>,
    arrived: Vec<Request>,
    path: PathBuf,
    helper: Helper<Command, std::io::Result<()>>,
    phase: Phase,
    /// Whether the device is to be stopped once it is live.
    closes: bool,
    /// Whether the volume stops, or cannot go on: requests without an answer stay with the kernel
    /// for another server.
    stops: bool,
    poisoned: bool,
    /// Whether the device has been live.
    was_live: bool,
    start: Arc<Start>,
}

/// The kernel's side of the device.
struct Kernel {
    queue: Queue,
    data: QueueData,
}

/// Phase in the life of the device.
#[derive(Debug, PartialEq, Eq)]
enum Phase {
    /// The kernel creates the block device.
    Starting,
    Live,
    /// The kernel removes the block device, before the volume stops.
    Stopping,
    /// The kernel removes the rest of the device.
    Deleting,
    Gone,
    /// The device could not be stopped, for this reason, and goes on.
    Kept(String),
}

/// Command to the ublk driver.
#[derive(Clone, Copy)]
enum Command {
    Start,
    Stop,
    Delete,
}

impl UblkPort {
    pub(crate) fn new(
        mut device: Device,
        served: Served,
        credit: Bytes,
        start: Arc<Start>,
    ) -> std::io::Result<Self> {
        let queue = device.queue()?;
        let data = queue.data()?;
        let path = device.path();
        let helper = Helper::start("weft-ublk", move |command| match command {
            Command::Start => device.start(),
            Command::Stop => device.stop(),
            Command::Delete => device.delete(),
        })?;
        Ok(Self {
            client: SoleClient::new(served, credit),
            kernel: Some(Kernel { queue, data }),
            waiting: VecDeque::new(),
            arrived: Vec::new(),
            path,
            helper,
            phase: Phase::Starting,
            closes: false,
            stops: false,
            poisoned: false,
            was_live: false,
            start,
        })
    }

    /// Takes the requests that have arrived.
    fn receive(&mut self) {
        let Some(Kernel { queue, .. }) = &mut self.kernel else { return };
        if queue.arrived(&mut self.arrived).is_none() && self.phase == Phase::Live {
            tracing::warn!(device = %self.path.display(), "removed by another program");
            self.phase = Phase::Gone;
        }
        for request in self.arrived.drain(..) {
            if let (Some(asked), Some(requests)) = (asked(&request), self.client.requests_mut()) {
                requests.note(asked);
            }
            self.waiting.push_back(request);
        }
    }

    /// Begins requests that have arrived, in order, until one has to wait.
    fn begin(&mut self, cx: &mut Context<'_, '_>) {
        let (Some(requests), Some(kernel)) = (self.client.requests_mut(), &mut self.kernel) else {
            return;
        };
        loop {
            // A copy fails only when the kernel has given the request up.
            let data = &kernel.data;
            requests.fill(cx.driver, |Request { tag, .. }, offset, frames| {
                data.read(tag, offset, frames).is_ok()
            });
            if requests.receiving().is_some() || self.stops {
                return;
            }
            let Some(request) = self.waiting.front().copied() else { return };
            match asked(&request) {
                Some(asked) if !requests.begin(cx.driver, request, &asked) => return,
                Some(_) => {}
                None => kernel.queue.answer(request.tag, -Errno::OPNOTSUPP.raw_os_error()),
            }
            self.waiting.pop_front();
        }
    }

    /// Answers requests that have ended.
    fn answer(&mut self, cx: &mut Context<'_, '_>) {
        let (Some(requests), Some(kernel)) = (self.client.requests_mut(), &mut self.kernel) else {
            return;
        };
        let Kernel { queue, data } = kernel;
        let is_left = self.poisoned;
        // A copy fails only when the kernel has given the request up.
        let copy = |request: Request, offset, frames: &Buffer| {
            data.write(request.tag, offset, frames).is_ok()
        };
        requests.answer_ended(cx.driver, copy, |Request { tag, len, operation, .. }, error| {
            let bytes = i32::try_from(len).unwrap_or(i32::MAX);
            let result = match error {
                _ if is_left => return,
                Some(error) => -errno_of(&error).raw_os_error(),
                None if matches!(operation, Operation::Read | Operation::Write) => bytes,
                None => 0,
            };
            queue.answer(tag, result);
        });
    }

    /// Handles the result of a command to the ublk driver.
    fn on_result(&mut self, cx: &mut Context<'_, '_>) {
        let Some(result) = self.helper.take_result() else { return };
        self.phase = match (&self.phase, result) {
            (Phase::Starting, Ok(())) => {
                tracing::info!(device = %self.path.display(), "the block device is there");
                self.was_live = true;
                self.start.end_part();
                if self.closes { self.command(Command::Stop) } else { Phase::Live }
            }
            (Phase::Starting, Err(error)) => {
                let text = format!("{}: it does not start: {error}", self.path.display());
                self.start.fail(text);
                self.command(Command::Delete)
            }
            (Phase::Stopping, Ok(())) => self.command(Command::Delete),
            (Phase::Stopping, Err(error)) => Phase::Kept(error.to_string()),
            (_, _) => {
                if !self.was_live {
                    cx.stop(Ending::GiveUp);
                }
                Phase::Gone
            }
        };
    }

    /// Gives a command to the ublk driver. Returns the phase that lasts until its result.
    fn command(&mut self, command: Command) -> Phase {
        let phase = match command {
            Command::Start => Phase::Starting,
            Command::Stop => Phase::Stopping,
            Command::Delete => {
                self.kernel = None;
                Phase::Deleting
            }
        };
        self.helper.give(command);
        phase
    }
}

impl Port for UblkPort {
    fn on_start(&mut self, cx: &mut Context<'_, '_>) -> std::io::Result<()> {
        self.client.start(cx);
        cx.watch(self.helper.as_fd(), KEY_HELPER, EventFlags::IN)?;
        if let Some(Kernel { queue, .. }) = &mut self.kernel {
            cx.watch(queue.wait_fd(), KEY_QUEUE, EventFlags::IN)?;
            queue.fetch()?;
        }
        self.phase = self.command(Command::Start);
        Ok(())
    }

    fn on_ready(&mut self, cx: &mut Context<'_, '_>, key: u32, _: EventFlags) {
        match key {
            KEY_QUEUE => self.receive(),
            _ => self.on_result(cx),
        }
    }

    fn on_event(&mut self, cx: &mut Context<'_, '_>, event: Event) {
        self.client.on_event(cx, event);
    }

    fn on_pass(&mut self, cx: &mut Context<'_, '_>) {
        self.client.resume(cx);
        self.begin(cx);
        self.answer(cx);
        let sent = self.kernel.as_mut().map(|kernel| kernel.queue.submit());
        if let Some(Err(error)) = sent {
            tracing::error!(device = %self.path.display(), %error, "answers wait");
        }
    }

    fn on_poison(&mut self, cx: &mut Context<'_, '_>) {
        (self.stops, self.poisoned) = (true, true);
        self.client.poison(cx);
    }

    fn on_closing(&mut self, _: &mut Context<'_, '_>) {
        self.closes = true;
        if matches!(self.phase, Phase::Live | Phase::Kept(_)) {
            self.phase = self.command(Command::Stop);
        }
    }

    fn is_closed(&self) -> Result<bool, String> {
        match &self.phase {
            Phase::Kept(why) => Err(why.clone()),
            phase => Ok(*phase == Phase::Gone),
        }
    }

    fn on_stop(&mut self, _: &mut Context<'_, '_>) {
        self.stops = true;
    }

    fn drained(&self) -> bool {
        self.client.is_drained()
    }

    fn is_waiting(&self) -> bool {
        self.client.is_starved() || !self.waiting.is_empty()
    }
}

/// Request to the volume for a request of the kernel; `None` for an operation that volumes do not
/// have.
fn asked(request: &Request) -> Option<VolumeRequest> {
    let Request { start, len, fua, .. } = *request;
    let volume = |op, discard| VolumeRequest { op, start, len, fua, discard };
    Some(match request.operation {
        Operation::Read => volume(RequestOp::Read, false),
        Operation::Write => volume(RequestOp::Write, false),
        Operation::Flush => VolumeRequest { start: 0, len: 0, ..volume(RequestOp::Flush, false) },
        Operation::Discard => volume(RequestOp::Trim, false),
        Operation::WriteZeroes { keep } => volume(RequestOp::WriteZeroes, !keep),
        Operation::Other(_) => return None,
    })
}

const KEY_QUEUE: u32 = 0;
const KEY_HELPER: u32 = 1;
