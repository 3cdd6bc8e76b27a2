//! Program `weft-bench`: the command line of the benchmarks.
//!
//! The measurements are in the library. The program has the options of each benchmark, and the
//! table and the JSON of its rows.
#![deny(unsafe_code)]

mod arguments;
mod table;

use std::process::ExitCode;

use weft_terminal::program;

fn main() -> ExitCode {
    program::run(arguments::run)
}
