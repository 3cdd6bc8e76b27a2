//! Faults of rings reach the engine as correct data or as one fault (F21, F26).
//!
//! One list of cases runs on io_uring and on threads. A script makes operations short, late,
//! interrupted or failing. After a fixed workload every request has had exactly one answer, and the
//! bytes agree.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use rustix::io::Errno;
use weft_engine::{Fault, Frame, MemberOp, Segment, Segments, Token, Value};
use weft_runtime::Backend;
use weft_runtime::buffers::Slab;
use weft_runtime::devices::{Access, MemberSpec, OpenOptions};
use weft_runtime::figures::Answered;
use weft_runtime::io::auto::AutoRing;
use weft_runtime::io::faulty::{FaultyRing, Injection};
use weft_runtime::io::ring::{Action, FileKind, Ring, RingOp};
use weft_runtime::io::threads::ThreadRing;
use weft_runtime::io::uring::UringRing;
use weft_runtime::member_io::MemberIo;
use weft_runtime::overlay::MemberRing;
use weft_testing::{skip, uring_is_refused_on_purpose};
use weft_units::{Bytes, MemberIndex, Sectors, Time};

type Rings = FaultyRing<Box<dyn MemberRing>>;
type Answers = BTreeMap<Token, Result<Value, Fault>>;
type MakeRing = fn(&Slab) -> Box<dyn MemberRing>;
type Verdict = fn(u64, &RingOp) -> Option<Injection>;

const MEMBER: MemberIndex = MemberIndex(0);
const WRITES: u32 = 64;

/// A member of memory behind a ring that injects the faults of a script.
struct Bench {
    slab: Slab,
    io: MemberIo<Rings>,
    answers: Answers,
    next: u64,
}

impl Bench {
    fn new(ring: impl FnOnce(&Slab) -> Box<dyn MemberRing>, script: Verdict, member: &str) -> Self {
        let slab = Slab::new(2048).unwrap();
        let mut io = MemberIo::new(FaultyRing::new(ring(&slab), Box::new(script)));
        let spec = MemberSpec::parse(member).unwrap();
        io.add(OpenOptions::new(Access::ReadWrite).open(&spec, MEMBER, []).unwrap()).unwrap();
        Self { slab, io, answers: Answers::new(), next: 0 }
    }

    fn start(&mut self, op: MemberOp) -> Token {
        let token = Token(self.next);
        self.next += 1;
        self.io.start(&mut self.slab, token, MEMBER, op);
        token
    }

    /// Runs until every request is answered.
    fn finish(&mut self) {
        let deadline = Instant::now() + Duration::from_secs(20);
        while self.io.outstanding() > 0 || self.io.busy() {
            assert!(Instant::now() < deadline, "{} requests hang", self.io.outstanding());
            self.io.submit().unwrap();
            self.io.reap();
            let mut none = true;
            while let Some((token, result)) = self.io.answer() {
                assert!(self.answers.insert(token, result).is_none(), "{token:?} answered twice");
                none = false;
            }
            if none {
                std::thread::sleep(Duration::from_micros(50));
            }
        }
        assert_eq!(self.answers.len() as u64, self.next);
        assert_eq!(self.slab.leased_sectors(), 0);
    }

    fn fault(&self, token: Token) -> Option<Fault> {
        self.answers[&token].as_ref().err().copied()
    }

    /// Writes, then reads to other memory. Returns the tokens of the writes and of the reads.
    fn round_trip(&mut self) -> (Vec<Token>, Vec<Token>) {
        for index in 0..WRITES {
            for part in [whole(index), second(index)] {
                self.slab.bytes_mut(part).iter_mut().zip(0u32..).for_each(|(byte, at)| {
                    *byte = u8::try_from((index * 31 + at * 7 + at / 256) % 251).unwrap();
                });
            }
        }
        let writes = (0..WRITES).map(|index| {
            let from =
                Segments::from_slice(&[whole(index), second(index)][..1 + (index % 2) as usize]);
            self.start(MemberOp::Write { at: place(index), from, fua: index % 5 == 0 })
        });
        let writes = writes.collect();
        self.finish();
        let reads = (0..WRITES).map(|index| {
            let into = [moved(whole(index)), moved(second(index))];
            let into = Segments::from_slice(&into[..1 + (index % 2) as usize]);
            self.start(MemberOp::Read { at: place(index), into })
        });
        let reads = reads.collect();
        self.finish();
        (writes, reads)
    }

