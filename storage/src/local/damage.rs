//! What opening a damaged history says, in one line.

use std::fmt;

use plimsoll_core::history::Skipped;

/// What was found damaged when history was opened.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Damage {
    /// Directory of the history.
    pub place: String,
    /// Records that are whole.
    pub whole: usize,
    /// What is lost or set back to an older state. Empty: the damage cost nothing.
    pub lost: Vec<Skipped>,
    /// Damage that cost nothing.
    pub harmless: Vec<Skipped>,
    /// Name of the damaged file, which is kept beside the new one when anything is lost.
    pub kept_as: Option<String>,
}

impl fmt::Display for Damage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const NAMED: usize = 5;
        write!(f, "{}: history was damaged; {} records are whole", self.place, self.whole)?;
        if self.lost.is_empty() {
            write!(f, ", nothing is lost")?;
        } else {
            write!(f, "; lost: ")?;
            for (n, Skipped { what, why }) in self.lost.iter().take(NAMED).enumerate() {
                write!(f, "{}{what} ({why})", if n > 0 { ", " } else { "" })?;
            }
            if self.lost.len() > NAMED {
                write!(f, " and {} more", self.lost.len() - NAMED)?;
            }
        }
        if let Some(name) = &self.kept_as {
            write!(f, "; the damaged file is kept as {name}")?;
        }
        Ok(())
    }
}
