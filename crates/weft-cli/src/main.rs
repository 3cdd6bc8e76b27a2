//! The command line of weft: one file per subcommand.
//!
//! A subcommand is a clap `Args` struct, which is its documentation, and a `run` that returns an
//! [`outcome::Outcome`]. Help, man pages and completions are generated from the structs.
#![deny(unsafe_code)]

mod assembly;
mod command;
mod ending;
mod inside;
mod knobs;
mod look;
mod member;
mod named_members;
mod new_array;
mod outcome;
mod patience;
mod pattern;
mod reproduced;
mod result_file;
mod simulated;
mod size;
mod states;
mod superblock_json;
mod sync_action;
mod target;
mod terminal;
mod unreadable;
mod volume;
mod when;

use std::ffi::OsString;
use std::io::ErrorKind;
use std::process::ExitCode;
use std::sync::Arc;

use clap::error::{ContextKind, ContextValue};
use clap::{CommandFactory, Parser};
use signal_hook::consts::SIGXFSZ;

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

Exit status: 0 done, 1 failed, 2 usage, 3 refused for safety (nothing written), 4 degraded (status), \
5 mismatches found (check).
Start here: weft demo";

/// Parses the command line. clap's `help` accepts no options: `help --help` is treated as `help
/// help`, which prints the help of `help`, and `help COMMAND --help` as `help COMMAND`.
fn parse() -> Result<Cli, clap::Error> {
    let mut words: Vec<OsString> = std::env::args_os().collect();
    let parsed = Cli::try_parse_from(&words);
    let is_option = |word: &str| ["--help", "-h"].contains(&word);
    // Every command except `help` knows these options.
    let unknown = parsed.as_ref().err().and_then(|error| error.get(ContextKind::InvalidSubcommand));
    if !matches!(unknown, Some(ContextValue::String(word)) if is_option(word)) {
        return parsed;
    }
    words.retain(|word| !word.to_str().is_some_and(is_option));
    if words.iter().position(|word| word == "help") == Some(words.len() - 1) {
        words.push("help".into());
    }
    Cli::try_parse_from(&words)
}

fn main() -> ExitCode {
    // With a handler, a write beyond the limit on file sizes fails with an error like that of a
    // full disk; without a handler, the signal kills the process, and the volume stays dirty
    // without any message.
    let _ = signal_hook::flag::register(SIGXFSZ, Arc::default());
    let cli = match parse() {
        Ok(cli) => cli,
        Err(error) => {
            // Help and version go to standard output and are no error.
            let status = u8::try_from(error.exit_code()).unwrap_or(2);
            if error.use_stderr() && ending::wants_json(std::env::args_os()) {
                ending::print_error(status, &error.to_string());
            }
            return match error.print() {
                Err(error) if error.kind() != ErrorKind::BrokenPipe => {
                    ExitCode::from(status.max(1))
                }
                _ => ExitCode::from(status),
            };
        }
    };
    let result = command::run(&cli.command, Cli::command);
    terminal::wait_if_interrupted();
    ending::finish(result, ending::wants_json(std::env::args_os()))
}
