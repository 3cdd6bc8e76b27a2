//! TARGET arguments: running volumes by name or control socket, and the directories of sockets.
//!
//! A volume NAME listens for administrators on `NAME.sock` and, by default, for clients on
//! `NAME.nbd`, in `$XDG_RUNTIME_DIR/weft`, in `/run/weft` as root, or else in a private directory
//! below `$TMPDIR`. A TARGET is such a name, or the path of a control socket.

use std::io::ErrorKind;
use std::os::unix::fs::{DirBuilderExt, FileTypeExt, MetadataExt};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::Duration;

use weft_export::control::{
    Client, Command, ControlError, ControlRequest, FailureKind, Response, Status, VolumeStatus,
};
use weft_runtime::spec::MemberSpec;
use weft_terminal::outcome::Failure;
use weft_terminal::terminal::complain;

/// Connection to a running volume.
pub(crate) struct Target {
    /// Name of the volume or path of its socket, as given on the command line.
    pub(crate) name: String,
    /// Control socket. Its file name, without `.sock`, may differ from the volume's name for
    /// clients.
    socket: PathBuf,
    client: Client,
}

impl Target {
    /// Finds and connects to a running volume.
    ///
    /// # Errors
    /// No running volume has the name.
    pub(crate) fn connect(name: &str) -> Result<Self, Failure> {
        if name.contains('/') {
            return Self::at(Path::new(name), name);
        }
        for directory in directories() {
            let path = directory.join(format!("{name}.sock"));
            if path.exists() {
                return Self::at(&path, name);
            }
        }
        let running: Vec<String> = running().into_iter().map(|(target, _)| target.name).collect();
        let hint = match running.as_slice() {
            [] => "none is running; weft serve starts one".to_owned(),
            running => format!("running: {}", running.join(", ")),
        };
        Err(Failure::failed(format!("{name}: no running volume has this name; {hint}")))
    }

    /// Name of the volume, also if the target is named by its socket.
    pub(crate) fn volume(&self) -> &str {
        let file = self.socket.file_name().and_then(|name| name.to_str()).unwrap_or(&self.name);
        file.strip_suffix(".sock").unwrap_or(file)
    }

    /// Connects to the volume that is named, or without a name to the only one that runs.
    ///
    /// # Errors
    /// No running volume has the name; or none is named, and not exactly one runs.
    pub(crate) fn named_or_only(name: Option<&str>) -> Result<Self, Failure> {
        if let Some(name) = name {
            return Self::connect(name);
        }
        let mut running = running();
        if running.len() == 1 {
            return Ok(running.remove(0).0);
        }
        let names: Vec<String> = running.into_iter().map(|(target, _)| target.name).collect();
        Err(Failure::usage(if names.is_empty() {
            "no volume is named, and none is running; weft serve starts one".to_owned()
        } else {
            format!("name one of the running volumes: {}", names.join(", "))
        }))
    }

    fn at(path: &Path, name: &str) -> Result<Self, Failure> {
        if path.is_dir() {
            return Err(Failure::failed(format!(
                "{name}: found a folder, expected the control socket of a running volume, or its \
                 name"
            )));
        }
        let client = Client::connect(path).map_err(|error| match error {
            ControlError::Connect { path, source } => Failure::failed(format!(
                "{name}: control socket {}: {source}{}",
                path.display(),
                match source.kind() {
                    ErrorKind::PermissionDenied => "; only the user who serves it and root may ask",
                    _ => "; the volume is not running",
                }
            )),
            other => Failure::failed(format!("{name}: {other}")),
        })?;
        Ok(Self { name: name.to_owned(), socket: path.to_owned(), client })
    }

    /// Limits the wait for each further answer of the server.
    pub(crate) fn set_timeout(&mut self, timeout: Duration) {
        // An error is ignored: it is an error of the socket, which the next request reports.
        let _ = self.client.set_timeout(Some(timeout));
    }

    /// Process id and user id of the server: (pid, uid).
    pub(crate) fn peer(&self) -> std::io::Result<(u32, u32)> {
        self.client.peer()
    }

    /// Whether the control socket is there. A server that ends in good order removes it.
    pub(crate) fn has_socket(&self) -> bool {
        self.socket.exists()
    }

    /// Sends a command and waits for the response.
    ///
    /// # Errors
    /// Fails when the volume does not answer, or when it refuses the command or fails to carry it
    /// out. The failure has the kind that the answer names, which determines the exit status.
    pub(crate) fn ask(&mut self, command: Command) -> Result<Response, Failure> {
        let response = self.client.ask(&ControlRequest::new(command)).map_err(|error| {
            let ended = matches!(error, ControlError::Io(_) | ControlError::Closed);
            let hint = if ended { "; the volume has ended" } else { "" };
            Failure::failed(format!("{}: {error}{hint}", self.name))
        })?;
        if response.ok {
            return Ok(response);
        }
        let text = response.error.unwrap_or_else(|| "not done, and no reason given".into());
        let message = format!("{}: {text}", self.name);
        Err(match response.kind.unwrap_or(FailureKind::Failed) {
            FailureKind::Failed => Failure::Failed(message),
            FailureKind::Refused => Failure::Refused(message),
            FailureKind::Usage => Failure::Usage(message),
        })
    }

    /// Complete status of the server that the target is connected to.
    ///
    /// # Errors
    /// See [`Target::ask`].
    pub(crate) fn status(&mut self) -> Result<Status, Failure> {
        let mut status = self
            .ask(Command::Status)?
            .status
            .ok_or_else(|| Failure::failed(format!("{}: an answer without a status", self.name)))?;
        let name = self.socket.file_stem().and_then(|stem| stem.to_str());
        if let ([volume], Some(name)) = (status.volumes.as_mut_slice(), name) {
            name.clone_into(&mut volume.name);
        }
        Ok(status)
    }
}

