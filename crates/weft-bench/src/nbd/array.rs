//! Server of an array in memory.

use std::path::Path;

use weft_engine::Config;
use weft_engine::assemble::{Options, assemble};
use weft_engine::knobs::Knobs;
use weft_export::{
    ClientShare, ExitState, ExportOptions, Listen, NbdListen, ServeOptions, Source, TimeLimits,
    serve as serve_volume,
};
use weft_ondisk::{Level, NewArray};
use weft_runtime::Backend;
use weft_runtime::devices::{Access, MemberSpec, OpenMember, OpenOptions, read_metadata};
use weft_units::{Bytes, MemberIndex, Sectors};

use super::measure::EXPORT_BYTES;
use crate::BenchError;

const MEMBERS: u64 = 4;
const CACHE_BYTES: u64 = 256 * 4096 * MEMBERS;

/// Serves a RAID 5 on four members in memory, of at least `EXPORT_BYTES`, on a unix socket until
/// the process is killed.
///
/// # Errors
/// The knob `stripe_size` does not allow the value, or the array cannot be created or served.
pub fn serve(socket: &Path, stripe_size: &str) -> Result<(), BenchError> {
    let mut knobs = Knobs::default();
    let knob = knobs.parse("stripe_size", stripe_size).map_err(BenchError::usage)?;
    knobs.set(knob);
    // Every stripe size has the memory that 256 stripes of 4 KiB take in md.
    let stripes = (CACHE_BYTES / MEMBERS / knobs.stripe_size.bytes().0).max(17);
    knobs.stripe_cache_size = u32::try_from(stripes).map_err(BenchError::failed)?;
    knobs.stripe_cache_bytes = Bytes(CACHE_BYTES);
    let members = members(EXPORT_BYTES)?;
    let candidates: Vec<_> = members.iter().map(read_metadata).collect();
    let assembly = assemble(&candidates, &Options::default())
        .map_err(|refused| BenchError::failed(format!("{refused:?}")))?;
    let export = ExportOptions {
        name: String::new(),
        size: None,
        read_only: false,
        description: format!("RAID 5 on memory, stripe_size {stripe_size}"),
        share: ClientShare::default(),
        also: Vec::new(),
    };
    // The pipe stays silent: the process ends when it is killed.
    let (shutdown, _tell) =
        std::io::pipe().map_err(|error| BenchError::failed(format!("pipe: {error}")))?;
    let state = serve_volume(ServeOptions {
        source: Source::Arrays { config: Box::new(Config::for_volume(assembly, knobs)), members },
        exports: vec![export],
        listen: vec![Listen::Nbd(NbdListen::unix(socket))],
        control: None,
        supervisor: None,
        backend: Backend::Auto,
        clients_max: 16,
        limits: TimeLimits::default(),
        sockets: Vec::new(),
        groups: Vec::new(),
        mark: None,
        recorder: None,
        shutdown: shutdown.into(),
        on_ready: Box::new(|_| {}),
    });
    match state? {
        ExitState::Clean => Ok(()),
        ExitState::Poisoned(why) | ExitState::StopFailed(why) => Err(BenchError::Failed(why)),
    }
}

/// Four members in memory, with the superblocks of a new RAID 5 of at least `bytes`. The parity is
/// right, because everything is zero.
fn members(bytes: u64) -> Result<Vec<OpenMember>, BenchError> {
    let size = bytes / 3 + (32 << 20);
    let spec = MemberSpec::parse(&format!("ram:{}M", size >> 20)).map_err(BenchError::failed)?;
    let mut members: Vec<OpenMember> = Vec::new();
    for index in 0..4 {
        let open = OpenOptions::new(Access::ReadWrite);
        let member = open.open(&spec, MemberIndex(index), &members).map_err(BenchError::failed)?;
        members.push(member);
    }
    let size: Sectors = members[0].info().size;
    let mut array = NewArray::in_sync(Level::Raid5, members.len(), size);
    array.name = "bench".into();
    array.chunk = Some(Sectors(128));
    let superblocks = array.plan().map_err(|error| BenchError::failed(format!("{error:?}")))?;
    for (superblock, member) in superblocks.iter().zip(&members) {
        let at = superblock.minor.position(size).expect("members are large").bytes().0;
        rustix::io::pwrite(member, &superblock.encode(), at)
            .map_err(|errno| BenchError::failed(format!("superblock: {errno}")))?;
    }
    Ok(members)
}
