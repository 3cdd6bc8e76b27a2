//! Listening sockets: created or inherited, with their modes and their removal.
//!
//! A unix socket is created with mode 0600 and removed when its [`Listener`] is dropped. A socket
//! that a dead server left behind is recognised by connecting to it, and replaced. A socket that
//! answers, and any file that is not a socket, is left alone. TCP is for loopback unless clients
//! use TLS or the caller consents to plain text.
//!
//! A socket that was passed to this process is used as it is; the process that created it removes
//! it.

use std::net::SocketAddr;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustix::fs::Mode;
use rustix::io::Errno;
use rustix::net::{
    AddressFamily, SocketAddrUnix, SocketFlags, SocketType, bind, connect, ipproto, listen,
    socket_with, sockopt,
};

use crate::error::ServeError;
use crate::in_process::InProcessEnd;
use crate::keys::Keys;

/// Way in which clients reach a volume.
#[derive(Debug)]
pub enum Listen {
    /// NBD clients connect to a socket.
    Nbd(NbdListen),
    /// A block device of this machine (ublk).
    Ublk {
        /// Number of the device; `None` lets the kernel choose one.
        number: Option<u32>,
    },
    /// A virtual machine connects to a unix socket (vhost-user), created with mode 0600 and removed
    /// at the end.
    VhostUser {
        /// Path to create the socket at.
        path: PathBuf,
    },
    /// A file of this machine (FUSE).
    Fuse {
        /// Path of the file to mount on. A file that exists has to be empty; a missing one is
        /// created with mode 0600, and removed at the end.
        path: PathBuf,
    },
    /// A client in this process.
    InProcess(InProcessEnd),
}

/// Socket that NBD clients connect to.
#[derive(Debug)]
pub struct NbdListen {
    /// Address of the socket.
    pub address: NbdAddress,
    /// Protection of what clients send and receive.
    pub protection: Protection,
}

impl NbdListen {
    /// Plain text at a unix socket, which only its owner can connect to.
    pub fn unix(path: impl Into<PathBuf>) -> Self {
        Self { address: NbdAddress::Unix(path.into()), protection: Protection::Local }
    }
}

/// Address that NBD clients connect to.
#[derive(Debug)]
pub enum NbdAddress {
    /// A listening stream socket that was passed to this process. Its path, if it has one, is not
    /// removed.
    Passed(OwnedFd),
    /// A TCP address.
    Tcp(SocketAddr),
    /// Path of a unix socket, created with mode 0600 and removed at the end.
    Unix(PathBuf),
}

/// Protection of what NBD clients send and receive.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Protection {
    /// Plain text. An address that other machines can reach is refused.
    Local,
    /// Plain text on a network: every machine that reaches the address can read and write the
    /// volume.
    Insecure,
    /// TLS by the keys of this folder. Clients need a certificate of its authority.
    Tls(PathBuf),
}

/// A socket that clients connect to.
#[derive(Debug)]
pub(crate) struct Listener {
    fd: OwnedFd,
    address: Address,
    /// Whether this process created the socket and removes its path at the end.
    is_ours: bool,
    /// Keys by which clients start TLS; `None` for plain text.
    keys: Option<Arc<Keys>>,
}

#[derive(Debug)]
enum Address {
    Tcp(SocketAddr),
    Unix(PathBuf),
}

impl Listener {
    /// Creates the socket that `at` describes, or takes the one that was passed, and listens on it.
    pub(crate) fn open(at: NbdListen) -> Result<Self, ServeError> {
        let NbdListen { address, protection } = at;
        let is_local = protection == Protection::Local;
        let keys = match protection {
            Protection::Insecure | Protection::Local => None,
            Protection::Tls(folder) => Some(Arc::new(Keys::open(folder)?)),
        };
        let mut listener = match address {
            NbdAddress::Passed(socket) => Self::passed(socket, is_local)?,
            NbdAddress::Tcp(address) => Self::tcp(address, is_local)?,
            NbdAddress::Unix(path) => Self::unix(&path)?,
        };
        listener.keys = keys;
        Ok(listener)
    }

    /// Keys by which clients start TLS; `None` for plain text.
    pub(crate) fn keys(&self) -> Option<Arc<Keys>> {
        self.keys.clone()
    }

