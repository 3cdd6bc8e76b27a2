//! Integers and texts in the bytes of on-disk structures.

pub(crate) use weft_units::fields::{array, be16, be32, be64, le16, le32, le64};

/// The `len` bytes at `at`, or as many of them as there are.
pub(crate) fn part(bytes: &[u8], at: usize, len: usize) -> &[u8] {
    let end = at.saturating_add(len).min(bytes.len());
    bytes.get(at..end).unwrap_or(&[])
}

/// Text that ends at the first NUL, without control characters; `None` if it is empty.
pub(crate) fn text(bytes: &[u8]) -> Option<String> {
    let end = bytes.iter().position(|&byte| byte == 0).unwrap_or(bytes.len());
    let text = String::from_utf8_lossy(part(bytes, 0, end));
    let text: String = text.chars().filter(|c| !c.is_control()).collect();
    let text = text.trim().to_owned();
    (!text.is_empty()).then_some(text)
}

/// UUID in its usual form; `None` if all of its bytes are 0.
pub(crate) fn uuid(bytes: [u8; 16]) -> Option<String> {
    if bytes == [0; 16] {
        return None;
    }
    let mut text = String::new();
    for (byte, index) in bytes.iter().zip(0..) {
        if matches!(index, 4 | 6 | 8 | 10) {
            text.push('-');
        }
        text += &format!("{byte:02x}");
    }
    Some(text)
}
