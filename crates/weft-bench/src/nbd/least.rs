//! Minimal server: an upper bound of the rate at which a server on a socket can answer.
//!
//! The server has memory, a thread for each connection, one receive and one send for all requests
//! that have arrived, and replies sent directly from the data. It has no engine, no durability and
//! no protection against hostile clients.

use std::io::{IoSlice, Read, Write};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;
use std::sync::Arc;

use weft_nbd::wire::{REQUEST_MAGIC, SIMPLE_REPLY_MAGIC, command};
use weft_nbd::{ExportInfo, ServerConnection, ServerEvent};

use super::measure::EXPORT_BYTES;
use super::memory::Memory;
use crate::BenchError;

/// Serves `EXPORT_BYTES` of memory on a unix socket until the process is killed.
///
/// # Errors
/// The memory or the socket cannot be created.
pub fn serve(socket: &Path) -> Result<(), BenchError> {
    let bytes = EXPORT_BYTES;
    let failed =
        |error: std::io::Error| BenchError::failed(format!("{}: {error}", socket.display()));
    let memory = Arc::new(
        Memory::new(usize::try_from(bytes).expect("half a GiB")).map_err(BenchError::failed)?,
    );
    let export = ExportInfo::new("", bytes).map_err(BenchError::failed)?;
    let exports: Arc<[_]> = Arc::new([export]);
    let listener = UnixListener::bind(socket).map_err(failed)?;
    loop {
        let (stream, _) = listener.accept().map_err(failed)?;
        let codec = ServerConnection::new(Arc::clone(&exports), None);
        let memory = Arc::clone(&memory);
        std::thread::spawn(move || {
            // An error is ignored: the client left or broke the protocol.
            let _ = converse(stream, codec, &memory);
        });
    }
}

fn converse(
    mut stream: UnixStream,
    codec: ServerConnection,
    memory: &Memory,
) -> std::io::Result<()> {
    let mut received = vec![0; RECEIVE_BYTES];
    let mut have = shake_hands(&mut stream, codec, &mut received)?;
    loop {
        let mut replies = Replies::default();
        let mut at = 0;
        while have - at >= HEADER {
            let header = &received[at..at + HEADER];
            let number = |from: usize, len: usize| {
                header[from..from + len].iter().fold(0_u64, |sum, byte| sum << 8 | u64::from(*byte))
            };
            let command = u16::try_from(number(6, 2)).expect("two bytes");
            let (offset, len) = (number(16, 8), number(24, 4));
            let inside = offset.checked_add(len).is_some_and(|end| end <= memory.len() as u64);
            if number(0, 4) != u64::from(REQUEST_MAGIC) || command == command::DISC || !inside {
                return replies.send(&mut stream, memory);
            }
            let [offset, len] = [offset, len].map(|n| usize::try_from(n).expect("inside memory"));
            let is_write = command == command::WRITE;
            if is_write && len <= RECEIVE_BYTES / 2 && have - at < HEADER + len {
                // The rest of an incomplete write arrives with the next receive.
                break;
            }
            let cookie = header[8..16].try_into().expect("eight bytes");
            at += HEADER;
            if is_write {
                let here = len.min(have - at);
                memory.copy_in(offset, &received[at..at + here]);
                at += here;
                if here < len {
                    replies.send(&mut stream, memory)?;
                    replies = Replies::default();
                    memory.receive(&mut stream, offset + here, len - here)?;
                }
            }
            replies.push(cookie, (command == command::READ).then_some((offset, len)));
        }
        replies.send(&mut stream, memory)?;
        received.copy_within(at..have, 0);
        have -= at;
        match stream.read(&mut received[have..])? {
            0 => return Ok(()),
            count => have += count,
        }
    }
}

/// Performs the handshake until an export is chosen. Returns the number of request bytes that were
/// received together with the last message of the handshake; they are at the start of `received`.
fn shake_hands(
    stream: &mut UnixStream,
    mut codec: ServerConnection,
    received: &mut [u8],
) -> std::io::Result<usize> {
    let mut have = 0;
    loop {
        let (count, event) = codec.input(&received[..have]);
        received.copy_within(count..have, 0);
        have -= count;
        stream.write_all(codec.output())?;
        codec.advance_output(codec.output().len());
        match event {
            Some(ServerEvent::Ready { .. }) => return Ok(have),
            Some(_) => return Err(std::io::ErrorKind::ConnectionAborted.into()),
            None if count > 0 => {}
            None => match stream.read(&mut received[have..])? {
                0 => return Err(std::io::ErrorKind::UnexpectedEof.into()),
                count => have += count,
            },
        }
    }
}

/// Simple replies, collected so that one call sends all of them.
#[derive(Default)]
struct Replies {
    headers: Vec<[u8; 16]>,
    data: Vec<Option<(usize, usize)>>,
}

impl Replies {
    fn push(&mut self, cookie: [u8; 8], data: Option<(usize, usize)>) {
        let mut header = [0; 16];
        header[..4].copy_from_slice(&SIMPLE_REPLY_MAGIC.to_be_bytes());
        header[8..].copy_from_slice(&cookie);
        self.headers.push(header);
        self.data.push(data);
    }

    fn send(&self, stream: &mut UnixStream, memory: &Memory) -> std::io::Result<()> {
        let mut slices = Vec::with_capacity(self.headers.len() * 2);
        for (header, data) in self.headers.iter().zip(&self.data) {
            slices.push(IoSlice::new(header));
            if let Some((offset, len)) = *data {
                slices.push(memory.slice(offset, len));
            }
        }
        let mut rest = &mut slices[..];
        while !rest.is_empty() {
            let count = stream.write_vectored(rest)?;
            IoSlice::advance_slices(&mut rest, count);
        }
        Ok(())
    }
}

const HEADER: usize = 28;
const RECEIVE_BYTES: usize = 256 << 10;
