//! Report of the demo: each step timed and described, as text or as JSON.

use std::io::Write;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use indicatif::ProgressBar;
use serde_json::{Map, Value, json};
use weft_terminal::outcome::Failure;
use weft_terminal::terminal::{print_json, progress, quoted, stdout, style, took};
use weft_units::Bytes;

use super::{NAME, label};
use crate::reproduced::Reproduced;
use crate::size;

/// Result of a step: its description, and the numbers that were measured.
pub(super) struct Measured {
    pub(super) text: String,
    pub(super) numbers: Map<String, Value>,
}

impl Measured {
    pub(super) fn new(text: String) -> Self {
        Self { text, numbers: Map::new() }
    }

    pub(super) fn bytes(mut self, bytes: u64, span: Duration) -> Self {
        self.numbers.insert("bytes".into(), json!(bytes));
        let rate = bytes as f64 / 1e6 / span.as_secs_f64().max(1e-9);
        self.numbers.insert("mb_per_s".into(), json!((rate * 10.0).round() / 10.0));
        self
    }

    pub(super) fn stripes(mut self, stripes: u64) -> Self {
        self.numbers.insert("stripes".into(), json!(stripes));
        self
    }

    /// Text of the numbers: `189 MiB, 512 MB/s, 16128 stripes`.
    fn numbers_text(&self) -> String {
        let number = |name: &str| self.numbers.get(name).and_then(Value::as_u64);
        let mut parts = Vec::new();
        if let Some(stripes) = number("stripes") {
            parts.push(format!("{stripes} stripes"));
        }
        if let Some(bytes) = number("bytes") {
            parts.push(size::human(Bytes(bytes)));
        }
        if let Some(rate) = self.numbers.get("mb_per_s").and_then(Value::as_f64) {
            parts.push(format!("{rate:.0} MB/s"));
        }
        parts.join(", ")
    }
}

/// State of the tour, which collects the results of its steps.
pub(super) struct Tour {
    pub(super) json: bool,
    pub(super) start: Instant,
    pub(super) steps: Vec<Value>,
}

impl Tour {
    /// Runs a step, measures its time, and reports its result. Returns the value that the step
    /// returns.
    pub(super) fn step<T>(
        &mut self,
        name: &'static str,
        work: impl FnOnce() -> Result<(T, Measured), Failure>,
    ) -> Result<T, Failure> {
        let waiting = self.waiting(name);
        let start = Instant::now();
        let result = work();
        let span = start.elapsed();
        waiting.finish_and_clear();
        let millis = u64::try_from(span.as_millis()).unwrap_or(u64::MAX);
        match result {
            Ok((value, measured)) => {
                if !self.json {
                    let mut out = stdout();
                    let (green, bold, plain) = (style::GREEN, style::BOLD, style::PLAIN);
                    let numbers = measured.numbers_text();
                    let open =
                        if numbers.is_empty() { String::new() } else { format!("{numbers}, ") };
                    writeln!(
                        out,
                        "{green}✓{plain} {bold}{name:<14}{plain} {} ({open}{})",
                        measured.text,
                        took(span)
                    )?;
                    out.flush()?;
                }
                let mut step = measured.numbers;
                step.insert("name".into(), json!(name));
                step.insert("ok".into(), json!(true));
                step.insert("text".into(), json!(measured.text));
                step.insert("duration_ms".into(), json!(millis));
                self.steps.push(Value::Object(step));
                Ok(value)
            }
            Err(failure) => {
                if !self.json {
                    let mut out = stdout();
                    let (red, bold, plain) = (style::RED, style::BOLD, style::PLAIN);
                    writeln!(out, "{red}✗{plain} {bold}{name:<14}{plain} ({})", took(span))?;
                    out.flush()?;
                }
                let text = failure.message();
                self.steps
                    .push(json!({"name": name, "ok": false, "text": text, "duration_ms": millis}));
                Err(failure)
            }
        }
    }

    /// Progress indicator on a terminal for a step that shows no bar itself; hidden for other
    /// steps.
    fn waiting(&self, name: &'static str) -> ProgressBar {
        if self.json || !matches!(name, "create" | "serve" | "stop") {
            return ProgressBar::hidden();
        }
        let bar = progress(name, 0);
        bar.tick();
        bar
    }

    /// Measures published patches, before and with each patch.
    pub(super) fn patches(&mut self) -> Result<Reproduced, Failure> {
        self.step("patches", || {
            let all = Reproduced::quick()?;
            let measured = Measured::new(all.summary());
            Ok((all, measured))
        })
    }

    /// Prints the time that the demo took, and how to read its files if they are kept. Prints
    /// nothing after a failure, or with `--json`.
    pub(super) fn tell_of_files(
        &self,
        result: &Result<(), Failure>,
        files: &[PathBuf],
        kept: bool,
    ) -> Result<(), Failure> {
        if self.json || result.is_err() {
            return Ok(());
        }
        let mut out = stdout();
        writeln!(out, "\nThe day took {}.", took(self.start.elapsed()))?;
        if kept {
            // The second file has failed, and the fifth has replaced it.
            let members: Vec<String> = files
                .iter()
                .enumerate()
                .filter(|(index, _)| *index != 1)
                .map(|(_, file)| quoted(label(file).as_ref()))
                .collect();
            let members = members.join(" ");
            writeln!(
                out,
                "The files stay. Read them with\n  weft cat {members} | head -c 64 | xxd"
            )?;
            writeln!(
                out,
                "Linux md takes them as well; as root:\n  mdadm --assemble /dev/md/{NAME} $(for f in \
                 {members}; do losetup --find --show \"$f\"; done)"
            )?;
        } else {
            writeln!(
                out,
                "The files are gone. weft demo --keep --dir DIR leaves them there, and says how \
                 Linux md takes them:\n  mdadm --assemble /dev/md/{NAME} LOOP-DEVICE…"
            )?;
        }
        out.flush()?;
        Ok(())
    }

    /// Ends the report: as text, prints the figures of patches if they were measured; as JSON,
    /// prints the results of all steps.
    pub(super) fn end(
        &self,
        result: &Result<Option<Reproduced>, Failure>,
        files: &[PathBuf],
        kept: bool,
    ) -> Result<(), Failure> {
        let patches = result.as_ref().ok().and_then(Option::as_ref);
        if self.json {
            let names: Vec<String> = files.iter().map(|file| label(file)).collect();
            let mut sheet = json!({
                "schema": "weft.demo/2",
                "ok": result.is_ok(),
                "duration_ms": u64::try_from(self.start.elapsed().as_millis()).unwrap_or(u64::MAX),
                "files": if kept { names } else { Vec::new() },
                "steps": self.steps,
            });
            if let Some(patches) = patches {
                sheet["patches"] = patches.to_json();
            }
            return Ok(print_json(&sheet)?);
        }
        let Some(patches) = patches else { return Ok(()) };
        patches.print_lines()?;
        let mut out = stdout();
        writeln!(
            out,
            "\nAll of it in {}. weft reproduce --quick --runs 10 has verdicts; --rows says why; \
             --report FILE.html draws it.",
            took(self.start.elapsed())
        )?;
        out.flush()?;
        Ok(())
    }
}
