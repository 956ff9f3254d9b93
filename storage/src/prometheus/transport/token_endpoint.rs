//! One call to whoever hands out tokens: short, bounded, not redirected, and its refusal in one line.

use std::time::Duration;

use reqwest::{
    Method, StatusCode, Url,
    header::{HeaderName, HeaderValue},
};
use serde_json::Value;

use super::{
    Secret, TransportError,
    config::{AuthTiming, Tls},
    error::one_line,
    http_clients::{HttpClientFactory, ProxyPolicy},
    redacted,
    reloading_file::Reload,
};

/// No token is longer: whatever is, is something else.
const LONGEST: usize = 1 << 20;

/// A way to such an endpoint.
#[derive(Debug)]
pub(super) struct TokenEndpoint {
    dialer: HttpClientFactory,
    limit: Duration,
    advice: &'static str,
}

/// What is sent there.
#[derive(Debug)]
pub(super) struct TokenRequest<'a> {
    pub(super) method: Method,
    pub(super) url: Url,
    pub(super) headers: Vec<(HeaderName, HeaderValue)>,
    pub(super) body: Option<String>,
    /// What must not be in an error, should the other side repeat it.
    pub(super) secrets: &'a [&'a Secret],
}

impl<'a> TokenRequest<'a> {
    /// A question without a body.
    pub(super) fn get(url: Url) -> Self {
        Self { method: Method::GET, url, headers: Vec::new(), body: None, secrets: &[] }
    }

    /// A form.
    pub(super) fn form(url: Url, fields: &[(&str, &str)], secrets: &'a [&'a Secret]) -> Self {
        let body = form_urlencoded::Serializer::new(String::new()).extend_pairs(fields).finish();
        let form = HeaderValue::from_static("application/x-www-form-urlencoded");
        let headers = vec![(reqwest::header::CONTENT_TYPE, form)];
        Self { method: Method::POST, url, headers, body: Some(body), secrets }
    }

    /// With one more header, which no log shows.
    pub(super) fn with(mut self, name: &'static str, value: &str) -> Result<Self, TransportError> {
        self.headers.push((HeaderName::from_static(name), hidden(name, value)?));
        Ok(self)
    }
}

impl TokenEndpoint {
    /// `advice` is what to do when it refuses.
    pub(super) fn new(
        tls: Tls,
        url: &Url,
        reach: ProxyPolicy,
        pace: AuthTiming,
        advice: &'static str,
    ) -> Self {
        let dialer = HttpClientFactory::new(tls, url, reach, pace.reload_interval);
        Self { dialer, limit: pace.token_timeout, advice }
    }

    /// The answer, if it is one.
    pub(super) async fn text(&self, asked: TokenRequest<'_>) -> Result<String, TransportError> {
        let from = redacted(&asked.url);
        let (client, _) = self.dialer.client(Reload::IfDue).await?;
        let mut request = client.request(asked.method, asked.url).timeout(self.limit);
        for (name, value) in asked.headers {
            request = request.header(name, value);
        }
        if let Some(body) = asked.body {
            request = request.body(body);
        }
        let failed = |error: &reqwest::Error| TransportError::of_request(&from, error, self.limit);
        let mut response = request.send().await.map_err(|error| failed(&error))?;
        let status = response.status();
        let mut body = Vec::new();
        while let Some(part) = response.chunk().await.map_err(|error| failed(&error))? {
            body.extend_from_slice(&part);
            if body.len() > LONGEST {
                return Err(self.refused(
                    &from,
                    status,
                    "its answer is longer than a token can be",
                ));
            }
        }
        let body = String::from_utf8_lossy(&body).into_owned();
        if status == StatusCode::OK {
            return Ok(body);
        }
        let said = reason(&body).map(|said| {
            asked
                .secrets
                .iter()
                .filter(|secret| !secret.is_empty())
                .fold(said, |said, secret| said.replace(secret.reveal(), "..."))
        });
        let why = match said {
            Some(said) => format!("{}: {}", status.as_u16(), one_line(&said)),
            None => format!("it answers {status}"),
        };
        Err(self.refused(&from, status, &why))
    }

    /// The answer as JSON.
    pub(super) async fn json(&self, asked: TokenRequest<'_>) -> Result<Value, TransportError> {
        let from = redacted(&asked.url);
        let text = self.text(asked).await?;
        serde_json::from_str(&text)
            .map_err(|_| self.refused(&from, StatusCode::OK, "its answer is not JSON"))
    }

    /// A refusal, also of an answer that has not what it should have.
    pub(super) fn refused(&self, from: &str, status: StatusCode, why: &str) -> TransportError {
        let passing = status.is_server_error() || status == StatusCode::TOO_MANY_REQUESTS;
        let advice = if passing { "it is asked again later" } else { self.advice };
        TransportError::TokenDenied { from: from.to_owned(), why: why.to_owned(), advice, passing }
    }
}

/// A word as a header that no log shows.
pub(super) fn hidden(what: &str, value: &str) -> Result<HeaderValue, TransportError> {
    let mut value = HeaderValue::from_str(value)
        .map_err(|_| TransportError::setting(what, "it has characters that no header can have"))?;
    value.set_sensitive(true);
    Ok(value)
}

/// What was set as an address.
pub(super) fn url(what: &str, text: &str) -> Result<Url, TransportError> {
    let wrong = |why: String| TransportError::setting(what, why);
    let url = Url::parse(text).map_err(|error| wrong(error.to_string()))?;
    if !matches!(url.scheme(), "http" | "https") || !url.has_host() {
        return Err(wrong("it does not begin with http:// or https:// and a host".to_owned()));
    }
    Ok(url)
}

/// Why it says no, in the words of OAuth (RFC 6749), Google, AWS or Azure.
fn reason(body: &str) -> Option<String> {
    let Ok(answer) = serde_json::from_str::<Value>(body) else {
        let code = element(body, "Code")?;
        return Some(format!("{code}: {}", element(body, "Message").unwrap_or_default()));
    };
    let text = |value: &Value| value.as_str().map(str::to_owned);
    let error = &answer["error"];
    let code = text(error).or_else(|| text(&error["status"])).or_else(|| text(&answer["code"]));
    let words = text(&answer["error_description"])
        .or_else(|| text(&error["message"]))
        .or_else(|| text(&answer["message"]));
    match (code, words) {
        (Some(code), Some(words)) => Some(format!("{code}: {words}")),
        (code, words) => code.or(words),
    }
}

/// The text of an XML element. What is looked for has no attributes, and nothing in it is escaped.
pub(super) fn element<'a>(xml: &'a str, name: &str) -> Option<&'a str> {
    let (_, rest) = xml.split_once(&format!("<{name}>"))?;
    rest.split_once(&format!("</{name}>")).map(|(text, _)| text.trim())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_dialect_of_refusal_is_understood() {
        for (body, told) in [
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
            assert_eq!(reason(body).as_deref(), told, "{body}");
        }
    }
}
