//! Mounted view: mounting, and serving until the end.

use std::path::Path;
use std::sync::mpsc::{Receiver, SyncSender, TryRecvError, sync_channel};
use std::time::{Duration, Instant};

use crate::forward::Forward;
use crate::mount::{InUse, Mount, MountError, MountPoint, Options, Unmounted};
use crate::request::Request;
use crate::view::View;

/// A mounted view, which is unmounted when the value is dropped.
pub struct Mounted {
    requests: Receiver<Request>,
    mount: Mount,
    end: SyncSender<Request>,
}

/// Handle that unmounts a view, for any thread.
#[derive(Clone)]
pub struct Unmounter {
    point: MountPoint,
    end: SyncSender<Request>,
}

impl Mounted {
    /// Mounts a view on a folder, which [`crate::check`] has accepted. Requests wait until
    /// [`Mounted::serve`] answers them.
    ///
    /// # Errors
    /// FUSE is missing or not permitted here, or the mount was refused.
    pub fn new(view: &View, dir: &Path, allow_other: bool) -> Result<Self, MountError> {
        let (to, requests) = sync_channel(WAITING_MAX);
        let end = to.clone();
        let (opens_alike, latest) = (view.opens_alike(), view.latest());
        let forward = Forward { to, opens_alike, latest, without_open: false };
        let options = Options { allow_other, read_only: true };
        Ok(Self { requests, mount: Mount::new(forward, dir, options)?, end })
    }

    /// A handle by which any thread can unmount the view.
    #[must_use]
    pub fn unmounter(&self) -> Unmounter {
        Unmounter { point: self.mount.point().clone(), end: self.end.clone() }
    }

    /// Answers requests until the view is unmounted, by an [`Unmounter`] or by another program.
    pub fn serve(self, view: &mut View) {
        while let Some(request) = self.next(view) {
            if !request.answer(view) {
                break;
            }
        }
        self.mount.point().ended();
    }

    /// The next request; `None` once the channel is closed. While none waits, the view reads ahead.
    /// A program often sends its next request as soon as it has an answer, so that polling for a
    /// moment costs less than to sleep and be woken.
    fn next(&self, view: &mut View) -> Option<Request> {
        match self.requests.try_recv() {
            Ok(request) => return Some(request),
            Err(TryRecvError::Disconnected) => return None,
            Err(TryRecvError::Empty) => view.read_on(),
        }
        let start = Instant::now();
        while start.elapsed() < AWAKE {
            match self.requests.try_recv() {
                Ok(request) => return Some(request),
                Err(TryRecvError::Disconnected) => return None,
                Err(TryRecvError::Empty) => std::thread::yield_now(),
            }
        }
        self.requests.recv().ok()
    }
}

impl Unmounter {
    /// Unmounts the view, and ends [`Mounted::serve`]. If programs use the mount, it is detached
    /// from the folder, and the programs get errors.
    ///
    /// # Errors
    /// The view cannot be unmounted, and is served as before.
    pub fn unmount(&self) -> Result<Unmounted, MountError> {
        let unmounted = self.point.unmount(InUse::Detach)?;
        // An error is ignored: the thread of the view has ended by itself.
        let _ = self.end.send(Request::End);
        Ok(unmounted)
    }
}

/// Time for which the thread of the view polls for the next request before it sleeps.
const AWAKE: Duration = Duration::from_micros(100);
/// Largest number of requests in the channel to the thread of the view. If it is full, the thread
/// that receives the kernel's requests waits, too.
const WAITING_MAX: usize = 64;
