//! Statements on md's behaviour: each statement marked *held* in `docs/statements.md` has a test.
//!
//! The table has one row for each of the 50 testable statements on md's behaviour. A row is `| N |
//! short text | held |`, or has in place of `held` the milestone that the statement waits for. A
//! held statement needs at least one test named `statement_N_…` (or `statement_N_M_…` for two)
//! under `crates/`; `cargo xtask statements` writes `held` into the rows of statements with a test.
//!
//! Statements on schedulers have letters (`statement_b9_…`, `statements_b1_to_b5_…`). Each has a
//! test, except those that the page lists with a substitute.
//!
//! Statements on write-back and experiments, and the faults, invariants and promises of
//! `reliability.md`, are cited by the name of a test, or in a comment of a test, of the simulator
//! `weft-crash` or of a suite of `interop/`. The page lists the ones that are cited nowhere, each
//! with the reason.
//!
//! The sentence of each number is in a page of `spec/`: an item of a list below a heading with the
//! word "statements" or, for faults, invariants and promises, a row of a table.

#[cfg(test)]
use crate::citations;
use crate::tree;
use std::collections::{BTreeMap, BTreeSet};

/// Number of statements in the table.
#[cfg(test)]
const STATEMENT_COUNT: u32 = 50;

/// The document with the table, relative to the root.
const DOCUMENT: &str = "docs/statements.md";

/// Last cell for the row of a statement that was held and has no test any more.
const DUE: &str = "due with the first release";

/// Statements of a page, each with its first line: items `12. …` and `- B3 …` of lists below a
/// heading with "statements", and rows `| F12 | …` of tables.
pub(crate) fn sentences(page: &str) -> BTreeMap<String, String> {
    let (mut found, mut inside) = (BTreeMap::new(), false);
    for line in page.lines() {
        if line.starts_with("# ") || line.starts_with("## ") {
            inside = line.to_lowercase().contains("statements");
        }
        let is_label = |label: &str| {
            let numbered = label.strip_prefix(char::is_uppercase).unwrap_or(label);
            let digits = numbered.trim_end_matches(['b', 'c']);
            !digits.is_empty() && digits.chars().all(|letter| letter.is_ascii_digit())
        };
        let of_list = || {
            let (label, text) = line.trim_start_matches("- ").split_once(' ')?;
            let label = if line.starts_with("- ") { label } else { label.strip_suffix('.')? };
            (inside && is_label(label)).then_some((label, text))
        };
        let of_table = || {
            let (cell, text) = line.strip_prefix("| ")?.split_once(" |")?;
            let label = cell.split(' ').next()?.trim_matches('*');
            (label.starts_with(['F', 'I', 'P']) && is_label(label)).then_some((label, text))
        };
        if let Some((label, text)) = of_list().or_else(of_table) {
            let before = found.insert(label.to_owned(), text.trim().to_owned());
            assert!(before.is_none(), "{label} stands twice");
        }
    }
    found
}

/// Writes the last column of the table.
pub(crate) fn write() -> anyhow::Result<()> {
    Ok(std::fs::write(tree::root().join(DOCUMENT), current()?.1)?)
}

/// Returns an error if the last column of the table is out of date.
pub(crate) fn check() -> anyhow::Result<()> {
    let (found, expected) = current()?;
    anyhow::ensure!(found == expected, "{DOCUMENT} is stale: cargo xtask statements");
    Ok(())
}

/// Present text of the document, and the text that it should have for the tests of the tree.
fn current() -> anyhow::Result<(String, String)> {
    let found = std::fs::read_to_string(tree::root().join(DOCUMENT))?;
    let expected = updated(&found, &cited_in_tree());
    Ok((found, expected))
}

/// Text of the document, with the last cell of each row updated: `cited` has the numbers of
/// statements with tests.
fn updated(document: &str, cited: &BTreeSet<u32>) -> String {
    let mut inside = false;
    let mut lines = Vec::new();
    for line in document.split('\n') {
        if line.starts_with('#') {
            inside = line.starts_with("# Statements");
        }
        let cells: Vec<&str> = line.trim().trim_matches('|').split('|').map(str::trim).collect();
        lines.push(match cells.as_slice() {
            [number, text, state] if inside && number.parse::<u32>().is_ok() => {
                let held = number.parse().is_ok_and(|number| cited.contains(&number));
                let state = if held {
                    "held"
                } else if *state == "held" {
                    DUE
                } else {
                    state
                };
                format!("| {number} | {text} | {state} |")
            }
            _ => line.to_owned(),
        });
    }
    lines.join("\n")
}

