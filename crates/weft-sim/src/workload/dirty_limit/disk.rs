//! Disk of a box: requests merged and sorted, the drive's own queue, and counts.
//!
//! The queue holds 128 requests of at most 512 KiB; a thread that submits another one waits until a
//! request completes. Requests are dispatched to the drive in ascending order of sectors, as many
//! as the drive's own queue takes. Pages that follow a waiting request are merged into it. A disk
//! is idle while it has no request at all.

use std::collections::{BTreeMap, VecDeque};
use std::ops::Range;

use weft_engine::page_cache::InodeId;
use weft_units::{Sectors, Span, Time};

use crate::drive::{Access, Command, Done, Drive};

/// Largest number of requests (`nr_requests`).
const REQUESTS_MAX: usize = 128;
/// Largest size of a request in sectors (`max_sectors_kb`).
const REQUEST_SECTORS: u64 = 1024;

/// A request to the disk.
#[derive(Clone, Debug)]
pub(super) struct Request {
    pub access: Access,
    pub first: u64,
    pub sectors: u64,
    pub what: What,
}

/// Payload of a request: pages of files, or the log.
#[derive(Clone, Debug)]
pub(super) enum What {
    /// Pages of files: for each run of pages, its file and page numbers.
    Pages(Vec<(InodeId, Range<u64>)>),
    /// A step in the commit of the file system's log.
    Log,
}

/// A disk with its queue.
#[derive(Debug)]
pub(super) struct Disk {
    drive: Drive,
    /// Requests that were not dispatched yet, by first sector.
    sorted: BTreeMap<u64, Request>,
    /// Flushes and writes of the log, which are not sorted and are dispatched first.
    first: VecDeque<Request>,
    /// Requests at the drive, by tag.
    at_drive: Vec<Option<Request>>,
    tags: Vec<usize>,
    held: usize,
    /// Sector after the last dispatched request.
    position: u64,
    /// Time for which the world has planned the drive's next event.
    pub(super) planned: Option<Time>,
    done: Vec<Done>,
    idle_since: Option<Time>,
    idle: Span,
    /// Number of flushes that were submitted.
    pub(super) flushes: u64,
    /// Number of pages written since the start of the run.
    pub(super) written: u64,
    /// Number of sectors dispatched. `jumps` counts requests that did not follow the preceding one.
    sent: u64,
    jumps: u64,
}

/// Sums of a disk from the start of the run to some time.
#[derive(Clone, Copy, Debug)]
pub(super) struct DiskSums {
    pub idle: Span,
    pub sent: u64,
    pub jumps: u64,
}

impl Disk {
    pub(super) fn new(drive: Drive) -> Self {
        let depth = drive.depth() as usize;
        Self {
            drive,
            sorted: BTreeMap::new(),
            first: VecDeque::new(),
            at_drive: vec![None; depth],
            tags: (0..depth).rev().collect(),
            held: 0,
            position: 0,
            planned: None,
            done: Vec::new(),
            idle_since: Some(Time(0)),
            idle: Span::ZERO,
            flushes: 0,
            written: 0,
            sent: 0,
            jumps: 0,
        }
    }

    /// Merges pages into a request that ends where they begin, if there is one with room. Returns
    /// whether there was.
    pub(super) fn join(&mut self, first: u64, inode: InodeId, pages: &Range<u64>) -> bool {
        let sectors = 8 * (pages.end - pages.start);
        let Some((_, before)) = self.sorted.range_mut(..first).next_back() else { return false };
        let What::Pages(of) = &mut before.what else { return false };
        if before.first + before.sectors != first || before.sectors + sectors > REQUEST_SECTORS {
            return false;
        }
        before.sectors += sectors;
        match of.last_mut() {
            Some((last, run)) if *last == inode && run.end == pages.start => run.end = pages.end,
            _ => of.push((inode, pages.clone())),
        }
        true
    }

    /// Whether a thread that submits another request has to wait.
    pub(super) fn is_full(&self) -> bool {
        self.held >= REQUESTS_MAX
    }

    /// Adds a request to the queue.
    pub(super) fn submit(&mut self, now: Time, request: Request) {
        if let Some(since) = self.idle_since.take() {
            self.idle.0 += (now - since).0;
        }
        self.held += 1;
        self.flushes += u64::from(request.access == Access::Flush);
        match request.what {
            What::Log => self.first.push_back(request),
            What::Pages(_) => {
                let before = self.sorted.insert(request.first, request);
                assert!(before.is_none(), "no two writes to a place are outstanding");
            }
        }
    }

    /// Dispatches the next request, if the drive has room. Returns its tag and number of bytes.
    pub(super) fn send(&mut self) -> Option<(usize, u64)> {
        let tag = *self.tags.last()?;
        let request = match self.first.pop_front() {
            Some(request) => request,
            None => {
                let next = self.sorted.range(self.position..).next().or(self.sorted.iter().next());
                let place = *next?.0;
                self.sorted.remove(&place).expect("the request was found")
            }
        };
        self.tags.pop();
        if request.sectors > 0 {
            self.sent += request.sectors;
            self.jumps += u64::from(request.first != self.position);
            self.position = request.first + request.sectors;
        }
        let bytes = request.sectors * 512;
        self.at_drive[tag] = Some(request);
        Some((tag, bytes))
    }

    /// Submits a request to the drive when its data has passed over the link. Returns the request
    /// if the drive has nothing to do for it, so that it is complete.
    pub(super) fn arrive(&mut self, now: Time, tag: usize) -> Option<Request> {
        let request = self.at_drive[tag].as_ref().expect("the request was sent");
        let Some(access) = self.drive.wanted(request.access) else {
            return Some(self.end(now, tag));
        };
        let command = Command {
            tag: tag as u64,
            access,
            first: Sectors(request.first),
            length: Sectors(request.sectors),
        };
        self.drive.submit(now, command);
        None
    }

    pub(super) fn next_event(&self) -> Option<Time> {
        self.drive.next_event()
    }

    /// Takes the requests that the drive has completed by now.
    pub(super) fn advance(&mut self, now: Time) -> Vec<Request> {
        let mut done = std::mem::take(&mut self.done);
        self.drive.advance(now, &mut done);
        let ended = done.drain(..).map(|done| self.end(now, done.tag as usize)).collect();
        self.done = done;
        ended
    }

    fn end(&mut self, now: Time, tag: usize) -> Request {
        let request = self.at_drive[tag].take().expect("a completed request was sent");
        self.tags.push(tag);
        self.held -= 1;
        if self.held == 0 {
            self.idle_since = Some(now);
        }
        if matches!(request.what, What::Pages(_)) {
            self.written += request.sectors / 8;
        }
        request
    }

    pub(super) fn sums(&self, now: Time) -> DiskSums {
        let idle = self.idle_since.map_or(0, |since| (now - since).0);
        DiskSums { idle: Span(self.idle.0 + idle), sent: self.sent, jumps: self.jumps }
    }
}
