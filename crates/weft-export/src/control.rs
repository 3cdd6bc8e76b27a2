//! Control protocol: commands to a running volume and their answers, one JSON object a line.
//!
//! The socket is a unix socket of mode 0600; answers come in the order of the requests. A request
//! names its version and command, `{"v":2,"cmd":"status"}`; the answer says `"ok":true` with what
//! was asked for, or `"ok":false` with a sentence and the kind of failure. [`ControlRequest`] and
//! [`Response`] are the whole language, [`Client`] speaks it, and [`crate::serve()`] answers.
//!
//! Source   serve.md; reference.md (exit status)

use std::io::{BufRead, BufReader, Write};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde::{Deserialize, Serialize};
use thiserror::Error;

/// The version of the language spoken here.
pub const VERSION: u32 = 2;

/// The longest line either side takes.
pub const LINE_BYTES_MAX: usize = 1 << 20;

/// One line to the server.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ControlRequest {
    /// Version of the language, [`VERSION`].
    pub v: u32,
    /// Name of the volume; the only one when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub volume: Option<String>,
    /// The command.
    #[serde(flatten)]
    pub command: Command,
}

/// Commands to a running volume. Names are those of the command line.
///
/// Members are named by label (the path they were opened by) or by index.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "cmd", rename_all = "snake_case")]
pub enum Command {
    /// Open members and take them in as spares.
    Add {
        /// Paths, as for `serve`.
        members: Vec<String>,
    },
    /// Declare members failed: all of them, or none.
    Fail {
        /// Labels or indices of the members.
        members: Vec<String>,
    },
    /// Show knobs; all when none is named.
    Get {
        /// Their names.
        #[serde(default)]
        knobs: Vec<String>,
    },
    /// Open former members and take them back into their slots, to be given what the write-intent
    /// bitmap says.
    ReAdd {
        /// Paths, as for `serve`.
        members: Vec<String>,
    },
    /// Forget failed members and spares, and close them.
    Remove {
        /// Labels or indices of the members.
        members: Vec<String>,
    },
    /// Change knobs, one after the other; stops at the first that is refused.
    Set {
        /// Name and value.
        knobs: Vec<(String, String)>,
    },
    /// Change knobs of the queues of some members, one knob after the other.
    SetQueues {
        /// Labels or indices of the members.
        members: Vec<String>,
        /// Name and value.
        knobs: Vec<(String, String)>,
    },
    /// Everything there is to know.
    Status,
    /// Finish, flush, mark clean and end the server. Answered when that is done. If the write-back
    /// cache cannot be written it fails and names what, and the server goes on.
    Stop {
        /// Give up what cannot be written, and end.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        discard: bool,
    },
    /// `check`, `repair`, `resync`, `recover`, `idle` or `frozen`.
    SyncAction {
        /// Action: one of these words.
        action: String,
    },
}

/// One line from the server.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Response {
    /// Version of the language, [`VERSION`].
    pub v: u32,
    /// Whether it was done.
    pub ok: bool,
    /// Reason of a refusal, for people.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
    /// Reason of a refusal, for programs; see [`FailureKind::exit_code`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kind: Option<FailureKind>,
    /// Circumstances of what was done that people should know.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub note: Option<String>,
    /// Names and values of knobs, answer to `get`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub knobs: Vec<(String, String)>,
    /// Members whose queues have other values than the volume, answer to `get`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub queues: Vec<QueueKnobs>,
    /// State of the server, answer to `status`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub status: Option<Status>,
}

/// Knobs of the queue of a member that are not those of the volume.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct QueueKnobs {
    /// Number of the member within the server.
    pub index: u16,
    /// The path it was opened by.
    pub label: String,
    /// Name and value of each knob that differs.
    pub knobs: Vec<(String, String)>,
}

/// Reasons why a command was not done.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum FailureKind {
    /// The command was tried and failed.
    Failed,
    /// Not done for safety; nothing was written.
    Refused,
    /// The request makes no sense.
    Usage,
}

/// State of a server.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Status {
    /// Process id of the server.
    pub pid: u32,
    /// Since its start.
    pub uptime_ms: u64,
    /// `io_uring` or `threads`.
    pub backend: String,
    /// Whether a panic has stopped all acknowledgement.
    pub poisoned: bool,
    /// Addresses that clients connect to.
    pub listen: Vec<String>,
    /// Number of clients that are connected.
    pub clients: usize,
    /// Frames lent to requests and replies.
    pub frames_held: u32,
    /// `Submit`s and `Compute`s without an answer.
    pub tokens_outstanding: usize,
    /// Every volume of the server.
    pub volumes: Vec<VolumeStatus>,
}

