//! The API calls of this backend, with timeouts and classified errors.

use std::{future::Future, time::Duration};

use http::{HeaderValue, header::CONTENT_TYPE};
use kube::{
    Api, Client, Resource,
    api::{
        ApiResource, DeleteParams, DynamicObject, ListParams, ObjectList, Patch, PatchParams,
        PostParams, Preconditions,
    },
    core::{PartialObjectMeta, Request},
};
use serde_json::Value;

use plimsoll_core::api::checkpoint::VerticalPodAutoscalerCheckpoint;

use super::api_error::ApiError;

const FIELD_MANAGER: &str = "plimsoll";
const CALL_TIMEOUT: Duration = Duration::from_secs(30);

pub struct CheckpointClient {
    client: Client,
    resource: ApiResource,
}

impl CheckpointClient {
    pub fn new(client: Client) -> Self {
        Self { client, resource: ApiResource::erase::<VerticalPodAutoscalerCheckpoint>(&()) }
    }

    fn api(&self, namespace: &str) -> Api<DynamicObject> {
        Api::namespaced_with(self.client.clone(), namespace, &self.resource)
    }

    /// Lists one page. Retries transient errors.
    pub async fn page(
        &self,
        namespace: Option<&str>,
        limit: u32,
        token: Option<&str>,
    ) -> Result<ObjectList<DynamicObject>, ApiError> {
        let api = match namespace {
            Some(namespace) => self.api(namespace),
            None => Api::all_with(self.client.clone(), &self.resource),
        };
        let mut parameters = ListParams::default().limit(limit);
        parameters.continue_token = token.map(str::to_owned);
        with_retries(|| async {
            match with_timeout(api.list(&parameters)).await? {
                Ok(page) => Ok(page),
                Err(kube::Error::Api(status)) if status.code == 410 => {
                    // The continue token has expired. The server returns a token to continue with an inconsistent list.
                    let token = status.metadata.as_ref().and_then(|list| list.continue_.clone());
                    let Some(token) = token else {
                        return Err(ApiError::Transient(status.message.clone(), None));
                    };
                    let resumed = ListParams::default().limit(limit).continue_token(&token);
                    call(api.list(&resumed)).await
                }
                Err(error) => Err(ApiError::from_kube(&error)),
            }
        })
        .await
    }

    /// Gets an object, if it exists. Does not retry.
    pub async fn get(
        &self,
        namespace: &str,
        name: &str,
    ) -> Result<Option<DynamicObject>, ApiError> {
        call(self.api(namespace).get_opt(name)).await
    }

    /// Creates an object and returns its resourceVersion. Does not retry.
    pub async fn create(
        &self,
        namespace: &str,
        object: &DynamicObject,
    ) -> Result<Box<str>, ApiError> {
        let parameters =
            PostParams { field_manager: Some(FIELD_MANAGER.into()), ..PostParams::default() };
        let created = call(self.api(namespace).create(&parameters, object)).await?;
        Ok(created.metadata.resource_version.unwrap_or_default().into())
    }

    /// Changes an object with these JSON patch operations and returns its resourceVersion. Does not retry.
    pub async fn patch(
        &self,
        namespace: &str,
        name: &str,
        operations: &[Value],
    ) -> Result<Box<str>, ApiError> {
        let parameters =
            PatchParams { field_manager: Some(FIELD_MANAGER.into()), ..PatchParams::default() };
        let path = VerticalPodAutoscalerCheckpoint::url_path(&(), Some(namespace));
        // The client supports JSON patches only with an additional crate, so build the request by hand.
        let request =
            Request::new(path).patch_metadata(name, &parameters, &Patch::Merge(operations));
        let mut request = request.map_err(|error| ApiError::Invalid(error.to_string()))?;
        request
            .headers_mut()
            .insert(CONTENT_TYPE, HeaderValue::from_static("application/json-patch+json"));
        request.extensions_mut().insert("patch");
        let patched =
            call(self.client.request::<PartialObjectMeta<DynamicObject>>(request)).await?;
        Ok(patched.metadata.resource_version.unwrap_or_default().into())
    }

    /// Deletes the object if it has this UID and resourceVersion. Does not retry.
    pub async fn delete(
        &self,
        namespace: &str,
        name: &str,
        uid: Option<String>,
        version: &str,
    ) -> Result<(), ApiError> {
        let parameters = DeleteParams {
            preconditions: Some(Preconditions { uid, resource_version: Some(version.to_owned()) }),
            ..DeleteParams::default()
        };
        call(self.api(namespace).delete(name, &parameters)).await.map(drop)
    }
}

async fn call<T>(call: impl Future<Output = kube::Result<T>>) -> Result<T, ApiError> {
    with_timeout(call).await?.map_err(|error| ApiError::from_kube(&error))
}

async fn with_timeout<T>(
    call: impl Future<Output = kube::Result<T>>,
) -> Result<kube::Result<T>, ApiError> {
    tokio::time::timeout(CALL_TIMEOUT, call).await.map_err(|_| {
        ApiError::Transient(format!("no response within {}s", CALL_TIMEOUT.as_secs()), None)
    })
}

/// Retries a read after transient errors.
pub async fn with_retries<T, F>(mut call: impl FnMut() -> F) -> Result<T, ApiError>
where
    F: Future<Output = Result<T, ApiError>>,
{
    let mut failures = 0;
    loop {
        match call().await {
            Err(failure) => match failure.retry_delay(failures) {
                Some(delay) => tokio::time::sleep(delay).await,
                None => return Err(failure),
            },
            other => return other,
        }
        failures += 1;
    }
}
