//! Blocking NBD client: how weft itself uses a running volume.
//!
//! Several requests may be in flight. `weft ls`, `cp` and `mount` of a running volume read through
//! this client, `weft demo` and `weft-bench` also write through it. The client half of `weft-nbd`
//! does the protocol; this file adds the socket.
//!
//! Bound    left to the caller: each request is sent at once, and its buffer lives until it is
//!          answered. Do not mix many large reads and writes on one connection: neither side may
//!          stop receiving while the other is sending.

use std::collections::BTreeMap;
use std::io::{ErrorKind, IoSlice, Read, Write};
use std::os::unix::net::UnixStream;

use weft_nbd::{
    ClientConnection, ClientEvent, ClientHandshake, Goal, HandshakeEvent, NbdAddress, NbdError,
    NbdUri, Op, TransmissionFlags,
};

/// Connection to a server with an open export.
pub struct NbdClient {
    stream: UnixStream,
    connection: ClientConnection,
    /// Bytes that were received and are not parsed yet.
    received: Vec<u8>,
    next: u64,
    /// Buffers for the data of outstanding reads by cookie, each with the offset of the read in the
    /// export.
    rooms: BTreeMap<u64, (u64, Vec<u8>)>,
}

/// Answer to a request.
pub struct Answer {
    /// Cookie that [`NbdClient::read`], `write` or `flush` returned.
    pub cookie: u64,
    /// Data of a read, empty for other requests; or the error of the request.
    pub result: Result<Vec<u8>, NbdError>,
}

impl NbdClient {
    /// Connects to a server on a unix socket and opens an export.
    ///
    /// # Errors
    /// Fails when `uri` names no unix socket, no server listens there, or the server refuses. The
    /// text contains `uri`.
    pub fn connect(uri: &str) -> Result<Self, String> {
        let parsed: NbdUri = uri.parse().map_err(|error| format!("{uri}: {error}"))?;
        if parsed.tls.is_some() {
            return Err(format!("{uri}: found TLS, expected a listener in plain text"));
        }
        let NbdAddress::Unix { socket } = &parsed.address else {
            return Err(format!("{uri}: expected a unix socket"));
        };
        let stream = UnixStream::connect(socket).map_err(|error| format!("{uri}: {error}"))?;
        Self::open(stream, parsed.export.clone()).map_err(|error| format!("{uri}: {error}"))
    }

    fn open(mut stream: UnixStream, export: String) -> Result<Self, String> {
        let handshake =
            ClientHandshake::new(Goal::Open(export)).map_err(|error| error.to_string())?;
        let (connection, received) = shake_hands(&mut stream, handshake)?;
        Ok(Self { stream, connection, received, next: 0, rooms: BTreeMap::new() })
    }

    /// Size of the export in bytes.
    #[must_use]
    pub fn size(&self) -> u64 {
        self.connection.export().size()
    }

    /// Whether the server refuses writes.
    #[must_use]
    pub fn is_read_only(&self) -> bool {
        self.connection.export().flags().contains(TransmissionFlags::READ_ONLY)
    }

    /// Number of requests that are not answered yet.
    #[must_use]
    pub fn open_count(&self) -> usize {
        self.connection.open_count()
    }

    /// Reads `len` bytes at `offset`. Returns the cookie of the request.
    ///
    /// # Errors
    /// Fails when the session is over, or the export does not take the request.
    pub fn read(&mut self, offset: u64, len: u32) -> Result<u64, String> {
        let cookie = self.send(Op::Read { offset, len, df: false }, &[])?;
        self.rooms.insert(cookie, (offset, vec![0; len as usize]));
        Ok(cookie)
    }

    /// Writes data at `offset`. Returns the cookie of the request.
    ///
    /// # Errors
    /// The errors of [`NbdClient::read`].
    pub fn write(&mut self, offset: u64, data: &[u8]) -> Result<u64, String> {
        let len = u32::try_from(data.len()).map_err(|_| "a write is too long".to_owned())?;
        self.send(Op::Write { offset, len, fua: false }, data)
    }

    /// Flushes acknowledged writes to stable storage. Returns the cookie of the request.
    ///
    /// # Errors
    /// The errors of [`NbdClient::read`].
    pub fn flush(&mut self) -> Result<u64, String> {
        self.send(Op::Flush, &[])
    }

    fn send(&mut self, op: Op, payload: &[u8]) -> Result<u64, String> {
        let cookie = self.next;
        self.next += 1;
        let header = self.connection.request(cookie, op).map_err(|error| error.to_string())?;
        let mut slices = [IoSlice::new(&header), IoSlice::new(payload)];
        let mut rest = &mut slices[..];
        while rest.iter().any(|slice| !slice.is_empty()) {
            match self.stream.write_vectored(rest) {
                Ok(0) => return Err("the server hung up".into()),
                Ok(count) => IoSlice::advance_slices(&mut rest, count),
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(broken(error)),
            }
        }
        Ok(cookie)
    }

