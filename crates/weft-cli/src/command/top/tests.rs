//! Screens of `weft top`, exactly, and what keys do to them.

use ratatui::Terminal;
use ratatui::backend::TestBackend;
use ratatui::style::{Color, Modifier};
use weft_export::control::{
    AnsweredStatus, MemberStatus, ShareStatus, Status, VolumeStatus, WriteBackStatus,
};

use super::drawing::{draw, text};
use super::keyboard::{TopKey, TopOrder, press};
use super::known::{ActionKind, Looked, Mode, Pane, TopAction, TopState};

/// Status of a member that has answered `reads` reads of 8 sectors, each in 1.5 ms.
fn member(index: u16, name: &str, state: &str, reads: u64) -> MemberStatus {
    MemberStatus {
        index,
        label: format!("/srv/{name}"),
        slot: (state == "in_sync" || state == "rebuilding").then_some(index),
        dev_number: index.into(),
        state: state.into(),
        reads,
        sectors_read: reads * 8,
        in_flight: 2,
        answered: vec![answered(reads, 1500)],
        ..MemberStatus::default()
    }
}

/// Reads that took `us` microseconds each.
fn answered(reads: u64, us: u64) -> AnsweredStatus {
    let below = (1..=AnsweredStatus::BOUNDS).map(|power| if us < 1 << power { reads } else { 0 });
    AnsweredStatus {
        kind: "read".into(),
        count: reads,
        sum_us: reads * us,
        below: below.collect(),
        ..AnsweredStatus::default()
    }
}

/// A RAID 5 of three members. Each of them has answered `reads` reads, and a client has made as
/// many.
fn volume(name: &str, reads: u64) -> VolumeStatus {
    VolumeStatus {
        name: name.into(),
        array_state: "clean".into(),
        level: "raid5".into(),
        size: 126 << 20,
        slots: 3,
        sync_action: "idle".into(),
        requests_active: 3,
        members: ["m0", "m1", "m2"]
            .into_iter()
            .zip(0..)
            .map(|(name, index)| member(index, name, "in_sync", reads))
            .collect(),
        array: Some(weft_export::control::ArrayStatus::default()),
        shares: vec![ShareStatus {
            who: "client".into(),
            client: Some(1),
            export: Some(name.into()),
            class: "be:4".into(),
            weight: 40,
            reads,
            bytes_read: reads * 4096,
            share_recently_permille: 875,
            ..ShareStatus::default()
        }],
        ..VolumeStatus::default()
    }
}

/// Answer of a server with this volume, `second` seconds after the start of the server.
fn answer(volume: &VolumeStatus, second: u64) -> Looked {
    let status = Status {
        pid: 7,
        uptime_ms: second * 1000,
        backend: "io_uring".into(),
        clients: 1,
        volumes: vec![volume.clone()],
        ..Status::default()
    };
    (volume.name.clone(), Ok(status))
}

/// State after two statuses of both volumes, one second apart. `home` and `tour` are the second
/// statuses.
fn watched(home: &VolumeStatus, tour: &VolumeStatus) -> TopState {
    let mut state = TopState::new(1, true);
    state.look(vec![answer(&volume("home", 0), 60), answer(&volume("tour", 100), 3700)]);
    state.look(vec![answer(home, 61), answer(tour, 3701)]);
    state
}

/// State after a second in which the volume `home` had no request, and `tour` had 250 reads.
fn two() -> TopState {
    watched(&volume("home", 0), &volume("tour", 350))
}

/// Lines of the screen, without spaces at their ends.
fn screen(state: &TopState, width: u16, height: u16) -> Vec<String> {
    let mut terminal = Terminal::new(TestBackend::new(width, height)).unwrap();
    terminal.draw(|frame| draw(state, frame.area(), frame.buffer_mut())).unwrap();
    let cells = terminal.backend().buffer().content();
    let lines = cells.chunks(usize::from(width)).map(|line| {
        line.iter().map(ratatui::buffer::Cell::symbol).collect::<String>().trim_end().to_owned()
    });
    lines.collect()
}

fn shows(state: &TopState, height: u16, expected: &str) {
    let found = screen(state, 80, height).join("\n");
    assert_eq!(found, expected.trim_matches('\n'), "found:\n{found}\n");
}

fn keys(state: &mut TopState, letters: &str) -> Option<TopOrder> {
    letters.chars().fold(None, |_, letter| press(state, TopKey::Char(letter)))
}

