//! Requests to token endpoints: with a timeout and a size limit, without redirects, and with one-line errors.

use std::time::Duration;

use plimsoll_core::api::scale_target::TlsConfig;
use reqwest::{
    Method, StatusCode, Url,
    header::{CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue},
};
use serde_json::Value;

use super::{
    ReloadingClient, Secret, TransportError, TransportErrorKind, cached_token::FetchedToken,
    config::AuthTiming, error::one_line, http_client, redacted,
};

/// Size limit of a response. No token is longer.
const LONGEST: usize = 1 << 20;

#[derive(Debug)]
pub(super) struct TokenEndpoint {
    url: Url,
    client: ReloadingClient,
    timeout: Duration,
    /// What to do when it denies a token.
    advice: &'static str,
}

#[derive(Debug)]
pub(super) struct TokenRequest<'a> {
    pub(super) method: Method,
    pub(super) url: Url,
    pub(super) headers: HeaderMap,
    pub(super) body: String,
    /// Values to redact in errors, in case the response repeats them.
    pub(super) secrets: &'a [Secret],
}

impl TokenRequest<'_> {
    /// Adds a header that logs redact.
    pub(super) fn with(mut self, name: &'static str, value: &str) -> Result<Self, TransportError> {
        self.headers.insert(HeaderName::from_static(name), hidden(name, value)?);
        Ok(self)
    }
}

impl TokenEndpoint {
    pub(super) fn new(url: Url, timing: AuthTiming, advice: &'static str) -> Self {
        Self::with_tls(TlsConfig::default(), url, timing, advice)
    }

    /// An endpoint that is reachable only from this machine.
    pub(super) fn local(url: Url, timing: AuthTiming, advice: &'static str) -> Self {
        let client = http_client(TlsConfig::default(), &url, true, timing.reload_interval);
        Self { url, client, timeout: timing.token_timeout, advice }
    }

    pub(super) fn with_tls(
        tls: TlsConfig,
        url: Url,
        timing: AuthTiming,
        advice: &'static str,
    ) -> Self {
        let client = http_client(tls, &url, false, timing.reload_interval);
        Self { url, client, timeout: timing.token_timeout, advice }
    }

    pub(super) fn get<'a>(&self, secrets: &'a [Secret]) -> TokenRequest<'a> {
        let (method, headers) = (Method::GET, HeaderMap::new());
        TokenRequest { method, url: self.url.clone(), headers, body: String::new(), secrets }
    }

    /// Creates a GET request to another path of the same server.
    pub(super) fn get_path(&self, path: &str) -> TokenRequest<'static> {
        let mut request = self.get(&[]);
        request.url.set_path(path);
        request
    }

    pub(super) fn post<'a>(
        &self,
        content_type: &'static str,
        body: String,
        secrets: &'a [Secret],
    ) -> TokenRequest<'a> {
        let headers = [(CONTENT_TYPE, HeaderValue::from_static(content_type))];
        let headers = headers.into_iter().collect();
        TokenRequest { method: Method::POST, headers, body, ..self.get(secrets) }
    }

    pub(super) fn form<'a>(
        &self,
        fields: &[(&str, &str)],
        secrets: &'a [Secret],
    ) -> TokenRequest<'a> {
        let body = form_urlencoded::Serializer::new(String::new()).extend_pairs(fields).finish();
        self.post("application/x-www-form-urlencoded", body, secrets)
    }

    pub(super) async fn text(&self, request: TokenRequest<'_>) -> Result<String, TransportError> {
        let TokenRequest { method, url, headers, body, secrets } = request;
        let from = redacted(&url);
        let client = self.client.get().await?;
        let mut builder = client.request(method, url).timeout(self.timeout).headers(headers);
        if !body.is_empty() {
            builder = builder.body(body);
        }
        let failed =
            |error: reqwest::Error| TransportError::of_request(&from, &error, self.timeout);
        let mut response = builder.send().await.map_err(failed)?;
        let status = response.status();
        let mut body = Vec::new();
        while let Some(part) = response.chunk().await.map_err(failed)? {
            body.extend_from_slice(&part);
            if body.len() > LONGEST {
                return Err(self.refused_with(
                    &from,
                    status,
                    "the response is too long for a token",
                ));
            }
        }
        let body = String::from_utf8_lossy(&body).into_owned();
        if status == StatusCode::OK {
            return Ok(body);
        }
        let why = match reason(&body) {
            Some(message) => {
                let secrets = secrets.iter().filter(|secret| !secret.is_empty());
                let message = secrets
                    .fold(message, |message, secret| message.replace(secret.reveal(), "..."));
                format!("{}: {}", status.as_u16(), one_line(&message))
            }
            None => format!("it responded with {status}"),
        };
        Err(self.refused_with(&from, status, &why))
    }

    /// Returns the body of a successful response, parsed as JSON.
    pub(super) async fn json(&self, request: TokenRequest<'_>) -> Result<Value, TransportError> {
        let from = redacted(&request.url);
        let text = self.text(request).await?;
        serde_json::from_str(&text)
            .map_err(|_| self.refused_with(&from, StatusCode::OK, "the response is not JSON"))
    }

    /// Fetches a token (RFC 6749, section 5.1).
    pub(super) async fn bearer(
        &self,
        request: TokenRequest<'_>,
    ) -> Result<FetchedToken<Secret>, TransportError> {
        let response = self.json(request).await?;
        let token = response["access_token"].as_str().filter(|token| !token.is_empty());
        let token = token.ok_or_else(|| self.refused("the response has no access_token"))?;
        // The Azure metadata server returns the number as a string.
        let expires = &response["expires_in"];
        let seconds = expires.as_u64().or_else(|| expires.as_str()?.parse().ok());
        Ok(FetchedToken { value: token.into(), expires_in: seconds.map(Duration::from_secs) })
    }

    /// Creates the error for a successful response without the expected content.
    pub(super) fn refused(&self, why: &str) -> TransportError {
        self.refused_with(&redacted(&self.url), StatusCode::OK, why)
    }

    fn refused_with(&self, from: &str, status: StatusCode, why: &str) -> TransportError {
        let is_transient = status.is_server_error() || status == StatusCode::TOO_MANY_REQUESTS;
        let (kind, advice) = if is_transient {
            (TransportErrorKind::TokenUnavailable, "check whether it is running")
        } else {
            (TransportErrorKind::TokenDenied, self.advice)
        };
        TransportError::new(kind, format!("failed to get a token from {from}: {why}: {advice}"))
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

pub(super) fn url(what: &str, text: &str) -> Result<Url, TransportError> {
    let url = Url::parse(text).map_err(|error| TransportError::setting(what, error))?;
    if !matches!(url.scheme(), "http" | "https") || !url.has_host() {
        let why = "it does not start with http:// or https:// and a host";
        return Err(TransportError::setting(what, why));
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
