//! Transport: the bytes of a client's connection, in plain text or with TLS.
//!
//! Plain text and TLS have one interface: they send and receive through slices and return `EAGAIN`
//! when the socket has no room or no bytes. With TLS, accepted bytes may still wait to be sent, as
//! ciphertext. Each call sends the waiting ciphertext before it accepts more bytes, so at most the
//! bytes of one call wait. Ciphertext is received through a buffer of [`RECEIVED_BYTES`].
//!
//! Faults expected from the peer: any bytes, a handshake without an end (`nbd/` has its time
//! limit), a certificate of another authority or none. Each of them ends the connection, with an
//! alert for the peer and a reason in [`Transport::failure`].

use std::io::{self, IoSlice, IoSliceMut, Read, Write};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;

use rustix::io::Errno;
use rustix::net::{RecvAncillaryBuffer, RecvFlags, SendAncillaryBuffer, SendFlags};
use rustls::{ServerConfig, ServerConnection};

/// Connection of a client: its socket, and TLS once that has started.
pub(crate) struct Transport {
    socket: Socket,
    tls: Option<Box<Tls>>,
    failure: Option<String>,
}

struct Tls {
    connection: ServerConnection,
    /// Last bytes in plain text, to be sent before the first bytes of TLS.
    before: Vec<u8>,
    received: Box<[u8]>,
    /// Range of `received` that is not decrypted yet.
    unread: std::ops::Range<usize>,
}

/// A nonblocking socket.
struct Socket(OwnedFd);

impl Transport {
    pub(crate) fn new(socket: OwnedFd) -> Self {
        Self { socket: Socket(socket), tls: None, failure: None }
    }

    /// Starts TLS after `before`, the last bytes in plain text, were sent.
    pub(crate) fn start_tls(&mut self, config: Arc<ServerConfig>, before: Vec<u8>) {
        match ServerConnection::new(config) {
            Ok(mut connection) => {
                connection.set_buffer_limit(None);
                let received = vec![0; RECEIVED_BYTES].into();
                let tls = Tls { connection, before, received, unread: 0..0 };
                self.tls = Some(Box::new(tls));
            }
            Err(error) => self.failure = Some(error.to_string()),
        }
    }

    /// Reason why TLS has failed; `None` if it has not.
    pub(crate) fn failure(&self) -> Option<&str> {
        self.failure.as_deref()
    }

    /// Whether bytes that [`Self::send`] has accepted wait to be sent.
    pub(crate) fn has_unsent(&self) -> bool {
        self.tls.as_ref().is_some_and(|tls| !tls.before.is_empty() || tls.connection.wants_write())
    }

