//! Tests of the order of files: which file is written next, how much of it, and which process
//! waits.

use super::super::*;
use std::ops::Range;
use weft_units::{Span, Time};

const SECOND: Span = Span::secs(1);

/// A page cache with one device, `files` files on it, and one writer. The writer is never
/// throttled, because it does not check the limits before 1,024 pages.
fn cache(
    kernel: Kernel,
    files: usize,
    limit_pages: u64,
) -> (PageCache, BdiId, Vec<InodeId>, WriterId) {
    let mut cache = PageCache::new(PoolConfig {
        dirty: Amount::Bytes(limit_pages * PAGE_BYTES),
        ..PoolConfig::new(kernel, 1, 1 << 20, 1 << 20)
    });
    let bdi = cache.add_bdi(Time(0));
    let files = (0..files).map(|_| cache.add_inode(bdi)).collect();
    let writer = cache.add_writer(0);
    (cache, bdi, files, writer)
}

/// Writes pages, and calls `balance` until the writer may continue. Asserts that no step asks for a
/// sleep or a write.
fn write(cache: &mut PageCache, now: Time, writer: WriterId, inode: InodeId, pages: Range<u64>) {
    let mut at = pages.start;
    while at < pages.end {
        let written = cache.write(now, writer, inode, at..pages.end);
        at += written.pages;
        if written.balance {
            assert_eq!(cache.balance(now, writer, 1), Balance::Continue, "below the limits");
        }
    }
}

/// Runs the flusher until it sleeps. Returns the pages that it writes, and the time until which it
/// sleeps.
fn flush_all(cache: &mut PageCache, now: Time, bdi: BdiId) -> (Vec<WriteOut>, Option<Time>) {
    let mut all = Vec::new();
    loop {
        match cache.flush(now, bdi, u64::MAX) {
            Flush::Write(out) => all.push(out),
            Flush::Sleep { until, .. } => return (all, until),
        }
    }
}

fn runs(outs: &[WriteOut]) -> Vec<(InodeId, Range<u64>)> {
    outs.iter().map(|out| (out.inode, out.pages.clone())).collect()
}

/// The write-back cache dirties many pages in one call.
#[test]
fn pages_dirtied_at_once_wake_the_flusher_beyond_the_background_limit_and_not_at_it() {
    let (mut cache, bdi, files, writer) = cache(Kernel::V3_1, 1, 256);
    // The first dirty page starts the flusher's timer.
    assert_eq!(cache.dirty(Time(0), writer, files[0], 0..1), 1);
    while cache.wake().is_some() {}
    assert_eq!(flush_all(&mut cache, Time(0), bdi).0, []);
    assert_eq!(cache.dirty(Time(0), writer, files[0], 1..128), 127);
    assert_eq!(cache.wake(), None);
    assert_eq!(cache.dirty(Time(0), writer, files[0], 128..129), 1);
    assert_eq!(cache.wake(), Some(Wake::Flusher(bdi)));
}

#[test]
fn writeback_statement_54_background_work_starts_at_129_pages_of_256() {
    for (pages, expected) in [(128, 0), (129, 129)] {
        let (mut cache, bdi, files, writer) = cache(Kernel::V3_1, 1, 256);
        assert_eq!(cache.pool().thresholds().background, 128);
        write(&mut cache, Time(0), writer, files[0], 0..pages);
        let mut written = 0;
        let mut now = Time(0);
        // No file is old enough for periodic work yet, so all writes are background work.
        for _ in 0..5 {
            let (outs, until) = flush_all(&mut cache, now, bdi);
            assert!(outs.iter().all(|out| out.reason == Reason::Background));
            written += outs.iter().map(|out| out.pages.end - out.pages.start).sum::<u64>();
            now = until.unwrap_or(now + SECOND);
        }
        assert_eq!(written, expected, "{pages}");
    }
}

#[test]
fn writeback_statement_55_a_page_written_once_is_on_its_way_after_30_to_35_s() {
    for kernel in [Kernel::V2_6_24, Kernel::V3_1] {
        for offset_ms in [0, 1, 700, 2500, 4999] {
            let (mut cache, bdi, files, writer) = cache(kernel, 1, 25_600);
            let dirtied = Time(0) + Span::secs(12) + Span::millis(offset_ms);
            assert_eq!(flush_all(&mut cache, Time(0), bdi), (vec![], None), "nothing to wait for");
            write(&mut cache, dirtied, writer, files[0], 5..6);
            assert_eq!(cache.wake(), Some(Wake::Flusher(bdi)));
            let ticks = TickRate::default();
            let first = ticks.at(ticks.tick(dirtied + Span::secs(5)));
            assert_eq!(flush_all(&mut cache, dirtied, bdi).1, Some(first), "in 5 s");
            let mut now = dirtied;
            let when = loop {
                let (outs, until) = flush_all(&mut cache, now, bdi);
                if !outs.is_empty() {
                    assert_eq!(outs[0].reason, Reason::Periodic);
                    break now.since(dirtied);
                }
                now = until.expect("a dirty file");
            };
            // Ages are counted in ticks, which are 4 ms here.
            assert!((Span::millis(29_996)..=Span::secs(35)).contains(&when), "{when:?}");
        }
    }
}