    fn assert_equal(&self) {
        for index in 0..WRITES {
            for part in &[whole(index), second(index)][..1 + (index % 2) as usize] {
                assert_eq!(self.slab.bytes(*part), self.slab.bytes(moved(*part)), "{index}");
            }
        }
    }
}

/// First part of a write, up to 8 KiB; each write has 16 KiB of frames and may have a second part
/// of 512 bytes to 4 KiB.
fn whole(index: u32) -> Segment {
    Segment { frame: Frame(1 + index * 4), offset: 0, len: 8192 - index % 4 * 512 }
}

/// Last frame of the first write, which uses three.
const UNUSED: Segment = Segment { frame: Frame(4), offset: 0, len: 4096 };

fn second(index: u32) -> Segment {
    Segment { frame: Frame(1 + index * 4 + 2), offset: 512, len: 512 + index % 7 * 512 }
}

fn moved(part: Segment) -> Segment {
    Segment { frame: Frame(part.frame.0 + WRITES * 4), ..part }
}

fn place(index: u32) -> Sectors {
    Sectors(u64::from(index) * 32)
}

fn rings() -> Vec<(&'static str, MakeRing)> {
    let threads: MakeRing = |_| Box::new(ThreadRing::new(3, 16).unwrap());
    let mut rings = vec![("threads", threads)];
    if has_uring() {
        rings.push(("io_uring", |slab| Box::new(UringRing::new(slab, 16).unwrap())));
        rings.push(("io_uring with registered memory", |slab| {
            let mut ring = UringRing::new(slab, 16).unwrap();
            ring.set_kind(MEMBER.0, FileKind::Device);
            Box::new(ring)
        }));
        rings.push(("auto", |slab| {
            Box::new(AutoRing::new(Box::new(UringRing::new(slab, 16).unwrap()), 3).unwrap())
        }));
    }
    rings.push(("auto over threads", |_| {
        Box::new(AutoRing::new(Box::new(ThreadRing::new(3, 16).unwrap()), 0).unwrap())
    }));
    rings
}

/// Whether the tests include io_uring. They leave it out if it is refused: silently with
/// `WEFT_NO_URING=1`, which says that the refusal is intended, otherwise with a skip.
fn has_uring() -> bool {
    let opened = UringRing::new(&Slab::new(2).unwrap(), 4);
    match (opened, uring_is_refused_on_purpose()) {
        (Ok(_), false) => true,
        (Ok(_), true) => panic!("WEFT_NO_URING=1, and io_uring works: unset it"),
        (Err(_), true) => false,
        (Err(error), false) => {
            skip(&format!("io_uring is refused ({error}); only threads are tested"));
            false
        }
    }
}

fn is_durable(op: &RingOp) -> bool {
    matches!(op.action, Action::Write { durable: true, .. })
}

