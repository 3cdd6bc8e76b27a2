//! Shares of members' work, from the engine's counters to the status of a volume.

use weft_engine::{Class, MemberSnapshot, Party, VolumeSnapshot};
use weft_units::{ClientId, Group};

use crate::control::{PurposeStatus, ShareStatus};

/// Shares of all accounts in the work of the members of a volume. `export_of` returns the export
/// that a client has chosen; `groups` has the names of the groups, from group 1 on.
pub(super) fn shares_of(
    volume: &VolumeSnapshot,
    export_of: impl Fn(ClientId) -> Option<String>,
    groups: &[String],
) -> Vec<ShareStatus> {
    let all: u64 = volume.accounts.iter().map(|account| account.sectors.0).sum();
    let recently: u64 = volume.accounts.iter().map(|account| account.sectors_recently.0).sum();
    let share = |account: &weft_engine::AccountSnapshot| {
        let client = match account.party {
            Party::Client(client) => Some(client),
            Party::Metadata | Party::Others | Party::Resync => None,
        };
        let purposes = account.by_purpose.iter().map(|of| PurposeStatus {
            purpose: of.purpose.name().to_owned(),
            sectors_read: of.read.0,
            sectors_written: of.written.0,
        });
        ShareStatus {
            who: word(account.party).to_owned(),
            client: client.map(|client| client.0),
            export: client.and_then(&export_of),
            gone: account.gone,
            class: class_text(account.class),
            weight: account.class.weight(account.weight),
            group: group_name(account.group, groups),
            reads: account.reads,
            writes: account.writes,
            bytes_read: account.bytes_read.0,
            bytes_written: account.bytes_written.0,
            sectors: account.sectors.0,
            share_permille: permille(account.sectors.0, all),
            share_recently_permille: permille(account.sectors_recently.0, recently),
            purposes: purposes.collect(),
        }
    };
    volume.accounts.iter().map(share).collect()
}

/// Number of sectors that a member moved for the accounts with an owner for which `is` returns
/// true.
pub(super) fn sectors_of(member: &MemberSnapshot, is: impl Fn(Party) -> bool) -> u64 {
    member.served.iter().filter(|(party, _)| is(*party)).map(|(_, sectors)| sectors.0).sum()
}

fn group_name(group: Group, groups: &[String]) -> Option<String> {
    let place = usize::from(group.number()).checked_sub(1)?;
    Some(groups.get(place).cloned().unwrap_or_else(|| group.number().to_string()))
}

fn word(party: Party) -> &'static str {
    match party {
        Party::Client(_) => "client",
        Party::Metadata => "metadata",
        Party::Others => "others",
        Party::Resync => "resync",
    }
}

/// A class in the form that `weft serve --class` takes.
fn class_text(class: Class) -> String {
    match class {
        Class::BestEffort(level) => format!("be:{level}"),
        Class::Idle => "idle".to_owned(),
        Class::None => "none".to_owned(),
        Class::RealTime(level) => format!("rt:{level}"),
    }
}

fn permille(part: u64, all: u64) -> u32 {
    let permille = u128::from(part) * 1000 / u128::from(all.max(1));
    u32::try_from(permille).unwrap_or(1000)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_share_of_nothing_is_none_and_of_all_is_whole() {
        assert_eq!([permille(0, 0), permille(1, 3), permille(7, 7)], [0, 333, 1000]);
        assert_eq!(permille(u64::MAX, u64::MAX), 1000);
    }

    #[test]
    fn a_group_has_its_name_or_its_number_and_the_root_has_none() {
        let names = ["gold".to_owned()];
        let name = |number| group_name(Group::new(number).unwrap_or_default(), &names);
        assert_eq!([name(0), name(1), name(2)], [None, Some("gold".into()), Some("2".into())]);
    }

    #[test]
    fn classes_have_the_words_of_the_command_line() {
        let classes = [Class::BestEffort(7), Class::Idle, Class::None, Class::RealTime(0)];
        assert_eq!(classes.map(class_text), ["be:7", "idle", "none", "rt:0"]);
    }
}
