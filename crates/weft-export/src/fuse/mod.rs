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
use std::os::fd::AsFd;
use std::time::{Duration, SystemTime};

use fuser::{FileAttr, FileType, INodeNo};
use rustix::event::epoll::EventFlags;
use rustix::io::Errno;
use weft_engine::{ReplyError, RequestOp};
use weft_fuse::{FileRequest, InUse, MountError, Unmounted};
use weft_runtime::buffers::Buffer;
use weft_runtime::serve::driver::Event;
use weft_runtime::serve::reactor::{Context, Port};
use weft_runtime::ublk::Params;
use weft_units::{Bytes, SECTOR_BYTES};

pub(crate) use mount_point::Exported;

use crate::helper::Helper;
use crate::session::{Served, SoleClient};
use step::{Extent, Step, Turn, number_of};

/// FUSE port: the file of one volume.
pub(crate) struct FusePort {
    client: SoleClient<u32>,
    exported: Exported,
    extent: Extent,
    made: SystemTime,
    /// Steps (requests to the volume) that have not begun, in order.
    waiting: VecDeque<Step>,
    in_flight: InFlight,
    /// Whether a write of a part of a block is under way: a step that reads the blocks, and one
    /// that writes them back. No other step begins until both have ended.
    is_alone: bool,
    phase: Phase,
    /// Thread that unmounts the file, so that the port can answer when the kernel asks for
    /// attributes meanwhile.
    unmounting: Helper<(), Result<Unmounted, MountError>>,
}

/// Steps in flight, by number. The [`SoleClient`] has this number as the request of a step. A
/// cell holds the list, because closures that copy data look up the data of several steps.
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

impl FusePort {
    pub(crate) fn new(
        exported: Exported,
        served: Served,
        credit: Bytes,
        params: &Params,
    ) -> std::io::Result<Self> {
        let point = exported.file.mount().point().clone();
        let unmounting = Helper::start("weft-unmount", move |()| point.unmount(InUse::Refuse))?;
        let extent =
            Extent { size: params.size.0 * SECTOR_BYTES, block: params.logical_block.into() };
        Ok(Self {
            client: SoleClient::new(served, credit),
            exported,
            extent,
            made: SystemTime::now(),
            waiting: VecDeque::new(),
            in_flight: InFlight::default(),
            is_alone: false,
            phase: Phase::Mounted,
            unmounting,
        })
    }

    /// Takes requests that have arrived until [`WAITING_MAX`] steps wait. Requests for attributes
    /// are answered at once.
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

    /// Raises the size of the file to that of the volume, if the export covers the whole volume and
    /// the volume has grown.
    fn see_size(&mut self, cx: &mut Context<'_, '_>) {
        let served = self.client.served();
        if !served.whole {
            return;
        }
        let snapshot = cx.driver.shared_snapshot();
        let volume = snapshot.as_ref().and_then(|it| it.volumes.get(served.volume.index()));
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
        let Some(requests) = self.client.requests_mut() else { return };
        loop {
            let steps = &self.in_flight.steps;
            requests.fill(cx.driver, |number, offset, frames| {
                let steps = steps.borrow();
                let step = steps[number as usize].as_ref();
                let data = step.and_then(|step| step.data.get(usize::try_from(offset).ok()?..));
                data.is_some_and(|data| frames.copy_from(data))
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
            requests.note(asked);
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
        let Some(requests) = self.client.requests_mut() else { return false };
        let steps = &self.in_flight.steps;
        let mut ended = Vec::new();
        let copy = |number: u32, offset, frames: &Buffer| {
            let mut steps = steps.borrow_mut();
            let step = steps[number as usize].as_mut();
            let data = step.and_then(|step| step.data.get_mut(usize::try_from(offset).ok()?..));
            data.is_some_and(|data| frames.copy_to(data))
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

impl Port for FusePort {
    fn on_start(&mut self, cx: &mut Context<'_, '_>) -> std::io::Result<()> {
        self.client.start(cx);
        cx.watch(self.exported.file.as_fd(), KEY_REQUESTS, EventFlags::IN)?;
        cx.watch(self.unmounting.as_fd(), KEY_UNMOUNTED, EventFlags::IN)
    }

    fn on_ready(&mut self, cx: &mut Context<'_, '_>, key: u32, _: EventFlags) {
        if key == KEY_REQUESTS {
            self.exported.file.woken();
            return self.receive(cx);
        }
        if let Some(result) = self.unmounting.take_result() {
            self.phase = match result {
                Ok(_) => Phase::Gone,
                Err(error) => Phase::Kept(error.to_string()),
            };
        }
    }

    fn on_event(&mut self, cx: &mut Context<'_, '_>, event: Event) {
        self.client.on_event(cx, event);
    }

    fn on_pass(&mut self, cx: &mut Context<'_, '_>) {
        self.client.resume(cx);
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
        self.client.poison(cx);
    }

    fn on_closing(&mut self, _: &mut Context<'_, '_>) {
        if matches!(self.phase, Phase::Mounted | Phase::Kept(_)) {
            self.unmounting.give(());
            self.phase = Phase::Unmounting;
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

    fn drained(&self) -> bool {
        self.client.is_drained()
    }

    fn is_waiting(&self) -> bool {
        self.client.is_starved() || !self.waiting.is_empty()
    }
}

const KEY_REQUESTS: u32 = 0;
const KEY_UNMOUNTED: u32 = 1;
/// Largest number of steps that wait in the port; further requests wait in the queue of the mounted
/// file.
const WAITING_MAX: usize = 16;
/// Time for which the kernel uses attributes without asking again: none, because the size may grow.
const FRESH: Duration = Duration::ZERO;
const PAGE_BYTES: u32 = 4096;