/// State of a volume; see [`weft_engine::VolumeSnapshot`].
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct VolumeStatus {
    /// Name of the volume.
    pub name: String,
    /// State of the array, md's `array_state`.
    pub array_state: String,
    /// `raid5` and the like, or `bare`.
    pub level: String,
    /// Bytes.
    pub size: u64,
    /// Number of slots, if it is an array.
    pub slots: usize,
    /// Facts of the superblocks that do not change while it runs, if it is an array.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub array: Option<ArrayStatus>,
    /// Slots without a member that is in sync.
    pub degraded: usize,
    /// Event count of the superblocks.
    pub events: u64,
    /// Time at which superblocks were last written, seconds since 1970, if it is an array.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub updated_secs: Option<u64>,
    /// The write-intent bitmap, if the array has one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bitmap: Option<BitmapStatus>,
    /// Resync, recovery, check or repair that runs, md's `sync_action`.
    pub sync_action: String,
    /// Sectors of each member that the resync or check has passed, and of how many.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sync_completed: Option<(u64, u64)>,
    /// Stripes of the cache that the running or last resync or check has looked at.
    #[serde(default)]
    pub sync_stripes: u64,
    /// Sectors in which a check found a mismatch, md's `mismatch_cnt`.
    pub mismatch_cnt: u64,
    /// Places of the mismatches and the members that explain them, if a check has found any.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mismatches: Option<MismatchesStatus>,
    /// Sector of each member from which parity may be wrong; absent when it is right everywhere.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub resync_from: Option<u64>,
    /// Whether writes are refused for want of space behind a member.
    #[serde(default)]
    pub no_space: bool,
    /// Stripes of the stripe cache that are in use.
    pub stripe_cache_active: u32,
    /// Requests not answered yet.
    pub requests_active: usize,
    /// Every member, failed ones included until they are removed.
    pub members: Vec<MemberStatus>,
    /// Whom members work for: clients, resync, the array itself.
    #[serde(default)]
    pub shares: Vec<ShareStatus>,
    /// What the write-back cache has of it, if there is one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub write_back: Option<WriteBackStatus>,
}

/// What the write-back cache of a server has of a volume, in bytes; see
/// [`weft_engine::WriteBackSnapshot`].
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct WriteBackStatus {
    /// Rule by which clients are slowed down: `dirty_throttle`.
    #[serde(default)]
    pub throttle: String,
    /// Writes of all volumes whose answers are delayed by it now.
    #[serde(default)]
    pub answers_delayed: u64,
    /// Pauses of clients of all volumes since the start.
    #[serde(default)]
    pub pauses: u64,
    /// Most that is dirty or being written, of all volumes of the server: `dirty_bytes`.
    pub dirty_bytes: u64,
    /// What is written at once above that: `dirty_background_bytes`.
    pub dirty_background_bytes: u64,
    /// Dirty: lost if the server dies now.
    pub dirty: u64,
    /// Being written.
    pub writeback: u64,
    /// Written since the start.
    pub written: u64,
    /// Error of the last write, if that failed: what is dirty stays so and is tried again.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
}

/// What was asked on one behalf and what members moved for it; see
/// [`weft_engine::AccountSnapshot`].
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ShareStatus {
    /// `client`, `resync`, `metadata`, or `others`: clients that are not counted one by one.
    pub who: String,
    /// Number of the connection.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub client: Option<u32>,
    /// Export that the client has chosen.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub export: Option<String>,
    /// Whether the client is there no more.
    #[serde(default)]
    pub gone: bool,
    /// I/O class, as `weft serve --class` takes it.
    pub class: String,
    /// Weight.
    pub weight: u16,
    /// Group of the client, if it is in one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub group: Option<String>,
    /// Reads of the volume.
    pub reads: u64,
    /// Other requests of the volume.
    pub writes: u64,
    /// Bytes of these requests.
    pub bytes_read: u64,
    /// Bytes of these requests.
    pub bytes_written: u64,
    /// Sectors that members read and wrote for it.
    pub sectors: u64,
    /// Its part of the sectors of all, in thousandths.
    pub share_permille: u32,
    /// The same of the last seconds in which the volume did anything.
    pub share_recently_permille: u32,
    /// The sectors by what they are for.
    pub purposes: Vec<PurposeStatus>,
}

/// Sectors that members moved for one purpose; see [`weft_engine::Purpose`].
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct PurposeStatus {
    /// `user`, `rmw_read`, `reconstruct`, `parity`, `write_back`, `resync` or `metadata`.
    pub purpose: String,
    /// Sectors read.
    pub sectors_read: u64,
    /// Sectors written.
    pub sectors_written: u64,
}

