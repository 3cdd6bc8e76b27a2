//! RPM package: lead, signature header with sums, header with the list of files, cpio archive.
//!
//! A header is an index of tags, each with a type and a position in a store of values. The
//! signature header has checksums only; signing with a key is left to distributors.
//!
//! Source   the manual of rpm, "RPM V4 Package format" and "RPM Tags"; cpio(5), "New ASCII Format"

use super::contents::{File, Product, folders};
use super::tarball::gzip;
use sha2::{Digest, Sha256};

/// The package, with its files below `/usr`.
pub(super) fn rpm(product: &Product, time: u64) -> anyhow::Result<Vec<u8>> {
    let mut entries = Vec::new();
    // Only folders of weft belong to the package; folders that other packages have too are left
    // out.
    let named: Vec<String> =
        product.files.iter().map(|file| format!("/usr/{}", file.path)).collect();
    for folder in folders(named.iter().map(String::as_str)) {
        if folder.rsplit('/').next().is_some_and(|name| name.starts_with("weft")) {
            entries.push(Entry { path: folder, mode: 0o040_755, bytes: &[] });
        }
    }
    for (File { mode, bytes, .. }, path) in product.files.iter().zip(named) {
        entries.push(Entry { path, mode: 0o100_000 | mode, bytes });
    }
    entries.sort_by(|a, b| a.path.cmp(&b.path));
    let archive = cpio(&entries, time)?;
    let payload = gzip(&archive)?;
    let header = header(product, &entries, &payload, archive.len(), time)?;
    let mut signature = Header::default();
    signature.add(SIG_SIZE, Value::Int32(vec![number(header.len() + payload.len())?]));
    signature.add(SIG_SHA256, Value::Text(hex(&header)));
    let mut signature = signature.encode(REGION_SIGNATURE)?;
    signature.resize(signature.len().next_multiple_of(8), 0);
    Ok([lead(product), signature, header, payload].concat())
}

struct Entry<'a> {
    path: String,
    mode: u32,
    bytes: &'a [u8],
}

/// The lead. rpm reads only its magic number.
fn lead(product: &Product) -> Vec<u8> {
    let mut lead = vec![0xed, 0xab, 0xee, 0xdb, 3, 0, 0, 0, 0, 1];
    let name = format!("weft-{}-1", product.version);
    lead.extend_from_slice(&name.as_bytes()[..name.len().min(65)]);
    lead.resize(76, 0);
    // Operating system Linux, signature in a header.
    lead.extend_from_slice(&[0, 1, 0, 5]);
    lead.resize(96, 0);
    lead
}

