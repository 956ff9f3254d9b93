//! Reads the Leases once: heartbeats and the disruption ledger. What the user has no permission to read is assumed to be
//! healthy, with a note, because the updater itself has that permission.

use k8s_openapi::api::coordination::v1::Lease;
use kube::{Api, ResourceExt as _, api::ListParams};

use super::{super::admission_health::AdmissionHealth, Updater, Workload};
use crate::{cluster::clock::Clock, report::explain::pod::report::LeaseState};
use plimsoll_core::{
    types::compat::Compat,
    updater::{
        DisruptionBudget,
        guard::{HeartbeatPolicy, RecommenderHeartbeat, disruption_budget},
    },
};

/// The result of reading something that users may have no permission to read.
#[derive(Debug)]
pub(super) enum ReadResult<T> {
    /// It was read.
    Found(T),
    /// The user has no permission to read it.
    Forbidden,
    /// The request failed.
    Failed(String),
}

impl<T> ReadResult<T> {
    /// Converts the response of the API server.
    pub fn from_response(response: kube::Result<T>) -> Self {
        match response {
            Ok(found) => Self::Found(found),
            Err(kube::Error::Api(status)) if status.code == 403 => Self::Forbidden,
            Err(why) => Self::Failed(why.to_string()),
        }
    }

    /// Maps the value that was read.
    pub fn map<U>(self, change: impl FnOnce(T) -> U) -> ReadResult<U> {
        match self {
            Self::Found(found) => ReadResult::Found(change(found)),
            Self::Forbidden => ReadResult::Forbidden,
            Self::Failed(why) => ReadResult::Failed(why),
        }
    }
}

/// The contents of the Leases.
#[derive(Debug)]
pub(super) struct Leases {
    /// Whether heartbeats were read; the updater stores them.
    heartbeats: ReadResult<()>,
    admission_health: AdmissionHealth,
    checks_admission: bool,
    /// The recent disruptions in the cluster.
    pub ledger: DisruptionBudget,
    /// Notes for the user about what could not be read.
    pub notes: Vec<String>,
}

impl Updater {
    /// Reads the Leases.
    pub(super) async fn read_leases(&self) -> Leases {
        let mut notes = Vec::new();
        let (heartbeats, admission_health, ledger) = tokio::join!(
            self.read_heartbeats(),
            self.admission_health(),
            self.stored_ledger(&mut notes),
        );
        Leases {
            heartbeats,
            admission_health,
            checks_admission: self.config.admission_check.is_some(),
            ledger,
            notes,
        }
    }

    async fn read_heartbeats(&self) -> ReadResult<()> {
        if self.config.settings.guards.heartbeat == HeartbeatPolicy::Ignore {
            return ReadResult::Found(());
        }
        let leases =
            Api::<Lease>::namespaced(self.client.clone(), &self.config.heartbeat_namespace);
        let result = ReadResult::from_response(leases.list(&ListParams::default()).await);
        match result {
            ReadResult::Failed(_) => self.heartbeats.record_failure(),
            ReadResult::Found(_) | ReadResult::Forbidden => {}
        }
        result.map(|list| self.heartbeats.observe_once(list.items, Clock::wall().now()))
    }

    async fn stored_ledger(&self, notes: &mut Vec<String>) -> DisruptionBudget {
        let settings = &self.config.settings;
        if settings.compat == Compat::Upstream || !settings.guards.needs_state() {
            return DisruptionBudget::default();
        }
        let election = &self.config.election;
        let leases = Api::<Lease>::namespaced(self.client.clone(), &election.namespace);
        let (namespace, name) = (&election.namespace, &election.name);
        let lease = match ReadResult::from_response(leases.get_opt(name).await) {
            ReadResult::Found(lease) => lease,
            ReadResult::Forbidden => {
                notes.push(format!(
                    "No permission to read Lease {namespace}/{name}: changes within the last hour are not considered."
                ));
                None
            }
            ReadResult::Failed(why) => {
                notes.push(format!(
                    "Failed to read Lease {namespace}/{name}, without which the updater changes nothing: {why}."
                ));
                None
            }
        };
        let text =
            lease.as_ref().and_then(|lease| lease.annotations().get(disruption_budget::ANNOTATION));
        match text.map(|text| DisruptionBudget::read(text)) {
            Some(Ok(ledger)) => ledger,
            Some(Err(why)) => {
                notes.push(format!(
                    "The disruption ledger in Lease {namespace}/{name} is unreadable and was ignored: {why}."
                ));
                DisruptionBudget::default()
            }
            None => DisruptionBudget::default(),
        }
    }
}

impl Leases {
    /// The heartbeat of the recommender of a workload.
    pub fn heartbeat(
        &self,
        role: &Updater,
        workload: &Workload,
        notes: &mut Vec<String>,
    ) -> RecommenderHeartbeat {
        let heartbeat = role.heartbeats.for_vpa(&workload.vpa, &workload.key.namespace);
        if role.config.settings.guards.heartbeat == HeartbeatPolicy::Ignore {
            return heartbeat;
        }
        match &self.heartbeats {
            ReadResult::Found(()) => heartbeat,
            ReadResult::Failed(why) => {
                notes.push(format!("Failed to list the heartbeat Leases of recommenders: {why}."));
                heartbeat
            }
            ReadResult::Forbidden => {
                notes.push(format!(
                    "No permission to list Leases in namespace {}: assuming that the recommender is healthy.",
                    role.config.heartbeat_namespace
                ));
                RecommenderHeartbeat::Fresh { history_loaded: true }
            }
        }
    }

    /// The heartbeat as it appears in the report.
    pub fn recommender_health(
        &self,
        role: &Updater,
        workload: &Workload,
        heartbeat: RecommenderHeartbeat,
    ) -> LeaseState {
        let state = match (role.config.settings.guards.heartbeat, &self.heartbeats) {
            (HeartbeatPolicy::Ignore, _) => "notAsked",
            (_, ReadResult::Forbidden) => "unreadable",
            _ => match heartbeat {
                RecommenderHeartbeat::Fresh { history_loaded: true } => "fresh",
                RecommenderHeartbeat::Fresh { history_loaded: false } => "loading",
                RecommenderHeartbeat::Stale => "stale",
                RecommenderHeartbeat::Absent => "absent",
                RecommenderHeartbeat::Unknown | RecommenderHeartbeat::NotYetObserved => "unknown",
            },
        };
        let renewed = role.heartbeats.renewed(&workload.vpa, &workload.key.namespace);
        LeaseState { state: state.to_owned(), renewed }
    }

    /// Whether new pods will be sized.
    pub fn is_admission_ready(&self, notes: &mut Vec<String>) -> bool {
        if self.admission_health == AdmissionHealth::Forbidden {
            notes.push(
                "No permission to read the Lease of the admission controller: assuming that it is healthy."
                    .to_owned(),
            );
        }
        matches!(self.admission_health, AdmissionHealth::Ready | AdmissionHealth::Forbidden)
    }

    /// The health of the admission controller as it appears in the report.
    pub fn admission_controller_health(&self) -> LeaseState {
        let state = match self.admission_health {
            _ if !self.checks_admission => "notAsked",
            AdmissionHealth::Ready => "ready",
            AdmissionHealth::Stale => "stale",
            AdmissionHealth::Unreadable => "unknown",
            AdmissionHealth::Forbidden => "unreadable",
        };
        LeaseState { state: state.to_owned(), renewed: None }
    }
}
