//! Tests of the flusher: which pages it writes when, in which runs, and the parts of a run.

use super::*;

#[test]
fn nothing_is_written_before_its_time_and_all_of_it_then() {
    let mut rig = Rig::with(1, 64, 1024, |cache| cache.throttle = Some(Kernel::V3_1));
    let write = rig.ask(0, RequestOp::Write, 16, 16, Flags::NONE);
    rig.ok(write);
    while rig.jobs.is_empty() && rig.now < Time(40_000_000_000) {
        rig.wake();
    }
    assert!(rig.now >= Time(30_000_000_000) && rig.now <= Time(35_100_000_000), "{:?}", rig.now);
    rig.finish();
    assert_eq!(rig.dirty(), (0, 0));
    assert_eq!(rig.writes, 1);
}

#[test]
fn above_the_background_threshold_pages_are_written_in_long_ascending_runs() {
    let mut rig = Rig::with(1, 160, 4096, |cache| cache.background = Amount::Bytes(40 * 4096));
    // From the end to the start, page by page.
    for page in (0..41).rev() {
        rig.ask(0, RequestOp::Write, page * SECTORS, SECTORS, Flags::NONE);
        rig.step(0);
    }
    let mut at = Vec::new();
    while !rig.jobs.is_empty() {
        if let Work::Member(_, MemberOp::Write { at: first, from, .. }, _) = &rig.jobs[0].work {
            at.push((first.0, from.iter().map(|part| part.len).sum::<u32>()));
        }
        rig.step(0);
    }
    assert!(at.len() <= 5 && at.is_sorted(), "{at:?}");
    assert!(at[0] == (0, 10 * 4096), "a buffer of ten pages: {at:?}");
}

#[test]
fn a_page_written_to_while_it_is_written_back_is_written_again() {
    let mut rig = Rig::new(1, 64, 1024);
    let first = rig.ask(0, RequestOp::Write, 0, 8, Flags::NONE);
    rig.ok(first);
    let flush = rig.ask(0, RequestOp::Flush, 0, 0, Flags::NONE);
    assert!(rig.step(0), "the copy");
    let second = rig.ask(0, RequestOp::Write, 0, 8, Flags::NONE);
    let fill = rig.jobs.iter().position(|job| matches!(job.work, Work::Compute(_))).unwrap();
    rig.step(fill);
    assert_eq!(rig.replies.remove(&second), Some(Ok(())), "it waits for no member");
    assert_eq!(rig.dirty(), (1, 1));
    rig.ok(flush);
    assert_eq!(rig.dirty(), (1, 0), "the flush did not wait for what came after it");
    let flush = rig.ask(0, RequestOp::Flush, 0, 0, Flags::NONE);
    rig.ok(flush);
    assert_eq!(rig.dirty(), (0, 0));
    rig.check_durable();
}

#[test]
fn a_smaller_limit_writes_what_is_beyond_it_and_sends_long_writes_to_the_volume() {
    let mut rig = Rig::with(1, 64, 4096, |cache| cache.throttle = None);
    for run in 0..4 {
        let write = rig.ask(0, RequestOp::Write, run * 120, 120, Flags::NONE);
        fill(&mut rig);
        assert_eq!(rig.replies.remove(&write), Some(Ok(())));
    }
    let waits = rig.ask(0, RequestOp::Write, 1024, 96, Flags::NONE);
    assert_eq!(rig.engine.snapshot().write_back.unwrap().requests_waiting, 1);
    assert_eq!(rig.set(0, Knob::DirtyBytes(Amount::Bytes(16 * 4096))), Ok(()));
    rig.ok(waits);
    while rig.step(0) {}
    assert!(rig.dirty().0 <= 16, "{:?}", rig.dirty());
    assert_eq!(rig.set(0, Knob::DirtyThrottle(Some(Kernel::V3_1))), Ok(()));
    assert_eq!(rig.engine.snapshot().write_back.unwrap().throttle, "3.1");
}

#[test]
fn without_periodic_work_nothing_is_written_below_the_background_threshold() {
    let mut rig = Rig::with(1, 64, 1024, |cache| cache.writeback_centisecs = 0);
    let write = rig.ask(0, RequestOp::Write, 16, 16, Flags::NONE);
    rig.ok(write);
    assert_eq!(rig.engine.next_wake(), None);
    assert_eq!(rig.set(0, Knob::DirtyWriteback(100)), Ok(()));
    assert_eq!(rig.set(0, Knob::DirtyExpire(0)), Ok(()));
    while rig.jobs.is_empty() {
        rig.wake();
    }
    assert!(rig.now <= Time(2_000_000_000), "{:?}", rig.now);
    rig.finish();
    assert_eq!(rig.dirty(), (0, 0));
}

