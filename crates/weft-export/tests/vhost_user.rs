//! vhost-user, by the front end of the crate `vhost` and a driver in this process.
//!
//! The driver writes descriptors and rings into memory that it shares with the server, well formed
//! or not. Whatever is there, the server answers messages, serves the other rings, and serves the
//! next front end.
#![allow(clippy::cast_possible_truncation, reason = "numbers of a test are small")]

mod common;

use std::fs::File;
use std::io::{Read, Write};
use std::os::fd::AsRawFd;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::{Duration, Instant};

use common::{Server, bare, pattern};
use vhost::vhost_user::message::{VhostUserConfigFlags, VhostUserInflight};
use vhost::vhost_user::{Frontend, VhostUserFrontend};
use vhost::{VhostBackend, VhostUserMemoryRegionInfo, VringConfigData};
use vm_memory::{Bytes, FileOffset, GuestAddress, GuestMemoryMmap};
use vmm_sys_util::eventfd::EventFd;
use weft_export::{Listen, NbdListen, TimeLimits};
use weft_runtime::Backend;
use weft_testing::fuzz;
use weft_units::rng::{Rng, mix};

const MEMORY_BYTES: usize = 4 << 20;
const ENTRIES: u16 = 64;
// Places in the memory: the rings, then headers, statuses and data.
const TABLE: u64 = 0;
const AVAILABLE: u64 = 0x1000;
const USED: u64 = 0x800;
const HEADER: u64 = 0x4000;
const STATUS: u64 = 0x5000;
const DATA: u64 = 0x10_0000;
/// Address at which the front end says that it has the memory.
const USER: u64 = 0x7f00_0000_0000;

const NEXT: u16 = 1;
const WRITE: u16 = 2;
const INDIRECT: u16 = 4;

const IN: u32 = 0;
const OUT: u32 = 1;
const FLUSH: u32 = 4;
const GET_ID: u32 = 8;
const DISCARD: u32 = 11;
const WRITE_ZEROES: u32 = 13;

const SIZE: u64 = 16 << 20;

fn server(read_only: bool) -> Server {
    let listen = |path: &Path| {
        vec![
            Listen::Nbd(NbdListen::unix(path.join("nbd"))),
            Listen::VhostUser { path: path.join("disk") },
        ]
    };
    let limits = TimeLimits::default();
    Server::start_on(bare("16M"), Backend::Threads, read_only, limits, listen)
}

fn connect(server: &Server) -> UnixStream {
    UnixStream::connect(server.dir.path().join("disk")).unwrap()
}

/// A machine with one ring.
struct Machine {
    front_end: Frontend,
    /// File that holds the memory.
    file: File,
    memory: GuestMemoryMmap<()>,
    kick: EventFd,
    /// Number of chains that were made available.
    available: u16,
    /// Number of answers that were taken.
    used: u16,
    features: u64,
}

impl Machine {
    fn new(server: &Server) -> Self {
        let flags = rustix::fs::MemfdFlags::CLOEXEC;
        let file = File::from(rustix::fs::memfd_create("machine", flags).unwrap());
        file.set_len(MEMORY_BYTES as u64).unwrap();
        Self::with(server, file)
    }

    fn with(server: &Server, file: File) -> Self {
        let mut front_end = Frontend::from_stream(connect(server), 16);
        front_end.set_owner().unwrap();
        let features = front_end.get_features().unwrap();
        front_end.set_features(features).unwrap();
        let protocol = front_end.get_protocol_features().unwrap();
        front_end.set_protocol_features(protocol).unwrap();
        let region = VhostUserMemoryRegionInfo {
            guest_phys_addr: 0,
            memory_size: MEMORY_BYTES as u64,
            userspace_addr: USER,
            mmap_offset: 0,
            mmap_handle: file.as_raw_fd(),
        };
        front_end.set_mem_table(&[region]).unwrap();
        let place =
            (GuestAddress(0), MEMORY_BYTES, Some(FileOffset::new(file.try_clone().unwrap(), 0)));
        let memory = GuestMemoryMmap::from_ranges_with_files([place]).unwrap();
        let kick = EventFd::new(0).unwrap();
        let mut machine = Self { front_end, file, memory, kick, available: 0, used: 0, features };
        machine.used = machine.get(USED + 2);
        machine.available = machine.get(AVAILABLE + 2);
        machine
    }

