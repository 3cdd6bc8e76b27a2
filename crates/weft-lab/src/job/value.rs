//! Values in job files: sizes, times, ranges, percentages and lists.

use weft_units::{Bytes, Span};

/// A size that may depend on the volume.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Size {
    /// Size in bytes.
    Bytes(Bytes),
    /// Size in percent of the volume, up to 100.
    Percent(u8),
}

impl Size {
    /// The size in bytes, on a volume of `whole` bytes.
    #[must_use]
    pub fn of(self, whole: Bytes) -> Bytes {
        match self {
            Self::Bytes(bytes) => bytes,
            Self::Percent(percent) => {
                let bytes = u128::from(whole.0) * u128::from(percent) / 100;
                Bytes(u64::try_from(bytes).expect("a share of 64 bits"))
            }
        }
    }
}

/// Splits a text into its leading number and the rest; all digits after `0x` are a hexadecimal
/// number. `None` if the text does not begin with a number of 64 bits.
fn digits(text: &str) -> Option<(u64, &str)> {
    if let Some(hex) = text.strip_prefix("0x") {
        return Some((u64::from_str_radix(hex, 16).ok()?, ""));
    }
    let end = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    Some((text[..end].parse().ok()?, &text[end..]))
}

/// Parses a number of bytes with a suffix. With a base of 1024, `k` is 1024 and `kib` is 1000, as
/// in fio 3.33; with a base of 1000 the two are swapped. `None` for any other text, and if the
/// number exceeds 64 bits.
pub(super) fn bytes(text: &str, kb_base: u64) -> Option<u64> {
    let (number, suffix) = digits(text)?;
    let suffix = suffix.to_ascii_lowercase();
    let mut letters = suffix.chars();
    let power = match letters.next() {
        None | Some('b') => 0,
        Some('k') => 1,
        Some('m') => 2,
        Some('g') => 3,
        Some('t') => 4,
        Some('p') => 5,
        Some(_) => return None,
    };
    let other = if kb_base == 1024 { 1000 } else { 1024 };
    let base: u64 = match (power, letters.as_str()) {
        (0, "") | (1.., "" | "b") => kb_base,
        (1.., "i") => 1024,
        (1.., "ib") => other,
        _ => return None,
    };
    number.checked_mul(base.checked_pow(power)?)
}

/// Parses a length of time; without a suffix, the number is in units of `unit`. `None` for any
/// other text.
pub(super) fn span(text: &str, unit: Span) -> Option<Span> {
    let (number, suffix) = digits(text)?;
    let nanoseconds = match suffix.to_ascii_lowercase().as_str() {
        "" => unit.0,
        "us" | "usec" => 1_000,
        "ms" | "msec" => 1_000_000,
        "s" => 1_000_000_000,
        "m" => 60_000_000_000,
        "h" => 3_600_000_000_000,
        "d" => 86_400_000_000_000,
        _ => return None,
    };
    Some(Span(number.checked_mul(nanoseconds)?))
}

/// Parses a size or a percentage of at most 100; `None` for any other text.
pub(super) fn size(text: &str, kb_base: u64) -> Option<Size> {
    if let Some(percent) = text.strip_suffix('%') {
        let percent: u8 = percent.parse().ok()?;
        return (percent <= 100).then_some(Size::Percent(percent));
    }
    Some(Size::Bytes(Bytes(bytes(text, kb_base)?)))
}

/// Parses a list with a value for each direction, separated by commas. The last value also applies
/// to the directions after it; an empty value leaves that of `before`. `None` if the list has no
/// value or more than three, or if `one` returns `None` for a value.
pub(super) fn by_direction<T: Clone>(
    text: &str,
    before: [T; 3],
    one: impl Fn(&str) -> Option<T>,
) -> Option<[T; 3]> {
    let parts: Vec<&str> = text.split(',').map(str::trim).collect();
    if parts.len() > 3 || parts.iter().all(|part| part.is_empty()) {
        return None;
    }
    let mut values = before;
    for (at, part) in parts.iter().enumerate().filter(|(_, part)| !part.is_empty()) {
        let value = one(part)?;
        let last = at + 1 == parts.len();
        for slot in &mut values[at..if last { 3 } else { at + 1 }] {
            *slot = value.clone();
        }
    }
    Some(values)
}

/// Parses a range `a-b` of sizes above 0; `None` for any other text.
pub(super) fn range(text: &str, kb_base: u64) -> Option<(Bytes, Bytes)> {
    let (low, high) = text.split_once('-')?;
    let (low, high) = (bytes(low.trim(), kb_base)?, bytes(high.trim(), kb_base)?);
    (0 < low && low <= high).then_some((Bytes(low), Bytes(high)))
}

