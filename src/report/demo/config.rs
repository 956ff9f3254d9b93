//! Configuration of a demo, already validated.

use std::path::PathBuf;

use plimsoll_core::recommender::Settings;

/// The maximum number of simulated days. Up to this, sums fit into integers that every JSON parser represents exactly.
pub const MOST_DAYS: u32 = 90;

/// Configuration of a demo.
#[derive(Clone, Debug)]
pub struct Config {
    /// Seed of the random load.
    pub seed: u64,
    /// Simulated days, 1 to [`MOST_DAYS`].
    pub days: u32,
    /// Directory of the recommender's history, which is kept; `None` for a temporary directory.
    pub store: Option<PathBuf>,
    /// Settings of the recommender.
    pub settings: Settings,
}
