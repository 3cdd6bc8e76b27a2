//! Requests of the kernel, as they pass from its thread to the thread of the view.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::time::Duration;

use fuser::{
    FileAttr, FileHandle, FopenFlags, Generation, ReplyAttr, ReplyData, ReplyDirectory,
    ReplyDirectoryPlus, ReplyEntry, ReplyLseek, ReplyOpen, ReplyStatfs, ReplyXattr,
};
use rustix::io::Errno;
use weft_files::tree::Attribute;

use crate::view::{BLOCK_BYTES, Caching, View};

/// A request of the kernel, with the object by which it is answered.
pub(crate) enum Request {
    Lookup {
        parent: u64,
        name: Vec<u8>,
        reply: ReplyEntry,
    },
    Forget(Vec<(u64, u64)>),
    Attributes {
        number: u64,
        reply: ReplyAttr,
    },
    Target {
        number: u64,
        reply: ReplyData,
    },
    Open {
        number: u64,
        reply: ReplyOpen,
    },
    Read {
        number: u64,
        offset: u64,
        len: u32,
        reply: ReplyData,
    },
    Seek {
        number: u64,
        offset: u64,
        is_data: bool,
        reply: ReplyLseek,
    },
    List {
        number: u64,
        from: u64,
        reply: ReplyDirectory,
    },
    ListPlus {
        number: u64,
        from: u64,
        reply: ReplyDirectoryPlus,
    },
    Space {
        number: u64,
        reply: ReplyStatfs,
    },
    /// Request for the value of the extended attribute `name` or, if it is `None`, for the names of
    /// all.
    Extended {
        number: u64,
        name: Option<Vec<u8>>,
        size: u32,
        reply: ReplyXattr,
    },
    /// End of the thread of the view, after an unmount or when the kernel has ended the session.
    End,
}

impl Request {
    /// Answers the request. Returns false only for [`Request::End`], after which no request
    /// follows.
    pub(crate) fn answer(self, view: &mut View) -> bool {
        match self {
            Self::Lookup { parent, name, reply } => match view.lookup(parent, &name) {
                Ok(attributes) => reply.entry(&LONG, &attributes, Generation(0)),
                Err(error) => reply.error(number_of(error)),
            },
            Self::Forget(all) => {
                all.into_iter().for_each(|(number, lookups)| view.forget(number, lookups));
            }
            Self::Attributes { number, reply } => match view.attributes(number) {
                Ok(attributes) => reply.attr(&LONG, &attributes),
                Err(error) => reply.error(number_of(error)),
            },
            Self::Target { number, reply } => match view.target(number) {
                Ok(target) => reply.data(&target),
                Err(error) => reply.error(number_of(error)),
            },
            Self::Open { number, reply } => match view.open(number) {
                Ok(Caching::Keeps) => reply.opened(FileHandle(0), FopenFlags::FOPEN_KEEP_CACHE),
                Ok(Caching::Begins) => reply.opened(FileHandle(0), FopenFlags::empty()),
                Ok(Caching::Never) => reply.opened(FileHandle(0), FopenFlags::FOPEN_DIRECT_IO),
                Err(error) => reply.error(number_of(error)),
            },
            Self::Read { number, offset, len, reply } => match view.read(number, offset, len) {
                Ok(bytes) => {
                    reply.data(bytes);
                    if offset == 0 {
                        view.expect_extended(number);
                    }
                }
                Err(error) => reply.error(number_of(error)),
            },
            Self::Seek { number, offset, is_data, reply } => {
                let found = view.seek(number, offset, is_data);
                match found.and_then(|at| i64::try_from(at).or(Err(Errno::OVERFLOW))) {
                    Ok(at) => reply.offset(at),
                    Err(error) => reply.error(number_of(error)),
                }
            }
            Self::List { number, from, reply } => list(view, number, from, reply),
            Self::ListPlus { number, from, reply } => list_plus(view, number, from, reply),
            Self::Space { number, reply } => {
                let (blocks, free) = view.space(number);
                reply.statfs(blocks, free, free, 0, 0, BLOCK_BYTES, NAME_MAX, BLOCK_BYTES);
            }
            Self::Extended { number, name, size, reply } => match view.extended(number) {
                Ok(all) => extended(&all, name.as_deref(), size, reply),
                Err(error) => reply.error(number_of(error)),
            },
            Self::End => return false,
        }
        true
    }
}

/// Answers with the value of the extended attribute `name` or, if that is `None`, with the names of
/// all, each followed by a 0 byte. A missing attribute is answered with `ENODATA`.
pub(crate) fn extended(all: &[Attribute], name: Option<&[u8]>, size: u32, reply: ReplyXattr) {
    let Some(name) = name else {
        let names = all.iter().flat_map(|it| it.name.iter().chain(&[0]));
        return value(reply, size, &names.copied().collect::<Vec<u8>>());
    };
    match all.iter().find(|it| it.name == name) {
        Some(found) => value(reply, size, &found.value),
        None => reply.error(number_of(Errno::NODATA)),
    }
}

/// Answers with a value or, if the request has room for 0 bytes, with the length of the value. Room
/// for fewer bytes than the value has is answered with `ERANGE`.
fn value(reply: ReplyXattr, size: u32, value: &[u8]) {
    let len = u32::try_from(value.len()).unwrap_or(u32::MAX);
    match size {
        0 => reply.size(len),
        room if room < len => reply.error(number_of(Errno::RANGE)),
        _ => reply.data(value),
    }
}

fn list(view: &mut View, number: u64, from: u64, mut reply: ReplyDirectory) {
    let listed = view.list(number, from, false, &mut |entry, next| {
        let FileAttr { ino, kind, .. } = entry.attributes;
        !reply.add(ino, next, kind, OsStr::from_bytes(entry.name))
    });
    match listed {
        Ok(()) => reply.ok(),
        Err(error) => reply.error(number_of(error)),
    }
}

fn list_plus(view: &mut View, number: u64, from: u64, mut reply: ReplyDirectoryPlus) {
    let listed = view.list(number, from, true, &mut |entry, next| {
        // Attributes that could not be read are not kept: the kernel asks again, and gets an error.
        let time = if entry.is_read { LONG } else { Duration::ZERO };
        let (attributes, name) = (&entry.attributes, OsStr::from_bytes(entry.name));
        !reply.add(attributes.ino, next, name, &time, attributes, Generation(0))
    });
    match listed {
        Ok(()) => reply.ok(),
        Err(error) => reply.error(number_of(error)),
    }
}

fn number_of(error: Errno) -> fuser::Errno {
    fuser::Errno::from_i32(error.raw_os_error())
}

/// Time for which the kernel keeps names and attributes: nothing changes them.
const LONG: Duration = Duration::from_secs(1 << 30);
/// Longest name in bytes that statfs(2) reports: the limit of the file systems that are read.
const NAME_MAX: u32 = 255;
