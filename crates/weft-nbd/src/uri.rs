//! NBD URIs: the server and the export that a URI names.
//!
//! `nbd://host[:port][/export]` and `nbd+unix:///[export]?socket=path`; with TLS `nbds` in place of
//! `nbd`, and the folder of certificates as `tls-certificates=path`. Unknown query parameters are
//! refused: a mistyped one must not be ignored.
//!
//! Source: NetworkBlockDevice/nbd `doc/uri.md`; RFC 3986 for the characters.

use std::ffi::{OsStr, OsString};
use std::fmt;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::PathBuf;
use std::str::FromStr;

use crate::wire::{PORT, STRING_BYTES_MAX};

/// An NBD URI: address of a server, name of an export, and use of TLS.
///
/// ```
/// use weft_nbd::{NbdAddress, NbdUri};
///
/// let uri: NbdUri = "nbd+unix:///my%20disk?socket=/run/weft/nbd.sock".parse()?;
/// assert_eq!(uri.export, "my disk");
/// assert_eq!(uri.address, NbdAddress::Unix { socket: "/run/weft/nbd.sock".into() });
/// assert_eq!(uri.to_string(), "nbd+unix:///my%20disk?socket=/run/weft/nbd.sock");
/// # Ok::<(), weft_nbd::UriError>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NbdUri {
    /// Server to connect to: host and port, or path of a unix socket.
    pub address: NbdAddress,
    /// Name of the export; empty for the default export.
    pub export: String,
    /// TLS, from `nbds://` and `nbds+unix://`; `None` for plain text.
    pub tls: Option<NbdTls>,
}

/// TLS of a connection, with X.509 certificates.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NbdTls {
    /// Folder of the certificates; `None` leaves the choice to the program that connects.
    pub certificates: Option<PathBuf>,
}

/// Address of a server: host and port, or path.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NbdAddress {
    /// Host and port, from `nbd://`.
    Tcp {
        /// A name, an IPv4 address, or an IPv6 address without its brackets.
        host: String,
        /// TCP port, 10809 by default.
        port: u16,
    },
    /// Path of a unix socket, from `nbd+unix://`.
    Unix {
        /// Path of the socket; begins with a NUL byte in the abstract namespace.
        socket: PathBuf,
    },
}

impl FromStr for NbdUri {
    type Err = UriError;

    /// Parses a URI.
    ///
    /// # Errors
    /// A variant of [`UriError`] for each part that is missing, malformed or not supported.
    fn from_str(text: &str) -> Result<Self, UriError> {
        let (scheme, rest) = text.split_once("://").ok_or(UriError::Scheme)?;
        let rest = match rest.split_once('#') {
            Some(_) => return Err(UriError::Fragment),
            None => rest,
        };
        let (rest, query) = rest.split_once('?').unwrap_or((rest, ""));
        let (authority, path) = rest.split_once('/').unwrap_or((rest, ""));
        let Query { socket, certificates } = Query::parse(query)?;
        let scheme = scheme.to_ascii_lowercase();
        let (is_unix, is_tls) = match scheme.as_str() {
            "nbd" => (false, false),
            "nbd+unix" => (true, false),
            "nbds" => (false, true),
            "nbds+unix" => (true, true),
            _ => return Err(UriError::Scheme),
        };
        let address = match socket {
            None if is_unix => return Err(UriError::NoSocket),
            None => parse_authority(authority)?,
            Some(_) if !is_unix => return Err(UriError::Parameter("socket".into())),
            Some(_) if !authority.is_empty() => {
                return Err(UriError::Authority(authority.into()));
            }
            Some(socket) => NbdAddress::Unix { socket },
        };
        if certificates.is_some() && !is_tls {
            return Err(UriError::Parameter("tls-certificates".into()));
        }
        let tls = is_tls.then_some(NbdTls { certificates });
        let export = String::from_utf8(decode(path)?).map_err(|_| UriError::Export)?;
        if export.contains('\0') || export.len() > STRING_BYTES_MAX {
            return Err(UriError::Export);
        }
        Ok(Self { address, export, tls })
    }
}

impl fmt::Display for NbdUri {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let path = |path: &PathBuf| encode(OsStr::as_bytes(path.as_os_str()));
        let export = encode(self.export.as_bytes());
        let nbd = if self.tls.is_some() { "nbds" } else { "nbd" };
        let mut query = Vec::new();
        match &self.address {
            NbdAddress::Tcp { host, port } => {
                if host.contains(':') {
                    write!(f, "{nbd}://[{host}]")?;
                } else {
                    write!(f, "{nbd}://{}", encode(host.as_bytes()))?;
                }
                if *port != PORT {
                    write!(f, ":{port}")?;
                }
                write!(f, "/{export}")?;
            }
            NbdAddress::Unix { socket } => {
                write!(f, "{nbd}+unix:///{export}")?;
                query.push(format!("socket={}", path(socket)));
            }
        }
        if let Some(NbdTls { certificates: Some(folder) }) = &self.tls {
            query.push(format!("tls-certificates={}", path(folder)));
        }
        if query.is_empty() { Ok(()) } else { write!(f, "?{}", query.join("&")) }
    }
}

