//! Commands of administrators: the engine's verb for each, and the answer to it.

use std::os::fd::OwnedFd;
use std::time::{Duration, SystemTime};

use rustix::rand::{GetRandomFlags, getrandom};
use weft_engine::assemble::Candidate;
use weft_engine::knobs::{Knob, KnobError, Knobs, TABLE};
use weft_engine::{
    BitmapSnapshot, Former, LastSync, MemberSnapshot, Mismatch, Mismatches, Replace, ReplyError,
    ReshapeSnapshot, SyncAction, Verb, VolumeSnapshot, WriteBackSnapshot,
};
use weft_ondisk::{NewBitmap, Uuid};
use weft_runtime::devices::{
    Access, DeviceError, MemberSpec, OpenOptions, other_superblock, read_metadata,
};
use weft_runtime::serve::reactor::Context;
use weft_units::{Bytes, FRAME_BYTES, MemberIndex, Sectors, Time, VolumeId};

use super::Step;
use crate::control::{
    BitmapStatus, FailureKind, GrowSize, LastSyncStatus, MismatchStatus, MismatchesStatus,
    QueueKnobs, ReshapeStatus, Response, WriteBackStatus, WrongMember,
};
use crate::shared::VolumeFacts;

/// Converts a step to a command for the engine. Returns the engine's verb, and the step that waits
/// for the engine's answer. The error is the response to a command that is refused.
pub(super) fn start(
    cx: &mut Context<'_, '_>,
    facts: &VolumeFacts,
    step: Step,
) -> Result<(Verb, Step), Box<Response>> {
    match step {
        Step::Add(member) => add(cx, facts, &member, false),
        Step::ReAdd(member) => add(cx, facts, &member, true),
        Step::Fail(members) => {
            let members = members.iter().map(|member| member_of(cx, member));
            Ok((Verb::FailAll(members.collect::<Result<_, _>>()?), Step::Waiting))
        }
        Step::Remove(member) => {
            let index = member_of(cx, &member)?;
            Ok((Verb::Remove(index), Step::Removing(index)))
        }
        Step::Replace(member, with) => {
            let member = member_of(cx, &member)?;
            let with = with.map(|with| member_of(cx, &with)).transpose()?;
            Ok((Verb::Replace(Replace { member, with }), Step::Waiting))
        }
        Step::Grow(growth) => {
            if cx.driver.members().members().any(|member| member.overlay().is_some()) {
                let text = "found overlays, expected members that are written: all of the array \
                            would be copied into the overlays";
                return Err(refusal(FailureKind::Refused, text));
            }
            Ok((Verb::Grow(growth), Step::Waiting))
        }
        Step::Set(name, value) if name == BITMAP => {
            Ok((Verb::SetBitmap(bitmap_to_set(&value)?), Step::SetBitmap))
        }
        Step::Set(name, value) => Ok((Verb::Set(knob_to_set(cx, &name, &value)?), Step::Waiting)),
        Step::SetQueues(_, name, _) if name == BITMAP => {
            let text = format!("{name}: of the whole array; it is set without --member");
            Err(refusal(FailureKind::Usage, text))
        }
        Step::SetQueues(members, name, value) => {
            let knob = knob_to_set(cx, &name, &value)?;
            if !knob.is_of_queues() {
                let text = format!(
                    "{name}: of the whole volume, not of a member's queue; it is set without --member"
                );
                return Err(refusal(FailureKind::Usage, text));
            }
            let members = members.iter().map(|member| member_of(cx, member));
            let members = members.collect::<Result<_, _>>()?;
            Ok((Verb::SetQueues { members, knob }, Step::Waiting))
        }
        Step::Sync(action, None, None) => Ok((Verb::SyncAction(action), step)),
        Step::Sync(action, from, to) => {
            let from = from.unwrap_or_default();
            Ok((Verb::SyncRange { action, from, to }, step))
        }
        Step::Adding(_) | Step::Removing(_) | Step::SetBitmap | Step::Stop(_) | Step::Waiting => {
            Err(refusal(FailureKind::Failed, "internal: not a first step"))
        }
    }
}

