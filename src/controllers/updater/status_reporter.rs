//! Reports why updates are held back: as a condition of the VPA, as events, and as metrics. Each is written on change only.

use std::{
    collections::{BTreeMap, BTreeSet, HashSet},
    sync::Arc,
};

use kube::ResourceExt as _;
use parking_lot::Mutex;
use serde_json::json;

use super::{
    Shared,
    events::EventReporter,
    matching::{Workload, vpa_key},
};
use crate::{
    cluster::{
        watch::ObjectChange,
        write::{
            StatusQueue, UpdateError, WriteError,
            vpa_status::{StatusPatch, StatusSource, VpaWriteResult},
            workload_state::UPDATER_FIELD_MANAGER,
        },
    },
    telemetry::{UpdateRow, VpaMetricsSource, objects::PAGE_SIZE},
};
use plimsoll_core::{
    api::{VerticalPodAutoscaler, vpa::Condition},
    types::{ObjectKey, Time, compat::Compat},
    updater::{Decision, PodOutcome, SkipReason},
};

/// The condition type that reports why pods that need an update are not updated.
pub const CONDITION: &str = "UpdatesHeldBack";

/// Reasons that occur with every rollout, or whenever replicas change, and need no attention.
const ROUTINE_REASONS: [&str; 7] = [
    "canary",
    "cool_down",
    "outside_window",
    "surging",
    "changed_recently",
    "replicas_changed",
    "replicas_will_change",
];

/// Why updates of one VPA are held back.
#[derive(Clone, Debug, Default, PartialEq)]
struct PausedState {
    pods: BTreeMap<&'static str, usize>,
    /// The most important reason, which the condition reports.
    reason: Option<SkipReason>,
    /// UIDs of pods whose resize is infeasible.
    infeasible: BTreeSet<Box<str>>,
    /// Whether the state is not known yet, so that the previous report remains.
    is_pending: bool,
}

/// Why updates are held back, by VPA: for the conditions and for the metrics of objects.
pub(super) struct PausedUpdates {
    shared: Arc<Shared>,
    states: Mutex<BTreeMap<ObjectKey, PausedState>>,
}

impl PausedUpdates {
    pub fn new(shared: Arc<Shared>) -> Self {
        Self { shared, states: Mutex::default() }
    }

    /// Removes VPAs that no longer exist.
    pub fn retain(&self, is_there: impl Fn(&ObjectKey) -> bool) {
        self.states.lock().retain(|key, _| is_there(key));
    }

    /// Removes all entries. Returns whether there were any.
    pub fn clear(&self) -> bool {
        !std::mem::take(&mut *self.states.lock()).is_empty()
    }

    fn vpa(&self, key: &ObjectKey) -> Option<Arc<VerticalPodAutoscaler>> {
        self.shared.stores.vpas(&key.namespace).into_iter().find(|vpa| vpa.name_any() == *key.name)
    }
}

impl StatusSource for PausedUpdates {
    fn next_patch(&self, key: &ObjectKey) -> Option<StatusPatch> {
        let vpa = self.vpa(key)?;
        let state = self.states.lock().get(key).cloned().unwrap_or_default();
        if state.is_pending {
            return None;
        }
        let conditions = desired_conditions(&vpa, state.reason.as_ref(), self.shared.clock.now())?;
        Some(StatusPatch {
            key: key.clone(),
            resource_version: vpa.resource_version()?.into(),
            body: json!({"status": {"conditions": conditions}}),
            field_manager: UPDATER_FIELD_MANAGER,
        })
    }

    fn on_result(&self, key: &ObjectKey, result: &VpaWriteResult) {
        match result {
            // A VPA that was deleted in the meantime must not be added again.
            Err(UpdateError::Conflict(vpa)) if self.vpa(key).is_some() => {
                self.shared.stores.apply_vpa_change(ObjectChange::Applied((**vpa).clone()));
            }
            Ok(_)
            | Err(
                UpdateError::Conflict(_)
                | UpdateError::Failed(
                    WriteError::NotFound | WriteError::Conflict(_) | WriteError::NotLeader,
                ),
            ) => {}
            Err(UpdateError::Failed(error)) => {
                tracing::warn!(vpa = %key, %error, "failed to update VPA conditions");
            }
        }
    }
}

