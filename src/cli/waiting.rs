//! What is on a terminal while somebody else is asked.

use std::io::{self, Write as _};

use super::terminal::Terminal;

/// A line on standard error until there is an answer, and gone then. Only a terminal gets one.
#[derive(Debug)]
pub struct Waiting(bool);

impl Waiting {
    /// Says what is waited for.
    pub fn begin(terminal: &Terminal, what: &str) -> Self {
        if terminal.watches {
            // A line that cannot be drawn is no reason to stop.
            let _ = write!(io::stderr(), "{what} ...");
            let _ = io::stderr().flush();
        }
        Self(terminal.watches)
    }
}

impl Drop for Waiting {
    fn drop(&mut self) {
        if self.0 {
            let _ = write!(io::stderr(), "\r\x1b[K");
        }
    }
}
