//! `weft ls`: names of the files on disks or in a running volume.

use std::collections::HashSet;
use std::ffi::{OsStr, OsString};
use std::io::Write;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use clap::Args;
use serde_json::{Value, json};
use weft_files::tree::{Node, NodeKind, NodeTime};
use weft_ondisk::MdTime;
use weft_terminal::outcome::{Exit, Failure, Outcome};
use weft_terminal::terminal::{complain, label, print_json, printable_stdout};

use crate::contents::{Contents, NamedPaths, Reached, Spot, Walk, shown, with_path};
use crate::reading::ReadingOptions;

/// Lists the files on disks, or in a running volume
///
/// The root has a folder for each file system (ext2, ext3, ext4, btrfs), with the name that rescue
/// --to gives it; a path goes on from there. A path with *, ? or [ ] in quotes means everything
/// that it matches. Links are not followed. Disks are only read, and what is missing is computed
/// from the others. Exit status: 0 when all of it was read, 1 otherwise.
#[derive(Debug, Args)]
#[command(override_usage = "weft ls [OPTIONS] <DISK>... [:PATH]...\n       \
                            weft ls [OPTIONS] <TARGET>[:PATH]...")]
pub(crate) struct Ls {
    /// Tell mode, links, owner, group, size in bytes, time of change in UTC, and targets of links
    #[arg(short, long)]
    long: bool,
    /// List folders below too; read-only snapshots of btrfs only if a path names them
    #[arg(short = 'R', long)]
    recursive: bool,
    /// List folders themselves, not what is in them
    #[arg(short, long, conflicts_with = "recursive")]
    directory: bool,
    /// Print one JSON object
    #[arg(long, conflicts_with = "long")]
    json: bool,
    #[command(flatten)]
    reading: ReadingOptions,
    /// Name or control socket of a running volume; or the disks, images of disks, or members that
    /// still exist. A path begins with a colon
    #[arg(value_name = "TARGET|DISK|:PATH", required = true)]
    names: Vec<OsString>,
}

pub(crate) fn run(arguments: &Ls) -> Outcome {
    let NamedPaths { names, mut paths } =
        NamedPaths::of(&arguments.names).map_err(Failure::Usage)?;
    if paths.is_empty() {
        paths.push(Vec::new());
    }
    let contents = Contents::named(&names, &arguments.reading.of(&names)?)?;
    let walk = Walk::new(&contents);
    let (mut reached, mut faults) = (Vec::new(), Vec::new());
    for path in &paths {
        match walk.find(path) {
            Ok(found) => {
                reached.extend(found.reached);
                faults.extend(found.faults);
            }
            Err(why) => faults.push(why),
        }
    }
    let mut listing = Listing::new(&walk, arguments, faults);
    listing.list(reached)?;
    let Listing { entries, faults, .. } = listing;
    faults.iter().for_each(|why| complain(why));
    let is_complete = faults.is_empty() && contents.is_whole;
    if arguments.json {
        print_json(&json!({
            "schema": "weft.ls/1", "complete": is_complete, "faults": faults, "entries": entries,
        }))?;
    }
    drop(walk);
    contents.stop()?;
    Ok(if is_complete { Exit::Done } else { Exit::Of(1) })
}

/// Lines that are listed together: the entries of a folder, or the files that arguments name.
struct Folder {
    /// Path of the folder, as names from the root on; `None` for files that arguments name.
    path: Option<Vec<Vec<u8>>>,
    lines: Vec<Line>,
}

/// Line of a listing, about one name.
struct Line {
    /// Path, as names from the root on.
    path: Vec<Vec<u8>>,
    /// Name that is shown: the last name of the path, or the whole path if an argument names it.
    name: Vec<u8>,
    /// Metadata of the node; `None` for the root of all file systems, and if the metadata cannot be
    /// read.
    node: Option<Node>,
    target: Option<Vec<u8>>,
}

/// State of a listing, which goes to standard output folder by folder.
struct Listing<'l> {
    walk: &'l Walk<'l>,
    arguments: &'l Ls,
    /// Folders that were listed or are about to be, by index of the file system and number of the
    /// node. No folder is listed twice.
    known: HashSet<(usize, u64)>,
    /// Whether the list of each folder begins with the path of the folder.
    has_heads: bool,
    printed: usize,
    /// JSON objects of all lines; empty without `--json`.
    entries: Vec<Value>,
    faults: Vec<String>,
}

impl<'l> Listing<'l> {
    fn new(walk: &'l Walk<'l>, arguments: &'l Ls, faults: Vec<String>) -> Self {
        let (known, entries) = (HashSet::new(), Vec::new());
        let has_heads = arguments.recursive;
        Self { walk, arguments, known, has_heads, printed: 0, entries, faults }
    }

