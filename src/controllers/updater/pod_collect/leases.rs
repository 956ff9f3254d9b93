//! What stands in Leases, by a single look: signs of life, and what was changed of late. What somebody may not read is
//! taken to be well, and said so: the updater itself may read it.

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

/// What came of reading something that not everybody may read.
#[derive(Debug)]
pub(super) enum ReadResult<T> {
    /// It was read.
    Found(T),
    /// Whoever asks may not.
    Forbidden,
    /// It failed.
    Failed(String),
}

impl<T> ReadResult<T> {
    /// Of an answer.
    pub fn from_response(answer: kube::Result<T>) -> Self {
        match answer {
            Ok(found) => Self::Found(found),
            Err(kube::Error::Api(status)) if status.code == 403 => Self::Forbidden,
            Err(why) => Self::Failed(why.to_string()),
        }
    }

    /// With something else in place of what was read.
    pub fn map<U>(self, change: impl FnOnce(T) -> U) -> ReadResult<U> {
        match self {
            Self::Found(found) => ReadResult::Found(change(found)),
            Self::Forbidden => ReadResult::Forbidden,
            Self::Failed(why) => ReadResult::Failed(why),
        }
    }
}

/// What the Leases say.
#[derive(Debug)]
pub(super) struct Leases {
    /// Whether heartbeats were read; what they say is in the role.
    heartbeats: ReadResult<()>,
    admission_health: AdmissionHealth,
    checks_admission: bool,
    /// What was changed in the cluster of late.
    pub ledger: DisruptionBudget,
    /// What is to be said about all that.
    pub notes: Vec<String>,
}

impl Updater {
    /// Reads them.
    pub(super) async fn read_leases(&self) -> Leases {
        let mut notes = Vec::new();
        let (heartbeats, standing, ledger) = tokio::join!(
            self.read_heartbeats(),
            self.admission_health(),
            self.stored_ledger(&mut notes),
        );
        Leases {
            heartbeats,
            admission_health: standing,
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
        let read = ReadResult::from_response(leases.list(&ListParams::default()).await);
        match read {
            ReadResult::Failed(_) => self.heartbeats.record_failure(),
            ReadResult::Found(_) | ReadResult::Forbidden => {}
        }
        read.map(|list| self.heartbeats.observe_once(list.items, Clock::wall().now()))
    }

    async fn stored_ledger(&self, notes: &mut Vec<String>) -> DisruptionBudget {
        let settings = &self.config.settings;
        if settings.compat == Compat::Upstream || !settings.guards.needs_state() {
            return DisruptionBudget::default();
        }
        let place = &self.config.election;
        let leases = Api::<Lease>::namespaced(self.client.clone(), &place.namespace);
        let (namespace, name) = (&place.namespace, &place.name);
        let lease = match ReadResult::from_response(leases.get_opt(name).await) {
            ReadResult::Found(lease) => lease,
            ReadResult::Forbidden => {
                notes.push(format!(
                    "You may not read Lease {namespace}/{name}: what was changed within the hour does not count here."
                ));
                None
            }
            ReadResult::Failed(why) => {
                notes.push(format!(
                    "Lease {namespace}/{name} could not be read, without which nothing is changed: {why}."
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
                    "What was changed of late, as Lease {namespace}/{name} tells it, does not count: {why}."
                ));
                DisruptionBudget::default()
            }
            None => DisruptionBudget::default(),
        }
    }
}

impl Leases {
    /// What is to be thought of the recommender of a workload.
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
                notes.push(format!("The signs of life of recommenders could not be read: {why}."));
                heartbeat
            }
            ReadResult::Forbidden => {
                notes.push(format!(
                    "You may not list Leases in {}: the recommender is taken to be alive.",
                    role.config.heartbeat_namespace
                ));
                RecommenderHeartbeat::Fresh { history_loaded: true }
            }
        }
    }

    /// The same in words.
    pub fn recommender_health(
        &self,
        role: &Updater,
        workload: &Workload,
        of: RecommenderHeartbeat,
    ) -> LeaseState {
        let state = match (role.config.settings.guards.heartbeat, &self.heartbeats) {
            (HeartbeatPolicy::Ignore, _) => "notAsked",
            (_, ReadResult::Forbidden) => "unreadable",
            _ => match of {
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
                "You may not read the Lease of the admission controller, which is taken to be there."
                    .to_owned(),
            );
        }
        matches!(self.admission_health, AdmissionHealth::Ready | AdmissionHealth::Forbidden)
    }

    /// The same in words.
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
