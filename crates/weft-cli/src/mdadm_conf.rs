//! Lines of `mdadm.conf` that `weft monitor` and `weft daemon` use.
//!
//! `ARRAY` lines name arrays, the number of spares that each should have, and its group of spares.
//! `MAILADDR` and `PROGRAM` stand for the options of the command. All other lines are for mdadm
//! alone.
//!
//! Source   mdadm.conf(5)

use std::path::{Path, PathBuf};

use weft_export::control::VolumeStatus;

/// A configuration file of mdadm.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Config {
    pub(crate) mail: Option<String>,
    pub(crate) program: Option<PathBuf>,
    pub(crate) arrays: Vec<ArrayLine>,
    /// Remarks on lines that cannot be parsed and are ignored, each a sentence.
    pub(crate) remarks: Vec<String>,
}

/// An `ARRAY` line.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct ArrayLine {
    /// Device of the array, such as `/dev/md/tour`; `None` if the line has none.
    pub(crate) device: Option<String>,
    /// UUID of the array, 32 hexadecimal digits; `None` if the line has none.
    pub(crate) uuid: Option<String>,
    /// Name of the array, with or without its host; `None` if the line has none.
    pub(crate) name: Option<String>,
    /// Whether the array has metadata of a vendor (IMSM, DDF), or is in a container of such.
    pub(crate) is_external: bool,
    /// Number of spares that the array should have.
    pub(crate) spares: usize,
    /// Group of arrays that share their spares; `None` if the line has none.
    pub(crate) spare_group: Option<String>,
}

/// Keywords of the file. A line may give the first letters of a keyword, three or more.
const KEYWORDS: &[&str] = &[
    "DEVICES",
    "ARRAY",
    "MAILADDR",
    "MAILFROM",
    "PROGRAM",
    "CREATE",
    "HOMEHOST",
    "HOMECLUSTER",
    "AUTO",
    "POLICY",
    "PART-POLICY",
    "SYSFS",
    "MONITORDELAY",
    "ENCRYPTION_NO_VERIFY",
];

impl Config {
    /// Reads a file. A line that cannot be parsed is ignored, with a remark, so that it does not
    /// keep `weft monitor` from running.
    ///
    /// # Errors
    /// The file cannot be read, or is not a regular file.
    pub(crate) fn read(path: &Path) -> Result<Self, String> {
        let named = |why: String| format!("{}: {why}", path.display());
        let is_file = std::fs::metadata(path).map_err(|error| named(error.to_string()))?.is_file();
        if !is_file {
            return Err(named("found no regular file, expected an mdadm.conf".to_owned()));
        }
        let text = std::fs::read_to_string(path).map_err(|error| named(error.to_string()))?;
        let mut config = Self::parse(&text);
        for remark in &mut config.remarks {
            *remark = format!("{}:{remark}", path.display());
        }
        Ok(config)
    }

    /// Parses the text of a file. Remarks begin with the number of their line.
    fn parse(text: &str) -> Self {
        let mut config = Self::default();
        for (number, words) in lines(text) {
            if let Err(why) = config.line(&words) {
                config.remarks.push(format!("{number}: {why}"));
            }
        }
        config
    }

    /// Parses one line. As with mdadm, the first mail address and the first program count.
    fn line(&mut self, words: &[String]) -> Result<(), String> {
        let (keyword, words) = words.split_first().expect("a line has a word");
        let known = KEYWORDS.iter().find(|known| {
            keyword.len() >= 3
                && known.get(..keyword.len()).is_some_and(|it| it.eq_ignore_ascii_case(keyword))
        });
        match known {
            None => {
                return Err(format!(
                    "found {keyword:?}, expected a keyword of mdadm.conf, such as ARRAY"
                ));
            }
            Some(&"ARRAY") => self.arrays.extend(ArrayLine::parse(words)?),
            Some(&"MAILADDR") if self.mail.is_none() => {
                self.mail = words.first().map(|word| address(word)).transpose()?;
            }
            Some(&"PROGRAM") if self.program.is_none() => {
                self.program = words.first().map(PathBuf::from);
            }
            Some(_) => {}
        }
        Ok(())
    }

