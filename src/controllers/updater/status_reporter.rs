//! What holds updates back, told where users look: a condition of the VPA, its events, and series of metrics. Each on
//! change only.

use std::{
    collections::{BTreeMap, BTreeSet, HashSet},
    sync::{Mutex, MutexGuard, PoisonError, Weak},
};

use kube::ResourceExt as _;
use plimsoll_core::types::{ObjectKey, Time};
use serde_json::json;

use super::{
    Updater,
    matching::{Workload, vpa_key},
};
use crate::{
    cluster::{
        watch::ObjectChange,
        write::{
            vpa_annotation::UPDATER_FIELD_MANAGER,
            vpa_status::{StatusPatch, StatusSource, StatusWriteResult},
        },
    },
    telemetry::{ContainerRow, UpdateRow, VpaMetricsSource, VpaRow, objects::PAGE_SIZE},
};
use plimsoll_core::{
    api::{VerticalPodAutoscaler, vpa::Condition},
    types::compat::Compat,
    updater::{Decision, PodOutcome, SkipReason},
};

/// The condition that says why pods are not changed that should be.
pub const CONDITION: &str = "UpdatesHeldBack";

/// What comes with every change: nobody needs to look at it.
const ROUTINE_REASONS: [&str; 4] = ["canary", "cool_down", "outside_window", "surging"];

/// What holds back the updates of one VPA.
#[derive(Clone, Debug, Default, PartialEq)]
struct PausedState {
    /// Pods by reason.
    pods: BTreeMap<&'static str, usize>,
    /// The weightiest of the reasons: what the condition says.
    reason: Option<PauseReason>,
    /// Pods, by uid, whose resize was found impossible.
    infeasible: BTreeSet<Box<str>>,
    /// Whether that is not known yet: what was said before stands.
    is_pending: bool,
}

/// A reason and its sentence.
#[derive(Clone, Debug, PartialEq)]
struct PauseReason {
    code: &'static str,
    message: String,
}

/// What holds back the updates of all.
#[derive(Debug, Default)]
pub(super) struct PausedUpdates(Mutex<BTreeMap<ObjectKey, PausedState>>);

impl PausedUpdates {
    fn lock(&self) -> MutexGuard<'_, BTreeMap<ObjectKey, PausedState>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Forgets VPAs that are gone.
    pub fn retain(&self, is_there: impl Fn(&ObjectKey) -> bool) {
        self.lock().retain(|key, _| is_there(key));
    }

    /// Forgets all, and says whether there was anything.
    pub fn clear(&self) -> bool {
        !std::mem::take(&mut *self.lock()).is_empty()
    }

    fn get(&self, key: &ObjectKey) -> Option<PausedState> {
        self.lock().get(key).cloned()
    }
}

fn paused_state(workload: &Workload, decision: &Decision) -> PausedState {
    let mut held = PausedState::default();
    let mut weightiest: Option<(usize, &SkipReason)> = None;
    for (pod, verdict) in workload.pods.iter().zip(&decision.pod_outcomes) {
        let PodOutcome::Skipped(skip) = verdict else { continue };
        if *skip == SkipReason::Infeasible {
            held.infeasible.insert((*pod.sizing.uid).into());
        }
        if !skip.is_restriction() {
            continue;
        }
        held.is_pending |= *skip == SkipReason::HeartbeatAwaited;
        *held.pods.entry(skip.as_str()).or_default() += 1;
        let Some(weight) = SkipReason::GUARDS.iter().position(|word| *word == skip.as_str()) else {
            continue;
        };
        if weightiest.is_none_or(|(known, _)| weight < known) {
            weightiest = Some((weight, skip));
        }
    }
    held.reason =
        weightiest.map(|(_, skip)| PauseReason { code: skip.as_str(), message: skip.to_string() });
    held
}

/// `breaker_open` as conditions have it: `BreakerOpen`.
fn to_camel_case(word: &str) -> String {
    let parts = word.split('_').map(|part| {
        let mut letters = part.chars();
        let first = letters.next().map(|letter| letter.to_ascii_uppercase());
        first.into_iter().chain(letters).collect::<String>()
    });
    parts.collect()
}

