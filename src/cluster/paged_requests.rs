//! Lists and documents of the API server. Each page of a list is reduced to what is needed before the next one is
//! requested.

use std::{fmt::Debug, pin::pin, time::Duration};

use futures::AsyncBufReadExt as _;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ListMeta;
use kube::{Api, Client, api::ListParams, core::Request};
use serde::{Deserialize, de::DeserializeOwned};
use tokio::sync::Semaphore;

use super::{
    list_stream::error_message, path_segment::path_segment, watch::maybe_object::MaybeObject,
};

const PAGE_SIZE: u32 = 500;
/// A page that is larger is requested again with fewer objects: an object may have 1.5 MiB, and users who may create
/// pods in one namespace decide how large they are.
const MAX_PAGE_BYTES: u64 = 32 << 20;
/// How often an expired token is renewed in a list.
const MAX_RENEWALS: u32 = 8;
const INITIAL_BACKOFF: Duration = Duration::from_millis(500);

pub(super) struct PagedRequests<'a> {
    pub client: &'a Client,
    /// How long to wait for an answer.
    pub timeout: Duration,
    /// How often a request is sent if the server is busy or does not answer.
    pub max_attempts: u32,
    pub permits: Semaphore,
}

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum RequestError {
    Failed(String),
    Forbidden(String),
    /// The resource or the object does not exist.
    NotFound,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ListedPart {
    Metadata,
    Object,
}

/// Why there is no answer that can be used.
#[derive(Debug, thiserror::Error)]
enum GetError {
    #[error(transparent)]
    Kube(#[from] kube::Error),
    #[error("the answer is larger than {} MiB", MAX_PAGE_BYTES >> 20)]
    TooLarge,
}

#[derive(Deserialize)]
#[serde(bound = "")]
struct Page<K: DeserializeOwned> {
    #[serde(default)]
    metadata: ListMeta,
    #[serde(default)]
    items: Option<Vec<MaybeObject<K>>>,
}

/// A resource as RBAC names it: `deployments.apps`.
pub(super) fn resource_name(api_version: &str, plural: &str) -> String {
    match api_version.split_once('/') {
        Some((group, _)) => format!("{plural}.{group}"),
        None => plural.to_owned(),
    }
}

/// The path of the objects in a namespace, or in all.
pub(super) fn resource_path(
    api_version: &str,
    plural: &str,
    namespace: Option<&str>,
) -> Result<String, RequestError> {
    let root = if api_version.contains('/') { "/apis" } else { "/api" };
    let Some(namespace) = namespace else { return Ok(format!("{root}/{api_version}/{plural}")) };
    let namespace = path_segment("namespace", namespace).map_err(RequestError::Failed)?;
    Ok(format!("{root}/{api_version}/namespaces/{namespace}/{plural}"))
}

/// The path of the kinds of an API version.
pub(super) fn version_path(api_version: &str) -> Result<String, String> {
    Ok(match api_version.split_once('/') {
        Some((group, version)) => format!(
            "/apis/{}/{}",
            path_segment("API group", group)?,
            path_segment("API version", version)?
        ),
        None => format!("/api/{}", path_segment("API version", api_version)?),
    })
}

/// Passes each page of a list to `visit`, without a time limit and further attempts. After an error earlier pages have been
/// passed.
pub(crate) async fn list_pages<K>(
    api: &Api<K>,
    parameters: ListParams,
    mut visit: impl FnMut(Vec<K>),
) -> kube::Result<()>
where
    K: Clone + Debug + DeserializeOwned,
{
    let mut parameters = parameters.limit(PAGE_SIZE);
    loop {
        let page = api.list(&parameters).await?;
        visit(page.items);
        parameters.continue_token = page.metadata.continue_.filter(|token| !token.is_empty());
        if parameters.continue_token.is_none() {
            return Ok(());
        }
    }
}

impl PagedRequests<'_> {
    /// Passes each page of a list to `visit`. After an error earlier pages have been passed.
    pub async fn list<K: DeserializeOwned>(
        &self,
        path: String,
        part: ListedPart,
        parameters: ListParams,
        mut visit: impl FnMut(Vec<MaybeObject<K>>) + Send,
    ) -> Result<(), RequestError> {
        let request = Request::new(path);
        let mut parameters = parameters.limit(PAGE_SIZE);
        let mut renewals = 0;
        loop {
            let build = || match part {
                ListedPart::Metadata => request.list_metadata(&parameters),
                ListedPart::Object => request.list(&parameters),
            };
            let page: Page<K> = match self.get(build).await {
                Ok(page) => page,
                Err(GetError::TooLarge) if parameters.limit.is_some_and(|limit| limit > 1) => {
                    parameters.limit = parameters.limit.map(|limit| (limit / 8).max(1));
                    continue;
                }
                Err(error) => {
                    // The token is older than what the server keeps. It offers one that continues with the current objects.
                    renewals += 1;
                    match error.next_token().filter(|_| renewals <= MAX_RENEWALS) {
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

    /// Reads a document, such as the kinds of an API version.
    pub async fn read<T: DeserializeOwned>(&self, path: &str) -> Result<T, RequestError> {
        let request = || {
            let request = http::Request::get(path).body(Vec::new());
            request.map_err(kube::core::request::Error::BuildRequest)
        };
        Ok(self.get(request).await?)
    }

    /// Sends a request, again after pauses if the server is busy or does not answer.
    async fn get<T: DeserializeOwned>(
        &self,
        request: impl Fn() -> Result<http::Request<Vec<u8>>, kube::core::request::Error>,
    ) -> Result<T, GetError> {
        let _permit = self.permits.acquire().await;
        let (mut attempt, mut backoff) = (1, INITIAL_BACKOFF);
        loop {
            let request = request().map_err(kube::Error::BuildRequest)?;
            let body = tokio::time::timeout(self.timeout, read_body(self.client, request)).await;
            let error = match body {
                Ok(Ok(body)) if body.len() as u64 > MAX_PAGE_BYTES => {
                    return Err(GetError::TooLarge);
                }
                Ok(Ok(body)) => {
                    return Ok(serde_json::from_slice(&body).map_err(kube::Error::SerdeError)?);
                }
                Ok(Err(error)) => error,
                Err(_) => {
                    kube::Error::Service(format!("no response within {:?}", self.timeout).into())
                }
            };
            if attempt == self.max_attempts || !is_transient(&error) {
                return Err(error.into());
            }
            tokio::time::sleep(backoff).await;
            attempt += 1;
            backoff *= 2;
        }
    }
}

/// The body of an answer. It is not read further once it is too large. `read_to_end` would clear the rest of its buffer for
/// each chunk.
async fn read_body(
    client: &Client,
    request: http::Request<Vec<u8>>,
) -> Result<Vec<u8>, kube::Error> {
    let mut body = Vec::new();
    let mut stream = pin!(client.request_stream(request).await?);
    while body.len() as u64 <= MAX_PAGE_BYTES {
        let chunk = stream.fill_buf().await;
        let chunk = chunk.map_err(|error| kube::Error::Service(error.into()))?;
        if chunk.is_empty() {
            break;
        }
        body.extend_from_slice(chunk);
        let length = chunk.len();
        stream.as_mut().consume_unpin(length);
    }
    Ok(body)
}

fn is_transient(error: &kube::Error) -> bool {
    match error {
        kube::Error::Api(status) => matches!(status.code, 429 | 500 | 502 | 503 | 504),
        kube::Error::Service(_) | kube::Error::HyperError(_) => true,
        _ => false,
    }
}

impl GetError {
    /// The token that the server offers in place of an expired one.
    fn next_token(&self) -> Option<String> {
        let Self::Kube(kube::Error::Api(status)) = self else { return None };
        let metadata = status.metadata.as_ref().filter(|_| status.code == 410)?;
        metadata.continue_.clone().filter(|token| !token.is_empty())
    }
}

impl From<GetError> for RequestError {
    fn from(error: GetError) -> Self {
        let GetError::Kube(error) = error else { return Self::Failed(error.to_string()) };

        let why = error_message(&error);
        match error {
            kube::Error::Api(status) if status.code == 403 => Self::Forbidden(why),
            kube::Error::Api(status) if status.code == 404 => Self::NotFound,
            _ => Self::Failed(why),
        }
    }
}