    /// The first `ARRAY` line about a volume; `None` if there is none.
    pub(crate) fn line_of(&self, volume: &VolumeStatus) -> Option<&ArrayLine> {
        self.arrays.iter().find(|line| line.is_about(volume))
    }
}

impl ArrayLine {
    /// Parses the words of an `ARRAY` line; `None` if mdadm is to ignore the array.
    fn parse(words: &[String]) -> Result<Option<Self>, String> {
        let mut line = Self::default();
        for word in words {
            let (tag, value) = match word.split_once('=') {
                Some((tag, value)) if !word.starts_with('/') => (tag.to_ascii_lowercase(), value),
                _ if word.eq_ignore_ascii_case("<ignore>") => return Ok(None),
                _ => {
                    line.device = Some(word.clone());
                    continue;
                }
            };
            match tag.as_str() {
                "uuid" => {
                    let digits = hexadecimal(value);
                    line.uuid = Some(digits.ok_or_else(|| {
                        format!("uuid: found {value:?}, expected 32 hexadecimal digits")
                    })?);
                }
                "name" => line.name = Some(value.to_owned()),
                "spares" => {
                    let count = value.parse().map_err(|_| ());
                    line.spares = count
                        .map_err(|()| format!("spares: found {value:?}, expected a number"))?;
                }
                "container" => line.is_external = true,
                "metadata" => line.is_external |= ["imsm", "ddf"].contains(&value),
                "spare-group" => line.spare_group = Some(value.to_owned()),
                _ => {}
            }
        }
        Ok(Some(line))
    }

    /// Whether the line is about a volume. The UUID and the name must match if they are given;
    /// without both, the last part of the device must be the name of the volume.
    fn is_about(&self, volume: &VolumeStatus) -> bool {
        let Some(array) = &volume.array else { return false };
        let short = array.name.rsplit_once(':').map(|(_, short)| short);
        let is_name = |name: &String| *name == array.name || Some(name.as_str()) == short;
        let is_device = |device: &String| {
            Path::new(device).file_name().is_some_and(|last| last == volume.name.as_str())
        };
        if self.uuid.is_none() && self.name.is_none() {
            return self.device.as_ref().is_some_and(is_device);
        }
        self.uuid.as_ref().is_none_or(|uuid| hexadecimal(&array.uuid).as_ref() == Some(uuid))
            && self.name.as_ref().is_none_or(is_name)
    }
}

/// Parses a mail address. Control characters are refused, because the address becomes a line of the
/// mail's header.
pub(crate) fn address(text: &str) -> Result<String, String> {
    let is_plain = !text.is_empty() && !text.contains(|letter: char| letter.is_control());
    is_plain.then(|| text.to_owned()).ok_or_else(|| "expected an address of mail".to_owned())
}

/// The digits of a UUID, which mdadm writes with any punctuation; `None` if there are not 32.
fn hexadecimal(text: &str) -> Option<String> {
    let digits: String = text.chars().filter(char::is_ascii_hexdigit).collect();
    let plain = text.chars().all(|it| it.is_ascii_hexdigit() || it.is_ascii_punctuation());
    (plain && digits.len() == 32).then(|| digits.to_ascii_lowercase())
}

/// Splits a text into lines, each as the number of its first line and its words. A line that begins
/// with white space continues the one before it, `#` begins a comment, and quotes keep white space
/// in a word.
fn lines(text: &str) -> Vec<(usize, Vec<String>)> {
    let mut lines: Vec<(usize, Vec<String>)> = Vec::new();
    for (number, line) in (1..).zip(text.lines()) {
        let words = words(line);
        if words.is_empty() {
            continue;
        }
        match lines.last_mut() {
            Some((_, before)) if line.starts_with([' ', '\t']) => before.extend(words),
            _ => lines.push((number, words)),
        }
    }
    lines
}

