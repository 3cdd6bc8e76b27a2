//! `weft serve --record`: records the requests of all clients in an fio iolog.
//!
//! A separate thread takes requests from the [`Recorder`] ten times a second and appends them to
//! the log in whole lines. If the process is killed, the log is readable up to that point. The
//! volume never waits for the log. If the log's disk is too slow or out of space, requests are
//! missing: the log says so at that position, and the server reports it when it stops. When there
//! is space again, the recording continues.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

use rustix::fs::FlockOperation;
use weft_engine::RequestOp;
use weft_export::{Arrival, Recorder, VolumeRequest};
use weft_lab::replay::iolog::{Version, Writer};
use weft_lab::replay::{DeviceIndex, Devices, Flags, Op, Record};
use weft_terminal::outcome::Failure;
use weft_terminal::result_file::Output;
use weft_terminal::terminal::label;
use weft_units::{Bytes, Time};

use crate::member::MemberArg;
use crate::result_kinds::LOG;
use crate::volume::files;

/// A recording of client requests that is in progress.
pub(super) struct Recording {
    recorder: Arc<Recorder>,
    thread: JoinHandle<Totals>,
    path: PathBuf,
    /// Whether the file was created for this recording.
    created: bool,
}

/// Numbers of recorded and of lost requests, and the first error.
#[derive(Debug, Default)]
struct Totals {
    recorded: u64,
    lost: u64,
    /// First error of the file, if there was one.
    error: Option<io::Error>,
}

impl Recording {
    /// Starts a log of the volume `name`.
    ///
    /// A file that exists is overwritten only with `force`, and only if it is a log.
    pub(super) fn begin(
        path: &Path,
        force: bool,
        members: &[MemberArg],
        name: &str,
    ) -> Result<Self, Failure> {
        let label = label(path);
        let failed = |error: io::Error| Failure::failed(format!("--record {label}: {error}"));
        let (file, created) = open(path, force, members)?;
        let recorder = Arc::new(Recorder::default());
        let begun = (|| {
            file.set_len(0)?;
            let mut keeper = Keeper::new(AppendOnly { file, len: 0 }, name)?;
            keeper.write_out();
            if let Some(error) = keeper.totals.error.take() {
                return Err(error);
            }
            let (from, label) = (Arc::clone(&recorder), label.clone());
            std::thread::Builder::new()
                .name("weft-record".into())
                .spawn(move || keeper.keep(&from, &label))
        })();
        let thread = begun.map_err(|error| {
            if created {
                let _ = std::fs::remove_file(path);
            }
            failed(error)
        })?;
        Ok(Self { recorder, thread, path: path.to_owned(), created })
    }

    /// Recorder that the server is given, and that receives the requests of clients.
    pub(super) fn recorder(&self) -> Arc<Recorder> {
        Arc::clone(&self.recorder)
    }

    /// Ends the log, and reports the number of requests in it. `served` is false if the volume was
    /// never served; a file that was created for this recording is then removed.
    pub(super) fn end(self, served: bool) {
        self.recorder.end();
        let label = label(&self.path);
        let Ok(Totals { recorded, lost, error }) = self.thread.join() else {
            tracing::error!("--record {label}: the recording ended by a bug and may lack requests");
            return;
        };
        if !served && self.created {
            let _ = std::fs::remove_file(&self.path);
            return;
        }
        if lost == 0 && error.is_none() {
            tracing::info!("{label}: {recorded} requests recorded");
            return;
        }
        let why = error.map_or_else(
            || "the log could not be written as fast as they came".to_owned(),
            |error| error.to_string(),
        );
        tracing::warn!("{label}: {recorded} requests recorded, {lost} are missing: {why}");
    }
}

/// Opens and locks the file of a log without changing its content. Also returns whether the file is
/// new.
fn open(path: &Path, force: bool, members: &[MemberArg]) -> Result<(File, bool), Failure> {
    let members = &files(members);
    let asked = Output { option: "--record", path, kind: LOG, force, members };
    let (file, created) = asked.open()?;
    if rustix::fs::flock(&file, FlockOperation::NonBlockingLockExclusive).is_err() {
        return Err(Failure::refused(format!(
            "--record {}: is held by another process, which may be recording into it",
            label(path)
        )));
    }
    Ok((file, created))
}

/// Destination of the log's lines. It takes each text completely or not at all.
trait Sink {
    fn append(&mut self, text: &[u8]) -> io::Result<()>;

    /// Makes all appended text durable.
    fn sync(&mut self) -> io::Result<()>;
}

/// A file that grows by whole lines.
struct AppendOnly {
    file: File,
    len: u64,
}

impl Sink for AppendOnly {
    fn append(&mut self, text: &[u8]) -> io::Result<()> {
        let written = self.file.write_all_at(text, self.len);
        if written.is_ok() {
            self.len += text.len() as u64;
        } else {
            // A partial line would be read as a request that was never made, so it is removed.
            self.file.set_len(self.len)?;
        }
        written
    }

