//! Rings and memory that this process shares with the ublk driver.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::ptr::NonNull;
use std::time::Duration;

use io_uring::{IoUring, cqueue, opcode, squeue, types};
use rustix::mm::{MapFlags, ProtFlags, mmap, munmap};

use super::abi::{
    Command, DESCRIPTOR_BYTES, DeviceInfo, INFO_BYTES, PARAMS_BYTES, Params, QueueCommand, Request,
    State, control, data_offset,
};
use crate::buffers::Buffer;

/// Handle of `/dev/ublk-control`. Each command blocks until it has ended.
pub(super) struct Control {
    ring: IoUring<squeue::Entry128, cqueue::Entry>,
    file: File,
}

/// The queue of a device, for the thread that serves it: the driver takes the commands of a queue
/// from one thread only.
pub struct Queue {
    ring: IoUring,
    file: File,
    descriptors: Descriptors,
    depth: u16,
}

/// Descriptors of the requests in a queue, by their tags, in memory that the driver writes.
struct Descriptors {
    start: NonNull<u8>,
    len: usize,
}

// SAFETY: the mapping belongs to no thread, and is only read.
unsafe impl Send for Descriptors {}

impl Control {
    pub(super) fn open() -> Result<Self, String> {
        const PATH: &str = "/dev/ublk-control";
        let file = OpenOptions::new().read(true).write(true).open(PATH).map_err(|error| {
            let hint = match error.kind() {
                io::ErrorKind::NotFound => "; modprobe ublk_drv, of Linux 6.0 or later",
                io::ErrorKind::PermissionDenied => "; it takes root",
                _ => "",
            };
            format!("{PATH}: {error}{hint}")
        })?;
        let ring = IoUring::builder().build(1).map_err(|error| format!("io_uring: {error}"))?;
        Ok(Self { ring, file })
    }

    /// Sends a command about a device, without data.
    pub(super) fn call(&mut self, command: Command, device: u32) -> io::Result<()> {
        self.exchange(command, device, &mut [])
    }

    pub(super) fn add(&mut self, info: &DeviceInfo) -> io::Result<DeviceInfo> {
        let mut bytes = info.encode();
        self.exchange(Command::Add, info.number, &mut bytes)?;
        Ok(DeviceInfo::decode(&bytes))
    }

    pub(super) fn info(&mut self, device: u32) -> io::Result<DeviceInfo> {
        let mut bytes = [0; INFO_BYTES];
        self.exchange(Command::Info, device, &mut bytes)?;
        Ok(DeviceInfo::decode(&bytes))
    }

    /// Information about a device. If the device is of `owner` and its server has ended, waits
    /// until the kernel has noticed that, for at most [`TRIES_MAX`] attempts.
    pub(super) fn settled(&mut self, device: u32, owner: u64) -> io::Result<DeviceInfo> {
        let mut tries = 0;
        loop {
            let info = self.info(device)?;
            let is_left = info.owner == owner && info.state == State::Live && !info.is_served();
            if !is_left || tries == TRIES_MAX {
                return Ok(info);
            }
            tries += 1;
            std::thread::sleep(PAUSE);
        }
    }

    /// Repeats a command while the kernel is busy with the end of the last server, at most
    /// [`TRIES_MAX`] times.
    pub(super) fn patiently(
        &mut self,
        mut command: impl FnMut(&mut Self) -> io::Result<()>,
    ) -> io::Result<()> {
        let mut tries = 0;
        loop {
            match command(self) {
                Err(error) if error.kind() == io::ErrorKind::ResourceBusy && tries < TRIES_MAX => {
                    tries += 1;
                    std::thread::sleep(PAUSE);
                }
                result => return result,
            }
        }
    }

    pub(super) fn params(&mut self, device: u32) -> io::Result<Params> {
        let mut bytes = [0; PARAMS_BYTES];
        let len = u32::try_from(PARAMS_BYTES).expect("64");
        bytes[..4].copy_from_slice(&len.to_ne_bytes());
        self.exchange(Command::Params, device, &mut bytes)?;
        Ok(Params::decode(&bytes))
    }

