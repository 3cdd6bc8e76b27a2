//! The table of subcommands.

mod assemble;
mod completions;
mod create;
mod detail;
mod examine;
mod man;

use clap::Subcommand;

use crate::outcome::Outcome;

/// Every subcommand, in the order in which a volume's life needs them.
#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    Create(create::Create),
    Examine(examine::Examine),
    Detail(detail::Detail),
    Assemble(assemble::Assemble),
    Completions(completions::Completions),
    Man(man::Man),
}

/// Does what was asked. `cli` describes the whole command line.
pub(crate) fn run(command: &Command, cli: fn() -> clap::Command) -> Outcome {
    match command {
        Command::Create(arguments) => create::run(arguments),
        Command::Examine(arguments) => examine::run(arguments),
        Command::Detail(arguments) => detail::run(arguments),
        Command::Assemble(arguments) => assemble::run(arguments),
        Command::Completions(arguments) => completions::run(arguments, cli()),
        Command::Man(arguments) => man::run(arguments, cli()),
    }
}
