//! Volume of a set of members: opened, assembled, and opened again for writing.
//!
//! Members are opened read-only and examined; [`assemble`] decides. Only if it accepts them for
//! writing are they opened again, exclusively, and examined again, because another process may have
//! written in between.

use std::path::{Path, PathBuf};
use std::time::Duration;

use weft_engine::assemble::{Assembly, Candidate, Dropped, Options, assemble, journal};
use weft_engine::knobs::Knobs;
use weft_engine::{Config, MemberInfo};
use weft_ondisk::Metadata;
use weft_runtime::devices::{
    Access, DeviceError, MemberSpec, OpenMember, OpenOptions, read_metadata,
};
use weft_terminal::outcome::Failure;
use weft_terminal::terminal::complain;
use weft_units::{MemberIndex, Sectors};

use crate::assembly::refusal;
use crate::built::Built;
use crate::member::MemberArg;
use crate::patience::Patience;
use crate::reading::Reading;
use crate::when;

/// An assembled array with its open members, for [`weft_export::serve`].
pub(crate) struct Volume {
    /// Result of the assembly: the array, and the members in its slots.
    pub(crate) assembly: Assembly,
    /// Open members that the assembly uses.
    pub(crate) members: Vec<OpenMember>,
    /// Named members that are not used, with the reason.
    pub(crate) not_used: Vec<Dropped>,
}

/// Options with which members are opened and assembled.
#[derive(Clone, Debug, Default)]
pub(crate) struct Opening {
    /// Options of the assembly.
    pub(crate) options: Options,
    /// Whether I/O goes through the page cache even if `O_DIRECT` works.
    pub(crate) buffered: bool,
    /// Directory of the overlays that receive the changes in place of the members; `None` for no
    /// overlays.
    pub(crate) overlay: Option<PathBuf>,
    /// Longest wait for a member's metadata; `None` waits forever.
    pub(crate) member_wait: Option<Duration>,
    /// How the members are read: maps of ddrescue, and the time limit.
    pub(crate) reading: Reading,
    /// Geometry that takes the place of the members' superblocks; `None` to read these.
    pub(crate) built: Option<Built>,
}

impl Opening {
    /// Options with which nothing is written to a member.
    pub(crate) fn read_only() -> Self {
        Self {
            options: Options { read_only: true, ..Options::default() },
            // Data that other processes have just read or written is in the page cache already.
            buffered: true,
            overlay: None,
            member_wait: None,
            reading: Reading::default(),
            built: None,
        }
    }

    /// Opens the named members, and decides on the assembly.
    ///
    /// # Errors
    /// A member cannot be opened, or the assembly is refused.
    pub(crate) fn open(&self, paths: &[PathBuf]) -> Result<Volume, Failure> {
        let specs = paths.iter().map(|path| self.reading.apply(spec(path)));
        let specs: Vec<MemberSpec> = specs.collect();
        let volume = self.attempt(&specs, Access::ReadOnly)?;
        if volume.assembly.read_only {
            return Ok(volume);
        }
        // Members that are not used are not opened for writing either.
        let specs = specs
            .into_iter()
            .filter(|spec| volume.members.iter().any(|member| member.info().label == spec.label))
            .collect::<Vec<_>>();
        let mut not_used = volume.not_used.clone();
        // The shared locks of this volume would conflict with the exclusive locks of the next one.
        drop(volume);
        let mut volume = self.attempt(&specs, Access::ReadWrite)?;
        not_used.append(&mut volume.not_used);
        Ok(Volume { not_used, ..volume })
    }

