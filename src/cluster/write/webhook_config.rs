//! The webhook's registration: a MutatingWebhookConfiguration as upstream's, made when it is not there, and changed
//! where it differs. It is never deleted, so there is no moment without it.

mod diff;

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use k8s_openapi::api::admissionregistration::v1::MutatingWebhookConfiguration;
use kube::{
    Client,
    api::{Api, Patch, PatchParams, PostParams},
};
use plimsoll_storage::{NotLeader, WritePermit};
use serde_json::{Value, json};

use self::diff::{current_ca_bundle, desired_webhook, patch_operations};
use crate::cluster::{
    server::certificate::CaBundle,
    write::{
        AccessRule, WriteStats,
        access_review::ensure_can_create,
        request::{self, RequestError},
        stats::WriteKind,
    },
};

/// What the object is called.
pub const NAME: &str = "vpa-webhook-config";
/// What the one webhook in it is called.
pub const WEBHOOK_NAME: &str = "vpa.k8s.io";
const GROUP: &str = "admissionregistration.k8s.io";
const RESOURCE: &str = "mutatingwebhookconfigurations";
const KIND: WriteKind = WriteKind::WebhookConfig;
const REQUEST_LIMIT: Duration = Duration::from_secs(10);
/// So often others may write the object between our look and our write before it is left for later.
const TRIES: usize = 5;

/// Why there is no registration, or not the one that was wanted.
#[derive(Debug, thiserror::Error)]
pub enum WebhookConfigError {
    /// This process may not write now.
    #[error(transparent)]
    NotLeader(#[from] NotLeader),
    /// The server refused, or gave no answer.
    #[error("the webhook configuration {NAME} was not written: {0}{hint}", hint = hint(.0))]
    Failed(#[from] RequestError),
    /// It cannot be written down.
    #[error("the webhook configuration {NAME} cannot be made: {0}")]
    Malformed(#[from] serde_json::Error),
    /// Others wrote it each time.
    #[error(
        "the webhook configuration {NAME} was not written: somebody else changed it {TRIES} times meanwhile"
    )]
    Conflict,
}

fn hint(failed: &RequestError) -> String {
    if failed.code() != Some(403) {
        return String::new();
    }
    let rules: Vec<String> = WebhookConfigWriter::rules().iter().map(ToString::to_string).collect();
    format!("; allow {}, or register it by hand and set --register-webhook=false", rules.join(", "))
}

/// How the API server reaches the webhook.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum WebhookClientConfig {
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
pub enum WebhookNamespaces {
    /// In all.
    All,
    /// In this one.
    Only(String),
    /// In all but these.
    Except(Vec<String>),
}

/// What is registered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DesiredWebhook {
    /// Labels of the object; others that it has stay.
    pub labels: BTreeMap<String, String>,
    /// How the API server reaches the webhook.
    pub client_config: WebhookClientConfig,
    /// Where it is called.
    pub namespaces: WebhookNamespaces,
    /// Whether nothing is created while the webhook is away.
    pub fail_closed: bool,
    /// How long the API server waits.
    pub timeout_seconds: i32,
    /// Whether it is called once more for a pod that another webhook has changed since.
    pub reinvoke_if_needed: bool,
    /// Whether it is also called for WatermarkPodAutoscalers.
    pub include_wpas: bool,
}

/// How much of a registration that is there is looked at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WebhookScope {
    /// All of it.
    Full,
    /// Only whom the API server trusts: replicas with other flags must not write over each other for ever.
    CaBundle,
}

/// What was done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WebhookChange {
    /// Nothing: it was so already.
    None,
    /// It was made.
    Created,
    /// It was changed.
    Patched,
}

/// The registration as it is now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EnsuredWebhook {
    /// Whom the API server trusts.
    pub ca_bundle: CaBundle,
    /// What was done for that.
    pub change: WebhookChange,
}

/// Writes the registration.
#[derive(Debug)]
pub struct WebhookConfigWriter {
    configurations: Api<MutatingWebhookConfiguration>,
    desired: DesiredWebhook,
    stats: Arc<WriteStats>,
}

