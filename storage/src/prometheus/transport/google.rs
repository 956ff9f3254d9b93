//! Tokens of Google: from the metadata server, by a service account's key, or for a token of the cluster.

mod service_account;

use reqwest::{Method, StatusCode, Url, header::CONTENT_TYPE};
use serde::Deserialize;
use serde_json::{Value, json};

use super::{
    Secret, TransportError, WallClock,
    config::{AuthTiming, Google, Tls},
    http_clients::ProxyPolicy,
    oauth::bearer,
    redacted,
    reloading_file::{Reload, ReloadingFile},
    token_cache::{FetchedToken, TokenCache},
    token_endpoint::{TokenEndpoint, TokenRequest, hidden, url},
};

const TOKEN_PATH: &str = "/computeMetadata/v1/instance/service-accounts/default/token";
const CLOUD_PLATFORM_SCOPE: &str = "https://www.googleapis.com/auth/cloud-platform";
const ADVICE: &str = "check the service account, its rights and its binding to this workload";

/// A service account of Google.
#[derive(Debug)]
pub(super) struct GoogleAuthenticator {
    google: Google,
    credentials: Option<ReloadingFile>,
    pace: AuthTiming,
    clock: WallClock,
    cache: TokenCache<Secret>,
}

/// A file of credentials, as Google's console and `gcloud` write it.
#[derive(Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
enum CredentialsFile {
    ServiceAccount(service_account::ServiceAccount),
    ExternalAccount(ExternalAccount),
}

/// How a token of the cluster is exchanged.
#[derive(Deserialize)]
struct ExternalAccount {
    audience: String,
    subject_token_type: String,
    token_url: String,
    service_account_impersonation_url: Option<String>,
    credential_source: CredentialSource,
}

/// Where the token of the cluster is. A URL or a program is not read: a file must not decide whom we call.
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
    pub(super) fn new(google: Google, pace: AuthTiming, now: WallClock) -> Self {
        let credentials = google.credentials_file.clone().map(|path| {
            ReloadingFile::new("Google's credentials", path.into(), pace.reload_interval)
        });
        Self { google, credentials, pace, clock: now, cache: TokenCache::new(pace.reload_interval) }
    }

    /// The token, and how often it changed until now.
    pub(super) async fn token(&self, fresh: Reload) -> Result<(Secret, u64), TransportError> {
        let (file, changes) = match &self.credentials {
            Some(held) => {
                let (file, changes) = held.read(fresh).await?;
                (Some((held, file)), changes)
            }
            None => (None, 0),
        };
        let fetch = async {
            match &file {
                Some((held, file)) => self.exchange_file(held, file, fresh).await,
                None => self.ask_metadata().await,
            }
        };
        let (token, fetches) = self.cache.get(fresh, changes, fetch).await?;
        Ok((token, changes + fetches))
    }

    async fn ask_metadata(&self) -> Result<FetchedToken<Secret>, TransportError> {
        let host = self.google.metadata_endpoint.trim_end_matches('/');
        let mut url = url("Google's metadata server", &format!("{host}{TOKEN_PATH}"))?;
        url.query_pairs_mut().append_pair("scopes", &self.google.scope);
        let exchange =
            TokenEndpoint::new(Tls::default(), &url, ProxyPolicy::Never, self.pace, ADVICE);
        let asked = TokenRequest::get(url.clone()).with("metadata-flavor", "Google")?;
        let answer = exchange.json(asked).await?;
        bearer(&exchange, &url, &answer)
    }

    async fn exchange_file(
        &self,
        held: &ReloadingFile,
        file: &Secret,
        fresh: Reload,
    ) -> Result<FetchedToken<Secret>, TransportError> {
        // Words of serde may repeat what is in the file: only where it is wrong is told.
        let credentials = serde_json::from_str(file.reveal()).map_err(|error| {
            let place = format!("line {}, column {}", error.line(), error.column());
            held.complain(format!(
                "at {place} it is neither a service account's key nor an external account with a file"
            ))
        })?;
        match credentials {
            CredentialsFile::ServiceAccount(account) => {
                let assertion = account
                    .assertion(&self.google.scope, (self.clock.0)())
                    .map_err(|why| held.complain(why))?;
                let url = url("Google's token_uri", &account.token_uri)?;
                let grant = "urn:ietf:params:oauth:grant-type:jwt-bearer";
                let fields = [("grant_type", grant), ("assertion", assertion.reveal())];
                self.post(url, &fields, &[&assertion]).await
            }
            CredentialsFile::ExternalAccount(external) => {
                self.exchange_token(held, &external, fresh).await
            }
        }
    }

    /// A token of the cluster for one of Google (RFC 8693), and that for one of a service account if it says so.
    async fn exchange_token(
        &self,
        held: &ReloadingFile,
        external: &ExternalAccount,
        fresh: Reload,
    ) -> Result<FetchedToken<Secret>, TransportError> {
        let CredentialSource { file, format } = &external.credential_source;
        let path =
            file.clone().ok_or_else(|| held.complain("its credential_source has no file"))?;
        let source =
            ReloadingFile::new("the token for Google", path.into(), self.pace.reload_interval);
        let (mut token, _) = source.read(fresh).await?;
        if let Some(field) = &format.subject_token_field_name {
            let answer: Option<Value> = serde_json::from_str(token.reveal()).ok();
            let field = answer.as_ref().and_then(|answer| answer[field].as_str());
            token =
                field.ok_or_else(|| source.complain("it has not the field of the token"))?.into();
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
        let at = url("Google's token_url", &external.token_url)?;
        let first = self.post(at, &fields, &[&token]).await?;
        let Some(text) = impersonated else { return Ok(first) };
        let url = url("Google's service_account_impersonation_url", text)?;
        self.impersonate(url, &first.value).await
    }

    async fn impersonate(
        &self,
        url: Url,
        first: &Secret,
    ) -> Result<FetchedToken<Secret>, TransportError> {
        let exchange = TokenEndpoint::new(
            Tls::default(),
            &url,
            ProxyPolicy::FromEnvironment,
            self.pace,
            ADVICE,
        );
        let bearer = format!("Bearer {}", first.reveal());
        let secrets = [first];
        let asked = TokenRequest {
            method: Method::POST,
            url: url.clone(),
            headers: vec![(CONTENT_TYPE, hidden("the content type", "application/json")?)],
            body: Some(json!({ "scope": [self.google.scope] }).to_string()),
            secrets: &secrets,
        };
        let answer = exchange.json(asked.with("authorization", &bearer)?).await?;
        let token = answer["accessToken"].as_str().ok_or_else(|| {
            exchange.refused(
                &redacted(&url),
                StatusCode::OK,
                "there is no accessToken in its answer",
            )
        })?;
        let end = answer["expireTime"].as_str().and_then(|end| end.parse().ok());
        Ok(FetchedToken { value: token.into(), expires_in: end.map(|end| self.clock.until(end)) })
    }

    async fn post(
        &self,
        url: Url,
        fields: &[(&str, &str)],
        secrets: &[&Secret],
    ) -> Result<FetchedToken<Secret>, TransportError> {
        let exchange = TokenEndpoint::new(
            Tls::default(),
            &url,
            ProxyPolicy::FromEnvironment,
            self.pace,
            ADVICE,
        );
        let answer = exchange.json(TokenRequest::form(url.clone(), fields, secrets)).await?;
        bearer(&exchange, &url, &answer)
    }
}
