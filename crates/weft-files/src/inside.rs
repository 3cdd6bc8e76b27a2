//! Contents of several sources: partitions in arrays, volume groups over arrays, file systems.

use std::rc::Rc;

use weft_ondisk::partition::Partition;

use crate::lvm::{Group, LvmError, PhysicalVolume, groups};
use crate::probe::{Content, Kind, probe};
use crate::source::{Shared, Window};

/// A place that holds something: an array, a partition in it, a logical volume.
pub struct Place {
    /// Name: that of the array, `ARRAY#N` for a partition, `GROUP/VOLUME`.
    pub name: String,
    /// Size in bytes.
    pub size: u64,
    /// Content with the bytes, or why the place is not read.
    pub content: Result<(Content, Shared), String>,
    /// Oddities of the place itself, for people.
    pub notes: Vec<String>,
}

/// Everything that was found.
pub struct Inside {
    /// Places in the order in which they were found: containers before what they hold.
    pub places: Vec<Place>,
    /// Volume groups.
    pub groups: Vec<Group>,
}

/// Looks into the sources, by their names, and into what they hold.
#[must_use]
pub fn look(sources: Vec<(String, Shared)>) -> Inside {
    let mut places = Vec::new();
    let mut physical = Vec::new();
    for (name, source) in sources {
        look_into(&name, &source, Vec::new(), 0, &mut places, &mut physical);
    }
    let found = groups(&physical);
    for volume in &physical {
        // Without a copy of the text elsewhere, what lies on the volume is not found.
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
                places.push(Place { name, size: 0, content, notes: Vec::new() });
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
                Err(why) => places.push(Place {
                    name,
                    size: volume.size,
                    content: Err(why.clone()),
                    notes: missing,
                }),
            }
        }
    }
    Inside { places, groups: found }
}

fn look_into(
    name: &str,
    source: &Shared,
    notes: Vec<String>,
    depth: usize,
    places: &mut Vec<Place>,
    physical: &mut Vec<PhysicalVolume>,
) {
    let content = probe(&**source);
    let index = places.len();
    let kind = content.kind.clone();
    let size = source.size();
    let shared = Rc::clone(source);
    places.push(Place { name: name.to_owned(), size, content: Ok((content, shared)), notes });
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

/// Largest number of places: tables may name the same bytes again and again.
const PLACES_MAX: usize = 4096;
/// Largest number of tables within each other that are looked into.
const DEPTH_MAX: usize = 2;