#[test]
fn passing_troubles_leave_the_data_right() {
    let cases: [(&str, Verdict); 10] = [
        ("none", |_, _| None),
        ("short by half a sector", |n, _| (n % 3 == 0).then_some(Injection::Short(256))),
        ("short by a byte", |n, op| {
            (n % 2 == 0).then_some(Injection::Short(op.limit.saturating_sub(1).max(1)))
        }),
        ("one byte at first", |n, op| (op.skip == 0 && n % 2 == 1).then_some(Injection::Short(1))),
        ("EINTR", |n, _| (n % 2 == 0).then_some(Injection::Error(Errno::INTR))),
        ("EAGAIN", |n, _| (n % 3 != 0).then_some(Injection::Error(Errno::AGAIN))),
        ("ECANCELED unasked", |n, _| (n % 4 == 0).then_some(Injection::Error(Errno::CANCELED))),
        ("late and in another order", |n, _| (n % 3 == 0).then_some(Injection::Late(5))),
        ("no RWF_DSYNC", |_, op| is_durable(op).then_some(Injection::Error(Errno::OPNOTSUPP))),
        ("everything", |n, _| match n % 11 {
            0 => Some(Injection::Short(1000)),
            3 => Some(Injection::Error(Errno::INTR)),
            5 => Some(Injection::Late(2)),
            7 => Some(Injection::Error(Errno::AGAIN)),
            9 => Some(Injection::Short(1)),
            _ => None,
        }),
    ];
    for (ring, make) in rings() {
        for (case, script) in cases {
            eprintln!("{ring}: {case}");
            let mut bench = Bench::new(make, script, "ram:2M");
            bench.round_trip();
            let metadata = vec![0x5a; 4096].into_boxed_slice();
            let at = Sectors(4000);
            let write = bench.start(MemberOp::WriteMetadata { at, bytes: metadata.clone() });
            let flush = bench.start(MemberOp::Flush);
            bench.finish();
            let read = bench.start(MemberOp::Read { at, into: Segments::from_slice(&[UNUSED]) });
            bench.finish();
            for (token, result) in &bench.answers {
                assert!(result.is_ok(), "{ring}: {case}: {token:?}: {result:?}");
            }
            assert_eq!(bench.answers[&read], Ok(Value::Nothing));
            assert_eq!(bench.slab.bytes(UNUSED), &metadata[..]);
            assert_eq!(bench.answers[&write], Ok(Value::Nothing));
            assert_eq!(bench.answers[&flush], Ok(Value::Nothing));
            bench.assert_equal();
            assert!(bench.io.ring().most_outstanding() <= bench.io.ring().capacity());
        }
    }
}

#[test]
fn a_fault_reaches_the_one_request_it_belongs_to() {
    let cases: [(&str, Verdict, Fault); 5] = [
        ("EIO", |n, _| (n == 9).then_some(Injection::Error(Errno::IO)), Fault::Io),
        ("ENOSPC", |n, _| (n == 9).then_some(Injection::Error(Errno::NOSPC)), Fault::NoSpace),
        ("ENODEV", |n, _| (n == 9).then_some(Injection::Error(Errno::NODEV)), Fault::Gone),
        ("EILSEQ", |n, _| (n == 9).then_some(Injection::Error(Errno::ILSEQ)), Fault::Io),
        (
            "EAGAIN for ever",
            |_, op| {
                (op.id == 9 && op.offset == 9 * 16_384).then_some(Injection::Error(Errno::AGAIN))
            },
            Fault::Io,
        ),
    ];
    for (ring, make) in rings() {
        for (case, script, fault) in cases {
            eprintln!("{ring}: {case}");
            let mut bench = Bench::new(make, script, "ram:2M");
            let (writes, reads) = bench.round_trip();
            for (index, token) in writes.iter().enumerate() {
                let expected = (index == 9).then_some(fault);
                assert_eq!(bench.fault(*token), expected, "{ring}: {case}: write {index}");
            }
            let failed_reads = reads.iter().filter(|token| bench.fault(**token).is_some()).count();
            assert!(failed_reads <= 1, "{ring}: {case}");
        }
    }
}

#[test]
fn answers_are_counted_by_kind_with_their_latencies_and_errors() {
    for (ring, make) in rings() {
        let script: Verdict = |n, _| (n == 0).then_some(Injection::Error(Errno::NOSPC));
        let mut bench = Bench::new(make, script, "ram:2M");
        for index in 0..4 {
            bench.io.set_now(Time(1_000_000 * u64::from(index)));
            let from = Segments::from_slice(&[whole(index)]);
            bench.start(MemberOp::Write { at: place(index), from, fua: false });
        }
        bench.start(MemberOp::Flush);
        bench.io.set_now(Time(5_000_000));
        bench.finish();
        let [reads, writes, flushes, discards] = bench.io.answered(MEMBER) else { panic!() };
        let counts = |it: &Answered| (it.micros.len(), it.errors, it.sum.0 / 1_000_000);
        assert_eq!(counts(writes), (4, 1, 5 + 4 + 3 + 2), "{ring}");
        assert_eq!(counts(flushes), (1, 0, 2), "{ring}");
        assert_eq!((counts(reads), counts(discards)), ((0, 0, 0), (0, 0, 0)), "{ring}");
        let longest = writes.micros.max();
        assert!((5000..5500).contains(&longest), "{ring}: {longest} µs");
        assert!(bench.io.answered(MemberIndex(1)).is_empty(), "{ring}: there is no other");
    }
}

