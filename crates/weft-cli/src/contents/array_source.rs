//! Content of an array as a source: reads of a server within this process, or of the NBD server of
//! a running volume.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::ops::Range;
use std::rc::Rc;

use weft_export::client::NbdClient;
use weft_export::in_process::{InProcessClient, ReadData};
use weft_files::source::{Cached, ReadError, Shared, Source};
use weft_terminal::outcome::Failure;

use crate::inside::Inside;
use crate::volume::Volume;

/// Source of the bytes of an array.
struct ArraySource {
    connection: RefCell<Connection>,
    size: u64,
    /// Whether bytes that were read stay as they are, so that bytes may be requested ahead of the
    /// reads that need them.
    is_still: bool,
}

/// Connection to the server, with the requests that were sent ahead of reads.
struct Connection {
    client: Client,
    /// Requests for the bytes after the last read, each as cookie and byte range, in ascending
    /// order of bytes.
    ahead: Vec<(u64, Range<u64>)>,
    /// Byte at which the last read ended.
    last: u64,
}

/// Client of the server.
enum Client {
    InProcess(InProcessClient),
    Nbd(Box<NbdClient>),
}

/// Data of a read.
enum Data {
    Frames(ReadData),
    Bytes(Vec<u8>),
}

impl Client {
    /// Reads `len` bytes at `start`. Returns the cookie of the request.
    fn read(&mut self, start: u64, len: u64) -> Result<u64, String> {
        match self {
            Self::InProcess(client) => Ok(client.read(start, len).into()),
            Self::Nbd(client) => client.read(start, u32::try_from(len).unwrap_or(0)),
        }
    }

    /// Waits for the next answer: the cookie of a request, and its data or error.
    fn answer(&mut self) -> Result<(u64, Result<Data, String>), String> {
        match self {
            Self::InProcess(client) => {
                let reply = client.reply()?;
                let result = reply.result.map(Data::Frames);
                Ok((reply.cookie.into(), result.map_err(|error| error.to_string())))
            }
            Self::Nbd(client) => {
                let answer = client.answer()?;
                let result = answer.result.map(Data::Bytes);
                Ok((answer.cookie, result.map_err(|error| error.to_string())))
            }
        }
    }
}

impl Data {
    fn len(&self) -> usize {
        match self {
            Self::Frames(data) => data.len(),
            Self::Bytes(bytes) => bytes.len(),
        }
    }

    /// Copies the data to the start of `into`. Returns false if `into` is longer than the data.
    fn fill(&self, into: &mut [u8]) -> bool {
        match self {
            Self::Frames(data) => data.fill(into),
            Self::Bytes(bytes) => {
                bytes.get(..into.len()).inspect(|bytes| into.copy_from_slice(bytes)).is_some()
            }
        }
    }
}

/// Serves a volume within this process. Returns the server, and the source that reads from it,
/// which the server has to outlive. A cache keeps bytes that were read.
pub(super) fn serve(volume: Volume) -> Result<(Inside, Shared), Failure> {
    let (inside, client) = Inside::read(volume)?;
    let size = client.size();
    Ok((inside, Rc::new(Cached::new(source(Client::InProcess(client), size, true)))))
}

/// Source of the bytes of the server with the NBD URI `uri`, on a unix socket. A cache keeps bytes
/// that were read.
pub(super) fn connect(uri: &str) -> Result<Shared, Failure> {
    Ok(Rc::new(Cached::new(by_nbd(uri, true)?)))
}

/// Source as [`connect`] returns it, but each read gets the bytes that the volume has then: without
/// a cache, and without requests ahead of reads.
pub(super) fn connect_live(uri: &str) -> Result<Shared, Failure> {
    by_nbd(uri, false)
}

fn by_nbd(uri: &str, is_still: bool) -> Result<Shared, Failure> {
    let client = NbdClient::connect(uri).map_err(Failure::Failed)?;
    let size = client.size();
    Ok(source(Client::Nbd(Box::new(client)), size, is_still))
}

fn source(client: Client, size: u64, is_still: bool) -> Shared {
    let connection = RefCell::new(Connection { client, ahead: Vec::new(), last: 0 });
    Rc::new(ArraySource { connection, size, is_still })
}

