//! Bars of progress as text, in the form of `/proc/mdstat`.

/// Ratio of `part` to `whole` in thousandths. A `whole` of 0 counts as 1.
pub(crate) fn per_mille(part: u64, whole: u64) -> u64 {
    let part = u128::from(part) * 1000 / u128::from(whole.max(1));
    u64::try_from(part).unwrap_or(u64::MAX)
}

/// Bar of twenty cells and its head, as the kernel draws it: `[===>.................]`.
pub(crate) fn bar(per_mille: u64) -> String {
    let cells = usize::try_from(per_mille / 50).unwrap_or(20).min(20);
    format!("[{}>{}]", "=".repeat(cells), ".".repeat(20 - cells))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bar_has_its_head_behind_what_is_done() {
        for (part, whole, expected) in [
            (0, 0, "[>....................]"),
            (63, 1000, "[=>...................]"),
            (999, 1000, "[===================>.]"),
            (1, 1, "[====================>]"),
            (u64::MAX, 1, "[====================>]"),
        ] {
            assert_eq!(bar(per_mille(part, whole)), expected, "{part} of {whole}");
        }
    }
}
