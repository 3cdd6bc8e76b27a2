//! Extent of a member on its disk, and other users of the disk, from sysfs and mountinfo.

use std::ops::Range;
use std::path::{Path, PathBuf};

use rustix::fs::FileType;
use weft_units::SECTOR_BYTES;

use super::DeviceError;
use crate::identity::Identity;

/// Byte range of a member in its file or on its whole disk, to find members that overlap.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Extent {
    of: Identity,
    bytes: Range<u64>,
}

impl Extent {
    /// Extent of the range `bytes` of a file or device. For a partition, the extent counts from the
    /// start of its disk.
    ///
    /// Source   Documentation/ABI/stable/sysfs-block, `partition` and `start` (in sectors)
    pub(super) fn of(identity: Identity, bytes: &Range<u64>) -> Self {
        let whole = Self { of: identity, bytes: bytes.clone() };
        let Identity::Block { major, minor } = identity else { return whole };
        let folder = PathBuf::from(format!("/sys/dev/block/{major}:{minor}"));
        let number = |name: &str| std::fs::read_to_string(folder.join(name)).ok();
        if number("partition").is_none() {
            return whole;
        }
        let disk = number("../dev").and_then(|text| device_numbers(&text));
        let start = number("start").and_then(|text| text.trim().parse::<u64>().ok());
        let start = start.and_then(|start| start.checked_mul(SECTOR_BYTES));
        let (Some((major, minor)), Some(start)) = (disk, start) else { return whole };
        let bytes = start.saturating_add(bytes.start)..start.saturating_add(bytes.end);
        Self { of: Identity::Block { major, minor }, bytes }
    }

    pub(super) fn overlaps(&self, other: &Self) -> bool {
        let apart = self.bytes.end <= other.bytes.start || other.bytes.end <= self.bytes.start;
        self.of == other.of && !apart
    }
}

/// Node in `/dev` and device number of partition `number` of a disk, as the kernel knows it. `None`
/// if the kernel has no such partition, or the node is not that device.
pub(super) fn kernel_partition(
    rdev: rustix::fs::Dev,
    number: u32,
) -> Option<(PathBuf, rustix::fs::Dev)> {
    let (major, minor) = (rustix::fs::major(rdev), rustix::fs::minor(rdev));
    let children = std::fs::read_dir(format!("/sys/dev/block/{major}:{minor}")).ok()?;
    for child in children.flatten() {
        let child = child.path();
        let read = |name: &str| std::fs::read_to_string(child.join(name)).ok();
        if read("partition").and_then(|text| text.trim().parse().ok()) != Some(number) {
            continue;
        }
        let (major, minor) = device_numbers(&read("dev")?)?;
        let node = Path::new("/dev").join(child.file_name()?);
        let stat = rustix::fs::stat(&node).ok()?;
        let same = FileType::from_raw_mode(stat.st_mode) == FileType::BlockDevice
            && stat.st_rdev == rustix::fs::makedev(major, minor);
        return same.then_some((node, stat.st_rdev));
    }
    None
}

/// Parses `MAJOR:MINOR`, the form of device numbers in sysfs; `None` for any other text.
fn device_numbers(text: &str) -> Option<(u32, u32)> {
    let (major, minor) = text.trim().split_once(':')?;
    Some((major.parse().ok()?, minor.parse().ok()?))
}

/// Refuses a device that is mounted or is part of another device (md, dm, bcache).
pub(super) fn refuse_claimed(label: &str, rdev: rustix::fs::Dev) -> Result<(), DeviceError> {
    let number = format!("{}:{}", rustix::fs::major(rdev), rustix::fs::minor(rdev));
    let claimed = |by: String| Err(DeviceError::Claimed { label: label.to_owned(), by });
    let mounts = std::fs::read_to_string("/proc/self/mountinfo").unwrap_or_default();
    if let Some(place) = mounted_at(&mounts, &number) {
        return claimed(format!("mounted at {place}"));
    }
    let Ok(holders) = std::fs::read_dir(format!("/sys/dev/block/{number}/holders")) else {
        return Ok(());
    };
    match holders.flatten().next() {
        Some(holder) => claimed(format!("part of {}", holder.file_name().to_string_lossy())),
        None => Ok(()),
    }
}

/// Mount point of the device `MAJOR:MINOR` (`number`) in a `mountinfo` table; `None` if it is not
/// mounted.
fn mounted_at<'a>(mounts: &'a str, number: &str) -> Option<&'a str> {
    mounts.lines().find_map(|line| {
        let mut fields = line.split(' ');
        (fields.nth(2) == Some(number)).then(|| fields.nth(1)).flatten()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mounted_devices_are_found_by_number() {
        let mounts = "22 27 0:21 / /proc rw - proc proc rw\n27 1 254:0 / / rw - ext4 /dev/vda rw\n";
        assert_eq!(mounted_at(mounts, "254:0"), Some("/"));
        assert_eq!(mounted_at(mounts, "254:1"), None);
    }
}