    pub(super) fn set_params(&mut self, device: u32, params: &Params) -> io::Result<()> {
        self.exchange(Command::SetParams, device, &mut params.encode())
    }

    /// Sends a command with bytes that the driver reads and may overwrite.
    fn exchange(&mut self, command: Command, device: u32, bytes: &mut [u8]) -> io::Result<()> {
        let len = u16::try_from(bytes.len()).expect("short structures");
        let address = if bytes.is_empty() { 0 } else { bytes.as_mut_ptr() as u64 };
        let words = control(device, address, len, std::process::id().into());
        let file = types::Fd(self.file.as_raw_fd());
        let entry = opcode::UringCmd80::new(file, command.number()).cmd(words).build();
        // SAFETY: the entry names `file`, which lives as long as the ring, and `bytes`, which the
        // driver uses before it completes the entry: the loop below waits for that.
        unsafe { self.ring.submission().push(&entry) }.map_err(io::Error::other)?;
        loop {
            match self.ring.submit_and_wait(1) {
                Ok(_) => {}
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                // The error does not say whether the kernel took the entry. The entry is queued or
                // in flight, so its completion is waited for.
                Err(_) => std::thread::sleep(Duration::from_millis(1)),
            }
            if let Some(done) = self.ring.completion().next() {
                let result = done.result();
                return if result < 0 {
                    Err(io::Error::from_raw_os_error(-result))
                } else {
                    Ok(())
                };
            }
        }
    }
}

impl std::fmt::Debug for Control {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Control").field("file", &self.file).finish_non_exhaustive()
    }
}

impl Queue {
    /// Opens the queue, with `depth` entries, of a device. Retries for a while, because udev may
    /// take a moment to create the file.
    pub(super) fn open(path: &str, depth: u16) -> io::Result<Self> {
        let mut tries = 0;
        let file = loop {
            match OpenOptions::new().read(true).write(true).open(path) {
                Ok(file) => break file,
                Err(error) if error.kind() == io::ErrorKind::NotFound && tries < TRIES_MAX => {
                    tries += 1;
                    std::thread::sleep(PAUSE);
                }
                Err(error) => return Err(error),
            }
        };
        let descriptors = Descriptors::map(&file, depth)?;
        let ring = IoUring::builder().build(u32::from(depth))?;
        Ok(Self { ring, file, descriptors, depth })
    }

