//! Layout numbers of md, and mdadm's names for them.
//!
//! The engine implements the placement of data and parity; this module has only the kinds of
//! layouts that a level may have, their numbers and their names.
//!
//! Source: md's on-disk codes; names as printed and accepted by mdadm 4.2.

/// Default layout of RAID5/6: left-symmetric.
pub const LEFT_SYMMETRIC: u32 = 2;

/// mdadm's default layout of RAID10: two near copies.
pub const NEAR_2: u32 = 0x102;

/// RAID0 layout "original": later zones count chunks from the start of the array.
pub const RAID0_ORIGINAL: u32 = 1;

/// RAID0 layout "alternate": each zone counts chunks from its own start.
pub const RAID0_ALTERNATE: u32 = 2;

/// Layouts that a level may have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Layouts {
    /// Near, far and offset copies. The layout number has several fields: see [`Raid10`].
    Copies,
    /// Any number: the level has no layouts and ignores the field.
    Ignored,
    /// The level rotates parity. Its layouts are those in these lists.
    Rotations(&'static [&'static [LayoutName]]),
    /// Placement of chunks in the later zones of RAID0 on unequal members: [`RAID0_ORIGINAL`] and
    /// [`RAID0_ALTERNATE`]. With 0 it is unknown which of the two applies. The number has a meaning
    /// only if the superblock says that the field is valid.
    Zones,
}

