//! Google tokens: from the metadata server, a service account key, or workload identity federation.

mod service_account;

use reqwest::{Method, StatusCode, Url, header::CONTENT_TYPE};
use serde::Deserialize;
use serde_json::{Value, json};

use super::{
    Secret, TransportError, WallClock,
    config::{AuthTiming, Google},
    oauth::bearer,
    redacted,
    reloading_file::{Reload, ReloadingFile},
    token_cache::{FetchedToken, TokenCache},
    token_endpoint::{TokenEndpoint, TokenRequest, hidden, url},
};

const TOKEN_PATH: &str = "/computeMetadata/v1/instance/service-accounts/default/token";
const CLOUD_PLATFORM_SCOPE: &str = "https://www.googleapis.com/auth/cloud-platform";
const ADVICE: &str = "check the service account, its roles and its binding to this workload";

/// Gets tokens for a Google service account.
#[derive(Debug)]
pub(super) struct GoogleAuthenticator {
    google: Google,
    credentials: Option<ReloadingFile>,
    timing: AuthTiming,
    clock: WallClock,
    cache: TokenCache<Secret>,
}

/// A credentials file as the Google Cloud console and `gcloud` write it.
#[derive(Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
enum CredentialsFile {
    ServiceAccount(service_account::ServiceAccount),
    ExternalAccount(ExternalAccount),
}

/// Workload identity federation: how to exchange a token of the cluster.
#[derive(Deserialize)]
struct ExternalAccount {
    audience: String,
    subject_token_type: String,
    token_url: String,
    service_account_impersonation_url: Option<String>,
    credential_source: CredentialSource,
}

/// The file with the token of the cluster. URL and executable sources are not supported: a file must not choose what
/// we call.
#[derive(Deserialize)]
struct CredentialSource {
    file: Option<std::path::PathBuf>,
    #[serde(default)]
    format: CredentialFormat,
}

#[derive(Default, Deserialize)]
struct CredentialFormat {
    subject_token_field_name: Option<String>,
}

impl GoogleAuthenticator {
    pub(super) fn new(google: Google, timing: AuthTiming, clock: WallClock) -> Self {
        let credentials = google.credentials_file.clone().map(|path| {
            ReloadingFile::new("the Google credentials file", path.into(), timing.reload_interval)
        });
        Self { google, credentials, timing, clock, cache: TokenCache::new(timing.reload_interval) }
    }

    /// Returns the token, and how often it has changed so far.
    pub(super) async fn token(&self, reload: Reload) -> Result<(Secret, u64), TransportError> {
        let (file, changes) = match &self.credentials {
            Some(source) => {
                let (file, changes) = source.read(reload).await?;
                (Some((source, file)), changes)
            }
            None => (None, 0),
        };
        let fetch = async {
            match &file {
                Some((source, file)) => self.exchange_file(source, file, reload).await,
                None => self.ask_metadata().await,
            }
        };
        let (token, fetches) = self.cache.get(reload, changes, fetch).await?;
        Ok((token, changes + fetches))
    }

    async fn ask_metadata(&self) -> Result<FetchedToken<Secret>, TransportError> {
        let host = self.google.metadata_endpoint.trim_end_matches('/');
        let mut url = url("the Google metadata server", &format!("{host}{TOKEN_PATH}"))?;
        url.query_pairs_mut().append_pair("scopes", &self.google.scope);
        let exchange = TokenEndpoint::local(&url, self.timing, ADVICE);
        let request = TokenRequest::get(url.clone()).with("metadata-flavor", "Google")?;
        let response = exchange.json(request).await?;
        bearer(&exchange, &url, &response)
    }

