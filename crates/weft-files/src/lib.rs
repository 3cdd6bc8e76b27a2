//! Contents of a volume: partitions, LVM, file systems, and files out of them.
//!
//! The crate reads through [`source::Source`]: an assembled array, an image, a part of one. It has
//! no thread, opens no device and writes nothing but the files of [`copy`].
//!
//! | part | file |
//! |---|---|
//! | bytes at any offset, windows, a cache of lines | `source.rs` |
//! | content of a source: kind, label, UUID, size, last use | `probe.rs` |
//! | contents of several sources, with partitions and volume groups in them | `inside.rs` |
//! | volume groups, logical volumes | `lvm/` |
//! | interface of a file system for `copy` | `tree.rs` |
//! | ext2, ext3 and ext4, with their journal replayed | `ext4/` |
//! | btrfs, with its log replayed | `btrfs/` |
//! | opening of a file system of any kind | `open.rs` |
//! | copy of files from a file system into a folder | `copy/` |
//!
//! Everything that is read may be damaged or hostile: each length is checked before it is used,
//! each loop has a bound, and no name leads out of the folder.
#![forbid(unsafe_code)]

pub mod btrfs;
mod bytes;
pub mod copy;
pub mod ext4;
pub mod inside;
pub mod lvm;
pub mod open;
pub mod probe;
pub mod source;
pub mod tree;
