//! Synthetic dbench load: operation counts and lengths of the stock load, in a random order.
//!
//! The load agrees with the stock one in the frequency of each operation, the lengths of reads and
//! writes, the dirty pages at a `Flush`, the lifetimes of files, and the structure of a pass: a
//! prologue and 129 repetitions of the same kind. The order of operations is random.
//!
//! A repetition consists of sessions (open, operations, close) in any order, with queries between
//! them:
//!
//! * 14 files are written and flushed in turns: one 18 times, one 6, 5 and 4 times, and ten once;
//! * other files are written and never flushed; half of them are unlinked right after they are
//!   closed;
//! * most sessions open an existing file and read it;
//! * every file that a repetition makes is unlinked in it.
//!
//! The counts of a pass are exact. Lengths are drawn so that each class of lengths has its share at
//! any time.
//!
//! Source   experiments.md §1.6, the tables; the order is an assumption

use std::collections::VecDeque;

use weft_engine::page_cache::PAGE_BYTES;
use weft_units::rng::Rng;

use super::op::{Handle, Names, Op, Open, OperationKind, Path};

/// Number of repetitions in a pass.
const REPETITIONS: u64 = 129;
const DIRECTORIES: usize = 12;
const FILLERS: usize = 5;
const FILLER_BYTES: u64 = 1 << 20;
/// Number of files with one write each that exist for a whole pass, in addition to the fillers.
const KEPT: usize = 51;
/// Number of sessions in the prologue that read, with five reads each.
const PROLOGUE_READERS: usize = 62;
const PROLOGUE_QUERIES: usize = 76;
/// Number of flushes of each flushed file in a repetition. The first file also gets the remaining
/// flushes of the repetition's share of the pass.
const FLUSHED: [u64; 14] = [18, 6, 5, 4, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1];
/// Number of names for the files that are created and unlinked within a repetition.
const NAMES: usize = 192;

/// Totals over the repetitions of a pass.
mod pass {
    /// Number of files that are created, and unlinked again.
    pub(super) const CREATES: u64 = 16_000;
    /// Number of sessions of existing files: 58 200 opens succeed, less those of directories, of
    /// new files and of the prologue.
    pub(super) const OPENS: u64 = 58_200 - 11 - 16_056 - 62;
    pub(super) const NOT_FOUND: u64 = 21_030;
    pub(super) const QUERY_PATH: u64 = 71_814 - 76;
    pub(super) const FIND_FIRST: u64 = 27_765;
    pub(super) const QUERY_FS: u64 = 13_168;
    pub(super) const QUERY_FILE: u64 = 12_585;
    pub(super) const SET_FILE: u64 = 6_454;
    pub(super) const FLUSHES: u64 = 5_553;
    pub(super) const RENAMES: u64 = 3_355;
    pub(super) const LOCKS: u64 = 258;
    pub(super) const READS: u64 = 124_199 - 310;
    pub(super) const WRITES: u64 = 39_502 - 80 - 51;
}

/// A class of lengths: its share in thousandths, and its shortest and longest length in bytes.
type Class = (u32, u32, u32);

/// Lengths of writes. Each class is a uniform range with the mean of the published table.
const WRITES: [Class; 7] = [
    (189, 1, 1),
    (29, 21, 511),
    (52, 512, 3444),
    (252, 4096, 4096),
    (85, 4797, 16_383),
    (73, 16_384, 56_898),
    (320, 65_536, 65_536),
];
const READS: [Class; 7] = [
    (45, 1, 262),
    (88, 512, 2990),
    (669, 4096, 4096),
    (45, 4097, 12_233),
    (16, 16_384, 16_384),
    (3, 16_385, 50_000),
    (134, 61_440, 61_440),
];

/// Draws lengths. The next length is of the class that is furthest behind its share.
#[derive(Clone, Debug)]
struct Dealer {
    classes: [Class; 7],
    dealt: [u64; 7],
    total: u64,
}

