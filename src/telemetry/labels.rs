//! Label values that several families share.

use strum::{IntoStaticStr, VariantArray};

use super::family::OVERFLOW_LABEL;

/// Update modes, sorted by name. An unset mode is not among them.
pub(super) const MODES: [&str; 6] =
    ["Auto", "InPlace", "InPlaceOrRecreate", "Initial", "Off", "Recreate"];
/// The number of values of the label `update_mode`: all modes, empty and `other`.
pub(super) const MODES_OR_NONE: usize = MODES.len() + 2;

/// The largest size class, which are powers of two of the number of pods. Larger VPAs count as this.
pub(super) const SIZES: usize = 20;

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

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, IntoStaticStr, VariantArray)]
#[strum(serialize_all = "lowercase")]
pub enum HistoryState {
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
    pub const ALL: &'static [Self] = Self::VARIANTS;

    pub fn as_str(self) -> &'static str {
        self.into()
    }
}

/// The label value of a mode. Unknown modes share one value, because user input must not create unlimited series.
pub(super) fn known_mode(mode: &str) -> &str {
    if mode.is_empty() || MODES.contains(&mode) { mode } else { OVERFLOW_LABEL }
}

pub(super) const fn bool_label(value: bool) -> &'static str {
    if value { "true" } else { "false" }
}

pub(super) fn size_label(pods: usize) -> String {
    (pods.checked_ilog2().unwrap_or(0) as usize).min(SIZES).to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn workload_sizes_are_grouped_by_powers_of_two() {
        for (size, power) in [(0, "0"), (1, "0"), (2, "1"), (3, "1"), (4, "2"), (1 << 21, "20")] {
            assert_eq!(size_label(size), power, "{size}");
        }
    }
}
