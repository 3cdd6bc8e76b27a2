//! Solid-state drive: reads, buffered writes, and flushes with and without power-loss protection.
//!
//! ```text
//!     read    buffered ─────────────────────────────────────────▶ link ─▶ t_cmd ─▶ done
//!             else, for each superpage ─▶ die ─▶ channel ───────▶ link ─▶ t_cmd ─▶ done
//!     write   room promised ─▶ link ─▶ mapped, buffered ─▶ t_cmd ─▶ done ┄┄▶ die
//!     flush   protected: t_cmd + t_flush
//!             else: fill up and program what is buffered ─▶ program the map ─▶ t_flush ─▶ done
//! ```
//!
//! Without power-loss protection a FUA write completes as if a flush followed it. Flushes of a
//! drive are served in rounds, one round after the other. A round serves the flushes that arrived
//! before it began: all of them, or only one if the drive does not coalesce flushes.
//!
//! Assumptions beyond the specification: a write that continues none of the last eight streams
//! takes `random_write_us` longer (S4500: 52 instead of 36 µs); the second command in sequence
//! starts readahead; pages that were never written are read from the flash like others; a command
//! of less than 4 KiB costs a page; latencies vary randomly, if the model says so, as in `spread`;
//! a faster medium before the flash (SLC mode) is not modelled.
//!
//! Source   `experiments.md` §2.2

mod buckets;
mod buffer;
mod flash;
mod mapping;
mod spread;
mod streams;

pub(super) use flash::FlashParameters;
pub(super) use mapping::MappingGeometry;

use super::counters::Counters;
use super::events::Events;
use super::link::Link;
use super::{Access, Command, Done};
use buffer::{Buffer, PageHasher};
use flash::{Flash, Op, Reader};
use mapping::{Mapping, Work};
use spread::Spread;
use std::collections::{HashMap, VecDeque};
use std::hash::BuildHasherDefault;
use std::sync::Arc;
use streams::Streams;
use weft_units::rng::Rng;
use weft_units::{Bytes, Sectors, Span, Time};

/// Number of sectors in a page, the unit of the mapping.
const PAGE: u64 = 8;
const PAGE_BYTES: u64 = 4096;

/// Parameters of an [`Ssd`].
#[derive(Clone, Debug)]
pub(super) struct SsdParameters {
    pub(super) shape: MappingGeometry,
    pub(super) flash: FlashParameters,
    pub(super) queue_depth: u32,
    /// Latency that every command has; it occupies neither a die nor the link.
    pub(super) command: Span,
    /// Additional time of a write that continues no earlier write.
    pub(super) random_write: Span,
    /// Mean of the random additional latency of reads from the flash; zero for none. `write_spread`
    /// is that of writes that continue no earlier write.
    pub(super) read_spread: Span,
    pub(super) write_spread: Span,
    pub(super) link_bytes_per_second: u64,
    pub(super) link_overhead_read: Span,
    pub(super) link_overhead_write: Span,
    /// Window of readahead for a sequential stream; zero for none.
    pub(super) read_ahead: Sectors,
    pub(super) write_buffer: Sectors,
    pub(super) volatile_cache: bool,
    pub(super) power_loss_protection: bool,
    /// Duration of a flush after its programs have completed.
    pub(super) flush: Span,
    /// Duration of a flush if nothing was written since the last flush.
    pub(super) flush_clean: Span,
    pub(super) flush_coalesces: bool,
    /// Whether the host may send a flush while the drive holds other commands.
    pub(super) flush_queueable: bool,
    /// Whether everything was written once in order and twice at random before the start (steady
    /// state).
    pub(super) is_steady: bool,
}

