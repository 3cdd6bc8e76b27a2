//! Drawing of the screen: lines of text from the state, fitted to the terminal.
//!
//! Names come from members, clients and servers. Each is escaped before it becomes part of a line,
//! so that it cannot send control sequences. Information that a colour gives is also given by a
//! word or a number.

use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use ratatui::style::{Color, Modifier, Style};
use ratatui::text::{Line, Span};
use weft_export::control::{ShareStatus, VolumeStatus, WriteBackStatus};
use weft_terminal::terminal::printable;
use weft_units::{Bytes, Sectors};

use super::difference::{Latency, Traffic, errors};
use super::known::{MemberRow, Mode, Pane, Presence, TopState, VolumeRow};
use crate::asked::{is_of_clients, share_label};
use crate::bar::{bar, per_mille};
use crate::size;
use crate::states;

/// Draws the screen for the state into the area `area` of the buffer.
pub(super) fn draw(state: &TopState, area: Rect, buffer: &mut Buffer) {
    let (width, height) = (usize::from(area.width), usize::from(area.height));
    let lines = match (width >= WIDTH_MIN, height >= HEIGHT_MIN) {
        (true, true) => whole(state, width, height),
        _ => broken(
            &format!(
                "The terminal has {width} columns and {height} lines; weft top needs {WIDTH_MIN} \
                 and {HEIGHT_MIN}. q quits."
            ),
            width,
        ),
    };
    for (y, line) in (area.top()..area.bottom()).zip(&lines) {
        buffer.set_line(area.left(), y, line, area.width);
    }
}

/// Text of a frame for standard output: all volumes, each with its details, at least [`WIDTH_MIN`]
/// columns wide.
pub(super) fn text(state: &TopState, width: usize) -> String {
    let width = width.max(WIDTH_MIN);
    let rows = state.volumes();
    let mut lines = vec![title(state, width)];
    if !rows.is_empty() {
        lines.push(volume_heads(width, "VOLUME"));
    }
    lines.extend(rows.iter().flat_map(|row| volume_lines(state, row, width, false)));
    for row in &rows {
        let detail = Detail::of(state, row, width);
        lines.extend([Line::from(""), detail.title, detail.heads]);
        lines.extend(detail.members.into_iter().chain(detail.rest));
    }
    let text = |line: &Line<'_>| format!("{}\n", line.to_string().trim_end());
    lines.iter().map(text).collect()
}

/// Smallest width of the screen in columns: that of a usual terminal.
const WIDTH_MIN: usize = 80;
/// Smallest height of the screen in lines: a volume with its sync, two members, and the cache.
const HEIGHT_MIN: usize = 12;

/// Lines of a screen of at least the smallest size; as many as `height`.
fn whole(state: &TopState, width: usize, height: usize) -> Vec<Line<'static>> {
    let bottom = bottom(state, width);
    let room = height.saturating_sub(bottom.len());
    let mut lines = match (&state.mode, state.chosen()) {
        (Mode::Help, _) => HELP.lines().map(Line::from).collect(),
        (_, None) => {
            vec![
                title(state, width),
                Line::from(""),
                Line::from("No volume runs; weft serve starts one."),
            ]
        }
        (_, Some((place, row))) => figures(state, place, &row, width, room),
    };
    lines.resize(room, Line::from(""));
    lines.extend(bottom);
    lines
}

/// Title, table of volumes, and details of the chosen volume, which is the one at `place`. Both
/// tables are cut so that they leave room for the details; the caller cuts the lines after `room`.
fn figures(
    state: &TopState,
    place: usize,
    chosen: &VolumeRow<'_>,
    width: usize,
    room: usize,
) -> Vec<Line<'static>> {
    let rows = state.volumes();
    let each: Vec<Vec<Line<'_>>> =
        rows.iter().map(|row| volume_lines(state, row, width, row.is(chosen))).collect();
    let detail = Detail::of(state, chosen, width);
    // The title and two lines of heads, and the title of the details.
    let room = room.saturating_sub(4);
    let (volumes, below) =
        (each.iter().map(Vec::len).sum(), detail.members.len() + detail.rest.len());
    let for_volumes = split(volumes, below, room);
    let for_members = split(detail.members.len(), detail.rest.len(), room - for_volumes);
    let name = match for_volumes < volumes {
        true => format!("VOLUME {}/{}", place + 1, rows.len()),
        false => "VOLUME".to_owned(),
    };
    let mut lines = vec![title(state, width), volume_heads(width, &name)];
    lines.extend(window(each, place, for_volumes));
    lines.extend([detail.title, detail.heads]);
    let members = detail.members.into_iter().map(|line| vec![line]).collect();
    lines.extend(window(members, detail.chosen, for_members));
    lines.extend(detail.rest);
    lines
}

