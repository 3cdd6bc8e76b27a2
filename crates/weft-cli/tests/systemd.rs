//! Tests of what systemd is told by `weft serve` and `weft daemon`: signs of life, and the state in
//! a line.

mod common;

use std::os::unix::net::UnixDatagram;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use common::{array, command, exits, json};
use rustix::process::{Pid, Signal, kill_process};
use tempfile::TempDir;

/// A service manager: the socket that services send to, and the messages so far.
struct Manager {
    socket: UnixDatagram,
    heard: Vec<String>,
}

impl Manager {
    fn at(path: &Path) -> Self {
        Self { socket: UnixDatagram::bind(path.join("notify")).unwrap(), heard: Vec::new() }
    }

    /// The next message; `None` if none comes in this time.
    fn next(&mut self, wait: Duration) -> Option<String> {
        self.socket.set_read_timeout(Some(wait)).unwrap();
        let mut buffer = [0; 1024];
        let count = self.socket.recv(&mut buffer).ok()?;
        let text = String::from_utf8(buffer[..count].to_vec()).unwrap();
        self.heard.push(text.clone());
        Some(text)
    }

    /// Waits for a message that contains a text.
    fn hears(&mut self, text: &str) -> String {
        let start = Instant::now();
        while start.elapsed() < PATIENCE {
            if let Some(found) = self.next(Duration::from_secs(1)).filter(|it| it.contains(text)) {
                return found;
            }
        }
        panic!("no {text:?} among {:?}", self.heard);
    }

    /// Number of signs of life within this time.
    fn signs_of_life(&mut self, span: Duration) -> usize {
        let start = Instant::now();
        let mut count = 0;
        while let Some(left) = span.checked_sub(start.elapsed()).filter(|left| !left.is_zero()) {
            count += usize::from(self.next(left).is_some_and(|it| it == "WATCHDOG=1"));
        }
        count
    }
}

/// A service that is killed at the end of the test.
struct Service(Child);

impl Service {
    /// Starts weft as systemd does, with a watchdog of a second.
    fn start(dir: &Path, arguments: &[&str], change: impl FnOnce(&mut Command)) -> Self {
        let mut command = command(dir, arguments);
        command.env("NOTIFY_SOCKET", dir.join("notify")).env("WATCHDOG_USEC", "1000000");
        command.env("STATE_DIRECTORY", dir.join("state"));
        change(&mut command);
        let log = std::fs::File::create(dir.join("service.log")).unwrap();
        Self(command.stdout(Stdio::null()).stderr(log).spawn().unwrap())
    }

    fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.0), signal).unwrap();
    }

    fn end(mut self) -> Option<i32> {
        self.signal(Signal::TERM);
        self.0.wait().unwrap().code()
    }
}