impl Updater {
    /// Tells what came of a VPA in a pass.
    pub(super) fn report_paused(&self, workload: &Workload, decision: &Decision, now: Time) {
        let held = paused_state(workload, decision);
        let before = self.paused_updates.lock().insert(workload.key.clone(), held.clone());
        let always = self.config.settings.compat == Compat::Upstream;
        let is_known = |uid: &str| before.as_ref().is_some_and(|it| it.infeasible.contains(uid));
        let is_news = |uid: &str| held.infeasible.contains(uid) && (always || !is_known(uid));
        let pods = workload.pods.iter().map(|pod| &**pod);
        let skipped: Vec<_> = pods.filter(|pod| is_news(&pod.sizing.uid)).collect();
        self.emit_skipped_resize_events(workload, &skipped, now);
        if self.config.dry_run.is_some() || held.is_pending {
            return;
        }
        // Compared with the VPA and not with what was said: whoever writes the whole status may have lost it.
        let said = held.reason.as_ref();
        if self.writes_conditions() && desired_conditions(&workload.vpa, said, now).is_some() {
            self.status_queue.push(workload.key.clone(), None);
        }
        // What this process said may not be told by the watch yet; what another one said stands on the VPA.
        let was = match before.filter(|before| !before.is_pending) {
            Some(before) => before.reason.map(|said| to_camel_case(said.code)),
            None => paused_condition(&workload.vpa).map(|condition| condition.reason.clone()),
        };
        if let Some(said) = said.filter(|said| was != Some(to_camel_case(said.code))) {
            let message = format!("Updates are held back: {}.", said.message);
            let is_usual = ROUTINE_REASONS.contains(&said.code);
            self.emit_vpa_event(workload, CONDITION, message, now, !is_usual);
        }
    }
}

impl Updater {
    /// Takes back what was said of VPAs that this updater has nothing to say about any more: they were switched off, or
    /// what they are for is gone.
    pub(super) fn clear_paused(
        &self,
        known: &HashSet<&ObjectKey>,
        unavailable: &HashSet<ObjectKey>,
    ) {
        if self.config.dry_run.is_some() || !self.writes_conditions() {
            return;
        }
        for namespace in self.stores.namespaces() {
            if !self.config.scope.includes(&namespace) {
                continue;
            }
            for vpa in self.stores.vpas(&namespace) {
                let key = vpa_key(&vpa);
                // What cannot be read for a moment is not gone.
                let is_there = known.contains(&key) || unavailable.contains(&key);
                if paused_condition(&vpa).is_some() && !is_there {
                    self.status_queue.push(key, None);
                }
            }
        }
    }
}

/// What stands on a VPA as the reason why its pods are left alone, if anything does.
fn paused_condition(vpa: &VerticalPodAutoscaler) -> Option<&Condition> {
    let conditions = &vpa.status.as_ref()?.conditions;
    conditions.iter().find(|one| one.kind == CONDITION && one.status == "True")
}

/// The conditions of a VPA as they are to be; nothing when they are so already.
fn desired_conditions(
    vpa: &VerticalPodAutoscaler,
    said: Option<&PauseReason>,
    now: Time,
) -> Option<Vec<Condition>> {
    let status = vpa.status.as_ref();
    let mut conditions = status.map(|status| status.conditions.clone()).unwrap_or_default();
    let known = conditions.iter().position(|one| one.kind == CONDITION);
    let (status, reason, message) = match said {
        Some(said) => ("True", to_camel_case(said.code), said.message.clone()),
        None if known.is_none() => return None,
        None => ("False", "NothingHoldsBack".to_owned(), String::new()),
    };
    let mut wanted = Condition {
        kind: CONDITION.to_owned(),
        status: status.to_owned(),
        last_transition_time: Some(to_meta_time(now)),
        reason,
        message,
        observed_generation: None,
    };
    let Some(known) = known.map(|at| &mut conditions[at]) else {
        conditions.push(wanted);
        conditions.sort_by(|one, other| one.kind.cmp(&other.kind));
        return Some(conditions);
    };
    if known.status == wanted.status {
        wanted.last_transition_time.clone_from(&known.last_transition_time);
    }
    if *known == wanted {
        return None;
    }
    *known = wanted;
    Some(conditions)
}

fn to_meta_time(now: Time) -> k8s_openapi::apimachinery::pkg::apis::meta::v1::Time {
    k8s_openapi::apimachinery::pkg::apis::meta::v1::Time(jiff::Timestamp::from(now))
}

/// Asks the role what conditions to write.
#[derive(Debug)]
pub(super) struct ConditionStatusSource(pub Weak<Updater>);

impl StatusSource for ConditionStatusSource {
    fn next_patch(&self, key: &ObjectKey) -> Option<StatusPatch> {
        let role = self.0.upgrade()?;
        let vpas = role.stores.vpas(&key.namespace);
        let vpa = vpas.iter().find(|vpa| vpa.name_any() == *key.name)?;
        let held = role.paused_updates.get(key).unwrap_or_default();
        if held.is_pending {
            return None;
        }
        let conditions = desired_conditions(vpa, held.reason.as_ref(), role.clock.now())?;
        Some(StatusPatch {
            key: key.clone(),
            resource_version: vpa.resource_version()?.into(),
            body: json!({"status": {"conditions": conditions}}),
            field_manager: UPDATER_FIELD_MANAGER,
        })
    }