/// Number of lines that the first of two parts gets, if there are `room` lines and the parts need
/// `first` and `other`: at most `first`, and at most what the other part leaves or half, whichever
/// is more.
fn split(first: usize, other: usize, room: usize) -> usize {
    first.min(room.saturating_sub(other).max(room.div_ceil(2)))
}

/// The `room` lines of the items that end with the chosen item, or the first ones if it is among
/// them.
fn window(items: Vec<Vec<Line<'static>>>, chosen: usize, room: usize) -> Vec<Line<'static>> {
    let end: usize = items.iter().take(chosen + 1).map(Vec::len).sum();
    items.into_iter().flatten().skip(end.saturating_sub(room)).take(room).collect()
}

/// Title of the screen: numbers of all volumes, and of those that are degraded, gone or do not
/// answer.
fn title(state: &TopState, width: usize) -> Line<'static> {
    let rows = state.volumes();
    let of = |fits: &dyn Fn(&VolumeRow<'_>) -> bool| rows.iter().filter(|row| fits(row)).count();
    let mut text = format!("weft top: {}", counted(rows.len(), "volume"));
    let is_here = |row: &VolumeRow<'_>| row.server.presence == Presence::Here;
    for (count, word) in [
        (of(&|row| is_here(row) && row.volume.degraded > 0), "degraded"),
        (of(&|row| row.server.presence == Presence::Gone), "gone"),
        (of(&|row| row.server.presence == Presence::Silent), "without an answer"),
    ] {
        if count > 0 {
            text += &format!(", {count} {word}");
        }
    }
    let right = format!("every {} s", state.seconds);
    let left = left(&text, width - right.len() - 1);
    Line::styled(format!("{left} {right}"), Modifier::BOLD)
}

fn volume_heads(width: usize, name: &str) -> Line<'static> {
    let cells = ["LEVEL", "SIZE", "STATE", "UP", "READ/s", "r/s", "WRITE/s", "w/s"];
    Line::styled(volume_columns(" ", name, cells, width), Modifier::UNDERLINED)
}

/// Text of a line in the table of volumes, `width` columns wide.
fn volume_columns(mark: &str, name: &str, cells: [&str; 8], width: usize) -> String {
    let name = left(name, width - 69);
    let [level, size, state, up, read, reads, write, writes] = cells;
    format!(
        "{mark}{name} {level:<6} {size:>8} {} {up:>5} {read:>8} {reads:>6} {write:>8} {writes:>6}",
        left(state, 13)
    )
}

impl VolumeRow<'_> {
    /// Whether two rows show the same volume.
    fn is(&self, other: &VolumeRow<'_>) -> bool {
        self.server.name == other.server.name
    }

    /// Word for the state of the volume: `gone`, `no answer`, `poisoned` or `no space` if one of
    /// these holds, else md's `array_state`.
    fn state(&self) -> &str {
        match self.server.presence {
            Presence::Gone => "gone",
            Presence::Silent => "no answer",
            Presence::Here if self.server.last.poisoned => "poisoned",
            Presence::Here if self.volume.no_space => "no space",
            Presence::Here => &self.volume.array_state,
        }
    }
}

