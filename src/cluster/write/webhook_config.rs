//! The MutatingWebhookConfiguration of the webhook, the same as upstream's. It is created if it does not exist, patched if
//! it differs, and never deleted.

mod diff;

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use k8s_openapi::api::admissionregistration::v1::MutatingWebhookConfiguration;
use kube::{
    Client,
    api::{Api, Patch},
};
use plimsoll_storage::WritePermit;
use serde_json::{Value, json};

use self::diff::{current_ca_bundle, desired_webhook, patch_operations};
use crate::cluster::{
    server::certificate::CaBundle,
    write::{WriteError, WriteStats, object_client::ObjectClient, stats::WriteKind},
};

pub const NAME: &str = "vpa-webhook-config";
pub const WEBHOOK_NAME: &str = "vpa.k8s.io";
const REQUEST_LIMIT: Duration = Duration::from_secs(10);
/// Number of attempts when other clients write the object at the same time.
const TRIES: usize = 5;

/// How the API server reaches the webhook.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum WebhookClientConfig {
    /// Through a Service, at port 443.
    Service {
        namespace: String,
        name: String,
    },
    Url(String),
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum WebhookNamespaces {
    All,
    Only(String),
    Except(Vec<String>),
}

#[expect(clippy::struct_excessive_bools, reason = "each is a separate setting of the object")]
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DesiredWebhook {
    /// Labels of the object; its other labels are kept.
    pub labels: BTreeMap<String, String>,
    /// How the API server reaches the webhook.
    pub client_config: WebhookClientConfig,
    pub namespaces: WebhookNamespaces,
    /// Whether the failure policy is `Fail`.
    pub fail_closed: bool,
    pub timeout_seconds: i32,
    /// Whether it is called again for a pod that a later webhook has changed.
    pub reinvoke_if_needed: bool,
    /// Whether it is also called for WatermarkPodAutoscalers.
    pub include_wpas: bool,
    /// Whether it is also called for HorizontalPodAutoscalers. It only warns about them, so never if it fails closed.
    pub include_hpas: bool,
}

/// Which fields of an existing configuration are reconciled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WebhookScope {
    Full,
    /// Only the CA bundle: replicas with different flags must not overwrite each other for ever.
    CaBundle,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WebhookChange {
    None,
    Created,
    Patched,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EnsuredWebhook {
    pub ca_bundle: CaBundle,
    pub change: WebhookChange,
}

#[derive(Debug)]
pub struct WebhookConfigWriter {
    configuration: ObjectClient<MutatingWebhookConfiguration>,
    desired: DesiredWebhook,
}

impl WebhookConfigWriter {
    pub fn new(client: Client, desired: DesiredWebhook, stats: Arc<WriteStats>) -> Self {
        let kind = WriteKind::WebhookConfig;
        let configuration = ObjectClient::new(Api::all(client), NAME, kind, REQUEST_LIMIT, stats);
        Self { configuration, desired }
    }

    /// The error of [`Self::ensure`] in one line, with what to do about it.
    pub fn describe(&self, error: &WriteError) -> String {
        let alternative = "register the webhook manually and set --register-webhook=false";
        let hint = self.configuration.access_hint(error, alternative);
        format!("failed to write webhook configuration {NAME}: {error}{hint}")
    }

    /// Reconciles the configuration. `trust` returns the desired CA bundle for the current one.
    pub async fn ensure(
        &self,
        permit: &dyn WritePermit,
        scope: WebhookScope,
        trust: &(dyn Fn(&CaBundle) -> CaBundle + Send + Sync),
    ) -> Result<EnsuredWebhook, WriteError> {
        for _ in 0..TRIES {
            let Some(current) = self.configuration.get().await? else {
                let ca_bundle = trust(&CaBundle::default());
                if self.create(permit, &ca_bundle).await? {
                    return Ok(EnsuredWebhook { ca_bundle, change: WebhookChange::Created });
                }
                continue;
            };
            let current_bundle = current_ca_bundle(&current);
            let ca_bundle = trust(&current_bundle);
            let operations =
                patch_operations(&current, &self.desired, &current_bundle, &ca_bundle, scope)
                    .map_err(WriteError::malformed)?;
            if operations.is_empty() {
                return Ok(EnsuredWebhook {
                    ca_bundle: current_bundle,
                    change: WebhookChange::None,
                });
            }
            if self.patch(permit, &current, operations).await? {
                return Ok(EnsuredWebhook { ca_bundle, change: WebhookChange::Patched });
            }
        }
        Err(WriteError::Conflict("other clients changed it all the time".to_owned()))
    }

    /// `false` if another client created it first.
    async fn create(
        &self,
        permit: &dyn WritePermit,
        ca_bundle: &CaBundle,
    ) -> Result<bool, WriteError> {
        let object: MutatingWebhookConfiguration = serde_json::from_value(json!({
            "metadata": {"name": NAME, "labels": self.desired.labels},
            "webhooks": [desired_webhook(&self.desired, ca_bundle)],
        }))
        .map_err(WriteError::malformed)?;
        self.configuration.ensure_can_create().await?;
        permit.acquire().await?;
        is_written(self.configuration.create(&object).await, &[409])
    }

    /// `false` if another client changed it first.
    async fn patch(
        &self,
        permit: &dyn WritePermit,
        current: &MutatingWebhookConfiguration,
        mut operations: Vec<Value>,
    ) -> Result<bool, WriteError> {
        let version = current.metadata.resource_version.as_deref().unwrap_or_default();
        let test = json!({"op": "test", "path": "/metadata/resourceVersion", "value": version});
        operations.insert(0, test);
        let operations = serde_json::from_value(Value::Array(operations));
        let patch: Patch<()> = Patch::Json(operations.map_err(WriteError::malformed)?);
        permit.acquire().await?;
        is_written(self.configuration.patch(&patch).await, &[404, 409, 422])
    }
}

/// Whether the write was applied; with one of these codes another client was faster.
fn is_written<T>(
    result: Result<T, WriteError>,
    conflict_codes: &[u16],
) -> Result<bool, WriteError> {
    match result {
        Ok(_) => Ok(true),
        Err(error) if error.code().is_some_and(|code| conflict_codes.contains(&code)) => {
            tracing::debug!(%error, "webhook configuration was changed by another client");
            Ok(false)
        }
        Err(error) => Err(error),
    }
}
