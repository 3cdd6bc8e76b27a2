//! Volume groups: the newest text of each, and its logical volumes.
//!
//! A physical volume belongs to the group with its UUID in the text, whatever its name is. A group
//! with missing physical volumes keeps its logical volumes; the parts of these on the missing
//! physical volumes cannot be read.

use std::ops::Range;
use std::rc::Rc;

use super::physical::{LvmError, PhysicalVolume};
use super::text::{Section, Value};
use super::volume::{Leg, Mapped, Segment};
use crate::source::Shared;

/// A volume group.
pub struct Group {
    /// Name of the group.
    pub name: String,
    /// Names of the physical volumes that were found.
    pub on: Vec<String>,
    /// UUIDs of the physical volumes that were not found.
    pub missing: Vec<String>,
    /// Logical volumes that a user sees, or the fault of the text.
    pub volumes: Result<Vec<LogicalVolume>, LvmError>,
}

/// A logical volume.
pub struct LogicalVolume {
    /// Name without that of the group.
    pub name: String,
    /// Size in bytes.
    pub size: u64,
    /// Bytes of the volume, or the reason why they are not read.
    pub source: Result<Shared, String>,
    /// Names of physical volumes that the logical volume needs and that were not found.
    pub missing: Vec<String>,
}

/// Volume groups of the physical volumes, each as its newest text describes it.
#[must_use]
pub fn groups(found: &[PhysicalVolume]) -> Vec<Group> {
    let mut newest: Vec<(&str, &str, &Section)> = Vec::new();
    let texts = found.iter().filter_map(|volume| volume.text.as_ref().ok());
    for text in texts {
        let group = text.sections().iter().find(|(_, section)| section.value("seqno").is_some());
        let Some((name, section)) = group else { continue };
        let id = section.text("id").unwrap_or_default();
        match newest.iter_mut().find(|(_, its, _)| *its == id) {
            Some(known) if seqno_of(known.2) < seqno_of(section) => *known = (name, id, section),
            Some(_) => {}
            None => newest.push((name, id, section)),
        }
    }
    newest.into_iter().map(|(name, _, section)| Group::of(name, section, found)).collect()
}

fn seqno_of(section: &Section) -> u64 {
    section.number("seqno").unwrap_or(0)
}

/// Physical volume in the text of a group.
struct Member<'t> {
    key: &'t str,
    uuid: &'t str,
    /// Byte offset on the physical volume of its first extent.
    start: u64,
    found: Option<&'t PhysicalVolume>,
}

impl Group {
    fn of(name: &str, section: &Section, found: &[PhysicalVolume]) -> Self {
        let mut group = Self {
            name: name.to_owned(),
            on: Vec::new(),
            missing: Vec::new(),
            volumes: Ok(Vec::new()),
        };
        group.volumes = group.volumes_of(section, found);
        group
    }

    fn volumes_of(
        &mut self,
        section: &Section,
        found: &[PhysicalVolume],
    ) -> Result<Vec<LogicalVolume>, LvmError> {
        let name = self.name.clone();
        let extent = extent_of(section, &name)?;
        let members = members_of(section, &name, found)?;
        for member in &members {
            match member.found {
                Some(found) => self.on.push(found.name.clone()),
                None => self.missing.push(member.uuid.to_owned()),
            }
        }
        let empty = Section::default();
        let all = section.section("logical_volumes").unwrap_or(&empty).sections();
        let mut volumes = Vec::new();
        for (key, volume) in all {
            // Hidden volumes, such as the parts of thin pools and mirrors, were not made by a user.
            if !volume.has("status", "VISIBLE") {
                continue;
            }
            let place = format!("{name}/logical_volumes/{key}");
            volumes.push(logical(key, &place, volume, extent, &members, all)?);
        }
        Ok(volumes)
    }
}

/// Byte ranges of this physical volume with the first segments of linear logical volumes that begin
/// on it. Empty without a valid text.
#[must_use]
pub fn beginnings(volume: &PhysicalVolume) -> Vec<Range<u64>> {
    let Ok(text) = &volume.text else { return Vec::new() };
    let group = text.sections().iter().find(|(_, section)| section.value("seqno").is_some());
    let found = std::slice::from_ref(volume);
    group.and_then(|(name, section)| beginnings_of(section, name, found).ok()).unwrap_or_default()
}

