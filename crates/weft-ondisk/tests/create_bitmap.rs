//! Tests of new bitmaps against the bytes that mdadm writes, `fixtures/md-bitmap`.

use std::path::Path;

use weft_ondisk::{BitmapHeader, NewBitmap, Superblock, Version};
use weft_units::{Bytes, Sectors};

/// Array that mdadm created.
struct MdadmArray {
    name: String,
    superblock: Superblock,
    member_size: Sectors,
    bitmap_start: Sectors,
    new: NewBitmap,
    /// Header and first bits of the bitmap.
    bitmap: Vec<u8>,
    /// Number of bytes that mdadm wrote.
    written: usize,
}

fn mdadm_arrays() -> Vec<MdadmArray> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fixtures/md-bitmap");
    let manifest = std::fs::read_to_string(root.join("MANIFEST")).unwrap();
    let lines = manifest.lines().filter(|line| !line.starts_with('#'));
    let arrays = lines.map(|line| {
        let fields: Vec<&str> = line.split('\t').collect();
        let number = |field: usize| fields[field].parse::<u64>().unwrap();
        let read = |file: &str| std::fs::read(root.join(fields[0]).join(file)).unwrap();
        let (version, member_size): (Version, _) = (fields[1].parse().unwrap(), Sectors(number(2)));
        assert_eq!(version.position(member_size), Some(Sectors(number(3))), "{}", fields[0]);
        let chunk = Some(Bytes(number(5))).filter(|chunk| chunk.0 > 0);
        let superblock = Superblock::parse(&read("m0.super.bin"), version, member_size).unwrap();
        let mut bitmap = read("m0.bitmap.bin");
        // A new 0.90 array begins at event 1, and its bitmap by mdadm at event 0, which is out of
        // date; the bitmap that weft writes is current.
        assert_eq!(superblock.events(), u64::from(version == Version::V0_90), "{}", fields[0]);
        assert!(bitmap[24..40].iter().all(|byte| *byte == 0), "{}", fields[0]);
        for events in [24, 32] {
            bitmap[events..events + 8].copy_from_slice(&superblock.events().to_le_bytes());
        }
        MdadmArray {
            name: fields[0].to_owned(),
            superblock,
            member_size,
            bitmap_start: Sectors(number(4)),
            new: NewBitmap { chunk, ..NewBitmap::default() },
            bitmap,
            written: usize::try_from(number(6)).unwrap(),
        }
    });
    arrays.collect()
}

/// The comparison is byte for byte, with the place on the member and the length; mdadm fills all 60
/// KiB of version 0.90, in which weft creates no arrays.
#[test]
fn a_new_bitmap_is_that_of_mdadm() {
    let arrays = mdadm_arrays();
    assert_eq!(arrays.len(), 14);
    for MdadmArray { name, superblock, member_size, bitmap_start, new, bitmap, written } in arrays {
        let room = superblock.bitmap_room(member_size).unwrap().unwrap();
        assert_eq!(room.start, bitmap_start, "{name}");
        let bytes = new.encode(&superblock).unwrap();
        assert_eq!(bytes[..512], bitmap, "{name}");
        assert!(bytes[512..].iter().all(|byte| *byte == 0xff), "{name}");
        match superblock.version() {
            Version::V0_90 => assert!(bytes.len() <= written && written == 60 << 10, "{name}"),
            Version::V1_0 | Version::V1_1 | Version::V1_2 => {
                assert_eq!(bytes.len(), written, "{name}");
            }
        }
        let header = BitmapHeader::decode(&bitmap).unwrap();
        assert_eq!(header.state, 0, "{name}");
        assert_eq!((header.version, header.daemon_sleep), (4, 5), "{name}");
        assert_eq!(header.sync_size, superblock.sync_size(), "{name}");
        let chunk = new.chunk.map_or(64 << 20, |chunk| chunk.0);
        assert_eq!(u64::from(header.chunksize), chunk, "{name}");
        // The comparison notices another chunk and another period.
        let other = NewBitmap { chunk: Some(Bytes(chunk * 2)), ..new };
        assert_ne!(other.encode(&superblock).unwrap()[..512], bitmap, "{name}");
        let other = NewBitmap { daemon_sleep: 6, ..new };
        assert_ne!(other.encode(&superblock).unwrap()[..512], bitmap, "{name}");
    }
}

/// A bitmap that is added later has the same content and place as one made with the array.
#[test]
fn a_bitmap_that_comes_later_is_that_of_mdadm() {
    for MdadmArray { name, mut superblock, member_size, bitmap_start, new, bitmap, .. } in
        mdadm_arrays()
    {
        superblock.set_bitmap(None);
        assert_eq!(superblock.bitmap_room(member_size), Ok(None), "{name}");
        let room = NewBitmap::room_beside(&superblock);
        let (offset, bytes) = new.add_to(&superblock, room).unwrap();
        assert_eq!(bytes[..512], bitmap, "{name}");
        superblock.set_bitmap(Some(offset));
        let found = superblock.bitmap_room(member_size).unwrap().unwrap();
        assert_eq!(found.start, bitmap_start, "{name}");
        assert!(found.len.bytes().0 >= bytes.len() as u64, "{name}");
        assert_eq!(superblock.bitmap_offset(), Some(offset), "{name}");
    }
}

/// A chunk is refused when its bitmap has no room, and every chunk when the header has none.
#[test]
fn a_bitmap_without_room_is_refused() {
    let arrays = mdadm_arrays();
    let small = arrays.iter().find(|array| array.name == "raid1-2-16m-1.2").unwrap();
    for (room, chunk, expected) in [
        (0, None, "0 sectors"),
        (8, Some(2048), "a chunk of 2048 bytes"),
        (1, Some(4096), "a chunk of 4096 bytes"),
        (8, Some(12288), "a chunk of 12288 bytes"),
    ] {
        let new = NewBitmap { chunk: chunk.map(Bytes), ..NewBitmap::default() };
        let error = new.add_to(&small.superblock, Sectors(room)).unwrap_err().to_string();
        assert!(error.contains(expected), "{error}");
    }
}
