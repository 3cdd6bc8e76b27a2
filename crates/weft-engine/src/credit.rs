//! How much may a client have outstanding?
//!
//! Every client has the same credit, in bytes of payload. A request takes from it when it arrives and
//! gives back when it is answered, so that what a client makes the engine hold is bounded by what it
//! was allowed, whether it reads its answers or not. A request larger than the whole credit goes
//! alone.

use std::collections::BTreeMap;

use weft_units::{Bytes, ClientId};

/// What every client has out.
#[derive(Clone, Debug)]
pub(crate) struct Credit {
    limit: Bytes,
    out: BTreeMap<ClientId, Account>,
}

#[derive(Clone, Copy, Debug, Default)]
struct Account {
    bytes: u64,
    gone: bool,
}

impl Credit {
    pub(crate) fn new(limit: Bytes) -> Self {
        Self { limit, out: BTreeMap::new() }
    }

    /// A request takes credit. Whether there was enough.
    pub(crate) fn take(&mut self, client: ClientId, bytes: u64) -> bool {
        let account = self.out.entry(client).or_default();
        let sum = account.bytes.checked_add(bytes);
        let enough = account.bytes == 0 || sum.is_some_and(|sum| sum <= self.limit.0);
        if enough {
            account.bytes += bytes;
        }
        enough
    }

    /// A request was answered. Whether the client is there to be told.
    pub(crate) fn give_back(&mut self, client: ClientId, bytes: u64) -> bool {
        let Some(account) = self.out.get_mut(&client) else { return false };
        account.bytes -= bytes;
        let gone = account.gone;
        if account.bytes == 0 {
            self.out.remove(&client);
        }
        !gone && bytes > 0
    }

    /// A client is gone; its account closes with its last request.
    pub(crate) fn client_gone(&mut self, client: ClientId) {
        if let Some(account) = self.out.get_mut(&client) {
            account.gone = true;
            if account.bytes == 0 {
                self.out.remove(&client);
            }
        }
    }

    pub(crate) fn outstanding(&self) -> Vec<(ClientId, Bytes)> {
        let with_credit = self.out.iter().filter(|(_, account)| account.bytes > 0);
        with_credit.map(|(client, account)| (*client, Bytes(account.bytes))).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn credit_is_bounded_per_client_and_comes_back() {
        let mut credit = Credit::new(Bytes(8192));
        let (a, b) = (ClientId(1), ClientId(2));
        assert!(credit.take(a, 4096) && credit.take(a, 4096));
        assert!(!credit.take(a, 1), "over the limit");
        assert!(credit.take(b, 8192), "another client has its own");
        assert!(credit.give_back(a, 4096));
        assert!(credit.take(a, 4096));
        credit.client_gone(b);
        assert!(!credit.give_back(b, 8192), "nobody is there to be told");
        assert_eq!(credit.outstanding(), [(a, Bytes(8192))]);
    }
}
