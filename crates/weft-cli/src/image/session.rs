//! Copy of a dying disk: reads in the order of [`DiskCopy`], and saves of the map meanwhile.

use std::io;
use std::ops::Range;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, mpsc};
use std::time::{Duration, Instant};

use indicatif::ProgressBar;
use weft_runtime::mapfile::{Mapfile, Status};
use weft_terminal::outcome::Failure;
use weft_terminal::terminal::{self, progress_with};
use weft_units::Bytes;

use super::disk::{Disk, Got};
use super::disk_copy::{Answer, DiskCopy, Phase};
use crate::image_file::{MappedImage, ended_by, samples};
use crate::size;

/// State of a running copy: its decisions, and its image with the map.
pub(crate) struct Session {
    disk_copy: DiskCopy,
    file: MappedImage,
    counts: Counts,
}

/// Numbers of reads of the disk.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Counts {
    pub(crate) reads: u64,
    /// Reads that failed, in full or in part.
    pub(crate) errors: u64,
    /// Reads that took too long, which `errors` counts too.
    pub(crate) timeouts: u64,
}

/// Result of a copy that ended.
pub(crate) struct Ended {
    pub(crate) map: Mapfile,
    pub(crate) domain: Range<u64>,
    pub(crate) counts: Counts,
}

impl Session {
    pub(crate) fn new(disk_copy: DiskCopy, file: MappedImage) -> Self {
        Self { disk_copy, file, counts: Counts::default() }
    }

    /// Compares samples of the image, of up to `len` bytes, with the disk: the image of another
    /// disk must not be continued with this one.
    ///
    /// # Errors
    /// The bytes differ, or the image cannot be read.
    pub(crate) fn compare(&self, disk: &mut Disk, len: u64) -> Result<(), Failure> {
        for range in samples(self.disk_copy.map(), len) {
            // Bytes that were read once may be unreadable now.
            let Got::Bytes(bytes) = disk.read(&range, &mut || ())? else { continue };
            let copied = self.file.image.read(range.start, bytes.len());
            let copied = copied.map_err(|error| self.file.image.failed(&error))?;
            if let Some(at) = bytes.iter().zip(&copied).position(|(a, b)| a != b) {
                return Err(Failure::refused(format!(
                    "{}: byte {} is another one on the disk, which was read there before; found an \
                     image of another disk, or of one that was written since; name the disk that \
                     belongs to the image, or another file",
                    self.file.image.label(),
                    range.start + at as u64
                )));
            }
        }
        Ok(())
    }

    /// Text about the free space if it is less than what is left to read; `None` if it is enough or
    /// not known.
    pub(crate) fn short_of_space(&self) -> Option<String> {
        let domain = self.disk_copy.domain();
        let left = domain.end - domain.start - self.disk_copy.bytes(Status::Finished);
        self.file.image.short_of_space(left)
    }

    /// Saves the map when the copy ends. Returns the range of the image that was given back to make
    /// room for the map, and is to be read again.
    fn save_at_last(&mut self) -> Result<Range<u64>, Failure> {
        let given_back = self.file.save_at_last(self.disk_copy.map())?;
        self.disk_copy.forget(given_back.clone());
        Ok(given_back)
    }

    /// Records the result of a read: the bytes in the image first, then their status in the map.
    fn take(&mut self, range: &Range<u64>, got: Got) -> io::Result<()> {
        self.counts.reads += 1;
        let len = range.end - range.start;
        let answer = match got {
            Got::Bytes(bytes) => {
                self.file.write(&bytes, range.start)?;
                Answer::Read(bytes.len() as u64)
            }
            Got::Failed => Answer::Failed,
            Got::TimedOut => {
                self.counts.timeouts += 1;
                Answer::Failed
            }
        };
        if answer != Answer::Read(len) {
            self.counts.errors += 1;
        }
        self.disk_copy.answer(range, answer);
        Ok(())
    }
}

/// Copies until nothing is left to read, and saves the map.
///
/// # Errors
/// The image or the map cannot be written, or the disk is gone. The map is saved if possible.
pub(crate) fn copy(session: Session, disk: &mut Disk) -> Result<Ended, Failure> {
    let shared = Arc::new(Mutex::new(session));
    let stop = Stop::new(&shared);
    let domain = locked(&shared).disk_copy.domain();
    let shown = Shown::new(&locked(&shared).disk_copy);
    let result = run(&shared, disk, &stop, shown);
    let mut session = locked(&shared);
    let saved = session.save_at_last();
    if let Err(failure) = result {
        return Err(ended_by(failure, saved));
    }
    saved?;
    Ok(Ended { map: session.disk_copy.map().clone(), domain, counts: session.counts })
}