impl Dealer {
    fn new(classes: [Class; 7]) -> Self {
        Self { classes, dealt: [0; 7], total: 0 }
    }

    /// Counts a length of this class as used.
    fn count(&mut self, class: usize) {
        self.dealt[class] += 1;
        self.total += 1;
    }

    fn deal(&mut self, rng: &mut Rng) -> u32 {
        let behind = |class: &usize| {
            let share = u64::from(self.classes[*class].0) * (self.total + 1);
            share as i64 - 1000 * self.dealt[*class] as i64
        };
        let class = (0..7).max_by_key(behind).expect("classes exist");
        self.count(class);
        let (_, first, last) = self.classes[class];
        first + rng.below(u64::from(last - first) + 1) as u32
    }

    fn deck(&mut self, rng: &mut Rng, count: u64) -> Vec<u32> {
        let mut deck: Vec<u32> = (0..count).map(|_| self.deal(rng)).collect();
        rng.shuffle(&mut deck);
        deck
    }
}

/// Generator of the synthetic load.
#[derive(Clone, Debug)]
pub struct Synthetic {
    rng: Rng,
    names: Names,
    top: [Path; 2],
    directories: Vec<Path>,
    fillers: Vec<Path>,
    kept: Vec<Path>,
    /// Names that no file has at present.
    free: VecDeque<Path>,
    /// Files that come and go, each with its name and length.
    live: Vec<(Path, u64)>,
    writes: Dealer,
    reads: Dealer,
    /// Number of the next part of the pass; 0 is the prologue.
    part: u64,
    handle: i64,
}

/// An element of a repetition.
#[derive(Clone, Copy, Debug)]
enum Item {
    Session(usize),
    NotFound,
    Other(OperationKind),
    Rename,
    Unlink(Path),
}

/// A session: a file is opened, read or written, and closed.
#[derive(Clone, Debug, Default)]
struct Session {
    new: bool,
    /// Lengths of the writes, in order. If the file is flushed, a flush follows each group.
    groups: Vec<Vec<u32>>,
    flushed: bool,
    reads: Vec<u32>,
    queries: u32,
    sets: u32,
    locks: u32,
}

impl Synthetic {
    /// Generator of the load of one client. `client` is the number of the client, which is part of
    /// its paths and changes its random choices.
    #[must_use]
    pub fn new(seed: u64, client: u32) -> Self {
        let mut names = Names::default();
        let clients = names.path("\\clients");
        let top = names.path(&format!("\\clients\\client{client}"));
        let directories: Vec<Path> = (1..DIRECTORIES)
            .map(|n| names.path(&format!("\\clients\\client{client}\\d{n}")))
            .collect();
        let mut files = |word: &str, count| -> Vec<Path> {
            (0..count)
                .map(|n| {
                    let d = 1 + n % (DIRECTORIES - 1);
                    names.path(&format!("\\clients\\client{client}\\d{d}\\{word}{n}"))
                })
                .collect()
        };
        let (fillers, kept) = (files("filler", FILLERS), files("kept", KEPT));
        let free = files("file", NAMES).into();
        Self {
            rng: Rng::new(seed ^ (u64::from(client) << 40) ^ 0x6462_656e_6368),
            names,
            top: [clients, top],
            directories,
            fillers,
            kept,
            free,
            live: Vec::new(),
            writes: Dealer::new(WRITES),
            reads: Dealer::new(READS),
            part: 0,
            handle: 0,
        }
    }

    /// Names of the paths in the load.
    #[must_use]
    pub fn names(&self) -> &Names {
        &self.names
    }

    /// Whether the next part is the prologue, with which a pass starts.
    #[must_use]
    pub fn begins_pass(&self) -> bool {
        self.part == 0
    }

    /// Operations of the next part: the prologue or a repetition.
    pub fn next_part(&mut self) -> Vec<Op> {
        let part = self.part;
        self.part = (part + 1) % (REPETITIONS + 1);
        if part == 0 {
            return self.prologue();
        }
        let mut ops = self.repetition(part - 1);
        if part == REPETITIONS {
            ops.push(Op::Deltree(self.top[1]));
            self.free.extend(self.live.drain(..).map(|(path, _)| path));
        }
        ops
    }

