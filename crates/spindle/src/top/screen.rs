//! The terminal: taken over, and always given back.

use std::io;

use ratatui::{DefaultTerminal, Frame};

/// The terminal in raw mode, on its second page. Dropping it gives it back.
pub struct Screen(DefaultTerminal);

impl Screen {
    /// Takes the terminal over. A panic gives it back too, before it says what happened.
    pub fn open() -> io::Result<Self> {
        ratatui::try_init().map(Self).inspect_err(|_| restore())
    }

    /// Draws what has changed.
    pub fn draw(&mut self, draws: impl FnOnce(&mut Frame<'_>)) -> io::Result<()> {
        self.0.draw(draws).map(drop)
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        restore();
    }
}

/// Gives the terminal back. Does nothing if it was not taken over.
pub fn restore() {
    // The terminal may be gone.
    let _ = ratatui::try_restore();
}
