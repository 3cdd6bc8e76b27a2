//! Families of metrics: the statuses of servers as text in the format of Prometheus.
//!
//! Arrays have the metrics that node_exporter has for md, with its names and help texts, so that
//! its alerts and dashboards work; `device` is the name of the volume. The names of all other
//! metrics begin with `weft_`. Units are seconds and bytes. Counters end in `_total`, and begin at
//! 0 when a server starts.
//!
//! Source   Prometheus, "Exposition formats", text format 0.0.4; node_exporter `mdadm_linux.go`

use std::fmt::{Display, Write};

use weft_export::control::{AnsweredStatus, MemberStatus, Status, VolumeStatus, WriteBackStatus};
use weft_units::SECTOR_BYTES;

use crate::asked::Asked;

/// Text with the metrics of all volumes of these servers.
pub(super) fn text(servers: &[Status]) -> String {
    let mut families = Families::default();
    for server in servers {
        of_server(&mut families, server);
        for volume in &server.volumes {
            of_volume(&mut families, volume);
            if volume.array.is_some() {
                as_md(&mut families, volume);
            }
            if let Some(write_back) = &volume.write_back {
                of_write_back(&mut families, &volume.name, write_back);
            }
            volume.members.iter().for_each(|member| of_member(&mut families, &volume.name, member));
        }
    }
    families.text()
}

type Labels<'a> = [(&'a str, &'a str)];

/// Metrics by family, in the order in which the families were first used.
#[derive(Default)]
struct Families {
    families: Vec<Family>,
}

struct Family {
    name: &'static str,
    help: &'static str,
    kind: &'static str,
    samples: String,
}

impl Families {
    fn gauge(
        &mut self,
        name: &'static str,
        help: &'static str,
        of: &Labels<'_>,
        value: impl Display,
    ) {
        self.family(name, help, "gauge").add("", of, value);
    }

    fn counter(
        &mut self,
        name: &'static str,
        help: &'static str,
        of: &Labels<'_>,
        value: impl Display,
    ) {
        self.family(name, help, "counter").add("", of, value);
    }

    fn family(
        &mut self,
        name: &'static str,
        help: &'static str,
        kind: &'static str,
    ) -> &mut Family {
        let place = self.families.iter().position(|family| family.name == name);
        let place = place.unwrap_or_else(|| {
            self.families.push(Family { name, help, kind, samples: String::new() });
            self.families.len() - 1
        });
        &mut self.families[place]
    }

    fn text(&self) -> String {
        let mut text = String::new();
        for Family { name, help, kind, samples } in &self.families {
            let _ = write!(text, "# HELP {name} {help}\n# TYPE {name} {kind}\n{samples}");
        }
        text
    }
}

impl Family {
    /// Adds a sample. Its name is that of the family, followed by `ending`.
    fn add(&mut self, ending: &str, labels: &Labels<'_>, value: impl Display) {
        let labels: Vec<String> =
            labels.iter().map(|(label, value)| format!("{label}=\"{}\"", escaped(value))).collect();
        let _ = writeln!(self.samples, "{}{ending}{{{}}} {value}", self.name, labels.join(","));
    }
}

/// Value of a label, with backslashes, quotes and line ends escaped.
fn escaped(value: &str) -> String {
    value.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n")
}

fn of_server(families: &mut Families, server: &Status) {
    let Some(first) = server.volumes.first() else { return };
    let of = [("volume", first.name.as_str())];
    let uptime = server.uptime_ms as f64 / 1000.0;
    families.gauge(
        "weft_server_uptime_seconds",
        "Time since the start of the server.",
        &of,
        uptime,
    );
    families.gauge(
        "weft_server_poisoned",
        "Whether the server answers with errors only, after a panic.",
        &of,
        u8::from(server.poisoned),
    );
    families.gauge("weft_server_clients", "Clients that are connected.", &of, server.clients);
}

