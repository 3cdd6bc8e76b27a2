//! Overlays of `weft serve`: collected, committed or discarded changes.
//!
//! `serve --overlay DIR` collects changes; `--commit-overlay` writes them to the members, and
//! `--discard-overlay` drops them. Neither serves anything.

use std::io::Write;
use std::path::{Path, PathBuf};

use clap::Args;
use weft_runtime::commit::{Commit, discard};
use weft_runtime::devices::{Access, MemberSpec};
use weft_terminal::outcome::{Exit, Failure, Outcome};
use weft_terminal::terminal::{complain, progress, stdout};
use weft_units::Bytes;

use crate::reading::Reading;
use crate::size;
use crate::volume;

/// Destination of changes.
#[derive(Debug, Args)]
pub(crate) struct Overlay {
    /// Write changes to files in this directory, and never to a member; a newly degraded set needs
    /// no --run then
    #[arg(long = "overlay", value_name = "DIR")]
    pub(crate) dir: Option<PathBuf>,
    /// Write the changes in the overlay to the members, remove the overlay, and serve nothing.
    /// After an interruption, run it again
    #[arg(long, requires = "dir", conflicts_with_all = ["read_only", "exec", "listen"])]
    pub(crate) commit_overlay: bool,
    /// Drop the changes in the overlay, and serve nothing
    #[arg(long, requires = "dir", conflicts_with_all = ["commit_overlay", "exec", "listen"])]
    discard_overlay: bool,
    /// With --commit-overlay: only say what would be written
    #[arg(long, requires = "commit_overlay")]
    dry_run: bool,
}

impl Overlay {
    /// Commits or discards the overlay if an option asks for it, and returns the outcome; `None` if
    /// no option does.
    pub(crate) fn end(&self, paths: &[PathBuf], reading: &Reading) -> Option<Outcome> {
        let dir = self.dir.as_ref()?;
        let specs = paths.iter().map(|path| reading.apply(volume::spec(path)));
        let specs: Vec<MemberSpec> = specs.collect();
        if self.commit_overlay {
            return Some(commit(dir, &specs, self.dry_run));
        }
        self.discard_overlay.then(|| drop_changes(dir, &specs))
    }
}

fn commit(dir: &Path, specs: &[MemberSpec], dry_run: bool) -> Outcome {
    let access = if dry_run { Access::ReadOnly } else { Access::ReadWrite };
    let commit = Commit::open(dir, specs, access).map_err(|error| volume::device(&error))?;
    let plans = commit.plans();
    if plans.is_empty() {
        // If only some members have an overlay here, the others may never have had one.
        if commit.committed().len() < specs.len() {
            return Err(none(dir));
        }
        let mut out = stdout();
        writeln!(out, "nothing to commit: already committed")?;
        out.flush()?;
        return Ok(Exit::Done);
    }
    for label in commit.unchanged() {
        complain(&format!("{label}: has no overlay in {} and stays as it is", dir.display()));
    }
    let mut out = stdout();
    if dry_run {
        for plan in &plans {
            let begun = if plan.begun { " (a commit was begun before)" } else { "" };
            writeln!(
                out,
                "would write {} of {} into {}{begun}",
                size::human(plan.bytes),
                plan.overlay.display(),
                plan.label
            )?;
        }
        out.flush()?;
        return Ok(Exit::Done);
    }
    let all = plans.iter().map(|plan| plan.bytes.0).sum();
    let bar = progress("commit", all);
    let done = commit.run(&mut |Bytes(bytes)| bar.inc(bytes));
    bar.finish_and_clear();
    done.map_err(|error| {
        Failure::failed(format!("{error}; the overlays are kept: do it again once that is mended"))
    })?;
    for plan in &plans {
        writeln!(out, "wrote {} into {}", size::human(plan.bytes), plan.label)?;
    }
    out.flush()?;
    Ok(Exit::Done)
}

fn drop_changes(dir: &Path, specs: &[MemberSpec]) -> Outcome {
    let removed = discard(dir, specs).map_err(|error| volume::device(&error))?;
    if removed.is_empty() {
        return Err(none(dir));
    }
    let mut out = stdout();
    for path in removed {
        writeln!(out, "removed {}", path.display())?;
    }
    out.flush()?;
    Ok(Exit::Done)
}

fn none(dir: &Path) -> Failure {
    Failure::failed(format!(
        "--overlay {}: found no overlay of these members, expected at least one",
        dir.display()
    ))
}
