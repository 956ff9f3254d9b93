//! Azure tokens: workload identity exchanges a service account token, managed identity uses the metadata server.

use super::{
    Secret, TransportError,
    cached_token::{FetchedToken, TokenSource},
    config::{AuthTiming, Azure},
    reloading_file::{Reload, ReloadingFile},
    token_endpoint::{TokenEndpoint, url},
};

/// A metadata API version that every Azure VM supports.
const VERSION: &str = "2018-02-01";
const ASSERTION: &str = "urn:ietf:params:oauth:client-assertion-type:jwt-bearer";

#[derive(Debug)]
pub(super) struct AzureIdentity {
    endpoint: TokenEndpoint,
    /// `None` for a managed identity.
    federated: Option<FederatedIdentity>,
}

#[derive(Debug)]
struct FederatedIdentity {
    client: String,
    scope: String,
    token: ReloadingFile,
}

impl AzureIdentity {
    pub(super) fn new(azure: Azure, timing: AuthTiming) -> Result<Self, TransportError> {
        let Some(path) = azure.federated_token_file else {
            let endpoint = azure.metadata_endpoint.trim_end_matches('/');
            let endpoint = format!("{endpoint}/metadata/identity/oauth2/token");
            let mut url = url("the Azure metadata server", &endpoint)?;
            let resource = azure.scope.strip_suffix("/.default").unwrap_or(&azure.scope);
            let query = [("api-version", VERSION), ("resource", resource)].into_iter();
            let client = azure.client_id.as_deref().map(|client| ("client_id", client));
            url.query_pairs_mut().extend_pairs(query.chain(client));
            let advice = "assign the managed identity to the node, or set up workload identity";
            let endpoint = TokenEndpoint::local(url, timing, advice);
            return Ok(Self { endpoint, federated: None });
        };
        let missing =
            |what| TransportError::setting(what, "it is not set, and workload identity needs it");
        let client =
            azure.client_id.ok_or_else(|| missing("the Azure client ID (AZURE_CLIENT_ID)"))?;
        let tenant =
            azure.tenant_id.ok_or_else(|| missing("the Azure tenant ID (AZURE_TENANT_ID)"))?;
        let authority = azure.authority_host.trim_end_matches('/');
        let endpoint = format!("{authority}/{tenant}/oauth2/v2.0/token");
        let url = url("the Azure authority host", &endpoint)?;
        let advice = "check the client ID, the tenant ID and the federated credential of this service account";
        let interval = timing.reload_interval;
        let token = ReloadingFile::new("the federated token", path.into(), interval);
        let federated = Some(FederatedIdentity { client, scope: azure.scope, token });
        Ok(Self { endpoint: TokenEndpoint::new(url, timing, advice), federated })
    }
}

impl TokenSource for AzureIdentity {
    type Token = Secret;

    async fn secrets(&self, reload: Reload) -> Result<Vec<Secret>, TransportError> {
        match &self.federated {
            Some(federated) => Ok(vec![federated.token.read(reload).await?]),
            None => Ok(Vec::new()),
        }
    }

    async fn fetch(&self, secrets: &[Secret]) -> Result<FetchedToken<Secret>, TransportError> {
        let request = match (&self.federated, secrets) {
            (Some(FederatedIdentity { client, scope, .. }), [assertion]) => {
                let fields = [
                    ("grant_type", "client_credentials"),
                    ("client_id", client),
                    ("scope", scope),
                    ("client_assertion_type", ASSERTION),
                    ("client_assertion", assertion.reveal()),
                ];
                self.endpoint.form(&fields, secrets)
            }
            _ => self.endpoint.get(secrets).with("metadata", "true")?,
        };
        self.endpoint.bearer(request).await
    }
}
