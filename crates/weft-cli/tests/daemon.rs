//! `weft daemon` through the real binary: volumes of a file, servers that are killed, a file that
//! is read again.

mod common;

use std::io::{BufRead, BufReader};
use std::os::unix::fs::FileExt;
use std::os::unix::net::UnixDatagram;
use std::path::Path;
use std::process::{Child, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};

use common::client::Client;
use common::{Served, command, exits, json};
use rustix::process::{Pid, Resource, Rlimit, Signal, kill_process, prlimit};
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
        let mut command = command(dir.path(), &["daemon", "--config", "weft.toml"]);
        // Records of checks are of this daemon alone.
        command.env("STATE_DIRECTORY", dir.path().join("state"));
        Self::of(command, dir)
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
            let mut words = line.strip_prefix("ready ").unwrap().split(' ').map(str::to_owned);
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

    /// Number of times that the log has a text.
    fn count(&self, text: &str) -> usize {
        self.log().matches(text).count()
    }

    /// Kills the daemon, and the server of a volume if one is named. Returns the folder.
    fn kill(mut self, server: Option<&str>) -> TempDir {
        let server = server.map(|name| self.server(name).unwrap());
        self.signal(Signal::KILL);
        self.child.wait().unwrap();
        if let Some(server) = server {
            kill_process(server, Signal::KILL).unwrap();
            // The socket stays, and nothing answers there.
            self.until("the server is gone", || !self.is_served("one"));
        }
        std::mem::replace(&mut self.dir, tempdir().unwrap())
    }

    /// State of a volume in `weft status`.
    fn status(&self, name: &str) -> serde_json::Value {
        let output = common::weft(self.path(), &["status", name, "--json"]);
        let status: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
        status["servers"][0]["volumes"][0].clone()
    }

    /// Record of the only check; null before there is one.
    fn record(&self) -> serde_json::Value {
        let files = std::fs::read_dir(self.path().join("state")).into_iter().flatten().flatten();
        let mut files = files.filter(|it| it.path().extension().is_some_and(|it| it == "json"));
        files.next().map_or(serde_json::Value::Null, |file| {
            serde_json::from_slice(&std::fs::read(file.path()).unwrap()).unwrap()
        })
    }

    /// Sector up to which the only check has come, by its record.
    fn position(&self) -> u64 {
        self.record()["pass"]["position"].as_u64().unwrap_or(0)
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

/// Arrays `one` and `two`. The name of a member begins with that of its array.
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
    daemon.until("knobs are set", || daemon.log().contains("one: set "));
    assert_eq!(knob("stripe_cache_size"), "stripe_cache_size=512\n");
    assert_eq!(knob("max_sectors_kb"), "max_sectors_kb=1024\n");
    assert_eq!(knob("scheduler"), "scheduler=none\n", "it is no longer in the file");
    assert_eq!(daemon.server("one"), server);

    // Changes that come faster than a server answers are made in their order.
    for size in 501..=520 {
        let set = format!("set = {{ stripe_cache_size = {size}, max_sectors_kb = '1M' }}");
        daemon.reload(&format!("{ONE}{set}\n{TWO}"));
    }
    daemon.until("the last is set", || knob("stripe_cache_size") == "stripe_cache_size=520\n");
    for wrong in
        ["", "[volume.one]\n", "[volume", "[volume.one]\nmembers = 'x'\nset.no = 1\n", "x = 1"]
    {
        daemon.reload(wrong);
        assert!(daemon.is_served("two") && daemon.server("one") == server, "{wrong}");
    }
    daemon.reload(&format!(
        "{ONE}set.stripe_cache_size = 520\nset.max_sectors_kb = '1M'\nread-only = true\n"
    ));
    daemon.until("two is gone", || !daemon.is_served("two"));
    assert!(daemon.log().contains("one: has other settings in the file"), "{}", daemon.log());
    assert_eq!(daemon.server("one"), server);
}

