//! Content of disks or of a running volume: partitions, LVM, file systems, and their files.
//!
//! `weft rescue`, `ls` and `mount` find content in the same way. Disks are searched for members
//! (`search.rs`), the members are grouped by array (`arrays.rs`), and each array that can be read
//! is served within this process, read-only, and read through that server (`array_source.rs`): what
//! is missing is reconstructed, and no image lies in between. A running volume is read through its
//! own NBD socket.

mod array_source;
mod arrays;
mod named_paths;
mod search;
mod system;
mod walk;

use std::path::{Path, PathBuf};

use serde_json::{Value, json};
use weft_engine::assemble::Options;
use weft_export::control::Status;
use weft_files::inside::{ContentLocation, Inside as Found, look};
use weft_files::open::{Opened, open as open_files};
use weft_files::probe::{Content, FURTHER_DEVICE, Kind};
use weft_files::source::Shared;
use weft_nbd::{NbdAddress, NbdUri};
use weft_terminal::outcome::Failure;
use weft_terminal::terminal::{complain, is_printable, quoted};

use crate::inside::Inside;
use crate::look;
use crate::reading::Reading;
use crate::target::{self, Target, only_volume};
use crate::volume::Opening;
pub(crate) use arrays::Array;
use arrays::{FORCE_DIRTY, WITHOUT_JOURNAL};
pub(crate) use named_paths::NamedPaths;
pub(crate) use search::Disk;
use search::End;
use system::FoundArray;
pub(crate) use walk::{Reached, Spot, Walk, shown};

/// Disks that were searched, and the arrays on them.
pub(crate) struct Searched {
    /// Disks, in the order in which they were named.
    pub(crate) disks: Vec<Disk>,
    /// Arrays, in the order in which their first members were found.
    pub(crate) arrays: Vec<Array>,
}

impl Searched {
    /// Searches the named disks for members of arrays; `deep` reads every sector.
    ///
    /// # Errors
    /// A disk cannot be opened, or two names refer to the same bytes.
    pub(crate) fn of(names: &[PathBuf], reading: &Reading, deep: bool) -> Result<Self, Failure> {
        let mut disks = Vec::new();
        for (name, looked) in names.iter().zip(look::open_all_with(names, reading)?) {
            disks.push(search::search(name, &looked, deep)?);
        }
        let arrays = arrays::arrays(&mut disks, reading);
        let ends: Vec<End> = arrays.iter().filter_map(Array::end).collect();
        disks.iter_mut().for_each(|disk| disk.tell_cut(&ends));
        tell_unsearched(&disks, names, reading);
        Ok(Self { disks, arrays })
    }
}

/// Reports on standard error the disks that may have members where they were not searched.
fn tell_unsearched(disks: &[Disk], names: &[PathBuf], reading: &Reading) {
    let labels: Vec<&str> = disks.iter().filter_map(Disk::unsearched).collect();
    if labels.is_empty() {
        return;
    }
    let given: Vec<String> = names.iter().map(|name| quoted(name.as_os_str())).collect();
    let options = reading.options(names.iter().map(PathBuf::as_path));
    complain(&format!(
        "{}: found no partition table that can be read, and only the first and the last 8 MiB were \
         searched for members; to read every sector: weft rescue --deep {options}{}",
        labels.join(", "),
        given.join(" ")
    ));
}

/// Contents of arrays or of a running volume, with the servers through which they are read.
pub(crate) struct Contents {
    /// Everything that was found. Declared first, so that it is dropped before the servers.
    pub(crate) found: Found,
    /// Whether every array could be read.
    pub(crate) is_whole: bool,
    /// Properties of the arrays that could be read; empty for a running volume.
    shapes: Vec<FoundArray>,
    servers: Vec<Inside>,
}

impl Contents {
    /// Contents of what a command line names: a running volume, by its name or control socket, or
    /// else disks.
    ///
    /// # Errors
    /// No volume runs under the name, or a time limit for reads is given for one; a disk cannot be
    /// opened, or no array can be read.
    pub(crate) fn named(names: &[PathBuf], reading: &Reading) -> Result<Self, Failure> {
        match names {
            [one] if target::is_named_by(one) => {
                reading.refuse_running(one)?;
                Self::of_target(&one.to_string_lossy())
            }
            names => Self::of_disks(names, reading),
        }
    }

    /// Contents of a running volume, read through its NBD socket. The name of the place is that of
    /// the volume.
    ///
    /// # Errors
    /// No running volume has the name, or it has no unix socket.
    pub(crate) fn of_target(name: &str) -> Result<Self, Failure> {
        let Running { volume, uri } = Running::of(name)?;
        Ok(Self::of_server(volume, array_source::connect(&uri)?))
    }

    /// Contents of a running volume that may change while it is read.
    ///
    /// # Errors
    /// The server of the volume cannot be reached.
    pub(crate) fn of_live(running: &Running) -> Result<Self, Failure> {
        let source = array_source::connect_live(&running.uri)?;
        Ok(Self::of_server(running.volume.clone(), source))
    }

