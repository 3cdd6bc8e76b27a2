//! Members as drivers describe them, and their states.

use weft_units::{MemberIndex, Sectors};

/// Facts about a member that was opened.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MemberInfo {
    /// Its name within the engine. Unique, chosen by the driver.
    pub index: MemberIndex,
    /// Name of the member: a path.
    pub label: String,
    /// All of it.
    pub size: Sectors,
    /// Unit of its I/O in bytes: a power of two, 512 to 4096.
    pub logical_block: u32,
    /// Source of its space, a file system as a rule: members with the same number run full
    /// together. None: from nothing that another member takes it from.
    pub space: Option<u64>,
    /// Whether it gives up what it stores for a range that is discarded, and the range reads as
    /// zeroes.
    pub discards: bool,
    /// Traits of the device that its queue goes by.
    pub device: DeviceTraits,
}

impl MemberInfo {
    /// A member of which no more is known than its size: logical blocks of 512 bytes, space of its
    /// own, discards that do not pay, and a device of which nothing is known.
    #[must_use]
    pub fn of_size(index: MemberIndex, label: impl Into<String>, size: Sectors) -> Self {
        let label = label.into();
        let device = DeviceTraits::default();
        Self { index, label, size, logical_block: 512, space: None, discards: false, device }
    }
}

/// Facts about the device behind a member.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct DeviceTraits {
    /// Number of commands that the device takes at once. `None`: not known, as of files.
    pub depth: Option<u32>,
    /// Whether more than that may be sent to it, because what is beyond waits in front of it: in
    /// the kernel.
    pub host_queue: bool,
    /// Whether what it has written may be lost until it is flushed.
    pub write_cache: bool,
    /// Whether it is a disk that turns, for which nearby requests are cheap.
    pub rotational: bool,
    /// Whether it has a flush or a FUA write beside other commands. SATA's flush is no NCQ command:
    /// while the drive has one it has nothing else, and it gets one only when it has nothing.
    pub flush_queueable: bool,
}

impl Default for DeviceTraits {
    fn default() -> Self {
        Self {
            depth: None,
            host_queue: false,
            write_cache: true,
            rotational: false,
            flush_queueable: true,
        }
    }
}

/// State of a member.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum MemberState {
    /// Not used any more; its last requests may still be out.
    Faulty,
    /// Holds all of its data.
    InSync,
    /// Good below the sector.
    Rebuilding {
        /// Data sectors.
        recovery_offset: Sectors,
    },
    /// Waits for a slot.
    Spare,
}
