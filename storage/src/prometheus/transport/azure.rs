//! Tokens of Azure: for a workload identity by the cluster's own token, for a managed identity from the metadata.

use reqwest::Url;

use super::{
    Secret, TransportError,
    config::{AuthTiming, Azure, Tls},
    http_clients::ProxyPolicy,
    oauth::bearer,
    reloading_file::{Reload, ReloadingFile},
    token_cache::{FetchedToken, TokenCache},
    token_endpoint::{TokenEndpoint, TokenRequest, url},
};

/// The metadata's version that every machine of Azure has.
const VERSION: &str = "2018-02-01";
const ASSERTION: &str = "urn:ietf:params:oauth:client-assertion-type:jwt-bearer";

/// An identity of Azure.
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
    pub(super) fn new(azure: Azure, pace: AuthTiming) -> Result<Self, TransportError> {
        let client = azure.client_id.clone();
        let (way, exchange) = if let Some(path) = azure.federated_token_file {
            let missing = |what| {
                TransportError::setting(what, "it is not set, and a federated token needs it")
            };
            let client = client.ok_or_else(|| missing("Azure's client id (AZURE_CLIENT_ID)"))?;
            let tenant =
                azure.tenant_id.ok_or_else(|| missing("Azure's tenant id (AZURE_TENANT_ID)"))?;
            let authority = azure.authority_host.trim_end_matches('/');
            let url = url("Azure's authority", &format!("{authority}/{tenant}/oauth2/v2.0/token"))?;
            let advice =
                "check client id, tenant id and the federated credential of this service account";
            let exchange = TokenEndpoint::new(
                Tls::default(),
                &url,
                ProxyPolicy::FromEnvironment,
                pace,
                advice,
            );
            let token =
                ReloadingFile::new("the federated token", path.into(), pace.reload_interval);
            (IdentityMode::Federated { url, client, scope: azure.scope, token }, exchange)
        } else {
            let endpoint = azure.metadata_endpoint.trim_end_matches('/');
            let mut url = url(
                "Azure's metadata server",
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
            let exchange =
                TokenEndpoint::new(Tls::default(), &url, ProxyPolicy::Never, pace, advice);
            (IdentityMode::Managed { url }, exchange)
        };
        Ok(Self { mode: way, exchange, cache: TokenCache::new(pace.reload_interval) })
    }

    /// The token, and how often it changed until now.
    pub(super) async fn token(&self, fresh: Reload) -> Result<(Secret, u64), TransportError> {
        let (assertion, changes) = match &self.mode {
            IdentityMode::Federated { token, .. } => token.read(fresh).await?,
            IdentityMode::Managed { .. } => (Secret::default(), 0),
        };
        let (token, fetches) = self.cache.get(fresh, changes, self.fetch(&assertion)).await?;
        Ok((token, changes + fetches))
    }

    async fn fetch(&self, assertion: &Secret) -> Result<FetchedToken<Secret>, TransportError> {
        let secrets = [assertion];
        let (url, asked) = match &self.mode {
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
        let answer = self.exchange.json(asked).await?;
        bearer(&self.exchange, url, &answer)
    }
}
