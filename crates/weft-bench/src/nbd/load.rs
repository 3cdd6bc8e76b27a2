//! Lean client, which keeps a server fully busy.
//!
//! Each connection has a fixed number of requests in flight, sends and receives as many as possible
//! at once, and ignores the data. The client costs little, so the server is the bottleneck.

use std::io::{IoSlice, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::{Duration, Instant};

use rustix::thread::{CpuSet, sched_setaffinity};
use weft_export::client::shake_hands;
use weft_nbd::wire::{RequestHeader, SIMPLE_REPLY_MAGIC, command};
use weft_nbd::{ClientHandshake, Goal};
use weft_units::rng::Rng;

use crate::rounds::median;

/// Load on a server: kind and size of its requests, number of them in flight, connections, CPU and
/// used part of the export.
#[derive(Clone, Copy, Debug)]
pub(super) struct Job {
    pub(super) write: bool,
    pub(super) random: bool,
    /// Size of each request.
    pub(super) bytes: u32,
    /// Number of requests in flight on each connection.
    pub(super) depth: usize,
    pub(super) connections: usize,
    /// Whether client and server run on the first CPU.
    pub(super) pinned: bool,
    /// Size of the used part of the export, in bytes.
    pub(super) span: u64,
}

/// Requests, bytes and times of a load that has run.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Result {
    pub(super) requests: u64,
    pub(super) bytes: u64,
    pub(super) seconds: f64,
    /// Median latency of all requests, in microseconds, as seen by the client.
    pub(super) latency_us: f64,
    /// CPU time of the server in seconds, over all of its threads.
    pub(super) server_seconds: f64,
}

impl Result {
    pub(super) fn cpu_us_per_request(&self) -> f64 {
        self.server_seconds * 1e6 / self.requests as f64
    }

    pub(super) fn mb_per_cpu_second(&self) -> f64 {
        self.bytes as f64 / 1e6 / self.server_seconds
    }
}

/// Runs a load on the server at `socket` for `span`. The result lacks the server's CPU time:
/// `server_seconds` is 0.
pub(super) fn load(
    socket: &Path,
    export: &str,
    job: &Job,
    span: Duration,
) -> std::result::Result<Result, String> {
    let sessions = (0..job.connections)
        .map(|number| Session::open(socket, export, job, number))
        .collect::<std::result::Result<Vec<_>, _>>()?;
    let start = Instant::now();
    let ended: Vec<std::result::Result<Vec<f64>, String>> = std::thread::scope(|scope| {
        let threads: Vec<_> =
            sessions.into_iter().map(|session| scope.spawn(move || session.run(span))).collect();
        let joined = threads
            .into_iter()
            .map(|thread| thread.join().unwrap_or_else(|_| Err("a client panicked".to_owned())));
        joined.collect()
    });
    let seconds = start.elapsed().as_secs_f64();
    let mut latencies = Vec::new();
    for latency in ended {
        latencies.append(&mut latency?);
    }
    if latencies.is_empty() {
        return Err("no request was answered".into());
    }
    let requests = latencies.len() as u64;
    Ok(Result {
        requests,
        bytes: requests * u64::from(job.bytes),
        seconds,
        latency_us: median(&latencies),
        server_seconds: 0.0,
    })
}

/// A connection with its requests in flight. Each of them has a cookie of its own below
/// `job.depth`.
struct Session {
    stream: UnixStream,
    job: Job,
    /// Received bytes that have not been parsed.
    received: Vec<u8>,
    have: usize,
    /// Bytes of read data that have not been received yet and are dropped on arrival.
    skip: usize,
    free: Vec<usize>,
    /// Time at which each request was sent, by cookie.
    sent: Vec<Instant>,
    rng: Rng,
    next: u64,
    latencies: Vec<f64>,
}

impl Session {
    fn open(
        socket: &Path,
        export: &str,
        job: &Job,
        number: usize,
    ) -> std::result::Result<Self, String> {
        let failed = |error: &dyn std::fmt::Display| format!("{}: {error}", socket.display());
        let mut stream = UnixStream::connect(socket).map_err(|error| failed(&error))?;
        let handshake = ClientHandshake::new(Goal::Open(export.to_owned()));
        let handshake = handshake.map_err(|error| failed(&error))?.with_simple_replies();
        let (connection, _) =
            shake_hands(&mut stream, handshake).map_err(|error| failed(&error))?;
        let size = connection.export().size();
        if size < job.span {
            return Err(format!("{}: an export of {size} bytes", socket.display()));
        }
        let blocks = job.span / u64::from(job.bytes);
        Ok(Self {
            stream,
            job: *job,
            received: vec![0; job.bytes as usize + RECEIVE_BYTES],
            have: 0,
            skip: 0,
            free: (0..job.depth).collect(),
            sent: vec![Instant::now(); job.depth],
            rng: Rng::new(number as u64),
            next: blocks / job.connections as u64 * number as u64,
            latencies: Vec::with_capacity(1 << 20),
        })
    }

