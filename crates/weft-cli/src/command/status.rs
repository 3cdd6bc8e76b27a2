//! `weft status`: prints the state of running volumes, in the form of `/proc/mdstat`.
//!
//! Programs that parse `/proc/mdstat` can parse it.

use std::fmt::Write as _;
use std::io::{IsTerminal, Write};
use std::path::Path;
use std::time::Duration;

use clap::Args;
use serde_json::{Value, json};
use weft_export::control::{ArrayStatus, MemberStatus, Status, VolumeStatus};
use weft_ondisk::layout_id::{Layouts, Raid10};
use weft_ondisk::{Level, Redundancy};
use weft_terminal::outcome::{Exit, Outcome};
use weft_terminal::terminal::{complain, print_json, stdout};
use weft_units::Bytes;

use crate::asked::share_label;
use crate::bar::{bar, per_mille};
use crate::size;
use crate::states;
use crate::sync_action::{last_check, mismatch_lines};
use crate::target::{self, Target};

/// Prints the state of running volumes in the format of /proc/mdstat
///
/// Exit status: 0, or 4 when a volume is degraded.
#[derive(Debug, Args)]
pub(crate) struct StatusOf {
    /// Print one JSON object
    #[arg(long)]
    json: bool,
    /// Print the shares in the work of members instead: clients with their class and weight, resync
    /// and the array itself, with their shares in total and over the last seconds
    #[arg(long, conflicts_with = "json")]
    clients: bool,
    /// Print again every SECONDS until interrupted; on a terminal in place
    #[arg(
        long,
        value_name = "SECONDS",
        num_args = 0..=1,
        require_equals = true,
        default_missing_value = "1",
        value_parser = clap::value_parser!(u32).range(1..=3600),
        conflicts_with = "json"
    )]
    watch: Option<u32>,
    /// Name or control socket of a running volume [default: all of them]
    target: Option<String>,
}

pub(crate) fn run(arguments: &StatusOf) -> Outcome {
    let Some(seconds) = arguments.watch else { return print_once(arguments) };
    let in_place = std::io::stdout().is_terminal();
    loop {
        if in_place {
            // Clears the screen and begins at its top.
            write!(stdout(), "\x1b[H\x1b[2J")?;
        }
        print_once(arguments)?;
        std::thread::sleep(Duration::from_secs(seconds.into()));
    }
}

fn print_once(arguments: &StatusOf) -> Outcome {
    let servers: Vec<Status> = match &arguments.target {
        Some(name) => vec![Target::connect(name)?.status()?],
        None => target::running().into_iter().map(|(_, status)| status).collect(),
    };
    if arguments.json {
        let mut all = json!({"schema": "weft.status/2", "servers": servers});
        for (server, index) in servers.iter().zip(0..) {
            for (volume, place) in server.volumes.iter().zip(0..) {
                let states: &mut Value = &mut all["servers"][index]["volumes"][place]["states"];
                *states = states::to_json(&states::of_running(volume));
            }
        }
        print_json(&all)?;
    } else if arguments.clients {
        let mut out = stdout();
        write!(out, "{}", shares_text(&servers))?;
        out.flush()?;
    } else {
        let mut out = stdout();
        write!(out, "{}", to_text(&servers))?;
        out.flush()?;
        // Notes go to standard error: programs parse the text of mdstat on standard output.
        for volume in servers.iter().flat_map(|server| &server.volumes) {
            for line in states::lines(&states::of_running(volume)) {
                complain(&format!("{}: note: {line}", volume.name));
            }
            for line in mismatch_lines(volume) {
                complain(&format!("{}: note: check: {line}", volume.name));
            }
        }
    }
    let degraded = servers.iter().flat_map(|server| &server.volumes).any(|it| it.degraded > 0);
    Ok(if degraded { Exit::Degraded } else { Exit::Done })
}

