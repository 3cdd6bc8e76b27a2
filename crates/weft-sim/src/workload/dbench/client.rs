//! Client of dbench: CPU time, waits and file-system calls of each operation.
//!
//! An operation takes a CPU's time for its system calls and for what it copies; then it does to the
//! file system what it does, and waits where a process would: in `balance_dirty_pages`, for an
//! fsync, and for pages under writeback of a file that goes. The next operation begins when it has
//! ended. Reads find their pages in the cache: what a client reads it wrote a moment ago.
//!
//! With [`Settings::sync_open`] (`dbench -s`) each write is followed by what `O_SYNC` does: an
//! fsync.

use std::any::Any;
use std::collections::{BTreeMap, VecDeque};
use std::rc::Rc;

use weft_engine::page_cache::{Balance, PAGE_BYTES, SyncStep, WriterId};
use weft_units::{Bytes, Span, Time};

use super::load_file::Load;
use super::op::{Handle, Names, Op, Open, Path};
use super::synthetic::Synthetic;
use super::table::Table;
use crate::machine::{Host, Machine, Pid, Process, Thread, Woken};
use crate::workload::ext4::{Directory, Ext4, FLUSHED, FileSync, Inode};

/// Arguments of a run of dbench.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Number of clients.
    pub clients: u32,
    /// Whether files are opened with `O_SYNC` (`-s`).
    pub sync_open: bool,
    /// What is not counted at first; dbench takes a fifth of the measured time.
    pub warm_up: Span,
    /// Time that is measured (`-t`).
    pub measured: Span,
    /// A user's load; `None` for [`Synthetic`].
    pub load: Option<Rc<Load>>,
    /// Time of operations beside costs and waits, in percent of what a published table has; 0 for
    /// none.
    pub operation_percent: u32,
    /// For what is drawn.
    pub seed: u64,
}

/// Clients at work on a machine.
#[derive(Clone, Debug)]
pub struct Run {
    /// The clients.
    pub clients: Vec<Pid>,
    measured: Span,
    until: Time,
}

impl Settings {
    /// dbench as it comes: so many clients for so long, after a fifth of that.
    #[must_use]
    pub fn new(clients: u32, measured: Span) -> Self {
        let warm_up = Span(measured.0 / 5);
        let (load, operation_percent) = (None, 0);
        Self { clients, sync_open: false, warm_up, measured, load, operation_percent, seed: 0 }
    }

    /// Starts the clients on a file system.
    #[must_use]
    pub fn start(&self, machine: &mut Machine, fs: &Ext4) -> Run {
        let begins = machine.host.now() + self.warm_up;
        let ends = begins + self.measured;
        let add = |client| {
            let source = match &self.load {
                Some(load) => Source::File { load: Rc::clone(load), at: 0 },
                None => Source::Synthetic {
                    generator: Box::new(Synthetic::new(self.seed, client)),
                    left: VecDeque::new(),
                },
            };
            let measured = (begins, ends);
            machine.add_with(|pid| {
                let client = Client::new(pid, fs.clone(), source, self.sync_open, measured);
                Box::new(Client { operation_percent: self.operation_percent, ..client })
            })
        };
        Run { clients: (0..self.clients).map(add).collect(), measured: self.measured, until: ends }
    }
}

impl Run {
    /// Time at which the run ends.
    #[must_use]
    pub fn until(&self) -> Time {
        self.until
    }

    /// Results of all clients together.
    #[must_use]
    pub fn table(&self, machine: &Machine) -> Table {
        let mut table = Table::default();
        for pid in &self.clients {
            table.add(&machine.process::<Client>(*pid).table);
        }
        table
    }

    /// What dbench prints as `Throughput`, 10^6 bytes a second.
    #[must_use]
    pub fn throughput(&self, machine: &Machine) -> f64 {
        self.table(machine).throughput(self.measured)
    }
}

