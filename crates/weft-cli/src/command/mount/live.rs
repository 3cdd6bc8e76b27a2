//! Writes to a running volume, by its NBD socket.

use std::cell::RefCell;

use weft_export::client::NbdClient;
use weft_fuse::Sink;
use weft_terminal::outcome::Failure;

/// Connection for writes.
pub(super) struct Live {
    client: RefCell<NbdClient>,
    /// Whether the server refuses writes.
    pub(super) is_read_only: bool,
}

impl Live {
    /// Connects to a server on a unix socket.
    ///
    /// # Errors
    /// The server cannot be reached.
    pub(super) fn connect(uri: &str) -> Result<Self, Failure> {
        let client = NbdClient::connect(uri).map_err(Failure::Failed)?;
        let is_read_only = client.is_read_only();
        Ok(Self { client: RefCell::new(client), is_read_only })
    }
}

impl Sink for Live {
    fn write_at(&self, offset: u64, data: &[u8]) -> Result<(), String> {
        let client = &mut *self.client.borrow_mut();
        let end = offset + data.len() as u64;
        let (first, last) = (offset / SECTOR * SECTOR, end.next_multiple_of(SECTOR));
        if (first, last) == (offset, end) {
            let cookie = client.write(offset, data)?;
            return client.finish(cookie).map(drop);
        }
        // A write of a part of a sector reads the whole sectors and writes them back.
        let len = u32::try_from(last - first).map_err(|_| "a write is too long".to_owned())?;
        let cookie = client.read(first, len)?;
        let mut around = client.finish(cookie)?;
        let from = usize::try_from(offset - first).unwrap_or(0);
        let part = around.get_mut(from..from + data.len());
        part.ok_or_else(|| "found too few bytes around a write".to_owned())?.copy_from_slice(data);
        let cookie = client.write(first, &around)?;
        client.finish(cookie).map(drop)
    }

    fn flush(&self) -> Result<(), String> {
        let client = &mut *self.client.borrow_mut();
        let cookie = client.flush()?;
        client.finish(cookie).map(drop)
    }
}

const SECTOR: u64 = 512;
