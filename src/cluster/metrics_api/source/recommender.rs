//! Recommenders: services that are asked over HTTP how many replicas there should be.

use std::{error::Error as _, sync::Arc, time::Duration};

use reqwest::{
    Response, StatusCode, Url,
    header::{CONTENT_TYPE, HOST, LOCATION},
};
use serde_json::Value;
use tokio::time::Instant;

use super::http_clients::{Endpoint, HttpClients, effective_tls_config};
use plimsoll_core::{
    api::scale_target::TlsConfig,
    scaling::{MetricError, RecommendResponse, recommender_protocol::parse_reply},
};

/// So many requests for one question; whoever redirects more often goes in a circle.
const REQUESTS: usize = 10;
/// No reply is longer.
const MAX_REPLY_BYTES: usize = 1 << 20;
/// So much is told of what is no reply.
const MAX_ERROR_BODY_BYTES: usize = 100;

/// Is told of each request. A redirect is followed by a request of its own.
pub trait RecommenderCallObserver: Send + Sync {
    /// One is under way. A client is the address that was asked for, without what may be secret in it.
    fn on_start(&self, client: &str);
    /// It is over: with the status of its answer, or without any. The method is in small letters.
    fn on_end(&self, client: &str, method: &'static str, result: Result<u16, ()>, took: Duration);
}

/// For whoever counts nothing.
impl RecommenderCallObserver for () {
    fn on_start(&self, _: &str) {}
    fn on_end(&self, _: &str, _: &'static str, _: Result<u16, ()>, _: Duration) {}
}

/// How long things take and last.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RequestLimits {
    /// The time for one question, redirects and the reading of the reply included.
    pub timeout: Duration,
    /// How often files of certificates are looked at while they are asked for.
    pub reload_interval: Duration,
    /// How soon they are looked at again after something was wrong with them.
    pub reload_retry_interval: Duration,
    /// A client that nobody asks for is forgotten after this.
    pub idle_timeout: Duration,
}

impl Default for RequestLimits {
    fn default() -> Self {
        Self {
            timeout: Duration::from_secs(10),
            reload_interval: Duration::from_secs(10),
            reload_retry_interval: Duration::from_mins(1),
            idle_timeout: Duration::from_mins(10),
        }
    }
}

/// Asks recommenders.
pub struct RecommenderClient {
    http_clients: HttpClients,
    observer: Arc<dyn RecommenderCallObserver>,
    timeout: Duration,
}

impl RecommenderClient {
    /// Tells of its requests. Recommenders and those before them may tell by `agent` who asks.
    pub fn new(
        agent: &'static str,
        calls: Arc<dyn RecommenderCallObserver>,
        pace: RequestLimits,
    ) -> Self {
        Self { http_clients: HttpClients::new(agent, pace), observer: calls, timeout: pace.timeout }
    }

    /// What the recommender at this address recommends. What the object says of TLS is completed by what the process
    /// does; an object that says nothing is not the same as one that says nothing in particular.
    pub async fn recommend(
        &self,
        url: &str,
        tls: Option<&TlsConfig>,
        defaults: &TlsConfig,
        body: &Value,
    ) -> Result<RecommendResponse, MetricError> {
        let tls = effective_tls_config(tls, defaults);
        let asked = tokio::time::timeout(self.timeout, self.fetch_reply(url, &tls, body));
        let answered = asked.await.unwrap_or_else(|_| {
            Err(format!(
                "error sending request: there was no whole reply within {:?}",
                self.timeout
            ))
        });
        parse_reply(&answered.map_err(MetricError::Failed)?)
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

    /// Sends one request: a POST where there is something to say, and a GET where there is not.
    async fn send(
        &self,
        label: &str,
        at: Url,
        tls: &TlsConfig,
        body: Option<&str>,
    ) -> Result<Response, String> {
        let failed = |why: String| format!("error sending request: {why}");
        let mut call =
            CallGuard::begin(&*self.observer, label, if body.is_some() { "post" } else { "get" });
        let place = origin(&at);
        let Endpoint { client, url, host } =
            self.http_clients.endpoint(tls, at).await.map_err(failed)?;
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
            .map_err(|why| failed(format!("{place}: {}", error_causes(why))))?;
        call.end(response.status());
        Ok(response)
    }
}

/// One request, told of however it ends.
struct CallGuard<'a> {
    observer: &'a dyn RecommenderCallObserver,
    client: &'a str,
    method: &'static str,
    started_at: Instant,
    status: Option<StatusCode>,
}

impl<'a> CallGuard<'a> {
    fn begin(
        calls: &'a dyn RecommenderCallObserver,
        client: &'a str,
        method: &'static str,
    ) -> Self {
        calls.on_start(client);
        Self { observer: calls, client, method, started_at: Instant::now(), status: None }
    }

