//! HTTP/1.1 server for metrics, at one path.
//!
//! Each request is answered by a thread of its own, and the connection is then closed. A faulty or
//! hostile peer may send arbitrary bytes or nothing, and a page of another site may make a browser
//! send requests. The countermeasures are limits on the number of threads and the length of a head,
//! a deadline for each request, and a `Host` that must be an address of this machine's loopback.
//!
//! Source   RFC 9112

use std::io::{ErrorKind, Read, Write};
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use weft_terminal::outcome::Failure;

/// Answers requests at an address until the process ends. `text` returns the metrics, `insecure`
/// accepts any `Host`, and `on_ready` gets the address that is listened at. Returns only an error.
pub(super) fn serve(
    address: SocketAddr,
    insecure: bool,
    text: fn() -> String,
    on_ready: impl FnOnce(SocketAddr) -> Result<(), Failure>,
) -> Result<std::convert::Infallible, Failure> {
    let failed = |error| Failure::failed(format!("--listen {address}: {error}"));
    let listener = TcpListener::bind(address).map_err(failed)?;
    on_ready(listener.local_addr().map_err(failed)?)?;
    let busy = Arc::new(AtomicUsize::new(0));
    loop {
        let stream = match listener.accept() {
            Ok((stream, _)) => stream,
            Err(error) if error.kind() == ErrorKind::ConnectionAborted => continue,
            Err(error) => {
                // No descriptor is left: requests that are being answered give theirs back.
                tracing::warn!(%error, "no new connection is accepted for a while");
                std::thread::sleep(PAUSE);
                continue;
            }
        };
        // Further clients are disconnected; a scraper asks again in its next interval.
        if busy.fetch_add(1, Ordering::Relaxed) >= REQUESTS_MAX {
            busy.fetch_sub(1, Ordering::Relaxed);
            continue;
        }
        let busy = Arc::clone(&busy);
        std::thread::spawn(move || {
            let _ = answer(stream, insecure, text);
            busy.fetch_sub(1, Ordering::Relaxed);
        });
    }
}

fn answer(mut stream: TcpStream, insecure: bool, text: fn() -> String) -> std::io::Result<()> {
    stream.set_write_timeout(Some(DEADLINE))?;
    let Some(head) = receive(&mut stream)? else { return Ok(()) };
    let (status, body) = match judge(&head, insecure) {
        Ok(()) => ("200 OK", text()),
        Err((status, why)) => (status, format!("{why}\n")),
    };
    let sent = format!(
        "HTTP/1.1 {status}\r\nContent-Type: text/plain; version=0.0.4; charset=utf-8\r\n\
         Content-Length: {}\r\nConnection: close\r\n\r\n",
        body.len()
    );
    stream.write_all(sent.as_bytes())?;
    if !head.starts_with(b"HEAD ") {
        stream.write_all(body.as_bytes())?;
    }
    stream.shutdown(std::net::Shutdown::Write)
}

/// Receives the head of a request, up to its empty line or [`HEAD_BYTES_MAX`]. `None` if the peer
/// closed the connection before, or was too slow.
fn receive(stream: &mut TcpStream) -> std::io::Result<Option<Vec<u8>>> {
    let until = Instant::now() + DEADLINE;
    let mut head = Vec::new();
    let mut buffer = [0; 1024];
    loop {
        let left = until.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Ok(None);
        }
        stream.set_read_timeout(Some(left))?;
        let count = stream.read(&mut buffer)?;
        if count == 0 {
            return Ok(None);
        }
        head.extend_from_slice(&buffer[..count]);
        if head.len() > HEAD_BYTES_MAX || head.windows(4).any(|end| end == b"\r\n\r\n") {
            return Ok(Some(head));
        }
    }
}

/// Decides whether a request gets the metrics. The error is an HTTP status with the reason.
fn judge(head: &[u8], insecure: bool) -> Result<(), (&'static str, &'static str)> {
    let mut headers = [httparse::EMPTY_HEADER; HEADERS_MAX];
    let mut request = httparse::Request::new(&mut headers);
    if head.len() > HEAD_BYTES_MAX {
        return Err(("431 Request Header Fields Too Large", "found a head of more than 8 KiB"));
    }
    let is_whole = request.parse(head).is_ok_and(|status| status.is_complete());
    let (Some(method), Some(path), true) = (request.method, request.path, is_whole) else {
        return Err(("400 Bad Request", "found no request of HTTP/1.1"));
    };
    if !matches!(method, "GET" | "HEAD") {
        return Err(("405 Method Not Allowed", "expected GET or HEAD"));
    }
    let host = request.headers.iter().find(|header| header.name.eq_ignore_ascii_case("host"));
    let host = host.and_then(|header| std::str::from_utf8(header.value).ok()).unwrap_or_default();
    if !insecure && !is_loopback(host) {
        return Err(("403 Forbidden", "Host: expected localhost or an address of loopback"));
    }
    match path.split('?').next() {
        Some("/metrics") => Ok(()),
        _ => Err(("404 Not Found", "metrics are at /metrics")),
    }
}