    /// Lists everything that the paths of the command line lead to: first what is not a folder,
    /// then the folders.
    fn list(&mut self, reached: Vec<Reached>) -> Result<(), Failure> {
        self.has_heads |= reached.len() > 1;
        let (folders, named): (Vec<Reached>, Vec<Reached>) =
            reached.into_iter().partition(|it| it.1.is_folder() && !self.arguments.directory);
        if !named.is_empty() {
            let lines = named.into_iter().map(|(path, spot)| {
                let name = [b"/", path.join(&b'/').as_slice()].concat();
                match spot {
                    Spot::Root => Line { path, name, node: None, target: None },
                    Spot::Node(at, node) => self.line(at, path, name, *node),
                }
            });
            let lines = lines.collect();
            self.show(&Folder { path: None, lines })?;
        }
        // Folders are taken from the end: those below a folder come before the next folder.
        let mut waiting: Vec<Reached> = folders.into_iter().rev().collect();
        self.known.extend(waiting.iter().filter_map(|(_, spot)| match spot {
            Spot::Root => None,
            Spot::Node(at, node) => Some((*at, node.id)),
        }));
        while let Some((path, spot)) = waiting.pop() {
            let lines = match spot {
                Spot::Root => self.root(&mut waiting),
                Spot::Node(at, node) => self.folder(at, &node, &path, &mut waiting),
            };
            self.show(&Folder { path: Some(path), lines })?;
        }
        Ok(())
    }

    fn show(&mut self, folder: &Folder) -> Result<(), Failure> {
        if self.arguments.json {
            self.entries.extend(folder.lines.iter().map(Line::to_json));
            return Ok(());
        }
        let mut out = printable_stdout();
        if let Some(path) = folder.path.as_ref().filter(|_| self.has_heads) {
            writeln!(out, "{}{}:", if self.printed > 0 { "\n" } else { "" }, shown(path))?;
        }
        print(&mut out, &folder.lines, self.arguments.long)?;
        self.printed += 1;
        Ok(())
    }

    /// Lines of the root, one for each file system. With `--recursive`, adds the file systems to
    /// `waiting`, so that they are listed next.
    fn root(&mut self, waiting: &mut Vec<Reached>) -> Vec<Line> {
        let mut lines = Vec::new();
        let mut below = Vec::new();
        for (at, place) in self.walk.file_systems().iter().enumerate() {
            let name = place.folder.as_bytes().to_vec();
            let path = vec![name.clone()];
            let root = self.walk.tree(at).map(weft_files::tree::Tree::root);
            match root.and_then(|root| self.walk.node(at, root, &path)) {
                Ok(node) => {
                    let follows = self.arguments.recursive && !place.is_snapshot();
                    if follows && self.known.insert((at, node.id)) {
                        below.push((path.clone(), Spot::Node(at, Box::new(node.clone()))));
                    }
                    lines.push(self.line(at, path, name, node));
                }
                Err(why) => {
                    self.faults.push(why);
                    lines.push(Line { path, name, node: None, target: None });
                }
            }
        }
        waiting.extend(below.into_iter().rev());
        lines
    }

    /// Lines of a folder, sorted by name. With `--recursive`, adds the folders in it to `waiting`.
    fn folder(
        &mut self,
        at: usize,
        node: &Node,
        path: &[Vec<u8>],
        waiting: &mut Vec<Reached>,
    ) -> Vec<Line> {
        let mut entries = match self.walk.entries(at, node, path) {
            Ok(entries) => entries,
            Err(why) => {
                self.faults.push(why);
                return Vec::new();
            }
        };
        for why in &entries.faults {
            self.faults.push(format!("{}: a part of it cannot be read: {why}", shown(path)));
        }
        for why in &entries.doubts {
            complain(&format!("note: {}: {why}", shown(path)));
        }
        entries.list.sort_by(|one, other| one.name.cmp(&other.name));
        let (mut lines, mut below) = (Vec::new(), Vec::new());
        for entry in entries.list {
            let full = [path, std::slice::from_ref(&entry.name)].concat();
            match self.walk.node(at, entry.id, &full) {
                Ok(node) => {
                    let follows = self.arguments.recursive && node.kind == NodeKind::Directory;
                    if follows && self.known.insert((at, node.id)) {
                        below.push((full.clone(), Spot::Node(at, Box::new(node.clone()))));
                    } else if follows {
                        let why = "found a folder that is in another place too, which lists it";
                        self.faults.push(format!("{}: {why}", shown(&full)));
                    }
                    lines.push(self.line(at, full, entry.name, node));
                }
                Err(why) => {
                    self.faults.push(why);
                    lines.push(Line { path: full, name: entry.name, node: None, target: None });
                }
            }
        }
        waiting.extend(below.into_iter().rev());
        lines
    }

