//! Fallback while Prometheus is unavailable: checkpoints, or no history.

use plimsoll_storage::Error;

use super::{Gap, HistoryReads, HistorySource};
use crate::controllers::recommender::Recommender;

impl Recommender {
    /// Continues without Prometheus: loads checkpoints if there are any, or starts without history if that is
    /// allowed.
    pub(super) async fn continue_without_prometheus(
        &self,
        source: &HistorySource,
        reads: &mut HistoryReads,
    ) {
        if source.has_fallback
            && let Err(error) = self.load_checkpoints(reads).await
        {
            tracing::error!(%error, "failed to read fallback checkpoints");
        }
        if self.config.history_optional {
            self.continue_without_history(self.vpas_without_history(false).keys());
        }
    }

    /// Loads checkpoints of VPAs without history. Their gaps are read once the server is available again.
    async fn load_checkpoints(&self, reads: &mut HistoryReads) -> Result<(), Error> {
        let wanted = self.vpas_without_history(true);
        if wanted.is_empty() {
            return Ok(());
        }
        let generations = self.load_generations(&wanted);
        let restored = self.restore(&wanted).await?;
        if restored.is_empty() {
            return Ok(());
        }
        let now = self.clock.now();
        let mut state = self.state.lock();
        for (key, after) in &restored {
            let Some(&generation) = generations.get(key) else { continue };
            let before = state.vpa_registry.first_seen(key).unwrap_or(now);
            state.vpa_registry.mark_loaded(key, generation);
            state.vpa_registry.mark_stored(key, now);
            reads
                .gaps
                .insert(key.clone(), Gap { load_generation: generation, after: *after, before });
        }
        drop(state);
        // Discard their partial reads: the gap is read again.
        for read in &mut reads.in_progress {
            read.histories.load_generations.retain(|key, _| !restored.contains_key(key));
        }
        reads.in_progress.retain(|read| !read.histories.load_generations.is_empty());
        tracing::warn!(
            vpas = restored.len(),
            "Prometheus is unavailable; using checkpoints until newer history can be read"
        );
        self.history_loaded.notify_one();
        Ok(())
    }
}