#[test]
fn a_failed_flush_never_becomes_a_success() {
    let flush_fails: Verdict = |n, op| {
        let first = matches!(op.action, Action::Flush) && n < 3;
        first.then_some(Injection::Error(Errno::IO))
    };
    let durable_write_fails: Verdict =
        |n, op| (is_durable(op) && n < 3).then_some(Injection::Error(Errno::IO));
    for (ring, make) in rings() {
        for script in [flush_fails, durable_write_fails] {
            let mut bench = Bench::new(make, script, "ram:2M");
            let from = Segments::from_slice(&[whole(0)]);
            let plain =
                bench.start(MemberOp::Write { at: place(0), from: from.clone(), fua: false });
            bench.finish();
            let fua = MemberOp::Write { at: place(1), from: from.clone(), fua: true };
            let first = [bench.start(fua.clone()), bench.start(MemberOp::Flush)];
            bench.finish();
            let metadata = vec![1; 512].into_boxed_slice();
            let later = [
                bench.start(MemberOp::Flush),
                bench.start(fua),
                bench.start(MemberOp::WriteMetadata { at: Sectors(0), bytes: metadata }),
            ];
            bench.finish();
            assert_eq!(bench.fault(plain), None);
            assert!(first.iter().any(|token| bench.fault(*token) == Some(Fault::Io)), "{ring}");
            for token in later {
                assert_eq!(bench.fault(token), Some(Fault::Io), "{ring}");
            }
        }
    }
}

#[test]
fn metadata_is_written_again_after_a_failed_transfer_and_not_after_a_failed_flush() {
    // Index of the failing operation: 0 the flush before, 1 the transfer, 2 the flush after.
    for (failing, again) in [(0, false), (1, true), (2, false)] {
        for (ring, make) in rings() {
            let script: Verdict = match failing {
                0 => |n, _| (n == 0).then_some(Injection::Error(Errno::IO)),
                1 => |n, _| (n == 1).then_some(Injection::Error(Errno::IO)),
                _ => |n, _| (n == 2).then_some(Injection::Error(Errno::IO)),
            };
            let mut bench = Bench::new(make, script, "ram:2M");
            let bytes = vec![1; 512].into_boxed_slice();
            let op = MemberOp::WriteMetadata { at: Sectors(8), bytes };
            let faults = [op.clone(), op].map(|op| {
                let token = bench.start(op);
                bench.finish();
                bench.fault(token)
            });
            let second = (!again).then_some(Fault::Io);
            assert_eq!(faults, [Some(Fault::Io), second], "{ring}: operation {failing}");
        }
    }
}

#[test]
fn flushes_of_one_member_run_one_at_a_time_and_all_end() {
    for (_, make) in rings() {
        let mut bench = Bench::new(make, |_, _| None, "ram:2M");
        let flushes: Vec<_> = (0..100).map(|_| bench.start(MemberOp::Flush)).collect();
        bench.finish();
        assert!(flushes.iter().all(|token| bench.fault(*token).is_none()));
        assert_eq!(bench.io.ring().most_outstanding(), 1);
    }
}

#[test]
fn more_requests_than_the_ring_holds_all_end() {
    if !has_uring() {
        return;
    }
    for capacity in [1, 2, 4] {
        let make = move |slab: &Slab| -> Box<dyn MemberRing> {
            Box::new(UringRing::new(slab, capacity).unwrap())
        };
        let mut bench =
            Bench::new(make, |n, _| (n % 7 == 0).then_some(Injection::Late(3)), "ram:2M");
        for _ in 0..8 {
            bench.round_trip();
        }
        bench.assert_equal();
        assert_eq!(bench.io.ring().most_outstanding(), usize::from(capacity));
    }
}

