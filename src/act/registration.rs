//! The webhook's registration: a MutatingWebhookConfiguration as upstream's, made when it is not there, and changed
//! where it differs. It is never deleted, so there is no moment without it.

mod difference;

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use k8s_openapi::api::admissionregistration::v1::MutatingWebhookConfiguration;
use kube::{
    Client,
    api::{Api, Patch, PatchParams, PostParams},
};
use plimsoll_storage::{Fenced, WritePermit};
use serde_json::{Value, json};

use self::difference::{operations, trusted, webhook};
use crate::{
    act::{
        Rule, WriteStats,
        access::may_make,
        request::{self, Failed},
        writes::WriteKind,
    },
    certificate::Bundle,
};

/// What the object is called.
pub const NAME: &str = "vpa-webhook-config";
/// What the one webhook in it is called.
pub const WEBHOOK: &str = "vpa.k8s.io";
const GROUP: &str = "admissionregistration.k8s.io";
const RESOURCE: &str = "mutatingwebhookconfigurations";
const KIND: WriteKind = WriteKind::Registration;
const REQUEST_LIMIT: Duration = Duration::from_secs(10);
/// So often others may write the object between our look and our write before it is left for later.
const TRIES: usize = 5;

/// Why there is no registration, or not the one that was wanted.
#[derive(Debug, thiserror::Error)]
pub enum RegistrationError {
    /// This process may not write now.
    #[error(transparent)]
    Fenced(#[from] Fenced),
    /// The server refused, or gave no answer.
    #[error("the webhook configuration {NAME} was not written: {0}{hint}", hint = hint(.0))]
    Failed(#[from] Failed),
    /// It cannot be written down.
    #[error("the webhook configuration {NAME} cannot be made: {0}")]
    Malformed(#[from] serde_json::Error),
    /// Others wrote it each time.
    #[error(
        "the webhook configuration {NAME} was not written: somebody else changed it {TRIES} times meanwhile"
    )]
    Contended,
}

fn hint(failed: &Failed) -> String {
    if failed.code() != Some(403) {
        return String::new();
    }
    let rules: Vec<String> = Registration::rules().iter().map(ToString::to_string).collect();
    format!("; allow {}, or register it by hand and set --register-webhook=false", rules.join(", "))
}

/// How the API server reaches the webhook.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Caller {
    /// Through a Service, at port 443.
    Service {
        /// Where it is.
        namespace: String,
        /// Its name.
        name: String,
    },
    /// By an address.
    Url(String),
}

/// In which namespaces the webhook is called.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Namespaces {
    /// In all.
    All,
    /// In this one.
    Only(String),
    /// In all but these.
    Except(Vec<String>),
}

/// What is registered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Wanted {
    /// Labels of the object; others that it has stay.
    pub labels: BTreeMap<String, String>,
    /// How the API server reaches the webhook.
    pub caller: Caller,
    /// Where it is called.
    pub namespaces: Namespaces,
    /// Whether nothing is created while the webhook is away.
    pub fail: bool,
    /// How long the API server waits.
    pub timeout_seconds: i32,
    /// Whether it is called once more for a pod that another webhook has changed since.
    pub again: bool,
    /// Whether it is also called for WatermarkPodAutoscalers.
    pub watermark: bool,
}

/// How much of a registration that is there is looked at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Extent {
    /// All of it.
    Whole,
    /// Only whom the API server trusts: replicas with other flags must not write over each other for ever.
    Trust,
}

/// What was done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Change {
    /// Nothing: it was so already.
    None,
    /// It was made.
    Created,
    /// It was changed.
    Patched,
}

/// The registration as it is now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Registered {
    /// Whom the API server trusts.
    pub trusts: Bundle,
    /// What was done for that.
    pub change: Change,
}

/// Writes the registration.
#[derive(Debug)]
pub struct Registration {
    configurations: Api<MutatingWebhookConfiguration>,
    wanted: Wanted,
    stats: Arc<WriteStats>,
}