    fn sync(&mut self) -> io::Result<()> {
        self.file.sync_data()
    }
}

/// Converts arrivals to lines and counts recorded and lost requests.
struct Keeper<S> {
    sink: S,
    devices: Devices,
    device: DeviceIndex,
    /// Writer of the log; it holds text that was not yet appended to the file.
    log: Writer<Vec<u8>>,
    /// Number of requests in the text of `log`.
    recorded: u64,
    /// Number of missing requests that the text of `log` reports, or that the next line will
    /// report.
    lost: u64,
    totals: Totals,
}

impl<S: Sink> Keeper<S> {
    fn new(sink: S, name: &str) -> io::Result<Self> {
        let mut devices = Devices::default();
        let device = devices.intern(name).expect("the first device");
        let mut log = Writer::new(Vec::new(), Version::Three)?;
        log.open(&devices, device)?;
        Ok(Self { sink, devices, device, log, recorded: 0, lost: 0, totals: Totals::default() })
    }

    /// Records arrivals until the recorder ends. Returns the numbers of recorded and lost requests.
    fn keep(mut self, recorder: &Recorder, label: &str) -> Totals {
        let mut arrivals = Vec::new();
        loop {
            let taken = recorder.take(&mut arrivals, PATIENCE);
            let hale = self.totals.error.is_none();
            for arrival in &arrivals {
                self.add(arrival);
                if self.log.get_mut().len() >= TEXT_BYTES {
                    self.write_out();
                }
            }
            self.write_out();
            if let Some(error) = self.totals.error.as_ref().filter(|_| hale) {
                tracing::error!(
                    "--record {label}: {error}; requests are missing from here on; the volume is not \
                     concerned"
                );
            }
            self.lost += taken.lost;
            self.log.lost(taken.lost);
            if taken.ended && arrivals.is_empty() {
                return self.finish();
            }
        }
    }

    fn add(&mut self, arrival: &Arrival) {
        self.lost += arrival.lost;
        self.log.lost(arrival.lost);
        for record in records(arrival, self.device) {
            self.log.write(&self.devices, &record).expect("memory takes every line");
            self.recorded += 1;
        }
    }

    /// Appends the text of `log` to the file. If that fails, its requests are counted as lost.
    fn write_out(&mut self) {
        let text = self.log.get_mut();
        if text.is_empty() {
            return;
        }
        let appended = self.sink.append(text);
        text.clear();
        match appended {
            Ok(()) => {
                self.totals.recorded += self.recorded;
                self.totals.lost += self.lost;
                self.lost = 0;
            }
            Err(error) => {
                self.log.retract(self.device, self.recorded);
                self.log.lost(self.lost);
                self.lost += self.recorded;
                self.totals.error.get_or_insert(error);
            }
        }
        self.recorded = 0;
    }

    fn finish(mut self) -> Totals {
        let text = self.log.finish(&self.devices).expect("memory takes every line");
        let ended = self.sink.append(&text).and_then(|()| self.sink.sync());
        self.totals.lost += self.lost;
        if let Err(error) = ended {
            self.totals.error.get_or_insert(error);
        }
        self.totals
    }
}

/// Converts a request to records of the log: one for most requests.
///
/// Zeroes that need not be stored are recorded as a trim, because the volume discards them; other
/// zeroes are a write. fio reads lengths of 32 bits, so a longer trim becomes several.
fn records(arrival: &Arrival, device: DeviceIndex) -> impl Iterator<Item = Record> {
    let VolumeRequest { op, start: offset, len: length, fua, discard } = arrival.asked;
    let op = match op {
        RequestOp::Flush => Op::Flush,
        RequestOp::Read => Op::Read,
        RequestOp::Trim => Op::Discard,
        RequestOp::WriteZeroes if discard => Op::Discard,
        RequestOp::Write | RequestOp::WriteZeroes => Op::Write,
    };
    let time = Time(arrival.time.0);
    let flags = Flags { fua, ..Flags::default() };
    (0..length.div_ceil(LINE_BYTES_MAX).max(1)).map(move |part| {
        let skip = part * LINE_BYTES_MAX;
        let (offset, length) = (Bytes(offset + skip), Bytes((length - skip).min(LINE_BYTES_MAX)));
        Record { time, device, op, flags, offset, length, pid: None, latency: None }
    })
}

