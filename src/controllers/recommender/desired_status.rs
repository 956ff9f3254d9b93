//! The status that a VPA should have, computed from the current state.

use plimsoll_core::{
    api::vpa::Condition,
    recommender::{
        HistoryState, Recommendation,
        conditions::{self, ConditionInput},
        pod_cap::{self, PodLimits, ResourceLimit},
    },
    types::{ObjectKey, Time},
};

use super::state::RecommenderState;
use crate::cluster::cache::vpa_index::TargetState;

#[derive(Debug)]
pub struct DesiredStatus {
    pub recommendation: Recommendation,
    pub conditions: Vec<Condition>,
    pub pod_limits: PodLimits,
}

impl DesiredStatus {
    /// The status that a VPA should have. `None` while its history is not loaded or its target is not resolved: the data of
    /// another target must not be reported for it.
    pub fn new(state: &RecommenderState, key: &ObjectKey, now: Time) -> Option<Self> {
        let vpa = state.index.vpa(key)?;
        let registered = state.vpa_registry.get(key)?;
        let mut recommendation = state.vpa_registry.recommend(key, now)?;
        let unsupported = match &vpa.target {
            TargetState::Found => None,
            TargetState::Unknown => return None,
            TargetState::Unsupported(message) | TargetState::Unavailable(message) => {
                Some(&**message)
            }
        };
        let is_upstream = state.vpa_registry.is_upstream();
        let ignored = if is_upstream { &[] } else { &*registered.settings.invalid_annotations };
        let limits = pod_cap::cap_to_pod(&mut recommendation, &state.pod_capacity(key));
        let reasons: Vec<&str> =
            pod_cap::restricted_by(&recommendation).map(|reason| reason.into_str()).collect();
        let message = (!reasons.is_empty()).then(|| (reasons.join(","), describe_limits(limits)));
        let input = ConditionInput {
            pods: vpa.pods.len(),
            recommended: !recommendation.containers.is_empty(),
            unsupported,
            ignored,
            pod_cap: message.as_ref().map(|(reasons, message)| (&**reasons, &**message)),
            fetching: (!is_upstream).then(|| {
                state.slow_history.is_enabled() && registered.state == HistoryState::Missing
            }),
            planned_by: recommendation.planned_by(),
            not_found: registered.is_without_history(now),
        };
        let conditions = conditions::merge(&vpa.published_status.conditions, now, &input);
        Some(Self { recommendation, conditions, pod_limits: limits })
    }
}

/// The conditions of a VPA that has been waiting for its history for long.
pub(super) fn history_pending_conditions(
    state: &RecommenderState,
    key: &ObjectKey,
    now: Time,
) -> Option<Vec<Condition>> {
    if !state.is_waiting_for_history(key) || !state.slow_history.is_overdue(key, now) {
        return None;
    }
    Some(conditions::mark_fetching_history(&state.index.vpa(key)?.published_status.conditions, now))
}

/// Describes the limits of a pod, and where they come from.
fn describe_limits(limits: PodLimits) -> String {
    let text = |limit: Option<ResourceLimit>| {
        limit
            .map_or("any".to_owned(), |limit| format!("{} ({})", limit.amount, limit.by.into_str()))
    };
    let (cpu, memory) = (text(limits.cpu), text(limits.memory));
    format!("The limits of a pod are CPU: {cpu}, memory: {memory}")
}
