//! Terminal output: colours, progress bars, and closed pipes.
//!
//! Standard output carries data, standard error carries messages. Colour and progress bars need a
//! terminal (or `CLICOLOR_FORCE`; `NO_COLOR` disables them). A closed pipe is an error to handle,
//! not a panic.

use std::ffi::OsStr;
use std::io::{self, IsTerminal, Read, Write};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle, WeakProgressBar};
use serde::Serialize;
use signal_hook::consts::{SIGINT, SIGTERM};

use crate::outcome::Failure;

/// The ANSI codes in use: bold, green, red and plain.
pub mod style {
    /// Starts bold text.
    pub const BOLD: &str = "\x1b[1m";
    /// Starts green text.
    pub const GREEN: &str = "\x1b[32m";
    /// Starts red text.
    pub const RED: &str = "\x1b[31m";
    /// Ends bold and coloured text.
    pub const PLAIN: &str = "\x1b[0m";
}

/// Standard output; colour codes are removed unless they are wanted.
pub fn stdout() -> impl Write {
    anstream::stdout()
}

/// Width of standard output in columns: that of the terminal, or `COLUMNS`, or 100.
pub fn columns() -> usize {
    let window =
        rustix::termios::tcgetwinsize(io::stdout()).ok().map(|size| usize::from(size.ws_col));
    let said = || std::env::var("COLUMNS").ok().and_then(|text| text.parse().ok());
    window.filter(|columns| *columns > 0).or_else(said).unwrap_or(LINE)
}

/// Columns of a line of text that is not made for a known width.
pub const LINE: usize = 100;

/// A text with lines of at most [`LINE`] characters: a longer line is broken between words, and
/// what follows is indented by two more columns than its first line. A word is not broken.
pub fn wrapped(text: &str) -> String {
    let mut whole = String::new();
    for line in text.split_inclusive('\n') {
        if line.trim_end_matches('\n').chars().count() <= LINE {
            whole.push_str(line);
            continue;
        }
        let indent = line.chars().take_while(|letter| *letter == ' ').count();
        let mut used = indent;
        whole.push_str(&" ".repeat(indent));
        for (at, word) in line.split_whitespace().enumerate() {
            let letters = word.chars().count();
            if at > 0 && used + 1 + letters > LINE {
                whole.push('\n');
                whole.push_str(&" ".repeat(indent + 2));
                used = indent + 2;
            } else if at > 0 {
                whole.push(' ');
                used += 1;
            }
            whole.push_str(word);
            used += letters;
        }
        if line.ends_with('\n') {
            whole.push('\n');
        }
    }
    whole
}

/// Sets the name of the program that [`complain`] prints.
pub(crate) fn set_program(name: &str) {
    // An error is ignored: a process has one name.
    let _ = PROGRAM.set(name.to_owned());
}

/// Prints a message on standard error, after the name of the program: `weft: MESSAGE`.
pub fn complain(message: &str) {
    let program = PROGRAM.get().map_or("weft", String::as_str);
    // An error is ignored: there is no other place to report it.
    let _ = writeln!(anstream::stderr(), "{program}: {message}");
}

/// Prints a value on standard output, as indented JSON.
///
/// # Errors
/// Standard output cannot be written.
pub fn print_json(value: &impl Serialize) -> io::Result<()> {
    PRINTED_JSON.store(true, Ordering::SeqCst);
    let mut out = io::stdout().lock();
    serde_json::to_writer_pretty(&mut out, value)?;
    out.write_all(b"\n")?;
    out.flush()
}

/// Whether a JSON value went to standard output.
pub(crate) fn printed_json() -> bool {
    PRINTED_JSON.load(Ordering::SeqCst)
}

/// A progress bar in bytes, drawn on standard error when that is a terminal.
pub fn progress(what: &'static str, total: u64) -> ProgressBar {
    let template = "{prefix:>12} [{bar:24}] {percent:>3}%  {binary_bytes} of {binary_total_bytes}  \
                    {binary_bytes_per_sec}  {eta} left";
    bar(what, total, template)
}