/// Reasons why a text is not an NBD URI that weft supports.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum UriError {
    /// The host is invalid, contains a user name, or is given for a unix socket.
    #[error("host `{0}`: expected HOST, HOST:PORT or [IPV6]:PORT, and none for nbd+unix")]
    Authority(String),
    /// A `%` is not followed by two hexadecimal digits, or a character has to be written as `%` and
    /// two such digits and is not.
    #[error("`{0}`: expected URI characters, others written as % and two hexadecimal digits")]
    Encoding(String),
    /// The export name is invalid.
    #[error("export name: expected UTF-8 without NUL, at most 4096 bytes")]
    Export,
    /// The URI has a fragment, a part after `#`.
    #[error("`#` in the URI: a fragment means nothing here; write %23 in a name")]
    Fragment,
    /// `nbd+unix` is given without a socket.
    #[error("nbd+unix: expected ?socket=PATH")]
    NoSocket,
    /// A query parameter is unknown, repeated or out of place.
    #[error("query parameter `{0}`: not understood here")]
    Parameter(String),
    /// The scheme is not NBD, or is not supported.
    #[error("scheme: expected nbd:// or nbd+unix://, or with TLS nbds:// or nbds+unix://")]
    Scheme,
}

/// Parameters of a URI, with their values decoded.
#[derive(Default)]
struct Query {
    socket: Option<PathBuf>,
    certificates: Option<PathBuf>,
}

impl Query {
    fn parse(query: &str) -> Result<Self, UriError> {
        let mut parsed = Self::default();
        for parameter in query.split('&').filter(|parameter| !parameter.is_empty()) {
            let (name, value) = parameter.split_once('=').unwrap_or((parameter, ""));
            let place = match name {
                "socket" => &mut parsed.socket,
                "tls-certificates" => &mut parsed.certificates,
                _ => return Err(UriError::Parameter(name.into())),
            };
            let value = OsString::from_vec(decode(value)?);
            if value.is_empty() || place.replace(value.into()).is_some() {
                return Err(UriError::Parameter(name.into()));
            }
        }
        Ok(parsed)
    }
}

fn parse_authority(authority: &str) -> Result<NbdAddress, UriError> {
    let malformed = || UriError::Authority(authority.into());
    let (host, port) = if let Some(bracketed) = authority.strip_prefix('[') {
        let (host, port) = bracketed.split_once(']').ok_or_else(malformed)?;
        let address = host.split_once('%').map_or(host, |(address, _zone)| address);
        address.parse::<std::net::Ipv6Addr>().map_err(|_| malformed())?;
        (host.to_owned(), port)
    } else {
        let end = authority.find(':').unwrap_or(authority.len());
        let (host, port) = authority.split_at(end);
        let host = String::from_utf8(decode(host)?).map_err(|_| malformed())?;
        if host.contains(|char: char| char.is_control() || "@:/?#[] ".contains(char)) {
            return Err(malformed());
        }
        // A missing host is `localhost`, as in libnbd.
        (if host.is_empty() { "localhost".into() } else { host }, port)
    };
    let port = match port.strip_prefix(':') {
        None if port.is_empty() => PORT,
        Some("") => PORT,
        Some(digits) if digits.bytes().all(|byte| byte.is_ascii_digit()) => {
            digits.parse().map_err(|_| malformed())?
        }
        None | Some(_) => return Err(malformed()),
    };
    Ok(NbdAddress::Tcp { host, port })
}

/// Decodes a text in which `%xx` stands for a byte. It is an error if the text has a `%` without
/// two hexadecimal digits, a space or a control character.
fn decode(text: &str) -> Result<Vec<u8>, UriError> {
    let malformed = || UriError::Encoding(text.into());
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.bytes();
    while let Some(byte) = rest.next() {
        bytes.push(match byte {
            b'%' => {
                let mut digit = || {
                    let digit = char::from(rest.next()?).to_digit(16)?;
                    u8::try_from(digit).ok()
                };
                let (high, low) = (digit().ok_or_else(malformed)?, digit().ok_or_else(malformed)?);
                high << 4 | low
            }
            0..=b' ' | 0x7f => return Err(malformed()),
            _ => byte,
        });
    }
    Ok(bytes)
}