impl Registration {
    /// Of this, with this client.
    pub fn new(client: Client, wanted: Wanted) -> Self {
        Self { configurations: Api::all(client), wanted, stats: Arc::default() }
    }

    /// Counts its writes into these.
    #[must_use]
    pub fn with_stats(mut self, stats: Arc<WriteStats>) -> Self {
        self.stats = stats;
        self
    }

    /// What RBAC must allow; making it cannot be restricted to a name.
    pub fn rules() -> [Rule; 3] {
        [
            Rule::new("get", GROUP, RESOURCE).named(NAME),
            Rule::new("patch", GROUP, RESOURCE).named(NAME),
            Rule::new("create", GROUP, RESOURCE),
        ]
    }

    /// Brings the registration to what is wanted. `trust` says whom the API server is to trust, by whom it trusts now.
    pub async fn ensure(
        &self,
        permit: &dyn WritePermit,
        extent: Extent,
        trust: &(dyn Fn(&Bundle) -> Bundle + Send + Sync),
    ) -> Result<Registered, RegistrationError> {
        for _ in 0..TRIES {
            let read = request::read(REQUEST_LIMIT, self.configurations.get_opt(NAME)).await?;
            let Some(current) = read else {
                let trusts = trust(&Bundle::default());
                if self.create(permit, &trusts).await? {
                    return Ok(Registered { trusts, change: Change::Created });
                }
                continue;
            };
            let trusted = trusted(&current);
            let trusts = trust(&trusted);
            let operations = operations(&current, &self.wanted, &trusted, &trusts, extent)?;
            if operations.is_empty() {
                return Ok(Registered { trusts: trusted, change: Change::None });
            }
            if self.patch(permit, &current, operations).await? {
                return Ok(Registered { trusts, change: Change::Patched });
            }
        }
        Err(RegistrationError::Contended)
    }

    /// `false`: somebody else has made it meanwhile.
    async fn create(
        &self,
        permit: &dyn WritePermit,
        trusts: &Bundle,
    ) -> Result<bool, RegistrationError> {
        let object: MutatingWebhookConfiguration = serde_json::from_value(json!({
            "metadata": {"name": NAME, "labels": self.wanted.labels},
            "webhooks": [webhook(&self.wanted, trusts)],
        }))?;
        let [.., create] = Self::rules();
        may_make(&self.configurations, create).await.map_err(Failed::from)?;
        permit.acquire().await?;
        let parameters = PostParams::default();
        let asked = self.configurations.create(&parameters, &object);
        settled(request::write(&self.stats, KIND, REQUEST_LIMIT, asked).await, &[409])
    }

    /// `false`: somebody else has changed it meanwhile.
    async fn patch(
        &self,
        permit: &dyn WritePermit,
        current: &MutatingWebhookConfiguration,
        mut operations: Vec<Value>,
    ) -> Result<bool, RegistrationError> {
        let version = current.metadata.resource_version.as_deref().unwrap_or_default();
        let test = json!({"op": "test", "path": "/metadata/resourceVersion", "value": version});
        operations.insert(0, test);
        let patch: Patch<()> = Patch::Json(serde_json::from_value(Value::Array(operations))?);
        permit.acquire().await?;
        let parameters = PatchParams::default();
        let asked = self.configurations.patch(NAME, &parameters, &patch);
        settled(request::write(&self.stats, KIND, REQUEST_LIMIT, asked).await, &[404, 409, 422])
    }
}

/// Whether it was written; with one of these codes somebody else was faster.
fn settled<T>(answer: Result<T, Failed>, overtaken: &[u16]) -> Result<bool, RegistrationError> {
    match answer {
        Ok(_) => Ok(true),
        Err(failed) if failed.code().is_some_and(|code| overtaken.contains(&code)) => {
            tracing::debug!(%failed, "somebody else wrote the webhook configuration");
            Ok(false)
        }
        Err(failed) => Err(failed.into()),
    }
}
