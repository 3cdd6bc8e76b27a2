//! Lack of space for some seconds, and the check that the array notices when its members have space
//! again.
//!
//! Clients continue meanwhile, and may receive errors for lack of space. Once there is space again,
//! these errors must end within [`NOTICED_WITHIN`] seconds: every write and flush then succeeds,
//! and the volume reports that it has space. No member may fail, because the lack was shorter than
//! `no_space_wait`, which starts anew with each lack of space.

use weft_engine::{Flags, MemberState, ReplyError, RequestOp};
use weft_units::{ByteRange, Span};

use crate::model::Payload;
use crate::violation::Violation;
use crate::world::{PROBER, Ticket, World};

/// Makes `count` disks from `first` on lack space for some seconds, and checks the volume during
/// this time and after it.
pub(super) fn lack(world: &mut World, first: usize, count: usize, seconds: u64) {
    let members = world.disks.len();
    let full: Vec<usize> = (first..first + count).map(|disk| disk % members).collect();
    let faulty = faulty(world);
    set_space(world, &full, false);
    let mut asked = Vec::new();
    for turn in 0..seconds * PER_SECOND {
        asked.extend(ask(world, turn));
        world.idle(Span::millis(1000 / PER_SECOND));
        if world.failure().is_some() {
            return;
        }
    }
    set_space(world, &full, true);
    let mut in_a_row = 0;
    for turn in 0..NOTICED_WITHIN * PER_SECOND {
        let tickets = ask(world, turn);
        world.idle(Span::millis(1000 / PER_SECOND));
        if world.failure().is_some() {
            return;
        }
        let answered = tickets.into_iter().all(|it| matches!(world.take_answer(it), Some(Ok(_))));
        in_a_row = if answered { in_a_row + 1 } else { 0 };
    }
    judge(world, in_a_row, faulty);
    // Writes that failed meanwhile must have failed for lack of space.
    for ticket in asked {
        let answer = world.take_answer(ticket);
        if !matches!(answer, Some(Ok(_) | Err(ReplyError::NoSpace))) {
            let message = format!("a write while members have no space is answered {answer:?}");
            world.fail(Violation::new("I13 liveness", message));
        }
    }
}

fn judge(world: &mut World, in_a_row: u64, faulty_before: usize) {
    let volume = &world.snapshot().volumes[0];
    let (no_space, faulty) = (volume.no_space, faulty(world));
    let message = if faulty > faulty_before {
        "a member was failed that had no space for less than no_space_wait".to_owned()
    } else if no_space {
        format!("{NOTICED_WITHIN} s after there is space the volume says that there is none")
    } else if in_a_row < SUCCEED {
        format!("{NOTICED_WITHIN} s after there is space, writes fail: {in_a_row} in a row did not")
    } else {
        return;
    };
    world.fail(Violation::new("I13 liveness", message));
}

fn faulty(world: &World) -> usize {
    let members = &world.snapshot().volumes[0].members;
    members.iter().filter(|member| member.state == MemberState::Faulty).count()
}

fn set_space(world: &mut World, full: &[usize], space: bool) {
    full.iter().for_each(|disk| world.disks[*disk].faults.no_space = !space);
}

/// Issues a client's write to a block that depends on `turn`, and occasionally a flush. Returns the
/// tickets.
fn ask(world: &mut World, turn: u64) -> Vec<Ticket> {
    let blocks = world.size() / BLOCK;
    let range = ByteRange::new(turn * 37 % blocks * BLOCK, BLOCK);
    let fua = turn.is_multiple_of(3);
    let flags = Flags { sync: true, fua, ..Flags::NONE };
    let mut tickets = vec![world.request(PROBER, RequestOp::Write, range, Payload::Tags, flags)];
    if turn % PER_SECOND == 1 {
        let (none, flags) = (ByteRange::new(0, 0), Flags::NONE);
        tickets.push(world.request(PROBER, RequestOp::Flush, none, Payload::Tags, flags));
    }
    tickets
}

const BLOCK: u64 = 4096;

/// Number of writes per second.
const PER_SECOND: u64 = 4;

/// Seconds within which an array must notice that its members have space again: several times the
/// second after which it tries a failed write again.
const NOTICED_WITHIN: u64 = 8;

/// Number of successive writes, at the end of the [`NOTICED_WITHIN`] seconds, that must all have
/// succeeded.
const SUCCEED: u64 = 8;