/// Line of a volume in the table, followed by a line about its sync, if one runs or is pending.
fn volume_lines(
    state: &TopState,
    row: &VolumeRow<'_>,
    width: usize,
    is_chosen: bool,
) -> Vec<Line<'static>> {
    let VolumeRow { server, volume, .. } = row;
    let [read, reads, write, writes] = traffic_cells(row.traffic());
    let size = size::rounded(Bytes(volume.size));
    let up = format!("{}/{}", volume.slots.saturating_sub(volume.degraded), volume.slots);
    let cells = [&volume.level, &size, row.state(), &up, &read, &reads, &write, &writes];
    let mark = if is_chosen { ">" } else { " " };
    let text = volume_columns(mark, &volume.name, cells, width);
    let is_bad = volume.degraded > 0 || volume.no_space || server.last.poisoned;
    let style = match server.presence {
        Presence::Here if is_bad => coloured(state, Color::Red),
        Presence::Here => Style::new(),
        Presence::Gone | Presence::Silent => Style::new().add_modifier(Modifier::DIM),
    };
    let mut lines = vec![Line::styled(text, style.patch(choice(state, Pane::Volumes, is_chosen)))];
    if server.presence == Presence::Here {
        lines.extend(sync_text(volume).map(|text| Line::from(left(&text, width))));
    }
    lines
}

/// Text about the progress of a sync, with its speed and the time that is left, or about a sync
/// that waits; `None` if none runs or waits.
fn sync_text(volume: &VolumeStatus) -> Option<String> {
    let Some(action) = volume.running_sync() else {
        let pending = volume.resync_from.map(|_| "   resync pending".to_owned());
        let is_frozen = volume.sync_action == "frozen";
        return pending.or_else(|| is_frozen.then(|| "   frozen".to_owned()));
    };
    let (done, total) = volume.sync_completed?;
    let part = per_mille(done, total);
    let mut text = format!("   {action:<8} {} {:>3}.{} %", bar(part), part / 10, part % 10);
    if let Some(speed) = volume.sync_speed {
        text += &format!("  {}/s", size::rounded(Bytes(speed)));
        let left = Sectors(total.saturating_sub(done)).bytes().0.checked_div(speed);
        text += &left.map_or(String::new(), |seconds| format!("  {} left", hours(seconds)));
    }
    Some(text)
}

/// Lines about one volume, for the part of the screen below the table of volumes.
struct Detail {
    title: Line<'static>,
    heads: Line<'static>,
    members: Vec<Line<'static>>,
    /// Index in `members` of the chosen member.
    chosen: usize,
    /// Lines about states that the user has to act on, about the write-back cache, and about
    /// clients.
    rest: Vec<Line<'static>>,
}

impl Detail {
    fn of(state: &TopState, row: &VolumeRow<'_>, width: usize) -> Self {
        let VolumeRow { server, volume, .. } = row;
        let title = match server.presence {
            Presence::Here => format!(
                "{}: {}, {} not answered, {}; runs for {}",
                volume.name,
                counted(server.last.clients, "client"),
                counted(volume.requests_active, "request"),
                server.last.backend,
                hours(server.last.uptime_ms / 1000),
            ),
            Presence::Gone | Presence::Silent => {
                format!("{}: {}; this is the last that was seen", volume.name, row.state())
            }
        };
        let cells = ["SLOT", "STATE", "IOPS", "READ/s", "WRITE/s", "MEAN", "99%", "ERR", "IN"];
        let heads = Line::styled(member_columns(" ", "MEMBER", cells, width), Modifier::UNDERLINED);
        let rows = state.members(row);
        let chosen = state.member_place(&rows);
        let line =
            |(place, row): (usize, &MemberRow<'_>)| member_line(state, row, width, place == chosen);
        let members = rows.iter().enumerate().map(line).collect();
        let mut rest: Vec<Line<'static>> = states::of_running(volume)
            .iter()
            .map(|found| format!("{}: {}", found.id(), found.says()))
            .map(|text| Line::styled(left(&text, width), coloured(state, Color::Yellow)))
            .collect();
        if let Some(cache) = &volume.write_back {
            rest.extend(cache_lines(state, row, cache, width));
        }
        rest.extend(client_lines(row, width));
        let title = Line::styled(left(&title, width), Modifier::BOLD);
        Self { title, heads, members, chosen, rest }
    }
}

/// Text of a line in the table of members, `width` columns wide.
fn member_columns(mark: &str, name: &str, cells: [&str; 9], width: usize) -> String {
    let name = right_end(name, width - 67);
    let [slot, state, requests, read, write, mean, p99, errors, in_flight] = cells;
    format!(
        "{mark}{name} {slot:>4} {} {requests:>6} {read:>8} {write:>8} {mean:>7} {p99:>7} \
         {errors:>4} {in_flight:>3}",
        left(state, 10)
    )
}

fn member_line(
    state: &TopState,
    row: &MemberRow<'_>,
    width: usize,
    is_chosen: bool,
) -> Line<'static> {
    let member = row.member;
    let [read, _, write, _] = traffic_cells(row.traffic);
    let requests = row.traffic.map_or(NONE.to_owned(), |traffic| count(traffic.requests()));
    let mean = row.latency.map_or(NONE.to_owned(), |latency| micros(latency.mean_us));
    let p99 = row.latency.map_or(NONE.to_owned(), p99_text);
    let slot = match (member.slot, member.replaces) {
        (Some(slot), _) => slot.to_string(),
        (None, Some(slot)) => format!(">{slot}"),
        (None, None) => NONE.to_owned(),
    };
    let failed = errors(member);
    let (errors, in_flight) = (count(failed), count(member.in_flight.into()));
    let cells = [&slot, &member.state, &requests, &read, &write, &mean, &p99, &errors, &in_flight];
    let is_marked = is_chosen && state.pane == Pane::Members;
    let mark = if is_marked { ">" } else { " " };
    let text = member_columns(mark, &member.label, cells.map(String::as_str), width);
    let style = match member.state.as_str() {
        "faulty" => coloured(state, Color::Red),
        _ if failed > 0 => coloured(state, Color::Red),
        "rebuilding" => coloured(state, Color::Yellow),
        _ => Style::new(),
    };
    Line::styled(text, style.patch(choice(state, Pane::Members, is_chosen)))
}

