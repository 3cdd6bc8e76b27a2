//! XOR, P+Q syndromes and recovery as md computes them.
//!
//! The functions are pure and work on byte slices: no allocation, no I/O, no state except the
//! choice of kernels and of their strategy, which [`Parity::detect`] makes once. Slices may have
//! any length and any alignment.
//!
//! | Part | File |
//! |---|---|
//! | choice of kernels and strategy | `parity.rs`, `level.rs` |
//! | P and its updates | `xor.rs` |
//! | P and Q and their updates | `pq.rs` |
//! | recovery of lost strips | `recover.rs` |
//! | comparison, location of a wrong strip | `compare.rs` |
//! | order of reads, kind of stores, by CPU | `strategy.rs` |
//! | vector kernels | `simd/` |
//! | their scalar reference | `scalar.rs` |
//! | strips and their exponents | `strips.rs` |
//! | arithmetic of the field | `gf.rs` |
//!
//! # Exponents
//!
//! P is the XOR of all data strips. Q is the sum of gᵏ·D over all data strips D, where the exponent
//! k stands for the position of the strip. Callers pass the exponent with each strip. Two orders
//! are in use:
//!
//! - md order: the data strips count 0, 1, 2, … cyclically from the member after Q.
//! - DDF order: the exponent is the slot, so P and Q leave gaps.
//!
//! ```
//! use weft_parity::Parity;
//!
//! let parity = Parity::detect();
//! let strips = [b"warp".as_slice(), b"weft", b"yarn"];
//! let data = [(0, strips[0]), (1, strips[1]), (2, strips[2])];
//! let (mut p, mut q) = ([0; 4], [0; 4]);
//! parity.pq(&data, &mut p, &mut q);
//!
//! // Strips 0 and 2 are lost.
//! let (mut first, mut third) = ([0; 4], [0; 4]);
//! parity.recover_two(&data[1..2], &p, &q, 0, 2, &mut first, &mut third);
//! assert_eq!((&first, &third), (b"warp", b"yarn"));
//! ```
//!
//! Source: H. P. Anvin, "The mathematics of RAID-6"; exponents: md-raid.md §5.2.
#![deny(unsafe_code)]
#![deny(missing_docs)]

mod compare;
pub mod gf;
mod level;
mod parity;
mod pq;
mod recover;
mod scalar;
#[allow(unsafe_code, reason = "vector loads and stores, and calls that need a CPU feature")]
mod simd;
mod strategy;
mod strips;
mod xor;

pub use compare::{Located, Mismatch};
pub use level::Level;
pub use parity::Parity;
pub use strategy::{Maker, Strategy};
