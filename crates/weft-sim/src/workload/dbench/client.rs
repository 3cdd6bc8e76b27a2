//! Client of dbench: CPU time, waits and file-system calls of each operation.
//!
//! An operation takes CPU time for its system calls and for copying data. Then it takes effect on
//! the file system, and waits where a process would: in `balance_dirty_pages`, for an fsync, and
//! for pages of a removed file that are under writeback. The next operation begins when the present
//! one has ended. Reads find their pages in the cache, because the client wrote them shortly
//! before.
//!
//! With [`Settings::sync_open`] (`dbench -s`) each write is followed by an fsync, as with `O_SYNC`.

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
    /// Time after the start of the run that is not counted; dbench uses a fifth of the measured
    /// time.
    pub warm_up: Span,
    /// Time that is measured (`-t`).
    pub measured: Span,
    /// The user's load file; `None` for the [`Synthetic`] load.
    pub load: Option<Rc<Load>>,
    /// Additional time of each operation, in percent of its latency in a published table
    /// (`OperationKind::measured`); 0 for none.
    pub operation_percent: u32,
    /// Seed of the synthetic load.
    pub seed: u64,
}

/// Clients that were started on a machine, and the time that is measured.
#[derive(Clone, Debug)]
pub struct Run {
    /// Process numbers of the clients.
    pub clients: Vec<Pid>,
    measured: Span,
    until: Time,
}

impl Settings {
    /// Settings like dbench's default arguments, for this number of clients and this measured time.
    /// The warm-up takes a fifth of that time in addition.
    #[must_use]
    pub fn new(clients: u32, measured: Span) -> Self {
        let warm_up = Span(measured.0 / 5);
        let (load, operation_percent) = (None, 0);
        Self { clients, sync_open: false, warm_up, measured, load, operation_percent, seed: 0 }
    }

    /// Starts the clients on a mounted file system.
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
    /// Time at which the clients end.
    #[must_use]
    pub fn until(&self) -> Time {
        self.until
    }

    /// Sum of the results of all clients.
    #[must_use]
    pub fn table(&self, machine: &Machine) -> Table {
        let mut table = Table::default();
        for pid in &self.clients {
            table.add(&machine.process::<Client>(*pid).table);
        }
        table
    }

    /// Throughput as dbench prints it, in units of 10^6 bytes per second.
    #[must_use]
    pub fn throughput(&self, machine: &Machine) -> f64 {
        self.table(machine).throughput(self.measured)
    }
}

/// Source of a client's operations.
#[derive(Debug)]
pub enum Source {
    /// A load file, which starts again from its first operation when it is over.
    File {
        /// Operations of the file.
        load: Rc<Load>,
        /// Index of the next operation.
        at: usize,
    },
    /// The synthetic load of weft.
    Synthetic {
        /// Generator of the operations.
        generator: Box<Synthetic>,
        /// Operations that are left of the current part of the load.
        left: VecDeque<Op>,
    },
}

impl Source {
    /// The next operation, and whether a pass over the load starts with it.
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

/// A client of dbench, as a process.
#[derive(Debug)]
pub struct Client {
    thread: Thread,
    fs: Ext4,
    source: Source,
    sync_open: bool,
    operation_percent: u32,
    /// Start and end of the time in which operations are counted.
    measured: (Time, Time),
    writer: Option<WriterId>,
    directories: BTreeMap<Path, Directory>,
    files: BTreeMap<Path, Inode>,
    /// Open handles, each with its file; the handle of a directory has no file.
    open: BTreeMap<Handle, Option<Inode>>,
    /// Files that were unlinked while they were open.
    orphans: Vec<Inode>,
    /// Operation in progress, and the time at which it began; `None` between operations.
    op: Option<(Op, Time)>,
    state: State,
    pass_began: Option<Time>,
    /// Number of passes over the load that have begun.
    pub passes: u64,
    /// Results in the measured time.
    pub table: Table,
    done: bool,
}

#[derive(Debug)]
enum State {
    /// No operation is in progress.
    Next,
    /// The CPU time of the operation is being spent.
    Act,
    /// Writes the pages from `at` to `end`. `balances` says whether the client is being throttled.
    Writes {
        inode: Inode,
        at: u64,
        end: u64,
        balances: bool,
    },
    Syncs(FileSync),
    /// Removes these files, which have neither a name nor an open handle.
    Removes(Vec<Inode>),
    Truncates(Inode),
    /// The operation has ended.
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

    /// Takes the next step. Returns false if the client waits or has ended.
    fn step(&mut self, host: &mut Host) -> bool {
        let fs = self.fs.clone();
        match &mut self.state {
            State::Next => return self.begin(host),
            State::Act => {
                let (op, _) = self.op.expect("an operation is under way");
                self.state = self.act(host, op);
            }
            State::Writes { inode, at, end, balances } => {
                let writer = self.writer.expect("the client runs");
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
                let (op, began) = self.op.take().expect("an operation was under way");
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

    /// Applies an operation to the file system. Returns the client's next state, in which the
    /// operation continues or has ended.
    fn act(&mut self, host: &mut Host, op: Op) -> State {
        self.try_to(host, op).unwrap_or_else(|| {
            self.table.missed += 1;
            State::Over
        })
    }

    /// Variant of [`Self::act`] that returns `None` if a file or handle of the operation does not
    /// exist.
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
                // No load fsyncs a directory.
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

    /// The directory at this path, which is made if it does not exist. `None` stands for the
    /// directory in which the client's paths begin.
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

    /// Removes the name of a file. Returns the file if it is not open, so that it must be removed
    /// now; `None` otherwise.
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

    /// Handles the loss of a handle or name of a file. Returns the next state of the client, which
    /// removes the file if it has lost its last handle or name.
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

/// Stands for the directory in which a client's paths begin.
const TOP: Path = Path(u32::MAX);

impl Process for Client {
    fn run(&mut self, host: &mut Host, woken: Woken) {
        if self.done {
            return;
        }
        match (woken, &mut self.state) {
            (Woken::Done(FLUSHED), State::Syncs(sync)) => sync.flushed(),
            (Woken::Message(_), _) => self.thread.stop_sleeping(),
            _ => {}
        }
        self.writer.get_or_insert_with(|| host.add_writer(self.thread.pid(), 0));
        while self.thread.goes_on(host) && self.step(host) {}
    }

    fn is_done(&self) -> bool {
        self.done
    }
}