/// Rows of the table: the number of each statement, and whether it is marked as held.
#[cfg(test)]
fn rows(document: &str) -> BTreeMap<u32, bool> {
    let table = document.lines().skip_while(|line| !line.starts_with("# Statements")).skip(1);
    let mut rows = BTreeMap::new();
    for line in table.take_while(|line| !line.starts_with("## ")) {
        let cells: Vec<&str> = line.trim().trim_matches('|').split('|').map(str::trim).collect();
        if let [number, .., state] = cells.as_slice()
            && let Ok(number) = number.parse()
        {
            let before = rows.insert(number, state.starts_with("held"));
            assert!(before.is_none(), "statement {number} stands twice in the table");
        }
    }
    rows
}

/// Numbers cited by the test names in `source`: `statement_8_9_chunks` cites 8 and 9.
fn cited(source: &str) -> BTreeSet<u32> {
    let names = source.split("fn statement_").skip(1);
    let words = names.flat_map(|name| name.split(['_', '(']).map_while(|word| word.parse().ok()));
    words.collect()
}

/// Letters of the statements on schedulers, each with the number of its statements.
#[cfg(test)]
pub(crate) const OF_SCHEDULERS: [(&str, u32); 5] =
    [("B", 28), ("D", 14), ("K", 12), ("M", 14), ("X", 4)];

/// Statements with a letter after their number, in addition to those of [`OF_SCHEDULERS`].
#[cfg(test)]
const VARIANTS: [&str; 3] = ["b23b", "b23c", "m12b"];

/// Statements on schedulers cited by the test names in `source`, with ranges expanded.
#[cfg(test)]
fn cited_of_schedulers(source: &str) -> BTreeSet<String> {
    let parse = |word: &str| -> Option<(char, u32)> {
        let (letter, number) = word.split_at_checked(1)?;
        let is_of = |(of, _): &&(&str, u32)| of.to_lowercase() == letter;
        OF_SCHEDULERS.iter().find(is_of)?;
        Some((letter.chars().next()?, number.parse().ok()?))
    };
    let mut cited = BTreeSet::new();
    for (at, _) in source.match_indices("fn statement") {
        let name = source[at..].split('(').next().unwrap_or_default();
        let words: Vec<&str> = name.split('_').skip(1).collect();
        for (at, word) in words.iter().enumerate() {
            if parse(word).is_some() || VARIANTS.contains(word) {
                cited.insert((*word).to_owned());
            }
            let ends =
                || Some((parse(words.get(at.checked_sub(1)?)?)?, parse(words.get(at + 1)?)?));
            if *word == "to"
                && let Some(((letter, first), (_, last))) = ends()
            {
                cited.extend((first..=last).map(|number| format!("{letter}{number}")));
            }
        }
    }
    cited
}

/// Statements that the table below a heading lists as statements without a test. A row without a
/// reason does not count.
#[cfg(test)]
fn open_below(heading: &str, document: &str) -> BTreeSet<String> {
    let table = document.lines().skip_while(|line| *line != heading).skip(1);
    let rows = table.take_while(|line| !line.starts_with("## "));
    let label = |line: &str| {
        let cells: Vec<&str> = line.trim().trim_matches('|').split('|').map(str::trim).collect();
        let [label, _, reason] = cells.as_slice() else { return None };
        let is_row = *label != "#" && !label.starts_with('-') && !reason.is_empty();
        is_row.then(|| (*label).to_owned())
    };
    rows.filter_map(label).collect()
}

/// Groups of statements that tests cite by name or in comments: beginning of their labels, and
/// number of statements.
#[cfg(test)]
const GROUPS: [(&str, u32); 5] =
    [("write-back ", 62), ("experiments ", 33), ("F", 28), ("I", 21), ("P", 9)];

/// Heading of the table of statements of [`GROUPS`] that no test cites.
#[cfg(test)]
const NOT_TESTED: &str = "## Not tested";

/// Crates in which a comment such as "Statement 12" is about `experiments.md`.
#[cfg(test)]
const OF_EXPERIMENTS: [&str; 3] = ["crates/weft-sim/", "crates/weft-lab/", "crates/weft-cli/"];