    fn prologue(&mut self) -> Vec<Op> {
        (self.writes, self.reads) = (Dealer::new(WRITES), Dealer::new(READS));
        let mut ops = vec![Op::Deltree(self.top[1]), Op::Mkdir(self.top[0])];
        for path in self.directories.clone() {
            let handle = self.open(&mut ops, path, Open::Directory);
            ops.push(Op::Close(handle));
        }
        for path in self.fillers.clone() {
            let handle = self.open(&mut ops, path, Open::Create);
            for offset in (0..FILLER_BYTES).step_by(1 << 16) {
                self.writes.count(6);
                ops.push(Op::Write { handle, offset, len: 1 << 16 });
            }
            ops.push(Op::Close(handle));
        }
        for path in self.kept.clone() {
            let handle = self.open(&mut ops, path, Open::Create);
            let len = self.writes.deal(&mut self.rng);
            ops.push(Op::Write { handle, offset: 0, len });
            ops.push(Op::Close(handle));
        }
        for n in 0..PROLOGUE_READERS {
            let (path, open) = match n {
                0 => (self.kept[0], Open::Truncate),
                _ => (self.rng.pick(&self.fillers), Open::Existing),
            };
            let handle = self.open(&mut ops, path, open);
            for _ in 0..5 {
                let len = self.reads.deal(&mut self.rng);
                ops.push(self.read(handle, FILLER_BYTES, len));
            }
            ops.push(Op::Close(handle));
        }
        ops.extend([Op::Other(OperationKind::QueryPath); PROLOGUE_QUERIES]);
        ops
    }

    fn repetition(&mut self, n: u64) -> Vec<Op> {
        let share = |count: u64| (n + 1) * count / REPETITIONS - n * count / REPETITIONS;
        let new = share(pass::CREATES) as usize;
        let sessions = self.sessions(new, share);
        let mut items: VecDeque<Item> = self.items(sessions.len(), share).into();

        let mut ops = Vec::new();
        let mut unlinks = 0;
        while let Some(item) = items.pop_front() {
            match item {
                Item::Session(at) => {
                    let path = self.session(&mut ops, &sessions[at]);
                    if sessions[at].new {
                        // Half of the files without a flush are unlinked at once, the others some
                        // time later.
                        let soon = !sessions[at].flushed && self.rng.percent(55);
                        let room = items.len() as u64 + 1;
                        let after = if soon { 0 } else { self.rng.below(room) };
                        items.insert(after as usize, Item::Unlink(path));
                        unlinks += 1;
                    }
                }
                Item::NotFound => {
                    let path = *self.free.back().expect("names outnumber files");
                    ops.push(Op::Open(path, None));
                }
                Item::Other(kind) => ops.push(Op::Other(kind)),
                Item::Rename => {
                    let to = self.free.pop_front().expect("names outnumber files");
                    // If there is no file that comes and goes, one of those that exist for the
                    // whole pass is renamed.
                    let name = if self.live.is_empty() {
                        &mut self.kept[self.rng.index(KEPT)]
                    } else {
                        let at = self.rng.index(self.live.len());
                        &mut self.live[at].0
                    };
                    let from = std::mem::replace(name, to);
                    self.free.push_back(from);
                    ops.push(Op::Rename(from, to));
                    for item in &mut items {
                        match item {
                            Item::Unlink(path) if *path == from => *path = to,
                            _ => {}
                        }
                    }
                }
                Item::Unlink(path) => {
                    self.live.retain(|(live, _)| *live != path);
                    self.free.push_back(path);
                    ops.push(Op::Unlink(path));
                }
            }
        }
        assert_eq!(unlinks, new, "a repetition unlinks the files that it makes");
        ops
    }

