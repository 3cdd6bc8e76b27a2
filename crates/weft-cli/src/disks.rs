//! Disks below members: two members that share one fail, and are read, together.

use std::collections::BTreeSet;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use weft_export::control::{MemberStatus, VolumeStatus};
use weft_runtime::spec::MemberSpec;

/// Folder with a link for each block device, named `MAJOR:MINOR`.
pub(crate) const DEVICES: &str = "/sys/dev/block";

/// Whole disks on which a block device with these numbers lies: one for a partition, all disks of a
/// mapped device. Empty if the kernel does not know the device. `devices` is the folder
/// [`DEVICES`].
pub(crate) fn below(devices: &Path, (major, minor): (u32, u32)) -> BTreeSet<PathBuf> {
    let link = devices.join(format!("{major}:{minor}"));
    let mut disks = BTreeSet::new();
    if let Ok(device) = link.canonicalize() {
        add_disks(&device, DEPTH_MAX, &mut disks);
    }
    disks
}

/// Whole disks on which the members of a volume lie. The disks of a file are those of its file
/// system; a file system without a block device, such as one in memory, counts as a disk. A hanging
/// file system blocks the call.
pub(crate) fn of_volume(devices: &Path, volume: &VolumeStatus) -> BTreeSet<PathBuf> {
    let members = volume.members.iter().filter(|member| member.state != "faulty");
    members.flat_map(|member| of_member(devices, member)).collect()
}

fn of_member(devices: &Path, member: &MemberStatus) -> BTreeSet<PathBuf> {
    if let Some(device) = member.device {
        return below(devices, device);
    }
    let spec = MemberSpec::parse(&member.label).ok();
    let file = spec.as_ref().and_then(|spec| spec.file());
    let Some(Ok(metadata)) = file.map(std::fs::metadata) else { return BTreeSet::new() };
    let number = (rustix::fs::major(metadata.dev()), rustix::fs::minor(metadata.dev()));
    let mut disks = below(devices, number);
    if disks.is_empty() {
        disks.insert(PathBuf::from(format!("file system {}:{}", number.0, number.1)));
    }
    disks
}

fn add_disks(device: &Path, depth: u32, disks: &mut BTreeSet<PathBuf>) {
    let below = std::fs::read_dir(device.join("slaves")).into_iter().flatten().flatten();
    let below: Vec<PathBuf> = below.filter_map(|entry| entry.path().canonicalize().ok()).collect();
    if depth > 0 && !below.is_empty() {
        below.iter().for_each(|device| add_disks(device, depth - 1, disks));
    } else if device.join("partition").exists() {
        disks.extend(device.parent().map(Path::to_owned));
    } else {
        disks.insert(device.to_owned());
    }
}

/// Largest number of mapped devices on top of each other that are followed down to a disk.
const DEPTH_MAX: u32 = 8;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn partitions_are_on_their_disk_and_files_on_that_of_their_file_system() {
        let dir = tempfile::tempdir().unwrap();
        let devices = dir.path().join("devices");
        std::fs::create_dir(&devices).unwrap();
        for (number, partition) in [("8:1", "sda/sda1"), ("8:2", "sda/sda2"), ("8:17", "sdb/sdb1")]
        {
            let folder = dir.path().join(partition);
            std::fs::create_dir_all(&folder).unwrap();
            std::fs::write(folder.join("partition"), "1").unwrap();
            std::os::unix::fs::symlink(folder, devices.join(number)).unwrap();
        }
        let member = |label: &Path, device| MemberStatus {
            label: label.to_str().unwrap().into(),
            device,
            state: "in_sync".into(),
            ..MemberStatus::default()
        };
        let of = |members: Vec<MemberStatus>| {
            of_volume(&devices, &VolumeStatus { members, ..VolumeStatus::default() })
        };
        let partition = |minor| member(Path::new("/dev/x"), Some((8, minor)));
        let [first, second, other] = [1, 2, 17].map(|minor| of(vec![partition(minor)]));
        assert_eq!((first.len(), &first), (1, &second));
        assert!(first.is_disjoint(&other));
        assert_eq!(of(vec![partition(1), partition(17)]).len(), 2);
        // The file system of the files has no device in this folder.
        let files = ["a", "b"].map(|name| {
            let path = dir.path().join(name);
            std::fs::write(&path, "").unwrap();
            of(vec![member(&path, None)])
        });
        assert_eq!((files[0].len(), &files[0]), (1, &files[1]));
        let gone = MemberStatus { state: "faulty".into(), ..partition(17) };
        assert_eq!(of(vec![partition(1), gone]), first);
        let memory = [member(Path::new("ram:8M"), None), member(Path::new("/absent"), None)];
        assert_eq!(of(memory.into()), BTreeSet::new());
    }
}
