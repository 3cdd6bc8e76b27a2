//! Terminal output: colours, progress bars, and closed pipes.
//!
//! Standard output carries data, standard error carries messages. Colour needs a terminal or
//! `CLICOLOR_FORCE`, and `NO_COLOR` disables it. Progress bars need a terminal. A closed pipe is an
//! error to handle, not a panic.

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
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};

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

/// Standard output; colour codes are removed unless [`has_colour`] is true.
pub fn stdout() -> impl Write {
    anstream::stdout()
}

/// Whether [`stdout`] leaves colour codes in the output: it is a terminal with colours, or the
/// environment demands colours.
#[must_use]
pub fn has_colour() -> bool {
    anstream::AutoStream::choice(&io::stdout()) != anstream::ColorChoice::Never
}

/// Width of standard output in columns: that of the terminal, or `COLUMNS`, or 100.
pub fn columns() -> usize {
    let window =
        rustix::termios::tcgetwinsize(io::stdout()).ok().map(|size| usize::from(size.ws_col));
    let said = || std::env::var("COLUMNS").ok().and_then(|text| text.parse().ok());
    window.filter(|columns| *columns > 0).or_else(said).unwrap_or(LINE)
}

/// Width in columns of text that is not fitted to the width of a terminal.
pub const LINE: usize = 100;

/// Returns the text with lines of more than [`LINE`] characters broken between words. Continuation
/// lines are indented by two columns more than the first line. A word longer than [`LINE`] is not
/// broken.
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
/// Non-printable characters are escaped, except tabs and ends of lines.
pub fn complain(message: &str) {
    let program = PROGRAM.get().map_or("weft", String::as_str);
    // An error is ignored: there is no other place to report it.
    let _ = writeln!(anstream::stderr(), "{program}: {}", printable_lines(message));
}

/// Prints a value on standard output, as indented JSON.
///
/// # Errors
/// Standard output cannot be written.
pub fn print_json(value: &impl Serialize) -> io::Result<()> {
    PRINTED_JSON.store(true, Ordering::SeqCst);
    let mut out = io::stdout().lock();
    out.write_all(json_line(&serde_json::to_string_pretty(value)?).as_bytes())?;
    out.flush()
}

/// JSON text with an end of line added. Non-printable characters, which JSON has in strings only,
/// are escaped as `\uXXXX`.
#[must_use]
pub fn json_line(json: &str) -> String {
    let mut escaped = String::with_capacity(json.len() + 1);
    for letter in json.chars() {
        if is_printable(letter) || letter == '\n' {
            escaped.push(letter);
        } else {
            let mut units = [0; 2];
            letter
                .encode_utf16(&mut units)
                .iter()
                .for_each(|unit| escaped += &format!("\\u{unit:04x}"));
        }
    }
    escaped.push('\n');
    escaped
}

/// Whether [`print_json`] was called.
pub(crate) fn printed_json() -> bool {
    PRINTED_JSON.load(Ordering::SeqCst)
}

/// Progress bar of `total` bytes with the title `what`, drawn if standard error is a terminal that
/// can redraw lines.
pub fn progress(what: &'static str, total: u64) -> ProgressBar {
    let template = "{prefix:>12} [{bar:24}] {percent:>3}%  {binary_bytes} of {binary_total_bytes}  \
                    {binary_bytes_per_sec}  {eta} left";
    bar(what, total, template)
}

/// Progress bar of `total` bytes with the title `what` and a message, drawn if standard error is a
/// terminal that can redraw lines.
pub fn progress_with(what: &'static str, total: u64) -> ProgressBar {
    let template = "{prefix:>12} [{bar:16}] {percent:>3}%  {binary_bytes} of {binary_total_bytes}  \
                    {binary_bytes_per_sec}  {eta} left  {wide_msg}";
    bar(what, total, template)
}

/// Progress bar of `total` steps with the title `what` and a message, drawn if standard error is a
/// terminal that can redraw lines.
pub fn steps(what: &'static str, total: u64) -> ProgressBar {
    bar(what, total, "{prefix:>12} [{bar:24}] {pos} of {len}  {eta} left  {wide_msg}")
}

/// Progress bar of 1,000 steps, shown in percent, with the title `what` and a message, drawn if
/// standard error is a terminal that can redraw lines.
pub fn share(what: &'static str) -> ProgressBar {
    bar(what, 1000, "{prefix:>12} [{bar:24}] {percent:>3}%  {eta} left  {wide_msg}")
}

/// Counter of attempts, without a known total, with the title `what` and a message, drawn if
/// standard error is a terminal that can redraw lines.
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