/// Text of the bound below which 99 % of the latencies were.
fn p99_text(latency: Latency) -> String {
    latency.p99_below_us.map_or(">67 s".to_owned(), |bound| format!("<{}", micros(bound)))
}

/// Lines about the dirty pages of the write-back cache, and their limits.
fn cache_lines(
    state: &TopState,
    row: &VolumeRow<'_>,
    cache: &WriteBackStatus,
    width: usize,
) -> Vec<Line<'static>> {
    let size = |bytes| size::rounded(Bytes(bytes));
    let held = cache.dirty.saturating_add(cache.writeback);
    let part = per_mille(held, cache.dirty_bytes);
    let written = row.since.and_then(|(interval, before)| {
        Some(interval.rate(before.write_back.as_ref()?.written, cache.written))
    });
    let written = written.map_or(String::new(), |rate| format!(", {}/s", size(rate)));
    let mut lines = vec![
        format!(
            "cache {} {} of {}, background from {}",
            bar(part),
            size(held),
            size(cache.dirty_bytes),
            size(cache.dirty_background_bytes),
        ),
        format!(
            "      {} dirty, {} in write-back{written}; {} delayed",
            size(cache.dirty),
            size(cache.writeback),
            counted(usize::try_from(cache.answers_delayed).unwrap_or(usize::MAX), "answer"),
        ),
    ];
    lines.extend(
        cache.error.as_ref().map(|why| format!("      write-back fails and is tried again: {why}")),
    );
    let style = if cache.error.is_some() { coloured(state, Color::Red) } else { Style::new() };
    lines.into_iter().map(|text| Line::styled(left(&text, width), style)).collect()
}