fn of_volume(families: &mut Families, volume: &VolumeStatus) {
    let of = [("volume", volume.name.as_str())];
    let uuid = volume.array.as_ref().map_or("", |array| &array.uuid);
    let info = [of[0], ("level", &volume.level), ("uuid", uuid), ("state", &volume.array_state)];
    families.gauge("weft_volume_info", "Level, UUID and state of the volume.", &info, 1);
    families.gauge("weft_volume_size_bytes", "Size of the volume.", &of, volume.size);
    BY_VOLUME.add(families, &of, &volume.answered);
    families.gauge(
        "weft_volume_no_space",
        "Whether writes are refused because a member has no space left.",
        &of,
        u8::from(volume.no_space),
    );
    families.gauge(
        "weft_volume_resync_pending",
        "Whether parity or copies may be wrong from some sector on.",
        &of,
        u8::from(volume.resync_from.is_some()),
    );
    families.gauge(
        "weft_volume_mismatch_bytes",
        "Bytes in which the last check found a mismatch (mismatch_cnt).",
        &of,
        volume.mismatch_cnt * SECTOR_BYTES,
    );
    families.gauge(
        "weft_volume_requests_active",
        "Requests of clients without an answer.",
        &of,
        volume.requests_active,
    );
    families.gauge(
        "weft_volume_stripe_cache_active",
        "Stripes of the stripe cache that are in use.",
        &of,
        volume.stripe_cache_active,
    );
    of_sync(families, volume);
    of_accounts(families, volume);
    if let Some(bitmap) = &volume.bitmap {
        families.gauge("weft_bitmap_chunks", "Chunks of the bitmap.", &of, bitmap.chunks);
        let help = "Chunks of the bitmap with their bit set.";
        families.gauge("weft_bitmap_dirty_chunks", help, &of, bitmap.dirty);
    }
}

/// Sector up to which the running sync has come, and the total of a sync of everything; `None` if
/// no sync runs. A sync that was stopped does not count, though the server still reports how far it
/// came.
fn running_sync(volume: &VolumeStatus) -> Option<(u64, u64)> {
    volume.running_sync().and(volume.sync_completed).filter(|(_, all)| *all > 0)
}

/// Adds the metrics of the running resync, recovery, check or repair of a volume.
fn of_sync(families: &mut Families, volume: &VolumeStatus) {
    let Some((done, all)) = running_sync(volume) else { return };
    let of = [("volume", volume.name.as_str()), ("action", &volume.sync_action)];
    let ratio = done as f64 / all as f64;
    families.gauge("weft_volume_sync_ratio", "Part of the sync that is done, 0 to 1.", &of, ratio);
    let Some(speed) = volume.sync_speed else { return };
    families.gauge(
        "weft_volume_sync_bytes_per_second",
        "Bytes of each member that the sync passes in a second.",
        &of,
        speed,
    );
}

/// Adds the metrics of the requests of all clients, and of the bytes that members moved, by
/// purpose.
fn of_accounts(families: &mut Families, volume: &VolumeStatus) {
    let name = volume.name.as_str();
    let asked = Asked::by_clients(volume);
    for (operation, requests, bytes) in
        [("read", asked.reads, asked.bytes_read), ("write", asked.writes, asked.bytes_written)]
    {
        let of = [("volume", name), ("operation", operation)];
        let help = "Requests of clients; flushes and trims count as writes.";
        families.counter("weft_volume_requests_total", help, &of, requests);
        families.counter("weft_volume_bytes_total", "Bytes of these requests.", &of, bytes);
    }
    let mut purposes: Vec<(&str, u64, u64)> = Vec::new();
    for moved in volume.shares.iter().flat_map(|share| &share.purposes) {
        let (read, written) =
            (moved.sectors_read * SECTOR_BYTES, moved.sectors_written * SECTOR_BYTES);
        match purposes.iter_mut().find(|(purpose, _, _)| *purpose == moved.purpose) {
            Some(sum) => *sum = (sum.0, sum.1 + read, sum.2 + written),
            None => purposes.push((&moved.purpose, read, written)),
        }
    }
    for (purpose, read, written) in purposes {
        for (operation, bytes) in [("read", read), ("write", written)] {
            let of = [("volume", name), ("purpose", purpose), ("operation", operation)];
            let help = "Bytes that members read and wrote, by purpose.";
            families.counter("weft_volume_member_bytes_total", help, &of, bytes);
        }
    }
}

