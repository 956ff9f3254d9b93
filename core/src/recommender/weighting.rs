//! The weight of samples of a stored history.

use std::{fmt, str::FromStr};

use crate::types::compat::Compat;

/// The weight of a stored sample relative to a live one (`--history-weighting`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum HistoryWeighting {
    /// Each sample counts once, whatever time it covers; OOM kills do not count. Eight days with one sample per hour
    /// have the weight of half an hour of live samples.
    Upstream,
    /// A sample counts as many times as a recommender would have sampled in the time that it covers.
    #[default]
    Duration,
}

impl HistoryWeighting {
    /// The default of a mode.
    pub const fn for_compat(compat: Compat) -> Self {
        match compat {
            Compat::Upstream => Self::Upstream,
            Compat::Plimsoll => Self::Duration,
        }
    }

    /// The value of the flag.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Upstream => "upstream",
            Self::Duration => "duration",
        }
    }
}

impl fmt::Display for HistoryWeighting {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for HistoryWeighting {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        match text {
            "upstream" => Ok(Self::Upstream),
            "duration" => Ok(Self::Duration),
            other => Err(format!("unknown weighting `{other}`; use `duration` or `upstream`")),
        }
    }
}
