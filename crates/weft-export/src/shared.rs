//! State that ports share: facts of the server and of its volumes.

use std::sync::Arc;

use weft_engine::assemble::Assembly;
use weft_units::Bytes;

use crate::connection_limit::ConnectionLimit;
use crate::control::ArrayStatus;
use crate::share::ChosenExports;

/// Facts of the server and of its volumes that the control port reports. The counts of clients and
/// the exports that clients have chosen are shared with the NBD ports.
#[derive(Debug)]
pub(crate) struct Shared {
    pub(crate) names: Vec<String>,
    /// Number of engines that serve the same volumes side by side, one for each worker.
    pub(crate) engines: usize,
    /// Fixed facts of the volumes, by index of the volume.
    pub(crate) facts: Vec<VolumeFacts>,
    pub(crate) listen: Vec<String>,
    pub(crate) backend: String,
    pub(crate) connections: Arc<ConnectionLimit>,
    pub(crate) chosen: Arc<ChosenExports>,
    /// Names of groups of clients, from group 1 on.
    pub(crate) groups: Vec<String>,
}

impl Shared {
    pub(crate) fn clients(&self) -> usize {
        self.connections.count()
    }
}

/// Facts of a volume that do not change while it runs.
#[derive(Debug)]
pub(crate) struct VolumeFacts {
    pub(crate) level: String,
    pub(crate) array: Option<ArrayStatus>,
    /// Smallest unit of requests in bytes, for a volume for which the engine does not know it.
    pub(crate) block: u32,
    /// Preferred size of requests, if the layout has one; see
    /// [`weft_engine::layout::Layout::io_opt`].
    pub(crate) io_opt: Option<Bytes>,
}

impl VolumeFacts {
    pub(crate) fn bare(block: u32) -> Self {
        Self { level: "bare".into(), array: None, block, io_opt: None }
    }

    pub(crate) fn of_array(assembly: &Assembly) -> Self {
        let layout = &assembly.layout;
        let level = layout.level();
        let array = assembly.members().next().map(|(_, member)| ArrayStatus {
            uuid: assembly.uuid.to_string(),
            name: assembly.name.clone(),
            metadata: member.superblock.version().to_string(),
            level: level.code(),
            layout: layout.number(),
            chunk: layout.chunk().bytes().0,
            member_size: layout.member_size().bytes().0,
            created_secs: member.superblock.ctime().secs,
        });
        Self { level: level.to_string(), array, block: 1, io_opt: layout.io_opt() }
    }
}