/// Sets up a run of four pages with two parts in flight: the page between them was replaced on the
/// volume while the run waited. Returns the flush that requested the run, and the indexes of the
/// parts among the outstanding jobs.
fn in_two_parts(rig: &mut Rig) -> (u64, [usize; 2]) {
    let computed = |rig: &mut Rig| {
        while let Some(at) = rig.jobs.iter().position(|it| matches!(it.work, Work::Compute(_))) {
            rig.step(at);
        }
    };
    let write = rig.ask(0, RequestOp::Write, 0, 4 * SECTORS, Flags::NONE);
    rig.ok(write);
    let through = rig.ask(0, RequestOp::Write, 2 * SECTORS, SECTORS, fua());
    computed(rig);
    let flush = rig.ask(0, RequestOp::Flush, 0, 0, Flags::NONE);
    computed(rig);
    while !rig.replies.contains_key(&through) {
        rig.step(0);
    }
    computed(rig);
    let part = |first: u64, pages: u64| {
        let is_part = |job: &Job| match &job.work {
            Work::Member(_, MemberOp::Write { at, .. }, sent) => {
                at.0 == first * SECTORS && sent.len() as u64 == pages * SECTORS
            }
            _ => false,
        };
        rig.jobs.iter().position(is_part).expect("the part is on its way")
    };
    (flush, [part(0, 2), part(3, 1)])
}

/// Regression test for mutation 76 of a review.
#[test]
fn the_error_of_one_part_of_a_run_is_that_of_the_run_whatever_part_is_last() {
    let faults = [(Fault::Io, ReplyError::Io), (Fault::NoSpace, ReplyError::NoSpace)];
    let cases = [0, 1].map(|bad| [0, 1].map(|last| (bad, last))).concat();
    for ((bad, last), (fault, error)) in
        cases.into_iter().flat_map(|case| faults.clone().map(|fault| (case, fault)))
    {
        let mut rig = Rig::new(1, 64, 1024);
        rig.fault = fault;
        let (flush, parts) = in_two_parts(&mut rig);
        rig.bad = vec![[0, 3][bad] * SECTORS];
        let first = 1 - last;
        let then = parts[last] - usize::from(parts[last] > parts[first]);
        rig.step(parts[first]);
        assert_eq!(rig.replies.get(&flush), None, "a part is on its way");
        rig.step(then);
        assert_eq!(rig.replies.remove(&flush), Some(Err(error.clone())), "{bad} bad, {last} last");
        assert_eq!(rig.dirty(), (3, 0), "all of the run but what was replaced");
        let cache = rig.engine.snapshot().write_back.expect("it is on");
        let count = |of| u64::from(bad != last && error == of);
        let (lacks, errors) = (count(ReplyError::NoSpace), count(ReplyError::Io));
        assert_eq!(cache.partly_written, PartlyWritten { lacks, errors }, "{bad} bad, {last} last");
        rig.bad.clear();
        let flush = rig.ask(0, RequestOp::Flush, 0, 0, Flags::NONE);
        rig.ok(flush);
        rig.check_durable();
        assert_eq!(rig.dirty(), (0, 0));
    }
}

/// Regression test for mutation 77 of a review: a write that goes through overtook the part.
#[test]
fn a_run_keeps_its_lock_below_until_its_last_part_is_written() {
    let mut rig = Rig::new(1, 64, 1024);
    let (flush, parts) = in_two_parts(&mut rig);
    rig.step(parts[0]);
    let late = rig.ask(0, RequestOp::Write, 3 * SECTORS, SECTORS, fua());
    let writes = |rig: &Rig| {
        let is_write = |it: &&Job| matches!(&it.work, Work::Member(_, MemberOp::Write { .. }, _));
        rig.jobs.iter().filter(is_write).count()
    };
    while let Some(at) = rig.jobs.iter().position(|it| matches!(it.work, Work::Compute(_))) {
        rig.step(at);
    }
    assert_eq!(writes(&rig), 1, "the write waits for the last part");
    rig.ok(late);
    assert_eq!(rig.replies.remove(&flush), Some(Ok(())));
    rig.check_durable();
}