fn beginnings_of(
    section: &Section,
    name: &str,
    found: &[PhysicalVolume],
) -> Result<Vec<Range<u64>>, LvmError> {
    let extent = extent_of(section, name)?;
    let members = members_of(section, name, found)?;
    let empty = Section::default();
    let volumes = section.section("logical_volumes").unwrap_or(&empty).sections();
    let mut all = Vec::new();
    for (_, volume) in volumes.iter().filter(|(_, it)| it.has("status", "VISIBLE")) {
        let first = |it: &&(String, Section)| it.1.number("start_extent") == Some(0);
        let Some((key, segment)) = volume.sections().iter().find(first) else { continue };
        if !matches!(segment.text("type"), Some("linear" | "striped")) {
            continue;
        }
        let count = number(segment, key, "extent_count")?;
        if let [Leg { source: Some(_), start, .. }] =
            legs(segment, key, (count, extent), &members)?.1[..]
        {
            all.push(start..start.saturating_add(count.saturating_mul(extent)));
        }
    }
    Ok(all)
}

/// Size of an extent of the group in bytes.
fn extent_of(section: &Section, name: &str) -> Result<u64, LvmError> {
    let extent = number(section, name, "extent_size")?;
    match sectors(extent, name, "extent_size")? {
        0 => Err(field(name, "extent_size", &0, "a size in sectors")),
        extent => Ok(extent),
    }
}

/// Physical volumes that the text of a group names.
fn members_of<'t>(
    section: &'t Section,
    name: &str,
    found: &'t [PhysicalVolume],
) -> Result<Vec<Member<'t>>, LvmError> {
    let mut members = Vec::new();
    let all = section.section("physical_volumes").map_or(&[][..], Section::sections);
    for (key, volume) in all {
        let place = format!("{name}/physical_volumes/{key}");
        let uuid = volume
            .text("id")
            .ok_or_else(|| field(&place, "id", &"none", "the UUID of the volume"))?;
        let start = sectors(number(volume, &place, "pe_start")?, &place, "pe_start")?;
        let found = found.iter().find(|its| its.uuid == uuid);
        members.push(Member { key, uuid, start, found });
    }
    Ok(members)
}

