//! Ingests observed OOM kills into histories.

use std::{collections::HashMap, sync::Arc};

use plimsoll_core::{
    recommender::{estimate::Resource, registry::OomResult},
    types::{ObjectKey, Time},
};
use strum::VariantNames as _;

use super::{Shared, state::RecommenderState, usage_ingest::observe_quality};
use crate::{
    cluster::cache::recommender_pod::{ObservedOomKill, OomKillSource},
    telemetry::RecommenderHealthMetrics,
};

/// Maximum number of pending OOM kills per container: the history of its VPA may be unavailable for days.
const MAX_PENDING_OOMS: usize = 64;

/// Outcome label of OOM kills above that limit.
const DROPPED: &str = "dropped";

/// Initializes all outcome counters with zero.
pub(super) fn init_oom_counters(health: &RecommenderHealthMetrics) {
    for &source in OomKillSource::ALL {
        for outcome in OomResult::VARIANTS.iter().copied().chain([DROPPED]) {
            health.count_oom_kills(source.name(), outcome, 0);
        }
    }
}

/// Ingests observed OOM kills: with `first_sight` those that a new pod had when first observed, before its first
/// samples; otherwise the others, after the samples. Kills whose history is not loaded yet stay pending.
pub(super) fn ingest_ooms(shared: &Shared, now: Time, first_sight: bool) -> u64 {
    let mut state = shared.state.lock();
    let state = &mut *state;
    let (mut counted, mut pending) = (0, Vec::new());
    for kill in state.index.take_oom_kills() {
        if (kill.source == OomKillSource::FirstObserved) != first_sight {
            state.index.oom_kills.push(kill);
            continue;
        }
        counted += ingest_oom(shared, state, kill, &mut pending, now);
    }
    for source in drop_oldest_pending(&mut pending) {
        shared.health.count_oom_kills(source.name(), DROPPED, 1);
    }
    for kill in pending {
        state.index.oom_kills.push(kill);
    }
    counted
}

fn ingest_oom(
    shared: &Shared,
    state: &mut RecommenderState,
    kill: ObservedOomKill,
    pending: &mut Vec<ObservedOomKill>,
    now: Time,
) -> u64 {
    let source = kill.source.name();
    let mut vpas = kill.vpas.clone();
    if let Some((pod, current_vpas)) = state.index.pod(&kill.namespace, &kill.pod) {
        let container_type =
            pod.container(&kill.container).map(|container| container.container_type);
        if container_type.is_some_and(|container_type| !state.counts_usage(container_type)) {
            return 0;
        }
        if vpas.is_empty() {
            vpas = current_vpas.to_vec();
        } else {
            // The VPAs may have changed while the kill was pending.
            vpas.retain(|name| current_vpas.contains(name));
        }
    }
    let key = |name: &Arc<str>| ObjectKey::new(Arc::clone(&kill.namespace), Arc::clone(name));
    let (waiting, ready): (Vec<_>, Vec<_>) =
        vpas.into_iter().partition(|name| state.is_waiting_for_history(&key(name)));
    let mut counted = 0;
    for key in ready.iter().map(key) {
        let (pod, container) = (&*kill.pod, &*kill.container);
        let (container_id, oom) = ((pod, container), (kill.at, kill.kill));
        let outcome = match kill.source {
            OomKillSource::FirstObserved => {
                state.vpa_registry.ingest().add_oom_at_first_sight(&key, container_id, oom, now)
            }
            OomKillSource::PodUpdate | OomKillSource::Eviction => {
                let is_eviction = kill.source == OomKillSource::Eviction;
                state.vpa_registry.ingest().add_oom(&key, container_id, oom, is_eviction, now)
            }
        };
        shared.health.count_oom_kills(source, outcome.into_str(), 1);
        if let OomResult::Counted(credit) = outcome {
            counted += 1;
            let request = kill.kill.request.0;
            let (at, vpa) = (kill.at, &key);
            tracing::info!(%vpa, pod, container, %at, request, source, "counted OOM kill");
            // As in upstream, the credited usage is compared, not the actual usage.
            let used = credit.as_f64();
            let memory = Resource::Memory;
            observe_quality(&shared.metrics, state, &key, container, memory, true, used);
        }
    }
    if !waiting.is_empty() {
        pending.push(ObservedOomKill { vpas: waiting, ..kill });
    }
    counted
}

/// Drops the oldest pending kills of each container above the limit: the newest have the most weight. Returns the
/// sources of the dropped ones.
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
            let id = (Arc::clone(namespace), Arc::clone(vpa), Arc::clone(container));
            let count = counts.entry(id).or_default();
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
    fn pending_oom_kills_are_bounded_and_the_newest_are_kept() {
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
