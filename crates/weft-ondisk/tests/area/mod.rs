//! Areas of metadata that mdadm and Linux wrote, described in `fixtures/md-meta/MANIFEST`.

use std::path::{Path, PathBuf};
use weft_ondisk::{Super1, Super090, Superblock, Version};
use weft_units::Sectors;

/// One area of one member.
pub(crate) struct Area {
    /// Folder, named after the array.
    pub(crate) array: String,
    /// Member, for example `m0`.
    pub(crate) member: String,
    /// `super090`, `super1`, `bitmap`, `bblog`, `ppl` or `journal`.
    pub(crate) kind: String,
    pub(crate) member_size: Sectors,
    /// Sector of the member at which the area starts.
    pub(crate) start: Sectors,
    pub(crate) bytes: Vec<u8>,
}

impl Area {
    /// Output of `mdadm`, from the file `mN.NAME.txt`.
    pub(crate) fn text(&self, name: &str) -> String {
        let file = format!("{}.{name}.txt", self.member);
        std::fs::read_to_string(root().join(&self.array).join(file)).unwrap()
    }

    /// The superblock of the same member.
    pub(crate) fn superblock(&self) -> Superblock {
        let old = Version::V0_90.position(self.member_size);
        let found = |area: &Self| area.array == self.array && area.member == self.member;
        let block = all().into_iter().find(|area| found(area) && area.kind.starts_with("super"));
        let block = block.unwrap_or_else(|| panic!("{}/{}", self.array, self.member));
        let superblock = match Version::ALL.into_iter().find(|version| {
            let at = version.position(self.member_size) == Some(block.start);
            at && (block.kind == "super090") == (*version == Version::V0_90)
        }) {
            Some(version) => Superblock::parse(&block.bytes, version, self.member_size),
            None => panic!("nothing is at sector {}, {old:?}", block.start.0),
        };
        superblock.unwrap_or_else(|error| panic!("{}/{}: {error}", self.array, self.member))
    }

    pub(crate) fn super1(&self) -> Super1 {
        self.superblock().as_v1().unwrap().clone()
    }

    pub(crate) fn super090(&self) -> Super090 {
        self.superblock().as_v0_90().unwrap().clone()
    }
}

/// All areas, in the order of the manifest.
pub(crate) fn all() -> Vec<Area> {
    let manifest = std::fs::read_to_string(root().join("MANIFEST")).unwrap();
    manifest.lines().filter(|line| !line.starts_with('#')).map(read).collect()
}

/// All areas of one kind.
pub(crate) fn of_kind(kind: &str) -> Vec<Area> {
    all().into_iter().filter(|area| area.kind == kind).collect()
}

/// One area, by array, member and kind.
pub(crate) fn one(array: &str, member: usize, kind: &str) -> Area {
    let member = format!("m{member}");
    let found = |area: &Area| area.array == array && area.member == member && area.kind == kind;
    all().into_iter().find(found).unwrap_or_else(|| panic!("{array}/{member}.{kind}"))
}

fn read(line: &str) -> Area {
    let [path, member_size, start, _sha256] = line.split('\t').collect::<Vec<_>>()[..] else {
        panic!("{line}")
    };
    let (array, file) = path.split_once('/').unwrap();
    let [member, kind, "bin"] = file.split('.').collect::<Vec<_>>()[..] else { panic!("{line}") };
    Area {
        array: array.to_owned(),
        member: member.to_owned(),
        kind: kind.to_owned(),
        member_size: Sectors(member_size.parse().unwrap()),
        start: Sectors(start.parse().unwrap()),
        bytes: std::fs::read(root().join(path)).unwrap(),
    }
}

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fixtures/md-meta")
}

/// Records a reshape in progress that changes nothing.
pub(crate) fn reshaping(it: &mut Super090) {
    it.minor_version = 91;
    it.reshape.position = 0;
    it.reshape.new_level = it.level.code().cast_unsigned();
    it.reshape.new_layout = it.layout;
    it.reshape.new_chunk_bytes = it.chunk_bytes;
}
