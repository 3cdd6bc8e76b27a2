//! Structures and commands that the ublk driver and its server exchange, as bytes.
//!
//! Source   include/uapi/linux/ublk_cmd.h

use weft_units::{SECTOR_BYTES, Sectors};

/// Command for `/dev/ublk-control`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Command {
    Info,
    Add,
    Delete,
    Start,
    Stop,
    SetParams,
    Params,
    StartRecovery,
    EndRecovery,
}

/// Command for `/dev/ublkcN`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum QueueCommand {
    /// Wait for a request.
    Fetch,
    /// Answer a request, and wait for the next one.
    CommitAndFetch,
}

/// State of a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    /// There is no block device yet, or none any more.
    Dead,
    /// A process serves the device.
    Live,
    /// The server has ended, and requests wait.
    Quiesced,
    /// State with another number, from a later kernel.
    Other(u16),
}

/// Facts about a device that the driver reports.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct DeviceInfo {
    pub(super) number: u32,
    pub(super) state: State,
    /// Process id of the process that serves the device, or that served it last.
    server: u32,
    flags: u64,
    /// Number that the server has chosen for the device (`ublksrv_flags`).
    pub(super) owner: u64,
}

/// Size and limits of a block device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Params {
    /// Size of the device.
    pub size: Sectors,
    /// Logical block in bytes, a power of two.
    pub logical_block: u32,
    /// Smallest write that needs no read before it, in bytes, a power of two.
    pub io_min: u32,
    /// Preferred size of a request in bytes, a power of two.
    pub io_opt: u32,
    /// Whether writes are refused.
    pub read_only: bool,
    /// Whether discards and writes of zeros are taken.
    pub discards: bool,
}

/// Kind of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operation {
    /// Read.
    Read,
    /// Write.
    Write,
    /// Flush.
    Flush,
    /// Discard.
    Discard,
    /// Write zeros.
    WriteZeroes {
        /// Whether the range has to stay allocated, so that it must not be unmapped.
        keep: bool,
    },
    /// Operation with another number, which is not supported.
    Other(u8),
}

/// Request of a block device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Request {
    /// Index of the request's entry in the queue, by which it is answered.
    pub tag: u16,
    /// Kind of the request.
    pub operation: Operation,
    /// Whether the write has to be durable when it is answered.
    pub fua: bool,
    /// First byte of the request's range on the device.
    pub start: u64,
    /// Length in bytes.
    pub len: u64,
}

impl Command {
    /// Number of the command for the driver: that of an `ioctl` with 32 bytes.
    pub(super) fn number(self) -> u32 {
        let (number, is_written) = match self {
            Self::Info => (0x02, false),
            Self::Add => (0x04, true),
            Self::Delete => (0x05, true),
            Self::Start => (0x06, true),
            Self::Stop => (0x07, true),
            Self::SetParams => (0x08, true),
            Self::Params => (0x09, false),
            Self::StartRecovery => (0x10, true),
            Self::EndRecovery => (0x11, true),
        };
        ioctl(number, 32, is_written)
    }
}

impl QueueCommand {
    /// Number of the command for the driver: that of an `ioctl` with 16 bytes.
    pub(super) fn number(self) -> u32 {
        ioctl(if self == Self::Fetch { 0x20 } else { 0x21 }, 16, true)
    }

    /// Bytes of the command for entry `tag` of queue 0. `result` is the result of the last request
    /// in this entry.
    pub(super) fn bytes(tag: u16, result: i32) -> [u8; 16] {
        let mut bytes = [0; 16];
        bytes[2..4].copy_from_slice(&tag.to_ne_bytes());
        bytes[4..8].copy_from_slice(&result.to_ne_bytes());
        bytes
    }
}

/// Number of an `ioctl` of type `u` that reads, and may write, `size` bytes.
const fn ioctl(number: u32, size: u32, is_written: bool) -> u32 {
    let direction: u32 = if is_written { 3 } else { 2 };
    direction << 30 | size << 16 | (b'u' as u32) << 8 | number
}

/// Bytes of a control command about `device`, with its argument `data`, and with `len` bytes at
/// `address` that the driver reads or writes.
pub(super) fn control(device: u32, address: u64, len: u16, data: u64) -> [u8; 80] {
    let mut bytes = [0; 80];
    bytes[0..4].copy_from_slice(&device.to_ne_bytes());
    bytes[4..6].copy_from_slice(&ANY_QUEUE.to_ne_bytes());
    bytes[6..8].copy_from_slice(&len.to_ne_bytes());
    bytes[8..16].copy_from_slice(&address.to_ne_bytes());
    bytes[16..24].copy_from_slice(&data.to_ne_bytes());
    bytes
}

impl State {
    fn of(number: u16) -> Self {
        match number {
            0 => Self::Dead,
            1 => Self::Live,
            2 => Self::Quiesced,
            other => Self::Other(other),
        }
    }

