//! How much a sample of a stored history counts.

use std::{fmt, str::FromStr};

use crate::types::compat::Compat;

/// What a sample that a storage hands over counts against one that was seen live (`--history-weighting`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum HistoryWeighting {
    /// Each sample once, whatever time it stands for; kills are not part of it. Eight days at one an hour weigh
    /// as much as half an hour of live samples.
    Upstream,
    /// As many samples as a recommender would have taken that lived through the time it stands for.
    #[default]
    Duration,
}

impl HistoryWeighting {
    /// What a mode starts from.
    pub const fn for_compat(compat: Compat) -> Self {
        match compat {
            Compat::Upstream => Self::Upstream,
            Compat::Plimsoll => Self::Duration,
        }
    }

    /// The word that the flag takes.
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