/// Source of a client's operations.
#[derive(Debug)]
pub enum Source {
    /// A load file, from its beginning again when it is over.
    File {
        /// The file.
        load: Rc<Load>,
        /// The operation that is next.
        at: usize,
    },
    /// weft's own.
    Synthetic {
        /// Generator of the operations.
        generator: Box<Synthetic>,
        /// Operations of this repetition that are left.
        left: VecDeque<Op>,
    },
}

impl Source {
    /// The next operation, and whether a pass begins with it.
    fn next(&mut self) -> (Op, bool) {
        match self {
            Self::File { load, at } => {
                let begins = *at == 0;
                let op = load.ops[*at];
                *at = (*at + 1) % load.ops.len();
                (op, begins)
            }
            Self::Synthetic { generator, left } => {
                let mut begins = false;
                if left.is_empty() {
                    begins = generator.begins_pass();
                    left.extend(generator.next_part());
                }
                (left.pop_front().expect("a part has operations"), begins)
            }
        }
    }

    fn names(&self) -> &Names {
        match self {
            Self::File { load, .. } => &load.names,
            Self::Synthetic { generator, .. } => generator.names(),
        }
    }
}

/// A client: a process.
#[derive(Debug)]
pub struct Client {
    thread: Thread,
    fs: Ext4,
    source: Source,
    sync_open: bool,
    operation_percent: u32,
    /// From when to when operations count.
    measured: (Time, Time),
    writer: Option<WriterId>,
    directories: BTreeMap<Path, Directory>,
    files: BTreeMap<Path, Inode>,
    /// Handles of directories are open on nothing.
    open: BTreeMap<Handle, Option<Inode>>,
    /// Unlinked while open.
    orphans: Vec<Inode>,
    /// Operation under way, and its start.
    op: Option<(Op, Time)>,
    state: State,
    pass_began: Option<Time>,
    /// Passes begun.
    pub passes: u64,
    /// Results in the measured time.
    pub table: Table,
    done: bool,
}

#[derive(Debug)]
enum State {
    /// Between two operations.
    Next,
    /// The CPU's time is spent.
    Act,
    /// Copies to pages up to the end of these, or is throttled.
    Writes {
        inode: Inode,
        at: u64,
        end: u64,
        balances: bool,
    },
    Syncs(FileSync),
    /// Files nobody can reach any more.
    Removes(Vec<Inode>),
    Truncates(Inode),
    /// The operation is over.
    Over,
}

impl Client {
    fn new(pid: Pid, fs: Ext4, source: Source, sync_open: bool, measured: (Time, Time)) -> Self {
        Self {
            thread: Thread::new(pid),
            fs,
            source,
            sync_open,
            operation_percent: 0,
            measured,
            writer: None,
            directories: BTreeMap::new(),
            files: BTreeMap::new(),
            open: BTreeMap::new(),
            orphans: Vec::new(),
            op: None,
            state: State::Next,
            pass_began: None,
            passes: 0,
            table: Table::default(),
            done: false,
        }
    }