    fn attempt(&self, specs: &[MemberSpec], access: Access) -> Result<Volume, Failure> {
        let open = match self.overlay {
            Some(_) => OpenOptions { buffered: true, ..OpenOptions::new(Access::ReadOnly) },
            None => OpenOptions { buffered: self.buffered, ..OpenOptions::new(access) },
        };
        let mut members: Vec<OpenMember> = Vec::with_capacity(specs.len());
        let mut empty = Vec::new();
        for (spec, index) in specs.iter().zip(0..) {
            match open.open(spec, MemberIndex(index), &members) {
                Ok(member) => {
                    let member = match &self.overlay {
                        Some(dir) => member.with_overlay(dir, access),
                        None => Ok(member),
                    };
                    let member = member.map_err(|error| device(&error))?;
                    members.push(member);
                }
                // Such a file is treated like a larger file without a superblock.
                Err(DeviceError::Size { label, what: "size", .. }) => {
                    empty.push(candidate_of_nothing(label, index));
                }
                Err(DeviceError::Io { label, what, source })
                    if access == Access::ReadWrite
                        && source.kind() == std::io::ErrorKind::PermissionDenied =>
                {
                    return Err(Failure::failed(format!(
                        "{label}: {what} for writing: {source}; --read-only serves without writing, \
                         --overlay DIR writes elsewhere"
                    )));
                }
                Err(error) => return Err(device(&error)),
            }
        }
        let members = members.into_iter().map(|member| (member.info().clone(), member));
        let patience = Patience::new(self.member_wait);
        let (mut members, mut candidates) =
            patience.candidates(members, read_metadata, &mut complain);
        candidates.append(&mut empty);
        candidates.sort_by_key(|candidate| candidate.member.index);
        if let Some(built) = &self.built {
            candidates = built.candidates(candidates)?;
        }
        journal::settle(&mut candidates, &self.options, |member, sector, len| {
            let open = members.iter().find(|open| open.info().index == member.index)?;
            Some(open.read(sector, len).ok()?.as_ref().to_vec())
        });
        let rescued = |candidate: Candidate| {
            let index = candidate.member.index;
            let open = members.iter().find(|open| open.info().index == index);
            let Some(map) = open.and_then(OpenMember::rescued) else { return candidate };
            if access == Access::ReadOnly {
                complain(&format!("{}: {}", candidate.member.label, map.says()));
            }
            map.apply(candidate, self.options.read_only)
        };
        let candidates: Vec<Candidate> = candidates.into_iter().map(rescued).collect();
        let mut assembly = assemble(&candidates, &self.options)
            .map_err(|refused| refusal(&refused, candidates.len()))?;
        assembly.is_built = self.built.is_some();
        members.retain(|open| {
            assembly.members().any(|(_, member)| member.info.index == open.info().index)
        });
        let not_used = assembly.dropped.clone();
        Ok(Volume { assembly, members, not_used })
    }
}

/// Candidate without a superblock, for a file that is smaller than a sector.
fn candidate_of_nothing(label: String, index: u16) -> Candidate {
    let size = Sectors::ZERO;
    Candidate::new(
        MemberInfo::of_size(MemberIndex(index), label, size),
        Metadata::read(size, |_, _| Err(std::io::ErrorKind::UnexpectedEof.into())),
    )
}

impl Volume {
    /// Configuration of an engine for this volume.
    pub(crate) fn config(&self, knobs: Knobs) -> Config {
        let mut config = Config::for_volume(self.assembly.clone(), knobs);
        config.epoch_secs = when::epoch_secs();
        config
    }
}

/// Member with its path made absolute, because messages and `status` are read in other directories.
pub(crate) fn spec(path: &Path) -> MemberSpec {
    MemberSpec::path(&std::path::absolute(path).unwrap_or_else(|_| path.to_owned()))
}

/// Paths of the files and devices in which the members are. Memory has none.
pub(crate) fn files(members: &[MemberArg]) -> Vec<PathBuf> {
    let file = |member: &MemberArg| match member {
        MemberArg::Path(path) => spec(path).file().map(Path::to_owned),
        MemberArg::Missing | MemberArg::Ram(..) => None,
    };
    members.iter().filter_map(file).collect()
}

/// Converts an error of a device: a device in use is a refusal, any other error a failure.
pub(crate) fn device(error: &DeviceError) -> Failure {
    match error {
        DeviceError::Claimed { .. }
        | DeviceError::Locked { .. }
        | DeviceError::NotRescued { .. }
        | DeviceError::Overlay { .. } => Failure::refused(error),
        DeviceError::Duplicate { .. }
        | DeviceError::Map { .. }
        | DeviceError::Overlap { .. }
        | DeviceError::Partition { .. }
        | DeviceError::Size { what: "length" | "offset", .. }
        | DeviceError::Spec { .. } => Failure::usage(error),
        _ => Failure::failed(error),
    }
}

/// Name of the array without its host, if it is valid as the name of a socket; otherwise its UUID.
pub(crate) fn short_name(assembly: &Assembly) -> String {
    let name = assembly.name.split_once(':').map_or(assembly.name.as_str(), |(_, name)| name);
    if is_name(name) { name.to_owned() } else { assembly.uuid.to_string().replace(':', "") }
}

/// Text of the rule of [`is_name`], for errors.
pub(crate) const NAME_RULE: &str = "letters, digits, '-', '_', '.' and '+', at most 64, neither \
                                    '-' nor '.' first";

/// Whether a name is valid for a volume: it becomes part of a file name and of a URI.
pub(crate) fn is_name(name: &str) -> bool {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.+".contains(&byte);
    !name.is_empty() && name.len() <= 64 && !name.starts_with(['.', '-']) && name.bytes().all(plain)
}
