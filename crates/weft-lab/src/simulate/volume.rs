//! Volume of a simulation: drives, array, knobs and faults.

use thiserror::Error;
use weft_engine::knobs::Knobs;
use weft_engine::page_cache::Kernel;
use weft_engine::{SyncAction, WriteBackConfig};
use weft_ondisk::{Level, chunk_default};
use weft_sim::drive::{Drive, Model};
use weft_sim::machine::{CostTable, Machine, MachineParts, PlannedFault};
use weft_units::{Bytes, Span};

use super::SimulateError;

/// An array of simulated drives, and its host.
#[derive(Clone, Debug)]
pub struct Volume {
    /// Level of the array; `None` for a single member without metadata.
    pub level: Option<Level>,
    /// Drive of each member: the name of its model with the changes to it, and the model.
    pub members: Vec<(String, Model)>,
    /// Size of a chunk of the array.
    pub chunk: Bytes,
    /// Bytes used of each member; `None` for the size of the smallest member.
    pub member_size: Option<Bytes>,
    /// Knobs of the volume.
    pub knobs: Knobs,
    /// The write-back cache of `weft serve --write-back` in front of the array; `None` for no
    /// cache.
    pub write_back: Option<WriteBackConfig>,
    /// Resync, recovery, check or repair that runs beside the load from its start; `None` for none.
    pub sync: Option<SyncAction>,
    /// CPU costs of the engine's work.
    pub costs: CostTable,
    /// Memory of the host, for the page cache of buffered jobs.
    pub memory: Bytes,
    /// Kernel that defines the rules of the page cache.
    pub kernel: Kernel,
    /// Number of CPUs of the host.
    pub cpus: u32,
    /// Faults, with their times.
    pub faults: Vec<PlannedFault>,
    /// Seed from which everything random is drawn.
    pub seed: u64,
}

/// Reasons why a volume cannot exist.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum VolumeError {
    /// The number of models is neither one nor the number of members.
    #[error(
        "devices: found {found} models for {members} members, expected one for all, or one for each"
    )]
    Devices {
        /// Number of models.
        found: usize,
        /// Number of members.
        members: usize,
    },
    /// The model of a drive does not allow a change.
    #[error("--drive {change} on {device}: {why}")]
    Drive {
        /// Model of the drive.
        device: String,
        /// Change that was requested.
        change: String,
        /// Reason for which the model does not allow the change.
        why: String,
    },
    /// The chunk size is not allowed.
    #[error("chunk: found {found} bytes, expected a multiple of 4096 up to 1 GiB")]
    Chunk {
        /// Chunk size in bytes.
        found: u64,
    },
    /// The size to be used of each member exceeds the size of the smallest member.
    #[error(
        "member size: found {found} bytes, expected at most {expected}, what the smallest member has"
    )]
    MemberSize {
        /// Requested size in bytes.
        found: u64,
        /// Size in bytes of the smallest member.
        expected: u64,
    },
}

impl Volume {
    /// Drives of `count` members with these models, names or files: one model for all, or one for
    /// each.
    ///
    /// # Errors
    /// A model does not exist, or the number of models is neither one nor `count`.
    pub fn members(models: &[String], count: usize) -> Result<Vec<(String, Model)>, SimulateError> {
        let found = models.len();
        if found != 1 && found != count {
            return Err(VolumeError::Devices { found, members: count }.into());
        }
        let named = |name: &String| Ok((name.clone(), Model::of_argument(name)?));
        let known: Result<Vec<_>, SimulateError> = models.iter().map(named).collect();
        Ok(known?.into_iter().cycle().take(count).collect())
    }

    /// Default chunk size of `weft create` for an array of these drives.
    #[must_use]
    pub fn own_chunk(level: Option<Level>, members: &[(String, Model)]) -> Bytes {
        let only_ssds = members.iter().all(|(_, model)| !model.rotational());
        level
            .filter(|level| level.is_striped())
            .map_or(Self::MDADMS_CHUNK, |level| chunk_default(level, only_ssds).bytes())
    }

    /// Default chunk size of mdadm for any array.
    pub const MDADMS_CHUNK: Bytes = chunk_default(Level::Raid5, false).bytes();

    /// Changes keys of the models of all members, `KEY=VALUE` each; the names of the models then
    /// include the changes.
    ///
    /// # Errors
    /// A model has no such key, or the key does not allow the value.
    pub fn change_drives(&mut self, changes: &[String]) -> Result<(), SimulateError> {
        for (name, model) in &mut self.members {
            (*name, *model) = Self::changed(name, model, changes)?;
        }
        Ok(())
    }

    fn changed(
        name: &str,
        model: &Model,
        changes: &[String],
    ) -> Result<(String, Model), SimulateError> {
        let (mut named, mut model) = (name.to_owned(), model.clone());
        for change in changes {
            let refused = |why: String| VolumeError::Drive {
                device: name.to_owned(),
                change: change.clone(),
                why,
            };
            let (key, value) = change
                .split_once('=')
                .ok_or_else(|| refused("expected KEY=VALUE, as rpm=5400".to_owned()))?;
            let (key, value) = (key.trim(), value.trim());
            model = model.with_key(key, value).map_err(|error| refused(error.to_string()))?;
            named = format!("{named} {key}={value}");
        }
        Ok((named, model))
    }

    /// A new machine with this volume, which is in sync except for members to be synced.
    ///
    /// # Errors
    /// No such volume exists.
    pub fn machine(&self) -> Result<Machine, SimulateError> {
        let Bytes(chunk) = self.chunk;
        if chunk == 0 || !chunk.is_multiple_of(4096) || chunk > 1 << 30 {
            return Err(VolumeError::Chunk { found: chunk }.into());
        }
        let models: Vec<Model> = self.members.iter().map(|(_, model)| model.clone()).collect();
        let smallest = models.iter().map(|model| Drive::new(model, 0).capacity().bytes()).min();
        if let (Some(Bytes(found)), Some(Bytes(expected))) = (self.member_size, smallest)
            && found > expected
        {
            return Err(VolumeError::MemberSize { found, expected }.into());
        }
        let Some(model) = models.first().cloned() else {
            return Err(VolumeError::Devices { found: 0, members: 0 }.into());
        };
        let parts = MachineParts {
            level: self.level,
            model,
            members: u16::try_from(models.len()).unwrap_or(u16::MAX),
            chunk: self.chunk.sectors_floor(),
            member_size: self.member_size.map(Bytes::sectors_floor),
            knobs: self.knobs,
            write_back: self.write_back,
            sync: self.sync,
            costs: self.costs.costs,
            flush_hop: Span::ZERO,
            seed: self.seed,
        };
        let mut machine = Machine::of_models(&parts, &models)?;
        if !self.faults.is_empty() {
            machine.host.plan_faults(self.faults.clone(), self.seed);
        }
        Ok(machine)
    }
}
