//! Tar archives with the same bytes in each build: entries are sorted, and have one time and owner
//! 0.

use super::contents::{File, folders};
use flate2::{Compression, GzBuilder};
use std::io::Write;
use tar::{Builder, EntryType, Header};

/// Archive of `files` below `prefix`, such as `usr/`, with every folder before its files.
/// Uncompressed; `time` is in seconds since 1970.
pub(super) fn tar(files: &[File], prefix: &str, time: u64) -> anyhow::Result<Vec<u8>> {
    let mut archive = Builder::new(Vec::new());
    let mut add = |path: &str, kind: EntryType, mode: u32, bytes: &[u8]| {
        let mut header = Header::new_gnu();
        header.set_entry_type(kind);
        header.set_mode(mode);
        header.set_mtime(time);
        header.set_size(bytes.len() as u64);
        header.set_uid(0);
        header.set_gid(0);
        archive.append_data(&mut header, path, bytes)
    };
    let named: Vec<String> = files.iter().map(|file| format!("{prefix}{}", file.path)).collect();
    for folder in folders(named.iter().map(String::as_str)) {
        add(&format!("{folder}/"), EntryType::Directory, 0o755, &[])?;
    }
    for (file, path) in files.iter().zip(&named) {
        add(path, EntryType::Regular, file.mode, &file.bytes)?;
    }
    Ok(archive.into_inner()?)
}

/// Compresses with gzip, without a name or a time.
pub(super) fn gzip(bytes: &[u8]) -> anyhow::Result<Vec<u8>> {
    let mut packed = GzBuilder::new().mtime(0).write(Vec::new(), Compression::default());
    packed.write_all(bytes)?;
    Ok(packed.finish()?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_archive_has_folders_first_and_the_same_bytes_each_time() {
        let file = |path: &str, mode| File { path: path.into(), mode, bytes: vec![b'x'; 700] };
        let files = [file("bin/weft", 0o755), file("share/doc/weft/README.md", 0o644)];
        let bytes = tar(&files, "usr/", 1_700_000_000).unwrap();
        assert_eq!(bytes, tar(&files, "usr/", 1_700_000_000).unwrap());
        assert_ne!(bytes, tar(&files, "usr/", 1_700_000_001).unwrap());
        let mut archive = tar::Archive::new(&bytes[..]);
        let entries = archive.entries().unwrap().map(|entry| {
            let entry = entry.unwrap();
            let header = entry.header();
            let ids = (header.uid().unwrap(), header.gid().unwrap());
            assert_eq!((ids, header.mtime().unwrap()), ((0, 0), 1_700_000_000));
            let path = String::from_utf8(entry.path_bytes().into_owned()).unwrap();
            (path, header.mode().unwrap())
        });
        let expected = [
            ("usr/", 0o755),
            ("usr/bin/", 0o755),
            ("usr/share/", 0o755),
            ("usr/share/doc/", 0o755),
            ("usr/share/doc/weft/", 0o755),
            ("usr/bin/weft", 0o755),
            ("usr/share/doc/weft/README.md", 0o644),
        ];
        let found: Vec<(String, u32)> = entries.collect();
        assert_eq!(found, expected.map(|(path, mode)| (path.to_owned(), mode)));
        let packed = gzip(&bytes).unwrap();
        assert!(packed.len() < bytes.len() && packed == gzip(&bytes).unwrap());
        let mut unpacked = Vec::new();
        std::io::copy(&mut flate2::read::GzDecoder::new(&packed[..]), &mut unpacked).unwrap();
        assert_eq!(unpacked, bytes);
    }
}