#[test]
fn the_5_s_begin_when_an_idle_device_gets_its_first_dirty_file() {
    let (mut cache, bdi, files, writer) = cache(Kernel::V3_1, 1, 25_600);
    let at = |second| Time(0) + Span::secs(second);
    write(&mut cache, at(1), writer, files[0], 0..1);
    assert_eq!(flush_all(&mut cache, at(1), bdi).1, Some(at(6)));
    assert_eq!(flush_all(&mut cache, at(6), bdi).1, Some(at(11)), "too new to be written");
    cache.sync(at(7), bdi);
    assert_eq!(flush_all(&mut cache, at(7), bdi).1, None, "all clean");
    write(&mut cache, at(9), writer, files[0], 1..2);
    assert_eq!(flush_all(&mut cache, at(9), bdi).1, Some(at(14)));
}

#[test]
fn files_go_oldest_first_by_chunks_and_unfinished_ones_come_again() {
    let (mut cache, bdi, files, writer) = cache(Kernel::V3_1, 3, 4096);
    // With a limit of 4,096 pages, chunks are 1,024 and the background threshold is half the limit.
    for (file, second) in [(1, 1), (2, 2), (0, 3)] {
        write(&mut cache, Time(0) + Span::secs(second), writer, files[file], 0..1000);
    }
    let (outs, _) = flush_all(&mut cache, Time(0) + Span::secs(6), bdi);
    // Of 3,000 dirty pages 2,000 are left after the first file, which is below the threshold; but a
    // pass goes on for 100 ms.
    assert_eq!(runs(&outs), [(files[1], 0..1000), (files[2], 0..1000), (files[0], 0..1000)]);

    let (mut cache, bdi, files, writer) = self::cache(Kernel::V3_1, 2, 8192);
    write(&mut cache, Time(0), writer, files[0], 0..2500);
    write(&mut cache, Time(0) + SECOND, writer, files[1], 0..2500);
    let (outs, _) = flush_all(&mut cache, Time(0) + Span::secs(6), bdi);
    let (a, b) = (files[0], files[1]);
    // Chunks are min(12,800, 1,024) + 1,024, rounded down.
    let expected = [(a, 0..2048), (b, 0..2048), (a, 2048..2500), (b, 2048..2500)];
    // After the first pass 904 pages are left, below the threshold of 4,096.
    assert_eq!(runs(&outs), expected[..2]);
    let later = Time(0) + Span::secs(7);
    cache.sync(later, bdi);
    assert_eq!(runs(&flush_all(&mut cache, later, bdi).0), expected[2..]);
}

#[test]
fn a_turn_goes_on_where_the_last_one_ended_and_around_the_end() {
    for kernel in [Kernel::V2_6_24, Kernel::V3_1] {
        let (mut cache, bdi, files, writer) = cache(kernel, 1, 25_600);
        let old = |cache: &mut PageCache, second| {
            let now = Time(0) + Span::secs(second);
            let outs = flush_all(cache, now, bdi).0;
            outs.iter().for_each(|out| cache.written(Time(0), out.inode, out.pages.clone()));
            outs.into_iter().map(|out| out.pages).collect::<Vec<_>>()
        };
        write(&mut cache, Time(0), writer, files[0], 100..200);
        assert_eq!(old(&mut cache, 40)[0], 100..200);
        for range in [20..30, 150..160, 300..310] {
            write(&mut cache, Time(0) + Span::secs(41), writer, files[0], range);
        }
        let all = [300..310, 20..30, 150..160];
        // 2.6.24 wraps around only if no dirty page follows.
        let at_once = if kernel == Kernel::V2_6_24 { 1 } else { 3 };
        assert_eq!(old(&mut cache, 80), all[..at_once]);
        assert_eq!(old(&mut cache, 120), all[at_once..]);
        assert_eq!(cache.pool().counts(), Counts::default());
    }
}

