//! Reader of dbench's load files: one operation per line; errors name their line and column.
//!
//! A line is an operation, its arguments, and the status that the operation had when the load was
//! recorded:
//!
//! ```text
//! NTCreateX "\clients\client1\a.txt" 0x40 0x2 17 NT_STATUS_OK     path, options, disposition, handle
//! WriteX 17 0 4096 4096 NT_STATUS_OK                              handle, offset, length, length written
//! ```
//!
//! dbench comes with a load file under the GPL, which weft does not contain. Time stamps, `SLEEP`,
//! and the operations of dbench's other back ends (NFS, SCSI) are rejected.
//!
//! Source   experiments.md §1.6; dbench 4.0, `README`

use super::op::{Handle, Names, Op, Open, OperationKind};

/// A load: the operations of one pass.
#[derive(Clone, Debug, Default)]
pub struct Load {
    /// The operations, in order.
    pub ops: Vec<Op>,
    /// Names of the paths that the operations refer to.
    pub names: Names,
}

/// Error of a line that is not valid in a load file.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("load file, line {line}, column {column}: found {found}, expected {expected}")]
pub struct Error {
    /// Line number, from 1.
    pub line: usize,
    /// Column in bytes, from 1.
    pub column: usize,
    /// Text at `column`.
    pub found: String,
    /// Description of what was expected at `column`.
    pub expected: &'static str,
}

/// Bit `FILE_DIRECTORY_FILE` of the create options.
const DIRECTORY: u64 = 0x1;

impl Load {
    /// Parses the text of a load file.
    ///
    /// # Errors
    /// A line is not valid, or the text has no operation.
    pub fn parse(text: &str) -> Result<Self, Error> {
        let mut load = Self::default();
        let mut lines = 0;
        for (line, text) in text.lines().enumerate() {
            lines = line + 1;
            let mut fields = Fields { text, at: 0, line: lines };
            if text.trim().is_empty() || text.starts_with('#') {
                continue;
            }
            let op = operation(&mut fields, &mut load.names)?;
            fields.end()?;
            load.ops.push(op);
        }
        if load.ops.is_empty() {
            let found = "the end of the file".into();
            return Err(Error { line: lines + 1, column: 1, found, expected: AN_OPERATION });
        }
        Ok(load)
    }
}

const AN_OPERATION: &str = "an operation: Close, Deltree, FIND_FIRST, Flush, LockX, Mkdir, \
    NTCreateX, QUERY_FILE_INFORMATION, QUERY_FS_INFORMATION, QUERY_PATH_INFORMATION, ReadX, Rename, \
    SET_FILE_INFORMATION, Unlink, UnlockX or WriteX";

fn operation(fields: &mut Fields<'_>, names: &mut Names) -> Result<Op, Error> {
    let (column, name) = fields.next(AN_OPERATION)?;
    let Some(kind) = OperationKind::ALL.into_iter().find(|kind| kind.name() == name) else {
        return Err(fields.error(column, format!("{name:?}"), AN_OPERATION));
    };
    let op = match kind {
        OperationKind::Close => Op::Close(fields.handle()?),
        OperationKind::Deltree => Op::Deltree(names.path(fields.path()?)),
        OperationKind::FindFirst => {
            fields.path()?;
            fields.skip(&["a level", "the most names to find", "how many names were found"])?;
            Op::Other(kind)
        }
        OperationKind::Flush => Op::Flush(fields.handle()?),
        OperationKind::LockX | OperationKind::UnlockX => {
            fields.handle()?;
            fields.skip(&["an offset", "a length"])?;
            Op::Other(kind)
        }
        OperationKind::Mkdir => Op::Mkdir(names.path(fields.path()?)),
        OperationKind::NtCreateX => {
            let path = names.path(fields.path()?);
            let options = fields.number("create options")?;
            let disposition = fields.number("a create disposition")?;
            let handle = fields.handle()?;
            let open = match disposition {
                _ if options & DIRECTORY != 0 && disposition == 2 => Open::Directory,
                2 => Open::Create,
                4 | 5 => Open::Truncate,
                _ => Open::Existing,
            };
            Op::Open(path, Some((handle, open)))
        }
        OperationKind::QueryFile => {
            fields.handle()?;
            fields.number("a level")?;
            Op::Other(kind)
        }
        OperationKind::QueryFs | OperationKind::QueryPath => {
            if kind == OperationKind::QueryPath {
                fields.path()?;
            }
            fields.number("a level")?;
            Op::Other(kind)
        }
        OperationKind::ReadX | OperationKind::WriteX => {
            let handle = fields.handle()?;
            let offset = fields.number("an offset")?;
            let len = fields.length()?;
            fields.number("how many bytes were moved")?;
            if kind == OperationKind::ReadX {
                Op::Read { handle, offset, len }
            } else {
                Op::Write { handle, offset, len }
            }
        }
        OperationKind::Rename => {
            let from = names.path(fields.path()?);
            Op::Rename(from, names.path(fields.path()?))
        }
        OperationKind::SetFile => {
            let handle = fields.handle()?;
            fields.number("a level")?;
            Op::SetFile(handle)
        }
        OperationKind::Unlink => {
            let path = names.path(fields.path()?);
            fields.number("attributes")?;
            Op::Unlink(path)
        }
    };
    let succeeded = fields.status()?;
    Ok(match op {
        Op::Open(path, _) if !succeeded => Op::Open(path, None),
        // dbench removes whatever exists, even if the recorded operation failed.
        Op::Deltree(_) => op,
        _ if !succeeded => Op::Other(kind),
        _ => op,
    })
}

