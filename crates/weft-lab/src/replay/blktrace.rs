//! Trace format: binary files of blktrace.
//!
//! A file consists of records of 48 bytes, each followed by a payload of the length in the record,
//! in the byte order of the traced machine. Events of queued (or issued) requests become records;
//! other events and notes are counted, and the names of processes are kept.
//!
//! Source   linux/blktrace_api.h (UAPI); experiments.md §5.1; agreement with blkparse 1.2.0 is
//!          tested

use super::line::request_max;
use super::{Context, Event, Flags, Op, Record, ReplayError, Source, rwbs};
use std::io::{self, BufRead};
use weft_units::{Bytes, Sectors, Time};

/// Bytes of a record without its payload.
pub(crate) const RECORD_BYTES: usize = 48;

/// The upper three bytes of the magic number.
const MAGIC: u32 = 0x6561_7400;

/// The only version with a specification.
const VERSION: u32 = 7;

/// Category bits in the upper half of the action.
mod category {
    pub(super) const WRITE: u32 = 1 << 1;
    pub(super) const FLUSH: u32 = 1 << 2;
    pub(super) const SYNC: u32 = 1 << 3;
    pub(super) const PASS_THROUGH: u32 = 1 << 9;
    pub(super) const NOTIFY: u32 = 1 << 10;
    pub(super) const AHEAD: u32 = 1 << 11;
    pub(super) const META: u32 = 1 << 12;
    pub(super) const DISCARD: u32 = 1 << 13;
    pub(super) const FUA: u32 = 1 << 15;
}

/// Names of the events, by number, under which they are counted when left out.
const EVENTS: [&str; 18] = [
    "events without a kind",
    "queue events",
    "back merge events",
    "front merge events",
    "get request events",
    "sleep events",
    "requeue events",
    "issue events",
    "complete events",
    "plug events",
    "unplug events",
    "unplug timer events",
    "insert events",
    "split events",
    "bounce events",
    "remap events",
    "abort events",
    "driver data",
];

