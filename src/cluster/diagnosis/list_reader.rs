//! Lists of the API server that are reduced page by page, a few requests at once.

use std::time::Duration;

use kube::{Client, api::ListParams};
use plimsoll_core::diagnosis::facts::Reading;
use serde::de::DeserializeOwned;
use tokio::sync::Semaphore;

use crate::cluster::{
    paged_requests::{ListedPart, PagedRequests, RequestError, resource_name, resource_path},
    watch::maybe_object::MaybeObject,
};

const MAX_CONCURRENT_REQUESTS: usize = 4;
const REQUEST_TIMEOUT: Duration = Duration::from_secs(15);

#[derive(Clone, Debug)]
pub(crate) struct ListedResource {
    /// Group and version, such as `apps/v1`.
    pub api_version: &'static str,
    pub plural: &'static str,
    pub is_namespaced: bool,
    pub part: ListedPart,
    pub selectors: ListParams,
}

/// Sends requests to the API server, a few at once.
pub(crate) struct ListReader<'a> {
    pub client: &'a Client,
    /// `None` for all namespaces.
    pub namespace: Option<&'a str>,
    requests: PagedRequests<'a>,
}

impl<'a> ListReader<'a> {
    pub fn new(client: &'a Client, namespace: Option<&'a str>) -> Self {
        let requests = PagedRequests {
            client,
            timeout: REQUEST_TIMEOUT,
            max_attempts: 1,
            permits: Semaphore::new(MAX_CONCURRENT_REQUESTS),
        };
        Self { client, namespace, requests }
    }

    /// Passes each object to `add`. A resource that is not served has no objects. Objects that cannot be decoded are an
    /// error, after all others were passed.
    pub async fn fold<K: DeserializeOwned>(
        &self,
        resource: &ListedResource,
        mut add: impl FnMut(K) + Send,
    ) -> Reading<()> {
        let ListedResource { api_version, plural, is_namespaced, part, selectors } = resource;
        let name = resource_name(api_version, plural);
        let mut invalid: Option<String> = None;
        let visit = |page: Vec<MaybeObject<K>>| {
            for MaybeObject(object) in page {
                match object {
                    Ok(object) => add(object),
                    Err(why) => {
                        invalid.get_or_insert_with(|| {
                            let namespace = why.metadata.namespace.as_deref().unwrap_or_default();
                            let object = why.metadata.name.as_deref().unwrap_or_default();
                            format!("{name} {namespace}/{object} is invalid: {}", why.reason)
                        });
                    }
                }
            }
        };
        let namespace = self.namespace.filter(|_| *is_namespaced);
        let listed = match resource_path(api_version, plural, namespace) {
            Ok(path) => self.requests.list(path, *part, selectors.clone(), visit).await,
            Err(error) => Err(error),
        };
        match listed {
            Ok(()) | Err(RequestError::NotFound) => invalid.map_or(Ok(()), Err),
            Err(RequestError::Failed(why) | RequestError::Forbidden(why)) => {
                Err(format!("failed to list {name}: {why}"))
            }
        }
    }

    /// Reduces each object; those that are reduced to `None` are left out.
    pub async fn collect<K: DeserializeOwned, T: Send>(
        &self,
        resource: &ListedResource,
        reduce: impl Fn(K) -> Option<T> + Send + Sync,
    ) -> Reading<Vec<T>> {
        let mut reduced = Vec::new();
        self.fold(resource, |object| reduced.extend(reduce(object))).await?;
        Ok(reduced)
    }

    /// Reads a document; `None` if it does not exist.
    pub async fn find<T: DeserializeOwned>(&self, path: &str) -> Reading<Option<T>> {
        match self.requests.read(path).await {
            Ok(found) => Ok(Some(found)),
            Err(RequestError::NotFound) => Ok(None),
            Err(RequestError::Failed(why) | RequestError::Forbidden(why)) => Err(why),
        }
    }

    /// Reads a document that should exist. Errors name it as `what`.
    pub async fn get<T: DeserializeOwned>(&self, path: &str, what: &str) -> Reading<T> {
        let found = self.find(path).await.map_err(|why| format!("failed to read {what}: {why}"))?;
        found.ok_or_else(|| format!("{what} does not exist"))
    }
}

impl ListedResource {
    pub fn new(api_version: &'static str, plural: &'static str) -> Self {
        Self {
            api_version,
            plural,
            is_namespaced: true,
            part: ListedPart::Object,
            selectors: ListParams::default(),
        }
    }

    pub fn of_cluster(api_version: &'static str, plural: &'static str) -> Self {
        Self { is_namespaced: false, ..Self::new(api_version, plural) }
    }
}
