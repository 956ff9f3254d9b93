//! OAuth 2 client credentials (RFC 6749, section 4.4).

use std::sync::atomic::{AtomicBool, Ordering};

use base64::{Engine as _, engine::general_purpose::STANDARD};

use super::{
    Secret, TransportError, TransportErrorKind,
    cached_token::{FetchedToken, TokenSource},
    config::{AuthTiming, OAuth2},
    reloading_file::{Reload, ReloadingFile},
    token_endpoint::{TokenEndpoint, url},
};

#[derive(Debug)]
pub(super) struct OAuth2Client {
    id: String,
    secret: ReloadingFile,
    fields: Vec<(String, String)>,
    endpoint: TokenEndpoint,
    /// Whether the server expects the secret in the form. The standard requires support for the header.
    secret_in_form: AtomicBool,
}

impl OAuth2Client {
    pub(super) fn new(oauth: OAuth2, timing: AuthTiming) -> Result<Self, TransportError> {
        let url = url("the token URL", &oauth.token_url)?;
        let advice = "check the token URL, the client ID and the client secret";
        let endpoint = TokenEndpoint::with_tls(oauth.tls, url, timing, advice);
        let mut fields = vec![("grant_type".to_owned(), "client_credentials".to_owned())];
        if !oauth.scopes.is_empty() {
            fields.push(("scope".to_owned(), oauth.scopes.join(" ")));
        }
        fields.extend(oauth.parameters);
        let interval = timing.reload_interval;
        let secret = ReloadingFile::new("the client secret", oauth.client_secret, interval);
        let secret_in_form = AtomicBool::new(false);
        Ok(Self { id: oauth.client_id, secret, fields, endpoint, secret_in_form })
    }

    async fn request_token(
        &self,
        secrets: &[Secret],
        in_form: bool,
    ) -> Result<FetchedToken<Secret>, TransportError> {
        let secret = secrets.first().map_or("", Secret::reveal);
        let mut fields: Vec<_> =
            self.fields.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect();
        if in_form {
            fields.extend([("client_id", self.id.as_str()), ("client_secret", secret)]);
        }
        let mut request = self.endpoint.form(&fields, secrets);
        if !in_form {
            // The standard requires form encoding of both before they are joined (section 2.3.1).
            let encoded =
                |text: &str| form_urlencoded::byte_serialize(text.as_bytes()).collect::<String>();
            let basic = basic(&encoded(&self.id), &encoded(secret));
            request = request.with("authorization", basic.reveal())?;
        }
        self.endpoint.bearer(request).await
    }
}

impl TokenSource for OAuth2Client {
    type Token = Secret;

    async fn secrets(&self, reload: Reload) -> Result<Vec<Secret>, TransportError> {
        Ok(vec![self.secret.read(reload).await?])
    }

    async fn fetch(&self, secrets: &[Secret]) -> Result<FetchedToken<Secret>, TransportError> {
        let in_form = self.secret_in_form.load(Ordering::Relaxed);
        let token = self.request_token(secrets, in_form).await;
        if token.as_ref().is_err_and(|error| error.kind == TransportErrorKind::TokenDenied)
            && let Ok(other) = self.request_token(secrets, !in_form).await
        {
            self.secret_in_form.store(!in_form, Ordering::Relaxed);
            return Ok(other);
        }
        token
    }
}

/// The value of an `Authorization` header for basic authentication.
pub(super) fn basic(user: &str, password: &str) -> Secret {
    format!("Basic {}", STANDARD.encode(format!("{user}:{password}"))).into()
}
