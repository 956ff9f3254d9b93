//! Label values that several families share.

use super::family::OVERFLOW_LABEL;

/// Update modes, sorted by name. An unset mode is not among them.
pub(super) const MODES: [&str; 6] =
    ["Auto", "InPlace", "InPlaceOrRecreate", "Initial", "Off", "Recreate"];
/// The number of values of the label `update_mode`: all modes, empty and `other`.
pub(super) const MODES_OR_NONE: usize = MODES.len() + 2;

/// The label set of the series of watermark controllers, which grew from release to release.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum LabelSet {
    /// Up to v0.10: five labels.
    V10,
    /// Since v0.11: with `target_name` and `namespace`.
    V11,
    /// Since v0.12: with `dry_run`.
    #[default]
    V12,
}

/// The state of the history.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum HistoryState {
    /// The history is being loaded.
    #[default]
    Loading,
    /// The history was loaded, or has been written since.
    Loaded,
    /// There is no stored history.
    Absent,
    /// The history could not be loaded.
    Failed,
}

impl HistoryState {
    /// All states.
    pub const ALL: [Self; 4] = [Self::Loading, Self::Loaded, Self::Absent, Self::Failed];

    /// The label value.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Loading => "loading",
            Self::Loaded => "loaded",
            Self::Absent => "absent",
            Self::Failed => "failed",
        }
    }
}

/// The label value of a mode. Unknown modes share one value, because user input must not create unlimited series.
pub(super) fn known_mode(mode: &str) -> &str {
    if mode.is_empty() || MODES.contains(&mode) { mode } else { OVERFLOW_LABEL }
}

/// The label value of a boolean.
pub(super) const fn bool_label(value: bool) -> &'static str {
    if value { "true" } else { "false" }
}
