//! Packages of the product: a static binary, archives for every distribution, checksums.
//!
//! All files go to `target/package`: the program, `.tar.gz`, `.deb`, `.rpm`, a bill of materials,
//! the context of a container, and `SHA256SUMS`. The same commit, compiler and folder give the same
//! bytes: archives are made twice and must be equal.
//!
//! The program is linked with glibc statically. With musl it would have another `memcpy` and
//! another allocator than in tests and benchmarks.

mod bill;
mod contents;
mod deb;
mod notices;
mod rpm;
mod tarball;

use crate::lines::printed;
use crate::part::{Claim, Ending, Report, cargo, run};
use crate::product;
use anyhow::{Context, ensure};
use contents::Product;
use serde_json::Value;
use std::collections::BTreeMap;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// `cargo xtask package`: builds the program and writes all packages.
pub(crate) fn package() -> anyhow::Result<Report> {
    let mut report = Report::default();
    parts(&mut report);
    Ok(report)
}

/// The two parts of packaging.
pub(crate) fn parts(report: &mut Report) {
    start_build(report);
    write_when_built(report);
}

/// Starts the static build. It runs beside the following parts, because its last crate is one
/// compilation unit and takes only one CPU. It comes before the release build, which then leaves
/// the dynamically linked program in `target/release`.
pub(crate) fn start_build(report: &mut Report) {
    let log = crate::interop::target_folder().join("static-build.log");
    report.beside("static build", &log, Claim::First, build);
}

/// Waits for the static build, and writes the packages if it passed.
pub(crate) fn write_when_built(report: &mut Report) {
    report.alone();
    if report.has_passed("static build") {
        report.part("packages", || match write() {
            Ok(()) => Ending::Passed,
            Err(error) => Ending::Failed(format!("{error:#}")),
        });
    }
}

/// Folder of the packages.
fn folder() -> PathBuf {
    crate::interop::target_folder().join("package")
}

/// Builds the static program. Only the crate of the program is compiled anew, because the
/// dependencies have the same features as in the release build and are shared with it. The
/// compiler's messages go to `log`.
fn build(log: File) -> Ending {
    let program = ["rustc", "--release", "--locked", "-p", "weft-cli", "--bin", "weft"];
    let options = [
        "--",
        "-C",
        "target-feature=+crt-static",
        // Relative relocations in packed form take a few pages instead of half a megabyte. glibc
        // supports this form since 2.36.
        "-C",
        "link-arg=-Wl,-z,pack-relative-relocs",
        // Identical functions are merged, which saves a quarter of a megabyte. LLD supports this
        // option; Rust links with LLD on x86-64 since 1.90.
        "-C",
        "link-arg=-Wl,--icf=all",
    ];
    let mut command = cargo(&[&program[..], &options].concat());
    command.stderr(log);
    let built = run(command, Duration::from_secs(1800));
    if !matches!(built, Ending::Passed) {
        return built;
    }
    let made = crate::interop::target_folder().join("release/weft");
    let kept = folder().join("weft");
    let copied = std::fs::create_dir_all(folder())
        // The program is copied, because the release build replaces the original.
        .and_then(|()| std::fs::copy(&made, &kept));
    match copied {
        Ok(_) => product::size(&kept),
        Err(error) => Ending::Failed(format!("{}: {error}", kept.display())),
    }
}

/// Writes the packages beside the program.
fn write() -> anyhow::Result<()> {
    let folder = folder();
    let made = all(&folder)?;
    let again = all(&folder)?;
    for (name, bytes) in &made {
        ensure!(again.get(name) == Some(bytes), "{name}: a second run made other bytes");
    }
    for entry in std::fs::read_dir(&folder)? {
        let path = entry?.path();
        if path.is_file() && path.file_name().is_some_and(|name| name != "weft") {
            std::fs::remove_file(path)?;
        }
    }
    let mut sums = String::new();
    for (name, bytes) in &made {
        std::fs::write(folder.join(name), bytes)?;
        sums.push_str(&format!("{}  {name}\n", rpm::hex(bytes)));
        println!("{:9} bytes  {name}", bytes.len());
    }
    sums.push_str(&format!("{}  weft\n", rpm::hex(&std::fs::read(folder.join("weft"))?)));
    std::fs::write(folder.join("SHA256SUMS"), sums)?;
    // The container has empty folders besides the program, and nothing else.
    for name in ["run", "tmp"] {
        std::fs::create_dir_all(folder.join(name))?;
    }
    println!("in {}", crate::tree::shown(&folder));
    Ok(())
}

/// All packages, by file name.
fn all(folder: &Path) -> anyhow::Result<BTreeMap<String, Vec<u8>>> {
    let metadata = product::resolved()?;
    let ids = product::built_of(&metadata, "weft-cli")?;
    let time = time()?;
    let made = Product::gather(&folder.join("weft"), &metadata, folder)?;
    let version = made.version.clone();
    let date = printed("date", &["-u", "+%FT%TZ", "-d", &format!("@{time}")])?;
    let prefix = format!("weft-{version}-x86_64-linux/");
    let tar = tarball::gzip(&tarball::tar(&made.files, &prefix, time)?)?;
    Ok(BTreeMap::from([
        (format!("weft-{version}-x86_64-linux.tar.gz"), tar),
        (format!("weft_{version}-1_amd64.deb"), deb::deb(&made, time)?),
        (format!("weft-{version}-1.x86_64.rpm"), rpm::rpm(&made, time)?),
        (format!("weft-{version}.cdx.json"), bill::bill(&metadata, &ids, date.trim())?.into()),
    ]))
}

/// Time of all files in packages, in seconds since 1970: `SOURCE_DATE_EPOCH`, or the time of the
/// commit.
fn time() -> anyhow::Result<u64> {
    let text = match std::env::var("SOURCE_DATE_EPOCH") {
        Ok(text) => text,
        Err(_) => printed("git", &["log", "-1", "--format=%ct"])?,
    };
    let text = text.trim();
    text.parse().with_context(|| format!("time of the packages: found {text:?}, expected seconds"))
}

/// Packages in the output of `cargo metadata`.
fn packages(metadata: &Value) -> &[Value] {
    metadata["packages"].as_array().map_or(&[], Vec::as_slice)
}

/// Package of that name in the output of `cargo metadata`.
fn package_of<'a>(metadata: &'a Value, name: &str) -> anyhow::Result<&'a Value> {
    let found = packages(metadata).iter().find(|package| package["name"] == name);
    found.with_context(|| format!("{name}: not in cargo metadata"))
}
