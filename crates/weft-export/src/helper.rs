//! Thread for commands that block, beside a port that must not.
//!
//! A port runs on a worker together with all clients. Commands to the kernel that end only after
//! requests of the port's own device or file were answered (the start of a block device, an
//! unmount) would therefore never end there.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::{Arc, mpsc};

use rustix::event::EventfdFlags;

/// Thread that carries out commands `C`, in order; `R` is the result of a command.
pub(crate) struct Helper<C, R> {
    commands: mpsc::Sender<C>,
    results: mpsc::Receiver<R>,
    eventfd: Arc<OwnedFd>,
}

impl<C: Send + 'static, R: Send + 'static> Helper<C, R> {
    /// Starts the thread `name`, which calls `run` for each command.
    pub(crate) fn start(
        name: &str,
        mut run: impl FnMut(C) -> R + Send + 'static,
    ) -> std::io::Result<Self> {
        let flags = EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK;
        let eventfd = Arc::new(rustix::event::eventfd(0, flags)?);
        let (commands, given) = mpsc::channel();
        let (sender, results) = mpsc::channel();
        let done = Arc::clone(&eventfd);
        // The thread is not joined: a command may wait for requests that no server carries out any
        // more.
        std::thread::Builder::new().name(name.into()).spawn(move || {
            while let Ok(command) = given.recv() {
                // Errors are ignored: the port has ended.
                let _ = sender.send(run(command));
                let _ = rustix::io::write(&*done, &1_u64.to_ne_bytes());
            }
        })?;
        Ok(Self { commands, results, eventfd })
    }

    /// Gives a command to the thread.
    pub(crate) fn give(&self, command: C) {
        // The thread ends before this end of the channel only by a panic, which reports itself.
        let _ = self.commands.send(command);
    }

    /// Takes the next result; `None` if no command has ended since the last one.
    pub(crate) fn take_result(&self) -> Option<R> {
        let _ = rustix::io::read(&*self.eventfd, &mut [0; 8]);
        self.results.try_recv().ok()
    }
}

impl<C, R> AsFd for Helper<C, R> {
    /// Descriptor that is readable when there is a result.
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.eventfd.as_fd()
    }
}