    /// Keeps the server busy for `span`. Returns the latency of every request, in microseconds.
    fn run(mut self, span: Duration) -> std::result::Result<Vec<f64>, String> {
        if self.job.pinned {
            let mut first = CpuSet::new();
            first.set(0);
            sched_setaffinity(None, &first)
                .map_err(|errno| format!("sched_setaffinity: {errno}"))?;
        }
        let payload = vec![0x5a; if self.job.write { self.job.bytes as usize } else { 0 }];
        let start = Instant::now();
        let mut now = start;
        while self.free.len() < self.job.depth || now - start < span {
            if now - start < span && !self.free.is_empty() {
                self.send(&payload, now)?;
            }
            let count = match self.stream.read(&mut self.received[self.have..]) {
                Ok(0) => return Err("the server hung up".into()),
                Ok(count) => count,
                Err(error) => return Err(error.to_string()),
            };
            self.have += count;
            now = Instant::now();
            self.look(now)?;
        }
        // The rest of the data of the last read.
        let mut rest = vec![0; self.skip];
        self.stream.read_exact(&mut rest).map_err(|error| error.to_string())?;
        let goodbye =
            RequestHeader { flags: 0, command: command::DISC, cookie: 0, offset: 0, len: 0 };
        let _ = self.stream.write_all(&goodbye.encode());
        Ok(self.latencies)
    }

    /// Sends as many requests as may be in flight, in one call.
    fn send(&mut self, payload: &[u8], now: Instant) -> std::result::Result<(), String> {
        let Job { write, random, bytes, span, .. } = self.job;
        let blocks = span / u64::from(bytes);
        let mut headers = Vec::with_capacity(self.free.len());
        while let Some(slot) = self.free.pop() {
            self.next += 1;
            let block = if random { self.rng.below(blocks) } else { self.next % blocks };
            let command = if write { command::WRITE } else { command::READ };
            let (cookie, offset) = (slot as u64, block * u64::from(bytes));
            headers.push(
                RequestHeader { flags: 0, command, cookie, offset, len: bytes.into() }.encode(),
            );
            self.sent[slot] = now;
        }
        let mut slices = Vec::with_capacity(headers.len() * 2);
        for header in &headers {
            slices.push(IoSlice::new(header));
            if !payload.is_empty() {
                slices.push(IoSlice::new(payload));
            }
        }
        let mut rest = &mut slices[..];
        while !rest.is_empty() {
            let count = self.stream.write_vectored(rest).map_err(|error| error.to_string())?;
            IoSlice::advance_slices(&mut rest, count);
        }
        Ok(())
    }

    /// Parses the received replies, records their latencies, and drops their data.
    fn look(&mut self, now: Instant) -> std::result::Result<(), String> {
        let data = if self.job.write { 0 } else { self.job.bytes as usize };
        let mut at = 0;
        loop {
            let dropped = self.skip.min(self.have - at);
            at += dropped;
            self.skip -= dropped;
            // A short read is complete when all of its data has arrived.
            let whole = 16 + if data <= SHORT_BYTES { data } else { 0 };
            if self.skip > 0 || self.have - at < whole {
                break;
            }
            let word = |from: usize| -> u32 {
                let bytes = &self.received[at + from..at + from + 4];
                u32::from_be_bytes(bytes.try_into().expect("four bytes"))
            };
            let (magic, error, slot) = (word(0), word(4), word(12) as usize);
            if magic != SIMPLE_REPLY_MAGIC || error != 0 || slot >= self.sent.len() {
                return Err(format!("reply: found magic {magic:#x}, error {error}, cookie {slot}"));
            }
            at += 16;
            self.skip = data;
            self.free.push(slot);
            self.latencies.push((now - self.sent[slot]).as_secs_f64() * 1e6);
        }
        self.received.copy_within(at..self.have, 0);
        self.have -= at;
        Ok(())
    }
}

/// Size of the receive buffer in bytes, in addition to the room for the data of one request.
const RECEIVE_BYTES: usize = 256 << 10;
const SHORT_BYTES: usize = 64 << 10;
