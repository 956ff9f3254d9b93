//! Lists of the API server, page by page. Each page is reduced to what a survey needs before the next one is requested.

use std::{pin::pin, time::Duration};

use futures::AsyncReadExt as _;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ListMeta;
use kube::{Client, api::ListParams, core::Request};
use serde::{Deserialize, de::DeserializeOwned};

use crate::cluster::{
    list_stream::error_message, path_segment::path_segment, watch::maybe_object::MaybeObject,
};

const PAGE_SIZE: u32 = 500;
/// A page that is larger is requested again with fewer objects: an object may have 1.5 MiB, and users who may create
/// pods in one namespace decide how large they are.
const MAX_PAGE_BYTES: u64 = 32 << 20;
const REQUEST_TIMEOUT: Duration = Duration::from_mins(1);
const MAX_ATTEMPTS: u32 = 4;
/// How often an expired token is renewed in a list.
const MAX_RENEWALS: u32 = 8;
const INITIAL_BACKOFF: Duration = Duration::from_millis(500);

/// A kind and where its objects are served.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct ServedKind {
    /// Group and version, such as `apps/v1`.
    pub api_version: Box<str>,
    pub kind: Box<str>,
    pub plural: Box<str>,
}

/// Why a request failed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum RequestError {
    Forbidden(String),
    NotServed,
    Failed(String),
}

/// Why there is no answer that can be used.
#[derive(Debug)]
enum GetError {
    Kube(kube::Error),
    /// The answer is larger than [`MAX_PAGE_BYTES`].
    TooLarge,
}

/// How much of the objects a list has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ListedPart {
    Metadata,
    Object,
}

#[derive(Deserialize)]
#[serde(bound = "")]
struct Page<K: DeserializeOwned> {
    #[serde(default)]
    metadata: ListMeta,
    #[serde(default)]
    items: Option<Vec<MaybeObject<K>>>,
}

impl ServedKind {
    pub fn new(api_version: &str, kind: &str, plural: &str) -> Self {
        let [api_version, kind, plural] = [api_version, kind, plural].map(Box::from);
        Self { api_version, kind, plural }
    }

    /// The resource as RBAC names it: `deployments.apps`.
    pub fn resource(&self) -> String {
        match self.api_version.split_once('/') {
            Some((group, _)) => format!("{}.{group}", self.plural),
            None => self.plural.to_string(),
        }
    }

    /// The path of the objects in a namespace, or in all.
    fn path(&self, namespace: Option<&str>) -> Result<String, RequestError> {
        let root = if self.api_version.contains('/') { "/apis" } else { "/api" };
        let (version, plural) = (&self.api_version, &self.plural);
        let Some(namespace) = namespace else { return Ok(format!("{root}/{version}/{plural}")) };
        let namespace = path_segment("namespace", namespace).map_err(RequestError::Failed)?;
        Ok(format!("{root}/{version}/namespaces/{namespace}/{plural}"))
    }
}

/// Passes each page of a list to `visit`. After an error earlier pages have been passed.
pub(super) async fn list<K: DeserializeOwned>(
    client: &Client,
    kind: &ServedKind,
    namespace: Option<&str>,
    part: ListedPart,
    mut visit: impl FnMut(Vec<MaybeObject<K>>) + Send,
) -> Result<(), RequestError> {
    let request = Request::new(kind.path(namespace)?);
    let mut parameters = ListParams::default().limit(PAGE_SIZE);
    let mut renewals = 0;
    loop {
        let build = || match part {
            ListedPart::Metadata => request.list_metadata(&parameters),
            ListedPart::Object => request.list(&parameters),
        };
        let page: Page<K> = match get(client, build).await {
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
pub(super) async fn read<T: DeserializeOwned>(
    client: &Client,
    path: &str,
) -> Result<T, RequestError> {
    let build = || {
        http::Request::get(path).body(Vec::new()).map_err(kube::core::request::Error::BuildRequest)
    };
    Ok(get(client, build).await?)
}

/// Sends a request, again after pauses if the server is busy or does not answer.
async fn get<T: DeserializeOwned>(
    client: &Client,
    request: impl Fn() -> Result<http::Request<Vec<u8>>, kube::core::request::Error>,
) -> Result<T, GetError> {
    let (mut attempt, mut backoff) = (1, INITIAL_BACKOFF);
    loop {
        let request = request().map_err(kube::Error::BuildRequest)?;
        let body = tokio::time::timeout(REQUEST_TIMEOUT, read_body(client, request)).await;
        let error = match body {
            Ok(Ok(body)) if body.len() as u64 > MAX_PAGE_BYTES => return Err(GetError::TooLarge),
            Ok(Ok(body)) => {
                return Ok(serde_json::from_slice(&body).map_err(kube::Error::SerdeError)?);
            }
            Ok(Err(error)) => error,
            Err(_) => {
                kube::Error::Service(format!("no response within {REQUEST_TIMEOUT:?}").into())
            }
        };
        if attempt == MAX_ATTEMPTS || !is_transient(&error) {
            return Err(error.into());
        }
        tokio::time::sleep(backoff).await;
        attempt += 1;
        backoff *= 2;
    }
}

/// The body of an answer, of which no more is read than one byte too many.
async fn read_body(
    client: &Client,
    request: http::Request<Vec<u8>>,
) -> Result<Vec<u8>, kube::Error> {
    let mut body = Vec::new();
    let stream = pin!(client.request_stream(request).await?);
    let read = stream.take(MAX_PAGE_BYTES + 1).read_to_end(&mut body).await;
    read.map_err(|error| kube::Error::Service(error.into()))?;
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

impl From<kube::Error> for GetError {
    fn from(error: kube::Error) -> Self {
        Self::Kube(error)
    }
}

impl From<GetError> for RequestError {
    fn from(error: GetError) -> Self {
        let error = match error {
            GetError::Kube(error) => error,
            GetError::TooLarge => {
                let mebibytes = MAX_PAGE_BYTES >> 20;
                return Self::Failed(format!("the answer is larger than {mebibytes} MiB"));
            }
        };
        let why = error_message(&error);
        match error {
            kube::Error::Api(status) if status.code == 403 => Self::Forbidden(why),
            kube::Error::Api(status) if status.code == 404 => Self::NotServed,
            _ => Self::Failed(why),
        }
    }
}
