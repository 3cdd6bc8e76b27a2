//! Chunks: the mapping of logical addresses to places on devices.
//!
//! Source   btrfs documentation, "On-disk Format", "CHUNK_ITEM"; "Block group profiles" in
//!          mkfs.btrfs(8)

use std::collections::BTreeMap;

use super::block::{KEY_BYTES, Key};
use super::kinds;
use crate::bytes::{le16, le64};
use crate::tree::TreeError;

/// Byte position on a device of a btrfs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct DevicePosition {
    /// Number of the device.
    pub(super) device: u64,
    /// Byte offset on the device.
    pub(super) at: u64,
}

/// Positions on devices of the copies of the bytes from a logical address on.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Copies {
    /// Number of bytes that are contiguous in each copy.
    pub(super) len: u64,
    /// Place of each copy; one or more.
    pub(super) places: Vec<DevicePosition>,
}

/// Chunk: a range of logical addresses, and its stripes on devices.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Chunk {
    len: u64,
    stripe_len: u64,
    /// Type flags: the profile, and the use for data, metadata or system.
    kind: u64,
    /// Number of copies of each stripe in a chunk with the profile RAID 10.
    sub_stripes: u64,
    stripes: Vec<DevicePosition>,
}

/// Chunks by their first logical address.
#[derive(Clone, Debug, Default)]
pub(super) struct Chunks(BTreeMap<u64, Chunk>);

impl Chunks {
    /// Adds the chunk at the logical address `start`, from its item. A chunk that is known already
    /// stays as it is. Returns the length of the item in bytes.
    pub(super) fn add(&mut self, start: u64, item: &[u8]) -> Result<usize, TreeError> {
        let field = |name: &str| format!("chunk at {start}, {name}");
        let count = usize::from(le16(item, 0x2c));
        let item_len = 0x30 + count * STRIPE_BYTES;
        if count == 0 || item.len() < item_len {
            let expected = "1 or more, within the item";
            return Err(TreeError::damaged(field("stripes"), count, expected));
        }
        let stripe = |at: usize| DevicePosition { device: le64(item, at), at: le64(item, at + 8) };
        let chunk = Chunk {
            len: le64(item, 0),
            stripe_len: le64(item, 0x10),
            kind: le64(item, 0x18),
            sub_stripes: le16(item, 0x2e).into(),
            stripes: (0..count).map(|n| stripe(0x30 + n * STRIPE_BYTES)).collect(),
        };
        let end = start.checked_add(chunk.len).filter(|end| *end > start);
        let Some(end) = end.filter(|end| *end <= u64::MAX >> 1) else {
            return Err(TreeError::damaged(field("length"), chunk.len, "an end below 2^63"));
        };
        if !chunk.stripe_len.is_power_of_two() || chunk.stripe_len < 4096 {
            let expected = "a power of two, 4096 or more";
            return Err(TreeError::damaged(field("bytes of a stripe"), chunk.stripe_len, expected));
        }
        let (subs, all) = (chunk.sub_stripes, count as u64);
        if chunk.kind & RAID10 != 0 && (subs == 0 || !all.is_multiple_of(subs)) {
            return Err(TreeError::damaged(field("copies"), subs, format!("a divisor of {all}")));
        }
        if self.0.get(&start) == Some(&chunk) {
            return Ok(item_len);
        }
        if let Some((other, _)) =
            self.0.range(..end).next_back().filter(|(at, it)| *at + it.len > start)
        {
            let found = format!("{} bytes", chunk.len);
            return Err(TreeError::damaged(
                field("length"),
                found,
                format!("none of that at {other}"),
            ));
        }
        self.0.insert(start, chunk);
        Ok(item_len)
    }

    /// Adds the chunks in a superblock: those in which the chunk tree lies.
    pub(super) fn add_system(&mut self, bytes: &[u8]) -> Result<(), TreeError> {
        let mut at = 0;
        while at + KEY_BYTES < bytes.len() {
            let key = Key::at(bytes, at);
            if key.kind != kinds::CHUNK_ITEM {
                let what = format!("superblock, byte {at} of its chunks, kind of the key");
                let expected = kinds::CHUNK_ITEM.to_string();
                return Err(TreeError::damaged(what, key.kind, expected));
            }
            at += KEY_BYTES;
            at += self.add(key.offset, &bytes[at..])?;
        }
        Ok(())
    }

    /// First logical address behind the last chunk; 0 without chunks.
    pub(super) fn end(&self) -> u64 {
        self.0.last_key_value().map_or(0, |(start, chunk)| start + chunk.len)
    }

