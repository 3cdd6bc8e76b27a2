//! Checks of a running volume, by the status of its server.

use weft_engine::assemble::states::AssemblyState;
use weft_export::control::{LastSyncStatus, MemberStatus, Status, VolumeStatus};
use weft_ondisk::{Level, Redundancy};
use weft_units::Bytes;

use super::machine::Machine;
use super::{Finding, Severity};
use crate::{size, states};

/// A check of a volume: a function that adds its findings.
pub(super) struct Check(fn(&Subject<'_>, &mut Vec<Finding>));

/// All checks of a volume, in the order of their findings.
pub(super) const CHECKS: [Check; 12] = [
    Check(poisoned),
    Check(array_states),
    Check(sync_stopped),
    Check(mismatches),
    Check(write_back_fails),
    Check(member_errors),
    Check(shared_disks),
    Check(open_to_others),
    Check(slow_members),
    Check(no_bitmap),
    Check(unused_space),
    Check(slow_ways),
];

/// Subject of the checks: a volume, its server and its machine.
struct Subject<'a> {
    server: &'a Status,
    volume: &'a VolumeStatus,
    machine: &'a Machine,
}

/// Makes all checks of a volume, and adds their findings to `findings`.
pub(super) fn look(
    server: &Status,
    volume: &VolumeStatus,
    machine: &Machine,
    findings: &mut Vec<Finding>,
) {
    let subject = Subject { server, volume, machine };
    CHECKS.iter().for_each(|Check(check)| check(&subject, findings));
}

impl Subject<'_> {
    fn finding(&self, severity: Severity, id: &'static str, says: String, next: String) -> Finding {
        let volume = Some(self.volume.name.clone());
        Finding { severity, id, volume, member: None, says, next }
    }

    fn problem(&self, id: &'static str, says: impl Into<String>, next: String) -> Finding {
        self.finding(Severity::Problem, id, says.into(), next)
    }

    fn advice(&self, id: &'static str, says: impl Into<String>, next: String) -> Finding {
        self.finding(Severity::Advice, id, says.into(), next)
    }

    /// Redundancy of the array's level; `None` if the volume is no array.
    fn redundancy(&self) -> Option<Redundancy> {
        let array = self.volume.array.as_ref()?;
        Level::from_code(array.level).map(|level| level.row().redundancy)
    }

    fn is_redundant(&self) -> bool {
        self.redundancy().is_some_and(|redundancy| redundancy != Redundancy::None)
    }

    /// Members that are not faulty.
    fn members(&self) -> impl Iterator<Item = &MemberStatus> {
        self.volume.members.iter().filter(|member| member.state != "faulty")
    }
}

fn poisoned(subject: &Subject<'_>, findings: &mut Vec<Finding>) {
    if subject.server.poisoned {
        let name = &subject.volume.name;
        let says = "the server has panicked, and acknowledges nothing any more";
        let next = format!("weft stop {name}, then weft serve again; the log has the panic");
        findings.push(subject.problem("poisoned", says, next));
    }
}

fn array_states(subject: &Subject<'_>, findings: &mut Vec<Finding>) {
    for state in states::of_running(subject.volume) {
        let severity = match state {
            AssemblyState::Rebuilding
            | AssemblyState::Replacing
            | AssemblyState::ReshapePending
            | AssemblyState::ResyncPending => Severity::Advice,
            _ => Severity::Problem,
        };
        let next = state.next().replace("TARGET", &subject.volume.name);
        findings.push(subject.finding(severity, state.id(), state.says().into(), next));
    }
}

/// Finding about a sync that the array needs and that an administrator has stopped.
fn sync_stopped(subject: &Subject<'_>, findings: &mut Vec<Finding>) {
    let volume = subject.volume;
    let rebuilds = subject.members().any(|member| member.state == "rebuilding");
    let needs = volume.resync_from.is_some() || volume.reshape.is_some() || rebuilds;
    if needs && volume.sync_action == "frozen" {
        let says = "a resync, rebuild or reshape that the array needs is stopped";
        let next = format!("weft idle {} lets it go on", volume.name);
        findings.push(subject.problem("sync-frozen", says, next));
    }
}