#[test]
fn a_member_that_does_not_answer_leaves_the_ring_to_another() {
    const CAPACITY: u16 = 64;
    const OTHER: MemberIndex = MemberIndex(1);
    let threads: MakeRing = |_| Box::new(ThreadRing::new(3, usize::from(CAPACITY)).unwrap());
    let mut rings = vec![("threads", threads)];
    if has_uring() {
        rings.push(("io_uring", |slab| Box::new(UringRing::new(slab, CAPACITY).unwrap())));
        rings.push(("auto", |slab| {
            Box::new(AutoRing::new(Box::new(UringRing::new(slab, CAPACITY).unwrap()), 3).unwrap())
        }));
    }
    let is_stuck: Verdict = |_, op| (op.file == MEMBER.0).then_some(Injection::Late(u32::MAX));
    // Operations that a stuck member has in the ring: 24, its share, beside another member; 64, all
    // of the ring, if it is the only member.
    for ((ring, make), (is_alone, most)) in
        rings.into_iter().flat_map(|ring| [(ring, (false, 24)), (ring, (true, 64))])
    {
        let mut bench = Bench::new(make, is_stuck, "ram:2M");
        let write = |index: u32| {
            let (at, from) =
                (place(index % WRITES), Segments::from_slice(&[whole(index % WRITES)]));
            MemberOp::Write { at, from, fua: false }
        };
        if !is_alone {
            let spec = MemberSpec::parse("ram:2M").unwrap();
            let other = OpenOptions::new(Access::ReadWrite).open(&spec, OTHER, []).unwrap();
            bench.io.add(other).unwrap();
        }
        // More writes than the ring holds, then as many to the other member.
        let stuck: Vec<_> = (0..100).map(|index| bench.start(write(index))).collect();
        let good: Vec<_> = (100..200)
            .filter(|_| !is_alone)
            .map(|index| {
                let token = Token(u64::from(index));
                bench.io.start(&mut bench.slab, token, OTHER, write(index));
                token
            })
            .collect();
        let mut answers = Answers::new();
        let deadline = Instant::now() + Duration::from_secs(20);
        while answers.len() < good.len() || bench.io.ring().outstanding() != most {
            assert!(Instant::now() < deadline, "{ring}: {} answers", answers.len());
            bench.io.submit().unwrap();
            bench.io.reap();
            answers.extend(std::iter::from_fn(|| bench.io.answer()));
        }
        assert!(answers.keys().eq(&good) && answers.values().all(Result::is_ok), "{answers:?}");
        // After an abort, requests that wait are answered at once; those in the ring keep their
        // memory.
        for token in &stuck {
            bench.io.abort(*token);
        }
        answers = std::iter::from_fn(|| bench.io.answer()).collect();
        assert!(answers.keys().eq(&stuck[most..]), "{ring}: {:?}", answers.keys());
        assert!(answers.values().all(|result| *result == Err(Fault::Aborted)), "{answers:?}");
        assert_eq!((bench.io.outstanding(), bench.io.ring().outstanding()), (most, most));
        assert!(bench.slab.leased_sectors() > 0);
        // A removed member answers the requests that were not in the ring.
        (0..3).for_each(|index| _ = bench.start(write(index)));
        bench.io.submit().unwrap();
        bench.io.remove(MEMBER);
        let waiting = if is_alone { 0 } else { 3 };
        assert_eq!(std::iter::from_fn(|| bench.io.answer()).count(), waiting);
    }
}

#[test]
fn aborted_requests_are_answered_once_as_well() {
    for (ring, make) in rings() {
        let mut bench =
            Bench::new(make, |n, _| (n % 2 == 0).then_some(Injection::Late(4)), "ram:2M");
        for round in 0..20 {
            let tokens: Vec<_> = (0..WRITES)
                .map(|index| {
                    let from = Segments::from_slice(&[whole(index)]);
                    bench.start(MemberOp::Write { at: place(index), from, fua: false })
                })
                .collect();
            if round % 2 == 0 {
                bench.io.submit().unwrap();
            }
            for token in tokens.iter().step_by(3) {
                bench.io.abort(*token);
            }
            bench.finish();
            for token in tokens {
                let fault = bench.fault(token);
                assert!(matches!(fault, None | Some(Fault::Aborted)), "{ring}: {fault:?}");
            }
        }
    }
}