/// Table, for each volume, of the shares of its clients in the work of the members. Clients that
/// have disconnected stay listed, so that the shares add up.
fn shares_text(servers: &[Status]) -> String {
    let mut text = String::new();
    for volume in servers.iter().flat_map(|server| &server.volumes) {
        // Writing to a string cannot fail.
        let _ = writeln!(
            text,
            "{:<24} {:>7} {:>6} {:>8} {:>10} {:>10} {:>10} {:>7} {:>8}",
            volume.name,
            "class",
            "weight",
            "group",
            "read",
            "written",
            "members",
            "share",
            "recently"
        );
        for share in &volume.shares {
            let (is_client, size) = (share.who == "client", |bytes| size::human(Bytes(bytes)));
            let weight = if is_client { share.weight.to_string() } else { "-".to_owned() };
            let class = if is_client { share.class.as_str() } else { "-" };
            let percent = |permille: u32| format!("{}.{}%", permille / 10, permille % 10);
            let _ = writeln!(
                text,
                "  {:<22} {class:>7} {weight:>6} {:>8} {:>10} {:>10} {:>10} {:>7} {:>8}",
                share_label(share),
                share.group.as_deref().unwrap_or("-"),
                size(share.bytes_read),
                size(share.bytes_written),
                size(share.sectors * 512),
                percent(share.share_permille),
                percent(share.share_recently_permille),
            );
        }
    }
    text
}

/// Text of the status in the form of `/proc/mdstat`.
///
/// Source   md-raid.md §7.2 and output of Linux 6.12
fn to_text(servers: &[Status]) -> String {
    let mut text = String::from(
        "Personalities : [raid6] [raid5] [raid4] [raid10] [raid1] [raid0] [linear] \n",
    );
    for volume in servers.iter().flat_map(|server| &server.volumes) {
        volume_text(&mut text, volume);
    }
    text.push_str("unused devices: <none>\n");
    text
}

fn volume_text(text: &mut String, volume: &VolumeStatus) {
    let read_only = match volume.array_state.as_str() {
        "readonly" => " (read-only)",
        "read-auto" => " (auto-read-only)",
        _ => "",
    };
    let mut members: Vec<&MemberStatus> = volume.members.iter().collect();
    // The kernel lists the highest number first.
    members.sort_by_key(|member| std::cmp::Reverse(member.dev_number));
    let members: Vec<String> = members
        .into_iter()
        .map(|member| {
            let mostly = if member.write_mostly { "(W)" } else { "" };
            let flag = match member.state.as_str() {
                "faulty" => "(F)",
                "spare" => "(S)",
                _ if member.replaces.is_some() => "(R)",
                _ => "",
            };
            let path = Path::new(&member.label);
            let name = path
                .file_name()
                .map_or(member.label.clone(), |name| name.to_string_lossy().into_owned());
            format!("{name}[{}]{mostly}{flag}", member.dev_number)
        })
        .collect();
    // Writing to a string cannot fail.
    let _ = writeln!(
        text,
        "{} : active{read_only}{} {} {}",
        volume.name,
        if volume.no_space { " (no space)" } else { "" },
        volume.level,
        members.join(" ")
    );
    let up: String = (0..volume.slots)
        .map(|slot| {
            let filled = volume.members.iter().any(|member| {
                // A bare member has no slot and is the only member.
                let here = volume.array.is_none() || member.slot.map(usize::from) == Some(slot);
                here && member.state == "in_sync"
            });
            if filled { 'U' } else { '_' }
        })
        .collect();
    let shape = volume.array.as_ref().map_or(String::new(), shape_text);
    let working = volume.slots.saturating_sub(volume.degraded);
    let level = volume.array.as_ref().and_then(|array| Level::from_code(array.level));
    let members = match level {
        // Without all members there is no array, so the kernel prints no count.
        Some(level) if !level.uses_size() => String::new(),
        _ => format!(" [{}/{working}] [{up}]", volume.slots),
    };
    let _ = writeln!(text, "      {} blocks{shape}{members}", volume.size / 1024);
    if let Some(progress) = progress_text(volume) {
        let _ = writeln!(text, "      {progress}");
    }
    if let Some((action, result)) = last_check(volume) {
        let _ = writeln!(text, "      last {action}: {result}");
    }
    to_be_replaced_text(text, volume);
    bad_blocks_text(text, volume);
    write_back_text(text, volume);
    text.push_str("      ");
    if let Some(bitmap) = &volume.bitmap {
        // As in the kernel, a page is a page of memory with counters.
        let (used, pages) = (bitmap.pages_dirty, bitmap.pages);
        let chunk = match bitmap.chunk >> 10 {
            0 => format!("{}B", bitmap.chunk),
            kib => format!("{kib}KB"),
        };
        let _ = writeln!(text, "bitmap: {used}/{pages} pages [{}KB], {chunk} chunk", used * 4);
    }
    text.push('\n');
}