fn mismatches(subject: &Subject<'_>, findings: &mut Vec<Finding>) {
    let (name, count) = (&subject.volume.name, subject.volume.mismatch_cnt);
    // The count of a repair that has ended is that of the sectors which it made agree.
    let is_whole = subject.volume.sync_completed.is_some_and(|(done, total)| done >= total);
    let is_repaired =
        |it: &LastSyncStatus| it.action == "repair" && it.ended_secs.is_some() && is_whole;
    if count > 0 && !subject.volume.last_sync.as_ref().is_some_and(is_repaired) {
        let says = format!("the last check found {count} sectors that differ from the others");
        let next = format!("weft status {name} names members; weft repair {name} makes them agree");
        findings.push(subject.problem("mismatches", says, next));
    }
}

fn write_back_fails(subject: &Subject<'_>, findings: &mut Vec<Finding>) {
    let Some(cache) = &subject.volume.write_back else { return };
    if let Some(error) = &cache.error {
        let dirty = size::human(Bytes(cache.dirty));
        let says = format!("{dirty} of the write-back cache cannot be written: {error}");
        let next = "mend the member; the server tries again every second".into();
        findings.push(subject.problem("write-back-fails", says, next));
    }
}

/// Findings about members that fail requests, or had sectors that could not be read.
fn member_errors(subject: &Subject<'_>, findings: &mut Vec<Finding>) {
    let name = &subject.volume.name;
    for member in subject.members() {
        let asked = member.answered.iter().filter(|answered| answered.kind != "discard");
        let (count, errors) =
            asked.fold((0, 0), |sum, one| (sum.0 + one.count, sum.1 + one.errors));
        let label = &member.label;
        let of = |finding: Finding| Finding { member: Some(label.clone()), ..finding };
        if errors > 0 {
            let says = format!("{errors} of {count} requests failed");
            let next = format!("smartctl -a {label}; weft replace {name} {label}, while it works");
            findings.push(of(subject.problem("member-errors", says, next)));
        }
        if member.corrected > 0 {
            let says = format!("{} sectors could not be read, and were written", member.corrected);
            let next = format!("smartctl -a {label}; weft check {name} reads all others");
            findings.push(of(subject.advice("corrected", says, next)));
        }
    }
}

/// Findings about members that lie on one disk, so that one failure takes both.
fn shared_disks(subject: &Subject<'_>, findings: &mut Vec<Finding>) {
    if !subject.is_redundant() {
        return;
    }
    let disks = |member: &MemberStatus| {
        member.device.map(|device| subject.machine.disks_below(device)).unwrap_or_default()
    };
    let all: Vec<_> = subject.members().map(|member| (member, disks(member))).collect();
    for (place, (member, mine)) in all.iter().enumerate() {
        let shares = |other: &&(&MemberStatus, _)| !mine.is_disjoint(&other.1);
        if let Some((other, _)) = all[..place].iter().find(shares) {
            let disk = mine.iter().next().and_then(|path| path.file_name()).unwrap_or_default();
            let (disk, other) = (disk.to_string_lossy(), &other.label);
            let says = format!("it is on the disk {disk}, as {other} is: one failure takes both");
            let next = format!(
                "weft add {0} DEVICE, weft replace {0} {1}",
                subject.volume.name, member.label
            );
            let member = Some(member.label.clone());
            findings.push(Finding { member, ..subject.problem("shared-disk", says, next) });
        }
    }
}

/// Findings about NBD addresses without TLS that other machines can reach.
fn open_to_others(subject: &Subject<'_>, findings: &mut Vec<Finding>) {
    let is_local = |host: &str| {
        let host = host.trim_matches(['[', ']']);
        host == "localhost" || host.parse().is_ok_and(|ip: std::net::IpAddr| ip.is_loopback())
    };
    for uri in &subject.server.listen {
        let Some(rest) = uri.strip_prefix("nbd://") else { continue };
        let authority = rest.split('/').next().unwrap_or_default();
        let host = authority.rsplit_once(':').map_or(authority, |(host, _)| host);
        if !is_local(host) {
            let says = format!("{uri}: other machines read and write it without a key");
            let next =
                "weft keys makes keys; --listen nbds://HOST?tls-certificates=DIR uses them".into();
            findings.push(subject.problem("open-to-others", says, next));
        }
    }
}

