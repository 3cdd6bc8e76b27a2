//! Poisoning: after a panic in the engine or in a worker nothing more is acknowledged (F27).
//!
//! [`Guarded`] catches the panic and keeps its message. From then on it takes no input and gives no
//! output, because the state of the engine may be half changed. Exports learn of it
//! (`Port::on_poison`) and answer every request with an I/O error. Member requests in flight still
//! end, and their memory comes back. Superblocks are not written, so the arrays stay marked dirty
//! and are resynced at the next start.

use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind};

use weft_engine::{ComputeOp, Engine, Input, Output, Snapshot, Turn};
use weft_units::Time;

/// Interface of the engine to its driver, also implemented by stand-ins in tests.
pub trait Core: Send {
    /// Records an input for the next turn, as [`Engine::handle`] does.
    fn handle(&mut self, now: Time, input: Input);
    /// Takes at most `turns_max` turns and appends their outputs to `outputs`, as [`Engine::run`]
    /// does. Returns the work done, and whether more is left.
    fn run(&mut self, now: Time, turns_max: u32, outputs: &mut VecDeque<Output>) -> Turn;
    /// Gives back a list of operations that was carried out, so that its allocation is reused; see
    /// [`Engine::recycle`].
    fn recycle(&mut self, _ops: Vec<ComputeOp>) {}
    /// Time at which the engine has to be woken; `None` for no such time. See
    /// [`Engine::next_wake`].
    fn next_wake(&self) -> Option<Time>;
    /// State and counters of the engine; see [`Engine::snapshot`].
    fn snapshot(&self) -> Snapshot;
    /// Number of pages of the write-back cache that are dirty or under writeback; 0 without a
    /// cache.
    fn write_back_pages(&self) -> u64 {
        0
    }
}

impl Core for Engine {
    fn handle(&mut self, now: Time, input: Input) {
        Self::handle(self, now, input);
    }

    fn run(&mut self, now: Time, turns_max: u32, outputs: &mut VecDeque<Output>) -> Turn {
        Self::run(self, now, turns_max, outputs)
    }

    fn recycle(&mut self, ops: Vec<ComputeOp>) {
        Self::recycle(self, ops);
    }

    fn next_wake(&self) -> Option<Time> {
        Self::next_wake(self)
    }

    fn snapshot(&self) -> Snapshot {
        Self::snapshot(self)
    }

    fn write_back_pages(&self) -> u64 {
        Self::write_back_pages(self)
    }
}

/// An engine, or a stand-in for it, that is never called again after a panic.
pub struct Guarded {
    core: Box<dyn Core>,
    poison: Option<String>,
}

impl Guarded {
    /// Wraps a core, which is not poisoned yet.
    #[must_use]
    pub fn new(core: Box<dyn Core>) -> Self {
        Self { core, poison: None }
    }

    /// Message of the panic or other fault that has poisoned the core; `None` if it is not
    /// poisoned.
    #[must_use]
    pub fn poison(&self) -> Option<&str> {
        self.poison.as_deref()
    }

    /// Poisons the core as a panic does, unless it is poisoned already.
    pub fn set_poison(&mut self, message: &str) {
        if self.poison.is_none() {
            tracing::error!(message, "poisoned: nothing is acknowledged any more");
            self.poison = Some(message.to_owned());
        }
    }

    /// Runs `action`, which may panic. Returns `None` if it panics or if the core is poisoned.
    pub fn guard<T>(&mut self, action: impl FnOnce(&mut dyn Core) -> T) -> Option<T> {
        if self.poison.is_some() {
            return None;
        }
        let core = &mut *self.core;
        // Unwind safety: state that a panic leaves half changed is never read again.
        match catch_unwind(AssertUnwindSafe(|| action(core))) {
            Ok(value) => Some(value),
            Err(panic) => {
                let text = panic.downcast_ref::<String>().map(String::as_str);
                let text = text.or_else(|| panic.downcast_ref::<&str>().copied());
                self.set_poison(text.unwrap_or("a panic without a message"));
                None
            }
        }
    }
}