/// Appends a line about each member that is to be replaced and has no replacement that is filled
/// yet, with the spare that is reserved for it.
fn to_be_replaced_text(text: &mut String, volume: &VolumeStatus) {
    let with = |slot: fn(&MemberStatus) -> Option<u16>, wanted: &MemberStatus| {
        let is_of = |it: &&MemberStatus| wanted.slot.is_some() && slot(it) == wanted.slot;
        volume.members.iter().find(is_of)
    };
    for wanted in volume.members.iter().filter(|member| member.want_replacement) {
        if with(|it| it.replaces, wanted).is_some() {
            continue;
        }
        let by = with(|it| it.reserved_for, wanted).map(|spare| format!(", by {}", spare.label));
        // Writing to a string cannot fail.
        let _ = writeln!(
            text,
            "      want_replacement: {}{}",
            wanted.label,
            by.unwrap_or_else(|| ", once there is a spare".into())
        );
    }
}

/// Appends a line about each member with bad blocks.
fn bad_blocks_text(text: &mut String, volume: &VolumeStatus) {
    for member in &volume.members {
        let Some(first) = member.bad_blocks.first() else { continue };
        let (ranges, sectors) =
            (member.bad_blocks.len(), member.bad_blocks.iter().map(|it| it.sectors).sum::<u64>());
        // Writing to a string cannot fail.
        let _ = writeln!(
            text,
            "      bad blocks: {sectors} sectors of {} in {ranges} ranges, from sector {} on",
            member.label, first.start
        );
    }
}

/// Appends lines about a volume's write-back cache, if the volume has one.
fn write_back_text(text: &mut String, volume: &VolumeStatus) {
    let Some(cache) = &volume.write_back else { return };
    let size = |bytes| size::human(Bytes(bytes));
    let _ = writeln!(
        text,
        "      write-back: {} dirty, {} being written, {} written, at most {}",
        size(cache.dirty),
        size(cache.writeback),
        size(cache.written),
        size(cache.dirty_bytes)
    );
    let _ = writeln!(
        text,
        "      dirty_throttle {}: {} pauses, {} answers delayed now",
        cache.throttle, cache.pauses, cache.answers_delayed
    );
    if let Some(error) = &cache.error {
        let _ = writeln!(text, "      write-back fails and is tried again: {error}");
    }
}

/// Version of the metadata and layout, as the kernel prints them for this level.
fn shape_text(array: &ArrayStatus) -> String {
    let chunk = array.chunk / 1024;
    let row = Level::from_code(array.level).map(Level::row);
    let layout = match row.map(|row| row.redundancy) {
        Some(Redundancy::None) if row.is_some_and(|row| row.chunk.is_needed()) => {
            format!(" {chunk}k chunks")
        }
        Some(Redundancy::None) => format!(" {chunk}k rounding"),
        Some(Redundancy::Mirror) => String::new(),
        Some(Redundancy::Copies) => {
            let parts = Raid10::from_code(array.layout);
            let near = parts.filter(|it| it.near > 1).map(|it| format!(" {} near-copies", it.near));
            let far = parts.filter(|it| it.far > 1).map(|it| {
                let kind = if it.offset { "offset" } else { "far" };
                format!(" {} {kind}-copies", it.far)
            });
            format!(" {chunk}K chunks{}{}", near.unwrap_or_default(), far.unwrap_or_default())
        }
        Some(Redundancy::Parity(_)) | None => {
            let ignored = row.is_some_and(|row| row.layouts == Layouts::Ignored);
            let algorithm = if ignored { 0 } else { array.layout };
            format!(" level {}, {chunk}k chunk, algorithm {algorithm}", array.level)
        }
    };
    format!(" super {}{layout}", array.metadata)
}