/// A progress bar in steps, each with a message, drawn on standard error when that is a terminal.
pub fn steps(what: &'static str, total: u64) -> ProgressBar {
    bar(what, total, "{prefix:>12} [{bar:24}] {pos} of {len}  {eta} left  {wide_msg}")
}

/// A progress bar in thousandths, with a message, drawn on standard error when that is a terminal.
pub fn share(what: &'static str) -> ProgressBar {
    bar(what, 1000, "{prefix:>12} [{bar:24}] {percent:>3}%  {eta} left  {wide_msg}")
}

/// A counter of attempts without a known end, with a message, drawn on standard error when that is
/// a terminal.
pub fn tries(what: &'static str) -> ProgressBar {
    bar(what, 0, "{prefix:>12} {pos} tried in {elapsed}  {wide_msg}")
}

fn bar(what: &'static str, total: u64, template: &str) -> ProgressBar {
    let target =
        if io::stderr().is_terminal() && std::env::var_os("TERM").is_some_and(|t| t != "dumb") {
            ProgressDrawTarget::stderr_with_hz(10)
        } else {
            ProgressDrawTarget::hidden()
        };
    let bar = ProgressBar::with_draw_target(Some(total), target);
    let style = ProgressStyle::with_template(template);
    if let Ok(style) = style {
        bar.set_style(style.progress_chars("=> "));
    }
    bar.set_prefix(what);
    locked(&BARS).push(bar.downgrade());
    bar
}

/// A span for output: `1.2 s`, `35 ms`.
pub fn took(span: Duration) -> String {
    if span >= Duration::from_secs(1) {
        format!("{:.1} s", span.as_secs_f64())
    } else {
        format!("{} ms", span.as_millis())
    }
}

/// A name quoted for a shell; non-printable bytes need bash, zsh or POSIX 2024.
pub fn quoted(name: &OsStr) -> String {
    let bytes = name.as_bytes();
    let plain = |byte: &u8| byte.is_ascii_alphanumeric() || b"/._-+:@%=,".contains(byte);
    if !bytes.is_empty() && bytes.iter().all(plain) {
        return name.to_string_lossy().into_owned();
    }
    if let Some(text) = name.to_str().filter(|text| !text.chars().any(char::is_control)) {
        return format!("'{}'", text.replace('\'', "'\\''"));
    }
    let mut quoted = String::from("$'");
    for byte in bytes {
        match byte {
            b'\'' | b'\\' => quoted.extend(['\\', char::from(*byte)]),
            b' '..=b'~' => quoted.push(char::from(*byte)),
            // Octal, because a shell reads at most three digits of it.
            _ => quoted.push_str(&format!("\\{byte:03o}")),
        }
    }
    quoted.push('\'');
    quoted
}

/// A path as text; non-printable characters are escaped, so a name cannot send control sequences to
/// the terminal.
#[must_use]
pub fn label(path: &Path) -> String {
    let text = path.to_string_lossy();
    if text.chars().any(char::is_control) {
        text.chars()
            .flat_map(|c| {
                let escaped: Vec<char> =
                    if c.is_control() { c.escape_default().collect() } else { vec![c] };
                escaped
            })
            .collect()
    } else {
        text.into_owned()
    }
}

/// A private directory for sockets and files of this process, removed when the value is dropped.
///
/// # Errors
/// The directory for temporary files is not writable.
pub fn scratch() -> Result<tempfile::TempDir, Failure> {
    tempfile::Builder::new().prefix("weft-").tempdir().map_err(|error| {
        let place = std::env::temp_dir();
        Failure::failed(format!("{}: {error}; set TMPDIR", place.display()))
    })
}

