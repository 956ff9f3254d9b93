//! Who we talk to and who we are: HTTP clients, made anew when the files of their certificates changed.

use std::{net::IpAddr, time::Duration};

use reqwest::{Certificate, Client, Identity as ClientIdentity, Url, redirect::Policy};
use tokio::sync::Mutex;

use super::{
    TransportError,
    config::Tls,
    reloading_file::{Reload, ReloadingFile},
};

/// Long for a handshake, short beside a query: a server behind a deaf address is not waited for.
const CONNECT: Duration = Duration::from_secs(10);

/// What the clients are for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ProxyPolicy {
    /// A server, through the proxy that the environment names.
    FromEnvironment,
    /// Something on this machine, where no proxy gets.
    Never,
}

/// Makes clients.
#[derive(Debug)]
pub(super) struct HttpClientFactory {
    reach: ProxyPolicy,
    encrypted: bool,
    insecure: bool,
    authority: Option<ReloadingFile>,
    identity: Option<(ReloadingFile, ReloadingFile)>,
    cached: Mutex<Option<CachedClient>>,
}

#[derive(Debug)]
struct CachedClient {
    client: Client,
    /// Of the files that it was made from, or could not be made from.
    version: u64,
}

impl HttpClientFactory {
    /// For a server at this address.
    pub(super) fn new(tls: Tls, url: &Url, reach: ProxyPolicy, look: Duration) -> Self {
        let held = |what, path: std::path::PathBuf| ReloadingFile::new(what, path.into(), look);
        let identity = tls.client_certificate.map(|identity| {
            let certificate = held("the client certificate", identity.certificate);
            (certificate, held("the key of the client certificate", identity.key))
        });
        Self {
            reach: if is_loopback(url) { ProxyPolicy::Never } else { reach },
            encrypted: url.scheme() == "https",
            insecure: tls.insecure_skip_verify,
            authority: tls.ca_file.map(|path| held("the CA certificate", path)),
            identity,
            cached: Mutex::default(),
        }
    }

    /// A client, and how often its files changed until now.
    pub(super) async fn client(&self, fresh: Reload) -> Result<(Client, u64), TransportError> {
        let mut changes = 0;
        let mut made = self.cached.lock().await;
        let authority = match &self.authority {
            Some(held) => Some(held.read(fresh).await?),
            None => None,
        };
        changes += authority.as_ref().map_or(0, |(_, changes)| *changes);
        let identity = match &self.identity {
            Some((certificate, key)) => {
                Some((certificate.read(fresh).await?, key.read(fresh).await?))
            }
            None => None,
        };
        changes += identity.as_ref().map_or(0, |(certificate, key)| certificate.1 + key.1);
        if let Some(made) = made.as_ref().filter(|made| made.version == changes) {
            return Ok((made.client.clone(), changes));
        }
        let authority = authority.as_ref().map(|(pem, _)| pem.reveal());
        let identity = identity
            .as_ref()
            .map(|((certificate, _), (key, _))| (certificate.reveal(), key.reveal()));
        let client = match (self.make(authority, identity), made.as_ref()) {
            (Ok(client), _) => client,
            // A certificate and its key cannot change in the same moment: the old pair is used until the new one fits.
            (Err(error), Some(before)) => {
                tracing::warn!(%error, "the certificates that were read before are used on");
                before.client.clone()
            }
            (Err(error), None) => return Err(error),
        };
        *made = Some(CachedClient { client: client.clone(), version: changes });
        Ok((client, changes))
    }

    fn make(
        &self,
        authority: Option<&str>,
        identity: Option<(&str, &str)>,
    ) -> Result<Client, TransportError> {
        if rustls::crypto::CryptoProvider::get_default().is_none() {
            // Somebody else may just have been faster, which is as good.
            let _ = rustls::crypto::ring::default_provider().install_default();
        }
        let mut builder = Client::builder()
            .user_agent(concat!("plimsoll/", env!("CARGO_PKG_VERSION")))
            .redirect(Policy::none())
            .connect_timeout(CONNECT)
            .tls_danger_accept_invalid_certs(self.insecure);
        if self.reach == ProxyPolicy::Never {
            builder = builder.no_proxy();
        }
        if !self.encrypted {
            // An image without certificates can still ask where none are needed. And what is not encrypted is near: to
            // compress an answer takes such a server longer than to send it, and as much work as to find it.
            builder = builder.tls_certs_only([]).no_gzip();
        } else if let (Some(pem), Some(held)) = (authority, &self.authority) {
            let certificates = Certificate::from_pem_bundle(pem.as_bytes())
                .ok()
                .filter(|certificates| !certificates.is_empty())
                .ok_or_else(|| held.complain("there is no PEM certificate in it"))?;
            builder = builder.tls_certs_only(certificates);
        }
        let Some(((certificate, key), (held, _))) = identity.zip(self.identity.as_ref()) else {
            return builder.build().map_err(|error| refuse(&error));
        };
        let pem = format!("{key}\n{certificate}\n");
        let unfit = "it and its key are no pair of PEM certificate and private key";
        let identity =
            ClientIdentity::from_pem(pem.as_bytes()).map_err(|_| held.complain(unfit))?;
        builder.identity(identity).build().map_err(|_| held.complain(unfit))
    }
}

/// Whether it is on this machine, whatever the proxy.
fn is_loopback(url: &Url) -> bool {
    let host = url.host_str().unwrap_or_default().trim_matches(['[', ']']);
    host == "localhost" || host.parse().is_ok_and(|address: IpAddr| address.is_loopback())
}

fn refuse(error: &reqwest::Error) -> TransportError {
    let mut why: &dyn std::error::Error = error;
    while let Some(source) = why.source() {
        why = source;
    }
    TransportError::setting(
        "TLS",
        format!("{why}; give a CA file if the system has no certificates"),
    )
}
