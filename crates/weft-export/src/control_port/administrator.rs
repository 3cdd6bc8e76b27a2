//! A connection to the control socket: its lines in, its answers out, and its bounds.

use std::os::fd::OwnedFd;

use rustix::io::Errno;
use rustix::net::{RecvFlags, SendFlags};

use super::commands::refusal;
use super::{OUTPUT_BYTES_HIGH, Work};
use crate::control::{FailureKind, LINE_BYTES_MAX, Response};

/// Connection to the control socket, on the server's side.
pub(super) struct Administrator {
    pub(super) socket: OwnedFd,
    pub(super) number: u32,
    pub(super) input: Vec<u8>,
    pub(super) output: Vec<u8>,
    pub(super) work: Option<Work>,
    pub(super) eof: bool,
}

impl Administrator {
    /// Whether the next command may be read: none is in progress, and few answers are unsent.
    pub(super) fn listens(&self) -> bool {
        self.work.is_none() && self.output.len() < OUTPUT_BYTES_HIGH
    }

    pub(super) fn has_line(&self) -> bool {
        self.input.contains(&b'\n')
    }

    /// Receives bytes until the socket has no more or the end of a line has arrived. May receive up
    /// to 4 KiB beyond that end.
    pub(super) fn receive(&mut self) {
        let mut buffer = [0; 4096];
        while self.input.len() < LINE_BYTES_MAX && !self.eof {
            match rustix::net::recv(&self.socket, &mut buffer, RecvFlags::empty()) {
                Ok((0, _)) => self.eof = true,
                Ok((count, _)) => {
                    self.input.extend_from_slice(&buffer[..count]);
                    if buffer[..count].contains(&b'\n') {
                        return;
                    }
                    continue;
                }
                Err(Errno::INTR) => continue,
                Err(Errno::AGAIN) => {}
                Err(_) => self.eof = true,
            }
            return;
        }
    }

    pub(super) fn next_line(&mut self) -> Option<Vec<u8>> {
        if !self.has_line() {
            self.receive();
        }
        let Some(end) = self.input.iter().position(|byte| *byte == b'\n') else {
            if self.input.len() >= LINE_BYTES_MAX {
                self.input.clear();
                self.eof = true;
                self.answer(&refusal(FailureKind::Usage, "request: longer than 1 MiB"));
            }
            return None;
        };
        let mut line: Vec<u8> = self.input.drain(..=end).collect();
        line.pop();
        Some(line)
    }

    pub(super) fn answer(&mut self, response: &Response) {
        // A response has strings, numbers and lists only, which JSON can always encode.
        if let Ok(mut line) = serde_json::to_vec(response) {
            line.push(b'\n');
            self.output.append(&mut line);
        }
    }

    /// Sends as much as the socket takes. Returns whether the connection still exists.
    pub(super) fn send(&mut self) -> bool {
        while !self.output.is_empty() {
            match rustix::net::send(&self.socket, &self.output, SendFlags::NOSIGNAL) {
                Ok(count) => drop(self.output.drain(..count)),
                Err(Errno::INTR) => {}
                Err(Errno::AGAIN) => return true,
                Err(_) => return false,
            }
        }
        true
    }

    pub(super) fn is_over(&self) -> bool {
        self.eof && self.output.is_empty() && self.work.is_none() && !self.has_line()
    }
}
