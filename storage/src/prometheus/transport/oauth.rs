//! OAuth 2 client credentials (RFC 6749, section 4.4), and parsing of token responses.

use std::{
    sync::atomic::{AtomicBool, Ordering},
    time::Duration,
};

use base64::{Engine as _, engine::general_purpose::STANDARD};
use reqwest::{StatusCode, Url};
use serde_json::Value;

use super::{
    ProxyPolicy, Secret, TransportError,
    config::{AuthTiming, OAuth2},
    redacted,
    reloading_file::{Reload, ReloadingFile},
    token_cache::{FetchedToken, TokenCache},
    token_endpoint::{TokenEndpoint, TokenRequest, url},
};

/// Gets tokens from an authorization server with client credentials.
#[derive(Debug)]
pub(super) struct OAuth2Authenticator {
    url: Url,
    id: String,
    secret: ReloadingFile,
    fields: Vec<(String, String)>,
    exchange: TokenEndpoint,
    /// Whether the server expects the secret in the form. The standard requires support for the header.
    secret_in_form: AtomicBool,
    cache: TokenCache<Secret>,
}

impl OAuth2Authenticator {
    pub(super) fn new(oauth: OAuth2, timing: AuthTiming) -> Result<Self, TransportError> {
        let url = url("the token URL", &oauth.token_url)?;
        let advice = "check the token URL, the client ID and the client secret";
        let exchange =
            TokenEndpoint::with_tls(oauth.tls, &url, ProxyPolicy::FromEnvironment, timing, advice);
        let mut fields = vec![("grant_type".to_owned(), "client_credentials".to_owned())];
        if !oauth.scopes.is_empty() {
            fields.push(("scope".to_owned(), oauth.scopes.join(" ")));
        }
        fields.extend(oauth.parameters);
        Ok(Self {
            url,
            id: oauth.client_id,
            secret: ReloadingFile::new(
                "the client secret",
                oauth.client_secret,
                timing.reload_interval,
            ),
            fields,
            exchange,
            secret_in_form: AtomicBool::new(false),
            cache: TokenCache::new(timing.reload_interval),
        })
    }

    /// Returns the token, and how often it has changed so far.
    pub(super) async fn token(&self, reload: Reload) -> Result<(Secret, u64), TransportError> {
        let (secret, changes) = self.secret.read(reload).await?;
        let (token, fetches) = self.cache.get(reload, changes, self.fetch(&secret)).await?;
        Ok((token, changes + fetches))
    }

    async fn fetch(&self, secret: &Secret) -> Result<FetchedToken<Secret>, TransportError> {
        let in_form = self.secret_in_form.load(Ordering::Relaxed);
        let mut response = self.request_token(secret, in_form).await;
        if matches!(response, Err(TransportError::TokenDenied { passing: false, .. }))
            && let Ok(other) = self.request_token(secret, !in_form).await
        {
            self.secret_in_form.store(!in_form, Ordering::Relaxed);
            response = Ok(other);
        }
        let response = response?;
        bearer(&self.exchange, &self.url, &response)
    }

    async fn request_token(&self, secret: &Secret, in_form: bool) -> Result<Value, TransportError> {
        let mut fields: Vec<_> =
            self.fields.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect();
        if in_form {
            fields.push(("client_id", &self.id));
            fields.push(("client_secret", secret.reveal()));
        }
        let secrets = [secret];
        let mut request = TokenRequest::form(self.url.clone(), &fields, &secrets);
        if !in_form {
            // The standard requires form encoding of both before they are joined (section 2.3.1).
            let encoded =
                |text: &str| form_urlencoded::byte_serialize(text.as_bytes()).collect::<String>();
            let basic = basic(&encoded(&self.id), &encoded(secret.reveal()));
            request = request.with("authorization", basic.reveal())?;
        }
        self.exchange.json(request).await
    }
}

/// The value of an `Authorization` header for basic authentication.
pub(super) fn basic(user: &str, password: &str) -> Secret {
    format!("Basic {}", STANDARD.encode(format!("{user}:{password}"))).into()
}

/// Parses the token in a response.
pub(super) fn bearer(
    exchange: &TokenEndpoint,
    url: &Url,
    response: &Value,
) -> Result<FetchedToken<Secret>, TransportError> {
    let token = response["access_token"].as_str().filter(|token| !token.is_empty());
    let token = token.ok_or_else(|| {
        exchange.refused(&redacted(url), StatusCode::OK, "the response has no access_token")
    })?;
    // The Azure metadata server returns the number as a string.
    let expires = &response["expires_in"];
    let seconds = expires.as_u64().or_else(|| expires.as_str()?.parse().ok());
    Ok(FetchedToken { value: token.into(), expires_in: seconds.map(Duration::from_secs) })
}
