//! Opening of a file system of any kind.

use crate::btrfs::Btrfs;
use crate::ext4::Ext4;
use crate::probe::Kind;
use crate::source::Shared;
use crate::tree::{Tree, TreeError};

/// Open file system.
pub struct Opened {
    /// Files of the file system.
    pub tree: Box<dyn Tree>,
    /// Notes for the user: logs that were replayed or could not be, and damaged parts.
    pub notes: Vec<String>,
}

/// Opens the file system of a place on its devices, which is one for most kinds.
///
/// # Errors
/// The content is of a kind that is not read, or the file system cannot be opened.
pub fn open(kind: &Kind, devices: &[Shared]) -> Result<Opened, TreeError> {
    match (kind, devices.first()) {
        (Kind::Btrfs(_), _) => Btrfs::open(devices).map(of_btrfs),
        (Kind::Snapshot(id), _) => Btrfs::open_at(devices, *id).map(of_btrfs),
        (Kind::Ext(_), Some(source)) => {
            let tree = Ext4::open(source)?;
            Ok(Opened { notes: tree.notes.clone(), tree: Box::new(tree) })
        }
        _ => Err(TreeError::Refused(format!("{kind} is not read by this release"))),
    }
}

fn of_btrfs(tree: Btrfs) -> Opened {
    Opened { notes: tree.notes.clone(), tree: Box::new(tree) }
}