/// Encodes bytes as `%xx`, except `/` and the characters that are unreserved in RFC 3986.
fn encode(bytes: &[u8]) -> String {
    use std::fmt::Write as _;
    let mut text = String::with_capacity(bytes.len());
    for &byte in bytes {
        if byte.is_ascii_alphanumeric() || b"-._~/".contains(&byte) {
            text.push(char::from(byte));
        } else {
            write!(text, "%{byte:02x}").expect("writing to a String cannot fail");
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tcp(host: &str, port: u16, export: &str) -> NbdUri {
        let address = NbdAddress::Tcp { host: host.into(), port };
        NbdUri { address, export: export.into(), tls: None }
    }

    fn unix(socket: &str, export: &str) -> NbdUri {
        let address = NbdAddress::Unix { socket: socket.into() };
        NbdUri { address, export: export.into(), tls: None }
    }

    fn by_tls(uri: NbdUri, certificates: Option<&str>) -> NbdUri {
        NbdUri { tls: Some(NbdTls { certificates: certificates.map(PathBuf::from) }), ..uri }
    }

    #[test]
    fn good_uris_name_server_and_export() {
        for (text, expected) in [
            ("nbd://example.com/disk", tcp("example.com", 10_809, "disk")),
            ("nbd://example.com/", tcp("example.com", 10_809, "")),
            ("nbd://example.com", tcp("example.com", 10_809, "")),
            ("nbd://example.com//disk", tcp("example.com", 10_809, "/disk")),
            ("nbd://example.com/hello%20world", tcp("example.com", 10_809, "hello world")),
            ("NBD://example.com:/a", tcp("example.com", 10_809, "a")),
            ("nbd://127.0.0.1:10810/a", tcp("127.0.0.1", 10_810, "a")),
            ("nbd://[::1]/a", tcp("::1", 10_809, "a")),
            ("nbd://[fe80::1%25eth0]:7/a", tcp("fe80::1%25eth0", 7, "a")),
            ("nbd:///a", tcp("localhost", 10_809, "a")),
            ("nbd+unix:///disk?socket=sock", unix("sock", "disk")),
            ("nbd+unix://?socket=/run/a.sock", unix("/run/a.sock", "")),
            ("nbd+unix:///?socket=%00/abstract", unix("\0/abstract", "")),
            ("nbd+unix:///%c3%a4?socket=/a%3fb", unix("/a?b", "ä")),
            ("nbds://a/b", by_tls(tcp("a", 10_809, "b"), None)),
            ("nbds://[::1]:7/b?tls-certificates=/k%26", by_tls(tcp("::1", 7, "b"), Some("/k&"))),
            ("nbds+unix:///b?socket=a", by_tls(unix("a", "b"), None)),
            ("nbds+unix:///b?tls-certificates=k&socket=a", by_tls(unix("a", "b"), Some("k"))),
        ] {
            assert_eq!(text.parse::<NbdUri>().as_ref(), Ok(&expected), "{text}");
            assert_eq!(expected.to_string().parse(), Ok(expected), "{text}");
        }
    }

    #[test]
    fn bad_uris_are_named() {
        let parameter = |name: &str| UriError::Parameter(name.into());
        let authority = |name: &str| UriError::Authority(name.into());
        for (text, expected) in [
            ("", UriError::Scheme),
            ("disk", UriError::Scheme),
            ("http://a/b", UriError::Scheme),
            ("nbd+vsock://2/b", UriError::Scheme),
            ("nbds+vsock://2/b", UriError::Scheme),
            ("nbds://a/b?tls-type=psk", parameter("tls-type")),
            ("nbds://a/b?tls-certificates=", parameter("tls-certificates")),
            ("nbd://a/b?tls-certificates=k", parameter("tls-certificates")),
            ("nbds+unix:///b", UriError::NoSocket),
            ("nbd://a/b?socket=c", parameter("socket")),
            ("nbd://a/b?sockte=c", parameter("sockte")),
            ("nbd+unix:///b?socket=a&socket=c", parameter("socket")),
            ("nbd+unix:///b?socket=", parameter("socket")),
            ("nbd+unix:///b", UriError::NoSocket),
            ("nbd+unix://host/b?socket=a", authority("host")),
            ("nbd://user@host/b", authority("user@host")),
            ("nbd://host:x/b", authority("host:x")),
            ("nbd://host:+1/b", authority("host:+1")),
            ("nbd://host:65536/b", authority("host:65536")),
            ("nbd://::1/b", authority("::1")),
            ("nbd://[::1/b", authority("[::1")),
            ("nbd://[host]/b", authority("[host]")),
            ("nbd://[::1]x/b", authority("[::1]x")),
            ("nbd://a/%zz", UriError::Encoding("%zz".into())),
            ("nbd://a/%f", UriError::Encoding("%f".into())),
            ("nbd://a/%+1", UriError::Encoding("%+1".into())),
            ("nbd://a/b c", UriError::Encoding("b c".into())),
            ("nbd://a/%ff", UriError::Export),
            ("nbd://a/%00", UriError::Export),
            ("nbd://a/b#c", UriError::Fragment),
        ] {
            assert_eq!(text.parse::<NbdUri>(), Err(expected), "{text}");
        }
    }
}