/// Number, name and short names of a layout.
pub type LayoutName = (u32, &'static str, &'static [&'static str]);

/// Layouts of RAID5.
pub(crate) static ROTATIONS_5: [&[LayoutName]; 1] = [&PARITY];
/// Layouts of RAID6: those of RAID5 and more.
pub(crate) static ROTATIONS_6: [&[LayoutName]; 2] = [&PARITY, &PARITY_6];

/// Layouts of RAID5, which RAID6 has as well.
static PARITY: [LayoutName; 6] = [
    (0, "left-asymmetric", &["la"]),
    (1, "right-asymmetric", &["ra"]),
    (LEFT_SYMMETRIC, "left-symmetric", &["ls", "default"]),
    (3, "right-symmetric", &["rs"]),
    (4, "parity-first", &[]),
    (5, "parity-last", &[]),
];

/// Layouts that only RAID6 has.
static PARITY_6: [LayoutName; 8] = [
    (8, "ddf-zero-restart", &[]),
    (9, "ddf-N-restart", &[]),
    (10, "ddf-N-continue", &[]),
    (16, "left-asymmetric-6", &["la-6"]),
    (17, "right-asymmetric-6", &["ra-6"]),
    (18, "left-symmetric-6", &["ls-6"]),
    (19, "right-symmetric-6", &["rs-6"]),
    (20, "parity-first-6", &[]),
];

/// Layouts of RAID0.
static ZONES: [&[LayoutName]; 1] = [&[
    (0, "dangerous", &[]),
    (RAID0_ORIGINAL, "original", &[]),
    (RAID0_ALTERNATE, "alternate", &[]),
]];

impl Layouts {
    /// Layouts with a name, in ascending order of their numbers; none for RAID10, where names are
    /// composed of several fields.
    pub fn named(self) -> impl Iterator<Item = LayoutName> {
        let lists: &[&[_]] = match self {
            Self::Copies | Self::Ignored => &[],
            Self::Rotations(lists) => lists,
            Self::Zones => &ZONES,
        };
        lists.iter().copied().flatten().copied()
    }

    /// Layout that mdadm chooses by default; 0 for a level without layouts.
    #[must_use]
    pub const fn default_number(self) -> u32 {
        match self {
            Self::Copies => NEAR_2,
            Self::Ignored => 0,
            Self::Rotations(_) => LEFT_SYMMETRIC,
            Self::Zones => RAID0_ORIGINAL,
        }
    }

    /// Whether an array of `raid_disks` members may have this layout.
    ///
    /// Linear, RAID1 and RAID4 ignore the layout, so any value is legal. For RAID0 the caller has
    /// to check first that the superblock marks the layout as valid.
    #[must_use]
    pub fn allows(self, layout: u32, raid_disks: u32) -> bool {
        match self {
            Self::Copies => Raid10::from_code(layout)
                .is_some_and(|parts| parts.far_set_size(raid_disks).is_some()),
            Self::Ignored => true,
            Self::Rotations(_) | Self::Zones => self.named().any(|(code, ..)| code == layout),
        }
    }

    /// mdadm's name of a layout; `None` if the level has no layouts, or if the number has no name.
    #[must_use]
    pub fn name(self, layout: u32) -> Option<String> {
        if self != Self::Copies {
            let named = self.named().find(|(code, ..)| *code == layout);
            return named.map(|(_, name, _)| name.to_owned());
        }
        Raid10::from_code(layout).map(|parts| {
            let mut copies = Vec::new();
            if parts.near != 1 || parts.far == 1 {
                copies.push(format!("near={}", parts.near));
            }
            if parts.far != 1 {
                let kind = if parts.offset { "offset" } else { "far" };
                copies.push(format!("{kind}={}", parts.far));
            }
            copies.join(", ")
        })
    }

    /// Layout number of a name (`left-symmetric`, `near=2`), of a short name (`ls`, `n2`, `f2`,
    /// `o2`) or, except for RAID10, of a number as text.
    ///
    /// Errors   `None` when the text names no layout of the level. [`Layouts::allows`] checks
    ///          whether a RAID10 layout fits the number of members.
    #[must_use]
    pub fn parse(self, text: &str) -> Option<u32> {
        if self != Self::Copies {
            let is_named = |(code, name, short): &LayoutName| {
                *name == text || short.contains(&text) || text.parse() == Ok(*code)
            };
            return self.named().find(is_named).map(|(code, ..)| code);
        }
        let (kind, count) = match text.split_once('=') {
            Some(named) => named,
            None => text.split_at_checked(1)?,
        };
        let copies: u32 = count.parse().ok().filter(|copies| (1..=255).contains(copies))?;
        match kind {
            "n" | "near" => Some(1 << 8 | copies),
            "f" | "far" => Some(copies << 8 | 1),
            "o" | "offset" => Some(1 << 16 | copies << 8 | 1),
            _ => None,
        }
    }
}

/// The fields of a RAID10 layout number.
///
/// ```text
/// bit  18 17  16  15......8  7.......0
///      sets   off far copies near copies
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Raid10 {
    /// Number of adjacent copies, bits 0 to 7.
    pub near: u32,
    /// Number of copies in different sections, bits 8 to 15.
    pub far: u32,
    /// Whether far copies are in the next full stripe instead of a later section, bit 16.
    pub offset: bool,
    /// Grouping of members for far copies, bits 17 and 18: 0 none, 1 by `n / far` members, 2 by
    /// `near * far`.
    pub far_sets: u32,
}

impl Raid10 {
    /// Fields of a RAID10 layout number. `None` when bits above 18 are set.
    #[must_use]
    pub const fn from_code(code: u32) -> Option<Self> {
        if code >> 19 != 0 {
            return None;
        }
        Some(Self {
            near: code & 0xff,
            far: code >> 8 & 0xff,
            offset: code >> 16 & 1 == 1,
            far_sets: code >> 17 & 3,
        })
    }

    /// Number of copies of each chunk.
    #[must_use]
    pub const fn copies(self) -> u32 {
        self.near * self.far
    }

    /// Number of members in a far set; `None` if the layout is not legal for `raid_disks` members.
    ///
    /// Source   md's raid10 refuses fewer than two copies, more copies than members, and unknown
    ///          groupings. A far set smaller than the number of copies puts two copies of a chunk
    ///          on one member; md only warns, weft refuses.
    #[must_use]
    pub const fn far_set_size(self, raid_disks: u32) -> Option<u32> {
        let copies = self.copies();
        if copies < 2 || copies > raid_disks {
            return None;
        }
        let size = match self.far_sets {
            0 => raid_disks,
            1 => raid_disks / self.far,
            2 => copies,
            _ => return None,
        };
        if size < copies { None } else { Some(size) }
    }
}

#[cfg(test)]
mod tests {
    use crate::Level;

    #[test]
    fn every_name_is_read_back() {
        for level in [Level::Raid0, Level::Raid5, Level::Raid6] {
            for (code, known, short) in level.row().layouts.named() {
                assert!(level.row().layouts.allows(code, 6), "{level} {known}");
                assert_eq!(level.row().layouts.name(code).as_deref(), Some(known));
                for text in short.iter().copied().chain([known, &code.to_string()]) {
                    assert_eq!(level.row().layouts.parse(text), Some(code), "{level} {text}");
                }
            }
        }
        for (level, text) in
            [(Level::Raid5, "ls-6"), (Level::Raid5, "8"), (Level::Raid1, "ls"), (Level::Raid6, "")]
        {
            assert_eq!(level.row().layouts.parse(text), None, "{level} {text}");
        }
    }

    #[test]
    fn raid10_layouts_have_short_and_long_names() {
        for (text, code, long) in [
            ("n2", 0x102, "near=2"),
            ("n3", 0x103, "near=3"),
            ("f2", 0x201, "far=2"),
            ("o2", 0x1_0201, "offset=2"),
        ] {
            assert_eq!(Level::Raid10.row().layouts.parse(text), Some(code));
            assert_eq!(Level::Raid10.row().layouts.parse(long), Some(code));
            assert_eq!(Level::Raid10.row().layouts.name(code).as_deref(), Some(long));
        }
        assert_eq!(Level::Raid10.row().layouts.name(0x202).as_deref(), Some("near=2, far=2"));
        for bad in ["", "n", "n0", "n256", "x2", "é2", "n-1", "near", "near=", "=2", "far2"] {
            assert_eq!(Level::Raid10.row().layouts.parse(bad), None, "{bad}");
        }
    }

    #[test]
    fn illegal_layouts_are_refused_without_dividing_by_zero() {
        for (level, layout, raid_disks, legal) in [
            (Level::Raid5, 5, 3, true),
            (Level::Raid5, 6, 3, false),
            (Level::Raid6, 7, 4, false),
            (Level::Raid6, 11, 4, false),
            (Level::Raid6, 21, 4, false),
            (Level::Raid0, 3, 2, false),
            (Level::Raid10, 0x102, 2, true),
            (Level::Raid10, 0x002, 2, false), // no far copy
            (Level::Raid10, 0x200, 2, false), // no near copy
            (Level::Raid10, 0x2_0002, 2, false),
            (Level::Raid10, 0x101, 4, false), // one copy
            (Level::Raid10, 0x105, 4, false), // more copies than members
            (Level::Raid10, 0x2_0201, 4, true),
            (Level::Raid10, 0x4_0201, 5, true),
            (Level::Raid10, 0x2_0302, 6, false), // far sets of 2 for 6 copies
            (Level::Raid10, 0x6_0102, 4, false), // unknown grouping
            (Level::Raid10, 0x8_0102, 4, false), // unknown bit
            (Level::Raid10, u32::MAX, 4, false),
        ] {
            assert_eq!(
                level.row().layouts.allows(layout, raid_disks),
                legal,
                "{level} {layout:#x}"
            );
        }
    }
}
