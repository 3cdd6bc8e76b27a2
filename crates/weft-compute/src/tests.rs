//! Tests: the conformance table on the simplest memory possible, and on memory with planted bugs.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::slice;

use super::*;
use crate::conformance::{FRAMES, Tried, check};
use weft_units::FRAME_BYTES;

/// Frames in one contiguous vector; accesses optionally have a planted bug.
struct Plain {
    bytes: Vec<u8>,
    bug: Option<Bug>,
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Bug {
    OneByteFurther,
    OverlapAllowed,
    WritesSwapped,
    ZerosWritable,
}

fn plain(bug: Option<Bug>) -> Tried {
    check(|| Plain { bytes: vec![0; (u64::from(FRAMES) * FRAME_BYTES) as usize], bug })
}

impl Frames for Plain {
    fn split(&mut self, read: &[Segment], write: &[Segment]) -> Split<'_> {
        let bug = self.bug;
        let place = |segment: &Segment| {
            let end = segment.slab_end() as usize;
            assert!(!segment.is_zero() || end as u64 <= FRAME_BYTES, "behind the zeros");
            segment.slab_start() as usize..end
        };
        let mut read: Vec<_> = read.iter().map(place).collect();
        let mut write: Vec<_> = write.iter().map(place).collect();
        let zeros = write.iter().any(|place| (place.start as u64) < FRAME_BYTES);
        assert!(!zeros || bug == Some(Bug::ZerosWritable), "zeros are not written");
        if bug == Some(Bug::OverlapAllowed) {
            read.retain(|place| !write.contains(place));
        }
        if let (Some(Bug::OneByteFurther), [first, _, ..]) = (bug, &mut read[..]) {
            *first = first.start + 1..first.end + 1;
        }
        if bug == Some(Bug::WritesSwapped) {
            write.reverse();
        }
        split_slice(&mut self.bytes, &read, &write)
    }
}

#[test]
fn each_operation_gives_what_its_definition_says() {
    let tried = plain(None);
    assert!(tried.operations >= 6 * 26 && tried.refusals >= 6 * 6, "{tried:?}");
}

#[test]
fn planted_bugs_are_found() {
    for bug in [Bug::OneByteFurther, Bug::OverlapAllowed, Bug::WritesSwapped, Bug::ZerosWritable] {
        let found = catch_unwind(AssertUnwindSafe(|| plain(Some(bug))));
        assert!(found.is_err(), "{bug:?}");
    }
}

#[test]
fn places_are_given_in_the_order_asked_for() {
    let mut memory: Vec<u8> = (0..10).collect();
    let Split { read, write } = split_slice(&mut memory, &[8..10, 0..2, 1..3], &[6..8, 3..5]);
    assert_eq!((&read[..], &*write[0]), (&[&[8, 9][..], &[0, 1], &[1, 2]][..], &[6, 7][..]));
    assert_eq!(*write[1], [3, 4]);
    drop((read, write));
    for (one, other) in [(2..4, 3..5), (4..6, 3..5), (9..11, 3..5)] {
        let (one, other) = (slice::from_ref(&one), slice::from_ref(&other));
        let mut refused = |read, write| {
            let split = AssertUnwindSafe(|| drop(split_slice(&mut memory, read, write)));
            assert!(catch_unwind(split).is_err(), "{read:?} {write:?}");
        };
        refused(one, other);
        refused(&[], &[one, other].concat());
    }
}
