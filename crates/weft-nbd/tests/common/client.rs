//! A client that keeps everything it reads, driven as the documentation of the crate describes.

use std::collections::BTreeMap;

use weft_nbd::{
    ClientConnection, ClientError, ClientEvent, ClientHandshake, ExportInfo, Extent, Goal,
    HandshakeEvent, NbdError, Op, RequestError,
};

pub(crate) struct Client {
    handshake: ClientHandshake,
    pub(crate) connection: Option<ClientConnection>,
    pub(crate) listed: Vec<(String, String)>,
    pub(crate) finished: Option<Option<ExportInfo>>,
    pub(crate) failed: Option<ClientError>,
    pub(crate) done: Vec<(u64, Result<(), NbdError>)>,
    /// Data received by reads, by cookie: offset of the first byte, and bytes.
    pub(crate) data: BTreeMap<u64, (u64, Vec<u8>)>,
    /// Extents received by block status requests, by cookie.
    pub(crate) extents: BTreeMap<u64, Vec<Extent>>,
    reading: Option<(u64, usize)>,
    sent: Vec<u8>,
}

impl Client {
    pub(crate) fn new(goal: Goal, structured: bool) -> Self {
        let mut handshake = ClientHandshake::new(goal).unwrap();
        if !structured {
            handshake = handshake.with_simple_replies();
        }
        Self::of(handshake)
    }

    /// A client that asks for extended headers and for `base:allocation`.
    pub(crate) fn extended(goal: Goal) -> Self {
        Self::of(ClientHandshake::new(goal).unwrap().with_extended_headers().with_allocation())
    }

    /// A client that asks for `base:allocation`.
    pub(crate) fn with_allocation(goal: Goal) -> Self {
        Self::of(ClientHandshake::new(goal).unwrap().with_allocation())
    }

    fn of(handshake: ClientHandshake) -> Self {
        Self {
            handshake,
            connection: None,
            listed: Vec::new(),
            finished: None,
            failed: None,
            done: Vec::new(),
            data: BTreeMap::new(),
            extents: BTreeMap::new(),
            reading: None,
            sent: Vec::new(),
        }
    }

    pub(crate) fn request(
        &mut self,
        cookie: u64,
        op: Op,
        payload: &[u8],
    ) -> Result<(), RequestError> {
        let header = self.connection.as_mut().unwrap().request(cookie, op)?;
        self.sent.extend_from_slice(&header);
        self.sent.extend_from_slice(payload);
        if let Op::Read { offset, len, .. } = op {
            self.data.insert(cookie, (offset, vec![0xee; len as usize]));
        }
        Ok(())
    }

    pub(crate) fn disconnect(&mut self) {
        let bytes = self.connection.as_mut().unwrap().disconnect();
        self.sent.extend_from_slice(&bytes);
    }

    pub(crate) fn receive(&mut self, bytes: &[u8]) {
        let mut rest = bytes;
        while self.connection.is_none() {
            let (count, event) = self.handshake.input(rest);
            assert!(self.handshake.memory_bytes() <= super::MEMORY_BYTES_MAX);
            rest = &rest[count..];
            match event {
                Some(HandshakeEvent::Failed(error)) => self.failed = Some(error),
                Some(HandshakeEvent::Finished { export }) => self.finished = Some(export),
                Some(HandshakeEvent::Listed { name, description }) => {
                    self.listed.push((name, description));
                }
                Some(HandshakeEvent::Ready(connection)) => self.connection = Some(connection),
                None if count == 0 => return,
                None => {}
            }
        }
        let connection = self.connection.as_mut().unwrap();
        loop {
            let remaining = connection.payload_remaining();
            if remaining > 0 {
                let (payload, after) = rest.split_at(remaining.min(rest.len()));
                if payload.is_empty() {
                    return;
                }
                rest = after;
                let (cookie, at) = self.reading.unwrap();
                let (first, data) = self.data.get_mut(&cookie).unwrap();
                let at_data = at - usize::try_from(*first).unwrap();
                data[at_data..at_data + payload.len()].copy_from_slice(payload);
                self.reading = Some((cookie, at + payload.len()));
                connection.payload_consumed(payload.len());
                continue;
            }
            let (count, event) = connection.input(rest);
            rest = &rest[count..];
            match event {
                Some(ClientEvent::Close(error)) => self.failed = Some(error),
                Some(ClientEvent::Data { cookie, offset, .. }) => {
                    self.reading = Some((cookie, usize::try_from(offset).unwrap()));
                }
                Some(ClientEvent::Done { cookie, result }) => self.done.push((cookie, result)),
                Some(ClientEvent::Extents { cookie, extents }) => {
                    assert!(self.extents.insert(cookie, extents).is_none(), "told twice");
                }
                Some(ClientEvent::Hole { cookie, offset, len }) => {
                    let (first, data) = self.data.get_mut(&cookie).unwrap();
                    let at = usize::try_from(offset - *first).unwrap();
                    data[at..at + len as usize].fill(0);
                }
                None if count == 0 => {
                    assert!(rest.is_empty());
                    return;
                }
                None => {}
            }
        }
    }

    /// Bytes sent since the last call.
    pub(crate) fn take_sent(&mut self) -> Vec<u8> {
        let mut sent = self.handshake.output().to_vec();
        self.handshake.advance_output(sent.len());
        sent.append(&mut self.sent);
        sent
    }
}
