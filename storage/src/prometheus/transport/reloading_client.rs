//! An HTTP client that is rebuilt when its certificate files change.

use std::{fmt, net::IpAddr, sync::Arc, time::Duration};

use plimsoll_core::api::scale_target::TlsConfig;
use reqwest::{Client, ClientBuilder, Url, redirect::Policy, retry};
use tokio::{sync::Mutex, time::Instant};

use super::{
    TransportError,
    reloading_file::Reload,
    tls::{TlsFiles, client_config},
};

/// An HTTP client that is rebuilt when its certificate files change. Concurrent requests wait for one check.
pub struct ReloadingClient {
    /// `None` for plain HTTP.
    tls: Option<TlsConfig>,
    check_interval: Duration,
    configure: Box<dyn Fn(ClientBuilder) -> ClientBuilder + Send + Sync>,
    /// The last check, and its result.
    state: Mutex<Option<(Instant, Result<BuiltClient, TransportError>)>>,
}

#[derive(Clone)]
struct BuiltClient {
    client: Client,
    files: Arc<TlsFiles>,
    /// How often a client was built.
    version: u64,
}

impl fmt::Debug for ReloadingClient {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ReloadingClient").field("tls", &self.tls).finish_non_exhaustive()
    }
}

impl ReloadingClient {
    /// Creates the client of a TLS configuration, or one for plain HTTP. It follows no redirects: the target would get the
    /// credentials. `configure` adds everything but TLS.
    pub fn new(
        tls: Option<TlsConfig>,
        check_interval: Duration,
        configure: impl Fn(ClientBuilder) -> ClientBuilder + Send + Sync + 'static,
    ) -> Self {
        Self { tls, check_interval, configure: Box::new(configure), state: Mutex::default() }
    }

    pub async fn get(&self) -> Result<Client, TransportError> {
        Ok(self.get_version(Reload::IfDue).await?.0)
    }

    /// Returns the client, and how often it was built so far. An error is returned again until the files are due.
    pub(super) async fn get_version(
        &self,
        reload: Reload,
    ) -> Result<(Client, u64), TransportError> {
        let mut state = self.state.lock().await;
        let is_due = |at: &Instant| reload == Reload::Now || at.elapsed() >= self.check_interval;
        let result = match &*state {
            Some((at, result)) if !is_due(at) => result.clone(),
            last => {
                let previous = last.as_ref().and_then(|(_, result)| result.as_ref().ok());
                let result = match (self.rebuild_if_changed(previous).await, previous) {
                    // A certificate and its key cannot change at the same moment, and a file that is being replaced is
                    // missing for a moment.
                    (Err(error), Some(previous)) => {
                        tracing::warn!(%error, "failed to reload certificates; still using the previous ones");
                        Ok(previous.clone())
                    }
                    (result, _) => result,
                };
                *state = Some((Instant::now(), result.clone()));
                result
            }
        };
        result.map(|built| (built.client, built.version))
    }

    async fn rebuild_if_changed(
        &self,
        previous: Option<&BuiltClient>,
    ) -> Result<BuiltClient, TransportError> {
        let files = match self.tls.clone() {
            Some(tls) => tokio::task::spawn_blocking(move || TlsFiles::load(&tls))
                .await
                .map_err(|why| TransportError::setting("TLS", why))??,
            None => TlsFiles::default(),
        };
        if let Some(previous) = previous.filter(|previous| *previous.files == files) {
            return Ok(previous.clone());
        }
        let builder = Client::builder()
            .redirect(Policy::none())
            .retry(retry::never())
            .tls_backend_preconfigured(client_config(self.tls.as_ref(), &files)?);
        let client = (self.configure)(builder).build();
        let client = client.map_err(|why| TransportError::setting("the HTTP client", why))?;
        let version = previous.map_or(1, |previous| previous.version + 1);
        Ok(BuiltClient { client, files: Arc::new(files), version })
    }
}

/// Whether the host is this machine, which no proxy can reach.
pub fn is_loopback(url: &Url) -> bool {
    let host = url.host_str().unwrap_or_default().trim_matches(['[', ']']);
    host == "localhost" || host.parse().is_ok_and(|address: IpAddr| address.is_loopback())
}
