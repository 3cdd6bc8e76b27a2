//! FUSE port: errors that only a planted fault makes. What programs do with the file is tested with
//! the command line (`fuse_export.rs` of weft-cli).

mod common;

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::sync::mpsc;
use std::time::Duration;

use common::{Server, panics_after_20_submits};
use rustix::io::Errno;
use weft_export::{ExitState, Listen};

/// Panic in a worker (F27): requests that arrive later get errors too, though the engine answers
/// nothing any more.
#[test]
fn after_a_panic_nothing_is_acknowledged_and_nothing_hangs() {
    if let Err(error) = weft_fuse::permitted() {
        return weft_testing::skip(&error.to_string());
    }
    let listen = |path: &std::path::Path| vec![Listen::Fuse { path: path.join("v.img") }];
    let server = Server::start_changed(panics_after_20_submits, listen, |_| ());
    let path = server.ready.files[0].clone();
    let (sender, receiver) = mpsc::channel();
    std::thread::spawn(move || {
        let file = File::options().read(true).write(true).open(path).unwrap();
        let results: Vec<_> = (0..40).map(|at| file.write_at(&[1; 4096], at * 4096)).collect();
        let read = file.read_at(&mut [0; 100], 7).map(|_| 0);
        let synced = file.sync_all().map(|()| 0);
        sender.send((results, [read, synced])).unwrap();
    });
    let (written, others) = receiver.recv_timeout(Duration::from_secs(30)).expect("answers");
    let is_io = |result: &std::io::Result<usize>| match result {
        Ok(_) => false,
        Err(error) => Errno::from_io_error(error) == Some(Errno::IO),
    };
    assert!(written[..20].iter().all(Result::is_ok), "{written:?}");
    assert!(written[20..].iter().chain(&others).all(is_io), "{written:?} {others:?}");
    assert!(server.status().poisoned);
    match server.stop() {
        ExitState::Poisoned(text) => assert!(text.contains("planted panic"), "{text}"),
        other => panic!("{other:?}"),
    }
}