/// Removes files, directories and progress bars when the process is told to end (SIGINT, SIGTERM),
/// and ends it with the status that a shell expects. For commands that have nothing to finish.
///
/// # Errors
/// The signals cannot be handled.
pub fn remove_when_interrupted(paths: &[PathBuf]) -> Result<(), Failure> {
    let known = {
        let mut passing = locked(&PASSING);
        let known = passing.is_some();
        passing.get_or_insert_default().extend_from_slice(paths);
        known
    };
    if known {
        return Ok(());
    }
    let failed = |error: io::Error| Failure::failed(format!("signals: {error}"));
    for signal in [SIGINT, SIGTERM] {
        let (mut told, tell) = UnixStream::pair().map_err(failed)?;
        signal_hook::low_level::pipe::register(signal, tell).map_err(failed)?;
        std::thread::spawn(move || {
            if told.read(&mut [0]).is_ok() {
                INTERRUPTED.store(true, Ordering::SeqCst);
                for bar in locked(&BARS).iter().filter_map(WeakProgressBar::upgrade) {
                    bar.finish_and_clear();
                }
                for last in locked(&LAST).iter_mut() {
                    last();
                }
                for path in locked(&PASSING).iter().flatten() {
                    // Each path is a file or a directory, or does not exist yet.
                    let _ = std::fs::remove_file(path);
                    let _ = std::fs::remove_dir_all(path);
                }
                std::process::exit(128 + signal);
            }
        });
    }
    Ok(())
}

/// Registers `last` to be called before files are removed, on the thread that
/// [`remove_when_interrupted`] starts. For output that must survive the interruption.
pub fn when_interrupted(last: impl FnMut() + Send + 'static) {
    locked(&LAST).push(Box::new(last));
}

/// Blocks after an interruption, until the thread that removes the files ends the process.
/// Otherwise a command could report that it failed because its files are gone.
pub(crate) fn wait_if_interrupted() {
    while INTERRUPTED.load(Ordering::SeqCst) {
        std::thread::park();
    }
}

fn locked<T>(shared: &Mutex<T>) -> MutexGuard<'_, T> {
    shared.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Name of the program, from [`set_program`].
static PROGRAM: OnceLock<String> = OnceLock::new();
/// Paths that are removed when the process is told to end; `None` leaves signals alone.
static PASSING: Mutex<Option<Vec<PathBuf>>> = Mutex::new(None);
/// Callbacks that [`when_interrupted`] has registered.
static LAST: Mutex<Vec<Box<dyn FnMut() + Send>>> = Mutex::new(Vec::new());
/// Whether a JSON value went to standard output, for [`printed_json`].
static PRINTED_JSON: AtomicBool = AtomicBool::new(false);
/// Progress bars of this process.
static BARS: Mutex<Vec<WeakProgressBar>> = Mutex::new(Vec::new());
/// Whether SIGINT or SIGTERM was received: files of the process are then removed, and it ends.
static INTERRUPTED: AtomicBool = AtomicBool::new(false);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_lines_are_broken_between_words_and_no_other() {
        let (word, short) = ("0123456789 ", "  a  b   c\n\nd");
        assert_eq!(wrapped(short), short);
        let long = wrapped(&format!("  - {}\n{short}", word.repeat(20)));
        let lines: Vec<&str> = long.lines().collect();
        assert_eq!(lines.len(), 3 + 3, "{long}");
        assert!(lines.iter().all(|line| line.chars().count() <= LINE), "{long}");
        assert!(lines[0].starts_with("  - 0") && lines[1].starts_with("    0"), "{long}");
        assert_eq!(long.matches(word.trim()).count(), 20);
        assert!(long.ends_with(&format!("\n{short}")), "{long}");
        let unbroken = "x".repeat(120);
        assert_eq!(wrapped(&unbroken), unbroken);
    }

    #[test]
    fn names_are_quoted_as_shells_take_them() {
        for (name, expected) in [
            (&b"a/b-1.img"[..], "a/b-1.img"),
            (b"b c", "'b c'"),
            (b"it's", "'it'\\''s'"),
            ("\u{e9}".as_bytes(), "'\u{e9}'"),
            (b"new\nline", "$'new\\012line'"),
            (b"it's \xff\\", "$'it\\'s \\377\\\\'"),
            (b"", "''"),
        ] {
            assert_eq!(quoted(OsStr::from_bytes(name)), expected);
        }
    }

    #[test]
    fn a_name_sends_no_control_sequence() {
        assert_eq!(label(Path::new("a\u{1b}[2Jb")), "a\\u{1b}[2Jb");
    }
}