    fn passed(fd: OwnedFd, is_local: bool) -> Result<Self, ServeError> {
        let failed = |errno: Errno| ServeError::Listen {
            at: "passed socket".into(),
            source: errno.into(),
            hint: "",
        };
        let refused = |found: &str| {
            ServeError::Refused(format!(
                "passed socket: found {found}, expected a listening stream socket, unix with a path \
                 or TCP (in a .socket unit: ListenStream=, Accept=no)"
            ))
        };
        if sockopt::socket_type(&fd).map_err(failed)? != SocketType::STREAM {
            return Err(refused("one that is no stream"));
        }
        if !sockopt::socket_acceptconn(&fd).map_err(failed)? {
            return Err(refused("one that does not listen"));
        }
        let bound = rustix::net::getsockname(&fd).map_err(failed)?;
        let family = bound.address_family();
        let address = if family == AddressFamily::UNIX {
            let bound = SocketAddrUnix::try_from(bound).map_err(failed)?;
            let path = bound.path_bytes().ok_or_else(|| refused("a unix socket without a path"))?;
            Address::Unix(PathBuf::from(std::ffi::OsStr::from_bytes(path)))
        } else if family == AddressFamily::INET || family == AddressFamily::INET6 {
            let address = SocketAddr::try_from(bound).map_err(failed)?;
            require_loopback(address, is_local)?;
            Address::Tcp(address)
        } else {
            return Err(refused("another address family"));
        };
        rustix::io::ioctl_fionbio(&fd, true).map_err(failed)?;
        rustix::io::fcntl_setfd(&fd, rustix::io::FdFlags::CLOEXEC).map_err(failed)?;
        Ok(Self { fd, address, is_ours: false, keys: None })
    }

    pub(crate) fn unix(path: &Path) -> Result<Self, ServeError> {
        let failed = |hint| {
            move |errno: Errno| ServeError::Listen {
                at: path.display().to_string(),
                source: errno.into(),
                hint,
            }
        };
        let address = SocketAddrUnix::new(path).map_err(failed("; a shorter path"))?;
        let fd = new_socket(AddressFamily::UNIX).map_err(failed(""))?;
        // Between `bind` and `chmod` others could connect; with a mask there is no such window.
        let mask = rustix::process::umask(Mode::from_raw_mode(0o177));
        let mut bound = bind(&fd, &address);
        if bound == Err(Errno::ADDRINUSE) && is_stale(path, &address) {
            bound = rustix::fs::unlink(path).and_then(|()| bind(&fd, &address));
        }
        rustix::process::umask(mask);
        bound.map_err(|errno| failed(bind_hint(path, errno))(errno))?;
        let address = Address::Unix(path.to_owned());
        let listener = Self { fd, address, is_ours: true, keys: None };
        listen(&listener.fd, BACKLOG).map_err(failed(""))?;
        Ok(listener)
    }

    fn tcp(address: SocketAddr, is_local: bool) -> Result<Self, ServeError> {
        require_loopback(address, is_local)?;
        let failed = |errno: Errno| ServeError::Listen {
            at: address.to_string(),
            source: errno.into(),
            hint: "",
        };
        let family = if address.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 };
        let fd = new_socket(family).map_err(failed)?;
        sockopt::set_socket_reuseaddr(&fd, true).map_err(failed)?;
        bind(&fd, &address).map_err(failed)?;
        listen(&fd, BACKLOG).map_err(failed)?;
        let bound = rustix::net::getsockname(&fd).map_err(failed)?;
        let address = SocketAddr::try_from(bound).unwrap_or(address);
        Ok(Self { fd, address: Address::Tcp(address), is_ours: true, keys: None })
    }

    /// Accepts the next client, and returns its socket, which is nonblocking. Fails with `EAGAIN`
    /// if no client waits.
    pub(crate) fn accept(&self) -> Result<OwnedFd, Errno> {
        let fd = rustix::net::accept_with(&self.fd, SocketFlags::CLOEXEC | SocketFlags::NONBLOCK)?;
        if matches!(self.address, Address::Tcp(_)) {
            // Replies are sent whole, so waiting for more data would only delay them.
            let _ = sockopt::set_tcp_nodelay(&fd, true);
            let _ = sockopt::set_socket_keepalive(&fd, true);
        }
        Ok(fd)
    }

    /// NBD URI of `export` at this listener.
    pub(crate) fn uri(&self, export: &str) -> String {
        let export = escape(export, false);
        let nbd = if self.keys.is_some() { "nbds" } else { "nbd" };
        match &self.address {
            Address::Tcp(address) => format!("{nbd}://{address}/{export}"),
            Address::Unix(path) => {
                let path = escape(&path.display().to_string(), true);
                format!("{nbd}+unix:///{export}?socket={path}")
            }
        }
    }

    /// Address of the listener as text: its path, or address and port.
    pub(crate) fn describe(&self) -> String {
        match &self.address {
            Address::Tcp(address) => address.to_string(),
            Address::Unix(path) => path.display().to_string(),
        }
    }
}

impl AsFd for Listener {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        if let (Address::Unix(path), true) = (&self.address, self.is_ours) {
            let _ = rustix::fs::unlink(path);
        }
    }
}

fn require_loopback(address: SocketAddr, is_local: bool) -> Result<(), ServeError> {
    if address.ip().is_loopback() || !is_local {
        return Ok(());
    }
    Err(ServeError::Refused(format!(
        "{address}: found an address that others can reach, expected loopback, or TLS (nbds://); \
         --insecure-tcp lets anybody on that network read and write the volume"
    )))
}