/// A solid-state drive.
#[derive(Clone, Debug)]
pub struct Ssd {
    parameters: Arc<SsdParameters>,
    events: Events<Event>,
    link: Link,
    mapping: Mapping,
    buffer: Buffer,
    flash: Flash,
    /// Reads that have not received all of their bytes, by index.
    reads: Vec<Reading>,
    /// Indexes in `reads` that are free.
    unused: Vec<u32>,
    read_streams: Streams,
    write_streams: Streams,
    /// Superpages that were read ahead or are being read ahead, by number.
    ahead: HashMap<u64, Ahead, BuildHasherDefault<PageHasher>>,
    /// Writes for which the buffer has no room yet, in order of arrival.
    outside: VecDeque<Command>,
    flushing: Option<Flushing>,
    /// Tags of the flushes and FUA writes that wait for the next round of flushes.
    flushes: VecDeque<u64>,
    /// Whether anything was written since the last round of flushes began.
    is_dirty: bool,
    /// Number of rows erased so far, on top of a random start. A block of a die counts as erased
    /// once as many rows were erased as a block has pages.
    rows_erased: u64,
    spread: Spread,
    held: u32,
    work: Vec<Work>,
    counters: Counters,
}

#[derive(Clone, Copy, Debug)]
enum Event {
    /// An operation of a die ends. `begun` is the number of operations that the die has begun or
    /// continued up to this one.
    Die { die: u32, begun: u32 },
    /// Bytes of a read have been transferred from a die.
    Arrived(Reader),
    /// The bytes of a write have been transferred over the link.
    Written(Command),
    /// The round of flushes in progress is complete.
    Flushed,
    /// The command with this tag is complete.
    Done(u64),
}

#[derive(Clone, Copy, Debug)]
struct Reading {
    tag: u64,
    /// Number of bytes that have not been transferred over the link.
    left: u32,
    /// Whether the fixed overhead that the command has on the link was counted.
    is_announced: bool,
    /// Random part of the command's latency, in addition to the smallest latency.
    late: Span,
}

/// A superpage that is being read ahead or was read ahead.
#[derive(Clone, Debug, Default)]
struct Ahead {
    is_here: bool,
    /// Whether the superpage is no longer needed; if it is still being read, it is dropped when it
    /// has been read.
    is_used: bool,
    /// Read commands that wait for the superpage, each with the number of its bytes.
    waiting: Vec<(u32, u32)>,
}

/// A round of flushes that is in progress.
#[derive(Clone, Debug)]
struct Flushing {
    tags: Vec<u64>,
    /// Number of the first program that the round does not wait for: all programs with lower
    /// numbers must complete.
    until: u64,
    is_mapping: bool,
}

impl Ssd {
    pub(super) fn new(parameters: &Arc<SsdParameters>, seed: u64) -> Self {
        let parameters = Arc::clone(parameters);
        let shape = parameters.shape;
        let mapping =
            if parameters.is_steady { Mapping::steady(shape) } else { Mapping::fresh(shape) };
        let mut rng = Rng::new(seed);
        Self {
            events: Events::new(),
            link: Link::new(parameters.link_bytes_per_second),
            mapping: mapping.seeded(rng.fork()),
            buffer: Buffer::new(parameters.write_buffer.0 / PAGE),
            flash: Flash::new(&parameters.flash),
            reads: Vec::new(),
            unused: Vec::new(),
            read_streams: Streams::new(),
            write_streams: Streams::new(),
            ahead: HashMap::default(),
            outside: VecDeque::new(),
            flushing: None,
            flushes: VecDeque::new(),
            is_dirty: false,
            rows_erased: rng.below(u64::from(parameters.flash.block_pages)),
            spread: Spread::new(rng.fork()),
            held: 0,
            work: Vec::new(),
            counters: Counters::default(),
            parameters,
        }
    }

    pub(super) fn depth(&self) -> u32 {
        self.parameters.queue_depth
    }

    pub(super) fn volatile_cache(&self) -> bool {
        self.parameters.volatile_cache
    }

    pub(super) fn flush_queueable(&self) -> bool {
        self.parameters.flush_queueable
    }

    pub(super) fn capacity(&self) -> Sectors {
        Sectors(self.parameters.shape.pages * PAGE)
    }

    pub(super) fn counters(&self) -> &Counters {
        &self.counters
    }

    pub(super) fn next_event(&self) -> Option<Time> {
        self.events.next_at()
    }

    pub(super) fn durable(&self, first: Sectors, length: Sectors) -> bool {
        let mut pages = pages(first.0, first.0 + length.0);
        self.parameters.power_loss_protection || !pages.any(|page| self.buffer.has(page))
    }

