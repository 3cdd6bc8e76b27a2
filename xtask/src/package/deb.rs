//! Debian package: an ar archive with the format's version, the control file and the files.
//!
//! Source   deb(5), "Format"; deb-control(5)

use super::contents::{File, Product};
use super::tarball::{gzip, tar};

/// The package, with its files below `/usr`.
pub(super) fn deb(product: &Product, time: u64) -> anyhow::Result<Vec<u8>> {
    let control =
        File { path: "control".to_owned(), mode: 0o644, bytes: control(product).into_bytes() };
    let parts = [
        ("debian-binary", b"2.0\n".to_vec()),
        ("control.tar.gz", gzip(&tar(&[control], "", time)?)?),
        ("data.tar.gz", gzip(&tar(&product.files, "usr/", time)?)?),
    ];
    Ok(ar(&parts, time))
}

/// The control file. The program is linked statically, so it depends on nothing.
fn control(product: &Product) -> String {
    let Product { version, description, .. } = product;
    let kib = product.files.iter().map(|file| file.bytes.len().div_ceil(1024)).sum::<usize>();
    format!(
        "Package: weft\nVersion: {version}-1\nArchitecture: amd64\nMaintainer: the weft \
         maintainers\nInstalled-Size: {kib}\nSuggests: fuse3, mdadm, nbd-client, qemu-utils\nSection: \
         admin\nPriority: optional\nDescription: {description}\n weft creates, reads, serves, \
         checks and rebuilds the arrays of Linux md,\n and copies files off the disks of a dead \
         machine, without root and without\n a kernel module.\n"
    )
}

/// An ar archive in the common format: headers of 60 bytes, contents padded to even lengths.
fn ar(parts: &[(&str, Vec<u8>)], time: u64) -> Vec<u8> {
    let mut archive = b"!<arch>\n".to_vec();
    for (name, bytes) in parts {
        let size = bytes.len();
        let header = format!("{name:<16}{time:<12}{:<6}{:<6}{:<8}{size:<10}`\n", 0, 0, "100644");
        archive.extend_from_slice(header.as_bytes());
        archive.extend_from_slice(bytes);
        if size % 2 == 1 {
            archive.push(b'\n');
        }
    }
    archive
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn headers_have_60_bytes_and_contents_begin_at_even_offsets() {
        let archive = ar(&[("debian-binary", b"2.0\n".to_vec()), ("odd", vec![1])], 1_700_000_000);
        let expected = "!<arch>\n\
            debian-binary   1700000000  0     0     100644  4         `\n2.0\n\
            odd             1700000000  0     0     100644  1         `\n\u{1}\n";
        assert_eq!(String::from_utf8(archive).unwrap(), expected);
    }
}
