//! Block devices of a server: created before the server runs, and announced once all of them exist.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use weft_runtime::serve::reactor::Reactor;
use weft_runtime::ublk::{Device, Params};
use weft_units::Bytes;

use super::UblkPort;
use crate::error::ServeError;
use crate::session::Served;

/// Countdown to the start of the server: calls a closure once all devices exist and the server
/// runs.
pub(crate) struct Start {
    /// Number of devices that do not exist yet, plus one while the server does not run.
    left: AtomicUsize,
    /// Closure that is called when `left` becomes 0.
    then: Mutex<Option<Box<dyn FnOnce() + Send>>>,
    /// Reason why a device did not start; `None` if none has failed.
    failure: Mutex<Option<String>>,
}

/// Creates devices, or takes over those that an earlier server of the volume left, which are
/// recognised by the name `volume`.
pub(crate) fn open(
    numbers: &[Option<u32>],
    volume: &str,
    params: &Params,
) -> Result<Vec<Device>, String> {
    let owner = owner_of(volume);
    numbers.iter().map(|number| Device::open(*number, owner, params)).collect()
}

/// Adds a port for each device to the first worker, and returns the countdown to the start. `then`
/// is called once all devices exist and [`Start::end_part`] was called for the server.
pub(crate) fn add(
    reactor: &mut Reactor,
    devices: Vec<Device>,
    served: &Served,
    credit: Bytes,
    then: impl FnOnce() + Send + 'static,
) -> Result<Arc<Start>, ServeError> {
    let start = Arc::new(Start {
        left: AtomicUsize::new(devices.len() + 1),
        then: Mutex::new(Some(Box::new(then))),
        failure: Mutex::default(),
    });
    for device in devices {
        let at = device.path().display().to_string();
        let port = UblkPort::new(device, served.clone(), credit, Arc::clone(&start));
        let port = port.map_err(|source| ServeError::Listen { at, source, hint: "" })?;
        reactor.add_port(Box::new(port));
    }
    Ok(start)
}

impl Start {
    /// Records that one more device exists, or that the server runs.
    pub(crate) fn end_part(&self) {
        if self.left.fetch_sub(1, Ordering::Relaxed) > 1 {
            return;
        }
        if let Some(then) = self.then.lock().unwrap_or_else(PoisonError::into_inner).take() {
            then();
        }
    }

    /// Records why a device did not start.
    pub(super) fn fail(&self, text: String) {
        *self.failure.lock().unwrap_or_else(PoisonError::into_inner) = Some(text);
    }

    /// Reason why a device did not start; `None` if all did.
    pub(crate) fn take_failure(&self) -> Option<String> {
        self.failure.lock().unwrap_or_else(PoisonError::into_inner).take()
    }
}

/// Owner number stored in the devices of a volume, by which a later server finds them: FNV-1a of
/// the volume's name.
fn owner_of(name: &str) -> u64 {
    let add = |hash: u64, byte: u8| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
    name.bytes().fold(0xcbf2_9ce4_8422_2325, add)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Servers of later versions have to find the devices of earlier ones.
    #[test]
    fn volumes_have_the_numbers_of_fnv_1a() {
        assert_eq!(owner_of(""), 0xcbf2_9ce4_8422_2325);
        assert_eq!(owner_of("a"), 0xaf63_dc4c_8601_ec8c);
        assert_eq!(owner_of("foobar"), 0x8594_4171_f739_67e8);
    }
}
