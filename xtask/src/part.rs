//! Parts of a task, with result and duration of each.
//!
//! A part passes, fails or is skipped. Under `CI=1` (or `CI=true`) a skip counts as a failure: a
//! gate that silently tests less is worse than a red one. Parts after a failed part still run,
//! unless they need it.
//!
//! A part may run beside the parts that follow. A part that measures by a clock has priority on the
//! CPUs over them; a part that only computes gets the CPU time that they leave. Parts that mostly
//! wait may run side by side. The output of each part is printed when the part ends.

use crate::costs;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};
use std::sync::Mutex;
use std::sync::mpsc::channel;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};
use weft_testing::in_ci;

/// Result of a part.
pub(crate) enum Ending {
    /// The part failed, for this reason, in one line.
    Failed(String),
    /// The part succeeded.
    Passed,
    /// The part cannot run here, because this requirement is missing.
    Skipped(String),
}

/// Parts of one task that have run so far, with their results.
pub(crate) struct Report {
    parts: Vec<(String, Ending, Duration)>,
    /// Names of failed parts, each with the last lines of its output.
    tails: Vec<(String, String)>,
    beside: Vec<Beside>,
    /// Names of parts with [`Claim::Last`]. Their duration is not judged, because it depends on the
    /// other parts.
    last: Vec<String>,
    started: usize,
    /// Number of parts that the task has; 0 if the task does not know it.
    of: usize,
    costs: Vec<costs::Cost>,
    start: Instant,
}

/// Part that runs beside others.
struct Beside {
    name: String,
    /// File to which the output of the part goes.
    log: PathBuf,
    work: JoinHandle<(Ending, Duration)>,
    claim: Claim,
}

/// Claim of a part to the CPUs, relative to the parts beside which it runs.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Claim {
    /// Claim of a part that measures by a clock: the following parts get the CPU time that it
    /// leaves.
    First,
    /// Claim of a part that only computes: it gets the CPU time that the following parts leave.
    Last,
}

/// Part for [`Report::side_by_side`].
pub(crate) struct Job {
    pub(crate) name: String,
    /// File to which the output of the part goes.
    pub(crate) log: PathBuf,
    pub(crate) work: Box<dyn FnOnce(File) -> Ending + Send>,
}

impl Default for Report {
    fn default() -> Self {
        Self::of(0)
    }
}

impl Report {
    /// Creates the report of a task with `count` parts.
    pub(crate) fn of(count: usize) -> Self {
        // A test checks that the table can be read; parts run without it.
        let costs = costs::table().unwrap_or_default();
        let (parts, tails, beside, last) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
        Self { parts, tails, beside, last, started: 0, of: count, costs, start: Instant::now() }
    }

    /// Prints the name of the part that begins, its number, and its usual duration.
    fn begin(&mut self, name: &str, how: &str) {
        self.started += 1;
        let number = match self.of {
            0 => String::new(),
            of => format!("{} of {of}: ", self.started),
        };
        let cost = self.costs.iter().find(|cost| cost.part == name);
        let about = cost.map(|cost| format!(", {}", cost.about())).unwrap_or_default();
        println!("\n━━ {number}{name}{about}{how}");
    }

    /// Runs a part. Returns whether it passed.
    pub(crate) fn part(&mut self, name: &str, run: impl FnOnce() -> Ending) -> bool {
        self.begin(name, "");
        let start = Instant::now();
        let ending = run();
        let passed = self.end(name, ending, start.elapsed());
        self.gather(Beside::has_ended);
        passed
    }

    /// Starts a part that runs beside the following parts; its output goes to `log`.
    pub(crate) fn beside<W>(&mut self, name: &str, log: &Path, claim: Claim, work: W)
    where
        W: FnOnce(File) -> Ending + Send + 'static,
    {
        self.begin(name, ", beside those that follow");
        let file = match File::create(log) {
            Ok(file) => file,
            Err(error) => {
                let ending = Ending::Failed(format!("{}: {error}", log.display()));
                self.end(name, ending, Duration::ZERO);
                return;
            }
        };
        let start = Instant::now();
        let work = std::thread::spawn(move || {
            if claim == Claim::Last {
                change(&["chrt", "--idle", "--pid", "0"]);
            }
            (work(file), start.elapsed())
        });
        self.beside.push(Beside { name: name.to_owned(), log: log.to_owned(), work, claim });
        match claim {
            // The lab measures dirty pages by its clock.
            Claim::First => change(&["renice", "-n", "19", "-p"]),
            Claim::Last => self.last.push(name.to_owned()),
        }
    }

