//! How a command that asks once reaches a cluster: as kubectl does, and with little patience.

use std::{path::PathBuf, time::Duration};

use kube::{
    Client, Config,
    config::{KubeConfigOptions, Kubeconfig},
};

/// How long a connection may take.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(4);
/// How long each answer may take.
pub(crate) const RESPONSE_TIMEOUT: Duration = Duration::from_secs(10);

/// How to reach a cluster.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ClusterOptions {
    /// The file that says it; none is `KUBECONFIG`, the user's own file, or the cluster that this runs in.
    pub kubeconfig: Option<PathBuf>,
    /// Which context of it; none is the current one.
    pub context: Option<String>,
}

/// No cluster is known.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct NoCluster(pub String);

/// A cluster that can be asked.
#[derive(Clone)]
pub struct Cluster {
    /// Asks it.
    pub client: Client,
    /// Where it is, for messages.
    pub address: String,
    /// The namespace that is meant when none is named.
    pub namespace: String,
}

impl std::fmt::Debug for Cluster {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Cluster").field("address", &self.address).finish_non_exhaustive()
    }
}

/// Finds the cluster as kubectl does. `agent` is who asks.
pub async fn connect(reach: &ClusterOptions, agent: &'static str) -> Result<Cluster, NoCluster> {
    let refused = |why: String| NoCluster(why);
    let options = KubeConfigOptions { context: reach.context.clone(), ..Default::default() };
    let mut found = match &reach.kubeconfig {
        Some(path) => {
            let place = |why: String| refused(format!("--kubeconfig={}: {why}", path.display()));
            let file = Kubeconfig::read_from(path).map_err(|why| place(why.to_string()))?;
            Config::from_custom_kubeconfig(file, &options)
                .await
                .map_err(|why| place(why.to_string()))?
        }
        None => match Config::from_kubeconfig(&options).await {
            Ok(found) => found,
            Err(why) if reach.context.is_some() => return Err(refused(why.to_string())),
            Err(why) => Config::incluster().map_err(|_| {
                refused(format!("no cluster is known: {why}; set KUBECONFIG or give --kubeconfig"))
            })?,
        },
    };
    found.default_retry = false;
    found.connect_timeout = Some(CONNECT_TIMEOUT);
    found.read_timeout = Some(RESPONSE_TIMEOUT);
    found.headers.push((http::header::USER_AGENT, http::HeaderValue::from_static(agent)));
    let (address, namespace) = (found.cluster_url.to_string(), found.default_namespace.clone());
    let address = address.trim_end_matches('/').to_owned();
    let client = Client::try_from(found).map_err(|why| refused(format!("{address}: {why}")))?;
    Ok(Cluster { client, address, namespace })
}