/// Data sectors of each member that a command asks for; `None` for as many as the smallest member
/// has room for.
pub(super) fn sectors_of(size: GrowSize) -> Option<Sectors> {
    match size {
        GrowSize::Max => None,
        GrowSize::Bytes(bytes) => Some(Bytes(bytes).sectors_floor()),
    }
}

/// md's number of the layout that a command names, for the level of the volume. The error is the
/// refusal of a name that the level does not have.
pub(super) fn layout_named(
    cx: &mut Context<'_, '_>,
    volume: VolumeId,
    name: &str,
) -> Result<u32, Box<Response>> {
    let snapshot = cx.driver.snapshot();
    let volume = snapshot.as_ref().and_then(|it| it.volumes.get(usize::from(volume.0)));
    let level = volume.and_then(|volume| volume.layout).map(|layout| layout.level);
    let layouts = level.map(|level| level.row().layouts);
    layouts.and_then(|layouts| layouts.parse(name)).ok_or_else(|| {
        let level = level.map_or_else(|| "a volume without".to_owned(), |level| level.to_string());
        let text = format!("layout: found {name:?}, expected one that {level} has");
        refusal(FailureKind::Usage, text)
    })
}

/// Parses a new value of a knob, and checks it against the range that the knob has now. The error
/// is the refusal of another value.
fn knob_to_set(cx: &mut Context<'_, '_>, name: &str, value: &str) -> Result<Knob, Box<Response>> {
    // The volume's current knobs, because ranges depend on them. All volumes have the same knobs.
    let snapshot = cx.driver.snapshot();
    let knobs = snapshot.and_then(|snapshot| snapshot.volumes.first().map(|v| v.knobs));
    let knob = knobs.unwrap_or_default().parse_live(name, value);
    knob.map_err(|error| refusal(FailureKind::Usage, error.to_string()))
}

/// Name of the write-intent bitmap in `get` and `set`, which treat it as one more knob.
pub(super) const BITMAP: &str = "bitmap";

/// Parses a value of `set bitmap`, in the words of `mdadm --grow --bitmap=`: `internal` for a new
/// bitmap, `none` for no bitmap (`None`).
fn bitmap_to_set(value: &str) -> Result<Option<NewBitmap>, Box<Response>> {
    match value {
        "internal" => Ok(Some(NewBitmap::default())),
        "none" => Ok(None),
        found => {
            let text = format!("{BITMAP}: found {found:?}, expected internal or none");
            Err(refusal(FailureKind::Usage, text))
        }
    }
}

/// Opens the member that a command adds to the array of the volume with these `facts`. `back` says
/// that the member is a former one, to be re-added. Returns the engine's verb, and the step that
/// waits for the engine's answer.
pub(super) fn add(
    cx: &mut Context<'_, '_>,
    facts: &VolumeFacts,
    member: &str,
    back: bool,
) -> Result<(Verb, Step), Box<Response>> {
    let unusable = |error: DeviceError| {
        let kind = match error {
            DeviceError::Claimed { .. }
            | DeviceError::Locked { .. }
            | DeviceError::NotRescued { .. }
            | DeviceError::Overlay { .. } => FailureKind::Refused,
            DeviceError::Duplicate { .. }
            | DeviceError::Map { .. }
            | DeviceError::Overlap { .. }
            | DeviceError::Partition { .. }
            | DeviceError::Spec { .. } => FailureKind::Usage,
            _ => FailureKind::Failed,
        };
        refusal(kind, error.to_string())
    };
    let failed = |error: &dyn std::fmt::Display| refusal(FailureKind::Failed, error.to_string());
    let spec = MemberSpec::parse(member).map_err(unusable)?;
    let lasts = cx.driver.members().members().any(|other| !other.is_memory());
    if lasts && member.starts_with("ram:") {
        let text = format!(
            "{member}: found memory, expected a file or a block device: the other members are still there \
             at the next start, and it would be lost"
        );
        return Err(refusal(FailureKind::Refused, text));
    }
    // A volume with overlays gets one for a new member too.
    let overlays = cx.driver.members().members().find_map(|member| member.overlay().cloned());
    let overlays = overlays.map(|overlay| overlay.dir().to_owned());
    let access = if overlays.is_some() { Access::ReadOnly } else { Access::ReadWrite };
    let options = OpenOptions {
        buffered: overlays.is_some(),
        lock_wait: std::time::Duration::ZERO,
        ..OpenOptions::new(access)
    };
    let index = cx.driver.members().next_index();
    let others: Vec<_> = cx.driver.members().members().collect();
    let mut open = options.open(&spec, index, others).map_err(unusable)?;
    if let Some(dir) = overlays {
        open = open.with_overlay(&dir, Access::ReadWrite).map_err(unusable)?;
    }
    let info = open.info().clone();
    let former = match former(read_metadata(&open)) {
        Err(why) if back => {
            return Err(refusal(
                FailureKind::Refused,
                format!("{member}: {why}; weft add takes it"),
            ));
        }
        found => found.ok(),
    };
    if let Some(array) = &facts.array
        && let Some(other) = other_superblock(&open, &array.metadata)
        && other.set_uuid().to_string() != array.uuid
    {
        let byte = other.super_offset().bytes().0;
        let text = format!(
            "{member}: found a superblock of version {} at byte {byte} of array {}, expected none \
             beside that of this array, of version {}: after the next start the member could be of \
             either; wipefs -o {byte} {member} erases it",
            other.version(),
            other.set_uuid(),
            array.metadata
        );
        return Err(refusal(FailureKind::Refused, text));
    }
    let mut uuid = [0; 16];
    getrandom(&mut uuid, GetRandomFlags::empty()).map_err(|error| failed(&error))?;
    cx.driver.add_member(open).map_err(|error| failed(&error))?;
    if let (Some(former), true) = (&former, back) {
        let former = former.clone();
        return Ok((Verb::ReAdd { member: info, former }, Step::Adding(index)));
    }
    let device_uuid = Uuid(uuid);
    Ok((Verb::Add { member: info, former, device_uuid }, Step::Adding(index)))
}