#[test]
fn a_turn_that_went_around_for_nothing_leaves_the_next_one_at_the_start() {
    let (mut cache, bdi, files, writer) = cache(Kernel::V3_1, 1, 25_600);
    let mut round = |second, ranges: &[Range<u64>]| {
        for range in ranges {
            write(&mut cache, Time(0) + Span::secs(second), writer, files[0], range.clone());
        }
        let outs = flush_all(&mut cache, Time(0) + Span::secs(second + 40), bdi).0;
        outs.iter().for_each(|out| cache.written(Time(0), out.inode, out.pages.clone()));
        outs.into_iter().map(|out| out.pages).collect::<Vec<_>>()
    };
    assert_eq!(round(0, &[100..200, 300..310]), [100..200, 300..310]);
    assert_eq!(round(50, &[20..30, 400..410]), [400..410, 20..30], "from the last page");
    assert_eq!(round(100, &[5..8, 500..510]), [500..510, 5..8]);
    assert_eq!(round(150, &[600..601, 602..603]), [600..601, 602..603]);
    assert_eq!(round(200, &[5..8, 700..710]), [5..8, 700..710], "nothing was before 600 then");
}

#[test]
fn an_old_file_is_finished_though_there_are_newer_ones() {
    for kernel in [Kernel::V2_6_24, Kernel::V3_1] {
        let (mut cache, bdi, files, writer) = cache(kernel, 2, 25_600);
        write(&mut cache, Time(0), writer, files[0], 0..5000);
        write(&mut cache, Time(0) + Span::secs(20), writer, files[1], 0..100);
        let outs = flush_all(&mut cache, Time(0) + Span::secs(31), bdi).0;
        assert!(outs.len() > 1, "turn by turn");
        assert!(outs.iter().all(|out| out.inode == files[0] && out.reason == Reason::Periodic));
        assert_eq!(cache.pool().counts(), Counts { dirty: 100, writeback: 5000 });
    }
}

#[test]
fn an_old_file_that_is_written_to_meanwhile_is_new_in_2_6_24() {
    let (mut cache, bdi, files, writer) = cache(Kernel::V2_6_24, 2, 25_600);
    write(&mut cache, Time(0), writer, files[0], 0..5000);
    write(&mut cache, Time(0) + Span::secs(20), writer, files[1], 0..100);
    let old = Time(0) + Span::secs(31);
    let Flush::Write(out) = cache.flush(old, bdi, 10) else { panic!("it is old") };
    assert_eq!(out.pages, 0..10);
    write(&mut cache, old, writer, files[0], 9000..9001);
    let outs = flush_all(&mut cache, old, bdi).0;
    // A pass of 1,024 pages, rounded up to a multiple of 14.
    assert_eq!(runs(&outs), [(files[0], 10..1036)]);
}

#[test]
fn a_file_keeps_its_age_while_it_is_its_turn() {
    let (mut cache, bdi, files, writer) = cache(Kernel::V3_1, 1, 25_600);
    write(&mut cache, Time(0), writer, files[0], 0..10);
    let old = Time(0) + Span::secs(31);
    let Flush::Write(out) = cache.flush(old, bdi, 4) else { panic!("it is old") };
    cache.written(Time(0), out.inode, out.pages);
    write(&mut cache, old, writer, files[0], 2..3);
    assert_eq!(runs(&flush_all(&mut cache, old, bdi).0), [(files[0], 4..10), (files[0], 2..3)]);
}

#[test]
fn a_writer_in_2_6_24_does_not_start_on_what_came_after_it() {
    let (mut cache, files, writers) = two_over_the_limit(Kernel::V2_6_24);
    let Balance::Write(out) = cache.balance(Time(0), writers[0], 64) else { panic!("over") };
    assert_eq!((out.inode, out.pages), (files[0], 0..64));
    cache.remove(files[1]);
    let later = Time(0) + SECOND;
    let (new, writer) = (cache.add_inode(BdiId(0)), cache.add_writer(0));
    assert!(!cache.write(later, writer, new, 0..4).balance);
    // The second writer's pass puts the new file behind the first one.
    let Balance::Write(out) = cache.balance(later, writers[1], 64) else { panic!("over") };
    assert_eq!(out.inode, files[0]);
    let mut pages = 64;
    while let Balance::Write(out) = cache.balance(later, writers[0], 64) {
        assert_eq!(out.inode, files[0]);
        pages += out.pages.end - out.pages.start;
        assert!(pages <= 600 - 64);
    }
    assert_eq!(cache.inode_counts(new).dirty, 4);
}

#[test]
fn the_older_flusher_gives_up_when_all_is_under_way() {
    let (mut cache, bdi, files, writer) = cache(Kernel::V2_6_24, 1, 4096);
    let page = |cache: &mut PageCache, at: u64| write(cache, Time(0), writer, files[0], at..at + 1);
    (0..2900).for_each(|at| page(&mut cache, at));
    cache.sync(Time(0), bdi);
    flush_all(&mut cache, Time(0), bdi);
    assert_eq!(cache.pool().counts().writeback, 2900);
    cache.set_limits(Amount::Bytes(8192 * PAGE_BYTES), Amount::Bytes(100 * PAGE_BYTES));
    (0..1100).for_each(|at| page(&mut cache, at));
    let (outs, until) = flush_all(&mut cache, Time(0), bdi);
    assert_eq!((outs.len(), until), (0, Some(Time(0) + Span::millis(100))));
    let (outs, until) = flush_all(&mut cache, Time(0) + Span::millis(100), bdi);
    assert_eq!((outs.len(), until), (0, Some(Time(0) + Span::secs(5))), "until periodic work");
}