    fn get(&self, at: u64) -> u16 {
        self.memory.load(GuestAddress(at), std::sync::atomic::Ordering::Acquire).unwrap()
    }

    fn put(&self, at: u64, value: u16) {
        self.memory.store(value, GuestAddress(at), std::sync::atomic::Ordering::Release).unwrap();
    }

    /// Sets the ring up, and begins to use it.
    fn begin(&mut self) {
        let ring = VringConfigData {
            queue_max_size: ENTRIES,
            queue_size: ENTRIES,
            flags: 0,
            desc_table_addr: USER + TABLE,
            used_ring_addr: USER + USED,
            avail_ring_addr: USER + AVAILABLE,
            log_addr: None,
        };
        self.front_end.set_vring_num(0, ENTRIES).unwrap();
        self.front_end.set_vring_base(0, self.available).unwrap();
        self.front_end.set_vring_addr(0, &ring).unwrap();
        self.front_end.set_vring_kick(0, &self.kick).unwrap();
        self.front_end.set_vring_enable(0, true).unwrap();
    }

    fn describe(&self, index: u16, address: u64, len: u32, flags: u16, next: u16) {
        let mut bytes = [0; 16];
        bytes[..8].copy_from_slice(&address.to_le_bytes());
        bytes[8..12].copy_from_slice(&len.to_le_bytes());
        bytes[12..14].copy_from_slice(&flags.to_le_bytes());
        bytes[14..].copy_from_slice(&next.to_le_bytes());
        self.memory.write_slice(&bytes, GuestAddress(TABLE + u64::from(index) * 16)).unwrap();
    }

    fn header(&self, kind: u32, sector: u64) {
        self.memory.write_obj(u64::from(kind), GuestAddress(HEADER)).unwrap();
        self.memory.write_obj(sector, GuestAddress(HEADER + 8)).unwrap();
    }

    /// Makes the chain at `head` available.
    fn offer(&mut self, head: u16) {
        self.put(AVAILABLE + 4 + u64::from(self.available % ENTRIES) * 2, head);
        self.available = self.available.wrapping_add(1);
        self.put(AVAILABLE + 2, self.available);
        self.kick.write(1).unwrap();
    }

    /// Waits for an answer. Returns the head of its chain, and the length that was written.
    fn answer(&mut self) -> Option<(u32, u32)> {
        let deadline = Instant::now() + Duration::from_secs(10);
        while self.get(USED + 2) == self.used {
            if Instant::now() > deadline {
                return None;
            }
            std::thread::sleep(Duration::from_micros(50));
        }
        let at = USED + 4 + u64::from(self.used % ENTRIES) * 8;
        self.used = self.used.wrapping_add(1);
        let head = self.memory.read_obj(GuestAddress(at)).unwrap();
        Some((head, self.memory.read_obj(GuestAddress(at + 4)).unwrap()))
    }

    /// Asks for `kind` with `len` bytes of data in three segments, at an odd place. Returns the
    /// status and the number of bytes that were written.
    fn ask(&mut self, kind: u32, sector: u64, len: u32) -> (u8, u32) {
        self.header(kind, sector);
        self.memory.write_obj(0xff_u8, GuestAddress(STATUS)).unwrap();
        let data = if matches!(kind, IN | GET_ID) { WRITE } else { 0 };
        self.describe(0, HEADER, 16, NEXT, 1);
        let parts = [len / 3, len / 3, len - len / 3 * 2];
        let (mut index, mut at) = (1, DATA + 3);
        for part in parts.into_iter().filter(|part| *part > 0) {
            self.describe(index, at, part, data | NEXT, index + 1);
            (index, at) = (index + 1, at + u64::from(part));
        }
        self.describe(index, STATUS, 1, WRITE, 0);
        self.offer(0);
        let (head, written) = self.answer().expect("an answer");
        assert_eq!(head, 0);
        (self.memory.read_obj(GuestAddress(STATUS)).unwrap(), written)
    }

