//! Outcome of a simulation: results of jobs, members and engine.

use serde_json::{Value, json};
use weft_engine::{MemberState, Notice, WriteBackSnapshot};
use weft_sim::machine::{Machine, Traffic};
use weft_units::{Bytes, FRAME_BYTES, Span, Time};

use super::Volume;
use super::faults::told;
use super::sync::SyncOutcome;
use crate::fio_json::JobResult;

/// Reasons why a simulation ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stop {
    /// All processes were done with their work.
    Done,
    /// A request failed; the run ended at this time.
    Failed(Time),
    /// The observer stopped the run, at this time.
    Interrupted(Time),
    /// The limit of virtual time was reached, at this time.
    Limit(Time),
}

/// Outcome of a simulation.
#[derive(Clone, Debug)]
pub struct Outcome {
    /// Results of jobs and clones, or of their groups, in order.
    pub results: Vec<JobResult>,
    /// Reason why the run ended.
    pub stop: Stop,
    /// Virtual time from the start to the end.
    pub elapsed: Span,
    /// Size of the volume.
    pub size: Bytes,
    /// Requests and bytes of each member.
    pub members: Vec<MemberOutcome>,
    /// Number of completed requests, and number of requests among them with an error.
    pub answered: (u64, u64),
    /// Bytes that requests to the volume asked to read, and to write, including writes of the page
    /// cache.
    pub client: (Bytes, Bytes),
    /// CPU time of the engine's thread.
    pub engine_work: Span,
    /// Bytes recovered from redundancy because they could not be read.
    pub recovered: Bytes,
    /// Number of failed reads of members.
    pub unreadable: u64,
    /// Events of members in words, with their times: failures, stalls, members without space.
    pub events: Vec<(Time, String)>,
    /// Dirty bytes in the page cache at the end.
    pub dirty: Bytes,
    /// Statistics of the write-back cache; `None` without such a cache.
    pub write_back: Option<WriteBackOutcome>,
    /// Course of the resync, recovery, check or repair beside the load; `None` if none ran.
    pub sync: Option<SyncOutcome>,
}

/// Statistics of a write-back cache.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WriteBackOutcome {
    /// Dirty limit of the cache: bytes that may be dirty or being written.
    pub limit: Bytes,
    /// Largest number of bytes that were dirty or being written at any time of the run.
    pub dirty_max: Bytes,
    /// Bytes dirty or being written at the end.
    pub dirty: Bytes,
    /// Bytes that were written back. The rest of the data written by clients was overwritten
    /// before, was written through, or is still dirty.
    pub written: Bytes,
}

impl WriteBackOutcome {
    fn of(snapshot: &WriteBackSnapshot, pages_max: u64) -> Self {
        let bytes = |pages: u64| Bytes(pages * FRAME_BYTES);
        Self {
            limit: bytes(snapshot.limit_pages),
            dirty_max: bytes(pages_max),
            dirty: bytes(snapshot.dirty_pages + snapshot.writeback_pages),
            written: bytes(snapshot.volumes.iter().map(|volume| volume.written_pages).sum()),
        }
    }

    fn to_json(self) -> Value {
        json!({
            "limit_bytes": self.limit.0,
            "dirty_bytes_max": self.dirty_max.0,
            "dirty_bytes_left": self.dirty.0,
            "bytes_written_back": self.written.0,
        })
    }
}

/// Requests and bytes of a member.
#[derive(Clone, Debug)]
pub struct MemberOutcome {
    /// Name of the drive's model.
    pub model: String,
    /// Commands and sectors that the member's disk received, after merging.
    pub traffic: Traffic,
    /// Whether the member holds all of its data.
    pub in_sync: bool,
    /// Whether the member's data is being recovered, or is still to be recovered because the member
    /// is a spare.
    pub rebuilding: bool,
    /// Number of unreadable sectors that were rewritten.
    pub corrected: u64,
}

impl Outcome {
    /// Collects the outcome of a machine after its run.
    pub(super) fn of(
        machine: &Machine,
        volume: &Volume,
        results: Vec<JobResult>,
        stop: Stop,
    ) -> Self {
        let host = &machine.host;
        let snapshot = host.snapshot();
        let states = snapshot.volumes.first().map(|volume| &volume.members[..]).unwrap_or_default();
        let members = volume.members.iter().zip(host.traffic()).enumerate();
        let elapsed = host.now().since(Time(0));
        let sync = volume
            .sync
            .zip(snapshot.volumes.first())
            .map(|(action, of)| SyncOutcome::of(action, of, host.notices(), elapsed));
        let rebuilds = |state| matches!(state, MemberState::Rebuilding { .. } | MemberState::Spare);
        let members = members.map(|(index, ((model, _), traffic))| {
            let of = states.iter().find(|of| usize::from(of.member.0) == index);
            MemberOutcome {
                model: model.clone(),
                traffic,
                in_sync: of.is_some_and(|of| of.state == MemberState::InSync),
                rebuilding: of.is_some_and(|of| rebuilds(of.state)),
                corrected: of.map_or(0, |of| of.corrected),
            }
        });
        let (read, written) = host.asked_bytes();
        Self {
            results,
            stop,
            elapsed,
            size: host.size(),
            members: members.collect(),
            answered: host.answered(),
            client: (read, written),
            engine_work: host.engine_work(),
            recovered: host.recovered(),
            unreadable: host.unreadable(),
            events: host.notices().iter().filter_map(event).collect(),
            dirty: host.dirty_bytes(),
            write_back: (snapshot.write_back.as_ref())
                .map(|cache| WriteBackOutcome::of(cache, host.dirty_pages_max())),
            sync,
        }
    }

