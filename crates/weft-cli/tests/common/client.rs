//! NBD client for tests.

use std::io::{Read, Write};
use std::os::unix::net::UnixStream;

use weft_export::client::shake_hands;
use weft_nbd::{ClientConnection, ClientEvent, ClientHandshake, Goal, NbdAddress, NbdUri, Op};

/// A client with one request at a time.
pub(crate) struct Client {
    stream: UnixStream,
    pub(crate) connection: ClientConnection,
    received: Vec<u8>,
    cookie: u64,
}

impl Client {
    pub(crate) fn connect(uri: &str) -> Self {
        let uri: NbdUri = uri.parse().unwrap();
        let NbdAddress::Unix { socket } = uri.address else { panic!("a unix socket") };
        let mut stream = UnixStream::connect(socket).unwrap();
        let handshake = ClientHandshake::new(Goal::Open(uri.export)).unwrap();
        let (connection, received) = shake_hands(&mut stream, handshake).unwrap();
        Self { stream, connection, received, cookie: 0 }
    }

    pub(crate) fn size(&self) -> u64 {
        self.connection.export().size()
    }

    /// Sends one request. Returns the data of a read, or the error.
    pub(crate) fn request(
        &mut self,
        op: Op,
        payload: &[u8],
    ) -> Result<Vec<u8>, weft_nbd::NbdError> {
        self.cookie += 1;
        let header = self.connection.request(self.cookie, op).unwrap();
        self.stream.write_all(&header).unwrap();
        self.stream.write_all(payload).unwrap();
        let mut data = Vec::new();
        loop {
            let (count, event) = self.connection.input(&self.received);
            self.received.drain(..count);
            match event {
                Some(ClientEvent::Done { result, .. }) => return result.map(|()| data),
                Some(ClientEvent::Data { len, .. }) => {
                    while self.received.len() < len as usize {
                        more(&mut self.stream, &mut self.received);
                    }
                    data.extend(self.received.drain(..len as usize));
                    self.connection.payload_consumed(len as usize);
                }
                Some(ClientEvent::Hole { len, .. }) => data.resize(data.len() + len as usize, 0),
                Some(event) => panic!("{event:?}"),
                None if count > 0 => {}
                None => more(&mut self.stream, &mut self.received),
            }
        }
    }

    pub(crate) fn write(&mut self, offset: u64, data: &[u8]) {
        let len = u32::try_from(data.len()).unwrap();
        self.request(Op::Write { offset, len, fua: false }, data).unwrap();
    }

    pub(crate) fn read(&mut self, offset: u64, len: u32) -> Vec<u8> {
        self.request(Op::Read { offset, len, df: false }, &[]).unwrap()
    }
}

fn more(stream: &mut UnixStream, received: &mut Vec<u8>) {
    let mut bytes = [0; 65_536];
    let count = stream.read(&mut bytes).unwrap();
    assert_ne!(count, 0, "the server hung up");
    received.extend_from_slice(&bytes[..count]);
}