    /// Descriptor that is readable when a request has come.
    #[must_use]
    pub fn wait_fd(&self) -> BorrowedFd<'_> {
        // SAFETY: the ring owns its descriptor, and lives as long as the borrow of `self`.
        unsafe { BorrowedFd::borrow_raw(self.ring.as_raw_fd()) }
    }

    /// Makes all entries wait for requests, for the first time.
    ///
    /// # Errors
    /// The kernel refused.
    pub fn fetch(&mut self) -> io::Result<()> {
        (0..self.depth).for_each(|tag| self.push(QueueCommand::Fetch, tag, 0));
        self.submit()
    }

    /// Moves the requests that have arrived into `requests`. Returns `None` once the driver aborts
    /// the entries that wait, because the device is being removed.
    pub fn arrived(&mut self, requests: &mut Vec<Request>) -> Option<()> {
        let mut is_over = false;
        for done in self.ring.completion() {
            let tag = u16::try_from(done.user_data()).expect("the tag of an entry");
            if done.result() < 0 {
                is_over = true;
            } else {
                requests.push(Request::decode(tag, &self.descriptors.read(tag)));
            }
        }
        (!is_over).then_some(())
    }

    /// Answers a request: with the number of bytes, or with a negative error number. The answer
    /// goes out with the next [`Self::submit`].
    pub fn answer(&mut self, tag: u16, result: i32) {
        self.push(QueueCommand::CommitAndFetch, tag, result);
    }

    /// Sends the answers.
    ///
    /// # Errors
    /// The kernel refused; the answers are sent by the next call.
    pub fn submit(&mut self) -> io::Result<()> {
        if self.ring.submission().is_empty() {
            return Ok(());
        }
        loop {
            match self.ring.submit() {
                Ok(_) => return Ok(()),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
    }

    fn push(&mut self, command: QueueCommand, tag: u16, result: i32) {
        let file = types::Fd(self.file.as_raw_fd());
        let words = QueueCommand::bytes(tag, result);
        let entry = opcode::UringCmd16::new(file, command.number()).cmd(words).build();
        let entry = entry.user_data(tag.into());
        // SAFETY: the entry names only `file`, which lives as long as the ring. With
        // `UBLK_F_USER_COPY` it has no address.
        let pushed = unsafe { self.ring.submission().push(&entry) };
        pushed.expect("each entry is with the driver or has one answer");
    }

    /// Handle for the data of requests.
    ///
    /// # Errors
    /// No descriptor is left.
    pub fn data(&self) -> io::Result<QueueData> {
        Ok(QueueData { file: self.file.try_clone()? })
    }
}

/// Data of the requests in a queue.
#[derive(Debug)]
pub struct QueueData {
    file: File,
}

impl QueueData {
    /// Copies data of a write, from byte `offset` of the request on, until `into` is full.
    ///
    /// # Errors
    /// The request is not there any more, as when its device is removed.
    pub fn read(&self, tag: u16, mut offset: u64, into: &mut Buffer) -> io::Result<()> {
        let (mut done, len) = (0, into.len());
        while done < len {
            let mut slices = into.slices_mut(done, len);
            match rustix::io::preadv(&self.file, &mut slices, data_offset(tag, offset)) {
                Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
                Ok(count) => (done, offset) = (done + count, offset + count as u64),
                Err(rustix::io::Errno::INTR) => {}
                Err(errno) => return Err(errno.into()),
            }
        }
        Ok(())
    }

    /// Copies all of `from` to the data of a read, from byte `offset` of the request on.
    ///
    /// # Errors
    /// The errors of [`Self::read`].
    pub fn write(&self, tag: u16, mut offset: u64, from: &Buffer) -> io::Result<()> {
        let (mut done, len) = (0, from.len());
        while done < len {
            let slices = from.slices(done, len);
            match rustix::io::pwritev(&self.file, &slices, data_offset(tag, offset)) {
                Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
                Ok(count) => (done, offset) = (done + count, offset + count as u64),
                Err(rustix::io::Errno::INTR) => {}
                Err(errno) => return Err(errno.into()),
            }
        }
        Ok(())
    }
}

impl Descriptors {
    fn map(file: &File, depth: u16) -> io::Result<Self> {
        let len = (usize::from(depth) * DESCRIPTOR_BYTES).next_multiple_of(4096);
        let (read, shared) = (ProtFlags::READ, MapFlags::SHARED | MapFlags::POPULATE);
        // SAFETY: a new mapping at an address of the kernel's choice. It is unmapped in `Drop`.
        let start = unsafe { mmap(std::ptr::null_mut(), len, read, shared, file.as_fd(), 0) }?;
        let start = NonNull::new(start.cast()).expect("mmap does not map address 0");
        Ok(Self { start, len })
    }

    /// Descriptor of an entry that the driver has completed. The driver does not write to it before
    /// the entry is answered.
    fn read(&self, tag: u16) -> [u8; DESCRIPTOR_BYTES] {
        let at = usize::from(tag) * DESCRIPTOR_BYTES;
        assert!(at + DESCRIPTOR_BYTES <= self.len, "a tag below the depth");
        // SAFETY: the descriptor is inside the mapping, as was asserted.
        let descriptor = unsafe { self.start.add(at) }.cast::<[u8; DESCRIPTOR_BYTES]>();
        // SAFETY: the driver does not write the descriptor now; volatile, because it has written it
        // since the mapping was made. Bytes need no alignment.
        unsafe { descriptor.read_volatile() }
    }
}

impl Drop for Descriptors {
    fn drop(&mut self) {
        // SAFETY: the mapping was made with this length, and no reference into it exists.
        let unmapped = unsafe { munmap(self.start.as_ptr().cast(), self.len) };
        debug_assert!(unmapped.is_ok(), "{unmapped:?}");
    }
}

/// Largest number of repeated attempts while the kernel or udev is not ready; with `PAUSE` between
/// them they take 5 s.
const TRIES_MAX: u32 = 500;
/// Time between two attempts.
const PAUSE: Duration = Duration::from_millis(10);
