//! Control protocol: commands to a running volume and their answers, one JSON object a line.
//!
//! The socket is a unix socket of mode 0600; answers come in the order of the requests. A request
//! names its version and command, `{"v":2,"cmd":"status"}`. The answer says `"ok":true` with the
//! data that was asked for, or `"ok":false` with a sentence and the kind of failure.
//! [`ControlRequest`] and [`Response`] are the whole protocol, [`Client`] is the client side, and
//! [`crate::serve()`] the server side.
//!
//! Source   serve.md; reference.md (exit status)

use std::io::{BufRead, BufReader, Write};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde::{Deserialize, Serialize};
use thiserror::Error;
use weft_engine::LayoutSnapshot;

/// Version of the protocol.
pub const VERSION: u32 = 2;

/// Longest line in bytes that the server accepts.
pub const LINE_BYTES_MAX: usize = 1 << 20;

/// A request: one line to the server.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ControlRequest {
    /// Version of the protocol: [`VERSION`].
    pub v: u32,
    /// Name of the volume; `None` for the only volume of the server.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub volume: Option<String>,
    /// Command, with its arguments.
    #[serde(flatten)]
    pub command: Command,
}

/// New number of bytes that an array uses of each member.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum GrowSize {
    /// The largest number of bytes for which the smallest member has room.
    Max,
    /// This number of bytes, rounded down to whole chunks.
    Bytes(u64),
}

/// Commands to a running volume, named as on the command line.
///
/// Members are named by label (the path they were opened by) or by index.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "cmd", rename_all = "snake_case")]
pub enum Command {
    /// Open members and add them as spares.
    Add {
        /// Names of members, in the form that `serve` takes.
        members: Vec<String>,
    },
    /// Declare members failed: all of the named members or, after an error, none of them.
    Fail {
        /// Labels or indices of the members.
        members: Vec<String>,
    },
    /// Change the shape of the array, or its size. The answer comes when the array has its new
    /// shape. If a reshape has to move data, the answer comes earlier: when superblocks record that
    /// the reshape has begun.
    Grow {
        /// New number of slots, without spares; `None` for no change. For more slots, an array with
        /// parity is reshaped.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        raid_devices: Option<u16>,
        /// Layout to which an array with parity is reshaped: md's name or number of the layout.
        /// `None` for no change.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        layout: Option<String>,
        /// Chunk size in bytes to which an array with parity is reshaped; `None` for no change.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        chunk: Option<u64>,
        /// Size of the data on each member; `None` for no change.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        size: Option<GrowSize>,
    },
    /// Show knobs; all when none is named.
    Get {
        /// Names of the knobs.
        #[serde(default)]
        knobs: Vec<String>,
    },
    /// Open former members and return them to their slots; they get the writes that the
    /// write-intent bitmap records.
    ReAdd {
        /// Names of members, in the form that `serve` takes.
        members: Vec<String>,
    },
    /// Forget failed members and spares, and close them.
    Remove {
        /// Labels or indices of the members.
        members: Vec<String>,
    },
    /// Copy the data of members that still work to spares. Each spare takes the slot of its member
    /// once the copy is complete.
    Replace {
        /// Labels or indices of the members that are replaced.
        members: Vec<String>,
        /// Labels or indices of the spares, in the order of `members`. For members beyond the end
        /// of this list, the engine chooses the spares.
        #[serde(default)]
        with: Vec<String>,
    },
    /// Change knobs, one after the other, up to the first that is refused.
    Set {
        /// Name and value of each knob.
        knobs: Vec<(String, String)>,
    },
    /// Change knobs of the queues of some members, one knob after the other.
    SetQueues {
        /// Labels or indices of the members.
        members: Vec<String>,
        /// Name and value of each knob.
        knobs: Vec<(String, String)>,
    },
    /// Return the state of the server and of all volumes.
    Status,
    /// Finish all requests, flush, mark the array clean and end the server. The answer comes when
    /// that is done. If the write-back cache cannot be written, the command fails with the cause,
    /// and the server goes on.
    Stop {
        /// Whether to give up data that cannot be written, and end.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        discard: bool,
    },
    /// Set md's `sync_action`.
    SyncAction {
        /// Name of the action: `check`, `repair`, `resync`, `recover`, `reshape`, `idle` or
        /// `frozen`, as in md, or weft's own `correct`.
        action: String,
        /// First sector of a check or repair, counted as in [`VolumeStatus::sync_completed`] and
        /// rounded down to a stripe (md's `sync_min`); `None`: the first one.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        from: Option<u64>,
        /// Sector at which a check or repair ends, counted in the same way and rounded up to a
        /// stripe (md's `sync_max`, at which md waits); `None`: the end.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        to: Option<u64>,
    },
}