/// Longest wait for further requests before those that have arrived are appended to the file.
const PATIENCE: Duration = Duration::from_millis(100);
/// Size in bytes of the text of `log` at which it is appended to the file without waiting for more.
const TEXT_BYTES: usize = 256 << 10;
/// Largest request, in bytes, that one line of the log has. A longer request has several lines.
const LINE_BYTES_MAX: u64 = 1 << 31;

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Read;
    use weft_lab::replay::{ReadOptions, Trace};

    /// Disk that is full for the appends with the numbers `full`.
    struct Full<'a> {
        text: &'a mut Vec<u8>,
        appends: u32,
        full: std::ops::Range<u32>,
    }

    impl Sink for Full<'_> {
        fn append(&mut self, text: &[u8]) -> io::Result<()> {
            self.appends += 1;
            if self.full.contains(&self.appends) {
                return Err(io::ErrorKind::StorageFull.into());
            }
            self.text.extend_from_slice(text);
            Ok(())
        }

        fn sync(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    const FLUSH: VolumeRequest =
        VolumeRequest { op: RequestOp::Flush, start: 0, len: 0, fua: false, discard: false };

    fn arrival(us: u64, asked: VolumeRequest, lost: u64) -> Arrival {
        Arrival { time: Time(us * 1000), asked, lost }
    }

    fn read(text: Vec<u8>) -> (Vec<Record>, weft_lab::replay::Counts) {
        let mut trace = Trace::of_bytes("log", text, &ReadOptions::default()).unwrap();
        let all = (&mut trace).map(Result::unwrap).collect();
        (all, trace.counts().clone())
    }

    #[test]
    fn every_kind_of_request_has_its_line() {
        let (start, len) = (4096, 1_u64 << 13);
        let of = |op| VolumeRequest { op, start, len, ..FLUSH };
        let asked = [
            VolumeRequest { len: 512, fua: true, ..of(RequestOp::Write) },
            VolumeRequest { start: 0, len: 1024, ..of(RequestOp::Read) },
            FLUSH,
            VolumeRequest { len: 5 << 30, ..of(RequestOp::Trim) },
            VolumeRequest { discard: true, ..of(RequestOp::WriteZeroes) },
            of(RequestOp::WriteZeroes),
        ];
        let mut text = Vec::new();
        let mut keeper =
            Keeper::new(Full { text: &mut text, appends: 0, full: 0..0 }, "v").unwrap();
        asked.into_iter().zip(1..).for_each(|(op, us)| keeper.add(&arrival(us, op, 0)));
        keeper.write_out();
        let totals = keeper.finish();
        assert_eq!((totals.recorded, totals.lost), (8, 0));
        assert_eq!(
            std::str::from_utf8(&text).unwrap(),
            "fio version 3 iolog\n0 v add\n0 v open\n1 v write 4096 512 flags=fua\n2 v read 0 1024\n\
             3 v sync 0 0\n4 v trim 4096 2147483648\n4 v trim 2147487744 2147483648\n\
             4 v trim 4294971392 1073741824\n5 v trim 4096 8192\n6 v write 4096 8192\n\
             6 v close requests=8\n"
        );
        assert_eq!(read(text).0.len(), 8);
    }

    /// Lost requests are reported at their position, and the log stays readable.
    #[test]
    fn a_disk_without_space_leaves_a_log_that_says_what_it_lacks() {
        for full in [2..3, 3..6, 4..6, 2..9] {
            let (first, last) = (full.start, full.end);
            let mut text = Vec::new();
            let mut keeper = Keeper::new(Full { text: &mut text, appends: 0, full }, "v").unwrap();
            keeper.write_out();
            for us in 1..=7 {
                keeper.add(&arrival(us, FLUSH, u64::from(us == 4)));
                keeper.write_out();
            }
            let totals = keeper.finish();
            assert_eq!(totals.recorded + totals.lost, 8, "{totals:?}");
            assert_eq!(totals.recorded, u64::from(7 - (last.min(9) - first)), "{totals:?}");
            assert_eq!(totals.error.unwrap().kind(), io::ErrorKind::StorageFull);
            let (records, counts) = read(text);
            assert_eq!((records.len() as u64, counts.lost), (totals.recorded, totals.lost));
            assert_eq!(counts.cut_short, 0);
        }
    }

    #[test]
    fn a_file_keeps_whole_lines() {
        let file = tempfile::tempfile().unwrap();
        let mut sink = AppendOnly { file: file.try_clone().unwrap(), len: 0 };
        sink.append(b"one\n").unwrap();
        // The file is opened for reading only, so an append fails.
        let path = format!("/proc/self/fd/{}", std::os::fd::AsRawFd::as_raw_fd(&file));
        let mut broken = AppendOnly { file: File::open(path).unwrap(), len: 4 };
        assert!(broken.append(b"two\n").is_err());
        sink.append(b"three\n").unwrap();
        sink.sync().unwrap();
        let mut text = String::new();
        std::io::Seek::rewind(&mut &file).unwrap();
        (&file).read_to_string(&mut text).unwrap();
        assert_eq!(text, "one\nthree\n");
    }
}
