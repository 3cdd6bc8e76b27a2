//! Weights, classes and shares of clients, through the real binary.

mod common;

use std::path::Path;

use common::client::Client;
use common::{Served, array, exits, json};
use serde_json::Value;

/// Share of the clients of an export.
fn share(path: &Path, export: &str) -> Value {
    let status = json(path, &["status", "--json", "vol"]);
    let shares = status["servers"][0]["volumes"][0]["shares"].as_array().unwrap().clone();
    let found = shares.into_iter().find(|share| share["export"] == export);
    found.unwrap_or_else(|| panic!("{export}: {status}"))
}

#[test]
fn clients_get_their_weight_and_class_from_their_export_or_socket_and_status_shows_shares() {
    let dir = array();
    let path = dir.path();
    let (one, two) = (path.join("one.sock"), path.join("two.sock"));
    let listen = |socket: &Path| format!("--listen=nbd+unix:///vol?socket={}", socket.display());
    let by_socket = format!("--client={}=class:rt:2", two.display());
    let served = Served::start(
        path,
        &[
            &listen(&one),
            &listen(&two),
            "--weight=200",
            "--client=vm=weight:800,class:be:6",
            &by_socket,
            "a",
            "b",
            "c",
        ],
    );
    let connect = |export: &str, socket: &Path| {
        Client::connect(&format!("nbd+unix:///{export}?socket={}", socket.display()))
    };
    let mut plain = connect("vol", &one);
    // Writes to a chunk move data, old data and parity, and new parity.
    plain.write(0, &[7; 4096]);
    plain.read(0, 4096);
    let of_plain = share(path, "vol");
    assert_eq!((&of_plain["weight"], &of_plain["class"]), (&200.into(), &"none".into()));
    assert_eq!((&of_plain["reads"], &of_plain["bytes_written"]), (&1.into(), &4096.into()));
    let purposes: Vec<_> = of_plain["purposes"].as_array().unwrap().iter().collect();
    let parity = purposes.iter().find(|it| it["purpose"] == "parity");
    assert_eq!(parity.expect("a write changes parity")["sectors_written"], 8, "{of_plain}");
    drop(plain);

    let mut vm = connect("vm", &one);
    vm.read(0, 1 << 20);
    let of_vm = share(path, "vm");
    assert_eq!((&of_vm["weight"], &of_vm["class"]), (&800.into(), &"be:6".into()));
    assert!(of_vm["share_recently_permille"].as_u64() > Some(900), "{of_vm}");
    let mut urgent = connect("vm", &two);
    drop(vm);
    urgent.read(0, 4096);
    let status = json(path, &["status", "--json", "vol"]);
    let shares = status["servers"][0]["volumes"][0]["shares"].as_array().unwrap().clone();
    let classes: Vec<_> = shares.iter().map(|share| share["class"].as_str().unwrap()).collect();
    assert!(classes.contains(&"rt:2"), "{classes:?}: a socket goes before an export");

    let text = exits(path, 0, &["status", "--clients", "vol"]).out;
    assert!(text.contains("of vm") && text.contains("rt:2"), "{text}");
    assert!(text.contains(", gone"), "{text}");
    assert!(text.contains("metadata"), "{text}");
    exits(path, 0, &["stop", "vol"]);
    assert_eq!(served.wait(), Some(0));
}

#[test]
fn clients_are_in_groups_with_weights_that_are_a_knob_and_status_names_them() {
    let dir = array();
    let path = dir.path();
    let socket = path.join("one.sock");
    let served = Served::start(
        path,
        &[
            &format!("--listen=nbd+unix:///vol?socket={}", socket.display()),
            "--group=gold=weight:300",
            "--group=tin=weight:50",
            "--client=vm=group:tin,weight:70",
            "--client=vol=group:gold",
            "a",
            "b",
            "c",
        ],
    );
    let connect = |export: &str| {
        Client::connect(&format!("nbd+unix:///{export}?socket={}", socket.display()))
    };
    let (mut main, mut vm) = (connect("vol"), connect("vm"));
    main.read(0, 4096);
    vm.read(0, 4096);
    let (of_main, of_vm) = (share(path, "vol"), share(path, "vm"));
    assert_eq!((&of_main["group"], &of_main["weight"]), (&"gold".into(), &40.into()));
    assert_eq!((&of_vm["group"], &of_vm["weight"]), (&"tin".into(), &70.into()));
    let text = exits(path, 0, &["status", "--clients", "vol"]).out;
    assert!(text.contains(" gold ") && text.contains(" tin "), "{text}");
    exits(path, 0, &["set", "vol", "scheduler=bfq"]);
    let weights = exits(path, 0, &["get", "vol", "group_weights"]).out;
    assert!(weights.contains("300,50"), "{weights}");
    exits(path, 0, &["set", "vol", "group_weights=100,900"]);
    vm.write(0, &[7; 4096]);
    main.read(0, 4096);
    exits(path, 2, &["set", "vol", "group_weights=100,0"]);
    exits(path, 0, &["stop", "vol"]);
    assert_eq!(served.wait(), Some(0));
}

#[test]
fn what_is_no_share_is_refused_by_name() {
    let dir = array();
    let refused = [
        (vec!["--weight=0"], "found \"0\", expected 1 to 1000"),
        (vec!["--class=rt:8"], "found \"rt:8\""),
        (vec!["--client=vm"], "expected CLIENTS="),
        (vec!["--client=vm=group:gold"], "found gold, expected one that --group names"),
        (vec!["--group=gold"], "expected NAME=weight:W"),
        (vec!["--client=vm=weight:4", "--client=vm=class:idle"], "--client vm: found twice"),
    ];
    for (mut options, named) in refused {
        options.splice(0..0, ["serve"]);
        options.extend(["a", "b", "c"]);
        let text = exits(dir.path(), 2, &options).err;
        assert!(text.contains(named), "{options:?}: {text}");
    }
    let unknown = ["serve", "--client=/nowhere.sock=weight:4", "a", "b", "c"];
    let text = exits(dir.path(), 3, &unknown).err;
    assert!(text.contains("found /nowhere.sock, expected one that is listened on"), "{text}");
}
