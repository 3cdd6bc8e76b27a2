//! Length of functions: at most 80 lines each.
//!
//! Functions are found by their format from rustfmt: `fn` and its closing brace begin in the same
//! column. Blank lines and comments count. There are no exceptions: a long table is a constant
//! beside the function that reads it.

use crate::tree::{rust_files, shown};

/// Most lines of a function, from `fn` to its closing brace.
const LINES_MAX: usize = 80;

/// A function of a Rust text.
#[derive(Debug, PartialEq, Eq)]
struct Function {
    name: String,
    /// Line number of `fn`, 1-based.
    line: usize,
    /// Number of lines from `fn` to the closing brace.
    lines: usize,
}

/// Functions with a body of several lines, in order, including nested ones.
fn functions(source: &str) -> Vec<Function> {
    let lines: Vec<&str> = source.lines().collect();
    let mut found = Vec::new();
    for (index, line) in lines.iter().enumerate() {
        let Some(name) = name_of(line.trim_start()) else { continue };
        let indent = &line[..line.len() - line.trim_start().len()];
        let end = format!("{indent}}}");
        // The function has one line, or no body.
        let is_over = |line: &str| line.ends_with([';', '}']) && line != end;
        let Some(more) = lines[index..].iter().position(|line| {
            *line == end || (!line.starts_with(&format!("{indent} ")) && is_over(line))
        }) else {
            continue;
        };
        found.push(Function { name: name.to_owned(), line: index + 1, lines: more + 1 });
    }
    found
}

/// Name of the function that begins on a line of code.
fn name_of(code: &str) -> Option<&str> {
    let (before, after) = match code.strip_prefix("fn ") {
        Some(after) => ("", after),
        None => code.split_once(" fn ")?,
    };
    let is_qualifier = |word: &str| {
        matches!(word, "async" | "const" | "extern" | "\"C\"" | "pub" | "unsafe")
            || word.starts_with("pub(")
    };
    let end = after.find(|letter: char| !letter.is_alphanumeric() && letter != '_')?;
    before.split(' ').filter(|word| !word.is_empty()).all(is_qualifier).then(|| &after[..end])
}

/// Every function that is too long, as `file:line: …`.
pub(crate) fn found() -> anyhow::Result<Vec<String>> {
    let mut files = rust_files("crates");
    files.extend(rust_files("xtask"));
    let (mut found, mut count) = (Vec::new(), 0);
    for path in files {
        let (file, text) = (shown(&path), std::fs::read_to_string(&path)?);
        for Function { name, line, lines } in functions(&text) {
            count += 1;
            if lines > LINES_MAX {
                found.push(format!(
                    "{file}:{line}: {name}: found {lines} lines, expected {LINES_MAX} at most: \
                     split it where it has a seam, or make it a table"
                ));
            }
        }
    }
    anyhow::ensure!(count >= 5_000, "{count} functions were read: there are more");
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn functions_are_short() {
        assert_eq!(found().unwrap(), Vec::<String>::new());
    }

    #[test]
    fn a_planted_long_function_is_found_with_its_length() {
        let body = "        step();\n".repeat(LINES_MAX - 1);
        let planted = format!(
            "trait Short {{\n    fn declared(\n        self,\n    );\n    fn line() {{}}\n}}\n\
             impl Long {{\n    pub(crate) const fn long<T>(\n    ) {{\n{body}    }}\n}}\n\
             /// About fn words.\nlet fn_ = \"fn x\";\nunsafe extern \"C\" fn c() {{\n}}\n"
        );
        let found = functions(&planted);
        let found: Vec<(&str, usize, usize)> =
            found.iter().map(|it| (it.name.as_str(), it.line, it.lines)).collect();
        let long = LINES_MAX + 2;
        let expected = [("declared", 2, 3), ("line", 5, 1), ("long", 8, long), ("c", 11 + long, 2)];
        assert_eq!(found, expected);
    }
}