/// Findings about members with reads that take far longer than those of the other members.
fn slow_members(subject: &Subject<'_>, findings: &mut Vec<Finding>) {
    let mean = |member: &MemberStatus| {
        let reads = member.answered.iter().find(|answered| answered.kind == "read")?;
        let counts = member.state == "in_sync" && !member.write_mostly && reads.count >= READS_MIN;
        counts.then(|| reads.sum_us / reads.count)
    };
    let means: Vec<(&MemberStatus, u64)> =
        subject.members().filter_map(|member| Some((member, mean(member)?))).collect();
    for (member, mine) in &means {
        let others = means.iter().filter(|(other, _)| other.index != member.index);
        let mut others: Vec<u64> = others.map(|(_, mean)| *mean).collect();
        others.sort_unstable();
        let Some(median) = others.get(others.len() / 2).copied() else { continue };
        if *mine >= SLOW_TIMES * median && *mine >= median + SLOW_MIN_US {
            let says = format!("a read takes {mine} µs in the mean, of the others {median} µs");
            let next =
                format!("smartctl -a {0}; a cable, or a disk that tries again", member.label);
            let member = Some(member.label.clone());
            findings.push(Finding { member, ..subject.advice("slow-member", says, next) });
        }
    }
}

/// Finding about an array that is resynced completely after a crash, because it has no bitmap.
fn no_bitmap(subject: &Subject<'_>, findings: &mut Vec<Finding>) {
    let volume = subject.volume;
    if subject.is_redundant() && volume.bitmap.is_none() && volume.size >= BITMAP_SIZE_MIN {
        let says = "no write-intent bitmap: after a crash all of the array is resynced";
        let next = format!("weft set {} bitmap=internal", volume.name);
        findings.push(subject.advice("no-bitmap", says, next));
    }
}

/// Finding about space of every member that the array does not use.
fn unused_space(subject: &Subject<'_>, findings: &mut Vec<Finding>) {
    let volume = subject.volume;
    let (Some(array), true) = (&volume.array, subject.is_redundant()) else { return };
    let room = subject.members().filter_map(|member| Some(member.data_sectors? * 512)).min();
    let unused = room.unwrap_or(0).saturating_sub(array.member_size);
    if unused >= UNUSED_MIN && unused >= array.member_size / 100 {
        let says = format!("{} of each member are not used", size::human(Bytes(unused)));
        let next = format!("weft grow {} --size max", volume.name);
        findings.push(subject.advice("unused-space", says, next));
    }
}

/// Findings about members that are accessed more slowly than they could be: by threads, or through
/// the page cache.
fn slow_ways(subject: &Subject<'_>, findings: &mut Vec<Finding>) {
    if subject.server.backend.starts_with("threads") {
        let says = "members are reached by threads: io_uring is refused here";
        let next = "the log says why; containers and seccomp filters forbid it by default".into();
        findings.push(subject.advice("threads", says, next));
    }
    for member in subject.members().filter(|member| member.mode == "buffered") {
        let says = "requests go through the page cache: O_DIRECT is refused there";
        let next = "put it on a file system that takes O_DIRECT, as ext4 and XFS do".into();
        let member = Some(member.label.clone());
        findings.push(Finding { member, ..subject.advice("buffered", says, next) });
    }
}

