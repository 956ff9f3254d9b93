//! HTTP clients that are rebuilt when their certificate files change.

use std::{net::IpAddr, time::Duration};

use reqwest::{Certificate, Client, Identity as ClientIdentity, Url, redirect::Policy};
use tokio::sync::Mutex;

use super::{
    TransportError,
    config::Tls,
    reloading_file::{Reload, ReloadingFile},
};

/// Long enough for a handshake, but short compared to a query: do not wait for an address that drops packets.
const CONNECT: Duration = Duration::from_secs(10);

/// Whether to use the proxy of the environment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ProxyPolicy {
    /// Use the proxy that the environment configures.
    FromEnvironment,
    /// Never use a proxy: the endpoint is reachable only from this machine.
    Never,
}

/// Builds HTTP clients.
#[derive(Debug)]
pub(super) struct HttpClientFactory {
    proxy: ProxyPolicy,
    encrypted: bool,
    insecure: bool,
    authority: Option<ReloadingFile>,
    identity: Option<(ReloadingFile, ReloadingFile)>,
    cached: Mutex<Option<CachedClient>>,
}

#[derive(Debug)]
struct CachedClient {
    client: Client,
    /// The version of the files that it was last built from, or that could not be used.
    version: u64,
}

impl HttpClientFactory {
    /// Creates a factory for the server at this address.
    pub(super) fn new(tls: Tls, url: &Url, proxy: ProxyPolicy, check_interval: Duration) -> Self {
        let file =
            |what, path: std::path::PathBuf| ReloadingFile::new(what, path.into(), check_interval);
        let identity = tls.client_certificate.map(|identity| {
            let certificate = file("the client certificate", identity.certificate);
            (certificate, file("the key of the client certificate", identity.key))
        });
        Self {
            proxy: if is_loopback(url) { ProxyPolicy::Never } else { proxy },
            encrypted: url.scheme() == "https",
            insecure: tls.insecure_skip_verify,
            authority: tls.ca_file.map(|path| file("the CA certificate", path)),
            identity,
            cached: Mutex::default(),
        }
    }

    /// Returns a client, and how often its files have changed so far.
    pub(super) async fn client(&self, reload: Reload) -> Result<(Client, u64), TransportError> {
        let mut changes = 0;
        let mut cached = self.cached.lock().await;
        let authority = match &self.authority {
            Some(file) => Some(file.read(reload).await?),
            None => None,
        };
        changes += authority.as_ref().map_or(0, |(_, changes)| *changes);
        let identity = match &self.identity {
            Some((certificate, key)) => {
                Some((certificate.read(reload).await?, key.read(reload).await?))
            }
            None => None,
        };
        changes += identity.as_ref().map_or(0, |(certificate, key)| certificate.1 + key.1);
        if let Some(cached) = cached.as_ref().filter(|cached| cached.version == changes) {
            return Ok((cached.client.clone(), changes));
        }
        let authority = authority.as_ref().map(|(pem, _)| pem.reveal());
        let identity = identity
            .as_ref()
            .map(|((certificate, _), (key, _))| (certificate.reveal(), key.reveal()));
        let client = match (self.make(authority, identity), cached.as_ref()) {
            (Ok(client), _) => client,
            // A certificate and its key cannot change at the same moment: use the old pair until the new one matches.
            (Err(error), Some(before)) => {
                tracing::warn!(%error, "failed to load changed certificates; still using the previous ones");
                before.client.clone()
            }
            (Err(error), None) => return Err(error),
        };
        *cached = Some(CachedClient { client: client.clone(), version: changes });
        Ok((client, changes))
    }

    fn make(
        &self,
        authority: Option<&str>,
        identity: Option<(&str, &str)>,
    ) -> Result<Client, TransportError> {
        if rustls::crypto::CryptoProvider::get_default().is_none() {
            // This fails if another thread has just installed one, which is fine.
            let _ = rustls::crypto::ring::default_provider().install_default();
        }
        let mut builder = Client::builder()
            .user_agent(concat!("plimsoll/", env!("CARGO_PKG_VERSION")))
            .redirect(Policy::none())
            .connect_timeout(CONNECT)
            .tls_danger_accept_invalid_certs(self.insecure);
        if self.proxy == ProxyPolicy::Never {
            builder = builder.no_proxy();
        }
        if !self.encrypted {
            // Without TLS no CA certificates are needed, so images without any work too. Plain HTTP servers are usually
            // nearby: compressing a response takes them longer than sending it, and as much CPU as evaluating the query.
            builder = builder.tls_certs_only([]).no_gzip();
        } else if let (Some(pem), Some(file)) = (authority, &self.authority) {
            let certificates = Certificate::from_pem_bundle(pem.as_bytes())
                .ok()
                .filter(|certificates| !certificates.is_empty())
                .ok_or_else(|| file.complain("it contains no PEM certificate"))?;
            builder = builder.tls_certs_only(certificates);
        }
        let Some(((certificate, key), (file, _))) = identity.zip(self.identity.as_ref()) else {
            return builder.build().map_err(|error| build_error(&error));
        };
        let pem = format!("{key}\n{certificate}\n");
        let mismatch = "it and its key are not a matching pair of PEM certificate and private key";
        let identity =
            ClientIdentity::from_pem(pem.as_bytes()).map_err(|_| file.complain(mismatch))?;
        builder.identity(identity).build().map_err(|_| file.complain(mismatch))
    }
}

/// Whether the address is on this machine, where no proxy applies.
fn is_loopback(url: &Url) -> bool {
    let host = url.host_str().unwrap_or_default().trim_matches(['[', ']']);
    host == "localhost" || host.parse().is_ok_and(|address: IpAddr| address.is_loopback())
}

fn build_error(error: &reqwest::Error) -> TransportError {
    let mut why: &dyn std::error::Error = error;
    while let Some(source) = why.source() {
        why = source;
    }
    TransportError::setting(
        "TLS",
        format!("{why}; set a CA file if the system has no certificates"),
    )
}
