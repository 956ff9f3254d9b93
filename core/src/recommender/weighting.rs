//! The weight of samples of a stored history.

use strum::{Display, EnumString};

use crate::types::compat::Compat;

/// The weight of a stored sample relative to a live one (`--history-weighting`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Display, EnumString)]
#[strum(serialize_all = "lowercase", parse_err_ty = String, parse_err_fn = unknown_weighting)]
pub enum HistoryWeighting {
    /// Each sample counts once, whatever time it covers; OOM kills do not count. Eight days with one sample per hour
    /// have the weight of half an hour of live samples.
    Upstream,
    /// A sample counts as many times as a recommender would have sampled in the time that it covers.
    #[default]
    Duration,
}

impl HistoryWeighting {
    pub const fn for_compat(compat: Compat) -> Self {
        match compat {
            Compat::Upstream => Self::Upstream,
            Compat::Plimsoll => Self::Duration,
        }
    }
}

fn unknown_weighting(text: &str) -> String {
    format!("unknown weighting `{text}`; use `duration` or `upstream`")
}