    /// Runs parts side by side, `workers` at a time, longest first. Returns whether all passed.
    pub(crate) fn side_by_side(&mut self, mut jobs: Vec<Job>, workers: usize) -> bool {
        let seconds = |name: &str| {
            self.costs.iter().find(|cost| cost.part == name).map_or(0, |cost| cost.seconds)
        };
        // Jobs are popped from the end, so the longest is last.
        jobs.sort_by_key(|job| seconds(&job.name));
        let left = Mutex::new(jobs);
        let next = || left.lock().expect("no worker panics").pop();
        let (sender, receiver) = channel();
        let mut passed = true;
        std::thread::scope(|scope| {
            for _ in 0..workers {
                let (sender, next) = (sender.clone(), &next);
                scope.spawn(move || {
                    while let Some(Job { name, log, work }) = next() {
                        let _ = sender.send((name.clone(), log.clone(), None));
                        let start = Instant::now();
                        let ending = match File::create(&log) {
                            Ok(file) => work(file),
                            Err(error) => Ending::Failed(format!("{}: {error}", log.display())),
                        };
                        let _ = sender.send((name, log, Some((ending, start.elapsed()))));
                    }
                });
            }
            drop(sender);
            for (name, log, ended) in receiver {
                match ended {
                    None => self.begin(&name, ", beside another"),
                    Some((ending, took)) => passed &= self.end_with(&name, &log, ending, took),
                }
            }
        });
        passed
    }

    /// Whether the part of that name ran and passed.
    pub(crate) fn has_passed(&self, name: &str) -> bool {
        let passed = |(part, ending, _): &(String, Ending, Duration)| {
            part == name && matches!(ending, Ending::Passed)
        };
        self.parts.iter().any(passed)
    }

    /// Whether any part was skipped so far.
    pub(crate) fn has_skipped(&self) -> bool {
        self.parts.iter().any(|(_, ending, _)| matches!(ending, Ending::Skipped(_)))
    }

    /// Waits until only parts with [`Claim::Last`] are left to run beside the next part.
    pub(crate) fn alone(&mut self) {
        self.gather(|it| it.claim == Claim::First);
    }

    /// Waits for the parts beside others for which `which` is true, and prints their output.
    fn gather(&mut self, which: impl Fn(&Beside) -> bool) {
        let (taken, left) = std::mem::take(&mut self.beside).into_iter().partition(which);
        self.beside = left;
        let taken: Vec<Beside> = taken;
        let is_first = |it: &Beside| it.claim == Claim::First;
        let last = taken.iter().any(is_first) && !self.beside.iter().any(is_first);
        for Beside { name, log, work, .. } in taken {
            let (ending, took) = work
                .join()
                .unwrap_or_else(|_| (Ending::Failed("it panicked".to_owned()), Duration::ZERO));
            self.end_with(&name, &log, ending, took);
        }
        if last {
            change(&["renice", "-n", "0", "-p"]);
        }
    }

    /// Ends a part that ran beside others: prints its output, and keeps the last lines of a part
    /// that failed for the end of the report. Returns whether the part passed.
    fn end_with(&mut self, name: &str, log: &Path, ending: Ending, took: Duration) -> bool {
        let text = match std::fs::read(log) {
            Ok(text) => String::from_utf8_lossy(&text).into_owned(),
            Err(error) => format!("{}: {error}\n", log.display()),
        };
        print!("\n━━ {name}, which went on beside others, printed:\n{text}");
        let passed = self.end(name, ending, took);
        if !passed {
            let lines: Vec<&str> = text.lines().collect();
            let tail = &lines[lines.len().saturating_sub(TAIL)..];
            self.tails.push((name.to_owned(), tail.join("\n")));
        }
        passed
    }

