//! Requests to token endpoints: with a timeout and a size limit, without redirects, and with one-line errors.

use std::time::Duration;

use plimsoll_core::api::scale_target::TlsConfig;
use reqwest::{
    Method, StatusCode, Url,
    header::{HeaderName, HeaderValue},
};
use serde_json::Value;

use super::{
    ProxyPolicy, ReloadingClient, Secret, TransportError, config::AuthTiming, error::one_line,
    http_client, redacted,
};

/// Size limit of a response. No token is longer.
const LONGEST: usize = 1 << 20;

/// Sends requests to a token endpoint.
#[derive(Debug)]
pub(super) struct TokenEndpoint {
    client: ReloadingClient,
    timeout: Duration,
    advice: &'static str,
}

/// A request to a token endpoint.
#[derive(Debug)]
pub(super) struct TokenRequest<'a> {
    pub(super) method: Method,
    pub(super) url: Url,
    pub(super) headers: Vec<(HeaderName, HeaderValue)>,
    pub(super) body: Option<String>,
    /// Values to redact in errors, in case the response repeats them.
    pub(super) secrets: &'a [&'a Secret],
}

impl<'a> TokenRequest<'a> {
    /// Creates a GET request.
    pub(super) fn get(url: Url) -> Self {
        Self { method: Method::GET, url, headers: Vec::new(), body: None, secrets: &[] }
    }

    /// Creates a POST request with a form.
    pub(super) fn form(url: Url, fields: &[(&str, &str)], secrets: &'a [&'a Secret]) -> Self {
        let body = form_urlencoded::Serializer::new(String::new()).extend_pairs(fields).finish();
        let form = HeaderValue::from_static("application/x-www-form-urlencoded");
        let headers = vec![(reqwest::header::CONTENT_TYPE, form)];
        Self { method: Method::POST, url, headers, body: Some(body), secrets }
    }

    /// Adds a header that logs redact.
    pub(super) fn with(mut self, name: &'static str, value: &str) -> Result<Self, TransportError> {
        self.headers.push((HeaderName::from_static(name), hidden(name, value)?));
        Ok(self)
    }
}

impl TokenEndpoint {
    /// Creates a client of the endpoint; `advice` says what to do when it denies a token.
    pub(super) fn new(url: &Url, timing: AuthTiming, advice: &'static str) -> Self {
        Self::with_tls(TlsConfig::default(), url, ProxyPolicy::FromEnvironment, timing, advice)
    }

    /// Creates a client of an endpoint that is reachable only from this machine.
    pub(super) fn local(url: &Url, timing: AuthTiming, advice: &'static str) -> Self {
        Self::with_tls(TlsConfig::default(), url, ProxyPolicy::Never, timing, advice)
    }

    /// Creates a client of the endpoint with these TLS settings.
    pub(super) fn with_tls(
        tls: TlsConfig,
        url: &Url,
        proxy: ProxyPolicy,
        timing: AuthTiming,
        advice: &'static str,
    ) -> Self {
        let client = http_client(tls, url, proxy, timing.reload_interval);
        Self { client, timeout: timing.token_timeout, advice }
    }

    /// Returns the body of a successful response.
    pub(super) async fn text(&self, request: TokenRequest<'_>) -> Result<String, TransportError> {
        let from = redacted(&request.url);
        let client = self.client.get().await?;
        let mut builder = client.request(request.method, request.url).timeout(self.timeout);
        for (name, value) in request.headers {
            builder = builder.header(name, value);
        }
        if let Some(body) = request.body {
            builder = builder.body(body);
        }
        let failed =
            |error: &reqwest::Error| TransportError::of_request(&from, error, self.timeout);
        let mut response = builder.send().await.map_err(|error| failed(&error))?;
        let status = response.status();
        let mut body = Vec::new();
        while let Some(part) = response.chunk().await.map_err(|error| failed(&error))? {
            body.extend_from_slice(&part);
            if body.len() > LONGEST {
                return Err(self.refused(&from, status, "the response is too long for a token"));
            }
        }
        let body = String::from_utf8_lossy(&body).into_owned();
        if status == StatusCode::OK {
            return Ok(body);
        }
        let message = reason(&body).map(|message| {
            request
                .secrets
                .iter()
                .filter(|secret| !secret.is_empty())
                .fold(message, |message, secret| message.replace(secret.reveal(), "..."))
        });
        let why = match message {
            Some(message) => format!("{}: {}", status.as_u16(), one_line(&message)),
            None => format!("it responded with {status}"),
        };
        Err(self.refused(&from, status, &why))
    }