    fn line(&mut self, at: usize, path: Vec<Vec<u8>>, name: Vec<u8>, node: Node) -> Line {
        let wants_target = self.arguments.long || self.arguments.json;
        let target = (wants_target && node.kind == NodeKind::Link).then(|| {
            let tree = self.walk.tree(at)?;
            tree.target(&node).map_err(|error| format!("{}: {error}", shown(&path)))
        });
        let target = target.and_then(|target| target.map_err(|why| self.faults.push(why)).ok());
        Line { path, name, node: Some(node), target }
    }
}

/// Prints the lines of a folder.
fn print(out: &mut impl Write, lines: &[Line], long: bool) -> Result<(), Failure> {
    let rows: Vec<[String; 6]> = match long {
        true => lines.iter().map(Line::columns).collect(),
        false => Vec::new(),
    };
    let width = |at: usize| rows.iter().map(|row| row[at].len()).max().unwrap_or(0);
    let [_, of_links, of_uid, of_gid, of_size, of_time] = [0, 1, 2, 3, 4, 5].map(width);
    for (nth, line) in lines.iter().enumerate() {
        if let Some([mode, links, uid, gid, size, time]) = rows.get(nth) {
            write!(
                out,
                "{mode:10} {links:>of_links$} {uid:>of_uid$} {gid:>of_gid$} {size:>of_size$} \
                 {time:of_time$} "
            )?;
        }
        let text = |bytes: &[u8]| label(Path::new(OsStr::from_bytes(bytes)));
        match &line.target {
            Some(target) if long => writeln!(out, "{} -> {}", text(&line.name), text(target))?,
            _ => writeln!(out, "{}", text(&line.name))?,
        }
    }
    out.flush()?;
    Ok(())
}

impl Line {
    /// Texts of mode, links, owner, group, size and time; `?` for metadata that cannot be read.
    fn columns(&self) -> [String; 6] {
        let Some(node) = &self.node else {
            return ["?---------", "?", "?", "?", "?", "?"].map(str::to_owned);
        };
        [
            mode(node),
            node.links.to_string(),
            node.uid.to_string(),
            node.gid.to_string(),
            node.size.to_string(),
            time(node.modified),
        ]
    }

    fn to_json(&self) -> Value {
        let mut object = match &self.node {
            None => json!({"kind": null}),
            Some(node) => json!({
                "kind": match node.kind {
                    NodeKind::Directory => "directory",
                    NodeKind::File => "file",
                    NodeKind::Link => "link",
                    NodeKind::Special(kind) => kind,
                },
                "mode": format!("{:04o}", node.mode), "links": node.links, "uid": node.uid,
                "gid": node.gid, "size_bytes": node.size, "modified": time(node.modified),
                "fault": node.fault,
            }),
        };
        if let Some(target) = &self.target {
            object["target"] = json!(String::from_utf8_lossy(target));
        }
        with_path(&[b"/", self.path.join(&b'/').as_slice()].concat(), object)
    }
}

/// Kind and permissions, as `ls -l` shows them.
fn mode(node: &Node) -> String {
    let kind = match node.kind {
        NodeKind::Directory => 'd',
        NodeKind::File => '-',
        NodeKind::Link => 'l',
        NodeKind::Special("block device") => 'b',
        NodeKind::Special("character device") => 'c',
        NodeKind::Special("pipe") => 'p',
        NodeKind::Special("socket") => 's',
        NodeKind::Special(_) => '?',
    };
    let mut text = String::from(kind);
    for (shift, special, set, plain) in
        [(6, 0o4000, 's', 'S'), (3, 0o2000, 's', 'S'), (0, 0o1000, 't', 'T')]
    {
        let bits = node.mode >> shift;
        text.push(if bits & 4 > 0 { 'r' } else { '-' });
        text.push(if bits & 2 > 0 { 'w' } else { '-' });
        text.push(match (node.mode & special > 0, bits & 1 > 0) {
            (true, true) => set,
            (true, false) => plain,
            (false, true) => 'x',
            (false, false) => '-',
        });
    }
    text
}

/// Text of a time: by RFC 3339, or `@` with the seconds since 1970 for a time before 1970 or after
/// the year 9999.
fn time(time: NodeTime) -> String {
    match u64::try_from(time.seconds) {
        Ok(secs) if secs < LATE => MdTime { secs, micros: 0 }.to_rfc3339(),
        _ => format!("@{}", time.seconds),
    }
}

/// First second of the year 10000, in seconds since 1970.
const LATE: u64 = 253_402_300_800;
