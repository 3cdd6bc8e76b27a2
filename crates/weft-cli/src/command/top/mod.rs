//! `weft top`: a live screen of running volumes, with their members and clients.
//!
//! All figures come from the statuses of the servers. The screen depends on the state
//! ([`known::TopState`]) alone: `drawing` makes lines of it, and `keyboard` changes it by a key.
//! Threads send keys, signals and statuses through one channel, as [`TopEvent`].

mod difference;
mod drawing;
mod keyboard;
mod known;
mod raw_terminal;
mod watcher;

#[cfg(test)]
mod tests;

use std::io::Write;
use std::sync::mpsc::{Sender, channel};
use std::time::Duration;

use clap::Args;
use ratatui::crossterm::event::{self, Event, KeyCode, KeyEvent, KeyEventKind, KeyModifiers};
use weft_terminal::outcome::{Exit, Failure, Outcome};
use weft_terminal::terminal::{columns, end_when_interrupted, has_colour, stdout};

use crate::target::Target;
use keyboard::{TopKey, TopOrder, press};
use known::{Looked, TopState};
use raw_terminal::RawTerminal;

/// Shows running volumes on the terminal, with their members and clients, as top(1) does processes
///
/// Volumes have their level, size, state and sync, and what clients read and write per second; the
/// chosen one its members, with requests, bytes, latencies and errors, its dirty pages, and its
/// clients. Rates and latencies are of the time since the look before. A volume that ends stays on
/// the screen as gone.
///
/// Keys: arrows or j and k choose, Tab goes to the members and back, s sorts, c checks, i stops a
/// sync, f fails a member, ? has help, q quits. A key that changes a volume asks first, and names
/// the command that does the same.
#[derive(Debug, Args)]
pub(crate) struct Top {
    /// Look every SECONDS
    #[arg(
        short = 'd',
        long,
        value_name = "SECONDS",
        default_value_t = 1,
        value_parser = clap::value_parser!(u32).range(1..=3600)
    )]
    interval: u32,
    /// Print frames as text, also where standard output is no terminal; the first one comes after
    /// one interval
    #[arg(short, long)]
    batch: bool,
    /// End after N intervals
    #[arg(
        short = 'n',
        long,
        value_name = "N",
        value_parser = clap::value_parser!(u32).range(1..)
    )]
    count: Option<u32>,
    /// Name or control socket of a running volume [default: all that run, now or later]
    target: Option<String>,
}

pub(crate) fn run(arguments: &Top) -> Outcome {
    if !arguments.batch && !raw_terminal::is_usable() {
        return Err(Failure::usage(
            "found no terminal on standard input and output, which the screen needs; weft top \
             --batch prints frames as text, weft status --watch prints in the form of \
             /proc/mdstat, weft status --json is for programs",
        ));
    }
    let target = arguments.target.as_deref();
    let looked = match target {
        // A volume that does not run is an error at the start, and gone later.
        Some(name) => {
            let status = Target::connect(name)?.status()?;
            vec![(name.to_owned(), Ok(status))]
        }
        None => watcher::look(None),
    };
    match arguments.batch {
        true => batch(arguments, looked),
        false => interactive(arguments, looked),
    }
}

/// Prints frames as text, one after each interval.
fn batch(arguments: &Top, looked: Vec<Looked>) -> Outcome {
    let mut state = TopState::new(arguments.interval, false);
    state.look(looked);
    let mut frames = 0;
    loop {
        std::thread::sleep(Duration::from_secs(arguments.interval.into()));
        state.look(watcher::look(arguments.target.as_deref()));
        let mut out = stdout();
        writeln!(out, "{}", drawing::text(&state, columns()))?;
        out.flush()?;
        frames += 1;
        if arguments.count == Some(frames) {
            return Ok(Exit::Done);
        }
    }
}

/// Events that can change the screen.
enum TopEvent {
    /// A confirmed change was tried; the text is a sentence about the outcome.
    Acted(String),
    /// The process was told to end.
    Ended,
    /// A key was pressed.
    Key(TopKey),
    /// The servers were asked for their statuses, and have answered or not.
    Looked(Vec<Looked>),
    /// The terminal can no longer be read, because of this error.
    Lost(std::io::Error),
    /// The terminal has another size.
    Resized,
}

/// Shows the screen until the user quits, or a signal ends it.
fn interactive(arguments: &Top, looked: Vec<Looked>) -> Outcome {
    let (events, inbox) = channel();
    let (orders, actions) = channel();
    let on_signal = events.clone();
    end_when_interrupted(move || on_signal.send(TopEvent::Ended).is_ok())?;
    let mut state = TopState::new(arguments.interval, has_colour());
    state.look(looked);
    let mut screen = RawTerminal::enter()?;
    read_keys(events.clone());
    let interval = Duration::from_secs(arguments.interval.into());
    watcher::start(arguments.target.clone(), interval, actions, events);
    // The first look was before the screen.
    let mut looks = 1;
    loop {
        screen.terminal.draw(|frame| drawing::draw(&state, frame.area(), frame.buffer_mut()))?;
        if arguments.count.is_some_and(|count| looks > count) {
            return Ok(Exit::Done);
        }
        match inbox.recv() {
            Ok(TopEvent::Key(key)) => match press(&mut state, key) {
                Some(TopOrder::Act(action)) => {
                    state.message = Some(format!("Running: {}", action.command_line()));
                    // The thread is there as long as this one.
                    let _ = orders.send(action);
                }
                Some(TopOrder::Quit) => return Ok(Exit::Done),
                None => {}
            },
            Ok(TopEvent::Looked(looked)) => {
                state.look(looked);
                looks += 1;
            }
            Ok(TopEvent::Acted(sentence)) => state.message = Some(sentence),
            Ok(TopEvent::Resized) => {}
            Ok(TopEvent::Lost(error)) => {
                return Err(Failure::failed(format!("terminal: {error}")));
            }
            Ok(TopEvent::Ended) | Err(_) => return Ok(Exit::Done),
        }
    }
}

/// Starts the thread that reads keys and sends them as events.
fn read_keys(events: Sender<TopEvent>) {
    std::thread::spawn(move || {
        loop {
            let event = match event::read() {
                Ok(Event::Key(key)) => match key_of(key) {
                    Some(key) => TopEvent::Key(key),
                    None => continue,
                },
                Ok(Event::Resize(..)) => TopEvent::Resized,
                Ok(_) => continue,
                Err(error) => TopEvent::Lost(error),
            };
            let is_last = matches!(event, TopEvent::Lost(_));
            if events.send(event).is_err() || is_last {
                return;
            }
        }
    });
}

/// Key of the screen for a key event of the terminal; `None` if the screen does not use the key.
fn key_of(event: KeyEvent) -> Option<TopKey> {
    if event.kind == KeyEventKind::Release {
        return None;
    }
    Some(match event.code {
        KeyCode::Char('c') if event.modifiers.contains(KeyModifiers::CONTROL) => TopKey::Interrupt,
        KeyCode::Char(_)
            if event.modifiers.intersects(KeyModifiers::CONTROL | KeyModifiers::ALT) =>
        {
            return None;
        }
        KeyCode::Char(letter) => TopKey::Char(letter),
        KeyCode::Down => TopKey::Down,
        KeyCode::End => TopKey::End,
        KeyCode::Esc => TopKey::Escape,
        KeyCode::Home => TopKey::Home,
        KeyCode::PageDown => TopKey::PageDown,
        KeyCode::PageUp => TopKey::PageUp,
        KeyCode::Tab | KeyCode::BackTab => TopKey::Tab,
        KeyCode::Up => TopKey::Up,
        _ => return None,
    })
}
