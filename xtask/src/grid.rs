//! Grid of defaults: weft beside md on loads that nobody chose (`weft_lab::grid`).

use anyhow::ensure;

use crate::part::cargo;

/// Runs the grid; what it prints is its example's.
pub(crate) fn grid(words: &[&str]) -> anyhow::Result<()> {
    let example = ["run", "-q", "--release", "-p", "weft-lab", "--example", "grid", "--"];
    let status = cargo(&[&example[..], words].concat()).status()?;
    ensure!(
        status.success(),
        "defaults lose beyond the bounds of experiments/grid.toml, or {status}"
    );
    Ok(())
}