impl Command {
    /// Command that sets md's `sync_action`; a check or repair covers everything.
    #[must_use]
    pub fn sync_action(action: impl Into<String>) -> Self {
        Self::SyncAction { action: action.into(), from: None, to: None }
    }
}

/// A response: one line from the server.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Response {
    /// Version of the protocol: [`VERSION`].
    pub v: u32,
    /// Whether the command was carried out.
    pub ok: bool,
    /// Reason of a refusal, for people; `None` if the command was carried out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
    /// Reason of a refusal, for programs; `None` if the command was carried out. See
    /// [`FailureKind::exit_code`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kind: Option<FailureKind>,
    /// Remarks about a command that was carried out, for people; `None` if there are none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub note: Option<String>,
    /// Answer to `get`: names and values of knobs.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub knobs: Vec<(String, String)>,
    /// Answer to `get`: members with queues for which knobs have other values than for the volume.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub queues: Vec<QueueKnobs>,
    /// Answer to `status`: state of the server. `None` for other commands.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub status: Option<Status>,
}

/// Knobs of a member's queue that differ from those of the volume.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct QueueKnobs {
    /// Index of the member within the server.
    pub index: u16,
    /// Path by which the member was opened.
    pub label: String,
    /// Name and value of each knob that differs.
    pub knobs: Vec<(String, String)>,
}

/// Reasons why a command was not carried out.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum FailureKind {
    /// The command was tried and failed.
    Failed,
    /// The command was refused for safety; nothing was written.
    Refused,
    /// The request is invalid: its version, a name, or a value.
    Usage,
}

/// State of a server.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Status {
    /// Process id of the server.
    pub pid: u32,
    /// Time since the start of the server, in milliseconds.
    pub uptime_ms: u64,
    /// Description of the server's I/O backend for people. It begins with `io_uring`, `threads` or
    /// `memory`, and details may follow.
    pub backend: String,
    /// Whether a panic has stopped the server from acknowledging anything.
    pub poisoned: bool,
    /// Addresses by which clients reach the volumes: NBD URIs, block devices, sockets and files.
    pub listen: Vec<String>,
    /// Number of connected NBD clients, over all workers.
    pub clients: usize,
    /// Number of frames on loan to requests and replies of clients.
    pub frames_held: u32,
    /// Number of outputs of the engines (`Submit` and `Compute`) that their drivers have not
    /// answered yet.
    pub tokens_outstanding: usize,
    /// Every volume of the server.
    pub volumes: Vec<VolumeStatus>,
}

