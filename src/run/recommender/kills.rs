//! Kills that were found, on their way into the histories.

use std::{collections::HashMap, sync::Arc};

use plimsoll_core::types::{Time, VpaKey};

use super::{Role, state::Core};
use crate::{
    metrics::Health,
    observe::pod::{Kill, KillSource},
};
use plimsoll_core::recommender::{estimate::Resource, fleet::KillOutcome};

/// So many kills of one container wait for the history of its VPA, which may be away for days.
const MOST_WAITING: usize = 64;

/// What becomes of those beyond that, as metrics name it.
const DROPPED: &str = "dropped";

/// Whatever may become of a kill is counted from zero.
pub(super) fn foresee(health: &Health) {
    for source in KillSource::ALL {
        for outcome in KillOutcome::WORDS.into_iter().chain([DROPPED]) {
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
        let (mut counted, mut waiting) = (0, Vec::new());
        for kill in core.index.take_kills() {
            if (kill.source == KillSource::FirstSight) != first_sight {
                core.index.add_kill(kill);
                continue;
            }
            counted += self.take_kill(core, kill, &mut waiting, now);
        }
        for source in limit(&mut waiting) {
            self.health.count_oom_kill(source.name(), DROPPED);
        }
        for kill in waiting {
            core.index.add_kill(kill);
        }
        counted
    }

    fn take_kill(&self, core: &mut Core, kill: Kill, wait: &mut Vec<Kill>, now: Time) -> u64 {
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
            wait.push(Kill { vpas: waiting, ..kill });
        }
        counted
    }
}

/// Drops the oldest kills of each container beyond what may wait for the history of one VPA: the newest weigh most.
/// Returns where the dropped ones were read.
fn limit(waiting: &mut Vec<Kill>) -> Vec<KillSource> {
    if waiting.len() <= MOST_WAITING {
        return Vec::new();
    }
    let mut counts = HashMap::<_, usize>::new();
    let mut dropped = Vec::new();
    waiting.sort_by_key(|kill| kill.at);
    for kill in waiting.iter_mut().rev() {
        let Kill { namespace, container, vpas, .. } = kill;
        vpas.retain(|vpa| {
            let of = (Arc::clone(namespace), Arc::clone(vpa), Arc::clone(container));
            let count = counts.entry(of).or_default();
            *count += 1;
            *count <= MOST_WAITING
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
        let kill = |container: &str, at: usize| Kill {
            namespace: "shop".into(),
            pod: format!("pod-{at}").into(),
            container: container.into(),
            at: Time::from_secs(i64::try_from(at).expect("is small")),
            kill: OomKill { request: Bytes(1), limit: None, usage: None },
            source: KillSource::Update,
            vpas: vec!["web".into()],
        };
        let mut waiting: Vec<Kill> = (0..1000).map(|at| kill("app", at)).collect();
        waiting.push(kill("side", 0));
        assert_eq!(limit(&mut waiting).len(), 1000 - MOST_WAITING);
        let app: Vec<&Kill> = waiting.iter().filter(|kill| &*kill.container == "app").collect();
        assert_eq!((waiting.len(), app.len()), (MOST_WAITING + 1, MOST_WAITING));
        assert!(app.iter().all(|kill| kill.at >= Time::from_secs(1000 - 64)));
        assert!(limit(&mut waiting).is_empty());
    }
}
