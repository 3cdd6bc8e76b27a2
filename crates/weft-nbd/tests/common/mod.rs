//! A disk in memory behind a [`ServerConnection`], and small helpers.
#![allow(dead_code, reason = "each test crate uses a part")]

pub(crate) mod client;

use std::sync::Arc;

use weft_nbd::wire::{OptionHeader, RequestHeader, client_flag};
use weft_nbd::{
    ExportInfo, Extent, NbdRequest, OUTPUT_BYTES_HIGH, Op, ServerConnection, ServerEvent,
    TransmissionFlags,
};

/// Upper bound of the memory that a client can make the server hold: one option, a full output, one
/// more reply.
pub(crate) const MEMORY_BYTES_MAX: usize = 2 * (64 << 10) + 2 * (OUTPUT_BYTES_HIGH + 16 * 1024);

/// Bytes from hexadecimal text; blanks are ignored, and `"text"` stands for its own bytes.
pub(crate) fn hex(text: &str) -> Vec<u8> {
    let mut bytes = Vec::new();
    for (index, part) in text.split('"').enumerate() {
        if index % 2 == 1 {
            bytes.extend_from_slice(part.as_bytes());
            continue;
        }
        let digits: Vec<u32> =
            part.chars().filter(|c| !c.is_whitespace()).map(|c| c.to_digit(16).unwrap()).collect();
        assert_eq!(digits.len() % 2, 0, "{part}");
        bytes.extend(digits.chunks(2).map(|pair| u8::try_from(pair[0] * 16 + pair[1]).unwrap()));
    }
    bytes
}