/// Latency of the clients' requests, and a table of the connected clients with a line of heads;
/// empty if there are none.
fn client_lines(row: &VolumeRow<'_>, width: usize) -> Vec<Line<'static>> {
    let shares = row.volume.shares.iter();
    let shares: Vec<&ShareStatus> =
        shares.filter(|share| is_of_clients(share) && !share.gone).collect();
    if shares.is_empty() {
        return Vec::new();
    }
    let heads = ["CLASS", "WEIGHT", "READ/s", "r/s", "WRITE/s", "w/s", "SHARE"];
    let heads = client_columns("CLIENT", heads, width);
    let mut lines = Vec::new();
    if let Some(latency) = row.latency() {
        let (mean, p99) = (micros(latency.mean_us), p99_text(latency));
        lines.push(Line::from(format!("clients: reads and writes take {mean}, 99% {p99}")));
    }
    lines.push(Line::styled(heads, Modifier::UNDERLINED));
    lines.extend(shares.into_iter().map(|share| {
        let traffic = row.since.map(|(interval, before)| interval.account(before, share));
        let [read, reads, write, writes] = traffic_cells(traffic);
        let weight = share.weight.to_string();
        let recently = share.share_recently_permille;
        let recently = format!("{}.{}%", recently / 10, recently % 10);
        let class = printable(&share.class);
        let cells = [&class, &weight, &read, &reads, &write, &writes, &recently];
        Line::from(client_columns(&share_label(share), cells.map(String::as_str), width))
    }));
    lines
}

/// Text of a line in the table of clients, `width` columns wide.
fn client_columns(name: &str, cells: [&str; 7], width: usize) -> String {
    let name = left(name, width - 57);
    let [class, weight, read, reads, write, writes, share] = cells;
    format!(
        " {name} {} {weight:>6} {read:>8} {reads:>6} {write:>8} {writes:>6} {share:>7}",
        left(class, 8)
    )
}

/// Lines at the bottom of the screen: a question to the user, or a message, or the keys.
fn bottom(state: &TopState, width: usize) -> Vec<Line<'static>> {
    let sentence = state.message.as_ref().or(state.silence.as_ref());
    let (text, style) = match (&state.mode, sentence) {
        (Mode::Confirm(action), _) => (
            format!("Run this? y/n  {}", action.command_line()),
            coloured(state, Color::Yellow).add_modifier(Modifier::REVERSED),
        ),
        (_, Some(message)) => (message.clone(), Style::new().add_modifier(Modifier::BOLD)),
        (Mode::Help, None) => ("Any key goes back".to_owned(), Style::new()),
        (Mode::Watch, None) => (
            format!(
                "q quit  ? help  Tab volumes/members  s sort: {}  c check  i idle  f fail",
                state.sort.name()
            ),
            Style::new().add_modifier(Modifier::DIM),
        ),
    };
    broken(&text, width).into_iter().map(|line| line.patch_style(style)).collect()
}

/// Text divided into lines of `width` columns, without regard to words, so that a command line
/// keeps all of its characters.
fn broken(text: &str, width: usize) -> Vec<Line<'static>> {
    let mut lines = vec![String::new()];
    for letter in printable(text).chars() {
        let line = lines.last_mut().expect("it has one at least");
        let mut longer = line.clone();
        longer.push(letter);
        match columns(&longer) > width.max(1) {
            true => lines.push(letter.to_string()),
            false => *line = longer,
        }
    }
    lines.into_iter().map(Line::from).collect()
}

/// Style that has this colour if the screen has colours, and is bold otherwise.
fn coloured(state: &TopState, colour: Color) -> Style {
    match state.has_colour {
        true => Style::new().fg(colour),
        false => Style::new().add_modifier(Modifier::BOLD),
    }
}

/// Style of a line in a pane: reversed if it is the chosen line of the pane that has the keys.
fn choice(state: &TopState, pane: Pane, is_chosen: bool) -> Style {
    match is_chosen && state.pane == pane {
        true => Style::new().add_modifier(Modifier::REVERSED),
        false => Style::new(),
    }
}

/// Number of columns that a text takes on a terminal.
fn columns(text: &str) -> usize {
    Span::raw(text).width()
}

/// Text padded to `width` columns, or cut off at its end if it is longer.
fn left(text: &str, width: usize) -> String {
    let mut fitted = String::new();
    let mut used = 0;
    for letter in printable(text).chars() {
        let wide = columns(letter.encode_utf8(&mut [0; 4]));
        if used + wide > width {
            break;
        }
        used += wide;
        fitted.push(letter);
    }
    fitted + &" ".repeat(width - used)
}

/// Text padded to `width` columns, or cut off at its beginning if it is longer, because the paths
/// of members differ at their ends.
fn right_end(text: &str, width: usize) -> String {
    let text = printable(text);
    if columns(&text) <= width {
        return left(&text, width);
    }
    let (mut used, mut start) = (1, text.len());
    for (place, letter) in text.char_indices().rev() {
        used += columns(letter.encode_utf8(&mut [0; 4]));
        if used > width {
            break;
        }
        start = place;
    }
    left(&format!("…{}", &text[start..]), width)
}

