//! Descriptions of members by drivers, and the states of members.

use weft_units::{MemberIndex, Sectors};

/// Facts that the driver reports about an opened member.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MemberInfo {
    /// Index of the member within the engine, chosen by the driver; unique over all volumes.
    pub index: MemberIndex,
    /// Name of the member: a path.
    pub label: String,
    /// Size of the whole member.
    pub size: Sectors,
    /// Logical block size in bytes, the granularity of I/O: a power of two, 512 to 4096.
    pub logical_block: u32,
    /// Identifier of the storage space of the member, usually a file system. Members with the same
    /// identifier run out of space together. `None`: the member shares its space with no other.
    pub space: Option<u64>,
    /// Whether the member frees the storage of a discarded range, which then reads as zeroes.
    pub discards: bool,
    /// Properties of the device that matter to the member's queue.
    pub device: DeviceTraits,
}

impl MemberInfo {
    /// Describes a member of which only the size is known: logical blocks of 512 bytes, space of
    /// its own, no discards, and an unknown device.
    #[must_use]
    pub fn of_size(index: MemberIndex, label: impl Into<String>, size: Sectors) -> Self {
        let label = label.into();
        let device = DeviceTraits::default();
        Self { index, label, size, logical_block: 512, space: None, discards: false, device }
    }
}

/// Properties of the device behind a member.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct DeviceTraits {
    /// Number of commands that the device accepts at once. `None`: unknown, as for files.
    pub depth: Option<u32>,
    /// Whether more than `depth` commands may be sent, because the kernel queues the excess in
    /// front of the device.
    pub host_queue: bool,
    /// Whether the device has a volatile write cache, so that completed writes may be lost until a
    /// flush.
    pub write_cache: bool,
    /// Whether the device is a rotating disk, for which nearby requests are cheap.
    pub rotational: bool,
    /// Whether a flush or a FUA write can run beside other commands. A SATA drive cannot do this,
    /// because a flush is not an NCQ command: the flush is sent only to an idle drive, and the
    /// drive gets no other command until the flush ends.
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

/// State of a member in the array.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum MemberState {
    /// The member has failed and is not used any more. Its last requests may still be outstanding.
    Faulty,
    /// The member holds all data of its slot.
    InSync,
    /// The member is under recovery: it holds the data of its slot below the recovery offset only.
    Rebuilding {
        /// Number of data sectors that are recovered, counted from the start of the data.
        recovery_offset: Sectors,
    },
    /// The member has no slot. It is rebuilt when a slot becomes free.
    Spare,
}