    pub(super) fn submit(&mut self, now: Time, command: Command) {
        assert!(self.held < self.depth(), "the host keeps to the depth of the drive");
        self.held += 1;
        self.counters.take(&command);
        let (first, end) = (command.first.0, command.first.0 + command.length.0);
        match command.access {
            Access::Read => self.read(now, command.tag, first, end),
            Access::Write { .. } => {
                self.outside.push_back(command);
                self.take_writes(now);
            }
            Access::Flush if self.parameters.power_loss_protection => {
                let done = now + self.parameters.command + self.parameters.flush;
                self.events.plan(done, Event::Done(command.tag));
            }
            Access::Flush => {
                self.flushes.push_back(command.tag);
                self.begin_flush(now);
            }
            Access::Discard => {
                // Whole pages only, because the rest of a page may still be read.
                self.mapping.discard(first.div_ceil(PAGE), end / PAGE);
                let done = now + self.parameters.command;
                self.events.plan(done, Event::Done(command.tag));
            }
        }
        self.count_busy();
    }

    pub(super) fn advance(&mut self, now: Time, done: &mut Vec<Done>) {
        while let Some((at, event)) = self.events.pop(now) {
            match event {
                Event::Die { die, begun } => {
                    if let Some(op) = self.flash.end(at, die, begun, &mut self.events) {
                        self.ended(at, op);
                    }
                }
                Event::Arrived(Reader::Command { command, bytes }) => {
                    self.deliver(at, command, bytes);
                }
                Event::Arrived(Reader::Ahead(superpage)) => self.arrived_ahead(at, superpage),
                Event::Written(command) => self.written(at, &command),
                Event::Flushed => {
                    let flushing = self.flushing.take().expect("a flush is under way");
                    for tag in flushing.tags {
                        self.events.plan(at + self.parameters.command, Event::Done(tag));
                    }
                    self.begin_flush(at);
                }
                Event::Done(tag) => {
                    self.held -= 1;
                    done.push(Done { tag });
                }
            }
        }
        self.count_busy();
    }

    fn count_busy(&mut self) {
        self.counters.link_busy = self.link.busy;
        self.counters.media_busy = self.flash.busy;
    }

    /// Starts a read of the sectors from `first` to `end`.
    fn read(&mut self, now: Time, tag: u64, first: u64, end: u64) {
        let bytes = Sectors(end - first).bytes().0 as u32;
        let reading = Reading { tag, left: bytes, is_announced: false, late: Span::ZERO };
        let command = match self.unused.pop() {
            Some(place) => {
                self.reads[place as usize] = reading;
                place
            }
            None => {
                self.reads.push(reading);
                self.reads.len() as u32 - 1
            }
        };
        let fetch = self.follow(first, end);
        let superpage = u64::from(self.parameters.shape.superpage);
        let mut at = first;
        let mut hit = true;
        while at < end {
            let number = at / PAGE / superpage;
            let until = ((number + 1) * superpage * PAGE).min(end);
            let bytes = Sectors(until - at).bytes().0 as u32;
            if pages(at, until).all(|page| self.buffer.has(page)) {
                self.deliver(now, command, bytes);
            } else if let Some(ahead) = self.ahead.get_mut(&number) {
                if ahead.is_here {
                    self.deliver(now, command, bytes);
                } else {
                    hit = false;
                    ahead.waiting.push((command, bytes));
                }
                if until == (number + 1) * superpage * PAGE {
                    self.used(number);
                }
            } else {
                hit = false;
                self.counters.nand_reads += 1;
                let slots = pages(at, until).count() as u32;
                let die = self.mapping.die(at / PAGE);
                let reader = Reader::Command { command, bytes };
                self.flash.read(now, die, reader, slots, &mut self.events);
            }
            at = until;
        }
        self.counters.cache_hits += u64::from(hit);
        if !hit {
            self.reads[command as usize].late = self.spread.draw(self.parameters.read_spread);
        }
        if let Some((from, until)) = fetch {
            self.fetch(now, from, until);
        }
    }

