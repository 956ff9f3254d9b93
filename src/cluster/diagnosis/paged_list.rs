//! Lists of the API server that are reduced page by page, a few requests at once.

use std::time::Duration;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ListMeta;
use kube::{Client, api::ListParams, core::Request};
use plimsoll_core::diagnosis::facts::Reading;
use serde::{Deserialize, de::DeserializeOwned};
use tokio::sync::Semaphore;

use crate::cluster::{
    list_stream::error_message, path_segment::path_segment, watch::maybe_object::MaybeObject,
};

const PAGE_SIZE: u32 = 500;
const MAX_CONCURRENT_REQUESTS: usize = 4;
const REQUEST_TIMEOUT: Duration = Duration::from_secs(15);
/// How often an expired token is renewed in a list.
const MAX_RENEWALS: u32 = 8;

/// A resource and which of its objects to list.
#[derive(Clone, Debug, Default)]
pub(crate) struct ListedResource {
    /// Group and version, such as `apps/v1`.
    pub api_version: &'static str,
    pub plural: &'static str,
    pub is_namespaced: bool,
    /// Lists only the metadata of objects.
    pub is_metadata: bool,
    pub label_selector: Option<&'static str>,
    pub field_selector: Option<&'static str>,
}

/// Sends requests to the API server, a few at once.
pub(crate) struct ListReader<'a> {
    pub client: &'a Client,
    /// `None` for all namespaces.
    pub namespace: Option<&'a str>,
    requests: Semaphore,
}

/// Why a request failed.
#[derive(Debug)]
pub(crate) enum RequestError {
    /// The resource or the object does not exist.
    NotFound,
    Failed(String),
}

#[derive(Deserialize)]
#[serde(bound = "")]
struct Page<K: DeserializeOwned> {
    #[serde(default)]
    metadata: ListMeta,
    #[serde(default)]
    items: Option<Vec<MaybeObject<K>>>,
}

impl<'a> ListReader<'a> {
    pub fn new(client: &'a Client, namespace: Option<&'a str>) -> Self {
        Self { client, namespace, requests: Semaphore::new(MAX_CONCURRENT_REQUESTS) }
    }

    /// Passes each object to `add`. A resource that is not served has no objects. Objects that cannot be decoded are an
    /// error, after all others were passed.
    pub async fn fold<K: DeserializeOwned>(
        &self,
        resource: &ListedResource,
        mut add: impl FnMut(K) + Send,
    ) -> Reading<()> {
        let name = resource.name();
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
        match self.pages(resource, visit).await {
            Ok(()) | Err(RequestError::NotFound) => invalid.map_or(Ok(()), Err),
            Err(RequestError::Failed(why)) => Err(format!("failed to list {name}: {why}")),
        }
    }

    async fn pages<K: DeserializeOwned>(
        &self,
        resource: &ListedResource,
        mut visit: impl FnMut(Vec<MaybeObject<K>>) + Send,
    ) -> Result<(), RequestError> {
        let request = Request::new(resource.path(self.namespace).map_err(RequestError::Failed)?);
        let mut parameters = ListParams::default().limit(PAGE_SIZE);
        parameters.label_selector = resource.label_selector.map(ToOwned::to_owned);
        parameters.field_selector = resource.field_selector.map(ToOwned::to_owned);
        let mut renewals = 0;
        loop {
            let request = if resource.is_metadata {
                request.list_metadata(&parameters)
            } else {
                request.list(&parameters)
            };
            let request = request.map_err(|why| RequestError::Failed(why.to_string()))?;
            let page: Page<K> = match self.send(request).await {
                Ok(page) => page,
                Err(error) => {
                    // The token is older than what the server keeps. It offers one that continues with the current objects.
                    renewals += 1;
                    match next_token(&error).filter(|_| renewals <= MAX_RENEWALS) {
                        Some(token) => parameters.continue_token = Some(token),
                        None => return Err(error.into()),
                    }
                    continue;
                }
            };
            visit(page.items.unwrap_or_default());
            parameters.continue_token = page.metadata.continue_.filter(|token| !token.is_empty());
            if parameters.continue_token.is_none() {
                return Ok(());
            }
        }
    }

    /// Reads a document.
    pub async fn get<T: DeserializeOwned>(&self, path: &str) -> Result<T, RequestError> {
        let request = http::Request::get(path).body(Vec::new());
        let request = request.map_err(|why| RequestError::Failed(why.to_string()))?;
        Ok(self.send(request).await?)
    }

    async fn send<T: DeserializeOwned>(
        &self,
        request: http::Request<Vec<u8>>,
    ) -> Result<T, kube::Error> {
        let _request = self.requests.acquire().await;
        let text = tokio::time::timeout(REQUEST_TIMEOUT, self.client.request_text(request)).await;
        let text = text.unwrap_or_else(|_| {
            let why = format!("no response within {REQUEST_TIMEOUT:?}");
            Err(kube::Error::Service(why.into()))
        })?;
        serde_json::from_str(&text).map_err(kube::Error::SerdeError)
    }
}

impl ListedResource {
    pub const fn new(api_version: &'static str, plural: &'static str) -> Self {
        Self {
            api_version,
            plural,
            is_namespaced: true,
            is_metadata: false,
            label_selector: None,
            field_selector: None,
        }
    }

    pub const fn of_cluster(api_version: &'static str, plural: &'static str) -> Self {
        Self { is_namespaced: false, ..Self::new(api_version, plural) }
    }

    /// The resource as RBAC names it: `deployments.apps`.
    fn name(&self) -> String {
        match self.api_version.split_once('/') {
            Some((group, _)) => format!("{}.{group}", self.plural),
            None => self.plural.to_owned(),
        }
    }

    fn path(&self, namespace: Option<&str>) -> Result<String, String> {
        let Self { api_version, plural, .. } = self;
        let root = if api_version.contains('/') { "/apis" } else { "/api" };
        let Some(namespace) = namespace.filter(|_| self.is_namespaced) else {
            return Ok(format!("{root}/{api_version}/{plural}"));
        };
        let namespace = path_segment("namespace", namespace)?;
        Ok(format!("{root}/{api_version}/namespaces/{namespace}/{plural}"))
    }
}

/// The token that the server offers in place of an expired one.
fn next_token(error: &kube::Error) -> Option<String> {
    let kube::Error::Api(status) = error else { return None };
    let metadata = status.metadata.as_ref().filter(|_| status.code == 410)?;
    metadata.continue_.clone().filter(|token| !token.is_empty())
}

impl RequestError {
    /// The reason, where a missing object is an error.
    pub fn into_reason(self, what: &str) -> String {
        match self {
            Self::NotFound => format!("{what} does not exist"),
            Self::Failed(why) => format!("failed to read {what}: {why}"),
        }
    }
}

impl From<kube::Error> for RequestError {
    fn from(error: kube::Error) -> Self {
        match &error {
            kube::Error::Api(status) if status.code == 404 => Self::NotFound,
            _ => Self::Failed(error_message(&error)),
        }
    }
}
