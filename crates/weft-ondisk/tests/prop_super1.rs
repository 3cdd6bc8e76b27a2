//! Property tests of version 1 superblocks against arbitrary bytes: members may hold anything.

#[allow(dead_code, reason = "each test uses its part")]
mod fixture;

use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::{Index, select};
use weft_ondisk::probe::foreign_signature;
use weft_ondisk::{
    Level, MdTime, Minor, NewArray, NewMember, Super1, SuperblockError, Uuid, csum_v1,
};
use weft_units::Sectors;

/// Numbers at the limits of fields, and any others.
fn number() -> impl Strategy<Value = u64> {
    prop_oneof![
        3 => select(vec![0, 1, 2, 4, 7, 8, 9, 16, 127, 128, 512, 1920, 1921, 2048, 4096, 6144]),
        1 => select(vec![u64::MAX, u64::MAX - 1, 1 << 63, (1 << 63) - 1, 1 << 31, 1 << 22]),
        1 => any::<u64>(),
        1 => (0_u64..64).prop_map(|bit| 1 << bit),
    ]
}

/// Calls every method of a parsed superblock.
fn exercise(parsed: &Super1, member_size: Sectors) {
    for (name, value) in parsed.describe(member_size) {
        assert!(!name.is_empty() && value.is_ascii());
    }
    let _ = parsed.warnings();
    let _ = parsed.refuses_writing();
    let _ = parsed.dirty_from();
    let errors = [parsed.validate(member_size).err(), parsed.own_role().err()];
    for error in errors.into_iter().flatten() {
        assert!(error.to_string().len() < 400, "{error}");
    }
}

proptest! {
    #[test]
    fn no_bytes_panic(bytes in vec(any::<u8>(), 0..5000), size in number()) {
        for minor in Minor::ALL {
            prop_assert!(Super1::parse(&bytes, minor, Sectors(size)).is_err());
        }
        let _ = csum_v1(&bytes);
        let _ = foreign_signature(Sectors(size), &bytes, &bytes);
    }

    /// Overwrites some fields of a real superblock and corrects the checksum, so that every check
    /// is reached.
    #[test]
    fn what_is_believed_is_written_back_and_computed_with(
        which in any::<Index>(),
        edits in vec((0_usize..72, number(), select(vec![1_usize, 2, 4, 8])), 0..5),
        size in prop_oneof![Just(None), number().prop_map(Some)],
    ) {
        let fixtures = FIXTURES.get_or_init(fixture::all);
        let fixture = which.get(fixtures);
        let mut block = fixture.block;
        for (word, value, len) in edits {
            block[word * 4..][..len].copy_from_slice(&value.to_le_bytes()[..len]);
        }
        if let Some(sum) = csum_v1(&block) {
            block[216..220].copy_from_slice(&sum.to_le_bytes());
        }
        let member_size = size.map_or(fixture.member_size, Sectors);
        match Super1::decode(&block, fixture.minor) {
            Ok(decoded) => {
                exercise(&decoded, member_size);
                let mut again = block;
                decoded.encode_into(&mut again);
                prop_assert_eq!(again, block);
            }
            Err(error) => {
                prop_assert!(error.to_string().len() < 400);
                prop_assert_eq!(
                    Super1::parse(&block, fixture.minor, member_size),
                    Err(error)
                );
            }
        }
        if let Ok(parsed) = Super1::parse(&block, fixture.minor, member_size) {
            prop_assert!(parsed.data_offset.0 + parsed.used_size().0 <= member_size.0);
            prop_assert_eq!(parsed.level.uses_size(), parsed.array_size().is_some());
            prop_assert!(parsed.own_role().is_ok());
        }
    }

    #[test]
    fn planned_arrays_are_legal_and_read_back(
        minor in select(Minor::ALL.to_vec()),
        level in select(Level::all().collect::<Vec<_>>()),
        sizes in vec(prop_oneof![4 => 4000_u64..200_000, 1 => number()], 0..12),
        missing in vec(any::<Index>(), 0..3),
        spares in 0_usize..4,
        chunk in prop_oneof![Just(None), Just(Some(128)), number().prop_map(Some)],
        layout in prop_oneof![3 => Just(None), 1 => (0_u32..0x300).prop_map(Some)],
        size in prop_oneof![3 => Just(None), 1 => number().prop_map(Some)],
        data_offset in prop_oneof![3 => Just(None), 1 => number().prop_map(Some)],
        (assume_clean, force) in any::<(bool, bool)>(),
    ) {
        let mut members: Vec<NewMember> = sizes
            .iter()
            .zip(1..)
            .map(|(size, id)| NewMember { size: Sectors(*size), device_uuid: Uuid([id; 16]) })
            .collect();
        let spares = members.split_off(members.len() - spares.min(members.len()));
        let mut array = NewArray::new(level, members);
        for slot in missing {
            if !array.slots.is_empty() {
                let slot = slot.index(array.slots.len());
                array.slots[slot] = None;
            }
        }
        array.spares = spares;
        array.minor = minor;
        array.chunk = chunk.map(Sectors);
        array.layout = layout;
        array.size = size.map(Sectors);
        array.data_offset = data_offset.map(Sectors);
        array.ctime = MdTime::from_secs(1_795_158_254);
        array.assume_clean = assume_clean;
        array.force = force;
        match array.plan() {
            Ok(planned) => {
                let members: Vec<&NewMember> =
                    array.slots.iter().flatten().chain(&array.spares).collect();
                prop_assert_eq!(planned.len(), members.len());
                for (planned, member) in planned.iter().zip(members) {
                    let block = planned.encode();
                    let parsed = Super1::parse(&block, minor, member.size);
                    prop_assert_eq!(parsed.as_ref(), Ok(planned));
                    prop_assert_eq!(planned.warnings(), Vec::<String>::new());
                    prop_assert_eq!(planned.device_uuid, member.device_uuid);
                    exercise(planned, member.size);
                }
            }
            Err(weft_ondisk::CreateError::Illegal(error)) => {
                // Overflow is the only error that `plan` leaves to the check of the superblock.
                let overflow = matches!(error, SuperblockError::Overflow { .. });
                prop_assert!(overflow, "{}", error);
            }
            Err(error) => prop_assert!(error.to_string().contains(": found "), "{}", error),
        }
    }
}

static FIXTURES: std::sync::OnceLock<Vec<fixture::Fixture>> = std::sync::OnceLock::new();
