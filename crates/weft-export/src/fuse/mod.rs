//! FUSE port: a volume as a file of this machine, which needs no root.
//!
//! The file has the size of the volume and no cache of its own: reads and writes go to the volume,
//! fsync makes them durable, and a hole that is punched is discarded. The kernel's requests are
//! carried out in steps (`step.rs`) as those of any client (`session/requests.rs`); their data is
//! copied between the requests and frames. Requests that have to wait wait here, in order, and
//! then in the bounded queue of weft-fuse.
//!
//! A stop of the server unmounts the file first, and is refused while a program uses it. After the
//! death of the server programs get errors, and the next server takes the dead mount away
//! (`mount_point.rs`).
//!
//! Source   Documentation/filesystems/fuse.rst, qemu-storage-daemon(1) `--export type=fuse`

mod mount_point;
mod step;

use std::cell::RefCell;
use std::collections::VecDeque;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::{Arc, mpsc};
use std::time::{Duration, SystemTime};

use fuser::{FileAttr, FileType, INodeNo};
use rustix::event::EventfdFlags;
use rustix::event::epoll::EventFlags;
use rustix::io::Errno;
use weft_engine::{ReplyError, RequestOp};
use weft_fuse::{FileRequest, InUse, MountError, Unmounted};
use weft_runtime::buffers::Buffer;
use weft_runtime::serve::clients::client_of;
use weft_runtime::serve::driver::Event;
use weft_runtime::serve::reactor::{Context, Exit, Port};
use weft_runtime::ublk::Params;
use weft_units::{Bytes, SECTOR_BYTES, Time};

pub(crate) use mount_point::Exported;

use crate::session::{Requests, Served};
use step::{Extent, Step, Turn, number_of};

/// FUSE port: the file of one volume.
pub(crate) struct FusePort {
    served: Served,
    credit: Bytes,
    exported: Exported,
    extent: Extent,
    made: SystemTime,
    /// Requests of the kernel, which is served as one client; `None` before the start.
    requests: Option<Requests<u32, ()>>,
    /// Steps that have not begun, in order.
    waiting: VecDeque<Step>,
    in_flight: InFlight,
    /// Whether a step that has to be alone has begun, and the one after it has not ended.
    is_alone: bool,
    phase: Phase,
    unmounting: Unmounting,
}

/// Steps in flight, by the number under which [`Requests`] knows them. Closures of `Requests` use
/// the data of several of them.
#[derive(Default)]
struct InFlight {
    steps: RefCell<Vec<Option<Step>>>,
    free: Vec<u32>,
}

/// Phase in the life of the file.
#[derive(Debug, PartialEq, Eq)]
enum Phase {
    Mounted,
    Unmounting,
    Gone,
    /// The file could not be unmounted, for this reason, and is served as before.
    Kept(String),
}

/// Results of unmounts, each of which has a thread of its own: the kernel may ask for attributes of
/// the file meanwhile.
struct Unmounting {
    sender: mpsc::Sender<Result<Unmounted, MountError>>,
    results: mpsc::Receiver<Result<Unmounted, MountError>>,
    /// Readable when there is a result.
    eventfd: Arc<OwnedFd>,
}

impl FusePort {
    pub(crate) fn new(
        exported: Exported,
        served: Served,
        credit: Bytes,
        params: &Params,
    ) -> std::io::Result<Self> {
        let flags = EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK;
        let eventfd = Arc::new(rustix::event::eventfd(0, flags)?);
        let (sender, results) = mpsc::channel();
        let extent =
            Extent { size: params.size.0 * SECTOR_BYTES, block: params.logical_block.into() };
        Ok(Self {
            served,
            credit,
            exported,
            extent,
            made: SystemTime::now(),
            requests: None,
            waiting: VecDeque::new(),
            in_flight: InFlight::default(),
            is_alone: false,
            phase: Phase::Mounted,
            unmounting: Unmounting { sender, results, eventfd },
        })
    }

    /// Takes requests that have arrived, as long as few of them wait here.
    fn receive(&mut self, cx: &mut Context<'_, '_>) {
        while self.waiting.len() < WAITING_MAX {
            let Some(request) = self.exported.file.take() else { return };
            match request {
                FileRequest::Attributes(reply) => {
                    self.see_size(cx);
                    reply.attr(&FRESH, &self.attributes());
                }
                // Truncation when the file is opened for overwriting changes nothing, as with a
                // block device.
                FileRequest::Resize { size, by_file, reply } => {
                    self.see_size(cx);
                    match by_file && size != self.extent.size {
                        true => reply.error(number_of(Errno::INVAL)),
                        false => reply.attr(&FRESH, &self.attributes()),
                    }
                }
                FileRequest::End => {
                    if matches!(self.phase, Phase::Mounted | Phase::Kept(_)) {
                        let file = self.exported.path().display();
                        tracing::warn!(%file, "unmounted by another program");
                    }
                    self.phase = Phase::Gone;
                }
                request => self.waiting.extend(Step::first(request, self.extent)),
            }
        }
    }