    fn write(&mut self, sector: u64, bytes: &[u8]) -> u8 {
        self.memory.write_slice(bytes, GuestAddress(DATA + 3)).unwrap();
        self.ask(OUT, sector, bytes.len() as u32).0
    }

    fn read(&mut self, sector: u64, len: usize) -> Vec<u8> {
        assert_eq!(self.ask(IN, sector, len as u32), (0, len as u32 + 1));
        let mut bytes = vec![0; len];
        self.memory.read_slice(&mut bytes, GuestAddress(DATA + 3)).unwrap();
        bytes
    }

    /// Asks to discard or zero `count` sectors.
    fn clear(&mut self, kind: u32, sector: u64, count: u32, flags: u32) -> u8 {
        self.memory.write_obj(sector, GuestAddress(DATA + 3)).unwrap();
        self.memory.write_obj(count, GuestAddress(DATA + 11)).unwrap();
        self.memory.write_obj(flags, GuestAddress(DATA + 15)).unwrap();
        self.ask(kind, 0, 16).0
    }
}

/// Begins a machine's ring, and checks that it is served.
fn works(machine: &mut Machine) {
    machine.begin();
    let bytes = pattern(9, 4096);
    assert_eq!(machine.write(72, &bytes), 0);
    assert_eq!(machine.read(72, 4096), bytes);
}

#[test]
fn requests_do_what_they_say() {
    let server = server(false);
    let mut machine = Machine::new(&server);
    let config = machine.front_end.get_config(0, 60, VhostUserConfigFlags::empty(), &[0; 60]);
    let (_, config) = config.unwrap();
    assert_eq!(u64::from_le_bytes(*config.first_chunk().unwrap()), SIZE / 512);
    machine.begin();
    // A MiB lies in frames of several request parts.
    let bytes = pattern(1, 1 << 20);
    assert_eq!(machine.write(5, &bytes), 0);
    assert_eq!(machine.ask(FLUSH, 0, 0), (0, 1));
    assert_eq!(machine.read(5, 1 << 20), bytes);
    assert_eq!(machine.read(6, 512), bytes[512..1024]);

    assert_eq!(machine.clear(WRITE_ZEROES, 7, 3, 1), 0);
    assert_eq!(machine.read(7, 3 * 512), vec![0; 3 * 512]);
    assert_eq!(machine.clear(WRITE_ZEROES, 11, 1, 0), 0);
    assert_eq!(machine.read(11, 512), vec![0; 512]);
    assert_eq!(machine.clear(DISCARD, 16, 16, 0), 0);
    assert_eq!(machine.read(32, 512), bytes[27 * 512..28 * 512]);
    // Unknown flags, ranges beyond the disk, unknown kinds: nothing changes.
    assert_eq!(machine.clear(WRITE_ZEROES, 40, 1, 2), 2);
    assert_eq!(machine.clear(DISCARD, 40, 1, 1), 2);
    assert_eq!(machine.clear(WRITE_ZEROES, SIZE / 512, 1, 0), 1);
    assert_eq!(machine.clear(WRITE_ZEROES, u64::MAX, 8, 0), 1);
    assert_eq!(machine.ask(OUT, SIZE / 512 - 1, 1024), (1, 1));
    assert_eq!(machine.ask(IN, u64::MAX, 512), (1, 1));
    assert_eq!(machine.ask(IN, 0, 0), (1, 1));
    assert_eq!(machine.ask(OUT, 0, 100), (1, 1));
    assert_eq!(machine.ask(77, 0, 512), (2, 1));
    assert_eq!(machine.read(40, 512), bytes[35 * 512..36 * 512]);

    // Data that is not in the memory, wholly or from its second half on.
    for (kind, flags) in [(IN, NEXT | WRITE), (OUT, NEXT)] {
        for outside in [MEMORY_BYTES as u64, MEMORY_BYTES as u64 - 512, u64::MAX - 512] {
            machine.header(kind, 40);
            machine.describe(0, HEADER, 16, NEXT, 1);
            machine.describe(1, outside, 1024, flags, 2);
            machine.describe(2, STATUS, 1, WRITE, 0);
            machine.offer(0);
            assert_eq!(machine.answer(), Some((0, 1)));
            assert_eq!(machine.memory.read_obj::<u8>(GuestAddress(STATUS)).unwrap(), 1);
        }
    }
    assert_eq!(machine.read(40, 512), bytes[35 * 512..36 * 512]);

    assert_eq!(machine.ask(GET_ID, 0, 20), (0, 21));
    let mut id = [9; 3];
    machine.memory.read_slice(&mut id, GuestAddress(DATA + 3)).unwrap();
    assert_eq!(id, *b"v\0\0");
    // An NBD client sees the same disk.
    assert_eq!(server.client().read(5 * 512, 512).unwrap(), bytes[..512]);
    drop(machine);
    assert_eq!(server.settled().frames_held, 0);
}

