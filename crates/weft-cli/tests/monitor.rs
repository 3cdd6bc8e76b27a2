//! `weft monitor`: events of a volume that loses a member and gets another, by each way in which
//! they are told.

mod common;

use std::io::{BufRead, BufReader};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Stdio;
use std::time::{Duration, Instant};

use common::{Served, array, command, exits};
use serde_json::Value;

/// Writes a shell script that appends its arguments, or what it reads, to a file.
fn script(dir: &Path, name: &str, does: &str) {
    let path = dir.join(name);
    std::fs::write(&path, format!("#!/bin/sh\n{does}\n")).unwrap();
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).unwrap();
}

#[test]
fn a_member_that_fails_and_its_recovery_are_told_to_a_program_and_by_mail() {
    let dir = array();
    let path = dir.path();
    let served = Served::start(path, &["a", "b", "c"]);
    exits(path, 0, &["wait", "vol"]);
    script(path, "told", "echo \"$#: $*\" >>told.log");
    script(path, "sendmail", "echo \"$*\" >>mail.log; cat >>mail.log");
    let paths = format!("{}:{}", path.display(), std::env::var("PATH").unwrap());
    let line = ["monitor", "--json", "--program", "./told", "--mail", "ops@example.org", "--test"];
    let mut monitor = command(path, &line)
        .env("PATH", paths)
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(monitor.stdout.take().unwrap()).lines();
    let mut seen = Vec::new();
    // Reads up to an event, and returns its member.
    let mut until = |name: &str| -> Value {
        loop {
            let line = lines.next().expect("monitor goes on").unwrap();
            let event: Value = serde_json::from_str(&line).unwrap();
            assert_eq!(
                (&event["schema"], &event["volume"]),
                (&"weft.event/1".into(), &"vol".into())
            );
            seen.push(event["event"].as_str().unwrap().to_owned());
            if event["event"] == name {
                return event["component"].clone();
            }
        }
    };
    assert_eq!(until("TestMessage"), Value::Null);
    exits(path, 0, &["fail", "vol", "b"]);
    assert!(until("Fail").as_str().unwrap().ends_with('b'));
    exits(path, 0, &["remove", "vol", "b"]);
    std::fs::write(path.join("d"), vec![0; 10 << 20]).unwrap();
    exits(path, 0, &["add", "vol", "d"]);
    assert!(until("SpareActive").as_str().unwrap().ends_with('d'));
    exits(path, 0, &["stop", "vol"]);
    assert_eq!(until("DeviceDisappeared"), Value::Null);
    drop(served);
    // The last mail is sent after its line was printed.
    let mails = || {
        let mail = std::fs::read_to_string(path.join("mail.log")).unwrap();
        mail.matches("This mail is by").count()
    };
    let deadline = Instant::now() + Duration::from_secs(10);
    while mails() < 3 && Instant::now() < deadline {
        std::thread::sleep(Duration::from_millis(10));
    }
    monitor.kill().unwrap();
    monitor.wait().unwrap();
    let told = std::fs::read_to_string(path.join("told.log")).unwrap();
    assert_eq!(told.lines().count(), seen.len(), "{told}");
    assert!(told.contains("2: TestMessage vol\n") && told.contains("3: Fail vol "), "{told}");
    let mail = std::fs::read_to_string(path.join("mail.log")).unwrap();
    assert_eq!(mail.matches("To: ops@example.org\n").count(), 3, "{mail}");
    assert!(mail.starts_with("-t\n") && mail.contains("Subject: Fail on vol:"), "{mail}");
    assert!(mail.contains("degraded: "), "it says what to do: {mail}");
    assert!(!mail.contains("SpareActive"), "{mail}");
}

#[test]
fn one_look_tells_what_is_degraded_or_absent() {
    let dir = array();
    let path = dir.path();
    let _served = Served::start(path, &["a", "b", "c"]);
    exits(path, 0, &["wait", "vol"]);
    assert_eq!(exits(path, 0, &["monitor", "--oneshot"]).out, "");
    assert_eq!(exits(path, 0, &["monitor", "-1t", "vol"]).out, "TestMessage on vol\n");
    exits(path, 0, &["fail", "vol", "c"]);
    assert_eq!(exits(path, 4, &["monitor", "-1"]).out, "DegradedArray on vol\n");
    let absent = exits(path, 1, &["monitor", "-1", "absent"]);
    assert_eq!(absent.out, "DeviceDisappeared on absent\n");
    assert!(absent.err.contains("absent: no running volume"), "{}", absent.err);
    // A program that does not run is told of, and the watch goes on.
    let lost = exits(path, 4, &["monitor", "-1", "--program", "./nothing"]);
    assert!(lost.err.contains("nothing: No such file"), "{}", lost.err);
    for address in ["", "a\nBcc: b"] {
        exits(path, 2, &["monitor", "--mail", address]);
    }
}
