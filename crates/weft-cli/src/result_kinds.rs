//! Kinds of files that weft writes for its user, each identified by its first bytes.

use std::path::Path;

use weft_terminal::outcome::Failure;
use weft_terminal::result_file::{Kind, Output, ResultFile};

/// Certificate of TLS (`weft keys`).
pub(crate) const CERTIFICATE: Kind =
    Kind { begin: "-----BEGIN CERTIFICATE-----", name: "certificate" };

/// Map of a disk that is copied (`image --map`), in the form of GNU ddrescue.
pub(crate) const IMAGE_MAP: Kind =
    Kind { begin: "# Mapfile of weft image", name: "map of weft image" };

/// Log of requests (`serve --record`).
pub(crate) const LOG: Kind = Kind { begin: "fio version ", name: "log" };

/// Man page (`weft man DIR`).
pub(crate) const MAN_PAGE: Kind =
    Kind { begin: ".ie \\n(.g .ds Aq \\(aq\n.el .ds Aq '\n.TH weft", name: "man page of weft" };

/// Map of ranges that were read and ranges that were not, in the form of GNU ddrescue (`cat
/// --map`).
pub(crate) const MAP: Kind =
    Kind { begin: "# Mapfile of weft cat --skip-unreadable\n", name: "map of weft cat" };

/// Map of a copy of an array (`cat --output`), in the form of GNU ddrescue. Positions in the map
/// are bytes of the copy.
pub(crate) const OUTPUT_MAP: Kind =
    Kind { begin: weft_runtime::rescued::TITLE_OF_COPIES, name: "map of weft cat --output" };

/// Private key of TLS (`weft keys`).
pub(crate) const PRIVATE_KEY: Kind =
    Kind { begin: "-----BEGIN PRIVATE KEY-----", name: "private key" };

/// Page with charts (`--report`).
const REPORT: Kind = Kind { begin: weft_lab::report::BEGIN, name: "report of weft" };

/// Prepares the file for the page of `--report`; `None` if the option is not given.
pub(crate) fn report(path: Option<&Path>, force: bool) -> Result<Option<ResultFile>, Failure> {
    let asked = |path| Output { option: "--report", path, kind: REPORT, force, members: &[] };
    path.map(|path| ResultFile::at(&asked(path))).transpose()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_kind_recognises_its_own_files_only() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("kinds");
        let kinds = [CERTIFICATE, IMAGE_MAP, LOG, MAN_PAGE, MAP, OUTPUT_MAP, PRIVATE_KEY, REPORT];
        for made in kinds {
            std::fs::write(&path, format!("{} and more", made.begin)).unwrap();
            for kind in kinds {
                let asked =
                    Output { option: "--map", path: &path, kind, force: true, members: &[] };
                assert_eq!(asked.check().is_ok(), kind == made, "{} {}", made.name, kind.name);
            }
        }
    }
}
