//! Contents of a volume: partitions, LVM, file systems, and files out of them.
//!
//! The crate reads through [`source::Source`]: an assembled array, an image, a part of one. It has
//! no thread, opens no device and writes nothing but the files of [`copy`].
//!
//! | part | file |
//! |---|---|
//! | bytes at any offset, windows, a cache of lines | `source.rs` |
//! | what a source holds: kind, label, UUID, size, last use | `probe.rs` |
//! | everything inside of several sources | `inside.rs` |
//! | volume groups, logical volumes | `lvm/` |
//! | what `copy` asks of a file system | `tree.rs` |
//! | ext2, ext3 and ext4, with their journal replayed | `ext4/` |
//! | btrfs, with its log replayed | `btrfs/` |
//! | one way to open them all | `open.rs` |
//! | files out of a file system, into a folder | `copy/` |
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