#[test]
fn two_volumes_have_their_rates_and_the_chosen_one_its_members_and_clients() {
    let tour = VolumeStatus { answered: vec![answered(350, 5000)], ..volume("tour", 350) };
    let mut state = watched(&volume("home", 0), &tour);
    press(&mut state, TopKey::Down);
    shows(
        &state,
        16,
        "
weft top: 2 volumes                                                    every 1 s
 VOLUME      LEVEL      SIZE STATE            UP   READ/s    r/s  WRITE/s    w/s
 home        raid5   126 MiB clean           3/3      0 B      0      0 B      0
>tour        raid5   126 MiB clean           3/3 1000 KiB    250      0 B      0
tour: 1 client, 3 requests not answered, io_uring; runs for 1:01:41
 MEMBER        SLOT STATE        IOPS   READ/s  WRITE/s    MEAN     99%  ERR  IN
 /srv/m0          0 in_sync       250 1000 KiB      0 B  1.5 ms <2.0 ms    0   2
 /srv/m1          1 in_sync       250 1000 KiB      0 B  1.5 ms <2.0 ms    0   2
 /srv/m2          2 in_sync       250 1000 KiB      0 B  1.5 ms <2.0 ms    0   2
clients: reads and writes take 5.0 ms, 99% <8.2 ms
 CLIENT                  CLASS    WEIGHT   READ/s    r/s  WRITE/s    w/s   SHARE
 client 1 of tour        be:4         40 1000 KiB    250      0 B      0   87.5%



q quit  ? help  Tab volumes/members  s sort: name  c check  i idle  f fail
",
    );
}

/// The first look has no rates: these need two.
#[test]
fn figures_change_with_the_second_look_and_not_with_another_server() {
    let mut state = TopState::new(1, true);
    state.look(vec![answer(&volume("tour", 100), 10)]);
    let line = |state: &TopState| screen(state, 80, 12)[2].clone();
    let mut lines = vec![line(&state)];
    for (reads, second) in [(350, 11), (350, 12), (351, 14), (351, 14)] {
        state.look(vec![answer(&volume("tour", reads), second)]);
        lines.push(line(&state));
    }
    // A server that was started anew: its counters began at 0.
    let (name, status) = answer(&volume("tour", 9), 1);
    state.look(vec![(name, status.map(|status| Status { pid: 8, ..status }))]);
    lines.push(line(&state));
    let rates: Vec<&str> = lines.iter().map(|line| line[48..64].trim()).collect();
    let expected = [
        "-      -",
        "1000 KiB    250",
        "0 B      0",
        "2.00 KiB      1",
        "2.00 KiB      1",
        "-      -",
    ];
    assert_eq!(rates, expected);
}

#[test]
fn a_look_right_after_another_one_keeps_the_rates() {
    let mut state = two();
    let before = screen(&state, 80, 12)[3].clone();
    let (name, status) = answer(&volume("tour", 351), 3701);
    let later = status.map(|status| Status { uptime_ms: status.uptime_ms + 4, ..status });
    state.look(vec![answer(&volume("home", 0), 61), (name, later)]);
    assert_eq!(screen(&state, 80, 12)[3], before, "over 1004 ms, not over 4");
}

#[test]
fn a_rebuild_has_its_bar_speed_and_time() {
    let rebuilding = VolumeStatus {
        degraded: 1,
        sync_action: "recover".into(),
        sync_completed: Some((32 << 11, 128 << 11)),
        sync_speed: Some(3 << 20),
        members: vec![
            member(0, "m0", "in_sync", 350),
            member(1, "m1", "in_sync", 350),
            member(2, "a-folder/with-a-long-name/m3", "rebuilding", 0),
            member(3, "m2", "faulty", 100),
        ],
        ..volume("tour", 350)
    };
    let mut state = watched(&volume("home", 0), &rebuilding);
    press(&mut state, TopKey::Down);
    shows(
        &state,
        18,
        "
weft top: 2 volumes, 1 degraded                                        every 1 s
 VOLUME      LEVEL      SIZE STATE            UP   READ/s    r/s  WRITE/s    w/s
 home        raid5   126 MiB clean           3/3      0 B      0      0 B      0
>tour        raid5   126 MiB clean           2/3 1000 KiB    250      0 B      0
   recover  [=====>...............]  25.0 %  3.00 MiB/s  0:00:32 left
tour: 1 client, 3 requests not answered, io_uring; runs for 1:01:41
 MEMBER        SLOT STATE        IOPS   READ/s  WRITE/s    MEAN     99%  ERR  IN
 /srv/m0          0 in_sync       250 1000 KiB      0 B  1.5 ms <2.0 ms    0   2
 /srv/m1          1 in_sync       250 1000 KiB      0 B  1.5 ms <2.0 ms    0   2
 …long-name/m3    2 rebuilding      -        -        -       -       -    0   2
 /srv/m2          - faulty          -        -        -       -       -    0   2
rebuilding: a member does not have all of its data yet
member-faulty: a member has failed
 CLIENT                  CLASS    WEIGHT   READ/s    r/s  WRITE/s    w/s   SHARE
 client 1 of tour        be:4         40 1000 KiB    250      0 B      0   87.5%


q quit  ? help  Tab volumes/members  s sort: name  c check  i idle  f fail
",
    );
    // Colour says nothing alone: it is on the lines of the volume and of the failed member.
    let red = |state: &TopState| {
        let mut terminal = Terminal::new(TestBackend::new(80, 18)).unwrap();
        terminal.draw(|frame| draw(state, frame.area(), frame.buffer_mut())).unwrap();
        let buffer = terminal.backend().buffer().clone();
        let is_red = |y: &u16| buffer[(0, *y)].fg == Color::Red;
        let is_bold = |y: &u16| buffer[(0, *y)].modifier.contains(Modifier::BOLD);
        ((0..18).filter(is_red).count(), (0..18).filter(is_bold).count())
    };
    assert_eq!(red(&state), (2, 2));
    state.has_colour = false;
    assert!(matches!(red(&state), (0, bold) if bold > 3));
}