#[test]
fn a_knob_that_has_to_wait_for_the_end_of_a_check_is_set_after_it() {
    let slow = "sync_speed_min = 100, sync_speed_max = 100";
    let daemon = Daemon::start(with(&format!("{ONE}set = {{ {slow} }}\n")));
    daemon.ready(1);
    exits(daemon.path(), 0, &["check", "one", "--no-wait"]);
    daemon.reload(&format!("{ONE}set = {{ {slow}, stripe_cache_size = 400 }}\n"));
    let not_yet = "one: not set yet: stripe_cache_size=400: one: busy: a sync is running";
    daemon.until("the knob waits", || daemon.log().contains(not_yet));
    // It is asked for again meanwhile, and told once.
    std::thread::sleep(Duration::from_millis(2500));
    assert_eq!(daemon.log().matches(not_yet).count(), 1, "{}", daemon.log());
    // A knob that does not have to wait is set during the check.
    daemon.reload(&format!("{ONE}set = {{ {slow}, stripe_cache_size = 400, nr_requests = 9 }}\n"));
    daemon.until("the other is set", || daemon.log().contains("one: set nr_requests=9\n"));
    assert_eq!(daemon.status("one")["sync_action"], "check");
    exits(daemon.path(), 0, &["idle", "one"]);
    daemon.until("it is set", || daemon.log().contains("one: set stripe_cache_size=400\n"));
    // A value that no end of a check makes good is not tried again.
    daemon.reload(&format!("{ONE}set.stripe_cache_size = 32768\n"));
    daemon.until("it is refused", || daemon.log().contains("found 32768, expected at most 682"));
    assert_eq!(daemon.log().matches("one: not set: ").count(), 1, "{}", daemon.log());
}