/// Whether a file begins with blktrace's magic number, in either byte order and of any version.
pub(crate) fn recognises(begin: &[u8]) -> bool {
    begin.first_chunk().is_some_and(|magic| Order::of(*magic).is_some())
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Order {
    Big,
    Little,
}

impl Order {
    fn of(magic: [u8; 4]) -> Option<Self> {
        if u32::from_le_bytes(magic) & 0xffff_ff00 == MAGIC {
            Some(Self::Little)
        } else if u32::from_be_bytes(magic) & 0xffff_ff00 == MAGIC {
            Some(Self::Big)
        } else {
            None
        }
    }

    /// Reads an integer of `width` bytes at byte `at` of a record.
    fn number(self, bytes: &[u8; RECORD_BYTES], at: usize, width: usize) -> u64 {
        let bytes = &bytes[at..at + width];
        let push = |value: u64, byte: &u8| value << 8 | u64::from(*byte);
        match self {
            Self::Big => bytes.iter().fold(0, push),
            Self::Little => bytes.iter().rev().fold(0, push),
        }
    }
}

/// A blktrace file of one CPU.
pub(crate) struct Blktrace {
    file: String,
    reader: Box<dyn BufRead>,
    event: Event,
    order: Option<Order>,
    record: u64,
    byte: u64,
}

impl Blktrace {
    pub(crate) fn new(file: String, reader: Box<dyn BufRead>, event: Event) -> Self {
        Self { file, reader, event, order: None, record: 0, byte: 0 }
    }

    fn error(&self, at: usize, field: &'static str, found: String, expected: &str) -> ReplayError {
        ReplayError::Bytes {
            file: self.file.clone(),
            record: self.record,
            byte: self.byte + at as u64,
            field,
            found,
            expected: expected.to_owned(),
        }
    }

    /// Fills `buffer`. Returns `false` at the end of the file, before the first byte. Fails if the
    /// file ends within the buffer.
    fn read(&mut self, buffer: &mut [u8], field: &'static str) -> Result<bool, ReplayError> {
        let mut filled = 0;
        while filled < buffer.len() {
            match self.reader.read(&mut buffer[filled..]) {
                Ok(0) if filled == 0 => return Ok(false),
                Ok(0) => {
                    let found = format!("{filled} bytes");
                    let expected = format!("{} bytes", buffer.len());
                    return Err(self.error(0, field, found, &expected));
                }
                Ok(count) => filled += count,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(ReplayError::io(&self.file)(error)),
            }
        }
        Ok(true)
    }

    /// Byte order of the record with this magic number. Fails if it is not the byte order of the
    /// first record, or if the version is not 7.
    fn order(&mut self, magic: [u8; 4]) -> Result<Order, ReplayError> {
        let shown = format!("{:02x} {:02x} {:02x} {:02x}", magic[0], magic[1], magic[2], magic[3]);
        let Some(order) = Order::of(magic) else {
            return Err(self.error(0, "magic", shown, "65 61 74 07 or 07 74 61 65"));
        };
        if *self.order.get_or_insert(order) != order {
            return Err(self.error(0, "magic", shown, "the byte order of the first record"));
        }
        let version = match order {
            Order::Big => magic[3],
            Order::Little => magic[0],
        };
        if u32::from(version) != VERSION {
            return Err(self.error(
                if order == Order::Big { 3 } else { 0 },
                "version",
                version.to_string(),
                "7, the only one that weft reads; print the trace with blkparse and replay its text",
            ));
        }
        Ok(order)
    }

    /// Converts the record in `bytes` with its payload. Returns a request and its sequence number,
    /// or the name under which a record that is no request is counted.
    fn request(
        &self,
        bytes: &[u8; RECORD_BYTES],
        order: Order,
        payload: &[u8],
        context: &mut Context,
    ) -> Result<Result<(Record, u32), &'static str>, ReplayError> {
        let number = |at, width| order.number(bytes, at, width);
        let narrow = |at| u32::try_from(order.number(bytes, at, 4)).expect("four bytes");
        let action = narrow(28);
        let (event, mask) = (action & 0xffff, action >> 16);
        let pid = narrow(32);
        if mask & category::NOTIFY != 0 {
            if event == 0 {
                let name = payload.split(|byte| *byte == 0).next().unwrap_or_default();
                context.name_process(pid, &String::from_utf8_lossy(name));
            }
            return Ok(Err("notes"));
        }
        let Some(kind) = EVENTS.get(event as usize) else {
            return Err(self.error(28, "action", format!("event {event}"), "an event of 0..=17"));
        };
        let chosen = match self.event {
            Event::Queue => 1,
            Event::Issue => 7,
        };
        if event != chosen {
            return Ok(Err(kind));
        }
        if mask & category::PASS_THROUGH != 0 {
            return Ok(Err("pass-through commands"));
        }
        let flags = Flags {
            sync: mask & category::SYNC != 0,
            meta: mask & category::META != 0,
            fua: mask & category::FUA != 0,
            preflush: mask & category::FLUSH != 0,
            ahead: mask & category::AHEAD != 0,
        };
        let length = Bytes(number(24, 4));
        let op = if mask & category::DISCARD != 0 {
            Some(Op::Discard)
        } else if mask & category::WRITE != 0 {
            Some(Op::Write)
        } else if length == Bytes::ZERO {
            None
        } else {
            Some(Op::Read)
        };
        let Some((op, flags)) = rwbs::request(op, flags, length == Bytes::ZERO) else {
            return Ok(Err("requests without a transfer"));
        };
        let sector = Sectors(number(16, 8));
        let offset = if op == Op::Flush { Bytes::ZERO } else { sector.bytes() };
        let (most, expected) = request_max(op);
        if length > most {
            return Err(self.error(24, "bytes", length.0.to_string(), expected));
        }
        if offset.0.saturating_add(length.0) > i64::MAX as u64 {
            let expected = "a request that ends below byte 2^63";
            return Err(self.error(16, "sector", sector.0.to_string(), expected));
        }
        let device = narrow(36);
        let name = format!("{},{}", device >> 20, device & 0xf_ffff);
        let Some(device) = context.devices.intern(&name) else {
            return Err(self.error(36, "device", name, "at most 65536 devices in one trace"));
        };
        let (time, pid) = (Time(number(8, 8)), Some(pid));
        let record = Record { time, device, op, flags, offset, length, pid, latency: None };
        Ok(Ok((record, narrow(4))))
    }
}

impl Source for Blktrace {
    fn next(&mut self, context: &mut Context) -> Result<Option<(Record, u32)>, ReplayError> {
        let mut payload = Vec::new();
        loop {
            let mut bytes = [0; RECORD_BYTES];
            self.record += 1;
            if !self.read(&mut bytes, "record")? {
                return Ok(None);
            }
            let order = self.order([bytes[0], bytes[1], bytes[2], bytes[3]])?;
            let payload_bytes = usize::try_from(order.number(&bytes, 46, 2)).expect("two bytes");
            payload.resize(payload_bytes, 0);
            if payload_bytes > 0 && !self.read(&mut payload, "payload")? {
                let expected = format!("{payload_bytes} bytes");
                return Err(self.error(RECORD_BYTES, "payload", "none".to_owned(), &expected));
            }
            context.counts.lines += 1;
            let request = self.request(&bytes, order, &payload, context)?;
            self.byte += (RECORD_BYTES + payload_bytes) as u64;
            match request {
                Ok(request) => return Ok(Some(request)),
                Err(kind) => context.skip(kind),
            }
        }
    }
}
