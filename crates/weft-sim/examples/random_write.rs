//! How many instructions does the engine spend on a 4 KiB random write?
//!
//! Members answer in the next turn, memory does not exist. Run under callgrind with two counts and
//! take the difference:
//! `valgrind --tool=callgrind target/release/examples/random_write 256 20000`
use weft_engine::assemble::{Candidate, Options, assemble};
use weft_engine::knobs::Knobs;
use weft_engine::{
    Attr, Config, Engine, Flags, Input, MemberInfo, Output, Request, RequestOp, Run, Tag, Value,
};
use weft_ondisk::{Level, NewArray, NewMember};
use weft_units::{ByteRange, ClientId, MemberIndex, Sectors, Time, VolumeId};

fn main() {
    let mut arguments = std::env::args().skip(1).map(|text| text.parse::<u64>().expect("a number"));
    let rows = u32::try_from(arguments.next().unwrap_or(256)).expect("a cache size");
    let writes = arguments.next().unwrap_or(10_000);
    let size = Sectors(1 << 24);
    let new = |byte| NewMember { size, device_uuid: [byte; 16].into() };
    let mut array = NewArray::new(Level::Raid5, (1..=4).map(new).collect());
    array.chunk = Some(Sectors(128));
    (array.set_uuid, array.assume_clean) = ([9; 16].into(), true);
    let candidates: Vec<_> = (0..)
        .zip(array.plan().expect("a plain array"))
        .map(|(n, superblock)| {
            let (index, label) = (MemberIndex(n), format!("disk{n}"));
            let member = MemberInfo { index, label, size, logical_block: 512 };
            Candidate::with_superblock(member, superblock)
        })
        .collect();
    let assembly = assemble(&candidates, &Options::default()).expect("a whole set");
    let blocks = assembly.geometry.array_size().0 / 8;
    let knobs = Knobs { stripe_cache_size: rows, ..Knobs::md() };
    let config = Config::for_volume(assembly, knobs);
    let first = config.client_frames_first();
    let mut engine = Engine::new(config, Time(0)).expect("a plain configuration");
    let mut free: Vec<u32> = (first..first + 64).collect();
    let (mut sent, mut answered, mut random) = (0, 0, 1u64);
    let mut now = 0;
    let mut done = Vec::new();
    while answered < writes {
        now += 1000;
        for token in done.drain(..) {
            engine.handle(Time(now), Input::Done { token, result: Ok(Value::Nothing) });
        }
        while sent < writes {
            let Some(frame) = free.pop() else { break };
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            let block = (random >> 20) % blocks;
            engine.handle(
                Time(now),
                Input::Client(Request {
                    client: ClientId(1),
                    tag: Tag(sent),
                    volume: VolumeId(0),
                    op: RequestOp::Write,
                    range: ByteRange::new(block * 4096, 4096),
                    frames: Run::new(frame, 1),
                    flags: Flags { sync: true, ..Flags::default() },
                    attr: Attr::default(),
                }),
            );
            sent += 1;
        }
        while engine.turn(Time(now)).more {}
        while let Some(output) = engine.poll() {
            match output {
                Output::Submit { token, .. } => done.push(token),
                Output::Compute { token, ops } => {
                    done.push(token);
                    engine.recycle(ops);
                }
                Output::Reply { result, .. } => {
                    result.expect("a write is done");
                    answered += 1;
                }
                Output::Release(run) => free.push(run.first.0),
                Output::Abort(_) | Output::Credit { .. } | Output::Notice(_) => {}
            }
        }
    }
    let volume = &engine.snapshot().volumes[0];
    let reads: u64 = volume.members.iter().map(|member| member.reads).sum();
    println!("{answered} writes, {reads} member reads");
}
