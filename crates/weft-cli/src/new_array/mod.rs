//! A new array on its members: planning from the options, and writing.
//!
//! Everything is planned before anything is written: geometry, positions, contents of every
//! superblock. Then files are created, superblocks written, and everything is flushed; if that
//! fails half way, the previous contents are restored.
//!
//! Redundancy must be consistent before the array is served. There are three ways to achieve that.
//! Members with a data area that consists of holes read as zeros, and the parity of zeros is zero,
//! so nothing needs to be done; copies of zeros agree as well. With `--assume-clean` the user
//! vouches for consistent redundancy. Otherwise the array is created as mdadm does: RAID 4 and 5
//! with their last member as a spare, which `serve` rebuilds, RAID 1, 6 and 10 dirty, which `serve`
//! resyncs. RAID 0 and linear have no redundancy.

mod options;
mod places;
mod plan;
mod write;

use weft_terminal::outcome::Failure;

use std::path::PathBuf;

use weft_engine::layout::Layout;
use weft_units::Bytes;

use crate::member::MemberArg;

pub(crate) use options::NewArrayOptions;
pub(crate) use plan::{InitialSync, MemberWrite, Planned};

/// Creates an array on new files, without output.
///
/// # Errors
/// See `weft create`.
pub(crate) fn make_files_of_array(
    level: &str,
    chunk: Bytes,
    member_size: Bytes,
    name: &str,
    paths: &[PathBuf],
) -> Result<Layout, Failure> {
    let options = NewArrayOptions {
        level: level.to_owned(),
        raid_devices: paths.len(),
        chunk: Some(chunk),
        layout: None,
        metadata: "1.2".into(),
        size: None,
        spare_devices: 0,
        name: Some(name.to_owned()),
        uuid: None,
        assume_clean: false,
        member_size: Some(member_size),
        force: false,
        bitmap: None,
        bitmap_chunk: None,
        consistency_policy: None,
        write_mostly: Vec::new(),
        write_behind: None,
        members: paths.iter().cloned().map(MemberArg::Path).collect(),
    };
    let planned = Planned::of(&options)?;
    planned.write()?;
    Ok(planned.layout)
}
