//! A message on the terminal while a command waits for a response.

use std::io::{self, Write as _};

use super::terminal::Terminal;

/// A line on standard error that is cleared on drop. Shown only on a terminal.
#[derive(Debug)]
pub struct Spinner(bool);

impl Spinner {
    /// Shows a message.
    pub fn start(terminal: &Terminal, message: &str) -> Self {
        if terminal.stderr_is_tty {
            // Ignore errors: the message is optional.
            let _ = write!(io::stderr(), "{message} ...");
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
