//! `weft top` on a terminal: figures of a server, keys that change it, and the terminal afterwards.

mod common;

use std::fs::File;
use std::io::{Read, Write};
use std::os::fd::OwnedFd;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};

use common::{Served, array, command, exits};
use rustix::fs::{Mode, OFlags};
use rustix::process::{Pid, Signal, kill_process};
use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
use rustix::termios::{LocalModes, Winsize, tcgetattr, tcsetwinsize};

const COLUMNS: u16 = 100;
const LINES: u16 = 24;

/// A program on a terminal of its own, and what the terminal shows.
struct OnTerminal {
    child: Child,
    /// The side of the terminal that a person would sit at.
    user: File,
    /// The side of the program; without it, the terminal would be gone with the program.
    program: OwnedFd,
    output: Receiver<Vec<u8>>,
    shown: Shown,
}

/// Cells of a terminal, by the few control sequences that `weft top` sends.
#[derive(Default)]
struct Shown {
    cells: Vec<Vec<char>>,
    /// Line and column of the cursor, from 0.
    at: (usize, usize),
    /// Bytes of a sequence or a character that is not complete.
    rest: Vec<u8>,
    /// Private modes that are on: 1049 is the second buffer, 25 is the cursor.
    modes: Vec<String>,
    colours: usize,
}

impl Shown {
    fn take(&mut self, bytes: &[u8]) {
        self.rest.extend_from_slice(bytes);
        let all = std::mem::take(&mut self.rest);
        let text = String::from_utf8_lossy(&all).into_owned();
        let mut rest = text.as_str();
        while let Some(letter) = rest.chars().next() {
            if let Some(sequence) = rest.strip_prefix("\x1b[") {
                let Some(end) = sequence.find(|letter: char| letter.is_ascii_alphabetic()) else {
                    break;
                };
                self.control(&sequence[..end], sequence.as_bytes()[end]);
                rest = &sequence[end + 1..];
            } else if letter == '\x1b' || letter == char::REPLACEMENT_CHARACTER {
                break;
            } else {
                self.put(letter);
                rest = &rest[letter.len_utf8()..];
            }
        }
        // Replacement characters stand for the beginning of a character, which is at the end.
        let used = text.len() - rest.len();
        self.rest = all[used..].to_vec();
    }

    fn control(&mut self, parameters: &str, kind: u8) {
        let numbers: Vec<usize> =
            parameters.split(';').map(|number| number.parse().unwrap_or(1)).collect();
        match kind {
            b'H' => self.at = (numbers[0] - 1, numbers.get(1).map_or(0, |column| column - 1)),
            b'J' => self.cells.clear(),
            b'h' | b'l' => {
                self.modes.retain(|mode| mode != parameters);
                self.modes.extend((kind == b'h').then(|| parameters.to_owned()));
            }
            b'm' => self.colours += usize::from(parameters.starts_with('3') && numbers != [39]),
            _ => {}
        }
    }

    fn put(&mut self, letter: char) {
        let (line, column) = self.at;
        self.cells.resize(self.cells.len().max(line + 1), Vec::new());
        let cells = &mut self.cells[line];
        cells.resize(cells.len().max(column + 1), ' ');
        cells[column] = letter;
        self.at.1 += 1;
    }

    fn text(&self) -> String {
        self.cells.iter().map(|line| line.iter().collect::<String>() + "\n").collect()
    }
}

impl OnTerminal {
    fn start(dir: &Path, words: &[&str]) -> Self {
        Self::with(dir, words, &[])
    }

    fn with(dir: &Path, words: &[&str], variables: &[(&str, &str)]) -> Self {
        let user = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY).unwrap();
        grantpt(&user).unwrap();
        unlockpt(&user).unwrap();
        let name = ptsname(&user, Vec::new()).unwrap();
        let flags = OFlags::RDWR | OFlags::NOCTTY | OFlags::CLOEXEC;
        let program = rustix::fs::open(&name, flags, Mode::empty()).unwrap();
        let size = Winsize { ws_row: LINES, ws_col: COLUMNS, ws_xpixel: 0, ws_ypixel: 0 };
        tcsetwinsize(&program, size).unwrap();
        let side = || Stdio::from(program.try_clone().unwrap());
        // The terminal is the controlling one of the program, as of one that a shell starts.
        let mut setsid = Command::new("setsid");
        setsid.arg("--ctty").arg(env!("CARGO_BIN_EXE_weft")).args(words).current_dir(dir);
        for (name, value) in command(dir, &[""; 0]).get_envs() {
            match value {
                Some(value) => setsid.env(name, value),
                None => setsid.env_remove(name),
            };
        }
        setsid.env("TERM", "xterm-256color").env_remove("NO_COLOR").env_remove("COLUMNS");
        setsid.envs(variables.iter().copied());
        let child = setsid.stdin(side()).stdout(side()).stderr(side()).spawn().unwrap();
        let user = File::from(user);
        let (send, output) = channel();
        let mut reader = user.try_clone().unwrap();
        std::thread::spawn(move || {
            let mut buffer = [0; 4096];
            while let Ok(count) = reader.read(&mut buffer) {
                if count == 0 || send.send(buffer[..count].to_vec()).is_err() {
                    return;
                }
            }
        });
        Self { child, user, program, output, shown: Shown::default() }
    }

    /// Waits until the screen fits.
    fn until(&mut self, what: &str, fits: impl Fn(&str) -> bool) -> String {
        let deadline = Instant::now() + Duration::from_secs(30);
        loop {
            let text = self.shown.text();
            if fits(&text) {
                return text;
            }
            let left = deadline.saturating_duration_since(Instant::now());
            match self.output.recv_timeout(left) {
                Ok(bytes) => self.shown.take(&bytes),
                Err(_) => panic!("{what} is not shown:\n{text}"),
            }
        }
    }

    fn has(&mut self, what: &str) -> String {
        self.until(what, |text| text.contains(what))
    }

    fn press(&mut self, keys: &str) {
        self.user.write_all(keys.as_bytes()).unwrap();
    }

    /// Waits for the end. Returns the exit status, after the terminal was found as it was before.
    fn wait(mut self) -> Option<i32> {
        let deadline = Instant::now() + Duration::from_secs(30);
        let status = loop {
            while let Ok(bytes) = self.output.recv_timeout(Duration::from_millis(20)) {
                self.shown.take(&bytes);
            }
            if let Some(status) = self.child.try_wait().unwrap() {
                break status;
            }
            assert!(Instant::now() < deadline, "top does not end:\n{}", self.shown.text());
        };
        // The last output of the program may still be on its way.
        while let Ok(bytes) = self.output.recv_timeout(Duration::from_millis(100)) {
            self.shown.take(&bytes);
        }
        assert!(!self.is_taken(), "the terminal is not restored");
        assert_eq!(self.shown.modes, ["?25"], "the cursor is shown, on the first buffer");
        status.code()
    }

    /// Whether the terminal is raw, as `weft top` needs it.
    fn is_taken(&self) -> bool {
        let modes = tcgetattr(&self.program).unwrap().local_modes;
        !modes.contains(LocalModes::ICANON | LocalModes::ECHO | LocalModes::ISIG)
    }
}

