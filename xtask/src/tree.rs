//! Files of the project.

use std::path::{Path, PathBuf};

/// The workspace's root.
pub(crate) fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("xtask lies in the root").to_owned()
}

/// All Rust files under `folder` (relative to the root), sorted, without `target`.
pub(crate) fn rust_files(folder: &str) -> Vec<PathBuf> {
    files(folder, |path| path.extension().is_some_and(|extension| extension == "rs"))
}

/// All files under `folder` (relative to the root) accepted by `is_wanted`, sorted, without
/// `target`.
pub(crate) fn files(folder: &str, is_wanted: impl Fn(&Path) -> bool) -> Vec<PathBuf> {
    let mut files = Vec::new();
    let mut folders = vec![root().join(folder)];
    while let Some(folder) = folders.pop() {
        let Ok(entries) = std::fs::read_dir(&folder) else { continue };
        for path in entries.flatten().map(|entry| entry.path()) {
            if path.is_dir() {
                folders
                    .extend(path.file_name().is_some_and(|name| name != "target").then_some(path));
            } else if is_wanted(&path) {
                files.push(path);
            }
        }
    }
    files.sort();
    files
}

/// Folders of `crates/`, sorted.
pub(crate) fn crates() -> anyhow::Result<Vec<String>> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(root().join("crates"))? {
        let entry = entry?;
        if entry.path().join("src").is_dir() {
            found.push(entry.file_name().to_string_lossy().into_owned());
        }
    }
    found.sort();
    Ok(found)
}

/// A path for output, relative to the root.
pub(crate) fn shown(path: &Path) -> String {
    path.strip_prefix(root()).unwrap_or(path).display().to_string()
}