    async fn exchange_file(
        &self,
        source: &ReloadingFile,
        file: &Secret,
        reload: Reload,
    ) -> Result<FetchedToken<Secret>, TransportError> {
        // Errors of serde may quote the content of the file, so report only the position.
        let credentials = serde_json::from_str(file.reveal()).map_err(|error| {
            let place = format!("line {}, column {}", error.line(), error.column());
            source.complain(format!(
                "at {place} it is neither a service account key nor an external account with a file"
            ))
        })?;
        match credentials {
            CredentialsFile::ServiceAccount(account) => {
                let assertion = account
                    .assertion(&self.google.scope, (self.clock.0)())
                    .map_err(|why| source.complain(why))?;
                let url = url("token_uri in the Google credentials", &account.token_uri)?;
                let grant = "urn:ietf:params:oauth:grant-type:jwt-bearer";
                let fields = [("grant_type", grant), ("assertion", assertion.reveal())];
                self.post(url, &fields, &[&assertion]).await
            }
            CredentialsFile::ExternalAccount(external) => {
                self.exchange_token(source, &external, reload).await
            }
        }
    }

    /// Exchanges a token of the cluster for a Google token (RFC 8693), and impersonates a service account if configured.
    async fn exchange_token(
        &self,
        credentials: &ReloadingFile,
        external: &ExternalAccount,
        reload: Reload,
    ) -> Result<FetchedToken<Secret>, TransportError> {
        let CredentialSource { file, format } = &external.credential_source;
        let path = file
            .clone()
            .ok_or_else(|| credentials.complain("its credential_source has no file"))?;
        let source =
            ReloadingFile::new("the token for Google", path.into(), self.timing.reload_interval);
        let (mut token, _) = source.read(reload).await?;
        if let Some(field) = &format.subject_token_field_name {
            let content: Option<Value> = serde_json::from_str(token.reveal()).ok();
            let field = content.as_ref().and_then(|content| content[field].as_str());
            token =
                field.ok_or_else(|| source.complain("it lacks the field with the token"))?.into();
        }
        let impersonated = external.service_account_impersonation_url.as_deref();
        let scope = if impersonated.is_some() { CLOUD_PLATFORM_SCOPE } else { &self.google.scope };
        let fields = [
            ("grant_type", "urn:ietf:params:oauth:grant-type:token-exchange"),
            ("requested_token_type", "urn:ietf:params:oauth:token-type:access_token"),
            ("audience", external.audience.as_str()),
            ("scope", scope),
            ("subject_token_type", external.subject_token_type.as_str()),
            ("subject_token", token.reveal()),
        ];
        let at = url("token_url in the Google credentials", &external.token_url)?;
        let first = self.post(at, &fields, &[&token]).await?;
        let Some(text) = impersonated else { return Ok(first) };
        let url = url("service_account_impersonation_url in the Google credentials", text)?;
        self.impersonate(url, &first.value).await
    }

    async fn impersonate(
        &self,
        url: Url,
        first: &Secret,
    ) -> Result<FetchedToken<Secret>, TransportError> {
        let exchange = TokenEndpoint::new(&url, self.timing, ADVICE);
        let bearer = format!("Bearer {}", first.reveal());
        let secrets = [first];
        let request = TokenRequest {
            method: Method::POST,
            url: url.clone(),
            headers: vec![(CONTENT_TYPE, hidden("the content type", "application/json")?)],
            body: Some(json!({ "scope": [self.google.scope] }).to_string()),
            secrets: &secrets,
        };
        let response = exchange.json(request.with("authorization", &bearer)?).await?;
        let token = response["accessToken"].as_str().ok_or_else(|| {
            exchange.refused(&redacted(&url), StatusCode::OK, "the response has no accessToken")
        })?;
        let end = response["expireTime"].as_str().and_then(|end| end.parse().ok());
        Ok(FetchedToken { value: token.into(), expires_in: end.map(|end| self.clock.until(end)) })
    }

    async fn post(
        &self,
        url: Url,
        fields: &[(&str, &str)],
        secrets: &[&Secret],
    ) -> Result<FetchedToken<Secret>, TransportError> {
        let exchange = TokenEndpoint::new(&url, self.timing, ADVICE);
        let response = exchange.json(TokenRequest::form(url.clone(), fields, secrets)).await?;
        bearer(&exchange, &url, &response)
    }
}