/// Parses `size/percent:size/percent:…`; sizes without a percentage share the remainder. `None` for
/// any other text, and if the percentages cannot add up to 100.
pub(super) fn split(text: &str, kb_base: u64) -> Option<Vec<(Bytes, u32)>> {
    let mut sizes = Vec::new();
    for part in text.split(':') {
        let (size, percent) = part.split_once('/').unwrap_or((part, ""));
        let percent: Option<u32> =
            if percent.is_empty() { None } else { Some(percent.parse().ok()?) };
        sizes.push((Bytes(bytes(size.trim(), kb_base).filter(|size| *size > 0)?), percent));
    }
    let (sizes, percents): (Vec<Bytes>, Vec<Option<u32>>) = sizes.into_iter().unzip();
    Some(sizes.into_iter().zip(shares(&percents)?).collect())
}

/// Fills in the percentages that are not given, with equal shares of the remainder, each at least
/// 1; `None` if the sum cannot be 100.
pub(super) fn shares(percents: &[Option<u32>]) -> Option<Vec<u32>> {
    let given = percents.iter().flatten().try_fold(0u32, |sum, part| sum.checked_add(*part))?;
    let left = 100u32.checked_sub(given)?;
    let open = u32::try_from(percents.iter().filter(|part| part.is_none()).count()).ok()?;
    if (open == 0 && left != 0) || open > left {
        return None;
    }
    // Without a part to fill, the remainder is 0.
    let (share, mut extra) = (left / open.max(1), left % open.max(1));
    let shared = percents.iter().map(|part| {
        part.unwrap_or_else(|| {
            let one_more = u32::from(extra > 0);
            extra -= one_more;
            share + one_more
        })
    });
    Some(shared.collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_mean_what_they_mean_to_fio() {
        // Values of bs=… as fio 3.33 printed them, with kb_base=1024.
        let fio = [("4ki", 4096), ("4k", 4096), ("4KB", 4096), ("4kib", 4000), ("0x1000", 4096)];
        for (text, expected) in fio {
            assert_eq!(bytes(text, 1024), Some(expected), "{text}");
        }
        assert_eq!((bytes("2m", 1024), bytes("3b", 1024)), (Some(2 << 20), Some(3)));
        assert_eq!((bytes("2m", 1000), bytes("2MiB", 1000)), (Some(2_000_000), Some(2 << 20)));
        for bad in ["", "k", "4x", "4kk", "-1", "4bb", "99999999999999999999", "99999999p", "1.5k"]
        {
            assert_eq!(bytes(bad, 1024), None, "{bad}");
        }
        assert_eq!(size("50%", 1024), Some(Size::Percent(50)));
        assert_eq!(size("0%", 1024), Some(Size::Percent(0)));
        assert_eq!((size("101%", 1024), size("x%", 1024)), (None, None));
        assert_eq!(Size::Percent(50).of(Bytes(u64::MAX)), Bytes(u64::MAX / 2));
    }

    #[test]
    fn times_have_a_unit_of_their_option() {
        assert_eq!(span("10", Span(1000)), Some(Span(10_000)));
        assert_eq!(span("10ms", Span::secs(1)), Some(Span::millis(10)));
        assert_eq!(span("2m", Span::secs(1)), Some(Span::secs(120)));
        assert_eq!((span("x", Span(1)), span("5y", Span(1))), (None, None));
    }

    #[test]
    fn directions_take_what_stands_before_the_last_comma() {
        let parse = |text| by_direction(text, [1, 1, 1], |part| part.parse::<u32>().ok());
        assert_eq!(parse("8"), Some([8, 8, 8]));
        assert_eq!(parse("8,32"), Some([8, 32, 32]));
        assert_eq!(parse("8,32,16"), Some([8, 32, 16]));
        assert_eq!(parse(",8"), Some([1, 8, 8]));
        assert_eq!(parse("8,"), Some([8, 1, 1]));
        assert_eq!((parse(""), parse("1,2,3,4"), parse("x")), (None, None, None));
    }

    #[test]
    fn splits_add_up_to_a_hundred() {
        let split = |text| split(text, 1024);
        let b = Bytes;
        assert_eq!(
            split("4k/10:64k/50:32k/40"),
            Some(vec![(b(4096), 10), (b(65536), 50), (b(32768), 40)])
        );
        assert_eq!(split("1k/50:2k/:4k"), Some(vec![(b(1024), 50), (b(2048), 25), (b(4096), 25)]));
        assert_eq!(split("1k:2k:4k").unwrap().iter().map(|size| size.1).sum::<u32>(), 100);
        for bad in ["4k/50", "4k/60:8k/60", "0/100", "4k/100:8k", "4k/x", ""] {
            assert_eq!(split(bad), None, "{bad}");
        }
        assert_eq!(shares(&[Some(5), Some(15), None]), Some(vec![5, 15, 80]));
        assert_eq!(shares(&[None, Some(33), None]), Some(vec![34, 33, 33]));
        assert_eq!((shares(&[Some(50)]), shares(&[Some(100), None])), (None, None));
    }
}
