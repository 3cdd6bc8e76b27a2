//! Debian packages of the programs that suites require.
//!
//! A suite names *programs* in its `# needs:` line; this table maps them to packages, so the single
//! `apt-get` line can be printed, or run on request.

use crate::part::{Ending, has};
use std::path::Path;
use std::process::Command;
use std::time::Duration;

/// Map from programs to Debian packages (bookworm). A name with a slash is the path of a file.
const PACKAGES: &[(&str, &str)] = &[
    ("/usr/include/fuse3/fuse.h", "libfuse3-dev"),
    ("/usr/lib/python3.11/ensurepip/__init__.py", "python3-venv"),
    ("/usr/share/doc/fio/examples/aio-read.fio", "fio-examples"),
    ("blkparse", "blktrace"),
    ("busybox", "busybox-static"),
    ("cc", "gcc"),
    ("chromium", "chromium"),
    ("cpio", "cpio"),
    ("curl", "curl"),
    ("dbench", "dbench"),
    ("ddrescue", "gddrescue"),
    ("ddrescuelog", "gddrescue"),
    ("debugfs", "e2fsprogs"),
    ("depmod", "kmod"),
    ("dpkg", "dpkg"),
    ("fio", "fio"),
    ("fish", "fish"),
    ("fusermount3", "fuse3"),
    ("groff", "groff-base"),
    ("lvm", "lvm2"),
    ("man", "man-db"),
    ("mdadm", "mdadm"),
    ("mkfs.btrfs", "btrfs-progs"),
    ("mkfs.ext4", "e2fsprogs"),
    ("mkfs.xfs", "xfsprogs"),
    ("mkswap", "util-linux"),
    ("nbdcopy", "libnbd-bin"),
    ("nbdinfo", "libnbd-bin"),
    ("nbdkit", "nbdkit"),
    ("nbdsh", "python3-libnbd"),
    ("openssl", "openssl"),
    ("prometheus", "prometheus"),
    ("promtool", "prometheus"),
    ("python3", "python3"),
    ("qemu-img", "qemu-utils"),
    ("qemu-io", "qemu-utils"),
    ("qemu-system-x86_64", "qemu-system-x86"),
    ("rpm", "rpm"),
    ("rpm2cpio", "rpm2cpio"),
    ("setpriv", "util-linux"),
    ("strings", "binutils"),
    ("systemd-analyze", "systemd"),
    ("unshare", "util-linux"),
    ("valgrind", "valgrind"),
    ("xz", "xz-utils"),
    ("zsh", "zsh"),
    ("zstd", "zstd"),
];

/// Packages of the programs in `programs` that this machine lacks, sorted, without duplicates.
///
/// # Panics
/// A suite names a program that the table does not contain.
pub(crate) fn missing<'a>(programs: impl IntoIterator<Item = &'a str>) -> Vec<&'static str> {
    let mut missing: Vec<&str> = Vec::new();
    for program in programs {
        let package = PACKAGES.iter().find(|row| row.0 == program).map(|row| row.1);
        let package =
            package.unwrap_or_else(|| panic!("{program} is not in xtask/src/packages.rs"));
        // nbdsh comes with libnbd-bin and works only with the Python module.
        let module = "/usr/lib/python3/dist-packages/nbd.py";
        let there = if program == "nbdsh" { Path::new(module).exists() } else { has(program) };
        if !there {
            missing.push(package);
        }
    }
    missing.sort_unstable();
    missing.dedup();
    missing
}

/// The `apt-get` line that installs `packages`.
pub(crate) fn apt_line(packages: &[&str]) -> String {
    if packages.is_empty() {
        return "nothing is missing".to_owned();
    }
    format!("apt-get install --no-install-recommends {}", packages.join(" "))
}

/// Installs the packages that `missing` returns, until it returns none: the installation of one
/// package may remove another, as bookworm's qemu-system-x86 removes qemu-utils from the backports.
/// Waits while another apt is running.
pub(crate) fn install(missing: impl Fn() -> Vec<&'static str>) -> Ending {
    let apt = |words: &[&str]| {
        let mut command = Command::new("apt-get");
        command.args(["-q", "-o", "DPkg::Lock::Timeout=300", "-o", "Acquire::Retries=3"]);
        // Minimal images of Debian do not install the files of packages below /usr/share/doc.
        command.args(["-o", "DPkg::Options::=--path-include=/usr/share/doc/fio/*"]);
        command.args(words).env("DEBIAN_FRONTEND", "noninteractive");
        command.stdout(std::process::Stdio::null());
        crate::part::run(command, Duration::from_secs(900))
    };
    for attempt in 1..=4 {
        let packages = missing();
        if packages.is_empty() {
            println!("nothing is missing");
            return Ending::Passed;
        }
        println!("{}", apt_line(&packages));
        // Another apt may hold the lock of the lists, for which there is no timeout option.
        let _ = apt(&["update"]);
        let ending = apt(&[&["install", "-y", "--no-install-recommends"], &packages[..]].concat());
        if !matches!(ending, Ending::Passed) {
            println!("attempt {attempt} of 4 failed");
            std::thread::sleep(Duration::from_secs(10));
        }
    }
    let packages = missing();
    if packages.is_empty() {
        return Ending::Passed;
    }
    Ending::Failed(format!("still missing: {}", apt_line(&packages)))
}

#[cfg(test)]
mod tests {
    #[test]
    fn every_program_that_a_suite_needs_has_a_package() {
        assert!(crate::interop::names().unwrap().len() > 20);
        crate::interop::packages_missing();
    }
}
