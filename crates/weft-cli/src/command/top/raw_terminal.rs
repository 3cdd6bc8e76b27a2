//! Terminal that shows the screen: raw, on its second buffer, without a cursor.
//!
//! The terminal is restored when the value is dropped, and before the message of a panic of any
//! thread, which then ends the process: a screen without its other threads would stand still.

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

/// Whether standard input and output are a terminal that can show a screen.
pub(super) fn is_usable() -> bool {
    let is_dumb = std::env::var_os("TERM").is_none_or(|term| term.is_empty() || term == "dumb");
    stdin().is_terminal() && stdout().is_terminal() && !is_dumb
}

impl RawTerminal {
    /// Takes the terminal.
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

/// Restores the terminal, once.
fn restore() {
    if IS_RAW.swap(false, Ordering::SeqCst) {
        // Errors are ignored: the terminal may have been closed, and there is no other one.
        let _ = execute!(stdout(), LeaveAlternateScreen, Show);
        let _ = disable_raw_mode();
    }
}

/// Whether the terminal is to be restored.
static IS_RAW: AtomicBool = AtomicBool::new(false);

/// Exit status of a program of Rust after a panic.
const PANICKED: i32 = 101;
