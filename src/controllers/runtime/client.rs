//! Connects to the API server, by kubeconfig or from inside the cluster.

use std::{path::Path, time::Duration};

use anyhow::{Context as _, Result, anyhow};
use http::HeaderValue;
use kube::{Client, Config, config::KubeConfigOptions};

use super::{command_client::describe_missing_cluster, liveness_thread::Clients};

/// A connection without any data for this long is closed. Individual requests have shorter timeouts. A watch receives
/// data at least every 290 seconds, because it requests that timeout.
const READ_TIMEOUT: Duration = Duration::from_secs(330);

pub(crate) async fn connect(kubeconfig: Option<&Path>, agent: &'static str) -> Result<Clients> {
    let config = build_config(kubeconfig, agent).await?;
    let liveness_config = config.clone();
    Ok(Clients::new(client(config)?, move || client(liveness_config)))
}

fn client(config: Config) -> Result<Client> {
    Client::try_from(config).context("failed to create API client")
}

async fn build_config(kubeconfig: Option<&Path>, agent: &'static str) -> Result<Config> {
    let mut config = match kubeconfig {
        Some(path) => {
            let file = kube::config::Kubeconfig::read_from(path)
                .with_context(|| format!("--kubeconfig={}", path.display()))?;
            Config::from_custom_kubeconfig(file, &KubeConfigOptions::default())
                .await
                .with_context(|| format!("--kubeconfig={}", path.display()))?
        }
        // As Config::infer does, whose error repeats itself.
        None => match Config::from_kubeconfig(&KubeConfigOptions::default()).await {
            Ok(config) => config,
            Err(error) => Config::incluster().map_err(|in_cluster| {
                let why = describe_missing_cluster(&error, &in_cluster);
                anyhow!("no cluster configured: {why}; run inside a cluster, or set KUBECONFIG or --kubeconfig")
            })?,
        },
    };
    // kube-rs logs this at every connection; that target is filtered out of the log.
    if config.accept_invalid_certs {
        tracing::warn!(
            server = %config.cluster_url,
            "the certificate of the API server is not verified (insecure-skip-tls-verify in the kubeconfig): an attacker on \
             the network path can read and change all traffic; set certificate-authority-data instead"
        );
    }
    // Each writer has its own retries, and knows which errors are final.
    config.default_retry = false;
    config.read_timeout = Some(READ_TIMEOUT);
    // Otherwise idle time before a request counts towards the timeout.
    config.reset_reader_on_write = true;
    config.headers.push((http::header::USER_AGENT, HeaderValue::from_static(agent)));
    Ok(config)
}