fn words(line: &str) -> Vec<String> {
    let mut words = Vec::new();
    let mut letters = line.chars().peekable();
    while let Some(first) = letters.peek().copied() {
        if first.is_whitespace() {
            letters.next();
            continue;
        }
        if first == '#' {
            break;
        }
        let (mut word, mut quote) = (String::new(), None);
        while let Some(letter) = letters.next_if(|it| quote.is_some() || !it.is_whitespace()) {
            match quote {
                Some(open) if letter == open => quote = None,
                None if matches!(letter, '"' | '\'') => quote = Some(letter),
                _ => word.push(letter),
            }
        }
        words.push(word);
    }
    words
}

#[cfg(test)]
mod tests {
    use super::*;
    use weft_export::control::ArrayStatus;

    fn volume(name: &str, array_name: &str, uuid: &str) -> VolumeStatus {
        let array = ArrayStatus { uuid: uuid.into(), name: array_name.into(), ..<_>::default() };
        VolumeStatus { name: name.into(), array: Some(array), ..VolumeStatus::default() }
    }

    #[test]
    fn lines_are_read_as_mdadm_reads_them() {
        let text = "# of the house\n\
                    DEVICE partitions\n\
                    MAILADDR 'root@house' # and no other\n\
                    prog \"/usr/local/bin/on event\"\n\
                    ARRAY /dev/md/tour metadata=1.2 spares=1\n\
                    \tUUID=3aaa0122:29827cfa:5331ad66:ca767371\n\
                    \x20  spare-group=fast\n\
                    \n\
                    array /dev/md/home name=nas:home spare-group=fast\n\
                    ARR /dev/md3 spare-group=slow\n\
                    ARRAY <ignore> name=nas:old spare-group=fast\n\
                    MAILADDR later@house\n\
                    DEVICES containers\n";
        let config = Config::parse(text);
        assert_eq!((config.remarks.len(), config.arrays.len()), (0, 3));
        assert_eq!(config.mail.as_deref(), Some("root@house"));
        assert_eq!(config.program, Some("/usr/local/bin/on event".into()));
        let group = |volume: &VolumeStatus| {
            let line = config.line_of(volume);
            line.map(|line| (line.spares, line.spare_group.clone().unwrap()))
        };
        let uuid = "3AAA0122-29827cfa-5331ad66-ca767371";
        assert_eq!(group(&volume("other", "x:other", uuid)), Some((1, "fast".into())));
        assert_eq!(group(&volume("home", "nas:home", "")), Some((0, "fast".into())));
        // A volume that has only the name of the device is another array.
        assert_eq!(group(&volume("tour", "nas:tour", "")), None);
        assert_eq!(group(&volume("md3", "nas:backup", "")), Some((0, "slow".into())));
    }

    #[test]
    fn a_line_that_makes_no_sense_is_named_and_left_out() {
        for (text, expected) in [
            ("DEV partitions\nARY /dev/md0\n", "2: found \"ARY\", expected a keyword"),
            ("AR /dev/md0", "1: found \"AR\", expected a keyword"),
            ("\n\nARRAY /dev/md0\n UUID=3aaa0122\n", "3: uuid: found \"3aaa0122\", expected 32"),
            ("ARRAY /dev/md0 spares=many", "1: spares: found \"many\", expected a number"),
            ("MAILADDR \"\"", "1: expected an address of mail"),
        ] {
            let config = Config::parse(&format!("{text}\nPROGRAM /bin/true\n"));
            assert!(config.remarks[0].starts_with(expected), "{text:?}: {:?}", config.remarks);
            assert_eq!((config.arrays.len(), config.mail), (0, None));
            assert_eq!(config.program, Some("/bin/true".into()), "the lines after it count");
        }
    }
}