/// State of a volume, part of the answer to `status`; see [`weft_engine::VolumeSnapshot`].
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct VolumeStatus {
    /// Name of the volume.
    pub name: String,
    /// State of the array, md's `array_state`.
    pub array_state: String,
    /// Level of the array, such as `raid5`, or `bare`.
    pub level: String,
    /// Size of the volume in bytes.
    pub size: u64,
    /// Number of slots; 1 for a bare member.
    pub slots: usize,
    /// Facts of the superblocks that do not change while the array runs; absent for a bare member.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub array: Option<ArrayStatus>,
    /// Number of slots without a member that is in sync.
    pub degraded: usize,
    /// Event count of the superblocks.
    pub events: u64,
    /// Time at which superblocks were last written, in seconds since 1970; absent for a bare
    /// member.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub updated_secs: Option<u64>,
    /// The write-intent bitmap, if the array has one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bitmap: Option<BitmapStatus>,
    /// md's `sync_action`: the resync, recovery, check, repair or reshape that runs, or `idle` or
    /// `frozen`.
    pub sync_action: String,
    /// The running or last resync, recovery, check or repair; absent if none has run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_sync: Option<LastSyncStatus>,
    /// Number of sectors that the running or last resync or check has passed, and the number that
    /// it has to pass: sectors of each member or, in a resync or check of RAID 10, of the array.
    /// Absent if none has run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sync_completed: Option<(u64, u64)>,
    /// Number of units that the running or last resync or check has finished. A unit is one stripe,
    /// or with RAID 1 and 10 up to 64 KiB of one chunk.
    #[serde(default)]
    pub sync_stripes: u64,
    /// Bytes of each member per second that the running resync or check passes, over the last 10 to
    /// 20 s; absent if none runs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sync_speed: Option<u64>,
    /// Number of sectors in which the running or last check found a mismatch: md's `mismatch_cnt`.
    pub mismatch_cnt: u64,
    /// Mismatches that the running or last check found: their numbers by the member with the wrong
    /// strip, and a list of the first ones; absent if there are none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mismatches: Option<MismatchesStatus>,
    /// Sector from which on parity or copies may be wrong, so that a resync has to start there: a
    /// sector of each member or, with RAID 10, of the array. Absent when no resync is due.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub resync_from: Option<u64>,
    /// Reshape under way; absent if there is none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reshape: Option<ReshapeStatus>,
    /// Whether writes are refused because a member has no space left.
    #[serde(default)]
    pub no_space: bool,
    /// Number of stripes of the stripe cache that are in use.
    pub stripe_cache_active: u32,
    /// Number of client requests that are not answered yet.
    pub requests_active: usize,
    /// Requests of clients that the volume has answered, by kind.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub answered: Vec<AnsweredStatus>,
    /// Every member; failed ones stay until they are removed.
    pub members: Vec<MemberStatus>,
    /// Work of the members, by the account that it is charged to: clients, resync, the array
    /// itself.
    #[serde(default)]
    pub shares: Vec<ShareStatus>,
    /// State of the volume in the write-back cache, if there is one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub write_back: Option<WriteBackStatus>,
}

impl VolumeStatus {
    /// Action of the sync that runs; `None` if none runs, it is frozen, or the volume is no array.
    /// Counters of the last sync stay in [`Self::sync_completed`] after its end.
    #[must_use]
    pub fn running_sync(&self) -> Option<&str> {
        Some(self.sync_action.as_str()).filter(|action| !matches!(*action, "" | "idle" | "frozen"))
    }

    /// Remarks about a volume, for a line: slots that lack a member, a running sync with its
    /// percentage, and causes to act. Empty for a volume in order.
    #[must_use]
    pub fn remarks(&self) -> String {
        let mut remarks = Vec::new();
        if self.degraded > 0 {
            let (whole, slots) = (self.slots.saturating_sub(self.degraded), self.slots);
            remarks.push(format!("degraded ({whole} of {slots} members in sync)"));
        }
        let waits = self.resync_from.is_some() || self.reshape.is_some();
        if let Some(action) = self.running_sync() {
            let (done, total) = self.sync_completed.unwrap_or_default();
            let percent = u128::from(done) * 100 / u128::from(total.max(1));
            remarks.push(format!("{action} {percent} %"));
        } else if self.sync_action == "frozen" {
            remarks.push("resync is stopped".into());
        } else if waits {
            remarks.push("a resync is due".into());
        }
        if self.no_space {
            remarks.push("writes are refused: a member has no space".into());
        }
        if self.write_back.as_ref().is_some_and(|cache| cache.error.is_some()) {
            remarks.push("cached writes cannot be written".into());
        }
        remarks.join(", ")
    }
}

/// A resync, recovery, check or repair; see [`weft_engine::LastSync`].
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct LastSyncStatus {
    /// Number of this one among all that were started since the start of the server, from 1 on.
    pub number: u64,
    /// Action: md's `last_sync_action`.
    pub action: String,
    /// Sector at which it began, counted as in [`VolumeStatus::sync_completed`], which says up to
    /// where it has come.
    #[serde(default)]
    pub from: u64,
    /// Sector at which it was asked to end; absent for the end.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub to: Option<u64>,
    /// Time at which it ended, in seconds since 1970; absent while it runs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ended_secs: Option<u64>,
}