    /// Prints the result of a part and stores it in the report. Returns whether the part passed.
    fn end(&mut self, name: &str, mut ending: Ending, took: Duration) -> bool {
        if let Ending::Skipped(reason) = &ending
            && in_ci()
        {
            ending = Ending::Failed(format!("skipped in CI: {reason}"));
        }
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
    pub(crate) fn finish(mut self) -> ExitCode {
        self.gather(|_| true);
        let (mut passed, mut failed, mut skipped) = (0, 0, 0);
        if !self.parts.is_empty() {
            println!("\n{:>8}  part", "seconds");
        }
        for (name, ending, took) in &self.parts {
            let note = match ending {
                Ending::Failed(_) => {
                    failed += 1;
                    "  FAILED".to_owned()
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
        for (name, tail) in &self.tails {
            println!("\n━━ {name} ended with:\n{tail}");
        }
        if !self.parts.is_empty() {
            println!("{:8.1}  from start to end", self.start.elapsed().as_secs_f64());
            for slow in self.parts.iter().filter_map(|(name, _, took)| self.slow(name, *took)) {
                println!("{slow}");
            }
            if failed == 0 && self.of != 0 && self.of != self.parts.len() {
                let (found, of) = (self.parts.len(), self.of);
                failed += 1;
                println!("FAILED: found {found} parts, expected {of}: see the table of costs");
            }
            for (name, ending, _) in &self.parts {
                if let Ending::Failed(reason) = ending {
                    println!("FAILED: {name}, {reason}");
                }
            }
            let skips = if skipped > 0 { format!(", {skipped} skipped") } else { String::new() };
            println!("\n{passed} passed, {failed} failed{skips}");
        }
        if failed == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
    }

    /// Warning about a part that took much longer than usual; `None` for other parts.
    fn slow(&self, name: &str, took: Duration) -> Option<String> {
        let cost = self.costs.iter().find(|cost| cost.part == name)?;
        cost.exceeded_by(took).filter(|_| !self.last.iter().any(|last| last == name))
    }
}

/// Number of lines of a failed part's output that the end of a report repeats.
const TAIL: usize = 20;

/// Changes the scheduling of this thread and of the programs that it starts, with the command
/// `words`, to which the thread's number is appended. Lowering the niceness again requires
/// privileges: without them later parts keep it, and get as little CPU time as a part with
/// [`Claim::Last`].
fn change(words: &[&str]) {
    let thread = std::fs::read_link("/proc/thread-self").unwrap_or_default();
    let number = thread.file_name().unwrap_or_default();
    let mut command = Command::new(words[0]);
    command.args(&words[1..]).arg(number).stdout(Stdio::null()).stderr(Stdio::null());
    if !command.status().is_ok_and(|status| status.success()) {
        println!("{} failed: parts share the processors evenly", words.join(" "));
    }
}

impl Beside {
    fn has_ended(&self) -> bool {
        self.work.is_finished()
    }
}

/// Whether `program` is found on `PATH` or in Debian's directories for administration programs.
pub(crate) fn has(program: &str) -> bool {
    let path = std::env::var("PATH").unwrap_or_default();
    path.split(':').chain(["/usr/sbin", "/sbin"]).any(|dir| Path::new(dir).join(program).exists())
}

/// The `cargo` that started this task, in the workspace's root.
pub(crate) fn cargo(arguments: &[&str]) -> Command {
    let mut command = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    command.args(arguments).current_dir(crate::tree::root());
    command
}

/// Runs a command, and kills it after `limit`.
///
/// In CI the command gets a process group of its own, so that all of its processes are killed with
/// it. At a terminal it stays in the process group of xtask, so that Ctrl-C reaches it.
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
            // Exit status by which a suite reports that this machine lacks a requirement.
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_side_by_side_meet_and_each_is_counted() {
        let folder = crate::interop::target_folder().join("tmp");
        std::fs::create_dir_all(&folder).unwrap();
        // Each of the two jobs waits for the other, so one after the other they would never end.
        let meeting = std::sync::Arc::new(std::sync::Barrier::new(2));
        let job = |name: &str, fails: bool| {
            let meeting = meeting.clone();
            let work = move |_| {
                meeting.wait();
                if fails { Ending::Failed("as it should".to_owned()) } else { Ending::Passed }
            };
            let log = folder.join(format!("side-by-side-{name}.log"));
            Job { name: name.to_owned(), log, work: Box::new(work) }
        };
        let mut report = Report::of(4);
        assert!(report.side_by_side(vec![job("one", false), job("two", false)], 2));
        assert!(!report.side_by_side(vec![job("three", false), job("four", true)], 2));
        assert_eq!((report.parts.len(), report.started), (4, 4));
        for name in ["one", "two", "three", "four"] {
            std::fs::remove_file(folder.join(format!("side-by-side-{name}.log"))).unwrap();
        }
        assert_eq!(report.finish(), ExitCode::FAILURE, "one has failed");
    }

    #[test]
    fn a_part_that_gets_what_others_leave_is_never_slow() {
        let log = crate::interop::target_folder().join("a-part-with-the-last-claim.log");
        let mut report = Report::of(1);
        report.costs = vec![costs::Cost { part: "grid".to_owned(), seconds: 1 }];
        let hours = Duration::from_secs(7200);
        assert!(report.slow("grid", hours).is_some());
        report.beside("grid", &log, Claim::Last, |_| Ending::Passed);
        assert!(report.slow("grid", hours).is_none());
        assert_eq!(report.finish(), ExitCode::SUCCESS);
        std::fs::remove_file(log).unwrap();
    }

    #[test]
    fn a_part_beside_others_is_counted_when_it_ends_and_a_count_that_is_wrong_fails() {
        let folder = crate::interop::target_folder().join("tmp");
        std::fs::create_dir_all(&folder).unwrap();
        let log = folder.join("a-part-beside-others.log");
        let mut report = Report::of(2);
        report.beside("long", &log, Claim::First, |log| {
            use std::io::Write;
            writeln!(&log, "what it said").unwrap();
            Ending::Failed("as it should".to_owned())
        });
        report.part("short", || Ending::Passed);
        report.alone();
        assert_eq!(report.tails, [("long".to_owned(), "what it said".to_owned())]);
        let mut names: Vec<&str> = report.parts.iter().map(|part| part.0.as_str()).collect();
        names.sort_unstable();
        assert_eq!((names, report.started), (vec!["long", "short"], 2));
        assert_eq!(std::fs::read_to_string(&log).unwrap(), "what it said\n");
        std::fs::remove_file(log).unwrap();
        assert_eq!(report.finish(), ExitCode::FAILURE, "one has failed");

        let report_of = |count| {
            let mut report = Report::of(count);
            report.part("short", || Ending::Passed);
            report.finish()
        };
        assert_eq!((report_of(1), report_of(2)), (ExitCode::SUCCESS, ExitCode::FAILURE));
    }
}
