//! Devices: opening members, their locks, `O_DIRECT` and block sizes.
//!
//! A member is part of a file or block device (`spec.rs`), or memory (`ram:SIZE`). Opening it takes
//! a lock that lives as long as anything of this process can still reach the member. For files it
//! is an OFD lock of the range (requests that io_uring still has in flight after a kill -9 hold it
//! too); for block devices it is `O_EXCL`, which the kernel and other users of `O_EXCL` respect; a
//! loop device takes the lock of its file as well. Devices that are mounted, or claimed by another
//! device, are refused with the name of their user. `O_DIRECT` is used where the file system
//! supports it; elsewhere, as on tmpfs, I/O goes through the page cache and a flush is `fdatasync`;
//! status and log report this mode.
//!
//! All of weft opens devices through this module: `open.rs` to serve them, `probe.rs` to look at
//! them.
//!
//! Source   open(2) `O_EXCL`, `O_DIRECT`; fcntl(2) "Open file description locks"; statx(2)
//!          `STATX_DIOALIGN`

mod extent;
mod fresh;
mod holes;
mod lock;
mod member;
mod open;
mod probe;
mod sysfs;

use std::fmt;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::Duration;

use weft_engine::MemberInfo;

use crate::identity::Identity;
use crate::io::ring::FileKind;
use crate::overlay::Overlay;
use crate::rescued::Rescued;
use crate::timed::TimedFile;
use extent::Extent;

pub use crate::device_error::DeviceError;
pub use crate::file_lock::Access;
pub use crate::spec::{MemberSpec, parse_size};
pub use fresh::{FreshFile, sync_name};
pub use member::{other_superblock, read_metadata};
pub use open::is_tmpfs;
pub use probe::{Probe, ProbeError};

pub(crate) use member::Damage;

/// Options for opening members.
#[derive(Clone, Copy, Debug)]
pub struct OpenOptions {
    /// Access to the members: reading only, or writing too.
    pub access: Access,
    /// Whether to use the page cache even where `O_DIRECT` works.
    pub buffered: bool,
    /// Longest wait for a lock. A killed process holds its locks until its last I/O has ended.
    pub lock_wait: Duration,
}

/// Whether I/O goes through the page cache.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum IoMode {
    /// Through the page cache; a flush is `fdatasync`.
    Buffered,
    /// With `O_DIRECT`, past the page cache.
    Direct,
}

/// A member that is open and locked.
#[derive(Debug)]
pub struct OpenMember {
    file: Arc<OwnedFd>,
    /// Handle that reads the file within a time limit; `None` if reads have no limit.
    timed: Option<Arc<TimedFile>>,
    info: MemberInfo,
    spec: MemberSpec,
    mode: IoMode,
    access: Access,
    start: u64,
    identity: Identity,
    extent: Extent,
    /// Medium of the member: a block device, a file that may be cut short, or memory.
    medium: Medium,
    file_kind: FileKind,
    /// Descriptor that holds the lock of the file behind a loop device; `None` for other members.
    backing: Option<OwnedFd>,
    /// Overlay that receives the writes; the member's own file is then open for reading only.
    /// `None` for a member without an overlay.
    overlay: Option<Arc<Overlay>>,
    /// Map of ddrescue that was named, or that lies beside the file; `None` if there is no map.
    rescued: Option<Rescued>,
}

/// Medium of a member.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Medium {
    /// A block device. `ENOSPC` from it means that it has become smaller or was unplugged, and the
    /// write will never succeed.
    BlockDevice,
    /// A regular file, which may be cut short by others; its file system may run full.
    File,
    /// Memory of this process, sealed at its size.
    Memory,
}

impl fmt::Display for IoMode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Buffered => "buffered",
            Self::Direct => "direct",
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::Path;
    use weft_units::{MemberIndex, Sectors};

    fn options(access: Access) -> OpenOptions {
        OpenOptions { lock_wait: Duration::ZERO, ..OpenOptions::new(access) }
    }

    fn file(dir: &Path, name: &str, bytes: u64) -> MemberSpec {
        let path = dir.join(name);
        std::fs::File::create(&path).unwrap().set_len(bytes).unwrap();
        MemberSpec::path(&path)
    }

    /// Two openings of a member, as by two processes (F28).
    #[test]
    fn a_file_has_one_writer_or_many_readers() {
        let dir = tempfile::tempdir().unwrap();
        let spec = file(dir.path(), "a", 1 << 20);
        let open = |access| options(access).open(&spec, MemberIndex(0), []);
        let reader = open(Access::ReadOnly).unwrap();
        let second = open(Access::ReadOnly).unwrap();
        let locked = |result| matches!(result, Err(DeviceError::Locked { .. }));
        assert!(locked(open(Access::ReadWrite)));
        drop(second);
        drop(reader);
        let writer = open(Access::ReadWrite).unwrap();
        assert!(locked(open(Access::ReadOnly)));
        assert_eq!(writer.info().size, Sectors(2048));
        drop(writer);
        open(Access::ReadWrite).unwrap();
    }

    #[test]
    fn windows_of_one_file_are_members_apart() {
        let dir = tempfile::tempdir().unwrap();
        let spec = file(dir.path(), "disk", 1 << 20);
        let spec = |window: &str| MemberSpec::parse(&format!("{}{window}", spec.label)).unwrap();
        let specs = [spec("@0+512K"), spec("@512K")];
        let members = options(Access::ReadWrite).open_all(&specs, MemberIndex(3)).unwrap();
        assert_eq!(members[1].info().index, MemberIndex(4));
        assert_eq!(members[1].info().size, Sectors(1024));
        drop(members);
        let twice = [spec("@0+512K"), spec("@508K")];
        let error = options(Access::ReadWrite).open_all(&twice, MemberIndex(0)).unwrap_err();
        assert!(matches!(error, DeviceError::Overlap { .. }), "{error}");
        for window in ["@1M", "@0+2M", "@0+1"] {
            let error = options(Access::ReadOnly).open(&spec(window), MemberIndex(0), []);
            assert!(matches!(error, Err(DeviceError::Size { .. })), "{window}: {error:?}");
        }
    }

    #[test]
    fn a_link_to_a_member_is_that_member() {
        let dir = tempfile::tempdir().unwrap();
        let spec = file(dir.path(), "a", 1 << 20);
        let link = dir.path().join("b");
        std::os::unix::fs::symlink(&spec.label, &link).unwrap();
        let specs = [spec, MemberSpec::path(&link)];
        let error = options(Access::ReadOnly).open_all(&specs, MemberIndex(0)).unwrap_err();
        assert!(error.to_string().contains("again, expected each device once"), "{error}");
    }

    #[test]
    fn memory_is_a_member() {
        let spec = MemberSpec::parse("ram:1M").unwrap();
        let specs = [spec.clone(), spec];
        let members = options(Access::ReadWrite).open_all(&specs, MemberIndex(0)).unwrap();
        assert_eq!(members[0].mode(), IoMode::Buffered);
        assert_eq!(members[0].read(Sectors(2040), 4096).unwrap().as_ref(), [0; 4096]);
        let none = read_metadata(&members[0]).superblock.unwrap_err();
        assert!(none.contains("no md superblock found"), "{none}");
    }

    #[test]
    fn other_things_are_refused() {
        for path in ["/", "/dev/null", "/no/such/file"] {
            let spec = MemberSpec::path(Path::new(path));
            assert!(options(Access::ReadOnly).open(&spec, MemberIndex(0), []).is_err(), "{path}");
        }
        assert!(MemberSpec::parse("ram:much").is_err());
    }
}
