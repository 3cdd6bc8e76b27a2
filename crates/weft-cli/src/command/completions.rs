//! `weft completions`: prints a shell's completions for weft.

use clap::Args;
use weft_terminal::outcome::{Exit, Failure, Outcome};
use weft_terminal::terminal::stdout;

use crate::candidates::{SHELLS, VARIABLE};

use std::io::Write;

/// Prints the completions of a shell, to be sourced by it
///
/// They complete commands, options, running volumes and their members, knobs and values, and paths.
/// The script asks the weft that is on PATH, so that it stays as it is when weft is updated.
///
/// As in: weft completions bash > ~/.local/share/bash-completion/completions/weft
#[derive(Debug, Args)]
pub(crate) struct Completions {
    /// Which shell
    #[arg(value_parser = clap::builder::PossibleValuesParser::new(SHELLS.names()))]
    shell: String,
}

pub(crate) fn run(arguments: &Completions) -> Outcome {
    let shell = &arguments.shell;
    let known = SHELLS.completer(shell);
    let shell = known.ok_or_else(|| Failure::usage(format!("{shell}: no such shell")))?;
    // The script is generated in memory, because a pipe may be closed.
    let mut script = Vec::new();
    shell.write_registration(VARIABLE, "weft", "weft", "weft", &mut script)?;
    let mut out = stdout();
    out.write_all(&script)?;
    out.flush()?;
    Ok(Exit::Done)
}
