//! Choice of the spare that is moved between arrays of one spare group.
//!
//! Arrays of one `spare-group` of `mdadm.conf` share their spares. An array with an empty slot and
//! without a spare gets one of an array of its group that is not degraded. A spare that its array
//! has reserved to replace a member is not moved. One spare is chosen at a time, because its move
//! changes the states that the choice depends on.
//!
//! Source   mdadm(8), "MONITOR MODE" (`spare-group`)

use weft_export::control::{MemberStatus, VolumeStatus};
use weft_units::SECTOR_BYTES;

/// A spare, and the arrays that it leaves and joins.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Move<'a> {
    pub(super) from: &'a VolumeStatus,
    pub(super) to: &'a VolumeStatus,
    pub(super) spare: &'a MemberStatus,
}

/// The next move of a spare; `None` if no spare is to be moved. `group` returns the spare group of
/// a volume, and `may` whether a move is to be tried.
pub(super) fn choose<'a>(
    volumes: &'a [VolumeStatus],
    group: impl Fn(&VolumeStatus) -> Option<&'a str>,
    may: impl Fn(&Move<'a>) -> bool,
) -> Option<Move<'a>> {
    let needy = volumes.iter().filter(|it| needs_spare(it) && group(it).is_some());
    let mut moves = needy.flat_map(|to| {
        let givers = volumes.iter().filter(move |from| from.degraded == 0 && from.name != to.name);
        let givers = givers.filter(|from| changes_members(from));
        let of_group = givers.filter(|from| group(from) == group(to));
        // The superblock of another version would stay on the spare beside the new one.
        let version = |volume: &VolumeStatus| volume.array.as_ref().map(|it| it.metadata.clone());
        let of_group = of_group.filter(move |from| version(from) == version(to));
        // A spare that is to replace a member of its own array stays there.
        let free = |from| spares(from).filter(|spare| spare.reserved_for.is_none());
        of_group.flat_map(move |from| free(from).map(move |spare| Move { from, to, spare }))
    });
    moves.find(|it| fits(it.spare, it.to) && may(it))
}

/// Number of spares of a volume: members that have no slot.
pub(super) fn count(volume: &VolumeStatus) -> usize {
    spares(volume).count()
}

fn spares(volume: &VolumeStatus) -> impl Iterator<Item = &MemberStatus> {
    volume.members.iter().filter(|member| member.state == "spare")
}

/// Whether members may be added to a volume and removed from it for good. Volumes with overlays are
/// excluded: with an overlay, the array must not change.
fn changes_members(volume: &VolumeStatus) -> bool {
    let sealed = matches!(volume.array_state.as_str(), "broken" | "readonly");
    !sealed && volume.array.is_some() && volume.members.iter().all(|member| !member.overlay)
}

/// Whether a slot of a volume is empty, and the volume has no spare for it but may get one.
pub(super) fn needs_spare(volume: &VolumeStatus) -> bool {
    let has_slot = |state: &str| matches!(state, "in_sync" | "rebuilding");
    let fills = |it: &MemberStatus| has_slot(&it.state) && it.replaces.is_none();
    let filled = volume.members.iter().filter(|member| fills(member)).count();
    changes_members(volume) && filled < volume.slots && count(volume) == 0
}

/// Whether a spare is large enough for the array.
fn fits(spare: &MemberStatus, to: &VolumeStatus) -> bool {
    let offset = to.members.iter().find_map(|member| member.data_offset);
    let (Some(array), Some(offset), Some(size)) = (&to.array, offset, spare.size) else {
        return false;
    };
    // Superblocks of 1.0 and 0.90 are behind the data.
    let behind = if matches!(array.metadata.as_str(), "1.1" | "1.2") { 0 } else { 128 << 10 };
    size >= offset * SECTOR_BYTES + array.member_size + behind
}

#[cfg(test)]
mod tests {
    use super::*;
    use weft_export::control::ArrayStatus;

    /// A RAID 5 of three slots, with data of 8 MiB from 1 MiB on. Each word is the state of a
    /// member.
    fn volume(name: &str, states: &[&str], member_bytes: u64) -> VolumeStatus {
        let member = |(number, state): (usize, &&str)| MemberStatus {
            label: format!("/dev/{name}{number}"),
            state: (*state).into(),
            size: Some(member_bytes),
            data_offset: Some(2048),
            ..MemberStatus::default()
        };
        VolumeStatus {
            name: name.into(),
            array_state: "clean".into(),
            slots: 3,
            degraded: 3 - states.iter().filter(|it| **it == "in_sync").count(),
            array: Some(ArrayStatus {
                member_size: 8 << 20,
                metadata: "1.2".into(),
                ..<_>::default()
            }),
            members: states.iter().enumerate().map(member).collect(),
            ..VolumeStatus::default()
        }
    }