#[test]
fn a_disk_that_is_only_read_refuses_writes() {
    let server = server(true);
    let mut machine = Machine::new(&server);
    machine.begin();
    assert_ne!(machine.features & 1 << 5, 0, "the driver is told");
    assert_eq!(machine.write(0, &[1; 512]), 1);
    assert_eq!(machine.clear(WRITE_ZEROES, 0, 1, 0), 1);
    assert_eq!(machine.read(0, 512), [0; 512]);
}

/// A driver that knows no flush expects that what is answered is durable.
#[test]
fn without_flushes_writes_go_through() {
    let server = server(false);
    let mut machine = Machine::new(&server);
    machine.front_end.set_features(machine.features & !(1 << 9)).unwrap();
    works(&mut machine);
}

/// After a server has died, the next one repeats what was not answered, in the order in which it
/// was taken, and nothing else.
#[test]
fn what_was_not_answered_is_repeated() {
    let first = server(false);
    let mut machine = Machine::new(&first);
    let file = machine.file.try_clone().unwrap();
    let told = VhostUserInflight::new(0, 0, 1, ENTRIES);
    let (told, record) = machine.front_end.get_inflight_fd(&told).unwrap();
    machine.front_end.set_inflight_fd(&told, record.as_raw_fd()).unwrap();
    works(&mut machine);
    drop(machine);
    drop(first);

    // The memory is made to look as a dead server leaves it: chains 8 and 4 were taken and not
    // answered. Chain 8, taken first, writes; chain 4 reads the same sector.
    let place = (
        GuestAddress(0),
        told.mmap_size as usize,
        Some(FileOffset::new(record.try_clone().unwrap(), 0)),
    );
    let area: GuestMemoryMmap<()> = GuestMemoryMmap::from_ranges_with_files([place]).unwrap();
    for (order, head) in [(100_u64, 8_u64), (101, 4)] {
        area.write_obj(1_u8, GuestAddress(16 + head * 16)).unwrap();
        area.write_obj(order, GuestAddress(16 + head * 16 + 8)).unwrap();
    }
    let second = server(false);
    let mut machine = Machine::with(&second, file);
    machine.header(OUT, 3);
    machine.memory.write_obj(u64::from(IN), GuestAddress(HEADER + 16)).unwrap();
    machine.memory.write_obj(3_u64, GuestAddress(HEADER + 24)).unwrap();
    machine.memory.write_slice(&[0x5a; 512], GuestAddress(DATA)).unwrap();
    machine.describe(8, HEADER, 16, NEXT, 9);
    machine.describe(9, DATA, 512, NEXT, 10);
    machine.describe(10, STATUS, 1, WRITE, 0);
    machine.describe(4, HEADER + 16, 16, NEXT, 5);
    machine.describe(5, DATA + 4096, 512, NEXT | WRITE, 6);
    machine.describe(6, STATUS + 1, 1, WRITE, 0);
    for head in [8, 4] {
        machine.put(AVAILABLE + 4 + u64::from(machine.available % ENTRIES) * 2, head);
        machine.available += 1;
    }
    machine.put(AVAILABLE + 2, machine.available);
    machine.front_end.set_inflight_fd(&told, record.as_raw_fd()).unwrap();
    machine.begin();
    let mut heads: Vec<_> = [machine.answer(), machine.answer()].map(|it| it.unwrap().0).into();
    heads.sort_unstable();
    assert_eq!(heads, [4, 8]);
    let mut read = [0; 512];
    machine.memory.read_slice(&mut read, GuestAddress(DATA + 4096)).unwrap();
    assert_eq!(read, [0x5a; 512], "the read came after the write");
    assert_eq!(machine.read(3, 512), [0x5a; 512]);
    let marks =
        (0..u64::from(ENTRIES)).map(|head| area.read_obj::<u8>(GuestAddress(16 + head * 16)));
    assert!(marks.into_iter().all(|mark| mark.unwrap() == 0), "nothing is left");
}

