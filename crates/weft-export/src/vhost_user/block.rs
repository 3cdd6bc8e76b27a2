//! virtio-blk: features of a disk, its configuration space, and the requests in its chains.
//!
//! A request is a header of 16 bytes, the data, and a status of one byte. They lie where the driver
//! likes, so a chain is two sequences of bytes: one that the device reads, one that it writes.
//!
//! Source   Virtual I/O Device 1.2, 5.2

use virtio_bindings::virtio_blk::{
    VIRTIO_BLK_F_BLK_SIZE, VIRTIO_BLK_F_DISCARD, VIRTIO_BLK_F_FLUSH, VIRTIO_BLK_F_MQ,
    VIRTIO_BLK_F_RO, VIRTIO_BLK_F_SEG_MAX, VIRTIO_BLK_F_TOPOLOGY, VIRTIO_BLK_F_WRITE_ZEROES,
    VIRTIO_BLK_ID_BYTES, VIRTIO_BLK_S_IOERR, VIRTIO_BLK_S_OK, VIRTIO_BLK_S_UNSUPP,
    VIRTIO_BLK_T_DISCARD, VIRTIO_BLK_T_FLUSH, VIRTIO_BLK_T_GET_ID, VIRTIO_BLK_T_IN,
    VIRTIO_BLK_T_OUT, VIRTIO_BLK_T_WRITE_ZEROES, VIRTIO_BLK_WRITE_ZEROES_FLAG_UNMAP,
};
use weft_engine::RequestOp;
use weft_runtime::ublk::Params;
use weft_units::SECTOR_BYTES;

use super::ring::{Chain, Memory};
use crate::record::VolumeRequest;

/// Disk of a virtual machine: the limits and the serial number that the machine sees.
#[derive(Clone, Debug)]
pub(crate) struct Disk {
    pub(super) params: Params,
    /// Serial number: the first 20 bytes of the volume's name, filled up with zeros.
    id: [u8; ID_BYTES],
}

/// Action that the request in a chain asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Verb {
    Ask(VolumeRequest),
    /// Writes the disk's serial number into the chain.
    Identify,
    /// Ends the request with this status.
    Refuse(Status),
}

/// Status of a request that has ended: the last byte of its chain.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Status {
    Ok = VIRTIO_BLK_S_OK as isize,
    Error = VIRTIO_BLK_S_IOERR as isize,
    Unsupported = VIRTIO_BLK_S_UNSUPP as isize,
}

impl Disk {
    pub(crate) fn new(params: Params, name: &str) -> Self {
        let mut id = [0; ID_BYTES];
        id.iter_mut().zip(name.bytes()).for_each(|(to, from)| *to = from);
        Self { params, id }
    }

    /// Bits of the features of virtio-blk that the disk offers.
    pub(super) fn features(&self) -> u64 {
        let always = [
            VIRTIO_BLK_F_SEG_MAX,
            VIRTIO_BLK_F_BLK_SIZE,
            VIRTIO_BLK_F_FLUSH,
            VIRTIO_BLK_F_TOPOLOGY,
            VIRTIO_BLK_F_MQ,
        ];
        let Params { read_only, discards, .. } = self.params;
        let read_only = read_only.then_some(VIRTIO_BLK_F_RO);
        let discards = discards.then_some(VIRTIO_BLK_F_DISCARD);
        // Without this feature the driver writes zeroes as data.
        let zeroes = read_only.is_none().then_some(VIRTIO_BLK_F_WRITE_ZEROES);
        let all = always.into_iter().chain(read_only).chain(discards).chain(zeroes);
        all.fold(0, |bits, feature| bits | 1 << feature)
    }

    /// Configuration space of a disk with `queues` queues.
    pub(super) fn config(&self, queues: u16) -> [u8; CONFIG_BYTES] {
        let Params { size, logical_block: block, io_min, io_opt, .. } = self.params;
        let sectors_max = (u32::MAX / SECTOR).to_le_bytes();
        let io_min = u16::try_from(io_min / block).unwrap_or(u16::MAX);
        let mut config = [0; CONFIG_BYTES];
        let mut put = |at: usize, bytes: &[u8]| config[at..at + bytes.len()].copy_from_slice(bytes);
        put(0, &size.0.to_le_bytes());
        put(12, &DATA_SEGMENTS_MAX.to_le_bytes());
        put(20, &block.to_le_bytes());
        put(26, &io_min.to_le_bytes());
        put(28, &(io_opt / block).to_le_bytes());
        put(34, &queues.to_le_bytes());
        for (sectors, segments) in [(36, 40), (48, 52)] {
            put(sectors, &sectors_max);
            put(segments, &1_u32.to_le_bytes());
        }
        put(44, &(block / SECTOR).to_le_bytes());
        put(56, &[1]);
        config
    }