/// A page cache with a limit of 512 pages, two files with 600 dirty pages each, and two writers
/// that both have to call `balance`.
fn two_over_the_limit(kernel: Kernel) -> (PageCache, Vec<InodeId>, [WriterId; 2]) {
    let mut cache = PageCache::new(PoolConfig {
        dirty: Amount::Bytes(512 * PAGE_BYTES),
        ..PoolConfig::new(kernel, 2, 2 * 32 * 600, 1 << 20)
    });
    let bdi = cache.add_bdi(Time(0));
    // The device earns its share by writing.
    let old = cache.add_inode(bdi);
    let writers = [0, 1].map(|cpu| cache.add_writer(cpu));
    for round in 0..14 {
        let pages = round * 300..(round + 1) * 300;
        let written = cache.write(Time(0), writers[0], old, pages.clone());
        assert!(!written.balance || cache.balance(Time(0), writers[0], 1) == Balance::Continue);
        let rest = pages.start + written.pages..pages.end;
        if !rest.is_empty() {
            assert!(!cache.write(Time(0), writers[0], old, rest).balance);
        }
        let mut fsync = cache.fsync(old, 0..u64::MAX);
        while let SyncStep::Write(out) = cache.fsync_step(&mut fsync, 1000) {
            cache.written(Time(0), out.inode, out.pages);
        }
    }
    cache.remove(old);
    let files = vec![cache.add_inode(bdi), cache.add_inode(bdi)];
    for (&writer, &file) in writers.iter().zip(&files) {
        let mut at = 0;
        while !{
            let written = cache.write(Time(0), writer, file, at..1200);
            at += written.pages;
            written.balance
        } {}
    }
    (cache, files, writers)
}

#[test]
fn a_second_writer_takes_another_file_or_in_2_6_24_the_same() {
    for kernel in [Kernel::V2_6_24, Kernel::V3_1] {
        let (mut cache, files, writers) = two_over_the_limit(kernel);
        let mut first = |writer| match cache.balance(Time(0), writer, 64) {
            Balance::Write(out) => (out.inode, out.pages),
            other => panic!("{other:?}"),
        };
        let (a, b) = (files[0], files[1]);
        assert_eq!(first(writers[0]), (a, 0..64), "oldest first, of any writer");
        let second = first(writers[1]);
        let third = first(writers[0]);
        match kernel {
            // Both continue in the file, each from its own position.
            Kernel::V2_6_24 => assert_eq!((second, third), ((a, 64..128), (a, 128..192))),
            _ => assert_eq!((second, third), ((b, 0..64), (a, 64..128))),
        }
    }
}

#[test]
fn writers_wait_for_room_in_2_6_24_and_are_woken_by_it() {
    let (mut cache, files, writers) = two_over_the_limit(Kernel::V2_6_24);
    // Of 1,200 pages the first writer writes its `nr_to_write` of 900 and a few more, so too few
    // are left for the second.
    let mut all = |writer| {
        let mut pages = 0;
        loop {
            match cache.balance(Time(0), writer, 4096) {
                Balance::Write(out) => pages += out.pages.end - out.pages.start,
                Balance::Continue => return (pages, None),
                Balance::Sleep { until, or_uncongested } => {
                    assert!(or_uncongested);
                    return (pages, Some(until));
                }
            }
        }
    };
    assert_eq!(all(writers[0]), (908, None));
    let (pages, until) = all(writers[1]);
    assert_eq!((pages, until), (292, Some(Time(0) + Span::millis(100))));
    while cache.wake().is_some() {}
    let bdi = BdiId(0);
    cache.set_congested(bdi, true);
    assert_eq!(cache.wake(), None);
    cache.set_congested(bdi, true);
    assert_eq!(cache.wake(), None, "it is congested still");
    cache.set_congested(bdi, false);
    assert_eq!(cache.wake(), Some(Wake::Writer(writers[1])));
    assert_eq!(cache.wake(), None);
    // Once the writer continues, room in a queue no longer wakes it.
    let later = Time(0) + Span::millis(100);
    assert!(matches!(cache.balance(later, writers[1], 1), Balance::Sleep { .. }));
    cache.written(Time(0), files[0], 0..600);
    cache.written(Time(0), files[1], 0..600);
    assert_eq!(cache.balance(later, writers[1], 1), Balance::Continue);
    cache.set_congested(bdi, true);
    cache.set_congested(bdi, false);
    assert_eq!(cache.wake(), None);
}