    /// Description of the state in words that follow "a device that".
    pub(super) fn says(self) -> String {
        match self {
            Self::Dead => "has not started".to_owned(),
            Self::Live => "is served".to_owned(),
            Self::Quiesced => "waits for another server".to_owned(),
            Self::Other(number) => format!("is in state {number}"),
        }
    }
}

impl DeviceInfo {
    pub(super) fn new(number: Option<u32>, owner: u64) -> Self {
        let flags = F_USER_RECOVERY | F_USER_RECOVERY_REISSUE | F_CMD_IOCTL_ENCODE | F_USER_COPY;
        let (number, server) = (number.unwrap_or(ANY_DEVICE), std::process::id());
        Self { number, state: State::Dead, server, flags, owner }
    }

    /// Whether the process that serves the device runs.
    pub(super) fn is_served(&self) -> bool {
        std::path::Path::new(&format!("/proc/{}", self.server)).exists()
    }

    pub(super) fn encode(&self) -> [u8; INFO_BYTES] {
        let mut bytes = [0; INFO_BYTES];
        bytes[0..2].copy_from_slice(&1_u16.to_ne_bytes());
        bytes[2..4].copy_from_slice(&super::DEPTH.to_ne_bytes());
        bytes[8..12].copy_from_slice(&super::REQUEST_BYTES_MAX.to_ne_bytes());
        bytes[12..16].copy_from_slice(&self.number.to_ne_bytes());
        bytes[16..20].copy_from_slice(&self.server.to_ne_bytes());
        bytes[24..32].copy_from_slice(&self.flags.to_ne_bytes());
        bytes[32..40].copy_from_slice(&self.owner.to_ne_bytes());
        bytes
    }

    pub(super) fn decode(bytes: &[u8; INFO_BYTES]) -> Self {
        Self {
            number: u32::from_ne_bytes(part(bytes, 12)),
            state: State::of(u16::from_ne_bytes(part(bytes, 4))),
            server: u32::from_ne_bytes(part(bytes, 16)),
            flags: u64::from_ne_bytes(part(bytes, 24)),
            owner: u64::from_ne_bytes(part(bytes, 32)),
        }
    }
}

impl Params {
    pub(super) fn encode(&self) -> [u8; PARAMS_BYTES] {
        let mut bytes = [0; PARAMS_BYTES];
        let words = |at: usize, value: u32, bytes: &mut [u8]| {
            bytes[at..at + 4].copy_from_slice(&value.to_ne_bytes());
        };
        let len = u32::try_from(PARAMS_BYTES).expect("64");
        words(0, len, &mut bytes);
        words(4, TYPE_BASIC | if self.discards { TYPE_DISCARD } else { 0 }, &mut bytes);
        words(8, ATTR_VOLATILE_CACHE | ATTR_FUA | u32::from(self.read_only), &mut bytes);
        let shift = |bytes: u32| u8::try_from(bytes.trailing_zeros()).expect("at most 32");
        bytes[12] = shift(self.logical_block);
        bytes[13] = shift(self.io_min);
        bytes[14] = shift(self.io_opt);
        bytes[15] = shift(self.io_min);
        let sectors_max = super::REQUEST_BYTES_MAX / 512;
        words(16, sectors_max, &mut bytes);
        bytes[24..32].copy_from_slice(&self.size.0.to_ne_bytes());
        if self.discards {
            words(44, self.logical_block.max(4096), &mut bytes);
            words(48, DISCARD_SECTORS_MAX, &mut bytes);
            words(52, DISCARD_SECTORS_MAX, &mut bytes);
            bytes[56..58].copy_from_slice(&1_u16.to_ne_bytes());
        }
        bytes
    }

    pub(super) fn decode(bytes: &[u8; PARAMS_BYTES]) -> Self {
        let word = |at| u32::from_ne_bytes(part(bytes, at));
        let power = |at: usize| 1_u32.checked_shl(u32::from(bytes[at])).unwrap_or(0);
        Self {
            size: Sectors(u64::from_ne_bytes(part(bytes, 24))),
            logical_block: power(12),
            io_min: power(15),
            io_opt: power(14),
            read_only: word(8) & ATTR_READ_ONLY != 0,
            discards: word(4) & TYPE_DISCARD != 0,
        }
    }
}

impl Request {
    /// Decodes the request of entry `tag` from its descriptor.
    pub(super) fn decode(tag: u16, descriptor: &[u8; DESCRIPTOR_BYTES]) -> Self {
        let flags = u32::from_ne_bytes(part(descriptor, 0));
        let sectors = |count: u64| count.saturating_mul(SECTOR_BYTES);
        let operation = match flags & 0xff {
            0 => Operation::Read,
            1 => Operation::Write,
            2 => Operation::Flush,
            3 => Operation::Discard,
            5 => Operation::WriteZeroes { keep: flags & IO_NOUNMAP != 0 },
            other => Operation::Other(u8::try_from(other).expect("eight bits")),
        };
        Self {
            tag,
            operation,
            fua: flags & IO_FUA != 0,
            start: sectors(u64::from_ne_bytes(part(descriptor, 8))),
            len: sectors(u32::from_ne_bytes(part(descriptor, 4)).into()),
        }
    }
}

