//! Clients of a volume: their requests, and the accounts to which member requests are charged.
//!
//! An account is a small number, so that counting a member's sectors for it is an addition in an
//! array. The first accounts belong to no single client: one to the array itself, one to syncs, and
//! one to all clients without an account of their own. A client gets an account with its first
//! request. When none is free, a new client takes over the account of a client that has
//! disconnected, and the old counts move to the shared account.

use weft_units::{Bytes, ClientId, Group, Sectors, Span, Time};

use crate::array::Array;
use crate::contract::input::{Account, Class, ClientRequest, NO_CLIENT, Purpose, RequestOp};
use crate::contract::snapshot::{AccountSnapshot, Party, PurposeSectors};

/// Clients of a volume by account, with counts of their requests and, for each account, the number
/// of sectors that members had transferred when the previous and the current period of [`WINDOW`]
/// began.
#[derive(Clone, Debug)]
pub(crate) struct Clients {
    /// Tallies of [`Account::OTHERS`] and of the accounts after it. Only the first `used` tallies
    /// are in use.
    tallies: Box<[Tally; ACCOUNTS_MAX]>,
    used: usize,
    /// For each client number modulo `ACCOUNTS_MAX`, the tally of the client that last sent a
    /// request.
    places: [u8; ACCOUNTS_MAX],
    /// Time at which the next counting period of length [`WINDOW`] begins.
    due: Time,
    /// Number of sectors by account at the start of the previous period of [`WINDOW`], and
    /// (`begun`) at the start of the current one.
    before: Vec<u64>,
    begun: Vec<u64>,
}

/// Requests of one client, sized to fit one cache line of the processor.
#[derive(Clone, Copy, Debug)]
#[repr(align(64))]
struct Tally {
    client: ClientId,
    gone: bool,
    class: Class,
    weight: u16,
    group: Group,
    /// Number of reads, and number of all other requests.
    requests: [u64; 2],
    bytes: [u64; 2],
}

impl Tally {
    fn new(client: ClientId) -> Self {
        let (class, weight) = (Class::None, 0);
        let (group, requests, bytes) = (Group::ROOT, [0; 2], [0; 2]);
        Self { client, gone: false, class, weight, group, requests, bytes }
    }

    fn add(&mut self, other: &Self) {
        for side in 0..2 {
            self.requests[side] += other.requests[side];
            self.bytes[side] += other.bytes[side];
        }
    }

    /// Counts a request in the tally at index `place`, and sets account and purpose in the
    /// request's attributes. Writes of the write-back cache are not counted, because they were
    /// counted when clients sent the data.
    #[inline(always)]
    fn count(&mut self, request: &mut ClientRequest, place: usize) {
        let is_of_client = u64::from(request.client != NO_CLIENT);
        let (attr, reads) = (&mut request.attr, request.op == RequestOp::Read);
        let side = usize::from(!reads);
        self.requests[side] += is_of_client;
        self.bytes[side] += request.range.len.0 * is_of_client;
        (self.class, self.weight) = (attr.class, attr.weight);
        attr.account = Account(Account::OTHERS.0 + place as u8);
        attr.purpose = Purpose::User;
        if attr.background && !reads {
            attr.purpose = Purpose::WriteBack;
        }
    }
}

impl Clients {
    pub(crate) fn new() -> Self {
        let tallies = Box::new([Tally::new(NO_CLIENT); ACCOUNTS_MAX]);
        let (before, begun) = (Vec::new(), Vec::new());
        Self { tallies, used: 1, places: [0; ACCOUNTS_MAX], due: Time(0), before, begun }
    }

    /// Counts a request for its client, and sets account and purpose in the request's attributes.
    #[inline(always)]
    pub(crate) fn enter(&mut self, request: &mut ClientRequest, array: &mut Array) {
        // The remainders save bounds checks.
        let number = request.client.0 as usize % ACCOUNTS_MAX;
        let place = usize::from(self.places[number]) % ACCOUNTS_MAX;
        let tally = &mut self.tallies[place];
        if tally.client == request.client {
            tally.count(request, place);
        } else {
            self.enter_another(request, array);
        }
    }

    /// Slow path of [`Clients::enter`], for a client to which `places` does not lead.
    #[inline(never)]
    fn enter_another(&mut self, request: &mut ClientRequest, array: &mut Array) {
        let place = self.place_of(request.client, array);
        self.places[request.client.0 as usize % ACCOUNTS_MAX] = place as u8;
        let tally = &mut self.tallies[place];
        tally.gone = false;
        // A client keeps its group.
        tally.group = if place == 0 { Group::ROOT } else { request.attr.origin.group() };
        tally.count(request, place);
    }

