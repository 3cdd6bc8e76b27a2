//! `weft bench`: how fast weft is, next to what else does the same.
//!
//! What is measured is in `weft-bench`. Here are the options of each benchmark, the table and the
//! JSON of its rows, and the volumes that weft makes and serves for it.

mod arguments;
mod peers;
mod table;

pub(crate) use arguments::{Bench, run};
