//! Stop beside a member that does not answer: it ends, and names the member.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use rustix::event::epoll::EventFlags;
use weft_engine::{
    Attr, Config, Engine, Frame, Input, MemberOp, Output, Segment, Segments, Snapshot, Token, Turn,
};
use weft_runtime::Backend;
use weft_runtime::buffers::Slab;
use weft_runtime::devices::{Access, MemberSpec, OpenMember, OpenOptions};
use weft_runtime::io::faulty::{FaultyRing, Injection};
use weft_runtime::serve::driver::{Driver, DriverParts, Event};
use weft_runtime::serve::poison::Core;
use weft_runtime::serve::pool::Pool;
use weft_runtime::serve::reactor::{Context, Ending, Exit, Port, Reactor};
use weft_units::{MemberIndex, Sectors, Time};

/// An engine with a request outstanding on a second member that the engine does not wait for, as on
/// one that has failed.
struct GivenUp {
    engine: Engine,
    rest: Option<Output>,
}

impl Core for GivenUp {
    fn handle(&mut self, now: Time, input: Input) {
        self.engine.handle(now, input);
    }

    fn run(&mut self, now: Time, turns_max: u32, outputs: &mut VecDeque<Output>) -> Turn {
        outputs.extend(self.rest.take());
        self.engine.run(now, turns_max, outputs)
    }

    fn next_wake(&self) -> Option<Time> {
        self.engine.next_wake()
    }

    fn snapshot(&self) -> Snapshot {
        self.engine.snapshot()
    }
}

/// A port that stops the loop in its second pass, and keeps the exit that it is told.
struct Stops(u32, Arc<Mutex<Option<Exit>>>);

impl Port for Stops {
    fn on_start(&mut self, _cx: &mut Context<'_, '_>) -> std::io::Result<()> {
        Ok(())
    }

    fn on_ready(&mut self, _cx: &mut Context<'_, '_>, _key: u32, _ready: EventFlags) {}

    fn on_event(&mut self, _cx: &mut Context<'_, '_>, _event: Event) {}

    fn on_pass(&mut self, cx: &mut Context<'_, '_>) {
        self.0 += 1;
        if self.0 == 2 {
            cx.stop(Ending::Write);
        }
    }

    fn on_poison(&mut self, _cx: &mut Context<'_, '_>) {
        panic!("poisoned");
    }

    fn on_stop(&mut self, _cx: &mut Context<'_, '_>) {}

    fn on_stopped(&mut self, _cx: &mut Context<'_, '_>, exit: &Exit) {
        *self.1.lock().unwrap() = Some(exit.clone());
    }

    fn drained(&self) -> bool {
        true
    }

    fn next_wake(&self) -> Option<Time> {
        (self.0 < 2).then_some(Time(0))
    }
}

fn member(path: &std::path::Path, index: u16) -> OpenMember {
    std::fs::File::create(path).unwrap().set_len(1 << 20).unwrap();
    let spec = MemberSpec::path(path);
    OpenOptions::new(Access::ReadWrite).open(&spec, MemberIndex(index), []).unwrap()
}

/// Runs a loop to its end. Returns the exit that ports are told, the exit of the loop, and for each
/// of the two members whether its lock is free.
fn stopped(hangs: bool) -> (Exit, Exit, [bool; 2]) {
    let dir = tempfile::tempdir().unwrap();
    let paths = ["well", "stuck"].map(|name| dir.path().join(name));
    let members: Vec<_> = paths.iter().zip(0..).map(|(path, index)| member(path, index)).collect();
    let slab = Slab::new(65).unwrap();
    let config = Config::for_single(members[0].info().clone(), false);
    let into = Segments::from_slice(&[Segment { frame: Frame(64), offset: 0, len: 8 }]);
    let submit = Output::Submit {
        token: Token(u64::MAX),
        member: MemberIndex(1),
        op: MemberOp::Read { at: Sectors(0), into },
        attr: Attr::default(),
    };
    let engine = Engine::new(config, Time(0)).unwrap();
    let core = GivenUp { engine, rest: hangs.then_some(submit) };
    let late = |_, op: &weft_runtime::io::ring::RingOp| {
        (op.file == 1).then_some(Injection::Late(u32::MAX))
    };
    let ring = FaultyRing::new(Backend::Threads.open(&slab).unwrap(), Box::new(late));
    let parts = DriverParts {
        core: Box::new(core),
        ring: Box::new(ring),
        slab,
        pool: Pool::new(0, 64).with_floors(32),
        members,
    };
    let (shutdown, _keep) = rustix::pipe::pipe().unwrap();
    let mut reactor = Reactor::new(Driver::new(parts).unwrap(), 1, shutdown);
    let told = Arc::default();
    reactor.add_port(Box::new(Stops(0, Arc::clone(&told))));
    let exit = reactor.run(|| ()).unwrap();
    let free = paths.map(|path| {
        let spec = MemberSpec::path(&path);
        OpenOptions::new(Access::ReadWrite).open(&spec, MemberIndex(0), []).is_ok()
    });
    let told = told.lock().unwrap().clone().unwrap();
    (told, exit, free)
}

#[test]
fn a_stop_names_a_member_that_hangs_and_does_not_wait_for_it() {
    let start = Instant::now();
    let (told, exit, free) = stopped(true);
    let Exit::Hanging(text) = &exit else { panic!("{exit:?}") };
    assert!(text.contains("/stuck") && !text.contains("/well"), "{text}");
    assert_eq!((&told, free), (&exit, [true, false]));
    assert!(start.elapsed() < Duration::from_secs(20));
    // The counterpart without a member that hangs.
    assert_eq!(stopped(false), (Exit::Clean, Exit::Clean, [true, true]));
}