/// Progress of a sync, as `[===>......]  recovery = 12.3% (done/total)`, or `resync=PENDING` for a
/// resync that is due; `None` if no sync runs and no resync is due.
fn progress_text(volume: &VolumeStatus) -> Option<String> {
    let action = match volume.sync_action.as_str() {
        // A resync is due, but it has not started or is frozen.
        "idle" | "frozen" if volume.resync_from.is_some() => {
            return Some("\tresync=PENDING".into());
        }
        "idle" | "frozen" => return None,
        "recover" => "recovery",
        // The kernel prints `check` for both actions.
        "repair" | "check" => "check",
        other => other,
    };
    let (done, total) = volume.sync_completed?;
    let per_mille = per_mille(done, total);
    let mut text = format!(
        "{}  {action} ={:>3}.{}% ({}/{})",
        bar(per_mille),
        per_mille / 10,
        per_mille % 10,
        done / 2,
        total / 2
    );
    if let Some(speed) = volume.sync_speed {
        // The kernel prints tenths of minutes, and KiB per second.
        let tenths =
            total.saturating_sub(done).saturating_mul(5120).checked_div(speed).unwrap_or(0) / 60;
        let (minutes, tenth) = (tenths / 10, tenths % 10);
        let _ = write!(text, " finish={minutes}.{tenth}min speed={}K/sec", speed / 1024);
    }
    Some(text)
}

#[cfg(test)]
mod tests {
    use super::*;
    use weft_export::control::{ArrayStatus, BitmapStatus, WriteBackStatus};

    fn volume() -> VolumeStatus {
        let member = |slot: u16, dev_number: u32, state: &str| MemberStatus {
            index: slot,
            label: format!("/nowhere/{}.img", ["a", "b", "c", "d"][usize::from(slot)]),
            slot: (state != "spare" && state != "faulty").then_some(slot),
            dev_number,
            state: state.into(),
            ..MemberStatus::default()
        };
        VolumeStatus {
            name: "demo".into(),
            array_state: "clean".into(),
            level: "raid5".into(),
            size: 129_024 << 10,
            slots: 3,
            degraded: 1,
            sync_action: "recover".into(),
            sync_completed: Some((8192, 129_024)),
            array: Some(ArrayStatus {
                metadata: "1.2".into(),
                level: 5,
                layout: 2,
                chunk: 64 << 10,
                ..ArrayStatus::default()
            }),
            members: vec![
                member(0, 0, "in_sync"),
                member(1, 1, "in_sync"),
                member(2, 3, "rebuilding"),
                member(3, 2, "faulty"),
            ],
            ..VolumeStatus::default()
        }
    }

    #[test]
    fn a_volume_reads_as_in_mdstat() {
        let status = Status { volumes: vec![volume()], ..Status::default() };
        let expected = "Personalities : [raid6] [raid5] [raid4] [raid10] [raid1] [raid0] [linear] \n\
            demo : active raid5 c.img[3] d.img[2](F) b.img[1] a.img[0]\n      \
            129024 blocks super 1.2 level 5, 64k chunk, algorithm 2 [3/2] [UU_]\n      \
            [=>...................]  recovery =  6.3% (4096/64512)\n      \n\
            unused devices: <none>\n";
        assert_eq!(to_text(&[status]), expected);
    }

    /// Lines that Linux 6.12 printed: `mdstat.txt` in `fixtures/md`.
    #[test]
    fn each_level_has_the_line_of_its_personality() {
        let cases = [
            (0, 1, 16, " super 1.2 16k chunks"),
            (1, 0, 0, " super 1.2 [3/2] [UU_]"),
            (4, 5, 64, " super 1.2 level 4, 64k chunk, algorithm 0 [3/2] [UU_]"),
            (6, 2, 16, " super 1.2 level 6, 16k chunk, algorithm 2 [3/2] [UU_]"),
            (10, 0x102, 64, " super 1.2 64K chunks 2 near-copies [3/2] [UU_]"),
            (10, 0x201, 64, " super 1.2 64K chunks 2 far-copies [3/2] [UU_]"),
            (10, 0x1_0201, 64, " super 1.2 64K chunks 2 offset-copies [3/2] [UU_]"),
        ];
        for (level, layout, kib, expected) in cases {
            let of_level = VolumeStatus { sync_action: "idle".into(), ..volume() };
            let array = of_level.array.clone().map(|array| ArrayStatus {
                level,
                layout,
                chunk: kib << 10,
                ..array
            });
            let mut text = String::new();
            volume_text(&mut text, &VolumeStatus { array, ..of_level });
            let line = text.lines().nth(1).unwrap();
            assert_eq!(line, format!("      129024 blocks{expected}"), "level {level}");
        }
    }

