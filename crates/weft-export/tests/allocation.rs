//! Tests of holes: where they are, that they read as zeroes, and how they are made.

#![allow(clippy::cast_possible_truncation, reason = "small numbers of a test")]

mod common;

use common::{Client, Server, array_files, array_files_of, assembled, bare, pattern, raid5};
use weft_export::control::Command;
use weft_export::{ExitState, Source};
use weft_nbd::{EXTENTS_MAX, Extent, Op};
use weft_ondisk::Level;
use weft_runtime::Backend;
use weft_runtime::devices::{Access, MemberSpec, OpenOptions};
use weft_units::rng::Rng;
use weft_units::{MemberIndex, Sectors};

const MIB: u64 = 1 << 20;

/// A file of 8 MiB with data from 2 to 3 MiB and at its end.
fn sparse_file(dir: &std::path::Path) -> Source {
    let path = dir.join("sparse");
    let file = std::fs::File::create(&path).unwrap();
    file.set_len(8 << 20).unwrap();
    for (at, len) in [(2 << 20, 1 << 20), ((8 << 20) - 65_536, 65_536)] {
        std::os::unix::fs::FileExt::write_all_at(&file, &pattern(3, len), at).unwrap();
    }
    file.sync_all().unwrap();
    let spec = MemberSpec::path(&path);
    let member = OpenOptions::new(Access::ReadWrite).open(&spec, MemberIndex(0), []).unwrap();
    Source::Bare {
        member: Box::new(member),
        read_only: false,
        knobs: Box::default(),
        write_back: None,
    }
}

#[test]
fn holes_of_a_bare_file_are_told_and_read_as_zeroes() {
    for backend in [Backend::Auto, Backend::Threads] {
        let server = Server::start(sparse_file, backend);
        let mut client = server.client();
        assert!(client.connection.export().has_allocation());
        let (hole, data) = (Extent::hole, Extent::data);
        let tail = 65_536;
        let whole = [hole(2 * MIB), data(MIB), hole(5 * MIB - tail), data(tail)];
        assert_eq!(client.map(0, 8 * MIB), whole);
        assert_eq!(client.map(MIB, 3 * MIB / 2), [hole(MIB), data(MIB / 2)]);
        let one = Op::BlockStatus { offset: 0, len: 8 * MIB, one: true };
        client.call(one, &[]).unwrap();
        assert_eq!(client.extents, [hole(2 * MIB)]);
        // Reads that are long and short, in a hole, across its end, and with `DF` set.
        assert!(client.read(0, 2 << 20).unwrap() == vec![0; 2 << 20]);
        assert!(client.read(4096, 4096).unwrap() == vec![0; 4096]);
        let both = client.read(MIB, 2 << 20).unwrap();
        assert!(both[..1 << 20] == vec![0; 1 << 20] && both[1 << 20..] == pattern(3, 1 << 20));
        let in_one = Op::Read { offset: 0, len: 1 << 20, df: true };
        assert!(client.call(in_one, &[]).unwrap() == vec![0; 1 << 20]);
        client.call(Op::Cache { offset: 0, len: 8 * MIB }, &[]).unwrap();
        drop(client);
        server.settled();
        assert_eq!(server.stop(), ExitState::Clean);
    }
}

#[test]
fn holes_are_made_by_trim_and_by_zeroes_that_need_not_be_stored() {
    let file: fn(&std::path::Path) -> Source = sparse_file;
    for memory in [false, true] {
        let server = match memory {
            false => Server::start(file, Backend::Auto),
            true => Server::start(bare("8M"), Backend::Auto),
        };
        let mut client = server.client();
        let bytes = pattern(9, 8 << 20);
        client.write(0, &bytes).unwrap();
        assert_eq!(client.map(0, 8 * MIB), [Extent::data(8 * MIB)]);
        client.call(Op::Trim { offset: 1 << 20, len: MIB, fua: true }, &[]).unwrap();
        let zeroes = |offset: u64, no_hole| Op::WriteZeroes {
            offset,
            len: MIB,
            fua: false,
            no_hole,
            fast: false,
        };
        client.call(zeroes(3 << 20, false), &[]).unwrap();
        client.call(zeroes(5 << 20, true), &[]).unwrap();
        let (hole, data) = (Extent::hole(MIB), Extent::data);
        let expected = [data(MIB), hole, data(MIB), hole, data(4 * MIB)];
        assert_eq!(client.map(0, 8 * MIB), expected);
        let mut image = bytes;
        for at in [1_usize, 3, 5] {
            image[at << 20..(at + 1) << 20].fill(0);
        }
        // Another client, on another worker.
        assert!(server.client().read(0, 8 << 20).unwrap() == image);
        drop(client);
        server.settled();
        assert_eq!(server.stop(), ExitState::Clean);
    }
}