#[test]
fn a_knob_that_is_saved_is_there_after_the_next_start() {
    let text = format!("# mine\n{ONE}set.stripe_cache_size = 300 # few\n");
    let daemon = Daemon::start(with(&text));
    daemon.ready(1);
    let config = "--config=weft.toml";
    let knobs = ["stripe_cache_size=400", "scheduler=bfq"];
    let set = [&["set", "one", "--save", config, "--json"], &knobs[..]].concat();
    let said = json(daemon.path(), &set);
    assert!(said["saved"].as_str().unwrap().ends_with("/weft.toml"), "{said}");
    let saved = text.replace("300 # few", "400 # few") + "set.scheduler = \"bfq\"\n";
    let has = |daemon: &Daemon| {
        let text = std::fs::read_to_string(daemon.path().join("weft.toml")).unwrap();
        assert_eq!(text, saved);
        for knob in ["stripe_cache_size", "scheduler"] {
            let value = exits(daemon.path(), 0, &["get", "one", knob]).out;
            assert!(value.contains(if knob == "scheduler" { "bfq" } else { "400" }), "{value}");
        }
    };
    has(&daemon);
    // What the volume is not asked for changes nothing.
    for (words, code, why) in [
        (&["stripe_cache_size=5", "--save", config][..], 2, "stripe_cache_size"),
        (&["scheduler=none", "stripe_cache_size=5", "--save", config], 2, "stripe_cache_size"),
        (&["bitmap=none", "--save", config], 2, "set it without --save"),
        (&["scheduler=none", "--member=a", "--save", config], 2, "--member"),
        (&["scheduler=none", config], 2, "--save"),
        (&["scheduler=none", "--save", "--config=absent.toml"], 1, "absent.toml"),
        (&["scheduler=none", "--save", "--config=mdadm.conf"], 2, "expected a weft.toml"),
    ] {
        let error = exits(daemon.path(), code, &[&["set", "one"], words].concat()).err;
        assert!(error.contains(why), "{error}");
        has(&daemon);
    }
    // The server alone is started again, then the daemon.
    kill_process(daemon.server("one").unwrap(), Signal::KILL).unwrap();
    daemon.ready(1);
    has(&daemon);
    let daemon = Daemon::start(daemon.kill(Some("one")));
    daemon.ready(1);
    has(&daemon);
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

/// A server that cannot write its data refuses to stop, however often the file is read.
#[test]
fn no_reload_gives_up_data() {
    let dir = tempdir().unwrap();
    let path = dir.path();
    std::fs::File::create(path.join("disk")).unwrap().set_len(8 << 20).unwrap();
    let bare = "[volume.one]\nbare = true\nmembers = 'disk'\nwrite-back = '4M'\n";
    let other = "[volume.two]\nbare = true\nmembers = 'other'\n";
    std::fs::File::create(path.join("other")).unwrap().set_len(8 << 20).unwrap();
    std::fs::write(path.join("weft.toml"), format!("{bare}{other}")).unwrap();
    let mut daemon = Daemon::start(dir);
    daemon.ready(2);
    let server = daemon.server("one").unwrap();
    let limit = |bytes| {
        let limit = Rlimit { current: bytes, maximum: None };
        prlimit(Some(server), Resource::Fsize, limit).unwrap();
    };
    limit(Some(1 << 20));
    let socket = daemon.path().join("weft/one.nbd");
    let mut client = Client::connect(&format!("nbd+unix:///one?socket={}", socket.display()));
    client.write(4 << 20, &[5; 4096]);
    daemon.reload(other);
    daemon.until("a stop is refused", || daemon.log().contains("one: not stopped: "));
    assert!(daemon.log().contains("no longer in the file, and goes on until weft stop"));
    std::thread::sleep(Duration::from_millis(2500));
    daemon.reload(other);
    daemon.reload(&format!("{bare}{other}"));
    std::thread::sleep(Duration::from_millis(500));
    assert_eq!(daemon.server("one"), Some(server));
    assert_eq!(client.read(4 << 20, 4096), [5; 4096]);
    // The request to end the service is refused, too, until the data can be written.
    daemon.signal(Signal::TERM);
    daemon.until("a stop is refused", || daemon.log().contains("second SIGTERM gives up what is"));
    limit(None);
    exits(daemon.path(), 0, &["stop", "one"]);
    drop(client);
    assert_eq!(daemon.end(), Some(0), "{}", daemon.log());
    assert_eq!(std::fs::read(daemon.path().join("disk")).unwrap()[4 << 20..][..4096], [5; 4096]);
}

/// A service that is told to end while its servers start leaves no server behind.
#[test]
fn an_end_during_the_start_leaves_no_server() {
    let mut dir = with(&format!("{ONE}{TWO}"));
    for wait in [0, 2, 4, 6, 8, 12, 20, 40] {
        let mut daemon = Daemon::start(dir);
        std::thread::sleep(Duration::from_millis(wait));
        // A signal that comes before the service watches signals kills the service.
        daemon.end();
        std::thread::sleep(Duration::from_millis(100));
        let path = daemon.path().to_owned();
        let is_left = |entry: std::fs::DirEntry| {
            let cmdline = std::fs::read(entry.path().join("cmdline")).unwrap_or_default();
            let here = std::fs::read_link(entry.path().join("cwd")).is_ok_and(|it| it == path);
            here && String::from_utf8_lossy(&cmdline).contains("serve")
        };
        let left = std::fs::read_dir("/proc")
            .unwrap()
            .flatten()
            .filter_map(|it| is_left(it).then_some(()));
        assert_eq!(left.count(), 0, "{wait} ms: {}", daemon.log());
        dir = std::mem::replace(&mut daemon.dir, tempdir().unwrap());
    }
}

/// A server of the same name that is none of the file is left alone, and so is a file that another
/// daemon serves.
#[test]
fn others_are_left_alone() {
    let dir = with(&format!("{ONE}{TWO}"));
    let path = dir.path().to_owned();
    let stranger = Served::start(&path, &["two.a", "two.b", "two.c", "--name", "one"]);
    let mut daemon = Daemon::start(dir);
    daemon.until("it is told", || daemon.log().contains("and is no server of this file"));
    let text = exits(&path, 3, &["daemon", "--config", "weft.toml"]).err;
    assert!(text.contains("another weft daemon serves its volumes"), "{text}");
    assert_eq!(daemon.end(), Some(0), "{}", daemon.log());
    assert_eq!(
        json(&path, &["status", "--json"])["servers"][0]["pid"],
        stranger.pid().as_raw_nonzero().get()
    );
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
    // The next daemon has the same folder, and sets the knobs that have changed in the file
    // meanwhile.
    let text = format!("{ONE}set.stripe_cache_size = 400\nread-only = true\n{TWO}");
    std::fs::write(daemon.path().join("weft.toml"), text).unwrap();
    let dir = std::mem::replace(&mut daemon.dir, tempdir().unwrap());
    drop(daemon);
    let mut daemon = Daemon::start(dir);
    assert_eq!(daemon.ready(2).0, ["one", "two"]);
    assert_eq!((daemon.server("one"), daemon.server("two")), (Some(one), Some(two)));
    daemon.until("knobs are set", || daemon.log().contains("one: set stripe_cache_size=400"));
    assert!(daemon.log().contains("one: has other settings in the file"), "{}", daemon.log());
    assert!(!daemon.log().contains("two: has other settings in the file"), "{}", daemon.log());
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
    let check = "check = 'monthly'\ncheck-for = '6h'\n";
    let one = format!("{ONE}write-back = '4M'\nclient = {{ one = 'weight:200' }}\n");
    let dir = with(&format!("{check}{one}check = 'never'\n{TWO}"));
    let path = dir.path();
    let before = common::contents(path);
    let words = ["daemon", "--config", "weft.toml", "--check"];
    let text = exits(path, 0, &words).out;
    let expected = "weft serve --name=one --client=one=weight:200 --write-back=4M -- one.?\n\
                    weft serve --name=two --array=two -- *.b two.a two.c  \
                    # checked every 30d, for 6h a day\n";
    assert_eq!(text, expected);
    let told = json(path, &[&words[..], &["--json"]].concat());
    assert_eq!(told["volumes"][1]["command"], "weft serve --name=two --array=two --");
    assert_eq!(told["volumes"][1]["members"], serde_json::json!(["*.b", "two.a", "two.c"]));
    let check = serde_json::json!({"every_s": 30 * 86_400, "for_s": 6 * 3600});
    assert_eq!(
        (&told["volumes"][0]["check"], &told["volumes"][1]["check"]),
        (&None::<u8>.into(), &check)
    );
    assert!(common::contents(path) == before);
    for line in text.lines() {
        let mut shell = std::process::Command::new("sh");
        let line = line
            .replace("weft serve", &format!("{} serve --exec true", env!("CARGO_BIN_EXE_weft")));
        shell
            .args(["-c", &line])
            .current_dir(path)
            .env("XDG_RUNTIME_DIR", path)
            .env("TMPDIR", path);
        let output = shell.output().unwrap();
        assert!(output.status.success(), "{line}: {output:?}");
    }
}

#[test]
fn lines_of_an_mdadm_conf_are_volumes() {
    let dir = arrays();
    let path = dir.path();
    let detail = json(path, &["examine", "one.a", "--json"]).to_string();
    let uuid = detail.split("\"array_uuid\":\"").nth(1).unwrap().split('"').next().unwrap();
    let text = format!(
        "DEVICE partitions\nMAILADDR root\nARRAY /dev/md/first metadata=1.2\n  UUID={uuid}\n\
         ARRAY /dev/md2 name=any:two\nARRAY <ignore> UUID={uuid}\nARRAY /dev/md3\nARRAY metadata=imsm UUID={uuid}\n"
    );
    std::fs::write(path.join("mdadm.conf"), &text).unwrap();
    let words = ["daemon", "--config", "mdadm.conf", "--check"];
    let found = exits(path, 0, &words);
    let first = format!("weft serve --name=first --uuid={} -- …  # members", uuid.replace(':', ""));
    assert!(found.out.starts_with(&first), "{}", found.out);
    assert!(
        found.out.contains("--name=md2 --array=any:two -- …  # members are found among all"),
        "{}",
        found.out
    );
    assert_eq!(found.out.lines().count(), 2);
    assert!(found.err.contains("ARRAY md3: neither UUID nor name"), "{}", found.err);
    assert!(found.err.contains("metadata of a vendor; the line is left out"), "{}", found.err);
    std::fs::write(path.join("mdadm.conf"), text.replace("UUID=", "UUID=x")).unwrap();
    let wrong = exits(path, 2, &words).err;
    assert!(wrong.contains("mdadm.conf:3: uuid: found \"x"), "{wrong}");
    std::fs::write(path.join("mdadm.conf"), format!("{text}ARRAY md2 UUID={uuid}\n")).unwrap();
    let text = exits(path, 2, &words).err;
    assert!(text.contains("mdadm.conf: found two ARRAY lines called md2"), "{text}");
}

#[test]
fn volumes_are_checked_again_and_again_and_a_wrong_strip_is_found() {
    let dir = with(&format!("check = '2s'\n{ONE}{TWO}"));
    // Full stripe 0 of left-symmetric on three members has its parity on slot 2.
    let file = std::fs::File::options().write(true).open(dir.path().join("one.c")).unwrap();
    file.write_all_at(&[0xa5], (1 << 20) + 5000).unwrap();
    file.sync_all().unwrap();
    let daemon = Daemon::start(dir);
    daemon.ready(2);
    let wrong = "one: check: has ended: mismatch_cnt 8 sectors; weft repair makes them agree";
    daemon.until("one is checked twice", || daemon.count(wrong) > 1);
    let right = "two: check: has ended: nothing disagrees";
    daemon.until("two is checked twice", || daemon.count(right) > 1);
    assert_eq!(daemon.count("two: check: has ended: mismatch"), 0, "{}", daemon.log());
    daemon.until("one is repaired", || {
        common::weft(daemon.path(), &["repair", "one"]).status.success()
    });
    daemon.until("one is right", || daemon.log().contains("one: check: has ended: nothing"));

    // Checks of a volume end with their key in the file, and the server serves on.
    let servers = (daemon.server("one"), daemon.server("two"));
    daemon.reload(&format!("check = '2s'\n{ONE}check = 'never'\n{TWO}"));
    std::thread::sleep(Duration::from_secs(1));
    let (before, of_two) = (daemon.count("one: check: begins"), daemon.count(right));
    daemon.until("two is checked on", || daemon.count(right) > of_two + 1);
    assert_eq!(daemon.count("one: check: begins"), before, "{}", daemon.log());
    assert_eq!((daemon.server("one"), daemon.server("two")), servers);
    assert_eq!(daemon.count("has other settings"), 0, "{}", daemon.log());
}

/// The files of both volumes are on one file system, as partitions are on one disk.
#[test]
fn checks_on_one_disk_take_turns() {
    let slow = "check = '5s'\nset.sync_speed_max = 4000\n";
    let daemon = Daemon::start(with(&format!("{ONE}{slow}{TWO}{slow}")));
    let ended = |name: &str| daemon.count(&format!("{name}: check: has ended: nothing")) > 0;
    daemon.until("both are checked", || ended("one") && ended("two"));
    let log = daemon.log();
    let waits = |name: &str, other: &str| {
        log.contains(&format!("{name}: check: is due, and waits: the check of {other} runs, which"))
    };
    assert!(waits("one", "two") || waits("two", "one"), "{log}");
    let mut running = None;
    for line in log.lines() {
        let name = if line.contains("one: ") { "one" } else { "two" };
        if line.contains(": check: begins") {
            assert_eq!(running.replace(name), None, "{log}");
        } else if line.contains(": check: has ended") {
            assert_eq!(running.take(), Some(name), "{log}");
        }
    }
}

#[test]
fn a_check_outlives_daemon_and_server() {
    let dir = with(&format!("{ONE}check = '2s'\nset.sync_speed_max = 500\n"));
    let daemon = Daemon::start(dir);
    daemon.ready(1);
    daemon.until("the check has got on", || daemon.position() >= 1024);

    // The server of a daemon that is killed goes on, and so does its check.
    let before = daemon.position();
    let daemon = Daemon::start(daemon.kill(None));
    daemon.ready(1);
    daemon.until("the check goes on", || daemon.position() > before);
    assert_eq!(daemon.count("check: "), 0, "{}", daemon.log());

    // If the server is killed too, the next one begins where the check was.
    let dir = daemon.kill(Some("one"));
    let daemon = Daemon::start(dir);
    let before = daemon.position();
    assert!((1024..14_336).contains(&before), "{before}");
    daemon.ready(1);
    daemon.until("the check goes on", || daemon.log().contains("one: check: goes on at "));
    daemon.until("it gets on", || daemon.position() > before);
    let status = daemon.status("one");
    let (done, units) = (status["sync_completed"][0].as_u64(), status["sync_stripes"].as_u64());
    assert!(units.unwrap() * 8 < done.unwrap() && done.unwrap() > before, "{status}");
    assert_eq!(daemon.count("check: begins"), 0, "{}", daemon.log());

    // Without its record it begins anew.
    let dir = daemon.kill(Some("one"));
    std::fs::remove_dir_all(dir.path().join("state")).unwrap();
    let daemon = Daemon::start(dir);
    daemon.ready(1);
    daemon.until("it begins", || daemon.log().contains("one: check: begins"));
    assert_eq!(daemon.count("goes on"), 0, "{}", daemon.log());
    assert!(daemon.position() < before);

    // A damaged record is told of, and counts as none.
    let dir = daemon.kill(Some("one"));
    for file in std::fs::read_dir(dir.path().join("state")).unwrap() {
        std::fs::write(file.unwrap().path(), "{").unwrap();
    }
    let daemon = Daemon::start(dir);
    daemon.ready(1);
    daemon.until("it begins", || daemon.log().contains("one: check: begins"));
    assert!(daemon.log().contains("EOF while parsing"), "{}", daemon.log());
    exits(daemon.path(), 0, &["set", "one", "sync_speed_max=1000000"]);
    daemon.until("it ends", || daemon.log().contains("one: check: has ended: nothing"));
    assert!(daemon.record()["last"]["at"].as_u64().is_some(), "{}", daemon.record());
}

#[test]
fn a_check_that_is_stopped_by_hand_stays_stopped_until_the_next_is_due() {
    let daemon = Daemon::start(with(&format!("{ONE}check = '8s'\nset.sync_speed_max = 500\n")));
    daemon.ready(1);
    daemon.until("the check runs", || daemon.status("one")["sync_action"] == "check");
    let begun = Instant::now();
    exits(daemon.path(), 0, &["idle", "one"]);
    daemon.until("it is told", || daemon.log().contains("one: check: was stopped at "));
    while begun.elapsed() < Duration::from_secs(5) {
        assert_eq!(daemon.status("one")["sync_action"], "idle", "{}", daemon.log());
        std::thread::sleep(Duration::from_millis(100));
    }
    daemon.until("it is due", || daemon.status("one")["sync_action"] == "check");
    assert!(begun.elapsed() > Duration::from_secs(6), "{:?}", begun.elapsed());
}

#[test]
fn no_check_starts_where_it_must_not() {
    let daemon = Daemon::start(with(&format!("{ONE}read-only = true\ncheck = '1s'\n")));
    daemon.ready(1);
    let waits = "one: check: is due, and waits: it is read-only";
    daemon.until("it waits", || daemon.log().contains(waits));
    daemon.reload(&format!("{ONE}read-only = true\ncheck = '1s'\n{TWO}"));
    daemon.ready(1);
    exits(daemon.path(), 0, &["fail", "two", "two.a"]);
    daemon.reload(&format!("{ONE}read-only = true\ncheck = '1s'\n{TWO}check = '1s'\n"));
    let waits = "two: check: is due, and waits: it is degraded";
    daemon.until("it waits", || daemon.log().contains(waits));
    std::thread::sleep(Duration::from_secs(2));
    assert_eq!(daemon.count(" and waits: "), 2, "told once: {}", daemon.log());
    assert_eq!(daemon.count("begins"), 0, "{}", daemon.log());
    for name in ["one", "two"] {
        assert_eq!(daemon.status(name)["sync_stripes"], 0);
    }
    exits(daemon.path(), 0, &["remove", "two", "two.a"]);
    exits(daemon.path(), 0, &["add", "two", "two.a"]);
    daemon.until("it is checked", || daemon.log().contains("two: check: has ended: nothing"));
}

/// Asserts that `--check` refuses a `weft.toml` with this text, and says what is expected.
fn refuses(path: &Path, text: &str, expected: &str) {
    std::fs::write(path.join("weft.toml"), text).unwrap();
    let told = exits(path, 2, &["daemon", "--config", "weft.toml", "--check"]).err;
    assert!(told.contains(expected), "found {told:?}, expected {expected:?}");
}

#[test]
fn wrong_files_are_told_by_file_and_key() {
    let dir = tempdir().unwrap();
    let path = dir.path();
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
        ("[volume.a]\nmembers = [['a']]", "members: expected a string or a list of strings"),
        (
            &format!("[volume.a]\n{members}\nread-only = 'yes'"),
            "read-only: found a string, expected true",
        ),
        (&format!("[volume.a]\n{members}\nlisten = 'ublk:x'"), "ublk:N, the number of /dev/ublkbN"),
        (&format!("[volume.a]\n{members}\nset.nothing = 1"), "nothing: no such knob"),
        (&format!("[volume.a]\n{members}\nset = 'x'"), "set: found a string, expected a table"),
        (
            &format!("[volume.a]\n{members}\nwrite-bakc = '1M'"),
            "write-bakc: is no option of weft serve (write-back?)",
        ),
        (&format!("[volume.a]\n{members}\nforce-dirty = true"), "force-dirty: is for one start"),
        (&format!("[volume.a]\n{members}\n[volume.a]"), "weft.toml:3: duplicate key"),
        (
            &format!("[volume.a]\n{members}\n'exec=true' = true"),
            "exec=true: is no option of weft serve",
        ),
        (&format!("[volume.a]\n{members}\n'' = true"), ": is no option of weft serve"),
        (&format!("[volume.a]\n{members}\nhelp = true"), "help: is no option of weft serve"),
        ("[volume.a]\nmembers = true", "members: expected a string or a list of strings"),
        (
            &format!("[volume.a]\n{members}\n[volume.b]\nmembers = 'b'"),
            "found b in volume.a and volume.b",
        ),
    ] {
        refuses(path, text, expected);
    }
    let text = exits(path, 1, &["daemon", "--config", "absent.toml"]).err;
    assert!(text.contains("absent.toml: No such file"), "{text}");
    std::fs::write(path.join("weft.toml"), b"# \xff\n").unwrap();
    let text = exits(path, 2, &["daemon", "--config", "weft.toml", "--check"]).err;
    assert!(text.contains("weft.toml: byte 2: found no UTF-8"), "{text}");
    std::fs::write(path.join("weft.toml"), "# nothing\n").unwrap();
    let text = exits(path, 2, &["daemon", "--config", "weft.toml"]).err;
    assert!(text.contains("found no volume, expected tables [volume.NAME]"), "{text}");
    std::fs::create_dir(path.join("weft.d")).unwrap();
    std::os::unix::fs::symlink("gone", path.join("weft.d/.#hidden.toml")).unwrap();
    for name in ["1.toml", "2.toml"] {
        std::fs::write(path.join("weft.d").join(name), "[volume.a]\nmembers = 'a'").unwrap();
    }
    let text = exits(path, 2, &["daemon", "--config", "weft.toml"]).err;
    assert!(text.contains("weft.d/2.toml: volume.a is in weft.d/1.toml too"), "{text}");
}