/// Reshape of an array to more members, or another layout or chunk; see
/// [`weft_engine::ReshapeSnapshot`].
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReshapeStatus {
    /// Number of slots before the reshape.
    pub from: u16,
    /// Number of slots after the reshape.
    pub to: u16,
    /// md's number of the layout after the reshape.
    #[serde(default)]
    pub layout: u32,
    /// Chunk size in bytes after the reshape.
    #[serde(default)]
    pub chunk: u64,
    /// Reshape position: the array sector at which the old geometry and the new one meet.
    pub position: u64,
    /// Array sector at which the reshape ends.
    pub end: u64,
}

/// State of a volume in the write-back cache of a server, in bytes; see
/// [`weft_engine::WriteBackSnapshot`].
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct WriteBackStatus {
    /// Rule by which writers are throttled: the value of the knob `dirty_throttle`.
    #[serde(default)]
    pub throttle: String,
    /// Number of writes, over all volumes, with an answer that is held back because the throttle
    /// makes the client pause.
    #[serde(default)]
    pub answers_delayed: u64,
    /// Number of throttling pauses of clients of all volumes since the start of the server.
    #[serde(default)]
    pub pauses: u64,
    /// Limit on dirty pages and pages under write-back together, over all volumes of the server:
    /// `dirty_bytes`.
    pub dirty_bytes: u64,
    /// Number of dirty bytes at which write-back runs in the background:
    /// `dirty_background_bytes`.
    pub dirty_background_bytes: u64,
    /// Number of dirty bytes, which are lost if the server dies now.
    pub dirty: u64,
    /// Number of bytes under write-back, which are being written to the members.
    pub writeback: u64,
    /// Number of bytes written back since the start of the server.
    pub written: u64,
    /// Error of the last write-back, if it failed. The data stays dirty and is tried again.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
}

/// Account of a client, of resync or of the array itself: its requests, and the work of members for
/// it; see [`weft_engine::AccountSnapshot`].
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ShareStatus {
    /// Owner of the account: `client`, `resync`, `metadata`, or `others` for clients that are not
    /// counted individually.
    pub who: String,
    /// Number of the client's connection; absent for other owners.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub client: Option<u32>,
    /// Name of the export that the client has chosen; absent for other owners.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub export: Option<String>,
    /// Whether the client has disconnected.
    #[serde(default)]
    pub gone: bool,
    /// I/O class, in the form that `weft serve --class` takes.
    pub class: String,
    /// Weight within the class.
    pub weight: u16,
    /// Group of the client, if it is in one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub group: Option<String>,
    /// Number of reads from the volume.
    pub reads: u64,
    /// Number of requests to the volume other than reads, which include flushes and trims.
    pub writes: u64,
    /// Number of bytes of the reads.
    pub bytes_read: u64,
    /// Number of bytes of the requests other than reads.
    pub bytes_written: u64,
    /// Number of sectors that members read and wrote for the account.
    pub sectors: u64,
    /// Share of the account in the sectors of all accounts, in thousandths.
    pub share_permille: u32,
    /// Share of the account in the sectors of all accounts over the last two to four seconds in
    /// which the volume was active, in thousandths.
    pub share_recently_permille: u32,
    /// Sectors of the account by purpose.
    pub purposes: Vec<PurposeStatus>,
}

/// Sectors that members moved for one purpose; see [`weft_engine::Purpose`].
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct PurposeStatus {
    /// Purpose: `user`, `rmw_read`, `reconstruct`, `parity`, `write_back`, `resync` or `metadata`.
    pub purpose: String,
    /// Number of sectors that members read for this purpose.
    pub sectors_read: u64,
    /// Number of sectors that members wrote for this purpose.
    pub sectors_written: u64,
}

/// A write-intent bitmap; see [`weft_engine::BitmapSnapshot`].
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct BitmapStatus {
    /// Size of a chunk in bytes.
    pub chunk: u64,
    /// Number of chunks, each of which has one bit.
    pub chunks: u64,
    /// Number of chunks with their bit set.
    pub dirty: u64,
    /// Number of pages that md would allocate for the bitmap: one for 2,048 chunks.
    pub pages: u64,
    /// Number of pages in which at least one chunk has its bit set.
    pub pages_dirty: u64,
    /// Lowest event count that a former member may have to be re-added with the bitmap.
    pub events_cleared: u64,
}