/// Metadata by which a former member may be re-added, or the reason why it cannot be.
fn former(found: Candidate) -> Result<Box<Former>, String> {
    let superblock = *found.superblock?;
    if let Some(why) = found.logs.unreadable_bitmap() {
        return Err(why.to_owned());
    }
    let bad_blocks = found.logs.bad_blocks.transpose()?.unwrap_or_default();
    Ok(Box::new(Former { superblock, bad_blocks }))
}

pub(super) fn member_of(
    cx: &mut Context<'_, '_>,
    name: &str,
) -> Result<MemberIndex, Box<Response>> {
    let by_index = name.parse::<u16>().ok().map(MemberIndex);
    // If two members have the same label, the first one had failed before the second one was
    // opened. Only the second one is still open, so the search finds that one.
    let found = cx.driver.members().members().find_map(|member| {
        let info = member.info();
        let named = info.label == name || by_index == Some(info.index);
        named.then_some(info.index)
    });
    found.ok_or_else(|| {
        let labels: Vec<_> =
            cx.driver.members().members().map(|member| member.info().label.clone()).collect();
        let text = format!("{name}: found no such member, expected one of {}", labels.join(", "));
        refusal(FailureKind::Usage, text)
    })
}

pub(super) fn get(cx: &mut Context<'_, '_>, volume: VolumeId, names: &[String]) -> Response {
    let snapshot = cx.driver.snapshot();
    let volume = snapshot.as_ref().and_then(|snapshot| snapshot.volumes.get(volume.index()));
    let knobs = volume.map(|volume| volume.knobs).unwrap_or_default();
    let has_bitmap = volume.is_some_and(|volume| volume.bitmap.is_some());
    let bitmap = if has_bitmap { "internal" } else { "none" };
    let mut found = Vec::new();
    // Knobs of a cache that does not exist have no effect, and are shown only when asked for by
    // name.
    let has_cache = snapshot.as_ref().is_some_and(|snapshot| snapshot.write_back.is_some());
    let means = |name: &&str| has_cache || !is_of_cache(&knobs, name);
    let rows = TABLE.iter().map(|row| row.name);
    let mut all: Vec<String> = rows.filter(means).map(str::to_owned).collect();
    all.push(BITMAP.to_owned());
    for name in if names.is_empty() { &all } else { names } {
        match Some(bitmap.to_owned()).filter(|_| name == BITMAP).or_else(|| knobs.show(name)) {
            Some(value) => found.push((name.clone(), value)),
            None => {
                let text = KnobError::Unknown(name.clone()).to_string();
                return *refusal(FailureKind::Usage, text);
            }
        }
    }
    let members = volume.map(|volume| volume.members.as_slice()).unwrap_or_default();
    let asked: Vec<&str> = found.iter().map(|(name, _)| name.as_str()).collect();
    let queues = members.iter().filter_map(|member| queue_knobs(member, &knobs, &asked)).collect();
    Response { knobs: found, queues, ..Response::done() }
}