impl VpaMetricsSource for PausedUpdates {
    fn updates(
        &self,
        after: Option<&ObjectKey>,
        visit: &mut dyn FnMut(UpdateRow<'_>),
    ) -> Option<ObjectKey> {
        use std::ops::Bound::{Excluded, Unbounded};
        let paused = self.states.lock();
        let from = after.map_or(Unbounded, Excluded);
        let mut last = None;
        for (vpa, state) in paused.range::<ObjectKey, _>((from, Unbounded)).take(PAGE_SIZE) {
            last = Some(vpa.clone());
            let reasons: Vec<(&'static str, bool)> = SkipReason::restriction_names()
                .map(|name| (name, state.pods.contains_key(name)))
                .collect();
            visit(UpdateRow { vpa, reasons: &reasons });
        }
        last
    }
}

fn paused_state(workload: &Workload, decision: &Decision) -> PausedState {
    let mut state = PausedState::default();
    let mut top_reason: Option<(usize, &SkipReason)> = None;
    for (pod, outcome) in workload.pods.iter().zip(&decision.pod_outcomes) {
        let PodOutcome::Skipped(skip) = outcome else { continue };
        if *skip == SkipReason::Infeasible {
            state.infeasible.insert((*pod.sizing.uid).into());
        }
        if !skip.is_restriction() {
            continue;
        }
        state.is_pending |= *skip == SkipReason::HeartbeatAwaited;
        *state.pods.entry(skip.into_str()).or_default() += 1;
        let Some(weight) = SkipReason::GUARDS.iter().position(|name| *name == skip.into_str())
        else {
            continue;
        };
        if top_reason.is_none_or(|(rank, _)| weight < rank) {
            top_reason = Some((weight, skip));
        }
    }
    state.reason = top_reason.map(|(_, skip)| skip.clone());
    state
}

/// Converts a reason code to the form of condition reasons: `breaker_open` to `BreakerOpen`.
fn to_camel_case(word: &str) -> String {
    let parts = word.split('_').map(|part| {
        let mut letters = part.chars();
        let first = letters.next().map(|letter| letter.to_ascii_uppercase());
        first.into_iter().chain(letters).collect::<String>()
    });
    parts.collect()
}

/// Reports why updates are held back, on change.
pub(super) struct StatusReporter {
    pub shared: Arc<Shared>,
    pub paused: Arc<PausedUpdates>,
    pub queue: Arc<StatusQueue>,
    pub events: Arc<EventReporter>,
}

impl StatusReporter {
    /// Reports the outcome of a pass for one VPA.
    pub fn report_paused(&self, workload: &Workload, decision: &Decision, now: Time) {
        let state = paused_state(workload, decision);
        let before = self.paused.states.lock().insert(workload.key.clone(), state.clone());
        let always = self.shared.config.settings.compat == Compat::Upstream;
        let is_known =
            |uid: &str| before.as_ref().is_some_and(|state| state.infeasible.contains(uid));
        let is_new = |uid: &str| state.infeasible.contains(uid) && (always || !is_known(uid));
        let pods = workload.pods.iter().map(|pod| &**pod);
        let skipped: Vec<_> = pods.filter(|pod| is_new(&pod.sizing.uid)).collect();
        self.events.emit_skipped_resize_events(workload, &skipped, now);
        if self.shared.config.dry_run.is_some() || state.is_pending {
            return;
        }
        // Compare with the VPA and not with the last report: a client that writes the whole status may have dropped it.
        let reason = state.reason.as_ref();
        if self.shared.permissions.allowed_writes().conditions
            && desired_conditions(&workload.vpa, reason, now).is_some()
        {
            self.queue.push(workload.key.clone(), None);
        }
        // The watch may not show yet what this process reported; a report of a previous leader is on the VPA.
        let previous_reason = match before.filter(|before| !before.is_pending) {
            Some(before) => before.reason.map(|reason| to_camel_case(reason.into_str())),
            None => paused_condition(&workload.vpa).map(|condition| condition.reason.clone()),
        };
        if let Some(reason) =
            reason.filter(|reason| previous_reason != Some(to_camel_case(reason.into_str())))
        {
            let message = format!("Updates are held back: {reason}.");
            let is_routine = ROUTINE_REASONS.contains(&reason.into_str());
            self.events.emit_vpa_event(workload, CONDITION, message, now, !is_routine);
        }
    }

    /// Clears the condition of VPAs that this updater no longer handles, because they were switched off or their target
    /// is gone.
    pub fn clear_paused(&self, known: &HashSet<&ObjectKey>, unavailable: &HashSet<ObjectKey>) {
        if self.shared.config.dry_run.is_some()
            || !self.shared.permissions.allowed_writes().conditions
        {
            return;
        }
        for vpa in self.shared.stores.all_vpas() {
            let key = vpa_key(&vpa);
            // A target that is temporarily unreadable is not gone.
            let is_there = known.contains(&key) || unavailable.contains(&key);
            if paused_condition(&vpa).is_some() && !is_there {
                self.queue.push(key, None);
            }
        }
    }
}

/// The condition of a VPA that updates are held back, if it is true.
fn paused_condition(vpa: &VerticalPodAutoscaler) -> Option<&Condition> {
    let conditions = &vpa.status.as_ref()?.conditions;
    conditions.iter().find(|condition| condition.kind == CONDITION && condition.status == "True")
}

/// The desired conditions of a VPA; `None` if they are up to date.
fn desired_conditions(
    vpa: &VerticalPodAutoscaler,
    pause: Option<&SkipReason>,
    now: Time,
) -> Option<Vec<Condition>> {
    let status = vpa.status.as_ref();
    let mut conditions = status.map(|status| status.conditions.clone()).unwrap_or_default();
    let known = conditions.iter().position(|condition| condition.kind == CONDITION);
    let (status, reason, message) = match pause {
        Some(pause) => ("True", to_camel_case(pause.into_str()), pause.to_string()),
        None if known.is_none() => return None,
        None => ("False", "NothingHoldsBack".to_owned(), String::new()),
    };
    let mut desired = Condition {
        kind: CONDITION.to_owned(),
        status: status.to_owned(),
        last_transition_time: Some(to_meta_time(now)),
        reason,
        message,
        observed_generation: None,
    };
    let Some(known) = known.map(|index| &mut conditions[index]) else {
        conditions.push(desired);
        conditions.sort_by(|one, other| one.kind.cmp(&other.kind));
        return Some(conditions);
    };
    if known.status == desired.status {
        desired.last_transition_time.clone_from(&known.last_transition_time);
    }
    if *known == desired {
        return None;
    }
    *known = desired;
    Some(conditions)
}

fn to_meta_time(now: Time) -> k8s_openapi::apimachinery::pkg::apis::meta::v1::Time {
    k8s_openapi::apimachinery::pkg::apis::meta::v1::Time(jiff::Timestamp::from(now))
}

#[cfg(test)]
mod tests {
    use strum::VariantNames as _;

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
    fn foreign_conditions_stay_and_ours_is_written_only_on_change() {
        let theirs = json!([{"type": "RecommendationProvided", "status": "True"}]);
        let open = SkipReason::BreakerOpen { until: THEN };
        let nothing = desired_conditions(&vpa(&theirs), None, THEN);
        assert_eq!(nothing, None, "there is nothing to report");
        let conditions = desired_conditions(&vpa(&theirs), Some(&open), THEN).expect("it is new");
        let kinds: Vec<&str> = conditions.iter().map(|condition| condition.kind.as_str()).collect();
        assert_eq!(kinds, ["RecommendationProvided", CONDITION]);
        assert_eq!(conditions[1].reason, "BreakerOpen");
        let now = vpa(&serde_json::to_value(&conditions).expect("is written"));
        let later = THEN.later(std::time::Duration::from_mins(1));
        assert_eq!(desired_conditions(&now, Some(&open), later), None);
        let closed = desired_conditions(&now, None, later).expect("it is over");
        assert_eq!((closed[1].status.as_str(), closed[1].message.as_str()), ("False", ""));
        assert_eq!(closed[1].last_transition_time, Some(to_meta_time(later)));
        let other = SkipReason::CoolDown { until: THEN };
        let other = desired_conditions(&now, Some(&other), later).expect("the conditions differ");
        let since = Some(to_meta_time(THEN));
        assert_eq!(other[1].last_transition_time, since, "it was blocked before");
    }

    #[test]
    fn every_guard_has_a_known_skip_reason() {
        for word in SkipReason::GUARDS {
            assert!(SkipReason::VARIANTS.contains(&word), "{word}");
        }
        assert_eq!(to_camel_case("cluster_breaker_open"), "ClusterBreakerOpen");
    }
}
