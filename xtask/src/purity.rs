//! Purity of the engine: words that it must not contain, because they depend on the machine.
//!
//! This check complements `crates/weft-engine/clippy.toml`, which checks types instead of words.
//! Both checks are used because a single line can disable either of them.

use crate::tree;

/// Words that no line of the engine, tests included, may contain outside of a comment.
const WORDS: &[&str] = &[
    "HashMap",
    "HashSet",
    "Instant",
    "RandomState",
    "SystemTime",
    "getrandom",
    "println!",
    "rand::",
    "std::env",
    "std::fs",
    "std::net",
    "std::process",
    "std::thread",
    "thread_local!",
    "unsafe ",
];

/// Path of the random generator of `weft-units`, which tests of the engine may use but the engine
/// must not.
const RNG: &str = "rng::";

/// Lines of a source text with a word that it must not contain: (1-based line number, word).
pub(crate) fn impurities(source: &str, is_test: bool) -> Vec<(usize, &'static str)> {
    let words = || WORDS.iter().copied().chain((!is_test).then_some(RNG));
    let mut found = Vec::new();
    for (index, line) in source.lines().enumerate() {
        let code = line.split("//").next().unwrap_or_default();
        found.extend(words().filter(|word| code.contains(word)).map(|word| (index + 1, word)));
    }
    found
}

/// Lines of the engine with a word that it must not contain, as `file:line: word`.
pub(crate) fn engine() -> anyhow::Result<Vec<String>> {
    let files = tree::rust_files("crates/weft-engine");
    anyhow::ensure!(!files.is_empty(), "crates/weft-engine has no Rust file");
    let mut found = Vec::new();
    for file in files {
        let is_test = file.ends_with("tests.rs") || file.iter().any(|folder| folder == "tests");
        for (line, word) in impurities(&std::fs::read_to_string(&file)?, is_test) {
            found.push(format!("{}:{line}: {word}", tree::shown(&file)));
        }
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_engine_is_pure() {
        assert_eq!(engine().unwrap(), Vec::<String>::new());
    }

    #[test]
    fn a_planted_clock_is_found_and_a_comment_is_not() {
        let source = "// HashMap is not allowed\nlet t = std::time::Instant::now(); // why\n";
        assert_eq!(impurities(source, true), [(2, "Instant")]);
    }

    #[test]
    fn a_generator_is_for_tests() {
        let source = "use weft_units::rng::Rng;\n";
        assert_eq!(impurities(source, false), [(1, "rng::")]);
        assert_eq!(impurities(source, true), []);
    }
}