#[test]
fn the_older_flusher_goes_around_a_full_queue() {
    let (mut cache, bdi, files, writer) = cache(Kernel::V2_6_24, 1, 25_600);
    write(&mut cache, Time(0), writer, files[0], 0..3000);
    let old = Time(0) + Span::secs(31);
    let Flush::Write(out) = cache.flush(old, bdi, 100) else { panic!("it is old") };
    assert_eq!((out.reason, out.pages), (Reason::Periodic, 0..100));
    cache.set_congested(bdi, true);
    let until = Some(old + Span::millis(100));
    assert_eq!(cache.flush(old, bdi, 100), Flush::Sleep { until, or_uncongested: true });
    while cache.wake().is_some() {}
    cache.set_congested(bdi, false);
    assert_eq!(cache.wake(), Some(Wake::Flusher(bdi)));
    let Flush::Write(out) = cache.flush(old, bdi, 100) else { panic!("there is room again") };
    assert_eq!(out.pages, 100..200);
}

#[test]
fn a_sync_leaves_alone_what_comes_after_it_and_writes_a_changed_page_again() {
    let (mut cache, bdi, files, writer) = cache(Kernel::V3_1, 1, 25_600);
    let file = files[0];
    write(&mut cache, Time(0), writer, file, 0..10);
    let Flush::Write(out) = ({
        cache.sync(Time(0), bdi);
        cache.flush(Time(0), bdi, 4)
    }) else {
        panic!("there is something to sync")
    };
    assert_eq!(out.pages, 0..4);
    write(&mut cache, Time(0), writer, file, 2..3);
    let mut fsync = cache.fsync(file, 0..u64::MAX);
    write(&mut cache, Time(0), writer, file, 50..60);
    // Page 2 is marked, and its earlier write is still in flight.
    assert_eq!(cache.fsync_step(&mut fsync, 100), SyncStep::Wait);
    cache.written(Time(0), file, 0..4);
    while let Some(wake) = cache.wake() {
        assert!(matches!(wake, Wake::Inode(_) | Wake::Flusher(_)));
    }
    let mut written = Vec::new();
    while let SyncStep::Write(out) = cache.fsync_step(&mut fsync, 100) {
        written.push(out.pages);
    }
    assert_eq!(written, [2..3, 4..10]);
    assert_eq!(cache.fsync_step(&mut fsync, 100), SyncStep::Wait);
    cache.written(Time(0), file, 4..10);
    assert_eq!(cache.wake(), Some(Wake::Inode(file)));
    assert_eq!(cache.fsync_step(&mut fsync, 100), SyncStep::Wait);
    cache.written(Time(0), file, 2..3);
    assert_eq!(cache.fsync_step(&mut fsync, 100), SyncStep::Done);
    assert_eq!(cache.inode_counts(file), Counts { dirty: 10, writeback: 0 });
}

#[test]
fn a_sync_waits_for_a_page_once() {
    let (mut cache, bdi, files, writer) = cache(Kernel::V3_1, 1, 25_600);
    let file = files[0];
    write(&mut cache, Time(0), writer, file, 0..60);
    let mut fsync = cache.fsync(file, 0..u64::MAX);
    assert!(matches!(cache.fsync_step(&mut fsync, 100), SyncStep::Write(_)));
    cache.written(Time(0), file, 0..50);
    assert_eq!(cache.fsync_step(&mut fsync, 100), SyncStep::Wait);
    // A write to a page behind the page that the fsync waits for does not delay the fsync.
    write(&mut cache, Time(0), writer, file, 3..4);
    cache.sync(Time(0), bdi);
    assert_eq!(runs(&flush_all(&mut cache, Time(0), bdi).0), [(file, 3..4)]);
    cache.written(Time(0), file, 50..60);
    assert_eq!(cache.fsync_step(&mut fsync, 100), SyncStep::Done);
}

#[test]
fn a_sync_of_a_device_goes_through_its_files_from_their_starts() {
    for kernel in [Kernel::V2_6_24, Kernel::V3_1] {
        let (mut cache, bdi, files, writer) = cache(kernel, 1, 25_600);
        for round in [vec![100..200, 300..301], vec![20..30, 400..410]] {
            for range in &round {
                write(&mut cache, Time(0), writer, files[0], range.clone());
            }
            cache.sync(Time(0), bdi);
            let outs = flush_all(&mut cache, Time(0), bdi).0;
            assert_eq!(outs.into_iter().map(|out| out.pages).collect::<Vec<_>>(), round);
        }
    }
}

