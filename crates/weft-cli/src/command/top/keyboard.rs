//! Keys of the screen: the changes of its state, and the orders, that follow from each key.
//!
//! A key for a change of a volume only asks the user; the answer `y` gives the order.

use super::known::{ActionKind, MemberRow, Mode, Pane, Presence, TopAction, TopState, VolumeRow};

/// Keys that the screen knows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum TopKey {
    Char(char),
    Down,
    End,
    Escape,
    Home,
    /// Ctrl-C.
    Interrupt,
    PageDown,
    PageUp,
    Tab,
    Up,
}

/// Order to the program that follows from a key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum TopOrder {
    /// Carry out a change of a volume, which the user has confirmed.
    Act(TopAction),
    /// End the program.
    Quit,
}

/// Handles a key: changes the state, and returns the order that follows from the key, if there is
/// one.
pub(super) fn press(state: &mut TopState, key: TopKey) -> Option<TopOrder> {
    state.message = None;
    if key == TopKey::Interrupt {
        return Some(TopOrder::Quit);
    }
    match std::mem::replace(&mut state.mode, Mode::Watch) {
        Mode::Confirm(action) => match key {
            TopKey::Char('y' | 'Y') => return Some(TopOrder::Act(action)),
            TopKey::Char('n' | 'N' | 'q') | TopKey::Escape => {
                state.message = Some(format!("Nothing was done: {}", action.command_line()));
            }
            // Any other key leaves the question as it is.
            _ => state.mode = Mode::Confirm(action),
        },
        // Any key closes the help.
        Mode::Help => {}
        Mode::Watch => return watch(state, key),
    }
    None
}

/// Handles a key while figures are shown. Returns the order that follows from the key, if there is
/// one.
fn watch(state: &mut TopState, key: TopKey) -> Option<TopOrder> {
    match key {
        TopKey::Char('q') | TopKey::Escape => return Some(TopOrder::Quit),
        TopKey::Char('?' | 'h') => state.mode = Mode::Help,
        TopKey::Char('s') => {
            state.hold_choice();
            state.sort = state.sort.next();
        }
        TopKey::Char('j') | TopKey::Down => state.move_by(1),
        TopKey::Char('k') | TopKey::Up => state.move_by(-1),
        TopKey::PageDown => state.move_by(PAGE),
        TopKey::PageUp => state.move_by(-PAGE),
        TopKey::Char('G') | TopKey::End => state.move_by(isize::MAX),
        TopKey::Char('g') | TopKey::Home => state.move_by(isize::MIN),
        TopKey::Tab => {
            state.hold_choice();
            state.pane = match state.pane {
                Pane::Members => Pane::Volumes,
                Pane::Volumes => Pane::Members,
            };
        }
        TopKey::Char(letter @ ('c' | 'f' | 'i')) => match asked(state, letter) {
            Ok(action) => state.mode = Mode::Confirm(action),
            Err(why) => state.message = Some(why),
        },
        TopKey::Char(_) | TopKey::Interrupt => {}
    }
    None
}

/// Change that a letter asks for, of the chosen volume: `c` a check, `i` the end of a sync, `f` a
/// failed member.
///
/// # Errors
/// The change is not possible now; the text is the reason.
fn asked(state: &TopState, letter: char) -> Result<TopAction, String> {
    let (_, row) = state.chosen().ok_or("no volume runs")?;
    let name = &row.server.name;
    if row.server.presence == Presence::Gone {
        return Err(format!("{name} is gone"));
    }
    let kind = match letter {
        'c' => ActionKind::Check,
        'i' if row.volume.running_sync().is_none() => {
            return Err(format!("{name}: no sync runs"));
        }
        'i' => ActionKind::Idle,
        _ if state.pane == Pane::Volumes => {
            return Err("Tab goes to the members, of which f fails the chosen one".to_owned());
        }
        _ => {
            let members = state.members(&row);
            let chosen = members.get(state.member_place(&members));
            let chosen = chosen.ok_or_else(|| format!("{name} has no member"))?;
            ActionKind::Fail { index: chosen.member.index, name: unique_name(&row, chosen) }
        }
    };
    Ok(TopAction { server: name.clone(), kind })
}

/// Name of a member for a command line: its label, or its number if another member has that label.
fn unique_name(row: &VolumeRow<'_>, chosen: &MemberRow<'_>) -> String {
    let same = row.volume.members.iter().filter(|it| it.label == chosen.member.label);
    match same.count() {
        1 => chosen.member.label.clone(),
        _ => chosen.member.dev_number.to_string(),
    }
}

/// Number of lines by which Page Up and Page Down move the choice.
const PAGE: isize = 10;
