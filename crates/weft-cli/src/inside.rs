//! Server within this process: for commands that read arrays, and for `demo`.
//!
//! The server runs in a thread until it is stopped or dropped. Commands that read arrays are
//! clients in its process; `demo` uses unix sockets in a private directory. All of them therefore
//! use the same code as `serve`.

use std::io::PipeWriter;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::mpsc;
use std::thread::JoinHandle;

use weft_engine::knobs::Knobs;
use weft_export::in_process::{self, InProcessClient};
use weft_export::{
    ClientShare, ExitState, ExportOptions, Listen, NbdListen, Ready, ServeError, ServeOptions,
    Source, TimeLimits, serve,
};
use weft_runtime::Backend;
use weft_terminal::outcome::Failure;

use crate::volume::Volume;

/// A volume served by a thread of this process.
pub(crate) struct Inside {
    /// URI that clients connect to; empty if there is no socket.
    pub(crate) uri: String,
    /// Facts about the server, known once clients may connect.
    pub(crate) ready: Ready,
    /// Path of the control socket; empty if there is none.
    pub(crate) control: PathBuf,
    /// Writing end of a pipe. Closing it stops the server.
    stop: Option<PipeWriter>,
    thread: Option<JoinHandle<Result<ExitState, ServeError>>>,
}

impl Inside {
    /// Starts the server on sockets in `directory`, and waits until clients may connect.
    ///
    /// # Errors
    /// The server did not start.
    pub(crate) fn start(
        volume: Volume,
        knobs: Knobs,
        name: &str,
        directory: &Path,
    ) -> Result<Self, Failure> {
        let socket = directory.join(format!("{name}.nbd"));
        let control = directory.join(format!("{name}.sock"));
        let listen = Listen::Nbd(NbdListen::unix(socket));
        Self::serve(volume, knobs, name, listen, Some(control))
    }

    /// Starts the server for one client in this process, and waits until it may read.
    ///
    /// # Errors
    /// The server did not start.
    pub(crate) fn read(volume: Volume) -> Result<(Self, InProcessClient), Failure> {
        let made = in_process::client();
        let (end, client) = made.map_err(|error| Failure::failed(format!("eventfd: {error}")))?;
        let listen = Listen::InProcess(end);
        let inside = Self::serve(volume, Knobs::default(), "volume", listen, None)?;
        Ok((inside, client))
    }

    fn serve(
        volume: Volume,
        knobs: Knobs,
        name: &str,
        listen: Listen,
        control: Option<PathBuf>,
    ) -> Result<Self, Failure> {
        let (end, stop) =
            std::io::pipe().map_err(|error| Failure::failed(format!("pipe: {error}")))?;
        let (sender, receiver) = mpsc::channel::<Ready>();
        let export = ExportOptions {
            name: name.to_owned(),
            size: None,
            read_only: volume.assembly.read_only,
            description: String::new(),
            share: ClientShare::default(),
            also: Vec::new(),
        };
        let place = control.clone();
        let thread = std::thread::Builder::new()
            .name("weft-serve".into())
            .spawn(move || {
                serve(ServeOptions {
                    source: Source::Arrays {
                        config: Box::new(volume.config(knobs)),
                        members: volume.members,
                    },
                    exports: vec![export],
                    listen: vec![listen],
                    control: place,
                    supervisor: None,
                    backend: Backend::Auto,
                    clients_max: 16,
                    limits: TimeLimits::default(),
                    sockets: Vec::new(),
                    groups: Vec::new(),
                    mark: None,
                    recorder: None,
                    shutdown: OwnedFd::from(end),
                    on_ready: Box::new(move |ready| {
                        // An error is ignored: the receiver gave up if the start took too long.
                        let _ = sender.send(ready.clone());
                    }),
                })
            })
            .map_err(|error| Failure::failed(format!("thread: {error}")))?;
        let mut inside = Self {
            uri: String::new(),
            ready: Ready {
                uris: Vec::new(),
                devices: Vec::new(),
                vhost_user: Vec::new(),
                files: Vec::new(),
                backend: String::new(),
            },
            control: control.unwrap_or_default(),
            stop: Some(stop),
            thread: Some(thread),
        };
        match receiver.recv() {
            Ok(ready) => {
                inside.uri = ready.uris.first().cloned().unwrap_or_default();
                inside.ready = ready;
                Ok(inside)
            }
            // The sender is gone: the server ended before clients could connect.
            Err(mpsc::RecvError) => Err(inside
                .stop()
                .err()
                .unwrap_or_else(|| Failure::failed("the server ended before it was ready"))),
        }
    }

    /// Stops the server: completes outstanding requests, flushes the members and marks the array
    /// clean.
    ///
    /// # Errors
    /// One of these steps failed, or the server had failed or panicked before.
    pub(crate) fn stop(&mut self) -> Result<(), Failure> {
        drop(self.stop.take());
        let Some(thread) = self.thread.take() else { return Ok(()) };
        match thread.join() {
            Ok(Ok(state)) => ended(state),
            Ok(Err(error)) => Err(not_served(&error)),
            Err(_) => Err(Failure::failed("the server panicked; members may stay marked dirty")),
        }
    }
}

impl Drop for Inside {
    fn drop(&mut self) {
        // A caller that needs the result has called `stop` itself.
        let _ = self.stop();
    }
}

/// Converts the outcome of a server to a result.
pub(crate) fn ended(state: ExitState) -> Result<(), Failure> {
    match state {
        ExitState::Clean => Ok(()),
        ExitState::Poisoned(why) => Err(Failure::failed(format!(
            "poisoned: {why}; nothing was acknowledged since; arrays stay marked dirty"
        ))),
        ExitState::StopFailed(why) => {
            Err(Failure::failed(format!("stop: {why}; the array may stay marked dirty")))
        }
    }
}

/// Converts the error of a server that did not start to a failure of the command.
pub(crate) fn not_served(error: &ServeError) -> Failure {
    match error {
        ServeError::Device(error) => crate::volume::device(error),
        ServeError::Refused(_) => Failure::refused(error),
        _ => Failure::failed(error),
    }
}
