//! `weft metrics`: metrics of running volumes, in the text format of Prometheus.

mod families;
mod server;

use std::io::Write;
use std::net::{SocketAddr, ToSocketAddrs};

use clap::Args;
use weft_terminal::outcome::{Exit, Failure, Outcome};
use weft_terminal::terminal::stdout;

use crate::target;

/// Prints figures of all running volumes for Prometheus, or serves them at an address
///
/// Arrays have node_exporter's metrics of md devices (node_md_disks, node_md_state and others), so
/// that its alerts and dashboards work; weft_* metrics have the rest: members, clients, syncs,
/// bitmap, write-back cache. Counters begin at 0 when a server starts. Without --listen the output
/// is for node_exporter's textfile collector.
#[derive(Debug, Args)]
pub(crate) struct Metrics {
    /// Serve http://HOST:PORT/metrics until interrupted
    #[arg(long, value_name = "HOST:PORT")]
    listen: Option<String>,
    /// Accept an address that other machines can reach, and any Host
    #[arg(long, requires = "listen")]
    insecure_tcp: bool,
}

pub(crate) fn run(arguments: &Metrics) -> Outcome {
    let Some(listen) = &arguments.listen else {
        stdout().write_all(text().as_bytes())?;
        return Ok(Exit::Done);
    };
    let address = address(listen)?;
    if !address.ip().is_loopback() && !arguments.insecure_tcp {
        return Err(Failure::refused(format!(
            "--listen {listen}: {} can be reached from other machines; listen on 127.0.0.1, or \
             accept it with --insecure-tcp",
            address.ip()
        )));
    }
    let ready = |address| {
        let mut out = stdout();
        writeln!(out, "ready http://{address}/metrics")?;
        Ok(out.flush()?)
    };
    server::serve(address, arguments.insecure_tcp, text, ready).map(|never| match never {})
}

fn address(text: &str) -> Result<SocketAddr, Failure> {
    let mut found = text.to_socket_addrs().map_err(|error| {
        Failure::usage(format!("--listen {text}: {error}; expected HOST:PORT or [IPV6]:PORT"))
    })?;
    let address = found.next();
    address.ok_or_else(|| Failure::usage(format!("--listen {text}: the host has no address")))
}

/// Text with the metrics of every volume that runs and responds.
fn text() -> String {
    let servers: Vec<_> = target::running().into_iter().map(|(_, status)| status).collect();
    families::text(&servers)
}
