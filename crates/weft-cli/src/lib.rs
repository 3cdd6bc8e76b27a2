//! The command line of weft: one file per subcommand.
//!
//! A subcommand is a clap `Args` struct, which is its documentation, and a `run` that returns an
//! [`Outcome`](weft_terminal::outcome::Outcome). Help, man pages and completions are generated from
//! the structs.
#![deny(unsafe_code)]

mod asked;
mod assembly;
mod bar;
mod built;
mod candidates;
mod command;
mod contents;
mod copies;
mod disks;
mod foreground;
mod image;
mod image_file;
mod inside;

mod configuration;
mod knobs;
mod look;
mod mdadm;
mod mdadm_conf;
mod member;
mod named_members;
mod new_array;
mod patience;
mod pattern;
mod reading;
mod reproduced;
mod result_kinds;
mod simulated;
mod size;
mod states;
mod superblock_json;
mod sync_action;
mod target;
mod trial;

mod volume;
mod volumes_file;
mod when;

use std::ffi::OsString;
use std::process::ExitCode;

use clap::{CommandFactory, Parser};
use weft_terminal::outcome::Failure;
use weft_terminal::program;

/// The Linux block write path in userspace: software RAID, served over NBD
///
/// weft reads and writes the arrays of Linux md. It makes them, looks into them, serves them over
/// NBD and keeps them whole, without root and without a kernel module.
#[derive(Debug, Parser)]
#[command(
    name = "weft",
    version,
    after_help = AFTER_HELP,
    max_term_width = 100
)]
struct Cli {
    #[command(subcommand)]
    command: command::Command,
}

const AFTER_HELP: &str = "\
A MEMBER is PATH (a file or block device), PATH#N (partition N of a disk or image, GPT or MBR, numbered \
as the kernel's), or PATH@OFFSET[+LENGTH] (a part; sizes take K, M, G, T or s and are multiples of \
512). A file that exists with exactly that name is meant by it, whatever characters it has.

Exit status: 0 done, 1 failed, 2 usage, 3 refused for safety (nothing written), 4 degraded (status) or a \
problem (doctor), \
5 mismatches found (check).
Start here: weft demo";

/// Runs the command line. Returns the exit status. Also answers a shell that asks for completions,
/// and reads a disk for another process of this program.
#[must_use]
pub fn main() -> ExitCode {
    if let Some(code) = weft_runtime::timed::reader(std::env::args_os()) {
        return code;
    }
    match candidates::answer(Cli::command) {
        Ok(false) => {}
        Ok(true) => return ExitCode::SUCCESS,
        // After an error, the script of the shell takes no candidates and shows no message.
        Err(error) => {
            eprintln!("weft: {}: {error}", candidates::VARIABLE);
            return ExitCode::FAILURE;
        }
    }
    let words: Vec<OsString> = std::env::args_os().skip(1).collect();
    match mdadm::told(&words) {
        Some(text) => program::end::<Cli>(Err(Failure::Usage(text))),
        None => program::run(|cli: &Cli| command::run(&cli.command, Cli::command)),
    }
}
