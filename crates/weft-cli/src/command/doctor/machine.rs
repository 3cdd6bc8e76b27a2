//! Checks of the machine: features that the kernel offers, sockets of killed servers, and disks
//! below members.

use std::collections::BTreeSet;
use std::path::PathBuf;

use rustix::fs::{Access, access};
use rustix::io::Errno;

use super::{Finding, Severity};
use crate::{disks, target};

/// A check of the machine, with the id and severity of its findings.
pub(super) struct Check {
    id: &'static str,
    severity: Severity,
    /// Function that makes the check; each finding is its text and the next step.
    found: fn(&Machine) -> Vec<(String, String)>,
}

/// All checks of the machine, in the order of their findings.
pub(super) const CHECKS: [Check; 4] = [
    Check { id: "server-gone", severity: Severity::Problem, found: servers_gone },
    Check { id: "no-io-uring", severity: Severity::Advice, found: no_io_uring },
    Check { id: "no-fuse", severity: Severity::Advice, found: no_fuse },
    Check { id: "no-ublk", severity: Severity::Advice, found: no_ublk },
];

/// Facts about the machine, on which the checks depend.
#[derive(Clone, Debug, Default)]
pub(super) struct Machine {
    /// Paths of control sockets on which no server listens.
    unanswered: Vec<PathBuf>,
    /// Value of the sysctl `kernel.io_uring_disabled`; `None` if the kernel has no such sysctl.
    io_uring_disabled: Option<u32>,
    /// Reason why FUSE cannot mount anything here; `None` if it can.
    fuse: Option<String>,
    /// Reason why ublk cannot make a block device here; `None` if it can.
    ublk: Option<String>,
    /// Folder with a link for each block device: [`disks::DEVICES`].
    devices: PathBuf,
}

impl Machine {
    /// Facts about this machine, as they are now.
    pub(super) fn here() -> Self {
        let sysctl = std::fs::read_to_string("/proc/sys/kernel/io_uring_disabled");
        Self {
            unanswered: target::unanswered(),
            io_uring_disabled: sysctl.ok().and_then(|text| text.trim().parse().ok()),
            fuse: weft_fuse::permitted().err().map(|error| error.to_string()),
            ublk: match access("/dev/ublk-control", Access::READ_OK | Access::WRITE_OK) {
                Ok(()) => None,
                Err(Errno::NOENT) => Some("/dev/ublk-control is missing".into()),
                Err(errno) => Some(format!("/dev/ublk-control: {errno}")),
            },
            devices: disks::DEVICES.into(),
        }
    }

    /// Makes all checks, and adds their findings to `findings`.
    pub(super) fn look(&self, findings: &mut Vec<Finding>) {
        for Check { id, severity, found } in &CHECKS {
            findings.extend(found(self).into_iter().map(|(says, next)| Finding {
                severity: *severity,
                id,
                volume: None,
                member: None,
                says,
                next,
            }));
        }
    }

    /// Whole disks on which a block device with these numbers lies: one for a partition, all disks
    /// of a mapped device. Empty if the kernel does not know the device.
    pub(super) fn disks_below(&self, device: (u32, u32)) -> BTreeSet<PathBuf> {
        disks::below(&self.devices, device)
    }

    /// A machine for tests, with this folder of block devices.
    #[cfg(test)]
    pub(super) fn with_devices(devices: &std::path::Path) -> Self {
        Self { devices: devices.to_owned(), ..Self::default() }
    }
}

fn servers_gone(machine: &Machine) -> Vec<(String, String)> {
    let of = |path: &PathBuf| {
        let name = path.file_stem().unwrap_or_default().to_string_lossy();
        (
            format!("{}: no server listens there; it was killed", path.display()),
            format!("weft serve --name {name} MEMBER… serves it again"),
        )
    };
    machine.unanswered.iter().map(of).collect()
}

fn no_io_uring(machine: &Machine) -> Vec<(String, String)> {
    let why = match machine.io_uring_disabled {
        None | Some(0) => return Vec::new(),
        Some(1) => "1: only members of its group may use it",
        Some(_) => "2: members are reached by threads, at more CPU for each request",
    };
    vec![(
        format!("sysctl kernel.io_uring_disabled is {why}"),
        "sysctl kernel.io_uring_disabled=0, if that is allowed here".into(),
    )]
}

fn no_fuse(machine: &Machine) -> Vec<(String, String)> {
    let says = |why: &String| format!("weft mount and --listen fuse: do not work: {why}");
    machine.fuse.iter().map(|why| (says(why), "docs/rescue.md, docs/serve.md".into())).collect()
}

fn no_ublk(machine: &Machine) -> Vec<(String, String)> {
    let says = |why: &String| format!("--listen ublk: does not work: {why}");
    machine.ublk.iter().map(|why| (says(why), "modprobe ublk_drv, as root".into())).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_machine_with_everything_has_no_finding_and_each_lack_is_one() {
        let found = |machine: &Machine| {
            let mut findings = Vec::new();
            machine.look(&mut findings);
            findings.iter().map(|finding| (finding.id, finding.severity)).collect::<Vec<_>>()
        };
        let whole = Machine { io_uring_disabled: Some(0), ..Machine::default() };
        assert_eq!(found(&whole), []);
        let bare = Machine {
            unanswered: vec!["/run/weft/vm.sock".into(), "/run/weft/home.sock".into()],
            io_uring_disabled: Some(2),
            fuse: Some("not found".into()),
            ublk: Some("not found".into()),
            devices: PathBuf::new(),
        };
        let all = [
            ("server-gone", Severity::Problem),
            ("server-gone", Severity::Problem),
            ("no-io-uring", Severity::Advice),
            ("no-fuse", Severity::Advice),
            ("no-ublk", Severity::Advice),
        ];
        assert_eq!(found(&bare), all);
        assert_eq!(all.len(), CHECKS.len() + 1, "two servers are gone");
        let page = include_str!("../../../../../docs/monitoring.md");
        assert!(all.iter().all(|(id, _)| page.contains(&format!("`{id}`"))));
    }
}
