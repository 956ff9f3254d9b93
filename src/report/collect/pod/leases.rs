//! What the Leases of a snapshot say: heartbeats and the disruption ledger. What the user has no permission to read is
//! assumed to be healthy, with a note, because the updater itself has that permission.

use std::collections::BTreeSet;

use kube::ResourceExt as _;
use plimsoll_core::{
    types::{Time, compat::Compat},
    updater::{
        DisruptionBudget,
        guard::{HeartbeatPolicy, RecommenderHeartbeat, disruption_budget},
    },
};

use super::ExplainPodConfig;
use crate::{
    cluster::snapshot::{ClusterSnapshot, ReadError},
    controllers::updater::{
        admission_health::AdmissionHealth, heartbeats::Heartbeats, matching::Workload,
    },
    report::explain::pod::report::LeaseState,
};

pub(super) struct Leases {
    heartbeats: Heartbeats,
    heartbeat_error: Option<ReadError>,
    /// `None` if the admission controller is not checked.
    admission_health: Option<AdmissionHealth>,
    pub ledger: DisruptionBudget,
    /// Notes for the user about what could not be read.
    pub notes: Vec<String>,
}

impl Leases {
    pub fn namespaces(config: &ExplainPodConfig) -> BTreeSet<&str> {
        let heartbeats = reads_heartbeats(config).then_some(&*config.heartbeat_namespace);
        let ledger = reads_ledger(config).then_some(&*config.lease_namespace);
        let admission = config.admission_check.as_ref().map(|check| &*check.namespace);
        let horizontal = (config.settings.compat == Compat::Plimsoll)
            .then_some(&*config.horizontal_lease_namespace);
        [heartbeats, ledger, admission, horizontal].into_iter().flatten().collect()
    }

    /// Takes what decisions need from the Leases of a snapshot.
    pub fn of(config: &ExplainPodConfig, snapshot: &ClusterSnapshot, now: Time) -> Self {
        let (heartbeats, mut heartbeat_error) = (Heartbeats::default(), None);
        match snapshot.leases.get(&config.heartbeat_namespace) {
            _ if !reads_heartbeats(config) => {}
            Some(Ok(leases)) => heartbeats.observe_once(leases.objects.clone(), now),
            Some(Err(error)) => {
                heartbeats.record_failure();
                heartbeat_error = Some(error.clone());
            }
            None => {}
        }
        let admission_health = config.admission_check.as_ref().map(|check| {
            match snapshot.lease(&check.namespace, &check.name) {
                Ok(Some(lease)) if check.is_ready(lease, config.settings.compat, now) => {
                    AdmissionHealth::Ready
                }
                Ok(Some(_)) => AdmissionHealth::Stale,
                Err(error) if error.is_forbidden() => AdmissionHealth::Forbidden,
                Ok(None) | Err(_) => AdmissionHealth::Unreadable,
            }
        });
        let mut notes = Vec::new();
        let ledger = stored_ledger(config, snapshot, &mut notes);
        Self { heartbeats, heartbeat_error, admission_health, ledger, notes }
    }

    pub fn heartbeat(
        &self,
        config: &ExplainPodConfig,
        workload: &Workload,
        notes: &mut Vec<String>,
    ) -> RecommenderHeartbeat {
        match &self.heartbeat_error {
            Some(error) if error.is_forbidden() => {
                notes.push(format!(
                    "No permission to list Leases in namespace {}: assuming that the recommender is healthy.",
                    config.heartbeat_namespace
                ));
                return RecommenderHeartbeat::Fresh { history_loaded: true };
            }
            Some(error) => notes.push(format!(
                "Failed to list the heartbeat Leases of recommenders: {}.",
                error.why
            )),
            None => {}
        }
        self.heartbeats.for_vpa(&workload.vpa, &workload.key.namespace)
    }

    pub fn recommender_health(
        &self,
        config: &ExplainPodConfig,
        workload: &Workload,
        heartbeat: RecommenderHeartbeat,
    ) -> LeaseState {
        let state = match heartbeat {
            _ if !reads_heartbeats(config) => "notAsked",
            _ if self.heartbeat_error.as_ref().is_some_and(ReadError::is_forbidden) => "unreadable",
            RecommenderHeartbeat::Fresh { history_loaded: true } => "fresh",
            RecommenderHeartbeat::Fresh { history_loaded: false } => "loading",
            RecommenderHeartbeat::Stale => "stale",
            RecommenderHeartbeat::Absent => "absent",
            RecommenderHeartbeat::Unknown | RecommenderHeartbeat::NotYetObserved => "unknown",
        };
        let renewed = self.heartbeats.renewed(&workload.vpa, &workload.key.namespace);
        LeaseState { state: state.to_owned(), renewed }
    }

    pub fn is_admission_ready(&self, notes: &mut Vec<String>) -> bool {
        match self.admission_health {
            None | Some(AdmissionHealth::Ready) => true,
            Some(AdmissionHealth::Forbidden) => {
                notes.push(
                    "No permission to read the Lease of the admission controller: assuming that it is healthy."
                        .to_owned(),
                );
                true
            }
            Some(AdmissionHealth::Stale | AdmissionHealth::Unreadable) => false,
        }
    }

    pub fn admission_controller_health(&self) -> LeaseState {
        let state = match self.admission_health {
            None => "notAsked",
            Some(AdmissionHealth::Ready) => "ready",
            Some(AdmissionHealth::Stale) => "stale",
            Some(AdmissionHealth::Unreadable) => "unknown",
            Some(AdmissionHealth::Forbidden) => "unreadable",
        };
        LeaseState { state: state.to_owned(), renewed: None }
    }
}

fn reads_heartbeats(config: &ExplainPodConfig) -> bool {
    config.settings.guards.heartbeat != HeartbeatPolicy::Ignore
}

fn reads_ledger(config: &ExplainPodConfig) -> bool {
    config.settings.compat == Compat::Plimsoll && config.settings.guards.needs_state()
}

fn stored_ledger(
    config: &ExplainPodConfig,
    snapshot: &ClusterSnapshot,
    notes: &mut Vec<String>,
) -> DisruptionBudget {
    if !reads_ledger(config) {
        return DisruptionBudget::default();
    }
    let lease = format!("Lease {}/{}", config.lease_namespace, config.lease_name);
    let found = snapshot.lease(&config.lease_namespace, &config.lease_name);
    let found = found.unwrap_or_else(|error| {
        notes.push(if error.is_forbidden() {
            format!(
                "No permission to read {lease}: changes within the last hour are not considered."
            )
        } else {
            let why = error.why;
            format!("Failed to read {lease}, without which the updater changes nothing: {why}.")
        });
        None
    });
    let text = found.and_then(|lease| lease.annotations().get(disruption_budget::ANNOTATION));
    let ledger =
        text.map_or_else(|| Ok(DisruptionBudget::default()), |text| DisruptionBudget::read(text));
    ledger.unwrap_or_else(|why| {
        notes.push(format!(
            "The disruption ledger in {lease} is unreadable and was ignored: {why}."
        ));
        DisruptionBudget::default()
    })
}