fn new_socket(family: AddressFamily) -> Result<OwnedFd, Errno> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let protocol = (family != AddressFamily::UNIX).then_some(ipproto::TCP);
    socket_with(family, SocketType::STREAM, flags, protocol)
}

/// Advice for a socket that cannot be created; empty if there is none.
fn bind_hint(path: &Path, errno: Errno) -> &'static str {
    match errno {
        Errno::ADDRINUSE if is_socket(path) => "; another server listens there: stop it first",
        Errno::ADDRINUSE => "; what is there is no socket: give another path",
        Errno::NOENT => "; make its directory first",
        _ => "",
    }
}

fn is_socket(path: &Path) -> bool {
    rustix::fs::lstat(path).is_ok_and(|stat| {
        rustix::fs::FileType::from_raw_mode(stat.st_mode) == rustix::fs::FileType::Socket
    })
}

/// Whether a path is a socket on which no process listens any more.
fn is_stale(path: &Path, address: &SocketAddrUnix) -> bool {
    let refused = || {
        let probe = new_socket(AddressFamily::UNIX)?;
        connect(&probe, address)
    };
    is_socket(path) && refused() == Err(Errno::CONNREFUSED)
}

/// Percent-encodes the characters that a URI cannot contain, and also `/` unless `keep_slash` is
/// set.
fn escape(text: &str, keep_slash: bool) -> String {
    let mut escaped = String::with_capacity(text.len());
    for byte in text.bytes() {
        let plain = byte.is_ascii_alphanumeric() || b"-._~".contains(&byte);
        if plain || (keep_slash && byte == b'/') {
            escaped.push(char::from(byte));
        } else {
            escaped.push_str(&format!("%{byte:02X}"));
        }
    }
    escaped
}

/// Largest number of connections that the kernel queues until they are accepted.
const BACKLOG: i32 = 128;

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    #[test]
    fn a_unix_socket_is_private_and_goes_away() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("s");
        let listener = Listener::unix(&path).unwrap();
        let mode = std::fs::metadata(&path).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
        let error = Listener::unix(&path).unwrap_err().to_string();
        assert!(error.ends_with("another server listens there: stop it first"), "{error}");
        assert!(path.exists());
        drop(listener);
        assert!(!path.exists());
    }

    #[test]
    fn a_stale_socket_is_replaced_and_a_file_is_not() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("s");
        drop(std::os::unix::net::UnixListener::bind(&path).unwrap());
        assert!(path.exists());
        drop(Listener::unix(&path).unwrap());
        std::fs::write(&path, "mine").unwrap();
        let error = Listener::unix(&path).unwrap_err().to_string();
        assert!(error.ends_with("what is there is no socket: give another path"), "{error}");
        let error = Listener::unix(&dir.path().join("no/s")).unwrap_err().to_string();
        assert!(error.ends_with("make its directory first"), "{error}");
        assert_eq!(std::fs::read(&path).unwrap(), b"mine");
    }

    #[test]
    fn a_passed_socket_is_judged_and_stays() {
        let passed = |socket: OwnedFd| {
            let (address, protection) = (NbdAddress::Passed(socket), Protection::Local);
            Listener::open(NbdListen { address, protection })
        };
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("s");
        let unix = std::os::unix::net::UnixListener::bind(&path).unwrap();
        let listener = passed(unix.into()).unwrap();
        assert_eq!(listener.uri("v"), format!("nbd+unix:///v?socket={}", path.display()));
        let client = std::os::unix::net::UnixStream::connect(&path).unwrap();
        listener.accept().unwrap();
        assert_eq!(listener.accept().unwrap_err(), Errno::AGAIN, "accept does not block");
        drop(listener);
        assert!(path.exists(), "the creator of the socket removes it");
        let tcp = |address: &str| passed(std::net::TcpListener::bind(address).unwrap().into());
        assert!(tcp("127.0.0.1:0").unwrap().uri("v").starts_with("nbd://127.0.0.1:"));
        let datagram = std::os::unix::net::UnixDatagram::unbound().unwrap();
        for (refused, reason) in [
            (tcp("0.0.0.0:0"), "expected loopback"),
            (passed(client.into()), "does not listen"),
            (passed(datagram.into()), "no stream"),
        ] {
            let error = refused.unwrap_err();
            assert!(matches!(error, ServeError::Refused(_)), "{error:?}");
            assert!(error.to_string().contains(reason), "{error}");
        }
    }

    #[test]
    fn only_loopback_is_free() {
        let listen = |address: &str, protection| {
            let address = NbdAddress::Tcp(address.parse().unwrap());
            Listener::open(NbdListen { address, protection })
        };
        assert!(matches!(listen("0.0.0.0:0", Protection::Local), Err(ServeError::Refused(_))));
        assert!(listen("0.0.0.0:0", Protection::Insecure).is_ok());
        let uri = listen("127.0.0.1:0", Protection::Local).unwrap().uri("a b");
        assert!(uri.starts_with("nbd://127.0.0.1:") && uri.ends_with("/a%20b"), "{uri}");
    }
}