/// Adds the metrics of an array that node_exporter has for md, by their names there.
fn as_md(families: &mut Families, volume: &VolumeStatus) {
    let name = volume.name.as_str();
    let of = [("device", name)];
    let count = |state: &str| volume.members.iter().filter(|it| it.state == state).count();
    for (state, members) in
        [("active", count("in_sync")), ("failed", count("faulty")), ("spare", count("spare"))]
    {
        let of = [("device", name), ("state", state)];
        families.gauge(
            "node_md_disks",
            "Number of active/failed/spare disks of device.",
            &of,
            members,
        );
    }
    let help = "Total number of disks of device.";
    families.gauge("node_md_disks_required", help, &of, volume.slots);
    families.gauge("node_md_raid_disks", "Number of raid disks on device.", &of, volume.slots);
    let help = "Number of degraded disks on device.";
    families.gauge("node_md_degraded", help, &of, volume.degraded);
    let now = match volume.sync_action.as_str() {
        "recover" => "recovering",
        "resync" | "repair" => "resync",
        "check" => "check",
        _ => "active",
    };
    for state in ["active", "inactive", "recovering", "resync", "check"] {
        let of = [("device", name), ("state", state)];
        let help = "Indicates the state of md-device.";
        families.gauge("node_md_state", help, &of, u8::from(state == now));
    }
    let blocks = volume.size / BLOCK_BYTES;
    families.gauge("node_md_blocks", "Total number of blocks on device.", &of, blocks);
    // As node_exporter does, blocks count as synced while no sync runs.
    let synced = match running_sync(volume) {
        Some((done, all)) => (blocks as f64 * (done as f64 / all as f64)).floor(),
        None => blocks as f64,
    };
    families.gauge("node_md_blocks_synced", "Number of blocks synced on device.", &of, synced);
}

fn of_write_back(families: &mut Families, volume: &str, cache: &WriteBackStatus) {
    let of = [("volume", volume)];
    let help = "Bytes in the write-back cache that no member has: lost if the server dies.";
    families.gauge("weft_write_back_dirty_bytes", help, &of, cache.dirty);
    let help = "Bytes of the write-back cache that are being written to members.";
    families.gauge("weft_write_back_writeback_bytes", help, &of, cache.writeback);
    let help = "Limit on bytes that no member has (dirty_bytes).";
    families.gauge("weft_write_back_limit_bytes", help, &of, cache.dirty_bytes);
    let help = "Whether the last write-back failed.";
    families.gauge("weft_write_back_failed", help, &of, u8::from(cache.error.is_some()));
    let help = "Bytes written back to members.";
    families.counter("weft_write_back_written_bytes_total", help, &of, cache.written);
    let help = "Pauses of clients that the throttle made.";
    families.counter("weft_write_back_pauses_total", help, &of, cache.pauses);
}

fn of_member(families: &mut Families, volume: &str, member: &MemberStatus) {
    let slot = member.slot.map_or(String::new(), |slot| slot.to_string());
    let of = [("volume", volume), ("member", member.label.as_str()), ("slot", &slot)];
    let state = [of[0], of[1], of[2], ("state", &member.state)];
    families.gauge("weft_member_state", "State of the member.", &state, 1);
    let help = "Whether the member is to be replaced, or is being replaced.";
    let wanted = u8::from(member.want_replacement);
    families.gauge("weft_member_want_replacement", help, &of, wanted);
    let help = "Requests that the member has not answered yet.";
    families.gauge("weft_member_in_flight", help, &of, member.in_flight);
    for (operation, requests) in
        [("read", member.reads), ("write", member.writes), ("flush", member.flushes)]
    {
        let of = [of[0], of[1], of[2], ("operation", operation)];
        let help = "Requests to the member.";
        families.counter("weft_member_requests_total", help, &of, requests);
    }
    for (operation, sectors) in [("read", member.sectors_read), ("write", member.sectors_written)] {
        let of = [of[0], of[1], of[2], ("operation", operation)];
        let help = "Bytes read from and written to the member.";
        families.counter("weft_member_bytes_total", help, &of, sectors * SECTOR_BYTES);
    }
    BY_MEMBER.add(families, &of, &member.answered);
    families.counter(
        "weft_member_corrected_bytes_total",
        "Bytes with a read error that a write corrected.",
        &of,
        member.corrected * SECTOR_BYTES,
    );
    let bad: u64 = member.bad_blocks.iter().map(|it| it.sectors).sum();
    let help = "Bytes that hold no valid data, by the member's bad-block log.";
    families.gauge("weft_member_bad_bytes", help, &of, bad * SECTOR_BYTES);
}

/// Names and help of the metrics about answered requests.
struct AnsweredNames {
    errors: (&'static str, &'static str),
    seconds: (&'static str, &'static str),
}

const BY_VOLUME: AnsweredNames = AnsweredNames {
    errors: ("weft_volume_errors_total", "Requests of clients that the volume failed."),
    seconds: (
        "weft_volume_request_seconds",
        "Time from a client's request, with its payload, to its reply.",
    ),
};