/// Stripes of 4 KiB per member in which a check found that data and parity disagree; see
/// [`weft_engine::Mismatches`].
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct MismatchesStatus {
    /// Members with a wrong strip that alone explains the mismatch of at least one stripe.
    pub members: Vec<WrongMember>,
    /// Number of stripes in which no wrong strip of a single member explains the mismatch. With a
    /// single parity these are all stripes with a mismatch, because it cannot locate the error.
    pub not_located: u64,
    /// Mismatches that were found first, at most [`weft_engine::Mismatches::LISTED`].
    pub first: Vec<MismatchStatus>,
}

/// A member with wrong strips.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct WrongMember {
    /// Path by which the member was opened.
    pub label: String,
    /// Number of stripes with a wrong strip of this member.
    pub stripes: u64,
}

/// A stripe in which data and parity disagree.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct MismatchStatus {
    /// Data sector of each member at which the stripe begins.
    pub sector: u64,
    /// Label of the member with a wrong strip that alone explains the mismatch; absent if no single
    /// strip does.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub member: Option<String>,
    /// Slot of the member that `member` names; absent if `member` is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub slot: Option<u16>,
    /// First sector of the wrong strip on the member that `member` names; absent if `member` is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub member_sector: Option<u64>,
}

/// Identity and geometry of an array, from its superblocks.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ArrayStatus {
    /// UUID of the array, as md prints it.
    pub uuid: String,
    /// Name of the array, including that of its host.
    pub name: String,
    /// Version of the superblock: `0.90`, `1.0`, `1.1` or `1.2`.
    pub metadata: String,
    /// md's number of the level.
    pub level: i32,
    /// md's number of the layout.
    pub layout: u32,
    /// Size of a chunk in bytes.
    pub chunk: u64,
    /// Bytes of each member that the array uses.
    pub member_size: u64,
    /// Creation time of the array, in seconds since 1970.
    pub created_secs: u64,
}

impl ArrayStatus {
    /// Replaces level, layout, chunk and member size by the present ones, which a reshape may have
    /// changed.
    pub(crate) fn with_layout(self, layout: Option<LayoutSnapshot>) -> Self {
        let Some(layout) = layout else { return self };
        Self {
            level: layout.level.code(),
            layout: layout.number,
            chunk: layout.chunk.0,
            member_size: layout.member_size.0,
            ..self
        }
    }
}

/// State of a member, part of the answer to `status`; see [`weft_engine::MemberSnapshot`].
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct MemberStatus {
    /// Index of the member within the server.
    pub index: u16,
    /// Path by which the member was opened.
    pub label: String,
    /// Major and minor number of the member's device; absent for a file.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub device: Option<(u32, u32)>,
    /// Slot of the member; absent for a member without one, such as a spare.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub slot: Option<u16>,
    /// Slot of the member that this member replaces once it is recovered; absent if it replaces
    /// none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub replaces: Option<u16>,
    /// Whether the member is to be replaced, or is being replaced (md: `want_replacement`).
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub want_replacement: bool,
    /// Slot of the member that this spare is reserved to replace, before it is filled; absent for
    /// other members.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reserved_for: Option<u16>,
    /// Index of the member's entry in the array `dev_roles` of the superblock.
    pub dev_number: u32,
    /// State of the member: `in_sync`, `rebuilding`, `spare` or `faulty`.
    pub state: String,
    /// Size of the member in bytes; absent once it is closed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub size: Option<u64>,
    /// Whether a mirror reads from the member only when no other member can be read.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub write_mostly: bool,
    /// Whether writes go to an overlay and leave the member as it is.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub overlay: bool,
    /// First sector of the array's data on the member; absent for a bare member.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub data_offset: Option<u64>,
    /// Number of data sectors that the array may use; absent for a bare member.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub data_sectors: Option<u64>,
    /// Number of data sectors that are recovered already, for a member that is rebuilding; absent
    /// for other members.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub recovery_offset: Option<u64>,
    /// I/O mode of the member: `direct` (`O_DIRECT`) or `buffered` (through the page cache).
    pub mode: String,
    /// Number of read requests to the member since the start of the server.
    pub reads: u64,
    /// Number of write requests to the member since the start of the server.
    pub writes: u64,
    /// Number of flushes of the member since the start of the server.
    pub flushes: u64,
    /// Number of sectors read from the member since the start of the server.
    pub sectors_read: u64,
    /// Number of sectors written to the member since the start of the server.
    pub sectors_written: u64,
    /// Number of sectors that the member has read and written for clients.
    #[serde(default)]
    pub sectors_clients: u64,
    /// Number of sectors that the member has read and written for resync; not part of
    /// [`MemberStatus::sectors_clients`].
    #[serde(default)]
    pub sectors_resync: u64,
    /// Number of sectors that the member has read and written for the array itself; not part of
    /// [`MemberStatus::sectors_clients`].
    #[serde(default)]
    pub sectors_metadata: u64,
    /// Number of sectors with a read error that were corrected by a write.
    pub corrected: u64,
    /// Ranges that hold no valid data, as in md's bad-block log; left out if there are none.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub bad_blocks: Vec<BadBlocksStatus>,
    /// Number of requests that the member has not answered yet.
    pub in_flight: u32,
    /// Requests that the member has answered, by kind; empty for a member in memory.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub answered: Vec<AnsweredStatus>,
    /// Parameters of the member's queue.
    #[serde(default)]
    pub queue: QueueStatus,
}