    /// Places of the bytes from a logical address on, up to the end of the stripe or chunk. It is
    /// an error if no chunk has the address, or if the profile has parity.
    pub(super) fn copies(&self, address: u64) -> Result<Copies, TreeError> {
        let found = self.0.range(..=address).next_back();
        let Some((start, chunk)) = found.filter(|(start, chunk)| address - *start < chunk.len)
        else {
            return Err(TreeError::damaged("logical address", address, "one in a chunk"));
        };
        let within = address - start;
        let left = chunk.len - within;
        let place = |stripe: &DevicePosition, more: u64| DevicePosition {
            device: stripe.device,
            at: stripe.at.saturating_add(more),
        };
        if chunk.kind & (RAID5 | RAID6) != 0 {
            let name = if chunk.kind & RAID5 != 0 { "RAID5" } else { "RAID6" };
            return Err(TreeError::Refused(format!("the profile {name} of btrfs is not read")));
        }
        let copies_each = match chunk.kind {
            kind if kind & RAID10 != 0 => chunk.sub_stripes,
            kind if kind & RAID0 != 0 => 1,
            _ => {
                let places = chunk.stripes.iter().map(|stripe| place(stripe, within)).collect();
                return Ok(Copies { len: left, places });
            }
        };
        let groups = chunk.stripes.len() as u64 / copies_each;
        let (number, inner) = (within / chunk.stripe_len, within % chunk.stripe_len);
        let more = (number / groups).saturating_mul(chunk.stripe_len).saturating_add(inner);
        let first = usize::try_from(number % groups * copies_each).unwrap_or(usize::MAX);
        let count = usize::try_from(copies_each).unwrap_or(usize::MAX);
        let places = chunk.stripes.iter().skip(first).take(count);
        Ok(Copies {
            len: left.min(chunk.stripe_len - inner),
            places: places.map(|stripe| place(stripe, more)).collect(),
        })
    }
}

const STRIPE_BYTES: usize = 32;
const RAID0: u64 = 0x8;
const RAID10: u64 = 0x40;
const RAID5: u64 = 0x80;
const RAID6: u64 = 0x100;

#[cfg(test)]
mod tests {
    use super::*;

    fn item(len: u64, kind: u64, sub_stripes: u16, stripes: &[(u64, u64)]) -> Vec<u8> {
        let mut item = [len, 2, 65536, kind].map(u64::to_le_bytes).concat();
        item.extend([0; 12]);
        item.extend(u16::try_from(stripes.len()).unwrap().to_le_bytes());
        item.extend(sub_stripes.to_le_bytes());
        for (device, at) in stripes {
            item.extend(device.to_le_bytes());
            item.extend(at.to_le_bytes());
            item.extend([0; 16]);
        }
        item
    }

    fn places(chunks: &Chunks, address: u64) -> (u64, Vec<(u64, u64)>) {
        let copies = chunks.copies(address).unwrap();
        (copies.len, copies.places.iter().map(|place| (place.device, place.at)).collect())
    }

    #[test]
    fn each_profile_has_its_places() {
        let mut chunks = Chunks::default();
        let four = [(1, 1 << 20), (2, 2 << 20), (3, 3 << 20), (4, 4 << 20)];
        chunks.add(1 << 20, &item(1 << 20, 1, 1, &four[..1])).unwrap();
        chunks.add(2 << 20, &item(1 << 20, 0x20, 1, &[(1, 5 << 20), (1, 6 << 20)])).unwrap();
        chunks.add(3 << 20, &item(1 << 20, RAID0, 1, &four[..2])).unwrap();
        chunks.add(4 << 20, &item(1 << 20, RAID10, 2, &four)).unwrap();
        chunks.add(5 << 20, &item(1 << 20, RAID5, 1, &four[..3])).unwrap();
        assert_eq!(places(&chunks, (1 << 20) + 5), ((1 << 20) - 5, vec![(1, (1 << 20) + 5)]));
        let both = vec![(1, (5 << 20) + 5), (1, (6 << 20) + 5)];
        assert_eq!(places(&chunks, (2 << 20) + 5), ((1 << 20) - 5, both));
        // Stripe 3 of two devices: the second stripe of the second one.
        let third = (3 << 20) + 3 * 65536 + 6;
        assert_eq!(places(&chunks, third), (65530, vec![(2, (2 << 20) + 65536 + 6)]));
        let third = (4 << 20) + 3 * 65536 + 6;
        let both = vec![(3, (3 << 20) + 65536 + 6), (4, (4 << 20) + 65536 + 6)];
        assert_eq!(places(&chunks, third), (65530, both));
        assert!(chunks.copies(5 << 20).unwrap_err().to_string().contains("RAID5"));
        assert!(chunks.copies(6 << 20).is_err() && chunks.copies(0).is_err());
        assert_eq!(chunks.end(), 6 << 20);
    }

    #[test]
    fn a_chunk_that_overlaps_or_is_impossible_is_an_error() {
        let mut chunks = Chunks::default();
        let one = item(1 << 20, 1, 1, &[(1, 0)]);
        assert_eq!(chunks.add(1 << 20, &one).unwrap(), 80);
        assert_eq!(chunks.add(1 << 20, &one).unwrap(), 80, "the same once more");
        for (start, item) in [
            ((1 << 20) + 4096, one.clone()),
            (4096, one.clone()),
            (4 << 20, item(0, 1, 1, &[(1, 0)])),
            (4 << 20, item(u64::MAX, 1, 1, &[(1, 0)])),
            (4 << 20, item(1 << 20, RAID10, 0, &[(1, 0)])),
            (4 << 20, item(1 << 20, 1, 1, &[])),
            (4 << 20, one[..70].to_vec()),
        ] {
            assert!(chunks.add(start, &item).is_err(), "{start}");
        }
    }
}
