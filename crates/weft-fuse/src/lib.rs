//! Volumes and the file systems in them, mounted by FUSE.
//!
//! A [`View`] is the content of a mount: one folder with files and folders. Each file has the bytes
//! of a [`weft_files::source`], and each folder the files of a [`weft_files::tree`]. A [`Mounted`]
//! serves the view until it is unmounted.
//!
//! | part | file |
//! |---|---|
//! | answers to requests of the kernel | `view/` |
//! | numbers of inodes | `numbers.rs` |
//! | names and nodes of a directory | `directory.rs` |
//! | bytes of a file out of its segments | `content.rs` |
//! | readahead | `ahead.rs` |
//! | caches with a bound | `kept.rs` |
//! | paths of inodes that the kernel knows, for messages | `paths.rs` |
//! | from the kernel's thread to the thread of the view | `request.rs`, `forward.rs` |
//! | the folder, and serving a mounted view | `folder.rs`, `mounted.rs` |
//! | mounting and unmounting, of any file system | `mount.rs` |
//! | a file that is mounted by itself, for exports | `file.rs` |
//!
//! Sources and trees belong to one thread, but the crate `fuser` requires a file system that any
//! thread may use. The thread of `fuser` therefore passes each request on through a channel, and
//! the thread that has the view answers. A read through a server of this process causes no
//! deadlock, because that server has its own threads.
//!
//! Inode numbers are computed from the numbers of nodes in the trees, and back. There is no table
//! of inodes, and a file keeps its number however long it is not used. Only names, which messages
//! need, are kept as long as the kernel knows them.
#![forbid(unsafe_code)]

mod ahead;
mod content;
mod directory;
mod file;
mod folder;
mod forward;
mod kept;
mod mount;
mod mounted;
mod numbers;
mod paths;
mod request;
#[cfg(test)]
mod tests;
mod view;

pub use file::{FileRequest, MountedFile};
pub use folder::{FolderError, check};
pub use mount::{InUse, Mount, MountError, MountPoint, Options, Unmounted, permitted, unmount};
pub use mounted::{Mounted, Unmounter};
pub use view::{Finding, Shown, View, What};
