//! Azure tokens: workload identity exchanges a service account token, managed identity uses the metadata server.

use reqwest::Url;

use super::{
    Secret, TransportError,
    config::{AuthTiming, Azure},
    oauth::bearer,
    reloading_file::{Reload, ReloadingFile},
    token_cache::{FetchedToken, TokenCache},
    token_endpoint::{TokenEndpoint, TokenRequest, url},
};

/// A metadata API version that every Azure VM supports.
const VERSION: &str = "2018-02-01";
const ASSERTION: &str = "urn:ietf:params:oauth:client-assertion-type:jwt-bearer";

/// Gets tokens for an Azure identity.
#[derive(Debug)]
pub(super) struct AzureAuthenticator {
    mode: IdentityMode,
    exchange: TokenEndpoint,
    cache: TokenCache<Secret>,
}

#[derive(Debug)]
enum IdentityMode {
    Federated { url: Url, client: String, scope: String, token: ReloadingFile },
    Managed { url: Url },
}

impl AzureAuthenticator {
    pub(super) fn new(azure: Azure, timing: AuthTiming) -> Result<Self, TransportError> {
        let client = azure.client_id.clone();
        let (mode, exchange) = if let Some(path) = azure.federated_token_file {
            let missing = |what| {
                TransportError::setting(what, "it is not set, and workload identity needs it")
            };
            let client = client.ok_or_else(|| missing("the Azure client ID (AZURE_CLIENT_ID)"))?;
            let tenant =
                azure.tenant_id.ok_or_else(|| missing("the Azure tenant ID (AZURE_TENANT_ID)"))?;
            let authority = azure.authority_host.trim_end_matches('/');
            let url = url(
                "the Azure authority host",
                &format!("{authority}/{tenant}/oauth2/v2.0/token"),
            )?;
            let advice = "check the client ID, the tenant ID and the federated credential of this service account";
            let exchange = TokenEndpoint::new(&url, timing, advice);
            let token =
                ReloadingFile::new("the federated token", path.into(), timing.reload_interval);
            (IdentityMode::Federated { url, client, scope: azure.scope, token }, exchange)
        } else {
            let endpoint = azure.metadata_endpoint.trim_end_matches('/');
            let mut url = url(
                "the Azure metadata server",
                &format!("{endpoint}/metadata/identity/oauth2/token"),
            )?;
            let resource = azure.scope.strip_suffix("/.default").unwrap_or(&azure.scope);
            url.query_pairs_mut()
                .append_pair("api-version", VERSION)
                .append_pair("resource", resource);
            if let Some(client) = &client {
                url.query_pairs_mut().append_pair("client_id", client);
            }
            let advice = "assign the managed identity to the node, or set up workload identity";
            let exchange = TokenEndpoint::local(&url, timing, advice);
            (IdentityMode::Managed { url }, exchange)
        };
        Ok(Self { mode, exchange, cache: TokenCache::new(timing.reload_interval) })
    }

    /// Returns the token, and how often it has changed so far.
    pub(super) async fn token(&self, reload: Reload) -> Result<(Secret, u64), TransportError> {
        let (assertion, changes) = match &self.mode {
            IdentityMode::Federated { token, .. } => token.read(reload).await?,
            IdentityMode::Managed { .. } => (Secret::default(), 0),
        };
        let (token, fetches) = self.cache.get(reload, changes, self.fetch(&assertion)).await?;
        Ok((token, changes + fetches))
    }

    async fn fetch(&self, assertion: &Secret) -> Result<FetchedToken<Secret>, TransportError> {
        let secrets = [assertion];
        let (url, request) = match &self.mode {
            IdentityMode::Federated { url, client, scope, .. } => {
                let fields = [
                    ("grant_type", "client_credentials"),
                    ("client_id", client.as_str()),
                    ("scope", scope.as_str()),
                    ("client_assertion_type", ASSERTION),
                    ("client_assertion", assertion.reveal()),
                ];
                (url, TokenRequest::form(url.clone(), &fields, &secrets))
            }
            IdentityMode::Managed { url } => {
                (url, TokenRequest::get(url.clone()).with("metadata", "true")?)
            }
        };
        let response = self.exchange.json(request).await?;
        bearer(&self.exchange, url, &response)
    }
}
