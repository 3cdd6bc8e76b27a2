//! Clients of a trace: its processes or devices, as separate clients.
//!
//! Each client is a process of the simulated host, so schedulers give it a share and its results
//! are reported separately. The clients with the least traffic are joined into one.

use std::collections::BTreeMap;

use super::SimulateError;
use super::trace::{Requests, TraceShape};
use crate::replay::{Counts, Record, ReplayError, Trace};

/// Criterion by which the requests of a trace are divided among clients.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum By {
    /// The device of the request.
    Device,
    /// The process that issued the request, if the trace records it.
    Process,
}

/// Largest number of clients. A chart of more would be unreadable.
pub const CLIENTS_MAX: usize = 8;

/// Largest number of processes of which requests are counted; it limits the memory for the counts.
pub(super) const PROCESSES_MAX: usize = 1 << 16;

/// A client, and the filter for its requests.
#[derive(Clone, Debug)]
pub(super) struct Client {
    pub(super) name: String,
    is: Is,
}

#[derive(Clone, Debug)]
enum Is {
    /// The client has all requests.
    All,
    Device(u32),
    Process(u32),
    /// The client has the requests that belong to none of the devices or processes in this sorted
    /// list.
    NoneOf(By, Vec<u32>),
}

impl Client {
    /// One client for all requests of a trace.
    pub(super) fn all(name: &str) -> Self {
        Self { name: name.to_owned(), is: Is::All }
    }

    /// The clients of a trace, those with the most traffic first.
    ///
    /// # Errors
    /// The trace does not record its processes.
    pub(super) fn of(shape: &TraceShape, by: By) -> Result<Vec<Self>, SimulateError> {
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

/// Counts a request for its process, if the trace records the process. A new process is ignored
/// once [`PROCESSES_MAX`] processes are counted.
pub(super) fn count(processes: &mut BTreeMap<u32, (String, Requests)>, record: &Record) {
    let Some(pid) = record.pid else { return };
    if processes.len() < PROCESSES_MAX || processes.contains_key(&pid) {
        processes.entry(pid).or_default().1.add(record.length);
    }
}

/// Iterator over the requests of one client of a trace.
pub(super) struct OfClient {
    pub(super) trace: Trace,
    pub(super) client: Client,
}

impl OfClient {
    /// Counts of all records that the trace has returned, including the records of other clients.
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

    /// A trace of `processes` processes, of which process `n` issues `n` requests, and one request
    /// without a process.
    fn shape(processes: u32) -> (Vec<u8>, TraceShape) {
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
        let shape = TraceShape::of(&[path], &ReadOptions::default()).unwrap();
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
