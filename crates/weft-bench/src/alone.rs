//! Engine alone: requests through an engine without members, memory or clock.
//!
//! Member requests and computations complete at the next run of the engine and take no time, and
//! frames are numbers without memory. The remaining cost is the engine's work for a request,
//! including all inputs and outputs.

use std::collections::VecDeque;

use weft_engine::assemble::{Assembly, Candidate, Options, assemble};
use weft_engine::knobs::Knobs;
use weft_engine::{
    Attr, ClientRequest, Command, Config, Engine, Flags, Input, MemberInfo, Output, RequestOp, Run,
    Tag, Token, Value, Verb, Work, WriteBackConfig,
};
use weft_ondisk::{Level, NewArray, NewBitmap, Super1};
use weft_units::rng::Rng;
use weft_units::{ByteRange, Bytes, ClientId, MemberIndex, Sectors, Time, VolumeId};

use crate::BenchError;

/// Size of a member: 8 GiB.
const MEMBER_SIZE: Sectors = Sectors(1 << 24);
/// Size of a chunk: 64 KiB.
const CHUNK: Sectors = Sectors(128);

/// Bytes of data in a full stripe.
pub(crate) const FULL_STRIPE: u64 = 3 * (64 << 10);

const BLOCK: u64 = 4096;

/// Superblocks of a RAID 5 of four members, in order of the members.
pub(crate) fn superblocks() -> Result<Vec<Super1>, BenchError> {
    superblocks_of(Level::Raid5, 4)
}

fn superblocks_of(level: Level, members: usize) -> Result<Vec<Super1>, BenchError> {
    let mut array = NewArray::in_sync(level, members, MEMBER_SIZE);
    array.chunk = level.is_striped().then_some(CHUNK);
    array.plan().map_err(BenchError::failed)
}

/// Assembles the array of these superblocks, each on a member of [`MEMBER_SIZE`].
pub(crate) fn assembled(superblocks: Vec<Super1>) -> Result<Assembly, BenchError> {
    let candidates: Vec<Candidate> = (0..)
        .zip(superblocks)
        .map(|(index, superblock)| {
            let label = format!("member {index}");
            let member = MemberInfo::of_size(MemberIndex(index), label, MEMBER_SIZE);
            Candidate::with_superblock(member, superblock)
        })
        .collect();
    assemble(&candidates, &Options::default())
        .map_err(|refused| BenchError::failed(format!("{refused:?}")))
}

/// An engine with its requests in flight.
pub(crate) struct Alone {
    engine: Engine,
    /// Frames that no request uses.
    free: VecDeque<Run>,
    /// Largest number of requests in flight. Free frames alone do not limit it: the frames of a
    /// write may be released before its reply.
    depth: u64,
    /// Size of a request, in bytes.
    bytes: u64,
    /// Size of the volume in bytes.
    size: u64,
    now: u64,
    tag: u64,
    rng: Rng,
    /// Tokens of member requests and computations that complete at the next run of the engine.
    done: Vec<Token>,
    worked: Worked,
}

/// Counts of each kind of the engine's work since the engine was made.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Worked {
    pub(crate) turns: u64,
    pub(crate) inputs: u64,
    pub(crate) attaches: u64,
    pub(crate) stripes: u64,
    pub(crate) followers: u64,
    pub(crate) submits: u64,
    pub(crate) merges: u64,
    pub(crate) operations: u64,
}

/// Kind of request that the benchmark sends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RequestKind {
    /// Read at a random multiple of the request size.
    RandomRead,
    /// Write at a random multiple of the request size.
    RandomWrite,
    /// Write at the end of the previous write, or at the start of the volume after the last one.
    SequentialWrite,
}

impl Worked {
    fn add(&mut self, work: Work) {
        self.turns += u64::from(work.turns);
        self.inputs += u64::from(work.inputs);
        self.attaches += u64::from(work.attaches);
        self.stripes += u64::from(work.stripes);
        self.followers += u64::from(work.followers);
        self.submits += u64::from(work.submits);
        self.merges += u64::from(work.merges);
        self.operations += u64::from(work.operations);
    }
}

impl Alone {
    /// Makes an engine with a RAID 5 of four members, for `depth` requests of `bytes` each in
    /// flight.
    pub(crate) fn new(knobs: Knobs, bytes: u64, depth: u32) -> Result<Self, BenchError> {
        let assembly = assembled(superblocks()?)?;
        let size = assembly.layout.array_size();
        Self::with(Config::for_volume(assembly, knobs), size, bytes, depth)
    }

