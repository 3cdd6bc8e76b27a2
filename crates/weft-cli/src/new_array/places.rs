//! Members of a new array: what each MEMBER argument names before anything is written.

use std::path::{Path, PathBuf};

use weft_ondisk::NewMember;
use weft_runtime::spec::MemberSpec;
use weft_terminal::outcome::Failure;
use weft_terminal::terminal::{self, complain};
use weft_units::{Bytes, Sectors};

use super::NewArrayOptions;
use super::options::{random_uuid, whole_sectors};
use crate::look::{self, Looked};
use crate::member::MemberArg;
use crate::size;

/// MEMBER argument of `create` with what it names now: nothing, a file to be created, or a file or
/// device.
pub(super) enum MemberTarget {
    /// An empty slot.
    Missing,
    /// A file to be created.
    New { path: PathBuf, label: String, size: Sectors },
    /// An existing file or device.
    Old { path: PathBuf, looked: Looked },
}

/// Finds out, for each MEMBER argument in order, what it names, without changing anything.
pub(super) fn places(arguments: &NewArrayOptions) -> Result<Vec<MemberTarget>, Failure> {
    let mut places: Vec<MemberTarget> = Vec::new();
    for (argument, _) in arguments.members() {
        let place = match argument {
            MemberArg::Missing => MemberTarget::Missing,
            MemberArg::Ram(..) => {
                return Err(Failure::usage(format!(
                    "{argument}: memory would be gone when create ends; name a file or device"
                )));
            }
            MemberArg::Path(path) => place(path, arguments.member_size)?,
        };
        for other in &places {
            let same = match (other, &place) {
                (MemberTarget::Old { looked: a, .. }, MemberTarget::Old { looked: b, .. })
                    if a.probe.overlaps(&b.probe) =>
                {
                    return Err(Failure::usage(look::twice(b, a)));
                }
                (MemberTarget::New { path: a, .. }, MemberTarget::New { path: b, .. }) => {
                    std::path::absolute(a).ok() == std::path::absolute(b).ok()
                }
                _ => false,
            };
            if same {
                return Err(Failure::usage(format!(
                    "{argument}: named twice; name each member once"
                )));
            }
        }
        places.push(place);
    }
    Ok(places)
}

fn place(path: &Path, member_size: Option<Bytes>) -> Result<MemberTarget, Failure> {
    let label = terminal::label(path);
    // An empty file counts as absent: enlarging it loses nothing.
    let is_part = MemberSpec::path(path).is_part();
    let absent = !is_part
        && match std::fs::metadata(path) {
            Ok(metadata) => metadata.is_file() && metadata.len() == 0,
            Err(error) => {
                if error.kind() == std::io::ErrorKind::NotFound && path.is_symlink() {
                    return Err(Failure::failed(format!("{label}: a symbolic link to nothing")));
                }
                error.kind() == std::io::ErrorKind::NotFound
            }
        };
    if !absent {
        let looked = Looked::open(path)?;
        looked.refuse_unrescued()?;
        if let Some(asked) = member_size.filter(|asked| *asked != looked.probe.size().bytes()) {
            let found = size::human(looked.probe.size().bytes());
            complain(&format!(
                "{label}: exists with {found} and stays so; --member-size {} is for members to be \
                 made",
                size::human(asked)
            ));
        }
        return Ok(MemberTarget::Old { path: path.to_owned(), looked });
    }
    let Some(bytes) = member_size else {
        return Err(Failure::failed(format!(
            "{label}: no such file, or an empty one; --member-size SIZE makes it"
        )));
    };
    let size = whole_sectors("--member-size", bytes)?;
    Ok(MemberTarget::New { path: path.to_owned(), label, size })
}

pub(super) fn refuse_foreign(places: &[MemberTarget]) -> Result<(), Failure> {
    let mut found = Vec::new();
    for place in places {
        if let MemberTarget::Old { looked, .. } = place
            && let Some(foreign) = looked.foreign()?
        {
            found.push(format!(
                "{}: signature at byte {}: found {}, expected an empty member",
                looked.label, foreign.byte, foreign.name
            ));
        }
    }
    match found.as_slice() {
        [] => Ok(()),
        found => Err(Failure::refused(format!(
            "{}; nothing was written; --force overwrites what is there",
            found.join("\nweft: ")
        ))),
    }
}

/// Whether every named member is a block device known to be an SSD.
pub(super) fn only_ssds(places: &[MemberTarget]) -> bool {
    places.iter().all(|place| match place {
        MemberTarget::Missing => true,
        MemberTarget::New { .. } => false,
        MemberTarget::Old { looked, .. } => looked.probe.is_ssd(),
    })
}

/// Members for the slots, `None` for an empty slot, and members for the spares.
pub(super) fn members_of(
    places: &[MemberTarget],
    slots: usize,
) -> Result<(Vec<Option<NewMember>>, Vec<NewMember>), Failure> {
    let mut members = Vec::with_capacity(places.len());
    for place in places {
        members.push(match place {
            MemberTarget::Missing => None,
            MemberTarget::New { size, .. } => {
                Some(NewMember { size: *size, device_uuid: random_uuid()? })
            }
            MemberTarget::Old { looked, .. } => {
                Some(NewMember { size: looked.probe.size(), device_uuid: random_uuid()? })
            }
        });
    }
    let spares: Option<Vec<NewMember>> =
        members.split_off(slots.min(members.len())).into_iter().collect();
    let spares = spares
        .ok_or_else(|| Failure::usage("missing: found among the spares, expected in a slot"))?;
    if members.iter().all(Option::is_none) {
        return Err(Failure::usage("missing: found in every slot, expected a member in some"));
    }
    Ok((members, spares))
}

impl MemberTarget {
    pub(super) fn label(&self) -> Option<&str> {
        match self {
            Self::Missing => None,
            Self::New { label, .. } => Some(label),
            Self::Old { looked, .. } => Some(&looked.label),
        }
    }
}
