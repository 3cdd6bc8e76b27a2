//! Block devices of this machine that a process serves: the kernel's ublk driver.
//!
//! `/dev/ublkbN` is the block device, `/dev/ublkcN` takes its requests to the process that serves
//! it, and `/dev/ublk-control` makes and removes devices. Requests arrive and are answered through
//! an io_uring ([`Queue`]); their data is copied by `pread` and `pwrite` of `/dev/ublkcN`
//! (`UBLK_F_USER_COPY`).
//!
//! A device outlives its server (`UBLK_F_USER_RECOVERY`): requests wait until another server takes
//! it over, and those that the first one had not answered are sent again
//! (`UBLK_F_USER_RECOVERY_REISSUE`).
//!
//! Source   Documentation/block/ublk.rst, include/uapi/linux/ublk_cmd.h, drivers/block/ublk_drv.c

mod abi;
#[allow(unsafe_code, reason = "commands with addresses, and descriptors that the kernel writes")]
mod kernel;

use std::io;
use std::os::fd::OwnedFd;
use std::path::PathBuf;

pub use self::abi::{Operation, Params, Request, State};
pub use self::kernel::{Queue, QueueData};

use self::abi::{Command, DeviceInfo};
use self::kernel::Control;

/// Largest number of requests that a device has in flight at once.
pub const DEPTH: u16 = 128;

/// Largest request in bytes.
pub const REQUEST_BYTES_MAX: u32 = 1 << 20;

/// A device of the ublk driver that this process serves.
#[derive(Debug)]
pub struct Device {
    control: Control,
    number: u32,
    /// Whether the device was created by an earlier server and is taken over.
    is_taken_over: bool,
}

impl Device {
    /// Takes over the device that an earlier server of `owner` left, or makes one. `owner` is a
    /// number that identifies the volume; `number` is that of the device, any free one for `None`.
    ///
    /// # Errors
    /// There is no driver, this user may not create devices, or the device of that number belongs
    /// to something else. The text says what to do.
    pub fn open(number: Option<u32>, owner: u64, params: &Params) -> Result<Self, String> {
        let mut control = Control::open()?;
        let left = devices()?.into_iter().filter(|other| number.is_none_or(|it| it == *other));
        for other in left {
            let failed = |error: io::Error| format!("{}: {error}", path(other).display());
            let info = control.settled(other, owner).map_err(failed)?;
            if info.owner == owner && info.state == State::Quiesced {
                let found = control.params(other).map_err(failed)?;
                if found != *params {
                    return Err(format!(
                        "{}: found {found:?}, expected {params:?}: its volume has changed while \
                         nothing served it; remove the device first",
                        path(other).display()
                    ));
                }
                control.patiently(|it| it.call(Command::StartRecovery, other)).map_err(failed)?;
                return Ok(Self { control, number: other, is_taken_over: true });
            }
            if info.owner == owner && info.state == State::Dead && !info.is_served() {
                // The server that created this device ended before it had started the device.
                control.call(Command::Delete, other).map_err(failed)?;
                continue;
            }
            if number.is_some() {
                return Err(format!(
                    "{}: found a device that {}, expected none, or one of this volume that waits \
                     for its server",
                    path(other).display(),
                    info.state.says()
                ));
            }
        }
        let asked = DeviceInfo::new(number, owner);
        let info = control.add(&asked).map_err(|error| {
            let hint = match error.raw_os_error() {
                Some(libc::EPERM | libc::EACCES) => "; it takes root, or CAP_SYS_ADMIN",
                Some(libc::EEXIST) => "; another number is free with ublk:",
                _ => "",
            };
            format!("/dev/ublk-control: a new device: {error}{hint}")
        })?;
        let mut device = Self { control, number: info.number, is_taken_over: false };
        if let Err(error) = device.control.set_params(info.number, params) {
            device.delete().map_err(|it| it.to_string())?;
            return Err(format!("/dev/ublk-control: {params:?}: {error}"));
        }
        Ok(device)
    }

    /// Path of the block device.
    #[must_use]
    pub fn path(&self) -> PathBuf {
        path(self.number)
    }

    /// Whether the device was taken over from an earlier server.
    #[must_use]
    pub fn is_taken_over(&self) -> bool {
        self.is_taken_over
    }

    /// Opens the queue of the device. All of its entries have to wait for requests before
    /// [`Self::start`] ends.
    ///
    /// # Errors
    /// `/dev/ublkcN` cannot be opened.
    pub fn queue(&self) -> io::Result<Queue> {
        Queue::open(&format!("/dev/ublkc{}", self.number), DEPTH)
    }

    /// Creates the block device, or resumes the requests of one that was taken over. Blocks until
    /// the queue waits for requests and the kernel has read the partition table from the device.
    ///
    /// # Errors
    /// The kernel refused.
    pub fn start(&mut self) -> io::Result<()> {
        let command = if self.is_taken_over { Command::EndRecovery } else { Command::Start };
        self.control.call(command, self.number)
    }

    /// Removes the block device. Blocks until the kernel has written back its page cache of the
    /// device, so requests must be served meanwhile.
    ///
    /// # Errors
    /// The device is in use, or the kernel refused.
    pub fn stop(&mut self) -> io::Result<()> {
        in_use(&self.path())?;
        self.control.call(Command::Stop, self.number)
    }

    /// Removes the rest of a device that was stopped or has not started. Blocks until its queue is
    /// closed.
    ///
    /// # Errors
    /// The kernel refused.
    pub fn delete(&mut self) -> io::Result<()> {
        self.control.call(Command::Delete, self.number)
    }
}

/// Path of the block device with this number.
fn path(number: u32) -> PathBuf {
    PathBuf::from(format!("/dev/ublkb{number}"))
}

/// Numbers of all devices of the ublk driver, in ascending order.
fn devices() -> Result<Vec<u32>, String> {
    let failed = |error: io::Error| format!("/dev: {error}");
    let mut numbers = Vec::new();
    for entry in std::fs::read_dir("/dev").map_err(failed)? {
        let name = entry.map_err(failed)?.file_name();
        let number = name.to_str().and_then(|name| name.strip_prefix("ublkc")?.parse::<u32>().ok());
        numbers.extend(number);
    }
    numbers.sort_unstable();
    Ok(numbers)
}

/// Fails if a file system, md or device-mapper holds the device.
fn in_use(path: &std::path::Path) -> io::Result<()> {
    use rustix::fs::{Mode, OFlags};
    let flags = OFlags::RDONLY | OFlags::EXCL | OFlags::CLOEXEC;
    match rustix::fs::open(path, flags, Mode::empty()) {
        Ok(file) => {
            drop::<OwnedFd>(file);
            Ok(())
        }
        Err(rustix::io::Errno::BUSY) => {
            Err(io::Error::other(format!("{} is in use: unmount it first", path.display())))
        }
        // A device that never appeared.
        Err(rustix::io::Errno::NOENT | rustix::io::Errno::NXIO) => Ok(()),
        Err(error) => Err(error.into()),
    }
}