#[test]
fn dirty_pages_are_shown_against_their_limits() {
    let cached = |written, error: Option<&str>| VolumeStatus {
        write_back: Some(WriteBackStatus {
            dirty_bytes: 256 << 20,
            dirty_background_bytes: 128 << 20,
            dirty: 60 << 20,
            writeback: 4 << 20,
            written,
            answers_delayed: 2,
            error: error.map(str::to_owned),
            ..WriteBackStatus::default()
        }),
        shares: Vec::new(),
        ..volume("tour", 0)
    };
    let mut state = TopState::new(1, true);
    state.look(vec![answer(&cached(1 << 20, None), 5)]);
    state.look(vec![answer(&cached(9 << 20, Some("no space")), 7)]);
    shows(
        &state,
        14,
        "
weft top: 1 volume                                                     every 1 s
 VOLUME      LEVEL      SIZE STATE            UP   READ/s    r/s  WRITE/s    w/s
>tour        raid5   126 MiB clean           3/3      0 B      0      0 B      0
tour: 1 client, 3 requests not answered, io_uring; runs for 0:00:07
 MEMBER        SLOT STATE        IOPS   READ/s  WRITE/s    MEAN     99%  ERR  IN
 /srv/m0          0 in_sync         0      0 B      0 B       -       -    0   2
 /srv/m1          1 in_sync         0      0 B      0 B       -       -    0   2
 /srv/m2          2 in_sync         0      0 B      0 B       -       -    0   2
cache [=====>...............] 64.0 MiB of 256 MiB, background from 128 MiB
      60.0 MiB dirty, 4.00 MiB in write-back, 4.00 MiB/s; 2 answers delayed
      write-back fails and is tried again: no space


q quit  ? help  Tab volumes/members  s sort: name  c check  i idle  f fail
",
    );
}

#[test]
fn a_server_that_ends_stays_as_gone_and_may_come_back() {
    let mut state = two();
    state.look(vec![answer(&volume("home", 0), 62)]);
    press(&mut state, TopKey::Down);
    shows(
        &state,
        16,
        "
weft top: 2 volumes, 1 gone                                            every 1 s
 VOLUME      LEVEL      SIZE STATE            UP   READ/s    r/s  WRITE/s    w/s
 home        raid5   126 MiB clean           3/3      0 B      0      0 B      0
>tour        raid5   126 MiB gone            3/3        -      -        -      -
tour: gone; this is the last that was seen
 MEMBER        SLOT STATE        IOPS   READ/s  WRITE/s    MEAN     99%  ERR  IN
 /srv/m0          0 in_sync         -        -        -       -       -    0   2
 /srv/m1          1 in_sync         -        -        -       -       -    0   2
 /srv/m2          2 in_sync         -        -        -       -       -    0   2
 CLIENT                  CLASS    WEIGHT   READ/s    r/s  WRITE/s    w/s   SHARE
 client 1 of tour        be:4         40        -      -        -      -   87.5%




q quit  ? help  Tab volumes/members  s sort: name  c check  i idle  f fail
",
    );
    assert_eq!(keys(&mut state, "c"), None);
    assert_eq!(state.message.as_deref(), Some("tour is gone"));
    press(&mut state, TopKey::Down);
    let silent = ("tour".to_owned(), Err("tour: control socket: timed out".to_owned()));
    state.look(vec![answer(&volume("home", 0), 63), silent]);
    let lines = screen(&state, 80, 16);
    assert!(lines[3].contains("no answer"), "{lines:?}");
    assert_eq!(lines[15], "tour: control socket: timed out");
    state.look(vec![answer(&volume("home", 0), 64), answer(&volume("tour", 350), 3702)]);
    let lines = screen(&state, 80, 16);
    assert!(lines[3].contains(" clean ") && lines[15].starts_with("q quit"), "{lines:?}");
}

