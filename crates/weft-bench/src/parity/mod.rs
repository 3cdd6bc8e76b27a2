//! Parity benchmark: XOR, P+Q and the rebuilding of two lost strips, against ISA-L.
//!
//! One thread works through stripes of an arena, whose strips lie one behind the other: 640 KiB of
//! stripes for "in L2" (a second-level cache of 1 MiB keeps them), hundreds of MiB for "from DRAM"
//! (no cache keeps anything until it comes around again). The figure is bytes of source data for
//! each second of CPU time. Before a case is measured, both results are compared byte by byte.

#[allow(unsafe_code, reason = "advice to the kernel about memory")]
mod arena;
#[allow(unsafe_code, reason = "calls into a C library that is loaded at run time")]
mod isal;
mod measure;

pub use measure::ParityLoad;
