//! `weft completions`: prints a shell's completions for weft.

use clap::Args;
use clap_complete::Shell;
use weft_terminal::outcome::{Exit, Outcome};
use weft_terminal::terminal::stdout;

use std::io::Write;

/// Prints the completions of a shell, to be sourced by it
///
/// As in: weft completions bash > ~/.local/share/bash-completion/completions/weft
#[derive(Debug, Args)]
pub(crate) struct Completions {
    /// Which shell
    #[arg(value_enum)]
    shell: Shell,
}

pub(crate) fn run(arguments: &Completions, mut cli: clap::Command) -> Outcome {
    // The script is generated in memory, because the generator panics on a closed pipe.
    let mut script = Vec::new();
    clap_complete::generate(arguments.shell, &mut cli, "weft", &mut script);
    let mut out = stdout();
    out.write_all(&script)?;
    out.flush()?;
    Ok(Exit::Done)
}