/// A hole of an array reads as zeroes, and written data is never reported as a hole: over random
/// writes, all levels, with a member missing or replaced.
#[test]
fn holes_of_an_array_are_those_of_every_member() {
    for (level, count) in [
        (Level::Raid5, 3),
        (Level::Raid6, 5),
        (Level::Raid4, 4),
        (Level::Linear, 2),
        (Level::Raid0, 3),
        (Level::Raid1, 2),
        (Level::Raid10, 4),
        (Level::Raid10, 3),
    ] {
        // Levels without parity only take whole blocks.
        let block = if level.parity_count() > 0 { 1 } else { 512 };
        for missing in [false, true] {
            if missing && !level.uses_size() {
                continue;
            }
            let source = move |dir: &std::path::Path| {
                let mut specs = array_files(dir, level, count);
                if missing {
                    specs.remove(1);
                }
                assembled(&specs, 2048, 4 << 20)
            };
            let server = Server::start(source, Backend::Auto);
            let mut client = server.client();
            let size = client.size();
            assert_eq!(map_all(&mut client, size), vec![true; (size / 512) as usize]);
            let mut random = Rng::new(11);
            let mut image = vec![0; size as usize];
            for round in 0..10 {
                let len = 1 + random.below([600, 90_000][round % 2]) as usize;
                let len = len.next_multiple_of(block);
                let offset = random.below(size - len as u64) as usize / block * block;
                let bytes = pattern(round as u64, len);
                client.write(offset as u64, &bytes).unwrap();
                image[offset..offset + len].copy_from_slice(&bytes);
                let holes = map_all(&mut client, size);
                for (sector, hole) in image.chunks(512).zip(&holes) {
                    assert!(!hole || sector.iter().all(|byte| *byte == 0));
                }
                // Some holes must be reported, or the test would prove nothing.
                assert!(round > 3 || holes.contains(&true), "round {round}");
            }
            for (at, chunk) in image.chunks(1 << 20).enumerate() {
                let found = client.read((at as u64) << 20, chunk.len() as u32).unwrap();
                assert!(found == chunk, "MiB {at}");
            }
            drop(client);
            server.settled();
            assert_eq!(server.stop(), ExitState::Clean);
        }
    }
}

/// A reshape to another chunk moves the data on all members and leaves the size as it is.
#[test]
fn after_a_reshape_no_data_counts_as_a_hole() {
    let source =
        |dir: &std::path::Path| assembled(&array_files(dir, Level::Raid5, 3), 8192, 16 << 20);
    let server = Server::start(source, Backend::Auto);
    let chunk = Some(32 << 10);
    let grow = Command::Grow { raid_devices: None, layout: None, chunk, size: None };
    assert!(server.control().command(grow).unwrap().ok);
    while server.status().volumes[0].reshape.is_some() {
        std::thread::sleep(std::time::Duration::from_millis(5));
    }
    let mut client = server.client();
    let mut image = pattern(5, client.size() as usize);
    for (at, bytes) in image.chunks(1 << 20).enumerate() {
        client.write((at as u64) << 20, bytes).unwrap();
    }
    client.flush().unwrap();
    let (trimmed, len) = (20 << 20, 8 << 20);
    client.call(Op::Trim { offset: trimmed as u64, len: len as u64, fua: true }, &[]).unwrap();
    image[trimmed..trimmed + len].fill(0);
    let holes = map_all(&mut client, image.len() as u64);
    for ((sector, hole), at) in image.chunks(512).zip(&holes).zip(0..) {
        assert!(!hole || sector.iter().all(|byte| *byte == 0), "sector {at}");
    }
    for (at, bytes) in image.chunks(1 << 20).enumerate() {
        let found = client.read((at as u64) << 20, bytes.len() as u32).unwrap();
        assert!(found == bytes, "MiB {at}");
    }
    drop(client);
    server.settled();
    assert_eq!(server.stop(), ExitState::Clean);
}

/// Sectors allocated in the files of an array's members.
fn stored(dir: &std::path::Path, count: u8) -> u64 {
    let path = |number: u8| dir.join(format!("m{number}"));
    let blocks = |path: std::path::PathBuf| {
        std::os::unix::fs::MetadataExt::blocks(&std::fs::metadata(path).unwrap())
    };
    (0..count).map(path).map(blocks).sum()
}

