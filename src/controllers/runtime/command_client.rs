//! Connects a command to a cluster like kubectl, with short timeouts.

use std::{path::PathBuf, time::Duration};

use clap::Args;
use kube::{
    Client, Config,
    config::{KubeConfigOptions, Kubeconfig},
};

const CONNECT_TIMEOUT: Duration = Duration::from_secs(4);
const RESPONSE_TIMEOUT: Duration = Duration::from_secs(10);

/// How to connect to a cluster: by default to that of `KUBECONFIG` or `~/.kube/config`, or the own one.
#[derive(Clone, Debug, Default, PartialEq, Eq, Args)]
pub struct ClusterOptions {
    /// Path of the kubeconfig file
    #[arg(long, value_name = "FILE")]
    pub kubeconfig: Option<PathBuf>,
    /// Context in the kubeconfig file
    #[arg(long, value_name = "NAME")]
    pub context: Option<String>,
}

/// No cluster is configured, or its configuration is invalid.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct NoCluster(pub String);

/// A connected cluster.
#[derive(Clone)]
pub struct Cluster {
    /// The client.
    pub client: Client,
    /// The server address, for messages.
    pub address: String,
    /// The default namespace.
    pub namespace: String,
}

/// How to connect to a cluster. Sends no requests.
pub struct ClusterConnection {
    config: Config,
    /// Whether the cluster is the own one, found by the service account of the pod.
    pub is_in_cluster: bool,
}

/// Connects to the cluster like kubectl, with this user agent.
pub async fn connect(
    cluster_options: &ClusterOptions,
    agent: &'static str,
) -> Result<Cluster, NoCluster> {
    load_connection(cluster_options, agent).await?.cluster()
}

/// Reads how to connect to the cluster like kubectl, with this user agent.
pub async fn load_connection(
    cluster_options: &ClusterOptions,
    agent: &'static str,
) -> Result<ClusterConnection, NoCluster> {
    let options =
        KubeConfigOptions { context: cluster_options.context.clone(), ..Default::default() };
    let mut is_in_cluster = false;
    let mut config = match &cluster_options.kubeconfig {
        Some(path) => {
            let file_error =
                |error: String| NoCluster(format!("--kubeconfig={}: {error}", path.display()));
            let file =
                Kubeconfig::read_from(path).map_err(|error| file_error(error.to_string()))?;
            Config::from_custom_kubeconfig(file, &options)
                .await
                .map_err(|error| file_error(error.to_string()))?
        }
        None => match Config::from_kubeconfig(&options).await {
            Ok(config) => config,
            Err(error) if cluster_options.context.is_some() => {
                return Err(NoCluster(error.to_string()));
            }
            Err(error) => {
                is_in_cluster = true;
                Config::incluster().map_err(|_| {
                    NoCluster(format!(
                        "no cluster configured: {error}; set KUBECONFIG or --kubeconfig"
                    ))
                })?
            }
        },
    };
    config.default_retry = false;
    config.connect_timeout = Some(CONNECT_TIMEOUT);
    config.read_timeout = Some(RESPONSE_TIMEOUT);
    config.headers.push((http::header::USER_AGENT, http::HeaderValue::from_static(agent)));
    Ok(ClusterConnection { config, is_in_cluster })
}

impl ClusterConnection {
    /// The connected cluster.
    pub fn cluster(&self) -> Result<Cluster, NoCluster> {
        let (address, namespace) = (self.address(), self.config.default_namespace.clone());
        let client = Client::try_from(self.config.clone())
            .map_err(|error| NoCluster(format!("{address}: {error}")))?;
        Ok(Cluster { client, address, namespace })
    }

    /// A client for requests that take as long as the server behind the API server needs, such as queries: they have
    /// timeouts of their own.
    pub fn query_client(&self) -> Result<Client, NoCluster> {
        let mut config = self.config.clone();
        config.read_timeout = None;
        Client::try_from(config).map_err(|error| NoCluster(format!("{}: {error}", self.address())))
    }

    /// The server address, for messages.
    fn address(&self) -> String {
        self.config.cluster_url.to_string().trim_end_matches('/').to_owned()
    }
}
