//! Driver alone: requests through a driver over a ring that completes everything at once.
//!
//! The engine, the bookkeeping of member requests, the leases of frames and the parity code are the
//! same as in a server. Ports, the kernel and the members are left out: an operation of the ring
//! moves no byte.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;

use weft_engine::assemble::{Options, assemble};
use weft_engine::knobs::Knobs;
use weft_engine::{Attr, ClientRequest, Config, Engine, Flags, RequestOp, Run, Tag};
use weft_ondisk::{Level, NewArray};
use weft_runtime::buffers::Slab;
use weft_runtime::devices::{Access, MemberSpec, OpenOptions, read_metadata};
use weft_runtime::io::ring::{Action, Ring, RingDone, RingOp};
use weft_runtime::overlay::MemberRing;
use weft_runtime::serve::driver::{Driver, DriverParts, Event};
use weft_runtime::serve::pool::Pool;
use weft_units::rng::Rng;
use weft_units::{ByteRange, ClientId, MemberIndex, Sectors, Time, VolumeId};

use crate::BenchError;
use crate::alone::RequestKind;

/// Size of a member: 1 GiB, of which only the superblock is stored.
const MEMBER_SIZE: Sectors = Sectors(1 << 21);
/// Size of a chunk: 64 KiB.
const CHUNK: Sectors = Sectors(128);
const BLOCK: u64 = 4096;
const CLIENT: ClientId = ClientId(1);

/// A driver of a RAID 5 of four members, with its requests in flight.
pub(crate) struct Driven {
    driver: Driver,
    depth: u64,
    /// Size of the volume in bytes.
    size: u64,
    tag: u64,
    rng: Rng,
}

impl Driven {
    /// Makes a driver with md's knobs, for `depth` requests of 4 KiB in flight.
    pub(crate) fn new(depth: u32) -> Result<Self, BenchError> {
        let mut array = NewArray::in_sync(Level::Raid5, 4, MEMBER_SIZE);
        array.chunk = Some(CHUNK);
        let folder = tempfile::tempdir().map_err(BenchError::failed)?;
        let mut specs = Vec::new();
        for (index, superblock) in array.plan().map_err(BenchError::failed)?.iter().enumerate() {
            let path = folder.path().join(index.to_string());
            let file = std::fs::File::create(&path).map_err(BenchError::failed)?;
            file.set_len(MEMBER_SIZE.bytes().0).map_err(BenchError::failed)?;
            let place = superblock.minor.position(MEMBER_SIZE).map_or(0, |sector| sector.bytes().0);
            let bytes = superblock.encode();
            rustix::io::pwrite(&file, &bytes, place).map_err(BenchError::failed)?;
            let spec = MemberSpec::parse(&path.to_string_lossy()).map_err(BenchError::failed)?;
            specs.push(spec);
        }
        let members = OpenOptions::new(Access::ReadWrite).open_all(&specs, MemberIndex(0));
        let members = members.map_err(BenchError::failed)?;
        let candidates: Vec<_> = members.iter().map(read_metadata).collect();
        let assembly = assemble(&candidates, &Options::default())
            .map_err(|refused| BenchError::failed(format!("{refused:?}")))?;
        let size = assembly.layout.array_size().bytes().0;
        let config = Config::for_volume(assembly, Knobs::md());
        let Config { cache_frames, client_frames, .. } = config;
        let mut pool = Pool::new(1 + cache_frames, client_frames).with_floors(1);
        pool.join(CLIENT);
        let parts = DriverParts {
            core: Box::new(Engine::new(config, Time(0)).map_err(BenchError::failed)?),
            slab: Slab::new(1 + cache_frames + client_frames).map_err(BenchError::failed)?,
            pool,
            ring: Box::new(AtOnce::new().map_err(BenchError::failed)?),
            members,
        };
        let driver = Driver::new(parts).map_err(BenchError::failed)?;
        Ok(Self { driver, depth: depth.into(), size, tag: 0, rng: Rng::new(1) })
    }

