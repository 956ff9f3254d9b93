//! Kills that were found, on their way into the histories.

use std::sync::Arc;

use plimsoll_storage::{Time, VpaKey};

use super::{Role, state::Core};
use crate::{
    metrics::Health,
    observe::pod::{Kill, KillSource},
    recommend::{estimate::Resource, fleet::KillOutcome},
};

/// Whatever may become of a kill is counted from zero.
pub(super) fn foresee(health: &Health) {
    for source in KillSource::ALL {
        for outcome in KillOutcome::WORDS {
            health.foresee_oom_kills(source.name(), outcome);
        }
    }
}

impl Role {
    /// Counts the kills that were found: those that a pod showed at first sight before its next samples, the
    /// others after them. What belongs to a history that is not loaded yet waits for it.
    pub(super) fn take_kills(&self, now: Time, first_sight: bool) -> u64 {
        let mut core = self.state.lock();
        let core = &mut *core;
        let mut counted = 0;
        for kill in core.index.take_kills() {
            if (kill.source == KillSource::FirstSight) != first_sight {
                core.index.add_kill(kill);
                continue;
            }
            counted += self.take_kill(core, kill, now);
        }
        counted
    }

    fn take_kill(&self, core: &mut Core, kill: Kill, now: Time) -> u64 {
        let source = kill.source.name();
        let mut vpas = kill.vpas.clone();
        if let Some((pod, all)) = core.index.pod(&kill.namespace, &kill.pod) {
            let part = pod.container(&kill.container).map(|container| container.part);
            if part.is_some_and(|part| !core.counts(part)) {
                return 0;
            }
            if vpas.is_empty() {
                vpas = all.to_vec();
            } else {
                // One that waited may have been pointed elsewhere meanwhile.
                vpas.retain(|name| all.contains(name));
            }
        }
        let key = |name: &Arc<str>| VpaKey::new(Arc::clone(&kill.namespace), Arc::clone(name));
        let (waiting, ready): (Vec<_>, Vec<_>) =
            vpas.into_iter().partition(|name| core.is_waiting(&key(name)));
        let mut counted = 0;
        for key in ready.iter().map(key) {
            let (pod, container) = (&*kill.pod, &*kill.container);
            let (whose, told) = ((pod, container), (kill.at, kill.kill));
            let outcome = match kill.source {
                KillSource::FirstSight => {
                    core.fleet.take_kill_at_first_sight(&key, whose, told, now)
                }
                KillSource::Update => core.fleet.take_kill(&key, whose, told, false, now),
                KillSource::Eviction => core.fleet.take_kill(&key, whose, told, true, now),
            };
            self.health.count_oom_kill(source, outcome.word());
            if let KillOutcome::Counted(credit) = outcome {
                counted += 1;
                let request = kill.kill.request.0;
                let (at, vpa) = (kill.at, &key);
                tracing::info!(%vpa, pod, container, %at, request, source, "OOM kill counted");
                // As upstream does: what the container is given credit for is compared, not what it had.
                let used = credit.as_f64();
                self.observe_quality(core, &key, container, Resource::Memory, true, used);
            }
        }
        if !waiting.is_empty() {
            core.index.add_kill(Kill { vpas: waiting, ..kill });
        }
        counted
    }
}
