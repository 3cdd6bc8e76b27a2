//! `weft build`: an array with its geometry given by hand, for reading or over an overlay.

use std::ffi::OsString;
use std::path::PathBuf;

use clap::Args;
use weft_terminal::outcome::{Failure, Outcome};
use weft_terminal::terminal::quoted;

use super::Serve;
use super::listen::ListenArg;
use crate::built::{Built, GeometryOptions};
use crate::contents::Contents;
use crate::copies::listed;
use crate::member::{self, MemberArg};
use crate::reading::ReadingOptions;
use crate::volume::Opening;

/// Reads an array without superblocks, with its geometry given by hand
///
/// For disks with lost or overwritten superblocks; what superblocks say is not read. weft rescue
/// --try finds the geometry. Never writes to a member, and no superblock anywhere. Without --list
/// and --to it serves the array read-only, as serve does, or over --overlay DIR. A member that is
/// missing is reconstructed. A wrong geometry gives wrong data, and harms nothing.
#[derive(Debug, Args)]
pub(crate) struct Build {
    #[command(flatten)]
    geometry: GeometryOptions,
    /// List what is inside of the array: partitions, LVM, file systems
    #[arg(long, conflicts_with_all = ["to", "overlay", "listen", "exec", "name"])]
    list: bool,
    /// Copy the files of ext2, ext3, ext4 and btrfs inside of the array to DIR, as rescue does
    #[arg(long, value_name = "DIR", conflicts_with_all = ["overlay", "listen", "exec", "name"])]
    to: Option<PathBuf>,
    /// Copy only the file system or snapshot of this name in --list; may be repeated
    #[arg(long, value_name = "NAME", requires = "to")]
    only: Vec<String>,
    /// Serve for writing: changes go to files in this directory, and never to a member
    #[arg(long, value_name = "DIR")]
    overlay: Option<PathBuf>,
    /// Name of the volume [default: built]
    #[arg(short = 'N', long)]
    name: Option<String>,
    /// Where clients connect: nbd+unix:///NAME?socket=PATH or nbd://HOST:PORT/NAME, several times
    /// if wanted [default: a unix socket beside the control socket]
    #[arg(long, value_name = "URI", value_parser = ListenArg::parse)]
    listen: Vec<ListenArg>,
    /// Run this command with sh, with $uri and $unixsocket set; stop when the command has ended,
    /// with its exit status
    #[arg(long, value_name = "COMMAND")]
    exec: Option<String>,
    #[command(flatten)]
    reading: ReadingOptions,
    /// With --list or --to: print one JSON object
    #[arg(long)]
    json: bool,
    /// Members in the order of slots: PATH, PATH#N (partition N) or PATH@OFFSET[+LENGTH];
    /// 'missing' for one that is not here
    #[arg(value_name = "MEMBER", required = true, value_parser = MemberArg::parser())]
    members: Vec<MemberArg>,
}

pub(crate) fn run(arguments: &Build) -> Outcome {
    let (mut paths, mut slots) = (Vec::new(), Vec::new());
    for argument in &arguments.members {
        if *argument == MemberArg::Missing {
            slots.push(false);
            continue;
        }
        let found = member::paths(std::slice::from_ref(argument)).map_err(Failure::Usage)?;
        slots.extend(found.iter().map(|_| true));
        paths.extend(found);
    }
    if paths.is_empty() {
        return Err(Failure::usage("members: found only missing ones, expected one or more"));
    }
    let built = Built::of(&arguments.geometry, slots)?;
    if !arguments.list && arguments.to.is_none() {
        if arguments.json {
            return Err(Failure::usage("--json: expected --list or --to with it"));
        }
        return super::run(&Serve::of_built(built, arguments.words(&paths))?);
    }
    let opening = Opening {
        reading: arguments.reading.of(&paths)?,
        built: Some(built),
        ..Opening::read_only()
    };
    let contents = Contents::of_built(&opening, &paths)?;
    let options = opening.reading.options(paths.iter().map(PathBuf::as_path));
    listed::run(
        contents,
        &[],
        &listed::ListArguments {
            to: arguments.to.as_deref(),
            only: &arguments.only,
            all: true,
            json: arguments.json,
            command: format!("weft build {options}{}", arguments.shown()),
            reading: &opening.reading,
        },
    )
}

impl Build {
    /// The command line of `serve` for this array.
    fn words(&self, paths: &[PathBuf]) -> Vec<OsString> {
        let mut words: Vec<OsString> = vec!["--run".into()];
        let mut option = |name: &str, value: OsString| {
            words.push(name.into());
            words.push(value);
        };
        option("--name", self.name.clone().unwrap_or_else(|| "built".to_owned()).into());
        self.listen.iter().for_each(|uri| option("--listen", uri.text().into()));
        if let Some(command) = &self.exec {
            option("--exec", command.into());
        }
        self.reading.each(&mut option);
        match &self.overlay {
            Some(dir) => option("--overlay", dir.into()),
            None => words.push("--read-only".into()),
        }
        words.push("--".into());
        words.extend(paths.iter().map(|path| path.clone().into_os_string()));
        words
    }

    /// Geometry and members as words of a command line.
    fn shown(&self) -> String {
        let geometry = &self.geometry;
        let mut words = vec![format!("--level {}", geometry.level)];
        let sizes = [
            ("--chunk", geometry.chunk),
            ("--size", geometry.size),
            ("--data-offset", Some(geometry.data_offset).filter(|offset| offset.0 > 0)),
        ];
        for (name, size) in sizes {
            words.extend(size.map(|size| match size.0 % 1024 {
                0 => format!("{name} {}K", size.0 / 1024),
                _ => format!("{name} {}B", size.0),
            }));
        }
        words.extend(geometry.layout.iter().map(|layout| format!("--layout {layout}")));
        words.extend(self.members.iter().map(|member| match member {
            MemberArg::Path(path) => quoted(path.as_os_str()),
            other => other.to_string(),
        }));
        words.join(" ")
    }
}