    /// Carries out `count` requests of 4 KiB at random places, and waits for their completion.
    pub(crate) fn carry_out(&mut self, asked: RequestKind, count: u64) -> Result<(), BenchError> {
        let (mut sent, mut answered) = (0, 0);
        while answered < count {
            self.driver.tick();
            self.driver.wake();
            while sent < count && sent < answered + self.depth {
                let Some(frames) = self.driver.take_frames(CLIENT, 1) else { break };
                self.request(asked, frames);
                sent += 1;
            }
            self.driver.settle();
            while let Some(event) = self.driver.event() {
                let Event::Reply { result, tag, .. } = event else { continue };
                result.map_err(|error| BenchError::failed(format!("{error:?}")))?;
                answered += 1;
                if asked == RequestKind::RandomRead {
                    let first = u32::try_from(tag.0).map_err(BenchError::failed)?;
                    self.driver.give_back_frames(Run::new(first, 1));
                }
            }
        }
        Ok(())
    }

    fn request(&mut self, asked: RequestKind, frames: Run) {
        let place = self.rng.below(self.size / BLOCK);
        self.tag += 1;
        // The reply to a read names its frames, which the client has to give back.
        let (op, tag) = match asked {
            RequestKind::RandomRead => (RequestOp::Read, u64::from(frames.first.0)),
            RequestKind::RandomWrite | RequestKind::SequentialWrite => (RequestOp::Write, self.tag),
        };
        self.driver.request(ClientRequest {
            client: CLIENT,
            tag: Tag(tag),
            volume: VolumeId(0),
            op,
            range: ByteRange::new(place * BLOCK, BLOCK),
            frames,
            flags: Flags { sync: true, ..Flags::NONE },
            attr: Attr::default(),
        });
    }
}

/// A ring that completes its operations as soon as they are submitted, and moves no byte.
struct AtOnce {
    pushed: Vec<RingOp>,
    submitted: bool,
    /// Descriptor to wait on, which never becomes readable, because no operation has to be waited
    /// for.
    event: OwnedFd,
}

impl AtOnce {
    fn new() -> std::io::Result<Self> {
        let event = rustix::event::eventfd(0, rustix::event::EventfdFlags::CLOEXEC)?;
        Ok(Self { pushed: Vec::new(), submitted: false, event })
    }
}

impl Ring for AtOnce {
    fn set_file(&mut self, _index: u16, _file: Option<Arc<OwnedFd>>) -> std::io::Result<()> {
        Ok(())
    }

    fn capacity(&self) -> usize {
        512
    }

    fn push(&mut self, op: RingOp) {
        self.pushed.push(op);
    }

    fn submit(&mut self) -> std::io::Result<()> {
        self.submitted = true;
        Ok(())
    }

    fn reap(&mut self, done: &mut Vec<RingDone>) {
        if !std::mem::take(&mut self.submitted) {
            return;
        }
        done.extend(self.pushed.drain(..).map(|op| {
            let moved = match op.action {
                Action::Discard { .. } | Action::Flush => 0,
                Action::Read(_) | Action::Write { .. } => op.limit,
            };
            RingDone { op, result: Ok(moved), panicked: false }
        }));
    }

    fn cancel(&mut self, _id: u32) {}

    fn wait_fd(&self) -> BorrowedFd<'_> {
        self.event.as_fd()
    }

    fn outstanding(&self) -> usize {
        self.pushed.len()
    }

    fn busy(&self) -> bool {
        self.submitted && !self.pushed.is_empty()
    }

    fn describe(&self) -> String {
        "at once".into()
    }
}

impl MemberRing for AtOnce {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_random_write_is_four_member_requests_and_a_read_is_one() {
        let mut driven = Driven::new(8).unwrap();
        let mut counted = |asked| {
            let before = requests(&mut driven.driver);
            driven.carry_out(asked, 200).unwrap();
            requests(&mut driven.driver) - before
        };
        let writes = counted(RequestKind::RandomWrite);
        // The requests of stripes, and those that write superblocks as the array becomes dirty.
        assert!((780..=810).contains(&writes), "{writes}");
        assert_eq!(counted(RequestKind::RandomRead), 200);
    }

    fn requests(driver: &mut Driver) -> u64 {
        let snapshot = driver.snapshot().unwrap();
        snapshot.volumes[0].members.iter().map(|member| member.reads + member.writes).sum()
    }
}