    /// Sees that the volume has grown.
    fn see_size(&mut self, cx: &mut Context<'_, '_>) {
        if !self.served.whole {
            return;
        }
        let snapshot = cx.driver.shared_snapshot();
        let volume = snapshot.as_ref().and_then(|it| it.volumes.get(self.served.volume.index()));
        if let Some(volume) = volume {
            let size = volume.size.0 / self.extent.block * self.extent.block;
            self.extent.size = self.extent.size.max(size);
        }
    }

    fn attributes(&self) -> FileAttr {
        let Extent { size, block } = self.extent;
        FileAttr {
            ino: INodeNo::ROOT,
            size,
            blocks: size / SECTOR_BYTES,
            atime: self.made,
            mtime: self.made,
            ctime: self.made,
            crtime: self.made,
            kind: FileType::RegularFile,
            perm: if self.exported.read_only { 0o400 } else { 0o600 },
            nlink: 1,
            uid: rustix::process::geteuid().as_raw(),
            gid: rustix::process::getegid().as_raw(),
            rdev: 0,
            blksize: u32::try_from(block).unwrap_or(PAGE_BYTES).max(PAGE_BYTES),
            flags: 0,
        }
    }

    /// Begins steps that wait, in order, until one has to wait longer.
    fn begin(&mut self, cx: &mut Context<'_, '_>) {
        let Some(requests) = &mut self.requests else { return };
        loop {
            let steps = &self.in_flight.steps;
            requests.fill(cx.driver, |number, offset, frames| {
                let steps = steps.borrow();
                steps[number as usize].as_ref().is_some_and(|step| put(&step.data, offset, frames))
            });
            let Some(step) = self.waiting.front() else { return };
            let may_begin = match step.turn {
                Turn::Shared => !self.is_alone,
                Turn::FirstAlone => !self.is_alone && requests.open() == 0,
                Turn::LastAlone => true,
            };
            if requests.receiving().is_some() || !may_begin {
                return;
            }
            let asked = step.asked;
            if !requests.begin(cx.driver, self.in_flight.next(), &asked) {
                return;
            }
            if let Some(recorder) = requests.recorder() {
                recorder.note(asked);
            }
            let mut step = self.waiting.pop_front().expect("it is the first");
            self.is_alone |= step.turn == Turn::FirstAlone;
            if asked.op == RequestOp::Read {
                step.data =
                    vec![0; usize::try_from(asked.len).expect("a request fits into memory")];
            }
            self.in_flight.add(step);
        }
    }

    /// Answers steps that have ended, or goes on with the next step of their requests. Returns
    /// whether any step had ended.
    fn end_steps(&mut self, cx: &mut Context<'_, '_>) -> bool {
        let Some(requests) = &mut self.requests else { return false };
        let steps = &self.in_flight.steps;
        let mut ended = Vec::new();
        let copy = |number: u32, offset, frames: &Buffer| {
            let mut steps = steps.borrow_mut();
            let step = steps[number as usize].as_mut();
            step.is_some_and(|step| take(frames, offset, &mut step.data))
        };
        requests.answer_ended(cx.driver, copy, |number, error| ended.push((number, error)));
        let has_ended = !ended.is_empty();
        // Steps that follow are put before those that wait, in the order of their requests.
        for (number, error) in ended.into_iter().rev() {
            let step = self.in_flight.remove(number);
            let is_first = step.turn == Turn::FirstAlone;
            if step.turn == Turn::LastAlone || (is_first && error.is_some()) {
                self.is_alone = false;
            }
            match error {
                None => {
                    if let Some(next) = step.next(self.extent) {
                        self.waiting.push_front(next);
                    }
                }
                Some(error) => step.then.end(Err(&error)),
            }
        }
        has_ended
    }
}

impl InFlight {
    /// Number of the step that is added next.
    fn next(&self) -> u32 {
        let fresh = || u32::try_from(self.steps.borrow().len()).expect("bounded by the credit");
        self.free.last().copied().unwrap_or_else(fresh)
    }

    fn add(&mut self, step: Step) {
        let steps = self.steps.get_mut();
        match self.free.pop() {
            Some(number) => steps[number as usize] = Some(step),
            None => steps.push(Some(step)),
        }
    }

    fn remove(&mut self, number: u32) -> Step {
        self.free.push(number);
        self.steps.get_mut()[number as usize].take().expect("in flight until it ends")
    }
}

