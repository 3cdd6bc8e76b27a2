//! Volume of a simulation: drives, array, knobs and faults.

use std::collections::BTreeMap;

use thiserror::Error;
use weft_engine::knobs::Knobs;
use weft_engine::page_cache::Kernel;
use weft_engine::{SyncAction, WriteBackConfig};
use weft_ondisk::{Level, chunk_default};
use weft_sim::drive::{Drive, Model};
use weft_sim::machine::{CostTable, Machine, MachineParts, PlannedFault};
use weft_units::{Bytes, Span};

use super::SimulateError;

/// An array of simulated drives, and the host that it is on.
#[derive(Clone, Debug)]
pub struct Volume {
    /// Any level; `None` for one member as it is, without metadata.
    pub level: Option<Level>,
    /// A drive for each member, with the name of its model and what is changed in it.
    pub members: Vec<(String, Model)>,
    /// Size of a chunk of the array.
    pub chunk: Bytes,
    /// Bytes of each member that are used; `None` is the size of the smallest member.
    pub member_size: Option<Bytes>,
    /// Knobs of the volume.
    pub knobs: Knobs,
    /// The write-back cache in front of the array, if there is one: of `weft serve --write-back`.
    pub write_back: Option<WriteBackConfig>,
    /// Resync, recovery, check or repair that runs beside the load from its start.
    pub sync: Option<SyncAction>,
    /// Costs of CPU work.
    pub costs: CostTable,
    /// Memory of the host: of its page cache, for jobs that are buffered.
    pub memory: Bytes,
    /// Rules of that page cache.
    pub kernel: Kernel,
    /// CPUs of the host.
    pub cpus: u32,
    /// Faults, with their times.
    pub faults: Vec<PlannedFault>,
    /// For everything that is drawn.
    pub seed: u64,
}

/// Reasons why there is no such volume.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum VolumeError {
    /// As many models as members, or one for all.
    #[error(
        "devices: found {found} models for {members} members, expected one for all, or one for each"
    )]
    Devices {
        /// Models.
        found: usize,
        /// Members.
        members: usize,
    },
    /// A change to a drive that its model cannot have.
    #[error("--drive {change} on {device}: {why}")]
    Drive {
        /// Name of the model.
        device: String,
        /// The change that was asked for.
        change: String,
        /// Error of the model.
        why: String,
    },
    /// A chunk that nothing fits.
    #[error("chunk: found {found} bytes, expected a multiple of 4096 up to 1 GiB")]
    Chunk {
        /// Chunk in bytes.
        found: u64,
    },
    /// Members are smaller than what is to be used of them.
    #[error(
        "member size: found {found} bytes, expected at most {expected}, what the smallest member has"
    )]
    MemberSize {
        /// Size in bytes that was asked for.
        found: u64,
        /// Size in bytes of the smallest member.
        expected: u64,
    },
}

impl Volume {
    /// So many members with these models, names or files: one for all, or one for each.
    ///
    /// # Errors
    /// A model does not exist, or there are too few or too many.
    pub fn members(models: &[String], count: usize) -> Result<Vec<(String, Model)>, SimulateError> {
        let found = models.len();
        if found != 1 && found != count {
            return Err(VolumeError::Devices { found, members: count }.into());
        }
        let named = |name: &String| Ok((name.clone(), Model::of_argument(name)?));
        let known: Result<Vec<_>, SimulateError> = models.iter().map(named).collect();
        Ok(known?.into_iter().cycle().take(count).collect())
    }

    /// Chunk that `weft create` gives an array of these drives when nobody says one.
    #[must_use]
    pub fn own_chunk(level: Option<Level>, members: &[(String, Model)]) -> Bytes {
        let only_ssds = members.iter().all(|(_, model)| !model.rotational());
        level
            .filter(|level| level.is_striped())
            .map_or(Self::MDADMS_CHUNK, |level| chunk_default(level, only_ssds).bytes())
    }

    /// Chunk that mdadm gives any array.
    pub const MDADMS_CHUNK: Bytes = chunk_default(Level::Raid5, false).bytes();

    /// Changes keys of the models of all members, `KEY=VALUE` each; their names tell it then.
    ///
    /// # Errors
    /// A model has no such key, or the key no such value.
    pub fn change_drives(&mut self, changes: &[String]) -> Result<(), SimulateError> {
        // One of each name: what takes a steady drive to reach its state is done once for all.
        let mut changed: BTreeMap<String, (String, Model)> = BTreeMap::new();
        for (name, model) in &mut self.members {
            if !changed.contains_key(name) {
                changed.insert(name.clone(), Self::changed(name, model, changes)?);
            }
            (*name, *model) = changed[name].clone();
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

    /// A machine with this volume: new, and in sync but for what is to be synced.
    ///
    /// # Errors
    /// There is no such volume.
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