/// Number of reads from which on their mean latency is compared.
const READS_MIN: u64 = 1000;
/// Factor by which the mean latency of a slow member exceeds the median of the others.
/// [`SLOW_MIN_US`] is the least difference, in microseconds, that counts.
const SLOW_TIMES: u64 = 3;
const SLOW_MIN_US: u64 = 1000;
/// Size of an array in bytes from which on a bitmap is advised, as mdadm makes one: 100 GiB.
const BITMAP_SIZE_MIN: u64 = 100 << 30;
/// Number of unused bytes on each member from which on growing the array is advised: 1 GiB.
const UNUSED_MIN: u64 = 1 << 30;

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;
    use std::os::unix::fs::symlink;
    use std::path::Path;
    use weft_export::control::{
        AnsweredStatus, ArrayStatus, BadBlocksStatus, BitmapStatus, ReshapeStatus, WriteBackStatus,
    };

    const GIB: u64 = 1 << 30;

    fn reads(count: u64, errors: u64, mean_us: u64) -> AnsweredStatus {
        let sum_us = count * mean_us;
        AnsweredStatus { kind: "read".into(), count, errors, sum_us, ..AnsweredStatus::default() }
    }

    /// A server of a RAID 5 of three partitions, with which nothing is wrong.
    fn healthy() -> Status {
        let member = |slot: u16| MemberStatus {
            index: slot,
            label: format!("/dev/sd{}1", ["a", "b", "c"][usize::from(slot)]),
            device: Some((8, 16 * u32::from(slot) + 1)),
            slot: Some(slot),
            state: "in_sync".into(),
            mode: "direct".into(),
            data_sectors: Some(100 * GIB / 512),
            answered: vec![reads(5000, 0, 400)],
            ..MemberStatus::default()
        };
        let volume = VolumeStatus {
            name: "vm".into(),
            array_state: "clean".into(),
            level: "raid5".into(),
            size: 200 * GIB,
            slots: 3,
            sync_action: "idle".into(),
            array: Some(ArrayStatus { level: 5, member_size: 100 * GIB, ..ArrayStatus::default() }),
            bitmap: Some(BitmapStatus::default()),
            members: (0..3).map(member).collect(),
            write_back: Some(WriteBackStatus::default()),
            ..VolumeStatus::default()
        };
        let listen = ["nbd://127.0.0.1:10809/vm", "nbd://[::1]:10809/vm", "nbds://0.0.0.0/vm"];
        let others = ["nbd+unix:///vm?socket=/run/weft/vm.nbd", "ublk:0", "nbd://localhost/vm"];
        Status {
            backend: "io_uring".into(),
            listen: listen.into_iter().chain(others).map(Into::into).collect(),
            volumes: vec![volume],
            ..Status::default()
        }
    }

    /// A folder like `/sys/dev/block`, with partition 1 of `sda`, `sdb` and `sdc`, and a mapped
    /// device 253:0 on partitions of `sda` and `sdb`.
    fn devices() -> tempfile::TempDir {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path();
        let make = |name: &str| {
            std::fs::create_dir_all(path.join(name)).unwrap();
            path.join(name)
        };
        for (disk, number) in [("sda", "8:1"), ("sdb", "8:17"), ("sdc", "8:33")] {
            let part = make(&format!("devices/{disk}/{disk}1"));
            std::fs::write(part.join("partition"), "1\n").unwrap();
            symlink(&part, path.join(number)).unwrap();
        }
        let mapped = make("devices/dm-0");
        for part in ["sda/sda1", "sdb/sdb1"] {
            let name = Path::new(part).file_name().unwrap();
            let slaves = make("devices/dm-0/slaves");
            symlink(path.join("devices").join(part), slaves.join(name)).unwrap();
        }
        symlink(mapped, path.join("253:0")).unwrap();
        dir
    }

    fn found(status: &Status) -> Vec<Finding> {
        let dir = devices();
        let mut findings = Vec::new();
        look(status, &status.volumes[0], &Machine::with_devices(dir.path()), &mut findings);
        findings
    }

    type Fault = fn(&mut Status, &mut VolumeStatus);

    /// A healthy server to which a fault was done.
    fn faulty(fault: Fault) -> Status {
        let mut status = healthy();
        let mut volume = status.volumes.remove(0);
        fault(&mut status, &mut volume);
        status.volumes.push(volume);
        status
    }

    fn ended(action: &str) -> LastSyncStatus {
        LastSyncStatus {
            action: action.into(),
            ended_secs: Some(1_700_000_000),
            ..LastSyncStatus::default()
        }
    }

    /// Faults, each with the finding that it makes, and whether that is a problem.
    const FAULTS: [(&str, bool, Fault); 23] = [
        ("poisoned", true, |it, _| it.poisoned = true),
        ("degraded", true, |_, it| drop(it.members.pop())),
        ("rebuilding", false, |_, it| it.members[2].state = "rebuilding".into()),
        ("replacing", false, |_, it| {
            (it.members[2].state, it.members[2].replaces) = ("rebuilding".into(), Some(2));
        }),
        ("reshape-pending", false, |_, it| it.reshape = Some(ReshapeStatus::default())),
        ("resync-pending", false, |_, it| it.resync_from = Some(0)),
        ("bad-blocks", true, |_, it| {
            it.members[1].bad_blocks.push(BadBlocksStatus { start: 1, sectors: 1 });
        }),
        ("member-faulty", true, |_, it| {
            let faulty = MemberStatus { state: "faulty".into(), ..MemberStatus::default() };
            it.members.push(faulty);
        }),
        ("no-space", true, |_, it| it.no_space = true),
        ("broken", true, |_, it| it.array_state = "broken".into()),
        ("sync-frozen", true, |_, it| {
            (it.resync_from, it.sync_action) = (Some(0), "frozen".into());
        }),
        ("mismatches", true, |_, it| {
            (it.mismatch_cnt, it.last_sync) = (8, Some(ended("check")));
        }),
        ("write-back-fails", true, |_, it| {
            it.write_back.as_mut().unwrap().error = Some("EIO".into());
        }),
        ("member-errors", true, |_, it| it.members[0].answered = vec![reads(5000, 1, 400)]),
        ("corrected", false, |_, it| it.members[0].corrected = 8),
        ("shared-disk", true, |_, it| it.members[2].device = it.members[0].device),
        ("shared-disk", true, |_, it| it.members[1].device = Some((253, 0))),
        ("open-to-others", true, |it, _| it.listen.push("nbd://192.0.2.1:10809/vm".into())),
        ("slow-member", false, |_, it| it.members[1].answered = vec![reads(1000, 0, 1400)]),
        ("no-bitmap", false, |_, it| it.bitmap = None),
        ("unused-space", false, |_, it| it.array.as_mut().unwrap().member_size = 98 * GIB),
        ("threads", false, |it, _| it.backend = "threads (4)".into()),
        ("buffered", false, |_, it| it.members[0].mode = "buffered".into()),
    ];

    #[test]
    fn nothing_is_found_where_nothing_is_wrong_and_each_fault_is_found() {
        assert_eq!(found(&healthy()), []);
        for (id, is_problem, fault) in FAULTS {
            let findings = found(&faulty(fault));
            let severity = if is_problem { Severity::Problem } else { Severity::Advice };
            let is_it = |it: &&Finding| it.id == id && it.severity == severity;
            assert_eq!(findings.iter().filter(is_it).count(), 1, "{id}: {findings:?}");
            // A stopped resync, and only that, is pending too.
            let more = if id == "sync-frozen" { 1 } else { 0 };
            assert_eq!(findings.len(), 1 + more, "{id}: {findings:?}");
        }
    }

    #[test]
    fn what_is_normal_is_no_finding() {
        let mut status = healthy();
        let volume = &mut status.volumes[0];
        // A member that is little used, one that mirrors read last, and less than 1 GiB of room.
        volume.members[0].answered = vec![reads(READS_MIN - 1, 0, 90_000)];
        volume.members[1].answered = vec![reads(5000, 0, 90_000)];
        volume.members[1].write_mostly = true;
        volume.array.as_mut().unwrap().member_size = 100 * GIB - (GIB - 1);
        // A repair has made members agree.
        (volume.mismatch_cnt, volume.last_sync) = (8, Some(ended("repair")));
        volume.sync_completed = Some((100, 100));
        assert_eq!(found(&status), []);
        // Without redundancy there is neither a bitmap nor a second member to lose.
        let volume = &mut status.volumes[0];
        volume.array.as_mut().unwrap().level = 0;
        (volume.bitmap, volume.members[2].device) = (None, volume.members[0].device);
        assert_eq!(found(&status), []);
        // Devices of which the kernel tells nothing.
        let volume = &mut status.volumes[0];
        volume.array.as_mut().unwrap().level = 5;
        volume.bitmap = Some(BitmapStatus::default());
        for member in &mut volume.members {
            member.device = Some((99, 9));
        }
        assert_eq!(found(&status), []);
    }

    #[test]
    fn every_check_has_a_fault_and_every_next_step_is_a_command_of_weft() {
        let mut ids = BTreeSet::new();
        for (id, _, fault) in FAULTS {
            for finding in found(&faulty(fault)) {
                ids.insert(id);
                let mut rest = finding.next.as_str();
                while let Some((_, after)) = rest.split_once("weft ") {
                    let word = after.split([' ', ',', ';']).next().unwrap_or_default();
                    let cli = <crate::Cli as clap::CommandFactory>::command();
                    assert!(cli.find_subcommand(word).is_some(), "{}", finding.next);
                    rest = after;
                }
                assert!(!finding.next.contains("TARGET"), "{}", finding.next);
            }
        }
        // Syncs under way are summed up in the page.
        let page = include_str!("../../../../../docs/monitoring.md");
        let named = ids.iter().filter(|id| page.contains(&format!("`{id}`"))).count();
        assert_eq!(ids.len() - named, 3, "{ids:?}");
        // Each check makes findings of its own.
        for (place, Check(check)) in CHECKS.iter().enumerate() {
            let finds = FAULTS.iter().any(|(_, _, fault)| {
                let status = faulty(*fault);
                let dir = devices();
                let machine = Machine::with_devices(dir.path());
                let subject =
                    Subject { server: &status, volume: &status.volumes[0], machine: &machine };
                let mut findings = Vec::new();
                check(&subject, &mut findings);
                !findings.is_empty()
            });
            assert!(finds, "check {place} finds nothing");
        }
        assert_eq!(ids.len(), FAULTS.len() - 1, "of which two make shared-disk");
    }
}
