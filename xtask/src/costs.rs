//! Costs of parts: the table of CONTRIBUTING.md, with the purpose and duration of each part.

use crate::tree::root;
use anyhow::{Context, ensure};
use std::time::Duration;

/// Line of the table: a part with its cost.
pub(crate) struct Cost {
    pub(crate) part: String,
    /// Duration on two CPUs, in a fresh clone.
    pub(crate) seconds: u64,
}

/// Header of the table in CONTRIBUTING.md.
const HEAD: &str = "| part | s | finds |";

/// Parts of `test --install` that `test` without the option does not have.
pub(crate) const OF_INSTALL: [&str; 2] = ["Debian packages", "kernel lab: build"];

/// Parts of `check` that have another name in `test`.
pub(crate) const OF_CHECK: [&str; 2] = ["unit tests", "short simulation"];

/// Reads all lines of the table.
pub(crate) fn table() -> anyhow::Result<Vec<Cost>> {
    let text =
        std::fs::read_to_string(root().join("CONTRIBUTING.md")).context("CONTRIBUTING.md")?;
    parse(&text)
}

fn parse(text: &str) -> anyhow::Result<Vec<Cost>> {
    let mut lines = text.lines().skip_while(|line| *line != HEAD).skip(2).peekable();
    ensure!(lines.peek().is_some(), "CONTRIBUTING.md: found no table \"{HEAD}\"");
    lines
        .take_while(|line| line.starts_with("| "))
        .map(|line| {
            let fields: Vec<&str> = line.trim_matches('|').split('|').map(str::trim).collect();
            let [part, seconds, finds] = fields[..] else {
                anyhow::bail!("CONTRIBUTING.md: found {line:?}, expected a part, seconds, finds");
            };
            ensure!(!finds.is_empty(), "CONTRIBUTING.md: {part}: expected what it finds");
            let seconds = seconds.parse().with_context(|| {
                format!("CONTRIBUTING.md: {part}: found {seconds:?}, expected seconds")
            })?;
            Ok(Cost { part: part.to_owned(), seconds })
        })
        .collect()
}

/// Text with the expected duration of all parts except `left_out`, and with the longest parts.
/// Suites count half, because two run at a time.
pub(crate) fn expected(table: &[Cost], left_out: &[String]) -> String {
    let mut run: Vec<&Cost> = table.iter().filter(|cost| !left_out.contains(&cost.part)).collect();
    let halved = |cost: &Cost| if cost.part.starts_with("interop ") { 1 } else { 2 };
    let seconds: u64 = run.iter().map(|cost| cost.seconds * halved(cost)).sum::<u64>() / 2;
    run.sort_by_key(|cost| std::cmp::Reverse(cost.seconds));
    let long = run.iter().filter(|cost| cost.seconds >= 60);
    let long: Vec<String> = long.map(|cost| format!("{} {} s", cost.part, cost.seconds)).collect();
    format!(
        "about {} min on two CPUs (CONTRIBUTING.md has each part): {}; before a commit \
         `cargo xtask check` will do",
        seconds.div_ceil(60),
        long.join(", ")
    )
}

impl Cost {
    /// Text of the duration, such as `about 30 s`, for the first line of a part.
    pub(crate) fn about(&self) -> String {
        match self.seconds {
            0..=4 => "a few seconds".to_owned(),
            5..=90 => format!("about {} s", self.seconds),
            _ => format!("about {} min", (self.seconds + 30) / 60),
        }
    }

    /// Warning about a part that took more than one and a half times as long as usual, and over a
    /// minute longer; `None` for other parts.
    pub(crate) fn exceeded_by(&self, took: Duration) -> Option<String> {
        let (took, usual) = (took.as_secs(), self.seconds);
        (2 * took > 3 * usual && took > usual + 60).then(|| {
            format!(
                "SLOW: {} took {took} s, expected about {usual} s (CONTRIBUTING.md): make it \
                 faster, or correct its line",
                self.part
            )
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_part_has_one_line_that_says_what_it_finds_and_costs() {
        let mut named: Vec<String> = table().unwrap().into_iter().map(|cost| cost.part).collect();
        let of_suites = crate::interop::names().unwrap();
        let of_suites = of_suites.into_iter().map(|name| format!("interop {name}"));
        let mut expected: Vec<String> = of_suites.collect();
        // The names are read from the files that run the parts.
        for file in ["check.rs", "interop.rs", "package/mod.rs"] {
            let text = std::fs::read_to_string(root().join("xtask/src").join(file)).unwrap();
            let calls = ["report.part(\"", "report.beside(\""];
            let calls = calls.iter().flat_map(|call| text.split(call).skip(1));
            expected.extend(calls.filter_map(|call| Some(call.split_once('"')?.0.to_owned())));
        }
        expected.sort_unstable();
        expected.dedup();
        named.sort_unstable();
        assert_eq!(named, expected);
    }

    #[test]
    fn a_part_says_what_it_takes_and_a_slow_one_that_it_was_slow() {
        let rows = "| tests | 586 | much |\n| map | 0 | little |";
        let text = format!("{HEAD}\n|--|--|--|\n{rows}\n\nend");
        let table = parse(&text).unwrap();
        let about: Vec<String> = table.iter().map(Cost::about).collect();
        assert_eq!(about, ["about 10 min", "a few seconds"]);
        let slow = |of: usize, took| table[of].exceeded_by(Duration::from_secs(took));
        assert_eq!((slow(0, 879), slow(1, 60)), (None, None));
        assert!(slow(0, 880).unwrap().starts_with("SLOW: tests took 880 s, expected about 586 s"));
        assert!(slow(1, 61).is_some());
        let three = text.replace("\n\nend", "\n| interop a | 120 | some |\n\nend");
        let said = expected(&parse(&three).unwrap(), &["map".to_owned()]);
        assert!(said.starts_with("about 11 min on two CPUs"), "{said}");
        assert!(said.contains(": tests 586 s, interop a 120 s; before"), "{said}");
        assert!(parse("no table").is_err());
        assert!(parse(&text.replace("586", "long")).is_err());
        assert!(parse(&text.replace("much", "")).is_err());
    }
}