#[test]
fn background_work_of_2_6_24_goes_on_at_the_threshold_itself() {
    let (mut cache, bdi, files, writer) = cache(Kernel::V2_6_24, 1, 4096);
    cache.set_limits(Amount::Bytes(4096 * PAGE_BYTES), Amount::Bytes(1964 * PAGE_BYTES));
    write(&mut cache, Time(0), writer, files[0], 0..3000);
    let outs = flush_all(&mut cache, Time(0), bdi).0;
    // After the first pass 1,964 pages are left.
    assert_eq!(runs(&outs), [(files[0], 0..1036), (files[0], 1036..2072)]);
}

#[test]
fn a_removed_file_is_not_written_and_one_that_is_cut_only_before_the_cut() {
    let (mut cache, bdi, files, writer) = cache(Kernel::V3_1, 2, 25_600);
    write(&mut cache, Time(0), writer, files[0], 0..100);
    write(&mut cache, Time(0), writer, files[1], 0..100);
    let Flush::Write(out) = ({
        cache.sync(Time(0), bdi);
        cache.flush(Time(0), bdi, 10)
    }) else {
        panic!("there is something to sync")
    };
    assert_eq!((out.inode, out.pages), (files[0], 0..10));
    assert_eq!(cache.remove(files[0]), Discarded { dirty: 90, under_writeback: 10 });
    assert_eq!(cache.truncate(files[1], 30), Discarded { dirty: 70, under_writeback: 0 });
    assert_eq!(cache.under_writeback(files[1], 0..30), None);
    let rest = flush_all(&mut cache, Time(0), bdi).0;
    assert_eq!(runs(&rest), [(files[1], 0..30)]);
    assert_eq!(cache.under_writeback(files[1], 7..30), Some(7));
    assert_ne!(cache.add_inode(bdi), files[0], "a write of it is on its way");
    cache.written(Time(0), files[0], 0..10);
    assert_eq!(cache.add_inode(bdi), files[0]);
}

#[test]
fn two_gibibytes_page_by_page() {
    // The run time of this test is the cost of the page cache in a simulation of patch 000; the
    // report of the change that introduced it has the figure.
    let (mut cache, bdi, files, writer) = cache(Kernel::V3_1, 1, 25_600);
    let (mut now, mut done) = (Time(0), 0);
    let mut page = 0;
    while page < 1 << 19 {
        let written = cache.write(now, writer, files[0], page..page + 1);
        page += 1;
        now = now + Span(4_000);
        let mut balance = written.balance;
        while balance {
            match cache.balance(now, writer, 1) {
                Balance::Continue => balance = false,
                Balance::Sleep { until, .. } => now = until,
                Balance::Write(out) => {
                    done += 1;
                    cache.written(Time(0), out.inode, out.pages);
                }
            }
        }
        if cache.wake().is_some() {
            while let Flush::Write(out) = cache.flush(now, bdi, 1) {
                done += 1;
                cache.written(Time(0), out.inode, out.pages);
            }
        }
    }
    let left = cache.pool().counts();
    assert_eq!(done + left.dirty, 1 << 19);
    assert!(left.total() < 25_600);
}

#[test]
fn a_flusher_waits_for_anothers_turn_and_is_woken_when_that_ends() {
    let (mut cache, files, writers) = two_over_the_limit(Kernel::V3_1);
    let bdi = BdiId(0);
    let next = |cache: &mut PageCache, completion: usize| match cache.balance(
        Time(0),
        writers[completion],
        2000,
    ) {
        Balance::Write(out) => Some(out.inode),
        Balance::Continue | Balance::Sleep { .. } => None,
    };
    assert_eq!(next(&mut cache, 0), Some(files[0]));
    assert_eq!(next(&mut cache, 1), Some(files[1]));
    while cache.wake().is_some() {}
    // Writers have their turns on both files, so nothing is left for the flusher.
    cache.sync(Time(0), bdi);
    assert_eq!(cache.wake(), Some(Wake::Flusher(bdi)));
    let asleep = Flush::Sleep { until: None, or_uncongested: false };
    assert_eq!(cache.flush(Time(0), bdi, 100), asleep);
    assert_eq!(cache.wake(), None);
    assert_eq!(next(&mut cache, 0), None, "600 pages were all there was");
    assert_eq!(cache.wake(), Some(Wake::Flusher(bdi)));
    let Flush::Sleep { until, .. } = cache.flush(Time(0), bdi, 100) else { panic!("all is clean") };
    assert_eq!(until, None, "the other file still has a turn on it");
    assert_eq!(next(&mut cache, 1), None);
    while cache.wake().is_some() {}
    cache.flush(Time(0), bdi, 100);
    assert_eq!(cache.wake(), Some(Wake::Synced(bdi)));
}

