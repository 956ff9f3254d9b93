//! Kills that were found, on their way into the histories.

use std::{collections::HashMap, sync::Arc};

use plimsoll_core::types::{ObjectKey, Time};

use super::{Recommender, state::RecommenderState};
use crate::{
    cluster::cache::recommender_pod::{ObservedOomKill, OomKillSource},
    telemetry::RecommenderHealthMetrics,
};
use plimsoll_core::recommender::{estimate::Resource, registry::OomResult};

/// So many kills of one container wait for the history of its VPA, which may be away for days.
const MAX_PENDING_OOMS: usize = 64;

/// What becomes of those beyond that, as metrics name it.
const DROPPED: &str = "dropped";

/// Whatever may become of a kill is counted from zero.
pub(super) fn init_oom_counters(health: &RecommenderHealthMetrics) {
    for source in OomKillSource::ALL {
        for outcome in OomResult::NAMES.into_iter().chain([DROPPED]) {
            health.init_oom_kills(source.name(), outcome);
        }
    }
}

impl Recommender {
    /// Counts the kills that were found: those that a pod showed at first sight before its next samples, the
    /// others after them. What belongs to a history that is not loaded yet waits for it.
    pub(super) fn ingest_ooms(&self, now: Time, first_sight: bool) -> u64 {
        let mut core = self.state.lock();
        let core = &mut *core;
        let (mut counted, mut waiting) = (0, Vec::new());
        for kill in core.index.take_oom_kills() {
            if (kill.source == OomKillSource::FirstObserved) != first_sight {
                core.index.add_oom_kill(kill);
                continue;
            }
            counted += self.ingest_oom(core, kill, &mut waiting, now);
        }
        for source in drop_oldest_pending(&mut waiting) {
            self.health.count_oom_kill(source.name(), DROPPED);
        }
        for kill in waiting {
            core.index.add_oom_kill(kill);
        }
        counted
    }

    fn ingest_oom(
        &self,
        core: &mut RecommenderState,
        kill: ObservedOomKill,
        wait: &mut Vec<ObservedOomKill>,
        now: Time,
    ) -> u64 {
        let source = kill.source.name();
        let mut vpas = kill.vpas.clone();
        if let Some((pod, all)) = core.index.pod(&kill.namespace, &kill.pod) {
            let part = pod.container(&kill.container).map(|container| container.container_type);
            if part.is_some_and(|part| !core.counts_usage(part)) {
                return 0;
            }
            if vpas.is_empty() {
                vpas = all.to_vec();
            } else {
                // One that waited may have been pointed elsewhere meanwhile.
                vpas.retain(|name| all.contains(name));
            }
        }
        let key = |name: &Arc<str>| ObjectKey::new(Arc::clone(&kill.namespace), Arc::clone(name));
        let (waiting, ready): (Vec<_>, Vec<_>) =
            vpas.into_iter().partition(|name| core.is_waiting_for_history(&key(name)));
        let mut counted = 0;
        for key in ready.iter().map(key) {
            let (pod, container) = (&*kill.pod, &*kill.container);
            let (whose, told) = ((pod, container), (kill.at, kill.kill));
            let outcome = match kill.source {
                OomKillSource::FirstObserved => {
                    core.vpa_registry.add_oom_at_first_sight(&key, whose, told, now)
                }
                OomKillSource::PodUpdate => {
                    core.vpa_registry.add_oom(&key, whose, told, false, now)
                }
                OomKillSource::Eviction => core.vpa_registry.add_oom(&key, whose, told, true, now),
            };
            self.health.count_oom_kill(source, outcome.as_str());
            if let OomResult::Counted(credit) = outcome {
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
            wait.push(ObservedOomKill { vpas: waiting, ..kill });
        }
        counted
    }
}

/// Drops the oldest kills of each container beyond what may wait for the history of one VPA: the newest weigh most.
/// Returns where the dropped ones were read.
fn drop_oldest_pending(waiting: &mut Vec<ObservedOomKill>) -> Vec<OomKillSource> {
    if waiting.len() <= MAX_PENDING_OOMS {
        return Vec::new();
    }
    let mut counts = HashMap::<_, usize>::new();
    let mut dropped = Vec::new();
    waiting.sort_by_key(|kill| kill.at);
    for kill in waiting.iter_mut().rev() {
        let ObservedOomKill { namespace, container, vpas, .. } = kill;
        vpas.retain(|vpa| {
            let of = (Arc::clone(namespace), Arc::clone(vpa), Arc::clone(container));
            let count = counts.entry(of).or_default();
            *count += 1;
            *count <= MAX_PENDING_OOMS
        });
        if vpas.is_empty() {
            dropped.push(kill.source);
        }
    }
    waiting.retain(|kill| !kill.vpas.is_empty());
    dropped
}

#[cfg(test)]
mod tests {
    use super::*;
    use plimsoll_core::{recommender::OomKill, types::units::Bytes};

    #[test]
    fn kills_that_wait_for_a_history_are_bounded_and_the_newest_stay() {
        let kill = |container: &str, at: usize| ObservedOomKill {
            namespace: "shop".into(),
            pod: format!("pod-{at}").into(),
            container: container.into(),
            at: Time::from_secs(i64::try_from(at).expect("is small")),
            kill: OomKill { request: Bytes(1), limit: None, usage: None },
            source: OomKillSource::PodUpdate,
            vpas: vec!["web".into()],
        };
        let mut waiting: Vec<ObservedOomKill> = (0..1000).map(|at| kill("app", at)).collect();
        waiting.push(kill("side", 0));
        assert_eq!(drop_oldest_pending(&mut waiting).len(), 1000 - MAX_PENDING_OOMS);
        let app: Vec<&ObservedOomKill> =
            waiting.iter().filter(|kill| &*kill.container == "app").collect();
        assert_eq!((waiting.len(), app.len()), (MAX_PENDING_OOMS + 1, MAX_PENDING_OOMS));
        assert!(app.iter().all(|kill| kill.at >= Time::from_secs(1000 - 64)));
        assert!(drop_oldest_pending(&mut waiting).is_empty());
    }
}
