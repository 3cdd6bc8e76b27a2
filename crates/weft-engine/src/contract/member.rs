//! Members as drivers describe them, and their states.

use weft_units::{MemberIndex, Sectors};

/// Facts about a member that was opened.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MemberInfo {
    /// Index within the engine. Unique, chosen by the driver.
    pub index: MemberIndex,
    /// Name of the member: a path.
    pub label: String,
    /// Size of the whole member.
    pub size: Sectors,
    /// Unit of its I/O in bytes: a power of two, 512 to 4096.
    pub logical_block: u32,
    /// Number of the space that it is stored in, usually a file system: members with the same
    /// number run full together. `None`: space that it shares with no other member.
    pub space: Option<u64>,
    /// Whether it frees the storage of a discarded range, which then reads as zeroes.
    pub discards: bool,
    /// Traits of the device that matter to its queue.
    pub device: DeviceTraits,
}

impl MemberInfo {
    /// A member of which only the size is known: logical blocks of 512 bytes, space of its own,
    /// discards that do not pay, and an unknown device.
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
    /// Number of commands that the device takes at once. `None`: unknown, as for files.
    pub depth: Option<u32>,
    /// Whether more commands may be sent, because the kernel queues them in front of the device.
    pub host_queue: bool,
    /// Whether completed writes may be lost until they are flushed.
    pub write_cache: bool,
    /// Whether it is a rotating disk, for which nearby requests are cheap.
    pub rotational: bool,
    /// Whether a flush or a FUA write can run beside other commands. SATA's flush is no NCQ
    /// command: while the drive has one it has nothing else, and it gets one only when it has
    /// nothing.
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
    /// Not used any more; its last requests may still be outstanding.
    Faulty,
    /// Holds all of its data.
    InSync,
    /// Has its data below the recovery offset.
    Rebuilding {
        /// Data sectors that were recovered.
        recovery_offset: Sectors,
    },
    /// Waits for a slot.
    Spare,
}
