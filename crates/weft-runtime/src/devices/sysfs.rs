//! Traits of a block device from sysfs: rotation, queue depth, zeroing.
//!
//! A partition has the queue of its disk. A device that is stacked on a single device (a logical
//! volume, dm-crypt) has the depth of that device; for one on several devices, or on a file (loop),
//! the depth is not known. Only a disk that reports how many commands it works on at once, as SCSI
//! and SATA disks do, has a known depth. The rings of NVMe and virtio say how many commands may be
//! queued, and `nr_requests` how many the kernel queues itself: neither is used.
//!
//! Source   Documentation/ABI/stable/sysfs-block, `queue/rotational`,
//!          `queue/write_zeroes_max_bytes`, `queue/discard_max_bytes`;
//!          Documentation/scsi/scsi_mid_low_api.rst, `queue_depth`

use std::os::fd::AsFd;
use std::path::{Path, PathBuf};
use std::str::FromStr;

use weft_engine::DeviceTraits;

use crate::identity::Identity;

/// Traits of a member's device. A file gets the defaults, in which nothing is known.
pub(super) fn traits_of(identity: Identity) -> DeviceTraits {
    folder(identity).map_or_else(DeviceTraits::default, |folder| DeviceTraits {
        depth: depth(&folder, 0),
        host_queue: true,
        rotational: rotates(&folder) == Some(true),
        ..DeviceTraits::default()
    })
}

/// Whether a block device is rotational. `None` for a file, and where the kernel does not say.
pub(super) fn is_rotational(file: impl AsFd) -> Option<bool> {
    folder(Identity::of(file).ok()?).and_then(|folder| rotates(&folder))
}

fn rotates(folder: &Path) -> Option<bool> {
    limit(folder, "rotational").map(|flag| flag == 1)
}

/// Whether a device can zero a range without a transfer of zeroes, and can deallocate it: both
/// limits of its queue are above 0.
///
/// Only the limits are known before a discard is tried. The limit for zeroing that surely unmaps
/// (`write_zeroes_unmap_max_bytes`, kernel 6.17 and later) is 0 for loop devices, which do unmap.
pub(super) fn zeroes_and_unmaps(identity: Identity) -> bool {
    let Some(folder) = folder(identity) else { return false };
    let limits = ["write_zeroes_max_bytes", "discard_max_bytes"];
    limits.iter().all(|name| limit(&folder, name).is_some_and(|bytes| bytes > 0))
}

fn folder(identity: Identity) -> Option<PathBuf> {
    match identity {
        Identity::Block { major, minor } => Some(format!("/sys/dev/block/{major}:{minor}").into()),
        Identity::File { .. } => None,
    }
}

/// Queue limit `name` of a device, or of the disk of a partition; `None` if sysfs has no such
/// limit.
fn limit(folder: &Path, name: &str) -> Option<u64> {
    number(&folder.join("queue").join(name)).or_else(|| number(&folder.join("../queue").join(name)))
}

/// Number of commands that the disk behind a device works on at once; `None` if not known. `below`
/// is the number of levels of the stack between this device and the one at its top.
fn depth(folder: &Path, below: u32) -> Option<u32> {
    let is_part = folder.join("partition").exists();
    let disk = if is_part { folder.join("..") } else { folder.to_owned() };
    let own = number(&disk.join("device/queue_depth")).filter(|depth| *depth > 0);
    if own.is_some() || below == LEVELS_MAX {
        return own;
    }
    let mut slaves = std::fs::read_dir(disk.join("slaves")).ok()?.flatten();
    match (slaves.next(), slaves.next()) {
        (Some(only), None) => depth(&only.path(), below + 1),
        _ => None,
    }
}

/// Largest number of levels of a stack that are followed in search of a disk.
const LEVELS_MAX: u32 = 16;

fn number<T: FromStr>(path: &Path) -> Option<T> {
    std::fs::read_to_string(path).ok()?.trim().parse().ok()
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    /// A tree like that of sysfs: a SATA disk with a partition, an NVMe disk, devices on top of
    /// them.
    fn tree() -> tempfile::TempDir {
        let dir = tempfile::tempdir().unwrap();
        let put = |path: &str, text: &str| {
            let path = dir.path().join(path);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, text).unwrap();
        };
        put("sda/queue/rotational", "1\n");
        put("sda/device/queue_depth", "31\n");
        put("sda/sda2/partition", "2\n");
        put("nvme0n1/queue/rotational", "0\n");
        put("nvme0n1/device/sqsize", "1023\n");
        put("odd/device/queue_depth", "0\n");
        put("words/device/queue_depth", "many\n");
        put("loop0/queue/nr_requests", "128\n");
        for (top, slaves) in [
            ("dm-0", &["sda/sda2"][..]),
            ("dm-1", &["dm-0"]),
            ("dm-2", &["sda/sda2", "nvme0n1"]),
            ("circle", &["circle"]),
        ] {
            let folder = dir.path().join(top).join("slaves");
            std::fs::create_dir_all(&folder).unwrap();
            for slave in slaves {
                let name = Path::new(slave).file_name().unwrap();
                symlink(dir.path().join(slave), folder.join(name)).unwrap();
            }
        }
        dir
    }

    #[test]
    fn depth_is_that_of_the_one_disk_behind_a_device_that_says_it() {
        let dir = tree();
        for (device, expected) in [
            ("sda", Some(31)),
            ("sda/sda2", Some(31)),
            ("dm-0", Some(31)),
            ("dm-1", Some(31)),
            ("dm-2", None),
            ("circle", None),
            ("nvme0n1", None),
            ("loop0", None),
            ("odd", None),
            ("words", None),
            ("absent", None),
        ] {
            assert_eq!(depth(&dir.path().join(device), 0), expected, "{device}");
        }
    }

    #[test]
    fn a_partition_has_the_limits_of_its_disk() {
        let dir = tree();
        let rotational = |device: &str| rotates(&dir.path().join(device));
        assert_eq!((rotational("sda"), rotational("sda/sda2")), (Some(true), Some(true)));
        assert_eq!((rotational("nvme0n1"), rotational("absent")), (Some(false), None));
    }

    #[test]
    fn of_a_file_nothing_is_known() {
        let file = Identity::File { major: 8, minor: 1, inode: 12 };
        assert_eq!(traits_of(file), DeviceTraits::default());
        assert!(!zeroes_and_unmaps(file));
        assert_eq!(is_rotational(tempfile::tempfile().unwrap()), None);
    }
}
