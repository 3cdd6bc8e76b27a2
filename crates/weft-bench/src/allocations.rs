//! Count of a thread's heap allocations, for tests of code that must not allocate.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

/// The system's allocator, which also counts the allocations of each thread.
struct Counting;

thread_local! {
    static COUNT: Cell<u64> = const { Cell::new(0) };
}

/// Number of allocations of this thread so far.
pub(crate) fn allocations() -> u64 {
    COUNT.with(Cell::get)
}

// SAFETY: every call is passed unchanged to the system's allocator, which fulfils the contract.
unsafe impl GlobalAlloc for Counting {
    // SAFETY: the caller's promise is that of `System::alloc`.
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        COUNT.with(|count| count.set(count.get() + 1));
        // SAFETY: as the caller promised.
        unsafe { System.alloc(layout) }
    }

    // SAFETY: the caller's promise is that of `System::dealloc`.
    unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
        // SAFETY: `block` came from `System`, which makes all allocations of this allocator.
        unsafe { System.dealloc(block, layout) }
    }
}

#[global_allocator]
static COUNTING: Counting = Counting;
