//! `weft man`: where are the man pages?

use std::io::Write;
use std::path::PathBuf;

use clap::Args;

use crate::outcome::{Exit, Failure, Outcome};
use crate::terminal::stdout;

/// Writes man pages: weft(1) to standard output, or all of them into a directory
///
/// As in: weft man ~/.local/share/man/man1, or weft man | man -l -
#[derive(Debug, Args)]
pub(crate) struct Man {
    /// Where to put weft.1, weft-create.1 and so on; made if it does not exist
    #[arg(value_name = "DIR")]
    directory: Option<PathBuf>,
}

pub(crate) fn run(arguments: &Man, cli: clap::Command) -> Outcome {
    let cli = cli.disable_help_subcommand(true);
    let Some(directory) = &arguments.directory else {
        let page = render(cli)?;
        let mut out = stdout();
        out.write_all(&page)?;
        out.flush()?;
        return Ok(Exit::Done);
    };
    let failed = |error: std::io::Error| {
        Failure::failed(format!("{}: {error}", crate::member::label(directory)))
    };
    if directory.exists() && !directory.is_dir() {
        let label = crate::member::label(directory);
        return Err(Failure::failed(format!("{label}: is no directory; name one for the pages")));
    }
    std::fs::create_dir_all(directory).map_err(failed)?;
    clap_mangen::generate_to(cli, directory).map_err(failed)?;
    Ok(Exit::Done)
}

fn render(command: clap::Command) -> Result<Vec<u8>, Failure> {
    let mut page = Vec::new();
    clap_mangen::Man::new(command).render(&mut page)?;
    Ok(page)
}
