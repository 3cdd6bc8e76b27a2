//! Log of the service: lines for standard output and standard error, written by a thread.
//!
//! A process that does not read the log must block neither the servers nor their end. Lines that
//! exceed the length of the queue are therefore left out, and their number is logged.

use std::io::Write;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{SyncSender, sync_channel};
use std::time::{Duration, Instant};

use weft_terminal::terminal::printable;

/// Sender of lines to the thread that writes the log.
#[derive(Clone)]
pub(super) struct Log {
    lines: SyncSender<Line>,
    left_out: Arc<AtomicU64>,
}

enum Line {
    Out(String),
    Err(String),
    /// Request to report that all lines before this one are written.
    End(std::sync::mpsc::Sender<()>),
}

impl Log {
    /// Starts the thread that writes the log, and returns the sender of its lines.
    pub(super) fn start() -> Self {
        let (lines, receiver) = sync_channel(LINES_MAX);
        let left_out = Arc::new(AtomicU64::new(0));
        let missing = Arc::clone(&left_out);
        std::thread::spawn(move || {
            // Errors are ignored: the service goes on without its log.
            for line in receiver {
                let count = missing.swap(0, Ordering::Relaxed);
                if count > 0 {
                    let _ = writeln!(std::io::stderr(), "weft: {count} lines were left out");
                }
                match line {
                    Line::Out(text) => _ = writeln!(std::io::stdout(), "{text}"),
                    Line::Err(text) => _ = writeln!(std::io::stderr(), "{text}"),
                    Line::End(done) => _ = done.send(()),
                }
            }
        });
        Self { lines, left_out }
    }

    /// Queues a line for standard output, where programs read it.
    pub(super) fn out(&self, text: String) {
        self.write(Line::Out(text));
    }

    /// Queues a line about a volume for standard error.
    pub(super) fn of(&self, volume: &str, text: &str) {
        self.write(Line::Err(format!("{volume}: {}", printable(text))));
    }

    /// Queues a line about the service for standard error.
    pub(super) fn service(&self, text: &str) {
        self.write(Line::Err(format!("weft: {text}")));
    }

    fn write(&self, line: Line) {
        if self.lines.try_send(line).is_err() {
            self.left_out.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Waits until all queued lines are written; gives up after a while if the reader of the log
    /// does not read.
    pub(super) fn flush(&self) {
        let (done, written) = std::sync::mpsc::channel();
        let until = Instant::now() + FLUSH_MAX;
        let mut end = Line::End(done);
        while let Err(error) = self.lines.try_send(end) {
            if Instant::now() > until {
                return;
            }
            let (std::sync::mpsc::TrySendError::Full(line)
            | std::sync::mpsc::TrySendError::Disconnected(line)) = error;
            end = line;
            std::thread::sleep(Duration::from_millis(5));
        }
        let _ = written.recv_timeout(FLUSH_MAX);
    }
}

/// Largest number of lines in the queue of the log.
const LINES_MAX: usize = 4096;

/// Longest wait for room in the queue, and then for the queued lines to be written, when the
/// service ends.
const FLUSH_MAX: Duration = Duration::from_secs(1);