/// Whether a knob belongs to the write-back cache.
fn is_of_cache(knobs: &Knobs, name: &str) -> bool {
    let present = knobs.show(name).and_then(|value| knobs.parse(name, &value).ok());
    present.is_some_and(Knob::is_of_cache)
}

/// Values of the knobs `names` in the queue of a member, where they differ from those of the
/// volume; `None` if none does.
fn queue_knobs(member: &MemberSnapshot, knobs: &Knobs, names: &[&str]) -> Option<QueueKnobs> {
    let own = member.queue_knobs.as_deref()?;
    let value = |name: &&str| {
        let (own, common) = (own.show(name)?, knobs.show(name)?);
        (own != common).then(|| ((*name).to_owned(), own))
    };
    let knobs: Vec<(String, String)> = names.iter().filter_map(value).collect();
    let (index, label) = (member.member.0, member.label.clone());
    (!knobs.is_empty()).then_some(QueueKnobs { index, label, knobs })
}

/// Text for the refusal of a command because a resync or check is running, with advice. The engine
/// reports only that something is running; the text names it. `None` if nothing runs.
pub(super) fn what_runs(cx: &mut Context<'_, '_>, volume: VolumeId) -> Option<String> {
    let snapshot = cx.driver.snapshot()?;
    let what = match snapshot.volumes.get(volume.index())?.sync_action {
        SyncAction::Check => "check",
        SyncAction::Correct => "repair",
        SyncAction::Frozen | SyncAction::Idle => return None,
        SyncAction::Recover => "rebuild",
        SyncAction::Repair => "repair",
        SyncAction::Reshape => "reshape",
        SyncAction::Resync => "resync",
    };
    let way_out = match what {
        "check" | "repair" => "weft wait returns when it has ended, weft idle stops it",
        // A resync or recovery that the array needs would start again by itself.
        _ => "weft wait returns when it has ended",
    };
    Some(format!("busy: a {what} is running; {way_out}"))
}

/// Text for the refusal of a check or repair that would begin behind the last data sector; `None`
/// for a volume without a layout.
pub(super) fn beyond_the_end(
    cx: &mut Context<'_, '_>,
    volume: VolumeId,
    from: Sectors,
) -> Option<String> {
    let snapshot = cx.driver.snapshot()?;
    let volume = snapshot.volumes.get(volume.index())?;
    let layout = volume.layout?;
    let (end, of) = match layout.level.syncs_array() {
        true => (volume.size, "the array"),
        false => (layout.member_size, "each member"),
    };
    let (from, end) = (from.0, end.sectors_floor().0);
    Some(format!("from: found sector {from}, expected less than {end}, the data sectors of {of}"))
}

/// Answer to a command that was not carried out. The answer is boxed because it is the rare case.
pub(super) fn refusal(kind: FailureKind, text: impl Into<String>) -> Box<Response> {
    Box::new(Response::error(kind, text))
}

/// Whether the connected process may administer the server: it must run as the same user or as
/// root.
pub(super) fn is_allowed(socket: &OwnedFd) -> bool {
    let own = rustix::process::geteuid();
    rustix::net::sockopt::socket_peercred(socket)
        .is_ok_and(|peer| peer.uid == own || peer.uid.is_root())
}

pub(super) fn kind_of(error: &ReplyError) -> FailureKind {
    match error {
        ReplyError::ReadOnly | ReplyError::Refused(_) => FailureKind::Refused,
        ReplyError::Invalid(_) | ReplyError::OutOfRange => FailureKind::Usage,
        _ => FailureKind::Failed,
    }
}

