//! The NBD protocol, both halves, sans-IO: bytes in, events out.
//!
//! This crate has no socket, clock, thread or log. A driver owns the socket and the memory of the
//! data; the values here tell it the meaning of the bytes.
//!
//! ```text
//!             ServerConnection                        ClientHandshake ──► ClientConnection
//!   socket ──► input ──► events ──► driver      driver ──► request ──► socket
//!   socket ◄── output ◄── reply ◄── driver      driver ◄── events ◄── input ◄── socket
//!   socket ◄──────── payload ─────► driver      driver ◄──────── payload ─────► socket
//! ```
//!
//! Payload never passes through this crate. After a write request or the header of read data, the
//! connection tells how many of the next bytes are payload, and the driver takes them from its
//! receive buffer or receives them straight into its own frames.
//!
//! Loop of a server, without the waiting:
//!
//! ```
//! use std::sync::Arc;
//! use weft_nbd::{Extent, ExportInfo, NbdError, Op, ServerConnection, ServerEvent};
//!
//! fn serve(mut received: &[u8], disk: &mut [u8]) -> Result<Vec<u8>, weft_nbd::ExportError> {
//!     let exports: Arc<[_]> = Arc::new([ExportInfo::new("disk", disk.len() as u64)?]);
//!     let mut connection = ServerConnection::new(exports, Some(0));
//!     let mut sent = Vec::new();
//!     loop {
//!         let (count, event) = connection.input(received);
//!         received = &received[count..];
//!         // Whole messages so far; from here on data may be sent in between.
//!         sent.extend_from_slice(connection.output());
//!         connection.advance_output(connection.output().len());
//!         match event {
//!             Some(ServerEvent::Request(request)) => match request.op {
//!                 Op::Read { offset, len, .. } => {
//!                     sent.extend_from_slice(&connection.reply_header(&request, Ok(())));
//!                     sent.extend_from_slice(&disk[offset as usize..][..len as usize]);
//!                 }
//!                 Op::Write { offset, len, .. } => {
//!                     // All of it has arrived in this example; otherwise receive the rest first.
//!                     disk[offset as usize..][..len as usize]
//!                         .copy_from_slice(&received[..len as usize]);
//!                     connection.payload_consumed(len as usize);
//!                     received = &received[len as usize..];
//!                     connection.reply(&request, Ok(()));
//!                 }
//!                 Op::Cache { .. } | Op::Flush => connection.reply(&request, Ok(())),
//!                 Op::BlockStatus { len, .. } => {
//!                     connection.reply_extents(&request, &[Extent::data(len)]);
//!                 }
//!                 Op::Trim { .. } | Op::WriteZeroes { .. } => {
//!                     connection.reply(&request, Err(NbdError::Io));
//!                 }
//!             },
//!             Some(ServerEvent::Ready { .. }) => {}
//!             Some(ServerEvent::Disconnect | ServerEvent::Close(_)) => return Ok(sent),
//!             Some(ServerEvent::StartTls) => unreachable!("TLS is not offered here"),
//!             None if count > 0 => {}
//!             None => return Ok(sent), // wait for more
//!         }
//!     }
//! }
//! # let mut disk = [0; 512];
//! # assert_eq!(&serve(&[], &mut disk).unwrap()[..8], b"NBDMAGIC");
//! ```
//!
//! Implemented are fixed newstyle; the options `EXPORT_NAME`, `ABORT`, `LIST`, `INFO`, `GO`,
//! `STARTTLS`, `STRUCTURED_REPLY`, `EXTENDED_HEADERS`, `LIST_META_CONTEXT`, `SET_META_CONTEXT`; the
//! requests `READ`, `WRITE`, `DISC`, `FLUSH`, `TRIM`, `CACHE`, `WRITE_ZEROES`, `BLOCK_STATUS` with
//! `base:allocation`; simple and structured replies, and holes in reads. TLS itself is carried out
//! by the driver: the server half says when it begins, and the client half does not ask for it. The
//! payload of requests for block status is not implemented, and refused as `proto.md` requires.
//!
//! Source: NetworkBlockDevice/nbd `doc/proto.md` of 2025-05-31, placed in the public domain by its
//! authors, called `proto.md` in this crate.
#![forbid(unsafe_code)]

mod buffer;
mod client;
mod handshake;
mod server;
mod transmission;
mod uri;
pub mod wire;

pub use client::{
    ClientConnection, ClientError, ClientEvent, ClientHandshake, Goal, HandshakeEvent, RequestError,
};
pub use handshake::{BlockSizes, ExportError, ExportInfo};
pub use server::{CloseReason, EXTENTS_MAX, OUTPUT_BYTES_HIGH, ServerConnection, ServerEvent};
pub use transmission::{Extent, NbdRequest, Op, ReplyHeader, RequestBytes};
pub use uri::{NbdAddress, NbdTls, NbdUri, UriError};
pub use wire::{NbdError, TransmissionFlags};