#[test]
fn wrong_times_of_checks_are_told_by_file_and_key() {
    let dir = tempdir().unwrap();
    let path = dir.path();
    let members = "members = ['a', 'b']";
    for (text, expected) in [
        (
            &format!("[volume.a]\n{members}\ncheck = 'often'"),
            "weft.toml: volume.a: check: found \"often\", expected never, daily, weekly, monthly, or",
        ),
        (&format!("[volume.a]\n{members}\ncheck = 30"), "volume.a: check: found \"30\", expected"),
        (&format!("[volume.a]\n{members}\ncheck = true"), "check: found true or false, expected a"),
        (
            &format!("[volume.a]\n{members}\ncheck = '1d'\ncheck-for = '1d'"),
            "volume.a: check-for: found \"1d\", expected a time of less than a day",
        ),
        (
            &format!("[volume.a]\n{members}\ncheck-for = '1h'"),
            "volume.a: check-for: found no check, expected one, as check = \"monthly\"",
        ),
        (&format!("check = 'x'\n[volume.a]\n{members}"), "weft.toml: check: found \"x\", expected"),
        (&format!("[volume.a]\n{members}\nchek = '1d'"), "is no option of weft serve (check?)"),
    ] {
        refuses(path, text, expected);
    }
    std::fs::create_dir(path.join("weft.d")).unwrap();
    for name in ["1.toml", "2.toml"] {
        std::fs::write(path.join("weft.d").join(name), "check = '1d'").unwrap();
    }
    let expected = "weft.d/2.toml: check is in weft.d/1.toml too";
    refuses(path, &format!("[volume.a]\n{members}"), expected);
}
