//! Asks a person for a password.

use std::io::{self, BufRead, IsTerminal, Write};

use nix::sys::termios::{LocalFlags, SetArg, Termios, tcgetattr, tcsetattr};

/// Shows the terminal's input again, whatever happens.
struct Hidden(Termios);

impl Hidden {
    fn begin() -> Option<Self> {
        let stdin = io::stdin();
        let before = stdin.is_terminal().then(|| tcgetattr(&stdin).ok()).flatten()?;
        let mut hidden = before.clone();
        hidden.local_flags.remove(LocalFlags::ECHO);
        tcsetattr(&stdin, SetArg::TCSANOW, &hidden).ok()?;
        Some(Self(before))
    }
}

impl Drop for Hidden {
    fn drop(&mut self) {
        // Nothing can be done about a terminal that is gone.
        let _ = tcsetattr(io::stdin(), SetArg::TCSANOW, &self.0);
        let _ = writeln!(io::stderr());
    }
}

/// The first line of standard input, not shown while it is typed.
pub(super) fn ask() -> io::Result<String> {
    write!(io::stderr(), "Enter password: ")?;
    let hidden = Hidden::begin();
    let mut line = String::new();
    io::stdin().lock().read_line(&mut line)?;
    drop(hidden);
    Ok(line.trim_end_matches(['\r', '\n']).to_owned())
}
