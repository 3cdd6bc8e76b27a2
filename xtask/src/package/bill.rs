//! Software bill of materials: the packages that the product is built of, as CycloneDX.
//!
//! Source   CycloneDX 1.5, JSON: `components`, `dependencies`

use crate::lines::printed;
use anyhow::Context;
use serde_json::{Value, json};
use std::collections::BTreeSet;

/// The bill, as JSON. `packages` are the ids of the packages; `date` is that of the commit.
pub(super) fn bill(
    metadata: &Value,
    packages: &BTreeSet<String>,
    date: &str,
) -> anyhow::Result<String> {
    let lock = std::fs::read_to_string(crate::tree::root().join("Cargo.lock"))?;
    let mut components = Vec::new();
    let mut references = std::collections::BTreeMap::new();
    for package in super::packages(metadata) {
        let field = |name: &str| package[name].as_str().unwrap_or_default();
        let (id, name, version) = (field("id"), field("name"), field("version"));
        if !packages.contains(id) {
            continue;
        }
        let reference = format!("pkg:cargo/{name}@{}", version.replace('+', "%2B"));
        references.insert(id.to_owned(), reference.clone());
        let mut component = json!({
            "type": if name == "weft-cli" { "application" } else { "library" },
            "bom-ref": reference,
            "name": name,
            "version": version,
            "purl": reference,
            "licenses": [{"expression": field("license").replace('/', " OR ")}],
        });
        if let Some(sum) = checksum(&lock, name, version) {
            component["hashes"] = json!([{"alg": "SHA-256", "content": sum}]);
        }
        components.push(component);
    }
    for (name, version, license) in linked()? {
        let reference = format!("pkg:generic/{name}@{version}");
        components.push(json!({
            "type": "library", "bom-ref": reference, "name": name, "version": version,
            "purl": reference, "licenses": [{"expression": license}],
        }));
    }
    components.sort_by_key(|component| component["bom-ref"].to_string());
    let position = components.iter().position(|it| it["name"] == "weft-cli");
    let product = components.remove(position.context("no weft-cli")?);
    let nodes = metadata["resolve"]["nodes"].as_array().context("no resolve in the metadata")?;
    let mut dependencies = Vec::new();
    for node in nodes {
        let reference = node["id"].as_str().and_then(|id| references.get(id));
        let Some(reference) = reference else { continue };
        let all = node["deps"].as_array().map_or(&[][..], Vec::as_slice).iter();
        let built = all.filter(|to| crate::product::is_built(to));
        let mut on: Vec<&String> =
            built.filter_map(|to| references.get(to["pkg"].as_str()?)).collect();
        on.sort_unstable();
        dependencies.push(json!({"ref": reference, "dependsOn": on}));
    }
    dependencies.sort_by_key(|it| it["ref"].to_string());
    let bill = json!({
        "bomFormat": "CycloneDX",
        "specVersion": "1.5",
        "version": 1,
        "metadata": {"timestamp": date, "component": product},
        "components": components,
        "dependencies": dependencies,
    });
    Ok(serde_json::to_string_pretty(&bill)? + "\n")
}

/// Libraries that are linked into the program and are no packages of cargo: name, version, licence.
pub(super) fn linked() -> anyhow::Result<Vec<(&'static str, String, &'static str)>> {
    let rust = printed("rustc", &["--version"])?;
    let rust = rust.split(' ').nth(1).context("rustc --version: expected a version")?.to_owned();
    let glibc = printed("getconf", &["GNU_LIBC_VERSION"])?;
    let glibc = glibc.trim().strip_prefix("glibc ").context("GNU_LIBC_VERSION")?.to_owned();
    let gcc = printed("cc", &["-dumpfullversion"])?.trim().to_owned();
    Ok(vec![
        ("glibc", glibc, "LGPL-2.1-or-later"),
        ("libgcc", gcc, "GPL-3.0-or-later WITH GCC-exception-3.1"),
        ("rust-std", rust, "MIT OR Apache-2.0"),
    ])
}

/// SHA-256 of a package in Cargo.lock; `None` for a package of the workspace.
fn checksum<'a>(lock: &'a str, name: &str, version: &str) -> Option<&'a str> {
    let head = format!("name = \"{name}\"\nversion = \"{version}\"\n");
    let entry = lock.split("[[package]]\n").find(|entry| entry.starts_with(&head))?;
    entry.lines().find_map(|line| line.strip_prefix("checksum = \"")?.strip_suffix('"'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_checksum_is_that_of_the_version() {
        let lock = "[[package]]\nname = \"a\"\nversion = \"1.0.0\"\nchecksum = \"12\"\n\n\
            [[package]]\nname = \"a\"\nversion = \"2.0.0\"\nchecksum = \"34\"\n\n\
            [[package]]\nname = \"ours\"\nversion = \"0.1.0\"\n";
        let of = |name, version| checksum(lock, name, version);
        assert_eq!((of("a", "1.0.0"), of("a", "2.0.0")), (Some("12"), Some("34")));
        assert_eq!((of("ours", "0.1.0"), of("b", "1.0.0")), (None, None));
    }

    #[test]
    fn the_bill_has_every_package_with_a_licence_and_no_other() {
        let metadata = crate::product::resolved().unwrap();
        let packages = crate::product::built_of(&metadata, "weft-cli").unwrap();
        let text = bill(&metadata, &packages, "2026-01-01T00:00:00Z").unwrap();
        let bill: Value = serde_json::from_str(&text).unwrap();
        let components = bill["components"].as_array().unwrap();
        assert_eq!(components.len(), packages.len() - 1 + linked().unwrap().len());
        assert_eq!(bill["dependencies"].as_array().unwrap().len(), packages.len());
        for component in components {
            let license = component["licenses"][0]["expression"].as_str().unwrap();
            assert!(!license.is_empty(), "{component}");
            let is_ours = component["name"].as_str().unwrap().starts_with("weft-");
            let is_linked = component["purl"].as_str().unwrap().starts_with("pkg:generic/");
            assert_eq!(component.get("hashes").is_none(), is_ours || is_linked, "{component}");
        }
    }
}
