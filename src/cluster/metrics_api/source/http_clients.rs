//! HTTP clients for recommenders: one for each TLS setting and never shared with another, made anew when its files
//! change, and forgotten when nobody asks for it.

use std::{
    collections::HashMap,
    net::{IpAddr, SocketAddr},
    sync::{Arc, Mutex, PoisonError},
};

use hyper_util::client::proxy::matcher::Matcher;
use reqwest::{
    Client, Url,
    dns::{Addrs, Name, Resolve, Resolving},
    header::HeaderValue,
    redirect::Policy,
};
use rustls::ClientConfig;
use tokio::{sync::Mutex as Turns, time::Instant};

use super::{
    recommender::RequestLimits,
    tls_files::{TlsFiles, client_config, client_config_without_roots},
};
use plimsoll_core::api::scale_target::TlsConfig;

/// What of both holds. Files that an object does not name are those of the process; all else is the object's own
/// affair, as soon as it says anything at all.
pub(super) fn effective_tls_config(own: Option<&TlsConfig>, defaults: &TlsConfig) -> TlsConfig {
    let Some(own) = own else { return defaults.clone() };
    let file = |own: &String, default: &String| {
        if own.is_empty() { default.clone() } else { own.clone() }
    };
    TlsConfig {
        ca_file: file(&own.ca_file, &defaults.ca_file),
        cert_file: file(&own.cert_file, &defaults.cert_file),
        key_file: file(&own.key_file, &defaults.key_file),
        ..own.clone()
    }
}

/// A way to a recommender.
pub(super) struct Endpoint {
    /// Whoever speaks.
    pub(super) client: Client,
    /// The address that is dialled.
    pub(super) url: Url,
    /// What it is called in the request, where that is not the host of the address.
    pub(super) host: Option<HeaderValue>,
}

/// The clients that there are.
pub(super) struct HttpClients {
    /// Who asks.
    user_agent: &'static str,
    limits: RequestLimits,
    proxies: Matcher,
    slots: Mutex<HashMap<ClientKey, Arc<ClientSlot>>>,
}

/// What a client is for.
#[derive(Clone, PartialEq, Eq, Hash)]
struct ClientKey {
    /// Nothing where nothing is encrypted.
    tls: Option<TlsConfig>,
    route: Route,
}

/// How a client gets there.
#[derive(Clone, PartialEq, Eq, Hash)]
enum Route {
    /// Through the proxy that the environment names.
    Proxied,
    /// By itself.
    Direct,
    /// By itself and to this host, though it calls it by the name that its certificate has to have. That name is
    /// told in the handshake, by which a server with many names chooses what it shows.
    ServerNameOverride(Box<str>),
}

struct ClientSlot {
    last_used: Mutex<Instant>,
    client: Turns<CachedClient>,
}

/// A client, or why there is none.
#[derive(Default)]
struct CachedClient {
    client: Option<(Client, TlsFiles)>,
    failure: Option<String>,
    next_reload: Option<Instant>,
}

impl HttpClients {
    pub(super) fn new(agent: &'static str, pace: RequestLimits) -> Self {
        Self {
            user_agent: agent,
            limits: pace,
            proxies: Matcher::from_env(),
            slots: Mutex::default(),
        }
    }

    /// The way to an address under a setting.
    pub(super) async fn endpoint(&self, tls: &TlsConfig, url: Url) -> Result<Endpoint, String> {
        let (reach, url, host) = self.route(tls, url);
        let tls = (url.scheme() == "https").then(|| tls.clone());
        let key = ClientKey { tls, route: reach };
        let slot = self.slot(&key);
        let mut made = slot.client.lock().await;
        if made.next_reload.is_none_or(|look| look <= Instant::now()) {
            made.reload(&key, self.user_agent, self.limits).await;
        }
        let client = match (&made.client, &made.failure) {
            (Some((client, _)), _) => client.clone(),
            (None, Some(failure)) => return Err(failure.clone()),
            (None, None) => return Err("there is no client".to_owned()),
        };
        Ok(Endpoint { client, url, host })
    }

    fn route(&self, tls: &TlsConfig, url: Url) -> (Route, Url, Option<HeaderValue>) {
        let is_proxied = !is_loopback(&url)
            && url.as_str().parse().is_ok_and(|uri| self.proxies.intercept(&uri).is_some());
        if is_proxied {
            return (Route::Proxied, url, None);
        }
        // An address is not told in a handshake: the certificate is looked at for it, and nothing else changes.
        let name = Some(&*tls.server_name).filter(|name| {
            url.scheme() == "https" && !name.is_empty() && name.parse::<IpAddr>().is_err()
        });
        let (Some(name), Some(host)) = (name, url.host_str()) else {
            return (Route::Direct, url, None);
        };
        let said = url.port().map_or_else(|| host.to_owned(), |port| format!("{host}:{port}"));
        let mut renamed = url.clone();
        match (HeaderValue::try_from(said), renamed.set_host(Some(name))) {
            (Ok(said), Ok(())) => {
                let host = host.trim_matches(['[', ']']).into();
                (Route::ServerNameOverride(host), renamed, Some(said))
            }
            _ => (Route::Direct, url, None),
        }
    }