    const SIZE: u64 = 9 << 20;
    const WHOLE: [&str; 3] = ["in_sync"; 3];

    fn chosen(volumes: &[VolumeStatus], groups: &[&'static str]) -> Option<(String, String)> {
        let place = |volume: &VolumeStatus| volumes.iter().position(|it| it.name == volume.name);
        let group = |volume: &VolumeStatus| groups.get(place(volume)?).copied();
        let found = choose(volumes, group, |it| !it.spare.label.ends_with('9'))?;
        Some((found.spare.label.clone(), found.to.name.clone()))
    }

    #[test]
    fn a_spare_goes_to_an_array_of_its_group_that_misses_a_member() {
        let with_spare = [&WHOLE[..], &["spare"]].concat();
        let giver = || volume("a", &with_spare, SIZE);
        let missing = ["in_sync", "in_sync", "faulty"];
        let expected = Some(("/dev/a3".to_owned(), "b".to_owned()));
        let taker = || volume("b", &missing, SIZE);
        assert_eq!(chosen(&[giver(), taker()], &["fast", "fast"]), expected);
        assert_eq!(chosen(&[taker(), giver()], &["fast", "fast"]), expected);
        assert_eq!(chosen(&[giver(), taker()], &["fast", "slow"]), None, "another group");
        assert_eq!(chosen(&[giver(), taker()], &["fast"]), None, "no group");
        // The spare must be as large as the members.
        let small = volume("a", &with_spare, SIZE - 1);
        assert_eq!(chosen(&[small, taker()], &["fast", "fast"]), None);
        let at_end = |mut volume: VolumeStatus| {
            volume.array.as_mut().unwrap().metadata = "1.0".into();
            volume
        };
        assert_eq!(chosen(&[at_end(giver()), at_end(taker())], &["fast", "fast"]), None);
        let larger = |name, states| volume(name, states, SIZE + (1 << 20));
        let (from, to) = (at_end(larger("a", &with_spare)), at_end(larger("b", &missing)));
        assert_eq!(chosen(&[from.clone(), to], &["fast", "fast"]), expected);
        assert_eq!(chosen(&[from, taker()], &["fast", "fast"]), None, "another version");
        for states in [
            &["in_sync", "in_sync", "rebuilding"][..],
            &["in_sync", "in_sync", "faulty", "spare"],
            &WHOLE,
        ] {
            let other = volume("b", states, SIZE);
            assert_eq!(chosen(&[giver(), other], &["fast", "fast"]), None, "{states:?}");
        }
        // An array that misses a member keeps its spares, and one that takes no writes gets none.
        let short = volume("a", &["in_sync", "in_sync", "rebuilding", "spare"], SIZE);
        assert_eq!(chosen(&[short, taker()], &["fast", "fast"]), None);
        let sealed = |volume| VolumeStatus { array_state: "readonly".into(), ..volume };
        assert_eq!(chosen(&[giver(), sealed(taker())], &["fast", "fast"]), None);
        assert_eq!(chosen(&[sealed(giver()), taker()], &["fast", "fast"]), None);
        // A spare that is to replace a member stays.
        let mut reserved = giver();
        reserved.members[3].reserved_for = Some(1);
        assert_eq!(chosen(&[reserved, taker()], &["fast", "fast"]), None);
        // Overlays are left alone.
        let overlaid = |mut volume: VolumeStatus| {
            volume.members[0].overlay = true;
            volume
        };
        assert_eq!(chosen(&[giver(), overlaid(taker())], &["fast", "fast"]), None);
        assert_eq!(chosen(&[overlaid(giver()), taker()], &["fast", "fast"]), None);
    }

    #[test]
    fn the_next_spare_is_chosen_where_one_is_not_to_be_moved() {
        let mut giver = volume("a", &[&WHOLE[..], &["spare", "spare"]].concat(), SIZE);
        giver.members[3].label = "/dev/a9".into();
        let taker = volume("b", &["in_sync", "in_sync"], SIZE);
        let found = chosen(&[giver, taker], &["fast", "fast"]);
        assert_eq!(found, Some(("/dev/a4".to_owned(), "b".to_owned())));
    }
}