#[test]
fn one_front_end_at_a_time_and_then_the_next() {
    let server = server(false);
    let mut machine = Machine::new(&server);
    works(&mut machine);
    let mut other = connect(&server);
    assert_eq!(other.read(&mut [0]).unwrap_or(0), 0, "it is disconnected");
    works_on(&mut machine);
    drop(machine);
    for _ in 0..20 {
        let mut machine = Machine::new(&server);
        works(&mut machine);
    }
}

fn works_on(machine: &mut Machine) {
    let bytes = pattern(3, 512);
    assert_eq!(machine.write(0, &bytes), 0);
    assert_eq!(machine.read(0, 512), bytes);
}

/// Half a message, one that is too long, one of an unknown kind: the connection ends, and the next
/// front end is served.
#[test]
fn messages_that_make_no_sense_end_the_connection() {
    let server = server(false);
    let message = |kind: u32, flags: u32, size: u32, body: &[u8]| {
        let words = [kind, flags, size];
        [&words.map(u32::to_le_bytes).concat()[..], body].concat()
    };
    let cases = [
        message(1, 1, 0, &[])[..5].to_vec(),
        message(2, 1, 8, &[0; 3]),
        message(2, 1, u32::MAX, &[]),
        message(2, 1, 4096, &[7; 4096]),
        message(999, 1, 0, &[]),
        message(1, 3, 0, &[]),
        message(5, 1, 8, &[1, 0, 0, 0, 0, 0, 0, 0]),
        message(8, 1, 8, &[200, 0, 0, 0, 1, 0, 0, 0]),
        message(12, 1, 8, &[0; 8]),
        message(12, 1, 8, &[0, 1, 0, 0, 0, 0, 0, 0]),
        message(24, 1, 12, &[0; 12]),
        message(2, 1, 8, &[0xff; 8]),
        message(11, 1, 8, &[99, 0, 0, 0, 0, 0, 0, 0]),
        vec![0xff; 200],
    ];
    for (number, case) in cases.iter().enumerate() {
        let mut socket = connect(&server);
        socket.write_all(case).unwrap();
        socket.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
        let ended = matches!(socket.read(&mut [0; 4096]), Ok(0) | Err(_));
        assert!(ended, "case {number} is answered");
    }
    works(&mut Machine::new(&server));
}

/// A front end that asks and reads no answers does not keep the server.
#[test]
fn a_front_end_that_reads_nothing_ends() {
    let server = server(false);
    let mut socket = connect(&server);
    let ask = [[1_u32, 1, 0].map(u32::to_le_bytes).concat(); 1].concat();
    socket.set_write_timeout(Some(Duration::from_secs(10))).unwrap();
    let refused = (0..1_000_000).find(|_| socket.write_all(&ask).is_err());
    assert!(refused.is_some(), "it is disconnected");
    works(&mut Machine::new(&server));
}

