//! Recommenders: HTTP services that return how many replicas a workload should have.

use std::{error::Error as _, sync::Arc, time::Duration};

use plimsoll_storage::error_text::error_chain;
use reqwest::{
    Response, StatusCode, Url,
    header::{CONTENT_TYPE, HOST, LOCATION},
};
use serde_json::Value;
use tokio::time::Instant;

use super::http_clients::{Endpoint, HttpClients, effective_tls_config};
use plimsoll_core::{
    api::scale_target::TlsConfig,
    scaling::{MetricError, RecommendResponse, external_recommender::parse_reply},
};

/// Maximum number of requests per recommendation; more redirects than that are a loop.
const REQUESTS: usize = 10;
const MAX_REPLY_BYTES: usize = 1 << 20;
/// How much of an error response is reported.
const MAX_ERROR_BODY_BYTES: usize = 100;

/// Observes every request. Each redirect is a request of its own.
pub trait RecommenderCallObserver: Send + Sync {
    /// A request started. `client` is the requested address without parts that may be secret.
    fn on_start(&self, client: &str);
    /// The request ended, with the status of the response or without one. `method` is in lower case.
    fn on_end(&self, client: &str, method: &'static str, result: Result<u16, ()>, took: Duration);
}

impl RecommenderCallObserver for () {
    fn on_start(&self, _: &str) {}
    fn on_end(&self, _: &str, _: &'static str, _: Result<u16, ()>, _: Duration) {}
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RequestLimits {
    /// The timeout of one recommendation, including redirects and reading the reply.
    pub timeout: Duration,
    /// How often certificate files are checked for changes while a client is in use.
    pub reload_interval: Duration,
    /// A client that is unused for this long is removed.
    pub idle_timeout: Duration,
}

/// The timeout is upstream's.
impl Default for RequestLimits {
    fn default() -> Self {
        Self {
            timeout: Duration::from_secs(10),
            reload_interval: Duration::from_secs(10),
            idle_timeout: Duration::from_mins(10),
        }
    }
}

pub struct RecommenderClient {
    http_clients: HttpClients,
    observer: Arc<dyn RecommenderCallObserver>,
    pub(super) timeout: Duration,
}

impl RecommenderClient {
    /// Reports requests to the observer. `agent` is the `User-Agent` header.
    pub fn new(
        agent: &'static str,
        observer: Arc<dyn RecommenderCallObserver>,
        limits: RequestLimits,
    ) -> Self {
        Self { http_clients: HttpClients::new(agent, limits), observer, timeout: limits.timeout }
    }

    /// Requests a recommendation from this address. The TLS configuration of the object is completed with the defaults of
    /// the process; `None` is not the same as an empty configuration.
    pub async fn recommend(
        &self,
        url: &str,
        tls: Option<&TlsConfig>,
        defaults: &TlsConfig,
        body: &Value,
    ) -> Result<RecommendResponse, MetricError> {
        let tls = effective_tls_config(tls, defaults);
        let request = tokio::time::timeout(self.timeout, self.fetch_reply(url, &tls, body));
        let reply = request.await.unwrap_or_else(|_| {
            Err(format!("error sending request: no complete reply within {:?}", self.timeout))
        });
        parse_reply(&reply.map_err(MetricError::Failed)?)
    }

    async fn fetch_reply(
        &self,
        url: &str,
        tls: &TlsConfig,
        body: &Value,
    ) -> Result<Vec<u8>, String> {
        let mut at =
            Url::parse(url).ok().filter(is_supported_scheme).ok_or_else(unsupported_scheme)?;
        let client = redacted(url, &at);
        let mut body = Some(body.to_string());
        for _ in 0..REQUESTS {
            let response = self.send(&client, at.clone(), tls, body.as_deref()).await?;
            let Some(next) = redirect_target(&response, &at)? else {
                return read_body(response).await;
            };
            at = next;
            if !matches!(
                response.status(),
                StatusCode::TEMPORARY_REDIRECT | StatusCode::PERMANENT_REDIRECT
            ) {
                body = None;
            }
        }
        Err(format!("error sending request: stopped after {REQUESTS} redirects"))
    }

    /// Sends one request: POST with a body, GET without.
    async fn send(
        &self,
        label: &str,
        at: Url,
        tls: &TlsConfig,
        body: Option<&str>,
    ) -> Result<Response, String> {
        let send_error = |why: String| format!("error sending request: {why}");
        let mut call =
            CallGuard::begin(&*self.observer, label, if body.is_some() { "post" } else { "get" });
        let server = origin(&at);
        let Endpoint { client, url, host } =
            self.http_clients.endpoint(tls, at).await.map_err(send_error)?;
        let request = match body {
            Some(body) => {
                client.post(url).header(CONTENT_TYPE, "application/json").body(body.to_owned())
            }
            None => client.get(url),
        };
        let request = match host {
            Some(host) => request.header(HOST, host),
            None => request,
        };
        let response = request
            .send()
            .await
            .map_err(|why| send_error(format!("{server}: {}", error_causes(why))))?;
        call.status = Some(response.status());
        Ok(response)
    }
}

/// One request, which is reported to the observer however it ends.
struct CallGuard<'a> {
    observer: &'a dyn RecommenderCallObserver,
    client: &'a str,
    method: &'static str,
    started_at: Instant,
    status: Option<StatusCode>,
}

impl<'a> CallGuard<'a> {
    fn begin(
        observer: &'a dyn RecommenderCallObserver,
        client: &'a str,
        method: &'static str,
    ) -> Self {
        observer.on_start(client);
        Self { observer, client, method, started_at: Instant::now(), status: None }
    }
}

/// Also reports a request that was cancelled by a timeout.
impl Drop for CallGuard<'_> {
    fn drop(&mut self) {
        let result = self.status.map(|status| status.as_u16()).ok_or(());
        self.observer.on_end(self.client, self.method, result, self.started_at.elapsed());
    }
}

fn is_supported_scheme(url: &Url) -> bool {
    matches!(url.scheme(), "http" | "https") && url.has_host()
}

fn unsupported_scheme() -> String {
    "only http and https schemes are supported".to_owned()
}

/// The target of a redirect, if the response is one. A redirect without a location is an ordinary response.
fn redirect_target(response: &Response, from: &Url) -> Result<Option<Url>, String> {
    if !matches!(response.status().as_u16(), 301 | 302 | 303 | 307 | 308) {
        return Ok(None);
    }
    let Some(location) = response.headers().get(LOCATION) else { return Ok(None) };
    let joined = location.to_str().ok().and_then(|target| from.join(target).ok());
    let next = joined.ok_or_else(|| {
        let from = origin(from);
        format!("error sending request: {from} redirects to an invalid URL")
    })?;
    if is_supported_scheme(&next) { Ok(Some(next)) } else { Err(unsupported_scheme()) }
}

async fn read_body(mut response: Response) -> Result<Vec<u8>, String> {
    let status = response.status();
    let limit = if status == StatusCode::OK { MAX_REPLY_BYTES } else { MAX_ERROR_BODY_BYTES };
    let mut body = Vec::new();
    loop {
        let chunk = match response.chunk().await {
            Ok(chunk) => chunk,
            // The status matters more than an error of its body.
            Err(_) if status != StatusCode::OK => None,
            Err(why) => return Err(format!("error reading response: {}", error_causes(why))),
        };
        let Some(chunk) = chunk else { break };
        body.extend_from_slice(&chunk);
        if body.len() > limit {
            break;
        }
    }
    if status != StatusCode::OK {
        body.truncate(MAX_ERROR_BODY_BYTES);
        return Err(format!(
            "unexpected response code: {} ({})",
            status.as_u16(),
            to_single_line(&body)
        ));
    }
    if body.len() > MAX_REPLY_BYTES {
        return Err(format!("error reading response: larger than {} MiB", MAX_REPLY_BYTES >> 20));
    }
    Ok(body)
}

/// A foreign text as part of one line.
fn to_single_line(text: &[u8]) -> String {
    let text = String::from_utf8_lossy(text);
    text.chars().map(|c| if c.is_control() { ' ' } else { c }).collect()
}

/// The causes of an error. Its own message only says that a request failed and to which URL, which may contain a secret.
fn error_causes(error: reqwest::Error) -> String {
    let error = error.without_url();
    error_chain(error.source().unwrap_or(&error))
}

/// Scheme, host and port of a URL.
fn origin(url: &Url) -> String {
    let port = url.port().map(|port| format!(":{port}")).unwrap_or_default();
    format!("{}://{}{port}", url.scheme(), url.host_str().unwrap_or_default())
}

/// A URL as metrics, conditions and events show it: unchanged if no part of it can be secret.
pub fn redact_url(original: &str) -> String {
    Url::parse(original).map_or_else(|_| original.to_owned(), |url| redacted(original, &url))
}

fn redacted(original: &str, url: &Url) -> String {
    let is_plain = url.username().is_empty()
        && url.password().is_none()
        && url.query().is_none()
        && url.fragment().is_none();
    if is_plain { original.to_owned() } else { format!("{}{}", origin(url), url.path()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_is_shown_without_its_secrets() {
        for (written, expected) in [
            ("http://any", "http://any"),
            ("https://any:8443/a/b", "https://any:8443/a/b"),
            ("https://me:word@any/a", "https://any/a"),
            ("https://any/a?key=word#there", "https://any/a"),
        ] {
            let url = Url::parse(written).expect("an address");
            assert_eq!(redacted(written, &url), expected);
        }
    }
}