#[test]
fn a_sync_of_a_device_in_3_1_writes_what_was_dirty_when_its_turn_came() {
    let (mut cache, bdi, files, writer) = cache(Kernel::V3_1, 1, 25_600);
    write(&mut cache, Time(0), writer, files[0], 10..20);
    cache.sync(Time(0), bdi);
    let Flush::Write(first) = cache.flush(Time(0), bdi, 4) else { panic!("it is dirty") };
    assert_eq!(first.pages, 10..14);
    let later = Time(0) + SECOND;
    write(&mut cache, later, writer, files[0], 16..30);
    let rest = flush_all(&mut cache, later, bdi).0;
    assert_eq!(runs(&rest), [(files[0], 14..20)]);
    while let Some(wake) = cache.wake() {
        assert!(matches!(wake, Wake::Flusher(_) | Wake::Synced(_)));
    }
    assert_eq!(cache.inode_counts(files[0]), Counts { dirty: 10, writeback: 10 });
}

#[test]
fn background_work_is_started_by_a_writer_and_gives_way_to_a_sync() {
    let (mut cache, bdi, files, writer) = cache(Kernel::V3_1, 1, 81_920);
    // More than 40,960 pages are dirty, but fewer than 61,440 (half-way), so the writer continues.
    write(&mut cache, Time(0), writer, files[0], 0..55_000);
    let wakes = std::iter::from_fn(|| cache.wake()).collect::<Vec<_>>();
    assert!(wakes.len() > 1 && wakes.iter().all(|wake| *wake == Wake::Flusher(bdi)), "{wakes:?}");
    let Flush::Write(out) = cache.flush(Time(0), bdi, 100) else { panic!("it was kicked") };
    assert_eq!((out.reason, out.pages), (Reason::Background, 0..100));
    cache.sync(Time(0), bdi);
    // The turn is finished first: min(12,800, 10,240) + 1,024 pages.
    let outs = flush_all(&mut cache, Time(0), bdi).0;
    let written: Vec<_> = outs.into_iter().map(|out| (out.reason, out.pages)).collect();
    let expected = [(Reason::Background, 100..11_264), (Reason::Sync, 11_264..55_000)];
    assert_eq!(written, expected);
}

#[test]
fn a_pass_of_3_1_that_wrote_ends_after_100_ms_and_one_of_2_6_24_with_its_budget() {
    // Background work of 3.1 runs above 2,048 pages, and 2,000 are dirty after the first file. At
    // 36 s all files are old enough for periodic work, which 2.6.24 does in passes of 1,024 pages,
    // 14 at a time.
    for (kernel, start, millis, second) in [
        (Kernel::V3_1, 6, 100, Some(0..1000)),
        (Kernel::V3_1, 6, 104, None),
        (Kernel::V2_6_24, 36, 100, Some(0..28)),
        (Kernel::V2_6_24, 36, 104, Some(0..28)),
    ] {
        let start = Time(0) + Span::secs(start);
        let (mut cache, bdi, files, writer) = cache(kernel, 3, 4096);
        for (file, second) in [(1, 1), (2, 2), (0, 3)] {
            write(&mut cache, Time(0) + Span::secs(second), writer, files[file], 0..1000);
        }
        let Flush::Write(first) = cache.flush(start, bdi, u64::MAX) else { panic!("{kernel:?}") };
        assert_eq!((first.inode, first.pages), (files[1], 0..1000), "{kernel:?}");
        let next = match cache.flush(start + Span::millis(millis), bdi, u64::MAX) {
            Flush::Write(out) => Some((out.inode, out.pages)),
            Flush::Sleep { .. } => None,
        };
        let expected = second.map(|pages| (files[2], pages));
        assert_eq!(next, expected, "{kernel:?} {millis} ms");
    }
}

#[test]
fn limits_change_at_once_by_hand_and_slowly_by_memory() {
    let mut cache = PageCache::new(PoolConfig::new(Kernel::V3_1, 1, 1 << 20, 1 << 20));
    assert_eq!(cache.pool().limit(), (1 << 20) / 5);
    cache.set_dirtyable(100_000);
    assert_eq!(cache.pool().thresholds(), Thresholds { background: 10_000, dirty: 20_000 });
    assert_eq!(cache.pool().limit(), (1 << 20) / 5, "no writer was throttled since");
    cache.set_limits(Amount::Bytes(4096 * 1000), Amount::Bytes(1));
    assert_eq!(cache.pool().thresholds(), Thresholds { background: 1, dirty: 1000 });
    assert_eq!(cache.pool().limit(), 1000);
}

#[test]
#[should_panic(expected = "the reserves of all devices are below 100 %")]
fn devices_cannot_reserve_all() {
    let (mut cache, bdi, _, _) = cache(Kernel::V3_1, 1, 256);
    cache.set_ratios(bdi, BdiRatios { min: 100, ..BdiRatios::default() });
}