/// Range of a member that holds no valid data.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct BadBlocksStatus {
    /// First sector, from the start of the member.
    pub start: u64,
    /// Number of sectors.
    pub sectors: u64,
}

/// Requests of one kind that were answered since the start of the server, by a member or by a
/// volume to its clients; see [`weft_runtime::figures`].
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct AnsweredStatus {
    /// Kind of the requests: `read`, `write`, `flush` or `discard`.
    pub kind: String,
    /// Number of the requests.
    pub count: u64,
    /// Number of these requests that failed.
    pub errors: u64,
    /// Sum of the latencies of these requests, in microseconds.
    pub sum_us: u64,
    /// Median latency in microseconds, with one significant digit.
    pub p50_us: u64,
    /// Latency in microseconds that 99 % of the requests did not exceed, with one significant
    /// digit.
    pub p99_us: u64,
    /// Latency in microseconds that 99.9 % of the requests did not exceed, with one significant
    /// digit.
    pub p999_us: u64,
    /// Longest latency in microseconds, with one significant digit.
    pub max_us: u64,
    /// Numbers of requests that took less than 2, 4, 8 and so on microseconds: one number for each
    /// of the first [`AnsweredStatus::BOUNDS`] powers of two. Each number includes those before it.
    pub below: Vec<u64>,
}

impl AnsweredStatus {
    /// Number of powers of two in `below`; the last is 2^26 µs, some 67 s.
    pub const BOUNDS: u32 = 26;
}

/// Parameters of a member's queue, and their origin: `knob`, `device` (from sysfs), or `assumed`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct QueueStatus {
    /// Name of the queue's scheduler.
    pub scheduler: String,
    /// Largest number of requests that the member gets at a time; absent for no limit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub depth: Option<u32>,
    /// Origin of `depth`; absent for no limit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub depth_from: Option<String>,
    /// Whether the member is treated as a rotational disk.
    pub rotational: bool,
    /// Origin of `rotational`: `knob`, `device` or `assumed`.
    pub rotational_from: String,
}

