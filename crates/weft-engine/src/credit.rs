//! Credit of clients: number of bytes of payload that each client may have outstanding.
//!
//! Every client has the same credit, in bytes of payload. A request takes credit when it arrives
//! and returns it when it is answered, so that the memory that a client's requests hold is bounded
//! even if the client does not read its answers. A request that is larger than the whole credit is
//! accepted only if nothing else is outstanding.

use weft_units::{Bytes, ClientId};

use crate::mutant::{self, Mutant};

/// Credit of all clients: for each, the limit on its outstanding payload in bytes, and the bytes
/// that are outstanding.
#[derive(Clone, Debug)]
pub(crate) struct Credit {
    limit: Bytes,
    /// Accounts in the order of client ids. An account stays until its client has disconnected and
    /// its requests are answered.
    accounts: Vec<Account>,
    pub(crate) planted: Option<Mutant>,
}

#[derive(Clone, Copy, Debug)]
struct Account {
    client: ClientId,
    bytes: u64,
    gone: bool,
}

impl Credit {
    pub(crate) fn new(limit: Bytes) -> Self {
        Self { limit, accounts: Vec::new(), planted: None }
    }

    /// Takes credit for a request of `bytes` payload, if the client has enough or has nothing
    /// outstanding. Returns whether the credit was taken.
    pub(crate) fn take(&mut self, client: ClientId, bytes: u64) -> bool {
        let place = self.find(client).unwrap_or_else(|place| {
            self.accounts.insert(place, Account { client, bytes: 0, gone: false });
            place
        });
        let account = &mut self.accounts[place];
        let sum = account.bytes.checked_add(bytes);
        let overshoots = mutant::is(self.planted, Mutant::CreditOvershoots);
        let enough = account.bytes == 0
            || sum.is_some_and(|sum| sum <= self.limit.0)
            || overshoots && account.bytes < self.limit.0;
        if enough {
            account.bytes += bytes;
        }
        enough
    }

    /// Gives back the credit of an answered request to the client. Returns whether the client gets
    /// a `Credit` output: not if it has disconnected, or if the request had no payload.
    pub(crate) fn give_back(&mut self, client: ClientId, bytes: u64) -> bool {
        let Ok(place) = self.find(client) else { return false };
        let account = &mut self.accounts[place];
        account.bytes -= bytes;
        let gone = account.gone;
        if gone && account.bytes == 0 {
            self.accounts.remove(place);
        }
        !gone && bytes > 0
    }

    /// Records that a client has disconnected. The client's account is removed when its last
    /// request is answered.
    pub(crate) fn client_gone(&mut self, client: ClientId) {
        let Ok(place) = self.find(client) else { return };
        let account = &mut self.accounts[place];
        account.gone = true;
        if account.bytes == 0 {
            self.accounts.remove(place);
        }
    }

    pub(crate) fn outstanding(&self) -> Vec<(ClientId, Bytes)> {
        let with_credit = self.accounts.iter().filter(|account| account.bytes > 0);
        with_credit.map(|account| (account.client, Bytes(account.bytes))).collect()
    }

    /// Index of a client's account, or as the error the index at which to insert it.
    fn find(&self, client: ClientId) -> Result<usize, usize> {
        self.accounts.binary_search_by_key(&client, |account| account.client)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn credit_is_bounded_per_client_and_comes_back() {
        let mut credit = Credit::new(Bytes(8192));
        let (a, b) = (ClientId(1), ClientId(2));
        assert!(credit.take(a, 4096));
        assert!(!credit.take(a, 4097), "over the limit, below which the client is");
        assert!(credit.take(a, 4096));
        assert!(!credit.take(a, 1), "over the limit");
        assert!(credit.take(b, 8192), "another client has its own");
        assert!(credit.give_back(a, 4096));
        assert!(credit.take(a, 4096));
        credit.client_gone(b);
        assert!(!credit.give_back(b, 8192), "a client that is gone is not told");
        assert_eq!(credit.outstanding(), [(a, Bytes(8192))]);
    }
}
