//! What stands in for a history while its server is away: what checkpoints remember, or nothing.

use plimsoll_storage::Error;

use super::{Gap, HistoryReads, HistorySource};
use crate::controllers::recommender::Recommender;

impl Recommender {
    /// What is done about VPAs whose history cannot be read now: their checkpoints count for now, or nothing does.
    pub(super) async fn continue_without_prometheus(
        &self,
        series: &HistorySource,
        readings: &mut HistoryReads,
    ) {
        if series.has_fallback
            && let Err(error) = self.load_checkpoints(readings).await
        {
            tracing::error!(%error, "checkpoints cannot be read either");
        }
        if self.config.history_optional {
            let wanted = self.vpas_without_history(false);
            let mut core = self.state.lock();
            for key in wanted.keys() {
                core.vpa_registry.mark_missing(key);
            }
            drop(core);
            self.history_loaded.notify_one();
        }
    }

    /// Takes what checkpoints remember of the VPAs that wait; what they lack is read once the server is back.
    async fn load_checkpoints(&self, readings: &mut HistoryReads) -> Result<(), Error> {
        let wanted = self.vpas_without_history(true);
        if wanted.is_empty() {
            return Ok(());
        }
        let sightings = self.load_generations(&wanted);
        let restored = self.restore(&wanted).await?;
        if restored.is_empty() {
            return Ok(());
        }
        let now = self.clock.now();
        let mut core = self.state.lock();
        for (key, after) in &restored {
            let Some(&sighting) = sightings.get(key) else { continue };
            let before = core.vpa_registry.first_seen(key).unwrap_or(now);
            core.vpa_registry.mark_loaded(key, sighting);
            core.vpa_registry.mark_stored(key, now);
            readings
                .gaps
                .insert(key.clone(), Gap { load_generation: sighting, after: *after, before });
        }
        drop(core);
        // What had come of theirs is read again, for the gap alone.
        for reading in &mut readings.in_progress {
            reading.load_generations.retain(|key, _| !restored.contains_key(key));
        }
        readings.in_progress.retain(|reading| !reading.load_generations.is_empty());
        tracing::warn!(
            vpas = restored.len(),
            "the server of the history is away: checkpoints stand in, and what they lack is read later"
        );
        self.history_loaded.notify_one();
        Ok(())
    }
}
