//! Task `unsafe`: every unsafe block with its `SAFETY` comment.
//!
//! The list goes into the release notes when it changes. clippy's `undocumented_unsafe_blocks`
//! makes a missing comment an error; this task prints the comments.

use crate::tree;

/// Use of `unsafe` in the sources.
pub(crate) struct Site {
    /// Line number, 1-based.
    pub(crate) line: usize,
    pub(crate) code: String,
    /// Comment lines directly above that give the reason; empty if there are none.
    pub(crate) safety: Vec<String>,
}

/// Uses of `unsafe` in a source text.
pub(crate) fn sites(source: &str) -> Vec<Site> {
    let lines: Vec<&str> = source.lines().collect();
    let mut sites = Vec::new();
    for (index, line) in lines.iter().enumerate() {
        let code = line.split("//").next().unwrap_or_default();
        if !["unsafe {", "unsafe fn ", "unsafe impl ", "unsafe extern "]
            .iter()
            .any(|w| code.contains(w))
            // A function type is not a use.
            || code.trim_start().starts_with("type ")
        {
            continue;
        }
        let mut safety: Vec<String> = Vec::new();
        for above in lines[..index].iter().rev().map(|line| line.trim()) {
            // Attributes and the first line of a statement of several lines may be between comment
            // and block.
            let between =
                above.starts_with("#[") || (safety.is_empty() && above.ends_with(['=', '(', ',']));
            if above.starts_with("//") {
                safety.push(above.trim_start_matches('/').trim().to_owned());
            } else if !between {
                break;
            }
        }
        safety.reverse();
        let first =
            safety.iter().position(|line| line.contains("SAFETY") || line.contains("# Safety"));
        safety = first.map_or_else(Vec::new, |first| safety.split_off(first));
        sites.push(Site { line: index + 1, code: line.trim().to_owned(), safety });
    }
    sites
}

/// Prints every use of `unsafe` in the crates, with its reason.
pub(crate) fn print() -> anyhow::Result<()> {
    let (mut count, mut without) = (0, 0);
    for file in tree::rust_files("crates") {
        for site in sites(&std::fs::read_to_string(&file)?) {
            count += 1;
            without += usize::from(site.safety.is_empty());
            println!("{}:{}: {}", tree::shown(&file), site.line, site.code);
            for line in &site.safety {
                println!("    {line}");
            }
        }
    }
    println!("{count} uses of unsafe, {without} without a comment directly above");
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    /// Path prefixes of files that may contain unsafe code, as in CONTRIBUTING.md.
    const ALLOWED: &[&str] = &[
        "crates/weft-bench/src/allocations.rs",
        "crates/weft-bench/src/nbd/memory.rs",
        "crates/weft-bench/src/parity/arena.rs",
        "crates/weft-bench/src/parity/isal.rs",
        "crates/weft-parity/src/simd/",
        "crates/weft-runtime/src/buffers.rs",
        "crates/weft-runtime/src/file_lock.rs",
        "crates/weft-runtime/src/io/uring.rs",
        "crates/weft-runtime/src/ublk/kernel.rs",
    ];

    #[test]
    fn unsafe_code_is_where_contributing_says_and_nowhere_else() {
        let files = tree::rust_files("crates").into_iter();
        let mut found: BTreeSet<String> = files
            .filter(|file| !sites(&std::fs::read_to_string(file).unwrap()).is_empty())
            .map(|file| tree::shown(&file))
            .collect();
        let of = |allowed: &str| found.iter().filter(|path| path.starts_with(allowed)).count();
        let counts: Vec<usize> = ALLOWED.iter().map(|allowed| of(allowed)).collect();
        assert!(!counts.contains(&0), "each has some: {counts:?}");
        let elsewhere = |found: &BTreeSet<String>| -> Vec<String> {
            let allowed = |path: &&String| ALLOWED.iter().any(|it| path.starts_with(it));
            found.iter().filter(|path| !allowed(path)).cloned().collect()
        };
        assert_eq!(elsewhere(&found), Vec::<String>::new());
        let planted = "crates/weft-runtime/src/serve/driver.rs".to_owned();
        found.insert(planted.clone());
        assert_eq!(elsewhere(&found), [planted]);
        let contributing = std::fs::read_to_string(tree::root().join("CONTRIBUTING.md")).unwrap();
        let (_, section) = contributing.split_once("## Unsafe").unwrap();
        let (section, _) = section.split_once("\n## ").unwrap();
        for allowed in ALLOWED {
            let (of, file) = allowed.trim_start_matches("crates/").split_once("/src/").unwrap();
            assert!(section.contains(&format!("`{of}`")), "{of}");
            assert!(section.contains(&format!("`{file}`")), "{file}");
        }
    }

    #[test]
    fn a_block_is_found_with_its_comment() {
        let source = "fn f() {\n    // SAFETY: `p` is valid,\n    // as `g` checks.\n    let x =\n        unsafe { *p };\n}\n";
        let sites = sites(source);
        assert_eq!(sites.len(), 1);
        assert_eq!(sites[0].line, 5);
        assert_eq!(sites[0].safety, ["SAFETY: `p` is valid,", "as `g` checks."]);
    }
}