impl Drop for OnTerminal {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[test]
fn keys_check_a_volume_and_fail_a_member_and_its_end_is_shown() {
    let dir = array();
    let path = dir.path();
    let served = Served::start(path, &["a", "b", "c"]);
    exits(path, 0, &["wait", "vol"]);
    let mut top = OnTerminal::start(path, &["top"]);
    let text = top.has("3/3");
    assert!(text.starts_with("weft top: 1 volume"), "{text}");
    assert!(
        text.contains("\n>vol ") && text.contains("raid5") && text.contains("14.0 MiB"),
        "{text}"
    );
    assert!(top.is_taken() && top.shown.modes.contains(&"?1049".to_owned()));
    top.press("cy");
    top.has("Done: weft check --no-wait vol");
    // The twin of a key that acts: one that is taken back.
    top.press("\tjf");
    let member = path.join("b").display().to_string();
    top.has(&format!("Run this? y/n  weft fail vol {member}"));
    top.press("n");
    top.has("Nothing was done: weft fail vol");
    assert!(!top.shown.text().contains("faulty"));
    top.press("f");
    top.has("Run this?");
    top.press("y");
    top.has("2/3");
    let text = top.has("faulty");
    assert!(text.contains("1 degraded") && text.contains("Done: weft fail vol"), "{text}");
    assert_eq!(exits(path, 4, &["status", "vol"]).out.matches("b[1](F)").count(), 1);
    assert!(top.shown.colours > 0);
    let mut plain = OnTerminal::with(path, &["top"], &[("NO_COLOR", "1")]);
    plain.has("2/3");
    assert_eq!(plain.shown.colours, 0);
    plain.press("q");
    assert_eq!(plain.wait(), Some(0));
    top.press("?");
    top.has("declares the chosen member failed");
    top.press(" ");
    exits(path, 0, &["stop", "vol"]);
    assert_eq!(served.wait(), Some(0));
    top.has("1 gone");
    top.press("q");
    assert_eq!(top.wait(), Some(0));
}

#[test]
fn a_signal_and_a_new_size_are_taken_and_the_terminal_is_restored() {
    let dir = array();
    let path = dir.path();
    let _served = Served::start(path, &["a", "b", "c"]);
    for end in [Signal::TERM, Signal::INT, Signal::HUP] {
        let mut top = OnTerminal::start(path, &["top", "vol"]);
        top.has("3/3");
        let size = Winsize { ws_row: 5, ws_col: COLUMNS, ws_xpixel: 0, ws_ypixel: 0 };
        tcsetwinsize(&top.program, size).unwrap();
        top.has("The terminal has 100 columns and 5 lines");
        kill_process(Pid::from_child(&top.child), end).unwrap();
        assert_eq!(top.wait(), Some(0), "{end:?}");
    }
    let mut top = OnTerminal::start(path, &["top", "--count", "2"]);
    top.has("3/3");
    assert_eq!(top.wait(), Some(0));
    // Ctrl-C is a key of the screen.
    let mut top = OnTerminal::start(path, &["top"]);
    top.has("3/3");
    top.press("\x03");
    assert_eq!(top.wait(), Some(0));
}

#[test]
fn without_a_terminal_frames_are_text_or_refused() {
    let dir = array();
    let path = dir.path();
    let told = exits(path, 2, &["top"]).err;
    assert!(told.contains("--batch") && told.contains("status --watch"), "{told}");
    assert!(exits(path, 1, &["top", "--batch", "vol"]).err.contains("no running volume"));
    assert!(exits(path, 0, &["top", "-bn1"]).out.starts_with("weft top: 0 volumes"));
    let served = Served::start(path, &["a", "b", "c"]);
    exits(path, 0, &["wait", "vol"]);
    let text = exits(path, 0, &["top", "--batch", "--count", "2", "vol"]).out;
    assert_eq!(text.matches("weft top: 1 volume").count(), 2, "{text}");
    assert_eq!(text.matches("\n vol ").count(), 2, "{text}");
    assert_eq!(text.matches(" in_sync ").count(), 6, "{text}");
    assert!(!text.contains('\x1b'), "{text}");
    drop(served);
}
