//! Folder of the keys of TLS, where none is named.

use std::path::PathBuf;

use weft_terminal::outcome::Failure;

/// Folder of the keys of this user: `/etc/weft/keys` for root, else `weft/keys` in the folder for
/// configurations.
pub(crate) fn default_keys() -> Result<PathBuf, Failure> {
    if rustix::process::geteuid().is_root() {
        return Ok("/etc/weft/keys".into());
    }
    let folder =
        |name: &str| std::env::var_os(name).map(PathBuf::from).filter(|it| it.is_absolute());
    folder("XDG_CONFIG_HOME")
        .or_else(|| folder("HOME").map(|home| home.join(".config")))
        .map(|configurations| configurations.join("weft/keys"))
        .ok_or_else(|| Failure::usage("HOME is not set: name the folder of the keys"))
}
