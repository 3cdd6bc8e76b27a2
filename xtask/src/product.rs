//! The product `weft`: limits on its dependencies and on the size of its release binary.
//!
//! The benchmarks with their peers are a separate program. The checks find a dependency that brings
//! the benchmarks back into `weft`, and a profile that keeps the symbols.

use crate::part::Ending;
use anyhow::{Context, ensure};
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

/// Largest permitted size of the release binary, in bytes. With symbols and line tables the binary
/// has some 80 MB.
const BYTES_MAX: u64 = 15_000_000;

/// Part `size of weft` of the task `test`.
pub(crate) fn size(weft: &Path) -> Ending {
    let bytes = match std::fs::metadata(weft) {
        Ok(found) => found.len(),
        Err(error) => return Ending::Failed(format!("{}: {error}", weft.display())),
    };
    println!("{bytes} bytes");
    too_large(bytes).map_or(Ending::Passed, Ending::Failed)
}

/// Message about a binary of more than [`BYTES_MAX`] bytes; `None` for a smaller one.
fn too_large(bytes: u64) -> Option<String> {
    (bytes > BYTES_MAX).then(|| {
        format!(
            "found {bytes} bytes, expected at most {BYTES_MAX}: is it stripped (Cargo.toml, \
             profile.release.package.weft-cli), and what was added?"
        )
    })
}

/// Output of `cargo metadata` with the resolved dependencies of each package on x86-64.
pub(crate) fn resolved() -> anyhow::Result<Value> {
    let arguments = ["metadata", "--format-version", "1", "--offline", "--filter-platform"];
    let mut command = crate::part::cargo(&arguments);
    let output = command.arg("x86_64-unknown-linux-gnu").output()?;
    ensure!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    Ok(serde_json::from_slice(&output.stdout)?)
}

/// Whether a dependency in the output of [`resolved`] is more than a development dependency.
pub(crate) fn is_built(to: &Value) -> bool {
    to["dep_kinds"].as_array().is_some_and(|kinds| kinds.iter().any(|kind| kind["kind"] != "dev"))
}

/// Ids of the packages that a package is built of, without development dependencies.
pub(crate) fn built_of(metadata: &Value, program: &str) -> anyhow::Result<BTreeSet<String>> {
    let list = |value: &'_ Value| value.as_array().cloned().unwrap_or_default();
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let packages = list(&metadata["packages"]);
    let program = packages.iter().find(|package| package["name"] == program);
    let program = text(&program.context("not in cargo metadata")?["id"]);
    let nodes = list(&metadata["resolve"]["nodes"]);
    let nodes: BTreeMap<String, &Value> = nodes.iter().map(|it| (text(&it["id"]), it)).collect();
    let mut found = BTreeSet::new();
    let mut open = vec![program];
    while let Some(id) = open.pop() {
        let node = nodes.get(&id).with_context(|| format!("{id}: not in cargo metadata"))?;
        if found.insert(id) {
            open.extend(
                list(&node["deps"]).iter().filter(|to| is_built(to)).map(|to| text(&to["pkg"])),
            );
        }
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_larger_binary_is_found() {
        assert_eq!(too_large(BYTES_MAX), None);
        assert!(too_large(BYTES_MAX + 1).unwrap().contains("found 15000001 bytes"));
        let folder = crate::interop::target_folder().join("tmp");
        std::fs::create_dir_all(&folder).unwrap();
        let planted = folder.join("a-larger-binary");
        std::fs::File::create(&planted).unwrap().set_len(BYTES_MAX + 1).unwrap();
        assert!(matches!(size(&planted), Ending::Failed(_)));
        std::fs::remove_file(planted).unwrap();
    }

    /// Packages that `weft` must not be built of: the benchmarks, a package that loads their peers,
    /// the crash simulator, and code for tests.
    const WORKSHOP: [&str; 4] = ["libloading", "weft-bench", "weft-crash", "weft-testing"];

    /// Names of the packages that a package is built of.
    fn names(metadata: &Value, program: &str) -> BTreeSet<String> {
        let found = built_of(metadata, program).unwrap();
        let packages = metadata["packages"].as_array().unwrap().iter();
        let built = packages.filter(|package| found.contains(package["id"].as_str().unwrap()));
        built.map(|package| package["name"].as_str().unwrap().to_owned()).collect()
    }

    fn of_the_workshop(metadata: &Value) -> Vec<String> {
        let found = names(metadata, "weft-cli").into_iter();
        found.filter(|name| WORKSHOP.contains(&name.as_str())).collect()
    }

    #[test]
    fn weft_is_built_without_the_benchmarks_and_planted_ones_are_found() {
        let mut metadata = resolved().unwrap();
        let product = names(&metadata, "weft-cli");
        assert!(product.contains("weft-engine") && product.len() >= 100, "{product:?}");
        assert!(names(&metadata, "weft-bench").contains("libloading"));
        assert_eq!(of_the_workshop(&metadata), Vec::<String>::new());
        let id = |metadata: &Value, name: &str| -> Value {
            let packages = metadata["packages"].as_array().unwrap();
            packages.iter().find(|package| package["name"] == name).unwrap()["id"].clone()
        };
        let (product, bench) = (id(&metadata, "weft-cli"), id(&metadata, "weft-bench"));
        let nodes = metadata["resolve"]["nodes"].as_array_mut().unwrap();
        let node = nodes.iter_mut().find(|node| node["id"] == product).unwrap();
        let edge = json!({"name": "weft_bench", "pkg": bench, "dep_kinds": [{"kind": null}]});
        node["deps"].as_array_mut().unwrap().push(edge);
        assert_eq!(of_the_workshop(&metadata), ["libloading", "weft-bench"]);
    }
}