fn run(
    shared: &Mutex<Session>,
    disk: &mut Disk,
    stop: &Stop,
    mut shown: Shown,
) -> Result<(), Failure> {
    loop {
        let Some(range) = locked(shared).disk_copy.next() else { break };
        // The session is not locked during a read, so that it can be saved when the disk hangs.
        let got = disk.read(&range, &mut || shown.tick())?;
        let mut session = locked(shared);
        if matches!(got, Got::Bytes(_)) {
            shown.good = Instant::now();
        }
        session.take(&range, got).map_err(|error| session.file.image.failed(&error))?;
        let Session { file, disk_copy, .. } = &mut *session;
        file.save_if_old(disk_copy.map());
        shown.update(&session.disk_copy);
        drop(session);
        stop.park_if_asked()?;
    }
    shown.bar.finish_and_clear();
    Ok(())
}

/// Handler of SIGINT and SIGTERM, which end the copy.
struct Stop {
    asked: Arc<AtomicBool>,
    parked: mpsc::Sender<()>,
}

impl Stop {
    /// Registers the handler. On a signal it waits for the end of the present read, saves the map,
    /// and ends the process.
    fn new(shared: &Arc<Mutex<Session>>) -> Self {
        let asked = Arc::new(AtomicBool::new(false));
        let (parked, is_parked) = mpsc::channel();
        let (flag, session) = (Arc::clone(&asked), Arc::clone(shared));
        terminal::when_interrupted(move || {
            flag.store(true, Ordering::SeqCst);
            // An error is ignored: a read that does not end is read again later.
            let _ = is_parked.recv_timeout(LAST_READ);
            let mut session = locked(&session);
            let Session { file, disk_copy, .. } = &mut *session;
            file.stopped(disk_copy.map(), disk_copy.bytes(Status::Finished));
        });
        Self { asked, parked }
    }

    /// Returns an error, which ends the copy, if a signal has come. The thread of the handler then
    /// saves the map and ends the process.
    fn park_if_asked(&self) -> Result<(), Failure> {
        if !self.asked.load(Ordering::SeqCst) {
            return Ok(());
        }
        // An error is ignored: the handler's thread has stopped waiting, and ends the process.
        let _ = self.parked.send(());
        Err(Failure::failed("stopped"))
    }
}

/// Progress of the copy on the terminal.
struct Shown {
    bar: ProgressBar,
    /// Time of the last read that returned bytes.
    good: Instant,
    updated: Instant,
    text: String,
}

impl Shown {
    fn new(disk_copy: &DiskCopy) -> Self {
        let domain = disk_copy.domain();
        let bar = progress_with("image", domain.end - domain.start);
        // The rate counts only bytes that this run reads.
        bar.set_position(disk_copy.bytes(Status::Finished));
        bar.reset_eta();
        let now = Instant::now();
        Self { bar, good: now, updated: now, text: String::new() }
    }

    fn update(&mut self, disk_copy: &DiskCopy) {
        if self.bar.is_hidden() || self.updated.elapsed() < SHOW_INTERVAL {
            return;
        }
        self.updated = Instant::now();
        let phase = match disk_copy.phase() {
            Phase::Copy(pass) => format!("pass {pass}"),
            Phase::Trim => "trimming".to_owned(),
            Phase::Scrape => "scraping".to_owned(),
            Phase::Retry(pass) => format!("retry {pass}"),
            Phase::End => "end".to_owned(),
        };
        let domain = disk_copy.domain();
        let (read, bad) = (disk_copy.bytes(Status::Finished), disk_copy.bytes(Status::Bad));
        let left = domain.end - domain.start - read - bad;
        let human = |bytes| size::human(Bytes(bytes));
        self.bar.set_position(read);
        self.text = format!("{phase}, {} bad, {} unread", human(bad), human(left));
        self.tick();
    }

    /// Shows the time since the last successful read.
    fn tick(&self) {
        let quiet = self.good.elapsed().as_secs();
        self.bar.set_message(format!("{}, last good read {quiet} s ago", self.text));
    }
}

fn locked(session: &Mutex<Session>) -> MutexGuard<'_, Session> {
    session.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Longest time that a read may take to end after a signal.
const LAST_READ: Duration = Duration::from_secs(5);

/// Shortest time between two updates of the progress on the terminal.
const SHOW_INTERVAL: Duration = Duration::from_millis(100);