    /// Makes an engine with an array of a level without parity, for `depth` requests of `bytes`
    /// each in flight.
    pub(crate) fn of_level(
        level: Level,
        members: usize,
        bytes: u64,
        depth: u32,
    ) -> Result<Self, BenchError> {
        let assembly = assembled(superblocks_of(level, members)?)?;
        let size = assembly.layout.array_size();
        Self::with(Config::for_volume(assembly, Knobs::md()), size, bytes, depth)
    }

    /// Makes an engine for a single member without metadata, for `depth` requests of `bytes` in
    /// flight.
    pub(crate) fn single(bytes: u64, depth: u32) -> Result<Self, BenchError> {
        let member = MemberInfo::of_size(MemberIndex(0), "member", MEMBER_SIZE);
        Self::with(Config::for_single(member, false), MEMBER_SIZE, bytes, depth)
    }

    fn with(config: Config, size: Sectors, bytes: u64, depth: u32) -> Result<Self, BenchError> {
        let first = config.client_frames_first();
        let count = u32::try_from(bytes / BLOCK).map_err(BenchError::failed)?;
        let free = (0..depth).map(|run| Run::new(first + run * count, count)).collect();
        let engine = Engine::new(config, Time(0)).map_err(BenchError::failed)?;
        let size = size.bytes().0;
        let (now, tag, rng, done) = (0, 0, Rng::new(1), Vec::new());
        let worked = Worked::default();
        Ok(Self { engine, free, depth: depth.into(), bytes, size, now, tag, rng, done, worked })
    }

    /// Makes an engine for a RAID 5 behind a write-back cache of size `cache`, for `depth` requests
    /// of 4 KiB in flight, to the first `area` bytes of the volume.
    pub(crate) fn cached(cache: Bytes, area: Bytes, depth: u32) -> Result<Self, BenchError> {
        let assembly = assembled(superblocks()?)?;
        let config = Config::for_volume(assembly, Knobs::md());
        let config = config.with_write_back(WriteBackConfig::of(cache));
        Self::with(config, area.sectors_floor(), BLOCK, depth)
    }

    /// Adds to the array a write-intent bitmap in which all bits are set. The bits stay set,
    /// because the clock never reaches the time at which a bit is cleared.
    pub(crate) fn add_bitmap(&mut self) -> Result<(), BenchError> {
        let verb = Verb::SetBitmap(Some(NewBitmap::default()));
        let command = Command { client: ClientId(1), tag: Tag(0), volume: VolumeId(0), verb };
        self.engine.handle(Time(self.now), Input::Admin(Box::new(command)));
        // The answer to the command arrives among these requests and counts as one more.
        self.carry_out(RequestKind::SequentialWrite, 1000)?;
        let volumes = self.engine.snapshot().volumes;
        let set = volumes.first().and_then(|volume| volume.bitmap.as_ref());
        match set.map(|bitmap| (bitmap.dirty, bitmap.chunks)) {
            Some((dirty, chunks)) if dirty == chunks && dirty > 0 => Ok(()),
            found => Err(BenchError::failed(format!("bits that are set, and all: {found:?}"))),
        }
    }

    /// Work of the engine since it was made.
    pub(crate) fn worked(&self) -> Worked {
        self.worked
    }

    /// Carries out `count` requests and waits for their completion.
    pub(crate) fn carry_out(&mut self, asked: RequestKind, count: u64) -> Result<(), BenchError> {
        let (mut sent, mut answered, mut outputs) = (0, 0, VecDeque::new());
        while answered < count {
            self.now += 1000;
            for token in self.done.drain(..) {
                let input = Input::Done { token, result: Ok(Value::Nothing) };
                self.engine.handle(Time(self.now), input);
            }
            // The answer to an earlier command may count as an answer to these requests.
            while sent < count && sent < answered + self.depth {
                let Some(frames) = self.free.pop_front() else { break };
                let request = self.request(asked, frames);
                self.engine.handle(Time(self.now), Input::Client(request));
                sent += 1;
            }
            let turns = self.engine.run(Time(self.now), u32::MAX, &mut outputs);
            self.worked.add(turns.work);
            let before = answered;
            for output in &mut outputs {
                match output {
                    Output::Submit { token, .. } => self.done.push(*token),
                    Output::Compute { token, ops } => {
                        self.done.push(*token);
                        self.engine.recycle(std::mem::take(ops));
                    }
                    Output::Reply { result, tag, .. } => {
                        if let Err(error) = result {
                            return Err(BenchError::failed(format!("{error:?}")));
                        }
                        answered += 1;
                        if asked == RequestKind::RandomRead {
                            let first = u32::try_from(tag.0).map_err(BenchError::failed)?;
                            self.free.push_back(Run::new(first, self.frames_each()));
                        }
                    }
                    Output::Release(run) => self.free.push_back(*run),
                    Output::Abort(_) | Output::Credit { .. } | Output::Notice(_) => {}
                }
            }
            outputs.clear();
            if self.done.is_empty() && answered == before && answered < count {
                // Nothing is in flight: a stripe waits for more of its stream, until a known time.
                let Some(wake) = self.engine.next_wake() else {
                    let still = format!("the engine stands still after {answered} of {sent}");
                    return Err(BenchError::failed(still));
                };
                self.now = self.now.max(wake.0);
                self.engine.handle(Time(self.now), Input::Wake);
            }
        }
        Ok(())
    }