    /// Elements of a repetition in random order: sessions, by index, and operations outside of any
    /// session. `share` gives this repetition's part of a total of the pass.
    fn items(&mut self, sessions: usize, share: impl Fn(u64) -> u64) -> Vec<Item> {
        let mut items: Vec<Item> = (0..sessions).map(Item::Session).collect();
        for (kind, count) in [
            (OperationKind::QueryPath, pass::QUERY_PATH),
            (OperationKind::FindFirst, pass::FIND_FIRST),
            (OperationKind::QueryFs, pass::QUERY_FS),
        ] {
            items.extend((0..share(count)).map(|_| Item::Other(kind)));
        }
        items.extend((0..share(pass::NOT_FOUND)).map(|_| Item::NotFound));
        items.extend((0..share(pass::RENAMES)).map(|_| Item::Rename));
        self.rng.shuffle(&mut items);
        items
    }

    /// Sessions of a repetition: those of flushed files, then of other new files, then of existing
    /// files. `share` gives this repetition's part of a total of the pass.
    fn sessions(&mut self, new: usize, share: impl Fn(u64) -> u64) -> Vec<Session> {
        let mut sessions = vec![Session::default(); new + share(pass::OPENS) as usize];
        for session in &mut sessions[..new] {
            session.new = true;
        }
        let mut deck = self.writes.deck(&mut self.rng, share(pass::WRITES));
        let mut flushes = FLUSHED;
        flushes[0] += share(pass::FLUSHES) - FLUSHED.iter().sum::<u64>();
        let mut pages = flushed_pages(&mut self.rng, flushes.iter().sum());
        for (session, count) in sessions.iter_mut().zip(flushes) {
            session.flushed = true;
            for pages in pages.drain(..count as usize) {
                session.groups.push(take_pages(&mut deck, pages));
            }
        }
        // Few of the other files get most of the remaining writes.
        let others = (new - flushes.len()) as u64;
        for len in deck {
            let limit = self.rng.below(others) + 1;
            let at = flushes.len() + self.rng.below(limit) as usize;
            let session = &mut sessions[at];
            session.groups.resize(1, Vec::new());
            session.groups[0].push(len);
        }
        let rng = &mut self.rng;
        for len in self.reads.deck(rng, share(pass::READS)) {
            // A fifth of the reads are in sessions of flushed files, between the flushes.
            let at = if rng.percent(20) {
                rng.index(flushes.len())
            } else {
                new + rng.index(sessions.len() - new)
            };
            sessions[at].reads.push(len);
        }
        for _ in 0..share(pass::QUERY_FILE) {
            let at = rng.index(sessions.len());
            sessions[at].queries += 1;
        }
        for _ in 0..share(pass::SET_FILE) {
            let at = rng.index(sessions.len());
            sessions[at].sets += 1;
        }
        for _ in 0..share(pass::LOCKS) {
            let at = rng.index(sessions.len());
            sessions[at].locks += 1;
        }
        sessions
    }

    /// Adds the operations of a session. Returns the path of its file.
    fn session(&mut self, ops: &mut Vec<Op>, session: &Session) -> Path {
        let (path, open, mut size) = if session.new {
            let path = self.free.pop_front().expect("names outnumber files");
            (path, Open::Create, 0)
        } else {
            self.existing(session.reads.iter().copied().max().unwrap_or(0))
        };
        let handle = self.open(ops, path, open);
        ops.extend((0..session.queries).map(|_| Op::Other(OperationKind::QueryFile)));
        for _ in 0..session.locks {
            ops.extend([Op::Other(OperationKind::LockX), Op::Other(OperationKind::UnlockX)]);
        }
        let mut reads = session.reads.iter().copied();
        let between = session.reads.len() / session.groups.len().max(1);
        for group in &session.groups {
            size = size.max(write_group(ops, handle, group, session.flushed));
            for len in reads.by_ref().take(between) {
                ops.push(self.read(handle, size, len));
            }
            if session.flushed {
                ops.push(Op::Flush(handle));
            }
        }
        for len in reads {
            ops.push(self.read(handle, size, len));
        }
        ops.extend((0..session.sets).map(|_| Op::SetFile(handle)));
        ops.push(Op::Close(handle));
        if session.new {
            self.live.push((path, size));
        }
        path
    }

