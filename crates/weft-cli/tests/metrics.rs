//! `weft metrics`: printed and served, and addresses that are refused.

mod common;

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::process::Stdio;

use common::client::Client;
use common::{Served, array, command, exits};
use weft_nbd::Op;

/// The answer to a request, whole.
fn fetched(address: &str, request: &str) -> String {
    let mut stream = TcpStream::connect(address).unwrap();
    stream.write_all(request.as_bytes()).unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    answer
}

#[test]
fn a_served_volume_has_metrics() {
    let dir = array();
    let path = dir.path();
    assert_eq!(exits(path, 0, &["metrics"]).out, "", "no volume runs");
    let served = Served::start(path, &["a", "b", "c"]);
    exits(path, 0, &["wait", "vol"]);
    let printed = exits(path, 0, &["metrics"]).out;
    assert!(printed.contains("node_md_disks{device=\"vol\",state=\"active\"} 3\n"), "{printed}");
    let mut server = command(path, &["metrics", "--listen", "127.0.0.1:0"])
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut ready = String::new();
    BufReader::new(server.stdout.take().unwrap()).read_line(&mut ready).unwrap();
    let url = ready.trim_end().strip_prefix("ready http://").unwrap().to_owned();
    let address = url.strip_suffix("/metrics").unwrap();
    let answer = fetched(address, "GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n");
    let (head, body) = answer.split_once("\r\n\r\n").unwrap();
    assert!(head.starts_with("HTTP/1.1 200 OK\r\n"), "{head}");
    assert!(head.contains(&format!("Content-Length: {}\r\n", body.len())), "{head}");
    let lines = |text: &str| text.lines().filter(|line| line.starts_with('#')).count();
    assert_eq!(lines(body), lines(&printed));
    let answer = fetched(address, "HEAD /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n");
    assert!(answer.starts_with("HTTP/1.1 200 OK\r\n") && answer.ends_with("\r\n\r\n"), "{answer}");
    let answer = fetched(address, "GET /metrics HTTP/1.1\r\nHost: evil.example\r\n\r\n");
    assert!(answer.starts_with("HTTP/1.1 403 "), "{answer}");
    server.kill().unwrap();
    server.wait().unwrap();
    drop(served);
}

/// A long read is answered part by part, and counts once.
#[test]
fn requests_of_clients_are_counted_with_their_latencies() {
    let dir = array();
    let served = Served::start(dir.path(), &["a", "b", "c"]);
    let mut client = Client::connect(&served.uri);
    for offset in [0, 4096, 8192] {
        client.write(offset, &[1; 4096]);
    }
    client.write(0, &vec![2; 2 << 20]);
    assert!(client.read(0, 12 << 20).starts_with(&vec![2; 2 << 20]));
    client.request(Op::Flush, &[]).unwrap();
    let status = exits(dir.path(), 0, &["status", "--json"]).out;
    let status: serde_json::Value = serde_json::from_str(&status).unwrap();
    let answered = status["servers"][0]["volumes"][0]["answered"].as_array().unwrap();
    let counts = answered.iter().map(|it| (it["kind"].as_str().unwrap(), &it["count"]));
    let counts: Vec<_> = counts.map(|(kind, count)| (kind, count.as_u64().unwrap())).collect();
    assert_eq!(counts, [("read", 1), ("write", 4), ("flush", 1)]);
    let below = answered[1]["below"].as_array().unwrap();
    assert_eq!(below.last(), Some(&4.into()), "a write took more than 67 s: {status}");
    let text = exits(dir.path(), 0, &["metrics"]).out;
    let line = "weft_volume_request_seconds_count{volume=\"vol\",operation=\"write\"} 4\n";
    assert!(text.contains(line), "{text}");
}

#[test]
fn an_address_that_others_can_reach_needs_consent() {
    let dir = array();
    let told = exits(dir.path(), 3, &["metrics", "--listen", "0.0.0.0:0"]).err;
    assert!(told.contains("0.0.0.0 can be reached from other machines"), "{told}");
    for listen in ["here", "127.0.0.1:x", ":"] {
        let told = exits(dir.path(), 2, &["metrics", "--listen", listen]).err;
        assert!(told.contains(listen) && told.contains("HOST:PORT"), "{told}");
    }
    exits(dir.path(), 2, &["metrics", "--insecure-tcp"]);
}
