//! Sizes in arguments and in output.
//!
//! `64K`, `1M`, `2G`, `1T` are binary, as for mdadm and fio; `4096s` counts sectors of 512 bytes,
//! `512B` bytes. The unit of a plain number differs between commands, so each command specifies it.

use weft_units::Bytes;

/// Unit of a number without a suffix.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Plain {
    Bytes,
    /// KiB, as mdadm's `--chunk` and `--size`.
    Kib,
    /// A plain number is refused: a unit is required.
    Refused,
}

/// Parses a size.
///
/// # Errors
/// The text is not a size; the error states the expected form.
pub(crate) fn parse(text: &str, plain: Plain) -> Result<Bytes, String> {
    let bad = |why: &str| format!("size: found {text:?}, {why}");
    let digits = text.bytes().take_while(u8::is_ascii_digit).count();
    let (number, unit) = text.split_at(digits);
    if number.is_empty() {
        return Err(bad("expected a number with K, M, G, T, s (sectors) or B (bytes), as in 64K"));
    }
    let number: u64 = number.parse().map_err(|_| bad("expected less than 2^64 bytes"))?;
    let shift = match (unit, plain) {
        ("B" | "b", _) | ("", Plain::Bytes) => 0,
        ("s", _) => 9,
        ("K" | "k" | "KiB", _) | ("", Plain::Kib) => 10,
        ("M" | "m" | "MiB", _) => 20,
        ("G" | "g" | "GiB", _) => 30,
        ("T" | "t" | "TiB", _) => 40,
        ("", Plain::Refused) => return Err(bad("expected a unit: K, M, G, T, s or B")),
        _ => return Err(bad("expected K, M, G, T (binary), s (sectors) or B (bytes) after it")),
    };
    let bytes = number.checked_mul(1 << shift);
    // Offsets in files are signed.
    bytes
        .filter(|bytes| *bytes <= i64::MAX.unsigned_abs())
        .map(Bytes)
        .ok_or_else(|| bad("expected less than 8 EiB"))
}

/// Parser of a size for clap; a plain number is in KiB.
pub(crate) fn kib(text: &str) -> Result<Bytes, String> {
    parse(text, Plain::Kib)
}

/// Parser of a size for clap; a plain number is in bytes.
pub(crate) fn bytes(text: &str) -> Result<Bytes, String> {
    parse(text, Plain::Bytes)
}

/// Parser of a size for clap that requires a unit.
pub(crate) fn with_unit(text: &str) -> Result<Bytes, String> {
    parse(text, Plain::Refused)
}

/// Parser of a size for `--write-back`.
pub(crate) fn write_back(text: &str) -> Result<Bytes, String> {
    let size = with_unit(text)?;
    if (WRITE_BACK_MIN..=WRITE_BACK_MAX).contains(&size) {
        return Ok(size);
    }
    Err(format!("found {text}, expected 1M to 1T"))
}

/// Smallest write-back cache: a smaller one has no room for two requests of usual size.
const WRITE_BACK_MIN: Bytes = Bytes::mib(1);
/// Largest write-back cache: the memory of a server has fewer than 2^32 frames.
const WRITE_BACK_MAX: Bytes = Bytes::mib(1 << 20);

/// Text of a size: `3.00 GiB`, `512 KiB`, `17 B`.
pub(crate) fn human(bytes: Bytes) -> String {
    let Bytes(count) = bytes;
    for (shift, unit) in [(40, "TiB"), (30, "GiB"), (20, "MiB"), (10, "KiB")] {
        if count >= 1 << shift {
            let whole = count >> shift;
            if count.is_multiple_of(1 << shift) {
                return format!("{whole} {unit}");
            }
            let hundredths = ((u128::from(count) * 100) >> shift) % 100;
            return format!("{whole}.{hundredths:02} {unit}");
        }
    }
    format!("{count} B")
}