    /// Waits for the next answer. The server determines the order of answers.
    ///
    /// # Errors
    /// Fails when the session is over. An error that the server reports is part of the [`Answer`].
    pub fn answer(&mut self) -> Result<Answer, String> {
        if self.open_count() == 0 {
            return Err("no request is open".into());
        }
        loop {
            let (count, event) = self.connection.input(&self.received);
            self.received.drain(..count);
            match event {
                Some(ClientEvent::Close(error)) => return Err(error.to_string()),
                Some(ClientEvent::Done { cookie, result }) => {
                    let data = self.rooms.remove(&cookie).map(|(_, data)| data);
                    return Ok(Answer {
                        cookie,
                        result: result.map(|()| data.unwrap_or_default()),
                    });
                }
                Some(ClientEvent::Extents { .. }) => {
                    return Err("extents that were not asked for".into());
                }
                // A hole needs no work: the buffer was filled with zeroes when it was made.
                Some(ClientEvent::Hole { .. }) => {}
                Some(ClientEvent::Data { cookie, offset, len }) => {
                    self.fill(cookie, offset, len)?;
                }
                None if count > 0 => {}
                None => receive(&mut self.stream, &mut self.received)?,
            }
        }
    }

    /// Receives the next payload into the buffer of its read: first the bytes that have been
    /// received already, then bytes straight from the socket.
    fn fill(&mut self, cookie: u64, offset: u64, len: u32) -> Result<(), String> {
        let lost = || "data for a read that was not asked for".to_owned();
        let (start, data) = self.rooms.get_mut(&cookie).ok_or_else(lost)?;
        let from = usize::try_from(offset - *start).map_err(|_| lost())?;
        let room = data.get_mut(from..from + len as usize).ok_or_else(lost)?;
        let here = self.received.len().min(room.len());
        let (first, rest) = room.split_at_mut(here);
        first.copy_from_slice(&self.received[..here]);
        self.received.drain(..here);
        self.stream.read_exact(rest).map_err(broken)?;
        self.connection.payload_consumed(len as usize);
        Ok(())
    }

    /// Waits for the answer to the request with this cookie, and returns its data.
    ///
    /// # Errors
    /// Fails when the session is over, or when the server reports an error.
    pub fn finish(&mut self, cookie: u64) -> Result<Vec<u8>, String> {
        loop {
            let answer = self.answer()?;
            let data = answer.result.map_err(|error| error.to_string())?;
            if answer.cookie == cookie {
                return Ok(data);
            }
        }
    }
}

impl Drop for NbdClient {
    fn drop(&mut self) {
        // An error is ignored: the server also notices that the socket is closed.
        let bytes = self.connection.disconnect();
        let _ = self.stream.write_all(&bytes);
    }
}

/// Carries out the NBD handshake and opens an export. Returns the connection, and the bytes that
/// were received after the handshake.
///
/// # Errors
/// Fails when the server refuses or the connection breaks; the text is a sentence.
pub fn shake_hands(
    stream: &mut (impl Read + Write),
    mut handshake: ClientHandshake,
) -> Result<(ClientConnection, Vec<u8>), String> {
    let mut received = Vec::new();
    loop {
        let (count, event) = handshake.input(&received);
        received.drain(..count);
        let output = handshake.output();
        stream.write_all(output).map_err(broken)?;
        let sent = output.len();
        handshake.advance_output(sent);
        match event {
            Some(HandshakeEvent::Ready(connection)) => return Ok((connection, received)),
            Some(HandshakeEvent::Failed(error)) => return Err(error.to_string()),
            Some(HandshakeEvent::Finished { .. } | HandshakeEvent::Listed { .. }) => {}
            None if count > 0 => {}
            None => receive(stream, &mut received)?,
        }
    }
}

#[expect(clippy::needless_pass_by_value, reason = "for map_err")]
fn broken(error: std::io::Error) -> String {
    format!("connection: {error}")
}

/// Appends the bytes that the socket has to `received`, and waits for the first one if it has none.
fn receive(stream: &mut impl Read, received: &mut Vec<u8>) -> Result<(), String> {
    let old = received.len();
    received.resize(old + RECEIVE_BYTES, 0);
    let result = loop {
        match stream.read(&mut received[old..]) {
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            other => break other,
        }
    };
    received.truncate(old + result.as_ref().copied().unwrap_or(0));
    match result {
        Ok(0) => Err("the server hung up".into()),
        Ok(_) => Ok(()),
        Err(error) => Err(broken(error)),
    }
}

/// Size of the receive buffer in bytes: enough for many reply headers. Most data of reads does not
/// go through this buffer.
const RECEIVE_BYTES: usize = 16 << 10;
