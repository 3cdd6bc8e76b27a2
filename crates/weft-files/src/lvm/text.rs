//! Text of LVM's metadata: sections, values and lists, with the position of each error.
//!
//! LVM's tools write this text into a metadata area: `key = value` and `name { … }`, with
//! comments from `#` to the end of a line. Values are integers, strings and lists of them.
//!
//! Source   lvm.conf(5), "SYNTAX"; what vgcfgbackup writes

use thiserror::Error;

/// Fault of a text, with its position.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("line {line}, column {column}: found {found}, expected {expected}")]
pub struct TextError {
    /// Line, from 1.
    pub line: usize,
    /// Column in bytes, from 1.
    pub column: usize,
    /// Byte at this position.
    pub found: String,
    /// Text that would be legal at this position.
    pub expected: &'static str,
}

/// Value of a key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Value {
    /// Values in brackets.
    List(Vec<Value>),
    /// Integer, which may be negative.
    Number(i64),
    /// String, or a word that is no integer.
    Text(String),
}

/// Section: its values and its sections, in the order of the text.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Section {
    values: Vec<(String, Value)>,
    sections: Vec<(String, Section)>,
}

impl Section {
    /// Parses a whole text as the content of a section.
    ///
    /// # Errors
    /// The text does not follow the syntax.
    pub fn parse(text: &[u8]) -> Result<Self, TextError> {
        let mut parser = Parser { text, at: 0 };
        let section = parser.section(0)?;
        match parser.peek() {
            None => Ok(section),
            Some(_) => Err(parser.error("a key, a section or the end")),
        }
    }

    /// Value of a key, the last one if there are several; `None` if the section has no such key.
    #[must_use]
    pub fn value(&self, key: &str) -> Option<&Value> {
        self.values.iter().rev().find(|(name, _)| name == key).map(|(_, value)| value)
    }

    /// Integer of a key; `None` if the key has no integer, or a negative one.
    #[must_use]
    pub fn number(&self, key: &str) -> Option<u64> {
        match self.value(key)? {
            Value::Number(number) => u64::try_from(*number).ok(),
            Value::List(_) | Value::Text(_) => None,
        }
    }

    /// String of a key; `None` if the key has no string.
    #[must_use]
    pub fn text(&self, key: &str) -> Option<&str> {
        match self.value(key)? {
            Value::Text(text) => Some(text),
            Value::List(_) | Value::Number(_) => None,
        }
    }

    /// Values in the list of a key; empty if the key has no list.
    #[must_use]
    pub fn list(&self, key: &str) -> &[Value] {
        match self.value(key) {
            Some(Value::List(values)) => values,
            _ => &[],
        }
    }

    /// Whether the list of a key contains this string.
    #[must_use]
    pub fn has(&self, key: &str, text: &str) -> bool {
        self.list(key).iter().any(|value| matches!(value, Value::Text(it) if it == text))
    }

    /// First section of this name; `None` if there is none.
    #[must_use]
    pub fn section(&self, name: &str) -> Option<&Section> {
        self.sections.iter().find(|(its, _)| its == name).map(|(_, section)| section)
    }

    /// All sections, with their names.
    #[must_use]
    pub fn sections(&self) -> &[(String, Section)] {
        &self.sections
    }
}

struct Parser<'t> {
    text: &'t [u8],
    at: usize,
}

/// Largest depth of sections and lists: LVM's own is four.
const DEPTH_MAX: usize = 16;

