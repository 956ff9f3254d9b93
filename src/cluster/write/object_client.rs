//! Requests for one object that this process creates if it is missing: a Lease, the webhook's configuration, its Secret.

use std::{
    fmt::{self, Debug},
    future::Future,
    sync::Arc,
    time::Duration,
};

use kube::{
    Client,
    api::{Api, DeleteParams, ObjectMeta, Patch, PatchParams, PostParams, Preconditions},
};
use serde::{Serialize, de::DeserializeOwned};

use super::{
    access_review::{AccessRule, ensure_can_create},
    request::{read_with_timeout, write_counted},
    stats::{WriteKind, WriteStats},
    write_context::{ErrorResponse, WriteError},
};

/// One object. Each request has a time limit, and writes are counted.
#[derive(Clone, Debug)]
pub(crate) struct ObjectClient<K> {
    api: Api<K>,
    pub name: String,
    kind: WriteKind,
    timeout: Duration,
    stats: Arc<WriteStats>,
}

impl<K> ObjectClient<K>
where
    K: kube::Resource + k8s_openapi::Resource + Clone + Debug + Serialize + DeserializeOwned,
{
    /// For the object of that name. Its writes are counted as of this kind.
    pub fn new(
        api: Api<K>,
        name: &str,
        kind: WriteKind,
        timeout: Duration,
        stats: Arc<WriteStats>,
    ) -> Self {
        Self { api, name: name.to_owned(), kind, timeout, stats }
    }

    pub fn client(&self) -> Client {
        self.api.clone().into_client()
    }

    pub fn metadata(&self) -> ObjectMeta {
        ObjectMeta {
            name: Some(self.name.clone()),
            namespace: self.api.namespace().map(str::to_owned),
            ..ObjectMeta::default()
        }
    }

    /// The rule that allows this verb on this object.
    pub fn rule(&self, verb: &'static str) -> AccessRule {
        let mut rule = AccessRule::new(verb, K::GROUP, K::URL_PATH_SEGMENT);
        rule.namespace = self.api.namespace().map(str::to_owned);
        // RBAC cannot restrict `create` by name.
        if verb == "create" { rule } else { rule.for_name(&self.name) }
    }

    /// What to do about an error of a request: if RBAC forbids it, allow it, or `alternative`.
    pub fn access_hint(&self, error: &WriteError, alternative: &str) -> String {
        if error.code() != Some(403) {
            return String::new();
        }
        let rules = ["get", "patch", "create"].map(|verb| self.rule(verb).to_string());
        format!("; allow {}, or {alternative}", rules.join(", "))
    }

    pub async fn get(&self) -> Result<Option<K>, WriteError> {
        read_with_timeout(self.timeout, self.api.get_opt(&self.name)).await
    }

    /// Fails if this process is known not to be allowed to create the object.
    pub async fn ensure_can_create(&self) -> Result<(), WriteError> {
        Ok(Box::pin(ensure_can_create(&self.api, self.rule("create"))).await?)
    }

    /// Creates the object. A conflict if it exists by now. Call [`Self::ensure_can_create`] first.
    pub async fn create(&self, object: &K) -> Result<K, WriteError> {
        let parameters = PostParams::default();
        match (self.write(self.api.create(&parameters, object)).await, self.api.namespace()) {
            // Another error than that of a missing object, which would be created.
            (Err(WriteError::NotFound), Some(namespace)) => {
                let message = format!("namespaces {namespace:?} not found");
                Err(WriteError::Rejected(ErrorResponse {
                    code: 404,
                    message,
                    ..Default::default()
                }))
            }
            (created, _) => created,
        }
    }

    /// Replaces the version of the object that was read. Not found, or a conflict, if it was deleted or changed since.
    pub async fn replace(&self, object: &K) -> Result<K, WriteError> {
        let parameters = PostParams::default();
        self.write(self.api.replace(&self.name, &parameters, object)).await
    }

    pub async fn patch<P: Serialize + Debug>(&self, patch: &Patch<P>) -> Result<K, WriteError> {
        let parameters = PatchParams::default();
        self.write(self.api.patch(&self.name, &parameters, patch)).await
    }

    /// Deletes the object with this UID. A conflict if there is another one by now.
    pub async fn delete(&self, uid: &str) -> Result<(), WriteError> {
        let preconditions = Preconditions { uid: Some(uid.to_owned()), resource_version: None };
        let parameters =
            DeleteParams { preconditions: Some(preconditions), ..DeleteParams::default() };
        let request = async { self.api.delete(&self.name, &parameters).await.map(drop) };
        write_counted(&self.stats, self.kind, self.timeout, request).await
    }

    async fn write(&self, request: impl Future<Output = kube::Result<K>>) -> Result<K, WriteError> {
        write_counted(&self.stats, self.kind, self.timeout, request).await
    }
}

impl<K: kube::Resource> fmt::Display for ObjectClient<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.api.namespace() {
            Some(namespace) => write!(f, "{namespace}/{}", self.name),
            None => f.write_str(&self.name),
        }
    }
}
