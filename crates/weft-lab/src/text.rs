//! Forms of values in texts: hexadecimal digits, and values that are cut for an error.

/// Hexadecimal digits of bytes, two for each byte.
#[must_use]
pub fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// The first `letters` of a value, with `…` behind them if there are more.
pub(crate) fn shortened(value: &str, letters: usize) -> String {
    match value.char_indices().nth(letters) {
        Some((end, _)) => format!("{}…", &value[..end]),
        None => value.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_is_cut_between_letters_and_says_so() {
        assert_eq!(shortened("abc", 3), "abc");
        assert_eq!(shortened("äbcd", 3), "äbc…");
        assert_eq!(hex(&[0, 10, 255]), "000aff");
    }
}