/// The memory may be set anew while a ring is used. If it ends within the available ring, after its
/// index, the ring is broken, and the server goes on.
#[test]
fn a_ring_that_is_no_longer_in_the_memory_is_broken() {
    let server = server(false);
    let mut machine = Machine::new(&server);
    works(&mut machine);
    let error = EventFd::new(0o4000).unwrap();
    machine.front_end.set_vring_err(0, &error).unwrap();
    let region = VhostUserMemoryRegionInfo {
        guest_phys_addr: 0,
        memory_size: AVAILABLE + 4,
        userspace_addr: USER,
        mmap_offset: 0,
        mmap_handle: machine.file.as_raw_fd(),
    };
    machine.front_end.set_mem_table(&[region]).unwrap();
    machine.offer(0);
    let deadline = Instant::now() + Duration::from_secs(10);
    while error.read().is_err() {
        assert!(Instant::now() < deadline, "the ring is not broken");
        std::thread::sleep(Duration::from_millis(1));
    }
    drop(machine);
    works(&mut Machine::new(&server));
}

/// Rings and descriptors of any content (F17, F18). Messages are always answered, and the next
/// machine is served. `WEFT_FUZZ_SEED=n` sets another seed, as `cargo xtask long fuzz` does.
#[test]
fn hostile_rings_harm_only_themselves() {
    let cases = fuzz::cases(2000) as u64;
    let server = server(false);
    let mut machine = Machine::new(&server);
    let error = EventFd::new(0o4000).unwrap();
    machine.front_end.set_vring_err(0, &error).unwrap();
    let (mut answered, mut broken) = (0, 0);
    for case in 0..cases {
        let mut rng = Rng::new(mix(fuzz::seed()) ^ mix(case));
        machine.begin();
        for index in 0..ENTRIES {
            let address = match rng.below(4) {
                0 => rng.below(MEMORY_BYTES as u64 + 4096),
                1 => rng.next_u64(),
                _ => HEADER + rng.below(0x2000),
            };
            let len = match rng.below(4) {
                0 => rng.next_u64() as u32,
                1 => 16,
                _ => rng.below(9000) as u32,
            };
            let flags = match rng.below(8) {
                0 => rng.next_u64() as u16,
                1 => INDIRECT,
                2 => WRITE,
                3 => NEXT | WRITE,
                _ => NEXT,
            };
            machine.describe(index, address, len, flags, rng.below(70) as u16);
        }
        machine.header(
            [IN, OUT, FLUSH, GET_ID, DISCARD, WRITE_ZEROES, 77][rng.below(7) as usize],
            rng.below(40_000),
        );
        let is_formed = rng.below(2) == 0;
        if is_formed {
            // A well-formed chain; the header may still ask for something invalid.
            machine.describe(0, HEADER, 16, NEXT, 1);
            machine.describe(
                1,
                DATA,
                rng.below(70_000) as u32,
                NEXT | (rng.below(2) as u16 * WRITE),
                2,
            );
            machine.describe(2, STATUS, 1, WRITE, 0);
        }
        let before = machine.get(USED + 2);
        machine.offer(if is_formed || rng.below(2) == 0 { 0 } else { rng.next_u64() as u16 });
        if rng.below(4) == 0 {
            machine.offer(rng.below(ENTRIES.into()) as u16);
        }
        if rng.below(20) == 0 {
            machine.put(AVAILABLE + 2, rng.next_u64() as u16);
            machine.kick.write(1).unwrap();
        }
        // A chain is answered, or the ring is broken; an index may also say that there is no chain.
        let mut is_broken = false;
        for _ in 0..50 {
            is_broken |= error.read().is_ok();
            if is_broken || machine.get(USED + 2) != before {
                break;
            }
            std::thread::sleep(Duration::from_micros(100));
        }
        machine.front_end.get_vring_base(0).unwrap_or_else(|error| panic!("case {case}: {error}"));
        let after = machine.get(USED + 2);
        answered += u64::from(after != before);
        broken += u64::from(is_broken);
        (machine.used, machine.available) = (after, machine.get(AVAILABLE + 2));
    }
    println!("{answered} of {cases} answered something, {broken} broke the ring");
    assert!(answered >= cases / 4 && broken >= cases / 4, "{answered} answered, {broken} broken");
    machine.put(AVAILABLE + 2, 0);
    machine.available = 0;
    works(&mut machine);
    drop(machine);
    assert_eq!(server.settled().frames_held, 0);
}