impl WebhookConfigWriter {
    /// Of this, with this client.
    pub fn new(client: Client, wanted: DesiredWebhook) -> Self {
        Self { configurations: Api::all(client), desired: wanted, stats: Arc::default() }
    }

    /// Counts its writes into these.
    #[must_use]
    pub fn with_stats(mut self, stats: Arc<WriteStats>) -> Self {
        self.stats = stats;
        self
    }

    /// What RBAC must allow; making it cannot be restricted to a name.
    pub fn rules() -> [AccessRule; 3] {
        [
            AccessRule::new("get", GROUP, RESOURCE).for_name(NAME),
            AccessRule::new("patch", GROUP, RESOURCE).for_name(NAME),
            AccessRule::new("create", GROUP, RESOURCE),
        ]
    }

    /// Brings the registration to what is wanted. `trust` says whom the API server is to trust, by whom it trusts now.
    pub async fn ensure(
        &self,
        permit: &dyn WritePermit,
        extent: WebhookScope,
        trust: &(dyn Fn(&CaBundle) -> CaBundle + Send + Sync),
    ) -> Result<EnsuredWebhook, WebhookConfigError> {
        for _ in 0..TRIES {
            let read = request::read_with_timeout(REQUEST_LIMIT, self.configurations.get_opt(NAME))
                .await?;
            let Some(current) = read else {
                let trusts = trust(&CaBundle::default());
                if self.create(permit, &trusts).await? {
                    return Ok(EnsuredWebhook {
                        ca_bundle: trusts,
                        change: WebhookChange::Created,
                    });
                }
                continue;
            };
            let trusted = current_ca_bundle(&current);
            let trusts = trust(&trusted);
            let operations = patch_operations(&current, &self.desired, &trusted, &trusts, extent)?;
            if operations.is_empty() {
                return Ok(EnsuredWebhook { ca_bundle: trusted, change: WebhookChange::None });
            }
            if self.patch(permit, &current, operations).await? {
                return Ok(EnsuredWebhook { ca_bundle: trusts, change: WebhookChange::Patched });
            }
        }
        Err(WebhookConfigError::Conflict)
    }

    /// `false`: somebody else has made it meanwhile.
    async fn create(
        &self,
        permit: &dyn WritePermit,
        trusts: &CaBundle,
    ) -> Result<bool, WebhookConfigError> {
        let object: MutatingWebhookConfiguration = serde_json::from_value(json!({
            "metadata": {"name": NAME, "labels": self.desired.labels},
            "webhooks": [desired_webhook(&self.desired, trusts)],
        }))?;
        let [.., create] = Self::rules();
        ensure_can_create(&self.configurations, create).await.map_err(RequestError::from)?;
        permit.acquire().await?;
        let parameters = PostParams::default();
        let asked = self.configurations.create(&parameters, &object);
        is_written(request::write_counted(&self.stats, KIND, REQUEST_LIMIT, asked).await, &[409])
    }

    /// `false`: somebody else has changed it meanwhile.
    async fn patch(
        &self,
        permit: &dyn WritePermit,
        current: &MutatingWebhookConfiguration,
        mut operations: Vec<Value>,
    ) -> Result<bool, WebhookConfigError> {
        let version = current.metadata.resource_version.as_deref().unwrap_or_default();
        let test = json!({"op": "test", "path": "/metadata/resourceVersion", "value": version});
        operations.insert(0, test);
        let patch: Patch<()> = Patch::Json(serde_json::from_value(Value::Array(operations))?);
        permit.acquire().await?;
        let parameters = PatchParams::default();
        let asked = self.configurations.patch(NAME, &parameters, &patch);
        is_written(
            request::write_counted(&self.stats, KIND, REQUEST_LIMIT, asked).await,
            &[404, 409, 422],
        )
    }
}

/// Whether it was written; with one of these codes somebody else was faster.
fn is_written<T>(
    answer: Result<T, RequestError>,
    overtaken: &[u16],
) -> Result<bool, WebhookConfigError> {
    match answer {
        Ok(_) => Ok(true),
        Err(failed) if failed.code().is_some_and(|code| overtaken.contains(&code)) => {
            tracing::debug!(%failed, "somebody else wrote the webhook configuration");
            Ok(false)
        }
        Err(failed) => Err(failed.into()),
    }
}