const BY_MEMBER: AnsweredNames = AnsweredNames {
    errors: ("weft_member_errors_total", "Requests that the member failed."),
    seconds: (
        "weft_member_request_seconds",
        "Time from the start of a request to the member to its answer.",
    ),
};

impl AnsweredNames {
    /// Adds the metrics of answered requests, by kind, such as reads.
    fn add(&self, families: &mut Families, of: &Labels<'_>, all: &[AnsweredStatus]) {
        for answered in all {
            let of = [of, &[("operation", answered.kind.as_str())]].concat();
            let (name, help) = self.errors;
            families.counter(name, help, &of, answered.errors);
            let (name, help) = self.seconds;
            let family = families.family(name, help, "histogram");
            for (power, count) in (1..).zip(&answered.below) {
                let bound = ((1_u64 << power) as f64 / 1e6).to_string();
                family.add("_bucket", &[&of[..], &[("le", bound.as_str())]].concat(), count);
            }
            family.add("_bucket", &[&of[..], &[("le", "+Inf")]].concat(), answered.count);
            family.add("_sum", &of, answered.sum_us as f64 / 1e6);
            family.add("_count", &of, answered.count);
        }
    }
}

/// Unit of md's block counts, in bytes.
const BLOCK_BYTES: u64 = 1024;

#[cfg(test)]
mod tests {
    use super::*;
    use weft_export::control::{ArrayStatus, PurposeStatus, ShareStatus};

    fn member(label: &str, slot: Option<u16>, state: &str) -> MemberStatus {
        let (label, state) = (label.to_owned(), state.to_owned());
        let answered = AnsweredStatus {
            kind: "read".into(),
            count: 3,
            sum_us: 1500,
            below: vec![1, 2],
            ..AnsweredStatus::default()
        };
        let answered = vec![answered];
        MemberStatus { label, slot, state, sectors_read: 3, answered, ..MemberStatus::default() }
    }

    fn volume() -> VolumeStatus {
        VolumeStatus {
            name: "v\"1\\".into(),
            level: "raid5".into(),
            size: 1 << 20,
            slots: 3,
            degraded: 1,
            array: Some(ArrayStatus::default()),
            sync_action: "recover".into(),
            sync_completed: Some((1, 4)),
            members: vec![
                member("a", Some(0), "in_sync"),
                member("b", Some(1), "in_sync"),
                member("c", None, "faulty"),
                member("d", Some(2), "rebuilding"),
            ],
            ..VolumeStatus::default()
        }
    }

    fn text_of(volume: VolumeStatus) -> String {
        text(&[Status { volumes: vec![volume], uptime_ms: 1500, ..Status::default() }])
    }

    fn assert_has(text: &str, lines: &[&str]) {
        for line in lines {
            assert!(text.lines().any(|found| found == *line), "no {line} in\n{text}");
        }
    }

    #[test]
    fn an_array_that_lost_a_member_has_the_metrics_of_mds_alerts() {
        assert_has(
            &text_of(volume()),
            &[
                r#"node_md_disks{device="v\"1\\",state="active"} 2"#,
                r#"node_md_disks{device="v\"1\\",state="failed"} 1"#,
                r#"node_md_disks{device="v\"1\\",state="spare"} 0"#,
                r#"node_md_disks_required{device="v\"1\\"} 3"#,
                r#"node_md_state{device="v\"1\\",state="recovering"} 1"#,
                r#"node_md_state{device="v\"1\\",state="active"} 0"#,
                r#"node_md_blocks{device="v\"1\\"} 1024"#,
                r#"node_md_blocks_synced{device="v\"1\\"} 256"#,
                r#"weft_volume_sync_ratio{volume="v\"1\\",action="recover"} 0.25"#,
                r#"weft_server_uptime_seconds{volume="v\"1\\"} 1.5"#,
                r#"weft_member_state{volume="v\"1\\",member="c",slot="",state="faulty"} 1"#,
                r#"weft_member_bytes_total{volume="v\"1\\",member="a",slot="0",operation="read"} 1536"#,
            ],
        );
    }

