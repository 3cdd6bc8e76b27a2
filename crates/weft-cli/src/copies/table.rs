//! Output of `weft rescue --list` and `--to`: the table of places inside of the arrays, and reports
//! of copies.

use std::io::Write;

use weft_files::inside::ContentLocation;
use weft_files::probe::Content;
use weft_ondisk::MdTime;
use weft_terminal::outcome::Failure;
use weft_terminal::terminal::{printable, printable_stdout};
use weft_units::Bytes;

use super::All;
use super::listed::ListArguments;
use crate::contents::{Contents, has_files};
use crate::size;

/// Text of the time at which the content was last used, by RFC 3339; `None` if it is not known.
pub(super) fn last_use(content: &Content) -> Option<String> {
    let secs = u64::try_from(content.last_use?).ok()?;
    Some(MdTime { secs, micros: 0 }.to_rfc3339())
}

/// Prints the table of places, those with files first and the largest of these first, and the
/// reports of copies.
pub(super) fn print(
    contents: &Contents,
    restored: &All,
    asked: &ListArguments<'_>,
) -> Result<(), Failure> {
    let mut out = printable_stdout();
    let found = &contents.found;
    let is_folded = |place: &&ContentLocation| {
        !asked.all && !asked.only.contains(&place.name) && contents.is_system(place)
    };
    let (folded, mut places): (Vec<&ContentLocation>, Vec<&ContentLocation>) =
        found.places.iter().partition(is_folded);
    places.sort_by_key(|place| (has_files(place).is_none(), std::cmp::Reverse(place.size)));
    let rows: Vec<[String; 3]> = places
        .iter()
        .map(|place| {
            let holds = match &place.content {
                Ok((content, _)) => content.kind.to_string(),
                Err(_) => "not read".to_owned(),
            };
            [printable(&place.name), printable(&holds), size::human(Bytes(place.size))]
        })
        .collect();
    let width =
        |column: usize| rows.iter().map(|row| row[column].chars().count()).max().unwrap_or(0);
    let widths = [width(0), width(1), width(2)];
    for (place, [name, holds, bytes]) in places.iter().zip(&rows) {
        let mut line =
            format!("{name:0$}  {holds:1$}  {bytes:>2$}", widths[0], widths[1], widths[2]);
        if let Ok((content, _)) = &place.content {
            for (what, value) in [
                ("label", content.label.clone()),
                ("uuid", content.uuid.clone()),
                ("last used", last_use(content)),
            ] {
                if let Some(value) = value {
                    line += &format!("  {what} {}", printable(&value));
                }
            }
        }
        writeln!(out, "{line}")?;
        let own = place.content.as_ref().map(|(content, _)| content.notes.as_slice());
        for note in place.notes.iter().chain(own.unwrap_or_default()) {
            writeln!(out, "  note: {}", printable(note))?;
        }
        if let Some(Err(why)) = has_files(place) {
            writeln!(out, "  its files are not copied: {}", printable(&why))?;
        }
    }
    if !folded.is_empty() {
        let own = |place: &ContentLocation| {
            let kind = place.content.iter().map(|(content, _)| content.kind.to_string());
            let kind: String = kind.collect();
            format!("{} ({kind}, {})", printable(&place.name), size::human(Bytes(place.size)))
        };
        let all: Vec<String> = folded.iter().map(|place| own(place)).collect();
        writeln!(out, "left out, the system of a NAS: {}; --all for these too", all.join(", "))?;
    }
    for group in &found.groups {
        let on = printable(&group.on.join(", "));
        writeln!(out, "volume group {}: on {on}", printable(&group.name))?;
        for uuid in &group.missing {
            let uuid = printable(uuid);
            writeln!(out, "  note: physical volume {uuid} was not found; name its disks too")?;
        }
        if let Err(error) = &group.volumes {
            writeln!(out, "  note: {}", printable(&error.to_string()))?;
        }
    }
    if asked.to.is_none() && places.iter().any(|place| matches!(has_files(place), Some(Ok(_)))) {
        writeln!(out, "next: {} --to FOLDER copies the files out", asked.command)?;
    }
    if let Some(to) = asked.to {
        restored.print(&mut out, to)?;
    }
    out.flush()?;
    Ok(())
}