fn header(
    product: &Product,
    entries: &[Entry],
    payload: &[u8],
    archive_bytes: usize,
    time: u64,
) -> anyhow::Result<Vec<u8>> {
    let mut header = Header::default();
    let text = |text: &str| Value::Text(text.to_owned());
    let international = |text: &str| Value::International(text.to_owned());
    let ints = |each: &dyn Fn(&Entry) -> u32| Value::Int32(entries.iter().map(each).collect());
    let shorts = |each: &dyn Fn(&Entry) -> u16| Value::Int16(entries.iter().map(each).collect());
    let texts = |each: &dyn Fn(&Entry) -> String| Value::Texts(entries.iter().map(each).collect());
    let time = u32::try_from(time)?;
    let size: usize = entries.iter().map(|entry| entry.bytes.len()).sum();
    let mut folders: Vec<&str> = entries.iter().map(|entry| split(&entry.path).0).collect();
    folders.sort_unstable();
    folders.dedup();
    let folder_of = |entry: &Entry| folders.iter().position(|it| *it == split(&entry.path).0);
    let folder_indexes: Vec<usize> = entries.iter().filter_map(folder_of).collect();
    let folder_indexes = folder_indexes.into_iter().map(number).collect::<Result<_, _>>()?;
    let sizes: Vec<u32> =
        entries.iter().map(|it| number(it.bytes.len())).collect::<Result<_, _>>()?;
    let inodes = (1..=number(entries.len())?).collect();
    let is_folder = |entry: &Entry| entry.mode & 0o040_000 != 0;
    let is_document = |entry: &Entry| ["/doc/", "/man/"].iter().any(|it| entry.path.contains(it));

    header.add(100, Value::Texts(vec!["C".into()]));
    header.add(1000, text("weft"));
    header.add(1001, text(&product.version));
    header.add(1002, text("1"));
    header.add(1004, international(&product.description));
    header.add(
        1005,
        international(
            "weft creates, reads, serves, checks and rebuilds the arrays of Linux md, and copies\n\
             files off the disks of a dead machine, without root and without a kernel module.",
        ),
    );
    header.add(1006, Value::Int32(vec![time]));
    header.add(1007, text("localhost"));
    header.add(1009, Value::Int32(vec![number(size)?]));
    header.add(1014, text(&product.license));
    header.add(1016, international("System Environment/Base"));
    header.add(1021, text("linux"));
    header.add(1022, text("x86_64"));
    header.add(1028, Value::Int32(sizes));
    header.add(1030, shorts(&|entry| u16::try_from(entry.mode).expect("mode has 16 bits")));
    header.add(1033, shorts(&|_| 0));
    header.add(1034, ints(&|_| time));
    let sum = |entry: &Entry| if is_folder(entry) { String::new() } else { hex(entry.bytes) };
    header.add(1035, texts(&sum));
    header.add(1036, texts(&|_| String::new()));
    header.add(1037, ints(&|entry| if is_document(entry) { 2 } else { 0 }));
    header.add(1039, texts(&|_| "root".to_owned()));
    header.add(1040, texts(&|_| "root".to_owned()));
    header.add(1044, text(&format!("weft-{}-1.src.rpm", product.version)));
    header.add(1045, ints(&|_| u32::MAX));
    header.add(1046, Value::Int32(vec![number(archive_bytes)?]));
    header.add(1047, Value::Texts(vec!["weft".into()]));
    // Without these requirements old versions of rpm would misread the package.
    let features = [
        ("rpmlib(CompressedFileNames)", "3.0.4-1"),
        ("rpmlib(FileDigests)", "4.6.0-1"),
        ("rpmlib(PayloadFilesHavePrefix)", "4.0-1"),
    ];
    header.add(1048, Value::Int32(vec![RPMLIB; features.len()]));
    header.add(1049, Value::Texts(features.iter().map(|it| it.0.to_owned()).collect()));
    header.add(1050, Value::Texts(features.iter().map(|it| it.1.to_owned()).collect()));
    header.add(1064, text("4.18.0"));
    header.add(1095, ints(&|_| 1));
    header.add(1096, Value::Int32(inodes));
    header.add(1097, texts(&|_| String::new()));
    header.add(1112, Value::Int32(vec![EQUAL]));
    header.add(1113, Value::Texts(vec![format!("{}-1", product.version)]));
    header.add(1116, Value::Int32(folder_indexes));
    header.add(1117, texts(&|entry| split(&entry.path).1.to_owned()));
    header.add(1118, Value::Texts(folders.iter().map(|it| (*it).to_owned()).collect()));
    header.add(1124, text("cpio"));
    header.add(1125, text("gzip"));
    header.add(1126, text("9"));
    header.add(5011, Value::Int32(vec![SHA256]));
    header.add(5092, Value::Texts(vec![hex(payload)]));
    header.add(5093, Value::Int32(vec![SHA256]));
    header.encode(REGION_IMMUTABLE)
}

/// Folder of a path with its slash, and the name in it.
fn split(path: &str) -> (&str, &str) {
    path.split_at(path.rfind('/').map_or(0, |at| at + 1))
}

fn number(size: usize) -> anyhow::Result<u32> {
    Ok(u32::try_from(size)?)
}

pub(super) fn hex(bytes: &[u8]) -> String {
    Sha256::digest(bytes).iter().map(|byte| format!("{byte:02x}")).collect()
}

const SIG_SIZE: u32 = 1000;
const SIG_SHA256: u32 = 273;
const REGION_SIGNATURE: u32 = 62;
const REGION_IMMUTABLE: u32 = 63;
/// Hash algorithm of OpenPGP (RFC 4880, 9.4).
const SHA256: u32 = 8;
/// Flags of a dependency on exactly the given version.
const EQUAL: u32 = 1 << 3;
/// Flags of a dependency on a feature of rpm that the given version or an older one has.
const RPMLIB: u32 = 1 << 24 | 1 << 1 | EQUAL;

/// Value of a tag.
enum Value {
    Int16(Vec<u16>),
    Int32(Vec<u32>),
    International(String),
    Text(String),
    Texts(Vec<String>),
}

/// Header of a package, tags in ascending order.
#[derive(Default)]
struct Header {
    tags: Vec<(u32, Value)>,
}

impl Header {
    fn add(&mut self, tag: u32, value: Value) {
        self.tags.push((tag, value));
    }