    #[test]
    fn latencies_are_a_histogram() {
        let flush = AnsweredStatus {
            kind: "flush".into(),
            errors: 1,
            ..member("", None, "").answered.remove(0)
        };
        let answered = vec![flush];
        let text = text_of(VolumeStatus { name: "v".into(), answered, ..volume() });
        let of = r#"volume="v",operation="flush""#;
        assert_has(
            &text,
            &[
                &format!("weft_volume_errors_total{{{of}}} 1"),
                &format!("weft_volume_request_seconds_bucket{{{of},le=\"0.000004\"}} 2"),
                &format!("weft_volume_request_seconds_count{{{of}}} 3"),
            ],
        );
        let of = r#"volume="v",member="a",slot="0",operation="read""#;
        let name = "weft_member_request_seconds";
        assert_has(
            &text,
            &[
                &format!("# TYPE {name} histogram"),
                &format!("{name}_bucket{{{of},le=\"0.000002\"}} 1"),
                &format!("{name}_bucket{{{of},le=\"0.000004\"}} 2"),
                &format!("{name}_bucket{{{of},le=\"+Inf\"}} 3"),
                &format!("{name}_sum{{{of}}} 0.0015"),
                &format!("{name}_count{{{of}}} 3"),
                &format!("weft_member_errors_total{{{of}}} 0"),
            ],
        );
    }

    #[test]
    fn a_sync_that_was_stopped_is_not_shown_as_one_that_runs() {
        let running = VolumeStatus { sync_action: "check".into(), ..volume() };
        let text = text_of(running);
        assert!(text.contains("weft_volume_sync_ratio") && text.contains("} 256\n"), "{text}");
        for action in ["idle", "frozen"] {
            let text = text_of(VolumeStatus { sync_action: action.into(), ..volume() });
            assert!(!text.contains("weft_volume_sync_"), "{text}");
            assert!(text.contains(r#"node_md_blocks_synced{device="v\"1\\"} 1024"#), "{text}");
        }
    }

    #[test]
    fn a_bare_volume_is_no_array_of_md() {
        let bare = VolumeStatus { array: None, sync_completed: None, ..volume() };
        let text = text_of(bare);
        assert!(!text.contains("node_md_") && !text.contains("sync_ratio"), "{text}");
        assert!(text.contains("weft_volume_size_bytes"));
    }

    #[test]
    fn accounts_are_summed() {
        let share = |who: &str, reads, sectors_read| ShareStatus {
            who: who.into(),
            reads,
            bytes_read: reads * 4096,
            purposes: vec![PurposeStatus {
                purpose: "user".into(),
                sectors_read,
                sectors_written: 1,
            }],
            ..ShareStatus::default()
        };
        let shares = vec![share("client", 2, 8), share("others", 3, 16), share("resync", 9, 32)];
        let text = text_of(VolumeStatus { name: "v".into(), shares, ..volume() });
        assert_has(
            &text,
            &[
                r#"weft_volume_requests_total{volume="v",operation="read"} 5"#,
                r#"weft_volume_bytes_total{volume="v",operation="read"} 20480"#,
                r#"weft_volume_member_bytes_total{volume="v",purpose="user",operation="read"} 28672"#,
                r#"weft_volume_member_bytes_total{volume="v",purpose="user",operation="write"} 1536"#,
            ],
        );
    }

    /// Each family has one head, and its samples are together, with no sample twice.
    #[test]
    fn samples_of_a_family_are_together() {
        let other = VolumeStatus { name: "w".into(), ..volume() };
        let write_back = Some(WriteBackStatus::default());
        let other = VolumeStatus { write_back, ..other };
        let text = text(&[
            Status { volumes: vec![volume()], ..Status::default() },
            Status { volumes: vec![other], ..Status::default() },
        ]);
        let mut seen = std::collections::BTreeSet::new();
        let mut family = "";
        let mut heads = 0;
        for line in text.lines() {
            if let Some(rest) = line.strip_prefix("# HELP ") {
                family = rest.split(' ').next().unwrap();
                heads += 1;
            } else if let Some(rest) = line.strip_prefix("# TYPE ") {
                let is_counter = rest.ends_with(" counter");
                assert_eq!(is_counter, family.ends_with("_total"), "{line}");
            } else {
                let ending = line.split('{').next().unwrap().strip_prefix(family).unwrap();
                assert!(matches!(ending, "" | "_bucket" | "_sum" | "_count"), "{line}");
            }
            let (sample, _) = line.rsplit_once(' ').unwrap();
            assert!(seen.insert(sample.to_owned()), "{line} twice");
        }
        assert!(heads > 25, "{heads} families");
    }
}
