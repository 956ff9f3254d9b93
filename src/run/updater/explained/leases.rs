//! What stands in Leases, by a single look: signs of life, and what was changed of late. What somebody may not read is
//! taken to be well, and said so: the updater itself may read it.

use k8s_openapi::api::coordination::v1::Lease;
use kube::{Api, ResourceExt as _, api::ListParams};

use super::{super::standing::Standing, Role, Workload};
use crate::{clock::Clock, explain::pod::report::Seen};
use plimsoll_core::{
    types::compat::Compat,
    updater::{
        Ledger,
        guard::{Heartbeat, HeartbeatRule, ledger},
    },
};

/// What came of reading something that not everybody may read.
#[derive(Debug)]
pub(super) enum Read<T> {
    /// It was read.
    Done(T),
    /// Whoever asks may not.
    Forbidden,
    /// It failed.
    Failed(String),
}

impl<T> Read<T> {
    /// Of an answer.
    pub fn of(answer: kube::Result<T>) -> Self {
        match answer {
            Ok(found) => Self::Done(found),
            Err(kube::Error::Api(status)) if status.code == 403 => Self::Forbidden,
            Err(why) => Self::Failed(why.to_string()),
        }
    }

    /// With something else in place of what was read.
    pub fn map<U>(self, change: impl FnOnce(T) -> U) -> Read<U> {
        match self {
            Self::Done(found) => Read::Done(change(found)),
            Self::Forbidden => Read::Forbidden,
            Self::Failed(why) => Read::Failed(why),
        }
    }
}

/// What the Leases say.
#[derive(Debug)]
pub(super) struct Leases {
    /// Whether heartbeats were read; what they say is in the role.
    heartbeats: Read<()>,
    standing: Standing,
    is_asked: bool,
    /// What was changed in the cluster of late.
    pub ledger: Ledger,
    /// What is to be said about all that.
    pub notes: Vec<String>,
}

impl Role {
    /// Reads them.
    pub(super) async fn read_leases(&self) -> Leases {
        let mut notes = Vec::new();
        let (heartbeats, standing, ledger) = tokio::join!(
            self.look_at_heartbeats(),
            self.admission_standing(),
            self.stored_ledger(&mut notes),
        );
        Leases { heartbeats, standing, is_asked: self.config.admission.is_some(), ledger, notes }
    }

    async fn look_at_heartbeats(&self) -> Read<()> {
        if self.config.settings.guards.heartbeat == HeartbeatRule::Ignore {
            return Read::Done(());
        }
        let leases = Api::<Lease>::namespaced(self.client.clone(), &self.config.heartbeats);
        let read = Read::of(leases.list(&ListParams::default()).await);
        match read {
            Read::Failed(_) => self.heartbeats.fail(),
            Read::Done(_) | Read::Forbidden => {}
        }
        read.map(|list| self.heartbeats.see_once(list.items, Clock::wall().now()))
    }

    async fn stored_ledger(&self, notes: &mut Vec<String>) -> Ledger {
        let settings = &self.config.settings;
        if settings.compat == Compat::Upstream || !settings.guards.remembers() {
            return Ledger::default();
        }
        let place = &self.config.election;
        let leases = Api::<Lease>::namespaced(self.client.clone(), &place.namespace);
        let (namespace, name) = (&place.namespace, &place.name);
        let lease = match Read::of(leases.get_opt(name).await) {
            Read::Done(lease) => lease,
            Read::Forbidden => {
                notes.push(format!(
                    "You may not read Lease {namespace}/{name}: what was changed within the hour does not count here."
                ));
                None
            }
            Read::Failed(why) => {
                notes.push(format!(
                    "Lease {namespace}/{name} could not be read, without which nothing is changed: {why}."
                ));
                None
            }
        };
        let text = lease.as_ref().and_then(|lease| lease.annotations().get(ledger::KEY));
        match text.map(|text| Ledger::read(text)) {
            Some(Ok(ledger)) => ledger,
            Some(Err(why)) => {
                notes.push(format!(
                    "What was changed of late, as Lease {namespace}/{name} tells it, does not count: {why}."
                ));
                Ledger::default()
            }
            None => Ledger::default(),
        }
    }
}

impl Leases {
    /// What is to be thought of the recommender of a workload.
    pub fn heartbeat(
        &self,
        role: &Role,
        workload: &Workload,
        notes: &mut Vec<String>,
    ) -> Heartbeat {
        let heartbeat = role.heartbeats.of(&workload.vpa, &workload.key.namespace);
        if role.config.settings.guards.heartbeat == HeartbeatRule::Ignore {
            return heartbeat;
        }
        match &self.heartbeats {
            Read::Done(()) => heartbeat,
            Read::Failed(why) => {
                notes.push(format!("The signs of life of recommenders could not be read: {why}."));
                heartbeat
            }
            Read::Forbidden => {
                notes.push(format!(
                    "You may not list Leases in {}: the recommender is taken to be alive.",
                    role.config.heartbeats
                ));
                Heartbeat::Fresh { history_loaded: true }
            }
        }
    }

    /// The same in words.
    pub fn recommender(&self, role: &Role, workload: &Workload, of: Heartbeat) -> Seen {
        let state = match (role.config.settings.guards.heartbeat, &self.heartbeats) {
            (HeartbeatRule::Ignore, _) => "notAsked",
            (_, Read::Forbidden) => "unreadable",
            _ => match of {
                Heartbeat::Fresh { history_loaded: true } => "fresh",
                Heartbeat::Fresh { history_loaded: false } => "loading",
                Heartbeat::Stale => "stale",
                Heartbeat::Absent => "absent",
                Heartbeat::Unknown | Heartbeat::Awaited => "unknown",
            },
        };
        let renewed = role.heartbeats.renewed(&workload.vpa, &workload.key.namespace);
        Seen { state: state.to_owned(), renewed }
    }

    /// Whether new pods will be sized.
    pub fn is_admission_ready(&self, notes: &mut Vec<String>) -> bool {
        if self.standing == Standing::Forbidden {
            notes.push(
                "You may not read the Lease of the admission controller, which is taken to be there."
                    .to_owned(),
            );
        }
        matches!(self.standing, Standing::Ready | Standing::Forbidden)
    }

    /// The same in words.
    pub fn admission_controller(&self) -> Seen {
        let state = match self.standing {
            _ if !self.is_asked => "notAsked",
            Standing::Ready => "ready",
            Standing::Stale => "stale",
            Standing::Unreadable => "unknown",
            Standing::Forbidden => "unreadable",
        };
        Seen { state: state.to_owned(), renewed: None }
    }
}