    /// Bytes that members read and wrote.
    #[must_use]
    pub fn moved(&self) -> (Bytes, Bytes) {
        let sum = |of: fn(&Traffic) -> u64| {
            Bytes(self.members.iter().map(|member| of(&member.traffic)).sum::<u64>() * 512)
        };
        (sum(|traffic| traffic.sectors_read), sum(|traffic| traffic.sectors_written))
    }

    /// Bytes of prereads for each byte that clients wrote: member reads in excess of client reads.
    #[must_use]
    pub fn prereads(&self) -> f64 {
        let beyond = self.moved().0.0.saturating_sub(self.client.0.0);
        beyond as f64 / (self.client.1.0 as f64).max(1.0)
    }

    /// JSON object with the values for which fio has no key.
    #[must_use]
    pub fn to_json(&self, volume: &Volume) -> Value {
        let members: Vec<Value> = self
            .members
            .iter()
            .map(|member| {
                let Traffic { reads, writes, flushes, sectors_read, sectors_written, .. } =
                    member.traffic;
                json!({
                    "model": member.model,
                    "in_sync": member.in_sync,
                    "sectors_corrected": member.corrected,
                    "reads": reads,
                    "writes": writes,
                    "flushes": flushes,
                    "bytes_read": sectors_read * 512,
                    "bytes_written": sectors_written * 512,
                })
            })
            .collect();
        let knobs: serde_json::Map<String, Value> = weft_engine::knobs::TABLE
            .iter()
            .map(|row| (row.name.to_owned(), volume.knobs.show(row.name).into()))
            .collect();
        let events: Vec<Value> =
            self.events.iter().map(|(at, what)| json!({"at_ns": at.0, "what": what})).collect();
        let stop = match self.stop {
            Stop::Done => "done",
            Stop::Failed(_) => "failed",
            Stop::Interrupted(_) => "interrupted",
            Stop::Limit(_) => "limit",
        };
        let drives: serde_json::Map<String, Value> = volume
            .members
            .iter()
            .map(|(name, model)| (name.clone(), model.to_toml().into()))
            .collect();
        json!({
            "schema": "weft.sim/1",
            "stop": stop,
            "simulated_ns": self.elapsed.0,
            "seed": volume.seed,
            "costs": { "table": volume.costs.source, "cpu": volume.costs.cpu, "date": volume.costs.date },
            "volume": {
                "level": volume.level.map_or("single".to_owned(), |level| level.to_string()),
                "chunk": volume.chunk.0,
                "size": self.size.0,
                "knobs": knobs,
            },
            "members": members,
            "drives": drives,
            "requests": self.answered.0,
            "requests_failed": self.answered.1,
            "client_bytes_read": self.client.0.0,
            "client_bytes_written": self.client.1.0,
            "preread_bytes_per_byte_written": self.prereads(),
            "engine_busy_ns": self.engine_work.0,
            "faults": volume.faults.iter().map(told).collect::<Vec<_>>(),
            "events": events,
            "reads_failed": self.unreadable,
            "bytes_recovered": self.recovered.0,
            "dirty_bytes_left": self.dirty.0,
            "write_back": self.write_back.map(WriteBackOutcome::to_json),
            "sync": self.sync.as_ref().map(SyncOutcome::to_json),
        })
    }
}

/// Description of a fault or an event of a member; `None` for other notices.
fn event((at, notice): &(Time, Notice)) -> Option<(Time, String)> {
    let what = match notice {
        Notice::Broken(_) => "too few members are left: nothing more is written".to_owned(),
        Notice::MemberFailed { member, .. } => format!("member {} failed", member.0),
        Notice::MemberReplaced { member, by, .. } => {
            format!("member {} took the place of member {}", by.0, member.0)
        }
        Notice::FailureRecorded { .. } => "the failure is recorded on the other members".to_owned(),
        Notice::MemberStalled { member, read_around: true } => {
            format!("member {} stalls: reads go round it", member.0)
        }
        Notice::MemberStalled { member, .. } => format!("member {} stalls", member.0),
        Notice::NoSpace { member } => format!("no space behind member {}", member.0),
        Notice::WriteBackFailed { at, error, .. } => {
            format!("write-back failed at byte {at}: {error}")
        }
        Notice::WriteBackWorks(_) => "write-back works again".to_owned(),
        _ => return None,
    };
    Some((*at, what))
}
