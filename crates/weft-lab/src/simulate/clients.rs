//! Clients of a trace: its processes or devices, whose requests are told apart.
//!
//! A client is a process of the simulated host of its own, so that schedulers give it a share, and
//! what it got is told by itself. Those that moved least are one client together.

use std::collections::BTreeMap;

use super::SimulateError;
use super::trace::{Requests, Shape};
use crate::replay::{Counts, Record, ReplayError, Trace};

/// What tells the clients of a trace apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum By {
    /// The device that was asked.
    Device,
    /// The process that asked, where the trace knows it.
    Process,
}

/// Most clients; more are no chart that anybody can read.
pub const CLIENTS_MAX: usize = 8;

/// Most processes that are counted: a bound on memory.
pub(super) const PROCESSES_MAX: usize = 1 << 16;

/// A client, and how its requests are known.
#[derive(Clone, Debug)]
pub(super) struct Client {
    pub(super) name: String,
    is: Is,
}

#[derive(Clone, Debug)]
enum Is {
    /// Everybody.
    All,
    Device(u32),
    Process(u32),
    /// Whoever is none of these, which are sorted.
    NoneOf(By, Vec<u32>),
}

impl Client {
    /// All requests of a trace as those of one client.
    pub(super) fn all(name: &str) -> Self {
        Self { name: name.to_owned(), is: Is::All }
    }

    /// The clients of a trace, those that moved most first.
    ///
    /// # Errors
    /// The trace does not know them.
    pub(super) fn of(shape: &Shape, by: By) -> Result<Vec<Self>, SimulateError> {
        let mut known: Vec<(u32, String, Requests)> = match by {
            By::Device => (0..)
                .zip(&shape.devices)
                .map(|(at, (name, ..))| (at, name.clone(), shape.by_device[at as usize]))
                .collect(),
            By::Process => shape
                .processes
                .iter()
                .map(|(pid, (name, requests))| {
                    let name = if name.is_empty() { "process" } else { name.as_str() };
                    (*pid, format!("{name} ({pid})"), *requests)
                })
                .collect(),
        };
        if known.is_empty() {
            return Err(SimulateError::NoClients { formats: shape.formats.join(", ") });
        }
        known.sort_by_key(|(id, _, requests)| (std::cmp::Reverse(requests.bytes), *id));
        let counted: u64 = known.iter().map(|(.., requests)| requests.count).sum();
        let fits = known.len() <= CLIENTS_MAX && counted == shape.requests();
        known.truncate(if fits { known.len() } else { CLIENTS_MAX - 1 });
        let mut ids: Vec<u32> = known.iter().map(|(id, ..)| *id).collect();
        ids.sort_unstable();
        let told: u64 = known.iter().map(|(.., requests)| requests.count).sum();
        let one = |id| match by {
            By::Device => Is::Device(id),
            By::Process => Is::Process(id),
        };
        let mut clients: Vec<Self> =
            known.into_iter().map(|(id, name, _)| Self { name, is: one(id) }).collect();
        if told < shape.requests() {
            clients.push(Self { name: "others".to_owned(), is: Is::NoneOf(by, ids) });
        }
        Ok(clients)
    }

    fn has(&self, record: &Record) -> bool {
        match &self.is {
            Is::All => true,
            Is::Device(device) => record.device.0 == *device,
            Is::Process(pid) => record.pid == Some(*pid),
            Is::NoneOf(By::Device, others) => others.binary_search(&record.device.0).is_err(),
            Is::NoneOf(By::Process, others) => {
                record.pid.is_none_or(|pid| others.binary_search(&pid).is_err())
            }
        }
    }
}

/// Requests of the processes of a trace, as far as they are known.
pub(super) fn count(processes: &mut BTreeMap<u32, (String, Requests)>, record: &Record) {
    let Some(pid) = record.pid else { return };
    if processes.len() < PROCESSES_MAX || processes.contains_key(&pid) {
        processes.entry(pid).or_default().1.add(record.length);
    }
}

/// The requests of one client, out of all of a trace.
pub(super) struct OfClient {
    pub(super) trace: Trace,
    pub(super) client: Client,
}

impl OfClient {
    /// Counts of all that was read.
    pub(super) fn counts(&self) -> &Counts {
        self.trace.counts()
    }
}

impl Iterator for OfClient {
    type Item = Result<Record, ReplayError>;

    fn next(&mut self) -> Option<Self::Item> {
        let client = &self.client;
        self.trace.find(|next| next.as_ref().map_or(true, |record| client.has(record)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::replay::ReadOptions;

    /// So many processes, of which process `n` asks `n` times, and one request of nobody.
    fn shape(processes: u32) -> (Vec<u8>, Shape) {
        let mut log = String::from("fio version 3 iolog\n0 d add\n0 d open\n0 d read 0 4096\n");
        for pid in 1..=processes {
            for at in 0..pid {
                log += &format!("{pid} d read {} 4096 pid={pid}\n", at * 4096);
            }
        }
        log += "999 d close\n";
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("t.iolog");
        std::fs::write(&path, &log).unwrap();
        let shape = Shape::of(&[path], &ReadOptions::default()).unwrap();
        (log.into_bytes(), shape)
    }

    #[test]
    fn every_request_is_one_client_s_and_those_that_moved_least_are_one() {
        for (processes, expected) in [(2, 3), (7, 8), (8, 8), (30, 8)] {
            let (log, shape) = shape(processes);
            let clients = Client::of(&shape, By::Process).unwrap();
            assert_eq!(clients.len(), expected, "{processes}");
            assert_eq!(clients[0].name, format!("process ({processes})"), "most first");
            assert_eq!(clients.last().unwrap().name, "others");
            let count = |client: &Client| {
                let trace = Trace::of_bytes("t.iolog", log.clone(), &ReadOptions::default());
                OfClient { trace: trace.unwrap(), client: client.clone() }.count() as u64
            };
            assert_eq!(count(&clients[0]), u64::from(processes));
            assert_eq!(clients.iter().map(count).sum::<u64>(), shape.requests());
            let devices = Client::of(&shape, By::Device).unwrap();
            assert_eq!((devices.len(), count(&devices[0])), (1, shape.requests()));
        }
    }
}
