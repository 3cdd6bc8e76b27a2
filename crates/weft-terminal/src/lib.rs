//! Common parts of the programs `weft` and `weft-bench`: command line, output, result files, exit
//! status.
//!
//! - [`program`]: from the command line to the exit status
//! - [`outcome`]: the exit status of a command, or the failure that stopped it
//! - [`terminal`]: colours, progress bars, scratch directories, interruption
//! - [`result_file`]: files that a program writes for its user, which overwrite no other file
#![forbid(unsafe_code)]

pub mod outcome;
pub mod program;
pub mod result_file;
pub mod terminal;