/// Span of time as text: `1.2 s` from one second on, `35 ms` below.
pub fn took(span: Duration) -> String {
    if span >= Duration::from_secs(1) {
        format!("{:.1} s", span.as_secs_f64())
    } else {
        format!("{} ms", span.as_millis())
    }
}

/// A name as a word for a shell, quoted if necessary. A name with non-printable bytes needs bash,
/// zsh or POSIX 2024.
pub fn quoted(name: &OsStr) -> String {
    let bytes = name.as_bytes();
    let plain = |byte: &u8| byte.is_ascii_alphanumeric() || b"/._-+:@%=,".contains(byte);
    if !bytes.is_empty() && bytes.iter().all(plain) {
        return name.to_string_lossy().into_owned();
    }
    if let Some(text) = name.to_str().filter(|text| text.chars().all(is_printable)) {
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

/// A path as text; non-printable characters and bytes are escaped, so a name cannot send control
/// sequences to the terminal.
#[must_use]
pub fn label(path: &Path) -> String {
    let mut text = String::new();
    for chunk in path.as_os_str().as_bytes().utf8_chunks() {
        text += &printable(chunk.valid());
        chunk.invalid().iter().for_each(|byte| text += &format!("\\x{byte:02x}"));
    }
    text
}

/// The text in one line. Control characters, marks that change the direction of text, and the
/// invisible characters that [`is_printable`] lists are escaped, so that the text cannot move the
/// cursor or reorder other text on the terminal.
#[must_use]
pub fn printable(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for letter in text.chars() {
        match is_printable(letter) {
            true => escaped.push(letter),
            false => escaped.extend(letter.escape_default()),
        }
    }
    escaped
}

/// Lines of text, each of them [`printable`]; tabs stay too.
fn printable_lines(text: &str) -> String {
    let line = |line: &str| line.split('\t').map(printable).collect::<Vec<_>>().join("\t");
    text.split('\n').map(line).collect::<Vec<_>>().join("\n")
}

/// Whether a character may go to a terminal unescaped.
#[must_use]
pub fn is_printable(letter: char) -> bool {
    // Marks of direction and embedding, spaces of no width, tags: a line with them may look like
    // another.
    let is_hidden = matches!(
        letter,
        '\u{61c}'
            | '\u{180e}'
            | '\u{200b}'..='\u{200f}'
            | '\u{2028}'..='\u{202e}'
            | '\u{2060}'..='\u{206f}'
            | '\u{feff}'
            | '\u{fff9}'..='\u{fffb}'
            | '\u{e0000}'..='\u{e007f}'
    );
    !letter.is_control() && !is_hidden
}

/// Standard output for text that contains names and messages from outside: each line is escaped as
/// by [`printable`].
pub fn printable_stdout() -> impl Write {
    Printable { to: anstream::stdout(), line: Vec::new() }
}

/// Writer that escapes text and passes it on in whole lines; a flush also passes on an incomplete
/// line.
struct Printable<W: Write> {
    to: W,
    line: Vec<u8>,
}

impl<W: Write> Printable<W> {
    fn pass_on(&mut self, end: usize) -> io::Result<()> {
        let rest = self.line.split_off(end);
        let lines = std::mem::replace(&mut self.line, rest);
        self.to.write_all(printable_lines(&String::from_utf8_lossy(&lines)).as_bytes())
    }
}

impl<W: Write> Write for Printable<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.line.extend_from_slice(bytes);
        if let Some(end) = self.line.iter().rposition(|byte| *byte == b'\n') {
            self.pass_on(end + 1)?;
        }
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.pass_on(self.line.len())?;
        self.to.flush()
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

/// Registers files and directories that are removed when the process is told to end (SIGINT,
/// SIGTERM). Progress bars are then removed too, and the process ends with the status that a shell
/// expects, 128 plus the signal's number. For commands that have nothing to finish.
///
/// # Errors
/// The signals cannot be handled.
pub fn remove_when_interrupted(paths: &[PathBuf]) -> Result<(), Failure> {
    let mut passing = locked(&PASSING);
    if passing.is_none() {
        [SIGINT, SIGTERM].into_iter().try_for_each(listen)?;
    }
    passing.get_or_insert_default().extend_from_slice(paths);
    Ok(())
}

/// Starts a thread that waits for a signal. Unless the function in [`ENDING`] then returns true,
/// the thread clears the progress bars, calls the callbacks in [`LAST`], removes the files, and
/// ends the process.
fn listen(signal: i32) -> Result<(), Failure> {
    let failed = |error: io::Error| Failure::failed(format!("signals: {error}"));
    let (mut told, tell) = UnixStream::pair().map_err(failed)?;
    signal_hook::low_level::pipe::register(signal, tell).map_err(failed)?;
    std::thread::spawn(move || {
        while told.read(&mut [0]).is_ok() {
            if locked(&ENDING).as_mut().is_some_and(|end| end()) {
                continue;
            }
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
    Ok(())
}

/// Makes a command end in its own way when the process is told to end (SIGINT, SIGTERM, and SIGHUP
/// unless it is ignored): `end` is called for each signal, on another thread. If `end` returns
/// true, the command ends by itself; otherwise the process ends as after
/// [`remove_when_interrupted`].
///
/// # Errors
/// The signals cannot be handled.
pub fn end_when_interrupted(end: impl FnMut() -> bool + Send + 'static) -> Result<(), Failure> {
    *locked(&ENDING) = Some(Box::new(end));
    remove_when_interrupted(&[])?;
    // A shell that exits sends SIGHUP. A process that nohup has started ignores the signal, and
    // goes on ignoring it.
    if is_ignored(SIGHUP) { Ok(()) } else { listen(SIGHUP) }
}

/// Whether this process ignores a signal, as it does from its start if its parent ignored the
/// signal. False if the kernel does not say so.
///
/// Source   proc_pid_status(5) `SigIgn`: a mask in hexadecimal, signal 1 first
pub fn is_ignored(signal: i32) -> bool {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    let mask = mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok());
    mask.is_some_and(|mask| mask >> (signal - 1) & 1 == 1)
}

/// Registers `last` to be called after an interruption, before files are removed, on the thread
/// that [`remove_when_interrupted`] starts: for output that must survive the interruption.
pub fn when_interrupted(last: impl FnMut() + Send + 'static) {
    locked(&LAST).push(Box::new(last));
}

/// Blocks after an interruption, until the thread that removes the files ends the process; returns
/// at once otherwise. Without this, a command could report that it failed because its files are
/// gone.
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
/// Paths that are removed when the process is told to end; `None` before the first call of
/// [`remove_when_interrupted`].
static PASSING: Mutex<Option<Vec<PathBuf>>> = Mutex::new(None);
/// Callbacks that [`when_interrupted`] has registered.
static LAST: Mutex<Vec<Box<dyn FnMut() + Send>>> = Mutex::new(Vec::new());
/// Function that [`end_when_interrupted`] has registered; `None` before its first call.
static ENDING: Mutex<Option<Box<dyn FnMut() -> bool + Send>>> = Mutex::new(None);
/// Whether [`print_json`] was called, for [`printed_json`].
static PRINTED_JSON: AtomicBool = AtomicBool::new(false);
/// Progress bars of this process.
static BARS: Mutex<Vec<WeakProgressBar>> = Mutex::new(Vec::new());
/// Whether a signal has interrupted the process: its files are then removed, and it ends.
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
        assert_eq!(label(Path::new(OsStr::from_bytes(b"a\xff\xc3\xa9"))), "a\\xff\u{e9}");
        // Control sequence introducer of C1, right-to-left override, space of no width, a new line.
        for letter in ['\u{9b}', '\u{202e}', '\u{200b}', '\u{2066}', '\n', '\u{7f}'] {
            let escaped = printable(&format!("a{letter}b"));
            assert!(escaped.is_ascii() && escaped.starts_with("a\\") && escaped.ends_with('b'));
            let quoted = quoted(OsStr::new(&format!("a{letter}b")));
            assert!(quoted.is_ascii() && quoted.starts_with("$'a\\"), "{quoted}");
            let json = json_line(&serde_json::to_string(&letter.to_string()).unwrap());
            assert!(json.trim_end().chars().all(|it| it.is_ascii_graphic()), "{json}");
            assert_eq!(serde_json::from_str::<String>(&json).unwrap(), letter.to_string());
        }
        assert_eq!(printable("\u{e9}\u{5d0} '\\"), "\u{e9}\u{5d0} '\\");
    }

    #[test]
    fn lines_of_output_are_escaped_and_stay_lines() {
        let mut out = Printable { to: Vec::new(), line: Vec::new() };
        for bytes in [&b"one\t\x1b[31m\ntw"[..], b"o \xc3", b"\xa9\n", b"end \xe2\x80\xae"] {
            out.write_all(bytes).unwrap();
        }
        out.flush().unwrap();
        let expected = "one\t\\u{1b}[31m\ntwo \u{e9}\nend \\u{202e}";
        assert_eq!(String::from_utf8(out.to).unwrap(), expected);
    }
}
