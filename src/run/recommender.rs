//! The recommender's loop: observe, decide, act.

use super::RecommenderConfig;

/// Runs until it is told to end.
#[expect(clippy::unused_async, reason = "the loop to come waits")]
pub async fn run(config: RecommenderConfig) -> anyhow::Result<()> {
    tracing::error!(name = config.name, "not built yet");
    anyhow::bail!("the recommender's loop is not built yet")
}