    /// Assigns a read to a stream. Returns the range of superpages to read ahead; `None` for no
    /// readahead.
    fn follow(&mut self, first: u64, end: u64) -> Option<(u64, u64)> {
        let superpage = u64::from(self.parameters.shape.superpage) * PAGE;
        let window = self.parameters.read_ahead.0;
        if window == 0 {
            return None;
        }
        match self.read_streams.take(first, end) {
            Ok(stream) => {
                let from = stream.fetched.max(end.div_ceil(superpage));
                let until = (end + window).min(self.parameters.shape.pages * PAGE) / superpage;
                stream.fetched = stream.fetched.max(until);
                (from < until).then_some((from, until))
            }
            Err(old) => {
                for number in old.next / superpage..old.fetched {
                    self.used(number);
                }
                None
            }
        }
    }

    /// Drops a superpage that was read ahead and is no longer needed.
    fn used(&mut self, number: u64) {
        if let Some(ahead) = self.ahead.get_mut(&number) {
            ahead.is_used = true;
            if ahead.is_here {
                self.ahead.remove(&number);
            }
        }
    }

    /// Starts to read the superpages from `from` to `until` ahead.
    fn fetch(&mut self, now: Time, from: u64, until: u64) {
        let superpage = self.parameters.shape.superpage;
        for number in from..until {
            if self.ahead.contains_key(&number) {
                continue;
            }
            self.ahead.insert(number, Ahead::default());
            self.counters.nand_reads += 1;
            let die = self.mapping.die(number * u64::from(superpage));
            self.flash.read(now, die, Reader::Ahead(number), superpage, &mut self.events);
        }
    }

    fn arrived_ahead(&mut self, now: Time, number: u64) {
        let Some(ahead) = self.ahead.get_mut(&number) else { return };
        ahead.is_here = true;
        let waiting = std::mem::take(&mut ahead.waiting);
        if ahead.is_used {
            self.ahead.remove(&number);
        }
        for (command, bytes) in waiting {
            self.deliver(now, command, bytes);
        }
    }

    /// Transfers bytes of a read over the link, and completes the read after its last byte.
    fn deliver(&mut self, now: Time, command: u32, bytes: u32) {
        let reading = &mut self.reads[command as usize];
        let overhead = if std::mem::replace(&mut reading.is_announced, true) {
            Span::ZERO
        } else {
            self.parameters.link_overhead_read
        };
        let over = self.link.pass(now, Bytes(u64::from(bytes)), overhead);
        reading.left -= bytes;
        if reading.left == 0 {
            let done = over + self.parameters.command + reading.late;
            self.events.plan(done, Event::Done(reading.tag));
            self.unused.push(command);
        }
    }

    /// Accepts writes as far as there is room for them in the buffer.
    fn take_writes(&mut self, now: Time) {
        while let Some(command) = self.outside.front() {
            let end = command.first.0 + command.length.0;
            let count = end.div_ceil(PAGE) - command.first.0 / PAGE;
            if !self.buffer.promise(count) {
                return;
            }
            let command = self.outside.pop_front().expect("front was checked");
            let overhead = self.parameters.link_overhead_write;
            let over = self.link.pass(now, command.length.bytes(), overhead);
            self.events.plan(over, Event::Written(command));
        }
    }

    /// Handles a write after its bytes have been transferred into the buffer.
    fn written(&mut self, now: Time, command: &Command) {
        let (first, end) = (command.first.0, command.first.0 + command.length.0);
        let superpage = u64::from(self.parameters.shape.superpage);
        self.is_dirty = true;
        for page in pages(first, end) {
            if !self.ahead.is_empty() {
                self.used(page / superpage);
            }
            self.buffer.take(page);
            let work = &mut self.work;
            self.mapping.write(page, &mut |it| work.push(it));
            self.start_work(now);
        }
        let continues = self.write_streams.take(first, end).is_ok();
        if matches!(command.access, Access::Write { fua: true })
            && !self.parameters.power_loss_protection
        {
            self.flushes.push_back(command.tag);
            self.begin_flush(now);
            return;
        }
        let mut done = now + self.parameters.command;
        if !continues {
            let spread = self.spread.draw(self.parameters.write_spread);
            done = done + self.parameters.random_write + spread;
        }
        self.events.plan(done, Event::Done(command.tag));
    }

