//! Tests of flushes before and after a write, and of writes that wait for them.

use super::super::edges::Edges;
use super::super::op::ClientOp;
use super::*;

/// A request with a preflush takes effect after the flush. Later requests that touch the same pages
/// take effect after that request.
#[test]
fn a_write_waits_behind_an_earlier_one_that_has_yet_to_flush() {
    let mut rig = Rig::new(1, 64, 1024);
    let dirty = rig.ask(0, RequestOp::Write, 80, 8, Flags::NONE);
    rig.ok(dirty);
    let preflush = Flags { preflush: true, ..Flags::NONE };
    let first = rig.ask(0, RequestOp::Write, 0, 8, preflush);
    let apart = rig.ask(0, RequestOp::Write, 8, 8, Flags::NONE);
    let second = rig.ask(0, RequestOp::Write, 0, 8, Flags::NONE);
    fill(&mut rig);
    assert!(rig.replies.contains_key(&apart) && !rig.replies.contains_key(&second));
    rig.finish();
    for tag in [first, second, apart] {
        assert_eq!(rig.replies.remove(&tag), Some(Ok(())));
    }
    let read = rig.ask(0, RequestOp::Read, 0, 16, Flags::NONE);
    rig.ok(read);
}

#[test]
fn what_goes_below_for_a_preflush_or_fua_of_a_kept_write_is_a_plain_flush() {
    let flags = Flags { fua: true, preflush: true, ..Flags::NONE };
    let request = ClientRequest {
        client: CLIENT,
        tag: Tag(1),
        volume: VolumeId(0),
        op: RequestOp::Write,
        range: ByteRange::new(512, 1024),
        frames: Run::new(5, 1),
        flags,
        attr: Attr::default(),
    };
    for (edges, is_flush) in
        [(Edges::FlushesFirst, true), (Edges::Flushed, true), (Edges::Here, false)]
    {
        let below = ClientOp { edges, ..ClientOp::new(&request, 0) }.below();
        if is_flush {
            let found = (below.op, below.range, below.frames, below.flags);
            let flush = (RequestOp::Flush, ByteRange::new(0, 0), Run::EMPTY, Flags::NONE);
            assert_eq!(found, flush);
        } else {
            assert_eq!((below.op, below.flags), (RequestOp::Write, flags));
        }
    }
}
