//! Physical volumes of LVM2, made by hand.

/// LVM's checksum, bit by bit.
pub(crate) fn sum(bytes: &[u8]) -> u32 {
    bytes.iter().fold(0xf597_a6cf_u32, |sum, byte| {
        (0..8).fold(sum ^ u32::from(*byte), |sum, _| (sum >> 1) ^ (0xedb8_8320 * (sum & 1)))
    })
}

/// Extent of the test's groups.
pub(crate) const EXTENT: usize = 64 << 10;
/// Byte of the first extent.
pub(crate) const FIRST: usize = 1 << 20;
const AREA: usize = 4096;
const AREA_BYTES: usize = FIRST - AREA;

fn put(into: &mut [u8], at: usize, bytes: &[u8]) {
    into[at..at + bytes.len()].copy_from_slice(bytes);
}

/// A device with a label, a metadata area with `text` at `text_at` of its buffer, and `extents`
/// extents of data. Each sector of data contains the UUID, its extent and its number in the extent.
pub(crate) fn physical(uuid: &str, text: &[u8], text_at: usize, extents: usize) -> Vec<u8> {
    let mut device = vec![0; FIRST + extents * EXTENT];
    let id: Vec<u8> = uuid.bytes().filter(|byte| *byte != b'-').collect();
    assert_eq!(id.len(), 32);
    let mut label = vec![0; 512];
    put(&mut label, 0, b"LABELONE");
    put(&mut label, 8, &1_u64.to_le_bytes());
    put(&mut label, 20, &32_u32.to_le_bytes());
    put(&mut label, 24, b"LVM2 001");
    put(&mut label, 32, &id);
    put(&mut label, 64, &(device.len() as u64).to_le_bytes());
    // One data area, the end of that list, one metadata area.
    put(&mut label, 72, &(FIRST as u64).to_le_bytes());
    put(&mut label, 104, &(AREA as u64).to_le_bytes());
    put(&mut label, 112, &(AREA_BYTES as u64).to_le_bytes());
    let own = sum(&label[20..]);
    put(&mut label, 16, &own.to_le_bytes());
    put(&mut device, 512, &label);
    set_text(&mut device, text, text_at);
    for (extent, number) in device[FIRST..].chunks_mut(EXTENT).zip(0_u32..) {
        for (sector, within) in extent.chunks_mut(512).zip(0_u32..) {
            put(sector, 0, &id);
            put(sector, 32, &number.to_le_bytes());
            put(sector, 36, &within.to_le_bytes());
        }
    }
    device
}

/// Writes a text into the metadata area, around its end if need be.
pub(crate) fn set_text(device: &mut [u8], text: &[u8], text_at: usize) {
    let (first, rest) = text.split_at(text.len().min(AREA_BYTES - text_at));
    put(device, AREA + text_at, first);
    put(device, AREA + 512, rest);
    let mut header = vec![0; 512];
    put(&mut header, 4, b" LVM2 x[5A%r0N*>");
    put(&mut header, 20, &1_u32.to_le_bytes());
    put(&mut header, 24, &(AREA as u64).to_le_bytes());
    put(&mut header, 32, &(AREA_BYTES as u64).to_le_bytes());
    put(&mut header, 40, &(text_at as u64).to_le_bytes());
    put(&mut header, 48, &(text.len() as u64).to_le_bytes());
    put(&mut header, 56, &sum(text).to_le_bytes());
    let own = sum(&header[4..]);
    put(&mut header, 0, &own.to_le_bytes());
    put(device, AREA, &header);
}

/// UUID of a physical volume of the test.
pub(crate) fn uuid(letter: char) -> String {
    let many = |count| letter.to_string().repeat(count);
    let parts = [6, 4, 4, 4, 4, 4, 6].map(many);
    parts.join("-")
}

/// Text of a group over the physical volumes a and b; `volumes` are its logical volumes.
pub(crate) fn group(seqno: u32, volumes: &str) -> String {
    let physical: String = ['a', 'b']
        .iter()
        .zip(0..)
        .map(|(letter, number)| {
            format!(
                "pv{number} {{\nid = \"{}\"\ndevice = \"/dev/md{number}\" # Hint only\n\
                 status = [\"ALLOCATABLE\"]\npe_start = {}\npe_count = 16\n}}\n",
                uuid(*letter),
                FIRST / 512
            )
        })
        .collect();
    format!(
        "vg1000 {{\nid = \"group\"\nseqno = {seqno}\nformat = \"lvm2\"\n\
         status = [\"RESIZEABLE\", \"READ\", \"WRITE\"]\nextent_size = {}\n\
         physical_volumes {{\n{physical}}}\nlogical_volumes {{\n{volumes}}}\n}}\n\
         contents = \"Text Format Volume Group\"\nversion = 1\n",
        EXTENT / 512
    )
}

/// A logical volume with these segments: first extent, extents, type and further lines.
pub(crate) fn volume(name: &str, segments: &[(u32, u32, &str, &str)]) -> String {
    let all: String = segments
        .iter()
        .zip(1..)
        .map(|((first, count, kind, more), number)| {
            format!(
                "segment{number} {{\nstart_extent = {first}\nextent_count = {count}\n\
                 type = \"{kind}\"\n{more}\n}}\n"
            )
        })
        .collect();
    format!(
        "{name} {{\nid = \"{name}\"\nstatus = [\"READ\", \"VISIBLE\"]\nsegment_count = {}\n{all}}}\n",
        segments.len()
    )
}