    /// Encodes the header as a region: a tag at the front with a value that is behind all others
    /// and points back over the whole index.
    fn encode(mut self, region: u32) -> anyhow::Result<Vec<u8>> {
        self.tags.sort_by_key(|(tag, _)| *tag);
        let mut store = Vec::new();
        let mut index = Vec::new();
        let entry = |tag: u32, kind: u32, offset: usize, count: usize| {
            anyhow::Ok([tag, kind, number(offset)?, number(count)?].map(u32::to_be_bytes).concat())
        };
        for (tag, value) in &self.tags {
            let strings = |texts: &[String]| -> Vec<u8> {
                texts.iter().flat_map(|text| text.bytes().chain([0])).collect()
            };
            let (kind, align, count, bytes) = match value {
                Value::Int16(all) => {
                    let bytes = all.iter().flat_map(|it| it.to_be_bytes()).collect();
                    (3, 2, all.len(), bytes)
                }
                Value::Int32(all) => {
                    let bytes = all.iter().flat_map(|it| it.to_be_bytes()).collect();
                    (4, 4, all.len(), bytes)
                }
                Value::Text(text) => (6, 1, 1, strings(std::slice::from_ref(text))),
                Value::Texts(texts) => (8, 1, texts.len(), strings(texts)),
                Value::International(text) => (9, 1, 1, strings(std::slice::from_ref(text))),
            };
            store.resize(usize::next_multiple_of(store.len(), align), 0);
            index.extend(entry(*tag, kind, store.len(), count)?);
            store.extend(bytes);
        }
        let all = self.tags.len() + 1;
        let first = entry(region, 7, store.len(), 16)?;
        let back = (-16 * i32::try_from(all)?).to_be_bytes();
        store.extend(
            [region.to_be_bytes(), 7_u32.to_be_bytes(), back, 16_u32.to_be_bytes()].concat(),
        );
        let intro = [0x8ead_e801, 0, number(all)?, number(store.len())?].map(u32::to_be_bytes);
        Ok([intro.concat(), first, index, store].concat())
    }
}

/// The payload: a cpio archive of paths that begin with a dot.
fn cpio(entries: &[Entry], time: u64) -> anyhow::Result<Vec<u8>> {
    let mut archive = Vec::new();
    let end = Entry { path: "TRAILER!!!".to_owned(), mode: 0, bytes: &[] };
    for (index, entry) in entries.iter().chain([&end]).enumerate() {
        let is_end = index == entries.len();
        let name = if is_end { entry.path.clone() } else { format!(".{}", entry.path) };
        let (inode, time) = if is_end { (0, 0) } else { (index + 1, time) };
        let (size, length) = (entry.bytes.len(), name.len() + 1);
        let fields = [inode as u64, entry.mode.into(), 0, 0, 1, time, size as u64];
        archive.extend_from_slice(b"070701");
        for field in fields.into_iter().chain([0, 0, 0, 0, length as u64, 0]) {
            archive.extend_from_slice(format!("{:08x}", u32::try_from(field)?).as_bytes());
        }
        archive.extend_from_slice(name.as_bytes());
        archive.push(0);
        archive.resize(archive.len().next_multiple_of(4), 0);
        archive.extend_from_slice(entry.bytes);
        archive.resize(archive.len().next_multiple_of(4), 0);
    }
    Ok(archive)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_header_is_an_index_of_values_that_the_region_covers() {
        let mut header = Header::default();
        header.add(1030, Value::Int16(vec![0x81ed]));
        header.add(1000, Value::Text("weft".into()));
        let bytes = header.encode(REGION_IMMUTABLE).unwrap();
        let word = |at: usize| u32::from_be_bytes(bytes[at..at + 4].try_into().unwrap());
        assert_eq!([word(0), word(4), word(8), word(12)], [0x8ead_e801, 0, 3, 24]);
        assert_eq!([word(16), word(20), word(24), word(28)], [63, 7, 8, 16]);
        assert_eq!([word(32), word(36), word(40), word(44)], [1000, 6, 0, 1]);
        // The string takes 5 bytes; the number after it is aligned.
        assert_eq!([word(48), word(52), word(56), word(60)], [1030, 3, 6, 1]);
        assert_eq!(&bytes[64..72], b"weft\0\0\x81\xed");
        assert_eq!([word(72), word(76), word(84)], [63, 7, 16]);
        assert_eq!(word(80), (-48_i32).cast_unsigned());
        assert_eq!(bytes.len(), 88);
    }

    #[test]
    fn an_archive_is_padded_and_ends_with_a_trailer() {
        let entries = [Entry { path: "/usr/bin/weft".into(), mode: 0o100_755, bytes: b"abcde" }];
        let archive = cpio(&entries, 1_700_000_000).unwrap();
        let text = String::from_utf8(archive).unwrap();
        assert!(text.starts_with("07070100000001000081ed00000000000000000000000165"), "{text}");
        assert_eq!(&text[110..130], "./usr/bin/weft\0\0\0\0ab");
        assert!(text.ends_with("TRAILER!!!\0\0\0\0") && text.len().is_multiple_of(4), "{text}");
    }
}
