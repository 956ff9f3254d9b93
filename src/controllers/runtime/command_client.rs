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

/// Connects to the cluster like kubectl, with this user agent.
pub async fn connect(
    cluster_options: &ClusterOptions,
    agent: &'static str,
) -> Result<Cluster, NoCluster> {
    let options =
        KubeConfigOptions { context: cluster_options.context.clone(), ..Default::default() };
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
            Err(error) => Config::incluster().map_err(|_| {
                NoCluster(format!("no cluster configured: {error}; set KUBECONFIG or --kubeconfig"))
            })?,
        },
    };
    config.default_retry = false;
    config.connect_timeout = Some(CONNECT_TIMEOUT);
    config.read_timeout = Some(RESPONSE_TIMEOUT);
    config.headers.push((http::header::USER_AGENT, http::HeaderValue::from_static(agent)));
    let (address, namespace) = (config.cluster_url.to_string(), config.default_namespace.clone());
    let address = address.trim_end_matches('/').to_owned();
    let client =
        Client::try_from(config).map_err(|error| NoCluster(format!("{address}: {error}")))?;
    Ok(Cluster { client, address, namespace })
}