/// Reasons why a request to a control socket got no usable answer.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum ControlError {
    /// Connecting to the socket failed.
    #[error("{path}: {source}; is the volume running?")]
    Connect {
        /// Path of the control socket.
        path: PathBuf,
        /// Error of the operating system.
        source: std::io::Error,
    },
    /// The connection broke.
    #[error("control socket: {0}")]
    Io(#[from] std::io::Error),
    /// The server closed the connection without an answer.
    #[error("control socket: closed without an answer")]
    Closed,
    /// The answer could not be parsed.
    #[error("control socket: {0}")]
    Malformed(#[from] serde_json::Error),
}

/// Connection to the control socket of a running server.
#[derive(Debug)]
pub struct Client {
    reader: BufReader<UnixStream>,
}

impl ControlRequest {
    /// Creates a request to the server's only volume.
    #[must_use]
    pub fn new(command: Command) -> Self {
        Self { v: VERSION, volume: None, command }
    }
}

impl Response {
    /// Answer to a command that was carried out.
    #[must_use]
    pub fn done() -> Self {
        Self { v: VERSION, ok: true, ..Self::default() }
    }

    /// Answer to a command that was not carried out, with the reason.
    #[must_use]
    pub fn error(kind: FailureKind, text: impl Into<String>) -> Self {
        Self { v: VERSION, error: Some(text.into()), kind: Some(kind), ..Self::default() }
    }

    /// Exit status of `weft` that corresponds to the response.
    #[must_use]
    pub fn exit_code(&self) -> u8 {
        if self.ok { 0 } else { self.kind.unwrap_or(FailureKind::Failed).exit_code() }
    }
}

impl FailureKind {
    /// Exit status of `weft` that corresponds to the failure.
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
    /// [`ControlError::Connect`] when no server listens there.
    pub fn connect(path: &Path) -> Result<Self, ControlError> {
        let stream = UnixStream::connect(path)
            .map_err(|source| ControlError::Connect { path: path.to_owned(), source })?;
        Ok(Self { reader: BufReader::new(stream) })
    }

    /// Sets the longest wait for an answer; `None` for no limit. The default is no limit, because
    /// `stop` may take long.
    ///
    /// # Errors
    /// [`ControlError::Io`] for a duration of zero.
    pub fn set_timeout(&mut self, timeout: Option<Duration>) -> Result<(), ControlError> {
        Ok(self.reader.get_ref().set_read_timeout(timeout)?)
    }

    /// Process id and user id of the server, as they were when it began to listen: (pid, uid).
    ///
    /// # Errors
    /// Fails when the kernel does not report them.
    ///
    /// Source   unix(7), `SO_PEERCRED`
    pub fn peer(&self) -> std::io::Result<(u32, u32)> {
        let peer = rustix::net::sockopt::socket_peercred(self.reader.get_ref())?;
        Ok((peer.pid.as_raw_nonzero().get().unsigned_abs(), peer.uid.as_raw()))
    }

    /// Sends a request and waits for the answer. A refusal is an answer, not an error.
    ///
    /// # Errors
    /// Fails when the connection breaks or the answer cannot be parsed.
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

    /// Sends a command for the server's only volume, and waits for the answer.
    ///
    /// # Errors
    /// The errors of [`Client::ask`].
    pub fn command(&mut self, command: Command) -> Result<Response, ControlError> {
        self.ask(&ControlRequest::new(command))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_has_remarks_about_what_is_not_in_order() {
        let whole = VolumeStatus { slots: 4, sync_action: "idle".into(), ..Default::default() };
        assert_eq!(whole.remarks(), "");
        let rebuilt = VolumeStatus {
            degraded: 1,
            sync_action: "recover".into(),
            sync_completed: Some((799, 10_000)),
            ..whole.clone()
        };
        assert_eq!(rebuilt.remarks(), "degraded (3 of 4 members in sync), recover 7 %");
        let full = VolumeStatus { no_space: true, resync_from: Some(8), ..whole.clone() };
        let remarks = "a resync is due, writes are refused: a member has no space";
        assert_eq!(full.remarks(), remarks);
        let error = Some("no space".to_owned());
        let write_back = Some(WriteBackStatus { error, ..Default::default() });
        let frozen = VolumeStatus { sync_action: "frozen".into(), write_back, ..whole };
        assert_eq!(frozen.remarks(), "resync is stopped, cached writes cannot be written");
    }

    #[test]
    fn lines_are_what_the_page_says() {
        let cases = [
            (Command::Status, r#"{"v":2,"cmd":"status"}"#),
            (Command::Stop { discard: false }, r#"{"v":2,"cmd":"stop"}"#),
            (Command::Stop { discard: true }, r#"{"v":2,"cmd":"stop","discard":true}"#),
            (Command::sync_action("check"), r#"{"v":2,"cmd":"sync_action","action":"check"}"#),
            (
                Command::SyncAction { action: "check".into(), from: Some(4096), to: None },
                r#"{"v":2,"cmd":"sync_action","action":"check","from":4096}"#,
            ),
            (
                Command::SyncAction { action: "check".into(), from: None, to: Some(64) },
                r#"{"v":2,"cmd":"sync_action","action":"check","to":64}"#,
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
