//! `weft keys`: what is made, what stays, and what a volume served with it accepts.

mod common;

use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use common::{array, exits};
use serde_json::Value;
use tempfile::tempdir;

/// The certificates that `weft keys --json` shows.
fn shown(dir: &Path) -> Vec<Value> {
    let text = exits(dir, 0, &["keys", "k", "--json"]).out;
    let value: Value = serde_json::from_str(&text).unwrap();
    assert_eq!(value["schema"], "weft.keys/1");
    value["certificates"].as_array().unwrap().clone()
}

fn text(dir: &Path, name: &str) -> String {
    std::fs::read_to_string(dir.join("k").join(name)).unwrap()
}

#[test]
fn a_server_and_its_clients_have_keys_of_one_authority() {
    let dir = tempdir().unwrap();
    let path = dir.path();
    let line = ["keys", "k", "--server", "nas.example", "--server", "10.0.0.7", "--client", "vm-1"];
    let made = exits(path, 0, &line).out;
    assert!(made.contains("k/server-cert.pem: nas.example for nas.example, 10.0.0.7, ends in 365"));
    exits(path, 0, &["keys", "k", "--client", "vm-2", "--days", "90"]);
    let found = shown(path);
    let facts: Vec<_> =
        found.iter().map(|it| (it["holder"].as_str().unwrap(), it["days"].as_u64())).collect();
    assert!(facts[0].0.starts_with("weft authority of "), "{facts:?}");
    assert_eq!(facts[1..], [("nas.example", Some(365)), ("vm-1", Some(365)), ("vm-2", Some(90))]);
    assert_eq!(text(path, "clients/vm-2/ca-cert.pem"), text(path, "ca-cert.pem"));
    for private in ["ca-key.pem", "server-key.pem", "clients/vm-1/client-key.pem"] {
        let mode = std::fs::metadata(path.join("k").join(private)).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600, "{private}");
    }
}

#[test]
fn a_certificate_is_renewed_with_its_key_and_names() {
    let dir = tempdir().unwrap();
    let path = dir.path();
    let server = ["keys", "k", "--server", "a", "--server", "::1", "--days", "29"];
    let told = exits(path, 1, &server).err;
    assert!(told.contains("server-cert.pem: ends in 29 days; weft keys --renew"), "{told}");
    let before = ["ca-cert.pem", "server-key.pem", "server-cert.pem"].map(|it| text(path, it));
    exits(path, 0, &["keys", "k", "--renew"]);
    assert_eq!(shown(path)[1]["names"], serde_json::json!(["a", "::1"]));
    let after = ["ca-cert.pem", "server-key.pem", "server-cert.pem"].map(|it| text(path, it));
    assert_eq!((&before[..2], before[2] == after[2]), (&after[..2], false));
}

#[test]
fn nothing_is_overwritten_unasked() {
    let dir = tempdir().unwrap();
    let path = dir.path();
    exits(path, 0, &["keys", "k", "--server", "a", "--client", "c"]);
    let before = text(path, "server-cert.pem");
    let told = exits(path, 3, &["keys", "k", "--server", "b"]).err;
    assert!(told.contains("server-cert.pem: exists and stays as it is; --force"), "{told}");
    exits(path, 3, &["keys", "k", "--client", "c"]);
    assert_eq!(before, text(path, "server-cert.pem"));
    exits(path, 0, &["keys", "k", "--server", "b", "--force"]);
    assert_eq!(shown(path)[1]["holder"], "b");
    // A file that is not a certificate stays, also with --force.
    std::fs::write(path.join("k/server-cert.pem"), "mine").unwrap();
    exits(path, 3, &["keys", "k", "--server", "b", "--force"]);
    assert_eq!(text(path, "server-cert.pem"), "mine");
}

#[test]
fn keys_that_are_missing_or_malformed_are_named() {
    let dir = tempdir().unwrap();
    let path = dir.path();
    let told = exits(path, 1, &["keys", "k"]).err;
    assert!(told.contains("k: found no certificate; weft keys --server NAME"), "{told}");
    let told = exits(path, 1, &["keys", "k", "--renew"]).err;
    assert!(told.contains("k/server-cert.pem: No such file"), "{told}");
    exits(path, 2, &["keys", "k", "--server", "nämlich"]);
    for client in ["", "..", "a/b", ".a"] {
        exits(path, 2, &["keys", "k", "--client", client]);
    }
    exits(path, 0, &["keys", "k", "--server", "a"]);
    std::fs::remove_file(path.join("k/ca-key.pem")).unwrap();
    let told = exits(path, 3, &["keys", "k", "--client", "c"]).err;
    assert!(told.contains("k: found an authority without its private key ca-key.pem"), "{told}");
    std::fs::write(path.join("k/ca-key.pem"), "no key").unwrap();
    let told = exits(path, 1, &["keys", "k", "--client", "c"]).err;
    assert!(told.contains("k/ca-key.pem: "), "{told}");
    std::fs::write(path.join("k/ca-cert.pem"), "-----BEGIN CERTIFICATE-----\n").unwrap();
    let told = exits(path, 1, &["keys", "k"]).err;
    assert!(told.contains("k/ca-cert.pem: "), "{told}");
}

#[test]
fn a_volume_is_not_served_by_tls_without_keys() {
    let dir = array();
    let path = dir.path();
    let listen = "nbds://0.0.0.0:0/vol?tls-certificates=k";
    let told = exits(path, 3, &["serve", "a", "b", "c", "--listen", listen]).err;
    assert!(told.contains("k/ca-cert.pem: No such file"), "{told}");
    assert!(told.contains("weft keys makes keys"), "{told}");
    exits(path, 0, &["keys", "k", "--server", "localhost"]);
    let listen = "nbd://127.0.0.1:0/vol?tls-certificates=k";
    let told = exits(path, 2, &["serve", "a", "b", "c", "--listen", listen]).err;
    assert!(told.contains("query parameter `tls-certificates`"), "{told}");
    // With keys, another machine may connect without --insecure-tcp.
    let listen = "nbds://0.0.0.0:0/vol?tls-certificates=k";
    let line = ["serve", "a", "b", "c", "--listen", listen, "--exec", "echo $uri"];
    let uri = exits(path, 0, &line).out;
    assert!(uri.contains("nbds://0.0.0.0:") && uri.trim_end().ends_with("/vol"), "{uri}");
}
