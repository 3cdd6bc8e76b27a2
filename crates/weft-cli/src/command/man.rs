//! `weft man`: writes the man pages.

use std::io::Write;
use std::path::PathBuf;

use clap::Args;
use weft_terminal::outcome::{Exit, Failure, Outcome};
use weft_terminal::result_file::{Output, ResultFile};
use weft_terminal::terminal::{label, stdout};

use crate::result_kinds::MAN_PAGE;

/// Writes man pages: weft(1) to standard output, or all of them into a directory
///
/// As in: weft man ~/.local/share/man/man1, or weft man | man -l -
#[derive(Debug, Args)]
pub(crate) struct Man {
    /// Where to put weft.1, weft-create.1 and so on; made if it does not exist
    #[arg(value_name = "DIR")]
    directory: Option<PathBuf>,
    /// Overwrite man pages of weft that are there
    #[arg(long, requires = "directory")]
    force: bool,
}

pub(crate) fn run(arguments: &Man, cli: clap::Command) -> Outcome {
    let mut cli = cli.disable_help_subcommand(true);
    cli.build();
    let Some(directory) = &arguments.directory else {
        let page = render(&cli)?;
        let mut out = stdout();
        out.write_all(&page)?;
        out.flush()?;
        return Ok(Exit::Done);
    };
    let failed = |error: std::io::Error| Failure::failed(format!("{}: {error}", label(directory)));
    if directory.exists() && !directory.is_dir() {
        let label = label(directory);
        return Err(Failure::failed(format!("{label}: is no directory; name one for the pages")));
    }
    std::fs::create_dir_all(directory).map_err(failed)?;
    let mut pages = Vec::new();
    for command in std::iter::once(&cli).chain(cli.get_subcommands()) {
        let name = command.get_display_name().unwrap_or_else(|| command.get_name());
        let path = directory.join(format!("{name}.1"));
        let (force, kind) = (arguments.force, MAN_PAGE);
        let asked = Output { option: "man", path: &path, kind, force, members: &[] };
        pages.push((ResultFile::at(&asked)?, render(command)?));
    }
    for (file, page) in pages {
        file.write(&page)?;
    }
    Ok(Exit::Done)
}

/// Renders a page. The synopsis and the sections after the options are not those of clap's
/// generator: the synopsis is the usage text of the help, and the sections keep their line breaks.
fn render(command: &clap::Command) -> Result<Vec<u8>, Failure> {
    let source = concat!("weft ", env!("CARGO_PKG_VERSION"));
    let man = clap_mangen::Man::new(command.clone()).source(source);
    let mut page = Vec::new();
    man.render_title(&mut page)?;
    man.render_name_section(&mut page)?;
    let usage = command.clone().render_usage().to_string();
    let usage: Vec<&str> = usage.trim_start_matches("Usage:").lines().map(str::trim).collect();
    section(&mut page, "SYNOPSIS", &usage)?;
    man.render_description_section(&mut page)?;
    man.render_options_section(&mut page)?;
    if command.has_subcommands() {
        man.render_subcommands_section(&mut page)?;
    }
    let after = command.get_after_long_help().or_else(|| command.get_after_help());
    if let Some(after) = after.map(ToString::to_string) {
        let title = if command.has_subcommands() { "EXIT STATUS" } else { "KNOBS" };
        section(&mut page, title, &after.lines().collect::<Vec<_>>())?;
    }
    Ok(page)
}

/// Writes a section of the page. Its lines are not filled, so they break as they are.
fn section(page: &mut Vec<u8>, title: &str, lines: &[&str]) -> Result<(), Failure> {
    writeln!(page, ".SH \"{title}\"\n.nf")?;
    for line in lines {
        // A dot or quote at the start of a line would be a roff request.
        writeln!(page, "\\&{}", line.replace('\\', "\\e").replace('-', "\\-"))?;
    }
    writeln!(page, ".fi")?;
    Ok(())
}