    /// Chooses an existing file from which `len` bytes can be read: often one that comes and goes,
    /// if it is long enough, otherwise a filler, which is 1 MiB long and exists for the whole pass.
    /// Returns its path, how it is opened, and its length in bytes.
    fn existing(&mut self, len: u32) -> (Path, Open, u64) {
        if !self.live.is_empty() && self.rng.percent(50) {
            let (path, size) = self.rng.pick(&self.live);
            if size >= u64::from(len) {
                return (path, Open::Existing, size);
            }
        }
        (self.rng.pick(&self.fillers), Open::Existing, FILLER_BYTES)
    }

    fn open(&mut self, ops: &mut Vec<Op>, path: Path, open: Open) -> Handle {
        self.handle += 1;
        let handle = Handle(self.handle);
        ops.push(Op::Open(path, Some((handle, open))));
        handle
    }

    fn read(&mut self, handle: Handle, size: u64, len: u32) -> Op {
        let room = size.saturating_sub(u64::from(len)) / PAGE_BYTES;
        Op::Read { handle, offset: self.rng.below(room + 1) * PAGE_BYTES, len }
    }
}

/// Number of dirty pages at each flush of a repetition, in random order: mostly few, at times 20
/// (80 KiB) or more.
fn flushed_pages(rng: &mut Rng, count: u64) -> Vec<u64> {
    let large = [20, 20, 21, 22, if rng.percent(50) { 22 } else { 66 }];
    let few = [(14, 1), (8, 2), (8, 3), (4, 5), (4, 9)];
    let mut pages: Vec<u64> =
        few.iter().flat_map(|(times, pages)| std::iter::repeat_n(*pages, *times)).collect();
    pages.extend(large);
    pages.resize(count as usize, 5);
    rng.shuffle(&mut pages);
    pages
}

/// Removes lengths of writes from `deck`, the shuffled lengths that are left, and returns them. The
/// writes of these lengths dirty `pages` pages in all.
fn take_pages(deck: &mut Vec<u32>, mut pages: u64) -> Vec<u32> {
    let mut group = Vec::new();
    while pages > 0 {
        let fits = |len: &u32| u64::from(*len).div_ceil(PAGE_BYTES) <= pages;
        // The longest write that fits; for a single page, the first one that fits.
        let at = if pages == 1 {
            deck.iter().position(fits)
        } else {
            (0..deck.len()).filter(|at| fits(&deck[*at])).max_by_key(|at| deck[*at])
        };
        let len = deck.swap_remove(at.expect("a deck has short writes"));
        pages -= u64::from(len).div_ceil(PAGE_BYTES);
        group.push(len);
    }
    group
}

/// Adds writes, each from the beginning of a page. Flushed files are written from their beginning
/// each time. Another file first gets a byte at its end, as SMB clients set a file's length, and is
/// then overwritten. Returns the least length of the file.
fn write_group(ops: &mut Vec<Op>, handle: Handle, group: &[u32], flushed: bool) -> u64 {
    let pages: u64 = group.iter().map(|len| u64::from(*len).div_ceil(PAGE_BYTES)).sum();
    let mut bytes = group.to_vec();
    let mut offset = 0;
    if !flushed && let Some(at) = bytes.iter().position(|len| *len == 1) {
        bytes.swap_remove(at);
        let end = (pages - 1).max(1) * PAGE_BYTES;
        ops.push(Op::Write { handle, offset: end - 1, len: 1 });
    }
    for len in bytes {
        ops.push(Op::Write { handle, offset, len });
        offset += u64::from(len).div_ceil(PAGE_BYTES) * PAGE_BYTES;
    }
    pages * PAGE_BYTES
}
