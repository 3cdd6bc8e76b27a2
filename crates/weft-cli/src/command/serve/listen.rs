//! `--listen`: where clients connect.

use std::net::ToSocketAddrs;
use std::path::PathBuf;

use weft_export::{Listen, NbdAddress, NbdListen, Protection};
use weft_nbd::{NbdAddress as ServerAddress, NbdTls, NbdUri};
use weft_terminal::outcome::Failure;

use super::Serve;
use crate::configuration::default_keys;

/// Value of `--listen`.
#[derive(Clone, Debug)]
pub(super) struct ListenArg {
    /// The value as written, for messages.
    text: String,
    at: At,
}

/// Kinds of addresses that a value can have.
#[derive(Clone, Debug)]
enum At {
    /// Block device of ublk with this number; `None` for any free number.
    Ublk(Option<u32>),
    /// Unix socket at this path for a virtual machine, by vhost-user.
    VhostUser(PathBuf),
    /// File at this path, by FUSE.
    Fuse(PathBuf),
    /// Unix or TCP socket for NBD clients.
    Nbd(NbdUri),
}

impl ListenArg {
    /// Parses a value of `--listen`.
    ///
    /// # Errors
    /// The value has none of the four forms.
    pub(super) fn parse(text: &str) -> Result<Self, String> {
        let at = if let Some(number) = text.strip_prefix("ublk:") {
            let number = (!number.is_empty()).then(|| number.parse()).transpose();
            At::Ublk(number.map_err(|_| "expected ublk: or ublk:N, the number of /dev/ublkbN")?)
        } else if let Some(path) = text.strip_prefix("vhost-user:") {
            At::VhostUser(std::path::absolute(path).map_err(|error| error.to_string())?)
        } else if let Some(path) = text.strip_prefix("fuse:") {
            At::Fuse(std::path::absolute(path).map_err(|error| error.to_string())?)
        } else {
            At::Nbd(text.parse().map_err(|error: weft_nbd::UriError| error.to_string())?)
        };
        Ok(Self { text: text.to_owned(), at })
    }

    /// The value as written.
    pub(super) fn text(&self) -> &str {
        &self.text
    }
}

/// Listeners for clients, and the name of the export, `None` if no option names it.
pub(super) struct Listeners {
    pub(super) listen: Vec<Listen>,
    pub(super) export: Option<String>,
}

/// Protection of NBD listeners without TLS: only clients on this machine, unless an option permits
/// others.
pub(super) fn plain_text(arguments: &Serve) -> Protection {
    if arguments.insecure_tcp { Protection::Insecure } else { Protection::Local }
}

/// Listeners and export name that the options of the command line give.
///
/// # Errors
/// Two values name the export differently, an address cannot be found, or other machines could
/// reach it in plain text.
pub(super) fn listeners(arguments: &Serve) -> Result<Listeners, Failure> {
    let mut found = Listeners { listen: Vec::new(), export: None };
    for ListenArg { text, at } in &arguments.listen {
        let uri = match at {
            At::Ublk(number) => {
                found.listen.push(Listen::Ublk { number: *number });
                continue;
            }
            At::VhostUser(path) => {
                found.listen.push(Listen::VhostUser { path: path.clone() });
                continue;
            }
            At::Fuse(path) => {
                found.listen.push(Listen::Fuse { path: path.clone() });
                continue;
            }
            At::Nbd(uri) => uri,
        };
        if !uri.export.is_empty() {
            if let Some(other) = found.export.as_ref().filter(|other| **other != uri.export) {
                return Err(Failure::usage(format!(
                    "--listen {text}: the volume is named {other} by another --listen"
                )));
            }
            found.export = Some(uri.export.clone());
        }
        found.listen.push(Listen::Nbd(nbd(arguments, text, uri)?));
    }
    Ok(found)
}

/// Listener for an NBD URI, which the command line has as `text`.
fn nbd(arguments: &Serve, text: &str, uri: &NbdUri) -> Result<NbdListen, Failure> {
    let usage = |what: &dyn std::fmt::Display| Failure::usage(format!("--listen {text}: {what}"));
    let protection = match &uri.tls {
        Some(NbdTls { certificates }) => Protection::Tls(match certificates {
            Some(folder) => std::path::absolute(folder).map_err(|error| usage(&error))?,
            None => default_keys()?,
        }),
        None => plain_text(arguments),
    };
    let address = match &uri.address {
        ServerAddress::Unix { socket } => {
            NbdAddress::Unix(std::path::absolute(socket).map_err(|error| usage(&error))?)
        }
        ServerAddress::Tcp { host, port } => {
            let mut found = (host.as_str(), *port)
                .to_socket_addrs()
                .map_err(|error| Failure::failed(format!("--listen {text}: {error}")))?;
            let address = found.next().ok_or_else(|| usage(&"the host has no address"))?;
            if !address.ip().is_loopback() && protection == Protection::Local {
                return Err(Failure::refused(format!(
                    "--listen {text}: {} can be reached from other machines, in plain text; listen \
                     on 127.0.0.1, use TLS (nbds://, docs/serve.md), or accept it with \
                     --insecure-tcp",
                    address.ip()
                )));
            }
            NbdAddress::Tcp(address)
        }
    };
    Ok(NbdListen { address, protection })
}