#[test]
fn a_small_terminal_gets_a_sentence() {
    let state = two();
    let lines = screen(&state, 40, 24);
    assert_eq!(
        lines[..3],
        ["The terminal has 40 columns and 24 lines", "; weft top needs 80 and 12. q quits.", ""]
    );
    assert!(screen(&state, 80, 11)[0].starts_with("The terminal has 80 columns and 11 lines; "));
    for (width, height) in [(1, 1), (3, 40), (300, 1)] {
        screen(&state, width, height);
    }
}

#[test]
fn a_list_that_has_no_room_moves_with_the_choice() {
    let mut state = TopState::new(1, true);
    let names: Vec<String> = (0..30).map(|number| format!("v{number:02}")).collect();
    state.look(names.iter().map(|name| answer(&volume(name, 0), 5)).collect());
    for (key, chosen) in [
        (TopKey::Home, "v00"),
        (TopKey::Down, "v01"),
        (TopKey::PageDown, "v11"),
        (TopKey::End, "v29"),
        (TopKey::Down, "v29"),
        (TopKey::Up, "v28"),
        (TopKey::PageUp, "v18"),
    ] {
        press(&mut state, key);
        for height in 12..40 {
            let lines = screen(&state, 80, height);
            let marked: Vec<&String> = lines.iter().filter(|it| it.starts_with('>')).collect();
            assert!(
                marked.len() == 1 && marked[0].starts_with(&format!(">{chosen} ")),
                "{lines:?}"
            );
            let place = chosen[1..].parse::<usize>().unwrap() + 1;
            assert!(lines[1].starts_with(&format!(" VOLUME {place}/3")), "{lines:?}");
        }
    }
}

#[test]
fn keys_that_change_a_volume_ask_first() {
    let mut state = two();
    let syncing = VolumeStatus { sync_action: "check".into(), ..volume("tour", 350) };
    state.look(vec![answer(&volume("home", 0), 62), answer(&syncing, 3702)]);
    let act = |kind| TopOrder::Act(TopAction { server: "tour".into(), kind });
    let fail = ActionKind::Fail { index: 1, name: "/srv/m1".into() };
    press(&mut state, TopKey::Down);
    for (letters, line, order) in [
        ("c", "Run this? y/n  weft check --no-wait tour", act(ActionKind::Check)),
        ("i", "Run this? y/n  weft idle tour", act(ActionKind::Idle)),
        ("\tjf", "Run this? y/n  weft fail tour /srv/m1", act(fail)),
    ] {
        for letter in letters.chars() {
            let key = if letter == '\t' { TopKey::Tab } else { TopKey::Char(letter) };
            assert_eq!(press(&mut state, key), None, "{letter} only asks");
        }
        assert_eq!(screen(&state, 80, 12).last().unwrap(), line);
        // Other keys leave the question; n takes it back.
        assert_eq!(keys(&mut state, "cfx"), None);
        assert!(matches!(state.mode, Mode::Confirm(_)));
        assert_eq!(keys(&mut state, "n"), None);
        assert!(state.message.as_ref().unwrap().starts_with("Nothing was done: weft "));
        assert_eq!(keys(&mut state, "y"), None, "there is no question");
        assert_eq!(keys(&mut state, &letters[letters.len() - 1..]), None);
        assert_eq!(keys(&mut state, "y"), Some(order));
        assert_eq!(state.mode, Mode::Watch);
    }
}

#[test]
fn keys_without_a_meaning_say_so() {
    let mut state = TopState::new(1, true);
    for letters in ["c", "f", "i", "j", "k", "s"] {
        assert_eq!(keys(&mut state, letters), None);
    }
    assert!(screen(&state, 80, 12)[2].starts_with("No volume runs"));
    let mut state = two();
    keys(&mut state, "i");
    assert_eq!(state.message.as_deref(), Some("home: no sync runs"));
    keys(&mut state, "f");
    assert!(state.message.as_ref().unwrap().starts_with("Tab goes to the members"));
    for quit in [TopKey::Char('q'), TopKey::Escape, TopKey::Interrupt] {
        assert_eq!(press(&mut two(), quit), Some(TopOrder::Quit));
    }
    keys(&mut state, "?");
    assert_eq!(screen(&state, 80, 24)[23], "Any key goes back");
    assert!(screen(&state, 80, 24).iter().any(|line| line.contains("declares the chosen")));
    assert_eq!(keys(&mut state, "q"), None, "it closes the help");
    assert_eq!(press(&mut state, TopKey::Char('?')), None);
    assert_eq!(press(&mut state, TopKey::Interrupt), Some(TopOrder::Quit));
}