    fn place_of(&mut self, client: ClientId, array: &mut Array) -> usize {
        let used = self.used;
        if let Some(place) = self.used().iter().position(|tally| tally.client == client) {
            return place;
        }
        if used < ACCOUNTS_MAX {
            self.tallies[used] = Tally::new(client);
            self.used += 1;
            return used;
        }
        let Some(place) = self.used().iter().position(|tally| tally.gone) else { return 0 };
        let former = std::mem::replace(&mut self.tallies[place], Tally::new(client));
        self.tallies[0].add(&former);
        let account = Account(Account::OTHERS.0 + place as u8);
        array.members.iter_mut().for_each(|member| member.served.merge(account, Account::OTHERS));
        for totals in [&mut self.before, &mut self.begun] {
            if let Some(moved) = totals.get_mut(account.0 as usize).map(std::mem::take) {
                totals[Account::OTHERS.0 as usize] += moved;
            }
        }
        place
    }

    /// Records that a client has disconnected.
    pub(crate) fn gone(&mut self, client: ClientId) {
        for tally in self.tallies.iter_mut() {
            tally.gone |= tally.client == client;
        }
        // A client that returns is looked up again, which marks it as present.
        self.places[client.0 as usize % ACCOUNTS_MAX] = 0;
    }

    fn used(&self) -> &[Tally] {
        &self.tallies[..self.used]
    }

    /// Number of requests of all clients so far.
    pub(crate) fn requests(&self) -> u64 {
        self.used().iter().flat_map(|tally| tally.requests).sum()
    }

    /// Begins a new counting period of length [`WINDOW`] if the current one is over.
    #[inline]
    pub(crate) fn look(&mut self, array: &Array, now: Time) {
        if now >= self.due {
            self.begin_window(array, now);
        }
    }

    #[cold]
    fn begin_window(&mut self, array: &Array, now: Time) {
        self.due = now + WINDOW;
        let totals = self.totals(array);
        self.before = std::mem::replace(&mut self.begun, totals);
    }

    fn totals(&self, array: &Array) -> Vec<u64> {
        let accounts = 0..Account::OTHERS.0 + self.used as u8;
        let moved = |account| array.members.iter().map(move |it| it.served.sectors(account)).sum();
        accounts.map(|account| moved(Account(account))).collect()
    }

    pub(crate) fn party(&self, account: Account) -> Party {
        match account {
            Account::METADATA => Party::Metadata,
            Account::SYNC => Party::Resync,
            Account::OTHERS => Party::Others,
            Account(number) => {
                Party::Client(self.tallies[usize::from(number - Account::OTHERS.0)].client)
            }
        }
    }

    /// Snapshots of the accounts that have counts or belong to a connected client.
    pub(crate) fn snapshot(&self, array: &Array) -> Vec<AccountSnapshot> {
        let mut accounts = Vec::new();
        for (number, total) in (0..).zip(self.totals(array)) {
            let account = Account(number);
            let tally = number.checked_sub(Account::OTHERS.0).map(|it| self.tallies[it as usize]);
            let tally = tally.unwrap_or(Tally::new(NO_CLIENT));
            let before = self.before.get(usize::from(number)).copied().unwrap_or(0);
            let [reads, writes] = tally.requests;
            let is_there = number > Account::OTHERS.0 && !tally.gone;
            if total == 0 && reads + writes == 0 && !is_there {
                continue;
            }
            let moved = |purpose| {
                let sum = |write| {
                    let of = array.members.iter();
                    Sectors(of.map(|it| it.served.of(account, purpose, write)).sum())
                };
                PurposeSectors { purpose, read: sum(false), written: sum(true) }
            };
            let by_purpose = Purpose::ALL.into_iter().map(moved).filter(PurposeSectors::is_some);
            accounts.push(AccountSnapshot {
                party: self.party(account),
                gone: tally.gone,
                class: tally.class,
                weight: tally.weight,
                group: tally.group,
                reads,
                writes,
                bytes_read: Bytes(tally.bytes[0]),
                bytes_written: Bytes(tally.bytes[1]),
                sectors: Sectors(total),
                sectors_recently: Sectors(total.saturating_sub(before)),
                by_purpose: by_purpose.collect(),
            });
        }
        accounts
    }
}

/// Largest number of accounts of clients: the shared account [`Account::OTHERS`], and one account
/// for each of 63 clients.
const ACCOUNTS_MAX: usize = 64;

/// Length of a period for which sectors are counted. `sectors_recently` covers the current period
/// and the one before it.
const WINDOW: Span = Span::secs(2);