impl Connection {
    /// Sends read requests from `start` on, up to `end` or the limit of requests in flight, and
    /// adds them to `waiting`. Returns the first byte that was not requested.
    fn send(
        &mut self,
        start: u64,
        end: u64,
        waiting: &mut BTreeMap<u64, Range<u64>>,
    ) -> Result<u64, String> {
        let mut next = start;
        while next < end && waiting.len() < READS_MAX {
            let len = (end - next).min(READ_BYTES);
            let cookie = self.client.read(next, len)?;
            waiting.insert(cookie, next..next + len);
            next += len;
        }
        Ok(next)
    }
}

impl ArraySource {
    /// Reads whole sectors, with several requests in flight. After a long read that continues the
    /// one before it, further requests are sent for the bytes that follow, unless these may change
    /// meanwhile: the server reads them while the caller writes the bytes of this read.
    fn read_sectors(&self, offset: u64, into: &mut [u8]) -> Result<(), ReadError> {
        let mut connection = self.connection.borrow_mut();
        let end = offset + into.len() as u64;
        let lost = |why: String| ReadError { range: offset..end, why };
        let (mut next, mut fault) = (offset, None::<ReadError>);
        let mut waiting = BTreeMap::new();
        // Requests sent ahead that this read does not need are dropped; their answers are ignored
        // below.
        for (cookie, range) in std::mem::take(&mut connection.ahead) {
            if range.start == next && next < end {
                next = range.end;
                waiting.insert(cookie, range);
            }
        }
        loop {
            if fault.is_none() {
                next = connection.send(next, end, &mut waiting).map_err(lost)?;
            }
            if waiting.is_empty() {
                break;
            }
            let (cookie, result) = connection.client.answer().map_err(lost)?;
            let Some(range) = waiting.remove(&cookie) else { continue };
            match result {
                Ok(data) => {
                    let at = |byte: u64| usize::try_from(byte - offset).unwrap_or(usize::MAX);
                    // A request that was sent ahead may reach beyond the end.
                    let part = &mut into[at(range.start)..at(range.end.min(end))];
                    if !data.fill(part) {
                        let (found, expected) = (data.len(), part.len());
                        let why = format!("found {found} bytes, expected {expected}");
                        fault = fault.or(Some(ReadError { range, why }));
                    }
                }
                Err(why) => {
                    if fault.as_ref().is_none_or(|fault| range.start < fault.range.start) {
                        fault = Some(ReadError { range, why });
                    }
                }
            }
        }
        if let Some(fault) = fault {
            return Err(fault);
        }
        if self.is_still && into.len() as u64 >= AHEAD_MIN && connection.last == offset {
            let until = end.saturating_add(into.len() as u64).min(self.size);
            let mut ahead = BTreeMap::new();
            connection.send(end, until, &mut ahead).map_err(lost)?;
            connection.ahead = ahead.into_iter().collect();
            connection.ahead.sort_by_key(|(_, range)| range.start);
        }
        connection.last = end;
        Ok(())
    }
}

impl Source for ArraySource {
    fn size(&self) -> u64 {
        self.size
    }

    fn read_at(&self, offset: u64, into: &mut [u8]) -> Result<(), ReadError> {
        let end = offset.saturating_add(into.len() as u64);
        if end > self.size {
            let why = format!("found the end of the array at byte {}", self.size);
            return Err(ReadError { range: offset..end, why });
        }
        if into.is_empty() {
            return Ok(());
        }
        if offset.is_multiple_of(SECTOR) && end.is_multiple_of(SECTOR) {
            return self.read_sectors(offset, into);
        }
        let first = offset / SECTOR * SECTOR;
        let last = end.next_multiple_of(SECTOR).min(self.size);
        let mut around = vec![0; usize::try_from(last - first).unwrap_or(0)];
        self.read_sectors(first, &mut around)?;
        let from = usize::try_from(offset - first).unwrap_or(0);
        into.copy_from_slice(&around[from..from + into.len()]);
        Ok(())
    }
}

const SECTOR: u64 = 512;
/// Size of a request, in bytes.
const READ_BYTES: u64 = 512 << 10;
/// Shortest read, in bytes, after which the bytes that follow are requested ahead.
const AHEAD_MIN: u64 = 1 << 20;
/// Largest number of requests in flight: 4 MiB, as much as the copy of a file asks for at once.
const READS_MAX: usize = 8;
