//! How a role reaches the API server: by kubeconfig, or from inside of the cluster.

use std::{path::Path, time::Duration};

use anyhow::{Context as _, Result};
use http::HeaderValue;
use kube::{Client, Config, config::KubeConfigOptions};

/// A connection on which nothing arrives for so long is closed. Each request has a shorter limit of its own where it is made;
/// a watch hears of the server at least every 290 seconds, because it asks to be ended then.
const SILENCE: Duration = Duration::from_secs(330);

/// A client that calls itself `agent`.
pub(super) async fn connect(kubeconfig: Option<&Path>, agent: &'static str) -> Result<Client> {
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
    // Each writer has retries of its own, and knows which answers are none.
    found.default_retry = false;
    found.read_timeout = Some(SILENCE);
    // Otherwise the time that a connection was idle before a request counts as well.
    found.reset_reader_on_write = true;
    found.headers.push((http::header::USER_AGENT, HeaderValue::from_static(agent)));
    Client::try_from(found).context("the API server cannot be spoken to")
}