/// Bytes as hexadecimal text that [`hex`] reads, for the messages of failed tests.
pub(crate) fn show(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

pub(crate) fn option(option: u32, data: &[u8]) -> Vec<u8> {
    let len = u32::try_from(data.len()).unwrap();
    [&OptionHeader { option, len }.encode()[..], data].concat()
}

/// Data of the options GO and INFO.
pub(crate) fn info_data(name: &[u8], kinds: &[u16]) -> Vec<u8> {
    let mut data = u32::try_from(name.len()).unwrap().to_be_bytes().to_vec();
    data.extend_from_slice(name);
    data.extend_from_slice(&u16::try_from(kinds.len()).unwrap().to_be_bytes());
    data.extend(kinds.iter().flat_map(|kind| kind.to_be_bytes()));
    data
}

pub(crate) fn request(command: u16, flags: u16, cookie: u64, offset: u64, len: u32) -> Vec<u8> {
    let len = u64::from(len);
    RequestHeader { flags, command, cookie, offset, len }.encode().to_vec()
}

/// A request with extended headers.
pub(crate) fn extended(command: u16, flags: u16, cookie: u64, offset: u64, len: u64) -> Vec<u8> {
    RequestHeader { flags, command, cookie, offset, len }.encode_extended().to_vec()
}

pub(crate) fn client_flags() -> [u8; 4] {
    (client_flag::FIXED_NEWSTYLE | client_flag::NO_ZEROES).to_be_bytes()
}

/// A server with a disk in memory, driven as the documentation of the crate describes.
pub(crate) struct Server {
    pub(crate) connection: ServerConnection,
    pub(crate) disk: Vec<u8>,
    pub(crate) events: Vec<ServerEvent>,
    pub(crate) sent: Vec<u8>,
    writing: Option<(NbdRequest, usize)>,
    /// Answers reads in pieces where the disk has zeroes.
    pub(crate) sparse: bool,
}

impl Server {
    /// A server of these exports. The first export is the default export and has a disk of up to 1
    /// MiB; bytes beyond the disk read as zeroes.
    pub(crate) fn new(exports: Vec<ExportInfo>) -> Self {
        let disk = vec![0; usize::try_from(exports[0].size()).unwrap().min(1 << 20)];
        let exports: Arc<[ExportInfo]> = exports.into();
        let connection = ServerConnection::new(exports, Some(0));
        let (events, sent) = (Vec::new(), Vec::new());
        Self { connection, disk, events, sent, writing: None, sparse: false }
    }

    /// A server of one export called `disk`, with everything the server half implements.
    pub(crate) fn with_disk(size: u64) -> Self {
        let flags = ExportInfo::DEFAULT_FLAGS
            | TransmissionFlags::SEND_TRIM
            | TransmissionFlags::SEND_CACHE;
        let disk = ExportInfo::new("disk", size).unwrap().with_flags(flags).with_allocation();
        Self::new(vec![disk])
    }

    /// The server past the handshake, with nothing in `sent`.
    pub(crate) fn open(self, structured: bool) -> Self {
        self.open_after(if structured { &[8] } else { &[] })
    }

    /// The server past a handshake with these options without data, and with `base:allocation`
    /// chosen if replies may report it.
    pub(crate) fn open_after(mut self, options: &[u32]) -> Self {
        self.receive(&client_flags());
        for number in options {
            self.receive(&option(*number, &[]));
        }
        if options == [11] {
            let data = b"\0\0\0\x04disk\0\0\0\x01\0\0\0\x0fbase:allocation";
            self.receive(&option(10, data));
        }
        self.receive(&option(7, &info_data(b"disk", &[])));
        assert_eq!(self.events, [ServerEvent::Ready { export: 0 }]);
        self.events.clear();
        self.sent.clear();
        self
    }

    pub(crate) fn receive(&mut self, bytes: &[u8]) {
        let mut rest = bytes;
        loop {
            self.drain();
            let remaining = self.connection.payload_remaining();
            if remaining > 0 {
                let (payload, after) = rest.split_at(remaining.min(rest.len()));
                if payload.is_empty() {
                    return;
                }
                rest = after;
                self.take_payload(payload, payload.len() == remaining);
                continue;
            }
            let (count, event) = self.connection.input(rest);
            assert!(self.connection.memory_bytes() <= MEMORY_BYTES_MAX);
            rest = &rest[count..];
            if count == 0 && event.is_none() {
                assert!(rest.is_empty(), "stuck before {} bytes", rest.len());
                return;
            }
            if let Some(event) = event {
                self.events.push(event);
                self.drain();
                self.perform(event);
            }
        }
    }

    /// Bytes sent since the last call.
    pub(crate) fn take_sent(&mut self) -> Vec<u8> {
        self.drain();
        std::mem::take(&mut self.sent)
    }

    fn take_payload(&mut self, payload: &[u8], last: bool) {
        let (request, at) = self.writing.unwrap();
        if let Some(target) = self.disk.get_mut(at..at + payload.len()) {
            target.copy_from_slice(payload);
        }
        self.connection.payload_consumed(payload.len());
        self.writing = Some((request, at + payload.len()));
        if last {
            self.writing = None;
            self.connection.reply(&request, Ok(()));
        }
    }

    fn perform(&mut self, event: ServerEvent) {
        let ServerEvent::Request(request) = event else { return };
        match request.op {
            Op::BlockStatus { offset, len, .. } => {
                let extents = self.extents(offset, len);
                self.connection.reply_extents(&request, &extents);
            }
            Op::Read { mut offset, len, df: false }
                if self.sparse && self.connection.is_structured() =>
            {
                let extents = self.extents(offset, u64::from(len));
                if let [Extent { zero: true, .. }] = extents[..] {
                    self.connection.reply_hole(&request);
                    return;
                }
                for extent in extents {
                    let header = self.connection.piece_header(&request, extent, offset);
                    self.sent.extend_from_slice(&header);
                    let at = usize::try_from(offset).unwrap();
                    if !extent.zero {
                        let data = &self.disk[at..at + usize::try_from(extent.len).unwrap()];
                        self.sent.extend_from_slice(data);
                    }
                    offset += extent.len;
                }
            }
            Op::Read { offset, len, .. } => {
                let header = self.connection.reply_header(&request, Ok(()));
                self.sent.extend_from_slice(&header);
                let at = usize::try_from(offset).unwrap();
                let data =
                    (at..at + len as usize).map(|at| self.disk.get(at).copied().unwrap_or(0));
                self.sent.extend(data);
            }
            Op::Write { offset, .. } => {
                self.writing = Some((request, usize::try_from(offset).unwrap()));
            }
            Op::WriteZeroes { offset, len, .. } => {
                let at = usize::try_from(offset).unwrap();
                let end = (offset + len).min(self.disk.len() as u64);
                let end = usize::try_from(end).unwrap();
                if at < end {
                    self.disk[at..end].fill(0);
                }
                self.connection.reply(&request, Ok(()));
            }
            Op::Cache { .. } | Op::Flush | Op::Trim { .. } => {
                self.connection.reply(&request, Ok(()));
            }
        }
    }

    /// Runs of zeroes and of other bytes in a range.
    fn extents(&self, offset: u64, len: u64) -> Vec<Extent> {
        let at = usize::try_from(offset).unwrap();
        let is_zero = |at: usize| self.disk.get(at).is_none_or(|byte| *byte == 0);
        let mut extents: Vec<Extent> = Vec::new();
        // Bytes beyond the disk are all zero.
        let near = usize::try_from(len).unwrap().min(self.disk.len().saturating_sub(at) + 1);
        for at in at..at + near {
            match extents.last_mut() {
                Some(last) if last.zero == is_zero(at) => last.len += 1,
                _ if is_zero(at) => extents.push(Extent::hole(1)),
                _ => extents.push(Extent::data(1)),
            }
        }
        if let Some(last) = extents.last_mut().filter(|last| last.zero) {
            last.len += len - near as u64;
        }
        extents
    }

    fn drain(&mut self) {
        let count = self.connection.output().len();
        self.sent.extend_from_slice(self.connection.output());
        self.connection.advance_output(count);
    }
}
