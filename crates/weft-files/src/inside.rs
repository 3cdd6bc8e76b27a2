//! Contents of several sources: partitions in arrays, volume groups over arrays, file systems.

use std::rc::Rc;

use weft_ondisk::partition::Partition;

use crate::btrfs::{Btrfs, Snapshot};
use crate::lvm::{Group, LvmError, PhysicalVolume, groups};
use crate::probe::{Content, FURTHER_DEVICE, Kind, probe};
use crate::source::{Shared, Window};

/// A place with content: an array, a partition in it, a logical volume, a snapshot.
pub struct ContentLocation {
    /// Name: the array's, `ARRAY#N` for a partition, `GROUP/VOLUME` for a logical volume, and
    /// `ARRAY:PATH` for a snapshot, from the name of its file system and its path there.
    pub name: String,
    /// Size of the place in bytes.
    pub size: u64,
    /// Content of the place and its bytes, or the reason why the place is not read.
    pub content: Result<(Content, Shared), String>,
    /// Notes for the user on the place itself.
    pub notes: Vec<String>,
    /// Further devices of a file system that is on several devices.
    pub further: Vec<Shared>,
}

impl ContentLocation {
    /// Devices of the content: the place itself and the further ones.
    #[must_use]
    pub fn devices(&self) -> Vec<Shared> {
        let own = self.content.iter().map(|(_, source)| source);
        own.chain(&self.further).map(Rc::clone).collect()
    }
}

/// Everything that was found in the sources.
pub struct Inside {
    /// Places in the order in which they were found: containers before what they hold.
    pub places: Vec<ContentLocation>,
    /// Volume groups.
    pub groups: Vec<Group>,
}

/// Finds the content of the sources, each with its name, and the places within that content.
#[must_use]
pub fn look(sources: Vec<(String, Shared)>) -> Inside {
    let mut places = Vec::new();
    let mut physical = Vec::new();
    for (name, source) in sources {
        look_into(&name, &source, Vec::new(), 0, &mut places, &mut physical);
    }
    let found = groups(&physical);
    for volume in &physical {
        // Unless another physical volume has the text of its group, the logical volumes on this one
        // are not found.
        let is_known = found.iter().any(|group| group.on.contains(&volume.name));
        if let (false, Err(error)) = (is_known, &volume.text)
            && !matches!(error, LvmError::NoText)
            && let Some(place) = places.iter_mut().find(|place| place.name == volume.name)
        {
            place.content = Err(error.to_string());
        }
    }
    for group in &found {
        let volumes = match &group.volumes {
            Ok(volumes) => volumes,
            Err(error) => {
                let (name, content) = (group.name.clone(), Err(error.to_string()));
                let (notes, further) = (Vec::new(), Vec::new());
                places.push(ContentLocation { name, size: 0, content, notes, further });
                continue;
            }
        };
        for volume in volumes {
            let name = format!("{}/{}", group.name, volume.name);
            let missing: Vec<String> = volume
                .missing
                .iter()
                .map(|name| format!("physical volume {name} was not found; what is on it is lost"))
                .collect();
            match &volume.source {
                Ok(source) => {
                    look_into(&name, source, missing, 1, &mut places, &mut Vec::new());
                }
                Err(why) => places.push(ContentLocation {
                    name,
                    size: volume.size,
                    content: Err(why.clone()),
                    notes: missing,
                    further: Vec::new(),
                }),
            }
        }
    }
    join_devices(&mut places);
    add_snapshots(&mut places);
    Inside { places, groups: found }
}

/// Adds to the first device of each btrfs the other devices of this btrfs. The places of the other
/// devices then count as having no files of their own.
fn join_devices(places: &mut [ContentLocation]) {
    for index in 0..places.len() {
        let uuid = match &places[index].content {
            Ok((Content { kind: Kind::Btrfs(2..), uuid, .. }, _)) => uuid.clone(),
            _ => continue,
        };
        let (before, after) = places.split_at_mut(index + 1);
        for other in after {
            if let Ok((content, source)) = &mut other.content
                && matches!(content.kind, Kind::Btrfs(2..))
                && content.uuid == uuid
            {
                before[index].further.push(Rc::clone(source));
                content.kind = Kind::Other(FURTHER_DEVICE);
            }
        }
    }
}

/// Adds a place for each snapshot that is left out of its file system.
fn add_snapshots(places: &mut Vec<ContentLocation>) {
    for index in 0..places.len() {
        let place = &places[index];
        let Ok((content, source)) = &place.content else { continue };
        if !matches!(content.kind, Kind::Btrfs(_)) {
            continue;
        }
        // An error is reported when the files are copied.
        let Ok(tree) = Btrfs::open(&place.devices()) else { continue };
        let mut found: Vec<ContentLocation> = Vec::new();
        for Snapshot { id, path } in tree.snapshots.iter().take(PLACES_MAX) {
            let content = Content { kind: Kind::Snapshot(*id), ..content.clone() };
            let content = Content { notes: Vec::new(), ..content };
            found.push(ContentLocation {
                name: format!("{}:{}", place.name, String::from_utf8_lossy(path)),
                size: place.size,
                content: Ok((content, Rc::clone(source))),
                notes: Vec::new(),
                further: place.further.clone(),
            });
        }
        if !found.is_empty() {
            let many = found.len();
            places[index].notes.push(format!(
                "{many} read-only snapshots of it are left out of a copy unless they are named"
            ));
        }
        places.append(&mut found);
    }
}

fn look_into(
    name: &str,
    source: &Shared,
    notes: Vec<String>,
    depth: usize,
    places: &mut Vec<ContentLocation>,
    physical: &mut Vec<PhysicalVolume>,
) {
    let content = probe(&**source);
    let index = places.len();
    let kind = content.kind.clone();
    let size = source.size();
    let shared = Rc::clone(source);
    let (name_here, content, further) = (name.to_owned(), Ok((content, shared)), Vec::new());
    places.push(ContentLocation { name: name_here, size, content, notes, further });
    match kind {
        Kind::Table(table) if depth < DEPTH_MAX => {
            // A partition that starts at byte 0 holds this table again.
            let is_part = |it: &&Partition| !it.is_extended && it.start > 0;
            for partition in table.partitions.iter().filter(is_part) {
                if places.len() >= PLACES_MAX {
                    let note = format!("found more than {PLACES_MAX} places; the rest is left out");
                    places[index].notes.push(note);
                    break;
                }
                let end = partition.start.saturating_add(partition.len).min(source.size());
                let Some(len) = end.checked_sub(partition.start).filter(|len| *len > 0) else {
                    continue;
                };
                let window: Shared = Rc::new(Window::new(Rc::clone(source), partition.start, len));
                let name = format!("{name}#{}", partition.number);
                look_into(&name, &window, Vec::new(), depth + 1, places, physical);
            }
        }
        Kind::LvmPhysical => match PhysicalVolume::read(name, source) {
            Ok(volume) => {
                if let Err(error) = &volume.text {
                    places[index].notes.push(error.to_string());
                }
                physical.push(volume);
            }
            Err(error) => places[index].content = Err(error.to_string()),
        },
        _ => {}
    }
}

/// Largest number of places that are reported: partition tables may name the same bytes again and
/// again.
const PLACES_MAX: usize = 4096;
/// Largest depth of nested partition tables that are read.
const DEPTH_MAX: usize = 2;
