//! Grid of defaults: weft compared with md on loads not selected in its favour (`weft_lab::grid`).

use anyhow::ensure;

use crate::part::cargo;

/// Runs the example that computes the grid and prints it, with `words` as its arguments.
pub(crate) fn grid(words: &[&str]) -> anyhow::Result<()> {
    let example = ["run", "-q", "--release", "-p", "weft-lab", "--example", "grid", "--"];
    let status = cargo(&[&example[..], words].concat()).status()?;
    ensure!(
        status.success(),
        "defaults lose beyond the bounds of experiments/grid.toml, or {status}"
    );
    Ok(())
}
