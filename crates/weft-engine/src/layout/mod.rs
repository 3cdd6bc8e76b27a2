//! Layout of arrays: where their sectors lie, as pure functions.

pub(crate) mod align;
pub mod geometry;
pub mod level;
pub mod mirrors;
pub mod slot_set;
pub mod striped;
pub(crate) mod tolerance;

use weft_ondisk::Level;
use weft_units::Sectors;

use self::geometry::Geometry;
use self::mirrors::Mirrors;
use self::striped::Striped;
use self::tolerance::Tolerance;

/// Layout of an array: which members hold its sectors, and where.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Layout {
    /// RAID 1 and RAID 10: copies.
    Mirrors(Mirrors),
    /// RAID 4, 5 and 6: strips of data, and of parity.
    Parity(Geometry),
    /// RAID 0 and linear: each sector once.
    Striped(Striped),
}

/// One method of every layout.
macro_rules! each {
    ($layout:expr, $of:ident => $call:expr) => {
        match $layout {
            Layout::Mirrors($of) => $call,
            Layout::Parity($of) => $call,
            Layout::Striped($of) => $call,
        }
    };
}

impl Layout {
    /// RAID level.
    #[must_use]
    pub fn level(&self) -> Level {
        each!(self, layout => layout.level())
    }

    /// md's layout number; 0 for a level that has none.
    #[must_use]
    pub fn number(&self) -> u32 {
        each!(self, layout => layout.layout())
    }

    /// Slots.
    #[must_use]
    pub fn members(&self) -> u16 {
        each!(self, layout => layout.members())
    }

    /// Unit in which the array is spread over members; 0 for RAID 1 and linear, which are not.
    #[must_use]
    pub fn chunk(&self) -> Sectors {
        each!(self, layout => layout.chunk())
    }

    /// Sectors used of each member; of the member that is used most for RAID 0 and linear.
    #[must_use]
    pub fn member_size(&self) -> Sectors {
        each!(self, layout => layout.member_size())
    }

    /// Sectors of the array.
    #[must_use]
    pub fn array_size(&self) -> Sectors {
        each!(self, layout => layout.array_size())
    }

    /// Which members the array can do without.
    pub(crate) fn tolerance(&self) -> Tolerance {
        each!(self, layout => layout.tolerance())
    }

    /// Members in sync that the array needs, in words.
    pub(crate) fn needs(&self) -> String {
        match self {
            Self::Mirrors(_) => "one member of each mirror in sync".to_owned(),
            Self::Parity(geometry) => {
                let (needed, all) = (geometry.data_members(), geometry.members());
                format!("{needed} of {all} members in sync")
            }
            Self::Striped(_) => "all members".to_owned(),
        }
    }

    /// The geometry of a level with parity.
    #[must_use]
    pub fn parity(&self) -> Option<&Geometry> {
        match self {
            Self::Parity(geometry) => Some(geometry),
            Self::Mirrors(_) | Self::Striped(_) => None,
        }
    }
}
