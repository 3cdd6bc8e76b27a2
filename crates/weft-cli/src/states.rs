//! How are states of an array told to people and to programs?
//!
//! The table is the engine's, [`weft_engine::assemble::states`]; here are its rows of a running volume,
//! and its two forms.

use serde_json::{Value, json};
use weft_engine::assemble::states::State;
use weft_export::control::VolumeStatus;

/// `[{"state", "says", "next"}]`.
pub(crate) fn to_json(states: &[State]) -> Value {
    let one =
        |state: &State| json!({"state": state.id(), "says": state.says(), "next": state.next()});
    states.iter().map(one).collect()
}

/// One line of each: what is wrong, and what to do next.
pub(crate) fn lines(states: &[State]) -> Vec<String> {
    states
        .iter()
        .map(|state| format!("{}: {}; {}", state.id(), state.says(), state.next()))
        .collect()
}

/// What is not as it should be with a volume that is being served.
pub(crate) fn of_running(volume: &VolumeStatus) -> Vec<State> {
    let any = |state: &str| volume.members.iter().any(|member| member.state == state);
    let filled = |slot: usize| {
        let at = |slot_of: Option<u16>| slot_of.map(usize::from) == Some(slot);
        volume.members.iter().any(|member| at(member.slot) && member.state != "faulty")
    };
    let is_array = volume.array.is_some();
    [
        (State::Degraded, is_array && (0..volume.slots).any(|slot| !filled(slot))),
        (State::Rebuilding, any("rebuilding")),
        (State::ResyncPending, volume.resync_from.is_some()),
        (State::MemberFaulty, any("faulty")),
        (State::NoSpace, volume.no_space),
        (State::Broken, volume.array_state == "broken"),
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
    fn the_readme_has_the_table_as_it_is() {
        let readme = concat!(env!("CARGO_MANIFEST_DIR"), "/../../README.md");
        let readme = std::fs::read_to_string(readme).unwrap();
        let row = |row: &weft_engine::assemble::states::Row| {
            format!("| `{}` | {} | {} |\n", row.id, row.says, row.next)
        };
        let of = |refused| -> String {
            TABLE.iter().filter(|it| it.refused == refused).map(row).collect()
        };
        let title = |name: &str| format!("| {name} | says | next |\n|--|--|--|\n");
        let table =
            format!("{}{}\n{}{}", title("refused"), of(true), title("served, but"), of(false));
        assert!(readme.contains(&table), "README.md must have this table:\n{table}");
    }

    #[test]
    fn each_state_is_an_object_with_three_texts() {
        let states: Vec<State> = TABLE.iter().map(|row| row.state).collect();
        let Value::Array(all) = to_json(&states) else { panic!("a list") };
        assert_eq!(all.len(), TABLE.len());
        for (object, row) in all.iter().zip(&TABLE) {
            assert_eq!(*object, json!({"state": row.id, "says": row.says, "next": row.next}));
        }
        assert_eq!(lines(&states).len(), states.len());
    }
}