    /// Goes on; false waits.
    fn step(&mut self, host: &mut Host) -> bool {
        let fs = self.fs.clone();
        match &mut self.state {
            State::Next => return self.begin(host),
            State::Act => {
                let (op, _) = self.op.expect("it does something");
                self.state = self.act(host, op);
            }
            State::Writes { inode, at, end, balances } => {
                let writer = self.writer.expect("it runs");
                if *balances {
                    match host.balance(writer) {
                        Balance::Continue => *balances = false,
                        Balance::Sleep { until, .. } => self.thread.sleep(host, until),
                        Balance::Write(out) => self.thread.write_out(out, false),
                    }
                } else if at < end {
                    let written = host.write_pages(writer, fs.pages(*inode), *at..*end);
                    *at += written.pages;
                    *balances = written.balance;
                } else if let Some((Op::Write { offset, len, .. }, _)) = self.op {
                    let inode = *inode;
                    fs.wrote(host, inode, Bytes(offset + u64::from(len)));
                    self.state = if self.sync_open {
                        State::Syncs(FileSync::new(&fs, host, inode))
                    } else {
                        State::Over
                    };
                }
            }
            State::Syncs(sync) => match sync.step(&fs, host, &mut self.thread) {
                SyncStep::Done => self.state = State::Over,
                SyncStep::Wait => return false,
                SyncStep::Write(out) => self.thread.write_out(out, true),
            },
            State::Removes(inodes) => {
                if let Some(inode) = inodes.last() {
                    if !fs.remove(host, self.thread.pid(), *inode) {
                        return false;
                    }
                    inodes.pop();
                } else {
                    self.state = State::Over;
                }
            }
            State::Truncates(inode) => {
                if !fs.truncate(host, self.thread.pid(), *inode) {
                    return false;
                }
                self.state = State::Over;
            }
            State::Over => {
                let (op, began) = self.op.take().expect("it did something");
                let now = host.now();
                if self.measured.0 < now && now <= self.measured.1 {
                    self.table.count(&op, now.since(began));
                }
                self.state = State::Next;
            }
        }
        true
    }

    fn begin(&mut self, host: &mut Host) -> bool {
        let now = host.now();
        if now >= self.measured.1 {
            self.done = true;
            return false;
        }
        let (op, begins) = self.source.next();
        if begins {
            assert!(
                self.pass_began != Some(now),
                "a pass of this load takes no time: it never waits for the volume, and costs are zero"
            );
            self.pass_began = Some(now);
            self.passes += 1;
        }
        self.op = Some((op, now));
        let costs = host.costs();
        let calls = (op.kind().calls() - 1) * costs.syscall;
        let own = op.kind().measured().0 * u64::from(self.operation_percent) / 100;
        let cost = Span(calls + costs.of_call(op.bytes()).0 + own);
        self.thread.work(host, cost);
        self.state = State::Act;
        true
    }

    /// Does to the file system what an operation does.
    fn act(&mut self, host: &mut Host, op: Op) -> State {
        self.try_to(host, op).unwrap_or_else(|| {
            self.table.missed += 1;
            State::Over
        })
    }

    /// `None`: what it is done to does not exist.
    fn try_to(&mut self, host: &mut Host, op: Op) -> Option<State> {
        match op {
            Op::Close(handle) => {
                let inode = self.open.remove(&handle)?;
                return Some(self.forget(inode));
            }
            Op::Deltree(top) => {
                let names = self.source.names();
                let below = |path: &Path| *path != TOP && names.is_below(*path, top);
                let files: Vec<Path> = self.files.keys().copied().filter(below).collect();
                let directories: Vec<Path> =
                    self.directories.keys().copied().filter(below).collect();
                let mut gone = Vec::new();
                for path in files {
                    gone.extend(self.unlink(host, path));
                }
                for path in directories {
                    self.directories.remove(&path);
                }
                return Some(State::Removes(gone));
            }
            Op::Flush(handle) => {
                // A directory's fsync is not part of any load.
                let inode = (*self.open.get(&handle)?)?;
                return Some(State::Syncs(FileSync::new(&self.fs, host, inode)));
            }
            Op::Mkdir(path) => {
                self.directory(host, Some(path));
            }
            Op::Open(path, Some((handle, open))) => return self.open(host, path, handle, open),
            Op::Open(_, None) | Op::Other(_) => {}
            Op::Read { handle, .. } => {
                (*self.open.get(&handle)?)?;
            }
            Op::Rename(from, to) => {
                let inode = self.files.remove(&from)?;
                let (from, into) = (self.parent(host, from), self.parent(host, to));
                self.fs.rename(host, inode, from, into);
                if let Some(replaced) = self.files.insert(to, inode) {
                    return Some(self.forget(Some(replaced)));
                }
            }
            Op::SetFile(handle) => {
                if let Some(inode) = *self.open.get(&handle)? {
                    self.fs.set_times(host, inode);
                }
            }
            Op::Unlink(path) => {
                if !self.files.contains_key(&path) {
                    return None;
                }
                let gone = self.unlink(host, path);
                return Some(State::Removes(gone.into_iter().collect()));
            }
            Op::Write { handle, offset, len } => {
                let inode = (*self.open.get(&handle)?)?;
                let end = (offset + u64::from(len)).div_ceil(PAGE_BYTES);
                return Some(State::Writes {
                    inode,
                    at: offset / PAGE_BYTES,
                    end,
                    balances: false,
                });
            }
        }
        Some(State::Over)
    }