/// The other members of an array may have discarded their part, and parity relies on zeros.
#[test]
fn zeros_are_stored_where_a_discard_is_refused_or_fails() {
    for (name, ring) in rings() {
        for script in [
            (|_, _| None) as Verdict,
            |_, op| {
                matches!(op.action, Action::Discard { .. }).then_some(Injection::Error(Errno::IO))
            },
            |_, op| {
                matches!(op.action, Action::Discard { .. })
                    .then_some(Injection::Error(Errno::OPNOTSUPP))
            },
            |number, op| match op.action {
                Action::Discard { .. } => Some(Injection::Error(Errno::OPNOTSUPP)),
                Action::Write { .. } => {
                    Some(Injection::Short(if number % 2 == 0 { 4096 } else { 368_640 }))
                }
                _ => None,
            },
        ] {
            let mut bench = Bench::new(ring, script, "ram:8M");
            let member = bench.io.members().next().unwrap();
            rustix::io::pwrite(member, &vec![7; 8 << 20], 0).unwrap();
            let (at, len) = (Bytes::mib(1).sectors_floor(), Sectors(5 * 2048 + 1));
            let plain = bench.start(MemberOp::Discard { at, len, fua: false });
            let durable = bench.start(MemberOp::Discard { at, len, fua: true });
            bench.finish();
            assert_eq!((bench.fault(plain), bench.fault(durable)), (None, None), "{name}");
            let mut bytes = vec![1; 8 << 20];
            rustix::io::pread(bench.io.members().next().unwrap(), &mut bytes, 0).unwrap();
            let (first, end) = (1 << 20, (6 << 20) + 512);
            assert!(bytes[..first].iter().chain(&bytes[end..]).all(|byte| *byte == 7), "{name}");
            assert!(bytes[first..end].iter().all(|byte| *byte == 0), "{name}");
        }
        // An error that says there is no space is final.
        let full: Verdict = |_, op| match op.action {
            Action::Discard { .. } => Some(Injection::Error(Errno::OPNOTSUPP)),
            _ => Some(Injection::Error(Errno::NOSPC)),
        };
        let mut bench = Bench::new(ring, full, "ram:8M");
        let token = bench.start(MemberOp::Discard { at: Sectors(0), len: Sectors(8), fua: false });
        bench.finish();
        assert_eq!(bench.fault(token), Some(Fault::NoSpace), "{name}");
        // If the member refuses the zeros as well, or is gone, the error is final too.
        for (script, fault) in [
            ((|_, _| Some(Injection::Error(Errno::IO))) as Verdict, Fault::Io),
            (|_, _| Some(Injection::Error(Errno::NODEV)), Fault::Gone),
        ] {
            let mut bench = Bench::new(ring, script, "ram:8M");
            let len = Sectors(8);
            let token = bench.start(MemberOp::Discard { at: Sectors(0), len, fua: false });
            bench.finish();
            assert_eq!(bench.fault(token), Some(fault), "{name}");
        }
    }
}

#[test]
fn a_ring_that_is_dropped_lets_go_of_its_memory() {
    for (_, make) in rings() {
        let mut bench = Bench::new(make, |_, _| None, "ram:2M");
        for index in 0..WRITES {
            let into = Segments::from_slice(&[whole(index)]);
            bench.start(MemberOp::Read { at: place(index), into });
        }
        bench.io.submit().unwrap();
        let Bench { slab, io, .. } = bench;
        drop(io);
        assert_eq!(slab.leased_sectors(), 0);
    }
}

#[test]
fn requests_of_a_member_that_is_removed_end_as_gone() {
    for (ring, make) in rings() {
        let mut bench = Bench::new(make, |_, _| None, "ram:2M");
        let flushes: Vec<_> = (0..5).map(|_| bench.start(MemberOp::Flush)).collect();
        bench.io.submit().unwrap();
        bench.io.remove(MEMBER);
        let after = bench.start(MemberOp::Flush);
        bench.finish();
        assert_eq!(bench.fault(after), Some(Fault::Gone));
        for token in flushes {
            let fault = bench.fault(token);
            assert!(matches!(fault, None | Some(Fault::Gone)), "{ring}: {fault:?}");
        }
    }
}

#[test]
fn direct_io_goes_on_at_a_block() {
    let dir = tempfile::tempdir_in("/var/tmp").unwrap();
    let path = dir.path().join("member");
    std::fs::File::create(&path).unwrap().set_len(2 << 20).unwrap();
    for (_, make) in rings() {
        let script: Verdict = |n, _| (n % 2 == 0).then_some(Injection::Short(512));
        let mut bench = Bench::new(make, script, path.to_str().unwrap());
        bench.round_trip();
        assert!(bench.answers.values().all(Result::is_ok));
        bench.assert_equal();
    }
}

