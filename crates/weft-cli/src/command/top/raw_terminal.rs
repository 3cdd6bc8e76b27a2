//! Terminal that shows the screen: in raw mode, on its alternate buffer, without a cursor.
//!
//! The terminal is restored when the value is dropped, and when any thread panics, before the panic
//! is reported and ends the process: without one of its threads the screen would stand still.

use std::io::{self, IsTerminal, stdin, stdout};
use std::sync::atomic::{AtomicBool, Ordering};

use ratatui::DefaultTerminal;
use ratatui::Terminal;
use ratatui::backend::CrosstermBackend;
use ratatui::crossterm::cursor::{Hide, Show};
use ratatui::crossterm::execute;
use ratatui::crossterm::terminal::{
    EnterAlternateScreen, LeaveAlternateScreen, disable_raw_mode, enable_raw_mode,
};

/// Terminal that shows a screen.
pub(super) struct RawTerminal {
    pub(super) terminal: DefaultTerminal,
}

/// Whether standard input and standard output are a terminal that can show a screen.
pub(super) fn is_usable() -> bool {
    let is_dumb = std::env::var_os("TERM").is_none_or(|term| term.is_empty() || term == "dumb");
    stdin().is_terminal() && stdout().is_terminal() && !is_dumb
}

impl RawTerminal {
    /// Sets the terminal up for the screen.
    ///
    /// # Errors
    /// The terminal cannot be set up. It is then as it was before.
    pub(super) fn enter() -> io::Result<Self> {
        let report = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |panic| {
            restore();
            report(panic);
            std::process::exit(PANICKED);
        }));
        enable_raw_mode()?;
        IS_RAW.store(true, Ordering::SeqCst);
        let entered = execute!(stdout(), EnterAlternateScreen, Hide)
            .and_then(|()| Terminal::new(CrosstermBackend::new(stdout())));
        match entered {
            Ok(terminal) => Ok(Self { terminal }),
            Err(error) => {
                restore();
                Err(error)
            }
        }
    }
}

impl Drop for RawTerminal {
    fn drop(&mut self) {
        restore();
    }
}

/// Restores the terminal, if that is still to be done.
fn restore() {
    if IS_RAW.swap(false, Ordering::SeqCst) {
        // Errors are ignored: the terminal may have been closed, and there is no other one.
        let _ = execute!(stdout(), LeaveAlternateScreen, Show);
        let _ = disable_raw_mode();
    }
}

/// Whether the terminal is set up for the screen and has to be restored.
static IS_RAW: AtomicBool = AtomicBool::new(false);

/// Exit status of a Rust program after a panic.
const PANICKED: i32 = 101;