/// Makes a logical volume from its section in the text of a group.
fn logical(
    key: &str,
    place: &str,
    volume: &Section,
    extent: u64,
    members: &[Member<'_>],
    all: &[(String, Section)],
) -> Result<LogicalVolume, LvmError> {
    let mut segments: Vec<(u64, u64, &Section, String)> = Vec::new();
    for (key, section) in volume.sections().iter().filter(|(key, _)| key.starts_with("segment")) {
        let place = format!("{place}/{key}");
        let first = number(section, &place, "start_extent")?;
        let count = number(section, &place, "extent_count")?;
        segments.push((first, count, section, place));
    }
    segments.sort_by_key(|(first, ..)| *first);
    let mut mapped = Mapped { segments: Vec::new(), size: 0 };
    let mut refused = snapshot_of(key, all);
    let mut missing = Vec::new();
    for (first, count, section, place) in segments {
        let start = first.checked_mul(extent);
        let len = count.checked_mul(extent).filter(|len| *len > 0);
        let end = start.zip(len).and_then(|(start, len)| start.checked_add(len));
        let (Some(start), Some(len), Some(_)) = (start, len, end.filter(|end| *end < SIZE_MAX))
        else {
            return Err(field(&place, "extent_count", &count, "one that fits a device"));
        };
        if start != mapped.size {
            let found = format!("{first} (byte {start})");
            return Err(field(&place, "start_extent", &found, "the end of the segment before"));
        }
        mapped.size = start + len;
        let kind = section.text("type").unwrap_or("none");
        if !matches!(kind, "linear" | "striped") {
            refused.get_or_insert_with(|| not_read(kind));
        }
        if refused.is_some() {
            continue;
        }
        let (stripe_bytes, legs) = legs(section, &place, (count, extent), members)?;
        for leg in legs.iter().filter(|leg| leg.source.is_none()) {
            if !missing.contains(&leg.name) {
                missing.push(leg.name.clone());
            }
        }
        mapped.segments.push(Segment { start, len, stripe_bytes, legs });
    }
    let size = mapped.size;
    if mapped.segments.is_empty() && refused.is_none() {
        refused = Some("it has no segments".into());
    }
    let source: Result<Shared, String> = match refused {
        Some(why) => Err(why),
        None => Ok(Rc::new(mapped)),
    };
    Ok(LogicalVolume { name: key.to_owned(), size, source, missing })
}

/// Reason why a logical volume is not read, if it holds the differences of a snapshot; `None`
/// otherwise.
fn snapshot_of(key: &str, all: &[(String, Section)]) -> Option<String> {
    let segments = all.iter().flat_map(|(_, volume)| volume.sections());
    let mut snapshots = segments.map(|(_, segment)| segment).filter(|segment| {
        segment.text("type") == Some("snapshot") && segment.text("cow_store") == Some(key)
    });
    let origin = snapshots.next()?.text("origin").unwrap_or("another volume").to_owned();
    Some(format!("a snapshot of {origin}, which is not read; {origin} itself is"))
}

fn not_read(kind: &str) -> String {
    let what = match kind {
        "cache" | "cache-pool" | "writecache" => "a cached volume",
        "mirror" => "a mirror of LVM",
        "snapshot" => "a snapshot",
        "thin" => "a thin volume",
        "thin-pool" => "a pool of thin volumes",
        "vdo" | "vdo-pool" => "a VDO volume",
        _ if kind.starts_with("raid") => "a RAID of LVM",
        _ => "a kind of segment that is not known",
    };
    format!("{what} ({kind}), which is not read; the kernel's LVM does, over weft serve --overlay")
}

/// Legs of a linear or striped segment of `count` extents, and the number of bytes on a leg before
/// the next leg follows: 0 for a single leg. `extent` is the size of an extent in bytes.
fn legs(
    section: &Section,
    place: &str,
    (count, extent): (u64, u64),
    members: &[Member<'_>],
) -> Result<(u64, Vec<Leg>), LvmError> {
    let stripes = number(section, place, "stripe_count")?;
    let named = section.list("stripes");
    if stripes == 0 || named.len() as u64 != stripes.saturating_mul(2) {
        let found = format!("{} for {stripes} stripes", named.len());
        return Err(field(place, "stripes", &found, "a volume and an extent for each"));
    }
    let mut stripe_bytes = 0;
    if stripes > 1 {
        stripe_bytes = sectors(number(section, place, "stripe_size")?, place, "stripe_size")?;
        if stripe_bytes == 0
            || !count.is_multiple_of(stripes)
            || !extent.is_multiple_of(stripe_bytes)
        {
            let found = format!("{stripe_bytes} bytes, {count} extents on {stripes} stripes");
            return Err(field(place, "stripe_size", &found, "stripes of whole extents"));
        }
    }
    let mut legs = Vec::new();
    for pair in named.chunks_exact(2) {
        let (Some(Value::Text(key)), Some(Value::Number(first))) = (pair.first(), pair.get(1))
        else {
            let found = format!("{pair:?}");
            return Err(field(place, "stripes", &found, "a volume and an extent"));
        };
        let Some(member) = members.iter().find(|member| member.key == key) else {
            return Err(field(place, "stripes", key, "a key of physical_volumes"));
        };
        let start = u64::try_from(*first).ok().and_then(|first| first.checked_mul(extent));
        let start = start.and_then(|start| start.checked_add(member.start));
        let Some(start) = start.filter(|start| *start < SIZE_MAX) else {
            return Err(field(place, "stripes", first, "an extent of the volume"));
        };
        let source = member.found.map(|found| Rc::clone(&found.source));
        let name = member.found.map_or(member.uuid, |found| &found.name).to_owned();
        legs.push(Leg { source, name, start });
    }
    Ok((stripe_bytes, legs))
}

fn number(section: &Section, place: &str, key: &str) -> Result<u64, LvmError> {
    section.number(key).ok_or_else(|| {
        let found = section.value(key).map_or("none".to_owned(), |value| format!("{value:?}"));
        field(place, key, &found, "a number")
    })
}

/// Converts a number of sectors to bytes; `place` and `key` name the field in an error.
fn sectors(count: u64, place: &str, key: &str) -> Result<u64, LvmError> {
    let bytes = count.checked_mul(512).filter(|bytes| *bytes < SIZE_MAX);
    bytes.ok_or_else(|| field(place, key, &count, "a number of sectors that fits a device"))
}

fn field(place: &str, key: &str, found: &dyn ToString, expected: &'static str) -> LvmError {
    LvmError::Field { place: format!("{place}/{key}"), found: found.to_string(), expected }
}

/// Upper bound of sizes and positions, in bytes: no device is so large, and sums of two do not
/// overflow.
const SIZE_MAX: u64 = 1 << 62;
