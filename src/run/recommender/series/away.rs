//! What stands in for a history while its server is away: what checkpoints remember, or nothing.

use plimsoll_storage::Error;

use super::{Gap, Readings, Series};
use crate::run::recommender::Role;

impl Role {
    /// What is done about VPAs whose history cannot be read now: their checkpoints count for now, or nothing does.
    pub(super) async fn go_on_without(&self, series: &Series, readings: &mut Readings) {
        if series.has_fallback
            && let Err(error) = self.fall_back(readings).await
        {
            tracing::error!(%error, "checkpoints cannot be read either");
        }
        if self.config.history_optional {
            let wanted = self.wanted_histories(false);
            let mut core = self.state.lock();
            for key in wanted.keys() {
                core.fleet.missing(key);
            }
            drop(core);
            self.loaded.notify_one();
        }
    }

    /// Takes what checkpoints remember of the VPAs that wait; what they lack is read once the server is back.
    async fn fall_back(&self, readings: &mut Readings) -> Result<(), Error> {
        let wanted = self.wanted_histories(true);
        if wanted.is_empty() {
            return Ok(());
        }
        let sightings = self.sightings(&wanted);
        let restored = self.restore(&wanted).await?;
        if restored.is_empty() {
            return Ok(());
        }
        let now = self.clock.now();
        let mut core = self.state.lock();
        for (key, after) in &restored {
            let Some(&sighting) = sightings.get(key) else { continue };
            let before = core.fleet.first_seen(key).unwrap_or(now);
            core.fleet.loaded(key, sighting);
            core.fleet.was_stored(key, now);
            readings.gaps.insert(key.clone(), Gap { sighting, after: *after, before });
        }
        drop(core);
        // What had come of theirs is read again, for the gap alone.
        for reading in &mut readings.under_way {
            reading.sightings.retain(|key, _| !restored.contains_key(key));
        }
        readings.under_way.retain(|reading| !reading.sightings.is_empty());
        tracing::warn!(
            vpas = restored.len(),
            "the server of the history is away: checkpoints stand in, and what they lack is read later"
        );
        self.loaded.notify_one();
        Ok(())
    }
}