/// A write-intent bitmap; see [`weft_engine::BitmapSnapshot`].
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct BitmapStatus {
    /// Bytes of a chunk.
    pub chunk: u64,
    /// Number of chunks.
    pub chunks: u64,
    /// Chunks whose bit is set.
    pub dirty: u64,
    /// Pages of memory that md would have for it, at 2,048 chunks.
    pub pages: u64,
    /// Those with a chunk whose bit is set.
    pub pages_dirty: u64,
    /// Event count that a former member must have to be taken back.
    pub events_cleared: u64,
}

/// Stripes of 4 KiB per member in which a check found that data and parity disagree; see
/// [`weft_engine::Mismatches`].
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct MismatchesStatus {
    /// Members that alone explain some of them.
    pub members: Vec<WrongMember>,
    /// Stripes that no member alone explains, or with one parity, which cannot say.
    pub not_located: u64,
    /// The first of them.
    pub first: Vec<MismatchStatus>,
}

/// A member whose strips are wrong.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct WrongMember {
    /// The path it was opened by.
    pub label: String,
    /// In how many stripes.
    pub stripes: u64,
}

/// A stripe in which data and parity disagree.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct MismatchStatus {
    /// Data sector of each member at which it begins.
    pub sector: u64,
    /// The member whose strip alone explains it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub member: Option<String>,
    /// Slot of the member.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub slot: Option<u16>,
    /// First sector of the strip on that member.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub member_sector: Option<u64>,
}

/// Identity and geometry of an array, from its superblocks.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ArrayStatus {
    /// uuid of the array, as md prints it.
    pub uuid: String,
    /// Name of the array, with that of its host.
    pub name: String,
    /// `1.0`, `1.1` or `1.2`.
    pub metadata: String,
    /// md's number of the level.
    pub level: i32,
    /// md's number of the layout.
    pub layout: u32,
    /// Bytes.
    pub chunk: u64,
    /// Bytes that are used of each member.
    pub member_size: u64,
    /// Time at which the array was made, seconds since 1970.
    pub created_secs: u64,
}

/// State of a member; see [`weft_engine::MemberSnapshot`].
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct MemberStatus {
    /// Index within the server.
    pub index: u16,
    /// The path it was opened by.
    pub label: String,
    /// Major and minor number of its device; a file has none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub device: Option<(u32, u32)>,
    /// Slot of the member.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub slot: Option<u16>,
    /// Entry of `dev_roles` that is its own.
    pub dev_number: u32,
    /// `in_sync`, `rebuilding`, `spare` or `faulty`.
    pub state: String,
    /// Whether a mirror reads it only when no other can be read.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub write_mostly: bool,
    /// First sector of its data, and how many the array may use; a bare member has none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub data_offset: Option<u64>,
    /// See [`MemberStatus::data_offset`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub data_sectors: Option<u64>,
    /// Of one that is rebuilding: data sectors that are good.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub recovery_offset: Option<u64>,
    /// `direct` or `buffered`.
    pub mode: String,
    /// Requests of this kind since the start.
    pub reads: u64,
    /// Requests of this kind since the start.
    pub writes: u64,
    /// Requests of this kind since the start.
    pub flushes: u64,
    /// Sectors moved by these requests since the start.
    pub sectors_read: u64,
    /// Sectors moved by these requests since the start.
    pub sectors_written: u64,
    /// Sectors of clients among them, of resync, and of the array itself.
    #[serde(default)]
    pub sectors_clients: u64,
    /// See [`MemberStatus::sectors_clients`].
    #[serde(default)]
    pub sectors_resync: u64,
    /// See [`MemberStatus::sectors_clients`].
    #[serde(default)]
    pub sectors_metadata: u64,
    /// Sectors that could not be read and were written again.
    pub corrected: u64,
    /// Requests that the member has not answered yet.
    pub in_flight: u32,
    /// What its queue goes by.
    #[serde(default)]
    pub queue: QueueStatus,
}

/// What the queue of a member goes by, and where that is from: `knob`, `device` (sysfs has it of
/// the block device), or `assumed`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct QueueStatus {
    /// Name of its scheduler.
    pub scheduler: String,
    /// Most requests that the member has at once; absent: all that there are.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub depth: Option<u32>,
    /// Origin of the depth.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub depth_from: Option<String>,
    /// Whether it is taken for a disk that turns.
    pub rotational: bool,
    /// Origin of that.
    pub rotational_from: String,
}