#[test]
fn a_backend_can_be_forced() {
    let slab = Slab::new(2).unwrap();
    assert!(Backend::Threads.open(&slab).unwrap().describe().starts_with("threads"));
    let auto = Backend::Auto.open(&slab).unwrap().describe();
    assert!(auto.starts_with(if has_uring() { "io_uring" } else { "threads" }), "{auto}");
}

/// After an open file was cut short, no answer is a success, and no read returns zeros.
#[test]
fn a_file_that_was_cut_short_is_gone_whatever_comes_next() {
    let dir = tempfile::tempdir_in("/var/tmp").unwrap();
    let (len, cut) = (2 << 20, 600 << 10);
    // First operation after the cut: a read of missing bytes, a read across the end, a write behind
    // the end (which makes the file longer), that write together with reads, a write at the very
    // end, a flush, a superblock at the very end, a trim.
    let read =
        |index| MemberOp::Read { at: place(index), into: Segments::from_slice(&[whole(index)]) };
    let write = |at, fua| MemberOp::Write { at, from: Segments::from_slice(&[whole(0)]), fua };
    let metadata = || vec![7; 4096].into_boxed_slice();
    let last = Bytes(len).sectors_floor();
    let orders: Vec<(&str, Vec<MemberOp>)> = vec![
        ("read", vec![read(60)]),
        (
            "read across",
            vec![MemberOp::Read {
                at: Bytes(cut - 2048).sectors_floor(),
                into: Segments::from_slice(&[whole(0)]),
            }],
        ),
        ("write", vec![write(place(60), false)]),
        ("durable write", vec![write(place(60), true)]),
        ("write beside reads", vec![write(place(62), false), read(50), read(55), read(2)]),
        ("write at the end", vec![write(last - Sectors(16), false), read(50)]),
        ("write before the new end", vec![write(place(2), false)]),
        ("flush", vec![MemberOp::Flush]),
        ("superblock", vec![MemberOp::WriteMetadata { at: Sectors(0), bytes: metadata() }]),
        (
            "superblock at the end",
            vec![MemberOp::WriteMetadata { at: last - Sectors(8), bytes: metadata() }],
        ),
        ("trim", vec![MemberOp::Discard { at: place(60), len: Sectors(64), fua: false }]),
    ];
    for (ring, make) in rings() {
        for buffered in [false, true] {
            for (case, ops) in &orders {
                let path = dir.path().join("member");
                let file = std::fs::File::create(&path).unwrap();
                file.set_len(len).unwrap();
                let mut bench = Bench::new(make, |_, _| None, "ram:64K");
                let options = OpenOptions { buffered, ..OpenOptions::new(Access::ReadWrite) };
                let spec = MemberSpec::path(&path);
                bench.io = MemberIo::new(FaultyRing::new(make(&bench.slab), Box::new(|_, _| None)));
                bench.io.add(options.open(&spec, MEMBER, []).unwrap()).unwrap();
                let (writes, reads) = bench.round_trip();
                let well = writes.iter().chain(&reads).all(|token| bench.fault(*token).is_none());
                assert!(well, "{ring}: {case}");
                file.set_len(cut).unwrap();
                let first: Vec<_> = ops.iter().map(|op| bench.start(op.clone())).collect();
                bench.finish();
                for token in first {
                    let before_the_end = *case == "write beside reads" && token.0 % 4 == 3;
                    let fault = bench.fault(token);
                    assert!(
                        before_the_end || fault == Some(Fault::Gone),
                        "{ring}: {case}: {fault:?}"
                    );
                }
                // The member stays gone, although the file has its old length again.
                file.set_len(len).unwrap();
                let later = [read(1), read(50), write(place(60), false), MemberOp::Flush];
                let later = later.map(|op| bench.start(op));
                bench.finish();
                for token in later {
                    assert_eq!(bench.fault(token), Some(Fault::Gone), "{ring}: {case}: later");
                }
            }
        }
    }
}