    fn of_server(volume: String, source: Shared) -> Self {
        let found = look(vec![(volume, source)]);
        Self { found, is_whole: true, shapes: Vec::new(), servers: Vec::new() }
    }

    /// Contents of the arrays on disks. Reports on standard error the arrays that cannot be read,
    /// and the states of the others.
    ///
    /// # Errors
    /// A disk cannot be opened, or no array can be read.
    pub(crate) fn of_disks(names: &[PathBuf], reading: &Reading) -> Result<Self, Failure> {
        Self::of_arrays(&Searched::of(names, reading, false)?.arrays)
    }

    /// Contents of arrays. Reports on standard error those that cannot be read, and the states of
    /// the others.
    ///
    /// # Errors
    /// No array can be read.
    pub(crate) fn of_arrays(arrays: &[Array]) -> Result<Self, Failure> {
        arrays::tell_refused(arrays);
        let mut servers = Vec::new();
        let mut sources: Vec<(String, Shared)> = Vec::new();
        let mut is_whole = true;
        let mut shapes = Vec::new();
        for array in arrays {
            let Ok(assembly) = &array.decision else {
                is_whole = false;
                continue;
            };
            let name = free_name(&name_of(&assembly.name, &array.uuid.to_string()), &sources);
            match open(array) {
                Ok((server, source)) => {
                    servers.push(server);
                    shapes.push(array.shape(name.clone(), assembly));
                    sources.push((name, source));
                }
                Err(failure) => {
                    is_whole = false;
                    complain(&format!("array {name}: {}", failure.message()));
                }
            }
        }
        if sources.is_empty() {
            return Err(Failure::failed("found no array that can be read, expected one or more"));
        }
        Ok(Self { found: look(sources), is_whole, shapes, servers })
    }

    /// Whether a place is an array with the system of a NAS or its swap space.
    pub(crate) fn is_system(&self, place: &ContentLocation) -> bool {
        let array = self.shapes.iter().find(|array| array.name == place.name);
        match (array, &place.content) {
            (Some(array), Ok((content, _))) => {
                system::is_system(array, &content.kind, &self.shapes)
            }
            _ => false,
        }
    }

    /// Content of an array with its geometry given by hand, under the name `built`.
    ///
    /// # Errors
    /// The array cannot be opened.
    pub(crate) fn of_built(opening: &Opening, names: &[PathBuf]) -> Result<Self, Failure> {
        let (server, source) = array_source::serve(opening.open(names)?)?;
        let found = look(vec![("built".to_owned(), source)]);
        let (shapes, servers) = (Vec::new(), vec![server]);
        Ok(Self { found, is_whole: true, shapes, servers })
    }

    /// Places with files, in the order in which they were found, snapshots after all others.
    pub(crate) fn file_systems(&self) -> Vec<FileSystem<'_>> {
        let mut all: Vec<FileSystem<'_>> = Vec::new();
        for place in &self.found.places {
            let Some(has_files) = has_files(place) else { continue };
            let mut folder = folder_name(&place.name);
            while all.iter().any(|other| other.folder == folder) {
                folder.push('_');
            }
            all.push(FileSystem { place, folder, refused: has_files.err() });
        }
        all
    }

    /// Stops the servers.
    ///
    /// # Errors
    /// A server had failed.
    pub(crate) fn stop(self) -> Result<(), Failure> {
        let Self { found, mut servers, .. } = self;
        drop(found);
        servers.iter_mut().try_for_each(Inside::stop)
    }
}

/// A running volume, with the address at which it is read.
pub(crate) struct Running {
    /// Name of the volume.
    pub(crate) volume: String,
    /// NBD URI of the volume on a unix socket.
    pub(crate) uri: String,
}

impl Running {
    /// The running volume with this name or control socket.
    ///
    /// # Errors
    /// No running volume has the name, or it has no unix socket.
    pub(crate) fn of(name: &str) -> Result<Self, Failure> {
        let mut target = Target::connect(name)?;
        let status = target.status()?;
        let volume = only_volume(&target.name, &status)?.name.clone();
        Ok(Self { volume, uri: socket_uri(&target.name, &status)? })
    }
}

/// A place with files: a file system, or a snapshot in one.
pub(crate) struct FileSystem<'c> {
    /// The place with the files.
    pub(crate) place: &'c ContentLocation,
    /// Name of its folder where file systems lie side by side: in DIR of `rescue --to`, at the
    /// root of `ls`.
    pub(crate) folder: String,
    /// Reason why the files cannot be read; `None` if they can be.
    pub(crate) refused: Option<String>,
}

