//! What opening a damaged history says, in one line.

use std::fmt;

use plimsoll_core::history::SkippedRecord;

/// What was found damaged when history was opened.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DamageReport {
    /// Directory of the history.
    pub location: String,
    /// Records that are whole.
    pub intact_records: usize,
    /// What is lost or set back to an older state. Empty: the damage cost nothing.
    pub lost: Vec<SkippedRecord>,
    /// Damage that cost nothing.
    pub harmless: Vec<SkippedRecord>,
    /// Name of the damaged file, which is kept beside the new one when anything is lost.
    pub damaged_copy: Option<String>,
}

impl fmt::Display for DamageReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const NAMED: usize = 5;
        write!(
            f,
            "{}: history was damaged; {} records are whole",
            self.location, self.intact_records
        )?;
        if self.lost.is_empty() {
            write!(f, ", nothing is lost")?;
        } else {
            write!(f, "; lost: ")?;
            for (n, SkippedRecord { record: what, reason: why }) in
                self.lost.iter().take(NAMED).enumerate()
            {
                write!(f, "{}{what} ({why})", if n > 0 { ", " } else { "" })?;
            }
            if self.lost.len() > NAMED {
                write!(f, " and {} more", self.lost.len() - NAMED)?;
            }
        }
        if let Some(name) = &self.damaged_copy {
            write!(f, "; the damaged file is kept as {name}")?;
        }
        Ok(())
    }
}