impl Unmounting {
    fn start(&self, exported: &Exported) -> std::io::Result<()> {
        let (point, sender) = (exported.file.mount().point().clone(), self.sender.clone());
        let eventfd = Arc::clone(&self.eventfd);
        std::thread::Builder::new().name("weft-unmount".into()).spawn(move || {
            // Errors are ignored: the port has ended.
            let _ = sender.send(point.unmount(InUse::Refuse));
            let _ = rustix::io::write(&*eventfd, &1_u64.to_ne_bytes());
        })?;
        Ok(())
    }
}

impl Port for FusePort {
    fn on_start(&mut self, cx: &mut Context<'_, '_>) -> std::io::Result<()> {
        let mut requests = Requests::new(client_of(cx.port(), 0), self.credit);
        requests.choose(cx.driver, self.served.clone(), self.served.share);
        self.requests = Some(requests);
        cx.watch(self.exported.file.as_fd(), KEY_REQUESTS, EventFlags::IN)?;
        cx.watch(self.unmounting.eventfd.as_fd(), KEY_UNMOUNTED, EventFlags::IN)
    }

    fn on_ready(&mut self, cx: &mut Context<'_, '_>, key: u32, _: EventFlags) {
        if key == KEY_REQUESTS {
            self.exported.file.woken();
            return self.receive(cx);
        }
        let _ = rustix::io::read(&*self.unmounting.eventfd, &mut [0; 8]);
        if let Ok(result) = self.unmounting.results.try_recv() {
            self.phase = match result {
                Ok(_) => Phase::Gone,
                Err(error) => Phase::Kept(error.to_string()),
            };
        }
    }

    fn on_event(&mut self, cx: &mut Context<'_, '_>, event: Event) {
        if let Some(requests) = &mut self.requests {
            requests.on_event(cx.driver, event);
        }
    }

    fn on_pass(&mut self, cx: &mut Context<'_, '_>) {
        if let Some(requests) = &mut self.requests {
            requests.resume(cx.driver);
        }
        // After a panic of the engine steps end when they begin, and no event calls the port.
        loop {
            self.receive(cx);
            self.begin(cx);
            if !self.end_steps(cx) {
                return;
            }
        }
    }

    fn on_poison(&mut self, cx: &mut Context<'_, '_>) {
        if let Some(requests) = &mut self.requests {
            requests.poison(cx.driver);
        }
    }

    fn on_closing(&mut self, _: &mut Context<'_, '_>) {
        if matches!(self.phase, Phase::Mounted | Phase::Kept(_)) {
            self.phase = match self.unmounting.start(&self.exported) {
                Ok(()) => Phase::Unmounting,
                Err(error) => Phase::Kept(error.to_string()),
            };
        }
    }

    fn is_closed(&self) -> Result<bool, String> {
        match &self.phase {
            Phase::Kept(why) => Err(why.clone()),
            phase => Ok(*phase == Phase::Gone),
        }
    }

    fn on_stop(&mut self, _: &mut Context<'_, '_>) {
        for step in self.waiting.drain(..) {
            step.then.end(Err(&ReplyError::Stopping));
        }
    }

    fn on_stopped(&mut self, _: &mut Context<'_, '_>, _: &Exit) {}

    fn drained(&self) -> bool {
        self.requests.as_ref().is_none_or(|requests| requests.open() == 0)
    }

    fn is_waiting(&self) -> bool {
        let starved = self.requests.as_ref().is_some_and(Requests::is_starved);
        starved || !self.waiting.is_empty()
    }

    fn next_wake(&self) -> Option<Time> {
        None
    }
}

/// Copies data to write, from `offset` on, into frames. Returns whether there was enough.
fn put(data: &[u8], offset: u64, frames: &mut Buffer) -> bool {
    let Some(mut rest) = usize::try_from(offset).ok().and_then(|at| data.get(at..)) else {
        return false;
    };
    let count = frames.len();
    frames.slices_mut(0, count).iter_mut().all(|slice| {
        let Some((part, after)) = rest.split_at_checked(slice.len()) else { return false };
        slice.copy_from_slice(part);
        rest = after;
        true
    })
}

/// Copies data that was read from frames to `data`, from `offset` on. Returns whether there was
/// room.
fn take(frames: &Buffer, offset: u64, data: &mut [u8]) -> bool {
    let mut rest =
        usize::try_from(offset).ok().and_then(|at| data.get_mut(at..)).unwrap_or_default();
    frames.slices(0, frames.len()).iter().all(|slice| {
        let Some((part, after)) = std::mem::take(&mut rest).split_at_mut_checked(slice.len())
        else {
            return false;
        };
        part.copy_from_slice(slice);
        rest = after;
        true
    })
}

const KEY_REQUESTS: u32 = 0;
const KEY_UNMOUNTED: u32 = 1;
/// Largest number of steps that wait here; further requests wait in the queue.
const WAITING_MAX: usize = 16;
/// Time for which the kernel uses attributes without asking again.
const FRESH: Duration = Duration::ZERO;
const PAGE_BYTES: u32 = 4096;
