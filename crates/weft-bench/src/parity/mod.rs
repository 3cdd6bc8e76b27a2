//! Parity benchmark: XOR, P+Q and the rebuilding of two lost strips, against ISA-L.
//!
//! One thread works through the stripes of an arena, which are contiguous: 640 KiB of stripes for
//! "in L2" (a second-level cache of 1 MiB holds them), hundreds of MiB for "from DRAM" (a stripe
//! has left all caches before it is processed again). The figure is bytes of source data per second
//! of CPU time. Before a case is measured, both results are compared byte by byte.

#[allow(unsafe_code, reason = "advice to the kernel about memory")]
mod arena;
#[allow(unsafe_code, reason = "calls into a C library that is loaded at run time")]
mod isal;
mod measure;

pub use measure::ParityLoad;