    fn slot(&self, key: &ClientKey) -> Arc<ClientSlot> {
        let now = Instant::now();
        let mut kept = self.slots.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(slot) = kept.get(key) {
            *slot.last_used.lock().unwrap_or_else(PoisonError::into_inner) = now;
            return Arc::clone(slot);
        }
        let idle = self.limits.idle_timeout;
        kept.retain(|_, slot| {
            now - *slot.last_used.lock().unwrap_or_else(PoisonError::into_inner) < idle
        });
        let slot = Arc::new(ClientSlot { last_used: Mutex::new(now), client: Turns::default() });
        kept.insert(key.clone(), Arc::clone(&slot));
        slot
    }
}

impl CachedClient {
    /// Looks at the files, and makes a client of what is new in them. What is wrong with them is looked at again
    /// later; a client of before is used on meanwhile: a certificate and its key cannot change in the same moment.
    async fn reload(&mut self, key: &ClientKey, agent: &'static str, pace: RequestLimits) {
        let looked = self.rebuild_if_changed(key, agent).await;
        let pause = match looked {
            Ok(()) => {
                self.failure = None;
                pace.reload_interval
            }
            Err(why) => {
                if self.client.is_some() {
                    tracing::warn!(why, "the certificates that were read before are used on");
                }
                self.failure = Some(why);
                pace.reload_retry_interval
            }
        };
        self.next_reload = Some(Instant::now() + pause);
    }

    async fn rebuild_if_changed(
        &mut self,
        key: &ClientKey,
        agent: &'static str,
    ) -> Result<(), String> {
        let Some(tls) = &key.tls else {
            if self.client.is_none() {
                self.client = Some((
                    build_client(agent, client_config_without_roots()?, &key.route)?,
                    TlsFiles::default(),
                ));
            }
            return Ok(());
        };
        let read = {
            let tls = tls.clone();
            tokio::task::spawn_blocking(move || TlsFiles::load(&tls))
        };
        let files = read.await.map_err(|why| format!("files of certificates: {why}"))??;
        if self.client.as_ref().is_none_or(|(_, before)| *before != files) {
            let config = client_config(tls, &files)?;
            self.client = Some((build_client(agent, config, &key.route)?, files));
        }
        Ok(())
    }
}

fn build_client(agent: &str, config: ClientConfig, reach: &Route) -> Result<Client, String> {
    // Redirects are followed by whoever asks: each is a request of its own.
    let mut builder = Client::builder()
        .user_agent(agent)
        .redirect(Policy::none())
        .retry(reqwest::retry::never())
        .tls_backend_preconfigured(config);
    match reach {
        Route::Proxied => {}
        Route::Direct => builder = builder.no_proxy(),
        Route::ServerNameOverride(host) => {
            builder = builder.no_proxy().dns_resolver(Arc::new(FixedHostResolver(host.clone())));
        }
    }
    builder.build().map_err(|why| format!("there can be no HTTP client: {why}"))
}

/// Finds one host, whatever it is called.
struct FixedHostResolver(Box<str>);

impl Resolve for FixedHostResolver {
    fn resolve(&self, _: Name) -> Resolving {
        let host = self.0.clone();
        Box::pin(async move {
            let found: Vec<SocketAddr> = tokio::net::lookup_host((&*host, 0)).await?.collect();
            Ok(Box::new(found.into_iter()) as Addrs)
        })
    }
}

/// Whether it is on this machine, where no proxy gets.
fn is_loopback(url: &Url) -> bool {
    let host = url.host_str().unwrap_or_default().trim_matches(['[', ']']);
    host == "localhost" || host.parse().is_ok_and(|address: IpAddr| address.is_loopback())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_fall_back_one_by_one_and_all_else_is_the_objects_own() {
        let defaults = TlsConfig {
            ca_file: "/ca".to_owned(),
            cert_file: "/cert".to_owned(),
            key_file: "/key".to_owned(),
            server_name: "all".to_owned(),
            insecure_skip_verify: true,
            min_version: "TLS13".to_owned(),
            max_version: "TLS13".to_owned(),
        };
        assert_eq!(effective_tls_config(None, &defaults), defaults);
        let files = TlsConfig {
            ca_file: "/ca".to_owned(),
            cert_file: "/cert".to_owned(),
            key_file: "/key".to_owned(),
            ..TlsConfig::default()
        };
        assert_eq!(effective_tls_config(Some(&TlsConfig::default()), &defaults), files);
        let own = TlsConfig {
            ca_file: "/own".to_owned(),
            server_name: "mine".to_owned(),
            ..TlsConfig::default()
        };
        let expected =
            TlsConfig { ca_file: "/own".to_owned(), server_name: "mine".to_owned(), ..files };
        assert_eq!(effective_tls_config(Some(&own), &defaults), expected);
        assert_eq!(effective_tls_config(Some(&own), &TlsConfig::default()), own);
    }
}