#[test]
fn members_of_one_label_are_failed_by_number() {
    let twins =
        ["m", "m"].into_iter().zip(4..).map(|(name, index)| member(index, name, "in_sync", 0));
    let mut state = TopState::new(1, true);
    state.look(vec![answer(&VolumeStatus { members: twins.collect(), ..volume("tour", 0) }, 5)]);
    press(&mut state, TopKey::Tab);
    keys(&mut state, "jf");
    assert_eq!(screen(&state, 80, 12).last().unwrap(), "Run this? y/n  weft fail tour 5");
}

#[test]
fn the_order_is_by_name_bytes_or_requests_and_the_choice_stays() {
    let mut state = two();
    assert_eq!(state.chosen().unwrap().1.server.name, "home");
    for expected in [["tour", "home"], ["tour", "home"], ["home", "tour"]] {
        keys(&mut state, "s");
        let names: Vec<&str> = state.volumes().iter().map(|row| row.server.name.as_str()).collect();
        assert_eq!(names, expected, "{:?}", state.sort);
        assert_eq!(state.chosen().unwrap().1.server.name, "home");
    }
    press(&mut state, TopKey::Tab);
    assert_eq!(state.pane, Pane::Members);
}

#[test]
fn names_cannot_send_control_sequences() {
    let mut evil = volume("tour", 0);
    evil.shares[0].export = Some("\u{1b}[2Jx".into());
    evil.members[0].label = "\u{1b}]0;title\u{7}".into();
    evil.write_back =
        Some(WriteBackStatus { error: Some("\u{1b}[31m".into()), ..WriteBackStatus::default() });
    let mut state = TopState::new(1, true);
    state.look(vec![answer(&evil, 1), ("x".into(), Err("\u{1b}c".into()))]);
    let all = text(&state, 100) + &screen(&state, 100, 30).join("\n");
    assert!(all.contains("client 1 of \\u{1b}[2Jx") && all.contains("\\u{1b}c"), "{all}");
    assert!(all.chars().all(|letter| letter == '\n' || !letter.is_control()), "{all:?}");
}

#[test]
fn text_has_the_details_of_every_volume() {
    let found = text(&two(), 80);
    let expected = "
weft top: 2 volumes                                                    every 1 s
 VOLUME      LEVEL      SIZE STATE            UP   READ/s    r/s  WRITE/s    w/s
 home        raid5   126 MiB clean           3/3      0 B      0      0 B      0
 tour        raid5   126 MiB clean           3/3 1000 KiB    250      0 B      0

home: 1 client, 3 requests not answered, io_uring; runs for 0:01:01
 MEMBER        SLOT STATE        IOPS   READ/s  WRITE/s    MEAN     99%  ERR  IN
 /srv/m0          0 in_sync         0      0 B      0 B       -       -    0   2
 /srv/m1          1 in_sync         0      0 B      0 B       -       -    0   2
 /srv/m2          2 in_sync         0      0 B      0 B       -       -    0   2
 CLIENT                  CLASS    WEIGHT   READ/s    r/s  WRITE/s    w/s   SHARE
 client 1 of home        be:4         40      0 B      0      0 B      0   87.5%

tour: 1 client, 3 requests not answered, io_uring; runs for 1:01:41
 MEMBER        SLOT STATE        IOPS   READ/s  WRITE/s    MEAN     99%  ERR  IN
 /srv/m0          0 in_sync       250 1000 KiB      0 B  1.5 ms <2.0 ms    0   2
 /srv/m1          1 in_sync       250 1000 KiB      0 B  1.5 ms <2.0 ms    0   2
 /srv/m2          2 in_sync       250 1000 KiB      0 B  1.5 ms <2.0 ms    0   2
 CLIENT                  CLASS    WEIGHT   READ/s    r/s  WRITE/s    w/s   SHARE
 client 1 of tour        be:4         40 1000 KiB    250      0 B      0   87.5%
";
    assert_eq!(found, expected.trim_start_matches('\n'), "found:\n{found}\n");
}