    /// Receives bytes into the slices, and returns their number. A number below the total length of
    /// the slices means that the socket has no more bytes at present; 0 is the end of the stream.
    pub(crate) fn recv(&mut self, slices: &mut [IoSliceMut<'_>]) -> Result<usize, Errno> {
        // After TLS has failed to start, nothing is received in plain text.
        if self.failure.is_some() {
            return Err(Errno::PROTO);
        }
        let Some(tls) = &mut self.tls else { return self.socket.recv(slices) };
        let received = tls.recv(&self.socket, slices);
        if let Err(Failed::Tls(error)) = &received {
            self.failure = Some(error.to_string());
            // Sends the alert that names the reason. A peer that does not read does not get the
            // alert.
            let _ = tls.flush(&self.socket);
        }
        received.map_err(Failed::errno)
    }

    /// Accepts bytes and sends what the socket takes. Returns the number of bytes accepted.
    pub(crate) fn send(&mut self, slices: &[IoSlice<'_>]) -> Result<usize, Errno> {
        if self.failure.is_some() {
            return Err(Errno::PROTO);
        }
        let Some(tls) = &mut self.tls else { return self.socket.send(slices) };
        tls.flush(&self.socket)?;
        let count = tls.connection.writer().write_vectored(slices).map_err(|_| Errno::PROTO)?;
        match tls.flush(&self.socket) {
            Ok(()) | Err(Errno::AGAIN | Errno::INTR) => Ok(count),
            Err(errno) => Err(errno),
        }
    }

    /// Sends bytes that [`Self::send`] has accepted and that still wait.
    pub(crate) fn flush(&mut self) -> Result<(), Errno> {
        self.tls.as_mut().map_or(Ok(()), |tls| tls.flush(&self.socket))
    }
}

impl AsFd for Transport {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.0.as_fd()
    }
}

/// Reasons why nothing was received.
enum Failed {
    Errno(Errno),
    Tls(rustls::Error),
}

impl Failed {
    fn errno(self) -> Errno {
        match self {
            Self::Errno(errno) => errno,
            Self::Tls(_) => Errno::PROTO,
        }
    }
}

impl Tls {
    /// Fills the slices in order, until the socket has no more bytes. Returns the number of bytes.
    fn recv(&mut self, socket: &Socket, slices: &mut [IoSliceMut<'_>]) -> Result<usize, Failed> {
        let mut count = 0;
        for slice in slices {
            let mut filled = 0;
            while filled < slice.len() {
                match self.connection.reader().read(&mut slice[filled..]) {
                    Ok(0) => return Ok(count),
                    Ok(more) => {
                        filled += more;
                        count += more;
                    }
                    Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                        match self.decrypt(socket) {
                            Ok(true) => {}
                            Ok(false) => return Ok(count),
                            // The bytes received so far are returned. The next call returns the
                            // error.
                            Err(Failed::Errno(_)) if count > 0 => return Ok(count),
                            Err(failed) => return Err(failed),
                        }
                    }
                    // The peer has closed its socket without the alert that ends TLS.
                    Err(_) => return Ok(count),
                }
            }
        }
        Ok(count)
    }

    /// Decrypts bytes from the socket. Returns false at the end of the stream.
    fn decrypt(&mut self, socket: &Socket) -> Result<bool, Failed> {
        if self.unread.is_empty() {
            let mut room = [IoSliceMut::new(&mut self.received)];
            let count = socket.recv(&mut room).map_err(Failed::Errno)?;
            self.unread = 0..count;
        }
        let mut bytes = &self.received[self.unread.clone()];
        let is_end = bytes.is_empty();
        let taken = self.connection.read_tls(&mut bytes);
        self.unread.start += taken.map_err(|_| Failed::Errno(Errno::PROTO))?;
        self.connection.process_new_packets().map_err(Failed::Tls)?;
        Ok(!is_end)
    }

    /// Sends bytes that wait, until none is left or the socket has no more room.
    fn flush(&mut self, socket: &Socket) -> Result<(), Errno> {
        while !self.before.is_empty() {
            let sent = socket.send(&[IoSlice::new(&self.before)])?;
            self.before.drain(..sent);
        }
        while self.connection.wants_write() {
            let sent = self.connection.write_tls(&mut &*socket);
            sent.map_err(|error| Errno::from_io_error(&error).unwrap_or(Errno::PROTO))?;
        }
        Ok(())
    }
}

impl Socket {
    fn recv(&self, slices: &mut [IoSliceMut<'_>]) -> Result<usize, Errno> {
        let mut control = RecvAncillaryBuffer::default();
        let received = rustix::net::recvmsg(&self.0, slices, &mut control, RecvFlags::empty())?;
        Ok(received.bytes)
    }

    fn send(&self, slices: &[IoSlice<'_>]) -> Result<usize, Errno> {
        let mut control = SendAncillaryBuffer::default();
        rustix::net::sendmsg(&self.0, slices, &mut control, SendFlags::NOSIGNAL)
    }
}

impl Write for &Socket {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        Ok(self.send(&[IoSlice::new(bytes)])?)
    }

    fn write_vectored(&mut self, slices: &[IoSlice<'_>]) -> io::Result<usize> {
        // Longer lists are refused by the kernel.
        Ok(self.send(&slices[..slices.len().min(SLICES_MAX)])?)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Size of the buffer for ciphertext: two records of TLS.
const RECEIVED_BYTES: usize = 32 << 10;
/// Largest number of slices in one `sendmsg`, which is `IOV_MAX`.
const SLICES_MAX: usize = 1024;