/// New limits put 100 dirty pages above or below the background threshold.
#[test]
fn a_flusher_that_is_woken_after_a_change_works_only_above_the_background_limit() {
    for (limit, works) in [(256, false), (200, false), (198, true)] {
        let (mut cache, bdi, files, writer) = cache(Kernel::V2_6_24, 1, 256);
        cache.dirty(Time(0), writer, files[0], 0..100);
        while cache.wake().is_some() {}
        assert_eq!(flush_all(&mut cache, Time(0), bdi).0, []);
        cache.set_limits(Amount::Bytes(limit * PAGE_BYTES), Amount::Percent(10));
        cache.wake_flushers();
        assert_eq!(cache.wake(), Some(Wake::Flusher(bdi)));
        assert_eq!(!flush_all(&mut cache, Time(0), bdi).0.is_empty(), works, "{limit}");
    }
}

#[test]
fn dirtying_no_page_starts_no_timer() {
    let (mut cache, bdi, files, writer) = cache(Kernel::V3_1, 1, 256);
    assert_eq!(cache.dirty(Time(0), writer, files[0], 5..5), 0);
    assert_eq!((cache.wake(), flush_all(&mut cache, Time(0), bdi)), (None, (vec![], None)));
}

#[test]
fn a_file_has_marked_pages_until_they_are_taken() {
    let (mut cache, _, files, writer) = cache(Kernel::V3_1, 1, 256);
    cache.dirty(Time(0), writer, files[0], 0..4);
    assert!(!cache.has_marked(files[0]));
    cache.mark(files[0], &(1..3));
    assert!(cache.has_marked(files[0]));
    assert_eq!(cache.take_marked(files[0], 0..4, 9), Some(1..3));
    assert!(!cache.has_marked(files[0]));
}

/// A cache under [`Kernel::Weft`] with two devices, each with a file.
fn two_devices(limit_pages: u64) -> (PageCache, [BdiId; 2], [InodeId; 2], WriterId) {
    let (mut cache, one, files, writer) = cache(Kernel::Weft, 1, limit_pages);
    let other = cache.add_bdi(Time(0));
    let file = cache.add_inode(other);
    (cache, [one, other], [files[0], file], writer)
}

/// The background limit of 512 pages is divided between both devices.
#[test]
fn a_flusher_is_called_once_when_its_device_exceeds_its_part() {
    let (mut cache, bdis, files, writer) = two_devices(1024);
    cache.dirty(Time(0), writer, files[0], 0..1);
    cache.dirty(Time(0), writer, files[1], 0..1);
    while cache.wake().is_some() {}
    cache.dirty(Time(0), writer, files[1], 1..256);
    assert_eq!(cache.wake(), None, "half of 512");
    cache.dirty(Time(0), writer, files[1], 256..257);
    assert_eq!(cache.wake(), Some(Wake::Flusher(bdis[1])));
    cache.dirty(Time(0), writer, files[1], 257..258);
    assert_eq!(cache.wake(), None, "it was called");
    let (outs, _) = flush_all(&mut cache, Time(0), bdis[1]);
    assert!(!outs.is_empty());
    assert_eq!(flush_all(&mut cache, Time(0), bdis[0]).0, []);
}

/// A writer is charged for pages that it dirtied earlier as for pages that it writes.
#[test]
fn a_charge_ends_with_the_last_credit_as_a_write_does() {
    let until_balance = |charges: bool| {
        let (mut cache, _, files, writer) = cache(Kernel::Weft, 1, 256);
        let mut pages = 0;
        loop {
            let written = if charges {
                cache.dirty(Time(0), writer, files[0], pages..pages + 1);
                cache.charge(Time(0), writer, files[0], 1)
            } else {
                cache.write(Time(0), writer, files[0], pages..pages + 1)
            };
            assert_eq!(written.pages, 1);
            pages += 1;
            if written.balance {
                return pages;
            }
        }
    };
    assert_eq!(until_balance(true), until_balance(false));
}

/// 3.1 measures the bandwidth when a limit is exceeded; 2.6.24 has none.
#[test]
fn a_writer_of_3_1_that_exceeds_a_limit_measures_the_bandwidth() {
    for kernel in [Kernel::V2_6_24, Kernel::V3_1] {
        let (mut cache, _, writers) = two_over_the_limit(kernel);
        let before = cache.pool().bandwidth(BdiId(0)).pages_per_second();
        let later = Time(0) + Span::millis(500);
        assert!(matches!(cache.balance(later, writers[0], 64), Balance::Write(_)));
        let after = cache.pool().bandwidth(BdiId(0)).pages_per_second();
        assert_eq!(after != before, kernel == Kernel::V3_1, "{kernel:?}");
    }
}
