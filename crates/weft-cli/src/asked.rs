//! Accounts of a volume, which are of clients or of purposes: their names and their requests.

use weft_export::control::{ShareStatus, VolumeStatus};

/// Requests of accounts of a volume since the start of its server; flushes and trims count as
/// writes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Asked {
    /// Number of reads.
    pub(crate) reads: u64,
    /// Number of other requests.
    pub(crate) writes: u64,
    /// Bytes of the reads.
    pub(crate) bytes_read: u64,
    /// Bytes of the other requests.
    pub(crate) bytes_written: u64,
}

impl Asked {
    /// Requests of all clients of a volume, including clients that have disconnected.
    pub(crate) fn by_clients(volume: &VolumeStatus) -> Self {
        let clients = volume.shares.iter().filter(|share| is_of_clients(share));
        clients.map(Self::by_account).fold(Self::default(), |sum, one| Self {
            reads: sum.reads + one.reads,
            writes: sum.writes + one.writes,
            bytes_read: sum.bytes_read + one.bytes_read,
            bytes_written: sum.bytes_written + one.bytes_written,
        })
    }

    /// Requests of one account.
    pub(crate) fn by_account(share: &ShareStatus) -> Self {
        let &ShareStatus { reads, writes, bytes_read, bytes_written, .. } = share;
        Self { reads, writes, bytes_read, bytes_written }
    }
}

/// Whether an account is that of a client, or the common account of clients that are not counted
/// one by one.
pub(crate) fn is_of_clients(share: &ShareStatus) -> bool {
    matches!(share.who.as_str(), "client" | "others")
}

/// Name of an account: number of the client, with its export if it is connected; `other clients`;
/// or the purpose of the account.
pub(crate) fn share_label(share: &ShareStatus) -> String {
    let number = share.client.unwrap_or_default();
    match (share.who.as_str(), &share.export) {
        ("client", Some(export)) => format!("client {number} of {export}"),
        ("client", None) if share.gone => format!("client {number}, gone"),
        ("client", None) => format!("client {number}"),
        ("others", _) => "other clients".to_owned(),
        (other, _) => other.to_owned(),
    }
}
