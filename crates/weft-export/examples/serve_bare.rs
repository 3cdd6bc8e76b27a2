//! Serves one member as it is, over NBD on a unix socket, until standard input ends.
//!
//!     cargo run -p weft-export --example serve_bare -- ram:64M /tmp/weft.sock [threads]

use std::os::fd::AsFd;

use weft_export::{ClientShare, ExportOptions, Listen, ServeOptions, Source, TimeLimits, serve};
use weft_runtime::Backend;
use weft_runtime::devices::{Access, MemberSpec, OpenOptions};
use weft_units::MemberIndex;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [member, socket, rest @ ..] = &arguments[..] else {
        return Err("usage: serve_bare MEMBER SOCKET [threads] [buffered]".into());
    };
    let spec = MemberSpec::parse(member)?;
    let mut options = OpenOptions::new(Access::ReadWrite);
    options.buffered = rest.iter().any(|word| word == "buffered");
    let member = options.open(&spec, MemberIndex(0), [])?;
    println!("{}: {}, block {}", spec.label, member.mode(), member.info().logical_block);
    let threads = rest.iter().any(|word| word == "threads");
    let exit = serve(ServeOptions {
        source: Source::Bare {
            member: Box::new(member),
            read_only: false,
            knobs: Box::default(),
            write_back: None,
        },
        exports: vec![ExportOptions {
            name: "bare".into(),
            size: None,
            read_only: false,
            description: "a bare member".into(),
            share: ClientShare::default(),
            also: Vec::new(),
        }],
        listen: vec![Listen::Unix { path: socket.into() }],
        control: Some(format!("{socket}.control").into()),
        backend: if threads { Backend::Threads } else { Backend::Auto },
        clients_max: 64,
        limits: TimeLimits::default(),
        sockets: Vec::new(),
        groups: Vec::new(),
        mark: None,
        recorder: None,
        shutdown: std::io::stdin().as_fd().try_clone_to_owned()?,
        on_ready: Box::new(|ready| println!("ready {} over {}", ready.uris[0], ready.backend)),
    })?;
    println!("{exit:?}");
    Ok(())
}
