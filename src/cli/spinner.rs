//! What is on a terminal while somebody else is asked.

use std::io::{self, Write as _};

use super::terminal::Terminal;

/// A line on standard error until there is an answer, and gone then. Only a terminal gets one.
#[derive(Debug)]
pub struct Spinner(bool);

impl Spinner {
    /// Says what is waited for.
    pub fn start(terminal: &Terminal, what: &str) -> Self {
        if terminal.stderr_is_tty {
            // A line that cannot be drawn is no reason to stop.
            let _ = write!(io::stderr(), "{what} ...");
            let _ = io::stderr().flush();
        }
        Self(terminal.stderr_is_tty)
    }
}

impl Drop for Spinner {
    fn drop(&mut self) {
        if self.0 {
            let _ = write!(io::stderr(), "\r\x1b[K");
        }
    }
}
