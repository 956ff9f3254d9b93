//! How a role reaches the API server: by kubeconfig, or from inside of the cluster.

use std::{path::Path, time::Duration};

use anyhow::{Context as _, Result};
use http::HeaderValue;
use kube::{Client, Config, config::KubeConfigOptions};

use super::liveness::Clients;

/// A connection on which nothing arrives for so long is closed. Each request has a shorter limit of its own where it is made;
/// a watch hears of the server at least every 290 seconds, because it asks to be ended then.
const READ_TIMEOUT: Duration = Duration::from_secs(330);

/// Clients that call themselves `agent`.
pub(crate) async fn connect(kubeconfig: Option<&Path>, agent: &'static str) -> Result<Clients> {
    let found = config(kubeconfig, agent).await?;
    let again = found.clone();
    Ok(Clients::new(client(found)?, move || client(again)))
}

fn client(config: Config) -> Result<Client> {
    Client::try_from(config).context("the API server cannot be spoken to")
}

async fn config(kubeconfig: Option<&Path>, agent: &'static str) -> Result<Config> {
    let mut found = match kubeconfig {
        Some(path) => {
            let file = kube::config::Kubeconfig::read_from(path)
                .with_context(|| format!("--kubeconfig={}", path.display()))?;
            Config::from_custom_kubeconfig(file, &KubeConfigOptions::default())
                .await
                .with_context(|| format!("--kubeconfig={}", path.display()))?
        }
        None => Config::infer().await.context(
            "no API server is known: run inside of a cluster, set KUBECONFIG, or give --kubeconfig",
        )?,
    };
    // What the client logs about it, at each connection, is left out of the log.
    if found.accept_invalid_certs {
        tracing::warn!(
            server = %found.cluster_url,
            "the certificate of the API server is not verified (insecure-skip-tls-verify in the kubeconfig): anybody on the \
             way to it can read and change everything; set certificate-authority-data instead"
        );
    }
    // Each writer has retries of its own, and knows which answers are none.
    found.default_retry = false;
    found.read_timeout = Some(READ_TIMEOUT);
    // Otherwise the time that a connection was idle before a request counts as well.
    found.reset_reader_on_write = true;
    found.headers.push((http::header::USER_AGENT, HeaderValue::from_static(agent)));
    Ok(found)
}