impl Drop for Service {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

const SERVE: [&str; 4] = ["serve", "a", "b", "c"];
const PATIENCE: Duration = Duration::from_secs(60);
const LONG: Duration = Duration::from_millis(2500);

#[test]
fn a_server_shows_that_it_lives_until_it_is_stopped_by_a_signal() {
    let dir = array();
    let mut manager = Manager::at(dir.path());
    let service = Service::start(dir.path(), &SERVE, |_| ());
    assert_eq!(manager.next(PATIENCE).unwrap(), "READY=1");
    let signs = manager.signs_of_life(LONG);
    assert!((3..=8).contains(&signs), "{:?}", manager.heard);
    assert!(manager.heard.contains(&"STATUS=vol: raid5, all in order".to_owned()));
    service.signal(Signal::STOP);
    manager.signs_of_life(Duration::from_millis(300));
    assert_eq!(manager.signs_of_life(LONG), 0, "{:?}", manager.heard);
    service.signal(Signal::CONT);
    assert!(manager.signs_of_life(LONG) >= 3, "{:?}", manager.heard);
    assert_eq!(service.end(), Some(0));
    manager.hears("STOPPING=1");
}

#[test]
fn a_watchdog_of_another_process_gets_no_signs_of_life() {
    for pid in [Some("1"), None] {
        let dir = array();
        let mut manager = Manager::at(dir.path());
        let change = |command: &mut Command| match pid {
            Some(pid) => _ = command.env("WATCHDOG_PID", pid),
            None => _ = command.env_remove("WATCHDOG_USEC"),
        };
        let service = Service::start(dir.path(), &SERVE, change);
        manager.hears("READY=1");
        assert_eq!(manager.signs_of_life(LONG), 0, "{:?}", manager.heard);
        assert_eq!(service.end(), Some(0));
    }
    // The shell's process becomes weft, as the process of a unit does.
    let dir = array();
    let mut manager = Manager::at(dir.path());
    let line = format!("WATCHDOG_PID=$$ exec {} serve a b c", env!("CARGO_BIN_EXE_weft"));
    let service = Service::start(dir.path(), &SERVE, |command| {
        let mut shell = Command::new("sh");
        shell.args(["-c", &line]).current_dir(dir.path()).stdin(Stdio::null());
        let variables = command.get_envs().filter_map(|(name, value)| Some((name, value?)));
        shell.envs(variables);
        *command = shell;
    });
    manager.hears("READY=1");
    assert!(manager.signs_of_life(LONG) >= 3, "{:?}", manager.heard);
    assert_eq!(service.end(), Some(0));
}

#[test]
fn a_server_says_that_it_is_degraded_and_rebuilt() {
    let dir = array();
    let mut manager = Manager::at(dir.path());
    let service = Service::start(dir.path(), &SERVE, |_| ());
    manager.hears("all in order");
    exits(dir.path(), 0, &["fail", "vol", "c"]);
    assert_eq!(manager.hears("degraded"), "STATUS=vol: raid5, degraded (2 of 3 members in sync)");
    exits(dir.path(), 0, &["set", "vol", "sync_speed_max=100"]);
    exits(dir.path(), 0, &["add", "vol", "d", "--member-size=8M"]);
    manager.hears("degraded (2 of 3 members in sync), recover ");
    exits(dir.path(), 0, &["set", "vol", "sync_speed_max=1000000"]);
    manager.hears("all in order");
    assert_eq!(service.end(), Some(0));
}

/// Arrays `vol` and `two`, and a `weft.toml` for them.
fn two_volumes() -> TempDir {
    let dir = array();
    let create = ["create", "-l1", "-n2", "--member-size=8M", "--name=two", "x", "y"];
    exits(dir.path(), 0, &create);
    let text = "[volume.vol]\nmembers = ['a', 'b', 'c']\n[volume.two]\nmembers = ['x', 'y']\n";
    std::fs::write(dir.path().join("weft.toml"), text).unwrap();
    dir
}

const DAEMON: [&str; 3] = ["daemon", "--config", "weft.toml"];

#[test]
fn a_daemon_shows_that_it_lives_and_which_volume_is_not_in_order() {
    let dir = two_volumes();
    let mut manager = Manager::at(dir.path());
    let service = Service::start(dir.path(), &DAEMON, |_| ());
    let ready = manager.hears("READY=1");
    assert_eq!(ready, "READY=1\nSTATUS=serving 2 of 2 volumes");
    assert!(manager.signs_of_life(LONG) >= 3, "{:?}", manager.heard);
    exits(dir.path(), 0, &["fail", "vol", "c"]);
    let status = "STATUS=serving 2 of 2 volumes; vol: degraded (2 of 3 members in sync)";
    assert_eq!(manager.hears("degraded"), status);
    exits(dir.path(), 0, &["stop", "two"]);
    let status = "STATUS=serving 1 of 2 volumes; vol: degraded (2 of 3 members in sync); not two";
    assert_eq!(manager.hears("not two"), status);
    service.signal(Signal::STOP);
    manager.signs_of_life(Duration::from_millis(300));
    assert_eq!(manager.signs_of_life(LONG), 0, "{:?}", manager.heard);
    service.signal(Signal::CONT);
    assert_eq!(service.end(), Some(0));
}

#[test]
fn a_file_that_is_read_again_is_told_with_its_time() {
    let dir = two_volumes();
    let mut manager = Manager::at(dir.path());
    let service = Service::start(dir.path(), &DAEMON, |_| ());
    manager.hears("READY=1");
    for text in [std::fs::read_to_string(dir.path().join("weft.toml")).unwrap(), "[x".into()] {
        std::fs::write(dir.path().join("weft.toml"), text).unwrap();
        service.signal(Signal::HUP);
        let reloading = manager.hears("RELOADING=1");
        let usec = reloading.strip_prefix("RELOADING=1\nMONOTONIC_USEC=").unwrap();
        let now = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic).tv_sec;
        let ago = now - usec.parse::<i64>().unwrap() / 1_000_000;
        assert!((0..60).contains(&ago), "{reloading}");
        manager.hears("READY=1");
    }
    assert_eq!(service.end(), Some(0));
}

/// The process of the server of `vol`, as `weft status` has it.
fn server(dir: &Path) -> Option<Pid> {
    let status = json(dir, &["status", "--json"]);
    let servers = status["servers"].as_array().unwrap();
    let one = servers.iter().find(|it| it["volumes"][0]["name"] == "vol")?;
    Pid::from_raw(i32::try_from(one["pid"].as_i64()?).unwrap())
}

#[test]
fn a_daemon_kills_a_server_that_does_not_answer_and_starts_it_again() {
    let dir = two_volumes();
    let mut manager = Manager::at(dir.path());
    let service = Service::start(dir.path(), &DAEMON, |_| ());
    manager.hears("READY=1");
    // A server that answers lives on for longer than the watchdog allows a silence.
    let first = server(dir.path()).unwrap();
    manager.signs_of_life(LONG);
    assert_eq!(server(dir.path()), Some(first));
    kill_process(first, Signal::STOP).unwrap();
    manager.hears("serving 1 of 2 volumes; not vol");
    manager.hears("serving 2 of 2 volumes");
    assert!(server(dir.path()).is_some_and(|it| it != first));
    let log = std::fs::read_to_string(dir.path().join("service.log")).unwrap();
    assert!(log.contains("vol: has not answered for 1 s: killed"), "{log}");
    assert!(!log.contains("two: has not answered"), "{log}");
    assert_eq!(service.end(), Some(0));
}
