//! NBD session without a socket: both halves of the protocol, past the handshake.

use std::sync::Arc;

use weft_nbd::{
    ClientConnection, ClientHandshake, ExportInfo, Goal, HandshakeEvent, ServerConnection,
};

use crate::BenchError;

/// A client that has opened an export of 1 GiB, and its server, both after the handshake.
pub(crate) fn session() -> Result<(ClientConnection, ServerConnection), BenchError> {
    let exports = Arc::new([ExportInfo::new("disk", 1 << 30).map_err(BenchError::failed)?]);
    let mut server = ServerConnection::new(exports, Some(0));
    let mut client = ClientHandshake::new(Goal::Open("disk".into())).map_err(BenchError::failed)?;
    loop {
        let (_, event) = client.input(server.output());
        server.advance_output(server.output().len());
        if let Some(HandshakeEvent::Ready(connection)) = event {
            let said = client.output().to_vec();
            hear(&mut server, &said);
            return Ok((connection, server));
        }
        let said = client.output().to_vec();
        client.advance_output(said.len());
        hear(&mut server, &said);
    }
}

fn hear(server: &mut ServerConnection, said: &[u8]) {
    let mut rest = said;
    while !rest.is_empty() {
        let (taken, _) = server.input(rest);
        rest = &rest[taken..];
    }
}