/// Offset in `/dev/ublkcN` of byte `offset` of the data of the request in entry `tag` of queue 0.
pub(super) fn data_offset(tag: u16, offset: u64) -> u64 {
    DATA_OFFSET + (u64::from(tag) << 25) + offset
}

fn part<const N: usize>(bytes: &[u8], at: usize) -> [u8; N] {
    bytes[at..at + N].try_into().expect("the structure has these bytes")
}

/// Size of `struct ublksrv_ctrl_dev_info`.
pub(super) const INFO_BYTES: usize = 64;
/// Size of `struct ublk_params` as far as discards.
pub(super) const PARAMS_BYTES: usize = 64;
/// Size of `struct ublksrv_io_desc`.
pub(super) const DESCRIPTOR_BYTES: usize = 24;

const ANY_DEVICE: u32 = u32::MAX;
const ANY_QUEUE: u16 = u16::MAX;
const F_USER_RECOVERY: u64 = 1 << 3;
const F_USER_RECOVERY_REISSUE: u64 = 1 << 4;
const F_CMD_IOCTL_ENCODE: u64 = 1 << 6;
const F_USER_COPY: u64 = 1 << 7;
const TYPE_BASIC: u32 = 1;
const TYPE_DISCARD: u32 = 1 << 1;
const ATTR_READ_ONLY: u32 = 1;
const ATTR_VOLATILE_CACHE: u32 = 1 << 2;
const ATTR_FUA: u32 = 1 << 3;
const IO_FUA: u32 = 1 << 13;
const IO_NOUNMAP: u32 = 1 << 15;
/// Offset in `/dev/ublkcN` at which the data of requests begins.
const DATA_OFFSET: u64 = 0x8000_0000;
/// Longest discard or write of zeros, in sectors: 64 MiB, the largest part of such a request that
/// is carried out at once.
const DISCARD_SECTORS_MAX: u32 = 64 << 11;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commands_have_the_numbers_of_the_kernel() {
        // Values that a C program with the kernel's header prints by `printf("%#x", UBLK_U_CMD_…)`.
        assert_eq!(Command::Info.number(), 0x8020_7502);
        assert_eq!(Command::Add.number(), 0xc020_7504);
        assert_eq!(Command::EndRecovery.number(), 0xc020_7511);
        assert_eq!(QueueCommand::Fetch.number(), 0xc010_7520);
        assert_eq!(QueueCommand::CommitAndFetch.number(), 0xc010_7521);
    }

    #[test]
    fn params_and_infos_survive_their_bytes() {
        let params = Params {
            size: Sectors(1_000_000),
            logical_block: 512,
            io_min: 4096,
            io_opt: 65_536,
            read_only: true,
            discards: true,
        };
        assert_eq!(Params::decode(&params.encode()), params);
        let params = Params { read_only: false, discards: false, ..params };
        assert_eq!(Params::decode(&params.encode()), params);
        let info = DeviceInfo::new(Some(3), 0x0123_4567_89ab_cdef);
        assert_eq!(DeviceInfo::decode(&info.encode()), info);
    }

    #[test]
    fn requests_are_read_from_their_descriptors() {
        let descriptor = |flags: u32, sectors: u32, start: u64| {
            let mut bytes = [0; DESCRIPTOR_BYTES];
            bytes[0..4].copy_from_slice(&flags.to_ne_bytes());
            bytes[4..8].copy_from_slice(&sectors.to_ne_bytes());
            bytes[8..16].copy_from_slice(&start.to_ne_bytes());
            bytes
        };
        let request = Request::decode(7, &descriptor(1 | IO_FUA, 8, 3));
        let expected =
            Request { tag: 7, operation: Operation::Write, fua: true, start: 1536, len: 4096 };
        assert_eq!(request, expected);
        let keep = Request::decode(0, &descriptor(5 | IO_NOUNMAP, 1, u64::MAX));
        assert_eq!(keep.operation, Operation::WriteZeroes { keep: true });
        assert_eq!(keep.start, u64::MAX, "no sum overflows");
        assert_eq!(Request::decode(0, &descriptor(9, 1, 0)).operation, Operation::Other(9));
    }

    #[test]
    fn data_of_each_entry_has_a_place_of_its_own() {
        assert_eq!(data_offset(0, 0), 0x8000_0000);
        assert_eq!(data_offset(2, 512), 0x8000_0000 + (2 << 25) + 512);
    }
}