    /// Lines of Linux 6.12: `bitmap: 0/1 pages [0KB], 65536KB chunk`.
    #[test]
    fn a_bitmap_has_the_line_of_the_kernel() {
        for (chunk, pages_dirty, expected) in [
            (64 << 20, 0, "      bitmap: 0/3 pages [0KB], 65536KB chunk"),
            (512, 2, "      bitmap: 2/3 pages [8KB], 512B chunk"),
        ] {
            let bitmap = BitmapStatus { chunk, pages: 3, pages_dirty, ..BitmapStatus::default() };
            let mut text = String::new();
            let with_bitmap = VolumeStatus { bitmap: Some(bitmap), ..volume() };
            volume_text(&mut text, &with_bitmap);
            assert!(text.ends_with(&format!("\n{expected}\n\n")), "{text}");
        }
    }

    #[test]
    fn a_volume_with_a_write_back_cache_says_what_is_dirty() {
        let cache = WriteBackStatus {
            throttle: "mainline-6.12".into(),
            pauses: 7,
            answers_delayed: 2,
            error: Some("input/output error".into()),
            dirty_bytes: 256 << 20,
            dirty: 12 << 20,
            writeback: 2 << 20,
            ..WriteBackStatus::default()
        };
        let mut text = String::new();
        volume_text(&mut text, &VolumeStatus { write_back: Some(cache), ..volume() });
        let line = "write-back: 12 MiB dirty, 2 MiB being written, 0 B written, at most 256 MiB";
        assert!(text.contains(&format!("\n      {line}\n")), "{text}");
        let throttle = "dirty_throttle mainline-6.12: 7 pauses, 2 answers delayed now";
        assert!(text.contains(&format!("\n      {throttle}\n")), "{text}");
        assert!(text.contains("fails and is tried again: input/output error"), "{text}");
    }

    #[test]
    fn a_bare_member_is_up() {
        let members = vec![MemberStatus { slot: None, ..volume().members[0].clone() }];
        let (slots, degraded) = (1, 0);
        let bare = VolumeStatus { array: None, members, slots, degraded, ..volume() };
        let mut text = String::new();
        volume_text(&mut text, &VolumeStatus { sync_action: "idle".into(), ..bare });
        assert_eq!(text.lines().nth(1).unwrap(), "      129024 blocks [1/1] [U]");
    }

    #[test]
    fn a_resync_that_waits_is_pending() {
        let waits = VolumeStatus { resync_from: Some(0), ..volume() };
        for action in ["idle", "frozen"] {
            let waits = VolumeStatus { sync_action: action.into(), ..waits.clone() };
            assert_eq!(progress_text(&waits).as_deref(), Some("\tresync=PENDING"));
        }
        let idle = VolumeStatus { sync_action: "idle".into(), ..volume() };
        assert_eq!(progress_text(&idle), None);
    }

    #[test]
    fn a_volume_without_space_says_so() {
        let full = Status {
            volumes: vec![VolumeStatus { no_space: true, ..volume() }],
            ..Status::default()
        };
        assert!(to_text(&[full]).contains("demo : active (no space) raid5 "));
    }

    /// A line of Linux 6.12: `finish=0.2min speed=4096K/sec`, for 60,416 KiB that are left.
    #[test]
    fn a_running_sync_has_its_speed_and_the_time_that_is_left() {
        let of =
            |speed| progress_text(&VolumeStatus { sync_speed: Some(speed), ..volume() }).unwrap();
        assert!(
            of(4 << 20).ends_with("(4096/64512) finish=0.2min speed=4096K/sec"),
            "{}",
            of(4 << 20)
        );
        assert!(of(512 << 10).ends_with(" finish=1.9min speed=512K/sec"), "{}", of(512 << 10));
        assert!(of(0).ends_with(" finish=0.0min speed=0K/sec"), "{}", of(0));
    }

    #[test]
    fn progress_stays_inside_its_bar() {
        for completed in [None, Some((0, 0)), Some((5, 1)), Some((u64::MAX, 1)), Some((7, 7))] {
            let text = progress_text(&VolumeStatus { sync_completed: completed, ..volume() });
            assert!(text.is_none_or(|text| text.contains(']')), "{completed:?}");
        }
    }
}
