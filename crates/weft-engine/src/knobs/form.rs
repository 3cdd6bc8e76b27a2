//! Forms of knobs: how the values of each kind of knob are written, and which values are allowed.

use weft_units::{Bytes, Span};

use super::{Knobs, WAITS_WITHOUT_BOUND};

/// Text form for the values of a knob.
pub(super) struct Form<T> {
    /// Unit of the values, as shown to users.
    pub(super) unit: &'static str,
    /// Returns the range of allowed values, as shown to users.
    pub(super) range: fn() -> String,
    /// Parses a new value; `None` if it is not allowed. The allowed values may depend on the
    /// present value and on other knobs.
    pub(super) parse: fn(&str, T, &Knobs) -> Option<T>,
    /// Converts a value to a text that `parse` accepts.
    pub(super) show: fn(T) -> String,
}

/// Enumeration of the words that a knob accepts, in the order in which users see them.
macro_rules! words {
    ($($(#[$meta:meta])* pub enum $name:ident {
        $($(#[$of_value:meta])* $value:ident = $word:literal,)+
    })+) => {$(
        $(#[$meta])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        pub enum $name {
            $($(#[$of_value])* $value,)+
        }

        impl $name {
            /// All values, in the order in which users see them.
            pub const ALL: [Self; [$($word),+].len()] = [$(Self::$value),+];

            pub(super) const FORM: Form<Self> = Form {
                unit: "word",
                range: || [$($word),+].join(" | "),
                parse: |text, _, _| Self::ALL.into_iter().find(|value| value.name() == text),
                show: |value| value.name().to_owned(),
            };

            /// Word that stands for the value.
            #[must_use]
            pub const fn name(self) -> &'static str {
                match self {
                    $(Self::$value => $word,)+
                }
            }
        }
    )+};
}

pub(super) use words;

/// The largest value that the kernel accepts for most scheduler knobs.
pub(super) const INT_MAX: u32 = i32::MAX as u32;

/// Form of a whole number from `MIN` to `MAX`.
pub(super) const fn number<const MIN: u32, const MAX: u32>(unit: &'static str) -> Form<u32> {
    Form {
        unit,
        range: || format!("{MIN}..={MAX}"),
        parse: |text, _, _| whole(text, MIN, MAX),
        show: |value| value.to_string(),
    }
}

/// Form of a whole number of percent from `MIN` to `MAX`.
pub(super) const fn percent<const MIN: u8, const MAX: u8>() -> Form<u8> {
    Form {
        unit: "percent",
        range: || format!("{MIN}..={MAX}"),
        parse: |text, _, _| text.parse().ok().filter(|value| (MIN..=MAX).contains(value)),
        show: |value| value.to_string(),
    }
}

/// Form of a flag: 0 or 1.
pub(super) const fn flag() -> Form<bool> {
    Form {
        unit: "flag",
        range: || "0 | 1".into(),
        parse: |text, _, _| parse_flag(text),
        show: |value| u8::from(value).to_string(),
    }
}

/// Form of a flag (0 or 1), or `auto` for the value that the device reports.
pub(super) const fn flag_or_auto() -> Form<Option<bool>> {
    Form {
        unit: "word",
        range: || "auto | 0 | 1".into(),
        parse: |text, _, _| {
            if text == "auto" { Some(None) } else { parse_flag(text).map(Some) }
        },
        show: |value| value.map_or("auto".into(), |it| u8::from(it).to_string()),
    }
}

/// Form of a time in whole milliseconds, at least `MIN`.
pub(super) const fn millis<const MIN: u32>() -> Form<Span> {
    Form {
        unit: "milliseconds",
        range: || format!("{MIN}..={INT_MAX}"),
        parse: |text, _, _| whole(text, MIN, INT_MAX).map(|count| Span::millis(count.into())),
        show: |value| (value.0 / 1_000_000).to_string(),
    }
}

/// Form of a time in whole microseconds.
pub(super) const fn micros() -> Form<Span> {
    Form {
        unit: "microseconds",
        range: || format!("0..={}", u32::MAX),
        parse: |text, _, _| text.parse().ok().map(|count: u32| Span(u64::from(count) * 1000)),
        show: |value| (value.0 / 1000).to_string(),
    }
}

/// Form of a time in whole nanoseconds.
pub(super) const fn nanos() -> Form<Span> {
    Form {
        unit: "nanoseconds",
        range: || format!("0..={}", u64::MAX),
        parse: |text, _, _| text.parse().ok().map(Span),
        show: |value| value.0.to_string(),
    }
}

/// Form of a time in seconds with up to three decimals, at most a day.
pub(super) const fn seconds() -> Form<Span> {
    Form {
        unit: "seconds",
        range: || "0..=86400".into(),
        parse: |text, _, _| parse_seconds(text),
        show: show_seconds,
    }
}

/// Form of a size in whole KiB, at most `MAX`.
pub(super) const fn kib<const MAX: u32>() -> Form<Bytes> {
    Form {
        unit: "KiB",
        range: || format!("0..={MAX}"),
        parse: |text, _, _| whole(text, 0, MAX).map(|count| Bytes::kib(count.into())),
        show: |value| (value.0 >> 10).to_string(),
    }
}

/// Form of a speed in KiB per second, as with md's `sync_speed_min`. The word `system` stands for
/// `SYSTEM`, the value of an untuned system.
pub(super) const fn speed<const SYSTEM: u32>() -> Form<Bytes> {
    Form {
        unit: "KiB/s",
        range: || format!("1..={INT_MAX} | system"),
        parse: |text, _, _| {
            let rate = if text == "system" { Some(SYSTEM) } else { whole(text, 1, INT_MAX) };
            rate.map(|rate| Bytes::kib(rate.into()))
        },
        show: |value| (value.0 >> 10).to_string(),
    }
}

/// Form of `nr_requests`: 4 to 2048 requests, as in the kernel, or 0.
pub(super) const fn tokens() -> Form<u32> {
    Form {
        range: || "0 | 4..=2048".into(),
        parse: |text, _, _| whole(text, 0, 2048).filter(|count| !(1..4).contains(count)),
        ..number::<0, 2048>("requests")
    }
}

/// Form of a number of stripes that is not larger than `stripe_cache_size`.
pub(super) const fn bypass_threshold() -> Form<u32> {
    Form {
        range: || "0..=stripe_cache_size".into(),
        parse: |text, _, knobs| whole(text, 0, knobs.stripe_cache_size),
        ..number::<0, INT_MAX>("stripes")
    }
}

/// Form of a time in seconds, at most a minute, or `none` for a wait without limit.
pub(super) const fn preread_wait() -> Form<Span> {
    Form {
        unit: "seconds",
        range: || "0..=60, or none".into(),
        parse: |text, _, _| match text {
            "none" => Some(WAITS_WITHOUT_BOUND),
            _ => parse_seconds(text).filter(|span| *span <= Span::secs(60)),
        },
        show: |value| match value {
            WAITS_WITHOUT_BOUND => "none".into(),
            span => show_seconds(span),
        },
    }
}

/// Form of the size of the stripe cache: 1 MiB to 64 GiB, in bytes, or 0.
pub(super) const fn cache_bytes() -> Form<Bytes> {
    Form {
        unit: "bytes",
        range: || "0, or 1048576..=68719476736".into(),
        parse: |text, _, _| {
            let bytes = text.parse().ok().filter(|b| *b == 0 || (1 << 20..=1 << 36).contains(b))?;
            Some(Bytes(bytes))
        },
        show: |value| value.0.to_string(),
    }
}

fn whole(text: &str, min: u32, max: u32) -> Option<u32> {
    text.parse().ok().filter(|value| (min..=max).contains(value))
}

fn parse_flag(text: &str) -> Option<bool> {
    match text {
        "0" => Some(false),
        "1" => Some(true),
        _ => None,
    }
}

/// Parses seconds with up to three decimals, as for md's `safe_mode_delay`; `None` if the text is
/// anything else.
fn parse_seconds(text: &str) -> Option<Span> {
    let (whole_part, fraction) = text.split_once('.').unwrap_or((text, ""));
    if fraction.len() > 3 || !fraction.bytes().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    let millis: u64 = format!("{fraction:0<3}").parse().ok()?;
    let seconds = u64::from(whole(whole_part, 0, 86_400)?);
    Some(Span::millis(seconds * 1000 + millis))
}

fn show_seconds(span: Span) -> String {
    let millis = span.0 / 1_000_000;
    format!("{}.{:03}", millis / 1000, millis % 1000)
}
