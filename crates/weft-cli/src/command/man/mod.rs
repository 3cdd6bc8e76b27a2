//! `weft man`: writes the man pages.

use std::io::Write;
use std::path::PathBuf;

use clap::Args;
use weft_terminal::outcome::{Exit, Failure, Outcome};
use weft_terminal::result_file::{Output, ResultFile};
use weft_terminal::terminal::{label, stdout};

use crate::result_kinds::MAN_PAGE;

use sections::{ENVIRONMENT, EXAMPLES, FILES, is_of_volumes};

mod sections;

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

/// Man page of a command, as roff. The title, description and options are those of clap's
/// generator; the synopsis is the usage text of the help.
fn render(command: &clap::Command) -> Result<Vec<u8>, Failure> {
    let source = concat!("weft ", env!("CARGO_PKG_VERSION"));
    let man = clap_mangen::Man::new(command.clone()).source(source);
    let is_program = command.has_subcommands();
    let mut page = Vec::new();
    man.render_title(&mut page)?;
    man.render_name_section(&mut page)?;
    let usage = command.clone().render_usage().to_string();
    let usage: Vec<&str> = usage.trim_start_matches("Usage:").lines().map(str::trim).collect();
    heading(&mut page, "SYNOPSIS")?;
    writeln!(page, ".nf")?;
    for line in usage {
        writeln!(page, "{}", escaped(line))?;
    }
    writeln!(page, ".fi")?;
    man.render_description_section(&mut page)?;
    man.render_options_section(&mut page)?;
    if is_program {
        man.render_subcommands_section(&mut page)?;
    }
    let after = command.get_after_long_help().or_else(|| command.get_after_help());
    if let Some(after) = after.map(ToString::to_string) {
        after_help(&mut page, &after)?;
    }
    let examples = EXAMPLES.iter().find(|examples| examples.command == command.get_name());
    if let Some(examples) = examples {
        definitions(&mut page, "EXAMPLES", examples.lines)?;
    }
    if is_of_volumes(command) {
        definitions(&mut page, "FILES", FILES)?;
        definitions(&mut page, "ENVIRONMENT", ENVIRONMENT)?;
    }
    heading(&mut page, "SEE ALSO")?;
    let also = if is_program { "mdadm(8), nbd-client(8), qemu-img(1)" } else { "weft(1)" };
    writeln!(page, "{}", escaped(also))?;
    Ok(in_ascii(&String::from_utf8_lossy(&page)).into_bytes())
}

/// Writes characters beyond ASCII as escapes, which groff and mandoc read in any locale.
fn in_ascii(page: &str) -> String {
    let mut text = String::with_capacity(page.len());
    for char in page.chars() {
        match char {
            char if char.is_ascii() => text.push(char),
            char => text.push_str(&format!("\\[u{:04X}]", u32::from(char))),
        }
    }
    text
}

/// Writes the text after the options of a help. A line with a colon at its end, or text after `Exit
/// status:`, begins a section. Indented lines are terms, and lines with a deeper indent are the
/// texts of terms.
fn after_help(page: &mut Vec<u8>, text: &str) -> Result<(), Failure> {
    let lines: Vec<&str> = text.lines().filter(|line| !line.is_empty()).collect();
    if lines.first().is_some_and(|line| !line.ends_with(':')) {
        heading(page, "NOTES")?;
    }
    for (index, line) in lines.iter().enumerate() {
        let indent = |line: &str| line.len() - line.trim_start().len();
        let next = lines.get(index + 1).map_or(0, |next| indent(next));
        let text = escaped(line.trim_start());
        if let Some(title) = line.strip_suffix(':').filter(|_| indent(line) == 0) {
            heading(page, &title.to_uppercase())?;
        } else if let Some(statuses) = line.strip_prefix("Exit status: ") {
            heading(page, "EXIT STATUS")?;
            writeln!(page, "{}", escaped(statuses))?;
        } else if indent(line) > 2 {
            writeln!(page, "{text}\n.br")?;
        } else if next > 2 {
            writeln!(page, ".TP\n\\fB{text}\\fR")?;
        } else {
            writeln!(page, ".PP\n{text}")?;
        }
    }
    Ok(())
}

/// Writes the line that begins a section.
fn heading(page: &mut Vec<u8>, title: &str) -> Result<(), Failure> {
    Ok(writeln!(page, ".SH \"{title}\"")?)
}

/// Writes a section that consists of terms, each with its text.
fn definitions(page: &mut Vec<u8>, title: &str, rows: &[(&str, &str)]) -> Result<(), Failure> {
    heading(page, title)?;
    for (term, text) in rows {
        writeln!(page, ".TP\n\\fB{}\\fR\n{}", escaped(term), escaped(text))?;
    }
    Ok(())
}

/// Line of text for roff, with special characters escaped. A dot or quote at its start would
/// otherwise be taken for a request.
fn escaped(line: &str) -> String {
    format!("\\&{}", line.replace('\\', "\\e").replace('-', "\\-").replace('\'', "\\(aq"))
}
