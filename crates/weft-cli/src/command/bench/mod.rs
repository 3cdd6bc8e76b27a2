//! `weft bench`: the speed of weft beside that of comparable programs.
//!
//! The measurements are in `weft-bench`. This module has the options of each benchmark, the table
//! and the JSON of its rows, and the volumes that weft creates and serves for it.

mod arguments;
mod peers;
mod table;

pub(crate) use arguments::{Bench, run};
