//! What a demo is told: checked values, ready to use.

use std::path::PathBuf;

use plimsoll_core::recommender::Settings;

/// The most days one demo may live: more teaches nothing new, and its sums still fit into the integers that
/// every JSON reader keeps exactly.
pub const MOST_DAYS: u32 = 90;

/// A demo to be lived.
#[derive(Clone, Debug)]
pub struct Config {
    /// Of all noise.
    pub seed: u64,
    /// Virtual days, 1 to [`MOST_DAYS`].
    pub days: u32,
    /// Where the recommender's history is kept, and stays; without it in a directory that is removed.
    pub store: Option<PathBuf>,
    /// Of the recommender's model.
    pub settings: Settings,
}