/// Whether an argument names a running volume and not a member or a disk: it is a socket, or no
/// file or device has that name. A folder is no member, so that its name may be that of a volume.
pub(crate) fn is_named_by(path: &Path) -> bool {
    if MemberSpec::path(path).is_part() {
        return false;
    }
    std::fs::metadata(path)
        .map_or(true, |metadata| metadata.file_type().is_socket() || metadata.is_dir())
}

/// Every volume that runs and responds, with the status of its server, in the order of the
/// directories and then of the names.
pub(crate) fn running() -> Vec<(Target, Status)> {
    let mut found = Vec::new();
    for (target, status) in answering() {
        match status {
            Ok(status) => found.push((target, status)),
            Err(Failure::Failed(text)) => complain(&text),
            Err(_) => {}
        }
    }
    found
}

/// Every volume that accepts a connection, with the status of its server or the reason why there is
/// none, in the order of the directories and then of the names.
pub(crate) fn answering() -> Vec<(Target, Result<Status, Failure>)> {
    let mut found = Vec::new();
    for path in sockets() {
        let Some(name) = path.file_stem().and_then(|stem| stem.to_str()) else { continue };
        // The socket of a killed server stays behind, so a failed connection is skipped.
        let Ok(mut target) = Target::at(&path, name) else { continue };
        target.set_timeout(STATUS_WAIT);
        let status = target.status();
        found.push((target, status));
    }
    found
}

/// Control sockets on which no server listens: their servers have ended without removing them.
pub(crate) fn unanswered() -> Vec<PathBuf> {
    let refuses = |path: &PathBuf| {
        let connected = UnixStream::connect(path);
        connected.is_err_and(|error| error.kind() == ErrorKind::ConnectionRefused)
    };
    sockets().into_iter().filter(refuses).collect()
}

/// Control sockets in the directories of sockets.
fn sockets() -> Vec<PathBuf> {
    let mut found = Vec::new();
    for directory in directories() {
        let Ok(entries) = std::fs::read_dir(&directory) else { continue };
        let mut paths: Vec<PathBuf> = entries.flatten().map(|entry| entry.path()).collect();
        paths.retain(|path| path.extension().is_some_and(|extension| extension == "sock"));
        paths.sort();
        found.append(&mut paths);
    }
    found
}

/// Status of a server's volume, in a status of the whole server.
///
/// # Errors
/// The server has no volume.
pub(crate) fn only_volume<'a>(
    target: &str,
    status: &'a Status,
) -> Result<&'a VolumeStatus, Failure> {
    status
        .volumes
        .first()
        .ok_or_else(|| Failure::failed(format!("{target}: the server has no volume")))
}

/// Directories in which control sockets of volumes may be.
fn directories() -> Vec<PathBuf> {
    let mut directories = Vec::new();
    directories.extend(session_directory());
    if is_root() {
        directories.push(PathBuf::from(SYSTEM_DIRECTORY));
    }
    // Another user could make a directory of that name, so its owner and mode are checked.
    let private = private_directory();
    directories.extend(is_private(&private).is_ok().then_some(private));
    directories
}

/// Directory for the sockets of a new volume, created with mode 0700.
///
/// # Errors
/// No directory is usable.
pub(crate) fn directory_for_sockets() -> Result<PathBuf, Failure> {
    let preferred = session_directory().or_else(|| is_root().then(|| SYSTEM_DIRECTORY.into()));
    let fallback = private_directory();
    if let Some(directory) = preferred {
        match make_private(&directory) {
            Ok(()) => return Ok(directory),
            Err(why) => complain(&format!("{why}; sockets go to {}", fallback.display())),
        }
    } else {
        complain(&format!("XDG_RUNTIME_DIR is not set; sockets go to {}", fallback.display()));
    }
    make_private(&fallback).map_err(Failure::failed)?;
    Ok(fallback)
}

/// Creates a directory that belongs to this user and that no other user can enter.
fn make_private(directory: &Path) -> Result<(), String> {
    let label = directory.display();
    // The parent directory is not created.
    let made = std::fs::DirBuilder::new().mode(0o700).create(directory);
    if let Err(error) = made
        && error.kind() != ErrorKind::AlreadyExists
    {
        return Err(format!("{label}: {error}"));
    }
    is_private(directory)
}

/// Checks that a directory belongs to this user and no other user can change it.
///
/// # Errors
/// The directory is not private; the text is a sentence with the reason.
fn is_private(directory: &Path) -> Result<(), String> {
    let label = directory.display();
    let metadata = std::fs::symlink_metadata(directory).map_err(|e| format!("{label}: {e}"))?;
    let ours = metadata.uid() == rustix::process::geteuid().as_raw();
    if !metadata.is_dir() || !ours || metadata.mode() & 0o022 != 0 {
        return Err(format!(
            "{label}: found a directory that others may change, expected one of our own"
        ));
    }
    Ok(())
}

fn session_directory() -> Option<PathBuf> {
    let directory = PathBuf::from(std::env::var_os("XDG_RUNTIME_DIR")?);
    directory.is_absolute().then(|| directory.join("weft"))
}

fn private_directory() -> PathBuf {
    let uid = rustix::process::geteuid().as_raw();
    std::env::temp_dir().join(format!("weft-{uid}"))
}

fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

/// Longest wait for the status of one volume, in commands that show other volumes too.
pub(crate) const STATUS_WAIT: Duration = Duration::from_secs(10);

/// Directory for the sockets of volumes that root serves.
///
/// Source   serve.md
const SYSTEM_DIRECTORY: &str = "/run/weft";
