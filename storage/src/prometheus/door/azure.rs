//! Tokens of Azure: for a workload identity by the cluster's own token, for a managed identity from the metadata.

use reqwest::Url;

use super::{
    DoorError, Secret,
    config::{Azure, Pace, Tls},
    exchange::{Asked, Exchange, url},
    file::{Fresh, Held},
    oauth::bearer,
    tls::Reach,
    token::{Cache, Fetched},
};

/// The metadata's version that every machine of Azure has.
const VERSION: &str = "2018-02-01";
const ASSERTION: &str = "urn:ietf:params:oauth:client-assertion-type:jwt-bearer";

/// An identity of Azure.
#[derive(Debug)]
pub(super) struct Identity {
    way: Way,
    exchange: Exchange,
    cache: Cache<Secret>,
}

#[derive(Debug)]
enum Way {
    Federated { url: Url, client: String, scope: String, token: Held },
    Managed { url: Url },
}

impl Identity {
    pub(super) fn new(azure: Azure, pace: Pace) -> Result<Self, DoorError> {
        let client = azure.client.clone();
        let (way, exchange) = if let Some(path) = azure.federated_token {
            let missing =
                |what| DoorError::setting(what, "it is not set, and a federated token needs it");
            let client = client.ok_or_else(|| missing("Azure's client id (AZURE_CLIENT_ID)"))?;
            let tenant =
                azure.tenant.ok_or_else(|| missing("Azure's tenant id (AZURE_TENANT_ID)"))?;
            let authority = azure.authority.trim_end_matches('/');
            let url = url("Azure's authority", &format!("{authority}/{tenant}/oauth2/v2.0/token"))?;
            let advice =
                "check client id, tenant id and the federated credential of this service account";
            let exchange = Exchange::new(Tls::default(), &url, Reach::Far, pace, advice);
            let token = Held::new("the federated token", path.into(), pace.look);
            (Way::Federated { url, client, scope: azure.scope, token }, exchange)
        } else {
            let endpoint = azure.metadata.trim_end_matches('/');
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
            let exchange = Exchange::new(Tls::default(), &url, Reach::Near, pace, advice);
            (Way::Managed { url }, exchange)
        };
        Ok(Self { way, exchange, cache: Cache::new(pace.look) })
    }

    /// The token, and how often it changed until now.
    pub(super) async fn token(&self, fresh: Fresh) -> Result<(Secret, u64), DoorError> {
        let (assertion, changes) = match &self.way {
            Way::Federated { token, .. } => token.read(fresh).await?,
            Way::Managed { .. } => (Secret::default(), 0),
        };
        let (token, fetches) = self.cache.get(fresh, changes, self.fetch(&assertion)).await?;
        Ok((token, changes + fetches))
    }

    async fn fetch(&self, assertion: &Secret) -> Result<Fetched<Secret>, DoorError> {
        let secrets = [assertion];
        let (url, asked) = match &self.way {
            Way::Federated { url, client, scope, .. } => {
                let fields = [
                    ("grant_type", "client_credentials"),
                    ("client_id", client.as_str()),
                    ("scope", scope.as_str()),
                    ("client_assertion_type", ASSERTION),
                    ("client_assertion", assertion.reveal()),
                ];
                (url, Asked::form(url.clone(), &fields, &secrets))
            }
            Way::Managed { url } => (url, Asked::get(url.clone()).with("metadata", "true")?),
        };
        let answer = self.exchange.json(asked).await?;
        bearer(&self.exchange, url, &answer)
    }
}
