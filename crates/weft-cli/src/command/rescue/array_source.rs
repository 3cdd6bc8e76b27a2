//! Content of an array as a source: reads of a server within this process.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;

use weft_engine::knobs::Knobs;
use weft_export::client::NbdClient;
use weft_files::source::{Cached, ReadError, Shared, Source};
use weft_terminal::outcome::Failure;

use crate::inside::Inside;
use crate::volume::Volume;

/// Source of the bytes of an array.
struct ArraySource {
    client: RefCell<NbdClient>,
    size: u64,
}

/// Serves a volume within this process. Returns the server, which has to outlive the source.
pub(super) fn serve(
    volume: Volume,
    name: &str,
    directory: &std::path::Path,
) -> Result<(Inside, Shared), Failure> {
    let inside = Inside::start(volume, Knobs::default(), name, directory)?;
    let client = NbdClient::connect(&inside.uri).map_err(Failure::Failed)?;
    let size = client.size();
    let source = ArraySource { client: RefCell::new(client), size };
    Ok((inside, Rc::new(Cached::new(Rc::new(source)))))
}

impl ArraySource {
    /// Reads whole sectors, with several requests in flight.
    fn read_sectors(&self, offset: u64, into: &mut [u8]) -> Result<(), ReadError> {
        let mut client = self.client.borrow_mut();
        let end = offset + into.len() as u64;
        let lost = |why: String| ReadError { range: offset..end, why };
        let (mut next, mut fault) = (offset, None::<ReadError>);
        let mut waiting = BTreeMap::new();
        loop {
            while next < end && waiting.len() < READS_MAX && fault.is_none() {
                let len = (end - next).min(READ_BYTES);
                let count = u32::try_from(len).unwrap_or(0);
                waiting.insert(client.read(next, count).map_err(lost)?, next..next + len);
                next += len;
            }
            if waiting.is_empty() {
                break;
            }
            let answer = client.answer().map_err(lost)?;
            let Some(range) = waiting.remove(&answer.cookie) else { continue };
            match answer.result {
                Ok(data) => {
                    let at = |byte: u64| usize::try_from(byte - offset).unwrap_or(usize::MAX);
                    if let Some(part) = into.get_mut(at(range.start)..at(range.end)) {
                        part.copy_from_slice(&data);
                    }
                }
                Err(error) => {
                    if fault.as_ref().is_none_or(|fault| range.start < fault.range.start) {
                        fault = Some(ReadError { range, why: error.to_string() });
                    }
                }
            }
        }
        fault.map_or(Ok(()), Err)
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
/// Size of a request.
const READ_BYTES: u64 = 512 << 10;
/// Largest number of requests in flight: 4 MiB, as much as the copy of a file asks for at once.
const READS_MAX: usize = 8;
