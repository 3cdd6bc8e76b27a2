//! Folders of this user: that of configuration, where keys of TLS and the file of volumes are if
//! none is named, and that of state.

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
/// No environment variable names the folder; the message asks the user to name `what` instead.
fn folder(what: &str) -> Result<PathBuf, Failure> {
    if rustix::process::geteuid().is_root() {
        return Ok("/etc".into());
    }
    named("XDG_CONFIG_HOME")
        .or_else(|| named("HOME").map(|home| home.join(".config")))
        .ok_or_else(|| Failure::usage(format!("HOME is not set: name {what}")))
}

/// The folder for state that lasts: `$STATE_DIRECTORY`, which systemd sets, else `/var/lib/weft`
/// for root, `$XDG_STATE_HOME/weft` or `~/.local/state/weft`, as systemd's `%S`. `None` if no
/// environment variable names it.
pub(crate) fn state() -> Option<PathBuf> {
    if let Some(folder) = named("STATE_DIRECTORY") {
        return Some(folder);
    }
    if rustix::process::geteuid().is_root() {
        return Some("/var/lib/weft".into());
    }
    let home = || named("HOME").map(|home| home.join(".local/state"));
    named("XDG_STATE_HOME").or_else(home).map(|folder| folder.join("weft"))
}

/// The folder that an environment variable names by an absolute path; `None` if it names none.
fn named(variable: &str) -> Option<PathBuf> {
    std::env::var_os(variable).map(PathBuf::from).filter(|it| it.is_absolute())
}
