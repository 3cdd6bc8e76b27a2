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

/// Opens the file system of this kind on its devices. Most kinds have a single device.
///
/// # Errors
/// The content is of a kind that is not read, or the file system cannot be opened.
pub fn open(kind: &Kind, devices: &[Shared]) -> Result<Opened, TreeError> {
    let refused = || TreeError::Refused(format!("{kind} is not read by this release"));
    match kind {
        Kind::Btrfs(_) => Btrfs::open(devices).map(of_btrfs),
        Kind::Snapshot(id) => Btrfs::open_at(devices, *id).map(of_btrfs),
        Kind::Ext(_) => {
            let tree = Ext4::open(devices.first().ok_or_else(refused)?)?;
            Ok(Opened { notes: tree.notes.clone(), tree: Box::new(tree) })
        }
        Kind::Luks(_)
        | Kind::LvmPhysical
        | Kind::Nothing
        | Kind::Other(_)
        | Kind::Swap
        | Kind::Table(_)
        | Kind::Xfs => Err(refused()),
    }
}

fn of_btrfs(tree: Btrfs) -> Opened {
    Opened { notes: tree.notes.clone(), tree: Box::new(tree) }
}