/// Part of a file in which citations count as tests: a suite, a file of weft-crash and a file of
/// tests count as a whole, any other source only with its module `tests`.
#[cfg(test)]
fn tests_in<'a>(name: &str, text: &'a str) -> &'a str {
    let is_whole = name.starts_with("interop/")
        || name.starts_with("crates/weft-crash/")
        || name.contains("/tests/")
        || name.ends_with("/tests.rs");
    if is_whole { text } else { text.split_once("mod tests {").map_or("", |(_, tests)| tests) }
}

/// Labels of statements of [`GROUPS`] that the tests in a file cite. `name` is its path, relative
/// to the root.
#[cfg(test)]
fn cited_of_groups(name: &str, text: &str) -> BTreeSet<String> {
    let tests = tests_in(name, text);
    let mut cited = BTreeSet::new();
    for (test, group) in
        [("fn writeback_statement", "write-back "), ("fn experiment", "experiments ")]
    {
        for test in tests.split(test).skip(1) {
            let name = test.split('(').next().unwrap_or_default();
            let words = name.trim_start_matches('s').split('_').skip(1);
            cited.extend(numbers(words).into_iter().map(|number| format!("{group}{number}")));
        }
    }
    for (page, label) in citations::cited(&tree::root().join(name), tests) {
        match page.as_str() {
            "reliability.md" => _ = cited.insert(label),
            "experiments.md" => _ = cited.insert(format!("experiments {label}")),
            "writeback.md" => _ = cited.insert(format!("write-back {label}")),
            _ => {}
        }
    }
    if OF_EXPERIMENTS.iter().any(|of| name.starts_with(of)) {
        let comments = citations::comments(tests).to_lowercase();
        for after in comments.split("statement").skip(1) {
            let words = after.trim_start_matches('s').split_whitespace();
            let words = words.map(|word| word.trim_end_matches([',', '.', ';', ':', ')']));
            cited.extend(numbers(words).into_iter().map(|number| format!("experiments {number}")));
        }
    }
    cited
}

/// Numbers at the beginning of `words`: 1, 3, 4 and 5 of `1 and 3 to 5 bytes 7`.
#[cfg(test)]
fn numbers<'a>(words: impl Iterator<Item = &'a str>) -> Vec<u32> {
    let (mut found, mut is_range) = (Vec::new(), false);
    for word in words {
        match word.parse::<u32>() {
            Ok(last) => {
                let first = found.last().filter(|_| is_range).map_or(last, |first| first + 1);
                found.extend(first..=last);
                is_range = false;
            }
            Err(_) if word == "and" => {}
            Err(_) if word == "to" => is_range = true,
            Err(_) => break,
        }
    }
    found
}

/// Messages about statements of [`GROUPS`]: those that are neither cited nor listed as not tested,
/// those that are both, and those with a number that their group does not have.
#[cfg(test)]
fn not_as_listed(cited: &BTreeSet<String>, document: &str) -> Vec<String> {
    let labels = |(group, count): (&str, u32)| -> Vec<String> {
        (1..=count).map(|number| format!("{group}{number}")).collect()
    };
    let all: BTreeSet<String> = GROUPS.into_iter().flat_map(labels).collect();
    let mut held = cited.clone();
    let mut found = Vec::new();
    for open in open_below(NOT_TESTED, document) {
        if !held.insert(open.clone()) {
            found.push(open);
        }
    }
    found.extend(all.symmetric_difference(&held).cloned());
    found
}