/// Reads the fields of a line one after the other.
struct Fields<'a> {
    text: &'a str,
    at: usize,
    line: usize,
}

impl<'a> Fields<'a> {
    fn error(&self, column: usize, found: String, expected: &'static str) -> Error {
        Error { line: self.line, column: column + 1, found, expected }
    }

    fn skip_spaces(&mut self) {
        let rest = &self.text[self.at..];
        self.at += rest.len() - rest.trim_start().len();
    }

    /// The next field, and its column from 0. `expected` describes it for the error.
    fn next(&mut self, expected: &'static str) -> Result<(usize, &'a str), Error> {
        self.skip_spaces();
        let (column, rest) = (self.at, &self.text[self.at..]);
        let len = rest.find(char::is_whitespace).unwrap_or(rest.len());
        if len == 0 {
            return Err(self.error(column, "the end of the line".into(), expected));
        }
        self.at += len;
        Ok((column, &rest[..len]))
    }

    fn path(&mut self) -> Result<&'a str, Error> {
        const EXPECTED: &str = "a path in double quotes";
        self.skip_spaces();
        let (column, rest) = (self.at, &self.text[self.at..]);
        let quoted = rest.strip_prefix('"').and_then(|rest| rest.split_once('"'));
        let Some((path, _)) = quoted else {
            let (_, found) = self.next(EXPECTED)?;
            return Err(self.error(column, format!("{found:?}"), EXPECTED));
        };
        self.at += path.len() + 2;
        Ok(path)
    }

    /// Skips numbers that are not used. `expected` describes each of them for the error.
    fn skip(&mut self, expected: &[&'static str]) -> Result<(), Error> {
        expected.iter().try_for_each(|expected| self.number(expected).map(drop))
    }

    fn number(&mut self, expected: &'static str) -> Result<u64, Error> {
        let (column, text) = self.next(expected)?;
        let number = match text.strip_prefix("0x") {
            Some(digits) => u64::from_str_radix(digits, 16),
            None => text.parse(),
        };
        number.map_err(|_| self.error(column, format!("{text:?}"), expected))
    }

    fn length(&mut self) -> Result<u32, Error> {
        const EXPECTED: &str = "a length from 1 to 4294967295 bytes";
        self.skip_spaces();
        let column = self.at;
        let number = self.number(EXPECTED)?;
        let len = u32::try_from(number).ok().filter(|len| *len > 0);
        len.ok_or_else(|| self.error(column, number.to_string(), EXPECTED))
    }

    fn handle(&mut self) -> Result<Handle, Error> {
        const EXPECTED: &str = "a handle, a number";
        let (column, text) = self.next(EXPECTED)?;
        let handle = text.parse().map(Handle);
        handle.map_err(|_| self.error(column, format!("{text:?}"), EXPECTED))
    }

    /// Reads the status; returns whether the operation succeeded.
    fn status(&mut self) -> Result<bool, Error> {
        const EXPECTED: &str = "a status: NT_STATUS_… or a number after 0x";
        let (column, text) = self.next(EXPECTED)?;
        if let Some(name) = text.strip_prefix("NT_STATUS_") {
            return Ok(name == "OK");
        }
        let digits = text.strip_prefix("0x").and_then(|text| u64::from_str_radix(text, 16).ok());
        let status = digits.ok_or_else(|| self.error(column, format!("{text:?}"), EXPECTED))?;
        Ok(status == 0)
    }

    fn end(&mut self) -> Result<(), Error> {
        self.skip_spaces();
        match &self.text[self.at..] {
            "" => Ok(()),
            rest => Err(self.error(self.at, format!("{rest:?}"), "the end of the line")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = r#"# made for this test
Deltree "\top" NT_STATUS_OK
Mkdir "\top" NT_STATUS_OK
NTCreateX "\top\Some Name.txt" 0x40 0x2 17 NT_STATUS_OK
WriteX 17 4095 2 2 NT_STATUS_OK
Flush 17 0x00000000
QUERY_PATH_INFORMATION "\top\none" 1004 NT_STATUS_OBJECT_NAME_NOT_FOUND
NTCreateX "\top\none" 0x40 0x1 -1 NT_STATUS_OBJECT_NAME_NOT_FOUND
Close 17 NT_STATUS_OK

Rename "\TOP\SOME NAME.TXT" "\top\b" NT_STATUS_OK
Unlink "\top\b" 0x6 NT_STATUS_OK
"#;

    #[test]
    fn lines_are_operations() {
        let mut load = Load::parse(TEXT).unwrap();
        let (file, renamed) =
            (load.names.path("\\top\\some name.txt"), load.names.path("\\top\\b"));
        let top = load.names.path("\\top");
        let none = load.names.path("\\top\\none");
        let handle = Handle(17);
        let expected = [
            Op::Deltree(top),
            Op::Mkdir(top),
            Op::Open(file, Some((handle, Open::Create))),
            Op::Write { handle, offset: 4095, len: 2 },
            Op::Flush(handle),
            Op::Other(OperationKind::QueryPath),
            Op::Open(none, None),
            Op::Close(handle),
            Op::Rename(file, renamed),
            Op::Unlink(renamed),
        ];
        assert_eq!(load.ops, expected);
        assert!(load.names.is_below(file, top) && !load.names.is_below(top, file));
    }

    #[test]
    fn errors_say_where_and_what() {
        let cases = [
            ("Flush 1 NT_STATUS_OK\nFlosh 1 NT_STATUS_OK", 2, 1, "\"Flosh\"", "an operation"),
            ("12.5 Flush 1 NT_STATUS_OK", 1, 1, "\"12.5\"", "an operation"),
            ("Flush one NT_STATUS_OK", 1, 7, "\"one\"", "a handle"),
            ("Flush 1", 1, 8, "the end of the line", "a status"),
            ("Flush 1 fine", 1, 9, "\"fine\"", "a status"),
            ("Flush 1 NT_STATUS_OK more", 1, 22, "\"more\"", "the end of the line"),
            ("Mkdir \\a NT_STATUS_OK", 1, 7, "\"\\\\a\"", "a path in double quotes"),
            ("Mkdir \"\\a NT_STATUS_OK", 1, 7, "\"\\\"\\\\a\"", "a path in double quotes"),
            ("ReadX 1 0x1g 1 1 NT_STATUS_OK", 1, 9, "\"0x1g\"", "an offset"),
            ("ReadX 1 0 0 0 NT_STATUS_OK", 1, 11, "0", "a length from 1"),
            ("WriteX 1 0 4294967296 1 NT_STATUS_OK", 1, 12, "4294967296", "a length from 1"),
            ("# nothing\n\n", 3, 1, "the end of the file", "an operation"),
        ];
        for (text, line, column, found, expected) in cases {
            let error = Load::parse(text).unwrap_err();
            assert_eq!((error.line, error.column), (line, column), "{text}: {error}");
            assert_eq!(error.found, found, "{text}");
            assert!(error.expected.starts_with(expected), "{text}: {error}");
        }
    }
}
