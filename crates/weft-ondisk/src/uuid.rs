//! UUIDs: the 16 bytes that identify an array or a member.
//!
//! The crate `uuid` is not used, because it neither prints mdadm's form of four groups nor parses
//! digits with `:` between them. For anything else an array of 16 bytes is enough.

use std::fmt;
use std::str::FromStr;

/// A UUID of 16 bytes, printed and parsed like mdadm does: four groups of eight hex digits, in
/// storage order.
///
/// ```
/// let uuid: weft_ondisk::Uuid = "a61dfb7a:565c2046:39f33691:2d9a74d3".parse().unwrap();
/// assert_eq!(uuid.0[..4], [0xa6, 0x1d, 0xfb, 0x7a]);
/// assert_eq!("a61dfb7a-565c-2046-39f3-36912d9a74d3".parse(), Ok(uuid));
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Uuid(pub [u8; 16]);

/// Error for a text that is not a UUID: not 32 hex digits with `:` or `-` between them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("not a uuid: expected 32 hex digits, with ':' or '-' only between them")]
pub struct BadUuid;

impl Uuid {
    /// Whether all bytes are zero: such a UUID identifies nothing.
    #[must_use]
    pub fn is_nil(self) -> bool {
        self.0 == [0; 16]
    }
}

impl From<[u8; 16]> for Uuid {
    fn from(bytes: [u8; 16]) -> Self {
        Self(bytes)
    }
}

impl fmt::Display for Uuid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, byte) in self.0.iter().enumerate() {
            if index > 0 && index % 4 == 0 {
                f.write_str(":")?;
            }
            write!(f, "{byte:02x}")?;
        }
        Ok(())
    }
}

impl FromStr for Uuid {
    type Err = BadUuid;

    fn from_str(text: &str) -> Result<Self, BadUuid> {
        let mut nibbles = Vec::with_capacity(32);
        let mut after_digit = false;
        for character in text.chars() {
            if let Some(digit) = character.to_digit(16) {
                if nibbles.len() == 32 {
                    return Err(BadUuid);
                }
                nibbles.push(u8::try_from(digit).map_err(|_| BadUuid)?);
                after_digit = true;
            } else if matches!(character, ':' | '-') && after_digit {
                after_digit = false;
            } else {
                return Err(BadUuid);
            }
        }
        if nibbles.len() != 32 || !after_digit {
            return Err(BadUuid);
        }
        let mut bytes = [0; 16];
        for (byte, pair) in bytes.iter_mut().zip(nibbles.chunks_exact(2)) {
            *byte = pair.iter().fold(0, |high, low| high << 4 | low);
        }
        Ok(Self(bytes))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_that_is_not_a_uuid_is_refused() {
        let good = "00000000:00000000:00000000:000000ff";
        assert_eq!(good.parse::<Uuid>().unwrap().to_string(), good);
        for bad in [
            "",
            "0",
            ":00000000:00000000:00000000:000000ff",
            "00000000::0000000000000000000000ff",
            "00000000:00000000:00000000:000000ff:",
            "00000000:00000000:00000000:000000ff0",
            "g0000000:00000000:00000000:000000ff",
        ] {
            assert_eq!(bad.parse::<Uuid>(), Err(BadUuid), "{bad}");
        }
    }
}