/// Texts of rates for the cells of a table: bytes read, reads, bytes written, writes.
fn traffic_cells(traffic: Option<Traffic>) -> [String; 4] {
    let Some(traffic) = traffic else { return [NONE; 4].map(str::to_owned) };
    let size = |bytes| size::rounded(Bytes(bytes));
    [
        size(traffic.bytes_read),
        count(traffic.reads),
        size(traffic.bytes_written),
        count(traffic.writes),
    ]
}

/// Text of a number, in at most six characters up to 10^14; from a million on in whole millions or
/// billions.
fn count(number: u64) -> String {
    match number {
        0..1_000_000 => number.to_string(),
        1_000_000..1_000_000_000 => format!("{}M", number / 1_000_000),
        _ => format!("{}G", number / 1_000_000_000),
    }
}

/// Text of a number with its noun: `1 volume`, `2 volumes`.
fn counted(number: usize, noun: &str) -> String {
    format!("{number} {noun}{}", if number == 1 { "" } else { "s" })
}

/// Text of a latency in microseconds, with two digits or three: `512 µs`, `2.0 ms`, `131 ms`, `1.5
/// s`.
fn micros(us: u64) -> String {
    let tenths = |unit: u64| {
        let tenths = us.saturating_add(unit / 20) / (unit / 10);
        format!("{}.{}", tenths / 10, tenths % 10)
    };
    match us {
        0..1000 => format!("{us} µs"),
        1000..99_950 => format!("{} ms", tenths(1000)),
        99_950..999_500 => format!("{} ms", (us + 500) / 1000),
        _ => format!("{} s", tenths(1_000_000)),
    }
}

/// Text of a time in seconds, as hours, minutes and seconds: `1:02:03`.
fn hours(seconds: u64) -> String {
    format!("{}:{:02}:{:02}", seconds / 3600, seconds / 60 % 60, seconds % 60)
}

/// Text of a cell for a figure that is not known or does not exist.
const NONE: &str = "-";

/// Text of the page of help.
const HELP: &str = "\
weft top: running volumes, and the members and clients of the chosen one

  arrows, j k        choose a line; Page Up and Down, Home and End go farther
  Tab                goes to the members and back to the volumes
  s                  sorts by name, by bytes per second, or by requests per second
  c                  starts a check of the volume
  i                  stops the sync of the volume
  f                  declares the chosen member failed
  q, Escape, Ctrl-C  quits

c, i and f ask first, and name the command that does the same.
UP is slots with a member in sync, of all. Rates are since the last look but
one. MEAN and 99% are latencies of a member's reads and writes, ERR its failed
requests, IN the requests that it has not answered yet.";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_fit_into_their_columns() {
        for (us, expected) in [
            (0, "0 µs"),
            (999, "999 µs"),
            (1000, "1.0 ms"),
            (8192, "8.2 ms"),
            (99_949, "99.9 ms"),
            (99_950, "100 ms"),
            (999_499, "999 ms"),
            (999_500, "1.0 s"),
            (1 << 26, "67.1 s"),
        ] {
            assert_eq!(micros(us), expected, "{us}");
        }
        for (number, expected) in
            [(999_999, "999999"), (1_000_000, "1M"), (123_456_789_000, "123G")]
        {
            assert_eq!(count(number), expected);
        }
        assert_eq!(hours(360_061), "100:01:01");
        assert_eq!((right_end("/a/bcd", 4), right_end("/a", 4)), ("…bcd".into(), "/a  ".into()));
        // A character of two columns that has room for one only is left out.
        assert_eq!((left("磁盘", 3), right_end("磁盘磁", 4)), ("磁 ".into(), "…磁 ".into()));
    }

    #[test]
    fn the_first_part_gets_half_or_what_the_other_does_not_need() {
        for (first, other, room, expected) in [
            (3, 3, 10, 3),
            (20, 3, 10, 7),
            (20, 20, 10, 5),
            (20, 20, 11, 6),
            (2, 20, 10, 2),
            (9, 9, 0, 0),
        ] {
            assert_eq!(split(first, other, room), expected, "{first} and {other} of {room}");
        }
    }
}