/// Text of at most eight characters for a size, in three digits, or four where it is whole:
/// `1.20 GiB`, `17.5 KiB`, `1023 MiB`.
pub(crate) fn rounded(bytes: Bytes) -> String {
    let Bytes(count) = bytes;
    for (shift, unit) in
        [(60, "EiB"), (50, "PiB"), (40, "TiB"), (30, "GiB"), (20, "MiB"), (10, "KiB")]
    {
        if count >= 1 << shift {
            let hundredths = (u128::from(count) * 100) >> shift;
            let (whole, rest) = (hundredths / 100, hundredths % 100);
            return match whole {
                0..10 => format!("{whole}.{rest:02} {unit}"),
                10..100 => format!("{whole}.{} {unit}", rest / 10),
                _ => format!("{whole} {unit}"),
            };
        }
    }
    format!("{count} B")
}

/// Suffix that mdadm prints after large sizes: ` (9.00 MiB 9.44 MB)`; empty below 5000 KiB.
///
/// Source   output of mdadm 4.2
pub(crate) fn mdadm(bytes: Bytes) -> String {
    let bytes = u128::from(bytes.0);
    if bytes < 5000 * 1024 {
        return String::new();
    }
    let (binary, decimal, letter) = match bytes {
        0..0x8000_0000 => (1 << 20, 1_000_000, 'M'),
        0x8000_0000..0x200_0000_0000 => (1 << 30, 1_000_000_000, 'G'),
        _ => (1_u128 << 40, 1_000_000_000_000, 'T'),
    };
    let hundredths = |unit: u128| (bytes * 200 / unit).div_ceil(2);
    let show = |hundredths: u128| format!("{}.{:02}", hundredths / 100, hundredths % 100);
    format!(
        " ({} {letter}iB {} {letter}B)",
        show(hundredths(binary)),
        show((bytes / (decimal / 200)).div_ceil(2)),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn units_are_binary_and_plain_numbers_mean_what_the_option_says() {
        for (text, plain, expected) in [
            ("64K", Plain::Refused, 65_536),
            ("64", Plain::Kib, 65_536),
            ("64", Plain::Bytes, 64),
            ("1G", Plain::Bytes, 1 << 30),
            ("2T", Plain::Bytes, 2 << 40),
            ("3s", Plain::Kib, 1536),
            ("512B", Plain::Kib, 512),
            ("1MiB", Plain::Kib, 1 << 20),
            ("0", Plain::Bytes, 0),
        ] {
            assert_eq!(parse(text, plain), Ok(Bytes(expected)), "{text}");
        }
    }

    #[test]
    fn a_rounded_size_fits_into_eight_characters() {
        for (bytes, expected) in [
            (0, "0 B"),
            (1023, "1023 B"),
            (1024, "1.00 KiB"),
            (17_920, "17.5 KiB"),
            ((1 << 20) - 1, "1023 KiB"),
            (3 << 30, "3.00 GiB"),
            (u64::MAX, "15.9 EiB"),
        ] {
            assert_eq!(rounded(Bytes(bytes)), expected);
            assert!(expected.len() <= 8);
        }
    }

    #[test]
    fn what_is_no_size_is_refused() {
        for text in [
            "",
            "K",
            "-1",
            "1.5G",
            "1X",
            "1 K",
            "99999999999999999999",
            "99999999T",
            "é",
            "8388608T",
        ] {
            assert!(parse(text, Plain::Bytes).is_err(), "{text}");
        }
        assert!(parse("64", Plain::Refused).unwrap_err().contains("unit"));
    }

    #[test]
    fn sizes_read_as_mdadm_prints_them() {
        for (kib, expected) in [
            (3072, ""),
            (9216, " (9.00 MiB 9.44 MB)"),
            (12_288, " (12.00 MiB 12.58 MB)"),
            (5120, " (5.00 MiB 5.24 MB)"),
            (15_360, " (15.00 MiB 15.73 MB)"),
        ] {
            assert_eq!(mdadm(Bytes::kib(kib)), expected);
        }
        assert_eq!(human(Bytes(1536)), "1.50 KiB");
        assert_eq!(human(Bytes::mib(64)), "64 MiB");
        assert_eq!(human(Bytes(17)), "17 B");
        assert_eq!(human(Bytes(u64::MAX)), "16777215.99 TiB");
    }
}