/// Why a server could not be asked, or did not answer.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum ControlError {
    /// The socket.
    #[error("{path}: {source}; is the volume running?")]
    Connect {
        /// Path of the socket.
        path: PathBuf,
        /// Error of the operating system.
        source: std::io::Error,
    },
    /// The connection broke.
    #[error("control socket: {0}")]
    Io(#[from] std::io::Error),
    /// The other side ended without an answer.
    #[error("control socket: closed without an answer")]
    Closed,
    /// The answer was not one.
    #[error("control socket: {0}")]
    Malformed(#[from] serde_json::Error),
}

/// One connection to a running server.
#[derive(Debug)]
pub struct Client {
    reader: BufReader<UnixStream>,
}

impl ControlRequest {
    /// For the only volume.
    #[must_use]
    pub fn new(command: Command) -> Self {
        Self { v: VERSION, volume: None, command }
    }
}

impl Response {
    /// Answer to a command that was done.
    #[must_use]
    pub fn done() -> Self {
        Self { v: VERSION, ok: true, ..Self::default() }
    }

    /// Answer to a command that was not done, with its reason.
    #[must_use]
    pub fn error(kind: FailureKind, text: impl Into<String>) -> Self {
        Self { v: VERSION, error: Some(text.into()), kind: Some(kind), ..Self::default() }
    }

    /// Exit status of `weft` for it.
    #[must_use]
    pub fn exit_code(&self) -> u8 {
        if self.ok { 0 } else { self.kind.unwrap_or(FailureKind::Failed).exit_code() }
    }
}

impl FailureKind {
    /// Exit status of `weft` for it.
    #[must_use]
    pub const fn exit_code(self) -> u8 {
        match self {
            Self::Failed => 1,
            Self::Refused => 3,
            Self::Usage => 2,
        }
    }
}

impl Client {
    /// Connects to a server's control socket.
    ///
    /// # Errors
    /// [`ControlError::Connect`] when nobody listens there.
    pub fn connect(path: &Path) -> Result<Self, ControlError> {
        let stream = UnixStream::connect(path)
            .map_err(|source| ControlError::Connect { path: path.to_owned(), source })?;
        Ok(Self { reader: BufReader::new(stream) })
    }

    /// Gives up on an answer after this long; never by default, since `stop` may take its time.
    ///
    /// # Errors
    /// [`ControlError::Io`] for a duration of zero.
    pub fn set_timeout(&mut self, timeout: Option<Duration>) -> Result<(), ControlError> {
        Ok(self.reader.get_ref().set_read_timeout(timeout)?)
    }

    /// Asks, and waits for the answer. A refusal is an answer, not an error.
    ///
    /// # Errors
    /// The connection broke or the answer was not one.
    pub fn ask(&mut self, request: &ControlRequest) -> Result<Response, ControlError> {
        let mut line = serde_json::to_vec(request)?;
        line.push(b'\n');
        self.reader.get_mut().write_all(&line)?;
        let mut answer = String::new();
        if self.reader.read_line(&mut answer)? == 0 {
            return Err(ControlError::Closed);
        }
        Ok(serde_json::from_str(&answer)?)
    }

    /// Asks for the only volume.
    ///
    /// # Errors
    /// As [`Client::ask`].
    pub fn command(&mut self, command: Command) -> Result<Response, ControlError> {
        self.ask(&ControlRequest::new(command))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_what_the_page_says() {
        let cases = [
            (Command::Status, r#"{"v":2,"cmd":"status"}"#),
            (Command::Stop { discard: false }, r#"{"v":2,"cmd":"stop"}"#),
            (Command::Stop { discard: true }, r#"{"v":2,"cmd":"stop","discard":true}"#),
            (
                Command::SyncAction { action: "check".into() },
                r#"{"v":2,"cmd":"sync_action","action":"check"}"#,
            ),
            (
                Command::Set { knobs: vec![("rmw_level".into(), "1".into())] },
                r#"{"v":2,"cmd":"set","knobs":[["rmw_level","1"]]}"#,
            ),
            (
                Command::SetQueues {
                    members: vec!["0".into()],
                    knobs: vec![("scheduler".into(), "none".into())],
                },
                r#"{"v":2,"cmd":"set_queues","members":["0"],"knobs":[["scheduler","none"]]}"#,
            ),
        ];
        for (command, line) in cases {
            let request = ControlRequest::new(command);
            assert_eq!(serde_json::to_string(&request).unwrap(), line);
            assert_eq!(serde_json::from_str::<ControlRequest>(line).unwrap(), request);
        }
        let refused = Response::error(FailureKind::Refused, "no");
        let line = serde_json::to_string(&refused).unwrap();
        assert_eq!(line, r#"{"v":2,"ok":false,"error":"no","kind":"refused"}"#);
        assert_eq!(refused.exit_code(), 3);
    }
}