/// Whether the value of `Host` is `localhost` or a loopback address, with or without a port.
fn is_loopback(host: &str) -> bool {
    let name = match host.strip_prefix('[') {
        Some(rest) => rest.split(']').next().unwrap_or_default(),
        None => host.split(':').next().unwrap_or_default(),
    };
    name == "localhost" || name.parse().is_ok_and(|address: IpAddr| address.is_loopback())
}

/// Largest number of requests that are answered at the same time.
const REQUESTS_MAX: usize = 8;
/// Longest head of a request, in bytes.
const HEAD_BYTES_MAX: usize = 8 << 10;
const HEADERS_MAX: usize = 64;
/// Longest time for the head of a request to arrive, and for the peer to accept a part of the
/// answer.
const DEADLINE: Duration = Duration::from_secs(5);
/// Pause before the next `accept` after one has failed, mostly for want of descriptors.
const PAUSE: Duration = Duration::from_millis(200);

#[cfg(test)]
mod tests {
    use super::*;
    use weft_testing::fuzz;
    use weft_units::rng::{Rng, mix};

    fn status(head: &str, insecure: bool) -> &'static str {
        judge(head.as_bytes(), insecure).map_or_else(|(status, _)| &status[..3], |()| "200")
    }

    #[test]
    fn only_the_path_of_metrics_on_loopback_is_answered() {
        let long =
            format!("GET /metrics HTTP/1.1\r\nHost: localhost\r\nA: {}\r\n\r\n", "x".repeat(9000));
        for (head, insecure, expected) in [
            ("GET /metrics HTTP/1.1\r\nHost: localhost:9469\r\n\r\n", false, "200"),
            ("HEAD /metrics HTTP/1.1\r\nhost: 127.0.0.1\r\n\r\n", false, "200"),
            ("GET /metrics?a=b HTTP/1.1\r\nHost: [::1]:80\r\n\r\n", false, "200"),
            ("GET /metrics HTTP/1.1\r\nHost: evil.example\r\n\r\n", false, "403"),
            ("GET /metrics HTTP/1.1\r\nHost: 127.0.0.1.evil.example\r\n\r\n", false, "403"),
            ("GET /metrics HTTP/1.1\r\n\r\n", false, "403"),
            ("GET /metrics HTTP/1.1\r\nHost: nas.example\r\n\r\n", true, "200"),
            ("GET / HTTP/1.1\r\nHost: localhost\r\n\r\n", false, "404"),
            ("GET /metricsx HTTP/1.1\r\nHost: localhost\r\n\r\n", false, "404"),
            ("POST /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n", false, "405"),
            ("GET /metrics\r\n\r\n", false, "400"),
            ("\u{16}\u{3}\u{1}\r\n\r\n", false, "400"),
            (&long, false, "431"),
        ] {
            assert_eq!(status(head, insecure), expected, "{head:?}");
        }
    }

    /// Damaged heads are judged without a panic. `WEFT_FUZZ_SEED=n` sets another seed.
    #[test]
    fn damaged_heads_are_judged() {
        let good = b"GET /metrics HTTP/1.1\r\nHost: localhost\r\nAccept: */*\r\n\r\n";
        let mut refused = 0;
        let cases = fuzz::cases(2000);
        for case in 0..cases as u64 {
            let mut rng = Rng::new(mix(fuzz::seed()) ^ mix(case));
            let mut head = good.to_vec();
            for _ in 0..=rng.below(6) {
                let at = usize::try_from(rng.below(head.len() as u64)).unwrap();
                match rng.below(3) {
                    0 => head[at] = rng.next_u64().to_le_bytes()[0],
                    1 => head.truncate(at.max(1)),
                    _ => head.insert(at, rng.next_u64().to_le_bytes()[0]),
                }
            }
            refused += usize::from(judge(&head, false).is_err());
        }
        assert!(refused > cases / 2 && refused < cases, "{refused} of {cases} refused");
    }
}