    fn open(&mut self, host: &mut Host, path: Path, handle: Handle, open: Open) -> Option<State> {
        let known = self.files.get(&path).copied();
        let inode = match (open, known) {
            (Open::Directory, _) => {
                self.directory(host, Some(path));
                None
            }
            (Open::Existing, None) => {
                // A directory may be opened as well.
                self.directories.get(&path)?;
                None
            }
            (Open::Create | Open::Truncate, None) => {
                let directory = self.parent(host, path);
                let inode = self.fs.create(host, directory);
                self.files.insert(path, inode);
                Some(inode)
            }
            (_, known) => known,
        };
        self.open.insert(handle, inode);
        Some(match (open, known) {
            (Open::Truncate, Some(inode)) => State::Truncates(inode),
            _ => State::Over,
        })
    }

    /// The directory with this name, made if there is none; `None` is the client's own top.
    fn directory(&mut self, host: &mut Host, path: Option<Path>) -> Directory {
        let key = path.unwrap_or(TOP);
        if let Some(directory) = self.directories.get(&key) {
            return *directory;
        }
        let parent = path.map(|path| {
            let above = self.source.names().directory(path);
            self.directory(host, above)
        });
        let directory = self.fs.make_directory(host, parent);
        self.directories.insert(key, directory);
        directory
    }

    fn parent(&mut self, host: &mut Host, path: Path) -> Directory {
        let above = self.source.names().directory(path);
        self.directory(host, above)
    }

    /// A name goes. Says which file nobody can reach any more.
    fn unlink(&mut self, host: &mut Host, path: Path) -> Option<Inode> {
        let inode = self.files.remove(&path)?;
        let directory = self.parent(host, path);
        self.fs.unlink(host, inode, directory);
        if self.open.values().any(|open| *open == Some(inode)) {
            self.orphans.push(inode);
            return None;
        }
        Some(inode)
    }

    /// A handle or a name of a file went; the file goes if it was the last of them.
    fn forget(&mut self, inode: Option<Inode>) -> State {
        let Some(inode) = inode else { return State::Over };
        let named = || self.files.values().any(|named| *named == inode);
        if self.open.values().any(|open| *open == Some(inode)) {
            return State::Over;
        }
        match self.orphans.iter().position(|orphan| *orphan == inode) {
            Some(at) => {
                self.orphans.remove(at);
                State::Removes(vec![inode])
            }
            None if named() => State::Over,
            None => State::Removes(vec![inode]),
        }
    }
}

/// The path of the directory that a client's paths begin in.
const TOP: Path = Path(u32::MAX);

impl Process for Client {
    fn run(&mut self, host: &mut Host, woken: Woken) {
        if self.done {
            return;
        }
        match (woken, &mut self.state) {
            (Woken::Done(FLUSHED), State::Syncs(sync)) => sync.flushed(),
            (Woken::Told(_), _) => self.thread.stop_sleeping(),
            _ => {}
        }
        self.writer.get_or_insert_with(|| host.add_writer(self.thread.pid(), 0));
        while self.thread.goes_on(host) && self.step(host) {}
    }

    fn is_done(&self) -> bool {
        self.done
    }

    fn as_any(&self) -> &dyn Any {
        self
    }
}