pub(super) fn sync_action(word: &str) -> Result<SyncAction, Box<Response>> {
    let all = [
        SyncAction::Check,
        SyncAction::Correct,
        SyncAction::Frozen,
        SyncAction::Idle,
        SyncAction::Recover,
        SyncAction::Repair,
        SyncAction::Reshape,
        SyncAction::Resync,
    ];
    all.into_iter().find(|action| sync_word(*action) == word).ok_or_else(|| {
        let words: Vec<_> = all.into_iter().map(sync_word).collect();
        let text = format!("sync_action: found {word}, expected one of {}", words.join(", "));
        refusal(FailureKind::Usage, text)
    })
}

/// State of the volume with index `place` in the write-back cache.
pub(super) fn write_back_of(cache: &WriteBackSnapshot, place: usize) -> WriteBackStatus {
    let volume = &cache.volumes[place];
    WriteBackStatus {
        throttle: cache.throttle.to_owned(),
        answers_delayed: cache.answers_delayed as u64,
        pauses: cache.pauses,
        dirty_bytes: cache.limit_pages * FRAME_BYTES,
        dirty_background_bytes: cache.background_pages * FRAME_BYTES,
        dirty: volume.dirty_pages * FRAME_BYTES,
        writeback: volume.writeback_pages * FRAME_BYTES,
        written: volume.written_pages * FRAME_BYTES,
        error: volume.failing.as_ref().map(ToString::to_string),
    }
}

/// Status of the running or last sync; `now` is the time of the engine.
pub(super) fn last_sync_of(sync: LastSync, now: Time) -> LastSyncStatus {
    let secs = |ended: Time| {
        let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        since.saturating_sub(Duration::from_nanos(now.since(ended).0)).as_secs()
    };
    LastSyncStatus {
        number: sync.number,
        action: sync_word(sync.action).to_owned(),
        from: sync.from.0,
        to: sync.to.map(|to| to.0),
        ended_secs: sync.ended.map(secs),
    }
}

pub(super) fn reshape_of(reshape: &ReshapeSnapshot) -> ReshapeStatus {
    let ReshapeSnapshot { from, to, layout, chunk, position, end } = *reshape;
    ReshapeStatus { from, to, layout, chunk: chunk.0, position: position.0, end: end.0 }
}

pub(super) fn bitmap_of(bitmap: &BitmapSnapshot) -> BitmapStatus {
    let BitmapSnapshot { chunk, chunks, dirty, pages, pages_dirty, events_cleared } = *bitmap;
    BitmapStatus { chunk: chunk.0, chunks, dirty, pages, pages_dirty, events_cleared }
}

/// Mismatches of a volume, with the labels of the members; `None` if there are none. A member that
/// has been removed is named by its index.
pub(super) fn mismatches_of(volume: &VolumeSnapshot) -> Option<MismatchesStatus> {
    let Mismatches { by_member, not_located, first } = &volume.mismatches;
    if first.is_empty() {
        return None;
    }
    let label = |index: MemberIndex| {
        let found = volume.members.iter().find(|member| member.member == index);
        found.map_or_else(|| format!("member {}", index.0), |member| member.label.clone())
    };
    let wrong = |(index, stripes): &(MemberIndex, u64)| WrongMember {
        label: label(*index),
        stripes: *stripes,
    };
    let mismatch = |found: &Mismatch| MismatchStatus {
        sector: found.sector.0,
        member: found.wrong.map(|wrong| label(wrong.member)),
        slot: found.wrong.map(|wrong| wrong.slot.0),
        member_sector: found.wrong.map(|wrong| wrong.at.0),
    };
    Some(MismatchesStatus {
        members: by_member.iter().map(wrong).collect(),
        not_located: *not_located,
        first: first.iter().map(mismatch).collect(),
    })
}

/// Word for an action in answers: md's word in `sync_action`, except for `correct`, which md does
/// not have.
pub(super) fn sync_word(action: SyncAction) -> &'static str {
    match action {
        SyncAction::Check => "check",
        SyncAction::Correct => "correct",
        SyncAction::Frozen => "frozen",
        SyncAction::Idle => "idle",
        SyncAction::Recover => "recover",
        SyncAction::Repair => "repair",
        SyncAction::Reshape => "reshape",
        SyncAction::Resync => "resync",
    }
}
