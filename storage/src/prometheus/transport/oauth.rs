//! Tokens by client credentials (RFC 6749, section 4.4), and what all answers with such tokens have in common.

use std::{
    sync::atomic::{AtomicBool, Ordering},
    time::Duration,
};

use base64::{Engine as _, engine::general_purpose::STANDARD};
use reqwest::{StatusCode, Url};
use serde_json::Value;

use super::{
    Secret, TransportError,
    config::{AuthTiming, OAuth2},
    http_clients::ProxyPolicy,
    redacted,
    reloading_file::{Reload, ReloadingFile},
    token_cache::{FetchedToken, TokenCache},
    token_endpoint::{TokenEndpoint, TokenRequest, url},
};

/// A client of an authorization server.
#[derive(Debug)]
pub(super) struct OAuth2Authenticator {
    url: Url,
    id: String,
    secret: ReloadingFile,
    fields: Vec<(String, String)>,
    exchange: TokenEndpoint,
    /// Whether the server wants the secret in the form. The standard has it take the header.
    secret_in_form: AtomicBool,
    cache: TokenCache<Secret>,
}

impl OAuth2Authenticator {
    pub(super) fn new(oauth: OAuth2, pace: AuthTiming) -> Result<Self, TransportError> {
        let url = url("the token URL", &oauth.token_url)?;
        let advice = "check the token URL, the client's id and its secret";
        let exchange =
            TokenEndpoint::new(oauth.tls, &url, ProxyPolicy::FromEnvironment, pace, advice);
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
                pace.reload_interval,
            ),
            fields,
            exchange,
            secret_in_form: AtomicBool::new(false),
            cache: TokenCache::new(pace.reload_interval),
        })
    }

    /// The token, and how often it changed until now.
    pub(super) async fn token(&self, fresh: Reload) -> Result<(Secret, u64), TransportError> {
        let (secret, changes) = self.secret.read(fresh).await?;
        let (token, fetches) = self.cache.get(fresh, changes, self.fetch(&secret)).await?;
        Ok((token, changes + fetches))
    }

    async fn fetch(&self, secret: &Secret) -> Result<FetchedToken<Secret>, TransportError> {
        let in_form = self.secret_in_form.load(Ordering::Relaxed);
        let mut answer = self.request_token(secret, in_form).await;
        if matches!(answer, Err(TransportError::TokenDenied { passing: false, .. }))
            && let Ok(other) = self.request_token(secret, !in_form).await
        {
            self.secret_in_form.store(!in_form, Ordering::Relaxed);
            answer = Ok(other);
        }
        let answer = answer?;
        bearer(&self.exchange, &self.url, &answer)
    }

    async fn request_token(&self, secret: &Secret, in_form: bool) -> Result<Value, TransportError> {
        let mut fields: Vec<_> =
            self.fields.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect();
        if in_form {
            fields.push(("client_id", &self.id));
            fields.push(("client_secret", secret.reveal()));
        }
        let secrets = [secret];
        let mut asked = TokenRequest::form(self.url.clone(), &fields, &secrets);
        if !in_form {
            // The standard has both encoded as in a form before they are joined (section 2.3.1).
            let encoded =
                |word: &str| form_urlencoded::byte_serialize(word.as_bytes()).collect::<String>();
            let basic = basic(&encoded(&self.id), &encoded(secret.reveal()));
            asked = asked.with("authorization", basic.reveal())?;
        }
        self.exchange.json(asked).await
    }
}

/// The value of a header that signs in with a name and a password.
pub(super) fn basic(user: &str, password: &str) -> Secret {
    format!("Basic {}", STANDARD.encode(format!("{user}:{password}"))).into()
}

/// The token in an answer.
pub(super) fn bearer(
    exchange: &TokenEndpoint,
    url: &Url,
    answer: &Value,
) -> Result<FetchedToken<Secret>, TransportError> {
    let token = answer["access_token"].as_str().filter(|token| !token.is_empty());
    let token = token.ok_or_else(|| {
        exchange.refused(&redacted(url), StatusCode::OK, "there is no access_token in its answer")
    })?;
    // Azure's metadata server writes the number as a string.
    let expires = &answer["expires_in"];
    let seconds = expires.as_u64().or_else(|| expires.as_str()?.parse().ok());
    Ok(FetchedToken { value: token.into(), expires_in: seconds.map(Duration::from_secs) })
}
