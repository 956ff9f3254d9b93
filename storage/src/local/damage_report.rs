//! The report about a damaged history, in one line.

use std::fmt;

use plimsoll_core::history::SkippedRecord;

/// The damage found when a history was opened.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DamageReport {
    pub location: String,
    pub intact_records: usize,
    /// Records that are lost or restored to an older state. Empty if the damage is harmless.
    pub lost: Vec<SkippedRecord>,
    pub harmless: Vec<SkippedRecord>,
    /// The name of the copy of the damaged file, which is kept if anything is lost.
    pub damaged_copy: Option<String>,
}

impl fmt::Display for DamageReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const MAX_LISTED: usize = 5;
        write!(
            f,
            "{}: history is damaged; {} records are intact",
            self.location, self.intact_records
        )?;
        if self.lost.is_empty() {
            write!(f, ", nothing is lost")?;
        } else {
            let lost = self.lost.iter().take(MAX_LISTED);
            let lost: Vec<_> = lost
                .map(|SkippedRecord { record, reason }| format!("{record} ({reason})"))
                .collect();
            write!(f, "; lost: {}", lost.join(", "))?;
            if self.lost.len() > MAX_LISTED {
                write!(f, " and {} more", self.lost.len() - MAX_LISTED)?;
            }
        }
        if let Some(name) = &self.damaged_copy {
            write!(f, "; the damaged file is kept as {name}")?;
        }
        Ok(())
    }
}