    /// Returns the body of a successful response, parsed as JSON.
    pub(super) async fn json(&self, request: TokenRequest<'_>) -> Result<Value, TransportError> {
        let from = redacted(&request.url);
        let text = self.text(request).await?;
        serde_json::from_str(&text)
            .map_err(|_| self.refused(&from, StatusCode::OK, "the response is not JSON"))
    }

    /// Creates the error for a denied token, or for a response that lacks the expected content.
    pub(super) fn refused(&self, from: &str, status: StatusCode, why: &str) -> TransportError {
        let passing = status.is_server_error() || status == StatusCode::TOO_MANY_REQUESTS;
        let advice = if passing { "will be retried" } else { self.advice };
        TransportError::TokenDenied { from: from.to_owned(), why: why.to_owned(), advice, passing }
    }
}

/// Creates a header value that logs redact.
pub(super) fn hidden(what: &str, value: &str) -> Result<HeaderValue, TransportError> {
    let mut value = HeaderValue::from_str(value).map_err(|_| {
        TransportError::setting(what, "it contains characters that are not allowed in a header")
    })?;
    value.set_sensitive(true);
    Ok(value)
}

/// Parses a configured URL.
pub(super) fn url(what: &str, text: &str) -> Result<Url, TransportError> {
    let invalid = |why: String| TransportError::setting(what, why);
    let url = Url::parse(text).map_err(|error| invalid(error.to_string()))?;
    if !matches!(url.scheme(), "http" | "https") || !url.has_host() {
        return Err(invalid("it does not start with http:// or https:// and a host".to_owned()));
    }
    Ok(url)
}

/// The error message of a response from OAuth 2 (RFC 6749), Google, AWS or Azure.
fn reason(body: &str) -> Option<String> {
    let Ok(response) = serde_json::from_str::<Value>(body) else {
        let code = element(body, "Code")?;
        return Some(format!("{code}: {}", element(body, "Message").unwrap_or_default()));
    };
    let text = |value: &Value| value.as_str().map(str::to_owned);
    let error = &response["error"];
    let code = text(error).or_else(|| text(&error["status"])).or_else(|| text(&response["code"]));
    let message = text(&response["error_description"])
        .or_else(|| text(&error["message"]))
        .or_else(|| text(&response["message"]));
    match (code, message) {
        (Some(code), Some(message)) => Some(format!("{code}: {message}")),
        (code, message) => code.or(message),
    }
}

/// The text of an XML element. The elements that we read have no attributes and no escapes.
pub(super) fn element<'a>(xml: &'a str, name: &str) -> Option<&'a str> {
    let (_, rest) = xml.split_once(&format!("<{name}>"))?;
    rest.split_once(&format!("</{name}>")).map(|(text, _)| text.trim())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn error_responses_of_all_providers_are_parsed() {
        for (body, expected) in [
            (r#"{"error":"invalid_client"}"#, Some("invalid_client")),
            (r#"{"error":"a","error_description":"b"}"#, Some("a: b")),
            (r#"{"error":{"code":403,"status":"DENIED","message":"no"}}"#, Some("DENIED: no")),
            (r#"{"code":"c","message":"m"}"#, Some("c: m")),
            (
                "<E><Error><Code>AccessDenied</Code><Message>no</Message></Error></E>",
                Some("AccessDenied: no"),
            ),
            ("<html>Sign in</html>", None),
            ("{}", None),
        ] {
            assert_eq!(reason(body).as_deref(), expected, "{body}");
        }
    }
}
