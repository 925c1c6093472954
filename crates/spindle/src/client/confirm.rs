//! Whether a person at a terminal means it.

use std::io::{self, BufRead, IsTerminal, Write};

/// Whether somebody is there who can be asked: who reads the question and can answer it.
pub fn can_be_asked() -> bool {
    io::stdin().is_terminal() && io::stderr().is_terminal()
}

/// Asks, and says whether the answer is yes. Anything else is no, and so is the end of the input.
pub fn is_meant(question: &str) -> io::Result<bool> {
    let mut stderr = io::stderr().lock();
    write!(stderr, "{question} [y/N] ")?;
    stderr.flush()?;
    let mut answer = String::new();
    let is_answered = io::stdin().lock().read_line(&mut answer)? > 0;
    if !is_answered {
        writeln!(stderr)?;
    }
    let is_yes = matches!(answer.trim().to_ascii_lowercase().as_str(), "y" | "yes");
    if !is_yes {
        writeln!(stderr, "nothing was changed")?;
    }
    Ok(is_yes)
}