impl FileSystem<'_> {
    /// Whether the place is a snapshot, which mostly repeats the files of its origin.
    pub(crate) fn is_snapshot(&self) -> bool {
        matches!(&self.place.content, Ok((Content { kind: Kind::Snapshot(_), .. }, _)))
    }

    /// Opens the files.
    ///
    /// # Errors
    /// Reason why the files cannot be read; the text does not name the place.
    pub(crate) fn open(&self) -> Result<Opened, String> {
        if let Some(why) = &self.refused {
            return Err(why.clone());
        }
        match &self.place.content {
            Ok((content, _)) => {
                open_files(&content.kind, &self.place.devices()).map_err(|error| error.to_string())
            }
            Err(why) => Err(why.clone()),
        }
    }
}

/// Whether a place has files that can be read, or the reason why they cannot, also where it may
/// have some. `None` for a place without files of its own: a partition table, a physical volume,
/// swap, an empty one.
pub(crate) fn has_files(place: &ContentLocation) -> Option<Result<(), String>> {
    match &place.content {
        Ok((content, _)) => match &content.kind {
            Kind::Btrfs(_) | Kind::Ext(_) | Kind::Snapshot(_) => Some(Ok(())),
            Kind::Xfs | Kind::Luks(_) => Some(Err(format!(
                "{} is not read by this release; the kernel reads it over weft serve --overlay",
                content.kind
            ))),
            Kind::Other(name) if name.contains("partition table") => {
                Some(Err(format!("{name} that cannot be read: its partitions are not known")))
            }
            Kind::Other(name) if !WITHOUT_FILES.contains(name) => {
                Some(Err(format!("{name} is not read by this release")))
            }
            Kind::Nothing if content.is_partly_unreadable => {
                Some(Err("what it has is not known: bytes of a signature cannot be read".into()))
            }
            Kind::LvmPhysical | Kind::Nothing | Kind::Other(_) | Kind::Swap | Kind::Table(_) => {
                None
            }
        },
        Err(why) => Some(Err(why.clone())),
    }
}

/// Contents without files of their own, by the names of [`Kind::Other`].
const WITHOUT_FILES: [&str; 4] =
    ["a dm-verity tree", "a hibernated system", FURTHER_DEVICE, "swap space"];

/// Opens an array with the options that its assembly needs, and serves it. Returns the server, and
/// the source of the array's bytes.
fn open(array: &Array) -> Result<(Inside, Shared), Failure> {
    let mut opening = Opening::read_only();
    opening.options = Options {
        read_only: true,
        force_dirty: array.consent.contains(&FORCE_DIRTY),
        without_journal: array.consent.contains(&WITHOUT_JOURNAL),
        ..Options::default()
    };
    opening.reading.clone_from(&array.reading);
    let names: Vec<PathBuf> = array.names().into_iter().map(Path::to_owned).collect();
    array_source::serve(opening.open(&names)?)
}

/// First address of a server that is on a unix socket, as NBD URI. A server without such an address
/// is an error.
fn socket_uri(name: &str, status: &Status) -> Result<String, Failure> {
    let is_unix = |uri: &&String| {
        matches!(uri.parse::<NbdUri>(), Ok(NbdUri { address: NbdAddress::Unix { .. }, .. }))
    };
    status.listen.iter().find(is_unix).cloned().ok_or_else(|| {
        Failure::failed(format!(
            "{name}: found the addresses {}, expected one on a unix socket; serve the volume with \
             --listen nbd+unix:///?socket=PATH too",
            status.listen.join(", ")
        ))
    })
}

/// Name of an array without its host. An array without a name is called `array-` and the first part
/// of its UUID.
fn name_of(name: &str, uuid: &str) -> String {
    let own = name.rsplit(':').next().unwrap_or_default();
    match own {
        "" => format!("array-{}", uuid.split(':').next().unwrap_or(uuid)),
        own => own.to_owned(),
    }
}

/// The name, followed by a number if another array has the name already.
fn free_name(name: &str, taken: &[(String, Shared)]) -> String {
    let is_free = |name: &str| !taken.iter().any(|(its, _)| its == name);
    let mut free = name.to_owned();
    let mut number = 2;
    while !is_free(&free) {
        free = format!("{name}-{number}");
        number += 1;
    }
    free
}

/// Adds a path to a JSON object: as text and, if it is not valid UTF-8, also as bytes in
/// hexadecimal.
pub(crate) fn with_path(path: &[u8], mut object: Value) -> Value {
    object["path"] = json!(String::from_utf8_lossy(path));
    if std::str::from_utf8(path).is_err() {
        let bytes: String = path.iter().map(|byte| format!("{byte:02x}")).collect();
        object["path_bytes"] = json!(bytes);
    }
    object
}

/// Name of the folder for a place: the name of the place without separators, and not hidden.
pub(crate) fn folder_name(place: &str) -> String {
    let plain = |c: char| if matches!(c, '/' | '#') || !is_printable(c) { '-' } else { c };
    let name: String = place.chars().map(plain).collect();
    match name.starts_with('.') {
        true => name.replacen('.', "_", 1),
        false => name,
    }
}
