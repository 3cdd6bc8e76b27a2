//! `weft daemon` through the real binary: volumes of a file, servers that are killed, a file that
//! is read again.

mod common;

use std::io::{BufRead, BufReader};
use std::os::unix::net::UnixDatagram;
use std::path::Path;
use std::process::{Child, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};

use common::client::Client;
use common::{Served, command, exits, json};
use rustix::process::{Pid, Signal, kill_process};
use tempfile::{TempDir, tempdir};

/// A daemon for the `weft.toml` of a folder. Its servers end with it.
struct Daemon {
    child: Child,
    /// Lines of its standard output.
    lines: Receiver<String>,
    dir: TempDir,
}

impl Daemon {
    fn start(dir: TempDir) -> Self {
        Self::of(command(dir.path(), &["daemon", "--config", "weft.toml"]), dir)
    }

    fn of(mut command: std::process::Command, dir: TempDir) -> Self {
        let log = std::fs::File::create(dir.path().join("log")).unwrap();
        let mut child = command.stdout(Stdio::piped()).stderr(log).spawn().unwrap();
        let out = BufReader::new(child.stdout.take().unwrap());
        let (sender, lines) = channel();
        std::thread::spawn(move || {
            out.lines().map_while(Result::ok).for_each(|line| _ = sender.send(line));
        });
        Self { child, lines, dir }
    }

    fn path(&self) -> &Path {
        self.dir.path()
    }

    fn log(&self) -> String {
        std::fs::read_to_string(self.path().join("log")).unwrap()
    }

    /// Names of the volumes in the next `count` lines of standard output, in order, and the last
    /// address.
    fn ready(&self, count: usize) -> (Vec<String>, String) {
        let mut names = Vec::new();
        let mut last = String::new();
        for _ in 0..count {
            let line =
                self.lines.recv_timeout(PATIENCE).unwrap_or_else(|_| panic!("{}", self.log()));
            let mut words = line.split(' ').skip(1).map(str::to_owned);
            names.extend(words.next());
            last = words.next().unwrap();
        }
        names.sort();
        (names, last)
    }

    fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.child), signal).unwrap();
    }

    /// Writes a new file and has it read. Waits until the log says so.
    fn reload(&self, text: &str) {
        let marks = |it: &Self| {
            it.log().matches(": read again").count() + it.log().matches("as they are").count()
        };
        let before = marks(self);
        std::fs::write(self.path().join("weft.toml"), text).unwrap();
        self.signal(Signal::HUP);
        self.until("the file is read", || marks(self) > before);
    }

    fn until(&self, what: &str, is_so: impl Fn() -> bool) {
        let start = Instant::now();
        while !is_so() {
            assert!(start.elapsed() < PATIENCE, "{what}: {}", self.log());
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    /// Process of the server of a volume; `None` if none runs.
    fn server(&self, name: &str) -> Option<Pid> {
        let status = json(self.path(), &["status", "--json"]);
        let servers = status["servers"].as_array().unwrap();
        let is_named = |it: &&serde_json::Value| it["volumes"][0]["name"] == name;
        let pid = servers.iter().find(is_named)?["pid"].as_i64().unwrap();
        Pid::from_raw(i32::try_from(pid).unwrap())
    }

    fn is_served(&self, name: &str) -> bool {
        self.server(name).is_some()
    }

    /// Ends the daemon. Returns its exit status.
    fn end(&mut self) -> Option<i32> {
        if let Some(status) = self.child.try_wait().unwrap() {
            return status.code();
        }
        self.signal(Signal::TERM);
        let start = Instant::now();
        while start.elapsed() < PATIENCE {
            if let Some(status) = self.child.try_wait().unwrap() {
                return status.code();
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        panic!("the daemon does not end: {}", self.log());
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        if !std::thread::panicking() {
            self.end();
            return;
        }
        let _ = self.child.kill();
        for name in ["one", "two"] {
            let _ = common::weft(self.path(), &["stop", name]);
        }
    }
}

/// Arrays `one` and `two`, whose members begin with their names.
fn arrays() -> TempDir {
    let dir = tempdir().unwrap();
    for name in ["one", "two"] {
        let members = ["a", "b", "c"].map(|it| format!("{name}.{it}"));
        let words = ["create", "-l5", "-n3", "-c64K", "--member-size=8M", "--name", name];
        let words: Vec<&str> =
            words.into_iter().chain(members.iter().map(String::as_str)).collect();
        exits(dir.path(), 0, &words);
    }
    dir
}

const ONE: &str = "[volume.one]\nmembers = 'one.?'\n";
const TWO: &str = "[volume.two]\nmembers = ['*.b', 'two.a', 'two.c']\narray = 'two'\n";
const PATIENCE: Duration = Duration::from_secs(60);

fn with(text: &str) -> TempDir {
    let dir = arrays();
    std::fs::write(dir.path().join("weft.toml"), text).unwrap();
    dir
}

#[test]
fn all_volumes_are_served_and_end_in_good_order() {
    let dir = with(ONE);
    std::fs::create_dir(dir.path().join("weft.d")).unwrap();
    std::fs::write(dir.path().join("weft.d/two.toml"), TWO).unwrap();
    std::fs::write(dir.path().join("weft.d/not-read.txt"), "x").unwrap();
    let socket = dir.path().join("notify");
    let notified = UnixDatagram::bind(&socket).unwrap();
    let mut command = command(dir.path(), &["daemon", "--config", "weft.toml"]);
    command.env("NOTIFY_SOCKET", &socket);
    let mut daemon = Daemon::of(command, dir);
    let (names, address) = daemon.ready(2);
    assert_eq!(names, ["one", "two"]);
    let mut buffer = [0; 256];
    let count = notified.recv(&mut buffer).unwrap();
    assert_eq!(&buffer[..count], b"READY=1\nSTATUS=serving 2 of 2 volumes");
    let name = address.split('?').next().unwrap().rsplit('/').next().unwrap().to_owned();
    Client::connect(&address).write(4096, &[7; 8192]);
    assert_eq!(daemon.end(), Some(0), "{}", daemon.log());
    let count = notified.recv(&mut buffer).unwrap();
    assert_eq!(&buffer[..count], b"STOPPING=1");
    for volume in ["one", "two"] {
        let state = exits(daemon.path(), 0, &["examine", &format!("{volume}.a")]).out;
        assert!(state.contains("State : clean"), "{state}");
        assert!(daemon.log().contains(&format!("{volume}: INFO stopped")), "{}", daemon.log());
    }
    let members = ["a", "b", "c"].map(|it| format!("{name}.{it}"));
    let words = ["cat", "--offset=4096", "--length=8192"];
    let words: Vec<&str> = words.into_iter().chain(members.iter().map(String::as_str)).collect();
    assert!(common::weft(daemon.path(), &words).stdout == [7; 8192]);
}

#[test]
fn a_server_that_is_killed_is_started_again_and_one_that_was_stopped_is_not() {
    let daemon = Daemon::start(with(&format!("{ONE}{TWO}")));
    daemon.ready(2);
    let (one, two) = (daemon.server("one").unwrap(), daemon.server("two").unwrap());
    kill_process(one, Signal::KILL).unwrap();
    let (names, address) = daemon.ready(1);
    assert_eq!(names, ["one"]);
    Client::connect(&address).write(0, &[1; 4096]);
    assert!(daemon.server("one").is_some_and(|it| it != one));
    assert_eq!(daemon.server("two"), Some(two), "the other one goes on");
    assert!(daemon.log().contains("one: the server has ended: signal: 9"), "{}", daemon.log());

    exits(daemon.path(), 0, &["stop", "one"]);
    daemon.until("one has stopped", || daemon.log().contains("one: INFO stopped"));
    assert!(daemon.lines.recv_timeout(Duration::from_millis(1500)).is_err(), "{}", daemon.log());
    daemon.reload(&format!("{ONE}{TWO}"));
    assert_eq!(daemon.ready(1).0, ["one"]);
}

#[test]
fn a_new_file_starts_stops_and_tunes_and_a_wrong_one_changes_nothing() {
    let daemon = Daemon::start(with(&format!("{ONE}set.scheduler = 'bfq'\n")));
    daemon.ready(1);
    let server = daemon.server("one");
    let knob = |name: &str| exits(daemon.path(), 0, &["get", "one", name]).out;
    assert_eq!(knob("scheduler"), "scheduler=bfq\n");

    let text = format!("{ONE}set = {{ stripe_cache_size = 512, max_sectors_kb = '1M' }}\n{TWO}");
    daemon.reload(&text);
    assert_eq!(daemon.ready(1).0, ["two"]);
    daemon.until("knobs are set", || daemon.log().contains("weft: one: set "));
    assert_eq!(knob("stripe_cache_size"), "stripe_cache_size=512\n");
    assert_eq!(knob("max_sectors_kb"), "max_sectors_kb=1024\n");
    assert_eq!(knob("scheduler"), "scheduler=none\n", "it is no longer in the file");
    assert_eq!(daemon.server("one"), server);

    for wrong in ["[volume.one]\n", "[volume", "[volume.one]\nmembers = 'x'\nset.no = 1\n", "x = 1"]
    {
        daemon.reload(wrong);
        assert!(daemon.is_served("two") && daemon.server("one") == server, "{wrong}");
    }
    daemon.reload(&format!(
        "{ONE}set.stripe_cache_size = 512\nset.max_sectors_kb = '1M'\nread-only = true\n"
    ));
    daemon.until("two is gone", || !daemon.is_served("two"));
    assert!(daemon.log().contains("weft: one: has other settings in the file"), "{}", daemon.log());
    assert_eq!(daemon.server("one"), server);
}

#[test]
fn members_that_come_later_are_waited_for_and_a_reason_is_told_once() {
    let dir = with(ONE);
    for member in ["a", "b", "c"] {
        let path = dir.path().join(format!("one.{member}"));
        std::fs::rename(&path, path.with_file_name(format!("away.{member}"))).unwrap();
    }
    let daemon = Daemon::start(dir);
    daemon.until("a start fails", || daemon.log().contains("one: not served"));
    // One of three members: refused. The second start fails in another way than the first one.
    let back = |member: &str| {
        let path = daemon.path().join(format!("away.{member}"));
        std::fs::rename(&path, path.with_file_name(format!("one.{member}"))).unwrap();
    };
    back("a");
    daemon.until("a start is refused", || daemon.log().contains("exit status: 3"));
    std::thread::sleep(Duration::from_secs(5));
    assert_eq!(daemon.log().matches("exit status: 3").count(), 1, "{}", daemon.log());
    back("b");
    back("c");
    assert_eq!(daemon.ready(1).0, ["one"]);
}

/// Servers outlive a daemon that is killed, and the next one ends them, or starts them again.
#[test]
fn servers_of_a_killed_daemon_belong_to_the_next() {
    let mut daemon = Daemon::start(with(&format!("{ONE}{TWO}")));
    daemon.ready(2);
    let (one, two) = (daemon.server("one").unwrap(), daemon.server("two").unwrap());
    daemon.signal(Signal::KILL);
    daemon.child.wait().unwrap();
    assert_eq!((daemon.server("one"), daemon.server("two")), (Some(one), Some(two)));
    // The folder goes on to the next daemon.
    let dir = std::mem::replace(&mut daemon.dir, tempdir().unwrap());
    drop(daemon);
    let mut daemon = Daemon::start(dir);
    assert_eq!(daemon.ready(2).0, ["one", "two"]);
    assert_eq!((daemon.server("one"), daemon.server("two")), (Some(one), Some(two)));
    kill_process(one, Signal::KILL).unwrap();
    assert_eq!(daemon.ready(1).0, ["one"]);
    exits(daemon.path(), 0, &["stop", "two"]);
    assert!(daemon.lines.recv_timeout(Duration::from_millis(1500)).is_err(), "{}", daemon.log());
    daemon.reload(&format!("{ONE}{TWO}"));
    assert_eq!(daemon.ready(1).0, ["two"]);
    assert_eq!(daemon.end(), Some(0));
    assert!(!daemon.is_served("one") && !daemon.is_served("two"));
}

#[test]
fn one_volume_is_served_in_place_with_options_for_one_start() {
    let dir = with(&format!("{ONE}{TWO}"));
    let path = dir.path();
    let words = ["daemon", "--config", "weft.toml", "two", "--", "--read-only"];
    let served = Served::of(path, command(path, &words));
    let status = json(path, &["status", "two", "--json"]);
    let pid = status["servers"][0]["pid"].as_i64().unwrap();
    assert_eq!(pid, i64::from(served.pid().as_raw_nonzero().get()), "the same process");
    assert_eq!(status["servers"][0]["volumes"][0]["array_state"], "readonly");
    exits(path, 0, &["stop", "two"]);
    assert_eq!(served.wait(), Some(0));
    let text = exits(path, 2, &["daemon", "--config", "weft.toml", "three"]).err;
    assert!(text.contains("has no such volume; it has one, two"), "{text}");
}

#[test]
fn a_check_prints_commands_that_work_and_starts_nothing() {
    let dir = with(&format!("{ONE}write-back = '4M'\nclient = {{ one = 'weight:200' }}\n{TWO}"));
    let path = dir.path();
    let before = common::contents(path);
    let words = ["daemon", "--config", "weft.toml", "--check"];
    let text = exits(path, 0, &words).out;
    let expected = "weft serve --name=one --client=one=weight:200 --write-back=4M -- 'one.?'\n\
                    weft serve --name=two --array=two -- '*.b' two.a two.c\n";
    assert_eq!(text, expected);
    let told = json(path, &[&words[..], &["--json"]].concat());
    let commands = told["volumes"].as_array().unwrap().iter();
    let commands: String =
        commands.map(|it| format!("{}\n", it["command"].as_str().unwrap())).collect();
    assert_eq!(commands, expected);
    assert!(common::contents(path) == before);
}

#[test]
fn lines_of_an_mdadm_conf_are_volumes() {
    let dir = arrays();
    let path = dir.path();
    let detail = json(path, &["examine", "one.a", "--json"]).to_string();
    let uuid = detail.split("\"array_uuid\":\"").nth(1).unwrap().split('"').next().unwrap();
    let text = format!(
        "DEVICE partitions\nMAILADDR root\nARRAY /dev/md/first metadata=1.2\n  UUID={uuid}\n\
         ARRAY /dev/md2 name=any:two\nARRAY <ignore> UUID={uuid}\nARRAY /dev/md3\n"
    );
    std::fs::write(path.join("mdadm.conf"), &text).unwrap();
    let words = ["daemon", "--config", "mdadm.conf", "--check"];
    let found = exits(path, 0, &words);
    let first =
        format!("weft serve --name=first --uuid={} -- (members found", uuid.replace(':', ""));
    assert!(found.out.starts_with(&first), "{}", found.out);
    assert!(found.out.contains("--name=md2 --array=any:two -- (members found"), "{}", found.out);
    assert_eq!(found.out.lines().count(), 2);
    assert!(found.err.contains("ARRAY md3: neither UUID nor name"), "{}", found.err);
    std::fs::write(path.join("mdadm.conf"), format!("{text}ARRAY md2 UUID={uuid}\n")).unwrap();
    let text = exits(path, 2, &words).err;
    assert!(text.contains("mdadm.conf: found two ARRAY lines called md2"), "{text}");
}

#[test]
fn wrong_files_are_told_by_file_and_key() {
    let dir = tempdir().unwrap();
    let path = dir.path();
    let told = |text: &str| {
        std::fs::write(path.join("weft.toml"), text).unwrap();
        exits(path, 2, &["daemon", "--config", "weft.toml", "--check"]).err
    };
    let members = "members = ['a', 'b']";
    for (text, expected) in [
        ("[volume.a]\nmembers = [", "weft: weft.toml:2: "),
        ("[volumes.a]\nmembers = 'a'", "found \"volumes\", expected tables [volume.NAME]"),
        ("volume = 5", "volume: found a number, expected tables [volume.NAME]"),
        ("[volume.'a/b']\nmembers = 'a'", "weft.toml: volume.a/b: expected a name of letters"),
        (
            "[volume.a]\nread-only = true",
            "volume.a: members: found none, expected files or devices",
        ),
        ("[volume.a]\nuuid = 'x'", "volume.a: --uuid: x: not a uuid"),
        ("[volume.a]\nmembers = [['a']]", "members: found a list, expected a string or number"),
        (
            &format!("[volume.a]\n{members}\nread-only = 'yes'"),
            "read-only: found a string, expected true",
        ),
        (&format!("[volume.a]\n{members}\nlisten = 'ublk:x'"), "ublk:N, the number of /dev/ublkbN"),
        (&format!("[volume.a]\n{members}\nset.nothing = 1"), "nothing: no such knob"),
        (&format!("[volume.a]\n{members}\nset = 'x'"), "set: found a string, expected a table"),
        (
            &format!("[volume.a]\n{members}\nwrite-bakc = '1M'"),
            "similar argument exists: '--write-back'",
        ),
        (&format!("[volume.a]\n{members}\nforce-dirty = true"), "force-dirty: is for one start"),
        (&format!("[volume.a]\n{members}\n[volume.a]"), "weft.toml:3: duplicate key"),
    ] {
        let text = told(text);
        assert!(text.contains(expected), "found {text:?}, expected {expected:?}");
    }
    let text = exits(path, 1, &["daemon", "--config", "absent.toml"]).err;
    assert!(text.contains("absent.toml: No such file"), "{text}");
    std::fs::write(path.join("weft.toml"), "# nothing\n").unwrap();
    exits(path, 0, &["daemon", "--config", "weft.toml", "--check"]);
    let text = exits(path, 2, &["daemon", "--config", "weft.toml"]).err;
    assert!(text.contains("found no volume, expected tables [volume.NAME]"), "{text}");
    std::fs::create_dir(path.join("weft.d")).unwrap();
    for name in ["1.toml", "2.toml"] {
        std::fs::write(path.join("weft.d").join(name), "[volume.a]\nmembers = 'a'").unwrap();
    }
    let text = exits(path, 2, &["daemon", "--config", "weft.toml"]).err;
    assert!(text.contains("weft.d/2.toml: volume.a is in weft.d/1.toml too"), "{text}");
}