    fn on_result(&self, key: &ObjectKey, outcome: &StatusWriteResult) {
        let Some(role) = self.0.upgrade() else { return };
        match outcome {
            // One that the watch has told to be gone meanwhile must not come back.
            StatusWriteResult::Conflict(Some(vpa)) if Self::is_there(&role, key) => {
                role.stores.apply_vpa_change(ObjectChange::Applied((**vpa).clone()));
            }
            StatusWriteResult::Failed { why } => tracing::warn!(why, "a condition was not written"),
            _ => {}
        }
    }
}

impl ConditionStatusSource {
    fn is_there(role: &Updater, key: &ObjectKey) -> bool {
        role.stores.vpas(&key.namespace).iter().any(|vpa| vpa.name_any() == *key.name)
    }
}

/// The rows of an updater: what holds back each VPA.
#[derive(Debug)]
pub(super) struct UpdaterObjectMetrics(pub Weak<Updater>);

impl VpaMetricsSource for UpdaterObjectMetrics {
    fn vpas(&self, _: Option<&ObjectKey>, _: &mut dyn FnMut(VpaRow<'_>)) -> Option<ObjectKey> {
        None
    }

    fn containers(
        &self,
        _: Option<&ObjectKey>,
        _: &mut dyn FnMut(ContainerRow<'_>),
    ) -> Option<ObjectKey> {
        None
    }

    fn updates(
        &self,
        after: Option<&ObjectKey>,
        visit: &mut dyn FnMut(UpdateRow<'_>),
    ) -> Option<ObjectKey> {
        use std::ops::Bound::{Excluded, Unbounded};
        let role = self.0.upgrade()?;
        let told = role.paused_updates.lock();
        let from = after.map_or(Unbounded, Excluded);
        let mut last = None;
        for (vpa, held) in told.range::<ObjectKey, _>((from, Unbounded)).take(PAGE_SIZE) {
            last = Some(vpa.clone());
            let reasons: Vec<(&'static str, bool)> = SkipReason::restriction_names()
                .map(|word| (word, held.pods.contains_key(word)))
                .collect();
            visit(UpdateRow { vpa, reasons: &reasons });
        }
        last
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn vpa(conditions: &serde_json::Value) -> VerticalPodAutoscaler {
        serde_json::from_value(json!({
            "apiVersion": "autoscaling.k8s.io/v1", "kind": "VerticalPodAutoscaler",
            "metadata": {"name": "web", "namespace": "shop"},
            "spec": {"targetRef": {"kind": "Deployment", "name": "web"}},
            "status": {"conditions": conditions},
        }))
        .expect("a VPA")
    }

    const THEN: Time = Time::from_secs(1_800_000_000);

    #[test]
    fn conditions_of_others_stay_and_ours_is_written_on_change_only() {
        let theirs = json!([{"type": "RecommendationProvided", "status": "True"}]);
        let open = PauseReason { code: "breaker_open", message: "pods got worse".to_owned() };
        assert_eq!(desired_conditions(&vpa(&theirs), None, THEN), None, "nothing is to be said");
        let said = desired_conditions(&vpa(&theirs), Some(&open), THEN).expect("it is new");
        let kinds: Vec<&str> = said.iter().map(|one| one.kind.as_str()).collect();
        assert_eq!(kinds, ["RecommendationProvided", CONDITION]);
        assert_eq!(said[1].reason, "BreakerOpen");
        let now = vpa(&serde_json::to_value(&said).expect("is written"));
        let later = THEN.later(std::time::Duration::from_mins(1));
        assert_eq!(desired_conditions(&now, Some(&open), later), None);
        let closed = desired_conditions(&now, None, later).expect("it is over");
        assert_eq!((closed[1].status.as_str(), closed[1].message.as_str()), ("False", ""));
        assert_eq!(closed[1].last_transition_time, Some(to_meta_time(later)));
        let other = PauseReason { code: "cool_down", message: "it rests".to_owned() };
        let other = desired_conditions(&now, Some(&other), later).expect("it is another one");
        assert_eq!(
            other[1].last_transition_time,
            Some(to_meta_time(THEN)),
            "it was held back before"
        );
    }

    #[test]
    fn every_guard_has_a_word_of_the_closed_list() {
        for word in SkipReason::GUARDS {
            assert!(SkipReason::NAMES.contains(&word), "{word}");
        }
        assert_eq!(to_camel_case("cluster_breaker_open"), "ClusterBreakerOpen");
    }
}
