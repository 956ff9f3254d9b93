//! Google tokens: from the metadata server, a service account key, or workload identity federation.

mod service_account;

use serde::Deserialize;
use serde_json::{Value, json};

use super::{
    Secret, TransportError, WallClock,
    cached_token::{FetchedToken, TokenSource},
    config::{AuthTiming, Google},
    reloading_file::{Reload, ReloadingFile},
    token_endpoint::{TokenEndpoint, url},
};

const TOKEN_PATH: &str = "/computeMetadata/v1/instance/service-accounts/default/token";
const CLOUD_PLATFORM_SCOPE: &str = "https://www.googleapis.com/auth/cloud-platform";
const ADVICE: &str = "check the service account, its roles and its binding to this workload";

#[derive(Debug)]
pub(super) struct GoogleAccount {
    google: Google,
    credentials: Option<ReloadingFile>,
    timing: AuthTiming,
    clock: WallClock,
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

impl TokenSource for GoogleAccount {
    type Token = Secret;

    async fn secrets(&self, reload: Reload) -> Result<Vec<Secret>, TransportError> {
        match &self.credentials {
            Some(file) => Ok(vec![file.read(reload).await?]),
            None => Ok(Vec::new()),
        }
    }

    async fn fetch(&self, secrets: &[Secret]) -> Result<FetchedToken<Secret>, TransportError> {
        match (&self.credentials, secrets) {
            (Some(source), [file]) => self.exchange_file(source, file).await,
            _ => self.ask_metadata().await,
        }
    }
}

impl GoogleAccount {
    pub(super) fn new(google: Google, timing: AuthTiming, clock: WallClock) -> Self {
        let credentials = google.credentials_file.clone().map(|path| {
            ReloadingFile::new("the Google credentials file", path.into(), timing.reload_interval)
        });
        Self { google, credentials, timing, clock }
    }

    async fn ask_metadata(&self) -> Result<FetchedToken<Secret>, TransportError> {
        let host = self.google.metadata_endpoint.trim_end_matches('/');
        let mut url = url("the Google metadata server", &format!("{host}{TOKEN_PATH}"))?;
        url.query_pairs_mut().append_pair("scopes", &self.google.scope);
        let endpoint = TokenEndpoint::local(url, self.timing, ADVICE);
        endpoint.bearer(endpoint.get(&[]).with("metadata-flavor", "Google")?).await
    }

    async fn exchange_file(
        &self,
        source: &ReloadingFile,
        file: &Secret,
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
                let endpoint = self.endpoint("token_uri", &account.token_uri)?;
                let grant = "urn:ietf:params:oauth:grant-type:jwt-bearer";
                let fields = [("grant_type", grant), ("assertion", assertion.reveal())];
                endpoint.bearer(endpoint.form(&fields, std::slice::from_ref(&assertion))).await
            }
            CredentialsFile::ExternalAccount(external) => {
                self.exchange_token(source, &external).await
            }
        }
    }

    /// Exchanges a token of the cluster for a Google token (RFC 8693), and impersonates a service account if configured.
    async fn exchange_token(
        &self,
        credentials: &ReloadingFile,
        external: &ExternalAccount,
    ) -> Result<FetchedToken<Secret>, TransportError> {
        let CredentialSource { file, format } = &external.credential_source;
        let path = file
            .clone()
            .ok_or_else(|| credentials.complain("its credential_source has no file"))?;
        let source =
            ReloadingFile::new("the token for Google", path.into(), self.timing.reload_interval);
        let mut token = source.read(Reload::Now).await?;
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
        let endpoint = self.endpoint("token_url", &external.token_url)?;
        let request = endpoint.form(&fields, std::slice::from_ref(&token));
        let first = endpoint.bearer(request).await?;
        match impersonated {
            Some(url) => self.impersonate(url, &first.value).await,
            None => Ok(first),
        }
    }

    async fn impersonate(
        &self,
        url: &str,
        first: &Secret,
    ) -> Result<FetchedToken<Secret>, TransportError> {
        let endpoint = self.endpoint("service_account_impersonation_url", url)?;
        let body = json!({ "scope": [self.google.scope] }).to_string();
        let request = endpoint.post("application/json", body, std::slice::from_ref(first));
        let bearer = format!("Bearer {}", first.reveal());
        let response = endpoint.json(request.with("authorization", &bearer)?).await?;
        let token = response["accessToken"].as_str();
        let token = token.ok_or_else(|| endpoint.refused("the response has no accessToken"))?;
        let end = response["expireTime"].as_str().and_then(|end| end.parse().ok());
        Ok(FetchedToken { value: token.into(), expires_in: end.map(|end| self.clock.until(end)) })
    }

    /// The endpoint in this field of the credentials.
    fn endpoint(&self, field: &str, address: &str) -> Result<TokenEndpoint, TransportError> {
        let url = url(&format!("{field} in the Google credentials"), address)?;
        Ok(TokenEndpoint::new(url, self.timing, ADVICE))
    }
}