    fn frames_each(&self) -> u32 {
        u32::try_from(self.bytes / BLOCK).expect("requests are small")
    }

    fn request(&mut self, asked: RequestKind, frames: Run) -> ClientRequest {
        let places = self.size / self.bytes;
        let place = match asked {
            RequestKind::SequentialWrite => self.tag % places,
            RequestKind::RandomRead | RequestKind::RandomWrite => self.rng.below(places),
        };
        self.tag += 1;
        // The reply to a read names its frames, which are free from then on; the frames of a write
        // are freed by `Release`.
        let (op, tag) = match asked {
            RequestKind::RandomRead => (RequestOp::Read, u64::from(frames.first.0)),
            RequestKind::RandomWrite | RequestKind::SequentialWrite => {
                (RequestOp::Write, self.tag + u64::from(u32::MAX))
            }
        };
        ClientRequest {
            client: ClientId(1),
            tag: Tag(tag),
            volume: VolumeId(0),
            op,
            range: ByteRange::new(place * self.bytes, self.bytes),
            frames,
            flags: Flags { sync: true, ..Flags::NONE },
            attr: Attr::default(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Member requests and sectors so far: reads, sectors read, writes, sectors written.
    fn counted(alone: &Alone) -> [u64; 4] {
        let snapshot = alone.engine.snapshot();
        let members = &snapshot.volumes[0].members;
        let mut sum = [0; 4];
        for member in members {
            let of = [member.reads, member.sectors_read, member.writes, member.sectors_written];
            sum.iter_mut().zip(of).for_each(|(sum, of)| *sum += of);
        }
        sum
    }

    #[test]
    fn reads_read_once_and_full_stripes_write_data_and_parity_once() {
        let mut alone = Alone::new(Knobs::md(), 4096, 64).unwrap();
        alone.carry_out(RequestKind::RandomRead, 500).unwrap();
        let [reads, sectors, ..] = counted(&alone);
        assert_eq!((reads, sectors), (500, 4000));
        let mut alone = Alone::new(Knobs::md(), FULL_STRIPE, 4).unwrap();
        alone.carry_out(RequestKind::SequentialWrite, 50).unwrap();
        let [reads, _, _, written] = counted(&alone);
        assert_eq!(reads, 0);
        // Superblocks are written as well: the array becomes dirty.
        let data = 50 * FULL_STRIPE / 512 * 4 / 3;
        assert!((data..data + 100).contains(&written), "{written} of {data}");
    }

    #[test]
    fn what_is_in_the_cache_asks_nothing_of_members() {
        let mut alone = Alone::cached(Bytes::mib(64), Bytes::mib(8), 64).unwrap();
        alone.carry_out(RequestKind::SequentialWrite, 2048).unwrap();
        alone.carry_out(RequestKind::RandomWrite, 500).unwrap();
        alone.carry_out(RequestKind::RandomRead, 500).unwrap();
        assert_eq!(counted(&alone), [0; 4]);
        let cache = alone.engine.snapshot().write_back.unwrap();
        assert_eq!((cache.dirty_pages, cache.writeback_pages), (2048, 0));
        // Counterpart: writes to an area larger than the cache reach the members.
        let mut alone = Alone::cached(Bytes::mib(1), Bytes::mib(8), 64).unwrap();
        alone.carry_out(RequestKind::RandomWrite, 500).unwrap();
        let [_, _, _, written] = counted(&alone);
        assert!(written > 2 * 8 * 200, "{written} sectors");
    }

    #[test]
    fn random_writes_read_and_write_a_stripe_each() {
        let mut alone = Alone::new(Knobs::md(), 4096, 64).unwrap();
        alone.carry_out(RequestKind::RandomWrite, 500).unwrap();
        let [reads, _, writes, _] = counted(&alone);
        assert!((900..=1000).contains(&reads), "{reads}");
        assert!((990..1020).contains(&writes), "{writes}");
    }
}
