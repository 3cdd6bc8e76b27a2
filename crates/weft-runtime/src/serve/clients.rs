//! Identities of clients: the worker and the port that a client belongs to, and its number there.

use weft_units::ClientId;

/// Identity of a client: its port, and a number below [`CLIENTS_MAX`] that the port chooses. A port
/// reuses a number only when its former client has nothing outstanding.
#[must_use]
pub fn client_of(port: u8, number: u32) -> ClientId {
    assert!(number < CLIENTS_MAX);
    ClientId(u32::from(port) << CLIENT_BITS | number)
}

/// Number of the port of the reactor ([`Port`](super::reactor::Port)) that serves a client.
#[must_use]
pub fn port_of(client: ClientId) -> u8 {
    u8::try_from(client.0 >> CLIENT_BITS).expect("the upper eight bits")
}

/// Number of different client numbers that a port has: a number is reused after 16 million
/// connections.
pub const CLIENTS_MAX: u32 = 1 << CLIENT_BITS;
const CLIENT_BITS: u32 = 24;
/// Largest number of threads that serve clients.
pub(crate) const WORKERS_MAX: usize = 16;
/// Largest number of ports of one worker.
pub const WORKER_PORTS: u8 = 8;
