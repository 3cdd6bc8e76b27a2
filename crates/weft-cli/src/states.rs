//! States of an array as text and as JSON.
//!
//! The table is the engine's, [`weft_engine::assemble::states`]. This module finds the states of a
//! running volume, and prints them as text and as JSON.

use serde_json::{Value, json};
use weft_engine::assemble::states::AssemblyState;
use weft_export::control::VolumeStatus;

/// JSON of states: `[{"state", "says", "next"}]`, with the problem and the next step of each.
pub(crate) fn to_json(states: &[AssemblyState]) -> Value {
    let one = |state: &AssemblyState| json!({"state": state.id(), "says": state.says(), "next": state.next()});
    states.iter().map(one).collect()
}

/// One line for each state: the problem and the next step.
pub(crate) fn lines(states: &[AssemblyState]) -> Vec<String> {
    states
        .iter()
        .map(|state| format!("{}: {}; {}", state.id(), state.says(), state.next()))
        .collect()
}

/// Next step for an array that is being rescued. Unlike [`AssemblyState::next`], it never names a
/// command that writes to a member.
pub(crate) fn next_reading(state: AssemblyState) -> &'static str {
    match state {
        AssemblyState::NoIdentity => "weft examine MEMBER… shows what its superblocks say",
        AssemblyState::NewlyDegraded => "name it too; weft cat --run MEMBER… reads without it",
        AssemblyState::JournalHoldsData => "--read-only --without-journal reads what members have",
        AssemblyState::Reshaping => {
            "weft examine MEMBER… shows how far it is; copies of the disks can be continued"
        }
        AssemblyState::Replacing | AssemblyState::ReshapePending => "weft cat MEMBER… reads it",
        AssemblyState::WriteBitmap
        | AssemblyState::WriteLogged
        | AssemblyState::WriteBadBlocks
        | AssemblyState::WriteForeign
        | AssemblyState::WriteUnknown => "weft cat or --read-only reads it",
        AssemblyState::BitmapStale => "nothing, as long as the array is only read",
        AssemblyState::Degraded => "name the missing member too, if it can still be read",
        AssemblyState::Rebuilding => "weft cat MEMBER… computes the rest from the others",
        AssemblyState::ResyncPending => {
            "weft cat, serve --read-only and serve --overlay leave members as they are"
        }
        AssemblyState::BadBlocks => "weft examine MEMBER… lists them",
        AssemblyState::WithoutJournal => "name the journal too",
        AssemblyState::MemberFaulty | AssemblyState::Broken => {
            "weft assemble MEMBER… says what is left"
        }
        other => other.next(),
    }
}

/// JSON like [`to_json`], for an array that is being rescued.
pub(crate) fn to_json_reading(states: &[AssemblyState]) -> Value {
    let one = |state: &AssemblyState| json!({"state": state.id(), "says": state.says(), "next": next_reading(*state)});
    states.iter().map(one).collect()
}

/// Lines like [`lines`], for an array that is being rescued.
pub(crate) fn lines_reading(states: &[AssemblyState]) -> Vec<String> {
    states
        .iter()
        .map(|state| format!("{}: {}; {}", state.id(), state.says(), next_reading(*state)))
        .collect()
}

/// States of a running volume that the user should know of, such as a missing member or a pending
/// resync.
pub(crate) fn of_running(volume: &VolumeStatus) -> Vec<AssemblyState> {
    let any = |state: &str| volume.members.iter().any(|member| member.state == state);
    let rebuilds = |replaces: bool| {
        let mut members = volume.members.iter();
        members.any(|it| it.state == "rebuilding" && it.replaces.is_some() == replaces)
    };
    let filled = |slot: usize| {
        let at = |slot_of: Option<u16>| slot_of.map(usize::from) == Some(slot);
        volume.members.iter().any(|member| at(member.slot) && member.state != "faulty")
    };
    let is_array = volume.array.is_some();
    [
        (AssemblyState::Degraded, is_array && (0..volume.slots).any(|slot| !filled(slot))),
        (AssemblyState::Rebuilding, rebuilds(false)),
        (AssemblyState::Replacing, rebuilds(true)),
        (AssemblyState::ReshapePending, volume.reshape.is_some()),
        (AssemblyState::ResyncPending, volume.resync_from.is_some()),
        (AssemblyState::BadBlocks, volume.members.iter().any(|it| !it.bad_blocks.is_empty())),
        (AssemblyState::MemberFaulty, any("faulty")),
        (AssemblyState::NoSpace, volume.no_space),
        (AssemblyState::Broken, volume.array_state == "broken"),
    ]
    .into_iter()
    .filter_map(|(state, holds)| holds.then_some(state))
    .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use weft_engine::assemble::states::TABLE;

    #[test]
    fn the_page_on_rescue_has_the_table_as_it_is() {
        let page = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/rescue.md");
        let page = std::fs::read_to_string(page).unwrap();
        let row = |row: &weft_engine::assemble::states::StateRow| {
            format!("| `{}` | {} | {} |\n", row.id, row.says, row.next)
        };
        let of = |refused| -> String {
            TABLE.iter().filter(|it| it.refused == refused).map(row).collect()
        };
        let title = |name: &str| format!("| {name} | says | next |\n|--|--|--|\n");
        let table =
            format!("{}{}\n{}{}", title("refused"), of(true), title("served, but"), of(false));
        assert!(page.contains(&table), "docs/rescue.md must have this table:\n{table}");
    }

    /// Commands in a text that would write to a member.
    fn writers(text: &str) -> Vec<&'static str> {
        const ALL: [&str; 10] = [
            "weft add",
            "weft remove",
            "weft repair",
            "weft create",
            "weft serve MEMBER",
            "--run serves",
            "--update",
            "--replace",
            "--grow",
            "mdadm --assemble",
        ];
        let text = text.replace("mdadm --assemble --readonly", "");
        ALL.into_iter().filter(|writer| text.contains(writer)).collect()
    }

    #[test]
    fn no_advice_of_a_rescue_writes_and_that_of_others_is_found() {
        let (mut read, mut written) = (0, 0);
        for row in &TABLE {
            assert_eq!(writers(next_reading(row.state)), [""; 0], "{}", row.id);
            read += 1;
            written += usize::from(!writers(row.next).is_empty());
        }
        assert!(read == TABLE.len() && written >= 12, "{written} of {read} write");
    }

    #[test]
    fn each_state_is_an_object_with_three_texts() {
        let states: Vec<AssemblyState> = TABLE.iter().map(|row| row.state).collect();
        let Value::Array(all) = to_json(&states) else { panic!("a list") };
        assert_eq!(all.len(), TABLE.len());
        for (object, row) in all.iter().zip(&TABLE) {
            assert_eq!(*object, json!({"state": row.id, "says": row.says, "next": row.next}));
        }
        assert_eq!(lines(&states).len(), states.len());
    }
}
