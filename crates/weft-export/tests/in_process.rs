//! Client in the process of the server: data, frames that it keeps, and the ends of both sides.

mod common;

use std::sync::mpsc;
use std::time::Duration;

use common::{Server, panics_after_20_submits, pattern, raid5};
use weft_export::in_process::{InProcessClient, InProcessReply, ReadData, client};
use weft_export::{ExitState, Listen, NbdListen, Source};

/// A server with a socket, and a client in this process.
fn served(
    source: impl FnOnce(&std::path::Path) -> Source + Send + 'static,
) -> (Server, InProcessClient) {
    let (end, client) = client().unwrap();
    let listen = move |path: &std::path::Path| {
        vec![Listen::Nbd(NbdListen::unix(path.join("nbd"))), Listen::InProcess(end)]
    };
    (Server::start_changed(source, listen, |_| ()), client)
}

fn bytes_of(data: &ReadData) -> Vec<u8> {
    let mut bytes = vec![0; data.len()];
    assert!(data.fill(&mut bytes));
    assert!(!data.fill(&mut vec![0; data.len() + 1]), "more than there is");
    bytes
}

/// Waits for replies on another thread, so that a hang fails the test.
fn within_30_s<R: Send + 'static>(run: impl FnOnce() -> R + Send + 'static) -> R {
    let (sender, receiver) = mpsc::channel();
    std::thread::spawn(move || sender.send(run()));
    receiver.recv_timeout(Duration::from_secs(30)).expect("no hang")
}

/// Reads of many lengths, more at once than frames, return what was written. With 48 frames the
/// reads of half a MiB come in parts.
#[test]
fn reads_return_what_was_written() {
    for (frames, len) in [(600, 1 << 20), (600, 12_288), (48, 1 << 19), (48, 512)] {
        let (server, mut reader) = served(raid5(frames, 32 << 20));
        let written = pattern(1, 6 << 20);
        for (at, part) in (0..).step_by(64 << 10).zip(written.chunks(64 << 10)) {
            server.client().write(at, part).unwrap();
        }
        assert_eq!(reader.size(), server.client().size());
        let read = within_30_s(move || {
            let starts: Vec<u64> = (0..6 << 20).step_by(len).take(64).collect();
            let cookies: Vec<u32> =
                starts.iter().map(|start| reader.read(*start, len as u64)).collect();
            let mut read: Vec<(u64, Vec<u8>)> = Vec::new();
            for _ in &cookies {
                let InProcessReply { cookie, result } = reader.reply().unwrap();
                let at = cookies.iter().position(|it| *it == cookie).unwrap();
                read.push((starts[at], bytes_of(&result.unwrap())));
            }
            assert_eq!(reader.reply().unwrap_err(), "no read is open");
            read
        });
        assert!(read.len() >= 6, "{len}");
        for (start, bytes) in read {
            let start = usize::try_from(start).unwrap();
            assert!(bytes == written[start..start + len], "{frames} frames, {len} at {start}");
        }
        server.settled();
        assert_eq!(server.stop(), ExitState::Clean);
    }
}

/// Frames of replies that are kept are missing in the pool, keep their content, and return in any
/// order, also after the client.
#[test]
fn kept_frames_return_when_they_are_dropped() {
    let (server, mut reader) = served(raid5(600, 32 << 20));
    server.client().write(0, &pattern(1, 1 << 20)).unwrap();
    let mut kept = Vec::new();
    for at in 0..4 {
        reader.read(at << 16, 1 << 16);
        kept.push(reader.reply().unwrap().result.unwrap());
    }
    server.client().write(0, &pattern(2, 1 << 20)).unwrap();
    assert_eq!(server.status().frames_held, 64);
    for at in [2, 1] {
        drop(kept.remove(at));
    }
    drop(reader);
    let old = pattern(1, 1 << 20);
    assert!(bytes_of(&kept[0]) == old[..1 << 16] && bytes_of(&kept[1]) == old[3 << 16..4 << 16]);
    drop(kept);
    server.settled();
    assert_eq!(server.stop(), ExitState::Clean);
}

#[test]
fn a_read_beyond_the_end_is_an_error_and_the_next_one_is_not() {
    let (server, mut reader) = served(raid5(600, 32 << 20));
    reader.read(reader.size() - 4096, 8192);
    let error = reader.reply().unwrap().result.unwrap_err();
    assert_eq!(error.to_string(), "outside the volume");
    reader.read(reader.size() - 4096, 4096);
    assert_eq!(reader.reply().unwrap().result.unwrap().len(), 4096);
    server.settled();
}

#[test]
fn a_client_and_its_data_may_outlive_the_server() {
    let (server, mut reader) = served(raid5(600, 32 << 20));
    server.client().write(0, &pattern(1, 4096)).unwrap();
    reader.read(0, 4096);
    let kept = reader.reply().unwrap().result.unwrap();
    assert_eq!(server.stop(), ExitState::Clean);
    assert_eq!(bytes_of(&kept), pattern(1, 4096));
    reader.read(0, 4096);
    assert_eq!(within_30_s(move || reader.reply()).unwrap_err(), "the server has ended");
}

/// Reads that arrive after a panic of the engine, which answers nothing any more, get errors.
#[test]
fn after_a_panic_reads_fail_and_nothing_hangs() {
    let (server, mut reader) = served(panics_after_20_submits);
    let results = within_30_s(move || {
        let read = |at: u64| {
            reader.read(at * 4096, 4096);
            reader.reply().unwrap().result.map(|data| data.len())
        };
        (0..40).map(read).collect::<Vec<_>>()
    });
    assert!(results[..20].iter().all(Result::is_ok), "{results:?}");
    assert!(results[20..].iter().all(Result::is_err), "{results:?}");
    assert!(matches!(server.stop(), ExitState::Poisoned(_)));
}
