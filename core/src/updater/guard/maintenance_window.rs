//! Maintenance windows: `0 22 * * mon-fri for 6h in +01:00`, separated by `;`.

use std::{collections::BTreeMap, str::FromStr};

use crate::{
    api::{
        annotations::{CHANGE_WINDOW, InvalidAnnotation, MAX_QUOTED_BYTES},
        condition_message::truncate,
    },
    types::{RecurringWindow, Time},
};

/// Maximum number of windows of one workload. Users write them, but the updater spends the time to evaluate them.
pub const MAX_WINDOWS: usize = 32;
/// Maximum length in bytes of the windows of one workload. See [`MAX_WINDOWS`].
pub const MAX_BYTES: usize = 4 * 1024;

/// When a workload may be changed. Without windows it may be changed at any time.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct MaintenanceWindows(Vec<RecurringWindow>);

/// The state of a workload's windows at one time. It is evaluated once for all of its pods.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum WindowState {
    #[default]
    Open,
    Closed {
        /// When the next one opens; `None` if never.
        next: Option<Time>,
    },
}

/// A malformed window.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` is not {wanted}", wanted = CHANGE_WINDOW.expected)]
pub struct InvalidWindow(String);

impl FromStr for MaintenanceWindows {
    type Err = InvalidWindow;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let invalid = || InvalidWindow(truncate(text, MAX_QUOTED_BYTES).into_owned());
        if text.len() > MAX_BYTES {
            return Err(invalid());
        }
        let parts = text.split(';').map(str::trim).filter(|part| !part.is_empty());
        // Parse one more than the maximum to detect that there are too many.
        let windows: Option<Vec<RecurringWindow>> =
            parts.take(MAX_WINDOWS + 1).map(parse_window).collect();
        let fits = |windows: &Vec<RecurringWindow>| (1..=MAX_WINDOWS).contains(&windows.len());
        windows.filter(fits).map(Self).ok_or_else(invalid)
    }
}

fn parse_window(text: &str) -> Option<RecurringWindow> {
    let (cron, rest) = text.split_once(" for ")?;
    let (open_for, zone) =
        rest.split_once(" in ").map_or((rest, None), |(rest, zone)| (rest, Some(zone)));
    RecurringWindow::parse(cron, open_for, zone)
}

impl MaintenanceWindows {
    /// No windows: changes are allowed at any time.
    pub const ALWAYS: Self = Self(Vec::new());

    /// Reads the windows from the annotations of a VPA, if set. They override the flag.
    pub fn from_annotations(
        annotations: &BTreeMap<String, String>,
    ) -> Result<Option<Self>, InvalidAnnotation> {
        CHANGE_WINDOW.read(annotations, |text| text.parse().ok())
    }

    pub fn state_at(&self, now: Time) -> WindowState {
        if self.is_any_open(now) {
            WindowState::Open
        } else {
            WindowState::Closed { next: self.next_opening(now) }
        }
    }

    pub fn is_any_open(&self, now: Time) -> bool {
        self.0.is_empty() || self.0.iter().any(|window| window.is_open(now))
    }

    /// Returns when the next window opens; `None` if never.
    pub fn next_opening(&self, now: Time) -> Option<Time> {
        self.0.iter().filter_map(|window| window.next_opening(now)).min()
    }
}

#[cfg(test)]
mod tests;