/// Every statement number that a test under `crates/` cites.
fn cited_in_tree() -> BTreeSet<u32> {
    let sources = tree::rust_files("crates");
    sources
        .iter()
        .filter_map(|file| std::fs::read_to_string(file).ok())
        .flat_map(|s| cited(&s))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_held_statement_is_cited_by_a_test_and_the_table_is_whole() {
        let document = std::fs::read_to_string(tree::root().join(DOCUMENT)).unwrap();
        let rows = rows(&document);
        let numbers: Vec<u32> = rows.keys().copied().collect();
        assert_eq!(numbers, (1..=STATEMENT_COUNT).collect::<Vec<_>>(), "rows of the table");
        let cited = cited_in_tree();
        let without: Vec<&u32> = rows
            .iter()
            .filter(|(number, held)| **held && !cited.contains(number))
            .map(|row| row.0)
            .collect();
        assert!(without.is_empty(), "held in {DOCUMENT} but cited by no test: {without:?}");
    }

    #[test]
    fn each_statement_on_schedulers_has_a_test_or_stands_among_the_open_ones() {
        let document = std::fs::read_to_string(tree::root().join(DOCUMENT)).unwrap();
        let files = tree::rust_files("crates");
        let sources = files.iter().filter_map(|file| std::fs::read_to_string(file).ok());
        let cited: BTreeSet<String> = sources.flat_map(|it| cited_of_schedulers(&it)).collect();
        let numbers = OF_SCHEDULERS
            .into_iter()
            .flat_map(|(letter, count)| numbered(letter, count))
            .map(|label| label.to_lowercase());
        let all: BTreeSet<String> = numbers.chain(VARIANTS.map(str::to_owned)).collect();
        let without: BTreeSet<String> = all.difference(&cited).cloned().collect();
        assert_eq!(
            without,
            open_below("## Schedulers", &document).iter().map(|it| it.to_lowercase()).collect(),
            "without a test, and listed in {DOCUMENT}"
        );
        assert!(cited.is_subset(&all), "unknown: {:?}", cited.difference(&all));
    }

    /// Pages with statements, each with the letters of its statements (empty for plain numbers) and
    /// the number of statements of each letter.
    const HOMES: [(&str, &[(&str, u32)]); 5] = [
        ("md-raid.md", &[("", STATEMENT_COUNT)]),
        ("io-schedulers.md", &OF_SCHEDULERS),
        ("writeback.md", &[("", GROUPS[0].1)]),
        ("experiments.md", &[("", GROUPS[1].1)]),
        ("reliability.md", &[GROUPS[2], GROUPS[3], GROUPS[4]]),
    ];

    #[test]
    fn each_statement_has_its_sentence_and_the_index_leads_to_its_page() {
        let index = std::fs::read_to_string(tree::root().join(DOCUMENT)).unwrap();
        let letters = OF_SCHEDULERS.map(|(letter, _)| letter).join(", ");
        assert!(index.contains(&format!("| {letters} | schedulers |")), "{DOCUMENT}: {letters}");
        for (letter, count) in OF_SCHEDULERS {
            let range = format!("{letter}1 to {letter}{count}");
            assert!(index.contains(&range), "{DOCUMENT} names {range}");
        }
        for (group, count) in GROUPS {
            // "I1 to I21", but "write-back 1 to 62".
            let last = if group.ends_with(' ') { "" } else { group };
            let range = format!("| {group}1 to {last}{count} |");
            assert!(index.contains(&range), "{DOCUMENT} names {range}");
        }
        for (page, counts) in HOMES {
            let text = std::fs::read_to_string(tree::root().join("spec").join(page)).unwrap();
            let found: BTreeSet<String> = sentences(&text)
                .into_iter()
                .filter(|(label, text)| {
                    text.len() >= 12 && !VARIANTS.contains(&label.to_lowercase().as_str())
                })
                .map(|(label, _)| label)
                .collect();
            let of_letter =
                |(letter, count): &(&str, u32)| numbered(letter, *count).collect::<Vec<_>>();
            let expected: BTreeSet<String> = counts.iter().flat_map(of_letter).collect();
            assert_eq!(found, expected, "{page}");
            assert!(index.contains(&format!("](../spec/{page}#")), "{DOCUMENT} leads to {page}");
        }
    }

    fn numbered(letter: &str, count: u32) -> impl Iterator<Item = String> {
        (1..=count).map(move |number| format!("{letter}{number}"))
    }

    #[test]
    fn sentences_are_read_where_they_stand() {
        let page = "## 1. Rules\n1. no statement\n## 2. Test statements\nx:\n2. two\n- B23b b\n\
                    - no label\n### D\n- D1 one\n## 3. Faults\n- D2 no\n| **F1** | torn |\n\
                    | I4 early | no reply |\n| Id | Fault |\n";
        let found = sentences(page).into_keys().collect::<Vec<_>>();
        assert_eq!(found, ["2", "B23b", "D1", "F1", "I4"]);
    }

    #[test]
    fn citations_of_schedulers_are_read() {
        let source = "fn statements_b1_to_b3_x() fn statement_m12b_y() fn statement_d6_and_d7_z() fn statement_14_v()";
        let cited = cited_of_schedulers(source);
        assert_eq!(cited.into_iter().collect::<Vec<_>>(), ["b1", "b2", "b3", "d6", "d7", "m12b"]);
        let document = "## Schedulers\n| # | says |\n|--|--|\n| D12 | a |\n## Next\n| M1 | b |";
        assert_eq!(open_below("## Schedulers", document), BTreeSet::new(), "without a reason");
        let document = document.replace("| a |", "| a | b |");
        assert_eq!(open_below("## Schedulers", &document), BTreeSet::from(["D12".to_owned()]));
    }

    /// Statements of groups that the tests of the tree cite.
    fn cited_of_groups_in_tree() -> BTreeSet<String> {
        let is_read = |path: &std::path::Path| {
            citations::is_read(path) && path.extension().is_none_or(|it| it != "md")
        };
        let files =
            ["crates", "interop"].into_iter().flat_map(|folder| tree::files(folder, is_read));
        files
            .filter_map(|path| Some((tree::shown(&path), std::fs::read_to_string(path).ok()?)))
            .flat_map(|(name, text)| cited_of_groups(&name, &text))
            .collect()
    }

    #[test]
    fn each_statement_of_a_group_is_cited_or_listed_and_a_planted_number_is_found() {
        let document = std::fs::read_to_string(tree::root().join(DOCUMENT)).unwrap();
        let cited = cited_of_groups_in_tree();
        let empty = Vec::<String>::new();
        assert_eq!(not_as_listed(&cited, &document), empty, "cited nowhere, or listed and cited");
        for (group, count) in GROUPS {
            let mut fewer = cited.clone();
            fewer.remove(&format!("{group}1"));
            assert_eq!(not_as_listed(&fewer, &document), [format!("{group}1")]);
            let mut more = cited.clone();
            more.insert(format!("{group}{}", count + 1));
            assert_eq!(not_as_listed(&more, &document), [format!("{group}{}", count + 1)]);
        }
        let listed = document.replace(NOT_TESTED, &format!("{NOT_TESTED}\n| F1 | torn | why |"));
        assert_eq!(not_as_listed(&cited, &listed), ["F1"], "cited and listed");
    }

    #[test]
    fn citations_of_groups_are_read_in_tests_only() {
        let cited = |name, text| Vec::from_iter(cited_of_groups(name, text));
        let text = "//! Torn (F1), statement 9\nmod tests {\n/// Statements 2 and 4 to 6, by 7\n\
                    fn experiments_11_12_k() {}\n// I3\nfn writeback_statements_1_to_3_x_8() {} }";
        let of_tests = ["F1", "I3", "experiments 11", "experiments 12"];
        let of_experiments = ["experiments 2", "experiments 4", "experiments 5", "experiments 6"];
        let of_write_back = ["write-back 1", "write-back 2", "write-back 3"];
        let in_module = [&of_tests[1..], &of_experiments, &of_write_back].concat();
        assert_eq!(cited("crates/weft-sim/src/a.rs", text), in_module);
        let whole = [&of_tests[..], &of_write_back].concat();
        assert_eq!(cited("crates/weft-runtime/tests/a.rs", text), whole);
        assert_eq!(
            cited("interop/a/run", "# reliability.md F2, P6 and F3; F4"),
            ["F2", "F3", "P6"]
        );
        assert_eq!(cited("crates/weft-runtime/src/a.rs", "// F1\n"), [""; 0]);
    }

    #[test]
    fn rows_and_citations_are_read() {
        let document = "x\n# Statements\n| # | says | state |\n|--|--|--|\n| 1 | a | held |\n| 2 | b | bitmap |\n## Next\n| 3 | c | held |\n";
        assert_eq!(rows(document), BTreeMap::from([(1, true), (2, false)]));
        let cited_now = BTreeSet::from([2]);
        let now = updated(document, &cited_now);
        assert_eq!(rows(&now), BTreeMap::from([(1, false), (2, true)]));
        assert!(now.ends_with("## Next\n| 3 | c | held |\n"), "only the table changes");
        let source = "fn statement_14_row() {}\n fn statement_2() {}\n fn statement_7_8_4k() {}\n fn statement_x() {}";
        assert_eq!(cited(source), BTreeSet::from([2, 7, 8, 14]));
    }
}
