//! Folder for configuration: where keys of TLS and the file of volumes are, if none is named.

use std::path::PathBuf;

use weft_terminal::outcome::Failure;

/// Folder of the keys of this user: `weft/keys` in the folder for configuration.
///
/// # Errors
/// See [`folder`].
pub(crate) fn default_keys() -> Result<PathBuf, Failure> {
    Ok(folder("the folder of the keys")?.join("weft/keys"))
}

/// File that describes the volumes of this user: `weft.toml` in the folder for configuration.
///
/// # Errors
/// See [`folder`].
pub(crate) fn default_volumes() -> Result<PathBuf, Failure> {
    Ok(folder("the file by --config")?.join("weft.toml"))
}

/// The folder for configuration: `/etc` for root, else `$XDG_CONFIG_HOME` or `~/.config`, as
/// systemd's `%E`.
///
/// # Errors
/// No variable tells the folder; the message asks to name `what` instead.
fn folder(what: &str) -> Result<PathBuf, Failure> {
    if rustix::process::geteuid().is_root() {
        return Ok("/etc".into());
    }
    let folder =
        |name: &str| std::env::var_os(name).map(PathBuf::from).filter(|it| it.is_absolute());
    folder("XDG_CONFIG_HOME")
        .or_else(|| folder("HOME").map(|home| home.join(".config")))
        .ok_or_else(|| Failure::usage(format!("HOME is not set: name {what}")))
}
