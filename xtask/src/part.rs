//! Parts of a task: result and time of each.
//!
//! A part passes, fails or is skipped. Under `CI=1` (or `CI=true`) a skip counts as a failure: a
//! gate that silently tests less is worse than one that is red. A failed part does not stop the
//! later ones, unless they need it.

use std::path::Path;
use std::process::{Command, ExitCode, Stdio};
use std::time::{Duration, Instant};
use weft_testing::in_ci;

/// Result of a part.
pub(crate) enum Ending {
    /// It did not; with the reason in one line.
    Failed(String),
    /// It did what it should.
    Passed,
    /// It could not run here; with what is missing.
    Skipped(String),
}

/// The parts of one task so far.
#[derive(Default)]
pub(crate) struct Report {
    parts: Vec<(String, Ending, Duration)>,
}

impl Report {
    /// Runs one part; says whether it passed.
    pub(crate) fn part(&mut self, name: &str, run: impl FnOnce() -> Ending) -> bool {
        println!("\n━━ {name}");
        let start = Instant::now();
        let mut ending = run();
        if let Ending::Skipped(reason) = &ending
            && in_ci()
        {
            ending = Ending::Failed(format!("skipped in CI: {reason}"));
        }
        let took = start.elapsed();
        match &ending {
            Ending::Failed(reason) => println!("━━ {name}: FAILED, {reason}"),
            Ending::Passed => println!("━━ {name}: passed in {:.1} s", took.as_secs_f64()),
            Ending::Skipped(reason) => println!("━━ {name}: skipped, {reason}"),
        }
        let passed = matches!(ending, Ending::Passed);
        self.parts.push((name.to_owned(), ending, took));
        passed
    }

    /// Prints the time of each part and the closing count, which CI reads.
    pub(crate) fn finish(self) -> ExitCode {
        let (mut passed, mut failed, mut skipped) = (0, 0, 0);
        if !self.parts.is_empty() {
            println!("\n{:>8}  part", "seconds");
        }
        for (name, ending, took) in &self.parts {
            let note = match ending {
                Ending::Failed(reason) => {
                    failed += 1;
                    format!("  FAILED: {reason}")
                }
                Ending::Passed => {
                    passed += 1;
                    String::new()
                }
                Ending::Skipped(reason) => {
                    skipped += 1;
                    format!("  skipped: {reason}")
                }
            };
            println!("{:8.1}  {name}{note}", took.as_secs_f64());
        }
        if !self.parts.is_empty() {
            let total: Duration = self.parts.iter().map(|(_, _, took)| *took).sum();
            println!("{:8.1}  total", total.as_secs_f64());
            let skips = if skipped > 0 { format!(", {skipped} skipped") } else { String::new() };
            println!("\n{passed} passed, {failed} failed{skips}");
        }
        if failed == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
    }
}

/// Whether `program` can be found on `PATH` or where Debian keeps the administrator's programs.
pub(crate) fn has(program: &str) -> bool {
    let path = std::env::var("PATH").unwrap_or_default();
    path.split(':').chain(["/usr/sbin", "/sbin"]).any(|dir| Path::new(dir).join(program).exists())
}

/// `cargo` as it was called, in the workspace's root.
pub(crate) fn cargo(arguments: &[&str]) -> Command {
    let mut command = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    command.args(arguments).current_dir(crate::tree::root());
    command
}

/// Runs a command to its end, or ends it after `limit`.
///
/// In CI it gets a process group of its own, so that all it started is ended with it; at a terminal
/// it stays in ours, so that Ctrl-C reaches it.
pub(crate) fn run(mut command: Command, limit: Duration) -> Ending {
    use std::os::unix::process::CommandExt;
    let line = format!("{:?}", command.get_program());
    command.stdin(Stdio::null());
    if in_ci() {
        command.process_group(0);
    }
    let mut child = match command.spawn() {
        Ok(child) => child,
        Err(error) => return Ending::Failed(format!("{line}: {error}")),
    };
    let start = Instant::now();
    loop {
        match child.try_wait() {
            Ok(Some(status)) if status.success() => return Ending::Passed,
            // The exit status by which a suite says that this machine lacks something.
            Ok(Some(status)) if status.code() == Some(77) => {
                return Ending::Skipped("the suite says that it cannot run here".to_owned());
            }
            Ok(Some(status)) => return Ending::Failed(status.to_string()),
            Ok(None) if start.elapsed() > limit => {
                let group = if in_ci() { "-" } else { "" };
                let group = format!("{group}{}", child.id());
                for signal in ["-TERM", "-KILL"] {
                    let _ = Command::new("kill").args([signal, "--", &group]).status();
                    std::thread::sleep(Duration::from_secs(3));
                }
                let _ = child.wait();
                return Ending::Failed(format!("not done after {} s: ended", limit.as_secs()));
            }
            Ok(None) => std::thread::sleep(Duration::from_millis(20)),
            Err(error) => return Ending::Failed(format!("{line}: {error}")),
        }
    }
}
