//! The words of labels that several families have.

use super::family::OVERFLOW_LABEL;

/// Update modes, in the order of their names. Unset is none of them.
pub(super) const MODES: [&str; 6] =
    ["Auto", "InPlace", "InPlaceOrRecreate", "Initial", "Off", "Recreate"];
/// How many values a label `update_mode` may have: those, none and `other`.
pub(super) const MODES_OR_NONE: usize = MODES.len() + 2;

/// Which labels the series of watermark controllers have: their number grew from release to release.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum LabelSet {
    /// As up to v0.10: five.
    V10,
    /// As of v0.11: with target_name and namespace.
    V11,
    /// As of v0.12: with dry_run.
    #[default]
    V12,
}

/// How far history is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum HistoryState {
    /// It is being read.
    #[default]
    Loading,
    /// It was read, or is written by now.
    Loaded,
    /// It was looked for, and there is none.
    Absent,
    /// It could not be read.
    Failed,
}

impl HistoryState {
    /// All there are.
    pub const ALL: [Self; 4] = [Self::Loading, Self::Loaded, Self::Absent, Self::Failed];

    /// Its word.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Loading => "loading",
            Self::Loaded => "loaded",
            Self::Absent => "absent",
            Self::Failed => "failed",
        }
    }
}

/// A mode as a label: those that nobody knows share one, or whoever writes objects could add series for ever.
pub(super) fn known_mode(mode: &str) -> &str {
    if mode.is_empty() || MODES.contains(&mode) { mode } else { OVERFLOW_LABEL }
}

/// Whether something is so.
pub(super) const fn bool_label(value: bool) -> &'static str {
    if value { "true" } else { "false" }
}