    fn end(&mut self, status: StatusCode) {
        self.status = Some(status);
    }
}

/// Whoever loses patience lets go of the request in the middle.
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

/// Where a response sends us, if it does. One that only looks like it is an answer.
fn redirect_target(response: &Response, from: &Url) -> Result<Option<Url>, String> {
    if !matches!(response.status().as_u16(), 301 | 302 | 303 | 307 | 308) {
        return Ok(None);
    }
    let Some(to) = response.headers().get(LOCATION) else { return Ok(None) };
    let joined = to.to_str().ok().and_then(|to| from.join(to).ok());
    let next = joined.ok_or_else(|| {
        let from = origin(from);
        format!("error sending request: {from} redirects to what is no address")
    })?;
    if is_supported_scheme(&next) { Ok(Some(next)) } else { Err(unsupported_scheme()) }
}

async fn read_body(mut response: Response) -> Result<Vec<u8>, String> {
    let status = response.status();
    let most = if status == StatusCode::OK { MAX_REPLY_BYTES } else { MAX_ERROR_BODY_BYTES };
    let mut body = Vec::new();
    loop {
        let piece = match response.chunk().await {
            Ok(piece) => piece,
            // Whatever goes wrong with it matters less than its status.
            Err(_) if status != StatusCode::OK => None,
            Err(why) => return Err(format!("error reading response: {}", error_causes(why))),
        };
        let Some(piece) = piece else { break };
        body.extend_from_slice(&piece);
        if body.len() > most {
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
        return Err(format!(
            "error reading response: it is larger than {} MiB",
            MAX_REPLY_BYTES >> 20
        ));
    }
    Ok(body)
}

/// A text of somebody else's as a part of one line.
fn to_single_line(text: &[u8]) -> String {
    let text = String::from_utf8_lossy(text);
    text.chars().map(|sign| if sign.is_control() { ' ' } else { sign }).collect()
}

/// What went wrong, down to its cause. The outer words only say that a request failed, and to which address: there may
/// be a secret in that.
fn error_causes(error: reqwest::Error) -> String {
    let error = error.without_url();
    let mut text = String::new();
    let mut cause = error.source();
    while let Some(inner) = cause {
        let words = inner.to_string();
        if !text.contains(&words) {
            let colon = if text.is_empty() { "" } else { ": " };
            text = format!("{text}{colon}{words}");
        }
        cause = inner.source();
    }
    if text.is_empty() { error.to_string() } else { text }
}

/// Host and port of an address.
fn origin(url: &Url) -> String {
    let port = url.port().map(|port| format!(":{port}")).unwrap_or_default();
    format!("{}://{}{port}", url.scheme(), url.host_str().unwrap_or_default())
}

/// An address as metrics, conditions and events show it: as it was written, if nothing in it can be a secret.
pub fn redact_url(written: &str) -> String {
    Url::parse(written).map_or_else(|_| written.to_owned(), |url| redacted(written, &url))
}

fn redacted(written: &str, url: &Url) -> String {
    let is_plain = url.username().is_empty()
        && url.password().is_none()
        && url.query().is_none()
        && url.fragment().is_none();
    if is_plain { written.to_owned() } else { format!("{}{}", origin(url), url.path()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_is_shown_as_it_was_written_or_without_its_secrets() {
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

    #[test]
    fn what_somebody_says_is_kept_to_one_line() {
        assert_eq!(to_single_line(b"not\r\nso \xff"), "not  so \u{fffd}");
    }
}