/// Trim and zeroes on arrays: every member deallocates full stripes, adjacent data stays, and
/// parity is right, also with a member missing.
#[test]
fn an_array_gives_back_full_stripes() {
    for (level, count, missing) in [
        (Level::Raid5, 3, None),
        (Level::Raid6, 5, None),
        (Level::Raid4, 4, None),
        (Level::Raid6, 5, Some(2)),
    ] {
        let (sender, dir) = std::sync::mpsc::channel();
        let source = move |dir: &std::path::Path| {
            sender.send(dir.to_owned()).unwrap();
            let mut specs = array_files(dir, level, count);
            if let Some(missing) = missing {
                specs.remove(missing);
            }
            assembled(&specs, 8192, 16 << 20)
        };
        let server = Server::start(source, Backend::Auto);
        let dir = dir.recv().unwrap();
        let mut client = server.client();
        let parities = if level == Level::Raid6 { 2 } else { 1 };
        let full_stripe = 65_536 * u64::from(count - parities);
        let mut image = pattern(5, client.size() as usize);
        for (at, bytes) in image.chunks(1 << 20).enumerate() {
            client.write((at as u64) << 20, bytes).unwrap();
        }
        client.flush().unwrap();
        let before = stored(&dir, count);
        // Full stripes 1 to 19, with partial stripes at both ends that a trim keeps; then full
        // stripe 30 alone by a write of zeroes, which stores zeros in the partial stripes.
        let (trimmed, edge) = (full_stripe - 4096, 8192);
        let trim = Op::Trim { offset: trimmed, len: 19 * full_stripe + edge, fua: true };
        client.call(trim, &[]).unwrap();
        image[full_stripe as usize..20 * full_stripe as usize].fill(0);
        let (offset, len) = (30 * full_stripe - 512, full_stripe + 1024);
        client.zero(offset, len).unwrap();
        image[offset as usize..(offset + len) as usize].fill(0);
        // Less than a full stripe: a trim may be ignored.
        client
            .call(Op::Trim { offset: 25 * full_stripe + 1, len: full_stripe, fua: false }, &[])
            .unwrap();
        for (at, bytes) in image.chunks(1 << 20).enumerate() {
            let found = client.read((at as u64) << 20, bytes.len() as u32).unwrap();
            assert!(found == bytes, "{level} {missing:?}: MiB {at}");
        }
        client.flush().unwrap();
        let members = u64::from(count) - missing.iter().len() as u64;
        let saved = before - stored(&dir, count);
        // With a member missing, zeros are stored. A file with more holes needs a block or two for
        // its own metadata.
        let full_stripes_discarded = if missing.is_none() { 20 } else { 19 };
        assert!(
            saved + members * 16 >= members * full_stripes_discarded * 128,
            "{level}: {saved} sectors of {before} saved"
        );
        let holes = map_all(&mut client, image.len() as u64);
        let sectors = (full_stripe / 512) as usize;
        for (number, full_stripes) in holes.chunks(sectors).enumerate() {
            let expected = (1..20).contains(&number) || (missing.is_none() && number == 30);
            assert!(
                full_stripes.iter().all(|hole| *hole == expected),
                "{level}: full stripe {number}"
            );
        }
        if missing.is_none() {
            assert_eq!(mismatches(&server), 0);
        }
        drop(client);
        server.settled();
        assert_eq!(server.stop(), ExitState::Clean);
    }
}

/// Requests longer than 4 GiB: one trim and one query of a whole array.
#[test]
fn extended_headers_carry_long_ranges() {
    let size = Sectors(3 << 21);
    let source = move |dir: &std::path::Path| {
        assembled(&array_files_of(dir, Level::Raid5, 3, size), 2048, 4 << 20)
    };
    let server = Server::start(source, Backend::Auto);
    let mut client = Client::extended(&server.socket());
    assert!(client.connection.is_extended());
    let size = client.size();
    assert!(size > 5 << 30, "{size}");
    let places = [0, 3 << 30, size - 8192];
    for at in places {
        client.write(at, &pattern(at + 1, 8192)).unwrap();
    }
    // Each of the three writes makes its full stripe data: two chunks.
    let data: u64 = client.map(0, size).iter().filter(|extent| !extent.hole).map(|e| e.len).sum();
    assert_eq!(data, 3 * 2 * 65_536);
    client.call(Op::Cache { offset: 0, len: size }, &[]).unwrap();
    client.call(Op::Trim { offset: 512, len: size - 512, fua: true }, &[]).unwrap();
    let full_stripe = 2 * 65_536;
    assert_eq!(client.map(0, size), [Extent::data(full_stripe), Extent::hole(size - full_stripe)]);
    client.zero(0, size).unwrap();
    assert_eq!(client.map(0, size), [Extent::hole(size)]);
    for at in places {
        assert!(client.read(at, 8192).unwrap() == vec![0; 8192], "{at}");
    }
    drop(client);
    server.settled();
    assert_eq!(server.stop(), ExitState::Clean);
}

