//! Status of a member: state, traffic, and the parameters of its queue.

use weft_engine::knobs::{Knobs, SchedulerKind};
use weft_engine::{MemberSnapshot, MemberState, Party, VolumeSnapshot};
use weft_runtime::devices::{Medium, OpenMember};
use weft_runtime::figures::Answered;
use weft_units::SectorRange;

use super::shares::sectors_of;
use crate::control::{AnsweredStatus, BadBlocksStatus, MemberStatus, QueueStatus};

/// Status of a member. `open` is its open file, or `None` once the member does not belong to its
/// array; `answered` counts the requests that the member has answered, by kind.
pub(super) fn status_of(
    member: &MemberSnapshot,
    volume: &VolumeSnapshot,
    open: Option<&OpenMember>,
    answered: &[Answered],
) -> MemberStatus {
    MemberStatus {
        index: member.member.0,
        label: member.label.clone(),
        device: open.and_then(OpenMember::device_number),
        slot: member.slot.map(|slot| slot.0),
        replaces: member.replaces.map(|slot| slot.0),
        want_replacement: member.want_replacement,
        reserved_for: member.reserved_for.map(|slot| slot.0),
        dev_number: member.dev_number,
        write_mostly: member.write_mostly,
        overlay: open.is_some_and(|open| open.overlay().is_some()),
        size: open.map(|open| open.info().size.bytes().0),
        data_offset: member.data.map(|data| data.start.0),
        data_sectors: member.data.map(|data| data.len.0),
        state: match member.state {
            MemberState::Faulty => "faulty",
            MemberState::InSync => "in_sync",
            MemberState::Rebuilding { .. } => "rebuilding",
            MemberState::Spare => "spare",
        }
        .to_owned(),
        recovery_offset: match member.state {
            MemberState::Rebuilding { recovery_offset } => Some(recovery_offset.0),
            MemberState::Faulty | MemberState::InSync | MemberState::Spare => None,
        },
        mode: open.map_or_else(String::new, |open| open.mode().to_string()),
        reads: member.reads,
        writes: member.writes,
        flushes: member.flushes,
        sectors_read: member.sectors_read,
        sectors_written: member.sectors_written,
        sectors_clients: sectors_of(member, |party| {
            matches!(party, Party::Client(_) | Party::Others)
        }),
        sectors_resync: sectors_of(member, |party| party == Party::Resync),
        sectors_metadata: sectors_of(member, |party| party == Party::Metadata),
        corrected: member.corrected,
        bad_blocks: member.bad_blocks.iter().map(bad_blocks_of).collect(),
        in_flight: member.in_flight,
        answered: answered_of(answered),
        queue: queue_of(
            member.queue_depth,
            member.queue_knobs.as_deref().unwrap_or(&volume.knobs),
            open,
        ),
    }
}

fn bad_blocks_of(range: &SectorRange) -> BadBlocksStatus {
    BadBlocksStatus { start: range.start.0, sectors: range.len.0 }
}

/// Status of the kinds of requests of which any were answered.
pub(super) fn answered_of(all: &[Answered]) -> Vec<AnsweredStatus> {
    all.iter().filter(|it| !it.micros.is_empty()).map(kind_answered).collect()
}

fn kind_answered(answered: &Answered) -> AnsweredStatus {
    let micros = &answered.micros;
    let below = |power: u32| micros.count_between(0, (1 << power) - 1);
    AnsweredStatus {
        kind: answered.kind.to_owned(),
        count: micros.len(),
        errors: answered.errors,
        sum_us: answered.sum.0 / 1000,
        p50_us: micros.value_at_quantile(0.5),
        p99_us: micros.value_at_quantile(0.99),
        p999_us: micros.value_at_quantile(0.999),
        max_us: micros.max(),
        below: (1..=AnsweredStatus::BOUNDS).map(below).collect(),
    }
}

fn queue_of(depth: Option<u32>, knobs: &Knobs, open: Option<&OpenMember>) -> QueueStatus {
    let device = open.map(|open| open.info().device).unwrap_or_default();
    let is_disk = open.is_some_and(|open| open.medium() == Medium::BlockDevice);
    // Without a scheduler, `nr_requests` limits the depth.
    let bounded = knobs.scheduler == SchedulerKind::None && knobs.nr_requests > 0;
    let depth_from = match device.depth {
        _ if knobs.queue_depth > 0 || bounded => KNOB,
        Some(_) => DEVICE,
        None => ASSUMED,
    };
    let rotational_from = match knobs.rotational {
        Some(_) => KNOB,
        None if is_disk => DEVICE,
        None => ASSUMED,
    };
    QueueStatus {
        scheduler: knobs.scheduler.name().to_owned(),
        depth,
        depth_from: depth.map(|_| depth_from.to_owned()),
        rotational: knobs.rotational.unwrap_or(device.rotational),
        rotational_from: rotational_from.to_owned(),
    }
}

const ASSUMED: &str = "assumed";
const DEVICE: &str = "device";
const KNOB: &str = "knob";
