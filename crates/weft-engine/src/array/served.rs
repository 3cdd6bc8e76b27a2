//! Counters of the sectors that a member has read and written, by account and purpose.

use weft_units::Sectors;

use crate::contract::input::{Account, Attr, Purpose};

/// Counters of the sectors that one member has read and written. Each account (the party that a
/// request is charged to) has a row, with a column for each purpose and direction.
#[derive(Clone, Debug, Default)]
pub(crate) struct Served(Vec<Row>);

type Row = [u64; 16];

const _: () = assert!(Purpose::ALL.len() * 2 <= std::mem::size_of::<Row>() / 8);

impl Served {
    /// Adds `length` sectors to the counter of the account and purpose of `attr`.
    #[inline(always)]
    pub(crate) fn add(&mut self, attr: &Attr, write: bool, length: Sectors) {
        let place = place(attr.purpose, write);
        match self.0.get_mut(usize::from(attr.account.0)) {
            Some(row) => row[place] += length.0,
            None => self.add_row(attr.account, place, length),
        }
    }

    #[cold]
    fn add_row(&mut self, account: Account, place: usize, length: Sectors) {
        let row = usize::from(account.0);
        self.0.resize(row + 1, Row::default());
        self.0[row][place] = length.0;
    }

    /// Number of sectors written (`write`) or read (otherwise) for one account and purpose.
    pub(crate) fn of(&self, account: Account, purpose: Purpose, write: bool) -> u64 {
        self.0.get(usize::from(account.0)).map_or(0, |row| row[place(purpose, write)])
    }

    /// Sectors read and written for an account, for all purposes.
    pub(crate) fn sectors(&self, account: Account) -> u64 {
        self.0.get(usize::from(account.0)).map_or(0, |row| row.iter().sum())
    }

    /// Number of sectors written (`write`) or read (otherwise) for all accounts.
    pub(crate) fn moved(&self, write: bool) -> u64 {
        let side =
            |row: &Row| row.chunks_exact(2).map(|pair| pair[usize::from(write)]).sum::<u64>();
        self.0.iter().map(side).sum()
    }

    /// Accounts for which sectors may have been counted.
    pub(crate) fn accounts(&self) -> impl Iterator<Item = Account> {
        (0..self.0.len() as u8).map(Account)
    }

    /// Adds the counters of the account `from` to those of `to`, and clears them.
    pub(crate) fn merge(&mut self, from: Account, to: Account) {
        let Some(moved) = self.0.get_mut(usize::from(from.0)).map(std::mem::take) else { return };
        for (sum, more) in self.0[usize::from(to.0)].iter_mut().zip(moved) {
            *sum += more;
        }
    }
}

#[inline(always)]
const fn place(purpose: Purpose, write: bool) -> usize {
    // The mask spares a check of the bounds.
    (purpose as usize * 2 + write as usize) & 15
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_moved_is_counted_by_account_purpose_and_direction() {
        let mut served = Served::default();
        let attr =
            |account, purpose| Attr { account: Account(account), ..Attr::NONE.with(purpose) };
        served.add(&attr(5, Purpose::User), true, Sectors(8));
        served.add(&attr(5, Purpose::RmwRead), false, Sectors(3));
        served.add(&Attr::NONE, true, Sectors(1));
        assert_eq!(served.of(Account(5), Purpose::User, true), 8);
        assert_eq!(served.of(Account(5), Purpose::User, false), 0);
        assert_eq!((served.sectors(Account(5)), served.sectors(Account(9))), (11, 0));
        assert_eq!((served.moved(false), served.moved(true)), (3, 9));
        served.merge(Account(5), Account::OTHERS);
        assert_eq!((served.sectors(Account(5)), served.sectors(Account::OTHERS)), (0, 11));
        assert_eq!((served.moved(false), served.moved(true)), (3, 9), "nothing is lost");
    }
}
