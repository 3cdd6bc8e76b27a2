//! `weft monitor`: events of a volume that loses a member and gets another, in each form of report.

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
    // A program that cannot be run is reported, and the watch continues.
    let lost = exits(path, 4, &["monitor", "-1", "--program", "./nothing"]);
    assert!(lost.err.contains("nothing: No such file"), "{}", lost.err);
    for address in ["", "a\nBcc: b"] {
        exits(path, 2, &["monitor", "--mail", address]);
    }
}

/// Makes a RAID 1 of files of this size, `NAME1` and `NAME2`, and serves it with these spares.
fn mirror(dir: &Path, name: &str, size: &str, spares: &[(&str, &str)]) -> Served {
    let own = [1, 2].map(|number| dir.join(format!("{name}{number}")).display().to_string());
    let (size, named) = (format!("--member-size={size}"), format!("--name={name}"));
    let mut words = vec!["create", "-l1", "-n2", "--assume-clean", &size, &named];
    words.extend(own.iter().map(String::as_str));
    exits(dir, 0, &words);
    let members: Vec<&str> = own.iter().map(String::as_str).collect();
    let served = Served::start(dir, &[&["--name", name][..], &members].concat());
    for (spare, size) in spares {
        let path = dir.join(spare).display().to_string();
        exits(dir, 0, &["add", name, &format!("--member-size={size}"), &path]);
    }
    served
}

/// States of the members of a volume, by the names of their files.
fn states(dir: &Path, name: &str) -> Vec<(String, String)> {
    let status: Value =
        serde_json::from_slice(&command(dir, &["status", "--json", name]).output().unwrap().stdout)
            .unwrap();
    let text = |value: &Value| value.as_str().unwrap().to_owned();
    let members = status["servers"][0]["volumes"][0]["members"].as_array().unwrap().iter();
    let file = |label: String| label.rsplit('/').next().unwrap().to_owned();
    members.map(|it| (file(text(&it["label"])), text(&it["state"]))).collect()
}

#[test]
fn arrays_of_a_group_share_their_spares() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path();
    let _tour = mirror(path, "tour", "8M", &[]);
    // The first one is smaller than the members of the other array.
    let _home = mirror(path, "home", "6M", &[("small", "6M"), ("large", "8M")]);
    let _alone = mirror(path, "alone", "8M", &[("own", "8M")]);
    std::fs::write(
        path.join("mdadm.conf"),
        "MAILADDR root\n\
         ARRAY /dev/md/tour spare-group=fast spares=1\n\
         ARRAY /dev/md/home spare-group=fast spares=2\n\
         ARRAY /dev/md/alone spare-group=slow\n",
    )
    .unwrap();
    script(path, "sendmail", "echo \"$*\" >>mail.log; cat >>mail.log");
    let paths = format!("{}:{}", path.display(), std::env::var("PATH").unwrap());
    let look = |status: i32| {
        let output = command(path, &["monitor", "--oneshot", "--config", "mdadm.conf"])
            .env("PATH", &paths)
            .output()
            .unwrap();
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        let found = (output.status.code(), text(&output.stdout), text(&output.stderr));
        assert_eq!((found.0, found.2.as_str()), (Some(status), ""), "{}", found.1);
        found.1
    };
    assert_eq!(look(0), "SparesMissing on tour\n");
    exits(path, 0, &["fail", "tour", "tour2"]);
    let moved = "SparesMissing on tour\nDegradedArray on tour\nMoveSpare on tour, from home\n";
    assert_eq!(look(4), moved);
    exits(path, 0, &["wait", "tour"]);
    let state = |file: &str, state: &str| (file.to_owned(), state.to_owned());
    let whole = [state("tour1", "in_sync"), state("tour2", "faulty"), state("large", "in_sync")];
    assert_eq!(states(path, "tour"), whole);
    let left = [state("home1", "in_sync"), state("home2", "in_sync"), state("small", "spare")];
    assert_eq!(states(path, "home"), left);
    // A second member fails, and there is no spare for it: the one of another group stays.
    exits(path, 0, &["remove", "tour", "tour2"]);
    exits(path, 0, &["fail", "tour", "large"]);
    assert!(!look(4).contains("MoveSpare"));
    assert_eq!(states(path, "alone").last(), Some(&state("own", "spare")));
    let mail = std::fs::read_to_string(path.join("mail.log")).unwrap();
    assert!(mail.contains("Subject: SparesMissing on tour:"), "{mail}");
    assert!(mail.contains("To: root\n"), "{mail}");
}

/// The file of a spare is gone when it is to be moved, so that neither server can open it. It
/// returns to the first one once it is there again.
#[test]
fn a_spare_that_no_server_takes_is_told_and_returns() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path();
    let _tour = mirror(path, "tour", "8M", &[]);
    let _home = mirror(path, "home", "8M", &[("large", "8M")]);
    let lines = "ARRAY /dev/md/tour spare-group=bay\nARRAY /dev/md/home spare-group=bay\n";
    std::fs::write(path.join("mdadm.conf"), lines).unwrap();
    let mut monitor = command(path, &["monitor", "--config", "mdadm.conf"])
        .stdout(Stdio::piped())
        .stderr(std::fs::File::create(path.join("monitor.log")).unwrap())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(monitor.stdout.take().unwrap()).lines();
    let mut until = |text: &str| {
        let line = lines.find(|line| line.as_ref().unwrap().starts_with(text));
        line.expect("monitor goes on").unwrap()
    };
    std::fs::rename(path.join("large"), path.join("away")).unwrap();
    exits(path, 0, &["fail", "tour", "tour2"]);
    assert!(until("FailSpare on home, member ").ends_with("/large"));
    assert_eq!(states(path, "home").len(), 2, "the spare is of neither");
    std::fs::rename(path.join("away"), path.join("large")).unwrap();
    let deadline = Instant::now() + Duration::from_secs(20);
    while states(path, "home").len() < 3 {
        assert!(Instant::now() < deadline, "the spare does not return");
        std::thread::sleep(Duration::from_millis(50));
    }
    monitor.kill().unwrap();
    monitor.wait().unwrap();
    let log = std::fs::read_to_string(path.join("monitor.log")).unwrap();
    assert!(
        log.contains("not moved from home to tour:") && log.contains("spare of neither"),
        "{log}"
    );
}

#[test]
fn a_configuration_that_makes_no_sense_is_named() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path();
    let remark = |text: &str| {
        std::fs::write(path.join("conf"), text).unwrap();
        exits(path, 0, &["monitor", "-1", "--config", "conf"]).err
    };
    let error = remark("DEVICE partitions\nARRAY /dev/md0 UUID=12\n");
    assert!(error.contains("conf:2: uuid: found \"12\", expected 32"), "{error}");
    let error = remark("{\"schema\": 1}");
    assert!(error.contains("conf:1: found \"{schema:\", expected a keyword"), "{error}");
    let error = exits(path, 2, &["monitor", "-1", "--config", "absent"]).err;
    assert!(error.contains("absent: No such file"), "{error}");
    let error = exits(path, 2, &["monitor", "-1", "--config", "/dev/zero"]).err;
    assert!(error.contains("/dev/zero: found no regular file"), "{error}");
}