    /// Action for the request in a chain. With `write_through`, which is for a driver without
    /// flushes, a write is durable when it is answered.
    pub(super) fn verb(&self, memory: &Memory, chain: &Chain, write_through: bool) -> Verb {
        let mut header = [0; HEADER_BYTES];
        if chain.read(memory, 0, &mut header).is_none() {
            return Verb::Refuse(Status::Error);
        }
        let (kind, rest) = header.split_first_chunk().expect("16 bytes");
        let sector = u64::from_le_bytes(*rest.last_chunk().expect("12 bytes"));
        let len = chain.data_len(u32::from_le_bytes(*kind) == VIRTIO_BLK_T_IN);
        let ask = |op, sector: u64, len, discard| {
            let start = sector.checked_mul(SECTOR_BYTES);
            let end = start.and_then(|start| start.checked_add(len));
            let size = self.params.size.0 * SECTOR_BYTES;
            match (start, end) {
                (Some(start), Some(end)) if end <= size && len > 0 => {
                    let fua = write_through && op != RequestOp::Read;
                    Verb::Ask(VolumeRequest { op, start, len, fua, discard })
                }
                _ => Verb::Refuse(Status::Error),
            }
        };
        match u32::from_le_bytes(*kind) {
            VIRTIO_BLK_T_IN => ask(RequestOp::Read, sector, len, false),
            VIRTIO_BLK_T_GET_ID => Verb::Identify,
            VIRTIO_BLK_T_FLUSH => {
                let (op, start, len) = (RequestOp::Flush, 0, 0);
                Verb::Ask(VolumeRequest { op, start, len, fua: false, discard: false })
            }
            VIRTIO_BLK_T_OUT | VIRTIO_BLK_T_DISCARD | VIRTIO_BLK_T_WRITE_ZEROES
                if self.params.read_only =>
            {
                Verb::Refuse(Status::Error)
            }
            VIRTIO_BLK_T_OUT => ask(RequestOp::Write, sector, len, false),
            kind @ (VIRTIO_BLK_T_DISCARD | VIRTIO_BLK_T_WRITE_ZEROES) => {
                let mut range = [0; RANGE_BYTES];
                if len != RANGE_BYTES as u64
                    || chain.read(memory, HEADER_BYTES as u64, &mut range).is_none()
                {
                    return Verb::Refuse(Status::Error);
                }
                let word =
                    |at: usize| u32::from_le_bytes(*range[at..].first_chunk().expect("16 bytes"));
                let sector = u64::from(word(0)) | u64::from(word(4)) << 32;
                let (len, flags) = (u64::from(word(8)) * SECTOR_BYTES, word(12));
                let zeroes = kind == VIRTIO_BLK_T_WRITE_ZEROES;
                let allowed = if zeroes { VIRTIO_BLK_WRITE_ZEROES_FLAG_UNMAP } else { 0 };
                if flags & !allowed != 0 || !zeroes && !self.params.discards {
                    return Verb::Refuse(Status::Unsupported);
                }
                let op = if zeroes { RequestOp::WriteZeroes } else { RequestOp::Trim };
                ask(op, sector, len, flags != 0)
            }
            _ => Verb::Refuse(Status::Unsupported),
        }
    }

    /// Serial number, as [`Verb::Identify`] writes it.
    pub(super) fn id(&self) -> &[u8] {
        &self.id
    }
}

/// Length of the header of a request, in bytes.
pub(super) const HEADER_BYTES: usize = 16;
/// Largest number of segments of a request's data.
pub(super) const DATA_SEGMENTS_MAX: u32 = 126;
/// Length in bytes of the description of the range of a discard or write of zeroes.
const RANGE_BYTES: usize = 16;
/// Unit of the configuration space, in bytes.
const SECTOR: u32 = 512;
const ID_BYTES: usize = VIRTIO_BLK_ID_BYTES as usize;
/// Length in bytes of `struct virtio_blk_config` up to the fields of a disk with zones.
const CONFIG_BYTES: usize = 60;