impl Parser<'_> {
    /// Next byte after spaces and comments, which are passed over; `None` at the end of the text.
    fn peek(&mut self) -> Option<u8> {
        loop {
            match self.text.get(self.at)? {
                b'#' => {
                    let rest = &self.text[self.at..];
                    self.at += rest.iter().position(|&b| b == b'\n').unwrap_or(rest.len());
                }
                // Metadata areas end the text with a NUL.
                b' ' | b'\t' | b'\r' | b'\n' | 0 => self.at += 1,
                &byte => return Some(byte),
            }
        }
    }

    fn error(&self, expected: &'static str) -> TextError {
        let before = &self.text[..self.at.min(self.text.len())];
        let line = before.iter().filter(|&&b| b == b'\n').count() + 1;
        let column = before.iter().rev().take_while(|&&b| b != b'\n').count() + 1;
        let found = match self.text.get(self.at) {
            None => "the end of the text".into(),
            Some(byte) => format!("`{}`", byte.escape_ascii()),
        };
        TextError { line, column, found, expected }
    }

    fn take(&mut self, byte: u8, expected: &'static str) -> Result<(), TextError> {
        if self.peek() == Some(byte) {
            self.at += 1;
            return Ok(());
        }
        Err(self.error(expected))
    }

    /// Values and sections up to a closing brace or the end of the text.
    fn section(&mut self, depth: usize) -> Result<Section, TextError> {
        if depth > DEPTH_MAX {
            return Err(self.error("fewer sections within each other"));
        }
        let mut section = Section::default();
        loop {
            match self.peek() {
                None | Some(b'}') => return Ok(section),
                Some(_) => {}
            }
            let name = self.word("a key or the name of a section")?;
            match self.peek() {
                Some(b'{') => {
                    self.at += 1;
                    let inner = self.section(depth + 1)?;
                    self.take(b'}', "`}`")?;
                    section.sections.push((name, inner));
                }
                Some(b'=') => {
                    self.at += 1;
                    let value = self.value(depth + 1)?;
                    section.values.push((name, value));
                }
                _ => return Err(self.error("`=` or `{`")),
            }
        }
    }

    fn value(&mut self, depth: usize) -> Result<Value, TextError> {
        if depth > DEPTH_MAX {
            return Err(self.error("fewer lists within each other"));
        }
        match self.peek() {
            Some(b'"') => self.string().map(Value::Text),
            Some(b'[') => {
                self.at += 1;
                let mut values = Vec::new();
                loop {
                    if self.peek() == Some(b']') {
                        self.at += 1;
                        return Ok(Value::List(values));
                    }
                    values.push(self.value(depth + 1)?);
                    if self.peek() == Some(b',') {
                        self.at += 1;
                    } else if self.peek() != Some(b']') {
                        return Err(self.error("`,` or `]`"));
                    }
                }
            }
            _ => {
                let word = self.word("a value")?;
                Ok(word.parse().map_or(Value::Text(word), Value::Number))
            }
        }
    }

    fn word(&mut self, expected: &'static str) -> Result<String, TextError> {
        if self.peek() == Some(b'"') {
            return self.string();
        }
        let rest = self.text.get(self.at..).unwrap_or(&[]);
        let is_word = |b: &u8| b.is_ascii_alphanumeric() || b"_.+-/@:".contains(b);
        let len = rest.iter().take_while(|b| is_word(b)).count();
        if len == 0 {
            return Err(self.error(expected));
        }
        self.at += len;
        Ok(String::from_utf8_lossy(&rest[..len]).into_owned())
    }

    fn string(&mut self) -> Result<String, TextError> {
        self.take(b'"', "`\"`")?;
        let mut bytes = Vec::new();
        loop {
            match self.text.get(self.at) {
                None | Some(0) => return Err(self.error("`\"`")),
                Some(b'"') => {
                    self.at += 1;
                    return Ok(String::from_utf8_lossy(&bytes).into_owned());
                }
                Some(b'\\') if self.at + 1 < self.text.len() => {
                    bytes.push(self.text[self.at + 1]);
                    self.at += 2;
                }
                Some(&byte) => {
                    bytes.push(byte);
                    self.at += 1;
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_has_sections_values_and_lists() {
        let text = b"# made\nvg0 {\n id = \"a\\\"b\"\n seqno=7 status = [\"READ\", \"WRITE\"]\n \
                     empty = []\n lv { n = -3 }\n}\ncontents = \"x\"\n\0";
        let all = Section::parse(text).unwrap();
        let vg = all.section("vg0").unwrap();
        assert_eq!(vg.text("id"), Some("a\"b"));
        assert_eq!(vg.number("seqno"), Some(7));
        assert!(vg.has("status", "WRITE") && !vg.has("status", "LOCKED"));
        assert!(vg.list("empty").is_empty() && vg.list("id").is_empty());
        assert_eq!(vg.section("lv").unwrap().number("n"), None, "negative");
        assert_eq!(vg.section("lv").unwrap().value("n"), Some(&Value::Number(-3)));
        assert_eq!(all.text("contents"), Some("x"));
        assert_eq!(all.sections().len(), 1);
    }

    #[test]
    fn errors_have_positions() {
        let cases: [(&[u8], &str); 8] = [
            (b"a {\n  b = 1\n", "line 3, column 1: found the end of the text, expected `}`"),
            (b"a\n  ]", "line 2, column 3: found `]`, expected `=` or `{`"),
            (b"a = \"x", "line 1, column 7: found the end of the text, expected `\"`"),
            (b"a = [1 2]", "line 1, column 8: found `2`, expected `,` or `]`"),
            (b"a = }", "line 1, column 5: found `}`, expected a value"),
            (b"\n= 1", "line 2, column 1: found `=`, expected a key or the name of a section"),
            (b"}", "line 1, column 1: found `}`, expected a key, a section or the end"),
            (b"a = \xff", "line 1, column 5: found `\\xff`, expected a value"),
        ];
        for (text, says) in cases {
            assert_eq!(Section::parse(text).unwrap_err().to_string(), says);
        }
        let deep = "a {".repeat(100_000);
        let says = Section::parse(deep.as_bytes()).unwrap_err().to_string();
        assert!(says.contains("fewer sections"), "{says}");
        let deep = format!("a = {}", "[".repeat(100_000));
        let says = Section::parse(deep.as_bytes()).unwrap_err().to_string();
        assert!(says.contains("fewer lists"), "{says}");
    }
}