    /// Starts the reads, programs and erases of dies that the mapping has asked for.
    fn start_work(&mut self, now: Time) {
        let mut work = std::mem::take(&mut self.work);
        for it in work.drain(..) {
            let superpage = u64::from(self.parameters.shape.superpage);
            match it {
                Work::Program { die, padding } => {
                    let number = self.buffer.program();
                    let padding = u64::from(padding);
                    self.count_program(superpage);
                    add(&mut self.counters.nand_host_bytes, superpage - padding);
                    add(&mut self.counters.nand_padding_bytes, padding);
                    self.flash.work(now, die, Op::Host(number), &mut self.events);
                }
                Work::Move { die } => {
                    self.count_program(superpage);
                    add(&mut self.counters.nand_moved_bytes, superpage);
                    self.flash.work(now, die, Op::Moved, &mut self.events);
                }
                Work::Read { die, slots } => {
                    self.counters.nand_reads += 1;
                    self.flash.work(now, die, Op::MoveRead(slots), &mut self.events);
                }
                Work::Erase => self.erase_row(now),
            }
        }
        self.work = work;
    }

    fn count_program(&mut self, pages: u64) {
        self.counters.nand_programs += 1;
        add(&mut self.counters.nand_bytes, pages);
    }

    /// Counts a row as erased. Each die erases a block whenever as many rows were erased as a block
    /// has pages; the dies do this in turn.
    fn erase_row(&mut self, now: Time) {
        self.rows_erased += 1;
        let (rows, dies) =
            (u64::from(self.parameters.flash.block_pages), self.parameters.flash.dies);
        for die in 0..dies {
            let turn = self.rows_erased + u64::from(die) * rows / u64::from(dies);
            if turn.is_multiple_of(rows) {
                self.counters.erases += 1;
                self.flash.work(now, die, Op::Erase, &mut self.events);
            }
        }
    }

    /// Handles the end of an operation of a die.
    fn ended(&mut self, now: Time, op: Op) {
        match op {
            Op::Host(number) => {
                self.buffer.end(number);
                self.take_writes(now);
                self.go_on_flushing(now);
            }
            Op::Map => self.events.plan(now + self.parameters.flush, Event::Flushed),
            Op::Moved | Op::MoveRead(_) | Op::Erase => {}
        }
    }

    /// Starts the next round of flushes, if none is in progress and a flush waits.
    fn begin_flush(&mut self, now: Time) {
        if self.flushing.is_some() || self.flushes.is_empty() {
            return;
        }
        let count = if self.parameters.flush_coalesces { self.flushes.len() } else { 1 };
        let tags: Vec<u64> = self.flushes.drain(..count).collect();
        if !std::mem::replace(&mut self.is_dirty, false) {
            let until = self.buffer.next_program();
            self.flushing = Some(Flushing { tags, until, is_mapping: true });
            self.events.plan(now + self.parameters.flush_clean, Event::Flushed);
            return;
        }
        let work = &mut self.work;
        self.mapping.pad(&mut |it| work.push(it));
        self.start_work(now);
        let until = self.buffer.next_program();
        self.flushing = Some(Flushing { tags, until, is_mapping: false });
        self.go_on_flushing(now);
    }

    /// Starts to program the map for the round of flushes, once all earlier programs have
    /// completed.
    fn go_on_flushing(&mut self, now: Time) {
        let Some(flushing) = &mut self.flushing else { return };
        if flushing.is_mapping || !self.buffer.ended_before(flushing.until) {
            return;
        }
        flushing.is_mapping = true;
        let superpage = u64::from(self.parameters.shape.superpage);
        self.count_program(superpage);
        add(&mut self.counters.nand_map_bytes, superpage);
        // Any die will do: pages of the map rotate over the dies like data.
        let die = (self.counters.nand_programs % u64::from(self.parameters.flash.dies)) as u32;
        self.flash.work(now, die, Op::Map, &mut self.events);
    }
}

/// Numbers of the pages that a range of sectors touches.
fn pages(first: u64, end: u64) -> std::ops::Range<u64> {
    first / PAGE..end.div_ceil(PAGE)
}

/// Adds the bytes of this number of pages.
fn add(bytes: &mut Bytes, pages: u64) {
    *bytes = Bytes(bytes.0 + pages * PAGE_BYTES);
}