/// Full stripes with a little data each merge to one extent, yet members are queried for every one.
/// A query of all of a large array would keep all other clients waiting, so it is answered in part,
/// and the client repeats it for the rest.
#[test]
fn one_look_at_many_full_stripes_ends_before_the_last() {
    let full_stripes = EXTENTS_MAX as u64 + 50;
    let source = move |dir: &std::path::Path| {
        let size = Sectors(128 * (full_stripes + 64) + (8 << 11));
        assembled(&array_files_of(dir, Level::Raid5, 3, size), 2048, 4 << 20)
    };
    let server = Server::start(source, Backend::Auto);
    let mut client = Client::extended(&server.socket());
    let full_stripe = 2 * 65_536;
    for number in 0..full_stripes {
        client.write(number * full_stripe, &pattern(number + 1, 4096)).unwrap();
    }
    // 256 looks, one at each of three members per full stripe.
    let (mut at, mut looks, size, at_once) = (0, 0, client.size(), 86);
    let mut data = 0;
    while at < size {
        let extents = client.map(at, size - at);
        let told: u64 = extents.iter().map(|extent| extent.len).sum();
        assert!(told <= at_once * full_stripe || extents.last().unwrap().hole, "{told}");
        data += extents.iter().filter(|extent| !extent.hole).map(|extent| extent.len).sum::<u64>();
        (at, looks) = (at + told, looks + 1);
    }
    assert_eq!(
        (at, looks, data),
        (size, full_stripes.div_ceil(at_once), full_stripes * full_stripe)
    );
    drop(client);
    server.settled();
    assert_eq!(server.stop(), ExitState::Clean);
}

/// Value of `mismatch_cnt` after a check.
fn mismatches(server: &Server) -> u64 {
    let mut control = server.control();
    let check = Command::sync_action("check");
    assert!(control.command(check).unwrap().ok);
    loop {
        let status = server.status();
        let volume = &status.volumes[0];
        if volume.sync_action == "idle" && volume.sync_stripes > 0 {
            return volume.mismatch_cnt;
        }
        std::thread::sleep(std::time::Duration::from_millis(5));
    }
}

/// Whether each sector is a hole. Asserts that the extents fill the export without a gap.
fn map_all(client: &mut Client, size: u64) -> Vec<bool> {
    let mut holes = Vec::new();
    let mut at = 0;
    while at < size {
        let len = (size - at).min(7 << 20);
        let extents = client.map(at, len);
        let told: u64 = extents.iter().map(|extent| extent.len).sum();
        assert!(told > 0 && told <= len);
        for extent in extents {
            assert_eq!(extent.hole, extent.zero);
            holes.extend(std::iter::repeat_n(extent.hole, extent.len as usize / 512));
        }
        at += told;
    }
    assert_eq!(at, size);
    holes
}

/// Overlapping trims wait for each other and take no memory of their own. Only some are taken at a
/// time, and all of them are answered, with the writes between them.
#[test]
fn a_thousand_overlapping_trims_are_answered_in_order_of_what_they_cover() {
    let server = Server::start(raid5(1024, 16 << 20), Backend::Auto);
    let mut client = server.client();
    let size = client.size();
    let bytes = pattern(3, 4096);
    let mut waiting = std::collections::BTreeSet::new();
    for number in 0..1000u64 {
        // More than the server takes at a time, and fewer than the replies that a socket holds: the
        // server stops reading from a client that never reads.
        if waiting.len() >= 128 {
            let (cookie, result) = client.receive();
            assert!(waiting.remove(&cookie) && result.is_ok(), "{cookie}: {result:?}");
        }
        let offset = number % 7 * 4096;
        waiting.insert(client.send(Op::Trim { offset, len: size - offset, fua: false }, &[]));
        if number % 100 == 99 {
            waiting.insert(client.send(Op::Write { offset: 0, len: 4096, fua: false }, &bytes));
        }
    }
    while !waiting.is_empty() {
        let (cookie, result) = client.receive();
        assert!(waiting.remove(&cookie) && result.is_ok(), "{cookie}: {result:?}");
    }
    assert_eq!(client.read(0, 4096).unwrap(), bytes, "the last write is the last word");
    drop(client);
    server.settled();
    assert_eq!(server.stop(), ExitState::Clean);
}
