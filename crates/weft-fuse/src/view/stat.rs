//! Attributes of nodes, as stat(2) returns them.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use fuser::{FileAttr, FileType, INodeNo};
use weft_files::tree::{Node, NodeKind, NodeTime};

use super::BLOCK_BYTES;

/// Attributes of a node.
pub(super) fn of_node(number: u64, node: &Node) -> FileAttr {
    let changed = time(node.changed);
    FileAttr {
        ino: INodeNo(number),
        size: node.size,
        blocks: node.stored.div_ceil(512),
        atime: time(node.accessed),
        mtime: time(node.modified),
        ctime: changed,
        crtime: changed,
        kind: kind(node.kind),
        perm: u16::try_from(node.mode & 0o7777).unwrap_or(0),
        // A file that has a name has one link at least, whatever a damaged inode says.
        nlink: node.links.max(1),
        uid: node.uid,
        gid: node.gid,
        rdev: node.device,
        blksize: BLOCK_BYTES,
        flags: 0,
    }
}

fn kind(kind: NodeKind) -> FileType {
    match kind {
        NodeKind::Directory => FileType::Directory,
        NodeKind::File => FileType::RegularFile,
        NodeKind::Link => FileType::Symlink,
        NodeKind::Special("pipe") => FileType::NamedPipe,
        NodeKind::Special("character device") => FileType::CharDevice,
        NodeKind::Special("block device") => FileType::BlockDevice,
        NodeKind::Special(_) => FileType::Socket,
    }
}

/// Time of a node as a time of the system; the start of 1970 if the system cannot represent it.
fn time(time: NodeTime) -> SystemTime {
    let seconds = Duration::from_secs(time.seconds.unsigned_abs());
    let whole = match time.seconds < 0 {
        true => UNIX_EPOCH.checked_sub(seconds),
        false => UNIX_EPOCH.checked_add(seconds),
    };
    let exact = whole.and_then(|whole| whole.checked_add(Duration::from_nanos(time.nanos.into())));
    exact.unwrap_or(UNIX_EPOCH)
}
